"""Markdown on the page: the same texts as on a terminal, as nodes; and what may never become one."""

# ruff: noqa: RUF001

from __future__ import annotations

import re
from typing import Any

import pytest

from ..markdown_cases import CASES
from .pages import CHROMIUM, Tab

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: no program `chromium`"),
]

NODES = {
    "mathematics in a line": r"<p>Solve <m>\(a^2 + b_1 = c_1\)</m> and <m>$x_1*y*z_1$</m>.</p>",
    "money is no mathematics": "<p>It costs $5, then <em>$6</em>, or $5-$10.</p>",
    "mathematics in lines": "<p>Then</p><p><m>\\[\na_1\n= b \\\\\n- c_1\n\\]</m></p><p>follows.</p>",
    "mathematics between two dollars": "<p><m>$$\nE = m*c*2\n$$</m></p>",
    "mathematics ends at a blank line": "<p><m>$$\na</m></p><p><em>b</em></p>",
    "escaped brackets are brackets": "<p>an [escape]</p>",
    "bold beside CJK": "<p><strong>强调。</strong>继续，中<strong>粗体（x）</strong>文</p>",
    "emphasis by the rule of three": (
        "<p><em><strong>a</strong> b</em> and <em>a<strong>b</strong>c</em> and <strong>a*b</strong></p>"
    ),
    "underscores in words": "<p>snake_case_name and <em>this</em></p>",
    "raised and lowered text": "<p>H<sub>2</sub>O, x<sup>2</sup>, x<sup>ab</sup></p>",
    "inert elements": "<p><b>a</b> <u>b</u> <kbd>Ctrl</kbd> <span>c</span></p>",
    "a break in a line": "<p>a<br>b<br>c</p>",
    "a break in a cell": (
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>x<br>y</td><td>z</td></tr></tbody></table>"
    ),
    "an element without its end": "<p>a <b>b and c</b></p>",
    "an end without its element": "<p>a&lt;/b&gt; b</p>",
    "details": "<details><summary>More</summary><p>It is <em>here</em>.</p></details><p>End.</p>",
    "comments": "<p>a  b</p>",
    "every other element is text": "<p>&lt;script&gt;x&lt;/script&gt; &lt;a href='y'&gt;z&lt;/a&gt;</p>",
    "addresses": (
        '<p><a href="http://www.a.b/">www.a.b</a> <a href="http://c.d/">http://c.d</a> <a href="mailto:e@f.g">e@f.g</a> '
        '<a href="http://i.j/">h</a></p>'
    ),
    "a picture in a link": '<p><a href="http://l.m/">alt</a></p>',
    "references": '<p><a href="http://b.c/">a</a></p>',
    "footnotes": "<p>a<sup>1</sup></p><ol><li>the note</li></ol>",
    "entities": "<p>© ö ½ # ≧̸</p>",
    "an alert": "<blockquote><p><strong>Warning</strong></p><p>Take <em>care</em>.</p></blockquote>",
    "brackets in a quotation": "<blockquote><p>[!NOTE] is a word</p></blockquote>",
    "items indented by tabs": "<ul><li>a<ul><li>b</li></ul></li></ul>",
    "code indented by a tab": "<p>a</p><pre>x = 1</pre>",
    "a tight list around a list": "<ol><li>a</li><li>b<ul><li>c</li><li>d</li></ul></li><li>e</li></ol>",
    "tasks": "<ul><li><input checked>a</li><li><input>b</li></ul>",
    "struck out": "<p><del>a</del> b</p>",
    "a table": (
        '<table><thead><tr><th class="center">a</th><th class="right">b</th></tr></thead><tbody>'
        '<tr><td class="center">1</td><td class="right">22</td></tr></tbody></table>'
    ),
}
"""By the name of the case: its nodes on the page, without the attributes that say nothing of the text."""

