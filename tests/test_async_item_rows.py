"""Items that an async iterator yields one by one, with and without a sleep of the task between them. Nobody can tell."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import types
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import streamkit as sk

from .faces import Face, async_faces, body, calls, chat
from .recorded import in_a_loop, own_recordings
from .test_item_rows import WORDS, Noting
from .test_parsed_items import OBJECTS, TYPED, items_of
from .test_recorded_streams import FOLDERS, name_of

Sleeps = Callable[[int], bool]  # whether a source sleeps before the item with this number


async def generator(items: Sequence[Any], sleeps: Sleeps) -> AsyncIterator[Any]:
    for number, item in enumerate(items):
        if sleeps(number):
            await anyio.lowlevel.checkpoint()
        yield item


class Iterated:
    """What a client's stream is: an iterator whose `__anext__` is a coroutine."""

    def __init__(self, items: Sequence[Any], sleeps: Sleeps) -> None:
        self.items, self.sleeps = iter(enumerate(items)), sleeps

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        for number, item in self.items:
            if self.sleeps(number):
                await anyio.lowlevel.checkpoint()
            return item
        raise StopAsyncIteration


class Awaited(Iterated):
    """One whose `__anext__` returns an awaitable of its own."""

    def __anext__(self) -> Any:
        return Item(super().__anext__())


class Item:
    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __await__(self) -> Iterator[Any]:
        return self.coroutine.__await__()  # type: ignore[no-any-return]


SLEEPS: dict[str, Sleeps] = {
    "never": lambda _: False,
    "always": lambda _: True,
    "each third": lambda number: number % 3 == 0,
    "in bursts": lambda number: number % 7 < 2,
    "at the end": lambda number: number > 30,
}


async def told_of(face: Face, source: Any, name: str) -> list[Any]:
    handler = Noting()
    try:
        await face.stream(source, handler, protocol=name).until_done()
    except sk.StreamkitError as error:
        handler.seen.append(repr(error))
    return handler.seen


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # about values of other types than the SDK knows
@async_faces
@in_a_loop("path", own_recordings(*(FOLDERS[name] for name in TYPED)))
@body
async def test_an_async_iterator_gives_what_a_list_gives(face: Face, path: Any) -> None:
    """Events, their places and the stream's cursor at each, of dicts and objects, however often the task sleeps."""
    name, items = name_of(path), items_of(path)[:40]
    objects = [OBJECTS[name](item) for item in items]
    for some in (items, [*objects[:9], "\n", *objects[9:]]):
        expected = await told_of(face, some, name)
        for kind, how in zip((generator, Iterated, Awaited, Iterated, generator), SLEEPS, strict=True):
            assert await told_of(face, kind(some, SLEEPS[how]), name) == expected  # type: ignore[operator]


@async_faces
@body
async def test_each_item_is_delivered_before_the_next_is_pulled(face: Face) -> None:
    """To hooks, and to whoever iterates."""
    course: list[str] = []

    async def items() -> AsyncIterator[Any]:
        for number, item in enumerate(chat(*WORDS)):
            course.append("pull")
            if number % 3 == 0:
                await anyio.lowlevel.checkpoint()
            yield item

    told = face.told(on_text_delta=lambda _, delta, snapshot: course.append("hook"))
    async with face.stream(items(), told) as stream:
        async for text in stream.text_deltas:
            course.append(text)
    places = [course.index(word) for word in WORDS]
    assert [course[place - 2 : place] for place in places] == [["pull", "hook"]] * len(WORDS)
    assert places == sorted(places)


@async_faces
@pytest.mark.parametrize("sleeps", [False, True])
@body
async def test_an_error_of_the_iterator_comes_after_what_it_yielded(face: Face, sleeps: bool) -> None:
    async def items() -> AsyncIterator[Any]:
        for item in chat(*WORDS, finish=None)[:6]:
            yield item
        if sleeps:
            await anyio.lowlevel.checkpoint()
        raise ValueError("it broke")

    stream = face.stream(items())
    with pytest.raises(sk.SourceError, match="it broke") as raised:
        await stream.until_done()
    assert isinstance(raised.value.__cause__, ValueError)
    assert [message.content for message in stream.messages] == ["abcde"]


