"""The computer and its runs: as the source of sync and async streams; languages; closing; misuse."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.computer import Computer, Limits, Runner, RunRequest, RunResult

from .running import HELLO, LANGUAGES, Ran, in_thread, language, run, traced_computer
from .test_python import IMAGE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def one() -> Iterator[Computer]:
    """One for the runs after which its processes live on."""
    with traced_computer() as traced:
        yield traced.computer


def chunks(computer: Computer, name: str, code: str) -> list[dict[str, Any]]:
    """A run as Open Interpreter's chunks; a text that came in pieces, as on a busy machine, is one."""
    taken: list[dict[str, Any]] = []
    for chunk in sk.stream(computer.run(name, code)).chunks("open_interpreter"):
        if chunk["role"] != "server":
            taken.append({key: chunk[key] for key in ("type", "format", "content", "start", "end") if key in chunk})
            if len(taken) > 1 and all(one.get("format") == "output" and "content" in one for one in taken[-2:]):
                taken[-2:] = [output(taken[-2]["content"] + taken[-1]["content"])]
    return taken


START = {"type": "console", "start": True}
END = {"type": "console", "end": True}


def line(number: int | None) -> dict[str, Any]:
    return {"type": "console", "format": "active_line", "content": number}


def output(text: str) -> dict[str, Any]:
    return {"type": "console", "format": "output", "content": text}


def display(type: str, format: str, content: str) -> list[dict[str, Any]]:
    header = {"type": type, "format": format}
    return [{**header, "start": True}, {**header, "content": content}, {**header, "end": True}]


UNSUPPORTED = (
    "`cobol` is not supported; this computer runs: python, shell, javascript; others are added with `computer.register`"
)
SHOWN: list[tuple[str, str, list[Any]]] = [
    ("python", "print(1)", [START, line(1), output("1\n"), line(None), END]),
    ("python", "y = 3", [START, line(1), line(None), END]),
    (
        "python",
        "from IPython.display import HTML\nHTML('<b>')",
        [START, line(1), line(2), END, *display("code", "html", "<b>"), START, line(None), END],
    ),
    (
        "python",
        IMAGE + "display(png, png)",
        [START, line(1), line(2), line(3), line(4), END, *display("image", "base64.png", "PNG"), *display("image", "base64.png", "PNG"), START, line(None), END],
    ),
    ("shell", "echo a", [START, output("a\n"), line(None), END]),
    ("javascript", "console.log(5)", [START, output("5\n"), line(None), END]),
    ("cobol", "x", [START, output(UNSUPPORTED), END]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "code", "shown"),
    [language(*case, id=f"{case[0]}-{place}") if case[0] != "cobol" else case for place, case in enumerate(SHOWN)],
)
def test_a_run_has_the_order_of_open_interpreter(name: str, code: str, shown: list[Any], one: Computer) -> None:
    """Every display has a start and an end; a run without output is visible once; the active line ends with None."""
    taken = chunks(one, name, code)
    for chunk in taken:
        if chunk["type"] == "image" and "content" in chunk:
            assert chunk["content"].startswith("iVBORw0KGgo")
            chunk["content"] = "PNG"
    assert taken == shown


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_run_is_the_source_of_sync_and_async_streams(backend: str, one: Computer) -> None:
    """With the same hooks and the same messages."""

    class Terminal(sk.EventHandler):
        def __init__(self) -> None:
            self.calls: list[tuple[str, Any]] = []

        def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
            stream = delta.metadata["stream"]
            if self.calls and self.calls[-1][1] == stream:  # a piece of the same line
                self.calls.append((self.calls.pop()[0] + str(delta), stream))
            else:
                self.calls.append((str(delta), stream))

        def on_active_line(self, line: int | None, snapshot: Any, /) -> None:
            self.calls.append(("line", line)) if line in (1, None) else None

    handler = Terminal()
    code = "import sys; print('\U0001f600'); print(2, file=sys.stderr)"  # a character of two UTF-16 units
    if backend == "sync":
        messages = sk.stream(one.run("python", code), handler).get_final_messages()
    else:

        async def main() -> list[sk.Message]:
            async with one.run("python", code) as execution:
                return await sk.astream(execution, handler).get_final_messages()

        messages = anyio.run(main, backend=backend)
    assert [m.content for m in messages] == ["\U0001f600\n2\n"]
    assert messages[0].metadata == {"stderr": [[2, 4]]}
    assert handler.calls == [("line", 1), ("\U0001f600\n", "stdout"), ("2\n", "stderr"), ("line", None)]