SHOWN = """async (texts) => {
  const { MarkdownView } = await import("/markdown.js");
  const shown = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data.replace(/[&<>]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[one]);
    const inner = [...node.childNodes].map(shown).join("");
    if (node.matches("math")) return `<m>${node.getAttribute("alttext")}</m>`;
    if (node.matches(".math")) return `<m>${inner}</m>`;
    if (node.matches(".table")) return inner;
    if (node.matches(".fence")) return `<pre>${node.querySelector("code").textContent.trimEnd()}</pre>`;
    const name = node.localName;
    const attributes = { a: ["href"], ol: ["start"], th: ["class"], td: ["class"] }[name] ?? [];
    const given = attributes.filter((one) => node.hasAttribute(one)).map((one) => ` ${one}="${node.getAttribute(one)}"`);
    if (name === "input") return node.checked ? "<input checked>" : "<input>";
    return name === "br" ? "<br>" : `<${name}${given.join("")}>${inner}</${name}>`;
  };
  return texts.map((text) => {
    const root = document.createElement("div");
    const view = new MarkdownView(root);
    view.update(text);
    view.complete();
    return [...root.childNodes].map(shown).join("");
  });
}"""


def test_the_cases_of_the_terminal_become_these_nodes(tab: Tab) -> None:
    assert [*NODES] == [*CASES], "a case for one of them is a case for both"
    made = tab.page.evaluate(SHOWN, [markdown for markdown, _ in CASES.values()])
    assert dict(zip(CASES, made, strict=True)) == NODES


def test_references_lead_wherever_their_definitions_stand(tab: Tab) -> None:
    """To the first of them, by a label whose case does not matter; in lists and quotations, too."""
    texts = {
        "[a][X], [x], [b][]\n\n> [x]: http://a.b 'title'\n\n- [B]: <http://c.d>\n[x]: http://other": (
            '<p><a href="http://a.b/">a</a>, <a href="http://a.b/">x</a>, <a href="http://c.d/">b</a></p>'
            "<blockquote></blockquote><ul><li></li></ul>"
        ),
        "[a][none] and [x](y)": "<p>[a][none] and <span>x</span></p>",
        "[a][x]\n\n[x]: javascript:harm()": "<p><span>a</span></p>",
        "b[^2] a[^1] b[^2] c[^3] [r]\n\n[^1]: one *more*\n[^2]: two[^1]\n[r]: http://r.s": (
            '<p>b<sup>1</sup> a<sup>2</sup> b<sup>1</sup> c[^3] <a href="http://r.s/">r</a></p>'
            "<ol><li>two<sup>2</sup></li><li>one <em>more</em></li></ol>"
        ),
    }
    assert dict(zip(texts, tab.page.evaluate(SHOWN, [*texts]), strict=True)) == texts


FORMULAS = {
    r"$\frac{a}{b}$": "<mfrac><mi>a</mi><mi>b</mi></mfrac>",
    r"$x_i^2 - 10$": "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup><mo>−</mo><mn>10</mn>",
    r"$$\sum_{i=1}^n i$$": (
        "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover><mi>i</mi>"
    ),
    r"\(\sqrt[3]{x'} \in \mathbb{R}\)": (
        "<mroot><msup><mi>x</mi><mo>′</mo></msup><mn>3</mn></mroot><mo>∈</mo><mi>ℝ</mi>"
    ),
    r"$\begin{pmatrix} a & b \\ c & d \end{pmatrix}$": (
        "<mrow><mo>(</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mi>b</mi></mtd></mtr><mtr><mtd><mi>c</mi></mtd>"
        "<mtd><mi>d</mi></mtd></mtr></mtable><mo>)</mo></mrow>"
    ),
    r"$\left| \vec{v} \right| \text{ if } \alpha$": (
        "<mrow><mo>|</mo><mover><mi>v</mi><mo>→</mo></mover><mo>|</mo></mrow><mtext> if </mtext><mi>α</mi>"
    ),
    r"$\unheardof{x}$": None,
    r"$\frac{a}$": None,
    r"$a } b$": None,
    "$" + "{" * 60 + "}" * 60 + "$": None,
    r"$\href{javascript:harm()}{x}$": None,
}
"""Formulas, and what is in their `mrow`; None where the formula stays as it was written."""


