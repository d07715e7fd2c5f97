"""Which streamed item the final form of an item belongs to.

Servers list at the end of an answer what they streamed, and some of them make other ids for the list. A final form belongs
to the first that is left of these:

1. the item of its type with its id;
2. the item of its type with its call_id;
3. the item of its type and name that has its content: of a call, the same arguments;
4. the first item of its type and name.

All final forms are compared by one rule before any is compared by the next, and each item has one final form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ..messages.json_text import json_key
from .values import is_object, parse_json

__all__ = ["ItemForm", "content_key", "match_final"]


class ItemForm(NamedTuple):
    """The identity of an item.

    Attributes:
        type: its type.
        id: the provider's id, "" if it has none.
        call_id: of a call, "" if it has none.
        name: of a call, "" if it has none.
        content: is equal for equal contents (see `content_key`); None if the content is not known.
    """

    type: str
    id: str = ""
    call_id: str = ""
    name: str = ""
    content: Hashable = None


_KEYS: tuple[Callable[[ItemForm], Hashable], ...] = (
    lambda form: form.id and (form.type, form.id),
    lambda form: form.call_id and (form.type, form.call_id),
    lambda form: form.content is not None and (form.type, form.name, form.content),
    lambda form: (form.type, form.name),
)


def match_final(finals: Sequence[ItemForm], streamed: Sequence[ItemForm]) -> list[int | None]:
    """For each final form the index of its item in `streamed`, by the rule of the module; None if it was not streamed."""
    found: list[int | None] = [None] * len(finals)
    for key_of in _KEYS:
        taken = {*found}
        left: dict[Hashable, deque[int]] = {}
        for index, form in enumerate(streamed):
            if index not in taken:
                left.setdefault(key_of(form), deque()).append(index)
        for number, form in enumerate(finals):
            if found[number] is None and (key := key_of(form)) and (indexes := left.get(key)):
                found[number] = indexes.popleft()
    return found


def content_key(value: Any) -> int:
    """Return a number that is equal for equal contents: text, a list of texts, or arguments, which may be an object or
    its JSON."""
    parsed = parse_json(value) if isinstance(value, str) else value
    return hash(json_key(parsed if is_object(parsed) else value))
