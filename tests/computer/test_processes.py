"""The processes that code starts: whatever they do to hide, they end with their run or with the computer, in bounded time.

No test here starts more than 256 processes, and each of these ends by itself after a minute (`hiding.py`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamkit.computer import Computer
from streamkit.computer.processes import descendants

from ..server.parts import wait_for
from . import hiding
from .running import Ran, language, run, traced_computer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process can get lost, as the guide says")

LEAVING = ["double fork", "double fork in the session", "parents leave"]


class Hidden:
    """Processes that hide: how to start them, and which of them live."""

    def __init__(self, place: Path) -> None:
        self.token = f"hidden-{uuid.uuid4().hex}"
        self.place = place / self.token
        self.place.mkdir()

    def command(self, way: str, count: int = 1, *, environment: bool = False) -> list[str]:
        """The command line that starts them, with the environment of the code or with an empty one."""
        program = [sys.executable, "-S", hiding.__file__, way, str(count), self.token, str(self.place)]
        return [*(() if environment else ("env", "-i")), *program]

    def started_in(self, name: str, command: list[str], count: int = 1) -> str:
        """Code that starts them, prints `ready` once so many are in place, and goes on for a minute."""
        if name == "python":
            return (
                f"import os, subprocess, time\nsubprocess.Popen({command})\n"
                f"while len(os.listdir({str(self.place)!r})) < {count}: time.sleep(0.02)\n"
                "print('ready')\ntime.sleep(60)"
            )
        if name == "shell":
            return (
                f"shopt -s nullglob; {shlex.join(command)} & files=()\n"
                f"while [ ${{#files[@]}} -lt {count} ]; do sleep 0.05; files=({self.place}/*); done; echo ready; sleep 60"
            )
        return (
            f"require('child_process').spawn({command[0]!r}, {command[1:]}, {{ stdio: 'ignore' }}).unref();"
            f"while (require('fs').readdirSync({str(self.place)!r}).length < {count}) "
            "await new Promise((done) => setTimeout(done, 20)); console.log('ready'); setTimeout(() => {}, 60000); 0"
        )

    def alive(self) -> list[int]:
        """The ids of those that live. One whose main thread has ended has no command line, but a name and threads."""
        found: list[int] = []
        for name in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if name.isdigit() and self.token.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
        for path in self.place.iterdir():
            with contextlib.suppress(OSError):
                if len(os.listdir(f"/proc/{path.name}/task")) > 1:
                    found.append(int(path.name))
        return found

    def await_end(self, seconds: float = 0) -> None:
        """Fail unless none lives; where nothing waits for their end, so many seconds from now."""
        deadline = time.monotonic() + seconds
        while alive := self.alive():
            assert time.monotonic() < deadline, alive
            time.sleep(0.01)


@pytest.fixture
def hidden(tmp_path: Path) -> Iterator[Hidden]:
    one = Hidden(tmp_path)
    yield one
    for pid in one.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def close(computer: Computer, name: str, code: str) -> str:
    execution = computer.run(name, code)
    for event in execution:
        if event.type == "console_delta":
            break
    computer.close()
    return execution.status


def interrupt(computer: Computer, name: str, code: str) -> str:
    return Ran(computer.run(name, code), lambda execution, text: execution.interrupt()).status


def time_out(computer: Computer, name: str, code: str) -> str:
    return run(computer, name, code, timeout=0.7).status


ENDS = {"close": (close, "interrupted"), "interrupt": (interrupt, "interrupted"), "timeout": (time_out, "timed_out")}
# Each way once, and each end after three of them; the end of the run kills what it finds, the closing has its reaper do so.
# What the reaper finds after each way is below. Two ways with the environment of the code, by which a process is not found.
CASES = [
    language("shell", way, place in (2, 5), [*ENDS][place % 3], id=f"shell, {way}: {[*ENDS][place % 3]}")
    for place, way in enumerate(hiding.WAYS)
] + [
    language("shell", "deaf", False, "interrupt", id="shell, deaf: interrupt"),
    language("python", "triple fork", False, "interrupt", id="python, triple fork: interrupt"),
    language("javascript", "triple fork", False, "timeout", id="javascript, triple fork: timeout"),
]


@pytest.mark.parametrize(("name", "way", "environment", "end"), CASES)
def test_no_process_outlives_the_end_of_its_run(
    name: str, way: str, environment: bool, end: str, hidden: Hidden
) -> None:
    """Whatever it did: when the run, or the closing, has ended, so has the process."""
    act, status = ENDS[end]
    with traced_computer() as traced:
        command = hidden.command(way, environment=environment)
        assert act(traced.computer, name, hidden.started_in(name, command)) == status
        hidden.await_end()


@pytest.mark.parametrize(
    "command", ["env -i setsid", "env -i setsid setsid -f", "env -i bash -c '(setsid \"$@\" &) &' -"]
)
def test_programs_that_hide_others_hide_none(command: str, hidden: Hidden) -> None:
    """The ways to do it in one line."""
    with traced_computer() as traced:
        code = hidden.started_in("shell", [*shlex.split(command), *hidden.command("stays")])
        assert run(traced.computer, "shell", code, timeout=0.7).status == "timed_out"
        hidden.await_end()


@pytest.mark.parametrize("way", hiding.WAYS)
def test_what_a_completed_run_left_hidden_ends_with_the_computer(way: str, hidden: Hidden) -> None:
    """It lives until then, as a server does."""
    with traced_computer() as traced:
        code = hidden.started_in("shell", hidden.command(way)).removesuffix("sleep 60")
        assert run(traced.computer, "shell", code).status == "completed"
        assert run(traced.computer, "shell", "sleep 0.1; echo on").text == "on\n"
        wait_for(lambda: len(hidden.alive()) == 1)  # those that started it may end late
    hidden.await_end()


@pytest.mark.parametrize("way", LEAVING)
def test_hidden_processes_count(way: str, hidden: Hidden) -> None:
    """For the limit: five of them, beside bash, its child, and what starts them, which has three at most."""
    with traced_computer(process_limit=6, timeout=30) as traced:
        code = hidden.started_in("shell", hidden.command(way, 5), 5)
        ran = run(traced.computer, "shell", code)
        assert (ran.status, ran.execution.state_lost, "process limit" in ran.text) == ("limit", True, True)
        hidden.await_end()


def test_an_interrupt_keeps_the_state_while_it_ends_what_hides(hidden: Hidden) -> None:
    """And what an earlier run left behind."""
    with traced_computer() as traced:
        run(traced.computer, "shell", "x=5; sleep 50 &")
        assert (
            interrupt(traced.computer, "shell", hidden.started_in("shell", hidden.command("triple fork")))
            == "interrupted"
        )
        assert run(traced.computer, "shell", "echo $x; jobs -r | wc -l").text == "5\n1\n"


@pytest.mark.parametrize("name", ["os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_what_hides_ends_with_a_process_that_ends(name: str, hidden: Hidden) -> None:
    """The process above all of them does not end with it."""
    code = hidden.started_in("python", hidden.command("triple fork")).replace("time.sleep(60)", name)
    with traced_computer() as traced:
        assert run(traced.computer, "python", code).status == "died"
        hidden.await_end()


@pytest.mark.parametrize(("number", "status"), [("KILL", "died"), ("STOP", "completed"), ("TERM", "completed")])
def test_code_may_send_any_signal_to_the_process_above_its_own(number: str, status: str) -> None:
    """Killing that ends the language's process, stopping or terminating it does nothing. The next run works."""
    with traced_computer(timeout=20) as traced:
        assert run(traced.computer, "shell", f"kill -{number} $PPID; sleep 0.5").status == status
        assert run(traced.computer, "shell", "echo on").text.endswith("on\n")


