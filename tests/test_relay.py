"""The relay: a run's numbered log, read from any cursor, by any number, in any thread or event loop."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.errors import ProducerFenced
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay, Relay, run_record
from streamkit.relay.memory.log import Log

from . import values as q
from .faces import Face, body, every_face
from .redis_server import ON_REDIS, needs_redis
from .telling import tell_items
from .test_laws import canonical

often = settings(max_examples=48, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Every relay there is, by what makes a new one.
RELAYS: dict[str, Callable[..., Relay]] = {"memory": MemoryRelay, "redis": ON_REDIS.make}
every_relay = pytest.mark.parametrize(
    "relay_of",
    [pytest.param(make, id=name, marks=[needs_redis] if name == "redis" else []) for name, make in RELAYS.items()],
)


CANONICAL = protocols.find("streamkit").Decoder


def story(*pieces: str) -> list[e.Event]:
    """A whole run: one message a piece, each told in deltas of a character."""
    told: list[e.Event] = []
    for number, piece in enumerate(pieces, 1):
        told.append(e.TextCreated(sk.TextMessage(f"m{number}")))
        told += [e.TextDelta(f"m{number}", character) for character in piece]
        told.append(e.TextDone(sk.TextMessage(f"m{number}", content=piece)))
    return [*tell_items(CANONICAL, told).events, e.StreamEnd()]


class Producer:
    """Writes a run without an emitter: events that are complete already."""

    def __init__(self, relay: Relay, run_id: str = "run") -> None:
        self.writer = relay.open(run_id, control=lambda control: None)

    def append(self, events: Iterable[e.Event]) -> list[str]:
        if self.writer.bounded:
            self.writer.drain()
        return self.writer.append([codec.encode_event(event) for event in events])

    def close(self) -> bool:
        return self.writer.end("completed")


def status(relay: Relay, run_id: str = "run") -> str | None:
    record = relay.get(run_id)
    return None if record is None else record.status


def cursor_of(number: int, run_id: str = "run") -> str:
    return run_record.cursor_of(1, number, run_record.run_name(run_id))


def written(relay: Relay, *pieces: str, run_id: str = "run") -> list[str]:
    log = Producer(relay, run_id)
    cursors = log.append(story(*pieces))
    log.close()
    return cursors


def tell_into(relay: Relay, events: list[e.Event]) -> list[dict[str, Any]]:
    """Complete events, and write each to a run at the moment it is told, as a producer does. Gives what was told."""
    engine = Engine()
    lines: list[dict[str, Any]] = []

    def told() -> Iterator[e.Event]:
        for event in events:
            yield from engine.complete([event])
        yield from engine.source_done(complete=True)
        yield from engine.end()
        yield e.StreamEnd()

    log = Producer(relay)
    for event in told():
        lines.append(codec.event_to_dict(event))
        log.append([event])
    log.close()
    without: list[dict[str, Any]] = without_cursors(lines)
    return without


def without_cursors(lines: Any) -> Any:
    if isinstance(lines, dict):
        return {key: without_cursors(value) for key, value in lines.items() if key not in ("cursor", "so far")}
    return [without_cursors(line) for line in lines] if isinstance(lines, list) else lines


def plain(events: Any) -> list[dict[str, Any]]:
    return [codec.event_to_dict(event) for event in events]


def text(stream: Any) -> str:
    return "".join(message.content for message in stream.messages)


# -- the log


@every_relay
def test_what_is_written_is_read_in_order_with_the_cursors_it_was_given(relay_of: Callable[..., Relay]) -> None:
    """From the beginning, and after each cursor."""
    relay = relay_of()
    cursors = written(relay, "abc", "de")
    assert [event.cursor for event in relay.reader("run")] == cursors
    for place, cursor in enumerate(cursors, 1):
        assert [event.cursor for event in relay.reader("run", after=cursor)] == cursors[place:]
    assert [event.cursor for event in relay.reader("run", after=cursor_of(0))] == cursors


@every_relay
def test_reading_tells_what_writing_was_told(relay_of: Callable[..., Relay]) -> None:
    """Nothing but the source, the snapshot and the cursor is another's."""
    relay = relay_of()
    told = tell_into(relay, story("abc"))
    assert without_cursors(plain(relay.reader("run"))) == told


@every_relay
@every_face
@body
async def test_a_reader_waits_for_more_until_the_run_is_closed(face: Face, relay_of: Callable[..., Relay]) -> None:
    """It is told each batch as it is written."""
    relay = relay_of()
    log = Producer(relay)
    events = story("abc", "de")
    told: list[str] = []
    seen = threading.Event()

    def write() -> None:
        for event in events:
            seen.clear()
            log.append([event])
            assert seen.wait(20), "it was told at once"
        log.close()

    class Seeing(sk.Handler):
        def handle(self, event: e.Event, /) -> None:
            told.append(event.type)
            seen.set()

    # The engine tells the run's end when the log is closed: the writer is not to wait for that.
    raw = relay.reader("run")
    async with face.beside(write):
        if face.is_async:
            async for event in raw:
                Seeing().handle(event)
        else:
            for event in raw:
                Seeing().handle(event)
    assert told == [event.type for event in events]


