"""Draws concepts-light.svg and concepts-dark.svg: run, run step, message and delta, with the hooks at their place.

    python .docs/pictures/concepts.py

One drawing, two palettes. It needs nothing but Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 960, 470
SANS = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Palette(NamedTuple):
    """The colours of one drawing."""

    paper: str
    ink: str
    faint: str
    run: str
    step: str
    message: str
    accent: str
    hook: str


LIGHT = Palette(
    "#ffffff",
    "#1f2933",
    "#66727f",
    "#f1f5f9",
    "#e2eaf3",
    "#ffffff",
    "#2563eb",
    "#9a3412",
)
DARK = Palette(
    "#0f141b",
    "#e6ebf1",
    "#93a1b0",
    "#161d27",
    "#1f2935",
    "#0f141b",
    "#60a5fa",
    "#fdba74",
)


class Message(NamedTuple):
    """One message's row: where it stands, what it is, its pieces, and the hooks under it."""

    x: int
    y: int
    title: str
    pieces: tuple[str, ...]
    hooks: tuple[str, str, str]


STEP_1 = (44, 96, 560, 286)
STEP_2 = (620, 96, 296, 286)

MESSAGES = (
    Message(
        60,
        132,
        "text message",
        ("Let me ", "look."),
        ("on_text_created", "on_text_delta", "on_text_done"),
    ),
    Message(
        60,
        214,
        "tool call",
        ('{"city": ', '"Oslo"}'),
        ("on_tool_call_created", "on_tool_call_delta", "on_tool_call_done"),
    ),
    Message(
        60,
        296,
        "tool output",
        ("rain",),
        ("on_tool_output_created", "on_tool_output_delta", "on_tool_output_done"),
    ),
)


