"""Converts messages into the `messages=` of a chat with Cohere.

What the user gave is either converted or refused with an error; it is never left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...answers import Confirmation
from ...messages import Message, ReasoningMessage, RefusalMessage, TextMessage, ToolCallMessage
from ..request_content import LeftOut, Report, cannot_take, image_url, report_nothing
from ..turns import Turn, call_id_of, turns_of
from .encoder import arguments_of
from .wire import KEY, is_plan

__all__ = ["to_input"]


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the `messages=` of a request.

    An answer goes back as one message: its plan, its thinking and its texts in their order, and its calls. Citations are left out,
    as the API does without them. Each call has its result. `turns` states what else is left out; so is reasoning of other
    protocols.

    Raises:
        UsageError: the user gave an image that is a path or an id, a file, audio, or a message of an unknown type.
    """
    request: list[dict[str, Any]] = []
    for turn in turns_of(messages, report):
        match turn.role:
            case "assistant":
                request.append(_answer(turn, report))
            case "tool":
                request += [
                    {"role": "tool", "tool_call_id": call_id_of(call), "content": content}
                    for call, content in turn.results
                ]
            case "user":
                request.append({"role": "user", "content": _question(turn)})
            case _:
                request.append({"role": "system", "content": turn.text})
    return request


def _answer(turn: Turn, report: Report) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant"}
    if content := [block for part in turn.parts if (block := _block(part)) is not None]:
        is_text = all(block["type"] == "text" for block in content)
        answer["content"] = turn.text if is_text else content
    if plan := "".join(part.content for part in turn.reasoning if is_plan(part)):
        answer["tool_plan"] = plan
    for part in turn.reasoning:
        if KEY not in part.metadata:
            report(LeftOut(part, "it is reasoning of another protocol"))
    if calls := [_call(call) for call in turn.calls]:
        answer["tool_calls"] = calls
    return answer


def _block(part: Message) -> dict[str, Any] | None:
    """Return a part of an answer as a block of content; None if it is none."""
    match part:
        case ReasoningMessage() if KEY in part.metadata and not is_plan(part):
            return {"type": "thinking", "thinking": part.content}
        case TextMessage() | RefusalMessage() if part.content:
            return {"type": "text", "text": part.content}
        case _:
            return None


def _call(call: ToolCallMessage) -> dict[str, Any]:
    function = {"name": call.name or "", "arguments": arguments_of(call)}
    return {"id": call_id_of(call), "type": "function", "function": function}


def _question(turn: Turn) -> Any:
    if all(isinstance(part, TextMessage) for part in turn.parts):
        return turn.text
    return [_part(part) for part in turn.parts]


def _part(part: Message) -> dict[str, Any]:
    """Return what the user gave as a part. Raises `UsageError` if there is none for it."""
    if isinstance(part, TextMessage):
        return {"type": "text", "text": part.content}
    if part.type == "image" and (part.format == "url" or (part.format or "").startswith("base64.")):
        return {"type": "image_url", "image_url": {"url": image_url(part)}}
    raise cannot_take("Cohere", part, "it takes images, as a URL or in base64")
