"""How the kernel tells and hears: frames to the reader, answers from it; and the run that is told of.

Each run has two pipes of its own, for stdout and stderr. They are the kernel's descriptors 1 and 2 while the run lasts, so
that what child processes write is the run's as well; a thread keeps those of the run that started it. Whatever else
there is to tell goes through a channel of its own, in order with the pipes: the reader empties them before it takes a
frame, and the writer waits for its answer.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
import os
import signal
from _thread import interrupt_main
from collections.abc import Callable
from json import dumps, loads
from os import killpg, write
from queue import Empty, SimpleQueue
from shutil import rmtree
from signal import getsignal, pthread_kill
from sys import _current_frames  # pyright: ignore[reportPrivateUsage]
from threading import Thread, get_ident
from types import FrameType
from typing import Any

__all__ = ["Channel", "Run", "channel", "run_of", "write_all"]

SAMPLING = 0.02  # seconds between two looks at the line that runs


class Run:
    """One run's pipes. They are closed when nothing of the run is left that could write."""

    def __init__(self, id: str, out: str, err: str) -> None:
        self.id = id
        self.descriptors: dict[int, int] = {}
        for number, name in ((1, out), (2, err)):
            self.descriptors[number] = os.open(name, os.O_WRONLY)
        self.newest = 1  # which of the two was written to last
        self.filename = ""
        self.line: int | None = None
        self.said_why = False  # whether its error was told

    def take_over(self) -> None:
        """Make the pipes the process's own stdout and stderr."""
        for number, descriptor in self.descriptors.items():
            os.dup2(descriptor, number)

    def __del__(self) -> None:
        for descriptor in self.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)


run_of: contextvars.ContextVar[Run | None] = contextvars.ContextVar("streamkit_run", default=None)


class Channel:
    """Frames to the reader, written and answered by threads of their own: an interrupt never cuts one in half."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.interruptible = False
        self.asked_to_stop = self.interrupted = False
        self.handler: Callable[..., None] | None = None  # of interrupts: the kernel's own
        self.cancel: Callable[[], object] | None = None  # where an interrupt has to end what is awaited
        self.forked = False
        self._directory = ""
        self._frames = self._answers = -1
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, SimpleQueue[Any]] = {}
        self._main = get_ident()

    def open(self, directory: str, frames: int, answers: int) -> None:
        """Begin. No child process is to have these descriptors."""
        self._directory, self._frames, self._answers = directory, frames, answers
        for descriptor in (frames, answers):
            os.set_inheritable(descriptor, False)
        os.register_at_fork(after_in_child=self._in_child)
        for work in (self._write, self._read):
            Thread(target=self._vital, args=(work,), name="streamkit", daemon=True).start()

    def _vital(self, work: Callable[[], None]) -> None:
        """Do what the kernel is of no use without: it ends with it, and with all that it started."""
        try:
            work()
        finally:
            rmtree(self._directory, ignore_errors=True)
            killpg(0, signal.SIGKILL)

    def _in_child(self) -> None:
        self.forked = True  # it has neither thread; what it prints goes through the pipes that it inherits

    @property
    def current(self) -> Run | None:
        """The run that the calling thread or task belongs to."""
        return run_of.get() or self.run

    def tell(self, type: str, **fields: Any) -> None:
        self._put(type, fields)

    def ask(self, type: str, **fields: Any) -> Any:
        """The reader's answer; it comes when all that was written before has been read."""
        if self.forked or self.current is not self.run:
            return None
        number = next(self._numbers)
        answer: SimpleQueue[Any] = SimpleQueue()
        self._waiting[number] = answer
        try:
            self._put(type, {**fields, "ack": number})
            return answer.get()
        finally:
            self._waiting.pop(number, None)

    def _put(self, type: str, fields: dict[str, Any]) -> None:
        run = self.current
        if not self.forked and run is self.run:
            self._queue.put(_line({"type": type, "run": run.id if run else None, **fields}))

    def _write(self) -> None:
        """Write what is put; meanwhile look which line runs."""
        while True:
            try:
                data = self._queue.get(timeout=SAMPLING if self.run is not None and self.interruptible else None)
            except Empty:
                self._sample()
                self._interrupt_again()
                continue
            write_all(self._frames, data)

    def _sample(self) -> None:
        run = self.run
        frame = self.runs_in(_current_frames().get(self._main))
        if run is not None and frame is not None:
            self.at_line(run, frame.f_lineno)

    def runs_in(self, frame: FrameType | None) -> FrameType | None:
        """The innermost of these frames that is the run's own code."""
        while frame is not None and (self.run is None or frame.f_code.co_filename != self.run.filename):
            frame = frame.f_back
        return frame

    def at_line(self, run: Run, line: int) -> None:
        if run.line != line and run is self.run and self.interruptible:
            run.line = line
            self._queue.put(_line({"type": "line", "run": run.id, "line": line}))

    def _read(self) -> None:
        """Take answers, and the wish to stop, until their pipe ends: whoever started this is gone."""
        for line in open(self._answers, "rb", buffering=0):  # noqa: SIM115  # until the process ends
            answer = loads(line)
            if "interrupt" in answer:
                self._interrupt(answer["interrupt"])
            elif (waiting := self._waiting.get(answer["ack"])) is not None:
                waiting.put(answer.get("value"))

    def _interrupt(self, id: str) -> None:
        """Interrupt the main thread. The signal that comes as well ends a call that waits, but is lost in one that
        ignores signals meanwhile, as `os.system` does."""
        if self.run is not None and self.run.id == id and self.interruptible:
            self.asked_to_stop = True
            interrupt_main()

    def _interrupt_again(self) -> None:
        """A signal that came just before a call began to wait did not end it. Code with a handler of its own has had
        its signals."""
        if (
            self.asked_to_stop
            and self.interruptible
            and not self.interrupted
            and getsignal(signal.SIGINT) is self.handler
        ):
            pthread_kill(self._main, signal.SIGINT)


def _line(frame: dict[str, Any]) -> bytes:
    return dumps(frame).encode("ascii") + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write(descriptor, view) :]


channel = Channel()  # a process has one
