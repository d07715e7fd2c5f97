"""What a decoder remembers of one response: its items, and which of their parts are receiving deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...messages import Message
from ..held_values import NOTHING, HeldSize
from .item import Item
from .item_index import ItemIndex
from .item_types import PARTS
from .wire import DELTA_STRUCTS, DELTA_TYPES, SHELL_OUTPUT, TEXT_STREAMS, DeltaEvent, delta_decoder

__all__ = ["NO_TARGET", "DeltaTarget", "ResponseState"]


# By the stem of a delta's type (the type without `.delta`): the type, and the key at which such a delta has the part's index.
_DELTA_FORMS: dict[str, tuple[str, str]] = {
    stem: (f"{stem}.delta", TEXT_STREAMS[stem].index_key if stem in TEXT_STREAMS else "command_index")
    for stem in DELTA_STRUCTS
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
    """

    item_id: str | None
    decode: Callable[[bytes], Any]
    part_index: int | None
    output_index: int | None
    message_id: str
    event: Any
    type: str
    index_key: str

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


class ResponseState:
    """The state of one response.

    It begins with the first event of the response, and ends with its last; a `response.created` after that begins the
    next response of the same stream.

    Attributes:
        new_id: returns an unused message id.
        held: counts what its items hold.
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

    __slots__ = (
        "has_begun",
        "has_ended",
        "has_summaries",
        "held",
        "is_complete",
        "items",
        "latest_target",
        "new_id",
        "speech_ids",
        "targets",
    )

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.new_id = new_id
        self.held = HeldSize()
        self.reset()

    def reset(self) -> None:
        """Begin anew, because another response begins."""
        self.has_begun = False
        self.has_ended = False
        self.is_complete = False
        self.has_summaries = False
        self.items = ItemIndex(self.new_id)
        self.speech_ids: dict[type[Message], str] = NOTHING
        self.targets: dict[str | None, DeltaTarget] = {}
        self.latest_target = NO_TARGET

    def expect_deltas(self, item: Item, item_id: str, stem: str, index: int) -> None:
        """Let the fast path take the deltas of this open part that have the common form.

        Args:
            item_id: the `item_id` of its deltas, "" if they have none.
            stem: of the type of its deltas.
            index: the part's.
        """
        stream = TEXT_STREAMS[stem]
        if item_id:
            is_found = self.items.with_id(item_id) is item
        else:  # by the output_index alone
            is_found = item.output_index is not None and self.items.open_at(item.output_index) is item
            is_found = is_found and stem == "response.shell_call_command"
        if not is_found or item.is_done:
            return
        delta_index = index if stream.index_key else None
        message_id, event = item.parts.id_for(stream.part, index), PARTS[stream.part].message.delta_event
        self._add_target(item, item_id or None, stem, delta_index, message_id, event)

    def expect_outputs(self, item: Item, item_id: str, index: int, event: Any) -> None:
        """The same for what a command printed; `event` makes its events."""
        message_id = item.parts.by_part.get(("console", index))
        if message_id is not None and self.items.with_id(item_id) is item and not item.is_done:
            self._add_target(item, item_id, SHELL_OUTPUT, index, message_id, event)

    def _add_target(
        self, item: Item, key: str | None, stem: str, index: int | None, message_id: str, event: Any
    ) -> None:
        if key not in item.delta_item_ids:
            item.delta_item_ids += (key,)
        type, index_key = _DELTA_FORMS[stem]
        target = DeltaTarget(key, delta_decoder(stem), index, item.output_index, message_id, event, type, index_key)
        self.targets[key] = target
        self.latest_target = target.common_fields()

    def forget_targets(self, item: Item) -> None:
        """Let the tolerant path read the item's deltas again, because parts of it are done."""
        for item_id in item.delta_item_ids:
            target = self.targets.get(item_id)
            if target is not None and target.message_id in item.parts.by_id:
                del self.targets[item_id]
        item.delta_item_ids = ()
