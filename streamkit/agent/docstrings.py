"""Reads a function's docstring for the model: its text, and the description of each parameter.

Google's, NumPy's and Sphinx's styles are read, by griffe. Sections about anything but the parameters are left out.
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

__all__ = ["ParsedDocstring", "parse_docstring"]


class ParsedDocstring(NamedTuple):
    """A docstring's text about the function itself, and its parameters' descriptions by name."""

    summary: str
    parameters: dict[str, str]


def parse_docstring(text: str | None) -> ParsedDocstring:
    """Return the summary and the parameters' descriptions; both are empty where there is no docstring."""
    plain = inspect.cleandoc(text or "")
    if ":" not in plain and "---" not in plain:
        return ParsedDocstring(plain.strip(), {})  # it has no section, so the library need not be imported
    import griffe  # slow to import

    summary: list[str] = []
    parameters: dict[str, str] = {}
    with griffe.logger.disable():  # a docstring that is not perfect is the author's business
        sections = griffe.parse_auto(griffe.Docstring(plain))
    for section in sections:
        if isinstance(section, griffe.DocstringSectionText):
            summary.append(section.value)
        elif isinstance(section, (griffe.DocstringSectionParameters, griffe.DocstringSectionOtherParameters)):
            for parameter in section.value:
                parameters[parameter.name.lstrip("*")] = " ".join(parameter.description.split())
    return ParsedDocstring("\n\n".join(summary).strip(), parameters)
