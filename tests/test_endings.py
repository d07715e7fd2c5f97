"""Endings: however a stream ends, everything is closed, each handler is told, and the right error is raised."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import msgspec
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ServiceError, ToolCall

from .faces import (
    AsyncTold,
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
    sync_face,
)

ENDINGS = ("on_timeout", "on_exception", "on_end")


class Oops(Exception):
    """A hook's own error."""


def oops(*_: Any) -> None:
    raise Oops("the hook")


def endings(told: Any) -> list[str]:
    return [name for name in told.hooks if name in ENDINGS]


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


async def check_failed(stream: Any, error: BaseException, texts: list[str]) -> None:
    """Every way of asking raises the error, again and again; what arrived is kept."""
    for _ in range(2):
        for ask_again in (stream.until_done, stream.get_final_text, stream.get_final_messages, stream.get_final_run):
            assert await raised_by(ask_again()) is error

        async def iterate() -> None:
            async for _ in stream:
                pass

        assert await raised_by(iterate()) is error
    assert stream.error is error
    assert [m.content for m in stream.messages if m.type == "message"] == texts
    assert all(m.status != "in_progress" for m in stream.messages)


# -- the normal end


@every_face
@body
async def test_on_end_is_told_once_and_last_at_the_normal_end(face: Face) -> None:
    """And all handlers see whole brackets, and the source is closed, without any `with`."""
    source, first, second = Source(chat("Hel", "lo")), face.told(), SyncTold()
    stream = face.stream(face.generator(source), first, second)
    assert await stream.get_final_text() == "Hello"
    for told in (first, second):
        told.check_brackets()
        assert endings(told) == ["on_end"]
    assert source.closed
    assert stream.status == "completed"
    assert stream.error is None
    await stream.close()
    await stream.until_done()
    assert first.hooks.count("on_end") == 1


@every_face
@body
async def test_the_upstream_is_closed_before_on_end_is_told(face: Face) -> None:
    """Exhaustion closes."""
    source = Source(chat("Hi"))
    seen: list[bool] = []
    told = face.told(on_end=lambda *_: seen.append(source.closed))
    await face.stream(face.generator(source), told).until_done()
    assert seen == [True]


@every_face
@body
async def test_a_hook_of_the_end_may_ask_for_what_is_final(face: Face) -> None:
    """`on_end` comes after everything: the state is complete then."""
    seen: list[Any] = []
    told = SyncTold(on_end=lambda told: seen.append((told.stream.status, [m.content for m in told.stream.messages])))
    await face.stream(chat("Hi"), told).until_done()
    assert seen == [("completed", ["Hi"])]


@sync_face
@body
async def test_final_text_can_be_had_in_on_end(face: Face) -> None:
    """The manager is the handler's `stream`."""
    texts: list[str] = []
    await face.stream(chat("Hi"), SyncTold(on_end=lambda t: texts.append(t.stream.get_final_text()))).until_done()
    assert texts == ["Hi"]


# -- the caller stops


@every_face
@body
async def test_break_pauses_and_leaving_with_closes(face: Face) -> None:
    """The open message is told as cancelled, then `on_end`; nothing is raised."""
    source, first, second = Source(chat("Hel", "lo")), face.told(), SyncTold()
    async with face.stream(face.generator(source), first, second) as stream:
        async for text in stream.text_deltas:
            assert text == "Hel"
            break
        assert "on_end" not in first.hooks
        assert not source.closed
    for told in (first, second):
        told.check_brackets()
        assert endings(told) == ["on_end"]
        assert [m.status for m in told.of("on_text_done")] == ["cancelled"]
        assert [run.status for run in told.of("on_run_done")] == ["cancelled"]
    assert source.closed
    assert stream.status == "cancelled"
    assert [m.content for m in await stream.get_final_messages()] == ["Hel"]


@every_face
@body
async def test_a_broken_loop_goes_on_with_the_next_one(face: Face) -> None:
    """`break` out of a loop only pauses."""
    async with face.stream(chat("a", "b", "c")) as stream:
        async for _ in stream.text_deltas:
            break
        assert [text async for text in stream.text_deltas] == ["b", "c"]


@every_face
@body
async def test_break_without_with_is_ended_by_close(face: Face) -> None:
    """`close` does what leaving `with` does, once."""
    source, told = Source(chat("Hel", "lo")), face.told()
    stream = face.stream(face.generator(source), told)
    async for event in stream:
        if isinstance(event, sk.TextDelta):
            break
    await stream.close()
    await stream.close()
    told.check_brackets()
    assert source.closed
    assert [m.status for m in told.of("on_text_done")] == ["cancelled"]
    before = list(told.told)
    assert await stream.get_final_text() == "Hel"
    assert told.told == before


