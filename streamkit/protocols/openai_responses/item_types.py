"""The types of output items and the kinds of their parts, as tables."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ...messages import (
    CodeMessage,
    ConsoleMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)

__all__ = [
    "CALLS",
    "CODE_KEYS",
    "CONTENT_PARTS",
    "ITEM_OF_PART",
    "OUTPUT_KEYS",
    "OWN_KEYS",
    "PARTS",
    "STATUSES",
    "CallType",
    "PartType",
]


class PartType(NamedTuple):
    """A kind of part, each of which is one message.

    Attributes:
        message: the class of its message.
        format: the message's format.
        id_pattern: for the output of a call, which is a part of the call's item: the pattern of its message's id. ""
            for other parts, the ids of which follow from the item's.
    """

    message: type[Message]
    format: str | None = None
    id_pattern: str = ""


PARTS: dict[str, PartType] = {
    "text": PartType(TextMessage),
    "refusal": PartType(RefusalMessage),
    "summary": PartType(ReasoningMessage, "summary"),
    "reasoning": PartType(ReasoningMessage),
    "redacted": PartType(ReasoningMessage, "redacted"),
    "call": PartType(ToolCallMessage),
    "output": PartType(ToolOutputMessage, id_pattern="{id}.output"),
    "result": PartType(ToolOutputMessage),
    "code": PartType(CodeMessage, "python"),
    "program": PartType(CodeMessage, "javascript"),
    "logs": PartType(ConsoleMessage, id_pattern="{id}.console"),
    "plot": PartType(ImageMessage, "url", id_pattern="{id}.image.{index}"),
    "command": PartType(CodeMessage, "shell"),
    "console": PartType(ConsoleMessage),
    "image": PartType(ImageMessage, "base64.png"),
    "other": PartType(Message),
}
"""The kinds of parts. An `output` is a part of its call's item, a `result` is an item of its own; `logs` and `plot` are
what a code interpreter printed and drew, a `console` is what a shell command printed, an `image` was generated. `other`
is an item without content for a reader, such as a compaction, as a message of the item's type."""

CONTENT_PARTS = {
    "output_text": "text",
    "text": "text",
    "refusal": "refusal",
    "reasoning_text": "reasoning",
    "summary_text": "summary",
}
"""The kinds of parts by the `type` of content parts."""


ITEM_OF_PART = {
    "text": "message",
    "refusal": "message",
    "reasoning": "reasoning",
    "summary": "reasoning",
    "redacted": "reasoning",
    "code": "code_interpreter_call",
    "program": "program",
    "command": "shell_call",
    "console": "shell_call_output",
    "image": "image_generation_call",
}
"""The type of item that has parts of a kind, for the kinds that only one type has."""


class CallType(msgspec.Struct, frozen=True):
    """A type of item that is a call.

    Attributes:
        argument_keys: where the item may have its arguments.
        is_executed: whether the provider executes it.
        has_name: whether the item has a name. If not, the call is named after its type.
    """

    argument_keys: tuple[str, ...] = ("arguments",)
    is_executed: bool = False
    has_name: bool = False


CALLS: dict[str, CallType] = {
    "function_call": CallType(has_name=True),
    "custom_tool_call": CallType(("input",), has_name=True),
    "computer_call": CallType(("action", "actions")),
    "local_shell_call": CallType(("action",)),
    "apply_patch_call": CallType(("operation",)),
    "tool_search_call": CallType(),  # its `execution` states who executes it
    "mcp_call": CallType(is_executed=True, has_name=True),
    "mcp_approval_request": CallType(is_executed=True, has_name=True),
    "web_search_call": CallType(
        ("action", "arguments"), is_executed=True
    ),  # xAI sends arguments in place of the action
    "file_search_call": CallType(("queries",), is_executed=True),
}
"""The types of items that are calls, but for code and shell commands, which are code."""

OUTPUT_KEYS = {
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "local_shell_call_output": "output",
    "apply_patch_call_output": "output",
    "tool_search_output": "tools",
    "computer_call_output": "output",
    "program_output": "result",
}
"""The types of items that are what a call gave, and where they have it."""

CODE_KEYS = {"code_interpreter_call": "code", "program": "code"}
"""The types of items that are code, but for shell commands, and where they have it."""

OWN_KEYS = frozenset(
    (
        *("id", "type", "status", "role", "content", "summary", "encrypted_content", "name", "call_id"),
        *("arguments", "input", "action", "actions", "operation", "queries", "code"),
        *("results", "result", "output", "outputs", "tools"),
    )
)
"""The keys of items that messages have fields for. The others go into `metadata`."""

STATUSES: dict[str, Status] = {
    "completed": "completed",
    "incomplete": "incomplete",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""The final statuses of items and responses, which are the same for messages."""
