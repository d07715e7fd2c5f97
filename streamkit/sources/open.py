"""What the user holds, made into a source.

Nothing is imported to recognise a client's objects: they are told by what they offer. An SDK's stream whose response
is unread gives its bytes, so that the SDK's objects are never built.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any

import anyio

from ..errors import SourceError, UsageError
from ..events import Run, RunDone, StreamEnd
from .interrupt import Interruptible
from .recording import read_recording, recording_in
from .source import (
    AsyncChunks,
    AsyncSource,
    Batch,
    Items,
    Readable,
    Source,
    SyncChunks,
    await_source,
    batches_of,
    call_source,
    translate,
)
from .threads import call_off_loop, direct, in_thread, known_of, threaded

__all__ = ["open_async", "open_sync", "source_of_async_stream", "source_of_stream", "wants_async"]

_KNOWN = (
    "an openai or anthropic stream, a callable, awaitable or context manager that gives one, an HTTP response, an "
    "iterable of bytes, dicts, typed objects or streamkit events, a path to a recording, a relay's reader, an "
    "Emitter, or another stream"
)


# -- what a thing is


def _is_response(value: Any) -> bool:
    """An HTTP response of httpx, httpx2, or an SDK's wrapper of one."""
    return (hasattr(value, "iter_bytes") or hasattr(value, "aiter_bytes")) and hasattr(value, "status_code")


def _response_in(value: Any) -> Any:
    """The HTTP response that this is or holds, None if there is none."""
    inner = getattr(value, "http_response", None)  # an SDK's wrapper of it
    if inner is not None and _is_response(inner):
        return inner
    return value if _is_response(value) else None


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike)


# Where the SDKs' helpers keep the stream that they read: of Responses, Chat and Messages; of Assistants.
_INNER_STREAMS = ("_raw_stream", "_AssistantEventHandler__stream", "_AsyncAssistantEventHandler__stream")


def _sdk_response(value: Any) -> Any:
    """The unread response inside an SDK's stream, None if there is none."""
    for name in _INNER_STREAMS:
        value = getattr(value, name, value)
    response = getattr(value, "response", None)
    if response is None or not _is_response(response) or getattr(response, "is_stream_consumed", True):
        return None
    return response


def _is_async_stream(response: Any) -> bool:
    """Whether a response can be read by a task alone."""
    body = getattr(response, "stream", None)
    return hasattr(body, "__aiter__") and not hasattr(body, "__iter__")


def _is_sync_stream(response: Any) -> bool:
    body = getattr(response, "stream", None)
    return body is not None and not hasattr(body, "__aiter__")


def _unknown(value: Any) -> UsageError:
    if isinstance(value, str):
        hint = f"a path must be one: Path({value[:100]!r})"
        return UsageError(f"a str is no source of a stream ({hint}); known are: {_KNOWN}")
    return UsageError(f"{value!r} ({type(value).__name__}) is no source of a stream; known are: {_KNOWN}")


def wants_async(value: Any) -> UsageError:
    return UsageError(f"{type(value).__name__} is asynchronous: use `astream` in place of `stream`")


def _refused(response: Any, body: bytes) -> SourceError:
    text = body[:2000].decode("utf-8", "replace")
    error = SourceError(f"the server answered with HTTP status {response.status_code}: {text}")
    error.status_code = response.status_code
    return error


# -- sync


