"""Writes the tool calls of a run's steps, for the encoder, with what came out of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.unique_ids import UniqueIds
from ...events import Delta
from ...messages import CodeMessage, ConsoleMessage, ImageMessage, Message, ToolCallMessage, ToolOutputMessage
from ..values import WireObject, as_object, as_objects, parse_json
from .open_objects import Item, OpenCall
from .run_fields import is_number
from .run_writer import AssistantsRunWriter, NamedItem, NamedItems

__all__ = ["CallWriter"]


class CallWriter:
    """The calls of the run, by the ids of their flat messages and by their call ids."""

    def __init__(self, run: AssistantsRunWriter) -> None:
        self._run = run
        self._ids = UniqueIds()
        self._calls: dict[str, OpenCall] = {}  # by the id of the flat message of the call, or of its console
        self._console_outputs: dict[str, int] = {}  # by the id of a console: the index of its output in the call
        self._latest_code: OpenCall | None = None
        self._code_by_call_id: dict[str, OpenCall] = {}
        self._calls_by_call_id: dict[str, OpenCall] = {}

    def begin_call(self, message: CodeMessage | ToolCallMessage) -> NamedItems:
        """Create a call or code, in the open step of calls or a new one."""
        yield from self._run.close_idle("tool_calls")
        step = self._run.open_call_step()
        if step is None:
            step, begin = self._run.open_step("tool_calls")
            yield from begin
        call_id = message.call_id or message.id
        id = self._ids.unused(message.id if call_id in self._ids else call_id)
        call = OpenCall(id, message, step)
        step.calls.append(call)
        step.unfinished.add(message.id)
        self._calls[message.id] = call
        if call.type == "code_interpreter":
            self._latest_code = call
            self._code_by_call_id[call_id] = call
        else:
            self._calls_by_call_id[call_id] = call
        # A copy: the call's own list of outputs grows.
        outputs: Item = {"outputs": []} if call.type == "code_interpreter" else {}
        yield _call_delta(call, {**call.body, **outputs}, is_first=True)

    def begin_console(self, message: ConsoleMessage) -> NamedItems:
        """Create a console, as an output of its code. One without code gets a call with no code."""
        call = self._code_of(message)
        if call is None:
            code = CodeMessage(f"{message.id}.code", call_id=message.call_id)
            yield from self.begin_call(code)
            self.end(code)
            call = self._calls[code.id]
        self._calls[message.id] = call
        self._console_outputs[message.id] = len(call.body["outputs"])
        call.body["outputs"].append({"type": "logs", "logs": ""})
        call.step.unfinished.add(message.id)

    def delta_item(self, delta: Delta) -> NamedItem | None:
        """Return the item of a piece of a call, of code, or of what that printed."""
        id = delta.message_id
        if id in self._console_outputs:
            output = {"index": self._console_outputs[id], "type": "logs", "logs": delta.value}
            return _call_delta(self._calls[id], {"outputs": [output]})
        if id in self._calls and (key := self._calls[id].content_key):
            return _call_delta(self._calls[id], {key: delta.value})
        return None

    def end(self, message: Message) -> None:
        """A call, code or a console is done. The end of its step has its final form."""
        call = self._calls.get(message.id)
        if call is None:
            return
        call.step.unfinished.discard(message.id)
        if message.status != "completed":
            call.step.status = message.status
        if message.id in self._console_outputs:
            call.body["outputs"][self._console_outputs[message.id]]["logs"] = message.content
        else:
            _complete_body(call, message)

    def add_output(self, message: ToolOutputMessage) -> NamedItems:
        """Yield what a call returned, if its step is still open."""
        call = _if_open(self._calls_by_call_id.get(message.call_id or ""))
        if call is None:
            return
        if call.type == "function":
            call.body["output"] = message.content
            call.step.awaiting_output.pop(call.id, None)
            yield _call_delta(call, {"output": message.content})
        elif results := _search_results(message.content):
            call.body["results"] = results
            yield _call_delta(call, {"results": results})

    def is_drawn(self, message: ImageMessage) -> bool:
        """Whether an image is an output of code whose step is still open."""
        return self._code_that_drew(message) is not None

    def add_image(self, message: ImageMessage) -> NamedItems:
        """Yield the items of an image that code drew."""
        call = self._code_that_drew(message)
        if call is not None and message.content:
            output: Item = {"type": "image", "image": {"file_id": message.content}}
            call.body["outputs"].append(output)
            yield _call_delta(call, {"outputs": [{"index": len(call.body["outputs"]) - 1, **output}]})

    def _code_that_drew(self, message: ImageMessage) -> OpenCall | None:
        has_file_of_code = message.role == "computer" and message.format == "file_id"
        return self._code_of(message) if has_file_of_code else None

    def _code_of(self, message: Message) -> OpenCall | None:
        """Return the code that something came out of: that with its call id, or the latest; None if its step is
        closed."""
        if message.call_id is None:
            return _if_open(self._latest_code)
        return _if_open(self._code_by_call_id.get(message.call_id))


def _if_open(call: OpenCall | None) -> OpenCall | None:
    return call if call is not None and not call.step.is_closed else None


def _call_delta(call: OpenCall, body: Mapping[str, Any], *, is_first: bool = False) -> NamedItem:
    entry = {"index": call.index, **({"id": call.id} if is_first else {}), "type": call.type, call.type: dict(body)}
    delta = {"step_details": {"type": "tool_calls", "tool_calls": [entry]}}
    return "thread.run.step.delta", {"id": call.step.id, "object": "thread.run.step.delta", "delta": delta}


def _complete_body(call: OpenCall, message: Message) -> None:
    """Put the final form of a call into its body. A function's call without an output waits for that from now on."""
    if call.content_key:
        call.body[call.content_key] = message.content
    if call.type == "function":
        call.body["name"] = message.name or call.body["name"]
        if isinstance(message, ToolCallMessage) and message.provider_executed:
            call.body["output"] = call.body["output"] or ""  # with null the client would be expected to call it
        elif message.status == "completed" and call.body["output"] is None:
            call.step.awaiting_output[call.id] = call
    elif call.type == "file_search":
        ranking = as_object(message.metadata.get("ranking_options"))
        has_ranker = ranking.get("ranker") in ("auto", "default_2024_08_21")
        if has_ranker and is_number(ranking.get("score_threshold")):
            call.body["ranking_options"] = dict(ranking)


def _search_results(content: str) -> list[Any]:
    """Return the results of a search, if they are such as this API has; else none."""
    results = as_objects(parse_json(content))
    return [dict(result) for result in results] if all(map(_is_search_result, results)) else []


def _is_search_result(wire: WireObject) -> bool:
    has_fields = isinstance(wire.get("file_id"), str) and isinstance(wire.get("file_name"), str)
    parts = as_objects(wire.get("content"))
    return (
        has_fields
        and is_number(wire.get("score"))
        and all(part.get("type") == "text" and isinstance(part.get("text", ""), str) for part in parts)
    )
