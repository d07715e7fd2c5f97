"""The lines of MemGPT's terminal for each kind of message, as text and colour.

The rule: an icon marks the kind of message, and a message with nothing to show has no line. MemGPT itself had faults
that are not repeated here:

- it printed `None` for an assistant's message without `send_message`, and only the first call of a message;
- it printed no warning on a terminal without colours, and nothing for memory that was appended to;
- it did not recognise arguments of more than one line;
- a user message that was JSON but no object, or an object without a `type`, ended the program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...messages import Message, ReasoningMessage, TextMessage, ToolOutputMessage
from ...protocols import is_object
from ...renderers.characters import one_line, printable
from ...renderers.printing import memgpt_fancy
from .normalise import FunctionCall, as_chat_message, json_object

__all__ = [
    "FormattedLine",
    "function_lines",
    "kind_lines",
    "message_lines",
    "sent_text_of",
    "simple_lines",
    "user_lines",
]

_USER = "1;32"
_FUNCTION = "1;31"
_GREEN = "1;32"

# What MemGPT's own functions do to the memory, and which of their arguments are shown.
_MEMORY: dict[str, tuple[str, tuple[str, ...]]] = {
    "archival_memory_insert": ("updating", ()),
    "core_memory_append": ("updating", ()),
    "core_memory_replace": ("updating", ()),
    "archival_memory_search": ("searching", ("query", "page")),
    "conversation_search": ("searching", ("query", "page")),
    "conversation_search_date": ("searching", ("start_date", "end_date", "page")),
}

_running = re.compile(r"Running (\w+)\((.*)\)", re.DOTALL).match


class FormattedLine(NamedTuple):
    """A line to print. `colour` is its SGR codes; empty for none."""

    text: str
    colour: str = ""


def _labelled(message: Message) -> FormattedLine:
    text = message.content
    label = memgpt_fancy(message, text, message.name or "")
    return FormattedLine(label.before + printable(text) + label.after, label.colour)


# The kinds of messages that are always one line.
_KINDS: dict[str, Callable[[str], FormattedLine]] = {
    "important": lambda text: FormattedLine(printable(text), "1;35"),
    "warning": lambda text: FormattedLine(printable(text), "1;31"),
    "memory": lambda text: FormattedLine(f"🧠 {printable(text)}", "1;95"),
    "internal_monologue": lambda text: _labelled(ReasoningMessage(content=text)),
    "assistant": lambda text: _labelled(TextMessage(content=text)),
    "system": lambda text: _labelled(TextMessage(role="system", content=text)),
}


def kind_lines(kind: str, text: object) -> Iterator[FormattedLine]:
    """Yield the line of a message of one of the kinds in `_KINDS`; none for None."""
    if text is not None:
        yield _KINDS[kind](str(text))


def user_lines(
    message: object, *, raw: bool = False, dump: bool = False, debug: bool = False
) -> Iterator[FormattedLine]:
    """Yield the lines of a user's message: text if it is `raw`, otherwise MemGPT's JSON with a `type`.

    Without any of the options there are none, because the user has seen what they typed.
    """
    if not (raw or dump or debug) or message is None:
        return
    fields = message if is_object(message) else None if raw else json_object(str(message))
    if fields is None:
        yield _user("🧑", message)
        return
    rest: dict[str, Any] = {key: value for key, value in fields.items() if key != "type"}
    match fields.get("type"):
        case "user_message":
            yield _user("🧑", fields.get("message", rest) if dump else rest)
        case "heartbeat":
            if debug or dump:
                yield _user("💓", rest if debug else dict(fields))
        case "system_message":
            yield _user("🖥️", rest)
        case _:
            yield _user("🧑", dict(fields))


def _user(icon: str, content: object) -> FormattedLine:
    return FormattedLine(f"{icon} {printable(str(content))}", _USER)


def function_lines(message: object, *, debug: bool = False) -> Iterator[FormattedLine]:
    """Yield the lines of a function message: `Running name(arguments)`, `Ran …`, `Success…`, `Error: …`, or JSON with a
    `status`. Without `debug`, only calls of MemGPT's memory functions are shown."""
    text = "" if message is None else str(message)
    if is_object(message) or text.startswith(("Success", "Error: ")):
        icon = "" if is_object(message) else "🟢" if text.startswith("Success") else "🔴"
        if debug:
            yield _function(icon, text)
    elif text.startswith("Running "):
        yield from _running_lines(text, debug=debug)
    elif text and not text.startswith("Ran "):
        fields = json_object(text)
        if fields is None:
            kind = type(message).__name__
            yield FormattedLine(f"Warning: did not recognize function message <class '{kind}'> {printable(text)}")
        if debug:
            yield _function("", text, _GREEN if fields is not None and fields.get("status") == "OK" else _FUNCTION)


