"""The types of values that may be a source.

They are for functions around `stream` and `astream`:

    def answer(source: sk.SyncSource) -> str:
        return sk.stream(source, Log()).get_final_text()
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike
from typing import Any, Protocol, TypeAlias

from ..sources.source import AsyncSource as _AsyncSource
from ..sources.source import Readable, Source

__all__ = ["AnySource", "HttpResponse", "SyncSource"]


class HttpResponse(Protocol):
    """The part of an httpx or httpx2 response that a stream reads."""

    @property
    def status_code(self) -> int:
        """The HTTP status."""
        ...

    def iter_bytes(self) -> Iterator[bytes]:
        """Return the body's bytes, as they arrive."""
        ...


SyncSource: TypeAlias = (
    Iterable[Any] | PathLike[str] | AbstractContextManager[Any] | Callable[[], Any] | HttpResponse | Source | Readable
)
"""What `stream` takes."""

AnySource: TypeAlias = (
    SyncSource | AsyncIterable[Any] | AbstractAsyncContextManager[Any] | Awaitable[Any] | _AsyncSource
)
"""What `astream` takes."""
