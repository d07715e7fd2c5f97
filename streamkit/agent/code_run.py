"""One run of an agent's code on its computer, and what became of it."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

from ..core.engine import Engine
from ..events import Event
from ..messages import Message, ToolCallMessage
from .calls import call_id_of
from .code import ProposedCode
from .computer_protocol import Computing, Running

__all__ = ["INTERRUPT_PERIOD", "CodeRun"]

_MOST_UNREAD = 1000  # events that wait to be read before the run has to wait
# Seconds after which a thread that waits looks for Ctrl-C: a signal that comes just before the wait does not end it.
INTERRUPT_PERIOD = 0.25
_GRACE = 5.0  # seconds that an interrupted run has to end by itself

# The languages of computers that run an agent's code now. Another agent on the same computer waits for its turn.
_turns = threading.Condition()
_busy: set[tuple[int, str]] = set()


class CodeRun:
    """A run of code, which a thread of its own reads from the computer. What nobody reads any more is not lost: the
    messages of the run are complete whenever it has ended, and however.

    Args:
        computer: runs the code.
        code: the code.
        call: the call that asked for it.
        before: called in its thread before it begins; what it raises, `read` raises.

    Attributes:
        began: whether the computer began the run.
        finished: whether the run came to its own end.
    """

    def __init__(
        self, computer: Computing, code: ProposedCode, call: ToolCallMessage, before: Callable[[], None] | None = None
    ) -> None:
        self._computer = computer
        self._before = before
        self._code = code
        self._call_id = call_id_of(call)
        self.began = False
        self.finished = False
        self._running: Running | None = None
        self._engine = Engine()  # makes the run's messages, apart from the stream's
        self._unread: list[Event] = []
        self._changed = threading.Condition()  # guards what is below, and `_unread`
        self._closing = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    # -- for the source that reads it

    def read(self) -> list[Event]:
        """Wait for events, and return all that are there; none at the end. Begins the run.

        Raises:
            Exception: what the computer raised.
        """
        with self._changed:
            if self._thread is None and not self._closing:
                work = contextvars.copy_context().run
                self._thread = threading.Thread(target=work, args=(self._work,), name="streamkit-code", daemon=True)
                self._thread.start()
            while not self._changed.wait_for(lambda: self._unread or self._ended or self._closing, INTERRUPT_PERIOD):
                pass
            if self._closing:
                return []
            events, self._unread = self._unread, []
            self._changed.notify_all()
            if not events and self._error is not None:
                raise self._error
            return events

    def interrupt(self) -> None:
        """Make the run end soon. May be called from any thread; returns at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        with _turns:
            _turns.notify_all()
        if self._running is not None:
            self._running.interrupt()

    def close(self) -> None:
        """End the run, by force if need be, and return when it has ended and all of its output is in `messages`."""
        if not self._ended:
            self.interrupt()
        if self._thread is not None:
            self._thread.join(_GRACE)
        if self._running is not None:
            self._running.close()
        if self._thread is not None:
            self._thread.join()
        if self._closing and (repeat_loss := getattr(self._running, "repeat_loss", None)) is not None:
            repeat_loss()  # no handler gets what came while it was closed

    # -- for the turn, once it is closed

    def messages(self) -> list[Message]:
        """Return the messages of the run, as far as it came."""
        for _ in self._engine.end("completed" if self.finished else "cancelled"):
            pass
        return self._engine.messages.all

    # -- in the run's own thread

    def _work(self) -> None:
        language_of: Any = getattr(self._computer, "language_of", str)  # of a computer with aliases
        process = (id(self._computer), str(language_of(self._code.language)))
        if self._waits_for(process):
            try:
                self._run()
            except BaseException as error:
                self._error = error
            finally:
                with _turns:
                    _busy.discard(process)
                    _turns.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _waits_for(self, process: tuple[int, str]) -> bool:
        """Wait until no other agent runs code there. False: the run was closed first."""
        with _turns:
            _turns.wait_for(lambda: self._closing or process not in _busy)
            if self._closing:
                return False
            _busy.add(process)
            return True

    def _run(self) -> None:
        if self._before is not None:
            self._before()
        running = self._computer.run(self._code.language, self._code.source, call_id=self._call_id)
        with self._changed:
            if self._closing:
                return
            self._running, self.began = running, True
        for event in running:
            for _ in self._engine.complete_event(event):
                pass
            with self._changed:
                self._unread.append(event)
                self._changed.notify_all()
                self._changed.wait_for(lambda: len(self._unread) < _MOST_UNREAD or self._closing)
        with self._changed:
            self.finished = not self._closing
