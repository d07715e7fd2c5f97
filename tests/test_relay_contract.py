"""What every relay holds to: one suite, run on each of them by threads, asyncio and trio.

A relay of another kind gets an entry in `RELAYS`: a `Kind` that makes it, and says how its producers and readers die. The
entries of these logs are lines of JSON that stand for nothing, except where a run is ended for its producer.
"""

from __future__ import annotations

import contextlib
import gc
import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, get_args

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit.errors import ProducerFenced
from streamkit.protocols import codec
from streamkit.relay import (
    Answered,
    Cancelled,
    Control,
    Entry,
    Fenced,
    LogWriter,
    MemoryRelay,
    Reading,
    Relay,
    Unattended,
)

from .faces import LIMIT, Face, body, every_face, every_pair
from .redis_server import ON_REDIS, needs_redis

SNAPSHOT = b'{"type":"snapshot","dropped":0,"events":[]}'


class Kind:
    """One kind of relay.

    Attributes:
        patience: seconds after which what was sent has arrived at the latest; 0 where it arrives at once.
    """

    name: ClassVar[str]
    patience: ClassVar[float] = 0.0

    def make(self, **options: Any) -> Relay:
        raise NotImplementedError

    def kill_producer(self, writer: LogWriter) -> None:
        """Make its relay believe that this producer's process is dead."""
        raise NotImplementedError

    def has_arrived(self, reading: Reading, number: int) -> bool:
        """Whether a reading that waits was sent all events up to this one."""
        return True


class Memory(Kind):
    name = "memory"

    def make(self, **options: Any) -> Relay:
        return MemoryRelay(**options)

    def kill_producer(self, writer: LogWriter) -> None:
        writer.abandon()  # type: ignore[attr-defined]  # memory's alone has it


class OnRedis(Kind):
    """On the server that the tests of this process share."""

    name = "redis"
    patience = 10.0

    def make(self, **options: Any) -> Relay:
        return ON_REDIS.make(**options)

    def kill_producer(self, writer: LogWriter) -> None:
        writer.abandon()  # type: ignore[attr-defined]  # it gives the lease back, as if it had expired
        writer.flush()

    def has_arrived(self, reading: Reading, number: int) -> bool:
        return bool(reading.subscription.tip.number >= number)  # type: ignore[attr-defined]  # of Redis alone


RELAYS: Sequence[Kind] = (Memory(), OnRedis())


def _marks(kind: Kind) -> list[pytest.MarkDecorator]:
    return [needs_redis] if kind.name == "redis" else []


every_relay = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.name, marks=_marks(kind)) for kind in RELAYS])


WAIT = 20.0  # seconds after which a reader fails that finds nothing


class Driver:
    """Calls a relay as one face does."""

    def __init__(self, face: Face, relay: Relay) -> None:
        self.face = face
        self.relay = relay
        self.received: list[Control] = []

    async def __call__(self, method: str, *arguments: Any, on: Any = None, **options: Any) -> Any:
        target = self.relay if on is None else on
        if self.face.is_async:
            return await getattr(target, f"a{method}")(*arguments, **options)
        return getattr(target, method)(*arguments, **options)

    async def open(self, run_id: str = "run", **options: Any) -> LogWriter:
        writer: LogWriter = await self("open", run_id, control=self.received.append, **options)
        return writer

    async def take_over(self, run_id: str = "run") -> LogWriter | None:
        writer: LogWriter | None = await self("take_over", run_id, control=self.received.append)
        return writer

    async def listed(self, **options: Any) -> list[str]:
        """The ids of the runs in a list."""
        return [record.id for record in await self("list", **options)]

    async def status(self, run_id: str = "run") -> str | None:
        record = await self("get", run_id)
        return None if record is None else record.status

    async def read(self, run_id: str = "run", after: str | None = None, **options: Any) -> list[Entry]:
        """All entries up to the run's end."""
        reading = await self("read", run_id, after, timeout=WAIT, **options)
        entries: list[Entry] = []
        if self.face.is_async:
            async for batch in reading:
                entries += batch
        else:
            for batch in reading:
                entries += batch
        return entries

    async def next(self, reading: Reading) -> Any:
        """The next entries, a list; None at the end."""
        entries: list[Entry] | None = await reading.apull() if self.face.is_async else reading.pull()
        return entries

    async def some(self, reading: Reading, count: int) -> list[Entry]:
        """The next so many entries: how they are cut into lists is the relay's."""
        entries: list[Entry] = []
        while len(entries) < count:
            entries += await self.next(reading)
        return entries

    async def has_received(self, kind: Kind, *controls: Control) -> None:
        """The producer has received exactly this, where it arrives at once; else it does, soon."""
        await self.eventually(kind, lambda: self.received == [*controls])

    async def eventually(self, kind: Kind, condition: Callable[[], bool]) -> None:
        """This is so, where what was sent arrives at once; else it is soon."""
        deadline = time.monotonic() + kind.patience
        while not condition() and time.monotonic() < deadline:
            await self.face.in_thread(lambda: time.sleep(0.002))
        assert condition(), self.received


def driven(test: Callable[..., Any]) -> Callable[..., None]:
    """A test on every relay and every face."""
    on_all: Callable[..., None] = every_relay(every_face(body(test)))
    return on_all


def lines(count: int, start: int = 1) -> list[bytes]:
    return [b'{"n":%d}' % number for number in range(start, start + count)]


def numbers(entries: Iterable[Entry]) -> list[int]:
    return [json.loads(entry.data)["n"] for entry in entries if not entry.snapshot]


def refused(writer: LogWriter) -> None:
    """What this producer writes is not stored."""
    with contextlib.suppress(ProducerFenced):
        writer.append(lines(1, 999))
    with pytest.raises(ProducerFenced):
        writer.flush()


# -- 1: numbers and cursors


