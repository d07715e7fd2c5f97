"""Resuming in a run's middle: a stream then has all that one over the whole run has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit.core.engine import Engine
from streamkit.core.snapshot import SnapshotMaker
from streamkit.errors import LimitError
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay, Relay
from streamkit.relay.run_writer import RunWriter

from . import values as q
from .test_laws import canonical, often
from .test_relay import every_relay, plain, tell_into


def write_all_kinds(emitter: sk.Emitter) -> None:
    """Messages of each kind, with all that may stand in and between them."""
    emitter.text("Hel")
    emitter.text("lo")
    emitter.reasoning("hm", format="summary")
    emitter.tool_call("f", {"a": 1}, call_id="c1")
    emitter.tool_output("1", call_id="c1")
    emitter.tool_call("g", {}, call_id="twice")
    emitter.tool_call("g", {}, call_id="twice")
    emitter.tool_output("one of them", call_id="twice")
    emitter.tool_call("search", {"q": "x"}, call_id="s", provider_executed=True)
    emitter.tool_call("h", "[no object]", call_id="bad")
    emitter.tool_output("none", call_id="bad")
    emitter.emit(e.Usage(1, 2, 3))
    emitter.step()
    emitter.code("print(1)\nprint(2)", "python")
    emitter.confirm()
    for line, output in ((1, "1\n"), (2, "2\n"), (None, "end")):
        emitter.console(output, "stdout")
        emitter.emit(e.ActiveLine(emitter.messages[-1].id, line))
    emitter.code("run_on()", "python")
    emitter.console("…")
    emitter.emit(e.ActiveLine(emitter.messages[-1].id, 7))
    emitter.emit(e.TextDone(sk.TextMessage("meta", content="signed", metadata={"signature": "äbc", "custom": True})))
    emitter.emit(e.TextCreated(sk.TextMessage("cited")))
    emitter.emit(e.TextDelta("cited", "see there"))
    emitter.emit(e.AnnotationAdded("cited", m.Annotation(type="url_citation", url="u")))
    emitter.end_message()
    with emitter.begin_text() as one, emitter.begin_text() as two:
        one.write("one ")
        two.write("two")
        one.write("at a time")
    emitter.emit(e.RefusalDone(sk.RefusalMessage("refusal", content="no")))
    emitter.emit(e.ImageFileDone(sk.ImageMessage("image", format="url", content="https://x")))
    emitter.emit(e.MessageDone(m.Message("map", type="map", format="geo", content="{}")))
    emitter.emit(e.TextDone(sk.TextMessage("cut", content="cut", status="incomplete")))
    emitter.emit(e.RawEvent("own", {"a": [1]}))
    emitter.tool_call("w", {"a": 2}, call_id="open")
    emitter.text("the end")


def resumed(source: Any, cursor: str, **options: Any) -> tuple[Any, ...]:
    """What a stream that resumes delivers, and all that it has then and in the end."""
    stream = sk.stream(source, after=cursor, **options)
    at_first: Any = None
    delivered: list[e.Event] = []
    try:
        for event in stream:
            delivered.append(event)
            at_first = at_first or state(stream)
    except sk.StreamkitError as error:
        return type(error), plain(delivered), at_first, state(stream)
    return None, plain(delivered), at_first, state(stream)


def state(stream: Any) -> dict[str, Any]:
    return {
        "messages": [codec.message_to_dict(message) for message in stream.messages],
        "lines": [message.active_line for message in stream.messages if isinstance(message, sk.ConsoleMessage)],
        "waiting": [call.waiting for call in stream.messages if isinstance(call, sk.ToolCallMessage)],
        "pending": [*stream.pending],
        "confirmations": [(one.id, one.status, one.subject.id) for one in stream.confirmations],
        "warnings": plain(stream.warnings),
        "usage": stream.usage,
        "run": stream.current_run,
        "steps": stream.engine.runs.steps,
    }


def check_every_cursor(relay: Relay, step: int) -> None:
    """A stream over all events, which knows no lines, is the measure."""
    events = [*relay.reader("run")]
    for event in events[::step]:
        assert event.cursor is not None
        wanted = resumed([*relay.reader("run")], event.cursor, protocol="streamkit")
        assert resumed(relay.reader("run"), event.cursor) == wanted


@every_relay
def test_a_stream_that_resumes_has_all_that_one_over_all_events_has(relay_of: Callable[..., Relay]) -> None:
    """Messages of each kind, questions, warnings, usage and steps, wherever it resumes."""
    relay = relay_of()
    with sk.Emitter(relay, "run") as emitter:
        write_all_kinds(emitter)
    check_every_cursor(relay, 7)


def make_blocks_small(patch: pytest.MonkeyPatch) -> None:
    """A log in many blocks."""
    patch.setattr("streamkit.relay.memory.log._BLOCK", 3)
    patch.setattr("streamkit.relay.memory.log._TAIL", 6)


def test_messages_may_stand_in_several_blocks_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the blocks end, a message goes on in the next one."""
    make_blocks_small(monkeypatch)
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        write_all_kinds(emitter)
    check_every_cursor(relay, 2)


