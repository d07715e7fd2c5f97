"""Whatever code does, its end is told, the next run works, and nothing of the stopped one is left."""

from __future__ import annotations

import random
import re
import threading
from typing import Any

import pytest

from .faults import FAULTS, Fault
from .running import HELLO, Ran, language, marked, run, stop_at


@pytest.mark.parametrize(
    ("name", "fault"), [language(fault.language, fault, id=f"{fault.language}: {fault.name}") for fault in FAULTS]
)
def test_a_fault_is_told_and_recovered_from(name: str, fault: Fault) -> None:
    """In words; within the time; and the next run has none of it."""
    limits = {key: value for key, value in fault.options.items() if key.endswith("limit")}
    options = {key: value for key, value in fault.options.items() if not key.endswith("limit")}
    with marked(**limits) as given:
        if fault.stopped:
            ran, seconds = stop_at(given.computer, name, fault.code, **options)
            assert seconds < fault.seconds
        else:
            ran = run(given.computer, name, fault.code, **options)
        assert ran.status == fault.status
        assert fault.words in ran.text
        assert ran.execution.state_lost == fault.state_lost
        assert ("are lost" in ran.text) == fault.state_lost
        if fault.stopped or fault.state_lost:
            assert [line for line in given.processes() if "600" in line.split()] == []
        again = run(given.computer, name, HELLO[name])
        assert (again.text, again.status) == ("hello\n", "completed")


@pytest.mark.parametrize(
    ("name", "fault"),
    [language(f.language, f, id=f"{f.language}: {f.name}") for f in FAULTS if f.stopped],
)
def test_an_interrupted_run_ends_with_keyboard_interrupt_and_no_line(name: str, fault: Fault) -> None:
    """The last of its console text is that word; the active line is none."""
    with marked() as given:
        ran, _ = stop_at(given.computer, name, fault.code)
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


@pytest.mark.parametrize(("name", "runs"), [language(name, runs) for name, runs in RUNS.items()])
def test_nothing_of_an_interrupted_run_appears_in_a_later_one(name: str, runs: int) -> None:
    """Interrupted at random moments, 200 in all: each run has its own output alone, and no process is left."""
    moments = random.Random(7)
    with marked() as given:
        run(given.computer, name, HELLO[name])
        for number in range(runs):
            word = f"word-{number}-"
            execution = given.computer.run(name, TALKATIVE[name].format(word=word))
            timer = threading.Timer(moments.random() * 0.06, execution.interrupt)
            timer.start()
            ran = Ran(execution)
            timer.join()
            assert ran.status == "interrupted"
            assert set(re.findall(r"word-\d+-", ran.text)) <= {word}
            assert ran.text.endswith("KeyboardInterrupt")
            assert not ran.execution.state_lost, ran.text
        assert [line for line in given.processes() if "while sleep" in line] == []


def test_a_thread_that_outlives_its_run_prints_into_no_other() -> None:
    """It may even outlive a run that ended by itself."""
    code = (
        "import threading\n"
        "go, said = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait()\n    print('late')\n    said.set()\n"
        "threading.Thread(target=late).start()"
    )
    with marked() as given:
        run(given.computer, "python", code)
        ran = run(given.computer, "python", "go.set()\nsaid.wait()\nprint('mine')")
        assert ran.text == "mine\n"


def test_what_a_pool_does_is_printed_by_the_run_that_asked_for_it() -> None:
    """However old the pool's thread is."""
    with marked() as given:
        run(
            given.computer,
            "python",
            "from concurrent.futures import ThreadPoolExecutor\np = ThreadPoolExecutor(1)\np.submit(int).result()",
        )
        ran = run(given.computer, "python", "p.submit(print, 'new').result()")
        assert ran.text == "new\n"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        language("python", "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid)"),
        language("shell", "sleep 600 & echo $!"),
    ],
)
def test_what_a_run_left_running_lives_on_until_the_computer_is_closed(name: str, code: str) -> None:
    """As a server that later code is to talk to; a later run that is stopped does not end it either."""
    hang = {"python": "print('ready')\nwhile True: pass", "shell": "echo ready; sleep 700"}
    with marked() as given:
        assert run(given.computer, name, code).status == "completed"
        ran, _ = stop_at(given.computer, name, hang[name])
        assert ran.status == "interrupted"
        assert [line for line in given.processes() if line.endswith("sleep 600")] == ["sleep 600"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        language("python", "for _ in range(1_000_000): print('x' * 99)"),
        language("shell", f"yes {'x' * 99} | head -c 100000000"),
        language("javascript", "for (let i = 0; i < 1_000_000; i++) console.log('x'.repeat(99))"),
    ],
)
def test_a_hundred_megabytes_arrive_whole(name: str, code: str) -> None:
    """In pieces that are large."""
    size = pieces = 0
    with marked(output_limit=None) as given:
        execution: Any = given.computer.run(name, code)
        for event in execution:
            if event.type == "console_delta":
                size += len(event.value)
                pieces += 1
        assert (size, execution.status) == (100_000_000, "completed")
        assert pieces < 60_000


def test_the_code_waits_where_nobody_reads() -> None:
    """What is held for a reader that pauses is bounded."""
    with marked(output_limit=None) as given:
        execution = given.computer.run("python", "while True: print('x' * 999)")
        next(iter(execution))
        feed = execution._request.output
        while not feed.full:
            pass
        execution.interrupt()
        execution._ended.wait(5)
        assert execution.status == "interrupted"
        held = sum(len(getattr(event, "value", "") or "") for event in execution)
        assert held < 8_000_000


def test_an_interrupt_that_comes_as_a_call_begins_to_wait_is_not_lost() -> None:
    """The signal alone would not end that call: no state is lost for it, however often it happens."""
    fault = next(one for one in FAULTS if (one.name, one.language) == ("hang", "python"))
    with marked() as given:
        for _ in range(60):
            ran, seconds = stop_at(given.computer, "python", fault.code)
            assert (ran.status, ran.execution.state_lost) == ("interrupted", False)
            assert seconds < fault.seconds
