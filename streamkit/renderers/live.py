"""`LiveDisplay`: shows a stream on a terminal while it runs. With Rich, the extra `live`.

The rule: the hooks only report what happened; a thread draws, at most so many times a second. So neither a slow terminal
nor a long text delays the stream. However the stream ends, the thread has ended before `on_end` returns, and the
terminal is restored.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ConfirmationCreated, Delta, Run, StreamRetry, StreamWarning
from ..handlers import EventHandler, Handler
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
from .drawing import Drawing, watch_start
from .notebook import NotebookDisplay, is_notebook
from .wording import (
    describe_content,
    describe_decision,
    describe_question,
    describe_retry,
    describe_run,
    has_field_messages,
    is_shown_by_decision,
    is_shown_by_fields,
    shown_text,
    sources,
    withdrawn_message,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ..streams.state import StreamState

__all__ = ["LiveDisplay"]

_SHOWN_WHEN_DONE = (ImageMessage, FileMessage, AudioMessage)
_MAY_NEED_CONFIRMATION = (CodeMessage, ToolCallMessage)


def _is_shown_when_done(message: Message) -> bool:
    return isinstance(message, _SHOWN_WHEN_DONE) or shown_text(message) is not None


class LiveDisplay(EventHandler):
    """Shows a stream on a terminal while it runs: reasoning, text as Markdown, code with the line that runs and what it
    prints, tool calls side by side. What is complete is printed once and scrolls away; only the rest is redrawn. While
    nothing arrives, from the request on, it shows what the stream waits for, and for how long.

        sk.stream(source, LiveDisplay(), MyHandler()).until_done()

    In a notebook a `NotebookDisplay` shows the stream in its place, unless a console is passed.

    Where the console is not a terminal, or cannot move its cursor, each part is printed when it is complete.

    Put it before a handler that asks the user something, for example with `input`: while a confirmation waits for its
    answer nothing is drawn, so what the user types stays visible. Whatever the program prints to `sys.stdout` and
    `sys.stderr` meanwhile appears above the part that is redrawn. A display may be used for several streams, one after
    the other.

    Args:
        console: a `rich.console.Console`; None, the default, makes one for `sys.stdout`.
        refresh_per_second: how many times a second it is redrawn at most; 12 by default. 0 redraws only when `refresh`
            is called.
        code_theme: a Pygments style such as `"monokai"`, or `"ansi_dark"` (the default) or `"ansi_light"`, which use the
            terminal's own colours.
        output_lines: how many lines of a tool's output are shown, 20 by default; None shows all. Console output of code
            is always shown completely.
        code_lines: how many lines of code are shown once it is complete, 60 by default: the first and the last ones. None
            shows all. Code that waits for a confirmation is always shown completely.
        pictures: a folder in which pictures that come as data are saved; their paths are shown. None, the default, shows
            their sizes.
        answers: the answers of the handler that asks for confirmations, as `"y: yes, n: no"`; shown with the question.
        warnings: whether to show the stream's warnings; True by default.
        errors: whether to show the error with which the stream failed; True by default. It is raised all the same.
        run_end: whether to show how each run ended and what it cost; True by default.
        for_assistant: whether to show messages of which the assistant alone is the recipient; False by default.
        cut_off: whether a text that did not end by itself is marked, as `(cancelled)`; True by default.
        redirect: whether `sys.stdout` and `sys.stderr` are replaced while the stream runs, so that prints appear above;
            True by default. With False nothing else may print to the terminal meanwhile.

    Raises:
        UsageError: `rich` is not installed, or `refresh_per_second` is negative.
    """

    def __init__(
        self,
        console: Console | None = None,
        *,
        refresh_per_second: float = 12,
        code_theme: str = "ansi_dark",
        output_lines: int | None = 20,
        code_lines: int | None = 60,
        pictures: str | os.PathLike[str] | None = None,
        answers: str = "",
        warnings: bool = True,
        errors: bool = True,
        run_end: bool = True,
        for_assistant: bool = False,
        cut_off: bool = True,
        redirect: bool = True,
    ) -> None:
        try:
            import rich.console
        except ImportError as error:
            raise UsageError("LiveDisplay needs rich: pip install 'streamkit-sdk[live]'") from error
        if not refresh_per_second >= 0:
            raise UsageError(f"refresh_per_second has to be 0 or more, not {refresh_per_second!r}")
        self._has_console = console is not None
        self._console = console if console is not None else rich.console.Console()
        self._interval = 1 / refresh_per_second if refresh_per_second else None
        self._look: dict[str, Any] = {
            "code_theme": code_theme,
            "output_lines": output_lines,
            "code_lines": code_lines,
            "cut_off": cut_off,
        }
        self._pictures, self._answers = pictures, answers
        self._warnings, self._errors, self._run_end = warnings, errors, run_end
        self._for_assistant = for_assistant
        self._redirect = redirect
        self._drawing: Drawing | None = None
        self._beginning = threading.Lock()
        self._no_start = threading.Event()  # set where the start of the stream need not be shown any more

    def streamkit_attachable(self) -> Handler:
        """In a notebook a `NotebookDisplay`, unless a console was passed, or hooks were overridden; else itself."""
        if type(self) is not LiveDisplay or self._has_console or not is_notebook():
            return self
        options = {"warnings": self._warnings, "errors": self._errors, "run_end": self._run_end}
        return NotebookDisplay(for_assistant=self._for_assistant, **options)

    def bind(self, stream: StreamState) -> None:
        """Begin a stream. Called by the stream."""
        if not hasattr(self, "_look"):  # the `__init__` of a subclass did not call this one
            LiveDisplay.__init__(self)
        super().bind(stream)
        self.close()
        self._watch(stream)

    def refresh(self) -> None:
        """Draw the stream so far, now. Callable from any thread."""
        if self._drawing is not None:
            self._drawing.draw()

    def close(self) -> None:
        """Stop drawing and restore the terminal, as the end of the stream does. A second call does nothing.

        Raises:
            Exception: drawing failed, for example because the terminal is gone.
        """
        with self._beginning:
            self._no_start.set()
            drawing, self._drawing = self._drawing, None
        if drawing is not None:
            drawing.close()

    @property
    def drawing(self) -> bool:
        """Whether it is using the terminal now: from the first event that is shown to the end of the stream."""
        return self._drawing is not None

    def on_message_created(self, message: Message, /) -> None:
        """Show that a message begins."""
        if not self._is_left_out(message) and not is_shown_by_fields(self._streamkit_live, message):
            self._report("message_created", message)

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        """Show the piece."""
        if self._is_left_out(snapshot) or _is_shown_when_done(snapshot):
            return
        if not is_shown_by_fields(self._streamkit_live, snapshot):
            stream = str(delta.metadata.get("stream", "")) if delta.metadata else ""
            self._report("message_delta", snapshot, delta.value, delta.replace, stream)

    def on_message_done(self, message: Message, /) -> None:
        """Show that a message is complete; of a call without field messages, all of it."""
        if self._is_left_out(message):
            return
        if is_shown_by_fields(self._streamkit_live, message):
            if has_field_messages(self._streamkit_live, message):
                return
            self._report("message_created", message)
            self._report("message_delta", message, message.content, False, "")
        if _is_shown_when_done(message):
            text = shown_text(message) or describe_content(message, self._pictures)
            self._report("message_delta", message, text, False, "")
        self._report("message_done", message, tuple(sources(message)) if isinstance(message, TextMessage) else ())
        if isinstance(message, _MAY_NEED_CONFIRMATION):
            self.refresh()  # visible before a handler asks the user about it

    def _is_left_out(self, message: Message) -> bool:
        is_for_others = message.recipient == "assistant" and not self._for_assistant
        return is_for_others or is_shown_by_decision(self._streamkit_live, message)

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> None:
        """Show the line that runs."""
        self._report("active_line", line)

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        """Show the question, and leave the terminal to the handler that asks it."""
        answers = f" ({one_line(self._answers)})" if self._answers else ""
        self._report("unfold", confirmation.subject)
        self._report("line", "?", f"{describe_question(confirmation.subject)}{answers}", "yellow", confirmation.subject)
        self._report("hold", True)
        self.refresh()

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        """Show the decision, and go on drawing."""
        approved = confirmation.status == "approved"
        self._report("hold", False)
        self._report("decided", confirmation.subject, approved)
        mark, style = ("✓", "green") if approved else ("✗", "red")
        self._report("line", mark, describe_decision(confirmation), style, confirmation.subject)

    def on_run_created(self, run: Run, /) -> None:
        """Show that the stream waits for something."""
        self._report("run_created")

    def on_run_done(self, run: Run, /) -> None:
        """Show how the run ended, with `run_end`."""
        self._report("run_done")
        if self._run_end:
            self._report("line", "─", describe_run(run), "dim")

    def on_retry(self, retry: StreamRetry, /) -> None:
        """Remove what is still drawn of the failed answer, and say that it begins again; where nothing of it was shown, that the
        source is asked again, with `warnings`."""
        if retry.withdrawn or self._warnings:
            about = withdrawn_message(self._streamkit_live, retry)
            self._report("retried", describe_retry(retry), about)

    def on_warning(self, warning: StreamWarning, /) -> None:
        """Show the warning, with `warnings`."""
        if self._warnings:
            self._report("line_above", "!", one_line(str(warning)), "yellow")

    def on_exception(self, exception: Exception, /) -> None:
        """Show the error, with `errors`."""
        if self._errors:
            self._report("line", "✗", f"{type(exception).__name__}: {exception}", "red")

    def on_end(self) -> None:
        """Stop drawing and restore the terminal."""
        self.close()

    def _watch(self, stream: StreamState) -> None:
        from .region import can_redraw

        if self._interval is not None and can_redraw(self._console):
            self._no_start = threading.Event()
            watch_start(stream, weakref.WeakMethod(self._started), self._no_start)

    def _started(self) -> None:
        with self._beginning:
            if self._no_start.is_set():
                return
            drawing = self._drawing = self._drawing or self._begin()
        drawing.report("started", ())

    def _report(self, kind: str, *arguments: Any) -> None:
        drawing = self._drawing
        if drawing is None:
            with self._beginning:
                drawing = self._drawing = self._drawing or self._begin()
        drawing.report(kind, arguments)

    def _begin(self) -> Drawing:
        from .block import Look
        from .screen import Screen

        look = Look(**self._look)
        redirect = self._redirect
        return Drawing(
            lambda print_aside: Screen(self._console, look, print_aside if redirect else None),
            self._interval,
            self._is_confirming,
        )

    def _is_confirming(self) -> bool:
        """Whether the stream is just emitting a confirmation, to any of its handlers."""
        stream = self._streamkit_live
        return stream is not None and isinstance(stream.current_event, ConfirmationCreated)