def _function(icon: str, text: str, colour: str = _FUNCTION) -> FormattedLine:
    if icon in ("🟢", "🔴"):
        label = memgpt_fancy(ToolOutputMessage(content=text), text, "")
        return FormattedLine(label.before + printable(text), label.colour)
    return FormattedLine(f"⚡{icon} [function] {printable(text)}", colour)


def _running_lines(text: str, *, debug: bool) -> Iterator[FormattedLine]:
    found = _running(text)
    name = found[1] if found else ""
    if debug or name not in _MEMORY:
        if debug:
            yield _function("", text)
        return
    what, shown = _MEMORY[name]
    yield _function("🧠", f"{what} memory with {name}")
    arguments = _arguments(found[2] if found else "")
    if shown:
        line = ", ".join(f"{key}: {one_line(str(arguments[key]))}" for key in shown if key in arguments)
        if line:
            yield FormattedLine(f"\t{line}", "31")
        return
    if (old := arguments.get("old_content")) is not None:
        yield FormattedLine(f"\t {printable(str(old))}", _FUNCTION)
    if (new := arguments.get("new_content", arguments.get("content"))) is not None:
        yield FormattedLine(f"\t→ {printable(str(new))}", _GREEN if old is not None else _FUNCTION)


def _arguments(text: str) -> Mapping[str, Any]:
    """Arguments that were printed as a Python dict or as JSON; empty if they are neither."""
    if (fields := json_object(text)) is not None:
        return fields
    try:
        value = ast.literal_eval(text)  # reads constants and runs nothing
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {}
    return value if is_object(value) else {}


def sent_text_of(call: FunctionCall) -> str | None:
    """Return the text that a call of `send_message` sends to the user; None for any other call."""
    if call.name != "send_message":
        return None
    arguments = json_object(call.arguments)
    text = None if arguments is None else arguments.get("message")
    return text if isinstance(text, str) else call.arguments or ""


def _call_lines(calls: list[FunctionCall], *, debug: bool) -> Iterator[FormattedLine]:
    for call in calls:
        if (text := sent_text_of(call)) is not None:
            yield from kind_lines("assistant", text)
        else:
            values = json_object(call.arguments)
            arguments = call.arguments or "" if values is None else repr(values)
            yield from function_lines(f"Running {call.name or ''}({arguments})", debug=debug)


def message_lines(message: object, *, dump: bool = False) -> Iterator[FormattedLine]:
    """Yield the lines of a message of a conversation. `dump` adds user messages, and all function calls and results."""
    fields = as_chat_message(message)
    content = fields["content"]
    match fields["role"]:
        case "system":
            yield from kind_lines("system", content)
        case "assistant":
            if content:
                yield from kind_lines("internal_monologue", content)
            yield from _call_lines(fields["tool_calls"], debug=dump)
        case "user":
            yield from user_lines(content, dump=dump)
        case "function" | "tool":
            yield from function_lines(_tool_text(content), debug=dump)
        case _:
            yield FormattedLine(f"Unknown role: {printable(str(content))}")


def _tool_text(content: str | None) -> str:
    """Return a function's result as a function message. In conversations it has lost its `Success: `."""
    if not content or content.startswith(("Success", "Error: ", "Ran ", "Running ")) or json_object(content):
        return content or ""
    return f"Success: {content}"


def simple_lines(message: object) -> Iterator[FormattedLine]:
    """Yield the lines of a message for someone who follows only the talk; assistant content is shown as sent text."""
    fields = as_chat_message(message)
    content = fields["content"]
    match fields["role"]:
        case "system":
            yield from kind_lines("system", content)
        case "assistant":
            if content:
                yield from kind_lines("assistant", content)
            for call in fields["tool_calls"]:
                yield from kind_lines("assistant", sent_text_of(call))
        case "user":
            yield from user_lines(content, raw=True)
        case "function" | "tool":
            pass
        case _:
            yield FormattedLine(f"Unknown role: {printable(str(content))}")
