"""The recipes that show streamkit beside packages of others run, as all examples of the guide do.

Each has a process of its own, since these packages leave threads, loops and sockets open at its end.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..guide import ELSEWHERE, ROOT


@pytest.mark.slow
@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: path.stem)
def test_a_recipe_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the application of the recipe, driven by that package's own way to test."""
    for package in ELSEWHERE[path]:
        pytest.importorskip(package, reason=f"{package} is in the extra `integrations`")
    monkeypatch.setenv("GRADIO_ANALYTICS_ENABLED", "False")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    command = [sys.executable, "-W", "ignore", "-m", "tests.guide", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
