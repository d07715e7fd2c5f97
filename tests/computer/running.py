"""What the computer's tests share: running code, its output, and the processes it left."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import streamkit as sk
from streamkit.computer import Computer, Execution

NEEDS = {"python": None, "shell": "bash", "javascript": "node"}


def language(name: str, *values: Any, id: str | None = None) -> Any:
    """A pytest parameter that is skipped where the language's program is missing."""
    program = NEEDS[name]
    missing = program is not None and shutil.which(program) is None
    return pytest.param(
        name, *values, id=id or name, marks=pytest.mark.skipif(missing, reason=f"needs {program}, which is not here")
    )


LANGUAGES = [language(name) for name in NEEDS]
HELLO = {"python": "print('hello')", "shell": "echo hello", "javascript": "console.log('hello')"}


class TracedComputer:
    """A computer whose processes can be found among all others."""

    def __init__(self, **options: Any) -> None:
        self.mark = uuid.uuid4().hex
        environment = {**os.environ, **options.pop("env", {}), "STREAMKIT_TEST": self.mark}
        self.computer = Computer(env=environment, **options)

    def processes(self) -> list[str]:
        """Those that live, as their command lines."""
        return [line for _, line in self._living()]

    def without_reapers(self) -> list[str]:
        """Those that live, apart from the one above each language's process."""
        return [line for line in self.processes() if "streamkit_reaper" not in line]

    def kill(self) -> None:
        """End those that a test leaves on purpose."""
        left = [process for process, _ in self._living()]
        for process in left:
            process.kill()
        psutil.wait_procs(left, timeout=5)

    def _living(self) -> list[tuple[psutil.Process, str]]:
        found: list[tuple[psutil.Process, str]] = []
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                if self._has_mark(pid) and (process := psutil.Process(pid)).status() != psutil.STATUS_ZOMBIE:
                    found.append((process, " ".join(process.cmdline())))
        return found

    def _has_mark(self, pid: int) -> bool:
        """Whether it is in the environment of a process. It is looked for in all of them, which takes psutil four times as long."""
        if sys.platform == "linux":
            return f"STREAMKIT_TEST={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        return psutil.Process(pid).environ().get("STREAMKIT_TEST") == self.mark


@contextlib.contextmanager
def traced_computer(**options: Any) -> Iterator[TracedComputer]:
    """A computer that is closed, and must then have left no process."""
    traced = TracedComputer(**options)
    try:
        yield traced
    finally:
        traced.computer.close()
    assert traced.processes() == []


class Ran:
    """A run that has ended, and its events."""

    def __init__(self, execution: Execution, on_text: Callable[[Execution, str], object] | None = None) -> None:
        self.execution = execution
        self.events: list[sk.Event] = []
        self.pieces: list[tuple[str, str]] = []
        for event in execution:
            self.events.append(event)
            if isinstance(event, sk.ConsoleDelta):
                assert event.metadata is not None
                self.pieces.append((event.metadata["stream"], event.value))
                if on_text is not None:
                    on_text(execution, self.text)
        self.ended = time.monotonic()

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    def of(self, stream: str) -> str:
        return "".join(text for name, text in self.pieces if name == stream)

    @property
    def status(self) -> str:
        return self.execution.status

    @property
    def lines(self) -> list[int | None]:
        return [event.line for event in self.events if isinstance(event, sk.ActiveLine)]


def run(computer: Computer, language: str, code: str, **options: Any) -> Ran:
    return Ran(computer.run(language, code, **options))


def stop_at(computer: Computer, language: str, code: str, word: str = "ready", **options: Any) -> tuple[Ran, float]:
    """A run that is interrupted once it printed a word, and the seconds from then to its end."""
    interrupted_at: list[float] = []

    def interrupt(execution: Execution, text: str) -> None:
        if word in text and not interrupted_at:
            interrupted_at.append(time.monotonic())
            execution.interrupt()

    ran = Ran(computer.run(language, code, **options), interrupt)
    assert interrupted_at, f"it never printed {word!r}: {ran.text!r}"
    return ran, ran.ended - interrupted_at[0]


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
