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
        item: the type of item that has such parts; "" if several types have.
        format: the message's format.
        content_type: the type of the content part that it is; "" if it is none.
        list_key: where its item has the list of such parts; "" if the item has one.
        id_pattern: for the output of a call, which is a part of the call's item: the pattern of its message's id. ""
            for other parts, the ids of which follow from the item's.
    """

    message: type[Message]
    item: str = ""
    format: str | None = None
    content_type: str = ""
    list_key: str = ""
    id_pattern: str = ""


PARTS: dict[str, PartType] = {
    "text": PartType(TextMessage, "message", None, "output_text", "content"),
    "refusal": PartType(RefusalMessage, "message", None, "refusal", "content"),
    "summary": PartType(ReasoningMessage, "reasoning", "summary", "summary_text", "summary"),
    "reasoning": PartType(ReasoningMessage, "reasoning", None, "reasoning_text", "content"),
    "redacted": PartType(ReasoningMessage, "reasoning", "redacted", "", "content"),
    "call": PartType(ToolCallMessage),
    "output": PartType(ToolOutputMessage, id_pattern="{id}.output"),
    "result": PartType(ToolOutputMessage),
    "code": PartType(CodeMessage, "code_interpreter_call", "python"),
    "program": PartType(CodeMessage, "program", "javascript"),
    "logs": PartType(ConsoleMessage, id_pattern="{id}.console"),
    "plot": PartType(ImageMessage, format="url", id_pattern="{id}.image.{index}"),
    "command": PartType(CodeMessage, "shell_call", "shell"),
    "console": PartType(ConsoleMessage, "shell_call_output", list_key="output"),
    "image": PartType(ImageMessage, "image_generation_call", "base64.png"),
    "other": PartType(Message),
}
"""The kinds of parts. An `output` is a part of its call's item, a `result` is an item of its own; `logs` and `plot` are
what a code interpreter printed and drew, a `console` is what a shell command printed, an `image` was generated. `other`
is an item without content for a reader, such as a compaction, as a message of the item's type."""

CONTENT_PARTS = {"text": "text", **{part.content_type: kind for kind, part in PARTS.items() if part.content_type}}
"""The kinds of parts by the `type` of content parts."""


class CallType(msgspec.Struct, frozen=True):
    """A type of item that is a call.

    Attributes:
        argument_keys: where the item may have its arguments.
        is_executed: whether the provider executes it.
        has_name: whether the item has a name. If not, the call is named after its type.
        output: the type of item with which a client answers it.
    """

    argument_keys: tuple[str, ...] = ("arguments",)
    is_executed: bool = False
    has_name: bool = False
    output: str = "function_call_output"


CALLS: dict[str, CallType] = {
    "function_call": CallType(has_name=True),
    "custom_tool_call": CallType(("input",), has_name=True, output="custom_tool_call_output"),
    "computer_call": CallType(("action", "actions"), output="computer_call_output"),
    "local_shell_call": CallType(("action",), output="local_shell_call_output"),
    "apply_patch_call": CallType(("operation",), output="apply_patch_call_output"),
    "tool_search_call": CallType(output="tool_search_output"),  # its `execution` states who executes it
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
