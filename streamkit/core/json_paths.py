"""Paths of fields in JSON documents, such as `items.*.text`, and the bookkeeping that a reader needs to match them.

A path is keys with dots between them; an index counts as a key, and `*` is any key or index. A backslash goes before a dot,
a backslash or a lone `*` that is part of a key. `split_path` and `join_path` are each other's reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..errors import UsageError

__all__ = ["EmittedPaths", "OpenValue", "PathNode", "join_path", "split_path"]


def split_path(path: str) -> tuple[str | None, ...]:
    r"""Return the keys of a path, None for `*`. In a key a backslash goes before `.` and `\`, and before the key `*`.

    Raises:
        UsageError: the path ends with a backslash, or is not a text.
    """
    if not isinstance(path, str) or not re.fullmatch(r"(?:[^\\]|\\.)*", path, re.DOTALL):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"invalid path {path!r} of a JSON field; expected `key.key`, with a backslash before a dot in a key"
        )
    parts = re.findall(r"\.((?:[^\\.]|\\.)*)", "." + path, re.DOTALL)
    return tuple(None if part == "*" else re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(keys: Iterable[str | None]) -> str:
    """Return the path of these keys: the reverse of `split_path`.

    Raises:
        UsageError: there are no keys. The document itself has no path, and `""` is the path of the key `""`.
    """
    names = ["*" if key is None else "\\*" if key == "*" else re.sub(r"[\\.]", r"\\\g<0>", key) for key in keys]
    if not names:
        raise UsageError("a path of a JSON field has at least one key")
    return ".".join(names)


class PathNode:
    """A key in the tree of the chosen paths: whether a path ends here, and the nodes of the keys below, None for any key."""

    __slots__ = ("below", "chosen")

    def __init__(self) -> None:
        self.chosen = False
        self.below: dict[str | None, PathNode] = {}

    def add(self, path: str) -> None:
        """Add a path below this node.

        Raises:
            UsageError: the path is malformed.
        """
        node = self
        for key in split_path(path):
            node = node.below.setdefault(key, PathNode())
        node.chosen = True


class EmittedPaths:
    """The fields that were emitted at one key of the document and below it, so that they can be replaced if it comes again.

    Attributes:
        path: the path of the string at this key; None if the value is an object or an array.
        below: the same for each key in the object or array, in the order of the document.
    """

    __slots__ = ("below", "path")

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self.below: dict[str, EmittedPaths] = {}

    def paths(self) -> Iterator[str]:
        """Yield all paths at this key and below it, in the order of the document. It may be nested deeper than Python
        recurses."""
        remaining: list[EmittedPaths] = [self]
        while remaining:
            emitted = remaining.pop()
            if emitted.path is not None:
                yield emitted.path
            remaining += reversed(emitted.below.values())


class OpenValue:
    """An object or array that is being read and may have a chosen field in it.

    Attributes:
        nodes: the nodes of the path tree that stand for it; several, where `*` and a key both fit.
        key: its key or index in the value around it.
        index: the index of the present element, if it is an array.
        prefix: its path and a dot, from when it was first needed.
        emitted: the fields that were emitted below it.
        is_linked: whether the `emitted` of the value around it refers to this one.
    """

    __slots__ = ("emitted", "index", "is_linked", "key", "nodes", "prefix")

    def __init__(self, nodes: tuple[PathNode, ...], key: str) -> None:
        self.nodes = nodes
        self.key = key
        self.index = -1
        self.prefix: str | None = None
        self.emitted = EmittedPaths()
        self.is_linked = False
