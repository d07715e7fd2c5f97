"""`streamkit chat`, as a person has it: in a terminal, on a scripted model, with code that really runs."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .forked import Forks
from .terminals import ROOT, TMUX, Terminal

pytest.importorskip("IPython", reason="what runs Python is not installed: pip install 'streamkit-sdk[computer]'")
on_terminal = pytest.mark.skipif(TMUX is None, reason="tmux is not installed")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def runs(source: str, language: str = "python") -> Reply:
    """The model writes code."""
    return Reply(ToolCall("execute", {"language": language, "code": source}))


PROGRAMS: Forks


@pytest.fixture(scope="module", autouse=True)
def run_by(programs: Forks) -> None:
    """What runs `streamkit chat`."""
    global PROGRAMS
    PROGRAMS = programs


class Talk:
    """`streamkit chat` in a terminal, and the model that it talks to."""

    def __init__(self, folder: Path, home: Path, replies: Sequence[Reply], columns: int, **environment: str) -> None:
        self.server = ModelServer(replies)
        self.server.__enter__()
        line = PROGRAMS.line("streamkit", "chat", "--base-url", self.server.url)
        homes = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        self.terminal = Terminal(folder / "tmux", line, columns, 40, **homes, **environment)
        self.terminal.wait("\n>")

    def say(self, *lines: str) -> None:
        for line in lines:
            self.terminal.type(line, "Enter")

    def wait(self, until: str, times: int = 1) -> str:
        return self.terminal.wait(until, times)[-1]

    def sent(self, number: int = -1) -> str:
        """A request to the model, as text; by default the newest."""
        return json.dumps(self.server.requests[number].body, ensure_ascii=False)

    def close(self) -> None:
        self.terminal.close()
        self.server.__exit__(None, None, None)


Open = Callable[..., Talk]


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Open]:
    """Opens chats with these replies, which are closed after the test."""
    opened: list[Talk] = []

    def open_chat(*replies: Reply, columns: int = 80, **environment: str) -> Talk:
        folder = tmp_path / f"chat{len(opened)}"
        folder.mkdir()
        opened.append(Talk(folder, tmp_path / "home", replies, columns, **environment))
        return opened[-1]

    yield open_chat
    for talk in opened:
        talk.close()


@on_terminal
def test_a_person_talks_and_says_yes(chat: Open) -> None:
    """The code is shown, approved, and run. Its output goes back to the model, whose answer follows."""
    talk = chat(runs("print(6 * 7)"), Reply("It is forty-two."))
    talk.say("What is six times seven?")
    talk.wait("Run this python? [y]es [n]o [e]dit [a]lways:")
    assert "print(6 * 7)" in talk.terminal.screen
    assert "│ 42" not in talk.terminal.screen, "nothing ran before the yes"
    talk.say("y")
    screen = talk.wait("It is forty-two.")
    assert "│ 42" in screen
    assert "What is six times seven?" in talk.sent()
    assert "42" in talk.sent()
    talk.wait("\n>", 2)
    talk.say("/exit")
    talk.wait("exit code 0")


@on_terminal
def test_no_ends_the_answer_and_a_reason_goes_to_the_model(chat: Open, tmp_path: Path) -> None:
    """Nothing runs either way. After an answer that is not understood the question comes again."""
    write = f"open({str(tmp_path / 'ran')!r}, 'w')"
    talk = chat(runs(write), runs(write), Reply("Then not."))
    talk.say("Do it.")
    talk.wait("[a]lways:")
    talk.say("perhaps")
    talk.wait("[a]lways:", 2)
    talk.say("n")
    talk.wait("✗ declined")
    talk.wait("\n>", 2)
    talk.say("Do it now.")
    talk.wait("[a]lways:", 3)
    talk.say("n it is not mine")
    talk.wait("Then not.")
    assert "it is not mine" in talk.sent()
    assert not Path(tmp_path, "ran").exists()


@on_terminal
def test_edited_code_runs_in_its_place(chat: Open, tmp_path: Path) -> None:
    """In the editor that the environment names. The model reads the edited code."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/secret/harmless/ "$1"\n')
    editor.chmod(0o755)
    talk = chat(runs("print('the ' + 'secret')"), Reply("Good."), EDITOR=str(editor))
    talk.say("Tell me.")
    talk.wait("[a]lways:")
    talk.say("e")
    screen = talk.wait("Good.")
    assert "│ the harmless" in screen
    assert "'the ' + 'harmless'" in talk.sent()


