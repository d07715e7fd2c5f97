"""Decodes Anthropic's Messages API, and the servers that imitate it.

Terminal rule: `message_stop`; a `stop_reason`, in `message_delta` or in a message that begins with all its content (some
servers leave out what follows it); or an `error`. `[DONE]` alone ends nothing. An answer that is not streamed
(`{"type": "message", …}`) is complete. A `message_start` after the end begins another answer in the same run, in a step of
its own.

Each content block is a message. The first one has the provider's id of the answer, the others have ids made from it, and
calls have their own. `content` says when a block is done.

A run's `finish_reason` is the stop_reason; `max_tokens`, `model_context_window_exceeded`, `refusal`, `pause_turn` and
`compaction` make the run incomplete. If the provider explains a refusal, the explanation is a refusal message.
`Run.metadata` has the answer's other keys: `stop_sequence`, `stop_details`, `container`, `context_management` ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ... import events as e
from ... import messages as m
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import fields_of
from .. import base
from ..framing import Frames, as_frame
from ..held_values import HeldSize, add_values
from ..values import WireObject, as_object, as_text, is_list, is_object, text_or_none, without_keys
from .content import ContentBlocks, MessageIds
from .shape import recognises
from .wire import HELPER_EVENTS, PAUSE_REASONS, InputDelta, decode_delta, error_of, usage_of

__all__ = ["Decoder"]

# The keys of a message that are not metadata of the run.
_MESSAGE_KEYS = ("id", "type", "role", "content", "model", "usage", "stop_reason")


class _Faults(list[tuple[str, str]]):
    """The codes and faults of warnings. It is called with each."""

    __slots__ = ()

    def __call__(self, code: str, fault: str) -> None:
        self.append((code, fault))


class Decoder(base.Decoder):
    """A stream of the Messages API, or one answer that is not streamed."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        # Warnings about the current item, which follow its other events. They refer to nothing else: a reference to the
        # decoder would be a circle, and keep a finished stream in memory.
        self._warn_later = _Faults()
        self._held = HeldSize()
        self._is_another_answer = False
        self._has_failed = False
        self._start_answer()

    def _start_answer(self) -> None:
        self._blocks = ContentBlocks(self._ids, self._warn_later)
        self._has_begun = False
        self._has_ended = False
        self._usage: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
        return recognises(item)

    # -- the fast path: pieces of blocks that are open

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        """The events of frames. A delta of an open block takes the fast path, any other item `feed_frame`."""
        events: list[e.Event] = []
        if self.exhausted:
            return events
        self._first, self._frames = self.index, frames
        growing, growing_code = self._blocks.growing, self._blocks.growing_code
        start, surplus = self.index, 0  # events beyond one for each item
        data: Any
        for data in frames:
            try:
                item = decode_delta(data)
                delta = item.delta
                found = growing.get(item.index)
                if found is not None and delta.__class__ is found[0]:
                    events.append(found[2](found[1], delta.piece, raw_item=data))
                    continue
                if found is None and delta.__class__ is InputDelta:
                    pieces = growing_code[item.index].code_deltas(delta.piece)
                    for event in pieces:
                        event.raw_item = data
                    events += pieces
                    surplus += len(pieces) - 1
                    continue
            except (KeyError, TypeError, *NOT_JSON):
                pass  # another item, or one with an SSE id or name, which is a tuple
            self.index = start + len(events) - surplus
            slow = self.feed_frame(*as_frame(data))
            events += slow
            surplus += len(slow) - 1
            if self.exhausted:
                return events
            growing, growing_code = self._blocks.growing, self._blocks.growing_code
        self.index = start + len(frames)
        return events

    def plain_event(self, item: Any) -> e.Event | None:
        """The event of a delta of an open block in its common form. Most of them are read by a few look-ups."""
        fields: dict[str, Any] = item if item.__class__ is dict else fields_of(item)
        if fields["type"] != "content_block_delta":
            return None
        index, delta = fields["index"], fields["delta"]
        _, message_id, make_event, type, key = self._blocks.growing[index]
        if delta.__class__ is not dict:
            delta = fields_of(delta)
        text = delta[key] if delta["type"] == type else None
        if text.__class__ is str and text and index.__class__ is int and (text.isascii() or not has_surrogates(text)):
            event: e.Event = make_event(message_id, text, raw_item=item)
            return event
        return None

    # -- the tolerant path

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        """None: this API has no `[DONE]`, and a server that sends one may have cut the answer short."""
        return ()

    def feed(self, item: WireObject) -> Iterable[e.Event]:
        """The events of one item, then the warnings about it."""
        kind = as_text(item.get("type"))
        if self._has_failed:
            return [e.RawEvent(kind, item)]
        read = self._readers.get(kind)
        events = list(self._other(item) if read is None else read(self, item))
        if self._warn_later:
            events += [self.warn(code, fault) for code, fault in self._warn_later]
            self._warn_later.clear()
        return events

    def finish(self) -> Iterable[e.Event]:
        """The end of the answer, as far as the source said how it ended."""
        if self.complete:
            yield from self._end()
        yield from self._blocks.cut("incomplete")

    def _block_item(self, item: WireObject) -> Iterable[e.Event]:
        """A content block begins, grows or stops."""
        match item["type"]:
            case "content_block_start":
                return self._blocks.start(item)
            case "content_block_stop":
                return self._blocks.stop(item)
            case _:
                return self._blocks.delta(item)

    def _message_start(self, item: WireObject) -> Iterable[e.Event]:
        return self._message(as_object(item.get("message")))

    def _message_stop(self, item: WireObject) -> Iterator[e.Event]:
        # Bedrock's metrics are here, and the complete message that the SDK's helper adds.
        yield from self._add_metadata(without_keys(item, "type", "message"))
        yield from self._end()

    def _complete_message(self, item: WireObject) -> Iterator[e.Event]:
        yield from self._message(item)
        self._blocks.stop_reason = self._blocks.stop_reason or text_or_none(item.get("stop_reason"))
        yield from self._end()

    def _other(self, item: WireObject) -> Iterable[e.Event]:
        """An item of another type, or without one."""
        kind = as_text(item.get("type"))
        if kind:
            return () if kind in HELPER_EVENTS else (e.RawEvent(kind, item),)
        if item.get("error") is not None:
            return self._fail(item)
        self._warn_later("no-type", "it has no type and was skipped")
        return ()

    # -- the message

    def _message(self, message: WireObject) -> Iterator[e.Event]:
        """A message begins, perhaps with complete content."""
        id = as_text(message.get("id"))
        if self._has_begun and not self._has_ended:
            is_same = id == (self._blocks.group or "")
            self._warn_later("duplicate-start", _BEGAN_TWICE if is_same else _BEGAN_TOO_EARLY)
            if is_same:
                yield from self._count_usage(message.get("usage"))
                return
            yield from self._blocks.cut("incomplete")
            self._has_ended = True
        if self._has_ended:
            self._start_answer()
            self.complete = False
            self._is_another_answer = True
        self._has_begun = True
        self._blocks.group = id or None
        yield from self._add_metadata(without_keys(message, *_MESSAGE_KEYS))
        model = text_or_none(message.get("model"))
        raw = {key: message[key] for key in message if key != "content"}
        yield e.RunCreated(e.Run(id=id, model=model, metadata=dict(self._metadata), raw=raw or None))
        if self._is_another_answer:
            yield e.RunStepCreated(e.RunStep())
        for index, block in enumerate(self._content(message.get("content"))):
            yield from self._blocks.add_complete(block, index)
        yield from self._count_usage(message.get("usage"))
        if message.get("content"):  # without content, a stop_reason is a placeholder
            yield from self._take_stop_reason(message.get("stop_reason"))

    def _content(self, content: Any) -> list[WireObject]:
        """The blocks of a message. Text in place of a block, or of all of them, is read as a text block."""
        if not content:
            return []
        parts: list[Any] = content if is_list(content) else [content]
        blocks: list[WireObject] = []
        for part in parts:
            if not is_object(part):
                how = "read as a text block" if isinstance(part, str) else "skipped"
                self._warn_later("bad-content", f"its content has a {type(part).__name__}, not a block; it was {how}")
            blocks.append({"type": "text", "text": part} if isinstance(part, str) else as_object(part))
        return blocks

    def _message_delta(self, item: WireObject) -> Iterator[e.Event]:
        delta = as_object(item.get("delta"))
        values = without_keys(delta, "stop_reason") | without_keys(item, "type", "delta", "usage")
        yield from self._add_metadata(values)
        yield from self._count_usage(item.get("usage"))
        yield from self._take_stop_reason(delta.get("stop_reason"))

    def _count_usage(self, usage: Any) -> Iterator[e.Event]:
        """The usage, where it changed. It is cumulative: a count that is not repeated stays."""
        if usage is None:
            return
        if not is_object(usage):
            self._warn_later("bad-usage", "its usage is not an object and was skipped")
            return
        if changed := add_values(self._usage, without_keys(usage)):
            yield from self._hold(changed)
            yield usage_of(self._usage)

    def _add_metadata(self, values: WireObject) -> Iterator[e.Event]:
        """Add to the run's metadata. Its size is reported."""
        if changed := add_values(self._metadata, values):
            yield from self._hold(changed)

    def _hold(self, values: WireObject) -> Iterator[e.Event]:
        if size := self._held.add(values):
            yield e.MetadataHeld(None, size)

    def _take_stop_reason(self, reason: Any) -> Iterator[e.Event]:
        """A stop_reason says how the message ends."""
        if reason is None:
            return
        self._meet_terminal_rule()
        if reason and isinstance(reason, str):
            self._blocks.stop_reason = reason
            yield from self._blocks.release()
        else:
            self._warn_later("bad-stop-reason", f"its stop_reason is {reason!r}, not text; read as the message's end")

    # -- its end

    def _meet_terminal_rule(self) -> None:
        self.complete = self._blocks.is_ending = True

    def _end(self) -> Iterator[e.Event]:
        """The answer is over, and with it the run, unless another answer follows."""
        self._meet_terminal_rule()
        if self._has_ended:
            return
        blocks = self._blocks
        status = blocks.partial_call_status if blocks.has_partial_call else blocks.status
        yield from blocks.end()
        self._has_ended = True
        self.continues_in_next_source = blocks.stop_reason in PAUSE_REASONS
        details = as_object(self._metadata.get("stop_details"))
        if blocks.stop_reason == "refusal" and (explanation := as_text(details.get("explanation"))):
            metadata = {"stop_details": dict(details)}
            id = self._ids.refusal(blocks.group)
            yield e.MessageDone(m.RefusalMessage(id, content=explanation, group=blocks.group, metadata=metadata))
        yield e.RunDone(e.Run(status=status, finish_reason=blocks.stop_reason, metadata=dict(self._metadata)))

    def _fail(self, item: WireObject) -> Iterator[e.Event]:
        """An error ends the answer. After the end it changes nothing."""
        if self._has_ended:
            yield e.RawEvent("error", item)
            return
        yield from self._blocks.cut("failed")
        self._has_failed = self._has_ended = True
        self._meet_terminal_rule()
        yield e.RunDone(e.Run(status="failed", error=error_of(item), metadata=dict(self._metadata), raw=item))

    # What reads each type of item.
    _readers: ClassVar[dict[str, Callable[[Any, WireObject], Iterable[e.Event]]]] = {
        "message_start": _message_start,
        "content_block_start": _block_item,
        "content_block_delta": _block_item,
        "content_block_stop": _block_item,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "message": _complete_message,
        "error": _fail,
    }


_BEGAN_TWICE = "the message began twice; the second start was dropped"
_BEGAN_TOO_EARLY = "another message began before this one had ended; it was ended here"