HANG = "import itertools\nfor i in itertools.count(): print(i)"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_leaving_a_stream_ends_the_run_before_the_next_line(backend: str, one: Computer) -> None:
    """`close` returns when the code has ended; nothing of it is in the next run."""
    execution = one.run("python", HANG)
    if backend == "sync":
        with sk.stream(execution) as stream:
            for event in stream:
                if isinstance(event, sk.ConsoleDelta):
                    break
    else:

        async def main() -> None:
            async with sk.astream(execution) as stream:
                async for event in stream:
                    if isinstance(event, sk.ConsoleDelta):
                        break

        anyio.run(main, backend=backend)
    assert execution.status == "interrupted"
    assert run(one, "python", "print('next')").text == "next\n"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_cancelling_a_stream_from_elsewhere_ends_the_run(backend: str, one: Computer) -> None:
    """Even while the stream waits for output that does not come."""
    execution = one.run("python", "print('ready')\nwhile True: pass")

    began: list[float] = []

    class Stop(sk.EventHandler):
        def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
            began.append(time.monotonic())
            in_thread(self.stream.cancel)

    if backend == "sync":
        sk.stream(execution, Stop()).until_done()
    else:

        async def main() -> None:
            await sk.astream(execution, Stop()).until_done()

        anyio.run(main, backend=backend)
    assert execution.status == "interrupted"
    assert time.monotonic() - began[0] < 20
    assert run(one, "python", "print('next')").text == "next\n"


def test_a_task_that_is_cancelled_ends_the_run(one: Computer) -> None:
    """However it is cancelled."""

    async def main(execution: Any) -> None:
        with anyio.move_on_after(0.2):
            async with sk.astream(execution) as stream:
                async for _ in stream:
                    pass

    execution = one.run("python", HANG.replace("print(i)", "pass"))
    anyio.run(main, execution)
    assert execution.status == "interrupted"
    assert run(one, "python", "print('next')").text == "next\n"


def test_a_run_begins_when_it_is_first_read() -> None:
    """One that is closed before that never begins."""
    with traced_computer() as traced:
        execution = traced.computer.run("python", "open('made', 'w')")
        assert execution.status == "waiting"
        execution.close()
        assert [*execution] == []
        assert execution.status == "interrupted"
        assert traced.processes() == []


def test_a_run_that_is_interrupted_before_it_begins_does_not_run() -> None:
    """Its console says the same as that of any interrupted run."""
    with traced_computer() as traced:
        traced.computer.start("python")
        execution = traced.computer.run("python", "print('never')")
        execution.interrupt()
        ran = Ran(execution)
        assert (ran.text, ran.status, ran.execution.state_lost) == ("KeyboardInterrupt", "interrupted", False)


def test_leaving_a_loop_pauses_the_reading_and_another_loop_goes_on(one: Computer) -> None:
    """Each event is returned once."""
    execution = one.run("python", "for i in range(3): print(i)")
    for event in execution:
        if isinstance(event, sk.ConsoleCreated):
            break
    rest = "".join(event.value for event in execution if isinstance(event, sk.ConsoleDelta))
    assert rest == "0\n1\n2\n"
    assert execution.status == "completed"


