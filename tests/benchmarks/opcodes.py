"""What a delta costs in bytecode instructions and calls, beside a table of what it cost before: a guard without a clock.

    python -m tests.benchmarks.opcodes            # fails if a row costs more than 1.05 times what the table has
    python -m tests.benchmarks.opcodes --write    # measures, and writes the rows of this version of Python into the table

A row is a stream of a wire format, cut in some way, read in some way. Its cost is that of a delta: of 1,200 deltas less
that of 200, divided by 1,000. Rows named `one delta` are a stream as a whole. Counted is the Python code of streamkit and of
everything that it calls. That does not depend on the machine, on its load or on the hash seed; it does on the version of
Python, and in some rows on that of anyio or trio, which the table therefore names.

The exit status is 0 if all is well, 1 if a row is too dear, and 2 if nothing was compared: the table has no rows for this
version of Python, or a debugger or a coverage tool traces this process and would be counted too.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.opcodes import Counter

from .faces import FACES, Face, hook, sleeping
from .wires import CUTS, WIRES, answer, pieces

__all__ = ["COMMAND", "LIMIT", "TABLE", "Cost", "compare", "main", "measure", "rows"]

TABLE = Path(__file__).with_name("opcodes.json")
COMMAND = "python -m tests.benchmarks.opcodes --write"
LIMIT = 1.05  # how much dearer a row may become
FEW, MANY = 200, 1200
VERSION = "{}.{}".format(*sys.version_info)
PACKAGES = ("anyio", "msgspec", "trio")

# Rows of which the table may never have more than this, on Python 3.11. Of deltas, 1.1 times what they cost before the rest was
# made faster, so that their plain path does not pay for it little by little; of a whole stream, its aim.
CEILINGS = {
    "hook: chat, 2 KB": 165 * 1.1,
    "hook: chat, event": 280 * 1.1,
    "hook: responses, 2 KB": 124 * 1.1,
    "hook: responses, event": 244 * 1.1,
    "hook: chat, one delta": 6_000 * LIMIT,
}


class Cost(NamedTuple):
    """What a delta costs, or a stream of one."""

    opcodes: float
    calls: float


Chunks = Callable[[int], list[Any]]  # of a stream with so many deltas


def rows() -> Iterator[tuple[str, Callable[[], Cost]]]:
    """All rows: the name, and what measures it."""
    for wire in WIRES:
        for cut in CUTS:
            yield f"hook: {wire}, {cut}", functools.partial(_of_a_delta, hook, _cut(wire, cut))
    for wire in ("chat", "responses", "anthropic"):
        yield f"hook: {wire}, dicts", functools.partial(_of_a_delta, hook, _dicts(wire))
    for name, face in FACES.items():
        for cut in CUTS if name.partition(",")[0] != "trio" else CUTS[-1:]:  # trio's differ from asyncio's in nothing
            if face is not hook:
                yield f"{name}: chat, {cut}", functools.partial(_of_a_delta, face, _cut("chat", cut))
    for name, face in sleeping("asyncio").items():  # what trio does between two sleeps depends on its clock
        yield f"{name}: chat, event", functools.partial(_of_a_delta, face, _cut("chat", "event"))
    for wire in ("chat", "responses", "anthropic"):
        for name in ("hook", "asyncio, hook", "trio, hook"):
            yield f"{name}: {wire}, one delta", functools.partial(_of_one, FACES[name], _cut(wire, "event"))


def _cut(wire: str, cut: str) -> Chunks:
    return lambda n: pieces(WIRES[wire](n), cut)


def _dicts(wire: str) -> Chunks:
    """The items as a client gives them: `data` of each event, decoded."""

    def chunks(n: int) -> list[Any]:
        datas = (event.rpartition(b"data: ")[2] for event in WIRES[wire](n))
        return [json.loads(data) for data in datas if data != b"[DONE]\n\n"]

    return chunks


def _count(face: Face, chunks: Chunks, n: int) -> Counter:
    source, counter = chunks(n), Counter()
    assert face(source, counter) == answer(n), "the stream gave another text than was sent"
    return counter


def _of_a_delta(face: Face, chunks: Chunks) -> Cost:
    _count(face, chunks, FEW)  # so that what is done only once is done
    few, many = (_count(face, chunks, n) for n in (FEW, MANY))
    return Cost((many.opcodes - few.opcodes) / (MANY - FEW), (many.calls - few.calls) / (MANY - FEW))


def _of_one(face: Face, chunks: Chunks) -> Cost:
    _count(face, chunks, 1)
    one = _count(face, chunks, 1)
    return Cost(one.opcodes, one.calls)


def measure(only: str = "") -> dict[str, Cost]:
    """The cost of each row whose name has this text in it.

    Raises:
        RuntimeError: something traces this thread.
    """
    if (tracer := sys.gettrace()) is not None:
        raise RuntimeError(f"{tracer!r} traces this process and would be counted: no debugger and no coverage, please")
    gc.collect()
    gc.disable()  # finalizers would run at moments that nobody chose
    try:
        costs = {name: cost() for name, cost in rows() if only in name}
    finally:
        gc.enable()
    return {name: Cost(round(cost.opcodes, 1), round(cost.calls, 2)) for name, cost in costs.items()}


def compare(before: Mapping[str, Cost], now: Mapping[str, Cost]) -> list[str]:
    """A line for each row that is dearer than it may be, or that only one of the two has."""
    out: list[str] = []
    for name, cost in now.items():
        if name not in before:
            out.append(f"{name}: is not in the table; now {cost.opcodes:g} opcodes")
            continue
        for field, old, new in zip(Cost._fields, before[name], cost, strict=True):
            if new > old * LIMIT:
                out.append(f"{name}: {old:g} {field} in the table, now {new:g}: {new / max(old, 0.01):.2f} x")
        if VERSION == "3.11" and cost.opcodes > CEILINGS.get(name, cost.opcodes):
            out.append(f"{name}: {cost.opcodes:g} opcodes are more than {CEILINGS[name]:.0f}, which no table raises")
    return out + [f"{name}: is in the table, but is not measured any more" for name in before if name not in now]


# -- the table


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES}


def _read() -> dict[str, Any]:
    return json.loads(TABLE.read_text()) if TABLE.exists() else {}


def _write(costs: Mapping[str, Cost]) -> None:
    table = _read()
    table[VERSION] = {"with": _versions(), "rows": costs}
    text = json.dumps(dict(sorted(table.items())), indent=1)
    TABLE.write_text(text.replace("[\n    ", "[").replace(",\n    ", ", ").replace("\n   ]", "]") + "\n")


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write this version's rows into the table")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with this text in their name")
    parser.add_argument("--json", action="store_true", help="print the costs as JSON, and compare nothing")
    options = parser.parse_args(arguments)
    try:
        now = measure(options.only)
    except RuntimeError as error:
        print(f"nothing was measured: {error}")
        return 2
    if options.json:
        print(json.dumps(now))
        return 0
    if options.write:
        _write(now)
        print(f"wrote {len(now)} rows for Python {VERSION} to {os.path.relpath(TABLE)}")
        return 0
    return _report(now, options.only)


def _report(now: Mapping[str, Cost], only: str) -> int:
    """Print the rows beside the table's, and what is wrong. Returns the exit status."""
    table = _read().get(VERSION)
    before = {} if table is None else {name: Cost(*cost) for name, cost in table["rows"].items() if only in name}
    for name, cost in now.items():
        ratio = f"{cost.opcodes / before[name].opcodes:8.3f} x" if name in before else ""
        print(f"{name:44} {cost.opcodes:9,.1f} opcodes {cost.calls:8.2f} calls{ratio}")
    if table is None:
        print(f"\nthe table has no rows for Python {VERSION}; `{COMMAND}` writes them")
        return 2
    wrong = compare(before, now)
    if not wrong:
        return 0
    print(f"\nmore than {LIMIT} times what the table has for Python {VERSION}:", *wrong, sep="\n  ")
    if table["with"] != _versions():
        print(f"\nthe table was written with {table['with']}, this is {_versions()}")
    print(f"\nIf that is meant, and worth it, `{COMMAND}` rewrites the table.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
