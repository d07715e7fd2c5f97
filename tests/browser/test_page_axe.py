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


def check(tab: Tab, state: str) -> None:
    found: list[Any] = []
    tab.page.evaluate(AXE.read_text("utf-8"))
    for scheme in ("light", "dark"):
        for width in (360, 1400):
            tab.page.emulate_media(color_scheme=scheme)
            tab.page.set_viewport_size({"width": width, "height": 800})
            found += [(scheme, width, one) for one in tab.page.evaluate(RUN)]
    assert not found, (state, found[:4])


def test_axe_finds_nothing_in_any_state(tab: Tab) -> None:
    check(tab, "empty")
    tab.send("wide")
    tab.done()
    check(tab, "headings and a table")
    tab.send("two calls")
    tab.wait(".question")
    check(tab, "a tool's question")
    tab.page.click(".question .primary")
    tab.done()
    tab.send("raise it")
    tab.wait(".question")
    check(tab, "code that waits")
    tab.page.click(".question >> text=Edit")
    check(tab, "code that is edited")
    tab.page.click(".question .primary")
    tab.done()
    check(tab, "code that failed")
    tab.send("fail now")
    tab.wait(".turn .problem")
    check(tab, "a failed answer")
    tab.page.focus(".edit")
    tab.page.keyboard.press("Enter")
    check(tab, "a message that is edited")
    tab.page.fill(".rewrite .editor", "a.txt:\n\n```txt\nA file.\n```")
    tab.page.keyboard.press("Enter")
    tab.wait("#branches:not([hidden])")
    tab.wait(".bubble .fold")
    tab.done()
    check(tab, "a branch, and a file")
    for button, state in (
        ("Rename", "a conversation that is renamed"),
        ("Delete", "a conversation that may be deleted"),
    ):
        tab.page.set_viewport_size({"width": 1400, "height": 800})
        tab.page.hover("#conversations li")
        tab.page.click(f"#conversations li >> nth=0 >> [aria-label^={button}]")
        check(tab, state)
        tab.page.click("#conversations button:text-is('Cancel')")
    tab.page.set_viewport_size({"width": 360, "height": 800})
    tab.page.click("#open-side")
    tab.page.evaluate(AXE.read_text("utf-8"))
    assert tab.page.evaluate(RUN) == []


def test_axe_finds_nothing_where_a_token_is_wanted(context: Any, proxy: Any) -> None:
    page = context.new_page()
    page.goto(proxy.url)
    page.wait_for_selector("#login[open]")
    page.evaluate(AXE.read_text("utf-8"))
    assert page.evaluate(RUN) == []