def test_formulas_become_mathml_or_stay_as_written(tab: Tab) -> None:
    made = tab.page.evaluate(
        """async (formulas) => {
          const { MarkdownView } = await import("/markdown.js");
          const shown = (node) => node.nodeType === 3 ? node.data : `<${node.localName}>${[...node.childNodes].map(shown).join("")}</${node.localName}>`;
          return formulas.map((formula) => {
            const root = document.createElement("div");
            new MarkdownView(root).update(formula);
            const found = root.querySelector("math > mrow");
            return found ? [...found.childNodes].map(shown).join("") : root.textContent === formula ? null : root.innerHTML;
          });
        }""",
        [*FORMULAS],
    )
    assert dict(zip(FORMULAS, made, strict=True)) == FORMULAS


HARMFUL = [
    "<b onclick='harm()'>x</b><span style='position:fixed'>y</span><sup/onmouseover=harm()>z</sup>",
    "<details ontoggle=harm() open><summary>x</summary></details>",
    "<details open>\n<summary onclick='harm()'>x</summary>\n<script>harm()</script>\n</details>",
    "[x]\n\n[x]: javascript:harm() 'y'\n\n![p]\n\n[p]: http://127.0.0.1:9/p.png",
    "a[^1]\n\n[^1]: <img src=x onerror=harm()> [b](javascript:harm())",
    "&lt;script&gt;harm()&lt;/script&gt; &NotAnEntity; &#60;img src=x onerror=harm()&#62;",
    r"\(<img src=x onerror=harm()>\) $\href{javascript:harm()}{x}$ \[ \style{x}{<script>harm()</script>} \]",
    "> [!NOTE]\n> <script>harm()</script>",
    'www.<script>harm()</script>.org <a@b.c"onclick=harm()> <javascript:harm()@x.y>',
]


def test_nothing_that_a_model_writes_becomes_an_attribute_or_an_element_that_acts(tab: Tab) -> None:
    found: list[Any] = tab.page.evaluate(
        """async (texts) => {
          const { MarkdownView } = await import("/markdown.js");
          return texts.map((text) => {
            const root = document.createElement("div");
            document.body.append(root);
            const view = new MarkdownView(root);
            view.update(text);
            view.complete();
            const all = [...root.querySelectorAll("*")];
            return [
              all.filter((one) => one.matches("script, img:not([src^='data:image']), style, iframe, form, annotation-xml")).length,
              all.flatMap((one) => one.getAttributeNames()).filter((name) => name.startsWith("on") || name === "style" || name === "open"),
              all.map((one) => one.getAttribute("href")).filter((href) => href && !/^(https?:|mailto:)/.test(href)),
            ];
          });
        }""",
        HARMFUL,
    )
    assert found == [[0, [], []]] * len(HARMFUL)


def test_what_grows_is_in_the_end_as_if_it_had_come_at_once(tab: Tab) -> None:
    """With its references, which are resolved when the text is complete; the rest is as it was."""
    text = "\n\n".join(markdown for markdown, _ in CASES.values())
    whole, grown = tab.page.evaluate(
        """async (text) => {
          const { MarkdownView } = await import("/markdown.js");
          const roots = [1, 7].map(() => document.createElement("div"));
          const views = roots.map((root) => new MarkdownView(root));
          views[0].update(text);
          for (let end = 0; end < text.length; end += 7) views[1].update(text.slice(0, end));
          views[1].update(text);
          for (const view of views) view.complete();
          return roots.map((root) => root.innerHTML);
        }""",
        text,
    )
    assert whole == grown
    assert re.search(r'<a href="http://b\.c/"', whole)
