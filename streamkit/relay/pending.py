"""What an emitter asked its consumers, to be waited for: in a thread, or in a task.

Any consumer may answer, and the first answer wins. Nobody is waited for who does not come: once every reader that is
here was told and has gone on, without an answer and without deferring it, what was asked is not answered. As long as
nobody was told, or somebody deferred it, it is waited for; `timeout` waits that long whatever the readers do.
"""

# pyright: reportPrivateUsage=false
# An answer is the engine's and the emitter's; its underscore keeps users from it.

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, Protocol, Self

from ..answers import Answer, Confirmation
from ..errors import UsageError
from ..messages import ToolCallMessage
from ..streams.manager import Deadlines
from .interface import Relay
from .wakers import ThreadWaker, in_event_loop, task_waker

__all__ = ["Approval", "Asking", "Output"]

_SIGN = 1.0  # seconds between two signs of life of who waits


class Asking(Protocol):
    """The emitter, as far as it is asked for answers."""

    @property
    def run_id(self) -> str: ...
    @property
    def relay(self) -> Relay: ...
    def watch(self, wake: Callable[[], None]) -> Callable[[], None]: ...
    def tell_answers(self) -> None: ...


class _Asked:
    """One question, waited for."""

    def __init__(self, emitter: Asking, answer: Answer | None, cursor: str, timeout: float | None) -> None:
        self._emitter = emitter
        self._answer = answer
        self._cursor = cursor
        self._until = None if timeout is None else time.monotonic() + timeout
        self._deadlines = Deadlines()
        self._decided = answer is None

    def _wait(self) -> None:
        if not self._is_decided() and in_event_loop():
            raise UsageError(f"waiting for {self._what} here would block the event loop: `await` it")
        waker = ThreadWaker()
        unwatch = self._watch(waker.wake)
        try:
            while not self._is_decided():
                waker.wait(self._sign())
                waker.reset()
        finally:
            unwatch()

    async def _await(self) -> None:
        waker = task_waker()
        unwatch = self._watch(waker.wake)
        try:
            while not self._is_decided():
                await waker.wait(self._sign())
                waker.reset()
        finally:
            unwatch()
            waker.close()

    @property
    def _what(self) -> str:
        return "it" if self._answer is None else self._answer.what

    def _watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        emitter = self._emitter
        unwatch = emitter.watch(wake), emitter.relay.watch(emitter.run_id, wake)

        def stop() -> None:
            for one in unwatch:
                one()

        return stop

    def _sign(self) -> float:
        """Seconds to wait for; who waits is alive."""
        self._emitter.relay.heartbeat(self._emitter.run_id)
        seconds = _SIGN
        if self._answer is not None:
            left = self._deadlines.left([self._answer]) if self._answer.deferred else None
            seconds = min(seconds, seconds if left is None else left)
        if self._until is not None:
            seconds = min(seconds, max(0.0, self._until - time.monotonic()))
        return seconds

    def _is_decided(self) -> bool:
        answer = self._answer
        if self._decided or answer is None:
            return True
        if not answer.given:
            for late, deferral in self._deadlines.over([answer]) if answer.deferred else ():
                late.expire(deferral)
            if self._goes_on(answer):
                return False
            self._give_up(answer)
        self._decided = True
        self._emitter.tell_answers()
        return True

    def _goes_on(self, answer: Answer) -> bool:
        """Whether an answer may still come."""
        if answer.closed:
            return False
        if answer.deferred:
            return True
        if self._until is not None:
            return time.monotonic() < self._until
        return not self._emitter.relay.passed(self._emitter.run_id, self._cursor)

    def _give_up(self, answer: Answer) -> None:
        answer.close()


class Approval(_Asked):
    """The answer to a confirmation: true where it may run. `wait()` for it in a thread, `await` it in a task; its truth
    waits, too.

    Attributes:
        confirmation: what was asked.
    """

    def __init__(self, emitter: Asking, confirmation: Confirmation, cursor: str, timeout: float | None) -> None:
        super().__init__(emitter, confirmation.answer_slot, cursor, timeout)
        self.confirmation = confirmation

    def wait(self) -> Self:
        """Wait in this thread until it is decided.

        Raises:
            UsageError: that would block an event loop.
        """
        self._wait()
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        yield from self._await().__await__()
        return self

    def __bool__(self) -> bool:
        self._wait()
        return self.confirmation.status == "approved"

    @property
    def edited(self) -> str | None:
        """What was approved in its place, once it is decided."""
        return self.confirmation.edited

    @property
    def reason(self) -> str | None:
        """Why it was declined, once it is decided."""
        return self.confirmation.reason

    def _give_up(self, answer: Answer) -> None:
        answer.give_up((False, "not answered"))

    def __repr__(self) -> str:
        return f"<Approval {self.confirmation.id} {self.confirmation.status}>"


class Output(_Asked):
    """The output of a tool call, given by a consumer. `wait()` for it in a thread, `await` it in a task."""

    def __init__(self, emitter: Asking, call: ToolCallMessage, cursor: str, timeout: float | None) -> None:
        super().__init__(emitter, call.answer_slot, cursor, timeout)
        self.call = call

    def wait(self) -> Any:
        """The output, as the consumer gave it.

        Raises:
            UsageError: nobody answered; or waiting here would block an event loop.
        """
        self._wait()
        return self._output()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._await().__await__()
        return self._output()

    def _output(self) -> Any:
        answer = self._answer
        if answer is None:
            raise UsageError(f"tool call {self.call.call_id!r} asks nobody: the agent runs it itself")
        if not answer.given:
            raise UsageError(
                f"{answer.what} was not answered: every reader has gone on without it, or its time is over"
            )
        return answer.result()

    def __repr__(self) -> str:
        return f"<Output of {self.call!r}>"
