"""Python: state, displays, lines, tracebacks, input."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

import streamkit as sk
from streamkit.computer import Computer
from streamkit.computer.process_channel import ProcessChannel

from .running import Ran, TracedComputer, run, traced_computer

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
IMAGE = f"import base64\nfrom IPython.display import Image, display\npng = Image(base64.b64decode('{PNG}'))\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[TracedComputer]:
    """One computer for runs that leave nothing behind that another would notice."""
    with traced_computer() as traced:
        yield traced


@pytest.fixture
def computer(shared: TracedComputer) -> Computer:
    return shared.computer


def test_state_lives_from_run_to_run(computer: Computer) -> None:
    """Variables, imports, the last value."""
    run(computer, "python", "import math\nx = 40\nglobals().pop('_', None);")  # which another test's loop may have set
    assert run(computer, "python", "x + int(math.sqrt(4))").text == "42\n"
    assert run(computer, "python", "_").text == "42\n"


def test_stdout_and_stderr_are_separate_and_in_order(computer: Computer) -> None:
    """However often the code changes from one to the other."""
    code = "import sys\nfor i in range(30):\n    print(f'out {i}')\n    print(f'err {i}', file=sys.stderr)"
    ran = run(computer, "python", code)
    assert ran.text == "".join(f"out {i}\nerr {i}\n" for i in range(30))
    assert ran.of("stderr") == "".join(f"err {i}\n" for i in range(30))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os\nprint('a')\nos.system('echo b')\nprint('c');", "a\nb\n0\nc\n"),
        ("import subprocess as s\nprint('a', flush=True)\nr = s.run(['echo', 'b'])\nprint('c')", "a\nb\nc\n"),
        ("import os\nprint('a')\n_ = os.write(1, b'b\\n')\nprint('c')", "a\nb\nc\n"),
        ("import multiprocessing as m\np = m.get_context('fork').Process(target=print, args='b')\np.start(); p.join()", "b\n"),
        ("import threading\nt = threading.Thread(target=print, args='b')\nt.start(); t.join(); print('c')", "b\nc\n"),
        ("import sys\n_ = sys.stdout.buffer.write(b'b\\xff\\n')", "b\N{REPLACEMENT CHARACTER}\n"),
        ("print('\\ud800 \U0001f600')", "\\ud800 \U0001f600\n"),
        ("import os\nos.system('ls /proc/self/fd');", "0\n1\n2\n3\n"),
        ("import ctypes\nctypes.CDLL(None).puts(b'from C');", "from C\n"),
        ("import sys\nprint(sys.stdout.encoding, sys.stdout.isatty(), sys.stdin.read())", "utf-8 False \n"),
        ("import logging\nlogging.warning('careful')", "WARNING:root:careful\n"),
        ("print('no newline', end='')", "no newline"),
        ("import asyncio\nawait asyncio.sleep(0)\nprint('awaited')", "awaited\n"),
        ("print('\\x1b[31mred\\x1b[0m')", "\x1b[31mred\x1b[0m\n"),
        ("", ""),
        ("\n\n  \n", ""),
        ("# nothing", ""),
        ("exit()", ""),
        ("quit()", ""),
    ],
)  # fmt: skip
def test_output_arrives_unchanged(computer: Computer, code: str, text: str) -> None:
    """Whoever writes it: Python, its threads, its children, C."""
    ran = run(computer, "python", code.replace("os.system('echo b')", "print(os.system('echo b'))"))
    assert (ran.text, ran.status) == (text, "completed")


def test_output_arrives_while_the_code_waits(computer: Computer) -> None:
    """The code waits for an answer that depends on what it printed."""
    execution = computer.run("python", "print('question')\nprint('got', input())", input=lambda prompt: "answer")
    assert Ran(execution).text == "question\nanswer\ngot answer\n"


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("1/0", 1),
        ("\n\nx = 1\n\n1/0", 5),
        ("# a comment\n\ndef f():\n    return 1/0\n\nf()", 6),
        ("x = '''\n\n'''\n1/0", 4),
        ("import asyncio\nawait asyncio.sleep(0)\n1/0", 3),
    ],
)
def test_a_traceback_has_the_line_numbers_of_the_code(computer: Computer, code: str, line: int) -> None:
    """As plain text, in the console and in the error."""
    ran = run(computer, "python", code)
    assert ran.status == "failed"
    assert f"line {line}\n" in ran.text
    assert "\x1b" not in ran.text
    assert ran.text.endswith("ZeroDivisionError: division by zero\n")
    assert ran.of("stdout") == ""
    assert ran.execution.error is not None
    assert ran.execution.error[:2] == ("ZeroDivisionError", "division by zero")
    assert f"line {line}\n" in ran.execution.error.traceback


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f(:", "SyntaxError"),
        ("x = '\0'", "null character"),
        ("x = '\ud800'", "surrogate"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import streamkit_is_not_there", "ModuleNotFoundError"),
        ("class E(Exception):\n    def __str__(self): 1/0\nraise E()", "ZeroDivisionError"),
        ("class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E()", "str() failed"),
        ("%no_such_magic", "UsageError: Line magic function `%no_such_magic` not found."),
        ("%%no_such_magic\n1", "UsageError: Cell magic `%%no_such_magic` not found."),
        ("%%bash\nexit 3", "CalledProcessError"),
        ("breakpoint()", "BdbQuit"),
        ("import pdb\npdb.set_trace()", "BdbQuit"),
        ("class E(Exception):\n    def _render_traceback_(self): 1/0\nraise E('hidden')", "E: hidden"),
        ("class E(Exception):\n    def _render_traceback_(self): return None\nraise E('hidden')", "hidden"),
    ],
)
def test_errors_are_printed(computer: Computer, code: str, words: str) -> None:
    """And the next run works, in the same process."""
    run(computer, "python", "before = 1")
    ran = run(computer, "python", code)
    assert (ran.status, words in ran.text) == ("failed", True), ran.text
    assert ran.execution.error is None or ran.execution.error.name
    assert run(computer, "python", "print(before)").text == "1\n"


@pytest.mark.parametrize(
    ("code", "status", "exit_code", "text"),
    [
        ("import sys\nsys.exit()", "completed", 0, ""),
        ("import sys\nsys.exit(0)", "completed", 0, ""),
        ("import sys\nsys.exit(3)", "failed", 3, "SystemExit: 3\n"),
        ("import sys\nsys.exit('no')", "failed", 1, "SystemExit: no\n"),
    ],
)
def test_an_exit_ends_the_run_and_not_the_state(
    computer: Computer, code: str, status: str, exit_code: int, text: str
) -> None:
    """Scripts often end with one."""
    run(computer, "python", "kept = 'kept'")
    ran = run(computer, "python", code)
    assert (ran.status, ran.execution.exit_code, ran.text) == (status, exit_code, text)
    assert run(computer, "python", "print(kept)").text == "kept\n"


STEPS = [
    ("x = 1\ny = 2\nz = x + y", [1, 2, 3]),
    ("# a comment\n\nx = 1\n\ny = 2", [3, 5]),
    ("x = (1 +\n     2)\ndef f():\n    pass\n@staticmethod\ndef g():\n    pass\nf(\n)", [1, 3, 5, 8]),
    ("import asyncio\nawait asyncio.sleep(0)\nx = 3", [1, 2, 3]),
    ("x = 1\n1/0\ny = 2", [1, 2]),
    ("x = 1; y = 2\nget_ipython().run_cell('5\\n6')\nz = 3", [1, 2, 3]),
]


@pytest.mark.parametrize(("code", "lines"), STEPS)
def test_each_statement_is_a_step_of_the_active_line(computer: Computer, code: str, lines: list[int]) -> None:
    """However fast the code is: the line at which the statement begins."""
    reported = run(computer, "python", code).lines
    assert [line for line in reported if line in lines] == lines
    assert reported[-1] is None


def test_a_step_comes_before_what_it_prints_and_after_what_the_one_before_printed(computer: Computer) -> None:
    """On both streams, and where it displays something."""
    code = "import sys\nprint('a')\nprint('b', file=sys.stderr)\nx = 1\nfor i in 'cd': print(i)\nprint('e', end='')\nprint('f')"
    order: list[Any] = []
    for event in run(computer, "python", code).events:
        if isinstance(event, sk.ActiveLine):
            order.append(event.line)
        elif isinstance(event, sk.ConsoleDelta):
            order += event.value.split()
    assert order == [1, 2, "a", 3, "b", 4, 5, "c", "d", 6, "e", 7, "f", None]


def test_many_fast_statements_do_not_each_wait_for_their_line(
    computer: Computer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line and all output is reported, but the code waits few times for an acknowledgement."""
    acknowledged: list[int] = []
    send = ProcessChannel.send

    def count(channel: ProcessChannel, command: Mapping[str, Any]) -> None:
        if "ack" in command:
            acknowledged.append(command["ack"])
        send(channel, command)

    monkeypatch.setattr(ProcessChannel, "send", count)
    events = run(computer, "python", "\n".join(f"print({number})" for number in range(400))).events
    assert [event.line for event in events if isinstance(event, sk.ActiveLine)] == [*range(1, 401), None]
    assert "".join(event.value for event in events if isinstance(event, sk.ConsoleDelta)).split() == [
        *map(str, range(400))
    ]
    assert len(acknowledged) < 200


