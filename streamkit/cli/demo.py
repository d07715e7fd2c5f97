"""`streamkit demo`: a handler's source, and what it does on a stream.

What is shown is what runs: the class's own source, the `openai` package's own client, HTTP and SSE on loopback where
the model is the scripted one. The code that the model writes really runs, after a yes.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from .._version import __version__
from ..agent import Agent
from ..errors import SourceError
from ..events import Delta, Event
from ..handlers import EventHandler, Handler
from ..messages import Message
from ..testing import ModelServer, Reasoning, Reply, Text, ToolCall
from .chat import MODEL, stopped_by_ctrl_c
from .prompt import person, somebody_there
from .report import printable, renderer, run_and_report

__all__ = ["Demo", "run"]

QUESTION = "What does one turn of a sine look like?"
PAUSE = 0.02  # seconds a piece, for a terminal

# What the scripted model writes. A picture without any library but those that run the code.
CODE = """\
import math, struct, time, zlib
from IPython.display import Image, display

for quarter in range(5):
    print(f"sin({quarter}/4 turn) = {round(math.sin(quarter * math.pi / 2))}")
    time.sleep(0.2)

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

width, height = 200, 80
rows = [bytearray(b"\\xff" * width) for _ in range(height)]
for x in range(width):
    rows[round(height / 2 - math.sin(2 * math.pi * x / width) * 36)][x] = 0
pixels = zlib.compress(b"".join(b"\\0" + row for row in rows))
head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
display(Image(png))
"""


class HookCounter(Handler):
    """Counts how often each hook is told, whoever overrides it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def handle(self, event: Event, /) -> None:
        self.counts.update(event.hooks)


class Demo(EventHandler):
    """Keeps what the model says, and what its code prints and draws."""

    said = printed = ""
    pictures = 0

    def on_text_delta(self, delta: Delta, snapshot: Message) -> None:
        self.said += delta.value

    def on_console_output(self, delta: Delta, snapshot: Message) -> None:
        self.printed += delta.value

    def on_image_file_done(self, image: Message) -> None:
        self.pictures += 1


class Model(NamedTuple):
    """Whom the demo asks."""

    client: Any
    name: str
    told: str  # what the newcomer is told of it


def run(
    *,
    protocol: str | None,
    base_url: str | None,
    model: str | None,
    prompt: str | None,
    offline: bool,
    fast: bool,
    yes: bool,
) -> int:
    """Run the demo. Gives the exit code.

    Raises:
        StreamkitError: the stream failed; what had arrived was shown.
    """
    from ..computer import Computer

    protocol = protocol or ("chat" if base_url else "responses")
    real = not offline and bool(base_url or os.environ.get("OPENAI_API_KEY"))
    script = _scripted(0 if fast or not sys.stdout.isatty() else PAUSE)
    with _real(base_url, model) if real else script as asked, Computer() as computer:
        shown, demo, counter, asker = renderer(), Demo(), HookCounter(), person(always=yes)
        _introduce(asked, protocol, type(shown).__name__)
        if not real and (prompt or model):
            _tell("The scripted model says the same whatever it is asked: --prompt and --model are for real ones.")
        if not yes and not somebody_there():
            _tell("Nobody can be asked here, as this is no terminal: the code will not run. (--yes: it will.)")
        print()
        _tell(f"You: {prompt or QUESTION}")
        print()
        agent = Agent(asked.client, model=asked.name, computer=computer, protocol=f"openai_{protocol}")
        stream = agent.stream(prompt or QUESTION, shown, demo, asker, counter)
        try:
            with stopped_by_ctrl_c(stream, asker), stream:
                run_and_report(stream, counter.counts)
        except SourceError as error:
            if error.status_code is None:
                error.add_note(f"at {asked.client.base_url}")
            elif error.status_code == 404 and base_url and protocol == "responses":
                error.add_note("if this server has no Responses API: --protocol chat")
            raise
        if stream.status == "cancelled":
            return 130  # by Ctrl-C
        kept = f"{len(demo.said)} characters of text, {len(demo.printed)} of output, {demo.pictures} picture(s)"
        _tell(f"The handler kept {kept}.")
    return 0


@contextlib.contextmanager
def _scripted(pause: float) -> Generator[Model]:
    import openai

    script = (
        Reply(
            Reasoning("I can compute this, and draw it. A few lines of Python will do."),
            Text("Let me measure it, and draw it."),
            ToolCall("execute", {"language": "python", "code": CODE}),
            delay=pause,
        ),
        Reply(
            Text(
                "It rises from 0 to 1 in the first quarter, falls through 0 to -1, and comes back: the picture shows it.\n"
                "(Two responses and a run of code were needed for this answer, and it was one stream.)"
            ),
            delay=pause,
        ),
    )
    told = "a scripted one, served on this machine: no key, no network. The code that it writes is real. With "
    told += "OPENAI_API_KEY set, or --base-url URL, it is a real one."
    # A proxy that the environment names could not reach this machine's loopback.
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with (
        ModelServer(script) as server,
        openai.OpenAI(base_url=server.url, api_key="none", http_client=http_client, max_retries=0) as client,
    ):
        yield Model(client, "scripted", told)


@contextlib.contextmanager
def _real(base_url: str | None, name: str | None) -> Generator[Model]:
    import openai

    key = os.environ.get("OPENAI_API_KEY") or "none"  # servers of one's own seldom want one
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=1) as client:
        name = name or MODEL
        told = f"a real one, {name} at {client.base_url}"
        yield Model(client, name, told if base_url else f"{told} (--offline: the scripted one)")


def _introduce(model: Model, protocol: str, shown: str) -> None:
    _tell(f"streamkit {__version__}. This handler is about to be told of a stream:")
    print()
    print("\n".join(_source(shutil.get_terminal_size().columns)))
    print()
    call = "chat.completions" if protocol == "chat" else "responses"
    _tell("The program is")
    print()
    _tell("agent = sk.Agent(client, model=…, computer=Computer())", indent="  ")
    _tell(f"agent.stream(question, {shown}(), Demo(), Asker()).until_done()", indent="  ")
    print()
    _tell(
        f"where {shown} is a renderer, a handler that shows what arrives, Asker is one that asks before code runs, and "
        f"the client is openai's own: client.{call}.create(…, stream=True)."
    )
    print()
    _tell(f"The model: {model.told}")


def _source(width: int) -> Iterator[str]:
    """The handler's source, indented; lines longer than a terminal are continued deeper."""
    for line in inspect.getsource(Demo).splitlines():
        if not sys.stdout.isatty() or len(line) + 2 <= width:
            yield f"  {line}".rstrip()
        else:
            yield from _wrapped(line.strip(), width, " " * (len(line) - len(line.lstrip()) + 2))


def _tell(text: str, indent: str = "") -> None:
    print(printable("\n".join(_wrapped(text, shutil.get_terminal_size().columns, indent))))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    deeper = indent + "    " if indent else ""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=deeper, break_on_hyphens=False, break_long_words=False
    )
