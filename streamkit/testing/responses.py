"""Replies in OpenAI's Responses: `response.created`, the output items, `response.completed`.

Each part of the reply is an output item. An item is added empty, filled by its deltas, and repeated in full by its
`done` events; the last event has the complete response again. There is no `[DONE]`. Source:
https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .dialect import CREATED, Frame, Json, ResourceDialect, event_frame
from .parts import CodeInterpreter, McpApproval, Part, Reasoning, ToolCall
from .replies import Reply, in_turns
from .requests import Request
from .response_items import (
    ResponseItem,
    code_interpreter_item,
    function_call_item,
    mcp_approval_item,
    message_item,
    reasoning_item,
)

__all__ = ["Responses"]

_INCOMPLETE_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


class Responses(ResourceDialect):
    """The answer to `POST /v1/responses`."""

    api = "Responses"
    protocol = "openai_responses"
    routes = {"/v1/responses": ("model",)}
    unsupported = ()
    request_defaults = {
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

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        super().__init__(reply, request, number, waiting_steps)
        self._sequence_number = 0
        self._finished_items: list[Json] = []

    def frames(self) -> Iterator[Frame]:
        """Yield the events, numbered from 0 by `sequence_number`."""
        yield self._event("response.created", response=self.resource("in_progress"))
        yield self._event("response.in_progress", response=self.resource("in_progress"))
        index = 0
        for group in self.reply.groups():
            items = [self._item(part, output_index) for output_index, part in enumerate(group, index)]
            index += len(items)
            yield from self._item_frames(items, is_last=index == len(self.reply.parts))
        status = self.final_status()
        yield self._event(f"response.{status}", response=self.resource(status))

    def final_status(self) -> str:
        """`completed`, or `incomplete` if the reply is cut short."""
        return "incomplete" if self.reply.cut_short else "completed"

    def failed_frames(self) -> Iterator[Frame]:
        """`response.failed`, with the items that were finished before."""
        yield self._event("response.failed", response=self.resource("failed"))

    def error_event_frame(self) -> Frame:
        """Return the `error` event."""
        error = self.reply.error
        return self._event("error", code=error.code, message=error.message, param=error.param)

    def resource(self, status: str) -> Json:
        """Return the response in this state, with the items that are finished."""
        reply = self.reply
        has_usage = status in ("completed", "incomplete")
        error = {"code": reply.error.code or "server_error", "message": reply.error.message}
        return {
            "id": f"resp_{self.number}",
            "object": "response",
            "created_at": CREATED,
            "status": status,
            "background": False,
            "completed_at": CREATED if status == "completed" else None,
            "error": error if status == "failed" else None,
            "incomplete_details": (
                {"reason": _INCOMPLETE_REASONS[reply.finish_reason]} if status == "incomplete" else None
            ),
            "model": self.model,
            "output": list(self._finished_items),
            "service_tier": "default" if has_usage else "auto",
            "usage": self._usage() if has_usage else None,
            **self.repeated_parameters(),
            **self._stated_reasoning(),
        }

    def _stated_reasoning(self) -> Json:
        """Return what the resource states about reasoning: that there are summaries, if the reply has any. OpenAI sends
        none that its response does not announce, and what reads the stream relies on it."""
        if not any(isinstance(part, Reasoning) and part.summary for part in self.reply.parts):
            return {}
        stated = self.repeated_parameters()["reasoning"]
        return {"reasoning": {**stated, "summary": stated.get("summary") or "auto"}}

    def _item_frames(self, items: Sequence[ResponseItem], *, is_last: bool) -> Iterator[Frame]:
        """Yield the events of items that are sent at the same time: all are added, then filled in turn, then
        finished."""
        for item in items:
            yield self._event("response.output_item.added", output_index=item.output_index, item=item.empty)
            yield from self._item_events(item, item.opening)
        for position, piece in in_turns([item.part for item in items]):
            item = items[position]
            yield self._item_event(item, item.delta, {"delta": piece, **item.delta_fields}, is_piece=True)
        for item in items:
            yield from self._item_events(item, item.closing)
            cut_short = is_last and item is items[-1] and self.reply.cut_short
            full = item.full | {"status": "incomplete"} if cut_short and "status" in item.full else item.full
            self._finished_items.append(full)
            yield self._event("response.output_item.done", output_index=item.output_index, item=full)

    def _item_events(self, item: ResponseItem, events: Sequence[tuple[str, Json]]) -> Iterator[Frame]:
        for type, fields in events:
            yield self._item_event(item, type, fields)

    def _item_event(self, item: ResponseItem, type: str, fields: Json, *, is_piece: bool = False) -> Frame:
        position = {"item_id": item.id, "output_index": item.output_index, **item.indexes}
        return self._event(f"response.{type}", is_piece=is_piece, **position, **fields)

    def _item(self, part: Part, index: int) -> ResponseItem:
        match part:
            case ToolCall():
                return function_call_item(part, self._id("fc", index), index, self.next_call_id(part))
            case CodeInterpreter():
                return code_interpreter_item(part, self._id("ci", index), index, f"cntr_{self.number}")
            case McpApproval():
                return mcp_approval_item(part, self._id("mcpr", index), index)
            case Reasoning():
                return reasoning_item(part, self._id("rs", index), index)
            case _:
                return message_item(part, self._id("msg", index), index)

    def _id(self, prefix: str, output_index: int) -> str:
        return f"{prefix}_{self.number}_{output_index}"

    def _event(self, type: str, *, is_piece: bool = False, **fields: Any) -> Frame:
        event = {"type": type, "sequence_number": self._sequence_number, **fields}
        self._sequence_number += 1
        return event_frame(type, event, is_piece=is_piece)

    def _usage(self) -> Json:
        tokens = self.reply.usage
        return {
            "input_tokens": tokens.input,
            "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": tokens.cached},
            "output_tokens": tokens.output,
            "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
            "total_tokens": tokens.input + tokens.output,
        }
