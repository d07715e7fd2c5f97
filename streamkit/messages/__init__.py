"""Flat messages: one kind of data each, growing in place until they are done."""

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
from .message import FOLD, Annotation, Message, Status, message_class

__all__ = [
    "FOLD",
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
