"""Stopping a thread that waits for the network, from another thread.

A thread cannot be stopped safely just anywhere: it may hold a lock, or have changed half of something. So it is stopped only
while it waits for the bytes of a connection, in httpcore's streams (httpx, and with it the clients of openai and anthropic) or
the standard library's (`http.client`, and with it urllib and requests). The connection is shut down, and `Stopped` is raised in
the thread, so that no client takes this for a failure and tries again. A user's function may also read streams of its own, such
as a sub-agent's: these are cancelled. A graph's nodes run in other threads, and are stopped there. All other waits are left alone. So are those in a `finally`, and in code that leaves a
`with`: it may use the network to clean up.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import operator
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from ..core.steps import Stopped
from .graph_nodes import node_threads, runs_nodes
from .stacks import awaited_connection, is_in_another_call, is_in_call_of

__all__ = ["HttpConnection", "Interruptible", "Stopped", "close_graph", "hang_up", "stop_with_caller"]

_T = TypeVar("_T")
_caller: contextvars.ContextVar[Interruptible | None] = contextvars.ContextVar("streamkit_caller", default=None)


class _Stream(Protocol):
    @property
    def ended(self) -> bool: ...

    def cancel(self) -> None: ...


class Interruptible:
    """Makes calls, or pulls an iterator, so that another thread or a signal handler can stop it. Once stopped, it does no more.
    It makes one call at a time."""

    # The state before anything stops it. Most are never stopped.
    _stopped = False
    _stopped_streams = False
    _has_raised = False  # `_break` has set an exception for the thread, which may not have raised it yet
    _streams: tuple[weakref.ref[_Stream], ...] = ()  # those that the call began to read

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call the function and return its result.

        Raises:
            Stopped: `cancel` was called, before or meanwhile.
        """
        try:
            if self._stopped:
                raise Stopped
            return function(*arguments)
        finally:
            if self._stopped:  # `cancel` sets it before it looks for the call, so no lock is needed here
                self._clear_exception()

    def each(self, values: Iterator[_T]) -> Iterator[_T]:
        """Yield the values of an iterator, which is pulled as by `call`."""
        # One that has nothing but `__next__`, or begins anew where it is iterated, is pulled by that.
        pulled = values if _is_its_own_iterator(values) else map(next, itertools.repeat(values))
        try:
            for value in pulled:
                if self._stopped:
                    break
                yield value
                del value  # it may be large, and the next one may be long in coming
                if self._stopped:
                    break
            else:
                return
        finally:
            if self._stopped:
                self._clear_exception()
        raise Stopped

    @property
    def is_stopped(self) -> bool:
        """Whether `cancel` was called."""
        return self._stopped

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

    def cancel(self) -> None:
        """Stop the present call and all later ones. Returns at once."""
        if self._stopped or not self._lock.acquire(blocking=False):
            return
        try:
            self._stopped = True
            self._stop_streams()
            thread = self._find_thread()
            missed = thread is not None and (thread == threading.get_ident() or not self._break())
        finally:
            self._lock.release()
        if missed:  # the thread may begin to wait at any moment
            threading.Thread(target=self._watch, name="streamkit-cancel", daemon=True).start()

    def _watch(self) -> None:
        for pause in _pauses():
            time.sleep(pause)
            with self._lock:
                if self._break():
                    return

    def _find_thread(self) -> int | None:
        """Return the thread that is in a call or pulls a value, None if there is none."""
        # No public function shows where other threads are.
        threads = sys._current_frames().items()  # pyright: ignore[reportPrivateUsage]
        return next((thread for thread, top in threads if is_in_call_of(top, self, _calls())), None)

    def _break(self) -> bool:
        """Stop the thread if it waits for the network. Returns False if this has to be tried again: the thread does something
        else, or a call inside of the call may have taken the stop as its own. Called with the lock held, so that the thread
        cannot leave its call meanwhile."""
        thread = self._find_thread()
        if thread is None:
            return True
        top = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
        connection = awaited_connection(top, self, _calls())
        if connection is None:
            _break_nodes(top)
            return False
        is_certain = not is_in_another_call(top, self, _calls())
        if not _stop_wait(thread, top, connection):
            return False
        self._has_raised = _python_api() is not None
        return is_certain

    def _clear_exception(self) -> None:
        """Take an exception that was set for the call and not raised in it.

        CPython can replace such an exception, or withdraw it. But up to 3.12 a withdrawn one leaves a mark that only a raised
        one removes. While it is there all Python code is slower, and traced code can stand still. So one is raised here.
        """
        with contextlib.suppress(Stopped):
            with self._lock:  # `_break` sets no other
                has_raised = self._has_raised
            if has_raised:
                _raise_in(_python_api(), threading.get_ident())
                while True:  # until it is raised, which is before the next round
                    pass


