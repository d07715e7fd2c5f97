"""What the decoders of both UI protocols have in common: the fast path of texts and of calls, and ids that come again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from .. import events as e
from ..core.unique_ids import UniqueIds
from ..messages.json_text import NOT_JSON
from . import base
from .framing import Frames, as_frame

__all__ = ["NOT_GROWING", "Growing", "UiDecoder"]


class Growing(NamedTuple):
    """The text that received the newest delta, as the fast path compares it: the struct and the id of the delta, then what
    makes its event."""

    struct: Any = None
    id: str = ""
    message_id: str = ""
    event: Any = None


NOT_GROWING = Growing()


class UiDecoder(base.Decoder):
    """A decoder whose texts and calls grow by deltas with an `id` and a `value`. A subclass sets what is `ClassVar`, and
    `_growing_calls`."""

    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset()
    decode_delta: ClassVar[Any]  # of a frame with an id, which is a tuple, it raises TypeError
    call_delta: ClassVar[Any]  # the struct of a piece of arguments

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._used: set[str] = set()
        self._growing = NOT_GROWING
        self._growing_calls: Mapping[str, Any] = {}  # those with streamed arguments, by the id of their deltas
        self._has_step_usage = False
        self._step_is_over = False  # whether the step ends before the next item; the last step ends with the run

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        """The events of frames. A piece of the newest text, or of an open call, takes the fast path."""
        events: list[e.Event] = []
        if self.exhausted:
            return events
        self.frames = frames
        start, surplus = self.index, 0  # events of slow items, beyond one for each
        calls, decode, call_delta = self._growing_calls, self.decode_delta, self.call_delta
        struct, id, message_id, make_event = self._growing
        for frame in frames:
            try:
                delta: Any = decode(frame)
                if delta.__class__ is struct and delta.id == id and delta.value:
                    events.append(make_event(message_id, delta.value, raw_item=frame))
                    continue
                if delta.__class__ is call_delta and delta.value:
                    call = calls[delta.id]
                    call.pieces.append(delta.value)
                    events.append(e.ToolCallDelta(call.message.id, delta.value, raw_item=frame))
                    continue
            except (KeyError, TypeError, *NOT_JSON):
                pass
            self.index = start + len(events) - surplus
            slow = self.feed_frame(*as_frame(frame))
            events += slow
            surplus += len(slow) - 1
            if self.exhausted:
                self.frames = frames[: self.index - start]
                return events
            struct, id, message_id, make_event = self._growing
        self.index = start + len(frames)
        return events

    def _unused_id(self, wanted: str) -> str:
        """A message id: the wanted one, or a new one if it is "" or there was such a message already."""
        id = self._made_id() if not wanted or wanted in self._used else wanted
        self._used.add(id)
        return id

    def _made_id(self) -> str:
        """An id that no message has."""
        return UniqueIds(self._used).free(self.new_id())
