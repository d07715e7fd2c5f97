"""A reply in Anthropic's Messages: `message_start`, the content blocks, `message_delta`, `message_stop`.

Each part of the reply is a content block: started, filled by its deltas, stopped. A refusal is a text after which the
stop_reason says so; reasoning ends with a signature; code that the provider runs is a call of its tool, and its result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from .replies import CodeInterpreter, Part, Reasoning, Refusal, Reply, ServiceError, ToolCall, turns
from .requests import Request
from .wire import Dialect, Frame, to_json

__all__ = ["Messages", "error_body"]

Json = dict[str, Any]

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
# What the service calls an error with such a status, where the script uses another service's word for it.
_ERRORS = {
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
_OTHERS_WORDS = ("server_error", "invalid_request_error", "requests", "service_unavailable", None)


def error_body(error: ServiceError, status: int = 500) -> Json:
    """An error as the service answers it."""
    type = _ERRORS.get(status, "api_error") if error.type in _OTHERS_WORDS else error.type
    return {"type": "error", "error": {"type": type, "message": error.message}}


class _Block(NamedTuple):
    """One content block: what it is before and after its deltas, the deltas themselves, one for each piece of the
    part, those that follow its pieces, and the block that follows it."""

    at: int
    empty: Json
    full: Json
    deltas: Sequence[Json]
    closing: Sequence[Json] = ()
    after: Json | None = None


class Messages(Dialect):
    """The answer to `POST /v1/messages`."""

    def __init__(self, reply: Reply, request: Request, number: int) -> None:
        super().__init__(reply, request, number)
        self._calls = 0

    def frames(self) -> Iterator[Frame]:
        usage = {**self._usage(), "output_tokens": 1}
        yield _event("message_start", message=self._message([], None, usage))
        yield _event("ping")
        for group, blocks in self._groups():
            for block in blocks:
                yield _event("content_block_start", index=block.at, content_block=block.empty)
            told = [0] * len(blocks)
            for place, _ in turns(group):
                yield self._delta(blocks[place], blocks[place].deltas[told[place]], piece=True)
                told[place] += 1
            for block in blocks:
                yield from self._close(block)
        delta: Json = {"stop_reason": self._reason, "stop_sequence": None}
        yield _event("message_delta", delta=delta, usage=self._usage())
        yield _event("message_stop")

    def failure(self) -> Iterator[Frame]:
        yield _event(**error_body(self.reply.error))

    def whole(self) -> Mapping[str, Any]:
        content: list[Json] = []
        for _, blocks in self._groups():
            for block in blocks:
                content += [block.full] if block.after is None else [block.full, block.after]
        return self._message(content, self._reason, self._usage())

    def whole_failure(self) -> tuple[int, Mapping[str, Any]]:
        return 500, error_body(self.reply.error)

    @property
    def _reason(self) -> str:
        if any(isinstance(part, Refusal) for part in self.reply.parts):
            return "refusal"
        return _REASONS[self.reply.finish_reason]

    def _groups(self) -> Iterator[tuple[tuple[Part, ...], list[_Block]]]:
        """The parts that are sent at once, with their blocks."""
        index = 0
        for group in self.reply.groups():
            blocks: list[_Block] = []
            for part in group:
                block = self._block(part, index)
                index += 1 if block.after is None else 2
                blocks.append(block)
            yield group, blocks

    def _close(self, block: _Block) -> Iterator[Frame]:
        for delta in block.closing:
            yield self._delta(block, delta)
        yield _event("content_block_stop", index=block.at)
        if block.after is not None:
            yield _event("content_block_start", index=block.at + 1, content_block=block.after)
            yield _event("content_block_stop", index=block.at + 1)

    def _delta(self, block: _Block, delta: Json, *, piece: bool = False) -> Frame:
        return _event("content_block_delta", piece, index=block.at, delta=delta)

    def _block(self, part: Part, index: int) -> _Block:
        match part:
            case ToolCall():
                self._calls += 1
                return _tool_use(part, index, self.call_id(part.call_id, self._calls - 1))
            case CodeInterpreter():
                return _code_execution(part, index, f"srvtoolu_{self.number}_{index}")
            case Reasoning():
                return _thinking(part, index, f"signature_{self.number}_{index}")
            case _:
                deltas = [{"type": "text_delta", "text": piece} for piece in part.pieces]
                return _Block(index, {"type": "text", "text": ""}, {"type": "text", "text": part.text}, deltas)

    def _message(self, content: Sequence[Json], reason: str | None, usage: Json) -> Json:
        return {
            "id": f"msg_{self.number}",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(content),
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _usage(self) -> Json:
        tokens = self.reply.usage
        cached = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": tokens.cached}
        thought = {"output_tokens_details": {"thinking_tokens": tokens.reasoning}} if tokens.reasoning else {}
        return {"input_tokens": tokens.input - tokens.cached, **cached, "output_tokens": tokens.output, **thought}


def _thinking(part: Reasoning, index: int, signature: str) -> _Block:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
    return _Block(
        index,
        empty={"type": "thinking", "thinking": "", "signature": ""},
        full={"type": "thinking", "thinking": part.text, "signature": signature},
        deltas=deltas,
        closing=[{"type": "signature_delta", "signature": signature}],
    )


def _tool_use(part: ToolCall, index: int, call_id: str) -> _Block:
    block: Json = {"type": "tool_use", "id": call_id, "name": part.name}
    given: Any
    try:
        given = json.loads(part.text)
    except ValueError:
        given = {}
    full = cast("Json", given) if isinstance(given, dict) else {}  # the service never sends any other
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in part.pieces]
    return _Block(index, block | {"input": {}}, block | {"input": full}, deltas)


def _code_execution(part: CodeInterpreter, index: int, call_id: str) -> _Block:
    block: Json = {"type": "server_tool_use", "id": call_id, "name": "code_execution"}
    pieces = [json.dumps(piece, ensure_ascii=False)[1:-1] for piece in part.pieces]
    if pieces:
        pieces[0] = '{"code": "' + pieces[0]
        pieces[-1] += '"}'
    result: Json = {"type": "code_execution_result", "stdout": part.logs, "stderr": "", "return_code": 0, "content": []}
    return _Block(
        index,
        empty=block | {"input": {}},
        full=block | {"input": {"code": part.text}},
        deltas=[{"type": "input_json_delta", "partial_json": piece} for piece in pieces],
        after={"type": "code_execution_tool_result", "tool_use_id": call_id, "content": result},
    )


def _event(type: str, piece: bool = False, **fields: Any) -> Frame:
    return Frame(b"event: " + type.encode() + b"\ndata: " + to_json({"type": type, **fields}) + b"\n\n", piece)
