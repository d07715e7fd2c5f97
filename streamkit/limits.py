"""How much a stream takes from its source, and how long it waits for it: `Limits` and `Timeouts`."""

from __future__ import annotations

import math

import msgspec

from .errors import UsageError

__all__ = ["DEFAULT_LIMITS", "Limits", "Timeouts"]

_MIB = 1 << 20
_SHORTEST_LINE = 1000  # shorter ones are not measured one by one


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes that end a stream with a `LimitError`. Everything that was received before stays in its messages.

        sk.stream(ask, limits=sk.Limits(total=50_000_000)).until_done()

    The defaults are far above what any provider sends. Bytes of a compressed body are counted after decompression. A
    message's content is measured after some hundreds of deltas, and when it is done. Annotations and metadata, such as log
    probabilities, are counted as they come, in characters of JSON text; log probabilities as what they take in memory, which is
    five to seven times that.

    Attributes:
        line: bytes of one item of the body, at least 1,000: a Server-Sent Event with all its lines, or a line of JSON.
        message: characters of one message's content; and likewise of its annotations and metadata.
        open_messages: messages that are open at the same time; a chat's parallel tool calls are.
        error_body: bytes that are read of the body of a response with an error status; the rest is left unread.
        total: characters of all messages of the stream together, with their annotations and metadata.

    Raises:
        UsageError: a limit is not a whole number above 0, or `line` is too small.
    """

    line: int = 64 * _MIB
    message: int = 256 * _MIB
    open_messages: int = 100_000
    error_body: int = _MIB
    total: int = 1024 * _MIB

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise UsageError(f"Limits.{name} is a whole number above 0, not {value!r}")
        if self.line < _SHORTEST_LINE:
            raise UsageError(f"Limits.line is at least {_SHORTEST_LINE:,}, not {self.line}")


DEFAULT_LIMITS = Limits()
"""Those of a stream that was made without `limits=`."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The seconds that a stream waits for its source before it fails with `SourceTimeoutError`. None means no limit.

        sk.stream(ask, timeouts=sk.Timeouts(first=30, idle=10)).until_done()

    Unlike an HTTP client's timeouts, these are about content: a delta that is not empty, or a message that comes whole.
    A server that only sends pings, or begins a message and says nothing in it, does not extend them. Only the time counts in which the stream waits for its source, from
    sending the request on; hooks, and the wait for answers, take none of it. With `then=` each source has its own times.

    As with `cancel()`, a thread is stopped where it waits for the network; any other wait is noticed when it ends.

    Attributes:
        first: until the first content of a source.
        idle: between two pieces of content.
        total: for a whole source.

    Raises:
        UsageError: one is not a number of seconds above 0.
    """

    first: float | None = None
    idle: float | None = None
    total: float | None = None

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (type(value) not in (int, float) or not 0 < value < math.inf):
                raise UsageError(f"Timeouts.{name} is a number of seconds above 0, or None, not {value!r}")
