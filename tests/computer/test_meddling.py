"""What breaks the runner itself, by code or from outside: it is reported, and the next run works."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.computer import Computer

from .running import HELLO, LANGUAGES, Ran, language, run, traced_computer


@pytest.fixture(scope="module")
def one() -> Iterator[Computer]:
    """One for what breaks nothing."""
    with traced_computer() as traced:
        yield traced.computer


MUTE = [
    language("python", "import sys\ndel sys.stdout; sys.stderr = None", id="python: no console"),
    language("python", "import sys, io\nsys.stdout = io.StringIO()", id="python: console replaced"),
    language("python", "import json, os, sys, threading\nthreading.Event = os.write = json.dumps = None\ndel sys._current_frames", id="python: what the kernel imports"),
    language("python", "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (3, 3))", id="python: no descriptors"),
    language("python", "import os\nos.closerange(3, 300)", id="python: channel closed"),
    language("python", "import builtins\nbuiltins.__dict__.clear()", id="python: builtins"),
    language("python", "import asyncio\nasyncio.get_event_loop().stop()", id="python: loop stopped"),
    language("javascript", "globalThis.process = undefined", id="javascript: process"),
    language("javascript", "Promise = Atomics = Buffer = Map = setTimeout = setImmediate = null", id="javascript: globals"),
    language("javascript", "require('fs').writeSync = () => 0; 0", id="javascript: fs"),
    language("javascript", "process.stdout.destroy(); 0", id="javascript: console destroyed"),
    language("shell", "for n in {3..14}; do eval \"exec $n>&-\"; done", id="shell: channel closed"),
    language("shell", "function . { echo no; }", id="shell: replaces source"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "code"), MUTE)
def test_code_that_breaks_its_process_does_not_silence_the_next_run(name: str, code: str) -> None:
    """The next run prints; if it needed a new process, its console says so."""
    with traced_computer(timeout=10) as traced:
        first = run(traced.computer, name, code)
        assert first.status != "timed_out"
        again = run(traced.computer, name, HELLO[name])
        assert (again.text.endswith("hello\n"), again.status) == (True, "completed"), again.text
        assert again.execution.state_lost == ("are lost" in again.text)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("import sys, io\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\nprint('held', end='')", "print('mine')", "held"),
        ("import sys\nsys.stdout.reconfigure(encoding='utf-8', line_buffering=True)\nprint('ä')", "print('mine')", "ä\n"),
        ("print('a')\nexit(3)\nprint('never')", "print('mine')", "a\nSystemExit: 3\n"),
    ],
)  # fmt: skip
def test_what_a_script_does_with_its_console_does_not_affect_the_next_run(
    first: str, second: str, text: str, one: Computer
) -> None:
    """Wrapped, reconfigured, or left by `exit`."""
    assert run(one, "python", first).text == text
    assert run(one, "python", second).text == "mine\n"


def test_a_thread_of_the_low_level_module_prints_into_its_own_run(one: Computer) -> None:
    """A thread that `_thread` started."""
    code = (
        "import _thread, threading\ngo, printed = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait()\n    print('late')\n    printed.set()\n"
        "_thread.start_new_thread(late, ());"
    )
    run(one, "python", code)
    assert run(one, "python", "go.set()\nprinted.wait()\nprint('mine')").text == "mine\n"


def test_the_help_of_ipython_is_printed(one: Computer) -> None:
    """Other front ends show it beside the code."""
    assert "Docstring:" in run(one, "python", "print?").text


def test_a_users_file_does_not_shadow_what_the_kernel_needs(tmp_path: Path) -> None:
    """The code itself can import it."""
    for name in ("queue", "logging", "random", "channel"):
        (tmp_path / f"{name}.py").write_text("mine = True")
    with traced_computer(cwd=tmp_path) as traced:
        assert run(traced.computer, "python", "import channel\nprint(channel.mine)").text == "True\n"


@pytest.mark.parametrize(("name", "variable"), [language("shell", "PYTHONPATH"), language("javascript", "PYTHONHOME")])
def test_settings_of_python_for_code_do_not_affect_what_runs_above_it(name: str, variable: str, tmp_path: Path) -> None:
    """They are those of the Python that a script starts."""
    (tmp_path / "contextlib.py").write_text("raise SystemExit('mine')")
    with traced_computer(env={variable: str(tmp_path)}) as traced:
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


def test_a_program_finds_no_arguments_but_its_own(one: Computer) -> None:
    """As `argparse` reads them."""
    code = "import argparse\nprint(argparse.ArgumentParser().parse_args())"
    assert run(one, "python", code).text == "Namespace()\n"


def test_a_display_of_many_megabytes_is_fast() -> None:
    """Its parts are joined once."""
    code = "from IPython.display import display\ndisplay({'text/html': 'x' * 20_000_000}, raw=True)"
    with traced_computer(timeout=10, output_limit=None) as traced:
        messages = sk.stream(traced.computer.run("python", code)).get_final_messages()
        assert [len(message.content or "") for message in messages if message.format == "html"] == [20_000_000]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        language("javascript", "(async () => { throw new Error('late') })(); 5", "Error: late", id="rejection"),
        language("javascript", "await import('node:fs')", "loaded with `require`", id="import()"),
        language("javascript", "import fs from 'fs'", "loaded with `require`", id="import"),
    ],
)
def test_errors_of_javascript_outside_the_script_itself_fail_the_run(
    name: str, code: str, words: str, one: Computer
) -> None:
    """An unhandled rejection; loading a module, with a hint what to write instead."""
    ran = run(one, name, code)
    assert (ran.status, words in ran.text) == ("failed", True), ran.text


@pytest.mark.parametrize(("name",), [language("shell")])
def test_a_script_with_the_line_ends_of_windows_runs(name: str, one: Computer) -> None:
    """As it would if it were pasted into a terminal."""
    assert run(one, name, "if true; then\r\n  echo yes\r\nfi\r\n").text == "yes\n"


# -- from outside


def process_of(computer: Computer, name: str) -> int:
    pid = computer._runners[name].pid  # pyright: ignore[reportPrivateUsage]
    assert pid is not None
    return pid


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_the_end_of_a_process_between_two_runs_is_reported(name: str) -> None:
    """For the code may rely on the lost state."""
    with traced_computer() as traced:
        run(traced.computer, name, HELLO[name])
        os.kill(process_of(traced.computer, name), signal.SIGKILL)
        ran = run(traced.computer, name, HELLO[name])
        note = f"[after the last run the {name} process was killed by signal 9; its variables and state are lost]"
        assert (ran.text, ran.status, ran.execution.state_lost) == (f"{note}\nhello\n", "completed", True)
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_a_stopped_process_does_not_block_its_runner(name: str) -> None:
    """Even if the code is longer than its pipes can hold."""
    with traced_computer() as traced:
        run(traced.computer, name, HELLO[name])
        os.kill(process_of(traced.computer, name), signal.SIGSTOP)
        ran = run(traced.computer, name, ("//" if name == "javascript" else "#") + "x" * 1_000_000, timeout=0.3)
        assert (ran.status, ran.execution.state_lost) == ("timed_out", True)
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_a_directory_that_is_removed_under_a_process_costs_it_its_state(name: str) -> None:
    """The console says so; no error of the system is raised."""
    with traced_computer() as traced:
        run(traced.computer, name, HELLO[name])
        shutil.rmtree(traced.computer._runners[name].directory)  # pyright: ignore[reportPrivateUsage]
        ran = run(traced.computer, name, HELLO[name])
        assert (ran.status, ran.execution.state_lost, "could not be handed" in ran.text) == ("failed", True, True)
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_a_missing_directory_for_temporary_files_fails_the_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run works once there is one."""
    with traced_computer() as traced:
        with monkeypatch.context() as patched:
            patched.setattr(tempfile, "tempdir", "/streamkit-has-no-such-directory")
            ran = run(traced.computer, name, HELLO[name])
            assert (ran.status, "could not be started" in ran.text) == ("failed", True)
        assert run(traced.computer, name, HELLO[name]).text == "hello\n"