@on_terminal
def test_without_an_editor_the_code_is_typed_anew(chat: Open, tmp_path: Path) -> None:
    """Up to a line with a dot. Here no editor is named, and neither vi nor nano is on the path."""
    talk = chat(runs("print('theirs')"), Reply("Good."), PATH=str(tmp_path))
    talk.say("Tell me.")
    talk.wait("[a]lways:")
    talk.say("e", "for word in ['mine']:", "    print(word)", ".")
    assert "│ mine" in talk.wait("Good.")


@pytest.mark.slow
@on_terminal
def test_where_no_editor_is_named_vi_or_nano_edits(chat: Open, tmp_path: Path) -> None:
    """Whichever there is, here the second."""
    editor = tmp_path / (name := "nano")
    editor.write_text(f'#!/bin/sh\n{shutil.which("sed")} -i s/secret/{name}/ "$1"\n')
    editor.chmod(0o755)
    talk = chat(runs("print('in ' + 'secret')"), Reply("Good."), PATH=str(tmp_path))
    talk.say("Tell me.")
    talk.wait("[a]lways:")
    talk.say("e")
    assert f"│ in {name}" in talk.wait("Good.")


@on_terminal
def test_looking_at_the_code_is_not_a_yes(chat: Open) -> None:
    """Nor is an edit that leaves nothing, nor a yes with a but: the question comes again."""
    talk = chat(runs("print('ran' + ' it')"), EDITOR="true")
    talk.say("Tell me.")
    talk.wait("[a]lways:")
    talk.say("e")
    talk.wait("Nothing was changed.")
    talk.wait("[a]lways:", 2)
    talk.say("yes but not now")
    talk.wait("[a]lways:", 3)
    talk.say("n")
    assert "ran it" not in talk.wait("✗ declined")


@on_terminal
def test_what_was_typed_before_the_question_is_not_an_answer(chat: Open) -> None:
    """As the second line of a text that was pasted."""
    call = ToolCall("execute", {"language": "python", "code": "print('ran' + ' it')"})
    talk = chat(Reply(Text("word " * 40), call, delay=0.01))
    talk.say("Tell me.")
    talk.wait("word word")
    talk.say("y")
    talk.wait("[a]lways:")
    talk.say("n")
    assert "ran it" not in talk.wait("✗ declined")
    assert "approved" not in talk.terminal.screen


@on_terminal
def test_a_narrow_terminal_cuts_no_word(chat: Open) -> None:
    """The answers to the question are on one line."""
    talk = chat(runs("print(1)"), columns=40)
    talk.say("Tell me.")
    screen = talk.wait("[y]es [n]o [e]dit [a]lways:")
    assert "/help lists the commands; Ctrl-C stops\nan answer" in screen


@pytest.mark.slow
@on_terminal
def test_always_is_not_asked_again(chat: Open) -> None:
    """For this chat, in later answers too."""
    talk = chat(runs("a = 1"), runs("print('a is', a)"), Reply("One."), runs("print(a + 1)"), Reply("Two."))
    talk.say("Count.")
    talk.wait("[a]lways:")
    talk.say("a")
    assert "│ a is 1" in talk.wait("One.")
    talk.say("On.")
    assert "│ 2" in talk.wait("Two.")
    assert talk.terminal.screen.count("[a]lways:") == 1


