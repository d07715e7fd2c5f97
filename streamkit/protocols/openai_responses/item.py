"""One output item while it is streamed, and the messages that its parts become.

An item is one thing that the model or its provider made: a message, reasoning, a call, what a call gave. It has one or
more parts, and each part is one flat message. How the item's final form is read is in `final_items`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ...events import Event, MessageDone, NewMessage
from ...messages import Annotation, Message, Status
from ..final_forms import ItemForm, content_key
from ..held_values import add_values
from ..values import WireObject, as_object, as_text, json_text, without_keys
from .item_types import CALLS, CODE_KEYS, OUTPUT_KEYS, OWN_KEYS, PARTS, CallType
from .part_ids import PartIds
from .received_items import KEY, form_of
from .wire import PLAIN_DELTAS, TEXT_STREAMS

__all__ = ["Item"]

_PLAIN_TYPES = frozenset(("message", "reasoning"))  # of these items only the final form is used


_FinalPart: TypeAlias = tuple[str, Sequence[Annotation], WireObject]
"""The final form of a part: its content, its citations, and metadata of its message."""


DeltaTarget: TypeAlias = tuple[type[Any], int | None, int, str, Any]
"""An open part that takes plain deltas: their struct, their output_index, their part_index, the part's message, and the class of
their events. (A named tuple would take three times as long to unpack.)"""


class Item:
    """One output item.

    A part of it is open once its message is created, and done once its message is done. In between it may be pending:
    its final form has arrived, and it is done when the item is, because only the item states how it ended.

    Args:
        id: the id of its first message.
        type: the item's type.
        output_index: its place in the response, None if no event stated it.

    Attributes:
        received_id: the id that the provider gives it, "" if it gives none.
        earlier: an item that is done and has the same call_id, or the same id if there is no call_id; None if there is none.
        content: of its final form, as `content_key` gives it; None if that has not arrived.
        role, name, call_id: the item's own, "" until they arrive.
        is_executed: whether the provider executes this call.
        metadata: for its messages: the values that they have no field for.
        parts: the ids of its messages.
        target: the part that takes plain deltas, None while there is none.
        pending_arguments: of a call, the name of which has not arrived.
        done_ids: the ids of its messages that are done.
        has_begun: whether a message of it was created before its final form arrived.
        is_final: whether its final form has arrived.
        is_done: whether the item is done, and all its messages with it.
        has_preview: whether it is an image of which a preview was emitted.
        patch_is_open: whether the patch of this call is being streamed.
        reasoning_id: the id of the reasoning item before it, "" if there is none.
        is_stored: whether the provider stores its response.
    """

    # Where an item begins.
    role = name = call_id = received_id = ""
    earlier: Item | None = None
    content: int | None = None
    is_executed = has_begun = is_final = is_done = has_preview = patch_is_open = False
    reasoning_id = ""
    is_stored = True
    target: DeltaTarget | None = None

    def __init__(self, id: str, type: str, output_index: int | None) -> None:
        self.id = id
        self.type = type
        self.output_index = output_index
        self.parts = PartIds(id)
        self.done_ids: set[str] = set()
        self.pending_arguments: list[str] = []
        self.metadata: dict[str, Any] = {}
        self._pending: dict[str, _FinalPart] = {}  # by message id
        self._wire: WireObject = {}  # its newest form, until a message has it
        self.learn({})

    # -- what it states about itself

    def learn(self, wire: WireObject) -> WireObject:
        """Take over what a form of the item states about it. Returns what of its metadata is new."""
        self.type = type = as_text(wire.get("type")) or self.type
        is_plain = type in _PLAIN_TYPES
        if wire and (self.is_final or not is_plain):  # of others only the final form is used
            self._wire = wire
        self.role = as_text(wire.get("role")) or self.role
        self.name = as_text(wire.get("name")) or self.name
        if not self.is_done:
            self.call_id = as_text(wire.get("call_id")) or self.call_id
        changed: WireObject = {}
        if not wire.keys() <= OWN_KEYS:
            values = {key: value for key, value in wire.items() if key not in OWN_KEYS and value not in (None, [])}
            changed = add_values(self.metadata, values)
        if is_plain:
            return changed
        if (call := CALLS.get(type)) is not None:
            self._learn_call(call, wire)
        elif type == "shell_call":
            self._learn_shell_call(wire)
        elif type == "program" or (type in OUTPUT_KEYS and type != "function_call_output"):
            add_values(self.metadata, {"item_type": type})
        return changed

    def _learn_call(self, call: CallType, wire: WireObject) -> None:
        execution = wire.get("execution", self.metadata.get("execution"))
        self.is_executed = call.is_executed or execution == "server"
        if not call.has_name:
            self.name = self.name or self.type.removesuffix("_call")
        if self.type == "custom_tool_call":
            add_values(self.metadata, {"custom": True})
        elif self.type != "function_call":
            add_values(self.metadata, {"item_type": self.type})

    def _learn_shell_call(self, wire: WireObject) -> None:
        """A shell call's limits, and whether its output is wanted: OpenAI runs the commands in its own containers."""
        action = as_object(wire.get("action"))
        own = {key: action[key] for key in action if key != "commands" and action[key] is not None}
        add_values(self.metadata, {"item_type": self.type, **own})
        is_in_container = as_object(self.metadata.get("environment")).get("type") == "container_reference"
        if wire and not is_in_container:
            add_values(self.metadata, {"wants_output": True})

    # -- its parts

    def message(
        self,
        kind: str,
        index: int = 0,
        content: str | None = None,
        status: Status = "in_progress",
        annotations: Sequence[Annotation] = (),
        metadata: WireObject | None = None,
        id: str = "",
    ) -> Message:
        """Return the message of a part. Empty content counts as unknown, so that what was streamed stays. Without an
        `id`, that of the part is found."""
        part = PARTS[kind]
        format = part.format
        if kind == "output":
            metadata = {**(metadata or {}), "item_type": self.type}
        elif kind == "image":
            format = self._image_format(content)
        return part.message(
            id or self.parts.ensure(kind, index),
            format=format,
            group=self.id,
            index=index,
            status=status,
            content=content or None,
            metadata={**({} if part.id_pattern else self.metadata), **(metadata or {})},
            **self._fields_of(kind, annotations),
        )

    def _fields_of(self, kind: str, annotations: Sequence[Annotation]) -> dict[str, Any]:
        """Return the fields that the messages of this kind of part have besides those that all have."""
        match kind:
            case "call":
                name, call_id = self.name or None, self.call_id or self.id
                return {"name": name, "call_id": call_id, "provider_executed": self.is_executed}
            case "reasoning" | "summary" | "redacted" | "image":
                return {}
            case "text":
                return {"role": self.role, "annotations": annotations}
            case "refusal":
                return {"role": self.role}
            case "output":
                return {"name": self.name or None, "call_id": self.call_id or self.id}
            case "result":
                return {"name": self.name or None, "call_id": self.call_id or None}
            case "command" | "console":
                return {"call_id": self.call_id or None}
            case "other":
                return {"type": self.type, "call_id": self.call_id or None}
            case "plot":
                return {"role": "computer", "call_id": self.call_id or self.id}
            case _:
                return {"call_id": self.call_id or self.id}

    def _image_format(self, content: str | None) -> str:
        if content and content.startswith(("https://", "http://")):
            return "url"
        return f"base64.{as_text(self.metadata.get('output_format')) or 'png'}"

    def open(self, kind: str, index: int = 0) -> list[Event]:
        """Return the beginning of a part, once."""
        if (kind, index) in self.parts.by_part:
            return []
        is_open = self.parts.is_reserved
        self.has_begun = True
        message = self.message(kind, index, id=self.parts.add(kind, index))
        return [] if is_open else [NewMessage(message)]

    def open_early(self, kind: str) -> list[Event]:
        """Return the beginning of the first part, before it is certain which kind it is of. This kind is probable."""
        self.has_begun = True
        message = self.message(kind)
        self.parts.reserve()
        return [NewMessage(message)]

    def expect_deltas(self, stem: str, index: int) -> None:
        """As `ItemIndex.expect_deltas`, for deltas with the item's id."""
        part = TEXT_STREAMS[stem].part
        message_id = self.parts.by_part.get((part, index))
        if message_id is not None and not self.is_done:
            make_event = PARTS[part].message.delta_event
            self.target = PLAIN_DELTAS[stem], self.output_index, index, message_id, make_event

    @property
    def form(self) -> ItemForm:
        """The key by which a repeated call is found."""
        return ItemForm(self.type, self.received_id, self.call_id, self.name, self.content)

    @property
    def is_withheld(self) -> bool:
        """Whether this call is not created before its arguments are complete: its name has not come, or it may repeat a call."""
        return not self.name or (self.earlier is not None and not self.is_final)

    def repeats(self, content: int) -> bool:
        """Whether this is an earlier item again, if it has this content."""
        earlier = self.earlier
        return earlier is not None and earlier.content == content and self.name in ("", earlier.name)

    def hold(
        self,
        kind: str,
        index: int,
        content: str,
        annotations: Sequence[Annotation] = (),
        metadata: WireObject | None = None,
    ) -> None:
        """Make a part pending: this is its final form."""
        id = self.parts.by_part.get((kind, index))
        if id is None:
            if not (content or annotations):
                return
            id = self.parts.add(kind, index)
        if id not in self.done_ids:
            self._pending[id] = content, annotations, metadata or {}

    def begin_patch(self) -> str:
        """Return the JSON text that comes before a patch, the first time: its operation as far as it has come."""
        if self.patch_is_open:
            return ""
        self.patch_is_open = True
        operation = {**without_keys(as_object(self._wire.get("operation")), "diff"), "diff": ""}
        return json_text(operation).removesuffix('"}')

    def close(
        self,
        kind: str,
        index: int,
        content: str | None,
        status: Status,
        annotations: Sequence[Annotation] = (),
        metadata: WireObject | None = None,
    ) -> Sequence[MessageDone]:
        """Return the end of a part, once. Where this form of it has no value, that of the pending form counts."""
        self.target = None
        id = self.parts.ensure(kind, index)
        if id in self.done_ids:  # the engine compares the content
            return [MessageDone(self.message(kind, index, content, status, id=id))] if content else []
        self.done_ids.add(id)
        if id in self._pending:
            final, final_annotations, final_metadata = self._pending.pop(id)
            content = content or final
            annotations = annotations or final_annotations
            metadata = {**final_metadata, **(metadata or {})}
        if self._wire and (self.is_final or (kind == "code" and self.type in CODE_KEYS)):
            metadata = {**(metadata or {}), KEY: self._received(kind, status)}
        return [MessageDone(self.message(kind, index, content, status, annotations, metadata, id))]

    def _received(self, kind: str, status: Status) -> dict[str, Any]:
        """Return what this part's message has of the item, for the way back. The item is in one message, but for code
        that ended before it: what is known then is in the code's message as well."""
        wire = self._wire
        if self.is_final:
            self._wire = {}
        else:
            wire = {**wire, CODE_KEYS[self.type]: "", "status": status}
        form = form_of(wire)
        if form.get("id") == self.id:
            form["id"] = self.id  # its message has the same text, not one of its own
        found: dict[str, Any] = {"item": form}
        if self.type == "reasoning" and not (self.is_stored or wire.get("encrypted_content") or wire.get("content")):
            found["reasoning"] = None
        elif self.reasoning_id:
            found["reasoning"] = self.reasoning_id
        return found

    def close_pending(self, status: Status) -> list[Event]:
        """Return the end of the pending parts."""
        if not self._pending:
            return []
        events: list[Event] = []
        for _, kind, index in sorted(self.parts.by_id[id] for id in self._pending):
            events += self.close(kind, index, None, status)
        return events

    def close_all(self, status: Status) -> list[Event]:
        """Return the end of the item, and of all parts that are open or pending."""
        by_part = self.parts.by_part
        if self.pending_arguments and not by_part and not self.repeats(content_key("".join(self.pending_arguments))):
            self.hold("call", 0, "".join(self.pending_arguments))
        events: list[Event] = []
        self.target = None
        if not self.done_ids.issuperset(by_part.values()):
            for (kind, index), id in by_part.items():
                if id not in self.done_ids:
                    events += self.close(kind, index, None, status)
        self.is_done = True
        return events
