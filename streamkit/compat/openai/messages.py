"""A message of openai's that grows: one live object, mutated in place, and what the hooks are told of its parts.

A part is created empty before its first delta and done once. A new part ends the one before: an Assistants message is
written from front to back. (A late piece of an ended part opens it again.)
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
from .objects import append, build, entries, integer, mapping, place_of, text, text_annotation, update

__all__ = ["HookCall", "MessageSnapshot"]

HookCall = tuple[str, tuple[Any, ...]]
"""A hook's name and its arguments."""

_PLAIN = build(TextDelta, {"value": ""})  # a copy of it costs a quarter of building another
_KINDS = ("text", "refusal", "image_file", "image_url")


class Part:
    """A part of a message: openai's content block, and whether it is still being written."""

    def __init__(self, kind: str, entry: Mapping[str, Any], index: int) -> None:
        self.kind = kind
        self.open = True
        self.annotations: list[dict[str, Any]] = []  # as they came, in the order of the text's own
        self._places: dict[Any, int] = {}
        empty: dict[str, Any] = {
            "text": {"value": "", "annotations": []},
            "refusal": "",
            "image_file": {"file_id": "", **mapping(entry.get("image_file"))},
        }
        data = {**entry, "index": index, "type": kind, kind: empty.get(kind, mapping(entry.get(kind)))}
        self.block: Any = build(Message, {"content": [data]}).content[0]

    def unplace(self) -> None:
        """Take away the index, which is of what grows: openai's final parts have none."""
        extra: dict[str, Any] | None = self.block.model_extra
        if extra is not None:
            extra.pop("index", None)

    @property
    def text(self) -> Text:
        assert isinstance(self.block, TextContentBlock)
        return self.block.text

    def annotate(self, given: Mapping[str, Any]) -> None:
        """Take in an annotation. One with the same index replaces what it repeats; the very same one is no other."""
        index = integer(given.get("index"))
        data = {key: value for key, value in given.items() if key != "index"}
        same = msgspec.json.encode(data, enc_hook=repr)
        place = self._places.get(same if index is None else index)
        if place is None:
            place = len(self.annotations)
            self.annotations.append(data)
            self.text.annotations.append(text_annotation(given))
        else:
            known = {key: value for key, value in data.items() if value is not None}
            data = self.annotations[place] = {**self.annotations[place], **known}
            self.text.annotations[place] = text_annotation(data if index is None else {**data, "index": index})
        self._places[same] = place
        if index is not None:
            self._places[index] = place

    def annotate_finally(self, given: list[Any]) -> None:
        """These are the annotations, and no others."""
        self.annotations.clear()
        self.text.annotations.clear()
        self._places.clear()
        for _, annotation in entries(given):
            self.annotate(annotation)


