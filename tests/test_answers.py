"""What waits for an answer: confirmations, which gate what runs, and tool calls, which `then=` goes on from."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

import streamkit as sk
from streamkit.answers import Answer
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import (
    ASKED,
    AsyncTold,
    Face,
    Source,
    SyncTold,
    async_faces,
    body,
    calls,
    chat,
    every_face,
    every_pair,
    interpreter,
    sync_face,
)
from .test_parsed_items import responses


async def raised_by(awaitable: Any) -> BaseException:
    with pytest.raises(BaseException) as caught:
        await awaitable
    return caught.value


def did_run(source: Source) -> bool:
    return source.went > ASKED


# -- confirmations


@every_face
@pytest.mark.parametrize("place", [1, 2, 3], ids=["at its beginning", "before its end", "after its end"])
@body
async def test_an_output_that_comes_at_any_place_closes_its_call(face: Face, place: int) -> None:
    """Nobody is asked for it again: the run ends completed."""
    ids = {"name": "f", "call_id": "c1"}
    items: list[Any] = [
        sk.events.ToolCallCreated(sk.ToolCallMessage("c", **ids)),
        sk.events.ToolCallDelta("c", "{}"),
        sk.events.ToolCallDone(sk.ToolCallMessage("c", content="{}", **ids)),
    ]
    items.insert(place, sk.events.ToolOutputDone(sk.ToolOutputMessage("o", content="22", **ids)))
    stream = face.stream([*items, sk.events.StreamEnd()])
    await stream.until_done()
    assert (stream.status, dict(stream.pending)) == ("completed", {})


@every_face
@body
async def test_an_approved_confirmation_lets_it_run(face: Face) -> None:
    """Each handler is told the outcome, before what ran."""
    source = Source(interpreter())
    told = face.told(on_confirmation=lambda _, asked: asked.approve())
    other = SyncTold()
    stream = face.stream(face.generator(source), told, other)
    messages = await stream.get_final_messages()
    assert did_run(source)
    assert [(m.type, m.content) for m in messages] == [
        ("code", "34/24"),
        ("console", "1.41"),
        ("message", "About 1.4."),
    ]
    for one in (told, other):
        one.check_brackets()
        hooks = one.hooks
        assert hooks.index("on_confirmation") < hooks.index("on_confirmation_done") < hooks.index("on_console_created")
        assert [asked.status for asked in one.of("on_confirmation_done")] == ["approved"]
    (asked,) = stream.confirmations
    assert asked.subject is messages[0]
    assert not asked.waiting
    assert not stream.pending


@every_face
@pytest.mark.parametrize("kind", ["declined", "undecided", "no handler"])
@body
async def test_what_is_not_approved_does_not_run(face: Face, kind: str) -> None:
    """The run ends there; the producer is closed before `on_end`. What nobody decided was not declined: it requires action."""
    source, closed = Source(interpreter()), []
    told = face.told(on_end=lambda _: closed.append(source.closed))
    if kind == "declined":
        told.does["on_confirmation"] = lambda _, asked: asked.decline("too risky")
    stream = face.stream(face.generator(source), *([] if kind == "no handler" else [told]))
    messages = await stream.get_final_messages()
    assert not did_run(source)
    assert source.closed
    assert [(m.type, m.content, m.status) for m in messages] == [("code", "34/24", "completed")]
    (asked,) = stream.confirmations
    run = await stream.get_final_run()
    if kind == "declined":
        assert (asked.status, asked.reason) == ("declined", "too risky")
        assert (stream.status, run.status, run.finish_reason) == ("completed", "completed", "declined")
    else:
        assert (asked.status, asked.reason) == ("unanswered", None)
        assert (stream.status, run.status, run.finish_reason) == ("requires_action", "requires_action", None)
    assert not stream.pending
    if kind != "no handler":
        assert told.hooks.count("on_run_requires_action") == (kind != "declined")
        told.check_brackets()
        assert closed == [True]
        assert told.hooks.count("on_confirmation_done") == 1


@every_face
@body
async def test_a_hook_that_raises_declines(face: Face) -> None:
    """Nothing runs, and the error propagates."""

    def fail(*_: Any) -> None:
        raise RuntimeError("a hook's")

    source, other = Source(interpreter()), face.told()
    stream = face.stream(face.generator(source), face.told(on_confirmation=fail), other)
    assert isinstance(await raised_by(stream.until_done()), RuntimeError)
    assert not did_run(source)
    assert [asked.status for asked in other.of("on_confirmation_done")] == ["declined"]
    other.check_brackets()


@every_face
@body
async def test_an_error_after_an_approval_declines(face: Face) -> None:
    """A later handler's error keeps approved code from running: the outcome is told as it is."""

    def fail(*_: Any) -> None:
        raise RuntimeError("a hook's")

    source, first = Source(interpreter()), face.told(on_confirmation=lambda _, asked: asked.approve())
    stream = face.stream(face.generator(source), first, face.told(on_confirmation=fail))
    assert isinstance(await raised_by(stream.until_done()), RuntimeError)
    assert not did_run(source)
    assert [asked.status for asked in first.of("on_confirmation_done")] == ["declined"]


def test_a_question_that_comes_twice_is_one() -> None:
    code = sk.CodeMessage("c", format="python", content="1")
    asked = [sk.events.ConfirmationCreated(sk.Confirmation("q", code)) for _ in range(2)]
    stream = sk.stream([sk.events.CodeDone(code), *asked, sk.events.StreamEnd()], protocol="streamkit")
    stream.until_done()
    assert [one.id for one in stream.confirmations] == ["q"]
    assert [warning.code for warning in stream.warnings] == ["duplicate-confirmation"]


@every_face
@body
async def test_the_second_answer_is_refused(face: Face) -> None:
    """The first one wins."""
    seen: list[Exception] = []

    def twice(_: Any, asked: sk.Confirmation) -> None:
        asked.approve()
        for again in (asked.approve, asked.decline):
            with pytest.raises(sk.UsageError, match="answered already") as caught:
                again()
            seen.append(caught.value)

    source = Source(interpreter())
    await face.stream(face.generator(source), face.told(on_confirmation=twice)).until_done()
    assert len(seen) == 2
    assert did_run(source)


