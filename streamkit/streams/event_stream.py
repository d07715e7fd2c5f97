"""The shared part of `stream.sse()` for threads and for tasks: which bytes are sent when, and what a disconnect does.

The stream runs in a thread or a task of its own, so that the response can wait for it with a timeout and send keepalive
comments meanwhile, without interrupting a pull of the source, which would lose an event. `ReadyFrames` is the queue between the
two. It is the last handler of the stream, so a client receives an event after all other handlers have.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from ..errors import UsageError
from ..events import Delta, Event, StreamEnd, StreamException
from ..handlers import Handler
from ..protocols.base import Encoder
from ..protocols.event_stream import EventStreamWriter, JsonLinesWriter
from .error_mask import ErrorMask

__all__ = ["EventStream", "OnDisconnect", "ReadyFrames", "lines_writer", "sse_writer"]

OnDisconnect: TypeAlias = Literal["cancel", "continue"]
"""What happens when the client disconnects: the stream is cancelled, or it is read to its end all the same."""

_MOST = 256  # pieces that wait for a slow client; with more, the stream waits


class ReadyFrames(Handler):
    """The queue of frames that were encoded and not sent yet. When it is full, the stream waits in `wait_for_room`.

    Attributes:
        is_over: whether the stream has ended, so that nothing more is added.
        is_closed: whether the response is closed, so that nothing more is taken.
    """

    def __init__(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> None:
        self._manager = manager
        self._writer = writer
        self._mask = mask
        self._waiting: deque[bytes] = deque()
        self._has_failed = self._has_ended = False
        self._ready: Any = None  # a threading or anyio event, while the response waits for frames
        self._room: Any = None  # the same, while the stream waits for room
        self.is_over = False
        self.is_closed = False

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take, or nothing more comes."""
        return bool(self._waiting) or self.is_over or self.is_closed

    @property
    def is_full(self) -> bool:
        """Whether the stream has to wait for the client."""
        return len(self._waiting) >= _MOST and not self.is_closed and not self._manager.is_closing

    @property
    def withdraws(self) -> bool:
        """Whether its client can take back messages that were sent."""
        return self._writer.withdraws

    def take(self) -> bytes | None:
        """Return all that is ready; a keepalive if nothing is; None after the end."""
        is_over = self.is_over  # read before the frames are taken: another thread may add the last ones meanwhile
        taken: list[bytes] = []
        with contextlib.suppress(IndexError):  # all were taken, or another thread has discarded them
            while True:
                taken.append(self._waiting.popleft())
        _set(self._room)
        if taken:
            return b"".join(taken)
        return None if is_over or self.is_closed else self._writer.keepalive

    def handle(self, event: Event, /) -> Any:
        """Add an event's frames. Returns what waits for room if the queue is full."""
        if self.is_closed:
            if not isinstance(event, Delta):
                self._mask(event)  # which logs an error
            return None
        self._add(self._writer.event(event))
        self._has_failed = self._has_failed or isinstance(event, StreamException)
        self._has_ended = isinstance(event, StreamEnd)
        return self.wait_for_room() if self.is_full else None

    def wait_for_room(self) -> Any:
        """Wait until the client has taken frames or disconnected, or the stream is cancelled."""
        raise NotImplementedError("the subclasses for threads and for tasks implement it")

    def fail(self, error: BaseException) -> None:
        """The stream raised. Usually its `StreamException` has been added already."""
        if self._has_failed:
            return
        event = self._mask.exception_of(error)
        if self.is_closed or self._has_ended:
            self._mask(event)  # which logs it
            return
        try:
            self._add(self._writer.event(event))
        except Exception as another:  # raised by the encoder
            self._mask.log(f"{self._writer.protocol} could not be written: {another!r}", another)

    def finish(self) -> None:
        """Add the protocol's ending; nothing follows it."""
        if not self.is_closed and not self.is_over:
            self._add(self._writer.ending())
        self.is_over = True
        _set(self._ready)

    def discard(self) -> None:
        """The response is closed: drop the frames, and encode no further ones."""
        self.is_closed = True
        self._waiting.clear()
        _set(self._ready)
        _set(self._room)

    def _add(self, frames: bytes) -> None:
        if frames:
            self._waiting.append(frames)
            _set(self._ready)


