"""What `stream.sse()` decides, for both faces: which bytes come when, and what the client's leaving means.

The stream runs in a thread or a task of its own, so that a response can wait for it with a limit and send a heartbeat
meanwhile: nothing interrupts a pull, which would lose an event. `Frames` is between the two. It is the stream's last handler,
so a client sees an event when all handlers have.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from ..errors import UsageError
from ..events import Delta, Event, StreamEnd, StreamException
from ..handlers import Handler
from ..protocols.base import Encoder
from ..protocols.event_stream import HEARTBEAT, EventStreamWriter
from .error_mask import ErrorMask

__all__ = ["EventStream", "Frames", "OnDisconnect"]

OnDisconnect: TypeAlias = Literal["cancel", "continue"]
"""What a client's leaving does: it stops the stream, or the stream is read to its end all the same."""

_MOST = 256  # writes that wait for a slow client; the stream waits where there are more


class Frames(Handler):
    """The frames of a stream that were made and not taken yet. Those of one face wait in `wait_for_room`.

    Attributes:
        is_over: the stream has ended, and nothing is added any more.
        is_closed: nobody takes anything any more.
    """

    def __init__(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> None:
        self._manager = manager
        self._writer = writer
        self._mask = mask
        self._waiting: deque[bytes] = deque()
        self._has_failed = self._has_ended = False
        self._ready: Any = None  # an event of threads or tasks, while the response waits
        self._room: Any = None  # and one while the stream does
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

    def take(self) -> bytes | None:
        """All that is ready; a heartbeat if nothing is; None after the end."""
        is_over = self.is_over  # before the last frames are looked for: another thread may add them
        taken: list[bytes] = []
        with contextlib.suppress(IndexError):  # all were taken, or another thread has discarded them
            while True:
                taken.append(self._waiting.popleft())
        _set(self._room)
        if taken:
            return b"".join(taken)
        return None if is_over or self.is_closed else HEARTBEAT

    def handle(self, event: Event, /) -> Any:
        """Add an event's frames. What it returns waits until there is room for more."""
        if self.is_closed:
            if not isinstance(event, Delta):
                self._mask(event)  # which logs an error
            return None
        self._add(self._writer.event(event))
        self._has_failed = self._has_failed or isinstance(event, StreamException)
        self._has_ended = isinstance(event, StreamEnd)
        return self.wait_for_room() if self.is_full else None

    def wait_for_room(self) -> Any:
        """Wait until the client has taken something, or left, or the stream is cancelled."""
        raise NotImplementedError("the face's")

    def fail(self, error: BaseException) -> None:
        """The stream raised. Nearly always its `StreamException` has come already."""
        if self._has_failed:
            return
        event = self._mask.exception_of(error)
        if self.is_closed or self._has_ended:
            self._mask(event)  # which logs it
            return
        try:
            self._add(self._writer.event(event))
        except Exception as another:  # the encoder's own
            self._mask.log(f"{self._writer.protocol} could not be written: {another!r}", another)

    def finish(self) -> None:
        """Nothing is added any more."""
        if not self.is_closed and not self.is_over:
            self._add(self._writer.ending())
        self.is_over = True
        _set(self._ready)

    def discard(self) -> None:
        """Nobody takes anything any more. What comes is not even made."""
        self.is_closed = True
        self._waiting.clear()
        _set(self._ready)
        _set(self._room)

    def _add(self, frames: bytes) -> None:
        if frames:
            self._waiting.append(frames)
            _set(self._ready)


def _set(event: Any) -> None:
    """Set an event, if there was one: the attribute that had it may change at any time, as another thread ends its wait."""
    if event is not None:
        event.set()


class EventStream:
    """A stream's events as bytes for a response: the state that both faces share.

    Args:
        manager: the stream.
        protocol: the name of a protocol, or its encoder.
        keepalive: the seconds without a frame after which a heartbeat comes; None for none.
        on_disconnect: what the client's leaving does.
        retry: as for `EventStreamWriter`.
        expose_errors: show their texts.

    Raises:
        UsageError: an argument is wrong, or the stream was read already.
    """

    _kind = "thread"  # what reads it
    _has_begun = False
    _is_read = False  # just now
    _is_spent = False  # its end was given

    def __init__(
        self,
        manager: Any,
        protocol: str | Encoder,
        keepalive: float | None,
        on_disconnect: OnDisconnect,
        retry: int | None,
        expose_errors: bool,
    ) -> None:
        _check(keepalive, on_disconnect, retry)
        manager.check_unread()
        self._manager = manager
        self._keepalive = keepalive
        self._continues = on_disconnect == "continue"
        mask = ErrorMask(expose=expose_errors)
        self._writer = EventStreamWriter(protocol, retry=retry, mask=mask)
        self._frames = self._new_frames(manager, self._writer, mask)
        self._context = contextvars.copy_context()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the response."""
        return self._writer.headers

    def _new_frames(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> Any:
        raise NotImplementedError("the face's")

    def __del__(self) -> None:
        """A response was dropped."""
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
        if self._is_read:
            raise UsageError(f"another {self._kind} reads this event stream just now")

    def _taken(self) -> bytes | None:
        """What is ready; None after the end."""
        taken: bytes | None = self._frames.take()
        self._is_spent = self._is_spent or taken is None
        return taken


def _check(keepalive: Any, on_disconnect: Any, retry: Any) -> None:
    if on_disconnect not in get_args(OnDisconnect):
        raise UsageError(f"on_disconnect= is 'cancel' or 'continue', not {on_disconnect!r}")
    if keepalive is not None and not (_is_number(keepalive, float) and 0 < keepalive < float("inf")):
        raise UsageError(f"keepalive= is a number of seconds above 0, or None, not {keepalive!r}")
    if retry is not None and not (_is_number(retry) and retry >= 0):
        raise UsageError(f"retry= is a number of milliseconds, or None, not {retry!r}")


def _is_number(value: Any, *more: type) -> bool:
    return isinstance(value, (int, *more)) and not isinstance(value, bool)