@pytest.mark.parametrize(("name",), [language("shell")])
def test_a_script_that_cannot_be_written_keeps_the_state(name: str) -> None:
    """The process is not affected."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with traced_computer() as traced:
        assert run(traced.computer, name, "x=5").text == ""
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            ran = run(traced.computer, name, "#" + "x" * 200_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (ran.status, ran.execution.state_lost, "File too large" in ran.text) == ("failed", False, True)
        assert run(traced.computer, name, "echo $x").text == "5\n"


@pytest.mark.parametrize(("name",), [language("shell"), language("javascript")])
def test_a_program_that_is_not_on_the_path_fails_the_run(name: str) -> None:
    """By its name."""
    with Computer(env={"PATH": "/streamkit-has-no-such-directory"}) as computer:
        ran = run(computer, name, HELLO[name])
        assert (ran.status, "No such file or directory" in ran.text) == ("failed", True)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the console, for a model reads it."""
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == "IPython"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path_importer_cache", {})
    with Computer() as computer:
        ran = run(computer, "python", "1")
    assert (ran.status, ran.text) == ("failed", 'python needs ipython: pip install "streamkit-sdk[computer]"')


# In a process of its own: threads that earlier tests left behind open and close descriptors.
FAILED_STARTS = """
import os, sys, tempfile
from streamkit.computer import Computer

name, tempfile.tempdir = sys.argv[1:]
with Computer(cwd=os.path.join(tempfile.tempdir, "nowhere")) as computer:
    for _ in range(5):
        execution = computer.run(name, "1")
        for chunk in execution:
            pass
        print(execution.status, len(os.listdir("/dev/fd")), os.listdir(tempfile.tempdir))
"""


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_nothing_is_left_open_after_runs_that_fail_to_start(name: str, tmp_path: Path) -> None:
    """No descriptor, and no directory."""
    command = [sys.executable, "-c", FAILED_STARTS, name, str(tmp_path)]
    runs = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    assert len(runs) == 5
    assert runs[0].startswith("failed ")
    assert runs[0].endswith(" []")
    assert {*runs} == {runs[0]}


