"""The base of both UI protocols' decoders: the texts that are open, and the plain case of texts and of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from .. import events as e
from .. import messages as m
from . import base
from .message_ids import MessageIds
from .ui_parts import message_fields
from .values import WireObject, as_text

__all__ = ["UiDecoder"]


class Growing(NamedTuple):
    """The text that received the newest delta: the type and the id of its deltas, then what makes their events."""

    type: str = ""
    id: str = ""
    message_id: str = ""
    event: Any = None


_NOT_GROWING = Growing()


class UiDecoder(base.Decoder):
    """A decoder whose texts and calls grow by deltas: a subclass sets what is `ClassVar`, and `_growing_calls`. A plain item
    has the `type`, `id` and `value` of a text's delta, and the `call_id` of a call's.

    A text or a reasoning is open from its start to its end, under its kind (`text`, `reasoning`) and the provider's id.
    """

    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset()
    text_deltas: ClassVar[Mapping[str, str]]  # the type of a delta, by the kind of the text
    text_id: ClassVar[str]  # where an item has the id of its text
    call_delta: ClassVar[str]  # the type of a piece of arguments
    call_piece: ClassVar[str]  # where a plain item has that piece
    extra_of: ClassVar[Callable[[WireObject], WireObject]]  # the fields of our message that an item carries along
    metadata_of: ClassVar[Callable[[WireObject], dict[str, Any]]]  # what another server sends along

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        # The message ids and classes of open texts, by their kind and the provider's id.
        self._texts: dict[tuple[str, str], tuple[str, type[m.Message]]] = {}
        self._growing = _NOT_GROWING
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

    # -- texts and reasoning

    def _begin_text(self, kind: str, item: WireObject) -> Iterator[e.Event]:
        id = as_text(item.get(self.text_id))
        if (kind, id) in self._texts:
            yield self.warn("duplicate-start", f"{kind} {id!r} is open already; it was skipped", item.get("type"))
        else:
            yield self._open_text(kind, id, item)

    def _open_text(self, kind: str, id: str, item: WireObject) -> e.Event:
        """Return the event that begins a text."""
        extra = type(self).extra_of(item)
        fields = {key: value for key, value in message_fields(extra).items() if key not in ("metadata", "status")}
        message_class: type[m.Message] = m.ReasoningMessage if kind == "reasoning" else m.TextMessage
        if kind == "text" and fields.get("format") == "refusal":
            message_class = m.RefusalMessage
        message_id = self._ids.unused(as_text(extra.get("id")), id)
        self._texts[kind, id] = message_id, message_class
        self._grow(kind, id)
        fields |= self._more_fields(kind, item)
        return e.MessageCreated(message_class(message_id, metadata=type(self).metadata_of(item), **fields))

    def _more_fields(self, kind: str, item: WireObject) -> dict[str, Any]:
        """Return the fields of a text that the protocol itself has."""
        return {}

    def _grow(self, kind: str, id: str) -> None:
        """Let the deltas of this text be plain."""
        message_id, message_class = self._texts[kind, id]
        self._growing = Growing(self.text_deltas[kind], id, message_id, message_class.delta_event)

    def _text_delta(self, kind: str, item: WireObject) -> Iterator[e.Event]:
        id, value = as_text(item.get(self.text_id)), item.get("delta")
        if (kind, id) not in self._texts:
            fault = f"there is no open {kind} {id!r}; it begins here"
            yield self.warn("stray-delta", fault, item.get("type"))
            yield self._open_text(kind, id, {})
        message_id, message_class = self._texts[kind, id]
        metadata = type(self).metadata_of(item)
        if not isinstance(value, str):
            yield self.warn("bad-delta", "its delta is not text, and was skipped", item.get("type"))
        elif value or metadata:
            yield message_class.delta_event(message_id, value, metadata=metadata or None)
            self._grow(kind, id)

    def _end_text(self, kind: str, item: WireObject) -> Iterator[e.Event]:
        id = as_text(item.get(self.text_id))
        self._growing = _NOT_GROWING
        found = self._texts.pop((kind, id), None)
        if found is None:
            yield self.warn("stray-end", f"there is no open {kind} {id!r}", item.get("type"))
            return
        message_id, message_class = found
        fields = {key: value for key, value in message_fields(type(self).extra_of(item)).items() if key != "metadata"}
        yield e.MessageDone(message_class(message_id, metadata=self._metadata_at_end(message_id, item), **fields))

    def _metadata_at_end(self, message_id: str, item: WireObject) -> dict[str, Any] | None:
        """Return the metadata of a text that ends with this item."""
        return type(self).metadata_of(item)
