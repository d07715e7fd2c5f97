"""`Throttled`: fewer, longer deltas for a handler that is slow, as one that edits a chat message or draws a page."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from .arguments import check_seconds
from .errors import UsageError
from .events import Delta, Event
from .handlers import Handler, no_handler

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from .messages import ToolCallMessage
    from .streams.state import StreamState

__all__ = ["Throttled"]

_NEVER = float("-inf")


class Throttled(Handler):
    """Passes deltas on to a handler at most every `interval` seconds for each message. Sooner ones are joined.

        sk.stream(source, sk.Throttled(ChatMessageEditor(), 0.5)).until_done()

    The first delta of a message is passed on at once. Deltas that are held back follow with the next delta after the
    interval, and at the latest before any event that is not a delta, so that the order of events stays. Nothing is lost: the
    joined `value` is complete. `snapshot` is live, and contains the deltas that are held back.

    Args:
        handler: receives the events. It may be an `AsyncEventHandler`; then only `astream` takes the two.
        interval: seconds, from 0 on.

    Raises:
        UsageError: the interval is not such a number, or the handler is none.
    """

    def __init__(self, handler: Handler, interval: float) -> None:
        if not isinstance(cast("object", handler), Handler):
            raise no_handler(handler)
        check_seconds("interval", interval)
        self._handler = handler.streamkit_attachable()
        self._interval = interval
        self._last: dict[str, float] = {}
        self._held: dict[str, list[Delta]] = {}

    def handle(self, event: Event, /) -> Any:
        """Pass on an event, or hold it back. Returns an awaitable if it is passed on to an async handler, else None."""
        due = self._due(event)
        if not due:
            return None
        if self._handler.streamkit_needs_async():
            return self._handle_async(due)
        for one in due:
            self._handler.handle(one)
        return None

    async def _handle_async(self, events: Iterable[Event]) -> None:
        for event in events:
            result = self._handler.handle(event)
            if inspect.isawaitable(result):
                await result

    def _due(self, event: Event) -> Sequence[Event]:
        """Return the events to pass on now that this one has come."""
        if not isinstance(event, Delta):
            return [*self._release(), event]
        now = time.monotonic()
        key = event.message_id
        if event.replace:
            self._held.pop(key, None)  # deltas that are replaced need not be passed on
        held = self._held.get(key)
        if held is None:
            self._held[key] = [event]
        else:
            held.append(event)
        if now - self._last.get(key, _NEVER) < self._interval:
            return ()
        self._last[key] = now
        return self._release(key)

    def _release(self, only: str | None = None) -> list[Event]:
        """Return the deltas that are held back, joined to one for each message: those of one message, or of all."""
        keys = [only] if only is not None else list(self._held)
        released: list[Event] = []
        for key in keys:
            held = self._held.pop(key)
            joined = "".join(delta.value for delta in held)
            replace = held[0].replace
            released.append(
                held[-1] if len(held) == 1 else msgspec.structs.replace(held[-1], value=joined, replace=replace)
            )
        return released

    def receive(self, items: Sequence[Any], /) -> None:
        """Pass on the source's raw items at once."""
        self._handler.receive(items)

    def around_tool(self, call: ToolCallMessage, /) -> AbstractContextManager[object] | None:
        """As the handler's."""
        return self._handler.around_tool(call)

    def streamkit_request(self, protocol: str | None, request: Any) -> None:
        """As the handler's."""
        self._handler.streamkit_request(protocol, request)

    def streamkit_receiver(self) -> Callable[[Sequence[Any]], None] | None:
        """As of the handler that the items are passed on to."""
        self._require_init("_handler", "handler, interval")
        is_own = type(self).receive is not Throttled.receive
        return self.receive if is_own else self._handler.streamkit_receiver()

    def bind(self, stream: StreamState) -> None:
        """Attach the handler, too. Raises as `Handler.bind`."""
        self._require_init("_handler", "handler, interval")
        super().bind(stream)
        try:
            self._handler.streamkit_plan()  # raises where a hook could not be called
            self._handler.bind(stream)
        except UsageError:
            super().unbind(stream)
            raise
        self._last.clear()
        self._held.clear()

    def unbind(self, stream: StreamState) -> None:
        """Detach the handler, too."""
        super().unbind(stream)
        self._handler.unbind(stream)

    def streamkit_needs_async(self) -> str | None:
        """As of the handler that the events are passed on to."""
        self._require_init("_handler", "handler, interval")
        return self._handler.streamkit_needs_async()
