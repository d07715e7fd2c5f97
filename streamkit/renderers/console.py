"""Printing a stream as it comes, to anything that can be written to.

The rule: what was printed stays as it is. Where several messages grow side by side they are printed one after the
other, as `turns` says; a label comes again where one goes on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from ..answers import Confirmation
from ..errors import UsageError
from ..events import Delta, Run, StreamWarning
from ..handlers import EventHandler
from ..messages import AudioMessage, ConsoleMessage, ImageMessage, Message, TextMessage, ToolCallMessage
from .characters import ConsoleText, PrintableText, one_line, printable
from .labels import STYLES, Label, Style, plain
from .turns import Said, Turns
from .wording import has_told, outcome, sources, summary, told_in_fields

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = ["ConsolePrinter"]

_UNREADABLE = (ImageMessage, AudioMessage)  # base64, not for people


class Writable(Protocol):
    """What can be printed to."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class ConsolePrinter(EventHandler):
    """Prints every message as it grows, under a label: text, reasoning and code as they come, `name(arguments)` for a
    call, one line for an image or a file.

    Args:
        file: where to; None is `sys.stdout`, as it is when something is printed.
        style: `plain`; `memgpt`, the text of MemGPT's terminal, or `memgpt-fancy`, with its emoji; or a function that
            gives a message's `Label`.
        active_line: tell the line that runs, too.
        warnings, errors, run_end: tell what was odd in the stream, what it failed with, and how the run ended.
    """

    _printing: Printing | None = None
    _file: Writable | None = None
    _style: Style = staticmethod(plain)
    _active_line = False
    _warnings = _errors = _run_end = True

    def __init__(
        self,
        file: Writable | None = None,
        style: str | Style = "plain",
        *,
        active_line: bool = False,
        warnings: bool = True,
        errors: bool = True,
        run_end: bool = True,
    ) -> None:
        if isinstance(style, str):
            if style not in STYLES:
                raise UsageError(f"there is no style {style!r}; there are {', '.join(STYLES)}")
            style = STYLES[style]
        self._file = file
        self._style = style
        self._active_line = active_line
        self._warnings, self._errors, self._run_end = warnings, errors, run_end

    def bind(self, stream: StreamState) -> None:
        super().bind(stream)
        self._printing = None

    def on_message_created(self, message: Message, /) -> None:
        if told_in_fields(self._streamkit_live, message):
            return
        printing = self._print
        printing.show(printing.turns.created(message))

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        if isinstance(snapshot, _UNREADABLE) or told_in_fields(self._streamkit_live, snapshot):
            return
        printing = self._print
        mark = str(delta.metadata.get("stream", "")) if delta.metadata else ""
        printing.show(printing.turns.grew(snapshot, delta.value, replace=delta.replace, mark=mark))

    def on_message_done(self, message: Message, /) -> None:
        printing = self._print
        if told_in_fields(self._streamkit_live, message):
            if has_told(self._streamkit_live, message):
                return
            printing.show(printing.turns.created(message))
            printing.show(printing.turns.grew(message, message.content))
        printing.show(printing.turns.done(message))

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> None:
        if self._active_line and line is not None:
            self._print.tell(f"[line {line}]")

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        self._print.tell(f"[confirmation] may this {one_line(confirmation.subject.type)} run?")

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        self._print.tell(f"[confirmation] {outcome(confirmation)}")

    def on_run_done(self, run: Run, /) -> None:
        if self._run_end:
            self._print.tell(f"[run] {summary(run)}")

    def on_warning(self, warning: StreamWarning, /) -> None:
        if self._warnings:
            self._print.warn(f"[warning] {one_line(str(warning))}")

    def on_exception(self, exception: Exception, /) -> None:
        if self._errors:
            self._print.tell(f"[error] {type(exception).__name__}: {printable(str(exception))}")

    def on_end(self) -> None:
        self._print.end()
        self._printing = None

    @property
    def _print(self) -> Printing:
        if self._printing is None:
            self._printing = Printing(self._file, self._style)
        return self._printing


