"""Opens a value that the user passes as a source.

No client is imported to recognise its objects (`recognition.py`). Of an SDK's stream whose response is unread the bytes are
read, so that the SDK's own objects are never built; but for bodies that are neither Server-Sent Events nor JSON, such as
Amazon Bedrock's, which the SDK reads.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import anyio

from ..errors import raise_source_error
from ..events import Run, RunDone, StreamEnd
from ..limits import Limits
from .chunks import AsyncChunks, SyncChunks
from .generators import GeneratorSource
from .interrupt import Interruptible
from .items import Items, batches_of
from .recognition import (
    http_error,
    is_async_response,
    is_client,
    is_complete_answer,
    is_file,
    is_framed,
    is_live,
    is_path,
    is_response,
    is_sync_response,
    refuse_read,
    response_of,
    unknown_source,
    unread_body,
    wants_async,
)
from .recording import read_recording, recording_in
from .source import AsyncSource, Batch, Readable, Source, SourceTraits, await_source, call_source
from .threads import call_off_loop, direct, in_thread, threaded

__all__ = ["open_async", "open_sync", "source_of_async_stream", "source_of_stream", "wants_async"]

_END: Any = object()
_DEFAULT = Limits()
_CANCELLED = [RunDone(Run(status="cancelled")), StreamEnd(status="cancelled")]  # the end of a stream that was cancelled


# -- sync


def _close_nothing() -> None:
    """For sources that have nothing to close."""


def source_of_stream(manager: Any, chunks: SyncChunks | None = None) -> Source:
    """Another stream's events, or its chunks, as a source. That stream still takes the answers, and waits for them."""
    items = iter(manager) if chunks is None else chunks

    def batches() -> Iterator[Batch]:
        for item in items:
            yield [item]
        if chunks is None and manager.status == "cancelled":
            yield _CANCELLED

    protocol = "streamkit" if chunks is None else chunks.protocol
    traits = SourceTraits(protocol=protocol, read_to_end=True, chunks=chunks)
    return Source(batches(), manager.close, traits, upstream=manager)


def _of_response(value: Any, limits: Limits) -> Source:
    """An HTTP response, or the one in an SDK's stream: its bytes."""
    response = response_of(value)
    if is_async_response(response):
        raise wants_async(value)
    if response.status_code >= 400:
        try:
            body = _beginning(response.iter_bytes(), limits.error_body)
        except Exception as error:
            raise_source_error(error)
        finally:
            response.close()
        raise http_error(response, body)
    if not is_framed(response):
        response.close()
        raise unread_body(response)
    return Source(iter(response.iter_bytes()), response.close, response=response)


def _beginning(chunks: Iterator[bytes], limit: int) -> bytes:
    """The first bytes of a body, at most so many. The rest is not read."""
    body = b""
    for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return body[:limit]


