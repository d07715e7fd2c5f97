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
from streamkit.protocols import codec
from streamkit.relay import MemoryRelay, Reading, Relay, RunLog
from streamkit.relay.log import Log, cursor_of
from streamkit.relay.wakers import TaskWaker, ThreadWaker

from . import values as q
from .faces import Face, body, every_face
from .telling import tell_items
from .test_laws import canonical

often = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Every relay there is, by what makes a new one.
RELAYS: dict[str, Callable[..., Relay]] = {"memory": MemoryRelay}
every_relay = pytest.mark.parametrize("relay_of", list(RELAYS.values()), ids=list(RELAYS))

CANONICAL = protocols.find("streamkit").Decoder


def story(*pieces: str) -> list[e.Event]:
    """A whole run: one message a piece, each told in deltas of a character."""
    told: list[e.Event] = []
    for number, piece in enumerate(pieces, 1):
        told.append(e.TextCreated(sk.TextMessage(f"m{number}")))
        told += [e.TextDelta(f"m{number}", character) for character in piece]
        told.append(e.TextDone(sk.TextMessage(f"m{number}", content=piece)))
    return [*tell_items(CANONICAL, told).events, e.StreamEnd()]


def written(relay: Relay, *pieces: str, run_id: str = "run") -> list[str]:
    relay.open(run_id)
    cursors = relay.append(run_id, story(*pieces))
    relay.close(run_id)
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

    relay.open("run")
    for event in told():
        lines.append(codec.event_to_dict(event))
        relay.append("run", [event], wait=False)
    relay.close("run")
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
    assert [event.cursor for event in relay.read("run")] == cursors
    for place, cursor in enumerate(cursors, 1):
        assert [event.cursor for event in relay.read("run", after=cursor)] == cursors[place:]
    assert [event.cursor for event in relay.read("run", after="1-0")] == cursors


@every_relay
def test_reading_tells_what_writing_was_told(relay_of: Callable[..., Relay]) -> None:
    """Nothing but the source, the snapshot and the cursor is another's."""
    relay = relay_of()
    told = tell_into(relay, story("abc"))
    assert without_cursors(plain(relay.read("run"))) == told


@every_relay
@every_face
@body
async def test_a_reader_waits_for_more_until_the_run_is_closed(face: Face, relay_of: Callable[..., Relay]) -> None:
    """It is told each batch as it is written."""
    relay = relay_of()
    relay.open("run")
    events = story("abc", "de")
    told: list[str] = []
    seen = threading.Event()

    def write() -> None:
        for event in events:
            seen.clear()
            relay.append("run", [event])
            assert seen.wait(5), "it was told at once"
        relay.close("run")

    class Seeing(sk.Handler):
        def handle(self, event: e.Event, /) -> None:
            told.append(event.type)
            seen.set()

    # The engine tells the run's end when the log is closed: the writer is not to wait for that.
    raw = relay.read("run") if not face.is_async else relay.aread("run")
    async with face.beside(write):
        if face.is_async:
            async for event in raw:  # type: ignore[union-attr]
                Seeing().handle(event)
        else:
            for event in raw:  # type: ignore[union-attr]
                Seeing().handle(event)
    assert told == [event.type for event in events]