def test_two_languages_run_at_once_but_one_language_runs_one_piece_of_code(one: Computer) -> None:
    """A second run of the same language raises an error."""
    execution = one.run("python", "print(input())", input=lambda prompt: shell())

    def shell() -> str:
        with pytest.raises(sk.UsageError, match="one piece of code at a time"):
            one.run("py", "1")
        return run(one, "shell", "echo from the shell").text.strip()

    assert Ran(execution).text == "from the shell\nfrom the shell\n"


def test_languages_have_aliases_in_any_case(one: Computer) -> None:
    """Aliases, and any case."""
    computer = one
    assert computer.languages == ("python", "shell", "javascript")
    assert {computer.language_of(n) for n in ("Python", "py", " PYTHON ")} == {"python"}
    assert {computer.language_of(n) for n in ("bash", "sh", "Shell")} == {"shell"}
    assert {computer.language_of(n) for n in ("js", "node", "JavaScript")} == {"javascript"}
    assert computer.language_of("cobol") is None


def test_an_unknown_language_fails_the_run_and_raises_nothing() -> None:
    """The console says which languages there are, for a model reads it, and how an application adds one."""
    with traced_computer() as traced:
        ran = run(traced.computer, "cobol", "DISPLAY 'x'")
        assert ran.text == UNSUPPORTED
        assert (ran.status, ran.lines, traced.processes()) == ("failed", [], [])
        with pytest.raises(sk.UsageError, match="not supported"):
            traced.computer.start("cobol")


class Echo(Runner):
    """A language that prints its code."""

    name = "echo"

    def run(self, run: Any) -> RunResult:
        run.output.put_text("stdout", run.code)
        run.result.ended = True
        return run.result


def test_other_languages_can_be_registered() -> None:
    """With a name and aliases; a language in use cannot be replaced."""
    with traced_computer() as traced:
        traced.computer.register("Echo", Echo, aliases=["parrot"])
        assert run(traced.computer, "parrot", "said").text == "said"
        assert "echo" in traced.computer.languages
        with pytest.raises(sk.UsageError):
            traced.computer.register("echo", Echo)


UPPER = """
import json, os, sys
frames, commands = os.fdopen(int(sys.argv[1]), "w", 1), os.fdopen(int(sys.argv[2]))
print(json.dumps({"type": "ready"}), file=frames)
for line in commands:
    command = json.loads(line)
    print(json.dumps({"type": "begin", "run": command["run"]}), file=frames)
    with open(command["out"], "w") as out:
        out.write(command["code"].upper())
    end = {"type": "end", "run": command["run"], "status": "ok", "exit_code": 0}
    print(json.dumps(end), file=frames)
"""


class Upper(Runner):
    """A language with a process of its own, which prints the code in upper case."""

    name = "upper"

    def command(self, directory: str, frames: int, commands: int) -> list[str]:
        return [sys.executable, "-c", UPPER, str(frames), str(commands)]

    def submit(self, run: RunRequest, out: str, err: str) -> None:
        self.send({"run": run.id, "code": run.code, "out": out})


def test_a_language_with_a_process_can_be_registered() -> None:
    """With the three frames that `Runner` documents; its process lives from run to run."""
    with traced_computer() as traced:
        traced.computer.register("upper", Upper)
        for code in ("one", "two"):
            ran = run(traced.computer, "upper", code)
            assert (ran.text, ran.status, ran.execution.exit_code) == (code.upper(), "completed", 0)
        assert len(traced.without_reapers()) == 1


def test_a_missing_program_fails_the_run() -> None:
    """For example node, where it is not installed."""

    class Missing(Runner):
        name = "missing"

        def command(self, directory: str, frames: int, commands: int) -> list[str]:
            return ["streamkit-has-no-such-program"]

    with traced_computer() as traced:
        traced.computer.register("missing", Missing)
        ran = run(traced.computer, "missing", "x")
        assert (ran.status, "could not be started" in ran.text) == ("failed", True)


