"""The ids of the messages that the parts of one output item become.

The first part's message has the item's id, the others have ids made from it. So an item gives the same ids whether it
is streamed, repeated at the response's end, or not streamed at all.
"""

from __future__ import annotations

import msgspec

from .item_types import PARTS

__all__ = ["PartIds"]


class PartIds(msgspec.Struct, eq=False):
    """The message ids of one item's parts, for the decoder, and for the encoder to predict what a decoder will make.

    Attributes:
        item_id: the id of the item.
        by_part: the message ids, by kind and index.
        by_id: for each message id that a part has or had, the number, the kind and the index of its part, in the order in which
            parts came.
        is_reserved: whether the item's id is that of a message which is open, but not known to be any part.
    """

    item_id: str
    by_part: dict[tuple[str, int], str] = {}
    is_reserved: bool = False
    by_id: dict[str, tuple[int, str, int]] = {}

    def reserve(self) -> None:
        """The part that has the item's id is not known after all: the next one has it, whatever it is."""
        self.by_part.clear()
        self.by_id.clear()
        self.is_reserved = True

    def assign(self, kind: str, index: int, id: str) -> None:
        """Give a part this id."""
        self.is_reserved = False
        self.by_id.setdefault(id, (len(self.by_id), kind, index))
        self.by_part[kind, index] = id

    def id_for(self, kind: str, index: int) -> str:
        """Return the id of a part: the one it has, or the one that it would be assigned next."""
        assigned = self.by_part.get((kind, index))
        if assigned is not None:
            return assigned
        if self.is_reserved:
            return self.item_id
        if pattern := PARTS[kind].id_pattern:
            return pattern.format(id=self.item_id, index=index)
        # Some servers do not begin the indexes of an item at 0, so the first part counts as the one at 0.
        if not self.by_part:
            return self.item_id
        id = self.item_id if index == 0 else f"{self.item_id}.{index}"
        return f"{self.item_id}.{kind}.{index}" if id in self.by_id else id

    def ensure(self, kind: str, index: int) -> str:
        """Return the id of a part, which is assigned to it if it has none yet."""
        return self.by_part.get((kind, index)) or self.add(kind, index)

    def add(self, kind: str, index: int) -> str:
        """Assign an id to a part that has none yet. Returns the id."""
        id = self.id_for(kind, index)
        self.assign(kind, index, id)
        return id
