"""Ends a wait for a source that sends no content for too long, though it may send pings.

The clock counts the time that the stream waits for its source, in which hooks and answers have no part. It is set back by
content, which the decoded events are, and not by bytes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ..core.content import is_content
from ..core.steps import END
from ..errors import SourceTimeoutError
from ..events import Event
from ..limits import Timeouts
from .interrupt import Stopped
from .source import AsyncSource, Source

__all__ = ["ContentClock"]

_T = TypeVar("_T")


class ContentClock:
    """The clock of one stream.

    A wait of a thread is ended from another thread, which runs as long as there are such waits.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._lock = threading.Lock()
        self._look = threading.Event()  # makes the other thread look before its time
        self._looks_at: float | None = None  # when it looks next; None if it does not run
        self._is_over = False
        self._interrupt: Callable[[], object] | None = None  # ends the present wait
        self._fired = False  # it was called
        self._in_all = 0.0
        self._failure: SourceTimeoutError | None = None  # of a wait that was interrupted, and had a result all the same
        self.restart()

    # -- time

    def restart(self, *, goes_on: bool = False) -> None:
        """Another source is opened: all times begin anew, but for the total time where it is the same source once more."""
        self._has_content = False
        self._since_content = 0.0  # seconds, without the present wait
        self._in_all = self._in_all if goes_on else 0.0
        self._began: float | None = None
        self._failure = None

    def left_after_failure(self) -> float:
        """The source has failed, and may be asked again. Returns the seconds that are left for it."""
        self._end()
        total = self._timeouts.total
        return math.inf if total is None else total - self._in_all

    def count(self, seconds: float) -> None:
        """Count a wait between two attempts at a source."""
        self._in_all += seconds

    def stop(self) -> None:
        """The stream has ended."""
        self._is_over = True
        self._look.set()

    def feed(self, events: Sequence[Event]) -> Sequence[Event]:
        """Return these events, as a stage of the source's decoder. If one of them is content, the time without content begins
        anew."""
        if any(map(is_content, events)):
            self._has_content = True
            self._since_content = 0.0
        return events

    def _left(self) -> tuple[float, str]:
        """Return the seconds until the first timeout is over, and its name."""
        now = 0.0 if self._began is None else time.monotonic() - self._began
        limits = self._timeouts
        waited = self._since_content + now
        times = [
            (seconds - spent, name)
            for name, seconds, spent in (
                ("first", None if self._has_content else limits.first, waited),
                ("idle", limits.idle if self._has_content else None, waited),
                ("total", limits.total, self._in_all + now),
            )
            if seconds is not None
        ]
        return min(times, default=(threading.TIMEOUT_MAX, ""))

    def _begin(self) -> float:
        """Begin a wait. Returns the seconds that it may take.

        Raises:
            SourceTimeoutError: the time is over.
        """
        if self._failure is not None:
            raise self._failure
        left, _ = self._left()
        if left <= 0:
            raise self._error()
        self._began = time.monotonic()
        return left

    def _end(self) -> None:
        if self._began is not None:
            waited = time.monotonic() - self._began
            self._began = None
            self._since_content += waited
            self._in_all += waited

    def _error(self) -> SourceTimeoutError:
        _, name = self._left()
        seconds = getattr(self._timeouts, name)
        what = "the source did not end" if name == "total" else "no content came"
        return SourceTimeoutError(f"{what} within {seconds:g} seconds (`Timeouts.{name}`)")

    def _interrupted(self, result: _T) -> _T:
        """Return the result of a wait that was interrupted, which may be an open source, or bytes: it is used, and
        closed, and the next wait raises.

        Raises:
            SourceTimeoutError: there is none.
        """
        failure = self._error()
        if result is None or result is END:
            raise failure
        self._failure = failure
        return result

    # -- waits of a thread

    def guard(self, source: Source | AsyncSource) -> None:
        """Measure each wait for the source's next batch."""
        pull: Any = source.next
        if isinstance(source, AsyncSource):
            source.next = lambda: self.wait_async(pull)
        else:
            source.next = lambda: self.wait(pull, source.interrupt)

    def wait(self, function: Callable[[], _T], interrupt: Callable[[], object]) -> _T:
        """Return the result of a function that waits for the source. `interrupt` makes it return, or raise, in another
        thread.

        Raises:
            SourceTimeoutError: the time is over.
        """
        end = time.monotonic() + self._begin()
        with self._lock:
            self._interrupt, self._fired = interrupt, False
            looks_at, self._looks_at = self._looks_at, min(end, self._looks_at or end)
            if looks_at is None:
                threading.Thread(target=self._watch, name="streamkit-timeouts", daemon=True).start()
            elif end < looks_at:
                self._look.set()
        try:
            result = function()
        except (Exception, Stopped) as error:
            if self._ends_wait():
                raise self._error() from (error if isinstance(error, Exception) else None)
            raise
        except BaseException:
            self._ends_wait()
            raise
        return self._interrupted(result) if self._ends_wait() else result

    def _ends_wait(self) -> bool:
        """End a wait. Returns whether it was interrupted."""
        with self._lock:
            self._interrupt = None
            if not self._fired:
                self._end()
            return self._fired

    def _watch(self) -> None:
        """Interrupt the wait whose time is over. Runs in its own thread, until nothing waits when it looks."""
        while True:
            with self._lock:
                left = 0.0 if self._interrupt is None else self._left()[0]
                if left <= 0 or self._is_over:
                    self._looks_at = None
                    if self._interrupt is not None and not self._is_over:
                        self._fired = True
                        self._interrupt()
                    return
                self._looks_at = time.monotonic() + left
                self._look.clear()
            self._look.wait(min(left, threading.TIMEOUT_MAX))

    # -- waits of a task

    async def wait_async(self, function: Callable[[], Awaitable[_T]]) -> _T:
        """As `wait`, in a task. No cancel scope encloses the function: it may pull a generator that holds scopes of its own."""
        from .awaiting import TimedSleeps, await_with, is_cancellation  # not for threads

        sleeps, cause = TimedSleeps(self._begin()), None
        try:
            result: _T = await await_with(function, sleeps)
        except BaseException as error:
            # A task group of the source's may take the interruption; what the source raises then is what came of it.
            is_end = isinstance(error, Exception) or (is_cancellation(error) and not sleeps.was_cancelled)
            if not sleeps.are_over or not is_end:
                if self._left()[0] > 0:
                    self._end()
                raise
            cause = error if isinstance(error, Exception) else None
        else:
            if sleeps.are_over:
                return self._interrupted(result)
            self._end()
            return result
        raise self._error() from cause
