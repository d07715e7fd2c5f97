"""One `AssistantEventHandler`, written for the retired Assistants API, over three providers: only its import changed.

    python examples/migrate_assistant.py

Without OPENAI_API_KEY a scripted model answers in all three protocols, on this machine; with it, OpenAI answers over
Responses. With ANTHROPIC_API_KEY Claude answers, too; ASSISTANTS_BASE_URL and ASSISTANT_ID name a server that still
speaks the Assistants API.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import anthropic
import openai
from _model import model
from openai.types.beta.threads import Text, TextDelta
from openai.types.beta.threads.runs import ToolCall, ToolCallDelta
from typing_extensions import override

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler  # was: from openai import AssistantEventHandler
from streamkit.testing import CodeInterpreter, ModelServer, Reply

SCRIPT = Reply(CodeInterpreter("print((121 + 11) / 3)", logs="44.0\n"), "The answer is 44.")
QUESTION = "Solve 3x - 11 = 121 with Python."


class EventHandler(AssistantEventHandler):
    """Shows text, the code that the code interpreter runs, and what it prints."""

    @override
    def on_text_created(self, text: Text) -> None:
        print("\nassistant > ", end="", flush=True)

    @override
    def on_text_delta(self, delta: TextDelta, snapshot: Text) -> None:
        print(delta.value, end="", flush=True)

    @override
    def on_tool_call_created(self, tool_call: ToolCall) -> None:
        print(f"\nassistant > {tool_call.type}\n", flush=True)

    @override
    def on_tool_call_delta(self, delta: ToolCallDelta, snapshot: ToolCall) -> None:
        if delta.type == "code_interpreter" and delta.code_interpreter:
            if delta.code_interpreter.input:
                print(delta.code_interpreter.input, end="", flush=True)
            for output in delta.code_interpreter.outputs or []:
                if output.type == "logs":
                    print(f"\n\noutput > {output.logs}", end="", flush=True)


def over_assistants(url: str, assistant: str, key: str) -> None:
    """As before: the real client starts the stream, on a server that still speaks the Assistants API."""
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the client warns that the API is retired
        with client.beta.threads.create_and_run_stream(
            assistant_id=assistant,
            thread={"messages": [{"role": "user", "content": QUESTION}]},
            event_handler=EventHandler(),
        ) as stream:
            stream.until_done()


def over_responses(client: openai.OpenAI, name: str) -> None:
    """The same handler, over the API that took the place of Assistants."""
    sk.stream(
        lambda: client.responses.create(
            model=name,
            input=QUESTION,
            tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
            include=["code_interpreter_call.outputs"],  # without it the API leaves the logs out
            stream=True,
        ),
        EventHandler(),
    ).until_done()


def over_anthropic(client: anthropic.Anthropic) -> None:
    """The same handler, over another provider."""
    sk.stream(
        lambda: client.beta.messages.create(
            model=os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5"),
            max_tokens=1000,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[{"type": "code_execution_20250825", "name": "code_execution"}],
            betas=["code-execution-2025-08-25"],
            stream=True,
        ),
        EventHandler(),
    ).until_done()


def show(title: str, run: Callable[[], None]) -> None:
    print(f"== {title}", end="")
    run()
    print("\n")


with ModelServer(SCRIPT) as server:
    if url := os.environ.get("ASSISTANTS_BASE_URL"):
        key, assistant = os.environ.get("ASSISTANTS_API_KEY", "none"), os.environ["ASSISTANT_ID"]
        show("Assistants", lambda: over_assistants(url, assistant, key))
    elif not os.environ.get("OPENAI_API_KEY"):
        show("Assistants", lambda: over_assistants(server.url, "asst_1", "none"))

    with model(SCRIPT) as (client, name):
        show("Responses", lambda: over_responses(client, name))

    if os.environ.get("ANTHROPIC_API_KEY"):
        with anthropic.Anthropic() as claude:
            show("Anthropic", lambda: over_anthropic(claude))
    elif not os.environ.get("OPENAI_API_KEY"):
        with anthropic.Anthropic(base_url=server.root_url, api_key="none", max_retries=0) as claude:
            show("Anthropic", lambda: over_anthropic(claude))