@driven
async def test_events_are_numbered_without_holes(face: Face, kind: Kind) -> None:
    """From 1 on, in every epoch; and in the order of their cursors."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    cursors = writer.append(lines(3)) + writer.append(lines(1, 4))
    assert writer.cursor == cursors[-1]
    await drive("pause", on=writer)
    second = await drive.take_over()
    assert second is not None
    cursors += second.append(lines(2, 5))
    await drive("end", "completed", on=second)
    entries = await drive.read()
    assert [entry.cursor for entry in entries] == cursors
    assert numbers(entries) == [1, 2, 3, 4, 5, 6]
    places = [tuple(map(int, cursor.partition(".")[0].split("-"))) for cursor in cursors]
    assert places == [(1, 1), (1, 2), (1, 3), (1, 4), (2, 5), (2, 6)]
    assert len({cursor.partition(".")[2] for cursor in cursors}) == 1
    record = await drive("get", "run")
    assert (record.epoch, record.cursor) == (2, cursors[-1])


@driven
@pytest.mark.parametrize("cursor", ["", "nonsense", "17", "1-017.{}", "1-1", "0-1.{}", "1-1.{}0", "1-1.00000000", 17])
async def test_a_cursor_that_is_none_or_of_another_run_is_refused(face: Face, kind: Kind, cursor: Any) -> None:
    """It names its run."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    (first,) = writer.append(lines(1))
    if isinstance(cursor, str):
        cursor = cursor.format(first.partition(".")[2])
    with pytest.raises(sk.UsageError, match=r"run 'run'.*cursor"):
        await drive("read", "run", cursor)
    with pytest.raises(sk.SourceError) as caught:
        await drive("read", "other", first)
    assert caught.value.status_code == 404


@driven
async def test_a_run_is_opened_once(face: Face, kind: Kind) -> None:
    """Its record has what was said of it."""
    drive = Driver(face, kind.make())
    assert await drive("get", "run") is None
    before = time.time()
    writer = await drive.open(info={"conversation": "c", "owner": "me"})
    with pytest.raises(sk.UsageError, match="already"):
        await drive.open()
    record = await drive("get", "run")
    assert (record.id, record.status, record.epoch, record.cursor) == ("run", "in_progress", 1, None)
    assert record.info == {"conversation": "c", "owner": "me"}
    assert before - 1 <= record.created_at <= time.time() + 1
    assert (record.ended_at, record.error, record.cancel, record.questions) == (None, None, None, {})
    assert (writer.epoch, writer.cursor, writer.fenced) == (1, None, None)


# -- 2: reading


@driven
async def test_after_each_cursor_comes_the_rest(face: Face, kind: Kind) -> None:
    """Once, and in order."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    cursors = [cursor for number in range(30) for cursor in writer.append(lines(40, 40 * number + 1))]
    await drive("end", "completed", on=writer)
    for place in (0, 1, 39, 40, 41, 255, 256, 257, 511, 600, 1198, 1199):
        assert numbers(await drive.read(after=cursors[place])) == [*range(place + 2, 1201)]


SCHEDULES = [
    pytest.param(
        kind,
        seed,
        id=f"{kind.name}-{seed}",
        marks=[*_marks(kind), *([pytest.mark.slow] if seed >= 10 and kind.name == "redis" else [])],
    )
    for kind in RELAYS
    for seed in range(15)
]


@pytest.mark.parametrize(("kind", "seed"), SCHEDULES)
def test_readers_of_any_schedule_see_each_event_once(kind: Kind, seed: int) -> None:
    """Late, slow and leaving ones, beside a writer whose batches, snapshots and epochs come as they may."""
    chance = random.Random(seed)
    relay = kind.make(limit=chance.choice((16, 1000)))
    writer = relay.open("run", control=lambda control: None)
    failed: list[BaseException] = []

    def read(random_: random.Random) -> None:
        try:
            cursor: str | None = None
            seen = 0
            while True:
                reading = relay.read("run", cursor, timeout=WAIT)
                for batch in reading:
                    for entry in batch:
                        number = json.loads(entry.data)["n"]
                        assert number > seen if entry.snapshot else number == seen + 1
                        seen, cursor = number, entry.cursor
                    if random_.random() < 0.2:
                        time.sleep(0.001)
                    if random_.random() < 0.2:
                        break  # it leaves, and comes back
                else:
                    assert seen == 300
                    return
                reading.close()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read, args=(random.Random(seed * 100 + n),)) for n in range(4)]
    for thread in threads[:2]:
        thread.start()
    written = 0
    while written < 300:
        size = min(chance.randint(1, 20), 300 - written)
        writer.append(lines(size, written + 1))
        written += size
        if chance.random() < 0.3:
            writer.snapshot(b'{"type":"snapshot","dropped":0,"events":[],"n":%d}' % written)
        if chance.random() < 0.1:
            writer.pause()
            taken = relay.take_over("run", control=lambda control: None)
            assert taken is not None
            writer = taken
        if chance.random() < 0.2:
            time.sleep(0.0005)
    for thread in threads[2:]:
        thread.start()
    writer.end("completed")
    for thread in threads:
        thread.join(30)
    assert failed == []


# -- 3: the end


@driven
async def test_after_the_last_cursor_there_is_nothing(face: Face, kind: Kind) -> None:
    """Before it is the rest; and a reader that waited ends."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    reading = await drive("read", "run")
    cursors = writer.append(lines(3))
    assert numbers(await drive.next(reading)) == [1, 2, 3]
    async with face.beside(lambda: writer.end("failed", {"message": "no"})):
        assert await drive.next(reading) is None
    assert await drive.read(after=cursors[-1]) == []
    assert numbers(await drive.read(after=cursors[-2])) == [3]
    record = await drive("get", "run")
    assert (record.status, record.error, record.cursor) == ("failed", {"message": "no"}, cursors[-1])
    assert record.ended_at is not None


# -- 4: trimming


