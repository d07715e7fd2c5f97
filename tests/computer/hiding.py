"""A program that starts processes as those do that want to be rid of their parents. It is run by code in a computer.

    python -S hiding.py WAY COUNT TOKEN DIRECTORY

Each process in place makes a file in the directory, named by its id, and waits. The token is there to be found in the
processes' command lines. Every process ends by itself after a minute, and no way starts more than `MOST` processes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

MOST = 256
LIFETIME = 60  # seconds


def wait() -> None:
    """Be in place, until the alarm of this process ends it."""
    signal.alarm(LIFETIME)
    with open(os.path.join(sys.argv[4], str(os.getpid())), "w"):
        pass
    time.sleep(LIFETIME)
    os._exit(0)


def leave_behind(depth: int, session: bool = True) -> None:
    """Wait in a process whose parents have all left, so many of them."""
    for _ in range(depth):
        if session:
            os.setsid()
        if os.fork():
            os._exit(0)
    wait()


def leave_by_thread() -> None:
    """Wait in a thread, while the main one has ended: the process looks as if it were over."""
    os.setsid()
    threading.Thread(target=wait).start()
    ctypes.CDLL(None).pthread_exit(0)


def ignore_signals() -> None:
    """Wait in a session of its own, deaf to every signal that can be ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    leave_behind(2)


WAYS = {
    "stays": wait,
    "new group": lambda: (os.setpgid(0, 0), wait()),
    "new session": lambda: (os.setsid(), wait()),
    "double fork": lambda: leave_behind(2),
    "double fork in the session": lambda: leave_behind(2, session=False),
    "triple fork": lambda: leave_behind(3),
    "parents leave": lambda: leave_behind(20),
    "main thread leaves": leave_by_thread,
    "deaf": ignore_signals,
}


def grow(depth: int) -> None:
    """A tree of processes, each in a session of its own: it doubles with each step, to 2 ** depth processes."""
    signal.alarm(LIFETIME)
    for level in range(depth):
        if os.fork() == 0:
            signal.alarm(LIFETIME)
            os.setsid()
            grow(depth - level - 1)
            return
    wait()


def move_on(generations: int) -> None:
    """A process that is replaced by its child all the time, each in a session of its own."""
    for _ in range(generations):
        signal.alarm(LIFETIME)
        time.sleep(0.005)
        if os.fork():
            os._exit(0)
        os.setsid()
    wait()


def main() -> None:
    way, count = sys.argv[1], int(sys.argv[2])
    if way == "tree":  # of so many levels
        assert 2**count <= MOST
        grow(count)
    elif way == "chains":  # so many, side by side
        assert count * 30 <= MOST
        for _ in range(count):
            if os.fork() == 0:
                os.setsid()
                move_on(29)
    else:
        assert count * 25 <= MOST
        for _ in range(count):
            worker = os.fork()
            if worker == 0:
                WAYS[way]()
            if "fork" in way or way in ("parents leave", "deaf"):
                os.waitpid(worker, 0)


if __name__ == "__main__":
    main()
