"""The last lines of a terminal, drawn again and again; everything else that is printed goes above them.

The rule: each frame is written at once and leaves the terminal usable: the cursor visible, long lines wrapping. So
nothing has to be restored, whenever and however the program ends. The cursor stays at the beginning of the first line:
everything behind it can be erased, whatever a terminal that was resized has made of the lines meanwhile."""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import ControlType, Segment
from rich.style import Style

from .characters import encodable, printable

__all__ = ["Redirection", "Region", "Row", "can_redraw", "rows_of"]


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


class Redirection:
    """Replaces `sys.stdout` and `sys.stderr`, where they are the same terminal as another file."""

    def __init__(self) -> None:
        self._replaced: list[tuple[str, IO[str]]] = []

    def begin(self, terminal: IO[str], on_print: Callable[[str], object]) -> None:
        """Replace the files; `on_print` is called with whatever is printed to them."""
        for name in ("stdout", "stderr"):
            file = getattr(sys, name)
            if _same_terminal(file, terminal):
                self._replaced.append((name, file))
                setattr(sys, name, _PrintCatcher(file, on_print))

    def end(self) -> None:
        """Put the files back, unless the program has replaced them itself meanwhile."""
        for name, file in self._replaced:
            if isinstance(getattr(sys, name), _PrintCatcher):
                setattr(sys, name, file)
        self._replaced.clear()


def _same_terminal(file: Any, other: Any) -> bool:
    with contextlib.suppress(Exception):  # `sys.stdout` may be any object
        return not isinstance(file, _PrintCatcher) and (file is other or (file.isatty() and other.isatty()))
    return False


class _PrintCatcher(io.TextIOBase):
    """Stands for a file; passes what is printed to a function."""

    def __init__(self, file: IO[str], on_print: Callable[[str], object]) -> None:
        self.rich_proxied_file = file  # a name that Rich knows: it writes to this file itself
        self._on_print = on_print

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str, /) -> int:
        self._on_print(text)
        return len(text)

    def flush(self) -> None:
        self.rich_proxied_file.flush()

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    def isatty(self) -> bool:
        return self.rich_proxied_file.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # `io` declares an attribute, where a property is needed
        return str(getattr(self.rich_proxied_file, "encoding", "utf-8"))


_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
# Erase the cursor's line and all below it. Its line separately, for some terminals move what is erased with the complete
# screen into their history.
_ERASE = f"{_HIDE_CURSOR}\r\x1b[2K\x1b7\x1b[B\x1b[J\x1b8"


def can_redraw(console: Console) -> bool:
    """Whether lines on this console can be drawn again: it is a terminal, and one that can move its cursor."""
    return console.is_terminal and not (console.is_dumb_terminal or console.legacy_windows or console.is_jupyter)


class _Segments:
    """Segments, as something that Rich can print."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return iter(self._segments)


class Region(RenderHook):
    """The lines at the bottom of a console.

    Where the console is no terminal, or one that cannot move its cursor, there are none: only what goes above is printed.

    Args:
        console: what to print to.
        on_print: called with what the program itself prints to `sys.stdout` and `sys.stderr` meanwhile; None leaves
            these alone.

    Attributes:
        live: whether there are lines that are drawn again.
    """

    def __init__(self, console: Console, on_print: Callable[[str], object] | None = None) -> None:
        self.console = console
        self.live = can_redraw(console)
        self._lock = threading.RLock()
        self._rows: list[Row] = []
        self._drawn = False  # whether they stand on the terminal
        self._width = 0  # of the terminal when they were drawn
        self._is_printing = False  # whether the region itself prints to the console
        self._redirection = Redirection()
        if type(console).on_broken_pipe is Console.on_broken_pipe:
            # Rich's own would end the program and send the rest of its stdout to nowhere. For this console alone.
            vars(console)["on_broken_pipe"] = _raise_again
        if self.live:
            console.push_render_hook(self)
            if on_print is not None:
                self._redirection.begin(console.file, on_print)

    def show(self, above: Sequence[Row], rows: Sequence[Row]) -> None:
        """Print rows above for good, and draw the others in place of the last ones. Does nothing if nothing changes."""
        with self._lock:
            before, self._rows = self._rows, list(rows) if self.live else []
            width = self.console.width
            if not above and self._rows == before and width == self._width:
                return
            self._width = width
            self._is_printing = True
            try:
                self.console.print(_Segments([*self._erase(), *_lines(above), *self._draw()]), crop=False)
            finally:
                self._is_printing = False

    def close(self) -> None:
        """Erase the lines, and leave the console as it was."""
        with self._lock:
            try:
                self.show([], [])
            finally:
                if self.live:
                    self.live = False
                    self.console.pop_render_hook()
                vars(self.console).pop("on_broken_pipe", None)
                self._redirection.end()

    def write(self, text: str) -> None:
        """Write to the terminal directly; the region has to be empty."""
        with self._lock:
            self.console.file.write(text)
            self.console.file.flush()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Called by Rich with whatever is printed to the console: puts it above the lines."""
        with self._lock:
            if self._is_printing or not self.live:
                return renderables
            return [_Segments([*self._erase()]), *renderables, _Segments([*self._draw()])]

    def _erase(self) -> Iterator[Segment]:
        if self._drawn:
            yield _control(_ERASE)
            self._drawn = False

    def _draw(self) -> Iterator[Segment]:
        """The lines, and the cursor back to their beginning."""
        if self._rows:
            # Without wrapping a line that turns out wider than computed is cut off, so the number of lines is right.
            yield _control(_HIDE_CURSOR + _NO_WRAP)
            for number, row in enumerate(self._rows):
                if number:
                    yield Segment("\n")
                yield from row
            up = len(self._rows) - 1
            yield _control(_WRAP + "\r" + (f"\x1b[{up}A" if up else ""))
            self._drawn = True
        if self.live:
            yield _control(_SHOW_CURSOR)


def _raise_again() -> None:
    """Raise the error that is being handled."""
    raise


def _lines(rows: Sequence[Row]) -> Iterator[Segment]:
    for row in rows:
        yield from row
        yield Segment("\n")


def _control(codes: str) -> Segment:
    """A segment that Rich writes unchanged. Which control type it has does not matter."""
    return Segment(codes, None, ((ControlType.CARRIAGE_RETURN,),))
