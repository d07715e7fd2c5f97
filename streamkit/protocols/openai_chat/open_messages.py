"""The open messages of one choice, and the events that create, extend and end them.

A choice has at most one open message of each kind, and any number of tool calls. They stay open side by side until
the choice ends, but reasoning ends as soon as any other content begins, and a call with all its arguments as soon as
another call begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...events import CallPassed, Event, MessageDone, MessageEnded, NewMessage, ToolCallDelta
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
from ..values import WireObject, as_text, text_or_json, without_keys
from .returned_fields import KEY, LISTS, NO_PIECE, GrowingPiece, merge_blocks, merge_fields
from .tool_calls import NO_CALLS, ToolCall, ToolCalls

__all__ = ["NOTHING", "OpenMessages"]

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
_WITH_FIELDS = (*_REASONING, "transcript")  # which have more than the fields of all messages from their beginning


class _Nothing(dict[Any, Any]):
    """An empty dict that all structs share as a default. (Of a plain dict, msgspec would make a copy for each struct.)"""


NOTHING = _Nothing()
"""Stands for a dict that was not needed yet. Nothing is added to it."""


class OpenMessages(msgspec.Struct, eq=False):
    """The open messages of one choice.

    Attributes:
        role: of all its messages, "" until it arrives.
        ids: the ids of the open messages, by kind.
        tool_calls: the open tool calls.
        unreported: how many deltas of the fast path had something that is held (log probabilities, reasoning details), the
            size of which was not reported yet. The fast path emits nothing but deltas; `report_held` makes up for it.
        held_status: the status that the open text ends with, if the choice is finished and the text still waits for its
            citations; else None.
        growing_detail: the newest of the `reasoning_details`, while those that follow only continue its text.
        seen: the kinds of which content has arrived, and "images", "calls" and "executed".
    """

    _choice: int
    _group: str | None
    _new_id: Callable[[], str]
    _warn: Callable[[str, str], None]
    _hold: Callable[[str | None, object], None]  # reports a value that is held for a message
    tool_calls: ToolCalls
    role: str = ""
    ids: dict[str, str] = {}
    seen: tuple[str, ...] = ()
    unreported: int = 0
    growing_detail: GrowingPiece = NO_PIECE
    held_status: Status | None = None
    _has_values: bool = False  # whether something was ever held for a message: in most answers nothing is
    _unreported_tokens: tuple[Any, ...] = ()
    _count: int = 0  # of the messages created so far
    # Made when they are needed, which in most answers they are not.
    _executed: dict[Any, str] = NOTHING  # ids of the calls that the provider ran, by index; "" once the output has come
    _metadata: dict[str, dict[str, Any]] = NOTHING  # metadata that messages get when they are done, by kind
    _returned: dict[str, dict[str, Any]] = NOTHING  # fields that are sent back to the provider with them, by kind
    _final_content: dict[str, str] = NOTHING  # what the provider gave as their entire content, by kind

    # -- messages of one kind

    def append(self, kind: str, text: str) -> list[Event]:
        """A delta of the open message of this kind, which is created if there is none. Nothing for an empty text."""
        events: list[Event] = []
        if not text:
            return events
        ids = self.ids
        if self.held_status is not None:
            events += self.finish("text", self.held_status)
        id = ids.get(kind)
        if ids and kind not in _REASONING and (id is None or len(ids) > 1):
            events += self.finish_reasoning()
        if id is None:
            return events + self.begin(kind, text)
        events.append(_CLASSES[kind].delta_event(id, text))
        return events

    def begin(self, kind: str, text: str) -> list[Event]:
        """The beginning of a message of this kind, and its first delta."""
        return [self.create(kind), _CLASSES[kind].delta_event(self.ids[kind], text)]

    def create(self, kind: str) -> Event:
        """The beginning of a message of this kind."""
        self.ids[kind] = id = self._new_id()
        fields = self._shared_fields()
        if kind in _WITH_FIELDS:
            self._add_fields(fields, kind)
        elif kind not in self.seen:
            self.seen += (kind,)
        return NewMessage(_CLASSES[kind](id, **fields))

    def _add_fields(self, fields: dict[str, Any], kind: str) -> None:
        """Add what a message of this kind has from its beginning."""
        self.see("reasoning" if kind == "redacted" else kind)
        if kind == "redacted":
            self._has_values = True
            fields["format"] = kind
        elif kind == "transcript":
            self.add_metadata(kind, audio_transcript=True)
            fields["metadata"] = self._metadata[kind].copy()
        elif kind in self._returned:
            fields["metadata"] = {KEY: dict(self._returned[kind])}

    def take_role(self, role: Any) -> None:
        """Set the role of the messages that follow, if this is a known role."""
        if role in _ROLES:
            self.role = role

    def see(self, kind: str) -> None:
        """Content of this kind has arrived."""
        if kind not in self.seen:
            self.seen = (*self.seen, kind)

    def _metadata_of(self, kind: str) -> dict[str, Any]:
        """The metadata that the message of this kind is done with, for the caller to extend."""
        if kind not in self._metadata:
            self._metadata, self._has_values = {**self._metadata, kind: {}}, True
        return self._metadata[kind]

    def _returned_with(self, kind: str) -> dict[str, Any]:
        """The fields that a later request sends with the message of this kind, for the caller to extend."""
        if kind not in self._returned:
            self._returned, self._has_values = {**self._returned, kind: {}}, True
        return self._returned[kind]

    def add_metadata(self, kind: str, **values: Any) -> None:
        """Metadata of the done message of this kind, which need not have been created yet."""
        self._metadata_of(kind).update(values)

    def extend_metadata(self, kind: str, key: str, values: list[Any]) -> None:
        """More elements of a list in the metadata of the done message of this kind."""
        self._metadata_of(kind).setdefault(key, []).extend(values)
        self.unreported += 1
        self._hold(self.ids.get(kind), {key: values})

    def extend_logprobs(self, tokens: list[Any]) -> None:
        """For the fast path: more log probabilities of the open text."""
        if "text" not in self._metadata:
            self._metadata_of("text")
        self._metadata["text"].setdefault("logprobs", []).extend(tokens)
        self._unreported_tokens = (*self._unreported_tokens, *tokens)
        self.unreported += 1

    def add_returned(self, kind: str, fields: WireObject) -> None:
        """What goes back along with the message of this kind, which need not have been created yet."""
        merge_fields(self._returned_with(kind), fields)

    def add_returned_values(self, kind: str, key: str, values: WireObject) -> None:
        """Further values of an object that goes back along with the message of this kind."""
        if changed := add_values(self._returned_with(kind).setdefault(key, {}), values):
            self._hold(self.ids.get(kind), changed)

    def returned_fields(self, kind: str) -> WireObject:
        """What goes back along with the open message of this kind."""
        fields: WireObject = self._returned.get(kind, NOTHING)
        return fields

    def add_returned_pieces(self, kind: str, key: str, pieces: Iterable[WireObject]) -> None:
        """Further pieces of a list that goes back along with the message of this kind."""
        held: list[Any] = self._returned_with(kind).setdefault(key, [])
        self.unreported += 1
        for piece in pieces:
            if key != "reasoning_details":
                held.append(piece)
            elif self.growing_detail.take(piece):
                continue
            else:
                self.end_detail()
                held.append(piece)
                self.growing_detail = GrowingPiece(held, LISTS[key])
            self._hold(self.ids.get(kind), piece)

    def report_held(self) -> None:
        """Report the size of what the fast path has held since the last time."""
        if more := self.growing_detail.join():
            self._hold(self.ids.get("reasoning"), more)
        if self._unreported_tokens:
            self._hold(self.ids.get("text"), {"logprobs": [*self._unreported_tokens]})
            self._unreported_tokens = ()

    def end_detail(self) -> None:
        """The newest detail of the reasoning takes no more text."""
        if self.growing_detail is not NO_PIECE:
            self.report_held()
            self.growing_detail.end()
            self.growing_detail = NO_PIECE

    def set_final_content(self, kind: str, content: str) -> None:
        """The provider's entire content of the open message of this kind, for the engine to compare when it is done."""
        self._final_content, self._has_values = {**self._final_content, kind: content}, True

    def add_image(self, format: str, content: str) -> Iterator[Event]:
        """An image, which arrives complete."""
        yield from self.finish_reasoning()
        self.see("images")
        yield MessageDone(ImageMessage(self._new_id(), format=format, content=content, **self._shared_fields()))

    def add_executed_tool(self, tool: WireObject) -> Iterator[Event]:
        """A tool that the provider ran (Groq): the call, and what it gave, which may come later under the same index."""
        index = tool.get("index")
        key = index if isinstance(index, int) else f"{tool.get('name')} {tool.get('arguments')}"
        id = self._executed.get(key)
        name = as_text(tool.get("name")) or as_text(tool.get("type")) or None
        if id is None:
            yield from self.finish_reasoning()
            self.see("executed")
            if self._executed is NOTHING:
                self._executed = {}
            id = self._executed[key] = self._new_id()
            content = text_or_json(tool.get("arguments"))
            call = ToolCallMessage(
                id, call_id=id, name=name, content=content, provider_executed=True, **self._shared_fields()
            )
            yield MessageDone(call)
        if id and tool.get("output") is not None:
            self._executed[key] = ""
            results = without_keys(tool, "index", "name", "type", "arguments", "output")
            fields: dict[str, Any] = {**self._shared_fields(), "role": "computer"}
            metadata = {"executed_tool": as_text(tool.get("type")), **results}
            output = ToolOutputMessage(
                f"{id}.output",
                call_id=id,
                name=name,
                content=text_or_json(tool["output"]),
                metadata=metadata,
                **fields,
            )
            yield MessageDone(output)

    def finish(self, kind: str, status: Status) -> list[Event]:
        """The end of the open message of this kind, if there is one."""
        if kind not in self.ids:
            return []
        if self._has_values:
            return self._finish_with_values(kind, status)
        return [MessageEnded(self.ids.pop(kind), status)]

    def _finish_with_values(self, kind: str, status: Status) -> list[Event]:
        """As `finish`, for a message for which something may be held."""
        if kind == "text":
            self.held_status = None
            if self.unreported:
                self.report_held()
        metadata = self._metadata.pop(kind, None) if self._metadata else None
        if self._returned and (returned := self._returned.pop(kind, None)):
            self.end_detail()
            for key in LISTS.keys() & returned.keys():
                returned[key] = merge_blocks(returned[key], LISTS[key])
            metadata = {**(metadata or {}), KEY: returned}
        content = "" if kind == "redacted" else None
        if self._final_content:
            content = self._final_content.pop(kind, content)
        return [MessageDone(_CLASSES[kind](self.ids.pop(kind), content=content, status=status, metadata=metadata))]

    def finish_reasoning(self) -> list[Event]:
        """The end of the open reasoning, because other content begins."""
        events: list[Event] = []
        for kind in _REASONING:
            if kind in self.ids:
                events += self.finish(kind, "completed")
        return events

    @property
    def is_open(self) -> bool:
        """Whether a message is open, or something is held for one."""
        return bool(self.ids or self.tool_calls.in_order or (self._has_values and (self._metadata or self._returned)))

    def finish_all(self, status: Status, *, provider: object = None) -> list[Event]:
        """The end of everything that is open. A call is emitted without a name if none arrived.

        `provider`: if the chunk states one, the text stays open for its citations, until other content comes or this is called
        again.
        """
        events: list[Event]
        if self._has_values or provider:
            events = self._finish_all_with_values(status, provider)
        else:
            events = [MessageEnded(id, status) for id in self.ids.values()]
            self.ids.clear()
        if self.tool_calls is not NO_CALLS:
            events += self._finish_calls(status)
        return events

    def _finish_all_with_values(self, status: Status, provider: object) -> list[Event]:
        """The end of all open messages but the calls, where something may be held for them."""
        held = self.held_status
        events: list[Event] = []
        for kind in [*self.ids]:
            if kind != "text":
                events += self.finish(kind, status)
            elif provider:
                self.held_status, self._has_values = held or status, True
            else:
                events += self.finish(kind, held or status)
        held_kinds = ("text",) if self.held_status is not None else ()
        for values in (self._metadata, self._returned):
            for kind in [kind for kind in values if kind not in held_kinds]:
                del values[kind]
        return events

    def _finish_calls(self, status: Status) -> list[Event]:
        events: list[Event] = []
        for call in self.tool_calls.in_order:
            if call.message_id is None and (call.pending_arguments or call.call_id):
                self._warn("no-tool-name", f"the name of the tool call {call.call_id!r} never arrived")
                events += self._create_call(call)
            if call.message_id is not None:
                metadata = {KEY: call.extra} if call.extra else None
                fields = _call_fields(call)
                events.append(MessageDone(ToolCallMessage(call.message_id, status=status, metadata=metadata, **fields)))
        self.tool_calls.clear()
        return events

    def _shared_fields(self) -> dict[str, Any]:
        """The fields that every message of the choice has. Without a role they are the assistant's."""
        self.role = role = self.role or "assistant"
        index = self._count
        self._count = index + 1
        return {"role": role, "group": self._group, "index": index, "choice": self._choice}

    # -- tool calls

    def append_to_call(self, call: ToolCall, call_id: str, name: str, arguments: str) -> list[Event]:
        """A fragment of a call. Only the first id and name count, because some servers repeat them in every fragment.

        The message is created when the name arrives; until then the arguments are pending.
        """
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        if call.message_id is not None:
            return [*self.finish_reasoning(), ToolCallDelta(call.message_id, arguments)] if arguments else []
        if arguments:
            call.pending_arguments.append(arguments)
            self._hold(None, arguments)
        return [*self.finish_reasoning(), *self._create_call(call)] if call.name else []

    def pass_call(self, call: ToolCall) -> list[Event]:
        """Another call begins after this one."""
        if call.message_id is None or call.is_custom:
            return []
        return [CallPassed(ToolCallMessage(call.message_id, status="completed", **_call_fields(call)))]

    def _create_call(self, call: ToolCall) -> list[Event]:
        call.message_id = self._new_id()
        self.see("calls")
        metadata = {"custom": True} if call.is_custom else None
        fields = {**_call_fields(call), **self._shared_fields()}
        events: list[Event] = [NewMessage(ToolCallMessage(call.message_id, metadata=metadata, **fields))]
        if call.pending_arguments:
            events.append(ToolCallDelta(call.message_id, "".join(call.pending_arguments)))
            call.pending_arguments.clear()
        return events


def _call_fields(call: ToolCall) -> Mapping[str, Any]:
    return {"name": call.name or None, "call_id": call.call_id or None}