@every_relay
def test_a_run_is_opened_once_and_closed_once(relay_of: Callable[..., Relay]) -> None:
    """Whoever comes second is told."""
    relay = relay_of()
    relay.open("run")
    with pytest.raises(sk.UsageError, match="already"):
        relay.open("run")
    assert relay.status("run") == "open"
    won: list[bool] = []
    threads = [threading.Thread(target=lambda: won.append(relay.close("run"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(won) == [False] * 7 + [True]
    assert relay.status("run") == "closed"
    with pytest.raises(sk.UsageError, match="closed"):
        relay.append("run", story("a"))
    assert list(relay.read("run")) == []


@every_relay
def test_a_run_that_is_closed_with_an_error_fails_its_readers(relay_of: Callable[..., Relay]) -> None:
    """What had arrived is kept."""
    relay = relay_of()
    relay.open("run")
    relay.append("run", story("abc")[:5])
    assert relay.close("run", sk.SourceTimeoutError("gone"))
    told: list[str] = []

    class Handler(sk.EventHandler):
        def on_timeout(self) -> None:
            told.append("timeout")

        def on_exception(self, exception: Exception, /) -> None:
            told.append(type(exception).__name__)

    stream = sk.stream(relay.reader("run"), Handler())
    with pytest.raises(sk.SourceTimeoutError, match="gone"):
        stream.until_done()
    assert text(stream) == "ab"
    assert told == ["timeout", "SourceTimeoutError"]


@every_relay
def test_a_run_that_is_closed_in_its_middle_is_told_as_cut_off(relay_of: Callable[..., Relay]) -> None:
    """No end in the log is no success."""
    relay = relay_of()
    relay.open("run")
    relay.append("run", story("abc")[:5])
    relay.close("run")
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(relay.reader("run")).until_done()


@every_relay
@pytest.mark.parametrize(
    ("cursor", "says"),
    [
        ("", "is no cursor"),
        ("nonsense", "is no cursor"),
        ("17", "is no cursor"),
        ("1-017", "is no cursor"),
        ("1--1", "is no cursor"),
        ("2-1", "is no cursor"),
        ("1-" + "9" * 40, "is no cursor"),
        ("1-99", "after the newest"),
        ("1-1.9c0a3f2", "is no cursor"),
        ("1-1.9c0a3f21", "of another run"),
        (17, "is no cursor"),
        (b"1-1", "is no cursor"),
    ],
)
def test_a_bad_cursor_is_told_clearly(relay_of: Callable[..., Relay], cursor: Any, says: str) -> None:
    """On the reader, and on the stream; before anything waits."""
    relay = relay_of()
    relay.open("run")
    relay.append("run", story("abc"))
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
    with pytest.raises(sk.UsageError, match="1-3"):
        sk.stream(relay.reader("run", after="1-4"), after="1-3").until_done()
    sk.stream(relay.reader("run", after="1-4"), after="1-4").until_done()


@every_relay
def test_a_run_that_is_not_there_is_told_as_not_found(relay_of: Callable[..., Relay]) -> None:
    """Never, or no longer."""
    relay = relay_of()
    written(relay, "a")
    relay.delete("run")
    for run_id in ("run", "other"):
        with pytest.raises(sk.SourceError, match="no run") as caught:
            relay.reader(run_id)
        assert caught.value.status_code == 404
        assert relay.status(run_id) is None
        with pytest.raises(sk.UsageError):
            relay.append(run_id, story("a"))
        assert relay.close(run_id) is False


def test_a_closed_run_expires() -> None:
    """And an open one whose producer gave no sign of life; a reader of that one is told."""
    relay = MemoryRelay(ttl=0.05, ttl_open=0.1)
    written(relay, "a", run_id="closed")
    relay.open("open")
    relay.append("open", story("a")[:4])
    reading = relay.read("open")
    assert next(reading).type == "run_created"
    deadline = time.monotonic() + 5
    while (relay.status("closed") or relay.status("open")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert relay.status("closed") is relay.status("open") is None
    assert [event.type for event in reading][-2:] == ["stream_exception", "stream_end"]


def test_what_is_written_is_kept_as_it_was() -> None:
    """Live messages, runs and confirmations go on without it."""
    relay = MemoryRelay()
    relay.open("run")
    message = sk.TextMessage("m", status="in_progress")
    run = sk.Run(id="r")
    relay.append("run", [e.RunCreated(run), e.TextCreated(message)])
    run.status, message.name = "failed", "other"
    relay.close("run")
    first, second = relay.read("run")
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
    again = tell_items(CANONICAL, list(relay.read("run")))
    assert without_cursors(again.lines) == first[:-1], "all but the stream's own end"


# -- the log in little memory


deltas = st.builds(
    lambda kind, which, value, replace, metadata: kind(f"m{which}", value, replace, metadata),
    st.sampled_from((e.TextDelta, e.ReasoningDelta, e.ConsoleDelta, e.MessageDelta)),
    st.integers(1, 2),
    st.text("abé", min_size=1, max_size=4) | st.just("x" * 300),
    st.sampled_from((False, False, False, True)),
    st.sampled_from((None, None, {"stream": "stdout"})),
)


@pytest.mark.slow
@often
@given(st.lists(deltas | st.builds(e.RawEvent, st.just("r")), max_size=60), st.integers(1, 40), st.data())
def test_a_log_gives_what_was_written_after_every_cursor(
    events: list[e.Event], limit: int, data: st.DataObject
) -> None:
    """However much of it is joined, and wherever a reading stops: the deltas of a message are the same text."""
    log = Log(limit)
    for event in events:
        log.append(type(event)(event.message_id, event.value, event.replace, event.metadata) if isinstance(event, e.Delta) else e.RawEvent("r"))  # fmt: skip
        if log.joinable and data.draw(st.booleans()):
            log.join()
    for after in range(len(events) + 1):
        until = data.draw(st.integers(after, len(events)))
        told: list[e.Event] = []
        place = after
        while True:
            batch, place = log.events(place, until)
            told += batch
            if not batch:
                break
            assert batch[-1].cursor == cursor_of(place)
        assert place == until
        assert joined(told) == joined(events[after:until])


def joined(events: list[e.Event]) -> list[list[Any]]:
    """The events, consecutive deltas of the same as one."""
    out: list[list[Any]] = []
    for event in events:
        if not isinstance(event, e.Delta):
            out.append([event.type])
            continue
        key = [event.type, event.message_id, event.metadata]
        if out and out[-1][:3] == key and not event.replace:
            out[-1][4] += event.value
        else:
            out.append([*key, event.replace, event.value])
    return out


def test_pieces_of_base64_are_never_joined() -> None:
    """Each has padding of its own."""
    log = Log(8)
    for _ in range(20):
        log.append(e.MessageDelta("m", "QQ=="))
        if log.joinable:
            log.join()
    assert log.entries == 20


MILLION = """
import resource, streamkit as sk
relay = sk.MemoryRelay()
emitter = sk.Emitter(relay, "run")
emitter.text("word")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(1_000_000):
    emitter.text("word")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere the resident set is counted in another unit, or not at all"
)
def test_a_million_deltas_fit_into_little_memory() -> None:
    """Of four megabytes of text, in a process of its own; kept one by one they would take 200."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
        cwd=Path(sk.__file__).parents[1],
    )
    assert int(done.stdout) < 40 * 1024


@pytest.mark.slow
def test_deltas_take_little_more_than_their_text() -> None:
    """Every cursor is still valid."""
    emitter = sk.Emitter(relay := MemoryRelay(), "run")
    count = 100_000
    reading = relay.reading("run")
    tracemalloc.start()
    try:
        for n in range(count):
            emitter.text("word")
            if n % 1000 == 999:
                reading.pull()
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reading.close()
    text_size = 4 * count  # once in the emitter's own message, once in the log
    assert held < 3 * text_size, f"{held / text_size:.2f} x the text"
    assert peak < 4 * text_size, f"{peak / text_size:.2f} x the text"
    emitter.close()
    before = 3  # the run, its step, the message
    for after in (0, 1, 2, 3, 4, 1023, 1024, 1025, 50_000, 99_999, count + 2, count + 3, count + 4):
        values = [x.value for x in relay.read("run", after=f"1-{after}") if isinstance(x, e.Delta)]
        assert len("".join(values)) == 4 * max(0, min(count, count + before - after))


@pytest.mark.slow
def test_a_million_events_that_cannot_be_joined_take_no_more_than_the_limit() -> None:
    """The oldest are dropped. (A hundredth of each, here.)"""
    relay = MemoryRelay(limit=655)
    relay.open("run")
    tracemalloc.start()
    try:
        for n in range(10_000):
            relay.append("run", [e.RawEvent("r", n)])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 655 * 500
    relay.close("run")
    left = [event.data for event in relay.read("run") if isinstance(event, e.RawEvent)]
    assert left == list(range(10_000 - len(left), 10_000))
    assert 500 < len(left) <= 655


def test_a_reader_that_keeps_up_is_told_each_delta() -> None:
    """What it has not read is not joined, below the limit."""
    relay = MemoryRelay(limit=5000)
    relay.open("run")
    reading = relay.reading("run")
    relay.append("run", [e.TextCreated(sk.TextMessage("m"))])
    assert reading.pull() is not None
    relay.append("run", [e.TextDelta("m", "x") for _ in range(4000)])
    told = 0
    while told < 4000:
        batch = reading.pull()
        assert batch is not None
        assert all(isinstance(event, e.Delta) and event.value == "x" for event in batch)
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


def test_drop_oldest_keeps_the_newest_and_a_late_reader_begins_with_what_was_open() -> None:
    """The run, the step, the open message as created plus one delta; and a warning says what is gone."""
    relay = MemoryRelay(limit=64)
    relay.open("run")
    relay.append("run", messages(2))
    relay.append("run", [e.CodeCreated(m.CodeMessage("code", format="python")), e.CodeDelta("code", "import "), e.CodeDelta("code", "os")])  # fmt: skip
    relay.append("run", messages(400, 2))
    relay.append("run", [e.CodeDelta("code", "; x"), e.CodeDone(m.CodeMessage("code", content="import os; x"))])
    relay.append("run", END)
    relay.close("run")
    told: list[e.Event] = []

    class Telling(sk.Handler):
        def handle(self, event: e.Event, /) -> None:
            told.append(event)

    stream = sk.stream(relay.reader("run"), Telling())
    stream.until_done()
    types = [event.type for event in told]
    assert types[:4] == ["run_created", "run_step_created", "code_created", "code_delta"]
    assert isinstance(told[3], e.CodeDelta)
    assert told[3].value == "import os"
    assert [warning.code for warning in stream.warnings] == ["dropped"]
    assert stream.messages[0].content == "import os; x"
    assert stream.messages[-1].content == "<401>"
    assert 10 < len(stream.messages) < 64
    with pytest.raises(sk.ProtocolError, match="dropped"):
        sk.stream(relay.reader("run"), strict=True).until_done()


def test_a_cursor_that_was_dropped_goes_on_with_what_was_open() -> None:
    """It is told so; one that is still there is not."""
    relay = MemoryRelay(limit=64)
    relay.open("run")
    relay.append("run", messages(400))
    relay.append("run", END)
    relay.close("run")
    lost = sk.stream(relay.reader("run"), after="1-9")
    lost.until_done()
    assert [warning.code for warning in lost.warnings] == ["dropped"]
    newest = [event.cursor for event in relay.read("run")][-6]
    kept = sk.stream(relay.reader("run"), after=newest)
    kept.until_done()
    assert kept.warnings == ()
    assert kept.messages[-1].content == "<399>"


def test_what_is_dropped_between_opening_and_reading_is_told() -> None:
    """The cursor that a stream goes on after was dropped, and more is before it reads: no silence, and no gap."""
    relay = MemoryRelay(limit=64)
    relay.open("run")
    relay.append("run", messages(40))
    with sk.stream(relay.reader("run"), after="1-9") as stream:
        relay.append("run", messages(40, 40))
        relay.append("run", END)
        relay.close("run")
        with pytest.raises(sk.SourceError, match="too slow"):
            stream.until_done()
    with sk.stream(relay.reader("run"), after="1-9") as stream:
        assert stream.get_final_text().endswith("<79>")
        assert [warning.code for warning in stream.warnings] == ["dropped"]


def test_drop_oldest_tells_a_reader_that_is_too_slow() -> None:
    """No silent gap; it can go on from where it was, with what is open."""
    relay = MemoryRelay(limit=64)
    relay.open("run")
    cursors = relay.append("run", messages(1))
    stream = sk.stream(relay.reader("run"))
    events = iter(stream)
    while stream.cursor != cursors[4]:
        next(events)
    relay.append("run", messages(400, 1))
    with pytest.raises(sk.SourceError, match="too slow") as caught:
        list(events)
    assert caught.value.status_code == 410
    relay.append("run", END)
    relay.close("run")
    again = sk.stream(relay.reader("run"), after=stream.cursor)
    again.until_done()
    assert again.messages[-1].content == "<400>"


def test_block_makes_a_writer_wait_for_the_slowest_reader() -> None:
    """Nothing is lost, and it is never further ahead than the limit."""
    relay = MemoryRelay(limit=100, overflow="block")
    relay.open("run")
    written = 0

    def write() -> None:
        nonlocal written
        for n in range(1000):
            relay.append("run", [e.RawEvent("r", n)])
            written += 1
        relay.close("run")

    first, second = relay.reading("run"), relay.reading("run")
    thread = threading.Thread(target=write)
    thread.start()
    seen: list[Any] = []
    for reading in (first, second):
        seen.append([])
        seen[-1] += reading.pull() or []
    time.sleep(0.05)
    while (batch := first.pull()) is not None:
        seen[0] += batch
        assert len(seen[0]) <= len(seen[1]) + 201
        if len(seen[0]) - len(seen[1]) >= 100 or len(seen[0]) == 1000:
            seen[1] += second.pull() or []
    while (batch := second.pull()) is not None:
        seen[1] += batch
    thread.join()
    assert written == 1000
    for one in seen:
        assert [event.data for event in one] == list(range(1000))


def test_block_waits_for_the_first_reader_and_not_for_those_who_left() -> None:
    """A consumer that goes away does not stop the producer."""
    relay = MemoryRelay(limit=10, overflow="block")
    relay.open("run")
    done = threading.Event()

    def write() -> None:
        for n in range(100):
            relay.append("run", [e.RawEvent("r", n)])
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert not done.wait(0.1)
    reading = relay.reading("run")
    reading.pull()
    reading.close()
    assert done.wait(5)


def test_block_in_an_event_loop_has_to_be_awaited() -> None:
    """It would block the loop, perhaps for ever."""
    relay = MemoryRelay(limit=3, overflow="block")
    relay.open("run")

    async def main() -> None:
        for n in range(3):
            relay.append("run", [e.RawEvent("r", n)])
        with pytest.raises(sk.UsageError, match="await"):
            relay.append("run", [e.RawEvent("r", 3)])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay.adrain, "run")
            await anyio.wait_all_tasks_blocked()
            reading = relay.reading("run")
            assert len(await reading.apull() or []) == 3
        relay.append("run", [e.RawEvent("r", 3)])

    for backend in ("asyncio", "trio"):
        relay.delete("run")
        relay.open("run")
        anyio.run(main, backend=backend)


def test_error_refuses_what_is_too_much_and_keeps_what_is_there() -> None:
    """The run can still be closed."""
    relay = MemoryRelay(limit=10, overflow="error")
    relay.open("run")
    for n in range(10):
        relay.append("run", [e.RawEvent("r", n)])
    with pytest.raises(sk.UsageError, match="10 events behind"):
        relay.append("run", [e.RawEvent("r", 10)])
    relay.close("run")
    assert [event.data for event in relay.read("run") if isinstance(event, e.RawEvent)] == list(range(10))


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
        patch.setattr("streamkit.relay.log._MOST", data.draw(st.sampled_from((2, 5, 1024))))  # joined together
        tell_into(relay, events)
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
        before = list(relay.read("run"))[:place]
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
        for event in relay.read("run")
    ]
    stream = sk.stream(list(frames))
    cursors = [event.cursor for event in stream]
    assert cursors == [event.cursor for event in relay.read("run")]
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
        with pytest.raises(sk.UsageError, match=r"run 'two': cursor '1-4\.[0-9a-f]{8}' is one of another run"):
            refused()


def test_everything_that_is_open_at_a_cursor_is_told_again() -> None:
    """Its annotations, the line that runs, and the question that waits."""
    relay = MemoryRelay()
    relay.open("run")
    asked = sk.Confirmation("c", m.CodeMessage("code", content="x"))
    note = sk.Annotation(type="url_citation", url="u")
    relay.append(
        "run",
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
    relay.close("run")
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

    stream = sk.stream(relay.reader("run"), Telling(), after="1-9")
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
    relay.open("run")
    events = story("abc", "de")
    cursors = relay.append("run", events[:4])
    first = face.stream(relay.reader("run"))
    async with first:
        async for event in first:
            if event.cursor == cursors[3]:
                break
    assert first.cursor == cursors[3]
    relay.append("run", events[4:6])
    second = face.stream(relay.reader("run"), after=first.cursor)

    def write() -> None:
        relay.append("run", events[6:])
        relay.close("run")

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
    """Of the reader's own limit; a heartbeat is a sign of life."""
    relay = MemoryRelay(timeout=math.inf)
    relay.open("run")
    relay.append("run", story("abc")[:5])
    hooks: list[str] = []

    class Handler(sk.EventHandler):
        def on_timeout(self) -> None:
            hooks.append("timeout")

        def on_end(self) -> None:
            hooks.append("end")

    began = time.monotonic()
    threading.Timer(0.15, relay.heartbeat, ["run"]).start()
    stream = sk.stream(relay.reader("run", timeout=0.3), Handler())
    with pytest.raises(sk.SourceTimeoutError, match="was silent for"):
        stream.until_done()
    assert 0.4 < time.monotonic() - began < 3
    assert hooks == ["timeout", "end"]
    assert text(stream) == "ab"
    # The run itself is none the worse: the cursor goes on.
    relay.append("run", story("abc")[5:])
    relay.close("run")
    assert sk.stream(relay.reader("run"), after=stream.cursor).get_final_text() == "abc"


@pytest.mark.slow
def test_a_loop_may_leave_a_reader_on_any_event_loop() -> None:
    """Nothing warns of it, and nothing is left over: not the event loop either."""
    relay = MemoryRelay()
    written(relay, "abc")
    loops: list[Any] = []

    async def main() -> None:
        loops.append(weakref.ref(anyio.lowlevel.current_token().native_token))
        async for _ in relay.aread("run"):
            break

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)
    gc.collect()
    assert [loop() for loop in loops] == [None, None]


@pytest.mark.slow
def test_readers_that_are_dropped_are_forgotten() -> None:
    """A reader that was never closed holds back nobody."""
    relay = MemoryRelay(limit=4, overflow="block")
    relay.open("run")
    reading = relay.read("run")
    relay.append("run", [e.RawEvent("r")])
    next(reading)
    del reading
    gc.collect()
    for n in range(50):
        relay.append("run", [e.RawEvent("r", n)])


# -- a relay of another kind


class LineReading(Reading):
    """A place among the lines of a run; it looks for more every hundredth of a second."""

    def __init__(self, run: LineRun, place: int) -> None:
        super().__init__()
        self.run = run
        self.place = place

    def resume(self, after: str | None) -> str | None:
        place, self.place = self.place if after is None else int(after), 0
        return str(place) if place else None

    def take(self, waker: ThreadWaker | TaskWaker) -> list[e.Event] | float:
        closed = self.run.closed
        events: list[e.Event] = []
        for line in self.run.lines[self.place :]:
            self.place += 1
            event = codec.decode_event(line)
            event.position = str(self.place)
            events.append(event)
        return events if events or closed else 0.01


class LineRun(RunLog):
    """A run whose events are lines of JSON, as another process would have them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def append(self, events: Iterable[e.Event]) -> list[str]:
        before = len(self.lines)
        self.lines.extend(map(codec.encode_event, events))
        return [str(number + 1) for number in range(before, len(self.lines))]

    def close(self, error: BaseException | None = None) -> bool:
        closes, self.closed = not self.closed, True
        return closes

    def heartbeat(self) -> None:
        """It has no limit of silence."""

    def reading(self, after: str | None, timeout: float | None) -> LineReading:
        return LineReading(self, 0 if after is None else int(after))


class LineRelay(Relay):
    """Runs as lines of JSON."""

    def __init__(self) -> None:
        self.runs: dict[str, LineRun] = {}

    def open(self, run_id: str) -> LineRun:
        return self.runs.setdefault(run_id, LineRun())

    def find(self, run_id: str) -> LineRun | None:
        return self.runs.get(run_id)

    def delete(self, run_id: str) -> None:
        self.runs.pop(run_id, None)


@every_face
@body
async def test_a_relay_of_another_kind_implements_little(face: Face) -> None:
    """Emitters write into it, streams read from it and go on after a cursor, though its events are JSON."""
    relay = LineRelay()
    emitter = sk.Emitter(relay, "run")

    def agent() -> None:
        with emitter:
            for piece in ("Hel", "lo"):
                emitter.text(piece)
                time.sleep(0.02)
            emitter.code("x = 1", "python")

    stream = face.stream(emitter)
    async with face.beside(agent):
        await stream.until_done()
    assert [message.content for message in stream.messages] == ["Hello", "x = 1"]
    assert list(stream.messages) == list(emitter.messages)
    assert relay.status("run") == "closed"
    pieces: list[str] = []
    later = face.stream(relay.reader("run"), after="4")
    async for piece in later.text_deltas:
        pieces.append(piece)
    assert pieces == ["Hel", "lo"], "the message that was open, then what came after the cursor"
    assert list(later.messages) == list(emitter.messages)
