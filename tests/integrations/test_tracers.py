"""Tracers record of a stream that streamkit reads what they record of one that is read by hand: its output and its usage.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import functools
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .runs import APIS_OF, FACES

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "openinference": ("openinference.instrumentation.openai", "openinference.instrumentation.anthropic"),
    "logfire": ("logfire",),
    "langfuse": ("langfuse",),
    "anthropic": (),
}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@functools.cache
def records_of(tracer: str) -> dict[str, Any]:
    """What the tracer recorded of each run."""
    for module in ("opentelemetry.sdk", *PACKAGES[tracer]):
        if not is_installed(module):
            pytest.skip(f"{module} is not installed; it is in the extra `integrations`")
    command = [sys.executable, "-W", "ignore", "-m", "tests.integrations.tracers", tracer]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    records: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return records


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("tracer", "api"), [(tracer, api) for tracer, apis in APIS_OF.items() for api in apis])
def test_a_tracer_records_the_same_as_of_a_loop(tracer: str, api: str, face: str) -> None:
    """Of a stream, and of an agent's requests; also where the agent has streamkit's own telemetry."""
    records = records_of(tracer)
    by_hand = records[f"{api}, {face}, by hand"]
    assert len(by_hand) == 2
    for record in by_hand:
        assert any("usage" in name or "token_count" in name for name in record), record
    assert records[f"{api}, {face}, stream"] == by_hand
    for way in ("agent", "telemetry"):
        assert records.get(f"{api}, {face}, {way}", by_hand) == by_hand
