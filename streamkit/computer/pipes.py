"""The two named pipes of one run, and the thread that reads what is written to them after the run has ended."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
import threading
from typing import Literal

from .process_channel import hold, pipe, release

__all__ = ["Pipes", "Stream"]

Stream = Literal["stdout", "stderr"]

READ_SIZE = 1 << 16  # bytes
_PIPE_CAPACITY = 1 << 20  # bytes, where the system allows it to be set
_LINE_END_DELAY = 1  # millisecond that a line waits for its line end


class Pipes:
    """stdout and stderr of one run, as named pipes which the language's process opens.

    Text is decoded as UTF-8; invalid bytes become replacement characters.

    Args:
        directory: where the pipes are made.
        run_id: the beginning of their names.

    Attributes:
        names: the paths of stdout and stderr.
        open: the descriptors to read, each with its stream.
        filled: whether the newest read was as large as a read may be, so there is probably more.

    Raises:
        OSError: the pipes cannot be made.
    """

    def __init__(self, directory: str, run_id: str) -> None:
        self.names = tuple(os.path.join(directory, f"{run_id}.{number}") for number in (1, 2))
        self.open: dict[int, Stream] = {}
        self.filled = False
        # Descriptors of our own to write to: without a writer a pipe is at its end, which it must not be before the run.
        self._writers: list[int] = []
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        try:
            for name, stream in zip(self.names, streams, strict=True):
                self._make(name, stream)
        except OSError:
            self.release()
            raise

    def _make(self, name: str, stream: Stream) -> None:
        os.mkfifo(name, 0o600)
        descriptor = hold(os.open(name, os.O_RDONLY | os.O_NONBLOCK))
        self.open[descriptor] = stream
        self._decoders[descriptor] = codecs.getincrementaldecoder("utf-8")("replace")
        self._writers.append(hold(os.open(name, os.O_WRONLY | os.O_NONBLOCK)))
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_CAPACITY)

    def read(self, descriptor: int) -> str:
        """Return the text that is available, about 64 KB at most; "" if there is none."""
        try:
            data = os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            return ""
        self.filled = len(data) == READ_SIZE
        if not data.endswith(b"\n") and not self.filled:
            data += self._read_line_end(descriptor)
        return self._decoders[descriptor].decode(data)

    def _read_line_end(self, descriptor: int) -> bytes:
        """Return what follows within a moment: `print` writes a line and its line end one after the other."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if any(event & select.POLLIN for _, event in poll.poll(_LINE_END_DELAY)):
            with contextlib.suppress(BlockingIOError):
                return os.read(descriptor, READ_SIZE)
        return b""

    def incomplete_text(self) -> dict[Stream, str]:
        """Return what the decoders still hold: characters of which only a part was written, as replacement
        characters."""
        return {stream: self._decoders[descriptor].decode(b"", True) for descriptor, stream in self.open.items()}

    def release(self) -> None:
        """End the use of the pipes for the run. Processes that still write to them neither fail nor block."""
        for name in self.names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        for writer in self._writers:
            release(writer)
        for descriptor in self.open:
            _late_output.discard(descriptor)
        self.open.clear()


class _LateOutput:
    """Reads pipes of finished runs to their end, and discards what comes.

    One thread reads any number of pipes; it ends with the last of them.
    """

    def __init__(self) -> None:
        self._reset()
        # A fork has neither the thread nor a use for the pipes.
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._added: list[int] = []
        self._wake = -1  # writing to it wakes the thread; -1 while there is no thread

    def discard(self, descriptor: int) -> None:
        """Read this pipe to its end, then close it."""
        if _is_at_end(descriptor):
            release(descriptor)
            return
        with self._lock:
            self._added.append(descriptor)
            if self._wake < 0:
                woken, self._wake = pipe()
                threading.Thread(target=self._read, args=(woken,), name="streamkit-discard", daemon=True).start()
            os.write(self._wake, b"x")

    def _read(self, woken: int) -> None:
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        reading: set[int] = set()
        while self._take_added(reading, poll):
            for descriptor, _ in poll.poll():
                if descriptor == woken:
                    os.read(woken, READ_SIZE)
                elif _is_at_end(descriptor):
                    poll.unregister(descriptor)
                    reading.remove(descriptor)
                    release(descriptor)
        release(woken)

    def _take_added(self, reading: set[int], poll: select.poll) -> bool:
        """Take over the pipes that were added. False if none is left: the thread ends, and the next pipe starts another."""
        with self._lock:
            for descriptor in self._added:
                poll.register(descriptor, select.POLLIN)
            reading.update(self._added)
            self._added.clear()
            if not reading:
                release(self._wake)
                self._wake = -1
            return bool(reading)


def _is_at_end(descriptor: int) -> bool:
    """Discard up to `READ_SIZE` bytes; whether the pipe is at its end."""
    try:
        return not os.read(descriptor, READ_SIZE)
    except BlockingIOError:
        return False


_late_output = _LateOutput()