@every_relay
def test_a_run_is_opened_once_and_closed_once(relay_of: Callable[..., Relay]) -> None:
    """Whoever comes second is told."""
    relay = relay_of()
    log = Producer(relay)
    with pytest.raises(sk.UsageError, match="already"):
        Producer(relay)
    assert status(relay) == "in_progress"
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(log.close())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]
    assert status(relay) == "completed"
    with pytest.raises(sk.UsageError, match="closed"):
        log.append(story("a"))
    assert list(relay.reader("run")) == []


@every_relay
def test_a_run_that_is_closed_in_its_middle_is_told_as_cut_off(relay_of: Callable[..., Relay]) -> None:
    """No end in the log is no success."""
    relay = relay_of()
    log = Producer(relay)
    log.append(story("abc")[:5])
    log.close()
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(relay.reader("run")).until_done()


@every_relay
@pytest.mark.parametrize(
    ("cursor", "says"),
    [
        ("", "invalid cursor"),
        ("nonsense", "invalid cursor"),
        ("17", "invalid cursor"),
        ("1-017", "invalid cursor"),
        ("1--1", "invalid cursor"),
        ("1-" + "9" * 40, "invalid cursor"),
        ("1-1", "invalid cursor"),
        ("1-1.9c0a3f2", "invalid cursor"),
        ("1-1.9c0a3f21", "belongs to another run"),
        (17, "invalid cursor"),
        (b"1-1", "invalid cursor"),
    ],
)
def test_a_bad_cursor_is_told_clearly(relay_of: Callable[..., Relay], cursor: Any, says: str) -> None:
    """On the reader, and on the stream; before anything waits."""
    relay = relay_of()
    log = Producer(relay)
    log.append(story("abc"))
    with pytest.raises(sk.UsageError, match=says):
        relay.reader("run", after=cursor)
    if isinstance(cursor, str):
        with pytest.raises(sk.UsageError, match=says):
            sk.stream(relay.reader("run"), after=cursor).until_done()
    else:
        with pytest.raises(sk.UsageError, match="a cursor is a str"):
            sk.stream(relay.reader("run"), after=cursor)


@every_relay
def test_two_cursors_that_differ_are_refused(relay_of: Callable[..., Relay]) -> None:
    """The same twice is none the worse."""
    relay = relay_of()
    written(relay, "abc")
    three, four = cursor_of(3), cursor_of(4)
    with pytest.raises(sk.UsageError, match="1-3"):
        sk.stream(relay.reader("run", after=four), after=three).until_done()
    sk.stream(relay.reader("run", after=four), after=four).until_done()


@every_relay
def test_a_run_that_is_not_there_is_told_as_not_found(relay_of: Callable[..., Relay]) -> None:
    """Never, or no longer."""
    relay = relay_of()
    log = Producer(relay)
    relay.delete("run")
    with pytest.raises(sk.UsageError, match="deleted") as refused:
        log.append(story("a"))
    assert isinstance(refused.value, ProducerFenced)
    assert refused.value.reason == "gone"
    assert log.close() is False
    for run_id in ("run", "other"):
        with pytest.raises(sk.SourceError, match="no run") as caught:
            relay.reader(run_id)
        assert caught.value.status_code == 404
        assert relay.get(run_id) is None


