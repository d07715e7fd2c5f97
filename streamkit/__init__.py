"""streamkit: one event handler for every agent stream.

Subclass `EventHandler`, override the hooks you care about, and run it over any stream:

    import streamkit as sk

    class Printer(sk.EventHandler):
        def on_text_delta(self, delta, snapshot):
            print(delta, end="", flush=True)

    sk.stream(lambda: client.responses.create(model=…, input=…, stream=True), Printer()).until_done()
"""

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
from .events import (
    ActiveLine,
    AnnotationAdded,
    CodeDelta,
    ConsoleDelta,
    Created,
    Delta,
    Done,
    Event,
    MessageDelta,
    RawEvent,
    ReasoningDelta,
    RefusalDelta,
    Run,
    RunStep,
    StreamEnd,
    StreamWarning,
    TextDelta,
    ToolCallDelta,
    ToolOutputDelta,
    Usage,
)
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
    "ActiveLine",
    "Annotation",
    "AnnotationAdded",
    "AsyncEventHandler",
    "AsyncStreamManager",
    "AudioMessage",
    "CodeDelta",
    "CodeMessage",
    "Confirmation",
    "ConsoleDelta",
    "ConsoleMessage",
    "Created",
    "Delta",
    "Done",
    "Event",
    "EventHandler",
    "FileMessage",
    "Handler",
    "Hooks",
    "ImageMessage",
    "IncompleteStreamError",
    "Message",
    "MessageDelta",
    "ProtocolError",
    "RawEvent",
    "ReasoningDelta",
    "ReasoningMessage",
    "Recorder",
    "RefusalDelta",
    "RefusalMessage",
    "Run",
    "RunFailedError",
    "RunStep",
    "SourceError",
    "SourceTimeoutError",
    "StreamEnd",
    "StreamManager",
    "StreamState",
    "StreamWarning",
    "StreamkitError",
    "TextDelta",
    "TextMessage",
    "Throttled",
    "Timing",
    "ToolCallDelta",
    "ToolCallMessage",
    "ToolOutputDelta",
    "ToolOutputMessage",
    "Usage",
    "UsageError",
    "astream",
    "replay",
    "stream",
    "to_input",
]
