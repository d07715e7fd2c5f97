"""Converts messages into the `messages=` of a Chat Completions request.

A user's message is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...answers import Confirmation
from ...messages import (
    CodeMessage,
    ConsoleMessage,
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
from ..turns import call_id_of, reason_to_leave_out
from ..values import as_object
from .returned_fields import joined_thinking, merge_fields, returned_fields, taken_fields

__all__ = ["to_input"]

# Left out even if the role is the user's.
_NEVER_OF_A_USER = (ReasoningMessage, ToolCallMessage, ToolOutputMessage, CodeMessage)


# Servers accept this in place of reasoning that an answer does not have, beside others that have it.
_NO_REASONING = " "


def to_input(
    messages: Iterable[Message | Confirmation], *, report: Report = report_nothing, host: str | None = None
) -> list[dict[str, Any]]:
    """Flat messages as the `messages=` of a request.

    Texts of user, system and developer keep their roles; a user's images (`url`, `base64.…`), audio (`wav`, `mp3`) and
    files (`file_id`) become content parts beside the text. What the assistant wrote and called between two messages of
    others is one message: its texts joined, code as a fenced block, a refusal, the calls that were completed. A tool
    output is a `tool` message. Console output answers the call that it belongs to, if no tool output does, and code of
    a call is in the call already; other console output is a fenced block in a message of the user.

    What a server of this API sent along with an answer goes back with it as it came (`returned_fields`): reasoning
    under the key that it had, signatures, what tool calls had beside the call. `host` is the server's address: some
    servers, which are known, refuse fields that they do not know. If one answer has `reasoning_content`, all that call
    tools have it.

    Left out by design, which `report` is called with: reasoning of other protocols; fields that the server refuses;
    calls that the provider ran, with their outputs, and calls that were not completed; confirmations; what the assistant
    and the computer made that is not the assistant's text (images, audio, files); messages of a provider's own type; all
    choices but the first; an answer of which nothing but reasoning would be left.

    Raises:
        UsageError: Chat Completions cannot express what a user gave: an image or a file that is a path on this
            machine, audio that is neither wav nor mp3, a message of an unknown type.
    """
    everything = list(messages)
    first_choice = [message for message in everything if isinstance(message, Message) and message.choice == 0]
    request = _ChatMessages(first_choice, report, taken_fields(host))
    for message in everything:
        if isinstance(message, Message) and message.choice == 0:
            request.add(message)
        else:
            report(LeftOut(message, "it is of another choice" if isinstance(message, Message) else _NO_CONFIRMATION))
    return request.finish()


_NO_CONFIRMATION = "the API has no place for answers to confirmations"


class _ChatMessages:
    """The `messages=` of a request while it is built.

    Args:
        conversation: everything that will be added.
        report: called with what is left out.
        taken: the fields that the server takes, beside those of OpenAI; None if it takes any.
    """

    def __init__(self, conversation: list[Message], report: Report, taken: tuple[str, ...] | None) -> None:
        self.messages: list[dict[str, Any]] = []
        self._report = report
        self._taken = taken
        self._reasoning: dict[int, Message] = {}  # by the id() of the assistant's message that has it
        calls = [message for message in conversation if isinstance(message, ToolCallMessage)]
        self._sent_calls = {call_id_of(call) for call in calls if _is_sent(call)}
        self._other_calls = {call_id_of(call) for call in calls} - self._sent_calls
        self._answered = {message.call_id for message in conversation if isinstance(message, ToolOutputMessage)}

    def add(self, message: Message) -> None:
        match message:
            case ReasoningMessage():
                self._add_reasoning(message)
            case ToolCallMessage() if _is_sent(message):
                call = _wire_call(message) | self._taken_fields_of(message)
                self._assistant().setdefault("tool_calls", []).append(call)
            case ToolOutputMessage() if message.call_id not in self._other_calls and not is_of_executed_call(message):
                self._add_tool_output(message)
            case ConsoleMessage() if message.call_id not in self._sent_calls:
                self._add_to_user({"type": "text", "text": fenced_block(message.content, "output")})
            case ConsoleMessage():
                if message.call_id not in self._answered:
                    self._add_console(message)
            case CodeMessage():
                if message.call_id not in self._sent_calls:
                    self._add_text(fenced_block(message.content, message.format))
            case RefusalMessage():
                assistant = self._assistant()
                assistant["refusal"] = assistant.get("refusal", "") + message.content
            case TextMessage(role="assistant"):
                self._add_text(message.content)
                merge_fields(self._assistant(), self._taken_fields_of(message))
            case TextMessage(role="user"):
                self._add_to_user({"type": "text", "text": message.content})
            case TextMessage(role="system" | "developer"):
                self.messages.append({"role": message.role, "content": message.content})
            case Message(role="user") if not isinstance(message, _NEVER_OF_A_USER):
                self._add_to_user(_content_part(message))
            case _:
                self._report(LeftOut(message, reason_to_leave_out(message)))

    def finish(self) -> list[dict[str, Any]]:
        """Return the messages, without those of which there is nothing but reasoning."""
        messages: list[dict[str, Any]] = []
        has_reasoning = any("reasoning_content" in message for message in self.messages)
        for message in self.messages:
            if thinking := message.pop("thinking", None):
                text = message["content"]
                message["content"] = [*thinking, {"type": "text", "text": text}] if text else None
            if message["role"] == "assistant" and not any(
                message.get(key) for key in ("content", "tool_calls", "refusal")
            ):
                if id(message) in self._reasoning:
                    self._report(LeftOut(self._reasoning[id(message)], "nothing of its answer goes back"))
                    continue
            elif has_reasoning and "tool_calls" in message:
                message.setdefault("reasoning_content", _NO_REASONING)
            messages.append(message)
        return messages

    def _taken_fields_of(self, message: Message) -> dict[str, Any]:
        """Return the fields that go back along with a message, as far as the server takes them."""
        fields = returned_fields(message)
        taken = {key: fields[key] for key in fields if self._taken is None or key in self._taken}
        if refused := [key for key in fields if key not in taken]:
            self._report(LeftOut(message, f"the server does not take {', '.join(refused)}"))
        return taken

    def _add_reasoning(self, message: ReasoningMessage) -> None:
        if not returned_fields(message):
            self._report(LeftOut(message, "it is reasoning of another protocol"))
        elif fields := self._taken_fields_of(message):
            if (part := as_object(fields.pop("content", None))) and message.content:
                self._assistant().setdefault("thinking", []).append(joined_thinking(part, message.content))
            assistant = self._assistant()
            self._reasoning[id(assistant)] = message
            merge_fields(assistant, {key: message.content if value is None else value for key, value in fields.items()})

    def _assistant(self) -> dict[str, Any]:
        """Return the assistant's message that is being written."""
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]

    def _add_text(self, text: str) -> None:
        """A text of the assistant. Fenced blocks stand on lines of their own."""
        assistant = self._assistant()
        content = assistant["content"]
        separator = "\n" if content and (text.startswith("```") or content.endswith("\n```")) else ""
        assistant["content"] = text if content is None else content + separator + text

    def _add_to_user(self, part: dict[str, Any]) -> None:
        """A content part of the user. The content is a string as long as it is one text."""
        if not self.messages or self.messages[-1]["role"] != "user":
            self.messages.append({"role": "user", "content": part["text"] if part["type"] == "text" else [part]})
            return
        content = self.messages[-1]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        self.messages[-1]["content"] = [*parts, part]

    def _add_tool_output(self, message: ToolOutputMessage | ConsoleMessage) -> None:
        content = message.content
        self.messages.append({"role": "tool", "tool_call_id": message.call_id or "", "content": content})

    def _add_console(self, message: ConsoleMessage) -> None:
        """Console output as the answer of its call. It may come in several messages, which are joined."""
        if self.messages and self.messages[-1].get("tool_call_id") == message.call_id:
            self.messages[-1]["content"] += message.content
        else:
            self._add_tool_output(message)


def _is_sent(call: ToolCallMessage) -> bool:
    """Whether a call goes into the request: those that have or need an answer."""
    return call.status == "completed" and not call.provider_executed


def _wire_call(call: ToolCallMessage) -> dict[str, Any]:
    if call.metadata.get("custom"):
        return {"id": call_id_of(call), "type": "custom", "custom": {"name": call.name or "", "input": call.content}}
    function = {"name": call.name or "", "arguments": call.content or "{}"}
    return {"id": call_id_of(call), "type": "function", "function": function}


def _content_part(message: Message) -> dict[str, Any]:
    """Return a user's attachment as a content part. Raises `UsageError` if Chat Completions has none for it."""
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format == "url" or format.startswith("base64."):
            return {"type": "image_url", "image_url": {"url": image_url(message)}}
        case "audio" if format in ("wav", "mp3"):
            return {"type": "input_audio", "input_audio": {"data": content, "format": format}}
        case "file" if format == "file_id":
            return {"type": "file", "file": {"file_id": content}}
        case _:
            raise cannot_take("Chat Completions", message)
