"""The base of both agents: the settings, the tools and the conversation. It does not depend on turns."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from types import UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias

from ..answers import Confirmation
from ..arguments import check_count
from ..errors import UsageError
from ..handlers import Handler
from ..limits import Timeouts
from ..messages import CodeMessage, Message, ToolCallMessage, is_from_user
from ..protocols import to_input
from ..streams.manager import T
from ..streams.state import StreamState
from .actions import WAITING, complete_records, is_question, open_calls, pending_of
from .arguments import (
    check_limits,
    check_texts,
    checked_fallbacks,
    checked_handlers,
    checked_retry,
    checked_tag,
    checks_names,
)
from .code import CODE_TOOL, check_auto_run, code_schema
from .computer_protocol import Computing, check_computer
from .conversation import as_messages, input_messages, load_messages, save_messages, with_image_data
from .history import model_view
from .model_request import BeforeRequest, ModelRequest, checked_before_request
from .requests import Provider
from .toolbox import AnyTool, Toolbox
from .tools import Tool

if TYPE_CHECKING:
    from ..retry import Retry
    from ..streams.output_type import OutputType
    from .output import AgentOutput

__all__ = ["AgentCore"]

OutputMode: TypeAlias = Literal["native", "prompt"]
"""Where a request has the type of its output: in a parameter, or in the instructions."""


class AgentCore(Generic[T]):
    """The settings, tools and conversation of an agent.

    `Agent` and `AsyncAgent` add `stream` and `close`; their docstrings describe the arguments.

    Attributes:
        provider: the client, and the protocol in which requests are sent.
        toolbox: the tools that it offers to the model.
        depth: how many agents it is inside, as their tool.
    """

    depth = 0
    _accepts_async = False  # whether clients and tools may be asynchronous
    _other_provider: Provider | None = None  # of the newest request that another client has sent
    _live: StreamState | None = None  # the newest stream that has started
    _newest_input: Sequence[Message] = ()  # what it added to the conversation

    @checks_names
    def __init__(
        self,
        client: Any,
        *,
        model: str,
        name: str = "",
        handlers: Sequence[Handler] = (),
        timeouts: Timeouts | float | None = None,
        retry: Retry | int | None = None,
        fallbacks: Sequence[tuple[Any, str]] = (),
        tools: Iterable[AnyTool] = (),
        computer: Computing | None = None,
        instructions: str = "",
        auto_run: bool | Callable[[CodeMessage], bool] = False,
        max_steps: int = 20,
        max_total_tokens: int | None = None,
        protocol: str | None = None,
        fields: Mapping[str, str] | None = None,
        reasoning_tag: str | None = None,
        output_limit: int = 10_000,
        images: bool = True,
        messages: Iterable[Message | Mapping[str, Any]] = (),
        before_request: BeforeRequest | None = None,
        output_type: type[T] | UnionType | None = None,
        output_mode: OutputMode = "native",
        output_retries: int = 1,
        **options: Any,
    ) -> None:
        check_limits(max_steps, max_total_tokens, output_limit)
        check_texts(instructions=instructions, name=name)
        check_computer(computer)
        self.provider = self._provider_of(client, protocol)
        self.model, self.name = model, name
        self.handlers = checked_handlers(handlers)
        self.timeouts = timeouts if timeouts is None or isinstance(timeouts, Timeouts) else Timeouts(total=timeouts)
        self.retry = checked_retry(retry)
        self.fallbacks = checked_fallbacks(fallbacks)
        self._fallback_providers = [self._provider_of(client, None) for client, _ in self.fallbacks]
        self.computer, self.instructions = computer, instructions
        self.auto_run = check_auto_run(auto_run)
        self.max_steps, self.max_total_tokens = max_steps, max_total_tokens
        self.output_limit, self.images = output_limit, images
        self.before_request = checked_before_request(before_request, accepts_async=self._accepts_async)
        self.check_options(options)
        self.options: dict[str, Any] = options
        self.toolbox = Toolbox(tools, accepts_async=self._accepts_async, runs_code=computer is not None)
        self.fields: dict[str, str] = {**(fields or {})}
        self.reasoning_tag = checked_tag(reasoning_tag)
        self.messages: list[Message] = as_messages(messages)
        self._take_output(output_type, output_mode, output_retries)

    def _take_output(self, kind: Any, mode: OutputMode, retries: int) -> None:
        """Ask the model for this output. Raises `UsageError` as `_output_of`."""
        self.output_type: Any = kind
        self.output_mode, self.output_retries = mode, retries
        self._checked_output: tuple[Any, OutputType] | None = None  # the newest `output_type`, and what was made of it
        self._output_of(None)

    def _provider_of(self, client: Any, protocol: str | None) -> Provider:
        """Return the provider behind a client. Raises `UsageError` for an asynchronous one where the agent is not."""
        provider = Provider(client, protocol)
        if provider.is_async and not self._accepts_async:
            raise UsageError(f"{type(client).__name__} is asynchronous: use `AsyncAgent`")
        return provider

    def provider_of(self, request: ModelRequest) -> Provider:
        """Return the provider that sends a request: the agent's or a fallback's, unless `before_request` has put in another
        client.

        Raises:
            UsageError: the client is not recognised, or is asynchronous where the agent is not; or it has no such option.
        """
        providers = (self.provider, *self._fallback_providers, self._other_provider)
        provider = next((one for one in providers if one is not None and one.client is request.client), None)
        if provider is None:
            provider = self._other_provider = self._provider_of(request.client, None)
        if self.before_request is not None:
            provider.check_options(request.options, _ARGUMENTS)
        return provider

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse further arguments of requests that the client's method does not have. Those of fallbacks are checked when a
        request is sent, where `before_request` may have changed them for its client.

        Raises:
            UsageError: it names the argument, and the one that may be meant.
        """
        for provider in (self.provider, *(() if self.before_request is not None else self._fallback_providers)):
            provider.check_options(options, _ARGUMENTS)

    def _output_of(self, kind: Any) -> AgentOutput | None:
        """Return the output that a run's requests ask for: of this type, else of the agent's own; None for a text.

        Raises:
            UsageError: no JSON can be read as the type; the mode or the number of retries is none.
        """
        kind = self.output_type if kind is None else kind
        check_count("output_retries", self.output_retries, least=0)
        if self.output_mode not in ("native", "prompt"):
            raise UsageError(f"`output_mode` is 'native' or 'prompt', not {self.output_mode!r}")
        if kind is None:
            return None
        from ..streams.output_type import OutputType  # few agents have an output
        from .output import AgentOutput

        if self._checked_output is None or self._checked_output[0] is not kind:
            self._checked_output = kind, OutputType(kind, wraps=True)
        return AgentOutput(self._checked_output[1], self.output_mode, self.output_retries)

    @property
    def tool_schemas(self) -> list[Mapping[str, Any]]:
        """The tools that each request offers to the model, the one that runs code first."""
        code = [] if self.computer is None else [code_schema(self.computer.languages)]
        return [*code, *self.toolbox.schemas]

    @property
    def tools(self) -> Mapping[str, Tool[..., Any]]:
        """The functions that the agent calls, by name; of MCP sessions those that were listed last."""
        return self.toolbox.functions

    @property
    def pending(self) -> Mapping[str, Confirmation | ToolCallMessage]:
        """The confirmations and calls that wait for an answer, without those of sub-agents."""
        if self._live is not None and not self._live.ended:
            return self._live.pending
        return pending_of(self.messages, self.open_calls())

    def copy_inside(self, depth: int) -> Self:
        """Return a copy with an empty conversation, which is inside this many agents."""
        other = copy(self)
        other.messages, other.depth = [], depth
        other._live, other._newest_input = None, ()
        return other

    def executes(self, call: ToolCallMessage) -> bool:
        """Whether the agent answers a call itself, not the application. It answers calls of unknown tools as well."""
        if call.name in self.tools or (call.name == CODE_TOOL and self.computer is not None):
            return True
        is_providers = "item_type" in call.metadata or "custom" in call.metadata  # a kind of tool that we do not offer
        return call.name not in self.toolbox.application_tools and not is_providers

    def open_calls(self) -> list[ToolCallMessage]:
        """Return the calls of the newest answer that can still be answered: those of the application, and those that
        are recorded as waiting."""
        self.messages[:] = as_messages(self.messages)  # the application may have added dicts
        return [
            call
            for call in open_calls(self.messages)
            if call.metadata.get("action") == WAITING or not (self.executes(call) or is_question(call))
        ]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the conversation to a file, as a JSON list. An existing file is replaced at once.

        Raises:
            OSError: the file cannot be written.
        """
        self.messages[:] = as_messages(self.messages)  # the application may have added dicts
        save_messages(self.messages, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the conversation by one that `save` wrote.

        Raises:
            UsageError: the file does not contain a list of messages, or a stream is still running.
            OSError: the file cannot be read.
        """
        self._check_idle()
        self.messages = load_messages(path)

    def undo(self) -> list[Message]:
        """Take the newest turn out of the conversation: the input, and everything that followed it.

            try:
                agent.stream(text, Terminal()).until_done()
            except sk.StreamkitError as error:
                print(error)
                agent.undo()

        What tools and code did is not undone.

        Returns:
            The messages that were taken out, the input first; [] if the conversation has no message of the user.

        Raises:
            UsageError: a stream is still running.
        """
        self._check_idle()
        messages = self.messages = as_messages(self.messages)
        first = self._newest_input[0] if self._newest_input else None
        index = next((index for index, message in enumerate(messages) if message is first), None)
        if index is None:
            index = _start_of_newest_turn(messages)
        undone = messages[index:]
        del messages[index:]
        self._newest_input = ()
        return undone

    def _go_on_with(self, input: Sequence[Message]) -> None:
        """Put a turn's input into the conversation. It is checked first: an error leaves the conversation as it was."""
        goes_on = any(message.role != "computer" for message in input)
        earlier = as_messages(self.messages)  # the application may have added dicts
        if self.images:
            earlier = [*map(with_image_data, earlier)]
        if goes_on and self._ends_with_failed_input(earlier):
            del earlier[len(earlier) - len(self._newest_input) :]
        self.messages[:] = complete_records(earlier, at_end=goes_on, limit=self.output_limit)
        self.messages += input
        self._newest_input = input or self._newest_input

    def _ends_with_failed_input(self, messages: Sequence[Message]) -> bool:
        """Whether these end with the input of a stream that failed in its first answer. It is not joined to the next
        input, which is it once more or takes its place."""
        newest, failed = self._newest_input, self._live is not None and self._live.error is not None
        if not failed or not newest or len(newest) > len(messages):
            return False
        ends = messages[len(messages) - len(newest) :]
        return len(ends) == len(newest) and all(one is other for one, other in zip(ends, newest, strict=True))

    def _checked_input(self, input: Any) -> list[Message]:
        """Return the messages of a `UserInput`, which the provider takes.

        Raises:
            UsageError: it is neither a text nor flat messages, an image cannot be read, or the provider cannot take it.
        """
        messages = input_messages(input)
        if self.images:
            messages = [*map(with_image_data, messages)]
        to_input(model_view(messages, limit=self.output_limit, images=self.images), self.provider.protocol)
        return messages

    def _check_idle(self) -> None:
        if self._live is not None and not self._live.ended:
            raise UsageError("a stream of this agent is still running: run it to its end, or `close` the agent")

    def add_tool(self, tool: AnyTool) -> None:
        """Offer one more tool to the model, from the next request on.

        Args:
            tool: as `Agent(tools=)` takes it.

        Raises:
            UsageError: it cannot be described to a model, or another tool has its name.
        """
        self.toolbox.add(tool)


_ARGUMENTS = tuple(
    name
    for name, parameter in inspect.signature(AgentCore).parameters.items()
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD
)


def _start_of_newest_turn(messages: Sequence[Message]) -> int:
    """Return the index of the newest input: the user's last messages, with the system's among them."""
    index = len(messages)
    while index and not is_from_user(messages[index - 1]):
        index -= 1
    if not index:
        return len(messages)
    while index and messages[index - 1].role in ("user", "system"):
        index -= 1
    return index
