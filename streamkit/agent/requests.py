"""The request of a model call, for the clients of openai and anthropic.

Neither package is imported: a client is recognised by the methods that it has. Each request sends the complete
conversation and refers to nothing stored on a server, so a saved conversation can continue with any provider.
(Reasoning goes back to OpenAI by its id, where it is stored. With the option `store=False` it goes back only in encrypted
form, with `include=["reasoning.encrypted_content"]`, which not all models accept.)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast
from urllib.parse import urlsplit

from ..answers import Confirmation
from ..errors import SourceError, UsageError, raise_source_error
from ..messages import Message, TextMessage
from ..protocols import to_input
from ..protocols.values import as_object, is_object
from .model_request import ModelRequest

if TYPE_CHECKING:
    from .output import NativeFormat

__all__ = ["Provider", "outputs_after_calls", "tool_name"]

_MAX_TOKENS = 8192  # Anthropic requires a limit; all its present models can write as much
_RESERVED = ("stream", "input", "messages", "tools")  # arguments that the agent sets itself
_OPENAI_HOST = "api.openai.com"
_SYNONYMS = {"system_prompt": "instructions", "prompt": "instructions", "functions": "tools", "history": "messages"}


class Provider:
    """A client, and the protocol in which requests are sent through it.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, or an object with the same methods.
        protocol: `openai_responses`, `openai_chat` or `anthropic`. By default `openai_responses` at api.openai.com,
            `openai_chat` at any other address, and `anthropic` for its client.

    Attributes:
        is_async: whether the client's requests are awaited.

    Raises:
        UsageError: `client` is none of these, or cannot use this protocol.
    """

    def __init__(self, client: Any, protocol: str | None = None) -> None:
        self.client = client
        self.protocol = protocol or _protocol_of(client)
        self.is_async = any(kind.__name__.startswith("Async") for kind in type(client).__mro__)
        # Whether the server of Chat Completions counts tokens if it is asked to; None as long as that is unknown. Some
        # compatible servers refuse arguments that they do not know.
        self._takes_usage = True if _host(client) == _OPENAI_HOST else None
        if self.protocol not in _APIS:
            raise UsageError(f"an agent cannot use protocol {protocol!r}; choose one of: {', '.join(_APIS)}")
        self._api = _APIS[self.protocol]
        try:
            sends = callable(self._api.create(client))
        except AttributeError:
            sends = False
        if not sends:
            raise UsageError(_not_a_client(client, f"for {self.protocol}"))

    def check_options(self, options: Mapping[str, Any], own: Iterable[str]) -> None:
        """Refuse further arguments that the client's method does not have. `extra_body` passes anything.

        Args:
            options: the arguments.
            own: the names of the agent's own arguments, one of which may be meant.

        Raises:
            UsageError: an argument is unknown, or the agent sets it itself.
        """
        create = self._api.create(self.client)
        try:
            accepted = inspect.signature(create).parameters
        except (TypeError, ValueError):
            return  # it has no signature that Python can read
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in accepted.values())
        for name in options:
            if name in _RESERVED:
                raise UsageError(f"{name!r} is set by the agent and cannot be an option")
            if not takes_any and name not in accepted:
                raise UsageError(_unknown_option(name, [*own, *accepted], create))

    def request(
        self, request: ModelRequest, metadata: Mapping[str, Any] | None = None, output: NativeFormat | None = None
    ) -> Callable[[], Any]:
        """Return a function that sends the request. It returns the client's stream, or an awaitable of it (async
        clients).

        Args:
            request: its tools may be schemas of functions in any provider's form, and tools that the provider runs itself.
            metadata: of the run that the request goes on with, as the decoder has it.
            output: what the model is to answer with. An option of the application for it comes first.

        Raises:
            UsageError: the provider does not accept a message.
        """
        instructions, rest = _leading_instructions(request.messages, request.instructions)
        input = to_input(rest, self.protocol, host=_host(self.client))
        arguments = self._api.arguments(input, instructions, request.tools)
        options = request.options
        if self.protocol == "anthropic" and (container := as_object(as_object(metadata).get("container")).get("id")):
            arguments["container"] = container  # code that waits for an output waits there
        arguments = {"model": request.model, "stream": True, **arguments, **options}
        if output is None:
            return self._sending(arguments)
        self._api.output(output).put_into(arguments)
        send = self._sending(arguments)
        return partial(_send_explained_async if self.is_async else _send_explained, send)

    def _sending(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that sends a request with these arguments."""
        create = self._api.create(self.client)
        if self.protocol != "openai_chat" or "stream_options" in arguments or self._takes_usage is False:
            return lambda: create(**arguments)
        with_usage = {**arguments, "stream_options": {"include_usage": True}}
        if self._takes_usage:
            return lambda: create(**with_usage)
        send = self._try_usage_async if self.is_async else self._try_usage
        return partial(send, create, with_usage, arguments)

    def _try_usage(self, create: Callable[..., Any], with_usage: Mapping[str, Any], plain: Mapping[str, Any]) -> Any:
        """Send the request that asks for the tokens; where the server refuses it, once more without that."""
        try:
            answer = create(**with_usage)
        except Exception as error:
            if not _is_refusal(error):
                raise
            answer = create(**plain)
            self._takes_usage = False
        else:
            self._takes_usage = True
        return answer

    async def _try_usage_async(
        self, create: Callable[..., Any], with_usage: Mapping[str, Any], plain: Mapping[str, Any]
    ) -> Any:
        """As `_try_usage`, for an async client."""
        try:
            answer = await create(**with_usage)
        except Exception as error:
            if not _is_refusal(error):
                raise
            answer = await create(**plain)
            self._takes_usage = False
        else:
            self._takes_usage = True
        return answer


