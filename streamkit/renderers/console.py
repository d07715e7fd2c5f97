"""`ConsolePrinter`: prints a stream as it arrives, to anything that can be written to.

The rule: what was printed is never changed. Where several messages grow at the same time they are printed one after
the other, as `turns` decides; the label is printed again where a message is resumed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..answers import Confirmation
from ..errors import UsageError
from ..events import Delta, Run, StreamRetry, StreamWarning
from ..handlers import EventHandler
from ..messages import ConsoleMessage, Message
from .characters import one_line, printable
from .printing import DATA_MESSAGES, STYLES, StreamPrinter, Style, plain
from .wording import (
    describe_decision,
    describe_failure,
    describe_question,
    describe_retry,
    describe_run,
    has_field_messages,
    is_shown_by_decision,
    is_shown_by_fields,
    shown_text,
    withdrawn_message,
)
from .writer import Writable

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = ["ConsolePrinter"]


class ConsolePrinter(EventHandler):
    """Prints every message as it grows, each under a label. Works on any file and needs no extra.

    Text, reasoning and code are printed as they arrive, a call as `name(arguments)`, an image, audio or a file as one
    line. Two messages that grow at the same time are printed one after the other. What code printed to
    stderr is red on a terminal; without colours, as in a file or where `NO_COLOR` is set, its lines begin with `! `. Control
    characters in the stream's text are made visible and have no effect.

        sk.stream(source, ConsolePrinter()).until_done()

    prints

        [message] Let me calculate that.
        [code python]
        print(round(34 / 24, 3))
        [confirmation] may this code run?
        [confirmation] approved
        [console output]
        1.417
        [run] completed

    It only shows confirmations; a handler of your own has to answer them.

    Args:
        file: where to print: a text file or any object with `write` and `flush`. None, the default, is `sys.stdout`,
            looked up at each write.
        style: the labels: `"plain"`, the default; `"memgpt"` or `"memgpt-fancy"`, the texts of MemGPT's terminals; or
            a function that returns a message's `Label`.
        active_line: whether to print the line of code that runs, `[line 3]`; False by default.
        warnings: whether to print the stream's warnings; True by default.
        errors: whether to print the error with which the stream failed; True by default. It is raised all the same.
        run_end: whether to print how each run ended and what it cost; True by default.
        for_assistant: whether to print messages of which the assistant alone is the recipient; False by default.
        pictures: a folder in which pictures that come as data are saved; their paths are printed. None, the default, prints
            their sizes.

    Raises:
        UsageError: there is no style of this name.
    """

    # Defaults for a subclass that does not call this `__init__`.
    _printer: StreamPrinter | None = None
    _file: Writable | None = None
    _style: Style = staticmethod(plain)
    _active_line = False
    _warnings = _errors = _run_end = True
    _for_assistant = False
    _pictures: str | os.PathLike[str] | None = None

    def __init__(
        self,
        file: Writable | None = None,
        style: str | Style = "plain",
        *,
        active_line: bool = False,
        warnings: bool = True,
        errors: bool = True,
        run_end: bool = True,
        for_assistant: bool = False,
        pictures: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(style, str):
            if style not in STYLES:
                raise UsageError(f"unknown style {style!r}; the styles are {', '.join(STYLES)}")
            style = STYLES[style]
        self._file = file
        self._style = style
        self._active_line = active_line
        self._warnings, self._errors, self._run_end = warnings, errors, run_end
        self._for_assistant = for_assistant
        self._pictures = pictures

    def bind(self, stream: StreamState) -> None:
        """Begin a stream. Called by the stream."""
        super().bind(stream)
        self._printer = None

    @property
    def _stream_printer(self) -> StreamPrinter:
        """The printer of the stream, made when there is something to print."""
        if self._printer is None:
            self._printer = StreamPrinter(self._file, self._style, self._pictures)
        return self._printer

    def on_message_created(self, message: Message, /) -> None:
        """Print the label."""
        if self._is_left_out(message) or is_shown_by_fields(self._streamkit_live, message):
            return
        printer = self._stream_printer
        printer.show(printer.turns.create(message))

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        """Print the piece."""
        if (
            isinstance(snapshot, DATA_MESSAGES)
            or self._is_left_out(snapshot)
            or shown_text(snapshot) is not None
            or is_shown_by_fields(self._streamkit_live, snapshot)
        ):
            return
        printer = self._stream_printer
        stream = str(delta.metadata.get("stream", "")) if delta.metadata else ""
        printer.show(printer.turns.append(snapshot, delta.value, replace=delta.replace, stream=stream))

    def on_message_done(self, message: Message, /) -> None:
        """Print the end of the message; of a call without field messages, all of it."""
        if self._is_left_out(message):
            return
        printer = self._stream_printer
        if is_shown_by_fields(self._streamkit_live, message):
            if has_field_messages(self._streamkit_live, message):
                return
            printer.show(printer.turns.create(message))
            printer.show(printer.turns.append(message, message.content))
        printer.show(printer.turns.finish(message))
        if (failure := describe_failure(message)) is not None:
            printer.print_line(f"[code] {failure}")

    def _is_left_out(self, message: Message) -> bool:
        is_for_others = message.recipient == "assistant" and not self._for_assistant
        return is_for_others or is_shown_by_decision(self._streamkit_live, message)

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> None:
        """Print the line that runs, with `active_line`."""
        if self._active_line and line is not None:
            self._stream_printer.print_line(f"[line {line}]")

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        """Print the question."""
        subject = confirmation.subject
        self._stream_printer.print_line(f"[confirmation] {describe_question(subject)}", subject)

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        """Print the decision."""
        self._stream_printer.print_line(f"[confirmation] {describe_decision(confirmation)}", confirmation.subject)

    def on_run_done(self, run: Run, /) -> None:
        """Print how the run ended, with `run_end`."""
        if self._run_end:
            self._stream_printer.print_line(f"[run] {describe_run(run)}")

    def on_retry(self, retry: StreamRetry, /) -> None:
        """Print that the answer begins again; where nothing of it was printed, that the source is asked again, with `warnings`."""
        if retry.withdrawn or self._warnings:
            about = withdrawn_message(self._streamkit_live, retry)
            self._stream_printer.print_line(f"[retry] {describe_retry(retry)}", about)

    def on_warning(self, warning: StreamWarning, /) -> None:
        """Print the warning, with `warnings`, as soon as that interrupts no message."""
        if self._warnings:
            self._stream_printer.print_line_later(f"[warning] {one_line(str(warning))}")

    def on_exception(self, exception: Exception, /) -> None:
        """Print the error, with `errors`."""
        if self._errors:
            self._stream_printer.print_line(f"[error] {type(exception).__name__}: {printable(str(exception))}")

    def on_end(self) -> None:
        """Print everything that waits, and end the last line."""
        self._stream_printer.end()
        self._printer = None