def test_a_closed_run_expires() -> None:
    """And an open one whose producer sent no heartbeat; a reader of that one is told."""
    relay = MemoryRelay(ttl_ended=0.05, ttl_running=1)
    written(relay, "a", run_id="closed")
    log = Producer(relay, "open")
    log.append(story("a")[:4])
    reading = iter(relay.reader("open"))
    assert next(reading).type == "run_created"
    deadline = time.monotonic() + 20
    while (relay.get("closed") or relay.get("open")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert relay.get("closed") is relay.get("open") is None
    with pytest.raises(sk.SourceError, match="deleted while it was open"):
        list(reading)


def test_of_many_runs_that_have_ended_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long before they expire. What still goes on or waits is none of them."""
    monkeypatch.setattr("streamkit.relay.memory.relay._MOST_ENDED", 3)
    monkeypatch.setattr("streamkit.relay.memory.relay._PURGE_INTERVAL", 0.0)
    relay = sk.MemoryRelay()
    relay.open("waits", control=print).pause()
    for number in range(6):
        relay.open(f"run-{number}", control=print).end("completed")
    relay.open("goes-on", control=print)
    assert [one.id for one in relay.list()] == ["goes-on", "run-5", "run-4", "run-3", "waits"]


def test_what_is_written_is_kept_as_it_was() -> None:
    """Live messages, runs and confirmations go on without it."""
    relay = MemoryRelay()
    log = Producer(relay)
    message = sk.TextMessage("m", status="in_progress")
    run = sk.Run(id="r")
    log.append([e.RunCreated(run), e.TextCreated(message)])
    run.status, message.name = "failed", "other"
    log.close()
    first, second = relay.reader("run")
    assert isinstance(first, e.RunCreated)
    assert isinstance(second, e.TextCreated)
    assert (first.run.status, second.message.name) == ("in_progress", None)


@pytest.mark.slow
@often
@given(q.drawn(canonical))
def test_law_6_a_relay_tells_the_same_story(events: list[e.Event]) -> None:
    """What one engine told, another is told through the log."""
    relay = MemoryRelay()
    first = tell_into(relay, events)
    again = tell_items(CANONICAL, list(relay.reader("run")))
    assert without_cursors(again.lines) == first[:-1], "all but the stream's own end"


# -- the log in little memory


@pytest.mark.slow
@often
@given(st.lists(st.integers(1, 400), max_size=8), st.data())
def test_a_log_gives_what_was_written_after_every_cursor(batches: list[int], data: st.DataObject) -> None:
    """However much of it is joined to blocks, dropped, or written by another producer."""
    log = Log(run_record.run_name("run"))
    lines: dict[str, bytes] = {}
    log.begin(1)
    for epoch, size in enumerate(batches, 1):
        if data.draw(st.booleans()):
            log.begin(epoch)
        new = [f"line {len(lines) + n}".encode() for n in range(size)]
        lines.update(zip(log.append(new), new, strict=True))
        if data.draw(st.booleans()):
            log.snapshot(b"so far", log.newest)
    places = [run_record.position_of(cursor, "run") for cursor in lines]
    assert [place.number for place in places] == list(range(1, len(lines) + 1))
    assert places == sorted(places)
    near = st.integers(log.dropped, len(lines))
    for after in {log.dropped, len(lines), *data.draw(st.lists(near, max_size=10))}:
        read: list[run_record.Entry] = []
        while after + len(read) < log.newest:
            read += log.since(after + len(read))
        assert [(entry.cursor, entry.data) for entry in read] == list(lines.items())[after:]
        assert log.has(run_record.LogPosition(log.epoch_of(after), after))
    assert not any(log.has(run_record.LogPosition(1, number)) for number in range(log.dropped))


def test_an_entry_of_a_log_is_one_line() -> None:
    """Two would be two entries."""
    with pytest.raises(sk.UsageError, match="one line"):
        MemoryRelay().open("run", control=print).append([b"a\nb"])


MILLION = """
import resource, streamkit as sk
relay = sk.MemoryRelay()
emitter = sk.Emitter(relay, "run")
emitter.text("word")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(250_000):
    emitter.text("word")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the resident set is counted in another unit, or not at all"
)
def test_many_deltas_fit_into_little_memory() -> None:
    """A quarter of a million, of one megabyte of text, in a process of its own; kept one by one they would take 50."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=Path(sk.__file__).parents[1],
    )
    assert int(done.stdout) < 10 * 1024


@pytest.mark.slow
def test_a_delta_in_a_log_takes_little_more_than_its_line() -> None:
    """Every cursor is still valid."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=1_000_000), "run")
    count = 25_000
    tracemalloc.start()
    try:
        for _ in range(count):
            emitter.text("word")
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    line = len(codec.encode_event(e.TextDelta("message-1", "word"))) + len("word")  # once in the emitter's own message
    assert held < 1.15 * count * line, f"{held / count / line:.2f} x the lines"
    assert peak < 1.3 * count * line, f"{peak / count / line:.2f} x the lines"
    emitter.close()
    before = 3  # the run, its step, the message
    for after in (0, 1, 2, 3, 4, 1023, 1024, 1025, 12_500, 24_999, count + 2, count + 3, count + 4):
        values = [x.value for x in relay.reader("run", after=cursor_of(after)) if isinstance(x, e.Delta)]
        assert len("".join(values)) == 4 * max(0, min(count, count + before - after))


@pytest.mark.slow
def test_a_million_events_take_no_more_than_the_limit() -> None:
    """The oldest are dropped. (A hundredth of each, here.)"""
    emitter = sk.Emitter(relay := MemoryRelay(limit=655), "run")
    tracemalloc.start()
    try:
        for n in range(10_000):
            emitter.emit(e.RawEvent("r", n))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 655 * 500
    emitter.close()
    left = [event.data for event in relay.reader("run") if isinstance(event, e.RawEvent)]
    assert left == list(range(10_000 - len(left), 10_000))
    assert 655 // 2 <= len(left) <= 655
    stream = sk.stream(relay.reader("run"))
    stream.until_done()
    (warning,) = stream.warnings
    assert f"{10_000 - len(left)} messages and other events are missing" in warning.fault


def test_a_reader_that_keeps_up_is_told_each_delta() -> None:
    """Each one by itself."""
    relay = MemoryRelay(limit=5000)
    log = Producer(relay)
    reading = relay.read("run")
    log.append([e.TextCreated(sk.TextMessage("m"))])
    assert len(reading.pull()) == 1
    log.append([e.TextDelta("m", "x") for _ in range(4000)])
    told = 0
    while told < 4000:
        batch = reading.pull()
        assert all(entry.data == codec.encode_event(e.TextDelta("m", "x")) for entry in batch)
        told += len(batch)
    reading.close()


