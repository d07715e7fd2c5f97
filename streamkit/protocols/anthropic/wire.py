"""The tables of the Messages API, and its citations, usage and errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

import msgspec

from ... import messages as m
from ...events import Usage
from ..values import WireObject, as_count, as_text, error_object, text_or_none, without_keys

__all__ = [
    "CODE_TOOLS",
    "DELTA_KEYS",
    "HELPER_EVENTS",
    "PAUSE_REASONS",
    "PLAIN_DELTAS",
    "SEARCHES",
    "STATUS_OF_STOP_REASON",
    "TOOL_OF_LANGUAGE",
    "TRANSIENT_ERRORS",
    "PlainBlockDelta",
    "annotation_of",
    "error_of",
    "usage_of",
]

TRANSIENT_ERRORS = frozenset(("overloaded_error", "rate_limit_error", "api_error", "timeout_error"))
"""The types of errors in the midst of an answer after which another attempt may succeed."""

SEARCHES = frozenset(("web_search", "web_fetch", "tool_search_tool_regex", "tool_search_tool_bm25"))
"""The server tools that only read."""

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


DELTA_KEYS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "compaction_delta": "content",
}
"""The key at which a delta of each type has its text. Blocks that begin with a text have it at the same key."""


# -- the plain case: a piece of an open block, and nothing else


def _plain_delta(type: str) -> Any:
    piece = msgspec.field(name=DELTA_KEYS[type])
    fields = [("piece", Annotated[str, msgspec.Meta(min_length=1)], piece)]
    return msgspec.defstruct("PlainDelta", fields, tag_field="type", tag=type, gc=False)


PLAIN_DELTAS = {type: _plain_delta(type) for type in DELTA_KEYS if type != "compaction_delta"}
"""The structs of the deltas of each type that may be plain ones."""

_kind: Any = Literal["content_block_delta"]
PlainBlockDelta: Any = msgspec.defstruct(
    "PlainBlockDelta",
    [("type", _kind), ("index", int), ("delta", Union[tuple(PLAIN_DELTAS.values())])],  # noqa: UP007
    gc=False,
)
"""A piece of an open block. Deltas come in thousands, so no key is looked at that is not read."""


# -- objects


def annotation_of(citation: WireObject) -> m.Annotation:
    """Return a citation. It stands for the text of its whole block; its place in the cited document is in `raw`."""
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
    """Return the error of an `error` event, with the `request_id` that is beside it."""
    error = item["error"] if item.get("error") is not None else without_keys(item, "type")
    request_id = text_or_none(item.get("request_id"))
    return {
        **error_object(error, "the answer failed", message_keys=("type",)),
        **({"request_id": request_id} if request_id else {}),
    }
