"""`Agent` and `AsyncAgent`: a model, its tools and a computer, as one stream.

    agent = sk.Agent(openai.OpenAI(), model="gpt-5-mini", tools=[get_weather], computer=Computer())
    agent.stream("Plot the temperatures of this week.", Terminal()).until_done()

A run is one answer; each of its steps is one model call with the calls of tools and the runs of code that it asked for.
Code is told while the model still writes it, and runs after a yes alone (`auto_run` says otherwise). What the model is
told is `agent.messages`, the conversation, and nothing else: no server is asked to remember anything.
"""

# pyright: reportPrivateUsage=false
# The agent, its turns and their streams are one thing; their underscores keep users out.

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from ..answers import Confirmation
from ..errors import UsageError
from ..handlers import EventHandler, Handler
from ..messages import CodeMessage, Message, TextMessage
from ..protocols import is_object
from ..streams.aio import AsyncStreamManager
from ..streams.manager import Manager
from ..streams.sync import StreamManager
from .async_steps import first_async_source
from .code import CODE_TOOL, FIELDS, code_schema
from .computer_protocol import Computing, runs
from .history import told
from .requests import Provider, tool_name
from .sync_steps import first_source
from .tools import Tool
from .turn import Turn

__all__ = ["Agent", "AsyncAgent", "Said"]

Said: TypeAlias = str | Message | Mapping[str, Any] | Sequence[Message | Mapping[str, Any]] | None
"""What the user says: a text, or flat messages."""

AnyTool: TypeAlias = Callable[..., Any] | Mapping[str, Any]
"""A function, a `Tool`, or the schema of a tool that the application answers (`call.respond`) or the provider runs."""

M = TypeVar("M", bound=Message)


