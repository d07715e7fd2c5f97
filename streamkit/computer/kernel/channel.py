"""The kernel's end of the channel to its runner: frames to it, answers from it; and the run that frames are about.

Each run has two pipes of its own, for stdout and stderr. While it is the current run they are the process's descriptors
1 and 2, so what child processes write is the run's as well; a thread keeps those of the run that started it.
Everything else goes through the channel, in order with the pipes: the runner empties them before it handles a frame,
and the sender of a frame that wants an answer waits for it.

Frames are JSON lines with a `type`, the id of the `run`, and an `ack` number if an answer is wanted. Answers are JSON
lines: `{"ack": number, "value": …}`. So are what the runner sends unasked: `{"interrupt": run}`, and a run to execute,
`{"run": id, "code": …, "out": path, "err": path}`.
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
from os import kill, write
from queue import Empty, SimpleQueue
from signal import getsignal, pthread_kill
from sys import _current_frames  # pyright: ignore[reportPrivateUsage]  # documented in spite of its name
from threading import Thread, get_ident
from time import monotonic
from types import FrameType
from typing import Any

__all__ = ["Channel", "KernelRun", "channel", "run_of_context", "write_all"]

SAMPLING_INTERVAL = 0.02  # seconds between two looks at the line that runs
_ORDERED_STEPS = 20  # so many steps of a run come before what they print, however fast they are
_ORDER_SHARE = 10  # … but later ones only after so many times as long as the last wait for the runner took


class KernelRun:
    """One run's pipes. They are closed when no thread or task of the run is left that could write to them.

    Args:
        id: the run's id.
        out: the path of the pipe for stdout.
        err: the path of the pipe for stderr.

    Attributes:
        descriptors: the open pipes, by the descriptor, 1 or 2, for which they stand.
        last_written: which of the two was written to last; 0 for neither.
        filename: the file name that its code was compiled with.
        line: the line that was reported last.
        ordered_steps: how many steps what is printed has waited for.
        order_after: when it waits for the next one, once these are 20.
        error_reported: whether its error was sent as a traceback.
        error: the error that was shown last, as fields of an `end` frame.
        displaying: whether the value of the code is being displayed.
        failed_display: whether that raised an error.
    """

    def __init__(self, id: str, out: str, err: str) -> None:
        self.id = id
        self.descriptors: dict[int, int] = {}
        for number, name in ((1, out), (2, err)):
            self.descriptors[number] = os.open(name, os.O_WRONLY)
        self.last_written = 1
        self.filename = ""
        self.line: int | None = None
        self.ordered_steps, self.order_after = 0, 0.0
        self.error_reported = self.displaying = self.failed_display = False
        self.error: dict[str, str] = {}

    def redirect_process(self) -> None:
        """Make the pipes the process's own stdout and stderr."""
        for number, descriptor in self.descriptors.items():
            os.dup2(descriptor, number)

    def __del__(self) -> None:
        for descriptor in self.descriptors.values():
            with contextlib.suppress(OSError):
                os.close(descriptor)


run_of_context: contextvars.ContextVar[KernelRun | None] = contextvars.ContextVar("streamkit_run", default=None)
"""The run that started the current thread or task; None in those of the kernel itself."""


