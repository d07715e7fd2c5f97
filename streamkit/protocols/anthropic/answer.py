"""The answer to a request to Messages: its events, or all of it as one message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..api_request import ApiEncoder
from ..values import as_object, parse_json
from .encoder import Encoder

__all__ = ["MessagesAnswer"]

_JOINED = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class MessagesAnswer(ApiEncoder):
    """Encodes an agent's run as the answer to a request to Messages."""

    name = "anthropic"
    keepalive = b'event: ping\ndata: {"type": "ping"}\n\n'
    encoder_class = Encoder
    id_prefix = "msg_"
    call_prefix = "toolu_"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._message: dict[str, Any] = {}
        self._pieces: dict[int, list[str]] = {}

    def _shown(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if item["type"] == "error":
            yield {"type": "error", "error": {"type": "api_error", "message": as_object(item["error"]).get("message")}}
        else:
            yield item

    # -- the whole answer

    def _add(self, item: dict[str, Any]) -> None:
        match item["type"]:
            case "message_start":
                self._message = item["message"]
            case "content_block_start":
                self._message["content"].append(item["content_block"])
            case "content_block_delta":
                self._add_delta(item["index"], item["delta"])
            case "content_block_stop":
                self._join(item["index"])
            case "message_delta":
                self._message |= item["delta"]
                self._message["usage"] |= item["usage"]
            case _:
                pass

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        if key := _JOINED.get(delta["type"]):
            self._pieces.setdefault(index, []).append(delta[key])
        elif delta["type"] == "citations_delta":
            self._message["content"][index].setdefault("citations", []).append(delta["citation"])

    def _join(self, index: int) -> None:
        block, text = self._message["content"][index], "".join(self._pieces.pop(index, ()))
        if block["type"] == "tool_use":
            block["input"] = as_object(parse_json(text)) if text else {}
        else:
            block[block["type"]] = text

    def _whole(self) -> dict[str, Any]:
        for index in [*self._pieces]:
            self._join(index)
        return self._message
