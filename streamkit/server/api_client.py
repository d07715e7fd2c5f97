"""What a client of a model's API wants of the agent of its run, and what the server does in its place."""

from __future__ import annotations

from typing import Any

from ..agent import Agent, AsyncAgent
from ..agent.model_request import ModelRequest
from ..answers import Confirmation
from .decisions import decisions_in
from .records import ClientRequest

__all__ = ["DECLINED", "ClientOfApi"]

DECLINED = "This client cannot be asked for an approval."
"""What the model reads where a call would have to be confirmed."""


class ClientOfApi:
    """The client of one run. It is gone when it has the answer: what it has to say itself, its next request says."""

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._decisions: dict[str, Any] = {}  # by the ids of confirmations

    def prepare(self, agent: Agent[Any] | AsyncAgent[Any]) -> None:
        """Give the agent the client's system prompt. Its tools it has already; what the client wants of them, each model call has."""
        self._decisions = decisions_in(agent.messages)
        agent.instructions = "\n\n".join(filter(None, (agent.instructions, self._request.system)))
        before = agent.before_request

        def change(request: ModelRequest) -> Any:
            self._put_tool_choice(request, agent)
            return None if before is None else before(request)

        agent.before_request = change

    def _put_tool_choice(self, request: ModelRequest, agent: Agent[Any] | AsyncAgent[Any]) -> None:
        """Put what the client wants of its tools into a request, in the words of the agent's provider."""
        choice = self._request.tool_choice
        if self._request.tools:
            request.options |= agent.provider.tool_choice(
                required=choice.mode == "required", name=choice.name, parallel=choice.parallel
            )

    def decide(self, confirmation: Confirmation) -> None:
        """Answer what has to be confirmed, as the client has, or because it cannot be asked. Else nobody answers: the run ends."""
        decision = self._decisions.pop(confirmation.id, None)
        if decision is not None:
            confirmation.approve() if decision["approved"] else confirmation.decline(decision["reason"])
        elif not self._request.asks:
            confirmation.decline(DECLINED)