@async_faces
@pytest.mark.parametrize("end", ["close", "cancel"])
@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("raises", [False, True])
@body
async def test_an_iterator_may_end_its_own_stream(face: Face, end: str, sleeps: bool, raises: bool) -> None:
    """Its own code runs when it does, so it is closed when it returns. What it still yields or raises is of no use."""
    course: list[str] = []

    async def items() -> AsyncIterator[Any]:
        try:
            for number, item in enumerate(chat(*WORDS)):
                if number == 5:
                    if isinstance(ended := getattr(stream, end)(), Awaitable):
                        await ended
                    course.append("ended")
                    if sleeps:
                        await anyio.lowlevel.checkpoint()
                    if raises:
                        raise ValueError
                yield item
        finally:
            course.append("closed")

    stream = face.stream(items())
    await stream.until_done()
    assert stream.status == "cancelled"
    assert course == ["ended", "closed"]
    assert stream.messages[0].content == "abcd"


@async_faces
@body
async def test_cancel_ends_a_sleep_that_began_in_a_row(face: Face) -> None:
    """The iterator gets the event loop's cancellation where it sleeps, once, and cleans up undisturbed."""
    course: list[str] = []
    sleeps = anyio.Event()

    async def items() -> AsyncIterator[Any]:
        for item in chat(*"abc", finish=None):
            yield item
        try:
            sleeps.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            course.append("cancelled")
            raise
        finally:
            await anyio.lowlevel.cancel_shielded_checkpoint()
            course.append("cleaned up")

    stream = face.stream(items())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.until_done)
        await sleeps.wait()
        stream.cancel()
    assert course == ["cancelled", "cleaned up"]
    assert (stream.status, stream.messages[0].content) == ("cancelled", "abc")


@async_faces
@body
async def test_a_cancelled_task_is_cancelled_where_its_source_sleeps(face: Face) -> None:
    """And a source that goes on all the same is read on, as by an `async for` loop."""
    course: list[str] = []

    async def items() -> AsyncIterator[Any]:
        for number, item in enumerate(chat(*WORDS)):
            if number == 3:
                with anyio.CancelScope() as scope:
                    scope.cancel()
                    await anyio.sleep_forever()
            if number == 5:
                outer.cancel()
                try:
                    await anyio.sleep_forever()
                finally:
                    course.append("closed")
            yield item

    stream = face.stream(items())
    with anyio.CancelScope() as outer:
        await stream.until_done()
    assert outer.cancelled_caught
    assert course == ["closed"]
    assert stream.messages[0].content == "abcd"


