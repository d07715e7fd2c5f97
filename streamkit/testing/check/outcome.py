"""The outcome of a sync or an async stream, in a form that can be compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import anyio

from ...errors import StreamkitError
from ...events import Event
from ...messages import Message
from ...protocols.codec import event_to_dict
from ...streams.api import astream, stream

__all__ = ["Outcome", "decode", "decode_on", "difference", "short"]


class Outcome(NamedTuple):
    """The events of a stream in their wire form, each delta with the content of its snapshot, and how it ended."""

    lines: list[dict[str, Any]]
    error: StreamkitError | None
    messages: Sequence[Message]
    codes: list[str]

    @property
    def ending(self) -> str:
        """How the stream ended: `complete`, or the class and text of its error."""
        return f"{type(self.error).__name__}: {self.error}" if self.error else "complete"


def _line(event: Event) -> dict[str, Any]:
    line = event_to_dict(event)
    snapshot: Any = getattr(event, "snapshot", None)
    return line if snapshot is None else {**line, "snapshot": snapshot.content}


def decode(source: Sequence[Any], protocol: Any, *, strict: bool = False) -> Outcome:
    """Return the outcome of a stream. What is raised beside a `StreamkitError` is a fault of the protocol, and comes
    out."""
    manager = stream(source, protocol=protocol, strict=strict)
    lines: list[dict[str, Any]] = []
    error: StreamkitError | None = None
    try:
        for event in manager:
            lines.append(_line(event))
    except StreamkitError as raised:
        error = raised
    return Outcome(lines, error, manager.messages, [warning.code for warning in manager.warnings])


def decode_on(backend: str, source: Sequence[Any], protocol: Any) -> Outcome:
    """Return the outcome of an async stream, in an event loop of its own: `asyncio` or `trio`."""
    return anyio.run(partial(_decode_async, source, protocol), backend=backend)


async def _decode_async(source: Sequence[Any], protocol: Any) -> Outcome:
    manager = astream(source, protocol=protocol)
    lines: list[dict[str, Any]] = []
    error: StreamkitError | None = None
    try:
        async for event in manager:
            lines.append(_line(event))
    except StreamkitError as raised:
        error = raised
    return Outcome(lines, error, manager.messages, [warning.code for warning in manager.warnings])


def difference(expected: Outcome, came: Outcome) -> str | None:
    """Return where two outcomes first differ, None if they are the same."""
    for number in range(max(len(expected.lines), len(came.lines))):
        pair = [outcome.lines[number] if number < len(outcome.lines) else None for outcome in (expected, came)]
        if pair[0] != pair[1]:
            return f"event {number}: expected {short(pair[0])}, came {short(pair[1])}"
    if expected.ending != came.ending:
        return f"the end: expected {expected.ending}, came {came.ending}"
    return None


def short(value: Any) -> str:
    """Return a value as text for a failure: of bounded length, and `no event` for None."""
    text = "no event" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 300 else f"{text[:300]} …"
