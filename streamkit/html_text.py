"""The text of an HTML document, as a model or a terminal reads it that cannot show the document."""

from __future__ import annotations

import re
from html.parser import HTMLParser

__all__ = ["html_to_text"]

_SILENT = frozenset(("head", "script", "style", "svg", "template"))  # what they contain is not text
_LINES = frozenset(
    (
        *("address", "article", "blockquote", "br", "caption", "dd", "div", "dl", "dt", "figure", "footer", "form"),
        *("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre", "section"),
        *("table", "tbody", "thead", "tr", "ul"),
    )
)
_CELLS = frozenset(("td", "th"))


def html_to_text(html: str) -> str:
    """Return the text between the tags: a line for each block and each row of a table, cells separated by tabs."""
    parser = _TextCollector()
    parser.feed(html)
    parser.close()
    lines = (_line(text) for text in "".join(parser.parts).split("\n"))
    return "\n".join(line for line in lines if line.strip())


def _line(text: str) -> str:
    """Return a line without superfluous spaces. Each cell begins with a tab; the first one's is left out."""
    cells = [cell.strip() for cell in text.split("\t")]
    return "\t".join(cells[1:] if len(cells) > 1 and not cells[0] else cells).rstrip()


class _TextCollector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._silent: list[str] = []  # the open elements that are not text

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag in _LINES or tag in _CELLS:
            self.parts.append("\n" if tag in _LINES else "\t")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            while self._silent.pop() != tag:
                pass
        elif tag in _LINES:
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(re.sub(r"\s+", " ", data))
