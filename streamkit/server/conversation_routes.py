"""The endpoints of conversations."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ..errors import StaleVersionError
from ..messages import Message, is_from_user
from ..protocols.request_body import Fields
from ..relay import RunRecord
from ..stores import Conversation, Saved
from .core import Server, list_response
from .inputs import limit_in
from .problem import Problem
from .records import conversation_of
from .response import JsonResponse

__all__ = ["ConversationRoutes", "messages_before"]

_DELETED = "the conversation was deleted"
_LONGEST_TITLE = 200  # characters
_NUMBERED = re.compile(r"(.*) \((\d{1,4})\)", re.DOTALL)


class ConversationRoutes:
    """Endpoints, each called with the request and the value of its body."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def all(self, request: Request, body: Any) -> Response:
        """Return the conversations, the last updated first."""
        limit, before = limit_in(request.query_params), request.query_params.get("before")
        page = await self._server.visible_conversations(request, limit=limit, before=before)
        return list_response("conversations", page)

    async def get(self, request: Request, body: Any) -> Response:
        """Return one conversation."""
        found = await self._server.conversation(request, request.path_params["conversation"])
        return JsonResponse(conversation_of(*found))

    async def messages(self, request: Request, body: Any) -> Response:
        """Return the messages of runs that have ended, and the open run."""
        conversation, run = await self._server.conversation(request, request.path_params["conversation"])
        saved = await self.saved(conversation)
        shown = None if run is None else {"id": run.id, "cursor": run.cursor}
        return JsonResponse({"messages": [one.to_dict() for one in messages_before(run, saved.messages)], "run": shown})

    async def saved(self, conversation: Conversation) -> Saved:
        """Return the messages of a conversation."""
        return await self._server.store.aload(conversation.id) or Saved([], 0)

    async def rollback(self, request: Request, body: Any) -> Response:
        """Take the messages from one of the user's on out of a conversation."""
        before = Fields(body, "").optional_text("before")
        conversation, run = await self._server.conversation(request, request.path_params["conversation"])
        if run is not None:
            raise Problem("conversation-busy", extra={"run": run.id})
        removed = await self.roll_back(conversation, await self.saved(conversation), before)
        input = [message.to_dict() for message in removed if is_from_user(message)]
        return JsonResponse({"removed": [message.id for message in removed], "input": input})

    async def roll_back(self, conversation: Conversation, saved: Saved, before: str | None) -> list[Message]:
        """Remove the messages from one of the user's on; the last one's turn by default. Returns them.

        Args:
            conversation: one that no run has.
            saved: what it has.

        Raises:
            Problem: the user has no such message, or a run has begun meanwhile.
        """
        messages, version = saved
        index = _turn_of(messages, before)
        await self._save(conversation, messages[:index], version)
        return messages[index:]

    async def branch(self, request: Request, body: Any) -> Response:
        """Create a conversation with the messages before one of the user's. The conversation that it is in stays as it is."""
        before = Fields(body, "").text("before")
        owner = await self._server.owner(request)
        conversation, _ = await self._server.conversation(request, request.path_params["conversation"])
        messages = (await self.saved(conversation)).messages
        earlier = messages[: _turn_of(messages, before)]
        id = secrets.token_urlsafe(16)
        title = _title_of_branch(conversation.title)
        await self._server.store.asave(id, earlier, 0, title=title, owner=owner, branch_of=conversation.id)
        return JsonResponse(conversation_of(*await self._server.conversation(request, id)), 201)

    async def rename(self, request: Request, body: Any) -> Response:
        """Give a conversation another title."""
        fields = Fields(body, "")
        title = " ".join(fields.text("title").split())
        if not title or len(title) > _LONGEST_TITLE:
            raise fields.fail("title", f"is empty, or longer than {_LONGEST_TITLE} characters")
        conversation, run = await self._server.conversation(request, request.path_params["conversation"])
        if run is not None:
            raise Problem("conversation-busy", extra={"run": run.id})
        messages, version = await self.saved(conversation)
        await self._save(conversation, messages, version, title=title)
        return JsonResponse(conversation_of(*await self._server.conversation(request, conversation.id)))

    async def _save(
        self, conversation: Conversation, messages: Sequence[Message], version: int, *, title: str | None = None
    ) -> None:
        """Save a conversation that no run has.

        Raises:
            Problem: a run has begun meanwhile.
        """
        try:
            await self._server.store.asave(conversation.id, messages, version, title=title)
        except StaleVersionError:
            raise Problem("conversation-busy", "The conversation was changed meanwhile.") from None

    async def delete(self, request: Request, body: Any) -> Response:
        """Remove a conversation."""
        found, run = await self._server.conversation(request, request.path_params["conversation"])
        if run is not None:
            await self._server.relay.acancel(run.id, _DELETED)
        await self._server.store.adelete(found.id)
        newest = await self._server.relay.alist(conversation=found.id, open_only=True, limit=1)
        now = await self._server.store.aget(found.id) if newest else None
        if newest and (now is None or now.run != newest[0].id):  # one that began at this very moment
            await self._server.relay.acancel(newest[0].id, _DELETED)
        return Response(status_code=204)


def messages_before(run: RunRecord | None, messages: Sequence[Message]) -> list[Message]:
    """Return the messages before those of a run; all of them without one."""
    return [*takewhile(lambda message: run is None or message.run_id != run.id, messages)]


def _turn_of(messages: list[Message], before: str | None) -> int:
    """Return where the turn begins that has this message of the user; the last turn by default.

    Raises:
        Problem: the user has no such message.
    """
    index = _turn_start(messages, before)
    if index is None:
        fault = (
            "is the id of no message of the user"
            if before is not None
            else "is missing: there is no message of the user"
        )
        raise Problem("invalid", extra={"errors": [{"path": "before", "fault": fault}]})
    return index


def _title_of_branch(title: str) -> str:
    """Return the title of a branch: `Tea (2)` of `Tea`, `Tea (3)` of `Tea (2)`."""
    found = _NUMBERED.fullmatch(title)
    return f"{found[1]} ({int(found[2]) + 1})" if found else f"{title} (2)"


def _turn_start(messages: list[Message], before: str | None) -> int | None:
    """Return where the turn begins that has this message of the user, by its id or that of its group."""
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if is_from_user(message) and (before is None or before in (message.id, message.group)):
            while index and messages[index - 1].role == "user" and messages[index - 1].run_id == message.run_id:
                index -= 1
            return index
    return None
