"""The two managers: the same stream, by every way of asking, on every face."""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

import streamkit as sk
from streamkit.protocols import codec
from streamkit.protocols.framing import sse_frame
from streamkit.testing import CodeInterpreter, ModelServer, Reasoning, Refusal, Reply, Tokens, ToolCall

from .faces import (
    FACES,
    Face,
    Source,
    SyncTold,
    ask,
    ask_responses,
    async_faces,
    body,
    calls,
    chat,
    every_face,
    every_pair,
    interpreter,
    sync_face,
)


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


def rich() -> list[dict[str, Any]]:
    """Reasoning, text and two calls."""
    first, *pieces = chat("Hel", "lo", finish=None)
    reasoning = {**first, "choices": [{"index": 0, "delta": {"reasoning_content": "Hm."}, "finish_reason": None}]}
    usage = {**first, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}}
    return [first, reasoning, *pieces, *calls("one", "two")[1:], usage]


STREAMS: dict[str, Callable[[], list[Any]]] = {"chat": rich, "interpreter": interpreter}


# -- the same on all faces


@pytest.mark.parametrize("request_of", [ask, ask_responses])
def test_all_faces_tell_the_same_story(request_of: Any) -> None:
    """Over HTTP, with the real client."""
    parts: list[Any] = [Reasoning("Hm."), "Hello there", ToolCall("a", {"x": 1}), ToolCall("b", {})]
    if request_of is ask_responses:
        parts.append(CodeInterpreter("1+1", "2"))
    stories: dict[str, list[Any]] = {}
    for face in FACES.values():

        @body
        async def tell(face: Face) -> None:
            with ModelServer(Reply(*parts, interleave=True)) as server:
                async with face.client(server) as client:
                    told = face.told()
                    lines = [codec.event_to_dict(event) async for event in face.stream(request_of(client), told)]
                    stories[face.name] = [lines, told.hooks]

        tell(face=face)
    assert stories["sync"] == stories["asyncio"] == stories["trio"]
    assert len(stories["sync"][0]) > 20


# -- ways of asking


@every_face
@body
async def test_every_way_of_asking_agrees(face: Face) -> None:
    """In any order, as often as one likes."""
    stream = face.stream(chat("Hel", "lo"))
    assert [text async for text in stream.text_deltas] == ["Hel", "lo"]
    for _ in range(2):
        await stream.until_done()
        assert await stream.get_final_text() == "Hello"
        assert [m.content for m in await stream.get_final_messages()] == ["Hello"]
        run = await stream.get_final_run()
        assert run is stream.current_run
        assert (run.status, run.model) == ("completed", "m")
        (step,) = await stream.get_final_run_steps()
        assert step is stream.current_run_step_snapshot
        assert [event async for event in stream] == []


@every_face
@body
async def test_text_deltas_are_the_assistants_text_alone(face: Face) -> None:
    """Neither reasoning nor a refusal, nor another choice."""
    with ModelServer(Reply(Reasoning("Hm."), "Yes.", Refusal("No."))) as server:
        async with face.client(server) as client:
            assert "".join([text async for text in face.stream(ask_responses(client)).text_deltas]) == "Yes."
    chunks = chat("a", "b")
    other = [{**chunk, "choices": [{**chunk["choices"][0], "index": 1}]} for chunk in chunks[2:]]
    chunks = [*chunks[:2], *other, chunks[-1]]
    stream = face.stream(chunks)
    assert [text async for text in stream.text_deltas] == ["a"]
    assert await stream.get_final_text() == "a"


@every_face
@body
async def test_what_arrived_can_be_read_at_any_time(face: Face) -> None:
    """`messages` is live; done messages stay as they are."""
    stream = face.stream(chat("Hel", "lo"))
    assert (stream.messages, stream.status, stream.current_event, stream.usage) == ((), "in_progress", None, None)
    seen = [stream.messages[0].content async for event in stream if isinstance(event, sk.TextDelta)]
    assert seen == ["Hel", "Hello"]
    assert stream.messages[0].status == "completed"
    assert stream.current_event.type == "stream_end"
    assert stream.ended


