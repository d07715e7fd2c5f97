"""The endpoints of `useChat` and of AG-UI."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from .conversation_routes import ConversationRoutes
from .core import Server
from .problem import Problem
from .run_routes import RunRoutes

__all__ = ["UiRoutes"]


class UiRoutes:
    """Endpoints, each called with the request and the value of its body."""

    def __init__(self, server: Server, runs: RunRoutes, conversations: ConversationRoutes) -> None:
        self._server = server
        self._runs = runs
        self._conversations = conversations

    async def chat(self, request: Request, body: Any) -> Response:
        raise Problem("not-found")

    chat_messages = chat_stream = chat_stop = agui = chat
