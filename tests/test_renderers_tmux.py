"""The renderers on a real terminal: tmux, and what a person would see on its screen."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamkit.cli.script import CHART as CODE

from .forked import Forks
from .terminals import TMUX, Terminal, lines_of
from .test_cli import PRINTED

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")

STORY = """
import os, sys, time
import streamkit as sk
from streamkit.renderers import LiveDisplay

def items():
    message = {"role": "assistant", "type": "message"}
    code = {"role": "assistant", "type": "code", "format": "python"}
    console = {"role": "computer", "type": "console"}
    yield {**message, "start": True}
    for word in ("A paragraph with **bold** words. " * 6 + "\\n\\n- first\\n- second\\n\\n").split(" "):
        yield {**message, "content": word + " "}
        pause()
    yield {**message, "end": True}
    yield {**code, "start": True, "end": True, "content": "import time\\nfor n in range(3):\\n    print(n)\\n"}
    yield {**console, "start": True}
    for n in range(12):
        yield {**console, "format": "active_line", "content": 2 + n % 2}
        yield {**console, "format": "output", "content": f"\\r{n * 10}% \\x1b[32m{'#' * n}\\x1b[0m"}
        pause()
    yield {**console, "format": "output", "content": "\\ndone\\n"}
    yield {**console, "end": True}
    yield {**message, "start": True}
    for word in "The last \\x1b[31mwords \\u202eare here. ".split(" "):
        yield {**message, "content": word + " "}
        pause()
    yield {**message, "end": True}

def pause():
    before = looks()
    time.sleep(0.03)
    for _ in range(100):  # until somebody has looked at the screen: twice, as the first look may have begun before
        if not before or not (now := looks()) or now > before + 1:
            break
        time.sleep(0.005)

def looks():
    path = os.environ["LOOKS"]
    return os.path.getsize(path) if os.path.exists(path) else 0
"""
RUN = "sk.stream(items(), LiveDisplay(), protocol='open_interpreter').until_done()"


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[list[Terminal]]:
    """The terminals of a test, which are closed after it."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def open_terminal(
    terminals: list[Terminal], tmp_path: Path, line: str, columns: int = 80, rows: int = 24, **environment: str
) -> Terminal:
    terminal = Terminal(tmp_path / f"tmux{len(terminals)}", line, columns, rows, **environment)
    terminals.append(terminal)
    return terminal


def program(tmp_path: Path, code: str = RUN) -> str:
    """A command line that runs the story so."""
    path = tmp_path / "story.py"
    path.write_text(STORY + textwrap.dedent(code))
    return f"{sys.executable} {path}"


def replay(tmp_path: Path) -> str:
    """A command line that shows code and its output as every command shows a stream."""
    path = tmp_path / "body.jsonl"
    code = {"role": "assistant", "type": "code", "format": "python", "content": "print(1)"}
    console = {"role": "computer", "type": "console", "format": "output", "content": "1\n"}
    path.write_text("".join(json.dumps({**item, "start": True, "end": True}) + "\n" for item in (code, console)))
    return f"{sys.executable} -m streamkit replay {path}"


def without_time(screen: str) -> str:
    """The screen without how long the code ran, which stands there where the machine was so busy that it took a second."""
    return re.sub(r"\n  took \d+ s *$", "", screen, flags=re.MULTILINE)


def expected(width: int) -> list[str]:
    """What stands there in the end."""
    paragraph = " ".join(["A paragraph with bold words."] * 6)
    return [
        *textwrap.wrap(paragraph, width),
        "",
        " • first",
        " • second",
        "",
        "── python",
        "  1 import time",
        "  2 for n in range(3):",
        "  3     print(n)",
        "",
        "│ 110% ###########",
        "│ done",
        "",
        "The last ␛[31mwords �are here.",
        "",
        "─ completed",
        "exit code 0",
    ]


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 5)])
def test_settled_parts_are_on_the_screen_once(
    columns: int, rows: int, terminals: list[Terminal], tmp_path: Path
) -> None:
    """Though it was redrawn many times and has scrolled; and the cursor is visible."""
    terminal = open_terminal(terminals, tmp_path, program(tmp_path), columns, rows)
    seen = terminal.wait("exit code")
    assert lines_of(without_time(seen[-1])) == expected(columns)
    assert terminal.cursor
    growing = {screen.split("\n\n")[0] for screen in seen}
    assert len(growing) > 5  # text was seen to arrive
    assert any("❱ 3     print(n)" in screen for screen in seen)
    bars = {found[1] for screen in seen if (found := re.search(r"│ (\d+)% #", screen))}
    assert len(bars) > 3
    assert not [screen for screen in seen if len(re.findall(r"│ \d+% #", screen)) > 1]


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[(120, 30)], [(50, 24), (30, 10), (80, 24)]], ids=str)
def test_a_terminal_may_be_resized_meanwhile(
    sizes: list[tuple[int, int]], terminals: list[Terminal], tmp_path: Path
) -> None:
    """Redrawing leaves nothing behind; all text is there, in its order, once."""
    # On a screen with space left, tmux puts the first lines out of reach when it becomes narrower.
    terminal = open_terminal(terminals, tmp_path, f"seq 40; echo; {program(tmp_path)}")
    for columns, rows in sizes:
        terminal.wait("paragraph")
        time.sleep(0.3)  # in the middle of it
        terminal.resize(columns, rows)
    words = without_time(terminal.wait("exit code")[-1]).split()
    assert " ".join(words[40:]) == " ".join(" ".join(expected(1000)).split())
    assert terminal.cursor


