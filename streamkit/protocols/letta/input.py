"""Messages on their way back: the `messages=` of a request to an agent, which remembers what it said itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Message

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Flat messages and answered confirmations as `messages=` of `agents.messages.create`.

    All answers to what waits are one message, the first, as the server wants it: confirmations as `approval`s (with
    the reason of a no), outputs of the client's own tools as returns, with what they printed. Where there is an output
    for what was approved, it is the answer. Outputs alone are a `tool_return` message. What waits is of one step, the
    newest: of all of a stream's confirmations, only that step's count.

    Texts of user, system and assistant keep their roles; a user's images (`url`, `base64.…`, `file_id`) become parts
    beside the text. Code outside of any call is a fenced block of the assistant's, what it printed one of the user's.

    Left out by design: reasoning; calls, and outputs that a stream told (they have a `group`) or whose call is here and
    asked for no approval: the server has them, or waits for none; images, audio and files that are not the user's; messages of a provider's own type; choices but the first.

    Raises:
        UsageError: a confirmation was not answered, or Letta cannot take what a user gave: an image that is a path on
            this machine, a file, audio, a message of an unknown type.
    """
    given = [one for one in messages if isinstance(one, Confirmation) or one.choice == 0]
    answers = _answers(given)
    out: list[dict[str, Any]] = []
    calls = {call.call_id or call.id for call in given if isinstance(call, m.ToolCallMessage)}
    returned = {one.call_id for one in given if isinstance(one, m.ToolOutputMessage)}
    for message in given:
        match message:
            case m.TextMessage() if message.role == "user":
                _user(out, {"type": "text", "text": message.content})
            case m.TextMessage() | m.RefusalMessage() if message.role in ("assistant", "system") and message.content:
                out.append({"role": message.role, "content": message.content})
            case m.CodeMessage() if message.call_id not in calls:
                out.append({"role": "assistant", "content": f"```{message.format or ''}\n{message.content}\n```"})
            case m.ConsoleMessage() if message.call_id not in calls | returned:
                _user(out, {"type": "text", "text": f"```output\n{message.content}\n```"})
            case Message(role="user") if not isinstance(message, m.ReasoningMessage | m.ToolCallMessage):
                _user(out, _image(message))
            case _:
                pass
    return [*answers, *out]


def _answers(given: list[Message | Confirmation]) -> list[dict[str, Any]]:
    """The one message that answers all that waits; none if nothing is answered."""
    asked = [one for one in given if isinstance(one, Confirmation)]
    asked = [one for one in asked if one.subject.step_id == asked[-1].subject.step_id]
    declined = {_call_id(one) for one in asked if one.status == "declined"}
    calls = [one for one in given if isinstance(one, m.ToolCallMessage) and not one.metadata.get("requires_approval")]
    elsewhere = declined.union(call.call_id or call.id for call in calls)  # what is waited for nowhere
    outputs: dict[str, dict[str, Any]] = {}
    for one in given:
        if isinstance(one, m.ToolOutputMessage) and not one.group and (id := one.call_id or one.id) not in elsewhere:
            outputs[id] = _output(one, id, given)
    approvals = [_approval(one) for one in asked if _call_id(one) not in outputs]
    if asked:
        return [{"type": "approval", "approvals": [*approvals, *outputs.values()]}]
    return [{"type": "tool_return", "tool_returns": [*outputs.values()]}] if outputs else []


def _call_id(asked: Confirmation) -> str:
    return asked.subject.call_id or asked.id


def _approval(asked: Confirmation) -> dict[str, Any]:
    if asked.status == "pending":
        raise UsageError(f"confirmation {asked.id!r} has no answer yet: approve or decline it first")
    answer = {"type": "approval", "tool_call_id": _call_id(asked), "approve": asked.status == "approved"}
    return {**answer, "reason": asked.reason} if asked.reason else answer


def _output(output: m.ToolOutputMessage, call_id: str, given: list[Message | Confirmation]) -> dict[str, Any]:
    failed = output.metadata.get("error") is True or output.status == "failed"
    printed = [one.content for one in given if isinstance(one, m.ConsoleMessage) and one.call_id == call_id]
    answer: dict[str, Any] = {"type": "tool", "tool_call_id": call_id, "status": "error" if failed else "success"}
    return {**answer, "tool_return": output.content, **({"stdout": printed} if printed else {})}


def _user(out: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """A part of what the user says: the content is a string while it is one text."""
    if not out or out[-1]["role"] != "user":
        out.append({"role": "user", "content": part["text"] if part["type"] == "text" else [part]})
        return
    content = out[-1]["content"]
    out[-1]["content"] = [*([{"type": "text", "text": content}] if isinstance(content, str) else content), part]


def _image(message: Message) -> dict[str, Any]:
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format == "url":
            return {"type": "image", "source": {"type": "url", "url": content}}
        case "image" if format.startswith("base64."):
            media = f"image/{format.removeprefix('base64.')}"
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": content}}
        case "image" if format == "file_id":
            return {"type": "image", "source": {"type": "letta", "file_id": content}}
        case type:
            what = f"the user's {type} {message.id!r}" + (f", whose format is {format!r}" if format else "")
            raise UsageError(f"Letta cannot take {what}; it takes text and images by URL, data or id")