def test_steps_are_reported_to_a_reader_that_comes_late(computer: Computer) -> None:
    """All of them; of the lines that were sampled meanwhile it gets the newest."""
    code = "import time\nx = 1\nfor i in range(10):\n    time.sleep(0.04)\n    time.sleep(0.04)\ny = 2"
    execution = computer.run("python", code)
    events = iter(execution)
    next(events)
    while not execution._run.ended.wait(60):  # pyright: ignore[reportPrivateUsage]
        pass
    lines = [event.line for event in (*events,) if isinstance(event, sk.ActiveLine)]
    assert [line for line in lines if line not in (4, 5)] in ([1, 2, 3, 6, None], [2, 3, 6, None])
    assert len(lines) <= 6


def test_the_active_line_is_reported_and_ends_with_none(computer: Computer) -> None:
    """Counted from 1; always a line of the run's own code, not of what it calls."""
    ran = run(computer, "python", "\nimport time\ntime.sleep(0.1)\nfor i in range(2):\n    time.sleep(0.1)\n")
    assert ran.lines[0] == 2
    assert ran.lines[-1] is None
    assert [line for line in ran.lines if line in (3, 5)][:2] == [3, 5]


def test_a_displayed_table_gets_no_hooks_of_code(computer: Computer) -> None:
    """For it is not to be run: it is a message of the computer's, with its plain text."""
    calls: list[str] = []

    class Hooks(sk.EventHandler):
        def on_code_created(self, message: Any, /) -> None:
            calls.append("code")

        def on_code_delta(self, delta: Any, snapshot: Any, /) -> None:
            calls.append("code")

        def on_code_done(self, message: Any, /) -> None:
            calls.append("code")

        def on_message_done(self, message: Any, /) -> None:
            calls.append(f"{message.role} {message.type} {message.format} {message.metadata.get('text')}")

    code = "class Table:\n    def _repr_html_(self): return '<table><tr><td>1</td><td>2</td></tr></table>'\nTable()"
    sk.stream(computer.run("python", code), Hooks()).until_done()
    assert "computer code html 1\t2" in calls
    assert "code" not in calls


