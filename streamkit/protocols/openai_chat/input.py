"""Messages on their way back: the `messages=` of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Message

__all__ = ["to_input"]

# Left out whoever's they are; of the user's own, all else is told or refused.
_DROPPED = (m.ReasoningMessage, m.ToolCallMessage, m.ToolOutputMessage, m.CodeMessage)


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Flat messages as `messages=` of a request.

    Texts of user, system and developer keep their roles; a user's images (`url`, `base64.…`), audio (`wav`, `mp3`) and files
    (`file_id`) become content parts beside the text. What the assistant said, wrote and called between two others is
    one message: its texts joined, code as a fenced block, a refusal, the calls that were completed. A tool output is a
    `tool` message. Console output answers the call that it belongs to, if no tool output does, and code of a call is
    in the call already; other console output is told as a fenced block by the user.

    Left out by design: reasoning, encrypted or not; calls that the provider ran, with their outputs, and calls that
    were not completed; confirmations; texts, images, audio and files of the assistant's and the computer's making, as
    far as they are not the assistant's texts; messages of a provider's own type; choices but the first.

    Raises:
        UsageError: Chat Completions cannot express what a user gave: an image or a file that is a path on this
            machine, audio that is neither wav nor mp3, a message of an unknown type.
    """
    known = [message for message in messages if isinstance(message, Message)]  # there may be confirmations
    given = [message for message in known if message.choice == 0]
    calls = {call.call_id or call.id for call in given if isinstance(call, m.ToolCallMessage) and _answerable(call)}
    elsewhere = {call.call_id or call.id for call in given if isinstance(call, m.ToolCallMessage)} - calls
    answered = {message.call_id for message in given if isinstance(message, m.ToolOutputMessage)}
    out: list[dict[str, Any]] = []
    for message in given:
        match message:
            case m.ToolCallMessage() if _answerable(message):
                call = _wire_call(message)
                _assistant(out).setdefault("tool_calls", []).append(call)
            case m.ToolOutputMessage() if message.call_id not in elsewhere:
                out.append({"role": "tool", "tool_call_id": message.call_id or "", "content": message.content})
            case m.ConsoleMessage() if message.call_id in calls:
                if message.call_id not in answered:
                    _console(out, message)
            case m.ConsoleMessage():
                _user(out, {"type": "text", "text": f"```output\n{message.content}\n```"})
            case m.CodeMessage() if message.call_id not in calls:
                _say(out, f"```{message.format or ''}\n{message.content}\n```")
            case m.RefusalMessage():
                assistant = _assistant(out)
                assistant["refusal"] = assistant.get("refusal", "") + message.content
            case m.TextMessage() if message.role == "assistant":
                _say(out, message.content)
            case m.TextMessage() if message.role == "user":
                _user(out, {"type": "text", "text": message.content})
            case m.TextMessage() if message.role in ("system", "developer"):
                out.append({"role": message.role, "content": message.content})
            case _ if message.role == "user" and not isinstance(message, _DROPPED):
                _user(out, _part(message))
            case _:
                pass
    return out


def _answerable(call: m.ToolCallMessage) -> bool:
    return call.status == "completed" and not call.provider_executed


def _wire_call(call: m.ToolCallMessage) -> dict[str, Any]:
    id = call.call_id or call.id
    if call.metadata.get("custom"):
        return {"id": id, "type": "custom", "custom": {"name": call.name or "", "input": call.content}}
    return {"id": id, "type": "function", "function": {"name": call.name or "", "arguments": call.content or "{}"}}


def _assistant(out: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being written."""
    if not out or out[-1]["role"] != "assistant":
        out.append({"role": "assistant", "content": None})
    return out[-1]


def _say(out: list[dict[str, Any]], text: str) -> None:
    assistant = _assistant(out)
    said = assistant["content"]
    between = "\n" if said and (text.startswith("```") or said.endswith("\n```")) else ""
    assistant["content"] = text if said is None else said + between + text


def _user(out: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """A part of what the user says: the content is a string while it is one text."""
    if not out or out[-1]["role"] != "user":
        out.append({"role": "user", "content": part["text"] if part["type"] == "text" else [part]})
        return
    content = out[-1]["content"]
    out[-1]["content"] = [*([{"type": "text", "text": content}] if isinstance(content, str) else content), part]


def _console(out: list[dict[str, Any]], message: m.ConsoleMessage) -> None:
    """Console output as the answer of its call, which may come in several messages."""
    last = out[-1] if out else {}
    if last.get("tool_call_id") == message.call_id:
        last["content"] += message.content
    else:
        out.append({"role": "tool", "tool_call_id": message.call_id, "content": message.content})


def _part(message: Message) -> dict[str, Any]:
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format == "url":
            return {"type": "image_url", "image_url": {"url": content}}
        case "image" if format.startswith("base64."):
            url = f"data:image/{format.removeprefix('base64.')};base64,{content}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio" if format in ("wav", "mp3"):
            return {"type": "input_audio", "input_audio": {"data": content, "format": format}}
        case "file" if format == "file_id":
            return {"type": "file", "file": {"file_id": content}}
        case type:
            what = f"the user's {type} {message.id!r}" + (f", whose format is {format!r}" if format else "")
            raise UsageError(f"Chat Completions cannot take {what}")
