"""Prints what `ReadingOrder` decides: one message after the other, each under its label, with lines of its own between them.

Two of the styles of labels are texts of MemGPT's terminals. There a label could be missing or wrong where one kind of message
followed another: a call after reasoning had none, and an empty first piece brought the label of reasoning for
whatever followed. Here every message has its own label."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ..messages import AudioMessage, CodeMessage, ConsoleMessage, ImageMessage, Message, TextMessage, ToolCallMessage
from ..mimebundle import depth_of
from .characters import PrintableText, one_line, printable
from .turns import Action, ReadingOrder
from .wording import describe_content, shown_text, sources
from .writer import ConsoleWriter, TerminalWriter, Writable

__all__ = ["DATA_MESSAGES", "STYLES", "Label", "StreamPrinter", "Style", "memgpt", "memgpt_fancy", "plain"]


class Label(NamedTuple):
    """The label of one message, as a style returns it.

    Attributes:
        before: printed before the text, at the start of a line.
        after: printed after the text once the message is complete.
        colour: the SGR codes of the label and of the text, as `"1;32"` for bold green; used on terminals only, and not
            where `NO_COLOR` is set.
        patient: whether the label waits for the first text, so that an empty message has none. The style is then called
            again with that text.

    Example:
        def quiet(message: sk.Message, text: str, name: str) -> Label:
            return Label(f"{name or message.type}> ", patient=True)

        ConsolePrinter(style=quiet)
    """

    before: str
    after: str = ""
    colour: str = ""
    patient: bool = False


Style = Callable[[Message, str, str], Label]
"""A function that returns a message's label. Its arguments are the message, the text that will follow the label ("" while
there is none), and the name of the message, or of the call that it answers, or ""."""


def plain(message: Message, text: str, name: str) -> Label:
    """The kind of message in brackets; for a call its name, and its arguments in parentheses."""
    words = [] if message.role in ("assistant", "computer") else [message.role]
    words += [message.type, *filter(None, (message.format,))]
    if isinstance(message, ToolCallMessage):
        return Label(f"[{one_line(' '.join(words))}] {one_line(name)}(", ")")
    if name:
        words.append(name)
    own_lines = isinstance(message, (CodeMessage, ConsoleMessage))
    return Label(f"[{one_line(' '.join(words))}]{chr(10) if own_lines else ' '}")


def memgpt(message: Message, text: str, name: str) -> Label:
    """MemGPT's streaming terminal: `Inner thoughts: …` and `Calling function: name(arguments)`."""
    if message.type == "reasoning":
        return Label("Inner thoughts: ", patient=True)
    if isinstance(message, ToolCallMessage):
        return Label(f"Calling function: {one_line(name)}(", ")")
    return _memgpt_line(message, text, name)


def memgpt_fancy(message: Message, text: str, name: str) -> Label:
    """MemGPT's refreshing terminal: `💭 …` and `name(arguments)`."""
    if message.type == "reasoning":
        return Label("💭 ", colour="3;90", patient=True)
    if isinstance(message, ToolCallMessage):
        return Label(f"{one_line(name)}(", ")")
    return _memgpt_line(message, text, name)


def _memgpt_line(message: Message, text: str, name: str) -> Label:
    """The messages that MemGPT printed in complete lines."""
    match message.type, message.format, message.role:
        case "message", None, "user":
            return Label("🧑 ", colour="1;32", patient=True)
        case "message", None, "system":
            return Label("🖥️ [system] ", colour="1;35", patient=True)
        case "message", None, _:
            return Label("🤖 ", colour="1;33", patient=True)
        case "tool_output", _, _:
            icon = "🟢" if text.startswith("Success") else "🔴" if text.startswith("Error: ") else ""
            return Label(f"⚡{icon} [function] ", colour="1;31", patient=True)
        case _:
            return plain(message, text, name)


STYLES: dict[str, Style] = {"plain": plain, "memgpt": memgpt, "memgpt-fancy": memgpt_fancy}
"""The named styles of `ConsolePrinter`: `plain` (`[message] …`), `memgpt` and `memgpt-fancy` (MemGPT's terminals)."""


_INDENT = "    "  # of the messages of a sub-agent
DATA_MESSAGES = (ImageMessage, AudioMessage)  # base64, which is not printed; their size is


