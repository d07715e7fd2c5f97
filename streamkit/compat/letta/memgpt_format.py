"""MemGPT's lines: what its terminal showed of each kind of message, as text and colour.

The rule: an icon tells the kind, and a line is there only if there is something to show. What MemGPT showed wrongly:

- `None` as the assistant's text, where it called anything but `send_message`; all calls of a message but the first;
- nothing of a warning without colours, and of memory that was appended to;
- arguments over several lines were not recognised;
- user messages that are JSON but no object, or an object without a `type`, ended the program.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from ...messages import Message, ReasoningMessage, TextMessage, ToolOutputMessage
from ...protocols import is_object
from ...renderers.characters import one_line, printable
from ...renderers.labels import memgpt_fancy
from .normalise import Call, as_chat_message, json_object

__all__ = ["Line", "function_lines", "kind_lines", "message_lines", "said_in", "simple_lines", "user_lines"]

_USER = "1;32"
_FUNCTION = "1;31"
_GREEN = "1;32"

# What a function of MemGPT's own does to the memory, and which of its arguments are shown.
_MEMORY: dict[str, tuple[str, tuple[str, ...]]] = {
    "archival_memory_insert": ("updating", ()),
    "core_memory_append": ("updating", ()),
    "core_memory_replace": ("updating", ()),
    "archival_memory_search": ("searching", ("query", "page")),
    "conversation_search": ("searching", ("query", "page")),
    "conversation_search_date": ("searching", ("start_date", "end_date", "page")),
}

_running = re.compile(r"Running (\w+)\((.*)\)", re.DOTALL).match


class Line(NamedTuple):
    """Something to print: its colour as SGR codes."""

    text: str
    colour: str = ""


def _labelled(message: Message) -> Line:
    text = message.content
    label = memgpt_fancy(message, text, message.name or "")
    return Line(label.before + printable(text) + label.after, label.colour)


# The kinds that are one line, whatever they say.
_KINDS: dict[str, Callable[[str], Line]] = {
    "important": lambda text: Line(printable(text), "1;35"),
    "warning": lambda text: Line(printable(text), "1;31"),
    "memory": lambda text: Line(f"🧠 {printable(text)}", "1;95"),
    "internal_monologue": lambda text: _labelled(ReasoningMessage(content=text)),
    "assistant": lambda text: _labelled(TextMessage(content=text)),
    "system": lambda text: _labelled(TextMessage(role="system", content=text)),
}


def kind_lines(kind: str, text: object) -> Iterator[Line]:
    """A message of a kind that is one line."""
    if text is not None:
        yield _KINDS[kind](str(text))


def user_lines(given: object, *, raw: bool = False, dump: bool = False, debug: bool = False) -> Iterator[Line]:
    """What the user said, or what the agent was told as its user: JSON with a `type`, where it is not `raw`. It is
    shown only where one of these is asked for, since the user knows what he typed."""
    if not (raw or dump or debug) or given is None:
        return
    known = given if is_object(given) else None if raw else json_object(str(given))
    if known is None:
        yield _user("🧑", given)
        return
    rest: dict[str, Any] = {key: value for key, value in known.items() if key != "type"}
    match known.get("type"):
        case "user_message":
            yield _user("🧑", known.get("message", rest) if dump else rest)
        case "heartbeat":
            if debug or dump:
                yield _user("💓", rest if debug else dict(known))
        case "system_message":
            yield _user("🖥️", rest)
        case _:
            yield _user("🧑", dict(known))


def _user(icon: str, told: object) -> Line:
    return Line(f"{icon} {printable(str(told))}", _USER)


def function_lines(given: object, *, debug: bool = False) -> Iterator[Line]:
    """What MemGPT says of functions: `Running name(arguments)`, `Ran …`, `Success…`, `Error: …`, or JSON with a
    `status`. Without `debug`, only what is done to the memory is shown."""
    text = "" if given is None else str(given)
    if is_object(given) or text.startswith(("Success", "Error: ")):
        icon = "" if is_object(given) else "🟢" if text.startswith("Success") else "🔴"
        if debug:
            yield _function(icon, text)
    elif text.startswith("Running "):
        yield from _running_lines(text, debug=debug)
    elif text and not text.startswith("Ran "):
        known = json_object(text)
        if known is None:
            kind = type(given).__name__
            yield Line(f"Warning: did not recognize function message <class '{kind}'> {printable(text)}")
        if debug:
            yield _function("", text, _GREEN if known is not None and known.get("status") == "OK" else _FUNCTION)


def _function(icon: str, text: str, colour: str = _FUNCTION) -> Line:
    if icon in ("🟢", "🔴"):
        label = memgpt_fancy(ToolOutputMessage(content=text), text, "")
        return Line(label.before + printable(text), label.colour)
    return Line(f"⚡{icon} [function] {printable(text)}", colour)


def _running_lines(text: str, *, debug: bool) -> Iterator[Line]:
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
        told = ", ".join(f"{key}: {one_line(str(arguments[key]))}" for key in shown if key in arguments)
        if told:
            yield Line(f"\t{told}", "31")
        return
    if (old := arguments.get("old_content")) is not None:
        yield Line(f"\t {printable(str(old))}", _FUNCTION)
    if (new := arguments.get("new_content", arguments.get("content"))) is not None:
        yield Line(f"\t→ {printable(str(new))}", _GREEN if old is not None else _FUNCTION)


def _arguments(text: str) -> Mapping[str, Any]:
    """Arguments as they were printed: a dict of Python's, or JSON."""
    known = json_object(text)
    if known is None:
        try:
            value: object = ast.literal_eval(text)  # constants alone: nothing is run
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return {}
        known = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return known


