"""Events as Server-Sent Events for a browser or another client: which frames an event makes, in each protocol.

    retry: 1000

    id: 2-91.9c0a3f21
    data: {"type":"text_delta","message_id":"message-1","value":"Hi"}

    : hb

Lines end with LF. Each block is one frame, and `EventStreamWriter` gives whole frames alone. An event that makes several has
its cursor in the last one, so that a client which resumes after a cursor has all frames before it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import msgspec

from ..errors import UsageError
from ..events import Delta, Event
from ..messages.json_text import well_formed
from . import codec, registry
from .base import Encoder
from .frames import KEEPALIVE, sse_frame

__all__ = [
    "KEEPALIVE",
    "SSE_HEADERS",
    "EventStreamWriter",
    "JsonLinesWriter",
    "event_stream_headers",
    "provider_writer",
]

SSE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Content-Type": "text/event-stream",
        "Cache-Control": "no-cache, no-transform",  # nothing on the way compresses it, which would hold it back
        "X-Accel-Buffering": "no",
    }
)
"""The headers of an event stream in any protocol. (`Connection` is the server's, and forbidden in WSGI and HTTP/2.)"""

_BREAKS_A_LINE = re.compile("[\0\r\n]")  # a cursor with these cannot stand in a frame
_MAY_SHOW_AN_ERROR = (b'"error":', b'"decoder-error"')  # in a line whose event `mask` may change


def event_stream_headers(protocol: str) -> Mapping[str, str]:
    """Return the headers of an event stream in a protocol.

    Raises:
        UsageError: there is no such protocol.
    """
    encoder: type[Encoder] = registry.find(protocol).Encoder
    return MappingProxyType({**SSE_HEADERS, **encoder.headers})


class EventStreamWriter:
    """Makes the bytes of one event stream. It does no input or output, and gives whole frames.

    Args:
        protocol: the name of a protocol, or its encoder.
        retry: the milliseconds after which a browser that lost the connection makes another; None leaves it to the browser.
        mask: makes of an event what the client may see of it. Deltas are not passed to it.

    Attributes:
        protocol: the name.
        headers: those of the response.
        keepalive: what is sent while there is nothing else to send.

    Raises:
        UsageError: there is no such protocol.
    """

    def __init__(
        self, protocol: str | Encoder, *, retry: int | None = 1000, mask: Callable[[Event], Event] | None = None
    ) -> None:
        self._encoder = _encoder_of(protocol) if isinstance(protocol, str) else protocol
        self.protocol: str = self._encoder.name
        self.keepalive = self._encoder.keepalive
        self._is_native = self.protocol == "streamkit"
        self._wraps_event_name: bool = registry.find(self.protocol).Decoder.wraps_event_name
        self._retry = retry if self._encoder.sse_ids else None
        self._mask = mask
        self.headers: Mapping[str, str] = MappingProxyType({**SSE_HEADERS, **self._encoder.headers})

    @property
    def withdraws(self) -> bool:
        """Whether the protocol can take back messages that were sent."""
        return self._encoder.withdraws

    def opening(self) -> bytes:
        """Return the first bytes, which are sent at once: the headers leave with them."""
        return KEEPALIVE if self._retry is None else b"retry: %d\n\n" % self._retry

    def event(self, event: Event) -> bytes:
        """Return the frames of the next event; b"" if the protocol has none for it."""
        if self._mask is not None and not isinstance(event, Delta):
            event = self._mask(event)
        if self._is_native:
            return self._frame(codec.encode_event(event), None, event.cursor)
        frames: list[bytes] = []
        items = [*self._encoder.items(event)]
        for number, item in enumerate(items, 1):
            data = item["data"] if self._wraps_event_name else item
            cursor = event.cursor if number == len(items) else None
            frames.append(self._frame(_json(data), self._encoder.event_name(item), cursor))
        return b"".join(frames)

    def line(self, line: bytes, cursor: str | None = None) -> bytes:
        """Return the frame of an event, or of a snapshot, that is encoded already, as a relay has it. It is decoded
        only where it may show an error.

        Raises:
            UsageError: the protocol is not streamkit's own: its encoder needs the events of a stream.
        """
        if not self._is_native:
            raise UsageError(f"{self.protocol} cannot be made of a relay's lines: read them as a stream")
        if self._mask is not None and any(sign in line for sign in _MAY_SHOW_AN_ERROR):
            line = _masked(line, self._mask)
        return self._frame(line, None, cursor)

    def snapshot(self, lines: Iterable[bytes], dropped: int = 0, cursor: str | None = None) -> bytes:
        """Return the one frame of a snapshot, of its encoded events. Raises as `line`."""
        return self.line(codec.encode_snapshot(lines, dropped), cursor)

    def ending(self) -> bytes:
        """Return what comes after the last event: the protocol's sentinel, if it has one."""
        return b"" if self._encoder.done is None else sse_frame(self._encoder.done)

    def _frame(self, data: bytes, name: str | None, cursor: str | None) -> bytes:
        if not cursor or not self._encoder.sse_ids or _BREAKS_A_LINE.search(cursor):
            cursor = None
        return sse_frame(data, None if self._is_native else name, cursor)


class JsonLinesWriter(EventStreamWriter):
    """Makes lines of JSON (NDJSON) in place of Server-Sent Events: one for each item, without cursors, names or a sentinel."""

    def __init__(self, protocol: str | Encoder, *, mask: Callable[[Event], Event] | None = None) -> None:
        super().__init__(protocol, retry=None, mask=mask)
        self.keepalive = b"\n"  # readers of lines skip empty ones
        self.headers = MappingProxyType({**self.headers, "Content-Type": "application/x-ndjson"})

    def opening(self) -> bytes:
        """Nothing: a line may be all that a reader looks at."""
        return b""

    def event(self, event: Event) -> bytes:
        """Return the lines of the next event; b"" if the protocol has none for it."""
        if self._mask is not None and not isinstance(event, Delta):
            event = self._mask(event)
        if self._is_native:
            return codec.encode_event(event) + b"\n"
        return b"".join(_json(item) + b"\n" for item in self._encoder.items(event))

    def ending(self) -> bytes:
        """Nothing: the body ends."""
        return b""


def provider_writer(encoder: Encoder) -> EventStreamWriter:
    """Return what makes the bytes of a stream in the framing of the protocol's provider."""
    return JsonLinesWriter(encoder) if encoder.in_lines else EventStreamWriter(encoder, retry=None)


def _encoder_of(protocol: str) -> Encoder:
    """Return the protocol's encoder, which shows the errors that it gets: `mask` has changed them already."""
    kind: Callable[..., Encoder] = registry.find(protocol).Encoder
    return kind(expose_errors=True) if _masks_errors(kind) else kind()


@lru_cache
def _masks_errors(kind: Callable[..., Encoder]) -> bool:
    """Whether an encoder masks errors unless it is told otherwise. A signature takes longer than a whole stream's beginning."""
    return "expose_errors" in inspect.signature(kind).parameters


def _json(item: Any) -> bytes:
    try:
        return _encode(item)
    except UnicodeEncodeError:  # half of a surrogate pair
        return _encode(well_formed(item).value)


_encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=str).encode


def _masked(line: bytes, mask: Callable[[Event], Event]) -> bytes:
    """Return a line as the client may see it."""
    try:
        if line.startswith(b'{"type":"snapshot"'):
            snapshot = codec.snapshot_from(line)
            return codec.encode_snapshot([codec.encode_event(mask(one)) for one in snapshot.events], snapshot.dropped)
        event = codec.decode_event(line)
    except ValueError:  # an event that an application declared elsewhere
        return line
    shown = mask(event)
    return line if shown is event else codec.encode_event(shown)
