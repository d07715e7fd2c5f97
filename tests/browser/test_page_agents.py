"""A sub-agent on the chat page: nested inside its call, with its questions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from .pages import CHROMIUM, SIZE, Tab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]


def picture(tab: Tab, name: str) -> None:
    """Save a picture of the page, for a person to look at, where the variable says so."""
    if folder := os.environ.get("STREAMKIT_PICTURES"):
        tab.page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def test_a_sub_agent_is_shown_inside_its_call(tab: Tab) -> None:
    tab.send("nest please")
    tab.wait(".inner .question")
    assert tab.count(".turn.assistant") == 1
    assert tab.text(".inner .text strong") == "compute"
    assert tab.text(".inner .fold.tool").startswith("weather")
    assert tab.text(".inner .card .state") == "Waits for your yes"
    assert tab.page.locator(".tool .state").all_inner_texts()[0] == "Working"
    picture(tab, "question")
    tab.page.set_viewport_size({"width": 360, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is readable on a small page"
    picture(tab, "small")
    tab.page.set_viewport_size(SIZE)
    tab.page.click(".inner .question .primary")
    tab.done()
    assert tab.page.locator("details.fold.tool:has(.inner:not([hidden]))").get_attribute("open") is None
    picture(tab, "done")
    tab.page.click("details.fold.tool:has(.inner:not([hidden])) > summary")
    assert tab.text(".inner .card .console").strip() == "42"
    assert "The output was: 42" in tab.text(".inner")
    assert tab.text(".turn.assistant > .text:last-of-type").startswith("The output was: The output was:")
    picture(tab, "open")


def test_a_conversation_shows_it_in_the_same_way_later(tab: Tab) -> None:
    tab.send("nest again")
    tab.wait(".inner .question")
    tab.page.reload()
    tab.wait(".inner .question")
    tab.page.click(".inner .question .primary")
    tab.done()
    tab.reopen()
    fold = "details.fold.tool:has(.inner:not([hidden]))"
    assert tab.page.locator(fold).get_attribute("open") is None
    tab.page.click(f"{fold} > summary")
    assert tab.text(".inner .card .console").strip() == "42"
    assert tab.text(".inner .card .state") == "Ran"
    assert tab.count(".turn.assistant > .text") == 2
    picture(tab, "later")


@pytest.mark.parametrize("text", ["pay nobody", "nest nobody"])
def test_a_question_that_nobody_answered_is_shown_as_that_later_too(
    tab: Tab, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Of a sub-agent's, its call says so as well."""
    monkeypatch.setattr("streamkit.server.execution._LONGEST", 0.5)
    tab.send(text)
    for _ in range(2):
        tab.done()
        states = tab.page.locator(".turn.assistant .state:not([hidden] *)").all_text_contents()
        assert [state for state in states if state] == ["Not answered"] * (1 if text == "pay nobody" else 2)
        assert tab.text(".turn.assistant > footer .note").startswith("Not answered")
        assert tab.count(".question") == 0
        tab.reopen()
