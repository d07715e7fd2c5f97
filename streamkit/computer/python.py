"""Python: an IPython shell in a process of its own."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from .processes import Identity
from .request import NotStartedError, RunRequest
from .runner import Runner

__all__ = ["PythonRunner"]

_PROGRAM = Path(__file__).with_name("kernel")
# The kernel's modules become a package with a name that no user's module has. Neither they nor what they import is looked
# for in the current directory, where a user may have a `queue.py`.
_BOOT = """
import sys
frames, answers, program = sys.argv[1:]
del sys.path[0], sys.argv[1:]
package = sys.modules["streamkit_kernel"] = type(sys)("streamkit_kernel")
package.__path__ = [program]
from streamkit_kernel.channel import channel
channel.open(int(frames), int(answers))
from streamkit_kernel.program import serve
serve()
"""


class PythonRunner(Runner):
    """Runs cells in an IPython shell: with state between them, displays, `await` and magics."""

    name = "python"
    _run_id = ""

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """Return the command that runs this Python interpreter with the kernel."""
        return [sys.executable, "-c", _BOOT, str(frames), str(commands), str(_PROGRAM)]

    def prepare(self, directory: str) -> None:
        """Raises `NotStartedError` if a package is missing."""
        if find_spec("IPython") is None:
            raise NotStartedError('python needs ipython: pip install "streamkit-sdk[computer]"')

    def refuse(self, code: str) -> str | None:
        """Refuses code with a null character, which Python cannot compile."""
        return "SyntaxError: the code has a null character" if "\0" in code else None

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Send the code as a command."""
        self._run_id = run.id
        self.send({"run": run.id, "code": run.code, "out": out, "err": err})

    def interrupt(self, before: set[Identity]) -> None:
        """Interrupt the kernel by a command and by SIGINT, of which either alone can be lost, and child processes."""
        if self.process is not None:
            self.send({"interrupt": self._run_id})
            self.process.tree.interrupt_root()
            self.process.tree.interrupt(besides=before)
