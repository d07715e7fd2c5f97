"""The command line: `streamkit demo`, `streamkit replay` and `streamkit convert`.

The rule: what a stream says is data. It reaches the terminal through `printable` alone, so that no model can move the
cursor, rename the window or hide a line. Whatever fails is one line on stderr; exit code 1 is the stream's failure, 2
the caller's mistake, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from . import protocols, recording
from ._version import __version__
from .answers import Confirmation
from .errors import SourceError, StreamkitError, UsageError
from .events import Delta, Event, StreamEnd, StreamException, StreamTimeout
from .framing import sse_frame
from .handlers import EventHandler, Handler
from .manager import StreamManager
from .manager import stream as open_stream
from .messages import CodeMessage, ConsoleMessage, FileMessage, ImageMessage, Message, ToolCallMessage
from .state import StreamState

__all__ = ["Printer", "main", "printable", "run_and_report", "say"]

# Control characters become their pictures (ESC: ␛), the rest that could change how other text is shown a �: the
# second set of controls, and the marks that turn the direction of writing around.
_SHOWN_AS = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys([*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD),
}
_RAW_CONTROLS = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # those that JSON text may hold unescaped
_NARROW = 60  # columns under which a message's summary takes two lines
_UNREADABLE = ("image", "audio")  # base64, not for people


def printable(text: str) -> str:
    """The text with nothing in it that a terminal obeys, except newlines and tabs."""
    return text.translate(_SHOWN_AS)


def say(text: str) -> None:
    """Print text of any origin, at once."""
    print(printable(text), end="", flush=True)


class Printer(EventHandler):
    """Prints every message as it grows, each under its label; the label comes again where several grow side by side."""

    def __init__(self) -> None:
        self._last: Message | None = None
        self._at_start = True

    def on_message_created(self, message: Message, /) -> None:
        self._turn_to(message)

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> None:
        if snapshot.type in _UNREADABLE:
            return
        self._turn_to(snapshot, again=delta.replace)
        self._say(delta.value)

    def on_image_file_done(self, message: ImageMessage, /) -> None:
        self._turn_to(message)
        self._say(_content(message))

    def on_file_done(self, message: FileMessage, /) -> None:
        self._turn_to(message)

    def on_confirmation(self, confirmation: Confirmation, /) -> None:
        self._last = None
        self._say_line(f"[confirmation] may this {confirmation.subject.type} run?\n")

    def on_confirmation_done(self, confirmation: Confirmation, /) -> None:
        reason = f": {confirmation.reason}" if confirmation.reason else ""
        self._say_line(f"[confirmation] {confirmation.status}{reason}\n")

    def on_end(self) -> None:
        self._say_line("")

    def _turn_to(self, message: Message, *, again: bool = False) -> None:
        if message is self._last and not again:
            return
        self._last = message
        told = [] if message.role in ("assistant", "computer") else [message.role]
        told += [message.type, *filter(None, (message.format, message.name))]
        block = isinstance(message, (CodeMessage, ConsoleMessage))
        self._say_line(f"[{'replaced: ' if again else ''}{' '.join(told)}]{chr(10) if block else ' '}")

    def _say_line(self, text: str) -> None:
        self._say(text if self._at_start else "\n" + text)

    def _say(self, text: str) -> None:
        say(text)
        self._at_start = text.endswith("\n") if text else self._at_start


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
    if isinstance(body, Mapping) and (told := str(body.get("message") or "")):  # pyright: ignore
        text = told if status is None else f"the server answered with HTTP status {status}: {told}"
    elif cause is not None:
        text = f"{cause}{_root_of(cause)}"
    notes: Sequence[str] = getattr(error, "__notes__", ())
    return _cut(" ".join([*text.split(), *(f"({note})" for note in notes)]), 500)


def _root_of(error: BaseException) -> str:
    """What an error came from in the end, where its own text does not say."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    return "" if str(root) in str(error) else f" {root}"


# -- the commands


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run  # brings the openai client and the scripted server

    return run(
        protocol=arguments.protocol,
        base_url=arguments.base_url,
        model=arguments.model,
        prompt=arguments.prompt,
        offline=arguments.offline,
        fast=arguments.fast,
        tool=not arguments.no_tool,
    )


def _replay(arguments: argparse.Namespace) -> int:
    path, speed = Path(arguments.file), arguments.speed
    source = path if math.isinf(speed) else recording.replay(path, speed=speed)
    with open_stream(source, Printer(), protocol=arguments.protocol) as stream:
        run_and_report(stream, {})
    return 0


