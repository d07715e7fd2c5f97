"""Writes the events of a run into its log: encodes them, registers the questions among them, and stores snapshots. An emitter
writes with it, and so does the server."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..answers import Answer, Confirmation
from ..core.content import is_content
from ..core.engine import Engine
from ..core.snapshot import SnapshotMaker
from ..events import ConfirmationCreated, Created, Delta, Event, RawEvent, StreamRetry, ToolCallDone
from ..messages import Message, ToolCallMessage
from ..protocols import codec
from .interface import LogWriter
from .registry import answer_of, recorded_answer, value_of
from .run_record import Status

__all__ = ["RunWriter"]

_LARGEST = 1 << 20  # bytes of a snapshot, beyond which messages that have ended are left out
_NEVER = 1 << 62  # events: more than any run has
_PATIENCE = 300.0  # seconds that another stream's confirmation waits for an answer of this run's readers
_ANSWERED = ("approved", "declined", "answered")


class RunWriter:
    """Writes the events of one producer's engine. It takes no lock: one thread may call it at a time, but for the methods below
    that say otherwise.

    Args:
        engine: completes the events of the run before they are written.
        log: of the run, open for writing.
        limit: the events that the relay's log holds at most; None if it holds all.
        resumable: whether another producer can take the run over, and act on the answers to its questions.

    Attributes:
        cursor: of the newest event; None before the first.
        current: the newest event that came from the engine; None before the first.
        first_content: when the first content came, on the monotonic clock; None before.
        until_snapshot: how many events may be written before the next snapshot is due.
        forwarded: new confirmations of other streams that have no time limit. The owner waits for their readers.
    """

    def __init__(self, engine: Engine, log: LogWriter, limit: int | None, *, resumable: bool) -> None:
        self.cursor: str | None = None
        self.current: Event | None = None
        self.first_content: float | None = None
        self._interval = _NEVER if limit is None else (limit + 1) // 2
        self.until_snapshot = self._interval
        self.forwarded: list[Confirmation] = []
        self._open: dict[str, _WrittenQuestion] = {}  # the questions that the relay has open, by their ids
        self._engine = engine
        self._log = log
        self._resumable = resumable
        self._maker = SnapshotMaker(engine, _encoded, limit or 0, _LARGEST)
        self._written = 0  # messages (without those withdrawn) and events outside of messages, in the whole log
        engine.pending.removed = []

    def continue_after(self, events: Iterable[Event]) -> None:
        """Count the events that earlier producers of the run have written."""
        for event in events:
            self._count(event)

    # -- events

    def append(self, events: Iterable[Event], question: Confirmation | ToolCallMessage | None = None) -> None:
        """Append the engine's events, each encoded before the engine completes the next one. Those that came before the engine
        raised an error are written too.

        Args:
            question: the question in the last event, if another stream waits for its answer. (The engine's own questions are
                found in their events.)
        """
        lines: list[bytes] = []
        try:
            for event in events:
                self.current = event
                lines.append(_encoded(event))
                if self.first_content is None and is_content(event):
                    self.first_content = time.monotonic()
                if isinstance(event, Delta):
                    continue
                self._count(event)
                if (waiting := _question_in(event)) is not None:
                    self.ask(waiting, lines)
                    lines = []
            if question is not None:
                self.ask(question, lines)
                lines = []
        finally:
            self._append(lines)
        self._close_removed()

    def _append(self, lines: Sequence[bytes]) -> None:
        if lines:
            self.cursor = self._log.append(lines)[-1]
            self.until_snapshot -= len(lines)
        if self.until_snapshot <= 0:
            self.store_snapshot()

    # -- snapshots

    def _count(self, event: Event) -> None:
        match event:
            case StreamRetry():
                self._written -= sum(self._engine.messages.get(id) is not None for id in {*event.withdrawn})
            case _ if isinstance(event, Created) or _is_apart(event):
                self._written += 1
            case _:
                pass

    def store_snapshot(self) -> None:
        """Store a snapshot of the state at the newest event, with the number of messages and events that it leaves out."""
        self.until_snapshot = self._interval
        events, message_count = self._maker.lines()
        self._log.snapshot(codec.encode_snapshot(events, self._written - message_count))

    # -- questions

    def ask(self, waiting: Confirmation | ToolCallMessage, lines: Sequence[bytes] = ()) -> None:
        """Register a question, and append the encoded events up to the one that shows it, which is the last."""
        id = self._engine.pending.key_of(waiting)
        self._open[id] = _WrittenQuestion(waiting)
        record = self._record_of(waiting)
        self._wait_for_readers(waiting)
        if cursors := self._log.ask(id, record, lines):
            self.cursor = cursors[-1]
        self.until_snapshot -= len(lines)

    def _record_of(self, waiting: Confirmation | ToolCallMessage) -> dict[str, Any]:
        """Return the registry's record of a question, as `LogWriter.ask` takes it."""
        if isinstance(waiting, ToolCallMessage):
            kind, editable = "tool_call", False
            message: Message = waiting
        else:
            kind, message, editable = "confirmation", waiting.subject, waiting.editable
        own = self._engine.messages.get(message.id)  # with the ids of this run
        subject = message if own is None or own.content != message.content else own
        record: dict[str, Any] = {"kind": kind, "subject": codec.message_to_dict(subject), "editable": editable}
        slot = waiting.answer_slot
        if slot is not None and slot.timeout is not None:
            record["expires_at"] = round(time.time() + slot.timeout, 3)
        if not self._resumable:
            record["resumable"] = False
        return record

    def close_question(self, waiting: Confirmation | ToolCallMessage) -> None:
        """Close a question, with the outcome that it has."""
        id = self._engine.pending.key_of(waiting)
        self._open.pop(id, None)
        self._log.close_question(id, _outcome_of(waiting))

    def _close_removed(self) -> None:
        """Close the questions that the engine does not wait for any more."""
        if not self._engine.pending.removed:
            return
        removed, self._engine.pending.removed = self._engine.pending.removed, []
        for id in removed:
            if id in self._open and id not in self._engine.pending.waiting:
                self._log.close_question(id, _outcome_of(self._open.pop(id).waiting))

    def _wait_for_readers(self, waiting: Confirmation | ToolCallMessage) -> None:
        """Defer another stream's confirmation. Otherwise that stream would settle it before a reader of this run can answer."""
        slot = waiting.answer_slot
        if (
            self._resumable
            or not isinstance(waiting, Confirmation)
            or slot is None
            or self._engine.pending.is_own(slot)
        ):
            return
        if slot.open and slot.timeout is None:
            slot.defer(_PATIENCE)
            self.forwarded.append(waiting)

    # -- answers of readers; any thread may call these

    def receive_answer(self, id: str, answer: Mapping[str, Any]) -> None:
        """Pass the registry's answer on to the question."""
        if (question := self._open.get(id)) is not None:
            question.answer = answer
        waiting = self._engine.pending.waiting.get(id)
        if waiting is not None and waiting.answer_slot is not None:
            waiting.answer_slot.offer(value_of(answer))

    def no_reader_can_answer(self, id: str) -> None:
        """Record that every reader has gone on without answering a question. If it is another stream's, that stream stops
        waiting."""
        if (question := self._open.get(id)) is not None:
            question.is_unattended = True
        waiting = self._engine.pending.waiting.get(id)
        slot = None if waiting is None else waiting.answer_slot
        if slot is not None and not self._engine.pending.is_own(slot):
            slot.expire(slot.deferrals)
            slot.wake()

    def winning_value(self, waiting: Confirmation | ToolCallMessage, answer: Answer) -> Any:
        """Return the value of the winning answer: `answer`, unless a reader's reached the registry first."""
        id, own = self._engine.pending.key_of(waiting), answer_of(waiting, answer.result())
        question = self._open.get(id)
        if question is not None and question.answer is not None:
            return value_of(question.answer)
        counts, record = self._log.settle(id, own)
        return value_of(own if counts or record.get("status") not in _ANSWERED else recorded_answer(record))

    def close_unanswered(self, id: str) -> bool:
        """Close a question without an answer. Returns False if there is one, which is about to come."""
        counts, record = self._log.settle(id, None)
        return counts or record.get("status") not in _ANSWERED

    def is_unattended(self, id: str, seconds: float) -> bool:
        """Whether every reader has gone on without answering, or no reader that could answer has been there for so many seconds."""
        question = self._open.get(id)
        return (question is not None and question.is_unattended) or self._log.unattended(id) >= seconds

    # -- the end

    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run, as `LogWriter.end`."""
        return self._log.end(status, error, info)


class _WrittenQuestion:
    """A question that the relay has open.

    Attributes:
        waiting: what waits for the answer.
        answer: the registry's; None before it came.
        is_unattended: whether every reader goes on without it.
    """

    __slots__ = ("answer", "is_unattended", "waiting")

    def __init__(self, waiting: Confirmation | ToolCallMessage) -> None:
        self.waiting = waiting
        self.answer: Mapping[str, Any] | None = None
        self.is_unattended = False


def _is_apart(event: Event) -> bool:
    """Whether an event is in no snapshot: a raw one, or one that the application has declared."""
    return isinstance(event, RawEvent) or type(event).__module__ != RawEvent.__module__


def _encoded(event: Event) -> bytes:
    """Return an event as a line of the log, which has the cursors."""
    if isinstance(event, Delta):
        return codec.encode_delta(type(event)(event.message_id, event.value, event.replace, event.metadata))
    return codec.encode_event(event if event.position is None else replace(event, position=None))


def _question_in(event: Event) -> Confirmation | ToolCallMessage | None:
    """Return the question that an event shows; None if it shows none."""
    match event:
        case ConfirmationCreated(confirmation=Confirmation(answer_slot=Answer()) as waiting):
            return waiting
        case ToolCallDone(message=ToolCallMessage(answer_slot=Answer()) as waiting):
            return waiting
        case _:
            return None


def _outcome_of(waiting: Confirmation | ToolCallMessage) -> dict[str, Any] | None:
    """Return the answer to a settled question, as the registry stores it; None if there was none."""
    if isinstance(waiting, ToolCallMessage) or not waiting.answered:
        return None
    return answer_of(waiting, (waiting.status, waiting.edited if waiting.status == "approved" else waiting.reason))
