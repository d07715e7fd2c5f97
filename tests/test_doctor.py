"""`streamkit doctor`, run as a person runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from streamkit._version import __version__
from streamkit.cli.doctor import EXTRAS

from .terminals import ROOT

SECRET = "sk-a-secret-that-no-report-may-show"
REFUSED = """
import socket

def refuse(self, address):
    raise ConnectionRefusedError("nothing listens here")

socket.socket.connect = refuse
"""


def doctor(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, in a process that finds modules and packages in this folder first."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONUTF8": "1"}
    command = [sys.executable, "-m", "streamkit", "doctor"]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=120, cwd=folder)


def test_it_says_what_is_installed_and_that_a_stream_arrives(tmp_path: Path) -> None:
    done = doctor(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"streamkit {__version__}, CPython {sys.version.split()[0]}, ")
    for name in ("openai", "msgspec", "bash"):
        assert re.search(rf"^  {name} +\d+\.\d+", done.stdout, re.MULTILINE), name
    for extra in EXTRAS:
        assert re.search(rf"^  {extra} +\S+ \d+\.\d+", done.stdout, re.MULTILINE), extra
    assert done.stdout.count("arrived whole") == 2


def test_it_shows_no_key_and_no_path(tmp_path: Path) -> None:
    done = doctor(tmp_path, OPENAI_API_KEY=SECRET, https_proxy=f"http://user:{SECRET}@proxy.example")
    assert re.search(r"OPENAI_API_KEY +set$", done.stdout, re.MULTILINE)
    assert re.search(r"HTTPS_PROXY +set$", done.stdout, re.MULTILINE)
    assert re.search(r"ANTHROPIC_API_KEY +not set$", done.stdout, re.MULTILINE)
    assert SECRET not in done.stdout + done.stderr
    assert str(tmp_path) not in done.stdout and str(ROOT) not in done.stdout


def test_it_says_how_a_missing_extra_is_installed(tmp_path: Path) -> None:
    """The metadata are those of a distribution that needs a package which is not there."""
    folder = tmp_path / "streamkit_sdk-9.9.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: streamkit-sdk", "Version: 9.9", "Provides-Extra: redis"]
    lines += ["Requires-Dist: no-such-package>=5; extra == 'redis'", "Requires-Dist: no-such-core>=1"]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    done = doctor(tmp_path)
    assert re.search(r"^  no-such-core +missing$", done.stdout, re.MULTILINE)
    assert re.search(r"^  redis +not installed: pip install 'streamkit-sdk\[redis\]'$", done.stdout, re.MULTILINE)


def test_it_fails_where_no_stream_arrives(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REFUSED)
    done = doctor(tmp_path)
    assert done.returncode == 1
    assert re.search(r"^  Responses +failed after \d+\.\d s: .+$", done.stdout, re.MULTILINE), done.stdout
    assert "arrived whole" not in done.stdout


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    done = doctor(tmp_path, PATH=str(tmp_path))
    assert re.search(r"^  node +not found \(runs JavaScript\)$", done.stdout, re.MULTILINE)
