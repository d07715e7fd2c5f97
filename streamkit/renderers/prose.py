"""Parsed Markdown as Rich shows it: as text, with a link's address beside it, and nothing that a terminal follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from itertools import chain
from typing import Any

from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Renderables
from rich.markdown import BlockQuote, CodeBlock, Heading, ListElement, Markdown, Paragraph, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.text import Text

__all__ = ["Code", "Prose"]

_LONGEST_CODE = 60_000  # characters that are highlighted
_LONGEST_LINE = 2_000
_NARROWEST_COLUMN = 5
_NUMBER = Style(dim=True)
_MARK = Style(color="cyan")
_ACTIVE = Style(color="red", bold=True)
_HEAD = Style(bold=True)
_GAP = "  "  # between columns
_NO_TEXT = Text()


class _Heading(Heading):
    """A heading, on the left like everything else."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """A block of code, indented, on the terminal's own background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Code(str(self.text).rstrip("\n"), self.lexer_name, self.theme, indent=2)


class _List(ListElement):
    """A list. How far its items are indented does not depend on how many there are, which nobody knows yet."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first = 1 if self.list_start is None else self.list_start
        for number, item in enumerate(self.items, first):
            mark = " • " if self.list_type == "bullet_list_open" else f"{number:>2} "
            elements = _held(item.elements) or [Text()]  # an empty item has its mark
            yield from _behind(mark, " " * len(mark), elements, console, options, _MARK, item.style)


class _Quote(BlockQuote):
    """A quotation, behind a line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _behind("▌ ", "▌ ", _held(self.elements), console, options, self.style, self.style)


def _held(elements: Renderables) -> list[RenderableType]:
    return [*elements.__iter__()]  # Rich calls what this gives an iterable


def _behind(
    mark: str,
    further: str,
    elements: Sequence[RenderableType],
    console: Console,
    options: ConsoleOptions,
    mark_style: Style,
    style: Style,
) -> Iterator[Segment]:
    """Elements behind a mark, which is left out where they need all the room there is."""
    if options.max_width <= 2 * len(mark):
        mark = further = ""
    inner = options.update(width=max(1, options.max_width - len(mark)))
    for line in chain.from_iterable(_lines_of(one, console, inner, style) for one in elements):
        yield Segment(mark, mark_style)
        yield from line
        yield Segment("\n")
        mark = further


def _lines_of(
    element: RenderableType, console: Console, options: ConsoleOptions, style: Style
) -> Iterator[Sequence[Segment]]:
    """The lines of an element. Those of a paragraph need no way through the console."""
    if not isinstance(element, Paragraph):
        yield from console.render_lines(element, options, style=style, pad=False)
        return
    for line in element.text.wrap(console, options.max_width, justify=element.justify, overflow="fold"):
        yield list(Segment.apply_style(line.render(console), style))


class _Table(TableElement):
    """A table whose cells keep all their text; without columns where there is no room for them."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in (self.body.rows if self.body else ())]
        if len(heads) * _NARROWEST_COLUMN > options.max_width:
            for cells in [heads, *rows]:
                yield Text(" | ").join(cells)
            return
        needed = [max(map(_columns, column)) for column in zip(heads, *rows, strict=True)]
        widths = _shared(needed, options.max_width - len(_GAP) * len(needed) + 1)
        yield from _table_row(heads, heads, widths, console, _HEAD)
        yield Segment(" " + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)) + "\n")
        for cells in rows:
            yield from _table_row(cells, heads, widths, console, None)


def _columns(text: Text) -> int:
    return cell_len(text.plain)


def _shared(needed: Sequence[int], room: int) -> list[int]:
    """What each column gets: what it needs, and where that is too much, the widest of them the same."""
    widths = [*needed]
    for left, column in zip(range(len(needed), 0, -1), sorted(range(len(needed)), key=needed.__getitem__), strict=True):
        widths[column] = max(1, min(needed[column], room // left))
        room -= widths[column]
    return widths


def _table_row(
    cells: Sequence[Text], heads: Sequence[Text], widths: Sequence[int], console: Console, style: Style | None
) -> Iterator[Segment]:
    """A row of a table, each cell folded to its column's width and placed as its head is."""
    folded = [
        [cell] if _columns(cell) <= width else list(cell.wrap(console, width, overflow="fold"))
        for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, folded))):
        plain = " "  # what has no style, up to the next that has one
        for lines, head, width in zip(folded, heads, widths, strict=True):
            line = lines[number] if number < len(lines) else _NO_TEXT
            blank = width - _columns(line)
            left = {"right": blank, "center": blank // 2}.get(head.justify or "", 0)
            plain += " " * left
            if style is not None or line.spans:
                yield Segment(plain)
                yield from Segment.apply_style(line.render(console), style)
                plain = ""
            else:
                plain += line.plain
            plain += " " * (blank - left) + _GAP
        yield Segment(plain.rstrip(" ") + "\n")


class Prose(Markdown):
    """Markdown that was parsed already."""

    elements = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
        "blockquote_open": _Quote,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
    }

    @classmethod
    def of(cls, tokens: Sequence[Token], theme: str, style: str = "none") -> Prose:
        """As `Markdown(text)` would make it, without a parser of its own."""
        prose = copy(_empty(theme, style))
        prose.parsed = [_shown(token) for token in tokens if not _is_empty(token)]
        return prose