@every_face
@body
async def test_usage_and_timing_are_told(face: Face) -> None:
    """`usage` is the newest; times are seconds since the request was sent."""
    with ModelServer(Reply("Hello there", usage=Tokens(input=5, output=4), first_delay=0.05)) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client, stream_options={"include_usage": True}))
            assert stream.timing == sk.Timing(None, None, 0, None)
            await stream.until_done()
            assert (stream.usage.input_tokens, stream.usage.output_tokens) == (5, 4)
            timing = stream.timing
            assert 0 < timing.first_delta <= timing.duration < 10
            assert timing.deltas == 4
            assert timing.deltas_per_second > 0


@every_face
@body
async def test_warnings_are_kept(face: Face) -> None:
    """Those that handlers were told."""
    told = face.told()
    first, *rest = chat("Hi")
    stream = face.stream([first, 5, *rest], told)
    assert await stream.get_final_text() == "Hi"
    assert list(stream.warnings) == told.of("on_warning")
    assert [warning.index for warning in stream.warnings] == [1]


@every_face
@pytest.mark.parametrize("protocol", ["openai_chat", "openai_responses", "streamkit", "open_interpreter"])
@body
async def test_chunks_are_the_same_stream_in_another_protocol(face: Face, protocol: str) -> None:
    """A second stream reads them back."""
    chunks = [chunk async for chunk in face.stream(chat("Hel", "lo")).chunks(protocol)]
    assert await face.stream(chunks, protocol=protocol).get_final_text() == "Hello"


@every_face
@body
async def test_an_unknown_protocol_is_a_usage_error_at_once(face: Face) -> None:
    """For reading and for `chunks`."""
    with pytest.raises(sk.UsageError, match="openai_chat"):
        face.stream(chat("Hi"), protocol="klingon")
    with pytest.raises(sk.UsageError, match="openai_chat"):
        face.stream(chat("Hi")).chunks("klingon")


@every_face
@body
async def test_a_stream_cannot_be_run_by_its_own_hook(face: Face) -> None:
    """It would wait for itself."""
    seen: list[BaseException] = []
    if face.is_async:

        async def run(stream: Any) -> None:
            seen.append(await raised_by(stream.until_done()))

        told = face.told(on_text_delta=lambda told, *_: run(told.stream))
    else:

        def run_it(told: Any, *_: Any) -> None:
            with pytest.raises(sk.UsageError) as caught:
                told.stream.until_done()
            seen.append(caught.value)

        told = face.told(on_text_delta=run_it)
    await face.stream(chat("Hi"), told).until_done()
    assert [type(error) for error in seen] == [sk.UsageError]


@async_faces
@body
async def test_a_final_accessor_in_an_async_on_end_gives_what_is_final(face: Face) -> None:
    """The story is told by then."""
    texts: list[str] = []

    async def note(stream: Any) -> None:
        texts.append(await stream.get_final_text())

    await face.stream(chat("Hi"), face.told(on_end=lambda told: note(told.stream))).until_done()
    assert texts == ["Hi"]


@every_face
@body
async def test_a_stream_without_a_run_has_no_final_run(face: Face) -> None:
    """Asking is a usage error."""
    stream = face.stream(chat("Hi"))
    stream.cancel()
    assert isinstance(await raised_by(stream.get_final_run()), sk.UsageError)


@every_face
@body
async def test_cancel_and_close_after_the_end_change_nothing(face: Face) -> None:
    """The result stays, and so does an error."""
    stream = face.stream(chat("Hi"))
    await stream.until_done()
    stream.cancel()
    await stream.close()
    assert (await stream.get_final_text(), stream.status) == ("Hi", "completed")
    failed = face.stream(chat("Hi", finish=None))
    error = await raised_by(failed.until_done())
    failed.cancel()
    await failed.close()
    assert await raised_by(failed.get_final_text()) is error


