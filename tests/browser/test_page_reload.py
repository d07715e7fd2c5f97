"""A complete answer is shown later as it was while it came: after a reload, and where its conversation is opened again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from .pages import CHROMIUM, Tab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]


def approve(tab: Tab) -> None:
    tab.wait(".question")
    tab.page.keyboard.press("Alt+a")


def decline(reason: str) -> Callable[[Tab], None]:
    def answer(tab: Tab) -> None:
        tab.page.click(".question button:text-is('Decline')")
        tab.page.fill(".question input", reason)
        tab.page.keyboard.press("Enter")

    return answer


def edit(text: str) -> Callable[[Tab], None]:
    def answer(tab: Tab) -> None:
        tab.page.click(".question button:text-is('Edit')")
        tab.page.fill(".question textarea", text)
        tab.page.keyboard.press("Control+Enter")

    return answer


def stop_at(selector: str) -> Callable[[Tab], None]:
    def act(tab: Tab) -> None:
        tab.wait(selector)
        tab.page.keyboard.press("Escape")

    return act


def approve_and_stop(tab: Tab) -> None:
    approve(tab)
    stop_at(".console >> text=begun")(tab)


def approve_both(tab: Tab) -> None:
    approve(tab)
    tab.wait("text=Ann has 20", state="attached")


def nothing(tab: Tab) -> None:
    pass


CASES = {
    "plain text": ("hello", nothing),
    "reasoning, code and a picture": ("draw", approve),
    "code that raised": ("raise", approve),
    "stderr": ("warn", approve),
    "stderr behind characters of two units": ("smile", approve),
    "code without output": ("quiet", approve),
    "code in another language": ("cobol", nothing),
    "two calls": ("two", approve_both),
    "a call": ("tool", nothing),
    "a wide table": ("wide", nothing),
    "what harms": ("hostile", approve),
    "code that was declined": ("draw", decline("")),
    "code that was declined with a reason": ("draw", decline("not now")),
    "a call that was declined with a reason": ("pay", decline("too much")),
    "code that was edited": ("draw", edit("print('other')")),
    "a call that was edited": ("pay", edit('{"to": "Bob", "amount": 1}')),
    "text that was stopped": ("slower", stop_at("text=word20")),
    "stopped before it began": ("late", stop_at(".worked-on")),
    "a failure": ("fail", nothing),
}


def shown(tab: Tab) -> str:
    """The conversation's elements and texts, without what a person unfolded and the seconds that an answer took."""
    html: str = tab.page.evaluate("document.getElementById('log').innerHTML")
    html = re.sub(r"urn:uuid:[-0-9a-f]+", "urn", html)  # it has one for each reader
    html = re.sub(r" open(=\"\")?(?=[ >])|( \u00b7 )?\b[\d.]+ s(?= \u00b7|<)", "", html)
    return html.replace("><", ">\n<")


# Some in a conversation; answers that are stopped or fail have one of their own.
CONVERSATIONS = [[*CASES][:8], [*CASES][8:16], *([case] for case in [*CASES][16:])]
IDS = ["what ran", "what was answered", *[*CASES][16:]]
UNFOLD = "for (const fold of document.querySelectorAll('details.fold:not([open])')) fold.open = true"


def unfolded(tab: Tab) -> str:
    """The conversation's elements and texts, once all folds show what is in them."""
    tab.page.evaluate(UNFOLD)
    tab.page.wait_for_timeout(50)
    return shown(tab)


@pytest.mark.parametrize("cases", CONVERSATIONS, ids=IDS)
def test_an_answer_looks_later_as_it_looked_live(tab: Tab, cases: list[str]) -> None:
    for number, case in enumerate(cases, 1):
        text, act = CASES[case]
        tab.send(text)
        tab.wait(f"#log > .turn.user >> nth={number - 1}")
        act(tab)
        tab.wait(f"#log > .turn.assistant:has(> footer) >> nth={number - 1}")
        tab.done()
    live = unfolded(tab)
    if len(cases) > 1:
        tab.page.reload()
        tab.done()
    else:
        tab.reopen()
    assert unfolded(tab) == live


@pytest.mark.parametrize(
    ("text", "act", "state"), [("endless", approve_and_stop, "Stopped"), ("draw", stop_at(".question"), "Not run")]
)
def test_code_of_an_answer_that_was_stopped_says_so_later(
    tab: Tab, text: str, act: Callable[[Tab], None], state: str
) -> None:
    """What it still printed while it was stopped was saved, and is shown then."""
    tab.send(text)
    act(tab)
    tab.done()
    assert tab.text(".card .state") == state
    tab.reopen()
    assert tab.text(".card .state") == state
    assert tab.count(".card .console") == (1 if state == "Stopped" else 0)
