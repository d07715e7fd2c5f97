"""The shape of the Messages API's items, which no other protocol's have. It is checked before the decoder is
imported."""

from __future__ import annotations

from ..values import WireObject, is_list, is_object

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
    match item.get("type"):
        case "message_start":
            return is_object(item.get("message"))
        case "content_block_start" | "content_block_delta" | "content_block_stop":
            return "index" in item
        case "message_delta":
            return is_object(item.get("delta")) and "message_id" not in item
        case "message_stop":
            return True
        case "message":
            return is_list(item.get("content")) and "stop_reason" in item
        case _:
            return False
