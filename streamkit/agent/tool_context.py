"""What a tool can learn about its call."""

from __future__ import annotations

from dataclasses import dataclass

from ..messages import ToolCallMessage
from ..streams.state import StreamState

__all__ = ["ToolContext"]


@dataclass(frozen=True)
class ToolContext:
    """The call that a tool serves. A parameter with this annotation receives it; the model sees nothing of that parameter.

        def remember(text: str, context: ToolContext) -> str:
            notes[context.call_id] = text
            return "noted"

    Attributes:
        call: the model's call.
        stream: the agent's stream, whose `messages` are those of the run so far. `stream.cancel()` stops it.
    """

    call: ToolCallMessage
    stream: StreamState

    @property
    def call_id(self) -> str:
        """The id that ties the call to its output: the provider's, else the message's."""
        return self.call.call_id or self.call.id
