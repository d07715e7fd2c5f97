"""The plain case of Chat: a chunk that is one piece of a text or of a call's arguments, and nothing else.

Its struct is made of the tables of keys that the decoder reads: a piece is at one of these keys, what many servers repeat in each
chunk is as in the chunk before, and the other keys are absent or empty. What the decoder does not read may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from types import GenericAlias
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from ...events import Delta, TextDelta, ToolCallDelta
from ..values import LARGEST_COUNT
from .choice import Choice
from .delta import DeltaReader
from .wire import CHOICE_KEYS, CHUNK_KEYS, FILTER_RESULTS, METADATA_KEYS

__all__ = ["PlainChunk", "plain_delta", "stated_in"]


class _Function(msgspec.Struct, gc=False):
    arguments: str
    name: str | None = None


class _CallFragment(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A fragment of a call. What it had at other keys would go back with the call."""

    index: int
    function: _Function
    id: str | None = None
    type: str | None = None
    extra_content: None = None


_Text: TypeAlias = str | None
_Index: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_COUNT)]
_Calls: TypeAlias = Annotated[tuple[_CallFragment, ...], msgspec.Meta(max_length=1)] | None
_Empty: TypeAlias = Literal[""] | tuple[()] | Annotated[dict[str, Any], msgspec.Meta(max_length=0)] | None

_PIECES: dict[str, Any] = {"content": _Text, "tool_calls": _Calls}


def _struct(
    name: str, required: tuple[str, Any], optional: Iterable[tuple[str, Any, Any]], empty: Iterable[str]
) -> Any:
    """Return a struct with these fields, and with others that have to be empty."""
    others: list[Any] = [*optional, *((key, _Empty, None) for key in sorted(empty))]
    fields = [required, *others] if required[0] else others
    return msgspec.defstruct(name, fields, omit_defaults=True, gc=False)


_pieces = [(key, kind, None) for key, kind in _PIECES.items()]
_Delta = _struct("PlainDelta", ("", None), _pieces, DeltaReader.readers.keys() - {"role", *_PIECES})
_optional: list[Any] = [("index", _Index, 0), (FILTER_RESULTS, Any, None)]
_Choice = _struct("PlainChoice", ("delta", _Delta), _optional, CHOICE_KEYS)
_stated = [(key, Any, None) for key in METADATA_KEYS]
PlainChunk = _struct("PlainChunk", ("choices", GenericAlias(tuple, (_Choice,))), _stated, CHUNK_KEYS)
"""A chunk that is one piece."""

stated_in = attrgetter(*METADATA_KEYS)
"""What a plain chunk states about the entire answer."""


def plain_delta(choice: Choice, wire: Any) -> Delta | None:
    """Return the delta of a plain chunk's choice; None, or a LookupError, if it does more than extend one open
    message."""
    if wire.content_filter_results != choice.filter_results:
        return None
    if choice.has_changed:
        choice.update_plain_case()
    text, calls = wire.delta.content, wire.delta.tool_calls
    if calls:
        return None if text else _arguments(choice, *calls)
    return TextDelta(choice.text_id, text) if text and choice.text_id is not None else None


def _arguments(choice: Choice, fragment: _CallFragment) -> Delta | None:
    """Return the delta of a piece of an open call's arguments; None if there is more."""
    call, function = choice.calls.by_index[fragment.index], fragment.function
    if not (choice.takes_arguments and call.message_id and function.arguments):
        return None
    if (fragment.id and fragment.id != call.call_id) or (function.name and function.name != call.name):
        return None
    choice.calls.latest = call
    return ToolCallDelta(call.message_id, function.arguments)
