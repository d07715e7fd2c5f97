"""Async streams in the places where scopes and task groups break: inside generators, across tasks, dropped, at the end of
the event loop. Nothing unrelated is cancelled, nothing is left, nothing is printed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

import streamkit as sk

from .endurance.async_cancels import rounds
from .faces import AsyncTold, Face, Source, SyncTold, async_faces, body, chat


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


LEAVING = ["break", "exception", "dropped", "kept"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("way", ["iterate", "text_deltas", "chunks"])
@pytest.mark.parametrize("wrapped", [True, False], ids=["in a generator", "bare"])
@pytest.mark.parametrize("leaving", LEAVING)
def test_a_loop_may_be_left_in_every_way(
    backend: str, way: str, wrapped: bool, leaving: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The stream ends once: where it is closed, else when it is garbage, else when the event loop ends. Nothing else is
    cancelled, and nothing is printed."""
    told, source, loops = AsyncTold(), Source(chat("a", "b", "c")), []

    async def loop() -> AsyncIterator[Any]:
        async with sk.astream(source.generate_async(), told) as stream:
            async for value in events_of(stream, way):
                yield value

    async def read() -> None:
        values = loop() if wrapped else events_of(sk.astream(source.generate_async(), told), way)
        async for _ in values:
            if leaving == "exception":
                raise Left
            if leaving == "kept":
                loops.append(values)
            break
        if leaving == "break":
            async with contextlib.aclosing(values):
                pass

    async def main() -> None:
        with contextlib.suppress(Left):
            await read()
        gc.collect()
        for _ in range(20):
            await anyio.lowlevel.checkpoint()

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Async generator", ResourceWarning)  # trio's, of what was dropped
        anyio.run(main, backend=backend)
        gc.collect()
    assert capfd.readouterr().err == ""
    assert source.closed
    told.check_brackets()


END_OF_LOOP = """
import asyncio, gc
import openai
import streamkit as sk
from streamkit.testing import ModelServer, Reply

ends, kept = [], []

class Handler(sk.AsyncEventHandler):
    async def on_end(self): ends.append(1)

def ask(client):
    return lambda: client.chat.completions.create(model="m", messages=[], stream=True)

async def texts(client):
    async with sk.astream(ask(client), Handler()) as stream:
        async for text in stream.text_deltas:
            yield text

async def main(url, wrapped):
    asyncio.get_running_loop().slow_callback_duration = 60  # a busy machine is no fault
    async with openai.AsyncOpenAI(base_url=url, api_key="any") as client:
        values = texts(client) if wrapped else sk.astream(ask(client), Handler())
        kept.append(values)
        async for _ in values:
            break

for wrapped in (False, True):
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        asyncio.run(main(server.url, wrapped))
    kept.clear()
    gc.collect()
assert ends == [1, 1], ends
"""


@pytest.mark.slow
def test_what_is_left_at_the_end_of_the_loop_prints_nothing() -> None:
    """With the real client, whose own streams do; with all warnings, in asyncio's debug mode."""
    environment = {**os.environ, "PYTHONASYNCIODEBUG": "1"}
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", END_OF_LOOP]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# -- every way of reading, left in every way


class Left(Exception):
    """Raised where a stream is read."""


class Silent:
    """A source that gives some text and then nothing, for ever. It notes that it was closed."""

    def __init__(self) -> None:
        self.silent = threading.Event()
        self.closed = False

    async def items(self) -> AsyncIterator[Any]:
        try:
            for item in chat("a", "b", finish=None):
                yield item
            self.silent.set()
            await anyio.sleep_forever()
        finally:
            self.closed = True


async def events_of(stream: Any, way: str) -> AsyncIterator[Any]:
    """What a loop over the stream gets."""
    match way:
        case "iterate":
            async for event in stream:
                yield event
        case "text_deltas":
            async for text in stream.text_deltas:
                yield text
        case _:
            async for chunk in stream.chunks("anthropic"):
                yield chunk


