"""Output as a model reads it: what a terminal would show of it, in a bounded number of characters."""

from __future__ import annotations

from ..protocols.open_interpreter.input import truncate

__all__ = ["model_text"]


def model_text(text: str, limit: int) -> str:
    """The text with its carriage returns carried out, in at most `limit` characters; the middle of a longer one is left out."""
    return truncate(_as_shown(text), limit)


def _as_shown(text: str) -> str:
    """What a terminal shows: what follows a carriage return overwrites the line from its beginning, as progress bars do."""
    if "\r" not in text:
        return text
    return "\n".join(map(_overwritten, text.split("\n")))


def _overwritten(line: str) -> str:
    shown = ""
    for piece in line.split("\r"):
        shown = piece + shown[len(piece) :]
    return shown
