"""The items that a client of Responses refers to by their ids, in place of sending them: Vercel's `ai` does for all that it was
answered. The conversation of the response has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from ..agent.sub_agent import pending_in
from ..answers import Confirmation
from ..messages import Message, RefusalMessage, TextMessage, ToolCallMessage
from ..protocols.answer_activity import question_text
from ..protocols.answer_stage import QUESTION, call_mark, first_question
from ..protocols.values import is_list, is_object
from .client_conversations import conversation_of_run
from .continuation import load_stored
from .core import Server

__all__ = ["with_items"]

_ITEM = re.compile(r"(?:msg|rs|fc|item)_(?P<run>[A-Za-z0-9_-]{22})_(?P<id>.+)", re.DOTALL).fullmatch
_LEFT_OUT = {"type": "reasoning"}  # no answer of ours has reasoning that goes on


async def with_items(server: Server, request: Request, body: Any) -> Any:
    """Return the body of a request with the items themselves in the place of references. References to responses that are not here
    stay: they are refused as any other item that is not known."""
    items = body.get("input") if is_object(body) else None
    if not is_list(items) or not any(map(_id_in, items)):
        return body
    owner = await server.owner(request)
    conversations: dict[str, Sequence[Message] | None] = {}
    complete: list[Any] = []
    for item in items:
        match = _ITEM(_id_in(item))
        run_id = "" if match is None else match["run"]
        if match is not None and run_id not in conversations:
            found = await load_stored(server, request, run_id, [conversation_of_run(run_id)], owner)
            conversations[run_id] = None if found is None else found.saved.messages
        messages = conversations.get(run_id)
        complete += [item] if match is None or messages is None else _items_of(messages, run_id, match["id"])
    return {**body, "input": complete}


def _id_in(item: object) -> str:
    """Return the id that an item refers to; "" for one that is no reference."""
    if not is_object(item) or item.get("type", "item_reference") != "item_reference" or "role" in item:
        return ""
    id = item.get("id")
    return id if isinstance(id, str) else ""


def _items_of(messages: Sequence[Message], run_id: str, id: str) -> list[Mapping[str, Any]]:
    """Return what an item of a run's answer was. What the answer has shown of other things, such as a question that is answered by
    now, is left out."""
    if id == QUESTION:
        asked = {key: one for key, one in pending_in(messages).items() if isinstance(one, Confirmation)}
        return [_message(question_text(first_question(asked), run_id))] if asked else [_LEFT_OUT]
    match next((one for one in messages if one.id == id), None):
        case TextMessage() | RefusalMessage() as message:
            return [_message(message.content)]
        case ToolCallMessage() as call:
            call_id = f"call_{run_id}_{call_mark(call)}"
            return [{"type": "function_call", "call_id": call_id, "name": call.name, "arguments": call.content}]
        case _:
            return [_LEFT_OUT]


def _message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": text}
