"""The context of a call, which a tool may take as a parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from ..messages import ToolCallMessage
from ..streams.state import StreamState

__all__ = ["ToolContext"]


D = TypeVar("D", default=Any)


@dataclass(frozen=True)
class ToolContext(Generic[D]):
    """The call that a tool serves. A parameter with this annotation receives it; the model sees nothing of that parameter.

        def remember(text: str, context: ToolContext) -> str:
            notes[context.call_id] = text
            return "noted"

    `ToolContext[Database]` is one whose `deps` are a `Database`.

    Attributes:
        call: the model's call.
        stream: the agent's stream, whose `messages` are those of the run so far. `stream.cancel()` stops it.
        deps: the application's own object, which `agent.stream(deps=…)` received; None without one. It is in no request, no
            recording and no message.
        arguments: the call's arguments as Python values, checked against the function's annotations.
    """

    call: ToolCallMessage
    stream: StreamState
    deps: D = field(default=cast("Any", None), repr=False)  # an application that passes none has none
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def call_id(self) -> str:
        """The id that ties the call to its output: the provider's, else the message's."""
        return self.call.call_id or self.call.id
