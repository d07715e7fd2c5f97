"""MemGPT's terminals: what stands there for each thing that an agent does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

import streamkit as sk
from streamkit.compat import letta
from streamkit.compat.letta import (
    AgentChunkStreamingInterface,
    AgentInterface,
    AgentRefreshStreamingInterface,
    CLIInterface,
    StreamingCLIInterface,
    StreamingRefreshCLIInterface,
)
from streamkit.renderers import LiveDisplay

THOUGHTS = "Chad asks for the third time."


def chunk(content: str | None = None, calls: Iterable[Any] = (), **more: Any) -> dict[str, Any]:
    """A chunk of a chat answer."""
    delta: dict[str, Any] = {"content": content} if content is not None else {}
    if told := [_fragment(*call) for call in calls]:
        delta["tool_calls"] = told
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-4",
        "choices": [{**choice, **more}],
    }


def _fragment(index: int, id: str | None, name: str | None, arguments: str | None) -> dict[str, Any]:
    return {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}


def answer(content: str | None = None, *calls: tuple[str, str]) -> dict[str, Any]:
    """A chat answer, as far as it has come."""
    told = [
        {"id": f"c{n}", "type": "function", "function": {"name": a, "arguments": b}} for n, (a, b) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": content, "tool_calls": told or None}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4", "choices": [choice]}


def as_namespace(value: Any) -> Any:
    """A dict as an object with attributes."""
    return json.loads(json.dumps(value), object_hook=lambda known: SimpleNamespace(**known))


SHAPES: list[Any] = [
    pytest.param(dict, id="dict"),
    pytest.param(as_namespace, id="object"),
    pytest.param(lambda value: ChatCompletionChunk.model_construct(**value), id="half-built"),
    pytest.param(ChatCompletionChunk.model_validate, id="pydantic"),
]


class Screen(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """`sys.stdout` as a terminal with colours, from now on."""
    screen = Screen()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys, "stdout", screen)
    return screen


# -- whole lines

KINDS: list[Any] = [
    ("important_message", "hey", "hey", "1;35"),
    ("warning_message", "oh", "oh", "1;31"),
    ("internal_monologue", "hm", "💭 hm", "3;90"),
    ("assistant_message", "hi", "🤖 hi", "1;33"),
    ("memory_message", "new", "🧠 new", "1;95"),
    ("system_message", "boot", "🖥️ [system] boot", "1;35"),
]
TERMINALS: list[Any] = [CLIInterface, StreamingCLIInterface, lambda: _regular(StreamingRefreshCLIInterface())]


def _regular(interface: StreamingRefreshCLIInterface) -> StreamingRefreshCLIInterface:
    interface.toggle_streaming(False)
    return interface


@pytest.mark.parametrize("make", TERMINALS, ids=["plain", "chunks", "refresh"])
@pytest.mark.parametrize(("method", "text", "line", "colour"), KINDS)
def test_each_kind_of_message_is_a_line(
    make: Callable[[], Any], method: str, text: str, line: str, colour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its icon, in its colour. MemGPT's streaming terminal raised a TypeError for each."""
    screen = terminal(monkeypatch)
    getattr(make(), method)(text)
    assert screen.getvalue() == f"\x1b[{colour}m{line}\x1b[0m\n"