def test_a_run_without_output_is_visible_once(computer: Computer) -> None:
    """As one empty console message."""
    with sk.stream(computer.run("python", "y = 3", id="quiet", call_id="call-1")) as stream:
        (message,) = stream.get_final_messages()
    assert (message.id, message.call_id, message.content, message.status) == ("quiet", "call-1", "", "completed")


def test_displays_are_messages_of_their_own_in_the_order_of_the_output(computer: Computer) -> None:
    """Images, HTML and JavaScript; while JSON, Markdown and plain text become console text."""
    code = (
        IMAGE + "from IPython.display import HTML, JSON, Javascript, Markdown\n"
        "print('a')\ndisplay(png)\ndisplay(png)\nprint('b')\ndisplay(HTML('<b>bold</b>'))\ndisplay(Javascript('1+1'))\n"
        "display(JSON({'k': ['ä']}))\ndisplay(Markdown('# m'))\nprint('c')\n[1, 2]"
    )
    messages = sk.stream(computer.run("python", code)).get_final_messages()
    assert [(m.role, m.type, m.format, m.content) for m in messages] == [
        ("computer", "console", "output", "a\n"),
        ("computer", "image", "base64.png", PNG),
        ("computer", "image", "base64.png", PNG),
        ("computer", "console", "output", "b\n"),
        ("computer", "code", "html", "<b>bold</b>"),
        ("computer", "code", "javascript", "1+1"),
        ("computer", "console", "output", '{\n  "k": [\n    "ä"\n  ]\n}\n# m\nc\n[1, 2]\n'),
    ]
    assert len({m.id for m in messages}) == len(messages)


