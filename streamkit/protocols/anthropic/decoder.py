"""Anthropic's Messages API, and the servers that speak it.

Terminal rule: `message_stop`, a `stop_reason` in `message_delta` or in a message that begins with all its content (some
servers leave out what follows it), or an `error`. `[DONE]` alone ends nothing. A message that is not streamed (`{"type": "message", …}`) is
told as a whole answer. A `message_start` after the end begins another answer of the same run, a step of its own.

Each content block is a message; see `anthropic_blocks`. A delta belongs to the block at its index, and to a block of
its own beside it where that one cannot have such deltas. The first block has the provider's message id, the others ids
made from it; calls have their own. Blocks are done when they stop; only the text or thinking that stopped last is held
until what follows says that it was not cut short, and each call whose arguments are no whole JSON object until the
message ends. If it ends for a reason of the model's they are all that there is; if it was cut, failed or limited, nobody
runs half a call.

A run's `finish_reason` is the stop_reason; `max_tokens`, `model_context_window_exceeded`, `refusal`, `pause_turn` and
`compaction` make it incomplete. Where the provider explains a refusal, the explanation is a refusal message. `Run.metadata`
holds what else the answer says of itself: `stop_sequence`, `stop_details`, `container`, `context_management` ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from ... import events as e
from ... import messages as m
from ...core.unique_ids import UniqueIds
from .. import base
from ..framing import Frames, as_frame
from ..values import is_list, is_object
from .blocks import BLOCK_OF, CALLS, PIECES, Block, Held, Place, tell_whole
from .wire import (
    ENDS,
    GROWN,
    PAUSES,
    SYNTHESIZED,
    Wire,
    decode_grown,
    error_of,
    index_of,
    items_of,
    mapping,
    text,
    usage_of,
    without,
)

__all__ = ["Decoder"]

# A message's keys that are told in other ways.
_TOLD = ("id", "type", "role", "content", "model", "usage", "stop_reason")


class Decoder(base.Decoder):
    """A stream of the Messages API, or one whole message."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._reset()
        self._again = self._failed = False
        self._used: Wire = {}
        self._ids = UniqueIds()
        self._names: dict[str, str] = {}  # the called tools', by call id
        self._faults: list[e.Event] = []

    def _reset(self) -> None:
        self._group: str | None = None
        self._begun = False
        self._ended = False
        self._open: dict[int, list[Block]] = {}  # by index; several only where deltas do not fit the first one
        self._raw: set[int] = set()  # the indexes of open blocks that are of no known type
        self._held = Held()
        self._newest = -1
        self._stop: str | None = None
        self._metadata: dict[str, Any] = {}
        # By index: the block that grows, as (wire class, message id, event class).
        self._growing: dict[int, tuple[type, str, Any]] = {}

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        match item.get("type"):
            case "message_start":
                return is_object(item.get("message"))
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return "index" in item
            case "message_delta":
                return is_object(item.get("delta")) and "message_id" not in item
            case "message_stop":
                return True
            case "message":
                return is_list(item.get("content")) and "stop_reason" in item
            case _:
                return False

    # -- the fast path: pieces of blocks that are open

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        events: list[e.Event] = []
        if self.exhausted:
            return events
        self._first, self._frames = self.index, frames
        growing = self._growing
        start, beyond = self.index, 0  # what slow items told beyond one event each
        for frame in frames:
            data = frame if isinstance(frame, bytes) else frame[2]
            try:
                grown = decode_grown(data)
                delta = grown.delta
                kind, message_id, make = growing[grown.index]
                if type(delta) is kind and (data is frame or not frame[0]):
                    events.append(make(message_id, delta.value, raw_item=data))
                    continue
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
                pass
            self.index = start + len(events) - beyond
            told = self.feed_frame(*as_frame(frame))
            events += told
            beyond += len(told) - 1
            if self.exhausted:
                return events
            growing = self._growing
        self.index = start + len(frames)
        return events

    # -- the tolerant path

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        return ()

    def feed(self, item: Mapping[str, Any]) -> Iterable[e.Event]:
        events = list(self._read(item))
        faults, self._faults = self._faults, []
        return events + faults

    def finish(self) -> Iterable[e.Event]:
        if self.complete:
            yield from self._end()
        yield from self._cut("incomplete")

    def _read(self, item: Mapping[str, Any]) -> Iterator[e.Event]:
        kind = text(item.get("type"))
        match kind:
            case _ if self._failed:
                yield e.RawEvent(kind, item)
            case "content_block_delta":
                yield from self._delta(item)
            case "content_block_start":
                yield from self._start(item)
            case "content_block_stop":
                yield from self._stopped(item)
            case "message_start":
                yield from self._message(mapping(item.get("message")))
            case "message_delta":
                yield from self._message_delta(item)
            case "message_stop":
                self._keep(item, "type", "message")  # Bedrock has its metrics here, the SDK's helper the whole message
                self.complete = True
                yield from self._end()
            case "message":
                yield from self._message(item)
                self._stop = self._stop or text(item.get("stop_reason")) or None
                self.complete = True
                yield from self._end()
            case "error":
                yield from self._fail(item)
            case "" if item.get("error") is not None:
                yield from self._fail(item)
            case "":
                self._fault("no-type", "it has no type and was skipped")
            case _ if kind not in SYNTHESIZED:
                yield e.RawEvent(kind, item)
            case _:
                pass

    # -- the message

    def _message(self, message: Wire) -> Iterator[e.Event]:
        """A message begins. What it has in it already is told whole."""
        id = text(message.get("id"))
        if self._begun and not self._ended:
            same = id == (self._group or "")
            self._fault("duplicate-start", _TWICE if same else _TOO_EARLY)
            if same:
                yield from self._usage(message.get("usage"))
                return
            yield from self._cut("incomplete")
            self._ended = True
        if self._ended:
            self._reset()
            self.complete = False
            self._used = {}
            self._again = True
        self._begun = True
        self._group = id or None
        self._keep(message, *_TOLD)
        model = text(message.get("model")) or None
        raw = {key: message[key] for key in message if key != "content"}
        yield e.RunCreated(e.Run(id=id, model=model, metadata=dict(self._metadata), raw=raw or None))
        if self._again:
            yield e.RunStepCreated(e.RunStep())
        for index, block in enumerate(items_of(message.get("content"))):
            yield from self._held.release("completed")  # it was not the last one
            yield from self._begin(mapping(block), index, mapping(block))
            self._raw.discard(index)
            yield from self._close(index)
        yield from self._usage(message.get("usage"))
        if message.get("content"):  # else it is a placeholder: nothing has been said yet
            yield from self._reason(message.get("stop_reason"))

    def _message_delta(self, item: Wire) -> Iterator[e.Event]:
        delta = mapping(item.get("delta"))
        self._keep(delta, "stop_reason")
        self._keep(item, "type", "delta", "usage")
        yield from self._usage(item.get("usage"))
        yield from self._reason(delta.get("stop_reason"))

    def _keep(self, wire: Wire, *told: str) -> None:
        self._metadata |= without(wire, *told)

    def _usage(self, usage: Any) -> Iterator[e.Event]:
        """Usage is cumulative: what is not said again holds."""
        if usage is None:
            return
        if not is_object(usage):
            self._fault("bad-usage", "its usage is no object; it was skipped")
            return
        used = {**self._used, **without(usage)}
        if used != self._used:
            self._used = used
            yield usage_of(used)

    def _reason(self, reason: Any) -> Iterator[e.Event]:
        """How the message ends, once that is known."""
        if reason is None:
            return
        self.complete = True
        if reason and isinstance(reason, str):
            self._stop = reason
            yield from self._held.release(self._status)
        else:
            self._fault("bad-stop-reason", f"its stop_reason is {reason!r}, no text; it was taken as the end")

    @property
    def _status(self) -> m.Status:
        return ENDS.get(self._stop or "", "completed")

    @property
    def _half_status(self) -> m.Status:
        """How a call with half its arguments ends: without a reason it may have been cut."""
        return "incomplete" if self._stop is None else self._status

    def _end(self) -> Iterator[e.Event]:
        if self._ended:
            return
        status, half = self._status, self._half_status
        cut = self._held.half or any(block.half for blocks in self._open.values() for block in blocks)
        yield from self._held.release(status, half=half)
        yield from self._settle(status, half)
        status = half if cut else status
        self._ended = True
        self.continues_in_next_source = self._stop in PAUSES
        details = mapping(self._metadata.get("stop_details"))
        if self._stop == "refusal" and (explanation := text(details.get("explanation"))):
            metadata = {"stop_details": dict(details)}
            id = self._ids.unused(f"{self._group}.refusal" if self._group else self.new_id())
            yield e.MessageDone(m.RefusalMessage(id, content=explanation, group=self._group, metadata=metadata))
        yield e.RunDone(e.Run(status=status, finish_reason=self._stop, metadata=dict(self._metadata)))

    def _fail(self, item: Wire) -> Iterator[e.Event]:
        if self._ended:
            yield e.RawEvent("error", item)
            return
        yield from self._cut("failed")
        self._failed = self._ended = self.complete = True
        yield e.RunDone(e.Run(status="failed", error=error_of(item), metadata=dict(self._metadata), raw=item))

    # -- its blocks

    def _start(self, item: Wire) -> Iterator[e.Event]:
        index = self._index(item)
        if index is None:
            index = self._newest + 1
        if index in self._open:
            self._fault("duplicate-block", f"another block began at index {index}; the one there was ended")
            yield from self._close(index)
        self._raw.discard(index)
        yield from self._begin(mapping(item.get("content_block")), index, item)

    def _begin(self, wire: Wire, index: int, item: Wire) -> Iterator[e.Event]:
        """A block begins, or is told whole."""
        yield from self._held.go_on()
        self._newest = index
        type = text(wire.get("type"))
        if type in PIECES:
            yield from self._add(wire, type, index)
            return
        events = tell_whole(wire, type, self._place("", index), self._names)
        if events is None:
            self._raw.add(index)
            yield e.RawEvent(text(item.get("type")) or type or "content_block", item)
        else:
            yield from events

    def _add(self, wire: Wire, type: str, index: int) -> Iterator[e.Event]:
        call_id = text(wire.get("id")) if type in CALLS else ""
        if call_id:
            self._names[call_id] = text(wire.get("name"))
        elif type in CALLS:
            self._fault("no-call-id", "a call has no id; it cannot be answered")
        block = Block(wire, type, self._place(call_id, index))
        self._open.setdefault(index, []).append(block)
        yield from block.begin(wire)

    def _place(self, id: str, index: int) -> Place:
        """A block's place. Its id is the provider's for it, else made from the message's."""
        if not id:
            id = self.new_id() if self._group is None else self._group if index == 0 else f"{self._group}.{index}"
        return Place(self._ids.unused(id), self._group, index)

    def _index(self, item: Wire) -> int | None:
        return index_of(item.get("index"), self._fault)

    def _delta(self, item: Wire) -> Iterator[e.Event]:
        delta = mapping(item.get("delta"))
        type = text(delta.get("type"))
        index = self._index(item)
        if index is None:
            index = max(self._newest, 0)
        if index in self._raw or type not in BLOCK_OF:
            yield e.RawEvent("content_block_delta", item)
            return
        blocks = self._open.get(index, [])
        block = next((block for block in blocks if block.takes(type)), None)
        if block is None:
            how = "which has no such deltas" if blocks else "which was never begun, or is over"
            self._fault("stray-delta", f"{type} came for the block at index {index}, {how}; it begins another block")
            self._newest = max(index, self._newest)
            yield from self._add({}, BLOCK_OF[type], index)
            block = self._open[index][-1]
        yield from self._grow(block, index, type, delta)

    def _grow(self, block: Block, index: int, type: str, delta: Wire) -> Iterator[e.Event]:
        if type == "signature_delta":
            if signature := text(delta.get("signature")):
                block.metadata["signature"] = signature
            return
        if type == "citations_delta":
            yield from block.cite(mapping(delta.get("citation")))
            return
        if delta.get(PIECES[block.type][1]) is not None and not isinstance(delta[PIECES[block.type][1]], str):
            self._fault("bad-delta", "its delta is no text and was skipped")
        yield from block.grow(delta)
        if block.grown and block.plain and block is self._open[index][0]:
            self._growing[index] = (GROWN[type], block.id, block.maker)

    def _stopped(self, item: Wire) -> Iterator[e.Event]:
        index = self._index(item)
        if index is None:
            index = max(self._newest, 0)
        if index in self._raw:
            self._raw.discard(index)
            yield e.RawEvent("content_block_stop", item)
            return
        yield from self._close(index)

    def _close(self, index: int) -> Iterator[e.Event]:
        """The blocks at an index are over. They may have to wait until it is known how."""
        self._growing.pop(index, None)
        for block in self._open.pop(index, []):
            yield from self._held.go_on()
            if self.complete:
                yield from block.end(self._half_status if block.half else self._status)
            else:
                yield from self._held.stop(block)

    def _cut(self, status: m.Status) -> Iterator[e.Event]:
        """The message goes no further, and nothing said that it was over."""
        yield from self._held.release("completed", half=status, bare=status)
        yield from self._settle(status)

    def _settle(self, status: m.Status, half: m.Status | None = None) -> Iterator[e.Event]:
        """All open blocks are over."""
        self._growing.clear()
        opened, self._open = self._open, {}
        for blocks in opened.values():
            for block in blocks:
                yield from block.end(half if half is not None and block.half else status)

    def _fault(self, code: str, fault: str) -> None:
        self._faults.append(self.warn(code, fault))


_TWICE = "the message began twice; the second start was dropped"
_TOO_EARLY = "another message began before this one had ended; it was ended here"