class BaseAgent:
    """What both agents are.

    Args:
        client: a client of openai or anthropic, or one that offers the same.
        model: the model's name.
        tools: functions, which the agent calls itself, and schemas of tools, as dicts, whose calls the application answers.
        computer: what runs the model's code; without one the model is not told that it could run any.
        instructions: what the model is told before the conversation.
        auto_run: run code without asking; a function decides by the code message.
        max_steps: model calls of one run. If more are wanted, the run ends `incomplete`, its `finish_reason` "max_steps".
        protocol: `openai_responses`, `openai_chat` or `anthropic`; by default the client's, and for openai's at any
            other address than OpenAI's own `openai_chat`.
        fields: further string arguments of tools that become messages, as `stream` takes them.
        output_limit: characters of what code printed that the model is told. The messages keep all of it.
        images: whether the model takes images, which code displayed.
        options: for each request, as `temperature=0`.

    What it is made with are its attributes; between two streams they can be set.

    Attributes:
        messages: the conversation. It grows while a stream runs; the application may change it between two.

    Raises:
        UsageError: a tool cannot be told to a model; two have one name; the client is none.
    """

    _takes_async = False

    def __init__(
        self,
        client: Any,
        *,
        model: str,
        tools: Iterable[AnyTool] = (),
        computer: Computing | None = None,
        instructions: str = "",
        auto_run: bool | Callable[[CodeMessage], bool] = False,
        max_steps: int = 20,
        protocol: str | None = None,
        fields: Mapping[str, str] | None = None,
        output_limit: int = 10_000,
        images: bool = True,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        **options: Any,
    ) -> None:
        if max_steps < 1:
            raise UsageError(f"a run has at least one step, not {max_steps}")
        self.provider = Provider(client, protocol)
        if self.provider.is_async and not self._takes_async:
            raise UsageError(f"{type(client).__name__} is asynchronous: use `AsyncAgent`")
        self.model = model
        self.computer = computer
        self.instructions = instructions
        self.auto_run = _rule(auto_run)
        self.max_steps = max_steps
        self.output_limit = output_limit
        self.images = images
        self.options: dict[str, Any] = options
        self.tools: dict[str, Tool[..., Any]] = {}
        self.names: set[str] = set()  # of tools that the application answers
        self._schemas: list[Mapping[str, Any]] = []
        for tool in tools:
            self._add_tool(tool)
        self._fields = {**(FIELDS if computer is not None else {}), **(fields or {})}
        self.messages: list[Message] = _messages([*messages])
        self._live: Manager | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a file, as a JSON list."""
        text = json.dumps([message.to_dict() for message in self._known()], ensure_ascii=False, indent=1)
        whole = Path(f"{os.fspath(path)}.new")
        whole.write_text(text + "\n", encoding="utf-8", errors="surrogatepass")
        whole.replace(path)  # so that there is never half a file

    def load(self, path: str | os.PathLike[str]) -> None:
        """Take up a conversation that was saved, in the place of this one.

        Raises:
            UsageError: the file holds no list of messages, or a stream is going on.
        """
        self._check_idle()
        try:
            given = json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
        except ValueError as error:
            raise UsageError(f"{path} holds no JSON: {error}") from error
        self.messages = _messages(_list_in(given, path))

    # -- what both do

    def _add_tool(self, tool: AnyTool) -> None:
        if is_object(tool):
            name = tool_name(tool)
            self._check_name(name)
            self.names |= {name} if name is not None else set()
            self._schemas.append(tool)
            return
        made = cast("Tool[..., Any]", tool) if isinstance(tool, Tool) else Tool(cast("Callable[..., Any]", tool))
        if made.is_async and not self._takes_async:
            raise UsageError(f"tool {made.name} is `async def`: use `AsyncAgent`")
        self._check_name(made.name)
        self.tools[made.name] = made
        self._schemas.append({"name": made.name, "description": made.description, "parameters": made.parameters})

    def _check_name(self, name: str | None) -> None:
        if name in self.tools or name in self.names:
            raise UsageError(f"two tools are called {name!r}")
        if name == CODE_TOOL and self.computer is not None:
            raise UsageError(f"a tool cannot be called {name!r}: that is what runs code on the computer")

    def _turn(self, said: Any, handlers: tuple[Handler, ...], options: Mapping[str, Any]) -> Any:
        """A turn, and the handlers of its stream. What is said may be left out before the handlers."""
        self._check_idle()
        if isinstance(said, Handler):
            said, handlers = None, (said, *handlers)
        turn = Turn(self, _said(said), {**self.options, **options})
        return turn, (_Keeper(self), *handlers)

    def _stream_options(self) -> dict[str, Any]:
        fields = self._fields or None
        return {"protocol": self.provider.protocol, "strict": False, "then": None, "fields": fields}

    def _bind(self, turn: Turn, stream: Manager) -> None:
        turn.stream = stream
        stream._engine.takes_outputs = True
        stream._engine.executes = turn.executes
        stream._engine.takes_approvals = True

    def _begin(self, turn: Turn) -> None:
        """The turn's stream has started."""
        self._check_idle()
        self._live = cast("Manager", turn.stream)
        self.messages += turn.said

    def _check_idle(self) -> None:
        if self._live is not None and not self._live.ended:
            raise UsageError("this agent's stream is still going on: run it to its end, or `close` the agent")

    def _known(self) -> list[Message]:
        self.messages[:] = _messages(self.messages)
        return self.messages

    def _request(self, options: Mapping[str, Any], answered: Sequence[Confirmation] = ()) -> Callable[[], Any]:
        schemas = self._schemas
        if self.computer is not None:
            schemas = [code_schema(self.computer.languages), *schemas]
        view = told(self._known(), limit=self.output_limit, images=self.images, answered=answered)
        return self.provider.request(self.model, view, self.instructions, schemas, options)

    def _runs_unasked(self, code: CodeMessage) -> bool:
        rule = _rule(self.auto_run)
        if isinstance(rule, bool):
            return rule
        try:
            return rule(code) is True
        except Exception as error:
            raise UsageError(f"`auto_run` raised {type(error).__name__}: {error}") from error

    def _edit(self, message: M, content: str) -> M:
        """Put this content in the place of a message's, in the conversation."""
        return self._change(message, content=content, metadata={**message.metadata, "edited": True})

    def _change(self, message: M, **changes: Any) -> M:
        """Put a changed message in the place of this one, in the conversation. (The stream's own never changes.)"""
        changed = Message.from_dict({**message.to_dict(), **changes})
        self.messages[:] = [changed if one is message else one for one in self.messages]
        return cast("M", changed)