@every_face
@body
async def test_after_close_only_the_pending_done_hooks_are_told(face: Face) -> None:
    """Then `on_end`."""
    told = face.told()
    stream = face.stream(chat("Hel", "lo"), told)
    async for event in stream:
        if isinstance(event, sk.TextDelta):
            break
    before = len(told.hooks)
    await stream.close()
    assert told.hooks[before:] == ["on_text_done", "on_message_done", "on_run_step_done", "on_run_done", "on_end"]


@every_face
@body
async def test_a_stream_that_was_never_begun_is_closed_without_a_request(face: Face) -> None:
    """Its handlers are told of the end all the same, and are free again."""
    calls: list[int] = []
    told = face.told()
    stream = face.stream(lambda: calls.append(1), told)
    await stream.close()
    assert calls == []
    assert told.hooks == ["on_end"]
    await face.stream(chat("Hi"), told).until_done()


@every_face
@body
async def test_a_stream_that_was_cancelled_before_it_began_sends_no_request(face: Face) -> None:
    """Our own cancel returns what arrived: nothing."""
    calls: list[int] = []
    told = face.told()
    stream = face.stream(lambda: calls.append(1), told)
    stream.cancel()
    async with stream:
        assert await stream.get_final_messages() == []
    assert calls == []
    assert told.hooks == ["on_end"]
    assert stream.status == "cancelled"


@every_face
@body
async def test_an_error_in_the_loop_body_closes_and_is_the_callers_own(face: Face) -> None:
    """The stream did not fail: `on_exception` is not told."""
    source, told = Source(chat("Hel", "lo")), face.told()
    stream = face.stream(face.generator(source), told)

    async def read() -> None:
        async with stream:
            async for _ in stream.text_deltas:
                raise Oops("the loop")

    assert isinstance(await raised_by(read()), Oops)
    told.check_brackets()
    assert endings(told) == ["on_end"]
    assert source.closed
    assert stream.error is None


# -- hooks end it


@every_pair
@every_face
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "hook",
    [
        "on_event",
        "on_run_created",
        "on_run_step_created",
        "on_message_created",
        "on_text_created",
        "on_text_delta",
        "on_message_delta",
        "on_text_done",
        "on_message_done",
        "on_run_step_done",
        "on_run_done",
    ],
)
@body
async def test_a_hooks_error_ends_the_stream_for_all_handlers(face: Face, hook: str, which: int) -> None:
    """It is raised itself, every time; all brackets are closed for every handler; `on_exception` gives it."""
    source = Source(chat("Hel", "lo"))
    tellers = [face.told(), SyncTold(), face.told()]
    tellers[which].does[hook] = oops
    stream = face.stream(face.generator(source), *tellers)
    error = await raised_by(stream.until_done())
    assert isinstance(error, Oops)
    assert source.closed
    for told in tellers:
        told.check_brackets()
        assert endings(told) == ["on_exception", "on_end"]
        assert told.of("on_exception") == [error]
    assert stream.status == "failed"
    assert stream.error is error
    assert await raised_by(stream.until_done()) is error
    assert await raised_by(stream.get_final_text()) is error


@every_face
@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("hook", ["on_text_delta", "on_message_delta"])
@body
async def test_a_delta_whose_hook_raises_goes_to_the_other_handlers_too(face: Face, hook: str, which: int) -> None:
    """The deltas that a handler got are the content of the message that is done."""
    tellers = [face.told(), SyncTold(), face.told()]
    tellers[which].does[hook] = lambda told, delta, snapshot: oops() if delta.value == "b" else None
    stream = face.stream(face.generator(Source(chat("a", "b", "c"))), *tellers)
    assert isinstance(await raised_by(stream.until_done()), Oops)
    for number, told in enumerate(tellers):
        if number != which:
            assert [delta.value for delta in told.of("on_text_delta")] == ["a", "b"]
        (done,) = told.of("on_text_done")
        assert done.content == "ab"


@every_face
@pytest.mark.parametrize("hook", ["on_text_delta", "on_text_created", "on_text_done"])
@body
async def test_a_hooks_error_comes_out_of_a_loop_and_of_with(face: Face, hook: str) -> None:
    """Iteration raises it where it happened."""
    told = face.told(**{hook: oops})
    stream = face.stream(chat("Hel", "lo"), told)

    async def read() -> None:
        async with stream:
            async for _ in stream:
                pass

    error = await raised_by(read())
    assert isinstance(error, Oops)
    told.check_brackets()
    assert endings(told) == ["on_exception", "on_end"]
    assert stream.error is error


@every_face
@pytest.mark.parametrize("which", [0, 1])
@body
async def test_an_error_in_on_end_is_raised_and_the_others_are_told(face: Face, which: int) -> None:
    """Still exactly once."""
    tellers = [face.told(), face.told()]
    tellers[which].does["on_end"] = oops
    stream = face.stream(chat("Hi"), *tellers)
    error = await raised_by(stream.until_done())
    assert isinstance(error, Oops)
    for told in tellers:
        told.check_brackets()
    assert await raised_by(stream.get_final_text()) is error


