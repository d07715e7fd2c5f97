"""Rules of the Markdown parser for texts of models beyond CommonMark: mathematics, which stays as it was written, and bold text beside
Chinese, Japanese and Korean characters.
"""

from __future__ import annotations

import unicodedata

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.emphasis import tokenize

__all__ = ["add_rules"]

_INLINE = {"\\(": "\\)", "$$": "$$", "$": "$"}
_BLOCK = {"\\[": "\\]", "$$": "$$"}
_LONGEST = 1000  # characters of mathematics in a line of text: a search for its end goes no further


def add_rules(parser: MarkdownIt) -> None:
    """Add the rules to a parser. Their tokens are `math_block` and `math_inline`, with the delimiters in the content."""
    interrupted: RuleOptionsType = {"alt": ["paragraph", "blockquote", "list"]}
    parser.block.ruler.before("fence", "math_block", _math_block, interrupted)
    parser.inline.ruler.before("escape", "math_inline", _math_inline)
    parser.inline.ruler.at("emphasis", _emphasis)


def _math_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Lines from a delimiter at the beginning of a line to its end, or to a blank line, which no formula has."""
    first = state.src[state.bMarks[start] + state.tShift[start] : state.eMarks[start]]
    opening = first[:2]
    if opening not in _BLOCK or state.is_code_block(start) or not _may_be_block(first, _BLOCK[opening]):
        return False
    if silent:
        return True
    line, text = start, first[2:]
    while _BLOCK[opening] not in text and line + 1 < end and not state.isEmpty(line + 1):
        line += 1
        if state.sCount[line] < state.blkIndent:  # a list or a quotation has ended
            line -= 1
            break
        text = state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
    state.line = line + 1
    token = state.push("math_block", "math", 0)
    token.content = state.getLines(start, state.line, state.blkIndent, False)
    token.map = [start, state.line]
    return True


def _may_be_block(line: str, closing: str) -> bool:
    """Whether nothing follows the end of the formula, if it ends in its first line."""
    _, found, after = line[2:].partition(closing)
    return not found or not after.strip(" \t.,;")


def _math_inline(state: StateInline, silent: bool) -> bool:
    r"""`\(…\)`, `$$…$$`, and `$…$` unless it is money: no blank inside of the delimiters, and no digit behind them."""
    start, source = state.pos, state.src
    opening = next((one for one in _INLINE if source.startswith(one, start)), None)
    if opening is None:
        return False
    closing, inner = _INLINE[opening], start + len(opening)
    end = source.find(closing, inner, min(state.posMax, inner + _LONGEST))
    if end <= inner or (opening == "$" and not _is_formula(source, inner, end)):
        return False
    if not silent:
        state.push("math_inline", "math", 0).content = source[start : end + len(closing)]
    state.pos = end + len(closing)
    return True


def _is_formula(source: str, start: int, end: int) -> bool:
    inside = source[start:end]
    return inside.strip() == inside and "\n" not in inside and not source[end + 1 : end + 2].isdigit()


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Asterisks beside a wide character may open and close: its language has no blanks between words."""
    start = state.pos
    if not tokenize(state, silent):
        return False
    if state.src[start] == "*":
        before, after = state.src[max(0, start - 1) : start], state.src[state.pos : state.posMax][:1]
        for delimiter in state.delimiters[start - state.pos :]:
            delimiter.open = delimiter.open or (_is_wide(before) and bool(after.strip()))
            delimiter.close = delimiter.close or (_is_wide(after) and bool(before.strip()))
    return True


def _is_wide(character: str) -> bool:
    return bool(character) and unicodedata.east_asian_width(character) in "WF"