@async_faces
@body
async def test_a_pull_that_has_begun_ends_before_an_answer_is_delivered(face: Face) -> None:
    """The answer is given in that pull, to a call that a hook has got in the middle of a row; delivering it takes hooks that
    sleep, and the task can have one sleep at a time."""
    course: list[str] = []
    wakes = anyio.Event()

    async def read(told: Any, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        course.append(delta.value)
        if delta.value == "b":
            async with contextlib.aclosing(told.stream.read_nested(calls("f"))) as events:
                async for _ in events:
                    pass

    async def items() -> AsyncIterator[Any]:
        for number, item in enumerate(chat(*WORDS)):
            if number == 4:
                [call] = stream.pending.values()
                call.respond("42")
                await wakes.wait()
            yield item

    told = face.told(on_text_delta=read, on_tool_output_done=lambda _, message: course.append(message.content))
    stream = face.stream(items(), told, then=lambda _: None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.until_done)
        await anyio.wait_all_tasks_blocked()
        wakes.set()
    assert "".join(course) == "abcd42efgh"


@async_faces
@body
async def test_an_iterator_may_be_traced(face: Face) -> None:
    """What stands for its `__anext__` has the attributes of that coroutine function, and returns an awaitable of its own."""

    class Traced:
        def __init__(self, function: Any) -> None:
            self.function = function

        def __getattr__(self, name: str) -> Any:
            return getattr(self.function, name)

        def __call__(self) -> Any:
            return Item(self.function())

    class Tracing:
        def __init__(self, iterator: Any) -> None:
            self.pull = Traced(iterator.__anext__)

        def __aiter__(self) -> Any:
            return self

        @property
        def __anext__(self) -> Any:
            return self.pull

    for kind in (generator, Iterated):
        for sleeps in SLEEPS.values():
            stream = face.stream(Tracing(kind(chat(*WORDS), sleeps)))  # type: ignore[operator]
            assert await stream.get_final_text() == "".join(WORDS)


@async_faces
@body
async def test_an_iterator_may_return_generators_that_are_coroutines(face: Face) -> None:
    """They have no `__await__`. Nor need what an awaitable's `__await__` returns be a generator."""

    class Generators(Iterated):
        @types.coroutine
        def __anext__(self) -> Any:
            return (yield from super().__anext__().__await__())

    class Steps:
        def __init__(self, item: Any) -> None:
            self.coroutine = item

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> Any:
            return self.coroutine.send(None)

        __await__ = __iter__

    class OnlyNext(Iterated):
        def __anext__(self) -> Any:
            return Steps(super().__anext__())

    for kind in (Generators, OnlyNext):
        for sleeps in SLEEPS.values() if kind is Generators else (SLEEPS["never"],):
            for timeouts in (None, sk.Timeouts(idle=60)):
                stream = face.stream(kind(chat(*WORDS), sleeps), timeouts=timeouts)
                assert await stream.get_final_text() == "".join(WORDS)


def test_an_iterator_may_return_futures() -> None:
    """Any awaitable, also one that its own task brings about."""

    class Futures(Iterated):
        def __anext__(self) -> Any:
            return asyncio.ensure_future(super().__anext__())

    async def main() -> str:
        return await sk.astream(Futures(chat(*WORDS), SLEEPS["each third"])).get_final_text()

    assert asyncio.run(main()) == "abcdefgh"


def test_a_cancelled_stream_of_items_is_freed_at_once() -> None:
    """Nothing of it waits for the garbage collector."""

    class Ending(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            if delta.value == "d":
                self.stream.cancel()

    async def main() -> list[weakref.ref[Any]]:
        source = Iterated(chat(*WORDS), SLEEPS["each third"])
        stream = sk.astream(source, Ending())
        await stream.until_done()
        assert stream.status == "cancelled"
        return [weakref.ref(source), weakref.ref(stream)]

    gc.collect()
    gc.disable()
    try:
        assert [reference() for reference in asyncio.run(main())] == [None, None]
    finally:
        gc.enable()


def test_a_cancelled_task_is_cancelled_where_its_source_sleeps_for_one_round_of_the_loop() -> None:
    """There is no future that could be cancelled."""
    course: list[str] = []

    async def main() -> None:
        async def items() -> AsyncIterator[Any]:
            for item in chat(*"abc", finish=None):
                yield item
            task.cancel()
            await asyncio.sleep(0)
            course.append("went on")

        task = asyncio.ensure_future(sk.astream(items()).until_done())
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 10))
    assert course == []


def test_the_source_of_a_cancelled_task_cleans_up_though_the_stream_is_cancelled_then() -> None:
    """It has had its cancellation."""
    cleaned: list[str] = []

    async def main() -> None:
        sleeps, cleans_up, may_end = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def items() -> AsyncIterator[Any]:
            for item in chat(*"abc", finish=None):
                yield item
            try:
                sleeps.set()
                await asyncio.Event().wait()
            finally:
                cleans_up.set()
                await may_end.wait()
                cleaned.append("to its end")

        stream = sk.astream(items())
        task = asyncio.ensure_future(stream.until_done())
        await sleeps.wait()
        task.cancel()
        await cleans_up.wait()
        stream.cancel()
        asyncio.get_running_loop().call_soon(may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 10))
    assert cleaned == ["to its end"]


def test_the_source_of_a_dropped_stream_is_awaited_to_its_end() -> None:
    closed = asyncio.Event()

    async def items() -> AsyncIterator[Any]:
        try:
            for item in chat(*WORDS):
                yield item
        finally:
            await asyncio.sleep(0)
            closed.set()

    async def main() -> None:
        async for _ in sk.astream(items()).text_deltas:
            break
        gc.collect()
        await closed.wait()

    asyncio.run(asyncio.wait_for(main(), 10))
