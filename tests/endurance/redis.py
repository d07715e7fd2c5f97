"""Redis, producers and readers that are killed or stopped at random; and very many runs at once.

    python -m tests.endurance.redis --rounds 100 --runs 1000

In each round a producer writes eight runs in a process of its own, and two processes read them. One of the three, or Redis
itself, is killed (SIGKILL) or stopped for a while (SIGSTOP) in the middle; Redis also loses the end of its file, alone or
together with the producer. A killed reader is started again and reads from
the beginning. Then for each reader: each event came once and in order, or a snapshot in place of those before it; and
every run ended visibly, `done` or `lost`. With `--runs`, so many runs are written in one process and read in another, and
the connections of both are counted.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis

from ..redis_server import RedisServer, wait_for

LEASE = 1.0  # seconds; short, so that a round is
VICTIMS = (
    "producer",
    "reader",
    "redis",
    "redis stopped",
    "producer stopped",
    "reader stopped",
    "redis cut",
    "both cut",
)


class Process:
    """A worker; `results` are the lines that it wrote."""

    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.endurance.redis_worker", *map(str, arguments)]
        self.arguments = arguments
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.results: list[dict[str, Any]] = []
        self._thread = threading.Thread(target=self._collect)
        self._thread.start()

    def _collect(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.results.append(json.loads(line))

    def kill(self) -> None:
        self.process.kill()
        self.wait()

    def stop(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def wait(self, seconds: float = 120) -> None:
        """Wait until it has ended."""
        self.process.wait(seconds)
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def killing(processes: Sequence[Process]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in processes:
            if one.process.poll() is None:
                one.kill()


def one_round(server: RedisServer, name: str, victim: str, chance: random.Random, runs: int, events: int) -> list[dict[str, Any]]:  # fmt: skip
    """A round; returns what the readers saw of each run."""
    ids = [f"{name}-{number}" for number in range(runs)]
    readers = [Process("read", server.url, name, LEASE, *ids) for _ in range(2)]
    producer = Process("produce", server.url, name, LEASE, 0.004, events, *ids)
    with killing([producer, *readers]):
        opened = size_with_all(server, name, runs)
        time.sleep(chance.uniform(0.1, 0.8))
        match victim:
            case "producer":
                producer.kill()
            case "reader":
                readers[0].kill()
                readers[0] = Process("read", server.url, name, LEASE, *ids)
            case "redis":
                server.kill()
                time.sleep(chance.uniform(0.0, 0.3))
                server.start()
            case "redis cut" | "both cut":
                server.kill()
                if victim == "both cut":
                    producer.kill()
                server.cut(chance.randrange(1, 20_000), opened)
                server.start()
            case "redis stopped":
                server.pause()
                time.sleep(chance.uniform(0.1, 2 * LEASE))
                server.go_on()
            case "producer stopped":
                producer.stop(chance.uniform(0.1, 4 * LEASE))
            case _:
                readers[0].stop(chance.uniform(0.1, 2 * LEASE))
        for one in (*readers, producer):
            one.wait()
        return [*readers[0].results, *readers[1].results]


def size_with_all(server: RedisServer, name: str, runs: int) -> int:
    """The size of the file once all runs are opened: what is cut off later is of none as a whole, which would be gone."""
    with redis.Redis(port=server.port) as client:
        wait_for(lambda: client.zcard(f"{name}:runs") == runs)
    return server.size


def check(results: Sequence[dict[str, Any]], runs: int, victim: str) -> Counter[str]:
    """Whether every reader saw every run to a visible end, each event once; returns how many ended how."""
    assert len(results) == 2 * runs, (victim, len(results))
    for one in results:
        assert one["faults"] == [], (victim, one)
        assert one["end"] in ("completed", "lost"), (victim, one)
    return Counter(str(one["end"]) for one in results)


def kill_rounds(server: RedisServer, rounds: int, seed: int, *, runs: int = 8, events: int = 250, victims: Sequence[str] = VICTIMS, loud: bool = False) -> Counter[str]:  # fmt: skip
    """So many rounds; returns how many runs ended how, and how many events were read."""
    chance = random.Random(seed)
    total: Counter[str] = Counter()
    for number in range(rounds):
        victim = victims[number % len(victims)]
        results = one_round(server, f"r{seed}-{number}", victim, chance, runs, events)
        ends = check(results, runs, victim)
        total += ends
        total["events"] += sum(one["seen"] for one in results)
        total["snapshots"] += sum(one["snapshots"] for one in results)
        if loud:
            print(f"{number:4} {victim:18} {dict(ends)}", flush=True)
    return total


def many_runs(server: RedisServer, runs: int, events: int, pause: float) -> dict[str, Any]:
    """So many runs at once, written by one process and read by another; returns figures."""
    ids = [f"many-{number}" for number in range(runs)]
    client = redis.Redis.from_url(server.url)
    began = time.monotonic()
    reader = Process("read", server.url, "many", 15, *ids)
    producer = Process("produce", server.url, "many", 15, pause, events, *ids)
    most = 0
    with killing([reader, producer]):
        while reader.process.poll() is None or producer.process.poll() is None:
            assert time.monotonic() - began < 300
            most = max(most, len(client.client_list()) - 1)
            time.sleep(0.05)
        reader.wait()
        producer.wait()
    client.close()
    took = time.monotonic() - began
    assert [one["faults"] for one in reader.results] == [[]] * runs
    assert {(one["end"], one["seen"]) for one in reader.results} == {("completed", events)}
    return {"runs": runs, "events": runs * events, "seconds": round(took, 1), "connections of both": most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--runs", type=int, default=1000, help="at once; 0 for none")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    server = RedisServer(keeps=True)
    try:
        print(dict(kill_rounds(server, options.rounds, options.seed, loud=True)))
        if options.runs:
            print(many_runs(server, options.runs, 20, 0.25))
    finally:
        server.close()


if __name__ == "__main__":
    main()