@every_face
@body
async def test_an_answer_may_come_before_its_deferral(face: Face) -> None:
    """A thread that looks at `pending` can answer while the hook is about to defer: that answer counts."""
    source = Source(interpreter())

    def late(_: Any, asked: sk.Confirmation) -> None:
        answering = threading.Thread(target=stream.pending[asked.id].approve)
        answering.start()
        answering.join()
        asked.defer()

    stream = face.stream(face.generator(source), face.told(on_confirmation=late))
    await stream.until_done()
    assert did_run(source)


@every_face
@body
async def test_an_output_may_come_before_its_deferral(face: Face) -> None:
    """As a confirmation's answer."""

    def late(_: Any, call: Any) -> None:
        answering = threading.Thread(target=call.respond, args=("ok",))
        answering.start()
        answering.join()
        call.defer()

    stream = face.stream(calls("one"), face.told(on_tool_call_done=late), then=go_on(chat("Dry.")))
    assert await stream.get_final_text() == "Dry."


@every_face
@pytest.mark.parametrize("yes", [True, False])
@pytest.mark.parametrize("way", ["until_done", "iterate", "with"])
@body
async def test_a_deferred_confirmation_is_answered_from_another_thread(face: Face, yes: bool, way: str) -> None:
    """Found in `stream.pending`; meanwhile nothing is pulled."""
    source, deferred = Source(interpreter()), threading.Event()

    def defer(told: Any, asked: sk.Confirmation) -> None:
        asked.defer()
        deferred.set()

    stream = face.stream(face.generator(source), face.told(on_confirmation=defer))

    def answer() -> None:
        assert deferred.wait(5)
        assert not did_run(source)
        (asked,) = stream.pending.values()
        assert asked.waiting
        asked.approve() if yes else asked.decline()

    async with face.beside(answer):
        if way == "until_done":
            await stream.until_done()
        elif way == "iterate":
            async for _ in stream:
                pass
        else:
            async with stream:
                async for _ in stream:
                    pass
    assert did_run(source) is yes


@async_faces
@pytest.mark.parametrize("way", ["until_done", "iterate"])
@body
async def test_a_deferred_confirmation_is_answered_from_another_task(face: Face, way: str) -> None:
    """The event loop goes on while the stream waits."""
    source, deferred = Source(interpreter()), anyio.Event()

    def defer(told: Any, asked: sk.Confirmation) -> None:
        asked.defer(timeout=15)
        deferred.set()

    stream = face.stream(face.generator(source), AsyncTold(on_confirmation=defer))

    async def answer() -> None:
        await deferred.wait()
        (asked,) = stream.pending.values()
        asked.approve()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        if way == "until_done":
            await stream.until_done()
        else:
            async for _ in stream:
                pass
    assert did_run(source)


@every_face
@body
async def test_a_deferral_that_runs_out_is_not_answered(face: Face) -> None:
    """It was not declined, but it takes no answer any more."""
    source = Source(interpreter())
    told = face.told(on_confirmation=lambda _, asked: asked.defer(timeout=0.02))
    stream = face.stream(face.generator(source), told)
    await stream.until_done()
    assert not did_run(source)
    (asked,) = stream.confirmations
    assert (asked.status, asked.reason, stream.status) == ("unanswered", None, "requires_action")
    assert told.hooks.count("on_run_requires_action") == 1
    with pytest.raises(sk.UsageError):
        asked.approve()


@every_face
@pytest.mark.parametrize(
    ("first", "second", "yes"),
    [
        pytest.param(1, 15, True, id="longer"),
        pytest.param(1, None, True, id="without end"),
        pytest.param(None, 0.02, False, id="shorter"),
        pytest.param(10, 0, False, id="at once"),
    ],
)
@body
async def test_a_deferral_that_is_called_again_counts_anew(face: Face, first: Any, second: Any, yes: bool) -> None:
    """From another thread, while the stream waits."""
    source, deferred = Source(interpreter()), threading.Event()

    def defer(_: Any, asked: sk.Confirmation) -> None:
        asked.defer(first)
        deferred.set()

    stream = face.stream(face.generator(source), face.told(on_confirmation=defer))

    def again() -> None:
        assert deferred.wait(5)
        time.sleep(0.02)  # the stream waits
        (asked,) = stream.pending.values()
        asked.defer(second)
        if yes:
            time.sleep(1.2)  # longer than the first deferral
            asked.approve()

    async with face.beside(again):
        await stream.until_done()
    assert did_run(source) is yes


@every_face
@body
async def test_a_calls_deferral_that_is_called_again_counts_anew(face: Face) -> None:
    """As a confirmation's."""
    deferred = threading.Event()

    def defer(_: Any, call: Any) -> None:
        call.defer(timeout=1)
        deferred.set()

    stream = face.stream(calls("one"), face.told(on_tool_call_done=defer), then=go_on(chat("Dry.")))

    def again() -> None:
        assert deferred.wait(5)
        time.sleep(0.02)
        (call,) = stream.pending.values()
        call.defer(timeout=15)
        time.sleep(1.2)
        call.respond("ok")

    async with face.beside(again):
        assert await stream.get_final_text() == "Dry."


@every_face
@pytest.mark.parametrize("way", ["until_done", "iterate"])
@body
async def test_cancelling_while_an_answer_is_awaited_declines(face: Face, way: str) -> None:
    """From another thread; nothing is raised."""
    source, deferred = Source(interpreter()), threading.Event()

    def defer(told: Any, asked: sk.Confirmation) -> None:
        asked.defer()
        deferred.set()

    told = face.told(on_confirmation=defer)
    stream = face.stream(face.generator(source), told)

    def stop() -> None:
        assert deferred.wait(5)
        stream.cancel()

    async with face.beside(stop):
        if way == "until_done":
            await stream.until_done()
        else:
            async for _ in stream:
                pass
    assert not did_run(source)
    assert source.closed
    told.check_brackets()
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["declined"]
    (asked,) = stream.confirmations
    with pytest.raises(sk.UsageError):
        asked.approve()


@every_face
@body
async def test_closing_at_a_confirmation_declines(face: Face) -> None:
    """A loop may stop there."""
    source = Source(interpreter())
    async with face.stream(face.generator(source)) as stream:
        async for event in stream:
            if event.type == "confirmation_created":
                event.confirmation.defer()
                break
    assert not did_run(source)
    assert source.closed
    assert [asked.status for asked in stream.confirmations] == ["declined"]


@every_face
@body
async def test_a_loop_may_answer(face: Face) -> None:
    """The event's confirmation is the same object."""
    source = Source(interpreter())
    async for event in face.stream(face.generator(source)):
        if event.type == "confirmation_created":
            event.confirmation.approve()
    assert did_run(source)


