"""The last lines of a terminal, drawn again and again; everything else that is printed goes above them.

The rule: a frame is written at once and leaves the terminal as it should be: with a visible cursor, wrapping long
lines. So nothing has to be restored, whenever and however the program ends. The cursor stays before the first of the
lines: what is behind it can be erased whatever a terminal that was resized has made of the lines meanwhile.
"""

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

from .characters import fitted, printable

__all__ = ["Region", "Row", "rows_of"]

Row = list[Segment]
"""One line, without its end."""


def rows_of(console: Console, renderable: Any, width: int, style: Style | None = None) -> list[Row]:
    """A renderable as lines that may reach the terminal: printable, in its encoding, without hyperlinks."""
    options = console.options.update(width=max(1, width), height=None, markup=False, highlight=False)
    lines = console.render_lines(renderable, options, style=style, pad=False, new_lines=False)
    return [_stripped([_harmless(segment, console.encoding) for segment in line]) for line in lines]


def _harmless(segment: Segment, encoding: str) -> Segment:
    text, style, _ = segment
    if style is not None and style.link:
        style = style.update_link(None)
    return Segment(fitted(printable(text), encoding), style)


def _stripped(row: Row) -> Row:
    """Without blanks at the end, which would wrap where the terminal becomes narrower."""
    while row and not row[-1].text.strip(" ") and not _visible(row[-1].style):
        row.pop()
    if row and row[-1].text.endswith(" ") and not _visible(row[-1].style):
        row[-1] = Segment(row[-1].text.rstrip(" "), row[-1].style)
    return row


def _visible(style: Style | None) -> bool:
    """Whether a blank can be seen in this style."""
    return style is not None and bool(
        style.underline or style.reverse or style.strike or (style.bgcolor and not style.bgcolor.is_default)
    )


class _Segments:
    """Segments, as something that Rich prints."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return iter(self._segments)


class Region(RenderHook):
    """The lines at the bottom of a console. Where the console is no terminal, or one without a cursor to move, there
    is no region: what goes above it is all that is printed.

    Args:
        console: what to print to.
        aside: told what the program itself prints meanwhile. It is not redirected where this is None.
    """

    def __init__(self, console: Console, aside: Callable[[str], object] | None = None) -> None:
        self.console = console
        self.live = console.is_terminal and not (
            console.is_dumb_terminal or console.legacy_windows or console.is_jupyter
        )
        self._lock = threading.RLock()
        self._rows: list[Row] = []
        self._drawn = False  # whether they stand on the terminal
        self._width = 0  # of the terminal, when they were drawn
        self._own = False
        self._redirected: list[tuple[str, IO[str]]] = []
        if type(console).on_broken_pipe is Console.on_broken_pipe:
            # Rich would end the program, and write its stdout to nowhere from then on.
            console.on_broken_pipe = _raise  # type: ignore[method-assign]
        if self.live:
            console.push_render_hook(self)
            if aside is not None:
                self._redirect(aside)

    def show(self, above: Sequence[Row], rows: Sequence[Row]) -> None:
        """Print what goes above, for good, and draw these lines in the place of the last ones."""
        with self._lock:
            before, self._rows = self._rows, list(rows) if self.live else []
            width = self.console.width
            if not above and self._rows == before and width == self._width:
                return
            self._width = width
            self._own = True
            try:
                self.console.print(_Segments([*self._back(), *_ended(above), *self._draw()]), crop=False)
            finally:
                self._own = False

    def close(self) -> None:
        """Take the lines away, and let go of the console."""
        with self._lock:
            try:
                self.show([], [])
            finally:
                if self.live:
                    self.live = False
                    self.console.pop_render_hook()
                vars(self.console).pop("on_broken_pipe", None)
                self._restore()

    def write(self, text: str) -> None:
        """Write to the terminal as it stands, past the region, which has to be empty."""
        with self._lock:
            self.console.file.write(text)
            self.console.file.flush()

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Whatever is printed to the console goes above the region."""
        with self._lock:
            if self._own or not self.live:
                return renderables
            return [_Segments([*self._back()]), *renderables, _Segments([*self._draw()])]

    def _back(self) -> Iterator[Segment]:
        """Erase all behind the cursor."""
        if self._drawn:
            # Its own line first: some terminals keep in their history what is erased with the whole screen.
            yield _control("\x1b[?25l\r\x1b[2K\x1b7\x1b[B\x1b[J\x1b8")
            self._drawn = False

    def _draw(self) -> Iterator[Segment]:
        """The lines, and back to their beginning."""
        if self._rows:
            # A line that is wider than we think is cut off, so that we know how many there are.
            yield _control("\x1b[?25l\x1b[?7l")
            for number, row in enumerate(self._rows):
                if number:
                    yield Segment("\n")
                yield from row
            up = len(self._rows) - 1
            yield _control("\x1b[?7h\r" + (f"\x1b[{up}A" if up else ""))
            self._drawn = True
        if self.live:
            yield _control("\x1b[?25h")

    def _redirect(self, aside: Callable[[str], object]) -> None:
        for name in ("stdout", "stderr"):
            file = getattr(sys, name)
            if _same_terminal(file, self.console.file):
                self._redirected.append((name, file))
                setattr(sys, name, _Aside(file, aside))

    def _restore(self) -> None:
        for name, file in self._redirected:
            if isinstance(getattr(sys, name), _Aside):
                setattr(sys, name, file)
        self._redirected.clear()


def _raise() -> None:
    """Called where an error is handled."""
    raise


def _same_terminal(file: Any, other: Any) -> bool:
    with contextlib.suppress(Exception):  # any object may stand there
        return not isinstance(file, _Aside) and (file is other or (file.isatty() and other.isatty()))
    return False


def _ended(rows: Sequence[Row]) -> Iterator[Segment]:
    for row in rows:
        yield from row
        yield Segment("\n")


def _control(codes: str) -> Segment:
    return Segment(codes, None, ((ControlType.CARRIAGE_RETURN,),))


class _Aside(io.TextIOBase):
    """What `sys.stdout` is meanwhile: what is printed to it goes above the region."""

    def __init__(self, file: IO[str], aside: Callable[[str], object]) -> None:
        self.rich_proxied_file = file  # Rich writes to this one
        self._aside = aside

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str, /) -> int:
        self._aside(text)
        return len(text)

    def flush(self) -> None:
        self.rich_proxied_file.flush()

    def fileno(self) -> int:
        return self.rich_proxied_file.fileno()

    def isatty(self) -> bool:
        return self.rich_proxied_file.isatty()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(getattr(self.rich_proxied_file, "encoding", "utf-8"))
