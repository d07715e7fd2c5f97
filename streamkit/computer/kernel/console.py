"""The console of code: `sys.stdout` and `sys.stderr` write to the pipes of the run that the writing thread belongs
to."""

# mypy: disable-error-code="override"
# `io` declares as plain attributes what are read-only properties here.

from __future__ import annotations

import _thread
import contextlib
import io
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from .channel import channel, run_of_context, write_all

__all__ = ["Console", "flush", "install", "track_runs_of_threads"]


class RunConsole(io.RawIOBase):
    """stdout or stderr, as bytes, of the run that the writing thread belongs to.

    Args:
        number: 1 for stdout, 2 for stderr.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        """Does nothing: later runs write to it too."""

    def fileno(self) -> int:
        """1 for stdout, 2 for stderr."""
        return self._number

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes at once, unbuffered; returns how many."""
        run, number = channel.current_run, self._number
        if run is not None and run.last_written != number:
            # The runner reads what one stream has before the other gets more, so their order is that of the code.
            channel.wait_for_reader()
            run.last_written = number
        view = memoryview(data).cast("B")
        write_all(number if run is None else run.descriptors[number], view.tobytes())
        return len(view)


class Console(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`, unbuffered and in UTF-8.

    Args:
        number: 1 for stdout, 2 for stderr.
    """

    def __init__(self, number: int) -> None:
        self._raw = RunConsole(number)

    @property
    def buffer(self) -> RunConsole:
        """The file to write bytes to."""
        return self._raw

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # see the head of the module
        """`utf-8`."""
        return "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  # see the head of the module
        """`backslashreplace`."""
        return "backslashreplace"

    @property
    def name(self) -> str:
        """`<stdout>` or `<stderr>`."""
        return "<stdout>" if self._raw.fileno() == 1 else "<stderr>"

    def close(self) -> None:
        """Does nothing: later runs print to it too."""

    def reconfigure(self, **options: Any) -> None:
        """Does nothing: it is unbuffered and in UTF-8, whatever a script wants."""

    def fileno(self) -> int:
        """1 for stdout, 2 for stderr."""
        return self._raw.fileno()

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, text: str) -> int:
        """Write text at once; returns its length."""
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # code may pass anything
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._raw.write(text.encode("utf-8", "backslashreplace"))
        return len(text)


_stdout, _stderr = Console(1), Console(2)


def install() -> None:
    """Make the console `sys.stdout` and `sys.stderr`, again: what a run put in their place ends with the run."""
    # Written as items because type checkers refuse other types for these, and without any builtin, which code may clear.
    sys.__dict__["stdout"] = sys.__dict__["__stdout__"] = _stdout
    sys.__dict__["stderr"] = sys.__dict__["__stderr__"] = _stderr


def flush() -> None:
    """Flush what the code put in the console's place, while its run can still be written to."""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(Exception):  # an object of the code's own, or deleted
            getattr(sys, name).flush()


def track_runs_of_threads() -> None:
    """Let what a thread prints belong to the run that started it, and in a thread pool to the run that submitted it."""
    start, submit, start_new = threading.Thread.start, ThreadPoolExecutor.submit, _thread.start_new_thread

    def in_current_run(function: Callable[..., Any]) -> Callable[..., Any]:
        run = channel.current_run

        def call(*arguments: Any, **named: Any) -> Any:
            run_of_context.set(run)
            return function(*arguments, **named)

        return call

    def start_in_run(self: threading.Thread) -> None:
        self.__dict__["run"] = in_current_run(self.run)  # for this thread alone
        start(self)

    def submit_in_run(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, in_current_run(fn), *args, **kwargs)

    def start_new_in_run(function: Callable[..., Any], /, *rest: Any) -> int:
        return start_new(in_current_run(function), *rest)

    _replace(threading.Thread, "start", start_in_run)
    _replace(ThreadPoolExecutor, "submit", submit_in_run)
    _replace(_thread, "start_new_thread", start_new_in_run)
    _replace(_thread, "start_new", start_new_in_run)


def _replace(owner: type | ModuleType, name: str, function: Callable[..., Any]) -> None:
    """Replace a function of the standard library for the whole process."""
    setattr(owner, name, function)