@pytest.mark.parametrize(("method", "text", "line", "colour"), KINDS)
def test_methods_can_be_called_on_the_class(
    method: str, text: str, line: str, colour: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they were; on a pipe without colours."""
    getattr(CLIInterface, method)(text)
    assert capsys.readouterr().out == f"{line}\n"


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is lost of a warning, as it was."""
    screen = terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    CLIInterface.warning_message("oh")
    assert screen.getvalue() == "oh\n"


@pytest.mark.parametrize(("method", "text", "line", "colour"), KINDS)
def test_text_is_text(method: str, text: str, line: str, colour: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No escape sequence, markup or emoji code of a model's reaches the terminal as one."""
    getattr(CLIInterface, method)("\x1b[2J[bold]:smile:[/]{msg}\r")
    assert capsys.readouterr().out == line.replace(text, "␛[2J[bold]:smile:[/]{msg}␍") + "\n"


USER: list[Any] = [
    ("hi", {}, ""),
    ("hi", {"raw": True}, "🧑 hi\n"),
    ("hi", {"dump": True}, "🧑 hi\n"),
    ('{"type": "user_message", "message": "hi", "time": "9"}', {}, ""),
    ('{"type": "user_message", "message": "hi", "time": "9"}', {"raw": True}, '🧑 {"type": "user_message", "message": "hi", "time": "9"}\n'),
    ('{"type": "user_message", "message": "hi", "time": "9"}', {"dump": True}, "🧑 hi\n"),
    ('{"type": "user_message", "message": "hi", "time": "9"}', {"debug": True}, "🧑 {'message': 'hi', 'time': '9'}\n"),
    ('{"type": "user_message"}', {"dump": True}, "🧑 {}\n"),
    ('{"type": "heartbeat", "time": "9"}', {"debug": True}, "💓 {'time': '9'}\n"),
    ('{"type": "heartbeat", "time": "9"}', {"dump": True}, "💓 {'type': 'heartbeat', 'time': '9'}\n"),
    ('{"type": "system_message", "message": "x"}', {"dump": True}, "🖥️ {'message': 'x'}\n"),
    ('{"type": "login"}', {"dump": True}, "🧑 {'type': 'login'}\n"),
    ('{"no": "type"}', {"dump": True}, "🧑 {'no': 'type'}\n"),
    ({"type": "user_message", "message": "hi"}, {"dump": True}, "🧑 hi\n"),
    ("42", {"dump": True}, "🧑 42\n"),
    ("[1]", {"debug": True}, "🧑 [1]\n"),
    (None, {"raw": True}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "options", "shown"), USER)
def test_what_the_user_said(
    text: Any, options: dict[str, bool], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only where it is asked for; JSON that is no object, or has no type, is shown as it is."""
    CLIInterface.user_message(text, **options)
    assert capsys.readouterr().out == shown


FUNCTIONS: list[Any] = [
    ("Success: ok", False, ""),
    ("Success: ok", True, "⚡🟢 [function] Success: ok\n"),
    ("Error: no", True, "⚡🔴 [function] Error: no\n"),
    ("Ran f()", True, ""),
    ("Running f({'a': 1})", False, ""),
    ("Running f({'a': 1})", True, "⚡ [function] Running f({'a': 1})\n"),
    ({"status": "OK"}, True, "⚡ [function] {'status': 'OK'}\n"),
    ('{"status": "OK"}', True, '⚡ [function] {"status": "OK"}\n'),
    ('{"status": "OK"}', False, ""),
    ("what", False, "Warning: did not recognize function message <class 'str'> what\n"),
    (
        "Running core_memory_append({'name': 'human', 'content': 'likes\\ntea'})",
        False,
        "⚡🧠 [function] updating memory with core_memory_append\n\t→ likes\ntea\n",
    ),
    (
        "Running core_memory_replace({'old_content': 'tea', 'new_content': 'coffee'})",
        False,
        "⚡🧠 [function] updating memory with core_memory_replace\n\t tea\n\t→ coffee\n",
    ),
    (
        'Running archival_memory_insert({"content": "x",\n"more": true})',
        False,
        "⚡🧠 [function] updating memory with archival_memory_insert\n\t→ x\n",
    ),
    (
        "Running archival_memory_search({'query': 'q', 'page': 0})",
        False,
        "⚡🧠 [function] searching memory with archival_memory_search\n\tquery: q, page: 0\n",
    ),
    (
        "Running conversation_search({'query': 'q'})",
        False,
        "⚡🧠 [function] searching memory with conversation_search\n\tquery: q\n",
    ),
    (
        "Running conversation_search_date({'start_date': 'a', 'end_date': 'b'})",
        False,
        "⚡🧠 [function] searching memory with conversation_search_date\n\tstart_date: a, end_date: b\n",
    ),
    (
        "Running core_memory_append(" + "[" * 5000 + ")",
        False,
        "⚡🧠 [function] updating memory with core_memory_append\n",
    ),
    (
        "Running core_memory_append(__import__('os').abort())",
        False,
        "⚡🧠 [function] updating memory with core_memory_append\n",
    ),
]


@pytest.mark.parametrize(("text", "debug", "shown"), FUNCTIONS)
def test_what_functions_do(text: Any, debug: bool, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without debug, what they do to the memory alone. Appended text and arguments over several lines were lost."""
    CLIInterface.function_message(text, debug=debug)
    assert capsys.readouterr().out == shown


CALL = {"id": "c", "type": "function", "function": {"name": "send_message", "arguments": '{"message": "Hi\nyou"}'}}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "boot"},
    {"role": "user", "content": '{"type": "user_message", "message": "hello"}'},
    {"role": "assistant", "content": THOUGHTS, "tool_calls": [CALL]},
    {"role": "tool", "content": '{"status": "OK", "message": "None"}', "tool_call_id": "c"},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "d", "function": {"name": "core_memory_append", "arguments": '{"content": "tea"}'}},
        {"id": "e", "function": {"name": "f", "arguments": '{"a": true}'}},
        {"id": "g", "function": {"name": "send_message", "arguments": '{"mess'}},
    ]},
    {"role": "assistant", "content": "just thoughts"},
    {"role": "assistant", "content": None, "function_call": {"name": "send_message", "arguments": '{"message": "old"}'}},
    {"role": "martian", "content": "?"},
]  # fmt: skip


