"""Sources that hold a cancel scope or a task group of their own from one pull to the next, as clients of many services do: they
leave them where they are closed, and no scope of the stream's stands in between."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import streamkit as sk

from .faces import AsyncTold, Face, async_faces, body, chat, every_pair

WORDS = [*"abcdefgh"]
Holding = Callable[[], AbstractAsyncContextManager[Any]]


class Left(Exception):
    pass


@contextlib.asynccontextmanager
async def scope() -> AsyncIterator[None]:
    with anyio.fail_after(60):
        yield


@contextlib.asynccontextmanager
async def group() -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.lowlevel.checkpoint)
        yield


def generator(holding: Holding, closed: list[str], *, sleeps: bool) -> AsyncIterator[Any]:
    async def items() -> AsyncIterator[Any]:
        try:
            async with holding():
                for item in chat(*WORDS):
                    if sleeps:
                        await anyio.lowlevel.checkpoint()
                    yield item
        finally:
            await anyio.lowlevel.checkpoint()
            closed.append("closed")

    return items()


@contextlib.asynccontextmanager
async def context(holding: Holding, closed: list[str], *, sleeps: bool) -> AsyncIterator[Any]:
    try:
        async with holding():
            if sleeps:
                await anyio.lowlevel.checkpoint()
            yield chat(*WORDS)
    finally:
        await anyio.lowlevel.checkpoint()
        closed.append("closed")


ENDINGS = {"end": "completed", "break": "cancelled", "cancel": "cancelled", "error": "cancelled", "hook": "failed"}


def end(ending: str, stream: Any) -> None:
    if ending == "cancel":
        stream.cancel()
    elif ending == "error":
        raise Left


@every_pair
@async_faces
@pytest.mark.parametrize("timeouts", [None, sk.Timeouts(idle=60)], ids=["", "timeouts"])
@pytest.mark.parametrize("sleeps", [False, True], ids=["", "sleeps"])
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("source", [generator, context])
@pytest.mark.parametrize("holding", [scope, group])
@body
async def test_a_source_may_hold_a_scope_from_pull_to_pull(
    face: Face, holding: Holding, source: Any, ending: str, sleeps: bool, timeouts: Any
) -> None:
    """However the stream ends, the source leaves it, and the task goes on in the scope that it was in."""
    closed: list[str] = []

    def hook(_: Any, delta: Any, __: Any) -> None:
        if ending == "hook" and delta.value == "c":
            raise Left

    told = AsyncTold(on_text_delta=hook)
    with anyio.CancelScope() as outside:
        with contextlib.suppress(Left):
            async with sk.astream(source(holding, closed, sleeps=sleeps), told, timeouts=timeouts) as stream:
                async for text in stream.text_deltas:
                    if text == "c":
                        end(ending, stream)
                        if ending == "break":
                            break
        await anyio.lowlevel.checkpoint()
        assert (stream.status, closed) == (ENDINGS[ending], ["closed"])
        told.check_brackets()
        outside.cancel()
        await anyio.sleep_forever()
    assert outside.cancelled_caught


@async_faces
@body
async def test_what_a_group_in_a_source_failed_with_is_reported(face: Face) -> None:
    """What closed the generator is no error; that of another task of the group is."""

    async def fail() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise ValueError("cannot clean up")

    async def items() -> AsyncIterator[Any]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)
            for item in chat(*WORDS):
                await anyio.lowlevel.checkpoint()
                yield item

    def hook(*_: Any) -> None:
        raise Left

    with pytest.raises(Left) as caught:
        await sk.astream(items(), AsyncTold(on_text_delta=hook)).until_done()
    (note,) = caught.value.__notes__
    assert "closing the source raised SourceError: ExceptionGroup: " in note


@async_faces
@pytest.mark.parametrize("holding", [scope, group])
@body
async def test_a_timeout_interrupts_one_sleep_of_a_source_that_holds_a_scope(face: Face, holding: Holding) -> None:
    """What it cleans up with may sleep then."""
    cleaned: list[str] = []

    async def items() -> AsyncIterator[Any]:
        try:
            async with holding():
                for item in chat(*WORDS, finish=None):
                    yield item
                await anyio.sleep_forever()
        finally:
            await anyio.lowlevel.checkpoint()
            cleaned.append("cleaned up")

    stream = sk.astream(items(), timeouts=sk.Timeouts(idle=0.05))
    with pytest.raises(sk.SourceTimeoutError, match="idle"):
        await stream.until_done()
    assert cleaned == ["cleaned up"]
    assert [message.content for message in stream.messages] == ["".join(WORDS)]
