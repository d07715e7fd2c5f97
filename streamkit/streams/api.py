"""`stream` and `astream`: a manager for whatever the user holds.

The two managers are thin shells around one story (`state.py`); they differ only in `async` and `await`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike
from typing import Any, Protocol, TypeAlias

from ..handlers import Handler
from ..protocols import Decoder
from ..sources.source import AsyncSource, Readable, Source
from .aio import AsyncStreamManager
from .state import StreamState
from .sync import StreamManager

__all__ = ["AsyncStreamManager", "StreamManager", "astream", "stream"]


class HttpResponse(Protocol):
    """An HTTP response of httpx or httpx2, as far as its bytes are concerned."""

    @property
    def status_code(self) -> int: ...
    def iter_bytes(self) -> Iterator[bytes]: ...


SyncSource: TypeAlias = (
    Iterable[Any] | PathLike[str] | AbstractContextManager[Any] | Callable[[], Any] | HttpResponse | Source | Readable
)
"""What `stream` takes."""

AnySource: TypeAlias = SyncSource | AsyncIterable[Any] | AbstractAsyncContextManager[Any] | Awaitable[Any] | AsyncSource
"""What `astream` takes."""


def stream(
    source: SyncSource,
    /,
    *handlers: Handler,
    protocol: str | type[Decoder] | None = None,
    strict: bool = False,
    then: Callable[[StreamState], Any] | None = None,
    fields: Mapping[str, str] | None = None,
    after: str | None = None,
) -> StreamManager:
    """A manager for a stream, driven by the caller's thread.

    Args:
        source: an `openai` stream; a callable or unentered context manager that gives one (the request
            is then sent on entry); an iterable of chunk dicts, typed objects, canonical events or bytes (SSE or
            NDJSON); an HTTP response; a path to a recording; an Emitter or a relay's reader; another manager.
        handlers: told of each event, in this order.
        protocol: the wire protocol, by name or decoder class; recognised from the items where it is not given.
        strict: raise `ProtocolError` for what is malformed, in place of repairing it and telling `on_warning`.
        then: called with the stream when a source has ended and what waited was answered: gives the next source of
            the same run, or None.
        fields: string arguments of tools that become messages of their own, which stream beside their calls:
            `{"send_message.message": "text", "execute.code": "code"}`. A kind is `text`, `reasoning`, `code` (its
            language is the argument `language` beside it, if that came first) or `code:python`. In a path, indexes
            count as keys, `*` is any key (or any tool), and a backslash goes before a dot in a name.
        after: a cursor of this source's, as `stream.cursor` gave it, to go on after. What comes before it rebuilds the
            snapshots silently; a message that is open there is told as created plus one delta.

    Raises:
        UsageError: a handler is async, or is on another live stream; there is no such protocol; a field is malformed.
    """
    options: dict[str, Any] = {"protocol": protocol, "strict": strict, "then": then, "fields": fields, "after": after}
    return StreamManager(_for_stream(source), handlers, **options)


def astream(
    source: AnySource,
    /,
    *handlers: Handler,
    protocol: str | type[Decoder] | None = None,
    strict: bool = False,
    then: Callable[[StreamState], Any] | None = None,
    fields: Mapping[str, str] | None = None,
    after: str | None = None,
) -> AsyncStreamManager:
    """A manager for a stream, driven by the caller's task. As `stream`; also takes awaitables, async iterables, async
    callables, sync handlers, and sync sources (pulled in one worker thread). `then` may be `async def`.

    A plain callable is called in a worker thread, as it may send a sync client's request; what it touches of the event
    loop's has to be in an `async def`. `then` is called where hooks are; for a request that blocks it gives a callable.
    """
    options: dict[str, Any] = {"protocol": protocol, "strict": strict, "then": then, "fields": fields, "after": after}
    return AsyncStreamManager(_for_stream(source), handlers, **options)


def _for_stream(source: Any) -> Any:
    """What a stream holds on to: not an Emitter itself, which is lost when its producer has dropped it."""
    return source.for_stream() if isinstance(source, Readable) else source
