"""How each kind of message looks on a live display: settled parts, which are printed once, and the part that may change.

A part is settled when nothing that follows can change it. The rule: a block returns each settled part once and forgets
it, so what it holds does not grow with the message.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ..messages import (
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .block import Block, BlockPart, Look, Marked
from .characters import ConsoleText, PrintableText, one_line
from .code import CallBlock, CodeBlock
from .markdown import IncrementalMarkdown
from .prose import Prose
from .wording import shown_text

__all__ = ["make_block"]


class ProseBlock(Block):
    """Text as Markdown; settled paragraph by paragraph."""

    mark = ""
    style = "none"

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = PrintableText()
        self._markdown = IncrementalMarkdown()

    def append(self, text: str, stream: str) -> None:
        """Take a piece."""
        self._markdown.feed(self._text.feed(text))

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The blocks of Markdown that are complete."""
        if final:
            self._markdown.feed(self._text.finish())
        for block in self._markdown.take_settled(final=final):
            yield BlockPart(self._render(block.tokens), block.joins)

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The last block of Markdown."""
        if tokens := self._markdown.tail(width, rows):
            yield BlockPart(self._render(tokens), self._markdown.joins)

    def _render(self, tokens: Any) -> RenderableType:
        prose = Prose.of(tokens, self.look.code_theme, self.style)
        return Marked(prose, self.mark, style="dim", all_along=True) if self.mark else prose


class ReasoningBlock(ProseBlock):
    """Reasoning: dim Markdown behind a line."""

    mark = "┊ "
    style = "dim italic"


class LinesBlock(Block):
    """Plain text behind a mark; settled line by line.

    Args:
        mark: stands before the first line.
        label: stands before the text.
        style: of the mark and the label.
        base: of the text.

    Attributes:
        limit: how many lines are shown; None shows all.
        longest: after how many characters the beginning of a line is settled.
        joins: whether the first part follows the block before it without a blank line.
    """

    limit: int | None = None
    longest = 4096
    joins = False

    def __init__(
        self, message: Message, look: Look, mark: str = "", label: str = "", style: str = "dim", base: str = ""
    ) -> None:
        super().__init__(message, look)
        self._mark, self._label, self._style, self._base = mark, label, style, base
        self._text = PrintableText()
        self._line = ""  # the last line, or the rest of it
        self._lines: list[str] = []  # settled; each with its line end, unless it was cut
        self._begun = False
        self._shown = self._left_out = 0

    def append(self, text: str, stream: str) -> None:
        """Take a piece."""
        *lines, self._line = (self._line + self._text.feed(text)).split("\n")
        for line in lines:
            self._lines.append(self._settle_beginning(line) + "\n")
        self._line = self._settle_beginning(self._line)

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The complete lines, within the limit; in the end also how many more there are."""
        if final:
            self.append(self._text.finish(), "")
            self._lines += [self._line] if self._line or not (self._begun or self._lines) else []
            self._line = ""
        lines, self._lines = self._lines, []
        if self.limit is not None:
            shown = lines[: max(0, self.limit - self._shown)]
            self._left_out += len(lines) - len(shown)
            lines = shown
        if lines:
            self._shown += len(lines)
            yield self._part("".join(lines).removesuffix("\n"))
            self._begun = True
        if final and self._left_out:
            more = f"… {self._left_out:,} more line{'s' if self._left_out > 1 else ''}"
            yield BlockPart(Marked(Text(more, "dim"), " " * len(self._mark)), True)

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The line that is not complete."""
        if (self._line or not self._begun) and (self.limit is None or self._shown < self.limit):
            yield self._part(self._line[-width * rows :])

    def _settle_beginning(self, line: str) -> str:
        """Settle the beginning of an overlong line; returns the rest."""
        while len(line) > self.longest:
            self._lines.append(line[: self.longest])
            line = line[self.longest :]
        return line

    def _part(self, text: str) -> BlockPart:
        content = Text(text, self._base)
        if self._begun:
            return BlockPart(Marked(content, " " * len(self._mark)), True)
        label = Text(self._label, self._style)
        return BlockPart(Marked(label.append_text(content), self._mark, style=self._style), self.joins)


class OutputBlock(LinesBlock):
    """A tool's output: its first lines, below the call.

    Args:
        after: the message that was shown before it.
        name: the tool's name, if it has to be shown.
    """

    longest = 400

    def __init__(self, message: Message, look: Look, after: Message | None, name: str | None) -> None:
        label = f"{one_line(name)}: " if name else ""
        style = ("red", "red") if message.status == "failed" else ("dim", "")
        super().__init__(message, look, "└ ", label, *style)
        self.limit = look.output_lines
        self.joins = isinstance(after, (ToolCallMessage, ToolOutputMessage))


class ConsoleBlock(Block):
    """Console output of a program; settled line by line, stderr in red and behind another mark."""

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = ConsoleText()
        self._lines: list[tuple[str, bool]] = []  # each with whether it is of stderr
        self._begun = False
        self._is_stderr = False

    def append(self, text: str, stream: str) -> None:
        """Take a piece of output of `stdout` or `stderr`."""
        self._is_stderr = stream == "stderr"
        self._lines += [(line, self._is_stderr) for line in self._text.feed(text)]

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The complete lines."""
        if final and (line := self._text.finish()):
            self._lines.append((line, self._is_stderr))
        lines, self._lines = self._lines, []
        for is_stderr, group in groupby(lines, itemgetter(1)):
            yield self._part([line for line, _ in group], is_stderr)
            self._begun = True

    def tail(self, width: int, rows: int) -> Iterator[BlockPart]:
        """The line that is not complete."""
        if self._text.line:
            yield self._part([self._text.line[-width * rows :]], self._is_stderr)

    def _part(self, lines: list[str], is_stderr: bool) -> BlockPart:
        text = Text("\n".join(lines), "red" if is_stderr else "")
        mark, style = ("! ", "red") if is_stderr else ("│ ", "dim")
        return BlockPart(Marked(text, mark, style=style, all_along=True), self._begun)


