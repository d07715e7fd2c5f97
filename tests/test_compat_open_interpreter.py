"""`compat.open_interpreter`: the chunks and messages of Open Interpreter, from a real kernel and a scripted model."""

from __future__ import annotations

import base64
import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import aclosing, closing, contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

import streamkit as sk
from streamkit.compat.open_interpreter import Llm, OpenInterpreter, interpreter
from streamkit.compat.open_interpreter.history import MessageHistory, chunks_of
from streamkit.compat.open_interpreter.interpreter import _LEFT_OUT
from streamkit.compat.open_interpreter.model_input import messages_for_model
from streamkit.protocols.open_interpreter import Encoder
from streamkit.protocols.open_interpreter.sequence import MessageSequencer
from streamkit.testing import ModelServer, Reasoning, Reply, Text, ToolCall

from .agent.parts import PNG, ToyComputer, code
from .faces import Face, async_faces, body
from .telling import RECORDINGS
from .web_frameworks import uvicorn_serves

computer_of = pytest.importorskip("streamkit.computer", reason="the extra `computer` is not installed")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """One computer for all tests that run real code: its languages are started once."""
    with computer_of.Computer() as computer:
        yield computer


@contextmanager
def made(*script: Reply, computer: Any = None, **options: Any) -> Iterator[OpenInterpreter]:
    """An interpreter whose model is a scripted one."""
    with ModelServer(script) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        one = OpenInterpreter(computer=computer if computer is not None else ToyComputer(), **options)
        one.llm.client = client
        one._asked = lambda: server.requests  # type: ignore[attr-defined]
        yield one


def spoken(one: OpenInterpreter, message: Any = "go") -> list[dict[str, Any]]:
    return [*one.chat(message, display=False, stream=True)]


# -- the order of chunks

_DISPLAY = f"""\
import base64
from IPython.display import HTML, Image, display
png = base64.b64decode("{PNG}")
"""

# recording -> the model's replies, and whether code runs unasked. Where a recording plots with matplotlib, the same
# number of images is displayed without it.
SCRIPTS: dict[str, tuple[list[Reply], bool]] = {
    "rec_basic": ([Reply(Text("Let me compute."), code("x=34/24\nprint(x)\nx")), Reply("It is 1.416.")], False),
    "rec_no_output_python": ([Reply(code("y=3")), Reply("ok")], True),
    "rec_error_python": ([Reply(code("1/0")), Reply("ok")], False),
    "rec_shell": ([Reply(code("echo a\nls /nope\necho c >&2", "shell")), Reply("ok")], False),
    "rec_two_rounds": (
        [Reply(Text("a"), code("echo 1", "shell")), Reply(Text("b"), code("echo 2", "shell")), Reply("c")],
        True,
    ),
    "rec_unsupported": ([Reply(code("x", "cobol")), Reply("ok")], True),
    "rec_truncated": ([Reply(code("print('x'*5000)\nprint('tail')")), Reply("ok")], True),
    "rec_two_images_magic": (
        [Reply(code(f"{_DISPLAY}display(Image(png))\ndisplay(Image(png))")), Reply("done")],
        True,
    ),
    "rec_rich": (
        [
            Reply(
                code(
                    f"{_DISPLAY}display(Image(png))\ndisplay(Image(png))\ndisplay(HTML('<b>hi</b>'))\n"
                    "print('<IPython.core.display.Javascript object>')\nprint('end')\n1/0"
                )
            ),
            Reply("done"),
        ],
        True,
    ),
    "rec_run_after_break": ([Reply(code("print('i is', i)\nprint('second run')")), Reply("done")], True),
    "oi043-confirmation-no-autorun": (
        [Reply(Text("Let me run it.\n\n"), code("\nprint(2 + 2)\n")), Reply("It is 4.")],
        False,
    ),
    "oi043-tool-calling-python": (
        [Reply(Text("I'll compute it."), code("total = sum(range(10))\nprint(total)")), Reply("The total is 45.")],
        True,
    ),
    "oi043-tool-calling-two-rounds": (
        [Reply(code("print('one')")), Reply(Text("Now the shell."), code("echo two", "shell")), Reply("Both ran.")],
        True,
    ),
    "oi043-javascript": (
        [
            Reply(code("\nconsole.log([1, 2, 3].map(x => x * 2));\n", "javascript")),
            Reply("Node printed the doubled numbers."),
        ],
        True,
    ),
    "oi043-shell-failing": (
        [Reply(code("\nls /definitely/not/here\necho status $?\n", "shell")), Reply("The directory does not exist.")],
        True,
    ),
    "oi043-python-active-line": (
        [
            Reply(
                Text("Let me run it.\n\n"),
                code("\na = 34\nb = 24\nprint(a / b)\nfor i in range(3):\n    print('step', i)\n"),
            ),
            Reply("The result of the division 34/24 is approximately 1.42."),
        ],
        True,
    ),
    "oi043-long-output-truncated": (
        [
            Reply(Text("Let me run it.\n\n"), code("\nfor i in range(120):\n    print(i, 'x' * 30)\n")),
            Reply("That was long."),
        ],
        True,
    ),
    "oi043-python-traceback": (
        [
            Reply(Text("Let me run it.\n\n"), code("\nx = 1\nprint('before')\nprint(x / 0)\nprint('after')\n")),
            Reply("That raised ZeroDivisionError, as expected."),
        ],
        True,
    ),
}


