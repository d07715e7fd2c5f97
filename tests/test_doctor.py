"""`streamkit doctor`: once as a person runs it, then in this process where something is missing."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit._version import __version__
from streamkit.cli import main
from streamkit.cli.doctor import EXTRAS

from .terminals import ROOT

SECRET = "sk-a-secret-that-no-report-may-show"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("usual")


@pytest.fixture(scope="module")
def usual(folder: Path) -> subprocess.CompletedProcess[str]:
    """Where all is installed, and a key and a proxy's password stand in the environment."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}
    secret = {"OPENAI_API_KEY": SECRET, "https_proxy": f"http://user:{SECRET}@proxy.example"}
    command = [sys.executable, "-m", "streamkit", "doctor"]
    return subprocess.run(command, env=clean | secret, capture_output=True, text=True, timeout=120, cwd=folder)


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


@pytest.fixture
def poor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The report where no program is found, with the metadata of a distribution that needs packages which are not there."""
    folder = tmp_path / "streamkit_sdk-9.9.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: streamkit-sdk", "Version: 9.9", "Provides-Extra: redis"]
    lines += ["Requires-Dist: no-such-package>=5; extra == 'redis'", "Requires-Dist: no-such-core>=1"]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["doctor"]) == 0
    return capsys.readouterr().out


def test_what_is_missing_is_named_with_how_it_is_installed(poor: str) -> None:
    assert re.search(r"^  no-such-core +missing$", poor, re.MULTILINE)
    assert re.search(r"^  redis +not installed: pip install 'streamkit-sdk\[redis\]'$", poor, re.MULTILINE)
    assert re.search(r"^  node +not found \(runs JavaScript\)$", poor, re.MULTILINE)


def test_it_fails_where_no_stream_arrives(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(self: socket.socket, address: object) -> None:
        raise ConnectionRefusedError("nothing listens here")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^  Responses +failed after \d+\.\d s: .+$", printed, re.MULTILINE), printed
    assert "arrived whole" not in printed