@driven
async def test_whoever_misses_events_gets_a_snapshot_in_their_place(face: Face, kind: Kind) -> None:
    """Late, slow, and with a cursor that was dropped; one that is in the log goes on without."""
    drive = Driver(face, kind.make(limit=20))
    writer = await drive.open()
    slow = await drive("read", "run")
    cursors = writer.append(lines(5))
    assert len(await drive.next(slow)) == 5
    for number in range(6, 106, 10):
        cursors += writer.append(lines(10, number))
        writer.snapshot(b'{"type":"snapshot","dropped":0,"events":[],"n":%d}' % (number + 9))
    await drive("end", "completed", on=writer)
    await drive.eventually(kind, lambda: kind.has_arrived(slow, 105))
    rest = [*await drive.next(slow)]
    while (batch := await drive.next(slow)) is not None:
        rest += batch
    for entries in (rest, await drive.read(), await drive.read(after=cursors[0]), await drive.read(after=cursors[60])):
        assert [entry.snapshot for entry in entries] == [True] + [False] * (len(entries) - 1)
        stands_for = json.loads(entries[0].data)["n"]
        assert numbers(entries) == [*range(stands_for + 1, 106)]
        assert entries[0].cursor == cursors[stands_for - 1]
        assert 80 <= stands_for <= 95
    kept = await drive.read(after=cursors[96])
    assert numbers(kept) == [*range(98, 106)]
    assert not kept[0].snapshot


@driven
async def test_a_reader_may_refuse_snapshots(face: Face, kind: Kind) -> None:
    """With `gap="error"` it fails, with 410: from the beginning, or on its way."""
    drive = Driver(face, kind.make(limit=20))
    writer = await drive.open()
    (first,) = writer.append(lines(1))
    slow = await drive("read", "run", gap="error")
    assert numbers(await drive.next(slow)) == [1]
    for number in range(2, 102, 10):
        writer.append(lines(10, number))
        writer.snapshot(SNAPSHOT)
    await drive.eventually(kind, lambda: kind.has_arrived(slow, 101))
    refusing: list[Callable[[], Any]] = [lambda: drive.next(slow), lambda: drive.read(after=first, gap="error")]
    for reads in refusing:
        with pytest.raises(sk.SourceError) as caught:
            await reads()
        assert caught.value.status_code == 410


@driven
async def test_a_cursor_of_a_tail_that_was_lost_begins_with_an_empty_snapshot(face: Face, kind: Kind) -> None:
    """It is well formed and of this run, but not in the log: what the reader has is replaced by all there is."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    (first,) = writer.append(lines(1))
    for lost in (first.replace("1-1", "1-9"), first.replace("1-1", "2-1")):
        reading = await drive("read", "run", lost)
        (snapshot,) = await drive.next(reading)
        assert snapshot.snapshot
        assert json.loads(snapshot.data) == {"type": "snapshot", "dropped": 0, "events": []}
        assert numbers(await drive.next(reading)) == [1]
        assert (await drive("read", "run", snapshot.cursor)) is not None
        with pytest.raises(sk.SourceError) as caught:
            await drive("read", "run", lost, gap="error")
        assert caught.value.status_code == 410


# -- 5: taking over


@driven
async def test_a_run_that_has_a_producer_is_not_taken_over(face: Face, kind: Kind) -> None:
    """Nor one that has ended, nor one that is not there."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    assert await drive.take_over() is None
    await drive("end", "completed", on=writer)
    assert await drive.take_over() is None
    assert await drive.take_over("other") is None


@driven
async def test_of_eight_that_take_over_one_wins(face: Face, kind: Kind) -> None:
    """The old producer is fenced, stores nothing, and may leave once more; readers see each event once."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    reading = await drive("read", "run")
    writer.append(lines(2))
    assert numbers(await drive.next(reading)) == [1, 2]
    writer.ask("q", {})
    kind.kill_producer(writer)
    won: list[LogWriter] = []
    barrier = threading.Barrier(8)

    def take() -> None:
        barrier.wait(10)
        if (taken := drive.relay.take_over("run", control=drive.received.append)) is not None:
            won.append(taken)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await face.in_thread(thread.join)
    assert [taken.epoch for taken in won] == [2]
    refused(writer)
    assert writer.fenced == "epoch"
    assert await drive("end", "completed", on=writer) is False
    writer.abandon()
    assert await drive.status() == "in_progress"
    won[0].append(lines(1, 3))
    assert numbers(await drive.next(reading)) == [3]
    await drive("end", "completed", on=won[0])
    assert await drive.next(reading) is None
    assert numbers(await drive.read()) == [1, 2, 3]


@driven
async def test_a_run_whose_producer_died_at_work_is_ended_once(face: Face, kind: Kind) -> None:
    """Whoever reads it ends it: open messages are incomplete, and the last event says who is gone."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    begun: list[e.Event] = [e.RunCreated(sk.Run(id="run")), e.RunStepCreated(sk.RunStep(id="step"))]
    begun += [e.TextCreated(sk.TextMessage("m")), e.TextDelta("m", "half")]
    writer.append([codec.encode_event(event) for event in begun])
    kind.kill_producer(writer)
    readings = [await drive("read", "run") for _ in range(3)]
    logs: list[list[Entry]] = []
    for reading in readings:
        logs.append([])
        while (batch := await drive.next(reading)) is not None:
            logs[-1] += batch
    assert logs[0] == logs[1] == logs[2] == await drive.read()
    events = [codec.decode_event(entry.data) for entry in logs[0]]
    assert [event.type for event in events[4:]] == [
        "text_done",
        "run_step_done",
        "run_done",
        "stream_exception",
        "stream_end",
    ]
    done = next(event for event in events if isinstance(event, e.TextDone))
    assert (done.message.content, done.message.status) == ("half", "incomplete")
    failure = next(event for event in events if isinstance(event, e.StreamException))
    assert failure.details == {"code": "producer_lost"}
    record = await drive("get", "run")
    assert (record.status, record.error["code"]) == ("lost", "producer_lost")
    stream = face.stream(drive.relay.reader("run"))
    with pytest.raises(sk.SourceError, match="the producer of run 'run' is gone"):
        await stream.until_done()