@every_face
@body
async def test_an_error_while_the_stream_fails_is_a_note_on_the_first(face: Face) -> None:
    """The first error is the one that is raised."""
    first, second = face.told(on_exception=oops), face.told()
    stream = face.stream(face.generator(Source(chat("Hi", finish=None), error=RuntimeError("gone"))), first, second)
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.SourceError)
    assert any("Oops" in note for note in error.__notes__)
    for told in (first, second):
        told.check_brackets()
        assert endings(told) == ["on_exception", "on_end"]


@every_face
@pytest.mark.parametrize("hook", ["on_text_done", "on_end"])
@body
async def test_an_error_of_a_hook_during_close_is_raised_by_close(face: Face, hook: str) -> None:
    """A hook's error is never swallowed."""
    told, other = face.told(**{hook: oops}), face.told()
    stream = face.stream(chat("Hel", "lo"), told, other)
    async for event in stream:
        if isinstance(event, sk.TextDelta):
            break
    error = await raised_by(stream.close())
    assert isinstance(error, Oops)
    told.check_brackets()
    other.check_brackets()
    assert await raised_by(stream.get_final_text()) is error


@every_face
@pytest.mark.parametrize(
    "hook", ["on_run_created", "on_message_created", "on_text_delta", "on_text_done", "on_run_done"]
)
@body
async def test_cancel_in_a_hook_ends_the_stream_and_returns_what_arrived(face: Face, hook: str) -> None:
    """Nothing is raised; the upstream is closed; all brackets are closed for every handler."""
    source = Source(chat("Hel", "lo"))
    tellers = [SyncTold(**{hook: lambda told, *_: told.stream.cancel()}), face.told()]
    stream = face.stream(face.generator(source), *tellers)
    messages = await stream.get_final_messages()
    assert all("Hello".startswith(m.content) for m in messages)
    assert source.closed
    for told in tellers:
        told.check_brackets()
        assert endings(told) == ["on_end"]
    if hook == "on_text_delta":
        assert [m.content for m in messages] == ["Hel"]
        assert stream.status == "cancelled"
        assert [m.status for m in messages] == ["cancelled"]


@sync_face
@pytest.mark.parametrize(
    "hook", ["on_run_created", "on_message_created", "on_text_delta", "on_text_done", "on_run_done"]
)
@body
async def test_close_in_a_hook_ends_the_stream(face: Face, hook: str) -> None:
    """The source is closed when `close` returns; afterwards only done hooks and `on_end` are told."""
    source, closed = Source(chat("Hel", "lo")), []

    def close(told: Any, *_: Any) -> None:
        told.stream.close()
        closed.append(source.closed)

    tellers = [SyncTold(**{hook: close}), SyncTold()]
    await face.stream(face.generator(source), *tellers).until_done()
    assert closed
    assert all(closed)
    for told in tellers:
        told.check_brackets()
        assert endings(told) == ["on_end"]


@async_faces
@body
async def test_close_in_an_async_hook_ends_the_stream(face: Face) -> None:
    """`await self.stream.close()` does not wait for itself."""
    source = Source(chat("Hel", "lo"))
    tellers = [AsyncTold(on_text_delta=lambda told, *_: told.stream.close()), SyncTold()]
    stream = face.stream(face.generator(source), *tellers)
    assert await stream.get_final_text() == "Hel"
    assert source.closed
    for told in tellers:
        told.check_brackets()


@every_face
@body
async def test_an_event_is_not_given_to_the_loop_after_the_stream_was_closed_in_its_hook(face: Face) -> None:
    """The loop ends."""
    told = SyncTold(on_text_created=lambda told, *_: told.stream.cancel())
    stream = face.stream(chat("Hel", "lo"), told)
    types = [event.type async for event in stream]
    assert types == ["run_created", "run_step_created"]


@every_face
@body
async def test_a_hook_that_cancels_and_raises_is_not_swallowed(face: Face) -> None:
    """A hook's error wins over our own cancel."""

    def both(told: Any, *_: Any) -> None:
        told.stream.cancel()
        raise Oops("after cancel")

    told = SyncTold(on_text_delta=both)
    stream = face.stream(chat("Hel", "lo"), told)
    error = await raised_by(stream.until_done())
    assert isinstance(error, Oops)
    assert endings(told) == ["on_exception", "on_end"]


@async_faces
@body
async def test_a_hook_is_not_cut_short_by_our_own_cancel(face: Face) -> None:
    """Only waiting is: a hook that awaits comes to its end."""
    over: list[str] = []

    async def save(told: Any) -> None:
        told.stream.cancel()
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        over.append("saved")

    told = AsyncTold(on_text_delta=lambda told, *_: save(told))
    assert await face.stream(chat("Hel", "lo"), told).get_final_text() == "Hel"
    assert over == ["saved"]