# -- overflow


def messages(count: int, start: int = 0) -> list[e.Event]:
    """A run's beginning, then whole messages."""
    told: list[e.Event] = [e.RunCreated(sk.Run(id="r")), e.RunStepCreated(sk.RunStep(id="s"))] if not start else []
    for n in range(start, start + count):
        told += [
            e.TextCreated(sk.TextMessage(f"m{n}")),
            e.TextDelta(f"m{n}", f"<{n}>"),
            e.TextDone(sk.TextMessage(f"m{n}", content=f"<{n}>")),
        ]
    return told


END = [e.RunDone(sk.Run(id="r", status="completed")), e.StreamEnd()]


def emit(emitter: sk.Emitter, events: Iterable[e.Event]) -> None:
    for event in events:
        emitter.emit(event)


class Collecting(sk.Handler):
    """All events that a stream emits."""

    def __init__(self) -> None:
        self.events: list[e.Event] = []

    def handle(self, event: e.Event, /) -> None:
        self.events.append(event)

    def created(self) -> list[str]:
        return [event.message.id for event in self.events if isinstance(event, e.Created)]

    def done(self) -> dict[str, str]:
        return {event.message.id: event.message.content for event in self.events if isinstance(event, e.Done)}


def test_drop_oldest_keeps_the_newest_and_a_late_reader_begins_with_a_snapshot() -> None:
    """The run, the step, the newest messages that have ended, and what is open; and a warning says how many are gone."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=64), "run")
    emit(emitter, messages(2))
    emit(emitter, [e.CodeCreated(m.CodeMessage("code", format="python")), e.CodeDelta("code", "import "), e.CodeDelta("code", "os")])  # fmt: skip
    emit(emitter, messages(400, 2))
    emit(emitter, [e.CodeDelta("code", "; x"), e.CodeDone(m.CodeMessage("code", content="import os; x"))])
    emitter.close()
    collecting = Collecting()
    stream = sk.stream(relay.reader("run"), collecting)
    stream.until_done()
    types = [event.type for event in collecting.events]
    assert types[:4] == ["run_created", "run_step_created", "code_created", "code_delta"]
    assert isinstance(collecting.events[3], e.CodeDelta)
    assert collecting.events[3].value == "import os"
    assert stream.messages[0].content == "import os; x"
    assert stream.messages[-1].content == "<401>"
    assert 64 < len(stream.messages) < 64 + 64
    (warning,) = stream.warnings
    assert (warning.code, warning.fault.split(": ")[1]) == (
        "dropped",
        f"{403 - len(stream.messages)} messages and other events are missing",
    )
    with pytest.raises(sk.ProtocolError, match="dropped"):
        sk.stream(relay.reader("run"), strict=True).until_done()


def test_a_snapshot_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest messages that have ended are left out of it; what is open, or waits, never is."""
    monkeypatch.setattr("streamkit.relay.run_writer._LARGEST", 500)
    emitter = sk.Emitter(relay := MemoryRelay(limit=300), "run")
    emitter.tool_call("f", {}, call_id="open")
    part = emitter.begin_text()
    part.write("x" * 1000)
    emit(emitter, messages(200, 1))
    (first, *_) = relay.read("run").pull()
    assert first.snapshot
    frame = json.loads(first.data)
    kept = [event for event in frame["events"] if event["type"] in ("text_created", "text_done")]
    assert kept[0]["type"] == "text_created"
    assert len(kept) < 8
    assert [event["type"] for event in frame["events"]].count("tool_call_done") == 1
    assert frame["dropped"] > 40


def test_a_cursor_that_was_dropped_goes_on_with_the_snapshot() -> None:
    """It is told so; one that is still there is not."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=64), "run")
    emit(emitter, messages(400))
    emitter.close()
    lost = sk.stream(relay.reader("run"), after=cursor_of(9))
    lost.until_done()
    assert [warning.code for warning in lost.warnings] == ["dropped"]
    newest = [event.cursor for event in relay.reader("run")][-6]
    collecting = Collecting()
    kept = sk.stream(relay.reader("run"), collecting, after=newest)
    kept.until_done()
    assert kept.messages == lost.messages
    assert len(collecting.created()) <= 1


def test_what_is_dropped_between_opening_and_reading_comes_as_a_snapshot() -> None:
    """The cursor that a stream goes on after is dropped before it reads: no silence, and no gap."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=64), "run")
    emit(emitter, messages(15))
    collecting = Collecting()
    with sk.stream(relay.reader("run"), collecting, after=cursor_of(8)) as stream:
        emit(emitter, messages(40, 15))
        emitter.close()
        assert stream.get_final_text().endswith("<54>")
    assert len(stream.messages) == 55
    assert stream.warnings == ()
    assert set(collecting.done().values()) >= {f"<{n}>" for n in range(2, 55)}


