"""Which tool call of a choice a fragment in a chunk belongs to.

Servers number and identify the fragments of a call differently, so they are matched by these rules, in this order:

1. A fragment with an index belongs to the call at that index. If it has another id than that call, it belongs to the
   call with that id; if there is none and the fragment has a name, it begins a call (some servers number every call 0).
2. A fragment with an id and no index belongs to the call with that id, or begins one.
3. A fragment with neither belongs to the latest call. It begins another if it has a name and is not the first
   fragment of its chunk, or has another name than the latest call, or the latest call arrived complete.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..values import is_object, parse_json

__all__ = ["NO_CALLS", "ToolCall", "ToolCalls"]


class ToolCall(msgspec.Struct):
    """A tool call that is being streamed.

    Attributes:
        call_id: the provider's id, "" until it arrives.
        name: the tool's name, "" until it arrives.
        message_id: the id of its message, None until the message is created, for which the name must be there.
        pending_arguments: the fragments that arrived before the name.
        is_custom: whether it calls a custom tool, which takes text and not JSON.
        extra: what its fragments have beside the call, which goes back with it.
        arrived_complete: whether its first fragment had all its arguments, so that the next fragment begins another
            call.
    """

    call_id: str = ""
    name: str = ""
    message_id: str | None = None
    pending_arguments: list[str] = []
    is_custom: bool = False
    extra: dict[str, Any] = {}
    arrived_complete: bool = False


class ToolCalls(msgspec.Struct):
    """The open tool calls of a choice, in the order in which they began. `function_call` is the deprecated field's."""

    in_order: list[ToolCall] = []
    by_index: dict[int, ToolCall] = {}
    by_id: dict[str, ToolCall] = {}
    latest: ToolCall | None = None
    function_call: ToolCall | None = None

    def find(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> ToolCall:
        """The call that a fragment belongs to, a new one if it begins one. `position` is its place in its chunk."""
        call = self._match(index, call_id, name, position)
        if call is None:
            is_anonymous = index is None and not call_id
            call = ToolCall(arrived_complete=is_anonymous and _is_json_object(arguments))
            self.in_order.append(call)
            if index is not None:
                self.by_index[index] = call
        if call_id and not call.call_id:
            self.by_id[call_id] = call
        self.latest = call
        return call

    def _match(self, index: int | None, call_id: str, name: str, position: int) -> ToolCall | None:
        """The call that a fragment goes on with, by the rules of the module; None if it begins one."""
        if index is not None:
            call = self.by_index.get(index)
            if call is not None and call_id and call.call_id and call_id != call.call_id:
                return self.by_id.get(call_id) or (None if name else call)
            return call
        if call_id:
            return self.by_id.get(call_id)
        latest = self.latest
        if name and latest is not None and latest.name:
            begins_another = position > 0 or name != latest.name or latest.arrived_complete
            return None if begins_another else latest
        return latest

    def find_function_call(self) -> ToolCall:
        """The one call of the deprecated field `function_call`, which has no id."""
        if self.function_call is None:
            self.function_call = ToolCall()
            self.in_order.append(self.function_call)
        return self.function_call

    def clear(self) -> None:
        """Forget all calls, because they are done."""
        self.in_order.clear()
        self.by_index.clear()
        self.by_id.clear()
        self.latest = self.function_call = None


NO_CALLS = ToolCalls()
"""In the place of those of a choice that has had none: nothing is added to it."""


def _is_json_object(text: str) -> bool:
    # The last character is compared first, because few fragments have it and parsing costs more.
    return text.endswith("}") and is_object(parse_json(text))
