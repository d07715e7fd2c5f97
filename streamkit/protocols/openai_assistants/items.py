"""The messages of a thread, and the flat messages that tell of them.

A thread's message has one or more parts, and each is one flat message: the first has the message's id, the others
`id.index`. Parts come one after another, so a part is done when the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...events import AnnotationAdded, Event, MessageCreated, MessageDone
from ...messages import Annotation, ImageMessage, Message, RefusalMessage, Status, TextMessage
from .wire import (
    Warn,
    Wire,
    annotation_key,
    annotation_of,
    integer,
    kept,
    kind_of,
    mapping,
    number,
    objects,
    sequence,
    text,
)

__all__ = ["Part", "ThreadMessage"]

_KINDS: dict[str, tuple[type[Message], str | None]] = {
    "text": (TextMessage, None),
    "refusal": (RefusalMessage, "refusal"),
    "image_file": (ImageMessage, "file_id"),
    "image_url": (ImageMessage, "url"),
}
_CUT: dict[str, Status] = {"run_cancelled": "cancelled", "run_failed": "failed"}


class Part:
    """One part of a thread's message, as far as it was told."""

    def __init__(self, id: str, kind: str, index: int) -> None:
        self.id = id
        self.kind = kind
        self.index = index
        self.make, self.format = _KINDS[kind]
        self.opened = False
        self.closed = False
        self.again = 0  # how often it went on after it was done
        self.given: str | None = None  # what was told of it before its first delta, which may repeat it
        self.cited: dict[int, Annotation] = {}
        self.cited_keys: set[tuple[Any, ...]] = set()


