"""One output item while it is streamed, and the messages that its parts become.

An item is one thing that the model or its provider made: a message, reasoning, a call, what a call gave. It has one or
more parts, and each part is one flat message. How the item's final form is read is in `final_items`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from ...events import Event, MessageCreated, MessageDone, StreamWarning
from ...messages import Annotation, Message, ReasoningMessage, Status, TextMessage
from ..held_values import NOTHING, add_values
from ..values import WireObject, as_list, as_object, as_text, json_text, without_keys
from .item_types import CALLS, CODE_KEYS, OUTPUT_KEYS, OWN_KEYS, PARTS, Call
from .part_ids import PartIds
from .received_items import KEY, form_of

__all__ = ["Item"]

# Types of items about which their type alone states nothing more.
_PLAIN_TYPES = frozenset(("message", "reasoning"))


class _FinalPart(NamedTuple):
    """The final form of a part: its content, and other fields of its message."""

    content: str
    fields: WireObject


class Item:
    """One output item.

    A part of it is open once its message is created, and done once its message is done. In between it may be pending:
    its final form has arrived, and it is done when the item is, because only the item states how it ended.

    Args:
        id: the id of its first message.
        type: the item's type.
        output_index: its place in the response, None if no event stated it.
        warn: makes a warning of a code, a fault and the kind of what is at fault.

    Attributes:
        first_type: the type with which it began; a later form may have another one.
        role, name, call_id: the item's own, "" until they arrive.
        is_executed: whether the provider executes this call.
        metadata: for its messages: the values that they have no field for.
        parts: the ids of its messages.
        delta_item_ids: the values of `item_id` under which its parts receive deltas; None if those have none.
        pending_arguments: of a call, the name of which has not arrived.
        done_ids: the ids of its messages that are done.
        is_final: whether its final form has arrived.
        is_done: whether the item is done, and all its messages with it.
        has_preview: whether it is an image of which a preview was emitted.
        patch_is_open: whether the patch of this call is being streamed.
        reasoning_id: the id of the reasoning item before it, "" if there is none.
        is_stored: whether the provider stores its response.
    """

    # Where an item begins.
    role = name = call_id = ""
    is_executed = is_final = is_done = has_preview = patch_is_open = False
    reasoning_id = ""
    is_stored = True
    done_ids: Set[str] = frozenset()
    delta_item_ids: tuple[str | None, ...] = ()
    pending_arguments: Sequence[str] = ()
    _pending: dict[str, _FinalPart] = NOTHING  # by message id
    _wire: WireObject = NOTHING  # its newest form, until a message has it

    def __init__(
        self, id: str, type: str, output_index: int | None, warn: Callable[[str, str, Any], StreamWarning]
    ) -> None:
        self.id = id
        self.type = self.first_type = type
        self.output_index = output_index
        self.warn = warn
        self.metadata: dict[str, Any] = {}
        self.parts = PartIds(id)
        if type not in _PLAIN_TYPES:
            self.learn({})

    # -- what it states about itself

    def learn(self, wire: WireObject) -> WireObject:
        """Take over what a form of the item states about it. Returns what of its metadata is new."""
        self.type = as_text(wire.get("type")) or self.type
        if self.is_final or self.type not in _PLAIN_TYPES:  # of others only the final form is used
            self._wire = wire or self._wire
        self.role = as_text(wire.get("role")) or self.role
        self.name = as_text(wire.get("name")) or self.name
        self.call_id = as_text(wire.get("call_id")) or self.call_id
        changed: WireObject = NOTHING
        if not wire.keys() <= OWN_KEYS:
            values = {key: value for key, value in wire.items() if key not in OWN_KEYS and value not in (None, [])}
            changed = add_values(self.metadata, values)
        if (call := CALLS.get(self.type)) is not None:
            self._learn_call(call, wire)
        elif self.type == "shell_call":
            self._learn_shell_call(wire)
        elif self.type == "program" or (self.type in OUTPUT_KEYS and self.type != "function_call_output"):
            self.metadata["item_type"] = self.type
        return changed

    def _learn_call(self, call: Call, wire: WireObject) -> None:
        execution = wire.get("execution", self.metadata.get("execution"))
        self.is_executed = call.is_executed or execution == "server"
        if not call.has_name:
            self.name = self.name or self.type.removesuffix("_call")
        if self.type == "custom_tool_call":
            self.metadata["custom"] = True
        elif self.type != "function_call":
            self.metadata["item_type"] = self.type

    def _learn_shell_call(self, wire: WireObject) -> None:
        """A shell call's limits, and whether its output is wanted: OpenAI runs the commands in its own containers."""
        self.metadata["item_type"] = self.type
        action = as_object(wire.get("action"))
        self.metadata |= {key: action[key] for key in action if key != "commands" and action[key] is not None}
        is_in_container = as_object(self.metadata.get("environment")).get("type") == "container_reference"
        if wire and not is_in_container:
            self.metadata["wants_output"] = True

    # -- its parts

    def message(
        self,
        kind: str,
        index: int = 0,
        content: str | None = None,
        *,
        status: Status = "in_progress",
        metadata: WireObject | None = None,
        annotations: Sequence[Annotation] = (),
    ) -> Message:
        """The message of a part. Empty content counts as unknown, so that what was streamed stays."""
        message_class, format, id_pattern = PARTS[kind]
        fields: dict[str, Any] = {"format": format, "group": self.id, "index": index, "status": status}
        fields["content"] = content or None
        fields["metadata"] = {**({} if id_pattern else self.metadata), **(metadata or {})}
        if message_class is TextMessage:
            fields["annotations"] = annotations
        if kind in ("text", "refusal"):
            fields["role"] = self.role
        elif message_class is not ReasoningMessage and kind != "image":
            fields["call_id"] = self.call_id or (None if kind in ("command", "console", "result") else self.id)
        if kind in ("call", "output", "result"):
            fields["name"] = self.name or None
        match kind:
            case "other":
                fields |= {"type": self.type, "call_id": self.call_id or None}
            case "output":
                fields["metadata"]["item_type"] = self.type
            case "call":
                fields["provider_executed"] = self.is_executed
            case "plot":
                fields["role"] = "computer"
            case "image":
                fields["format"] = self._image_format(content)
            case _:
                pass
        return message_class(self.parts.ensure(kind, index), **fields)

    def _image_format(self, content: str | None) -> str:
        if content and content.startswith(("https://", "http://")):
            return "url"
        return f"base64.{as_text(self.metadata.get('output_format')) or 'png'}"

    def open(self, kind: str, index: int = 0) -> Iterator[Event]:
        """The beginning of a part, once."""
        if (kind, index) not in self.parts.by_part:
            is_open = self.parts.is_reserved
            message = self.message(kind, index)
            if not is_open:
                yield MessageCreated(message)

    def open_early(self, kind: str) -> Iterator[Event]:
        """The beginning of the first part, before it is certain which kind it is of. This kind is probable."""
        message = self.message(kind)
        self.parts.reserve()
        yield MessageCreated(message)

    def hold_arguments(self, piece: str) -> None:
        """Add to the pending arguments."""
        if not isinstance(self.pending_arguments, list):
            self.pending_arguments = list[str]()
        self.pending_arguments.append(piece)

    def hold(self, kind: str, index: int, content: str, fields: WireObject) -> None:
        """Make a part pending: this is its final form."""
        id = self.parts.ensure(kind, index)
        if id not in self.done_ids:
            self._pending = self._pending or {}
            self._pending[id] = _FinalPart(content, fields)

    def begin_patch(self) -> str:
        """The JSON text that comes before a patch, the first time: its operation as far as it is known."""
        if self.patch_is_open:
            return ""
        self.patch_is_open = True
        operation = {**without_keys(as_object(self._wire.get("operation")), "diff"), "diff": ""}
        return json_text(operation).removesuffix('"}')

    def close(self, kind: str, index: int, content: str | None, status: Status, **fields: Any) -> Iterator[Event]:
        """The end of a part, once. What is pending of it is merged into these fields."""
        id = self.parts.ensure(kind, index)
        if id in self.done_ids:
            return
        if not isinstance(self.done_ids, set):
            self.done_ids = set()
        self.done_ids.add(id)
        pending = self._pending.pop(id, None)
        if pending is not None:
            content = content or pending.content
            for key, value in pending.fields.items():  # annotations and metadata
                own = fields.get(key)
                fields[key] = {**value, **own} if own and key == "metadata" else own or value
        if self._wire and (self.is_final or kind == "code"):
            fields["metadata"] = {**fields.get("metadata", {}), KEY: self._received(kind, status)}
        yield MessageDone(self.message(kind, index, content, status=status, **fields))

    def _received(self, kind: str, status: Status) -> dict[str, Any]:
        """What this part's message has of the item, for the way back. The item is in one message, but for code that ended
        before it: what is known then is in the code's message as well."""
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

    def close_pending(self, status: Status) -> Iterator[Event]:
        """The end of the pending parts."""
        for _, kind, index in sorted(self.parts.by_id[id] for id in self._pending):
            yield from self.close(kind, index, None, status)

    def close_all(self, status: Status) -> Iterator[Event]:
        """The end of the item, and of all parts that are open or pending."""
        if self.pending_arguments and not self.parts.by_part:
            self.hold("call", 0, "".join(self.pending_arguments), {})
        for kind, index in [*self.parts.by_part]:
            yield from self.close(kind, index, None, status)
        self.is_done = True

    def has_all_parts_of(self, wire: WireObject) -> bool:
        """Whether this form of a message has no part that is not done."""
        count = len(as_list(wire.get("content")))
        return self.type == "message" and count == len(self.done_ids) == len(self.parts.by_part)
