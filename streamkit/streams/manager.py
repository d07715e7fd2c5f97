"""What both managers share: the clock, the deadlines of what was deferred, and the values that the end leaves."""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Iterable
from typing import Any, TypeGuard

from ..answers import Answer
from ..errors import ProtocolError, UsageError
from ..events import ConfirmationCreated, ConfirmationDone, Created, Event, Run, RunStep, StreamWarning, TextDelta
from ..handlers import Handler
from ..messages import Message, TextMessage
from ..protocols import registry
from ..protocols.base import Encoder
from ..sources.source import Readable
from .lifecycle import Lifecycle

__all__ = ["AnswerText", "Manager", "is_answer_text"]

STEP_BREAK = "\n\n"  # between the texts of two run steps: a model that calls a tool often says something before

_log = logging.getLogger("streamkit")
_log.addHandler(logging.NullHandler())


class Deadlines:
    """When the time of what was deferred is over. Deferred again, the time begins anew."""

    def __init__(self) -> None:
        self._deferrals: dict[Answer, int] = {}  # the deferral that each one's time is of
        self._ends: list[tuple[float, int, int, Answer]] = []  # a heap: when, of which deferral, and an id to sort by

    def left(self, deferred: Iterable[Answer]) -> float | None:
        """Seconds until the first is over of these and of all before, None if none ever is."""
        now = time.monotonic()
        for answer in deferred:
            deferral, seconds = answer.deferrals, answer.timeout
            if self._deferrals.get(answer) != deferral:
                self._deferrals[answer] = deferral
                if seconds is not None:
                    heapq.heappush(self._ends, (now + seconds, deferral, id(answer), answer))
        self._drop_settled()
        return max(0.0, self._ends[0][0] - now) if self._ends else None

    def over(self) -> list[tuple[Answer, int]]:
        """Those whose time is over without an answer, each with the number of its deferral."""
        now = time.monotonic()
        over: list[tuple[Answer, int]] = []
        self._drop_settled()
        while self._ends and self._ends[0][0] <= now:
            _, deferral, _, answer = heapq.heappop(self._ends)
            over.append((answer, deferral))
            self._drop_settled()
        return over

    def _drop_settled(self) -> None:
        """Drop what was answered, closed or deferred again from the front."""
        ends = self._ends
        while ends and (not ends[0][3].open or ends[0][3].deferrals != ends[0][1]):
            answer = heapq.heappop(ends)[3]
            if not answer.open:
                self._deferrals.pop(answer, None)


class Manager(Lifecycle, Readable):
    """What both managers share. A stream is a source for other streams, too."""

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        self._source_given = source
        self.driver: int | None = None  # the id of the thread or task that drives it, once it has started
        self._deadlines = Deadlines()
        self._answer_text = AnswerText()
        self._asked_at = 0.0  # when the oldest confirmation that is pending came; 0 where none is
        super().__init__(handlers, wake=self._answered, **options)

    def _answered(self) -> None:
        """Something was answered or deferred, perhaps in another thread."""
        raise NotImplementedError("the manager's")

    def _check_text_is_left(self) -> None:
        """Check that the stream has not ended, so that its text can still be read as it arrives.

        Raises:
            StreamkitError: the stream failed.
            UsageError: it has ended.
        """
        if self._ended:
            self._final()
            raise UsageError("the stream has ended, so no text is left to arrive: `get_final_text()` returns all of it")

    def _refuse_second_reader(self, kind: str) -> None:
        """Check that a stream which runs, in a thread or a task as `kind` says, has ended, so that nothing is to be read.

        Raises:
            UsageError: it has not.
        """
        if not self._ended:
            raise UsageError(f"the stream runs already: a hook or another {kind} cannot run it to its end, or read it")

    def _mark(self, moment: str) -> None:
        self._times.setdefault(moment, time.monotonic())

    def _note(self, event: Event) -> None:
        super()._note(event)
        if isinstance(event, Created):
            self._mark("first")
        elif isinstance(event, StreamWarning):
            _log.warning("%s", ProtocolError(event.code, event.fault, event.index, event.kind))
        elif isinstance(event, ConfirmationCreated):
            self._asked_at = self._asked_at or time.monotonic()
        elif isinstance(event, ConfirmationDone) and self._asked_at and not self._engine.pending_confirmations:
            self._times["asking"] = self._times.get("asking", 0.0) + time.monotonic() - self._asked_at
            self._asked_at = 0.0

    def for_stream(self) -> Readable:
        """The stream itself: another stream over it closes it."""
        return self

    # -- the values that the end leaves

    def _final(self) -> list[Message]:
        """All messages, or the error that the stream ended with."""
        if self._error is not None:
            raise self._error
        return list(self._engine.messages)

    def _final_text(self) -> str:
        texts = [m for m in self._final() if isinstance(m, TextMessage) and m.role == "assistant" and m.choice == 0]
        texts = [text for text in texts if text.content]
        return "".join(text.content for text in texts if text.step_id == texts[-1].step_id)

    def _final_run(self) -> Run:
        self._final()
        if self._engine.runs.run is None:
            raise UsageError("the stream ended before any run began")
        return self._engine.runs.run

    def _final_run_steps(self) -> list[RunStep]:
        self._final()
        return list(self._engine.runs.steps)

    @staticmethod
    def _encoder(protocol: str) -> Encoder:
        encoder: Encoder = registry.find(protocol).Encoder()
        return encoder


class AnswerText:
    """The pieces of the assistant's text (choice 0), with a break before the text of each further run step."""

    def __init__(self) -> None:
        self._message: Message | None = None  # whose deltas come

    def piece(self, event: Event) -> str | None:
        """What an event adds to the text; None for one that does not. A repair that replaces text does not."""
        if type(event) is TextDelta and event.snapshot is self._message and not event.replace:
            return event.value
        if not is_answer_text(event):
            return None
        before, message = self._message, event.snapshot
        self._message = message
        return event.value if before is None or before.step_id == message.step_id else f"{STEP_BREAK}{event.value}"


def is_answer_text(event: Event) -> TypeGuard[TextDelta]:
    """Whether an event adds to the assistant's text (choice 0). A repair that replaces text does not."""
    if type(event) is not TextDelta or event.replace:
        return False
    snapshot: Message = event.snapshot
    return snapshot.role == "assistant" and snapshot.choice == 0
