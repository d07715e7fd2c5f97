"""streamkit: one event handler for every agent stream.

Subclass `EventHandler`, override the hooks you care about, and run it over any stream:

    import streamkit as sk

    class Printer(sk.EventHandler):
        def on_text_delta(self, delta, snapshot):
            print(delta, end="", flush=True)

    sk.stream(lambda: client.responses.create(model=…, input=…, stream=True), Printer()).until_done()
"""

from . import events
from .answers import Confirmation
from .errors import (
    IncompleteStreamError,
    ProtocolError,
    RunFailedError,
    SourceError,
    SourceTimeoutError,
    StreamkitError,
    UsageError,
)
from .events import *  # noqa: F403  # every event there is
from .handlers import AsyncEventHandler, EventHandler, Handler, Hooks, Throttled
from .manager import AsyncStreamManager, StreamManager, astream, stream
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
from .recording import Recorder, replay
from .state import StreamState, Timing

__all__ = [
    "Annotation",
    "AsyncEventHandler",
    "AsyncStreamManager",
    "AudioMessage",
    "CodeMessage",
    "Confirmation",
    "ConsoleMessage",
    "EventHandler",
    "FileMessage",
    "Handler",
    "Hooks",
    "ImageMessage",
    "IncompleteStreamError",
    "Message",
    "ProtocolError",
    "ReasoningMessage",
    "Recorder",
    "RefusalMessage",
    "RunFailedError",
    "SourceError",
    "SourceTimeoutError",
    "StreamManager",
    "StreamState",
    "StreamkitError",
    "TextMessage",
    "Throttled",
    "Timing",
    "ToolCallMessage",
    "ToolOutputMessage",
    "UsageError",
    "astream",
    "replay",
    "stream",
    "to_input",
]
__all__ += events.__all__
