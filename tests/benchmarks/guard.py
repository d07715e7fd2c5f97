"""The guard of the plain deltas: how many bytecode instructions one costs, beside a table. It has no clock.

    python -m tests.benchmarks.guard    # prints the counts, and fails if one is more than a tenth above the table

Counted is all Python code on the way from bytes, dicts or the SDKs' objects to a hook, or to whoever iterates: of 1,200 deltas
less that of 200, divided by 1,000. The counts are those of Python 3.11. Where a change is worth its price, `TABLE` gets the new counts.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping
from typing import Any

from tests.opcodes import Counter

from . import kinds
from .faces import events, hook
from .wires import CUTS, WIRES, answer, pieces

__all__ = ["PYTHON", "TABLE", "measure", "too_dear"]

PYTHON = (3, 11)
TOLERANCE = 1.1
FEW, MANY = 200, 1200
FACES = {"hook": hook, "iteration": events}
TABLE: dict[str, float] = {
    "chat, 2 KB, hook": 227,
    "chat, 2 KB, iteration": 234,
    "chat, event, hook": 336,
    "chat, event, iteration": 343,
    "responses, 2 KB, hook": 215,
    "responses, 2 KB, iteration": 222,
    "responses, event, hook": 329,
    "responses, event, iteration": 336,
    "anthropic, 2 KB, hook": 177,
    "anthropic, 2 KB, iteration": 184,
    "anthropic, event, hook": 303,
    "anthropic, event, iteration": 310,
    "chat, list of dicts, hook": 210,
    "chat, dicts one by one, hook": 306,
    "chat, list of objects, hook": 212,
    "chat, objects one by one, hook": 307,
    "responses, list of dicts, hook": 203,
    "responses, dicts one by one, hook": 299,
    "responses, list of objects, hook": 204,
    "responses, objects one by one, hook": 300,
    "anthropic, list of dicts, hook": 178,
    "anthropic, dicts one by one, hook": 273,
    "anthropic, list of objects, hook": 178,
    "anthropic, objects one by one, hook": 274,
}
"""The instructions of a delta, by the protocol, what each piece of the body is or in which form the items come, and how the
stream is read."""

ITEMS = {"chat": kinds.chat_items, "responses": kinds.responses_items, "anthropic": kinds.anthropic_items}


def measure() -> dict[str, float]:
    """What the rows of the table are now."""
    return {name: _cost(*name.split(", ")) for name in TABLE}


def too_dear(now: Mapping[str, float]) -> list[str]:
    """A line for each row that is more than a tenth above the table."""
    return [f"{name}: {TABLE[name]:g}, now {now[name]:g}" for name in TABLE if now[name] > TOLERANCE * TABLE[name]]


def _cost(wire: str, form: str, face: str) -> float:
    def count(deltas: int) -> int:
        source, counter = _source(wire, form, deltas), Counter()
        assert FACES[face](source, counter) == answer(deltas), "the stream gave another text than was sent"
        return counter.opcodes

    gc.collect()
    _, few, many = (count(deltas) for deltas in (FEW, FEW, MANY))  # the first does what is done only once
    return (many - few) / (MANY - FEW)


def _source(wire: str, form: str, deltas: int) -> Any:
    """A body in pieces, or items: a list of them, or an iterator that yields them one by one."""
    if form in CUTS:
        return pieces(WIRES[wire](deltas), form)
    items: list[Any] = ITEMS[wire](deltas)
    if "objects" in form:
        items = kinds.objects(wire, items)
    return iter(items) if "one by one" in form else items


def main() -> int:
    """The command. Returns its exit status."""
    now = measure()
    print(*(f"{name:32}{count:8.1f}{TABLE[name]:8.1f}" for name, count in now.items()), sep="\n")
    dear = too_dear(now) if sys.version_info[:2] == PYTHON else []
    print(*dear, sep="\n")
    return bool(dear)


if __name__ == "__main__":
    sys.exit(main())