def order(chunks: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The order of chunks, as the protocol's rules see it: pieces of one content are one (section 4.4), and so are two
    images that came in one bracket (4.6); the lines that run, and brackets with nothing else in them, are no content (4.5).
    Line ends that the original's shell prints for itself are none either."""
    kinds: list[tuple[Any, ...]] = []
    for chunk in chunks:
        format = None if chunk["type"] == "console" else chunk.get("format")
        what = "start" if chunk.get("start") else "end" if chunk.get("end") else "content"
        if chunk.get("format") == "active_line":
            if chunk["content"] is not None:
                continue
            what = "null"
        elif chunk["type"] == "console" and what == "content" and not chunk["content"].strip():
            continue
        if chunk["type"] == "image" and what == "content":
            kinds += [(chunk["role"], "image", format, "end"), (chunk["role"], "image", format, "start")] * (
                kinds[-1][-1] == "content"
            )
        kinds.append((chunk["role"], chunk["type"], format, what))
    kinds = [kind for kind, _ in groupby(kinds)]
    empty = [
        place
        for place, (one, after) in enumerate(pairwise(kinds))
        if (one[1], one[-1], after[-1]) == ("console", "start", "end")
    ]
    return [kind for place, kind in enumerate(kinds) if place not in empty and place - 1 not in empty]


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_order_of_chunks_is_the_recorded_one(name: str, kernel: Any) -> None:
    """For the same answers of the model, as Open Interpreter 0.4.3 yielded them; and the messages are those that it stored."""
    path = RECORDINGS / "open-interpreter" / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the recorded streams are not beside this checkout")
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    script, auto_run = SCRIPTS[name]
    with made(*script, computer=kernel, auto_run=auto_run) as one:
        chunks = spoken(one)
        kept = one.messages
    assert order(chunks) == order(recorded)
    asked = [chunk["content"] for chunk in chunks if chunk["type"] == "confirmation"]
    assert asked == [chunk["content"] for chunk in recorded if chunk["type"] == "confirmation"]
    assert [_brief(message) for message in kept] == [_brief(message) for message in _kept(path)]


def _kept(path: Path) -> list[dict[str, Any]]:
    """What the original kept of it. Its last messages, where the recording went on with a conversation; two images in
    one are told apart, as the rules have it."""
    whole = path.with_suffix(".messages.json")
    given: list[dict[str, Any]] = (
        json.loads(whole.read_text())
        if whole.exists()
        else json.loads(path.with_suffix(".expected.json").read_text())["messages"]
    )
    given = given[max(place for place, message in enumerate(given) if message["role"] == "user") :]
    out: list[dict[str, Any]] = []
    for message in given:
        out += [message] * (message["content"].count("iVBORw0KGgo") if message["type"] == "image" else 1)
    return out


def _brief(message: dict[str, Any]) -> tuple[Any, ...]:
    """A message, but for what differs for good reasons: the source of code, what it printed, and what a user says."""
    said = (
        message["content"].strip()
        if (message["role"], message["type"]) == ("assistant", "message")
        else bool(message["content"])
    )
    return message["role"], message["type"], message.get("format"), said if message["role"] != "user" else None


@pytest.mark.slow
def test_leaving_at_the_confirmation_declines() -> None:
    """What runs after that is another chat's; the code stays in the conversation, and nothing of it ran."""
    computer = ToyComputer()
    with made(Reply(code("say hello")), Reply("Fine."), computer=computer) as one:
        for chunk in one.chat("go", display=False, stream=True):
            if chunk["type"] == "confirmation":
                break
        del chunk
        assert one.messages[-1] == {"role": "assistant", "type": "code", "format": "python", "content": "say hello"}
        gc.collect()
        assert spoken(one, "then not")[-2]["content"].endswith(".")
        assert computer.ran == []
        assert [message["role"] for message in one.messages] == ["user", "assistant", "user", "assistant"]


def test_the_messages_after_leaving_are_the_recorded_ones() -> None:
    """The code that was declined, and the chat after it."""
    path = RECORDINGS / "open-interpreter" / "rec_after_break_next_string.jsonl"
    if not path.exists():
        pytest.skip("the recorded streams are not beside this checkout")
    with made(Reply(code("print('ran')")), Reply("reply2")) as one:
        with closing(one.chat("go", display=False, stream=True)) as chunks:  # type: ignore[type-var]
            while next(chunks)["type"] != "confirmation":
                pass
        again = spoken(one)
        assert one.messages == json.loads(path.with_suffix(".messages.json").read_text())
    assert order(again) == order(map(json.loads, path.read_text().splitlines()))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["close", "del", "throw"])
