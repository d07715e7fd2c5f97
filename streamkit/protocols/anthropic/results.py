"""The content blocks that come complete: the results of tools that the provider ran, redacted thinking, files and others.

A result may become several messages beside the one of its call. Their ids are made from the call's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ... import messages as m
from ...events import Event, MessageCreated, MessageDone
from ..values import (
    WireObject,
    as_list,
    as_object,
    as_objects,
    as_text,
    json_text,
    without_keys,
)
from .blocks import ToolCallBlock
from .wire import CODE_TOOLS

__all__ = ["TEXTLESS_BLOCKS", "complete_block_events"]

TEXTLESS_BLOCKS = ("fallback", "mcp_tool_listing")
"""Blocks without any text, which become messages of their own type so that they can be sent back."""


def complete_block_events(
    wire: WireObject, type: str, id: str, fields: dict[str, Any], calls: Mapping[str, ToolCallBlock]
) -> Iterable[Event] | None:
    """Return the events of a block that comes complete, None if its type is unknown.

    Args:
        wire: the block.
        type: its type.
        id: the id of its message.
        fields: the fields of its message that say where it stands.
        calls: the calls so far, by their ids.
    """
    match type:
        case "redacted_thinking":
            metadata = without_keys(wire, "type")
            return [MessageDone(m.ReasoningMessage(id, format="redacted", metadata=metadata, **fields))]
        case "container_upload":
            file_id, metadata = as_text(wire.get("file_id")), {"block_type": type}
            return [MessageDone(m.FileMessage(id, format="file_id", content=file_id, metadata=metadata, **fields))]
        case _ if type in TEXTLESS_BLOCKS:
            return [MessageDone(m.Message(id, type=type, metadata=without_keys(wire, "type"), **fields))]
        case _ if type.endswith("_tool_result") and as_text(wire.get("tool_use_id")):
            return _result_events(wire, type, fields, calls)
        case _:
            return None


def _result_events(
    wire: WireObject, type: str, place: dict[str, Any], calls: Mapping[str, ToolCallBlock]
) -> Iterator[Event]:
    """Yield the events of what a tool returned that the provider ran."""
    call_id = as_text(wire.get("tool_use_id"))
    tool = type.removesuffix("_tool_result")
    metadata = {"block_type": type, **without_keys(wire, "type", "tool_use_id", "content", "is_error")}
    call = calls.get(call_id)
    name = (call.name if call is not None else "") or (None if tool == "mcp" else tool)
    fields: dict[str, Any] = {**place, "call_id": call_id, "name": name}
    content = wire.get("content")
    if tool in CODE_TOOLS and as_object(content):
        yield from _console_events(as_object(content), fields, metadata)
        return
    result = _read_result(content)
    if result.rest is not None:
        metadata["result"] = result.rest
    if result.has_failed or wire.get("is_error") is True:
        metadata["error"] = True
    status: m.Status = "failed" if result.has_failed else "completed"
    yield MessageDone(
        m.ToolOutputMessage(f"{call_id}.output", content=result.text, metadata=metadata, status=status, **fields)
    )


class _Result(msgspec.Struct, frozen=True):
    """The content of a result: its text, what it has beside the text, and whether it is an error.

    `rest` is what `block_writer.result_block` needs to restore the content: None where the text is the content's JSON,
    `{"text": True}` where the content is the text alone, `{"parts": sizes}` where it is a list of text parts.
    """

    text: str
    rest: Any = None
    has_failed: bool = False


def _read_result(content: Any) -> _Result:
    if isinstance(content, str):
        return _Result(content, {"text": True})
    wire = as_object(content)
    if failure := _failure(wire):
        return _Result(failure, content, has_failed=True)
    if isinstance(found := wire.get("text"), str):
        return _Result(found, without_keys(wire, "text"))
    parts = as_objects(content)
    if parts and all(part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts):
        return _Result("".join(part["text"] for part in parts), {"parts": [len(part["text"]) for part in parts]})
    return _Result(json_text(content))


def _failure(content: WireObject) -> str:
    """Return the text of an error, "" if the content is not an error."""
    if not as_text(content.get("type")).endswith("_error"):
        return ""
    return as_text(content.get("error_message")) or as_text(content.get("error_code")) or as_text(content.get("type"))


def _console_events(content: WireObject, fields: dict[str, Any], metadata: dict[str, Any]) -> Iterator[Event]:
    """Yield the events of what code printed, and of the files that it wrote."""
    call_id = fields["call_id"]
    id = f"{call_id}.console"
    failure = _failure(content)
    streams = {"stdout": as_text(content.get("stdout")), "stderr": failure or as_text(content.get("stderr"))}
    metadata["result"] = without_keys(content, "stdout", "stderr")
    if failure:
        metadata["error"] = True
    elif isinstance(content.get("return_code"), int):
        metadata["return_code"] = content["return_code"]
    if all(streams.values()):
        metadata["stderr"] = streams["stderr"]
    elif streams["stderr"]:
        metadata["stream"] = "stderr"
    yield MessageCreated(m.ConsoleMessage(id, **fields))
    for stream, printed in streams.items():
        if printed:
            yield m.ConsoleMessage.delta_event(id, printed, False, {"stream": stream})
    for number, file in enumerate(as_list(content.get("content"))):
        if file_id := as_text(as_object(file).get("file_id")):
            file_fields: dict[str, Any] = {"role": "computer", "format": "file_id", "content": file_id, **fields}
            yield MessageDone(m.FileMessage(f"{call_id}.file.{number}", **file_fields))
    status: m.Status = "failed" if failure else "completed"
    yield MessageDone(m.ConsoleMessage(id, status=status, metadata=metadata, **fields))
