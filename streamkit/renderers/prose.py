"""Parsed Markdown as Rich shows it: as text, with a link's address beside it, and without hyperlinks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from itertools import chain

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Renderables
from rich.markdown import BlockQuote, CodeBlock, Heading, ListElement, Markdown, Paragraph
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from .code import Code
from .inline_markdown import as_shown, mark_alert
from .tables import Table

__all__ = ["Prose"]

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
        """What `Markdown(text)` would be, without parsing the text again.

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
