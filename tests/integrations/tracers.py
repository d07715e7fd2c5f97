"""Runs requests under a tracer, and prints what it recorded: `python -m tests.integrations.tracers TRACER`.

Each tracer has a process of its own, for some patch a client's classes for good. A request is read in four ways: `by hand`, in
a loop over the client's own stream; `stream`, by streamkit; `agent`; and `telemetry`, an agent with streamkit's own. Printed is a JSON object: by API, face and way, for
each request its output and its usage, as the tracer's records have them, without times and ids of its own.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import anthropic
import anyio
import openai
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import streamkit as sk
from streamkit.telemetry import Telemetry
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .runs import APIS_OF, FACES

SCRIPT = [Reply(Text(pieces=["Let me ", "look."]), ToolCall("weather", {"city": "Oslo"})), Reply("It ", "rains.")]
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
CHAT = {**ASKED, "stream_options": {"include_usage": True}}
MESSAGES = {**ASKED, "max_tokens": 8192}

# How a request is made through each API: of a client, the stream or a helper's context manager.
APIS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda client: client.chat.completions.create(**CHAT, stream=True),
    "chat helper": lambda client: client.chat.completions.stream(**CHAT),
    "chat raw": lambda client: client.chat.completions.with_raw_response.create(**CHAT, stream=True),
    "responses": lambda client: client.responses.create(model="m", input="?", stream=True),
    "responses helper": lambda client: client.responses.stream(model="m", input="?"),
    "messages": lambda client: client.messages.create(**MESSAGES, stream=True),
    "messages helper": lambda client: client.messages.stream(**MESSAGES),
    "beta messages": lambda client: client.beta.messages.create(**MESSAGES, stream=True),
    "beta messages helper": lambda client: client.beta.messages.stream(**MESSAGES),
}
PROTOCOLS = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic"}
# Parts of the names of attributes that hold an output or usage.
RESULTS = ("output", "usage", "token_count", "response_data", "completion", "stop_reason", "finish_reason")


# -- the tracers


def _openinference(exporter: InMemorySpanExporter) -> None:
    from openinference.instrumentation.anthropic import AnthropicInstrumentor
    from openinference.instrumentation.openai import OpenAIInstrumentor

    provider = _provider(exporter)
    OpenAIInstrumentor().instrument(tracer_provider=provider)
    AnthropicInstrumentor().instrument(tracer_provider=provider)


def _logfire(exporter: InMemorySpanExporter) -> None:
    import logfire

    processors = [SimpleSpanProcessor(exporter)]
    logfire.configure(
        send_to_logfire=False, console=False, additional_span_processors=processors, inspect_arguments=False
    )
    logfire.instrument_openai()
    logfire.instrument_anthropic()


def _langfuse(exporter: InMemorySpanExporter) -> None:
    from langfuse import Langfuse

    Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=exporter, flush_at=1)
    importlib.import_module("langfuse.openai")  # it patches the client


def _of_sdk(exporter: InMemorySpanExporter) -> None:
    """anthropic's own: its client is given the provider."""


TRACERS = {"openinference": _openinference, "logfire": _logfire, "langfuse": _langfuse, "anthropic": _of_sdk}


def _provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def _records(exporter: InMemorySpanExporter) -> list[Mapping[str, Any]]:
    """The outputs and usages in the spans that ended, in their order."""
    records: list[Mapping[str, Any]] = []
    for span in exporter.get_finished_spans():
        attributes = {
            name: _without_tools(value)
            for name, value in (span.attributes or {}).items()
            if any(part in name for part in RESULTS) and not any(part in name for part in ("start_time", "input_mess"))
        }
        if attributes:
            records.append({**attributes, "status": span.status.status_code.name})
    return records


def _without_tools(value: Any) -> Any:
    """A response without the tools of its request, which Responses repeats: those of an agent are its own."""
    if isinstance(value, str) and '"tools":' in value:
        response = json.loads(value)
        return {key: inner for key, inner in response.items() if key != "tools"}
    return value


# -- the ways


def _options(server: ModelServer, tracer: str, api: str, exporter: InMemorySpanExporter) -> dict[str, Any]:
    options: dict[str, Any] = {"base_url": server.url, "api_key": "k", "max_retries": 0}
    if "messages" in api:
        options["base_url"] = server.root_url
    if tracer == "anthropic":
        traces = {"content_mode": "content"}
        options["open_telemetry"] = {"tracer_provider": _provider(exporter), "traces": traces}
    return options


def weather(city: str) -> str:
    """The weather.

    Args:
        city: where.
    """
    return "rain"


def _agent_options(api: str, way: str) -> dict[str, Any]:
    handlers = [Telemetry(tracer_provider=TracerProvider())] if way == "telemetry" else []
    return {"model": "m", "tools": [weather], "protocol": PROTOCOLS[api], "handlers": handlers}


def _read(client: Any, api: str, way: str) -> None:
    if way in ("agent", "telemetry"):
        sk.Agent(client, **_agent_options(api, way)).stream("?").until_done()
        return
    for _ in SCRIPT:
        if way == "stream":
            sk.stream(partial(APIS[api], client)).until_done()
            continue
        opened = APIS[api](client)
        opened = opened.parse() if hasattr(opened, "parse") else opened
        with opened as stream:
            for _ in stream:
                pass


async def _read_async(client: Any, api: str, way: str) -> None:
    if way in ("agent", "telemetry"):
        await sk.AsyncAgent(client, **_agent_options(api, way)).stream("?").until_done()
        return
    for _ in SCRIPT:
        if way == "stream":
            await sk.astream(partial(_opened, client, api)).until_done()
            continue
        opened = await _opened(client, api)
        opened = opened.parse() if hasattr(opened, "parse") else opened
        async with opened as stream:
            async for _ in stream:
                pass


async def _opened(client: Any, api: str) -> Any:
    opened = APIS[api](client)
    return opened if api.endswith("helper") else await opened


def _recorded(tracer: str, api: str, face: str, way: str, exporter: InMemorySpanExporter) -> list[Mapping[str, Any]]:
    exporter.clear()
    with ModelServer(SCRIPT) as server:
        options = _options(server, tracer, api, exporter)
        if face == "sync":
            with (anthropic.Anthropic if "messages" in api else openai.OpenAI)(**options) as client:
                _read(client, api, way)
        else:

            async def run() -> None:
                kind: Any = anthropic.AsyncAnthropic if "messages" in api else openai.AsyncOpenAI
                async with kind(**options) as client:
                    await _read_async(client, api, way)

            anyio.run(run, backend=face)
    if tracer == "langfuse":
        from langfuse import get_client

        get_client().flush()
    return _records(exporter)


def main(tracer: str) -> None:
    """Print the records of all runs."""
    exporter = InMemorySpanExporter()
    TRACERS[tracer](exporter)
    records: dict[str, Any] = {}
    for api, face in product(APIS_OF[tracer], FACES):
        for way in ("by hand", "stream", "agent", "telemetry") if api in PROTOCOLS else ("by hand", "stream"):
            records[f"{api}, {face}, {way}"] = _recorded(tracer, api, face, way, exporter)
    print(json.dumps(records, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
