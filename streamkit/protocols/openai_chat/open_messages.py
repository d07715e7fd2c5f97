"""The open messages of one choice, but for its tool calls, and the events that create, extend and end them.

A choice has at most one open message of each kind. They stay open side by side until the choice ends, but reasoning ends as soon
as any other content begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...events import MessageDone, MessageEnded, NewMessage
from ...messages import (
    AudioMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from ..held_values import add_values
from ..output import Output
from ..values import WireObject, as_text, text_or_json, without_keys
from .returned_fields import KEY, LISTS, Blocks

__all__ = ["OpenMessages"]

_ROLES = ("assistant", "user", "system")
# Encrypted reasoning is a kind of its own, and so is the transcript of speech.
_CLASSES: dict[str, type[Message]] = {
    "reasoning": ReasoningMessage,
    "redacted": ReasoningMessage,
    "text": TextMessage,
    "transcript": TextMessage,
    "refusal": RefusalMessage,
    "audio": AudioMessage,
}
_REASONING = ("reasoning", "redacted")


class OpenMessages:
    """The open messages of one choice.

    Args:
        choice: the index of the choice.
        group: the id of the answer.
        new_id: returns an unused message id.
        output: takes the events.

    Attributes:
        ids: the ids of the open messages, by kind.
        seen: the kinds of which content has arrived, and "images", "calls" and "executed".
        final_content: what the provider gave as their entire content, for the engine to compare, by kind.
    """

    __slots__ = (
        *("_choice", "_count", "_executed", "_group", "_metadata", "_new_id", "_output", "_returned"),
        *("_role", "final_content", "ids", "seen"),
    )

    def __init__(self, choice: int, group: str | None, new_id: Callable[[], str], output: Output) -> None:
        self._choice, self._group, self._new_id, self._output = choice, group, new_id, output
        self.ids: dict[str, str] = {}
        self.seen: set[str] = set()
        self._role = ""
        self._count = 0  # of the messages created so far
        self._metadata: dict[str, dict[str, Any]] = {}  # metadata that messages get when they are done, by kind
        self._returned: dict[str, dict[str, Any]] = {}  # fields that go back to the provider with them, by kind
        self.final_content: dict[str, str] = {}
        self._executed: dict[Any, str] = {}  # ids of the calls that the provider ran; "" once the output has come

    # -- messages of one kind

    def append(self, kind: str, text: str) -> None:
        """Extend the open message of this kind, which begins if there is none. An empty text does nothing."""
        if not text:
            return
        id = self.ids.get(kind)
        if kind not in _REASONING and (id is None or len(self.ids) > 1):
            self.finish_reasoning()
        if id is None:
            id = self.begin(kind)
        self._output.emit(_CLASSES[kind].delta_event(id, text))

    def begin(self, kind: str) -> str:
        """Begin a message of this kind. Returns its id."""
        self.ids[kind] = id = self._new_id()
        self.seen.add("reasoning" if kind == "redacted" else kind)
        fields = self.fields_of_next()
        if kind == "redacted":
            fields["format"] = kind
        elif kind == "transcript":
            self.add_metadata(kind, audio_transcript=True)
            fields["metadata"] = self._metadata[kind].copy()
        elif kind in self._returned and kind == "reasoning":
            fields["metadata"] = {KEY: self._joined(kind)}
        self._output.emit(NewMessage(_CLASSES[kind](id, **fields)))
        return id

    def fields_of_next(self) -> dict[str, Any]:
        """Return the fields that every message of the choice has, for the next one. Without a role they are the
        assistant's."""
        self._role = role = self._role or "assistant"
        self._count += 1
        return {"role": role, "group": self._group, "index": self._count - 1, "choice": self._choice}

    def begin_answer(self, group: str | None) -> None:
        """Another answer begins, with this id."""
        self._group = group
        self.seen.clear()

    def take_role(self, role: Any) -> None:
        """Set the role of all messages, if this is a known one and the first."""
        if not self._role and role in _ROLES:
            self._role = role

    def add_image(self, format: str, content: str) -> None:
        """An image, which arrives complete."""
        self.finish_reasoning()
        self.seen.add("images")
        image = ImageMessage(self._new_id(), format=format, content=content, **self.fields_of_next())
        self._output.emit(MessageDone(image))

    def add_executed_tool(self, tool: WireObject) -> None:
        """A tool that the provider ran (Groq): the call, and what it gave, which may come later under the same index."""
        index = tool.get("index")
        key = index if isinstance(index, int) else f"{tool.get('name')} {tool.get('arguments')}"
        name = as_text(tool.get("name")) or as_text(tool.get("type")) or None
        if key not in self._executed:
            self.finish_reasoning()
            self.seen.add("executed")
            self._executed[key] = id = self._new_id()
            shared, content = self.fields_of_next(), text_or_json(tool.get("arguments"))
            call = ToolCallMessage(id, call_id=id, name=name, content=content, provider_executed=True, **shared)
            self._output.emit(MessageDone(call))
        if (id := self._executed[key]) and tool.get("output") is not None:
            self._executed[key] = ""
            results = without_keys(tool, "index", "name", "type", "arguments", "output")
            fields = self.fields_of_next()
            fields |= {"role": "computer", "content": text_or_json(tool["output"])}
            fields["metadata"] = {"executed_tool": as_text(tool.get("type")), **results}
            self._output.emit(MessageDone(ToolOutputMessage(f"{id}.output", call_id=id, name=name, **fields)))

    # -- what messages have when they are done. They need not have begun

    def add_metadata(self, kind: str, **values: Any) -> None:
        """Add metadata to the message of this kind."""
        self._metadata.setdefault(kind, {}).update(values)

    def extend_metadata(self, kind: str, key: str, values: list[Any]) -> None:
        """Add elements to a list in the metadata of the message of this kind."""
        self._metadata.setdefault(kind, {}).setdefault(key, []).extend(values)
        self._output.hold(self.ids.get(kind), {key: values})

    def returned(self, kind: str) -> dict[str, Any]:
        """Return the fields that go back with the message of this kind, to be added to. The content of one with None is the message's,
        which came at this key."""
        return self._returned.setdefault(kind, {})

    def add_returned_values(self, kind: str, key: str, values: WireObject) -> None:
        """Add values to an object that goes back with the message of this kind."""
        if changed := add_values(self.returned(kind).setdefault(key, {}), values):
            self._output.hold(self.ids.get(kind), changed)

    def add_returned_piece(self, kind: str, key: str, piece: WireObject) -> None:
        """Add a piece to a list that goes back with the message of this kind."""
        returned = self.returned(kind)
        if key not in returned:
            returned[key] = Blocks(LISTS[key])
        returned[key].add(piece)
        self._output.hold(self.ids.get(kind), piece)

    def _joined(self, kind: str) -> dict[str, Any]:
        """Return what goes back with the message of this kind, as it has arrived so far."""
        returned = self._returned[kind]
        return {key: value.joined() if isinstance(value, Blocks) else value for key, value in returned.items()}

    # -- endings

    def finish(self, kind: str, status: Status) -> None:
        """End the open message of this kind, if there is one."""
        if (id := self.ids.pop(kind, None)) is None:
            return
        content = self.final_content.pop(kind, "" if kind == "redacted" else None)
        metadata = self._metadata.pop(kind, None)
        if kind in self._returned:
            metadata = {**(metadata or {}), KEY: self._joined(kind)}
            del self._returned[kind]
        if content is None and metadata is None:
            self._output.emit(MessageEnded(id, status))
        else:
            done = _CLASSES[kind](id, content=content, status=status, metadata=metadata)
            self._output.emit(MessageDone(done))

    def finish_reasoning(self) -> None:
        """End the open reasoning, because other content begins."""
        for kind in _REASONING:
            if kind in self.ids:
                self.finish(kind, "completed")

    def finish_all(self, status: Status) -> None:
        """End everything that is open, and forget what was held for messages that have not begun."""
        for kind in [*self.ids]:
            self.finish(kind, status)
        self._metadata.clear()
        self._returned.clear()
