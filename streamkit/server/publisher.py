"""Writes the run of an agent into a relay.

The agent's stream is complete, so its events go into the log as they are, with two exceptions: the ids of the run and of its
steps are the server's, and messages that the stream repeats after a pause are not written again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..agent.actions import is_question
from ..answers import Confirmation
from ..errors import IncompleteStreamError
from ..events import (
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Delta,
    Done,
    Event,
    Run,
    RunCreated,
    RunDone,
    RunRequiresAction,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamEnd,
    StreamException,
    ToolCallDone,
    ToolOutputDone,
)
from ..messages import Message, ToolCallMessage
from ..relay import LogWriter, Relay
from ..relay.replay import Replay, entries_up_to
from ..relay.run_record import ending_of
from ..relay.run_writer import RunWriter

__all__ = ["Publisher"]


class Publisher:
    """One producer of one run. Any thread may call it.

    Args:
        run_id: the run's id.
        log: writes the run.
        limit: the `limit` of the relay; None if it never drops events.
        forgets: the entries of the run's info that nobody needs any more once it has ended.

    Attributes:
        open_questions: the ids of the questions that the agent has no answers to, in their order.
        instance: the id of the error that ended the run, in the log and in what clients receive.
    """

    def __init__(self, run_id: str, log: LogWriter, limit: int | None, forgets: Iterable[str] = ()) -> None:
        self.run_id = run_id
        self.log = log
        self.open_questions: dict[str, None] = {}
        self.instance = uuid.uuid4().urn
        self._lock = threading.RLock()
        self._replay = Replay()
        self._run = RunWriter(self._replay.engine, log, limit, resumable=True)
        self._continues_step = False
        self._is_shown: set[str] = set()  # ids of messages that the log has already and the stream repeats
        self._is_decided: set[str] = set()  # ids of confirmations with an outcome in the log, likewise
        self._waits_at: str | None = None  # the cursor of the newest event that reports that the agent waits
        self._is_over = False
        self._error: Mapping[str, Any] | None = None
        self._forgotten = dict.fromkeys(forgets)

    # -- how it begins

    def begin(self, input: Sequence[Message]) -> None:
        """Write the beginning of a new run, and its input."""
        with self._lock:
            self.log.busy = True
            self._write(RunCreated(Run(id=self.run_id, created_at=time.time())))
            self._write(RunStepCreated(RunStep()))
            for message in input:
                self._write(message.done_event(message))
            self._continues_step = True

    def continue_from(self, relay: Relay) -> None:
        """Read the log of earlier producers, to go on after it."""
        cursor = self.log.cursor
        if cursor is None:
            return
        self._run.continue_after(
            event for entry in entries_up_to(relay, self.run_id, cursor) for event in self._replay.read(entry)
        )
        engine = self._replay.engine
        self._continues_step = engine.runs.step is not None
        self._is_shown = {message.id for message in engine.messages.all if message.status != "in_progress"}
        self._is_decided = {one.id for one in engine.pending.confirmations if one.status != "pending"}

    # -- events of the agent's stream

    def publish(self, event: Event) -> None:
        """Write the next event of the agent's stream.

        Raises:
            ProducerFenced: the run no longer belongs to this producer.
        """
        with self._lock:
            if self._is_over:
                return
            if isinstance(event, ToolOutputDone):
                self.open_questions.pop(event.message.call_id or "", None)
            match event:
                case Delta():
                    if event.message_id not in self._is_shown:
                        self._write(type(event)(event.message_id, event.value, event.replace, event.metadata))
                case Created(message=message) | Done(message=message) if message.id in self._is_shown:
                    if isinstance(event, ToolCallDone) and isinstance(message, ToolCallMessage):
                        self._ask(message)
                case Created(message=message) | Done(message=message):
                    own = message.header() if isinstance(event, Created) else message.copy()
                    own.run_id = own.step_id = None
                    self._write(type(event)(own), message if isinstance(message, ToolCallMessage) else None)
                case RunCreated() | RunRequiresAction():
                    pass  # the run has begun already, and `waits` writes that it waits
                case RunDone(run=run):
                    self._write(
                        RunDone(replace(run, id=self.run_id, created_at=None, completed_at=time.time(), raw=None))
                    )
                case RunStepCreated(run_step=step):
                    if not self._continues_step:
                        self._write(RunStepCreated(replace(step, id="", run_id="")))
                    self._continues_step = False
                case RunStepDone(run_step=step):
                    self._write(RunStepDone(replace(step, id="", run_id="")))
                case ConfirmationCreated(confirmation=confirmation):
                    if not is_question(confirmation.subject) and confirmation.subject.parent_id is None:
                        self.log.busy = (
                            False  # an agent asks when nothing runs any more, but others run beside a sub-agent
                        )
                    self._publish_question(confirmation)
                case ConfirmationDone(confirmation=confirmation):
                    self._settle(confirmation)
                case StreamException():
                    self._error = {"type": event.error, "message": event.message, "instance": self.instance}
                    self._close_run("incomplete" if event.error == IncompleteStreamError.__name__ else "failed")
                    self._write(event)
                case StreamEnd():
                    pass  # `end` writes it, once everything else has ended
                case _:
                    self._write(replace(event, position=None, item_index=None))

    def _write(self, event: Event, question: Confirmation | ToolCallMessage | None = None) -> None:
        """Complete an event, and append it; `question` is what it shows, where the agent waits for an answer to it."""
        if question is not None and not question.waiting:
            question = None
        if question is not None:
            self._note_open(question)
        self._run.append(self._replay.complete(event), question)

    # -- questions

    def _publish_question(self, confirmation: Confirmation) -> None:
        if (
            confirmation.id in self._replay.engine.pending.waiting or confirmation.id in self._is_decided
        ):  # the log has it
            self._ask(confirmation)
            return
        self._write(ConfirmationCreated(_copy(confirmation)), confirmation)

    def _ask(self, waiting: Confirmation | ToolCallMessage) -> None:
        """Register a question again that the log shows already."""
        if waiting.waiting:
            self._note_open(waiting)
            self._run.ask(waiting)

    def _note_open(self, waiting: Confirmation | ToolCallMessage) -> None:
        call_id = waiting.call_id if isinstance(waiting, ToolCallMessage) else None
        self.open_questions[call_id or waiting.id] = None

    def _settle(self, confirmation: Confirmation) -> None:
        self.open_questions.pop(confirmation.id, None)
        if confirmation.id in self._is_decided:
            self._run.close_question(confirmation)
        else:
            self._write(ConfirmationDone(_copy(confirmation)))

    def report_waiting(self) -> None:
        """The agent waits for answers, and does nothing else."""
        with self._lock:
            engine = self._replay.engine
            self.log.busy = False
            if self._is_over or engine.runs.run is None or self.log.cursor == self._waits_at:
                return  # the wait was interrupted, and goes on
            self._write(RunRequiresAction(Run(id=self.run_id)))
            engine.runs.resume()
            self._waits_at = self.log.cursor

    # -- how it ends

    def end(self, status: str, error: Mapping[str, Any] | None = None) -> bool:
        """Write the end of the run. Returns whether this producer still had the run.

        Args:
            status: the status of the agent's stream.
            error: the error that ended the run, unless the stream has reported one itself.
        """
        with self._lock:
            if self._is_over or self.log.fenced is not None:
                return False
            if error is not None and self._error is None:
                self._error = {**error, "instance": self.instance}
                self._close_run("failed")
                self._write(StreamException(error["type"], error["message"]))
            self._close_run(status)
            ended = "failed" if self._error is not None else status
            run = self._replay.engine.runs.run
            self._write(StreamEnd(status=ended))
            self._is_over = True
            info = {} if run is None else {"finish_reason": run.finish_reason, "model": run.model, "usage": _usage(run)}
            info |= self._forgotten
            return self._run.end(ending_of(ended), self._error, info)

    def _close_run(self, status: Any) -> None:
        """Write the end of the run and of what is open in it, if the agent's stream ended before them."""
        self._run.append(self._replay.engine.end(status, self._error))

    def pause(self) -> None:
        """Leave the run to the process that takes it over. Further events of the agent's stream are not written."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                self.log.pause()


def _copy(confirmation: Confirmation) -> Confirmation:
    """Return a copy of a confirmation, which no stream waits for."""
    copy = Confirmation(
        confirmation.id,
        confirmation.subject,
        status=confirmation.status,
        edited=confirmation.edited,
        reason=confirmation.reason,
        malformed=confirmation.malformed,
        expires_at=_expires_at(confirmation),
    )
    copy.editable = confirmation.editable
    return copy


def _expires_at(waiting: Confirmation | ToolCallMessage) -> float | None:
    """When the agent stops to wait for an answer, which it has begun just now."""
    slot = waiting.answer_slot
    return None if slot is None or slot.timeout is None else round(time.time() + slot.timeout, 3)


def _usage(run: Run) -> dict[str, Any] | None:
    if run.usage is None:
        return None
    usage = run.usage
    names = ("input_tokens", "output_tokens", "total_tokens")
    return {name: getattr(usage, name) for name in names}
