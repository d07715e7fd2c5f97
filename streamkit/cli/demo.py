"""`streamkit demo`: the source of a handler, and the same handler at work on a stream.

What is shown is what runs: the class's own source, the `openai` package's own client, and for the scripted model HTTP and
SSE on loopback. The code that the model writes really runs once it is approved.
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
from ..errors import SourceError, UsageError
from ..events import Delta, Event
from ..handlers import EventHandler, Handler
from ..messages import Message
from ..testing import ModelServer, Reasoning, Reply, Text, ToolCall
from .clients import DEFAULT_MODEL, computer_here, openai_client
from .ctrl_c import stopped_by_ctrl_c
from .keyboard import echo, is_interactive
from .prompt import Asker, terminal_asker
from .report import picture_folder, printable, renderer, run_and_report
from .script import CHART, QUESTIONS

__all__ = ["Demo", "run"]

QUESTION = QUESTIONS[0]
PAUSE = 0.02  # seconds between two pieces of the scripted answer, on a terminal

SCRIPT = (
    [
        Reasoning("I can compute this, and draw it. A few lines of Python will do."),
        Text("Let me measure it, and draw it."),
        ToolCall("execute", {"language": "python", "code": CHART}),
    ],
    [
        Text(
            "It rises from 0 to 1 in the first quarter, falls through 0 to -1, and comes back.\n"
            "(Two responses and a run of code were needed for this answer, and it was one stream.)"
        ),
    ],
)


class HookCounter(Handler):
    """Counts how often each hook is called, whether a handler overrides it or not."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def handle(self, event: Event, /) -> None:
        """Count the event's hooks."""
        self.counts.update(event.hooks)


# The demo prints the source of this class, so it has no comments, and docstrings only where they help a newcomer.
class Demo(EventHandler):
    """Collects the model's text, and what its code prints."""

    text = printed = ""

    def on_text_delta(self, delta: Delta, snapshot: Message) -> None:
        self.text += delta.value

    def on_console_output(self, delta: Delta, snapshot: Message) -> None:
        self.printed += delta.value


class Model(NamedTuple):
    """The model of the demo: a client, the model's name, and a description for the person at the terminal."""

    client: Any
    name: str
    description: str


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
    """Run the demo. Returns the exit code.

    Args:
        protocol: `openai_responses` or `openai_chat`; None is the first, or with `base_url` the second.
        base_url: the address of a real model's server.
        model: the name of the real model.
        prompt: the question; None for the demo's own.
        offline: whether to use the scripted model even if there is a key.
        fast: whether the scripted model writes without pauses.
        yes: whether the code runs without asking.

    Raises:
        StreamkitError: the stream failed. What had arrived was shown.
    """
    protocol = protocol or ("openai_chat" if base_url else "openai_responses")
    is_real = not offline and bool(base_url or os.environ.get("OPENAI_API_KEY"))
    chosen = _real(base_url, model) if is_real else _scripted(0 if fast or not sys.stdout.isatty() else PAUSE)
    computer = computer_here()
    if computer is None:
        raise UsageError("the demo runs code, which needs a POSIX system, such as Linux, macOS or WSL")
    with chosen as model_to_ask, computer:
        shown = renderer(picture_folder())
        _introduce(model_to_ask, protocol, type(shown).__name__)
        if not is_real and (prompt or model):
            _print("The scripted model gives the same answer to any question: --prompt and --model need a real one.")
        if not yes and not is_interactive():
            _print("This is not a terminal, so nobody can approve the code, and it will not run. (With --yes it will.)")
        print()
        _print(f"You: {prompt or QUESTION}")
        print()
        agent = Agent(model_to_ask.client, model=model_to_ask.name, computer=computer, protocol=protocol)
        return _answer(agent, prompt or QUESTION, shown, terminal_asker(always=yes), hint=bool(base_url))


def _answer(agent: Agent, question: str, shown: EventHandler, asker: Asker, *, hint: bool) -> int:
    """Show the agent's answer. With `hint`, an error may suggest another protocol. Returns the exit code."""
    demo, counter = Demo(), HookCounter()
    stream = agent.stream(question, shown, demo, asker, counter)
    try:
        with echo(False), stopped_by_ctrl_c(stream, asker), stream:
            run_and_report(stream, counter.counts)
    except SourceError as error:
        if error.status_code is None:
            error.add_note(f"at {agent.provider.client.base_url}")
        elif error.status_code == 404 and hint and agent.provider.protocol == "openai_responses":
            error.add_note("if this server has no Responses API: --protocol chat")
        raise
    if stream.status == "cancelled":
        return 130  # by Ctrl-C
    _print(f"The handler collected {len(demo.text)} characters of text and {len(demo.printed)} of output.")
    return 0


# -- the model


@contextlib.contextmanager
def _scripted(pause: float) -> Generator[Model]:
    import openai

    description = (
        "a scripted one on this machine, which needs no key and no network. The code that it writes really runs. For a "
        "real model, set OPENAI_API_KEY or pass --base-url URL."
    )
    # Without `trust_env=False` a proxy that the environment names would be used, which cannot reach loopback.
    http_client = openai.DefaultHttpxClient(trust_env=False)
    with (
        ModelServer([Reply(*parts, delay=pause) for parts in SCRIPT]) as server,
        openai.OpenAI(base_url=server.url, api_key="none", http_client=http_client, max_retries=0) as client,
    ):
        yield Model(client, "scripted", description)


@contextlib.contextmanager
def _real(base_url: str | None, name: str | None) -> Generator[Model]:
    name = name or DEFAULT_MODEL
    with openai_client(base_url) as client:
        description = f"a real one, {name} at {client.base_url}"
        yield Model(client, name, description if base_url else f"{description} (--offline uses the scripted one)")


# -- the introduction


def _introduce(model: Model, protocol: str, shown: str) -> None:
    _print(f"streamkit {__version__}. This handler will receive the events of a stream:")
    print()
    print("\n".join(_source(shutil.get_terminal_size().columns)))
    print()
    call = "chat.completions" if protocol == "openai_chat" else "responses"
    _print("The program:")
    print()
    _print("agent = sk.Agent(client, model=…, computer=Computer())", indent="  ")
    _print(f"agent.stream(question, {shown}(), Demo(), Asker()).until_done()", indent="  ")
    print()
    _print(
        f"{shown} is a handler that shows what arrives, Asker is a handler that asks before code runs, and the client is "
        f"openai's own: client.{call}.create(…, stream=True)."
    )
    print()
    _print(f"The model: {model.description}")


def _source(width: int) -> Iterator[str]:
    """The handler's source, indented. Lines longer than the terminal continue on the next line, indented deeper."""
    for line in inspect.getsource(Demo).splitlines():
        if not sys.stdout.isatty() or len(line) + 2 <= width:
            yield f"  {line}".rstrip()
        else:
            yield from _wrapped(line.strip(), width, " " * (len(line) - len(line.lstrip()) + 2))


def _print(text: str, indent: str = "") -> None:
    print(printable("\n".join(_wrapped(text, shutil.get_terminal_size().columns, indent))))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    deeper = indent + "    " if indent else ""
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=deeper, break_on_hyphens=False, break_long_words=False
    )
