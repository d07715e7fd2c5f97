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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from ...events import Delta, Event, RawEvent, Run, RunDone
from ..values import WireObject, as_object, as_text, text_or_none, without, without_keys
from .answers import Answers
from .shape import recognises
from .wire import HELPER_EVENTS, SEARCHES, TRANSIENT_ERRORS, PlainBlockDelta, error_of

__all__ = ["Decoder"]

# The keys of a `message_delta` that are not metadata of the run.
_MESSAGE_DELTA_KEYS = frozenset({"type", "delta", "usage"})


class Decoder(Answers):
    """A stream of the Messages API, or one answer that is not streamed."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    plain_item: ClassVar[Any] = PlainBlockDelta
    transient_errors = TRANSIENT_ERRORS
    searches = SEARCHES

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
        return recognises(item)

    def plain(self, item: PlainBlockDelta) -> Delta | None:
        """Return the event of a delta of an open block."""
        struct, message_id, make_event = self._blocks.growing[item.index]
        return make_event(message_id, item.delta.piece) if item.delta.__class__ is struct else None

    # -- any other item. What reads one adds its events to `events`

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """None: this API has no `[DONE]`, and a server that sends one may have cut the answer short."""
        return ()

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one item, then the warnings about it."""
        kind = as_text(item.get("type"))
        events: list[Event] = []
        self._readers.get(kind, Decoder._other)(self, item, events)
        self._warn(events)
        return events

    def _block_start(self, item: WireObject, events: list[Event]) -> None:
        index = self._blocks.index_of(item, starts=True)
        if not self._blocks.start(index, as_object(item.get("content_block")), events):
            events.append(RawEvent("content_block_start", item))

    def _block_delta(self, item: WireObject, events: list[Event]) -> None:
        index = self._blocks.index_of(item)
        if not self._blocks.delta(index, as_object(item.get("delta")), events):
            events.append(RawEvent("content_block_delta", item))

    def _block_stop(self, item: WireObject, events: list[Event]) -> None:
        if not self._blocks.stop(self._blocks.index_of(item), events):
            events.append(RawEvent("content_block_stop", item))

    def _message_start(self, item: WireObject, events: list[Event]) -> None:
        self._message(as_object(item.get("message")), events)

    def _message_stop(self, item: WireObject, events: list[Event]) -> None:
        # Bedrock's metrics are here, and the complete message that the SDK's helper adds.
        if len(item) > 1:
            self._add_metadata(without_keys(item, "type", "message"), events)
        self._end(events)

    def _complete_message(self, item: WireObject, events: list[Event]) -> None:
        self._message(item, events)
        if self._blocks.stop_reason is None and (reason := text_or_none(item.get("stop_reason"))) is not None:
            self._blocks.take_stop_reason(reason, events)
        self._end(events)

    def _ping(self, item: WireObject, events: list[Event]) -> None:
        events.append(RawEvent("ping", item))

    def _other(self, item: WireObject, events: list[Event]) -> None:
        """An item of another type, or without one, or that comes after an error."""
        kind = as_text(item.get("type"))
        if self._has_failed or (kind and kind not in HELPER_EVENTS):
            events.append(RawEvent(kind, item))
        elif not kind and item.get("error") is not None:
            self._fail(item, events)
        elif not kind:
            self._blocks.warn("no-type", "it has no type and was skipped")

    def _message_delta(self, item: WireObject, events: list[Event]) -> None:
        delta = as_object(item.get("delta"))
        values = without_keys(delta, "stop_reason")
        if not _MESSAGE_DELTA_KEYS.issuperset(item):
            values |= without(item, _MESSAGE_DELTA_KEYS)
        if values:
            self._add_metadata(values, events)
        self._count_usage(item.get("usage"), events)
        self._take_stop_reason(delta.get("stop_reason"), events)

    def _fail(self, item: WireObject, events: list[Event]) -> None:
        """An error ends the answer. After the end it changes nothing."""
        if self._has_ended:
            events.append(RawEvent("error", item))  # though it may have no type
            return
        self._blocks.cut("failed", events)
        self._has_failed = self._has_ended = True
        self._readers = {}
        self.complete = self._blocks.is_ending = True
        run = Run(status="failed", error=error_of(item), metadata={**self._metadata}, raw=item)
        events.append(RunDone(run))

    # What reads each type of item, until an error ends the answer.
    _readers: Mapping[str, Callable[[Any, WireObject, list[Event]], None]] = {
        "ping": _ping,
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "message": _complete_message,
        "error": _fail,
    }