def test_every_way_of_leaving_declines(how: str) -> None:
    """Closing the iterator, dropping it, and an error inside the loop."""
    computer = ToyComputer()
    with made(Reply(code("say hello")), computer=computer) as one:
        chunks: Any = one.chat("go", display=False, stream=True)
        while next(chunks)["type"] != "confirmation":
            pass
        match how:
            case "close":
                chunks.close()
            case "del":
                del chunks
                gc.collect()
            case _:
                with pytest.raises(LookupError):
                    chunks.throw(LookupError("left"))
        assert computer.ran == []


def test_closing_stops_what_runs(kernel: Any) -> None:
    """It returns when the code has ended, and nothing of it appears in the next run."""
    with made(
        Reply(code("import time\nwhile True:\n    print('tick')\n    time.sleep(0.01)")),
        Reply(code("print('next')")),
        Reply("Done."),
        computer=kernel,
        auto_run=True,
    ) as one:
        with closing(one.chat("go", display=False, stream=True)) as chunks:  # type: ignore[type-var]
            for chunk in chunks:
                if chunk["type"] == "console" and "tick" in str(chunk.get("content")):
                    break
        assert one.messages[-1]["type"] == "console"
        printed = "".join(
            chunk["content"] for chunk in spoken(one, "again") if chunk.get("format") == "output" and "content" in chunk
        )
    assert printed == "next\n"


def test_chunks_have_open_interpreters_keys_alone() -> None:
    """No calls, no outputs of tools, no reasoning, no ids; a start has no content."""
    with made(Reply(Reasoning("Hm."), Text("Now. "), code("say hello")), Reply("Done."), auto_run=True) as one:
        chunks = spoken(one)
    keys = {key for chunk in chunks for key in chunk}
    assert keys == {"role", "type", "format", "content", "start", "end"}
    assert {chunk["type"] for chunk in chunks} == {"message", "code", "console"}
    assert all(("content" in chunk) != ("start" in chunk or "end" in chunk) for chunk in chunks)


def test_messages_grow_with_the_chunks() -> None:
    """At each chunk the newest message has the content so far."""
    with made(Reply(Text("One two three."), code("say hello")), Reply("Done."), auto_run=True) as one:
        told: dict[int, str] = {}
        for chunk in one.chat("go", display=False, stream=True):
            if isinstance(chunk.get("content"), str) and chunk.get("format") != "active_line":
                place = len(one.messages)
                told[place] = told.get(place, "") + chunk["content"]
                assert one.messages[-1]["content"] == told[place]
    assert [message["content"] for message in one.messages] == ["go", *told.values()]


def test_calls_that_grow_side_by_side_follow_each_other() -> None:
    """Each is complete, between its own start and end."""
    replies = [Reply(code("say one two"), code("say three four"), interleave=True), Reply("Done.")]
    with made(*replies, auto_run=True) as one:
        chunks = spoken(one)
    assert [message["content"] for message in one.messages] == [
        *("go", "say one two", "say three four", "one two\n", "three four\n", "Done.")
    ]
    opened: str | None = None
    for chunk in chunks:
        if chunk.get("start"):
            assert opened is None
            opened = chunk["type"]
        assert chunk["type"] == opened
        if chunk.get("end"):
            opened = None


def test_a_call_that_cannot_run_says_so_in_the_console() -> None:
    """And the model reads the reason."""
    with made(Reply(ToolCall("execute", '{"language": "python", "code": "a", "code": "b"}')), Reply("Sorry.")) as one:
        chunks = spoken(one)
        assert "twice" in one.messages[-2]["content"]
    assert [chunk["type"] for chunk in chunks if chunk.get("start")] == ["code", "console", "message"]
    assert [chunk for chunk in chunks if chunk["type"] == "confirmation"] == []


# -- chat


def test_chat_gives_the_new_messages() -> None:
    """Of a text, which is appended; of a message, too; a list takes the conversation's place."""
    with made(Reply("Hello.")) as one:
        hello = {"role": "assistant", "type": "message", "content": "Hello."}
        assert one.chat("Hi.", display=False) == [hello]
        assert one.chat({"type": "message", "content": "Again."}, display=False) == [hello]
        assert [message["content"] for message in one.messages] == ["Hi.", "Hello.", "Again.", "Hello."]
        assert one.chat([{"role": "user", "type": "message", "content": "New."}], display=False) == [hello]
        assert [message["content"] for message in one.messages] == ["New.", "Hello."]
        one.messages = []
        one.chat("Empty before.", display=False)
        assert len(one.messages) == 2
        one.reset()
        assert one.messages == []
        with pytest.raises(sk.UsageError):
            one.chat(5, display=False)


