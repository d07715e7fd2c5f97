"""Sources: batches of bytes or items that a stream pulls one at a time, and closes.

An exception of the client's becomes a `SourceError` here, with the client's own as its cause.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from ..errors import raise_source_error
from ..events import Event
from .chunks import Chunks
from .interrupt import Interruptible, hang_up_response

__all__ = [
    "LIVE",
    "NO_TRAITS",
    "AsyncSource",
    "Batch",
    "Readable",
    "Source",
    "SourceTraits",
    "await_source",
    "call_source",
]

Batch = Any  # bytes, or a list of items; a tuple if all of them are dicts or plain models


class RecordedEnd(msgspec.Struct, kw_only=True):
    """How a recorded source ended, beyond its items.

    Attributes:
        cut: the beginning of the item in the middle of which it ended; None if it did not.
        answers: the answers that came when its end had been delivered, as events.
        promised: the ids of the calls whose output was promised before that, so that nothing waited for it.
        failure: the failure that came after its end, and after these answers.
        reason: why the stream ended the run there: `declined` or `max_steps`; "" if its source did.
    """

    cut: bytes | None = None
    answers: list[Event] = []
    promised: list[str] = []
    failure: BaseException | None = None
    reason: str = ""


class SourceTraits(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream has to know of a source to read it.

    Attributes:
        protocol: the protocol's name; None if it is to be recognised from the items.
        recorded_protocol: the name of the protocol that a recording was read with, where the stream has no `protocol=`.
        live: whether it is a producer that continues only when it is pulled.
        was_live: whether it is the recording of such a producer: it has the same questions, and their outcomes.
        was_answered: whether it is the recording of a stream that could answer all confirmations: it has their outcomes.
        edits: whether an approval may carry edited code.
        read_to_end: whether it is read until it has no more items, although an item says that the run has ended. True of
            recordings, and of other streams.
        was_nested: whether it is the recording of a source that a hook read inside the one before, with the calls' outputs.
        next_source: opens the source with which the run continues; None if this source knows of none.
        same_step: whether it continues the run step of the source before it.
        resume: called before the first pull with the stream's `after` cursor, and whether nobody but the engine gets the
            items. Returns the cursor up to which handlers receive nothing. None if the source has no cursors of its own.
        fields: the arguments of tools that become messages, where the stream was opened without `fields=`.
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
    read_to_end: bool = False
    next_source: Callable[[], Any] | None = None
    same_step: bool = False
    resume: Callable[[str | None, bool], str | None] | None = None
    fields: Mapping[str, str] | None = None
    chunks: Chunks | None = None
    executed: frozenset[str] = frozenset()
    recorded_end: RecordedEnd | None = None


NO_TRAITS = SourceTraits()
"""Of most sources."""

LIVE = SourceTraits(live=True)
"""Of a producer that continues only when it is pulled."""


class Source(Iterator[Batch]):
    """Batches that one thread at a time pulls. It is an iterator of them, too.

    Args:
        batches: bytes, or lists of items.
        close: closes what is upstream.
        traits: what a stream has to know of it.
        response: the HTTP response that it reads, if it reads one.
        upstream: another stream or a reading that it reads; its `cancel` ends a pull that waits.
        interruptible: makes the calls that can be ended early only by stopping their thread.

    Attributes:
        next: pulls as `pull` does, but raises the client's own exceptions.
    """

    __slots__ = ("_batches", "_close", "interruptible", "next", "response", "traits", "upstream")

    def __init__(
        self,
        batches: Iterator[Batch],
        close: Callable[[], object],
        traits: SourceTraits = NO_TRAITS,
        *,
        response: Any = None,
        upstream: Any = None,
        interruptible: Interruptible | None = None,
    ) -> None:
        self._batches = batches
        self.next: Callable[[], Batch | None] = partial(next, batches, None)
        self._close = close
        self.traits = traits
        self.response = response
        self.upstream = upstream
        self.interruptible = interruptible

    def pull(self) -> Batch | None:
        """The next batch, None at the end.

        Raises:
            SourceError: the transport failed; `SourceTimeoutError` if it timed out.
        """
        try:
            return next(self._batches, None)
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


class AsyncSource:
    """Batches that a task pulls.

    Args:
        pull: returns the next batch; at the end None, or it raises `StopAsyncIteration`.
        close: closes what is upstream.
        traits: what a stream has to know of it.
        prepare: makes a batch of what `pull` returns, where that is no batch yet.
        cancel: makes a pull that waits return None, and every later one. Without it a pull is cancelled by a cancel scope
            around each of its sleeps, which costs more than reading from a relay.

    Attributes:
        next: the `pull` above: what it returns is not prepared, and it raises the client's own exceptions.
    """

    def __init__(
        self,
        pull: Callable[[], Awaitable[Batch | None]],
        close: Callable[[], Awaitable[object]],
        traits: SourceTraits = NO_TRAITS,
        *,
        prepare: Callable[[Any], Batch] | None = None,
        cancel: Callable[[], object] | None = None,
    ) -> None:
        self.next = pull
        self.cancel = cancel
        self.prepare = prepare
        self._close = close
        self.traits = traits

    async def pull(self) -> Batch | None:
        """The next batch, None at the end. Raises as `Source.pull`."""
        try:
            value = await self.next()
            return value if self.prepare is None else self.prepare(value)
        except StopAsyncIteration:
            return None
        except Exception as error:
            raise_source_error(error)

    async def close(self) -> None:
        """Close what is upstream, and return when it is closed. Raises as `pull`."""
        try:
            await self._close()
        except Exception as error:
            raise_source_error(error)


class Readable(ABC):
    """A run that any number of streams can read, each from its beginning: a relay's reader, an Emitter."""

    @abstractmethod
    def for_stream(self) -> Readable:
        """The object that a stream refers to until it opens the source. An Emitter returns a reader, so that the stream does
        not keep the Emitter alive."""

    @abstractmethod
    def source(self) -> Source:
        """A new source, for a sync stream."""

    @abstractmethod
    def async_source(self) -> AsyncSource:
        """A new source, for an async stream."""

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
