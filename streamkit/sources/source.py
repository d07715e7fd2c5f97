"""What a source is: batches of bytes or items, pulled one at a time, and closed.

A foreign exception becomes a `SourceError` here, with the client's own as its cause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from ..answers import Confirmation
from ..errors import raise_source_error as translate
from ..events import ConfirmationCreated, Event
from ..protocols import Encoder
from .body import BodyJoiner
from .interrupt import Interruptible, hang_up
from .live import ends_with_question

__all__ = [
    "AsyncChunks",
    "AsyncSource",
    "Chunks",
    "Items",
    "Readable",
    "Source",
    "SyncChunks",
    "await_source",
    "batches_of",
    "call_source",
    "translate",
]

Batch = Any  # bytes, or a list of items


class Source(Iterator[Batch]):
    """Batches, pulled by one thread at a time; an iterator of them, too.

    Attributes:
        protocol: the protocol's name, where the source itself knows it.
        live: whether it is a producer that goes on only when it is pulled.
        edits: whether it can take edited code with an approval.
        whole: whether it is read to its end whatever its items say, as a recording is.
        following: opens the next source of the same run, where the source itself knows of one.
        same_step: whether it goes on with the run step of the source before it.
        chunks: another stream's, which this is.
        fields: the arguments of tools that become messages, where the stream itself says none.
        resume: called before anything is pulled, of a log: with the cursor that the stream is to go on after, it gives
            the one up to which nothing is told.
        calls: what pulls go through that only stopping their thread can end early.
        next: as `pull`, with the client's own exceptions.
    """

    def __init__(
        self,
        batches: Iterator[Batch],
        close: Callable[[], object],
        *,
        protocol: str | None = None,
        live: bool = False,
        edits: bool = False,
        whole: bool = False,
        following: Callable[[], Any] | None = None,
        same_step: bool = False,
        resume: Callable[[str | None], str | None] | None = None,
        fields: Mapping[str, str] | None = None,
        chunks: Chunks | None = None,
        response: Any = None,
        inner: Any = None,
        calls: Interruptible | None = None,
    ) -> None:
        self._batches = batches
        self.next: Callable[[], Batch | None] = partial(next, batches, None)
        self._close = close
        self.protocol = protocol
        self.live = live
        self.edits = edits
        self.whole = whole
        self.following = following
        self.same_step = same_step
        self.resume = resume
        self.fields = fields
        self.chunks = chunks
        self.response = response
        self.inner = inner
        self.calls = calls

    def pull(self) -> Batch | None:
        """The next batch, None at the end.

        Raises:
            SourceError: the transport failed; `SourceTimeoutError` by a timeout.
        """
        try:
            return next(self._batches, None)
        except Exception as error:
            translate(error)

    def __next__(self) -> Batch:
        batch = self.pull()
        if batch is None:
            raise StopIteration
        return batch

    def interrupt(self) -> None:
        """Make a pull that waits in another thread end soon, where the source allows it."""
        if self.inner is not None:
            self.inner.cancel()
        if self.calls is not None:
            self.calls.stop()
        network = getattr(self.response, "extensions", {}).get("network_stream")
        if network is not None and (connection := network.get_extra_info("socket")) is not None:
            hang_up(connection)

    def close(self) -> None:
        """Close what is upstream. It returns when that is closed."""
        try:
            self._close()
        except Exception as error:
            translate(error)


class AsyncSource:
    """The same, pulled by a task. `next` raises `StopAsyncIteration` at the end, or gives None; what else it gives is a
    batch, or `prepare` makes it one."""

    def __init__(
        self,
        pull: Callable[[], Awaitable[Batch | None]],
        close: Callable[[], Awaitable[object]],
        *,
        protocol: str | None = None,
        live: bool = False,
        edits: bool = False,
        whole: bool = False,
        following: Callable[[], Any] | None = None,
        same_step: bool = False,
        resume: Callable[[str | None], str | None] | None = None,
        fields: Mapping[str, str] | None = None,
        chunks: Chunks | None = None,
        prepare: Callable[[Any], Batch] | None = None,
    ) -> None:
        self.next = pull
        self.prepare = prepare
        self._close = close
        self.protocol = protocol
        self.live = live
        self.edits = edits
        self.whole = whole
        self.following = following
        self.same_step = same_step
        self.resume = resume
        self.fields = fields
        self.chunks = chunks

    async def pull(self) -> Batch | None:
        """The next batch, None at the end. Raises as `Source.pull`."""
        try:
            given = await self.next()
            return given if self.prepare is None else self.prepare(given)
        except StopAsyncIteration:
            return None
        except Exception as error:
            translate(error)

    async def close(self) -> None:
        try:
            await self._close()
        except Exception as error:
            translate(error)


class Readable(ABC):
    """What any number of streams can read as their source, each for itself: a relay's reader, an Emitter."""

    @abstractmethod
    def for_stream(self) -> Readable:
        """What a stream holds on to until it opens it."""

    @abstractmethod
    def source(self) -> Source: ...

    @abstractmethod
    def async_source(self) -> AsyncSource: ...


