"""The content blocks of one answer: those that are open, and those that stopped without it being certain how.

A block that stopped may have been cut short, which shows only later. A text or thinking, and a call whose input all came
with its start, was complete if another block follows. A call without complete arguments stays uncertain until the
message ends, as no block after it says that it is complete. If the message ends for a reason of the model's own, the
arguments are all that there are. If it was cut short, failed, or reached a limit, the call is not completed, so that nobody
executes a part of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ... import messages as m
from ...core.unique_ids import UniqueIds
from ...events import Event, RawEvent
from ..values import WireObject, as_index, as_object, as_text
from .blocks import BLOCK_OF_DELTA, CALL_BLOCKS, GROWING_BLOCKS, Block, Place
from .results import complete_block_events
from .wire import DELTA_STRUCTS, STATUS_OF_STOP_REASON

__all__ = ["ContentBlocks", "MessageIds", "Warn"]

Warn = Callable[[str, str], None]
"""Called with the code and the fault of a warning."""


_NONE: set[int] = set()  # in the place of what most answers have none of: nothing is added to it


class MessageIds:
    """The message ids of all answers of one stream, and the names of the tools that they called."""

    __slots__ = ("_used", "new_id", "tool_names")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self.new_id = new_id
        self.tool_names: dict[str, str] = {}
        self._used = UniqueIds()

    def place(self, id: str, group: str | None, index: int) -> Place:
        """The place of a block. Its message's id is the provider's own for it, else made from that of the answer."""
        if not id:
            id = self.new_id() if group is None else group if index == 0 else f"{group}.{index}"
        return Place(self._used.unused(id), group, index)

    def refusal(self, group: str | None) -> str:
        """The id for the explanation of a refusal."""
        return self._used.unused(f"{group}.refusal" if group else self.new_id())


class ContentBlocks:
    """The content blocks of one answer, by their index in it.

    A delta belongs to the block at its index. One that this block cannot have gets a block of its own beside it, so there
    may be several open blocks at one index.

    Attributes:
        growing: what the fast path may read, by index: the struct of its deltas, its message's id, what makes its
            events, and the type of its deltas and their text's key. Only the first block at an index is here.
        growing_code: the same for blocks of code, by index.
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
        "growing_code",
        "is_ending",
        "stop_reason",
    )

    def __init__(self, ids: MessageIds, warn: Warn) -> None:
        self.growing: dict[int, tuple[type, str, Any, str, str]] = {}
        self.growing_code: dict[int, Block] = {}
        self.group: str | None = None
        self.stop_reason: str | None = None
        self.is_ending = False
        self._ids = ids
        self._warn = warn
        self._open: dict[int, list[Block]] = {}
        self._unknown = _NONE  # the indexes of open blocks of unknown types
        self._stopped = _StoppedBlocks()
        self._newest = -1

    # -- how blocks end

    @property
    def status(self) -> m.Status:
        """The status of an answer that ended for `stop_reason`."""
        return STATUS_OF_STOP_REASON.get(self.stop_reason or "", "completed")

    @property
    def partial_call_status(self) -> m.Status:
        """The status of a call with partial arguments then: without a reason it may have been cut short."""
        return "incomplete" if self.stop_reason is None else self.status

    @property
    def has_partial_call(self) -> bool:
        """Whether a block that is not done is a call with partial arguments."""
        return self._stopped.has_partial_call or any(
            block.has_partial_arguments for blocks in self._open.values() for block in blocks
        )

    def release(self) -> Iterator[Event]:
        """The ends of the blocks that stopped, now that the stop_reason is known."""
        yield from self._stopped.release(self.status)

    def end(self) -> Iterator[Event]:
        """The ends of all blocks. The answer is over."""
        status, partial = self.status, self.partial_call_status
        yield from self._stopped.release(status, partial=partial)
        yield from self._end_open(status, partial)

    def cut(self, status: m.Status) -> Iterator[Event]:
        """The ends of all blocks. The answer goes no further, but nothing said that it is over."""
        yield from self._stopped.release("completed", partial=status, empty=status)
        yield from self._end_open(status, status)

    def _end_open(self, status: m.Status, partial: m.Status) -> Iterator[Event]:
        self.growing.clear()
        self.growing_code.clear()
        opened, self._open = self._open, {}
        for blocks in opened.values():
            for block in blocks:
                yield from block.end(partial if block.has_partial_arguments else status)

    # -- the items about blocks

    def add_complete(self, wire: WireObject, index: int) -> Iterator[Event]:
        """The events of a block that the answer has in it from the beginning."""
        yield from self._stopped.release("completed")  # the one before was not the last one
        yield from self._begin(wire, index, wire)
        self._unknown.discard(index)
        yield from self._close(index)

    def start(self, item: WireObject) -> Iterator[Event]:
        """The events of a `content_block_start`."""
        index = self._index(item)
        if index is None:
            index = self._newest + 1
        if index in self._open:
            self._warn("duplicate-block", f"another block began at index {index}; the one there was ended")
            yield from self._close(index)
        self._unknown.discard(index)
        yield from self._begin(as_object(item.get("content_block")), index, item)

    def delta(self, item: WireObject) -> Iterator[Event]:
        """The events of a `content_block_delta`."""
        delta = as_object(item.get("delta"))
        index = self._current_index(item)
        type = "" if index in self._unknown else self._delta_type(delta)
        if type not in BLOCK_OF_DELTA:
            yield RawEvent("content_block_delta", item)
            return
        blocks = self._open.get(index, [])
        block = next((block for block in blocks if block.accepts(type)), None)
        if block is None:
            how = "which has no such deltas" if blocks else "which never began, or has ended"
            self._warn("stray-delta", f"{type} came for the block at index {index}, {how}; it begins another block")
            self._newest = max(index, self._newest)
            yield from self._add({}, BLOCK_OF_DELTA[type], index)
            block = self._open[index][-1]
        yield from self._grow(block, index, type, delta)

    def stop(self, item: WireObject) -> Iterator[Event]:
        """The events of a `content_block_stop`."""
        index = self._current_index(item)
        if index in self._unknown:
            self._unknown.discard(index)
            yield RawEvent("content_block_stop", item)
            return
        yield from self._close(index)

    # -- their steps

    def _index(self, item: WireObject) -> int | None:
        if item.get("index") is None:
            self._warn("bad-index", "it has no index; the newest block's was used")
        return as_index(item.get("index"), self._warn)

    def _current_index(self, item: WireObject) -> int:
        index = self._index(item)
        return max(self._newest, 0) if index is None else index

    def _delta_type(self, delta: WireObject) -> str:
        """The type of a delta. One without a type is of the type whose text it has."""
        if isinstance(type := delta.get("type"), str):
            return type
        for growth in GROWING_BLOCKS.values():
            if growth.delta in DELTA_STRUCTS and isinstance(delta.get(growth.key), str):
                self._warn("no-delta-type", f"its delta has no type; read as {growth.delta}")
                return growth.delta
        return ""

    def _begin(self, wire: WireObject, index: int, item: WireObject) -> Iterator[Event]:
        """A block begins, or comes complete."""
        yield from self._stopped.block_follows()
        self._newest = index
        type = as_text(wire.get("type"))
        if type in GROWING_BLOCKS:
            yield from self._add(wire, type, index)
            return
        events = complete_block_events(wire, type, self._ids.place("", self.group, index), self._ids.tool_names)
        if events is None:
            self._unknown = self._unknown or set()
            self._unknown.add(index)
            yield RawEvent(as_text(item.get("type")) or type or "content_block", item)
        else:
            yield from events

    def _add(self, wire: WireObject, type: str, index: int) -> Iterator[Event]:
        call_id = as_text(wire.get("id")) if type in CALL_BLOCKS else ""
        if call_id:
            self._ids.tool_names[call_id] = as_text(wire.get("name"))
        elif type in CALL_BLOCKS:
            self._warn("no-call-id", "a call has no id; it cannot be answered")
        block = Block(wire, type, self._ids.place(call_id, self.group, index))
        blocks = self._open.setdefault(index, [])
        blocks.append(block)
        yield from block.begin(wire)
        delta_type = GROWING_BLOCKS[type].delta
        if len(blocks) == 1 and block.is_code:
            self.growing_code[index] = block
        elif len(blocks) == 1 and delta_type in DELTA_STRUCTS:
            key = GROWING_BLOCKS[type].key
            self.growing[index] = (DELTA_STRUCTS[delta_type], block.id, block.delta_event, delta_type, key)

    def _grow(self, block: Block, index: int, type: str, delta: WireObject) -> Iterator[Event]:
        match type:
            case "signature_delta":
                if signature := as_text(delta.get("signature")):
                    block.metadata["signature"] = signature
            case "citations_delta":
                yield from block.cite(as_object(delta.get("citation")))
            case _:
                value = block.text_in(delta)
                if value is not None and not isinstance(value, str):
                    self._warn("bad-delta", "its delta is not text and was skipped")
                yield from block.grow(delta)

    def _close(self, index: int) -> Iterator[Event]:
        """The blocks at an index stop."""
        self.growing.pop(index, None)
        self.growing_code.pop(index, None)
        for block in self._open.pop(index, []):
            yield from self._stopped.block_follows()
            if self.is_ending:
                yield from block.end(self.partial_call_status if block.has_partial_arguments else self.status)
            else:
                yield from self._stopped.add(block)


