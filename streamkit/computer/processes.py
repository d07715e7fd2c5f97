"""The processes below one process: found, interrupted, stopped and killed, whatever they did to get away.

They are found from above: a process has a list of its children, and each of these has one. At the top is a `reaper`, which
inherits every process below it that loses its parents. So neither an empty environment nor a new session nor parents
that end hide a process, and what a search costs depends on how many it finds, not on how many the machine has.

Where the system has no such lists, all processes of the machine are looked at; where it has no such inheritance either,
one that left the session *and* lost its parents is not found.

The reaper imports this module each time that a language is started, so it imports little itself.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Iterable, Iterator

__all__ = [
    "LISTS_CHILDREN",
    "Identity",
    "Process",
    "ProcessTree",
    "descendants",
    "look",
    "seconds_in_queue",
    "stop_all",
]

LISTS_CHILDREN = os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
_KILL_TIMEOUT = 10.0  # seconds that killed processes may take to end; only the system can hold them longer
RESTART_DELAY = 0.15  # seconds after which a pool of workers has replaced one that was killed
_RESTART_TIMEOUT = 0.5  # seconds during which new processes may take the place of killed ones
_FEWEST_RESTARTS = 5  # in that time; on a busy machine it may pass between two looks
_SEARCH_TIMEOUT = 0.5  # seconds in which all processes should be found; only those that multiply all the time are not
_FEWEST_LOOKS = 3  # … however long they take
_INTERRUPT_INTERVAL = 0.2  # seconds between two interrupts of one process
_INTERRUPT_SHARE = 3  # … but they are looked for only after so many times as long as that takes

Identity = tuple[int, float]
"""A process: its id and when it started, for ids are used again."""


class Process:
    """A process that lives, as it was when it was looked at.

    Attributes:
        pid: its id.
        started: when it started, in a unit of the system.
        group: the id of its process group.
        threads: how many it has.
        memory: the bytes of resident memory that it holds.
    """

    __slots__ = ("group", "memory", "pid", "started", "threads")

    def __init__(self, pid: int, started: float, group: int, threads: int, memory: int) -> None:
        self.pid = pid
        self.started = started
        self.group = group
        self.threads = threads
        self.memory = memory

    @property
    def identity(self) -> Identity:
        """A pair that no other process has."""
        return self.pid, self.started

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing if it is gone, or another user's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, number)


def look(
    top: int, left_out: set[Identity] | frozenset[Identity] = frozenset(), listed: set[int] | None = None
) -> Iterator[Process]:
    """Yield the living processes below one, parents first, as one look finds them; it may overlook some while others
    end.

    The children of a process are looked for after it was yielded: a caller that stops it first misses none of them.

    Args:
        top: the id of the process at the top, which is not one of them.
        left_out: processes to leave out, each with all below it.
        listed: gets the id of every process that is looked at, living or not.
    """
    system = _system(top)
    seen: set[int] = set() if listed is None else listed
    pids = system.children(top, 1)
    for pid in pids:  # which grows meanwhile
        process = None if pid in seen else system.find(pid)
        seen.add(pid)
        if process is not None and process.identity not in left_out:
            yield process
            pids += system.children(pid, process.threads)


def descendants(top: int, left_out: set[Identity] | frozenset[Identity] = frozenset()) -> Iterator[Process]:
    """Yield all living processes below one, each once, parents first.

    It looks until two looks list the same. For the list of children leaves some out if others end while it is read, and
    the children of one that ends move to another list, which may have been read before. Where processes come and go all
    the time, and are not stopped as they are found, it ends after half a second.

    Args:
        top: the id of the process at the top, which is not one of them.
        left_out: processes to leave out, each with all below it.
    """
    found: set[Identity] = set()
    before: set[int] = set()
    deadline = time.monotonic() + _SEARCH_TIMEOUT
    for number in itertools.count(1):
        listed: set[int] = set()
        for process in look(top, left_out, listed):
            if process.identity not in found:
                found.add(process.identity)
                yield process
        if listed == before or (number >= _FEWEST_LOOKS and time.monotonic() > deadline):
            return
        before = listed


def stop_all(processes: Iterable[Process], *, groups: bool = False) -> list[Process]:
    """Stop processes, each before the next is found, so that it starts no other.

    Args:
        processes: the processes.
        groups: whether to stop the process group of each at once, which leaves its members no time to start others. All
            members have to be among the processes.

    Returns:
        The processes, in the same order.
    """
    stopped: list[Process] = []
    stopped_groups = {os.getpgrp()}
    for process in processes:
        if groups and process.group not in stopped_groups:
            stopped_groups.add(process.group)
            _stop_group(process.group)
        process.send(signal.SIGSTOP)
        stopped.append(process)
    return stopped


class ProcessTree:
    """The processes of one language: its own process, which is the root, and all others below its reaper.

    Args:
        reaper: the id of the reaper.
        root: the id of the language's process.

    Attributes:
        root: the same.
    """

    def __init__(self, reaper: int, root: int) -> None:
        self.root = root
        self._reaper = reaper
        process = _system(reaper).find(root)
        self._root_identity = None if process is None else process.identity
        self._interrupt_after: dict[Identity, float] = {}
        self._next_interrupt = 0.0
        self._interrupted = False  # whether a process was, since the last `kill`

    def find(self) -> set[Identity]:
        """Return the processes that live now, apart from the root."""
        return {process.identity for process in descendants(self._reaper) if process.pid != self.root}

    def root_lives(self) -> bool:
        """Whether the root has not ended."""
        process = _system(self._reaper).find(self.root)
        return process is not None and process.identity == self._root_identity

    def interrupt_root(self) -> None:
        """Send SIGINT to the root, if it lives."""
        if self.root_lives():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.root, signal.SIGINT)

    def interrupt(self, besides: set[Identity]) -> None:
        """Send SIGINT to all processes but the root and some others, as a terminal does.

        Call it repeatedly: a signal that arrives before a child has become its program is lost. Each process is left
        0.2 seconds to react to one, and more where it takes long to find them.
        """
        began = time.monotonic()
        if began < self._next_interrupt:
            return
        interrupt_after: dict[Identity, float] = {}
        for process in look(self._reaper, besides):
            if process.pid == self.root:
                continue
            after = self._interrupt_after.get(process.identity, 0.0)
            if began >= after:
                after = began + _INTERRUPT_INTERVAL
                self._interrupted = True
                process.send(signal.SIGINT)
            interrupt_after[process.identity] = after
        self._interrupt_after = interrupt_after
        now = time.monotonic()
        self._next_interrupt = now + _INTERRUPT_SHARE * (now - began)

    def interrupt_together(self, besides: set[Identity]) -> None:
        """Send SIGINT to the root and all others but some, all while they stand still, as if at one moment.

        A shell ignores an interrupt if the program for which it waits ends without having got one; so a program must not
        end, and no other begin, between the two signals.
        """
        stopped = stop_all(descendants(self._reaper, besides))
        for number in (signal.SIGINT, signal.SIGCONT):
            for process in reversed(stopped):
                process.send(number)

    def kill(self, besides: set[Identity]) -> bool:
        """Kill all processes but the root and some others, again and again until none is left.

        Returns:
            Whether all have ended; False after 10 seconds, and after half a second if one that is left alone, such as
            the root with a pool of workers, started others again and again in that time.
        """
        began = last = time.monotonic()
        interrupted, self._interrupted = self._interrupted, False
        killed: set[Identity] = set()
        restarts = 0  # how often there were others after some had been killed
        pause = 0.001
        while True:
            victims = stop_all(one for one in descendants(self._reaper, besides) if one.pid != self.root)
            identities = {process.identity for process in victims}
            now = time.monotonic()
            if victims:
                restarts += bool(killed and identities - killed)
                if now > began + (_RESTART_TIMEOUT if restarts >= _FEWEST_RESTARTS else _KILL_TIMEOUT):
                    return False
                for process in victims:
                    process.send(signal.SIGKILL)
                killed |= identities
                last = now
            elif not (killed or interrupted) or now > last + RESTART_DELAY:
                return True
            time.sleep(pause)
            pause = min(0.05, 2 * pause)


def seconds_in_queue(pid: int) -> float:
    """Return how long a process could run but had to wait for a processor, since it began; 0.0 where the system does
    not say."""
    try:
        return int(_read_file(f"/proc/{pid}/schedstat").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _stop_group(group: int) -> None:
    """Stop a process group. One process is signalled after the other, but none of them can fork in between."""
    if group > 1:  # 1 would be all processes of the user
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGSTOP)


# -- what the system says


def _system(top: int) -> _ProcessFiles | _ProcessTable:
    """Return where to look processes up."""
    return _ProcessFiles() if LISTS_CHILDREN else _ProcessTable(top)


class _ProcessFiles:
    """Linux's files about each process, read when they are needed."""

    def find(self, pid: int) -> Process | None:
        """Return a process; None if it has ended. One whose main thread alone has ended lives on in the others."""
        try:
            data = _read_file(f"/proc/{pid}/stat")
        except OSError:
            return None
        state, *fields = data[data.rindex(b")") + 2 :].split()  # before it is the name, which may have brackets
        threads = int(fields[16])
        if state in (b"Z", b"X") and threads <= 1:
            return None
        return Process(pid, int(fields[18]), int(fields[1]), threads, int(fields[20]) * _PAGE_SIZE)

    def children(self, pid: int, threads: int) -> list[int]:
        """Return the ids of the processes that one started; each of its threads has a list of its own."""
        found: list[int] = []
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for thread in os.listdir(f"/proc/{pid}/task") if threads > 1 else (pid,):
                found += map(int, _read_file(f"/proc/{pid}/task/{thread}/children").split())
        return found


class _ProcessTable:
    """All processes of the machine at one moment. Those that lost their parents, but not their session, count as children
    of the process at the top.

    Args:
        top: the id of the process at the top.
    """

    def __init__(self, top: int) -> None:
        import psutil

        self._processes: dict[int, Process] = {}
        self._children: dict[int, list[int]] = {}
        orphans: dict[int, list[int]] = {}  # by their session
        for one in psutil.process_iter():
            try:
                if one.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    self._processes[one.pid] = Process(
                        one.pid, one.create_time(), os.getpgid(one.pid), 1, one.memory_info().rss
                    )
                self._children.setdefault(one.ppid(), []).append(one.pid)
                if one.ppid() == 1:
                    orphans.setdefault(os.getsid(one.pid), []).append(one.pid)
            except (psutil.Error, OSError):  # it has ended meanwhile, or is another user's
                pass
        children = self._children.setdefault(top, [])
        children += [pid for leader in children for pid in orphans.get(leader, ())]

    def find(self, pid: int) -> Process | None:
        """Return a process; None if it has ended."""
        return self._processes.get(pid)

    def children(self, pid: int, threads: int) -> list[int]:
        """Return the ids of the processes that one started."""
        return [*self._children.get(pid, ())]


_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


def _read_file(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()
