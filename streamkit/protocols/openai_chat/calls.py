"""The tool calls of one choice: which of them a piece of a Chat Completions stream belongs to.

They are told apart by index, where there is none by id; what has neither goes on with the last one. Where an index
comes again with another id and a name, it is another call (some servers number every call 0).
"""

from __future__ import annotations

import msgspec

from .wire import is_whole

__all__ = ["Call", "Calls"]


class Call(msgspec.Struct):
    """A tool call. `id` is its message's, None until its name is known."""

    call_id: str = ""
    name: str = ""
    id: str | None = None
    held: list[str] = []
    custom: bool = False
    whole: bool = False  # one piece brought it all, so another piece of the same name is another call


class Calls(msgspec.Struct):
    """The calls that are open, in the order in which they began. `legacy` is that of `function_call`."""

    begun: list[Call] = []
    by_index: dict[int, Call] = {}
    by_id: dict[str, Call] = {}
    last: Call | None = None
    legacy: Call | None = None

    def find(self, index: int | None, call_id: str, name: str, arguments: str, position: int) -> Call:
        """The call that a piece belongs to; a new one where it begins one. `position` is its place in its chunk."""
        last = self.last
        if index is not None:
            call = self.by_index.get(index)
            if call is not None and call_id and call.call_id and call_id != call.call_id:
                call = self.by_id.get(call_id) or (None if name else call)
        elif call_id:
            call = self.by_id.get(call_id)
        elif name and last is not None and last.name and (position or name != last.name or last.whole):
            call = None
        else:
            call = last
        if call is None:
            call = Call(whole=index is None and not call_id and arguments.endswith("}") and is_whole(arguments))
            self.begun.append(call)
            if index is not None:
                self.by_index[index] = call
        if call_id and not call.call_id:
            self.by_id[call_id] = call
        self.last = call
        return call

    def find_legacy(self) -> Call:
        """The one call of a `function_call`, which has no id."""
        if self.legacy is None:
            self.legacy = Call()
            self.begun.append(self.legacy)
        return self.legacy

    def clear(self) -> None:
        self.begun.clear()
        self.by_index.clear()
        self.by_id.clear()
        self.last = self.legacy = None
