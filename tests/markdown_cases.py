"""Markdown that models write, and how a terminal of 60 columns shows it: data for tests, of every renderer of text."""

# ruff: noqa: RUF001

from __future__ import annotations

__all__ = ["CASES"]

CASES = {
    "mathematics in a line": (
        r"Solve \(a^2 + b_1 = c_1\) and $x_1*y*z_1$.",
        r"Solve \(a^2 + b_1 = c_1\) and $x_1*y*z_1$.",
    ),
    "money is no mathematics": ("It costs $5, then *$6*, or $5-$10.", "It costs $5, then $6, or $5-$10."),
    "mathematics in lines": (
        "Then\n\\[\na_1\n= b \\\\\n- c_1\n\\]\nfollows.",
        "Then\n\n  \\[\n  a_1\n  = b \\\\\n  - c_1\n  \\]\n\nfollows.",
    ),
    "mathematics between two dollars": ("$$\nE = m*c*2\n$$\n", "  $$\n  E = m*c*2\n  $$"),
    "mathematics ends at a blank line": ("$$\na\n\n*b*", "  $$\n  a\n\nb"),
    "escaped brackets are brackets": (r"an \[escape\]", "an [escape]"),
    "bold beside CJK": ("**强调。**继续，中**粗体（x）**文", "强调。继续，中粗体（x）文"),
    "emphasis by the rule of three": ("***a** b* and *a**b**c* and **a*b**", "a b and abc and a*b"),
    "underscores in words": ("snake_case_name and _this_", "snake_case_name and this"),
    "raised and lowered text": ("H<sub>2</sub>O, x<sup>2</sup>, x<sup>ab</sup>", "H₂O, x², x^ab"),
    "inert elements": ("<b>a</b> <u>b</u> <kbd>Ctrl</kbd> <span style='x'>c</span>", "a b Ctrl c"),
    "a break in a line": ("a<br>b<br/>c", "a\nb\nc"),
    "a break in a cell": ("| a | b |\n|---|---|\n| x<br>y | z |\n", " a  b\n ────\n x  z\n y"),
    "an element without its end": ("a <b>b and c", "a b and c"),
    "an end without its element": ("a</b> b", "a</b> b"),
    "details": (
        "<details><summary>More</summary>\n\nIt is *here*.\n\n</details>\n\nEnd.",
        "More\n\nIt is here.\n\nEnd.",
    ),
    "comments": ("a <!-- hidden --> b", "a  b"),
    "every other element is text": ("<script>x</script> <a href='y'>z</a>", "<script>x</script> <a href='y'>z</a>"),
    "addresses": ("www.a.b <http://c.d> <e@f.g> [h](http://i.j)", "www.a.b http://c.d e@f.g h (http://i.j)"),
    "a picture in a link": ("[![alt](i.png)](http://l.m)", "[image: alt] (i.png) (http://l.m)"),
    "references": ("[a][1]\n\n[1]: http://b.c\n", "[a][1]\n\n[1]: http://b.c"),
    "footnotes": ("a[^1]\n\n[^1]: the note\n", "a[^1]\n\n[^1]: the note"),
    "entities": ("&copy; &ouml; &frac12; &#35; &ngE;", "© ö ½ # ≧̸"),
    "an alert": ("> [!WARNING]\n> Take *care*.", "▌ Warning\n▌ Take care."),
    "brackets in a quotation": ("> [!NOTE] is a word", "▌ [!NOTE] is a word"),
    "items indented by tabs": ("-\ta\n\t- b\n", " • a\n    • b"),
    "code indented by a tab": ("a\n\n\tx = 1\n", "a\n\n  x = 1"),
    "a tight list around a list": ("1. a\n2. b\n   - c\n   - d\n3. e\n", " 1 a\n 2 b\n    • c\n    • d\n 3 e"),
    "tasks": ("- [x] a\n- [ ] b\n", " • [x] a\n • [ ] b"),
    "struck out": ("~~a~~ b", "a b"),
    "a table": ("| a | b |\n|:-:|--:|\n| 1 | 22 |\n", " a   b\n ─────\n 1  22"),
}
"""By what it shows: the Markdown, and the lines on the terminal without blanks at their ends."""
