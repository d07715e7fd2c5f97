"""The labels around the messages that `ConsolePrinter` prints, by style.

Two of the styles are texts of MemGPT's terminals. There a label could be missing or wrong where one kind of message
followed another: a call after reasoning had none, and an empty first piece brought the label of reasoning for
whatever followed. Here every message has its own label.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage
from .characters import one_line

__all__ = ["STYLES", "Label", "Style", "memgpt", "memgpt_fancy", "plain"]


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