class _Writer(Handler):
    """Writes a stream as a protocol's wire bytes. Of a stream that fails before it begins nothing is written, and no
    file is opened."""

    def __init__(self, protocol: str, *, framing: str, path: Path | None) -> None:
        module = protocols.find(protocol)
        self._encoder: protocols.Encoder = module.Encoder()
        self._named: bool = module.Decoder.named
        self._sse = framing == "sse"
        self._path = path
        self._file: BinaryIO | None = None
        self._begun = False
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=str).encode

    def handle(self, event: Event, /) -> None:
        self._begun = self._begun or not isinstance(event, (StreamTimeout, StreamException, StreamEnd))
        if not self._begun:
            return
        self._write(self._frame(item) for item in self._encoder.feed(event))
        if isinstance(event, StreamEnd):
            if self._sse and self._encoder.done and event.status not in ("failed", "incomplete"):
                self._write([sse_frame(self._encoder.done)])
            if self._file is not None and self._path is not None:
                self._file.close()

    def _frame(self, item: dict[str, Any]) -> bytes:
        data = item["data"] if self._sse and self._named else item
        text = self._encode(data).decode("utf-8")
        # Escaped they are the same JSON, and the output may be a terminal.
        wire = _RAW_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")
        return sse_frame(wire, self._encoder.event_name(item)) if self._sse else wire + b"\n"

    def _write(self, frames: Iterable[bytes]) -> None:
        content = b"".join(frames)
        if not content:
            return
        file = self._file
        if file is None:
            file = self._file = self._path.open("wb") if self._path is not None else sys.stdout.buffer
        file.write(content)
        file.flush()


def _convert(arguments: argparse.Namespace) -> int:
    path = Path(arguments.file)
    out = Path(arguments.output) if arguments.output not in (None, "-") else None
    if out is not None and out.exists() and path.exists() and out.samefile(path):
        raise UsageError(f"{out} is the file to read; write to another one")
    writer = _Writer(arguments.to, framing=arguments.framing, path=out)
    with open_stream(path, writer, protocol=arguments.protocol) as stream:
        stream.until_done()
    return 0


# -- the arguments


def _speed(text: str) -> float:
    if text == "max":
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed; give a number above 0, or max")
    return speed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="streamkit",
        description="One event handler for every agent stream.",
        epilog="No API key? `streamkit demo` needs none. `streamkit COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="version", version=f"streamkit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="show a handler at work, on a scripted or a real model",
        description="Shows the source of an event handler, then runs it on a stream: reasoning, a tool call that the "
        "handler answers, and the text that follows. The model is a scripted one on this machine, unless "
        "OPENAI_API_KEY is set or --base-url is given; the client is the openai package's either way.",
    )
    demo.add_argument(
        "--protocol",
        choices=("responses", "chat"),
        default="responses",
        help="the OpenAI API to speak: responses (the default) or chat (Chat Completions)",
    )
    demo.add_argument(
        "--base-url", metavar="URL", help="ask the model server at this address, e.g. http://host:8000/v1"
    )
    demo.add_argument("--model", metavar="NAME", help="the real model to ask")
    demo.add_argument("--prompt", metavar="TEXT", help="what to ask it")
    demo.add_argument("--no-tool", action="store_true", help="offer the model no tool (some models take none)")
    demo.add_argument("--offline", action="store_true", help="the scripted model, even where a key is set")
    demo.add_argument("--fast", action="store_true", help="let the scripted model speak without pauses")
    demo.set_defaults(run=_demo)

    replay = commands.add_parser(
        "replay",
        help="play a recording",
        description="Plays a recording made by streamkit.Recorder, each item at its time, and sums it up. A body as it "
        "was on the wire (SSE or JSON Lines) plays as well; it has no times.",
    )
    replay.add_argument("--speed", metavar="N", type=_speed, default=1.0, help="N times as fast, or max (default: 1)")
    replay.set_defaults(run=_replay)

    convert = commands.add_parser(
        "convert",
        help="write a recording as another protocol's bytes",
        description="Reads a recording, or a body as it was on the wire, and writes the same stream as a protocol's "
        "wire bytes.",
    )
    convert.add_argument("--to", metavar="PROTOCOL", required=True, help=f"one of: {', '.join(protocols.BUILT_IN)}")
    convert.add_argument("--framing", choices=("sse", "ndjson"), default="sse", help="default: sse")
    convert.add_argument("-o", "--output", metavar="OUT", help="the file to write (default: stdout)")
    convert.set_defaults(run=_convert)
    for command in (replay, convert):
        command.add_argument("file", metavar="FILE", help="the recording, or an SSE or JSON Lines body")
        command.add_argument("--protocol", metavar="NAME", help="what FILE speaks, where it is not recognised")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line. Gives the exit code; argparse itself exits for `--help` and what it cannot parse."""
    output: object = sys.stdout
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    parser = _parser()
    arguments = parser.parse_args(argv)
    if not hasattr(arguments, "run"):
        parser.print_help()
        return 0
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has left; what is still buffered must not fail again at exit.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (StreamkitError, OSError) as error:
        sys.stdout.flush()
        print(f"streamkit: {explain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
