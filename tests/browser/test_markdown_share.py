"""How many cases of the specifications of Markdown the terminal and the page show as written there, as the guide says.

`npm install --prefix tests/ui_clients` brings the text of CommonMark. That of GitHub's is in no package: the environment variable
`GFM_SPEC` has the path of its `spec.txt`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from ..test_ui_clients import PACKAGES
from .pages import CHROMIUM, Tab

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SPECS = {
    "CommonMark": PACKAGES / "node_modules" / "commonmark-spec" / "spec.txt",
    "GitHub": Path(os.environ.get("GFM_SPEC", "")),
}
_EXAMPLE = re.compile(r"^`{32} example[^\n]*\n(.*?)^\.\n(.*?)^`{32}$", re.MULTILINE | re.DOTALL)

# A text on the page and the HTML of the specification, each as a line that says what a reader sees: names of elements, texts, and
# where links lead. The page's headings begin at the third level.
SHOWN = r"""async (cases) => {
  const { MarkdownView } = await import("/markdown.js");
  const blocks = new Set(["p", "ul", "ol", "li", "blockquote", "pre", "hr", "table", "thead", "tbody", "tr", "th", "td", "h1", "h2", "h3", "h4", "h5", "h6"]);
  const trimmed = (text) => text.replace(/[ \t\n]+/g, " ").replace(/ ?(<\/?\w[^>]*>) ?/g, (all, tag) => (blocks.has(/\w+/.exec(tag)[0]) || tag === "<br>" ? tag : all)).trim();
  const shown = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data.replace(/[&<>]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[one]);
    if (node.nodeType !== Node.ELEMENT_NODE) return "";
    if (node.matches("pre, .fence")) return `<pre>${JSON.stringify(node.querySelector("code")?.textContent.replace(/\n$/, "") ?? "")}</pre>`;
    const inner = [...node.childNodes].map(shown).join("");
    if (node.matches(".table")) return inner;
    const name = [...node.classList].find((one) => /^h[1-6]$/.test(one)) ?? node.localName;
    if (["br", "hr"].includes(name)) return `<${name}>`;
    if (name === "input") return node.checked ? "<input checked>" : "<input>";
    const attribute = { a: "href", ol: "start", img: "alt" }[name];
    const value = name === "a" ? new URL(node.href, "http://relative/").href : node.getAttribute(attribute);
    return `<${name}${attribute && value ? ` ${value}` : ""}>${inner}</${name}>`;
  };
  return cases.filter(([text, html]) => {
    const root = document.createElement("div");
    const view = new MarkdownView(root);
    view.update(text);
    view.complete();
    const expected = new DOMParser().parseFromString(html, "text/html").body;
    return trimmed([...root.childNodes].map(shown).join("")) === trimmed([...expected.childNodes].map(shown).join(""));
  }).length;
}"""


def cases_of(name: str) -> list[tuple[str, str]]:
    """The cases of a specification, as Markdown and HTML."""
    if not SPECS[name].is_file():
        pytest.skip(f"there is no text of {name}'s specification: see the module's docstring")
    text = SPECS[name].read_text("utf-8").replace("\u2192", "\t")
    return _EXAMPLE.findall(text)


def stated(page: str, name: str) -> tuple[int, int]:
    """How many cases the guide says that there are, and how many of them are shown as specified."""
    text = " ".join((ROOT / ".docs" / page).read_text("utf-8").split())
    found = re.search(rf"of the (\d+) (?:cases )?of {name}\S* [\d.]+,? (?:it|the page) \w+ (\d+)", text, re.IGNORECASE)
    assert found is not None, page
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("name", SPECS)
def test_the_terminal_parses_as_many_cases_as_the_guide_says(name: str) -> None:
    from streamkit.renderers import markdown

    parser: Any = markdown._parser()
    cases = cases_of(name)
    assert (len(cases), sum(parser.render(text) == html for text, html in cases)) == stated("showing.md", name)


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`")
@pytest.mark.parametrize("name", SPECS)
def test_the_page_shows_as_many_cases_as_the_guide_says(name: str, request: pytest.FixtureRequest) -> None:
    cases = cases_of(name)
    tab: Tab = request.getfixturevalue("tab")
    shown = tab.page.evaluate(SHOWN, cases)
    tab.faults.clear()  # the specifications' HTML has styles, which the policy of the page refuses
    assert (len(cases), shown) == stated("browser.md", name)
