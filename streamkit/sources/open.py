"""Opens a value that the user passes as a source.

No client is imported to recognise its objects (`recognition.py`). Of an SDK's own stream the bytes are read, so that the SDK's
objects are never built (`sdk_streams.py`). Anything that wraps it is iterated; so are bodies in no framing that streamkit knows.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from ..errors import raise_source_error
from ..events import Run, RunDone, StreamEnd
from ..limits import DEFAULT_LIMITS, Limits
from .chunks import SyncChunks
from .graph_nodes import is_graph_possible
from .interrupt import HttpConnection, Interruptible, close_graph
from .items import Items, batches_of
from .recognition import (
    attribute,
    class_of,
    http_error,
    is_async_response,
    is_client,
    is_complete_answer,
    is_connection,
    is_file,
    is_framed,
    is_live,
    is_openai_run,
    is_path,
    is_response,
    is_response_holder,
    is_wrapped_response,
    iterator_of,
    may_be_over,
    offers,
    read_already,
    refuse_read,
    unknown_source,
    unread_body,
    wants_async,
)
from .sdk_generators import is_unsent_request, request_of, runs_behind
from .sdk_streams import amazon_body, iterators_of, unread_response
from .source import (
    Batch,
    Readable,
    Source,
    SourceTraits,
    call_source,
    close_nothing,
    traits_of_iterable,
    traits_of_response,
)

__all__ = ["CANCELLED", "distinct", "open_sync", "source_of_stream", "wants_async"]

CANCELLED = [RunDone(Run(status="cancelled")), StreamEnd(status="cancelled")]  # the end of a stream that was cancelled


def source_of_stream(manager: Any, chunks: SyncChunks | None = None) -> Source:
    """Another stream's events, or its chunks, as a source. That stream still takes the answers, and waits for them."""
    items = iter(manager) if chunks is None else chunks

    def batches() -> Iterator[Batch]:
        for item in items:
            yield [item]
        if chunks is None and manager.status == "cancelled":
            yield CANCELLED

    protocol = "streamkit" if chunks is None else chunks.protocol
    traits = SourceTraits(protocol=protocol, read_to_end=True, chunks=chunks)
    return Source(batches(), manager.close, traits, upstream=manager)


def _of_response(response: Any, limits: Limits, value: Any = None) -> Source:
    """Return the bytes of an HTTP response, which may be that of an SDK's stream, as a source."""
    if is_async_response(response):
        raise wants_async(response if value is None else value)
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
    close = response.close if value is None else partial(_close_unread, response, value)
    return Source(iter(response.iter_bytes()), close, traits_of_response(response), upstream=HttpConnection(response))


def _close_unread(response: Any, stream: Any) -> None:
    """Close a response that was read in the place of an SDK's stream."""
    try:
        response.close()
    finally:
        for iterator in iterators_of(stream):
            iterator.close()


def _beginning(chunks: Iterator[bytes], limit: int) -> bytes:
    """Return the first bytes of a body, at most so many. The rest is not read."""
    body = b""
    for chunk in chunks:
        body += chunk
        if len(body) >= limit:
            break
    return body[:limit]


def _of_file(file: Any) -> Source:
    """Return an open file as a source, from its position on: as a recording if it is one and can be sought in, else as
    a body."""
    from .recording import recording_in  # no other source needs it

    try:
        recording = recording_in(file) if file.seekable() else None
    except Exception as error:
        raise_source_error(error)
    return recording or _of_iterable(file)


def _of_path(path: Any) -> Source:
    """Return a recording, or a body in a file, as a source."""
    from .recording import read_recording  # no other source needs it

    return read_recording(path)


def _of_connection(value: Any) -> Source:
    from .connection import of_connection  # no other source needs it

    return of_connection(value)


def _of_iterable(value: Any) -> Source:
    """Return an iterable of bytes, text or items as a source. Closing the source closes its iterator, and the
    iterable."""
    if class_of(value) in (list, tuple):
        return Source(batches_of(value), close_nothing)
    items = iterator_of(value)
    interruptible = Interruptible()
    left = _left_of(value, items) if may_be_over(value) else items
    return Source(
        interruptible.each(left),
        _BothClosing(items, value),
        traits_of_iterable(live=is_live(value)),
        upstream=interruptible,
        items=Items(),
    )


def _left_of(value: Any, items: Iterator[Any]) -> Iterator[Any]:
    """Return the items that are left where the response was read.

    Raises:
        UsageError: there are none.
    """
    try:
        first = next(items)
    except Exception as error:
        raise read_already(value) from error
    return chain((first,), items)


