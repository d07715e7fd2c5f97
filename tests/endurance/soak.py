"""One process that does for a long time what a long-lived application does, and must not grow.

    python -m tests.endurance.soak --minutes 20 --seed 1 [--only whole,requests]

Rounds of a few seconds, in which activities run in random order, two at a time, end in a quiet moment. In it the open
descriptors, threads, tasks and child processes are back at their level, and the memory is measured. When the application is
closed, they are back at what there was before it was opened; a first one, which was closed before, has loaded everything.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import psutil

import streamkit as sk

from .activities import ACTIVITIES
from .application import Application
from .model import model

__all__ = ["Sample", "Soak", "main", "memory_fault"]

WORKERS = 2
ROUND = 4.0  # seconds
PATIENCE = 20.0  # seconds in which the counts come back; idle threads of trio's pool live for 10
SHARE = 0.35  # of a core that this process may take
SLOPE = 1.0  # MB a minute
GROWTH = 0.05  # of the memory, in the second half
POOLS = ("AnyIO worker thread", "Trio thread", "asyncio_")  # bounded pools of others, which keep idle threads


class Sample(NamedTuple):
    """What there was in a quiet moment."""

    descriptors: int
    threads: int
    tasks: int
    processes: int
    memory: float  # MB
    minutes: float

    def above(self, level: Sample) -> list[str]:
        """The counts that are higher than those of the level."""
        pairs = [*zip(self._fields, self, level, strict=True)][:4]
        return [f"{name}: {count}, not {allowed}" for name, count, allowed in pairs if count > allowed]


class Soak:
    """The activities, again and again.

    Attributes:
        faults: what must not be.
        samples: of the quiet moments.
        counts: how often each activity was done.
    """

    def __init__(self, model_url: str, seed: int, names: Sequence[str], print: Callable[[str], None] = print) -> None:
        self.faults: list[str] = []
        self.samples: list[Sample] = []
        self.counts: Counter[str] = Counter()
        self._model_url, self._names, self._print = model_url, names, print
        self._dice = random.Random(seed)
        self._process = psutil.Process()
        self._began, self._began_cpu = time.monotonic(), _cpu_seconds()

    def run(self, seconds: float) -> None:
        """Do them for so long, with an application that is opened and closed."""
        with Application(self._model_url) as app, ThreadPoolExecutor(WORKERS) as pool:
            self._warm_up(app, pool)
        level, before = self._steady(None), self.descriptors()
        self._print(f"closed: {level}")
        with Application(self._model_url) as app, ThreadPoolExecutor(WORKERS) as pool:
            self._warm_up(app, pool)
            self._rounds(app, pool, seconds)
        self._check(None, level, before, "after closing")

    def _warm_up(self, app: Application, pool: ThreadPoolExecutor) -> None:
        """Do everything once. At the end the kernel has had a run, whose pipes it keeps until the next one."""
        for language in ("python", "shell"):
            app.computer.start(language)
        for future in [pool.submit(self._do, app, name, self._dice.random()) for name in self._names]:
            future.result()
        sk.stream(app.computer.run("python", "1")).until_done()

    def _rounds(self, app: Application, pool: ThreadPoolExecutor, seconds: float) -> None:
        level, before = self._steady(app), self.descriptors()
        end = time.monotonic() + seconds
        self._print(f"level: {level}")
        while time.monotonic() < end:
            until = min(end, time.monotonic() + ROUND)
            for future in [pool.submit(self._work, app, self._dice.random(), until) for _ in range(WORKERS)]:
                future.result()
            sample = self._check(app, level, before, "in a quiet moment")
            self.samples.append(sample)
            self._print(f"{sum(self.counts.values()):6} {sample}")

    def _work(self, app: Application, seed: float, until: float) -> None:
        dice = random.Random(seed)
        while time.monotonic() < until:
            self._do(app, dice.choice(self._names), dice.random())
            while _cpu_seconds() - self._began_cpu > SHARE * (time.monotonic() - self._began):
                time.sleep(0.05)

    def _do(self, app: Application, name: str, seed: float) -> None:
        try:
            ACTIVITIES[name](app, random.Random(seed))
        except (Exception, BaseExceptionGroup) as error:
            self.faults.append(f"{name}, seed {seed}: {error!r}")
            self._print(f"FAULT {self.faults[-1]}")
        self.counts[name] += 1

    # -- samples

    def measure(self, app: Application | None) -> Sample:
        """What there is now."""
        gc.collect()
        idle = sum(thread.name.startswith(POOLS) for thread in threading.enumerate())
        return Sample(
            self._process.num_fds(),
            self._process.num_threads() - idle,
            0 if app is None else app.count_tasks(),
            len(self._process.children(recursive=True)),
            round(self._process.memory_info().rss / 2**20, 1),
            round((time.monotonic() - self._began) / 60, 2),
        )

    def _steady(self, app: Application | None) -> Sample:
        """What there is once nothing has changed for two seconds."""
        end, last, equal = time.monotonic() + PATIENCE, self.measure(app), 0
        while equal < 4 and time.monotonic() < end:
            time.sleep(0.5)
            sample = self.measure(app)
            equal = equal + 1 if sample[:4] == last[:4] else 0
            last = sample
        return last

    def _check(self, app: Application | None, level: Sample, before: set[str], when: str) -> Sample:
        """Wait until the counts are at their level, and note a fault, with what is new, if they do not come back."""
        end = time.monotonic() + PATIENCE
        while (sample := self.measure(app)).above(level) and time.monotonic() < end:
            time.sleep(0.1)
        if above := sample.above(level):
            threads = Counter(thread.name for thread in threading.enumerate())
            children = [child.name() for child in self._process.children(recursive=True)]
            new = sorted(self.descriptors() - before)
            self.faults.append(f"{when}: {'; '.join(above)}; new descriptors {new}; {dict(threads)}; {children}")
            self._print(f"FAULT {self.faults[-1]}")
        return sample

    def descriptors(self) -> set[str]:
        """What each open descriptor refers to, with the addresses of a socket."""
        sockets = {one.fd: one for one in self._process.net_connections("all")}
        found = set[str]()
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):  # the one of this listing
                target, socket = os.readlink(f"/proc/self/fd/{name}"), sockets.get(int(name))
                address = f" {socket.laddr} {socket.raddr} {socket.status}" if socket is not None else ""
                found.add(f"{name}: {target}{address}")
        return found


def _cpu_seconds() -> float:
    return sum(os.times()[:4])


def memory_fault(samples: Sequence[Sample]) -> tuple[str, float]:
    """What is wrong with the memory in the second half, "" if nothing is; and its slope in MB a minute."""
    half = samples[len(samples) // 2 :]
    memory, minutes = [sample.memory for sample in half], [sample.minutes for sample in half]
    slope = statistics.linear_regression(minutes, memory).slope
    growth = slope * (minutes[-1] - minutes[0]) / memory[0]
    is_level = slope < SLOPE and growth < GROWTH
    return "" if is_level else f"memory: {slope:.2f} MB a minute, {growth:.1%} in the second half", slope


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns 1 if there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default=",".join(ACTIVITIES), help="names of activities")
    options = parser.parse_args(arguments)
    faulthandler.dump_traceback_later(options.minutes * 60 + 300, exit=True)
    with model() as url:
        soak = Soak(url, options.seed, options.only.split(","), lambda line: print(line, flush=True))
        soak.run(options.minutes * 60)
    faulthandler.cancel_dump_traceback_later()
    fault, slope = memory_fault(soak.samples)
    faults = [*soak.faults, *([fault] if fault else [])]
    for name, count in sorted(soak.counts.items()):
        print(f"  {name:24} {count:6}")
    print(f"{sum(soak.counts.values())} activities, {len(soak.samples)} samples, {slope:.2f} MB a minute")
    for fault in faults[:20]:
        print("  FAULT", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
