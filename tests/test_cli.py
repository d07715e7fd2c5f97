"""The command line, with no key in its environment.

What a command prints, and its exit code, are those of `streamkit.cli.main` in this process. What only a process shows, as
signals, pipes, terminals and descriptors, is shown by a process of its own, started as a person does.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamkit as sk
from streamkit import cli, protocols
from streamkit.cli.demo import Demo
from streamkit.cli.report import explain, printable
from streamkit.cli.script import CHART
from streamkit.testing import ModelServer, Reasoning, Reply, ToolCall

from .forked import Forks
from .signals import wait_until_it_waits
from .terminals import ROOT, TMUX, Terminal

DATA = tempfile.TemporaryDirectory(prefix="streamkit-tests-")  # where the demo saves its picture
CLEAN = {
    "PATH": os.environ["PATH"],
    "PYTHONPATH": str(ROOT),
    "PYTHONUTF8": "1",
    "COLUMNS": "80",
    "XDG_DATA_HOME": DATA.name,
    "SSL_CERT_DIR": os.environ["SSL_CERT_DIR"],
}
FINAL_TEXT = (
    "It rises from 0 to 1 in the first quarter, falls through 0 to -1, and comes back.\n"
    "(Two responses and a run of code were needed for this answer, and it was one stream.)"
)
PRINTED = "".join(
    f"{step / 16:6.4f}  {(height := math.sin(2 * math.pi * step / 16)):+.2f}  {' ' * round(10 + 10 * height)}*\n"
    for step in range(16)
)


def run(
    *arguments: str | Path, answers: str = "", encoding: str = "utf-8", **environment: str
) -> subprocess.CompletedProcess[str]:
    """`streamkit …` in this process, with these answers on stdin, as `subprocess.run` does it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, newline="") for _ in range(2))
    with (
        patch.dict(os.environ, CLEAN | environment, clear=True),
        patch("sys.stdin", io.StringIO(answers)),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code: object = cli.main([*map(str, arguments)])
        except SystemExit as exit:  # of argparse
            code = exit.code
    assert isinstance(code, int)
    for file in (out, err):
        file.flush()
    texts = (file.buffer.getvalue().decode() for file in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess([*map(str, arguments)], code, *texts)


def start(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same, started as a person does."""
    command = [sys.executable, "-m", "streamkit", *map(str, arguments)]
    return subprocess.run(
        command, env=CLEAN | environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )


def assert_one_line(text: str) -> None:
    assert re.fullmatch(r"streamkit: [^\n]+\n", text), text


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording of one scripted Responses stream."""
    path = tmp_path / "river.jsonl"
    script = Reply(Reasoning("Short."), "Rivers remember\nmountains.", ToolCall("look_up", {"what": "river"}))
    with (
        ModelServer(script) as server,
        openai.OpenAI(
            base_url=server.url, api_key="none", http_client=openai.DefaultHttpxClient(trust_env=False)
        ) as client,
    ):
        sk.stream(
            lambda: client.responses.create(model="m", input="Rivers?", stream=True), sk.Recorder(path)
        ).until_done()
    return path


def cut_off(path: Path) -> Path:
    """What a crash would have left of the recording: no end, and half a line."""
    lines = path.read_bytes().splitlines(keepends=True)
    texts = [number for number, line in enumerate(lines) if b"output_text.delta" in line]
    path.write_bytes(b"".join(lines[: texts[2]]) + lines[texts[2]][:40])
    return path


# -- the command itself


def test_without_a_command_it_prints_the_help() -> None:
    """The exit code is 0."""
    result = start()
    assert result.returncode == 0
    assert all(command in result.stdout for command in ("demo", "chat", "replay", "convert", "usage: streamkit"))
    assert result.stdout == run("--help").stdout


def test_it_prints_its_version() -> None:
    """In one line."""
    result = start("--version")
    assert (result.returncode, result.stdout) == (0, f"streamkit {sk._version.__version__}\n")


@pytest.mark.parametrize("command", ["demo", "chat", "serve", "replay", "convert"])
def test_every_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what the command does, not only which options there are."""
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    assert len(capsys.readouterr().out.split("\n\n")[1]) > 60


def test_help_needs_no_client() -> None:
    """The openai client is imported by the commands that use it alone."""
    code = "import sys, streamkit.cli as cli; cli.main([]); assert 'openai' not in sys.modules, 'openai'"
    result = subprocess.run([sys.executable, "-c", code], env=CLEAN, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


# -- the demo


@pytest.mark.parametrize("protocol", ["responses", "chat"])
def test_the_demo_shows_a_handler_and_its_events(protocol: str) -> None:
    """Its source first, then one stream over two responses and a run of code, then what there was."""
    result = run("demo", "--yes", "--protocol", protocol)
    assert (result.returncode, result.stderr) == (0, "")
    source, _, rest = result.stdout.partition("You: ")
    assert all(line.strip() in source for line in inspect.getsource(Demo).splitlines())
    assert "a scripted one" in source
    assert "ConsolePrinter()" in source
    assert "\x1b" not in result.stdout
    thoughts = "reasoning summary" if protocol == "responses" else "reasoning"
    assert f"[{thoughts}] I can compute this, and draw it." in rest
    assert f"[code python]\n{CHART}[confirmation] may this code run?\n[confirmation] approved\n" in rest
    assert f"[console output]\n{PRINTED}[message] " in rest
    assert f"[message] {FINAL_TEXT}" in rest
    table = rest.partition("6 messages, completed:\n")[2].split("\n\n")[0].splitlines()
    assert [row.split()[1:4] for row in table[1:]] == [
        ["assistant", "reasoning", "completed"],
        ["assistant", "message", "completed"],
        ["assistant", "tool_call", "completed"],
        ["assistant", "code", "completed"],
        ["computer", "console", "completed"],
        ["assistant", "message", "completed"],
    ]
    assert "on_reasoning_delta 18" in rest
    assert "on_confirmation 1, on_confirmation_done 1" in " ".join(rest.split())
    assert re.search(r"on_active_line ([3-9]|\d\d)", " ".join(rest.split()))
    assert "on_end 1\n" in rest
    assert re.search(r"\d+ deltas, the first after \d\.\d{3} s; [\d,]+ deltas a second\.", rest)
    assert f"The handler collected 198 characters of text and {len(PRINTED)} of output.\n" in rest


@pytest.mark.parametrize("answers", ["", "y\n"], ids=["nobody", "a pipe"])
def test_without_a_terminal_no_code_runs(answers: str) -> None:
    """It says so. A line of a pipe is not an answer. The stream ends as if the code was declined."""
    result = run("demo", answers=answers)
    assert (result.returncode, result.stderr) == (0, "")
    assert "(With --yes it will.)" in " ".join(result.stdout.split())
    assert "[confirmation] declined\n" in result.stdout
    assert "4 messages, completed:" in result.stdout
    assert "+1.00" not in result.stdout


def test_the_demo_makes_no_pauses_without_a_terminal() -> None:
    """Some 480 pauses of 0.02 s would show in the time that the stream took."""
    rate = re.search(r"([\d,]+) deltas a second", run("demo").stdout)
    assert rate
    assert int(rate[1].replace(",", "")) > 60


@pytest.mark.parametrize("how", ["base url", "key"])
def test_the_demo_asks_a_real_model_where_one_is_named(how: str) -> None:
    """With its name, our question and our tool; and says so."""
    with ModelServer(Reply("Fog.")) as server:
        options = ["--model", "big-one", "--prompt", "And in Rome?"]
        if how == "key":
            result = run("demo", *options, OPENAI_API_KEY="secret", OPENAI_BASE_URL=server.url)
        else:
            result = run("demo", *options, "--base-url", server.url)
        (request,) = server.requests
    assert (result.returncode, result.stderr) == (0, "")
    assert "a real one, big-one at" in result.stdout
    assert "a scripted one" not in result.stdout
    assert "[message] Fog.\n" in result.stdout
    assert request.body["model"] == "big-one"
    said = request.body["input"] if how == "key" else request.body["messages"]
    assert [(item["role"], item["content"]) for item in said] == [("user", "And in Rome?")]
    tool = request.body["tools"][0]
    assert (tool if how == "key" else tool["function"])["name"] == "execute"
    assert request.headers["authorization"] == ("Bearer secret" if how == "key" else "Bearer none")


def test_a_model_may_call_the_tool_with_anything() -> None:
    """Arguments that the tool does not have, of types that it does not want, or none that can be read: none runs."""
    calls = [ToolCall("execute", {"language": [1], "code": 2}), ToolCall("execute", "{broken"), ToolCall("rm", {})]
    with ModelServer([Reply(*calls), Reply("Well.")]) as server:
        result = run("demo", "--yes", "--base-url", server.url)
    assert (result.returncode, result.stderr) == (0, "")
    assert "[message] Well." in result.stdout
    assert "[console" not in result.stdout


def test_offline_sends_no_request_even_where_a_key_is_set() -> None:
    """The key is not sent anywhere either."""
    with ModelServer(Reply("I am real.")) as server:
        result = run("demo", "--yes", "--offline", OPENAI_API_KEY="secret", OPENAI_BASE_URL=server.url)
        assert server.requests == []
    assert result.returncode == 0
    assert FINAL_TEXT in result.stdout


def test_the_demo_works_behind_a_proxy() -> None:
    """What the environment says of proxies does not concern this machine's loopback."""
    nowhere = "http://127.0.0.1:9"
    result = run("demo", HTTP_PROXY=nowhere, ALL_PROXY=nowhere, http_proxy=nowhere)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("reply", "told", "arrived"),
    [
        (Reply(status=401), "HTTP status 401: Incorrect API key provided.", ""),
        (Reply(status=404), "--protocol chat", ""),
        (Reply("Rivers remember mountains.", cut_after=2), "peer closed connection", "Rive"),
        (Reply("Rivers remember mountains.", error_after=2), "The server had an error", "Rive"),
    ],
    ids=["refused", "no such model", "cut off", "failed"],
)
def test_what_fails_is_one_line(reply: Reply, told: str, arrived: str) -> None:
    """No traceback; what had arrived is shown and summed up."""
    with ModelServer(reply) as server:
        result = run("demo", "--protocol", "responses", "--base-url", server.url)
    assert result.returncode == 1
    assert_one_line(result.stderr)
    assert told in result.stderr
    assert arrived in result.stdout
    assert ("1 message, " in result.stdout) == bool(arrived)


def test_a_server_that_is_not_there_is_one_line() -> None:
    """It names the address."""
    with ModelServer(Reply("")) as server:
        address = server.url
    result = run("demo", "--base-url", address)
    assert result.returncode == 1
    assert_one_line(result.stderr)
    assert "Connection refused" in result.stderr
    assert address in result.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals to a process are POSIX")
def test_ctrl_c_ends_it_quietly() -> None:
    """In the middle of a text: exit code 130, and nothing on stderr."""
    with ModelServer(Reply("Rivers remember", never_ends=True)) as server:
        command = [sys.executable, "-m", "streamkit", "demo", "--base-url", server.url]
        with subprocess.Popen(
            command, env=CLEAN, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        ) as process:
            assert process.stdout is not None
            said = b""
            while not said.endswith(b"remember"):
                said += os.read(process.stdout.fileno(), 1)
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=300)
        assert (process.returncode, errors) == (130, b"")
        assert b"1 message, cancelled:" in rest
        assert server.wait_for_disconnect()


INTERRUPTED_ELSEWHERE = """\
import signal, sys, threading

import openai

import streamkit as sk
from streamkit.cli.ctrl_c import stopped_by_ctrl_c


class Interrupts(sk.EventHandler):
    def on_message_created(self, message):
        threading.Timer(0.5, signal.raise_signal, [signal.SIGINT]).start()


client = openai.OpenAI(base_url=sys.argv[1], api_key="none", timeout=300)
source = client.chat.completions.create(model="m", messages=[], stream=True)
with sk.stream(source, Interrupts()) as stream, stopped_by_ctrl_c(stream):
    stream.until_done()
print(stream.status)
"""


@pytest.mark.skipif(os.name == "nt", reason="signals to a process are POSIX")
def test_ctrl_c_stops_a_read_that_it_does_not_wake(programs: Forks, tmp_path: Path) -> None:
    """The signal reaches the process, in another thread: the main thread waits for bytes and runs no handler."""
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED_ELSEWHERE)
    with ModelServer(Reply("Rivers remember", never_ends=True)) as server:
        result = programs.run(str(program), server.url, env=CLEAN, cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("cancelled\n", "")


# -- what a model says is text


EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J\x7f\r\nover\u202eturned\ttabbed"


def assert_harmless(text: str) -> None:
    bad = [c for c in text if unicodedata.category(c) == "Cc" and c not in "\n\t"] + re.findall("[\u202a-\u202e]", text)
    assert not bad, bad


@given(st.text())
def test_printable_text_commands_no_terminal(text: str) -> None:
    """Whatever it was; and nothing else of it changes."""
    shown = printable(text)
    assert_harmless(shown)
    assert printable(shown) == shown
    assert len(shown) == len(text)
    assert all(a == b for a, b in zip(text, shown, strict=True) if a.isalnum() or a in "\n\t ")


def test_printable_text_shows_what_was_there() -> None:
    """A picture for each, so that nothing is hidden."""
    assert printable("a\x1b[1m\x07\r\nb\tc\x7f\x9b\u202e") == "a␛[1m␇␍\nb\tc␡��"


def test_a_model_cannot_command_the_terminal() -> None:
    """Not with its text, its reasoning, the name of what it calls, or a service's error."""
    evil = Reply(Reasoning(EVIL), ToolCall("get\x1b[1m", {"city": EVIL}, call_id="\x1b[2m"), EVIL)
    with ModelServer([evil, Reply(raw=b'{"error": {"message": "\\u001b[5mno"}}', status=400)]) as server:
        result = run("demo", "--base-url", server.url)
    assert result.returncode == 1
    assert_harmless(result.stdout)
    assert_harmless(result.stderr)
    assert "␛[31mred" in result.stdout
    assert "␛[5mno" in result.stderr


@pytest.mark.parametrize("command", [["replay"], *(["convert", "--to", to] for to in protocols.BUILT_IN)])
def test_a_recording_cannot_command_the_terminal(command: list[str], tmp_path: Path) -> None:
    """Wire bytes are JSON, which keeps some control characters as they are; not here."""
    path = tmp_path / "evil.jsonl"
    chunk = {"role": "assistant", "type": "message", "content": EVIL}
    code = {"role": "assistant", "type": "code", "format": EVIL, "content": EVIL}
    path.write_text("".join(json.dumps(item) + "\n" for item in (chunk, {**chunk, "end": True}, code)))
    result = run(*command, path)
    assert_harmless(result.stdout)
    assert_harmless(result.stderr)
    assert "31mred" in result.stdout


def test_a_terminal_that_cannot_write_a_character_gets_its_number() -> None:
    """In place of a failure."""
    with ModelServer(Reply("14 °C")) as server:
        result = run("demo", "--base-url", server.url, encoding="ascii")
    assert (result.returncode, result.stderr) == (0, "")
    assert "14 \\xb0C" in result.stdout


# -- replay


def test_replay_shows_the_stream_again(recording: Path) -> None:
    """Each message under its label, then the messages."""
    result = run("replay", recording)
    assert (result.returncode, result.stderr) == (0, "")
    story, _, table = result.stdout.partition("\n3 messages, requires_action:\n")
    assert story.splitlines() == [
        "[reasoning summary] Short.",
        "[message] Rivers remember",
        "mountains.",
        '[tool_call] look_up({"what": "river"})',
    ]
    assert [row.split()[0] for row in table.splitlines()[1:4]] == ["rs_1_0", "msg_1_1", "fc_1_2"]
    assert "Rivers remember…" in table


def with_times(path: Path, times: list[float]) -> Path:
    """An Open Interpreter recording whose items came at these times."""
    lines: list[object] = [{"streamkit": "recording", "version": 1, "created_at": 0}]
    chunk = {"role": "assistant", "type": "message"}
    lines += [{"time": at, "data": {**chunk, "content": f"at {at} "}} for at in times]
    lines.append({"time": times[-1], "data": {**chunk, "end": True}})
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


def test_replay_keeps_the_times(tmp_path: Path) -> None:
    """A second of recording takes one."""
    began = time.monotonic()
    result = run("replay", with_times(tmp_path / "slow.jsonl", [0.0, 1.0]))
    assert time.monotonic() - began >= 1
    assert "at 0.0 at 1.0" in result.stdout


@pytest.mark.parametrize("speed", ["max", "1e9"])
def test_replay_has_the_speed_that_was_asked_for(speed: str, tmp_path: Path) -> None:
    """Eleven days of recording."""
    result = run("replay", with_times(tmp_path / "slow.jsonl", [0.0, 1e6]), "--speed", speed)
    assert result.returncode == 0
    assert "at 0.0 at 1000000.0" in result.stdout


@pytest.mark.parametrize("speed", ["0", "-1", "nan", "fast"])
def test_a_speed_is_above_zero(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Else it is the caller's mistake."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(["replay", "any", f"--speed={speed}"])
    assert stopped.value.code == 2
    assert "give a number above 0, or max" in capsys.readouterr().err


def test_a_confirmation_is_replayed_as_it_was_decided(tmp_path: Path) -> None:
    """There is no question, at any speed."""
    path = tmp_path / "code.jsonl"
    code = {"type": "code", "format": "python", "content": "print(1)"}
    items: list[dict[str, object]] = [
        {**code, "role": "assistant", "start": True, "end": True},
        {"role": "computer", "type": "confirmation", "format": "execution", "content": code},
        {"role": "computer", "type": "console", "format": "output", "content": "1\n", "start": True, "end": True},
    ]
    sk.stream(items, sk.Recorder(path), protocol="open_interpreter").until_done()
    told = [run("replay", path, "--speed", speed).stdout for speed in ("1", "max")]
    story = "[code python]\nprint(1)\n[confirmation] may this code run?\n[confirmation] approved\n[console output]\n1\n"
    assert [text.partition("\n2 messages")[0] for text in told] == [story, story]


def test_a_body_as_it_was_on_the_wire_can_be_replayed(recording: Path, tmp_path: Path) -> None:
    """Server-Sent Events or JSON Lines."""
    for framing in ("sse", "ndjson"):
        body = tmp_path / f"body.{framing}"
        assert run("convert", recording, "--to", "openai_chat", "--framing", framing, "-o", body).returncode == 0
        result = run("replay", body)
        assert (result.returncode, result.stderr) == (0, "")
        assert "Rivers remember\nmountains." in result.stdout


def test_replay_of_a_broken_recording_shows_what_arrived(recording: Path) -> None:
    """Then one line that says so."""
    result = run("replay", cut_off(recording))
    assert result.returncode == 1
    assert "[message] River" in result.stdout
    assert "2 messages, incomplete:" in result.stdout
    assert_one_line(result.stderr)
    assert "cut off" in result.stderr


# -- convert


def final_text(path: Path) -> str:
    return sk.stream(path).get_final_text()


# What stands in no other message of these protocols, of the recording.
LEFT_OUT = {
    "openai_assistants": "streamkit: openai_assistants left out: reasoning (1)\n",
    "openai_completions": "streamkit: openai_completions left out: reasoning (1), tool_call (1)\n",
}


def test_what_the_other_protocol_cannot_say_is_reported(tmp_path: Path) -> None:
    """Pictures and citations, too; on stderr, so that the wire bytes are all of stdout."""
    path = tmp_path / "recording.jsonl"
    note = sk.Annotation(type="url_citation", url="https://x", title="X")
    picture = sk.Message("p", role="computer", type="image", format="base64.png", content="aGVsbG8=")
    with sk.Emitter() as emitter:
        emitter.emit(sk.TextDone(sk.TextMessage("t", content="See.", annotations=[note])))
        emitter.emit(sk.ImageFileDone(picture))
    sk.stream(emitter, sk.Recorder(path)).until_done()
    result = run("convert", path, "--to", "openai_completions")
    assert result.returncode == 0
    assert "left out" not in result.stdout
    assert result.stderr == "streamkit: openai_completions left out: image (1), annotation (1)\n"
    assert run("convert", path, "--to", "streamkit").stderr == ""


LETTA_CALL = {
    "id": "message-1",
    "date": "2026-01-01T00:00:00+00:00",
    "message_type": "tool_call_message",
    "tool_call": {"name": "send_message", "arguments": '{"message": "Rivers remember."}', "tool_call_id": "c"},
}


@pytest.mark.parametrize("command", ["replay", "convert"])
def test_an_argument_may_be_shown_and_converted_as_a_message(command: str, tmp_path: Path) -> None:
    """As with `fields=`: what a Letta agent says stands in an argument of `send_message`."""
    path = tmp_path / "letta.jsonl"
    path.write_text(json.dumps(LETTA_CALL) + '\n{"message_type": "stop_reason", "stop_reason": "end_turn"}\n')
    options = ["--to", "openai_chat", "--framing", "ndjson"] if command == "convert" else ["--speed", "max"]
    fields = ["--fields", "send_message.message=text", "--fields", "execute.code=code"]
    result = run(command, path, *options, *fields)
    assert result.returncode == 0
    wanted = '"content":"Rivers remember."' if command == "convert" else "[message] Rivers remember."
    assert wanted in result.stdout
    assert wanted not in run(command, path, *options).stdout
    for bad in ("send_message.message", "=text", "a.b="):
        result = run(command, path, *options, "--fields", bad)
        assert result.returncode == 2
        assert "is not TOOL.ARGUMENT=KIND" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["sse", "ndjson"])
@pytest.mark.parametrize("protocol", protocols.BUILT_IN)
def test_a_converted_stream_says_the_same(protocol: str, framing: str, recording: Path, tmp_path: Path) -> None:
    """In any protocol, framed either way, to a file or to stdout."""
    out = tmp_path / "out"
    result = run("convert", recording, "--to", protocol, "--framing", framing, "-o", out)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == LEFT_OUT.get(protocol, "")
    assert final_text(out) == final_text(recording) == "Rivers remember\nmountains."
    assert run("convert", recording, "--to", protocol, "--framing", framing).stdout == out.read_text()
    again = run("replay", out, "--speed", "max")
    assert again.returncode == 0
    assert "[message] Rivers remember\nmountains.\n" in again.stdout


@pytest.mark.parametrize(
    ("protocol", "start", "end"),
    [
        ("openai_responses", "event: response.created\ndata: {", "}\n\n"),
        ("openai_chat", "data: {", "data: [DONE]\n\n"),
        ("open_interpreter", "data: {", "data: [DONE]\n\n"),
        ("streamkit", "event: run_created\ndata: {", '{"type":"stream_end","status":"requires_action"}\n\n'),
    ],
)
def test_wire_bytes_have_their_protocols_names_and_end(protocol: str, start: str, end: str, recording: Path) -> None:
    """As that protocol's own servers send them."""
    wire = run("convert", recording, "--to", protocol).stdout
    assert wire.startswith(start)
    assert wire.endswith(end)


@pytest.mark.parametrize("protocol", protocols.BUILT_IN)
def test_convert_of_a_broken_recording_writes_what_arrived(protocol: str, recording: Path, tmp_path: Path) -> None:
    """One line says that the stream is incomplete, and there is no sentinel."""
    out = tmp_path / "out"
    result = run("convert", cut_off(recording), "--to", protocol, "-o", out)
    assert result.returncode == 1
    assert_one_line(result.stderr)
    assert not out.read_bytes().endswith(b"data: [DONE]\n\n")
    stream = sk.stream(out)
    with contextlib.suppress(sk.StreamkitError):
        stream.until_done()
    assert "Rive" in "".join(m.content for m in stream.messages)
    assert stream.status in ("incomplete", "failed")


@pytest.mark.parametrize("content", [None, b"", b"Dear diary, this is no stream.\n"], ids=["missing", "empty", "prose"])
def test_what_is_no_stream_converts_to_nothing(content: bytes | None, tmp_path: Path) -> None:
    """No file is made, and none is emptied."""
    path, out = tmp_path / "in", tmp_path / "out"
    if content is not None:
        path.write_bytes(content)
    result = run("convert", path, "--to", "openai_chat", "-o", out)
    assert (result.returncode, result.stdout) == (1, "")
    assert_one_line(result.stderr)
    assert not out.exists()
    assert run("convert", path, "--to", "openai_chat").stdout == ""


def test_a_file_is_not_converted_onto_itself(recording: Path) -> None:
    """It would be gone before it is read."""
    before = recording.read_bytes()
    result = run("convert", recording, "--to", "streamkit", "-o", recording)
    assert result.returncode == 2
    assert_one_line(result.stderr)
    assert recording.read_bytes() == before


@pytest.mark.parametrize("options", [["convert", "--to", "morse"], ["replay", "--protocol", "morse"]])
def test_an_unknown_protocol_is_the_callers_mistake(options: list[str], recording: Path) -> None:
    """The line lists those there are."""
    result = run(*options, recording)
    assert (result.returncode, result.stdout) == (2, "")
    assert_one_line(result.stderr)
    assert all(name in result.stderr for name in ("'morse'", *protocols.BUILT_IN))


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`bash -c`, where `streamkit` is ours."""
    line = line.replace("streamkit ", f"'{sys.executable}' -m streamkit ")
    return subprocess.run(
        ["bash", "-c", line],
        env=CLEAN | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


COMMANDS = {
    "replay": "streamkit replay --speed max '{path}'",
    "convert": "streamkit convert '{path}' --to openai_chat",
    "demo": "streamkit demo --offline --fast --yes",
}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("head") is None, reason="head is not installed")
@pytest.mark.parametrize(("command", "unbuffered"), [("replay", ""), ("replay", "1"), ("convert", ""), ("demo", "1")])
def test_a_reader_that_leaves_ends_every_command_quietly(command: str, unbuffered: str, tmp_path: Path) -> None:
    """As `streamkit convert … | head` does: with the status of a program that its closed pipe ended."""
    path = with_times(tmp_path / "long.jsonl", [0.0] * 3_000)
    line = COMMANDS[command].format(path=path) + " | head -c 20; exit ${PIPESTATUS[0]}"
    result = shell(line, PYTHONUNBUFFERED=unbuffered)
    assert (result.returncode, result.stderr) == (141, "")
    assert len(result.stdout) == 20


@pytest.mark.parametrize("command", [COMMANDS["convert"], "streamkit --version"], ids=lambda c: c[:18])
def test_a_stdout_that_is_closed_is_one_line(command: str, recording: Path) -> None:
    """Also where stderr is closed as well: then it is none, and no traceback takes another way."""
    line = command.format(path=recording)
    result = shell(line + " >&-")
    assert (result.returncode, result.stdout) == (1, "")
    assert_one_line(result.stderr)
    assert "stdout is closed" in result.stderr
    result = shell(line + " >&- 2>&-")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "")


FULL = [COMMANDS["replay"], COMMANDS["convert"], "streamkit --help"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
@pytest.mark.parametrize("command", FULL, ids=lambda c: c[:18])
def test_what_cannot_be_written_is_reported_once(command: str, recording: Path) -> None:
    """Although every later line fails the same way."""
    result = shell(command.format(path=recording) + " >/dev/full")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == "streamkit: cannot write: No space left on device\n"
    if command.startswith("streamkit convert"):
        result = run("convert", recording, "--to", "openai_chat", "-o", "/dev/full")
        assert (result.returncode, result.stderr) == (1, "streamkit: /dev/full: No space left on device\n")


def test_an_error_of_the_disk_is_not_repeated_by_its_notes() -> None:
    """Also where a later write names another file. Notes that say something else stay."""
    error = OSError(28, "No space left on device", "one")
    error.add_note(
        "While the stream ended, closing the source raised OSError: [Errno 28] No space left on device: 'two'"
    )
    error.add_note("at http://host")
    assert explain(error) == "one: No space left on device (at http://host)"


@pytest.mark.parametrize("command", ["replay", "convert"])
@pytest.mark.parametrize(("kind", "told"), [("missing", "No such file or directory"), ("folder", "Is a directory")])
def test_a_file_that_cannot_be_read_is_one_line(command: str, kind: str, told: str, tmp_path: Path) -> None:
    """It names the file, once."""
    path = tmp_path / "there" if kind == "missing" else tmp_path
    result = run(command, path, *(["--to", "openai_chat"] if command == "convert" else []))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"streamkit: cannot read {path}: {told}\n"


def test_an_output_that_cannot_be_written_is_one_line(recording: Path, tmp_path: Path) -> None:
    """A folder, or a path into nothing."""
    for out, told in ((tmp_path, "Is a directory"), (tmp_path / "no" / "out", "No such file or directory")):
        result = run("convert", recording, "--to", "openai_chat", "-o", out)
        assert (result.returncode, result.stdout) == (1, "")
        assert result.stderr == f"streamkit: {out}: {told}\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replay", "convert"])
def test_ctrl_c_ends_every_command_quietly(command: str, tmp_path: Path) -> None:
    """Exit code 130 and no traceback, whatever it was waiting for."""
    if command == "replay":
        path = with_times(tmp_path / "slow.jsonl", [0.0, 600.0])
    else:
        path = tmp_path / "pipe"
        os.mkfifo(path)
    arguments = [command, str(path), *(["--to", "openai_chat"] if command == "convert" else [])]
    with (
        subprocess.Popen(
            [sys.executable, "-m", "streamkit", *arguments],
            env=CLEAN | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        contextlib.ExitStack() as keep,
    ):
        keep.callback(process.kill)
        assert process.stdout is not None
        if command == "replay":
            assert process.stdout.read(1)
        else:
            keep.enter_context(path.open("wb"))  # waits for the command, which now waits for us
        wait_until_it_waits(process.pid)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    assert (process.returncode, error) == (130, "")


# -- on a terminal


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    """Runs a command line in a terminal of a size."""
    if TMUX is None:
        pytest.skip("tmux is not installed")
    opened: list[Terminal] = []

    def start(line: str, columns: int = 80, rows: int = 24) -> Terminal:
        opened.append(Terminal(tmp_path / f"tmux{len(opened)}", line, columns, rows))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.slow
def test_a_person_sees_the_story_arrive(terminal: Open) -> None:
    """On a terminal of 80 columns: code bit by bit, the question, the line that runs, output, and at last the messages."""
    screen = terminal(f"{sys.executable} -m streamkit demo", 80, 24)
    seen = screen.wait("[a]lways:")
    lengths = [len(found[0]) for shown in seen if (found := re.search(r"── python\n.*", shown, re.DOTALL))]
    assert len(set(lengths)) > 5
    assert "│ 0.0000" not in seen[-1]
    screen.type("y", "Enter")
    seen = screen.wait("exit code")
    assert any(re.search(r"❱ \d+", shown) for shown in seen), "the line that runs is marked"
    printed = [len(re.findall(r"│ [01]\.\d{4} ", shown)) for shown in seen]
    assert len(set(printed)) > 2
    last = seen[-1].splitlines()
    assert "  class Demo(EventHandler):" in last
    assert "The model: a scripted one on this machine, which needs no key and no network." in last
    table = last[last.index("6 messages, completed:") :]
    assert table[1] == "  id           role       type       status     content"
    assert re.match(r"  execution-1 +computer +console +completed +0\.0000  \+0\.00 ", table[6])
    assert "exit code 0" in last
    shown = [line for line in inspect.getsource(Demo).splitlines() if line]
    assert all(f"  {line}" in last for line in shown)
    assert "and comes back." in " ".join(last)


@pytest.mark.slow
def test_a_narrow_terminal_is_enough(terminal: Open, programs: Forks) -> None:
    """On 40 columns each message's summary takes lines of its own, and source lines go on deeper."""
    last = terminal(programs.line("streamkit", "demo", "--fast", "--yes"), 40, 24).wait("exit code")[-1].splitlines()
    table = last[last.index("6 messages, completed:") :]
    assert table[1:3] == ["  rs_1_0 assistant reasoning completed", "    I can compute this, and draw it. A …"]
    assert "      def on_console_output(self, delta:" in last
    assert "          Delta, snapshot: Message) ->" in last


def test_ctrl_c_leaves_a_tidy_terminal(terminal: Open, tmp_path: Path) -> None:
    """The next line begins at its start."""
    path = with_times(tmp_path / "slow.jsonl", [0.0, 600.0])
    line = f"trap : INT; {sys.executable} -m streamkit replay {path}"
    screen = terminal(line, 80, 24)
    screen.wait("at 0.0")
    screen.type("C-c")
    assert screen.wait("exit code")[-1].split("\n")[:3] == ["at 0.0", "(cancelled)", "exit code 130"]