@pytest.mark.slow
@on_terminal
def test_always_can_be_taken_back(chat: Open) -> None:
    """With /ask, and with a new conversation. The prompt says that nobody is asked."""
    talk = chat(*(reply for n in range(3) for reply in (runs(f"n = {n}"), Reply(f"Answer {n}."))))
    talk.say("Go.")
    talk.wait("[a]lways:")
    assert "n and a reason: tell the model why not." in talk.terminal.screen
    talk.say("a")
    talk.wait("Answer 0.")
    talk.wait("\nalways runs code >")
    talk.say("/help")
    talk.wait("/ask")
    talk.say("/ask")
    talk.wait("\n>", 2)
    talk.say("Go on.")
    talk.wait("[a]lways:", 2)
    talk.say("a")
    talk.wait("Answer 1.")
    talk.say("/new")
    talk.wait("\n>", 3)
    talk.say("Again.")
    talk.wait("[a]lways:", 3)
    talk.say("y")
    talk.wait("Answer 2.")


@pytest.mark.slow
@on_terminal
def test_a_pasted_text_is_one_message(chat: Open) -> None:
    """Of ten lines here, the last without an end. It is sent with Enter, and is one entry of the history."""
    pasted = "\n".join(f"line {n} of the paste" for n in range(10))
    talk = chat(Reply("Ten lines."), Reply("Once more."))
    talk.terminal.paste(pasted)
    talk.wait("line 9 of the paste")
    assert not talk.server.requests, "nothing is sent before Enter"
    talk.say("")
    talk.wait("Ten lines.")
    assert len(talk.server.requests) == 1
    assert json.dumps(pasted)[1:-1] in talk.sent()
    talk.wait("\n>", 2)
    talk.terminal.type("Up", "Enter")
    talk.wait("Once more.")
    assert talk.sent().count(json.dumps(pasted)[1:-1]) == 2


@pytest.mark.slow
@on_terminal
def test_keys_that_are_pressed_during_an_answer_do_not_stand_in_it(chat: Open) -> None:
    """The next line begins with them."""
    talk = chat(Reply("word " * 40, delay=0.01), Reply("Good."))
    talk.say("Tell me.")
    talk.wait("word word")
    talk.terminal.type("next ques")
    talk.wait("\n> next ques")
    answer = talk.terminal.screen.partition("Tell me.")[2].partition("\n>")[0]
    assert answer.split() == ["word"] * 40
    talk.say("tion")
    talk.wait("Good.")
    assert "next question" in talk.sent()


@pytest.mark.slow
@on_terminal
def test_undo_forgets_the_last_question(chat: Open) -> None:
    """And its answer; the model does not get them again."""
    talk = chat(Reply("One."), Reply("Two."), Reply("Three."))
    for question, answer in (("First?", "One."), ("Second?", "Two.")):
        talk.say(question)
        talk.wait(answer)
    talk.say("/undo")
    talk.wait("forgotten: Second?")
    talk.say("Third?")
    talk.wait("Three.")
    assert "First?" in talk.sent()
    assert "Second?" not in talk.sent()
    assert "Two." not in talk.sent()
    talk.say("/undo", "/undo", "/undo")
    talk.wait("there is nothing to undo")


@pytest.mark.slow
@on_terminal
def test_ctrl_c_while_the_model_thinks_or_writes_is_one_notice(chat: Open) -> None:
    """And a clean prompt."""
    talk = chat(Reply("never", first_delay=60), Reply("Rivers remember", never_ends=True), Reply("Here."))
    talk.say("Think.")
    while not talk.server.requests:
        time.sleep(0.01)  # nothing on the screen says that it was sent
    talk.terminal.type("C-c")
    talk.wait("\n(stopped)\n>")
    talk.say("Write.")
    talk.wait("Rivers remember")
    talk.terminal.type("C-c")
    talk.wait("Rivers remember\n(stopped)\n>")
    talk.say("Well?")
    talk.wait("Here.")
    assert "(cancelled)" not in talk.terminal.screen


