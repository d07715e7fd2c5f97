"""The answer to a Chat Completions request: its chunks, or all of it as one `chat.completion`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..api_request import ApiEncoder
from ..values import as_object
from .encoder import Encoder

__all__ = ["ChatAnswer"]

_JOINED = ("content", "refusal", "reasoning_content")


class ChatAnswer(ApiEncoder):
    """Encodes an agent's run as the answer to a Chat Completions request.

    Token counts come in a last chunk without choices only if the request has `include_usage`: many clients read the first
    choice of each chunk.
    """

    name = "openai_chat"
    done = Encoder.done
    encoder_class = Encoder
    id_prefix = "chatcmpl-"
    call_prefix = "call_"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._texts: dict[str, list[str]] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._arguments: dict[int, list[str]] = {}
        self._annotations: list[Any] = []
        self._last: dict[str, Any] = {}
        self._finish_reason: str | None = None
        self._usage: Any = None

    def _shown(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "error" in item:
            error = as_object(item["error"])
            kind, code = error.get("type"), error.get("code")
            yield {
                "error": {"message": error.get("message"), "type": kind or "server_error", "param": None, "code": code}
            }
        elif not self.request.stream:
            yield item
        elif item["choices"]:
            yield {**item, "usage": None} if self.request.include_usage else item
        elif self.request.include_usage:
            yield item

    # -- the whole answer

    def _add(self, item: dict[str, Any]) -> None:
        if "error" in item:
            return
        self._last, self._usage = item, item.get("usage", self._usage)
        for choice in item["choices"]:
            self._finish_reason = choice["finish_reason"] or self._finish_reason
            delta = choice["delta"]
            for key in _JOINED:
                if key in delta:
                    self._texts.setdefault(key, []).append(delta[key])
            self._annotations += delta.get("annotations", ())
            for call in delta.get("tool_calls", ()):
                self._add_call(call)

    def _add_call(self, call: dict[str, Any]) -> None:
        index, kind = call["index"], "custom" if "custom" in call else "function"
        if "id" in call:
            self._calls[index] = {"id": call["id"], "type": kind, kind: call[kind]}
        self._arguments.setdefault(index, []).append(call.get(kind, {}).get("arguments", ""))

    def _whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        message |= {key: text for key, pieces in self._texts.items() if (text := "".join(pieces))}
        if self._annotations:
            message["annotations"] = self._annotations
        if self._calls:
            message["tool_calls"] = [
                {**call, "function": {**call["function"], "arguments": "".join(self._arguments[index])}}
                for index, call in sorted(self._calls.items())
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish_reason}
        head = {key: self._last.get(key) for key in ("id", "created", "model")}
        return {**head, "object": "chat.completion", "choices": [choice], "usage": self._usage}
