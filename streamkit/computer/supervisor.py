"""Follows one run from the moment that its process gets the code to its end, however it ends.

The process reports through frames: `begin`; `line` (the line that runs); `display` (a value by MIME types);
`traceback`; `sync` (nothing but an acknowledgement is wanted); `input` (a prompt); `end`. A frame is handled when the
run's pipes are empty, so that output and frames keep their order; a frame with an `ack` number is then answered with
that number, and its sender waits for the answer.

The run is over when its `end` frame came, its process ended, or `RunStopper` abandoned it.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from .input_answers import InputAnswers
from .language_process import LanguageProcess
from .output_queue import LimitedOutput
from .pipes import Pipes
from .process_channel import ProcessChannel, Wakeup
from .processes import Identity
from .request import RunRequest
from .stopping import InterruptibleRunner, RunStopper

__all__ = ["Supervisor"]

_DRAIN_LIMIT = 4 << 20  # characters read before a frame is handled, where something writes without end
_BURST = 0.004  # seconds: output that follows other output so soon waits as long, to be read in few large chunks
_INTERRUPT_ERRORS = ("KeyboardInterrupt", "CancelledError")  # what an interrupt raises; the end note reports it


class SupervisedRunner(InterruptibleRunner, Protocol):
    """The runner of a language, as the supervisor of a run uses it."""

    may_exit: bool
    confirms_interrupts: bool
    channel: ProcessChannel
    wakeup: Wakeup

    def wake(self) -> None:
        """Make the thread that follows a run look at it."""
        ...

    def send(self, command: Mapping[str, Any]) -> None:
        """Send a command to the process."""
        ...

    def is_newest_confirmation(self, frame: Mapping[str, Any]) -> bool:
        """Whether a frame confirms the newest interrupt."""
        ...

    def end_process(self) -> bool:
        """End the process. Returns whether nothing of it remains."""
        ...


class Supervisor:
    """Reads what a run's process reports, and ends the process where it has to.

    Args:
        runner: the runner of the language.
        run: the run; its `result` is filled in.
        pipes: the run's stdout and stderr.
        process: the process that runs the code.
        before: the processes below it that were there before the run.

    Attributes:
        begun: whether the process has begun to run the code.
    """

    def __init__(
        self, runner: SupervisedRunner, run: RunRequest, pipes: Pipes, process: LanguageProcess, before: set[Identity]
    ) -> None:
        self._runner = runner
        self._run = run
        self._pipes = pipes
        self._process = process
        self._before = before
        self._stopper = RunStopper(runner, run, process, before)
        # Not a function that refers to this object: a cycle would keep the runner and its descriptors alive.
        self._output = LimitedOutput(run.output, run.limits.output, partial(self._stopper.stop, "output_limit"))
        self._answers = InputAnswers(run, runner.wake)
        self._ended = False
        self._last_output = self._read_after = 0.0  # when there was output, and until when no more is read
        self.begun = False

    def until_done(self) -> None:
        """Follow the run to its end, and end what may not live on."""
        while not self._ended:
            self._read(self._wait())
            if not self._ended and self._stopper.check(begun=self.begun):
                self._ended = True
            self._output.stopping = self._stopper.stopping
        self._drain_pipes()
        for stream, text in self._pipes.incomplete_text().items():
            self._output.write(stream, text)
        run, result = self._run, self._run.result
        result.reason = run.stop_reason if self._stopper.stopping else None
        if not result.ended:
            result.killed = result.exit_code is None
            result.processes_remain = not self._runner.end_process()
            result.state_lost = True
        elif result.reason is not None and not self._process.tree.kill(besides=self._before):
            result.restarts_processes = result.state_lost = True
            result.processes_remain = not self._runner.end_process()
        result.at_line_start = self._output.at_line_start

    # -- reading

    def _wait(self) -> dict[int, int]:
        """Wait until something can be read; returns the descriptors that are ready.

        While the output queue is full the process is not read, so the code blocks in its next write.
        """
        runner, now = self._runner, time.monotonic()
        descriptors = [runner.wakeup.reader]
        may_read = self._stopper.stopping or not self._run.output.full
        paused = may_read and now < self._read_after
        if may_read:
            descriptors += [runner.channel.frames, self._process.report]
            if not paused:
                descriptors += self._pipes.open
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        if runner.channel.unsent:
            poll.register(runner.channel.commands, select.POLLOUT)
        seconds = self._read_after - now if paused else self._stopper.seconds_to_wait(now)
        ready = dict(poll.poll(None if seconds is None else 1000 * seconds))
        if not paused and any(descriptor in ready for descriptor in self._pipes.open):
            now = time.monotonic()
            if now - self._last_output < _BURST and not self._pipes.filled:
                self._read_after = now + _BURST
            self._last_output = now
        return ready

    def _read(self, ready: Mapping[int, int]) -> None:
        runner, channel = self._runner, self._runner.channel
        if runner.wakeup.reader in ready:
            runner.wakeup.clear()
        if channel.unsent:
            channel.flush()
        # Frames are read first and handled last: what their senders had printed before is in the pipes by now.
        frames = channel.read_frames() if channel.frames in ready else []
        for descriptor in [*self._pipes.open]:
            if descriptor in ready:
                self._output.write(self._pipes.open[descriptor], self._pipes.read(descriptor))
        for frame in frames or ():
            if not self._ended:
                self._handle(frame)
        ended = self._process.report in ready and self._process.poll() is not None
        if not self._ended and (frames is None or (ended and not frames)):
            self._report_death()
        if not self._ended:
            self._send_answers()

    def _drain_pipes(self) -> None:
        """Read the pipes until they are empty."""
        size = 0
        empty = False
        while not empty and size < _DRAIN_LIMIT:
            empty = True
            for descriptor, stream in [*self._pipes.open.items()]:
                text = self._pipes.read(descriptor)
                self._output.write(stream, text)
                size += len(text)
                empty = empty and not text

    # -- frames

    def _handle(self, frame: Mapping[str, Any]) -> None:
        if frame.get("run") != self._run.id:  # of an earlier run, from a thread that outlived it
            self._acknowledge(frame)
            return
        self._drain_pipes()
        match frame["type"]:
            case "begin":
                self.begun = True
            case "line":
                self._run.output.put_active_line(frame["line"], step=frame["step"])
            case "display":
                self._output.display(frame["data"])
            case "traceback":
                self._traceback(frame["name"], frame["text"])
            case "input":  # acknowledged by its answer
                self._output.write("stdout", frame["prompt"])
                self._answers.find(frame["ack"], frame["prompt"])
                return
            case "end":
                self._end(frame)
            case _:
                pass
        self._acknowledge(frame)

    def _acknowledge(self, frame: Mapping[str, Any]) -> None:
        if isinstance(number := frame.get("ack"), int):
            self._runner.send({"ack": number})

    def _send_answers(self) -> None:
        """Send the answers to `input()`, which the console shows as a terminal would."""
        for number, value in self._answers.take():
            if value is not None:
                self._output.write("stdout", value + "\n")
            self._runner.send({"ack": number, "value": value})

    def _traceback(self, name: str, text: str) -> None:
        if not self._stopper.stopping or name not in _INTERRUPT_ERRORS:
            start = "" if self._output.at_line_start else "\n"
            self._output.write("stderr", f"{start}{text}\n")

    def _end(self, frame: Mapping[str, Any]) -> None:
        """Take over how the code ended: status `ok`, `error`, `interrupted`, or `unsettled` if a part of it keeps running."""
        result = self._run.result
        status, exit_code = frame["status"], frame.get("exit_code")
        if status == "unsettled":
            self._ended = True
            return
        if status == "interrupted":
            result.ended = self._ended = self._runner.is_newest_confirmation(frame)
            if not self._stopper.stopping:  # the code interrupted itself
                result.failed, result.exit_code = True, 130
            return
        # Some processes confirm each interrupt. Of these only the confirmation ends a run that was interrupted.
        self._ended = not (self._stopper.interrupted and self._runner.confirms_interrupts)
        result.ended = self._ended
        result.exit_code = exit_code
        result.failed = status != "ok" or bool(exit_code)
        if result.failed and frame.get("ename"):
            result.error = {
                "name": str(frame["ename"]),
                "value": str(frame.get("evalue") or ""),
                "traceback": str(frame.get("traceback") or ""),
            }

    def _report_death(self) -> None:
        """The process ended without an `end` frame, or closed its pipe and lives on, to be killed with the rest."""
        process, result = self._process, self._run.result
        result.exit_code = process.wait(1)
        if result.exit_code is None and not process.tree.root_lives():
            result.exit_code = process.wait(10)  # on a busy machine it takes its time until that is reported
        if process.limit_passed is not None:
            self._stopper.stop(process.limit_passed)
        if self._runner.may_exit and result.exit_code is not None and result.exit_code >= 0:
            result.exited, result.failed = True, result.exit_code != 0
        self._ended = True
