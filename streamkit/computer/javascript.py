"""JavaScript: one node process, whose main thread runs the code while a second thread reads commands."""

from __future__ import annotations

from pathlib import Path

from .processes import Identity
from .request import RunRequest
from .runner import Runner

__all__ = ["JavaScriptRunner"]

_PROGRAM = Path(__file__).with_name("node.js")


class JavaScriptRunner(Runner):
    """Runs scripts as node's own read-eval-print loop does: with `await`, `require`, and `let` that may be repeated.

    A run ends, as a program does, when nothing that it opened goes on: promises, timers, callbacks, child processes,
    files, connections, threads. Servers live on, and the intervals of a run that opened one; so does what was unref'd.
    `process.exit` ends the process.
    """

    name = "javascript"
    may_exit = True
    _run_id = ""

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """`node` with the program that evaluates code."""
        return ["node", "--no-warnings", str(_PROGRAM), str(frames), str(commands)]

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Send the code as a command."""
        self._run_id = run.id
        self.send({"type": "run", "run": run.id, "code": run.code, "out": out, "err": err})

    def interrupt(self, before: set[Identity]) -> None:
        """Send the interrupt as a command, which the second thread reads, and SIGINT to child processes."""
        self.send({"type": "interrupt", "run": self._run_id})
        if self.process is not None:
            self.process.tree.interrupt(besides=before)
