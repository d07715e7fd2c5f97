"""What blocks are made of: parts to print, and the mark in front of their lines."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

__all__ = ["Look", "Marked", "Part"]


class Look(NamedTuple):
    """How a live display looks; the arguments of `LiveDisplay`.

    Attributes:
        code_theme: the style in which code is highlighted.
        output_lines: how many lines of a tool's output are shown; None shows all.
        code_lines: how many lines of complete code are shown; None shows all.
        cut_off: whether a text that did not end by itself is marked.
    """

    code_theme: str = "ansi_dark"
    output_lines: int | None = 20
    code_lines: int | None = 60
    cut_off: bool = True


class Part(NamedTuple):
    """Something to print.

    Attributes:
        renderable: what Rich renders.
        joins: whether it follows the part before it without a blank line.
    """

    renderable: RenderableType
    joins: bool = False


class Marked:
    """A renderable behind a mark, which is left out where the text needs all the width.

    Args:
        renderable: what to render.
        mark: stands before the first line; spaces of the same width stand before the others.
        style: of the mark.
        base: of the renderable.
        all_along: whether the mark stands before all lines.
    """

    def __init__(
        self, renderable: RenderableType, mark: str, *, style: str = "", base: str = "", all_along: bool = False
    ) -> None:
        self._renderable, self._mark, self._all_along = renderable, mark, all_along
        self._style, self._base = Style.parse(style), Style.parse(base) if base else None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        has_room = options.max_width > 2 * len(self._mark)
        width = options.max_width - (len(self._mark) if has_room else 0)
        lines = console.render_lines(self._renderable, options.update(width=width), style=self._base, pad=False)
        for number, line in enumerate(lines):
            if has_room and self._mark:
                yield Segment(self._mark if self._all_along or not number else " " * len(self._mark), self._style)
            yield from line
            yield Segment("\n")
