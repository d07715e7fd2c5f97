"""LangGraph: `graph.stream(…)` in all modes, and `graph.astream_events(…)`; so too the agents of LangChain's `create_agent`.

Terminal rule: the end of the source. If the graph has stopped to ask (`interrupt`), the run requires action.

The mode `messages` has chunks, and whole messages that no model streams; `updates` and `values` have the same messages again. A
message is shown once, by its id. A namespace says which tasks of a graph an item comes from. The task of a tool is that of a call if
the stream says so (mode `tasks`, `astream_events`), or if only one call has no output; else its own name stands for the call's id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, Self

from ...events import Event, RawEvent
from ..values import WireObject, as_list, as_object, as_objects, as_text, json_text, text_or_none
from . import langchain
from .langgraph_objects import messages_in, part_of

__all__ = ["Decoder"]

_QUESTIONS = "__interrupt__"


class Decoder(langchain.Decoder):
    """Decodes the parts of a graph's stream."""

    name = "langgraph"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._agents: dict[str, Decoder] = {}  # the sub-agents of calls that run
        self._call_ids: dict[str, str] = {}  # by the tasks that run them
        self._states: set[tuple[str, ...]] = set()  # the namespaces whose state was seen
        self._shown: set[str] = set()  # the ids of messages of states that are items already
        self._questions: set[str] = set()

    def item_of(self, value: Any) -> Any:
        """Return the part of a graph's stream that an item is: of a state, which grows, with its new messages alone."""
        if value.__class__ is dict and value.get("ns").__class__ is list:
            return value  # a part already: LangGraph's own have tuples
        part = part_of(value)
        if part["type"] == "values":
            part["data"] = self._new_in(part["data"])
        return part

    def _new_in(self, state: Any) -> Any:
        if state.__class__ is not dict:
            return state
        new: dict[str, Any] = {}
        for key, value in state.items():
            ids = [as_text(as_object(message).get("id")) for message in as_list(value)]
            new[key] = [m for m, id in zip(value, ids, strict=True) if id not in self._shown] if any(ids) else value
            self._shown.update(filter(None, ids))
        return new

    def finish(self) -> Iterator[Event]:
        """Yield the end of the run, and of its sub-agents before."""
        for agent in self._agents.values():
            yield from self._of_inner(agent.finish())
        if self._questions:
            yield from self._end_run("requires_action")
        else:
            yield from super().finish()

    # -- the parts

    def _read_messages(self, item: WireObject) -> Iterator[Event]:
        pair: list[WireObject] = [*as_objects(item.get("data")), {}, {}]
        message, metadata = pair[:2]
        places = [*filter(None, as_text(metadata.get("langgraph_checkpoint_ns")).split("|"))]
        step = {key: metadata[key] for key in ("langgraph_node", "lc_agent_name") if text_or_none(metadata.get(key))}
        return self._read_in(places or _namespace(item), message, {"metadata": step})

    def _read_updates(self, item: WireObject) -> Iterator[Event]:
        data, namespace = as_object(item.get("data")), _namespace(item)
        rest: dict[str, Any] = {}
        for node, update in data.items():
            if node == _QUESTIONS:
                yield from self._read_questions(update)
                continue
            for message in messages_in(update):
                if not _is_repeated(node, message):
                    yield from self._read_in([*namespace, node], message, {"metadata": {"langgraph_node": node}})
            if other := {
                key: value for key, value in as_object(update).items() if value and not any(messages_in(value))
            }:
                rest[node] = other
        if rest:
            yield RawEvent("updates", rest)

    def _read_values(self, item: WireObject) -> Iterator[Event]:
        """A state. The first one is what the run began with."""
        namespace, data = _namespace(item), as_object(item.get("data"))
        messages = [*messages_in({key: value for key, value in data.items() if key != _QUESTIONS})]
        if tuple(namespace) not in self._states:
            self._states.add(tuple(namespace))
            self._seen.update(as_text(message.get("id")) for message in messages)
            self._answered.update(as_text(message.get("tool_call_id")) for message in messages)
        for message in messages:
            yield from self._read_in([*namespace, "values"], message, {})
        yield from self._read_questions(item.get("interrupts") or data.get(_QUESTIONS))

    def _read_task(self, item: WireObject) -> Iterator[Event]:
        task = as_object(item.get("data"))
        if (call_id := text_or_none(task.get("call_id"))) is not None:
            self._call_ids[as_text(task.get("place"))] = call_id
        return iter(())

    def _read_custom(self, item: WireObject) -> Iterator[Event]:
        yield RawEvent("custom", item.get("data"))

    def _read_nothing(self, item: WireObject) -> Iterator[Event]:
        return iter(())

    def _read_questions(self, questions: Any) -> Iterator[Event]:
        """What the graph asks. The questions of `HumanInTheLoopMiddleware` are about calls."""
        for question in as_objects(questions):
            id, value = as_text(question.get("id")), question.get("value")
            if id in self._questions:
                continue
            self._questions.add(id)
            yield RawEvent("interrupt", dict(question))
            calls = [*self._unanswered.items()]
            for request in as_objects(as_object(value).get("action_requests")):
                asked = next((call for call in calls if call[1] == request.get("name")), None)
                if asked is not None:
                    calls.remove(asked)
                    yield self._ask(asked[0], json_text(request.get("args") or {}))

    # -- agents

    def _read_in(self, places: Sequence[str], message: WireObject, step: Mapping[str, Any]) -> Iterator[Event]:
        """Read a message that comes from this task of a task."""
        read = self.message_readers.get(as_text(message.get("type")))
        if read is None:
            return
        is_output = message.get("type") == "tool"
        agent = self._agent_of(places[:-1] if is_output else places)
        events = read(agent, message, "|".join(places), step)
        if is_output:
            events = chain(events, agent._end_agent(as_text(message.get("tool_call_id"))))
        yield from events if agent is self else self._of_inner(events)

    def _agent_of(self, places: Sequence[str]) -> Decoder:
        agent = self
        for place in places:
            if (call_id := agent._call_in(place)) is not None:
                if call_id not in agent._agents:
                    agent._agents[call_id] = agent._inner(call_id)
                agent = agent._agents[call_id]
        return agent

    def _call_in(self, place: str) -> str | None:
        """Return the id of the call that a task runs, or its own name, if it is that of tools; None for another task."""
        if place not in self._call_ids and place.startswith("tools:"):
            self._call_ids[place] = next(iter(self._unanswered)) if len(self._unanswered) == 1 else place
        return self._call_ids.get(place)

    def _end_agent(self, call_id: str) -> Iterator[Event]:
        """A call has its output: its sub-agent has ended."""
        if (agent := self._agents.pop(call_id, None)) is not None:
            yield from self._of_inner(agent.finish())

    def _inner(self, parent_id: str) -> Self:
        inner = super()._inner(parent_id)
        inner._call_ids, inner._seen = self._call_ids, self._seen
        return inner

    message_readers: ClassVar[Mapping[str, Callable[..., Iterable[Event]]]] = langchain.Decoder.readers
    readers: ClassVar[Mapping[str, Callable[..., Iterable[Event]]]] = {
        "messages": _read_messages,
        "updates": _read_updates,
        "values": _read_values,
        "tasks": _read_task,
        "custom": _read_custom,
        "checkpoints": _read_nothing,
        "": _read_nothing,
    }


def _is_repeated(node: str, message: WireObject) -> bool:
    """Whether a message of the model's comes from a middleware, such as `HumanInTheLoopMiddleware.after_model`, which may have
    changed it. If the run goes on after a question, it is of an earlier stream."""
    return "." in node and bool(message.get("response_metadata") or message.get("usage_metadata"))


def _namespace(item: WireObject) -> list[str]:
    return [*map(str, as_list(item.get("ns")))]
