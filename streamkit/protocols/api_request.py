"""`ApiRequest`: what a client of a model's API has sent to a server of ours, which answers with an agent in the model's place.

    body -> from_request -> ApiRequest -> an agent with its history, input and tools -> a stream -> request.encoder() -> the answer

Each API's package reads its own bodies (`from_request`), into this one form.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import msgspec

from ..events import Event, RunDone, StreamException, StreamRetry
from . import base
from .answer_activity import Activity
from .answer_stage import AnswerStage
from .ui_answers import ToolResult

__all__ = ["ApiEncoder", "ApiRequest", "ToolChoice"]

_ENCODERS = {
    "openai_chat": ("openai_chat.answer", "ChatAnswer"),
    "openai_responses": ("openai_responses.answer", "ResponsesAnswer"),
    "anthropic": ("anthropic.answer", "MessagesAnswer"),
}


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the client wants of its tools.

    Attributes:
        mode: `auto`; `none`, the model is not offered them; `required`, it has to call a tool.
        name: the tool that it has to call, None for any.
        parallel: whether it may call several at once; None leaves it to the provider.
    """

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = None
    parallel: bool | None = None


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model's API, in the form of an agent. It comes from a client, so every value in it may be forged.

    Attributes:
        protocol: of the API: `openai_chat`, `openai_responses` or `anthropic`.
        model: the model's name, as the client has it.
        stream: whether it wants the answer as an event stream.
        system: all system prompts, in order, "" for none.
        history: the flat messages before the input. Each call in it has an output.
        input: the user's flat messages after the last message of another role.
        tools: the schemas of the tools that the client runs, as `Agent(tools=)` takes them.
        tool_choice: what it wants of them.
        answers: the outputs at the end of the history, or at its end but for the input.
        options: what the server wants to know of other fields, by their canonical names, such as `max_output_tokens`.
        include_usage: whether the stream is to end with the token counts.
        previous_id: the id of the response that this one goes on from, None for none.
        store: whether the answer is to be kept for that.
        background: whether it goes on where the client leaves.
        metadata: what the client's application attached; `user` among it.
        ignored: the names of the fields that have no effect.
    """

    protocol: str
    model: str
    stream: bool = False
    system: str = ""
    history: list[Any] = []
    input: list[Any] = []
    tools: list[dict[str, Any]] = []
    tool_choice: ToolChoice = ToolChoice()
    answers: list[ToolResult] = []
    options: dict[str, Any] = {}
    include_usage: bool = False
    previous_id: str | None = None
    store: bool = False
    background: bool = False
    metadata: dict[str, Any] = {}
    ignored: list[str] = []

    def encoder(self, *, id: str | None = None, activity: Activity = "hidden", asks: bool = False) -> ApiEncoder:
        """Return the encoder that answers it, for the `sse` of an agent's stream; its `body()` is the whole answer where
        that is not streamed.

        Args:
            id: the run's id, which the answer and the ids of the client's calls are named after. By default they have those
                of the agent's stream.
            activity: how the answer shows what the agent calls and runs itself.
            asks: whether a confirmation that nobody decided is shown at its end, as a question that the next request answers.
        """
        module, name = _ENCODERS[self.protocol]
        kind: type[ApiEncoder] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        return kind(self, id=id, activity=activity, asks=asks)


class ApiEncoder(base.Encoder):
    """Encodes an agent's run as the answer to a request. `ApiRequest.encoder` makes one.

    A subclass states the protocol's encoder, and what the ids begin with; `_shown` changes its items, and `_add` and `_whole`
    make the whole answer of them.

    Args:
        request: the request.
        id: the run's id, None for that of the stream.
        activity: how the agent's own calls are shown.
        asks: whether a confirmation that nobody decided is shown at the end, as a question.

    Attributes:
        encoder_class: the protocol's own encoder.
        id_prefix, call_prefix: what the ids of answers and of the client's calls begin with, before that of the run.
        reasoning_format: the format of messages with reasoning.
    """

    encoder_class: ClassVar[type[base.Encoder]]
    id_prefix: ClassVar[str]
    call_prefix: ClassVar[str]
    reasoning_format: ClassVar[str | None] = None
    sse_ids = False

    def __init__(self, request: ApiRequest, *, id: str | None, activity: Activity, asks: bool = False) -> None:
        self.request = request
        self._encoder = self.encoder_class()
        self._held: list[Event] = []  # of an answer that is not streamed
        self._stage = AnswerStage(
            [tool["name"] for tool in request.tools],
            request.model,
            answer_id=None if id is None else f"{self.id_prefix}{id}",
            run_id=id,
            call_prefix=self.call_prefix,
            reasoning_format=self.reasoning_format,
            activity=activity,
            asks=asks,
        )

    @property
    def has_begun(self) -> bool:
        """Whether the model has said anything."""
        return self._stage.has_begun

    @property
    def has_failed(self) -> bool:
        """Whether the answer has ended with an error."""
        return self._stage.has_failed

    def feed(self, event: Event) -> Iterator[dict[str, Any]]:
        """Yield the items of one event of the run: none, where the answer is not streamed."""
        if self.request.stream:
            yield from self._encode(event)
            return
        if isinstance(event, StreamRetry):
            self._held = [one for one in self._held if _message_id(one) not in event.withdrawn]
        self._held.append(event)
        if isinstance(event, RunDone | StreamException):
            self._complete()

    def _encode(self, event: Event) -> Iterator[dict[str, Any]]:
        for one in self._stage.feed(event):
            if self.has_failed:
                self.done = None  # what ends with an error is not complete
            for item in self._encoder.items(one):
                yield from self._shown(item)

    def _complete(self) -> None:
        """Add what has come of an answer that is not streamed, and was not taken back, to the whole."""
        held, self._held = self._held, []
        for event in held:
            for item in self._encode(event):
                self._add(item)

    def items(self, event: Event) -> Iterable[dict[str, Any]]:
        """Return the items of one event: the stage decides what is left out."""
        return self.feed(event)

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        """Return the SSE event name of an item."""
        return self._encoder.event_name(item)

    def body(self) -> dict[str, Any]:
        """Return the whole answer to a request that does not want a stream, as far as it has come."""
        self._complete()
        return self._whole()

    def _shown(self, item: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield item

    def _add(self, item: dict[str, Any]) -> None:
        raise NotImplementedError(f"{type(self).__name__}._add")

    def _whole(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__}._whole")


def _message_id(event: Event) -> str | None:
    """Return the id of the message that an event is about."""
    message: Any = getattr(event, "message", None)
    return event.message_id or getattr(message, "id", None)
