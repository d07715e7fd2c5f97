"""Reads the final form of an output item, with which it ends.

Deltas may have brought all of it, some of it or nothing: parts that are open end with their final content, the others
are created with it. It may come at the item's own end, and again at the response's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...answers import Confirmation
from ...events import ConfirmationCreated, Event, PossibleRepeat
from ...messages import ConsoleMessage, ImageMessage, Status, ToolCallMessage
from ..final_forms import ItemForm, content_key
from ..values import WireObject, as_list, as_object, as_objects, as_text, text_or_json, without_keys
from .item import Item
from .item_types import CALLS, CONTENT_PARTS, OUTPUT_KEYS, STATUSES
from .wire import are_content_parts, content_parts, read_part, warning

__all__ = ["append_console", "end_patch", "final_form", "finish_item", "hold_console"]

# Items that may have outputs besides their content.
_WITH_OUTPUT = frozenset((*CALLS, "code_interpreter_call", "image_generation_call", "shell_call_output")) - {
    "function_call",
    "custom_tool_call",
}
_OTHER_KIND = {"summary": "reasoning", "reasoning": "summary"}


def finish_item(item: Item, wire: WireObject, status: Status) -> list[Event]:
    """Return the end of an item, with its final form. `status` holds if it has none."""
    content = _content_of(as_text(wire.get("type")) or item.type, wire)
    call_id = as_text(wire.get("call_id"))
    events: list[Event] = []
    if item.is_done and item.call_id and call_id and call_id != item.call_id:
        fault = f"the call {item.call_id!r}, which is done, has the call_id {call_id!r} now; the first one counts"
        events.append(warning("other-call-id", fault, item.type))
    if item.is_done and item.content == content and item.type not in _WITH_OUTPUT:
        return events
    item.is_final, item.content = True, content
    item.learn(wire)
    if not item.has_begun and item.repeats(content):
        item.is_done = True
        return [*events, warning("repeated-item", f"a {item.type} that is done came again; it was dropped", item.type)]
    status = STATUSES.get(as_text(wire.get("status")), status)
    return [*events, *_READERS.get(item.type, _read_other)(item, wire, status), *item.close_all(status)]


def final_form(wire: WireObject) -> ItemForm:
    """Return the identity of an item in its final form."""
    type, id, call_id, name = (as_text(wire.get(key)) for key in ("type", "id", "call_id", "name"))
    return ItemForm(type, id, call_id, name, _content_of(type, wire))


def _content_of(type: str, wire: WireObject) -> int:
    """Return a number that is equal for equal contents: the arguments of a call, or the texts of any other item,
    wherever it has them."""
    if type in CALLS:
        return content_key(_arguments_of(type, wire))
    parts = [part for key in ("summary", "content") for part in content_parts(wire.get(key), "output_text")]
    texts = [as_text(part.get("text")) or as_text(part.get("refusal")) for part in parts]
    return content_key([*filter(None, texts), as_text(wire.get("code"))])


def _read_content(item: Item, wire: WireObject, status: Status) -> Sequence[Event]:
    value = wire.get("content")
    parts = content_parts(value, "output_text")
    events: list[Event] = [] if parts is value else [*_check_parts(item, wire, "content")]
    for index, part in _numbered_parts(item, parts, ("text", "refusal")):
        kind = CONTENT_PARTS.get(part.get("type", ""))
        if kind is not None:
            content, annotations, metadata = read_part(part)
            events += item.close(kind, index, content, status, annotations, metadata)
    return events


def _check_parts(item: Item, wire: WireObject, key: str) -> Iterator[Event]:
    """Yield the events of a warning about content parts that are malformed."""
    if not are_content_parts(wire.get(key)):
        yield warning(f"bad-{key}", f"its `{key}` is not a list of content parts; its text was read", item.type)


def _numbered_parts(
    item: Item, parts: Sequence[WireObject], kinds: tuple[str, ...]
) -> Iterable[tuple[int, WireObject]]:
    """Return the content parts of a list, by the indexes that their deltas had.

    If the deltas had a greater index than there are parts, the server did not count from 0: the parts then have the
    indexes of the deltas, in order.
    """
    count = len(parts)
    for kind, index in item.parts.by_part:
        if index >= count and kind in kinds:
            break
    else:
        return enumerate(parts)
    indexes = sorted({index for kind, index in item.parts.by_part if kind in kinds})
    further = enumerate(parts[len(indexes) :], indexes[-1] + 1 + len(indexes))
    return [*zip(indexes, parts, strict=False), *further]


def _read_reasoning(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    """Yield the events of summaries and texts. Encrypted reasoning belongs to the last part, or is a part if there is none."""
    streamed = {**item.parts.by_part}
    contents: dict[tuple[str, int], str | None] = dict.fromkeys(streamed, None)
    for key, kind in (("summary", "summary"), ("content", "reasoning")):
        yield from _check_parts(item, wire, key)
        for index, part in _numbered_parts(item, content_parts(wire.get(key), ""), (kind,)):
            if text := as_text(part.get("text")):
                contents[kind, index] = text
    encrypted = as_text(wire.get("encrypted_content"))
    if not contents:
        contents["redacted" if encrypted else "reasoning", 0] = None
    others: dict[tuple[str, int], str] = {}
    if streamed and not any(
        map(contents.get, streamed)
    ):  # some servers list as one kind what they streamed as the other
        others = {part: id for part in contents if (id := streamed.get((_OTHER_KIND.get(part[0], ""), part[1])))}
    last = [part for part in contents if part not in others][-1]
    for kind, index in contents:
        metadata = {"encrypted_content": encrypted} if encrypted and (kind, index) == last else {}
        done = item.close(kind, index, contents[kind, index], status, metadata=metadata)
        other = others.get((kind, index))
        yield from done if other is None else (PossibleRepeat(event.message, other) for event in done)


def _read_call(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    """Yield the events of a call, the question whether it may run, and its outputs, if the item has them."""
    yield from end_patch(item)
    arguments = _arguments_of(item.type, wire) or "".join(item.pending_arguments)
    id = item.parts.id_for("call", 0)
    is_question = item.type == "mcp_approval_request" and id not in item.done_ids
    yield from item.close("call", 0, arguments, status)
    if is_question:
        subject = item.message("call", 0, arguments, status=status)
        yield ConfirmationCreated(Confirmation(item.id, subject))
    error = wire.get("error")
    output = wire.get("output") if wire.get("results") is None else wire.get("results")
    if error is not None:
        text = as_text(as_object(error).get("message")) or text_or_json(error)
        yield from item.close("output", 0, text, status, metadata={"error": True})
    elif output is not None:
        yield from item.close("output", 0, text_or_json(output), status)


def end_patch(item: Item) -> Iterator[Event]:
    """Yield the end of the JSON text that a patch is streamed in."""
    if item.patch_is_open:
        item.patch_is_open = False
        yield ToolCallMessage.delta_event(item.parts.id_for("call", 0), '"}')


def _arguments_of(type: str, wire: WireObject) -> str:
    """Return the arguments as JSON text. A list is the value of its key, because arguments are an object."""
    for key in CALLS[type].argument_keys:
        value = wire.get(key)
        if type == "apply_patch_call" and "diff" in as_object(value):
            value = {
                **without_keys(as_object(value), "diff"),
                "diff": as_object(value)["diff"],
            }  # last, as it is streamed
        if value is not None and (text := text_or_json({key: value} if isinstance(value, (list, tuple)) else value)):
            return text
    return ""


def _read_program(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    yield from item.close("program", 0, as_text(wire.get("code")), status)


def _read_other(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    """Yield the events of an item that no reader needs the content of. A list of an MCP server's tools may be an error
    in their place."""
    if item.type:
        error = wire.get("error")
        yield from item.close("other", 0, None, status if error is None else "failed")


def _read_result(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    yield from item.close("result", 0, text_or_json(wire.get(OUTPUT_KEYS[item.type])), status)


def _read_code(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    """Yield the events of code, its console output and its images."""
    yield from item.close("code", 0, as_text(wire.get("code")), status)
    outputs = as_objects(wire.get("outputs"))
    logs = [logs for output in outputs if (logs := as_text(output.get("logs")))]
    if logs and ("logs", 0) not in item.parts.by_part:
        yield from item.open("logs")
        for text in logs:
            yield ConsoleMessage.delta_event(item.parts.id_for("logs", 0), text)
        yield from item.close("logs", 0, "".join(logs), status)
    urls = [url for output in outputs if (url := as_text(output.get("url")))]
    for index, url in enumerate(urls):
        yield from item.close("plot", index, url, status)


def _read_commands(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    for index, command in enumerate(as_list(as_object(wire.get("action")).get("commands"))):
        yield from item.close("command", index, as_text(command), status)


def _read_image(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    image = as_text(wire.get("result"))
    id = item.parts.id_for("image", 0)
    if image and item.has_preview and id not in item.done_ids:
        yield ImageMessage.delta_event(id, image, True)  # without it the engine would warn that the content differs
    yield from item.close("image", 0, image, status)


# -- consoles of shell commands


def _read_consoles(item: Item, wire: WireObject, status: Status) -> Iterator[Event]:
    """Yield the console output of the commands. If any of it was streamed, all of it was, and is only closed here."""
    was_streamed = bool(item.parts.by_part)
    for index, output in enumerate(as_objects(wire.get("output"))):
        if not was_streamed or ("console", index) in item.parts.by_part:
            yield from hold_console(item, index, [output])
            yield from item.close("console", index, None, status)


def hold_console(item: Item, index: int, outputs: Sequence[Any]) -> Iterator[Event]:
    """Hold the final form of one command's console. Its output is emitted here if it was not streamed."""
    if ("console", index) not in item.parts.by_part:
        yield from item.open("console", index)
        for output in outputs:
            yield from append_console(item, index, as_object(output))
    outcomes = [outcome for output in outputs if (outcome := as_object(as_object(output).get("outcome")))]
    metadata = {"outcome": dict(outcomes[-1])} if outcomes else {}
    item.hold("console", index, "", metadata=metadata)


def append_console(item: Item, index: int, output: WireObject) -> Iterator[Event]:
    """Emit the output of one command, of its two streams."""
    for stream in ("stdout", "stderr"):
        if text := as_text(output.get(stream)):
            yield from item.open("console", index)
            yield ConsoleMessage.delta_event(item.parts.id_for("console", index), text, False, {"stream": stream})


_READERS: dict[str, Callable[[Item, WireObject, Status], Iterable[Event]]] = {
    "message": _read_content,
    "reasoning": _read_reasoning,
    "code_interpreter_call": _read_code,
    "program": _read_program,
    "shell_call": _read_commands,
    "shell_call_output": _read_consoles,
    "image_generation_call": _read_image,
    **dict.fromkeys(CALLS, _read_call),
    **dict.fromkeys(OUTPUT_KEYS, _read_result),
}
