"""The shell: one bash process, so that its directory, variables and functions live on.

bash is started as interactive, for only then does an interrupt end the command that runs and not bash itself; it has
no terminal and no prompt. It reads its commands as its own stdin. The code it runs has an empty stdin and the run's
pipes, and cannot see the pipe for frames.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from .processes import Identity
from .request import RunRequest
from .runner import Runner

__all__ = ["ShellRunner"]

_START = "set +o history +o histexpand +m; PS1= PS2=; unset PROMPT_COMMAND HISTFILE PS0"
# The options of `set` end with the run that set them: another one would not expect them.
_RESET = "set +aefkuvxCEPT +o pipefail +o posix; set -hB"
# A script that ends at its first error would end bash as well. So it runs in a subshell, which notes its state when it
# ends.
_ENDS_AT_ERRORS = re.compile(r"\bset\s[^\n;&|]*(?:-\w*e|errexit)")
_SUBSHELL = (
    "( \\trap '{{ \\shopt -p; \\alias -p; \\declare -f; \\declare -p; \\umask -p; "
    '\\builtin printf "\\builtin cd -- %q\\n" "$PWD"; }} 2>/dev/null >{state}\' EXIT; {source} ) {pipes}'
)
_RESTORE = "\\builtin . {state} >/dev/null 2>&1; rm -f -- {state}"


class ShellRunner(Runner):
    """Runs scripts in one bash. `exit` ends that bash and with it the state, except in a script that has `set -e`."""

    name = "shell"
    may_exit = True
    confirms_interrupts = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._frames = -1  # bash's descriptor for frames
        self._run_id = self._script = self._restore = ""
        self._interrupts = 0  # of the current run

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """`bash`, interactive and without any of the user's settings."""
        self._frames = frames
        return ["bash", "--norc", "--noprofile", "--noediting", "-i"]

    def descriptors(self, frames: int, commands: int) -> tuple[int, tuple[int, ...]]:
        """Commands are stdin."""
        return commands, (frames,)

    def process_started(self) -> None:
        """Set bash up, and have it report that it is ready."""
        self._send_line(f"{_START}; {self._frame('ready', 'null')}")

    def refuse(self, code: str) -> str | None:
        """Refuses code with a null character, which bash would drop."""
        return "syntax error: the code has a null character" if "\0" in code else None

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Have bash source a file with the code, between the frames that report its begin and its end."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._script)
        self._script = script = os.path.join(self.directory, f"{run.id[:8]}.sh")
        with open(script, "w", encoding="utf-8", newline="") as file:
            file.write(run.code.replace("\r\n", "\n"))  # as a terminal does with pasted text
        self._run_id = run.id
        self._interrupts = 0
        pipes = f"</dev/null >{shlex.quote(out)} 2>{shlex.quote(err)} {self._frames}>&-"
        begin, end = self._frame("begin", run.id), self._frame("end", run.id, "ok", "%d", '"$?"')
        source, restore, self._restore = f"\\builtin . {shlex.quote(script)}", self._restore, ""
        if _ENDS_AT_ERRORS.search(run.code):
            state = shlex.quote(os.path.join(self.directory, "state"))
            source = _SUBSHELL.format(state=state, source=source, pipes=pipes)
            self._restore = f"{_RESTORE.format(state=state)}; "
        else:
            source = f"{source} {pipes}"
        self._send_line(f"{restore}{begin}; {source}; {end}; {_RESET}")
        # bash reads this line when the one before has ended, also if code that interrupts itself cut that one short.
        self._send_line(self._confirmation())

    def interrupt(self, before: set[Identity]) -> None:
        """Interrupt what runs.

        An interrupt cuts the line short that bash executes, `end` frame included. So each is followed by a line that
        confirms it, with the number of interrupts so far. One that comes just when a command ends by itself has no
        effect; therefore interrupts are repeated until the newest is confirmed.
        """
        if self.process is not None:
            self.process.tree.interrupt_together(besides=before)
            self._interrupts += 1
            self._send_line(self._confirmation())

    def repeat_interrupt(self, before: set[Identity]) -> None:
        """Interrupts again."""
        self.interrupt(before)

    def is_newest_confirmation(self, frame: Mapping[str, Any]) -> bool:
        """Whether the frame has the number of interrupts that were sent."""
        return bool(frame["exit_code"] == self._interrupts)

    def _confirmation(self) -> str:
        """Return the line that reports that the run has ended, after so many interrupts."""
        return f"{self._frame('end', self._run_id, 'interrupted', self._interrupts)}; {_RESET}"

    def _frame(self, type: str, run: str, status: str = "ok", code: object = 0, argument: str = "") -> str:
        """Return the command that writes a frame. It changes no state of the shell, and no function or alias replaces
        it."""
        name = "null" if run == "null" else f'"{run}"'
        frame = f'{{"type":"{type}","run":{name},"status":"{status}","exit_code":{code}}}\\n'
        return f"\\builtin printf '{frame}' {argument} >&{self._frames}"

    def _send_line(self, line: str) -> None:
        self.channel.send_line(line.encode())
