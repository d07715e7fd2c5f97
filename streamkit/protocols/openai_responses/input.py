"""Converts messages into the `input` of a Responses request.

The input has all that a conversation needs to go on. Items of this API go back unchanged: text, reasoning, calls, results of
the provider's own tools, compactions. Messages from elsewhere become items: text,
images and files of the user, the model's text, the calls and their outputs, and the answers to an MCP server's questions.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from ..request_content import (
    LeftOut,
    Report,
    cannot_take,
    fenced_block,
    image_url,
    is_of_executed_call,
    report_nothing,
)
from ..values import as_object, as_text
from .item_types import CALLS
from .received_conversation import ReceivedConversation
from .wire import json_or_text

__all__ = ["call_item", "to_input"]

_OUTPUT_TYPES = {type: call.output for type, call in CALLS.items()}


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Return the input items of these messages and of answered confirmations, in order.

    Messages that came from this API become the items that they were (`received_items`). Ids of messages and calls are
    sent beside the reasoning of their answer only: without it the API refuses them.

    A `ToolOutputMessage` answers the type of call that the call's own message has, if it is among the messages, else
    the type in its metadata (`custom`, `item_type`). Console output answers the function call that it belongs to, if no
    tool output does.

    Left out by design, which `report` is called with: reasoning of other providers, and reasoning that the API could
    not find again (the response was not stored, and it is not encrypted), or that nothing of its answer follows; calls
    that are not complete; calls that another provider executed; outputs of calls that a provider executed, without the
    call; images, files and audio of other providers that are not the user's, and messages of their own types. Code of a
    call that is among the messages is in the call, and console output that a tool output stands for is not sent.

    Raises:
        UsageError: the API cannot take what a user gave (an image or a file that is a path on this machine, audio, a
            message of an unknown type), or a confirmation was not answered.
    """
    conversation = list(messages)
    request = _ResponsesRequest(conversation, report)
    for message in conversation:
        request.add(message)
    return request.finish()


