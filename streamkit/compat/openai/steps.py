"""The growing snapshot of one run step with its tool calls: live openai objects that are changed in place.

The rule: a tool call is created empty before its first delta and done once: when its step ends or the run waits for its
output, or before that, when it has all its arguments and the next call begins. Calls are told apart by their index, so the
deltas of parallel calls may interleave.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from openai.types.beta.threads.runs import RunStep, ToolCallsStepDetails

from .messages import HookCall
from .objects import build, entries, insert_sorted, integer, mapping, text, tool_call_delta, update
from .tool_calls import TOOL_KINDS, ToolCallSnapshot

__all__ = ["StepSnapshot"]


class StepSnapshot:
    """One run step.

    Methods that return hook calls take `wants`, the names of the overridden hooks, and leave out calls of others.

    Attributes:
        live: openai's run step object, the one that hooks and accessors get.
        calls: The tool calls by their index.
        is_done: Whether the step has ended.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        details = _empty_details(mapping(header.get("step_details")), header)
        self.live = build(RunStep, {**header, "step_details": details})
        self.calls: dict[int, ToolCallSnapshot] = {}
        self.is_done = False
        self._order: list[int] = []  # the indexes of the calls, in their order
        self._by_id: dict[str, ToolCallSnapshot] = {}

    @property
    def runs_tools(self) -> bool:
        """Whether it is a step of tool calls; the other kind of step creates a message."""
        return isinstance(self.live.step_details, ToolCallsStepDetails)

    def has_call(self, id: str) -> bool:
        """Whether the tool call with this id is in the step."""
        return id in self._by_id

    def update_details(self, details: Any, wants: Container[str], *, final: bool = False) -> Iterator[HookCall]:
        """Add pieces of the step's details; with `final`, complete the details to their final wire data."""
        details = mapping(details)
        if details.get("type") == "message_creation" and not self.calls:
            self.live.type = "message_creation"
            update(self.live, {"step_details": _empty_details(details, {})})
        for position, entry in entries(details.get("tool_calls")):
            call = self._find_call(entry, position, final=final)
            if call is None:
                before = self.calls[self._order[-1]] if self._order else None
                call = self._begin_call(entry)
                if call is None:
                    continue
                if before is not None and not final and call.kind == "function" and before.has_all_arguments:
                    yield from _close_call(before, wants)
                if "on_tool_call_created" in wants:
                    yield "on_tool_call_created", (call.live,)
            if id := text(entry.get("id")):
                self._by_id.setdefault(id, call)
            new = call.finish(entry) if final else call.grow(entry)
            if new is not None and call.is_open and "on_tool_call_delta" in wants:
                delta = {**entry, "index": call.index, "type": call.kind, call.kind: new}
                yield "on_tool_call_delta", (tool_call_delta(delta), call.live)

    @property
    def has_open_function(self) -> bool:
        """Whether a function's call is open."""
        return any(call.is_open and call.kind == "function" for call in self.calls.values())

    def close_call(self, wants: Container[str], id: str) -> Iterator[HookCall]:
        """End the tool call with this id, if it is one of the step's."""
        if (call := self._by_id.get(id)) is not None:
            yield from _close_call(call, wants)

    def close_calls(self, wants: Container[str], *, but_last_function: bool = False) -> Iterator[HookCall]:
        """End all tool calls, in their order; perhaps all but the last function's."""
        calls = [call for index in self._order if (call := self.calls[index]).is_open]
        functions = [call for call in calls if call.kind == "function"]
        for call in calls:
            if not (but_last_function and call is functions[-1]):
                yield from _close_call(call, wants)

    def close(self, wants: Container[str], data: Mapping[str, Any]) -> Iterator[HookCall]:
        """End the step. `data` is its final wire data, with or without `step_details`."""
        if self.is_done:
            return
        yield from self.update_details(data.get("step_details"), wants, final=True)
        yield from self.close_calls(wants)
        update(self.live, data, skip=("id", "step_details"))
        self.is_done = True
        if "on_run_step_done" in wants:
            yield "on_run_step_done", (self.live,)

    def _find_call(self, entry: Mapping[str, Any], position: int, *, final: bool) -> ToolCallSnapshot | None:
        """Return the call that a piece belongs to: by its index, else by its id, else by its position."""
        index, id = integer(entry.get("index")), text(entry.get("id"))
        if index is not None and not self._reuses_index(entry, index, id):
            return self.calls.get(index)
        if (call := self._by_id.get(id)) is not None:
            return call
        if index is not None:
            return None
        likely = position if final else -1  # some servers send no index
        if likely >= len(self._order) or not self._order:
            return None
        call = self.calls[self._order[likely]]
        return call if not id or (final and not call.live.id) else None

    def _reuses_index(self, entry: Mapping[str, Any], index: int, id: str) -> bool:
        """Whether a server began another call, with an id and a name of its own, under an index that is taken."""
        call = self.calls.get(index)
        if call is None or not call.live.id or id in ("", call.live.id):
            return False
        return bool(mapping(entry.get("function")).get("name")) or text(entry.get("type")) not in ("", call.kind)

    def _begin_call(self, entry: Mapping[str, Any]) -> ToolCallSnapshot | None:
        kind = text(entry.get("type")) or next((kind for kind in TOOL_KINDS if kind in entry), "")
        if not kind:
            return None
        if not self.runs_tools:
            update(self.live, {"step_details": {"type": "tool_calls", "tool_calls": []}, "type": "tool_calls"})
        assert isinstance(self.live.step_details, ToolCallsStepDetails)
        index = integer(entry.get("index"))
        if index is None or index in self.calls:
            index = self._order[-1] + 1 if self._order else 0
        call = self.calls[index] = ToolCallSnapshot(kind, entry, index)
        self.live.step_details.tool_calls.insert(insert_sorted(index, self._order), call.live)
        return call


def _close_call(call: ToolCallSnapshot, wants: Container[str]) -> Iterator[HookCall]:
    if call.is_open:
        call.is_open = False
        if "on_tool_call_done" in wants:
            yield "on_tool_call_done", (call.live,)


def _empty_details(details: Mapping[str, Any], header: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details of a step before its first delta."""
    if (details.get("type") or header.get("type")) == "message_creation":
        return {"message_creation": {"message_id": ""}, **details, "type": "message_creation"}
    return {"type": "tool_calls", "tool_calls": []}