class Stored:
    """A message of Letta's: it knows its chat form."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given

    def to_openai_dict(self) -> dict[str, Any]:
        return self.given


@pytest.mark.parametrize("shape", [dict, as_namespace, Stored], ids=["dict", "object", "stored"])
def test_a_conversation_is_printed(shape: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]) -> None:
    """All calls of a message; nothing says `None`, nothing ends the program."""
    CLIInterface.print_messages([shape(message) for message in CONVERSATION])
    assert capsys.readouterr().out.splitlines() == [
        "🖥️ [system] boot",
        f"💭 {THOUGHTS}",
        "🤖 Hi",
        "you",
        "⚡🧠 [function] updating memory with core_memory_append",
        "\t→ tea",
        '🤖 {"mess',
        "💭 just thoughts",
        "🤖 old",
        "Unknown role: ?",
    ]


def test_a_conversation_is_dumped(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it, numbered down to 1; a message of several lines once."""
    CLIInterface.print_messages(CONVERSATION, dump=True)
    assert capsys.readouterr().out.splitlines() == [
        "[8] 🖥️ [system] boot",
        "[7] 🧑 hello",
        f"[6] 💭 {THOUGHTS}",
        "🤖 Hi",
        "you",
        '[5] ⚡ [function] {"status": "OK", "message": "None"}',
        "[4] ⚡ [function] Running core_memory_append({'content': 'tea'})",
        "⚡ [function] Running f({'a': True})",
        '🤖 {"mess',
        "[3] 💭 just thoughts",
        "[2] 🤖 old",
        "[1] Unknown role: ?",
    ]


def test_a_conversation_is_printed_simply(capsys: pytest.CaptureFixture[str]) -> None:
    """Who said what; what tools gave is left out, where it was called an unknown role."""
    CLIInterface.print_messages_simple(CONVERSATION)
    assert capsys.readouterr().out.splitlines() == [
        "🖥️ [system] boot",
        '🧑 {"type": "user_message", "message": "hello"}',
        f"🤖 {THOUGHTS}",
        "🤖 Hi",
        "you",
        '🤖 {"mess',
        "🤖 just thoughts",
        "🤖 old",
        "Unknown role: ?",
    ]


