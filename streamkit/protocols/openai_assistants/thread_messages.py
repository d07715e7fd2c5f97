"""The messages of a thread, decoded to flat messages.

A thread's message has one or more parts, and each part becomes one flat message: the first has the message's id, the
others have `id.index`. Parts come one after another, so a part is done when the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...events import AnnotationAdded, Event, MessageCreated, MessageDone
from ...messages import Annotation, ImageMessage, Message, RefusalMessage, Status, TextMessage
from ..values import WireObject, as_count, as_list, as_object, as_objects, as_seconds, as_text
from .wire import Warn, citation_of, identity_of, kind_of, nonempty_values

__all__ = ["ThreadMessage", "ThreadMessagePart"]

_KINDS: dict[str, tuple[type[Message], str | None]] = {
    "text": (TextMessage, None),
    "refusal": (RefusalMessage, "refusal"),
    "image_file": (ImageMessage, "file_id"),
    "image_url": (ImageMessage, "url"),
}
# The status of a message that was cut short for such a reason; for all other reasons, that of its event.
_REASON_STATUS: dict[str, Status] = {"run_cancelled": "cancelled", "run_failed": "failed"}


class ThreadMessagePart:
    """One part of a thread's message: a flat message, from created to done.

    Attributes:
        restarts: how often it went on after it was done, each time as another flat message.
        initial_text: the text that the message had when it was created; its first delta may repeat that.
        citations: by index, those that were emitted; `citation_identities` are the same.
    """

    def __init__(self, id: str, kind: str, index: int) -> None:
        self.id = id
        self.kind = kind
        self.index = index
        self.message_class, self.format = _KINDS[kind]
        self.is_created = False
        self.is_done = False
        self.restarts = 0
        self.initial_text: str | None = None
        self.citations: dict[int, Annotation] = {}
        self.citation_identities: set[tuple[Any, ...]] = set()

    @property
    def is_open(self) -> bool:
        """Whether its flat message is created and not done."""
        return self.is_created and not self.is_done

    @property
    def takes_text(self) -> bool:
        """Whether a further piece of text does no more than extend it."""
        return self.is_open and self.kind == "text" and self.initial_text is None


class ThreadMessage:
    """One message of the thread.

    Args:
        key: its id in the stream.
        warn: makes a warning.
        unused_id: returns an id that no flat message of the stream has, made from the wanted one.

    Attributes:
        step_id: the step that creates it, if the stream names one.
        current: the part that came last.
    """

    def __init__(self, key: str, warn: Warn, unused_id: Callable[[str], str]) -> None:
        self.key = key
        self.id = unused_id(key)
        self.warn = warn
        self.unused_id = unused_id
        self.role = ""
        self.run_id: str | None = None
        self.step_id: str | None = None
        self.created_at: float | None = None
        self.metadata: dict[str, Any] = {}
        self.parts: dict[int, ThreadMessagePart] = {}
        self.current: ThreadMessagePart | None = None
        self.is_done = False

    def begin(self, wire: WireObject) -> Iterator[Event]:
        """Create the message, perhaps with content already."""
        self._update(wire)
        for position, entry in enumerate(as_objects(wire.get("content"))):
            index = as_count(entry.get("index"))
            index = position if index is None else index
            if index not in self.parts:
                yield from self.add_delta(position, {**entry, "index": index}, is_initial=True)

    def _update(self, wire: WireObject) -> None:
        self.role = as_text(wire.get("role")) or self.role
        self.run_id = as_text(wire.get("run_id")) or self.run_id
        self.created_at = as_seconds(wire.get("created_at")) or self.created_at
        self.metadata |= nonempty_values(wire, ("attachments", "metadata", "incomplete_details"))

    def add_delta(self, position: int, entry: WireObject, *, is_initial: bool = False) -> Iterator[Event]:
        """Add an entry of a delta to its part; an entry without an index continues the current part."""
        kind = kind_of(entry, _KINDS)
        if kind not in _KINDS:
            return
        part = self._part_of(kind, position, entry)
        if kind.startswith("image"):
            if content := _image_content(entry, kind):
                yield from self._switch_to(part)
                yield from self._end_part(part, content, "completed", _image_detail(entry, kind))
            return
        value, citations = _text_and_citations(entry, kind)
        if not isinstance(value, str):
            if value is not None:
                yield self.warn("bad-delta", "its delta is not text and was skipped", "thread.message.delta")
            value = ""
        is_repeated = part.initial_text is not None and part.initial_text == value
        part.initial_text = value if is_initial else None
        yield from self._switch_to(part)
        yield from self._create(part)
        if value and not is_repeated:
            make_delta: Any = part.message_class.delta_event
            yield make_delta(part.id, value)
        for citation in as_objects(citations):
            yield from self._add_citation(part, citation)

    def end_with(self, wire: WireObject, status: Status) -> Iterator[Event]:
        """End the message with its final form. Its final content, where the event has it, replaces what was streamed."""
        self._update(wire)
        reason = as_text(as_object(wire.get("incomplete_details")).get("reason"))
        if reason in _REASON_STATUS:
            status = _REASON_STATUS[reason]
            del self.metadata["incomplete_details"]  # the status expresses the same
        for index, entry in self._indexed(as_objects(wire.get("content"))):
            kind = kind_of(entry, _KINDS)
            if kind not in _KINDS:
                continue
            part = self._part_of(kind, index, {**entry, "index": index})
            if kind.startswith("image"):
                content = _image_content(entry, kind) or None
                yield from self._end_part(part, content, status, _image_detail(entry, kind))
            elif part.restarts:
                yield from self._end_part(part, None, status)  # the content is that of all its flat messages
            else:
                value, citations = _text_and_citations(entry, kind)
                new = self._new_citations(part, as_objects(citations))
                yield from self._end_part(part, as_text(value) or None, status, citations=new)
        yield from self.close(status)

    def close(self, status: Status) -> Iterator[Event]:
        """End the parts that are open."""
        for part in self.parts.values():
            if part.is_open:
                yield from self._end_part(part, None, status)
        self.is_done = True

    # -- parts

    def _part_of(self, kind: str, position: int, entry: WireObject) -> ThreadMessagePart:
        """Return the part that an entry belongs to; a new one if there is none of this kind at its index."""
        index = as_count(entry.get("index"))
        if index is None:
            current = self.current
            continues = current is not None and current.kind == kind and not position
            index = current.index if current is not None and continues else position
        part = self.parts.get(index)
        if part is None or part.kind != kind:
            id = self.unused_id(f"{self.id}.{index}") if self.parts else self.id
            part = self.parts[index] = ThreadMessagePart(id, kind, index)
        return part

    def _indexed(self, entries: list[WireObject]) -> list[tuple[int, WireObject]]:
        """Return the parts of the final content with the indexes that they were streamed with, which may have gaps."""
        streamed = sorted(self.parts)
        if streamed and streamed[-1] >= len(entries):
            rest = list(enumerate(entries, streamed[-1] + 1))[len(streamed) :]
            return [*zip(streamed, entries, strict=False), *rest]
        return [*enumerate(entries)]

    def _switch_to(self, part: ThreadMessagePart) -> Iterator[Event]:
        """Make a part the current one. The one before it is done."""
        before, self.current = self.current, part
        if before is not None and before is not part and before.is_open:
            yield from self._end_part(before, None, "completed")

    def _create(self, part: ThreadMessagePart) -> Iterator[Event]:
        if part.is_done and part.kind in ("text", "refusal"):
            part.restarts += 1
            part.is_created = part.is_done = False
            fault = f"part {part.index} of message {self.id!r} went on after it was done; it begins another message"
            part.id = self.unused_id(f"{self.id}.{part.index}")
            yield self.warn("delta-after-done", fault, "thread.message.delta")
        if not part.is_created:
            part.is_created = True
            yield MessageCreated(self._flat_message(part))

    def _end_part(
        self,
        part: ThreadMessagePart,
        content: str | None,
        status: Status,
        metadata: WireObject | None = None,
        citations: Sequence[Annotation] = (),
    ) -> Iterator[Event]:
        """Emit the end of a part; `content` None leaves the content that was streamed."""
        if part.is_done and not content:
            return  # the engine compares what a message that is done has
        part.is_created = part.is_done = True
        fields: dict[str, Any] = {"annotations": citations} if part.kind == "text" else {}
        yield MessageDone(self._flat_message(part, content=content, status=status, metadata=metadata, **fields))

    def _flat_message(self, part: ThreadMessagePart, **fields: Any) -> Message:
        fields["metadata"] = {**self.metadata, **(fields.get("metadata") or {})}
        return part.message_class(
            part.id,
            role=self.role,
            format=part.format,
            group=self.id,
            index=part.index,
            created_at=self.created_at,
            run_id=self.run_id,
            step_id=self.step_id,
            **fields,
        )

    # -- citations

    def _add_citation(self, part: ThreadMessagePart, wire: WireObject) -> Iterator[Event]:
        """Emit a citation, unless it was emitted before."""
        if not wire:
            return
        citation = citation_of(wire)
        if wire.get("type") is not None and not isinstance(wire["type"], str):
            fault = f"the type of a citation is not text; it was read as {citation.type!r}"
            yield self.warn("bad-annotation", fault, "thread.message.delta")
        index = as_count(wire.get("index"))
        identity = identity_of(citation)
        is_repeated = identity in part.citation_identities if index is None else index in part.citations
        if not is_repeated:
            part.citations[len(part.citations) if index is None else index] = citation
            part.citation_identities.add(identity)
            yield AnnotationAdded(part.id, citation)

    def _new_citations(self, part: ThreadMessagePart, wires: list[WireObject]) -> list[Annotation]:
        """Return the citations of the final text that were not emitted before."""
        found = [(position, citation_of(wire)) for position, wire in enumerate(wires) if wire]
        return [
            citation
            for position, citation in found
            if position not in part.citations and identity_of(citation) not in part.citation_identities
        ]


def _text_and_citations(entry: WireObject, kind: str) -> tuple[Any, Sequence[Any]]:
    """Return the value of a part of text or refusal, and its citations. Some servers send the text itself as `text`."""
    if kind == "refusal" or not isinstance(entry.get("text"), (dict, list, type(None))):
        return entry.get(kind), ()
    body = as_object(entry.get("text"))
    return body.get("value"), as_list(body.get("annotations"))


def _image_content(entry: WireObject, kind: str) -> str:
    return as_text(as_object(entry.get(kind)).get("file_id" if kind == "image_file" else "url"))


def _image_detail(entry: WireObject, kind: str) -> WireObject:
    return nonempty_values(as_object(entry.get(kind)), ("detail",))
