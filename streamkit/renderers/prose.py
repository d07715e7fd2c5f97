"""Parsed Markdown as Rich shows it: as text, with a link's address beside it, and nothing that a terminal follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache

from markdown_it.token import Token
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.containers import Renderables
from rich.markdown import BlockQuote, CodeBlock, Heading, ListElement, Markdown, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

__all__ = ["Code", "Prose"]

_LONGEST_CODE = 60_000  # characters that are highlighted
_LONGEST_LINE = 2_000
_NARROWEST_COLUMN = 5
_NUMBER = Style(dim=True)
_MARK = Style(color="cyan")
_ACTIVE = Style(color="red", bold=True)


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
            yield from _behind(mark, " " * len(mark), item.elements, console, options, _MARK, item.style)


class _Quote(BlockQuote):
    """A quotation, behind a line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _behind("▌ ", "▌ ", self.elements, console, options, self.style, self.style)


def _behind(
    mark: str,
    further: str,
    elements: Renderables,
    console: Console,
    options: ConsoleOptions,
    mark_style: Style,
    style: Style,
) -> Iterator[Segment]:
    """Elements behind a mark, which is left out where they need all the room there is."""
    if options.max_width <= 2 * len(mark):
        mark = further = ""
    inner = options.update(width=max(1, options.max_width - len(mark)))
    for line in console.render_lines(elements, inner, style=style, pad=False):
        yield Segment(mark, mark_style)
        yield from line
        yield Segment("\n")
        mark = further


class _Table(TableElement):
    """A table whose cells keep all their text; without columns where there is no room for them."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in (self.body.rows if self.body else ())]
        if len(heads) * _NARROWEST_COLUMN > options.max_width:
            for cells in [heads, *rows]:
                yield Text(" | ").join(cells)
            return
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=True, collapse_padding=True)
        for head in heads:
            table.add_column(head, overflow="fold", header_style="bold", justify=head.justify or "left")
        for cells in rows:
            table.add_row(*cells)
        yield table


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
        prose.parsed = [_shown(token) for token in tokens]
        return prose


@cache
def _empty(theme: str, style: str) -> Prose:
    return Prose("", code_theme=theme, style=style, hyperlinks=False)


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
        lines = list(enumerate(self._highlighted().split("\n", allow_blank=True), self._first))
        digits = len(str(lines[-1][0]))
        for number, line in lines:
            active = number == self._active
            mark = f"{'❱' if active else ' '} {number:>{digits}} " if self._numbers else " " * self._indent
            if len(mark) * 2 > options.max_width:
                mark = ""
            style = _ACTIVE if active else _NUMBER
            for row in self._rows(line, console, options.max_width - len(mark)):
                yield Segment(mark, style)
                yield from row.render(console)
                yield Segment("\n")
                mark = " " * len(mark)

    def _highlighted(self) -> Text:
        source = self._source
        if len(source) > _LONGEST_CODE or any(len(line) > _LONGEST_LINE for line in source.split("\n")):
            return Text(source)
        # The terminal's own background; themes of the terminal's colours have none.
        background = None if self._theme.startswith("ansi_") else "default"
        text = Syntax(source, self._language, theme=self._theme, background_color=background).highlight(source)
        if not source.endswith("\n"):
            text.remove_suffix("\n")
        return text

    @staticmethod
    def _rows(line: Text, console: Console, width: int) -> Sequence[Text]:
        line.end, line.no_wrap = "", False
        if cell_len(line.plain) <= width:
            return [line]
        rows = line.wrap(console, max(1, width), overflow="fold")
        for row in rows:
            row.end = ""
        return list(rows)
