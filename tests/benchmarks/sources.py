"""Other sources than bytes, and the parts that stand beside a handler, each beside a plain loop that does the same."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .kinds import KINDS
from .kinds import rows as rows_of_kinds
from .measuring import Profile, Row, numbered

TITLE = "Other sources and parts"
ABOUT = """\
CPU time for each delta from dicts, from the SDKs' objects, of code, calls and shells, through `fields=`, `Throttled` and
`Recorder`, from items in memory. The baseline of each is a plain loop over the same source that does the same work with msgspec
and nothing else. Where asyncio reads an async iterator, as everywhere but from a list, its baseline is an `async for` loop."""

LIMITS = {"sync": "a plain loop", "asyncio": "a plain loop, asyncio"}


def rows(profile: Profile) -> Iterator[Row]:
    for kind in islice(KINDS, profile.pick(3, None, None)):
        found = [
            row for row in rows_of_kinds(profile.pick(20, 500, 2000), profile.pick(1, 3, 7), kind) if row.kind == kind
        ]
        for row in found:
            limit = LIMITS[row.face]
            yield from numbered({limit: row.limit, f"streamkit, {row.face}": row.cost}, kind, "µs a delta", limit)
