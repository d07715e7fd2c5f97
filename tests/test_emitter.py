"""The push side: an agent that calls, from any thread or task, and any number of streams that read it."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from hypothesis import given

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay, Relay

from . import values as q
from .faces import LIMIT, Face, async_faces, body, both_shells, chat, every_face, interpreter, is_soon
from .telling import tell_items
from .test_laws import canonical, check_brackets, often
from .test_relay import every_relay, without_cursors

CANONICAL = protocols.find("streamkit").Decoder


def in_thread(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, name="agent", daemon=True)
    thread.start()
    return thread


def say(emitter: sk.Emitter, *pieces: str) -> None:
    with emitter:
        for piece in pieces:
            emitter.text(piece)


# -- one producer, one consumer


@every_relay
@every_face
@body
async def test_what_a_thread_says_is_read_as_a_stream(face: Face, relay_of: Callable[..., Relay]) -> None:
    """From the same engine as any other source."""
    emitter = sk.Emitter(relay_of())
    told = face.told()
    async with face.beside(lambda: say(emitter, "Hel", "lo")):
        stream = face.stream(emitter, told)
        assert await stream.get_final_text() == "Hello"
    told.check_brackets()
    assert [str(delta) for delta in told.of("on_text_delta")] == ["Hel", "lo"]
    assert stream.status == emitter.status == "completed"
    assert stream.current_run.id == emitter.run_id
    assert list(stream.messages) == list(emitter.messages)


@async_faces
@body
async def test_what_a_task_says_is_read_by_another(face: Face) -> None:
    """Of the same event loop; each piece as it is said."""
    emitter = sk.Emitter()
    seen: list[str] = []
    said = anyio.Event()

    async def agent() -> None:
        async with emitter:
            for piece in "abc":
                nonlocal said
                said = anyio.Event()
                emitter.text(piece)
                await said.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent)
        async for event in emitter:
            if isinstance(event, sk.TextDelta):
                seen.append(event.value)
                said.set()
    assert seen == ["a", "b", "c"]


@every_face
@body
async def test_the_same_thread_or_task_may_say_all_and_read_it_then(face: Face) -> None:
    """Nothing is waited for that cannot come."""
    emitter = sk.Emitter()
    say(emitter, *["x"] * 5000)
    assert await face.stream(emitter).get_final_text() == "x" * 5000


def test_iterating_an_emitter_gives_the_events_of_a_stream() -> None:
    """With snapshots; each iteration from the beginning."""
    emitter = sk.Emitter()
    say(emitter, "a", "b")
    for _ in range(2):
        events = list(emitter)
        assert [event.snapshot.content for event in events if isinstance(event, sk.TextDelta)][-1] == "ab"
        assert events[-1].type == "stream_end"


@both_shells
@body
async def test_the_first_token_comes_at_once(face: Face) -> None:
    """In far less than a tenth of a second, to a consumer that waits."""

    async def delay() -> float:
        emitter = sk.Emitter()
        said = late = 0.0
        go, arrived = threading.Event(), threading.Event()

        def agent() -> None:
            nonlocal said
            go.wait(5)
            time.sleep(0.05)  # the consumer has begun to wait
            with emitter:
                said = time.monotonic()
                emitter.text("first")
                assert arrived.wait(10)  # nothing comes after it

        async with face.beside(agent):
            go.set()
            async for _ in face.stream(emitter).text_deltas:
                late = time.monotonic() - said
                arrived.set()
        return late

    await is_soon(delay)


# -- what is said


def test_each_kind_of_message_has_its_call() -> None:
    """One goes on while the kind is the same, and ends where another begins."""
    emitter = sk.Emitter(model="m")
    with emitter:
        emitter.reasoning("hm")
        emitter.reasoning("so", format="summary")
        emitter.text("a")
        emitter.text("")
        emitter.text("b")
        emitter.end_message()
        emitter.text("c")
        emitter.code("x", "python")
        emitter.code(" = 1")
        emitter.code("ls", "shell")
        emitter.console("1", "stdout")
        emitter.console("!", "stderr")
        emitter.tool_call("f", {"n": 1}, call_id="call")
        emitter.tool_output({"ok": True})
    stream = sk.stream(emitter)
    stream.until_done()
    assert [(type(x).__name__, x.format, x.content, x.status) for x in stream.messages] == [
        ("ReasoningMessage", None, "hm", "completed"),
        ("ReasoningMessage", "summary", "so", "completed"),
        ("TextMessage", None, "ab", "completed"),
        ("TextMessage", None, "c", "completed"),
        ("CodeMessage", "python", "x = 1", "completed"),
        ("CodeMessage", "shell", "ls", "completed"),
        ("ConsoleMessage", "output", "1!", "completed"),
        ("ToolCallMessage", None, '{"n":1}', "completed"),
        ("ToolOutputMessage", None, '{"ok":true}', "completed"),
    ]
    call, output = stream.messages[-2:]
    assert (call.name, call.call_id, output.name, output.call_id) == ("f", "call", "f", "call")
    streams = [x.metadata for x in emitter.reader() if isinstance(x, sk.ConsoleDelta)]
    assert streams == [{"stream": "stdout"}, {"stream": "stderr"}]
    assert stream.current_run is not None
    assert stream.current_run.model == "m"
    assert stream.warnings == ()


def test_steps_are_marked() -> None:
    """Each with what was said in it."""
    emitter = sk.Emitter()
    with emitter:
        emitter.step("one")
        emitter.text("a")
        emitter.step()
        emitter.text("b")
        emitter.step_done()
        emitter.text("c")
    stream = sk.stream(emitter)
    assert [step.id for step in stream.get_final_run_steps()] == ["one", "step-2", "step-3"]
    assert [message.step_id for message in stream.messages] == ["one", "step-2", "step-3"]
    assert {step.status for step in stream.get_final_run_steps()} == {"completed"}


@pytest.mark.parametrize("value", [None, 1, b"x", ["a"]])
def test_what_is_no_text_is_refused(value: Any) -> None:
    """At once, and the run goes on."""
    emitter = sk.Emitter()
    with emitter:
        with pytest.raises(sk.UsageError):
            emitter.text(value)
        with pytest.raises(sk.UsageError):
            emitter.emit(value)
        emitter.text("fine")
    assert sk.stream(emitter).get_final_text() == "fine"


@pytest.mark.slow
@often
@given(q.drawn(canonical))
def test_law_6_what_is_emitted_is_read_as_the_emitter_completed_it(events: list[e.Event]) -> None:
    """Whatever is emitted: the log is a whole story, and its readers tell that one."""
    emitter = sk.Emitter(run_id="run")
    for event in events:
        emitter.emit(event)
    emitter.close()
    log = [codec.event_to_dict(event) for event in emitter.reader()]
    again = tell_items(CANONICAL, list(emitter.reader()))
    check_brackets(again.lines)
    assert without_cursors([*again.lines]) == [line for line in without_cursors(log) if line["type"] not in ("stream_end", "stream_exception")]  # fmt: skip
    stream = sk.stream(emitter)
    try:
        stream.until_done()
    except sk.RunFailedError:
        assert emitter.status == "failed"
    assert list(stream.messages) == list(emitter.messages)
    assert stream.status == emitter.status


def test_an_event_that_is_emitted_stays_the_callers() -> None:
    """It may be another stream's."""
    emitter = sk.Emitter()
    with emitter:
        for event in sk.stream(chat("Hel", "lo")):
            snapshot = getattr(event, "snapshot", None)
            emitter.emit(event)
            assert getattr(event, "snapshot", None) is snapshot
    assert sk.stream(emitter).get_final_text() == "Hello"


