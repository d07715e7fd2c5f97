"""What a stream costs itself, whatever its length, beside what it should cost at most."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from .measuring import Profile, Row
from .streams import rows as rows_of_streams

TITLE = "A stream's own cost"
ABOUT = """\
What each stream costs beside its deltas: to make it and close it, the first of a process, and its memory. The baseline is what
it should cost at most."""


def rows(profile: Profile) -> Iterator[Row]:
    for row in islice(rows_of_streams(), profile.pick(3, None, None)):
        ratio = row.value / row.limit if row.limit else None
        name = f"{row.name}, at most {row.limit:,g}" if row.limit else row.name
        yield Row("a stream", name, row.value, row.unit, ratio, "the aim" if ratio else "")
