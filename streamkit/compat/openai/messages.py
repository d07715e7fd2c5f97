"""The growing snapshot of one message: a live openai object that is changed in place, and the hook calls for its parts.

The rules: a content part is created empty before its first delta and done once. An Assistants message is written from
front to back, so a new part ends the one before it; a late delta for a finished text part creates it a second time. The
live objects are the handler's to change, so what was streamed is counted apart from them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec
from openai.types.beta.threads import (
    ImageFileContentBlock,
    Message,
    RefusalContentBlock,
    Text,
    TextContentBlock,
    TextDelta,
)

from ...protocols import is_list
from .objects import append, build, entries, has_rest, insert_sorted, integer, mapping, text, text_annotation, update

__all__ = ["HookCall", "MessageSnapshot"]

HookCall = tuple[str, tuple[Any, ...]]
"""A hook's name and its arguments."""

_EMPTY_DELTA = build(TextDelta, {"value": ""})  # copying it costs a quarter of building another one
_KINDS = ("text", "refusal", "image_file", "image_url")


class ContentPart:
    """One content part of a message.

    Attributes:
        kind: Its `type` on the wire.
        block: openai's content block; live.
        is_open: Whether it is still being written.
        annotations: A text's annotations as wire data, in the order of the block's own.
        length: How many characters of a text were streamed. A handler may have emptied or changed the live one.
        final: The final text, where a handler has changed the live one; it gets it back when the part is done.
    """

    def __init__(self, kind: str, entry: Mapping[str, Any], index: int) -> None:
        self.kind = kind
        self.is_open = True
        self.length = 0
        self.final: str | None = None
        self.annotations: list[dict[str, Any]] = []
        self._annotation_positions: dict[Any, int] = {}  # by index, and by encoded data
        empty: dict[str, Any] = {
            "text": {"value": "", "annotations": []},
            "refusal": "",
            "image_file": {"file_id": "", **mapping(entry.get("image_file"))},
        }
        data = {**entry, "index": index, "type": kind, kind: empty.get(kind, mapping(entry.get(kind)))}
        self.block: Any = build(Message, {"content": [data]}).content[0]

    def remove_index(self) -> None:
        """Remove the `index` field. Growing parts have one; the parts of openai's finished messages have none."""
        extra: dict[str, Any] | None = self.block.model_extra
        if extra is not None:
            extra.pop("index", None)

    @property
    def text(self) -> Text:
        """The text of a text part; live."""
        assert isinstance(self.block, TextContentBlock)
        return self.block.text

    def annotate(self, annotation: Mapping[str, Any]) -> None:
        """Add an annotation. One with an index that is taken updates the earlier one; an exact repeat adds nothing."""
        index = integer(annotation.get("index"))
        data = {key: value for key, value in annotation.items() if key != "index"}
        encoded = msgspec.json.encode(data, enc_hook=repr)
        position = self._annotation_positions.get(encoded if index is None else index)
        if position is None:
            position = len(self.annotations)
            self.annotations.append(data)
            self.text.annotations.append(text_annotation(annotation))
        else:
            changes = {key: value for key, value in data.items() if value is not None}
            data = self.annotations[position] = {**self.annotations[position], **changes}
            self.text.annotations[position] = text_annotation(data if index is None else {**data, "index": index})
        self._annotation_positions[encoded] = position
        if index is not None:
            self._annotation_positions[index] = position

    def replace_annotations(self, annotations: list[Any]) -> None:
        """Replace all annotations."""
        self.annotations.clear()
        self.text.annotations.clear()
        self._annotation_positions.clear()
        for _, annotation in entries(annotations):
            self.annotate(annotation)


