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
