"""The renderers on an agent whose code really runs: a real client, a scripted model on loopback, a real computer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from rich.console import Console

import streamkit as sk
from streamkit.computer import Computer
from streamkit.mimebundle import html_of
from streamkit.renderers import ConsolePrinter, LiveDisplay
from streamkit.testing import ModelServer, Reply, ToolCall

CODE = "print('before')\n1 / 0\n"


class Answer(sk.EventHandler):
    """Approves everything, or declines it with a reason."""

    def __init__(self, reason: str | None) -> None:
        self.reason = reason

    def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
        if self.reason is None:
            confirmation.approve()
        else:
            confirmation.decline(self.reason)


@pytest.fixture(scope="module")
def computer() -> Iterator[Computer]:
    """A computer."""
    with Computer() as computer:
        yield computer


def shown(computer: Computer, code: str, reason: str | None = None, *, live: bool, width: int = 80) -> list[str]:
    """The lines that a renderer shows of an answer whose code is approved or declined."""
    file = io.StringIO()
    display: Any = ConsolePrinter(file)
    if live:
        display = LiveDisplay(Console(file=file, width=width, force_terminal=False, color_system=None))
    replies = [Reply(ToolCall("execute", {"language": "python", "code": code})), Reply("Enough.")]
    with ModelServer(replies) as server, openai.OpenAI(base_url=server.url, api_key="none") as client:
        sk.Agent(client, model="m", computer=computer).stream("Go.", display, Answer(reason)).until_done()
    return file.getvalue().splitlines()


@pytest.mark.parametrize(("live", "line"), [(True, "✗ failed"), (False, "[code] failed")])
def test_code_that_raised_is_followed_by_a_line_that_says_so(computer: Computer, live: bool, line: str) -> None:
    assert [one for one in shown(computer, CODE, live=live) if one.startswith(line)]
    assert not [one for one in shown(computer, "print('fine')", live=live) if one.startswith(line)]


@pytest.mark.parametrize("live", [True, False])
def test_the_reason_of_a_declined_confirmation_is_shown_once(computer: Computer, live: bool) -> None:
    lines = shown(computer, CODE, "because I say so", live=live)
    assert [line for line in lines if "because" in line] == [
        "✗ declined: because I say so" if live else "[confirmation] declined: because I say so"
    ]


def test_a_folded_line_of_code_that_waits_for_approval_does_not_look_like_two(computer: Computer) -> None:
    lines = shown(computer, "total = 1 + 2 + 3 + 4 + 5\nprint(total)\n", "no", live=True, width=24)
    assert lines[1:4] == ["  1 total = 1 + 2 + 3 +", "  ↳ 4 + 5", "  2 print(total)"]


def _whole(kind: type[Any], id: str, content: str, **fields: Any) -> list[sk.Event]:
    message = kind(id, **fields)
    return [message.created_event(message), message.done_event(kind(id, content=content, **fields))]


SUB_AGENT = [
    *_whole(sk.TextMessage, "t1", "I ask."),
    *_whole(sk.ToolCallMessage, "c1", '{"input": "sun?"}', name="research", call_id="a"),
    *_whole(sk.TextMessage, "a/t", "First line.\n\nSecond line.", parent_id="a"),
    *_whole(sk.ToolCallMessage, "a/c", '{"q": 1}', name="search", call_id="a/b", parent_id="a"),
    *_whole(sk.TextMessage, "a/b/t", "Deep.", parent_id="a/b"),
    *_whole(sk.ToolOutputMessage, "o1", "A star.", name="research", call_id="a"),
    sk.RunDone(sk.Run(status="completed")),
    sk.StreamEnd(),
]


def test_what_a_sub_agent_says_is_indented() -> None:
    out = io.StringIO()
    sk.stream(SUB_AGENT, ConsolePrinter(out)).until_done()
    assert out.getvalue().splitlines() == [
        "[message] I ask.",
        '[tool_call] research({"input": "sun?"})',
        "    [message] First line.",
        "",
        "    Second line.",
        '    [tool_call] search({"q": 1})',
        "        [message] Deep.",
        "[tool_output research] A star.",
        "[run] completed",
    ]


def test_a_live_display_indents_it_too() -> None:
    out = io.StringIO()
    sk.stream(SUB_AGENT, LiveDisplay(Console(file=out, width=60))).until_done()
    shown = [line for line in out.getvalue().splitlines() if line.strip()]
    assert [len(line) - len(line.lstrip()) for line in shown] == [0, 0, 4, 4, 4, 8, 0, 0]


INNER_RETRY = [
    *SUB_AGENT[:4],
    *_whole(sk.TextMessage, "a/half", "Half.", parent_id="a"),
    sk.StreamRetry(2, "SourceError", "It broke.", 0.0, ["a/half"]),
    *SUB_AGENT[4:],
]


def test_the_line_about_a_sub_agent_that_begins_again_is_indented() -> None:
    printed, drawn = io.StringIO(), io.StringIO()
    sk.stream(INNER_RETRY, ConsolePrinter(printed)).until_done()
    sk.stream(INNER_RETRY, LiveDisplay(Console(file=drawn, width=80))).until_done()
    for out, mark in ((printed, "[retry]"), (drawn, "\u21bb")):
        (line,) = [line.rstrip() for line in out.getvalue().splitlines() if "begins again" in line]
        assert line == f"    {mark} the answer begins again: SourceError: It broke."


def test_texts_of_sub_agents_beside_each_other_are_not_cut_by_what_another_one_does() -> None:
    """It comes after them."""
    texts = [sk.TextMessage(f"{parent}/t", parent_id=parent) for parent in ("a", "b")]
    call = _whole(sk.ToolCallMessage, "b/c", '{"q": 1}', name="search", call_id="b/1", parent_id="b")
    output = _whole(sk.ToolOutputMessage, "b/o", "found", name="search", call_id="b/1", parent_id="b")
    events = [
        *(sk.TextCreated(text) for text in texts),
        *(sk.TextDelta("a/t", "The sun is a "), sk.TextDelta("b/t", "Let me see.")),
        sk.TextDone(sk.TextMessage("b/t", content="Let me see.", parent_id="b")),
        *(*call, *output, sk.TextDelta("a/t", "star.")),
        sk.TextDone(sk.TextMessage("a/t", content="The sun is a star.", parent_id="a")),
        sk.StreamEnd(),
    ]
    out = io.StringIO()
    sk.stream(events, ConsolePrinter(out, run_end=False)).until_done()
    assert [line.strip() for line in out.getvalue().splitlines()] == [
        "[message] The sun is a star.",
        "[message] Let me see.",
        '[tool_call] search({"q": 1})',
        "[tool_output search] found",
    ]


def test_a_question_about_a_call_names_its_tool() -> None:
    call = sk.ToolCallMessage("c1", name="pay", call_id="a", content="{}")
    events = [call.done_event(call), sk.ConfirmationCreated(sk.Confirmation("q", call)), sk.StreamEnd()]
    out = io.StringIO()
    sk.stream(events, ConsolePrinter(out)).until_done()
    assert "[confirmation] may this call of pay run?\n" in out.getvalue()


def test_a_notebook_shows_it_nested() -> None:
    messages = sk.stream(SUB_AGENT).get_final_messages()
    assert [html_of(message).count("margin-left") for message in messages] == [0, 0, 1, 1, 1, 0]
