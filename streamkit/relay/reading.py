"""Reading a run: one place in its log, from which one thread or one task reads on."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, Self, TypeVar, get_args

import anyio.lowlevel

from ..arguments import check_seconds
from ..errors import SourceError, UsageError
from .run_record import Entry
from .wakers import TaskWaker, ThreadWaker, task_waker

__all__ = ["Gap", "Reading", "RunSource", "check_reading", "events_missing", "run_not_found"]

Gap = Literal["snapshot", "error"]
T = TypeVar("T")


def check_reading(gap: object, timeout: object) -> None:
    """Refuse arguments of `Relay.read` that are of another kind."""
    check_seconds("timeout", timeout, or_none=True)
    if gap not in get_args(Gap):
        raise UsageError(f"`gap` is one of {', '.join(get_args(Gap))}, not {gap!r}")


def events_missing(run_id: str, oldest: str | None = None) -> SourceError:
    """Return the error of a reader that takes no snapshot, where the next events are not in the log. `oldest` is the cursor of
    the first event that can be read on after, if that is known."""
    instead = "" if oldest is None else f"after {oldest!r}, or "
    error = SourceError(
        f"run {run_id!r}: the events after this reader's cursor are not in the log any more; read {instead}with "
        "`gap='snapshot'`"
    )
    error.status_code = 410
    return error


def run_not_found(run_id: str, why: str = "it never was, or it has expired") -> SourceError:
    """Return the error of a run that is not in the relay."""
    error = SourceError(f"there is no run {run_id!r} in this relay: {why}")
    error.status_code = 404
    return error


class Reading(ABC):
    """An iterator and an async iterator of lists of entries, which waits for more until the run has ended. It counts as one
    of the run's readers from its first pull until it is closed.

    Attributes:
        convert: makes something else of the entries before they are handed out; None for the entries themselves.
        attend: called before it waits, which says that what was handed out is handled; returns for how many seconds at most
            to wait.
    """

    def __init__(self) -> None:
        self._is_over = False
        self._waker: ThreadWaker | TaskWaker | None = None
        self._has_waited = True
        self.convert: Callable[[list[Entry]], Any] | None = None
        self.attend: Callable[[], float] | None = None

    @abstractmethod
    def take(self, waker: ThreadWaker | TaskWaker) -> list[Entry] | float | None:
        """Return the next entries; None at the end. If there are none yet: for how many seconds to wait before this is called
        again. The relay wakes `waker` when there are some.

        Raises:
            SourceTimeoutError: the producer has been silent for too long.
            SourceError: the run was deleted; or the next events are not in the log (410), and `gap` is `error`.
        """

    @abstractmethod
    def skip(self, question_id: str) -> None:
        """Report that this reader goes on without an answer to a question, and without having deferred it."""

    @abstractmethod
    def rewind(self, after: str) -> bool:
        """Read from the run's beginning, or the snapshot that stands for it, in place of after this cursor; before the first
        pull. False where the cursor is not in the log, so that a snapshot of what came after it is the first entry.

        Raises:
            UsageError: it is not a cursor of this run.
        """

    def pull(self) -> Any:
        """Return the next entries, as soon as there are any; None at the end. Raises as `take`."""
        waker = self._waker
        if not isinstance(waker, ThreadWaker):
            waker = self._waker = ThreadWaker()
        while not self._is_over:
            taken = self.take(waker)
            if isinstance(taken, list):
                return taken if self.convert is None else self.convert(taken)
            if taken is None:
                return None
            waker.wait(taken if self.attend is None else min(taken, self.attend()))
        return None

    async def apull(self, silence: float | None = None) -> Any:
        """As `pull`, for tasks on asyncio and trio. After so many seconds of silence: an empty list."""
        if not self._has_waited:  # other tasks of this event loop run, however much there is to read
            await anyio.lowlevel.checkpoint()
        self._has_waited = False
        waker = self._waker
        if waker is None or isinstance(waker, ThreadWaker):
            waker = self._waker = task_waker()
        began: float | None = None
        while not self._is_over:
            taken = self.take(waker)
            if isinstance(taken, list):
                return taken if self.convert is None else self.convert(taken)
            if taken is None:
                return None
            self._has_waited = True
            if self.attend is not None:
                taken = min(taken, self.attend())
            if silence is not None:
                # The first wait is for the same time always, so that the waker's timer serves many of them.
                now = time.monotonic()
                began = now if began is None else began
                left = silence - (now - began)
                if left <= 0:
                    return []
                taken = min(taken, left)
            await waker.wait(taken)
        return None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Entry]:
        entries: list[Entry] | None = self.pull()
        if entries is None:
            self.close()
            raise StopIteration
        return entries

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Entry]:
        entries: list[Entry] | None = await self.apull()
        if entries is None:
            self.close()
            raise StopAsyncIteration
        return entries

    @property
    def is_over(self) -> bool:
        """Whether it was cancelled or closed."""
        return self._is_over

    def wake(self) -> None:
        """Make a pull that waits look again, from any thread."""
        if self._waker is not None:
            self._waker.wake()

    def cancel(self) -> None:
        """End a pull that waits, from any thread."""
        self._is_over = True
        self.wake()

    def close(self) -> None:
        """Stop reading. The producer goes on. It takes no lock: the garbage collector may call it."""
        self._is_over = True
        if self._waker is not None:
            self._waker.close()

    async def aclose(self) -> None:
        """As `close`, for tasks."""
        self.close()


class RunSource(Protocol):
    """A relay, as readers use it: `Relay` says what its methods do."""

    waits: bool

    def read(
        self, run_id: str, after: str | None = None, *, gap: Gap = "snapshot", timeout: float | None = None
    ) -> Reading:
        """Read a run from its beginning, or after a cursor."""
        ...

    def question(self, run_id: str, question_id: str) -> Mapping[str, Any] | None:
        """Return one of a run's questions; None if there is none."""
        ...

    def pass_on(self, run_id: str, question_id: str, answer: Mapping[str, Any]) -> None:
        """Answer a question, for a reader that does not wait for the outcome."""
        ...

    def in_task(self, function: Callable[..., T], *arguments: Any, **options: Any) -> Awaitable[T]:
        """Call one of its methods, for a task."""
        ...
