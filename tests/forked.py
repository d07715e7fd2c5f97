"""Runs Python programs in processes that have imported the clients already, which takes each a second otherwise.

A server imports them, and forks a process for each program. Nothing that a program does reaches another one. What a program
imports at its start is tested where it is started by itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Forks", "forks"]

IMPORTED = (
    *("streamkit.testing", "streamkit.cli.demo"),
    *("openai.lib", "openai.resources.chat", "openai.resources.responses", "httpcore2", "anyio._backends._asyncio"),
)
LIMIT = 120.0  # seconds a program may take


class Forks:
    """The server's other end."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder

    def run(
        self, program: str, *arguments: str, env: Mapping[str, str], answers: str = "", cwd: Path
    ) -> subprocess.CompletedProcess[str]:
        """Run a file, or a module with its `__main__`, like `subprocess.run` with these answers on stdin.

        Raises:
            TimeoutError: it took more than two minutes. The server is killed.
        """
        files = [self._folder / name for name in ("in", "out", "err")]
        files[0].write_text(answers, encoding="utf-8")
        order = {"files": [str(file) for file in files], "env": dict(env), "cwd": str(cwd)}
        assert self._server.stdin is not None and self._server.stdout is not None
        print(json.dumps({"program": program, "arguments": arguments, **order}), file=self._server.stdin, flush=True)
        if not select.select([self._server.stdout], [], [], LIMIT)[0]:
            self._server.kill()
            raise TimeoutError(f"{program} took more than {LIMIT:.0f} seconds: {files[2].read_text()}")
        code = int(self._server.stdout.readline())
        return subprocess.CompletedProcess([program, *arguments], code, *(file.read_text() for file in files[1:]))


@contextlib.contextmanager
def forks() -> Iterator[Forks]:
    """A server, for as long as the block runs."""
    root = Path(__file__).parents[1]
    with (
        tempfile.TemporaryDirectory(prefix="streamkit-tests-") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONUTF8": "1"},
        ) as server,
    ):
        yield Forks(server, Path(folder))


def _serve() -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()  # so that no process copies all of it when it collects garbage
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(**order)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(program: str, arguments: list[str], files: list[str], env: dict[str, str], cwd: str) -> NoReturn:
    """Be a process that was started for this program: it ends as that would, with its exit code or a traceback."""
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    streams: list[Any] = []
    for number, (file, mode) in enumerate(zip(files, "rww", strict=True)):
        with open(file, mode) as opened:
            os.dup2(opened.fileno(), number)
        streams.append(open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = streams
    sys.argv = [program, *arguments]
    if program.endswith(".py"):
        sys.path[0] = os.path.dirname(program)
        runpy.run_path(program, run_name="__main__")
    else:
        sys.path[0] = cwd
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    _serve()
