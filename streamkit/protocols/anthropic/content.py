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
from ...core.json_fields import JsonFields
from ...events import RawEvent
from ..message_ids import MessageIds
from ..output import Output
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
    ServerCodeBlock,
    ToolCallBlock,
)
from .wire import CODE_TOOLS, DELTA_KEYS, PLAIN_DELTAS, STATUS_OF_STOP_REASON

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

    Attributes:
        ids: the ids of their messages.
        output: takes events and warnings.
        growing: how the plain deltas of open blocks are read, by index. Only the first block at an index is here.
        group: the provider's id of the answer, None if it has none.
        stop_reason: the provider's reason for the end, None until it comes.
        status: the status of an answer that ends for this reason.
        is_ending: whether the answer is at its end, so that a block that stops is done at once.
        newest: the index of the newest block, -1 if there is none.
        newest_text: the id of the newest text's message, "" if there is none.
        opened: the open blocks, by index.
        unknown: the indexes of open blocks of unknown types.
        stopped: blocks that are not done, as they may have been cut short: calls, and perhaps one other block after them.
    """

    ids: BlockIds
    output: Output
    growing: dict[int, PlainWay] = {}
    group: str | None = None
    stop_reason: str | None = None
    status: m.Status = "completed"
    is_ending: bool = False
    newest: int = -1
    newest_text: str = ""
    opened: dict[int, tuple[ContentBlock, ...]] = {}
    unknown: set[int] = set()
    stopped: list[tuple[ContentBlock, Doubt | None]] = []

    # -- how blocks end

    def take_stop_reason(self, reason: str) -> None:
        """The stop_reason comes: the answer ends, and the blocks that stopped are done."""
        self.is_ending = True
        self.stop_reason = reason
        self.status = STATUS_OF_STOP_REASON.get(reason, "completed")
        self._release(self.status)

    def end(self) -> m.Status:
        """Close all blocks, as the answer is over. Returns its status.

        Without a stop_reason, a call with partial arguments may have been cut short, and the answer with it.
        """
        self.is_ending = True
        partial: m.Status = "incomplete" if self.stop_reason is None else self.status
        self._stop_all()
        has_partial = any(doubt == "partial" for _, doubt in self.stopped)
        self._release(self.status, partial=partial)
        return partial if has_partial else self.status

    def cut(self, status: m.Status) -> None:
        """End all blocks, because the answer goes no further, although no event has ended it."""
        self._release("completed", partial=status, empty=status)
        self._stop_all()
        self._release(status)

    def _stop_all(self) -> None:
        """Stop all open blocks, whether they are complete or not."""
        opened, self.opened = self.opened, {}
        self.growing.clear()
        for blocks in opened.values():
            self.stopped.extend((block, block.doubt()) for block in blocks)

    def _release(self, status: m.Status, *, partial: m.Status | None = None, empty: m.Status | None = None) -> None:
        """Blocks that stopped are done; calls with `partial` arguments and with `empty` ones with a status of their own."""
        stopped, self.stopped = self.stopped, []
        for block, doubt in stopped:
            block.end((partial if doubt == "partial" else empty if doubt == "empty" else None) or status)

    def _block_follows(self) -> None:
        """Another block follows those that stopped: only calls without complete arguments stay uncertain."""
        if self.stopped and not self.stopped[-1][1]:
            block, _ = self.stopped.pop()
            block.end("completed")

    # -- the items about blocks

    def add_complete(self, wire: WireObject, index: int) -> None:
        """A block that the answer has in it from the beginning."""
        self._release("completed")  # the one before was not the last one
        if not self._begin(wire, index):
            self.output.emit(RawEvent(as_text(wire.get("type")) or "content_block", wire))
        self.unknown.discard(index)
        self.stop(index)

    def index_of(self, item: WireObject, *, starts: bool = False) -> int:
        """Return the index of the block that an item is about. Without one that can be read it is the newest block's,
        or that of the next block if the item starts one."""
        if (index := as_index(item.get("index"), self.output.warn)) is not None:
            return index
        if item.get("index") is None:
            self.output.warn("bad-index", "it has no index; the newest block's was used")
        return self.newest + 1 if starts else max(self.newest, 0)

    def start(self, index: int, wire: WireObject) -> bool:
        """Begin a block, or add one that comes complete. Returns False, and emits nothing for it, if its type is
        unknown."""
        if index in self.opened:
            self.output.warn("duplicate-block", f"another block began at index {index}; the one there was ended")
            self.stop(index)
        self.unknown.discard(index)
        return self._begin(wire, index)

    def delta(self, index: int, delta: WireObject) -> bool:
        """Add a delta of a block. Returns False, and emits nothing, if the type of the delta or of the block is
        unknown."""
        type = "" if index in self.unknown else self._delta_type(delta)
        if type not in BLOCK_OF_DELTA:
            return False
        for block in self.opened.get(index, ()):
            if block.accepts(type):
                break
        else:
            how = "which has no such deltas" if index in self.opened else "which never began, or has ended"
            fault = f"{type} came for the block at index {index}, {how}; it begins another block"
            self.output.warn("stray-delta", fault)
            self.newest = max(index, self.newest)
            block = self._add({}, BLOCK_OF_DELTA[type], index)
        self._grow(block, type, delta)
        return True

    def stop(self, index: int) -> bool:
        """Stop the blocks at an index. Those that are certainly complete are done. Returns False, and emits nothing, if
        the type of the block is unknown."""
        if index in self.unknown:
            self.unknown.discard(index)
            return False
        self.growing.pop(index, None)
        for block in self.opened.pop(index, ()):
            self._block_follows()
            doubt = block.doubt()
            if self.is_ending:
                is_cut = doubt == "partial" and self.stop_reason is None
                block.end("incomplete" if is_cut else self.status)
            elif doubt is None:
                block.end("completed")
            else:
                self.stopped.append((block, doubt))
        return True

    # -- their steps

    def _delta_type(self, delta: WireObject) -> str:
        """Return the type of a delta. If it has none, the key of its text decides."""
        if isinstance(type := delta.get("type"), str):
            return type
        type = next((type for type in PLAIN_DELTAS if isinstance(delta.get(DELTA_KEYS[type]), str)), "")
        if type:
            self.output.warn("no-delta-type", f"its delta has no type; read as {type}")
        return type

    def _begin(self, wire: WireObject, index: int) -> bool:
        """As `start`, at an index at which no block is open."""
        self._block_follows()
        self.newest = index
        type = as_text(wire.get("type"))
        if type in GROWING_BLOCKS:
            self._add(wire, type, index)
            return True
        from .results import complete_block_events  # most answers have no such block

        id = self.ids.id_of("", self.group, index)
        found = complete_block_events(wire, type, id, {"group": self.group, "index": index}, self.ids.calls)
        if found is None:
            self.unknown.add(index)
            return False
        for event in found:
            self.output.emit(event)
        return True

    def _add(self, wire: WireObject, type: str, index: int) -> ContentBlock:
        """Add a block, which grows from here on, perhaps with its first text."""
        fields = {"group": self.group, "index": index}
        block = self._call(wire, type, fields) if type in CALL_BLOCKS else self._text(wire, type, fields)
        block.open()
        if type == "text":
            self.newest_text = block.id
        if index not in self.opened and (way := block.plain_way()) is not None:
            self.growing[index] = way
        self.opened[index] = (*self.opened.get(index, ()), block)
        block.begin(wire)
        return block

    def _text(self, wire: WireObject, type: str, fields: dict[str, Any]) -> ContentBlock:
        """Return a block of anything but a call."""
        id = self.ids.id_of("", self.group, fields["index"])
        if type == "text":
            return ContentBlock(self.output, type, id, fields)
        if type == "compaction":
            metadata = without_keys(wire, "type", "content")
            return CompactionBlock(self.output, type, id, {**fields, "type": type}, m.Message, metadata)
        signature = as_text(wire.get("signature"))
        metadata = {"signature": signature} if signature else {}
        return ContentBlock(self.output, type, id, fields, m.ReasoningMessage, metadata)

    def _call(self, wire: WireObject, type: str, fields: dict[str, Any]) -> ToolCallBlock:
        """Return the block of a call."""
        call_id, name = as_text(wire.get("id")), as_text(wire.get("name"))
        if not call_id:
            self.output.warn("no-call-id", "a call has no id; it cannot be answered")
        id = self.ids.id_of(call_id, self.group, fields["index"])
        metadata = without_keys(wire, "type", "id", "name", "input")
        fields |= {"name": name or None, "call_id": call_id or None}
        is_code = type == "server_tool_use" and name in CODE_TOOLS
        message_class = m.CodeMessage if is_code else m.ToolCallMessage
        start: Any = (self.output, type, id, fields, message_class, metadata, wire.get("input"))
        if is_code:
            fields["format"], key = CODE_TOOLS[name]
            call: ToolCallBlock = ServerCodeBlock(*start, reader=JsonFields(key))
        elif CALL_BLOCKS[type]:
            metadata["block_type"] = type
            fields["provider_executed"] = True
            call = ToolCallBlock(*start)
        elif (earlier := self.ids.calls.get(call_id)) is not None:
            return RepeatedCall(*start, earlier=earlier)
        else:
            call = ToolCallBlock(*start)
        if call_id:
            self.ids.calls[call_id] = call
        return call

    def _grow(self, block: ContentBlock, type: str, delta: WireObject) -> None:
        match type:
            case "signature_delta":
                if signature := as_text(delta.get("signature")):
                    block.metadata["signature"] = signature
            case "citations_delta":
                block.cite(as_object(delta.get("citation")))
            case _:
                value = block.text_in(delta)
                if value is not None and not isinstance(value, str):
                    self.output.warn("bad-delta", "its delta is not text and was skipped")
                block.grow(delta)
