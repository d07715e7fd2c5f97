"""Reads a function's docstring for the model: the summary, and the description of each parameter.

Parameters are described in a section `Args:` (or `Arguments:`, `Parameters:`), one `name: text` or `name (type): text`
an entry, with continuation lines indented deeper; or as `:param name: text`.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

__all__ = ["ParsedDocstring", "parse_docstring"]

_ARGUMENTS = re.compile(r"(Args|Arguments|Parameters):\s*$")
_SECTION = re.compile(r"(Returns?|Raises|Yields?|Examples?|Notes?|Attributes|See Also|Warnings?):\s*$")
_ENTRY = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)$")
_FIELD = re.compile(r":(param|parameter|arg|argument)\s+([^:]*\s)?(?P<name>\w+):\s*(?P<text>.*)$")
_OTHER_FIELD = re.compile(r":(returns?|rtype|raises?|type|yields?)\b[^:]*:")


class ParsedDocstring(NamedTuple):
    """A docstring's text about the function itself, and its parameters' descriptions by name."""

    summary: str
    parameters: dict[str, str]


class _Parser:
    """Takes a docstring line by line.

    States, by `_entry_indent`: None outside of a section of arguments; -1 at its heading, until the first entry; then
    the indentation of its entries. `_lines` is where a line without a mark of its own goes: the summary, the
    description of a parameter, or nowhere (None) in a section that the model does not see.
    """

    def __init__(self) -> None:
        self.summary: list[str] = []
        self.parameters: dict[str, list[str]] = {}
        self._lines: list[str] | None = self.summary
        self._entry_indent: int | None = None

    def feed(self, line: str) -> None:
        text, indent = line.strip(), len(line) - len(line.lstrip())
        if indent == 0 and (_ARGUMENTS.match(text) or _SECTION.match(text)):
            self._entry_indent = -1 if _ARGUMENTS.match(text) else None
            self._lines = None
        elif found := _FIELD.match(text):
            self._start_parameter(found)
        elif _OTHER_FIELD.match(text):
            self._lines = None
        elif self._entry_indent is not None and text:
            self._feed_section(text, indent)
        elif self._lines is not None:
            self._lines.append(text)

    def _feed_section(self, text: str, indent: int) -> None:
        """A line with text inside, or right after, a section of arguments."""
        if self._entry_indent == -1:
            self._entry_indent = indent
        if indent == 0:  # the section is over
            self._entry_indent, self._lines = None, self.summary
            self.summary.append(text)
        elif indent <= (self._entry_indent or 0) and (found := _ENTRY.match(text)):
            self._start_parameter(found)
        elif self._lines is not None:
            self._lines.append(text)

    def _start_parameter(self, found: re.Match[str]) -> None:
        self._lines = self.parameters.setdefault(found["name"], [])
        self._lines.append(found["text"])


def parse_docstring(text: str | None) -> ParsedDocstring:
    """The summary and the parameters' descriptions; both are empty where there is no docstring."""
    parser = _Parser()
    for line in inspect.cleandoc(text or "").splitlines():
        parser.feed(line)
    descriptions = {name: " ".join(filter(None, lines)) for name, lines in parser.parameters.items()}
    return ParsedDocstring("\n".join(parser.summary).strip(), descriptions)
