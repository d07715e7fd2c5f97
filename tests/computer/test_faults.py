"""Whatever code does, its end is explained, the next run works, and nothing of the stopped run is left."""

from __future__ import annotations

import contextlib
import random
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.computer.output_queue import DisplayOutput, LimitedOutput, OutputQueue

from ..server.parts import wait_for
from .faults import FAULTS, Fault
from .running import HELLO, Ran, TracedComputer, language, run, stop_at, traced_computer


@pytest.fixture(scope="module")
def unlimited() -> Iterator[TracedComputer]:
    """One for all faults that need no limits of their own."""
    with traced_computer() as traced:
        yield traced


@pytest.mark.parametrize(
    ("name", "fault"), [language(fault.language, fault, id=f"{fault.language}: {fault.name}") for fault in FAULTS]
)
def test_every_fault_is_explained_and_recovered_from(name: str, fault: Fault, unlimited: TracedComputer) -> None:
    """The console explains it, it ends in time, and the next run is not affected. The console text of an interrupted run
    ends with that word, and its active line is None."""
    limits = {key: value for key, value in fault.options.items() if key.endswith("limit")}
    options = {key: value for key, value in fault.options.items() if not key.endswith("limit")}
    with traced_computer(**limits) if limits else contextlib.nullcontext(unlimited) as traced:
        if fault.stopped:
            ran, seconds = stop_at(traced.computer, name, fault.code, **options)
            assert seconds < fault.seconds
            assert ran.text.endswith("\nKeyboardInterrupt")
            assert ran.text.count("KeyboardInterrupt") == 1
            assert ran.lines[-1] is None
        else:
            ran = run(traced.computer, name, fault.code, **options)
        assert ran.status == fault.status
        assert fault.words in ran.text
        assert ran.execution.state_lost == fault.state_lost
        assert ("are lost" in ran.text) == fault.state_lost
        if fault.stopped or fault.state_lost:
            assert [line for line in traced.processes() if "600" in line.split()] == []
        again = run(traced.computer, name, HELLO[name])
        assert (again.text, again.status) == ("hello\n", "completed")


