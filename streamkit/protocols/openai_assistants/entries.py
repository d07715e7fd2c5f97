"""What an Assistants encoder has begun and not ended: steps, their tool calls, and messages of the thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...messages import CodeMessage, Message, Status, ToolCallMessage, ToolOutputMessage
from .wire import Wire, mapping, objects

__all__ = ["CallEntry", "StepEntry", "ThreadEntry", "call_delta", "call_type"]

Item = dict[str, Any]


class StepEntry:
    """A step that was begun. `live` are the messages of it that are not done, `waiting` its calls without an output."""

    def __init__(self, id: str, type: str, message_id: str, created_at: float | None) -> None:
        self.id = id
        self.type = type
        self.message_id = message_id
        self.created_at = created_at
        self.number = 0
        self.calls: list[CallEntry] = []
        self.live: set[str] = set()
        self.waiting: dict[str, CallEntry] = {}
        self.status = "completed"
        self.closed = False


class CallEntry:
    """A tool call that was begun, as the `index`th of its step. `body` is what its kind says of it so far."""

    def __init__(self, id: str, type: str, name: str, step: StepEntry, index: int) -> None:
        self.id = id
        self.type = type
        self.step = step
        self.index = index
        self.body: Item = {}
        self.key = ""  # of what grows in it
        match type:
            case "code_interpreter":
                self.key, self.body = "input", {"input": "", "outputs": []}
            case "function":
                self.key, self.body = "arguments", {"name": name, "arguments": "", "output": None}
            case _:
                pass

    @property
    def begun(self) -> Item:
        return {**self.body, **({"outputs": []} if self.type == "code_interpreter" else {})}

    @property
    def final(self) -> Item:
        return {"id": self.id, "type": self.type, self.type: self.body}

    def finish(self, message: Message) -> Iterator[tuple[str, Item]]:
        """The call is all there."""
        if self.key:
            self.body[self.key] = message.content
        if self.type == "function":
            self.body["name"] = message.name or self.body["name"]
            executed = isinstance(message, ToolCallMessage) and message.provider_executed
            if executed:
                self.body["output"] = self.body["output"] or ""  # else it would wait for ours
            elif message.status == "completed" and self.body["output"] is None:
                self.step.waiting[self.id] = self
        elif self.type == "file_search":
            ranking = mapping(message.metadata.get("ranking_options"))
            known = ranking.get("ranker") in ("auto", "default_2024_08_21")
            if known and type(ranking.get("score_threshold")) in (int, float):
                self.body["ranking_options"] = dict(ranking)
        yield from ()

    def give(self, message: ToolOutputMessage) -> Iterator[tuple[str, Item]]:
        """What the call gave."""
        if self.type == "function":
            self.body["output"] = message.content
            self.step.waiting.pop(self.id, None)
            yield call_delta(self, {"output": message.content})
        elif results := _results(message.content):
            self.body["results"] = results
            yield call_delta(self, {"results": results})


class ThreadEntry:
    """A message of the thread that was begun. `live` is the part that grows, `told` the one whose delta came last."""

    def __init__(self, id: str, key: tuple[Any, ...], message: Message) -> None:
        self.id = id
        self.key = key
        self.role = "user" if message.role == "user" else "assistant"
        self.created_at = message.created_at
        self.content: list[Item] = []
        self.cited: dict[int, int] = {}
        self.step: StepEntry | None = None
        self.live: str | None = None
        self.told = -1
        self.status: Status = "completed"
        self.metadata: Wire = {}
        self.learn(message)

    def learn(self, message: Message) -> None:
        self.metadata = {**self.metadata, **message.metadata}

    def cite(self, index: int) -> int:
        """The number of the next citation in a part."""
        number = self.cited[index] = self.cited.get(index, -1) + 1
        return number


def call_type(message: Message) -> str:
    """The kind of tool call that tells of a message."""
    if isinstance(message, CodeMessage):
        return "code_interpreter"
    executed = isinstance(message, ToolCallMessage) and message.provider_executed
    return "file_search" if executed and message.name == "file_search" else "function"


def call_delta(call: CallEntry, said: Mapping[str, Any], *, first: bool = False) -> tuple[str, Item]:
    told = {"index": call.index, **({"id": call.id} if first else {}), "type": call.type, call.type: dict(said)}
    delta = {"step_details": {"type": "tool_calls", "tool_calls": [told]}}
    return "thread.run.step.delta", {"id": call.step.id, "object": "thread.run.step.delta", "delta": delta}


def _results(content: str) -> list[Any]:
    """The results of a search, if they are such as this API has."""
    try:
        found = msgspec.json.decode(content)
    except (ValueError, RecursionError):
        return []
    wires = objects(found)
    fits = all(
        isinstance(wire.get("file_id"), str)
        and isinstance(wire.get("file_name"), str)
        and type(wire.get("score")) in (int, float)
        and all(
            part.get("type") == "text" and isinstance(part.get("text", ""), str)
            for part in objects(wire.get("content"))
        )
        for wire in wires
    )
    return [dict(wire) for wire in wires] if fits else []
