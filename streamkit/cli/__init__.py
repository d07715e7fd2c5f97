"""The command line: `streamkit demo`, `streamkit chat`, `streamkit replay` and `streamkit convert`.

Whatever fails is one line on stderr; exit code 1 is the stream's failure, 2 the caller's mistake, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .. import protocols
from .._version import __version__
from ..errors import StreamkitError, UsageError
from ..events import Event, StreamEnd, StreamException, StreamTimeout
from ..handlers import Handler
from ..protocols.framing import sse_frame
from ..sources import recording
from ..streams.api import stream as open_stream
from .report import explain, renderer, run_and_report

__all__ = ["main"]

_RAW_CONTROLS = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # those that JSON text may hold unescaped


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
        yes=arguments.yes,
    )


def _chat(arguments: argparse.Namespace) -> int:
    from .chat import run

    return run(
        model=arguments.model,
        base_url=arguments.base_url,
        protocol=arguments.protocol,
        auto_run=arguments.auto_run,
        instructions=arguments.instructions,
    )


def _replay(arguments: argparse.Namespace) -> int:
    path, speed = Path(arguments.file), arguments.speed
    source = path if math.isinf(speed) else recording.replay(path, speed=speed)
    with open_stream(source, renderer(), protocol=arguments.protocol) as stream:
        run_and_report(stream, {})
    return 0


class _Writer(Handler):
    """Writes a stream as a protocol's wire bytes. Of a stream that fails before it begins nothing is written, and no
    file is opened."""

    def __init__(self, protocol: str, *, framing: str, path: Path | None) -> None:
        module = protocols.find(protocol)
        self._encoder: protocols.Encoder = module.Encoder()
        self._named: bool = module.Decoder.wraps_event_name
        self._sse = framing == "sse"
        self._path = path
        self._file: BinaryIO | None = None
        self._begun = False
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=str).encode

    def handle(self, event: Event, /) -> None:
        self._begun = self._begun or not isinstance(event, (StreamTimeout, StreamException, StreamEnd))
        if not self._begun:
            return
        self._write(self._frame(item) for item in self._encoder.items(event))
        if isinstance(event, StreamEnd):
            if self._sse and self._encoder.done and event.status not in ("failed", "incomplete"):
                self._write([sse_frame(self._encoder.done)])
            if self._file is not None and self._path is not None:
                with self._writing():
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
        with self._writing():
            file = self._file
            if file is None:
                file = self._file = self._path.open("wb") if self._path is not None else sys.stdout.buffer
            file.write(content)
            file.flush()

    @contextlib.contextmanager
    def _writing(self) -> Generator[None, None, None]:
        """An error of the file names it."""
        try:
            yield
        except OSError as error:
            error.filename = None if self._path is None else str(self._path)
            raise


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
        help="show a handler at work: a model that runs code on this machine",
        description="Shows the source of an event handler, then runs it on a stream: the model writes code, you are "
        "asked, the code really runs, and the model answers. The model is a scripted one on this machine, unless "
        "OPENAI_API_KEY is set or --base-url is given; the client is the openai package's either way.",
    )
    demo.add_argument(
        "--yes", action="store_true", help="run the code without asking; needed where this is no terminal"
    )
    demo.add_argument("--prompt", metavar="TEXT", help="what to ask a real model")
    demo.add_argument("--offline", action="store_true", help="the scripted model, even where a key is set")
    demo.add_argument("--fast", action="store_true", help="let the scripted model speak without pauses")
    demo.set_defaults(run=_demo)

    chat = commands.add_parser(
        "chat",
        help="talk to a model that can run code on this machine",
        description="A terminal assistant: the model may write Python, shell and JavaScript; you are asked before any of "
        "it runs ([y]es, [n]o, [e]dit, [a]lways). Ctrl-C stops what is going on, Ctrl-D leaves. It talks to OpenAI with "
        "OPENAI_API_KEY set, to any compatible server with --base-url, to Anthropic with --model claude-… and "
        "ANTHROPIC_API_KEY set.",
    )
    chat.add_argument("--auto-run", action="store_true", help="run all code without asking")
    chat.add_argument("--instructions", metavar="TEXT", help="what the model is told before the conversation")
    chat.set_defaults(run=_chat)
    for command in (demo, chat):
        command.add_argument("--model", metavar="NAME", help="the real model to ask")
        command.add_argument(
            "--base-url", metavar="URL", help="ask the model server at this address, e.g. http://host:8000/v1"
        )
        command.add_argument(
            "--protocol",
            choices=("responses", "chat"),
            help="the OpenAI API to speak: responses (OpenAI's own) or chat (Chat Completions, where --base-url is given)",
        )

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
    if output is None:  # it was closed before we began
        return _fail("cannot write: stdout is closed", 1)
    if isinstance(output, io.TextIOWrapper):
        output.reconfigure(errors="backslashreplace")
    try:
        return _run(argv)
    except KeyboardInterrupt:
        _leave_stdout()
        return 130
    except BrokenPipeError:  # whoever read our output has left
        _leave_stdout()
        return 141
    except (StreamkitError, OSError) as error:
        _leave_stdout()
        return _fail(explain(error), 2 if isinstance(error, UsageError) else 1)


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    try:
        arguments = parser.parse_args(argv)
        if not hasattr(arguments, "run"):
            parser.print_help()
            return 0
        code: int = arguments.run(arguments)
        return code
    finally:
        if sys.exc_info()[0] in (None, SystemExit):
            sys.stdout.flush()  # what cannot be written is told, and not at exit alone


def _leave_stdout() -> None:
    """What is still to be written must not fail again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    error: object = sys.stderr
    if error is not None:  # else `print` would take stdout
        with contextlib.suppress(OSError):
            print(f"streamkit: {text}", file=sys.stderr, flush=True)
    return code
