"""Sources: batches of bytes or items that a stream pulls one at a time, and closes.

An exception of the client's becomes a `SourceError` here, with the client's own as its cause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from ..core.steps import END
from ..errors import raise_source_error
from ..events import Event, StreamRetry
from .chunks import Chunks
from .interrupt import Interruptible, hang_up_response
from .items import Batch, Items

__all__ = [
    "LIVE",
    "NO_TRAITS",
    "AsyncSource",
    "Batch",
    "Opened",
    "Readable",
    "RecordedEnd",
    "Source",
    "SourceTraits",
    "await_source",
    "call_source",
    "close_nothing",
    "close_nothing_async",
    "package_of",
    "traits_of_response",
]


class RecordedEnd(msgspec.Struct, kw_only=True):
    """The end of a recorded source, beyond its items.

    Attributes:
        cut: the beginning of the item in the middle of which it ended; None if it did not.
        retries: the attempts that followed it, where its transport failed.
        answers: the answers that came when its end had been delivered, as events.
        next_retries: the attempts at the source after it, which could not be opened.
        promised: the ids of the calls whose output was promised before that, so that nothing waited for it.
        failure: the failure that came after its end, and after these answers.
        is_between_steps: whether that failure is of the source after it, which could not be opened.
        reason: why the stream ended the run there: `declined` or `max_steps`; "" if its source did.
    """

    cut: bytes | None = None
    retries: list[StreamRetry] = []
    answers: list[Event] = []
    next_retries: list[StreamRetry] = []
    promised: list[str] = []
    failure: BaseException | None = None
    is_between_steps: bool = False
    reason: str = ""

    def take_retries(self) -> list[StreamRetry]:
        """Return the attempts that followed it because it failed, and leave none in the answers."""
        late = [event for event in self.answers if isinstance(event, StreamRetry)]
        self.answers = [event for event in self.answers if not isinstance(event, StreamRetry)]
        return [*self.retries, *late]


class SourceTraits(msgspec.Struct, frozen=True, kw_only=True):
    """The traits of a source that a stream needs to read it.

    Attributes:
        protocol: the protocol's name; None if it is to be recognised from the items.
        recorded_protocol: the name of the protocol that a recording was read with, where the stream has no `protocol=`.
        live: whether it is a producer that continues only when it is pulled.
        was_live: whether it is the recording of such a producer: it has the same questions, and their outcomes.
        was_answered: whether it is the recording of a stream that could answer all confirmations: it has their outcomes.
        edits: whether an approval may carry edited code.
        http_library: the package of the HTTP response that it reads, whose errors in a pull are the connection's; "" for others.
        read_to_end: whether it is read until it has no more items, although an item says that the run has ended. True of
            recordings, and of other streams.
        was_nested: whether it is the recording of a source that a hook read inside the one before, with the calls' outputs.
        next_source: opens the source with which the run continues; None if this source knows of none.
        same_step: whether it continues the run step of the source before it.
        resume: called before the first pull with the stream's `after` cursor. Returns the cursor up to which handlers receive
            nothing. None if the source has no cursors of its own.
        fields: the arguments of tools that become messages, where the stream was opened without `fields=`.
        reasoning_tag: the tag whose content is reasoning, where the stream was opened without `reasoning_tag=`.
        chunks: the chunks of another stream, if that is what it reads.
        executed: the ids of the calls that were answered by the source itself when it was recorded.
        recorded_end: how a recorded source ended, beyond its items. It is filled while they are read.
    """

    protocol: str | None = None
    recorded_protocol: str | None = None
    live: bool = False
    was_live: bool = False
    was_answered: bool = False
    was_nested: bool = False
    edits: bool = False
    http_library: str = ""
    read_to_end: bool = False
    next_source: Callable[[], Any] | None = None
    same_step: bool = False
    resume: Callable[[str | None], str | None] | None = None
    fields: Mapping[str, str] | None = None
    reasoning_tag: str | None = None
    chunks: Chunks | None = None
    executed: frozenset[str] = frozenset()
    recorded_end: RecordedEnd | None = None

    @property
    def may_ask(self) -> bool:
        """Whether it is a producer in this process, or the recording of one, that may ask a question and takes it as approved when
        the next item is pulled."""
        return self.live or self.was_live


NO_TRAITS = SourceTraits()
"""Of most sources."""

LIVE = SourceTraits(live=True)
"""Of a producer that continues only when it is pulled."""


def traits_of_response(response: object) -> SourceTraits:
    """Return the traits of an HTTP response as a source."""
    return _traits_with(package_of(type(response)))


@lru_cache(maxsize=8)
def _traits_with(http_library: str) -> SourceTraits:
    """Return the traits of all responses of one library."""
    return SourceTraits(http_library=http_library)


def package_of(kind: type) -> str:
    """Return the top-level package that a class is declared in."""
    return kind.__module__.partition(".")[0]


class Opened:
    """What was opened from other objects. These live until it is closed: a source may read an HTTP response alone, while the
    SDK's stream around the response is all that refers to the client, which closes its connections when it is collected."""

    __slots__ = ("_origins",)

    def __init__(self) -> None:
        self._origins: tuple[Any, ...] = ()

    def hold(self, origin: Any) -> None:
        """Refer to an object that this was opened from. An Emitter is left alone: it ends when its producer drops it."""
        if not isinstance(origin, (Opened, Readable)):
            self._origins = (*self._origins, origin)

    def release(self) -> None:
        """Refer to nothing any more."""
        self._origins = ()


