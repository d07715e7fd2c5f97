"""`Agent` and `AsyncAgent`: a model, its tools and a computer, as one stream.

    agent = sk.Agent(openai.OpenAI(), model="gpt-5-mini", tools=[get_weather], computer=Computer())
    agent.stream("Plot the temperatures of this week.", Terminal()).until_done()

A run is one answer; each of its run steps is one model call, with its tool calls and its code. Code is
emitted while the model still writes it, and runs only when it is approved (`auto_run` changes that). Each request sends
`agent.messages`, the conversation, and refers to nothing stored on a server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import UnionType
from typing import Any, TypeVar, cast, overload

from ..answers import Confirmation
from ..events import Run, RunStep, StreamRetry
from ..handlers import EventHandler, Handler
from ..messages import CodeMessage, Message, ToolCallMessage
from ..streams.aio import AsyncStreamManager
from ..streams.manager import T
from ..streams.options import StreamOptions
from ..streams.state import StreamState
from ..streams.sync import StreamManager
from .async_steps import first_async_source
from .code import FIELDS
from .computer_protocol import supports_language
from .conversation import UserInput
from .core import AgentCore
from .steps import prepare_for_agent
from .sync_steps import first_source
from .tool_context import ToolContext
from .tools import Tool
from .turn import AgentTurn

__all__ = ["Agent", "AsyncAgent"]

U = TypeVar("U")  # what the output of one stream is read as


class _BaseAgent(AgentCore[T]):
    """Starts the streams of both agents."""

    def __repr__(self) -> str:
        count = len(self.messages)
        return (
            f"<{type(self).__name__} {self.model} {self.provider.protocol}, {count} message{'' if count == 1 else 's'}>"
        )

    @property
    def pending(self) -> Mapping[str, Confirmation | ToolCallMessage]:
        """The confirmations, by their id, and the calls of the application's tools, by their call id, that wait for an answer.
        Questions of sub-agents are among them.

        While a stream runs these are its own. Afterwards, and in a conversation that was loaded, they are the questions that the
        next `stream()` asks again: its hooks get them anew, and the answers go there.
        """
        pending = super().pending
        if (self._live is not None and not self._live.ended) or not any(tool.agent for tool in self.tools.values()):
            return pending
        from .sub_agent import inner_pending

        return {**pending, **inner_pending(self)}

    def as_tool(
        self,
        name: str | None = None,
        description: str = "",
        *,
        confirm: bool | Callable[[ToolContext[Any]], bool] = False,
        timeout: float | None = None,
    ) -> Tool[[str], Any]:
        """Return this agent as a tool of another one.

            researcher = sk.Agent(client, model="gpt-5-mini", name="research", tools=[search])
            editor = sk.Agent(client, model="gpt-5", tools=[researcher.as_tool(description="Looks something up.")])

        The tool takes a text, `input`. Each call asks a copy of this agent with an empty conversation, its own handlers, tools and
        limits, and the `deps` of the outer run; its output is the copy's final text. What the copy says and does comes on the outer
        stream, between the call and its output: those messages have the call's id as `parent_id`. Its questions come there
        too. An agent may be inside others, at most 8 deep.

        Args:
            name: what the model calls it; by default the agent's `name`.
            description: what the model reads about it.
            confirm: whether each call is a `Confirmation` first, as `tool(confirm=)` has it.
            timeout: seconds that a call may take; None means no limit. The inner run is then stopped.

        Raises:
            UsageError: neither has a name, or it is not allowed.
        """
        from .sub_agent import SubAgentTool

        is_async = self._accepts_async
        return SubAgentTool(self, name, description, is_async=is_async, confirm=confirm, timeout=timeout)

    def _new_turn(
        self,
        input: UserInput | Handler,
        handlers: tuple[Handler, ...],
        deps: object,
        output_type: Any,
        options: Mapping[str, Any],
    ) -> tuple[AgentTurn, tuple[Handler, ...], StreamOptions]:
        """Return a turn, and the handlers and options of its stream. Where the input is left out, the first handler is in
        its place."""
        if isinstance(input, Handler):
            return self._new_turn(None, (input, *handlers), deps, output_type, options)
        self._check_idle()
        self.check_options({**self.options, **options})
        output = self._output_of(output_type)
        turn = AgentTurn(
            self, {**self.options, **options}, partial(self._start, self._checked_input(input)), deps, output
        )
        fields = {**(FIELDS if self.computer is not None else {}), **self.fields}
        stream_options = StreamOptions(
            fields=fields or None,
            timeouts=self.timeouts,
            reasoning_tag=self.reasoning_tag,
            output_type=None if output is None else output.kind,
            retry=1 if self.retry is None and self.fallbacks else self.retry,
        )
        return turn, (_ConversationRecorder(self, turn), *self.handlers, *handlers), stream_options

    def _connect(self, turn: AgentTurn, stream: StreamState) -> None:
        turn.stream, stream.agent_name = stream, self.name
        prepare_for_agent(stream, self.executes)

    def _start(self, messages: Sequence[Message], stream: StreamState) -> None:
        """The stream starts: from here on it is the only one that may run, and the input is in the conversation."""
        self._check_idle()
        self._go_on_with(messages)
        self._live = stream


class Agent(_BaseAgent[T]):
    """A model, its tools and a computer, as streams that the calling thread drives. `AsyncAgent` is for tasks.

        with Computer() as computer:
            agent = sk.Agent(openai.OpenAI(), model="gpt-5-mini", tools=[get_weather], computer=computer)
            agent.stream("Will it be warmer than today? Plot it.", Terminal()).until_done()
            agent.stream("And in Rome?", Terminal()).until_done()
            agent.save("conversation.json")

    Code that the model writes, and each call of a tool with `confirm=True`, is a `Confirmation` first: a handler's
    `on_confirmation` answers it with `approve()`, `approve(edited=...)`, `decline()`, `decline("why")` or `defer()`. What
    no handler answers does not run: the run ends `requires_action`, and the next stream asks again. A tool that raises
    does not end the stream: the model reads the error, and `on_warning` receives it.

    Args:
        client: `openai.OpenAI`, `anthropic.Anthropic`, or an object with the same methods.
        model: the model's name.
        name: the agent's own name, for the application.
        handlers: receive each event of every stream of this agent, before the handlers of the stream itself.
        timeouts: how long to wait for the model, in each of its calls, as `streamkit.stream(timeouts=)` has it; a number is
            `Timeouts(total=…)`. Tools and code have their own: `tool(timeout=)`, `Computer(timeout=)`.
        retry: how often a model call is repeated after a failure: a `Retry`, or the number of its attempts, as
            `streamkit.stream(retry=)` has it. The messages of a failed attempt leave `messages`, and no request has them. Tools
            never run again.
        fallbacks: clients and their models, as `(client, model)`, tried in this order where a model call has failed
            for good. They may speak other protocols. A run that goes on with one stays with it to its end; `options` go to
            each of them, and `before_request` may change them.
        tools: functions, which the agent calls itself, and tools of LangChain and smolagents; and schemas (dicts), for tools
            that the provider runs, or that the application answers with `call.respond(...)`.
        computer: runs the model's code, such as a `streamkit.computer.Computer`. Without one the model is offered no tool
            that runs code.
        instructions: the system prompt.
        auto_run: which code runs without a confirmation: none (False, the default), all (True), or that for which this
            function of the `CodeMessage` returns True. It returns a bool.
        max_steps: how many model calls one run may have, 20 by default. If the model asks for more, the run ends
            `incomplete` with the `finish_reason` "max_steps".
        max_total_tokens: how many tokens one run may have used when a model call after the first begins; beyond it the run
            ends `incomplete` with the `finish_reason` "max_total_tokens". A call that has begun is not bounded. None, the
            default, means no limit.
        protocol: `openai_responses`, `openai_chat` or `anthropic`. By default `openai_responses` for openai's client at
            api.openai.com, `openai_chat` at any other address, and `anthropic` for its client.
        fields: further string arguments of tools that become messages of their own, as in `streamkit.stream`:
            `{"send_message.message": "text"}`.
        reasoning_tag: the tag in which the model writes its reasoning into the text, as in `streamkit.stream`.
        output_limit: characters that the model reads of one run's console output or of one tool's, 10,000 by default; the
            middle of a longer output is left out. `messages` keep all of it.
        images: whether the model takes images, the user's and those that code displays; True by default. Otherwise it
            reads that there were some, and the text that came with them.
        messages: the conversation so far, as `Message`s or their dicts.
        before_request: sees each `ModelRequest` before it is sent, and may change it, or return another one: to shorten a long
            conversation, to choose the model by the step, to add a header. What it raises ends the stream, as a hook's error
            does.
        output_type: what the model answers with: JSON that `get_final_output()` of the streams returns as this type. It may be any
            that JSON can be read as; the request is for an object.
        output_mode: how the request has the type: `native`, the default, as a parameter; `prompt` in the instructions, for servers
            without such a parameter.
        output_retries: how often one run repeats the request if the answer is not such JSON, 1 by default. `on_warning` gets
            `output-invalid`.
        options: further arguments of every request, such as `temperature=0`.

    Attributes:
        messages: the conversation, a list of flat messages. It grows while a stream runs; the application may change it
            between two streams.
        model, name, computer, instructions, auto_run, fields, options: as the constructor received them. They may be set
            between two streams.
        max_steps, max_total_tokens, output_limit, timeouts, retry, images, handlers, before_request, reasoning_tag: the same.
        output_type, output_mode, output_retries: the same.
        tools: the functions that the agent calls, a dict of `Tool`s by name. Do not change it.

    Raises:
        UsageError: the client is not recognised, or is asynchronous; a tool cannot be described to a model; two tools have the same
            name; a message is malformed; another argument is of another kind.
    """

    @overload
    def stream(
        self,
        input: UserInput | Handler = None,
        /,
        *handlers: Handler,
        deps: object = None,
        output_type: type[U] | UnionType,
        **options: Any,
    ) -> StreamManager[U]: ...
    @overload
    def stream(
        self, input: UserInput | Handler = None, /, *handlers: Handler, deps: object = None, **options: Any
    ) -> StreamManager[T]: ...
    def stream(
        self,
        input: UserInput | Handler = None,
        /,
        *handlers: Handler,
        deps: object = None,
        output_type: Any = None,
        **options: Any,
    ) -> StreamManager[Any]:
        """Return one stream over all model calls, tool calls and runs of code that the answer takes.

        The first request is sent when the stream is entered or first read. Tools run one after the other in a thread.

            agent.stream("What is 34/24?", Terminal()).until_done()
            agent.stream(Terminal(), temperature=0).until_done()  # continues without a new input

        Args:
            input: the user's text, or flat messages; added to `messages` when the stream starts. An image that is a
                path is read. May be left out: the conversation then continues as it stands, and open questions come
                again. The input of a stream that failed in its first answer gives way to the next one.
            handlers: receive each event, in this order.
            deps: the application's own object for this run, which tools get as `ToolContext.deps`.
            output_type: as the agent's own, for this stream.
            options: further arguments of the requests of this stream, besides those of the agent.

        Returns:
            A stream like those of `streamkit.stream`: iterate over it, or call `until_done()` or `get_final_text()`.

        Raises:
            UsageError: a stream of this agent is still running; a handler has `async def` hooks; a message is malformed,
                or the provider does not take it; an image cannot be read; the client has no such option.
        """
        turn, all_handlers, stream_options = self._new_turn(input, handlers, deps, output_type, options)
        stream: StreamManager[Any] = StreamManager(first_source(turn.course), all_handlers, stream_options)
        self._connect(turn, stream)
        return stream

    def close(self) -> None:
        """Close the stream that is running, if there is one. It returns when code and tools have stopped."""
        if self._live is not None:
            cast("StreamManager", self._live).close()


class AsyncAgent(_BaseAgent[T]):
    """A model, its tools and a computer, as streams that the calling task drives, on asyncio or trio.

        agent = sk.AsyncAgent(openai.AsyncOpenAI(), model="gpt-5-mini", tools=[get_weather])
        await agent.stream("Will it be warmer than today?", Terminal()).until_done()

    It is `Agent` for tasks. Tools may be `async def` as well, and the calls of one answer run side by side: `async def`
    tools in tasks, others in worker threads. A sync client, and the computer, are called in worker threads. Leaving the
    stream cancels the tasks and waits for the threads.

    Args, attributes and errors are those of `Agent`, but for these:

    Args:
        client: `openai.AsyncOpenAI`, `anthropic.AsyncAnthropic`, their sync forms, or an object with the same methods.
        tools: as of `Agent`, `async def` functions, and initialized MCP `ClientSession`s, which list their tools when a stream starts.
        before_request: as of `Agent`; it may be `async def`.
    """

    _accepts_async = True

    @overload
    def stream(
        self,
        input: UserInput | Handler = None,
        /,
        *handlers: Handler,
        deps: object = None,
        output_type: type[U] | UnionType,
        **options: Any,
    ) -> AsyncStreamManager[U]: ...
    @overload
    def stream(
        self, input: UserInput | Handler = None, /, *handlers: Handler, deps: object = None, **options: Any
    ) -> AsyncStreamManager[T]: ...
    def stream(
        self,
        input: UserInput | Handler = None,
        /,
        *handlers: Handler,
        deps: object = None,
        output_type: Any = None,
        **options: Any,
    ) -> AsyncStreamManager[Any]:
        """Return one stream over all model calls, tool calls and runs of code that the answer takes.

        The first request is sent when the stream is entered or first read.

            await agent.stream("What is 34/24?", Terminal()).until_done()

        Arguments and errors are those of `Agent.stream`; handlers may be sync or async.

        Returns:
            A stream like those of `streamkit.astream`: iterate over it, or await `until_done()` or `get_final_text()`.
        """
        turn, all_handlers, stream_options = self._new_turn(input, handlers, deps, output_type, options)
        stream: AsyncStreamManager[Any] = AsyncStreamManager(
            first_async_source(turn.course), all_handlers, stream_options
        )
        self._connect(turn, stream)
        return stream

    async def close(self) -> None:
        """Close the stream that is running, if there is one. It returns when code and tools have stopped."""
        if self._live is not None:
            await cast("AsyncStreamManager", self._live).close()


class _ConversationRecorder(EventHandler):
    """Adds a stream's messages to the conversation, and prepares the computer as soon as the model begins to write code.

    It is an agent's first handler, so that `messages` are up to date when the other handlers are called. At the end it has
    the turn record what became of the actions that were stopped.
    """

    def __init__(self, agent: AgentCore, turn: AgentTurn) -> None:
        self._agent = agent
        self._turn = turn

    def on_message_created(self, message: Message, /) -> None:
        if message.role != "assistant" or not self._turn.presents_again:
            self._agent.messages.append(message)

    def on_run_requires_action(self, run: Run, /) -> None:
        self._turn.mark_calls()

    def on_run_step_done(self, run_step: RunStep, /) -> None:
        self._turn.withdraw_failed_answer()

    def on_retry(self, retry: StreamRetry, /) -> None:
        self._turn.withdraw(retry.withdrawn)

    def on_end(self) -> None:
        self._turn.finish()

    def on_code_created(self, message: CodeMessage, /) -> None:
        computer, language = self._agent.computer, (message.format or "").lower()
        is_ours = (
            message.parent_id is None and message.metadata.get("field") in FIELDS
        )  # not code that the provider runs
        if computer is not None and is_ours and supports_language(computer, language):
            computer.start(language)
