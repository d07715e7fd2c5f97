"""The shape of a line with a question. It is checked before the decoder is imported, which few live producers need."""

from __future__ import annotations

import re

__all__ = ["may_be_question_line"]

# Its words, or an object as its content.
_QUESTION_BYTES = re.compile(rb'confirm|executing|"content"\s*:\s*\{', re.IGNORECASE)


def may_be_question_line(line: bytes) -> bool:
    """Whether a line may be a chunk with a question. Most lines are not, and need not be parsed to know it."""
    return _QUESTION_BYTES.search(line) is not None
