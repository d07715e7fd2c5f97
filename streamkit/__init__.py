"""streamkit: one event handler for every agent stream.

Subclass `EventHandler`, override the hooks you care about, and run it over any stream:

    import streamkit as sk

    class Printer(sk.EventHandler):
        def on_text_delta(self, delta, snapshot):
            print(delta, end="", flush=True)

    sk.stream(lambda: client.responses.create(model=…, input=…, stream=True), Printer()).until_done()
"""

from typing import TYPE_CHECKING, Any

from . import events
from .answers import Confirmation
from .errors import (
    IncompleteStreamError,
    LimitError,
    ProtocolError,
    RequestError,
    RunFailedError,
    SourceError,
    SourceTimeoutError,
    StreamkitError,
    UsageError,
)
from .events import *  # noqa: F403  # every event there is
from .handlers import AsyncEventHandler, EventHandler, Handler, Hooks
from .limits import Limits, Timeouts
from .messages import (
    Annotation,
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from .protocols import to_input
from .recorder import Recorder
from .sources.recording import replay
from .streams.api import AsyncStreamManager, StreamManager, astream, stream
from .streams.state import StreamState
from .streams.timing import Timing
from .throttled import Throttled

if TYPE_CHECKING:
    from .agent import Agent, AsyncAgent, tool
    from .relay import MemoryRelay
    from .relay.emitter import Emitter

__all__ = [
    "Agent",
    "Annotation",
    "AsyncAgent",
    "AsyncEventHandler",
    "AsyncStreamManager",
    "AudioMessage",
    "CodeMessage",
    "Confirmation",
    "ConsoleMessage",
    "Emitter",
    "EventHandler",
    "FileMessage",
    "Handler",
    "Hooks",
    "ImageMessage",
    "IncompleteStreamError",
    "LimitError",
    "Limits",
    "MemoryRelay",
    "Message",
    "ProtocolError",
    "ReasoningMessage",
    "Recorder",
    "RefusalMessage",
    "RequestError",
    "RunFailedError",
    "SourceError",
    "SourceTimeoutError",
    "StreamManager",
    "StreamState",
    "StreamkitError",
    "TextMessage",
    "Throttled",
    "Timeouts",
    "Timing",
    "ToolCallMessage",
    "ToolOutputMessage",
    "UsageError",
    "astream",
    "replay",
    "stream",
    "to_input",
    "tool",
]
__all__ += events.__all__

_LATER = {
    "Agent": "agent",
    "AsyncAgent": "agent",
    "Emitter": "relay.emitter",
    "MemoryRelay": "relay",
    "tool": "agent",
}  # imported when they are asked for

if not TYPE_CHECKING:  # to type checkers it would give every name there is

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
