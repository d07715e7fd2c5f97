"""Readers of one run in another protocol: one encoder does for all, and each gets what it would have got alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import streamkit as sk
from streamkit.events import Run, RunRequiresAction, StreamException
from streamkit.protocols import codec
from streamkit.protocols.event_stream import EventStreamWriter
from streamkit.relay import Entry
from streamkit.relay.run_record import cursor_of, position_of, run_name
from streamkit.server.event_stream import Encoded, at_question_of
from streamkit.server.run_routes import is_no_input
from streamkit.server.shared_encoding import EncodedTogether, SharedEncoding

RUN = "run"
QUESTIONS = ["confirmation-1"]  # nobody has answered it
PROTOCOLS = pytest.mark.parametrize("protocol", ["vercel_ui", "ag_ui"])
FAILURE = StreamException("SourceError", "the relay is away")


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    """A run with texts, code, a question, and what follows its answer."""
    relay = sk.MemoryRelay()
    with sk.Emitter(relay, RUN) as emitter:
        emitter.reasoning("why")
        for word in ("one", "two", "three"):
            emitter.text(word)
        emitter.code("ls", language="shell")
        emitter.confirm()
        record = relay.get(RUN)
        assert record is not None
        question = position_of(record.cursor, RUN).number
        emitter.console("a\n")
        emitter.tool_call("search", {"q": "x"})
        emitter.tool_output("found")
        for word in ("four", "five"):
            emitter.text(word)
    lines = [entry.data for entries in relay.read(RUN) for entry in entries]
    lines.insert(question, codec.encode_event(RunRequiresAction(Run(status="requires_action"))))
    return [Entry(cursor_of(1, number, run_name(RUN)), line) for number, line in enumerate(lines, 1)]


def encoded(protocol: str, newest: int, after: int) -> Encoded:
    """For a reader that came when the run had so many events, and has some of them."""
    writer = EventStreamWriter(protocol)
    question = at_question_of(protocol)
    frames = Encoded(writer, RUN, after=after, wants=is_no_input, at_question=question, questions_from=newest)
    frames.questions = QUESTIONS
    return frames


def together(shared: SharedEncoding, protocol: str, newest: int, after: int) -> EncodedTogether:
    frames = EncodedTogether(encoded(protocol, newest, after), shared, RUN, max(newest, after))
    frames.questions = QUESTIONS
    return frames


class Reading:
    """A reader, which takes a few entries at a time."""

    def __init__(self, log: list[Entry], protocol: str, shared: SharedEncoding, newest: int, after: int) -> None:
        self.frames = together(shared, protocol, newest, after)
        self.alone = encoded(protocol, newest, after)
        self.rest = list(log)
        self.got = self.wanted = b""

    def read(self, count: int) -> None:
        entries, self.rest = self.rest[:count], self.rest[count:]
        self.got += self.frames.body(entries)
        self.wanted += self.alone.body(entries)
        if self.frames.has_ended or self.alone.has_ended:
            self.rest.clear()


@PROTOCOLS
def test_each_reader_gets_what_it_would_have_got_alone(log: list[Entry], protocol: str) -> None:
    """Whenever it comes, whatever its client has, and however many entries it takes at a time."""
    choose = random.Random(11)
    ended: set[bool] = set()
    for _ in range(30):
        shared = SharedEncoding()
        readings = [
            Reading(log, protocol, shared, newest, choose.choice([0, 0, choose.randrange(newest + 1)]))
            for newest in (choose.choice([0, choose.randrange(len(log))]) for _ in range(6))
        ]
        while any(reading.rest for reading in readings):
            reading = choose.choice([one for one in readings if one.rest])
            reading.read(choose.choice([1, 1, 2, 5, len(log)]))
        for reading in readings:
            assert reading.got == reading.wanted
            assert reading.frames.has_ended == reading.alone.has_ended
            ended.add(reading.frames.has_ended)
    assert ended == {True, False}, "at the question, and at the run's end"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The events that any writer encodes from here on."""
    events: list[Any] = []
    encode: Callable[..., bytes] = EventStreamWriter.event

    def event(self: EventStreamWriter, event: Any) -> bytes:
        events.append(event)
        return encode(self, event)

    monkeypatch.setattr(EventStreamWriter, "event", event)
    return events


