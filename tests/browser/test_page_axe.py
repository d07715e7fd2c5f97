"""The page through axe, which finds what assistive technology stumbles over: in its states, both themes, two widths.

`npm install --prefix tests/ui_clients` brings it; or STREAMKIT_UI_CLIENTS names a folder that has it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .pages import CHROMIUM, Tab

PACKAGES = Path(os.environ.get("STREAMKIT_UI_CLIENTS", Path(__file__).parents[1] / "ui_clients"))
AXE = PACKAGES / "node_modules" / "axe-core" / "axe.min.js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
    pytest.mark.skipif(not AXE.exists(), reason=f"axe is not installed: no {AXE}"),
]

RUN = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
  .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} ${failureSummary.slice(0, 300)}`))"""


BOTH = [("light", 360), ("dark", 1400)]
ALL = [*BOTH, ("dark", 360), ("light", 1400)]


def check(tab: Tab, state: str, looks: list[tuple[str, int]] = BOTH) -> None:
    """The page is so high that all is in sight: what is not is left out."""
    found: list[Any] = []
    for scheme, width in looks:
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.set_viewport_size({"width": width, "height": 3000})
        found += [(scheme, width, one) for one in tab.page.evaluate(RUN)]
    assert not found, (state, found[:4])


def answer(tab: Tab, text: str) -> None:
    tab.send(text)
    if text != "wide":
        tab.page.click(".question .primary")
    tab.done()


def test_axe_finds_nothing_in_any_state(tab: Tab) -> None:
    """What can be seen at the same time is looked at together."""
    tab.page.evaluate(AXE.read_text("utf-8"))
    check(tab, "empty")
    tab.send("two calls")
    tab.wait(".question")
    check(tab, "a tool's question")
    tab.page.keyboard.press("Alt+x")
    tab.done()
    tab.page.focus(".edit")
    tab.page.keyboard.press("Enter")
    tab.page.fill(".rewrite .editor", "a.txt:\n\n```txt\nA file.\n```")
    tab.page.keyboard.press("Enter")
    tab.wait("#branches:not([hidden])")
    tab.wait(".bubble .fold")
    tab.done()
    for text in ("wide", "two calls", "raise it"):
        answer(tab, text)
    tab.send("fail now")
    tab.wait(".turn .problem")
    tab.send("raise it again")
    tab.wait(".question")
    check(
        tab, "headings and a table, calls, code that failed and code that waits, a failed answer, a branch, and a file"
    )
    tab.page.click(".question >> text=Edit")
    tab.page.locator(".edit").nth(1).focus()
    tab.page.keyboard.press("Enter")
    for number, button in enumerate(("Rename", "Delete")):
        tab.page.hover(f"#conversations li >> nth={number}")
        tab.page.click(f"#conversations li >> nth={number} >> [aria-label^={button}]")
    check(tab, "code and a message that are edited, conversations that are renamed and may be deleted", ALL)
    tab.page.set_viewport_size({"width": 360, "height": 800})
    tab.page.click("#open-side")
    assert tab.page.evaluate(RUN) == []


def test_axe_finds_nothing_where_a_token_is_wanted(context: Any, proxy: Any) -> None:
    page = context.new_page()
    page.goto(proxy.url)
    page.wait_for_selector("#login[open]")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