@pytest.mark.slow
def test_the_demo_is_live_on_a_terminal(terminals: list[Terminal], tmp_path: Path, programs: Forks) -> None:
    """Its text appears bit by bit; in the end it is there once, with the summary below."""
    line = programs.line("streamkit", "demo", "--yes")
    opened = [open_terminal(terminals, tmp_path, line, *size) for size in ((80, 24), (40, 15))]
    with ThreadPoolExecutor() as both:  # looked at side by side
        all_seen = both.map(lambda terminal: terminal.wait("exit code"), opened)
    for terminal, seen in zip(opened, all_seen, strict=True):
        last = "\n".join(lines_of(seen[-1]))
        assert "LiveDisplay()" in last
        story = last[last.index("You: ") : last.index("6 messages, completed:")]
        told = re.sub(r"[┊│↳\s]", "", story)
        told = re.sub(r"took\d+s", "", told)  # on a busy machine
        code = "".join(f"{number} {line}" for number, line in enumerate(CODE.splitlines(), 1))
        assert told == re.sub(
            r"\s",
            "",
            f"""You: What does one turn of a sine look like? I can compute this, and draw it. A few lines of Python will do.
            Let me measure it, and draw it. ── python {code}
            ? may this code run? ✓ approved
            {PRINTED}
            It rises from 0 to 1 in the first quarter, falls through 0 to -1, and comes back.
            (Two responses and a run of code were needed for this answer, and it was one stream.)""",
        )
        states = [
            {found[0] for screen in seen if (found := re.search(f"{start}.*", screen))}
            for start in ("I can compute", "Let me measure", "It rises")
        ]
        assert max(map(len, states)) > 1  # on a busy machine few of its states are seen
        assert terminal.cursor


def test_into_a_pipe_it_is_printed_without_escape_sequences(terminals: list[Terminal], tmp_path: Path) -> None:
    """Not a single one."""
    out = tmp_path / "out"
    terminal = open_terminal(terminals, tmp_path, f"{replay(tmp_path)} | tee {out}")
    terminal.wait("exit code")
    text = out.read_text()
    assert "\x1b" not in text
    assert "[code python]\nprint(1)\n[console output]\n1\n" in text


def test_no_color_turns_colours_off(terminals: list[Terminal], tmp_path: Path) -> None:
    """It is redrawn all the same."""
    terminal = open_terminal(terminals, tmp_path, program(tmp_path), NO_COLOR="1")
    terminal.wait("exit code")
    assert lines_of(without_time(terminal.screen)) == expected(80)
    assert {int(code) for group in re.findall("\x1b\\[([0-9;]*)m", terminal.codes) for code in group.split(";")} <= {
        *(0, 1, 2, 3, 4, 39, 49)  # the last two are the terminal's own colours
    }
    assert any("\x1b[2m" in line for line in terminal.codes.splitlines())


@pytest.mark.slow
def test_a_dumb_terminal_gets_no_escape_sequences(terminals: list[Terminal], tmp_path: Path) -> None:
    """The command line prints as the stream arrives."""
    out = tmp_path / "log"
    line = f"script -qec '{replay(tmp_path)}' {out}"
    if shutil.which("script") is None:
        pytest.skip("script is not installed")
    terminal = open_terminal(terminals, tmp_path, f"TERM=dumb {line}")
    last = terminal.wait("exit code")[-1]
    assert "[code python]" in last
    assert "\x1b" not in out.read_text()


def test_ctrl_c_leaves_a_tidy_terminal(terminals: list[Terminal], tmp_path: Path) -> None:
    """What had arrived stays, the cursor is visible, and the next print begins a line."""
    code = """
    try:
        sk.stream(items(), LiveDisplay(), protocol="open_interpreter").until_done()
    except KeyboardInterrupt:
        print("stopped")
    """
    terminal = open_terminal(terminals, tmp_path, "trap : INT; " + program(tmp_path, code))
    terminal.wait("A paragraph with bold words.")
    terminal.type("C-c")
    last = lines_of(terminal.wait("exit code")[-1])
    assert last[0].startswith("A paragraph with bold words.")
    assert last[-2:] == ["stopped", "exit code 0"]
    assert terminal.cursor


