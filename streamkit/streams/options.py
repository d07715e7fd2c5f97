"""What `stream` and `astream` take: the types of values that may be a source, and the options, checked before anything is opened.

The types are for functions around these two:

    def answer(source: sk.SyncSource) -> str:
        return sk.stream(source, Log()).get_final_text()
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from ..errors import UsageError
from ..limits import Limits, Timeouts
from ..protocols import Decoder, registry
from ..sources.source import AsyncSource, Readable, Source

if TYPE_CHECKING:
    from ..retry import Retry

__all__ = ["MAX_STEPS", "AnySource", "HttpResponse", "StreamOptions", "SyncSource", "decoder_of"]


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

AnySource: TypeAlias = SyncSource | AsyncIterable[Any] | AbstractAsyncContextManager[Any] | Awaitable[Any] | AsyncSource
"""What `astream` takes."""

MAX_STEPS = 100
"""How many sources a run may have with `then=`, unless `max_steps=` says otherwise."""


class StreamOptions(msgspec.Struct, frozen=True):
    """The options of a stream, in the order and with the meaning that `stream` documents."""

    protocol: str | type[Decoder] | None = None
    strict: bool = False
    then: Callable[[Any], Any] | None = None
    max_steps: int = MAX_STEPS
    fields: Mapping[str, str] | None = None
    after: str | None = None
    limits: Limits | None = None
    timeouts: Timeouts | None = None
    reasoning_tag: str | None = None
    output_type: Any = None  # an `OutputType` where an agent asks for it
    retry: Retry | int | None = None
    fallbacks: Sequence[Any] = ()

    def check(self) -> None:
        """Check what users passed to `stream`, who may use no type checker.

        Raises:
            UsageError: an option has the wrong type.
        """
        from ..arguments import check_count, check_kind  # few streams have options

        _check(self.then, self.after)
        check_count("max_steps", self.max_steps)
        check_kind("limits", self.limits, Limits)
        check_kind("timeouts", self.timeouts, Timeouts)
        if self.after is not None and (self.retry is not None or self.fallbacks):
            raise UsageError(
                "`after=` resumes one source, which cannot be asked again: leave out `retry=` and `fallbacks=`"
            )


def decoder_of(protocol: object) -> type[Decoder] | None:
    """Return the decoder that `protocol=` names, or is; None for None.

    Raises:
        UsageError: there is no such protocol.
    """
    if isinstance(protocol, str):
        return registry.decoder_of(protocol)
    if protocol is None or (isinstance(protocol, type) and issubclass(protocol, Decoder)):
        return protocol
    raise UsageError(f"a protocol is a name or a Decoder class, not {protocol!r}")


def _check(then: object, after: object) -> None:
    if then is not None and not callable(then):
        raise UsageError(f"`then` is called with the stream for its next source; {then!r} cannot be called")
    if after is not None and not isinstance(after, str):
        raise UsageError(f"a cursor is a str, as `stream.cursor` returns it, not {after!r}")
