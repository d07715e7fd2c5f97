"""What a server's factory makes an agent for."""

from __future__ import annotations

from typing import Any

import msgspec

from ..messages import Message

__all__ = ["Context"]


class Context(msgspec.Struct, kw_only=True):
    """The run that an agent is made for.

    Attributes:
        run_id: the run's id.
        conversation_id: the id of the conversation that it belongs to.
        messages: the conversation before this run; where the run was taken over, with what it has done so far. The server
            puts them into the agent.
        input: what the user said now; empty where the run was taken over.
        metadata: what the client sent along with the run.
        owner: who began it, as `authorize` said; None if it said nothing.
    """

    run_id: str
    conversation_id: str
    messages: list[Message]
    input: list[Message]
    metadata: dict[str, Any]
    owner: str | None
