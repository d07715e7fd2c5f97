"""Damage to a stream's items, for `check_protocol`: everything that a provider, or a server that imitates one, may send.

Each `Damage` is one change of one item. They are listed first and applied when they are chosen, as a recording has many.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from ...protocols.framing import Frame
from ...protocols.values import is_list, is_object, parse_json

__all__ = ["Damage", "all_damage"]

JUNK: tuple[Any, ...] = (None, True, -1, 7, 1.5, "junk", [], ["junk"], [None], {}, {"junk": 1})
"""What a value is replaced by."""

_WHOLE = ("cut in half", "left out", "repeated", "swapped with the next")


class Damage(NamedTuple):
    """One change of one item.

    Attributes:
        position: the item's place among the frames.
        path: the keys and indexes that lead to the value in the item; () for the entire item.
        change: `replaced`, `dropped`, or what becomes of the entire item.
        value: what replaces the value.
    """

    position: int
    path: tuple[str | int, ...]
    change: str
    value: Any = None

    @property
    def place(self) -> str:
        """Where the damage is."""
        return f"item {self.position}" + "".join(f"[{key!r}]" for key in self.path)

    def __str__(self) -> str:
        return f"{self.place} {self.change}{f' by {self.value!r}' if self.change == 'replaced' else ''}"

    def apply(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the frames with this damage. The given ones are not changed."""
        id, name, data = frames[self.position]
        before, after = [*frames[: self.position]], [*frames[self.position + 1 :]]
        match self.change:
            case "cut in half":
                return [*before, (id, name, data[: len(data) // 2]), *after]
            case "left out":
                return before + after
            case "repeated":
                return [*before, frames[self.position], frames[self.position], *after]
            case "swapped with the next":
                return [*before, *after[:1], frames[self.position], *after[1:]]
            case _:
                return [*before, (id, name, json.dumps(self._damaged(parse_json(data))).encode()), *after]

    def _damaged(self, item: Any) -> Any:
        """Return a copy of an item, in which the value at the path is dropped or replaced."""
        root = [deepcopy(item)]
        container: Any = root
        *way, last = (0, *self.path)
        for key in way:
            container = container[key]
        if self.change == "dropped":
            del container[last]
        else:
            container[last] = self.value
        return root[0]


def all_damage(frames: Sequence[Frame]) -> list[Damage]:
    """Return all damage that can be done to these frames."""
    return [damage for position, frame in enumerate(frames) for damage in _damage_of(position, frame[2])]


def _damage_of(position: int, data: bytes) -> Iterator[Damage]:
    yield from (Damage(position, (), change) for change in _WHOLE)
    item = parse_json(data)
    if item is None:
        return  # `[DONE]` and its like have no values
    yield from (Damage(position, (), "replaced", value) for value in JUNK)
    for path in _paths(item):
        yield Damage(position, path, "dropped")
        yield from (Damage(position, path, "replaced", value) for value in JUNK)


def _paths(value: Any, start: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each value in a value."""
    children = value.items() if is_object(value) else enumerate(value) if is_list(value) else ()
    for key, child in children:
        yield (*start, key)
        yield from _paths(child, (*start, key))
