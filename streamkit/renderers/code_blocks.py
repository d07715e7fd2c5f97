"""How code and tool calls look on a live display."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from ..messages import Message
from .block import Block
from .characters import PrintableText, one_line
from .code import Code
from .parts import Look, Marked, Part

__all__ = ["CallBlock", "CodeBlock"]

_LONGEST_LINE = 400  # characters of a line in the window around the line that runs


class _JoinedText:
    """Text that grows by pieces and is read now and then."""

    def __init__(self) -> None:
        self._printable = PrintableText()
        self._pieces: list[str] = []

    def append(self, piece: str) -> None:
        self._pieces.append(self._printable.feed(piece))

    def __str__(self) -> str:
        self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0]


class CodeBlock(Block):
    """Code with line numbers; settled when it is complete. Of long code the first and the last lines are shown.

    Attributes:
        folded: whether lines were left out.
    """

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = _JoinedText()
        self.folded = False

    @property
    def source(self) -> str:
        """The code so far."""
        return str(self._text)

    def append(self, text: str, stream: str) -> None:
        """Take a piece."""
        self._text.append(text)

    def take_settled(self, *, final: bool) -> Iterator[Part]:
        """The language and the code, in the end."""
        limit = self.look.code_lines
        if final and self.source.strip("\n"):
            lines = self.source.strip("\n").split("\n")
            self.folded = limit is not None and len(lines) > max(limit, 1) + 1
            yield from self._folded(lines, max(limit or 1, 1)) if self.folded else self.unfolded()

    def unfolded(self) -> Iterator[Part]:
        """The language and all the code."""
        yield Part(self._title())
        yield Part(Code(self.source.strip("\n"), self._language, self.look.code_theme, numbers=True), True)

    def _folded(self, lines: list[str], limit: int) -> Iterator[Part]:
        theme, last = self.look.code_theme, limit // 4
        yield Part(self._title())
        yield Part(Code("\n".join(lines[: limit - last]), self._language, theme, numbers=True), True)
        yield Part(Text(f"    … {len(lines) - limit:,} more lines", "dim"), True)
        if last:
            rest, first = "\n".join(lines[-last:]), len(lines) - last + 1
            yield Part(Code(rest, self._language, theme, numbers=True, first=first), True)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        """The language and the last lines of the code."""
        lines = self.source.lstrip("\n").split("\n")
        first = max(0, len(lines) - rows)
        yield Part(self._title())
        shown = "\n".join(line[-width * rows :] for line in lines[first:])
        yield Part(Code(shown, self._language, self.look.code_theme, numbers=True, first=first + 1), True)

    def window(self, line: int, rows: int) -> Iterator[Part]:
        """The line that runs, marked, with the lines around it.

        Args:
            line: its number, from 1.
            rows: how many lines to show.
        """
        skipped = len(self.source) - len(self.source.lstrip("\n"))
        lines = self.source.strip("\n").split("\n")
        line = max(1, min(line - skipped, len(lines)))
        first = max(1, min(line - rows // 2, len(lines) - rows + 1))
        shown = "\n".join(one[:_LONGEST_LINE] for one in lines[first - 1 : first - 1 + rows])
        theme = self.look.code_theme
        yield Part(Code(shown, self._language, theme, numbers=True, active=line, first=first), True)

    @property
    def _language(self) -> str:
        return self.message.format or "text"

    def _title(self) -> RenderableType:
        return Text(f"── {one_line(self._language)}", "dim")


class CallBlock(Block):
    """A tool call, `name(arguments)`; settled when it is complete.

    Args:
        joins: whether it follows the block before it without a blank line.
    """

    def __init__(self, message: Message, look: Look, *, joins: bool) -> None:
        super().__init__(message, look)
        self._arguments = _JoinedText()
        self._joins = joins

    def append(self, text: str, stream: str) -> None:
        """Take a piece of the arguments."""
        self._arguments.append(text)

    def take_settled(self, *, final: bool) -> Iterator[Part]:
        """The call, in the end."""
        if final:
            yield Part(self._render(str(self._arguments), ")" if self.ended else " …"), self._joins)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        """The call with the end of its arguments so far."""
        text, longest = str(self._arguments), width * rows
        yield Part(self._render(text if len(text) <= longest else "…" + text[-longest:], ""), self._joins)

    def _render(self, arguments: str, end: str) -> RenderableType:
        name = one_line(self.message.name or self.message.type)
        opening = "(… " if self.resumed else "("
        return Marked(Text.assemble((name, "bold"), opening, arguments, end), "● ", style="cyan")
