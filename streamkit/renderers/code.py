"""Code as Rich shows it: highlighted, with line numbers, on the terminal's own background."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

__all__ = ["Code"]

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