def test_a_rich_display_has_its_plain_text_in_the_metadata(computer: Computer) -> None:
    """Unless that is the default text of an object."""
    code = "class Table:\n    def __repr__(self): return '1 2'\n    def _repr_html_(self): return '<td>1<td>2'\nTable()"
    (message,) = sk.stream(computer.run("python", code)).get_final_messages()
    assert (message.content, message.metadata) == ("<td>1<td>2", {"text": "1 2"})


def test_a_displayed_document_without_plain_text_has_that_of_its_markup(computer: Computer) -> None:
    """For those who cannot show it."""
    code = "from IPython.display import HTML\nHTML('<h1>Title</h1><p>one<br>two<script>3</script>')"
    (message,) = sk.stream(computer.run("python", code)).get_final_messages()
    assert (message.format, message.metadata) == ("html", {"text": "Title\none\ntwo"})


def test_matplotlib_draws_inline(computer: Computer) -> None:
    """A figure is an image, without any call but `show`."""
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    code = "import matplotlib.pyplot as plt\nfor _ in range(2):\n    plt.figure(); plt.plot([1, 2]); plt.show()"
    messages = sk.stream(computer.run("python", code)).get_final_messages()
    assert [(m.type, m.format) for m in messages] == [("image", "base64.png")] * 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda prompt: prompt.upper(), "name? NAME? \nhello NAME? \n"),
        (lambda prompt: "", "name? \nhello \n"),
    ],
)
def test_input_is_answered(computer: Computer, answer: Any, text: str) -> None:
    """The console has the question and the answer, as a terminal would."""
    assert run(computer, "python", "print('hello', input('name? '))", input=answer).text == text


@pytest.mark.parametrize("answer", [None, lambda prompt: None])
def test_input_without_an_answer_is_refused(computer: Computer, answer: Any) -> None:
    """The code can handle that error."""
    code = "try:\n    input('name? ')\nexcept EOFError as error:\n    print(error)"
    assert run(computer, "python", code, input=answer).text == "name? input() was not answered\n"


def test_an_error_of_the_input_callback_is_raised_to_the_reader(computer: Computer) -> None:
    """The code gets EOFError; the callback's error is not swallowed."""
    execution = computer.run("python", "input()", input=lambda prompt: 1 / 0)  # type: ignore[arg-type, return-value]
    events: list[sk.Event] = []
    with pytest.raises(ZeroDivisionError):
        events.extend(execution)
    assert execution.status == "failed"
    with pytest.raises(sk.SourceError, match="ZeroDivisionError"):
        sk.stream(computer.run("python", "input()", input=lambda prompt: 1 / 0)).until_done()  # type: ignore


def test_a_run_that_waits_for_an_answer_can_be_stopped() -> None:
    """The answer need not come."""
    import threading

    waiting, release = threading.Event(), threading.Event()

    def answer(prompt: str) -> str:
        waiting.set()
        release.wait(30)
        return "too late"

    with traced_computer(input=answer) as traced:
        execution = traced.computer.run("python", "input()")
        threading.Thread(target=lambda: waiting.wait(30) and execution.interrupt(), daemon=True).start()
        assert Ran(execution).status == "interrupted"
        release.set()
        assert run(traced.computer, "python", "print('next')").text == "next\n"


