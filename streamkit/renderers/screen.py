"""The screen of a stream: settled parts above, printed once, and below them the parts that may still change.

There is no thread here: each method takes one kind of change, and `draw` draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.text import Text

from ..messages import Message, TextMessage, ToolCallMessage, ToolOutputMessage
from ..mimebundle import depth_of
from .activity import Activity
from .block import Block, BlockPart, Look, Marked
from .blocks import make_block
from .characters import printable
from .code import CodeBlock
from .region import Region, Row, rows_of
from .turns import Action, ReadingOrder
from .wording import describe_failure

__all__ = ["Screen"]

_INDENT = "    "  # of the messages of a sub-agent
_NOWHERE = 1 << 62  # beyond all rows
_INCOMPLETE = ("incomplete", "cancelled", "failed")


class Screen:
    """One stream on one console.

    Args:
        console: Rich's console to draw on.
        look: how messages look.
        on_print: called with the program's own output, which `print_aside` then shows; None leaves
            `sys.stdout` and `sys.stderr` alone.

    Attributes:
        held: whether nothing is drawn, because a confirmation waits and somebody may be typing.
    """

    def __init__(self, console: Console, look: Look, on_print: Callable[[str], object] | None = None) -> None:
        self._console = console
        self._look = look
        self._turns = ReadingOrder()
        self._activity = Activity()
        self._block: Block | None = None  # of the current message
        self._previous: Message | None = None  # the message that was shown last
        self._above: list[Row] = []  # to print at the next drawing
        self._printed = False  # whether anything stands above
        # Where in `_above` the rest of messages begins that have just failed, which may be withdrawn; and whether anything stood above.
        self._failed_at, self._printed_before = _NOWHERE, False
        self._aside = ""  # the unfinished line of the program's own output
        self._new_lines = 0  # since the last drawing
        self._rushing = False  # whether lines arrive faster than anybody can read
        self.held = False
        self._region = Region(console, on_print)

    @property
    def live(self) -> bool:
        """Whether anything is drawn again; else each part is only printed once it is settled."""
        return self._region.live

    @property
    def animated(self) -> bool:
        """Whether the screen changes by time alone."""
        return self.live and not self.held and self._activity.running

    # -- changes

    def started(self) -> None:
        """The request was sent."""
        self._activity.begin_run()

    def run_created(self) -> None:
        """A run began."""
        self._activity.begin_run()

    def run_done(self) -> None:
        """A run is over."""
        self._activity.run_done()

    def message_created(self, message: Message) -> None:
        """A message was created."""
        self.held = False
        self._activity.note_progress()
        self._show(self._turns.create(message))

    def message_delta(self, message: Message, text: str, replace: bool, stream: str) -> None:
        """A message received a piece; of console output from this stream."""
        self._activity.note_progress()
        self._new_lines += text.count("\n")
        self._show(self._turns.append(message, text, replace=replace, stream=stream))

    def message_done(self, message: Message, cited: tuple[str, ...] = ()) -> None:
        """A message is complete; below it come the sources that it cites."""
        self._activity.note_progress()
        self._show(self._turns.finish(message))
        seconds = self._activity.message_done(message)
        if (failure := describe_failure(message)) is not None:
            after = f" after {seconds:.0f} s" if seconds >= 1 else ""
            self._print([BlockPart(Text(f"✗ {failure}{after}", "red"), True)], message)
        elif seconds >= 1:
            self._print([BlockPart(Text(f"  took {seconds:.0f} s", "dim"), True)], message)
        if cited:
            self._print([BlockPart(Text("\n".join(cited), "dim"))], message)

    def set_active_line(self, line: int | None) -> None:
        """Show that this line of the code runs now."""
        self.held = False
        self._activity.line = line

    def add_line(self, mark: str, text: str, style: str, about: Message | None = None) -> None:
        """Show a line of its own after everything that came before, where the message stands that it is about."""
        self._show(self._turns.flush())
        self.add_line_above(mark, text, style, about)
        self._previous = None

    def add_line_above(self, mark: str, text: str, style: str, about: Message | None = None) -> None:
        """Print a line above the part that may still change."""
        self._print([BlockPart(Marked(Text(printable(text), style), f"{mark} ", style=style))], about)

    def print_aside(self, text: str) -> None:
        """Show the program's own output."""
        if self.held or not self.live:
            self._region.write(text)
            return
        *lines, self._aside = (self._aside + text).split("\n")
        if lines:
            self._above += rows_of(self._console, Text("\n").join(map(Text.from_ansi, lines)), self._console.width)

    def hold(self, held: bool) -> None:
        """Stop drawing, with everything shown that there is; or go on."""
        if held and not self.held:
            self._show(self._turns.flush())
            self._failed_at = _NOWHERE
            self._update([])
        self.held = held

    def unfold(self, message: Message) -> None:
        """Show all of the code that a question is about, if lines of it were left out."""
        self._show(self._turns.flush())
        code = self._activity.code
        if code is not None and code.folded and code.message is message:
            self._print(code.unfolded(), message)

    def decided(self, subject: Message, approved: bool) -> None:
        """A confirmation was decided. If it was approved, its subject begins to run."""
        self._activity.decided(subject, approved)

    def retried(self, text: str, about: Message | None) -> None:
        """Begin an answer again: the part of the failed one that is still drawn is not printed any more."""
        if self._failed_at != _NOWHERE:
            del self._above[self._failed_at :]
            self._failed_at, self._printed = _NOWHERE, self._printed_before
        self.add_line("↻", text, "yellow", about)

    # -- blocks

    def _show(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action.kind:
                case "append":
                    if self._block is not None:
                        self._block.append(action.text, action.stream)
                case "begin" | "resume" | "replace":
                    self._begin_block(action)
                case "pause":
                    self._finish_block(ended=False)
                case "end":
                    self._end(action.message)

    def _begin_block(self, action: Action) -> None:
        self._finish_block(ended=False)
        self._block = self._make_block(action.message)
        self._block.resumed = action.kind == "resume"
        self._previous = action.message
        if action.kind == "replace":
            self._print([BlockPart(Text("↻ replaced by:", "dim"))], action.message)
            self._block.append(action.text, action.stream)

    def _make_block(self, message: Message) -> Block:
        previous, activity = self._previous, self._activity
        name = message.name or activity.call_names.get(message.call_id or "")
        follows_its_call = isinstance(previous, ToolCallMessage) and previous.call_id == message.call_id
        is_plain = follows_its_call and len(activity.calls) < 2
        return make_block(message, self._look, after=previous, name=None if is_plain else name)

    def _finish_block(self, *, ended: bool) -> None:
        """Print the rest of the block. `ended` says whether the message is complete, too."""
        if self._block is not None:
            self._block.ended = ended
            self._print(self._block.take_settled(final=True), self._block.message)
            if isinstance(self._block, CodeBlock):
                self._activity.code = self._block
        self._block = None

    def _end(self, message: Message) -> None:
        failed_at, before = self._failed_at, self._printed_before
        if failed_at == _NOWHERE:
            failed_at, before = len(self._above), self._printed
        self._finish_block(ended=True)
        is_marked = isinstance(message, TextMessage) and self._look.cut_off and message.status in _INCOMPLETE
        if is_marked or (isinstance(message, ToolOutputMessage) and message.status == "failed"):
            self._print([BlockPart(Text(f"({message.status})", "dim"), True)], message)
        if message.status == "failed":
            self._failed_at, self._printed_before = failed_at, before

    def _print(self, parts: Iterable[BlockPart], about: Message | None = None) -> None:
        """Print parts above, at the next drawing, where the message stands that they are about."""
        for part in parts:
            rows = self._rows(part, about)
            if rows and self._printed and not part.joins:
                self._above.append([])
            self._above += rows
            if rows:
                self._printed, self._failed_at = True, _NOWHERE

    def _rows(self, part: BlockPart, about: Message | None = None) -> list[Row]:
        """Return the rows of a part, indented if it is about a message of a sub-agent."""
        width, depth = self._console.width, 0 if about is None else depth_of(about)
        shown = Marked(part.renderable, _INDENT * depth) if depth else part.renderable
        try:
            rows = rows_of(self._console, shown, width)
        except Exception:
            # Text of a model at which a library fails must not end the stream.
            rows = rows_of(self._console, Text("(this part cannot be displayed)", "red"), width)
        while rows and not rows[0]:
            del rows[0]
        while rows and not rows[-1]:
            del rows[-1]
        return rows

    # -- drawing

    def draw(self) -> None:
        """Bring the terminal up to date, unless it is held."""
        if self.held:
            return
        if self._block is not None:
            self._print(self._block.take_settled(final=False), self._block.message)
        self._update(self._rows_below() if self.live else [])

    def close(self) -> None:
        """Print everything that is left, and restore the terminal."""
        try:
            self._show(self._turns.flush())
            if self._aside:
                self.print_aside("\n")
            self._failed_at = _NOWHERE
            self._update([])
        finally:
            self._region.close()

    def _update(self, rows: list[Row]) -> None:
        above, self._above = self._above[: self._failed_at], self._above[self._failed_at :]
        if self._above:  # they are drawn with the part that may still change
            self._failed_at = 0
            rows = [*self._above, *rows][1 - self._console.height :]
        self._region.show(above, rows if self.live else [])

    def _rows_below(self) -> list[Row]:
        """Return the rows that may still change, at most one row less than the screen has."""
        width, height = self._console.width, max(1, self._console.height - 1)
        activity = self._activity.parts(self._turns.waiting.values(), height, writing=self._block is not None)
        activity_rows = [row for part in activity for row in self._rows(part)][-max(1, height // 2) :]
        rows: list[Row] = rows_of(self._console, Text.from_ansi(self._aside), width) if self._aside else []
        if self._block is not None:
            for part in self._block.tail(width, self._tail_rows(height)):
                tail = self._rows(part, self._block.message)
                if tail and self._printed and not part.joins:
                    rows.append([])
                rows += tail
        if activity_rows and (self._printed or rows) and not self._turns.waiting:
            rows.append([])
        rows += activity_rows
        return rows[-height:]

    def _tail_rows(self, height: int) -> int:
        """In how many rows the tail is drawn. Of lines that rush by a few are as good as all, and cost less."""
        new_lines, self._new_lines = self._new_lines, 0
        self._rushing = new_lines * (4 if self._rushing else 2) >= height
        return max(1, height // 3) if self._rushing else height
