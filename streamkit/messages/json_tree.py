"""The value of a JSON document that streams: plain dicts, lists and texts that grow in place.

    >>> tree = JsonTree()
    >>> tree.feed('{"title": "Soup", "steps": [{"text": "Bo')
    >>> steps = tree.value["steps"]
    >>> tree.feed('il"}, 12')
    >>> steps  # the same list
    [{'text': 'Boil'}]

The rule: of a document that is cut anywhere it is a prefix of the whole value. A string appears as "" at its quote and grows;
half of an escape or of a surrogate pair is held. A key appears with its value, a number when the character after it came,
`true`, `false` and `null` when they are complete. Objects and lists keep their identity.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .json_reader import JsonReader
from .json_tokens import all_plain

__all__ = ["JsonTree", "JsonValue"]

JsonValue: TypeAlias = "dict[str, Any] | list[Any] | str | int | float | bool | None"
"""A plain value of JSON."""

_WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


class JsonTree(JsonReader):
    """Reads one JSON document in pieces. `NaN` and `Infinity` are not JSON.

    Attributes:
        end: the index after the bracket that closes the document; None before that. What follows is an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.end: int | None = None
        self._root: list[Any] = []  # the value, once it has begun
        self._around: list[Any] = []  # the objects and lists around the innermost one
        self._inside: Any = self._root  # the innermost object or list, which the next value is put into
        self._at: Any = -1  # where the newest value is in it
        self._digits: list[str] = []
        self._taken = 0  # how much of a content was read
        self._idle = [True]  # empty while a thread reads: both its changes are atomic

    @property
    def value(self) -> Any:
        """The value so far, live; None before it begins."""
        return self._root[0] if self._root else None

    def feed(self, piece: str) -> None:
        """Read the next piece. It never raises."""
        if self._in_string and not self._is_key and self.error is None and not self._cut_token and all_plain(piece):
            self._position += len(piece)
            self._take_text(piece, done=False)  # the common case
        else:
            self._read(piece)

    def advance(self, content: str) -> None:
        """Read what a content that grows has beyond what was read. Any thread may call it; while another one does, the value
        stays as far as that one is."""
        try:
            self._idle.pop()
        except IndexError:
            return
        try:
            new = content[self._taken :]
            self._taken += len(new)
            self.feed(new)
        finally:
            self._idle.append(True)

    # -- what comes in the document

    def _put(self, value: Any) -> None:
        """Put a value that begins into the object or list around it."""
        if self._at == -1:
            self._inside.append(value)
        else:
            self._inside[self._at] = value

    def _begin_string(self) -> bool:
        self._put("")
        return True

    def _begin_key(self) -> bool:
        return True

    def _take_key(self, key: str) -> None:
        self._at = key

    def _take_text(self, text: str, *, done: bool) -> None:
        inside, key = self._inside, self._at
        # CPython extends a string in place if nothing else refers to it.
        whole, inside[key] = inside[key], ""
        whole += text
        inside[key] = whole

    def _take_digits(self, text: str) -> None:
        self._digits.append(text)

    def _take_number(self) -> bool:
        text = "".join(self._digits)
        self._digits.clear()
        try:
            self._put(int(text) if text.lstrip("-").isdigit() else float(text))
        except ValueError:  # Python reads no integer of more than 4,300 digits
            return False
        return True

    def _take_word(self, word: str) -> None:
        self._put(_WORDS[word])

    def _enter(self, is_object: int) -> None:
        super()._enter(is_object)
        inner: Any = {} if is_object else []
        self._put(inner)
        self._around.append(self._inside)
        self._inside, self._at = inner, -1

    def _next_element(self) -> None:
        self._at = -1

    def _leave(self) -> None:
        super()._leave()
        self._inside = self._around.pop()

    def _end_value(self, at: int) -> int:
        if not self._is_object:
            self.end = self._position + at
        return super()._end_value(at)
