"""Python: an ipykernel that gets its code through jupyter_client, over sockets in the process's own directory."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# jupyter_client is only partly typed.

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .processes import Identity
from .request import NotStartedError, RunRequest
from .runner import Runner

__all__ = ["PythonRunner"]

_PROGRAM = Path(__file__).with_name("kernel")
# The kernel's modules become a package with a name that no user's module has. Neither they nor what they import is looked
# for in the current directory, where a user may have a `queue.py`.
_BOOT = """
import sys
directory, frames, answers, program = sys.argv[1:]
del sys.path[0], sys.argv[1:]
package = sys.modules["streamkit_kernel"] = type(sys)("streamkit_kernel")
package.__path__ = [program]
from streamkit_kernel.channel import channel
channel.open(directory, int(frames), int(answers))
from streamkit_kernel.program import serve
serve(directory)
"""


class PythonRunner(Runner):
    """Runs cells in an IPython kernel: with state between them, displays, `await` and magics."""

    name = "python"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client: Any = None
        self._run_id = ""

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        """This Python interpreter with the kernel."""
        return [sys.executable, "-c", _BOOT, directory, str(frames), str(commands), str(_PROGRAM)]

    def prepare(self, directory: str) -> None:
        """Write the connection file. Raises `NotStartedError` if a package is missing."""
        if missing := [name for name in ("jupyter_client", "ipykernel") if find_spec(name) is None]:
            raise NotStartedError(f'python needs {missing[0]}: pip install "streamkit-sdk[computer]"')
        from jupyter_client.connect import write_connection_file

        key = os.urandom(32).hex().encode("ascii")
        file = os.path.join(directory, "kernel.json")
        write_connection_file(file, transport="ipc", ip=os.path.join(directory, "k"), key=key)

    def connect(self) -> None:
        """Connect to the kernel's shell channel, the only one that is used."""
        from jupyter_client.blocking.client import BlockingKernelClient

        self._client = client = BlockingKernelClient()
        client.load_connection_file(os.path.join(self.directory, "kernel.json"))
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)

    def disconnect(self) -> None:
        """Close the connection to the kernel."""
        if self._client is not None:
            self._client.stop_channels()
            self._client.context.destroy(linger=0)
            self._client = None

    def refuse(self, code: str) -> str | None:
        """Refuses code with a null character, which Python cannot compile."""
        return "SyntaxError: the code has a null character" if "\0" in code else None

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        """Send an execute request that carries the run's id and pipes as metadata."""
        channel, session = self._client.shell_channel, self._client.session
        while channel.msg_ready():
            channel.get_msg(timeout=0)  # replies to earlier requests, which frames have reported already
        content = {
            "code": run.code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            "stop_on_error": False,
        }
        self._run_id = run.id
        metadata = {"streamkit": {"run": run.id, "out": out, "err": err}}
        channel.send(session.msg("execute_request", content, metadata=metadata))

    def interrupt(self, before: set[Identity]) -> None:
        """Interrupt the kernel by a command and by SIGINT, of which either alone can be lost, and child processes."""
        process, tree = self.process, self.process_tree
        if process is not None and tree is not None:
            self.send({"interrupt": self._run_id})
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
            tree.interrupt(besides=before)