def write_into(relay: Relay, events: list[e.Event]) -> None:
    """Complete events, and write them as an emitter does."""
    log, engine = relay.open("run", control=lambda control: None), Engine()
    writer = RunWriter(engine, log, relay.limit, resumable=False)
    for place in range(0, len(events), 3):
        writer.append(engine.complete(events[place : place + 3]))
    writer.append([*engine.source_done(complete=True), *engine.end(), e.StreamEnd()])
    log.end("completed")


@pytest.mark.slow
@settings(often, max_examples=36)
@given(q.drawn(canonical), st.sampled_from([tell_into, write_into]))
def test_whatever_the_story_a_stream_that_resumes_has_all_of_it(
    events: list[e.Event], write: Callable[[Relay, list[e.Event]], object]
) -> None:
    """Stories of the laws, malformed ones too."""
    relay = MemoryRelay()
    with pytest.MonkeyPatch.context() as patch:
        make_blocks_small(patch)
        write(relay, events)
        check_every_cursor(relay, 3)


def many(relay: Relay, count: int) -> str:
    with sk.Emitter(relay, "run") as emitter:
        for number in range(count):
            emitter.text(f"{number:10}")
            emitter.end_message()
        cursor = emitter.cursor
        emitter.text("open")
    assert cursor is not None
    return cursor


def test_messages_can_be_read_after_the_stream_has_ended() -> None:
    """What was not read before stays readable."""
    relay = MemoryRelay()
    cursor = many(relay, 50)
    stream = sk.stream(relay.reader("run"), after=cursor)
    stream.until_done()
    assert [message.content for message in stream.messages][-2:] == [f"{49:10}", "open"]
    assert stream.get_final_text().endswith("open")


def test_a_delta_of_a_message_that_ended_begins_another_one() -> None:
    """Its id is used already."""
    relay = MemoryRelay()
    log = relay.open("run", control=lambda control: None)
    events: list[e.Event] = [e.RunCreated(e.Run(id="r")), e.RunStepCreated(e.RunStep(id="s"))]
    message = sk.TextMessage("m", content="a", run_id="r", step_id="s")
    events += [e.TextCreated(message.header()), e.TextDelta("m", "a"), e.TextDone(message), e.TextDelta("m", "b")]
    cursors = log.append([codec.encode_event(event) for event in [*events, e.StreamEnd()]])
    log.end("completed")
    stream = sk.stream(relay.reader("run"), after=cursors[4])
    assert [message.id for message in stream.get_final_messages()] == ["m", "m.2"]
    assert [warning.code for warning in stream.warnings] == ["delta-after-done"]