def open_sync(value: Any) -> Source:
    """The source that this is, its request sent.

    Raises:
        UsageError: it is no source, or only an async one.
        SourceError: opening it failed.
    """
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise wants_async(value)
    if isinstance(value, Readable):
        return value.source()
    if isinstance(value, SyncChunks):
        return source_of_stream(value.manager, value)
    if isinstance(value, Source):
        return value
    if (response := _sdk_response(value)) is not None:
        if _is_async_stream(response):
            raise wants_async(value)
        return _of_response(response)
    if (response := _response_in(value)) is not None:
        if _is_async_stream(response):
            raise wants_async(value)
        return _of_response(response)
    if _is_path(value):
        return _of_path(value)
    if isinstance(value, (bytes, bytearray)):
        return Source(iter([bytes(value)]), _nothing)
    if isinstance(value, (str, Mapping, type)):
        raise _unknown(value)
    if _is_whole_answer(value):
        return Source(batches_of([value]), _nothing)
    if _is_file(value):
        return _of_file(value)
    if hasattr(value, "__iter__"):
        return _of_iterable(value)
    if hasattr(value, "__enter__") and not _is_client(value):
        return _of_context(value)
    if hasattr(value, "__aiter__") or hasattr(value, "__aenter__"):
        raise wants_async(value)
    if callable(value):
        return open_sync(call_source(value))
    raise _unknown(value)


_END: Any = object()
_CANCELLED = [RunDone(Run(status="cancelled")), StreamEnd(status="cancelled")]  # a stream's own stop, told to another


def _is_whole_answer(value: Any) -> bool:
    """An SDK's typed object: what a request without `stream=True` gives. It is told as one item."""
    return callable(getattr(value, "model_dump", None)) and not hasattr(value, "__next__")


def _is_client(value: Any) -> bool:
    """A client is a context manager, too; entering it to find no stream in it would close it."""
    return hasattr(value, "base_url") or hasattr(value, "request")


def _nothing() -> None:
    pass


def source_of_stream(manager: Any, chunks: SyncChunks | None = None) -> Source:
    """Another stream's events, or its chunks. It stays the one that is asked, and waits."""
    items = iter(manager) if chunks is None else chunks

    def batches() -> Iterator[Batch]:
        for item in items:
            yield [item]
        if chunks is None and manager.status == "cancelled":
            yield _CANCELLED

    protocol = "streamkit" if chunks is None else chunks.protocol
    return Source(batches(), manager.close, protocol=protocol, whole=True, chunks=chunks, inner=manager)


def _of_response(response: Any) -> Source:
    if response.status_code >= 400:
        try:
            body = response.read()
        except Exception as error:
            translate(error)
        finally:
            response.close()
        raise _refused(response, body)
    return Source(iter(response.iter_bytes()), response.close, response=response)


def _of_path(path: Any) -> Source:
    return read_recording(path)


def _is_file(value: Any) -> bool:
    names = ("read", "readline", "seekable", "__iter__")  # `tempfile` wraps its files
    return isinstance(value, io.IOBase) or all(hasattr(value, name) for name in names)


def _of_file(file: Any) -> Source:
    """From where it is on: a recording, if it can be sought in, or a body."""
    try:
        recording = recording_in(file) if file.seekable() else None
    except Exception as error:
        translate(error)
    return recording or _of_iterable(file)


def _of_iterable(value: Iterable[Any]) -> Source:
    if isinstance(value, (list, tuple)):
        return Source(batches_of(value), _nothing)
    items = iter(value)

    def finish() -> None:
        for thing in _distinct(items, value):
            if callable(close := getattr(thing, "close", None)):
                close()

    calls = Interruptible()
    pulled = iter(partial(calls.call, next, items, _END), _END)
    live = _is_live(value)
    return Source(batches_of(pulled, live=live), finish, live=live, calls=calls)


def _is_live(value: Any) -> bool:
    """Whether an iterable may be a producer that goes on only when it is pulled: whatever is not all there already."""
    # A length alone proves nothing: progress bars and proxies have one. A file's items are there already.
    return not isinstance(value, (Sequence, Set)) and not _is_file(value)


def _distinct(items: Any, value: Any) -> tuple[Any, ...]:
    """What has to be closed: an iterator, and what it came from."""
    return (items,) if items is value else (items, value)


def _of_context(value: Any) -> Source:
    stack = contextlib.ExitStack()
    try:
        entered = stack.enter_context(value)
    except Exception as error:
        translate(error)
    if entered is value and not _is_response(value) and not hasattr(value, "__iter__"):
        stack.close()
        raise _unknown(value)
    try:
        source = open_sync(entered)
    except BaseException:
        stack.close()
        raise
    stack.callback(source.close)
    return Source(
        iter(source.pull, None),
        stack.close,
        **known_of(source),
        response=source.response,
        inner=source.inner,
        calls=source.calls,
    )