# -- 6: what is over stays over


@driven
async def test_a_run_ends_once(face: Face, kind: Kind) -> None:
    """Nothing is stored after that."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.append(lines(2))
    assert await drive("end", "completed", on=writer) is True
    assert await drive("end", "failed", {"message": "late"}, on=writer) is False
    with contextlib.suppress(ProducerFenced):
        writer.append(lines(1, 3))
    assert writer.fenced == "closed"
    assert numbers(await drive.read()) == [1, 2]
    assert await drive.status() == "completed"
    with pytest.raises(sk.UsageError, match="does not end as 'paused'"):
        await drive("end", "paused", on=await drive.open("another"))


@pytest.mark.parametrize("status", [*(word for word in get_args(e.RunStatus) if word != "in_progress"), "lost"])
@driven
async def test_a_run_ends_with_any_status_that_events_have(face: Face, kind: Kind, status: Any) -> None:
    """And `lost`, for which no event stands: its producer is gone."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    assert await drive.status() == "in_progress"
    assert await drive("end", status, on=writer) is True
    record = await drive("get", "run")
    assert (record.status, record.has_ended) == (status, True)


@driven
async def test_a_run_that_was_deleted_or_has_expired_is_not_created_again(face: Face, kind: Kind) -> None:
    """Not by its late producer; its readers fail, its producer hears of it."""
    drive = Driver(face, kind.make())
    deleted = await drive.open("deleted")
    reading = await drive("read", "deleted")
    deleted.append(lines(1))
    assert len(await drive.next(reading)) == 1
    await drive("delete", "deleted")
    with pytest.raises(sk.SourceError) as caught:
        await drive.next(reading)
    assert caught.value.status_code == 404
    brief = Driver(face, kind.make(ttl_running=0.2))
    expired = await brief.open("expired")
    deadline = time.monotonic() + 10
    while await brief("get", "expired") is not None and time.monotonic() < deadline:
        await face.in_thread(lambda: time.sleep(0.02))
    for one, run_id, writer in ((drive, "deleted", deleted), (brief, "expired", expired)):
        refused(writer)
        assert writer.fenced == "gone"
        assert await one("get", run_id) is None
        assert await one("cancel", run_id) is False
        with pytest.raises(sk.SourceError, match="no run"):
            await one("answer", run_id, "q", {"approved": True})
        await one.has_received(kind, Fenced("gone"))


# -- 7: questions


@driven
async def test_of_eight_answers_one_wins(face: Face, kind: Kind) -> None:
    """All see its outcome, and the producer receives it once."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    (cursor,) = writer.ask("q", {"kind": "confirmation", "editable": True}, lines(1))
    assert writer.cursor == cursor
    question = (await drive("get", "run")).questions["q"]
    assert (question["id"], question["status"], question["editable"]) == ("q", "pending", True)
    barrier = threading.Barrier(8)
    results: list[tuple[int, bool, dict[str, Any]]] = []

    def answer(number: int) -> None:
        barrier.wait(10)
        results.append((number, *drive.relay.answer("run", "q", {"approved": True, "edited": f"{number}"})))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await face.in_thread(thread.join)
    ((winner, _, outcome),) = [result for result in results if result[1]]
    assert all(result[2] == outcome for result in results)
    assert (outcome["status"], outcome["edited"]) == ("approved", f"{winner}")
    assert drive.received == [Answered("q", {"approved": True, "edited": f"{winner}"})]
    assert await drive("answer", "run", "q", {"approved": True, "edited": f"{winner}"}) == (True, outcome)
    assert await drive("answer", "run", "q", {"approved": False}) == (False, outcome)
    assert (await drive("get", "run")).questions["q"] == outcome
    assert len(drive.received) == 1


@driven
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ({"approved": True}, {"status": "approved"}),
        ({"approved": False, "reason": "no"}, {"status": "declined", "reason": "no"}),
        ({"output": {"any": ["JSON"]}}, {"status": "answered", "output": {"any": ["JSON"]}}),
        ({"error": "it broke"}, {"status": "answered", "error": "it broke"}),
    ],
)
async def test_an_answer_is_kept_as_the_outcome(face: Face, kind: Kind, answer: Any, outcome: Any) -> None:
    """With its fields, and when it was given."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {"kind": "confirmation" if "approved" in answer else "tool_call"})
    counts, question = await drive("answer", "run", "q", answer)
    assert counts
    assert {key: question[key] for key in outcome} == outcome
    assert question["asked_at"] <= question["answered_at"]


WRONG_ANSWERS: list[tuple[str, Any, str]] = [
    ("may", {"output": "done"}, "question 'may' is a confirmation: its answer has `approved`"),
    ("may", {"error": "it broke"}, "question 'may' is a confirmation: its answer has `approved`"),
    ("may", {"approved": True, "edited": 5}, "`edited` is a `str`, not 5"),
    ("may", {"approved": False, "reason": ["no"]}, r"`reason` is a `str`, not \['no'\]"),
    ("call", {"approved": True}, "question 'call' is a tool call: its answer has `output` or `error`"),
    ("call", {"output": object()}, "what JSON can hold"),
    ("call", {"error": object()}, "what JSON can hold"),
]


