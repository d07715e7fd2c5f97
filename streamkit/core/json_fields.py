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

The rule: the document is read as `json.loads` reads it, `NaN` and `Infinity` included. The texts are those that `json.loads`
returns, encoded to UTF-8: a lone surrogate is U+FFFD. The one difference: no nesting is too deep, and no number too long.
In memory are the present key, a byte for each level of nesting, and the emitted paths; `JsonReader` reads.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ..messages.json_reader import JsonReader
from ..messages.json_tokens import all_plain
from .json_paths import EmittedPaths, OpenValue, PathNode, join_path

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


class JsonFields(JsonReader):
    r"""Reads one JSON document in pieces, and returns the text of the string fields at these paths.

    A path is `key.key`; an index counts as a key (`items.0.text`), and `*` is any key or index. A backslash goes before
    a dot in a key: `a\.b`.

    Attributes:
        error: what is wrong with the document, and at which character; None as long as it can be the beginning of a
            document. After an error nothing more is read.

    Raises:
        UsageError: a path is malformed.
    """

    words: ClassVar = ("true", "false", "null", "NaN", "Infinity", "-Infinity")

    def __init__(self, *paths: str) -> None:
        super().__init__()
        root = PathNode()
        for path in paths:
            root.add(path)
        self._emitted: list[FieldText] = []  # of the present piece
        self._open: list[OpenValue] = []  # the outermost open values: those in which something is chosen
        self._nodes: tuple[PathNode, ...] = (root,)  # for the next value
        self._at = ""  # the next value's key or index, if there are any
        self._path = ""  # the path of the chosen string

    @property
    def open_field(self) -> str | None:
        """The path of the field whose text is unfinished, None if there is none. A piece of plain text then only
        extends it, and need not be fed. Errors count the characters that were fed."""
        if not self._in_string or self._is_key or not self._collects or self._cut_token or self.error is not None:
            return None
        return self._path

    def feed(self, piece: str) -> list[FieldText]:
        """Return the pieces of fields in this piece of the document, in order. It never raises."""
        if self._in_string and self.error is None and not self._cut_token and all_plain(piece):
            return self._feed_plain(piece)
        emitted: list[FieldText] = []
        self._emitted = emitted
        self._read(piece)
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

    # -- what comes in the document

    def _begin_string(self) -> bool:
        chosen = any(node.chosen for node in self._nodes)
        if chosen and self._open:
            self._record_path()
        return chosen

    def _begin_key(self) -> bool:
        self._nodes = ()
        return len(self._open) == len(self._is_object)

    def _take_text(self, text: str, *, done: bool) -> None:
        self._emitted.append(FieldText(self._path, text, done))

    def _take_key(self, key: str) -> None:
        self._expect(key)
        if self._nodes and (before := self._open[-1].emitted.below.pop(key, None)) is not None:
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

    def _enter(self, is_object: int) -> None:
        super()._enter(is_object)
        if any(node.below for node in self._nodes):
            self._open.append(OpenValue(self._nodes, self._at))

    def _leave(self) -> None:
        if len(self._open) == len(self._is_object):
            self._open.pop()
        super()._leave()

    # -- paths

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