class MessageSnapshot:
    """One message. `live` is the object that the hooks and accessors give."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.live = build(Message, {**header, "content": []})
        self.parts: dict[int, Part] = {}
        self._order: list[int] = []  # the indexes of the parts, as the content has them
        self.writing: Part | None = None
        self.done = False

    def content(self, value: Any, wants: Container[str], *, final: bool = False) -> Iterator[HookCall]:
        """Pieces of the parts; or, `final`, the parts as they are to be in the end."""
        given = list(entries(value))
        order = list(self._order)
        by_order = final and bool(order) and order[-1] >= len(given) == len(order)  # numbered from 1, or with gaps
        for place, entry in given:
            index = integer(entry.get("index"))
            if index is None:
                index = order[place] if by_order else place if final else self._likely(entry, place)
            yield from self._piece(index, entry, wants, final=final)

    def close_part(self, wants: Container[str]) -> Iterator[HookCall]:
        """The part that is being written is over."""
        part, self.writing = self.writing, None
        if part is None:
            return
        part.open = False
        if part.kind == "text" and "on_text_done" in wants:
            yield "on_text_done", (part.text,)
        if part.kind == "image_file" and "on_image_file_done" in wants:
            assert isinstance(part.block, ImageFileContentBlock)
            if part.block.image_file.file_id:
                yield "on_image_file_done", (part.block.image_file,)

    def close(self, wants: Container[str], data: Mapping[str, Any]) -> Iterator[HookCall]:
        """The message is over. `data` is what is known of it in the end, its content if it is told there."""
        if self.done:
            return
        yield from self.content(data.get("content"), wants, final=True)
        yield from self.close_part(wants)
        if is_list(data.get("content")):
            for part in self.parts.values():
                part.unplace()
        update(self.live, data, keep=("id", "content"))
        self.done = True
        if "on_message_done" in wants:
            yield "on_message_done", (self.live,)

    def _likely(self, entry: Mapping[str, Any], place: int) -> int:
        """The part that a piece without an index is of."""
        if self.writing is not None and self.writing.kind == entry.get("type", self.writing.kind):
            return next(index for index, part in self.parts.items() if part is self.writing)
        return max(self.parts, default=place - 1) + 1

    def _piece(self, index: int, entry: Mapping[str, Any], wants: Container[str], *, final: bool) -> Iterator[HookCall]:
        kind = text(entry.get("type")) or next((kind for kind in _KINDS if kind in entry), "")
        part = self.parts.get(index)
        if part is not None and final and part.kind != kind:
            if kind not in _KINDS:
                return  # what was told stays
            if part.open:
                yield from self.close_part(wants)
            self._remove(index)
            part = None
        if part is None:
            if not kind:
                return
            yield from self.close_part(wants)
            part = self._begin(index, kind, entry)
            yield from self._created(part, wants)
        match part.kind:
            case "text":
                given = entry.get("text")
                given = {"value": given} if isinstance(given, str) else mapping(given)
                yield from (self._final_text if final else self._text)(part, given, wants)
            case "refusal":
                piece = text(entry.get("refusal"))
                assert isinstance(part.block, RefusalContentBlock)
                if final:
                    part.block.refusal = piece or part.block.refusal
                elif piece:
                    append(part.block, "refusal", piece)
            case kind:
                if given := mapping(entry.get(kind)):
                    update(part.block, {kind: given})

    def _begin(self, index: int, kind: str, entry: Mapping[str, Any]) -> Part:
        part = self.writing = self.parts[index] = Part(kind, entry, index)
        self.live.content.insert(place_of(index, self._order), part.block)
        return part

    def _remove(self, index: int) -> None:
        place = self._order.index(index)
        del self._order[place], self.live.content[place], self.parts[index]

    def _created(self, part: Part, wants: Container[str]) -> Iterator[HookCall]:
        if part.kind == "text" and "on_text_created" in wants:
            yield "on_text_created", (part.text,)

    def _text(self, part: Part, given: Mapping[str, Any], wants: Container[str]) -> Iterator[HookCall]:
        value = text(given.get("value"))
        annotations = [annotation for _, annotation in entries(given.get("annotations"))]
        if not (value or annotations):
            return
        if not part.open:
            yield from self.close_part(wants)
            part.open, self.writing = True, part
            yield from self._created(part, wants)
        live = part.text
        if value:
            append(live, "value", value)
        for annotation in annotations:
            part.annotate(annotation)
        if "on_text_delta" in wants:
            if annotations:
                delta = build(TextDelta, {"value": value, "annotations": annotations})
            else:
                delta = _PLAIN.model_copy(update={"value": value})
            yield "on_text_delta", (delta, live)

    def _final_text(self, part: Part, given: Mapping[str, Any], wants: Container[str]) -> Iterator[HookCall]:
        final, told = text(given.get("value")), part.text.value
        if part.open and final.startswith(told):
            yield from self._text(part, {"value": final[len(told) :]}, wants)
        elif final:
            part.text.value = final
        if isinstance(given.get("annotations"), list):
            part.annotate_finally(given["annotations"])
