"""Reads the first chunk of an answer from its typed struct: it begins the run, a choice, and perhaps a message.

It gives the same events as the tolerant path, and returns None for a chunk that has to take that path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ...events import Event, Run, RunCreated
from ...messages.json_text import NOT_JSON
from ..values import as_seconds, text_or_none
from .choice import ROLES, Choice
from .pieces import piece_of, read_choice
from .repeated_fields import NOTHING
from .typed_chunk import Chunk, TypedChoice
from .wire import CHANGING_METADATA_KEYS

__all__ = ["begin"]

_decode = msgspec.json.Decoder().decode


def begin(
    chunk: Chunk, data: bytes, metadata: Mapping[str, Any], make_choice: Callable[[int, str | None], Choice]
) -> tuple[Choice, Run, list[Event]] | None:
    """The choice and the run that a chunk begins, and its events. None, before anything was changed, if it has to take the
    tolerant path.

    Args:
        metadata: the run's metadata from earlier chunks.
        make_choice: returns a new choice, given its index and the id of the answer.
    """
    wire = chunk.choices[0] if chunk.choices else None
    if wire is None or not _is_plain(chunk, wire):
        return None
    try:
        metadata = {**metadata, **_changing_metadata(chunk)}
    except NOT_JSON:
        return None
    id = text_or_none(chunk.id)
    choice = make_choice(wire.index, id)
    events = _begin_choice(choice, wire, data)
    if events is None:
        return None
    run = Run(id=id or "", model=text_or_none(chunk.model), created_at=as_seconds(chunk.created), metadata=metadata)
    return choice, run, [RunCreated(run), *events]


def _is_plain(chunk: Chunk, wire: TypedChoice) -> bool:
    """Whether the chunk has no more than pieces of messages, and what `_changing_metadata` returns."""
    if wire.index < 0 or wire.finish_reason or wire.message is not None or chunk.usage:
        return False
    for value in (chunk.citations, chunk.search_results, chunk.x_groq, wire.content_filter_results):
        if value not in NOTHING:
            return False
    return True


def _changing_metadata(chunk: Chunk) -> dict[str, Any]:
    """The fields that go into the run's metadata and may change, as far as the chunk has them. Raises one of `NOT_JSON` if
    one of them is not JSON."""
    fields = zip(CHANGING_METADATA_KEYS, (chunk.service_tier, chunk.system_fingerprint, chunk.provider), strict=True)
    return {key: value for key, raw in fields if raw not in NOTHING and (value := _decode(raw))}


def _begin_choice(choice: Choice, wire: TypedChoice, data: bytes) -> list[Event] | None:
    """As `read_choice`, for a choice that may also have only a role."""
    delta = wire.delta
    if delta.tool_calls or delta.reasoning_details or wire.logprobs or piece_of(delta) != ("", ""):
        return read_choice(choice, wire, data, settled=True, held=False)
    if delta.role in ROLES:
        choice.messages.role = delta.role
    return []
