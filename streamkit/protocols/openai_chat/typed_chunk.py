"""The shapes of chunks that are read without parsing the rest of them: typed structs, which accept these shapes alone.

A `PlainChunk` is one piece of an open message and nothing else. A `TextChunk` may begin the answer or its text, or end
both, as the first and the last chunks of most answers do. A `Chunk` may be the first piece or the end of any message, and
have the other fields that servers put into each chunk. Those that change are typed; of those that mostly repeat, it has the
bytes, which are compared with the ones that were read before. Every other chunk takes the tolerant path.

Values that mean nothing (`tool_calls: []`, `content_filter_results: {}`, `finish_reason: ""`) are accepted everywhere.

The annotations are no text here, as by `from __future__ import annotations` they would be: msgspec would compile each of them,
which takes most of the time in which the first stream of a process imports this module.
"""

from typing import Annotated, Any, Literal

import msgspec

from ..parsed import item_reader
from ..values import LARGEST_COUNT

__all__ = [
    "Chunk",
    "Delta",
    "PlainDelta",
    "PlainToolCall",
    "TextChoice",
    "TextChunk",
    "Thinking",
    "TypedChoice",
    "decode_chunk",
    "decode_plain_chunk",
    "decode_text_chunk",
    "read_plain_chunk",
]


class _EmptyObject(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    pass


class _AnyObject(msgspec.Struct, gc=False):
    """An object whose values do not matter."""


_NoObject = _EmptyObject | None
_NoList = tuple[()] | None
_NoText = Literal[""] | None
_Index = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
_Repeated = msgspec.Raw  # where it is missing, None
_ABSENT: Any = None


# -- deltas


class _PlainFunction(msgspec.Struct, gc=False):
    arguments: str
    name: str | None = None


class PlainToolCall(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A fragment of the arguments of a function call that has begun. What it has under other keys would go back with the
    call, so it has no others than those that the call has fields for."""

    index: int
    function: _PlainFunction
    id: str | None = None
    custom: None = None
    extra_content: None = None
    provider_specific_fields: None = None
    type: Any = None
    name: Any = None
    arguments: Any = None
    input: Any = None


class _NoOtherContent(msgspec.Struct, gc=False):
    """Fields that may be present, but have no value in a delta of these structs."""

    function_call: None = None
    audio: None = None
    annotations: _NoList = None
    images: _NoList = None
    extra_content: None = None
    thinking_blocks: _NoList = None
    reasoning_text: _NoText = None
    reasoning_opaque: _NoText = None
    executed_tools: _NoList = None


class _Pieces(_NoOtherContent, gc=False):
    """Reasoning, or a piece of one call's arguments."""

    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Annotated[tuple[PlainToolCall, ...], msgspec.Meta(max_length=1)] | None = None


class PlainDelta(_Pieces, gc=False):
    """A piece of text, of reasoning or of one call's arguments. A delta with anything else does not decode as one."""

    content: str | None = None
    refusal: _NoText = None
    reasoning_details: _NoList = None


class _TextDelta(_NoOtherContent, gc=False):
    """A role, a piece of text, or nothing."""

    content: str | None = None
    role: Any = None
    refusal: _NoText = None
    reasoning_content: _NoText = None
    reasoning: _NoText = None
    reasoning_details: _NoList = None
    tool_calls: _NoList = None


class _ThinkingText(msgspec.Struct, gc=False):
    text: str


class Thinking(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A piece of reasoning as Mistral sends it, as a part of the content."""

    type: Literal["thinking"]  # a tag may be missing
    thinking: tuple[_ThinkingText, ...]


class Delta(_Pieces, gc=False):
    """As `PlainDelta`, or a piece of a refusal, or reasoning with its details, or as Mistral sends it."""

    content: str | tuple[Thinking] | None = None
    refusal: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    role: Any = None


# -- chunks


class _NoLogprobs(msgspec.Struct, gc=False):
    content: _NoList = None
    refusal: _NoList = None


class _PlainChoice(msgspec.Struct, gc=False):
    delta: PlainDelta
    index: int = 0
    finish_reason: _NoText = None
    logprobs: _NoLogprobs | None = None
    message: None = None
    usage: _NoObject = None
    error: None = None
    content_filter_results: _NoObject = None


class PlainChunk(msgspec.Struct, gc=False):
    """A chunk that is one plain delta."""

    choices: tuple[_PlainChoice]
    usage: _NoObject = None
    error: None = None
    citations: _NoList = None
    search_results: _NoList = None
    prompt_filter_results: _NoList = None
    x_groq: _NoObject = None
    moderation: None = None


class _ChoiceFields(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """What `TextChoice` and `TypedChoice` have in common. Values under other keys would belong to the run's metadata, so a
    choice with other keys takes the tolerant path. So does one whose `index` is out of range."""

    index: _Index = 0
    finish_reason: str | None = None
    usage: _NoObject = None
    error: None = None
    # Keys of single servers, which mostly are null.
    native_finish_reason: _NoText = None
    stop_reason: _NoText = None
    matched_stop: _NoText = None
    token_ids: _NoList = None
    trace_details: _NoObject = None


class TextChoice(_ChoiceFields, forbid_unknown_fields=True, kw_only=True, gc=False):
    """The choice of a `TextChunk`."""

    delta: _TextDelta
    logprobs: _NoLogprobs | None = None
    message: None = None
    content_filter_results: _NoObject = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[Any] | None = None
    refusal: list[Any] | None = None


class TypedChoice(_ChoiceFields, forbid_unknown_fields=True, kw_only=True, gc=False):
    """The choice of a `Chunk`."""

    delta: Delta
    logprobs: _Logprobs | None = None
    message: _AnyObject | None = None
    content_filter_results: _Repeated = _ABSENT


class _ChunkFields(msgspec.Struct, gc=False):
    """What `TextChunk` and `Chunk` have in common."""

    id: str | None = None
    object: Any = None
    created: Any = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    error: None = None
    prompt_filter_results: _NoList = None
    moderation: None = None
    service_tier: str | None = None
    system_fingerprint: str | None = None
    provider: str | None = None


class TextChunk(_ChunkFields, kw_only=True, gc=False):
    """A chunk whose choice has at most a role, a piece of text and a finish_reason."""

    choices: tuple[TextChoice]
    citations: _NoList = None
    search_results: _NoList = None
    x_groq: _NoObject = None


class Chunk(_ChunkFields, kw_only=True, gc=False):
    """A chunk with at most one choice, and the fields that some servers send with each."""

    choices: Annotated[tuple[TypedChoice, ...], msgspec.Meta(max_length=1)]
    citations: _Repeated = _ABSENT
    search_results: _Repeated = _ABSENT
    x_groq: _Repeated = _ABSENT


decode_plain_chunk = msgspec.json.Decoder(PlainChunk).decode
"""Decodes a chunk that is one plain delta. Raises `msgspec.DecodeError` for every other chunk."""

read_plain_chunk = item_reader(PlainChunk, {"choices": {"delta": {"tool_calls": {"function": {}}}}})
"""The same of a chunk that is parsed already."""

decode_text_chunk = msgspec.json.Decoder(TextChunk).decode
"""Decodes a chunk that has a text, or begins or ends one. Raises `msgspec.DecodeError` for every other chunk."""

decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Decodes a chunk with at most one choice of a known shape. Raises `msgspec.DecodeError` for every other chunk."""
