"""What people see of a stream on a terminal or a pipe: which renderer shows it, a summary, an error's line.

The rule: what a stream says is data. It reaches the terminal through `printable` alone, so that no model can move the
cursor, rename the window or hide a line.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import SourceError, StreamkitError, UsageError
from ..handlers import EventHandler
from ..messages import Message, ToolCallMessage
from ..renderers import ConsolePrinter, LiveDisplay
from ..renderers.characters import printable
from ..streams.api import StreamManager
from ..streams.state import StreamState

__all__ = ["explain", "printable", "renderer", "run_and_report"]

_NARROW = 60  # columns under which a message's summary takes two lines


def renderer() -> EventHandler:
    """What shows a stream on stdout: a live display on a terminal, a printer along elsewhere, and where `rich` is not
    installed. The summary tells what was odd and what failed."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        try:
            return LiveDisplay(warnings=False, errors=False, run_end=False)
        except UsageError as error:
            print(f"streamkit: {error} (printing along instead)", file=sys.stderr)
    return ConsolePrinter(warnings=False, errors=False, run_end=False)


# -- what is said at the end


def run_and_report(stream: StreamManager, counts: Mapping[str, int]) -> None:
    """Run a stream to its end, and sum it up also where it failed. Raises as `until_done`."""
    try:
        stream.until_done()
    except StreamkitError:
        if stream.messages:
            _print_report(stream, counts)
        raise
    _print_report(stream, counts)


def _print_report(stream: StreamManager, counts: Mapping[str, int]) -> None:
    print("\n" + "\n".join(map(printable, _report(stream, counts))), flush=True)


def _report(stream: StreamState, counts: Mapping[str, int]) -> Iterator[str]:
    """The lines that sum a stream up: its messages, the hooks that were told, its timing."""
    width = shutil.get_terminal_size().columns
    number = len(stream.messages)
    yield f"{number} message{'' if number == 1 else 's'}, {stream.status}:"
    yield from _table(stream.messages, width)
    if counts:
        yield from ("", "Hooks told, and how often:")
        pairs = ", ".join(f"{hook}\N{NO-BREAK SPACE}{count}" for hook, count in counts.items())
        for line in textwrap.wrap(pairs, width - 2):
            yield "  " + line.replace("\N{NO-BREAK SPACE}", " ")
    yield ""
    yield from textwrap.wrap(_timing(stream), width)
    for warning in stream.warnings[:10]:
        yield from textwrap.wrap(f"warning: {warning.fault} [{warning.code}]", width, subsequent_indent="  ")
    if len(stream.warnings) > 10:
        yield f"... and {len(stream.warnings) - 10} more warnings"


def _table(messages: Sequence[Message], width: int) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [(_cut(m.id, 16), m.role, m.type, m.status) for m in messages]
    if width < _NARROW:
        for row, message in zip(rows, messages, strict=True):
            told = [row[0], *(cell.replace(" ", "") for cell in row[1:])]
            yield from textwrap.wrap(" ".join(told), width, initial_indent="  ", subsequent_indent="    ")
            yield _cut("    " + _content(message), width)
        return
    rows.insert(0, ("id", "role", "type", "status"))
    contents = ["content", *map(_content, messages)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, content in zip(rows, contents, strict=True):
        cells = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        yield _cut(f"  {cells}  {content}", width).rstrip()


def _content(message: Message) -> str:
    """The first line of a message's content, after the name of what it calls."""
    if message.type == "audio" or (message.type == "image" and (message.format or "").startswith("base64")):
        return f"({len(message.content)} characters of {message.format})"
    first, *more = message.content.lstrip("\n").split("\n", 1)
    more_to_come = "…" if more and more[0].strip() else ""
    name = f"{message.name} " if isinstance(message, ToolCallMessage) else ""
    return name + first + more_to_come


def _cut(text: str, width: int) -> str:
    """The text on one line, in at most so many columns."""
    text = printable(text).replace("\n", " ").replace("\t", " ")
    cells = 0
    for position, character in enumerate(text):
        cells += 2 if unicodedata.east_asian_width(character) in "WF" else not unicodedata.combining(character)
        if cells > width:
            return text[: position - 1] + "…"
    return text


def _timing(stream: StreamState) -> str:
    timing = stream.timing
    told = f"{timing.deltas} delta{'' if timing.deltas == 1 else 's'}"
    if timing.first_delta is not None:
        told += f", the first after {timing.first_delta:.3f} s"
    if timing.deltas_per_second is not None:
        told += f"; {timing.deltas_per_second:,.0f} deltas a second"
    return told + "."


def explain(error: BaseException) -> str:
    """One line for people: the service's own words where it gave any, else what the transport said."""
    status: int | None = getattr(error, "status_code", None)
    cause = error.__cause__ if isinstance(error, SourceError) else None
    body: Any = getattr(cause, "body", None)
    text = str(error)
    if isinstance(error, OSError) and error.strerror and not isinstance(error, StreamkitError):
        text = f"{error.filename or 'cannot write'}: {error.strerror}"
    if isinstance(body, Mapping) and (told := str(body.get("message") or "")):  # pyright: ignore
        text = told if status is None else f"the server answered with HTTP status {status}: {told}"
    elif cause is not None and not isinstance(cause, OSError):
        text = f"{cause}{_root_of(cause)}"
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return _cut(" ".join([*text.split(), *(f"({note})" for note in notes)]), 500)


def _root_of(error: BaseException) -> str:
    """What an error came from in the end, where its own text does not say."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    return "" if str(root) in str(error) else f" {root}"