def test_killed_it_leaves_a_usable_terminal(terminals: list[Terminal], tmp_path: Path) -> None:
    """The cursor is visible and long lines wrap, though nothing could be restored."""
    code = """
    import os, signal, threading
    threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGKILL)).start()
    sk.stream(items(), LiveDisplay(), protocol="open_interpreter").until_done()
    """
    line = f"{program(tmp_path, code)}; clear; echo {'x' * 100}"
    terminal = open_terminal(terminals, tmp_path, line)
    last = lines_of(terminal.wait("exit code")[-1])
    assert terminal.cursor
    assert last[-3:] == ["x" * 80, "x" * 20, "exit code 0"]


def test_a_handler_can_ask_the_user(terminals: list[Terminal], tmp_path: Path) -> None:
    """With `input`: the question and its answer stay where they were typed."""
    code = """
    class Asks(sk.EventHandler):
        def on_confirmation(self, confirmation):
            confirmation.approve() if input("run it? ") == "y" else confirmation.decline()

    def agent():
        code = {"role": "assistant", "type": "code", "format": "python"}
        yield {**code, "start": True, "content": "print(1)", "end": True}
        question = {"type": "code", "format": "python", "content": "print(1)"}
        yield {"role": "computer", "type": "confirmation", "format": "execution", "content": question}
        yield {"role": "computer", "type": "console", "format": "output", "content": "1", "start": True, "end": True}

    handlers = (LiveDisplay(), Asks()) if FIRST else (Asks(), LiveDisplay())
    sk.stream(agent(), *handlers, protocol="open_interpreter").until_done()
    """
    for first in (True, False):
        story = program(tmp_path, code.replace("FIRST", str(first)))
        terminal = open_terminal(terminals, tmp_path, story)
        terminal.wait("run it?")
        time.sleep(0.4)  # a person reads it
        terminal.type("y", "Enter")
        last = [line for line in lines_of(without_time(terminal.wait("exit code")[-1])) if line]
        asked = ["? may this code run?", "run it? y"] if first else ["run it? y", "? may this code run?"]
        assert last == ["── python", "  1 print(1)", *asked, "✓ approved", "│ 1", "─ completed", "exit code 0"]


def test_on_an_ascii_terminal_it_is_drawn_in_ascii(terminals: list[Terminal], tmp_path: Path) -> None:
    """Nothing fails, and every line has its width."""
    line = f"PYTHONUTF8=0 PYTHONIOENCODING=ascii LC_ALL=C {program(tmp_path)}"
    terminal = open_terminal(terminals, tmp_path, line)
    last = lines_of(terminal.wait("exit code")[-1])
    assert " * first" in last
    assert "| 110% ###########" in last
    assert last[-1] == "exit code 0"
    assert "\n".join(last).isascii()


SLOW = """
import openai
from streamkit.testing import ModelServer, Reply

def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.01)

def reply(request):
    wait_for("{go}")
    return Reply("It is cold.")

with ModelServer(reply) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
    stream = sk.Agent(client, model="m").stream("Is it cold?", LiveDisplay())
    print("The stream is made.")
    wait_for("{start}")
    stream.until_done()
"""


def test_from_the_request_on_the_screen_says_for_how_long_the_model_works(
    terminals: list[Terminal], tmp_path: Path, programs: Forks
) -> None:
    go, start = tmp_path / "go", tmp_path / "start"
    program(tmp_path, SLOW.format(go=go, start=start))
    terminal = open_terminal(terminals, tmp_path, programs.line(str(tmp_path / "story.py")))
    before = terminal.wait("The stream is made.")[-1]
    start.touch()
    terminal.wait("Working 1 s")
    assert terminal.wait("Working 2 s")[-1].count("Working") == 1
    go.touch()
    after = terminal.wait("exit code 0")[-1]
    assert "Working" not in before + after and "It is cold." in after


def test_a_message_that_stops_growing_is_followed_by_how_long_nothing_arrived(
    terminals: list[Terminal], tmp_path: Path
) -> None:
    silence = f"""
        def silent():
            message = {{"role": "assistant", "type": "message"}}
            yield {{**message, "start": True}}
            yield {{**message, "content": "One moment."}}
            while not os.path.exists({str(tmp_path / "go")!r}):
                time.sleep(0.01)
            yield {{**message, "content": " Here it is.", "end": True}}

        sk.stream(silent(), LiveDisplay(), protocol="open_interpreter").until_done()
    """
    terminal = open_terminal(terminals, tmp_path, program(tmp_path, silence))
    shown = lines_of(terminal.wait("Working 2 s")[-1])
    assert shown[0] == "One moment." and shown[1] == "" and shown[2].endswith("Working 2 s")
    (tmp_path / "go").touch()
    assert lines_of(terminal.wait("exit code 0")[-1])[0] == "One moment. Here it is."
