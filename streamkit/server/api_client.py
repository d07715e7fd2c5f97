"""What a client of a model's API wants of the agent of its run, and what the server does in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..agent import Agent, AsyncAgent
from ..agent.model_request import ModelRequest
from ..errors import RequestError
from ..messages import Message
from .records import ClientRequest

__all__ = ["DECLINED", "ClientOfApi"]

DECLINED = "This client cannot be asked for an approval."
"""What the model reads where a call would have to be confirmed."""


class ClientOfApi:
    """The client of one run.

    Attributes:
        declines: whether what has to be confirmed is declined at once.
        stores: whether the conversation outlives the run.
    """

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._input: list[Message] = []
        self.declines = not request.asks
        self.stores = request.stores

    def prepare(self, agent: Agent[Any] | AsyncAgent[Any]) -> None:
        """Give the agent the client's system prompt. Its tools it has already."""
        agent.instructions = "\n\n".join(filter(None, (agent.instructions, self._request.system)))
        before = agent.before_request

        def add_input(request: ModelRequest) -> Any:
            while self._input:
                message = self._input.pop(0)
                agent.messages.append(message)
                request.messages.append(message)
            return None if before is None else before(request)

        agent.before_request = add_input

    def options_for(self, agent: Agent[Any] | AsyncAgent[Any]) -> Mapping[str, Any]:
        """Return the options of each model call, in the words of the agent's provider."""
        choice = self._request.tool_choice
        if not self._request.tools:
            return {}
        return agent.provider.tool_choice(
            required=choice.mode == "required", name=choice.name, parallel=choice.parallel
        )

    def add_input(self, answer: Mapping[str, Any]) -> None:
        """Add what the user says after the outputs of tools. The next model call has it, after them."""
        self._input += map(Message.from_dict, answer.get("input", ()))

    def taken_name(self, name: str) -> RequestError:
        """Return the error about a tool whose name is that of one of the agent's own."""
        return RequestError(
            self._request.tool_paths.get(name, "tools"), f"is the name of a tool of the server: {name!r}"
        )
