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
from .message import COMPACT_AT, OUTPUT_RETRY, Annotation, Message, Status, is_from_user, message_class

__all__ = [
    "COMPACT_AT",
    "OUTPUT_RETRY",
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
    "is_from_user",
    "message_class",
    "output_text",
]