def test_a_conversation_is_printed_raw(capsys: pytest.CaptureFixture[str]) -> None:
    """Dict by dict."""
    CLIInterface.print_messages_raw([CONVERSATION[0], Stored(CONVERSATION[5]), sk.TextMessage("m", content="x")])
    assert capsys.readouterr().out.splitlines() == [
        "{'role': 'system', 'content': 'boot'}",
        "{'role': 'assistant', 'content': 'just thoughts'}",
        "{'id': 'm', 'role': 'assistant', 'type': 'message', 'content': 'x'}",
    ]


def test_our_own_messages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Text is what was said."""
    CLIInterface.print_messages(
        [
            sk.TextMessage(role="user", content="hello"),
            sk.ReasoningMessage(content="hm"),
            sk.ToolCallMessage(name="send_message", content='{"message": "Hi"}'),
            sk.ToolOutputMessage(content="fine"),
            sk.TextMessage(content="So."),
        ],
        dump=True,
    )
    assert capsys.readouterr().out.splitlines() == [
        "[5] 🧑 hello",
        "[4] 💭 hm",
        "[3] 🤖 Hi",
        "[2] ⚡🟢 [function] Success: fine",
        "[1] 🤖 So.",
    ]


# -- chunks as they come

STREAM = [
    chunk("", role="assistant"),
    chunk("Chad asks "),
    chunk("for the third time."),
    chunk(calls=[(0, "c1", "send_message", "")]),
    chunk(calls=[(0, None, None, '{"mess')]),
    chunk(calls=[(0, None, None, 'age": "Hi"}')]),
    chunk(finish_reason="tool_calls"),
    {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4", "choices": []},
]


def told(chunks: Iterable[Any], **options: Any) -> None:
    interface = StreamingCLIInterface(**options)
    interface.stream_start()
    for one in chunks:
        interface.process_chunk(one, "message-1")
    interface.stream_end()


@pytest.mark.parametrize("shape", SHAPES)
def test_chunks_are_printed_along(shape: Callable[[Any], Any], capsys: pytest.CaptureFixture[str]) -> None:
    """MemGPT's text, with the label that it forgot after thoughts."""
    told(map(shape, STREAM))
    assert capsys.readouterr().out == (
        f'Inner thoughts: {THOUGHTS}\nCalling function: send_message({{"message": "Hi"}})\n'
    )


PREFIXES: list[Any] = [
    ("an empty first piece brings no label", [chunk(""), chunk(calls=[(0, "c", "f", "{}")])], "Calling function: f({})\n"),
    (
        "thoughts after a call have their label, and the call its parenthesis",
        [chunk(calls=[(0, "c", "f", "{}")]), chunk("hm")],
        "Calling function: f({})\nInner thoughts: hm\n",
    ),
    (
        "calls side by side",
        [chunk(calls=[(0, "c", "f", "{"), (1, "d", "g", "{}")]), chunk(calls=[(0, None, None, "}")])],
        "Calling function: f({})\ng({})\n",
    ),
    ("both at once", [chunk("hm", calls=[(0, "c", "f", "{}")])], "Inner thoughts: hm\nCalling function: f({})\n"),
    ("nothing", [], ""),
    ("no choices", [{"choices": []}, {}, None], ""),
]  # fmt: skip


