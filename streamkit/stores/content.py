"""What stores share that keep bytes: the messages of a conversation as bytes, and the refusal of a stale version."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..errors import SourceError, StaleVersionError
from ..messages import Message

__all__ = ["messages_from", "messages_to_bytes", "stale"]


def messages_to_bytes(messages: Sequence[Message]) -> bytes:
    """Messages as a JSON list. A surrogate without its other half, which a model may have written, comes back as it is."""
    text = json.dumps([message.to_dict() for message in messages], ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def messages_from(id: str, data: bytes) -> list[Message]:
    """The messages of a conversation, in a JSON list.

    Raises:
        SourceError: it is not such a list.
    """
    try:
        return [*map(Message.from_dict, json.loads(data.decode("utf-8", "surrogatepass")))]
    except (ValueError, TypeError) as error:
        raise SourceError(f"conversation {id!r} cannot be read from its store: {error}") from error


def stale(id: str, version: int, now: int | None) -> StaleVersionError:
    """The error of a conversation that cannot be saved in place of this version: it has another one now; the same one, but
    another run's lock; or None."""
    state = "it was deleted" if now is None else f"it has version {now} by now"
    if now == version:
        state = "the run that saves it does not hold its lock"
    return StaleVersionError(f"conversation {id!r} cannot be saved in place of version {version}: {state}")
