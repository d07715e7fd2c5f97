"""Markdown that arrives in pieces: a block is parsed until nothing that follows can change it, and then never again.

The rule: a block is settled once the next one has begun, or a blank line has ended it; of a list, every item before the
last. Nothing here grows with what is settled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

from ..markdown_rules import add_rules

__all__ = ["IncrementalMarkdown", "MarkdownBlock"]

LONGEST = 16_000  # characters of one block; a longer one is settled in parts
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TABLE_RULER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-*:?[ \t]*)*\Z")
_LIKELY_END = re.compile(r"\n[ \t]*(?:\n|```|~~~|#)")  # what most often ends a block
_SHORT = 500  # characters that are parsed again with each line
_LISTS = ("bullet_list_open", "ordered_list_open")
_ENDED_BY_BLANK_LINE = ("paragraph_open", "table_open", "blockquote_open", "math_block")


class MarkdownBlock(NamedTuple):
    """A parsed top-level block, or a part of one.

    Attributes:
        tokens: the parser's tokens.
        joins: whether it continues the block before it, so that no blank line stands between them.
    """

    tokens: Sequence[Token]
    joins: bool = False


class _Group(NamedTuple):
    """The tokens of a top-level block, and its lines in the source, the end exclusive."""

    tokens: list[Token]
    start: int
    end: int

    @property
    def kind(self) -> str:
        return self.tokens[0].type


class IncrementalMarkdown:
    """Parses one text block by block. It holds the source that is not settled.

    Attributes:
        joins: whether that source continues the block that was settled last.
    """

    def __init__(self) -> None:
        self._source = ""
        self._pieces: list[str] = []
        self._parsed = 0  # characters of the source that were parsed before, without settling all
        # Lines to parse before the source, where it continues a block: those without which it would be read differently.
        self._prefix: list[str] = []
        self.joins = False
        self._number: int | None = None  # of the list item that the source begins with

    def feed(self, piece: str) -> None:
        """Take a piece of the text."""
        self._pieces.append(piece)

    @property
    def source(self) -> str:
        """The source that is not settled."""
        if self._pieces:
            self._source += "".join(self._pieces)
            self._pieces.clear()
        return self._source

    def take_settled(self, *, final: bool = False) -> list[MarkdownBlock]:
        """The blocks that were settled since the last call; with `final`, all that is left, for nothing follows."""
        blocks: list[MarkdownBlock] = []
        if final:
            blocks += self._settle(self.source, final=True)
        elif (end := self.source.rfind("\n") + 1) > self._parsed and self._may_settle(end):
            blocks += self._settle(self.source[:end], final=False)
        while len(self.source) > LONGEST:
            blocks += self._settle_part()
        return blocks

    def tail(self, width: int, rows: int) -> list[Token]:
        """The tokens of what is not settled; of a long block about the last `rows` lines of `width` columns."""
        if not self.source.strip() and not self._prefix:
            return []
        lines = [*self._prefix, *self.source.split("\n")]
        opening = self._opening(lines) if len(lines) > rows else []
        tokens = self._parse("\n".join([*opening, *(_end_of(line, width * rows) for line in lines[-rows:])]))
        if self._number is not None and len(lines) <= rows and tokens and tokens[0].type == "ordered_list_open":
            tokens[0].attrSet("start", str(self._number))
        return tokens

    def _may_settle(self, end: int) -> bool:
        """Whether parsing the source up to `end` may settle anything. Lines that only extend a long block do not."""
        parsed = self._parsed
        if parsed < _SHORT or _LIKELY_END.search(self._source, max(0, parsed - 1), end) is not None:
            return True
        lines = [*self._prefix, *self._source[:_SHORT].split("\n")]
        return end > 4 * parsed and not self._opening(lines)  # a fence or a table ends only where `_LIKELY_END` is

    def _settle(self, source: str, *, final: bool) -> Iterator[MarkdownBlock]:
        """The settled blocks of these complete lines, which are removed from the source."""
        lines = [*self._prefix, *source.split("\n")]
        groups = list(_group(self._parse("\n".join(lines))))
        cut = 0 if groups else len(lines)
        for number, group in enumerate(groups):
            tokens, joins = self._continue_block(group, number)
            last = number == len(groups) - 1
            if final or not last or _is_complete(group, lines):
                yield MarkdownBlock(tokens, joins)
                cut = len(lines) if last else groups[number + 1].start
                self._prefix, self.joins, self._number = [], False, None
                continue
            cut = group.start
            if group.kind in _LISTS and (items := _items(tokens))[1:]:
                yield MarkdownBlock([tokens[0], *(token for item in items[:-1] for token in item), tokens[-1]], joins)
                cut = _lines_of(items[-1][0])[0]
                self.joins = True
                self._number = _start(tokens[0]) + len(items) - 1
        self._remove_lines(source, max(0, cut - len(self._prefix)))

    def _remove_lines(self, source: str, lines: int) -> None:
        """Remove the first lines from the source; the rest of `source` was parsed."""
        position = 0
        for _ in range(lines):
            found = source.find("\n", position)
            if found < 0:
                position = len(source)
                break
            position = found + 1
        self._source = self._source[position:]
        self._parsed = len(source) - position

    def _settle_part(self) -> Iterator[MarkdownBlock]:
        """The first part of a block that is too long to wait for its end, cut at a line end or a blank."""
        end = self.source.rfind("\n", 0, LONGEST) + 1
        if end < LONGEST // 2:
            end = self.source.rfind(" ", 0, LONGEST) + 1 or LONGEST
        part = self.source[:end]
        lines = [*self._prefix, *part.rstrip("\n").split("\n")]
        for number, group in enumerate(_group(self._parse("\n".join(lines)))):
            yield MarkdownBlock(*self._continue_block(group, number))
        self._prefix, self.joins, self._number = self._opening(lines), True, None
        self._source, self._parsed = self._source[end:], 0

    def _continue_block(self, group: _Group, number: int) -> tuple[list[Token], bool]:
        """The tokens of a group, and whether it joins the block before. Only the first one, number 0, can."""
        if number or not self.joins:
            return group.tokens, False
        if self._number is not None and group.kind == "ordered_list_open":
            group.tokens[0].attrSet("start", str(self._number))
        return group.tokens, True

    @staticmethod
    def _opening(lines: list[str]) -> list[str]:
        """The lines at the head of a block that its other lines depend on: a fence, or a table's head."""
        if _FENCE.match(lines[0]):
            return lines[:1]
        return lines[:2] if len(lines) > 1 and "|" in lines[0] and _TABLE_RULER.match(lines[1]) else []

    @staticmethod
    def _parse(source: str) -> list[Token]:
        return _parser().parse(source)