@pytest.mark.slow
@on_terminal
def test_ctrl_c_stops_the_run_and_not_the_program(chat: Open) -> None:
    """Code that runs, a text that never ends, a question, and a line that is typed: each time the chat goes on."""
    loop = "import time\nprint('going')\nwhile True:\n    time.sleep(0.01)"
    talk = chat(
        runs(loop),
        Reply("Rivers remember", never_ends=True),
        runs("print('never')"),
        Reply("I am still here."),
    )
    talk.say("Loop.")
    talk.wait("[a]lways:")
    talk.say("y")
    talk.wait("│ going")
    talk.terminal.type("C-c")
    talk.wait("(stopped)")
    talk.say("Write.")
    talk.wait("Rivers remember")
    assert "interrupted" in talk.sent(), "the model knows that its code was stopped"
    talk.terminal.type("C-c")
    talk.wait("(stopped)", 2)
    talk.say("Ask.")
    talk.wait("[a]lways:", 2)
    talk.terminal.type("C-c")
    talk.wait("(stopped)", 3)
    talk.terminal.type("half a line", "C-c")
    talk.wait("(Ctrl-D exits)")
    talk.say("Well?")
    assert "never" not in talk.wait("I am still here.").replace("print('never')", "")
    talk.terminal.type("C-d")
    talk.wait("exit code 0")


@pytest.mark.slow
@on_terminal
def test_ctrl_c_at_a_question_runs_nothing(chat: Open, tmp_path: Path) -> None:
    """Not even after a yes that was half typed, and none of several calls. The model reads that they did not run, and the next
    question is answered and runs once."""
    ran = tmp_path / "ran"

    def marks(word: str) -> ToolCall:
        code = f"with open({str(ran)!r}, 'a') as file:\n    print('{word}', file=file)\nprint('ran', '{word}')"
        return ToolCall("execute", {"language": "python", "code": code})

    talk = chat(Reply(marks("one"), marks("two")), Reply(marks("three")), Reply("Three it is."))
    talk.say("Do both.")
    talk.wait("[a]lways:")
    talk.terminal.type("ye")
    talk.wait("[a]lways: ye")
    talk.terminal.type("C-c")
    screen = talk.wait("(stopped)\n>")
    assert "✗ declined: not answered\n(stopped)\n>" in screen
    assert screen.count("[a]lways:") == 1, "the second call is not asked about"
    assert not ran.exists()
    assert len(talk.server.requests) == 1
    talk.say("Do the third.")
    talk.wait("[a]lways:", 2)
    assert talk.sent().count("Not run: ") == 2
    talk.say("y")
    screen = talk.wait("Three it is.")
    assert "│ ran three" in screen
    assert ("│ ran one" in screen, "│ ran two" in screen) == (False, False)
    assert ran.read_text().split() == ["three"]
    assert screen.count("(stopped)") == 1


@pytest.mark.slow
@on_terminal
def test_ctrl_c_while_a_command_runs_ends_it(chat: Open, tmp_path: Path) -> None:
    """What it printed stands there, the model reads that it was interrupted, and the same shell runs the next one."""
    ran = tmp_path / "ran"
    mark = f"echo once >> {shlex.quote(str(ran))}"
    talk = chat(
        runs(f"{mark}; echo going; sleep 600; {mark}", "shell"),
        Reply("Then not."),
        runs(f"{mark}; echo here again", "shell"),
        Reply("Good."),
    )
    talk.say("Wait.")
    talk.wait("[a]lways:")
    talk.say("y")
    talk.wait("│ going")
    talk.terminal.type("C-c")
    screen = talk.wait("(stopped)\n>")
    assert re.search(r"│ going\n( +took \d+ s\n)?\(stopped\)\n>", screen)
    assert len(talk.server.requests) == 1, "the model does not go on by itself"
    talk.say("Well?")
    screen = talk.wait("Then not.")
    assert "interrupted before it finished" in talk.sent()
    assert screen.count("[a]lways:") == 1, "it is not asked about, or run, again"
    talk.wait("\n>", 3)
    talk.say("Once more.")
    talk.wait("[a]lways:", 2)
    talk.say("y")
    assert "│ here again" in talk.wait("Good.")
    assert ran.read_text().split() == ["once", "once"], "each command ran once, and the first not to its end"