@driven
async def test_a_question_takes_only_an_answer_of_its_kind(face: Face, kind: Kind) -> None:
    """Another one is refused: it does not reach the producer, and the question stays open."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("may", {"kind": "confirmation"})
    writer.ask("call", {"kind": "tool_call"})
    for id, wrong, text in WRONG_ANSWERS:
        with pytest.raises(sk.UsageError, match=text):
            await drive("answer", "run", id, wrong)
    assert drive.received == []
    assert (await drive("answer", "run", "may", {"approved": True, "edited": "2"}))[0]
    assert (await drive("answer", "run", "call", {"output": {"any": "JSON"}}))[0]


@driven
async def test_what_cannot_be_answered_is_told_apart(face: Face, kind: Kind) -> None:
    """Unknown, malformed, closed, and expired."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    with pytest.raises(sk.UsageError, match="has no question 'q'"):
        await drive("answer", "run", "q", {"approved": True})
    writer.ask("q", {})
    for malformed in ({}, {"approved": "true"}, {"approved": 1}, None, 5, "yes", [True]):
        with pytest.raises(sk.UsageError, match="an answer has"):
            await drive("answer", "run", "q", malformed)
    writer.ask("late", {"expires_at": time.time() - 1})
    counts, question = await drive("answer", "run", "late", {"approved": True})
    assert (counts, question["status"]) == (False, "closed")
    assert writer.settle("q")[0]
    assert writer.settle("none") == (False, {})
    counts, question = await drive("answer", "run", "q", {"approved": True})
    assert (counts, question["status"]) == (False, "closed")
    writer.ask("open", {})
    await drive("end", "completed", on=writer)
    counts, question = await drive("answer", "run", "open", {"approved": True})
    assert (counts, question["status"]) == (False, "closed")
    assert drive.received == []


@driven
async def test_an_answer_reaches_the_next_producer(face: Face, kind: Kind) -> None:
    """Given while there was none; and again where that one asks the same question."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {"kind": "confirmation"}, lines(1))
    kind.kill_producer(writer)
    assert await drive.status() == "paused"
    assert (await drive("answer", "run", "q", {"approved": True}))[0]
    assert drive.received == []
    second = await drive.take_over()
    assert second is not None
    assert drive.received == [Answered("q", {"approved": True})]
    second.ask("q", {"kind": "confirmation"}, lines(1, 2))
    assert drive.received == [Answered("q", {"approved": True})] * 2
    assert (await drive("get", "run")).questions["q"]["status"] == "approved"
    second.ask("r", {})
    await drive("pause", on=second)
    assert await drive.status() == "paused"
    third = await drive.take_over()
    assert third is not None
    third.ask("r", {})
    assert (await drive("answer", "run", "r", {"approved": False}))[0]
    assert drive.received[-1] == Answered("r", {"approved": False})


@driven
async def test_a_question_that_every_reader_goes_on_without_is_unattended(face: Face, kind: Kind) -> None:
    """Its producer hears of it once the last one has."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    first, second = [await drive("read", "run") for _ in range(2)]
    writer.ask("q", {}, lines(1))
    for reading in (first, second):
        assert len(await drive.next(reading)) == 1
    for reading in (first, second):
        assert drive.received == []
        reading.skip("q")
        reading.skip("none")
    await drive.has_received(kind, Unattended("q"))
    writer.ask("r", {}, lines(1, 2))
    assert writer.unattended("r") == 0.0
    first.close()
    second.close()
    await face.in_thread(lambda: time.sleep(0.01))
    await drive.eventually(kind, lambda: 0 < writer.unattended("r") < 5)
    assert drive.received == [Unattended("q")]


# -- 8: cancelling


@driven
async def test_a_cancellation_reaches_the_producer(face: Face, kind: Kind) -> None:
    """Once, before its first event too. It closes all questions, and is kept."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {})
    assert await drive("cancel", "run", "enough") is True
    assert await drive("cancel", "run") is True
    assert drive.received == [Cancelled("enough")]
    record = await drive("get", "run")
    assert (record.status, record.cancel, record.questions["q"]["status"]) == ("in_progress", "enough", "closed")
    await drive("end", "cancelled", on=writer)
    assert await drive("cancel", "run", "again") is False
    assert (await drive("get", "run")).cancel == "enough"
    assert await drive("cancel", "none") is False


@driven
@pytest.mark.parametrize("how", ["paused", "dead"])
async def test_a_cancellation_of_a_run_without_a_producer_ends_it(face: Face, kind: Kind, how: str) -> None:
    """There and then; whoever reads it receives the end."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.append([codec.encode_event(e.RunCreated(sk.Run(id="run")))])
    writer.ask("q", {})
    if how == "paused":
        await drive("pause", on=writer)
    else:
        kind.kill_producer(writer)
    reading = await drive("read", "run")
    assert len(await drive.next(reading)) == 1
    assert await drive("cancel", "run") is True
    assert await drive.status() == "cancelled"
    types = [json.loads(entry.data)["type"] for entry in await drive.next(reading)]
    assert types[-2:] == ["run_done", "stream_end"]
    assert await drive.next(reading) is None
    stream = face.stream(drive.relay.reader("run"))
    await stream.until_done()
    assert stream.status == "cancelled"


