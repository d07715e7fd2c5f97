"""When a signal surely interrupts a process.

Python runs a signal's handler between two instructions of the main thread. A signal that comes after the last of them and
before a system call that waits interrupts neither.
"""

from __future__ import annotations

import time

import psutil

__all__ = ["wait_until_it_waits"]

_LOOK = 0.05  # seconds between two looks


def wait_until_it_waits(pid: int, seconds: float = 120.0) -> None:
    """Return once the main thread of a process is inside of a system call that waits: it slept from one look to the next."""
    process = psutil.Process(pid)
    end, before = time.monotonic() + seconds, None
    while True:
        sleeps = process.status() == psutil.STATUS_SLEEPING
        now = process.num_ctx_switches().voluntary if sleeps else None
        if sleeps and now == before:
            return
        assert time.monotonic() < end, f"process {pid} does not wait"
        before = now
        time.sleep(_LOOK)