@every_face
@body
async def test_a_passive_source_cannot_be_answered(face: Face) -> None:
    """A list is what has happened already: approving it is the caller's error; not answering is none."""
    stream = face.stream(interpreter(), face.told(on_confirmation=lambda _, asked: asked.approve()))
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.UsageError)
    assert "passive" in str(error)
    told = face.told()
    stream = face.stream(interpreter(), told)
    assert len(await stream.get_final_messages()) == 3
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["approved"]
    assert not told.of("on_confirmation")[0].waiting


@every_face
@body
async def test_a_producer_behind_any_iterator_is_gated(face: Face) -> None:
    """What is not all there already may run when it is pulled."""
    source = Source(interpreter())
    await face.stream(map(dict, source.generate())).until_done()
    assert not did_run(source)


@every_face
@body
async def test_an_edit_that_the_producer_cannot_take_is_refused(face: Face) -> None:
    """It is no approval of the original either."""
    source = Source(interpreter())
    stream = face.stream(face.generator(source), face.told(on_confirmation=lambda _, asked: asked.approve("34/25")))
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.UsageError)
    assert not did_run(source)


@every_face
@pytest.mark.parametrize("content", ["python", {"type": "code"}, 7, []])
@body
async def test_a_malformed_confirmation_is_never_an_approval(face: Face, content: Any) -> None:
    """Nothing runs, and it takes no answer."""
    source, told = Source(interpreter(confirmation=content)), face.told()
    stream = face.stream(face.generator(source), told)
    await stream.until_done()
    assert not did_run(source)
    assert source.closed
    assert all(asked.status == "unanswered" for asked in stream.confirmations)
    told.check_brackets()


@every_face
@body
async def test_a_stream_over_another_stream_answers_it(face: Face) -> None:
    """It is the inner one that waits."""
    source = Source(interpreter())
    inner = face.stream(face.generator(source))
    inner = getattr(inner, "manager", inner)
    told = face.told(on_confirmation=lambda _, asked: asked.approve())
    messages = await face.stream(inner, told).get_final_messages()
    assert did_run(source)
    assert [m.type for m in messages] == ["code", "console", "message"]
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["approved"]


CALL = calls("one", finish="tool_calls")
OTHERS: dict[str, list[Any]] = {
    "an odd chat chunk": [{"choices": []}],
    "a chat chunk": chat("Hi", finish=None)[:1],
    "a text": chat("Hi", finish=None),
    "a whole chat answer": chat("Hi"),
    "a tool call": CALL,
    "a response": [{"type": "response.created", "response": {"id": "resp_1", "object": "response"}}],
    "a canonical event": [{"type": "run_created", "run": {"id": "run-1"}}],
}


@every_pair
@every_face
@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("wire", ["objects", "ndjson", "sse"])
@pytest.mark.parametrize("yes", [True, False])
@body
async def test_a_producer_is_not_pulled_past_a_question_behind_another_protocols_items(
    face: Face, name: str, wire: str, yes: bool
) -> None:
    """What comes first does not decide what may run: each item is read as what it is."""
    first = OTHERS[name]
    source = Source(encoded([*first, *interpreter()], wire))
    told = face.told(on_confirmation=lambda _, asked: asked.approve() if yes else None)
    stream = face.stream(face.generator(source), told)
    await stream.until_done()
    assert (source.went > len(first) + ASKED) is yes
    told.check_brackets()
    (outcome,) = told.of("on_confirmation_done")
    assert outcome.status == ("approved" if yes else "unanswered")
    types = [m.type for m in stream.messages if m.type in ("code", "console")]
    assert types == (["code", "console"] if yes else ["code"])
    assert outcome.subject.content == "34/24"
    warned = [w for w in stream.warnings if w.code == "other-protocol"]
    assert len(warned) == (name != "an odd chat chunk")


@every_face
@body
async def test_a_stream_whose_protocol_was_given_is_gated_too(face: Face) -> None:
    """By a caller who was mistaken."""
    source = Source(interpreter())
    stream = face.stream(face.generator(source), protocol="openai_chat")
    await stream.until_done()
    assert not did_run(source)


@every_face
@body
async def test_a_strict_stream_fails_at_another_protocols_item(face: Face) -> None:
    """It is closed there."""
    source = Source([*chat("Hi"), *interpreter()])
    error = await raised_by(face.stream(face.generator(source), strict=True).until_done())
    assert isinstance(error, sk.ProtocolError)
    assert "other-protocol" in str(error)
    assert source.closed
    assert source.went == len(chat("Hi")) + 1


def encoded(items: list[Any], wire: str) -> list[Any]:
    """Items as an iterable yields them."""
    match wire:
        case "ndjson":
            return [json.dumps(item).encode() + b"\n" for item in items]
        case "sse":
            return [b"data: " + json.dumps(item).encode() + b"\n\n" for item in items]
        case _:
            return items


WITHOUT_END = {
    "ndjson": ("{}", "\n"),
    "ndjson, CRLF": ("{}", "\r\n"),
    "ndjson with a space": ("{} ", "\n"),
    "sse": ("data: {}", "\n\n"),
    "sse with half its end": ("data: {}\n", "\n"),
    "sse, CRLF": ("data: {}\r\n", "\r\n"),
    "sse with a name": ("event: chunk\ndata: {}", "\n\n"),
    "ndjson lines": ("{}", None),
    "sse lines": ("data: {}", None),
}


