"""OpenAI's Responses API, and the servers that speak it.

Terminal rule: `response.completed`, `response.incomplete`, `response.failed`, `response.cancelled`, `response.done` or
a top-level `error`. `[DONE]` alone ends nothing: OpenAI sends none, and servers that do send it after the response's
end. A response that is not streamed (`{"object": "response", …}`) is told as a whole answer.

Every part of an output item is a message; see `openai_responses_items`. An event belongs to the item of its
`item_id`, else to the one at its `output_index`: some servers give every event another id, or none. A part is done
when its item is, because only the item says how it ended; code and shell commands are done when their text is, because
they run before their item ends. A run's `finish_reason` is the response's `incomplete_details.reason`, if it has one.
"""

# pyright: reportPrivateUsage=false
# The table of readers stands beside the decoder whose they are.

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import msgspec

from ...events import AnnotationAdded, Event, MessageDone, RawEvent, Run, RunCreated, RunDone, RunStatus, Usage
from ...messages import AudioMessage, ImageMessage, Message, Status, TextMessage
from .. import base
from ..framing import Frames
from .items import CALLS, KINDS, PART_KINDS, STATUSES, Item
from .wire import (
    DECODE,
    GROWN,
    STREAMS,
    GrownText,
    Stream,
    annotation_of,
    decode_grown,
    integer,
    json_text,
    mapping,
    read_part,
    sequence,
    text,
)

__all__ = ["Decoder"]


_PARTS = {  # content parts, and where their index is
    "response.content_part": "content_index",
    "response.reasoning_part": "content_index",
    "response.reasoning_summary_part": "summary_index",
}
_ITEM_OF_KIND = {"text": "message", "refusal": "message", "reasoning": "reasoning", "summary": "reasoning"}
_AT_ONCE = {"code_interpreter_call": "code", "image_generation_call": "image"}  # begun with their item, as calls are
_ENDS: dict[str, RunStatus] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": "completed",
}


class _Growing(NamedTuple):
    """A part as its deltas name it, and what they become."""

    item_id: str | None
    decode: Callable[[Any], Any]
    part: int | None = None
    place: int | None = None
    message_id: str = ""
    event: Any = None


_NO_DELTA = GrownText("", "")


def _decode_none(data: Any) -> GrownText:
    """Whatever comes is read as a delta of no item, which is no part's."""
    return _NO_DELTA


_NOTHING: tuple[Any, ...] = tuple(_Growing(None, _decode_none))  # that grew


