"""The page through axe, which finds what assistive technology stumbles over: in its states, light and narrow, dark and wide.

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


def violations(tab: Tab) -> list[Any]:
    if not tab.page.evaluate("'axe' in window"):
        tab.page.evaluate(AXE.read_text("utf-8"))
    found: list[Any] = tab.page.evaluate(RUN)
    return found


def check(tab: Tab, state: str) -> None:
    """The page is so high that all is in sight: what is not is left out."""
    found: list[Any] = []
    for scheme, width in (("light", 360), ("dark", 1400)):
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.set_viewport_size({"width": width, "height": 3000})
        found += [(scheme, width, one) for one in violations(tab)]
    assert not found, (state, found[:4])


def test_axe_finds_nothing_in_any_state(tab: Tab) -> None:
    """What can be seen at the same time is looked at together."""
    check(tab, "empty")
    tab.send("two calls")
    tab.wait(".question")
    check(tab, "a tool's question")
    tab.page.click(".question .primary")
    tab.done()
    tab.page.focus(".edit")
    tab.page.keyboard.press("Enter")
    tab.page.fill(".rewrite .editor", "a.txt:\n\n```txt\nA file.\n```")
    tab.page.keyboard.press("Enter")
    tab.wait("#branches:not([hidden])")
    tab.wait(".bubble .fold")
    tab.done()
    for text in ("wide", "two calls", "raise it"):
        tab.send(text)
        if text != "wide":
            tab.page.click(".question .primary")
        tab.done()
    tab.send("fail now")
    tab.wait(".turn .problem")
    tab.send("raise it again")
    tab.page.click(".question >> text=Edit")
    tab.page.locator(".edit").nth(1).focus()
    tab.page.keyboard.press("Enter")
    for number, button in enumerate(("Rename", "Delete")):
        tab.page.hover(f"#conversations li >> nth={number}")
        tab.page.click(f"#conversations li >> nth={number} >> [aria-label^={button}]")
    check(tab, "a table, calls, code that failed, a failed answer, a branch, a file, and what is edited or deleted")
    tab.page.emulate_media(color_scheme="light")
    tab.page.set_viewport_size({"width": 360, "height": 800})
    tab.page.click("#open-side")
    assert violations(tab) == []
    tab.page.keyboard.press("Escape")
    tab.page.keyboard.press("Escape")
    tab.done()


def test_axe_finds_nothing_where_a_token_is_wanted(tab: Tab) -> None:
    tab.page.context.clear_cookies()
    tab.page.keyboard.press("Alt+n")
    tab.wait("#login[open]")
    assert violations(tab) == []
