"""The content blocks of one answer: those that are open, and those that stopped without it being certain how.

A block that stopped may have been cut short, which shows only later. A text or thinking, and a call whose input all came
with its start, was complete if another block follows. A call without complete arguments stays uncertain until the
message ends, as no block after it says that it is complete. If the message ends for a reason of the model's own, the
arguments are all that there are. If it was cut short, failed, or reached a limit, the call is not completed, so that nobody
executes a part of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import messages as m
from ...core.unique_ids import UniqueIds
from ...events import Event, RawEvent
from ..values import WireObject, as_index, as_object, as_text, without_keys
from .blocks import BLOCK_OF_DELTA, CALL_BLOCKS, GROWING_BLOCKS, Block, CallBlock, CompactionBlock, Doubt, FastWay
from .wire import CODE_TOOLS, STATUS_OF_STOP_REASON

__all__ = ["ContentBlocks", "MessageIds", "Warn"]

Warn = Callable[[str, str], None]
"""Called with the code and the fault of a warning."""


# In the place of what most answers have none of: nothing is added to these.
_NONE: set[int] = set()
_NO_NAMES: dict[str, str] = {}


class MessageIds:
    """The message ids of all answers of one stream, and the names of the tools that they called."""

    __slots__ = ("_used", "new_id", "tool_names")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.new_id = new_id
        self.tool_names = _NO_NAMES
        self._used = UniqueIds()

    def id_of(self, id: str, group: str | None, index: int) -> str:
        """The id of a block's message: the provider's own for it, else made from that of the answer."""
        if not id:
            id = self.new_id() if group is None else group if index == 0 else f"{group}.{index}"
        return self._used.unused(id)

    def add_name(self, call_id: str, name: str) -> None:
        """Note the name of the tool that this call calls."""
        if self.tool_names is _NO_NAMES:
            self.tool_names = {}
        self.tool_names[call_id] = name

    def refusal(self, group: str | None) -> str:
        """The id for the explanation of a refusal."""
        return self._used.unused(f"{group}.refusal" if group else self.new_id())


class ContentBlocks:
    """The content blocks of one answer, by their index in it.

    A delta belongs to the block at its index. One that this block cannot have gets a block of its own beside it, so there
    may be several open blocks at one index.

    Methods with `events` add to these what the current item makes.

    Attributes:
        growing: what the fast path may read, by index. Only the first block at an index is here.
        group: the provider's id of the answer, None if it has none.
        stop_reason: the provider's reason for the end, None until it is known.
        is_ending: whether the answer is at its end, so that a block that stops is done at once.
    """

    __slots__ = (
        "_ids",
        "_newest",
        "_open",
        "_stopped",
        "_unknown",
        "_warn",
        "group",
        "growing",
        "is_ending",
        "stop_reason",
    )

    def __init__(self, ids: MessageIds, warn: Warn) -> None:
        self.growing: dict[int, FastWay] = {}
        self.group: str | None = None
        self.stop_reason: str | None = None
        self.is_ending = False
        self._ids = ids
        self._warn = warn
        self._open: dict[int, tuple[Block, ...]] = {}
        self._unknown = _NONE  # the indexes of open blocks of unknown types
        self._stopped: Sequence[tuple[Block, Doubt]] = ()  # blocks that are not done, as they may have been cut short
        self._newest = -1

    # -- how blocks end

    @property
    def status(self) -> m.Status:
        """The status of an answer that ended for `stop_reason`."""
        return STATUS_OF_STOP_REASON.get(self.stop_reason or "", "completed")

    def release(self, events: list[Event]) -> None:
        """The blocks that stopped are done, now that the stop_reason has come."""
        if self._stopped:
            stopped, self._stopped, status = self._stopped, (), self.status
            for block, _ in stopped:
                block.end(status, events)

    def end(self, events: list[Event]) -> m.Status:
        """All blocks are done, as the answer is over. Returns its status.

        Without a stop_reason, a call with partial arguments may have been cut short, and the answer with it.
        """
        status = self.status
        if not self._stopped and not self._open:
            return status
        partial: m.Status = "incomplete" if self.stop_reason is None else status
        opened = [block.doubt() for blocks in self._open.values() for block in blocks]
        has_partial = "partial" in opened or any(doubt == "partial" for _, doubt in self._stopped)
        self._release(events, status, partial, status)
        self._end_open(events, status, partial)
        return partial if has_partial else status

    def cut(self, status: m.Status, events: list[Event]) -> None:
        """All blocks are done, as the answer goes no further, though nothing said that it is over."""
        if self._stopped or self._open:
            self._release(events, "completed", status, status)
            self._end_open(events, status, status)

    def _release(self, events: list[Event], status: m.Status, partial: m.Status, empty: m.Status) -> None:
        """Blocks that stopped are done; calls with `partial` arguments and with `empty` ones with a status of their own."""
        stopped, self._stopped = self._stopped, ()
        for block, doubt in stopped:
            block.end(partial if doubt == "partial" else empty if doubt == "empty" else status, events)

    def _end_open(self, events: list[Event], status: m.Status, partial: m.Status) -> None:
        self.growing.clear()
        opened, self._open = self._open, {}
        for blocks in opened.values():
            for block in blocks:
                block.end(partial if block.doubt() == "partial" else status, events)

    def _block_follows(self, events: list[Event]) -> None:
        """Another block follows those that stopped: only calls without complete arguments stay uncertain."""
        for block, doubt in self._stopped:
            if not doubt:
                block.end("completed", events)
        self._stopped = [(block, doubt) for block, doubt in self._stopped if doubt]

    # -- the items about blocks

    def add_complete(self, wire: WireObject, index: int, events: list[Event]) -> None:
        """A block that the answer has in it from the beginning."""
        self._release(events, "completed", "completed", "completed")  # the one before was not the last one
        self._begin(wire, index, wire, events)
        self._unknown.discard(index)
        self._close(index, events)

    def start(self, item: WireObject, events: list[Event]) -> None:
        """A `content_block_start`."""
        index = as_index(item.get("index"), self._warn)
        if index is None:
            index = self._index_of_newest(item) + 1
        if index in self._open:
            self._warn("duplicate-block", f"another block began at index {index}; the one there was ended")
            self._close(index, events)
        if self._unknown:
            self._unknown.discard(index)
        self._begin(as_object(item.get("content_block")), index, item, events)

    def delta(self, item: WireObject, events: list[Event]) -> None:
        """A `content_block_delta`."""
        delta = as_object(item.get("delta"))
        index = as_index(item.get("index"), self._warn)
        if index is None:
            index = max(self._index_of_newest(item), 0)
        way = self.growing.get(index)
        if way is not None and delta.get("type") == way[3] and delta.get(way[4]) == "":
            return  # as the first piece of the arguments of each call
        type = "" if index in self._unknown else self._delta_type(delta)
        if type not in BLOCK_OF_DELTA:
            events.append(RawEvent("content_block_delta", item))
            return
        for block in self._open.get(index, ()):
            if block.accepts(type):
                break
        else:
            how = "which has no such deltas" if index in self._open else "which never began, or has ended"
            self._warn("stray-delta", f"{type} came for the block at index {index}, {how}; it begins another block")
            self._newest = max(index, self._newest)
            block = self._add({}, BLOCK_OF_DELTA[type], index, events)
        self._grow(block, type, delta, events)

    def stop(self, item: WireObject, events: list[Event]) -> None:
        """A `content_block_stop`."""
        index = as_index(item.get("index"), self._warn)
        if index is None:
            index = max(self._index_of_newest(item), 0)
        if index in self._unknown:
            self._unknown.discard(index)
            events.append(RawEvent("content_block_stop", item))
        else:
            self._close(index, events)

    # -- their steps

    def _index_of_newest(self, item: WireObject) -> int:
        """The newest block's index, for an item without one that can be read; -1 if there is no block."""
        if item.get("index") is None:
            self._warn("bad-index", "it has no index; the newest block's was used")
        return self._newest

    def _delta_type(self, delta: WireObject) -> str:
        """The type of a delta. One without a type is of the type whose text it has."""
        if isinstance(type := delta.get("type"), str):
            return type
        for growth in GROWING_BLOCKS.values():
            if growth.struct is not None and isinstance(delta.get(growth.key), str):
                self._warn("no-delta-type", f"its delta has no type; read as {growth.delta}")
                return growth.delta
        return ""

    def _begin(self, wire: WireObject, index: int, item: WireObject, events: list[Event]) -> None:
        """A block begins, or comes complete."""
        if self._stopped:
            self._block_follows(events)
        self._newest = index
        type = as_text(wire.get("type"))
        if type in GROWING_BLOCKS:
            self._add(wire, type, index, events)
            return
        from .results import complete_block_events  # most answers have no such block

        id, place = self._ids.id_of("", self.group, index), {"group": self.group, "index": index}
        found = complete_block_events(wire, type, id, place, self._ids.tool_names)
        if found is not None:
            events += found
            return
        self._unknown = self._unknown or set()
        self._unknown.add(index)
        events.append(RawEvent(as_text(item.get("type")) or type or "content_block", item))

    def _add(self, wire: WireObject, type: str, index: int, events: list[Event]) -> Block:
        """A block that grows begins."""
        place = {"group": self.group, "index": index}
        block = self._call(wire, type, place) if type in CALL_BLOCKS else self._text(wire, type, place)
        block.begin(wire, events)
        if index in self._open:
            self._open[index] += (block,)
            return block
        self._open[index] = (block,)
        if (way := block.fast_way()) is not None:
            self.growing[index] = way
        return block

    def _text(self, wire: WireObject, type: str, place: dict[str, Any]) -> Block:
        """A block that is no call."""
        id = self._ids.id_of("", self.group, place["index"])
        if type == "text":
            return Block(type, id, place, m.TextMessage, {})
        if type == "compaction":
            return CompactionBlock(type, id, place, without_keys(wire, "type", "content"))
        signature = as_text(wire.get("signature"))
        return Block(type, id, place, m.ReasoningMessage, {"signature": signature} if signature else {})

    def _call(self, wire: WireObject, type: str, place: dict[str, Any]) -> CallBlock:
        """A call. Its name is noted for its result."""
        call_id, name = as_text(wire.get("id")), as_text(wire.get("name"))
        if call_id:
            self._ids.add_name(call_id, name)
        else:
            self._warn("no-call-id", "a call has no id; it cannot be answered")
        id = self._ids.id_of(call_id, self.group, place["index"])
        metadata = without_keys(wire, "type", "id", "name", "input")
        fields = {**place, "name": name or None, "call_id": call_id or None}
        if type == "server_tool_use" and name in CODE_TOOLS:
            from .code_block import CodeBlock  # few answers have code that the provider runs

            return CodeBlock(type, id, fields, metadata, wire.get("input"), name)
        if CALL_BLOCKS[type]:
            metadata["block_type"] = type
            fields["provider_executed"] = True
        return CallBlock(type, id, fields, m.ToolCallMessage, metadata, wire.get("input"))

    def _grow(self, block: Block, type: str, delta: WireObject, events: list[Event]) -> None:
        match type:
            case "signature_delta":
                if signature := as_text(delta.get("signature")):
                    block.metadata["signature"] = signature
            case "citations_delta":
                block.cite(as_object(delta.get("citation")), events)
            case _:
                value = block.text_in(delta)
                if value is not None and not isinstance(value, str):
                    self._warn("bad-delta", "its delta is not text and was skipped")
                block.grow(delta, events)

    def _close(self, index: int, events: list[Event]) -> None:
        """The blocks at an index stop. Those that are certainly complete are done."""
        self.growing.pop(index, None)
        for block in self._open.pop(index, ()):
            if self._stopped:
                self._block_follows(events)
            doubt = block.doubt()
            if self.is_ending:
                is_cut = doubt == "partial" and self.stop_reason is None
                block.end("incomplete" if is_cut else self.status, events)
            elif doubt is None:
                block.end("completed", events)
            else:
                self._stopped = [*self._stopped, (block, doubt)]