def test_a_stream_may_be_cancelled_after_its_event_loop_has_ended() -> None:
    """Nothing waits there any more."""
    for face in (FACES["asyncio"], FACES["trio"]):
        streams: list[Any] = []

        @body
        async def begin(face: Face, streams: list[Any] = streams) -> None:
            stream = face.stream(chat("Hel", "lo"))
            async with stream:
                pass
            streams.append(stream)

        begin(face=face)
        streams[0].cancel()


# -- whatever happens wherever


@every_face
@pytest.mark.parametrize("items", STREAMS.values(), ids=STREAMS)
@body
async def test_leaving_a_loop_at_any_event_closes_everything(face: Face, items: Any) -> None:
    """All brackets, the source, no message left open."""
    events = [event.type async for event in face.stream(items())]
    for stop in range(len(events)):
        source, tellers = Source(items()), [face.told(), SyncTold()]
        tellers[0].does["on_confirmation"] = lambda _, asked: asked.approve()
        async with face.stream(face.generator(source), *tellers) as stream:
            seen = 0
            async for _ in stream:
                if seen == stop:
                    break
                seen += 1
        check_closed(stream, source, tellers)


@every_pair
@every_face
@pytest.mark.parametrize("items", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("kind", ["raise", "cancel"])
@body
async def test_a_hook_may_raise_or_cancel_at_any_call(face: Face, items: Any, kind: str) -> None:
    """As above; the error is raised, the cancel is not."""

    class Breaking(SyncTold):
        left = 0

        def note(self, name: str, arguments: tuple[Any, ...]) -> Any:
            super().note(name, arguments)
            if name == "on_confirmation":
                arguments[0].approve()
            self.left -= 1
            if self.left == 0:
                if kind == "raise":
                    raise LookupError(name)
                self.stream.cancel()  # type: ignore[attr-defined]

    whole = Breaking()
    await face.stream(face.generator(Source(items())), whole).until_done()
    assert len(whole.told) > 30
    for stop in range(1, len(whole.told) + 1):
        source, tellers = Source(items()), [face.told(), Breaking(), SyncTold()]
        tellers[1].left = stop
        stream = face.stream(face.generator(source), *tellers)
        if kind == "raise":
            assert isinstance(await raised_by(stream.until_done()), LookupError)
            assert isinstance(stream.error, LookupError)
        else:
            await stream.until_done()
        check_closed(stream, source, tellers)


@async_faces
@body
async def test_a_task_may_be_cancelled_in_any_hook(face: Face) -> None:
    """The scope's own cancellation goes on up; the handlers are told all the same."""
    for stop in range(1, 40):
        source, scope = Source(rich()), anyio.CancelScope()

        class Waiting(sk.AsyncEventHandler):
            left = stop

            async def on_event(self, event: sk.Event, scope: anyio.CancelScope = scope) -> None:
                self.left -= 1
                if self.left == 0:
                    scope.cancel()
                await anyio.lowlevel.checkpoint()

        other = face.told()
        stream = face.stream(face.generator(source), Waiting(), other)
        with scope:
            await stream.until_done()
        check_closed(stream, source, [other])


def check_closed(stream: Any, source: Source, tellers: list[Any]) -> None:
    assert stream.ended
    assert source.closed or source.went == 0
    assert all(message.status != "in_progress" for message in stream.messages)
    for told in tellers:
        told.check_brackets()
        opened = [name for name in told.hooks if name.endswith("_created")]
        done = [name.replace("_done", "_created") for name in told.hooks if name.endswith("_done")]
        assert sorted(opened) == sorted(name for name in done if name != "on_confirmation_created"), told.hooks


# -- nothing is left behind


@pytest.mark.slow
@every_face
@body
async def test_nothing_is_left_to_the_garbage_collector(face: Face) -> None:
    """However a stream ended: no warning comes from what it leaves. (Warnings are errors in these tests.)"""
    with ModelServer([Reply("Hello"), Reply("Hello", never_ends=True), Reply("Hello", cut_after=1)]) as server:
        async with face.client(server) as client:
            await face.stream(ask(client)).until_done()
            async with face.stream(ask(client)) as stream:
                async for _ in stream.text_deltas:
                    break
            await raised_by(face.stream(ask(client)).until_done())
    del stream
    gc.collect()


@sync_face
@body
async def test_a_sync_stream_begins_no_thread(face: Face) -> None:
    """Neither for reading, nor for waiting, nor for closing."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            before = {thread for thread in threading.enumerate() if not thread.name.startswith("model-server")}
            await face.stream(ask(client)).until_done()
            after = {thread for thread in threading.enumerate() if not thread.name.startswith("model-server")}
            assert after <= before  # those of earlier tests may end meanwhile


@async_faces
@body
async def test_an_async_stream_leaves_no_task(face: Face) -> None:
    """After the end, and after leaving `with` early."""
    before = len(anyio.get_running_tasks())
    await face.stream(chat("Hi")).until_done()
    async with face.stream(chat("Hel", "lo")) as stream:
        async for _ in stream:
            break
    assert len(anyio.get_running_tasks()) == before


PROTOCOL_NAMES = ["openai_chat", "openai_responses", "openai_assistants", "anthropic", "open_interpreter", "letta"]


async def _end(stream: Any, how: str) -> None:
    """Run an async stream to its end, or leave it before."""
    match how:
        case "done":
            await stream.until_done()
        case "iterated":
            async for _ in stream:
                pass
        case _:
            async with stream:
                async for _ in stream:
                    break


def _end_sync(stream: Any, how: str) -> None:
    match how:
        case "done":
            stream.until_done()
        case "iterated":
            for _ in stream:
                pass
        case _:
            with stream:
                for _ in stream:
                    break


@pytest.mark.parametrize("protocol", [*PROTOCOL_NAMES, "streamkit"])
@pytest.mark.parametrize("how", ["done", "iterated", "left"])
@pytest.mark.parametrize("framed", [True, False])
def test_a_stream_that_is_over_is_freed_when_nobody_has_it(protocol: str, how: str, framed: bool) -> None:
    """At once, with its handler and all that it told: nothing waits for the garbage collector. The handler alone keeps
    its stream."""
    items: Any = list(sk.stream(rich()).chunks(protocol))
    if framed:
        items = [sse_frame(msgspec.json.encode(item)) for item in items]
    freed: list[str] = []

    def watch(stream: Any, handler: Any) -> None:
        for name, thing in (("stream", stream), ("handler", handler), ("engine", stream.engine)):
            weakref.finalize(thing, freed.append, name)

    class Texts(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            assert delta.snapshot is snapshot

    async def run() -> None:
        handler = Texts()
        stream = sk.astream(iter(items), handler)
        watch(stream, handler)
        await _end(stream, how)
        assert handler.stream is stream

    gc.disable()
    try:
        handler = Texts()
        stream = sk.stream(iter(items), handler)
        watch(stream, handler)
        _end_sync(stream, how)
        del stream
        assert handler.stream.ended
        assert freed == []
        del handler
        assert sorted(freed) == ["engine", "handler", "stream"]
        freed.clear()
        for backend in ("asyncio", "trio"):
            anyio.run(run, backend=backend)
            assert sorted(freed) == ["engine", "handler", "stream"]
            freed.clear()
    finally:
        gc.enable()


# -- a hook that reads the stream which waits for it


async def _first(values: Any) -> None:
    await anext(aiter(values))


async def _all(values: Any) -> None:
    async for _ in values:
        pass


READINGS: dict[str, Any] = {
    "iterates": lambda stream: _first(stream),
    "text_deltas": lambda stream: _first(stream.text_deltas),
    "chunks": lambda stream: _first(stream.chunks("openai_chat")),
    "until_done": lambda stream: stream.until_done(),
    "get_final_text": lambda stream: stream.get_final_text(),
}
OUTER: dict[str, Any] = {
    "until_done": lambda stream: stream.until_done(),
    "iterates": _all,
    "text_deltas": lambda stream: _all(stream.text_deltas),
    "chunks": lambda stream: _all(stream.chunks("openai_chat")),
}


@every_pair
@every_face
@pytest.mark.parametrize("outer", OUTER.values(), ids=OUTER)
@pytest.mark.parametrize("inner", READINGS.values(), ids=READINGS)
@body
async def test_a_hook_that_reads_its_own_stream_is_told_so(face: Face, outer: Any, inner: Any) -> None:
    """It would wait for itself. At the end there is nothing left to read, so it may."""
    stream: Any = None
    errors: list[BaseException] = []

    def read(reading: Any) -> Any:
        """On the sync face a plain call; else awaited."""
        coroutine = reading(stream)
        if face.is_async:
            return coroutine
        with pytest.raises(StopIteration):
            coroutine.send(None)
        return None

    def in_text(told: Any, *_: Any) -> Any:
        async def refused() -> None:
            with pytest.raises(sk.UsageError, match="the stream runs already") as caught:
                await inner(stream)
            errors.append(caught.value)

        return read(lambda _: refused())

    def at_end(told: Any) -> Any:
        async def nothing() -> None:
            with contextlib.suppress(StopAsyncIteration):
                try:
                    await inner(stream)
                except sk.UsageError as error:
                    assert "no text is left" in str(error)

        return read(lambda _: nothing())

    handler = face.told(on_text_delta=in_text, on_end=at_end)
    stream = face.stream(chat("Hel", "lo"), handler)
    await outer(stream)
    assert len(errors) == 2
    assert await stream.get_final_text() == "Hello"
    assert handler.hooks.count("on_end") == 1


@every_face
@pytest.mark.parametrize("reads", ["iterates", "text_deltas"])
@body
async def test_a_loop_that_goes_on_while_another_closes_the_stream_is_refused(face: Face, reads: str) -> None:
    """As any second reader is. When the stream has been closed, the loop ends."""
    closing: Any = anyio.Event() if face.is_async else threading.Event()
    may_close: Any = anyio.Event() if face.is_async else threading.Event()

    def wait(*_: Any) -> Any:
        closing.set()
        return may_close.wait()

    stream = face.stream(chat("Hel", "lo"), face.told(on_run_done=wait))
    loop, another = ((stream if reads == "iterates" else stream.text_deltas) for _ in range(2))
    loop, another = aiter(loop), aiter(another)
    await anext(loop)
    await anext(another)

    async def read_on() -> None:
        if (waits := closing.wait()) is not True:
            await waits
        try:
            with pytest.raises(sk.UsageError, match="the stream runs already"):
                await anext(loop)
            with pytest.raises(sk.UsageError, match="the stream runs already"):
                await stream.until_done()
        finally:
            may_close.set()

    if face.is_async:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.close)
            await read_on()
    else:
        async with face.beside(stream.manager.close):
            await read_on()
    assert [x async for x in another] == []
    assert stream.status == "cancelled"


def test_a_stream_that_begins_to_run_while_it_is_closed_is_cancelled() -> None:
    """`close()` found it at rest, and another thread goes on with it before `close()` does."""
    pulls, may_go, threads = threading.Event(), threading.Event(), []

    def items() -> Iterator[Any]:
        yield from chat("Hel", finish=None)
        pulls.set()
        may_go.wait(10)
        yield from chat("lo")[1:]

    stream = sk.stream(items())
    loop = iter(stream)
    while not isinstance(next(loop), sk.TextDelta):
        pass
    close = type(stream).close
    lines, first = inspect.getsourcelines(close)
    moment = first + next(place for place, line in enumerate(lines) if "self._events.close()" in line)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is close.__code__ and event == "line" and frame.f_lineno == moment:
            threads.append(threading.Thread(target=stream.until_done))
            threads[0].start()
            pulls.wait(10)
        return trace if frame.f_code is close.__code__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        stream.close()
    finally:
        sys.settrace(before)
        may_go.set()
    threads[0].join(10)
    assert stream.status == "cancelled"
    assert stream.messages[0].content == "Hel"


@every_face
@pytest.mark.parametrize("first", ["text_deltas", "until_done", "iterates"])
@body
async def test_text_deltas_of_a_stream_that_has_ended_are_refused(face: Face, first: str) -> None:
    """No text is left to arrive, which an empty loop would not say. Another loop before the end goes on."""
    stream = face.stream(chat("Hel", "lo"))
    async for piece in stream.text_deltas:
        assert piece == "Hel"
        break
    await OUTER[first](stream)
    with pytest.raises(sk.UsageError, match="get_final_text"):
        await _all(stream.text_deltas)
    assert await stream.get_final_text() == "Hello"


@every_face
@body
async def test_text_deltas_of_a_stream_that_failed_raise_its_error(face: Face) -> None:
    stream = face.stream(chat("Hel", finish=None))
    for _ in range(2):
        with pytest.raises(sk.IncompleteStreamError):
            await _all(stream.text_deltas)


@every_face
@body
async def test_a_hooks_stop_iteration_is_what_handlers_get(face: Face) -> None:
    """A coroutine cannot raise it: Python makes it the cause of a RuntimeError. `error` and the hooks have it itself."""

    def stop(*_: Any) -> None:
        raise StopIteration("mine")

    first, second = SyncTold(on_text_delta=stop), face.told()
    stream = face.stream(chat("a"), first, second)
    with pytest.raises((StopIteration, RuntimeError)) as caught:
        await stream.until_done()
    assert isinstance(stream.error, StopIteration)
    assert caught.value is stream.error or caught.value.__cause__ is stream.error
    assert second.of("on_exception") == [stream.error]


def test_the_repr_of_an_event_shows_its_own_fields() -> None:
    """Not where it came from, which may be a whole response."""
    usage = sk.Usage(1, 2, 3, raw_item=b"{...}", position=7, item_index=4)
    assert repr(usage) == "Usage(input_tokens=1, output_tokens=2, total_tokens=3, details={})"
    assert repr(sk.TextDelta("m1", "Hi", raw_item=b"{...}")) == "TextDelta(message_id='m1', value='Hi')"
    assert repr(sk.StreamEnd(status="completed")) == "StreamEnd(status='completed')"


@every_face
@body
async def test_the_rate_of_deltas_leaves_out_the_time_in_which_somebody_thought(face: Face) -> None:
    """A confirmation that waited does not slow the model down."""

    def think(_: Any, confirmation: sk.Confirmation) -> None:
        time.sleep(0.2)

    told = face.told(on_confirmation=think)
    stream = face.stream(iter(interpreter()), told)
    await stream.until_done()
    timing = stream.timing
    assert timing.duration > 0.2
    assert timing.deltas / timing.deltas_per_second < timing.duration - 0.2


@every_face
@body
async def test_a_stream_shows_its_protocol_status_and_messages(face: Face) -> None:
    stream = face.stream(chat("Hello"))
    manager = getattr(stream, "manager", stream)
    assert repr(manager) == f"<{type(manager).__name__} in_progress, 0 messages>"
    await stream.until_done()
    assert repr(manager) == f"<{type(manager).__name__} openai_chat completed, 1 message>"


def test_usage_can_be_added() -> None:
    one, two = sk.Usage(1, 2, 3, {"cached": 1, "tier": "a"}), sk.Usage(10, 20, 30, {"cached": 2, "tier": "b"})
    assert one + two == sk.Usage(11, 22, 33, {"cached": 3, "tier": "b"})
