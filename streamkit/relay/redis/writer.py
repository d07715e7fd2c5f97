"""Writes a run into Redis: what `RedisRelay.open` returns."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import ProducerFenced
from ..interface import LogWriter, check_ending, check_lines
from ..run_record import Status, cursor_of, run_name
from ..wakers import in_event_loop
from .record import encode, question_value, settle_command
from .scripts import SNAPSHOT
from .write_buffer import Command, WriteBuffer

__all__ = ["RedisWriter"]

_PATIENCE = 5.0  # seconds to wait until the end of a run is stored


Settling: TypeAlias = Callable[[str, str, Mapping[str, Any] | None], tuple[bool, dict[str, Any]] | None]
"""Answers a question of a run, or closes it; None if there is none."""


class RedisWriter(LogWriter):
    """One producer of a run in Redis. It has the run as long as this object lives, and its process renews the lease."""

    def __init__(self, buffer: WriteBuffer, settle: Settling) -> None:
        self._buffer = buffer
        self._settle = settle  # of the relay, which lives as long as its writers
        self._name = run_name(buffer.run_id)
        self._prefix = f"{buffer.epoch}-"
        self._questions = 0
        self._is_paused = False
        self._snapshot: Command | None = None  # the newest; the next one drops the events up to it
        self.epoch = buffer.epoch
        weakref.finalize(self, buffer.drop).atexit = False

    @property
    def cursor(self) -> str | None:  # type: ignore[override]  # it is not set here
        """The cursor of the newest event."""
        buffer = self._buffer
        return cursor_of(buffer.wrote, buffer.number, self._name) if buffer.number else None

    @property
    def busy(self) -> bool:
        """Whether something runs besides the questions that are open."""
        return self._buffer.busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        if busy != self._buffer.busy:
            self._buffer.busy = busy
            self._buffer.put()

    @property
    def fenced(self) -> str | None:
        """Why nothing more can be written; None as long as writing works, as far as this process has heard."""
        return self._buffer.fenced or ("closed" if self._buffer.has_left else None)

    def append(self, events: Sequence[bytes]) -> list[str]:
        """Number events, and write them. All are sent at once, or with those that wait for a reply."""
        check_lines(events)
        first = self._buffer.append(events)
        return self._cursors(first, len(events))

    def _cursors(self, first: int, count: int) -> list[str]:
        prefix, name = self._prefix, self._name
        return [f"{prefix}{number}{name}" for number in range(first + 1, first + count + 1)]

    def ask(self, question_id: str, question: Mapping[str, Any], events: Sequence[bytes] = ()) -> list[str]:
        """Register a question, and write the events that show it."""
        self._buffer.check()
        self._questions += 1
        value = question_value(question_id, question, self.epoch, self._questions)
        first = self._buffer.ask(question_id, value, events)
        self._buffer.controls.opened(question_id)
        return self._cursors(first, len(events))

    def settle(self, question_id: str, answer: Mapping[str, Any] | None = None) -> tuple[bool, dict[str, Any]]:
        """Answer a question here, or close it without an answer."""
        self._buffer.controls.closed(question_id)
        return self._settle(self._buffer.run_id, question_id, answer) or (False, {})

    def close_question(self, question_id: str, answer: Mapping[str, Any] | None = None) -> None:
        """Answer a question here, or close it, after what was written."""
        self._buffer.controls.closed(question_id)
        self._buffer.put(Command(settle_command(self._buffer.keys, question_id, answer), is_guarded=False))

    def call_soon(self, call: Callable[[], object]) -> None:
        """Call something that may wait."""
        if in_event_loop():
            self._buffer.backend.call_later(call)
        else:
            call()

    def unattended(self, question_id: str) -> float:
        """For how many seconds the run has had no reader that may answer this question."""
        return self._buffer.controls.unattended(question_id)

    def snapshot(self, data: bytes) -> None:
        """Store the state at the newest event. (The one before is stored now, and what it stands for is dropped.)"""
        self._buffer.check()
        before, buffer = self._snapshot, self._buffer
        keys, epoch, number = buffer.keys, buffer.wrote, buffer.number
        positions = (b"%d-%d" % (epoch, number), b"%d-%d" % (epoch, number + 1))
        arguments = (buffer.epoch, buffer.owner, *positions, data, buffer.lifetimes.running)
        self._snapshot = Command(SNAPSHOT(keys.run, keys.log, keys.snapshot, *arguments))
        if before is not None:
            buffer.put(before)

    def pause(self) -> None:
        """Leave the run to the process that takes it over."""
        self._buffer.check()
        if self._buffer.leave("paused", b""):
            self._buffer.flush(_PATIENCE)
            self._is_paused = True

    def end(
        self, status: Status, error: Mapping[str, Any] | None = None, info: Mapping[str, Any] | None = None
    ) -> bool:
        """End the run, and wait until that is stored; in an event loop, where waiting would block it, it is stored soon."""
        check_ending(status)
        if not self._buffer.leave(status, b"" if error is None else encode(error), encode(dict(info)) if info else b""):
            return False
        if not in_event_loop():
            try:
                self._buffer.flush(_PATIENCE)
            except ProducerFenced:
                return False
        return True

    def flush(self, timeout: float = 5.0) -> None:
        """Wait until all is stored."""
        self._buffer.flush(timeout)
        if self._is_paused:
            self._buffer.check()

    def heartbeat(self) -> None:
        """Report that the producer still works. (The lease of its process is renewed without this.)"""
        self._buffer.beat += 1

    def abandon(self) -> None:
        """Stop writing without ending the run, as if the process had died, but after what was written is stored."""
        self._buffer.abandon()