def _unknown_option(name: str, accepted: Sequence[str], create: Callable[..., Any]) -> str:
    nearest = [_SYNONYMS[name]] if name in _SYNONYMS else get_close_matches(name, accepted, 1)
    method = getattr(create, "__qualname__", repr(create))
    hint = f"did you mean {nearest[0]!r}?" if nearest else "`extra_body` passes what it does not know"
    return f"{name!r}: {hint} (neither the agent nor the client's `{method}` has such an argument)"


def _protocol_of(client: Any) -> str:
    if isinstance(client, type):
        raise UsageError(f"an agent's client is an object, not a class; pass {client.__name__}(…)")
    if hasattr(getattr(client, "chat", None), "completions"):
        has_responses = _host(client) == _OPENAI_HOST and hasattr(client, "responses")
        return "openai_responses" if has_responses else "openai_chat"
    if hasattr(client, "messages"):
        return "anthropic"
    raise UsageError(_not_a_client(client, "that an agent can use"))


def _not_a_client(client: Any, what: str) -> str:
    kind = cast("type[object]", type(client))
    return (
        f"a {kind.__module__.partition('.')[0]} `{kind.__name__}` is not a client {what}: pass one of openai or anthropic, or an "
        "object with their methods (`responses.create`, `chat.completions.create` or `messages.create`). Most servers of other "
        "models speak Chat Completions: `openai.OpenAI(base_url=…)`"
    )


def _is_refusal(error: Exception) -> bool:
    """Whether the server may have refused an argument of the request."""
    return getattr(error, "status_code", None) in (400, 422)


def _send_explained(send: Callable[[], Any]) -> Any:
    """Send a request that states its output. The error of a server that refuses it names what other servers take."""
    try:
        return send()
    except Exception as error:
        _raise_explained(error)


async def _send_explained_async(send: Callable[[], Any]) -> Any:
    """As `_send_explained`, for an async client."""
    try:
        return await send()
    except Exception as error:
        _raise_explained(error)


def _raise_explained(error: Exception) -> NoReturn:
    if not _is_refusal(error):
        raise error
    try:
        raise_source_error(error)
    except SourceError as refusal:
        hint = 'if the server takes no JSON schema of the output, `output_mode="prompt"` puts it into the instructions'
        refusal.args = (f"{refusal.message}; {hint}",)
        raise


def _host(client: Any) -> str | None:
    return urlsplit(str(getattr(client, "base_url", ""))).hostname


def _leading_instructions(
    messages: Iterable[Message | Confirmation], instructions: str
) -> tuple[str, list[Message | Confirmation]]:
    """Return the instructions, followed by the system messages that the conversation begins with; and the other
    messages."""
    rest = list(messages)
    parts = [instructions] if instructions else []
    while rest and isinstance(rest[0], TextMessage) and rest[0].role == "system":
        parts.append(rest[0].content)
        del rest[0]
    return "\n\n".join(parts), rest


# -- tools


