"""JavaScript: one living node, whose main thread runs the code and whose second thread listens."""

from __future__ import annotations

from pathlib import Path

from .processes import Identity
from .request import RunRequest
from .runner import Runner

__all__ = ["JavaScriptRunner"]

_PROGRAM = Path(__file__).with_name("node.js")


class JavaScriptRunner(Runner):
    """Scripts in one node, as in its own read-eval-print loop: `await`, `require`, `let` declared anew. A run ends when
    its value and the timeouts that it set are there; servers and intervals live on. `process.exit` ends the node."""

    name = "javascript"
    may_exit = True
    _run_id = ""

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        return ["node", "--no-warnings", str(_PROGRAM), str(frames), str(commands), directory]

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        self._run_id = run.id
        self.send({"type": "run", "run": run.id, "code": run.code, "out": out, "err": err})

    def interrupt(self, before: set[Identity]) -> None:
        self.send({"type": "interrupt", "run": self._run_id})
        if self.family is not None:
            self.family.interrupt(besides=before)
