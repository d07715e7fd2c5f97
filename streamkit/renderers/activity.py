"""Signs of activity besides the messages: calls without an output, the line that runs, a stream that waits."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator

from rich.text import Text

from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage, ToolOutputMessage
from .block import BlockPart
from .characters import one_line
from .code import CodeBlock
from .turns import WaitingMessage

__all__ = ["Activity"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINNER_STEPS = 10  # a second
_WINDOW = 5  # lines of code around the one that runs
_SILENCE = 1.0  # seconds after which a message that grows is silent
_SUMMARY_PIECES = 8  # how many of the last pieces of a waiting message are shown


class Activity:
    """The lines at the bottom of the screen that show activity.

    Attributes:
        running: whether the request was sent, and the run has not ended.
        line: the number of the line of code that runs; None if none does.
        code: the code that was shown last.
        code_since: since when the code runs that was shown last (`time.monotonic`); None where none does.
        calls: the calls without an output, by call id: their names, and since when (`time.monotonic`).
        call_names: the names of all calls, by call id.
    """

    def __init__(self) -> None:
        self.running = False
        self._progress = 0.0  # when anything happened last (`time.monotonic`)
        self.line: int | None = None
        self.code: CodeBlock | None = None
        self.code_since: float | None = None
        self.calls: dict[str, tuple[str, float]] = {}
        self.call_names: dict[str, str] = {}

    def begin_run(self) -> None:
        """The stream waits for its first message, from now on unless it did so already."""
        if not self.running:
            self.running = True
            self.note_progress()

    def note_progress(self) -> None:
        """Something happened just now."""
        self._progress = time.monotonic()

    def run_done(self) -> None:
        """The run is over, and with it all activity."""
        self.running = False
        self.calls.clear()
        self.line = self.code_since = None

    def begin_code(self, runs: bool = True) -> None:
        """The code that was shown last may begin to run now, or will not."""
        self.code_since = time.monotonic() if runs and self.code is not None else None

    def decided(self, subject: Message, runs: bool) -> None:
        """Somebody decided whether this call or code runs, from now on."""
        self.begin_code(runs)
        name, _ = self.calls.pop(subject.call_id or "", ("", 0.0))
        if runs and isinstance(subject, ToolCallMessage) and name:
            self.calls[subject.call_id or ""] = (name, time.monotonic())

    def message_done(self, message: Message) -> float:
        """A message is complete: a call now waits for its output, an output ends the waiting of its call. Returns for how
        many seconds the call waited, or the code ran, whose output is complete; 0 for other messages."""
        since: float | None = None
        if isinstance(message, ToolCallMessage) and message.call_id:
            name = one_line(message.name or "")
            self.call_names[message.call_id] = name
            if message.status == "completed":
                self.calls[message.call_id] = (name, time.monotonic())
        elif isinstance(message, ToolOutputMessage):
            _, since = self.calls.pop(message.call_id or "", ("", None))
        elif isinstance(message, ConsoleMessage):
            since, self.line, self.code_since = self.code_since, None, None
        elif isinstance(message, CodeMessage) and message.role == "assistant" and message.status == "completed":
            self.begin_code()
        elif message.role == "assistant":
            self.code_since = None
        return 0.0 if since is None else time.monotonic() - since

    def parts(self, waiting: Collection[WaitingMessage], height: int, *, writing: bool) -> Iterator[BlockPart]:
        """The lines to show.

        Args:
            waiting: the messages that wait for their turn.
            height: rows of the terminal.
            writing: whether a message grows above, unless it is silent.
        """
        spinner = _SPINNER[int(time.monotonic() * _SPINNER_STEPS) % len(_SPINNER)]
        for message in waiting:
            if message.pieces:
                yield BlockPart(_one_row(Text.assemble((f"{spinner} ", "cyan"), (_summary(message), "dim"))))
        if self.line is not None and self.code is not None:
            yield from self.code.window(self.line, max(1, min(_WINDOW, height // 3)))
        now = time.monotonic()
        code_seconds = int(now - self.code_since) if self.code_since is not None else 0
        if code_seconds and self.code is not None:
            name = one_line(self.code.message.format or "code")
            yield BlockPart(_one_row(Text.assemble((f"{spinner} ", "cyan"), name, (f" {code_seconds} s", "dim"))), True)
        for name, since in self.calls.values():
            seconds = int(now - since)
            duration = f" {seconds} s" if seconds else ""
            yield BlockPart(_one_row(Text.assemble((f"{spinner} ", "cyan"), name, (duration, "dim"))))
        silent = now - self._progress
        is_shown = len(waiting) or self.line is not None or bool(self.calls) or code_seconds
        if self.running and not is_shown and silent >= (_SILENCE if writing else 0):
            duration = f" {int(silent)} s" if silent >= 1 else ""
            yield BlockPart(_one_row(Text.assemble((f"{spinner} ", "cyan"), (f"Working{duration}", "dim"))))


def _one_row(text: Text) -> Text:
    """The text, cut off where the row ends."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _summary(waiting: WaitingMessage) -> str:
    """A message that waits for its turn, in a line: its name and the end of its text."""
    name = one_line(waiting.message.name or waiting.message.type)
    return f"{name} {one_line(''.join(text for text, _ in waiting.pieces[-_SUMMARY_PIECES:]))}"