class Chunks:
    """A stream's chunks in a protocol, read one at a time. Another stream over them hands its answers on; closing them
    closes the stream."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        self.manager = manager
        self.protocol = encoder.name
        self._feed = encoder.items
        self._ready: deque[dict[str, Any]] = deque()

    @property
    def question(self) -> Confirmation | None:
        """What the stream asks with the newest chunk, None if that asks nothing."""
        event = self.manager.current_event
        return event.confirmation if type(event) is ConfirmationCreated else None


class SyncChunks(Chunks, Iterator[dict[str, Any]]):
    """Those of a sync stream."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = iter(manager)

    def __next__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._feed(next(self._events)))
        return self._ready.popleft()

    def close(self) -> None:
        self.manager.close()


class AsyncChunks(Chunks, AsyncIterator[dict[str, Any]]):
    """Those of an async stream."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = aiter(manager)

    async def __anext__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._feed(await anext(self._events)))
        return self._ready.popleft()

    async def aclose(self) -> None:
        await self.manager.close()


def call_source(value: Callable[[], Any]) -> Any:
    """What a callable gives that sends a request; what it raises is the transport's error."""
    try:
        return value()
    except Exception as error:
        translate(error)


async def await_source(value: Awaitable[Any]) -> Any:
    """The same of an awaitable."""
    try:
        return await value
    except Exception as error:
        translate(error)


def _item(value: Any) -> Any:
    """An item of an iterable, as a decoder takes it."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", value))  # a memoryview of whatever gives its bytes
    if isinstance(value, tuple):
        return list(cast("Any", value))  # a tuple of ours is a frame; a decoder says that this is no object
    if isinstance(value, (Mapping, Event)):
        return cast("Any", value)
    for name in ("to_dict", "model_dump"):
        if callable(dump := getattr(value, name, None)):
            return dump() if name == "to_dict" else dump(mode="json", exclude_unset=True)
    return value  # the decoder says that it is no object


class Items:
    """The items of one iterable. Bytes and text are one body, in `pieces` or in lines."""

    def __init__(self, *, live: bool = False) -> None:
        self.pieces = BodyJoiner(ends_with_question if live else None)

    def item(self, value: Any) -> Any:
        item = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else _item(value)
        return self.pieces.feed(item) if isinstance(item, bytes) else item

    def batch(self, value: Any) -> Batch:
        if type(value) is bytes and self.pieces.as_is:
            return value
        item = self.item(value)
        return item if isinstance(item, bytes) else [item]


def batches_of(values: Iterable[Any], *, live: bool = False) -> Iterator[Batch]:
    """One batch an item, or few large ones where all items are there already."""
    items = Items(live=live)
    if not isinstance(values, (list, tuple)):
        yield from map(items.batch, values)
        return
    together: list[Any] = []
    only_bytes = {*map(type, values)} == {bytes}
    for place, value in enumerate(values):
        if only_bytes and items.pieces.as_is:
            yield from values[place:]
            return
        item = items.item(value)
        if isinstance(item, bytes):
            if together:
                yield together
                together = []
            yield item
        else:
            together.append(item)
    if together:
        yield together
