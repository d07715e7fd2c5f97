"""A living interpreter of one language, and what holds for all of them: its process, its pipes, how runs end.

A runner's process lives from its first run to its last, so that state lives on. Every run has a pipe of its own for
stdout and one for stderr: what anything writes that an earlier run had started goes to that run's pipes, which are read
to their end by nobody in particular. What else the process tells comes as frames, JSON lines on a third pipe; a frame
is taken when the run's pipes are empty, and one that is answered keeps its sender waiting until then. So the order of
output, displays and the end is that of the program.

A run that is to stop is interrupted; where that does not end it within a second the process is killed and its state is
lost, which is told. Then all that the run had started is killed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from .end_notes import death
from .pipes import Pipes
from .processes import MARK, Family, Identity
from .request import NotStartedError, Outcome, RunRequest, Settings
from .supervisor import Serving

__all__ = ["Runner"]

START = 60.0  # seconds that a process may take to become ready
READ = 1 << 16


class Runner:
    """One language. `name` is its name; a class is registered, and made when its language is first wanted."""

    name: str = ""
    may_exit: bool = False  # whether its process ending is how code may end
    asks: bool = False  # whether `settle` asks if an interrupted run has ended

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # held by who starts, runs or ends the process
        self.process: subprocess.Popen[bytes] | None = None
        self.family: Family | None = None
        self.frames = self.commands = -1
        self.exit = -1  # a descriptor that tells when the process ends, where the system has such
        self._pending: list[bytes] = []  # the begin of a frame whose end is still to come
        self.directory = ""
        self._unsent = bytearray()
        self._has_run = False  # and has a state that could be lost
        self._lost = ""  # that it was, for the run that comes
        self._run: RunRequest | None = None
        self._closed = False
        self.wake_reader, self._wake_writer = os.pipe()
        for descriptor in (self.wake_reader, self._wake_writer):
            os.set_blocking(descriptor, False)

    # -- what a language says

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """The command of the process, which writes frames to one descriptor and reads commands from the other."""
        raise NotImplementedError

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Hand the process a run, whose output goes to the pipes of these names."""
        raise NotImplementedError

    def interrupt(self, before: set[Identity]) -> None:
        """Make what runs end, and leave those processes alone that were there before."""
        raise NotImplementedError

    def descriptors(self, frames: int, commands: int) -> tuple[int, tuple[int, ...]]:
        """The process's stdin, and what else it inherits."""
        return subprocess.DEVNULL, (frames, commands)

    def prepare(self, directory: str) -> None:
        """Make ready what the process finds in its directory."""

    def handed_over(self) -> None:
        """The process has what it inherits, or could not be started."""

    def launched(self) -> None:
        """The process runs, and may not be ready yet."""

    def connect(self) -> None:
        """The process is ready."""

    def settle(self, before: set[Identity]) -> None:
        """The run was interrupted some time ago, and has not ended: a few dozen times a second."""
        if self.family is not None:
            self.family.interrupt(besides=before)  # what it started meanwhile

    def settled(self, frame: Mapping[str, Any]) -> bool:
        """Whether a frame that says that the run was interrupted says so of the newest interrupt."""
        return True

    def refuse(self, code: str) -> str | None:
        """Why this code cannot even be handed over, None if it can."""
        return None

    # -- from any thread

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_writer, b"x")

    def hurry(self) -> None:
        """It is to be closed: what starts is given up. It waits for nothing."""
        self._closed = True
        self.wake()

    def start(self) -> None:
        """Make the process ready, in the background."""
        threading.Thread(target=self._start_quietly, name=f"streamkit-{self.name}-start", daemon=True).start()

    def _start_quietly(self) -> None:
        with self._lock, contextlib.suppress(NotStartedError):  # the run that comes will be told
            self._ensure(None)

    def run(self, run: RunRequest) -> Outcome:
        """Run to the end, in this thread. What it tells goes to its feed; how it ended is the result."""
        with self._lock:
            self._run = run
            try:
                if not self._serve(run):
                    self._serve(run)  # by a new process
            except NotStartedError as error:
                run.outcome.cause = str(error)
                run.outcome.reason = run.reason
            finally:
                self._run = None
        return run.outcome

    def _tell_loss(self, run: RunRequest) -> None:
        """What the code may count on is gone, where the process ended between two runs."""
        if self._lost:
            run.feed.tell("note", self._lost)
            run.outcome.lost_before, self._lost = True, ""

    def close(self) -> None:
        """End the process and all that it started. Returns when they have ended."""
        self.hurry()
        with self._lock:
            self.end_process()

    @property
    def pid(self) -> int | None:
        process = self.process
        return None if process is None else process.pid

    # -- its process

    def _ensure(self, run: RunRequest | None) -> None:
        """Have a process that is ready. Raises `NotStartedError`."""
        if self._closed:
            raise NotStartedError("the computer is closed")
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and self._has_run:
            self._lost = self._loss(self.process.poll())
        self.end_process()
        try:
            self._launch()
            self._await_ready(run)
        except NotStartedError:
            self.end_process()
            raise
        except Exception as error:
            self.end_process()
            raise NotStartedError(f"the {self.name} process could not be started: {error}") from error

    def _await_ready(self, run: RunRequest | None) -> None:
        deadline = time.monotonic() + START
        while True:
            if any(frame.get("type") == "ready" for frame in self._next_frames(0.1)):
                self.connect()
                return
            if self._closed or (run is not None and run.reason is not None):
                raise NotStartedError("it was stopped before it began")
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                how = "took too long to start" if self.process.poll() is None else "ended while it started"
                raise NotStartedError(f"the {self.name} process {how}{self._log()}")

    def _launch(self) -> None:
        mark = uuid.uuid4().hex
        environment = dict(os.environ if self._settings.env is None else self._settings.env)
        environment[MARK] = mark
        self.directory = _directory()
        with contextlib.ExitStack() as theirs:
            theirs.callback(self.handed_over)
            self.frames, frames = os.pipe()
            theirs.callback(os.close, frames)
            commands, self.commands = os.pipe()
            theirs.callback(os.close, commands)
            for descriptor in (self.frames, self.commands):
                os.set_blocking(descriptor, False)
            self.prepare(self.directory)
            stdin, inherited = self.descriptors(frames, commands)
            log = theirs.enter_context(open(os.path.join(self.directory, "log"), "wb"))
            self.process = subprocess.Popen(
                self.command(self.directory, frames, commands),
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self._settings.cwd,
                env=environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        self.family = Family(self.process.pid, mark)
        with contextlib.suppress(AttributeError, OSError):
            self.exit = os.pidfd_open(self.process.pid)
        self.launched()

    def _log(self) -> str:
        with contextlib.suppress(OSError), open(os.path.join(self.directory, "log"), "rb") as log:
            if text := log.read()[-2000:].decode("utf-8", "replace").strip():
                return f":\n{text}"
        return ""

    def disconnect(self) -> None:
        """The process is about to be ended."""

    def end_process(self) -> bool:
        """End the process with all that it started; True if nothing is left of them."""
        process, family = self.process, self.family
        self.process = self.family = None
        gone = True
        self.disconnect()
        if family is not None:
            gone = family.kill(group=True)
        if process is not None:
            process.wait()
        for descriptor in (self.frames, self.commands, self.exit):
            if descriptor >= 0:
                os.close(descriptor)
        self.frames = self.commands = self.exit = -1
        self._pending.clear()
        self._unsent.clear()
        self._has_run = False
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = ""
        return gone

    def send(self, value: Mapping[str, Any]) -> None:
        """A command to the process. One that is gone is noticed where frames are read."""
        self.send_line(msgspec.json.encode(value))

    def send_line(self, line: bytes) -> None:
        self._unsent += line + b"\n"
        self.send_rest()

    def send_rest(self) -> None:
        """Send what the process has room for, and wait for nothing: one that is stopped takes nothing."""
        with contextlib.suppress(BlockingIOError):
            try:
                while self._unsent:
                    del self._unsent[: os.write(self.commands, memoryview(self._unsent)[:READ].tobytes())]
            except BrokenPipeError:
                self._unsent.clear()

    @property
    def unsent(self) -> bool:
        return bool(self._unsent)

    def _next_frames(self, seconds: float) -> list[dict[str, Any]]:
        """The frames that are there, or come in this time."""
        poll = select.poll()
        for descriptor in (self.frames, self.wake_reader):
            poll.register(descriptor, select.POLLIN)
        ready = dict(poll.poll(seconds * 1000))
        self.clear_wake()
        return (self.read_frames() or []) if self.frames in ready else []

    def clear_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake_reader, 4096):
                pass

    def read_frames(self) -> list[dict[str, Any]] | None:
        """The frames that are there; None: the process will tell no more."""
        try:
            data = os.read(self.frames, READ)
        except BlockingIOError:
            return []
        if not data:
            return None
        first, *lines = data.split(b"\n")
        self._pending.append(first)
        if not lines:
            return []
        whole, self._pending = [b"".join(self._pending), *lines[:-1]], [lines[-1]]
        return [frame for line in whole if (frame := _frame(line)) is not None]

    # -- one run

    def _serve(self, run: RunRequest) -> bool:
        """False: the process that earlier runs had used ended before it began with this one."""
        self._ensure(run)
        self._tell_loss(run)
        if run.reason is not None:
            raise NotStartedError("it was stopped before it began")
        assert self.family is not None
        before = set(self.family.find())
        used, pipes = self._has_run, self._hand_over(run)
        serving = Serving(self, run, pipes, self.family, before)
        try:
            serving.until_done()
        finally:
            pipes.leave()
        if not used or serving.begun or run.outcome.exit_code is None or run.reason is not None:
            return True
        self._lost = self._loss(run.outcome.exit_code)
        run.outcome = Outcome()
        return False

    def _loss(self, exit_code: int | None) -> str:
        how = death(exit_code)
        return f"[after the last run the {self.name} process {how}; its variables and its state are lost]\n"

    def _hand_over(self, run: RunRequest) -> Pipes:
        """Its pipes, once the process has it. A process whose directory is gone is of no use for the next run either."""
        try:
            pipes = Pipes(self.directory, run.id)
            try:
                self.submit(run, *pipes.names)
            except BaseException:
                pipes.leave()
                raise
        except OSError as error:
            if not os.path.isdir(self.directory):
                run.outcome.state_lost = self._has_run
                run.outcome.left = not self.end_process()
            raise NotStartedError(f"the run could not be handed to the {self.name} process: {error}") from error
        self._has_run = True
        return pipes

    def __del__(self) -> None:
        for descriptor in (self.wake_reader, self._wake_writer):
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _directory() -> str:
    """A directory of its own for a process, with a path that is short enough for a socket's."""
    directory = tempfile.mkdtemp(prefix="streamkit-")
    if len(directory) > 80:
        os.rmdir(directory)
        directory = tempfile.mkdtemp(prefix="streamkit-", dir="/tmp")
    return directory


def _frame(line: bytes) -> dict[str, Any] | None:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None  # whoever wrote this, it was not the runner's own program
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]
