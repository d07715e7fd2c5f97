"""The work for a delta, counted in bytecode instructions and calls, is what the table in `tests/benchmarks` says.

Each count runs in a process of its own, in which nothing else declared events, registered decoders, or traces.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .benchmarks.opcodes import CEILINGS, COMMAND, LIMIT, TABLE, VERSION, Cost, compare

ROOT = Path(__file__).parents[1]
# What would change the counts, or count along: asyncio's debug mode, and coverage of processes that tests start.
DISTURBING = (
    "PYTHONDEVMODE",
    "PYTHONASYNCIODEBUG",
    "PYTHONOPTIMIZE",
    "COVERAGE_PROCESS_START",
    "COVERAGE_PROCESS_CONFIG",
)

# One more Python call for each hook of a delta, then the command.
PLANTED = """
import sys
from streamkit.core import delivery
from tests.benchmarks.opcodes import main

taking_snapshot = delivery._taking_snapshot

def slower(call):
    hook = taking_snapshot(call)
    return lambda event, snapshot: hook(event, snapshot)

delivery._taking_snapshot = slower
sys.exit(main(["--only", "hook: chat, 2 KB"]))
"""
TRACED = """
import sys
from tests.benchmarks.opcodes import main

sys.settrace(lambda frame, event, argument: None)
sys.exit(main(["--only", "hook: chat, 2 KB"]))
"""


def run(*arguments: str, seed: str = "random") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in DISTURBING}
    environment["PYTHONHASHSEED"] = seed
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def count(*arguments: str, seed: str = "random") -> subprocess.CompletedProcess[str]:
    """Run the command. Where it cannot count, as under a debugger that follows new processes, the test is skipped."""
    done = run("-m", "tests.benchmarks.opcodes", *arguments, seed=seed)
    if done.returncode == 2:
        pytest.skip(done.stdout.strip().splitlines()[-1])
    return done


@pytest.mark.slow
def test_no_delta_costs_more_than_the_table_says() -> None:
    done = count()
    assert done.returncode == 0, done.stdout[done.stdout.find("\nmore than") :] + done.stderr


@pytest.mark.slow
def test_the_counts_depend_on_no_hash_seed() -> None:
    first, second = (
        json.loads(count("--json", "--only", "hook: chat, event", seed=seed).stdout) for seed in ("1", "77")
    )
    assert len(first) > 4
    assert first == second


@pytest.mark.slow
def test_a_planted_call_for_each_delta_is_found() -> None:
    """The text names the row, what it cost, what it costs, the ratio, and the command that rewrites the table."""
    if VERSION not in json.loads(TABLE.read_text()):
        pytest.skip(f"the table has no rows for Python {VERSION}")
    before = json.loads(TABLE.read_text())[VERSION]["rows"]["hook: chat, 2 KB"][1]
    done = run("-c", PLANTED)
    assert done.returncode == 1, done.stdout + done.stderr
    now = f"{before + 1:g}: {(before + 1) / before:.2f} x"
    assert f"hook: chat, 2 KB: {before:g} calls in the table, now {now}" in done.stdout
    assert COMMAND in done.stdout


@pytest.mark.slow
def test_nothing_is_counted_under_a_tracer() -> None:
    done = run("-c", TRACED)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "traces this process" in done.stdout


def test_the_table_has_each_supported_version() -> None:
    assert {"3.11", "3.12", "3.13"} <= json.loads(TABLE.read_text()).keys()


def test_a_row_may_become_dearer_by_a_twentieth() -> None:
    before = {"row": Cost(100, 2)}
    assert compare(before, {"row": Cost(100 * LIMIT, 2)}) == []
    assert compare(before, {"row": Cost(50, 1)}) == []
    assert compare(before, {"row": Cost(106, 2)}) == ["row: 100 opcodes in the table, now 106: 1.06 x"]
    assert compare(before, {"row": Cost(100, 3)}) == ["row: 2 calls in the table, now 3: 1.50 x"]


def test_a_row_that_only_one_side_has_is_named() -> None:
    assert compare({}, {"new": Cost(7, 1)}) == ["new: is not in the table; now 7 opcodes"]
    assert compare({"old": Cost(7, 1)}, {}) == ["old: is in the table, but is not measured any more"]


@pytest.mark.skipif(VERSION != "3.11", reason="the ceilings are of Python 3.11")
@pytest.mark.parametrize("name", CEILINGS)
def test_no_table_raises_a_ceiling(name: str) -> None:
    dear = {name: Cost(CEILINGS[name] + 1, 1)}
    assert compare(dear, dear) == [
        f"{name}: {CEILINGS[name] + 1:g} opcodes are more than {CEILINGS[name]:.0f}, which no table raises"
    ]
