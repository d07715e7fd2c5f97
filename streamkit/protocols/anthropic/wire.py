"""The tables of the Messages API, and its citations, usage and errors.

The deltas of text come in thousands: for these there are typed structs, which accept the common form alone.

The annotations are no text here, as by `from __future__ import annotations` they would be: msgspec would compile each of them
while the first stream of a process imports this module.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec

from ... import messages as m
from ...events import Usage
from ..values import WireObject, as_count, as_text, error_object, text_or_none, without_keys

__all__ = [
    "CODE_TOOLS",
    "HELPER_EVENTS",
    "PAUSE_REASONS",
    "STATUS_OF_STOP_REASON",
    "TOOL_OF_LANGUAGE",
    "InputDelta",
    "TextDelta",
    "ThinkingDelta",
    "annotation_of",
    "decode_delta",
    "decode_item",
    "error_of",
    "usage_of",
]

STATUS_OF_STOP_REASON: dict[str, m.Status] = {
    "max_tokens": "incomplete",
    "model_context_window_exceeded": "incomplete",
    "refusal": "incomplete",  # classifiers cut the answer short, as a content filter does
    "pause_turn": "incomplete",  # continued by the answer to a request that sends it back
    "compaction": "incomplete",  # continued in the same way
}
"""The status that a stop_reason gives to an answer, and to its last message. Any other means `completed`."""

PAUSE_REASONS = ("pause_turn", "compaction")
"""The stop_reasons after which the answer continues in the next response."""

CODE_TOOLS = {"code_execution": ("python", "code"), "bash_code_execution": ("shell", "command")}
"""The server tools that run code: its language, and the key of their input that has it."""

TOOL_OF_LANGUAGE = {"shell": "bash_code_execution", "bash": "bash_code_execution", "sh": "bash_code_execution"}
"""The server tool that runs code of a language. Any other language is encoded as `code_execution`."""

HELPER_EVENTS = frozenset(("text", "input_json", "thinking", "citation", "signature", "compaction"))
"""The events that the SDK's stream helper adds. Each repeats one of the API's own."""


# -- the fast path: a piece of an open block, and nothing else

_NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", gc=False):
    """A piece of a text."""

    piece: _NonEmpty = msgspec.field(name="text")


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False):
    """A piece of the model's reasoning."""

    piece: _NonEmpty = msgspec.field(name="thinking")


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False):
    """A piece of the arguments of a call."""

    piece: _NonEmpty = msgspec.field(name="partial_json")


class _ContentBlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta", gc=False):
    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class _Other(msgspec.Struct, tag_field="type", tag="", gc=False):
    """An item of another known type, of which nothing is read. It is here because an error would take far longer."""

    index: ClassVar[int] = -1  # of no block
    delta: ClassVar[None] = None


class _Ping(_Other, tag="ping"):
    pass


class _MessageStart(_Other, tag="message_start"):
    pass


class _ContentBlockStart(_Other, tag="content_block_start"):
    pass


class _ContentBlockStop(_Other, tag="content_block_stop"):
    pass


class _MessageDelta(_Other, tag="message_delta"):
    pass


class _MessageStop(_Other, tag="message_stop"):
    pass


_Item = (
    _ContentBlockDelta | _Ping | _MessageStart | _ContentBlockStart | _ContentBlockStop | _MessageDelta | _MessageStop
)

decode_delta: Callable[[bytes], Any] = msgspec.json.Decoder(_Item).decode
"""Decodes a `content_block_delta` in its common form. Any other item has no `delta`, or raises `msgspec.DecodeError`."""

decode_item = msgspec.json.Decoder().decode
"""Decodes any item of a frame. One that is nested too deep was marked by the framing, so that it is no JSON."""


# -- objects


def annotation_of(citation: WireObject) -> m.Annotation:
    """A citation. It stands for the text of its whole block; its place in the cited document is in `raw`."""
    source = as_text(citation.get("source"))
    return m.Annotation(
        type=as_text(citation.get("type")) or "citation",
        url=as_text(citation.get("url")) or (source if source.startswith(("http://", "https://")) else None),
        file_id=text_or_none(citation.get("file_id")),
        title=text_or_none(citation.get("title")) or text_or_none(citation.get("document_title")),
        quote=text_or_none(citation.get("cited_text")),
        raw=dict(citation),
    )


def usage_of(wire: WireObject) -> Usage:
    """Token counts. The provider's `input_tokens` exclude those that were written to a cache or read from one, which are
    in `details`; `total_tokens` includes them."""
    input_tokens, output_tokens = as_count(wire.get("input_tokens")) or 0, as_count(wire.get("output_tokens")) or 0
    total = input_tokens + output_tokens
    if details := without_keys(wire, "input_tokens", "output_tokens"):
        total += sum(filter(None, map(as_count, map(details.get, _CACHED))))
    return Usage(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total, details=details)


_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")


def error_of(item: WireObject) -> WireObject:
    """The error of an `error` event, with the `request_id` that is beside it."""
    error = item["error"] if item.get("error") is not None else without_keys(item, "type")
    request_id = text_or_none(item.get("request_id"))
    return {
        **error_object(error, "the answer failed", message_keys=("type",)),
        **({"request_id": request_id} if request_id else {}),
    }