@pytest.mark.parametrize("read", range(0, 41, 8))
@every_face
@body
async def test_a_reader_that_is_too_slow_catches_up_with_a_snapshot(face: Face, read: int) -> None:
    """It misses no message, sees each once, and what was open goes on."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=64), "run")
    emitter.step("one")
    part = emitter.begin_text()
    part.write("open ")
    emit(emitter, [e.Usage(1, 2, 3)])
    emit(emitter, messages(12, 1))
    collecting = Collecting()
    stream = face.stream(relay.reader("run"), collecting)
    async with stream:
        async for _ in stream:
            if len(collecting.events) > read:
                break
        emit(emitter, messages(5, 13))
        emitter.step("two")
        part.write("and on ")
        emit(emitter, messages(40, 18))
        part.write("to the end")
        emit(emitter, [e.Usage(10, 20, 30)])
        part.end()
        emitter.close()
        await stream.until_done()
    assert stream.warnings == ()
    ids = [f"m{n}" for n in range(1, 58)]
    assert sorted(collecting.created()) == sorted([part.message.id, *ids])
    assert collecting.done() == {part.message.id: "open and on to the end", **{id: f"<{id[1:]}>" for id in ids}}
    assert list(stream.messages) == list(emitter.messages)
    assert stream.usage == emitter.usage == e.Usage(11, 22, 33)
    steps = [event.run_step.id for event in collecting.events if isinstance(event, e.RunStepCreated)]
    assert steps == ["one", "two"]
    assert [event.type for event in collecting.events].count("run_created") == 1


def test_a_reader_that_wants_no_snapshot_is_told_that_it_was_too_slow() -> None:
    """With `gap="error"`: at the beginning, or when it comes to what is missing."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=64), "run")
    emit(emitter, messages(10))
    reading = relay.read("run", gap="error")
    last = reading.pull()[-1].cursor
    emit(emitter, messages(100, 10))
    for refused in (reading.pull, lambda: relay.read("run", last, gap="error")):
        with pytest.raises(sk.SourceError, match="not in the log any more") as caught:
            refused()
        assert caught.value.status_code == 410


def test_block_makes_a_writer_wait_for_the_slowest_reader() -> None:
    """Nothing is lost, and it is never further ahead than the limit."""
    emitter = sk.Emitter(relay := MemoryRelay(limit=100, overflow="block"), "run")
    written = 0

    def write() -> None:
        nonlocal written
        for n in range(1000):
            emitter.emit(e.RawEvent("r", n))
            written += 1
        emitter.close()

    emitter.emit(e.RawEvent("first", None))
    first, second = relay.read("run"), relay.read("run")
    seen = [
        [*(reading.pull() or [])] for reading in (first, second)
    ]  # from its first pull on, the writer waits for a reader
    thread = threading.Thread(target=write)
    thread.start()
    while (batch := first.pull()) is not None:
        seen[0] += batch
        assert len(seen[0]) <= len(seen[1]) + 202
        if len(seen[0]) - len(seen[1]) >= 100 or written == 1000:
            seen[1] += second.pull() or []
    while (batch := second.pull()) is not None:
        seen[1] += batch
    thread.join()
    for one in seen:
        events = [codec.decode_event(entry.data) for entry in one]
        assert [event.data for event in events if isinstance(event, e.RawEvent)] == [None, *range(1000)]


