"""Reading a run as events: as a source of streams, and in loops over the events in its log.

A `Reader` can be read any number of times; each time it begins a `Reading`, which has one place in the log. A question
among the events takes an answer, which goes to the run's registry. A reader that goes on without having answered or
deferred it says so, and one that leaves takes its deferral back.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from ..answers import Answer, Confirmation
from ..core.resume import Snapshot
from ..errors import UsageError
from ..events import ConfirmationCreated, Delta, Event, StreamWarning, ToolCallDone
from ..messages import ToolCallMessage
from ..protocols import codec
from ..protocols.base import OwnEvents
from ..sources.source import AsyncSource, Readable, Source, SourceTraits
from ..streams.timing import Deadlines
from .reading import RunSource
from .registry import answer_of
from .run_record import Entry, position_of
from .wakers import in_event_loop

__all__ = ["Reader", "decoded"]


def decoded(line: bytes, *, is_snapshot: bool = False) -> Event:
    """Return the event of an entry's line; that of a snapshot's line is a `Snapshot`.

    Raises:
        ValueError: this process knows no such event; perhaps it is an application's own.
    """
    return codec.snapshot_from(line) if is_snapshot else codec.decode_event(line)


class Reader(Readable):
    """A run to read, from a cursor on. Each stream and each loop over it reads for itself."""

    def __init__(self, relay: RunSource, run_id: str, after: str | None = None, timeout: float | None = None) -> None:
        self.relay = relay
        self.run_id = run_id
        self.after = after
        self.timeout = timeout
        if not (relay.waits and in_event_loop()):
            self._begin().close()  # raises now where there is no such run or cursor
        elif after is not None:
            position_of(after, run_id)  # raises where it is not a cursor of this run

    def _begin(self, after: str | None = None) -> _Events:
        return _Events(self, after)

    def __iter__(self) -> Iterator[Event]:
        """Yield the events in the log: canonical, each with its cursor, without snapshots."""
        events = self._begin()
        try:
            while (batch := events.reading.pull()) is not None:
                yield from _flat(batch)
        finally:
            events.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks."""
        return _ReadingLoop(self)

    def for_stream(self) -> Reader:
        """Itself: a stream reads it when it starts."""
        return self

    def source(self) -> Source:
        """Return the run as a source that a thread pulls."""
        events = self._begin()
        return Source(iter(events.reading.pull, None), events.close, events.traits, upstream=events.reading)

    def async_source(self) -> AsyncSource:
        """Return the run as a source that a task pulls."""
        return self._begin().async_source()

    async def open_async(self, after: str | None) -> AsyncSource:
        """Open the run as a source that a task pulls, without blocking the event loop where the relay waits."""
        return (await self.begin_in_task(after)).async_source()

    async def begin_in_task(self, after: str | None = None) -> _Events:
        """Begin to read; for a loop over the events."""
        return await self.relay.in_task(self._begin, after if self.relay.waits else None)

    def __repr__(self) -> str:
        return f"<Reader of {self.run_id!r}{f' after {self.after}' if self.after else ''}>"


