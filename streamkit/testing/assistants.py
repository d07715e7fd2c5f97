"""A reply in OpenAI's retired Assistants: the run, its steps, the messages of the thread, and `done`.

Texts and refusals are messages of the thread, each made by a step of its own; tool calls that stand side by side are
one step, as is each run of the code interpreter; reasoning has no words here and is left out. A reply with tool calls
ends `requires_action`; the answer to their outputs goes on with the same run, and first completes that step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .replies import CodeInterpreter, Part, Reasoning, Refusal, Reply, ToolCall, turns
from .requests import Request
from .wire import CREATED, Dialect, Frame, to_json

__all__ = ["Assistants"]

Json = dict[str, Any]

_PATH = re.compile(r"/v1/threads(?:/(?P<thread>[^/]+))?/runs(?:/(?P<run>[^/]+)/submit_tool_outputs)?")
# What a run repeats of its request, and what it says where the request said nothing.
_ECHOED: Json = {
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


class Assistants(Dialect):
    """The answer to `POST /v1/threads/runs`, `…/threads/{thread}/runs` and `…/runs/{run}/submit_tool_outputs`.

    `waiting` has the steps that wait for outputs, by their run; the server hands the same one to each answer.
    """

    def __init__(self, reply: Reply, request: Request, number: int) -> None:
        super().__init__(reply, request, number)
        found = _PATH.fullmatch(request.path)
        assert found is not None
        self.thread_id = found["thread"] or f"thread_{number}"
        self.run_id = found["run"] or f"run_{number}"
        self.creates_thread = found["thread"] is None
        self.submits = found["run"] is not None
        self.assistant_id: Any = request.body.get("assistant_id") or "asst_1"
        self.model = reply.model or request.body.get("model") or "scripted"
        self.waiting: dict[str, Json] = {}
        self._steps = 0
        self._calls: list[Json] = []  # that want an answer
        self._usage_told = False

    def frames(self) -> Iterator[Frame]:
        yield from self._opening()
        for group in _side_by_side(self.reply.parts):
            match group[0]:
                case ToolCall():
                    yield from self._tool_calls(group)
                case CodeInterpreter() as code:
                    yield from self._code(code)
                case part:
                    yield from self._message(part, last=part is self.reply.parts[-1])
        status = self._status
        yield self._event(f"thread.run.{status}", self._run(status))
        yield Frame(b"event: done\ndata: [DONE]\n\n")

    def failure(self) -> Iterator[Frame]:
        if self.reply.error_event == "response.failed":
            yield self._event("thread.run.failed", self._run("failed"))
            yield Frame(b"event: done\ndata: [DONE]\n\n")
        else:
            yield self._event("error", {"error": self.reply.error.to_dict()})

    def whole(self) -> Mapping[str, Any]:
        """The run. (The service answers at once and is then polled; here it is over.)"""
        for _ in self.frames():
            pass
        return self._run(self._status)

    def whole_failure(self) -> tuple[int, Mapping[str, Any]]:
        if self.reply.error_event == "response.failed":
            return 200, self._run("failed")
        return super().whole_failure()

    @property
    def _status(self) -> str:
        cut_short = self.reply.finish_reason in ("length", "content_filter")
        return "requires_action" if self._calls else "incomplete" if cut_short else "completed"

    # -- the run

    def _opening(self) -> Iterator[Frame]:
        if self.submits:
            yield from self._answered()
        else:
            if self.creates_thread:
                thread: Json = {"id": self.thread_id, "object": "thread", "created_at": CREATED, "metadata": {}}
                yield self._event("thread.created", {**thread, "tool_resources": {}})
            yield self._event("thread.run.created", self._run("queued"))
        yield self._event("thread.run.queued", self._run("queued"))
        yield self._event("thread.run.in_progress", self._run("in_progress"))

    def _answered(self) -> Iterator[Frame]:
        """The step that waited for these outputs, if this server told of it, is completed."""
        step = self.waiting.pop(self.run_id, None)
        if step is None:
            return
        given: Any = self.request.body.get("tool_outputs")
        outputs: dict[Any, Any] = {one["tool_call_id"]: one.get("output") for one in given}
        for call in step["step_details"]["tool_calls"]:
            call["function"] = {**call["function"], "output": outputs.get(call["id"], "")}
        yield self._event("thread.run.step.completed", step)

    def _run(self, status: str) -> Json:
        body, reply = self.request.body, self.reply
        over = status in ("completed", "incomplete", "failed")
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": list(self._calls)}}
        code = reply.error.code if reply.error.code in ("rate_limit_exceeded", "invalid_prompt") else "server_error"
        return {
            "id": self.run_id,
            "object": "thread.run",
            "created_at": CREATED,
            "assistant_id": self.assistant_id,
            "thread_id": self.thread_id,
            "status": status,
            "started_at": None if status == "queued" else CREATED,
            "expires_at": None if over else CREATED + 600,
            "cancelled_at": None,
            "failed_at": CREATED if status == "failed" else None,
            "completed_at": CREATED if status == "completed" else None,
            "required_action": action if status == "requires_action" else None,
            "last_error": {"code": code, "message": reply.error.message} if status == "failed" else None,
            "model": self.model,
            "incomplete_details": {"reason": self._limit} if status == "incomplete" else None,
            "usage": self._usage() if over else None,
            **{key: default if body.get(key) is None else body[key] for key, default in _ECHOED.items()},
        }

    @property
    def _limit(self) -> str | None:
        return "max_completion_tokens" if self.reply.finish_reason == "length" else None

    def _usage(self) -> Json:
        tokens = self.reply.usage
        return {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_token_details": {"cached_tokens": tokens.cached},
            "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
        }

    # -- steps

    def _begin(self, type: str, details: Json) -> tuple[Json, Iterator[Frame]]:
        """A step, and the events that begin it."""
        step: Json = {
            "id": f"step_{self.number}_{self._steps}",
            "object": "thread.run.step",
            "created_at": CREATED,
            "run_id": self.run_id,
            "assistant_id": self.assistant_id,
            "thread_id": self.thread_id,
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
        self._steps += 1
        return step, iter([self._event(f"thread.run.step.{phase}", step) for phase in ("created", "in_progress")])

    def _completed(self, step: Json, details: Json) -> Json:
        """The step as it ends. The first one to end has the reply's tokens."""
        nothing = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0)
        usage, self._usage_told = (nothing if self._usage_told else self._usage()), True
        ended = {"status": "completed", "completed_at": CREATED, "usage": usage}
        return step | ended | {"step_details": step["step_details"] | details}

    def _message(self, part: Part, *, last: bool) -> Iterator[Frame]:
        """A text or a refusal, as the one part of a message."""
        if isinstance(part, Reasoning):
            return
        id = f"msg_{self.number}_{self._steps}"
        step, begun = self._begin("message_creation", {"message_creation": {"message_id": id}})
        yield from begun
        message: Json = {
            "id": id,
            "object": "thread.message",
            "created_at": CREATED,
            "assistant_id": self.assistant_id,
            "thread_id": self.thread_id,
            "run_id": self.run_id,
            "status": "in_progress",
            "incomplete_details": None,
            "incomplete_at": None,
            "completed_at": None,
            "role": "assistant",
            "content": [],
            "attachments": [],
            "metadata": {},
        }
        for phase in ("created", "in_progress"):
            yield self._event(f"thread.message.{phase}", message)
        for count, piece in enumerate(part.pieces):
            grown = {"content": [{"index": 0, **_content(part, piece, whole=not count)}]}
            delta = {"id": id, "object": "thread.message.delta", "delta": grown}
            yield self._event("thread.message.delta", delta, piece=True)
        cut = (
            {"length": "max_tokens", "content_filter": "content_filter"}.get(self.reply.finish_reason) if last else None
        )
        ended: Json = {"status": "completed", "completed_at": CREATED}
        if cut is not None:
            ended = {"status": "incomplete", "incomplete_details": {"reason": cut}, "incomplete_at": CREATED}
        content = [_content(part, part.text, whole=True)]
        yield self._event(f"thread.message.{ended['status']}", message | ended | {"content": content})
        yield self._event("thread.run.step.completed", self._completed(step, {}))

    def _tool_calls(self, group: Sequence[Part]) -> Iterator[Frame]:
        step, begun = self._begin("tool_calls", {"tool_calls": []})
        yield from begun
        calls: list[Json] = []
        for part in group:
            assert isinstance(part, ToolCall)
            id = self.call_id(part.call_id, len(self._calls))
            calls.append({"id": id, "type": "function", "function": {"name": part.name, "arguments": part.text}})
            self._calls.append(calls[-1])
        for together in self._together(range(len(calls))):
            for index in together:
                head = {"name": calls[index]["function"]["name"], "arguments": "", "output": None}
                yield self._delta(
                    step, {"index": index, "id": calls[index]["id"], "type": "function", "function": head}
                )
            for place, piece in turns([group[index] for index in together]):
                told = {"index": together[place], "type": "function", "function": {"arguments": piece}}
                yield self._delta(step, told, piece=True)
        self.waiting[self.run_id] = self._completed(step, {"tool_calls": calls})

    def _together(self, indexes: Sequence[int]) -> list[list[int]]:
        """The calls that are sent at once."""
        return [list(indexes)] if self.reply.interleave else [[index] for index in indexes]

    def _code(self, part: CodeInterpreter) -> Iterator[Frame]:
        step, begun = self._begin("tool_calls", {"tool_calls": []})
        yield from begun
        kind = "code_interpreter"
        id = f"call_{self.number}_code_{self._steps}"
        yield self._delta(step, {"index": 0, "id": id, "type": kind, kind: {"input": "", "outputs": []}})
        for piece in part.pieces:
            yield self._delta(step, {"index": 0, "type": kind, kind: {"input": piece}}, piece=True)
        outputs = [{"type": "logs", "logs": part.logs}] if part.logs else []
        for index, output in enumerate(outputs):
            yield self._delta(step, {"index": 0, "type": kind, kind: {"outputs": [{"index": index, **output}]}})
        call = {"id": id, "type": kind, kind: {"input": part.text, "outputs": outputs}}
        yield self._event("thread.run.step.completed", self._completed(step, {"tool_calls": [call]}))

    # -- events

    def _delta(self, step: Json, call: Json, *, piece: bool = False) -> Frame:
        delta = {"step_details": {"type": "tool_calls", "tool_calls": [call]}}
        data = {"id": step["id"], "object": "thread.run.step.delta", "delta": delta}
        return self._event("thread.run.step.delta", data, piece=piece)

    def _event(self, name: str, data: Mapping[str, Any], *, piece: bool = False) -> Frame:
        return Frame(b"event: " + name.encode() + b"\ndata: " + to_json(data) + b"\n\n", piece)


def _content(part: Part, said: str, *, whole: bool) -> Json:
    if isinstance(part, Refusal):
        return {"type": "refusal", "refusal": said}
    return {"type": "text", "text": {"value": said, **({"annotations": []} if whole else {})}}


def _side_by_side(parts: Sequence[Part]) -> Iterator[tuple[Part, ...]]:
    """The parts that a step is made of: adjacent tool calls together, every other one alone."""
    group: list[Part] = []
    for part in parts:
        if group and not (isinstance(part, ToolCall) and isinstance(group[-1], ToolCall)):
            yield tuple(group)
            group = []
        group.append(part)
    if group:
        yield tuple(group)
