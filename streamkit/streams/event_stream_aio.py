"""`AsyncStreamManager.sse()`, on asyncio and trio: a task reads the stream, and the response takes its frames from an async
iterator.

`event_stream_sync.py` is the same without `async` and `await`; a test checks that methods of the same name are otherwise equal.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

from ..protocols.event_stream import EventStreamWriter
from .error_mask import ErrorMask
from .event_stream import EventStream, ReadyFrames, lines_writer, sse_writer
from .tasks import scheduler, start_task

__all__ = ["AsyncEventStream", "AsyncFrames", "lines_writer", "sse_writer"]


class AsyncFrames(ReadyFrames):
    """Frames that a task adds."""

    _task: int | None = None
    _schedule: Callable[[Callable[[], object]], object] | None = None

    def start(self) -> None:
        """Read the stream in a task that belongs to no task group: it may outlive the request's."""
        self._over = anyio.Event()
        self._schedule = scheduler()
        start_task(self._read, self._end)

    @property
    def is_reader(self) -> bool:
        """Whether the stream's own task calls this."""
        return anyio.get_current_task().id == self._task

    async def wait_until_ready(self, seconds: float | None) -> None:
        """Wait until there is something to take, at most this long."""
        self._ready = ready = anyio.Event()  # set before `is_ready` is read, so that no frame is missed
        if not self.is_ready:
            with anyio.move_on_after(seconds):
                await ready.wait()
        self._ready = None

    async def wait_for_room(self) -> None:
        while True:
            self._room = room = anyio.Event()
            if not self.is_full:
                break
            await self._manager.wait_for(room)
        self._room = None

    async def stop(self) -> bool:
        """Cancel the stream, and return when it has ended. Returns False if it has ended already, or calls this itself."""
        if self.is_reader or self._over.is_set():
            return False
        self._manager.cancel()
        with anyio.CancelScope(shield=True):  # code that runs has to end, even if the task of the response is cancelled
            await self._over.wait()
        return True

    def drop(self) -> None:
        """Discard the frames. May be called in any thread, and after the event loop has ended."""
        if self._schedule is not None:
            with contextlib.suppress(RuntimeError):
                self._schedule(self.discard)

    async def _read(self) -> None:
        self._task = anyio.get_current_task().id
        try:
            await self._manager.until_done()
        except anyio.get_cancelled_exc_class():  # the event loop ends
            raise
        except BaseException as error:
            self.fail(error)
        finally:
            self.finish()

    def _end(self) -> None:
        self.finish()  # it may have been cancelled before its first step
        self._over.set()


class AsyncEventStream(EventStream, AsyncIterator[bytes]):
    """As `SyncEventStream`, as an async iterator: what `AsyncStreamManager.sse()` returns.

    Attributes:
        headers: the headers to send with the response.
    """

    _kind = "task"

    def __aiter__(self) -> AsyncIterator[bytes]:
        """As `SyncEventStream.__iter__`."""
        self._check_unspent()
        return self

    async def __anext__(self) -> bytes:
        """As `SyncEventStream.__next__`. A task that is cancelled here has closed it."""
        self._check_single()
        if not self._has_begun:
            self._begin()
            return self._writer.opening()
        self._is_read = True
        try:
            await self._frames.wait_until_ready(self._keepalive)
        except BaseException:
            self._was_interrupted = True
            await self.aclose()
            raise
        finally:
            self._is_read = False
        if (taken := self._taken()) is None:
            raise StopAsyncIteration
        return taken

    async def aclose(self) -> None:
        """As `SyncEventStream.close`."""
        if self._continues and not self._has_begun and not self._frames.is_closed:
            self._begin()
        self._frames.discard()
        if self._continues:
            return
        if self._has_begun:
            await self._frames.stop()
        else:
            await self._manager.close()

    def _new_frames(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> AsyncFrames:
        return AsyncFrames(manager, writer, mask)
