"""What an application may put around an SDK's stream to change its items, in each of the forms that are in use.

Each form is a class of streams for threads and its twin for tasks. It takes the SDK's stream and a function of its items, and is
read like the stream.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

SECRET = "4711"
REDACTED = "****"

Change = Callable[[Any], Any]


def redact(item: Any) -> Any:
    """An SDK's object without the secret."""
    text = item.model_dump_json(warnings=False)
    return type(item).construct(**json.loads(text.replace(SECRET, REDACTED))) if SECRET in text else item


def by_attributes(stream: Any, change: Change, *, is_async: bool) -> Any:
    """A proxy that has the stream's attributes, and an iteration of its own."""

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

        def __iter__(self) -> Iterator[Any]:
            for item in stream:
                yield change(item)

    class AsyncProxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(stream, name)

        async def __aiter__(self) -> AsyncIterator[Any]:
            async for item in stream:
                yield change(item)

    return AsyncProxy() if is_async else Proxy()


class EveryMethod:
    """A proxy as wrapt makes them: its class is said to be that of what it wraps, and has every special method in each form,
    whether that can be passed on or not."""

    def __init__(self, wrapped: Any, change: Change) -> None:
        self.__dict__.update(__wrapped__=wrapped, _change=change)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__dict__["__wrapped__"].__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__wrapped__, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.__wrapped__, name, value)

    def __iter__(self) -> Any:
        return self if hasattr(self.__wrapped__, "__next__") else iter(self.__wrapped__)

    def __next__(self) -> Any:
        return self._change(self.__wrapped__.__next__())

    def __aiter__(self) -> Any:
        return self if hasattr(self.__wrapped__, "__anext__") else aiter(self.__wrapped__)

    async def __anext__(self) -> Any:
        return self._change(await self.__wrapped__.__anext__())

    def __enter__(self) -> Any:
        return EveryMethod(self.__wrapped__.__enter__(), self._change)

    def __exit__(self, *raised: Any) -> Any:
        return self.__wrapped__.__exit__(*raised)

    async def __aenter__(self) -> Any:
        return EveryMethod(await self.__wrapped__.__aenter__(), self._change)

    async def __aexit__(self, *raised: Any) -> Any:
        return await self.__wrapped__.__aexit__(*raised)


class EveryMethodOfFunction(EveryMethod):
    """A proxy of a function, as a decorator returns it."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.__wrapped__(*arguments, **options)


def with_every_method(stream: Any, change: Change, *, is_async: bool) -> Any:
    return EveryMethod(stream, change)


def _as(stream: Any, **methods: Any) -> Any:
    """The same stream as one of a subclass, as `stream_cls=` has it."""
    stream.__class__ = type("Filtered", (type(stream),), methods)
    return stream


def by_iter_of_subclass(stream: Any, change: Change, *, is_async: bool) -> Any:
    kind = type(stream)

    def __iter__(self: Any) -> Iterator[Any]:
        for item in kind.__iter__(self):
            yield change(item)

    async def __aiter__(self: Any) -> AsyncIterator[Any]:
        async for item in kind.__aiter__(self):
            yield change(item)

    return _as(stream, __aiter__=__aiter__) if is_async else _as(stream, __iter__=__iter__)


def by_next_of_subclass(stream: Any, change: Change, *, is_async: bool) -> Any:
    kind = type(stream)

    def __next__(self: Any) -> Any:
        return change(kind.__next__(self))

    async def __anext__(self: Any) -> Any:
        return change(await kind.__anext__(self))

    return _as(stream, __anext__=__anext__) if is_async else _as(stream, __next__=__next__)


def by_stream_of_subclass(stream: Any, change: Change, *, is_async: bool) -> Any:
    kind = type(stream)

    def __stream__(self: Any) -> Iterator[Any]:
        for item in kind.__stream__(self):
            yield change(item)

    async def __stream_async__(self: Any) -> AsyncIterator[Any]:
        async for item in kind.__stream__(self):
            yield change(item)

    filtered = _as(stream, __stream__=__stream_async__ if is_async else __stream__)
    if "_iterator" in vars(filtered):  # which its constructor would have made
        filtered._iterator = filtered.__stream__()
    return filtered


def by_iterator(stream: Any, change: Change, *, is_async: bool) -> Any:
    """The stream itself, whose iterator was replaced."""
    items = stream._iterator

    def changed() -> Iterator[Any]:
        for item in items:
            yield change(item)

    async def changed_async() -> AsyncIterator[Any]:
        async for item in items:
            yield change(item)

    stream._iterator = changed_async() if is_async else changed()
    return stream


def by_decoder(stream: Any, change: Change, *, is_async: bool) -> Any:
    """The stream itself, with another decoder of its bytes."""
    decoder = stream._decoder

    class Decoder:
        def iter_bytes(self, pieces: Any) -> Iterator[Any]:
            for event in decoder.iter_bytes(pieces):
                event._data = event._data.replace(SECRET, REDACTED)
                yield event

        async def aiter_bytes(self, pieces: Any) -> AsyncIterator[Any]:
            async for event in decoder.aiter_bytes(pieces):
                event._data = event._data.replace(SECRET, REDACTED)
                yield event

    stream._decoder = Decoder()
    return stream


def by_generator(stream: Any, change: Change, *, is_async: bool) -> Any:
    async def changed_async() -> AsyncIterator[Any]:
        async for item in stream:
            yield change(item)

    return changed_async() if is_async else (change(item) for item in stream)


FORMS: dict[str, Callable[..., Any]] = {
    "a proxy with every method": with_every_method,
    "a proxy with __getattr__": by_attributes,
    "a subclass with __iter__": by_iter_of_subclass,
    "a subclass with __next__": by_next_of_subclass,
    "a subclass with __stream__": by_stream_of_subclass,
    "a replaced iterator": by_iterator,
    "a replaced decoder": by_decoder,
    "a generator": by_generator,
}
"""The forms: each called with a stream, a change of its items, and `is_async`."""