class ThreadMessage:
    """One message of the thread, as far as it was told. `step_id` is the step that makes it.

    Args:
        key: by what it is told: its id.
        unused: gives an id that no flat message of this stream has, from the one that is wanted.
    """

    def __init__(self, key: str, warn: Warn, unused: Callable[[str], str]) -> None:
        self.key = key
        self.id = unused(key)
        self.warn = warn
        self.unused = unused
        self.role = ""
        self.run_id: str | None = None
        self.step_id: str | None = None
        self.created_at: float | None = None
        self.metadata: dict[str, Any] = {}
        self.parts: dict[int, Part] = {}
        self.current: Part | None = None
        self.done = False

    def learn(self, wire: Wire) -> None:
        """Take over what the message says of itself."""
        self.role = text(wire.get("role")) or self.role
        self.run_id = text(wire.get("run_id")) or self.run_id
        self.created_at = number(wire.get("created_at")) or self.created_at
        self.metadata |= kept(wire, ("attachments", "metadata", "incomplete_details"))

    def begin(self, wire: Wire) -> Iterator[Event]:
        """The message begins, perhaps with content already."""
        self.learn(wire)
        for position, entry in enumerate(objects(wire.get("content"))):
            index = integer(entry.get("index"))
            index = position if index is None else index
            if index not in self.parts:
                yield from self.grow(position, {**entry, "index": index}, first=True)

    def grow(self, position: int, entry: Wire, *, first: bool = False) -> Iterator[Event]:
        """A piece of the part that an entry of a delta names; one without an index goes on with the latest part."""
        kind = kind_of(entry, _KINDS)
        if kind not in _KINDS:
            return
        part = self._place(kind, position, entry)
        if kind.startswith("image"):
            if content := _image(entry, kind):
                yield from self._switch(part)
                yield from self._close(part, content, "completed", kept(mapping(entry.get(kind)), ("detail",)))
            return
        value, cited = _written(entry, kind)
        if not isinstance(value, str):
            if value is not None:
                yield self.warn("bad-delta", "its delta is no text and was skipped", "thread.message.delta")
            value = ""
        repeated = part.given is not None and part.given == value
        part.given = value if first else None
        yield from self._switch(part)
        yield from self._open(part)
        if value and not repeated:
            make: Any = part.make.delta_event
            yield make(part.id, value)
        for place, annotation in enumerate(objects(cited)):
            yield from self._cite(part, place, annotation)

    def finish(self, wire: Wire, status: Status) -> Iterator[Event]:
        """The message is over; its final content, where it is told, is what counts."""
        self.learn(wire)
        reason = text(mapping(wire.get("incomplete_details")).get("reason"))
        if reason in _CUT:
            status = _CUT[reason]
            del self.metadata["incomplete_details"]  # the status says it
        for index, entry in self._numbered(objects(wire.get("content"))):
            kind = kind_of(entry, _KINDS)
            if kind not in _KINDS:
                continue
            part = self._place(kind, index, {**entry, "index": index})
            if kind.startswith("image"):
                detail = kept(mapping(entry.get(kind)), ("detail",))
                yield from self._close(part, _image(entry, kind) or None, status, detail)
            elif part.again:
                yield from self._close(part, None, status)  # the content is that of all its messages
            else:
                value, cited = _written(entry, kind)
                yield from self._close(part, text(value) or None, status, cited=self._uncited(part, objects(cited)))
        yield from self.settle(status)

    def settle(self, status: Status) -> Iterator[Event]:
        """What is open of the message is over."""
        for part in self.parts.values():
            if part.opened and not part.closed:
                yield from self._close(part, None, status)
        self.done = True

    def _place(self, kind: str, position: int, entry: Wire) -> Part:
        index = integer(entry.get("index"))
        if index is None:
            latest = self.current
            index = latest.index if latest is not None and latest.kind == kind and not position else position
        part = self.parts.get(index)
        if part is None or part.kind != kind:
            id = self.unused(f"{self.id}.{index}") if self.parts else self.id
            part = self.parts[index] = Part(id, kind, index)
        return part

    def _numbered(self, entries: list[Wire]) -> list[tuple[int, Wire]]:
        """The parts of the final content, by the index that they were streamed with: it need not be the place."""
        told = sorted(self.parts)
        if told and told[-1] >= len(entries):
            return [*zip(told, entries, strict=False), *list(enumerate(entries, told[-1] + 1))[len(told) :]]
        return [*enumerate(entries)]

    def _switch(self, part: Part) -> Iterator[Event]:
        """The part before this one is over."""
        before, self.current = self.current, part
        if before is not None and before is not part and before.opened and not before.closed:
            yield from self._close(before, None, "completed")

    def _open(self, part: Part) -> Iterator[Event]:
        if part.closed and part.kind in ("text", "refusal"):
            part.again += 1
            part.opened = part.closed = False
            fault = f"part {part.index} of message {self.id!r} went on after it was done; it begins another message"
            part.id = self.unused(f"{self.id}.{part.index}")
            yield self.warn("delta-after-done", fault, "thread.message.delta")
        if not part.opened:
            part.opened = True
            yield MessageCreated(self._message(part))

    def _message(self, part: Part, **fields: Any) -> Message:
        fields["metadata"] = {**self.metadata, **(fields.get("metadata") or {})}
        return part.make(
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

    def _close(
        self,
        part: Part,
        content: str | None,
        status: Status,
        more: Wire | None = None,
        cited: Sequence[Annotation] = (),
    ) -> Iterator[Event]:
        if part.closed:
            return
        part.opened = part.closed = True
        fields: dict[str, Any] = {"annotations": cited} if part.kind == "text" else {}
        yield MessageDone(self._message(part, content=content, status=status, metadata=more, **fields))

    def _cite(self, part: Part, place: int, wire: Wire) -> Iterator[Event]:
        if not wire:
            return
        annotation = annotation_of(wire)
        index = integer(wire.get("index"))
        known = annotation_key(annotation) in part.cited_keys if index is None else index in part.cited
        if not known:
            part.cited[len(part.cited) if index is None else index] = annotation
            part.cited_keys.add(annotation_key(annotation))
            yield AnnotationAdded(part.id, annotation)

    def _uncited(self, part: Part, wires: list[Wire]) -> list[Annotation]:
        """The citations of a final text that were not told before."""
        found = [(place, annotation_of(wire)) for place, wire in enumerate(wires) if wire]
        return [one for place, one in found if place not in part.cited and annotation_key(one) not in part.cited_keys]


def _written(entry: Wire, kind: str) -> tuple[Any, Sequence[Any]]:
    """What a part of text or refusal says, and what it cites."""
    if kind == "refusal" or not isinstance(entry.get("text"), (dict, list, type(None))):
        return entry.get(kind), ()
    body = mapping(entry.get("text"))
    return body.get("value"), sequence(body.get("annotations"))


def _image(entry: Wire, kind: str) -> str:
    return text(mapping(entry.get(kind)).get("file_id" if kind == "image_file" else "url"))
