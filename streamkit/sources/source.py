"""Sources: batches of bytes or items that a stream pulls one at a time, and closes.

An exception of the client's becomes a `SourceError` here, with the client's own as its cause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from ..core.steps import END
from ..errors import raise_source_error
from ..events import Event, StreamRetry
from .chunks import Chunks
from .items import Batch, Items

__all__ = [
    "NO_TRAITS",
    "AsyncSource",
    "Batch",
    "Cancellable",
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
    "traits_of_iterable",
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

_LIVE = SourceTraits(live=True)


def traits_of_iterable(*, live: bool) -> SourceTraits:
    """Return the traits of an iterable as a source, which may be a producer that continues only when it is pulled."""
    return _LIVE if live else NO_TRAITS


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


class Cancellable(Protocol):
    """What a source reads, if it can be stopped while a thread waits for it."""

    def cancel(self) -> object:
        """Make a pull that waits in another thread end soon, if it can be. Returns at once."""
        ...


class Opened:
    """What was opened from other objects. These live until it is closed: a source may read an HTTP response alone, while the
    SDK's stream around the response is all that refers to the client, which closes its connections when it is collected."""

    __slots__ = ("_close", "_origin", "traits")

    def __init__(self, close: Callable[[], Any], traits: SourceTraits) -> None:
        self._close = close
        self.traits = traits
        self._origin: Any = None  # or a pair, where that was opened from another one

    def hold(self, origin: Any) -> None:
        """Refer to an object that this was opened from. An Emitter is left alone: it ends when its producer drops it."""
        if not isinstance(origin, (Opened, Readable)):
            self._origin = origin if self._origin is None else (self._origin, origin)

    def _release(self, close: Callable[[], Any]) -> None:
        """Refer to nothing any more, as it is closed. Another `close` calls this one, which does nothing."""
        self._close, self._origin = close, None


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
        upstream: what it reads, if a pull of that can be ended early.
        items: makes batches of what `batches` gives, where these are items and no batches yet.

    Attributes:
        next: pulls as `pull` does, but it raises the client's own exceptions, and `StopIteration` at the end.
    """

    __slots__ = ("_upstream", "items", "next")

    def __init__(
        self,
        batches: Iterator[Batch],
        close: Callable[[], object],
        traits: SourceTraits = NO_TRAITS,
        *,
        upstream: Cancellable | None = None,
        items: Items | None = None,
    ) -> None:
        super().__init__(close, traits)
        self.next: Callable[[], Batch] = batches.__next__
        self._upstream = upstream
        self.items = items

    def pull(self) -> Batch:
        """Return the next batch, or item if there are `items`; `END` at the end.

        Raises:
            SourceError: the transport failed; `SourceTimeoutError` if it timed out.
        """
        try:
            return self.next()
        except StopIteration:
            return END
        except Exception as error:
            raise_source_error(error)

    def __next__(self) -> Batch:
        batch = self.pull()
        if batch is END:
            raise StopIteration
        return batch

    def interrupt(self) -> None:
        """Make a pull that waits in another thread end soon, if the source allows it."""
        if self._upstream is not None:
            self._upstream.cancel()

    def leave_with(self, stack: ExitStack) -> None:
        """Leave contexts, too, when it is closed."""
        stack.callback(self._close)
        self._close = stack.close

    def close(self) -> None:
        """Close what is upstream, and return when it is closed. Raises as `pull`."""
        try:
            self._close()
        except Exception as error:
            self._release(close_nothing)
            raise_source_error(error)
        self._release(close_nothing)


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
        next: the `pull` above. It raises the client's own exceptions.
        holds_scope: whether it has entered a cancel scope or a task group in a pull, or where it was opened, that closing it leaves.
    """

    __slots__ = ("cancel", "holds_scope", "items", "next")

    def __init__(
        self,
        pull: Callable[[], Awaitable[Batch | None]],
        close: Callable[[], Awaitable[object]],
        traits: SourceTraits = NO_TRAITS,
        *,
        items: Items | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(close, traits)
        self.next = pull
        self.cancel = cancel
        self.items = items
        self.holds_scope = False

    def leave_with(self, stack: AsyncExitStack) -> None:
        """Leave contexts, too, when it is closed."""
        stack.push_async_callback(self._close)
        self._close = stack.aclose

    async def close(self) -> None:
        """Close what is upstream, and return when it is closed. Raises as `Source.pull`."""
        try:
            await self._close()
        except Exception as error:
            self._release(close_nothing_async)
            raise_source_error(error)
        self._release(close_nothing_async)


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
