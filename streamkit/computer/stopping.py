"""Stopping a run: when it has to stop, and by which means.

A run is in one of these states, and never goes back:

- running: no limit was passed, and no stop was requested. The reaper watches those of memory and of processes.
- stopping, from `stop` on: the process is interrupted as soon as it has begun to run the code.
- interrupted: the interrupt is repeated every 30 ms, for one that comes at an unlucky moment is lost; after a while more and
  more seldom, for one that comes before the process is through with the one before puts its end off.
- abandoned: it did not end within a second of `stop`, or the reaper kills it because it passed the limit of memory or of
  processes. `check` returns True, and the process is to be ended.

That second is one in which the process could run: on a busy machine the time that it waits for a processor does not count,
and it gets at least twenty interrupts, which come late where everything does.
"""

from __future__ import annotations

import time
from typing import Protocol

from .language_process import LanguageProcess
from .processes import Identity, seconds_in_queue
from .request import RunRequest, StopReason

__all__ = ["RunStopper"]

GRACE = 1.0  # seconds from the interrupt to the kill
_REPEAT_INTERVAL = 0.03  # seconds between the first interrupts, and between two looks
_FEWEST_INTERRUPTS = 20  # before the kill, however late they come
_SLOWING = 1.5  # how many times longer than the last one each interval is after these
_IMMEDIATE: tuple[StopReason, ...] = ("memory_limit", "process_limit")


class InterruptibleRunner(Protocol):
    """The runner of a language, as what stops a run uses it."""

    def interrupt(self, before: set[Identity]) -> None:
        """Interrupt the code."""
        ...

    def repeat_interrupt(self, before: set[Identity]) -> None:
        """Interrupt the code again, which has not ended."""
        ...


class RunStopper:
    """Watches the limits of one run, and stops it.

    Args:
        runner: interrupts the code.
        run: its `stop_reason` is looked at, and set when a limit is passed.
        process: the process that runs the code.
        before: the processes below it that were there before the run, which are left alone.

    Attributes:
        stopping: whether the run is to stop.
        interrupted: whether the code was interrupted.
    """

    def __init__(
        self, runner: InterruptibleRunner, run: RunRequest, process: LanguageProcess, before: set[Identity]
    ) -> None:
        self._runner = runner
        self._run = run
        self._process = process
        self._before = before
        self._started_at = time.monotonic()
        self._stopped_at = self._queued_before = 0.0
        self._repeat_at = 0.0
        self._interval = _REPEAT_INTERVAL
        self._interrupts = 0
        self.stopping = False
        self.interrupted = False

    def stop(self, reason: StopReason) -> None:
        """Stop the run; only the first reason counts."""
        if not self.stopping:
            self.stopping = True
            self._stopped_at = time.monotonic()
            self._queued_before = seconds_in_queue(self._process.pid)
            self._run.stop_reason = self._run.stop_reason or reason

    def seconds_to_wait(self, now: float) -> float | None:
        """Return how long the run may be left alone until the next `check`; None for as long as nothing happens."""
        if self.stopping:
            remaining = self._stopped_at + GRACE - now
            return min(_REPEAT_INTERVAL, remaining) if remaining > 0 else _REPEAT_INTERVAL
        if self._run.limits.timeout is not None:
            return max(0.0, self._started_at + self._run.limits.timeout - now)
        return None

    def check(self, *, begun: bool) -> bool:
        """Do what is due now. True: the run is abandoned, and its process has to be killed.

        Args:
            begun: whether the process has begun to run the code; before that an interrupt would be lost.
        """
        now = time.monotonic()
        if not self.stopping:
            self._check_limits(now)
        if not self.stopping:
            return False
        immediate = self._run.stop_reason in _IMMEDIATE
        if self.interrupted:
            if now >= self._repeat_at:
                self._interrupts += 1
                self._interval *= _SLOWING if self._interrupts > _FEWEST_INTERRUPTS else 1
                self._repeat_at = now + self._interval
                self._runner.repeat_interrupt(self._before)
        elif begun and not immediate:
            self.interrupted = True
            self._repeat_at = now + _REPEAT_INTERVAL
            self._runner.interrupt(self._before)
        return immediate or self._had_its_time(now, begun)

    def _had_its_time(self, now: float, begun: bool) -> bool:
        """Whether the process could have ended the run by now."""
        if now < self._stopped_at + GRACE or (begun and self._interrupts < _FEWEST_INTERRUPTS):
            return False
        queued = seconds_in_queue(self._process.pid) - self._queued_before
        return now >= self._stopped_at + GRACE + queued

    def _check_limits(self, now: float) -> None:
        timeout, passed = self._run.limits.timeout, self._process.limit_passed
        if passed is not None:
            self.stop(passed)
        elif timeout is not None and now >= self._started_at + timeout:
            self.stop("timed_out")
        if self._run.stop_reason is not None:
            self.stop(self._run.stop_reason)
