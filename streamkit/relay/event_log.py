"""What stands between a writer's engine and the log of its run: encodes events, registers the questions among them, and
makes snapshots when they are due."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..answers import Answer, Confirmation
from ..core.content import is_content
from ..core.delivery import NO_EVENT
from ..core.engine import Engine
from ..events import ConfirmationCreated, Delta, Event, ToolCallDone
from ..messages import ToolCallMessage
from ..protocols import codec
from .answers import answer_of, value_of
from .interface import LogWriter
from .log_snapshots import LogSnapshots, encoded

__all__ = ["EventLog"]

_PATIENCE = 300.0  # seconds for which a confirmation of another stream waits for an answer of a reader
_SETTLED = ("approved", "declined", "answered")


class EventLog:
    """The events of one run. Its writer locks.

    Args:
        engine: completes the events, and knows what waits for an answer.
        log: what the run is written with.
        limit: of the relay; None where nothing is ever dropped.

    Attributes:
        cursor: of the newest event; None before the first.
        current: the newest event that came from the engine; `NO_EVENT` before the first.
        snapshots: counts the events that are written, and makes snapshots of them.
        first_content: when the first content came, on the monotonic clock; None before.
        forwarded: new confirmations of other streams whose time is not limited, for the writer to wait for.
    """

    def __init__(self, engine: Engine, log: LogWriter, limit: int | None) -> None:
        self.cursor: str | None = None
        self.current: Event = NO_EVENT
        self.first_content: float | None = None
        self._engine = engine
        self._log = log
        self.snapshots = LogSnapshots(engine, log, limit)
        # The questions that the relay has open, by their ids.
        self._registered: dict[str, Confirmation | ToolCallMessage] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}  # that the registry has to these
        self._unattended: set[str] = set()  # those that every reader goes on without
        self.forwarded: list[Confirmation] = []  # new ones of another stream, which waits for the readers
        engine.removed = []

    # -- events

    def append(self, events: Iterable[Event]) -> None:
        """Write events of the engine, each encoded before it completes the next one. What it gave before it raised an
        error is written, too."""
        lines: list[bytes] = []
        try:
            for event in events:
                self.current = event
                lines.append(encoded(event))
                if self.first_content is None and is_content(event):
                    self.first_content = time.monotonic()
                if isinstance(event, Delta):
                    continue
                self.snapshots.note(event)
                if (waiting := _question_in(event)) is not None:
                    self._ask(waiting, lines)
                    lines = []
        finally:
            self.store(lines)
        removed, self._engine.removed = self._engine.removed or (), []
        for id in [id for id in removed if id in self._registered and id not in self._engine.pending]:
            self._log.close_question(id, _outcome_of(self._registered.pop(id)))
            self._answers.pop(id, None)
            self._unattended.discard(id)

    def store(self, lines: Sequence[bytes]) -> None:
        """Append encoded events, and make a snapshot where enough are new since the last one."""
        snapshots = self.snapshots
        if lines:
            self.cursor = self._log.append(lines)[-1]
            snapshots.left -= len(lines)
        if snapshots.left <= 0:
            snapshots.make()

    # -- questions

    def _ask(self, waiting: Confirmation | ToolCallMessage, lines: Sequence[bytes]) -> None:
        """Register a question, and append the events up to the one that shows it, which is the last."""
        id, answer = self._engine.key_of(waiting), waiting.answer_slot
        question: dict[str, Any] = {"kind": "tool_call", "resumable": False}
        if isinstance(waiting, Confirmation):
            subject = codec.message_to_dict(waiting.subject)
            question.update(kind="confirmation", subject=subject, editable=waiting.editable)
            if answer is not None and not self._engine.is_own(answer) and answer.open and answer.timeout is None:
                answer.defer(_PATIENCE)  # another stream's, which waits for the readers, of which one may answer
                self.forwarded.append(waiting)
        else:
            question.update(subject=codec.message_to_dict(waiting))
        self._registered[id] = waiting
        self.cursor = self._log.ask(id, question, lines)[-1]
        self.snapshots.left -= len(lines)

    def answered(self, id: str, answer: Mapping[str, Any]) -> None:
        """The registry has an answer; any thread may call it."""
        if id in self._registered:
            self._answers[id] = answer
        waiting = self._engine.pending.get(id)
        if waiting is not None and waiting.answer_slot is not None:
            waiting.answer_slot.offer(value_of(answer))

    def unattended(self, id: str) -> None:
        """Every reader goes on without a question; any thread may call it."""
        self._unattended.add(id)
        waiting = self._engine.pending.get(id)
        answer = None if waiting is None else waiting.answer_slot
        if answer is not None and not self._engine.is_own(answer):
            answer.expire(answer.deferrals)
            answer.wake()

    def decided(self, waiting: Confirmation | ToolCallMessage, answer: Answer) -> Any:
        """The value of the answer that counts, which the registry decides: this one, unless a reader's came before."""
        id, own = self._engine.key_of(waiting), answer_of(waiting, answer.result())
        if (first := self._answers.get(id)) is not None:
            return value_of(first)
        counts, question = self._log.settle(id, own)
        return value_of(own if counts or question.get("status") not in _SETTLED else _answer_in(question))

    def give_up(self, id: str) -> bool:
        """Close a question that nobody answered. False if somebody did, and the answer is about to come."""
        counts, question = self._log.settle(id, None)
        return counts or question.get("status") not in _SETTLED

    def is_unattended(self, id: str, seconds: float) -> bool:
        """Whether every reader goes on without a question, or for so long none has been there that could answer it."""
        return id in self._unattended or self._log.unattended(id) >= seconds


def _question_in(event: Event) -> Confirmation | ToolCallMessage | None:
    """What an event shows that waits for an answer; None if nothing in it does."""
    match event:
        case ConfirmationCreated(confirmation=Confirmation(answer_slot=Answer()) as waiting):
            return waiting
        case ToolCallDone(message=ToolCallMessage(answer_slot=Answer()) as waiting):
            return waiting
        case _:
            return None


def _outcome_of(waiting: Confirmation | ToolCallMessage) -> dict[str, Any] | None:
    """How something ended that does not wait any more, as the registry has it; None if nothing was answered."""
    if isinstance(waiting, ToolCallMessage) or not waiting.answered:
        return None
    return answer_of(waiting, (waiting.status, waiting.edited if waiting.status == "approved" else waiting.reason))


def _answer_in(question: Mapping[str, Any]) -> dict[str, Any]:
    """The answer in the record of a question that was answered."""
    fields = {key: question[key] for key in ("edited", "reason", "output", "error") if key in question}
    return fields if question["status"] == "answered" else {"approved": question["status"] == "approved", **fields}
