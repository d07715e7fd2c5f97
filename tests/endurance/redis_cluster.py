"""A Redis Cluster whose masters die, hang and give up their slots; and the contract suite on one.

    python -m tests.endurance.redis_cluster --rounds 12

In each round a producer writes eight runs, which are on all three masters, in a process of its own, and two processes read
them. In the middle a master is killed, so that its replica takes over, or stopped for longer than that takes, or hands its
place over to its replica; or the slots of the runs move to other masters. Then for each reader: each event came once and in
order, or a snapshot in place of those before it; and every run ended visibly. At the end the tests of the relay and of the
stores run on a Cluster.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter

from redis.crc import key_slot

from streamkit.relay.redis.record import Keys

from ..redis_server import Cluster, RedisServer, wait_for
from .redis import LEASE, Process, check, killing

FAULTS = ("master killed", "slots moved", "master stopped", "master replaced")
TESTS = ("tests/test_relay_contract.py", "tests/test_relay.py", "tests/test_stores.py")


def disturb(cluster: Cluster, fault: str, slots: list[int], chance: random.Random) -> None:
    """One fault of a master, mended again."""
    victim = cluster.owner(chance.choice(slots))
    match fault:
        case "master killed":
            victim.kill()
            wait_for(lambda: victim not in {server for _, _, server in cluster.owners()})
            victim.start()
        case "master stopped":
            victim.pause()
            time.sleep(chance.uniform(0.1, 4 * LEASE))
            victim.go_on()
        case "master replaced":
            replica = next(one for one in cluster.servers if follows(one, victim))
            replica.command("CLUSTER", "FAILOVER")
        case _:
            for slot in slots:
                cluster.move(slot, halfway=lambda: time.sleep(chance.uniform(0, 0.02)))
    wait_for(lambda: is_whole(cluster))


def follows(server: RedisServer, master: RedisServer) -> bool:
    info = server.command("INFO", "replication")
    return bool(info["role"] == "slave" and info["master_port"] == master.port and info["master_link_status"] == "up")


def is_whole(cluster: Cluster) -> bool:
    """Whether every master has a replica again."""
    roles = [server.command("INFO", "replication") for server in cluster.servers]
    up = [info for info in roles if info["role"] == "slave" and info["master_link_status"] == "up"]
    return len(up) == 3 and all(info.get("connected_slaves") == 1 for info in roles if info["role"] == "master")


def one_round(cluster: Cluster, name: str, fault: str, chance: random.Random, runs: int, events: int) -> Counter[str]:
    ids = [f"{name}-{number}" for number in range(runs)]
    readers = [Process("read", cluster.url, name, LEASE, *ids) for _ in range(2)]
    producer = Process("produce", cluster.url, name, LEASE, 0.01, events, *ids)
    with killing([producer, *readers]):
        time.sleep(chance.uniform(0.2, 1.0))
        disturb(cluster, fault, [key_slot(Keys(name, id).run) for id in ids], chance)
        for one in (*readers, producer):
            one.wait()
    results = [*readers[0].results, *readers[1].results]
    ends = check(results, runs, fault)
    ends["events"] = sum(one["seen"] for one in results)
    ends["snapshots"] = sum(one["snapshots"] for one in results)
    return ends


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-suite", action="store_true", help="leave the contract suite out")
    options = parser.parse_args()
    chance, total = random.Random(options.seed), Counter[str]()
    cluster = Cluster(replicas=3)
    try:
        for number in range(options.rounds):
            fault = FAULTS[number % len(FAULTS)]
            ends = one_round(cluster, f"r{options.seed}-{number}", fault, chance, 8, 400)
            total += ends
            print(f"{number:4} {fault:18} {dict(ends)}", flush=True)
        print(dict(total))
    finally:
        cluster.close()
    if not options.no_suite:
        command = [sys.executable, "-m", "pytest", "-q", *TESTS, "-k", "redis"]
        subprocess.run(command, check=True, env={**os.environ, "STREAMKIT_TEST_REDIS": "cluster"})


if __name__ == "__main__":
    main()