class _BothClosing:
    """Closes an iterator, and the iterable that it came from. (A `partial` takes four times the memory.)"""

    __slots__ = ("_iterator", "_value")

    def __init__(self, iterator: Any, value: Any) -> None:
        self._iterator, self._value = iterator, value

    def __call__(self) -> None:
        for thing in (*runs_behind(self._iterator), *distinct(self._iterator, self._value)):
            if callable(close := attribute(thing, "close") or attribute(thing, "abort")):
                close_graph(close) if is_graph_possible() else close()


def distinct(items: Any, value: Any) -> tuple[Any, ...]:
    """Return the objects to close: an iterator, and the iterable that it came from, if that is another object."""
    return (items,) if items is value else (items, value)


def _of_context(value: Any, limits: Limits) -> Source:
    """Return the source that a context manager gives when it is entered. Closing the source leaves it."""
    stack = contextlib.ExitStack()
    try:
        entered = stack.enter_context(value)
    except Exception as error:
        raise_source_error(error)
    if entered is value and not is_response(value) and not offers(value, "__iter__"):
        stack.close()
        raise unknown_source(value)
    try:
        source = open_sync(entered, limits)
    except BaseException:
        stack.close()
        raise
    source.leave_with(stack)
    return source


def _of_awaitable(value: Any) -> Source:
    """Refuse an awaitable. A coroutine is closed, so that Python does not warn of it."""
    if inspect.iscoroutine(value):
        value.close()
    raise wants_async(value)


def _is_a(*kinds: type) -> Callable[[Any], bool]:
    """Return a test for instances of these classes."""
    return lambda value: isinstance(value, kinds)


def _refuse_unknown(value: Any) -> Source:
    raise unknown_source(value)


def _refuse_async(value: Any) -> Source:
    raise wants_async(value)


# How each kind of value is opened. The first test that holds decides, and the order matters. A mapping, a str and a class
# are iterable or callable, and must be refused before those. A file is iterable, but may be a recording. A value that is
# iterable and a context manager needs no entering. One that is sync and async is read as a sync one.
_SYNC_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Any, Limits], Source]], ...] = (
    (inspect.isawaitable, lambda value, _: _of_awaitable(value)),
    (_is_a(Readable), lambda value, _: value.source()),
    (_is_a(SyncChunks), lambda value, _: source_of_stream(value.manager, value)),
    (_is_a(Source), lambda value, _: value),
    (is_openai_run, lambda value, _: _refuse_async(value)),
    (is_path, lambda value, _: _of_path(value)),
    (_is_a(bytes, bytearray), lambda value, _: Source(iter([bytes(value)]), close_nothing)),
    (_is_a(str, Mapping, type), lambda value, _: _refuse_unknown(value)),
    (is_complete_answer, lambda value, _: Source(batches_of([value]), close_nothing)),
    (is_file, lambda value, _: _of_file(value)),
    (lambda value: is_connection(value) and offers(value, "__iter__"), lambda value, _: _of_connection(value)),
    (is_unsent_request, lambda value, limits: open_sync(request_of(value), limits)),
    (lambda value: offers(value, "__iter__"), lambda value, _: _of_iterable(value)),
    (is_wrapped_response, lambda value, limits: open_sync(value.parse, limits)),
    (is_response_holder, lambda value, limits: open_sync(value.response, limits)),
    (is_response, _of_response),
    (lambda value: offers(value, "__enter__") and not is_client(value), _of_context),
    (lambda value: offers(value, "__aiter__") or offers(value, "__aenter__"), lambda value, _: _refuse_async(value)),
    (callable, lambda value, limits: open_sync(call_source(value), limits)),
)


def open_sync(value: Any, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source for a sync stream that a value is, contains or returns. Its request is sent here.

    Raises:
        UsageError: the value is not a source, or only an async one, or was read already.
        SourceError: opening it failed.
    """
    try:
        source = _open(value, limits)
    except Exception as error:
        raise_source_error(error)
    source.hold(value)
    return source


def _open(value: Any, limits: Limits) -> Source:
    if (response := unread_response(value)) is not None:
        return _of_response(response, limits, value)
    if (body := amazon_body(value)) is not None:
        return Source(body, value.close)
    refuse_read(value)
    for is_kind, source_of in _SYNC_KINDS:
        if is_kind(value):
            return source_of(value, limits)
    raise unknown_source(value)