class _StoppedBlocks:
    """The blocks that stopped and are not done, as they may have been cut short. See the module for when they are done.

    A call is uncertain for having `partial` arguments, or `empty` ones.
    """

    __slots__ = ("_blocks",)

    def __init__(self) -> None:
        self._blocks: list[tuple[Block, str]] = []  # each with "partial", "empty", or "" for any other block

    @property
    def has_partial_call(self) -> bool:
        """Whether there is a call with partial arguments."""
        return any(doubt == "partial" for _, doubt in self._blocks)

    def add(self, block: Block) -> Iterator[Event]:
        """A block stops. One that is certainly complete is done at once."""
        doubt = "partial" if block.has_partial_arguments else "empty" if block.has_no_arguments else ""
        if doubt or block.type in ("text", "thinking") or block.has_unstreamed_arguments:
            self._blocks.append((block, doubt))
        else:
            yield from block.end("completed")

    def block_follows(self) -> Iterator[Event]:
        """Another block follows: only calls without complete arguments stay uncertain."""
        stopped, self._blocks = self._blocks, []
        for block, doubt in stopped:
            if doubt:
                self._blocks.append((block, doubt))
            else:
                yield from block.end("completed")

    def release(self, status: m.Status, **others: m.Status) -> Iterator[Event]:
        """All are done. `partial=` and `empty=` are the statuses of such calls, where they differ from `status`."""
        stopped, self._blocks = self._blocks, []
        for block, doubt in stopped:
            yield from block.end(others.get(doubt, status))
