"""The story of an Assistants run: wire items in, the calls of the 17 hooks out, in order.

No input or output, and nothing is trusted: an item of any shape is told as far as it makes sense. Whatever a server
leaves out, what the hooks are told is well formed: created before its first delta, done once, after its last.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator, Mapping
from typing import Any, Final

from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import MessageDelta, Run
from openai.types.beta.threads.runs import RunStepDelta

from .messages import HookCall, MessageSnapshot
from .objects import EVENT_CLASSES, build, entries, mapping, text, wire_event
from .steps import StepSnapshot

__all__ = ["Record", "Story"]

# How a step ends that is still open when its run ends so; a step has fewer ways to end than a run.
_STEP_ENDS: Final = {
    "completed": "completed",
    "incomplete": "completed",
    "cancelled": "cancelled",
    "expired": "expired",
}
_RUN_ENDS: Final = ("completed", "incomplete", "cancelled", "expired", "failed")


class Record:
    """What is known of one run, by however many streams it is told."""

    def __init__(self) -> None:
        self.run_data: Mapping[str, Any] = {}
        self.messages: list[MessageSnapshot] = []
        self.steps: list[StepSnapshot] = []
        self.open_messages: dict[str, MessageSnapshot] = {}
        self.open_steps: dict[str, StepSnapshot] = {}
        self.finished: set[str] = set()  # the ids of what was done
        self.message: MessageSnapshot | None = None  # the one told of last
        self.step: StepSnapshot | None = None
        self._run: Run | None = None

    @property
    def run_id(self) -> str:
        return text(self.run_data.get("id"))

    @property
    def run(self) -> Run | None:
        if self._run is None and self.run_data:
            self._run = build(Run, {"object": "thread.run", "tools": [], **self.run_data})
        return self._run

    def take_run(self, data: Mapping[str, Any]) -> None:
        self.run_data = {**self.run_data, **data}
        self._run = None

    def header(self, of: str, id: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """What a message or step has from the beginning, whatever its own item leaves out."""
        run = self.run_data
        known = {
            "object": of,
            "created_at": run.get("created_at") or 0,
            "thread_id": run.get("thread_id") or "",
            "assistant_id": run.get("assistant_id") or "",
            "run_id": self.run_id,
        }
        more = {"role": "assistant"} if of == "thread.message" else {"type": "tool_calls"}
        said = {key: value for key, value in data.items() if value is not None}
        return {**data, **known, **more, **said, "id": id, "status": "in_progress"}


class Story:
    """Tells one handler of a run.

    Args:
        wants: the names of the hooks that are worth calling.
        record: the run's, where another handler has told the beginning of it.
    """

    def __init__(self, wants: Container[str], record: Record | None = None) -> None:
        self.wants = wants
        self.record = record or Record()
        self._item: tuple[str, Any] | None = None
        self._event: AssistantStreamEvent | None = None

    @property
    def event(self) -> AssistantStreamEvent | None:
        """openai's typed event of the item that is being told, built when it is asked for."""
        if self._event is None and self._item is not None:
            self._event = wire_event(*self._item)
        return self._event

    def feed(self, name: str, value: Any) -> Iterator[HookCall]:
        """What one wire item asks of the hooks. Each call is to be made before the next is asked for."""
        self._item, self._event = (name, value), None
        data = mapping(value)
        is_known = name in EVENT_CLASSES
        if is_known and name.startswith("thread.run.") and not self.record.run_data and "step" not in name:
            self.record.take_run(data)
        if "on_event" in self.wants:
            yield "on_event", (self.event,)
        match name.rpartition(".") if is_known else ():
            case ("thread.message", _, phase):
                yield from self._message(phase, data)
            case ("thread.run.step", _, phase):
                yield from self._step(phase, data)
            case ("thread.run", _, phase):
                yield from self._run(phase, data)
            case _:
                pass
        self._item = self._event = None

    # -- runs

    def _run(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        self.record.take_run(data)
        if phase == "requires_action":
            yield from self._outputs_wanted(mapping(mapping(data.get("required_action")).get("submit_tool_outputs")))
            for step in list(self.record.open_steps.values()):
                yield from step.close_calls(self.wants)
        elif phase in _RUN_ENDS:
            yield from self.finish(phase)

    def _outputs_wanted(self, action: Mapping[str, Any]) -> Iterator[HookCall]:
        """The calls that the run waits for, as they are in the end; some servers tell of them here alone."""
        record = self.record
        for _, entry in entries(action.get("tool_calls")):
            holder = next((step for step in reversed(record.steps) if step.has(text(entry.get("id")))), None)
            if holder is None:
                holder = next((step for step in reversed(record.open_steps.values()) if step.runs_tools), None)
            if holder is None:
                id = f"step-{len(record.steps) + 1}"
                holder = yield from self._begin_step(id, {})
            if not holder.done:
                yield from holder.details({"tool_calls": [entry]}, self.wants, final=True)

    def finish(self, status: str) -> Iterator[HookCall]:
        """The run, or this stream of it, is over: so is what is still open. A run that waits for outputs keeps its
        step: it goes on when they are there."""
        for id, message in list(self.record.open_messages.items()):
            data = {"status": "completed" if status in ("completed", "requires_action") else "incomplete"}
            yield from self._close_message(id, message, data)
        if status == "requires_action":
            return
        for id, step in list(self.record.open_steps.items()):
            yield from self._close_step(id, step, {"status": _STEP_ENDS.get(status, "failed")})

    def end_run(self, status: str) -> None:
        """The run ended so, by whatever ended the stream, unless the service itself said how."""
        if self.record.run_data and self.record.run_data.get("status") not in (*_RUN_ENDS, "requires_action"):
            self.record.take_run({"status": status})

    def finish_call(self, id: str) -> Iterator[HookCall]:
        """The tool call with this id is complete, whatever its step."""
        for step in list(self.record.open_steps.values()):
            yield from step.close_calls(self.wants, id)

    # -- messages

    def _message(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        record = self.record
        id = text(data.get("id")) or _without_id(record.open_messages, phase) or f"message-{len(record.messages) + 1}"
        message = record.open_messages.get(id)
        ends = phase in ("completed", "incomplete")
        if message is None:
            if id in record.finished and phase != "delta":
                return  # told again
            message = record.open_messages[id] = MessageSnapshot(record.header("thread.message", id, _own(data, phase)))
            record.messages.append(message)
            record.message = message
            if "on_message_created" in self.wants:
                yield "on_message_created", (message.live,)
            if phase in ("created", "in_progress"):
                placed = [{"index": place, **entry} for place, entry in entries(data.get("content"))]
                yield from message.content(placed, self.wants)
        record.message = message
        if phase == "delta":
            delta = mapping(data.get("delta"))
            yield from message.content(delta.get("content"), self.wants)
            if "on_message_delta" in self.wants:
                yield "on_message_delta", (build(MessageDelta, delta), message.live)
        elif ends:
            yield from self._close_message(id, message, data)

    def _close_message(self, id: str, message: MessageSnapshot, data: Mapping[str, Any]) -> Iterator[HookCall]:
        self.record.finished.add(id)
        yield from message.close(self.wants, data)
        self.record.open_messages.pop(id, None)

    # -- run steps

    def _step(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        record = self.record
        id = text(data.get("id")) or _without_id(record.open_steps, phase) or f"step-{len(record.steps) + 1}"
        step = record.open_steps.get(id)
        if step is None:
            if id in record.finished:
                return  # told again
            step = yield from self._begin_step(id, _own(data, phase))
            if phase in ("created", "in_progress"):
                yield from step.details(data.get("step_details"), self.wants)
        record.step = step
        if phase == "delta":
            delta = mapping(data.get("delta"))
            yield from step.details(delta.get("step_details"), self.wants)
            if "on_run_step_delta" in self.wants:
                yield "on_run_step_delta", (build(RunStepDelta, delta), step.live)
        elif phase in ("completed", "failed", "cancelled", "expired"):
            yield from self._close_step(id, step, data)
            record.step = None

    def _begin_step(self, id: str, data: Mapping[str, Any]) -> Generator[HookCall, None, StepSnapshot]:
        record = self.record
        step = record.open_steps[id] = record.step = StepSnapshot(record.header("thread.run.step", id, data))
        record.steps.append(step)
        if "on_run_step_created" in self.wants:
            yield "on_run_step_created", (step.live,)
        return step

    def _close_step(self, id: str, step: StepSnapshot, data: Mapping[str, Any]) -> Iterator[HookCall]:
        self.record.finished.add(id)
        yield from step.close(self.wants, data)
        self.record.open_steps.pop(id, None)


def _without_id(known: Mapping[str, object], phase: str) -> str | None:
    """What an item without an id tells of: the latest that is open, unless it begins another."""
    return None if phase == "created" else next(reversed(list(known)), None)


def _own(data: Mapping[str, Any], phase: str) -> Mapping[str, Any]:
    """What a message or step begins with, of the item that first tells of it."""
    if phase in ("created", "in_progress"):
        return data
    return {key: value for key, value in data.items() if key not in ("delta", "object", "status", "content", "usage")}
