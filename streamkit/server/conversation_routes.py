"""The endpoints of conversations."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import StaleVersionError
from ..messages import Message
from ..protocols.request_body import Fields
from ..stores import Conversation
from .core import Server
from .inputs import limit_in
from .problem import Problem
from .records import conversation_of

__all__ = ["ConversationRoutes"]

_DELETED = "the conversation was deleted"


class ConversationRoutes:
    """Endpoints, each called with the request and the value of its body."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def all(self, request: Request, body: Any) -> Response:
        """The conversations, the last updated first."""
        limit, before = limit_in(request.query_params), request.query_params.get("before")
        await self._server.owner(request)
        found: list[dict[str, Any]] = []
        while True:
            page = await self._server.store.alist(limit=limit + 1, before=before)
            for one in page:
                if not await self._server.may_see(request, one):
                    continue
                if len(found) == limit:
                    return JSONResponse({"conversations": found, "more": True})
                found.append(await self._shown(one))
            if len(page) <= limit:
                return JSONResponse({"conversations": found, "more": False})
            before = page[-1].id

    async def get(self, request: Request, body: Any) -> Response:
        """One conversation."""
        found = await self._server.conversation(request, request.path_params["conversation"])
        return JSONResponse(await self._shown(found))

    async def _shown(self, conversation: Conversation) -> dict[str, Any]:
        run = await self._server.open_run(conversation)
        return conversation_of(conversation, None if run is None else run.id)

    async def messages(self, request: Request, body: Any) -> Response:
        """The messages of runs that have ended, and the open run."""
        found = await self._server.conversation(request, request.path_params["conversation"])
        messages, run = await self.past(found)
        shown = None if run is None else {"id": run.id, "cursor": run.cursor}
        return JSONResponse({"messages": [message.to_dict() for message in messages], "run": shown})

    async def past(self, conversation: Conversation) -> tuple[list[Message], Any]:
        """The messages before the open run, and its record; None if there is none."""
        run = await self._server.open_run(conversation)
        saved = await self._server.store.aload(conversation.id)
        messages = [] if saved is None else saved.messages
        if run is not None:
            messages = [*takewhile(lambda message: message.run_id != run.id, messages)]
        return messages, run

    async def rollback(self, request: Request, body: Any) -> Response:
        """Take the messages from one of the user's on out of a conversation."""
        before = Fields(body, "").optional_text("before")
        found = await self._server.conversation(request, request.path_params["conversation"])
        removed = await self.roll_back(found, before)
        input = [message.to_dict() for message in removed if message.role == "user"]
        return JSONResponse({"removed": [message.id for message in removed], "input": input})

    async def roll_back(self, conversation: Conversation, before: str | None) -> list[Message]:
        """Remove the messages from one of the user's on; the last one's turn by default. Returns them.

        Raises:
            Problem: a run is open, or the user has no such message.
        """
        if (run := await self._server.open_run(conversation)) is not None:
            raise Problem("conversation-busy", extra={"run": run.id})
        saved = await self._server.store.aload(conversation.id)
        messages = [] if saved is None else saved.messages
        place = _place_of(messages, before)
        if saved is None or place is None:
            fault = "is the id of no message of the user" if before is not None else "is missing: the user said nothing"
            raise Problem("invalid", extra={"errors": [{"path": "before", "fault": fault}]})
        try:
            await self._server.store.asave(conversation.id, messages[:place], saved.version)
        except StaleVersionError:
            raise Problem("conversation-busy", "The conversation was changed meanwhile.") from None
        return messages[place:]

    async def delete(self, request: Request, body: Any) -> Response:
        """Remove a conversation."""
        found = await self._server.conversation(request, request.path_params["conversation"])
        if (run := await self._server.open_run(found)) is not None:
            await self._server.relay.acancel(run.id, _DELETED)
        await self._server.store.adelete(found.id)
        newest = await self._server.relay.alist(conversation=found.id, limit=1)
        now = await self._server.store.aget(found.id) if newest else None
        if newest and (now is None or now.run != newest[0].id):  # one that began at this very moment
            await self._server.relay.acancel(newest[0].id, _DELETED)
        return Response(status_code=204)


def _place_of(messages: list[Message], before: str | None) -> int | None:
    """Where the turn begins that has this message of the user, by its id or that of its group."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "user" and (before is None or before in (message.id, message.group)):
            while place and messages[place - 1].role == "user" and messages[place - 1].run_id == message.run_id:
                place -= 1
            return place
    return None
