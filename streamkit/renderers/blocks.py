"""What each kind of message looks like: the part that is settled, to print once, and the part that still changes.

The rule: a block gives every part of itself once. What it keeps is what is not settled.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style
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
from .characters import ConsoleText, PrintableText, one_line
from .markdown import MarkdownPieces
from .prose import Code, Prose

__all__ = ["Block", "Look", "Part", "block_of"]


class Look(NamedTuple):
    """How things are shown."""

    code_theme: str = "ansi_dark"
    output_lines: int | None = 20


class Part(NamedTuple):
    """Something to print. One that `joins` comes without a blank line before it."""

    renderable: RenderableType
    joins: bool = False


class Marked:
    """A renderable behind a mark, on its first line or, `all_along`, on all of them. Nothing of it is cut off."""

    def __init__(
        self, renderable: RenderableType, mark: str, *, style: str = "", base: str = "", all_along: bool = False
    ) -> None:
        self._renderable, self._mark, self._all_along = renderable, mark, all_along
        self._style, self._base = Style.parse(style), Style.parse(base) if base else None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.max_width > 2 * len(self._mark)  # else the text needs all there is
        width = options.max_width - (len(self._mark) if wide else 0)
        lines = console.render_lines(self._renderable, options.update(width=width), style=self._base, pad=False)
        for number, line in enumerate(lines):
            if wide and self._mark:
                yield Segment(self._mark if self._all_along or not number else " " * len(self._mark), self._style)
            yield from line
            yield Segment("\n")


class Block:
    """A message as it is shown, in one turn. This one shows nothing.

    Attributes:
        resumed: whether the message had a turn before this one.
        ended: whether its end has come, once nothing follows in this turn.
    """

    resumed = False
    ended = False

    def __init__(self, message: Message, look: Look) -> None:
        self.message = message
        self.look = look

    def add(self, text: str, mark: str) -> None:
        """Take in a piece."""

    def settled(self, *, final: bool) -> Iterator[Part]:
        """The parts that were settled since it was asked last; all, if nothing follows."""
        yield from ()

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        """What is not settled yet, as it would be now; of a long one the last `rows` lines are enough."""
        yield from ()


class ProseBlock(Block):
    """Text as Markdown, paragraph by paragraph."""

    mark = ""
    style = "none"

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = PrintableText()
        self._pieces = MarkdownPieces()

    def add(self, text: str, mark: str) -> None:
        self._pieces.feed(self._text.feed(text))

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final:
            self._pieces.feed(self._text.finish())
        for block in self._pieces.settled(final=final):
            yield Part(self._shown(block.tokens), block.joins)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        if tokens := self._pieces.tail(width, rows):
            yield Part(self._shown(tokens), self._pieces.joins)

    def _shown(self, tokens: Any) -> RenderableType:
        prose = Prose.of(tokens, self.look.code_theme, self.style)
        return Marked(prose, self.mark, style="dim", all_along=True) if self.mark else prose


class ReasoningBlock(ProseBlock):
    """Thoughts: dim, behind a line."""

    mark = "┊ "
    style = "dim italic"


class LinesBlock(Block):
    """Text that is not Markdown, line by line, behind a mark.

    Attributes:
        limit: how many lines are shown; None for all.
        longest: characters of a line that are settled before its end has come.
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
        self._line = ""
        self._lines: list[str] = []  # each with its end, where that has come
        self._begun = False
        self._shown = self._left_out = 0

    def add(self, text: str, mark: str) -> None:
        *lines, self._line = (self._line + self._text.feed(text)).split("\n")
        for line in lines:
            self._lines.append(self._cut(line) + "\n")
        self._line = self._cut(self._line)

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final:
            self.add(self._text.finish(), "")
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
            yield Part(Marked(Text(more, "dim"), " " * len(self._mark)), True)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        if (self._line or not self._begun) and (self.limit is None or self._shown < self.limit):
            yield self._part(self._line[-width * rows :])

    def _cut(self, line: str) -> str:
        """The rest of a line whose first parts were settled."""
        while len(line) > self.longest:
            self._lines.append(line[: self.longest])
            line = line[self.longest :]
        return line

    def _part(self, text: str) -> Part:
        shown = Text(text, self._base)
        if self._begun:
            return Part(Marked(shown, " " * len(self._mark)), True)
        label = Text(self._label, self._style)
        return Part(Marked(label.append_text(shown), self._mark, style=self._style), self.joins)


class OutputBlock(LinesBlock):
    """What a tool gave: its first lines."""

    longest = 400

    def __init__(self, message: Message, look: Look, after: Message | None, name: str | None) -> None:
        label = f"{one_line(name)}: " if name else ""
        style = ("red", "red") if message.status == "failed" else ("dim", "")
        super().__init__(message, look, "└ ", label, *style)
        self.limit = look.output_lines
        self.joins = isinstance(after, (ToolCallMessage, ToolOutputMessage))