def test_who_is_at_the_same_place_has_one_encoder(log: list[Entry], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that read from the beginning, and one that comes later, once it has what they have."""
    shared = SharedEncoding()
    readers = [together(shared, "vercel_ui", 0, 0) for _ in range(10)]
    for reader in readers:
        reader.body(log[:3])
    late = together(shared, "vercel_ui", 3, 0)
    late.body(log[:3])
    events = counted(monkeypatch)
    bodies = {reader.body(log[3:6]) for reader in [late, *readers]}
    assert len(bodies) == 1
    assert len(events) <= 3


def test_a_slow_reader_gets_a_snapshot_that_stands_for_what_others_have_read(log: list[Entry]) -> None:
    """It has the frames of each event, as they have."""
    shared = SharedEncoding()
    slow, fast = (together(shared, "vercel_ui", 0, 0) for _ in range(2))
    assert slow.body(log[:2]) == fast.body(log[:2])
    rest = b"".join(fast.body([entry]) for entry in log[2:5])
    lines = [entry.data for entry in log[:5]]
    assert slow.body([Entry(log[4].cursor, codec.encode_snapshot(lines, 0), True)]) == rest
    assert slow.body(log[5:6]) == fast.body(log[5:6])


@PROTOCOLS
def test_a_failure_ends_all_responses_in_the_same_way(log: list[Entry], protocol: str) -> None:
    """First the frames that a reader has not had. Who comes later begins anew."""
    shared = SharedEncoding()
    slow, fast, third = (together(shared, protocol, 0, 0) for _ in range(3))
    alone = encoded(protocol, 0, 0)
    assert slow.body(log[:2]) == fast.body(log[:2]) == third.body(log[:2]) == alone.body(log[:2])
    rest = fast.body(log[2:4])
    assert rest == alone.body(log[2:4])
    failure = alone.failure(FAILURE)
    assert failure
    assert slow.failure(FAILURE) == rest + failure
    assert fast.failure(FAILURE) == failure
    assert third.body(log[2:3]) == rest[: len(rest) - len(fast_part(log, protocol))]
    assert third.body(log[3:5]) == fast_part(log, protocol) + failure
    assert slow.has_ended and fast.has_ended and third.has_ended
    late = together(shared, protocol, 4, 0)
    assert late.body(log[:4]) + late.body(log[4:]) == encoded(protocol, 4, 0).body(log)


def fast_part(log: list[Entry], protocol: str) -> bytes:
    """The frames of the fourth entry."""
    frames = encoded(protocol, 0, 0)
    frames.body(log[:3])
    return frames.body(log[3:4])


@PROTOCOLS
def test_a_reader_that_had_a_snapshot_does_not_encode_for_those_that_had_the_events(protocol: str) -> None:
    """It does not know the call of the output that comes."""
    relay = sk.MemoryRelay(limit=6)
    emitter = sk.Emitter(relay, RUN)

    def read(reading: Iterator[list[Entry]], log: list[Entry]) -> list[Entry]:
        record = relay.get(RUN)
        assert record is not None
        while not log or log[-1].cursor != record.cursor:
            log.extend(next(reading))
        return log

    first, log = relay.read(RUN), list[Entry]()
    emitter.code("ls", language="shell")
    for number in range(8):
        emitter.text(f"{number}")
        emitter.end_message()
        read(first, log)
    late = read(relay.read(RUN), [])
    assert late[0].snapshot
    before = len(log)
    emitter.console("a\n")
    read(first, log)
    shared = SharedEncoding()
    readers = [together(shared, protocol, 0, 0) for _ in range(2)]
    for reader, entries in zip(readers, (late, log[:before]), strict=True):
        reader.body(entries)
    alone = encoded(protocol, 0, 0)
    alone.body(log[:before])
    assert readers[1].body(log[before:]) == alone.body(log[before:])
    emitter.close()