class _Events:
    """The events of one reading, for one stream."""

    def __init__(self, reader: Reader, after: str | None = None) -> None:
        self._relay, self._run_id, self._after = reader.relay, reader.run_id, reader.after
        after = after if reader.after is None else reader.after
        self.reading = reader.relay.read(reader.run_id, after, timeout=reader.timeout)
        self.reading.convert = self._decoded
        self.traits = SourceTraits(protocol="streamkit", read_to_end=True, resume=self.resume)
        self._silent_until = 0  # the number of the event after which a stream resumes; 0 once it has been read
        self._decode = codec.line_decoder()  # events that are declared later are decoded carefully
        self._questions: list[RelayAnswer] = []  # that were handed out, and are neither answered nor skipped
        self._deadlines = Deadlines()
        self._message_id = ""  # of the newest delta

    def resume(self, after: str | None) -> str | None:
        """Read from the run's beginning, in place of after the cursor: a stream that goes on after a cursor takes in all
        that comes before, to have its messages. Returns the cursor up to which its handlers receive nothing, None if
        they receive everything.

        Raises:
            UsageError: the cursor is not one of this run, or is not the one that the reader has.
        """
        if after is not None and self._after is not None and after != self._after:
            raise UsageError(
                f"the stream resumes after {after!r}, but its reader begins after {self._after!r}: pass `after=` to one of them"
            )
        after = after if after is not None else self._after
        if after is None or not self.reading.rewind(after):
            return None
        self._silent_until = position_of(after, self._run_id).number
        return after if self._silent_until else None

    def async_source(self) -> AsyncSource:
        """Return the source that a task pulls."""
        return AsyncSource(self.reading.apull, self.aclose, self.traits, cancel=self.reading.cancel)

    def close(self) -> None:
        """Stop reading."""
        self.reading.close()

    async def aclose(self) -> None:
        """As `close`, for tasks."""
        self.reading.close()

    # -- from entries to events

    def _decoded(self, entries: Sequence[Entry]) -> OwnEvents:
        is_silent = self._silent_until > 0  # no handler has received a question that would be skipped
        if self._questions and not is_silent:
            self._attend()
        decode, newest, events = self._decode, self._message_id, OwnEvents()
        event: Any
        for cursor, line, is_snapshot in entries:
            try:
                event = decode(line)
            except Exception:  # a snapshot, or one that msgspec alone does not decode
                event = self._decoded_carefully(line, cursor, is_snapshot=is_snapshot)
            event.position = cursor
            if event.message_id == newest:
                event.message_id = newest  # that of deltas in a row is one str, so that their message is found faster
            elif isinstance(event, Delta):
                self._message_id = newest = event.message_id
            elif event.__class__ in _WITH_QUESTIONS:
                self._link(event)
            events.append(event)
        if is_silent and self._number_of(entries[-1].cursor) >= self._silent_until:
            self._silent_until = 0
        if self._questions and not self._silent_until:
            self.reading.attend = self._attend
        return events

    def _number_of(self, cursor: str) -> int:
        return position_of(cursor, self._run_id).number

    def _decoded_carefully(self, line: bytes, cursor: str, *, is_snapshot: bool) -> Event:
        """Return the event of a line that the line decoder refuses; a warning if there is no such event."""
        try:
            event = decoded(line, is_snapshot=is_snapshot)
        except ValueError as error:
            if is_snapshot:
                raise
            return StreamWarning("unknown-event", f"it is not a canonical event and was skipped: {error}")
        if isinstance(event, Snapshot):
            event.is_gap = 0 < self._silent_until < self._number_of(cursor)
            for one in event.events:
                if type(one) in _WITH_QUESTIONS:
                    self._link(one)
        return event

    # -- questions

    def _link(self, event: Any) -> None:
        """Give a question a slot for an answer, if the registry has it."""
        is_call = isinstance(event, ToolCallDone)
        waiting: Any = event.message if is_call else event.confirmation
        if is_call and waiting.provider_executed:
            return
        id = (waiting.call_id or waiting.id) if is_call else waiting.id
        found = self._find(id, (waiting if is_call else waiting.subject).id)
        if found is None:
            return
        key, question = found
        name = f"tool call {id!r}" if is_call else f"confirmation {id!r}"
        answer = RelayAnswer(
            name, key, is_open=question["status"] == "pending", send=_Send(self, waiting), changed=self.reading.wake
        )
        waiting.answer_slot = answer
        if isinstance(waiting, Confirmation):
            waiting.editable = question.get("editable", True)
        if answer.open:
            self._questions.append(answer)

    def _find(self, id: str, subject_id: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return the question about this message, with its key: a later one of the same id has a number appended."""
        for number in count(1):
            key = id if number == 1 else f"{id}.{number}"
            question = self._relay.question(self._run_id, key)
            if question is None:
                return None
            if question.get("subject", {}).get("id", subject_id) == subject_id:
                return key, question
        return None

    def send(self, question_id: str, answer: Mapping[str, Any]) -> None:
        """Pass the reader's answer on to the registry. In a task it is stored soon: the event loop does not wait for it."""
        self._relay.pass_on(self._run_id, question_id, answer)

    def _attend(self) -> float:
        """Skip what the reader has neither answered nor deferred, now that it goes on. Returns the seconds until the first deferral
        is over."""
        for late, deferral in self._deadlines.over():
            late.expire(deferral)
        held: list[RelayAnswer] = []
        for answer in self._questions:
            if answer.open and answer.deferred:
                held.append(answer)
            elif answer.open:
                self.reading.skip(answer.question)
        self._questions = held
        if not held:
            self.reading.attend = None
        left = self._deadlines.left(held)
        return math.inf if left is None else left


class RelayAnswer(Answer):
    """One reader's answer to a question, which goes to the registry of the run. The registry decides which answer counts; one
    that comes too late is dropped without an error, because its reader receives the outcome, as every other one does.

    Args:
        what: names the question in error texts.
        question: its id in the registry.
        is_open: whether it can still be answered.
        send: is called with the question's id and the reader's value.
        changed: is called when the question was deferred.
    """

    __slots__ = ("_changed_here", "_is_open", "_send", "question")

    no_awaitable = "the answer is sent to the run's producer, which cannot await {!r}; await it, and pass the value"

    def __init__(
        self,
        what: str,
        question: str,
        *,
        is_open: bool,
        send: Callable[[str, Any], None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(what, self._forward)
        self.question = question
        self._is_open = is_open
        self._send = send
        self._changed_here = changed

    @property
    def open(self) -> bool:
        return self._is_open and super().open

    def expire(self, deferral: int) -> None:
        """The time of a deferral is over. The question stays open: others may have deferred it, too."""
        with self._lock:
            if self.deferrals == deferral:
                self.deferred = False

    def _forward(self) -> None:
        if not self.has_answer:
            self._changed_here()
        elif self._is_open:
            self._is_open = False
            self._send(self.question, self.value)


class _Send:
    """Sends the answer to a question. (It does not keep the question's stream alive.)"""

    def __init__(self, events: _Events, waiting: Confirmation | ToolCallMessage) -> None:
        self._events = events
        self._waiting = waiting

    def __call__(self, question_id: str, value: Any) -> None:
        if (answer := answer_of(self._waiting, value)) is not None:
            self._events.send(question_id, answer)


_WITH_QUESTIONS = (ConfirmationCreated, ToolCallDone)


def _flat(events: Sequence[Event]) -> Iterator[Event]:
    """Yield events, and in place of a snapshot those that it consists of."""
    for event in events:
        if isinstance(event, Snapshot):
            for one in event.events:
                one.position = event.position
                yield one
        else:
            yield event


class _ReadingLoop(AsyncIterator[Event]):
    """A loop over the events of a reading. Not an async generator, which a loop that is left early would leave open."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._events: _Events | None = None
        self._is_over = False
        self._ready: deque[Event] = deque()

    async def __anext__(self) -> Event:
        while not self._ready:
            events = self._events
            if events is None and not self._is_over:
                events = self._events = await self._reader.begin_in_task()
            batch = None if events is None or self._is_over else await events.reading.apull()
            if batch is None:
                await self.aclose()
                raise StopAsyncIteration
            self._ready.extend(_flat(batch))
        return self._ready.popleft()

    def __del__(self) -> None:
        if self._events is not None:
            self._events.close()  # the reading is in a cycle of references

    async def aclose(self) -> None:
        """Stop reading."""
        self._is_over = True
        if self._events is not None:
            self._events.close()
