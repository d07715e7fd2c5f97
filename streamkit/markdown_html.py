"""Markdown as HTML that is safe in any page: what a model wrote never becomes an element of its own, and loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["markdown_html"]


def markdown_html(text: str) -> str:
    """The HTML of a text in Markdown. HTML in it is text, a picture is a link, and a link runs no script. Without `rich` (the
    extra `live`), which brings the parser, the text as it is."""
    try:
        parser = _parser()
    except ImportError:
        return f'<div style="white-space: pre-wrap">{escape(text)}</div>'
    return str(parser.render(text))


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    from .markdown_rules import add_rules

    parser = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("strikethrough").enable("table")
    add_rules(parser)
    parser.add_render_rule("image", _image)
    parser.add_render_rule("math_inline", _mathematics)
    parser.add_render_rule("math_block", _mathematics)
    return parser


def _image(renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any) -> str:
    """A picture is not loaded: its address could carry away what it is loaded for."""
    token = tokens[index]
    address = escape(str(token.attrGet("src") or ""))
    return f'<a href="{address}" rel="noopener noreferrer">{escape(token.content) or address}</a>'


def _mathematics(renderer: Any, tokens: Sequence[Token], index: int, options: Any, environment: Any) -> str:
    """Mathematics as it was written: a notebook's page sets it."""
    token = tokens[index]
    return f"<p>{escape(token.content)}</p>\n" if token.block else escape(token.content)
