"""One response of a connection that stays open: the WebSocket of `client.responses.connect()` in openai's SDK.

A stream of such a connection reads one response, to its end, and leaves the connection open; the next stream reads the next one.
The connection may have several lanes, each with responses of its own, whose events come in between (`stream_id`): a stream reads
that of the first event that no other stream reads, and leaves the events of the others to theirs. The API has no event that stops
a response. So what still comes of one whose stream was closed early is skipped by those that follow.

The connection is iterated, as any caller would. A blocked `recv` cannot be ended, so for sync streams a thread is blocked in
their place, and only as long as one of them has nothing to read.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

import anyio

from ..core.steps import Stopped
from ..errors import SourceError
from .generators import GeneratorSource
from .items import Items
from .recognition import async_iterator_of, attribute, iterator_of
from .source import Source

__all__ = ["of_async_connection", "of_connection"]

_MOST = 100_000  # events of other lanes that wait for a stream
_ENDS = frozenset({f"response.{end}" for end in ("completed", "failed", "incomplete", "cancelled")} | {"error"})
_lanes: weakref.WeakKeyDictionary[Any, Lanes] = weakref.WeakKeyDictionary()


def of_connection(connection: Any) -> Source:
    """Return the next response of a connection as a source. Closing it leaves the connection open."""
    reading = _SyncReading(connection)
    return Source(reading, reading.close, upstream=reading, items=Items())


def of_async_connection(connection: Any) -> GeneratorSource:
    """As `of_connection`, of an async one."""
    events = _events_of(connection)
    return GeneratorSource(events, events.aclose, items=Items(), nested=True)


class Lanes:
    """The events of a connection that came and were not read yet, by lane. The lane of a connection without lanes is ""."""

    def __init__(self) -> None:
        self.events: dict[str, deque[Any]] = {}
        self.readings: list[Reading] = []
        self.abandoned: dict[str, str | None] = {}  # the ids of responses whose streams were closed early, by lane
        self.changed = threading.Condition()
        self.has_thread = False
        self.receiving = anyio.Lock()

    def put(self, event: Any) -> None:
        """Add an event. Skips it if it is of a response that nobody reads any more."""
        lane = attribute(event, "stream_id") or ""
        read = [reading.lane for reading in self.readings if reading.lane is not None]
        if attribute(event, "type") == "error" and lane not in read and read:
            lane = read[0]  # of the connection: it ends what is read from it
        if lane in self.abandoned and self._is_of_abandoned(lane, event):
            return
        events = self.events.setdefault(lane, deque())
        if len(events) >= _MOST:
            raise SourceError(
                f"{_MOST} events of the lane {lane!r} were not read; read each lane by a stream of its own"
            )
        events.append(event)

    def _is_of_abandoned(self, lane: str, event: Any) -> bool:
        """Whether an event is of the response of a lane whose stream was closed early. An error may be of the next request."""
        id, own, kind = _response_id(event), self.abandoned[lane], attribute(event, "type")
        is_next = id is not None and own is not None and id != own
        if is_next or kind in _ENDS:
            del self.abandoned[lane]
        return not is_next and kind != "error"

    @property
    def is_wanted(self) -> bool:
        """Whether a reading has nothing to read."""
        return any(not reading.has_next for reading in self.readings)


class Reading:
    """One response of a connection, while it is read.

    Attributes:
        lane: its lane; None before its first event.
        is_over: whether its last event was taken.
        failure: what receiving has raised; StopIteration where the connection was closed.
    """

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.lane: str | None = None
        self.is_over = False
        self.failure: BaseException | None = None
        self._response_id: str | None = None
        lanes.readings.append(self)

    @property
    def has_next(self) -> bool:
        """Whether it has an event to take. It takes the first lane that no other one has."""
        lanes = self.lanes
        if self.lane is None:
            read = {reading.lane for reading in lanes.readings}
            self.lane = next((lane for lane, events in lanes.events.items() if events and lane not in read), None)
        return self.lane is not None and bool(lanes.events.get(self.lane))

    def take(self) -> Any:
        """Return the next event, of which there is one."""
        assert self.lane is not None
        event = self.lanes.events[self.lane].popleft()
        self._response_id = _response_id(event) or self._response_id
        if attribute(event, "type") in _ENDS:
            self.is_over = True
            self.lanes.readings.remove(self)
        return event

    def leave(self) -> None:
        """Read no more of it. The connection stays open."""
        if self.is_over:
            return
        self.is_over = True
        self.lanes.readings.remove(self)
        if self.lane is not None:
            self.lanes.events.pop(self.lane, None)
            self.lanes.abandoned[self.lane] = self._response_id


class _SyncReading(Iterator[Any]):
    """The events of the next response of a connection, for threads. `cancel`, from any thread, ends a wait for one."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._lanes = _lanes_of(connection)
        self._is_cancelled = False
        with self._lanes.changed:
            self._reading = Reading(self._lanes)

    def __next__(self) -> Any:
        lanes, reading = self._lanes, self._reading
        with lanes.changed:
            while not self._is_cancelled and not reading.is_over:
                if reading.has_next:
                    return reading.take()
                if reading.failure is not None:
                    self._fail()
                if not lanes.has_thread:
                    lanes.has_thread = True
                    receive = threading.Thread(
                        target=_receive, args=(lanes, self._connection), name="streamkit-receive", daemon=True
                    )
                    receive.start()
                lanes.changed.wait()
        if self._is_cancelled:
            raise Stopped
        raise StopIteration

    def _fail(self) -> None:
        """Raise what receiving has raised, and refer to it no longer: it refers to this."""
        failure, self._reading.failure = self._reading.failure, None
        self._reading.leave()
        assert failure is not None
        try:
            raise failure
        finally:
            del failure

    def cancel(self) -> None:
        self._is_cancelled = True
        with self._lanes.changed:
            self._lanes.changed.notify_all()

    def close(self) -> None:
        with self._lanes.changed:
            self._reading.leave()


def _receive(lanes: Lanes, connection: Any) -> None:
    """Receive events as long as a reading has nothing to read. Runs in a thread."""
    events = iterator_of(connection)
    while True:
        event, failure = _received(events)
        with lanes.changed:
            try:
                if failure is None:
                    lanes.put(event)
            except SourceError as error:
                failure = error
            for reading in lanes.readings if failure is not None else ():
                reading.failure = failure
            lanes.changed.notify_all()
            if failure is not None or not lanes.is_wanted:
                lanes.has_thread = False
                return


def _received(events: Iterator[Any]) -> tuple[Any, BaseException | None]:
    """Return the next event, or what receiving it has raised."""
    try:
        return next(events), None
    except BaseException as error:
        return None, error


async def _events_of(connection: Any) -> AsyncGenerator[Any, None]:
    """Yield the events of the next response of a connection. Of several tasks, each receives for all."""
    lanes = _lanes_of(connection)
    reading = Reading(lanes)
    events: AsyncIterator[Any] = async_iterator_of(connection)
    try:
        while not reading.is_over:
            async with lanes.receiving:
                if not reading.has_next:
                    lanes.put(await anext(events))
            if reading.has_next:
                yield reading.take()
    except StopAsyncIteration:
        return
    finally:
        reading.leave()
        if (close := attribute(events, "aclose")) is not None:
            await close()


def _lanes_of(connection: Any) -> Lanes:
    return _lanes.setdefault(connection, Lanes())


def _response_id(event: Any) -> str | None:
    id: str | None = attribute(attribute(event, "response"), "id")
    return id
