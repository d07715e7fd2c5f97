"""Which output item an event belongs to.

Servers identify items differently: by `item_id`, which some of them change with every event, by `output_index`, which
some of them repeat, by both, or by neither. An event belongs to the first of these that there is:

1. the item with its id, unless both have an output_index and these differ, or it is done and has another call_id;
2. the item of its type at its output_index, if that is not done, and has no other call_id;
3. the call with its call_id, if that is not done;
4. the item of its type at its output_index, if that is not done;
5. if it has neither id nor output_index: the latest item of its type that is not done;
6. the item with its id, if that is not done, although the output_index differs.

If there is none, the event begins an item. Which items a response's final output lists again is in `..final_forms`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...core.unique_ids import UniqueIds
from ...messages import Message
from ..held_values import HeldSize
from ..values import WireObject, as_count, as_text
from .item import Item
from .wire import TEXT_STREAMS

__all__ = ["ItemIndex", "ResponseState"]


class ItemIndex(msgspec.Struct, eq=False):
    """The output items of one response, in the order in which they began.

    Attributes:
        new_id: returns an unused message id.
        items: the items.
        by_id: the latest by each id: its own, and that which the provider gives it. With None it is the item to which a plain
            delta without an id belongs, if it fits: the deltas of shell commands have none.
        is_stored: whether the provider stores the response.
    """

    new_id: Callable[[], str]
    items: list[Item] = []
    by_id: dict[str | None, Item] = {}
    is_stored: bool = True
    _by_call_id: dict[str, Item] = {}
    _by_index: dict[tuple[int, str], Item] = {}  # the latest by output_index and type; with "" that of any type
    _open_of_type: dict[str, list[Item]] = {}  # without done items at the end
    _reasoning_id: str = ""  # of the newest reasoning item

    def add(self, id: str, type: str, output_index: int | None, call_id: str = "") -> Item:
        """Return a new item. It has this id, unless that is empty or another item has it."""
        earlier = self._earlier(id, type, output_index, call_id)
        own_id = UniqueIds(self.by_id).free(id) if id else self.made_id()
        item = Item(own_id, type, output_index)
        item.received_id = id
        if earlier is not None:
            item.earlier = earlier
        item.is_stored = self.is_stored
        item.reasoning_id = self._reasoning_id
        if type == "reasoning":
            self._reasoning_id = own_id
        self.by_id.pop(None, None)
        self.items.append(item)
        self.by_id[own_id] = self.by_id[id or own_id] = item
        self._open_of_type.setdefault(type, []).append(item)
        if output_index is not None:
            self._by_index[output_index, type] = self._by_index[output_index, ""] = item
        if call_id:
            self._by_call_id[call_id] = item
        return item

    def _earlier(self, id: str, type: str, output_index: int | None, call_id: str) -> Item | None:
        """Return the item that a new one may repeat: a done one of its type with its id; or with its call_id, if the
        new one has no id or is at the same output_index."""
        item = self.by_id.get(id)
        if item is None and (called := self._by_call_id.get(call_id)) is not None:
            item = called if not id or output_index == called.output_index else None
        return item if item is not None and item.is_done and item.type == type else None

    def made_id(self) -> str:
        """Return an id that no item has."""
        return UniqueIds(self.by_id).free(self.new_id())

    def begin(self, wire: WireObject, output_index: int | None) -> Item:
        """Return the item that begins: a new one, unless its parts came before it."""
        id, type, call_id = _identity(wire)
        item = self.by_id.get(id)
        if item is None or item.is_done or item.type != type or item.output_index not in (None, output_index):
            return self.add(id, type, output_index, call_id)
        return item

    def add_form(self, wire: WireObject) -> Item:
        """Return a new item for this final form."""
        id, type, call_id = _identity(wire)
        return self.add(id, type, None, call_id)

    def open_at(self, output_index: int, type: str = "") -> Item | None:
        """Return the latest item at this output_index, of this type if one is wanted, if it is not done."""
        item = self._by_index.get((output_index, type))
        return None if item is None or item.is_done else item

    def of_form(self, wire: WireObject, output_index: int | None) -> Item:
        """Return the item that a form of it belongs to."""
        id, type, call_id = _identity(wire)
        return self._find(id, type, output_index, call_id)

    def of_event(self, event: WireObject, type: str) -> Item:
        """Return the item that an event about a part belongs to. The event's type implies the item's."""
        id, output_index = as_text(event.get("item_id")), as_count(event.get("output_index"))
        item = self.by_id.get(id)
        if item is not None and item.output_index == output_index:
            return item
        return self._find(id, type, output_index)

    def expect_deltas(self, item: Item, stem: str, index: int) -> None:
        """Let deltas of this part be plain, if it is open. `stem` is that of their type."""
        item.expect_deltas(stem, index)
        self.by_id.pop(None, None)
        if self._find_by_type("", TEXT_STREAMS[stem].item, item.output_index) is item:
            self.by_id[None] = item

    def _find(self, id: str, type: str, output_index: int | None, call_id: str = "") -> Item:
        """Return the item of this id, type and output_index, by the rule of the module."""
        item = self.by_id.get(id)
        is_there = item is not None and (output_index in (None, item.output_index) or item.output_index is None)
        if item is not None and is_there and not (item.is_done and not _may_be(item, call_id)):
            return item
        other = self._find_by_type(id, type, output_index)
        if call_id and (other is None or not _may_be(other, call_id)):
            called = self._by_call_id.get(call_id)
            other = called if called is not None and called.type == type and not called.is_done else other
        if other is None and item is not None and not item.is_done:
            other = item
        return other or self.add(id, type, output_index, call_id)

    def _find_by_type(self, id: str, type: str, output_index: int | None) -> Item | None:
        """Return the item of this type that is open at the output_index; the latest one that is not done, if there is
        neither an id nor an output_index."""
        if output_index is not None:
            there = self.open_at(output_index, type) or self.open_at(output_index)
            return there if there is not None and there.type == type else None
        return None if id else self._latest(type)

    def _latest(self, type: str) -> Item | None:
        """Return the latest item of this type that is not done."""
        items = self._open_of_type.get(type, [])
        while items and items[-1].is_done:
            items.pop()
        return items[-1] if items else None


class ResponseState(msgspec.Struct, eq=False):
    """The state of one response.

    It begins with the first event of the response, and ends with its last; a `response.created` after that begins the
    next response of the same stream.

    Attributes:
        items: its items.
        has_begun: whether the run has begun.
        has_ended: whether the run has ended.
        is_complete: whether the terminal rule is met.
        has_summaries: whether the request wanted summaries of the reasoning.
        speech_ids: the open messages of its speech and of the transcript, which belong to no item.
        held: counts what its items hold.
    """

    items: ItemIndex
    has_begun: bool = False
    has_ended: bool = False
    is_complete: bool = False
    has_summaries: bool = False
    speech_ids: dict[type[Message], str] = {}
    held: HeldSize = msgspec.field(default_factory=HeldSize)

    def reset(self) -> None:
        """Begin anew, because another response begins."""
        self.has_begun = self.has_ended = self.is_complete = self.has_summaries = False
        self.items = ItemIndex(self.items.new_id)
        self.speech_ids.clear()


def _identity(wire: WireObject) -> tuple[str, str, str]:
    """Return the id, the type and the call_id of a form of an item, "" for each that it lacks."""
    return as_text(wire.get("id")), as_text(wire.get("type")), as_text(wire.get("call_id"))


def _may_be(item: Item, call_id: str) -> bool:
    """Whether an item has no other call_id."""
    return not call_id or item.call_id in ("", call_id)
