"""Requests of Ollama's own API, through the client of the package `ollama`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .api import Api
from .chat import chat_arguments

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["Ollama"]


class Ollama(Api):
    """`client.chat`."""

    protocol = "ollama"
    package = "ollama"
    method = "chat"
    hint = "what the model takes goes into `options={…}`, such as `temperature`"

    @classmethod
    def recognises(cls, client: Any) -> bool:
        """Whether the client can generate and list models, too: many objects have a method `chat`."""
        return cls.is_offered(client) and all(callable(getattr(client, name, None)) for name in ("generate", "pull"))

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        return chat_arguments(input, instructions, tools)

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output as the format."""
        arguments.setdefault("format", dict(output.schema))