class StreamPrinter:
    """Prints one stream.

    Args:
        file: where to print; None is `sys.stdout`, looked up at each write.
        style: returns the messages' labels.
        pictures: a folder in which pictures are saved; None saves none.

    Attributes:
        turns: decides which message is printed.
    """

    def __init__(self, file: Writable | None, style: Style, pictures: str | os.PathLike[str] | None = None) -> None:
        self.turns = ReadingOrder()
        self._style = style
        self._pictures = pictures
        self._writer = TerminalWriter(file)
        self._label: Label | None = None  # of the current message, once it is printed
        self._open: Message | None = None  # the message whose line is not ended
        self._postponed: list[str] = []  # lines that wait until no message is open
        self._call_names: dict[str, str] = {}  # by call id
        self._text = PrintableText()
        self._console = ConsoleWriter(self._writer)

    def show(self, actions: Iterable[Action]) -> None:
        """Do what `turns` returned."""
        for action in actions:
            self._do(action)
        self._writer.flush()

    def print_line(self, line: str, about: Message | None = None) -> None:
        """Print a line of its own after everything that the stream has emitted before. It stands where the message stands that it is
        about."""
        self.show(self.turns.flush())
        self._put_line(line, about)

    def print_line_later(self, line: str) -> None:
        """Print a line of its own as soon as that interrupts no message."""
        self._postponed.append(line)
        if self._open is None:
            self._put_postponed()

    def end(self) -> None:
        """Print everything that waits, and end the last line."""
        self.show(self.turns.flush())
        self._put_postponed()
        self._writer.start_line()
        self._writer.flush()

    def _put_postponed(self) -> None:
        postponed, self._postponed = self._postponed, []
        for line in postponed:
            self._put_line(line)

    def _put_line(self, line: str, about: Message | None = None) -> None:
        self._indent(about)
        self._writer.write(line + "\n")
        self._writer.flush()

    def _indent(self, message: Message | None) -> None:
        """Begin a line. The messages of a sub-agent are indented."""
        self._writer.start_line()
        self._writer.indent = "" if message is None else _INDENT * depth_of(message)

    def _do(self, action: Action) -> None:
        message = action.message
        match action.kind:
            case "append":
                self._append(action)
            case "begin":
                self._open_message(message, "")
            case "resume":
                self._open_message(message, "…")
            case "replace":
                self._open_message(message, "replaced:")
                self._append(action)
            case "pause":
                self._close_text(message)
                self._put_postponed()
            case "end":
                self._end(message)
                self._put_postponed()

    def _open_message(self, message: Message, prefix: str) -> None:
        self._open, self._label = message, None
        self._indent(message)
        self._text = PrintableText()
        self._console = ConsoleWriter(self._writer)
        label = self._style(message, "", self._name_of(message))
        if prefix:
            self._put_label(Label(f"{prefix} {label.before}", *label[1:]))
        elif not label.patient:
            self._put_label(label)

    def _name_of(self, message: Message) -> str:
        """The message's name, or that of the call that it answers."""
        if isinstance(message, ToolCallMessage) and message.call_id:
            self._call_names[message.call_id] = message.name or ""
        return message.name or self._call_names.get(message.call_id or "", "")

    def _put_label(self, label: Label) -> None:
        self._label = label
        self._writer.start_line()
        self._writer.write(label.before, label.colour)

    def _append(self, action: Action) -> None:
        if not action.text:
            return
        if self._label is None:
            self._put_label(self._style(action.message, action.text, self._name_of(action.message)))
        if isinstance(action.message, ConsoleMessage):
            self._console.feed(action.text, action.stream)
        else:
            self._writer.write(self._text.feed(action.text), self._colour)

    @property
    def _colour(self) -> str:
        return self._label.colour if self._label is not None else ""

    def _close_text(self, message: Message) -> None:
        if self._open is message:
            self._console.finish()
            self._writer.write(self._text.finish(), self._colour)
            self._open = None

    def _end(self, message: Message) -> None:
        is_open = self._open is message
        if isinstance(message, DATA_MESSAGES):
            self._writer.write(describe_content(message, self._pictures))
        elif (text := shown_text(message)) is not None:
            self._writer.write(printable(text))
        elif message.type == "file" and not message.content and message.name:
            self._writer.write(one_line(message.name))
        self._close_text(message)
        if is_open and self._label is not None:
            self._writer.write(self._label.after, self._colour)
        for line in sources(message) if isinstance(message, TextMessage) else ():
            self._writer.start_line()
            self._writer.write(line)