class Agent(BaseAgent):
    """An agent whose streams the caller's thread drives. What it is made with, `BaseAgent` says."""

    def stream(self, said: Said | Handler = None, /, *handlers: Handler, **options: Any) -> StreamManager:
        """One stream over all model calls, calls of tools and runs of code that answer what is said.

        Args:
            said: a text of the user's, or flat messages, which are added to the conversation when the stream starts.
                Without it the conversation goes on as it is.
            handlers: told of each event, in this order.
            options: for the requests, besides the agent's own.

        Raises:
            UsageError: a stream of this agent is going on; a handler is async; a message is malformed.
        """
        turn, all_handlers = self._turn(said, handlers, options)
        stream = StreamManager(first_source(turn), all_handlers, **self._stream_options())
        self._bind(turn, stream)
        return stream

    def close(self) -> None:
        """Close the stream that is going on, if there is one. Another can begin then."""
        if isinstance(self._live, StreamManager):
            self._live.close()


class AsyncAgent(BaseAgent):
    """An agent whose streams the caller's task drives, on asyncio and on trio. Parallel calls run in parallel; its tools
    may be `async def`; a sync client is asked in a thread. What it is made with, `BaseAgent` says."""

    _takes_async = True

    def stream(self, said: Said | Handler = None, /, *handlers: Handler, **options: Any) -> AsyncStreamManager:
        """As `Agent.stream`."""
        turn, all_handlers = self._turn(said, handlers, options)
        stream = AsyncStreamManager(first_async_source(turn), all_handlers, **self._stream_options())
        self._bind(turn, stream)
        return stream

    async def close(self) -> None:
        """As `Agent.close`."""
        if isinstance(self._live, AsyncStreamManager):
            await self._live.close()


class _Keeper(EventHandler):
    """Puts what a stream tells into the conversation, and makes the computer ready as soon as code begins."""

    def __init__(self, agent: BaseAgent) -> None:
        self._agent = agent

    def on_message_created(self, message: Message, /) -> None:
        self._agent.messages.append(message)

    def on_code_created(self, message: CodeMessage, /) -> None:
        computer, language = self._agent.computer, (message.format or "").lower()
        if computer is not None and message.metadata.get("field") in FIELDS and runs(computer, language):
            computer.start(language)


def _rule(auto_run: Any) -> bool | Callable[[CodeMessage], bool]:
    if isinstance(auto_run, bool) or (callable(auto_run) and not inspect.iscoroutinefunction(auto_run)):
        return cast("bool | Callable[[CodeMessage], bool]", auto_run)
    raise UsageError(f"`auto_run` is True, False or a plain function of the code message, not {auto_run!r}")


def _list_in(value: object, path: object) -> list[object]:
    if not isinstance(value, list):
        raise UsageError(f"{path} holds no list of messages")
    return [*cast("list[object]", value)]


def _said(value: Any) -> list[Message]:
    if value is None:
        return []
    if isinstance(value, str):
        return [TextMessage(role="user", content=value)]
    if isinstance(value, (Message, Mapping)):
        return _messages([value])
    if not isinstance(cast("object", value), Iterable):
        raise UsageError(f"what is said is a text or flat messages, not {value!r}")
    return _messages(value)


def _messages(given: Iterable[Any]) -> list[Message]:
    return [one if isinstance(one, Message) else Message.from_dict(one) for one in given]
