"""The OpenAI Agents SDK: the events of `Runner.run_streamed(…)`.

Terminal rule: the run is complete with `run_result`, made of the SDK's result, which its source adds after the last event. Where a
generator of the user's own gives the events alone, it is complete if it ends after a complete response. The events are documented
at https://openai.github.io/openai-agents-python/streaming/.

What the model says are events of the Responses API, whichever API it is called over: each response is read by a decoder of that
API. The finished items, which the SDK gives again, are passed over, but for the outputs of calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...answers import Confirmation, Outcome
from ...events import (
    ConfirmationCreated,
    ConfirmationDone,
    Event,
    MessageDone,
    NewMessage,
    Run,
    RunCreated,
    RunDone,
    RunStepCreated,
    Usage,
)
from ...messages import CodeMessage, Message, RefusalMessage, TextMessage, ToolCallMessage
from ...messages.sdk_objects import as_item
from .. import openai_responses
from ..values import (
    WireObject,
    as_list,
    as_object,
    as_objects,
    as_text,
    is_object,
    text_or_json,
    text_or_none,
    without_keys,
)
from .decoder import FrameworkDecoder

__all__ = ["Decoder"]

_NO_ID = "__fake_id__"  # of all items and responses of the SDK's models of other APIs
_CUT = {"type": "response.incomplete"}  # ends what a response has begun
# What is read of the finished items, by the names of their events, as the SDK spells them.
_READ_ITEMS = ("tool_output", "handoff_occured", "mcp_approval_response", "message_output_created")
# What the SDK gives the model where a tool has failed. Nothing else marks such an output.
_FAILURE = re.compile(r"An error occurred while running the tool\.|Tool '.*' timed out after ")


class Decoder(FrameworkDecoder):
    """Decodes the events of a run."""

    name = "openai_agents"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._response = openai_responses.Decoder(self.new_id)
        self._outcome: Run | None = Run()  # that of the newest response; None while it is read
        self._agent = ""
        self._texts: list[str] = []  # of the newest response
        self._item_ids: set[str] = set()  # of the newest response
        self._used_ids = {_NO_ID}
        self._complete: dict[str, Message] = {}  # calls, and code in their place, by call id
        self._questions: dict[str, Confirmation] = {}
        self._inners: dict[str, Decoder] = {}  # of the agents that are tools, by the ids of their calls

    def item_of(self, value: Any) -> Any:
        """Return a dict of an event or of the result, with what is read of it."""
        if is_object(value):
            call = value.get("tool_call")
            if call is None or "event" not in value:
                return value
            return {"type": "inner", "call_id": call.call_id, "event": self.item_of(value["event"])}  # of `on_stream`
        return _item_of(value)

    def finish(self) -> Iterator[Event]:
        """Yield the end of a run whose events alone were given."""
        if not self.complete and self._has_begun and self._outcome is not None:
            yield from self._end_run(self._outcome.status, self._outcome.finish_reason)

    # -- responses

    def _read_response(self, item: WireObject) -> Iterator[Event]:
        data = as_object(item.get("data"))
        begins = data.get("type") == "response.created" or self._outcome is not None
        if begins:
            yield from self._cut_response()
            self._response = openai_responses.Decoder(self.new_id)
            self._used_ids |= self._item_ids
            self._item_ids.clear()
        data = self._with_own_ids(data)
        self._response.index = self.index
        events = [*self._response.feed(data)]
        if begins:
            yield from self._begin_response(
                next((event.run for event in events if isinstance(event, RunCreated)), Run())
            )
        yield from self._of_response(events)

    def _with_own_ids(self, data: WireObject) -> WireObject:
        """Return an event of the Responses API without the ids of items that are none, or that items of an earlier response had. Items
        without an id are told apart by their places."""
        own = self._with_own_id(data, "item_id")
        if item := as_object(own.get("item")):
            own = {**own, "item": self._with_own_id(item, "id")}
        if output := as_objects((response := as_object(own.get("response"))).get("output")):
            own = {**own, "response": {**response, "output": [self._with_own_id(item, "id") for item in output]}}
        return own

    def _with_own_id(self, value: WireObject, key: str) -> WireObject:
        id = as_text(value.get(key))
        if id in self._used_ids:
            return without_keys(value, key)
        if id:
            self._item_ids.add(id)
        return value

    def _cut_response(self) -> Iterator[Event]:
        """End what a response has begun that another one follows before its end."""
        if self._outcome is None:
            yield from self._of_response(self._response.feed(_CUT))

    def _begin_response(self, response: Run) -> Iterator[Event]:
        self._outcome = None
        self._texts.clear()
        yield from self._begin_run(model=response.model)
        named = {"agent": self._agent, "response_id": "" if response.id == _NO_ID else response.id}
        yield from self._begin_step(
            created_at=response.created_at, metadata={key: name for key, name in named.items() if name}
        )

    def _of_response(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of a response that are the run's as well."""
        for event in events:
            event.position = None  # its number, which begins anew with each response
            if isinstance(event, NewMessage | MessageDone):
                event.message.parent_id = self.parent_id
            match event:
                case RunCreated() | RunStepCreated() | Usage(total_tokens=0):
                    continue
                case RunDone(run=outcome):
                    self._outcome = outcome
                    continue
                case MessageDone(message=TextMessage(content=text) | RefusalMessage(content=text)):
                    self._texts.append(text)
                case MessageDone(message=ToolCallMessage() | CodeMessage() as call) if call.call_id:
                    self._complete[call.call_id] = call
                case ConfirmationCreated(confirmation=question):
                    self._questions[question.id] = question
                case _:
                    pass
            yield event

    # -- other items

    def _read_agent(self, item: WireObject) -> Iterable[Event]:
        self._agent = as_text(item.get("agent"))
        return ()

    def _read_item(self, item: WireObject) -> Iterator[Event]:
        raw = as_object(item.get("raw_item"))
        if not raw:
            return
        if item.get("name") == "mcp_approval_response":
            yield from self._read_decision(raw)
        elif item.get("name") == "message_output_created":
            yield from self._read_message(raw)
        elif raw.get("type") == "function_call_output":
            call_id, text = text_or_none(raw.get("call_id")), text_or_json(raw.get("output"))
            name = call.name if (call := self._complete.get(call_id or "")) is not None else None
            yield self._output(call_id, text, name=name, failed=_FAILURE.match(text) is not None)
        else:
            yield from self._read_done(raw)

    def _read_done(self, raw: WireObject) -> Iterator[Event]:
        return self._of_response(self._response.feed({"type": "response.output_item.done", "item": raw}))

    def _read_message(self, raw: WireObject) -> Iterator[Event]:
        """A message that is no model's, which is an answer of its own: what the application has put in the place of an error
        (`error_handlers`)."""
        parts = as_objects(raw.get("content"))
        text = "".join(as_text(part.get("text")) or as_text(part.get("refusal")) for part in parts)
        if raw.get("id") == _NO_ID and text not in self._texts:
            yield from self._begin_step()
            yield from self._read_done(without_keys(raw, "id"))

    def _read_inner(self, item: WireObject) -> Iterator[Event]:
        """An event of an agent that is a tool."""
        call_id = as_text(item.get("call_id"))
        if call_id not in self._inners:
            self._inners[call_id] = self._inner(call_id)
        yield from self._of_inner(self._inners[call_id].feed(as_object(item.get("event"))))

    def _read_decision(self, raw: WireObject) -> Iterator[Event]:
        """What a callback has answered to an MCP server."""
        question = self._questions.get(as_text(raw.get("approval_request_id")))
        if question is not None:
            status: Outcome = "approved" if raw.get("approve") is True else "declined"
            reason = text_or_none(raw.get("reason"))
            yield ConfirmationDone(Confirmation(question.id, question.subject, status=status, reason=reason))

    def _read_result(self, item: WireObject) -> Iterator[Event]:
        questions = as_list(item.get("interruptions"))
        for question in map(as_object, questions):
            yield from self._read_question(question)
        if questions:
            yield from self._end_run("requires_action")
        elif self._outcome is None or item.get("has_output") is False:
            yield from self._end_run("cancelled")  # by the application, on the SDK's result
        else:
            is_cut = self._outcome.status == "incomplete"
            yield from self._end_run("incomplete" if is_cut else "completed", self._outcome.finish_reason)

    def _read_question(self, raw: WireObject) -> Iterator[Event]:
        """A call waits for an approval. One of an MCP server was reported by the response."""
        id = as_text(raw.get("call_id") or raw.get("id"))
        if id in self._questions:
            return
        if (call := self._complete.get(id)) is not None:
            yield ConfirmationCreated(Confirmation(f"{id}.approval", call))
        else:
            yield self._ask(id, text_or_json(raw.get("arguments", "")), name=text_or_none(raw.get("name")))

    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {
        "raw_response_event": _read_response,
        "run_item_stream_event": _read_item,
        "agent_updated_stream_event": _read_agent,
        "run_result": _read_result,
        "inner": _read_inner,
    }


def _item_of(value: Any) -> Any:
    kind = getattr(value, "type", None)
    if kind == "raw_response_event":
        return {"type": kind, "data": as_item(value.data)}
    if kind == "run_item_stream_event":
        raw = {"raw_item": as_item(value.item.raw_item)} if value.name in _READ_ITEMS else {}
        return {"type": kind, "name": value.name, **raw}
    if kind == "agent_updated_stream_event":
        return {"type": kind, "agent": value.new_agent.name}
    if not hasattr(value, "interruptions"):
        return value
    questions = [as_item(item.raw_item) for item in value.interruptions]
    return {"type": "run_result", "interruptions": questions, "has_output": value.final_output is not None}