class Decoder(base.Decoder):
    """A Responses stream, or one whole response."""

    name = "openai_responses"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._reset()

    def _reset(self) -> None:
        self._begun = False
        self._ended = False
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._by_place: dict[int, Item] = {}
        self._by_type: dict[str, list[Item]] = {}  # the latest one that is not done comes last, once those after it go
        self._audio: dict[type[Message], str] = {}
        self._growing: dict[str, _Growing] = {}  # by item_id: the part that grows
        self._grew: tuple[Any, ...] = _NOTHING  # the one that grew last; unpacked at each chunk, so a tuple itself

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        if text(item.get("type")).startswith("response."):
            return True
        return item.get("object") == "response" and isinstance(item.get("output"), list)

    def sentinel(self, data: bytes) -> Iterable[Event]:
        return ()

    # -- the fast path: deltas of parts that are open

    def feed_frames(self, frames: Frames) -> list[Event]:
        start = self.index
        self._first, self._frames = start, frames
        item_id, decode, part, place, message_id, make = self._grew
        events: list[Event] = []
        beyond = 0  # what slow items told beyond one event each
        for data in frames:
            try:
                grown = decode(data)
                if grown.item_id == item_id and grown.index == part and grown.output_index == place:
                    events.append(make(message_id, grown.delta, position=grown.sequence_number, raw_item=data))
                    continue
            except (TypeError, msgspec.DecodeError, UnicodeDecodeError):
                pass  # also of a frame that is not its data alone
            if self.exhausted:
                return events
            event = self._turned_to(data)
            if event is not None:
                events.append(event)
            else:
                self.index = start + len(events) - beyond
                told = self.feed_frame(b"", b"", data) if isinstance(data, bytes) else self.feed_frame(*data)
                events += told
                beyond += len(told) - 1
                self._grew = _NOTHING
                if self.exhausted:
                    self._growing.clear()
            item_id, decode, part, place, message_id, make = self._grew
        self.index = start + len(frames)
        return events

    def _turned_to(self, data: Any) -> Event | None:
        """The event of another part that grows, which is the newest from here on; None if there is more to it."""
        if not self._growing or b'.delta"' not in data:
            return None
        try:
            grown = decode_grown(data)
            grew = self._growing[grown.item_id]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
            return None
        if grew.decode is not DECODE[type(grown)] or grown.index != grew.part or grown.output_index != grew.place:
            return None
        self._grew = tuple(grew)
        event: Event = grew.event(grew.message_id, grown.delta, position=grown.sequence_number, raw_item=data)
        return event

    # -- the tolerant path

    def feed(self, item: Mapping[str, Any]) -> Iterable[Event]:
        kind = text(item.get("type"))
        events = list(self._read(kind, item))
        if not events:
            events.append(RawEvent(kind, item))
        position = integer(item.get("sequence_number"))
        if position is not None:
            for event in events:
                event.position = position
        return events

    def finish(self) -> Iterable[Event]:
        for item in self._items:
            if not item.done:
                yield from item.flush("completed")

    def _read(self, kind: str, event: Mapping[str, Any]) -> Iterator[Event]:
        read = _READERS.get(kind)
        return self._other(kind, event) if read is None else read(self, event)

    def _other(self, kind: str, event: Mapping[str, Any]) -> Iterator[Event]:
        """What is no event of a response: errors, whole responses, and what nobody lists."""
        if kind == "error" or (not kind and event.get("error") is not None):
            yield from self._fail(event)
        elif not kind and event.get("object") == "response":
            yield from self._begin(event, again=True)
            if text(event.get("status")) not in ("queued", "in_progress"):
                yield from self._end(event, "completed")
        elif not kind:
            yield self.warn("no-type", "it has no type and was skipped")

    # -- items

    def _item_added(self, event: Mapping[str, Any]) -> Iterator[Event]:
        wire = mapping(event.get("item"))
        if not wire:
            return
        id, type, place = text(wire.get("id")), text(wire.get("type")), integer(event.get("output_index"))
        item = self._by_id.get(id)
        if item is None or item.done or item.place not in (None, place) or item.type != type:
            item = self._enter(id, type, place)
        item.learn(wire)
        if item.type in _AT_ONCE:
            yield from item.open(_AT_ONCE[item.type])
        elif item.type in CALLS and item.name:
            yield from item.open("call")

    def _item_done(self, event: Mapping[str, Any]) -> Iterator[Event]:
        wire = mapping(event.get("item"))
        if wire:
            id, type = text(wire.get("id")), text(wire.get("type"))
            item = self._find(id, type, integer(event.get("output_index"))) or self._enter(
                id, type, integer(event.get("output_index"))
            )
            self._still(item)
            yield from item.finish(wire, "completed")
        elif (known := self._by_place.get(integer(event.get("output_index")) or 0)) is not None and not known.done:
            self._still(known)
            yield from known.settle("completed")

    def _enter(self, id: str, type: str, place: int | None) -> Item:
        """A new item. Its id is its own, unless another item that is not done has the same."""
        key = id or self.new_id()
        known = self._by_id.get(key)
        if known is not None and not known.done:
            key = f"{key}.{len(self._items)}"
        item = Item(key, type, place)
        self._items.append(item)
        self._by_type.setdefault(type, []).append(item)
        self._by_id[id or key] = item
        if place is not None:
            self._by_place[place] = item
        return item

    def _find(self, id: str, type: str, place: int | None) -> Item | None:
        item = self._by_id.get(id)
        if item is not None and (place is None or item.place is None or item.place == place):
            return item
        if place is not None:
            there = self._by_place.get(place)
            if there is not None and there.type == type and not there.done:
                return there
        elif not id:
            return self._latest(type)
        return item

    def _latest(self, type: str) -> Item | None:
        """The latest item of this type that is not done."""
        items = self._by_type.get(type, [])
        while items and items[-1].done:
            items.pop()
        return items[-1] if items else None

    def _item(self, event: Mapping[str, Any], type: str) -> Item:
        """The item that an event belongs to; begun here, if nothing told of it before."""
        id, place = text(event.get("item_id")), integer(event.get("output_index"))
        return self._find(id, type, place) or self._enter(id, type, place)

    def _still(self, item: Item) -> None:
        """Nothing of this item grows any more."""
        for id in item.growing:
            grows = self._growing.get(id)
            if grows is not None and grows.message_id in item.by_id:
                del self._growing[id]
        item.growing.clear()

    # -- parts

    def _grow(self, event: Mapping[str, Any], stem: str) -> Iterator[Event]:
        stream = STREAMS[stem]
        value = event.get("delta")
        if not isinstance(value, str):
            if value is not None:
                yield self.warn("bad-delta", "its delta is no text and was skipped", event.get("type"))
            return
        if not value:
            return
        item = self._item(event, stream.item)
        if stream.kind == "call" and not item.name:
            item.unnamed.append(value)
            return
        index = integer(event.get(stream.at)) or 0
        yield from item.open(stream.kind, index)
        logprobs = sequence(event.get("logprobs"))
        make: Any = KINDS[stream.kind].make.delta_event
        id = item.id_for(stream.kind, index)
        yield make(id, value, False, {"logprobs": list(logprobs)} if logprobs else None)
        wire_id = text(event.get("item_id"))
        if stem in GROWN and self._by_id.get(wire_id) is item and not item.done:
            item.growing.add(wire_id)
            self._growing[wire_id] = _Growing(
                wire_id, DECODE[GROWN[stem]], index if stream.at else None, item.place, id, make
            )

    def _grown(self, event: Mapping[str, Any], stream: Stream) -> Iterator[Event]:
        """The final text of a part."""
        content = json_text(event.get(stream.final))
        if not content:
            return
        item = self._item(event, stream.item)
        item.name = item.name or text(event.get("name"))
        index = integer(event.get(stream.at)) or 0
        if stream.kind in ("code", "command"):
            self._still(item)
            yield from item.close(stream.kind, index, content, "completed")
        else:
            _, more = read_part({"logprobs": event.get("logprobs")})
            item.hold(stream.kind, index, content, more)

    def _part(self, event: Mapping[str, Any], key: str, *, begins: bool) -> Iterator[Event]:
        part = mapping(event.get("part"))
        kind = PART_KINDS.get(text(part.get("type")))
        if kind is None:
            return
        item = self._item(event, _ITEM_OF_KIND[kind])
        index = integer(event.get(key)) or 0
        if begins:
            yield from item.flush("completed")
            yield from item.open(kind, index)
        else:
            content, more = read_part(part)
            item.hold(kind, index, content, more)

    def _annotation(self, event: Mapping[str, Any]) -> Iterator[Event]:
        annotation = annotation_of(event.get("annotation"))
        if annotation is None:
            return
        item = self._item(event, "message")
        index = integer(event.get("content_index")) or 0
        yield from item.open("text", index)
        yield AnnotationAdded(item.id_for("text", index), annotation)

    def _partial_image(self, event: Mapping[str, Any]) -> Iterator[Event]:
        image = text(event.get("partial_image_b64"))
        if not image:
            return
        item = self._item(event, "image_generation_call")
        if format := text(event.get("output_format")):
            item.metadata["output_format"] = format
        yield from item.open("image")
        item.partial = True
        metadata = {"partial_image_index": integer(event.get("partial_image_index")) or 0}
        yield ImageMessage.delta_event(item.id_for("image", 0), image, True, metadata)

    def _console(self, event: Mapping[str, Any], *, ends: bool) -> Iterator[Event]:
        index = integer(event.get("command_index")) or 0
        if ends:
            outputs = sequence(event.get("output"))
            if outputs:
                yield from self._item(event, "shell_call_output").console(index, outputs, "completed")
        elif delta := mapping(event.get("delta")):
            yield from self._item(event, "shell_call_output").print(index, delta)

    def _sound(self, event: Mapping[str, Any], make: type[Message], *, ends: bool) -> Iterator[Event]:
        """The response's speech, or what it says: these belong to no item."""
        metadata = {"audio_transcript": True} if make is TextMessage else {}
        id = self._audio.get(make)
        if ends:
            if id is not None:
                del self._audio[make]
                yield MessageDone(make(id, metadata=metadata))
            return
        value = text(event.get("delta"))
        if not value:
            return
        if id is None:
            id = self._audio[make] = self.new_id()
            yield make.created_event(make(id, metadata=metadata))
        yield make.delta_event(id, value)

    # -- the response

    def _begins(self, event: Mapping[str, Any], *, again: bool) -> Iterator[Event]:
        return self._begin(mapping(event.get("response")), again=again)

    def _ends(self, event: Mapping[str, Any], status: RunStatus) -> Iterator[Event]:
        return self._end(mapping(event.get("response")), status)

    def _begin(self, response: Mapping[str, Any], *, again: bool) -> Iterator[Event]:
        """The response begins; a stream that is taken up later has no `response.created`."""
        if self._ended and again:
            self._reset()
            self.complete = False
        if not self._begun:
            self._begun = True
            yield RunCreated(_run(response, "in_progress"))

    def _end(self, response: Mapping[str, Any], status: RunStatus) -> Iterator[Event]:
        if self._ended:
            return
        self._begun = self._ended = self.complete = True
        given = text(response.get("status"))
        if given in STATUSES:
            status = STATUSES[given]
        yield from self._repeat(sequence(response.get("output")), STATUSES[status])
        if usage := mapping(response.get("usage")):
            yield _usage(usage)
        yield RunDone(_run(response, status))

    def _repeat(self, output: Sequence[Any], status: Status) -> Iterator[Event]:
        """The whole output at the response's end: tells what was not told before, and ends what is open."""
        wires = [mapping(wire) for wire in output]
        known = [self._by_id.get(text(wire.get("id"))) for wire in wires]
        before, spare = len(self._items), None
        for wire, item in zip(wires, known, strict=True):
            type, call_id = text(wire.get("type")), text(wire.get("call_id"))
            if item is None or item.type != type:
                # A server that gives every event another id gives another one here, too.
                spare = spare or _Spare(self._items[:before], known)
                item = spare.take(type, call_id)
            elif item.done and item.has_all_of(wire):
                continue
            new = item is None
            if item is None:
                item = self._enter(text(wire.get("id")), type, None)
            self._still(item)
            told = list(item.finish(wire, status))
            yield from told
            if new and wire and not told:
                yield RawEvent(type, wire)
        for item in self._items:
            if not item.done:
                yield from item.settle(status)
        self._growing.clear()

    def _fail(self, event: Mapping[str, Any]) -> Iterator[Event]:
        if self._ended:
            return
        self.complete = True
        error = event.get("error")
        if error is None:
            error = {key: value for key, value in event.items() if key not in ("type", "sequence_number")}
        yield RunDone(Run(status="failed", error=_error(error), raw=event))