class LineBlock(Block):
    """An image, audio or a file: one line, once the message is complete."""

    _content = ""

    def append(self, text: str, stream: str) -> None:
        """Take the line's content."""
        self._content = text

    def take_settled(self, *, final: bool) -> Iterator[BlockPart]:
        """The line."""
        if final:
            message = self.message
            kind = f"{message.type} ({message.format})" if message.format else message.type
            content = " ".join(filter(None, (message.name, self._content)))
            yield BlockPart(Marked(Text(one_line(f"{kind}: {content}")), "▣ ", style="cyan"))


def make_block(message: Message, look: Look, *, after: Message | None, name: str | None) -> Block:
    """The block that shows a message.

    Args:
        message: the message.
        look: how the display looks.
        after: the message that was shown before it.
        name: the name of the call that it answers, unless that call stands right above.
    """
    match message:
        case TextMessage() if message.role == "assistant":
            return ProseBlock(message, look)
        case ReasoningMessage():
            return ReasoningBlock(message, look)
        case RefusalMessage():
            return LinesBlock(message, look, "✗ ", "", "red", "red")
        case CodeMessage():
            return CodeBlock(message, look)
        case ConsoleMessage():
            return ConsoleBlock(message, look)
        case ToolCallMessage():
            return CallBlock(message, look, joins=isinstance(after, ToolCallMessage))
        case ToolOutputMessage():
            return OutputBlock(message, look, after, name)
        case ImageMessage() | FileMessage() | AudioMessage():
            return LineBlock(message, look)
        case _ if shown_text(message) is not None:
            return LinesBlock(message, look, "▣ ", f"{one_line(message.format or message.type)}: ", "cyan")
        case _:
            return LinesBlock(message, look, label=f"{_label(message)}: ")


def _label(message: Message) -> str:
    """The role, type and format of a message, as far as they are not the usual ones."""
    words = [] if message.role == "assistant" else [message.role]
    words += [] if message.type == "message" else [message.type]
    return one_line(" ".join([*words, *filter(None, (message.format,))])) or "message"