def close_nothing() -> None:
    """Close a source that has nothing to close, or that is closed already."""


async def close_nothing_async() -> None:
    """As `close_nothing`."""


class Source(Opened, Iterator[Batch]):
    """Batches that one thread at a time pulls. It is an iterator of them, too.

    Args:
        batches: bytes, or lists of items.
        close: closes what is upstream.
        traits: what a stream has to know of it.
        response: the HTTP response that it reads, if it reads one.
        upstream: another stream or a reading that it reads; its `cancel` ends a pull that waits.
        interruptible: makes the calls that can be ended early only by stopping their thread.
        items: makes batches of what `batches` gives, where these are items and no batches yet.

    Attributes:
        next: pulls as `pull` does, but what it returns may be an item, and it raises the client's own exceptions, and
            `StopIteration` at the end.
    """

    __slots__ = ("_batches", "_close", "interruptible", "items", "next", "response", "traits", "upstream")

    def __init__(
        self,
        batches: Iterator[Batch],
        close: Callable[[], object],
        traits: SourceTraits = NO_TRAITS,
        *,
        response: Any = None,
        upstream: Any = None,
        interruptible: Interruptible | None = None,
        items: Items | None = None,
    ) -> None:
        super().__init__()
        self.next: Callable[[], Batch] = batches.__next__
        self._batches = batches
        self._close = close
        self.traits = traits
        self.response = response
        self.upstream = upstream
        self.interruptible = interruptible
        self.items = items

    def pull(self) -> Batch | None:
        """Return the next batch, None at the end.

        Raises:
            SourceError: the transport failed; `SourceTimeoutError` if it timed out.
        """
        try:
            if self.items is None:
                return next(self._batches, None)
            item = next(self._batches, END)
            return None if item is END else self.items.batch(item)
        except Exception as error:
            raise_source_error(error)

    def __next__(self) -> Batch:
        batch = self.pull()
        if batch is None:
            raise StopIteration
        return batch

    def interrupt(self) -> None:
        """Make a pull that waits in another thread end soon, if the source allows it."""
        if self.upstream is not None:
            self.upstream.cancel()
        if self.interruptible is not None:
            self.interruptible.stop()
        hang_up_response(self.response)

    def close(self) -> None:
        """Close what is upstream, and return when it is closed. Raises as `pull`."""
        try:
            self._close()
        except Exception as error:
            raise_source_error(error)
        finally:
            self._close = close_nothing  # it may lead back to this source
            self.release()


class AsyncSource(Opened):
    """Batches that a task pulls.

    Args:
        pull: returns the next batch; at the end None, or it raises `StopAsyncIteration`.
        close: closes what is upstream.
        traits: what a stream has to know of it.
        items: makes batches of what `pull` returns, where these are items and no batches yet.
        cancel: makes a pull that waits return None, and every later one. Without it the task is cancelled where it sleeps
            in a pull, which on trio costs a cancel scope for each sleep, and so more than reading from a relay.

    Attributes:
        next: the `pull` above: what it returns may be an item, and it raises the client's own exceptions.
    """

    __slots__ = ("_close", "cancel", "items", "next", "pulled", "traits")

    def __init__(
        self,
        pull: Callable[[], Awaitable[Batch | None]],
        close: Callable[[], Awaitable[object]],
        traits: SourceTraits = NO_TRAITS,
        *,
        items: Items | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        self.next = pull
        self.cancel = cancel
        self.items = items
        self._close = close
        self.traits = traits

    async def pull(self) -> Batch | None:
        """Return the next batch, None at the end. Raises as `Source.pull`."""
        try:
            value = await self.next()
            return value if self.items is None else self.items.batch(value)
        except StopAsyncIteration:
            return None
        except Exception as error:
            raise_source_error(error)

    @property
    def holds_scope(self) -> bool:
        """Whether it has entered a cancel scope or a task group in a pull, or where it was opened, that closing it leaves."""
        return False

    async def close(self) -> None:
        """Close what is upstream, and return when it is closed. Raises as `pull`."""
        try:
            await self._close()
        except Exception as error:
            raise_source_error(error)
        finally:
            self._close = close_nothing_async
            self.release()


class Readable(ABC):
    """A run that any number of streams can read, each from its beginning: a relay's reader, an Emitter."""

    @abstractmethod
    def for_stream(self) -> Readable:
        """Return the object that a stream refers to until it opens the source. An Emitter returns a reader, so that the
        stream does not keep the Emitter alive."""

    @abstractmethod
    def source(self) -> Source:
        """Return a new source, for a sync stream."""

    @abstractmethod
    def async_source(self) -> AsyncSource:
        """Return a new source, for an async stream."""

    async def open_async(self, after: str | None) -> AsyncSource:
        """As `async_source`, for a stream that resumes after this cursor, where opening may wait."""
        return self.async_source()


def call_source(value: Callable[[], Any]) -> Any:
    """Call a function that sends a request, and return its result. What it raises becomes a `SourceError`."""
    try:
        return value()
    except Exception as error:
        raise_source_error(error)


async def await_source(value: Awaitable[Any]) -> Any:
    """As `call_source`, for an awaitable."""
    try:
        return await value
    except Exception as error:
        raise_source_error(error)
