"""What a function's docstring says to a model: the summary, and each parameter's description.

Parameters are described in a section `Args:` (or `Arguments:`, `Parameters:`), one `name: text` or `name (type): text`
an entry, further lines indented deeper; or as `:param name: text`.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

__all__ = ["Described", "described"]

_ARGUMENTS = re.compile(r"(Args|Arguments|Parameters):\s*$")
_SECTION = re.compile(r"(Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?):\s*$")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)$")
_FIELD = re.compile(r":(param|parameter|arg|argument)\s+([^:]*\s)?(?P<name>\w+):\s*(?P<text>.*)$")
_OTHER_FIELD = re.compile(r":(returns?|rtype|raises?|type|yields?)\b[^:]*:")


class Described(NamedTuple):
    """What a docstring tells: `summary` is all that is said of the function as a whole."""

    summary: str
    parameters: dict[str, str]


def described(text: str | None) -> Described:
    """The parts of a docstring; both are empty where there is none."""
    summary: list[str] = []
    parameters: dict[str, list[str]] = {}
    lines: list[str] | None = summary  # where the next line belongs; None: nowhere
    entries: int | None = None  # inside the section of arguments: how far its entries are indented
    for line in inspect.cleandoc(text or "").splitlines():
        word, indent = line.strip(), len(line) - len(line.lstrip())
        if indent == 0 and (_ARGUMENTS.match(word) or _SECTION.match(word)):
            entries = -1 if _ARGUMENTS.match(word) else None
            lines = None
        elif found := _FIELD.match(word):
            lines = parameters.setdefault(found["name"], [])
            lines.append(found["text"])
        elif _OTHER_FIELD.match(word):
            lines = None
        elif entries is not None and word:
            entries = indent if entries < 0 else entries
            if indent == 0:
                entries, lines = None, summary
                summary.append(word)
            elif indent <= entries and (found := _ENTRY.match(word)):
                lines = parameters.setdefault(found["name"], [])
                lines.append(found["text"])
            elif lines is not None:
                lines.append(word)
        elif lines is not None:
            lines.append(word)
    told = {name: " ".join(filter(None, said)) for name, said in parameters.items()}
    return Described("\n".join(summary).strip(), told)
