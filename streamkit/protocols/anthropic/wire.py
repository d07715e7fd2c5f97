"""The tables of the Messages API, and its citations, usage and errors.

For the items of each stream there are typed structs, which accept the common form alone.

The annotations are no text here, as by `from __future__ import annotations` they would be: msgspec would compile each of them
while the first stream of a process imports this module.
"""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import msgspec

from ... import messages as m
from ...events import Usage
from ...messages.typed_json import converter, decoder
from ..values import LARGEST_COUNT, WireObject, as_count, as_text, error_object, text_or_none, without_keys

__all__ = [
    "CODE_TOOLS",
    "HELPER_EVENTS",
    "PAUSE_REASONS",
    "STATUS_OF_STOP_REASON",
    "TOOL_OF_LANGUAGE",
    "BlockStart",
    "BlockStop",
    "InputDelta",
    "MessageDelta",
    "MessageStart",
    "MessageStop",
    "Ping",
    "TextDelta",
    "ThinkingDelta",
    "annotation_of",
    "decode_common",
    "decode_item",
    "error_of",
    "started_message",
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


# -- the fast path: items in their common form. Any other form raises an error, and takes the tolerant path

_NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
_NoContent = Annotated[list[Any], msgspec.Meta(max_length=0)]


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", gc=False):
    """A piece of a text."""

    piece: _NonEmpty = msgspec.field(name="text")


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", gc=False):
    """A piece of the model's reasoning."""

    piece: _NonEmpty = msgspec.field(name="thinking")


class InputDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", gc=False):
    """A piece of the arguments of a call."""

    piece: _NonEmpty = msgspec.field(name="partial_json")


class _BlockDelta(msgspec.Struct, tag_field="type", tag="content_block_delta", gc=False):
    """A piece of an open block. Deltas come in thousands, so no key is looked at that is not read."""

    index: int
    delta: TextDelta | ThinkingDelta | InputDelta


class _Item(msgspec.Struct, tag_field="type", tag="", gc=False, forbid_unknown_fields=True):
    """An item that is no delta. One with keys that its struct does not have takes the tolerant path, which reads or checks
    their values."""

    index: ClassVar[int] = -1  # of no block
    delta: ClassVar[None] = None


class Ping(_Item, tag="ping"):
    """A sign of life."""


class MessageStart(_Item, tag="message_start"):
    """An answer begins."""

    message: dict[str, Any]


class BlockStart(_Item, tag="content_block_start"):
    """A block begins, or comes complete."""

    place: _Index = msgspec.field(name="index")
    block: dict[str, Any] = msgspec.field(name="content_block")


class BlockStop(_Item, tag="content_block_stop"):
    """A block stops."""

    place: _Index = msgspec.field(name="index")


class _Ending(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    stop_reason: _NonEmpty
    stop_sequence: None = None
    stop_details: None = None
    container: None = None


class MessageDelta(_Item, tag="message_delta"):
    """The stop_reason comes, and the usage."""

    ending: _Ending = msgspec.field(name="delta")
    usage: dict[str, Any] | None = None


class MessageStop(_Item, tag="message_stop"):
    """An answer ends."""


decode_common: Callable[[bytes], Any] = decoder(
    _BlockDelta | Ping | MessageStart | BlockStart | BlockStop | MessageDelta | MessageStop
).decode
"""Decodes an item in its common form. All but a `content_block_delta` have None as their `delta`.

Raises:
    msgspec.DecodeError: it has another form.
"""

decode_item = decoder().decode
"""Decodes any item of a frame. One that is nested too deep was marked by the framing, so that it is no JSON."""


class _StartedMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The message of a `message_start` in its common form: without content, and without a value for the run's metadata."""

    id: str
    model: _NonEmpty
    usage: dict[str, Any] | None = None
    content: _NoContent | None = None
    type: Any = None
    role: Any = None
    stop_reason: Any = None
    stop_sequence: None = None
    stop_details: None = None
    container: None = None
    context_management: None = None


_as_started_message = converter(_StartedMessage)


def started_message(message: dict[str, Any]) -> _StartedMessage | None:
    """The message of a `message_start` if it has its common form, else None."""
    try:
        return _as_started_message(message)
    except msgspec.ValidationError:
        return None


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
    details = {**wire}  # there are no nulls in it
    input_tokens = as_count(details.pop("input_tokens", None)) or 0
    output_tokens = as_count(details.pop("output_tokens", None)) or 0
    total = input_tokens + output_tokens
    if details:
        total += sum(filter(None, map(as_count, map(details.get, _CACHED))))
    return Usage(input_tokens, output_tokens, total, details)


_CACHED = ("cache_creation_input_tokens", "cache_read_input_tokens")


def error_of(item: WireObject) -> WireObject:
    """The error of an `error` event, with the `request_id` that is beside it."""
    error = item["error"] if item.get("error") is not None else without_keys(item, "type")
    request_id = text_or_none(item.get("request_id"))
    return {
        **error_object(error, "the answer failed", message_keys=("type",)),
        **({"request_id": request_id} if request_id else {}),
    }
