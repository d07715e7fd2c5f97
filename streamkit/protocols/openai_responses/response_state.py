"""What a decoder remembers of one response: its items, and which of their parts are receiving deltas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...events import StreamWarning
from ...messages import Message
from .item import Item
from .item_index import ItemIndex
from .wire import DELTA_DECODERS, DeltaEvent

__all__ = ["NO_TARGET", "DeltaTarget", "ResponseState"]


class DeltaTarget(NamedTuple):
    """An open part, as the deltas in their common form address it, and what such a delta becomes.

    Attributes:
        item_id: the `item_id` of its deltas, None for a target that no delta matches.
        decode: decodes a delta of its type, and raises for any other frame.
        part_index: the part's index in its deltas, None if they have none.
        output_index: the item's.
        message_id: the part's message.
        event: the class of its delta events.
    """

    item_id: str | None
    decode: Callable[[Any], Any]
    part_index: int | None = None
    output_index: int | None = None
    message_id: str = ""
    event: Any = None

    def takes(self, delta: Any) -> bool:
        """Whether a delta with the part's `item_id` is one of its deltas."""
        return (
            self.decode is DELTA_DECODERS[type(delta)]
            and delta.index == self.part_index
            and delta.output_index == self.output_index
        )


_UNMATCHED_DELTA = DeltaEvent("", "")


def _decode_nothing(data: Any) -> DeltaEvent:
    return _UNMATCHED_DELTA


NO_TARGET: tuple[Any, ...] = tuple(DeltaTarget(None, _decode_nothing))
"""The latest target while there is none. A plain tuple, which is unpacked faster."""


class ResponseState:
    """The state of one response.

    It begins with the first event of the response, and ends with its last; a `response.created` after that begins the
    next response of the same stream.

    Attributes:
        new_id: returns an unused message id.
        warn: makes a warning of a code, a fault and the kind of what is at fault.
        has_begun: whether the run has begun.
        has_ended: whether the run has ended.
        is_complete: whether the terminal rule is met.
        has_summaries: whether the request wanted summaries of the reasoning.
        items: its items.
        speech_ids: the open messages of its speech and of the transcript, which belong to no item.
        targets: the open parts that receive deltas, by `item_id`.
        latest_target: the one that received the latest delta, as a plain tuple.
    """

    def __init__(self, new_id: Callable[[], str], warn: Callable[[str, str, Any], StreamWarning]) -> None:
        self.new_id = new_id
        self.warn = warn
        self.reset()

    def reset(self) -> None:
        """Begin anew, because another response begins."""
        self.has_begun = False
        self.has_ended = False
        self.is_complete = False
        self.has_summaries = False
        self.items = ItemIndex(self.new_id, self.warn)
        self.speech_ids: dict[type[Message], str] = {}
        self.targets: dict[str, DeltaTarget] = {}
        self.latest_target = NO_TARGET

    def forget_targets(self, item: Item) -> None:
        """Stop deltas from reaching the item by the fast path, because parts of it are done."""
        for item_id in item.delta_item_ids:
            target = self.targets.get(item_id)
            if target is not None and target.message_id in item.parts.by_id:
                del self.targets[item_id]
        item.delta_item_ids.clear()
