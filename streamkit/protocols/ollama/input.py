"""Converts messages into the `messages=` of a chat with Ollama.

What the user gave is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...answers import Confirmation
from ...messages import Message, TextMessage, ToolCallMessage
from ..request_content import LeftOut, Report, cannot_take, report_nothing
from ..turns import Turn, turns_of
from .encoder import wire_call
from .wire import is_own, own_fields

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the `messages=` of a request.

    The texts of a turn are joined; the user's images in base64 are its `images`. An answer goes back as one message: its reasoning
    (Ollama's own alone), its text, and its calls, with the ids that came from a server. Each call has its result, in the order of
    the calls: servers that know no ids pair them so. `turns` states what is left out.

    Raises:
        UsageError: the user gave an image that is not base64, a file, audio, or a message of an unknown type.
    """
    request: list[dict[str, Any]] = []
    for turn in turns_of(messages, report):
        match turn.role:
            case "assistant":
                request.append(_answer(turn, report))
            case "tool":
                request += [_result(call, content) for call, content in turn.results]
            case "user":
                request.append(_question(turn))
            case _:
                request.append({"role": "system", "content": turn.text})
    return request


def _answer(turn: Turn, report: Report) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if thinking := "".join(part.content for part in turn.reasoning if is_own(part)):
        answer["thinking"] = thinking
    for part in turn.reasoning:
        if not is_own(part):
            report(LeftOut(part, "it is reasoning of another protocol"))
    if calls := [wire_call(call, _wire_id(call)) for call in turn.calls]:
        answer["tool_calls"] = calls
    return answer


def _result(call: ToolCallMessage, content: str) -> dict[str, Any]:
    result: dict[str, Any] = {"role": "tool", "content": content, "tool_name": call.name or ""}
    if id := _wire_id(call):
        result["tool_call_id"] = id
    return result


def _wire_id(call: ToolCallMessage) -> str | None:
    """Return the id that a server gave a call; None if streamkit made it."""
    id: str | None = own_fields(call).get("id") if is_own(call) else call.call_id
    return id


def _question(turn: Turn) -> dict[str, Any]:
    question: dict[str, Any] = {"role": "user", "content": turn.text}
    for part in turn.parts:
        if part.type == "image" and (part.format or "").startswith("base64."):
            question.setdefault("images", []).append(part.content)
        elif not isinstance(part, TextMessage):
            raise cannot_take("Ollama", part, "it takes images in base64")
    return question