@driven
async def test_a_cancellation_reaches_the_next_producer(face: Face, kind: Kind) -> None:
    """Where the run's producer dies before it could act on it."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    assert await drive("cancel", "run", "stop") is True
    drive.received.clear()
    kind.kill_producer(writer)
    assert await drive.take_over() is not None
    assert drive.received == [Cancelled("stop")]


# -- 9: statuses


def ask_and_work(writer: LogWriter) -> None:
    writer.ask("q", {})
    writer.busy = True


def ask_and_act(writer: LogWriter) -> None:
    writer.ask("q", {})
    writer.settle("q", {"approved": True})
    writer.busy = True
    writer.flush()


@driven
async def test_a_producer_that_dies_leaves_a_paused_or_a_lost_run(face: Face, kind: Kind) -> None:
    """Paused where it only waited, for answers that another can go on from, and did not act on them yet; lost where anything
    was computed."""
    relay = kind.make()
    drive = Driver(face, relay)
    cases: dict[str, tuple[str, Callable[[LogWriter], object]]] = {
        "computing": ("lost", lambda writer: writer.append(lines(1))),
        "asking": ("paused", lambda writer: writer.ask("q", {}, lines(1))),
        "answered": ("paused", lambda writer: (writer.ask("q", {}), relay.answer("answered", "q", {"approved": True}))),
        "acting": ("lost", ask_and_act),
        "emitter": ("lost", lambda writer: writer.ask("q", {"resumable": False})),
        "both": ("lost", lambda writer: (writer.ask("q", {}), writer.ask("r", {"resumable": False}))),
        "busy": ("lost", ask_and_work),
    }
    for run_id, (status, act) in cases.items():
        writer = await drive.open(run_id)
        act(writer)
        assert await drive.status(run_id) == "in_progress"
        kind.kill_producer(writer)
        assert await drive.status(run_id) == status, run_id


@driven
async def test_a_run_whose_producer_died_while_it_waited_stays_paused_when_it_is_answered(
    face: Face, kind: Kind
) -> None:
    """With no question open any more: the next producer gets the answer."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {}, lines(1))
    kind.kill_producer(writer)
    del writer
    assert (await drive("answer", "run", "q", {"approved": True}))[0]
    assert await drive.status() == "paused"
    after = await drive.take_over()
    assert after is not None
    after.ask("q", {})
    await drive.eventually(kind, lambda: Answered("q", {"approved": True}) in drive.received)
    assert await drive.status() == "in_progress"


@driven
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "lost"])
async def test_a_run_goes_from_running_over_paused_to_its_end(face: Face, kind: Kind, end: Any) -> None:
    """Each final status is one; a paused run is another producer's, then."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {})
    await drive("pause", on=writer)
    assert await drive.status() == "paused"
    refused(writer)
    assert writer.fenced == "closed"
    with pytest.raises(ProducerFenced):
        await drive("pause", on=writer)
    second = await drive.take_over()
    assert second is not None
    assert await drive.status() == "in_progress"
    assert await drive("end", end, on=second) is True
    assert await drive.status() == end
    assert await drive.take_over() is None


# -- 10: presence


@driven
async def test_readers_are_counted_while_they_are_there(face: Face, kind: Kind) -> None:
    """From their first pull on; one that is dropped, or dies, does not count any more."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.append(lines(1))
    readings = [await drive("read", "run") for _ in range(3)]
    assert (await drive("get", "run")).readers == 0
    for number, reading in enumerate(readings, 1):
        await drive.next(reading)
        assert (await drive("get", "run")).readers == number
    await readings.pop().aclose() if face.is_async else readings.pop().close()
    assert (await drive("get", "run")).readers == 2
    reading = readings[0]
    readings.pop()
    gc.collect()
    deadline = time.monotonic() + LIMIT / 2  # an event loop closes what was dropped in a task of its own
    while (await drive("get", "run")).readers == 2 and time.monotonic() < deadline:
        await face.in_thread(lambda: time.sleep(0.02))
    assert (await drive("get", "run")).readers == 1


# -- 11: expiry, and lists


@driven
async def test_runs_expire_by_their_status(face: Face, kind: Kind) -> None:
    """Ended, open and paused ones, each after a time of its own; a list has none of them."""
    drive = Driver(face, kind.make(ttl_ended=0.1, ttl_running=1.0, ttl_paused=1000.0))
    for run_id in ("ended", "open", "paused"):
        writer = await drive.open(run_id)
        if run_id == "ended":
            await drive("end", "completed", on=writer)
        elif run_id == "paused":
            writer.ask("q", {})
            await drive("pause", on=writer)
    gone: list[str] = []
    deadline = time.monotonic() + 20
    while len(gone) < 2 and time.monotonic() < deadline:
        await face.in_thread(lambda: time.sleep(0.02))
        gone += [run_id for run_id in ("ended", "open", "paused") if run_id not in gone and not await drive("get", run_id)]  # fmt: skip
    assert gone == ["ended", "open"]
    assert await drive.listed() == ["paused"]


@driven
async def test_a_list_has_the_newest_first(face: Face, kind: Kind) -> None:
    """Of all conversations or of one, of all owners or of one, or of both; and in parts."""
    drive = Driver(face, kind.make())
    for number in range(6):
        info = {"conversation": "odd" if number % 2 else "even", "owner": "ann" if number < 4 else "bob"}
        await drive.open(f"run-{number}", info=info)
    assert await drive.listed() == [f"run-{number}" for number in (5, 4, 3, 2, 1, 0)]
    assert await drive.listed(limit=2) == ["run-5", "run-4"]
    assert await drive.listed(limit=2, before="run-4") == ["run-3", "run-2"]
    assert await drive.listed(limit=0) == []
    assert await drive.listed(conversation="odd") == ["run-5", "run-3", "run-1"]
    assert await drive.listed(conversation="odd", before="run-3") == ["run-1"]
    assert await drive.listed(conversation="odd", before="run-2") == []
    assert await drive.listed(conversation="none") == []
    assert await drive.listed(owner="ann", limit=3) == ["run-3", "run-2", "run-1"]
    assert await drive.listed(owner="ann", conversation="even") == ["run-2", "run-0"]
    assert await drive.listed(owner="carl") == []
    await drive("delete", "run-2")
    assert await drive.listed(owner="ann", conversation="even") == ["run-0"]
    assert await drive.listed(before="run-2") == []


@driven
async def test_a_list_has_the_records_of_its_runs(face: Face, kind: Kind) -> None:
    """As `get` returns them, and `get_many` of several by their ids."""
    drive = Driver(face, kind.make())
    for number in range(3):
        writer = await drive.open(f"run-{number}")
        writer.ask("q", {"kind": "confirmation"}, lines(1))
    records = [await drive("get", f"run-{number}") for number in (2, 1, 0)]
    assert [*await drive("list")] == records
    assert [*await drive("get_many", ["run-1", "none", "run-0"])] == [records[1], None, records[2]]
    assert [*await drive("get_many", [])] == []


