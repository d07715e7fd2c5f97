"""An interrupt in each state that a language's process can be in: the run ends, its state stays, and nothing of it is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from .running import HELLO, Ran, TracedComputer, language, run, stop_at, traced_computer

SET = {"python": "x = 5", "shell": "set +e; x=5", "javascript": "var x = 5"}
GET = {"python": "print(x)", "shell": "echo $x", "javascript": "console.log(x)"}


class State(NamedTuple):
    """What code does when it is interrupted, which is as soon as it printed `ready`."""

    name: str
    language: str
    code: str


IN_CODE = [
    State("computes", "python", "print('ready')\nwhile True: pass"),
    State("computes in C", "python", "print('ready')\nsum(i for i in iter(int, 1))"),
    State("sleeps", "python", "import time\nprint('ready')\ntime.sleep(60)"),
    State("waits for a lock", "python", "import threading\nprint('ready')\nthreading.Event().wait()"),
    State("waits for a thread", "python", "import threading, time\nt = threading.Thread(target=time.sleep, args=[60], daemon=True)\nt.start()\nprint('ready')\nt.join()"),
    State("waits for a child", "python", "import subprocess\nsubprocess.run('echo ready; sleep 60', shell=True)"),
    State("waits for a child that hides", "python", "import subprocess\nsubprocess.run('echo ready; env -i setsid -w sleep 60', shell=True)"),
    State("waits for a pipe", "python", "import os\nr, w = os.pipe()\nprint('ready')\nos.read(r, 1)"),
    State("awaits", "python", "import asyncio\nprint('ready')\nawait asyncio.sleep(60)"),
    State("awaits a child", "python", "import asyncio\np = await asyncio.create_subprocess_shell('echo ready; sleep 60')\nawait p.wait()"),
    State("runs a loop of its own", "python", "import asyncio\nasync def main():\n    print('ready')\n    await asyncio.sleep(60)\nasyncio.run(main())"),
    State("prints", "python", "while True: print('ready')"),
    State("displays", "python", "from IPython.display import display\nprint('ready')\nwhile True: display({'text/html': 'x'}, raw=True)"),
    State("shows its value", "python", "import time\nclass Slow:\n    def __repr__(self):\n        print('ready')\n        time.sleep(60)\nSlow()"),
    State("cleans up", "python", "import time\ntry:\n    1/0\nfinally:\n    print('ready')\n    time.sleep(60)"),
    State("runs a magic", "python", "%%time\nimport time\nprint('ready')\ntime.sleep(60)"),
    State("runs a command", "python", "!echo ready; sleep 60"),
    State("forks", "python", "import os, time\nif os.fork() == 0:\n    time.sleep(60)\nprint('ready')\nos.wait()"),
    State("imports", "python", "import sys, time\nclass Finder:\n    def find_spec(self, name, *rest):\n        if name == 'slow_module':\n            print('ready')\n            time.sleep(60)\nsys.meta_path.insert(0, Finder())\nimport slow_module"),
    State("computes", "shell", "echo ready; while :; do :; done"),
    State("runs a program", "shell", "echo ready; sleep 60"),
    State("runs a program that hides", "shell", "echo ready; env -i setsid -w sleep 60"),
    State("runs a pipeline", "shell", "echo ready; sleep 60 | cat | cat"),
    State("runs a subshell", "shell", "(echo ready; sleep 60; true)"),
    State("substitutes a command", "shell", "echo ready; y=$(sleep 60)"),
    State("waits", "shell", "sleep 60 & echo ready; wait"),
    State("reads", "shell", "echo ready; read y < <(sleep 60)"),
    State("runs a function", "shell", "f() { echo ready; sleep 60; }; f"),
    State("ends at errors", "shell", "set -e; echo ready; sleep 60"),
    State("traps its end", "shell", "(trap 'sleep 0.1' EXIT; echo ready; sleep 60)"),
    State("prints", "shell", "yes ready"),
    State("computes", "javascript", "console.log('ready'); while (true) {}"),
    State("awaits", "javascript", "console.log('ready'); await new Promise(() => {})"),
    State("has a timer", "javascript", "console.log('ready'); setTimeout(() => {}, 60000); 0"),
    State("waits for a child", "javascript", "console.log('ready'); require('child_process').execSync('sleep 60')"),
    State("has a child", "javascript", "require('child_process').spawn('sh', ['-c', 'echo ready; sleep 60'], { stdio: 'inherit' }); 0"),
    State("has a child that hides", "javascript", "require('child_process').spawn('env', ['-i', 'setsid', 'sh', '-c', 'echo ready; sleep 60'], { stdio: 'inherit' }); 0"),
    State("has a thread", "javascript", "new (require('worker_threads').Worker)('console.log(`ready`); for (;;);', { eval: true }); 0"),
    State("prints", "javascript", "while (true) console.log('ready')"),
]  # fmt: skip


@pytest.fixture(scope="module")
def one() -> Iterator[TracedComputer]:
    """One for all states, as no interrupt ends a process."""
    with traced_computer() as traced:
        yield traced


@pytest.mark.parametrize(
    ("name", "code"), [language(state.language, state.code, id=f"{state.language} {state.name}") for state in IN_CODE]
)
def test_code_can_be_interrupted_whatever_it_does(
    name: str, code: str, one: TracedComputer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine may need more than a second for it, so the kill is far away here."""
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 30.0)
    run(one.computer, name, SET[name])
    ran, _ = stop_at(one.computer, name, code)
    assert (ran.status, ran.execution.state_lost) == ("interrupted", False), ran.text[-2000:]
    assert ran.text.endswith("KeyboardInterrupt")
    assert [line for line in one.processes() if "sleep 60" in line] == []
    assert run(one.computer, name, GET[name]).text == "5\n"