def test_a_language_can_be_started_before_its_first_run() -> None:
    """`start` returns long before the process is ready; the run uses the process that it started."""
    with traced_computer() as traced:
        began = time.monotonic()
        traced.computer.start("python")
        took = time.monotonic() - began
        traced.computer.start("python")
        assert run(traced.computer, "python", "print(1)").text == "1\n"
        assert took < (time.monotonic() - began) / 2
        assert len([line for line in traced.without_reapers() if "streamkit_kernel" in line]) == 1


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_closing_ends_every_run_and_every_process(name: str) -> None:
    """From another thread too. Then nothing can begin any more, and a second close does nothing."""
    hang = {"python": "print('ready')\nwhile True: pass", "shell": "echo ready; sleep 600", "javascript": "console.log('ready'); while (true) {}"}  # fmt: skip
    with traced_computer() as traced:
        execution = traced.computer.run(name, hang[name])
        threads: list[threading.Thread] = []
        ran = Ran(execution, lambda *_: threads or threads.append(in_thread(traced.computer.close)))
        threads[0].join(60)
        assert (execution.status, traced.processes()) == ("interrupted", [])
        assert ran.text.endswith("KeyboardInterrupt")  # its reader was not the one who closed it
        traced.computer.close()
        with pytest.raises(sk.UsageError, match="closed"):
            traced.computer.run(name, HELLO[name])


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_closing_leaves_its_reader_the_rest_of_the_output(name: str) -> None:
    """Also where that does not read at the moment, and the code waits for it to do so."""
    flood = {"python": "while True: print('ready' * 1000)", "shell": "yes ready", "javascript": "while (true) console.log('ready'.repeat(1000))"}  # fmt: skip
    with traced_computer() as traced:
        execution = traced.computer.run(name, flood[name])
        next(event for event in execution if isinstance(event, sk.ConsoleDelta))
        traced.computer.close()
        assert execution.status == "interrupted"
        *_, last = (event.value for event in execution if isinstance(event, sk.ConsoleDelta))
        assert last.endswith("KeyboardInterrupt")


SCRIPT = """
import sys
from streamkit.computer import Computer
computer = Computer()
for name, code in {"python": "import subprocess; subprocess.Popen(['setsid', 'sleep', '600'])",
                   "shell": "setsid sleep 600 & sleep 600 &",
                   "javascript": "require('child_process').spawn('sleep', ['600'], { detached: true, stdio: 'ignore' }).unref()",
                   }.items():
    for _ in computer.run(name, code): pass
print("ready", flush=True)
if sys.argv[1] == "wait": sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc to find a process that left its session")
@pytest.mark.parametrize("how", ["exit", "killed"])
def test_nothing_is_left_when_the_program_ends_without_closing(how: str) -> None:
    """Also if it is killed, and where a process left its session. No file is left either."""
    with tempfile.TemporaryDirectory() as place, traced_computer() as traced:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "STREAMKIT_TEST": traced.mark, "TMPDIR": place}
        command = [sys.executable, "-c", SCRIPT, "wait" if how == "killed" else "go"]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            if how == "killed":
                process.send_signal(signal.SIGKILL)
            process.wait(60)
        deadline = time.monotonic() + 60
        while left := traced.processes():
            assert time.monotonic() < deadline, left
        assert os.listdir(place) == []


@pytest.mark.parametrize("lack", ["os.name = 'nt'", "sys.modules['fcntl'] = None", "sys.modules['psutil'] = None"])
def test_what_the_computer_needs_is_said_when_it_is_imported(lack: str) -> None:
    """A POSIX system, and the extra; everything else can be imported without."""
    code = f"import os, sys, streamkit, streamkit.cli\n{lack}\ntry:\n    import streamkit.computer\nexcept ImportError as error:\n    print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert ("pip install" if "psutil" in lack else "needs a POSIX system") in done.stdout, done.stderr


def test_a_run_has_no_limits_by_default() -> None:
    """`Limits()` stops nothing."""
    assert Limits() == Limits(None, None, None, None)