def test_a_conversation_of_plain_dicts_goes_on() -> None:
    """Its code is sent as a call, with what it printed."""
    saved = [
        {"role": "user", "type": "message", "content": "34/24?"},
        {"role": "assistant", "type": "code", "format": "python", "content": "print(34/24)"},
        {"role": "computer", "type": "console", "format": "output", "content": "1.4166\n"},
    ]
    with made(Reply("1.4."), system_message="Be brief.", custom_instructions="Round.") as one:
        one.llm.max_tokens, one.llm.temperature = 100, 0
        one.chat([*saved, {"role": "user", "type": "message", "content": "So?"}], display=False)
        (request,) = one._asked()  # type: ignore[attr-defined]
    assert [message["role"] for message in request.body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert request.body["messages"][0]["content"] == "Be brief.\n\nRound."
    assert request.body["messages"][3]["content"] == "1.4166\n"
    assert (request.body["max_tokens"], request.body["temperature"]) == (100, 0)


def test_what_a_user_gives_is_such_as_models_take(tmp_path: Path) -> None:
    """Images given by path are read, files are named. The conversation itself stays unchanged."""
    (tmp_path / "dot.png").write_bytes(base64.b64decode(PNG))
    path = str(tmp_path / "dot.png")
    given = [
        {"role": "user", "type": "image", "format": "path", "content": path},
        {"role": "user", "type": "image", "format": "base64", "content": PNG},
        {"role": "user", "type": "image", "format": "description", "content": "A dot."},
        {"role": "user", "type": "file", "content": "/a/table.csv"},
    ]
    with made(Reply("I see.")) as one:
        one.chat(given, display=False)
        (request,) = one._asked()  # type: ignore[attr-defined]
        assert one.messages[:4] == given
        with pytest.raises(sk.UsageError, match="cannot be read"):
            one.chat([{**given[0], "content": str(tmp_path / "none.png")}], display=False)
        with pytest.raises(sk.UsageError, match="not an image"):
            one.chat([{**given[0], "content": "/a/table.csv"}], display=False)
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    text = [{"type": "text", "text": text} for text in ("A dot.", "The user attached a file: /a/table.csv")]
    assert request.body["messages"][-1]["content"] == [image, image, *text]


def test_what_is_for_the_user_alone_does_not_reach_the_model() -> None:
    """It stays in the conversation."""
    console = {"role": "computer", "type": "console", "format": "output"}
    given = [
        {"role": "user", "type": "message", "content": "go"},
        {"role": "assistant", "type": "code", "format": "python", "content": "plot()"},
        {**console, "content": "only for the user", "recipient": "user"},
        {**console, "content": "only for the assistant", "recipient": "assistant"},
        {"role": "user", "type": "message", "content": "and?"},
    ]
    with made(Reply("I see.")) as one:
        one.chat(given, display=False)
        (request,) = one._asked()  # type: ignore[attr-defined]
        assert one.messages[:5] == given
    sent = json.dumps(request.body["messages"])
    assert "only for the assistant" in sent
    assert "only for the user" not in sent


def test_long_output_is_cut_for_the_model_only() -> None:
    """The model reads `max_output` characters of it."""
    with made(Reply(code("say " + "x" * 9000)), Reply("Long."), auto_run=True, max_output=200) as one:
        one.chat("go", display=False)
        told = one._asked()[1].body["messages"][-1]["content"]  # type: ignore[attr-defined]
    assert len(one.messages[2]["content"]) == 9001
    assert len(told) == 200


@pytest.mark.parametrize(("answer", "runs"), [("y", True), ("n", False), ("", False), ("yes please", False)])
def test_display_prints_and_asks(
    answer: str, runs: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the terminal, before anything runs; `y` is yes, all else is no."""
    computer = ToyComputer()
    monkeypatch.setattr("builtins.input", lambda prompt="": answer)
    with made(Reply(Text("Now."), code("say hello")), Reply("Done."), computer=computer) as one:
        one.chat("go")
    assert computer.ran == ["say hello"] * runs
    shown = capsys.readouterr().out
    assert "Now." in shown
    assert "say hello" in shown
    assert ("Done." in shown) == runs


@pytest.mark.parametrize("answer", ["y", "n"])
def test_display_asks_while_it_streams_too(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulling past the chunk does not approve it then, because the person answers."""
    computer = ToyComputer()
    monkeypatch.setattr("builtins.input", lambda prompt="": answer)
    with made(Reply(code("say hello")), Reply("Done."), computer=computer) as one:
        chunks = [*one.chat("go", stream=True)]
    assert [chunk["type"] for chunk in chunks].count("confirmation") == 1
    assert computer.ran == ["say hello"] * (answer == "y")


def test_without_display_and_stream_there_is_no_question() -> None:
    """Without `stream` and `display` code runs with `auto_run` alone."""
    computer = ToyComputer()
    with made(Reply(code("say hello")), Reply("Done."), computer=computer) as one:
        assert [message["type"] for message in one.chat("go", display=False)] == ["code"]
        assert computer.ran == []


def test_a_chat_that_does_not_block() -> None:
    """`wait` gives its messages, or raises as it did; a second chat meanwhile is refused."""
    computer = ToyComputer()
    with made(Reply(code("hang")), Reply("Done."), Reply(status=401), computer=computer, auto_run=True) as one:
        assert one.chat("go", display=False, blocking=False) is None
        assert computer.hanging.wait(10)
        with pytest.raises(sk.UsageError, match="still running"):
            one.chat("second", display=False)
        computer.runs[0].interrupt()
        assert one.wait()[-1]["content"] == "Done."
        one.chat("third", display=False, blocking=False)
        with pytest.raises(sk.SourceError):
            one.wait()


def test_the_next_chat_ends_one_that_was_abandoned() -> None:
    """A server's thread still pulls it, and its code still runs, when the client has left and comes again."""
    computer = ToyComputer()
    with made(Reply(code("hang")), Reply("Done."), computer=computer, auto_run=True) as one:
        chunks = one.chat("go", display=False, stream=True)
        thread = threading.Thread(target=lambda: [*chunks], daemon=True)
        thread.start()
        assert computer.hanging.wait(10)
        assert spoken(one, "again")[1]["content"] == "Done"
        thread.join(10)
        assert not thread.is_alive()
        assert computer.runs[0].ended.is_set()


def test_the_next_chat_ends_one_whose_loop_was_left() -> None:
    """While somebody still refers to it."""
    with made(Reply(Text(pieces=["a", "b", "c"])), Reply("Done.")) as one:
        left = one.chat("go", display=False, stream=True)
        assert next(left)["start"]
        assert spoken(one, "again")[1]["content"] == "Done"
        assert [*left] == []


@async_faces
@body
async def test_a_chat_is_read_by_a_task(face: Face) -> None:
    """The same chunks, and the same approval."""
    script = [Reply(Text("Now. "), code("say hello")), Reply("Done.")]
    with made(*script) as one:
        expected = await anyio.to_thread.run_sync(spoken, one)
    computer = ToyComputer()
    with made(*script, computer=computer) as one:
        async with aclosing(one.achat("go")) as chunks:
            assert [chunk async for chunk in chunks] == expected
        assert computer.ran == ["say hello"]
        assert [message["type"] for message in one.messages] == ["message", "message", "code", "console", "message"]


@async_faces
@pytest.mark.parametrize("how", ["leave", "cancel"])
@body
async def test_a_task_that_leaves_a_chat_stops_its_code(face: Face, how: str) -> None:
    """As when a client leaves: before the next chat, which is not refused."""
    computer = ToyComputer()
    with made(Reply(code("say a\nhang")), Reply("Done."), computer=computer, auto_run=True) as one:
        with anyio.CancelScope() as scope:
            async with aclosing(one.achat("go")) as chunks:
                async for chunk in chunks:
                    if chunk.get("content") == "a\n":
                        if how == "leave":
                            break
                        scope.cancel()
        assert computer.runs[0].ended.is_set()
        async with aclosing(one.achat("again")) as chunks:
            assert "Done" in [chunk.get("content") async for chunk in chunks]


@pytest.mark.parametrize("kind", ["chat", "achat"])
def test_a_server_goes_on_when_a_client_has_left_in_the_midst_of_code(kind: str) -> None:
    """The guide's server stops the code as soon as the client is gone, the usual one with the next chat, which it does not refuse."""
    computer = ToyComputer()

    async def from_task(message: str) -> AsyncIterator[str]:
        async with aclosing(one.achat(message)) as chunks:
            async for chunk in chunks:
                yield json.dumps(chunk) + "\n"

    def from_thread(message: str) -> Iterator[str]:
        for chunk in one.chat(message, stream=True, display=False):
            yield json.dumps(chunk) + "\n"

    async def respond(request: Request) -> StreamingResponse:
        lines = from_thread if kind == "chat" else from_task
        return StreamingResponse(lines((await request.json())["message"]), media_type="application/x-ndjson")

    script = [Reply(code("say a\nhang")), Reply("Done.")]
    with made(*script, computer=computer, auto_run=True) as one:
        with uvicorn_serves(Starlette(routes=[Route("/chat", respond, methods=["POST"])])) as port:
            url = f"http://127.0.0.1:{port}/chat"
            with httpx.stream("POST", url, json={"message": "go"}) as response:
                assert any(json.loads(line).get("content") == "a\n" for line in response.iter_lines())
            if kind == "achat":
                assert computer.runs[0].ended.wait(10)
            again = httpx.post(url, json={"message": "again"}, timeout=20)
        assert "Done" in [json.loads(line).get("content") for line in again.text.splitlines()]
        assert computer.runs[0].ended.is_set()


def test_a_failure_is_raised_and_the_messages_have_what_arrived() -> None:
    """As a `StreamkitError`, out of the loop."""
    with made(Reply(Text("So far and further."), cut_after=3)) as one:
        with pytest.raises(sk.StreamkitError):
            spoken(one)
        assert one.messages[-1]["content"].startswith("So")


# -- settings


def test_the_instance_is_there_and_holds_nothing() -> None:
    """Importing it makes no client and no computer. In a process of its own, for pages of the guide use the instance here."""
    assert isinstance(interpreter, OpenInterpreter)
    code = (
        "from streamkit.compat.open_interpreter import interpreter\n"
        "assert interpreter._computer is None\n"
        "assert not interpreter.llm._clients"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


WHERE = [
    ({"model": "gpt-x"}, "https://api.openai.com/v1/", "gpt-x"),
    ({"model": "openai/gpt-x"}, "https://api.openai.com/v1/", "gpt-x"),
    ({"model": "openai/local", "api_base": "http://localhost:1/v1"}, "http://localhost:1/v1/", "local"),
    ({"model": "org/model", "api_base": "http://localhost:1/v1"}, "http://localhost:1/v1/", "org/model"),
    ({"model": "ollama/llama3"}, "http://localhost:11434/v1/", "llama3"),
    ({"model": "openrouter/org/model"}, "https://openrouter.ai/api/v1/", "org/model"),
    ({"model": "claude-x"}, "https://api.anthropic.com", "claude-x"),
    ({"model": "anthropic/claude-x"}, "https://api.anthropic.com", "claude-x"),
]


@pytest.mark.parametrize(("settings", "url", "name"), WHERE)
def test_the_models_name_decides_on_the_server(settings: dict[str, str], url: str, name: str) -> None:
    """And the same client is used again until a setting changes."""
    llm = Llm()
    llm.api_key = "any"
    for key, value in settings.items():
        setattr(llm, key, value)
    client, model = llm.resolve(offline=False)
    assert (str(client.base_url).rstrip("/"), model) == (url.rstrip("/"), name)
    assert llm.resolve(offline=False)[0] is client


WRONG: list[tuple[str, Any, str]] = [
    ("safe_mode", "ask", "checked at its confirmation"),
    ("loop", True, "chat can be called again"),
    ("os", True, "can be given to streamkit.Agent"),
    ("conversation_history", True, "interpreter.messages can be saved"),
    ("max_budget", 0.1, "max_total_tokens"),
    ("nonsense", 1, "the attributes are: achat, auto_run"),
    ("llm.nonsense", 1, "the attributes are: model, api_key"),
    ("llm.supports_functions", False, "set interpreter.llm.model to one that can call functions"),
    ("llm.api_version", "2024", "set interpreter.llm.client to an AzureOpenAI client"),
    ("llm.max_output", 10, "it is interpreter.max_output"),
]


@pytest.mark.parametrize(("name", "value", "instead"), WRONG)
def test_what_is_not_supported_says_what_to_use_when_it_is_set(name: str, value: Any, instead: str) -> None:
    """Rather than doing nothing. What would change nothing can be set."""
    one = OpenInterpreter(verbose=True, safe_mode="off")
    target: Any = one.llm if name.startswith("llm.") else one
    with pytest.raises(sk.UsageError, match=f"interpreter.{name}.* not supported.*{instead}"):
        setattr(target, name.removeprefix("llm."), value)
    if "." not in name:
        with pytest.raises(sk.UsageError, match=instead):
            OpenInterpreter(**{name: value})


def test_what_the_originals_computer_has_says_what_to_use() -> None:
    """Its own way to run code, and to end the processes."""
    computer = OpenInterpreter().computer
    for options in ({"stream": True}, {"stream": False}, {"display": False}):
        with pytest.raises(sk.UsageError, match=f"no argument `{next(iter(options))}`: a run is always a stream"):
            computer.run("python", "1", **options)
    with pytest.raises(AttributeError, match=r"computer\.terminate is not supported: interpreter\.close\(\) ends"):
        computer.terminate()
    with pytest.raises(AttributeError, match=r"computer\.mouse is not supported: tools"):
        _ = computer.mouse
    chunks = [*sk.stream(computer.run("shell", "echo 1")).chunks("open_interpreter")]
    computer.close()
    assert "1\n" in [chunk.get("content") for chunk in chunks]


def test_what_is_not_there_says_what_is() -> None:
    """An attribute of the original's that this has not."""
    with pytest.raises(AttributeError, match=r"interpreter\.start_terminal_interface is not supported"):
        _ = OpenInterpreter().start_terminal_interface
    with pytest.raises(sk.UsageError, match="api_base"):
        next(iter(OpenInterpreter(offline=True, computer=ToyComputer()).chat("go", display=False, stream=True)))
    one = OpenInterpreter(computer=ToyComputer())
    one.llm.model = "nowhere/model"
    with pytest.raises(sk.UsageError, match="nowhere/model"):
        one.chat("go", display=False)


def test_the_computer_that_was_made_is_closed() -> None:
    """By `reset`. One that was passed in stays open."""
    given = ToyComputer()
    one = OpenInterpreter(computer=given)
    one.reset()
    assert one.computer is given
    one = OpenInterpreter()
    first = one.computer
    one.reset()
    with pytest.raises(sk.UsageError, match="closed"):
        first.start("python")
    assert one.computer is not first
    one.reset()


@pytest.mark.slow
def test_close_ends_the_processes_and_keeps_the_conversation() -> None:
    """As leaving `with` does; another chat starts new ones."""
    with (
        ModelServer([Reply(code("x = 5")), Reply("Done."), Reply(code("print(x)")), Reply("Lost.")]) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
        OpenInterpreter(auto_run=True) as one,
    ):
        one.llm.client = client
        one.chat("go", display=False)
        first = one.computer
        one.close()
        with pytest.raises(sk.UsageError, match="closed"):
            first.run("python", "1")
        assert [message["content"] for message in one.messages] == ["go", "x = 5", "", "Done."]
        one.chat("go on", display=False)
        assert "NameError" in one.messages[-2]["content"]
        second = one.computer
    with pytest.raises(sk.UsageError, match="closed"):
        second.run("python", "1")


def test_close_closes_the_clients_that_were_made() -> None:
    """Of each setting that was used. Another chat makes a new one. A client that was passed in stays open, and so do those
    of an `Llm` that was passed in."""
    with ModelServer(Reply("Hello.")) as server, OpenInterpreter(computer=ToyComputer()) as one:
        one.llm.api_base = server.url
        made: list[Any] = []
        for key in ("a", "b"):
            one.llm.api_key = key
            one.chat("go", display=False)
            made.append(one.llm.resolve(offline=False)[0])
        one.close()
        assert [client.is_closed() for client in made] == [True, True]
        one.chat("go on", display=False)
        last, _ = one.llm.resolve(offline=False)
        assert not last.is_closed()
    assert last.is_closed()
    with OpenInterpreter(llm=one.llm, computer=ToyComputer()) as other:
        shared, _ = other.llm.resolve(offline=False)
        other.close()
        assert not shared.is_closed()
        other.llm.client = shared
        one.close()
    assert shared.is_closed()


@pytest.mark.slow
def test_nothing_is_left_of_an_interpreter_that_nobody_refers_to() -> None:
    """Its processes end; nothing hangs."""

    def work() -> int:
        with (
            ModelServer([Reply(code("1")), Reply("Done.")]) as server,
            openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
        ):
            one = OpenInterpreter(auto_run=True)
            one.llm.client = client
            one.chat("go", display=False)
            pid: int = one.computer._runners["python"].pid
            return pid

    pid = work()
    deadline = time.monotonic() + 20
    while True:
        gc.collect()
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("model", "interpreter.llm.model"),
        ("api_key", "interpreter.llm.api_key"),
        ("temperature", "interpreter.llm.temperature"),
        ("local", "interpreter.offline"),
        ("vision", "interpreter.llm.supports_vision"),
        ("llm_supports_vision", "interpreter.llm.supports_vision"),
        ("supports_function_calling", "interpreter.llm.supports_functions"),
    ],
)
def test_the_names_of_earlier_versions_say_where_they_are_now(name: str, place: str) -> None:
    """When they are set, and when they are read."""
    with pytest.raises(sk.UsageError, match=place):
        setattr(OpenInterpreter(), name, "any")
    with pytest.raises(AttributeError, match=place):
        getattr(OpenInterpreter(), name)


def test_an_output_limit_of_the_models_settings_says_where_it_is() -> None:
    """It is the interpreter's. (When it is set: see above.)"""
    with pytest.raises(AttributeError, match=r"it is interpreter\.max_output"):
        _ = OpenInterpreter().llm.max_output


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str | type[BaseException]) -> list[str]:
    """What a person types, line by line, and then the end of the input; returns the prompts, as they come."""
    prompts: list[str] = []
    typed = iter(lines)

    def read(prompt: str = "") -> str:
        prompts.append(prompt)
        match next(typed, EOFError):
            case str() as line:
                return line
            case error:
                raise error

    monkeypatch.setattr("builtins.input", read)
    return prompts


