"""What running code costs: latency of a print, time to stop, the active line.

    python -m tests.benchmarks --only computer      # the latencies alone
    python -m tests.benchmarks.computer
    python -m tests.benchmarks.computer --prints 500 --without-stops

First the latency from a `print` in Python code to the hook of a stream, compared with a plain ipykernel that
`jupyter_client` reads (`pip install ipykernel` brings both); and the same of the shell and of JavaScript, without a
comparison. Then what sampling the active line costs a loop of two million turns. Then a table of faults: how each run
ended, and how many milliseconds after the interrupt, or after the begin of a run that is not interrupted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import streamkit as sk
from streamkit.computer import Computer
from tests.computer.faults import FAULTS

from .measuring import Profile, Row, interleaved, numbered

TITLE = "Running code"
ABOUT = """\
The time from a `print` in code that runs to the application's hook: the only rows here that are by the clock on the wall. The
baseline is an IPython kernel without streamkit, read by its own client."""

# The code, and the clock that it reads as well as the hook does.
PRINTS: dict[str, tuple[str, Callable[[], int]]] = {
    "python": (
        "import time\nfor _ in range({n}):\n    print(time.monotonic_ns())\n    time.sleep(0.02)",
        time.monotonic_ns,
    ),
    "shell": ("for i in $(seq {n}); do date +%s%N; sleep 0.02; done", time.time_ns),
    "javascript": (
        "for (let i = 0; i < {n}; i++) {{ console.log(String(process.hrtime.bigint()));"
        " await new Promise((done) => setTimeout(done, 20)) }}",
        time.monotonic_ns,
    ),
}
LOOP = (
    "import time\nbegan = time.process_time()\ni = 0\nwhile i < 2_000_000: i += 1\nprint(time.process_time() - began)"
)


class Latency(sk.EventHandler):
    """Notes for each number that reaches its hook how long ago it was printed."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.seconds: list[float] = []
        self._text = ""

    def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
        self.take(delta.value)

    def take(self, text: str) -> None:
        now = self.clock()
        *lines, self._text = (self._text + text).split("\n")
        self.seconds += [(now - int(line)) / 1e9 for line in lines if line.strip()]

    def row(self, name: str) -> str:
        ordered = sorted(self.seconds)
        worst = ordered[int(len(ordered) * 0.99) - 1]
        return f"| {name} | {statistics.median(ordered) * 1e3:.2f} ms | {worst * 1e3:.2f} ms |"


def through_streamkit(computer: Computer, language: str, n: int) -> Latency:
    code, clock = PRINTS[language]
    latency = Latency(clock)
    sk.stream(computer.run(language, code.format(n=n)), latency).until_done()
    assert len(latency.seconds) == n
    return latency


def through_jupyter(client: Any, n: int) -> Latency:
    code, clock = PRINTS["python"]
    latency = Latency(clock)
    request = client.execute(code.format(n=n))
    while True:
        message = client.get_iopub_msg(timeout=30)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            latency.take(message["content"]["text"])
        elif message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            assert len(latency.seconds) == n
            return latency


@contextmanager
def plain_kernel() -> Iterator[Any]:
    """A kernel without streamkit: its client."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel()
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


PLAIN = "python, a plain ipykernel and its client"


def measure(n: int) -> dict[str, Latency]:
    """The latencies of n prints, by what printed."""
    with plain_kernel() as client, Computer() as computer:
        through_jupyter(client, 5), through_streamkit(computer, "python", 5)
        return {
            "python": through_streamkit(computer, "python", n),
            PLAIN: through_jupyter(client, n),
            "shell": through_streamkit(computer, "shell", n),
            "javascript": through_streamkit(computer, "javascript", n),
        }


def rows(profile: Profile) -> Iterator[Row]:
    medians = {name: statistics.median(one.seconds) * 1e3 for name, one in measure(profile.pick(2, 20, 200)).items()}
    yield from numbered(medians, "a print", "ms until the hook", PLAIN)


def latencies(n: int) -> None:
    print("| from a print to the hook | median | p99 |\n|---|---|---|")
    for name, latency in measure(n).items():
        print(latency.row(name))


def stops() -> None:
    print("\n| fault | language | how it ended | state | from | milliseconds |\n|---|---|---|---|---|---|")
    for fault in FAULTS:
        limits = {key: value for key, value in fault.options.items() if key.endswith("limit")}
        with Computer(**limits) as computer:
            for _ in computer.run(fault.language, ""):
                pass
            execution = computer.run(fault.language, fault.code, timeout=fault.options.get("timeout"))
            began = time.perf_counter()
            text, interrupted = "", False
            for event in execution:
                if isinstance(event, sk.ConsoleDelta) and fault.stopped and not interrupted:
                    text += event.value
                    if "ready" in text:
                        began, interrupted = time.perf_counter(), True
                        execution.interrupt()
            took = (time.perf_counter() - began) * 1e3
        lost = "lost" if execution.state_lost else "alive"
        since = "interrupt" if fault.stopped else "begin"
        print(f"| {fault.name} | {fault.language} | {execution.status} | {lost} | {since} | {took:.0f} |")


def active_line(rounds: int) -> None:
    """The same loop in the kernel, where a thread samples its line, and in a plain kernel."""
    with plain_kernel() as client, Computer() as computer:

        def sampled() -> float:
            return float("".join(e.value for e in computer.run("python", LOOP) if isinstance(e, sk.ConsoleDelta)))

        def plain() -> float:
            printed: list[str] = []
            client.execute_interactive(
                LOOP, output_hook=lambda m: printed.append(m["content"].get("text", "")), timeout=60
            )
            return float("".join(printed))

        with_line, without = interleaved({"sampled": sampled, "plain": plain}, rounds).values()
    cost = (with_line / without - 1) * 100
    print(f"\na loop of 2,000,000 turns: {with_line * 1e3:.1f} ms of CPU, {without * 1e3:.1f} ms plain: {cost:+.1f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prints", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--without-stops", action="store_true")
    options = parser.parse_args()
    latencies(options.prints)
    active_line(options.rounds)
    if not options.without_stops:
        stops()


if __name__ == "__main__":
    main()
