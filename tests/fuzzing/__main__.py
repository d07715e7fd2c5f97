"""Runs the targets, each in a process of its own, and prints a table. Ends with 1 if one found an input that breaks a law."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

LONGEST = 4_096  # bytes of an input
SLOWEST = 20  # seconds that one input may take before it counts as a hang


class Found(NamedTuple):
    """How a target ended."""

    target: str
    executions: int
    seconds: float
    failure: str


def main(arguments: list[str] | None = None) -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--executions", type=int, default=40_000, help="of all targets together (default: %(default)s)")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, help="a folder in which inputs that reach new code are kept")
    parser.add_argument("--list", action="store_true", help="name the targets")
    parser.add_argument("--fuzz", nargs=2, metavar=("TARGET", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.fuzz:
        return _fuzz(*options.fuzz, options.executions, options.seed)
    from .targets import TARGETS

    names: list[str] = options.target or [*TARGETS]
    if options.list:
        print("\n".join(TARGETS))
        return 0
    total = sum(TARGETS[name].weight for name in names)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(options.workers) as pool:
        corpus = options.corpus or Path(scratch)
        shares = {name: max(1, options.executions * TARGETS[name].weight // total) for name in names}
        runs = [pool.submit(_run, name, shares[name], corpus / name.replace(":", "-"), options.seed) for name in names]
        found = [run.result() for run in runs]
    print(f"{'target':<20} {'executions':>12} {'seconds':>8}")
    for one in found:
        print(f"{one.target:<20} {one.executions:>12,} {one.seconds:>8.0f}{'  BROKEN' if one.failure else ''}")
    failed = [one for one in found if one.failure]
    for one in failed:
        print(f"\n{one.target}:\n{one.failure}")
    print(f"\n{sum(one.executions for one in found):,} executions, {len(failed)} targets with a broken law")
    return 1 if failed else 0


def _run(name: str, executions: int, folder: Path, seed: int) -> Found:
    """Fuzz one target in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzzing", "--fuzz", name, str(folder)]
    command += ["--executions", str(executions), "--seed", str(seed)]
    began = time.monotonic()
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    lines = ended.stdout.splitlines()
    done = [int(line.rsplit(":", 1)[1]) for line in lines if line.startswith("stat::number_of_executed_units")]
    failure = "" if ended.returncode == 0 and done else "\n".join(lines[-60:])
    return Found(name, done[-1] if done else 0, time.monotonic() - began, failure)


def _fuzz(name: str, folder: str, executions: int, seed: int) -> int:
    """Fuzz in this process. Ends it."""
    import atheris  # not in the test extra

    with atheris.instrument_imports(
        include=["streamkit.protocols", "streamkit.core", "streamkit.messages", "streamkit.sources"]
    ):
        from . import targets
    target = targets.TARGETS[name]
    for number, data in enumerate(target.seeds()):
        (Path(folder) / f"seed-{number}").write_bytes(data[:LONGEST])
    dictionary = Path(folder).with_suffix(".dict")
    dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in targets.words()))

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        dice = random.Random(number)
        if dice.randrange(2):
            changed: bytes = atheris.Mutate(data, longest)
            return changed
        return targets.mutated(data, dice)[:longest]

    options = [
        f"-runs={executions}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        f"-timeout={SLOWEST}",
        f"-dict={dictionary}",
    ]
    options += ["-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={folder}-"]
    atheris.Setup([sys.argv[0], *options, folder], target.run, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


def _escaped(word: str) -> str:
    return "".join(
        chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\x{b:02x}" for b in word.encode("utf-8", "replace")
    )


if __name__ == "__main__":
    sys.exit(main())
