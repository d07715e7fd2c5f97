"""Async streams in the places where scopes and task groups break: inside generators, across tasks, dropped, at the end of
the event loop. Nothing unrelated is cancelled, nothing is left, nothing is printed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from .faces import Face, Source, SyncTold, ask, async_faces, body, chat


@async_faces
@body
async def test_a_generator_around_a_stream_may_be_left_without_closing_it(face: Face) -> None:
    """As every web framework's `StreamingResponse` leaves one. The task that left goes on; the stream ends."""
    told, source = face.told(), Source(chat("a", "b", "c"))

    async def texts() -> AsyncIterator[str]:
        async with face.stream(face.generator(source), told) as stream:
            async for text in stream.text_deltas:
                yield text

    generator = texts()
    async for text in generator:
        assert text == "a"
        break
    with anyio.fail_after(5):
        await generator.aclose()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
    assert source.closed
    told.check_brackets()


def test_a_generator_that_is_garbage_cancels_nobody() -> None:
    """asyncio closes it in a task of its own."""

    async def main() -> None:
        ended = asyncio.Event()
        told = SyncTold(on_end=lambda _: ended.set())

        async def texts() -> AsyncIterator[str]:
            async with sk.astream(Source(chat("a", "b", "c")).generate_async(), told) as stream:
                async for text in stream.text_deltas:
                    yield text

        async for _ in texts():
            break
        gc.collect()
        await asyncio.wait_for(ended.wait(), 5)
        told.check_brackets()

    asyncio.run(main())


@async_faces
@body
async def test_a_stream_may_be_entered_in_one_task_and_left_in_another(face: Face) -> None:
    """As fixtures and exit stacks do."""
    told = face.told()
    stack = contextlib.AsyncExitStack()
    streams: list[Any] = []

    async def enter() -> None:
        streams.append(await stack.enter_async_context(face.stream(chat("a", "b"), told)))

    async def read() -> None:
        async for text in streams[0].text_deltas:
            assert text == "a"
            break

    for step in (enter, read, stack.aclose):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(step)
    told.check_brackets()


def test_a_stream_that_is_left_at_the_end_of_the_loop_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """It ends there, with its handlers."""
    told = SyncTold()

    async def main() -> None:
        with ModelServer(Reply("Hello there", delay=0.001)) as server:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="any") as client:
                async for _ in sk.astream(ask(client), told):
                    break

    asyncio.run(main())
    gc.collect()
    assert capfd.readouterr().err == ""
    told.check_brackets()
