"""The computer and its runs: as a stream's source, on all faces; languages; closing; what is misused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.computer import Computer, Limits, Runner, RunResult

from .running import HELLO, LANGUAGES, Ran, in_thread, language, marked, run
from .test_python import IMAGE

ROOT = Path(__file__).resolve().parents[2]


def chunks(computer: Computer, name: str, code: str) -> list[dict[str, Any]]:
    """A run as Open Interpreter's chunks; contents shortened to their kind."""
    taken: list[dict[str, Any]] = []
    for chunk in sk.stream(computer.run(name, code)).chunks("open_interpreter"):
        if chunk["role"] != "server":
            taken.append({key: chunk[key] for key in ("type", "format", "content", "start", "end") if key in chunk})
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


SHOWN: list[tuple[str, str, list[Any]]] = [
    ("python", "print(1)", [START, line(1), output("1\n"), line(None), END]),
    ("python", "y = 3", [START, line(1), line(None), END]),
    (
        "python",
        "from IPython.display import HTML\nHTML('<b>')",
        [START, line(1), END, *display("code", "html", "<b>"), START, line(None), END],
    ),
    (
        "python",
        IMAGE + "display(png, png)",
        [START, line(1), END, *display("image", "base64.png", "PNG"), *display("image", "base64.png", "PNG"), START, line(None), END],
    ),
    ("shell", "echo a", [START, output("a\n"), line(None), END]),
    ("javascript", "console.log(5)", [START, output("5\n"), line(None), END]),
    ("cobol", "x", [START, output("`cobol` is not supported; this computer runs: python, shell, javascript"), END]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "code", "shown"),
    [language(*case, id=f"{case[0]}-{place}") if case[0] != "cobol" else case for place, case in enumerate(SHOWN)],
)
def test_a_run_is_told_in_the_order_of_open_interpreter(name: str, code: str, shown: list[Any]) -> None:
    """Every display bracketed; a run without output visible once; the line none at the end."""
    with marked() as given:
        taken = chunks(given.computer, name, code)
    for chunk in taken:
        if chunk["type"] == "image" and "content" in chunk:
            assert chunk["content"].startswith("iVBORw0KGgo")
            chunk["content"] = "PNG"
    sampled = [chunk for chunk in taken if chunk.get("format") == "active_line" and chunk["content"] not in (1, None)]
    assert [chunk for chunk in taken if chunk not in sampled] == shown


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_a_run_is_a_streams_source_on_every_face(backend: str) -> None:
    """With hooks; and the story is the same."""

    class Terminal(sk.EventHandler):
        def __init__(self) -> None:
            self.told: list[tuple[str, Any]] = []

        def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
            self.told.append((str(delta), delta.metadata["stream"]))

        def on_active_line(self, line: int | None, snapshot: Any, /) -> None:
            self.told.append(("line", line)) if line in (1, None) else None

    handler = Terminal()
    code = "import sys; print(1); print(2, file=sys.stderr)"
    with marked() as given:
        if backend == "sync":
            messages = sk.stream(given.computer.run("python", code), handler).get_final_messages()
        else:

            async def main() -> list[sk.Message]:
                async with given.computer.run("python", code) as execution:
                    return await sk.astream(execution, handler).get_final_messages()

            messages = anyio.run(main, backend=backend)
    assert [m.content for m in messages] == ["1\n2\n"]
    assert handler.told == [("line", 1), ("1\n", "stdout"), ("2\n", "stderr"), ("line", None)]


HANG = "import itertools\nfor i in itertools.count(): print(i)"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_leaving_a_stream_ends_the_run_before_the_next_line(backend: str) -> None:
    """`close` returns when the code has ended; nothing of it is in the next run."""
    with marked() as given:
        execution = given.computer.run("python", HANG)
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
        assert run(given.computer, "python", "print('next')").text == "next\n"


@pytest.mark.parametrize("backend", ["sync", "asyncio", "trio"])
def test_cancelling_a_stream_from_elsewhere_ends_the_run(backend: str) -> None:
    """While it waits for output that does not come."""
    with marked() as given:
        execution = given.computer.run("python", "print('ready')\nwhile True: pass")

        class Stop(sk.EventHandler):
            def on_console_output(self, delta: Any, snapshot: Any, /) -> None:
                in_thread(self.stream.cancel)

        began = time.monotonic()
        if backend == "sync":
            sk.stream(execution, Stop()).until_done()
        else:

            async def main() -> None:
                await sk.astream(execution, Stop()).until_done()

            anyio.run(main, backend=backend)
        assert execution.status == "interrupted"
        assert time.monotonic() - began < 5
        assert run(given.computer, "python", "print('next')").text == "next\n"


def test_a_task_that_is_cancelled_ends_the_run() -> None:
    """However it is cancelled."""

    async def main(execution: Any) -> None:
        with anyio.move_on_after(0.5):
            async with sk.astream(execution) as stream:
                async for _ in stream:
                    pass

    with marked() as given:
        execution = given.computer.run("python", HANG.replace("print(i)", "pass"))
        anyio.run(main, execution)
        assert execution.status == "interrupted"
        assert run(given.computer, "python", "print('next')").text == "next\n"


def test_a_run_begins_when_it_is_first_read() -> None:
    """And one that is closed before never does."""
    with marked() as given:
        execution = given.computer.run("python", "open('made', 'w')")
        assert execution.status == "waiting"
        execution.close()
        assert [*execution] == []
        assert execution.status == "interrupted"
        assert given.processes() == []


