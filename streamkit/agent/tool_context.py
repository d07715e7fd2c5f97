"""A tool's access to its run: the context of its call, which it may take as a parameter, and `progress`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from ..messages import ToolCallMessage
from ..streams.state import StreamState

__all__ = ["ToolContext", "current_progress", "progress"]


D = TypeVar("D", default=Any)


@dataclass(frozen=True)
class ToolContext(Generic[D]):
    """The call that a tool serves. A parameter with this annotation receives it; the model sees nothing of that parameter.

        def remember(text: str, context: ToolContext) -> str:
            notes[context.call_id] = text
            return "noted"

    `ToolContext[Database]` has a `Database` as `deps`.

    Attributes:
        call: the model's call.
        stream: the agent's stream; its `messages` are those of the run so far. `stream.cancel()` stops it.
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


current_progress: ContextVar[Callable[[str], None] | None] = ContextVar("current_progress", default=None)
"""Where `progress` sends its text: set for each tool call, in the context that the tool runs in. Internal."""


def progress(text: str) -> None:
    """Report from inside a tool how far it is. Works in any thread or task that the tool runs in.

    The text reaches `on_tool_output_delta` at once. The model never sees it: when the tool returns, a delta with
    `replace` puts the returned value in its place. Outside of an agent's tool this does nothing, so a function that
    calls it can be used anywhere.

        def download(urls: list[str]) -> str:
            for number, url in enumerate(urls, 1):
                fetch(url)
                progress(f"{number} of {len(urls)}\\n")
            return "done"

    Args:
        text: added to the progress reported so far; "" reports nothing.

    Raises:
        Stopped: the stream was closed or cancelled. This is a `BaseException`; leave it alone, so that the tool ends.
    """
    report = current_progress.get()
    if report is not None and text:
        report(text)