# -- systems without lists of children


def test_where_no_process_inherits_orphans_those_of_the_session_are_found(hidden: Hidden, monkeypatch: Any) -> None:
    """One that lost its parents and left the session as well is not, as the guide says."""
    monkeypatch.setattr("streamkit.computer.processes.LISTS_CHILDREN", False)
    start = (
        f"exec {shlex.join(hidden.command(way))}" for way in ("double fork in the session", "double fork", "stays")
    )
    with subprocess.Popen(
        ["sh", "-c", f"({next(start)}); ({next(start)}); {next(start)}"], start_new_session=True
    ) as one:
        try:
            while len(pids := [int(path.name) for path in hidden.place.iterdir()]) < 3:
                time.sleep(0.01)
            orphans = [
                psutil.Process(pid) for pid in pids if os.getpgid(pid) != one.pid or psutil.Process(pid).ppid() == 1
            ]
            if any(orphan.ppid() != 1 for orphan in orphans):
                pytest.skip("here another process than the first inherits orphans")
            found = {process.pid for process in descendants(os.getpid())}
            assert {pid: pid in found for pid in pids} == {pid: os.getsid(pid) == one.pid for pid in pids}
        finally:
            for pid in (one.pid, *hidden.alive()):
                os.kill(pid, 9)


@pytest.mark.parametrize(("name",), [language("shell")])
def test_all_processes_are_looked_at_where_none_lists_its_children(name: str, hidden: Hidden, monkeypatch: Any) -> None:
    """They are found as well, at another price."""
    monkeypatch.setattr("streamkit.computer.processes.LISTS_CHILDREN", False)
    monkeypatch.setattr("streamkit.computer.stopping.GRACE", 30.0)  # on a busy machine a look takes its time
    with traced_computer(timeout=60, process_limit=50) as traced:
        assert run(traced.computer, name, {"shell": "x=5", "python": "x = 5"}[name]).status == "completed"
        command = hidden.command("triple fork")
        assert interrupt(traced.computer, name, hidden.started_in(name, command)) == "interrupted"
        hidden.await_end()
        assert run(traced.computer, name, {"shell": "echo $x", "python": "print(x)"}[name]).text == "5\n"


