"""Replies in OpenAI's Chat Completions: chunks, then `[DONE]`.

The order is the service's: the role first, then for each tool call its id and name before the pieces of its arguments,
the finish reason in a chunk of its own, and the usage in a last chunk if `stream_options` ask for it.
Source: https://platform.openai.com/docs/api-reference/chat-streaming
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..protocols.frames import sse_frame
from .dialect import CREATED, Dialect, Frame, Json, json_bytes
from .parts import CodeInterpreter, McpApproval, Part, Reasoning, Refusal, Text, ToolCall
from .replies import in_turns

__all__ = ["ChatCompletions"]

_FINGERPRINT = "fp_scripted"
_FIELDS: dict[type[Part], str] = {Text: "content", Refusal: "refusal", Reasoning: "reasoning_content"}
# The other fields of the first chunk's delta, by the first part: that part's field is present and empty.
_FIRST_FIELDS: dict[type[Part], Json] = {
    Text: {"content": "", "refusal": None},
    Refusal: {"content": None, "refusal": ""},
    Reasoning: {"content": None, "reasoning_content": ""},
    ToolCall: {"content": None},
}


class ChatCompletions(Dialect):
    """The answer to `POST /v1/chat/completions`."""

    api = "Chat Completions"
    protocol = "openai_chat"
    routes = {"/v1/chat/completions": ("model", "messages")}
    unsupported = (McpApproval, CodeInterpreter)

    def frames(self) -> Iterator[Frame]:
        """Yield the chunks, then `[DONE]`."""
        first_part = type(self.reply.parts[0]) if self.reply.parts else Text
        yield self._chunk({"role": "assistant", **_FIRST_FIELDS[first_part]})
        for group in self.reply.groups():
            if isinstance(group[0], ToolCall):
                yield from self._call_chunks(group)
                continue
            (part,) = group
            for piece in part.pieces:
                yield self._chunk({_FIELDS[type(part)]: piece}, is_piece=True)
        yield self._chunk({}, finish_reason=self.reply.finish_reason)
        if self.request.include_usage:
            yield _data_frame(self._header("chat.completion.chunk") | {"choices": [], "usage": self._usage()})
        yield Frame(sse_frame(b"[DONE]"))

    def error_frames(self) -> Iterator[Frame]:
        """Yield a chunk with an `error` object, as OpenAI's service and compatible servers send it."""
        yield _data_frame(self.error_body(self.reply.error, 500))

    def body(self) -> Json:
        """Return the completion."""
        message: Json = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        calls: list[Json] = []
        for part in self.reply.parts:
            if isinstance(part, ToolCall):
                function = {"name": part.name, "arguments": part.text}
                calls.append({"id": self.next_call_id(part), "type": "function", "function": function})
            else:
                field = _FIELDS[type(part)]
                message[field] = (message.get(field) or "") + part.text
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.reply.finish_reason}
        return self._header("chat.completion") | {"choices": [choice], "usage": self._usage()}

    def _call_chunks(self, group: tuple[Part, ...]) -> Iterator[Frame]:
        first = self._call_count
        for index, part in enumerate(group, first):
            assert isinstance(part, ToolCall)
            head = {"id": self.next_call_id(part), "type": "function"}
            yield self._call_chunk(index, head | {"function": {"name": part.name, "arguments": ""}})
        for position, piece in in_turns(group):
            yield self._call_chunk(first + position, {"function": {"arguments": piece}}, is_piece=True)

    def _call_chunk(self, index: int, call: Mapping[str, Any], *, is_piece: bool = False) -> Frame:
        return self._chunk({"tool_calls": [{"index": index, **call}]}, is_piece=is_piece)

    def _chunk(self, delta: Mapping[str, Any], *, finish_reason: str | None = None, is_piece: bool = False) -> Frame:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._header("chat.completion.chunk") | {"choices": [choice]}
        if self.request.include_usage:
            chunk["usage"] = None
        return _data_frame(chunk, is_piece=is_piece)

    def _header(self, kind: str) -> Json:
        return {
            "id": f"chatcmpl-{self.number}",
            "object": kind,
            "created": CREATED,
            "model": self.model,
            "service_tier": "default",
            "system_fingerprint": _FINGERPRINT,
        }

    def _usage(self) -> Json:
        tokens = self.reply.usage
        return {
            **self.prompt_and_completion_tokens(),
            "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": tokens.reasoning,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        }


def _data_frame(value: Mapping[str, Any], *, is_piece: bool = False) -> Frame:
    return Frame(sse_frame(json_bytes(value)), is_piece)
