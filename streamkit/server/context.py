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
        messages: the conversation before this run; if the run was paused, also what it has done so far. The server puts them
            into the agent.
        input: the new messages of the user; empty if the run was paused and now goes on.
        metadata: what the client sent in `metadata`.
        owner: who began it, as `authorize` returned it; None if it returned no name.
    """

    run_id: str
    conversation_id: str
    messages: list[Message]
    input: list[Message]
    metadata: dict[str, Any]
    owner: str | None
