"""Runs Python programs in processes that have imported the clients already, which takes each a second otherwise.

A server imports them, and forks a process for each program. Nothing that a program does reaches another one. What a program
imports at its start is tested where it is started by itself.

In a terminal `tests/in_terminal.py` stands for the program. The server's process takes the terminal, as a shell does.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["Forks", "forks"]

IMPORTED = (
    *("streamkit.testing", "streamkit.cli.demo"),
    *("openai.lib", "openai.resources.chat", "openai.resources.responses", "httpcore2", "anyio._backends._asyncio"),
    *("streamkit.cli.chat", "streamkit.computer", "prompt_toolkit", "rich.markdown", "wcwidth", "anthropic"),
)
LIMIT = 120.0  # seconds a program may take


class Forks:
    """The server's other end."""

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
        self._folder = folder

    def line(self, program: str, *arguments: str) -> str:
        """The line for a shell in a terminal that runs a file, or a module with its `__main__`."""
        stands = [sys.executable, "-S", str(Path(__file__).with_name("in_terminal.py")), str(self._folder / "socket")]
        return "exec " + shlex.join([*stands, program, *arguments])

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
    """A server, for as long as the block runs; the fixture `programs` has one for all tests."""
    root = Path(__file__).parents[1]
    with (
        tempfile.TemporaryDirectory(prefix="streamkit-tests-") as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.forked", f"{folder}/socket"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env={**os.environ, "PYTHONUTF8": "1"},
        ) as server,
    ):
        assert server.stdout is not None and server.stdout.readline() == "ready\n"
        yield Forks(server, Path(folder))


def _serve(path: str) -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()  # so that no process copies all of it when it collects garbage
    with socket.socket(socket.AF_UNIX) as terminals:
        terminals.bind(path)
        terminals.listen()
        print("ready", flush=True)
        while True:
            ready, _, _ = select.select([sys.stdin, terminals], [], [])
            if terminals in ready:
                with terminals.accept()[0] as link, link.makefile() as orders:
                    order = json.loads(orders.readline())
                    if os.fork() == 0:
                        _keep(order, terminals)
            elif line := sys.stdin.readline():
                print(_exit_code_of(_fork(json.loads(line))), flush=True)
            else:
                return


def _fork(order: dict[str, Any]) -> int:
    """Start a program. Returns the id of its process."""
    pid = os.fork()
    if pid == 0:
        _become(**order)
    return pid


def _exit_code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _keep(order: dict[str, Any], terminals: socket.socket) -> NoReturn:
    """Be the shell of a terminal that nobody has, which runs one program."""
    terminals.close()
    os.setsid()
    terminal = os.open(order["files"][0], os.O_RDWR)  # the first one of a session becomes its own
    pid = _fork(order)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program alone
    os.write(terminal, f"exit code {_exit_code_of(pid)}\n".encode())
    time.sleep(600)
    sys.exit()


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
    code: Any = None
    try:
        if program.endswith(".py"):
            sys.path[0] = os.path.dirname(program)
            runpy.run_path(program, run_name="__main__")
        else:
            sys.path[0] = cwd
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as exit:
        code = exit.code
    _exit(code)


def _exit(code: Any) -> NoReturn:
    """End as `sys.exit` does, but take no module apart: to free all that was imported takes longer than most programs."""
    if code is not None and not isinstance(code, int):
        sys.exit(code)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the threads that the program waits for
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)
    os._exit(code or 0)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