# Prints the run's word from wherever code can: the main thread, another one, a child, and what either leaves behind.
TALKATIVE = {
    "python": (
        "import subprocess, threading, time\n"
        "def talk():\n"
        "    for _ in range(100):\n"
        "        print('{word}')\n"
        "        time.sleep(0.005)\n"
        "threading.Thread(target=talk).start()\n"
        "subprocess.Popen(['setsid', 'sh', '-c', 'while sleep 0.01; do echo {word}; done'])\n"
        "talk()\n"
    ),
    "shell": "(while sleep 0.01; do echo {word}; done) & setsid sh -c 'while sleep 0.01; do echo {word}; done' &\n"
    "while :; do echo {word}; sleep 0.005; done",
    "javascript": (
        "setInterval(() => console.log('{word}'), 5);"
        "require('child_process').spawn('sh', ['-c', 'while sleep 0.01; do echo {word}; done'], {{ stdio: 'inherit' }});"
        "await new Promise(() => {{}})"
    ),
}
RUNS = {"python": 12, "shell": 8, "javascript": 8}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runs"), [language(name, runs) for name, runs in RUNS.items()])
def test_nothing_of_an_interrupted_run_appears_in_a_later_one(
    name: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at random moments, 28 in all: each run has only its own output, keeps its state, and leaves no
    process. A busy machine may need more than a second for an interrupt, so the kill is far away here."""
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 30.0)
    moments = random.Random(7)
    with traced_computer() as traced:
        run(traced.computer, name, HELLO[name])
        for number in range(runs):
            word = f"word-{number}-"
            execution = traced.computer.run(name, TALKATIVE[name].format(word=word))
            timer = threading.Timer(moments.random() * 0.06, execution.interrupt)
            timer.start()
            ran = Ran(execution)
            timer.join()
            assert ran.status == "interrupted"
            assert set(re.findall(r"word-\d+-", ran.text)) <= {word}
            assert ran.text.endswith("KeyboardInterrupt")
            assert not ran.execution.state_lost, ran.text
        assert [line for line in traced.processes() if "while sleep" in line] == []


def test_a_thread_that_outlives_its_run_prints_into_no_other() -> None:
    """Here it outlives a run that completed."""
    code = (
        "import threading\n"
        "go, printed = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait()\n    print('late')\n    printed.set()\n"
        "threading.Thread(target=late).start()"
    )
    with traced_computer() as traced:
        run(traced.computer, "python", code)
        ran = run(traced.computer, "python", "go.set()\nprinted.wait()\nprint('mine')")
        assert ran.text == "mine\n"


def test_output_of_a_thread_pool_belongs_to_the_run_that_submitted_the_work() -> None:
    """Even if an earlier run started the pool's thread."""
    with traced_computer() as traced:
        run(
            traced.computer,
            "python",
            "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(1)\np.submit(int).result()",
        )
        ran = run(traced.computer, "python", "p.submit(print, 'new').result()")
        assert ran.text == "new\n"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        language("python", "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)"),
        language("shell", "sleep 600 & echo $!"),
    ],
)
def test_processes_that_a_run_left_behind_live_until_the_computer_is_closed(name: str, code: str) -> None:
    """For example a server that later code talks to. Stopping a later run does not end them either."""
    hang = {"python": "print('ready')\nwhile True: pass", "shell": "echo ready; sleep 700"}
    with traced_computer() as traced:
        assert run(traced.computer, name, code).status == "completed"
        ran, _ = stop_at(traced.computer, name, hang[name])
        assert ran.status == "interrupted"
        wait_for(
            lambda: [line for line in traced.processes() if line.endswith("sleep 600")]
        )  # its program may begin late


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "megabytes", "code"),
    [
        language("python", 4, "for _ in range(40_000): print('x' * 99)"),
        language("shell", 100, f"yes {'x' * 99} | head -c 100000000"),
        language("javascript", 4, "for (let i = 0; i < 40_000; i++) console.log('x'.repeat(99))"),
    ],
)
def test_a_hundred_megabytes_arrive_completely(name: str, megabytes: int, code: str) -> None:
    """In large pieces. Fewer of a language that is slow at printing."""
    size = pieces = 0
    with traced_computer(output_limit=None) as traced:
        execution: Any = traced.computer.run(name, code)
        for event in execution:
            if event.type == "console_delta":
                size += len(event.value)
                pieces += 1
        assert (size, execution.status) == (megabytes * 1_000_000, "completed")
        assert pieces < megabytes * 600


def test_nothing_is_written_after_a_display_that_passed_the_limit() -> None:
    """The display itself is written, for a part of it would be useless."""
    queue = OutputQueue(lambda: None)
    reached: list[bool] = []
    output = LimitedOutput(queue, 10, lambda: reached.append(True))
    output.display({"text/plain": "x" * 100})
    output.write("stdout", "y" * 1000)
    queue.close()
    (item,) = queue.take() or []
    assert isinstance(item, DisplayOutput)
    assert reached


def test_the_code_waits_while_nobody_reads() -> None:
    """So the memory for a reader that pauses is bounded."""
    with traced_computer(output_limit=None) as traced:
        execution = traced.computer.run("python", "while True: print('x' * 999)")
        next(iter(execution))
        feed = execution._request.output
        while not feed.full:
            pass
        execution.interrupt()
        execution._run.ended.wait(60)
        assert execution.status == "interrupted"
        held = sum(len(getattr(event, "value", "") or "") for event in execution)
        assert held < 8_000_000


POOL = "from multiprocessing import get_context\nimport time\npool = get_context('fork').Pool(4)\nprint('ready')\npool.map(time.sleep, [600] * 4)"