def _calls() -> tuple[CodeType, ...]:
    """Return the code of the methods that make calls."""
    return Interruptible.call.__code__, Interruptible.each.__code__


def _stop_wait(thread: int, top: FrameType | None, connection: Any) -> bool:
    """Stop a thread that waits for a connection. Returns whether its innermost frame was still this one, otherwise it is left alone."""
    if (python := _python_api()) is not None:
        # The thread may go on between two instructions of ours, into a `finally` perhaps. So it is looked at again and
        # stopped in a single one, which runs a chain of C functions.
        present = map(operator.methodcaller("get", thread), iter(sys._current_frames, None))  # pyright: ignore[reportPrivateUsage]
        if not _raise_in(python, thread, map(operator.is_, (top,), present)):
            return False
    hang_up(connection)
    return True


def _break_nodes(waiting: FrameType | None) -> None:
    """Stop the nodes of a graph that a thread waits for, as far as they wait for the network."""
    for thread, top in node_threads(sys._current_frames(), waiting):  # pyright: ignore[reportPrivateUsage]
        if (connection := awaited_connection(top, None, ())) is not None:
            _stop_wait(thread, top, connection)


def close_graph(close: Callable[[], object]) -> None:
    """Close an iterator. If it is a graph's, it waits for its nodes, which are stopped where they wait for the network."""
    if not runs_nodes(sys._current_frames()):  # pyright: ignore[reportPrivateUsage]
        close()
        return
    closing, is_closed = threading.get_ident(), threading.Event()

    def stop_nodes() -> None:
        for pause in _pauses():
            if is_closed.wait(pause):
                return
            _break_nodes(sys._current_frames().get(closing))  # pyright: ignore[reportPrivateUsage]

    threading.Thread(target=stop_nodes, name="streamkit-close", daemon=True).start()
    try:
        close()
    finally:
        is_closed.set()


def _pauses() -> Iterator[float]:
    """Yield the seconds to wait before it is checked again whether a thread can be stopped: ever more of them."""
    pause = 0.01
    while True:
        yield pause
        pause = min(2 * pause, 0.5)


def _is_its_own_iterator(values: Any) -> bool:
    return hasattr(values, "__iter__") and iter(values) is values


def stop_with_caller(stream: _Stream) -> None:
    """A stream begins. If a function that can be stopped reads it, it is cancelled with that."""
    if (caller := _caller.get()) is not None:
        caller.add_stream(stream)


def _python_api() -> Any:
    """CPython's own functions; None in a Python that has none."""
    import ctypes  # slow to import, and needed by few streams

    return getattr(ctypes, "pythonapi", None)


def _raise_in(python: Any, thread: int, where: Iterable[bool] = (True,)) -> bool:
    """Raise `Stopped` in a thread before its next instruction, if the only one of these values is true. Returns whether."""
    import ctypes

    raises = partial(python.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread))
    return bool([*map(raises, itertools.compress((ctypes.py_object(Stopped),), where))])


class HttpConnection:
    """The connection of an HTTP response of httpx; nothing for any other response."""

    __slots__ = ("_response",)

    def __init__(self, response: Any) -> None:
        self._response = response

    def cancel(self) -> None:
        """End it."""
        network = getattr(self._response, "extensions", {}).get("network_stream")
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
