"""One run, from the moment that its process has it to its end, whatever that end is.

Frames: `begin`; `line` (the line that runs); `display` (data by its type); `traceback`; `sync`; `input` (a prompt); `end`.
Those with an `ack` are answered with it when the run's pipes are empty.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Mapping
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from .pipes import Pipes, Stream
from .processes import Family, Identity
from .request import Reason, RunRequest

if TYPE_CHECKING:
    from .runner import Runner

__all__ = ["GRACE", "Serving"]

GRACE = 1.0  # seconds between an interrupt and the kill
_DRAIN = 4 << 20  # characters read before a frame is taken, where something writes on and on
_LOOK = 0.25  # seconds between two looks at what tells nothing by itself
_REST = 0.004  # seconds that output may wait, where there was some just before
_ASK = 0.03  # … and while the run is to stop
_OUR_DOING = ("KeyboardInterrupt", "CancelledError")  # what an interrupt raises; it is told in other words
_AT_ONCE: tuple[Reason, ...] = ("memory_limit", "process_limit")  # what no time is given to


class Serving:
    """Reads what a run's process tells, and ends it where it has to be ended.

    Attributes:
        begun: whether the process has begun to run the code.
    """

    def __init__(self, runner: Runner, run: RunRequest, pipes: Pipes, family: Family, before: set[Identity]) -> None:
        self._runner = runner
        self._run = run
        self._pipes = pipes
        self._family = family
        self._before = before
        self._began = time.monotonic()
        self._answers: list[tuple[int, str | None]] = []
        self.begun = False
        self._interrupted = False
        self._settle_at = 0.0
        self._stopping: float | None = None  # since when
        self._ended = False
        self._left = run.limits.output
        self._muted = False
        self._newest = self._rest_until = 0.0  # when there was output, and until when no more is read
        self._at_line_start = True

    def until_done(self) -> None:
        while not self._ended:
            self._read(self._wait())
            self._watch()
        self._empty_pipes()
        for stream, text in self._pipes.rest().items():
            self._tell_text(stream, text)
        run, outcome = self._run, self._run.outcome
        outcome.reason = run.reason if self._stopping is not None else None
        if not outcome.ended:
            outcome.killed = outcome.exit_code is None
            outcome.left = not self._runner.end_process()
            outcome.state_lost = True
        elif outcome.reason is not None:
            outcome.left = not self._family.kill(besides=self._before)
        outcome.at_line_start = self._at_line_start

    # -- reading

    def _wait(self) -> dict[int, int]:
        """What can be read now. While nobody takes what was told, nothing is read, and the code waits."""
        runner, now = self._runner, time.monotonic()
        wanted = [runner.wake_reader]
        if not self._run.feed.full or self._stopping is not None:
            wanted += [runner.frames, runner.exit]
            rested = now >= self._rest_until
            if rested:
                wanted += self._pipes.open
        else:
            rested = True
        poll = select.poll()
        for descriptor in wanted:
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        if runner.unsent:
            poll.register(runner.commands, select.POLLOUT)
        ready = dict(poll.poll(1000 * (self._patience() if rested else self._rest_until - now)))
        if rested and any(descriptor in ready for descriptor in self._pipes.open):
            # What comes without a pause is read in few large pieces.
            now = time.monotonic()
            if now - self._newest < _REST and not self._pipes.filled:
                self._rest_until = now + _REST
            self._newest = now
        return ready

    def _patience(self) -> float:
        now = time.monotonic()
        left = [_LOOK]
        if self._stopping is not None:
            left += [_ASK, self._stopping + GRACE - now]
        elif self._run.limits.timeout is not None:
            left.append(self._began + self._run.limits.timeout - now)
        return max(0.0, min(left))

    def _read(self, ready: Mapping[int, int]) -> None:
        runner = self._runner
        if runner.wake_reader in ready:
            runner.clear_wake()
        if runner.unsent:
            runner.send_rest()
        # Frames that were there before the pipes are looked at come after what the pipes have: the sender waits.
        frames = runner.read_frames() if runner.frames in ready else []
        for descriptor in [*self._pipes.open]:
            if descriptor in ready:
                self._tell_text(self._pipes.open[descriptor], self._pipes.read(descriptor))
        for frame in frames or ():
            if not self._ended:
                self._take(frame)
        gone = runner.exit in ready or (not ready and runner.process is not None and runner.process.poll() is not None)
        if not self._ended and (frames is None or (gone and not frames)):  # what it told last comes first
            self._died()
        for number, value in self._taken_answers():
            if value is not None:
                self._tell_text("stdout", value + "\n")
            runner.send({"ack": number, "value": value})

    def _empty_pipes(self) -> None:
        read = 0
        empty = False
        while not empty and read < _DRAIN:
            empty = True
            for descriptor, stream in [*self._pipes.open.items()]:
                text = self._pipes.read(descriptor)
                self._tell_text(stream, text)
                read += len(text)
                empty = empty and not text

    def _tell_text(self, stream: Stream, text: str) -> None:
        if not text:
            return
        feed = self._run.feed
        if self._stopping is not None and feed.full:
            self._muted = True  # whoever reads this does not, and the end must not wait for that
        if self._left is not None:
            text = text[: self._left]
            self._count(len(text))
        if text and not self._muted:
            feed.text(stream, text)
            self._at_line_start = text.endswith("\n")

    def _count(self, size: int) -> None:
        if self._left is not None:
            self._left -= size
            if self._left <= 0 and self._stopping is None:
                self._stop("output_limit")

    # -- frames

    def _take(self, frame: Mapping[str, Any]) -> None:
        number = frame.get("ack")
        if frame.get("run") != self._run.id:
            self._acknowledge(number)  # of an earlier run, which nobody listens to any more
            return
        if frame["type"] != "line":
            self._empty_pipes()
        match frame["type"]:
            case "begin":
                self.begun = True
            case "line":
                self._run.feed.tell("line", frame["line"])
            case "display":
                self._display(frame["data"])
            case "traceback":
                self._traceback(frame["name"], frame["text"])
            case "input":
                self._ask(frame["ack"], frame["prompt"])
                return
            case "end":
                self._end(frame)
            case _:
                pass
        self._acknowledge(number)

    def _acknowledge(self, number: Any) -> None:
        if isinstance(number, int):
            self._runner.send({"ack": number})

    def _display(self, data: Mapping[str, Any]) -> None:
        if self._muted:
            return
        if self._left is None or self._left > 0:
            self._run.feed.tell("display", data)
            self._at_line_start = True
            self._count(sum(len(value) for value in data.values() if isinstance(value, str)))

    def _traceback(self, name: str, text: str) -> None:
        if self._stopping is None or name not in _OUR_DOING:
            start = "" if self._at_line_start else "\n"
            self._tell_text("stderr", f"{start}{text}\n")

    def _end(self, frame: Mapping[str, Any]) -> None:
        outcome = self._run.outcome
        status, code = frame["status"], frame.get("exit_code")
        if status == "unsettled":  # it gave up, and something of it goes on
            self._ended = True
            return
        if status == "interrupted":
            outcome.ended = self._ended = self._runner.settled(frame)
            if self._stopping is None:  # the code interrupted itself
                outcome.failed, outcome.exit_code = True, 130
            return
        # After an interrupt, one that has to ask is not at its end before it was answered.
        self._ended = not (self._interrupted and self._runner.asks)
        outcome.ended = self._ended
        outcome.exit_code = code
        outcome.failed = status != "ok" or bool(code)
        if outcome.failed and frame.get("ename"):
            outcome.error = {
                "name": str(frame["ename"]),
                "value": str(frame.get("evalue") or ""),
                "traceback": str(frame.get("traceback") or ""),
            }

    def _died(self) -> None:
        process = self._runner.process
        assert process is not None
        with contextlib.suppress(TimeoutExpired):  # it only closed its channel; it is ended with the rest
            self._run.outcome.exit_code = process.wait(timeout=1)
        outcome = self._run.outcome
        if self._runner.may_exit and outcome.exit_code is not None and outcome.exit_code >= 0:
            outcome.exited, outcome.failed = True, outcome.exit_code != 0
        self._ended = True

    # -- input

    def _ask(self, number: int, prompt: str) -> None:
        """Have the question answered by a thread of its own, so that a run that waits can be stopped."""
        self._tell_text("stdout", prompt)
        if self._run.input is None:
            self._answers.append((number, None))
            return
        threading.Thread(target=self._answer, args=(number, prompt), name="streamkit-input", daemon=True).start()

    def _answer(self, number: int, prompt: str) -> None:
        run, value = self._run, None
        try:
            value = run.input(prompt) if run.input is not None else None
        except BaseException as error:  # the code waits for an answer, whatever came in its place
            run.fault = error  # raised where the run is read
        self._answers.append((number, None if value is None else str(value)))
        self._runner.wake()

    def _taken_answers(self) -> list[tuple[int, str | None]]:
        taken = [self._answers.pop(0) for _ in range(len(self._answers))]
        return [] if self._ended else taken

    # -- stopping

    def _watch(self) -> None:
        """Stop what is to be stopped, and end what does not."""
        if self._ended:
            return
        now, run = time.monotonic(), self._run
        limits = run.limits
        if self._stopping is None:
            if limits.timeout is not None and now >= self._began + limits.timeout:
                self._stop("timed_out")
            elif (limits.memory or limits.processes) and now >= self._family.due:
                self._weigh()
            if run.reason is not None:
                self._stop(run.reason)
        if self._stopping is not None and self.begun and not self._interrupted and run.reason not in _AT_ONCE:
            self._interrupted = True
            self._settle_at = now + _ASK
            self._runner.interrupt(self._before)
        elif self._interrupted and now >= self._settle_at:
            self._settle_at = now + _ASK
            self._runner.settle(self._before)
        if self._stopping is not None and (run.reason in _AT_ONCE or now >= self._stopping + GRACE):
            self._ended = True

    def _weigh(self) -> None:
        count, held = self._family.memory()
        limits = self._run.limits
        if limits.memory is not None and held > limits.memory:
            self._stop("memory_limit")
        elif limits.processes is not None and count > limits.processes:
            self._stop("process_limit")

    def _stop(self, reason: Reason) -> None:
        if self._stopping is None:
            self._stopping = time.monotonic()
            self._run.reason = self._run.reason or reason
