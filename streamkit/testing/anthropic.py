"""Replies in Anthropic's Messages: `message_start`, the content blocks, `message_delta`, `message_stop`.

Each part of the reply is a content block: started, filled by its deltas, stopped. A refusal is a text block of a
message that stops with `refusal`; reasoning ends with a signature; code that the provider runs is a call of its
`code_execution` tool and a block with the result. Source:
https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..protocols import is_object
from .dialect import Dialect, Frame, Json, event_frame
from .parts import CodeInterpreter, Part, Reasoning, Refusal, ToolCall
from .replies import ServiceError, in_turns

__all__ = ["AnthropicMessages"]

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
# The service's own error type for an HTTP status, sent if the script has an OpenAI type.
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_ERROR_TYPES = ("server_error", "invalid_request_error", "requests", "service_unavailable", None)


class _ScriptedBlock(NamedTuple):
    """One content block.

    Attributes:
        position: Its `index` in the message.
        empty: The block before its first delta.
        full: The block after its last delta.
        deltas: The deltas, one for each piece of the part.
        closing_deltas: The deltas that follow them.
        result: The block that follows this one, if it is a call that the provider answers itself.
    """

    position: int
    empty: Json
    full: Json
    deltas: Sequence[Json]
    closing_deltas: Sequence[Json] = ()
    result: Json | None = None


class AnthropicMessages(Dialect):
    """The answer to `POST /v1/messages`."""

    api = "Anthropic Messages"
    protocol = "anthropic"
    routes = {"/v1/messages": ("model", "messages", "max_tokens")}
    required_headers = ("anthropic-version",)

    def frames(self) -> Iterator[Frame]:
        """Yield the events, each named by its type."""
        usage = {**self._usage(), "output_tokens": 1}
        yield _event("message_start", message=self._message([], None, usage))
        yield _event("ping")
        for group, blocks in self._groups():
            for block in blocks:
                yield _event("content_block_start", index=block.position, content_block=block.empty)
            sent = [0] * len(blocks)
            for turn, _ in in_turns(group):
                yield _delta(blocks[turn], blocks[turn].deltas[sent[turn]], is_piece=True)
                sent[turn] += 1
            for block in blocks:
                yield from _closing_frames(block)
        delta: Json = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=self._usage())
        yield _event("message_stop")

    def error_frames(self) -> Iterator[Frame]:
        """Yield an `error` event."""
        yield _event(**self.error_body(self.reply.error, 500))

    def body(self) -> Json:
        """Return the message."""
        content: list[Json] = []
        for _, blocks in self._groups():
            for block in blocks:
                content += [block.full] if block.result is None else [block.full, block.result]
        return self._message(content, self._stop_reason(), self._usage())

    @classmethod
    def error_body(cls, error: ServiceError, status: int) -> Json:
        """Return the JSON body of a response with this HTTP status, with Anthropic's word for it."""
        type = _ERROR_TYPES.get(status, "api_error") if error.type in _OPENAI_ERROR_TYPES else error.type
        return {"type": "error", "error": {"type": type, "message": error.message}}

    def _stop_reason(self) -> str:
        if any(isinstance(part, Refusal) for part in self.reply.parts):
            return "refusal"
        return _STOP_REASONS[self.reply.finish_reason]

    def _groups(self) -> Iterator[tuple[tuple[Part, ...], list[_ScriptedBlock]]]:
        """Yield the parts that are sent at the same time, with their blocks."""
        index = 0
        for group in self.reply.groups():
            blocks: list[_ScriptedBlock] = []
            for part in group:
                block = self._block(part, index)
                index += 1 if block.result is None else 2
                blocks.append(block)
            yield group, blocks

    def _block(self, part: Part, index: int) -> _ScriptedBlock:
        match part:
            case ToolCall():
                return _tool_use(part, index, self.next_call_id(part))
            case CodeInterpreter():
                return _code_execution(part, index, f"srvtoolu_{self.number}_{index}")
            case Reasoning():
                return _thinking(part, index, f"signature_{self.number}_{index}")
            case _:
                deltas = [{"type": "text_delta", "text": piece} for piece in part.pieces]
                return _ScriptedBlock(index, {"type": "text", "text": ""}, {"type": "text", "text": part.text}, deltas)

    def _message(self, content: Sequence[Json], stop_reason: str | None, usage: Json) -> Json:
        return {
            "id": f"msg_{self.number}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(content),
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _usage(self) -> Json:
        tokens = self.reply.usage
        usage: Json = {
            "input_tokens": tokens.input - tokens.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.output,
        }
        if tokens.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
        return usage


def _thinking(part: Reasoning, index: int, signature: str) -> _ScriptedBlock:
    return _ScriptedBlock(
        index,
        empty={"type": "thinking", "thinking": "", "signature": ""},
        full={"type": "thinking", "thinking": part.text, "signature": signature},
        deltas=[{"type": "thinking_delta", "thinking": piece} for piece in part.pieces],
        closing_deltas=[{"type": "signature_delta", "signature": signature}],
    )


def _tool_use(part: ToolCall, index: int, call_id: str) -> _ScriptedBlock:
    block: Json = {"type": "tool_use", "id": call_id, "name": part.name}
    try:
        arguments = json.loads(part.text)
    except ValueError:
        arguments = {}
    full_input: Mapping[str, Any] = arguments if is_object(arguments) else {}  # a body always has an object here
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in part.pieces]
    return _ScriptedBlock(index, block | {"input": {}}, block | {"input": full_input}, deltas)


def _code_execution(part: CodeInterpreter, index: int, call_id: str) -> _ScriptedBlock:
    block: Json = {"type": "server_tool_use", "id": call_id, "name": "code_execution"}
    pieces = [json.dumps(piece, ensure_ascii=False)[1:-1] for piece in part.pieces]
    if pieces:
        pieces[0] = '{"code": "' + pieces[0]
        pieces[-1] += '"}'
    result: Json = {"type": "code_execution_result", "stdout": part.logs, "stderr": "", "return_code": 0, "content": []}
    return _ScriptedBlock(
        index,
        empty=block | {"input": {}},
        full=block | {"input": {"code": part.text}},
        deltas=[{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        result={"type": "code_execution_tool_result", "tool_use_id": call_id, "content": result},
    )


def _closing_frames(block: _ScriptedBlock) -> Iterator[Frame]:
    for delta in block.closing_deltas:
        yield _delta(block, delta)
    yield _event("content_block_stop", index=block.position)
    if block.result is not None:
        yield _event("content_block_start", index=block.position + 1, content_block=block.result)
        yield _event("content_block_stop", index=block.position + 1)


def _delta(block: _ScriptedBlock, delta: Json, *, is_piece: bool = False) -> Frame:
    return _event("content_block_delta", is_piece, index=block.position, delta=delta)


def _event(type: str, is_piece: bool = False, **fields: Any) -> Frame:
    return event_frame(type, {"type": type, **fields}, is_piece=is_piece)
