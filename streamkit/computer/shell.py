"""The shell: one living bash, so that its directory, variables and functions live on.

bash is told to be interactive, for only then does an interrupt end what it runs and not itself; it has no terminal, and
no prompt. It reads its orders as its own stdin. What it runs has an empty stdin, the run's pipes, and not the channel.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Mapping
from typing import Any

from .processes import Identity
from .request import RunRequest
from .runner import Runner

__all__ = ["ShellRunner"]

_START = "set +o history +o histexpand +m; PS1= PS2=; unset PROMPT_COMMAND HISTFILE PS0"
# It has no thread that could see that whoever started it is gone; a child waits for that.
_WATCH = "( trap '' INT; read -r _ <&{alive}; rm -rf -- {directory}; kill -KILL -- -$$ ) </dev/null >/dev/null 2>&1 & disown; exec {alive}<&-"


class ShellRunner(Runner):
    """Scripts, run in one bash. `exit`, or a fault after `set -e`, ends that bash and with it its state."""

    name = "shell"
    may_exit = True
    asks = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._channel = self._watched = self._theirs = self._alive = -1
        self._run_id = self._script = ""
        self._interrupts = 0

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        self._channel = frames
        return ["bash", "--norc", "--noprofile", "--noediting", "-i"]

    def descriptors(self, frames: int, commands: int) -> tuple[int, tuple[int, ...]]:
        self._theirs, self._alive = os.pipe()
        self._watched = self._theirs
        return commands, (frames, self._watched)

    def handed_over(self) -> None:
        if self._theirs >= 0:
            os.close(self._theirs)
            self._theirs = -1

    def disconnect(self) -> None:
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1

    def launched(self) -> None:
        watch = _WATCH.format(alive=self._watched, directory=shlex.quote(self.directory))
        self.send_line(f"{_START}; {watch}; {self._tell('ready', 'null')}".encode())

    def refuse(self, code: str) -> str | None:
        return "syntax error: the code has a null character" if "\0" in code else None

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._script)
        self._script = script = os.path.join(self.directory, f"{run.id[:8]}.sh")
        with open(script, "w", encoding="utf-8", newline="") as file:
            file.write(run.code.replace("\r\n", "\n"))  # as a terminal takes what is pasted
        self._run_id = run.id
        pipes = f"</dev/null >{shlex.quote(out)} 2>{shlex.quote(err)} {self._channel}>&-"
        end = self._tell("end", run.id, "ok", "%d", '"$?"')
        self.send_line(
            f"{self._tell('begin', run.id)}; \\builtin . {shlex.quote(script)} {pipes}; {end}; set +eu".encode()
        )
        # Read when the line before is over, or was thrown away, as by code that interrupts itself.
        self._interrupts = 0
        self.send_line(self._over())

    def interrupt(self, before: set[Identity]) -> None:
        """An interrupt throws away the rest of the line that runs; another line tells that it did. One that comes while
        a command ends by itself is lost, so it is sent until that line is read."""
        if self.process is not None and self.family is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGINT)  # first, or it would go on when what it waits for ends
            self.family.interrupt(besides=before)
            self._interrupts += 1
            self.send_line(self._over())

    def settle(self, before: set[Identity]) -> None:
        self.interrupt(before)

    def settled(self, frame: Mapping[str, Any]) -> bool:
        return bool(frame["exit_code"] == self._interrupts)

    def _over(self) -> bytes:
        """The line that tells that the run is over, after so many interrupts."""
        return f"{self._tell('end', self._run_id, 'interrupted', self._interrupts)}; set +eu".encode()

    def _tell(self, type: str, run: str, status: str = "ok", code: object = 0, argument: str = "") -> str:
        """The command that tells a frame. It changes nothing that the shell keeps."""
        name = "null" if run == "null" else f'"{run}"'
        frame = f'{{"type":"{type}","run":{name},"status":"{status}","exit_code":{code}}}\\n'
        return f"\\builtin printf '{frame}' {argument} >&{self._channel}"
