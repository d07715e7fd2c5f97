"""Cursors: which event of which run. `2-91.9c0a3f21` is event 91, which the run's second producer wrote.

The first number counts the producers that the run has had, its epochs; the second the run's events, from 1 on. What stands
after the dot names the run, so that a cursor of another one is refused. To clients they are opaque.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias
from zlib import crc32

from ..errors import UsageError

__all__ = ["Cursor", "Entry", "LogPosition", "cursor_of", "position_of", "run_name"]

Cursor: TypeAlias = str
"""`<epoch>-<number>.<crc32 of the run's id>`; opaque to clients."""

_match = re.compile(r"([1-9][0-9]{0,8})-(0|[1-9][0-9]{0,17})(\.[0-9a-f]{8})").fullmatch


class Entry(NamedTuple):
    """One event of a log: a line of JSON, and where to read on after it. A snapshot replaces all entries before it; its
    line is `{"type": "snapshot", "dropped": …, "events": […]}`."""

    cursor: Cursor
    data: bytes
    snapshot: bool = False


class LogPosition(NamedTuple):
    """The position in a log that a cursor names: the epoch, and the event's number. Their order is that of the
    events."""

    epoch: int
    number: int


def run_name(run_id: str) -> str:
    """Return what names a run in its cursors."""
    return f".{crc32(run_id.encode('utf-8', 'surrogatepass')):08x}"


def cursor_of(epoch: int, number: int, name: str) -> str:
    """Return the cursor of an event in the run with this name."""
    return f"{epoch}-{number}{name}"


def position_of(cursor: object, run_id: str) -> LogPosition:
    """Return the place of a cursor in this run.

    Raises:
        UsageError: it is not a cursor, or one of another run.
    """
    match = _match(cursor) if isinstance(cursor, str) else None
    name = run_name(run_id)
    if match is None:
        raise UsageError(f"run {run_id!r}: invalid cursor {cursor!r}; expected one such as {cursor_of(1, 17, name)!r}")
    if match[3] != name:
        raise UsageError(f"run {run_id!r}: cursor {cursor!r} belongs to another run; those of this one end in {name!r}")
    return LogPosition(int(match[1]), int(match[2]))
