"""Code as Rich shows it, highlighted, with line numbers, on the terminal's own background; and the blocks of code and of tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

from ..messages import Message
from .block import Block, BlockPart, Look, Marked
from .characters import PrintableText, one_line

__all__ = ["CallBlock", "Code", "CodeBlock"]


_LONGEST_CODE = 60_000  # characters; more is not highlighted
_LONGEST_LINE = 2_000
_CONTINUATION = "↳ "  # before the rest of a line that was folded, which would look like a statement of its own
_NUMBER = Style(dim=True)
_ACTIVE = Style(color="red", bold=True)


class Code:
    """Renders code.

    Args:
        source: the code.
        language: the name of a Pygments lexer; an unknown one is not highlighted.
        theme: a Pygments style, or Rich's `ansi_dark` or `ansi_light`.
        numbers: whether lines have numbers.
        indent: how many columns the lines are indented where they have no numbers.
        first: the number of the first line.
        active: the number of the line to mark; None marks none.
    """

    def __init__(
        self,
        source: str,
        language: str,
        theme: str,
        *,
        numbers: bool = False,
        indent: int = 0,
        first: int = 1,
        active: int | None = None,
    ) -> None:
        self._source, self._language, self._theme = source.expandtabs(4), language or "text", theme
        self._numbers, self._indent, self._first = numbers, indent, first
        self._active = active

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._highlight()
        digits = len(str(self._first + len(lines) - 1))
        for number, line in enumerate(lines, self._first):
            active = number == self._active
            mark = f"{'❱' if active else ' '} {number:>{digits}} " if self._numbers else " " * self._indent
            if len(mark) * 2 > options.max_width:
                mark = ""
            style = _ACTIVE if active else _NUMBER
            for row in self._fold(line, console, options.max_width - len(mark)):
                yield Segment(mark, style)
                yield from row
                yield Segment("\n")
                mark = f"{_CONTINUATION:>{len(mark)}}" if mark else ""

    def _highlight(self) -> list[list[Segment]]:
        """The lines, as segments. Rich's own way over a `Text` costs as much again as the highlighting itself."""
        source = self._source
        plain = [[Segment(line)] if line else [] for line in source.split("\n")]
        if len(source) > _LONGEST_CODE or any(len(line) > _LONGEST_LINE for line in source.split("\n")):
            return plain
        lexer, style_of = Syntax(source, self._language).lexer, _styles(self._theme)
        if lexer is None:
            return plain
        lines: list[list[Segment]] = [[]]
        pieces: list[str] = []  # neighbours of the same style, `last`
        last: Style | None = None
        for kind, text in lexer.get_tokens(source):
            style = style_of(kind)
            if (style is not last or "\n" in text) and pieces:
                lines[-1].append(Segment("".join(pieces), last))
                pieces = []
            last = style
            if "\n" in text:
                first, *more = text.split("\n")
                lines[-1] += [Segment(first, style)] if first else []
                lines += [[Segment(line, style)] if line else [] for line in more]
            else:
                pieces.append(text)
        lines[-1] += [Segment("".join(pieces), last)] if pieces else []
        return lines[: len(plain)]  # a lexer adds a line end to the last line

    @staticmethod
    def _fold(line: list[Segment], console: Console, width: int) -> Iterable[Iterable[Segment]]:
        """A line as the rows that it takes on the terminal."""
        if sum(cell_len(segment.text) for segment in line) <= width:
            return [line]
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        return (row.render(console) for row in text.wrap(console, max(1, width), overflow="fold"))


@cache
def _styles(theme: str) -> Callable[[Any], Style]:
    """A function that returns the style of a kind of token, on the terminal's own background."""
    syntax_theme = Syntax.get_theme(theme)
    # The ANSI themes set no background.
    background = Style.null() if theme.startswith("ansi_") else Style(bgcolor="default")
    unique: dict[Style, Style] = {}  # so that equal styles are the same object, which is cheap to compare

    def style_of(kind: Any) -> Style:
        style = syntax_theme.get_style_for_token(kind) + background
        return unique.setdefault(style, style)

    return cache(style_of)


_LONGEST_WINDOW_LINE = 400  # characters of a line in the window around the line that runs


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

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The language and the code, in the end."""
        limit = self.look.code_lines
        if final and self.source.strip("\n"):
            lines = self.source.strip("\n").split("\n")
            self.folded = limit is not None and len(lines) > max(limit, 1) + 1
            yield from self._folded(lines, max(limit or 1, 1)) if self.folded else self.unfolded()

    def unfolded(self) -> Iterator[BlockPart]:
        """The language and all the code."""
        yield BlockPart(self._title())
        yield BlockPart(Code(self.source.strip("\n"), self._language, self.look.code_theme, numbers=True), True)

    def _folded(self, lines: list[str], limit: int) -> Iterator[BlockPart]:
        theme, last = self.look.code_theme, limit // 4
        yield BlockPart(self._title())
        yield BlockPart(Code("\n".join(lines[: limit - last]), self._language, theme, numbers=True), True)
        yield BlockPart(Text(f"    … {len(lines) - limit:,} more lines", "dim"), True)
        if last:
            rest, first = "\n".join(lines[-last:]), len(lines) - last + 1
            yield BlockPart(Code(rest, self._language, theme, numbers=True, first=first), True)

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The language and the last lines of the code."""
        lines = self.source.lstrip("\n").split("\n")
        first = max(0, len(lines) - rows)
        yield BlockPart(self._title())
        shown = "\n".join(line[-width * rows :] for line in lines[first:])
        yield BlockPart(Code(shown, self._language, self.look.code_theme, numbers=True, first=first + 1), True)

    def window(self, line: int, rows: int) -> Iterator[BlockPart]:
        """The line that runs, marked, with the lines around it.

        Args:
            line: its number, from 1.
            rows: how many lines to show.
        """
        skipped = len(self.source) - len(self.source.lstrip("\n"))
        lines = self.source.strip("\n").split("\n")
        line = max(1, min(line - skipped, len(lines)))
        first = max(1, min(line - rows // 2, len(lines) - rows + 1))
        shown = "\n".join(one[:_LONGEST_WINDOW_LINE] for one in lines[first - 1 : first - 1 + rows])
        theme = self.look.code_theme
        yield BlockPart(Code(shown, self._language, theme, numbers=True, active=line, first=first), True)

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

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The call, in the end."""
        if final:
            yield BlockPart(self._render(str(self._arguments), ")" if self.ended else " …"), self._joins)

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The call with the end of its arguments so far."""
        text, longest = str(self._arguments), width * rows
        yield BlockPart(self._render(text if len(text) <= longest else "…" + text[-longest:], ""), self._joins)

    def _render(self, arguments: str, end: str) -> RenderableType:
        name = one_line(self.message.name or self.message.type)
        opening = "(… " if self.resumed else "("
        return Marked(Text.assemble((name, "bold"), opening, arguments, end), "● ", style="cyan")
