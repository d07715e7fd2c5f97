"""The reaper: the process above a language's process. Everything that code starts stays below it.

It starts the language's process, in a session of its own, and inherits every process below it that loses its parents
(`PR_SET_CHILD_SUBREAPER`, on Linux), so that `processes` finds them all. It watches the limits of processes and memory, also
between two runs. When the program closes the pipe for control, or ends in whatever way, it kills everything and ends.

It is a program of its own, which `language_process` starts. It imports little, for it is started with each language.

The pipe for control carries limits as lines: how many processes, how many bytes (0 means no limit), and 1 while code runs. The
newest line counts. The pipe for reports carries these lines:

- `started <pid>` or `failed <why>`, first
- `limit process_limit` or `limit memory_limit`: it was passed, and everything is being killed
- `exit <status>`: the language's process has ended; a negative status is the number of a signal
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

from . import processes
from .processes import descendants, look, stop_all

__all__ = ["main"]

_SET_CHILD_SUBREAPER = 36  # of `prctl`
_KILL_TIMEOUT = 10.0  # seconds that killed processes may take to end; only the system can hold them longer
_SHORTEST_INTERVAL = 0.05  # seconds from one look at the limits to the next
_LONGEST_INTERVAL = 1.0  # … where no code runs and no processes are added
_SHARE = 20  # … but at least so many times as long as the look took
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class Reaper:
    """Starts a language's process, watches it, and ends it with everything below.

    Args:
        control: the descriptor to read the limits from.
        report: the descriptor to report to.
    """

    def __init__(self, control: int, report: int) -> None:
        self._control = control
        self._report_to = report
        self._pid = 0  # of the language's process, until it has ended
        self._most_processes = self._most_memory = 0
        self._running = False
        self._count = 0  # of the processes, at the last look
        self._interval = _SHORTEST_INTERVAL
        self._next_look = 0.0
        self._woken, writer = os.pipe()
        for descriptor in (self._woken, writer):
            os.set_blocking(descriptor, False)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # of the thread that started this
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_IGNORED):
            # Not SIG_IGN, which the language's process would inherit.
            signal.signal(number, lambda number, frame: None)

    def start(self, command: list[str]) -> bool:
        """Start the language's process; return whether that succeeded."""
        reader, writer = os.pipe()  # which are closed where the program takes the place of the fork
        self._pid = os.fork()
        if self._pid == 0:
            _become(command, writer)
        os.close(writer)
        failure = os.read(reader, 1000).decode(errors="replace")
        os.close(reader)
        if failure:
            os.waitpid(self._pid, 0)
        self._report(f"failed {failure}" if failure else f"started {self._pid}")
        return not failure

    def serve(self) -> bool:
        """Watch until the pipe for control ends, then kill everything; return whether all processes have ended."""
        while True:
            self._reap()
            if self._control in self._wait(self._seconds_to_look()) and not self._take_limits():
                return self._kill_all()
            if self._seconds_to_look() == 0:
                self._look()

    def _report(self, line: str) -> None:
        with contextlib.suppress(OSError):  # the program is gone
            os.write(self._report_to, f"{line}\n".encode())

    def _reap(self) -> bool:
        """Collect the exit statuses of processes that have ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._pid:
                self._pid = 0
                self._report(f"exit {os.waitstatus_to_exitcode(status)}")

    # -- limits

    def _take_limits(self) -> bool:
        """Read the newest limits; return False at the end of the pipe."""
        lines = os.read(self._control, 1 << 16).splitlines()
        if lines:
            self._most_processes, self._most_memory, running = map(int, lines[-1].split())
            self._running = running > 0
            self._interval, self._next_look = _SHORTEST_INTERVAL, 0.0
        return bool(lines)

    def _seconds_to_look(self) -> float | None:
        """Return how long it is until the next look at the limits; None without limits."""
        if not (self._most_processes or self._most_memory):
            return None
        return max(0.0, self._next_look - time.monotonic())

    def _look(self) -> None:
        """Kill everything if a limit is passed. However many processes there are, it costs a bounded share of the time."""
        began = time.monotonic()
        count = memory = 0
        for process in look(os.getpid()):
            count += 1
            memory += process.memory
            if count > self._most_processes > 0:
                self._end("process_limit")
                return
        if memory > self._most_memory > 0:
            self._end("memory_limit")
            return
        calm = not self._running and count <= self._count
        self._interval = min(_LONGEST_INTERVAL, 2 * self._interval) if calm else _SHORTEST_INTERVAL
        self._count = count
        now = time.monotonic()
        self._next_look = now + max(self._interval, _SHARE * (now - began))

    def _end(self, limit: str) -> None:
        self._most_processes = self._most_memory = 0
        self._report(f"limit {limit}")
        self._kill_all()

    def _kill_all(self) -> bool:
        """Stop all processes, then kill them, until none is left; return whether all ended within ten seconds."""
        deadline = time.monotonic() + _KILL_TIMEOUT
        while self._reap() or any(look(os.getpid())):
            if time.monotonic() > deadline:
                return False
            for process in stop_all(descendants(os.getpid()), groups=True):
                process.send(signal.SIGKILL)
            self._wait(0.05, for_control=False)
        return True

    def _wait(self, seconds: float | None, *, for_control: bool = True) -> set[int]:
        """Wait until a child has ended or, by default, control can be read; return the descriptors that are ready."""
        poll = select.poll()
        for descriptor in (self._woken, *([self._control] if for_control else ())):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if seconds is None else 1000 * seconds)}
        if self._woken in ready:
            os.read(self._woken, 4096)
        return ready


def _become(command: list[str], failures: int) -> None:
    """Replace this fork with a program; where that fails, write why and exit."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores, as no other program expects
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(failures, f"{error.strerror}: {command[0]!r}".encode())
    finally:
        os._exit(127)


def _remove(directory: str) -> None:
    with contextlib.suppress(OSError):  # the program has removed it
        for name in os.listdir(directory):
            os.unlink(os.path.join(directory, name))
        os.rmdir(directory)


def main(arguments: list[str]) -> None:
    """Run the reaper.

    Args:
        arguments: the descriptors for control and for reports; the directory of the language's process; the descriptors
            that it inherits, with commas between; whether its environment has `LC_CTYPE` (as "yes"), which Python sets;
            where psutil is, if processes are to be found by it; and the command line.
    """
    control, report, directory, inherited, has_locale, psutil, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if psutil:
        sys.path.append(psutil)
        processes.LISTS_CHILDREN = False
    if not has_locale:
        os.environ.pop("LC_CTYPE", None)
    for descriptor in (control, report):
        os.set_inheritable(int(descriptor), False)
    reaper = Reaper(int(control), int(report))
    started = reaper.start(command)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    for descriptor in filter(None, inherited.split(",")):
        os.close(int(descriptor))
    all_ended = started and reaper.serve()
    _remove(directory)
    os._exit(0 if all_ended else 1)
