"""Resuming in a run's middle: what ended before is not built before it is read, and everything is as if it had been."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit.errors import LimitError
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay, Relay

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


def test_messages_may_stand_in_several_blocks_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the blocks end, a message goes on in the next one."""
    monkeypatch.setattr("streamkit.relay.memory.log._BLOCK", 3)
    monkeypatch.setattr("streamkit.relay.memory.log._TAIL", 6)
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        write_all_kinds(emitter)
    check_every_cursor(relay, 2)


@pytest.mark.slow
@settings(often, max_examples=60)
@given(q.drawn(canonical))
def test_whatever_the_story_a_stream_that_resumes_has_all_of_it(events: list[e.Event]) -> None:
    """Stories of the laws, malformed ones too."""
    relay = MemoryRelay()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamkit.relay.memory.log._BLOCK", 4)
        patch.setattr("streamkit.relay.memory.log._TAIL", 8)
        tell_into(relay, events)
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


def test_a_message_that_ended_is_built_when_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before, once, and it stays the same object."""
    relay = MemoryRelay()
    cursor = many(relay, 50)
    built: list[str] = []
    from_dict = m.Message.from_dict

    def counted(value: dict[str, Any]) -> m.Message:
        built.append(value["id"])
        return from_dict(value)

    stream = sk.stream(relay.reader("run"), after=cursor)
    with monkeypatch.context() as patch:
        patch.setattr(m.Message, "from_dict", counted)
        assert next(iter(stream)).type == "run_created"
        assert built == []
        assert len(stream.messages) == 50
        assert len(built) == 50
        assert [message.content for message in stream.messages] == [f"{number:10}" for number in range(50)]
        assert len(built) == 50
    first = stream.messages[0]
    assert stream.get_final_messages()[0] is first
    assert stream.timing.deltas == 51


def test_messages_with_metadata_and_ended_lines_are_left_encoded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands between their lines, or in the first, is looked at without building them."""
    relay = MemoryRelay()
    with sk.Emitter(relay, "run") as emitter:
        lane = emitter.lane("one")
        lane.text("metadata from the beginning")
        lane.end_message()
        emitter.emit(e.TextDone(sk.TextMessage("signed", content="metadata at the end", metadata={"signature": "s"})))
        emitter.code("run()", "python")
        for line in (1, None):
            emitter.console("out")
            emitter.emit(e.ActiveLine(emitter.messages[-1].id, line))
        emitter.end_message()
        emitter.emit(e.TextDone(sk.TextMessage("cut", content="cut", status="incomplete")))
        cursor = emitter.cursor
    with monkeypatch.context() as patch:
        patch.setattr(m.Message, "from_dict", lambda value: pytest.fail(f"{value} was built"))
        stream = sk.stream(relay.reader("run"), after=cursor)
        assert next(iter(stream)).type == "run_created"
    wanted = sk.stream(relay.reader("run")).get_final_messages()
    assert stream.get_final_messages() == wanted


def test_messages_can_be_read_after_the_stream_has_ended() -> None:
    """What was not read before stays readable."""
    relay = MemoryRelay()
    cursor = many(relay, 50)
    stream = sk.stream(relay.reader("run"), after=cursor)
    stream.until_done()
    assert [message.content for message in stream.messages][-2:] == [f"{49:10}", "open"]
    assert stream.get_final_text().endswith("open")


def test_a_delta_of_a_message_that_ended_begins_another_one() -> None:
    """Its id is known, although the message was not built."""
    relay = MemoryRelay()
    log = relay.open("run", control=lambda control: None)
    events: list[e.Event] = [e.RunCreated(e.Run(id="r")), e.RunStepCreated(e.RunStep(id="s"))]
    message = sk.TextMessage("m", content="a", run_id="r", step_id="s")
    events += [e.TextCreated(message.header()), e.TextDelta("m", "a"), e.TextDone(message), e.TextDelta("m", "b")]
    cursors = log.append([codec.encode_event(event) for event in [*events, e.StreamEnd()]])
    log.end("done")
    stream = sk.stream(relay.reader("run"), after=cursors[4])
    assert [message.id for message in stream.get_final_messages()] == ["m", "m.2"]
    assert [warning.code for warning in stream.warnings] == ["delta-after-done"]


@pytest.mark.parametrize(("total", "fails"), [(204, False), (203, True)])
def test_messages_that_were_not_built_count_for_the_limits(total: int, fails: bool) -> None:
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
    """Also what the snapshot has of messages that ended stays as it is encoded."""
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


def of_lines(relay: MemoryRelay, *lines: bytes) -> str:
    """A run that some other producer wrote. Gives the cursor after these lines."""
    log = relay.open("run", control=lambda control: None)
    begin = [b'{"type":"run_created","run":{"id":"r"}}', b'{"type":"run_step_created","run_step":{"id":"s"}}']
    cursors = log.append([*begin, *lines])
    log.append([codec.encode_event(e.StreamEnd())])
    log.end("done")
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


def test_threads_that_read_a_message_at_once_get_the_same_object() -> None:
    """It is made by the first one."""
    relay = MemoryRelay()
    cursor = many(relay, 3)
    stream = sk.stream(relay.reader("run"), after=cursor)
    next(iter(stream))
    decode, others = stream.engine.decode_line, list[Any]()
    other = threading.Thread(target=lambda: others.extend(stream.messages))

    def decode_while_another_thread_reads(line: bytes) -> e.Event:
        if other.ident is None:
            other.start()
            other.join(0.05)  # as far as it comes
        return decode(line)

    stream.engine.decode_line = decode_while_another_thread_reads
    first = stream.messages
    other.join()
    assert [*map(id, others)] == [*map(id, first)] == [*map(id, stream.messages)]


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
