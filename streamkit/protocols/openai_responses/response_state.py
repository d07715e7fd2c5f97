"""The state of one response: its items, and which of their parts are receiving deltas."""

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
from .wire import PLAIN_DELTAS, TEXT_STREAMS

__all__ = ["DeltaTarget", "ResponseState"]


class DeltaTarget(NamedTuple):
    """An open part that takes plain deltas.

    Attributes:
        kind: the struct of these.
        output_index: theirs.
        part_index: theirs.
        message_id: the part's message.
        event: the class of their events.
        item: the item that it is a part of.
    """

    kind: type[Any]
    output_index: int | None
    part_index: int
    message_id: str
    event: Any
    item: Item


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
        targets: the open parts that take plain deltas, by their `item_id`.
    """

    new_id: Callable[[], str]
    items: ItemIndex
    has_begun: bool = False
    has_ended: bool = False
    is_complete: bool = False
    has_summaries: bool = False
    speech_ids: dict[type[Message], str] = {}
    targets: dict[str | None, DeltaTarget] = {}
    _held: HeldSize = msgspec.field(default_factory=HeldSize)

    def reset(self) -> None:
        """Begin anew, because another response begins."""
        self.has_begun = self.has_ended = self.is_complete = self.has_summaries = False
        self.items = ItemIndex(self.new_id)
        self.speech_ids.clear()
        self.targets.clear()

    def hold(self, values: WireObject) -> int:
        """Count values that an item holds. Returns as `HeldSize.add`."""
        return self._held.add(values)

    def expect_deltas(self, item: Item, item_id: str, stem: str, index: int) -> None:
        """Let deltas of this part be plain, if it is open.

        Args:
            item_id: the `item_id` of its deltas, "" if they have none.
            stem: of the type of its deltas.
            index: the part's.
        """
        part = TEXT_STREAMS[stem].part
        message_id = item.parts.by_part.get((part, index))
        if message_id is None or item.is_done or not item_id or self.items.with_id(item_id) is not item:
            return
        if item_id not in item.delta_item_ids:
            item.delta_item_ids += (item_id,)
        self.targets[item_id] = DeltaTarget(
            PLAIN_DELTAS[stem], item.output_index, index, message_id, PARTS[part].message.delta_event, item
        )

    def forget_targets(self, item: Item) -> None:
        """Let the item's deltas be plain no more, because parts of it are done."""
        targets = self.targets
        for item_id in item.delta_item_ids:
            target = targets.get(item_id)
            if target is not None and target.item is item:
                del targets[item_id]
        item.delta_item_ids = ()