def said_in(call: Call) -> str | None:
    """What a call of `send_message` says; None for any other call."""
    if call.name != "send_message":
        return None
    known = json_object(call.arguments)
    said = None if known is None else known.get("message")
    return said if isinstance(said, str) else call.arguments or ""


def _call_lines(calls: list[Call], *, debug: bool) -> Iterator[Line]:
    for call in calls:
        if (said := said_in(call)) is not None:
            yield from kind_lines("assistant", said)
        else:
            known = json_object(call.arguments)
            arguments = call.arguments or "" if known is None else repr(known)
            yield from function_lines(f"Running {call.name or ''}({arguments})", debug=debug)


def message_lines(message: object, *, dump: bool = False) -> Iterator[Line]:
    """A message of a conversation. With `dump`, what the user said, too, and all that functions are told and gave."""
    given = as_chat_message(message)
    content = given["content"]
    match given["role"]:
        case "system":
            yield from kind_lines("system", content)
        case "assistant":
            if content:
                yield from kind_lines("internal_monologue", content)
            yield from _call_lines(given["tool_calls"], debug=dump)
        case "user":
            yield from user_lines(content, dump=dump)
        case "function" | "tool":
            yield from function_lines(_tool_text(content), debug=dump)
        case _:
            yield Line(f"Unknown role: {printable(str(content))}")


def _tool_text(content: str | None) -> str:
    """What a function gave. In conversations it stands without the `Success: ` that it was told with."""
    if not content or content.startswith(("Success", "Error: ", "Ran ", "Running ")) or json_object(content):
        return content or ""
    return f"Success: {content}"


def simple_lines(message: object) -> Iterator[Line]:
    """A message as one who only follows the talk wants it: what the assistant's content is counts as said."""
    given = as_chat_message(message)
    content = given["content"]
    match given["role"]:
        case "system":
            yield from kind_lines("system", content)
        case "assistant":
            if content:
                yield from kind_lines("assistant", content)
            for call in given["tool_calls"]:
                yield from kind_lines("assistant", said_in(call))
        case "user":
            yield from user_lines(content, raw=True)
        case "function" | "tool":
            pass
        case _:
            yield Line(f"Unknown role: {printable(str(content))}")