# A chat with a function as a tool. It runs in the program itself, and looks whether the answer was stopped.
WITH_A_FUNCTION = """
import sys, time, openai
import streamkit as sk
from streamkit.agent import ToolContext
from streamkit.cli.chat import Chat
from streamkit.cli.prompt import terminal_asker

def look_up(word: str, context: ToolContext) -> str:
    "Look a word up."
    print("looking up", word, flush=True)
    while word == "rivers" and not context.stream.is_closing:
        time.sleep(0.01)
    return f"found {word}"

client = openai.OpenAI(base_url=sys.argv[1], api_key="any")
print("a chat with a function")
sys.exit(Chat(sk.Agent(client, model="any", tools=[look_up]), terminal_asker()).run())
"""


@pytest.mark.slow
@on_terminal
def test_ctrl_c_while_a_function_runs_stops_the_answer(tmp_path: Path) -> None:
    """A function that is a tool ends by itself. It is not called again, the model does not go on, and the next question is
    answered, with another call."""
    program = tmp_path / "program.py"
    program.write_text(WITH_A_FUNCTION)
    replies = (
        Reply(ToolCall("look_up", {"word": "rivers"})),
        Reply("Then not."),
        Reply(ToolCall("look_up", {"word": "lakes"})),
        Reply("Lakes are deep."),
    )
    with ModelServer(replies) as server:
        terminal = Terminal(tmp_path / "tmux", PROGRAMS.line(str(program), server.url), 80, 40, HOME=str(tmp_path))
        try:
            terminal.wait("function\n>")
            terminal.type("Look.", "Enter")
            terminal.wait("looking up rivers")
            terminal.type("C-c")
            terminal.wait("looking up rivers\n(stopped)\n>")
            assert len(server.requests) == 1
            terminal.type("Well?", "Enter")
            terminal.wait("Then not.\n>")
            terminal.type("Lakes?", "Enter")
            screen = terminal.wait("Lakes are deep.\n>")[-1]
        finally:
            terminal.close()
        assert [screen.count(f"looking up {word}") for word in ("rivers", "lakes")] == [1, 1]
        assert "└ found lakes" in screen
        assert len(server.requests) == 4
        assert json.dumps(server.requests[-1].body).count("found rivers") == 1, "what it returned all the same"


@on_terminal
def test_a_picture_is_saved_and_its_path_is_shown(chat: Open, tmp_path: Path) -> None:
    """Where the code displays it, among what the code prints. The path is on one line, so that it can be copied."""
    data = base64.b64decode(PIXEL)
    show = f"""
        import base64
        from IPython.display import Image, display
        print("before")
        display(Image(base64.b64decode("{PIXEL}")))
        print("after")
    """
    talk = chat(runs(textwrap.dedent(show).strip()), Reply("A pixel."), columns=200)
    talk.say("Draw.")
    talk.wait("[a]lways:")
    assert not [*tmp_path.rglob("*.png")]
    talk.say("y")
    screen = talk.wait("A pixel.")
    (path,) = tmp_path.rglob("*.png")
    assert path.read_bytes() == data
    assert screen.count(str(path)) == 1
    _, _, output = screen.partition("approved")
    assert [*map(output.index, ("│ before", str(path), "│ after"))] == sorted(
        map(output.index, ("│ before", str(path), "│ after"))
    )
    assert "image_url" in talk.sent(), "the model sees it too"


