"""The ways in which an application reads a stream, each as a function that takes the stream's chunks and a meter.

The meter measures the stream alone: what the application prepares, and the event loop that it runs already, are left out.
Each returns the text that it got.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import anyio
import anyio.lowlevel

import streamkit as sk

__all__ = ["ASYNC_FACES", "FACES", "SYNC_FACES", "Face", "Texts", "sleeping"]

Meter = AbstractContextManager[Any]
Face = Callable[[Sequence[Any], Meter], str]


class Texts(sk.EventHandler):
    """One hook that appends each text delta to a list, as that of the limit does."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)


class AsyncTexts(sk.AsyncEventHandler):
    """The same as a coroutine."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        self.parts.append(delta.value)


class Chunks:
    """Chunks as an async iterator that always has the next one at hand, as the body of an HTTP response that is flooded."""

    def __init__(self, chunks: Sequence[Any]) -> None:
        self._chunks = iter(chunks)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> Any:
        for chunk in self._chunks:
            return chunk
        raise StopAsyncIteration


class SleepingChunks(Chunks):
    """The same, for which the task has to sleep each time, as for a body that arrives piece by piece."""

    async def __anext__(self) -> Any:
        await anyio.lowlevel.cancel_shielded_checkpoint()
        return await super().__anext__()


def hook(chunks: Sequence[Any], meter: Meter) -> str:
    handler = Texts()
    with meter:
        sk.stream(chunks, handler).until_done()
    return "".join(handler.parts)


def three_hooks(chunks: Sequence[Any], meter: Meter) -> str:
    handlers = [Texts(), Texts(), Texts()]
    with meter:
        sk.stream(chunks, *handlers).until_done()
    return "".join(handlers[2].parts)


def text_deltas(chunks: Sequence[Any], meter: Meter) -> str:
    with meter:
        parts = list(sk.stream(chunks).text_deltas)
    return "".join(parts)


def events(chunks: Sequence[Any], meter: Meter) -> str:
    parts: list[str] = []
    with meter:
        for event in sk.stream(chunks):
            if type(event) is sk.TextDelta:
                parts.append(event.value)
    return "".join(parts)


# -- async: each drives a stream to its end and returns the text

Driver = Callable[[sk.AsyncStreamManager, list[str]], Awaitable[None]]


async def _until_done(stream: sk.AsyncStreamManager, parts: list[str]) -> None:
    await stream.until_done()


async def _read_texts(stream: sk.AsyncStreamManager, parts: list[str]) -> None:
    async for text in stream.text_deltas:
        parts.append(text)


async def _read_events(stream: sk.AsyncStreamManager, parts: list[str]) -> None:
    async for event in stream:
        if type(event) is sk.TextDelta:
            parts.append(event.value)


def _astream(backend: str, drive: Driver, make: Callable[[], Texts | AsyncTexts] | None, source: type[Chunks]) -> Face:
    """`astream` in a running event loop: an application starts its loop once, and many streams in it."""

    def run(chunks: Sequence[Any], meter: Meter) -> str:
        handlers = [] if make is None else [make()]
        parts: list[str] = handlers[0].parts if handlers else []

        async def main() -> None:
            with meter:
                await drive(sk.astream(source(chunks), *handlers), parts)

        anyio.run(main, backend=backend)
        return "".join(parts)

    return run


def _async_faces(backend: str, source: type[Chunks] = Chunks) -> dict[str, Face]:
    return {
        f"{backend}, hook": _astream(backend, _until_done, Texts, source),
        f"{backend}, async hook": _astream(backend, _until_done, AsyncTexts, source),
        f"{backend}, text_deltas": _astream(backend, _read_texts, None, source),
        f"{backend}, events": _astream(backend, _read_events, None, source),
    }


def sleeping(backend: str) -> dict[str, Face]:
    """The async faces over a source for which the task sleeps before each chunk."""
    return {f"{name}, sleeping": face for name, face in _async_faces(backend, SleepingChunks).items()}


SYNC_FACES: dict[str, Face] = {
    "hook": hook,
    "three hooks": three_hooks,
    "text_deltas": text_deltas,
    "events": events,
}
ASYNC_FACES: dict[str, Face] = {**_async_faces("asyncio"), **_async_faces("trio")}
FACES: dict[str, Face] = {**SYNC_FACES, **ASYNC_FACES}