@cache
def _parser() -> MarkdownIt:
    # A link reference may be defined anywhere in the text, so it cannot be resolved here; its definition stays text.
    # Text inside of an HTML block is Markdown to models, so that is a paragraph, with tags in it.
    parser = MarkdownIt("commonmark").enable("strikethrough").enable("table").disable(["reference", "html_block"])
    add_rules(parser)
    return parser


def _group(tokens: Sequence[Token]) -> Iterator[_Group]:
    """The tokens, by top-level blocks."""
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield _Group(group, *_lines_of(group[0]))
            group = []


def _lines_of(token: Token) -> tuple[int, int]:
    start, end = token.map or (0, 0)
    return start, end


def _is_complete(group: _Group, lines: Sequence[str]) -> bool:
    """Whether the last block of these complete lines has ended. (The last element of `lines` is empty.)"""
    match group.kind:
        case "heading_open" | "hr":
            return True
        case "fence":
            closed = group.end - 1 > group.start and _closes(lines[group.end - 1], group.tokens[0].markup)
            return closed or group.end < len(lines) - 1
        case kind if kind in _ENDED_BY_BLANK_LINE:
            return group.end < len(lines) - 1
        case _:
            return False


def _closes(line: str, fence: str) -> bool:
    """Whether a line closes a block of code that this fence opened."""
    found = _FENCE.match(line)
    return found is not None and found[1].startswith(fence) and not line[found.end() :].strip(" \t")


def _items(tokens: Sequence[Token]) -> list[list[Token]]:
    """The items of a list, each with its tokens."""
    items: list[list[Token]] = []
    for token in tokens[1:-1]:
        if token.level == 1 and token.nesting == 1:
            items.append([])
        items[-1].append(token)
    return items


def _start(token: Token) -> int:
    """The number of a list's first item."""
    start = token.attrGet("start")
    return 1 if start is None else int(start)


def _end_of(line: str, longest: int) -> str:
    """The end of a line. Its beginning moves in large steps, so that what is drawn does not move with each piece."""
    if len(line) <= longest:
        return line
    step = max(1, longest // 2)
    return line[(len(line) - longest) // step * step + step :]
