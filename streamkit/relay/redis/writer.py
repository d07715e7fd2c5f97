"""Writes a run into Redis: what `RedisRelay.open` returns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import ProducerFenced, UsageError
from ..cursors import Place, cursor_of, run_name
from ..interface import FINAL, LogWriter, Status
from ..wakers import in_event_loop
from .outbox import Outbox
from .record import encode, question_value
from .work import Settle, Trim

__all__ = ["RedisWriter"]

_PATIENCE = 5.0  # seconds to wait until the end of a run is stored


Settling: TypeAlias = Callable[[str, str, Mapping[str, Any] | None], tuple[bool, dict[str, Any]] | None]
"""Answers a question of a run, or closes it; None if there is none."""


class RedisWriter(LogWriter):
    """One producer of a run in Redis. It has the run as long as this object lives, and its process renews the lease."""

    def __init__(self, outbox: Outbox, settle: Settling) -> None:
        self._outbox = outbox
        self._settle = settle  # of the relay, which lives as long as its writers
        self._name = run_name(outbox.run_id)
        self._prefix = f"{outbox.epoch}-"
        self._questions = 0
        self._is_paused = False
        self._snapshot: Trim | None = None  # the newest; the next one drops the events up to it
        self.epoch = outbox.epoch
        weakref.finalize(self, outbox.drop).atexit = False

    @property
    def cursor(self) -> str | None:  # type: ignore[override]  # it is not set here
        """The cursor of the newest event."""
        outbox = self._outbox
        return cursor_of(outbox.wrote, outbox.number, self._name) if outbox.number else None

    @property
    def busy(self) -> bool:
        """Whether something runs besides the questions that are open."""
        return self._outbox.busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        if busy != self._outbox.busy:
            self._outbox.busy = busy
            self._outbox.put()

    @property
    def fenced(self) -> str | None:
        """Why nothing more can be written; None as long as writing works, as far as this process has heard."""
        return self._outbox.fenced or ("closed" if self._outbox.has_left else None)

    def append(self, events: Sequence[bytes]) -> list[str]:
        """Number events, and write them. All are sent at once, or with those that wait for a reply."""
        for data in events:
            if b"\n" in data:
                raise UsageError(f"an event in a log is one line, not {data[:60]!r}")
        first = self._outbox.append(events)
        return self._cursors(first, len(events))

    def _cursors(self, first: int, count: int) -> list[str]:
        prefix, name = self._prefix, self._name
        return [f"{prefix}{number}{name}" for number in range(first + 1, first + count + 1)]

    def ask(self, question_id: str, question: Mapping[str, Any], events: Sequence[bytes] = ()) -> list[str]:
        """Register a question, and write the events that show it."""
        self._outbox.check()
        self._questions += 1
        value = question_value(question_id, question, self.epoch, self._questions)
        first = self._outbox.ask(question_id, value, events)
        self._outbox.inbox.opened(question_id)
        return self._cursors(first, len(events))

    def settle(self, question_id: str, answer: Mapping[str, Any] | None = None) -> tuple[bool, dict[str, Any]]:
        """Answer a question here, or close it without an answer."""
        self._outbox.inbox.closed(question_id)
        return self._settle(self._outbox.run_id, question_id, answer) or (False, {})

    def close_question(self, question_id: str, answer: Mapping[str, Any] | None = None) -> None:
        """Answer a question here, or close it, after what was written."""
        self._outbox.inbox.closed(question_id)
        self._outbox.put(Settle(self._outbox.keys, question_id, answer))

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call something that may wait."""
        if in_event_loop():
            self._outbox.hub.answers.put(call)
        else:
            call()

    def unattended(self, question_id: str) -> float:
        """For how many seconds the run has had no reader that may answer this question."""
        return self._outbox.inbox.unattended(question_id)

    def snapshot(self, data: bytes) -> None:
        """Store the state at the newest event. (The one before is stored now, and what it stands for is dropped.)"""
        self._outbox.check()
        before, outbox = self._snapshot, self._outbox
        self._snapshot = Trim(Place(outbox.wrote, outbox.number), data)
        if before is not None:
            outbox.put(before)

    def pause(self) -> None:
        """Leave the run to whoever takes it over."""
        self._outbox.check()
        if self._outbox.leave("paused", b""):
            self._outbox.flush(_PATIENCE)
            self._is_paused = True

    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run, and wait until that is stored; in an event loop, where waiting would block it, it is stored soon."""
        if status not in FINAL:
            raise UsageError(f"a run does not end as {status!r}; it ends as one of {', '.join(FINAL)}")
        if not self._outbox.leave(status, b"" if error is None else encode(error), encode(dict(info)) if info else b""):
            return False
        if not in_event_loop():
            try:
                self._outbox.flush(_PATIENCE)
            except ProducerFenced:
                return False
        return True

    def flush(self, timeout: float = 5.0) -> None:
        """Wait until all is stored."""
        self._outbox.flush(timeout)
        if self._is_paused:
            self._outbox.check()

    def heartbeat(self) -> None:
        """Report that the producer still works. (The lease of its process is renewed without this.)"""
        self._outbox.beat += 1

    def abandon(self) -> None:
        """Stop writing without ending the run, as if the process had died, but after what was written is stored."""
        self._outbox.give_up()