class Channel:
    """Writes frames and reads answers in two threads of its own, so that an interrupt never cuts a frame in half.

    Attributes:
        run: the current run, or the last one.
        interruptible: whether the run's code is running, so that an interrupt may raise an error in it.
        stop_requested: whether the runner sent an interrupt for the run.
        interrupted: whether the interrupt was raised in the code.
        handler: the kernel's own signal handler for interrupts.
        wake: called when a run is there to be executed.
        forked: whether this process is a fork of the kernel. It has neither thread; what it prints goes through the
            pipes that it inherited.
    """

    def __init__(self) -> None:
        self.run: KernelRun | None = None
        self.interruptible = False
        self.stop_requested = self.interrupted = False
        self.handler: Callable[..., None] | None = None
        self.wake: Callable[[], object] = lambda: None
        self._requests: SimpleQueue[dict[str, str]] = SimpleQueue()
        self.forked = False
        self._frames = self._answers = -1
        self._queue: SimpleQueue[bytes] = SimpleQueue()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, SimpleQueue[Any]] = {}
        self._main_thread = get_ident()

    def open(self, frames: int, answers: int) -> None:
        """Start the threads.

        Args:
            frames: the descriptor to write frames to.
            answers: the descriptor to read answers from.
        """
        self._frames, self._answers = frames, answers
        for descriptor in (frames, answers):
            os.set_inheritable(descriptor, False)
        os.register_at_fork(after_in_child=self._mark_forked)
        for work in (self._write, self._read):
            Thread(target=self._work_or_die, args=(work,), name="streamkit", daemon=True).start()

    def _work_or_die(self, work: Callable[[], None]) -> None:
        """Without either thread the kernel is useless, so it ends with them."""
        try:
            work()
        finally:
            kill(0, signal.SIGKILL)

    def _mark_forked(self) -> None:
        self.forked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as in any program; it need not be told apart

    @property
    def current_run(self) -> KernelRun | None:
        """The run that the calling thread or task belongs to."""
        return run_of_context.get() or self.run

    # -- frames

    def send(self, type: str, **fields: Any) -> None:
        """Send a frame of the current run. It is dropped in a fork, and of a run that has ended."""
        self._put(type, fields)

    def request(self, type: str, **fields: Any) -> Any:
        """Send a frame and wait for its answer, by when the runner has read all that was printed before.

        Returns:
            The answer's value; None in a fork, and of a run that has ended.
        """
        if self.forked or self.current_run is not self.run:
            return None
        number = next(self._numbers)
        answer: SimpleQueue[Any] = SimpleQueue()
        self._waiting[number] = answer
        try:
            self._put(type, {**fields, "ack": number})
            return answer.get()
        finally:
            self._waiting.pop(number, None)

    def wait_for_reader(self) -> None:
        """Return when the runner has read all that was sent and printed before."""
        began = monotonic()
        self.request("sync")
        if (run := self.current_run) is not None:
            now = monotonic()
            run.order_after = now + _ORDER_SHARE * (now - began)

    def _put(self, type: str, fields: dict[str, Any]) -> None:
        run = self.current_run
        if not self.forked and run is self.run:
            self._queue.put(_encode({"type": type, "run": run.id if run else None, **fields}))

    def _write(self) -> None:
        """Write the frames that are sent; between them look which line runs."""
        while True:
            try:
                data = self._queue.get(
                    timeout=SAMPLING_INTERVAL if self.run is not None and self.interruptible else None
                )
            except Empty:
                self._sample_line()
                self._repeat_interrupt()
                continue
            write_all(self._frames, data)

    # -- the line that runs

    def _sample_line(self) -> None:
        """Report the line that the main thread executes, if it is another one of the run's own code."""
        run = self.run
        frame = self.find_run_frame(_current_frames().get(self._main_thread))
        if run is None or frame is None:
            return
        line = frame.f_lineno  # read once, for the main thread keeps running
        if run is self.run and self.interruptible:
            self.report_line(line)

    def report_line(self, line: int | None, *, step: bool = False) -> None:
        """Report the line that runs, if it is another one.

        Args:
            line: its number, from 1.
            step: whether a statement of the run begins there, which is reported however soon another follows.
        """
        run = self.run
        if run is not None and run.line != line and not self.forked:
            run.line = line
            self._queue.put(_encode({"type": "line", "run": run.id, "line": line, "step": step}))
            if step and (run.ordered_steps < _ORDERED_STEPS or monotonic() > run.order_after):
                run.last_written = 0  # so that what is printed next waits until the line is reported
                run.ordered_steps += 1

    def find_run_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost of this frame and its callers that is the run's own code; None if there is none."""
        while frame is not None and not self.is_run_frame(frame):
            frame = frame.f_back
        return frame

    def is_run_frame(self, frame: FrameType) -> bool:
        """Whether a frame is the run's own code."""
        return self.run is not None and frame.f_code.co_filename == self.run.filename

    # -- runs, answers and interrupts

    def next_request(self) -> dict[str, str] | None:
        """Return the next run to execute; None if there is none yet."""
        try:
            return self._requests.get_nowait()
        except Empty:
            return None

    def _read(self) -> None:
        """Read what the runner sends until the pipe ends, because the runner is gone."""
        for line in open(self._answers, "rb", buffering=0):  # noqa: SIM115  # open until the process ends
            answer = loads(line)
            if "interrupt" in answer:
                self._interrupt(answer["interrupt"])
            elif "code" in answer:
                self._requests.put(answer)
                self.wake()
            elif (waiting := self._waiting.get(answer["ack"])) is not None:
                waiting.put(answer.get("value"))

    def _interrupt(self, id: str) -> None:
        """Interrupt the main thread. The runner sends a signal as well: that one ends a call that waits, but is lost in
        a call that ignores signals meanwhile, as `os.system` does."""
        if self.run is not None and self.run.id == id and self.interruptible:
            self.stop_requested = True
            interrupt_main()

    def _repeat_interrupt(self) -> None:
        """Send the signal again: one that came just before a call began to wait did not end that call. Code that set a
        handler of its own has had its signals."""
        if (
            self.stop_requested
            and self.interruptible
            and not self.interrupted
            and getsignal(signal.SIGINT) is self.handler
        ):
            pthread_kill(self._main_thread, signal.SIGINT)


def _encode(frame: dict[str, Any]) -> bytes:
    """Return the frame as a line of JSON. Halves of surrogate pairs, which JSON cannot have, are joined or replaced."""
    text = dumps(frame, ensure_ascii=False)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() + b"\n"


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data, in as many calls as that takes."""
    view = memoryview(data)
    while view:
        view = view[write(descriptor, view) :]


channel = Channel()
"""The process's only channel."""