def test_a_megabyte_of_code_runs(computer: Computer) -> None:
    """There is no limit to its length."""
    assert run(computer, "python", f"x = '{'y' * 1_000_000}'\nprint(len(x))").text == "1000000\n"


def test_the_directory_and_the_environment_are_the_computers(tmp_path: Any) -> None:
    """They replace those of this process."""
    (tmp_path / "beside.py").write_text("value = 7")
    with traced_computer(cwd=tmp_path, env={"GIVEN": "yes"}) as traced:
        code = "import os, beside\nprint(os.getcwd(), os.environ['GIVEN'], beside.value)"
        assert run(traced.computer, "python", code).text == f"{tmp_path} yes 7\n"


def test_the_kernel_shadows_no_module_of_the_user(computer: Computer) -> None:
    """What runs in the kernel does not shadow a module of the user's."""
    ran = run(computer, "python", "import sys\nprint(sys.path[0] == '', 'kernel' in sys.modules, __name__)")
    assert ran.text == "True False __main__\n"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os\nif os.fork() == 0: print('child')\nelse: os.wait(); print('parent')", "child\nparent\n"),
        ("import sys\nsys.stdin.close(); sys.stdout.close(); print('open')", "open\n"),
        ("import os\nos.close(1); print('open')", "open\n"),
    ],
)
def test_code_that_closes_streams_or_forks_does_not_affect_the_next_run(
    computer: Computer, code: str, text: str
) -> None:
    """A fork that reaches the end of the code ends; closed streams are opened again."""
    assert run(computer, "python", code).text == text
    assert run(computer, "python", "print('next')").text == "next\n"


def test_a_signal_handler_of_an_earlier_run_does_not_stop_an_interrupt() -> None:
    """A run's handler ends with the run."""
    with traced_computer() as traced:
        run(traced.computer, "python", "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN);")
        execution = traced.computer.run("python", "print('ready')\nwhile True: pass")
        ran = Ran(execution, lambda execution, text: execution.interrupt())
        assert (ran.status, ran.execution.state_lost) == ("interrupted", False)


MAIN = "import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    print('main')\n    return 5\n"


@pytest.mark.parametrize(
    "call",
    [
        "print(asyncio.run(main()))",
        "print(asyncio.get_event_loop().run_until_complete(main()))",
        "loop = asyncio.get_event_loop()\nprint(loop.run_until_complete(main()))\nloop.close()",
        "loop = asyncio.new_event_loop()\nprint(loop.run_until_complete(main()))\nloop.close()",
        "print(await main())",
        "await asyncio.sleep(0)\nprint(asyncio.run(main()))",
        "task = asyncio.create_task(main())\nprint(await task)",
    ],
)
def test_code_may_await_and_may_run_an_event_loop_of_its_own(computer: Computer, call: str) -> None:
    """As in a notebook and as in a script; the next run may do either, too."""
    for _ in range(2):
        assert run(computer, "python", MAIN + call).text == "main\n5\n"


def test_a_task_goes_on_between_two_runs(computer: Computer) -> None:
    """Code without `await` may start it, as in a notebook. What it prints after its run has ended is in no other."""
    run(computer, "python", "import asyncio, threading\ndone = threading.Event()\nasync def late():\n    done.set()\n    print('late')\n")  # fmt: skip
    assert run(computer, "python", "task = asyncio.create_task(late());").status == "completed"
    assert run(computer, "python", "print(await task, done.is_set())").text == "None True\n"


def test_a_value_whose_text_cannot_be_made_fails_the_run(computer: Computer) -> None:
    """With the error of its `__repr__`."""
    ran = run(computer, "python", "class Broken:\n    def __repr__(self): return 1/0\nBroken()")
    assert (ran.status, ran.text.count("ZeroDivisionError: division by zero")) == ("failed", 1)
    assert ran.execution.error is not None
    assert ran.execution.error[:2] == ("ZeroDivisionError", "division by zero")


def test_an_exception_group_is_shown_as_a_traceback_of_the_code(computer: Computer) -> None:
    """The next run has the state of the one before."""
    ran = run(computer, "python", "before = 1\nraise ExceptionGroup('several', [ValueError(1), OSError(2)])")
    assert (ran.status, ran.execution.error and ran.execution.error.name) == ("failed", "ExceptionGroup")
    assert "ValueError: 1" in ran.text and "OSError: 2" in ran.text and "site-packages" not in ran.text
    assert run(computer, "python", "print(before)").text == "1\n"