@sync_face
@body
async def test_a_keyboard_interrupt_in_a_hook_closes_everything_and_goes_on_up(face: Face) -> None:
    """It is no failure of the stream: `on_exception` is not told."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    source = Source(chat("Hel", "lo"))
    tellers = [SyncTold(on_text_delta=interrupt), SyncTold()]
    stream = face.stream(face.generator(source), *tellers)
    assert isinstance(await raised_by(stream.until_done()), KeyboardInterrupt)
    assert source.closed
    for told in tellers:
        told.check_brackets()
        assert endings(told) == ["on_end"]
        assert [m.status for m in told.of("on_text_done")] == ["cancelled"]
    assert ([m.content for m in stream.messages], stream.error) == (["Hel"], None)


@sync_face
@body
async def test_a_second_keyboard_interrupt_still_lets_on_end_be_told(face: Face) -> None:
    """Raised while the stream is being closed."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    tellers = [SyncTold(on_text_delta=interrupt, on_text_done=interrupt), SyncTold()]
    stream = face.stream(chat("Hel", "lo"), *tellers)
    assert isinstance(await raised_by(stream.until_done()), KeyboardInterrupt)
    for told in tellers:
        told.check_brackets()


@every_face
@body
async def test_a_hooks_timeout_error_is_no_timeout_of_the_source(face: Face) -> None:
    """`on_timeout` is for the source's alone."""

    def late(*_: Any) -> None:
        raise TimeoutError("a hook's")

    told = face.told(on_text_delta=late)
    stream = face.stream(chat("Hi"), told)
    error = await raised_by(stream.until_done())
    assert type(error) is TimeoutError
    assert endings(told) == ["on_exception", "on_end"]


# -- the source fails, in memory


@every_face
@body
async def test_a_producer_that_raises_is_a_source_error(face: Face) -> None:
    """Its own error is the cause."""
    cause = RuntimeError("the kernel died")
    source, told = Source(chat("Hel", "lo", finish=None), error=cause), face.told()
    stream = face.stream(face.generator(source), told)
    error = await raised_by(stream.until_done())
    assert type(error) is sk.SourceError
    assert error.__cause__ is cause
    assert [m.content for m in error.messages] == ["Hello"]
    told.check_brackets()
    assert endings(told) == ["on_exception", "on_end"]
    assert [m.status for m in told.of("on_text_done")] == ["failed"]
    await check_failed(stream, error, ["Hello"])


@every_face
@body
async def test_a_producers_timeout_is_a_source_timeout(face: Face) -> None:
    """`on_timeout`, `on_exception`, `on_end`, in this order."""
    source, told = Source(chat("Hel", finish=None), error=TimeoutError("slow")), face.told()
    stream = face.stream(face.generator(source), told)
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.SourceTimeoutError)
    assert isinstance(error, TimeoutError)
    assert endings(told) == ["on_timeout", "on_exception", "on_end"]
    await check_failed(stream, error, ["Hel"])


@every_face
@body
async def test_a_stream_that_ends_too_early_is_incomplete(face: Face) -> None:
    """Its message is told as incomplete."""
    told = face.told()
    stream = face.stream(chat("Hel", finish=None), told)
    error = await raised_by(stream.get_final_text())
    assert isinstance(error, sk.IncompleteStreamError)
    assert [m.status for m in told.of("on_text_done")] == ["incomplete"]
    assert [run.status for run in told.of("on_run_done")] == ["incomplete"]
    assert stream.status == "incomplete"
    told.check_brackets()
    await check_failed(stream, error, ["Hel"])


@every_face
@pytest.mark.parametrize("kind", [sk.RunDone, sk.StreamException, sk.StreamEnd])
@body
async def test_a_loop_may_be_left_at_an_event_of_a_failure(face: Face, kind: type[sk.Event]) -> None:
    """Leaving `with` raises nothing then; who asks for what is final gets the error."""
    told = face.told()
    async with face.stream(chat("Hel", finish=None), told) as stream:
        async for event in stream:
            if isinstance(event, kind):
                break
    assert endings(told) == ["on_exception", "on_end"]
    told.check_brackets()
    assert stream.status == "incomplete"
    await check_failed(stream, stream.error, ["Hel"])


@every_face
@body
async def test_the_current_event_is_the_loops_own_after_a_failure(face: Face) -> None:
    """As it is in hooks, which have had all of them by then."""
    current: list[tuple[str, bool]] = []
    told = face.told(on_event=lambda self, event: current.append((event.type, self.stream.current_event is event)))
    stream = face.stream(chat("Hel", finish=None), told)
    seen: list[tuple[str, bool]] = []
    with pytest.raises(sk.IncompleteStreamError):
        async for event in stream:
            seen.append((event.type, stream.current_event is event))
    assert seen == current
    assert all(is_current for _, is_current in seen)


class Unclosable:
    """Items of which the source cannot be closed."""

    def __iter__(self) -> Iterator[Any]:
        return iter(chat("Hel"))

    def close(self) -> None:
        raise OSError("it is gone")


