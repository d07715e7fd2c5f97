"""Characters that may reach a terminal: text of any origin, made harmless.

The rule: what a model says is shown, its control characters as their pictures; what a program prints to its console
is shown as a terminal would have left it, without its colours.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["ConsoleText", "PrintableText", "columns", "fitted", "one_line", "printable"]

_CONTROLS = ((0x80, 0x9F),)  # the second set
_SURROGATES = ((0xD800, 0xDFFF),)  # halves of pairs
# Marks that turn the direction of writing around, and ends of lines that are no newline.
_TURNING = ((0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069))
# What shows nothing, and can carry text that nobody sees: tags, selectors, fillers, joiners of words, deprecated formats.
# Not here is what people write with: the two joiners of letters and emoji, the selectors of emoji and of Mongolian, and
# the soft hyphen.
_UNSEEN = (
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180E, 0x180E), (0x200B, 0x200B), (0x2060, 0x2065)),
    *((0x206A, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
_LOST = (*_CONTROLS, *_SURROGATES, *_TURNING, *_UNSEEN)
# Control characters become their pictures (ESC: ␛), the rest that could change how other text is shown a �.
_SHOWN_AS = {
    **dict.fromkeys([code for first, last in _LOST for code in range(first, last + 1)], 0xFFFD),
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
}
_SHOWN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _LOST) + "]"
)

# What stands for a character that an encoding lacks, in as many columns.
_PLAIN = dict(zip("•●○│┊▌└├─━═❱▣✓✗…⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "**o|||`+--=>#+x.|/-\\|/-\\|/", strict=True)) | dict(
    zip("\u2018\u2019\u201c\u201d\u2013\u2014\xa0", "''\"\"-- ", strict=True)
)


def printable(text: str) -> str:
    """The text with nothing in it that a terminal obeys, except newlines and tabs. It keeps its length."""
    return text.translate(_SHOWN_AS) if _SHOWN.search(text) else text


def one_line(text: str) -> str:
    """Printable, without line ends."""
    return printable(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def columns(text: str) -> int:
    """How many columns the text takes on a terminal, about."""
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def fitted(text: str, encoding: str) -> str:
    """The text with another character for each that the encoding lacks, as wide."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_in(encoding, character) for character in text)
    except LookupError:
        return fitted(text, "ascii")
    return text


def _in(encoding: str, character: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return _PLAIN.get(character, "?" * columns(character))
    return character


class PrintableText:
    """Text that comes in pieces, made printable. A line end cut in two is one line end."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        if not self._held and "\r" not in piece:
            return printable(piece)
        piece = self._held + piece
        self._held = "\r" if piece.endswith("\r") else ""
        return printable(piece[: len(piece) - len(self._held)].replace("\r\n", "\n"))

    def finish(self) -> str:
        """What was held back."""
        held, self._held = self._held, ""
        return printable(held)


_TOKEN = re.compile(
    r"""
    (?P<line>\n)
  | (?P<start>\r+)
  | (?P<back>\x08+)
  | (?P<erase>(?:\x1b\[|\x9b)[012]?K)
  | (?P<sequence>
        (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]                                     # CSI: colours, moves
      | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)  # OSC and other strings
      | \x1b[ -/]*[0-OQ-WYZ\\`-~]                                            # two characters
    )
  | (?P<cut>                                                                 # the same, not complete yet
        (?:(?:\x1b\[|\x9b)[0-?]*[ -/]*
      | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*\x1b?
      | \x1b[ -/]*
        )\Z
    )
  | (?P<text>[^\n\r\x08\x1b\x9b\x9d\x90\x98\x9e\x9f]+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_LONGEST_SEQUENCE = 4096
_LONGEST_LINE = 8192


class ConsoleText:
    """What a program prints, as a terminal would have left it: a carriage return writes over the line, as progress
    bars do; colours and all other sequences are dropped; what is left is printable.

    Attributes:
        line: the line that is not complete yet.
    """

    def __init__(self) -> None:
        self.line = ""
        self._column = 0
        self._held = ""

    def feed(self, piece: str) -> list[str]:
        """The lines that are complete now. A line of many thousand characters is complete where it is cut."""
        if not self.line and not self._held and _plain(piece):
            *whole, self.line = piece.split("\n")
            self._column = len(self.line)
            return [*whole, *self._overlong()]
        text, self._held = self._held + piece, ""
        lines: list[str] = []
        for found in _TOKEN.finditer(text):
            match found.lastgroup:
                case "line":
                    lines.append(self.line)
                    self.line, self._column = "", 0
                case "start":
                    self._column = 0
                case "back":
                    self._column = max(0, self._column - len(found[0]))
                case "erase":
                    self._erase(found[0][-2])
                case "sequence":
                    pass
                case "cut" if len(found[0]) < _LONGEST_SEQUENCE:
                    self._held = found[0]
                case _:
                    self._write(printable(found[0]))
                    lines += self._overlong()
        return lines

    def finish(self) -> str:
        """The last line, with what was held back of a sequence that never ended."""
        self._write(printable(self._held))
        line, self.line, self._held, self._column = self.line, "", "", 0
        return line

    def _write(self, text: str) -> None:
        if self._column >= len(self.line):
            self.line += " " * (self._column - len(self.line)) + text
        else:
            self.line = self.line[: self._column] + text + self.line[self._column + len(text) :]
        self._column += len(text)

    def _erase(self, what: str) -> None:
        after = self.line[self._column :] if what == "1" else ""
        before = self.line[: self._column] if what not in "12" else " " * min(self._column, len(self.line))
        self.line = (before + after).rstrip(" ") if what in "12" else before

    def _overlong(self) -> list[str]:
        if len(self.line) <= _LONGEST_LINE:
            return []
        cut, self.line, self._column = self.line, "", 0
        return [cut]


def _plain(text: str) -> bool:
    return not _SHOWN.search(text)