@driven
async def test_a_list_of_open_runs_has_those_that_have_not_ended(face: Face, kind: Kind) -> None:
    """Running and paused ones; not one whose producer died at work. A run that ends while somebody pages leads on."""
    drive = Driver(face, kind.make())
    writers = {id: await drive.open(id, info={"owner": "ann"}) for id in ("a", "b", "c", "d", "e")}
    writers["a"].ask("q", {"kind": "confirmation"})
    await drive("pause", on=writers["a"])
    await drive("end", "completed", on=writers["b"])
    kind.kill_producer(writers["d"])
    assert await drive.listed(owner="ann") == ["e", "d", "c", "b", "a"]
    for owner in (None, "ann"):
        assert await drive.listed(owner=owner, open_only=True) == ["e", "c", "a"]
        assert await drive.listed(owner=owner, open_only=True, before="b") == ["a"]
    await drive("end", "completed", on=writers["c"])
    assert await drive.listed(open_only=True, limit=1, before="c") == ["a"]
    assert await drive.listed(open_only=True) == ["e", "a"]


@every_relay
def test_an_open_run_is_listed_however_many_have_ended_since(kind: Kind) -> None:
    """It waits for its answer, and is found by those who look for it."""
    relay = kind.make()
    info = {"conversation": "c", "owner": "ann"}
    writer = relay.open("waits", info, control=print)
    writer.ask("q", {"kind": "confirmation"})
    writer.pause()
    for number in range(1100):
        relay.open(f"run-{number}", info, control=print).end("completed")
    for options in ({}, {"conversation": "c"}, {"owner": "ann"}, {"owner": "ann", "open_only": True}):
        assert relay.list(limit=2000, **options)[-1].id == "waits"


# -- arguments, and the end of the relay


WRONG: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "another gap": ("read", ("run",), {"gap": "bogus"}),
    "a timeout in words": ("read", ("run",), {"timeout": "x"}),
    "a timeout below 0": ("read", ("run",), {"timeout": -1}),
    "a timeout that is no number": ("read", ("run",), {"timeout": float("nan")}),
    "a limit below 0": ("list", (), {"limit": -1}),
    "a limit in words": ("list", (), {"limit": "50"}),
    "a conversation that is no text": ("list", (), {"conversation": 1}),
    "an owner that is no text": ("list", (), {"owner": b"ann"}),
    "a run before that is no text": ("list", (), {"before": 1}),
    "a reason that is no text": ("cancel", ("run", 1), {}),
    "no answer": ("answer", ("run", "q", "yes"), {}),
    "an approval that is no boolean": ("answer", ("run", "q", {"approved": "yes"}), {}),
    "a reason of an answer that is no text": ("answer", ("run", "q", {"approved": False, "reason": 1}), {}),
    "an id that is no text": ("open", (1,), {"control": print}),
    "info that is no mapping": ("open", ("new", "info"), {"control": print}),
    "a control that is no function": ("open", ("new",), {"control": None}),
    "a control that is none, to take over": ("take_over", ("run",), {"control": 1}),
}