@every_face
@body
async def test_a_source_that_cannot_be_closed_fails_the_stream(face: Face) -> None:
    told = face.told()
    stream = face.stream(Unclosable(), told)
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.SourceError)
    assert isinstance(error.__cause__, OSError)
    told.check_brackets()


def emitted() -> sk.Emitter:
    with sk.Emitter() as emitter:
        emitter.text("Hel")
        emitter.text("lo")
    return emitter


@every_face
@pytest.mark.parametrize(
    "make",
    [lambda: chat("Hel", "lo"), lambda: sk.stream(chat("Hel", "lo")), emitted],
    ids=["list", "stream", "emitter"],
)
@body
async def test_a_hook_may_close_a_stream_of_what_cannot_be_interrupted(face: Face, make: Callable[[], Any]) -> None:
    stream = face.stream(make(), face.told(on_text_delta=lambda told, delta, snapshot: told.stream.close()))
    await stream.until_done()
    assert (stream.status, [message.content for message in stream.messages]) == ("cancelled", ["Hel"])


@async_faces
@body
async def test_closing_its_chunks_closes_a_stream(face: Face) -> None:
    stream = sk.stream(chat("Hel", "lo"))
    chunks: Any = stream.chunks("open_interpreter")
    assert next(chunks)["start"] is True
    chunks.close()
    async_stream = face.stream(chat("Hel", "lo"))
    async_chunks = async_stream.chunks("open_interpreter")
    assert (await anext(async_chunks))["start"] is True
    await async_chunks.aclose()
    assert stream.status == async_stream.status == "cancelled"


@every_face
@body
async def test_an_answer_that_the_provider_cut_short_returns(face: Face) -> None:
    """Completed, or cut short by the provider: everything returns."""
    told = face.told()
    stream = face.stream(chat("Hel", finish="length"), told)
    assert await stream.get_final_text() == "Hel"
    assert (await stream.get_final_run()).status == "incomplete"
    assert endings(told) == ["on_end"]


@every_face
@body
async def test_a_strict_stream_raises_the_protocol_error(face: Face) -> None:
    """It names the item, and everything is closed."""
    items = chat("Hel", finish=None)
    source, told = Source([*items, 5, *chat("lo")]), face.told()
    stream = face.stream(face.generator(source), told, strict=True)
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.ProtocolError)
    assert error.index == 2
    assert source.closed
    told.check_brackets()
    assert endings(told) == ["on_exception", "on_end"]
    await check_failed(stream, error, ["Hel"])


STRICT_SERVICES: dict[str, Any] = {
    "chat": ask,
    "responses": ask_responses,
    "assistants": lambda client: (
        lambda: client.beta.threads.runs.create(thread_id="thread_1", assistant_id="asst_1", stream=True)
    ),
}


@pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")
@every_face
@pytest.mark.parametrize("service", STRICT_SERVICES)
@body
async def test_what_a_strict_stream_refuses_is_done_all_the_same(face: Face, service: str) -> None:
    """Broken arguments are found where the call ends: the call that was created is done, as failed."""
    told = face.told()
    with ModelServer(Reply(ToolCall("weather", '{"city": '))) as server:
        async with face.client(server) as client:
            stream = face.stream(STRICT_SERVICES[service](client), told, strict=True)
            error = await raised_by(stream.until_done())
    assert isinstance(error, sk.ProtocolError)
    assert error.code == "bad-arguments"
    told.check_brackets()
    assert [message.status for message in told.of("on_tool_call_done")] == ["failed"]


