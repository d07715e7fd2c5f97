"""What the Responses API sends, read so that no value of an unexpected type can do harm.

A value of the wrong type reads as if it were absent. The deltas of text come in thousands: for these there are typed
structs, which accept an event only as it mostly comes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, cast

import msgspec

from ...messages import Annotation
from ..values import is_object

__all__ = [
    "DECODE",
    "GROWN",
    "STREAMS",
    "Grown",
    "GrownText",
    "Stream",
    "annotation_of",
    "decode_grown",
    "integer",
    "json_text",
    "mapping",
    "read_part",
    "sequence",
    "text",
]

Wire = Mapping[str, Any]

LARGEST = 2**53  # no counter of a real stream is beyond what every JSON reader can hold


def text(value: Any) -> str:
    """A wire value as text; "" if it is none."""
    return value if isinstance(value, str) else ""


def mapping(value: Any) -> Wire:
    """A wire value as an object; an empty one if it is none."""
    return value if is_object(value) else {}


def sequence(value: Any) -> Sequence[Any]:
    """A wire value as a list; an empty one if it is none."""
    return cast("Sequence[Any]", value) if isinstance(value, (list, tuple)) else ()  # of anything


def integer(value: Any) -> int | None:
    """A wire value as a count or an index; None if it is none."""
    return value if type(value) is int and 0 <= value <= LARGEST else None


def json_text(value: Any) -> str:
    """Text as it is, any other value as JSON text; "" for null."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def annotation_of(wire: Any) -> Annotation | None:
    """A citation as the API tells it, None if it is no object."""
    if not is_object(wire):
        return None
    end = integer(wire.get("end_index"))
    return Annotation(
        type=text(wire.get("type")) or "annotation",
        url=text(wire.get("url")) or None,
        file_id=text(wire.get("file_id")) or None,
        title=text(wire.get("title")) or text(wire.get("filename")) or None,
        start=integer(wire.get("start_index")),
        end=integer(wire.get("index")) if end is None else end,
        raw=dict(wire),
    )


def read_part(part: Wire) -> tuple[str, dict[str, Any]]:
    """The content of a content part, and what else its message gets."""
    annotations = [found for wire in sequence(part.get("annotations")) if (found := annotation_of(wire)) is not None]
    logprobs = sequence(part.get("logprobs"))
    more: dict[str, Any] = {"metadata": {"logprobs": list(logprobs)}} if logprobs else {}
    if annotations:
        more["annotations"] = annotations
    return text(part.get("text")) or text(part.get("refusal")), more


class Stream(NamedTuple):
    """A part that is streamed as text: its kind, its item's type, where its index and its final text are found."""

    kind: str
    item: str
    at: str
    final: str


STREAMS: dict[str, Stream] = {
    "response.output_text": Stream("text", "message", "content_index", "text"),
    "response.refusal": Stream("refusal", "message", "content_index", "refusal"),
    "response.reasoning_text": Stream("reasoning", "reasoning", "content_index", "text"),
    "response.reasoning_summary_text": Stream("summary", "reasoning", "summary_index", "text"),
    "response.function_call_arguments": Stream("call", "function_call", "", "arguments"),
    "response.custom_tool_call_input": Stream("call", "custom_tool_call", "", "input"),
    "response.mcp_call_arguments": Stream("call", "mcp_call", "", "arguments"),
    "response.code_interpreter_call_code": Stream("code", "code_interpreter_call", "", "code"),
    "response.shell_call_command": Stream("command", "shell_call", "command_index", "command"),
}


class Grown(msgspec.Struct, tag_field="type", gc=False):
    """A delta as it mostly comes; what differs takes the tolerant path."""

    item_id: str
    delta: Annotated[str, msgspec.Meta(min_length=1)]
    output_index: int | None = None
    sequence_number: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    logprobs: tuple[()] | None = None


class _InContent(Grown, gc=False):
    index: int = msgspec.field(default=0, name="content_index")


class GrownText(_InContent, tag="response.output_text.delta", gc=False):
    pass


class _GrownRefusal(_InContent, tag="response.refusal.delta", gc=False):
    pass


class _GrownReasoning(_InContent, tag="response.reasoning_text.delta", gc=False):
    pass


class _GrownSummary(Grown, tag="response.reasoning_summary_text.delta", gc=False):
    index: int = msgspec.field(default=0, name="summary_index")


class _Whole(Grown, gc=False):
    index: None = msgspec.field(default=None, name="")  # these have but one part


class _GrownArguments(_Whole, tag="response.function_call_arguments.delta", gc=False):
    pass


class _GrownInput(_Whole, tag="response.custom_tool_call_input.delta", gc=False):
    pass


class _GrownMcpArguments(_Whole, tag="response.mcp_call_arguments.delta", gc=False):
    pass


class _GrownCode(_Whole, tag="response.code_interpreter_call_code.delta", gc=False):
    pass


GROWN: dict[str, type[Grown]] = {
    "response.output_text": GrownText,
    "response.refusal": _GrownRefusal,
    "response.reasoning_text": _GrownReasoning,
    "response.reasoning_summary_text": _GrownSummary,
    "response.function_call_arguments": _GrownArguments,
    "response.custom_tool_call_input": _GrownInput,
    "response.mcp_call_arguments": _GrownMcpArguments,
    "response.code_interpreter_call_code": _GrownCode,
}
# Of one type alone, which is faster; the one of any of them is below.
DECODE: dict[type[Grown], Callable[[bytes], Grown]] = {
    wire: msgspec.json.Decoder(wire).decode for wire in GROWN.values()
}
decode_grown = msgspec.json.Decoder(
    GrownText
    | _GrownRefusal
    | _GrownReasoning
    | _GrownSummary
    | _GrownArguments
    | _GrownInput
    | _GrownMcpArguments
    | _GrownCode
).decode
