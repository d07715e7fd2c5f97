"""What a client of a model's API wants of the agent of its run, and what the server does in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..agent import Agent, AsyncAgent
from ..agent.apis import tool_name
from ..agent.model_request import ModelRequest
from ..errors import RequestError
from ..messages import Message
from ..messages.typed_json import converter
from ..protocols.api_request import ToolChoice
from .records import ClientRequest

__all__ = ["DECLINED", "ClientOfApi"]

DECLINED = "This client cannot be asked for an approval."
"""What the model reads where a call would have to be confirmed."""

_choice_in = converter(ToolChoice)


class ClientOfApi:
    """The client of one run.

    Attributes:
        declines: whether what has to be confirmed is declined at once.
        stores: whether the conversation outlives the run.
    """

    def __init__(self, request: ClientRequest) -> None:
        self._request = request
        self._input: list[Message] = []
        self._tool_choice = request.tool_choice  # of the newest request
        self.declines = not request.asks
        self.stores = request.stores

    def prepare(self, agent: Agent[Any] | AsyncAgent[Any]) -> None:
        """Give the agent the client's system prompt. Its tools it has already; what the client wants of them, each model call has."""
        agent.instructions = "\n\n".join(filter(None, (agent.instructions, self._request.system)))
        before = agent.before_request

        def change(request: ModelRequest) -> Any:
            while self._input:
                message = self._input.pop(0)
                agent.messages.append(message)
                request.messages.append(message)
            self._put_tool_choice(request, agent)
            return None if before is None else before(request)

        agent.before_request = change

    def _put_tool_choice(self, request: ModelRequest, agent: Agent[Any] | AsyncAgent[Any]) -> None:
        """Put what the client wants of its tools into a request, in the words of the agent's provider."""
        choice, names = self._tool_choice, {tool["name"] for tool in self._request.tools}
        if choice.mode == "none":
            request.tools = [tool for tool in request.tools if tool_name(tool) not in names]
        elif names:
            request.options |= agent.provider.tool_choice(
                required=choice.mode == "required", name=choice.name, parallel=choice.parallel
            )

    def go_on_with(self, answer: Mapping[str, Any]) -> None:
        """Take what a request said beside the outputs of tools: words of the user, which the next model call has after them, and
        what it wants of the tools."""
        self._input += map(Message.from_dict, answer.get("input", ()))
        if (choice := answer.get("tool_choice")) is not None:
            self._tool_choice = _choice_in(choice)

    def taken_name(self, name: str) -> RequestError:
        """Return the error about a tool whose name is that of one of the agent's own."""
        return RequestError(
            self._request.tool_paths.get(name, "tools"), f"is the name of a tool of the server: {name!r}"
        )
