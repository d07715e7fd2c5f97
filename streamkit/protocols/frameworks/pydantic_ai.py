"""Pydantic AI: the events of `agent.run_stream_events(…)`, and of a node's `stream`.

Terminal rule: the run is complete with `agent_run_result`. The events are documented at https://ai.pydantic.dev/agents/.

Nothing marks where a response begins: a part with the index 0 that no part came before does. The parts say what the deltas add up to;
the events of a call are repeated before its function runs. The tokens of all responses stand in the result alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...events import Event
from ...messages import Message, ReasoningMessage, TextMessage
from ..values import WireObject, as_object, as_text, text_or_json, text_or_none, usage_of
from .decoder import FrameworkDecoder

__all__ = ["Decoder"]

_TEXTS: Mapping[str, type[Message]] = {"text": TextMessage, "thinking": ReasoningMessage}
_FIELDS = ("event_kind", "index", "previous_part_kind")
_PART_FIELDS = (
    *("part_kind", "part_delta_kind", "id", "content", "content_delta", "signature", "signature_delta"),
    *("tool_name", "args", "args_delta", "tool_call_id", "outcome", "provider_name"),
)
_USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "requests", "tool_calls")


class Decoder(FrameworkDecoder):
    """Decodes the events of a run."""

    name = "pydantic_ai"
    kind_key = "event_kind"

    def item_of(self, value: Any) -> Any:
        """Return a dict of an event, with the fields that are read."""
        if not isinstance(getattr(value, "event_kind", None), str):
            return value
        item = _fields(value, _FIELDS)
        for key in ("part", "delta", "result"):
            if (inner := getattr(value, key, None)) is not None:
                item[key] = _result_of(inner) if hasattr(inner, "output") else _fields(inner, _PART_FIELDS)
        if (requests := getattr(value, "requests", None)) is not None:
            parts = {key: getattr(requests, key, ()) for key in ("approvals", "calls")}
            item["requests"] = {key: [_fields(part, _PART_FIELDS) for part in found] for key, found in parts.items()}
        return item

    # -- the items

    def _read_part(self, item: WireObject) -> Iterator[Event]:
        index, part = item.get("index"), as_object(item.get("part"))
        if not self._has_begun or (index == 0 and item.get("previous_part_kind") is None):
            yield from self._begin_step()
        kind, id = as_text(part.get("part_kind")), text_or_none(part.get("id"))
        if kind in _TEXTS:
            yield from self._begin(_TEXTS[kind], index, id)
            yield from self._extend(index, part.get("content"))
        elif kind == "tool-call":
            yield from self._begin_call(
                index, text_or_none(part.get("tool_call_id")), as_text(part.get("tool_name")), id
            )
            yield from self._extend(index, _arguments(part.get("args")))

    def _read_delta(self, item: WireObject) -> Iterator[Event]:
        delta = as_object(item.get("delta"))
        text = delta.get("content_delta") if "content_delta" in delta else _arguments(delta.get("args_delta"))
        if text:
            yield from self._extend(item.get("index"), text)

    def _read_part_end(self, item: WireObject) -> Iterator[Event]:
        return self._close(item.get("index"))

    def _read_output(self, item: WireObject) -> Iterator[Event]:
        """The output of a call. One that the function refused (`ModelRetry`) goes back to the model as its fault."""
        part = as_object(item.get("part"))
        failed = part.get("outcome", "success") != "success"
        yield self._output(text_or_none(part.get("tool_call_id")), text_or_json(part.get("content")), failed=failed)

    def _read_result(self, item: WireObject) -> Iterator[Event]:
        result = as_object(item.get("result"))
        if usage := as_object(result.get("usage")):
            yield usage_of(usage)
        yield from self._end_run("requires_action" if result.get("is_deferred") else "completed")

    def _read_nothing(self, item: WireObject) -> Iterable[Event]:
        return ()

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "part_start": _read_part,
        "part_delta": _read_delta,
        "part_end": _read_part_end,
        "final_result": _read_nothing,
        "function_tool_call": _read_nothing,
        "output_tool_call": _read_nothing,
        "function_tool_result": _read_output,
        "output_tool_result": _read_output,
        "deferred_tool_requests": _read_nothing,
        "agent_run_result": _read_result,
    }


def _fields(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes of an object that have a value."""
    found = ((name, getattr(value, name, None)) for name in names)
    return {name: value for name, value in found if value is not None}


def _result_of(result: Any) -> dict[str, Any]:
    usage = result.usage  # a function in older versions
    usage = usage if hasattr(usage, "input_tokens") else usage()
    return {"is_deferred": type(result.output).__name__ == "DeferredToolRequests", "usage": _fields(usage, _USAGE)}


def _arguments(value: Any) -> str:
    return "" if value is None else text_or_json(value)
