"""Small objects: Python shares the names of attributes among all objects of a class, if the first ones get them all."""

from __future__ import annotations

__all__ = ["share_names"]


def share_names(kind: type[object], names: str) -> None:
    """Let all objects of a class share these names of attributes, which they get at any time of their lives.

    Python shares those that the first objects get, up to 30 of them. An object that gets another one has a dict of its own, of
    1 to 1.5 KB; so would each stream of a process that opens many before it ends the first.
    """
    first: object = object.__new__(kind)
    for name in names.split():
        setattr(first, name, None)
