"""A process of the endurance tests on Redis: produces runs, or reads them, and writes what it saw to its output.

    python -m tests.endurance.redis_worker produce <url> <prefix> <lease> <seconds between events> <events> <run> ...
    python -m tests.endurance.redis_worker read <url> <prefix> <lease> <run> ...

A producer writes events with numbers from 1 on. A reader prints a line of JSON for each run it has read to its end, or that
failed: the epochs and numbers it saw, as `[epoch, first, last]`, and how the run ended.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import streamkit as sk
from streamkit.errors import ProducerFenced
from streamkit.relay import RedisRelay


def produce(relay: RedisRelay, run_id: str, pause: float, count: int) -> str:
    """Write a run; returns how it ended."""
    try:
        writer = relay.open(run_id, control=lambda control: None)
    except sk.UsageError:
        return "refused"
    try:
        for number in range(1, count + 1):
            writer.append([b'{"type":"raw_event","name":"n","data":{"n":%d}}' % number])
            if pause:
                time.sleep(pause)
        writer.flush(60)
        return "completed" if writer.end("completed") else f"fenced {writer.fenced}"
    except ProducerFenced as fenced:
        return f"fenced {fenced.reason}"


def read(relay: RedisRelay, run_id: str) -> dict[str, Any]:
    """Read a run to its end, and check on the way that each event comes once, in order."""
    deadline = time.monotonic() + 60
    while True:
        try:
            reading = relay.read(run_id)
            break
        except sk.SourceError as error:
            if error.status_code != 404 or time.monotonic() > deadline:
                return {"run": run_id, "end": f"failed: {error}", "seen": 0, "faults": []}
            time.sleep(0.01)
    seen, faults, snapshots = 0, list[str](), 0
    try:
        for entries in reading:
            for entry in entries:
                number = int(entry.cursor.partition(".")[0].partition("-")[2])
                if entry.snapshot:
                    snapshots += 1
                elif number != seen + 1:
                    faults.append(f"{entry.cursor} after {seen}")
                data = json.loads(entry.data)
                if not entry.snapshot and data["type"] == "raw_event" and data["data"]["n"] != number:
                    faults.append(f"{entry.cursor} is {data}")
                seen = number
        record = relay.get(run_id)
        # The end that was read may be in the tail that Redis loses: the run is `lost` once the lease is over.
        while record is not None and record.status == "in_progress" and time.monotonic() < deadline:
            time.sleep(0.05)
            record = relay.get(run_id)
        end = "gone" if record is None else record.status
    except sk.SourceError as error:
        end = f"failed {error.status_code}"
    return {"run": run_id, "end": end, "seen": seen, "snapshots": snapshots, "faults": faults}


def main() -> None:
    what, url, prefix, lease, *rest = sys.argv[1:]
    relay = RedisRelay(url, prefix=prefix, lease=float(lease), timeout=None)
    lock = threading.Lock()

    def one(run_id: str) -> None:
        if what == "produce":
            result: Any = {"run": run_id, "end": produce(relay, run_id, float(rest[0]), int(rest[1]))}
        else:
            result = read(relay, run_id)
        with lock:
            print(json.dumps(result), flush=True)

    runs = rest[2:] if what == "produce" else rest
    threads = [threading.Thread(target=one, args=(run_id,)) for run_id in runs]
    print("ready", flush=True)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relay.close()


if __name__ == "__main__":
    main()