async def _async_beginning(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """As `_beginning`."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return body[:limit]


def _of_file(file: Any) -> Source:
    """An open file, from its position on: as a recording if it is one and can be sought in, else as a body."""
    try:
        recording = recording_in(file) if file.seekable() else None
    except Exception as error:
        raise_source_error(error)
    return recording or _of_iterable(file)


def _of_iterable(value: Iterable[Any]) -> Source:
    """An iterable of bytes, text or items. Closing the source closes its iterator."""
    if isinstance(value, (list, tuple)):
        return Source(batches_of(value), _close_nothing)
    items = iter(value)

    def finish() -> None:
        for thing in _distinct(items, value):
            if callable(close := getattr(thing, "close", None)):
                close()

    interruptible = Interruptible()
    pulled = iter(partial(interruptible.call, next, items, _END), _END)
    live = is_live(value)
    return Source(batches_of(pulled, live=live), finish, SourceTraits(live=live), interruptible=interruptible)


def _distinct(items: Any, value: Any) -> tuple[Any, ...]:
    """What has to be closed: an iterator, and the iterable that it came from, if that is another object."""
    return (items,) if items is value else (items, value)


def _of_context(value: Any, limits: Limits) -> Source:
    """The source that a context manager gives when it is entered. Closing the source leaves it."""
    stack = contextlib.ExitStack()
    try:
        entered = stack.enter_context(value)
    except Exception as error:
        raise_source_error(error)
    if entered is value and not is_response(value) and not hasattr(value, "__iter__"):
        stack.close()
        raise unknown_source(value)
    try:
        source = open_sync(entered, limits)
    except BaseException:
        stack.close()
        raise
    stack.callback(source.close)
    return Source(
        iter(source.pull, None),
        stack.close,
        source.traits,
        response=source.response,
        upstream=source.upstream,
        interruptible=source.interruptible,
    )


def _of_awaitable(value: Any) -> Source:
    """An awaitable is refused; a coroutine is closed, so that Python does not warn of it."""
    if inspect.iscoroutine(value):
        value.close()
    raise wants_async(value)


def _is_a(*kinds: type) -> Callable[[Any], bool]:
    """A test for instances of these classes."""
    return lambda value: isinstance(value, kinds)


def _has(*names: str) -> Callable[[Any], bool]:
    """A test for objects with one of these attributes."""
    return lambda value: any(hasattr(value, name) for name in names)


def _refuse_unknown(value: Any) -> Source:
    raise unknown_source(value)


def _refuse_async(value: Any) -> Source:
    raise wants_async(value)


# How each kind of value is opened. The first test that holds decides, and the order matters: an SDK's stream is an iterable
# and a context manager too, but its response is read directly, so that its objects are never built. A mapping, a str and
# a class are iterable or callable, and must be refused before those. A file is iterable, but may be a recording. A value
# that is iterable and a context manager needs no entering. One that is sync and async is read as a sync one.
_SYNC_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Limits], Source]], ...] = (
    (inspect.isawaitable, lambda value, _: _of_awaitable(value)),
    (_is_a(Readable), lambda value, _: value.source()),
    (_is_a(SyncChunks), lambda value, _: source_of_stream(value.manager, value)),
    (_is_a(Source), lambda value, _: value),
    (lambda value: response_of(value) is not None, _of_response),
    (is_path, lambda value, _: read_recording(value)),
    (_is_a(bytes, bytearray), lambda value, _: Source(iter([bytes(value)]), _close_nothing)),
    (_is_a(str, Mapping, type), lambda value, _: _refuse_unknown(value)),
    (is_complete_answer, lambda value, _: Source(batches_of([value]), _close_nothing)),
    (is_file, lambda value, _: _of_file(value)),
    (_has("__iter__"), lambda value, _: _of_iterable(value)),
    (lambda value: hasattr(value, "__enter__") and not is_client(value), _of_context),
    (_has("__aiter__", "__aenter__"), lambda value, _: _refuse_async(value)),
    (callable, lambda value, limits: open_sync(call_source(value), limits)),
)


def open_sync(value: Any, limits: Limits = _DEFAULT) -> Source:
    """The source for a sync stream that a value is, contains or returns. Its request is sent here.

    Raises:
        UsageError: the value is no source, or only an async one, or was read already.
        SourceError: opening it failed.
    """
    refuse_read(value)
    for is_kind, source_of in _SYNC_KINDS:
        if is_kind(value):
            return source_of(value, limits)
    raise unknown_source(value)


# -- async


async def open_async(value: Any, limits: Limits = _DEFAULT) -> AsyncSource:
    """The source for an async stream that a value is, contains or returns. Its request is sent here.

    A sync source is pulled in worker threads, one call at a time. Raises as `open_sync`.
    """
    refuse_read(value)
    if isinstance(value, AsyncSource):
        return value
    if isinstance(value, Readable):
        return value.async_source()
    if isinstance(value, AsyncChunks):
        return source_of_async_stream(value.manager, value)
    if inspect.isawaitable(value):
        return await open_async(await await_source(value), limits)
    response = response_of(value)
    if response is not None and not is_sync_response(response) and hasattr(response, "aiter_bytes"):
        return await _of_async_response(response, limits)
    if isinstance(value, type):
        raise unknown_source(value)
    if hasattr(value, "__aiter__") and response is None:
        return _of_async_iterable(value)
    if hasattr(value, "__aenter__") and response is None and not hasattr(value, "__iter__") and not is_client(value):
        return await _of_async_context(value, limits)
    if callable(value) and not hasattr(value, "__iter__") and not hasattr(value, "__enter__"):
        return await open_async(await call_off_loop(value), limits)
    if isinstance(value, (SyncChunks, Source)):
        return threaded(open_sync(value))
    opens = partial(open_sync, value, limits)
    source = opens() if not hasattr(value, "__enter__") else await in_thread(opens)
    blocks = source.response is not None or not isinstance(value, (list, tuple, bytes, bytearray))
    return threaded(source) if blocks else direct(source)


def source_of_async_stream(manager: Any, chunks: AsyncChunks | None = None) -> AsyncSource:
    """As `source_of_stream`, of an async stream."""
    items = aiter(manager) if chunks is None else chunks
    has_ended = False

    async def pull() -> Batch | None:
        nonlocal has_ended
        async for item in items:
            return [item]
        is_first_end, has_ended = not has_ended, True
        return _CANCELLED if chunks is None and manager.status == "cancelled" and is_first_end else None

    protocol = "streamkit" if chunks is None else chunks.protocol
    return AsyncSource(pull, manager.close, SourceTraits(protocol=protocol, read_to_end=True, chunks=chunks))


async def _of_async_response(response: Any, limits: Limits) -> AsyncSource:
    chunks: AsyncGenerator[bytes, None] = response.aiter_bytes()
    if response.status_code >= 400:
        try:
            body = await _async_beginning(chunks, limits.error_body)
        except Exception as error:
            raise_source_error(error)
        finally:
            await _close_all(chunks, response)
        raise http_error(response, body)
    if not is_framed(response):
        await _close_all(chunks, response)
        raise unread_body(response)
    return GeneratorSource(chunks, partial(_close_all, chunks, response), nested=True)


async def _close_all(chunks: Any, response: Any) -> None:
    await response.aclose()
    # The client's generators are nested, and not all of them close the inner one. Reading on until one reads the closed
    # connection ends them all; otherwise trio warns of those that the garbage collector finds.
    with anyio.move_on_after(0), contextlib.suppress(Exception):
        async for _ in chunks:
            pass
    await chunks.aclose()


def _of_async_iterable(value: Any) -> AsyncSource:
    items = aiter(value)
    live = is_live(value)
    converter = Items(live=live)
    feed, batch = converter.body.feed, converter.batch

    def prepare(item: Any) -> Batch:
        return feed(item) if type(item) is bytes else batch(item)

    async def finish() -> None:
        for thing in _distinct(items, value):
            close = getattr(thing, "aclose", None) or getattr(thing, "close", None)
            if callable(close) and inspect.isawaitable(result := close()):
                await result

    traits = SourceTraits(live=live)
    if inspect.isasyncgen(items):
        return GeneratorSource(items, finish, traits, prepare=prepare)
    return AsyncSource(items.__anext__, finish, traits, prepare=prepare)


async def _of_async_context(value: Any, limits: Limits) -> AsyncSource:
    stack = contextlib.AsyncExitStack()
    try:
        entered = await stack.enter_async_context(value)
    except Exception as error:
        raise_source_error(error)
    try:
        source = await open_async(entered, limits)
    except BaseException:
        await stack.aclose()
        raise
    stack.push_async_callback(source.close)
    return AsyncSource(source.pull, stack.aclose, source.traits)
