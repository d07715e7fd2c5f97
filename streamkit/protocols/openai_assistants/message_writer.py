"""Writes the messages of a run's thread, for the encoder: flat messages of one group become parts of one message."""

from __future__ import annotations

from typing import Any

from ...events import AnnotationAdded, Delta
from ...messages import ImageMessage, Message
from .objects import citation_object, content_part, is_file_citation, thread_message
from .open_objects import Item, OpenThreadMessage
from .run_writer import AssistantsRunWriter, NamedItem, NamedItems

__all__ = ["MessageWriter"]


class MessageWriter:
    """The parts of the thread's messages, by the ids of their flat messages."""

    def __init__(self, run: AssistantsRunWriter) -> None:
        self._run = run
        self._parts: dict[str, tuple[OpenThreadMessage, int]] = {}

    def has_part(self, id: str) -> bool:
        """Whether this flat message became a part."""
        return id in self._parts

    def begin_part(self, message: Message) -> NamedItems:
        """Create a flat message. It continues the open message of its group, if there is one."""
        group = ("group", message.group, message.choice, message.role)
        open_message = self._run.messages.get(group)
        if message.group is None or open_message is None or open_message.open_part is not None:
            has_group_key = message.group is not None and open_message is None
            key = group if has_group_key else ("alone", message.id)
            open_message = OpenThreadMessage(self._run.ids.unused(message.id), key, message)
            yield from self._begin_message(open_message)
        open_message.open_part = message.id
        self._run.idle_messages.pop(open_message.key, None)
        open_message.content.append(content_part(message, "") or {})
        self._parts[message.id] = (open_message, len(open_message.content) - 1)

    def _begin_message(self, message: OpenThreadMessage) -> NamedItems:
        yield from self._run.close_idle()
        self._run.messages[message.key] = message
        if message.role == "assistant":
            message.step, begin = self._run.open_step("message_creation", message.id)
            yield from begin
        for phase in ("created", "in_progress"):
            yield f"thread.message.{phase}", thread_message(message, self._run.run, "in_progress")

    def delta_item(self, delta: Delta) -> NamedItem | None:
        """Return the item of a piece of a part. An image has none: it is written when it is done."""
        message, index = self._parts[delta.message_id]
        match message.content[index]["type"]:
            case "text":
                is_continued = message.last_delta_part == index
                annotations: Item = {} if is_continued else {"annotations": []}
                return self._delta(message, index, text={"value": delta.value, **annotations})
            case "refusal":
                return self._delta(message, index, refusal=delta.value)
            case _:
                return None

    def add_citation(self, event: AnnotationAdded) -> NamedItems:
        """Yield the items of a citation of a part, if this API has such citations."""
        part = self._parts.get(event.message_id)
        if part is not None and is_file_citation(event.annotation):
            message, index = part
            is_continued = message.last_delta_part == index
            number = message.next_citation_index(index)
            content = event.snapshot.content if event.snapshot is not None else ""
            text: Item = {"annotations": [{"index": number, **citation_object(event.annotation, number, content)}]}
            yield self._delta(message, index, text=text if is_continued else {"value": "", **text})

    def end_part(self, message: Message) -> NamedItems:
        """End a flat message. A message without a group has no further part."""
        open_message, index = self._parts[message.id]
        part = content_part(message, message.content) or open_message.content[index]
        open_message.content[index] = part
        open_message.open_part = None
        if isinstance(message, ImageMessage):
            yield self._delta(open_message, index, **{part["type"]: part[part["type"]]})
        elif open_message.last_delta_part != index:  # clients learn of a part by its first delta, so it needs one
            yield self._delta(open_message, index, **content_part(message.header(), "") or {})
        if message.status != "completed":
            open_message.status = message.status
        open_message.add_metadata(message)
        self._run.idle_messages[open_message.key] = open_message
        if message.group is None:
            yield from self._run.close_message(open_message)

    def _delta(self, message: OpenThreadMessage, index: int, **part: Any) -> NamedItem:
        message.last_delta_part = index
        type = message.content[index]["type"]
        delta = {"content": [{"index": index, "type": type, **part}]}
        return "thread.message.delta", {"id": message.id, "object": "thread.message.delta", "delta": delta}
