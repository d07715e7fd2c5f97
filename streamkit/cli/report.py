"""The output of a command: the renderer that shows it, the summary at its end, and an error as one line.

The rule: text from a stream reaches the terminal only through `printable`, so that no model can move the cursor, rename
the window or hide a line.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import SourceError, StreamkitError, UsageError
from ..handlers import EventHandler
from ..messages import Message, ToolCallMessage
from ..protocols.values import as_object
from ..renderers import ConsolePrinter, LiveDisplay
from ..renderers.characters import columns, printable
from ..streams.api import StreamManager
from ..streams.state import StreamState

__all__ = ["data_folder", "explain", "picture_folder", "printable", "renderer", "run_and_report"]

_NARROW = 60  # columns under which a message's summary takes two lines


def data_folder() -> Path:
    """The folder of what the commands keep for the user.

    Raises:
        ImportError: `platformdirs` is not installed, which the extras `chat` and `server` bring.
    """
    from platformdirs import user_data_path

    return user_data_path("streamkit", appauthor=False)


def picture_folder() -> Path | None:
    """Return the folder for pictures that code makes in a chat or in the demo; None without `platformdirs`."""
    try:
        return data_folder() / "pictures"
    except ImportError:
        return None


def renderer(pictures: Path | None = None, *, cut_off: bool = True) -> EventHandler:
    """The handler that shows a stream on stdout: a live display on a terminal, a printer elsewhere or without `rich`.

    It leaves out warnings and errors, which the summary and the last line on stderr show. Pictures are saved in the folder
    `pictures`, if there is one; `cut_off` says whether a text is marked that did not end by itself.
    """
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown"):
        try:
            return LiveDisplay(warnings=False, errors=False, run_end=False, cut_off=cut_off, pictures=pictures)
        except UsageError as error:
            print(f"streamkit: {error} (printing plain text instead)", file=sys.stderr)
    return ConsolePrinter(warnings=False, errors=False, run_end=False, pictures=pictures)


# -- the summary


def run_and_report(stream: StreamManager, counts: Mapping[str, int]) -> None:
    """Run a stream to its end and print a summary, also if it fails.

    Args:
        stream: the stream.
        counts: how often each hook was called, for the summary; empty leaves that out.

    Raises:
        StreamkitError: the stream failed.
    """
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
    """The lines of the summary: messages, hook calls, timing, warnings."""
    width = shutil.get_terminal_size().columns
    number = len(stream.messages)
    yield f"{number} message{'' if number == 1 else 's'}, {stream.status}:"
    yield from _table(stream.messages, width)
    if counts:
        yield from ("", "Hook calls:")
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
            cells = [row[0], *(cell.replace(" ", "") for cell in row[1:])]
            yield from textwrap.wrap(" ".join(cells), width, initial_indent="  ", subsequent_indent="    ")
            yield _cut("    " + _content(message), width)
        return
    rows.insert(0, ("id", "role", "type", "status"))
    contents = ["content", *map(_content, messages)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row, content in zip(rows, contents, strict=True):
        line = "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        yield _cut(f"  {line}  {content}", width).rstrip()


def _content(message: Message) -> str:
    """The first line of a message's content; of a tool call with the name of the tool."""
    if message.type == "audio" or (message.type == "image" and (message.format or "").startswith("base64")):
        return f"({len(message.content)} characters of {message.format})"
    first, *more = message.content.lstrip("\n").split("\n", 1)
    ellipsis = "…" if more and more[0].strip() else ""
    name = f"{message.name} " if isinstance(message, ToolCallMessage) else ""
    return name + first + ellipsis


def _cut(text: str, width: int) -> str:
    """The text on one line, cut to at most `width` columns of the terminal."""
    text = printable(text).replace("\n", " ").replace("\t", " ")
    cells = 0
    for position, character in enumerate(text):
        cells += columns(character)
        if cells > width:
            return text[: position - 1] + "…"
    return text


def _timing(stream: StreamState) -> str:
    timing = stream.timing
    text = f"{timing.deltas} delta{'' if timing.deltas == 1 else 's'}"
    if timing.first_delta is not None:
        text += f", the first after {timing.first_delta:.3f} s"
    if timing.deltas_per_second is not None:
        text += f"; {timing.deltas_per_second:,.0f} deltas a second"
    return text + "."


def explain(error: BaseException) -> str:
    """An error in one line: the message of the server if there is one, else that of the transport."""
    status: int | None = getattr(error, "status_code", None)
    cause = error.__cause__ if isinstance(error, SourceError) else None
    from_server = _server_message(getattr(cause, "body", None))
    text = str(error)
    if isinstance(error, OSError) and error.strerror and not isinstance(error, StreamkitError):
        text = f"{error.filename or 'cannot write'}: {error.strerror}"
    if from_server:
        text = from_server if status is None else f"the server answered with HTTP status {status}: {from_server}"
    elif cause is not None and not isinstance(cause, OSError):
        text = f"{cause}{_root_cause(cause)}"
    notes: Sequence[str] = getattr(error, "__notes__", ())
    if isinstance(error, OSError) and error.strerror:  # as of a full disk, which every later write reports again
        notes = [note for note in notes if error.strerror not in note]
    return _cut(" ".join([*text.split(), *(f"({note})" for note in notes)]), 500)


def _server_message(body: object) -> str:
    """The message in the body of an error's response; "" without one."""
    return str(as_object(body).get("message") or "")


def _root_cause(error: BaseException) -> str:
    """The text of the error's root cause, after a space; "" if the error's own text contains it."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    return "" if str(root) in str(error) else f" {root}"
