"""The open messages of one choice, and the events that create, extend and end them.

A choice has at most one open message of each kind, and any number of tool calls. They stay open side by side until
the choice ends, but reasoning ends as soon as any other content begins, and a call with all its arguments as soon as
another call begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...events import CallPassed, Event, MessageCreated, MessageDone, ToolCallCreated, ToolCallDelta
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
from .tool_calls import NO_CALLS, ToolCall

__all__ = ["NOTHING", "OpenMessages"]

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
NO_TOKENS: list[Any] = []
NOTHING: dict[Any, Any] = {}
"""In the place of what no message has needed, shared by all: nothing is added to it."""


class OpenMessages:
    """The open messages of one choice.

    Attributes:
        role: of all its messages, "" until it arrives.
        ids: the ids of the open messages, by kind.
        tool_calls: the open tool calls.
        unreported: for the fast path, which emits deltas alone: of how many of them something was held since another chunk,
            with which the size of that is reported.
        growing_detail: the newest of the `reasoning_details`, while others follow that only bring more of its text.
        seen: the kinds of which content has arrived, and "images" and "calls".
    """

    __slots__ = (
        "_choice",
        "_count",
        "_executed",
        "_final_content",
        "_group",
        "_held_status",
        "_hold",
        "_metadata",
        "_new_id",
        "_returned",
        "_unreported_tokens",
        "_warn",
        "growing_detail",
        "ids",
        "role",
        "seen",
        "tool_calls",
        "unreported",
    )

    def __init__(
        self,
        choice: int,
        group: str | None,
        new_id: Callable[[], str],
        warn: Callable[[str, str], None],
        hold: Callable[[str | None, object], None],
    ) -> None:
        self.role = ""
        self.ids: dict[str, str] = {}
        self.tool_calls = NO_CALLS
        self.seen: tuple[str, ...] = ()
        self._choice = choice
        self._group = group
        self._new_id = new_id
        self._warn = warn
        self._hold = hold  # reports a value that is held for a message
        self.unreported = 0
        self.growing_detail = NO_PIECE
        self._unreported_tokens: list[Any] = NO_TOKENS
        self._held_status: Status | None = None
        self._count = 0  # of the messages created so far
        # Each is made when it is needed: by most answers it is not.
        self._executed: dict[Any, str] = NOTHING  # ids of the calls that the provider ran, by index; "" with an output
        self._metadata: dict[str, dict[str, Any]] = NOTHING  # of the done messages, by kind
        self._returned: dict[str, dict[str, Any]] = NOTHING  # what goes back along with them
        self._final_content: dict[str, str] = NOTHING  # what the provider gave as their entire content, by kind

    # -- messages of one kind

    def append(self, kind: str, text: str) -> Iterator[Event]:
        """A delta of the open message of this kind, which is created if there is none. Nothing for an empty text."""
        if not text:
            return
        if self._held_status is not None:
            yield from self.finish("text", self._held_status)
        if kind not in self.ids:
            if self.ids and kind not in _REASONING:
                yield from self.finish_reasoning()
            yield self.create(kind)
        elif len(self.ids) > 1 and kind not in _REASONING:
            yield from self.finish_reasoning()
        yield _CLASSES[kind].delta_event(self.ids[kind], text)

    def create(self, kind: str) -> Event:
        """The beginning of a message of this kind."""
        self.ids[kind] = id = self._new_id()
        self.see("reasoning" if kind == "redacted" else kind)
        fields: dict[str, Any] = {"format": "redacted"} if kind == "redacted" else {}
        if kind == "transcript":
            self.add_metadata(kind, audio_transcript=True)
            fields["metadata"] = self._metadata[kind].copy()
        elif kind == "reasoning" and kind in self._returned:
            fields["metadata"] = {KEY: dict(self._returned[kind])}
        return MessageCreated(_CLASSES[kind](id, **self._shared_fields(), **fields))

    def see(self, kind: str) -> None:
        """Content of this kind has arrived."""
        if kind not in self.seen:
            self.seen = (*self.seen, kind)

    def add_metadata(self, kind: str, **values: Any) -> None:
        """Metadata of the done message of this kind, which need not have been created yet."""
        if kind not in self._metadata:
            self._metadata = {**self._metadata, kind: {}}
        self._metadata[kind].update(values)

    def extend_metadata(self, kind: str, key: str, values: list[Any]) -> None:
        """More elements of a list in the metadata of the done message of this kind."""
        if kind not in self._metadata:
            self._metadata = {**self._metadata, kind: {}}
        self._metadata[kind].setdefault(key, []).extend(values)
        self.unreported += 1
        self._hold(self.ids.get(kind), {key: values})

    def extend_logprobs(self, tokens: list[Any]) -> None:
        """For the fast path: more log probabilities of the open text."""
        if "text" not in self._metadata:
            self._metadata = {**self._metadata, "text": {}}
        self._metadata["text"].setdefault("logprobs", []).extend(tokens)
        self._unreported_tokens = [*self._unreported_tokens, *tokens]
        self.unreported += 1

    def add_returned(self, kind: str, fields: WireObject) -> None:
        """What goes back along with the message of this kind, which need not have been created yet."""
        if kind not in self._returned:
            self._returned = {**self._returned, kind: {}}
        merge_fields(self._returned[kind], fields)

    def add_returned_values(self, kind: str, key: str, values: WireObject) -> None:
        """Further values of an object that goes back along with the message of this kind."""
        if kind not in self._returned:
            self._returned = {**self._returned, kind: {}}
        if changed := add_values(self._returned[kind].setdefault(key, {}), values):
            self._hold(self.ids.get(kind), changed)

    def returned_fields(self, kind: str) -> WireObject:
        """What goes back along with the open message of this kind."""
        fields: WireObject = self._returned.get(kind, NOTHING)
        return fields

    def add_returned_pieces(self, kind: str, key: str, pieces: Iterable[WireObject]) -> None:
        """Further pieces of a list that goes back along with the message of this kind."""
        if kind not in self._returned:
            self._returned = {**self._returned, kind: {}}
        held: list[Any] = self._returned[kind].setdefault(key, [])
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
            self._hold(self.ids.get("text"), {"logprobs": self._unreported_tokens})
            self._unreported_tokens = NO_TOKENS

    def end_detail(self) -> None:
        """The newest detail of the reasoning takes no more text."""
        if self.growing_detail is not NO_PIECE:
            self.report_held()
            self.growing_detail.end()
            self.growing_detail = NO_PIECE

    def set_final_content(self, kind: str, content: str) -> None:
        """The provider's entire content of the open message of this kind, for the engine to compare when it is done."""
        self._final_content = {**self._final_content, kind: content}

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

    def finish(self, kind: str, status: Status) -> Iterator[Event]:
        """The end of the open message of this kind, if there is one."""
        if kind not in self.ids:
            return
        if kind == "text":
            self._held_status = None
            self.report_held()
        metadata = self._metadata.pop(kind, None)
        if returned := self._returned.pop(kind, None):
            self.end_detail()
            for key in LISTS.keys() & returned.keys():
                returned[key] = merge_blocks(returned[key], LISTS[key])
            metadata = {**(metadata or {}), KEY: returned}
        content = self._final_content.pop(kind, "" if kind == "redacted" else None)
        yield MessageDone(_CLASSES[kind](self.ids.pop(kind), content=content, status=status, metadata=metadata))

    def finish_reasoning(self) -> Iterator[Event]:
        """The end of the open reasoning, because other content begins."""
        for kind in _REASONING:
            if kind in self.ids:
                yield from self.finish(kind, "completed")

    @property
    def is_open(self) -> bool:
        """Whether a message is open, or something is held for one."""
        return bool(self.ids or self.tool_calls.in_order or self._metadata or self._returned)

    @property
    def is_text_held(self) -> bool:
        """Whether the open text is at its end, and waits for its citations."""
        return self._held_status is not None

    def finish_all(self, status: Status, *, holds_text: bool = False) -> Iterator[Event]:
        """The end of everything that is open. A call is emitted without a name if none arrived.

        `holds_text`: the text stays open for its citations, until other content comes or this is called again.
        """
        held = self._held_status
        for kind in [*self.ids]:
            if kind == "text" and holds_text:
                self._held_status = held or status
            else:
                yield from self.finish(kind, held or status if kind == "text" else status)
        for call in self.tool_calls.in_order if self.tool_calls is not NO_CALLS else ():
            if call.message_id is None and (call.pending_arguments or call.call_id):
                self._warn("no-tool-name", f"the name of the tool call {call.call_id!r} never arrived")
                yield from self._create_call(call)
            if call.message_id is not None:
                metadata = {KEY: call.extra} if call.extra else None
                fields = _call_fields(call)
                yield MessageDone(ToolCallMessage(call.message_id, status=status, metadata=metadata, **fields))
        if self.tool_calls is not NO_CALLS:
            self.tool_calls.clear()
        held_kinds = ("text",) if self._held_status is not None else ()
        for values in (self._metadata, self._returned):
            for kind in [kind for kind in values if kind not in held_kinds]:
                del values[kind]

    def _shared_fields(self) -> dict[str, Any]:
        """The fields that every message of the choice has. Without a role they are the assistant's."""
        self.role = self.role or "assistant"
        self._count += 1
        return {"role": self.role, "group": self._group, "index": self._count - 1, "choice": self._choice}

    # -- tool calls

    def append_to_call(self, call: ToolCall, call_id: str, name: str, arguments: str) -> Iterator[Event]:
        """A fragment of a call. Only the first id and name count, because some servers repeat them in every fragment.

        The message is created when the name arrives; until then the arguments are pending.
        """
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        if call.message_id is not None:
            if arguments:
                yield from self.finish_reasoning()
                yield ToolCallDelta(call.message_id, arguments)
            return
        if arguments:
            call.pending_arguments.append(arguments)
            self._hold(None, arguments)
        if call.name:
            yield from self.finish_reasoning()
            yield from self._create_call(call)

    def pass_call(self, call: ToolCall) -> Iterator[Event]:
        """Another call begins after this one."""
        if call.message_id is not None and not call.is_custom:
            yield CallPassed(ToolCallMessage(call.message_id, status="completed", **_call_fields(call)))

    def _create_call(self, call: ToolCall) -> Iterator[Event]:
        call.message_id = self._new_id()
        self.see("calls")
        metadata = {"custom": True} if call.is_custom else None
        fields = {**_call_fields(call), **self._shared_fields()}
        yield ToolCallCreated(ToolCallMessage(call.message_id, metadata=metadata, **fields))
        if call.pending_arguments:
            yield ToolCallDelta(call.message_id, "".join(call.pending_arguments))
            call.pending_arguments.clear()


def _call_fields(call: ToolCall) -> Mapping[str, Any]:
    return {"name": call.name or None, "call_id": call.call_id or None}
