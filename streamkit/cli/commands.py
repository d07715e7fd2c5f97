"""The commands and their arguments.

What only some commands need (the openai client, a scripted server) is imported by those commands alone.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any, Protocol

from .. import protocols
from .._version import __version__
from ..sources import recording
from ..streams.api import stream as open_stream
from . import convert
from .report import renderer, run_and_report

__all__ = ["parser"]

# Of `--protocol`: the names of the OpenAI APIs, and streamkit's names for them.
_PROTOCOLS = {"responses": "openai_responses", "chat": "openai_chat"}


def parser() -> argparse.ArgumentParser:
    """The parser. The arguments of a command have `run`, a function that takes them and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="streamkit",
        description="One event handler for every agent stream.",
        epilog="No API key? `streamkit demo` needs none. For the options of a command: `streamkit COMMAND --help`.",
    )
    parser.add_argument("--version", action="version", version=f"streamkit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_demo(commands)
    _add_chat(commands)
    _add_serve(commands)
    _add_replay(commands)
    _add_convert(commands)
    _add_mock(commands)
    _add_doctor(commands)
    return parser


class _Commands(Protocol):
    """The result of `add_subparsers`; argparse has no public name for it."""

    def add_parser(self, name: str, *, help: str, description: str) -> argparse.ArgumentParser: ...


# -- demo and chat, which talk to a model


def _add_demo(commands: _Commands) -> None:
    demo = commands.add_parser(
        "demo",
        help="show a handler at work: a model that runs code on this machine",
        description="Shows the source of an event handler, then runs it on a stream: the model writes code, you approve "
        "it, it really runs, and the model answers. The model is scripted and served on this machine, unless "
        "OPENAI_API_KEY is set or --base-url is passed. Either way the client is the openai package's own.",
    )
    demo.add_argument("--yes", action="store_true", help="run the code without asking; required outside of a terminal")
    demo.add_argument("--prompt", metavar="TEXT", help="the question for a real model")
    demo.add_argument("--offline", action="store_true", help="use the scripted model even if OPENAI_API_KEY is set")
    demo.add_argument("--fast", action="store_true", help="let the scripted model write without pauses")
    _add_model_arguments(demo)
    demo.set_defaults(run=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    from .demo import run

    return run(
        protocol=_PROTOCOLS.get(arguments.protocol),
        base_url=arguments.base_url,
        model=arguments.model,
        prompt=arguments.prompt,
        offline=arguments.offline,
        fast=arguments.fast,
        yes=arguments.yes,
    )


def _add_chat(commands: _Commands) -> None:
    chat = commands.add_parser(
        "chat",
        help="talk to a model that can run code on this machine",
        description="A terminal assistant. The model may write Python, shell and JavaScript, and you decide before any "
        "of it runs: [y]es, [n]o, [e]dit, [a]lways. Ctrl-C stops an answer, Ctrl-D exits. Uses OpenAI if OPENAI_API_KEY "
        "is set, any compatible server with --base-url, and Anthropic with --model claude-… if ANTHROPIC_API_KEY is set.",
    )
    _add_agent_arguments(chat)
    chat.set_defaults(run=_chat)


def _agent_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the arguments that `_add_agent_arguments` added."""
    return {
        "model": arguments.model,
        "base_url": arguments.base_url,
        "protocol": _PROTOCOLS.get(arguments.protocol),
        "auto_run": arguments.auto_run,
        "images": not arguments.no_images,
        "instructions": arguments.instructions,
    }


def _chat(arguments: argparse.Namespace) -> int:
    from .chat import run

    return run(**_agent_options(arguments))


def _add_serve(commands: _Commands) -> None:
    serve = commands.add_parser(
        "serve",
        help="the same in the browser: a chat page on this machine",
        description="Serves a chat page and its HTTP API on 127.0.0.1, and prints the page's address, which has a token. The "
        "model is scripted, unless OPENAI_API_KEY is set, --base-url is passed, or --model claude-… with ANTHROPIC_API_KEY "
        "set. Code that it writes runs on this machine once you approve it. Conversations are saved in a file.",
    )
    serve.add_argument("--port", metavar="N", type=_port, help="the port (default: 8765, or one that is free)")
    serve.add_argument("--open", action="store_true", help="open the page in the browser")
    serve.add_argument("--offline", action="store_true", help="use the scripted model even if there is a key")
    serve.add_argument("--fast", action="store_true", help="let the scripted model write without pauses")
    serve.add_argument(
        "--data", metavar="FILE", help="the file of the conversations (default: in the user's data folder)"
    )
    _add_agent_arguments(serve)
    serve.set_defaults(run=_serve)


def _serve(arguments: argparse.Namespace) -> int:
    from .serve import run

    return run(
        port=arguments.port,
        open_page=arguments.open,
        **_agent_options(arguments),
        offline=arguments.offline,
        fast=arguments.fast,
        data=arguments.data,
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a number from 0 to 65535")
    return int(text)


def _add_agent_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--auto-run", action="store_true", help="run all code without asking")
    command.add_argument(
        "--no-images", action="store_true", help="for a model that takes no images: it gets their text"
    )
    command.add_argument("--instructions", metavar="TEXT", help="the system prompt, in place of the built-in one")
    _add_model_arguments(command)


def _add_model_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", metavar="NAME", help="the real model to use")
    command.add_argument(
        "--base-url", metavar="URL", help="address of a compatible model server, such as http://host:8000/v1"
    )
    command.add_argument(
        "--protocol",
        choices=tuple(_PROTOCOLS),
        help="the OpenAI API to use: responses, or chat (Chat Completions). The default is chat with --base-url, "
        "otherwise responses",
    )


# -- replay and convert, which read a file


def _add_replay(commands: _Commands) -> None:
    replay = commands.add_parser(
        "replay",
        help="play a recording",
        description="Plays a recording made by streamkit.Recorder at its original pace, and prints a summary. Also plays "
        "a response body that was saved to a file (Server-Sent Events or JSON Lines), without pauses.",
    )
    replay.add_argument(
        "--speed", metavar="N", type=_speed, default=1.0, help="play N times as fast, or max for no pauses (default: 1)"
    )
    _add_file_arguments(replay)
    replay.set_defaults(run=_replay)


def _replay(arguments: argparse.Namespace) -> int:
    path, speed = Path(arguments.file), arguments.speed
    source = path if math.isinf(speed) else recording.replay(path, speed=speed)
    with open_stream(source, renderer(), protocol=arguments.protocol, fields=_fields(arguments)) as stream:
        run_and_report(stream, {})
    return 0


def _speed(text: str) -> float:
    if text == "max":
        return math.inf
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not speed > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a speed; give a number above 0, or max")
    return speed


def _add_convert(commands: _Commands) -> None:
    command = commands.add_parser(
        "convert",
        help="write a recording in another protocol",
        description="Reads a recording, or a response body that was saved to a file, and writes the same stream as the "
        "wire bytes of another protocol.",
    )
    command.add_argument("--to", metavar="PROTOCOL", required=True, help=f"one of: {', '.join(protocols.BUILT_IN)}")
    command.add_argument(
        "--framing",
        choices=("sse", "ndjson"),
        help="write Server-Sent Events or JSON Lines (default: as the protocol's own servers send it)",
    )
    command.add_argument("-o", "--output", metavar="OUT", help="the file to write (default: stdout)")
    _add_file_arguments(command)
    command.set_defaults(run=_convert)


def _convert(arguments: argparse.Namespace) -> int:
    output = Path(arguments.output) if arguments.output not in (None, "-") else None
    convert.run(
        Path(arguments.file),
        output,
        source=arguments.protocol,
        target=arguments.to,
        framing=arguments.framing,
        fields=_fields(arguments),
    )
    return 0


def _add_file_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", metavar="FILE", help="a recording, or a body of Server-Sent Events or JSON Lines")
    command.add_argument("--protocol", metavar="NAME", help="the protocol of FILE, if it is not recognised")
    command.add_argument(
        "--fields",
        metavar="TOOL.ARGUMENT=KIND",
        action="append",
        type=_field,
        help="make a message of a tool's argument, such as send_message.message=text; may be repeated",
    )


def _field(text: str) -> tuple[str, str]:
    path, equals, kind = text.rpartition("=")
    if not (path and equals and kind):
        raise argparse.ArgumentTypeError(f"{text!r} is not TOOL.ARGUMENT=KIND, as send_message.message=text")
    return path, kind


def _fields(arguments: argparse.Namespace) -> dict[str, str] | None:
    return dict(arguments.fields) if arguments.fields else None


# -- mock


def _add_mock(commands: _Commands) -> None:
    mock = commands.add_parser(
        "mock",
        help="serve recordings as a model's answers",
        description="Serves the answers in recordings, or in response bodies that were saved, on 127.0.0.1, and prints the "
        "addresses for the clients of OpenAI and Anthropic. Each request with `stream` gets the next answer, the last one "
        "again and again: byte for byte in the API that it was recorded in, else encoded. Ctrl-C stops it.",
    )
    mock.add_argument(
        "files", metavar="FILE", nargs="+", help="a recording, or a body of Server-Sent Events or JSON Lines"
    )
    mock.add_argument("--port", metavar="N", type=_port, default=0, help="the port (default: one that is free)")
    mock.set_defaults(run=_mock)


def _mock(arguments: argparse.Namespace) -> int:
    from .mock import run

    return run(arguments.files, arguments.port)


# -- doctor


def _add_doctor(commands: _Commands) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="say what is installed here, and whether a stream runs",
        description="Prints the versions of Python, streamkit, its packages and programs, which keys are set (not the keys), "
        "and whether a stream from a scripted model on this machine arrives whole. Quote it when you report a problem.",
    )
    doctor.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from .doctor import run

    return run()
