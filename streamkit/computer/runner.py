"""A runner: one language, the process that runs its code, and how runs are handed to it.

The process lives from its first run to the end of the computer, so its state lives on. Every run has a pipe of its own
for stdout and one for stderr: whatever an earlier run started keeps writing to that run's pipes, where it is discarded. Everything else that the process reports comes as frames, see `supervisor`.

A run that has to stop is interrupted; where that does not end it within a second the process is killed and its state
is lost; the console explains that. Then everything that the run had started is killed.
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
from collections.abc import Mapping
from typing import Any

from .end_notes import describe_exit, describe_stop, lost_between_runs, lost_in_last_run
from .environment import default_environment
from .language_process import START_TIMEOUT, LanguageProcess
from .pipes import Pipes
from .process_channel import ProcessChannel, Wakeup, release
from .processes import Identity
from .request import NotStartedError, RunRequest, RunResult, Settings
from .supervisor import Supervisor

__all__ = ["Runner"]

_with_process: set[Runner] = set()
_LOG_SIZE = 2000  # bytes of a process's own output that explain why it did not start
_LONGEST_DIRECTORY = 80  # characters: the path of a Unix socket may have about 100


class Runner:
    """Runs the code of one language. Subclass it to register another with `Computer.register`.

    A language that needs no process overrides `run` alone:

        class Echo(Runner):
            name = "echo"

            def run(self, run: RunRequest) -> RunResult:
                run.output.put_text("stdout", run.code)
                run.result.ended = True
                return run.result

        computer.register("echo", Echo)

    One with a process overrides `command`, `submit` and `interrupt`. Its process writes frames, JSON objects in lines,
    to the descriptor that `command` names: first `{"type": "ready"}`, then for each run, with the run's id as `run`,
    `{"type": "begin"}`, and at the end `{"type": "end", "status": "ok", "exit_code": 0}`. Its output goes to the two
    named pipes at the paths that `submit` gets.

    Args:
        settings: the directory and the environment for the process.

    Attributes:
        name: the language's name; a class attribute.
        may_exit: whether code may end the process on purpose, as `exit` in a shell; a class attribute.
        confirms_interrupts: whether the process confirms each interrupt with an `end` frame of status `interrupted`,
            and only the newest confirmation ends an interrupted run; a class attribute.
        process: the process, None while there is none; `process.tree` is the process and all that descend from it.
        directory: the process's own directory, "" while there is none.
        channel: the pipes for frames and commands.
        wakeup: makes the thread that follows a run look at it.
    """

    name: str = ""
    may_exit: bool = False
    confirms_interrupts: bool = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()  # held while the process is started, used or ended
        self.process: LanguageProcess | None = None
        self.directory = ""
        self.channel = ProcessChannel()
        self.wakeup = Wakeup()
        self._has_run = False  # so the process has a state that could be lost
        self._loss_note = ""  # for the next run, if the state was lost since the last
        self._lossy_run: RunRequest | None = None  # the last run, if it lost the state
        self._closed = False
        self._owner = os.getpid()

    # -- what a language defines

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """Return the command line of the process.

        Args:
            directory: a directory for the process alone, removed with it.
            frames: the descriptor to which the process writes frames.
            commands: the descriptor from which it reads commands.
        """
        raise NotImplementedError

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Send the code of a run to the process; its output has to go to the named pipes at the paths `out` and `err`."""
        raise NotImplementedError

    def interrupt(self, before: set[Identity]) -> None:
        """Interrupt the code that runs, but not the processes that were there before the run."""
        raise NotImplementedError

    def descriptors(self, frames: int, commands: int) -> tuple[int, tuple[int, ...]]:
        """Return the descriptor that becomes the process's stdin, and those that it inherits besides."""
        return subprocess.DEVNULL, (frames, commands)

    def prepare(self, directory: str) -> None:
        """Called before the process starts, to put into its directory what it needs.

        Raises:
            NotStartedError: something is missing, so the process cannot start.
        """

    def process_started(self) -> None:
        """Called when the process runs, before it is ready."""

    def repeat_interrupt(self, before: set[Identity]) -> None:
        """Called again and again while interrupted code keeps running. By default its child processes get SIGINT."""
        if self.process is not None:
            self.process.tree.interrupt(besides=before)

    def is_newest_confirmation(self, frame: Mapping[str, Any]) -> bool:
        """Whether an `end` frame of status `interrupted` answers the newest interrupt, so that none is on its way."""
        return True

    def refuse(self, code: str) -> str | None:
        """Why this code cannot be submitted at all, None if it can. The text becomes the output of the run."""
        return None

    # -- what the computer calls

    def run(self, run: RunRequest) -> RunResult:
        """Run code to its end, in the calling thread. Its output goes to `run.output`; returns `run.result`, filled in."""
        with self._lock:
            try:
                if not self._run_once(run):
                    self._run_once(run)
            except NotStartedError as error:
                run.result.start_error = str(error)
                run.result.reason = run.stop_reason
        return run.result

    def wake(self) -> None:
        """Have the current run notice its new `stop_reason`. From any thread."""
        self.wakeup.set()

    def start(self) -> None:
        """Start the process in the background, unless it lives. Returns at once."""
        threading.Thread(target=self._start_quietly, name=f"streamkit-{self.name}-start", daemon=True).start()

    def _start_quietly(self) -> None:
        with self._lock, contextlib.suppress(NotStartedError):  # the next run tries again, and reports it
            self._ensure_process(None)

    def prepare_close(self) -> None:
        """Give up a process that is being started, for `close` follows. Returns at once."""
        self._closed = True
        self.wake()

    def close(self) -> None:
        """End the process and all that it started. Returns when they have ended. Does nothing in a fork of the program."""
        if os.getpid() != self._owner:
            return
        self.prepare_close()
        with self._lock:
            self.end_process()

    @staticmethod
    def with_processes() -> list[Runner]:
        """Return the runners of this program with a live process."""
        return [*_with_process]

    @property
    def pid(self) -> int | None:
        """The id of the process, None while there is none."""
        process = self.process
        return None if process is None else process.pid

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command to the process, as a JSON line."""
        self.channel.send(command)

    # -- the process

    def _ensure_process(self, run: RunRequest | None) -> None:
        """Start the process unless it lives, and wait until it is ready. Raises `NotStartedError`."""
        if self._closed:
            raise NotStartedError("the computer is closed")
        if self.process is not None and self.process.poll() is None:
            return
        if self.process is not None and self._has_run:
            self._loss_note = lost_between_runs(self.name, _how_ended(self.process))
        self.end_process()
        try:
            self._launch()
            self._await_ready(run)
        except NotStartedError:
            self.end_process()
            raise
        except Exception as error:
            text = f"the {self.name} process could not be started: {error}{self._log()}"
            self.end_process()
            raise NotStartedError(text) from error

    def _launch(self) -> None:
        environment = default_environment() if self._settings.env is None else dict(self._settings.env)
        self.directory = _make_directory()
        _with_process.add(self)
        with contextlib.ExitStack() as theirs:
            frames = self.channel.open_frames()
            theirs.callback(release, frames)
            commands = self.channel.open_commands()
            theirs.callback(release, commands)
            self.prepare(self.directory)
            stdin, inherited = self.descriptors(frames, commands)
            log = theirs.enter_context(open(os.path.join(self.directory, "log"), "wb"))
            self.process = LanguageProcess(
                self.command(self.directory, frames, commands),
                directory=self.directory,
                stdin=stdin,
                inherited=inherited,
                log=log,
                cwd=self._settings.cwd,
                env=environment,
            )
        self.process_started()

    def _await_ready(self, run: RunRequest | None) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            if any(frame.get("type") == "ready" for frame in self._wait_for_frames(0.1)):
                return
            if self._closed or (run is not None and run.stop_reason is not None):
                raise NotStartedError("the run was stopped before it began")
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                how = "took too long to start" if self.process.poll() is None else "ended while it was starting"
                raise NotStartedError(f"the {self.name} process {how}{self._log()}")

    def _wait_for_frames(self, seconds: float) -> list[dict[str, Any]]:
        """Return the frames that are available, or become so within this time."""
        poll = select.poll()
        for descriptor in (self.channel.frames, self.wakeup.reader):
            poll.register(descriptor, select.POLLIN)
        ready = dict(poll.poll(seconds * 1000))
        self.wakeup.clear()
        return (self.channel.read_frames() or []) if self.channel.frames in ready else []

    def _log(self) -> str:
        """Return what the process itself printed, to explain why it is not ready."""
        with contextlib.suppress(OSError), open(os.path.join(self.directory, "log"), "rb") as log:
            if text := log.read()[-_LOG_SIZE:].decode("utf-8", "replace").strip():
                return f":\n{text}"
        return ""

    def end_process(self) -> bool:
        """Kill the process and all that it started; whether all of them have ended."""
        process, self.process = self.process, None
        all_ended = process is None or process.end()
        self.channel.close()
        self._has_run = False
        if self.directory:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = ""
        _with_process.discard(self)
        return all_ended

    # -- one run

    def _run_once(self, run: RunRequest) -> bool:
        """Run the code. False: a process that earlier runs had used ended before it began; a new one has to run it."""
        self._ensure_process(run)
        self._report_loss(run)
        if run.stop_reason is not None:
            raise NotStartedError("the run was stopped before it began")
        process = self.process
        assert process is not None
        before = process.tree.find()
        process.watch(run.limits, running=True)
        used, pipes = self._has_run, self._hand_over(run)
        supervisor = Supervisor(self, run, pipes, process, before)
        try:
            supervisor.until_done()
        finally:
            pipes.release()
            if self.process is process:
                process.watch(run.limits, running=False)
        if not used or supervisor.begun or run.result.exit_code is None or run.stop_reason is not None:
            self._lossy_run = run if run.result.state_lost else None
            return True
        self._loss_note = lost_between_runs(self.name, describe_exit(run.result.exit_code))
        run.result = RunResult()
        return False

    def _report_loss(self, run: RunRequest) -> None:
        """Write into the console that the state of earlier runs is lost, unless an earlier console has that."""
        before, self._lossy_run = self._lossy_run, None
        if before is not None and not before.read_to_end:
            self._loss_note = lost_in_last_run(self.name, before.result, before.limits)
        if self._loss_note:
            run.output.put_note(self._loss_note)
            run.result.state_lost_before, self._loss_note = True, ""

    def _hand_over(self, run: RunRequest) -> Pipes:
        """Submit the run; returns its pipes."""
        try:
            pipes = Pipes(self.directory, run.id)
            try:
                self.submit(run, *pipes.names)
            except BaseException:
                pipes.release()
                raise
        except OSError as error:
            if not os.path.isdir(self.directory):  # then no later run could be handed over either
                run.result.state_lost = self._has_run
                run.result.processes_remain = not self.end_process()
            raise NotStartedError(f"the run could not be handed to the {self.name} process: {error}") from error
        self._has_run = True
        return pipes


def _how_ended(process: LanguageProcess) -> str:
    """Return how a process ended, to follow "the process"."""
    limit = process.limit_passed
    return describe_exit(process.returncode) if limit is None else describe_stop(limit, process.limits)


def _make_directory() -> str:
    """Return a new directory for a process, with a path that is short enough for a socket in it."""
    directory = tempfile.mkdtemp(prefix="streamkit-")
    if len(directory) > _LONGEST_DIRECTORY:
        os.rmdir(directory)
        directory = tempfile.mkdtemp(prefix="streamkit-", dir="/tmp")
    return directory
