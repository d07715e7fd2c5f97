"""Makes text of any origin harmless to a terminal.

The rule: text of a model is shown with its control characters as visible symbols; console output of a program is shown
as a terminal would have left it, without its colours.
"""

from __future__ import annotations

import re

__all__ = ["ConsoleText", "PrintableText", "columns", "encodable", "one_line", "printable"]

_C1_CONTROLS = ((0x80, 0x9F),)
_SURROGATES = ((0xD800, 0xDFFF),)
# Marks that change the direction of writing, and line ends other than the newline.
_DIRECTION = ((0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069))
# Characters that show nothing and could carry hidden text: tags, selectors, fillers, word joiners, deprecated formats.
# Left out are those that people write with: the two joiners of letters and emoji, the selectors of emoji and of
# Mongolian, and the soft hyphen.
_INVISIBLE = (
    *((0x34F, 0x34F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180E, 0x180E), (0x200B, 0x200B), (0x2060, 0x2065)),
    *((0x206A, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB)),
    *((0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
)
_REPLACED = (*_C1_CONTROLS, *_SURROGATES, *_DIRECTION, *_INVISIBLE)
# Control characters become their symbols (ESC: ␛), everything else that could change how other text is shown a �.
_HARMLESS = {
    **dict.fromkeys([code for first, last in _REPLACED for code in range(first, last + 1)], 0xFFFD),
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
}
_HARMFUL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in _REPLACED) + "]"
)

# Substitutes for characters that an encoding lacks, of the same width.
_SUBSTITUTES = dict(zip("•●○│┊▌└├─━═❱↳▣✓✗…⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "**o|||`+--=>>#+x.|/-\\|/-\\|/", strict=True)) | dict(
    zip("\u2018\u2019\u201c\u201d\u2013\u2014\xa0", "''\"\"-- ", strict=True)
)


def printable(text: str) -> str:
    """The text without anything that a terminal would obey, except newlines and tabs. Its length stays the same."""
    return text.translate(_HARMLESS) if _HARMFUL.search(text) else text


def one_line(text: str) -> str:
    """The text made printable, with spaces in place of line ends and tabs."""
    return printable(text.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))


def columns(text: str) -> int:
    """About how many columns the text takes on a terminal: combining characters take none, wide ones two. Without
    `wcwidth`, which the extras `live` and `chat` bring, one a character."""
    try:
        from wcwidth import wcwidth
    except ImportError:
        return len(text)
    return sum(max(0, wcwidth(character)) for character in text)


def encodable(text: str, encoding: str) -> str:
    """The text with a substitute of the same width for each character that the encoding lacks.

    An unknown encoding counts as ASCII.
    """
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_substitute(character, encoding) for character in text)
    except LookupError:
        return encodable(text, "ascii")
    return text


def _substitute(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return _SUBSTITUTES.get(character, "?" * columns(character))
    return character


class PrintableText:
    """Makes text printable that comes in pieces. A line end of two characters that is cut in two is still one."""

    def __init__(self) -> None:
        self._pending = ""

    def feed(self, piece: str) -> str:
        """The printable form of the next piece. A carriage return at its end waits for the next call."""
        if not self._pending and "\r" not in piece:
            return printable(piece)
        piece = self._pending + piece
        self._pending = "\r" if piece.endswith("\r") else ""
        return printable(piece[: len(piece) - len(self._pending)].replace("\r\n", "\n"))

    def finish(self) -> str:
        """Return the text that still waits at the end."""
        pending, self._pending = self._pending, ""
        return printable(pending)


_TOKEN = re.compile(
    r"""
    (?P<line>\n)
  | (?P<start>\r+)
  | (?P<back>\x08+)
  | (?P<erase>(?:\x1b\[|\x9b)[012]?K)
  | (?P<sequence>
        (?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]                                     # CSI: colours, cursor moves
      | (?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)  # OSC and other strings
      | \x1b[ -/]*[0-OQ-WYZ\\`-~]                                            # of two characters
    )
  | (?P<cut>                                                                 # the beginning of one
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
    """Console output of a program, as a terminal would have left it.

    A carriage return overwrites the line, as progress bars do; backspaces and line erasures work; colours and all other
    sequences are dropped. What remains is printable.

    Attributes:
        line: the last line, which is not complete yet.
    """

    def __init__(self) -> None:
        self.line = ""
        self._column = 0
        self._pending = ""  # the beginning of a sequence

    def feed(self, piece: str) -> list[str]:
        """The lines that the next piece completes, without line ends. A line is cut after 8192 characters."""
        if not self.line and not self._pending and not _HARMFUL.search(piece):
            *complete, self.line = piece.split("\n")
            self._column = len(self.line)
            return [*complete, *self._take_overlong()]
        text, self._pending = self._pending + piece, ""
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
                    self._pending = found[0]
                case _:
                    self._write(printable(found[0]))
                    lines += self._take_overlong()
        return lines

    def finish(self) -> str:
        """The last line, with the beginning of a sequence that never ended."""
        self._write(printable(self._pending))
        line, self.line, self._pending, self._column = self.line, "", "", 0
        return line

    def _write(self, text: str) -> None:
        """Write at the cursor, over what is there."""
        if self._column >= len(self.line):
            self.line += " " * (self._column - len(self.line)) + text
        else:
            self.line = self.line[: self._column] + text + self.line[self._column + len(text) :]
        self._column += len(text)

    def _erase(self, part: str) -> None:
        """Erase a part of the line: "1" the part before the cursor, "2" all of it, anything else the part behind."""
        after = self.line[self._column :] if part == "1" else ""
        before = self.line[: self._column] if part not in "12" else " " * min(self._column, len(self.line))
        self.line = (before + after).rstrip(" ") if part in "12" else before

    def _take_overlong(self) -> list[str]:
        if len(self.line) <= _LONGEST_LINE:
            return []
        line, self.line, self._column = self.line, "", 0
        return [line]
