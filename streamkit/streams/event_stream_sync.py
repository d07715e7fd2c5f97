"""`StreamManager.sse()`: a thread reads the stream, and the response takes its frames from an iterator.

`event_stream_aio.py` is the same with `async` and `await`; a test checks that methods of the same name are otherwise equal.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator
from typing import Any

from ..protocols.event_stream import EventStreamWriter
from .error_mask import ErrorMask
from .event_stream import EventStream, ReadyFrames, lines_writer, sse_writer

__all__ = ["SyncEventStream", "SyncFrames", "lines_writer", "sse_writer"]


class SyncFrames(ReadyFrames):
    """Frames that a thread adds."""

    _thread: threading.Thread | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._over = threading.Event()

    def start(self) -> None:
        """Read the stream in a thread: a daemon, so that no client keeps the process from ending."""
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._read,), name="streamkit-sse", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system has no thread left
            self._over.set()
            raise

    @property
    def is_reader(self) -> bool:
        """Whether the stream's own thread calls this."""
        return threading.current_thread() is self._thread

    def wait_until_ready(self, seconds: float | None) -> None:
        """Wait until there is something to take, at most this long."""
        self._ready = ready = threading.Event()  # set before `is_ready` is read, so that no frame is missed
        if not self.is_ready:
            ready.wait(seconds)
        self._ready = None

    def wait_for_room(self) -> None:
        while True:
            self._room = room = threading.Event()
            if not self.is_full:
                break
            self._manager.wait_for(room)
        self._room = None

    def stop(self) -> bool:
        """Cancel the stream, and return when it has ended. Returns False if it has ended already, or calls this itself."""
        if self.is_reader or self._over.is_set():
            return False
        self._manager.cancel()
        self._over.wait()
        return True

    drop = ReadyFrames.discard

    def _read(self) -> None:
        try:
            self._manager.until_done()
        except BaseException as error:
            self.fail(error)
        finally:
            self.finish()
            self._over.set()


class SyncEventStream(EventStream, Iterator[bytes]):
    """A stream's events as the body of a response: what `StreamManager.sse()` returns. Each item is one or more whole frames.

    Attributes:
        headers: the headers to send with the response.
    """

    def __iter__(self) -> Iterator[bytes]:
        """Itself.

        Raises:
            UsageError: it has ended.
        """
        self._check_unspent()
        return self

    def __next__(self) -> bytes:
        """Return the frames that are ready; else wait for the next, or send a keepalive comment."""
        self._check_single()
        if not self._has_begun:
            self._begin()
            return self._writer.opening()
        self._is_read = True
        try:
            self._frames.wait_until_ready(self._keepalive)
        except BaseException:
            self._was_interrupted = True
            self.close()
            raise
        finally:
            self._is_read = False
        if (taken := self._taken()) is None:
            raise StopIteration
        return taken

    def close(self) -> None:
        """The client has disconnected. With `on_disconnect="cancel"` it returns when running code has ended, else at once."""
        if self._continues and not self._has_begun and not self._frames.is_closed:
            self._begin()
        self._frames.discard()
        if self._continues:
            return
        if self._has_begun:
            self._frames.stop()
        else:
            self._manager.close()

    def _new_frames(self, manager: Any, writer: EventStreamWriter, mask: ErrorMask) -> SyncFrames:
        return SyncFrames(manager, writer, mask)