@pytest.mark.slow
@on_terminal
def test_what_was_typed_is_there_again(chat: Open, tmp_path: Path) -> None:
    """With the arrow keys, in the next chat too. Only its owner can read the file."""
    talk = chat(Reply("One."))
    talk.say("A first question.")
    talk.wait("One.")
    talk.wait("\n>", 2)
    talk.terminal.type("C-d")
    talk.wait("exit code 0")
    (path,) = tmp_path.rglob("chat_history")
    assert path.stat().st_mode & 0o077 == 0
    with path.open("r+b") as history:  # one that has grown long is cut in half
        newest = history.read()
        history.seek(0)
        history.write(b"\n# 2026-01-01 00:00:00\n+an old question" * 30_000 + newest)
    again = chat(Reply("Two."))
    again.terminal.type("Up", "Enter")
    again.wait("Two.")
    assert "A first question." in again.sent()
    assert 500_000 < path.stat().st_size < 700_000


@on_terminal
def test_a_conversation_is_saved_forgotten_and_loaded(chat: Open, tmp_path: Path) -> None:
    """As JSON; commands that do not work say so and change nothing."""
    talk = chat(Reply("Noted."), Reply("Who are you?"), Reply("Alpha."))
    talk.say("My name is Alpha.")
    talk.wait("Noted.")
    path = tmp_path / "talk.json"
    talk.say(f"/save {path}", "/new", "Who am I?")
    talk.wait("Who are you?")
    assert "Alpha" not in talk.sent()
    assert [message["content"] for message in json.loads(path.read_text())] == ["My name is Alpha.", "Noted."]
    talk.say(f"/load {path}")
    talk.wait("loaded 2 messages")
    talk.say("/load /no/such/file")
    talk.wait("streamkit: /no/such/file")
    talk.say("/what")
    talk.wait("/save FILE")
    talk.say("And now?")
    talk.wait("Alpha.", 2)
    assert "My name is Alpha." in talk.sent()


@on_terminal
def test_what_fails_is_a_line_and_the_chat_goes_on(chat: Open) -> None:
    """What had arrived stands there. A question whose answer failed gives way to the next one."""
    talk = chat(Reply("Rivers remember", error_after=1), Reply(status=401), Reply("Here."))
    talk.say("One.")
    talk.wait("streamkit: ")
    talk.say("Two.")
    talk.wait("HTTP status 401")
    talk.wait("(/undo takes the question back)", 2)
    talk.say("/undo", "Three.")
    talk.wait("Here.")
    assert "Three." in talk.sent()
    assert "One." not in talk.sent()
    assert "Two." not in talk.sent()


CLEAN = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"}