class Printing:
    """What has been printed of one stream."""

    def __init__(self, file: Writable | None, style: Style) -> None:
        self.turns = Turns()
        self._style = style
        self._paper = Paper(file)
        self._label: Label | None = None  # of the message that speaks; None before it stands there
        self._open: Message | None = None
        self._later: list[str] = []
        self._names: dict[str, str] = {}  # of calls, by their ids
        self._text = PrintableText()
        self._console = Console(self._paper)

    def show(self, told: Iterable[Said]) -> None:
        for said in told:
            self._show(said)
        self._paper.flush()

    def tell(self, line: str) -> None:
        """A line of its own, after all that was said before."""
        self.show(self.turns.flush())
        self._put_line(line)

    def warn(self, line: str) -> None:
        """A line of its own, once nobody speaks."""
        self._later.append(line)
        if self._open is None:
            self._tell_later()

    def end(self) -> None:
        self.show(self.turns.flush())
        self._tell_later()
        self._paper.start_line()
        self._paper.flush()

    def _tell_later(self) -> None:
        later, self._later = self._later, []
        for line in later:
            self._put_line(line)

    def _put_line(self, line: str) -> None:
        self._paper.start_line()
        self._paper.write(line + "\n")
        self._paper.flush()

    def _show(self, said: Said) -> None:
        message = said.message
        match said.what:
            case "begin" | "again" | "replace":
                self._turn_to(message, {"begin": "", "again": "…", "replace": "replaced:"}[said.what])
                if said.what == "replace":
                    self._say(said)
            case "text":
                self._say(said)
            case "pause":
                self._finish(message)
                self._tell_later()
            case "end":
                self._end(message)
                self._tell_later()

    def _turn_to(self, message: Message, how: str) -> None:
        self._open, self._label = message, None
        self._text = PrintableText()
        self._console = Console(self._paper)
        label = self._style(message, "", self._name_of(message))
        if how:
            self._put(Label(f"{how} {label.before}", *label[1:]))
        elif not label.patient:
            self._put(label)

    def _name_of(self, message: Message) -> str:
        """Its own, or that of the call that it answers."""
        if isinstance(message, ToolCallMessage) and message.call_id:
            self._names[message.call_id] = message.name or ""
        return message.name or self._names.get(message.call_id or "", "")

    def _put(self, label: Label) -> None:
        self._label = label
        self._paper.start_line()
        self._paper.write(label.before, label.colour)

    def _say(self, said: Said) -> None:
        if not said.text:
            return
        if self._label is None:
            self._put(self._style(said.message, said.text, self._name_of(said.message)))
        if isinstance(said.message, ConsoleMessage):
            self._console.feed(said.text, said.mark)
        else:
            self._paper.write(self._text.feed(said.text), self._colour)

    @property
    def _colour(self) -> str:
        return self._label.colour if self._label is not None else ""

    def _finish(self, message: Message) -> None:
        if self._open is message:
            self._console.finish()
            self._paper.write(self._text.finish(), self._colour)
            self._open = None

    def _end(self, message: Message) -> None:
        speaks = self._open is message
        if isinstance(message, _UNREADABLE):
            self._paper.write(size_of(message))
        elif message.type == "file" and not message.content and message.name:
            self._paper.write(one_line(message.name))
        self._finish(message)
        if speaks and self._label is not None:
            self._paper.write(self._label.after, self._colour)
        for line in sources(message) if isinstance(message, TextMessage) else ():
            self._paper.start_line()
            self._paper.write(line)


def size_of(message: Message) -> str:
    """An image or audio in a line: where it is, or how large."""
    if isinstance(message, AudioMessage) or (message.format or "").startswith("base64"):
        return f"{len(message.content) * 3 // 4:,} bytes"
    return one_line(message.content)


class Paper:
    """What is printed to, and where its last line is. Every coloured piece has its colour taken back at once."""

    def __init__(self, file: Writable | None) -> None:
        self._given = file
        self._at_start = True
        self.terminal = _obeys(self._file)

    @property
    def _file(self) -> Writable:
        return self._given if self._given is not None else sys.stdout

    def start_line(self) -> None:
        if not self._at_start:
            self.write("\n")

    def rewrite_line(self) -> None:
        """Go back to the start of the line, where that is possible; else to a new one."""
        if self.terminal:
            self._put("\r\x1b[K")
            self._at_start = True
        else:
            self.start_line()

    def write(self, text: str, colour: str = "") -> None:
        if not text:
            return
        self._at_start = text.endswith("\n")
        self._put(f"\x1b[{colour}m{text}\x1b[0m" if colour and self.terminal and colours() else text)

    def flush(self) -> None:
        self._file.flush()

    def _put(self, text: str) -> None:
        file = self._file
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding: str = getattr(file, "encoding", None) or "ascii"
            file.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _obeys(file: Writable) -> bool:
    """Whether it is a terminal that knows escape sequences."""
    isatty: Callable[[], bool] | None = getattr(file, "isatty", None)
    return isatty is not None and isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def colours() -> bool:
    return not os.environ.get("NO_COLOR")


class Console:
    """What a program prints, line by line: what it writes over is printed over, or not at all where nothing can be."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper
        self._text = ConsoleText()
        self._printed = ""  # of the last line

    def feed(self, piece: str, stream: str) -> None:
        colour = "31" if stream == "stderr" else ""
        for line in self._text.feed(piece):
            self._bring(line, colour)
            self._paper.write("\n")
            self._printed = ""
        line = self._text.line
        if self._paper.terminal or line.startswith(self._printed):
            self._bring(line, colour)

    def finish(self) -> None:
        self._bring(self._text.finish(), "")
        self._printed = ""

    def _bring(self, line: str, colour: str) -> None:
        """Make the last line read so."""
        if not line.startswith(self._printed):
            self._paper.rewrite_line()
            self._printed = ""
        self._paper.write(line[len(self._printed) :], colour)
        self._printed = line
