"""streamkit: one event handler for every agent stream.

Subclass `EventHandler`, override the hooks you care about, and run it over any stream:

    import streamkit as sk

    class Printer(sk.EventHandler):
        def on_text_delta(self, delta, snapshot):
            print(delta, end="", flush=True)

    sk.stream(lambda: client.responses.create(model=…, input=…, stream=True), Printer()).until_done()
"""

from typing import TYPE_CHECKING

from . import events
from .answers import Confirmation
from .errors import (
    IncompleteStreamError,
    LimitError,
    OutputError,
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
from .lazy_names import lazy_names
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
from .streams.api import StreamManager, astream, stream
from .streams.state import StreamState
from .streams.timing import Timing

if TYPE_CHECKING:
    from .agent import Agent, AsyncAgent, tool
    from .messages.json_tree import JsonValue
    from .protocols.event_stream import SSE_HEADERS
    from .recorder import Recorder
    from .relay import MemoryRelay, RedisRelay
    from .relay.emitter import Emitter
    from .retry import Retry
    from .sources.recording import replay
    from .streams.aio import AsyncStreamManager
    from .streams.options import AnySource, SyncSource
    from .throttled import Throttled

__all__ = [
    "SSE_HEADERS",
    "Agent",
    "Annotation",
    "AnySource",
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
    "JsonValue",
    "LimitError",
    "Limits",
    "MemoryRelay",
    "Message",
    "OutputError",
    "ProtocolError",
    "ReasoningMessage",
    "Recorder",
    "RedisRelay",
    "RefusalMessage",
    "RequestError",
    "Retry",
    "RunFailedError",
    "SourceError",
    "SourceTimeoutError",
    "StreamManager",
    "StreamState",
    "StreamkitError",
    "SyncSource",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "Agent": ".agent",
            "AnySource": ".streams.options",
            "AsyncAgent": ".agent",
            "AsyncStreamManager": ".streams.aio",
            "Emitter": ".relay.emitter",
            "JsonValue": ".messages.json_tree",
            "MemoryRelay": ".relay",
            "Recorder": ".recorder",
            "RedisRelay": ".relay.redis",
            "Retry": ".retry",
            "SSE_HEADERS": ".protocols.event_stream",
            "SyncSource": ".streams.options",
            "Throttled": ".throttled",
            "replay": ".sources.recording",
            "tool": ".agent",
        },
    )
