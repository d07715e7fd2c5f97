r"""The text of chosen string fields of a JSON document, while the document streams.

    >>> fields = JsonFields("message", "items.*.text")
    >>> fields.feed('{"id": 7, "message": "Good mor')
    [FieldText(path='message', text='Good mor', done=False, replace=False)]
    >>> fields.feed('ning \\ud83d')  # half of a pair is held back
    [FieldText(path='message', text='ning ', done=False, replace=False)]
    >>> fields.feed('\\ude00", "items": [{"text": ""}]}')[1]
    FieldText(path='items.0.text', text='', done=True, replace=False)
    >>> fields.complete
    True

The rule: the document is read as `json.loads` reads it, so the last of equal keys counts, and `NaN` and `Infinity` are
values. The texts are those that `json.loads` returns, encoded to UTF-8: a lone surrogate is U+FFFD. The one difference:
no nesting is too deep, and no number too long. Every character is read once, wherever the pieces are cut. In memory are
the present key, a byte for each level of nesting, and the paths that were emitted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from ..errors import UsageError

__all__ = ["FieldText", "JsonFields", "join_path", "split_path"]

_Match = Callable[[str, int], re.Match[str]]


def _matcher(pattern: str) -> _Match:
    """The `match` of a pattern that always matches, perhaps the empty string."""
    match: Any = re.compile(pattern).match
    matcher: _Match = match
    return matcher


_plain = _matcher(r'[^"\\\x00-\x1f\ud800-\udfff]*')
_skipped = _matcher(r'(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
_space = _matcher(r"[ \t\n\r]*")
_run_of_digits = _matcher(r"[0-9+\-.eE]*")

_all_plain = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+').fullmatch
_escape = re.compile(
    r'\\(?:(["\\/bfnrt])|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4}))'
).match
_cut_escape = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z").match
_cut_low = re.compile(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z").match
_number = re.compile(r"-?(?:(0|[1-9][0-9]*)(?:\.|(\.[0-9]+)?(?:([eE])([+-])?([0-9]+)?)?)?)?").fullmatch

_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")
_LONGEST = max(map(len, _WORDS))
_LOST = "\ufffd"


class FieldText(msgspec.Struct, frozen=True):
    """A piece of a field.

    Attributes:
        path: names the field, with a key or an index for each `*`.
        text: the new text.
        done: whether the string is complete.
        replace: whether the text before it is void, because the field's key, or one above it, came again. If the field is
            not `done` at the document's end, its last value is no string, or it is missing.
    """

    path: str
    text: str
    done: bool
    replace: bool = False


def split_path(path: str) -> tuple[str | None, ...]:
    r"""The keys of a path, None for `*`. In a key a backslash goes before `.` and `\`, and before the key `*`.

    Raises:
        UsageError: the path ends with a backslash, or is no text.
    """
    if not isinstance(path, str) or not re.fullmatch(r"(?:[^\\]|\\.)*", path, re.DOTALL):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{path!r} is no path of a JSON field: `key.key`, with a backslash before a dot in a key")
    parts = re.findall(r"\.((?:[^\\.]|\\.)*)", "." + path, re.DOTALL)
    return tuple(None if part == "*" else re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(keys: Iterable[str | None]) -> str:
    """The path of these keys: the reverse of `split_path`."""
    names = ("*" if key is None else "\\*" if key == "*" else re.sub(r"[\\.]", r"\\\g<0>", key) for key in keys)
    return ".".join(names)


class _Node:
    """A key of the chosen paths: whether a path ends here, and the keys below it, None for any key."""

    __slots__ = ("below", "chosen")

    def __init__(self) -> None:
        self.chosen = False
        self.below: dict[str | None, _Node] = {}


class _Told:
    """What was emitted at a key: the path of its string, or the same for the keys below it."""

    __slots__ = ("below", "path")

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.below: dict[str, _Told] = {}


class _Frame:
    """An open object or array with something chosen in it, at a key of the one around it."""

    __slots__ = ("head", "index", "is_noted", "key", "nodes", "told")

    def __init__(self, nodes: tuple[_Node, ...], key: str) -> None:
        self.nodes = nodes
        self.key = key
        self.index = -1
        self.head: str | None = None  # its path and a dot, once it was needed
        self.told = _Told()
        self.is_noted = False  # whether the frame around it refers to `told`


class JsonFields:
    r"""Reads one JSON document in pieces, and returns the text of the string fields at these paths.

    A path is `key.key`; an index counts as a key (`items.0.text`), and `*` is any key or index. A backslash goes before
    a dot in a key: `a\.b`.

    Attributes:
        error: what is wrong with the document, and at which character; None as long as it can be the beginning of a
            document. After an error nothing more is read.

    Raises:
        UsageError: a path is malformed.
    """

    def __init__(self, *paths: str) -> None:
        self.error: str | None = None
        root = _Node()
        for path in paths:
            node = root
            for key in split_path(path):
                node = node.below.setdefault(key, _Node())
            node.chosen = True
        self._state: Callable[[JsonFields, str, int], int] = JsonFields._value
        self._held = ""  # an escape or a word that is cut
        self._count = 0  # characters before the piece
        self._told: list[FieldText] = []
        self._stack = bytearray()  # what is open: 1 an object, 0 an array
        self._frames: list[_Frame] = []  # of those that something is chosen in: the outermost ones
        self._nodes: tuple[_Node, ...] = (root,)  # of the value that comes next …
        self._at = ""  # … and its key or index, if there are any
        self._quoted = False  # inside a string …
        self._is_key = False
        self._kept = False  # … whose text matters: `_parts` are what is new of it
        self._parts: list[str] = []
        self._name = ""  # the path of the chosen string
        self._short = ""  # a number as far as it matters for what may follow

    @property
    def complete(self) -> bool:
        """Whether the document is complete. Only a document that is a bare number may still grow after that."""
        if self._stack or self._held or self.error is not None:
            return False
        return self._state is JsonFields._after or (self._state is JsonFields._digits and self._short[-1:].isdigit())

    def feed(self, piece: str) -> list[FieldText]:
        """The pieces of fields in this piece of the document, in order. It never raises."""
        if self.error is not None or not piece:
            return []
        if self._held:
            piece, self._held = self._held + piece, ""
        elif self._quoted and _all_plain(piece):
            self._count += len(piece)
            if not self._kept:
                return []
            if not self._is_key:
                return [FieldText(self._name, piece, False)]
            self._parts.append(piece)
            return []
        told: list[FieldText] = []
        self._told = told
        position, end = 0, len(piece)
        while position < end:
            position = self._state(self, piece, position)
        if self._parts and not self._is_key:
            told.append(FieldText(self._name, self._text(), False))
        self._count += end - len(self._held)
        return told

    # -- the states: each reads what it can from a place in a piece, and returns the place after it

    def _value(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if at == len(piece):
            return at
        match piece[at]:
            case '"':
                self._open_string(chosen=any(node.chosen for node in self._nodes))
            case "{":
                self._enter(1)
                self._state = JsonFields._first_key
            case "[":
                self._enter(0)
                self._next_element()
                self._state = JsonFields._first_element
            case "-" if piece[at + 1 : at + 2] in ("", "I"):
                return self._word(piece, at)
            case "-" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                self._short = ""
                self._state = JsonFields._digits
                return at
            case _:
                return self._word(piece, at)
        return at + 1

    def _first_element(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if piece[at : at + 1] == "]":
            return self._leave(at)
        if at < len(piece):
            self._state = JsonFields._value
        return at

    def _first_key(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if piece[at : at + 1] == "}":
            return self._leave(at)
        return self._key(piece, at)

    def _key(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != '"':
            return self._fail(piece, at, "a key in quotes")
        self._quoted = self._is_key = True
        self._kept = len(self._frames) == len(self._stack)
        self._state = JsonFields._string
        return at + 1

    def _colon(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != ":":
            return self._fail(piece, at, "a colon")
        self._state = JsonFields._value
        return at + 1

    def _after(self, piece: str, at: int) -> int:
        at = _space(piece, at).end()
        if at == len(piece):
            return at
        if not self._stack:
            return self._fail(piece, at, "nothing more")
        within = self._stack[-1]
        if piece[at] == ("}" if within else "]"):
            return self._leave(at)
        if piece[at] != ",":
            return self._fail(piece, at, "a comma or a closing brace" if within else "a comma or a closing bracket")
        if within:
            self._state = JsonFields._key
        else:
            self._next_element()
            self._state = JsonFields._value
        return at + 1

    def _string(self, piece: str, at: int) -> int:
        stop = (_plain if self._kept else _skipped)(piece, at).end()
        if stop > at and self._kept:
            self._parts.append(piece[at:stop])
        if stop == len(piece):
            return stop
        match piece[stop]:
            case '"':
                self._close_string()
            case "\\":
                return self._escaped(piece, stop)
            case char if char >= "\ud800":
                self._take(_LOST)
            case _:
                return self._fail(piece, stop, "text, with an escape for a control character")
        return stop + 1

    def _digits(self, piece: str, at: int) -> int:
        stop = _run_of_digits(piece, at).end()
        text = self._short + piece[at:stop]
        found = _number(text)
        if found is None or (stop < len(piece) and not text[-1].isdigit()):
            return self._fail(piece, at, "a number")
        whole, fraction, e, sign, power = found.groups()
        if e:
            self._short = "0e0" if power else f"0e{sign or ''}"
        elif fraction or text[-1] == ".":
            self._short = "0.0" if fraction else "0."
        else:
            self._short = whole[:1] if whole else "-"
        if stop < len(piece):
            self._state = JsonFields._after
        return stop

    # -- steps

    def _word(self, piece: str, at: int) -> int:
        rest = piece[at : at + _LONGEST]
        for word in _WORDS:
            if rest.startswith(word):
                self._state = JsonFields._after
                return at + len(word)
            if word.startswith(rest) and at + len(rest) == len(piece):
                self._held = rest
                return len(piece)
        return self._fail(piece, at, "a value")

    def _escaped(self, piece: str, at: int) -> int:
        found = _escape(piece, at)
        if found is None:
            if not _cut_escape(piece, at):
                return self._fail(piece, at, "an escape that JSON has")
            self._held = piece[at:]
            return len(piece)
        simple, high, low, code = found.groups()
        if simple:
            self._take(_ESCAPES[simple])
        elif high:
            self._take(chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00))
        elif not 0xD800 <= (char := int(code, 16)) <= 0xDFFF:
            self._take(chr(char))
        elif char < 0xDC00 and _cut_low(piece, found.end()):
            self._held = piece[at:]  # its other half may come
            return len(piece)
        else:
            self._take(_LOST)
        return found.end()

    def _take(self, text: str) -> None:
        if self._kept:
            self._parts.append(text)

    def _text(self) -> str:
        """The new text of the string."""
        text = "".join(self._parts)
        self._parts.clear()
        return text

    def _open_string(self, *, chosen: bool) -> None:
        self._quoted, self._is_key, self._kept = True, False, chosen
        self._state = JsonFields._string
        if chosen and self._frames:
            self._note()

    def _close_string(self) -> None:
        self._quoted = False
        if not self._is_key:
            self._state = JsonFields._after
            if self._kept:
                self._told.append(FieldText(self._name, self._text(), True))
            return
        self._is_key = False
        self._state = JsonFields._colon
        self._nodes = ()
        if self._kept:
            self._expect(self._text())
            if self._nodes and (told := self._frames[-1].told.below.pop(self._at, None)) is not None:
                self._withdraw(told)

    def _expect(self, key: str) -> None:
        """The value of this key or index comes next."""
        self._at = key
        self._nodes = tuple(
            found
            for node in self._frames[-1].nodes
            for known in (key, None)
            if (found := node.below.get(known)) is not None
        )

    def _next_element(self) -> None:
        if len(self._frames) == len(self._stack):
            self._frames[-1].index += 1
            self._expect(str(self._frames[-1].index))
        else:
            self._nodes = ()

    def _note(self) -> None:
        """Note that the string at this key is emitted. Each frame is noted in the one around it once, the first time."""
        frames = self._frames
        frame = frames[-1]
        self._name = self._head() + join_path((self._at,))
        frame.told.below[self._at] = _Told(self._name)
        for depth in range(len(frames) - 1, 0, -1):
            frame = frames[depth]
            if frame.is_noted:
                break
            frame.is_noted = True
            frames[depth - 1].told.below[frame.key] = frame.told

    def _head(self) -> str:
        """The path of the innermost frame, and a dot. It is made only when needed: together, the paths of nested frames are
        as long as the square of their depth."""
        frames = self._frames
        depth = len(frames) - 1
        while depth and frames[depth].head is None:
            depth -= 1
        head = (frames[depth].head or "") + "".join(join_path((one.key,)) + "." for one in frames[depth + 1 :])
        frames[-1].head = head
        return head

    def _withdraw(self, told: _Told) -> None:
        """Void what was emitted at this key and below it."""
        left = [told]
        while left:
            one = left.pop()
            if one.path is not None:
                self._told.append(FieldText(one.path, "", False, True))
            left += reversed(one.below.values())

    def _enter(self, within: int) -> None:
        self._stack.append(within)
        if any(node.below for node in self._nodes):
            self._frames.append(_Frame(self._nodes, self._at))

    def _leave(self, at: int) -> int:
        if len(self._frames) == len(self._stack):
            self._frames.pop()
        self._stack.pop()
        self._state = JsonFields._after
        return at + 1

    def _fail(self, piece: str, at: int, wanted: str) -> int:
        self.error = f"character {self._count + at}: {wanted} should come here, not {piece[at : at + 12]!r}"
        return len(piece)
