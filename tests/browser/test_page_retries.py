"""An answer that begins again on the chat page: what was withdrawn leaves it."""

from __future__ import annotations

import pytest

from .pages import CHROMIUM, Tab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]


# All that was in the page at any time.
SEEN = """window.seen = []; const log = document.getElementById("log");
window.observer = new MutationObserver(() => window.seen.push(log.textContent));
window.observer.observe(log, { childList: true, subtree: true, characterData: true })"""


def shown(tab: Tab) -> list[str]:
    """The texts and the folds of the answer, in their order, without the line that says how it came about."""
    return [
        one.strip() for one in tab.page.locator(".turn.assistant > :not(footer, h2, .again):visible").all_inner_texts()
    ]


def test_what_was_withdrawn_leaves_the_page(tab: Tab) -> None:
    tab.page.evaluate(SEEN)
    tab.send("restart please")
    tab.wait(".again")
    tab.done()
    assert "Wrong words." in tab.page.evaluate("window.seen.join()")
    assert "Wrong" not in tab.page.locator("#log").text_content()
    assert tab.text(".turn.assistant > .again") == "After an error, the answer began again."
    assert tab.count(".turn.assistant") == 1
    live = shown(tab)
    assert [one.split("\n")[0] for one in live] == [
        "Thought about it",
        "Right words.",
        "weather",
        "The output was: It rains in Oslo.",
    ]
    tab.page.evaluate("window.observer.disconnect()")
    tab.reopen()
    assert shown(tab) == live


def test_a_page_that_comes_later_reads_the_same(tab: Tab) -> None:
    """While the answer goes on, from the beginning of its log."""
    tab.send("restart slower")
    tab.wait(".again")
    tab.page.reload()
    tab.done()
    assert "Wrong" not in tab.page.locator("#log").text_content()


def test_a_sub_agent_begins_again_inside_its_call(tab: Tab) -> None:
    tab.send("ask-restart now")
    tab.wait(".inner .again", state="attached")
    tab.done()
    inner = tab.page.locator(".inner:not([hidden])").first.text_content()
    assert "Wrong" not in inner
    assert "Right words." in inner
    assert tab.count(".turn.assistant > .again") == 0


def test_what_an_agent_asks_for_once_more_is_nothing_that_the_person_wrote(tab: Tab) -> None:
    """It says so quietly, and trying again asks what the person has asked."""
    note = "The answer had not the wanted form, so the model was asked once more."
    tab.send("recipe for soup")
    tab.done()
    assert tab.text(".turn.assistant > .note") == note
    for _ in range(2):
        assert tab.count(".turn.user") == tab.count(".turn.assistant") == 1
        assert shown(tab) == ["No recipe, but words.", note, '{"name": "Soup"}']
        tab.reopen()
    with tab.page.expect_request(lambda one: one.url.endswith("/runs")) as sent:
        tab.page.click(".retry")
    assert [message["content"] for message in sent.value.post_data_json["input"]] == ["recipe for soup"]
    tab.done()
    assert tab.page.locator(".bubble").all_inner_texts() == ["recipe for soup"]
