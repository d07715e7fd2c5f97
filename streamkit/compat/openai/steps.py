"""A run step of openai's that grows, with its tool calls: live objects, mutated in place.

A call is created empty before its first delta and done once: when its step is over, or the run waits for its output.
Calls are kept apart by their index, so parallel ones may interleave.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from openai.types.beta.threads.runs import (
    CodeInterpreterToolCall,
    FunctionToolCall,
    RunStep,
    ToolCall,
    ToolCallsStepDetails,
)
from openai.types.beta.threads.runs.code_interpreter_tool_call import CodeInterpreter, CodeInterpreterOutputLogs
from openai.types.beta.threads.runs.function_tool_call import Function

from ...protocols import is_object
from .messages import HookCall
from .objects import (
    append,
    as_json,
    build,
    entries,
    integer,
    mapping,
    place_of,
    text,
    tool_call,
    tool_call_delta,
    update,
)

__all__ = ["StepSnapshot"]

_KINDS = ("function", "code_interpreter", "file_search")
_EMPTY: dict[str, dict[str, Any]] = {
    "function": {"name": "", "arguments": "", "output": None},
    "code_interpreter": {"input": "", "outputs": []},
    "file_search": {},
}


class Call:
    """A tool call of a step. `live` is openai's object."""

    def __init__(self, kind: str, entry: Mapping[str, Any], index: int) -> None:
        self.kind = kind
        self.index = index
        self.open = True
        self.outputs: dict[int, Any] = {}  # of a code interpreter, by their index
        self._order: list[int] = []
        empty = dict(_EMPTY.get(kind, {}))
        if kind == "function":
            empty["name"] = text(mapping(entry.get("function")).get("name"))
        self.live: ToolCall = tool_call({"index": index, "id": text(entry.get("id")), "type": kind, kind: empty})

    def grow(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take in a piece. Gives the part of it that is new, None if nothing is."""
        if given := text(entry.get("id")):
            self.live.id = given
        body = mapping(entry.get(self.kind))
        match self.live:
            case FunctionToolCall(function=function) if self.kind == "function":
                return self._grow_function(function, body)
            case CodeInterpreterToolCall(code_interpreter=code) if self.kind == "code_interpreter":
                return self._grow_code(code, body)
            case other:
                if not body:
                    return None
                update(other, {self.kind: body})
                return body

    def _grow_function(self, function: Function, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name := text(body.get("name")):
            function.name = name  # sent again it is the same name, not more of it
        output = body.get("output")
        if output is not None:
            function.output = as_json(output)
        arguments = as_json(body.get("arguments"))
        if arguments:
            append(function, "arguments", arguments)
        return {**body, "arguments": arguments} if arguments or output is not None else None

    def _grow_code(self, code: CodeInterpreter, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        written = text(body.get("input"))
        if written:
            append(code, "input", written)
        outputs = [self._output(code, entry) for entry in _outputs(body)]
        return {**body, "input": written or None, "outputs": outputs or None} if written or outputs else None

    def _output(self, code: CodeInterpreter, entry: Mapping[str, Any]) -> dict[str, Any]:
        index = integer(entry.get("index"))
        index = len(code.outputs) if index is None else index
        known = self.outputs.get(index)
        if known is None:
            data = {**entry, "index": index}
            known = self.outputs[index] = build(CodeInterpreter, {"outputs": [data]}).outputs[0]
            code.outputs.insert(place_of(index, self._order), known)
        elif isinstance(known, CodeInterpreterOutputLogs):
            append(known, "logs", entry.get("logs", ""))
        else:
            update(known, {key: value for key, value in entry.items() if key not in ("index", "type")})
        return {**entry, "index": index}

    def finish(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Take over what the call is in the end. Gives what of it was not told yet, None if all was."""
        self.live.id = text(entry.get("id")) or self.live.id
        body = mapping(entry.get(self.kind))
        match self.live:
            case FunctionToolCall(function=function) if self.kind == "function":
                final = as_json(body.get("arguments"))
                missing = {"arguments": rest(final, function.arguments)}
                told = self.grow({**entry, "function": {**body, **missing}}) if missing["arguments"] else None
                update(function, body, keep=("arguments",) if text(body.get("name")) else ("arguments", "name"))
                function.arguments = final or function.arguments
                return told
            case CodeInterpreterToolCall(code_interpreter=code) if self.kind == "code_interpreter":
                return self._finish_code(code, body)
            case other:
                update(other, {self.kind: body} if body else {})
                return None

    def _finish_code(self, code: CodeInterpreter, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        final = text(body.get("input"))
        outputs = _outputs(body)
        told = self._grow_code(code, {"input": rest(final, code.input), "outputs": self._missing(code, outputs)})
        code.input = final or code.input
        if outputs and (logs_of(outputs) or not logs_of(code.outputs)):
            code.outputs[:] = build(CodeInterpreter, {"outputs": outputs}).outputs
        return told

    def _missing(self, code: CodeInterpreter, outputs: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
        """The outputs, or their rests, that no delta has told. How the logs are cut into outputs does not matter."""
        logs = logs_of(code.outputs)
        images = sum(not isinstance(output, CodeInterpreterOutputLogs) for output in code.outputs)
        index = max(self.outputs, default=-1) + 1
        missing: list[Mapping[str, Any]] = []
        if more := rest(logs_of(outputs), logs):
            missing.append({"index": index, "type": "logs", "logs": more})
        others = [entry for entry in outputs if entry.get("type") != "logs"]
        missing += ({**entry, "index": index + 1 + place} for place, entry in enumerate(others[images:]))
        return missing


class StepSnapshot:
    """One run step. `live` is the object that the hooks and accessors give."""

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.live = build(RunStep, {**header, "step_details": self._empty(mapping(header.get("step_details")), header)})
        self.calls: dict[int, Call] = {}
        self._order: list[int] = []
        self._by_id: dict[str, Call] = {}
        self.done = False

    @staticmethod
    def _empty(details: Mapping[str, Any], header: Mapping[str, Any]) -> Mapping[str, Any]:
        if (details.get("type") or header.get("type")) == "message_creation":
            return {"message_creation": {"message_id": ""}, **details, "type": "message_creation"}
        return {"type": "tool_calls", "tool_calls": []}

    @property
    def runs_tools(self) -> bool:
        return isinstance(self.live.step_details, ToolCallsStepDetails)

    def has(self, id: str) -> bool:
        """Whether it has the tool call with this id."""
        return id in self._by_id

    def details(self, given: Any, wants: Container[str], *, final: bool = False) -> Iterator[HookCall]:
        """Pieces of the step's details; or, `final`, the details as they are to be in the end."""
        details = mapping(given)
        if details.get("type") == "message_creation" and not self.calls:
            self.live.type = "message_creation"
            update(self.live, {"step_details": self._empty(details, {})})
        for place, entry in entries(details.get("tool_calls")):
            call = self._find(entry, place, final=final)
            if call is None:
                call = self._begin(entry)
                if call is None:
                    continue
                if "on_tool_call_created" in wants:
                    yield "on_tool_call_created", (call.live,)
            if id := text(entry.get("id")):
                self._by_id.setdefault(id, call)
            new = call.finish(entry) if final else call.grow(entry)
            if new is not None and call.open and "on_tool_call_delta" in wants:
                told = {**entry, "index": call.index, "type": call.kind, call.kind: new}
                yield "on_tool_call_delta", (tool_call_delta(told), call.live)

    def close_calls(self, wants: Container[str], id: str | None = None) -> Iterator[HookCall]:
        """These calls are complete: all, or the one with this id."""
        calls = [self.calls[index] for index in self._order] if id is None else [self._by_id.get(id)]
        for call in calls:
            if call is not None and call.open:
                call.open = False
                if "on_tool_call_done" in wants:
                    yield "on_tool_call_done", (call.live,)

    def close(self, wants: Container[str], data: Mapping[str, Any]) -> Iterator[HookCall]:
        """The step is over. `data` is what is known of it in the end."""
        if self.done:
            return
        yield from self.details(data.get("step_details"), wants, final=True)
        yield from self.close_calls(wants)
        update(self.live, data, keep=("id", "step_details"))
        self.done = True
        if "on_run_step_done" in wants:
            yield "on_run_step_done", (self.live,)

    def _find(self, entry: Mapping[str, Any], place: int, *, final: bool) -> Call | None:
        index, id = integer(entry.get("index")), text(entry.get("id"))
        if index is not None and not self._is_another(entry, index, id):
            return self.calls.get(index)
        if (known := self._by_id.get(id)) is not None:
            return known
        if index is not None:
            return None
        likely = place if final else -1  # some servers send no index
        if likely >= len(self._order) or not self._order:
            return None
        call = self.calls[self._order[likely]]
        return call if not id or (final and not call.live.id) else None

    def _is_another(self, entry: Mapping[str, Any], index: int, id: str) -> bool:
        """Whether a server began another call under an index that is taken: with an id and a name of its own."""
        call = self.calls.get(index)
        if call is None or not call.live.id or id in ("", call.live.id):
            return False
        return bool(mapping(entry.get("function")).get("name")) or text(entry.get("type")) not in ("", call.kind)

    def _begin(self, entry: Mapping[str, Any]) -> Call | None:
        kind = text(entry.get("type")) or next((kind for kind in _KINDS if kind in entry), "")
        if not kind:
            return None
        if not self.runs_tools:
            update(self.live, {"step_details": {"type": "tool_calls", "tool_calls": []}, "type": "tool_calls"})
        assert isinstance(self.live.step_details, ToolCallsStepDetails)
        index = integer(entry.get("index"))
        if index is None or index in self.calls:
            index = self._order[-1] + 1 if self._order else 0
        call = self.calls[index] = Call(kind, entry, index)
        self.live.step_details.tool_calls.insert(place_of(index, self._order), call.live)
        return call


def _outputs(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a code interpreter, each with what its type has to have; others make no sense and are left out."""
    outputs: list[dict[str, Any]] = []
    for _, entry in entries(body.get("outputs")):
        kind = entry.get("type") or next((kind for kind in ("logs", "image") if kind in entry), None)
        if kind == "logs":
            outputs.append({**entry, "type": kind, "logs": text(entry.get("logs"))})
        elif kind == "image":
            outputs.append({**entry, "type": kind, "image": {"file_id": "", **mapping(entry.get("image"))}})
    return outputs


def logs_of(outputs: Iterable[Any]) -> str:
    """All that was printed, in outputs as they came or as openai's objects."""
    logs: list[str] = []
    for output in outputs:
        if is_object(output):
            logs.append(text(output.get("logs")))
        elif isinstance(output, CodeInterpreterOutputLogs):
            logs.append(output.logs)
    return "".join(logs)


def rest(final: str, told: str) -> str:
    """What a final text has beyond what was told; nothing if it is another text."""
    return final[len(told) :] if final.startswith(told) else ""
