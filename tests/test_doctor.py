"""`streamkit doctor`, run as a person runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("usual")


@pytest.fixture(scope="module")
def usual(folder: Path) -> subprocess.CompletedProcess[str]:
    """Where all is installed, and a key and a proxy's password stand in the environment."""
    return doctor(folder, OPENAI_API_KEY=SECRET, https_proxy=f"http://user:{SECRET}@proxy.example")


def test_it_says_what_is_installed_and_that_a_stream_arrives(usual: subprocess.CompletedProcess[str]) -> None:
    assert (usual.returncode, usual.stderr) == (0, "")
    assert usual.stdout.startswith(f"streamkit {__version__}, CPython {sys.version.split()[0]}, ")
    for name in ("openai", "msgspec", "bash"):
        assert re.search(rf"^  {name} +\d+\.\d+", usual.stdout, re.MULTILINE), name
    for extra in EXTRAS:
        assert re.search(rf"^  {extra} +\S+ \d+\.\d+", usual.stdout, re.MULTILINE), extra
    assert usual.stdout.count("arrived whole") == 2


def test_it_shows_no_key_and_no_path(usual: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert re.search(r"OPENAI_API_KEY +set$", usual.stdout, re.MULTILINE)
    assert re.search(r"HTTPS_PROXY +set$", usual.stdout, re.MULTILINE)
    assert re.search(r"ANTHROPIC_API_KEY +not set$", usual.stdout, re.MULTILINE)
    assert SECRET not in usual.stdout + usual.stderr
    assert str(folder) not in usual.stdout and str(ROOT) not in usual.stdout


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Where no program is found, with the metadata of a distribution that needs packages which are not there."""
    place = tmp_path_factory.mktemp("poor")
    folder = place / "streamkit_sdk-9.9.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: streamkit-sdk", "Version: 9.9", "Provides-Extra: redis"]
    lines += ["Requires-Dist: no-such-package>=5; extra == 'redis'", "Requires-Dist: no-such-core>=1"]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    return doctor(place, PATH=str(place))


def test_it_says_how_a_missing_extra_is_installed(poor: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"^  no-such-core +missing$", poor.stdout, re.MULTILINE)
    assert re.search(r"^  redis +not installed: pip install 'streamkit-sdk\[redis\]'$", poor.stdout, re.MULTILINE)


def test_it_fails_where_no_stream_arrives(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(REFUSED)
    done = doctor(tmp_path)
    assert done.returncode == 1
    assert re.search(r"^  Responses +failed after \d+\.\d s: .+$", done.stdout, re.MULTILINE), done.stdout
    assert "arrived whole" not in done.stdout


def test_a_program_that_is_missing_is_named(poor: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"^  node +not found \(runs JavaScript\)$", poor.stdout, re.MULTILINE)