@every_pair
@driven
@pytest.mark.parametrize(("method", "arguments", "options"), WRONG.values(), ids=WRONG)
async def test_wrong_arguments_are_refused(
    face: Face, kind: Kind, method: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> None:
    """And change nothing."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {"kind": "confirmation"}, lines(1))
    writer.flush()
    before = await drive("get", "run")
    with pytest.raises(sk.UsageError):
        await drive(method, *arguments, **options)
    assert await drive("get", "run") == before
    assert await drive.listed() == ["run"]


@every_relay
@pytest.mark.parametrize("name", ["limit", "timeout", "ttl_running", "ttl_paused", "ttl_ended"])
@pytest.mark.parametrize("value", [-1, "x", float("nan")], ids=repr)
def test_every_relay_has_the_same_options(kind: Kind, name: str, value: Any) -> None:
    with pytest.raises(sk.UsageError, match=f"`{name}`"):
        kind.make(**{name: value})
    kind.make(**{name: 7})


@driven
async def test_a_relay_is_closed_by_leaving_with(face: Face, kind: Kind) -> None:
    """Whoever reads fails then, and nothing is begun any more."""
    relay = kind.make()
    drive = Driver(face, relay)
    if face.is_async:
        async with relay as entered:
            writer = await drive.open()
            reading = await drive("read", "run")
    else:
        with relay as entered:
            writer = await drive.open()
            reading = await drive("read", "run")
    assert entered is relay
    before = time.monotonic()
    with pytest.raises(sk.UsageError, match="its relay is closed"):
        await drive.next(reading)
    assert time.monotonic() - before < 4  # at once, and not after a look at the producer, which comes every 5 seconds
    with pytest.raises(sk.UsageError, match="its relay is closed"):
        await drive.open("new")
    del writer


HALF = "half \ud83d"  # of a surrogate pair: text that a model, or JavaScript, may cut so


@driven
async def test_text_with_half_of_a_surrogate_pair_comes_back_as_it_is(face: Face, kind: Kind) -> None:
    """Wherever text may stand: in ids, what is said of a run, questions, reasons, errors."""
    drive = Driver(face, kind.make())
    info = {"conversation": f"c {HALF}", "owner": f"o {HALF}", "metadata": {HALF: [HALF]}}
    writer = await drive.open(f"run {HALF}", info=info)
    writer.ask(f"q {HALF}", {"kind": "confirmation", "subject": {"content": HALF}}, lines(1))
    writer.ask("closed", {"kind": "confirmation"})
    writer.close_question("closed", {"approved": False, "reason": HALF})
    writer.flush()
    record = await drive("get", f"run {HALF}")
    assert (record.id, record.info) == (f"run {HALF}", info)
    assert record.questions[f"q {HALF}"]["subject"] == {"content": HALF}
    assert record.questions["closed"]["reason"] == HALF
    assert await drive.listed(conversation=info["conversation"], owner=info["owner"]) == [f"run {HALF}"]
    assert await drive("cancel", f"run {HALF}", HALF) is True
    await drive.has_received(kind, Cancelled(HALF))
    assert (await drive("get", f"run {HALF}")).cancel == HALF
    await drive("end", "failed", {"message": HALF}, {"finish_reason": HALF}, on=writer)
    record = await drive("get", f"run {HALF}")
    assert (record.error, record.info["finish_reason"]) == ({"message": HALF}, HALF)


ODD_ANSWERS: Sequence[dict[str, Any]] = (
    {"approved": True, "edited": HALF},
    {"approved": False, "reason": HALF},
    {"output": {HALF: [HALF]}},
    {"error": HALF},
)


@driven
@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=["edited", "reason", "output", "error"])
async def test_an_answer_with_half_of_a_surrogate_pair_counts(face: Face, kind: Kind, answer: dict[str, Any]) -> None:
    """As it is. The equal one again is fine, and the producer receives it."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.ask("q", {"kind": "confirmation" if "approved" in answer else "tool_call"}, lines(1))
    for _ in range(2):
        counts, question = await drive("answer", "run", "q", answer)
        assert counts
        assert {**question, **{key: value for key, value in answer.items() if key != "approved"}} == question
    await drive.has_received(kind, Answered("q", answer))


ODD_OUTPUTS: dict[str, Any] = {
    "a huge number": 2**70,
    "no number": float("nan"),
    "numbers as keys": {1: (2, 3)},
}


@driven
@pytest.mark.parametrize("output", ODD_OUTPUTS.values(), ids=ODD_OUTPUTS)
async def test_an_answer_that_json_does_not_have_settles_its_question(face: Face, kind: Kind, output: Any) -> None:
    drive = Driver(face, kind.make())
    writer = await drive.open()
    for id in ("q", "own"):
        writer.ask(id, {"kind": "tool_call"}, lines(1))
    assert (await drive("answer", "run", "q", {"output": output}))[0]
    writer.close_question("own", {"output": output})
    writer.flush()
    questions = (await drive("get", "run")).questions
    assert [questions[id]["status"] for id in ("q", "own")] == ["answered", "answered"]


@driven
async def test_a_confirmation_is_declined_by_its_producer_with_any_reason(face: Face, kind: Kind) -> None:
    """One with half of a surrogate pair as well: the question is settled, for all."""
    relay = kind.make()
    emitter = await sk.Emitter.acreate(relay, "run") if face.is_async else sk.Emitter(relay, "run")
    emitter.code("print(1)", "python")
    approval = emitter.confirm(id="q")
    approval.confirmation.decline(HALF)
    assert not (await approval if face.is_async else approval.wait()).confirmation.edited
    assert approval.reason == HALF
    record = await face.in_thread(lambda: relay.get("run"))
    assert (record.questions["q"]["status"], record.questions["q"]["reason"]) == ("declined", HALF)
    await face.in_thread(emitter.close)


# -- 12 to 14: nobody waits for anybody, and nothing is left over


@driven
async def test_no_reader_delays_the_producer_or_another_reader(face: Face, kind: Kind) -> None:
    """One that never reads, and 100 that do."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    stuck = await drive("read", "run")
    writer.append(lines(1))
    await drive.next(stuck)
    readings = [await drive("read", "run") for _ in range(100)]
    for number in range(2, 52):
        writer.append(lines(1, number))
    for reading in readings:
        assert numbers(await drive.some(reading, 51)) == [*range(1, 52)]
    await drive("end", "completed", on=writer)
    assert await drive.next(readings[0]) is None
    assert numbers(await drive.some(stuck, 50)) == [*range(2, 52)]


@pytest.mark.slow
@driven
async def test_readings_leave_nothing_behind(face: Face, kind: Kind) -> None:
    """After 200 of them: no thread, and no reader in the record."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    writer.append(lines(1))
    await drive.next(await drive("read", "run"))
    before = threading.active_count()
    for _ in range(200):
        reading = await drive("read", "run")
        await drive.next(reading)
        reading.close()
    gc.collect()
    assert threading.active_count() <= before
    assert (await drive("get", "run")).readers == 0


@driven
async def test_a_wait_is_ended_from_any_thread(face: Face, kind: Kind) -> None:
    """`cancel` ends it there and then."""
    drive = Driver(face, kind.make())
    writer = await drive.open()
    reading = await drive("read", "run")

    def cancel() -> None:
        while not drive.relay.get("run").readers:  # type: ignore[union-attr]  # it is there
            time.sleep(0.001)
        reading.cancel()

    async with face.beside(cancel):
        assert await drive.next(reading) is None
    assert writer.fenced is None


@every_relay
@pytest.mark.anyio
async def test_a_silence_ends_a_pull_and_loses_nothing(kind: Kind) -> None:
    """It gives an empty list, again and again; then what has come."""
    relay = kind.make()
    writer = await relay.aopen("run", control=lambda control: None)
    reading = await relay.aread("run")
    for _ in range(3):
        assert await reading.apull(0.01) == []
    writer.append(lines(1))
    assert numbers(await reading.apull(20)) == [1]
    writer.end("completed")
    assert await reading.apull(20) is None


@driven
async def test_the_end_adds_to_what_is_known_of_a_run(face: Face, kind: Kind) -> None:
    """What its producer knows only then, such as why it ended. A second end adds nothing."""
    drive = Driver(face, kind.make())
    writer = await drive("open", "run", {"conversation": "c", "reason": None}, control=drive.received.append)
    assert await drive("end", "completed", None, {"reason": "stop"}, on=writer) is True
    assert await drive("end", "completed", None, {"reason": "other"}, on=writer) is False
    assert (await drive("get", "run")).info == {"conversation": "c", "reason": "stop"}
    assert await drive.listed(conversation="c") == ["run"]
