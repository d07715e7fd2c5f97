"""Parsed Markdown as Rich shows it: as text, with a link's address beside it, and without hyperlinks.

The rule: nothing that a model wrote disappears, but for comments and the tags of elements that only say how text looks. All the
text of each cell of a table is shown, folded where the terminal is narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from itertools import chain

from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Renderables
from rich.markdown import BlockQuote, CodeBlock, Heading, ListElement, Markdown, Paragraph, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from .code import Code

__all__ = ["Prose", "Table", "as_shown", "mark_alert"]


_STYLES = {"b": "strong", "strong": "strong", "summary": "strong", "i": "em", "em": "em", "s": "s", "del": "s"}
_DROPPED = {"u", "ins", "mark", "kbd", "small", "span", "details", "div", "p", "center"}
_RAISED = str.maketrans("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ")
_LOWERED = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")
_MOVED = {"sup": (_RAISED, "^"), "sub": (_LOWERED, "_")}
_TAG = re.compile(r"<(/?)([a-zA-Z]+)(?:\s[^>]*)?/?>\Z")
_ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*\Z")


def as_shown(children: Sequence[Token]) -> list[Token]:
    """The tokens of a line of text as they are shown: line ends stay, an image becomes its text and address, a link that
    shows its address is text, and mathematics is what was written."""
    shown: list[Token] = []
    opened: list[tuple[str, int]] = []  # elements with a style: their names, and where their tokens are
    moved = ""  # `sup` or `sub`, where the next text is inside of one
    for child in children:
        match child.type:
            case "softbreak":
                shown.append(Token("hardbreak", "br", 0))
            case "image":
                shown.append(_text(f"[image: {child.content}] ({child.attrGet('src') or ''})"))
            case "math_inline":
                shown.append(_text(child.content))
            case "link_close" if len(shown) > 1 and _shows_address(*shown[-2:]):
                shown.append(shown.pop())
                del shown[-2]
            case "html_inline":
                moved = _moved_by(child, moved)
                shown += _element(child, opened, len(shown))
            case "text" if moved and child.content:
                shown.append(_text(_move(child.content, moved)))
            case _:
                shown.append(child)
    unclosed = {place for _, place in opened}
    return [token for place, token in enumerate(shown) if place not in unclosed]


def mark_alert(tokens: Sequence[Token]) -> None:
    """Give a quotation that begins with `[!NOTE]`, or another of these words, the word as its title."""
    for quotation, paragraph, line in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = line.children
        if (quotation.type, paragraph.type, line.type) != (
            "blockquote_open",
            "paragraph_open",
            "inline",
        ) or not children:
            continue
        found = _ALERT.match(children[0].content) if children[0].type == "text" else None
        if found is not None and (len(children) == 1 or children[1].type in ("softbreak", "hardbreak")):
            title = [
                Token("strong_open", "strong", 1),
                _text(found[1].capitalize()),
                Token("strong_close", "strong", -1),
            ]
            line.children = [*title, *children[1:]]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _shows_address(opening: Token, text: Token) -> bool:
    addresses = (text.content, f"mailto:{text.content}", f"http://{text.content}")
    return opening.type == "link_open" and text.type == "text" and opening.attrGet("href") in addresses


def _element(tag: Token, opened: list[tuple[str, int]], place: int) -> Iterator[Token]:
    """Return the element of a tag. `opened` has the elements that are open; this one's token will be at `place`."""
    found = _TAG.match(tag.content)
    closes, name = (bool(found[1]), found[2].lower()) if found else (False, "")
    if name == "br":
        yield Token("hardbreak", "br", 0)
    elif name in _STYLES and not closes:
        opened.append((name, place))
        yield Token(f"{_STYLES[name]}_open", _STYLES[name], 1)
    elif name in _STYLES:
        if opened and opened[-1][0] == name:
            opened.pop()
            yield Token(f"{_STYLES[name]}_close", _STYLES[name], -1)
        else:
            yield _text(tag.content)
    elif name not in _DROPPED and name not in _MOVED and not tag.content.startswith("<!--"):
        yield _text(tag.content)


def _moved_by(tag: Token, moved: str) -> str:
    found = _TAG.match(tag.content)
    if found is None or found[2].lower() not in _MOVED:
        return moved
    return "" if found[1] else found[2].lower()


def _move(text: str, moved: str) -> str:
    """Text above or below the line, if there are characters for it, else behind `^` or `_`."""
    table, mark = _MOVED[moved]
    return text.translate(table) if all(ord(one) in table for one in text) else f"{mark}{text}"


_NARROWEST_COLUMN = 5  # columns of the terminal for each column of the table; with less there are none
_GAP = "  "  # between columns
_HEAD = Style(bold=True)
_NO_TEXT = Text()


