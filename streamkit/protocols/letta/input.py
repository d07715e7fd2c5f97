"""Messages as input: the `messages=` of a request to an agent, which remembers its own messages itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Message
from ..request_content import cannot_take, fenced_block

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Flat messages and answered confirmations as the `messages=` of `agents.messages.create`.

    All answers to waiting calls are one message, the first, as the server requires: confirmations as `approval`s (a
    declined one with its reason), outputs of the client's own tools as returns, with what they printed. An output of an
    approved call is the answer to it. Outputs alone are a `tool_return` message. Only calls of the newest step can wait:
    of all confirmations of a stream, only that step's count.

    Texts of user, system and assistant keep their roles; a user's images (`url`, `base64.…`, `file_id`) become parts
    beside the text. Code outside of any call is a fenced block of the assistant's, what it printed one of the user's.

    Left out by design: reasoning; calls; outputs that came from a stream (they have a `group`), which the server has, and
    outputs of calls among these messages that needed no approval, for which it does not wait; images, audio and files that
    are not the user's; messages of a provider's own type; choices other than the first.

    Raises:
        UsageError: a confirmation was not answered, or Letta cannot take what a user sent: an image that is a path on
            this machine, a file, audio, a message of an unknown type.
    """
    sendable = [message for message in messages if isinstance(message, Confirmation) or message.choice == 0]
    answers = _answers(sendable)
    turns: list[dict[str, Any]] = []
    calls = {call.call_id or call.id for call in sendable if isinstance(call, m.ToolCallMessage)}
    with_output = {output.call_id for output in sendable if isinstance(output, m.ToolOutputMessage)}
    for message in sendable:
        match message:
            case m.TextMessage() if message.role == "user":
                _add_user_part(turns, {"type": "text", "text": message.content})
            case m.TextMessage() | m.RefusalMessage() if message.role in ("assistant", "system") and message.content:
                turns.append({"role": message.role, "content": message.content})
            case m.CodeMessage() if message.call_id not in calls:
                turns.append({"role": "assistant", "content": fenced_block(message.content, message.format)})
            case m.ConsoleMessage() if message.call_id not in calls | with_output:
                _add_user_part(turns, {"type": "text", "text": fenced_block(message.content, "output")})
            case Message(role="user") if not isinstance(message, m.ReasoningMessage | m.ToolCallMessage):
                _add_user_part(turns, _image_part(message))
            case _:
                pass
    return [*answers, *turns]


# -- answers


def _answers(messages: Sequence[Message | Confirmation]) -> list[dict[str, Any]]:
    """Return the one message with all answers to waiting calls; none if there is no answer."""
    confirmations = [message for message in messages if isinstance(message, Confirmation)]
    newest = [one for one in confirmations if one.subject.step_id == confirmations[-1].subject.step_id]
    outputs = _outputs(messages, {_call_id(one) for one in newest if one.status == "declined"})
    approvals = [_approval(one) for one in newest if _call_id(one) not in outputs]
    if newest:
        return [{"type": "approval", "approvals": [*approvals, *outputs.values()]}]
    return [{"type": "tool_return", "tool_returns": [*outputs.values()]}] if outputs else []


def _outputs(messages: Sequence[Message | Confirmation], declined: set[str]) -> dict[str, dict[str, Any]]:
    """Return the outputs for which the server may wait, by call id."""
    calls = [message for message in messages if isinstance(message, m.ToolCallMessage)]
    not_waiting = declined.union(
        call.call_id or call.id for call in calls if not call.metadata.get("requires_approval")
    )
    outputs: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message, m.ToolOutputMessage) and not message.group:
            call_id = message.call_id or message.id
            if call_id not in not_waiting:
                outputs[call_id] = _output(message, call_id, messages)
    return outputs


def _call_id(confirmation: Confirmation) -> str:
    return confirmation.subject.call_id or confirmation.id


def _approval(confirmation: Confirmation) -> dict[str, Any]:
    if not confirmation.answered:
        raise UsageError(f"confirmation {confirmation.id!r} has no answer yet: approve or decline it first")
    approve = confirmation.status == "approved"
    answer = {"type": "approval", "tool_call_id": _call_id(confirmation), "approve": approve}
    return {**answer, "reason": confirmation.reason} if confirmation.reason else answer


def _output(output: m.ToolOutputMessage, call_id: str, messages: Sequence[Message | Confirmation]) -> dict[str, Any]:
    """Return the wire form of a tool's return, with the console output of its call."""
    has_failed = output.metadata.get("error") is True or output.status == "failed"
    consoles = (message for message in messages if isinstance(message, m.ConsoleMessage))
    printed = [console.content for console in consoles if console.call_id == call_id]
    answer: dict[str, Any] = {"type": "tool", "tool_call_id": call_id, "status": "error" if has_failed else "success"}
    return {**answer, "tool_return": output.content, **({"stdout": printed} if printed else {})}


# -- the user's messages


def _add_user_part(turns: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part to the user's turn at the end, or begin one. Its content is a string while it is a single text."""
    if not turns or turns[-1]["role"] != "user":
        turns.append({"role": "user", "content": part["text"] if part["type"] == "text" else [part]})
        return
    content = turns[-1]["content"]
    turns[-1]["content"] = [*([{"type": "text", "text": content}] if isinstance(content, str) else content), part]


def _image_part(message: Message) -> dict[str, Any]:
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format == "url":
            return {"type": "image", "source": {"type": "url", "url": content}}
        case "image" if format.startswith("base64."):
            media_type = f"image/{format.removeprefix('base64.')}"
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": content}}
        case "image" if format == "file_id":
            return {"type": "image", "source": {"type": "letta", "file_id": content}}
        case _:
            raise cannot_take("Letta", message, "it takes text and images by URL, data or id")
