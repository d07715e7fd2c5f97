"""Python: an ipykernel, asked through jupyter_client over sockets in the runner's own directory."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# jupyter_client is typed in part.

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from .processes import Identity
from .runner import Runner, RunRequest

__all__ = ["PythonRunner"]

_PROGRAM = Path(__file__).with_name("kernel.py")


class PythonRunner(Runner):
    """Cells in a kernel: state between them, displays, `await`, magics."""

    name = "python"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client: Any = None
        self._run_id = ""

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        return [sys.executable, str(_PROGRAM), directory, str(frames), str(commands)]

    def prepare(self, directory: str) -> None:
        from jupyter_client.connect import write_connection_file

        key = os.urandom(32).hex().encode("ascii")
        file = os.path.join(directory, "kernel.json")
        write_connection_file(file, transport="ipc", ip=os.path.join(directory, "k"), key=key)

    def connect(self) -> None:
        from jupyter_client.blocking.client import BlockingKernelClient

        self._client = client = BlockingKernelClient()
        client.load_connection_file(os.path.join(self.directory, "kernel.json"))
        client.start_channels(shell=True, iopub=False, stdin=False, hb=False, control=False)

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.stop_channels()
            self._client.context.destroy(linger=0)
            self._client = None

    def refuse(self, code: str) -> str | None:
        return "SyntaxError: the code has a null character" if "\0" in code else None

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        channel, session = self._client.shell_channel, self._client.session
        while channel.msg_ready():
            channel.get_msg(timeout=0)  # how earlier runs ended, which frames have told
        content = {
            "code": run.code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": True,
            "stop_on_error": False,
        }
        self._run_id = run.id
        given = {"streamkit": {"run": run.id, "out": out, "err": err}}
        channel.send(session.msg("execute_request", content, metadata=given))

    def interrupt(self, before: set[Identity]) -> None:
        process, family = self.process, self.family
        if process is not None and family is not None:
            self.send({"interrupt": self._run_id})
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGINT)
            family.interrupt(besides=before)
