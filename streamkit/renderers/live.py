"""Showing a stream on a terminal, alive: with Rich, the extra `live`.

The rule: hooks only note what happened; a thread draws, at most so many times a second. So neither a slow terminal
nor a long text holds the stream up. However the stream ends, the thread has ended before `on_end` returns, and the
terminal is as it was.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ConfirmationCreated, Delta, Run, StreamWarning
from ..handlers import EventHandler
from ..messages import (
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    TextMessage,
    ToolCallMessage,
)
from .characters import one_line
from .console import size_of
from .wording import has_told, outcome, sources, summary, told_in_fields

if TYPE_CHECKING:
    from rich.console import Console

    from ..streams.state import StreamState
    from .screen import Screen

__all__ = ["LiveDisplay"]

_UNREADABLE = (ImageMessage, FileMessage, AudioMessage)  # shown when they are done
_ASKED_ABOUT = (CodeMessage, ToolCallMessage)
_POLL = 0.25  # seconds between two looks at the terminal's size


class LiveDisplay(EventHandler):
    """Draws a stream on a terminal: thoughts, text as Markdown, code with the line that runs, what it prints, tool
    calls side by side. What is finished is printed once and scrolls away; only what still changes is drawn again.

    Where the console is no terminal, or one that cannot move its cursor, each part is printed when it is finished.
    Handlers that ask people (with `input`) come after it: it stands still while a confirmation waits. What the
    program prints to `sys.stdout` and `sys.stderr` meanwhile goes above.

    Args:
        console: Rich's; None makes one for `sys.stdout`.
        refresh_per_second: how often it is drawn, at most; 0 for when `refresh` is called alone.
        code_theme: of Pygments, or Rich's `ansi_dark` and `ansi_light`, which use the terminal's own colours.
        output_lines: how many lines of a tool's output are shown; None for all.
        warnings, errors, run_end: tell what was odd in the stream, what it failed with, and how the run ended.
        redirect: whether what the program prints goes above; else it must not print while the stream runs.

    Raises:
        UsageError: `rich` is not installed.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        refresh_per_second: float = 12,
        code_theme: str = "ansi_dark",
        output_lines: int | None = 20,
        warnings: bool = True,
        errors: bool = True,
        run_end: bool = True,
        redirect: bool = True,
    ) -> None:
        try:
            import rich.console
        except ImportError as error:
            raise UsageError("LiveDisplay needs rich: pip install 'streamkit-sdk[live]'") from error
        if not refresh_per_second >= 0:
            raise UsageError(f"a display is drawn 0 times a second or more, not {refresh_per_second!r}")
        self._console = console if console is not None else rich.console.Console()
        self._interval = 1 / refresh_per_second if refresh_per_second else None
        self._look: dict[str, Any] = {"code_theme": code_theme, "output_lines": output_lines}
        self._warnings, self._errors, self._run_end = warnings, errors, run_end
        self._redirect = redirect
        self._drawing: Drawing | None = None

    def bind(self, stream: StreamState) -> None:
        if not hasattr(self, "_look"):  # a subclass forgot `super().__init__()`
            LiveDisplay.__init__(self)
        super().bind(stream)
        self.close()

    def refresh(self) -> None:
        """Draw now."""
        if self._drawing is not None:
            self._drawing.draw()

    def close(self) -> None:
        """Stop drawing, and leave the terminal as it was. The end of the stream does the same."""
        drawing, self._drawing = self._drawing, None
        if drawing is not None:
            drawing.close()

    @property
    def drawing(self) -> bool:
        """Whether it has the terminal now."""
        return self._drawing is not None

    def on_message_created(self, message: Message, /) -> None:
        if not told_in_fields(self._streamkit_live, message):
            self._note("created", message)

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        if not isinstance(snapshot, _UNREADABLE) and not told_in_fields(self._streamkit_live, snapshot):
            mark = str(delta.metadata.get("stream", "")) if delta.metadata else ""
            self._note("grew", snapshot, delta.value, delta.replace, mark)

    def on_message_done(self, message: Message, /) -> None:
        if told_in_fields(self._streamkit_live, message):
            if has_told(self._streamkit_live, message):
                return
            self._note("created", message)
            self._note("grew", message, message.content, False, "")
        if isinstance(message, _UNREADABLE):
            self._note("grew", message, size_of(message), False, "")
        self._note("done", message, tuple(sources(message)) if isinstance(message, TextMessage) else ())
        if isinstance(message, _ASKED_ABOUT):
            self.refresh()  # whoever is asked about it has to see it

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> None:
        self._note("runs_line", line)

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        self._note("tell", "?", f"may this {one_line(confirmation.subject.type)} run?", "yellow")
        self._note("ask", True)
        self.refresh()

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        approved = confirmation.status == "approved"
        self._note("ask", False)
        self._note("tell", "✓" if approved else "✗", outcome(confirmation), "green" if approved else "red")

    def on_run_created(self, run: Run, /) -> None:
        self._note("run_begins")

    def on_run_done(self, run: Run, /) -> None:
        self._note("run_ends")
        if self._run_end:
            self._note("tell", "─", summary(run), "dim")

    def on_warning(self, warning: StreamWarning, /) -> None:
        if self._warnings:
            self._note("warn", "!", one_line(str(warning)), "yellow")

    def on_exception(self, exception: Exception, /) -> None:
        if self._errors:
            self._note("tell", "✗", f"{type(exception).__name__}: {exception}", "red")

    def on_end(self) -> None:
        self.close()

    def _note(self, what: str, *arguments: Any) -> None:
        drawing = self._drawing
        if drawing is None:
            drawing = self._drawing = self._begin()
        drawing.note(what, arguments)

    def _begin(self) -> Drawing:
        from .blocks import Look
        from .screen import Screen

        look = Look(**self._look)
        return Drawing(
            lambda aside: Screen(self._console, look, aside if self._redirect else None), self._interval, self._is_asked
        )

    def _is_asked(self) -> bool:
        """Whether the stream is just telling of a question, to whichever handler."""
        stream = self._streamkit_live
        return stream is not None and isinstance(stream.current_event, ConfirmationCreated)


