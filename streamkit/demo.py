"""`streamkit demo`: a handler's source, and what it does on a stream.

What is shown is what runs: the class's own source, the `openai` package's own client, HTTP and SSE on loopback where
the model is the scripted one.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from ._version import __version__
from .errors import SourceError
from .events import Delta, Event
from .handlers import EventHandler, Handler
from .manager import stream as open_stream
from .messages import Message, ToolCallMessage
from .protocols import to_input
from .state import StreamState
from .terminal import printable, renderer, run_and_report
from .testing import ModelServer, Reasoning, Reply, Text, ToolCall

__all__ = ["Demo", "run"]

QUESTION = "What is the weather in Oslo?"
MODEL = "gpt-5.4-mini"
PAUSE = 0.02  # seconds a piece, for a terminal


class HookCounter(Handler):
    """Counts how often each hook is told, whoever overrides it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def handle(self, event: Event, /) -> None:
        self.counts.update(event.hooks)


class Demo(EventHandler):
    """Answers the model's tool call, and keeps its answer."""

    answer = ""

    def on_text_delta(self, delta: Delta, snapshot: Message) -> None:
        self.answer += delta.value

    def on_tool_call_done(self, call: ToolCallMessage) -> None:
        if call.waiting:
            call.respond(get_weather(**call.arguments))


def get_weather(city: str = "", **others: object) -> dict[str, object]:
    """The demo's tool; it always rains. A model may send whatever it likes."""
    return {"city": city, "sky": "rain", "celsius": 14}


_PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
_FUNCTION = {"name": "get_weather", "description": "The weather in a city now.", "parameters": _PARAMETERS}
_TOOLS: dict[str, dict[str, Any]] = {
    "responses": {"type": "function", "strict": True, **_FUNCTION},
    "chat": {"type": "function", "function": {"strict": True, **_FUNCTION}},
}


class Model(NamedTuple):
    """Whom the demo asks."""

    client: Any
    name: str
    told: str  # what the newcomer is told of it


def run(
    *,
    protocol: str,
    base_url: str | None,
    model: str | None,
    prompt: str | None,
    offline: bool,
    fast: bool,
    tool: bool,
) -> int:
    """Run the demo. Gives the exit code.

    Raises:
        StreamkitError: the stream failed; what had arrived was shown.
    """
    real = not offline and bool(base_url or os.environ.get("OPENAI_API_KEY"))
    with _real(base_url, model) if real else _scripted(0 if fast or not sys.stdout.isatty() else PAUSE) as asked:
        shown = renderer()
        _introduce(asked, protocol, type(shown).__name__)
        if not real and (prompt or model):
            _tell("The scripted model says the same whatever it is asked: --prompt and --model are for real ones.")
        counter = HookCounter()
        ask = _asker(asked, protocol, prompt or QUESTION, [_TOOLS[protocol]] if tool else [])
        print(printable(f"\nYou: {prompt or QUESTION}\n"))
        try:
            with open_stream(ask, shown, Demo(), counter, then=ask) as stream:
                run_and_report(stream, counter.counts)
        except SourceError as error:
            if error.status_code is None:
                error.add_note(f"at {asked.client.base_url}")
            elif error.status_code == 404 and base_url and protocol == "responses":
                error.add_note("if this server has no Responses API: --protocol chat")
            raise
    return 0


@contextlib.contextmanager
def _scripted(pause: float) -> Generator[Model]:
    import openai

    script = (
        Reply(
            Reasoning("There is a tool that tells the weather; I will call it."),
            ToolCall("get_weather", {"city": "Oslo"}),
            delay=pause,
        ),
        Reply(
            Text(
                "It rains in Oslo, at 14 degrees. Take an umbrella!\n"
                "(Two responses were needed for this answer, and it was one stream.)"
            ),
            delay=pause,
        ),
    )
    told = "a scripted one, served on this machine: no key, no network. With OPENAI_API_KEY set, or --base-url URL, "
    told += "it is a real one."
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


def _asker(model: Model, protocol: str, prompt: str, tools: list[dict[str, Any]]) -> Callable[..., Callable[[], Any]]:
    """What makes a request: the first without a stream, the next with the stream that it continues. It is sent where
    the manager calls it, so that a refusal is the stream's failure."""
    question = {"role": "user", "content": prompt}
    options: dict[str, Any] = {"model": model.name, "stream": True, **({"tools": tools} if tools else {})}

    def ask(stream: StreamState | None = None) -> Callable[[], Any]:
        said = stream.messages if stream is not None else ()
        if protocol == "chat":
            options["messages"] = [question, *to_input(said, "openai_chat")]
            return lambda: model.client.chat.completions.create(**options)
        options["input"] = [question, *to_input(said, "openai_responses")]
        return lambda: model.client.responses.create(**options)

    return ask


def _introduce(model: Model, protocol: str, shown: str) -> None:
    _tell(f"streamkit {__version__}. This handler is about to be told of a stream:")
    print()
    print("\n".join(_source(shutil.get_terminal_size().columns)))
    print()
    call = "chat.completions" if protocol == "chat" else "responses"
    _tell("The program is")
    print()
    _tell(f"sk.stream(ask, {shown}(), Demo(), then=ask).until_done()", indent="  ")
    print()
    _tell(
        f"where {shown} is a renderer, a handler that shows what arrives, and ask sends the request: openai's own "
        f"client.{call}.create(…, stream=True)."
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
