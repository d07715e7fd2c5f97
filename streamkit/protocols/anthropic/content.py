"""The content blocks of one answer: those that are open, and those that stopped without it being certain how.

A block that stopped may have been cut short, which shows only later. A text or thinking, and a call whose input all came
with its start, was complete if another block follows. A call without complete arguments stays uncertain until the
message ends, as no block after it says that it is complete. If the message ends for a reason of the model's own, the
arguments are all that there are. If it was cut short, failed, or reached a limit, the call is not completed, so that nobody
executes a part of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ... import messages as m
from ...events import Event, RawEvent
from ..message_ids import MessageIds
from ..values import WireObject, as_index, as_object, as_text, without_keys
from .blocks import (
    BLOCK_OF_DELTA,
    CALL_BLOCKS,
    GROWING_BLOCKS,
    CompactionBlock,
    ContentBlock,
    Doubt,
    PlainWay,
    RepeatedCall,
    ToolCallBlock,
)
from .wire import CODE_TOOLS, STATUS_OF_STOP_REASON

__all__ = ["BlockIds", "ContentBlocks"]


class BlockIds(MessageIds):
    """The message ids of all answers of one stream, and the calls in these.

    Attributes:
        calls: the calls, by their ids.
    """

    __slots__ = ("calls",)

    def __init__(self, new_id: Callable[[], str]) -> None:
        super().__init__(new_id)
        self.calls: dict[str, ToolCallBlock] = {}

    def id_of(self, id: str, group: str | None, index: int) -> str:
        """Return the id of a block's message: the provider's own for it, else made from that of the answer."""
        return self.unused(id, "" if group is None else group if index == 0 else f"{group}.{index}")

    def refusal(self, group: str | None) -> str:
        """Return the id for the explanation of a refusal."""
        return self.unused(f"{group}.refusal" if group else "")


class ContentBlocks(msgspec.Struct, eq=False):
    """The content blocks of the current answer, by their index in it.

    A delta belongs to the block at its index. One that this block cannot have gets a block of its own beside it, so there
    may be several open blocks at one index.

    Methods with `events` add to these what the current item makes.

    Attributes:
        ids: the ids of their messages.
        growing: how the plain deltas of open blocks are read, by index. Only the first block at an index is here.
        group: the provider's id of the answer, None if it has none.
        stop_reason: the provider's reason for the end, None until it comes.
        status: the status of an answer that ends for this reason.
        is_ending: whether the answer is at its end, so that a block that stops is done at once.
        faults: the codes and faults of warnings about the current item.
        newest: the index of the newest block, -1 if there is none.
        newest_text: the id of the newest text's message, "" if there is none.
        opened: the open blocks, by index.
        unknown: the indexes of open blocks of unknown types.
        stopped: blocks that are not done, as they may have been cut short: calls, and perhaps one other block after them.
    """

    ids: BlockIds
    growing: dict[int, PlainWay] = {}
    group: str | None = None
    stop_reason: str | None = None
    status: m.Status = "completed"
    is_ending: bool = False
    faults: list[tuple[str, str]] = []
    newest: int = -1
    newest_text: str = ""
    opened: dict[int, tuple[ContentBlock, ...]] = {}
    unknown: set[int] = set()
    stopped: list[tuple[ContentBlock, Doubt]] = []

    def warn(self, code: str, fault: str) -> None:
        """Note a fault of the current item."""
        self.faults.append((code, fault))

    def restart(self) -> None:
        """Another answer begins."""
        self.growing.clear()
        self.opened.clear()
        self.group = self.stop_reason = None
        self.status, self.is_ending = "completed", False
        self.newest, self.newest_text, self.unknown, self.stopped = -1, "", set(), []

    # -- how blocks end

    def take_stop_reason(self, reason: str, events: list[Event]) -> None:
        """The stop_reason comes: the answer ends, and the blocks that stopped are done."""
        self.is_ending = True
        self.stop_reason = reason
        self.status = status = STATUS_OF_STOP_REASON.get(reason, "completed")
        stopped, self.stopped = self.stopped, []
        for block, _ in stopped:
            block.end(status, events)

    def end(self, events: list[Event]) -> m.Status:
        """Close all blocks, as the answer is over. Returns its status.

        Without a stop_reason, a call with partial arguments may have been cut short, and the answer with it.
        """
        self.is_ending = True
        status = self.status
        if not self.stopped and not self.opened:
            return status
        partial: m.Status = "incomplete" if self.stop_reason is None else status
        opened = [block.doubt() for blocks in self.opened.values() for block in blocks]
        has_partial = "partial" in opened or any(doubt == "partial" for _, doubt in self.stopped)
        self._release(events, status, partial, status)
        self._end_open(events, status, partial)
        return partial if has_partial else status

    def cut(self, status: m.Status, events: list[Event]) -> None:
        """End all blocks, because the answer goes no further, although no event has ended it."""
        if self.stopped or self.opened:
            self._release(events, "completed", status, status)
            self._end_open(events, status, status)

    def _release(self, events: list[Event], status: m.Status, partial: m.Status, empty: m.Status) -> None:
        """Blocks that stopped are done; calls with `partial` arguments and with `empty` ones with a status of their own."""
        stopped, self.stopped = self.stopped, []
        for block, doubt in stopped:
            block.end(partial if doubt == "partial" else empty if doubt == "empty" else status, events)

    def _end_open(self, events: list[Event], status: m.Status, partial: m.Status) -> None:
        self.growing.clear()
        opened, self.opened = self.opened, {}
        for blocks in opened.values():
            for block in blocks:
                block.end(partial if block.doubt() == "partial" else status, events)

    def _block_follows(self, events: list[Event]) -> None:
        """Another block follows those that stopped: only calls without complete arguments stay uncertain."""
        if self.stopped and not self.stopped[-1][1]:
            block, _ = self.stopped.pop()
            block.end("completed", events)

    # -- the items about blocks

    def add_complete(self, wire: WireObject, index: int, events: list[Event]) -> None:
        """A block that the answer has in it from the beginning."""
        self._release(events, "completed", "completed", "completed")  # the one before was not the last one
        if not self._begin(wire, index, events):
            events.append(RawEvent(as_text(wire.get("type")) or "content_block", wire))
        self.unknown.discard(index)
        self.stop(index, events)

    def index_of(self, item: WireObject, *, starts: bool = False) -> int:
        """Return the index of the block that an item is about. Without one that can be read it is the newest block's,
        or that of the next block if the item starts one."""
        if (index := as_index(item.get("index"), self.warn)) is not None:
            return index
        if item.get("index") is None:
            self.warn("bad-index", "it has no index; the newest block's was used")
        return self.newest + 1 if starts else max(self.newest, 0)

    def start(self, index: int, wire: WireObject, events: list[Event]) -> bool:
        """Begin a block, or add one that comes complete. Returns False, and adds no event for it, if its type is
        unknown."""
        if index in self.opened:
            self.warn("duplicate-block", f"another block began at index {index}; the one there was ended")
            self.stop(index, events)
        self.unknown.discard(index)
        return self._begin(wire, index, events)

    def delta(self, index: int, delta: WireObject, events: list[Event]) -> bool:
        """Add a delta of a block. Returns False, and adds no event, if the type of the delta or of the block is
        unknown."""
        type = "" if index in self.unknown else self._delta_type(delta)
        if type not in BLOCK_OF_DELTA:
            return False
        for block in self.opened.get(index, ()):
            if block.accepts(type):
                break
        else:
            how = "which has no such deltas" if index in self.opened else "which never began, or has ended"
            self.warn("stray-delta", f"{type} came for the block at index {index}, {how}; it begins another block")
            self.newest = max(index, self.newest)
            block = self._add({}, BLOCK_OF_DELTA[type], index, events)
        self._grow(block, type, delta, events)
        return True

    def stop(self, index: int, events: list[Event]) -> bool:
        """Stop the blocks at an index. Those that are certainly complete are done. Returns False, and adds no event, if
        the type of the block is unknown."""
        if index in self.unknown:
            self.unknown.discard(index)
            return False
        self.growing.pop(index, None)
        for block in self.opened.pop(index, ()):
            self._block_follows(events)
            doubt = block.doubt()
            if self.is_ending:
                is_cut = doubt == "partial" and self.stop_reason is None
                block.end("incomplete" if is_cut else self.status, events)
            elif doubt is None:
                block.end("completed", events)
            else:
                self.stopped.append((block, doubt))
        return True

    # -- their steps

    def _delta_type(self, delta: WireObject) -> str:
        """Return the type of a delta. If it has none, the key of its text decides."""
        if isinstance(type := delta.get("type"), str):
            return type
        for growth in GROWING_BLOCKS.values():
            if growth.struct is not None and isinstance(delta.get(growth.key), str):
                self.warn("no-delta-type", f"its delta has no type; read as {growth.delta}")
                return growth.delta
        return ""

    def _begin(self, wire: WireObject, index: int, events: list[Event]) -> bool:
        """As `start`, at an index at which no block is open."""
        self._block_follows(events)
        self.newest = index
        type = as_text(wire.get("type"))
        if type in GROWING_BLOCKS:
            self._add(wire, type, index, events)
            return True
        from .results import complete_block_events  # most answers have no such block

        id = self.ids.id_of("", self.group, index)
        found = complete_block_events(wire, type, id, self._fields(index), self.ids.calls)
        if found is None:
            self.unknown.add(index)
            return False
        events += found
        return True

    def _add(self, wire: WireObject, type: str, index: int, events: list[Event]) -> ContentBlock:
        """Add a block, which grows from here on, perhaps with its first text."""
        fields_of_block = self._fields(index)
        block = (
            self._call(wire, type, fields_of_block) if type in CALL_BLOCKS else self._text(wire, type, fields_of_block)
        )
        self._open(block, index, events)
        block.begin(wire, events)
        return block

    def _open(self, block: ContentBlock, index: int, events: list[Event]) -> None:
        block.open(events)
        if block.type == "text":
            self.newest_text = block.id
        if index in self.opened:
            self.opened[index] += (block,)
            return
        self.opened[index] = (block,)
        if (way := block.plain_way()) is not None:
            self.growing[index] = way

    def _fields(self, index: int) -> dict[str, Any]:
        return {"group": self.group, "index": index}

    def _text(self, wire: WireObject, type: str, fields_of_block: dict[str, Any]) -> ContentBlock:
        """Return a block of anything but a call."""
        id = self.ids.id_of("", self.group, fields_of_block["index"])
        if type == "text":
            return ContentBlock(type, id, fields_of_block)
        if type == "compaction":
            fields = {**fields_of_block, "type": type}
            return CompactionBlock(type, id, fields, m.Message, without_keys(wire, "type", "content"))
        signature = as_text(wire.get("signature"))
        return ContentBlock(
            type, id, fields_of_block, m.ReasoningMessage, {"signature": signature} if signature else {}
        )

    def _call(self, wire: WireObject, type: str, fields_of_block: dict[str, Any]) -> ToolCallBlock:
        """Return the block of a call."""
        call_id, name = as_text(wire.get("id")), as_text(wire.get("name"))
        if not call_id:
            self.warn("no-call-id", "a call has no id; it cannot be answered")
        id = self.ids.id_of(call_id, self.group, fields_of_block["index"])
        metadata = without_keys(wire, "type", "id", "name", "input")
        fields = {**fields_of_block, "name": name or None, "call_id": call_id or None}
        if type == "server_tool_use" and name in CODE_TOOLS:
            from .code_block import ServerCodeBlock  # few answers have code that the provider runs

            call: ToolCallBlock = ServerCodeBlock.of_tool(name, id, fields, metadata, wire.get("input"))
        elif CALL_BLOCKS[type]:
            metadata["block_type"] = type
            fields["provider_executed"] = True
            call = ToolCallBlock(type, id, fields, m.ToolCallMessage, metadata, wire.get("input"))
        elif (earlier := self.ids.calls.get(call_id)) is not None:
            return RepeatedCall(
                *(type, id, fields, m.ToolCallMessage, metadata, wire.get("input")), earlier=earlier, warn=self.warn
            )
        else:
            call = ToolCallBlock(type, id, fields, m.ToolCallMessage, metadata, wire.get("input"))
        if call_id:
            self.ids.calls[call_id] = call
        return call

    def _grow(self, block: ContentBlock, type: str, delta: WireObject, events: list[Event]) -> None:
        match type:
            case "signature_delta":
                if signature := as_text(delta.get("signature")):
                    block.metadata["signature"] = signature
            case "citations_delta":
                block.cite(as_object(delta.get("citation")), events)
            case _:
                value = block.text_in(delta)
                if value is not None and not isinstance(value, str):
                    self.warn("bad-delta", "its delta is not text and was skipped")
                block.grow(delta, events)