def test_raw_items_of_any_protocol_are_fed() -> None:
    """Dicts, objects, or bytes cut anywhere; `step` ends one answer."""
    emitter = sk.Emitter()
    with emitter:
        for chunk in chat("Hel", "lo"):
            emitter.feed(chunk)
        emitter.step()
        for item in interpreter():
            if item.get("type") != "confirmation":
                emitter.feed(item, "open_interpreter")
        emitter.text("mine")
    stream = sk.stream(emitter)
    stream.until_done()
    assert [message.content for message in stream.messages] == ["Hello", "34/24", "1.41", "About 1.4.", "mine"]
    assert len(stream.get_final_run_steps()) >= 2

    body = b'data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[]}}\n\n'
    body += b'data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    body += b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}\n\n'
    body += b'data: {"type":"content_block_stop","index":0}\n\ndata: {"type":"message_stop"}\n\n'
    emitter = sk.Emitter()
    with emitter:
        for place in range(0, len(body), 7):
            emitter.feed(body[place : place + 7])
    assert sk.stream(emitter).get_final_text() == "Hi"


def test_a_feed_that_was_cut_off_is_told_as_that() -> None:
    """To the readers; and to the producer where it goes on to another step."""
    emitter = sk.Emitter()
    with emitter:
        for chunk in chat("Hel", finish=None):
            emitter.feed(chunk)
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(emitter).until_done()
    emitter = sk.Emitter()
    for chunk in chat("Hel", finish=None):
        emitter.feed(chunk)
    with pytest.raises(sk.IncompleteStreamError):
        emitter.step()
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(emitter).until_done()


def test_a_strict_emitter_refuses_what_is_malformed() -> None:
    """The producer is told."""
    emitter = sk.Emitter(strict=True)
    emitter.emit(sk.TextDelta("m", "a"))
    emitter.emit(sk.TextDone(sk.TextMessage("m", content="a")))
    with pytest.raises(sk.ProtocolError):
        emitter.emit(sk.TextDelta("m", "b"))


def test_several_threads_say_at_once() -> None:
    """Nothing is lost, and the story is whole."""
    emitter = sk.Emitter()

    def work(which: int) -> None:
        for n in range(300):
            emitter.emit(sk.TextDelta(f"m{which}", f"{n} "))

    reader = sk.stream(emitter)
    with emitter:
        threads = [in_thread(lambda which=which: work(which)) for which in range(4)]  # type: ignore[misc]
        for thread in threads:
            thread.join()
    reader.until_done()
    assert reader.warnings == ()
    wanted = "".join(f"{n} " for n in range(300))
    assert sorted(message.id for message in reader.messages) == ["m0", "m1", "m2", "m3"]
    assert {message.content for message in reader.messages} == {wanted}


def test_messages_side_by_side_are_kept_apart() -> None:
    """Each has a handle of its own; what is emitted without one has its own message, too."""
    emitter = sk.Emitter()

    def work(part: Any, name: str) -> None:
        with part:
            for n in range(200):
                part.write(f"{name}{n} ")

    with emitter:
        parts = [
            emitter.begin_text(),
            emitter.begin_text(),
            emitter.begin_reasoning("summary"),
            emitter.begin_code("sh"),
        ]
        threads = [in_thread(lambda p=p, n=n: work(p, n)) for n, p in zip("abcd", parts, strict=True)]  # type: ignore[misc]
        for n in range(200):
            emitter.text(f"e{n} ")
        for thread in threads:
            thread.join()
    stream = sk.stream(emitter)
    stream.until_done()
    assert stream.warnings == ()
    wanted = ["".join(f"{name}{n} " for n in range(200)) for name in "abcde"]
    assert [message.content for message in stream.messages] == wanted
    assert [message.format for message in stream.messages] == [None, None, "summary", "sh", None]
    assert {message.status for message in stream.messages} == {"completed"}


def test_a_part_ends_once_and_with_its_run() -> None:
    """Nothing can be written after that; a step of another agent does not end it."""
    emitter = sk.Emitter()
    part, other = emitter.begin_console(), emitter.begin_text()
    part.write("out", stream="stdout")
    emitter.step()
    part.write("put")
    assert part.open
    part.end()
    part.end()
    with pytest.raises(sk.UsageError, match=r"has ended \(completed\)"):
        part.write("more")
    with pytest.raises(sk.UsageError, match="text is a str"):
        other.write(b"x")  # type: ignore[arg-type]
    other.write("half")
    emitter.fail("no")
    with pytest.raises(sk.UsageError, match="has ended"):
        other.write("more")
    other.end()
    stream = sk.stream(emitter)
    with pytest.raises(sk.SourceError):
        stream.until_done()
    assert [(m.content, m.status) for m in stream.messages] == [("output", "completed"), ("half", "failed")]


