"""A computer that is lost without being closed, in whatever way: nothing hangs, and nothing of it is left."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from streamkit.computer import Computer

from .running import HELLO, LANGUAGES, TracedComputer, in_thread, language, run
from .test_computer import ROOT

ENDLESS = {
    "python": "print('ready')\nwhile True: pass",
    "shell": "echo ready; sleep 600",
    "javascript": "console.log('ready'); while (true) {}",
}
CHATTY = {"python": "while True: print('x' * 99)", "shell": "yes", "javascript": "while (true) console.log('x')"}


def new_computer(mark: str) -> Computer:
    return Computer(env={**os.environ, "STREAMKIT_TEST": mark})


def read_one(execution: Any) -> None:
    for event in execution:
        if event.type == "console_delta":
            break


def use(mark: str, name: str) -> None:
    assert run(new_computer(mark), name, HELLO[name]).status == "completed"


def drop_in_exception(mark: str, name: str) -> None:
    def work() -> None:
        computer = new_computer(mark)
        run(computer, name, HELLO[name])
        raise LookupError

    with contextlib.suppress(LookupError):
        work()


def drop_in_cycle(mark: str, name: str) -> None:
    computer: Any = new_computer(mark)
    run(computer, name, HELLO[name])
    computer.itself = computer


def drop_in_thread(mark: str, name: str) -> None:
    in_thread(lambda: use(mark, name)).join()


def drop_while_it_starts(mark: str, name: str) -> None:
    new_computer(mark).start(name)


def drop_in_a_run(mark: str, name: str) -> None:
    read_one(new_computer(mark).run(name, ENDLESS[name]))


def drop_in_a_run_that_nobody_reads(mark: str, name: str) -> None:
    read_one(new_computer(mark).run(name, CHATTY[name]))


def drop_with_processes_left_behind(mark: str, name: str) -> None:
    leave = {
        "python": "import subprocess\nsubprocess.Popen(['setsid', 'sleep', '600']);",
        "shell": "setsid sleep 600 & sleep 600 &",
        "javascript": "require('child_process').spawn('sleep', ['600'], { detached: true, stdio: 'ignore' }).unref(); 0",
    }
    assert run(new_computer(mark), name, leave[name]).status == "completed"


WAYS = [
    # How the last reference goes is the same for each language.
    language("shell", drop_in_exception, id="shell-drop_in_exception"),
    language("shell", drop_in_cycle, id="shell-drop_in_cycle"),
    language("shell", drop_in_thread, id="shell-drop_in_thread"),
    *(language(name, use, id=f"{name}-use") for name in HELLO),
    language("python", drop_while_it_starts, id="python-drop_while_it_starts"),
    language("javascript", drop_while_it_starts, id="javascript-drop_while_it_starts"),
    language("shell", drop_in_a_run, id="shell-drop_in_a_run"),
    language("python", drop_in_a_run, id="python-drop_in_a_run"),
    language("javascript", drop_in_a_run_that_nobody_reads, id="javascript-drop_in_a_run_that_nobody_reads"),
    language("shell", drop_with_processes_left_behind, id="shell-drop_with_processes_left_behind"),
    language("python", drop_with_processes_left_behind, id="python-drop_with_processes_left_behind"),
]


def of_streamkit() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamkit")]


def await_nothing_left(mark: str, descriptors: int) -> None:
    """Fails after 20 seconds; a computer that is closed is gone much sooner."""
    traced = TracedComputer()
    traced.mark = mark
    deadline = time.monotonic() + 20
    while True:
        gc.collect()
        left = (traced.processes(), of_streamkit(), max(0, len(os.listdir("/dev/fd")) - descriptors))
        if left == ([], [], 0):
            return
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_nothing_is_left_of_a_computer_that_nobody_refers_to(name: str, way: Callable[[str, str], None]) -> None:
    """No process, thread or descriptor, whatever it was doing."""
    gc.collect()
    descriptors, mark = len(os.listdir("/dev/fd")), uuid.uuid4().hex
    way(mark, name)
    await_nothing_left(mark, descriptors)


@pytest.mark.slow
@pytest.mark.parametrize("count", [pytest.param(int(os.environ.get("STREAMKIT_COMPUTERS", "2")))])
def test_many_computers_can_be_dropped(count: int) -> None:
    """Each used in every language, one after the other."""
    gc.collect()
    descriptors, mark = len(os.listdir("/dev/fd")), uuid.uuid4().hex
    for _ in range(count):
        computer = new_computer(mark)
        for parameters in LANGUAGES:
            (name,) = parameters.values
            if not parameters.marks[0].args[0]:
                run(computer, str(name), HELLO[str(name)])
        del computer
    await_nothing_left(mark, descriptors)


def test_a_computer_lives_for_as_long_as_one_of_its_runs_is_read() -> None:
    """Its last reference may be that of the run."""
    execution = Computer().run("python", "for i in range(3): print(i)")
    gc.collect()
    assert "".join(event.value for event in execution if event.type == "console_delta") == "0\n1\n2\n"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_a_run_that_nobody_refers_to_is_stopped(name: str) -> None:
    """The computer can run the language again."""
    with Computer() as computer:
        read_one(computer.run(name, ENDLESS[name]))
        gc.collect()
        deadline = time.monotonic() + 20
        while computer._running._runs:  # pyright: ignore[reportPrivateUsage]
            assert time.monotonic() < deadline
        assert run(computer, name, HELLO[name]).text == "hello\n"


FORK = """
import os, signal, sys, time
import streamkit as sk
from streamkit.computer import Computer
computer = Computer()
for language, code in {"python": "x = 5", "shell": "x=5"}.items():
    for _ in computer.run(language, code): pass
running = computer.run("javascript", "console.log('ready'); await new Promise(() => {})")
next(iter(running))
child = os.fork()
if child == 0:
    running.close()
    computer.close()
    try:
        computer.run("python", "1")
    except sk.UsageError as error:
        print("fork" in str(error), flush=True)
    with Computer() as another:
        for event in another.run("shell", "echo another"):
            if event.type == "console_delta": print(event.value, end="", flush=True)
    del computer, running
    if sys.argv[1] == "stays":
        print("stays", flush=True)
        time.sleep(600)
    sys.exit(0)
if sys.argv[1] == "stays":
    time.sleep(600)
os.waitpid(child, 0)
for language, code in {"python": "print(x)", "shell": "echo $x"}.items():
    for event in computer.run(language, code):
        if event.type == "console_delta": print(event.value, end="")
print(running.status)
"""


def program(mark: str, how: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STREAMKIT_TEST": mark, "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen([sys.executable, "-c", FORK, how], env=environment, stdout=subprocess.PIPE)


@pytest.mark.parametrize(("name",), [language("javascript")])
def test_a_fork_ends_nothing_of_its_parents_computer(name: str) -> None:
    """Neither by closing, nor by dropping, nor by its end; it can make one of its own."""
    with program(uuid.uuid4().hex, "goes") as process:
        assert process.communicate(timeout=300)[0] == b"True\nanother\n5\n5\nrunning\n"


@pytest.mark.parametrize(("name",), [language("javascript")])
def test_a_fork_keeps_no_process_alive_after_its_parent_was_killed(name: str) -> None:
    """It holds none of the pipes."""
    traced = TracedComputer()
    with program(traced.mark, "stays") as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(3)] == [b"True\n", b"another\n", b"stays\n"]
        process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 20
        while len(traced.processes()) > 1:  # the fork itself
            assert time.monotonic() < deadline, traced.processes()
        traced.kill()
