"""What a source is: batches of bytes or items, pulled one at a time, and closed.

A foreign exception becomes a `SourceError` here, with the client's own as its cause.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NoReturn, cast

import msgspec

from .errors import SourceError, SourceTimeoutError, StreamkitError
from .events import Event

__all__ = ["AsyncSource", "Items", "Source", "await_source", "batches_of", "call_source", "translate"]

Batch = Any  # bytes, or a list of items


class Source(Iterator[Batch]):
    """Batches, pulled by one thread at a time; an iterator of them, too.

    Attributes:
        protocol: the protocol's name, where the source itself knows it.
        live: whether it is a producer that goes on only when it is pulled.
        edits: whether it can take edited code with an approval.
        whole: whether it is read to its end whatever its items say, as a recording is.
        following: opens the next source of the same run, where the source itself knows of one.
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
        following: Callable[[], Source] | None = None,
        response: Any = None,
        inner: Any = None,
    ) -> None:
        self._batches = batches
        self._close = close
        self.protocol = protocol
        self.live = live
        self.edits = edits
        self.whole = whole
        self.following = following
        self.response = response
        self.inner = inner

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
        interrupt(self.response, self.inner)

    def close(self) -> None:
        """Close what is upstream. It returns when that is closed."""
        try:
            self._close()
        except Exception as error:
            translate(error)


class AsyncSource:
    """The same, pulled by a task."""

    def __init__(
        self,
        pull: Callable[[], Awaitable[Batch | None]],
        close: Callable[[], Awaitable[object]],
        *,
        protocol: str | None = None,
        live: bool = False,
        edits: bool = False,
        whole: bool = False,
        following: Callable[[], Source] | None = None,
    ) -> None:
        self._pull = pull
        self._close = close
        self.protocol = protocol
        self.live = live
        self.edits = edits
        self.whole = whole
        self.following = following

    async def pull(self) -> Batch | None:
        """The next batch, None at the end. Raises as `Source.pull`."""
        try:
            return await self._pull()
        except StopAsyncIteration:
            return None
        except Exception as error:
            translate(error)

    async def close(self) -> None:
        try:
            await self._close()
        except Exception as error:
            translate(error)


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


def translate(error: Exception) -> NoReturn:
    """Raise a transport's error as ours."""
    if isinstance(error, StreamkitError):
        raise error
    names = {kind.__name__ for kind in type(error).__mro__}
    timed_out = isinstance(error, TimeoutError) or any("Timeout" in name for name in names)
    kind = SourceTimeoutError if timed_out else SourceError
    text = str(error)
    translated = kind(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    translated.status_code = status if isinstance(status, int) else None
    raise translated from error


def interrupt(response: Any, inner: Any) -> None:
    if inner is not None:
        inner.cancel()
    network = getattr(response, "extensions", {}).get("network_stream") if response is not None else None
    raw = network.get_extra_info("socket") if network is not None else None
    if raw is not None:
        # Closing a socket does not wake a thread that reads from it; shutting it down does.
        with contextlib.suppress(OSError):
            raw.shutdown(socket.SHUT_RDWR)


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
    """The items of one iterable. Text comes in pieces, or in lines, which may have lost their ends."""

    def __init__(self) -> None:
        self._lines: bool | None = None  # whether lines have lost their ends, once that is known
        self._begun = False

    def item(self, value: Any) -> Any:
        return self._text(value) if isinstance(value, str) else _item(value)

    def batch(self, value: Any) -> Batch:
        if type(value) is bytes:
            return value
        item = self.item(value)
        return item if isinstance(item, bytes) else [item]

    def _text(self, text: str) -> bytes:
        data = text.encode("utf-8", "surrogatepass")
        if self._lines is None:
            begun, self._begun = self._begun, True
            if "\n" in text or (begun and not _LINE(text)):
                self._lines = False
            elif begun or _is_object(data):
                self._lines = True
                data = b"\n" + data if begun else data
        return data + b"\n" if self._lines else data


_LINE = re.compile(r"\Z|:|\{|(data|event|id|retry|error)\b").match


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(data), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def batches_of(values: Iterable[Any]) -> Iterator[Batch]:
    """One batch an item, or few large ones where all items are there already."""
    items = Items()
    if not isinstance(values, (list, tuple)):
        yield from map(items.batch, values)
        return
    if all(type(value) is bytes for value in values):
        yield from values
        return
    together: list[Any] = []
    for value in values:
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