def test_endless_recursion_has_a_short_traceback(computer: Computer) -> None:
    """Which also says that it is shortened."""
    ran = run(computer, "python", "def f(n): return g(n + 1)\ndef g(n): return f(n + 1)\nf(0)")
    assert (ran.status, ran.execution.error and ran.execution.error.name) == ("failed", "RecursionError")
    assert len(ran.text) < 10_000
    assert "frames in the middle of the traceback are left out" in ran.text


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("raise ValueError('\\ud800')", "ValueError: \N{REPLACEMENT CHARACTER}\n"),
        ("class S:\n    def __repr__(self): return '\\ud83d\\ude00 \\ud800'\nS()", "\N{GRINNING FACE} \N{REPLACEMENT CHARACTER}\n"),
        ("from IPython.display import JSON\nJSON([float('nan'), 10**30, {1: b'ab'}])", '[\n  "nan",\n  "1000000000000000000000000000000",\n  {\n    "1": "YWI="\n  }\n]\n'),
    ],
)  # fmt: skip
def test_what_json_has_no_form_for_is_shown_all_the_same(computer: Computer, code: str, text: str) -> None:
    """Halves of surrogate pairs, numbers that are none, bytes."""
    assert run(computer, "python", code).text.endswith(text)


def test_a_displayed_value_may_give_bytes(computer: Computer) -> None:
    """As Pillow's images do, and any class whose `_repr_png_` returns what a file would hold."""
    code = f"import base64\nclass Picture:\n    def _repr_png_(self): return base64.b64decode('{PNG}')\nPicture()"
    (message,) = sk.stream(computer.run("python", code)).get_final_messages()
    assert (message.type, message.format, message.content) == ("image", "base64.png", PNG)


def test_an_image_of_pillow_is_displayed(computer: Computer) -> None:
    """Without any call."""
    pytest.importorskip("PIL", reason="needs pillow")
    (message,) = sk.stream(
        computer.run("python", "from PIL import Image\nImage.new('RGB', (9, 9))")
    ).get_final_messages()
    assert (message.type, message.format) == ("image", "base64.png")


@pytest.mark.parametrize("code", ["input()", "import getpass\ngetpass.getpass()", "import asyncio\nasync def f(): 1/0\nasyncio.run(f())", MAIN + "await main()\n1/0", "class B:\n    def __repr__(self): 1/0\ndisplay(B())"])  # fmt: skip
def test_no_frame_of_the_kernel_stands_in_a_traceback(computer: Computer, code: str) -> None:
    """Only those of the code, and of what it calls."""
    assert "streamkit" not in run(computer, "python", code).text


OPEN_RUNS = """
import os
links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
names = {os.path.basename(os.readlink(link)).split(".")[0] for link in links if os.path.lexists(link)}
print(len([name for name in names if len(name) == 32]))
"""
"""Prints how many runs have a pipe that is open; their ids have 32 digits."""


FAILS_IN_A_CALL_OF_THE_KERNEL = """
import json
encode = json.JSONEncoder.encode
def fail(*_):
    json.JSONEncoder.encode = encode
    raise ValueError("as an interrupt does that comes here")
json.JSONEncoder.encode = fail
pass
"""
"""The kernel encodes a frame about the next statement."""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc, with the descriptors of a process")
@pytest.mark.parametrize(
    "code",
    [
        "1 / 0",
        "return",
        "class A:\n    def __repr__(self):\n        1 / 0\nA()",
        FAILS_IN_A_CALL_OF_THE_KERNEL,
    ],
    ids=["code", "syntax", "repr", "call of the kernel"],
)
def test_an_error_that_python_remembers_keeps_no_pipe_open(code: str) -> None:
    """`sys.last_value` refers to the frames of the code, and these to those that called it."""
    with traced_computer() as traced:
        assert "Error" in run(traced.computer, "python", code).text
        assert run(traced.computer, "python", OPEN_RUNS).text == "1\n"
