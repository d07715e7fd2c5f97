"""The connection of a runner with its language's process: two pipes for JSON lines, and a way to wake the thread that
waits for them.

The process writes frames to one pipe and reads commands from the other. Nothing here blocks: a process that is stopped
takes no command, and must not stop the runner as well.

A process ends when the last writer of its pipe is gone. A fork of this program that held one, such as a worker of
`multiprocessing`, would keep the process alive after the program was killed; so a fork closes them all.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["ProcessChannel", "Wakeup", "hold", "pipe", "release"]

READ_SIZE = 1 << 16  # bytes

_held: set[int] = set()


def hold(descriptor: int) -> int:
    """Have a fork close this descriptor; returns it."""
    _held.add(descriptor)
    return descriptor


def pipe() -> tuple[int, int]:
    """Return a new pipe, both ends of which are held."""
    reader, writer = os.pipe()
    return hold(reader), hold(writer)


def release(descriptor: int) -> None:
    """Close a descriptor that was held."""
    _held.discard(descriptor)  # first, so that a fork never closes a number that is used again
    os.close(descriptor)


def _close_in_fork() -> None:
    for descriptor in [*_held]:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_fork)


class ProcessChannel:
    """The pipes to one process.

    Attributes:
        frames: the descriptor to read frames from; -1 while there is no process.
        commands: the descriptor to write commands to; -1 while there is no process.
    """

    def __init__(self) -> None:
        self.frames = self.commands = -1
        self._unfinished: list[bytes] = []  # the beginning of a frame that is not complete
        self._unsent = bytearray()

    def open_frames(self) -> int:
        """Make the pipe for frames; returns the process's end of it."""
        self.frames, theirs = pipe()
        os.set_blocking(self.frames, False)
        return theirs

    def open_commands(self) -> int:
        """Make the pipe for commands; returns the process's end of it."""
        theirs, self.commands = pipe()
        os.set_blocking(self.commands, False)
        return theirs

    def close(self) -> None:
        """Close both pipes, and forget what was not sent or not read."""
        for descriptor in (self.frames, self.commands):
            if descriptor >= 0:
                release(descriptor)
        self.frames = self.commands = -1
        self._unfinished.clear()
        self._unsent.clear()

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command. That the process has ended is noticed where frames are read, not here."""
        self.send_line(msgspec.json.encode(command))

    def send_line(self, line: bytes) -> None:
        """Send a line; `line` has no line end."""
        self._unsent += line + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send as much as the process has room for."""
        with contextlib.suppress(BlockingIOError):
            try:
                while self._unsent:
                    del self._unsent[: os.write(self.commands, memoryview(self._unsent)[:READ_SIZE].tobytes())]
            except BrokenPipeError:
                self._unsent.clear()

    @property
    def unsent(self) -> bool:
        """Whether something waits to be sent: then call `flush` once `commands` can be written to."""
        return bool(self._unsent)

    def read_frames(self) -> list[dict[str, Any]] | None:
        """Return the complete frames that are available; None if the process has closed its end."""
        try:
            data = os.read(self.frames, READ_SIZE)
        except BlockingIOError:
            return []
        if not data:
            return None
        first, *lines = data.split(b"\n")
        self._unfinished.append(first)
        if not lines:
            return []
        complete, self._unfinished = [b"".join(self._unfinished), *lines[:-1]], [lines[-1]]
        return [frame for line in complete if (frame := _parse(line)) is not None]


class Wakeup:
    """A pipe that one thread polls and any thread can write to.

    Attributes:
        reader: the descriptor to poll.
    """

    def __init__(self) -> None:
        self.reader, self._writer = pipe()
        self._owner = os.getpid()
        for descriptor in (self.reader, self._writer):
            os.set_blocking(descriptor, False)

    def set(self) -> None:
        """Make `reader` readable. From any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._writer, b"x")

    def clear(self) -> None:
        """Make `reader` wait again."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.reader, 4096):
                pass

    def __del__(self) -> None:
        if os.getpid() == self._owner:  # in a fork they are closed already
            for descriptor in (self.reader, self._writer):
                release(descriptor)


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a frame; None for any other line, which code may have written to the descriptor."""
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]  # decoded JSON
