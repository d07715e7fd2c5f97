"""Which output item an event belongs to.

Servers identify items differently: by `item_id`, which some of them change with every event, by `output_index`, which
some of them repeat, by both, or by neither. An event belongs to the first of these that there is:

1. the item with its id, unless both have an output_index and these differ;
2. the item of its type at its output_index, if that is not done;
3. if it has neither id nor output_index: the latest item of its type that is not done;
4. the item with its id, although the output_index differs.

If there is none, the event begins an item.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from ...core.unique_ids import UniqueIds
from .fields import EventFields
from .item import Item

__all__ = ["ItemIndex", "UnmatchedItems"]


class ItemIndex(msgspec.Struct, eq=False):
    """The output items of one response, in the order in which they began.

    Attributes:
        items: the items.
        is_stored: whether the provider stores the response.
    """

    _new_id: Callable[[], str]
    items: list[Item] = []
    is_stored: bool = True
    _by_id: dict[str, Item] = {}
    _reasoning_id: str = ""  # of the newest reasoning item
    # Made when they are needed: most servers say by an id which item an event belongs to.
    _made_by_output_index: dict[int, Item] | None = None
    _made_by_type: dict[str, list[Item]] | None = None  # without done items at the end

    def add(self, id: str, type: str, output_index: int | None) -> Item:
        """A new item. It has this id, unless that is empty or another item that is not done has it."""
        own_id = id or self.made_id()
        other = self._by_id.get(own_id)
        if other is not None and not other.is_done:
            own_id = f"{own_id}.{len(self.items)}"
        item = Item(own_id, type, output_index)
        if not self.is_stored:
            item.is_stored = False
        if self._reasoning_id:
            item.reasoning_id = self._reasoning_id
        if type == "reasoning":
            self._reasoning_id = own_id
        self.items.append(item)
        self._by_id[id or own_id] = item
        if self._made_by_type is not None:
            self._made_by_type.setdefault(type, []).append(item)
        if self._made_by_output_index is not None and output_index is not None:
            self._made_by_output_index[output_index] = item
        return item

    def made_id(self) -> str:
        """An id that no item has."""
        return UniqueIds(self._by_id).free(self._new_id())

    @property
    def _by_output_index(self) -> dict[int, Item]:
        if (made := self._made_by_output_index) is None:
            made = {item.output_index: item for item in self.items if item.output_index is not None}
            self._made_by_output_index = made
        return made

    @property
    def _by_type(self) -> dict[str, list[Item]]:
        if (made := self._made_by_type) is None:
            self._made_by_type = made = dict[str, list[Item]]()
            for item in self.items:
                made.setdefault(item.first_type, []).append(item)
        return made

    def begin(self, id: str, type: str, output_index: int | None) -> Item:
        """The item that begins: a new one, unless its parts came before it."""
        item = self._by_id.get(id)
        if item is None or item.is_done or item.type != type or item.output_index not in (None, output_index):
            return self.add(id, type, output_index)
        return item

    def with_id(self, id: str) -> Item | None:
        """The latest item with this id."""
        return self._by_id.get(id)

    def open_at(self, output_index: int) -> Item | None:
        """The latest item at this output_index, if it is not done."""
        item = self._by_output_index.get(output_index)
        return None if item is None or item.is_done else item

    def find_or_add(self, id: str, type: str, output_index: int | None) -> Item:
        """The item of this id, type and output_index, by the rule of the module."""
        item = self._by_id.get(id)
        if item is not None and (
            output_index == item.output_index or output_index is None or item.output_index is None
        ):
            return item
        return self._find_otherwise(id, type, output_index) or item or self.add(id, type, output_index)

    def of_event(self, event: EventFields, type: str) -> Item:
        """The item that an event about a part belongs to. The event's type implies the item's."""
        item = self._by_id.get(event.item_id or "")
        if item is not None and item.output_index == event.output_index:
            return item
        return self.find_or_add(event.item_id or "", type, event.output_index)

    def _find_otherwise(self, id: str, type: str, output_index: int | None) -> Item | None:
        """The item of this type that is open at the output_index; the latest one that is not done, if there is neither an id nor an
        output_index."""
        if output_index is not None:
            there = self.open_at(output_index)
            return there if there is not None and there.type == type else None
        return None if id else self._latest(type)

    def _latest(self, type: str) -> Item | None:
        """The latest item of this type that is not done."""
        items = self._by_type.get(type, [])
        while items and items[-1].is_done:
            items.pop()
        return items[-1] if items else None


class UnmatchedItems:
    """The items that a response's final output does not name by their ids, for servers that change all ids."""

    def __init__(self, items: Iterable[Item], matched: Iterable[Item | None]) -> None:
        matched_objects = {id(item) for item in matched}
        self._taken: set[int] = set()
        self._left: dict[tuple[str, str], deque[Item]] = {}  # by type and call id; with "" those of any call
        for item in items:
            if id(item) not in matched_objects:
                for call_id in {"", item.call_id}:
                    self._left.setdefault((item.type, call_id), deque()).append(item)

    def take(self, type: str, call_id: str) -> Item | None:
        """The first that is left of this type and of this call; of any call for ""."""
        left = self._left.get((type, call_id))
        while left:
            item = left.popleft()
            if id(item) not in self._taken:
                self._taken.add(id(item))
                return item
        return None
