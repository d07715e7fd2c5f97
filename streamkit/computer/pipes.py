"""The two pipes of one run, and who reads them after it."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import select
import threading
from typing import Literal

__all__ = ["Pipes", "Stream"]

Stream = Literal["stdout", "stderr"]

READ = 1 << 16  # bytes of one read
_SOON = 1  # millisecond
_SIZE = 1 << 20  # of a pipe, where the system lets it be set


class Pipes:
    """stdout and stderr of one run, as named pipes, which its process opens. Text is decoded as UTF-8; what is none
    becomes replacement characters."""

    def __init__(self, directory: str, run_id: str) -> None:
        self.names = tuple(os.path.join(directory, f"{run_id}.{number}") for number in (1, 2))
        self.open: dict[int, Stream] = {}
        self.filled = False  # whether the newest reading found more than it took
        self._writers: list[int] = []  # our own, so that a pipe has no end before the run has
        self._decoders: dict[int, codecs.IncrementalDecoder] = {}
        streams: tuple[Stream, Stream] = ("stdout", "stderr")
        try:
            for name, stream in zip(self.names, streams, strict=True):
                self._make(name, stream)
        except OSError:
            self.leave()
            raise

    def _make(self, name: str, stream: Stream) -> None:
        os.mkfifo(name, 0o600)
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK)
        self.open[descriptor] = stream
        self._decoders[descriptor] = codecs.getincrementaldecoder("utf-8")("replace")
        self._writers.append(os.open(name, os.O_WRONLY | os.O_NONBLOCK))
        with contextlib.suppress(AttributeError, OSError):
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _SIZE)

    def read(self, descriptor: int) -> str:
        """What is there, about `READ` bytes at most; "" if that is nothing."""
        try:
            data = os.read(descriptor, READ)
        except BlockingIOError:
            return ""
        self.filled = len(data) == READ
        if not data.endswith(b"\n") and not self.filled:
            data += self._soon(descriptor)
        return self._decoders[descriptor].decode(data)

    def _soon(self, descriptor: int) -> bytes:
        """What follows at once: `print` writes a line and its end one after the other."""
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if any(event & select.POLLIN for _, event in poll.poll(_SOON)):
            with contextlib.suppress(BlockingIOError):
                return os.read(descriptor, READ)
        return b""

    def rest(self) -> dict[Stream, str]:
        """The characters that were cut off in their middle."""
        return {stream: self._decoders[descriptor].decode(b"", True) for descriptor, stream in self.open.items()}

    def leave(self) -> None:
        """The run is over: nobody wants what is still written, and nobody who writes it is to fail or wait."""
        for name in self.names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)
        for writer in self._writers:
            os.close(writer)
        for descriptor in self.open:
            _discarding.add(descriptor)
        self.open.clear()


class _Discarding:
    """A thread that reads what nobody wants, of any number of pipes, each to its end. It lives as long as there are any."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # which has neither the thread nor a part in the pipes

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._added: list[int] = []
        self._wake = -1

    def add(self, descriptor: int) -> None:
        if _read_away(descriptor):
            os.close(descriptor)
            return
        with self._lock:
            self._added.append(descriptor)
            if self._wake < 0:
                woken, self._wake = os.pipe()
                threading.Thread(target=self._read, args=(woken,), name="streamkit-discard", daemon=True).start()
            os.write(self._wake, b"x")

    def _read(self, woken: int) -> None:
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        left: set[int] = set()
        while self._goes_on(left, poll):
            for descriptor, _ in poll.poll():
                if descriptor == woken:
                    os.read(woken, READ)
                elif _read_away(descriptor):
                    poll.unregister(descriptor)
                    left.remove(descriptor)
                    os.close(descriptor)
        os.close(woken)

    def _goes_on(self, left: set[int], poll: select.poll) -> bool:
        """Take what was added; False if there is nothing to read, and the next that is added has a thread of its own."""
        with self._lock:
            for descriptor in self._added:
                poll.register(descriptor, select.POLLIN)
            left.update(self._added)
            self._added.clear()
            if not left:
                os.close(self._wake)
                self._wake = -1
            return bool(left)


def _read_away(descriptor: int) -> bool:
    """Read what is there, at most one piece; True at the pipe's end."""
    try:
        return not os.read(descriptor, READ)
    except BlockingIOError:
        return False


_discarding = _Discarding()
