"""Flat messages as the `input` of a Responses request.

What a conversation needs to go on: text, images and files of the user, the model's text, its encrypted reasoning, the
calls and what they gave, and the answers to what an MCP server asked. Calls that the provider executed are left out
(they are stored with the response), as is reasoning that is not encrypted: the API takes neither from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ...answers import Confirmation
from ...errors import UsageError
from ...messages import (
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
from .wire import mapping

__all__ = ["call_item", "to_input"]

# What answers a call, by the type of the call's item. Types that are not listed: a function's output.
_ANSWERS = {
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}
# Where a client's call has its arguments, if not as JSON text in `arguments`.
_ARGUMENTS = {
    "computer_call": "action",
    "local_shell_call": "action",
    "apply_patch_call": "operation",
    "tool_search_call": "arguments",
}


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """The input items that these messages and answered confirmations make, in order.

    A `ToolOutputMessage` answers the kind of call that the call's own message tells, if it is among the messages, else
    its metadata (`custom`, `item_type`). Console output answers the function call that it belongs to, if no tool output
    does.

    Left out by design: reasoning without encrypted content; calls that the provider executed, with their outputs; code
    of a call that is among the messages; images, files and audio that are not the user's; messages of a provider's own
    type that are not the user's.

    Raises:
        UsageError: the API cannot take what a user gave (an image or a file that is a path on this machine, audio, a
            message of an unknown type), or a confirmation was not answered.
    """
    given = list(messages)
    calls = {m.call_id or m.id: m for m in given if isinstance(m, ToolCallMessage)}
    answered = {m.call_id for m in given if isinstance(m, ToolOutputMessage)}
    printed: dict[str, dict[str, Any]] = {}  # the outputs that consoles make, by their calls' ids
    items: list[dict[str, Any]] = []
    for message in given:
        if isinstance(message, ConsoleMessage) and message.call_id in calls:
            if message.call_id in printed:
                printed[message.call_id]["output"] += message.content
            elif message.call_id not in answered and _is_function(calls[message.call_id]):
                answer = {"type": "function_call_output", "call_id": message.call_id, "output": message.content}
                items.append(answer)
                printed[message.call_id] = answer
            continue
        for item in _items(message, calls):
            last = items[-1] if items else {}
            if item["type"] == "reasoning" == last.get("type") and item["id"] == last["id"]:
                _join_reasoning(last, item)
            elif item["type"] == "shell_call" == last.get("type") and item["call_id"] == last["call_id"]:
                last["action"]["commands"] += item["action"]["commands"]
            elif item["type"] == "shell_call_output" == last.get("type") and item["call_id"] == last["call_id"]:
                last["output"] += item["output"]
            else:
                items.append(item)
    # Reasoning goes back sealed or not at all.
    return [item for item in items if item["type"] != "reasoning" or item.get("encrypted_content")]


def _items(message: Message | Confirmation, calls: dict[str, ToolCallMessage]) -> Iterator[dict[str, Any]]:
    match message:
        case Confirmation():
            yield _approval(message)
        case TextMessage() | RefusalMessage():
            item = {"type": "message", "role": _role(message), "content": message.content}
            if phase := message.metadata.get("phase"):
                item["phase"] = phase
            yield item
        case ReasoningMessage():
            yield _reasoning(message)
        case ToolCallMessage() if _item_type(message) == "mcp_approval_request":
            server = message.metadata.get("server_label", "")
            arguments = {"name": message.name or "", "arguments": message.content, "server_label": server}
            yield {"type": "mcp_approval_request", "id": message.id, **arguments}
        case ToolCallMessage() if not message.provider_executed:
            yield call_item(message)
        case ToolOutputMessage():
            call = calls.get(message.call_id or "")
            if call is None or not call.provider_executed:
                yield _output(message, call or message)
        case CodeMessage() | ConsoleMessage():
            if message.call_id not in calls:  # else the call and its output tell of it
                yield _ran(message)
        case ToolCallMessage():
            pass  # the provider executed it
        case _ if message.role == "user":
            yield {"type": "message", "role": "user", "content": [_attachment(message)]}
        case _:
            pass


def _is_function(call: ToolCallMessage) -> bool:
    return call.status == "completed" and not call.provider_executed and _item_type(call) == "function_call"


def _role(message: Message) -> str:
    return message.role if message.role in ("assistant", "system", "developer") else "user"


def _item_type(message: Message) -> str:
    if message.metadata.get("custom") is True:
        return "custom_tool_call"
    found = message.metadata.get("item_type")
    return found if isinstance(found, str) else "function_call"


def call_item(call: ToolCallMessage) -> dict[str, Any]:
    """The item of a call that a client executes."""
    type, call_id, name = _item_type(call), call.call_id or call.id, call.name or ""
    if type == "custom_tool_call":
        return {"type": type, "call_id": call_id, "name": name, "input": call.content}
    if type not in _ARGUMENTS:
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": call.content}
    value = parsed(call.content)
    item: dict[str, Any] = {"type": type, "id": call.group or call.id, "call_id": call_id}
    item |= mapping(value) if [*mapping(value)] == ["actions"] else {_ARGUMENTS[type]: value}
    if type == "computer_call":
        item["pending_safety_checks"] = call.metadata.get("pending_safety_checks", [])
    if type == "tool_search_call":
        item["execution"] = "client"
    return {**item, "status": "completed"}


def parsed(content: str) -> Any:
    """What JSON text holds; the text itself if it is none."""
    try:
        return json.loads(content) if content else {}
    except ValueError:
        return content


def _output(message: ToolOutputMessage, call: Message) -> dict[str, Any]:
    asked = _item_type(call)
    type = _ANSWERS.get(asked, asked if asked in _ANSWERS.values() else "function_call_output")
    call_id = message.call_id or message.id
    match type:
        case "tool_search_output":
            return {"type": type, "call_id": call_id, "execution": "client", "tools": parsed(message.content)}
        case "computer_call_output":
            return {"type": type, "call_id": call_id, "output": parsed(message.content)}
        case "local_shell_call_output":
            return {"type": type, "id": call_id, "output": message.content}
        case "apply_patch_call_output":
            status = "failed" if message.metadata.get("error") else "completed"
            return {"type": type, "call_id": call_id, "status": status, "output": message.content}
        case _:
            return {"type": type, "call_id": call_id, "output": message.content}


def _ran(message: CodeMessage | ConsoleMessage) -> dict[str, Any]:
    """Code that ran outside of any call of this conversation, and what it printed."""
    if message.metadata.get("item_type") == "shell_call":
        limits = {key: message.metadata.get(key) for key in ("max_output_length", "timeout_ms")}
        action = {"commands": [message.content], **limits}
        return {"type": "shell_call", "call_id": message.call_id, "action": action, "status": "completed"}
    if isinstance(message, CodeMessage):
        fenced = f"```{message.format or ''}\n{message.content}\n```"
        return {"type": "message", "role": "assistant", "content": fenced}
    if outcome := message.metadata.get("outcome"):
        printed = {"stdout": message.content, "stderr": "", "outcome": outcome}
        return {"type": "shell_call_output", "call_id": message.call_id, "output": [printed]}
    return {"type": "message", "role": "user", "content": f"Output of the code:\n{message.content}"}


def _reasoning(message: ReasoningMessage) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "reasoning", "id": message.group or message.id, "summary": []}
    if message.format == "summary":
        item["summary"] = [{"type": "summary_text", "text": message.content}]
    elif message.content:
        item["content"] = [{"type": "reasoning_text", "text": message.content}]
    if sealed := message.metadata.get("encrypted_content"):
        item["encrypted_content"] = sealed
    return item


def _join_reasoning(whole: dict[str, Any], part: dict[str, Any]) -> None:
    whole["summary"] += part["summary"]
    if "content" in part:
        whole["content"] = whole.get("content", []) + part["content"]
    if "encrypted_content" in part:
        whole["encrypted_content"] = part["encrypted_content"]


def _approval(confirmation: Confirmation) -> dict[str, Any]:
    if confirmation.status == "pending":
        raise UsageError(f"confirmation {confirmation.id!r} has no answer yet: approve or decline it first")
    approve = confirmation.status == "approved"
    item = {"type": "mcp_approval_response", "approval_request_id": confirmation.id, "approve": approve}
    return {**item, "reason": confirmation.reason} if confirmation.reason else item


def _attachment(message: Message) -> dict[str, Any]:
    format, content = message.format or "", message.content
    match message:
        case FileMessage() if format in ("", "file_id"):
            return {"type": "input_file", "file_id": content}
        case ImageMessage() if format == "file_id":
            return {"type": "input_image", "detail": "auto", "file_id": content}
        case ImageMessage() if format in ("", "url"):
            return {"type": "input_image", "detail": "auto", "image_url": content}
        case ImageMessage() if format.startswith("base64."):
            url = f"data:image/{format.removeprefix('base64.')};base64,{content}"
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case _:
            what = f"the user's {message.type} {message.id!r}" + (f", whose format is {format!r}" if format else "")
            raise UsageError(f"the Responses API cannot take {what}; it takes text, images and files by id or data")