# -- async


async def open_async(value: Any) -> AsyncSource:
    """The source that this is, its request sent. Raises as `open_sync`.

    A sync source is pulled in a worker thread, one call at a time.
    """
    if isinstance(value, AsyncSource):
        return value
    if isinstance(value, Readable):
        return value.async_source()
    if isinstance(value, AsyncChunks):
        return source_of_async_stream(value.manager, value)
    if inspect.isawaitable(value):
        return await open_async(await await_source(value))
    response = _sdk_response(value) or _response_in(value)
    if response is not None and not _is_sync_stream(response) and hasattr(response, "aiter_bytes"):
        return await _of_async_response(response)
    if isinstance(value, type):
        raise _unknown(value)
    if hasattr(value, "__aiter__") and response is None:
        return _of_async_iterable(value)
    if hasattr(value, "__aenter__") and response is None and not hasattr(value, "__iter__") and not _is_client(value):
        return await _of_async_context(value)
    if callable(value) and not hasattr(value, "__iter__") and not hasattr(value, "__enter__"):
        return await open_async(await call_off_loop(value))
    if isinstance(value, (SyncChunks, Source)):
        return threaded(open_sync(value))
    source = open_sync(value) if not hasattr(value, "__enter__") else await in_thread(partial(open_sync, value))
    blocks = source.response is not None or not isinstance(value, (list, tuple, bytes, bytearray))
    return threaded(source) if blocks else direct(source)


def source_of_async_stream(manager: Any, chunks: AsyncChunks | None = None) -> AsyncSource:
    items = aiter(manager) if chunks is None else chunks
    over = False

    async def pull() -> Batch | None:
        nonlocal over
        async for item in items:
            return [item]
        ended, over = over, True
        return _CANCELLED if chunks is None and manager.status == "cancelled" and not ended else None

    protocol = "streamkit" if chunks is None else chunks.protocol
    return AsyncSource(pull, manager.close, protocol=protocol, whole=True, chunks=chunks)


async def _of_async_response(response: Any) -> AsyncSource:
    if response.status_code >= 400:
        try:
            body = await response.aread()
        except Exception as error:
            translate(error)
        finally:
            await response.aclose()
        raise _refused(response, body)
    chunks: AsyncIterator[bytes] = response.aiter_bytes()
    return AsyncSource(chunks.__anext__, partial(_close_all, chunks, response))


async def _close_all(chunks: Any, response: Any) -> None:
    await response.aclose()
    # The client's generators are nested, and not all close the next one. Reading on, to where the closed connection is
    # read, ends each of them; else trio warns of those that the garbage collector finds.
    with anyio.move_on_after(0), contextlib.suppress(Exception):
        async for _ in chunks:
            pass
    await chunks.aclose()


def _of_async_iterable(value: Any) -> AsyncSource:
    items = aiter(value)
    live = _is_live(value)
    of = Items(live=live)
    feed, batch = of.pieces.feed, of.batch

    def prepare(item: Any) -> Batch:
        return feed(item) if type(item) is bytes else batch(item)

    async def finish() -> None:
        for thing in _distinct(items, value):
            close = getattr(thing, "aclose", None) or getattr(thing, "close", None)
            if callable(close) and inspect.isawaitable(result := close()):
                await result

    return AsyncSource(items.__anext__, finish, live=live, prepare=prepare)


async def _of_async_context(value: Any) -> AsyncSource:
    stack = contextlib.AsyncExitStack()
    try:
        entered = await stack.enter_async_context(value)
    except Exception as error:
        translate(error)
    try:
        source = await open_async(entered)
    except BaseException:
        await stack.aclose()
        raise
    stack.push_async_callback(source.close)
    return AsyncSource(source.pull, stack.aclose, **known_of(source))