def test_lanes_keep_parallel_agents_apart() -> None:
    """Each with its messages, calls and questions in its own order; all of them carry its name."""
    emitter = sk.Emitter()
    barrier = threading.Barrier(2)
    results: dict[str, Any] = {}

    def agent(name: str) -> None:
        lane = emitter.lane(name)
        for n in range(100):
            lane.text(f"{name}{n} ")
            if n == 50:
                barrier.wait(10)
        lane.end_message()
        lane.code(f"run_{name}()", "python")
        approved = bool(lane.confirm())
        lane.console("ok" if approved else "no", "stdout")
        lane.tool_call("look", {"for": name}, provider_executed=True)
        barrier.wait(10)
        lane.tool_output(f"found {name}")
        results[name] = lane.tool_call("ask", {"who": name}).wait()
        lane.text("done")

    class Answering(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            confirmation.approve() if "run_a" in confirmation.subject.content else confirmation.decline()

        def on_tool_call_done(self, call: sk.ToolCallMessage, /) -> None:
            if call.waiting:
                call.respond(f"answer for {call.arguments['who']}")

    def main() -> None:
        with emitter:
            threads = [in_thread(lambda name=name: agent(name)) for name in "ab"]  # type: ignore[misc]
            for thread in threads:
                thread.join()

    agents = in_thread(main)
    stream = sk.stream(emitter, Answering())
    stream.until_done()
    agents.join()
    assert results == {"a": "answer for a", "b": "answer for b"}
    for name, ran in (("a", "ok"), ("b", "no")):
        mine = [m for m in stream.messages if m.metadata.get("lane") == name]
        assert [(m.type, m.content) for m in mine] == [
            ("message", "".join(f"{name}{n} " for n in range(100))),
            ("code", f"run_{name}()"),
            ("console", ran),
            ("tool_call", f'{{"for":"{name}"}}'),
            ("tool_output", f"found {name}"),
            ("tool_call", f'{{"who":"{name}"}}'),
            ("message", "done"),
        ]
        by_id = {m.call_id: m for m in mine if m.type == "tool_call"}
        assert next(m for m in mine if m.type == "tool_output").call_id in by_id
    assert stream.warnings == ()


def test_a_step_does_not_forget_messages_that_are_open() -> None:
    """Each is done in the end, however it was begun."""
    emitter = sk.Emitter()
    emitter.emit(e.TextCreated(sk.TextMessage("open")))
    emitter.step()
    emitter.emit(e.TextDelta("open", "more"))
    emitter.close()
    stream = sk.stream(emitter)
    stream.until_done()
    assert [(m.id, m.content, m.status) for m in stream.messages] == [("open", "more", "completed")]


# -- several consumers


@both_shells
@body
async def test_three_consumers_see_all_and_a_late_one_from_its_cursor(face: Face) -> None:
    """Each at its own pace."""
    emitter = sk.Emitter()
    pieces = [f"{n} " for n in range(500)]
    half, go_on = threading.Event(), threading.Event()

    def agent() -> None:
        with emitter:
            for place, piece in enumerate(pieces):
                if place == 250:
                    half.set()
                    go_on.wait(5)
                emitter.text(piece)

    texts: list[str] = []

    def consume() -> None:
        texts.append(sk.stream(emitter).get_final_text())

    threads = [in_thread(consume) for _ in range(2)]
    async with face.beside(agent):
        await face.in_thread(lambda: half.wait(5))
        cursor = emitter.cursor
        go_on.set()
        late = face.stream(emitter.reader(after=cursor))
        first = ""
        async for piece in late.text_deltas:
            first = first or piece
        texts.append(await face.stream(emitter).get_final_text())
    for thread in threads:
        await face.in_thread(thread.join)
    assert texts == ["".join(pieces)] * 3
    assert first.startswith("0 1 2 "), "what was open is told as one delta of all so far"
    assert late.messages[0].content == "".join(pieces)


@every_face
@body
async def test_a_consumer_that_leaves_stops_neither_the_producer_nor_the_others(face: Face) -> None:
    """By closing, by cancelling, by an error of its own."""
    emitter = sk.Emitter()
    emitter.text("a")

    class Failing(sk.EventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any, /) -> None:
            raise ValueError("mine")

    async with face.stream(emitter) as stream:
        async for _ in stream.text_deltas:
            break
    cancelled = face.stream(emitter)
    async for _ in cancelled.text_deltas:
        cancelled.cancel()
        break
    with pytest.raises(ValueError, match="mine"):
        await face.stream(emitter, Failing()).until_done()
    emitter.text("b")
    emitter.close()
    assert await face.stream(emitter).get_final_text() == "ab"


@every_face
@body
async def test_cancelling_a_consumer_that_waits_ends_it_at_once(face: Face) -> None:
    """From another thread."""
    emitter = sk.Emitter()
    emitter.text("a")
    stream = face.stream(emitter)

    def cancel() -> None:
        while not stream.messages:
            time.sleep(0.001)
        time.sleep(0.05)
        stream.cancel()

    began = time.monotonic()
    async with face.beside(cancel):
        await stream.until_done()
    assert stream.status == "cancelled"
    assert time.monotonic() - began < 5
    emitter.close()


# -- how it ends


@both_shells
@body
async def test_a_producer_that_raises_fails_its_consumers(face: Face) -> None:
    """With the text of what it raised; what it said is kept."""
    emitter = sk.Emitter()

    def agent() -> None:
        with pytest.raises(ValueError, match="no luck"), emitter:
            emitter.text("half")
            raise ValueError("no luck")

    told = face.told()
    stream = face.stream(emitter, told)
    async with face.beside(agent):
        with pytest.raises(sk.SourceError, match="ValueError: no luck") as caught:
            await stream.until_done()
    told.check_brackets()
    assert [message.content for message in caught.value.messages] == ["half"]
    assert "on_exception" in told.hooks
    assert "on_timeout" not in told.hooks
    assert stream.messages[0].status == "failed"
    assert emitter.status == "failed"
    assert isinstance(emitter.error, sk.SourceError)
    assert isinstance(emitter.error.__cause__, ValueError)


def test_a_producers_timeout_is_a_timeout() -> None:
    """Of its own upstream, for example; in a task group of its own, too."""
    emitter = sk.Emitter()
    with pytest.raises(ExceptionGroup), emitter:
        raise ExceptionGroup("tasks", [TimeoutError("model")])
    with pytest.raises(sk.SourceTimeoutError, match="model"):
        sk.stream(emitter).until_done()
    emitter = sk.Emitter()
    with pytest.raises(TimeoutError), emitter:
        raise TimeoutError("model")
    with pytest.raises(sk.SourceTimeoutError, match="model"):
        sk.stream(emitter).until_done()


def test_fail_and_cancel_end_it_with_a_word() -> None:
    """An error, a text, or no failure at all."""
    emitter = sk.Emitter()
    emitter.text("a")
    emitter.fail("out of luck")
    with pytest.raises(sk.SourceError, match="out of luck"):
        sk.stream(emitter).until_done()
    emitter = sk.Emitter()
    emitter.text("a")
    emitter.fail(sk.RunFailedError("no", "code"))
    with pytest.raises(sk.RunFailedError, match="no"):
        sk.stream(emitter).until_done()
    emitter = sk.Emitter()
    emitter.text("a")
    emitter.emit(e.StreamException("SourceTimeoutError", "slow"))
    with pytest.raises(sk.SourceTimeoutError, match="slow"):
        sk.stream(emitter).until_done()
    emitter = sk.Emitter()
    emitter.text("a")
    emitter.cancel()
    stream = sk.stream(emitter)
    stream.until_done()
    assert (stream.status, stream.messages[0].status) == ("cancelled", "cancelled")


@async_faces
@body
async def test_a_producer_that_is_cancelled_is_told_as_cancelled(face: Face) -> None:
    """Its consumers keep what it said."""
    emitter = sk.Emitter()

    async def agent() -> None:
        async with emitter:
            emitter.text("half")
            await anyio.sleep(60)

    stream = face.stream(emitter)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent)
        async for _ in stream.text_deltas:
            tasks.cancel_scope.cancel()
            break
    await stream.until_done()
    assert (stream.status, emitter.status) == ("cancelled", "cancelled")


def test_it_ends_exactly_once() -> None:
    """However many end it, at once; the first one's word holds."""
    emitter = sk.Emitter()
    emitter.text("a")
    ends = [emitter.close, emitter.cancel, lambda: emitter.fail("x"), emitter.close] * 4
    threads = [in_thread(end) for end in ends]
    for thread in threads:
        thread.join()
    log = [event.type for event in emitter.reader()]
    assert log.count("stream_end") == log.count("run_done") == log.count("text_done") == 1
    assert log[-1] == "stream_end"
    for call in (lambda: emitter.text("b"), emitter.step, lambda: emitter.feed({}), lambda: emitter.tool_output("x")):
        with pytest.raises(sk.UsageError, match="has ended"):
            call()
    emitter.close()


def test_an_emitter_that_said_nothing_has_a_run_all_the_same() -> None:
    """And an end."""
    emitter = sk.Emitter()
    with emitter:
        pass
    assert [event.type for event in sk.stream(emitter)] == [
        "run_created",
        "run_step_created",
        "run_step_done",
        "run_done",
        "stream_end",
    ]


# -- who is gone