def _function_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a function's `name`, `description` and `parameters`, read from any provider's form; None for other
    tools."""
    if is_object(function := tool.get("function")):
        return function
    if "input_schema" in tool:
        return {**_without(tool, "type", "input_schema"), "parameters": tool["input_schema"]}
    if "parameters" in tool and tool.get("type", "function") == "function":
        return _without(tool, "type")
    return None


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def tool_name(tool: Mapping[str, Any]) -> str | None:
    """Return the name of a tool that the application runs; None for one that the provider runs itself."""
    name = (_function_schema(tool) or tool).get("name")
    return name if isinstance(name, str) else None


# -- the arguments of a request, by API


def _responses_arguments(input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"input": input}
    if instructions:
        arguments["instructions"] = instructions
    if tools:
        arguments["tools"] = [_responses_tool(tool) for tool in tools]
    return arguments


def _responses_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _function_schema(tool)
    return tool if function is None else {"strict": False, **function, "type": "function"}


def _chat_arguments(messages: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    system = [{"role": "system", "content": instructions}] if instructions else []
    arguments: dict[str, Any] = {"messages": [*system, *outputs_after_calls(messages)]}
    if tools:
        arguments["tools"] = [_chat_tool(tool) for tool in tools]
    return arguments


def _chat_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _function_schema(tool)
    return tool if function is None else {"type": "function", "function": function}


def outputs_after_calls(messages: list[Any]) -> list[Any]:
    """Messages of Chat Completions with each tool output right after the message of its call, as the API requires.

    What stood in between (the output of code that another provider ran) follows the tool outputs.
    """
    ordered: list[Any] = []
    output_index = 0  # where the next output goes
    for message in messages:
        if message["role"] == "tool":
            ordered.insert(output_index, message)
            output_index += 1
        else:
            ordered.append(message)
            output_index = len(ordered) if message["role"] == "assistant" else output_index
    return ordered


def _anthropic_arguments(messages: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"messages": messages, "max_tokens": _MAX_TOKENS}
    if instructions:
        arguments["system"] = instructions
    if tools:
        arguments["tools"] = [_anthropic_tool(tool) for tool in tools]
    elif names := _called_names(messages):  # the API rejects calls in the conversation where no tools are declared
        arguments["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        arguments["tool_choice"] = {"type": "none"}
    return arguments


def _anthropic_tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _function_schema(tool)
    if function is None:
        return tool
    parameters = function.get("parameters", {"type": "object"})
    return {**_without(function, "parameters", "strict"), "input_schema": parameters}


def _called_names(messages: list[Any]) -> list[str]:
    """Return the names of the tools that the conversation calls, each once."""
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    return [*dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")]


class _OutputArgument(NamedTuple):
    """The argument that states the output, and the key in it, if there is one."""

    name: str
    key: str | None
    value: dict[str, Any]

    def put_into(self, arguments: dict[str, Any]) -> None:
        """Put it into the arguments of a request, beside what they have in its place."""
        if self.key is None:
            arguments.setdefault(self.name, self.value)
        else:
            arguments[self.name] = {self.key: self.value, **as_object(arguments.get(self.name))}


def _responses_output(output: NativeFormat) -> _OutputArgument:
    return _OutputArgument("text", "format", {"type": "json_schema", **_schema_of(output)})


def _chat_output(output: NativeFormat) -> _OutputArgument:
    return _OutputArgument("response_format", None, {"type": "json_schema", "json_schema": _schema_of(output)})


def _schema_of(output: NativeFormat) -> dict[str, Any]:
    return {"name": output.name, "schema": dict(output.schema), "strict": output.strict}


def _anthropic_output(output: NativeFormat) -> _OutputArgument:
    return _OutputArgument("output_config", "format", {"type": "json_schema", "schema": dict(output.schema)})


class _Api(NamedTuple):
    """An API of a client: the method that sends a request, what turns a conversation into its arguments, and what states the
    output."""

    create: Callable[[Any], Callable[..., Any | Awaitable[Any]]]
    arguments: Callable[[list[Any], str, Sequence[Mapping[str, Any]]], dict[str, Any]]
    output: Callable[[NativeFormat], _OutputArgument]


_APIS: dict[str, _Api] = {
    "openai_responses": _Api(attrgetter("responses.create"), _responses_arguments, _responses_output),
    "openai_chat": _Api(attrgetter("chat.completions.create"), _chat_arguments, _chat_output),
    "anthropic": _Api(attrgetter("messages.create"), _anthropic_arguments, _anthropic_output),
}