@pytest.mark.parametrize("leave", ["exit", EOFError, KeyboardInterrupt])
def test_chat_without_a_message_is_a_chat_at_the_terminal(
    leave: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks for messages, and before code runs, until the person leaves."""
    prompts = type_lines(monkeypatch, "Say hello.", "y", "", "And now?", leave, "too late")
    computer = ToyComputer()
    with made(Reply(code("say hello")), Reply("Done."), Reply("Nothing."), computer=computer) as one:
        messages = one.chat()
    assert [m["content"] for m in messages] == ["Say hello.", "say hello", "hello\n", "Done.", "And now?", "Nothing."]
    assert computer.ran == ["say hello"]
    assert prompts == ["> ", "Would you like to run this code? (y/n) ", "> ", "> ", "> "]
    assert "Nothing." in capsys.readouterr().out


def test_a_chat_at_the_terminal_streams_and_goes_on_after_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is printed."""
    type_lines(monkeypatch, "One.", "Two.")
    with made(Reply(status=401), Reply("Here.")) as one:
        chunks = [*one.chat(stream=True)]
    assert "".join(chunk.get("content", "") for chunk in chunks) == "Here."
    assert "SourceError" in capsys.readouterr().out


def test_chat_without_a_message_answers_what_the_user_said_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a question."""
    prompts = type_lines(monkeypatch)
    with made(Reply("Hello."), messages=[{"role": "user", "type": "message", "content": "Hi."}]) as one:
        assert one.chat() == [{"role": "assistant", "type": "message", "content": "Hello."}]
    assert prompts == []


def test_a_displayed_document_has_its_text_for_the_model() -> None:
    """Without markup, scripts and styles; rows of a table are lines. One that has a text already is not changed."""
    html = (
        "<style>td {}</style><table><tr><th>a<th>b</tr>\n<tr><td>1</td><td>2 &lt; 3</td></tr></table><script>x</script>"
    )
    shown: dict[str, Any] = {"role": "computer", "type": "code", "format": "html", "content": html}
    (message,) = messages_for_model([shown])
    assert message["metadata"] == {"text": "a\tb\n1\t2 < 3"}
    (message,) = messages_for_model([{**shown, "metadata": {"text": "mine"}}])
    assert message["metadata"] == {"text": "mine"}


# -- one message after the other


@st.composite
def interleaved(draw: st.DrawFn) -> list[sk.Event]:
    """Events of messages that grow side by side, each well-formed."""
    kinds = draw(st.lists(st.sampled_from([sk.TextMessage, sk.CodeMessage, sk.ReasoningMessage]), max_size=4))
    plans: list[list[sk.Event]] = []
    for number, kind in enumerate(kinds):
        message = kind(f"m{number}", format="python" if kind is sk.CodeMessage else None, status="in_progress")
        pieces = draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3))
        deltas = [message.delta_event(message.id, f"{number}{piece}", snapshot=message) for piece in pieces]
        plans.append([message.created_event(message), *deltas, message.done_event(message)])
    out: list[sk.Event] = []
    while any(plans):
        plan = draw(st.sampled_from([plan for plan in plans if plan]))
        out.append(plan.pop(0))
    return out


@pytest.mark.slow
@given(interleaved())
@settings(max_examples=50, deadline=None)
def test_messages_follow_each_other_in_whatever_order_they_grow(events: list[sk.Event]) -> None:
    """Messages do not overlap, nothing is lost, and the list has the content of the chunks."""
    sequencer, encoder, messages = MessageSequencer(_LEFT_OUT), Encoder(), list[dict[str, Any]]()
    history, chunks = MessageHistory(messages), list[dict[str, Any]]()
    for event in events:
        emitted = [*sequencer.feed(event)]
        history.feed(emitted)
        chunks += [chunk for one in emitted for chunk in chunks_of(encoder, one)]
    assert [chunk.get("start", False) for chunk in chunks if "content" not in chunk] == [True, False] * (
        sum(chunk.get("start", False) for chunk in chunks)
    )
    for number in range(4):
        wanted = [e.value for e in events if isinstance(e, sk.Delta) and e.value[0] == str(number)]
        thought = any(isinstance(e, sk.ReasoningDelta) and e.value[0] == str(number) for e in events)
        got = [chunk["content"] for chunk in chunks if chunk.get("content", " ")[0] == str(number)]
        assert got == ([] if thought else wanted)
    assert "".join(message["content"] for message in messages) == "".join(c.get("content", "") for c in chunks)