# In a process of its own: other computers have late output, too.
LATE = """
import threading, time
from streamkit.computer import Computer

def is_read():
    return any(thread.name == "streamkit-discard" for thread in threading.enumerate())

with Computer() as computer:
    for _ in computer.run("shell", "sleep 600 &"):
        pass
    print(is_read())
deadline = time.monotonic() + 20
while is_read() and time.monotonic() < deadline:
    time.sleep(0.01)
print(is_read())
"""


def test_the_thread_that_reads_late_output_ends_with_it() -> None:
    """Nothing of a computer is left once it is closed."""
    command = [sys.executable, "-c", LATE]
    assert subprocess.run(command, capture_output=True, text=True, timeout=300).stdout == "True\nFalse\n"


# -- who reads, and who answers


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_reading_can_go_on_after_a_cancellation(backend: str) -> None:
    """What the thread of the cancelled task had received comes first."""
    received: list[str] = []

    async def read(execution: Any) -> None:
        async for event in execution:
            if isinstance(event, sk.ConsoleDelta):
                received.append(event.value)

    async def main(execution: Any) -> None:
        for seconds in (0.15, 0.1, 60):
            with anyio.move_on_after(seconds):
                await read(execution)

    with traced_computer() as traced:
        execution = traced.computer.run("python", "import time\nfor i in range(4):\n    time.sleep(0.1)\n    print(i)")
        anyio.run(main, execution, backend=backend)
        assert ("".join(received), execution.status) == ("0\n1\n2\n3\n", "completed")


def test_the_reader_of_a_run_that_another_thread_closes_sees_its_status() -> None:
    """Its loop ends after the run."""
    with traced_computer() as traced:
        execution = traced.computer.run("python", "print('ready')\nwhile True: pass")
        threads: list[threading.Thread] = []
        for event in execution:
            if isinstance(event, sk.ConsoleDelta) and not threads:
                threads.append(threading.Thread(target=execution.close))
                threads[0].start()
        assert execution.status == "interrupted"
        threads[0].join()


def test_an_exit_in_the_input_callback_does_not_leave_the_code_waiting() -> None:
    """The code gets EOFError, and the reader the exit."""

    def leave(prompt: str) -> str:
        raise SystemExit(3)

    with traced_computer(timeout=10, input=leave) as traced:
        execution = traced.computer.run("python", "input()")
        with pytest.raises(SystemExit):
            Ran(execution)
        assert execution.status == "failed"
