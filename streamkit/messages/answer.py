"""An answer that any thread may give. The first one wins.

The engine makes an `Answer` where a source can take one, and the managers wait for it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable

from ..errors import UsageError

__all__ = ["Answer", "is_duration"]


def is_duration(value: object) -> bool:
    """Whether a value is a number of seconds from 0 on."""
    return isinstance(value, (int, float)) and value >= 0


class Answer:
    """The answer to one question. It is open until there is an answer, or the stream goes on without one.

        open -> answered    `give`: the answer, from any thread; `ready` at once, or after `resolve` if awaitable
        open -> decided     `decide`: the stream decided instead
        open -> closed      `close`, or `expire` when the time of a deferral is over

    Args:
        what: names the question in error texts.
        wake: called from the answering thread after each change; it wakes the stream.
        awaitables: whether the answer may be an awaitable, as on async streams.
        changes: the answer is appended here before each call of `wake`, and where the stream itself decides.

    Attributes:
        value: the answer; an awaitable as long as it is not `ready`.
        error: the error that the awaitable raised; None if it raised none.
        has_answer: whether there is an answer, the application's or the stream's.
        ready: whether `value` is the final answer, which needs no awaiting.
        closed: whether no answer is taken any more.
        by_stream: whether the answer is the stream's decision.
        deferred: whether `defer` was called and its time is not over: the stream waits.
        deferrals: how often `defer` was called; each call starts the time again.
        timeout: seconds that the last deferral lasts, None for no limit.
        is_settled: whether an answer that comes too late is dropped, and no error: who gives it could not know of the other one.
        forwarded: the number of the deferral with which a sub-agent's stream forwarded the question to the outer stream, whose
            handlers have not been called yet; 0 if it did not.
        no_awaitable: the error text that refuses an awaitable; `{}` stands for it.
    """

    __slots__ = (
        "_lock",
        "awaitables",
        "by_stream",
        "changes",
        "closed",
        "deferrals",
        "deferred",
        "error",
        "forwarded",
        "has_answer",
        "is_settled",
        "ready",
        "timeout",
        "value",
        "wake",
        "what",
    )

    no_awaitable = "a sync stream cannot await {!r}; pass the value, or use `astream`"

    def __init__(
        self,
        what: str,
        wake: Callable[[], None],
        *,
        awaitables: bool = False,
        changes: list[Answer] | None = None,
    ) -> None:
        self.what = what
        self.wake = wake
        self.awaitables = awaitables
        self.changes = changes
        self.value: object = None
        self.error: BaseException | None = None
        self.has_answer = False
        self.ready = False
        self.closed = False
        self.by_stream = False
        self.deferred = False
        self.deferrals = 0
        self.timeout: float | None = None
        self.is_settled = False
        self.forwarded = 0
        self._lock = threading.Lock()

    @property
    def open(self) -> bool:
        """Whether an answer would be taken now."""
        return not self.has_answer and not self.closed

    @property
    def answered(self) -> bool:
        """Whether the application answered. A decision by the stream itself does not count."""
        return self.has_answer and not self.by_stream

    def give(self, value: object) -> None:
        """Take the answer.

        Raises:
            UsageError: there is an answer already, the stream went on without one, or the value is an awaitable on a
                sync stream.
        """
        if not self.offer(value) and not self.is_settled:
            self._check()

    def offer(self, value: object) -> bool:
        """As `give`, but an answer that comes too late is not an error. Returns whether it was taken."""
        awaitable = inspect.isawaitable(value)
        if awaitable and not self.awaitables:
            if inspect.iscoroutine(value):
                value.close()
            raise UsageError(f"{self.what}: {self.no_awaitable.format(value)}")
        with self._lock:
            if self.has_answer or self.closed:
                return False
            self.value = value
            self.has_answer = True
            self.ready = not awaitable
        self._changed()
        return True

    def decide(self, value: object) -> bool:
        """Set the stream's own decision as the answer. Returns False if there is one already."""
        with self._lock:
            if self.has_answer:
                return False
            self.closed = self.has_answer = self.ready = self.by_stream = True
            self.value = value
        if self.changes is not None:
            self.changes.append(self)
        return True

    def resolve(self, value: object, error: BaseException | None = None) -> None:
        """Store the awaitable's result or error; for the manager that awaited it."""
        self.value = value
        self.error = error
        self.ready = True
        self._changed()

    def result(self) -> object:
        """Return the answer. Raises the error of its awaitable."""
        if self.error is not None:
            raise self.error
        return self.value

    def defer(self, timeout: float | None) -> None:
        """Make the stream wait for the answer. Does nothing if another thread has answered already.

        Raises:
            UsageError: the timeout is not a number of seconds, or the stream went on without an answer.
        """
        if timeout is not None and not is_duration(timeout):
            raise UsageError(f"{self.what}: a timeout cannot be {timeout!r} seconds")
        with self._lock:
            if self.answered:
                return
            self._check()
            self.deferred = True
            self.deferrals += 1
            self.timeout = timeout
        self._changed()

    def expire(self, deferral: int) -> None:
        """End a deferral whose time is over. Does nothing if `defer` was called again since."""
        with self._lock:
            if self.deferrals == deferral:
                self.deferred = False
                self.closed = True
        if self.changes is not None:
            self.changes.append(self)

    def close(self) -> bool:
        """Take no answer from now on. Returns False if there is one already."""
        with self._lock:
            self.closed = True
            return not self.has_answer

    def __reduce__(self) -> tuple[Callable[[str], Answer], tuple[str]]:
        """Return the function and argument that make a closed copy, in this process or another: nothing waits for its answer."""
        return _closed, (self.what,)

    def _changed(self) -> None:
        if self.changes is not None:
            self.changes.append(self)
        self.wake()

    def _check(self) -> None:
        """Raise `UsageError` if no answer can be taken."""
        if self.answered:
            raise UsageError(f"{self.what} has been answered already")
        if self.closed:
            raise UsageError(f"{self.what} takes no answer any more: it was decided without one")


def _closed(what: str) -> Answer:
    answer = Answer(what, _nothing)
    answer.close()
    return answer


def _nothing() -> None:
    """Nothing waits for the answer."""