@pytest.mark.parametrize(("total", "fails"), [(204, False), (203, True)])
def test_messages_from_before_the_cursor_count_for_the_limits(total: int, fails: bool) -> None:
    """To the character."""
    relay = MemoryRelay()
    cursor = many(relay, 20)
    stream = sk.stream(relay.reader("run"), after=cursor, limits=sk.Limits(total=total))
    if not fails:
        stream.until_done()
        return
    with pytest.raises(LimitError):
        stream.until_done()


def test_a_recorder_of_a_stream_that_resumes_gets_events(tmp_path: Any) -> None:
    """Not what stands for them: its recording is replayed as any other."""
    relay = MemoryRelay()
    cursor = many(relay, 5)
    stream = sk.stream(relay.reader("run"), sk.Recorder(tmp_path / "run"), after=cursor)
    wanted = stream.get_final_messages()
    assert sk.stream(tmp_path / "run").get_final_messages() == wanted


def test_a_trimmed_run_resumes_from_its_snapshot() -> None:
    """It has the messages, the questions and the warnings of a stream over the whole run."""
    relay = MemoryRelay(limit=100)
    with sk.Emitter(relay, "run") as emitter:
        for _ in range(12):
            write_all_kinds(emitter)
        cursor = emitter.cursor
        emitter.text(" of all")
    assert cursor is not None
    whole = sk.stream(relay.reader("run"))
    whole.until_done()
    stream = sk.stream(relay.reader("run"), after=cursor)
    assert stream.get_final_messages() == whole.get_final_messages()
    assert [*stream.pending] == [*whole.pending]
    assert [warning.code for warning in stream.warnings] == [warning.code for warning in whole.warnings]


