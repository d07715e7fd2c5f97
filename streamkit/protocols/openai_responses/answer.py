"""The answer to a Responses request: its events, or all of it as one response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..api_request import ApiEncoder
from ..values import as_object
from .encoder import Encoder

__all__ = ["ResponsesAnswer"]


class ResponsesAnswer(ApiEncoder):
    """Encodes an agent's run as the answer to a Responses request.

    Attributes:
        after: the `sequence_number` of the newest event that the client has; -1 if it has none.
    """

    name = "openai_responses"
    encoder_class = Encoder
    id_prefix = "resp_"
    call_prefix = "call_"
    reasoning_format = "summary"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.after = -1
        self._response: dict[str, Any] = {}
        self._items: list[Any] = []

    def _shown(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "response" in item:
            item["response"] |= self._echo()
        if item["sequence_number"] > self.after:
            yield item

    def _echo(self) -> dict[str, Any]:
        """Return what a response repeats of its request."""
        request = self.request
        return {
            "previous_response_id": request.previous_id,
            "store": request.store,
            "background": request.background,
            "metadata": request.metadata,
            "tools": [{"type": "function", "strict": False, **tool} for tool in request.tools],
        }

    # -- the whole answer

    def _add(self, item: dict[str, Any]) -> None:
        if "response" in item:
            self._response = item["response"]
        elif item["type"] == "response.output_item.done":
            self._items.append(item["item"])

    def _whole(self) -> dict[str, Any]:
        """Return the response, as it stands."""
        response = self._response
        if response.get("status") == "in_progress":
            return {**response, "output": self._items}
        if as_object(response.get("error")).get("code") == "cancelled":
            return {**response, "status": "cancelled", "error": None}
        return response
