"""The base of the APIs: how an agent sends a request through one kind of client.

A client is recognised by the method that sends the request, so that no SDK is imported. What a request is made of beside that,
each API states in a module of its own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["Api", "host_of", "is_refusal", "put_default"]


class Api:
    """One API, as an agent calls it through one client.

    Attributes:
        protocol: the protocol of its requests and answers.
        package: the package that has such clients.
        method: where the client has the method that sends a request, such as `chat.completions.create`. Of several APIs that a
            client has, the first in `APIS` is used.
        reserved: the arguments of that method that the agent sets itself.
        fixed: arguments that each request has.
        hint: the advice about an option that the method does not have, "" for none.
        is_async: whether the client's requests are awaited, or its stream is read by a task.
    """

    protocol: ClassVar[str]
    package: ClassVar[str]
    method: ClassVar[str]
    reserved: ClassVar[Sequence[str]] = ("stream", "messages", "tools")
    fixed: ClassVar[Mapping[str, Any]] = {"stream": True}
    hint: ClassVar[str] = "`extra_body` passes what the client's method does not have"

    def __init__(self, client: Any) -> None:
        self.client = client
        self.is_async = any(kind.__name__.startswith(("Async", "Aio")) for kind in type(client).__mro__)

    @classmethod
    def recognises(cls, client: Any) -> bool:
        """Whether this is a client of the API, and of no other that is in `APIS` after it."""
        return cls.is_offered(client)

    @classmethod
    def is_offered(cls, client: Any) -> bool:
        """Whether the client has the method."""
        try:
            return callable(attrgetter(cls.method)(client))
        except AttributeError:
            return False

    @property
    def create(self) -> Callable[..., Any]:
        """The method that sends a request. It returns a stream, or an awaitable of one."""
        method: Callable[..., Any] = attrgetter(self.method)(self.client)
        return method

    @property
    def options(self) -> Sequence[str] | None:
        """The names of the options that an application may set; None if any name may be one."""
        try:
            parameters = inspect.signature(self.create).parameters
        except (TypeError, ValueError):
            return None  # it has no signature that Python can read
        takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
        return None if takes_any else [*parameters]

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request.

        Args:
            input: the conversation, as `to_input` makes it for the protocol.
            instructions: the system prompt, "" for none.
            tools: the schemas of functions in any provider's form, and tools that the provider runs itself.
        """
        raise NotImplementedError(f"{type(self).__name__}.arguments")

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """Put the output's type into the arguments, beside what an application's options have in its place."""
        raise NotImplementedError(f"{type(self).__name__}.put_output")

    def put_continued(self, arguments: dict[str, Any], metadata: Mapping[str, Any]) -> None:
        """Put the parts of the answer before that the API wants back into the arguments. `metadata` is that of the run."""

    def tool_choice(self, *, required: bool, name: str | None, parallel: bool | None) -> dict[str, Any]:
        """Return the options that say how the model may call tools.

        Args:
            required: whether it has to call one.
            name: the function that it has to call, None for any.
            parallel: whether it may call several at once; None leaves that to the provider.
        """
        choice: dict[str, Any] = {"tool_choice": self.named_choice(name) if name else "required"} if required else {}
        return choice | ({} if parallel is None else {"parallel_tool_calls": parallel})

    def named_choice(self, name: str) -> dict[str, Any]:
        """Return the `tool_choice` of a function."""
        return {"type": "function", "name": name}

    def put_options(self, arguments: dict[str, Any], options: Mapping[str, Any]) -> None:
        """Put an application's options into the arguments. They come first."""
        arguments.update(options)

    def sending(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that sends a request with these arguments."""
        create = self.create
        return lambda: create(**arguments)


def host_of(client: Any) -> str | None:
    """Return the address of a client's server, such as `api.openai.com`."""
    return urlsplit(str(getattr(client, "base_url", ""))).hostname


def put_default(arguments: dict[str, Any], name: str, values: Mapping[str, Any]) -> None:
    """Put values into an argument that is a mapping. Its present values come first."""
    arguments[name] = {**values, **(arguments.get(name) or {})}


def is_refusal(error: Exception) -> bool:
    """Whether a server may have refused an argument of the request."""
    return getattr(error, "status_code", None) in (400, 422)