def test_a_run_that_is_interrupted_before_it_begins_does_not_run() -> None:
    """And says so as any interrupted run."""
    with marked() as given:
        given.computer.start("python")
        execution = given.computer.run("python", "print('never')")
        execution.interrupt()
        ran = Ran(execution)
        assert (ran.text, ran.status, ran.execution.state_lost) == ("KeyboardInterrupt", "interrupted", False)


def test_leaving_a_loop_pauses_and_another_goes_on() -> None:
    """What was read is not told again."""
    with marked() as given:
        execution = given.computer.run("python", "for i in range(3): print(i)")
        for event in execution:
            if isinstance(event, sk.ConsoleCreated):
                break
        rest = "".join(event.value for event in execution if isinstance(event, sk.ConsoleDelta))
        assert rest == "0\n1\n2\n"
        assert execution.status == "completed"


def test_two_languages_run_at_once_and_one_language_one_run() -> None:
    """A second run of the same language is an error of who asks for it."""
    with marked() as given:
        execution = given.computer.run("python", "print(input())", input=lambda prompt: shell())

        def shell() -> str:
            with pytest.raises(sk.UsageError, match="one piece of code at a time"):
                given.computer.run("py", "1")
            return run(given.computer, "shell", "echo from the shell").text.strip()

        assert Ran(execution).text == "from the shell\nfrom the shell\n"


def test_names_of_languages_are_known_however_they_are_written() -> None:
    """Aliases, and any case."""
    with marked() as given:
        computer = given.computer
        assert computer.languages == ("python", "shell", "javascript")
        assert {computer.language_of(n) for n in ("Python", "py", " PYTHON ")} == {"python"}
        assert {computer.language_of(n) for n in ("bash", "sh", "Shell")} == {"shell"}
        assert {computer.language_of(n) for n in ("js", "node", "JavaScript")} == {"javascript"}
        assert computer.language_of("cobol") is None


def test_an_unknown_language_is_told_and_not_raised() -> None:
    """A model can read what there is."""
    with marked() as given:
        ran = run(given.computer, "cobol", "DISPLAY 'x'")
        assert ran.text == "`cobol` is not supported; this computer runs: python, shell, javascript"
        assert (ran.status, ran.lines, given.processes()) == ("failed", [], [])
        with pytest.raises(sk.UsageError, match="not supported"):
            given.computer.start("cobol")


class Echo(Runner):
    """A language that prints its code."""

    name = "echo"

    def run(self, run: Any) -> RunResult:
        run.output.put_text("stdout", run.code)
        run.result.ended = True
        return run.result


def test_other_languages_register() -> None:
    """With a name and its aliases; a language in use is not replaced."""
    with marked() as given:
        given.computer.register("Echo", Echo, aliases=["parrot"])
        assert run(given.computer, "parrot", "said").text == "said"
        assert "echo" in given.computer.languages
        with pytest.raises(sk.UsageError):
            given.computer.register("echo", Echo)


def test_a_program_that_is_not_there_is_told() -> None:
    """As node, where it is not installed."""

    class Missing(Runner):
        name = "missing"

        def command(self, directory: str, frames: int, commands: int) -> list[str]:
            return ["streamkit-has-no-such-program"]

    with marked() as given:
        given.computer.register("missing", Missing)
        ran = run(given.computer, "missing", "x")
        assert (ran.status, "could not be started" in ran.text) == ("failed", True)


def test_a_language_gets_ready_while_there_is_nothing_to_run_yet() -> None:
    """`start` returns at once; the run finds the same process."""
    with marked() as given:
        began = time.monotonic()
        given.computer.start("python")
        assert time.monotonic() - began < 0.1
        given.computer.start("python")
        assert run(given.computer, "python", "print(1)").text == "1\n"
        assert len([line for line in given.processes() if "streamkit_kernel" in line]) == 1


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_closing_ends_what_runs_and_every_process(name: str) -> None:
    """From another thread too; then nothing begins any more, and a second close does nothing."""
    hang = {"python": "print('ready')\nwhile True: pass", "shell": "echo ready; sleep 600", "javascript": "console.log('ready'); while (true) {}"}  # fmt: skip
    with marked() as given:
        execution = given.computer.run(name, hang[name])
        threads: list[threading.Thread] = []
        Ran(execution, lambda *_: threads or threads.append(in_thread(given.computer.close)))
        threads[0].join(10)
        assert (execution.status, given.processes()) == ("interrupted", [])
        given.computer.close()
        with pytest.raises(sk.UsageError, match="closed"):
            given.computer.run(name, HELLO[name])


SCRIPT = """
import sys
from streamkit.computer import Computer
computer = Computer()
for name, code in {"python": "import subprocess; subprocess.Popen(['setsid', 'sleep', '600'])",
                   "shell": "setsid sleep 600 & sleep 600 &"}.items():
    for _ in computer.run(name, code): pass
print("ready", flush=True)
if sys.argv[1] == "wait": sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_nothing_is_left_when_the_interpreter_ends(how: str) -> None:
    """Without any close; where it is killed, what left its session may go on, and nothing else. No file either."""
    with tempfile.TemporaryDirectory() as place, marked() as given:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "STREAMKIT_TEST": given.mark, "TMPDIR": place}
        command = [sys.executable, "-c", SCRIPT, "wait" if how == "killed" else "go"]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            if how == "killed":
                process.send_signal(signal.SIGKILL)
            process.wait(20)
        deadline = time.monotonic() + 5
        allowed = {"sleep 600"} if how == "killed" else set()
        while left := [line for line in given.processes() if line not in allowed]:
            assert time.monotonic() < deadline, left
        given.kill()
        assert os.listdir(place) == []


def test_limits_are_none_where_none_is_given() -> None:
    """The defaults of a run's limits end nothing."""
    assert Limits() == Limits(None, None, None, None)
