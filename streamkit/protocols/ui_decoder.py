"""The base of both UI protocols' decoders: the plain case of texts and of calls, and ids that come again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from .. import events as e
from ..core.unique_ids import UniqueIds
from . import base

__all__ = ["NOT_GROWING", "Growing", "UiDecoder"]


class Growing(NamedTuple):
    """The text that received the newest delta: the type and the id of its deltas, then what makes their events."""

    type: str = ""
    id: str = ""
    message_id: str = ""
    event: Any = None


NOT_GROWING = Growing()


class UiDecoder(base.Decoder):
    """A decoder whose texts and calls grow by deltas: a subclass sets what is `ClassVar`, and `_growing_calls`. A plain item
    has the `type`, `id` and `value` of a text's delta, and the `call_id` of a call's."""

    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset()
    call_delta: ClassVar[str]  # the type of a piece of arguments
    call_piece: ClassVar[str]  # where a plain item has that piece

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._used: set[str] = set()
        self._growing = NOT_GROWING
        self._growing_calls: Mapping[str, Any] = {}  # those with streamed arguments, by the id of their deltas
        self._has_step_usage = False
        self._step_is_over = False  # whether the step ends before the next item; the last step ends with the run

    def plain(self, item: Any) -> e.Delta | None:
        """Return the event of a piece of the newest text, or of an open call."""
        growing = self._growing
        if item.type == growing.type and item.id == growing.id and item.value:
            event: e.Delta = growing.event(growing.message_id, item.value)
            return event
        if item.type == self.call_delta and (piece := getattr(item, self.call_piece)):
            call = self._growing_calls[item.call_id]
            call.pieces.append(piece)
            return e.ToolCallDelta(call.message.id, piece)
        return None

    def _unused_id(self, wanted: str) -> str:
        """Return a message id: the wanted one, or a new one if it is "" or there was such a message already."""
        id = self._made_id() if not wanted or wanted in self._used else wanted
        self._used.add(id)
        return id

    def _made_id(self) -> str:
        """Return an id that no message has."""
        return UniqueIds(self._used).free(self.new_id())
