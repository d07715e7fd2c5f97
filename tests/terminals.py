"""Programs in a real terminal: tmux, and what a person would see on its screen."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from pathlib import Path

__all__ = ["ROOT", "TMUX", "Terminal", "lines_of"]

ROOT = Path(__file__).resolve().parents[1]
TMUX = shutil.which("tmux")
SECONDS = 120.0  # that a text may take to appear


class Terminal:
    """A program in a terminal.

    Args:
        socket: the path for tmux's socket.
        line: the command line, run by a shell.
        columns: of the terminal.
        rows: of the terminal.
        environment: variables for the program.
    """

    def __init__(self, socket: Path, line: str, columns: int = 80, rows: int = 24, **environment: str) -> None:
        assert TMUX is not None
        self._command = [TMUX, "-u", "-f", "/dev/null", "-S", str(socket)]
        self._looks = socket.with_suffix(".looks")
        self._environment = {
            "LOOKS": str(self._looks),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
            "PYTHONUTF8": "1",
            "XDG_DATA_HOME": str(socket.parent / "data"),  # where pictures are saved
            **environment,
        }
        keep = f"{line}; echo exit code $?; exec sleep 600"
        size = ["-x", str(columns), "-y", str(rows)]
        self._run("new-session", "-d", *size, "-c", str(ROOT), keep)
        # One client for all commands: a process for each look at the screen costs more than many a program that is looked at.
        self._client = subprocess.Popen(
            [*self._command, "-C", "attach"],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def _run(self, *arguments: str) -> None:
        """Run tmux for one command."""
        subprocess.run([*self._command, *arguments], env=self._environment, capture_output=True, check=True)

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command of one line; returns its output."""
        client = self._client
        assert client.stdin is not None and client.stdout is not None
        print(shlex.join(arguments), file=client.stdin, flush=True)
        output: list[str] | None = None
        for line in client.stdout:
            if line.startswith("%begin ") and line.endswith(" 1\n"):  # of a command that this client sent
                output = []
            elif line.startswith(("%end ", "%error ")) and output is not None:
                assert line.startswith("%end "), output
                return "".join(output)
            elif output is not None:
                output.append(line)
        raise EOFError(f"tmux ended: {arguments}")

    def close(self) -> None:
        """End the program and its terminal."""
        self._run("kill-server")
        self._client.communicate()

    def paste(self, text: str) -> None:
        """Paste a text of any number of lines."""
        self._run("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    @property
    def screen(self) -> str:
        """All lines, also those that have scrolled away, without trailing blanks."""
        return self.tmux("capture-pane", "-p", "-S", "-")

    @property
    def codes(self) -> str:
        """The same with escape sequences for colours."""
        return self.tmux("capture-pane", "-p", "-e", "-S", "-")

    @property
    def cursor(self) -> bool:
        """Whether the cursor is visible."""
        return self.tmux("display", "-p", "#{cursor_flag}").strip() == "1"

    def wait(self, until: str, times: int = 1) -> list[str]:
        """The screen at each moment, until this text has appeared so many times. Fails after two minutes.

        Meanwhile there is a file, to which each look adds a byte: its path is the program's LOOKS. A program that waits for
        a look from time to time is seen in between, however slow the machine is.
        """
        seen = [self.screen]
        deadline = time.monotonic() + SECONDS
        try:
            while seen[-1].count(until) < times:
                assert time.monotonic() < deadline, seen[-1]
                with self._looks.open("ab") as looks:
                    looks.write(b".")
                time.sleep(0.04)  # the screen can only be looked at again
                if (now := self.screen) != seen[-1]:
                    seen.append(now)
        finally:
            self._looks.unlink(missing_ok=True)
        return seen

    def type(self, *keys: str) -> None:
        """Press keys, each a text or the name of a key, as `Enter` or `C-c`."""
        for key in keys:
            self.tmux("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size of the terminal."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))


def lines_of(screen: str) -> list[str]:
    """The lines of a screen without trailing blanks."""
    return [line.rstrip() for line in screen.rstrip().splitlines()]
