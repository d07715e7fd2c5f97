"""The request of a model call, for the clients of openai and anthropic. Neither is imported: clients are told by what
they offer.

Each request tells the whole conversation, and refers to nothing that a server stored: so a conversation that was saved
goes on, with another provider too. (Reasoning goes back to OpenAI only where it is sealed: with `store=False` and
`include=["reasoning.encrypted_content"]`, which not all models take.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from ..answers import Confirmation
from ..errors import UsageError
from ..messages import Message, TextMessage
from ..protocols import to_input

__all__ = ["Provider", "outputs_first", "tool_name"]

_MAX_TOKENS = 8192  # anthropic wants to be told; what all of its models of today can write
_OURS = ("stream", "input", "messages", "tools")


class Provider:
    """Whoever is asked, through a client.

    Args:
        client: `OpenAI`, `AsyncOpenAI`, `Anthropic`, `AsyncAnthropic`, or what offers the same.
        protocol: by default `openai_responses` at api.openai.com, `openai_chat` at any other address, `anthropic` for
            its client.

    Raises:
        UsageError: the client is none of these, or cannot speak this protocol.
    """

    def __init__(self, client: Any, protocol: str | None = None) -> None:
        self.client = client
        self.protocol = protocol or _protocol_of(client)
        self.is_async = any(kind.__name__.startswith("Async") for kind in type(client).__mro__)
        if self.protocol not in _SPEAKS:
            known = ", ".join(_SPEAKS)
            raise UsageError(f"an agent cannot ask in protocol {protocol!r}; it can in: {known}")
        self._speak, self._create = _SPEAKS[self.protocol], _CREATE[self.protocol]
        try:
            self._create(client)
        except AttributeError as error:
            raise UsageError(f"{client!r} is no client that speaks {self.protocol}: {error}") from error

    def request(
        self,
        model: str,
        messages: Iterable[Message | Confirmation],
        instructions: str,
        tools: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> Callable[[], Any]:
        """What sends the request: it gives the client's stream, or (async clients) an awaitable of it.

        Raises:
            UsageError: an option is the agent's own, or a message is one that the provider cannot take.
        """
        if own := [key for key in _OURS if key in options]:
            raise UsageError(f"{own[0]!r} is what the agent sends itself; it is no option")
        instructions, rest = _leading(messages, instructions)
        arguments = self._speak(self, to_input(rest, self.protocol), instructions, tools)
        arguments = {"model": model, "stream": True, **arguments, **options}
        create = self._create(self.client)
        return lambda: create(**arguments)

    @property
    def is_openais(self) -> bool:
        """Whether it is asked at OpenAI's own address."""
        return _host(self.client) == "api.openai.com"


def _protocol_of(client: Any) -> str:
    if hasattr(client, "chat"):
        own = _host(client) == "api.openai.com" and hasattr(client, "responses")
        return "openai_responses" if own else "openai_chat"
    if hasattr(client, "messages"):
        return "anthropic"
    raise UsageError(f"{client!r} is no client of openai or anthropic; say `protocol=` for one that offers the same")


def _host(client: Any) -> str | None:
    return urlsplit(str(getattr(client, "base_url", ""))).hostname


def _leading(messages: Iterable[Message | Confirmation], instructions: str) -> tuple[str, list[Message | Confirmation]]:
    """System messages that a conversation begins with are instructions."""
    rest = list(messages)
    said = [instructions] if instructions else []
    while rest and isinstance(rest[0], TextMessage) and rest[0].role == "system":
        said.append(rest[0].content)
        del rest[0]
    return "\n\n".join(said), rest


# -- tools


def _function_of(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A function as `name`, `description` and `parameters`, in whichever provider's words; None for what is none."""
    if isinstance(function := tool.get("function"), Mapping):
        return cast("Mapping[str, Any]", function)
    if "input_schema" in tool:
        return {
            **{key: tool[key] for key in tool if key not in ("type", "input_schema")},
            "parameters": tool["input_schema"],
        }
    if "parameters" in tool and tool.get("type", "function") == "function":
        return {key: tool[key] for key in tool if key != "type"}
    return None


def tool_name(tool: Mapping[str, Any]) -> str | None:
    """The name of a tool that an application runs itself; None for what the provider runs."""
    name = (_function_of(tool) or tool).get("name")
    return name if isinstance(name, str) else None


# -- the arguments of a request, by protocol


def _responses(
    provider: Provider, said: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    def tell(tool: Mapping[str, Any]) -> Mapping[str, Any]:
        function = _function_of(tool)
        return tool if function is None else {"strict": False, **function, "type": "function"}

    out: dict[str, Any] = {"input": said}
    if instructions:
        out["instructions"] = instructions
    if tools:
        out["tools"] = [tell(tool) for tool in tools]
    return out


def _chat(provider: Provider, said: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def tell(tool: Mapping[str, Any]) -> Mapping[str, Any]:
        function = _function_of(tool)
        return tool if function is None else {"type": "function", "function": function}

    leading = [{"role": "system", "content": instructions}] if instructions else []
    out: dict[str, Any] = {"messages": [*leading, *outputs_first(said)]}
    if tools:
        out["tools"] = [tell(tool) for tool in tools]
    if provider.is_openais:  # some compatible servers refuse what they do not know
        out["stream_options"] = {"include_usage": True}
    return out


def outputs_first(said: list[Any]) -> list[Any]:
    """Outputs right after their calls, where the API wants them; what another provider printed meanwhile follows."""
    out: list[Any] = []
    place = 0  # where the next output belongs
    for message in said:
        if message["role"] == "tool":
            out.insert(place, message)
            place += 1
        else:
            out.append(message)
            place = len(out) if message["role"] == "assistant" else place
    return out


def _anthropic(
    provider: Provider, said: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    def tell(tool: Mapping[str, Any]) -> Mapping[str, Any]:
        function = _function_of(tool)
        if function is None:
            return tool
        known = {key: function[key] for key in function if key not in ("parameters", "strict")}
        return {**known, "input_schema": function.get("parameters", {"type": "object"})}

    out: dict[str, Any] = {"messages": said, "max_tokens": _MAX_TOKENS}
    if instructions:
        out["system"] = instructions
    if tools:
        out["tools"] = [tell(tool) for tool in tools]
    elif names := _called(said):  # the API takes no calls without tools
        out["tools"] = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        out["tool_choice"] = {"type": "none"}
    return out


def _called(said: list[Any]) -> list[str]:
    """The names of the tools that the conversation calls."""
    blocks: list[Any] = [block for turn in said for block in turn["content"]]
    return [*dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")]


_Speak = Callable[[Provider, list[Any], str, Sequence[Mapping[str, Any]]], dict[str, Any]]
_SPEAKS: dict[str, _Speak] = {"openai_responses": _responses, "openai_chat": _chat, "anthropic": _anthropic}
_CREATE: dict[str, Callable[[Any], Callable[..., Any | Awaitable[Any]]]] = {
    "openai_responses": lambda client: client.responses.create,
    "openai_chat": lambda client: client.chat.completions.create,
    "anthropic": lambda client: client.messages.create,
}