@pytest.mark.parametrize(("name",), [language("shell")])
def test_a_shell_that_answers_slowly_can_be_interrupted(name: str, monkeypatch: Any) -> None:
    """It needs longer for each line than until the next interrupt, as on a busy machine."""
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 40.0)
    with traced_computer() as traced:
        run(traced.computer, name, "PROMPT_COMMAND='sleep 0.2'; x=5")
        ran, _ = stop_at(traced.computer, name, "echo ready; sleep 60")
        assert (ran.status, ran.execution.state_lost) == ("interrupted", False), ran.text[-2000:]
        assert run(traced.computer, name, GET[name]).text == "5\n"


LANGUAGES = [language(name) for name in SET]


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_a_process_that_starts_can_be_interrupted(name: str) -> None:
    """No code has run then. The next run works."""
    with traced_computer() as traced:
        execution = traced.computer.run(name, HELLO[name])
        threading.Timer(0.02, execution.interrupt).start()
        assert Ran(execution).status in ("interrupted", "completed")  # the latter on a fast machine
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_an_interrupt_between_two_runs_affects_neither(name: str) -> None:
    """The run that it was meant for is over."""
    with traced_computer() as traced:
        for _ in range(5):
            ran = run(traced.computer, name, SET[name].replace("let ", ""))
            ran.execution.interrupt()
            assert (ran.status, run(traced.computer, name, GET[name]).text) == ("completed", "5\n")


@pytest.mark.slow
@pytest.mark.parametrize(("name",), LANGUAGES)
def test_an_interrupt_at_the_end_of_the_code_leaves_the_next_run_alone(name: str, monkeypatch: Any) -> None:
    """It comes at 16 moments around that end."""
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 30.0)
    with traced_computer() as traced:
        run(traced.computer, name, SET[name])
        for number in range(16):
            execution = traced.computer.run(name, HELLO[name])
            threading.Timer(number * 0.00025, execution.interrupt).start()
            ran = Ran(execution)
            assert ran.status in ("interrupted", "completed")
            assert not ran.execution.state_lost, ran.text
            assert run(traced.computer, name, GET[name]).text == "5\n"


@pytest.mark.parametrize("wait", [0.0, 0.2])
def test_code_that_waits_for_its_input_can_be_interrupted(wait: float) -> None:
    """Nobody answers."""
    asked, over = threading.Event(), threading.Event()

    def answer(prompt: str) -> str:
        asked.set()
        over.wait(10)
        return ""

    with traced_computer(input=answer) as traced:
        run(traced.computer, "python", "x = 5")
        execution = traced.computer.run("python", "input('name? ')")

        def interrupt() -> None:
            assert asked.wait(30)
            time.sleep(wait)
            execution.interrupt()

        threading.Thread(target=interrupt).start()
        ran = Ran(execution)
        assert (ran.status, ran.execution.state_lost) == ("interrupted", False), ran.text
        assert run(traced.computer, "python", "print(x)").text == "5\n"
    over.set()