class _ResponsesRequest:
    """The input items of a request while they are collected. `conversation` is everything that will be added."""

    def __init__(self, conversation: list[Message | Confirmation], report: Report) -> None:
        self.items: list[dict[str, Any]] = []
        self._report = report
        self._received = ReceivedConversation(conversation, report)
        self._calls = {call.call_id or call.id: call for call in conversation if isinstance(call, ToolCallMessage)}
        self._answered = {output.call_id for output in conversation if isinstance(output, ToolOutputMessage)}
        self._console_outputs: dict[str, dict[str, Any]] = {}  # by call id: the outputs that are made of consoles

    def add(self, message: Message | Confirmation) -> None:
        if isinstance(message, Message) and self._received.has(message):
            self.items += self._received.items_of(message)
        elif isinstance(message, ConsoleMessage) and message.call_id in self._calls:
            self._add_console(message, self._calls[message.call_id])
        elif (item := self._item_of(message)) is not None:
            self._add_item(item)

    def finish(self) -> list[dict[str, Any]]:
        """Return the items of everything that was added."""
        return self._received.without_loose_reasoning(self.items)

    def _leave_out(self, message: Message, reason: str) -> dict[str, Any] | None:
        """Report that a message becomes no item, which is None."""
        self._report(LeftOut(message, reason))
        return None

    def _add_console(self, message: ConsoleMessage, call: ToolCallMessage) -> None:
        """Console output of a call. It answers a function call that no tool output answers."""
        call_id = call.call_id or call.id
        if call_id in self._console_outputs:
            self._console_outputs[call_id]["output"] += message.content
        elif call_id not in self._answered and _awaits_function_output(call):
            output = _output(ToolOutputMessage(call_id=call_id, content=message.content), call)
            self.items.append(output)
            self._console_outputs[call_id] = output

    def _add_item(self, item: dict[str, Any]) -> None:
        """An item. Messages that are parts of one item follow each other, and are joined again."""
        last = self.items[-1] if self.items else {}
        if item["type"] != last.get("type"):
            self.items.append(item)
        elif item["type"] == "reasoning" and item["id"] == last["id"]:
            _join_reasoning(last, item)
        elif item["type"] == "shell_call" and item["call_id"] == last["call_id"]:
            last["action"]["commands"] += item["action"]["commands"]
        elif item["type"] == "shell_call_output" and item["call_id"] == last["call_id"]:
            last["output"] += item["output"]
        else:
            self.items.append(item)

    def _item_of(self, message: Message | Confirmation) -> dict[str, Any] | None:
        match message:
            case Confirmation():
                return _approval(message)
            case TextMessage() | RefusalMessage():
                return _text(message)
            case ReasoningMessage():
                return self._reasoning(message)
            case ToolCallMessage():
                return self._call(message)
            case ToolOutputMessage():
                return self._output(message)
            case CodeMessage() | ConsoleMessage():
                is_of_call = message.call_id in self._calls
                return None if is_of_call else _code_or_console(message)
            case Message(role="user"):
                return {"type": "message", "role": "user", "content": [_attachment(message)]}
            case _:
                return self._leave_out(message, "the API takes none of the model's from elsewhere")

    def _reasoning(self, message: ReasoningMessage) -> dict[str, Any] | None:
        item = _reasoning(message)
        if not any(m.metadata.get("encrypted_content") for m in self._received.parts_of(message)):
            return self._leave_out(message, "it is not this API's own reasoning")
        return item

    def _call(self, call: ToolCallMessage) -> dict[str, Any] | None:
        if _item_type(call) == "mcp_approval_request":
            server = call.metadata.get("server_label", "")
            arguments = {"name": call.name or "", "arguments": call.content, "server_label": server}
            return {"type": "mcp_approval_request", "id": call.id, **arguments}
        if call.provider_executed:
            return self._leave_out(call, "another provider executed this call")
        if call.status not in ("completed", "in_progress"):
            return self._leave_out(call, "the call is not complete")
        return call_item(call)

    def _output(self, message: ToolOutputMessage) -> dict[str, Any] | None:
        call = self._calls.get(message.call_id or "")
        if is_of_executed_call(message) or (call is not None and call.provider_executed):
            return self._leave_out(message, "it is the output of a call that a provider executed")
        if call is not None and call.status not in ("completed", "in_progress"):
            return self._leave_out(message, "its call is not complete")
        return _output(message, call or message)


# -- texts and reasoning


def _text(message: Message) -> dict[str, Any]:
    role = message.role if message.role in ("assistant", "system", "developer") else "user"
    item = {"type": "message", "role": role, "content": message.content}
    phase = message.metadata.get("phase")
    return {**item, "phase": phase} if phase else item


def _reasoning(message: ReasoningMessage) -> dict[str, Any]:
    item: dict[str, Any] = {"type": "reasoning", "id": message.group or message.id, "summary": []}
    if message.format == "summary":
        item["summary"] = [{"type": "summary_text", "text": message.content}]
    elif message.content:
        item["content"] = [{"type": "reasoning_text", "text": message.content}]
    if encrypted := message.metadata.get("encrypted_content"):
        item["encrypted_content"] = encrypted
    return item


def _join_reasoning(item: dict[str, Any], part: dict[str, Any]) -> None:
    item["summary"] += part["summary"]
    if "content" in part:
        item["content"] = item.get("content", []) + part["content"]
    if "encrypted_content" in part:
        item["encrypted_content"] = part["encrypted_content"]


def _attachment(message: Message) -> dict[str, Any]:
    """Return a user's attachment as a content part. Raises `UsageError` if the API has none for it."""
    format, content = message.format or "", message.content
    match message:
        case FileMessage() if format in ("", "file_id"):
            return {"type": "input_file", "file_id": content}
        case ImageMessage() if format == "file_id":
            return {"type": "input_image", "detail": "auto", "file_id": content}
        case ImageMessage() if format in ("", "url") or format.startswith("base64."):
            return {"type": "input_image", "detail": "auto", "image_url": image_url(message)}
        case _:
            raise cannot_take("the Responses API", message, "it takes text, images and files by id or data")


