"""Renderables as rows that are safe to write to a terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from .characters import encodable, printable

__all__ = ["Row", "rows_of"]

Row = list[Segment]
"""One line of a terminal, without its line end."""


def rows_of(console: Console, renderable: Any, width: int, style: Style | None = None) -> list[Row]:
    """A renderable as rows: printable, in the console's encoding, without hyperlinks and trailing blanks."""
    options = console.options.update(width=max(1, width), height=None, markup=False, highlight=False)
    lines = console.render_lines(renderable, options, style=style, pad=False, new_lines=False)
    return [_strip_end([_make_safe(segment, console.encoding) for segment in line]) for line in lines]


def _make_safe(segment: Segment, encoding: str) -> Segment:
    text, style, _ = segment
    if style is not None and style.link:
        style = style.update_link(None)
    return Segment(encodable(printable(text), encoding), style)


def _strip_end(row: Row) -> Row:
    """Remove invisible blanks from the end: they would wrap where the terminal becomes narrower."""
    while row and not row[-1].text.strip(" ") and not _shows_blanks(row[-1].style):
        row.pop()
    if row and row[-1].text.endswith(" ") and not _shows_blanks(row[-1].style):
        row[-1] = Segment(row[-1].text.rstrip(" "), row[-1].style)
    return row


def _shows_blanks(style: Style | None) -> bool:
    """Whether a blank is visible in this style."""
    return style is not None and bool(
        style.underline or style.reverse or style.strike or (style.bgcolor and not style.bgcolor.is_default)
    )