def _readers() -> dict[str, Callable[[Decoder, Mapping[str, Any]], Iterator[Event]]]:
    """What reads each type of event."""
    of = Decoder

    def with_(read: Any, *more: Any, **fixed: Any) -> Any:
        def bound(decoder: Decoder, event: Mapping[str, Any]) -> Iterator[Event]:
            told: Iterator[Event] = read(decoder, event, *more, **fixed)
            return told

        return bound

    table: dict[str, Any] = {
        "response.output_item.added": of._item_added,
        "response.output_item.done": of._item_done,
        "response.output_text.annotation.added": of._annotation,
        "response.image_generation_call.partial_image": of._partial_image,
        "response.created": with_(of._begins, again=True),
        "response.queued": with_(of._begins, again=False),
        "response.in_progress": with_(of._begins, again=False),
    }
    table |= {kind: with_(of._ends, status) for kind, status in _ENDS.items()}
    table |= {f"{stem}.delta": with_(of._grow, stem) for stem in STREAMS}
    table |= {f"{stem}.done": with_(of._grown, stream) for stem, stream in STREAMS.items()}
    for phase in ("delta", "done"):
        ends = phase == "done"
        table[f"response.shell_call_output_content.{phase}"] = with_(of._console, ends=ends)
        table[f"response.audio.{phase}"] = with_(of._sound, AudioMessage, ends=ends)
        table[f"response.audio.transcript.{phase}"] = with_(of._sound, TextMessage, ends=ends)
    for stem, key in _PARTS.items():
        table |= {f"{stem}.{phase}": with_(of._part, key, begins=phase == "added") for phase in ("added", "done")}
    return table


