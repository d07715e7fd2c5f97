"""Requests of Chat Completions, of OpenAI and of the many servers that imitate it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from .api import Api, host_of, is_refusal
from .responses import OPENAI_HOST
from .tool_schemas import chat_tool

if TYPE_CHECKING:
    from ..output import NativeFormat

__all__ = ["ChatApi", "chat_arguments", "outputs_after_calls"]


class ChatApi(Api):
    """`client.chat.completions.create`.

    A request asks for the token counts. Some compatible servers refuse arguments that they do not know: one that refuses this
    is asked without it, from then on.
    """

    protocol = "openai_chat"
    package = "openai"
    method = "chat.completions.create"

    def __init__(self, client: Any) -> None:
        super().__init__(client)
        # Whether the server counts tokens on request; None before the first answer.
        self._takes_usage = True if host_of(client) == OPENAI_HOST else None

    def arguments(self, input: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the arguments of a request."""
        return chat_arguments(input, instructions, tools)

    def put_output(self, arguments: dict[str, Any], output: NativeFormat) -> None:
        """State the output as the format of the response."""
        schema = {"name": output.name, "schema": dict(output.schema), "strict": output.strict}
        arguments.setdefault("response_format", {"type": "json_schema", "json_schema": schema})

    def named_choice(self, name: str) -> dict[str, Any]:
        """Return the `tool_choice` of a function."""
        return {"type": "function", "function": {"name": name}}

    def sending(self, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that sends a request with these arguments."""
        if "stream_options" in arguments or self._takes_usage is False:
            return super().sending(arguments)
        with_usage = super().sending({**arguments, "stream_options": {"include_usage": True}})
        if self._takes_usage:
            return with_usage
        send = self._try_usage_async if self.is_async else self._try_usage
        return partial(send, with_usage, super().sending(arguments))

    def _try_usage(self, with_usage: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """Send the request that asks for the tokens; where the server refuses it, once more without that."""
        try:
            answer = with_usage()
        except Exception as error:
            if not is_refusal(error):
                raise
            answer = plain()
            self._takes_usage = False
        else:
            self._takes_usage = True
        return answer

    async def _try_usage_async(self, with_usage: Callable[[], Any], plain: Callable[[], Any]) -> Any:
        """As `_try_usage`, for an async client."""
        try:
            answer = await with_usage()
        except Exception as error:
            if not is_refusal(error):
                raise
            answer = await plain()
            self._takes_usage = False
        else:
            self._takes_usage = True
        return answer


def chat_arguments(messages: list[Any], instructions: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments of a request in the form of Chat Completions, which other APIs have for messages and tools too."""
    system = [{"role": "system", "content": instructions}] if instructions else []
    arguments: dict[str, Any] = {"messages": [*system, *outputs_after_calls(messages)]}
    if tools:
        arguments["tools"] = [chat_tool(tool) for tool in tools]
    return arguments


def outputs_after_calls(messages: list[Any]) -> list[Any]:
    """Messages with each tool output right after the message of its call, as the API requires.

    What stood in between (the output of code that another provider ran) follows the tool outputs.
    """
    ordered: list[Any] = []
    output_index = 0  # where the next output goes
    for message in messages:
        if message["role"] == "tool":
            ordered.insert(output_index, message)
            output_index += 1
        else:
            ordered.append(message)
            output_index = len(ordered) if message["role"] == "assistant" else output_index
    return ordered
