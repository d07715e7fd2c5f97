"""The shape of legacy Completions' chunks, which no other item has. It is checked before the decoder is imported."""

from __future__ import annotations

from ..values import WireObject

__all__ = ["recognises"]


def recognises(item: WireObject) -> bool:
    """Whether its `object` is that of legacy Completions. Old servers sent `text_completion.chunk`."""
    return item.get("object") in ("text_completion", "text_completion.chunk")
