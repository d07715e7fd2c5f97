"""The request of a model call, for the client of any API that an agent can use.

No client's package is imported: a client is recognised by the methods that it has. Each request sends the complete
conversation and refers to nothing stored on a server, so a saved conversation can continue with any provider.
(Reasoning goes back to OpenAI by its id, where it is stored. With the option `store=False` it goes back only in encrypted
form, with `include=["reasoning.encrypted_content"]`, which not all models accept.)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ..answers import Confirmation
from ..errors import SourceError, UsageError, raise_source_error
from ..messages import Message, TextMessage
from ..protocols import to_input
from .apis import APIS, Api, host_of, is_refusal
from .model_request import ModelRequest

if TYPE_CHECKING:
    from .output import NativeFormat

__all__ = ["Provider"]

_SYNONYMS = {"system_prompt": "instructions", "prompt": "instructions", "functions": "tools", "history": "messages"}


class Provider:
    """A client, and the protocol in which requests are sent through it.

    Args:
        client: a client of an API in `APIS`, or an object with the same methods.
        protocol: the protocol of one of these APIs. By default the first one that recognises the client.

    Attributes:
        is_async: whether the client's requests are awaited.

    Raises:
        UsageError: `client` is none of these, or cannot use this protocol.
    """

    def __init__(self, client: Any, protocol: str | None = None) -> None:
        self.client = client
        self.protocol = protocol or _protocol_of(client)
        if self.protocol not in APIS:
            raise UsageError(f"an agent cannot use protocol {protocol!r}; choose one of: {', '.join(APIS)}")
        if not APIS[self.protocol].is_offered(client):
            raise UsageError(_not_a_client(client, f"for {self.protocol}"))
        self._api = APIS[self.protocol](client)
        self.is_async = self._api.is_async

    def check_options(self, options: Mapping[str, Any], own: Sequence[str]) -> None:
        """Refuse further arguments that the client's method does not have. `extra_body` passes anything.

        Args:
            options: the arguments.
            own: the names of the agent's own arguments, one of which may be meant.

        Raises:
            UsageError: an argument is unknown, or the agent sets it itself.
        """
        accepted = self._api.options
        for name in options:
            if name in self._api.reserved:
                raise UsageError(f"{name!r} is set by the agent and cannot be an option")
            if name in own:
                raise UsageError(f"{name!r} is an argument of the agent, for all of its streams: pass it to `Agent(…)`")
            if name in _OF_STREAMS:
                raise UsageError(f"{name!r} is for one run: pass it to `agent.stream(…)`")
            if accepted is not None and name not in accepted:
                raise UsageError(_unknown_option(name, [*own, *accepted], self._api))

    def tool_choice(self, *, required: bool, name: str | None, parallel: bool | None) -> Mapping[str, Any]:
        """Return the options that say how the model may call tools, as `Api.tool_choice` has them."""
        return self._api.tool_choice(required=required, name=name, parallel=parallel)

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
        api = self._api
        instructions, rest = _leading_instructions(request.messages, request.instructions)
        input = to_input(rest, self.protocol, host=host_of(self.client))
        arguments = {"model": request.model, **api.fixed, **api.arguments(input, instructions, request.tools)}
        api.put_continued(arguments, metadata or {})
        api.put_options(arguments, request.options)
        if output is None:
            return api.sending(arguments)
        api.put_output(arguments, output)
        return partial(_send_explained_async if self.is_async else _send_explained, api.sending(arguments))


_OF_STREAMS = ("deps",)  # what `agent.stream` alone takes


def _unknown_option(name: str, accepted: Sequence[str], api: Api) -> str:
    nearest = [_SYNONYMS[name]] if name in _SYNONYMS else get_close_matches(name, [*accepted, *_OF_STREAMS], 1)
    method = getattr(api.create, "__qualname__", api.method)
    hint = f"did you mean {nearest[0]!r}?" if nearest else api.hint
    return f"{name!r}: {hint} (neither the agent nor the client's `{method}` has such an argument)"


def _protocol_of(client: Any) -> str:
    if isinstance(client, type):
        raise UsageError(f"an agent's client is an object, not a class; pass {client.__name__}(…)")
    for protocol, api in APIS.items():
        if api.recognises(client):
            return protocol
    raise UsageError(_not_a_client(client, "that an agent can use"))


def _not_a_client(client: Any, what: str) -> str:
    kind = cast("type[object]", type(client))
    packages = _listed(dict.fromkeys(api.package for api in APIS.values()))
    methods = _listed(f"`{api.method}`" for api in APIS.values())
    return (
        f"a {kind.__module__.partition('.')[0]} `{kind.__name__}` is not a client {what}: pass one of {packages}, or an "
        f"object with their methods ({methods}). Most servers of other models speak Chat Completions: `openai.OpenAI(base_url=…)`"
    )


def _listed(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}"


def _send_explained(send: Callable[[], Any]) -> Any:
    """Send a request that states its output. The error of a server that refuses it names what other servers take."""
    try:
        return send()
    except Exception as error:
        _raise_explained(error)


async def _send_explained_async(send: Callable[[], Any]) -> Any:
    """As `_send_explained`, for an async client, whose stream is awaited or not."""
    try:
        answer = send()
        return await answer if inspect.isawaitable(answer) else answer
    except Exception as error:
        _raise_explained(error)


def _raise_explained(error: Exception) -> NoReturn:
    if not is_refusal(error):
        raise error
    try:
        raise_source_error(error)
    except SourceError as refusal:
        hint = 'if the server takes no JSON schema of the output, `output_mode="prompt"` puts it into the instructions'
        refusal.args = (f"{refusal.message}; {hint}",)
        raise


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
