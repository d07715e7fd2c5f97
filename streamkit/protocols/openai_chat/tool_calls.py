"""The open tool calls of one choice, and the events that create, extend and end them.

Servers number and identify the fragments of a call differently, so they are matched by these rules, in this order:

1. A fragment with an index belongs to the call at that index. If it has another id than that call, it belongs to the
   call with that id; if there is none and the fragment has a name, it begins a call (some servers number every call 0).
   Arguments at an index at which no call is, without an id and a name, belong to the newest call, with a warning.
2. A fragment with an id and no index belongs to the call with that id, or begins one.
3. A fragment with neither belongs to the latest call. It begins another if it has a name and is not the first
   fragment of its chunk, or has another name than the latest call, or the latest call arrived complete.

A name may come in pieces: what differs from the name so far is appended, for many servers repeat it in each fragment. The
message is created once the name is sure: with the first arguments, with another call, or at the end. Where another call begins, a
call with all its arguments ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...events import CallPassed, MessageDone, NewMessage, ToolCallDelta
from ...messages import Status, ToolCallMessage
from ...messages.arguments import read_arguments
from ..held_values import add_values
from ..output import Output
from ..values import WireObject, as_index, as_text, is_object, text_or_json, without_keys
from .open_messages import OpenMessages
from .returned_fields import CALL_KEYS, KEY

__all__ = ["OpenToolCall", "ToolCalls"]


class OpenToolCall:
    """A tool call that is being streamed.

    Attributes:
        call_id: the provider's id, "" until it arrives.
        name: the tool's name, as far as it has arrived.
        message_id: the id of its message, None until the message is created.
        pending_arguments: the fragments that arrived before the name.
        is_custom: whether it calls a custom tool, which takes text and not JSON.
        extra: what its fragments have beside the call, which goes back with it.
        arrived_complete: whether its first fragment had all its arguments, so that the next fragment begins another
            call.
    """

    __slots__ = ("arrived_complete", "call_id", "extra", "is_custom", "message_id", "name", "pending_arguments")

    def __init__(self, *, arrived_complete: bool = False) -> None:
        self.call_id = self.name = ""
        self.message_id: str | None = None
        self.pending_arguments: list[str] = []
        self.is_custom = False
        self.extra: dict[str, Any] = {}
        self.arrived_complete = arrived_complete

    def message(self, **fields: Any) -> ToolCallMessage:
        """Return its message, with these fields."""
        fields |= {"name": self.name or None, "call_id": self.call_id or None}
        return ToolCallMessage(self.message_id or "", **fields)


class ToolCalls:
    """The open tool calls of a choice.

    Args:
        messages: the other messages of the choice.
        new_id: returns an unused message id.
        output: takes the events.

    Attributes:
        in_order: the calls, in the order in which they began.
        by_index: those that have an index.
        by_id: those that have an id.
        latest: the call to which the newest fragment belongs.
    """

    __slots__ = ("_function_call", "_messages", "_new_id", "_output", "by_id", "by_index", "in_order", "latest")

    def __init__(self, messages: OpenMessages, new_id: Callable[[], str], output: Output) -> None:
        self._messages, self._new_id, self._output = messages, new_id, output
        self.in_order: list[OpenToolCall] = []
        self.by_index: dict[int, OpenToolCall] = {}
        self.by_id: dict[str, OpenToolCall] = {}
        self.latest: OpenToolCall | None = None
        self._function_call: OpenToolCall | None = None  # the one of the deprecated field, which has no id

    # -- fragments

    def read(self, fragment: Any, position: int) -> None:
        """Read a fragment, at this place in its chunk. Some servers put name and arguments beside the id, without `function`."""
        if not is_object(fragment):
            self._output.warn("bad-tool-calls", "a tool call is not an object; it was skipped")
            return
        is_custom = is_object(fragment.get("custom"))
        function = fragment.get("custom") if is_custom else fragment.get("function")
        if not is_object(function):
            function = fragment
        name, call_id = as_text(function.get("name")), as_text(fragment.get("id"))
        arguments = text_or_json(function.get("arguments", function.get("input")))
        index = as_index(fragment.get("index"), self._output.warn)
        before, count = self.latest, len(self.in_order)
        call = self._find(index, call_id, name, arguments, position)
        if before is not None and len(self.in_order) > count:
            self._pass(before)
        call.is_custom = call.is_custom or is_custom
        extra = without_keys(fragment, *CALL_KEYS) if function is not fragment else {}
        if extra and (changed := add_values(call.extra, extra)):
            self._output.hold(call.message_id, changed)
        call.call_id = call.call_id or call_id
        self._append(call, name, arguments)

    def read_function_call(self, fragment: WireObject) -> None:
        """Read a fragment of the deprecated `function_call`: one call without an id."""
        if self._function_call is None:
            self._function_call = OpenToolCall()
            self.in_order.append(self._function_call)
        name, arguments = as_text(fragment.get("name")), text_or_json(fragment.get("arguments"))
        self._append(self._function_call, name, arguments)

    def _find(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> OpenToolCall:
        """Return the call that a fragment belongs to, a new one if it begins one. `position` is its place in its
        chunk."""
        call = self._match(index, call_id, name, arguments, position)
        if call is None:
            is_anonymous = index is None and not call_id
            call = OpenToolCall(arrived_complete=is_anonymous and _is_json_object(arguments))
            self.in_order.append(call)
            if index is not None:
                self.by_index[index] = call
        if call_id and not call.call_id:
            self.by_id[call_id] = call
        self.latest = call
        return call

    def _match(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> OpenToolCall | None:
        """Return the call that a fragment goes on with, by the rules of the module; None if it begins one."""
        if index is not None:
            call = self.by_index.get(index)
            if call is not None and call_id and call.call_id and call_id != call.call_id:
                return self.by_id.get(call_id) or (None if name else call)
            if call is None and arguments and self.in_order and not (call_id or name):
                fault = f"arguments came at index {index}, at which no call began; they were added to the newest call"
                self._output.warn("unknown-index", fault)
                self.by_index[index] = call = self.in_order[-1]
            return call
        if call_id:
            return self.by_id.get(call_id)
        latest = self.latest
        if name and latest is not None and latest.name:
            begins_another = position > 0 or name != latest.name or latest.arrived_complete
            return None if begins_another else latest
        return latest

    def _append(self, call: OpenToolCall, name: str, arguments: str) -> None:
        """Add a fragment to its call."""
        if name and name != call.name:
            if call.message_id is None:
                call.name += name
            else:
                fault = f"the name {name!r} came after the arguments of {call.name!r} had begun; it was skipped"
                self._output.warn("late-tool-name", fault)
        if name or arguments:
            self._messages.finish_reasoning()
        if not arguments:
            return
        if not call.name:
            call.pending_arguments.append(arguments)
            self._output.hold(None, arguments)
            return
        if call.message_id is None:
            self._begin(call)
        self._output.emit(ToolCallDelta(call.message_id or "", arguments))

    def _begin(self, call: OpenToolCall) -> None:
        """Create the message of a call, whose name is sure by now."""
        call.message_id = self._new_id()
        self._messages.seen.add("calls")
        metadata = {"custom": True} if call.is_custom else None
        self._output.emit(NewMessage(call.message(metadata=metadata, **self._messages.fields_of_next())))
        if call.pending_arguments:
            self._output.emit(ToolCallDelta(call.message_id, "".join(call.pending_arguments)))
            call.pending_arguments.clear()

    # -- endings

    def _pass(self, call: OpenToolCall) -> None:
        """Another call begins after this one."""
        if call.message_id is None and call.name:
            self._begin(call)
        if call.message_id is not None and not call.is_custom:
            self._output.emit(CallPassed(call.message(status="completed", metadata=_returned(call))))

    def finish_all(self, status: Status) -> None:
        """End all calls. One of which no name arrived has none."""
        for call in self.in_order:
            if call.message_id is None and (call.pending_arguments or call.call_id or call.name):
                if not call.name:
                    fault = f"the name of the tool call {call.call_id!r} never arrived"
                    self._output.warn("no-tool-name", fault)
                self._begin(call)
            if call.message_id is not None:
                self._output.emit(MessageDone(call.message(status=status, metadata=_returned(call))))
        self.in_order.clear()
        self.by_index.clear()
        self.by_id.clear()
        self.latest = self._function_call = None


def _returned(call: OpenToolCall) -> dict[str, Any] | None:
    """Return the metadata of a call that is done: what goes back with it."""
    return {KEY: {**call.extra}} if call.extra else None


def _is_json_object(text: str) -> bool:
    # The last character is compared first, because few fragments have it and parsing costs more.
    return text.endswith("}") and read_arguments(text) is not None