@pytest.mark.parametrize(("chunks", "text"), [pytest.param(*case[1:], id=case[0]) for case in PREFIXES])
def test_each_kind_of_text_has_its_label(chunks: list[Any], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever came before it. What MemGPT refused with an AssertionError is printed, too."""
    told(chunks)
    assert capsys.readouterr().out == text


def test_each_piece_is_printed_when_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """Not when its line is complete."""
    interface = StreamingCLIInterface()
    printed = []
    for one in STREAM[1:3]:
        interface.process_chunk(one, "m")
        printed.append(capsys.readouterr().out)
    assert printed == ["Inner thoughts: Chad asks ", "for the third time."]
    interface.stream_end()
    interface.stream_end()
    assert capsys.readouterr().out == "\n"


def test_a_line_that_comes_between_has_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """What was being printed ends before it."""
    interface = StreamingCLIInterface()
    interface.process_chunk(chunk("Chad"), "m")
    interface.warning_message("careful")
    interface.process_chunk(chunk(" asks"), "m")
    interface.step_yield()
    interface.print_messages_simple(CONVERSATION[:1])
    assert capsys.readouterr().out == "Inner thoughts: Chad\ncareful\nInner thoughts:  asks\n🖥️ [system] boot\n"


def test_another_renderer_may_be_told() -> None:
    """Any handler; one that has to be awaited cannot be."""
    seen: list[str] = []

    class Seen(sk.EventHandler):
        def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
            seen.append(delta.value)

        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            seen.append(f"{call.name} {call.arguments}")

        def on_end(self) -> None:
            seen.append("end")

    told(STREAM, renderer=Seen())
    assert seen == ["Chad asks ", "for the third time.", "send_message {'message': 'Hi'}", "end"]

    class Late(sk.AsyncEventHandler):
        async def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None: ...

    with pytest.raises(sk.UsageError, match=r"Late\.on_text_delta is async"):
        told(STREAM, renderer=Late())


# -- all of the answer, again and again


def refreshes(content: str, *calls: tuple[str, str]) -> list[dict[str, Any]]:
    """An answer that grows by a character a time."""
    grown = [answer(content[:end]) for end in range(len(content) + 1)]
    for number, (name, arguments) in enumerate(calls):
        before = calls[:number]
        grown += [answer(content, *before, (name[:end], "")) for end in range(len(name) + 1)]
        grown += [answer(content, *before, (name, arguments[:end])) for end in range(len(arguments) + 1)]
    return [{"choices": []}, *grown]


SAID = json.dumps({"message": 'Hi "you" \U0001f600\n[bold]', "request_heartbeat": True}, indent=2)
REFRESHES: list[Any] = [
    ({}, "💭 hm\n🤖 Hi \"you\" \U0001f600\n[bold]\nf({\"a\":1})\ng()\n"),
    ({"fancy": False}, "[inner thoughts] hm\n🤖 Hi \"you\" \U0001f600\n[bold]\nf({\"a\":1})\ng()\n"),
    ({"separate_send_message": False}, f"💭 hm\nsend_message({SAID})\nf({{\"a\":1}})\ng()\n"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("options", "text"), REFRESHES)
@pytest.mark.parametrize(
    "shape",
    [dict, as_namespace, lambda value: ChatCompletion.model_construct(**value)],
    ids=["dict", "object", "pydantic"],
)
def test_what_a_refresh_adds_is_printed(
    shape: Callable[[Any], Any], options: dict[str, bool], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """All calls; what is said as text, never as half of its JSON; no markup of the model's."""
    interface = StreamingRefreshCLIInterface(**options)
    interface.stream_start()
    for response in refreshes("hm", ("send_message", SAID), ("f", '{"a":1}'), ("g", "")):
        interface.process_refresh(shape(response))
    interface.stream_end()
    assert capsys.readouterr().out == f"\n{text}\n"


def test_thoughts_are_in_italics_only_where_it_is_fancy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tags of another library's markup stood there, where it was not."""
    screen = terminal(monkeypatch)
    for fancy in (True, False):
        interface = StreamingRefreshCLIInterface(fancy)
        interface.process_refresh(answer("hm", ("send_message", '{"message": "Hi"}')))
        interface.stream_end()
    fancily, soberly = screen.getvalue().split("\n\n")[:2]
    assert "\x1b[3;90m" in fancily
    assert soberly == "[inner thoughts] hm\n🤖 Hi"


def test_what_the_stream_showed_is_not_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    """By the options; `toggle_streaming` shows all that is told, and brings back what was chosen."""
    interface = StreamingRefreshCLIInterface(disable_inner_mono_call=False)
    shown = []
    for on in (None, False, True):
        if on is not None:
            interface.toggle_streaming(on)
        interface.internal_monologue("hm")
        interface.assistant_message("Hi")
        interface.process_refresh(answer("streamed"))
        interface.stream_end()
        shown.append(capsys.readouterr().out.split())
    assert shown == [["💭", "hm", "💭", "streamed"], ["💭", "hm", "🤖", "Hi"], ["💭", "hm", "💭", "streamed"]]
    assert (interface.separate_send_message, interface.disable_inner_mono_call) == (True, False)


def test_a_refresh_that_says_something_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """What was printed stays; a call that is told anew, too."""
    interface = StreamingRefreshCLIInterface()
    for response in (answer("Helo"), answer("Hello"), answer("Hello", ("f", "{a")), answer("Hello", ("f", "{b}"))):
        interface.process_refresh(response)
    interface.stream_end()
    assert capsys.readouterr().out == "💭 Helo\nreplaced: 💭 Hello\nf({a)\nreplaced: f({b})\n\n".replace("a)\n", "a\n")


def test_output_is_updated(capsys: pytest.CaptureFixture[str]) -> None:
    """A text of the caller's own; markup that no library understood ended the program."""
    interface = StreamingRefreshCLIInterface()
    for text in ("[/", "[/bold] :smile:", "other"):
        interface.update_output(text)
    interface.stream_end()
    assert capsys.readouterr().out == "[/bold] :smile:\nreplaced: other\n\n"


def test_a_long_answer_costs_little(capsys: pytest.CaptureFixture[str]) -> None:
    """MemGPT's took 19 s for 20,000 refreshes: it drew all of it again each time."""
    import time

    text = "word " * 4000
    began = time.process_time()
    interface = StreamingRefreshCLIInterface()
    for end in range(len(text) + 1):
        interface.process_refresh({"choices": [{"message": {"content": text[:end]}}]})
    interface.stream_end()
    assert time.process_time() - began < 4
    assert capsys.readouterr().out == f"💭 {text}\n\n"


def test_a_terminal_is_told_by_live_display_if_one_likes() -> None:
    """The other renderer, on a pipe here."""
    from rich.console import Console

    out = io.StringIO()
    interface = StreamingRefreshCLIInterface(renderer=LiveDisplay(Console(file=out, width=60), run_end=False))
    interface.process_refresh(answer("hm", ("send_message", '{"message": "Hi"}'), ("f", "{}")))
    interface.stream_end()
    assert [word in out.getvalue() for word in ("hm", "Hi", "f")] == [True] * 3


@given(st.lists(st.one_of(st.none(), st.text(), st.integers(), st.dictionaries(st.text(max_size=3), st.text()))))
def test_no_value_ends_the_program(values: list[Any]) -> None:
    """Whatever is handed over in place of chunks, answers and messages."""
    import contextlib

    with contextlib.redirect_stdout(io.StringIO()):
        chunks, refresh = StreamingCLIInterface(), StreamingRefreshCLIInterface()
        for value in values:
            for given_ in (
                value,
                {"choices": value},
                {"choices": [value]},
                {"choices": [{"delta": value}]},
                *_deep(value),
            ):
                chunks.process_chunk(given_, "m")
                refresh.process_refresh(given_)
            CLIInterface.function_message(value, debug=True)
            CLIInterface.user_message(value, dump=True)
            CLIInterface.print_messages([value, {"role": "assistant", "content": value, "tool_calls": [value]}])
        chunks.stream_end()
        refresh.stream_end()


def _deep(value: Any) -> list[Any]:
    calls = {"tool_calls": [{"index": value, "id": value, "function": {"name": value, "arguments": value}}]}
    return [{"choices": [{"index": value, "delta": calls, "message": {**calls, "content": value}}]}]


# -- the classes


@pytest.mark.parametrize(
    ("base", "methods"),
    [
        (AgentInterface, "user_message internal_monologue assistant_message function_message"),
        (AgentChunkStreamingInterface, "process_chunk stream_start stream_end"),
        (AgentRefreshStreamingInterface, "process_refresh stream_start stream_end toggle_streaming"),
    ],
)
def test_an_interface_of_ones_own_has_these_methods(base: Any, methods: str) -> None:
    """Without one of them it cannot be made."""
    wanted = {*methods.split(), *AgentInterface.__abstractmethods__}
    assert base.__abstractmethods__ == wanted
    assert type("Own", (base,), dict.fromkeys(wanted, lambda *given: None))()
    with pytest.raises(TypeError):
        type("Half", (base,), {})()


def test_the_classes_are_what_they_were() -> None:
    """`isinstance` says so."""
    assert issubclass(CLIInterface, AgentInterface)
    assert issubclass(letta.QueuingInterface, AgentInterface)
    assert issubclass(StreamingCLIInterface, AgentChunkStreamingInterface)
    assert issubclass(letta.StreamingServerInterface, AgentChunkStreamingInterface)
    assert issubclass(StreamingRefreshCLIInterface, AgentRefreshStreamingInterface)


def test_nothing_else_is_imported() -> None:
    """Neither letta nor what only some terminals need."""
    unwanted = ["letta", "memgpt", "letta_client", "openai", "rich", "pydantic", "colorama"]
    code = f"import streamkit.compat.letta, sys; print(*sorted(set({unwanted!r}) & set(sys.modules)))"
    where = Path(sk.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300, cwd=where
    )
    assert done.stdout.split() == []


@pytest.mark.parametrize("terminal", [StreamingCLIInterface, StreamingRefreshCLIInterface])
def test_a_streaming_terminals_lines_can_be_printed_on_the_class(terminal: Any, capsys: Any) -> None:
    """As in MemGPT, and with the same text as on an instance."""
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("important_message", ("x",)),
        ("warning_message", ("x",)),
        ("memory_message", ("x",)),
        ("system_message", ("x",)),
        ("user_message", ("x", None, True)),
        ("function_message", ("Success: x", None, True)),
        ("print_messages", ([{"role": "user", "content": "x"}], True)),
        ("print_messages_simple", ([{"role": "assistant", "content": "x"}],)),
        ("print_messages_raw", ([{"role": "user", "content": "x"}],)),
    ]
    if terminal is StreamingCLIInterface:  # those of the refreshing terminal depend on its options
        calls += [("internal_monologue", ("x",)), ("assistant_message", ("x",))]
    for name, arguments in calls:
        getattr(terminal, name)(*arguments)
        on_class = capsys.readouterr().out
        getattr(terminal(), name)(*arguments)
        assert on_class == capsys.readouterr().out != ""


