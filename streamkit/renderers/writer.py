"""Writing to a file that may be a terminal: the state of its last line, colours, and lines that are overwritten."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Protocol

from .characters import ConsoleText

__all__ = ["ConsoleWriter", "TerminalWriter", "Writable"]

_ERASE_LINE = "\r\x1b[K"
_RED = "31"
_STDERR_MARK = "! "  # as `LiveDisplay` has it


class Writable(Protocol):
    """A target of printing: any text file, `io.StringIO`, or an object with these two methods."""

    def write(self, text: str, /) -> object:
        """Write text."""
        ...

    def flush(self) -> object:
        """Make sure that what was written is visible."""
        ...


class TerminalWriter:
    """Writes text, in colours where the file is a terminal. Every coloured text ends with the colour reset.

    Args:
        file: where to write; None is `sys.stdout`, looked up at each write.

    Attributes:
        is_terminal: whether the file is a terminal that obeys escape sequences.
        indent: stands before each line that is not empty.
    """

    def __init__(self, file: Writable | None) -> None:
        self._chosen_file = file
        self._at_line_start = True
        self.indent = ""
        self.is_terminal = _is_terminal(self._file)

    @property
    def _file(self) -> Writable:
        return self._chosen_file if self._chosen_file is not None else sys.stdout

    def start_line(self) -> None:
        """End the last line, unless it is empty."""
        if not self._at_line_start:
            self.write("\n")

    def rewrite_line(self) -> None:
        """Erase the last line; if the file is not a terminal, start a new one instead."""
        if self.is_terminal:
            self._put(_ERASE_LINE)
            self._at_line_start = True
        else:
            self.start_line()

    def write(self, text: str, colour: str = "") -> None:
        """Write text, on a terminal in a colour given by its SGR codes. `NO_COLOR` turns colours off."""
        if not text:
            return
        if self.indent:
            text = self._indented(text)
        self._at_line_start = text.endswith("\n")
        self._put(f"\x1b[{colour}m{text}\x1b[0m" if colour and self.has_colours else text)

    def _indented(self, text: str) -> str:
        first, *others = text.split("\n")
        lines = [f"{self.indent}{first}" if first and self._at_line_start else first]
        return "\n".join([*lines, *(f"{self.indent}{line}" if line else line for line in others)])

    @property
    def has_colours(self) -> bool:
        """Whether colours are written."""
        return self.is_terminal and not os.environ.get("NO_COLOR")

    def flush(self) -> None:
        """Flush the file."""
        self._file.flush()

    def _put(self, text: str) -> None:
        file = self._file
        try:
            file.write(text)
        except UnicodeEncodeError:
            encoding: str = getattr(file, "encoding", None) or "ascii"
            file.write(text.encode(encoding, "backslashreplace").decode(encoding))


class ConsoleWriter:
    """Writes the console output of a program line by line, as a terminal would have left it.

    A line that the program overwrites is overwritten; if the file is not a terminal, intermediate states of the line
    are left out as far as possible. Lines of the stream `stderr` are red; where there are no colours they have a mark, and a
    line has the output of one stream alone.
    """

    def __init__(self, writer: TerminalWriter) -> None:
        self._writer = writer
        self._text = ConsoleText()
        self._written = ""  # of the last line
        self._is_stderr = False

    def feed(self, piece: str, stream: str) -> None:
        """Write the next piece of output, of this stream."""
        if self._is_stderr != (stream == "stderr"):
            if self._text.line and not self._writer.has_colours:
                self.finish()
                self._writer.start_line()
            self._is_stderr = not self._is_stderr
        colour = _RED if self._is_stderr else ""
        for line in self._text.feed(piece):
            self._update_line(self._marked(line), colour)
            self._writer.write("\n")
            self._written = ""
        line = self._marked(self._text.line)
        if self._writer.is_terminal or line.startswith(self._written):
            self._update_line(line, colour)

    def finish(self) -> None:
        """Write what still waits."""
        self._update_line(self._marked(self._text.finish()), "")
        self._written = ""

    def _marked(self, line: str) -> str:
        return f"{_STDERR_MARK}{line}" if line and self._is_stderr and not self._writer.has_colours else line

    def _update_line(self, line: str, colour: str) -> None:
        """Change the last line to this text, if possible by appending to it."""
        if not line.startswith(self._written):
            self._writer.rewrite_line()
            self._written = ""
        self._writer.write(line[len(self._written) :], colour)
        self._written = line


def _is_terminal(file: Writable) -> bool:
    isatty: Callable[[], bool] | None = getattr(file, "isatty", None)
    return isatty is not None and isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
