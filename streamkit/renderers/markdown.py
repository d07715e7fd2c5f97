"""Markdown that comes in pieces: each block is parsed until nothing that follows can change it, and never again.

The rule: a block is settled once the next one has begun, or a blank line has ended it; of a list, every item before
the last. HTML is text, and a link's address is shown. Nothing here grows with what was settled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["Block", "MarkdownPieces"]

LONGEST = 16_000  # characters of one block; a longer one is settled in parts
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_RULER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-*:?[ \t]*)*\Z")
_BREAK = re.compile(r"\n[ \t]*(?:\n|```|~~~|#)")  # what most often ends a block
_SHORT = 500
_LISTS = ("bullet_list_open", "ordered_list_open")
_ENDED_BY_BLANK_LINE = ("paragraph_open", "table_open", "blockquote_open")


class Block(NamedTuple):
    """A top-level block, parsed. One that `joins` goes on with the block before it, with no blank line between."""

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


class MarkdownPieces:
    """The source of one text, as far as it is not settled."""

    def __init__(self) -> None:
        self._source = ""
        self._pieces: list[str] = []
        self._looked_at = 0  # characters of the source that were parsed without settling all
        self._prefix: list[str] = []  # lines to read before the source: what a part of a block goes on from
        self.joins = False  # whether the source goes on with the block that was settled last
        self._number: int | None = None  # of the list's item that the source begins with

    def feed(self, piece: str) -> None:
        self._pieces.append(piece)

    @property
    def source(self) -> str:
        """What is not settled."""
        if self._pieces:
            self._source += "".join(self._pieces)
            self._pieces.clear()
        return self._source

    def settled(self, *, final: bool = False) -> list[Block]:
        """The blocks that were settled since it was asked last; all, if nothing follows."""
        blocks: list[Block] = []
        if final:
            blocks += self._settle(self.source, final=True)
        elif (end := self.source.rfind("\n") + 1) > self._looked_at and self._may_settle(end):
            blocks += self._settle(self.source[:end], final=False)
        while len(self.source) > LONGEST:
            blocks += self._settle_part()
        return blocks

    def tail(self, width: int, rows: int) -> list[Token]:
        """What is not settled yet, parsed; of a long block about the last `rows` lines."""
        if not self.source.strip() and not self._prefix:
            return []
        lines = [*self._prefix, *self.source.split("\n")]
        kept = self._opening(lines) if len(lines) > rows else []
        tokens = self._parse("\n".join([*kept, *(_cropped(line, width * rows) for line in lines[-rows:])]))
        if self._number is not None and len(lines) <= rows and tokens and tokens[0].type == "ordered_list_open":
            tokens[0].attrSet("start", str(self._number))
        return tokens

    def _may_settle(self, end: int) -> bool:
        """Whether it is worth while to parse again: lines of a long block that only add to it are not."""
        seen = self._looked_at
        if seen < _SHORT or _BREAK.search(self._source, max(0, seen - 1), end) is not None:
            return True
        lines = [*self._prefix, *self._source[:_SHORT].split("\n")]
        return end > 4 * seen and not self._opening(lines)  # which a break must end

    def _settle(self, source: str, *, final: bool) -> Iterator[Block]:
        """The blocks of these whole lines that are settled; the source is cut behind them."""
        lines = [*self._prefix, *source.split("\n")]
        groups = list(_grouped(self._parse("\n".join(lines))))
        cut = 0 if groups else len(lines)
        for number, group in enumerate(groups):
            tokens, joins = self._continued(group, number)
            last = number == len(groups) - 1
            if final or not last or _is_over(group, lines):
                yield Block(tokens, joins)
                cut = len(lines) if last else groups[number + 1].start
                self._prefix, self.joins, self._number = [], False, None
                continue
            cut = group.start
            if group.kind in _LISTS and (items := _items(tokens))[1:]:
                yield Block([tokens[0], *(token for item in items[:-1] for token in item), tokens[-1]], joins)
                cut = _lines_of(items[-1][0])[0]
                self.joins = True
                self._number = _start(tokens[0]) + len(items) - 1
        self._cut(source, max(0, cut - len(self._prefix)))

    def _cut(self, source: str, lines: int) -> None:
        position = 0
        for _ in range(lines):
            found = source.find("\n", position)
            if found < 0:
                position = len(source)
                break
            position = found + 1
        self._source = self._source[position:]
        self._looked_at = len(source) - position

    def _settle_part(self) -> Iterator[Block]:
        """The first part of a block that is too long to wait for its end."""
        end = self.source.rfind("\n", 0, LONGEST) + 1
        if end < LONGEST // 2:
            end = self.source.rfind(" ", 0, LONGEST) + 1 or LONGEST
        part = self.source[:end]
        lines = [*self._prefix, *part.rstrip("\n").split("\n")]
        for number, group in enumerate(_grouped(self._parse("\n".join(lines)))):
            yield Block(*self._continued(group, number))
        self._prefix, self.joins, self._number = self._opening(lines), True, None
        self._source, self._looked_at = self._source[end:], 0

    def _continued(self, group: _Group, number: int) -> tuple[list[Token], bool]:
        if number or not self.joins:
            return group.tokens, False
        if self._number is not None and group.kind == "ordered_list_open":
            group.tokens[0].attrSet("start", str(self._number))
        return group.tokens, True

    @staticmethod
    def _opening(lines: list[str]) -> list[str]:
        """The lines without which the rest of a block could not be read."""
        if _FENCE.match(lines[0]):
            return lines[:1]
        return lines[:2] if len(lines) > 1 and "|" in lines[0] and _RULER.match(lines[1]) else []

    @staticmethod
    def _parse(source: str) -> list[Token]:
        return _parser().parse(source)


@cache
def _parser() -> MarkdownIt:
    # A reference could only be read with what stands elsewhere, so its definition would vanish: it is text.
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    return parser.disable(["reference", "html_block", "html_inline"])


def _grouped(tokens: Sequence[Token]) -> Iterator[_Group]:
    group: list[Token] = []
    for token in tokens:
        group.append(token)
        if token.level == 0 and token.nesting <= 0:
            yield _Group(group, *_lines_of(group[0]))
            group = []


def _lines_of(token: Token) -> tuple[int, int]:
    start, end = token.map or (0, 0)
    return start, end


def _is_over(group: _Group, lines: Sequence[str]) -> bool:
    """Whether the last block of these whole lines is complete. (The last of `lines` is empty.)"""
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
    start = token.attrGet("start")
    return 1 if start is None else int(start)


def _cropped(line: str, longest: int) -> str:
    """The end of a line; its beginning moves seldom, so that what is drawn of it does not run."""
    if len(line) <= longest:
        return line
    step = max(1, longest // 2)
    return line[(len(line) - longest) // step * step + step :]