# -- processes that multiply


BOMBS = [pytest.param("tree", 6, id="tree of 64"), pytest.param("chains", 8, id="8 chains of 30")]


@pytest.mark.parametrize(("way", "count"), BOMBS)
@pytest.mark.parametrize("limit", ["process_limit", "timeout"])
def test_processes_that_multiply_are_stopped(way: str, count: int, limit: str, hidden: Hidden) -> None:
    """Although each has a session of its own, and an empty environment."""
    options: dict[str, Any] = {"process_limit": 6, "timeout": 60} if limit == "process_limit" else {"timeout": 0.7}
    with traced_computer(**options) as traced:
        ran = run(traced.computer, "shell", f"{shlex.join(hidden.command(way, count))}; sleep 60")
        assert ran.status == ("limit" if limit == "process_limit" else "timed_out")
        hidden.await_end()
        assert run(traced.computer, "shell", "echo on").text.endswith("on\n")


def test_processes_that_multiply_after_their_run_are_stopped(hidden: Hidden) -> None:
    """The next run says why the state is lost."""
    with traced_computer(process_limit=20) as traced:
        run(traced.computer, "shell", f"{shlex.join(hidden.command('tree', 7))} &")
        deadline = time.monotonic() + 40
        while not any(hidden.place.iterdir()):  # it has begun
            assert time.monotonic() < deadline
        hidden.await_end(20)
        ran = run(traced.computer, "shell", "echo on")
        assert "[after the last run the shell process was stopped because it had more than 20 processes; " in ran.text
        assert ran.text.endswith("on\n")
        assert ran.execution.state_lost


def test_watching_processes_takes_a_small_share_of_the_time(hidden: Hidden) -> None:
    """Also where there are many: here 128, in a run of two seconds."""
    with traced_computer(process_limit=1000) as traced:
        run(traced.computer, "shell", "echo hello")
        process = traced.computer._runners["shell"].process  # pyright: ignore[reportPrivateUsage]
        assert process is not None
        reaper = psutil.Process(process.tree._reaper)  # pyright: ignore[reportPrivateUsage]
        before = reaper.cpu_times()
        run(traced.computer, "shell", hidden.started_in("shell", hidden.command("tree", 7), 128), timeout=3)
        after = reaper.cpu_times()
        assert after.user + after.system - before.user - before.system < 4 / 5
        hidden.await_end()


# -- what it costs


@contextlib.contextmanager
def idle_processes(count: int) -> Iterator[None]:
    """So many more processes on the machine, which end by themselves after five minutes."""
    sleep = os.path.realpath("/bin/sleep")
    pids: list[int] = []
    try:
        try:
            for _ in range(count):
                pids.append(os.posix_spawn(sleep, ["sleep", "300"], {}))
        except OSError as error:
            pytest.skip(f"only {len(pids)} of {count} idle processes could be started: {error}")
        yield
    finally:
        for pid in pids:
            os.kill(pid, 9)
        for pid in pids:
            os.waitpid(pid, 0)


opened: list[str] | None = None


def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
    if opened is not None and event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith("/proc"):
        opened.append(str(arguments[0]))


sys.addaudithook(note_opened)


def looks(computer: Computer) -> int:
    """How many files and folders about processes one run reads."""
    global opened
    opened = []
    try:
        assert run(computer, "shell", "echo hello").text == "hello\n"
        return len(opened)
    finally:
        opened = None


@pytest.mark.parametrize("count", [300])
def test_a_run_costs_the_same_however_many_processes_the_machine_has(count: int) -> None:
    """It looks at those of its own language alone."""
    free = int(Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) >> 10
    if free < 2 * count:
        pytest.skip(f"{count} idle processes need {2 * count} MB of memory; {free} are free")
    with traced_computer() as traced:
        run(traced.computer, "shell", "echo hello")
        before = [looks(traced.computer) for _ in range(3)]
        with idle_processes(count):
            beside = [looks(traced.computer) for _ in range(3)]
    assert beside == before
    assert max(before) < 50


def test_many_dropped_computers_leave_no_process(hidden: Hidden) -> None:
    """Each left one behind, hidden in a session of its own, with an empty environment and without its parents."""
    hide = f"env -i bash -c '(setsid bash -c \"exec -a {hidden.token} sleep 60\" &)'; echo"
    for _ in range(10):
        assert run(Computer(), "shell", hide).status == "completed"
    gc.collect()
    hidden.await_end(30)
