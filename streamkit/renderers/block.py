"""A block: one message on a live display, from the beginning to the end of its turn, and the parts that it is printed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

from ..messages import Message

__all__ = ["Block", "BlockPart", "Look", "Marked"]


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


class BlockPart(NamedTuple):
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


class Block:
    """A message as it is shown. This class shows nothing.

    Args:
        message: the message.
        look: how the display looks.

    Attributes:
        resumed: whether the message was shown before, paused, and is resumed now.
        ended: whether the message is complete; False where the block ends because the message is paused.
    """

    resumed = False
    ended = False

    def __init__(self, message: Message, look: Look) -> None:
        self.message = message
        self.look = look

    def append(self, text: str, stream: str) -> None:
        """Take a piece of the message; of console output with the stream that it came from."""

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The parts that were settled since the last call; with `final`, all that is left, for nothing follows."""
        yield from ()

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The part that may still change, as it looks now.

        Args:
            width: columns of the terminal.
            rows: how many of its last lines are needed.
        """
        yield from ()
