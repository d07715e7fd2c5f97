"""Whatever code does, its end is explained, the next run works, and nothing of the stopped run is left."""

from __future__ import annotations

import random
import re
import threading
from typing import Any

import pytest

from streamkit.computer.limited_output import LimitedOutput
from streamkit.computer.output_queue import DisplayOutput, OutputQueue

from .faults import FAULTS, Fault
from .running import HELLO, Ran, language, run, stop_at, traced_computer


@pytest.mark.parametrize(
    ("name", "fault"), [language(fault.language, fault, id=f"{fault.language}: {fault.name}") for fault in FAULTS]
)
def test_every_fault_is_explained_and_recovered_from(name: str, fault: Fault) -> None:
    """The console explains it, it ends in time, and the next run is not affected."""
    limits = {key: value for key, value in fault.options.items() if key.endswith("limit")}
    options = {key: value for key, value in fault.options.items() if not key.endswith("limit")}
    with traced_computer(**limits) as traced:
        if fault.stopped:
            ran, seconds = stop_at(traced.computer, name, fault.code, **options)
            assert seconds < fault.seconds
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


@pytest.mark.parametrize(
    ("name", "fault"),
    [language(f.language, f, id=f"{f.language}: {f.name}") for f in FAULTS if f.stopped],
)
def test_an_interrupted_run_ends_with_keyboard_interrupt_and_no_line(name: str, fault: Fault) -> None:
    """That word is the last of its console text; the active line is None."""
    with traced_computer() as traced:
        ran, _ = stop_at(traced.computer, name, fault.code)
        assert ran.text.endswith("\nKeyboardInterrupt")
        assert ran.text.count("KeyboardInterrupt") == 1
        assert ran.lines[-1] is None


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
RUNS = {"python": 80, "shell": 60, "javascript": 60}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "runs"), [language(name, runs) for name, runs in RUNS.items()])
def test_nothing_of_an_interrupted_run_appears_in_a_later_one(
    name: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at random moments, 200 in all: each run has only its own output, keeps its state, and leaves no
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
        assert [line for line in traced.processes() if line.endswith("sleep 600")] == ["sleep 600"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code"),
    [
        language("python", "for _ in range(1_000_000): print('x' * 99)"),
        language("shell", f"yes {'x' * 99} | head -c 100000000"),
        language("javascript", "for (let i = 0; i < 1_000_000; i++) console.log('x'.repeat(99))"),
    ],
)
def test_a_hundred_megabytes_arrive_completely(name: str, code: str) -> None:
    """In large pieces."""
    size = pieces = 0
    with traced_computer(output_limit=None) as traced:
        execution: Any = traced.computer.run(name, code)
        for event in execution:
            if event.type == "console_delta":
                size += len(event.value)
                pieces += 1
        assert (size, execution.status) == (100_000_000, "completed")
        assert pieces < 60_000


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
        execution._ended.wait(5)
        assert execution.status == "interrupted"
        held = sum(len(getattr(event, "value", "") or "") for event in execution)
        assert held < 8_000_000


@pytest.mark.slow
def test_an_interrupt_that_comes_as_a_call_begins_to_wait_is_not_lost() -> None:
    """The signal alone would not end that call, and the state would be lost."""
    fault = next(one for one in FAULTS if (one.name, one.language) == ("hang", "python"))
    with traced_computer() as traced:
        for _ in range(60):
            ran, seconds = stop_at(traced.computer, "python", fault.code)
            assert (ran.status, ran.execution.state_lost) == ("interrupted", False)
            assert seconds < fault.seconds