@every_pair
@every_face
@pytest.mark.parametrize("name", WITHOUT_END)
@pytest.mark.parametrize("halves", [True, False])
@pytest.mark.parametrize("kind", [str, bytes])
@pytest.mark.parametrize("yes", [True, False])
@body
async def test_a_producer_is_not_pulled_for_the_end_of_a_questions_line(
    face: Face, name: str, halves: bool, kind: type, yes: bool
) -> None:
    """A whole question is asked although its newline would come with the next piece; so is one that comes in two."""
    shape, end = WITHOUT_END[name]
    ran: list[str] = []

    def pieces() -> Iterator[str]:
        before = ""
        for place, item in enumerate(interpreter()):
            text = shape.format(json.dumps(item))
            if place == ASKED:
                ran.append("the code")
            if end is None:
                yield text
                if shape.startswith("data"):
                    yield ""
                continue
            if halves:
                yield before + text[: len(text) // 2]
                yield text[len(text) // 2 :]
            else:
                yield before + text
            before = end
        if end is not None:
            yield end

    async def later() -> AsyncIterator[Any]:
        for piece in pieces():
            yield piece if kind is str else piece.encode()

    source = later() if face.is_async else (piece if kind is str else piece.encode() for piece in pieces())
    told = face.told(on_confirmation=lambda _, asked: asked.approve() if yes else None)
    stream = face.stream(source, told)
    messages = await stream.get_final_messages()
    assert ran == (["the code"] if yes else [])
    assert [(m.type, m.content) for m in messages] == (
        [("code", "34/24"), ("console", "1.41"), ("message", "About 1.4.")] if yes else [("code", "34/24")]
    )
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["approved" if yes else "unanswered"]
    assert not stream.warnings


def over(inner: Any, way: str) -> Any:
    """A source that is another stream."""
    inner = getattr(inner, "manager", inner)
    return inner if way == "the stream" else inner.chunks(way)


WAYS = ["the stream", "open_interpreter", "streamkit"]


@every_pair
@every_face
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", ["approve", "decline", "nothing", "approve later", "decline later", "too late"])
@body
async def test_an_answer_to_another_streams_question_reaches_it(face: Face, way: str, how: str) -> None:
    """Whether it is read as a stream or as chunks; both tell the same outcome, which is what happens."""
    source, asked = Source(interpreter()), threading.Event()

    def answer(_: Any, confirmation: sk.Confirmation) -> None:
        match how:
            case "approve":
                confirmation.approve()
            case "decline":
                confirmation.decline("too risky")
            case "nothing":
                pass
            case _:
                confirmation.defer(0.02 if how == "too late" else None)
        asked.set()

    inner_told, told = face.told(), face.told(on_confirmation=answer)
    inner = face.stream(face.generator(source), inner_told)
    stream = face.stream(over(inner, way), told)

    def later() -> None:
        assert asked.wait(5)
        if how.endswith("later"):
            time.sleep(0.02)
            (waiting,) = stream.pending.values()
            waiting.approve() if how == "approve later" else waiting.decline("too risky")

    async with face.beside(later):
        messages = await stream.get_final_messages()
    yes = how.startswith("approve")
    assert did_run(source) is yes
    assert source.closed
    assert [m.type for m in messages] == (["code", "console", "message"] if yes else ["code"])
    status = "approved" if yes else "declined" if how.startswith("decline") else "unanswered"
    for one in (inner_told, told):
        one.check_brackets()
        (outcome,) = one.of("on_confirmation_done")
        assert (outcome.status, outcome.reason) == (status, "too risky" if status == "declined" else None)
        assert one.hooks.count("on_run_requires_action") == (status == "unanswered")
    if yes:
        assert told.hooks.index("on_confirmation_done") < told.hooks.index("on_console_created")
    assert stream.status == inner.status == ("requires_action" if status == "unanswered" else "completed")
    assert (await stream.get_final_run()).finish_reason == ("declined" if status == "declined" else None)


@every_face
@pytest.mark.parametrize("way", WAYS)
@body
async def test_another_stream_that_takes_no_answer_takes_none_from_outside(face: Face, way: str) -> None:
    """What is passive has happened already; its outcome is told."""
    stream = face.stream(
        over(face.stream(interpreter()), way), face.told(on_confirmation=lambda _, asked: asked.approve())
    )
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.UsageError)
    assert "passive" in str(error)
    told = face.told()
    stream = face.stream(over(face.stream(interpreter()), way), told)
    assert len(await stream.get_final_messages()) == 3
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["approved"]


@every_face
@pytest.mark.parametrize("way", WAYS)
@body
async def test_the_inner_streams_own_handler_may_answer(face: Face, way: str) -> None:
    """Then the outer one is too late, and is told the outcome."""
    source, seen = Source(interpreter()), []
    inner = face.stream(face.generator(source), face.told(on_confirmation=lambda _, asked: asked.approve()))

    def too_late(_: Any, asked: sk.Confirmation) -> None:
        with pytest.raises(sk.UsageError, match="answered already"):
            asked.decline()
        seen.append(asked)

    told = face.told(on_confirmation=too_late)
    await face.stream(over(inner, way), told).until_done()
    assert did_run(source)
    assert len(seen) == 1
    assert [asked.status for asked in told.of("on_confirmation_done")] == ["approved"]


@every_face
@pytest.mark.parametrize("protocol", ["open_interpreter", "streamkit", "openai_chat"])
@body
async def test_a_stream_over_chunks_closes_and_cancels_the_other(face: Face, protocol: str) -> None:
    """As over a stream."""
    for end in ("close", "cancel"):
        source, inner_told = Source(chat("Hel", "lo")), face.told()
        inner = face.stream(face.generator(source), inner_told)
        async with face.stream(over(inner, protocol)) as stream:
            async for _ in stream.text_deltas:
                if end == "close":
                    break
                stream.cancel()
        assert source.closed
        assert inner.ended
        inner_told.check_brackets()
    source = Source(chat("Hel", "lo"))
    inner = face.stream(face.generator(source), face.told(on_text_delta=lambda told, *_: told.stream.cancel()))
    stream = face.stream(over(inner, protocol))
    await stream.until_done()
    assert stream.status == "cancelled"


@async_faces
@body
async def test_an_async_stream_over_a_sync_streams_chunks_answers_it(face: Face) -> None:
    """Which waits in a worker thread meanwhile."""
    source, deferred = Source(interpreter()), anyio.Event()

    def defer(_: Any, asked: sk.Confirmation) -> None:
        asked.defer()
        deferred.set()

    inner = sk.stream(source.generate())
    stream = face.stream(inner.chunks("open_interpreter"), AsyncTold(on_confirmation=defer))

    async def answer() -> None:
        await deferred.wait()
        await anyio.sleep(0.02)
        (asked,) = stream.pending.values()
        asked.approve()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        await stream.until_done()
    assert did_run(source)
    assert [c.status for c in stream.confirmations] == [c.status for c in inner.confirmations] == ["approved"]


@every_face
@body
async def test_a_loop_over_chunks_that_goes_past_a_question_does_not_approve(face: Face) -> None:
    """Only a yes to the stream's own confirmation does."""
    for yes in (False, True):
        source = Source(interpreter())
        stream = face.stream(face.generator(source))
        async for chunk in stream.chunks("open_interpreter"):
            if chunk["type"] == "confirmation" and yes:
                (asked,) = stream.pending.values()
                asked.approve()
        assert did_run(source) is yes


# -- tool calls


def go_on(*sources: Any) -> Any:
    """A `then` that gives these sources, and then None."""
    left = list(sources)
    return lambda stream: left.pop(0) if left else None


@every_face
@body
async def test_a_tool_call_that_is_answered_goes_on_with_the_next_source(face: Face) -> None:
    """One run, two steps, one end; the output is a message of the stream."""
    told = face.told(on_tool_call_done=lambda _, call: call.respond({"rain": call.arguments["n"]}))
    stream = face.stream(calls("weather"), told, then=go_on(chat("Dry.")))
    assert await stream.get_final_text() == "Dry."
    told.check_brackets()
    assert told.hooks.count("on_run_created") == 1
    assert len(told.of("on_run_step_done")) == 2
    assert "on_run_requires_action" not in told.hooks
    call, output, text = stream.messages
    assert (call.type, output.type, text.type) == ("tool_call", "tool_output", "message")
    assert (output.call_id, output.content, output.name) == ("call_0", '{"rain":0}', "weather")
    assert call.step_id == output.step_id != text.step_id
    assert stream.status == "completed"
    assert not stream.pending


@every_face
@pytest.mark.parametrize("protocol", ["openai_chat", "openai_responses"])
@body
async def test_two_rounds_with_the_real_client(face: Face, protocol: str) -> None:
    """`to_input` gives the next request what was said, called and put out."""
    script = [Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"})), Reply("It rains.")]
    with ModelServer(script) as server:
        async with face.client(server) as client:

            def request(stream: Any = None) -> Any:
                said = sk.to_input(stream.messages if stream else [], protocol)
                asked = [{"role": "user", "content": "Weather?"}, *said]
                if protocol == "openai_chat":
                    return client.chat.completions.create(model="m", messages=asked, stream=True)
                return client.responses.create(model="m", input=asked, stream=True)

            told = face.told(on_tool_call_done=lambda _, call: call.respond(f"rain in {call.arguments['city']}"))
            stream = face.stream(request, told, then=request)
            assert await stream.get_final_text() == "It rains."
            told.check_brackets()
            assert len(await stream.get_final_run_steps()) == 2
            assert told.hooks.count("on_run_created") == told.hooks.count("on_end") == 1
            assert [m.content for m in stream.messages if m.type == "tool_output"] == ["rain in Oslo", "rain in Rome"]
            again = server.requests[1].body["messages" if protocol == "openai_chat" else "input"]
            outputs = [m.get("content", m.get("output")) for m in again if "call_id" in m or "tool_call_id" in m]
            assert "rain in Oslo" in outputs
            assert "rain in Rome" in outputs
            assert len(server.requests) == 2


@every_face
@body
async def test_unanswered_calls_end_the_stream_as_requires_action(face: Face) -> None:
    """`then` is not asked; nothing is raised; the handlers are told."""
    asked: list[int] = []
    told = face.told()
    stream = face.stream(calls("one", "two"), told, then=lambda stream: asked.append(1))
    await stream.until_done()
    assert asked == []
    assert stream.status == "requires_action"
    assert (await stream.get_final_run()).status == "requires_action"
    assert told.hooks.count("on_run_requires_action") == 1
    assert set(stream.pending) == {"call_0", "call_1"}
    told.check_brackets()
    with pytest.raises(sk.UsageError):
        stream.pending["call_0"].respond("late")


@every_face
@body
async def test_a_call_is_answered_where_the_run_requires_action(face: Face) -> None:
    """The last moment for it."""

    def respond(told: Any, run: sk.Run) -> None:
        for call in told.stream.pending.values():
            call.respond("done")

    told = face.told(on_run_requires_action=respond)
    stream = face.stream(calls("one", "two"), told, then=go_on(chat("Well.")))
    assert await stream.get_final_text() == "Well."
    assert stream.status == "completed"
    assert told.hooks.count("on_tool_output_done") == 2


@every_face
@pytest.mark.parametrize("answered", [0, 1])
@body
async def test_all_calls_must_be_answered_to_go_on(face: Face, answered: int) -> None:
    """One of two is not enough."""

    def some(_: Any, call: Any) -> None:
        if call.arguments["n"] == answered:
            call.respond("done")

    asked: list[int] = []
    stream = face.stream(calls("one", "two"), face.told(on_tool_call_done=some), then=lambda stream: asked.append(1))
    await stream.until_done()
    assert stream.status == "requires_action"
    assert asked == []
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["done"]


@every_pair
@every_face
@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
@pytest.mark.parametrize("answered", [0, 1, 2])
@body
async def test_a_run_that_ends_for_want_of_an_output_says_so(face: Face, answered: int, strict: bool) -> None:
    """`on_warning` names the calls without one. The fault is the application's, so a strict stream ends as well."""

    def some(_: Any, call: Any) -> None:
        if call.arguments["n"] < answered:
            call.respond("done")

    told = face.told(on_tool_call_done=some)
    stream = face.stream(calls("one", "two"), told, then=lambda stream: None, strict=strict)
    await stream.until_done()
    assert [warning.code for warning in told.of("on_warning")] == ["missing-outputs"] * (answered < 2)
    assert [warning.code for warning in stream.warnings] == ["missing-outputs"] * (answered < 2)
    if answered == 0:
        assert "call_0 (one), call_1 (two) got none" in stream.warnings[0].fault
    if answered == 1:
        assert "call_1 (two) got none; the outputs so far are in `messages`" in stream.warnings[0].fault
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["done"] * answered


@every_face
@pytest.mark.parametrize("reason", ["length", "tool_calls"])
@body
async def test_a_run_that_ends_for_another_reason_does_not(face: Face, reason: str) -> None:
    """An answer that was cut short goes on with nothing; and without `then=` no output was to come."""
    stream = face.stream(calls("one", finish=reason), then=None if reason == "tool_calls" else lambda stream: None)
    await stream.until_done()
    assert not stream.warnings


@every_face
@body
async def test_the_outputs_for_the_next_request_are_those_of_the_newest_step(face: Face) -> None:
    """All of them, in order, and none of the steps before. Before any run and in a step without calls there are none."""
    outputs: list[list[str]] = []

    def then(stream: sk.StreamState) -> Any:
        outputs.append([output.content for output in stream.tool_outputs])
        return calls("three") if len(outputs) == 1 else chat("Well.")

    def answer(_: Any, call: Any) -> None:
        call.respond(f"{call.name} in {len(outputs)}")

    stream = face.stream(calls("one", "two"), face.told(on_tool_call_done=answer), then=then)
    assert stream.tool_outputs == ()
    await stream.until_done()
    assert outputs == [["one in 0", "two in 0"], ["three in 1"]]
    assert stream.tool_outputs == ()


@every_face
@body
async def test_then_may_give_nothing(face: Face) -> None:
    """The stream ends as completed: all was answered."""
    stream = face.stream(
        calls("one"), face.told(on_tool_call_done=lambda _, call: call.respond("ok")), then=lambda _: None
    )
    await stream.until_done()
    assert stream.status == "completed"


APPROVAL: list[Any] = [
    {"type": "start", "messageId": "m"},
    {"type": "tool-input-available", "toolCallId": "c1", "toolName": "pay", "input": {"sum": 5}},
    {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"},
    {"type": "finish"},
]


@every_face
@pytest.mark.parametrize("decide", [sk.Confirmation.approve, sk.Confirmation.decline], ids=["approved", "declined"])
@body
async def test_a_call_whose_approval_the_next_request_brings_wants_no_output(face: Face, decide: Any) -> None:
    """The source runs it, so `then` is called."""
    told = face.told(on_confirmation=lambda _, confirmation: decide(confirmation))
    stream = face.stream(APPROVAL, told, then=go_on(chat("Paid.")))
    assert await stream.get_final_text() == "Paid."
    assert (stream.status, stream.warnings) == ("completed", ())


MALFORMED: dict[str, tuple[str, str, bool]] = {
    "an object": ("tool_calls", '{"n": 1}', False),
    "nothing": ("tool_calls", "", False),
    "cut": ("tool_calls", '{"n": 1', True),
    "cut by the limit": ("length", '{"n": 1', True),
    "a list": ("tool_calls", "[1]", True),
    "too deep": ("tool_calls", '{"n":' + "[" * 100_000 + "]" * 100_000 + "}", True),
}


@every_face
@pytest.mark.parametrize(("finish", "arguments", "malformed"), MALFORMED.values(), ids=MALFORMED)
@body
async def test_a_call_says_that_its_arguments_cannot_be_read(
    face: Face, finish: str, arguments: str, malformed: bool
) -> None:
    """A tool whose parameters have defaults would run with those."""
    items = calls("weather", finish=finish)
    items[1]["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"] = arguments
    seen: list[tuple[bool, bool]] = []
    told = face.told(
        on_tool_call_created=lambda _, call: seen.append((call.malformed, malformed)),
        on_tool_call_done=lambda _, call: seen.append((call.malformed, malformed)),
    )
    await face.stream(items, told).until_done()
    assert seen == [(False, malformed), (malformed, malformed)]


def test_the_text_of_a_custom_tool_is_never_malformed() -> None:
    call = sk.ToolCallMessage("c", content="any text", status="completed", metadata={"custom": True})
    assert not call.malformed


@every_face
@pytest.mark.parametrize("limit", [1, 3, None])
@body
async def test_a_model_that_never_stops_calling_is_stopped(face: Face, limit: int | None) -> None:
    """`max_steps=` bounds the sources of a run; it ends as one that is incomplete."""
    requests: list[int] = []

    def then(stream: Any) -> Any:
        requests.append(stream.source_number)
        return calls("again")

    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    options = {} if limit is None else {"max_steps": limit}
    stream = face.stream(calls("first"), told, then=then, **options)
    run = await stream.get_final_run()
    assert (run.status, run.finish_reason, stream.status) == ("incomplete", "max_steps", "incomplete")
    assert len(await stream.get_final_run_steps()) == (limit or 100)
    assert len(requests) == (limit or 100) - 1
    told.check_brackets()


@pytest.mark.parametrize("limit", [0, -1, True, "3", None, 2.0])
def test_max_steps_is_a_number_from_1_on(limit: Any) -> None:
    with pytest.raises(sk.UsageError, match="`max_steps` is a whole number from 1 on"):
        sk.stream(chat("Hello"), max_steps=limit)


@async_faces
@body
async def test_then_may_be_async(face: Face) -> None:
    """A coroutine function that gives a source."""

    async def then(stream: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        return chat("Well.")

    told = AsyncTold(on_tool_call_done=lambda _, call: call.respond("ok"))
    assert await face.stream(calls("one"), told, then=then).get_final_text() == "Well."


@every_face
@body
async def test_a_request_that_fails_in_then_is_told_as_a_request_that_fails(face: Face) -> None:
    """Law 9: as for the first source, a `SourceError` with the client's own as its cause."""

    def then(stream: Any) -> Any:
        raise RuntimeError("then")

    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    stream = face.stream(calls("one"), told, then=then)
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.SourceError)
    assert isinstance(error.__cause__, RuntimeError)
    assert [message.type for message in error.messages] == ["tool_call", "tool_output"]
    told.check_brackets()
    assert told.of("on_exception") == [error]


@every_face
@body
async def test_without_then_a_call_takes_no_answer(face: Face) -> None:
    """`waiting` says so; `respond` raises, and names the reason."""
    seen: list[bool] = []

    def respond(_: Any, call: Any) -> None:
        seen.append(call.waiting)
        with pytest.raises(sk.UsageError, match="then="):
            call.respond("x")

    stream = face.stream(calls("one"), face.told(on_tool_call_done=respond))
    await stream.until_done()
    assert seen == [False]
    assert stream.status == "requires_action"


@every_face
@body
async def test_a_call_is_answered_once(face: Face) -> None:
    """The second answer raises."""

    def twice(_: Any, call: Any) -> None:
        assert call.waiting
        call.respond("first")
        assert not call.waiting
        with pytest.raises(sk.UsageError, match="answered already"):
            call.respond("second")

    stream = face.stream(calls("one"), face.told(on_tool_call_done=twice), then=go_on(chat("ok")))
    await stream.until_done()
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["first"]


@every_face
@pytest.mark.parametrize("way", ["until_done", "iterate"])
@body
async def test_a_deferred_call_is_answered_from_another_thread(face: Face, way: str) -> None:
    """By its call id; the stream waits for it."""
    deferred = threading.Event()

    def defer(_: Any, call: Any) -> None:
        call.defer(timeout=15)

    told = face.told(on_tool_call_done=defer, on_run_requires_action=lambda *_: deferred.set())
    stream = face.stream(calls("one"), told, then=go_on(chat("Well.")))

    def answer() -> None:
        assert deferred.wait(5)
        stream.pending["call_0"].respond(["from", "afar"])

    async with face.beside(answer):
        if way == "iterate":
            async for _ in stream:
                pass
        assert await stream.get_final_text() == "Well."
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ['["from","afar"]']


@every_face
@body
async def test_a_deferred_call_that_nobody_answers_in_time_is_left_open(face: Face) -> None:
    """The run requires action."""
    told = face.told(on_tool_call_done=lambda _, call: call.defer(timeout=0.02))
    stream = face.stream(calls("one"), told, then=go_on(chat("never")))
    await stream.until_done()
    assert stream.status == "requires_action"
    assert "on_run_requires_action" in told.hooks


@sync_face
@body
async def test_a_sync_stream_refuses_an_awaitable_as_an_answer(face: Face) -> None:
    """It names the call, and the way out."""

    async def output() -> str:
        return "x"

    stream = face.stream(calls("one"), face.told(on_tool_call_done=lambda _, c: c.respond(output())), then=go_on())
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.UsageError)
    assert "astream" in str(error)


@async_faces
@pytest.mark.parametrize("way", ["until_done", "with"])
@body
async def test_an_awaitable_runs_beside_the_stream(face: Face, way: str) -> None:
    """The source gives its end only when the work has begun, and the work ends only after the source's end."""
    began, over = anyio.Event(), anyio.Event()

    async def work() -> str:
        began.set()
        await over.wait()
        return "worked"

    async def items() -> AsyncIterator[Any]:
        *first, last = calls("one", "two")
        for item in first:
            yield item
        yield {**last, "choices": [{**last["choices"][0], "finish_reason": "tool_calls"}]}
        await began.wait()
        over.set()

    def respond(_: Any, call: Any) -> None:
        call.respond(work() if call.name == "one" else "at once")

    stream = face.stream(items(), AsyncTold(on_tool_call_done=respond), then=go_on(chat("Well.")))
    if way == "with":
        async with stream:
            async for _ in stream:
                pass
    assert await stream.get_final_text() == "Well."
    assert sorted(m.content for m in stream.messages if m.type == "tool_output") == ["at once", "worked"]


@async_faces
@pytest.mark.parametrize("other", ["asyncio", "trio"])
@body
async def test_an_awaitable_from_a_thread_of_any_event_loop_runs_in_the_streams(face: Face, other: str) -> None:
    """In the context of the task that reads the stream, too."""
    variable: ContextVar[str] = ContextVar("variable", default="none")
    loops: list[object] = []

    async def work() -> str:
        await anyio.lowlevel.checkpoint()
        loops.append(anyio.lowlevel.current_token())
        return variable.get()

    async def respond(stream: Any) -> None:
        stream.pending["call_0"].respond(work())

    deferred = anyio.Event()

    def defer(_: Any, call: Any) -> None:
        call.defer(timeout=20)
        deferred.set()

    variable.set("the stream's")
    stream = face.stream(calls("one"), AsyncTold(on_tool_call_done=defer), then=go_on(chat("Well.")))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream.until_done)
        await deferred.wait()
        await anyio.to_thread.run_sync(partial(anyio.run, respond, stream, backend=other))
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["the stream's"]
    assert loops == [anyio.lowlevel.current_token()]


@async_faces
@pytest.mark.parametrize("way", ["until_done", "with", "iterate"])
@body
async def test_awaitables_run_beside_each_other(face: Face, way: str) -> None:
    """Each waits for the other."""
    events = {"one": anyio.Event(), "two": anyio.Event()}

    async def work(name: str, other: str) -> str:
        events[name].set()
        await events[other].wait()
        return name

    def respond(_: Any, call: Any) -> None:
        call.respond(work(call.name, "two" if call.name == "one" else "one"))

    stream = face.stream(calls("one", "two"), AsyncTold(on_tool_call_done=respond), then=go_on(chat("Well.")))
    if way == "with":
        async with stream:
            async for _ in stream:
                pass
    elif way == "iterate":
        async for _ in stream:
            pass
    assert await stream.get_final_text() == "Well."
    outputs = {m.call_id: m.content for m in stream.messages if m.type == "tool_output"}
    assert outputs == {"call_0": "one", "call_1": "two"}


@async_faces
@pytest.mark.parametrize("way", ["until_done", "with", "iterate"])
@body
async def test_an_awaitable_that_raises_ends_the_stream_with_its_error(face: Face, way: str) -> None:
    """The error itself, not a group."""

    async def work() -> str:
        await anyio.lowlevel.checkpoint()
        raise LookupError("no such city")

    told = AsyncTold(on_tool_call_done=lambda _, call: call.respond(work()))
    stream = face.stream(calls("one"), told, then=go_on(chat("never")))

    async def run() -> None:
        if way == "with":
            async with stream:
                async for _ in stream:
                    pass
        elif way == "iterate":
            async for _ in stream:
                pass
        else:
            await stream.until_done()

    error = await raised_by(run())
    assert type(error) is LookupError
    told.check_brackets()
    assert told.of("on_exception") == [error]
    assert await raised_by(stream.until_done()) is error


@async_faces
@pytest.mark.parametrize("way", ["until_done", "with", "iterate"])
@body
async def test_cancel_ends_a_wait_for_an_awaitable(face: Face, way: str) -> None:
    """The work is cancelled, and is over when the stream is."""
    over: list[str] = []

    async def work(told: Any) -> str:
        try:
            told.stream.cancel()
            await anyio.sleep_forever()
        finally:
            over.append("cancelled")
        return "never"

    told = AsyncTold()
    told.does["on_tool_call_done"] = lambda told, call: call.respond(work(told))
    stream = face.stream(calls("one"), told, then=go_on(chat("never")))
    if way == "with":
        async with stream:
            async for _ in stream:
                pass
    elif way == "iterate":
        async for _ in stream:
            pass
    await stream.until_done()
    assert over == ["cancelled"]
    assert stream.status == "cancelled"
    told.check_brackets()


@async_faces
@body
async def test_an_awaitable_of_a_stream_that_is_closed_first_never_runs(face: Face) -> None:
    """And nobody is warned of a coroutine that was never awaited."""
    ran: list[int] = []

    async def work() -> str:
        ran.append(1)
        return "x"

    stream = face.stream(calls("one"), AsyncTold(), then=go_on())
    async for event in stream:
        if event.type == "tool_call_done":
            event.snapshot.respond(work())
            break
    await stream.close()
    assert ran == []


@pytest.mark.parametrize("way", ["until_done", "iterate"])
def test_an_awaitable_that_somebody_else_cancels_ends_the_stream(way: str) -> None:
    """It is no cancellation of the stream's own task, and nobody waits for ever."""

    async def main() -> None:
        before = len(asyncio.all_tasks())
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        told = AsyncTold(on_tool_call_done=lambda _, call: call.respond(other))
        stream = sk.astream(calls("one"), told, then=go_on(chat("never")))
        with pytest.raises(sk.UsageError, match="the awaitable that answers it was cancelled"):
            if way == "until_done":
                await stream.until_done()
            async for _ in stream:
                pass
        told.check_brackets()
        assert len(asyncio.all_tasks()) == before

    asyncio.run(asyncio.wait_for(main(), 20))


@async_faces
@body
async def test_one_calls_deadline_does_not_end_anothers_work(face: Face) -> None:
    """The first is left open, the second is answered."""

    async def work() -> str:
        await anyio.sleep(0.1)
        return "worked"

    def respond(_: Any, call: Any) -> None:
        call.respond(work()) if call.name == "one" else call.defer(timeout=0.01)

    stream = face.stream(calls("one", "two"), AsyncTold(on_tool_call_done=respond), then=go_on(chat("never")))
    async for _ in stream:
        pass
    assert [m.content for m in stream.messages if m.type == "tool_output"] == ["worked"]
    assert stream.status == "requires_action"


@every_face
@body
async def test_a_failed_second_source_fails_the_run(face: Face) -> None:
    """Law 9 holds for every source of a run."""
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    stream = face.stream(calls("one"), told, then=go_on(face.generator(Source(chat("We", finish=None)))))
    error = await raised_by(stream.until_done())
    assert isinstance(error, sk.IncompleteStreamError)
    assert [m.content for m in stream.messages] == ['{"n": 0}', "ok", "We"]
    told.check_brackets()
    assert told.hooks.count("on_run_done") == 1


def test_edited_code_is_text() -> None:
    """Anything else is refused at once, and the question stays open."""
    subject = sk.CodeMessage("c", format="python", content="1")
    asked = sk.Confirmation("one", subject)
    asked.answer_slot = Answer("confirmation 'one'", lambda: None)
    asked.editable = True
    with pytest.raises(sk.UsageError, match="edited code is a str, not 5"):
        asked.approve(5)  # type: ignore[arg-type]
    asked.approve("2")


@pytest.mark.parametrize("ends", [True, False])
def test_an_answer_reaches_its_call_although_a_message_has_the_id_of_its_output(ends: bool) -> None:
    """A provider gave that id to another call's output, which may be open still. The stream waited for ever."""
    other = sk.ToolOutputMessage("c.output", call_id="other", content="1")
    first: list[sk.Event] = [
        sk.ToolOutputDone(other) if ends else sk.ToolOutputDelta("c.output", "1"),
        sk.ToolCallDone(sk.ToolCallMessage("c", name="f", call_id="c", content="{}")),
        sk.RunDone(sk.Run(status="completed")),
    ]

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            call.respond("2")

    stream = sk.stream([*first, sk.StreamEnd()], Answering(), then=lambda _: None)
    outputs = [message for message in stream.get_final_messages() if isinstance(message, sk.ToolOutputMessage)]
    assert [(output.id, output.content) for output in outputs] == [("c.output", "1"), ("c.output.2", "2")]
    assert outputs[1].call_id == "c"
    assert not stream.pending


def test_an_answer_that_comes_too_late_is_told_why() -> None:
    """Whether somebody answered before, or it was decided without."""
    answered, decided = Answer("a", lambda: None), Answer("b", lambda: None)
    answered.give((True, None))
    assert decided.decide((False, "not answered"))
    with pytest.raises(sk.UsageError, match="a has been answered already"):
        answered.give((False, None))
    with pytest.raises(sk.UsageError, match="b takes no answer any more: it was decided without one"):
        decided.give((True, None))


@async_faces
@pytest.mark.parametrize("as_bytes", [False, True])
@body
async def test_an_answer_that_comes_while_the_task_sleeps_is_delivered_after_the_next_batch(
    face: Face, as_bytes: bool
) -> None:
    """Not only at the source's end."""
    call = {"id": "t", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    called = [{"type": f"response.output_item.{end}", "output_index": 1, "item": call} for end in ("added", "done")]
    begin, *words = responses(*({"type": "response.output_text.delta", "delta": word} for word in "abcdefgh"))
    end = {"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed"}}
    course: list[str] = []
    told = face.told(
        on_text_delta=lambda _, delta, snapshot: course.append(delta.value),
        on_tool_output_done=lambda _, message: course.append(message.content),
    )
    wakes = anyio.Event()

    async def source() -> AsyncIterator[Any]:
        for item in (begin, *called, *words, end):
            if item.get("delta") == "d":
                await wakes.wait()
            yield msgspec.json.encode(item) + b"\n" if as_bytes else item

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(face.stream(source(), told, then=lambda _: None).until_done)
        await anyio.wait_all_tasks_blocked()
        told.of("on_tool_call_done")[0].respond("42")
        await anyio.wait_all_tasks_blocked()
        wakes.set()
    assert "".join(course) == "abcd42efgh"


@every_face
@body
async def test_our_answer_is_void_where_the_sources_own_output_follows_at_once(face: Face) -> None:
    """In the same batch: the call was settled before the stream took our answer."""
    call = sk.ToolCallMessage("call", name="f", call_id="call", content="{}")
    output = sk.ToolOutputMessage("output", name="f", call_id="call", content="theirs")
    events = [sk.ToolCallDone(call), sk.ToolOutputDone(output), sk.TextDelta("text", "Done."), sk.StreamEnd()]
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ours"))
    stream = face.stream(events, told, then=lambda _: None)
    await stream.until_done()
    assert [message.content for message in stream.messages] == ["{}", "theirs", "Done."]
    assert stream.status == "completed"


def test_an_answer_that_comes_before_the_streams_own_decision_counts() -> None:
    """The stream has decided to go on without one, in another thread, when it looks once more."""
    answer = Answer("question", lambda: None)
    answer.give("ours")
    assert not answer.decide("nobody's")
    assert (answer.value, answer.answered) == ("ours", True)


def test_a_deferral_that_began_anew_does_not_end_with_the_one_before() -> None:
    answer = Answer("question", lambda: None)
    answer.defer(1)
    answer.defer(1)
    answer.expire(1)
    assert (answer.open, answer.deferred) == (True, True)
    answer.expire(2)
    assert (answer.open, answer.deferred) == (False, False)