# -- calls, and what they gave


def _item_type(message: Message) -> str:
    """Return the type of the item that a call came from, or that an output answers."""
    if message.metadata.get("custom") is True:
        return "custom_tool_call"
    item_type = message.metadata.get("item_type")
    return item_type if isinstance(item_type, str) else "function_call"


def _awaits_function_output(call: ToolCallMessage) -> bool:
    return call.status == "completed" and not call.provider_executed and _item_type(call) == "function_call"


def call_item(call: ToolCallMessage) -> dict[str, Any]:
    """Return the item of a call that a client executes."""
    type, call_id, name = _item_type(call), call.call_id or call.id, call.name or ""
    if type == "custom_tool_call":
        return {"type": type, "call_id": call_id, "name": name, "input": call.content}
    call_type = CALLS.get(type)
    if call_type is None or call_type.has_name or call_type.is_executed:
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": call.content}
    value = json_or_text(call.content)
    item: dict[str, Any] = {"type": type, "id": call.group or call.id, "call_id": call_id}
    # A computer call may have several actions, which its message has as an object with their key.
    item |= as_object(value) if [*as_object(value)] == ["actions"] else {call_type.argument_keys[0]: value}
    if type == "computer_call":
        item["pending_safety_checks"] = call.metadata.get("pending_safety_checks", [])
    if type == "tool_search_call":
        item["execution"] = "client"
    return {**item, "status": "completed"}


def _output(message: ToolOutputMessage, call: Message) -> dict[str, Any]:
    """Return the item that answers a call. `call` is the output itself if the call is not among the messages."""
    call_type = _item_type(call)
    default = call_type if call_type in _OUTPUT_TYPES.values() else "function_call_output"
    type = _OUTPUT_TYPES.get(call_type, default)
    call_id = message.call_id or message.id
    match type:
        case "tool_search_output":
            return {"type": type, "call_id": call_id, "execution": "client", "tools": json_or_text(message.content)}
        case "computer_call_output":
            return {"type": type, "call_id": call_id, "output": json_or_text(message.content)}
        case "local_shell_call_output":
            return {"type": type, "id": call_id, "output": message.content}
        case "apply_patch_call_output":
            status = "failed" if message.metadata.get("error") else "completed"
            return {"type": type, "call_id": call_id, "status": status, "output": message.content}
        case _:
            item = {"type": type, "call_id": call_id, "output": message.content}
            # The API wants to know of a program's calls that the program made them.
            caller = call.metadata.get("caller")
            return {**item, "caller": caller} if as_object(caller).get("type") == "program" else item


def _code_or_console(message: CodeMessage | ConsoleMessage) -> dict[str, Any]:
    """Add code that ran outside of any call of this conversation, or its console output."""
    if as_text(message.metadata.get("item_type")) == "shell_call":
        limits = {key: message.metadata.get(key) for key in ("max_output_length", "timeout_ms")}
        action = {"commands": [message.content], **limits}
        return {"type": "shell_call", "call_id": message.call_id, "action": action, "status": "completed"}
    if isinstance(message, CodeMessage):
        code = fenced_block(message.content, message.format)
        return {"type": "message", "role": "assistant", "content": code}
    if outcome := message.metadata.get("outcome"):
        output = {"stdout": message.content, "stderr": "", "outcome": outcome}
        return {"type": "shell_call_output", "call_id": message.call_id, "output": [output]}
    return {"type": "message", "role": "user", "content": f"Output of the code:\n{message.content}"}


def _approval(confirmation: Confirmation) -> dict[str, Any]:
    """Return the answer to a question. Raises `UsageError` if there is none."""
    if not confirmation.answered:
        raise UsageError(f"confirmation {confirmation.id!r} has no answer yet: approve or decline it first")
    approve = confirmation.status == "approved"
    item = {"type": "mcp_approval_response", "approval_request_id": confirmation.id, "approve": approve}
    return {**item, "reason": confirmation.reason} if confirmation.reason else item