class Drawing:
    """Collects SVG elements in one palette."""

    def __init__(self, colours: Palette) -> None:
        self.colours = colours
        self.parts: list[str] = []

    def box(
        self, x: int, y: int, width: int, height: int, fill: str, *, radius: int = 10
    ) -> None:
        """A filled, rounded rectangle."""
        size = f'x="{x}" y="{y}" width="{width}" height="{height}" rx="{radius}"'
        self.parts.append(
            f'<rect {size} fill="{fill}" stroke="{self.colours.faint}" stroke-opacity="0.45"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        kind: str = "label",
        anchor: str = "start",
    ) -> None:
        """A line of text of a class that the style names."""
        self.parts.append(
            f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def circle(self, x: float, y: float, *, filled: bool) -> None:
        """The mark of a message's beginning (empty) or end (filled)."""
        fill = self.colours.accent if filled else self.colours.message
        self.parts.append(
            f'<circle cx="{x}" cy="{y}" r="6" fill="{fill}" stroke="{self.colours.accent}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A thin line."""
        self.parts.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{self.colours.accent}"/>'
        )

    def piece(self, x: float, y: float, width: float, text: str) -> None:
        """A delta: a small box with the new text in it."""
        fill, stroke = self.colours.message, self.colours.accent
        self.parts.append(
            f'<rect x="{x}" y="{y - 12}" width="{width}" height="24" rx="4" fill="{fill}" stroke="{stroke}"/>'
        )
        self.text(x + width / 2, y + 4.5, text, kind="piece", anchor="middle")

    def svg(self) -> str:
        """The whole file."""
        ink, faint, hook = self.colours.ink, self.colours.faint, self.colours.hook
        style = (
            f".title{{font:600 15px {SANS};fill:{ink}}} .label{{font:13px {SANS};fill:{faint}}}"
            f" .hook{{font:11.5px {MONO};fill:{hook}}} .piece{{font:12px {MONO};fill:{ink}}}"
        )
        about = "A run holds run steps, a run step holds messages, a message is created, grows by deltas and is done."
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{about}">'
        return "\n".join((head, f"<style>{style}</style>", *self.parts, "</svg>", ""))


def draw_message(drawing: Drawing, message: Message, width: int) -> None:
    """One message: created, a box for each delta, done, with its hooks below."""
    x, y = message.x, message.y
    drawing.box(x, y, width, 70, drawing.colours.message, radius=8)
    drawing.text(x + 14, y + 28, message.title, kind="title")
    places = list(_places(message.pieces, x + 186))
    start, end = x + 162, x + width - 22
    drawing.line(start, y + 23, end, y + 23)
    drawing.circle(start, y + 23, filled=False)
    for place, piece_width, text in places:
        drawing.piece(place, y + 23, piece_width, text)
    drawing.circle(end, y + 23, filled=True)
    created, delta, done = message.hooks
    drawing.text(x + 14, y + 58, created, kind="hook")
    drawing.text(x + 186, y + 58, delta, kind="hook")
    drawing.text(x + width - 14, y + 58, done, kind="hook", anchor="end")


def _places(pieces: Iterable[str], x: float) -> Iterator[tuple[float, float, str]]:
    for text in pieces:
        width = 18 + 7.4 * len(text)
        yield x, width, text
        x += width + 12


def draw_last_message(drawing: Drawing) -> None:
    """The text of the second step, in a narrower box."""
    x, y, width = 636, 132, 264
    drawing.box(x, y, width, 152, drawing.colours.message, radius=8)
    drawing.text(x + 14, y + 28, "text message", kind="title")
    drawing.line(x + 20, y + 54, x + width - 20, y + 54)
    drawing.circle(x + 20, y + 54, filled=False)
    for place, piece_width, text in _places(("Take an ", "umbrella."), x + 38):
        drawing.piece(place, y + 54, piece_width, text)
    drawing.circle(x + width - 20, y + 54, filled=True)
    for line, hook in enumerate(
        ("on_text_created", "on_text_delta   (each piece)", "on_text_done")
    ):
        drawing.text(x + 14, y + 92 + 20 * line, hook, kind="hook")


def draw(colours: Palette) -> str:
    """The picture in one palette."""
    drawing = Drawing(colours)
    drawing.box(0, 0, WIDTH, HEIGHT, colours.paper, radius=12)
    drawing.box(20, 20, 920, 392, colours.run)
    drawing.text(44, 50, "run", kind="title")
    drawing.text(82, 50, "one answer, whatever it takes")
    drawing.text(44, 74, "on_run_created", kind="hook")
    drawing.text(916, 74, "on_run_done", kind="hook", anchor="end")
    for (x, y, width, height), number, about in (
        (STEP_1, 1, "one model call, and the tools or the code it asked for"),
        (STEP_2, 2, "the next model call"),
    ):
        drawing.box(x, y, width, height, colours.step)
        drawing.text(x + 16, y + 23, f"run step {number}", kind="title")
        drawing.text(x + 116, y + 23, about)
        drawing.text(x + 16, y + height + 17, "on_run_step_created", kind="hook")
        drawing.text(
            x + width - 16,
            y + height + 17,
            "on_run_step_done",
            kind="hook",
            anchor="end",
        )
    for message in MESSAGES:
        draw_message(drawing, message, 528)
    draw_last_message(drawing)
    y = HEIGHT - 26
    drawing.circle(38, y - 4, filled=False)
    drawing.text(52, y, "created: the message begins, empty")
    drawing.piece(302, y - 4, 44, "text")
    drawing.text(356, y, "delta: a new piece of it")
    drawing.circle(538, y - 4, filled=True)
    drawing.text(552, y, "done: it never changes again")
    drawing.text(916, y, "on_end", kind="hook", anchor="end")
    drawing.text(862, y, "last, always:", anchor="end")
    return drawing.svg()


def main() -> None:
    """Writes both pictures beside this script."""
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        picture = HERE / f"concepts-{name}.svg"
        picture.write_text(draw(colours), encoding="utf-8")
        print(picture)


if __name__ == "__main__":
    main()
