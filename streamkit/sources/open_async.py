"""Opens a value that the user passes as the source of an async stream.

What only an async stream can read is opened here. A sync source is opened as `open` does, and pulled in worker threads.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

import anyio
import msgspec

from ..errors import raise_source_error
from ..limits import DEFAULT_LIMITS, Limits
from .awaiting import as_coroutines, innermost_scope
from .chunks import AsyncChunks, SyncChunks
from .generators import GeneratorSource
from .graph_nodes import close_nodes
from .items import Items
from .open import CANCELLED, distinct, open_sync
from .recognition import (
    async_iterator_of,
    attribute,
    http_error,
    is_client,
    is_connection,
    is_framed,
    is_live,
    is_response,
    is_response_holder,
    is_sync_response,
    is_wrapped_response,
    may_be_over,
    offers,
    read_already,
    refuse_read,
    unknown_source,
    unread_body,
)
from .runs import AiRun, PydanticRun, is_ai_run, is_pydantic_run, of_openai_run, openai_run_of
from .sdk_generators import is_unsent_request, request_of, responses_behind
from .sdk_streams import async_amazon_body, iterators_of, unread_response
from .source import (
    AsyncSource,
    Batch,
    Readable,
    Source,
    SourceTraits,
    await_source,
    traits_of_iterable,
    traits_of_response,
)
from .threads import call_off_loop, direct, in_thread, threaded

__all__ = ["open_async", "source_of_async_stream"]


async def open_async(value: Any, limits: Limits = DEFAULT_LIMITS, after: str | None = None) -> AsyncSource:
    """Return the source for an async stream that a value is, contains or returns. Its request is sent here.

    A sync source is pulled in worker threads, one call at a time. Raises as `open_sync`.
    """
    try:
        source = await _open(value, limits, after)
    except Exception as error:
        raise_source_error(error)
    source.hold(value)
    return source


async def _open(value: Any, limits: Limits, after: str | None) -> AsyncSource:
    response = unread_response(value)
    if response is not None and not is_sync_response(response):
        return await _of_async_response(response, limits, *iterators_of(value))
    if (body := async_amazon_body(value)) is not None:
        return GeneratorSource(body, partial(_close_both, body, value))
    refuse_read(value)
    if isinstance(value, AsyncSource):
        return value
    if isinstance(value, Readable):
        return await value.open_async(after)
    if isinstance(value, AsyncChunks):
        return source_of_async_stream(value.manager, value)
    if isinstance(value, type):
        raise unknown_source(value)
    if (run := openai_run_of(value)) is not None:
        return of_openai_run(run, value)
    if offers(value, "__aiter__") and is_connection(value):
        from .connection import of_async_connection  # no other source needs it

        return of_async_connection(value)
    if offers(value, "__aiter__") and is_unsent_request(value):
        return await open_async(request_of(value), limits)
    if is_pydantic_run(value):
        source = await _of_async_iterable(PydanticRun(value))
        source.traits = msgspec.structs.replace(source.traits, protocol="pydantic_ai")
        return source
    if is_ai_run(value):
        return await _of_async_iterable(AiRun(value))
    if offers(value, "__aiter__"):  # before awaitables: a stream that is one too gives its end where it is awaited
        return await _of_async_iterable(value)
    if inspect.isawaitable(value):
        return await open_async(await await_source(value), limits)
    if offers(value, "__iter__"):
        return await _of_sync(value, limits)
    if is_wrapped_response(value):
        return await open_async(value.parse, limits)
    if is_response_holder(value) and not is_sync_response(value.response):
        return await open_async(value.response, limits)
    if is_response(value) and not is_sync_response(value) and attribute(value, "aiter_bytes") is not None:
        return await _of_async_response(value, limits)
    if offers(value, "__aenter__") and not is_client(value):
        return await _of_async_context(value, limits)
    if callable(value) and not offers(value, "__enter__"):
        return await open_async(await call_off_loop(value), limits)
    return await _of_sync(value, limits)


async def _of_sync(value: Any, limits: Limits) -> AsyncSource:
    """Return a source that threads pull. Refuses a value that is not a sync source either."""
    if isinstance(value, (SyncChunks, Source)):
        return threaded(open_sync(value))
    opens = partial(open_sync, value, limits)
    may_wait = offers(value, "__enter__") or is_unsent_request(value)
    source = await in_thread(opens) if may_wait else opens()
    return direct(source) if type(value) in (list, tuple, bytes, bytearray) else threaded(source)


def source_of_async_stream(manager: Any, chunks: AsyncChunks | None = None) -> AsyncSource:
    """As `source_of_stream`, of an async stream."""
    items = aiter(manager) if chunks is None else chunks
    has_ended = False

    async def pull() -> Batch | None:
        nonlocal has_ended
        async for item in items:
            return [item]
        is_first_end, has_ended = not has_ended, True
        return CANCELLED if chunks is None and manager.status == "cancelled" and is_first_end else None

    protocol = "streamkit" if chunks is None else chunks.protocol
    return AsyncSource(pull, manager.close, SourceTraits(protocol=protocol, read_to_end=True, chunks=chunks))


async def _of_async_response(response: Any, limits: Limits, *unread: Any) -> AsyncSource:
    """Return the bytes of a response as a source. Closing it closes these iterators, too."""
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
    close = partial(_close_all, chunks, response, *unread)
    return GeneratorSource(chunks, close, traits_of_response(response), nested=True)


async def _async_beginning(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    """As `_beginning`."""
    body = b""
    async for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return body[:limit]


async def _close_all(chunks: Any, response: Any, *unread: Any) -> None:
    await response.aclose()
    # The client's generators are nested, and not all of them close the inner one. Reading on until one reads the closed
    # connection ends them all; otherwise trio warns of those that the garbage collector finds.
    with anyio.move_on_after(0), contextlib.suppress(Exception):
        async for _ in chunks:
            pass
    for iterator in (chunks, *unread):
        await iterator.aclose()


async def _close_both(iterator: Any, value: Any) -> None:
    """Close an async iterator, and the iterable that it came from."""
    for thing in (*distinct(iterator, value), *responses_behind(iterator)):
        close = attribute(thing, "aclose") or attribute(thing, "close") or attribute(thing, "abort")
        if callable(close) and inspect.isawaitable(result := close()):
            try:
                await close_nodes(result)
            except BaseExceptionGroup as group:  # a task group in a generator wraps what ends that, too
                if (rest := group.split(GeneratorExit)[1]) is not None:
                    raise rest from None


async def _of_async_iterable(value: Any) -> AsyncSource:
    """As `_of_iterable`."""
    items = async_iterator_of(value)
    if may_be_over(value):
        items = await _Left.of(value, items)
    close, traits = partial(_close_both, items, value), traits_of_iterable(live=is_live(value))
    if inspect.isasyncgen(items):
        return GeneratorSource(items, close, traits, items=Items())
    return AsyncSource(as_coroutines(items.__anext__), close, traits, items=Items())


class _Left(AsyncIterator[Any]):
    """The items that are left where the response was read."""

    def __init__(self, first: Any, items: AsyncIterator[Any]) -> None:
        self._first = [first]
        self._items = items

    @classmethod
    async def of(cls, value: Any, items: AsyncIterator[Any]) -> _Left:
        """As `_left_of`."""
        try:
            return cls(await anext(items), items)
        except Exception as error:
            raise read_already(value) from error

    async def __anext__(self) -> Any:
        return self._first.pop() if self._first else await anext(self._items)

    async def aclose(self) -> None:
        await _close_both(self._items, self._items)


async def _of_async_context(value: Any, limits: Limits) -> AsyncSource:
    stack = contextlib.AsyncExitStack()
    scope = innermost_scope()
    try:
        entered = await stack.enter_async_context(value)
    except Exception as error:
        raise_source_error(error)
    try:
        source = await open_async(entered, limits)
    except BaseException:
        await stack.aclose()
        raise
    source.leave_with(stack)
    source.holds_scope = source.holds_scope or innermost_scope() is not scope
    return source