class _Spare:
    """The items that a final output does not name by their ids, in order."""

    def __init__(self, items: Iterable[Item], known: Iterable[Item | None]) -> None:
        named = {id(item) for item in known}
        self._taken: set[int] = set()
        self._left: dict[tuple[str, str], deque[Item]] = {}
        for item in items:
            if id(item) not in named:
                for call_id in {"", item.call_id}:
                    self._left.setdefault((item.type, call_id), deque()).append(item)

    def take(self, type: str, call_id: str) -> Item | None:
        """The first that is left of this type and of this call; "" is any call."""
        left = self._left.get((type, call_id))
        while left:
            item = left.popleft()
            if id(item) not in self._taken:
                self._taken.add(id(item))
                return item
        return None


def _error(value: Any) -> dict[str, Any]:
    error: dict[str, Any] = dict(mapping(value)) or {"message": json_text(value)}
    if not text(error.get("message")):
        error["message"] = text(error.get("code")) or text(error.get("type")) or "the response failed"
    return error


def _run(response: Mapping[str, Any], status: RunStatus) -> Run:
    """The response as a run. Its `raw` is without the output, which is in the messages, and may be long."""
    reason = text(mapping(response.get("incomplete_details")).get("reason"))
    error = response.get("error")
    return Run(
        id=text(response.get("id")),
        status=status,
        model=text(response.get("model")) or None,
        error=_error(error) if error is not None or status == "failed" else None,
        finish_reason=reason or None,
        created_at=_time(response.get("created_at")),
        completed_at=_time(response.get("completed_at")),
        raw={key: value for key, value in response.items() if key != "output"} or None,
    )


def _time(value: Any) -> float | None:
    return value if type(value) in (int, float) and 0 <= value < 1e15 else None


def _usage(usage: Mapping[str, Any]) -> Usage:
    counts = {key: integer(usage.get(key)) or 0 for key in ("input_tokens", "output_tokens", "total_tokens")}
    counts["total_tokens"] = counts["total_tokens"] or counts["input_tokens"] + counts["output_tokens"]
    details = {key: value for key, value in usage.items() if key not in counts and value is not None}
    return Usage(**counts, details=details)


_READERS = _readers()
