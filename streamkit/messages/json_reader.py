"""Reads a JSON document in pieces: the one reader of JSON text that is not complete.

The rule: the document is read as `json.loads` reads it, so the last of equal keys counts. A lone surrogate is U+FFFD, so that
every text can be encoded; no nesting is too deep. Every character is read once, and neither the texts nor an error depend
on where the pieces are cut. The reader itself holds the present key and a byte for each level of nesting; subclasses make
something of the document: `JsonTree` its value, `JsonFields` the text of chosen strings.

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
from typing import ClassVar

from .json_tokens import (
    ESCAPES,
    REPLACEMENT,
    any_text,
    escape_beginning,
    low_surrogate_beginning,
    number_beginning,
    number_characters,
    plain_text,
    space,
    whole_escape,
)

__all__ = ["JsonReader"]


class JsonReader:
    """Reads one JSON document in pieces.

    Attributes:
        words: the words that are values.
        error: what is wrong with the document, and at which character; None as long as it can be the beginning of a
            document. After an error nothing more is read.
    """

    words: ClassVar[tuple[str, ...]] = ("true", "false", "null")

    def __init__(self) -> None:
        self.error: str | None = None
        self._state: Callable[[JsonReader, str, int], int] = JsonReader._value
        self._cut_token = ""  # an escape or a word whose rest is in the next piece
        self._position: int = 0  # how many characters came before the piece
        self._value_begins: int = 0  # the index in the document of the newest value
        self._is_object = bytearray()  # for each open value: 1 an object, 0 an array
        self._in_string = False
        self._is_key = False
        self._collects = False  # whether the present string's text is wanted
        self._parts: list[str] = []  # the new text of it
        self._number_so_far = ""  # a short number after which the same may follow

    @property
    def complete(self) -> bool:
        """Whether the document is complete. Only a document that is a bare number may still grow after that."""
        if self._is_object or self._cut_token or self.error is not None:
            return False
        state = self._state
        return state is JsonReader._after or (state is JsonReader._number and self._number_so_far[-1:].isdigit())

    def _read(self, piece: str) -> None:
        """Read the next piece of the document. It never raises."""
        if self.error is not None or not piece:
            return
        if self._cut_token:
            piece, self._cut_token = self._cut_token + piece, ""
        at, end = 0, len(piece)
        while at < end:
            at = self._state(self, piece, at)
        if self._parts and not self._is_key:
            self._take_text(self._new_text(), done=False)
        self._position += end - len(self._cut_token)

    # -- what a subclass makes of it

    def _begin_string(self) -> bool:
        """A string begins that is a value. Return whether its text is wanted."""
        raise NotImplementedError

    def _begin_key(self) -> bool:
        """A key begins. Return whether it is wanted."""
        raise NotImplementedError

    def _take_key(self, key: str) -> None:
        """A key that is wanted is complete."""
        raise NotImplementedError

    def _take_text(self, text: str, *, done: bool) -> None:
        """New text of a string that is wanted: the last of it where it is done."""
        raise NotImplementedError

    def _take_digits(self, text: str) -> None:
        """More characters of a number."""

    def _take_number(self) -> bool:
        """A number is complete. Return whether it can be read."""
        return True

    def _take_word(self, word: str) -> None:
        """A word that is a value came."""

    def _enter(self, is_object: int) -> None:
        """An object or an array begins."""
        self._is_object.append(is_object)

    def _next_element(self) -> None:
        """In an array another element comes, if it does not end."""

    def _leave(self) -> None:
        """An object or an array ends."""
        self._is_object.pop()

    def _end_value(self, at: int) -> int:
        """A value ends before this index in the piece, which is returned."""
        self._state = JsonReader._after
        return at

    # -- the states: each reads what it can from an index in a piece, and returns the index after it

    def _value(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        self._value_begins = self._position + at
        match piece[at]:
            case '"':
                self._in_string, self._is_key = True, False
                self._collects = self._begin_string()
                self._state = JsonReader._string
            case "{":
                self._enter(1)
                self._state = JsonReader._first_key
            case "[":
                self._enter(0)
                self._next_element()
                self._state = JsonReader._first_element
            case "-" if piece[at + 1 : at + 2] in ("", "I"):
                return self._word(piece, at)
            case "-" | "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7" | "8" | "9":
                self._number_so_far = ""
                self._state = JsonReader._number
                return at
            case _:
                return self._word(piece, at)
        return at + 1

    def _first_element(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if piece[at : at + 1] == "]":
            return self._close(at)
        if at < len(piece):
            self._state = JsonReader._value
        return at

    def _first_key(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if piece[at : at + 1] == "}":
            return self._close(at)
        return self._key(piece, at)

    def _key(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != '"':
            return self._fail(piece, at, "a key in quotes")
        self._in_string = self._is_key = True
        self._collects = self._begin_key()
        self._state = JsonReader._string
        return at + 1

    def _colon(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if piece[at] != ":":
            return self._fail(piece, at, "a colon")
        self._state = JsonReader._value
        return at + 1

    def _after(self, piece: str, at: int) -> int:
        at = space(piece, at).end()
        if at == len(piece):
            return at
        if not self._is_object:
            return self._fail(piece, at, "nothing more")
        in_object = self._is_object[-1]
        if piece[at] == ("}" if in_object else "]"):
            return self._close(at)
        if piece[at] != ",":
            return self._fail(piece, at, "a comma or a closing brace" if in_object else "a comma or a closing bracket")
        if in_object:
            self._state = JsonReader._key
        else:
            self._next_element()
            self._state = JsonReader._value
        return at + 1

    def _string(self, piece: str, at: int) -> int:
        stop = (plain_text if self._collects else any_text)(piece, at).end()
        if stop > at and self._collects:
            self._parts.append(piece[at:stop])
        if stop == len(piece):
            return stop
        match piece[stop]:
            case '"':
                return self._close_string(stop + 1)
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
        self._take_digits(piece[at:stop])
        if stop == len(piece):
            return stop
        if self._take_number():
            return self._end_value(stop)
        self.error = f"character {self._position + stop}: a number ends here that has more digits than Python reads"
        return len(piece)

    # -- parts of states

    def _word(self, piece: str, at: int) -> int:
        """Read one of the words that are values."""
        rest = piece[at : at + max(map(len, self.words))]
        for word in self.words:
            if rest.startswith(word):
                self._take_word(word)
                return self._end_value(at + len(word))
            if word.startswith(rest) and at + len(rest) == len(piece):
                self._cut_token = rest
                return len(piece)
        if rest == "-" and at + 1 == len(piece):  # the beginning of a number alone
            self._cut_token = rest
            return len(piece)
        length = next(n for n in range(len(rest), -1, -1) if any(word.startswith(rest[:n]) for word in self.words))
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

    def _close_string(self, at: int) -> int:
        self._in_string = False
        if not self._is_key:
            if self._collects:
                self._take_text(self._new_text(), done=True)
            return self._end_value(at)
        self._is_key = False
        self._state = JsonReader._colon
        if self._collects:
            self._take_key(self._new_text())
        return at

    def _close(self, at: int) -> int:
        self._leave()
        return self._end_value(at + 1)

    def _fail(self, piece: str, at: int, wanted: str, length: int = 1) -> int:
        """Record an error: that many characters from here on are not what is wanted."""
        self.error = f"character {self._position + at}: {wanted} should come here, not {piece[at : at + length]!r}"
        return len(piece)
