"""What both shells share: the end of a run loop, how deltas are told, the final values, and which error is raised."""

# pyright: reportPrivateUsage=false
# A shell drives the state, the engine and their messages, whose underscores keep users out.

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from .. import protocols
from ..answers import Answer
from ..errors import UsageError
from ..events import EVENTS, Delta, Event, Run, TextDelta
from ..handlers import Call, Handler
from ..messages import Message, TextMessage
from ..sources.interrupt import Stopped
from .state import StreamState

__all__ = ["Deadlines", "Manager", "Stopped", "add_note", "first_of", "is_answer_text", "needs_async", "of_delta"]


class Deadlines:
    """When the time of what was deferred is over. It begins anew where it was deferred again."""

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
        """Those that are over without an answer, each with the number of its deferral."""
        now = time.monotonic()
        over = ((answer, *self._ends[answer]) for answer in answers if answer in self._ends)
        return [(answer, deferral) for answer, deferral, end in over if end <= now and not answer.given]


class Manager(StreamState):
    """What both shells share."""

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        super().__init__(handlers, wake=self._woken, **options)
        self._source_given = source
        self._closing = False
        self._deadlines = Deadlines()
        self._deltas: dict[type[Event], Any] = {}  # what tells all of a kind of delta, as the hot loop calls it
        self._unseen = False  # nobody iterates: events need not be handed out

    def _woken(self) -> None:
        raise NotImplementedError

    def _check(self) -> None:
        """Go no further once `close` or `cancel` was called; what is told after the end is told."""
        if self._closing and not self._ended:
            raise Stopped

    @property
    def _over_early(self) -> bool:
        """Whether `close`, `cancel` or a failure ended the stream, so that nothing more is read."""
        return self._closing or self._ended

    def _delta_plan(self) -> list[tuple[type[Event], tuple[Call, ...]]]:
        return [(kind, self._plan[kind]) for kind in _delta_kinds(len(EVENTS))]

    def _mark(self, key: str) -> None:
        self._times.setdefault(key, time.monotonic())

    def _let_go(self) -> None:
        """It is over, and tells nothing more: what refers back to it goes, so that it is freed when nobody has it."""
        self._handlers, self._plan, self._deltas, self._receivers = (), {}, {}, ()
        self._engine.let_go()
        if self._source_decoder is not None:
            self._source_decoder.let_go()

    def _final(self) -> list[Message]:
        """All messages, or the error that the stream ended with."""
        if self._error is not None:
            raise self._error
        return list(self._engine.messages)

    def _final_text(self) -> str:
        texts = (m for m in self._final() if isinstance(m, TextMessage) and m.role == "assistant" and m.choice == 0)
        return "".join(text.content for text in texts)

    def _final_run(self) -> Run:
        self._final()
        if self._engine.runs.run is None:
            raise UsageError("the stream ended before any run began")
        return self._engine.runs.run

    def _encoder(self, protocol: str) -> protocols.Encoder:
        encoder: protocols.Encoder = protocols.find(protocol).Encoder()
        return encoder


@cache
def _delta_kinds(count: int) -> list[type[Event]]:
    """The kinds of deltas. `count` is how many events there are: applications may declare more."""
    return [kind for kind in EVENTS.values() if issubclass(kind, Delta)]


def needs_async(handler: object) -> str | None:
    """The name of a hook of this handler that only an async stream can run."""
    return handler._streamkit_needs_async() if isinstance(handler, Handler) else None  # what is none is refused later


def of_delta(call: Call) -> Callable[[Any, Any], Any]:
    """A call as the hot loop makes it, with the delta and its snapshot."""
    function = call.function
    return (lambda event, snapshot: function(event)) if call.takes_event else function


def is_answer_text(event: Event) -> bool:
    if type(event) is not TextDelta or event.replace:
        return False
    snapshot: Message = event.snapshot
    return snapshot.role == "assistant" and snapshot.choice == 0


def first_of(error: BaseException, event: Event, another: BaseException) -> BaseException:
    """Which of two errors is raised: the earlier, but a hook's before our own stop, and an interrupt before both."""
    if _weight(another) > _weight(error):
        return another
    add_note(error, event, another)
    return error


def _weight(error: BaseException) -> int:
    return 2 if isinstance(error, (KeyboardInterrupt, SystemExit)) else 1 if isinstance(error, Exception) else 0


def add_note(error: BaseException, event: Event | None, another: BaseException) -> None:
    """Tell of a later error with the first. What only comes again, as a full disk does, is not told again."""
    if type(another) is type(error) and str(another) == str(error):
        return
    where = f"telling {event.type}" if event is not None else "closing the source"
    error.add_note(f"While the stream ended, {where} raised {type(another).__name__}: {another}")
