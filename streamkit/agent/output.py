"""The typed output of an agent: JSON that the request asks the model for, and that a second request asks for if need be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import OutputError
from ..events import Event, StreamWarning
from ..messages import OUTPUT_RETRY, Message, TextMessage
from ..streams.output_type import OutputType
from ..streams.state import StreamState
from .steps import is_cut_short

__all__ = ["AgentOutput", "NativeFormat"]

_LONGEST_FAULT = 2000  # characters of what was wrong that the model reads


class AgentOutput:
    """The output that the requests of one run ask for.

    Args:
        kind: its type.
        mode: where the request has its type: `native` or `prompt`.
        retries: how many more requests this run may send for it.
    """

    def __init__(self, kind: OutputType, mode: str, retries: int) -> None:
        self.kind = kind
        self._mode = mode
        self._retries = retries

    @property
    def native_format(self) -> NativeFormat | None:
        """The output's type as a parameter of the request; None where the instructions have it."""
        if self._mode == "prompt":
            return None
        schema, strict = self.kind.for_provider()
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.kind.name)[:64] or "output"
        return NativeFormat(name, schema, strict)

    def instructions(self, instructions: str) -> str:
        """Return the instructions of a request, with what they state of the output."""
        if self._mode == "native":
            return instructions
        schema = json.dumps(self.kind.schema, ensure_ascii=False)
        asks = f"Answer with JSON alone, and nothing before or after it. It fits this JSON schema:\n{schema}"
        return f"{instructions}\n\n{asks}" if instructions else asks

    def ask_again(self, stream: StreamState, conversation: list[Message]) -> Event | None:
        """Ask the model once more, if the answer that has ended has no output and the run may still ask: by a message in the
        conversation. Return the warning of it; None where the answer stands."""
        if not self._retries:
            return None
        try:
            stream.output.final("incomplete" if is_cut_short(stream) else "completed")
        except OutputError as error:
            if error.reason not in ("invalid", "missing"):
                return None
            fault = str(error)[:_LONGEST_FAULT]
        else:
            return None
        self._retries -= 1
        text = f"This answer cannot be used: {fault}. Answer again, with JSON alone that fits the schema."
        conversation.append(TextMessage(role="user", content=text, metadata={OUTPUT_RETRY: True}))
        return StreamWarning("output-invalid", f"{fault}; the model is asked again", kind="message")


class NativeFormat(NamedTuple):
    """The output as a request states it.

    Attributes:
        name: a name for the schema.
        schema: the JSON schema.
        strict: whether the provider can hold the model to it exactly.
    """

    name: str
    schema: Mapping[str, Any]
    strict: bool
