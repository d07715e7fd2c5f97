"""The process of a language, as this program sees it through the reaper that started it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from . import processes
from .process_channel import pipe, release
from .processes import ProcessTree
from .request import Limits, StopReason

__all__ = ["LanguageProcess"]

START_TIMEOUT = 60.0  # seconds that a process may take to start
_END_TIMEOUT = 15.0  # seconds that a reaper may take to kill everything; it gives up after ten
# The reaper's modules become a package of their own: `streamkit` would take longer to import than the process to start.
_BOOT = """
import sys
package = sys.modules["streamkit_reaper"] = type(sys)("streamkit_reaper")
package.__path__ = [sys.argv.pop(1)]
from streamkit_reaper.reaper import main
main(sys.argv[1:])
"""


class LanguageProcess:
    """A language's process and all that descend from it. It lives until `end` is called.

    Args:
        command: its command line.
        directory: its own directory, removed when it ends or this program does.
        stdin: the descriptor that becomes its stdin.
        inherited: the descriptors that it inherits besides.
        log: where its stdout and stderr go until a run redirects them.
        cwd: the directory in which it runs.
        env: its environment.

    Attributes:
        pid: its id.
        tree: it and all its descendants.
        report: a descriptor that becomes readable when it has ended, or has passed a limit: then call `poll`.
        returncode: how it ended, negative for a signal; None while it lives.
        limits: those that are watched.
        limit_passed: the one of them for which it was killed; None if it was not.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: list[str],
        *,
        directory: str,
        stdin: int,
        inherited: tuple[int, ...],
        log: IO[bytes],
        cwd: str | None,
        env: Mapping[str, str],
    ) -> None:
        self.returncode: int | None = None
        self.limits = Limits()
        self.limit_passed: StopReason | None = None
        self._unfinished = b""  # the beginning of a line whose end has not been read
        control, self._control = pipe()
        os.set_blocking(self._control, False)
        self.report, report = pipe()
        try:
            self._reaper = subprocess.Popen(
                _reaper_command(command, control, report, directory, inherited, env),
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env=env,
                pass_fds=(control, report, *inherited),
                start_new_session=True,
            )
        except BaseException:
            release(self._control)
            release(self.report)
            raise
        finally:
            release(control)
            release(report)
        try:
            self.pid = self._await_start()
        except BaseException:
            self.end()
            raise
        self.tree = ProcessTree(self._reaper.pid, self.pid)

    def _await_start(self) -> int:
        """Return the id of the process once it has started. Raises `OSError`."""
        deadline = time.monotonic() + START_TIMEOUT
        while (seconds := deadline - time.monotonic()) > 0:
            if not (lines := self._read_lines(seconds)):
                continue
            what, _, rest = lines[0].partition(" ")
            if what != "started":
                raise OSError(rest or "its reaper ended")
            for line in lines[1:]:
                self._take_report(line)
            return int(rest)
        raise OSError("its reaper took too long to start")

    # -- what the reaper reports

    def _read_lines(self, seconds: float) -> list[str]:
        """Return the lines that are available, or become so within this time; `[""]` if the reaper has ended."""
        poll = select.poll()
        poll.register(self.report, select.POLLIN)
        if not poll.poll(1000 * seconds):
            return []
        data = os.read(self.report, 4096)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        return [line.decode() for line in lines] if data else [""]

    def poll(self) -> int | None:
        """Read what was reported; return `returncode`."""
        return self.wait(0)

    def wait(self, timeout: float) -> int | None:
        """Wait until the process has ended, for `timeout` seconds at most; return `returncode`."""
        deadline = time.monotonic() + timeout
        while self.returncode is None:
            lines = self._read_lines(max(0.0, deadline - time.monotonic()))
            for line in lines:
                self._take_report(line)
            if not lines and time.monotonic() >= deadline:
                break
        return self.returncode

    def _take_report(self, line: str) -> None:
        match line.split():
            case ["exit", status]:
                self.returncode = int(status)
            case ["limit", ("process_limit" | "memory_limit") as limit]:
                self.limit_passed = limit
            case _:  # the code killed its reaper
                self.returncode = -signal.SIGKILL
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    # -- what the reaper is to do

    def watch(self, limits: Limits, *, running: bool) -> None:
        """Have the limits of processes and memory watched, more often while code runs."""
        self.limits = limits
        line = f"{limits.processes or 0} {limits.memory or 0} {int(running)}\n"
        with contextlib.suppress(BrokenPipeError, BlockingIOError):  # the code killed or stopped its reaper
            os.write(self._control, line.encode())

    def end(self) -> bool:
        """Kill the process and all its descendants; return whether all of them have ended."""
        release(self._control)
        self._reaper.send_signal(signal.SIGCONT)  # the code may have stopped it
        try:
            all_ended = self._reaper.wait(_END_TIMEOUT) == 0
        except subprocess.TimeoutExpired:
            self._reaper.kill()
            self._reaper.wait()
            all_ended = False
        release(self.report)
        return all_ended


def _reaper_command(
    command: list[str], control: int, report: int, directory: str, inherited: tuple[int, ...], env: Mapping[str, str]
) -> list[str]:
    """Return the command line of the reaper that starts a command; see `reaper.main`."""
    descriptors = ",".join(map(str, inherited))
    has_locale = "yes" if "LC_CTYPE" in env else ""
    boot = [sys.executable, "-I", "-S", "-c", _BOOT, os.path.dirname(__file__)]
    return [*boot, str(control), str(report), directory, descriptors, has_locale, _path_of_psutil(), *command]


def _path_of_psutil() -> str:
    """Return the folder from which the reaper imports psutil; "" where it needs none."""
    if processes.LISTS_CHILDREN:
        return ""
    import psutil

    return str(Path(psutil.__file__).parents[1])
