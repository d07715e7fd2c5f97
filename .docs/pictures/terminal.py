"""Draws terminal.svg: what `streamkit demo --yes` shows in a real terminal.

    python .docs/pictures/terminal.py

It needs tmux and the extras `computer` and `live`. The demo runs in a tmux window of 100 columns; the window's text and
colours are captured when the demo has ended, and Rich writes them as SVG. The handler's source that the demo prints
first and the tables that it prints last are left out; no other line is changed.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parent
COLUMNS = 100
FIRST_LINE = re.compile(r"^You: ")
AFTER_LAST_LINE = re.compile(r"^\d+ messages, completed")

THEME = TerminalTheme(
    (30, 34, 42),
    (214, 220, 230),
    [
        (62, 68, 81),
        (240, 113, 120),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 140, 240),
        (86, 190, 200),
        (214, 220, 230),
    ],
    [
        (120, 130, 148),
        (240, 113, 120),
        (152, 195, 121),
        (229, 192, 123),
        (97, 175, 239),
        (198, 140, 240),
        (86, 190, 200),
        (255, 255, 255),
    ],
)


def tmux(*arguments: str) -> str:
    """Runs a tmux command on a server of its own and returns its output."""
    done = subprocess.run(
        ["tmux", "-L", "streamkit-picture", *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def captured_screen() -> list[str]:
    """The lines of the demo's window, with escape sequences for their colours."""
    demo = f"{shlex.quote(sys.executable)} -m streamkit demo --yes --offline"
    command = f"{demo}; tmux -L streamkit-picture wait-for -S demo-ended; sleep 60"
    tmux("new-session", "-d", "-x", str(COLUMNS), "-y", "200", command)
    try:
        tmux("wait-for", "demo-ended")
        return tmux("capture-pane", "-e", "-p").splitlines()
    finally:
        tmux("kill-server")


def shown_lines(screen: list[str]) -> list[Text]:
    """The lines from the question to the answer."""
    lines = Text.from_ansi("\n".join(screen)).split("\n", allow_blank=True)
    plain = [line.plain for line in lines]
    start = next(i for i, text in enumerate(plain) if FIRST_LINE.match(text))
    end = next(i for i, text in enumerate(plain) if AFTER_LAST_LINE.match(text))
    shown = list(lines[start:end])
    while shown and not shown[-1].plain.strip():
        shown.pop()
    return shown


def svg_of(lines: list[Text]) -> str:
    """The lines as an SVG that fetches no font."""
    with open("/dev/null", "w", encoding="utf-8") as nowhere:
        console = Console(
            record=True,
            width=COLUMNS,
            file=nowhere,
            color_system="truecolor",
            force_terminal=True,
        )
        console.print(Text.assemble(("$ ", "green"), ("streamkit demo --yes", "bold")))
        console.print()
        for line in lines:
            console.print(line, no_wrap=True, overflow="crop", highlight=False)
    svg = console.export_svg(title="streamkit demo", theme=THEME, unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Writes the picture beside this script."""
    picture = HERE / "terminal.svg"
    picture.write_text(svg_of(shown_lines(captured_screen())), encoding="utf-8")
    print(picture)


if __name__ == "__main__":
    main()
