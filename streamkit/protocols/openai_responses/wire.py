"""What events of the Responses API hold: which deltas belong to which kind of part, their common shape, and readers.

The deltas of a response come in thousands. Each type of them has a typed struct, which accepts a delta only in its
common form: anything else takes the tolerant path. Readers never raise; a value of an unexpected type reads as absent,
or as the only thing that it can mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec

from ...events import StreamWarning
from ...messages import Annotation
from ...messages.typed_json import decoder
from ..held_values import NOTHING
from ..parsed import item_reader
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
    "DELTA_STRUCTS",
    "DELTA_TYPES",
    "SHELL_OUTPUT",
    "STEM_OF_CALL",
    "STEM_OF_PART",
    "TEXT_STREAMS",
    "DeltaEvent",
    "ShellOutput",
    "TextStream",
    "any_delta_decoder",
    "are_content_parts",
    "content_parts",
    "delta_decoder",
    "json_or_text",
    "logprobs_of",
    "read_annotation",
    "read_any_delta",
    "read_part",
    "warning",
]


class TextStream(msgspec.Struct, frozen=True):
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

STEM_OF_PART = {stream.part: stem for stem, stream in TEXT_STREAMS.items() if stream.part != "call"}
"""The stem of the deltas of a kind of part, for the kinds that only one type extends."""

STEM_OF_CALL = {stream.item: stem for stem, stream in TEXT_STREAMS.items() if not stream.index_key}
"""The stem of the deltas of an item that has one part."""


# -- deltas in their common form


class _Delta(msgspec.Struct, tag_field="type", gc=False):
    item_id: str | None
    delta: Annotated[str, msgspec.Meta(min_length=1)]
    output_index: int | None = None
    sequence_number: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)] | None = None


class DeltaEvent(_Delta, gc=False):
    """A delta in its common form, which extends a part and does nothing else."""

    logprobs: tuple[()] | None = None


class _ContentDelta(DeltaEvent, gc=False):
    index: int = msgspec.field(default=0, name="content_index")


class _OutputTextDelta(_ContentDelta, tag="response.output_text.delta", gc=False):
    pass


class _DeltaWithLogprobs(_Delta, tag="response.output_text.delta", gc=False):
    index: int = msgspec.field(default=0, name="content_index")
    logprobs: list[Any] | None = None


class _RefusalDelta(_ContentDelta, tag="response.refusal.delta", gc=False):
    pass


class _ReasoningTextDelta(_ContentDelta, tag="response.reasoning_text.delta", gc=False):
    pass


class _SummaryTextDelta(DeltaEvent, tag="response.reasoning_summary_text.delta", gc=False):
    index: int = msgspec.field(default=0, name="summary_index")


class _SinglePartDelta(DeltaEvent, gc=False):
    index: None = msgspec.field(default=None, name="")


class _ArgumentsDelta(_SinglePartDelta, tag="response.function_call_arguments.delta", gc=False):
    pass


class _CustomInputDelta(_SinglePartDelta, tag="response.custom_tool_call_input.delta", gc=False):
    pass


class _McpArgumentsDelta(_SinglePartDelta, tag="response.mcp_call_arguments.delta", gc=False):
    pass


class _CodeDelta(_SinglePartDelta, tag="response.code_interpreter_call_code.delta", gc=False):
    pass


class _CommandDelta(DeltaEvent, tag="response.shell_call_command.delta", gc=False, kw_only=True):
    item_id: str | None = None  # OpenAI sends none
    index: int = msgspec.field(default=0, name="command_index")


class ShellOutput(msgspec.Struct, gc=False):
    """What a shell command printed to one of its streams, the other of which is empty."""

    stdout: str | None = None
    stderr: str | None = None

    def __post_init__(self) -> None:
        if bool(self.stdout) is bool(self.stderr):
            raise ValueError("it has no output, or output of both streams")


class _ShellOutputDelta(msgspec.Struct, tag_field="type", tag=f"{SHELL_OUTPUT}.delta", gc=False):
    item_id: str
    delta: ShellOutput
    index: int = msgspec.field(default=0, name="command_index")
    output_index: int | None = None
    sequence_number: Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)] | None = None
    logprobs: None = None  # which such deltas never have


DELTA_STRUCTS: dict[str, type[Any]] = {
    "response.output_text": _OutputTextDelta,
    "response.refusal": _RefusalDelta,
    "response.reasoning_text": _ReasoningTextDelta,
    "response.reasoning_summary_text": _SummaryTextDelta,
    "response.function_call_arguments": _ArgumentsDelta,
    "response.custom_tool_call_input": _CustomInputDelta,
    "response.mcp_call_arguments": _McpArgumentsDelta,
    "response.code_interpreter_call_code": _CodeDelta,
    "response.shell_call_command": _CommandDelta,
    SHELL_OUTPUT: _ShellOutputDelta,
}
"""By the keys of `TEXT_STREAMS`, and of what a shell command printed."""


class _NoDelta(msgspec.Struct, tag_field="type", tag="", gc=False):
    """Beside another struct: msgspec takes an item without `type` for one that is alone."""

    def __post_init__(self) -> None:
        raise ValueError("its type is empty")


# Decoders are made when they are needed: one takes a tenth of a millisecond, and most streams have one type of delta.


@cache
def delta_decoder(stem: str) -> Callable[[bytes], Any]:
    """What decodes a delta of a single type, which is faster than that of `any_delta_decoder`."""
    return decoder(DELTA_STRUCTS[stem] | _NoDelta).decode


@cache
def any_delta_decoder() -> Callable[[bytes], Any]:
    """What decodes a delta in its common form, of whichever type, or one that has log probabilities besides. It raises
    `msgspec.DecodeError` for everything else."""
    return decoder(
        _DeltaWithLogprobs
        | _RefusalDelta
        | _ReasoningTextDelta
        | _SummaryTextDelta
        | _ArgumentsDelta
        | _CustomInputDelta
        | _McpArgumentsDelta
        | _CodeDelta
        | _CommandDelta
        | _ShellOutputDelta
    ).decode


DELTA_TYPES: dict[type[Any], str] = {struct: f"{stem}.delta" for stem, struct in DELTA_STRUCTS.items()}
"""The type of a delta, by its struct."""
DELTA_TYPES[_DeltaWithLogprobs] = DELTA_TYPES[_OutputTextDelta]

read_any_delta = item_reader({f"{stem}.delta": struct for stem, struct in DELTA_STRUCTS.items()})
"""Reads a delta in its common form that is parsed already."""


# -- readers


def read_annotation(wire: Any) -> Annotation | None:
    """A citation, None if it is not an object. A file citation has one `index`, which is where it ends."""
    if not is_object(wire):
        return None
    annotation = annotation_of(wire)
    if annotation.end is None:
        annotation.end = as_count(wire.get("index"))
    return annotation


def content_parts(value: Any, default_type: str) -> Sequence[WireObject]:
    """The content parts in a list of an item, each in its place.

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
    """The text of a content part, its citations, and the metadata of its message."""
    text, wires, logprobs = part.get("text"), part.get("annotations"), part.get("logprobs")
    if not (text and isinstance(text, str)):
        text = as_text(part.get("refusal"))
    annotations = [one for wire in as_list(wires) if (one := read_annotation(wire)) is not None] if wires else ()
    return text, annotations, logprobs_of(logprobs) if logprobs else NOTHING


def logprobs_of(logprobs: Any) -> WireObject:
    """The log probabilities of a text, as the metadata of its message; none if there are none."""
    return {"logprobs": list(logprobs)} if (logprobs := as_list(logprobs)) else NOTHING


def warning(code: str, fault: str, kind: Any = None) -> StreamWarning:
    """As `Decoder.warn`, which what a decoder holds must not have: they would keep each other until the garbage collector
    finds them. The decoder adds which item of the source it is about."""
    return StreamWarning(code, fault, kind=text_or_none(kind))


def json_or_text(content: str) -> Any:
    """The value that a message's content holds as JSON, {} for empty content, the content itself if it is not JSON."""
    if not content:
        return {}
    value = parse_json(content)
    return content if value is None and content.strip() != "null" else value