def test_a_pool_that_replaces_its_workers_is_ended_together_with_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """For they would come back for ever; the console says that the state is lost, and why. On a busy machine the pool may
    take longer to replace them, so they are waited for longer here."""
    monkeypatch.setattr("streamkit.computer.processes.RESTART_DELAY", 3.0)
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 30.0)
    with traced_computer() as traced:
        ran, seconds = stop_at(traced.computer, "python", POOL)
        assert (ran.status, ran.execution.state_lost) == ("interrupted", True)
        assert (
            "[the code kept starting processes after it was stopped, so its process was killed; the variables"
            in ran.text
        )
        assert "could not be" not in ran.text
        assert seconds < 20
        assert run(traced.computer, "python", "print('next')").text == "next\n"
        assert len(traced.without_reapers()) == 1


@pytest.mark.slow
def test_an_interrupt_that_comes_as_a_call_begins_to_wait_is_not_lost() -> None:
    """The signal alone would not end that call, and the state would be lost."""
    fault = next(one for one in FAULTS if (one.name, one.language) == ("hang", "python"))
    with traced_computer() as traced:
        for _ in range(25):
            ran, seconds = stop_at(traced.computer, "python", fault.code)
            assert (ran.status, ran.execution.state_lost) == ("interrupted", False)
            assert seconds < fault.seconds


def read_one(execution: Any) -> None:
    for event in execution:
        if isinstance(event, sk.ConsoleDelta):
            break


def close(execution: Any) -> None:
    read_one(execution)
    execution.close()


def leave_stream(execution: Any) -> None:
    with sk.stream(execution) as stream:
        for event in stream:
            if isinstance(event, sk.ConsoleDelta):
                break


def cancel_stream(execution: Any) -> None:
    class Stop(sk.EventHandler):
        def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
            self.stream.cancel()

    sk.stream(execution, Stop()).until_done()


def cancel_task(execution: Any) -> None:
    async def main() -> None:
        with anyio.CancelScope() as scope:
            async with sk.astream(execution) as stream:
                async for event in stream:
                    if isinstance(event, sk.ConsoleDelta):
                        scope.cancel()

    anyio.run(main)


def interrupt_and_stop_reading(execution: Any) -> None:
    read_one(execution)
    execution.interrupt()
    execution._run.ended.wait(60)


STUBBORN = {fault.language: fault.code for fault in FAULTS if fault.name == "swallowed interrupt"}


STOPS = [close, leave_stream, cancel_stream, cancel_task, interrupt_and_stop_reading]


@pytest.mark.parametrize(
    ("name", "stop"),
    [
        *(language("shell", stop, id=f"shell-{stop.__name__}") for stop in STOPS),
        language("python", close, id="python-close"),
        language("javascript", cancel_task, id="javascript-cancel_task"),
    ],
)
def test_a_loss_of_state_that_no_console_reported_is_reported_by_the_next_run(
    name: str, stop: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the run was stopped that lost it, which is the same for all languages; and only once."""
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 0.05)
    monkeypatch.setattr("streamkit.computer.stopping._FEWEST_INTERRUPTS", 2)
    with traced_computer() as traced:
        stop(traced.computer.run(name, STUBBORN[name]))
        ran = run(traced.computer, name, HELLO[name])
        assert ran.text == (
            "[in the last run the code did not stop when it was interrupted, so its process was killed; "
            f"the variables and state of {name} are lost]\nhello\n"
        )
        assert ran.execution.state_lost
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


def test_the_next_run_names_the_cause_of_a_loss_that_nobody_read() -> None:
    """Also where the process ended by itself, or passed a limit."""
    with traced_computer(process_limit=20) as traced:
        for code, words in {
            "kill -9 $$": "the shell process was killed by signal 9;",
            "exit 3": "the shell process ended by itself with exit status 3;",
            "for i in $(seq 50); do sleep 600 & done; wait": "process limit: the run was stopped because it had more than 20",
        }.items():
            interrupted = traced.computer.run("shell", f"echo begins; {code}")
            read_one(interrupted)
            interrupted._run.ended.wait(60)
            assert f"[in the last run {words}" in run(traced.computer, "shell", "echo").text
