"""Objects of Pydantic AI as dicts, with what its decoder reads of them."""

from __future__ import annotations

from typing import Any

from .decoder import fields_of

__all__ = ["item_of"]

_EVENT_FIELDS = ("event_kind", "index", "previous_part_kind")
_PART_FIELDS = (
    *("part_kind", "part_delta_kind", "id", "content", "content_delta", "signature", "provider_name"),
    *("tool_name", "args", "args_delta", "tool_call_id", "outcome"),
)
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def item_of(value: Any) -> Any:
    """Return a dict of an event, of a response (`ModelResponse`), of a run's tokens (`RunUsage`) or of its cancellation
    (`RunCancelled`); any other value as it is."""
    if isinstance(getattr(value, "event_kind", None), str):
        return _event(value)
    if getattr(value, "kind", None) == "response":
        return {
            "event_kind": "response",
            **fields_of(value, ("model_name", "finish_reason")),
            "usage": _usage(value.usage),
        }
    if hasattr(value, "input_tokens") and hasattr(value, "requests"):
        return {"event_kind": "usage", "usage": _usage(value)}
    if isinstance(value, Exception):
        return {"event_kind": "cancelled"}
    return value


def _event(value: Any) -> dict[str, Any]:
    item = fields_of(value, _EVENT_FIELDS)
    for key, read in (("part", _part), ("delta", _part), ("result", _result)):
        if (inner := getattr(value, key, None)) is not None:
            item[key] = read(inner)
    if callable(payload := getattr(value, "to_payload", None)):
        item |= fields_of(value, ("name", "kind", "tool_call_id"))
        item["data"] = payload()
    if item["event_kind"] == "part_end":  # its deltas said the same
        item["part"].pop("content", None)
    return item


def _part(part: Any) -> dict[str, Any]:
    fields = fields_of(part, _PART_FIELDS)
    content = fields.get("content", "")
    if hasattr(content, "media_type"):
        fields["content"] = _file(content)
    elif not isinstance(content, str):
        fields["content"] = part.model_response_str()
    if citations := getattr(part, "citations", None):
        fields["citations"] = [*map(_source, citations)]
    if files := getattr(part, "files", None):
        fields["files"] = [*map(_file, files)]
    return fields


def _source(citation: Any) -> dict[str, Any]:
    """A citation has several sources where one part of the text has; the first is shown. A marker in the text is not what it cites."""
    source, anchor = citation.sources[0], citation.anchor
    fields = fields_of(source, ("kind", "url", "document_id", "title"))
    if source.excerpts:
        fields["excerpt"] = source.excerpts[0]
    return fields | (fields_of(anchor, ("start", "end")) if getattr(anchor, "kind", "") == "content" else {})


def _file(content: Any) -> dict[str, Any]:
    """A file has its bytes as the URL `data_uri`, or the URL where it is."""
    url = getattr(content, "data_uri", None) or getattr(content, "url", None)
    return {"url": url, "media_type": getattr(content, "media_type", "")}


def _result(result: Any) -> dict[str, Any]:
    usage = result.usage  # a function in older versions
    fields: dict[str, Any] = {"usage": _usage(usage if hasattr(usage, "input_tokens") else usage())}
    if type(result.output).__name__ == "DeferredToolRequests":
        fields["approvals"] = [_part(call) for call in result.output.approvals]
    return fields


def _usage(usage: Any) -> dict[str, Any]:
    return {**{key: count for key, count in fields_of(usage, _TOKENS).items() if count}, **usage.details}
