"""The descriptors by which the computer talks to its processes, none of which a fork of this program may keep open.

A process ends when the last writer of its pipe is gone. A fork that held one, such as a worker of `multiprocessing`, would
keep the process alive after the program that made it was killed.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["hold", "pipe", "release"]

_held: set[int] = set()


def hold(descriptor: int) -> int:
    """Have a fork close this descriptor; returns it."""
    _held.add(descriptor)
    return descriptor


def pipe() -> tuple[int, int]:
    """A new pipe, both ends of which are held."""
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
