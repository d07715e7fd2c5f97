"""Inline Markdown as a terminal can show it: a few HTML elements by what they mean, every other one as text.

The rule: nothing that a model wrote disappears, but for comments and the tags of elements that only say how text looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it.token import Token

__all__ = ["as_shown", "mark_alert"]

_STYLES = {"b": "strong", "strong": "strong", "summary": "strong", "i": "em", "em": "em", "s": "s", "del": "s"}
_DROPPED = {"u", "ins", "mark", "kbd", "small", "span", "details", "div", "p", "center"}
_RAISED = str.maketrans("0123456789+-=()ni", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ")
_LOWERED = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")
_MOVED = {"sup": (_RAISED, "^"), "sub": (_LOWERED, "_")}
_TAG = re.compile(r"<(/?)([a-zA-Z]+)(?:\s[^>]*)?/?>\Z")
_ALERT = re.compile(r"\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*\Z")


def as_shown(children: Sequence[Token]) -> list[Token]:
    """The tokens of a line of text as they are shown: line ends stay, an image becomes its text and address, a link that
    shows its address is text, and mathematics is what was written."""
    shown: list[Token] = []
    opened: list[tuple[str, int]] = []  # elements with a style: their names, and where their tokens are
    moved = ""  # `sup` or `sub`, where the next text is inside of one
    for child in children:
        match child.type:
            case "softbreak":
                shown.append(Token("hardbreak", "br", 0))
            case "image":
                shown.append(_text(f"[image: {child.content}] ({child.attrGet('src') or ''})"))
            case "math_inline":
                shown.append(_text(child.content))
            case "link_close" if len(shown) > 1 and _shows_address(*shown[-2:]):
                shown.append(shown.pop())
                del shown[-2]
            case "html_inline":
                moved = _moved_by(child, moved)
                shown += _element(child, opened, len(shown))
            case "text" if moved and child.content:
                shown.append(_text(_move(child.content, moved)))
            case _:
                shown.append(child)
    unclosed = {place for _, place in opened}
    return [token for place, token in enumerate(shown) if place not in unclosed]


def mark_alert(tokens: Sequence[Token]) -> None:
    """Give a quotation that begins with `[!NOTE]`, or another of these words, the word as its title."""
    for quotation, paragraph, line in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = line.children
        if (quotation.type, paragraph.type, line.type) != (
            "blockquote_open",
            "paragraph_open",
            "inline",
        ) or not children:
            continue
        found = _ALERT.match(children[0].content) if children[0].type == "text" else None
        if found is not None and (len(children) == 1 or children[1].type in ("softbreak", "hardbreak")):
            title = [
                Token("strong_open", "strong", 1),
                _text(found[1].capitalize()),
                Token("strong_close", "strong", -1),
            ]
            line.children = [*title, *children[1:]]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _shows_address(opening: Token, text: Token) -> bool:
    addresses = (text.content, f"mailto:{text.content}", f"http://{text.content}")
    return opening.type == "link_open" and text.type == "text" and opening.attrGet("href") in addresses


def _element(tag: Token, opened: list[tuple[str, int]], place: int) -> Iterator[Token]:
    """What a tag becomes. `opened` has the elements that are open; this one's token will be at `place`."""
    found = _TAG.match(tag.content)
    closes, name = (bool(found[1]), found[2].lower()) if found else (False, "")
    if name == "br":
        yield Token("hardbreak", "br", 0)
    elif name in _STYLES and not closes:
        opened.append((name, place))
        yield Token(f"{_STYLES[name]}_open", _STYLES[name], 1)
    elif name in _STYLES:
        if opened and opened[-1][0] == name:
            opened.pop()
            yield Token(f"{_STYLES[name]}_close", _STYLES[name], -1)
        else:
            yield _text(tag.content)
    elif name not in _DROPPED and name not in _MOVED and not tag.content.startswith("<!--"):
        yield _text(tag.content)


def _moved_by(tag: Token, moved: str) -> str:
    found = _TAG.match(tag.content)
    if found is None or found[2].lower() not in _MOVED:
        return moved
    return "" if found[1] else found[2].lower()


def _move(text: str, moved: str) -> str:
    """Text above or below the line, if there are characters for it, else behind `^` or `_`."""
    table, mark = _MOVED[moved]
    return text.translate(table) if all(ord(one) in table for one in text) else f"{mark}{text}"
