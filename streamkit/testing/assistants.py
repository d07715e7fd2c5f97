"""Replies in OpenAI's retired Assistants API: the run, its steps, the messages of the thread, and `done`.

Each text or refusal is a message of the thread, made by a run step of its own. Adjacent tool calls are one step, and so
is each call of the code interpreter. Reasoning is left out. A reply with tool calls ends `requires_action` and its step
stays open; the answer to the submitted outputs continues the same run and first completes that step. Source:
https://platform.openai.com/docs/api-reference/assistants-streaming/events
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ..protocols.frames import sse_frame
from .dialect import CREATED, Frame, Json, ResourceDialect, event_frame
from .parts import CodeInterpreter, Part, Reasoning, Refusal, ToolCall
from .replies import Reply, grouped_calls, in_turns
from .requests import Request

__all__ = ["Assistants"]

_PATH = re.compile(r"/v1/threads(?:/(?P<thread>[^/]+))?/runs(?:/(?P<run>[^/]+)/submit_tool_outputs)?")
_INCOMPLETE_MESSAGE_REASONS = {"length": "max_tokens", "content_filter": "content_filter"}
_NO_TOKENS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


class Assistants(ResourceDialect):
    """The answer to the requests that begin a run or continue one with tool outputs.

    (The service answers a request without `stream` at once, with a queued run to be polled. Here the run has ended.)
    """

    api = "Assistants"
    protocol = "openai_assistants"
    routes = {
        "/v1/threads/runs": ("assistant_id",),
        "/v1/threads/{id}/runs": ("assistant_id",),
        "/v1/threads/{id}/runs/{id}/submit_tool_outputs": ("tool_outputs",),
    }
    request_defaults = {
        "instructions": "",
        "tools": [],
        "metadata": {},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_completion_tokens": None,
        "max_prompt_tokens": None,
        "truncation_strategy": {"type": "auto", "last_messages": None},
        "response_format": "auto",
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }

    def __init__(self, reply: Reply, request: Request, number: int, waiting_steps: dict[str, Json]) -> None:
        super().__init__(reply, request, number, waiting_steps)
        ids = _PATH.fullmatch(request.path)
        assert ids is not None
        self._creates_thread = ids["thread"] is None
        self._continues_run = ids["run"] is not None
        self._run_id = ids["run"] or f"run_{number}"
        # The ids by which every object of the run refers to its owners.
        self._owner: Json = {
            "assistant_id": request.body.get("assistant_id") or "asst_1",
            "thread_id": ids["thread"] or f"thread_{number}",
        }
        self.model = self.model or "scripted"
        self._step_count = 0
        self._waiting_calls: list[Json] = []  # the calls whose outputs the client has to submit
        self._usage_sent = False

    def frames(self) -> Iterator[Frame]:
        """Yield the events, then `done`."""
        yield from self._opening_frames()
        for group in grouped_calls(self.reply.parts):
            match group[0]:
                case ToolCall():
                    yield from self._tool_call_frames(group)
                case CodeInterpreter() as code:
                    yield from self._code_frames(code)
                case Reasoning():
                    pass
                case part:
                    yield from self._message_frames(part, is_last=part is self.reply.parts[-1])
        yield from self._closing_frames(self.final_status())

    def final_status(self) -> str:
        """`requires_action` after tool calls, `incomplete` if the reply is cut short, otherwise `completed`."""
        if self._waiting_calls:
            return "requires_action"
        return "incomplete" if self.reply.cut_short else "completed"

    def failed_frames(self) -> Iterator[Frame]:
        """`thread.run.failed`, then `done`."""
        yield from self._closing_frames("failed")

    def error_event_frame(self) -> Frame:
        """Return the `error` event."""
        return event_frame("error", self.error_body(self.reply.error, 500))

    def resource(self, status: str) -> Json:
        """Return the run in this state."""
        reply = self.reply
        has_ended = status in ("completed", "incomplete", "failed")
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": list(self._waiting_calls)}}
        code = reply.error.code if reply.error.code in ("rate_limit_exceeded", "invalid_prompt") else "server_error"
        reason = "max_completion_tokens" if reply.finish_reason == "length" else None
        return {
            "id": self._run_id,
            "object": "thread.run",
            "created_at": CREATED,
            **self._owner,
            "status": status,
            "started_at": None if status == "queued" else CREATED,
            "expires_at": None if has_ended else CREATED + 600,
            "cancelled_at": None,
            "failed_at": CREATED if status == "failed" else None,
            "completed_at": CREATED if status == "completed" else None,
            "required_action": action if status == "requires_action" else None,
            "last_error": {"code": code, "message": reply.error.message} if status == "failed" else None,
            "model": self.model,
            "incomplete_details": {"reason": reason} if status == "incomplete" else None,
            "usage": self._usage() if has_ended else None,
            **self.repeated_parameters(),
        }

    # -- the run

    def _opening_frames(self) -> Iterator[Frame]:
        if self._continues_run:
            yield from self._submitted_frames()
        else:
            if self._creates_thread:
                thread: Json = {"id": self._owner["thread_id"], "object": "thread", "created_at": CREATED}
                yield event_frame("thread.created", {**thread, "metadata": {}, "tool_resources": {}})
            yield event_frame("thread.run.created", self.resource("queued"))
        for status in ("queued", "in_progress"):
            yield event_frame(f"thread.run.{status}", self.resource(status))

    def _submitted_frames(self) -> Iterator[Frame]:
        """Completes the step that waited for these outputs, if this server began it."""
        step = self.waiting_steps.pop(self._run_id, None)
        if step is None:
            return
        outputs = {entry["tool_call_id"]: entry.get("output") for entry in self.request.body["tool_outputs"]}
        for call in step["step_details"]["tool_calls"]:
            call["function"] = {**call["function"], "output": outputs.get(call["id"], "")}
        yield event_frame("thread.run.step.completed", step)

    def _closing_frames(self, status: str) -> Iterator[Frame]:
        yield event_frame(f"thread.run.{status}", self.resource(status))
        yield Frame(sse_frame(b"[DONE]", "done"))

    def _usage(self) -> Json:
        return {
            **self.prompt_and_completion_tokens(),
            "prompt_token_details": {"cached_tokens": self.reply.usage.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reply.usage.reasoning},
        }

    # -- the steps

    def _new_step(self, type: str, details: Json) -> tuple[Json, list[Frame]]:
        """Return a step, and the events that open it."""
        step: Json = {
            "id": f"step_{self.number}_{self._step_count}",
            "object": "thread.run.step",
            "created_at": CREATED,
            "run_id": self._run_id,
            **self._owner,
            "type": type,
            "status": "in_progress",
            "cancelled_at": None,
            "completed_at": None,
            "expires_at": CREATED + 600,
            "failed_at": None,
            "last_error": None,
            "step_details": {"type": type, **details},
            "usage": None,
        }
        self._step_count += 1
        return step, [event_frame(f"thread.run.step.{phase}", step) for phase in ("created", "in_progress")]

    def _completed_step(self, step: Json, details: Json) -> Json:
        """Return the step in its final state. The first step that completes reports the tokens of the entire reply."""
        usage, self._usage_sent = (_NO_TOKENS if self._usage_sent else self._usage()), True
        final = {"status": "completed", "completed_at": CREATED, "usage": usage}
        return step | final | {"step_details": step["step_details"] | details}

    def _message_frames(self, part: Part, *, is_last: bool) -> Iterator[Frame]:
        """Yield a message with one content part, a text or a refusal, and its step."""
        id = f"msg_{self.number}_{self._step_count}"
        step, opening = self._new_step("message_creation", {"message_creation": {"message_id": id}})
        yield from opening
        message = self._new_message(id)
        for phase in ("created", "in_progress"):
            yield event_frame(f"thread.message.{phase}", message)
        for count, piece in enumerate(part.pieces):
            content = {"index": 0, **_content(part, piece, with_annotations=count == 0)}
            delta = {"id": id, "object": "thread.message.delta", "delta": {"content": [content]}}
            yield event_frame("thread.message.delta", delta, is_piece=True)
        final: Json = {"status": "completed", "completed_at": CREATED}
        if is_last and self.reply.cut_short:
            reason = _INCOMPLETE_MESSAGE_REASONS[self.reply.finish_reason]
            final = {"status": "incomplete", "incomplete_details": {"reason": reason}, "incomplete_at": CREATED}
        final["content"] = [_content(part, part.text, with_annotations=True)]
        yield event_frame(f"thread.message.{final['status']}", message | final)
        yield event_frame("thread.run.step.completed", self._completed_step(step, {}))

    def _new_message(self, id: str) -> Json:
        return {
            "id": id,
            "object": "thread.message",
            "created_at": CREATED,
            **self._owner,
            "run_id": self._run_id,
            "status": "in_progress",
            "incomplete_details": None,
            "incomplete_at": None,
            "completed_at": None,
            "role": "assistant",
            "content": [],
            "attachments": [],
            "metadata": {},
        }

    def _tool_call_frames(self, group: Sequence[Part]) -> Iterator[Frame]:
        """Yield a step of function calls, which stays open until their outputs are submitted."""
        step, opening = self._new_step("tool_calls", {"tool_calls": []})
        yield from opening
        calls: list[Json] = []
        function: Json
        for part in group:
            assert isinstance(part, ToolCall)
            function = {"name": part.name, "arguments": part.text}
            calls.append({"id": self.next_call_id(part), "type": "function", "function": function})
        self._waiting_calls += calls
        # The positions in the group of the calls that are sent at the same time.
        batches = [range(len(calls))] if self.reply.interleave else [range(at, at + 1) for at in range(len(calls))]
        for batch in batches:
            for index in batch:
                function = {"name": calls[index]["function"]["name"], "arguments": "", "output": None}
                call = {"index": index, "id": calls[index]["id"], "type": "function", "function": function}
                yield _step_delta(step, call)
            for position, piece in in_turns([group[index] for index in batch]):
                call = {"index": batch[position], "type": "function", "function": {"arguments": piece}}
                yield _step_delta(step, call, is_piece=True)
        self.waiting_steps[self._run_id] = self._completed_step(step, {"tool_calls": calls})

    def _code_frames(self, part: CodeInterpreter) -> Iterator[Frame]:
        """Yield a step with one call of the code interpreter."""
        step, opening = self._new_step("tool_calls", {"tool_calls": []})
        yield from opening
        kind = "code_interpreter"
        id = f"call_{self.number}_code_{self._step_count}"
        yield _step_delta(step, {"index": 0, "id": id, "type": kind, kind: {"input": "", "outputs": []}})
        for piece in part.pieces:
            yield _step_delta(step, {"index": 0, "type": kind, kind: {"input": piece}}, is_piece=True)
        outputs = [{"type": "logs", "logs": part.logs}] if part.logs else []
        for index, output in enumerate(outputs):
            yield _step_delta(step, {"index": 0, "type": kind, kind: {"outputs": [{"index": index, **output}]}})
        call = {"id": id, "type": kind, kind: {"input": part.text, "outputs": outputs}}
        yield event_frame("thread.run.step.completed", self._completed_step(step, {"tool_calls": [call]}))


def _step_delta(step: Json, call: Json, *, is_piece: bool = False) -> Frame:
    delta = {"step_details": {"type": "tool_calls", "tool_calls": [call]}}
    data = {"id": step["id"], "object": "thread.run.step.delta", "delta": delta}
    return event_frame("thread.run.step.delta", data, is_piece=is_piece)


def _content(part: Part, value: str, *, with_annotations: bool) -> Json:
    """Return a content part of a message, or a piece of one. The first piece of a text has the empty list of
    annotations."""
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": value}
    text: dict[str, Any] = {"value": value}
    if with_annotations:
        text["annotations"] = []
    return {"type": "text", "text": text}
