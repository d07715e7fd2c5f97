"""Flat messages: one kind of data each, growing in place until they are done.

`message.py` has the root, `kinds.py` a class for each kind, `answer.py` what a tool call takes its output with.
"""

from .kinds import (
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    output_text,
)
from .message import COMPACT_AT, Annotation, Message, Status, message_class

__all__ = [
    "COMPACT_AT",
    "Annotation",
    "AudioMessage",
    "CodeMessage",
    "ConsoleMessage",
    "FileMessage",
    "ImageMessage",
    "Message",
    "ReasoningMessage",
    "RefusalMessage",
    "Status",
    "TextMessage",
    "ToolCallMessage",
    "ToolOutputMessage",
    "message_class",
    "output_text",
]