@cache
def _empty(theme: str, style: str) -> Prose:
    return Prose("", code_theme=theme, style=style, hyperlinks=False)


def _is_empty(token: Token) -> bool:
    """Whether it is code without any: a line of it would be there or not as the blocks around it are cut."""
    return token.type in ("fence", "code_block") and not token.content.strip()


def _shown(token: Token) -> Token:
    """Line ends stay line ends, an image is its text and address, and an address that is its own text stands once."""
    if not token.children:
        return token
    children: list[Token] = []
    for child in token.children:
        if child.type == "softbreak":
            child = Token("hardbreak", "br", 0)
        elif child.type == "image":
            child = Token("text", "", 0, content=f"[image: {child.content}] ({child.attrGet('src') or ''})")
        elif child.type == "link_close" and len(children) > 1 and _is_address(*children[-2:]):
            child = children.pop()
            children.pop()
        children.append(child)
    token.children = children
    return token


def _is_address(opening: Token, text: Token) -> bool:
    return opening.type == "link_open" and text.type == "text" and text.content == opening.attrGet("href")


class Code:
    """Code, highlighted where that is not too much.

    Args:
        numbers: whether each line has its number, from `first` on.
        active: the line to mark.
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
        lines = self._highlighted()
        digits = len(str(self._first + len(lines) - 1))
        for number, line in enumerate(lines, self._first):
            active = number == self._active
            mark = f"{'❱' if active else ' '} {number:>{digits}} " if self._numbers else " " * self._indent
            if len(mark) * 2 > options.max_width:
                mark = ""
            style = _ACTIVE if active else _NUMBER
            for row in self._rows(line, console, options.max_width - len(mark)):
                yield Segment(mark, style)
                yield from row
                yield Segment("\n")
                mark = " " * len(mark)

    def _highlighted(self) -> list[list[Segment]]:
        """The lines. What Rich does on the way to a text costs as much as the colours themselves."""
        source = self._source
        plain = [[Segment(line)] if line else [] for line in source.split("\n")]
        if len(source) > _LONGEST_CODE or any(len(line) > _LONGEST_LINE for line in source.split("\n")):
            return plain
        lexer, style_of = Syntax(source, self._language).lexer, _styles(self._theme)
        if lexer is None:
            return plain
        lines: list[list[Segment]] = [[]]
        pieces: list[str] = []  # of one style, which is that of `last`
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
        return lines[: len(plain)]  # a lexer ends the last line

    @staticmethod
    def _rows(line: list[Segment], console: Console, width: int) -> Iterable[Iterable[Segment]]:
        if sum(cell_len(segment.text) for segment in line) <= width:
            return [line]
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        return (row.render(console) for row in text.wrap(console, max(1, width), overflow="fold"))


@cache
def _styles(theme: str) -> Callable[[Any], Style]:
    """The style of each kind of token, on the terminal's own background."""
    known = Syntax.get_theme(theme)
    behind = Style.null() if theme.startswith("ansi_") else Style(bgcolor="default")  # the first have none
    same: dict[Style, Style] = {}

    def style_of(kind: Any) -> Style:
        style = known.get_style_for_token(kind) + behind
        return same.setdefault(style, style)

    return cache(style_of)
