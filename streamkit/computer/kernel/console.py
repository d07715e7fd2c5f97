"""What a program prints: `sys.stdout` and `sys.stderr`, each writer's to the run that it belongs to."""

# mypy: disable-error-code="override"

from __future__ import annotations

import _thread
import contextlib
import io
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .channel import channel, run_of, write_all

__all__ = ["Console", "flush", "keep_runs_of_threads", "take_back"]


class Bytes(io.RawIOBase):
    """stdout or stderr of the run that the writer belongs to."""

    def __init__(self, number: int) -> None:
        self._number = number

    def close(self) -> None:
        """Nothing, as of `Console`."""

    def fileno(self) -> int:
        return self._number

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        run, number = channel.current, self._number
        if run is not None and run.newest != number:
            channel.ask("sync")  # what one stream has is read before the other gets more
            run.newest = number
        view = memoryview(data).cast("B")
        write_all(number if run is None else run.descriptors[number], view.tobytes())
        return len(view)


class Console(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`. Nothing is held back."""

    def __init__(self, number: int) -> None:
        self._raw = Bytes(number)

    @property
    def buffer(self) -> Bytes:
        return self._raw

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    @property
    def errors(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "backslashreplace"

    @property
    def name(self) -> str:
        return "<stdout>" if self._raw.fileno() == 1 else "<stderr>"

    def close(self) -> None:
        """Nothing: later runs print to it as well."""

    def reconfigure(self, **options: Any) -> None:
        """Nothing: it is UTF-8, and holds nothing back, whatever a script asks for."""

    def fileno(self) -> int:
        return self._raw.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # the program's own mistake
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._raw.write(text.encode("utf-8", "backslashreplace"))
        return len(text)


_stdout, _stderr = Console(1), Console(2)


def take_back() -> None:
    """Be the console again: what a run put in its place ends with it."""
    sys.stdout = sys.__stdout__ = _stdout  # type: ignore[misc, assignment]
    sys.stderr = sys.__stderr__ = _stderr  # type: ignore[misc, assignment]


def flush() -> None:
    """Have what the code put in the console's place write what it holds back, while that is the run's."""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(Exception):  # it is the code's own, or not there
            getattr(sys, name).flush()


def keep_runs_of_threads() -> None:
    """What a thread writes is the run's that started it; what a pool's thread writes, the run's that gave it the work."""
    start, submit, start_new = threading.Thread.start, ThreadPoolExecutor.submit, _thread.start_new_thread

    def within(function: Callable[..., Any]) -> Callable[..., Any]:
        run = channel.current

        def call(*arguments: Any, **named: Any) -> Any:
            run_of.set(run)
            return function(*arguments, **named)

        return call

    def start_in_run(self: threading.Thread) -> None:
        self.run = within(self.run)  # type: ignore[method-assign]
        start(self)

    def submit_in_run(self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return submit(self, within(fn), *args, **kwargs)

    def start_new_in_run(function: Callable[..., Any], /, *rest: Any) -> int:
        return start_new(within(function), *rest)

    threading.Thread.start = start_in_run  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_run  # type: ignore[method-assign, assignment]
    _thread.start_new_thread = _thread.start_new = start_new_in_run
