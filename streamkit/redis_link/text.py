"""Text as Redis has it. A surrogate without its other half, which a model or a client may have written, comes back as it is."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..errors import UsageError

__all__ = ["check_prefix", "ids_of", "tag_of", "text_from", "text_to_bytes"]

_log = logging.getLogger("streamkit.redis")

_ESCAPED = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def text_to_bytes(text: str) -> bytes:
    """Return text as it is sent."""
    return text.encode("utf-8", "surrogatepass")


def text_from(data: bytes) -> str:
    """Return text from what Redis holds.

    Raises:
        UnicodeDecodeError: it is not text.
    """
    return data.decode("utf-8", "surrogatepass")


def ids_of(members: Iterable[bytes]) -> dict[str, bytes]:
    """Return the entries of a list by the ids that they are. One that is not text is left out, and logged as a warning."""
    found: dict[str, bytes] = {}
    for member in members:
        try:
            found[text_from(member)] = member
        except UnicodeDecodeError:
            _log.warning("the entry %r in a list is not an id, and is left out", member)
    return found


def tag_of(id: str) -> str:
    """Return the hash tag of an id's keys: they are in one slot of a Redis Cluster."""
    return f"{{{id.translate(_ESCAPED) or '%'}}}"


def check_prefix(prefix: str) -> str:
    """Return what keys begin with.

    Raises:
        UsageError: it is not text, is empty, or has a brace, which would change the keys' slots.
    """
    if not isinstance(prefix, str) or not prefix or "{" in prefix or "}" in prefix:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"a prefix of keys is a word without braces, not {prefix!r}")
    return prefix
