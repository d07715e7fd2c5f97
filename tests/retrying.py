"""What the tests of retries share: requests to each API with the real clients, and a handler that shows text as a person reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic

import streamkit as sk
from streamkit.testing import ModelServer

from .faces import Face

__all__ = ["APIS", "MESSAGES", "Shown", "asking"]

MESSAGES = [{"role": "user", "content": "Hello"}]
APIS: dict[str, Callable[..., Any]] = {
    "openai_chat": lambda client, **options: client.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, **options
    ),
    "openai_responses": lambda client, **options: client.responses.create(
        model="m", input=MESSAGES, stream=True, **options
    ),
    "anthropic": lambda client, **options: client.messages.create(
        model="m", messages=MESSAGES, max_tokens=99, stream=True, **options
    ),
}


@asynccontextmanager
async def asking(face: Face, server: ModelServer | str, api: str) -> AsyncIterator[Callable[..., Any]]:
    """A function that sends a request to this API with its real client, which never tries again itself. The server may be a URL
    without `/v1`."""
    root = server if isinstance(server, str) else server.root_url
    if api != "anthropic":
        async with face.client(f"{root}/v1") as client:
            yield lambda **options: APIS[api](client, **options)
    elif face.is_async:
        async with anthropic.AsyncAnthropic(base_url=root, api_key="any", max_retries=0) as claude:
            yield lambda **options: APIS[api](claude, **options)
    else:
        with anthropic.Anthropic(base_url=root, api_key="any", max_retries=0) as claude:
            yield lambda **options: APIS[api](claude, **options)


class Shown(sk.EventHandler):
    """Shows texts as they come, and takes them back where they are withdrawn.

    `texts` has those that stay; `hooks` the hooks in order, `text` for any number of deltas; `retries` the events.
    """

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.taken_back: list[str] = []
        self.hooks: list[str] = []
        self.retries: list[sk.StreamRetry] = []

    def _note(self, hook: str) -> None:
        if not (hook == "text" and self.hooks[-1:] == ["text"]):
            self.hooks.append(hook)

    def on_text_created(self, message: sk.TextMessage, /) -> None:
        self._note("created")
        self.texts[message.id] = ""

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage, /) -> None:
        self._note("text")
        self.texts[snapshot.id] = snapshot.content

    def on_text_done(self, message: sk.TextMessage, /) -> None:
        self._note(message.status)

    def on_run_step_done(self, run_step: sk.RunStep, /) -> None:
        self._note(f"step {run_step.status}")

    def on_retry(self, retry: sk.StreamRetry, /) -> None:
        self._note("retry")
        self.retries.append(retry)
        self.taken_back += [text for id in retry.withdrawn if (text := self.texts.pop(id, ""))]

    def on_exception(self, exception: Exception, /) -> None:
        self._note(type(exception).__name__)

    def on_end(self) -> None:
        self._note("end")