@pytest.mark.parametrize("terminal", [CLIInterface, StreamingCLIInterface, StreamingRefreshCLIInterface])
def test_steps_end_on_the_class_too(terminal: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """As everything that needs no state."""
    terminal.step_yield()
    terminal.step_complete()
    assert capsys.readouterr().out == ""


def test_a_queues_hook_of_the_original_that_is_not_called_is_refused() -> None:
    """Where the class is made."""
    own = {"_queue_push": lambda self, message_api, message_obj: None}
    for bases, methods in (((letta.QueuingInterface,), own), ((type("Mixin", (), own), letta.QueuingInterface), {})):
        with pytest.raises(
            sk.UsageError, match=r"Mine\._queue_push would never be called: override the public methods"
        ):
            type("Mine", bases, methods)


@pytest.mark.parametrize("name", ["_process_chunk_to_letta_style", "_process_chunk_to_openai_style", "_push_to_buffer"])
def test_a_hook_of_the_original_that_is_not_called_is_refused(name: str) -> None:
    """Where the class is made; no hook is silently skipped."""
    own = {name: lambda self, chunk: None}
    server = letta.StreamingServerInterface
    for bases, methods in (((server,), own), ((type("Mixin", (), own), server), {})):
        with pytest.raises(sk.UsageError, match=rf"Mine\.{name} would never be called: override `process_chunk`"):
            type("Mine", bases, methods)
