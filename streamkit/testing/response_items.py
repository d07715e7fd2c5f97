"""The output items of a Responses reply: what each part of a reply becomes on the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .dialect import Json
from .parts import CodeInterpreter, McpApproval, Part, Reasoning, Refusal, ToolCall

__all__ = [
    "ResponseItem",
    "code_interpreter_item",
    "function_call_item",
    "mcp_approval_item",
    "message_item",
    "reasoning_item",
]


class ResponseItem(NamedTuple):
    """One output item, and the events that report it.

    Attributes:
        part: The reply's part.
        id: The item's id.
        output_index: The item's place in the response.
        empty: The item before its first delta.
        full: The item after its last delta.
        delta: The type of its delta events, without the prefix `response.`.
        opening: The events before the deltas, as pairs of type and fields.
        closing: The events after the deltas, as pairs of type and fields.
        indexes: Fields of all these events and of the deltas, such as `content_index`.
        delta_fields: Further fields of the delta events alone.
    """

    part: Part
    id: str
    output_index: int
    empty: Json
    full: Json
    delta: str
    opening: Sequence[tuple[str, Json]] = ()
    closing: Sequence[tuple[str, Json]] = ()
    indexes: Mapping[str, int] = {}
    delta_fields: Json = {}


def message_item(part: Part, id: str, output_index: int) -> ResponseItem:
    """Return a message with one content part, a text or a refusal."""
    if isinstance(part, Refusal):
        extra: Json = {}
        kind, field = "refusal", "refusal"
        empty: Json = {"type": kind, "refusal": ""}
    else:
        extra = {"logprobs": []}
        kind, field = "output_text", "text"
        empty = {"type": kind, "annotations": [], "logprobs": [], "text": ""}
    full = empty | {field: part.text}
    item: Json = {"id": id, "type": "message", "role": "assistant"}
    return ResponseItem(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "content": []},
        full=item | {"status": "completed", "content": [full]},
        delta=f"{kind}.delta",
        opening=[("content_part.added", {"part": empty})],
        closing=[(f"{kind}.done", {field: part.text, **extra}), ("content_part.done", {"part": full})],
        indexes={"content_index": 0},
        delta_fields=extra,
    )


def reasoning_item(part: Reasoning, id: str, output_index: int) -> ResponseItem:
    """Reasoning: one part of a summary, or the full text as content."""
    item: Json = {"id": id, "type": "reasoning", "summary": []}
    if part.summary:
        kind, part_event, field, index = "summary_text", "reasoning_summary_part", "summary", "summary_index"
        delta = "reasoning_summary_text"
    else:
        kind, part_event, field, index = "reasoning_text", "content_part", "content", "content_index"
        delta = "reasoning_text"
    full = {"type": kind, "text": part.text}
    return ResponseItem(
        part,
        id,
        output_index,
        empty=item,
        full=item | {field: [full]},
        delta=f"{delta}.delta",
        opening=[(f"{part_event}.added", {"part": {"type": kind, "text": ""}})],
        closing=[(f"{delta}.done", {"text": part.text}), (f"{part_event}.done", {"part": full})],
        indexes={index: 0},
    )


def function_call_item(part: ToolCall, id: str, output_index: int, call_id: str) -> ResponseItem:
    """Return a call of one of the client's functions."""
    item: Json = {"id": id, "type": "function_call", "call_id": call_id, "name": part.name}
    return ResponseItem(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "arguments": ""},
        full=item | {"status": "completed", "arguments": part.text},
        delta="function_call_arguments.delta",
        closing=[("function_call_arguments.done", {"arguments": part.text})],
    )


def mcp_approval_item(part: McpApproval, id: str, output_index: int) -> ResponseItem:
    """Return an approval request. It is complete when it is added, and has no deltas."""
    item: Json = {"id": id, "type": "mcp_approval_request", "arguments": part.arguments, "name": part.name}
    item["server_label"] = part.server_label
    return ResponseItem(part, id, output_index, empty=item, full=item, delta="")


def code_interpreter_item(part: CodeInterpreter, id: str, output_index: int, container_id: str) -> ResponseItem:
    """Code that the provider runs, and what it printed."""
    item: Json = {"id": id, "type": "code_interpreter_call", "container_id": container_id}
    outputs = [{"type": "logs", "logs": part.logs}] if part.logs else []
    return ResponseItem(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "code": "", "outputs": []},
        full=item | {"status": "completed", "code": part.text, "outputs": outputs},
        delta="code_interpreter_call_code.delta",
        opening=[("code_interpreter_call.in_progress", {})],
        closing=[
            ("code_interpreter_call_code.done", {"code": part.text}),
            ("code_interpreter_call.interpreting", {}),
            ("code_interpreter_call.completed", {}),
        ],
    )
