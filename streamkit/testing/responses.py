"""A reply in OpenAI's Responses: `response.created`, the output items, `response.completed`.

Each part of the reply is an output item. An item is added empty, filled by its deltas, told once more in full by its
`done` events; the last event has the whole response again. There is no `[DONE]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .replies import CodeInterpreter, McpApproval, Part, Reasoning, Refusal, Reply, ToolCall, turns
from .requests import Request
from .wire import CREATED, Dialect, Frame, to_json

__all__ = ["Responses"]

Json = dict[str, Any]

# What a response repeats of its request, and what it says where the request said nothing.
_ECHOED: Json = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class _Item(NamedTuple):
    """One output item: what it is, before and after its deltas, and the events that tell it. `opening` and `closing`
    are pairs of an event's type and its fields; `place` goes with each of them and with the deltas, `beside` with the
    deltas alone."""

    part: Part
    id: str
    output_index: int
    empty: Json
    full: Json
    delta: str
    place: Json
    opening: Sequence[tuple[str, Json]]
    closing: Sequence[tuple[str, Json]]
    beside: Mapping[str, Any] = {}


class Responses(Dialect):
    """The answer to `POST /v1/responses`."""

    unsayable = ()

    def __init__(self, reply: Reply, request: Request, number: int) -> None:
        super().__init__(reply, request, number)
        self._sequence_number = 0
        self._output: list[Json] = []  # the items that are done
        self._calls = 0

    def frames(self) -> Iterator[Frame]:
        yield self._event("response.created", response=self._response("in_progress"))
        yield self._event("response.in_progress", response=self._response("in_progress"))
        index = 0
        for group in self.reply.groups():
            items = [self._item(part, output_index) for output_index, part in enumerate(group, index)]
            index += len(items)
            yield from self._tell(items, last=index == len(self.reply.parts))
        status = "incomplete" if self.reply.finish_reason in _INCOMPLETE else "completed"
        yield self._event(f"response.{status}", response=self._response(status))

    def failure(self) -> Iterator[Frame]:
        error = self.reply.error
        if self.reply.error_event == "response.failed":
            yield self._event("response.failed", response=self._response("failed"))
        else:
            yield self._event("error", code=error.code, message=error.message, param=error.param)

    def whole(self) -> Mapping[str, Any]:
        for _ in self.frames():
            pass
        return self._response("incomplete" if self.reply.finish_reason in _INCOMPLETE else "completed")

    def whole_failure(self) -> tuple[int, Mapping[str, Any]]:
        if self.reply.error_event == "response.failed":
            return 200, self._response("failed")
        return super().whole_failure()

    def _tell(self, items: Sequence[_Item], *, last: bool) -> Iterator[Frame]:
        """Items that are sent at once: all are opened, then filled in turn, then closed."""
        for item in items:
            yield self._event("response.output_item.added", output_index=item.output_index, item=item.empty)
            yield from self._about(item, item.opening)
        for place, piece in turns([item.part for item in items]):
            item = items[place]
            yield self._at(item, item.delta, {"delta": piece, **item.beside}, piece=True)
        for item in items:
            yield from self._about(item, item.closing)
            cut_short = last and item is items[-1] and self.reply.finish_reason in _INCOMPLETE
            full = item.full | {"status": "incomplete"} if cut_short and "status" in item.full else item.full
            self._output.append(full)
            yield self._event("response.output_item.done", output_index=item.output_index, item=full)

    def _about(self, item: _Item, told: Sequence[tuple[str, Json]]) -> Iterator[Frame]:
        for type, fields in told:
            yield self._at(item, type, fields)

    def _at(self, item: _Item, type: str, fields: Json, *, piece: bool = False) -> Frame:
        where = {"item_id": item.id, "output_index": item.output_index}
        return self._event(f"response.{type}", piece=piece, **where, **item.place, **fields)

    def _item(self, part: Part, output_index: int) -> _Item:
        match part:
            case ToolCall():
                self._calls += 1
                return _function_call(
                    part, self._id("fc", output_index), output_index, self.call_id(part.call_id, self._calls - 1)
                )
            case CodeInterpreter():
                return _code_interpreter(part, self._id("ci", output_index), output_index, f"cntr_{self.number}")
            case McpApproval():
                return _mcp_approval(part, self._id("mcpr", output_index), output_index)
            case Reasoning():
                return _reasoning(part, self._id("rs", output_index), output_index)
            case _:
                return _message(part, self._id("msg", output_index), output_index)

    def _id(self, prefix: str, output_index: int) -> str:
        return f"{prefix}_{self.number}_{output_index}"

    def _event(self, type: str, *, piece: bool = False, **fields: Any) -> Frame:
        event = {"type": type, "sequence_number": self._sequence_number, **fields}
        self._sequence_number += 1
        return Frame(b"event: " + type.encode() + b"\ndata: " + to_json(event) + b"\n\n", piece)

    def _response(self, status: str) -> Json:
        body, reply = self.request.body, self.reply
        ended = status in ("completed", "incomplete")
        error = {"code": reply.error.code or "server_error", "message": reply.error.message}
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": False,
            "completed_at": CREATED if status == "completed" else None,
            "error": error if status == "failed" else None,
            "incomplete_details": {"reason": _INCOMPLETE[reply.finish_reason]} if status == "incomplete" else None,
            "model": self.model,
            "output": list(self._output),
            "service_tier": "default" if ended else "auto",
            "usage": _usage(reply) if ended else None,
            **{key: default if body.get(key) is None else body[key] for key, default in _ECHOED.items()},
        }


def _message(part: Part, id: str, output_index: int) -> _Item:
    """A text, or a refusal, as the one content part of a message."""
    if isinstance(part, Refusal):
        extra: Json = {}
        kind, field = "refusal", "refusal"
        empty: Json = {"type": kind, "refusal": ""}
    else:
        extra = {"logprobs": []}
        kind, field = "output_text", "text"
        empty = {"type": kind, "annotations": [], "logprobs": [], "text": ""}
    full = empty | {field: part.text}
    item: Json = {"id": id, "type": "message", "role": "assistant"}
    return _Item(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "content": []},
        full=item | {"status": "completed", "content": [full]},
        delta=f"{kind}.delta",
        place={"content_index": 0},
        opening=[("content_part.added", {"part": empty})],
        closing=[(f"{kind}.done", {field: part.text, **extra}), ("content_part.done", {"part": full})],
        beside=extra,
    )


def _reasoning(part: Reasoning, id: str, output_index: int) -> _Item:
    """Reasoning: one part of a summary, or the full text as content."""
    item: Json = {"id": id, "type": "reasoning", "summary": []}
    if part.summary:
        kind, frame, field, index = "summary_text", "reasoning_summary_part", "summary", "summary_index"
        delta = "reasoning_summary_text"
    else:
        kind, frame, field, index = "reasoning_text", "content_part", "content", "content_index"
        delta = "reasoning_text"
    full = {"type": kind, "text": part.text}
    return _Item(
        part,
        id,
        output_index,
        empty=item,
        full=item | {field: [full]},
        delta=f"{delta}.delta",
        place={index: 0},
        opening=[(f"{frame}.added", {"part": {"type": kind, "text": ""}})],
        closing=[(f"{delta}.done", {"text": part.text}), (f"{frame}.done", {"part": full})],
    )


def _function_call(part: ToolCall, id: str, output_index: int, call_id: str) -> _Item:
    item: Json = {"id": id, "type": "function_call", "call_id": call_id, "name": part.name}
    return _Item(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "arguments": ""},
        full=item | {"status": "completed", "arguments": part.text},
        delta="function_call_arguments.delta",
        place={},
        opening=[],
        closing=[("function_call_arguments.done", {"arguments": part.text})],
    )


def _mcp_approval(part: McpApproval, id: str, output_index: int) -> _Item:
    """It is whole from the first."""
    item: Json = {"id": id, "type": "mcp_approval_request", "arguments": part.arguments, "name": part.name}
    item["server_label"] = part.server_label
    return _Item(part, id, output_index, empty=item, full=item, delta="", place={}, opening=[], closing=[])


def _code_interpreter(part: CodeInterpreter, id: str, output_index: int, container_id: str) -> _Item:
    item: Json = {"id": id, "type": "code_interpreter_call", "container_id": container_id}
    outputs = [{"type": "logs", "logs": part.logs}] if part.logs else []
    return _Item(
        part,
        id,
        output_index,
        empty=item | {"status": "in_progress", "code": "", "outputs": []},
        full=item | {"status": "completed", "code": part.text, "outputs": outputs},
        delta="code_interpreter_call_code.delta",
        place={},
        opening=[("code_interpreter_call.in_progress", {})],
        closing=[
            ("code_interpreter_call_code.done", {"code": part.text}),
            ("code_interpreter_call.interpreting", {}),
            ("code_interpreter_call.completed", {}),
        ],
    )


def _usage(reply: Reply) -> Json:
    tokens = reply.usage
    return {
        "input_tokens": tokens.input,
        "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.input + tokens.output,
    }
