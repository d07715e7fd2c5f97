"""A thread that draws a `Screen` from what a stream's hooks reported.

The hooks only append to a queue; the thread takes from it at most so many times a second. Where there is nothing to
redraw, because the console is not a terminal, the reports are printed at once instead.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..streams.state import StreamState
    from .screen import Screen

__all__ = ["Drawing", "watch_start"]

_POLL_INTERVAL = 0.25  # seconds between two looks at the terminal's size
_START_INTERVAL = 0.1  # seconds between two looks at whether the stream has started


def watch_start(stream: StreamState, on_start: weakref.WeakMethod[Callable[[], None]], stop: threading.Event) -> None:
    """Call a method in a thread of its own once the stream has sent its request: the first event comes later. It is not
    called after `stop` was set. The thread keeps neither the stream nor the method's object alive."""
    reference = weakref.ref(stream)

    def watch() -> None:
        while not stop.wait(_START_INTERVAL) and (watched := reference()) is not None:
            if watched.started:
                if (method := on_start()) is not None:
                    method()
                return
            del watched

    threading.Thread(target=watch, name="streamkit-display-start", daemon=True).start()


class Drawing:
    """Draws one stream on a screen. An error of the thread is raised where the next thing is reported.

    Args:
        make_screen: makes the screen; gets the function for what the program itself prints.
        interval: seconds between two drawings; None draws only when `draw` is called.
        is_confirming: whether the stream is just emitting a confirmation, to any of its handlers.
    """

    def __init__(
        self,
        make_screen: Callable[[Callable[[str], None]], Screen],
        interval: float | None,
        is_confirming: Callable[[], bool],
    ) -> None:
        self._interval = interval
        self._is_confirming = is_confirming
        self._reports: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._lock = threading.RLock()  # of the screen
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._screen = screen = make_screen(self._print_aside)
        self._methods: dict[str, Callable[..., None]] = {
            "started": screen.started,
            "run_created": screen.run_created,
            "run_done": screen.run_done,
            "message_created": screen.message_created,
            "message_delta": screen.message_delta,
            "message_done": screen.message_done,
            "active_line": screen.set_active_line,
            "line": screen.add_line,
            "line_above": screen.add_line_above,
            "hold": screen.hold,
            "unfold": screen.unfold,
            "decided": screen.decided,
            "retried": screen.retried,
        }
        atexit.register(self.close)
        if interval is not None and screen.live:
            self._thread = threading.Thread(target=self._run, name="streamkit-display", daemon=True)
            self._thread.start()

    def report(self, kind: str, arguments: tuple[Any, ...]) -> None:
        """Something happened, to be shown by the screen's method for this kind.

        Raises:
            BaseException: the thread failed.
        """
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._reports.append((kind, arguments))
        if not self._wake.is_set():
            self._wake.set()
        if self._interval is not None and not self._screen.live:
            self.draw()

    def draw(self) -> None:
        """Draw everything that was reported, now."""
        with self._lock:
            self._apply_reports()
            self._screen.draw()

    def close(self) -> None:
        """Draw for the last time, restore the terminal, and end the thread.

        Raises:
            BaseException: the thread failed.
        """
        atexit.unregister(self.close)
        self._stop.set()
        self._wake.set()
        try:
            with self._lock:
                try:
                    self._apply_reports()
                finally:
                    self._screen.close()
        finally:
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
                self._thread = None
        if self._error is not None:
            raise self._error

    def _print_aside(self, text: str) -> None:
        """Show what the program itself printed."""
        with self._lock:
            if self._is_confirming():  # the handler that prints may be about to read an answer
                self._apply_reports()
                self._screen.hold(True)
            self._screen.print_aside(text)
        self._wake.set()

    def _apply_reports(self) -> None:
        reports = self._reports
        while reports:
            kind, arguments = reports.popleft()
            if kind == "message_delta":
                arguments = self._join_deltas(arguments)
            self._methods[kind](*arguments)

    def _join_deltas(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """A delta joined with those of the same message and stream that follow it."""
        reports = self._reports
        message, text, replace, stream = arguments
        more: list[str] = []
        while (
            reports
            and reports[0][0] == "message_delta"
            and reports[0][1][0] is message
            and reports[0][1][2:] == (False, stream)
        ):
            more.append(reports.popleft()[1][1])
        return (message, "".join([text, *more]), replace, stream) if more else arguments

    def _run(self) -> None:
        assert self._interval is not None
        while not self._stop.is_set():
            self._wake.wait(self._interval if self._screen.animated else _POLL_INTERVAL)
            self._wake.clear()
            try:
                with self._lock:
                    if not self._stop.is_set() and not self._is_confirming():
                        self.draw()
            except BaseException as error:
                self._error = error
                return
            self._stop.wait(self._interval)
