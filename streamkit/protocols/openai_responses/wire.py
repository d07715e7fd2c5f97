"""The fields of the Responses API's events: which deltas belong to which kind of part, their common shape, and readers.

Readers never raise; a value of an unexpected type reads as absent,
or as the only thing that it can mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from ...events import StreamWarning
from ...messages import Annotation
from ..values import (
    LARGEST_COUNT,
    WireObject,
    annotation_of,
    as_count,
    as_list,
    as_object,
    as_text,
    is_object,
    parse_json,
    text_or_none,
)

__all__ = [
    "PLAIN_DELTAS",
    "SEARCHES",
    "SHELL_OUTPUT",
    "STEMS",
    "TEXT_STREAMS",
    "TRANSIENT_ERRORS",
    "TextStream",
    "are_content_parts",
    "content_parts",
    "json_or_text",
    "logprobs_of",
    "read_annotation",
    "read_part",
    "warning",
]

TRANSIENT_ERRORS = frozenset(
    ("server_error", "rate_limit_exceeded", "server_is_overloaded", "slow_down", "overloaded", "vector_store_timeout")
)
"""The codes of errors and failed responses after which another attempt may succeed."""

SEARCHES = frozenset(("web_search", "file_search", "tool_search"))
"""The API's own tools that only read, by the names of their calls."""


class TextStream(NamedTuple):
    """The part of an item that a type of delta extends.

    Attributes:
        part: its kind, a key of `item_types.PARTS`.
        item: the type of its item.
        index_key: where the events have the part's index, "" if the item has one such part only.
        text_key: where the final event has the part's text.
    """

    part: str
    item: str
    index_key: str
    text_key: str


TEXT_STREAMS: dict[str, TextStream] = {
    "response.output_text": TextStream("text", "message", "content_index", "text"),
    "response.refusal": TextStream("refusal", "message", "content_index", "refusal"),
    "response.reasoning_text": TextStream("reasoning", "reasoning", "content_index", "text"),
    "response.reasoning_summary_text": TextStream("summary", "reasoning", "summary_index", "text"),
    "response.function_call_arguments": TextStream("call", "function_call", "", "arguments"),
    "response.custom_tool_call_input": TextStream("call", "custom_tool_call", "", "input"),
    "response.mcp_call_arguments": TextStream("call", "mcp_call", "", "arguments"),
    "response.code_interpreter_call_code": TextStream("code", "code_interpreter_call", "", "code"),
    "response.shell_call_command": TextStream("command", "shell_call", "command_index", "command"),
}
"""By the stem of their events' types: a stem with `.delta` extends the part, with `.done` it has the final text."""

SHELL_OUTPUT = "response.shell_call_output_content"
"""The stem of the events about what a shell command printed."""

STEMS = {(stream.item if stream.part == "call" else stream.part): stem for stem, stream in TEXT_STREAMS.items()}
"""The stem of the deltas of a part, by its kind; of a call, by the type of its item."""

# -- the plain case: a piece of a part, and nothing else

_Piece: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)] | None


def _plain_delta(stem: str, stream: TextStream) -> type[msgspec.Struct]:
    """Return the struct of a plain delta with this stem. Where its item has one part only, an index other than 0 is not
    plain."""
    fields: list[Any] = [
        ("delta", _Piece),
        ("item_id", str | None, None),
        ("output_index", int | None, None),
        ("part_index", int, msgspec.field(name=stream.index_key or "content_index", default=0)),
        ("sequence_number", _Number, None),
        ("logprobs", list[Any] | None, None),
    ]
    return msgspec.defstruct("PlainDelta", fields, tag_field="type", tag=f"{stem}.delta", gc=False)


PLAIN_DELTAS: dict[str, Any] = {stem: _plain_delta(stem, stream) for stem, stream in TEXT_STREAMS.items()}
"""The structs of plain deltas, by the stem of their type."""


# -- readers


def read_annotation(wire: Any) -> Annotation | None:
    """Return a citation, None if it is not an object. A file citation has one `index`, which is where it ends."""
    if not is_object(wire):
        return None
    annotation = annotation_of(wire)
    if annotation.end is None:
        annotation.end = as_count(wire.get("index"))
    return annotation


def content_parts(value: Any, default_type: str) -> Sequence[WireObject]:
    """Return the content parts in a list of an item, each in its place.

    What is malformed is read as far as it can be: text in place of the list or of a part, a part in place of the list,
    and a part with text or a refusal that has no type. Other parts without a type are empty.
    """
    if value.__class__ is list:
        for part in value:
            if part.__class__ is not dict or part.get("type").__class__ is not str:
                break
        else:
            return value
    elements = [value] if as_text(value) or is_object(value) else as_list(value)
    return [_typed_part(element, default_type) for element in elements]


def _typed_part(element: Any, default_type: str) -> WireObject:
    if text := as_text(element):
        return {"type": default_type, "text": text}
    part = as_object(element)
    if isinstance(part.get("type"), str):
        return part
    if as_text(part.get("text")):
        return {**part, "type": default_type}
    return {**part, "type": "refusal"} if as_text(part.get("refusal")) else {}


def are_content_parts(value: Any) -> bool:
    """Whether this is a list of objects the types of which are text or absent. Null and empty text count as a list."""
    return value in (None, "") or (
        isinstance(value, (list, tuple))
        and all(is_object(part) and isinstance(part.get("type", ""), str) for part in as_list(value))
    )


def read_part(part: WireObject) -> tuple[str, Sequence[Annotation], WireObject]:
    """Return the text of a content part, its citations, and the metadata of its message."""
    text, wires = part.get("text"), part.get("annotations")
    if not (text and isinstance(text, str)):
        text = as_text(part.get("refusal"))
    annotations = [one for wire in as_list(wires) if (one := read_annotation(wire)) is not None] if wires else ()
    return text, annotations, logprobs_of(part.get("logprobs"))


def logprobs_of(logprobs: Any) -> WireObject:
    """Return the log probabilities of a text, as the metadata of its message; none if there are none."""
    return {"logprobs": list(logprobs)} if (logprobs := as_list(logprobs)) else {}


def warning(code: str, fault: str, kind: Any = None) -> StreamWarning:
    """As `Decoder.warn`, which what a decoder holds must not have: they would keep each other until the garbage collector
    finds them. The decoder adds which item of the source it is about."""
    return StreamWarning(code, fault, kind=text_or_none(kind))


def json_or_text(content: str) -> Any:
    """Return the value that a message's content holds as JSON, {} for empty content, the content itself if it is not
    JSON."""
    if not content:
        return {}
    value = parse_json(content)
    return content if value is None and content.strip() != "null" else value