def pipe(text: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`streamkit chat` where its input is no terminal."""
    return PROGRAMS.run("streamkit", "chat", *options, env=CLEAN | environment, answers=text, cwd=Path.cwd())


def start(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The same with a pipe, started as a person does."""
    command = [sys.executable, "-m", "streamkit", "chat", *options]
    return subprocess.run(command, env=CLEAN, input=text, capture_output=True, text=True, timeout=300)


def test_piped_in_each_line_is_a_question_and_no_code_runs() -> None:
    """There is no terminal to ask at, so code is declined. A line of the pipe is not an answer."""
    with ModelServer([runs("print(6 * 7)"), Reply("Hello.")]) as server:
        result = start("What is it?\ny\n", "--base-url", server.url)
        assert len(server.requests) == 2
    assert (result.returncode, result.stderr) == (0, "")
    assert "[confirmation] declined" in result.stdout
    assert "42" not in result.stdout
    assert "[message] Hello." in result.stdout


def test_auto_run_does_not_ask() -> None:
    """The code and its output are printed as usual."""
    with ModelServer([runs("print(6 * 7)"), runs("echo $((6 * 8))", "shell"), Reply("There.")]) as server:
        result = pipe("What is it?\n", "--base-url", server.url, "--auto-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert "confirmation" not in result.stdout
    assert "[console output]\n42\n" in result.stdout
    assert "[console output]\n48\n" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--no-images"]])
def test_a_model_that_takes_no_images_gets_none(options: list[str], tmp_path: Path) -> None:
    """Pictures are saved for the person either way."""
    show = f"import base64; from IPython.display import Image, display; display(Image(base64.b64decode('{PIXEL}')))"
    with ModelServer([runs(show), Reply("There.")]) as server:
        result = pipe("Draw.\n", "--base-url", server.url, "--auto-run", *options, XDG_DATA_HOME=str(tmp_path))
        assert ("image_url" in json.dumps(server.requests[1].body)) is not bool(options)
    assert (result.returncode, result.stderr) == (0, "")
    (path,) = tmp_path.rglob("*.png")
    assert f"[image base64.png] {path}" in result.stdout


def test_a_failure_in_a_pipe_is_the_exit_code() -> None:
    """One line on stderr."""
    with ModelServer(Reply(status=401)) as server:
        result = pipe("Hello?\n", "--base-url", server.url)
    assert result.returncode == 1
    assert result.stderr.startswith("streamkit: the server answered with HTTP status 401")
    assert result.stderr.count("\n") == 1


WITHOUT_FORK = """
import os, sys
import streamkit.agent, streamkit.cli.chat, streamkit.cli.demo
del os.fork
sys.modules["streamkit.computer"] = None
sys.exit(streamkit.cli.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_where_code_cannot_run_the_chat_goes_without(tmp_path: Path) -> None:
    """As on Windows. The model is not offered what runs code; the demo says what it needs."""
    program = tmp_path / "program.py"
    program.write_text(WITHOUT_FORK)

    def main(*arguments: str) -> subprocess.CompletedProcess[str]:
        return PROGRAMS.run(str(program), *arguments, env=CLEAN, answers="Hi\n", cwd=tmp_path)

    with ModelServer(Reply("Hello.")) as server:
        result = main("chat", "--base-url", server.url)
        assert "tools" not in server.requests[0].body
        assert "execute" not in json.dumps(server.requests[0].body)
    assert (result.returncode, result.stderr) == (0, "")
    assert "[message] Hello." in result.stdout
    result = main("demo", "--offline")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "the demo runs code, which needs a POSIX system" in result.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [([], "OPENAI_API_KEY"), (["--model", "claude-sonnet-5"], "ANTHROPIC_API_KEY")],
    ids=["openai", "anthropic"],
)
def test_without_a_key_it_says_what_to_do(options: list[str], told: str) -> None:
    """The caller's mistake."""
    result = pipe("Hello?\n", *options)
    assert result.returncode == 2
    assert told in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_claude_talks_through_its_own_client() -> None:
    """The same chat, over the Messages API."""
    pytest.importorskip("anthropic", reason="anthropic's client is not installed")
    with ModelServer([runs("print(6 * 7)"), Reply("So it is.")]) as server:
        environment = {"ANTHROPIC_API_KEY": "any", "ANTHROPIC_BASE_URL": server.root_url}
        result = pipe("What is it?\n", "--model", "claude-sonnet-5", "--auto-run", **environment)
        assert {request.path for request in server.requests} == {"/v1/messages"}
    assert (result.returncode, result.stderr) == (0, "")
    assert "[console output]\n42\n" in result.stdout
    assert "[message] So it is." in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc here")
def test_no_process_is_left() -> None:
    """When it leaves, what ran code has left too."""
    mark = f"MARK_{os.getpid()}"
    with ModelServer([runs("import os, time\nif not os.fork():\n    time.sleep(600)"), Reply("Done.")]) as server:
        result = pipe("Go.\n", "--base-url", server.url, "--auto-run", STREAMKIT_TEST_MARK=mark)
    assert result.returncode == 0
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if mark.encode() in _read(path) and path.parent.name != str(os.getpid())
    ]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
