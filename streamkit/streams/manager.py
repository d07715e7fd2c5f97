"""What both managers share: the clock, the deadlines of what was deferred, and the values that the end leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any, TypeGuard

from ..answers import Answer
from ..errors import UsageError
from ..events import Created, Event, Run, RunStep, TextDelta
from ..handlers import Handler
from ..messages import Message, TextMessage
from ..protocols import registry
from ..protocols.base import Encoder
from ..sources.source import Readable
from .lifecycle import Lifecycle

__all__ = ["AnswerText", "Manager", "is_answer_text"]

STEP_BREAK = "\n\n"  # between the texts of two run steps: a model that calls a tool often says something before


class Deadlines:
    """When the time of what was deferred is over. Deferred again, the time begins anew."""

    def __init__(self) -> None:
        self._ends: dict[Answer, tuple[int, float]] = {}  # of which deferral, and when

    def left(self, answers: Iterable[Answer]) -> float | None:
        """Seconds until the first of these is over, None if none ever is."""
        now = time.monotonic()
        ends: list[float] = []
        for answer in answers:
            deferral, seconds = answer.deferrals, answer.timeout
            if self._ends.get(answer, (0, 0.0))[0] != deferral:
                self._ends[answer] = (deferral, math.inf if seconds is None else now + seconds)
            if not answer.given:
                ends.append(self._ends[answer][1])
        first = min(ends, default=math.inf)
        return None if first == math.inf else max(0.0, first - now)

    def over(self, answers: Iterable[Answer]) -> list[tuple[Answer, int]]:
        """Those whose time is over without an answer, each with the number of its deferral."""
        now = time.monotonic()
        over = ((answer, *self._ends[answer]) for answer in answers if answer in self._ends)
        return [(answer, deferral) for answer, deferral, end in over if end <= now and not answer.given]


class Manager(Lifecycle, Readable):
    """What both managers share. A stream is a source for other streams, too."""

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        self._source_given = source
        self.driver: int | None = None  # the id of the thread or task that drives it, once it has started
        self._deadlines = Deadlines()
        self._answer_text = AnswerText()
        super().__init__(handlers, wake=self._answered, **options)

    def _answered(self) -> None:
        """Something was answered or deferred, perhaps in another thread."""
        raise NotImplementedError("the manager's")

    def _mark(self, moment: str) -> None:
        self._times.setdefault(moment, time.monotonic())

    def _note(self, event: Event) -> None:
        super()._note(event)
        if isinstance(event, Created):
            self._mark("first")

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