class ConsoleBlock(Block):
    """What a program prints: whole lines at once, errors in red."""

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = ConsoleText()
        self._lines: list[tuple[str, bool]] = []
        self._begun = False
        self._failing = False

    def add(self, text: str, mark: str) -> None:
        self._failing = mark == "stderr"
        self._lines += [(line, self._failing) for line in self._text.feed(text)]

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final and (line := self._text.finish()):
            self._lines.append((line, self._failing))
        lines, self._lines = self._lines, []
        if lines:
            yield self._part(lines)
            self._begun = True

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        if self._text.line:
            yield self._part([(self._text.line[-width * rows :], self._failing)])

    def _part(self, lines: list[tuple[str, bool]]) -> Part:
        text = Text("\n").join(Text(line, "red" if failing else "") for line, failing in lines)
        return Part(Marked(text, "│ ", style="dim", all_along=True), self._begun)


class CodeBlock(Block):
    """Code, whole when it is complete, with its lines' numbers."""

    def __init__(self, message: Message, look: Look) -> None:
        super().__init__(message, look)
        self._text = PrintableText()
        self._pieces: list[str] = []

    @property
    def source(self) -> str:
        self._pieces[:] = ["".join(self._pieces)]
        return self._pieces[0]

    def add(self, text: str, mark: str) -> None:
        self._pieces.append(self._text.feed(text))

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final and (source := self.source.strip("\n")):
            yield Part(self._title())
            yield Part(Code(source, self._language, self.look.code_theme, numbers=True), True)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        lines = self.source.lstrip("\n").split("\n")
        first = max(0, len(lines) - rows)
        yield Part(self._title())
        shown = "\n".join(line[-width * rows :] for line in lines[first:])
        yield Part(Code(shown, self._language, self.look.code_theme, numbers=True, first=first + 1), True)

    def window(self, line: int, rows: int) -> Iterator[Part]:
        """The lines around the one that runs."""
        skipped = len(self.source) - len(self.source.lstrip("\n"))
        lines = self.source.strip("\n").split("\n")
        line = max(1, min(line - skipped, len(lines)))
        first = max(1, min(line - rows // 2, len(lines) - rows + 1))
        shown = "\n".join(one[:400] for one in lines[first - 1 : first - 1 + rows])
        theme = self.look.code_theme
        yield Part(Code(shown, self._language, theme, numbers=True, active=line, first=first), True)

    @property
    def _language(self) -> str:
        return self.message.format or "text"

    def _title(self) -> RenderableType:
        return Text(f"── {one_line(self._language)}", "dim")


class CallBlock(Block):
    """A tool call: `name(arguments)`."""

    def __init__(self, message: Message, look: Look, *, joins: bool) -> None:
        super().__init__(message, look)
        self._text = PrintableText()
        self._pieces: list[str] = []
        self._joins = joins

    def add(self, text: str, mark: str) -> None:
        self._pieces.append(self._text.feed(text))

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final:
            yield Part(self._shown("".join(self._pieces), ")" if self.ended else " …"), self._joins)

    def tail(self, width: int, rows: int) -> Iterator[Part]:
        self._pieces[:] = ["".join(self._pieces)]
        text, longest = self._pieces[0], width * rows
        yield Part(self._shown(text if len(text) <= longest else "…" + text[-longest:], ""), self._joins)

    def _shown(self, arguments: str, end: str) -> RenderableType:
        name = one_line(self.message.name or self.message.type)
        opening = "(… " if self.resumed else "("
        return Marked(Text.assemble((name, "bold"), opening, arguments, end), "● ", style="cyan")


class LineBlock(Block):
    """An image, a file or a sound: one line, once it is there."""

    def settled(self, *, final: bool) -> Iterator[Part]:
        if final:
            message = self.message
            what = f"{message.type} ({message.format})" if message.format else message.type
            where = " ".join(filter(None, (message.name, self._where)))
            yield Part(Marked(Text(one_line(f"{what}: {where}")), "▣ ", style="cyan"))

    _where = ""

    def add(self, text: str, mark: str) -> None:
        self._where = text


def block_of(message: Message, look: Look, *, after: Message | None, name: str | None) -> Block:
    """The block of a message. `after` is the message shown before it, `name` that of the call that it answers, where
    that is not plain to see."""
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
        case _:
            return LinesBlock(message, look, label=f"{_label(message)}: ")


def _label(message: Message) -> str:
    told = [] if message.role == "assistant" else [message.role]
    told += [] if message.type == "message" else [message.type]
    return one_line(" ".join([*told, *filter(None, (message.format,))])) or "message"
