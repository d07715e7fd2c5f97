"""What a decoder remembers of one response: its items, and which of their parts are receiving deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ...messages import Message
from ..held_values import HeldSize
from ..values import WireObject
from .item import Item
from .item_index import ItemIndex
from .item_types import PARTS
from .wire import DELTA_TYPES, SHELL_OUTPUT, TEXT_STREAMS, DeltaEvent, delta_decoder

__all__ = ["NO_TARGET", "DeltaTarget", "ResponseState"]

_COMMAND = "response.shell_call_command"  # the stem of deltas that may have no `item_id`


class _DeltaForm(NamedTuple):
    """What the deltas of a type have in common: the part that they extend, and how they are read.

    Attributes:
        part: its kind.
        index_key: where such a delta has the part's index, "" if the item has one such part only.
        type: their type.
        event: makes their events: the class of these; None if `expect_deltas` is called with what makes them.
    """

    part: str
    index_key: str
    type: str
    event: Any


# By the stem of the type of deltas: the type without `.delta`.
_DELTA_FORMS = {
    SHELL_OUTPUT: _DeltaForm("console", "command_index", f"{SHELL_OUTPUT}.delta", None),
    **{
        stem: _DeltaForm(stream.part, stream.index_key, f"{stem}.delta", PARTS[stream.part].message.delta_event)
        for stem, stream in TEXT_STREAMS.items()
    },
}


class DeltaTarget(msgspec.Struct, gc=False):
    """An open part that the fast path takes deltas for: what these deltas have in common, and what they become.

    Attributes:
        item_id: the `item_id` of its deltas; None if they have none.
        decode: decodes a delta of its type, and raises for any other frame.
        part_index: the part's index in its deltas, None if they have none.
        output_index: the item's.
        message_id: the part's message.
        event: the class of its delta events.
        type: the type of its deltas.
        index_key: where its deltas have the part's index, "" if they have none.
        item: the item that it is a part of.
    """

    item_id: str | None
    decode: Callable[[bytes], Any]
    part_index: int | None
    output_index: int | None
    message_id: str
    event: Any
    type: str
    index_key: str
    item: Item

    def common_fields(self) -> tuple[Any, ...]:
        """What all deltas of the part have in common, and what makes events of them, for the fast path to unpack."""
        return self.item_id, self.decode, self.part_index, self.output_index, self.message_id, self.event

    def takes(self, delta: Any) -> bool:
        """Whether a delta with the part's `item_id` is one of its deltas."""
        return (
            self.type == DELTA_TYPES[type(delta)]
            and delta.index == self.part_index
            and delta.output_index == self.output_index
        )


_UNMATCHED_DELTA = DeltaEvent(None, "")


def _decode_nothing(data: Any) -> DeltaEvent:
    return _UNMATCHED_DELTA


NO_TARGET: tuple[Any, ...] = ("", _decode_nothing, None, None, "", None)
"""The `common_fields` of the latest target while there is none. They match no delta."""


class _NoIds(dict[type[Message], str]):
    """An empty dict that all structs share as a default. (Of a plain dict, msgspec would make a copy for each struct.)"""


_NO_IDS = _NoIds()


class ResponseState(msgspec.Struct, eq=False):
    """The state of one response.

    It begins with the first event of the response, and ends with its last; a `response.created` after that begins the
    next response of the same stream.

    Attributes:
        new_id: returns an unused message id.
        has_begun: whether the run has begun.
        has_ended: whether the run has ended.
        is_complete: whether the terminal rule is met.
        has_summaries: whether the request wanted summaries of the reasoning.
        items: its items.
        speech_ids: the open messages of its speech and of the transcript, which belong to no item.
        targets: the open parts that the fast path takes deltas for, by `item_id`; at None the one whose deltas have none.
        latest_target: the `common_fields` of the target that received the latest delta, or that has just begun to receive
            deltas.
    """

    new_id: Callable[[], str]
    items: ItemIndex
    has_begun: bool = False
    has_ended: bool = False
    is_complete: bool = False
    has_summaries: bool = False
    speech_ids: dict[type[Message], str] = _NO_IDS
    targets: dict[str | None, DeltaTarget] = {}
    latest_target: tuple[Any, ...] = NO_TARGET
    _held: HeldSize | None = None  # most responses have nothing that is held

    def reset(self) -> None:
        """Begin anew, because another response begins."""
        self.has_begun = self.has_ended = self.is_complete = self.has_summaries = False
        self.items = ItemIndex(self.new_id)
        self.speech_ids = _NO_IDS
        self.forget_all_targets()

    def hold(self, values: WireObject) -> int:
        """Count values that an item holds. Returns as `HeldSize.add`."""
        if self._held is None:
            self._held = HeldSize()
        return self._held.add(values)

    def expect_deltas(self, item: Item, item_id: str, stem: str, index: int, make_event: Any = None) -> None:
        """Let the fast path take the deltas of this part that have the common form, if it is open.

        Args:
            item_id: the `item_id` of its deltas, "" if they have none.
            stem: of the type of its deltas.
            index: the part's.
            make_event: makes an event of a delta; None for the class of the message's delta events.
        """
        part, index_key, type, delta_event = _DELTA_FORMS[stem]
        message_id = item.parts.by_part.get((part, index))
        if message_id is None or item.is_done:
            return
        if self.items.with_id(item_id) is not item and not (
            stem == _COMMAND and self._is_found_by_place(item, item_id)
        ):
            return
        key, decode, output_index = item_id or None, delta_decoder(stem), item.output_index
        delta_index, event = index if index_key else None, make_event or delta_event
        if key not in item.delta_item_ids:
            item.delta_item_ids += (key,)
        self.targets[key] = DeltaTarget(
            key, decode, delta_index, output_index, message_id, event, type, index_key, item
        )
        self.latest_target = key, decode, delta_index, output_index, message_id, event

    def _is_found_by_place(self, item: Item, item_id: str) -> bool:
        """Whether events with this `item_id`, which is empty, belong to the item by their output_index."""
        return not item_id and item.output_index is not None and self.items.open_at(item.output_index) is item

    def forget_targets(self, item: Item) -> None:
        """Let the tolerant path read the item's deltas again, because parts of it are done."""
        targets = self.targets
        for item_id in item.delta_item_ids:
            target = targets.get(item_id)
            if target is not None and target.item is item:
                del targets[item_id]
        item.delta_item_ids = ()

    def forget_all_targets(self) -> None:
        """Let the tolerant path read all deltas again."""
        self.targets.clear()
        self.latest_target = NO_TARGET
