"""Fewer deltas for a handler that cannot take them all, as one that edits a chat message or draws a page."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .errors import UsageError
from .events import Delta, Event
from .handlers import Handler

if TYPE_CHECKING:
    from .streams.state import StreamState

__all__ = ["Throttled"]


class Throttled(Handler):
    """Tells a handler of deltas at most every `interval` seconds: those of a message that come sooner are joined.

    The first delta of a message is told at once; what is held back is told with the next delta after the interval,
    and before any other event. Snapshots are live, as always.
    """

    def __init__(self, handler: Handler, interval: float) -> None:
        if not isinstance(cast("object", interval), (int, float)) or not interval >= 0:
            raise UsageError(f"an interval is a number of seconds from 0 on, not {interval!r}")
        self._handler = handler
        self._interval = interval
        self._last: dict[str, float] = {}
        self._held: dict[str, list[Delta]] = {}

    def handle(self, event: Event, /) -> Any:
        told = self._let_through(event)
        if self._handler.streamkit_needs_async():
            return self._tell_async(told)
        for one in told:
            self._handler.handle(one)
        return None

    async def _tell_async(self, told: Iterable[Event]) -> None:
        for event in told:
            result = self._handler.handle(event)
            if inspect.isawaitable(result):
                await result

    def _let_through(self, event: Event) -> list[Event]:
        if not isinstance(event, Delta):
            return [*self._release(), event]
        now = time.monotonic()
        key = event.message_id
        if event.replace:
            self._held.pop(key, None)  # what it replaces need not be told
        self._held.setdefault(key, []).append(event)
        if now - self._last.get(key, float("-inf")) < self._interval:
            return []
        self._last[key] = now
        return self._release(key)

    def _release(self, only: str | None = None) -> list[Event]:
        keys = [only] if only is not None else list(self._held)
        told: list[Event] = []
        for key in keys:
            held = self._held.pop(key)
            joined = "".join(delta.value for delta in held)
            replace = held[0].replace
            told.append(
                held[-1] if len(held) == 1 else msgspec.structs.replace(held[-1], value=joined, replace=replace)
            )
        return told

    def receive(self, items: Sequence[Any], /) -> None:
        self._handler.receive(items)

    def bind(self, stream: StreamState) -> None:
        self._require_init("_handler", "handler, interval")
        super().bind(stream)
        try:
            self._handler.bind(stream)
        except UsageError:
            super().unbind(stream)
            raise
        self._last.clear()
        self._held.clear()

    def unbind(self, stream: StreamState) -> None:
        super().unbind(stream)
        self._handler.unbind(stream)

    def streamkit_needs_async(self) -> str | None:
        self._require_init("_handler", "handler, interval")
        return self._handler.streamkit_needs_async()
