"""The answer to a Responses request: its events, or all of it as one response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..api_request import ApiEncoder
from ..values import as_object
from .encoder import Encoder

__all__ = ["ResponsesAnswer"]

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}  # of ids, by the types of items


class ResponsesAnswer(ApiEncoder):
    """Encodes an agent's run as the answer to a Responses request. The ids of its items name the run, where that has an id: clients
    send them in place of the items.

    Attributes:
        after: the `sequence_number` of the newest event that the client has; -1 if it has none.
    """

    name = "openai_responses"
    encoder_class = Encoder
    id_prefix = "resp_"
    call_prefix = "call_"
    reasoning_format = "summary"

    def __init__(self, *args: Any, id: str | None, **options: Any) -> None:
        super().__init__(*args, id=id, **options)
        self.after = -1
        self._run_id = id
        self._ids: dict[str, str] = {}  # of items: the encoder's, and those in the answer
        self._response: dict[str, Any] = {}
        self._items: list[Any] = []

    def _shown(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if "response" in item:
            item["response"] |= self._echo()
        if self._run_id is not None:
            item = self._named(item, self._run_id)
        if item["sequence_number"] > self.after:
            yield item

    def _named(self, item: dict[str, Any], run_id: str) -> dict[str, Any]:
        """Return an event whose items have ids that name the run."""

        def named(output: dict[str, Any]) -> dict[str, Any]:
            prefix = _PREFIXES.get(output["type"], "item")
            return {**output, "id": self._ids.setdefault(output["id"], f"{prefix}_{run_id}_{output['id']}")}

        if "item" in item:
            return {**item, "item": named(item["item"])}
        if "item_id" in item:
            return {**item, "item_id": self._ids.get(item["item_id"], item["item_id"])}
        if "response" in item:
            return {**item, "response": {**item["response"], "output": [*map(named, item["response"]["output"])]}}
        return item

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
