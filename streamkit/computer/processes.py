"""The processes of a runner: found by their mark and their tree, and ended until none is left.

The mark is an environment variable, which every child inherits: a daemon that left its session and lost its parents is
found by it. One that threw its environment away is found as long as its parents live.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable

import psutil

__all__ = ["MARK", "Family"]

MARK = "STREAMKIT_RUNNER"
_PATIENCE = 10.0  # seconds for which killed processes are awaited; only the system itself can hold them longer
_AGAIN = 0.2  # seconds between two interrupts of one process
_SCAN_SHARE = 20  # a look at all processes is followed by so many times its duration without one

Identity = tuple[int, float]  # a process's id, and when it began: ids come again


class Family:
    """All processes that descend from one, which is called its root.

    Attributes:
        due: when (`time.monotonic`) it may be looked at again, so that looking costs little.
    """

    def __init__(self, root: int, mark: str) -> None:
        self.root = root
        self.due = 0.0
        self._mark = mark
        self._known: dict[Identity, bool] = {}
        self._interrupted: dict[Identity, float] = {}  # until when each is left alone

    def find(self) -> dict[Identity, psutil.Process]:
        """Those that live now."""
        began = time.monotonic()
        seen: dict[Identity, psutil.Process] = {}
        children: dict[int, list[Identity]] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                identity = (process.pid, process.create_time())
                seen[identity] = process
                children.setdefault(process.ppid(), []).append(identity)
        self._known = {identity: known for identity, known in self._known.items() if identity in seen}
        self._interrupted = {identity: until for identity, until in self._interrupted.items() if identity in seen}
        members = {identity for identity, process in seen.items() if self._has_mark(identity, process)}
        waiting = [pid for pid, _ in members] + [self.root]
        while waiting:
            for identity in children.get(waiting.pop(), ()):
                if identity not in members:
                    members.add(identity)
                    self._known[identity] = True  # its parents may go before it
                    waiting.append(identity[0])
        now = time.monotonic()
        self.due = now + max(0.25, _SCAN_SHARE * (now - began))
        return {identity: seen[identity] for identity in members if _lives(seen[identity])}

    def _has_mark(self, identity: Identity, process: psutil.Process) -> bool:
        known = self._known.get(identity)
        if known is None:
            known = False
            with contextlib.suppress(psutil.Error, OSError):
                known = identity[0] == self.root or process.environ().get(MARK) == self._mark
            self._known[identity] = known
        return known

    def memory(self) -> tuple[int, int]:
        """How many processes there are, and how many bytes they hold together."""
        found = self.find()
        total = 0
        for process in found.values():
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return len(found), total

    def interrupt(self, besides: Iterable[Identity]) -> None:
        """Send all but some an interrupt, as a terminal does. Called often, it lets each have some time."""
        left_alone = set(besides)
        now = time.monotonic()
        for identity, process in self.find().items():
            # One that comes before a child has become its program is lost, so there is another.
            if identity not in left_alone and now >= self._interrupted.get(identity, 0.0):
                self._interrupted[identity] = now + _AGAIN
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGINT)

    def kill(self, besides: Iterable[Identity] = (), group: bool = False) -> bool:
        """End all but some, again and again until none is left. False: some could not be ended."""
        left_alone = set(besides)
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.root, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        pause = 0.001
        while victims := [p for identity, p in self.find().items() if identity not in left_alone]:
            # Those that are stopped start no more while the others are being ended.
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for victim in victims:
                    with contextlib.suppress(psutil.Error):
                        victim.send_signal(number)
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
            pause = min(0.05, 2 * pause)
        return True


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
