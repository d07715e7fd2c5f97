"""The shape of Open Interpreter's chunks, and of a line with a question. They are checked before the decoder is imported."""

from __future__ import annotations

import re

from .wire import is_chunk as recognises

__all__ = ["may_be_question_line", "recognises"]

# Its words, or an object as its content.
_QUESTION_BYTES = re.compile(rb'confirm|executing|"content"\s*:\s*\{', re.IGNORECASE)


def may_be_question_line(line: bytes) -> bool:
    """Whether a line may be a chunk with a question. Most lines are not, and need not be parsed to know it."""
    return _QUESTION_BYTES.search(line) is not None