@every_face
@body
async def test_a_message_is_done_also_where_the_hook_of_its_warning_fails(face: Face) -> None:
    """The warning comes while the call is still open, so that the end closes it."""
    told = face.told(on_warning=oops)
    items = calls("weather")
    items[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = '{"city": '
    assert isinstance(await raised_by(face.stream(items, told).until_done()), Oops)
    told.check_brackets()


@every_face
@body
async def test_items_of_no_known_protocol_are_an_error_that_lists_the_known(face: Face) -> None:
    """And nothing was told but the ending."""
    told = face.told()
    error = await raised_by(face.stream([{"surprise": 1}], told).until_done())
    assert isinstance(error, sk.ProtocolError)
    assert "openai_chat" in str(error)
    assert told.hooks == ["on_exception", "on_end"]


# -- the transport, with the real client


@every_face
@body
async def test_leaving_with_closes_the_http_response_at_once(face: Face) -> None:
    """The server sees the client leave."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            told = face.told()
            async with face.stream(ask(client), told) as stream:
                async for _ in stream.text_deltas:
                    break
            assert await face.in_thread(server.wait_for_disconnect)
            told.check_brackets()


@every_face
@body
async def test_close_closes_the_http_response_at_once(face: Face) -> None:
    """Without `with`, too."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            stream = face.stream(ask_responses(client))
            async for _ in stream.text_deltas:
                break
            await stream.close()
            assert await face.in_thread(server.wait_for_disconnect)


@every_face
@body
async def test_a_hooks_error_closes_the_http_response_at_once(face: Face) -> None:
    """The error does not leave the request running."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client), face.told(on_text_delta=oops))
            assert isinstance(await raised_by(stream.until_done()), Oops)
            assert await face.in_thread(server.wait_for_disconnect)


@every_face
@pytest.mark.parametrize("way", ["iterate", "until_done"])
@body
async def test_cancel_from_another_thread_ends_a_wait_for_a_silent_server(face: Face, way: str) -> None:
    """It returns what arrived, and the server sees the client leave."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            arrived = threading.Event()
            told, other = face.told(), SyncTold()
            told.does["on_message_delta"] = lambda _, delta, snapshot: snapshot.content == "Hello" and arrived.set()
            stream = face.stream(ask(client), told, other)

            def stop() -> None:
                assert arrived.wait(5)
                stream.cancel()

            async with face.beside(stop):
                if way == "iterate":
                    assert "".join([text async for text in stream.text_deltas]) == "Hello"
                else:
                    await stream.until_done()
            assert await stream.get_final_text() == "Hello"
            assert await face.in_thread(server.wait_for_disconnect)
            for one in (told, other):
                one.check_brackets()
                assert endings(one) == ["on_end"]
            assert stream.status == "cancelled"


@async_faces
@body
async def test_cancel_ends_a_wait_for_the_answers_head(face: Face) -> None:
    """The request itself is cancelled; entering `with` returns and gives a stream that is over."""
    with ModelServer(Reply("Hello", first_delay=60, headers={})) as server:
        async with face.client(server) as client, anyio.create_task_group() as tasks:
            told = face.told()
            stream = face.stream(ask(client, stream=False), told)

            async def stop() -> None:
                assert await face.in_thread(server.wait_for_request)
                stream.cancel()

            tasks.start_soon(stop)
            async with stream:
                assert await stream.get_final_messages() == []
            assert await face.in_thread(server.wait_for_disconnect)
            assert told.hooks == ["on_end"]


@async_faces
@pytest.mark.parametrize("way", ["with", "until_done"])
@body
async def test_a_cancelled_task_closes_everything(face: Face, way: str) -> None:
    """The handlers are told although the task is cancelled, and the cancellation goes on up."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            told = AsyncTold()
            stream = face.stream(ask(client), told)
            with anyio.CancelScope() as scope:
                told.does["on_message_delta"] = lambda _, delta, snapshot: (
                    snapshot.content == "Hello" and scope.cancel()
                )
                if way == "with":
                    async with stream:
                        async for _ in stream:
                            pass
                else:
                    await stream.until_done()
                pytest.fail("the cancellation was swallowed")
            assert scope.cancelled_caught
            assert await face.in_thread(server.wait_for_disconnect)
            told.check_brackets()
            assert endings(told) == ["on_end"]
            assert [(m.content, m.status) for m in told.of("on_text_done")] == [("Hello", "cancelled")]
            assert ([m.content for m in stream.messages], stream.error) == (["Hello"], None)


def test_a_task_that_asyncio_cancels_closes_everything() -> None:
    """`asyncio.Task.cancel`, which knows no scopes."""
    import asyncio

    async def main() -> None:
        with ModelServer(Reply("Hello", never_ends=True)) as server:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
                for way in ("with", "until_done"):
                    told, arrived = AsyncTold(), asyncio.Event()
                    told.does["on_text_delta"] = lambda *_, arrived=arrived: arrived.set()
                    stream = sk.astream(ask(client), told)

                    async def work(stream: Any = stream, way: str = way) -> None:
                        if way == "until_done":
                            await stream.until_done()
                        async with stream:
                            async for _ in stream:
                                pass

                    task = asyncio.create_task(work())
                    await asyncio.wait_for(arrived.wait(), 5)
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asyncio.wait_for(task, 5)
                    told.check_brackets()
                    assert endings(told) == ["on_end"]
                assert await asyncio.to_thread(server.wait_for_disconnect, 5, count=2)

    asyncio.run(main())


@async_faces
@body
async def test_a_callers_own_deadline_is_not_a_timeout_of_the_source(face: Face) -> None:
    """`anyio.fail_after` around the stream raises its own TimeoutError."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client:
            told = face.told()
            stream = face.stream(ask(client), told)
            with pytest.raises(TimeoutError) as caught, anyio.fail_after(10) as scope:
                # It is over as soon as text has arrived: the server knows this client.
                told.does["on_text_created"] = lambda *_: setattr(scope, "deadline", anyio.current_time())
                await stream.until_done()
            assert not isinstance(caught.value, sk.StreamkitError)
            told.check_brackets()
            assert endings(told) == ["on_end"]
            assert await face.in_thread(server.wait_for_disconnect)


@pytest.mark.slow
@every_face
@body
async def test_a_read_timeout_is_a_source_timeout(face: Face) -> None:
    """Of the real client; its own error is the cause."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server, timeout=1.0) as client:
            told, other = face.told(), SyncTold()
            stream = face.stream(ask(client), told, other)
            error = await raised_by(stream.until_done())
            assert isinstance(error, sk.SourceTimeoutError)
            assert isinstance(error, TimeoutError)
            assert "Timeout" in type(error.__cause__).__name__
            assert str(error).startswith("ReadTimeout: timed out")
            for one in (told, other):
                one.check_brackets()
                assert endings(one) == ["on_timeout", "on_exception", "on_end"]
                assert [m.status for m in one.of("on_text_done")] == ["failed"]
            await check_failed(stream, error, ["Hello"])
            assert await face.in_thread(server.wait_for_disconnect)


@every_pair
@every_face
@pytest.mark.parametrize("enter", [True, False])
@pytest.mark.parametrize(("status", "kind"), [(401, "AuthenticationError"), (429, "RateLimitError"), (503, "Internal")])
@body
async def test_a_refused_request_is_told_and_raised(face: Face, status: int, kind: str, enter: bool) -> None:
    """From entering `with`, else at the first use; every time."""
    with ModelServer(Reply(status=status)) as server:
        async with face.client(server) as client:
            told = face.told()
            stream = face.stream(ask(client), told)
            error = await raised_by(stream.__aenter__() if enter else stream.until_done())
            assert type(error) is sk.SourceError
            assert error.status_code == status
            assert kind in type(error.__cause__).__name__
            assert told.hooks == ["on_exception", "on_end"]
            assert stream.status == "failed"
            await check_failed(stream, error, [])
            assert len(server.requests) == 1


@every_face
@body
async def test_a_connection_that_cannot_be_made_is_a_source_error(face: Face) -> None:
    """Its cause is the client's own."""
    async with face.client("http://127.0.0.1:1/v1") as client:
        told = face.told()
        stream = face.stream(ask(client), told)
        error = await raised_by(stream.until_done())
        assert type(error) is sk.SourceError
        assert isinstance(error.__cause__, openai.APIConnectionError)
        assert told.hooks == ["on_exception", "on_end"]


@every_face
@pytest.mark.parametrize("request_of", [ask, ask_responses])
@body
async def test_a_server_that_goes_in_the_middle_of_an_event_is_a_source_error(face: Face, request_of: Any) -> None:
    """What arrived before is kept."""
    with ModelServer(Reply("Hello there", cut_after=3)) as server:
        async with face.client(server) as client:
            told = face.told()
            stream = face.stream(request_of(client), told)
            error = await raised_by(stream.until_done())
            assert isinstance(error, sk.SourceError)
            assert error.__cause__ is not None
            told.check_brackets()
            assert endings(told) == ["on_exception", "on_end"]
            await check_failed(stream, error, ["Hello ther"])


@every_face
@pytest.mark.parametrize(
    ("request_of", "event"), [(ask, "error"), (ask_responses, "error"), (ask_responses, "response.failed")]
)
@body
async def test_an_error_that_the_provider_sends_mid_stream_is_a_failed_run(
    face: Face, request_of: Any, event: Any
) -> None:
    """With the provider's code and body."""
    reply = Reply("Hello there", error_after=3, error=ServiceError("Too much.", code="overloaded"), error_event=event)
    with ModelServer(reply) as server:
        async with face.client(server) as client:
            told, other = face.told(), SyncTold()
            stream = face.stream(request_of(client), told, other)
            error = await raised_by(stream.until_done())
            assert isinstance(error, sk.RunFailedError)
            assert error.code == "overloaded"
            assert "Too much." in str(error)
            for one in (told, other):
                one.check_brackets()
                assert endings(one) == ["on_exception", "on_end"]
                assert [run.status for run in one.of("on_run_done")] == ["failed"]
                assert [m.status for m in one.of("on_text_done")] == ["failed"]
            await check_failed(stream, error, ["Hello ther"])


@every_face
@pytest.mark.parametrize("request_of", [ask, ask_responses])
@body
async def test_a_whole_answer_over_http_ends_well(face: Face, request_of: Any) -> None:
    """And leaves the connection for the next request."""
    with ModelServer(Reply("Hello there")) as server:
        async with face.client(server) as client:
            for _ in range(2):
                told = face.told()
                stream = face.stream(request_of(client), told)
                assert await stream.get_final_text() == "Hello there"
                told.check_brackets()
                assert endings(told) == ["on_end"]
            assert server.disconnects == []


@every_face
@body
async def test_nothing_is_read_after_the_sentinel(face: Face) -> None:
    """Some servers keep the connection open after `[DONE]`; the answer is whole all the same."""
    lines = [b"data: " + msgspec.json.encode(chunk) + b"\n\n" for chunk in chat("Hello")]
    with ModelServer(Reply(raw=[*lines, b"data: [DONE]\n\n"], never_ends=True)) as server:
        async with face.client(server) as client:
            told = face.told()
            assert await face.stream(ask(client), told).get_final_text() == "Hello"
            assert endings(told) == ["on_end"]
            assert await face.in_thread(server.wait_for_disconnect)


@async_faces
@body
async def test_close_from_another_task_returns_when_the_stream_has_ended(face: Face) -> None:
    """Law 11: what is upstream is closed, and the handlers were told."""
    with ModelServer(Reply("Hello", never_ends=True)) as server:
        async with face.client(server) as client, anyio.create_task_group() as tasks:
            told = AsyncTold()
            stream = face.stream(ask(client), told)
            arrived = anyio.Event()
            told.does["on_text_created"] = lambda *_: _set(arrived)
            tasks.start_soon(stream.until_done)
            await arrived.wait()
            await stream.close()
            assert stream.ended
            assert told.hooks[-1] == "on_end"


async def _set(event: anyio.Event) -> None:
    event.set()


@every_pair
@every_face
@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
@pytest.mark.parametrize("hook", ["on_text_created", "on_text_delta", "on_end"])
@pytest.mark.parametrize("way", ["iterate", "until_done"])
@body
async def test_a_hook_that_raises_what_ends_a_loop_ends_no_loop(face: Face, kind: Any, hook: str, way: str) -> None:
    """Not silently: the error is the stream's, and every way of reading raises it, as the cause of a RuntimeError where
    Python lets nobody raise it."""
    failure = kind("a hook's")

    def fail(*_: Any) -> None:
        raise failure

    told, other = SyncTold(**{hook: fail}), SyncTold()
    stream = face.stream(chat("a"), told, other)

    async def read() -> None:
        if way == "until_done":
            await stream.until_done()
        async for _ in stream:
            pass

    for _ in range(2):
        error = await raised_by(read())
        assert error is failure or (type(error) is RuntimeError and failure in causes_of(error))
    assert stream.error is failure
    assert other.of("on_exception") == ([] if hook == "on_end" else [failure])
    other.check_brackets()


def causes_of(error: BaseException) -> list[BaseException]:
    return [error, *causes_of(error.__cause__)] if error.__cause__ is not None else [error]


class ClosedTwice:
    """A source whose first closing is stopped, by Ctrl-C or by a cancelled task; the second one ends."""

    def __init__(self) -> None:
        self.items = iter(chat("a", "b"))
        self.closing = asyncio.Event()

    def __iter__(self) -> Iterator[Any]:
        return self.items

    def __aiter__(self) -> AsyncIterator[Any]:
        return self  # type: ignore[return-value]

    async def __anext__(self) -> Any:
        for item in self.items:
            return item
        raise StopAsyncIteration

    def close(self) -> None:
        if not self.closing.is_set():
            self.closing.set()
            raise KeyboardInterrupt

    async def aclose(self) -> None:
        if not self.closing.is_set():
            self.closing.set()
            await anyio.sleep_forever()


def test_a_stream_whose_closing_was_interrupted_ends_when_it_is_closed_again() -> None:
    """With all that its handlers are still to be told."""
    told = SyncTold()
    stream = sk.stream(ClosedTwice(), told)
    with pytest.raises(KeyboardInterrupt), stream:
        for event in stream:
            if event.type == "text_delta":
                break
    stream.close()
    told.check_brackets()
    assert stream.status == "cancelled"


@pytest.mark.parametrize("fails", [False, True])
def test_a_stream_whose_closing_was_cancelled_ends_when_it_is_closed_again(fails: bool) -> None:
    """By asyncio itself, which knows no shield; whether a hook failed before or not."""

    def fail(*_: Any) -> None:
        raise ValueError("a hook's")

    told = AsyncTold(**({"on_text_delta": fail} if fails else {}))
    source = ClosedTwice()

    async def read() -> None:
        stream = sk.astream(source, told)
        try:
            async with stream:
                async for event in stream:
                    if event.type == "text_delta":
                        break
        finally:
            await stream.close()

    async def main() -> None:
        task = asyncio.ensure_future(read())
        await source.closing.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    anyio.run(main)
    told.check_brackets()


@every_face
@body
async def test_a_call_whose_output_came_before_its_end_wants_none(face: Face) -> None:
    """Another call with the same id does, later."""
    call = sk.ToolCallMessage("c", name="f", call_id="k", content="{}")
    begun = [sk.events.ToolCallCreated(call), sk.events.ToolCallDelta("c", "{}")]
    output = sk.events.ToolOutputDone(sk.ToolOutputMessage("o", call_id="k", content="x"))
    events = [*begun, output, sk.events.ToolCallDone(call)]
    again = sk.events.ToolCallDone(sk.ToolCallMessage("d", name="f", call_id="k", content="{}"))
    ends = {"completed": [], "requires_action": [again]}
    for status, more in ends.items():
        stream = face.stream([*events, *more, sk.events.StreamEnd(status="completed")])
        await stream.until_done()
        assert (stream.status, [*stream.warnings]) == (status, [])
        assert len(stream.pending) == len(more)
