"""The headlines as a bar chart: an SVG of its own for a light and for a dark page, drawn with Python alone."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

from .measuring import Row
from .report import Headline, Report, headlines, number

__all__ = ["draw"]

FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
WIDTH, LEFT, BARS = 960, 250, 540  # in pixels: the drawing, where the bars begin, and the longest
LINE, TITLE, GAP, MARGIN = 24, 30, 22, 28


class Palette(NamedTuple):
    """The colours of one drawing."""

    paper: str
    ink: str
    faint: str
    ours: str
    others: str


PALETTES = {
    "light": Palette("#ffffff", "#1f2933", "#66727f", "#2563eb", "#c3ccd6"),
    "dark": Palette("#0f141b", "#e6ebf1", "#93a1b0", "#60a5fa", "#3a4655"),
}


def draw(report: Report, path: Path) -> list[Path]:
    """Write `NAME-light.svg` and `NAME-dark.svg` for a path `NAME.svg`; return what was written. Nothing is written if the run
    has none of the headlines."""
    cases = headlines(report)
    if not cases:
        return []
    out: list[Path] = []
    for name, palette in PALETTES.items():
        written = path.with_name(f"{path.stem}-{name}.svg")
        written.write_text("\n".join(_drawing(cases, palette)) + "\n")
        out.append(written)
    return out


def _drawing(cases: list[tuple[Headline, list[Row]]], palette: Palette) -> Iterator[str]:
    height = 2 * MARGIN + sum(TITLE + LINE * len(rows) + GAP for _, rows in cases) - GAP
    described = "; ".join(
        f"{case.label}: " + ", ".join(f"{r.name} {number(r.value)}" for r in rows) for case, rows in cases
    )
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(described, quote=True)}">'
    )
    yield (
        f"<style>text{{font:13px {FONT};fill:{palette.ink}}} .title{{font-weight:600;font-size:15px}} "
        f".faint{{fill:{palette.faint}}}</style>"
    )
    yield f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{palette.paper}"/>'
    y = MARGIN
    for case, rows in cases:
        yield f'<text x="{MARGIN}" y="{y + 14}" class="title">{escape(case.label)}</text>'
        yield f'<text x="{WIDTH - MARGIN}" y="{y + 14}" class="faint" text-anchor="end">{escape(rows[0].unit)}</text>'
        y += TITLE
        longest = max(row.value or 0 for row in rows)
        for row in rows:
            yield from _bar(row, longest, y, palette)
            y += LINE
        y += GAP
    yield "</svg>"


def _bar(row: Row, longest: float, y: int, palette: Palette) -> Iterator[str]:
    length = max(2.0, BARS * (row.value or 0) / longest)
    colour = palette.ours if row.name.startswith("streamkit") else palette.others
    yield f'<text x="{LEFT - 12}" y="{y + 14}" text-anchor="end">{escape(row.name)}</text>'
    yield f'<rect x="{LEFT}" y="{y + 2}" width="{length:.1f}" height="{LINE - 8}" rx="3" fill="{colour}"/>'
    ratio = "" if row.ratio is None or row.name == row.baseline else f" ({row.ratio:.2f} x)"
    yield f'<text x="{LEFT + length + 8:.1f}" y="{y + 14}" class="faint">{number(row.value)}{ratio}</text>'
