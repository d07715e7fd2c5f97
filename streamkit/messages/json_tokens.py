"""The tokens of JSON text, as expressions that find the end of one, and the end of a part of one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

__all__ = [
    "ESCAPES",
    "REPLACEMENT",
    "all_plain",
    "any_text",
    "escape_beginning",
    "low_surrogate_beginning",
    "number_beginning",
    "number_characters",
    "plain_text",
    "space",
    "whole_escape",
]

_Match = Callable[[str, int], re.Match[str]]


def _matcher(pattern: str) -> _Match:
    """Return the `match` of a pattern that always matches, perhaps the empty string."""
    match: Any = re.compile(pattern).match
    matcher: _Match = match
    return matcher


plain_text = _matcher(r'[^"\\\x00-\x1f\ud800-\udfff]*')
# Of a string that is skipped, perhaps a part. Before CPython 3.11.5 a possessive group that fails in its middle forgets to
# go back; one that is not possessive needs memory for each repetition, so they are limited.
any_text = _matcher(r'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){0,500}')
space = _matcher(r"[ \t\n\r]*")
number_characters = _matcher(r"[0-9+\-.eE]*")

all_plain = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+').fullmatch
whole_escape = re.compile(
    r'\\(?:(["\\/bfnrt])|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))'
).match
escape_beginning = _matcher(r"\\(?:u[0-9a-fA-F]{0,3})?")
low_surrogate_beginning = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z").match
number_beginning = re.compile(r"-?(?:(0|[1-9][0-9]*)(?:\.|(\.[0-9]+)?(?:([eE])([+-])?([0-9]+)?)?)?)?").fullmatch

ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
REPLACEMENT = "\ufffd"
