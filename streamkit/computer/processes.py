"""The processes of a language: found by a mark and by their ancestry, and killed until none is left.

The mark is an environment variable, which every child inherits: it finds a daemon that left its session and lost
its parents. A process that cleared its environment is found as long as its parents live.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable

import psutil

__all__ = ["MARK", "Identity", "ProcessTree", "seconds_in_queue"]

MARK = "STREAMKIT_RUNNER"  # the environment variable; its value names one language process
_KILL_TIMEOUT = 10.0  # seconds that killed processes may take to end; only the system can hold them longer
RESTART_DELAY = 0.15  # seconds after which a pool of workers has replaced one that was killed
_RESTART_TIMEOUT = 0.5  # seconds during which new processes may take the place of killed ones
_FEWEST_RESTARTS = 5  # in that time; on a busy machine it may pass between two looks
_INTERRUPT_INTERVAL = 0.2  # seconds between two interrupts of one process
_INTERRUPT_SHARE = 3  # … but they are looked for only after so many times as long as that takes
_MIN_SCAN_INTERVAL = 0.25  # seconds from one scan of all processes to the next
_SCAN_SHARE = 20  # … but at least so many times as long as the scan took

Identity = tuple[int, float]
"""A process: its id and when it started, for ids are used again."""


class ProcessTree:
    """All processes that descend from one, the root, which is one of them.

    Args:
        root: the id of the root.
        mark: the value of `MARK` in its environment.

    Attributes:
        root: the id of the root.
        next_scan: when (`time.monotonic`) the processes may be looked at again at little cost.
    """

    def __init__(self, root: int, mark: str) -> None:
        self.root = root
        self.next_scan = 0.0
        self._mark = mark
        self._is_member: dict[Identity, bool] = {}
        self._interrupt_after: dict[Identity, float] = {}
        self._next_interrupt = 0.0
        self._interrupted = False  # whether a process was, since the last `kill`

    def find(self, besides: Iterable[Identity] = ()) -> dict[Identity, psutil.Process]:
        """The processes that live now, besides some: what these start, apart from the root, is left out with them."""
        began = time.monotonic()
        found: dict[Identity, psutil.Process] = {}
        children: dict[int, list[Identity]] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                identity = (process.pid, process.create_time())
                found[identity] = process
                children.setdefault(process.ppid(), []).append(identity)
        self._forget_ended(found)
        members = {identity for identity, process in found.items() if self._has_mark(identity, process)}
        self._add_descendants(members, children)
        now = time.monotonic()
        self.next_scan = now + max(_MIN_SCAN_INTERVAL, _SCAN_SHARE * (now - began))
        members -= self._with_descendants(besides, children)
        return {identity: found[identity] for identity in members if _is_alive(found[identity])}

    def _forget_ended(self, found: dict[Identity, psutil.Process]) -> None:
        self._is_member = {identity: member for identity, member in self._is_member.items() if identity in found}
        self._interrupt_after = {one: after for one, after in self._interrupt_after.items() if one in found}

    def _add_descendants(self, members: set[Identity], children: dict[int, list[Identity]]) -> None:
        parents = [pid for pid, _ in members] + [self.root]
        while parents:
            for identity in children.get(parents.pop(), ()):
                if identity not in members:
                    members.add(identity)
                    self._is_member[identity] = True  # remembered, for its parents may end before it
                    parents.append(identity[0])

    def _with_descendants(self, besides: Iterable[Identity], children: dict[int, list[Identity]]) -> set[Identity]:
        left_out = set(besides)
        parents = [pid for pid, _ in left_out if pid != self.root]
        while parents:
            new = [one for one in children.get(parents.pop(), ()) if one not in left_out]
            left_out.update(new)
            parents += [pid for pid, _ in new]
        return left_out

    def _has_mark(self, identity: Identity, process: psutil.Process) -> bool:
        """Whether a process is the root or has the mark, or was found to be a descendant before."""
        member = self._is_member.get(identity)
        if member is None:
            member = False
            with contextlib.suppress(psutil.Error, OSError):
                member = identity[0] == self.root or process.environ().get(MARK) == self._mark
            self._is_member[identity] = member
        return member

    def memory(self) -> tuple[int, int]:
        """How many processes there are, and how many bytes of resident memory they hold together."""
        found = self.find()
        total = 0
        for process in found.values():
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return len(found), total

    def interrupt(self, besides: Iterable[Identity]) -> None:
        """Send SIGINT to all processes but some, as a terminal does.

        Call it repeatedly: a signal that arrives before a child has become its program is lost. Each process is left
        0.2 seconds to react to one, and more where it takes long to find them.
        """
        began = time.monotonic()
        if began < self._next_interrupt:
            return
        excluded = set(besides)
        for identity, process in self.find(excluded).items():
            if began >= self._interrupt_after.get(identity, 0.0):
                self._interrupt_after[identity] = began + _INTERRUPT_INTERVAL
                self._interrupted = True
                with contextlib.suppress(psutil.Error):
                    process.send_signal(signal.SIGINT)
        now = time.monotonic()
        self._next_interrupt = now + _INTERRUPT_SHARE * (now - began)

    def interrupt_together(self, besides: Iterable[Identity]) -> None:
        """Send SIGINT to the root and its descendants but some, all while they stand still, as if at one moment.

        A shell ignores an interrupt if the program for which it waits ends without having got one; so a program must not
        end, and no other begin, between the two signals.
        """
        excluded = {pid for pid, _ in besides} - {self.root}
        stopped: list[int] = []
        while new := [pid for pid in self._descendants(excluded) if pid not in stopped]:
            stopped += [pid for pid in new if _send(pid, signal.SIGSTOP)]
            if not set(new) & set(stopped):
                break
        for number in (signal.SIGINT, signal.SIGCONT):
            for pid in reversed(stopped):
                _send(pid, number)

    def _descendants(self, excluded: set[int]) -> list[int]:
        """The root and its descendants, parents first; those that left them, and those of `excluded`, are not found."""
        found = [self.root]
        for pid in found:
            found += [child for child in _children(pid) if child not in excluded]
        return found

    def kill(self, besides: Iterable[Identity] = (), group: bool = False) -> bool:
        """Kill all processes but some, again and again until none is left.

        Args:
            besides: the processes to leave alone.
            group: whether to kill the root's process group first.

        Returns:
            Whether all have ended; False after 10 seconds, and after half a second if one that is left alone, such as
            the root with a pool of workers, started others again and again in that time.
        """
        excluded = set(besides)
        if group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.root, signal.SIGKILL)
        began = last = time.monotonic()
        interrupted, self._interrupted = self._interrupted, False
        killed: set[Identity] = set()
        restarts = 0  # how often there were others after some had been killed
        pause = 0.001
        while True:
            victims = self.find(excluded)
            now = time.monotonic()
            if victims:
                restarts += bool(killed and excluded and victims.keys() - killed)
                if now > began + (_RESTART_TIMEOUT if restarts >= _FEWEST_RESTARTS else _KILL_TIMEOUT):
                    return False
                _kill(victims.values())
                killed |= victims.keys()
                last = now
            elif not excluded or not (killed or interrupted) or now > last + RESTART_DELAY:
                return True
            time.sleep(pause)
            pause = min(0.05, 2 * pause)


def _kill(processes: Collection[psutil.Process]) -> None:
    """Stop all first, so that none starts another while the rest is killed."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)


def _send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; whether there is a process to get it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _children(pid: int) -> list[int]:
    """The processes that this one started. Looks at this process alone where the system can, for it is in a hurry."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        with contextlib.suppress(psutil.Error):
            return [child.pid for child in psutil.Process(pid).children()]
    return []


def seconds_in_queue(pid: int) -> float:
    """How long a process could run but had to wait for a processor, since it began; 0.0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False
