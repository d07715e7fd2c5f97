"""What of a stream stands on the screen: settled parts above, printed once, and what still changes below.

No thread and no clock here: it is told what happened, and draws when it is asked to.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.text import Text

from ..messages import ConsoleMessage, Message, TextMessage, ToolCallMessage, ToolOutputMessage
from .blocks import Block, CodeBlock, Look, Marked, Part, block_of
from .characters import one_line, printable
from .region import Region, Row, rows_of
from .turns import Said, Turns, Waiting

__all__ = ["Screen"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FAILED = ("incomplete", "cancelled", "failed")


class Screen:
    """One stream on one console.

    Attributes:
        asking: whether a question waits for an answer: then nothing is drawn, for somebody may be typing.
    """

    def __init__(self, console: Console, look: Look, aside: Callable[[str], object] | None = None) -> None:
        self._console = console
        self._look = look
        self._turns = Turns()
        self._block: Block | None = None  # of the message that speaks
        self._before: Message | None = None  # the message shown last
        self._code: CodeBlock | None = None  # the code shown last
        self._line: int | None = None  # of it, that runs
        self._calls: dict[str, tuple[str, float]] = {}  # that have no output yet: their names, and since when
        self._names: dict[str, str] = {}
        self._above: list[Row] = []
        self._printed = False  # whether anything stands above
        self._aside = ""  # what the program printed, as far as its line is not complete
        self._running = False
        self._new = 0  # lines since it was drawn last
        self._rushing = False  # they come faster than anybody could read them
        self.asking = False
        self._region = Region(console, aside)

    @property
    def live(self) -> bool:
        return self._region.live

    @property
    def animated(self) -> bool:
        """Whether it changes with time alone."""
        return self.live and not self.asking and (bool(self._calls) or self._idle)

    @property
    def _idle(self) -> bool:
        return self._running and self._block is None and not self._turns.waiting and self._line is None

    # -- what happened

    def run_begins(self) -> None:
        self._running = True

    def run_ends(self) -> None:
        self._running = False
        self._calls.clear()
        self._line = None

    def created(self, message: Message) -> None:
        self.asking = False
        self._show(self._turns.created(message))

    def grew(self, message: Message, text: str, replace: bool, mark: str) -> None:
        self._new += text.count("\n")
        self._show(self._turns.grew(message, text, replace=replace, mark=mark))

    def done(self, message: Message, cited: tuple[str, ...] = ()) -> None:
        self._show(self._turns.done(message))
        if isinstance(message, ToolCallMessage) and message.call_id:
            name = one_line(message.name or "")
            self._names[message.call_id] = name
            if message.status == "completed":
                self._calls[message.call_id] = (name, time.monotonic())
        elif isinstance(message, ToolOutputMessage):
            self._calls.pop(message.call_id or "", None)
        elif isinstance(message, ConsoleMessage):
            self._line = None
        if cited:
            self._print([Part(Text("\n".join(cited), "dim"))])

    def runs_line(self, line: int | None) -> None:
        self.asking = False
        self._line = line

    def tell(self, mark: str, text: str, style: str) -> None:
        """A line of its own, after all that was said before."""
        self._show(self._turns.flush())
        self.warn(mark, text, style)
        self._before = None

    def warn(self, mark: str, text: str, style: str) -> None:
        """A line of its own, above what still changes."""
        self._print([Part(Marked(Text(printable(text), style), f"{mark} ", style=style))])

    def aside(self, text: str) -> None:
        """Something that the program itself printed."""
        if self.asking or not self.live:
            self._region.write(text)
            return
        *lines, self._aside = (self._aside + text).split("\n")
        if lines:
            self._above += rows_of(self._console, Text("\n").join(map(Text.from_ansi, lines)), self._console.width)

    def ask(self, asking: bool) -> None:
        """From now on somebody may be typing, or no longer."""
        if asking and not self.asking:
            self._show(self._turns.flush())
            self._draw([])
        self.asking = asking

    # -- in turns

    def _show(self, told: Iterable[Said]) -> None:
        for said in told:
            match said.what:
                case "begin" | "again" | "replace":
                    self._finish()
                    self._block = self._block_of(said.message)
                    self._block.resumed = said.what == "again"
                    self._before = said.message
                    if said.what == "replace":
                        self._print([Part(Text("↻ in its place:", "dim"))])
                        self._block.add(said.text, said.mark)
                case "text":
                    if self._block is not None:
                        self._block.add(said.text, said.mark)
                case "pause":
                    self._finish()
                case "end":
                    self._end(said.message)

    def _block_of(self, message: Message) -> Block:
        before, name = self._before, message.name or self._names.get(message.call_id or "")
        answers = isinstance(before, ToolCallMessage) and before.call_id == message.call_id and len(self._calls) < 2
        return block_of(message, self._look, after=before, name=None if answers else name)

    def _finish(self, *, ended: bool = False) -> None:
        """The end of a turn, if not of the message."""
        if self._block is not None:
            self._block.ended = ended
            self._print(self._block.settled(final=True))
            if isinstance(self._block, CodeBlock):
                self._code = self._block
        self._block = None

    def _end(self, message: Message) -> None:
        self._finish(ended=True)
        if message.status in _FAILED and isinstance(message, TextMessage):
            self._print([Part(Text(f"({message.status})", "dim"), True)])

    def _print(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if self._printed and not part.joins:
                self._above.append([])
            self._above += self._rows(part)
            self._printed = True

    def _rows(self, part: Part) -> list[Row]:
        width = self._console.width
        try:
            rows = rows_of(self._console, part.renderable, width)
        except Exception:
            # Whatever a model writes must not end the stream because a library stumbles over it.
            rows = rows_of(self._console, Text("(this part cannot be shown)", "red"), width)
        while rows and not rows[0]:
            del rows[0]
        while rows and not rows[-1]:
            del rows[-1]
        return rows

    # -- drawing

    def draw(self) -> None:
        """Bring the terminal up to date."""
        if self.asking:
            return
        if self._block is not None:
            self._print(self._block.settled(final=False))
        self._draw(self._below() if self.live else [])

    def close(self) -> None:
        """Print what is left, and let go of the terminal."""
        try:
            self._show(self._turns.flush())
            if self._aside:
                self.aside("\n")
            self._draw([])
        finally:
            self._region.close()

    def _draw(self, rows: list[Row]) -> None:
        above, self._above = self._above, []
        self._region.show(above, rows)

    def _below(self) -> list[Row]:
        """What still changes, in at most as many lines as the screen has, less one."""
        width, height = self._console.width, max(1, self._console.height - 1)
        status = [row for part in self._status(width, height) for row in self._rows(part)][-max(1, height // 2) :]
        rows: list[Row] = rows_of(self._console, Text.from_ansi(self._aside), width) if self._aside else []
        if self._block is not None:
            for part in self._block.tail(width, self._tail_rows(height)):
                if self._printed and not part.joins:
                    rows.append([])
                rows += self._rows(part)
        if status and self._printed and not self._turns.waiting:
            rows.append([])
        rows += status
        return rows[-height:]

    def _tail_rows(self, height: int) -> int:
        """In how many lines the open part is drawn. Of lines that rush by, a few show as much as all, and cost less."""
        new, self._new = self._new, 0
        self._rushing = new * (4 if self._rushing else 2) >= height
        return max(1, height // 3) if self._rushing else height

    def _status(self, width: int, height: int) -> Iterator[Part]:
        """Lines that tell what else is going on."""
        for held in self._turns.waiting.values():
            if held.pieces:
                yield Part(_crop(Text.assemble((f"{self._spinner} ", "cyan"), (_summary(held), "dim"))))
        if self._line is not None and self._code is not None:
            yield from self._code.window(self._line, max(1, min(5, height // 3)))
        now = time.monotonic()
        for name, since in self._calls.values():
            seconds = int(now - since)
            told = f" {seconds} s" if seconds else ""
            yield Part(_crop(Text.assemble((f"{self._spinner} ", "cyan"), name, (told, "dim"))))
        if self._idle and not self._calls:
            yield Part(Text(self._spinner, "dim"))

    @property
    def _spinner(self) -> str:
        return _SPINNER[int(time.monotonic() * 10) % len(_SPINNER)]


def _crop(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _summary(held: Waiting) -> str:
    """A message that waits for its turn, in a line: the end of what it said."""
    name = one_line(held.message.name or held.message.type)
    return f"{name} {one_line(''.join(text for text, _ in held.pieces[-8:]))}"
