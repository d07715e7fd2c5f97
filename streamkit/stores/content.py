"""The stored form of a conversation, for stores that hold bytes: its messages, its record, and the refusal of a stale
version."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import StaleVersionError, StoredData
from ..messages import Message
from ..messages.json_text import TOO_DEEP, is_too_deep
from .interface import Conversation, Saved

__all__ = ["FIELDS", "conversation_from", "messages_to_bytes", "saved_from", "stale"]

FIELDS = Conversation.__struct_fields__[1:]
"""The fields of a conversation's record besides its id."""


def messages_to_bytes(messages: Sequence[Message]) -> bytes:
    """Messages as a JSON list. A surrogate without its other half, which a model may have written, comes back as it is."""
    text = json.dumps([message.to_dict() for message in messages], ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def saved_from(id: str, data: Any, version: Any) -> Saved:
    """Return the messages of a conversation from a JSON list in bytes, and their version.

    Raises:
        StoredDataError: it is not a list of messages, or the version is not a number.
    """
    with StoredData(f"conversation {id!r}: its stored data"):
        text = data.decode("utf-8", "surrogatepass")
        if is_too_deep(text):
            raise ValueError(TOO_DEEP)
        return Saved([*map(Message.from_dict, json.loads(text))], int(version))


def conversation_from(id: Any, fields: Sequence[Any], text: Callable[[Any], str]) -> Conversation:
    """Return the record of a conversation, from its id and the fields of `FIELDS`.

    Args:
        text: reads a text as the store has it, the id's too.

    Raises:
        StoredDataError: one is of another kind.
    """
    title, created_at, updated_at, messages, version, run, owner, branch_of = fields
    name = id.decode("utf-8", "backslashreplace") if isinstance(id, bytes) else id
    with StoredData(f"conversation {name!r}: its stored data"):
        return Conversation(
            id=text(id),
            title=text(title),
            created_at=float(created_at),
            updated_at=float(updated_at),
            messages=int(messages),
            version=int(version),
            run=None if run is None else text(run),
            owner=None if owner is None else text(owner),
            branch_of=None if branch_of is None else text(branch_of),
        )


def stale(id: str, version: int, now: int | None) -> StaleVersionError:
    """Return the error of a conversation that cannot be saved in place of this version: it has another one now; the
    same one, but another run's lock; or None."""
    state = "it was deleted" if now is None else f"it has version {now} by now"
    if now == version:
        state = "the run that saves it does not hold its lock"
    return StaleVersionError(f"conversation {id!r} cannot be saved in place of version {version}: {state}")