def test_a_snapshot_has_the_steps_as_they_are() -> None:
    """In the middle of one, between two and after the last: which are over, how they ended, and what they cost."""
    events: list[e.Event] = [e.RunCreated(e.Run(id="r"))]
    for status in ("completed", "failed", "cancelled"):
        events += [e.RunStepCreated(e.RunStep()), e.TextDone(sk.TextMessage(f"m-{status}", content="a"))]
        events += [e.Usage(1, 2, 3), e.RunStepDone(e.RunStep(status=status))]
    for count in range(len(events) + 1):
        engine, again = Engine(), Engine()
        engine.pending.is_canonical = again.pending.is_canonical = True
        for _ in engine.complete(map(codec.decode_event, map(codec.encode_event, events[:count]))):
            pass
        lines, _ = SnapshotMaker(engine, codec.encode_event, 1000, 2**20).lines()
        for _ in again.complete(map(codec.decode_event, lines)):
            pass
        assert [(step.id, step.status, step.usage) for step in again.runs.steps] == [
            (step.id, step.status, step.usage) for step in engine.runs.steps
        ]
        assert (again.runs.step is None) == (engine.runs.step is None)
        assert (
            again.runs.usage
            == engine.runs.usage
            == (e.Usage(*(n * (count // 4) for n in (1, 2, 3))) if count > 3 else None)
        )


def test_a_reader_that_fell_behind_gets_a_content_that_was_replaced_meanwhile() -> None:
    """In the place of what it had, also where the new one is longer."""
    relay = MemoryRelay(limit=20)
    with sk.Emitter(relay, "run") as emitter:
        emitter.emit(e.TextCreated(sk.TextMessage("t")))
        emitter.emit(e.TextDelta("t", "old"))
        reading = iter(sk.stream(relay.reader("run")))
        while not (isinstance(event := next(reading), e.TextDelta) and event.value == "old"):
            pass
        emitter.emit(e.TextDelta("t", "new and longer", replace=True))
        for _ in range(100):
            emitter.emit(e.TextDelta("t", "."))
    values = [event for event in reading if isinstance(event, e.TextDelta)]
    assert values[0].replace
    assert values[-1].snapshot is not None
    assert values[-1].snapshot.content == "new and longer" + "." * 100


def test_interleaved_messages_and_late_call_ids_are_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `call_id` that comes late answers the call when it comes, not when the message begins; and deltas of one message
    stand between those of another."""
    make_blocks_small(monkeypatch)
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        emitter.tool_call("f", {}, call_id="c")
        emitter.emit(e.ConsoleCreated(sk.ConsoleMessage("m")))
        emitter.emit(e.ConsoleDelta("m", "out"))
        emitter.emit(e.ConsoleDone(sk.ConsoleMessage("m", call_id="c")))
        with emitter.begin_text() as one:
            with emitter.begin_text() as two:
                one.write("one ")
                two.write("two")
            one.write("goes on")
        emitter.text("the last one")
    check_every_cursor(relay, 1)


def of_lines(relay: MemoryRelay, *lines: bytes) -> str:
    """A run that some other producer wrote. Gives the cursor after these lines."""
    log = relay.open("run", control=lambda control: None)
    begin = [b'{"type":"run_created","run":{"id":"r"}}', b'{"type":"run_step_created","run_step":{"id":"s"}}']
    cursors = log.append([*begin, *lines])
    log.append([codec.encode_event(e.StreamEnd())])
    log.end("completed")
    return cursors[-1]


def text_lines(id: str, content: str, **fields: Any) -> list[bytes]:
    message = sk.TextMessage(id, content=content, run_id="r", step_id="s", **fields)
    return [codec.encode_event(event) for event in (e.TextCreated(message.header()), e.TextDone(message))]


created, done = text_lines("m", "a")
ODD_LINES = {
    "an id twice": [created, done, *text_lines("m", "b")],
    "an id twice, with annotations": [
        *(created, done),
        *text_lines("m", "b", annotations=[m.Annotation(type="url_citation", url="u")]),
    ],
    "two events in a line": [created, done + b"," + done],
    "a last line that is no event": [created, b'{"type":"text_delta","message_id":"m","value":"a"}', done[:-2]],
    "content in deltas alone": [
        *(created, b'{"type":"text_delta","message_id":"m","value":"a"}'),
        done.replace(b',"content":"a"', b""),
    ],
    "what only its beginning says": [
        created.replace(b'"run_id"', b'"name":"n","metadata":{"k":1},"run_id"'),
        done,
    ],
    "what is nested deep": [created, done[:-2] + b',"metadata":{"a":' + b"[" * 300 + b"]" * 300 + b"}}}"],
}


@pytest.mark.parametrize("case", ODD_LINES)
def test_lines_that_others_wrote_give_the_messages_that_a_stream_over_all_events_has(case: str) -> None:
    """None is lost, and none raises when it is read."""
    relay = MemoryRelay()
    cursor = of_lines(relay, *ODD_LINES[case])
    wanted = sk.stream([*relay.reader("run")], after=cursor, protocol="streamkit")
    wanted.until_done()
    stream = sk.stream(relay.reader("run"), after=cursor)
    stream.until_done()
    assert [message.to_dict() for message in stream.messages] == [message.to_dict() for message in wanted.messages]
    assert [warning.code for warning in stream.warnings] == [warning.code for warning in wanted.warnings]


def test_a_call_that_was_cut_off_takes_no_number_from_a_later_one_with_its_id() -> None:
    """A reader finds the question of each call that waits, and `pending` is as if nothing had been left encoded."""
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        emitter.tool_call("f", {}, call_id="c")
        cut = sk.ToolCallMessage("cut", name="f", call_id="c", content="{", status="incomplete")
        emitter.emit(e.ToolCallDone(cut))
        emitter.tool_call("f", {}, call_id="c")
        assert [*emitter.pending] == ["c", "c.2"]
        assert emitter.cursor is not None
        for options in ({}, {"after": emitter.cursor}):
            stream = sk.stream(relay.reader("run"), **options)
            events = iter(stream)
            while [*stream.pending] != ["c", "c.2"]:
                next(events)
            calls = [call for call in stream.messages if isinstance(call, sk.ToolCallMessage) and call.id != "cut"]
            assert [call.waiting for call in calls] == [True, True]
            stream.close()