class MessageSnapshot:
    """One message.

    Methods that return hook calls take `wants`, the names of the overridden hooks, and leave out calls of others.

    Attributes:
        live: openai's message object, the one that hooks and accessors get.
        parts: The content parts by their index.
        is_done: Whether the message has ended.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.live = build(Message, {**header, "content": []})
        self.parts: dict[int, ContentPart] = {}
        self.is_done = False
        self._order: list[int] = []  # the indexes of the parts, in the order of the content
        self._open_part: ContentPart | None = None

    def update_content(self, content: Any, wants: Container[str], *, final: bool = False) -> Iterator[HookCall]:
        """Add pieces of content parts; with `final`, complete the parts to the finished message's content."""
        pieces = list(entries(content))
        order = list(self._order)
        # Parts that are numbered from 1 or with gaps have a final content of the same length, in the same order.
        by_order = final and bool(order) and order[-1] >= len(pieces) == len(order)
        for position, entry in pieces:
            index = integer(entry.get("index"))
            if index is None:
                index = order[position] if by_order else position if final else self._likely_index(entry, position)
            yield from self._update_part(index, entry, wants, final=final)

    def close_part(self, wants: Container[str]) -> Iterator[HookCall]:
        """End the part that is being written, if there is one."""
        part, self._open_part = self._open_part, None
        if part is None:
            return
        part.is_open = False
        if part.kind == "text" and "on_text_done" in wants:
            yield "on_text_done", (part.text,)
        if part.kind == "image_file" and "on_image_file_done" in wants:
            assert isinstance(part.block, ImageFileContentBlock)
            if part.block.image_file.file_id:
                yield "on_image_file_done", (part.block.image_file,)

    def close(self, wants: Container[str], data: Mapping[str, Any]) -> Iterator[HookCall]:
        """End the message. `data` is its final wire data, with or without `content`."""
        if self.is_done:
            return
        yield from self.update_content(data.get("content"), wants, final=True)
        yield from self.close_part(wants)
        if is_list(data.get("content")):
            for part in self.parts.values():
                part.remove_index()
                if part.final is not None:
                    part.text.value = part.final
        update(self.live, data, skip=("id", "content"))
        self.is_done = True
        if "on_message_done" in wants:
            yield "on_message_done", (self.live,)

    def _likely_index(self, entry: Mapping[str, Any], position: int) -> int:
        """Return the index of the part that a piece without an index belongs to."""
        part = self._open_part
        if part is not None and part.kind == entry.get("type", part.kind):
            return next(index for index, other in self.parts.items() if other is part)
        return max(self.parts, default=position - 1) + 1

    def _update_part(
        self, index: int, entry: Mapping[str, Any], wants: Container[str], *, final: bool
    ) -> Iterator[HookCall]:
        kind = text(entry.get("type")) or next((kind for kind in _KINDS if kind in entry), "")
        part = self.parts.get(index)
        if part is not None and final and part.kind != kind:
            if kind not in _KINDS:
                return  # the part stays as it was streamed
            if part.is_open:
                yield from self.close_part(wants)
            self._remove(index)
            part = None
        if part is None:
            if not kind:
                return
            yield from self.close_part(wants)
            part = self._begin_part(index, kind, entry)
            yield from _text_created(part, wants)
        if part.kind == "text":
            value = entry.get("text")
            data = {"value": value} if isinstance(value, str) else mapping(value)
            yield from (self._finish_text if final else self._grow_text)(part, data, wants)
        else:
            _grow_other(part, entry, final=final)

    def _begin_part(self, index: int, kind: str, entry: Mapping[str, Any]) -> ContentPart:
        part = self._open_part = self.parts[index] = ContentPart(kind, entry, index)
        self.live.content.insert(insert_sorted(index, self._order), part.block)
        return part

    def _remove(self, index: int) -> None:
        position = self._order.index(index)
        del self._order[position], self.live.content[position], self.parts[index]

    def _grow_text(self, part: ContentPart, data: Mapping[str, Any], wants: Container[str]) -> Iterator[HookCall]:
        value = text(data.get("value"))
        annotations = [annotation for _, annotation in entries(data.get("annotations"))]
        if not (value or annotations):
            return
        if not part.is_open:
            yield from self.close_part(wants)
            part.is_open, self._open_part = True, part
            yield from _text_created(part, wants)
        live = part.text
        if value:
            part.length += len(value)
            append(live, "value", value)
        for annotation in annotations:
            part.annotate(annotation)
        if "on_text_delta" in wants:
            if annotations:
                delta = build(TextDelta, {"value": value, "annotations": annotations})
            else:
                listed: list[Any] | None = [] if is_list(data.get("annotations")) else None
                delta = _EMPTY_DELTA.model_copy(update={"value": value, "annotations": listed})
            yield "on_text_delta", (delta, live)

    def _finish_text(self, part: ContentPart, data: Mapping[str, Any], wants: Container[str]) -> Iterator[HookCall]:
        final = text(data.get("value"))
        if part.is_open and has_rest(final, part.text.value, part.length):
            if len(part.text.value) != part.length:
                part.final = final
            yield from self._grow_text(part, {"value": final[part.length :]}, wants)
        elif final:
            part.text.value = final
        if is_list(data.get("annotations")):
            part.replace_annotations(data["annotations"])


def _text_created(part: ContentPart, wants: Container[str]) -> Iterator[HookCall]:
    if part.kind == "text" and "on_text_created" in wants:
        yield "on_text_created", (part.text,)


def _grow_other(part: ContentPart, entry: Mapping[str, Any], *, final: bool) -> None:
    """Add a piece to a part that is not text. Such parts have no delta hooks of their own."""
    if part.kind == "refusal":
        piece = text(entry.get("refusal"))
        assert isinstance(part.block, RefusalContentBlock)
        if final:
            part.block.refusal = piece or part.block.refusal
        elif piece:
            append(part.block, "refusal", piece)
    elif body := mapping(entry.get(part.kind)):
        update(part.block, {part.kind: body})