@every_face
@body
async def test_a_producer_that_is_silent_is_told_as_a_timeout(face: Face) -> None:
    """Not as success."""
    emitter = sk.Emitter(timeout=0.2)
    emitter.text("a")
    told = face.told()
    stream = face.stream(emitter, told)
    with pytest.raises(sk.SourceTimeoutError, match="was silent"):
        await stream.until_done()
    told.check_brackets()
    assert told.hooks.count("on_timeout") == 1
    assert stream.messages[0].content == "a"
    emitter.close()


@every_face
@body
async def test_a_producer_whose_thread_ended_is_missed(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though nobody said for how long it may be silent."""
    monkeypatch.setattr("streamkit.relay.memory.run.GRACE", 0.2)
    emitter = sk.Emitter(timeout=math.inf)
    await face.in_thread(in_thread(lambda: emitter.text("a")).join)
    stream = face.stream(emitter)
    with pytest.raises(sk.SourceTimeoutError, match="thread 'agent' has ended without closing"):
        await stream.until_done()
    emitter.close()


def test_a_producer_whose_task_lives_is_not_missed_for_its_worker_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """`with` in a thread that lives keeps the emitter alive, whoever else says something for it."""
    monkeypatch.setattr("streamkit.relay.memory.run.GRACE", 0.1)
    emitter = sk.Emitter()
    texts: list[str] = []
    reading = in_thread(lambda: texts.append(sk.stream(emitter).get_final_text()))
    with emitter:
        in_thread(lambda: emitter.text("a")).join()
        time.sleep(0.4)
        emitter.text("b")
    reading.join()
    assert texts == ["ab"]


@pytest.mark.slow
@every_face
@body
async def test_a_producer_that_was_dropped_is_missed_at_once(face: Face) -> None:
    """A stream does not keep it alive."""
    emitter = sk.Emitter(timeout=math.inf)
    emitter.text("a")
    stream = face.stream(emitter)
    waiting = face.stream(emitter)
    pieces: list[str] = []
    async for piece in waiting.text_deltas:
        pieces.append(piece)
        break
    del emitter
    gc.collect()
    for one in (stream, waiting):
        with pytest.raises(sk.SourceError, match="dropped without closing"):
            await one.until_done()
        assert (one.messages[0].content, one.messages[0].status) == ("a", "incomplete")


def test_a_task_that_was_cancelled_without_closing_does_not_hang_its_consumers() -> None:
    """The silence is told."""

    async def main() -> str:
        emitter = sk.Emitter(timeout=0.2)

        async def agent() -> None:
            emitter.text("half")
            await asyncio.sleep(60)

        task = asyncio.ensure_future(agent())
        await asyncio.sleep(0)
        task.cancel()
        stream = sk.astream(emitter)
        with pytest.raises(sk.SourceTimeoutError):
            await stream.until_done()
        emitter.close()
        return stream.messages[0].content

    assert asyncio.run(main()) == "half"


@pytest.mark.slow
def test_who_waits_for_an_answer_is_not_silent() -> None:
    """A question may take longer than the limit."""
    emitter = sk.Emitter(timeout=1.2)

    class Slow(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            confirmation.defer()
            threading.Timer(2.0, confirmation.approve).start()

    def agent() -> None:
        with emitter:
            emitter.code("x", "python")
            emitter.text("yes" if emitter.confirm() else "no")

    thread = in_thread(agent)
    assert sk.stream(emitter, Slow()).get_final_text() == "yes"
    thread.join()


# -- answers


def asking(emitter: sk.Emitter, out: list[Any], **options: Any) -> None:
    with emitter:
        emitter.code("rm x", "shell")
        approval = emitter.confirm(**options).wait()
        out.append((bool(approval), approval.edited, approval.reason))
        emitter.console("done")


@every_relay
@both_shells
@body
@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (lambda c: c.approve(), (True, None, None)),
        (lambda c: c.approve("rm y"), (True, "rm y", None)),
        (lambda c: c.decline("no"), (False, None, "no")),
        (lambda c: None, (False, None, None)),
        (lambda c: c.defer(0.02), (False, None, None)),
    ],
    ids=["yes", "edited", "no", "nothing", "too late"],
)
async def test_a_consumers_answer_reaches_the_producer(
    face: Face, relay_of: Callable[..., Relay], answer: Callable[[sk.Confirmation], None], wanted: Any
) -> None:
    """In its thread; every consumer is told the outcome."""
    emitter = sk.Emitter(relay_of())
    out: list[Any] = []
    told = face.told(on_confirmation=lambda _, confirmation: answer(confirmation))
    async with face.beside(lambda: asking(emitter, out)):
        stream = face.stream(emitter, told)
        await stream.until_done()
    assert out == [wanted]
    (done,) = told.of("on_confirmation_done")
    assert done.status == ("approved" if wanted[0] else "declined" if wanted[2] else "unanswered")
    ended = "requires_action" if done.status == "unanswered" else "completed"
    assert stream.status == stream.current_run.status == emitter.status == ended
    assert told.hooks.count("on_run_requires_action") == (ended == "requires_action")
    assert told.hooks.index("on_confirmation_done") < told.hooks.index("on_console_created")
    assert stream.warnings == ()


@async_faces
@body
async def test_an_answer_can_be_awaited_by_the_producers_task(face: Face) -> None:
    """Approved, and given an output; in the same event loop."""
    emitter = sk.Emitter()
    out: list[Any] = []

    async def agent() -> None:
        async with emitter:
            emitter.code("x", "python")
            out.append(bool(await emitter.confirm()))
            out.append(await emitter.tool_call("f", {"n": 1}))

    told = face.told(
        on_confirmation=lambda _, confirmation: confirmation.approve(),
        on_tool_call_done=lambda _, call: call.respond({"got": call.arguments["n"]}),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent)
        await face.stream(emitter, told).until_done()
    assert out == [True, '{"got":1}']
    assert [message.content for message in emitter.messages][-1] == '{"got":1}'


@async_faces
@body
async def test_a_question_never_blocks_an_event_loop_and_is_never_taken_for_a_yes(face: Face) -> None:
    """`if emitter.confirm()` without `await` is refused."""
    emitter = sk.Emitter()
    emitter.code("x", "python")
    with pytest.raises(sk.UsageError, match="await"):
        bool(emitter.confirm())
    with pytest.raises(sk.UsageError, match="await"):
        emitter.tool_call("f", {}).wait()
    emitter.close()


def test_the_first_answer_of_several_consumers_wins() -> None:
    """One that comes later is no fault of its reader's, and changes nothing: all receive the outcome."""
    emitter = sk.Emitter()
    out: list[Any] = []
    barrier = threading.Barrier(3)
    outcomes: list[str] = []
    statuses: list[str] = []

    class Answering(sk.EventHandler):
        def __init__(self, yes: bool) -> None:
            self.yes = yes

        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            barrier.wait(5)
            confirmation.approve() if self.yes else confirmation.decline()

        def on_confirmation_done(self, confirmation: sk.Confirmation, /) -> None:
            outcomes.append(confirmation.status)

    def read(yes: bool) -> None:
        stream = sk.stream(emitter, Answering(yes))
        stream.until_done()
        statuses.append(stream.status)

    threads = [in_thread(lambda yes=yes: read(yes)) for yes in (True, False, True)]  # type: ignore[misc]
    asking(emitter, out)
    for thread in threads:
        thread.join(5)
    won = "approved" if out[0][0] else "declined"
    assert outcomes == [won] * 3
    assert statuses == ["completed"] * 3


def test_a_consumer_that_leaves_does_not_decide_for_the_others() -> None:
    """Its own question is closed, not theirs."""
    emitter = sk.Emitter()
    out: list[Any] = []
    first, second = sk.stream(emitter), sk.stream(emitter)
    thread = in_thread(lambda: asking(emitter, out))
    for stream in (first, second):
        for event in stream:
            if isinstance(event, sk.ConfirmationCreated):
                event.confirmation.defer()
                break
    (left,) = first.confirmations
    first.close()
    assert not left.waiting
    with pytest.raises(sk.UsageError):
        left.approve()
    (asked,) = second.confirmations
    assert asked.waiting
    asked.approve()
    second.until_done()
    thread.join()
    assert out == [(True, None, None)]


def test_a_question_waits_for_the_first_who_comes() -> None:
    """However late, where nobody set a limit."""
    emitter = sk.Emitter()
    out: list[Any] = []
    thread = in_thread(lambda: asking(emitter, out))
    thread.join(0.2)
    assert out == []

    class Yes(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            confirmation.approve()

    sk.stream(emitter, Yes()).until_done()
    thread.join()
    assert out == [(True, None, None)]


@pytest.mark.slow
def test_a_question_is_given_up_some_time_after_the_last_reader_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that reader had deferred it: its producer does not wait for ever."""
    monkeypatch.setattr("streamkit.relay.questions.UNATTENDED", 0.2)
    emitter = sk.Emitter()
    out: list[Any] = []
    thread = in_thread(lambda: asking(emitter, out))
    began = 0.0
    with sk.stream(emitter) as stream:
        for event in stream:
            if isinstance(event, sk.ConfirmationCreated):
                event.confirmation.defer()
                began = time.monotonic()
                break
    thread.join(10)
    assert out == [(False, None, None)]
    assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize("how", ["asked", "deferred"])
def test_a_question_has_a_time_limit_of_either_side(how: str) -> None:
    """The producer's `timeout`, and the consumer's `defer(timeout)`."""
    emitter = sk.Emitter()
    out: list[Any] = []

    class Deferring(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            if how == "deferred":
                confirmation.defer(0.2)

    began = time.monotonic()
    options = {"timeout": 0.2} if how == "asked" else {}
    thread = in_thread(lambda: asking(emitter, out, **options))
    stream = sk.stream(emitter, Deferring())
    stream.until_done()
    thread.join()
    assert out == [(False, None, None)]
    assert 0.15 < time.monotonic() - began < 2


def test_a_question_ends_with_its_emitter() -> None:
    """It is not approved; whoever waits goes on."""
    emitter = sk.Emitter()
    emitter.code("x", "python")
    approval = emitter.confirm()
    output = emitter.tool_call("f", {})
    out: list[Any] = []
    thread = in_thread(lambda: out.append(bool(approval)))
    thread.join(0.1)
    emitter.close()
    thread.join(5)
    assert out == [False]
    with pytest.raises(sk.UsageError, match="not answered"):
        output.wait()
    assert emitter.status == "requires_action"


def answering(yes: bool, outcomes: list[Any], go: threading.Event | None = None) -> sk.EventHandler:
    """A handler that answers; where there is an event, once it is set."""

    class Answering(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            if go is not None:
                go.wait(30)
            confirmation.approve() if yes else confirmation.decline("mine")

        def on_confirmation_done(self, confirmation: sk.Confirmation, /) -> None:
            outcomes.append((confirmation.status, confirmation.reason))

    return Answering()


def test_a_reader_that_answers_later_than_another_reads_on_and_receives_the_outcome() -> None:
    """An answer given elsewhere is no fault of this reader: its stream goes on, with all of its text."""
    emitter = sk.Emitter()
    out: list[Any] = []
    outcomes: list[Any] = []
    go = threading.Event()
    slow = sk.stream(emitter, answering(False, outcomes, go))
    reading = in_thread(slow.until_done)
    agent = in_thread(lambda: asking(emitter, out))
    sk.stream(emitter, answering(True, outcomes)).until_done()
    agent.join()
    go.set()
    reading.join()
    assert out == [(True, None, None)]
    assert outcomes == [("approved", None)] * 2
    assert slow.status == "completed"
    assert slow.messages[-1].content == "done"
    (confirmation,) = slow.confirmations
    assert confirmation.status == "approved"


def test_a_reader_may_answer_a_question_that_was_decided_without_it() -> None:
    """Because its time was over, for example: it receives that outcome. Its own second answer is refused as ever."""
    emitter = sk.Emitter()
    out: list[Any] = []
    outcomes: list[Any] = []
    go = threading.Event()
    stream = sk.stream(emitter, answering(True, outcomes, go))
    reading = in_thread(stream.until_done)
    asking(emitter, out, timeout=0.01)
    go.set()
    reading.join()
    assert out == [(False, None, None)]
    assert outcomes == [("unanswered", None)]
    assert stream.status == "requires_action"
    with pytest.raises(sk.UsageError, match="answered already"):
        stream.confirmations[0].decline()


@both_shells
@body
async def test_an_output_that_another_reader_gave_first_is_the_one_for_all(face: Face) -> None:
    """The later one is dropped, and its reader receives the first."""
    emitter = sk.Emitter()
    first = sk.stream(emitter)
    calls: list[Any] = []
    out: list[Any] = []

    def agent() -> None:
        with emitter:
            out.append(emitter.tool_call("f", {}).wait())

    async with face.beside(agent):
        for event in first:
            if isinstance(event, sk.ToolCallDone):
                calls.append(event.message)
                break
        stream = face.stream(emitter)
        async for event in stream:
            if isinstance(event, sk.ToolCallDone):
                calls[0].respond("one")
                calls.append(event.message)
                calls[1].respond("two")
    first.until_done()
    assert out == ["one"]
    for one in (stream, first):
        assert [message.content for message in one.messages] == ["{}", "one"]


def deferring(emitter: sk.Emitter, timeout: float | None = None) -> sk.StreamManager:
    """A stream that stands at the question, which it has deferred."""
    stream = sk.stream(emitter)
    for event in stream:
        if isinstance(event, sk.ConfirmationCreated):
            event.confirmation.defer(timeout)
            break
    return stream


def reading_on(emitter: sk.Emitter) -> tuple[sk.StreamManager, threading.Thread]:
    """A stream that has gone on after the question without an answer."""
    stream = sk.stream(emitter)
    return stream, in_thread(stream.until_done)


def test_a_deferral_is_taken_back_when_its_reader_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others that read on do not hold the question open."""
    monkeypatch.setattr("streamkit.relay.questions.UNATTENDED", 0.1)
    emitter = sk.Emitter()
    out: list[Any] = []
    agent = in_thread(lambda: asking(emitter, out))
    held = deferring(emitter)
    other, reading = reading_on(emitter)
    agent.join(0.3)
    assert out == [], "the question is deferred, and its reader is there"
    held.close()
    reading.join(30)
    assert out == [(False, None, None)]
    assert other.status == "requires_action"


def test_a_deferral_that_is_over_does_not_end_that_of_another_reader() -> None:
    """Each reader's deferral has its own time."""
    emitter = sk.Emitter()
    out: list[Any] = []
    agent = in_thread(lambda: asking(emitter, out))
    patient = deferring(emitter)
    hasty = deferring(emitter, 0.05)
    agent.join(0.3)
    assert out == []
    patient.confirmations[0].approve()
    agent.join(30)
    assert out == [(True, None, None)]
    for stream in (patient, hasty):
        stream.until_done()
        assert stream.confirmations[0].status == "approved"


def test_a_question_survives_a_reader_that_leaves_in_front_of_it() -> None:
    """As a browser does that reconnects: it did not go on without an answer, so the next reader has 30 seconds."""
    emitter = sk.Emitter()
    out: list[Any] = []
    agent = in_thread(lambda: asking(emitter, out))
    with sk.stream(emitter) as stream:
        for event in stream:
            if isinstance(event, sk.ConfirmationCreated):
                break
    agent.join(0.2)
    assert out == []
    sk.stream(emitter, answering(True, [])).until_done()
    agent.join(30)
    assert out == [(True, None, None)]


@pytest.mark.parametrize("reader", ["none", "stuck", "left"])
def test_a_question_without_a_time_limit_ends_all_the_same(monkeypatch: pytest.MonkeyPatch, reader: str) -> None:
    """Whether no reader ever came, one stopped in front of it, or the only one has left."""
    monkeypatch.setattr("streamkit.relay.questions.LONGEST", 0.2)
    monkeypatch.setattr("streamkit.relay.questions.UNATTENDED", 0.1)
    emitter = sk.Emitter(MemoryRelay(limit=8))
    stream = sk.stream(emitter)
    if reader != "none":
        emitter.text("a")
        next(iter(stream))
    if reader == "left":
        stream.close()
    out: list[Any] = []
    agent = in_thread(lambda: asking(emitter, out))
    agent.join(30)
    assert out == [(False, None, None)]
    assert emitter.status == "requires_action"


def test_a_question_may_be_left_open_without_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `math.inf`, said outright."""
    monkeypatch.setattr("streamkit.relay.questions.LONGEST", 0.05)
    emitter = sk.Emitter()
    out: list[Any] = []
    agent = in_thread(lambda: asking(emitter, out, timeout=math.inf))
    agent.join(0.2)
    assert out == []
    sk.stream(emitter, answering(True, [])).until_done()
    agent.join(30)
    assert out == [(True, None, None)]


def test_a_call_whose_output_nobody_gives_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a confirmation."""
    monkeypatch.setattr("streamkit.relay.questions.LONGEST", 0.05)
    emitter = sk.Emitter()
    with pytest.raises(sk.UsageError, match="was not answered"):
        emitter.tool_call("f", {}).wait()


def test_a_question_that_nobody_reads_does_not_keep_a_run_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeats of a producer that waits end with the question."""
    monkeypatch.setattr("streamkit.relay.questions.LONGEST", 0.1)
    relay = MemoryRelay(ttl_running=0.3)
    emitter = sk.Emitter(relay, "run")
    emitter.code("x")
    waiting = in_thread(emitter.confirm().wait)
    waiting.join(30)
    time.sleep(0.35)
    assert relay.get("run") is None


def test_a_call_that_the_agent_answers_itself_asks_nobody_any_more() -> None:
    """And one that is none of the consumers' business never did."""
    emitter = sk.Emitter()
    waiting: list[bool] = []

    class Handler(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage, /) -> None:
            waiting.append(call.waiting)

    with emitter:
        emitter.tool_call("f", {}, call_id="one")
        emitter.tool_call("g", {}, call_id="two", provider_executed=True)
        emitter.tool_output("1", call_id="one")
        emitter.tool_output("2", call_id="two")
    stream = sk.stream(emitter, Handler())
    stream.until_done()
    assert waiting == [False, False]
    assert stream.status == "completed"


@async_faces
@body
async def test_an_answer_can_be_waited_for_in_a_worker_thread(face: Face) -> None:
    """Of the event loop that the consumer runs in."""
    emitter = sk.Emitter()
    out: list[Any] = []
    told = face.told(on_confirmation=lambda _, confirmation: confirmation.approve())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, lambda: asking(emitter, out))
        await face.stream(emitter, told).until_done()
    assert out == [(True, None, None)]


def test_a_run_that_is_gone_ends_its_emitter() -> None:
    """Deleted, or cancelled by somebody else. What is said then is refused; leaving it is not."""
    for end, ended in ((MemoryRelay.delete, "failed"), (MemoryRelay.cancel, "cancelled")):
        relay = MemoryRelay()
        with sk.Emitter(relay, "run") as emitter:
            emitter.text("a")
            end(relay, "run")
            with pytest.raises(sk.UsageError):
                emitter.text("b")
        assert emitter.status == ended
        assert emitter.ended


def test_there_is_nothing_to_confirm_before_there_is_code() -> None:
    """And no question is asked twice under one name."""
    emitter = sk.Emitter()
    with pytest.raises(sk.UsageError, match="nothing to confirm"):
        emitter.confirm()
    emitter.code("x", "python")
    emitter.confirm(id="c")
    with pytest.raises(sk.UsageError, match="pending already"):
        emitter.confirm(id="c")
    emitter.confirm(m.CodeMessage("other", content="y"))
    assert list(emitter.pending) == ["c", "confirmation-1"]
    emitter.close()


def test_code_that_may_not_be_edited_is_not() -> None:
    """The consumer is told."""
    emitter = sk.Emitter()
    out: list[Any] = []
    refused: list[str] = []

    class Editing(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            try:
                confirmation.approve("other")
            except sk.UsageError as error:
                refused.append(str(error))

    thread = in_thread(lambda: asking(emitter, out, editable=False))
    sk.stream(emitter, Editing()).until_done()
    thread.join()
    assert len(refused) == 1
    assert out == [(False, None, None)]


# -- one relay for many runs, and what is left over


def test_a_relay_shares_its_runs_by_name() -> None:
    """A consumer needs the name alone; a name is taken once."""
    relay = MemoryRelay()
    emitter = sk.Emitter(relay, "run")
    with pytest.raises(sk.UsageError, match="already"):
        sk.Emitter(relay, "run")
    say(emitter, "a")
    assert sk.stream(relay.reader("run")).get_final_text() == "a"
    assert len({sk.Emitter(relay).run_id for _ in range(100)}) == 100


def test_block_slows_a_thread_down_and_a_task_drains() -> None:
    """At most the limit ahead."""
    emitter = sk.Emitter(MemoryRelay(limit=50, overflow="block"))
    thread = in_thread(lambda: say(emitter, *["x"] * 1000))
    thread.join(0.1)
    assert thread.is_alive()
    assert sk.stream(emitter).get_final_text() == "x" * 1000
    thread.join(5)

    async def main() -> None:
        emitter = sk.Emitter(MemoryRelay(limit=50, overflow="block"))

        async def agent() -> None:
            async with emitter:
                for _ in range(500):
                    await emitter.drain()
                    emitter.text("x")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent)
            assert await sk.astream(emitter).get_final_text() == "x" * 500

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


def test_a_task_that_drains_lets_others_run() -> None:
    """Also where there is room: a producer in a loop does not starve the readers in the same event loop."""

    async def main() -> None:
        emitter = sk.Emitter()
        delivered: list[str] = []

        async def read() -> None:
            async for piece in sk.astream(emitter).text_deltas:
                delivered.append(piece)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            async with emitter:
                for _ in range(100):
                    emitter.text("x")
                    await emitter.drain()
                assert len(delivered) > 50

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


def test_an_error_policy_fails_the_run_and_says_why() -> None:
    """The log that is there can be read."""
    emitter = sk.Emitter(MemoryRelay(limit=50, overflow="error"))
    with pytest.raises(sk.UsageError, match="50 events behind"):
        say(emitter, *["x"] * 1000)
    stream = sk.stream(emitter)
    with pytest.raises(sk.StreamkitError, match="50 events behind"):
        stream.until_done()
    assert 40 < len(stream.messages[0].content) <= 50


def test_no_thread_and_no_task_is_left_over() -> None:
    """After streams that ended, were cancelled, and timed out, on every face."""
    before = set(threading.enumerate())

    async def main() -> None:
        emitter = sk.Emitter(timeout=0.05)
        emitter.text("a")
        stream = sk.astream(emitter)
        with anyio.move_on_after(0.02):
            await stream.until_done()
        with pytest.raises(sk.SourceTimeoutError):
            await sk.astream(emitter).until_done()
        emitter.close()
        await sk.astream(emitter).until_done()
        if asyncio_tasks := _asyncio_tasks():
            assert len(asyncio_tasks) == 1

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
    assert set(threading.enumerate()) <= before


def _asyncio_tasks() -> set[Any]:
    try:
        return set(asyncio.all_tasks())
    except RuntimeError:
        return set()


def test_one_emitter_is_read_in_threads_asyncio_and_trio_at_once() -> None:
    """Woken each in its own way."""
    emitter = sk.Emitter()
    texts: list[str] = []

    def sync() -> None:
        texts.append(sk.stream(emitter).get_final_text())

    def on(backend: str) -> None:
        async def main() -> None:
            texts.append(await sk.astream(emitter).get_final_text())

        anyio.run(main, backend=backend)

    threads = [in_thread(sync), in_thread(lambda: on("asyncio")), in_thread(lambda: on("trio"))]
    with emitter:
        for n in range(2000):
            emitter.text(f"{n} ")
            if n % 100 == 0:
                time.sleep(0.001)
    for thread in threads:
        thread.join(LIMIT)
    assert texts == ["".join(f"{n} " for n in range(2000))] * 3


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_agent_that_is_made_to_end_fails_its_readers(error: BaseException) -> None:
    """It did not end well, and was not cancelled."""
    emitter = sk.Emitter()
    with pytest.raises(type(error)), emitter:
        emitter.text("x")
        raise error
    stream = sk.stream(emitter)
    with pytest.raises(sk.SourceError, match=type(error).__name__):
        stream.until_done()
    assert [m.content for m in stream.messages] == ["x"]


def test_an_output_finds_its_call_without_looking_at_all_messages() -> None:
    """The newest come first; many calls cost what few do, each."""
    emitter = sk.Emitter()
    with emitter:
        for n in range(3000):
            emitter.tool_call("f", {"n": n}, provider_executed=True)
            emitter.tool_output(str(n))
    outputs = [m for m in sk.stream(emitter).get_final_messages() if isinstance(m, sk.ToolOutputMessage)]
    assert {m.name for m in outputs} == {"f"}
    assert len({m.call_id for m in outputs}) == 3000


def speak(emitter: sk.Emitter) -> None:
    emitter.text("some text ")
    emitter.text("and more")
    emitter.end_message()


def call_and_answer(emitter: sk.Emitter) -> None:
    emitter.tool_call("f", {"a": 1})
    emitter.tool_output("done")


def ask(emitter: sk.Emitter) -> None:
    emitter.code("print(1)", "python")
    emitter.confirm().confirmation.decline()
    emitter.console("1")


def next_step(emitter: sk.Emitter) -> None:
    emitter.step()
    emitter.text("a step")


@pytest.mark.slow
@pytest.mark.parametrize("act", [speak, call_and_answer, ask, next_step])
def test_a_run_that_never_ends_takes_no_more_memory(act: Callable[[sk.Emitter], None]) -> None:
    """Beyond the log's limit, here 1000, the oldest messages, confirmations and steps that are over are let go of:
    after thousands of events as much is held as before. They go 125 at a time, of which both counts are multiples."""
    emitter = sk.Emitter(sk.MemoryRelay(limit=1000))

    def held(times: int) -> int:
        """The blocks of memory that are held after so many more."""
        for _ in range(times):
            act(emitter)
        gc.collect()
        return sys.getallocatedblocks()

    before = held(1_500)
    after = held(750)
    assert after < before + 500  # were anything held of each, there were 750 more, and of most things several
    assert 1_000 <= len(emitter.messages) <= 1_125
    assert len(emitter.confirmations) <= 1_125
    assert len(emitter.engine.runs.steps) <= 1_125


def test_what_an_emitter_let_go_of_changes_nothing_for_its_readers() -> None:
    """A reader that keeps up has all messages, of which the emitter has the newest, and every cursor goes on."""
    emitter = sk.Emitter(sk.MemoryRelay(limit=100))
    reading = iter(sk.stream(emitter.reader()))
    seen: list[e.Event] = []
    emitter.code("x", "python")
    question = emitter.confirm()
    for number in range(3_000):
        emitter.text(f"text {number}")
        if number % 500 == 0:
            emitter.step()
        emitter.end_message()
        while not seen or seen[-1].cursor != emitter.cursor:
            seen.append(next(reading))
    assert question.confirmation in emitter.pending.values()
    assert question.confirmation in emitter.confirmations
    emitter.tool_call("f", {})
    emitter.tool_output("done")
    emitter.close()
    seen += reading
    texts = [event.message for event in seen if isinstance(event, e.TextDone)]
    assert [message.content for message in texts] == [f"text {number}" for number in range(3_000)]
    assert len({message.id for message in texts}) == 3_000
    newest = [message.id for message in emitter.messages if message.type == "message"]
    assert newest == [message.id for message in texts][-len(newest) :]
    assert 1_000 <= len(newest) <= 1_125
    steps = [event.run_step.id for event in seen if isinstance(event, e.RunStepCreated)]
    assert len(steps) == len(set(steps)) == 7
    assert emitter.timing.deltas == 3_003
    speed = emitter.timing.deltas_per_second
    assert speed is not None
    assert speed > 0
    later = sk.stream(emitter.reader(seen[-20].cursor))
    later.until_done()
    assert later.messages[-1].content == "done"


def test_an_open_message_is_never_let_go_of() -> None:
    """It grows on, and is in `messages`."""
    emitter = sk.Emitter(sk.MemoryRelay(limit=10))
    emitter.emit(e.TextCreated(sk.TextMessage("open")))
    for number in range(1_200):
        emitter.emit(e.CodeDone(sk.CodeMessage(f"c{number}", format="python", content="x")))
    emitter.emit(e.TextDelta("open", "still here"))
    assert [message.content for message in emitter.messages if message.id == "open"] == ["still here"]
    emitter.close()
    assert [message.status for message in emitter.messages if message.id == "open"] == ["completed"]


def knows_its_reader(emitter: sk.Emitter) -> bool:
    """Whether a producer has seen a reader: on Redis it looks from time to time, and does not see one that leaves at once."""
    buffer: Any = getattr(emitter._log, "_buffer", None)
    return buffer is None or buffer.controls._had_readers


@every_relay
@every_face
@body
@pytest.mark.parametrize("own", ["nothing", "defers"])
async def test_a_deferral_without_a_limit_is_taken_back_when_its_reader_leaves(
    face: Face, relay_of: Callable[..., Relay], own: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer is a stream whose events are emitted: it does not wait for ever for a reader that has gone, not even where
    a hook of its own has deferred the question without a limit."""
    monkeypatch.setattr("streamkit.relay.questions.UNATTENDED", 0.1)
    monkeypatch.setattr("streamkit.relay.questions._HEARTBEAT", 0.1)
    monkeypatch.setattr("streamkit.relay.redis.sender._LOOK", 0.1)
    emitter = sk.Emitter(relay_of())
    outcomes: list[Any] = []

    class Waits(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            confirmation.defer()

    def agent() -> None:
        with emitter, sk.stream((item for item in interpreter()), *([Waits()] if own == "defers" else [])) as stream:
            for event in stream:
                emitter.emit(event)
        outcomes.extend(stream.confirmations)

    async with face.beside(agent):
        stream = face.stream(emitter, face.told(on_confirmation=lambda _, confirmation: confirmation.defer()))
        async for event in stream:
            if isinstance(event, e.ConfirmationCreated):
                break
        while not knows_its_reader(emitter):
            await face.in_thread(lambda: time.sleep(0.01))
        await stream.close()
    assert [one.status for one in outcomes] == ["unanswered"]


@every_relay
@both_shells
@body
@pytest.mark.parametrize("answer", ["approve", "decline", "nothing", "defer and leave"])
async def test_a_question_of_a_stream_that_is_emitted_is_answered_by_a_reader(
    face: Face, relay_of: Callable[..., Relay], answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source waits for the readers: a code-running agent goes on, or not, as one of them decides."""
    monkeypatch.setattr("streamkit.relay.questions.UNATTENDED", 0.1)
    emitter = sk.Emitter(relay_of())
    ran: list[str] = []

    def agent() -> None:
        with emitter:
            for event in sk.stream(item for item in interpreter()):
                emitter.emit(event)
        ran.append("ended")

    def decide(_: Any, confirmation: sk.Confirmation) -> None:
        if answer == "approve":
            confirmation.approve()
        elif answer == "decline":
            confirmation.decline("no")
        elif answer == "defer and leave":
            confirmation.defer(0.05)

    told = face.told(on_confirmation=decide)
    async with face.beside(agent):
        stream = face.stream(emitter, told)
        await stream.until_done()
    (done,) = told.of("on_confirmation_done")
    assert done.status == {"approve": "approved", "decline": "declined"}.get(answer, "unanswered")
    assert done.reason == ("no" if answer == "decline" else None)
    assert stream.status == ("requires_action" if done.status == "unanswered" else "completed")
    assert [m.content for m in stream.messages if m.type == "console"] == (["1.41"] if answer == "approve" else [])
    assert ran == ["ended"]
    assert stream.pending == {}


def test_a_message_stays_what_it_began_as() -> None:
    """A format that comes with its end, and would make it one of another kind, is not taken over: readers have the same."""
    emitter = sk.Emitter()
    note = sk.Annotation(type="url_citation", url="u")
    with emitter:
        emitter.emit(e.TextCreated(sk.TextMessage("m")))
        emitter.emit(e.TextDelta("m", "a"))
        emitter.emit(e.AnnotationAdded("m", note))
        emitter.emit(e.TextDone(sk.TextMessage("m", format="output", content="a")))
        emitter.emit(e.CodeDone(sk.CodeMessage("c", format="python", content="x")))
    stream = sk.stream(emitter)
    stream.until_done()
    assert list(stream.messages) == list(emitter.messages)
    assert [(type(one), one.format) for one in stream.messages] == [(sk.TextMessage, None), (sk.CodeMessage, "python")]


def test_an_awaitable_is_no_answer_to_a_question_of_a_relay() -> None:
    """It says that the producer gets the answer, which may be another process."""
    emitter = sk.Emitter()
    emitter.tool_call("f", {}, call_id="c")

    async def answer() -> str:
        return "a value"

    class Answering(sk.AsyncEventHandler):
        async def on_tool_call_done(self, call: sk.ToolCallMessage, /) -> None:
            with pytest.raises(sk.UsageError, match="sent to the run's producer, which cannot await"):
                call.respond(answer())
            call.respond("a value")
            emitter.close()

    async def read() -> None:
        await sk.astream(emitter, Answering()).until_done()

    anyio.run(read)
    assert emitter.messages[-1].content == "a value"


# -- what a token costs


def test_readers_that_wait_for_a_token_have_events_of_their_own() -> None:
    """As those have that decode it from the log, with the same cursor, though it was not decoded for them."""

    async def main() -> None:
        source = sk.Emitter()
        events: list[list[sk.TextDelta]] = [[], []]

        async def read(into: list[sk.TextDelta]) -> None:
            async for event in source.reader():
                if isinstance(event, sk.TextDelta):
                    into.append(event)

        async def write() -> None:
            with source:
                for text in ("a", "b\U0001f600", "c"):
                    source.text(text)
                    await anyio.wait_all_tasks_blocked()

        async with anyio.create_task_group() as tasks:
            for into in events:
                tasks.start_soon(read, into)
            tasks.start_soon(write)
        late = [event for event in source.reader() if isinstance(event, sk.TextDelta)]
        assert events[0] == events[1] == late
        assert [event.cursor for event in events[0]] == [event.cursor for event in late]
        assert len({id(event) for event in (*events[0], *events[1], source.current_event)}) == 7

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)


class Shouting(str):
    """Text of a class of its own."""

    def __str__(self) -> str:
        return self.upper()


def test_text_of_another_class_is_written_as_it_is() -> None:
    """A reader has plain text."""
    with sk.Emitter() as source:
        source.text("a")
        source.text(Shouting("b"))
    assert [type(event.value) for event in source.reader() if isinstance(event, sk.TextDelta)] == [str, str]
    assert source.messages[0].content == "ab"


@pytest.mark.parametrize(
    ("pieces", "content"),
    [
        (["a\ud83d", "\ude00b"], "a\U0001f600b"),
        (["a\ud83d", "b"], "a\ufffdb"),
        (["a\ud83d", "b", "c"], "a\ufffdbc"),
        (["\ud83d", "\ud83d", "\ude00"], "\ufffd\U0001f600"),
        (["a", "\ude00b"], "a\ufffdb"),
        (["a\ud83d"], "a\ufffd"),
    ],
)
def test_half_of_a_surrogate_pair_waits_for_the_other_half(pieces: list[str], content: str) -> None:
    """What comes meanwhile comes after it. The emitter and its readers have the same."""
    with sk.Emitter() as emitter:
        for piece in pieces:
            emitter.text(piece)
        emitter.end_message()
    assert [message.content for message in sk.stream(emitter).get_final_messages()] == [content]
    assert [message.content for message in emitter.messages] == [content]
