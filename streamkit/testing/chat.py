"""A reply in OpenAI's Chat Completions: chunks, then `[DONE]`.

The order is the service's: the role first, a call's head (id, name, no arguments yet) before its pieces, the
finish reason in a chunk of its own, and, if the request's `stream_options` say so, the usage in a last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .replies import CodeInterpreter, Part, Reasoning, Refusal, Reply, Text, ToolCall, turns
from .requests import Request
from .wire import CREATED, Dialect, Frame, Unsayable, error_body, to_json

__all__ = ["Chat"]

_FINGERPRINT = "fp_scripted"
_FIELDS: dict[type[Part], str] = {Text: "content", Refusal: "refusal", Reasoning: "reasoning_content"}


class Chat(Dialect):
    """The answer to `POST /v1/chat/completions`."""

    def __init__(self, reply: Reply, request: Request, number: int) -> None:
        super().__init__(reply, request, number)
        if any(isinstance(part, CodeInterpreter) for part in reply.parts):
            raise Unsayable("The scripted reply has a CodeInterpreter part, which Chat Completions has no words for.")

    def frames(self) -> Iterator[Frame]:
        yield self._chunk(self._opening())
        calls = 0
        for group in self.reply.groups():
            if isinstance(group[0], ToolCall):
                yield from self._calls(group, calls)
                calls += len(group)
                continue
            (part,) = group
            for piece in part.pieces:
                yield self._chunk({_FIELDS[type(part)]: piece}, piece=True)
        yield self._chunk({}, finish_reason=self.reply.finish_reason)
        if self.request.include_usage:
            yield _sse(self._head("chat.completion.chunk") | {"choices": [], "usage": self._usage()})
        yield Frame(b"data: [DONE]\n\n")

    def failure(self) -> Iterator[Frame]:
        yield _sse(error_body(self.reply.error))

    def whole(self) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        calls: list[dict[str, Any]] = []
        for part in self.reply.parts:
            if isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": part.text}
                calls.append({"id": self.call_id(part.call_id, len(calls)), "type": "function", "function": function})
            else:
                field = _FIELDS[type(part)]
                message[field] = (message.get(field) or "") + part.text
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.reply.finish_reason}
        return self._head("chat.completion") | {"choices": [choice], "usage": self._usage()}

    def _opening(self) -> dict[str, Any]:
        """The first chunk's delta. The field that comes first is there and empty, as the service has it."""
        first = self.reply.parts[0] if self.reply.parts else Text()
        match first:
            case Refusal():
                return {"role": "assistant", "content": None, "refusal": ""}
            case Reasoning():
                return {"role": "assistant", "content": None, "reasoning_content": ""}
            case ToolCall():
                return {"role": "assistant", "content": None}
            case _:
                return {"role": "assistant", "content": "", "refusal": None}

    def _calls(self, group: tuple[Part, ...], first: int) -> Iterator[Frame]:
        for index, part in enumerate(group, first):
            assert isinstance(part, ToolCall)
            head = {"id": self.call_id(part.call_id, index), "type": "function"}
            yield self._call(index, head | {"function": {"name": part.name, "arguments": ""}})
        for place, piece in turns(group):
            yield self._call(first + place, {"function": {"arguments": piece}}, piece=True)

    def _call(self, index: int, call: Mapping[str, Any], *, piece: bool = False) -> Frame:
        return self._chunk({"tool_calls": [{"index": index, **call}]}, piece=piece)

    def _chunk(self, delta: Mapping[str, Any], *, finish_reason: str | None = None, piece: bool = False) -> Frame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]}
        if self.request.include_usage:
            chunk["usage"] = None
        return _sse(chunk, piece=piece)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self.number}",
            "object": kind,
            "created": CREATED,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": _FINGERPRINT,
        }

    def _usage(self) -> dict[str, Any]:
        tokens = self.reply.usage
        return {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
            "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": tokens.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


def _sse(value: Mapping[str, Any], *, piece: bool = False) -> Frame:
    return Frame(b"data: " + to_json(value) + b"\n\n", piece)
