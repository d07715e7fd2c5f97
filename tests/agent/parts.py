"""What the tests of agents share: a scripted computer, and agents on every face and provider."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import streamkit as sk
from streamkit.events import ActiveLine, ConsoleCreated, ConsoleDelta, ConsoleDone, Event, MessageCreated, MessageDelta
from streamkit.testing import ModelServer, Reply, Request, ToolCall

from ..faces import Face, Shaped

__all__ = ["PNG", "PROVIDERS", "Approving", "Talker", "ToyComputer", "agent_on", "code", "every_provider", "outputs_of"]

PROVIDERS = ("openai_responses", "openai_chat", "anthropic")
every_provider = pytest.mark.parametrize("provider", PROVIDERS)
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def code(source: str, language: str = "python", **more: Any) -> ToolCall:
    """A call that runs code."""
    return ToolCall("execute", {"language": language, "code": source}, **more)


class ToyRun:
    """One run of a `ToyComputer`. Each line of the code is a command: `say …`, `complain …`, `show`, `hang` (until it is
    stopped), `break` (the computer itself fails); any other does nothing."""

    def __init__(self, computer: ToyComputer, source: str, call_id: str | None) -> None:
        self.computer, self.source, self.call_id = computer, source, call_id
        self.number = len(computer.runs)
        self.stop = threading.Event()
        self.ended = threading.Event()
        self.pulled = threading.Lock()  # while a thread is in the run
        self.begun = False
        computer.runs.append(self)

    def __iter__(self) -> Iterator[Event]:
        events = self._events()
        while True:
            with self.pulled:
                event = next(events, None)
            if event is None:
                return
            yield event

    def _events(self) -> Iterator[Event]:
        self.begun = True
        console = sk.ConsoleMessage(f"run-{self.number}", call_id=self.call_id)
        begun = False
        try:
            for line, command in enumerate(self.source.splitlines(), 1):
                word, _, rest = command.partition(" ")
                yield ActiveLine(console.id, line)
                if word in ("say", "complain"):
                    if not begun:
                        begun = True
                        yield ConsoleCreated(console)
                    metadata = {"stream": "stdout" if word == "say" else "stderr"}
                    yield ConsoleDelta(console.id, f"{rest}\n", metadata=metadata)
                elif word == "show":
                    image = sk.ImageMessage(
                        f"{console.id}-{line}", role="computer", format="base64.png", call_id=self.call_id
                    )
                    yield MessageCreated(image)
                    yield MessageDelta(image.id, PNG)
                    yield image.done_event(image)
                elif word == "break":
                    raise RuntimeError("the computer is on fire")
                elif word == "hang":
                    self.computer.hanging.set()
                    assert self.stop.wait(20)
                    if not begun:
                        begun = True
                        yield ConsoleCreated(console)
                    yield ConsoleDelta(console.id, "KeyboardInterrupt\n", metadata={"stream": "stderr"})
                    break
            if begun:
                yield ActiveLine(console.id, None)
                yield ConsoleDone(sk.ConsoleMessage(console.id))
        finally:
            self.ended.set()

    def interrupt(self) -> None:
        self.stop.set()

    def close(self) -> None:
        self.stop.set()
        with self.pulled:
            self.ended.set()


class ToyComputer:
    """A computer as an application may write one. It records what it was asked to do."""

    def __init__(self, *languages: str) -> None:
        self.languages = languages or ("python", "shell")
        self.runs: list[ToyRun] = []
        self.started: list[str] = []
        self.hanging = threading.Event()

    @property
    def ran(self) -> list[str]:
        return [run.source for run in self.runs if run.begun]

    def start(self, language: str) -> None:
        self.started.append(language)

    def run(self, language: str, code: str, *, call_id: str | None = None) -> ToyRun:
        assert language in self.languages
        return ToyRun(self, code, call_id)


class Talker:
    """An agent of one face. Its streams have the methods of the async ones."""

    def __init__(self, agent: Any, face: Face) -> None:
        self.agent, self.face = agent, face

    def stream(self, *given: Any, **options: Any) -> Any:
        stream = self.agent.stream(*given, **options)
        return stream if self.face.is_async else Shaped(stream)

    async def say(self, *given: Any, **options: Any) -> Any:
        """A stream that was run to its end."""
        stream = self.stream(*given, **options)
        await stream.until_done()
        return stream

    @property
    def messages(self) -> list[sk.Message]:
        return self.agent.messages  # type: ignore[no-any-return]

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Types and contents of the conversation."""
        return [(message.type, message.content) for message in self.messages]


@asynccontextmanager
async def agent_on(
    face: Face, server: ModelServer, provider: str = "openai_chat", **options: Any
) -> AsyncIterator[Talker]:
    """An agent of this face, with a real client and a scripted model."""
    kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
    if provider == "anthropic":
        import anthropic  # here, as the processes of the server's tests import this module, too

        make: Any = anthropic.AsyncAnthropic if face.is_async else anthropic.Anthropic
        claude = make(base_url=server.root_url, api_key="any", max_retries=0)
        try:
            yield Talker(kind(claude, model="m", **options), face)
        finally:
            if face.is_async:
                await claude.close()
            else:
                claude.close()
        return
    async with face.client(server) as client:
        yield Talker(kind(client, model="m", protocol=provider, **options), face)


class Approving(sk.EventHandler):
    """Approves everything, and records the confirmations."""

    def __init__(self, edited: str | None = None) -> None:
        self.confirmations: list[sk.Confirmation] = []
        self.edited = edited

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        self.confirmations.append(confirmation)
        confirmation.approve(self.edited)


def outputs_of(request: Request) -> dict[str, str]:
    """The tool outputs in a request of any provider, by the ids of their calls."""
    body = request.body
    if "input" in body:
        return {i["call_id"]: i["output"] for i in body["input"] if i["type"] == "function_call_output"}
    if request.path.endswith("/messages"):
        blocks = [b for m in body["messages"] for b in m["content"] if b["type"] == "tool_result"]
        return {b["tool_use_id"]: "".join(part["text"] for part in b.get("content", [])) for b in blocks}
    return {m["tool_call_id"]: m["content"] for m in body["messages"] if m["role"] == "tool"}


Script = Callable[[], Reply]
