r"""The text of chosen string fields of a JSON document, while the document streams.

    >>> fields = JsonFields("message", "items.*.text")
    >>> fields.feed('{"id": 7, "message": "Good mor')
    [FieldText(path='message', text='Good mor', done=False, replace=False)]
    >>> fields.feed('ning \\ud83d')  # half of a surrogate pair waits for the other half
    [FieldText(path='message', text='ning ', done=False, replace=False)]
    >>> fields.feed('\\ude00", "items": [{"text": ""}]}')[1]
    FieldText(path='items.0.text', text='', done=True, replace=False)
    >>> fields.complete
    True

The rule: the document is read as `json.loads` reads it, so the last of equal keys counts, and `NaN` and `Infinity` are
values. The texts are those that `json.loads` returns, encoded to UTF-8: a lone surrogate is U+FFFD. The one difference:
no nesting is too deep, and no number too long. Every character is read once, and neither the texts nor an error depend on
where the pieces are cut. In memory are the present key, a byte for each level of nesting, and the emitted paths.

The reader is a state machine; its state is the method that reads next:

    _value          expects a value             -> _string, _number, _first_key ({), _first_element ([), _after (a word)
    _first_element  expects a value or `]`      -> _value, _after
    _first_key      expects a key or `}`        -> _string, _after
    _key            expects a key               -> _string
    _string         is inside a key or string   -> _colon (end of a key), _after (end of a string)
    _colon          expects a colon             -> _value
    _number         is inside a number          -> _after
    _after          expects `,`, `}`, `]` or the document's end -> _key, _value, _after
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .json_paths import EmittedPaths, OpenValue, PathNode, join_path
from .json_tokens import (
    ESCAPES,
    LONGEST_WORD,
    REPLACEMENT,
    WORDS,
    all_plain,
    any_text,
    escape_beginning,
    low_surrogate_beginning,
    number_beginning,
    number_characters,
    plain_text,
    space,
    whole_escape,
)

__all__ = ["FieldText", "JsonFields"]


class FieldText(msgspec.Struct, frozen=True):
    """A piece of a field.

    Attributes:
        path: names the field, with a key or an index for each `*`.
        text: the new text.
        done: whether the string is complete.
        replace: whether the text before it is void, because the field's key, or one above it, came again. If the field is
            not `done` at the document's end, its last value is not a string, or it is missing.
    """

    path: str
    text: str
    done: bool
    replace: bool = False


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
        root = PathNode()
        for path in paths:
            root.add(path)
        self._state: Callable[[JsonFields, str, int], int] = JsonFields._value
        self._cut_token = ""  # an escape or a word whose rest is in the next piece
        self._position = 0  # how many characters came before the piece
        self._emitted: list[FieldText] = []  # of the present piece
        self._is_object = bytearray()  # for each open value: 1 an object, 0 an array
        self._open: list[OpenValue] = []  # the outermost open values: those in which something is chosen
        self._nodes: tuple[PathNode, ...] = (root,)  # for the next value
        self._at = ""  # the next value's key or index, if there are any
        self._in_string = False
        self._is_key = False
        self._collects = False  # whether the present string's text is wanted
        self._parts: list[str] = []  # the new text of it
        self._path = ""  # the path of the chosen string
        self._number_so_far = ""  # a short number after which the same may follow

    @property
    def complete(self) -> bool:
        """Whether the document is complete. Only a document that is a bare number may still grow after that."""
        if self._is_object or self._cut_token or self.error is not None:
            return False
        state = self._state
        return state is JsonFields._after or (state is JsonFields._number and self._number_so_far[-1:].isdigit())

    @property
    def open_field(self) -> str | None:
        """The path of the field whose text is unfinished, None if there is none. A piece of plain text then only
        extends it, and need not be fed. Errors count the characters that were fed."""
        if not self._in_string or self._is_key or not self._collects or self._cut_token or self.error is not None:
            return None
        return self._path

    def feed(self, piece: str) -> list[FieldText]:
        """Return the pieces of fields in this piece of the document, in order. It never raises."""
        if self.error is not None or not piece:
            return []
        if self._cut_token:
            piece, self._cut_token = self._cut_token + piece, ""
        elif self._in_string and all_plain(piece):
            return self._feed_plain(piece)
        emitted: list[FieldText] = []
        self._emitted = emitted
        at, end = 0, len(piece)
        while at < end:
            at = self._state(self, piece, at)
        if self._parts and not self._is_key:
            emitted.append(FieldText(self._path, self._new_text(), False))
        self._position += end - len(self._cut_token)
        return emitted

    def _feed_plain(self, piece: str) -> list[FieldText]:
        """Return the same for a piece that is all text, inside a string: the common case."""
        self._position += len(piece)
        if not self._collects:
            return []
        if not self._is_key:
            return [FieldText(self._path, piece, False)]
        self._parts.append(piece)
        return []

    # -- the states: each reads what it can from an index in a piece, and returns the index after it

    def _value(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
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
                self._number_so_far = ""
                self._state = JsonFields._number
                return at
            case _:
                return self._word(piece, at)
        return at + 1

    def _first_element(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if piece[at : at + 1] == "]":
            return self._leave(at)
        if at < len(piece):
            self._state = JsonFields._value
        return at

    def _first_key(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if piece[at : at + 1] == "}":
            return self._leave(at)
        return self._key(piece, at)

    def _key(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != '"':
            return self._fail(piece, at, "a key in quotes")
        self._in_string = self._is_key = True
        self._collects = len(self._open) == len(self._is_object)
        self._state = JsonFields._string
        return at + 1

    def _colon(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != ":":
            return self._fail(piece, at, "a colon")
        self._state = JsonFields._value
        return at + 1

    def _after(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if not self._is_object:
            return self._fail(piece, at, "nothing more")
        in_object = self._is_object[-1]
        if piece[at] == ("}" if in_object else "]"):
            return self._leave(at)
        if piece[at] != ",":
            return self._fail(piece, at, "a comma or a closing brace" if in_object else "a comma or a closing bracket")
        if in_object:
            self._state = JsonFields._key
        else:
            self._next_element()
            self._state = JsonFields._value
        return at + 1

    def _string(self, piece: str, at: int) -> int:
        stop = (plain_text if self._collects else any_text)(piece, at).end()
        if stop > at and self._collects:
            self._parts.append(piece[at:stop])
        if stop == len(piece):
            return stop
        match piece[stop]:
            case '"':
                self._close_string()
            case "\\":
                return self._escaped(piece, stop)
            case character if character >= "\ud800":
                self._add_text(REPLACEMENT)
            case _:
                return self._fail(piece, stop, "text, with an escape for a control character")
        return stop + 1

    def _number(self, piece: str, at: int) -> int:
        stop = number_characters(piece, at).end()
        text = self._number_so_far + piece[at:stop]
        found = number_beginning(text)
        if found is None:
            while not number_beginning(self._number_so_far + piece[at:stop]):
                stop -= 1
            return self._fail(piece, stop, "the rest of a number")
        if stop < len(piece) and not text[-1].isdigit():
            return self._fail(piece, stop, "the rest of a number")
        whole, fraction, e, sign, power = found.groups()
        if e:
            self._number_so_far = "0e0" if power else f"0e{sign or ''}"
        elif fraction or text[-1] == ".":
            self._number_so_far = "0.0" if fraction else "0."
        else:
            self._number_so_far = whole[:1] if whole else "-"
        if stop < len(piece):
            self._state = JsonFields._after
        return stop

    # -- parts of states

    def _word(self, piece: str, at: int) -> int:
        """Read one of the words that are values."""
        rest = piece[at : at + LONGEST_WORD]
        for word in WORDS:
            if rest.startswith(word):
                self._state = JsonFields._after
                return at + len(word)
            if word.startswith(rest) and at + len(rest) == len(piece):
                self._cut_token = rest
                return len(piece)
        length = next(n for n in range(len(rest), -1, -1) if any(word.startswith(rest[:n]) for word in WORDS))
        return self._fail(piece, at, "a value", length + 1)

    def _escaped(self, piece: str, at: int) -> int:
        """Read an escape in a string."""
        found = whole_escape(piece, at)
        if found is None:
            stop = escape_beginning(piece, at).end()
            if stop < len(piece):
                return self._fail(piece, at, "an escape that JSON has", stop + 1 - at)
            self._cut_token = piece[at:]
            return stop
        simple, high, low, code = found.groups()
        if simple:
            self._add_text(ESCAPES[simple])
        elif high:
            self._add_text(chr(0x10000 + (int(high, 16) - 0xD800 << 10) + int(low, 16) - 0xDC00))
        elif not 0xD800 <= (character := int(code, 16)) <= 0xDFFF:
            self._add_text(chr(character))
        elif character < 0xDC00 and low_surrogate_beginning(piece, found.end()):
            self._cut_token = piece[at:]  # the other half of the pair may come
            return len(piece)
        else:
            self._add_text(REPLACEMENT)
        return found.end()

    def _add_text(self, text: str) -> None:
        if self._collects:
            self._parts.append(text)

    def _new_text(self) -> str:
        """Return the new text of the present string."""
        text = "".join(self._parts)
        self._parts.clear()
        return text

    def _open_string(self, *, chosen: bool) -> None:
        self._in_string, self._is_key, self._collects = True, False, chosen
        self._state = JsonFields._string
        if chosen and self._open:
            self._record_path()

    def _close_string(self) -> None:
        self._in_string = False
        if not self._is_key:
            self._state = JsonFields._after
            if self._collects:
                self._emitted.append(FieldText(self._path, self._new_text(), True))
            return
        self._is_key = False
        self._state = JsonFields._colon
        self._nodes = ()
        if self._collects:
            self._expect(self._new_text())
            if self._nodes and (before := self._open[-1].emitted.below.pop(self._at, None)) is not None:
                self._emitted += [FieldText(path, "", False, True) for path in before.paths()]  # the key came again

    def _expect(self, key: str) -> None:
        """Note that the value of this key or index comes next."""
        self._at = key
        self._nodes = tuple(
            found
            for node in self._open[-1].nodes
            for name in (key, None)
            if (found := node.below.get(name)) is not None
        )

    def _next_element(self) -> None:
        if len(self._open) == len(self._is_object):
            self._open[-1].index += 1
            self._expect(str(self._open[-1].index))
        else:
            self._nodes = ()

    def _record_path(self) -> None:
        """Record that the string at this key is emitted. Each open value is linked to the one around it only once."""
        values = self._open
        value = values[-1]
        self._path = self._prefix() + join_path((self._at,))
        value.emitted.below[self._at] = EmittedPaths(self._path)
        for depth in range(len(values) - 1, 0, -1):
            value = values[depth]
            if value.is_linked:
                break
            value.is_linked = True
            values[depth - 1].emitted.below[value.key] = value.emitted

    def _prefix(self) -> str:
        """Return the path of the innermost open value, and a dot. It is made only when needed: together, the paths of
        nested values are as long as the square of their depth."""
        values = self._open
        depth = len(values) - 1
        while depth and values[depth].prefix is None:
            depth -= 1
        prefix = (values[depth].prefix or "") + "".join(join_path((one.key,)) + "." for one in values[depth + 1 :])
        values[-1].prefix = prefix
        return prefix

    def _enter(self, is_object: int) -> None:
        self._is_object.append(is_object)
        if any(node.below for node in self._nodes):
            self._open.append(OpenValue(self._nodes, self._at))

    def _leave(self, at: int) -> int:
        if len(self._open) == len(self._is_object):
            self._open.pop()
        self._is_object.pop()
        self._state = JsonFields._after
        return at + 1

    def _fail(self, piece: str, at: int, wanted: str, length: int = 1) -> int:
        """Record an error: that many characters from here on are not what is wanted."""
        self.error = f"character {self._position + at}: {wanted} should come here, not {piece[at : at + length]!r}"
        return len(piece)