def _set(event: Any) -> None:
    """Set an event unless it is None. (The caller's attribute may change meanwhile, when another thread ends its wait.)"""
    if event is not None:
        event.set()


class EventStream:
    """A stream's events as bytes for a response: the part that is the same for threads and for tasks.

    Args:
        manager: the stream.
        new_writer: makes the writer of the body, with the mask of errors.
        keepalive: the seconds without a frame after which a keepalive is sent; None for never.
        on_disconnect: what happens when the client disconnects.
        expose_errors: send the texts of errors.

    Raises:
        UsageError: an argument is wrong, or the stream was read already.
    """

    _kind = "thread"  # or "task": what iterates it
    _has_begun = False
    _is_read = False  # its next bytes are awaited at this moment
    _is_spent = False  # iteration has come to its end
    _was_interrupted = False  # a wait for its next bytes was, which has closed it

    def __init__(
        self,
        manager: Any,
        new_writer: Callable[[ErrorMask], EventStreamWriter],
        keepalive: float | None,
        on_disconnect: OnDisconnect,
        expose_errors: bool,
    ) -> None:
        _check(keepalive, on_disconnect)
        manager.check_unread()
        self._manager = manager
        self._keepalive = keepalive
        self._continues = on_disconnect == "continue"
        mask = ErrorMask(expose=expose_errors)
        self._writer = new_writer(mask)
        self._frames = self._new_frames(manager, self._writer, mask)
        self._context = contextvars.copy_context()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return self._writer.headers

    def _new_frames(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> Any:
        raise NotImplementedError("the subclasses for threads and for tasks implement it")

    def __del__(self) -> None:
        """The response was dropped without being closed, so nobody reads the stream any more."""
        if self._has_begun and not self._frames.is_over:
            self._frames.drop()
            if not self._continues:
                self._manager.cancel()

    def _begin(self) -> None:
        self._manager.serve(self._frames)
        self._has_begun = True
        self._context.run(self._frames.start)

    def _check_unspent(self) -> None:
        if self._is_spent or self._frames.is_closed:
            raise UsageError(
                "an event stream can be iterated once, and this one has ended: call `sse()` of another stream"
            )

    def _check_single(self) -> None:
        if self._was_interrupted:
            raise UsageError(
                "a wait for this event stream was interrupted, which has closed it before its end: for something to send "
                "while the stream is silent, pass `keepalive=`"
            )
        if self._is_read:
            raise UsageError(f"another {self._kind} reads this event stream just now")

    def _taken(self) -> bytes | None:
        """Return what is ready; None after the end."""
        taken: bytes | None = self._frames.take()
        self._is_spent = self._is_spent or taken is None
        return taken


def sse_writer(protocol: str | Encoder, retry: Any) -> Callable[[ErrorMask], EventStreamWriter]:
    """Return a function that makes the writer of Server-Sent Events.

    Raises:
        UsageError: `retry` is not a number of milliseconds.
    """
    if retry is not None and not (_is_number(retry) and retry >= 0):
        raise UsageError(f"retry= is a number of milliseconds, or None, not {retry!r}")
    return lambda mask: EventStreamWriter(protocol, retry=retry, mask=mask)


def lines_writer(protocol: str | Encoder) -> Callable[[ErrorMask], EventStreamWriter]:
    """Return a function that makes the writer of lines of JSON."""
    return lambda mask: JsonLinesWriter(protocol, mask=mask)


def _check(keepalive: Any, on_disconnect: Any) -> None:
    if on_disconnect not in get_args(OnDisconnect):
        raise UsageError(f"on_disconnect= is 'cancel' or 'continue', not {on_disconnect!r}")
    if keepalive is not None and not (_is_number(keepalive, float) and 0 < keepalive < float("inf")):
        raise UsageError(f"keepalive= is a number of seconds above 0, or None, not {keepalive!r}")


def _is_number(value: Any, *more: type) -> bool:
    return isinstance(value, (int, *more)) and not isinstance(value, bool)
