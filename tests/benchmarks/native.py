"""The streams of clients that have a protocol of their own, beside the client's own loop over its objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import httpx

import streamkit as sk

from .faces import Texts
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest
from .wires import answer, deltas

TITLE = "Clients with a protocol of their own"
ABOUT = """\
CPU time for each text delta of Ollama and Cohere, through the real client, in one process: its HTTP client gets the body from memory,
an event a chunk. *Its stream* is what the client returns; *its objects* are those of a generator around it, as where a tracer stands
between. The baseline is the client's own loop."""

OWN_LOOP = "the client's own loop"


def ollama_body(n: int) -> list[bytes]:
    """The lines of an answer of `n` deltas."""
    head = {"model": "m", "created_at": "2026-01-01T00:00:00.123456Z"}
    items: list[Any] = [
        {**head, "message": {"role": "assistant", "content": text}, "done": False} for text in deltas(n)
    ]
    items.append({**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
    return [json.dumps(item).encode() + b"\n" for item in items]


def cohere_body(n: int) -> list[bytes]:
    """The events of an answer of `n` deltas."""

    def item(type: str, **message: Any) -> dict[str, Any]:
        return {"type": type, "index": 0, "delta": {"message": message}}

    items = [{"id": "a", **item("message-start", role="assistant")}]
    items.append(item("content-start", content={"type": "text", "text": ""}))
    items += [item("content-delta", content={"text": text}) for text in deltas(n)]
    items += [{"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {}}}]
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in items]


def ollama_stream(http: Mapping[str, Any]) -> Any:
    import ollama

    return ollama.Client(**http).chat(model="m", messages=[], stream=True)


def cohere_stream(http: Mapping[str, Any]) -> Any:
    import cohere

    client = cohere.ClientV2(api_key="none", base_url="http://localhost", httpx_client=httpx.Client(**http))
    return client.chat_stream(model="m", messages=[])


def ollama_text(part: Any) -> str:
    return str(part.message.content)


def cohere_text(event: Any) -> str:
    return str(event.delta.message.content.text) if event.type == "content-delta" else ""


def own_loop(stream: Any, text_of: Callable[[Any], str]) -> str:
    return "".join([text_of(item) for item in stream])


def with_hook(stream: Any, _: Callable[[Any], str]) -> str:
    handler = Texts()
    sk.stream(stream, handler).until_done()
    return "".join(handler.parts)


def with_hook_on_objects(stream: Any, text_of: Callable[[Any], str]) -> str:
    return with_hook((item for item in stream), text_of)


PROVIDERS: Mapping[str, tuple[Any, str, Any, Any]] = {
    "ollama": (ollama_body, "application/x-ndjson", ollama_stream, ollama_text),
    "cohere": (cohere_body, "text/event-stream", cohere_stream, cohere_text),
}
READERS = {OWN_LOOP: own_loop, "streamkit, its stream": with_hook, "streamkit, its objects": with_hook_on_objects}


def measured(provider: str, read: Callable[..., str], n: int, times: int) -> float:
    """Microseconds a delta."""
    body_of, content_type, stream_of, text_of = PROVIDERS[provider]
    body, clock = body_of(n), Clock()

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": content_type}, content=iter(body))

    for _ in range(times):
        stream = stream_of({"transport": httpx.MockTransport(respond)})
        with clock:
            text = read(stream, text_of)
        check(text, answer(n))
    return clock.seconds / n / times * 1e6


def contestants(provider: str) -> dict[str, Contestant]:
    needs = (provider, "streamkit-sdk[integrations]")
    return {f"{name} ({provider})": Contestant(partial(measured, provider, READERS[name]), needs) for name in READERS}


CONTESTANTS = {name: one for provider in PROVIDERS for name, one in contestants(provider).items()}


def rows(profile: Profile) -> Iterator[Row]:
    parameters = {"n": profile.pick(50, 2_000, 2_000), "times": profile.pick(1, 3, 10)}
    with Workers(__name__) as workers:
        for provider in PROVIDERS:
            yield from contest(
                workers,
                contestants(provider),
                profile.rounds,
                case=provider.capitalize(),
                unit="µs a delta",
                baseline=f"{OWN_LOOP} ({provider})",
                parameters=parameters,
            )
