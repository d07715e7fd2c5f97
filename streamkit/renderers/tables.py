"""Tables of Markdown as Rich shows them: all the text of each cell is shown, folded where the terminal is narrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import TableElement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

__all__ = ["Table"]

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
