"""Stopping a thread that waits for the network, from another thread.

No thread can be stopped soundly wherever it is: it may hold a lock, or have changed half of something. So it is
stopped in one place alone, where it waits for the bytes of a connection: httpcore's streams (httpx, and with it the
clients of openai and anthropic) and the standard library's (`http.client`, and with it urllib and requests). There its
connection is shut down, and `Stopped` is raised in it, which no client takes for a failure to try again. A function of
the user's may also read streams of its own, as a sub-agent's: these are cancelled. Any other wait ends when it ends.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from ..core.steps import Stopped

if TYPE_CHECKING:
    import socket

__all__ = ["Interruptible", "Stopped", "hang_up", "hang_up_response", "stop_with_caller"]

_T = TypeVar("_T")
_caller: contextvars.ContextVar[Interruptible | None] = contextvars.ContextVar("streamkit_caller", default=None)
_SOON, _LATER = 0.01, 0.5  # seconds between two looks at a thread that was not waiting for the network yet


class _Stream(Protocol):
    @property
    def ended(self) -> bool: ...

    def cancel(self) -> None: ...


class Interruptible:
    """Makes calls, one at a time, that another thread or a signal handler can stop. Once stopped, it makes no more."""

    __slots__ = ("_has_raised", "_lock", "_stopped", "_stopped_streams", "_streams", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None  # the one that is in a call
        self._stopped = self._stopped_streams = False
        self._has_raised = False  # an exception was set for the call; perhaps it is not raised yet
        self._streams: tuple[weakref.ref[_Stream], ...] = ()  # those that the call began to read

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call the function and return its result.

        Raises:
            Stopped: `stop` was called, before or meanwhile.
        """
        self._thread = threading.get_ident()
        try:
            if self._stopped:
                raise Stopped
            return function(*arguments)
        finally:
            self._thread = None
            if self._stopped:  # `stop` sets it before it reads `_thread`, so no lock is needed here
                self._clear_exception()

    def each(self, values: Iterator[_T]) -> Iterator[_T]:
        """The values of an iterator, which is pulled as by `call`."""
        present_thread, pull = threading.get_ident, next
        while True:
            self._thread = present_thread()
            try:
                if self._stopped:
                    raise Stopped
                value = pull(values)
            except StopIteration:
                return
            finally:
                self._thread = None
                if self._stopped:
                    self._clear_exception()
            yield value

    def call_user(self, function: Callable[[], _T]) -> _T:
        """As `call`, for a function that may read streams of its own, which are cancelled with it. Where that ended one,
        `Stopped` is raised in place of the function's result: it comes from a part of the stream."""
        token = _caller.set(self)
        try:
            result = self.call(function)
        except Exception:
            if not self._stopped_streams:
                raise
        else:
            if not self._stopped_streams:
                return result
        finally:
            _caller.reset(token)
            self._streams = ()
        raise Stopped

    def add_stream(self, stream: _Stream) -> None:
        """The present call reads this stream."""
        self._streams += (weakref.ref(stream),)
        if self._stopped:
            self._stop_streams()

    def _stop_streams(self) -> None:
        for reference in self._streams:
            stream = reference()
            if stream is not None and not stream.ended:
                self._stopped_streams = True
                stream.cancel()

    def stop(self) -> None:
        """Stop the present call and all later ones. Returns at once."""
        if self._stopped or not self._lock.acquire(blocking=False):
            return
        try:
            self._stopped = True
            self._stop_streams()
            missed = self._thread is not None and (self._thread == threading.get_ident() or not self._break())
        finally:
            self._lock.release()
        if missed:  # the thread may begin to wait at any moment
            threading.Thread(target=self._watch, name="streamkit-cancel", daemon=True).start()

    def _watch(self) -> None:
        pause = _SOON
        while True:
            time.sleep(pause)
            pause = min(2 * pause, _LATER)
            with self._lock:
                if self._break():
                    return

    def _break(self) -> bool:
        """Stop the thread if it waits for the network; returns False if it does something else. Called with the lock held,
        so the thread cannot leave its call meanwhile."""
        thread = self._thread
        if thread is None:
            return True
        # No public function shows where another thread is.
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        connection = _awaited(frames.get(thread))
        if connection is None:
            return False
        self._has_raised = _raise_in(thread, Stopped)
        hang_up(connection)
        return True

    def _clear_exception(self) -> None:
        """Take an exception that was set for the call and not raised in it.

        CPython can replace such an exception, or withdraw it. But up to 3.12 a withdrawn one leaves a mark that only a raised
        one removes. While it is there all Python code is slower, and traced code can stand still. So one is raised here.
        """
        with contextlib.suppress(Stopped):
            with self._lock:  # `_break` sets no other
                has_raised = self._has_raised
            if has_raised:
                _raise_in(threading.get_ident(), Stopped)
                while True:  # until it is raised, which is before the next round
                    pass


def stop_with_caller(stream: _Stream) -> None:
    """A stream begins. If a function that can be stopped reads it, it is cancelled with that."""
    if (caller := _caller.get()) is not None:
        caller.add_stream(stream)


def _awaited(frame: FrameType | None) -> socket.socket | None:
    """The connection that a thread reads or writes, None if it does something else."""
    import socket  # only where something is stopped

    while frame is not None:
        code = frame.f_code
        if code.co_name in ("read", "write", "readinto") and code.co_varnames[:1] == ("self",):
            stream: Any = frame.f_locals.get("self")
            found: Any = getattr(stream, "_sock", None) if isinstance(stream, socket.SocketIO) else _of_httpcore(stream)
            if isinstance(found, socket.socket):
                return found
        frame = frame.f_back
    return None


def _of_httpcore(stream: Any) -> Any:
    # Look at the type: reading an attribute of a user's object could run any code.
    kind = type(cast("object", stream))
    if all(callable(getattr(kind, name, None)) for name in ("get_extra_info", "start_tls", "read")):
        return stream.get_extra_info("socket")
    return None


def _raise_in(thread: int, kind: type[BaseException]) -> bool:
    """Raise an exception in a thread before its next instruction. Returns False if this Python cannot."""
    import ctypes  # slow to import, and needed by few streams

    python = getattr(ctypes, "pythonapi", None)
    if python is None:
        return False
    python.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
    return True


def hang_up_response(response: Any) -> None:
    """End the connection of an HTTP response of httpx; nothing for any other response, or None."""
    network = getattr(response, "extensions", {}).get("network_stream")
    if network is not None and (connection := network.get_extra_info("socket")) is not None:
        hang_up(connection)


def hang_up(connection: Any) -> None:
    """End a connection that another thread reads from. (Closing its socket would not wake that thread.)"""
    import socket

    with contextlib.suppress(OSError):
        if isinstance(connection, socket.socket):
            socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which would drop its state
        else:
            connection.shutdown(socket.SHUT_RDWR)