def test_block_waits_for_the_first_reader_and_not_for_those_who_left() -> None:
    """A consumer that goes away does not stop the producer."""
    relay = MemoryRelay(limit=10, overflow="block")
    log = Producer(relay)
    done = threading.Event()

    def write() -> None:
        for n in range(100):
            log.append([e.RawEvent("r", n)])
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert not done.wait(0.1)
    reading = relay.read("run")
    reading.pull()
    reading.close()
    assert done.wait(20)


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_block_does_not_wait_for_a_reader_that_was_dropped(face: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody closed it, and the garbage collector has no other reason to run."""
    monkeypatch.setattr("streamkit.relay.memory.ends._PAUSE", 0.01)
    emitter = sk.Emitter(MemoryRelay(limit=3, overflow="block"))
    emitter.text("a")

    async def write() -> None:
        async for _ in sk.astream(emitter):
            break
        for _ in range(20):
            await emitter.drain()
            emitter.text("a")

    gc.disable()
    try:
        if face == "asyncio":
            anyio.run(write)
        else:
            next(iter(sk.stream(emitter)))
            for _ in range(20):
                emitter.text("a")
    finally:
        gc.enable()
    assert emitter.messages[0].content == "a" * 21


def test_block_in_an_event_loop_has_to_be_awaited() -> None:
    """It would block the loop, perhaps for ever."""
    relay = MemoryRelay(limit=3, overflow="block")

    async def main(run_id: str) -> None:
        log = Producer(relay, run_id)
        for n in range(3):
            log.append([e.RawEvent("r", n)])
        with pytest.raises(sk.UsageError, match="await"):
            log.append([e.RawEvent("r", 3)])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(log.writer.adrain)
            await anyio.wait_all_tasks_blocked()
            reading = relay.read(run_id)
            assert len(await reading.apull() or []) == 3
        log.append([e.RawEvent("r", 3)])

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend, backend=backend)


def test_error_refuses_what_is_too_much_and_keeps_what_is_there() -> None:
    """The run can still be closed."""
    relay = MemoryRelay(limit=10, overflow="error")
    log = Producer(relay)
    for n in range(10):
        log.append([e.RawEvent("r", n)])
    with pytest.raises(sk.UsageError, match="10 events behind"):
        log.append([e.RawEvent("r", 10)])
    log.close()
    assert [event.data for event in relay.reader("run") if isinstance(event, e.RawEvent)] == list(range(10))


@pytest.mark.parametrize("options", [{"limit": 0}, {"overflow": "explode"}])
def test_a_policy_that_is_none_is_refused(options: dict[str, Any]) -> None:
    """At once, by name."""
    with pytest.raises(sk.UsageError):
        MemoryRelay(**options)


# -- going on after a cursor


def parts(relay: Relay, cuts: list[int]) -> list[Any]:
    """A run read in parts: each stream reads so many events, and the next goes on after its cursor."""
    streams: list[Any] = []
    cursor: str | None = None
    for cut in [*cuts, None]:
        told: list[e.Event] = []
        stream = sk.stream(relay.reader("run"), after=cursor)
        with stream:
            for event in stream:
                told.append(event)
                if cut is not None and len(told) >= cut:
                    break
        streams.append((stream, told))
        cursor = stream.cursor
        if told and told[-1].type == "stream_end":
            break
    return streams


@pytest.mark.slow
@often
@given(q.drawn(canonical), st.data())
def test_reading_in_parts_tells_the_same_messages(events: list[e.Event], data: st.DataObject) -> None:
    """Whatever the story, and wherever each part stops."""
    relay = MemoryRelay()
    with pytest.MonkeyPatch.context() as patch:
        size = data.draw(st.sampled_from((2, 5, 256)))
        patch.setattr("streamkit.relay.memory.log._BLOCK", size)
        patch.setattr("streamkit.relay.memory.log._TAIL", 2 * size)
        tell_into(relay, events)
        check_parts(relay, data)


def check_parts(relay: Relay, data: st.DataObject) -> None:
    try:
        whole = sk.stream(relay.reader("run"))
        whole.until_done()
    except sk.StreamkitError:
        pass
    cuts = data.draw(st.lists(st.integers(1, 9), max_size=4))
    done: dict[str, m.Message] = {}
    try:
        read = parts(relay, cuts)
        for _, told in read:
            created: set[str] = set()
            for event in told:
                if isinstance(event, e.Created):
                    assert event.message.id not in created, "created once"
                    created.add(event.message.id)
                elif isinstance(event, e.Delta):
                    assert event.message_id in created, "before its first delta"
                elif isinstance(event, e.Done) and event.message.status == "completed":
                    done.setdefault(event.message.id, event.message)
        assert list(read[-1][0].messages) == list(whole.messages)
    except sk.StreamkitError as error:
        assert type(error) is type(whole.error)
    assert {message.id for message in whole.messages if message.status == "completed"} >= set(done)


def test_every_cursor_of_a_run_goes_on_with_the_same_messages() -> None:
    """What is open is told as created plus one delta of all so far; what ended is there, and not told."""
    relay = MemoryRelay()
    cursors = written(relay, "abc", "de")
    whole = sk.stream(relay.reader("run")).get_final_messages()
    for place in range(1, len(cursors) + 1):
        told: list[e.Event] = []

        class Telling(sk.Handler):
            def handle(self, event: e.Event, /) -> None:
                told.append(event)  # noqa: B023
                if isinstance(event, e.Created):
                    assert event.message.content == ""

        stream = sk.stream(relay.reader("run"), Telling(), after=cursors[place - 1])
        assert stream.get_final_messages() == whole
        before = list(relay.reader("run"))[:place]
        ended = {event.message.id for event in before if isinstance(event, e.Done)}
        begun = {event.message.id for event in before if isinstance(event, e.Created)} - ended
        for id in ended:
            assert not [event for event in told if event.message_id == id]
            assert not [event for event in told if isinstance(event, e.Created) and event.message.id == id]
        for id in begun:
            so_far = "".join(event.value for event in before if isinstance(event, e.Delta) and event.message_id == id)
            values = [event.value for event in told if isinstance(event, e.Delta) and event.message_id == id]
            assert values[: 1 if so_far else 0] == ([so_far] if so_far else [])
        if place > len(cursors) - 2:  # the run was done
            assert [(event.type, event.cursor) for event in told] == [("stream_end", cursors[-1])]
        else:
            assert [event.type for event in told[:1] + told[-2:]] == ["run_created", "run_done", "stream_end"]
            assert [event.cursor for event in told[-2:]] == cursors[-2:]
        assert stream.cursor == cursors[-1]


@every_relay
@every_face
@body
@pytest.mark.parametrize("end", ["close", "fail", "time out", "cancel"])
async def test_after_the_last_cursor_there_is_only_the_end(
    face: Face, relay_of: Callable[..., Relay], end: str
) -> None:
    """However the run ended. A client that comes back after it receives nothing twice, and the error is raised again."""
    emitter = sk.Emitter(relay_of())
    emitter.text("hi")
    ends: dict[str, Callable[[], None]] = {
        "close": emitter.close,
        "fail": lambda: emitter.fail("no"),
        "time out": lambda: emitter.fail(sk.SourceTimeoutError("no")),
        "cancel": emitter.cancel,
    }
    ends[end]()
    log = list(emitter.reader())
    whole, last = await events_of(face, face.stream(emitter))
    assert [(event.type, event.cursor) for event in whole] == [(event.type, event.cursor) for event in log]
    assert last.cursor == emitter.cursor == log[-1].cursor
    for place, event in enumerate(log):
        again, stream = await events_of(face, face.stream(emitter.reader(), after=event.cursor))
        if event.type in ("run_done", "stream_timeout", "stream_exception", "stream_end"):
            rest = log[place + 1 :] or log[-1:]
            assert [(one.type, one.cursor) for one in again] == [(one.type, one.cursor) for one in rest]
        assert (stream.status, stream.cursor) == (last.status, last.cursor)
        assert type(stream.error) is type(last.error)
        assert text(stream) == "hi"
    assert list(emitter.reader(after=emitter.cursor)) == []


async def events_of(face: Face, stream: Any) -> tuple[list[e.Event], Any]:
    """All events of a stream, and the stream; an error is in `stream.error`."""
    events: list[e.Event] = []
    with contextlib.suppress(sk.SourceError):
        async for event in stream:
            events.append(event)
    return events, stream


def test_a_body_of_a_streams_own_events_has_the_cursors_of_its_end() -> None:
    """Server-Sent Events with ids: as a server sends a run."""
    relay = MemoryRelay()
    written(relay, "abc")
    frames = [
        f"id: {event.cursor}\ndata: {json.dumps(codec.event_to_dict(event))}\n\n".encode()
        for event in relay.reader("run")
    ]
    stream = sk.stream(list(frames))
    cursors = [event.cursor for event in stream]
    assert cursors == [event.cursor for event in relay.reader("run")]
    assert [event.type for event in sk.stream(list(frames), after=stream.cursor)] == ["stream_end"]


@every_relay
def test_a_cursor_names_its_run(relay_of: Callable[..., Relay]) -> None:
    """One of another run is refused, on the reader and on the stream, in words that say so."""
    relay = relay_of()
    cursors = written(relay, "abc", run_id="one")
    written(relay, "xyz", run_id="two")
    for refused in (
        lambda: relay.reader("two", after=cursors[3]),
        lambda: sk.stream(relay.reader("two"), after=cursors[3]).until_done(),
    ):
        with pytest.raises(sk.UsageError, match=r"run 'two': cursor '1-4\.[0-9a-f]{8}' belongs to another run"):
            refused()


def test_everything_that_is_open_at_a_cursor_is_told_again() -> None:
    """Its annotations, the line that runs, and the question that waits."""
    relay = MemoryRelay()
    log = Producer(relay)
    asked = sk.Confirmation("c", m.CodeMessage("code", content="x"))
    note = sk.Annotation(type="url_citation", url="u")
    log.append(
        [
            e.RunCreated(sk.Run(id="r")),
            e.RunStepCreated(sk.RunStep(id="s")),
            e.TextCreated(sk.TextMessage("t")),
            e.TextDelta("t", "a"),
            e.AnnotationAdded("t", note),
            e.ConsoleCreated(m.ConsoleMessage("o")),
            e.ActiveLine("o", 3),
            e.ConfirmationCreated(asked),
            e.RawEvent("here"),
            e.TextDelta("t", "b"),
            e.TextDone(sk.TextMessage("t", content="ab", annotations=[note])),
            *END,
        ],
    )
    log.close()
    seen: list[tuple[str, Any]] = []

    class Telling(sk.EventHandler):
        def on_text_created(self, message: Any, /) -> None:
            seen.append(("created", list(message.annotations)))

        def on_annotation(self, annotation: Any, snapshot: Any, /) -> None:
            seen.append(("annotation", snapshot.content))

        def on_active_line(self, line: int | None, snapshot: Any, /) -> None:
            seen.append(("line", line))

        def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
            seen.append(("asked", confirmation.id))

    stream = sk.stream(relay.reader("run"), Telling(), after=cursor_of(9))
    stream.until_done()
    assert seen == [("created", []), ("annotation", "a"), ("line", 3), ("asked", "c")]
    text = stream.messages[0]
    assert isinstance(text, sk.TextMessage)
    assert text.annotations == [note]


@every_relay
@every_face
@body
async def test_a_live_run_is_gone_on_with(face: Face, relay_of: Callable[..., Relay]) -> None:
    """The cursor of a stream that was closed in the middle; the run goes on meanwhile."""
    relay = relay_of()
    log = Producer(relay)
    events = story("abc", "de")
    cursors = log.append(events[:4])
    first = face.stream(relay.reader("run"))
    async with first:
        async for event in first:
            if event.cursor == cursors[3]:
                break
    assert first.cursor == cursors[3]
    log.append(events[4:6])
    second = face.stream(relay.reader("run"), after=first.cursor)

    def write() -> None:
        log.append(events[6:])
        log.close()

    pieces: list[str] = []
    async with face.beside(write):
        async for piece in second.text_deltas:
            pieces.append(piece)
    assert pieces == ["a", "b", "c", "d", "e"]
    assert [message.content for message in second.messages] == ["abc", "de"]


def test_any_source_whose_items_have_ids_is_gone_on_with() -> None:
    """An SSE body here."""
    chunks = [
        {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": piece}}]}
        for piece in "abc"
    ]
    frames = [f"id: {n}\ndata: {json.dumps(chunk)}\n\n".encode() for n, chunk in enumerate(chunks)]
    source = [*frames, b"data: [DONE]\n\n"]
    stream = sk.stream(source, after="1")
    assert list(stream.text_deltas) == ["ab", "c"]
    with pytest.raises(sk.UsageError, match="nothing in it had the cursor"):
        sk.stream(source, after="9").until_done()


# -- who is gone


def test_a_silent_producer_is_told_as_a_timeout() -> None:
    """Of the reader's own limit, here after a second of heartbeats."""
    relay = MemoryRelay(timeout=math.inf)
    log = Producer(relay)
    log.append(story("abc")[:5])
    hooks: list[str] = []

    class Handler(sk.EventHandler):
        def on_timeout(self) -> None:
            hooks.append("timeout")

        def on_end(self) -> None:
            hooks.append("end")

    def live() -> None:
        for _ in range(6):
            log.writer.heartbeat()
            time.sleep(0.2)

    began = time.monotonic()
    threading.Thread(target=live, daemon=True).start()
    stream = sk.stream(relay.reader("run", timeout=1), Handler())
    with pytest.raises(sk.SourceTimeoutError, match="was silent for"):
        stream.until_done()
    assert 1.9 < time.monotonic() - began < 10
    assert hooks == ["timeout", "end"]
    assert text(stream) == "ab"
    # The run itself is none the worse: the cursor goes on.
    log.append(story("abc")[5:])
    log.close()
    assert sk.stream(relay.reader("run"), after=stream.cursor).get_final_text() == "abc"


@pytest.mark.slow
def test_a_loop_may_leave_a_reader_on_any_event_loop() -> None:
    """Nothing warns of it, and nothing is left over: not the event loop either."""
    relay = MemoryRelay()
    written(relay, "abc")
    loops: list[Any] = []

    async def main() -> None:
        loops.append(weakref.ref(anyio.lowlevel.current_token().native_token))
        async for _ in relay.reader("run"):
            break

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
    gc.collect()
    assert [loop() for loop in loops] == [None, None]


async def leave_a_loop(emitter: sk.Emitter) -> None:
    async for _ in emitter.reader():
        return


def test_a_loop_that_is_left_early_reads_no_more() -> None:
    """Whether it was in a thread or in a task; the garbage collector is not needed."""
    emitter = sk.Emitter(relay := MemoryRelay())
    emitter.text("a")
    gc.disable()
    try:
        for _ in emitter.reader():
            break
        anyio.run(leave_a_loop, emitter)
        record = relay.get(emitter.run_id)
    finally:
        gc.enable()
    assert record is not None
    assert record.readers == 0


def test_readers_that_are_dropped_are_forgotten() -> None:
    """A reader that was never closed holds back nobody."""
    relay = MemoryRelay(limit=4, overflow="block")
    log = Producer(relay)
    reading = iter(relay.reader("run"))
    log.append([e.RawEvent("r")])
    next(reading)
    del reading
    gc.collect()
    for n in range(50):
        log.append([e.RawEvent("r", n)])


def test_a_reader_that_waits_learns_at_once_that_its_producer_was_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when it looks again."""
    monkeypatch.setattr("streamkit.relay.memory.run.GRACE", 600.0)
    relay = MemoryRelay()
    emitter = sk.Emitter(relay, "run")
    emitter.text("a")
    statuses: list[Any] = []
    at_first = threading.Event()

    def read() -> None:
        for event in relay.reader("run"):
            at_first.set()
            if isinstance(event, e.StreamEnd):
                statuses.append(event.status)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    assert at_first.wait(20)
    del emitter
    gc.collect()
    thread.join(20)
    assert statuses == ["failed"]


def test_a_question_waits_for_a_reader_that_left_without_going_on() -> None:
    """It may come back: that the others go on decides nothing."""
    relay, received = MemoryRelay(), list[Any]()
    writer = relay.open("run", control=received.append)
    first, second = relay.read("run"), relay.read("run")
    writer.ask("q", {}, [b"{}"])
    first.pull()
    second.pull()
    first.close()
    second.skip("q")
    assert received == []
    assert 0 < writer.unattended("q") < 5
