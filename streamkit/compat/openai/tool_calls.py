"""The growing snapshot of one tool call of a run step: a live openai object that is changed in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openai.types.beta.threads.runs import CodeInterpreterToolCall, FunctionToolCall, ToolCall
from openai.types.beta.threads.runs.code_interpreter_tool_call import CodeInterpreter, CodeInterpreterOutputLogs
from openai.types.beta.threads.runs.function_tool_call import Function

from ...protocols import is_object
from ...protocols.values import parse_json
from .objects import append, as_json, build, entries, has_rest, insert_sorted, integer, mapping, text, tool_call, update

__all__ = ["TOOL_KINDS", "ToolCallSnapshot"]

_EMPTY: dict[str, dict[str, Any]] = {
    "function": {"name": "", "arguments": "", "output": None},
    "code_interpreter": {"input": "", "outputs": []},
    "file_search": {},
}
TOOL_KINDS = tuple(_EMPTY)
"""The types of tools that an Assistants run has."""


class ToolCallSnapshot:
    """One tool call.

    Attributes:
        kind: Its `type` on the wire.
        index: Its index in the step.
        is_open: Whether it is still being written.
        live: openai's tool call object, the one that hooks and accessors get.
        outputs: The outputs of a code interpreter by their index; live.

    What was streamed is counted apart from the live objects, which a handler may change.
    """

    def __init__(self, kind: str, entry: Mapping[str, Any], index: int) -> None:
        self.kind = kind
        self.index = index
        self.is_open = True
        self.outputs: dict[int, Any] = {}
        self._count = 0  # of the characters of the arguments, or of the code
        self._logs_count = 0  # of those of all logs
        self._order: list[int] = []  # the indexes of the outputs, in their order
        empty = dict(_EMPTY.get(kind, {}))
        if kind == "function":
            empty["name"] = text(mapping(entry.get("function")).get("name"))
        self.live: ToolCall = tool_call({"index": index, "id": text(entry.get("id")), "type": kind, kind: empty})

    @property
    def has_all_arguments(self) -> bool:
        """Whether it is a function's call with a JSON object, to which nothing can be added."""
        return isinstance(self.live, FunctionToolCall) and is_object(parse_json(text(self.live.function.arguments)))

    def grow(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Add a piece. Returns the new part of the call's body, None if the piece has nothing new."""
        if id := text(entry.get("id")):
            self.live.id = id
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

    def finish(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Complete the call to its final wire data. Returns the part of its body that was not streamed, None if none."""
        self.live.id = text(entry.get("id")) or self.live.id
        body = mapping(entry.get(self.kind))
        match self.live:
            case FunctionToolCall(function=function) if self.kind == "function":
                return self._finish_function(function, entry, body)
            case CodeInterpreterToolCall(code_interpreter=code) if self.kind == "code_interpreter":
                return self._finish_code(code, body)
            case other:
                update(other, {self.kind: body} if body else {})
                return None

    def _grow_function(self, function: Function, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        if name := text(body.get("name")):
            function.name = name  # a name that is sent again is a repeat, not a continuation
        output = body.get("output")
        if output is not None:
            function.output = as_json(output)
        arguments = as_json(body.get("arguments"))
        if arguments:
            self._count += len(arguments)
            append(function, "arguments", arguments)
        return {**body, "arguments": arguments} if arguments or output is not None else None

    def _finish_function(
        self, function: Function, entry: Mapping[str, Any], body: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        final = as_json(body.get("arguments"))
        missing = _remainder(final, function.arguments, self._count)
        new = self.grow({**entry, "function": {**body, "arguments": missing}}) if missing else None
        update(function, body, skip=("arguments",) if text(body.get("name")) else ("arguments", "name"))
        function.arguments = final or function.arguments
        return new

    def _grow_code(self, code: CodeInterpreter, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        source = text(body.get("input"))
        if source:
            self._count += len(source)
            append(code, "input", source)
        outputs = [self._grow_output(code, entry) for entry in _valid_outputs(body)]
        return {**body, "input": source or None, "outputs": outputs or None} if source or outputs else None

    def _grow_output(self, code: CodeInterpreter, entry: Mapping[str, Any]) -> dict[str, Any]:
        index = integer(entry.get("index"))
        index = len(code.outputs) if index is None else index
        self._logs_count += len(text(entry.get("logs")))
        output = self.outputs.get(index)
        if output is None:
            data = {**entry, "index": index}
            output = self.outputs[index] = build(CodeInterpreter, {"outputs": [data]}).outputs[0]
            code.outputs.insert(insert_sorted(index, self._order), output)
        elif isinstance(output, CodeInterpreterOutputLogs):
            append(output, "logs", entry.get("logs", ""))
        else:
            update(output, entry, skip=("index", "type"))
        return {**entry, "index": index}

    def _finish_code(self, code: CodeInterpreter, body: Mapping[str, Any]) -> Mapping[str, Any] | None:
        final = text(body.get("input"))
        outputs = _valid_outputs(body)
        missing = {"input": _remainder(final, code.input, self._count), "outputs": self._missing_outputs(code, outputs)}
        new = self._grow_code(code, missing)
        code.input = final or code.input
        if outputs and (_joined_logs(outputs) or not _joined_logs(code.outputs)):
            code.outputs[:] = build(CodeInterpreter, {"outputs": outputs}).outputs
        return new

    def _missing_outputs(self, code: CodeInterpreter, outputs: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the final outputs, or the ends of them, that were not streamed. Logs may be cut into outputs
        differently."""
        images = sum(not isinstance(output, CodeInterpreterOutputLogs) for output in code.outputs)
        index = max(self.outputs, default=-1) + 1
        missing: list[Mapping[str, Any]] = []
        if logs := _remainder(_joined_logs(outputs), _joined_logs(code.outputs), self._logs_count):
            missing.append({"index": index, "type": "logs", "logs": logs})
        others = [entry for entry in outputs if entry.get("type") != "logs"]
        missing += ({**entry, "index": index + 1 + position} for position, entry in enumerate(others[images:]))
        return missing


def _valid_outputs(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the outputs of a code interpreter that are logs or images, each with the fields that its type requires."""
    outputs: list[dict[str, Any]] = []
    for _, entry in entries(body.get("outputs")):
        kind = entry.get("type") or next((kind for kind in ("logs", "image") if kind in entry), None)
        if kind == "logs":
            outputs.append({**entry, "type": kind, "logs": text(entry.get("logs"))})
        elif kind == "image":
            outputs.append({**entry, "type": kind, "image": {"file_id": "", **mapping(entry.get("image"))}})
    return outputs


def _joined_logs(outputs: Iterable[Any]) -> str:
    """Return the logs of all outputs, which are wire data or openai's objects."""
    logs: list[str] = []
    for output in outputs:
        if is_object(output):
            logs.append(text(output.get("logs")))
        elif isinstance(output, CodeInterpreterOutputLogs):
            logs.append(output.logs)
    return "".join(logs)


def _remainder(final: str, live: str, count: int) -> str:
    """Return the end of a final text that was not streamed; empty if the final text is a different one."""
    return final[count:] if has_rest(final, live, count) else ""
