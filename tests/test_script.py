"""What the scripted model of `streamkit serve` answers, with an agent whose code really runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamkit as sk
from streamkit.cli.script import QUESTIONS
from streamkit.cli.serve import scripted
from streamkit.computer import Computer

from .terminals import ROOT


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[sk.Agent]:
    """An agent of the scripted model, which runs code in a folder with one file."""
    (tmp_path / "notes.txt").write_text("seven b")
    with scripted(0) as (client, model), Computer(cwd=tmp_path) as computer:
        yield sk.Agent(client, model=model, computer=computer, auto_run=True, protocol="openai_responses")


def types_of(agent: sk.Agent, question: str) -> list[str]:
    return [message.type for message in agent.stream(question).get_final_messages()]


def test_the_page_offers_the_questions_that_have_an_answer() -> None:
    page = (ROOT / "streamkit/server/page/page.js").read_text("utf-8")
    found = re.search(r"const SUGGESTIONS = (\[.*?\]);", page)
    assert found is not None
    assert json.loads(found[1]) == list(QUESTIONS)


def test_a_sine_is_a_picture_where_there_is_a_plotting_library(agent: sk.Agent) -> None:
    pytest.importorskip("matplotlib")
    assert types_of(agent, QUESTIONS[0])[-2:] == ["image", "message"]
    assert "| `sin` | 0 | 1 | 0 | -1 | 0 |" in agent.messages[-1].content


def test_code_that_fails_is_mended(agent: sk.Agent) -> None:
    types = types_of(agent, QUESTIONS[1])
    assert types.count("code") == 2
    printed = [message.content for message in agent.messages if message.type == "console"]
    assert "NameError" in printed[0]
    assert printed[1] == "2 3 5 7 11 13 17 19 23 29 31 37 41 43 47\n"
    assert "**15 primes**" in agent.messages[-1].content


def test_files_are_a_table(agent: sk.Agent) -> None:
    types_of(agent, QUESTIONS[2])
    assert "| `notes.txt` | file | 7 |" in agent.messages[-1].content


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_no_is_respected(question: str) -> None:
    class No(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            confirmation.decline()

    with scripted(0) as (client, model), Computer() as computer:
        agent = sk.Agent(client, model=model, computer=computer, protocol="openai_responses")
        agent.stream(question, No()).until_done()
        messages = agent.messages
    assert "console" not in [message.type for message in messages]


def test_a_question_after_another_has_its_own_answer(agent: sk.Agent) -> None:
    types_of(agent, QUESTIONS[2])
    types_of(agent, QUESTIONS[1])
    assert "**15 primes**" in agent.messages[-1].content
