"""What stands before and after a message's text where it is printed, by style.

MemGPT had three terminal texts; two are styles here. Where its streams changed from one kind of message to another,
its labels were wrong; here every message has its own:

- the label came before the first message alone: a call after thoughts, and thoughts after a call, had none;
- an empty first piece brought the label of thoughts, and what followed stood under it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..messages import CodeMessage, ConsoleMessage, Message, ToolCallMessage
from .characters import one_line

__all__ = ["STYLES", "Label", "Style", "plain"]


class Label(NamedTuple):
    """`before` and `after` stand around the text; `colour` is the SGR codes of both and of the text, for terminals.

    A `patient` label waits for the text that it stands before: an empty message has none.
    """

    before: str
    after: str = ""
    colour: str = ""
    patient: bool = False


Style = Callable[[Message, str, str], Label]
"""What gives a message's label. Its further arguments are the text that the label will stand before, as far as it is
known, and the name of the message, or of the call that it answers."""


def plain(message: Message, text: str, name: str) -> Label:
    """The kind of message in brackets; `name(` and `)` around a call's arguments."""
    told = [] if message.role in ("assistant", "computer") else [message.role]
    told += [message.type, *filter(None, (message.format,))]
    if isinstance(message, ToolCallMessage):
        return Label(f"[{one_line(' '.join(told))}] {one_line(name)}(", ")")
    if name:
        told.append(name)
    block = isinstance(message, (CodeMessage, ConsoleMessage))
    return Label(f"[{one_line(' '.join(told))}]{chr(10) if block else ' '}")


def memgpt(message: Message, text: str, name: str) -> Label:
    """MemGPT's text that prints along: `Inner thoughts: …` and `Calling function: name(arguments)`."""
    if message.type == "reasoning":
        return Label("Inner thoughts: ", patient=True)
    if isinstance(message, ToolCallMessage):
        return Label(f"Calling function: {one_line(name)}(", ")")
    return _memgpt_line(message, text, name)


def memgpt_fancy(message: Message, text: str, name: str) -> Label:
    """The text of MemGPT's refreshing terminal: `💭 …` and `name(arguments)`."""
    if message.type == "reasoning":
        return Label("💭 ", colour="3;90", patient=True)
    if isinstance(message, ToolCallMessage):
        return Label(f"{one_line(name)}(", ")")
    return _memgpt_line(message, text, name)


def _memgpt_line(message: Message, text: str, name: str) -> Label:
    """What MemGPT printed in whole lines."""
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
"""The styles that have a name."""
