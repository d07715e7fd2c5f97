"""How the benchmarks measure: contestants in processes of their own, in interleaved rounds, and medians of their CPU time.

A section is a module with a `TITLE`, an `ABOUT` that says what its rows are, and `rows(profile)`. Most compare contestants:
functions that do the same work and return what it cost, after they have checked its result. `contest` runs each of them in a
process that it starts for it (`worker.py`), so that none pays for what another left behind, or profits from it; and round after
round one after the other, so that what else the machine does meets all alike.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeVar

from .worker import serve

__all__ = [
    "Clock",
    "Contestant",
    "Profile",
    "Row",
    "Table",
    "Workers",
    "check",
    "contest",
    "missing",
    "numbered",
    "process",
]

_T = TypeVar("_T")
FAILED = "failed: "
# Each worker is forked from a process that has imported the clients, which takes seconds, and nothing else.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["openai.resources", "anthropic.resources", "httpx2", "tests.benchmarks.worker"])
_FIRST = {"n": 20, "times": 1, "most": 0}  # the most in a first run


class Row(NamedTuple):
    """What was measured for one contestant in one case.

    Attributes:
        case: what all contestants of this case did, such as "Chat, an event every 2 ms".
        name: the contestant.
        value: the median, in this unit; None if it was not measured, and then `note` says why.
        ratio: the value divided by that of the baseline, which is a row of the same case in the same run.
        baseline: that row's name; empty if there is none.
        note: what else is to be said of it.
    """

    case: str
    name: str
    value: float | None
    unit: str
    ratio: float | None = None
    baseline: str = ""
    note: str = ""


@dataclass
class Table:
    """A section's rows."""

    section: str
    title: str
    about: str
    rows: list[Row] = field(default_factory=list)


class Profile(NamedTuple):
    """How much is measured: `tiny` to see that everything works, `quick`, or `whole`."""

    name: str
    rounds: int

    def pick(self, tiny: _T, quick: _T, whole: _T) -> _T:
        """The value for this profile."""
        return {"tiny": tiny, "quick": quick, "whole": whole}[self.name]


PROFILES = {"tiny": Profile("tiny", 1), "quick": Profile("quick", 3), "whole": Profile("whole", 7)}


class Clock:
    """CPU time of this process inside `with`, in seconds, added up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.process_time()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds += time.process_time() - self._began


class Contestant(NamedTuple):
    """One way to do the work.

    Attributes:
        run: called with the case's parameters; returns the cost in the case's unit. It raises `AssertionError` if the
            result is not what was sent.
        needs: the module without which it cannot run, and what `pip install` brings it.
    """

    run: Callable[..., float]
    needs: tuple[str, str] | None = None


def check(text: str | None, sent: str) -> None:
    """Raise if a contestant's final text is not what was sent."""
    assert text == sent, (
        f"{len(text or '')} characters arrived, {len(sent)} were sent; they begin with {(text or '')[:60]!r}"
    )


def missing(contestant: Contestant) -> str:
    """How to install what a contestant needs; empty if it is there."""
    if contestant.needs is None or importlib.util.find_spec(contestant.needs[0]) is not None:
        return ""
    return f"not installed: pip install '{contestant.needs[1]}'"


class _Worker:
    """A process that runs contestants, again and again."""

    def __init__(self, module: str, collects: bool) -> None:
        self._pipe, theirs = _PROCESSES.Pipe()
        self._process = _PROCESSES.Process(target=serve, args=(theirs, module, collects), daemon=True)
        self._process.start()
        theirs.close()

    def run(self, name: str, parameters: Mapping[str, Any]) -> float:
        """What a contestant cost.

        Raises:
            RuntimeError: it failed.
        """
        try:
            self._pipe.send((name, parameters))
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise RuntimeError(f"its process ended, with status {self._process.exitcode}") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        cost: float = answer
        return cost

    def close(self) -> None:
        self._pipe.close()  # it ends with its input
        self._process.join()


class Workers:
    """The processes of a section's contestants, started when they are first needed.

    Args:
        profile: with the tiny one, whose figures say nothing, one process runs all contestants: it imports each client once.
    """

    def __init__(self, module: str, profile: Profile) -> None:
        self._module = module
        self._is_tiny = profile.name == "tiny"
        self._workers: dict[str, _Worker] = {}
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            del os.environ[name]  # they are on loopback
        # Each client that is made would read the machine's certificates, for 20 ms or more. Nothing here speaks TLS, so
        # they are given a directory that has none.
        os.environ["SSL_CERT_DIR"] = os.path.dirname(__file__)

    def run(self, name: str, parameters: Mapping[str, Any]) -> float:
        """What a contestant cost; see `_Worker.run`."""
        place = "" if self._is_tiny else name
        if place not in self._workers:
            self._workers[place] = _Worker(self._module, collects=not self._is_tiny)
        return self._workers[place].run(name, parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for worker in self._workers.values():
            worker.close()


def contest(
    workers: Workers,
    contestants: Mapping[str, Contestant],
    rounds: int,
    *,
    case: str,
    unit: str,
    baseline: str,
    parameters: Mapping[str, Any],
    of: Callable[[float], float] = float,
) -> Iterator[Row]:
    """A row for each contestant. One that is not installed, or fails, has one that says so.

    Args:
        parameters: what each is run with. In a first run, which is not measured, `n`, `times` and `most` are small.
        of: makes the value of the median cost.
    """
    costs: dict[str, list[float]] = {}
    notes = {name: note for name, contestant in contestants.items() if (note := missing(contestant))}
    few = {name: min(value, _FIRST.get(name, value)) for name, value in parameters.items()}
    for number in range(rounds + 1):
        for name in contestants:
            if name in notes:
                continue
            try:
                cost = workers.run(name, parameters if number else few)
            except RuntimeError as error:
                notes[name] = f"{FAILED}{error}"
                continue
            if number:
                costs.setdefault(name, []).append(cost)
    yield from numbered(
        {n: of(statistics.median(costs[n])) if n not in notes else None for n in contestants},
        case,
        unit,
        baseline,
        notes,
    )


def numbered(
    values: Mapping[str, float | None], case: str, unit: str, baseline: str, notes: Mapping[str, str] | None = None
) -> Iterator[Row]:
    """The rows of a case, by name, each with its ratio to the baseline."""
    base = values.get(baseline)
    for name, value in values.items():
        ratio = value / base if value is not None and base else None
        yield Row(case, name, value, unit, ratio, baseline if base else "", (notes or {}).get(name, ""))


def interleaved(functions: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """The median of what each function returns, in rounds. Of functions that are measured in this process."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            taken[name].append(function())
    return {name: statistics.median(values) for name, values in taken.items()}


@contextlib.contextmanager
def process(*command: str) -> Iterator[str]:
    """A Python process that runs for as long as the block does, and ends with its input: the first line that it prints."""
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        try:
            yield running.stdout.readline().strip()
        finally:
            running.stdin.close()


def failures(tables: Iterable[Table]) -> Sequence[Row]:
    """The rows of contestants that failed."""
    return [row for table in tables for row in table.rows if row.note.startswith(FAILED)]