class Drawing:
    """Draws a screen, in a thread of its own, from what was noted. An error of it is raised where the next thing is
    noted."""

    def __init__(
        self,
        screen: Callable[[Callable[[str], None]], Screen],
        interval: float | None,
        is_asked: Callable[[], bool],
    ) -> None:
        self._interval = interval
        self._is_asked = is_asked
        self._noted: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._lock = threading.RLock()  # of the screen
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._screen = screen(self._aside)
        atexit.register(self.close)
        if interval is not None and self._screen.live:
            self._thread = threading.Thread(target=self._run, name="streamkit-display", daemon=True)
            self._thread.start()

    def note(self, what: str, arguments: tuple[Any, ...]) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        self._noted.append((what, arguments))
        if not self._wake.is_set():
            self._wake.set()
        if self._interval is not None and not self._screen.live:
            self.draw()

    def draw(self) -> None:
        with self._lock:
            self._take()
            self._screen.draw()

    def close(self) -> None:
        """Draw the last of it, and end the thread."""
        atexit.unregister(self.close)
        self._stop.set()
        self._wake.set()
        try:
            with self._lock:
                try:
                    self._take()
                finally:
                    self._screen.close()
        finally:
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join()
                self._thread = None
        if self._error is not None:
            raise self._error

    def _aside(self, text: str) -> None:
        """Something that the program printed."""
        with self._lock:
            if self._is_asked():
                self._take()
                self._screen.ask(True)
            self._screen.aside(text)
        self._wake.set()

    def _take(self) -> None:
        noted = self._noted
        while noted:
            what, arguments = noted.popleft()
            if what == "grew":
                arguments = self._joined(arguments)
            cast("Callable[..., None]", getattr(self._screen, what))(*arguments)

    def _joined(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """A piece, and those of the same message that follow it."""
        noted = self._noted
        message, text, replace, mark = arguments
        more: list[str] = []
        while noted and noted[0][0] == "grew" and noted[0][1][0] is message and noted[0][1][2:] == (False, mark):
            more.append(noted.popleft()[1][1])
        return (message, "".join([text, *more]), replace, mark) if more else arguments

    def _run(self) -> None:
        assert self._interval is not None
        while not self._stop.is_set():
            self._wake.wait(self._interval if self._screen.animated else _POLL)
            self._wake.clear()
            try:
                with self._lock:
                    if not self._stop.is_set() and not self._is_asked():
                        self.draw()
            except BaseException as error:
                self._error = error
                return
            self._stop.wait(self._interval)