class Reading:
    """A stream that is read in one way: by a loop, by `until_done`, or by a hook that reads a nested source."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.sources = [Silent(), Silent()] if way == "nested" else [Silent()]
        self.told = AsyncTold()
        if way == "nested":
            self.told.does["on_text_created"] = self._read_nested
        self.stream = sk.astream(self.sources[0].items(), self.told)
        self.silent = self.sources[-1].silent

    async def _read_nested(self, _: Any, message: Any) -> None:
        del self.told.does["on_text_created"]
        async with contextlib.aclosing(self.stream.read_nested(self.sources[1].items())) as events:
            async for _ in events:
                pass

    async def read(self) -> None:
        async with self.stream:
            if self.way in ("until_done", "nested"):
                await self.stream.until_done()
            else:
                async with contextlib.aclosing(events_of(self.stream, self.way)) as events:
                    async for _ in events:
                        pass

    async def wait_until_silent(self) -> None:
        while not self.silent.is_set():
            await anyio.lowlevel.checkpoint()

    def check(self) -> None:
        assert self.stream.ended
        assert all(source.closed for source in self.sources)
        self.told.check_brackets()


WAYS = ["iterate", "text_deltas", "chunks", "until_done", "nested"]
ENDINGS = ["scope", "fail_after", "cancel", "cancel in a thread", "close", "exception in a hook"]


@async_faces
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ENDINGS)
@body
async def test_a_stream_that_waits_may_be_ended_in_every_way(face: Face, way: str, ending: str) -> None:
    """It ends once, for its handlers; its source is closed; nothing else is cancelled, and no task is left."""
    tasks_before, reading = len(anyio.get_running_tasks()), Reading(way)
    raised: list[BaseException] = []

    async def read() -> None:
        try:
            await reading.read()
        except Exception as error:
            raised.append(error)
        if ending not in ("scope", "fail_after"):
            await anyio.lowlevel.checkpoint()  # it is not cancelled

    if ending == "exception in a hook":
        reading.told.does["on_text_delta"] = _fail
    async with anyio.create_task_group() as tasks:
        if ending == "fail_after":
            with pytest.raises(TimeoutError), anyio.fail_after(60) as scope:
                tasks.start_soon(_expire, reading, scope)
                await reading.read()
        else:
            with anyio.CancelScope() as scope:
                tasks.start_soon(read)
                if ending != "exception in a hook":
                    await reading.wait_until_silent()
                    await anyio.lowlevel.checkpoint()
                match ending:
                    case "scope":
                        tasks.cancel_scope.cancel()
                    case "cancel":
                        reading.stream.cancel()
                    case "cancel in a thread":
                        await anyio.to_thread.run_sync(reading.stream.cancel)
                    case "close":
                        await reading.stream.close()
                        reading.check()
                    case _:
                        pass
            assert ending == "scope" or not scope.cancel_called
    reading.check()
    assert [type(error) for error in raised] == ([Left] if ending == "exception in a hook" else [])
    assert len(anyio.get_running_tasks()) == tasks_before
    await anyio.lowlevel.checkpoint()  # and this task is not cancelled


def _fail(*_: Any) -> None:
    raise Left


async def _expire(reading: Reading, scope: anyio.CancelScope) -> None:
    await reading.wait_until_silent()
    scope.deadline = anyio.current_time()


@async_faces
@body
async def test_a_hooks_error_has_no_context_of_ours(face: Face) -> None:
    """Its traceback shows what the application did."""
    for way in ("until_done", "iterate"):
        stream = face.stream(face.generator(Source(chat("a"))), SyncTold(on_text_delta=_fail))
        with pytest.raises(Left) as caught:
            if way == "until_done":
                await stream.until_done()
            async for _ in stream:
                pass
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None


@async_faces
@body
async def test_a_loop_that_was_closed_leaves_the_stream_to_another(face: Face) -> None:
    """As `break` does. Each goes on where the one before was left, and so may the first one again."""
    source = Source(chat("a", "b", "c", "d"))
    stream = face.stream(face.generator(source))
    first = stream.text_deltas
    assert await anext(first) == "a"
    async with contextlib.aclosing(stream.text_deltas) as second:
        assert await anext(second) == "b"
    assert not stream.ended
    assert await anext(first) == "c"
    assert [text async for text in stream.text_deltas] == ["d"]
    assert [text async for text in first] == []
    assert source.closed


SLEEPS = {
    "until something happens": lambda: asyncio.Event().wait(),
    "in the loop's rounds": lambda: _rounds(1000),
    "until a task is over": lambda: asyncio.create_task(asyncio.sleep(1000)),
}


async def _rounds(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("sleep", SLEEPS)
@pytest.mark.parametrize("drains", [True, False])
@pytest.mark.parametrize("order", ["stream", "task", "stream, task", "task, stream", "stream, a moment, task"])
def test_a_task_that_is_cancelled_itself_does_not_go_on(order: str, drains: bool, sleep: str) -> None:
    """Although its stream was cancelled, too, before or after, even while the source cleans up. asyncio cancels a task once
    for each request. One whose stream alone was cancelled goes on, and no request is left."""
    told, closed = SyncTold(), []

    async def items() -> AsyncIterator[Any]:
        try:
            for item in chat("a", finish=None):
                yield item
            await SLEEPS[sleep]()
        finally:
            try:
                await _rounds(5)
            finally:
                closed.append(1)

    async def read(stream: Any) -> int:
        if drains:
            await stream.until_done()
        else:
            async for _ in stream:
                pass
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    async def main() -> None:
        stream = sk.astream(items(), told)
        reader = asyncio.create_task(read(stream))
        await _rounds(10)
        for step in order.split(", "):
            if step == "stream":
                stream.cancel()
            elif step == "task":
                reader.cancel()
            else:
                await _rounds(3)
        await asyncio.wait([reader], timeout=5)
        assert reader.done()
        if order == "stream":
            assert reader.result() == 0
        else:
            assert reader.cancelled()
        assert closed == [1]
        told.check_brackets()

    asyncio.run(main())


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_stream_may_be_ended_at_any_moment(backend: str) -> None:
    """A short round of `python -m tests.endurance.async_cancels`."""
    seen, faults = rounds(40, 1, backend)
    assert faults == []
    assert len(seen) >= 5


def test_a_stream_of_asyncio_that_is_collected_in_a_thread_of_trio_is_closed() -> None:
    """The garbage collector runs in any thread, so asyncio closes what was dropped in the context of that one."""
    source, errors = Source(chat("a", "b", "c")), list[Any]()
    is_dropped, is_collected = threading.Event(), threading.Event()

    async def drop() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        stream: Any = sk.astream(source.generate_async())
        await anext(aiter(stream))
        circle: list[Any] = [stream]
        circle.append(circle)
        del stream, circle
        is_dropped.set()
        await anyio.to_thread.run_sync(is_collected.wait, 20)
        for _ in range(1000):
            await asyncio.sleep(0)

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        thread = threading.Thread(target=asyncio.run, args=(drop(),))
        thread.start()
        assert is_dropped.wait(20)
        anyio.run(collect, backend="trio")
        is_collected.set()
        thread.join()
    finally:
        gc.enable()
    assert errors == []
    assert source.closed


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("begun", ["events", "text_deltas"])
@pytest.mark.parametrize("way", ["events", "text", "messages"])
def test_a_stream_whose_event_loop_has_ended_is_not_taken_for_an_empty_one(backend: str, way: str, begun: str) -> None:
    """As where a notebook or a script calls `asyncio.run` again for the rest."""
    source = Source(chat("a", "b", "c"))
    streams: list[Any] = []

    async def begin() -> None:
        streams.append(sk.astream(source.generate_async()))
        await anext(streams[0].text_deltas if begun == "text_deltas" else aiter(streams[0]))

    async def go_on() -> None:
        (stream,) = streams
        match way:
            case "events":
                async for _ in stream:
                    pass
            case "text":
                await stream.get_final_text()
            case _:
                await stream.get_final_messages()

    anyio.run(begin, backend=backend)
    assert source.closed
    with pytest.raises(sk.UsageError, match="event loop in which the stream was opened has ended"):
        anyio.run(go_on, backend=backend)


class SilentIterator:
    """One item, and then nothing. `left` is what a wait for more was ended with."""

    def __init__(self) -> None:
        self.items = chat("a", finish=None)[:1]
        self.left: list[type[BaseException]] = []

    def __aiter__(self) -> SilentIterator:
        return self

    async def __anext__(self) -> Any:
        if self.items:
            return self.items.pop()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            self.left.append(type(error))
            raise


def test_a_wait_that_nobody_awaits_any_more_ends_with_the_coroutine() -> None:
    """As Python closes a coroutine that was awaited and is garbage. The stream is not left in the middle of a pull."""

    async def wait() -> None:
        source = SilentIterator()
        stream = sk.astream(source)
        waiting: Any = stream.until_done()
        waiting.send(None)
        waiting.close()
        assert source.left == [GeneratorExit]
        await stream.close()

    asyncio.run(wait())