class Table(TableElement):
    """A table in columns; on a terminal that is too narrow for columns, rows as `cell | cell`."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in (self.body.rows if self.body else ())]
        if len(heads) * _NARROWEST_COLUMN > options.max_width:
            for cells in [heads, *rows]:
                yield Text(" | ").join(cells)
            return
        needed = [max(map(_width, column)) for column in zip(heads, *rows, strict=True)]
        widths = _share(needed, options.max_width - len(_GAP) * len(needed) + 1)
        yield from _row(heads, heads, widths, console, _HEAD)
        yield Segment(" " + "─" * (sum(widths) + len(_GAP) * (len(widths) - 1)) + "\n")
        for cells in rows:
            yield from _row(cells, heads, widths, console, None)


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


def _share(needed: Sequence[int], room: int) -> list[int]:
    """The width of each column: what it needs, or if that is too much in all, an equal share of what is left."""
    widths = [*needed]
    narrowest_first = sorted(range(len(needed)), key=needed.__getitem__)
    for left, column in zip(range(len(needed), 0, -1), narrowest_first, strict=True):
        widths[column] = max(1, min(needed[column], room // left))
        room -= widths[column]
    return widths


def _row(
    cells: Sequence[Text], heads: Sequence[Text], widths: Sequence[int], console: Console, style: Style | None
) -> Iterator[Segment]:
    """A row of a table, each cell folded to the width of its column and justified as its head is."""
    folded = [
        [cell] if _width(cell) <= width and "\n" not in cell.plain else list(cell.wrap(console, width, overflow="fold"))
        for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(map(len, folded))):
        plain = " "  # text without a style, up to the next that has one
        for lines, head, width in zip(folded, heads, widths, strict=True):
            line = lines[number] if number < len(lines) else _NO_TEXT
            blank = width - _width(line)
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


_LIST_MARK = Style(color="cyan")


class _Heading(Heading):
    """A heading, aligned left like everything else."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """A block of code, indented, on the terminal's own background."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Code(str(self.text).rstrip("\n"), self.lexer_name, self.theme, indent=2)


class _List(ListElement):
    """A list. The indentation does not depend on the number of items, which is not known before the list is complete."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        first = 1 if self.list_start is None else self.list_start
        for number, item in enumerate(self.items, first):
            mark = " • " if self.list_type == "bullet_list_open" else f"{number:>2} "
            elements = _elements_of(item.elements) or [Text()]  # an empty item still has its mark
            yield from _render_behind(mark, " " * len(mark), elements, console, options, _LIST_MARK, item.style)


class _Quote(BlockQuote):
    """A quotation, behind a line."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _render_behind("▌ ", "▌ ", _elements_of(self.elements), console, options, self.style, self.style)


def _elements_of(elements: Renderables) -> list[RenderableType]:
    return [*elements.__iter__()]  # Rich declares `__iter__` as returning an iterable, so `[*elements]` has no type


def _render_behind(
    first_mark: str,
    mark: str,
    elements: Sequence[RenderableType],
    console: Console,
    options: ConsoleOptions,
    mark_style: Style,
    style: Style,
) -> Iterator[Segment]:
    """Elements behind a mark, which is left out where they need all the width."""
    if options.max_width <= 2 * len(first_mark):
        first_mark = mark = ""
    inner = options.update(width=max(1, options.max_width - len(first_mark)))
    for line in chain.from_iterable(_lines_of(one, console, inner, style) for one in elements):
        yield Segment(first_mark, mark_style)
        yield from line
        yield Segment("\n")
        first_mark = mark


def _lines_of(
    element: RenderableType, console: Console, options: ConsoleOptions, style: Style
) -> Iterator[Sequence[Segment]]:
    """The lines of an element. A paragraph, the most frequent one, is wrapped directly, which is faster."""
    if not isinstance(element, Paragraph):
        yield from console.render_lines(element, options, style=style, pad=False)
        return
    for line in element.text.wrap(console, options.max_width, justify=element.justify, overflow="fold"):
        yield list(Segment.apply_style(line.render(console), style))


class Prose(Markdown):
    """Markdown from parsed tokens."""

    elements = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": Table,
        "blockquote_open": _Quote,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
    }

    @classmethod
    def of(cls, tokens: Sequence[Token], theme: str, style: str = "none") -> Prose:
        """Return `Markdown(text)`, without parsing the text again.

        Args:
            tokens: the parsed text; changed to what is shown of them.
            theme: the style in which code is highlighted.
            style: of all the text.
        """
        prose = copy(_empty(theme, style))
        mark_alert(tokens)
        prose.parsed = [_as_shown(token) for token in tokens if not _is_empty_code(token)]
        return prose


@cache
def _empty(theme: str, style: str) -> Prose:
    return Prose("", code_theme=theme, style=style, hyperlinks=False)


def _is_empty_code(token: Token) -> bool:
    """Whether it is a block of code without code: whether that has a line would depend on where the text is cut."""
    return token.type in ("fence", "code_block") and not token.content.strip()


def _as_shown(token: Token) -> Token:
    """Changes a token to what is shown of it."""
    if token.children:
        token.children = as_shown(token.children)
    return Token("code_block", "code", 0, content=token.content) if token.type == "math_block" else token
