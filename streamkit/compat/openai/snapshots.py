"""The snapshots of an Assistants run: wire items in, calls of openai's 17 hooks out, in order.

The rule: whatever a server leaves out or repeats, the hook calls are well formed: a message, step or tool call is
created before its first delta and done once, after its last. An item of unexpected shape is used as far as it makes
sense. Nothing here does input or output.
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

__all__ = ["RunSnapshot", "SnapshotUpdater"]

# The final status of a step that is still open when its run ends with a status. A step has fewer of them than a run.
_STEP_STATUSES: Final = {
    "completed": "completed",
    "incomplete": "completed",
    "cancelled": "cancelled",
    "expired": "expired",
}
_FINAL_RUN_PHASES: Final = ("completed", "incomplete", "cancelled", "expired", "failed")
_FINAL_STEP_PHASES: Final = ("completed", "failed", "cancelled", "expired")


class RunSnapshot:
    """One run with its messages and steps. Several streams may report the same run, one after another.

    Attributes:
        run_data: The run's wire data, merged from all its items.
        messages: All messages, in the order in which they were created.
        steps: All run steps, in the order in which they were created.
        open_messages: The messages that have not ended, by id.
        open_steps: The steps that have not ended, by id.
        finished: The ids of the messages and steps that have ended.
        current_message: The message of the latest item that had one.
        current_step: The step that is in progress.
    """

    def __init__(self) -> None:
        self.run_data: Mapping[str, Any] = {}
        self.messages: list[MessageSnapshot] = []
        self.steps: list[StepSnapshot] = []
        self.open_messages: dict[str, MessageSnapshot] = {}
        self.open_steps: dict[str, StepSnapshot] = {}
        self.finished: set[str] = set()
        self.current_message: MessageSnapshot | None = None
        self.current_step: StepSnapshot | None = None
        self._run: Run | None = None

    @property
    def run_id(self) -> str:
        """The run's id; empty before its first item."""
        return text(self.run_data.get("id"))

    @property
    def run(self) -> Run | None:
        """openai's run object; None before its first item."""
        if self._run is None and self.run_data:
            self._run = build(Run, {"object": "thread.run", "tools": [], **self.run_data})
        return self._run

    def update_run(self, data: Mapping[str, Any]) -> None:
        """Merge newer wire data into the run."""
        self.run_data = {**self.run_data, **data}
        self._run = None

    def header(self, object_type: str, id: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields with which a message or step begins. What its own item lacks is taken from the run."""
        run = self.run_data
        defaults = {
            "object": object_type,
            "created_at": run.get("created_at") or 0,
            "thread_id": run.get("thread_id") or "",
            "assistant_id": run.get("assistant_id") or "",
            "run_id": self.run_id,
            **({"role": "assistant"} if object_type == "thread.message" else {"type": "tool_calls"}),
        }
        present = {key: value for key, value in data.items() if value is not None}
        return {**data, **defaults, **present, "id": id, "status": "in_progress"}


class SnapshotUpdater:
    """Updates a run's snapshots with one wire item after another, and returns the hook calls of each.

    Args:
        wants: The names of the overridden hooks. Calls of others are left out.
        run: The run's snapshot, if an earlier stream has reported its beginning.

    Attributes:
        item: The name and the data of the newest wire item, whose hooks are being called; None before the first.
    """

    def __init__(self, wants: Container[str], run: RunSnapshot | None = None) -> None:
        self.wants = wants
        self.run = run or RunSnapshot()
        self.item: tuple[str, Any] | None = None
        self._event: tuple[tuple[str, Any], AssistantStreamEvent] | None = None  # with the item that it was built from

    @property
    def event(self) -> AssistantStreamEvent | None:
        """openai's typed event for the newest item; built when it is first read."""
        if self.item is None:
            return None
        if self._event is None or self._event[0] is not self.item:
            self._event = self.item, wire_event(*self.item)
        return self._event[1]

    def feed(self, name: str, value: Any) -> Iterator[HookCall]:
        """Yield the hook calls for one wire item. Make each call before taking the next: the snapshots grow in
        between."""
        self.item = name, value
        data = mapping(value)
        has_class = name in EVENT_CLASSES
        if has_class and name.startswith("thread.run.") and not self.run.run_data and "step" not in name:
            self.run.update_run(data)
        if "on_event" in self.wants:
            yield "on_event", (self.event,)
        match name.rpartition(".") if has_class else ():
            case ("thread.message", _, phase):
                yield from self._feed_message(phase, data)
            case ("thread.run.step", _, phase):
                yield from self._feed_step(phase, data)
            case ("thread.run", _, phase):
                yield from self._feed_run(phase, data)
            case _:
                pass

    # -- the run

    def _feed_run(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        if phase == "requires_action":
            yield from self._require_action(data)
            return
        self.run.update_run(data)
        if phase in _FINAL_RUN_PHASES:
            yield from self.finish(phase)

    def _require_action(self, data: Mapping[str, Any]) -> Iterator[HookCall]:
        """Let the run wait for the outputs of its calls. Only the hook of the last one sees that status: many handlers
        submit the outputs of all calls from `on_tool_call_done` as soon as the run requires action."""
        self.run.update_run({**data, "status": "in_progress"})
        action = mapping(mapping(data.get("required_action")).get("submit_tool_outputs"))
        yield from self._require_outputs(action)
        last = next((step for step in reversed(self.run.open_steps.values()) if step.has_open_function), None)
        for step in list(self.run.open_steps.values()):
            yield from step.close_calls(self.wants, but_last_function=step is last)
        self.run.update_run(data)
        if last is not None:
            yield from last.close_calls(self.wants)

    def _require_outputs(self, action: Mapping[str, Any]) -> Iterator[HookCall]:
        """Complete the calls that the run waits for. Some servers report them here alone."""
        run = self.run
        for _, entry in entries(action.get("tool_calls")):
            id = text(entry.get("id"))
            step = next((step for step in reversed(run.steps) if step.has_call(id)), None)
            if step is None:
                step = next((step for step in reversed(run.open_steps.values()) if step.runs_tools), None)
            if step is None:
                step = yield from self._begin_step(f"step-{len(run.steps) + 1}", {})
            if not step.is_done:
                yield from step.update_details({"tool_calls": [entry]}, self.wants, final=True)

    def finish(self, status: str) -> Iterator[HookCall]:
        """End everything that is open, because the run or this stream of it ended with `status`.

        A run that ended `requires_action` keeps its open step: it continues with the tool outputs.
        """
        message_status = "completed" if status in ("completed", "requires_action") else "incomplete"
        for id, message in list(self.run.open_messages.items()):
            yield from self._close_message(id, message, {"status": message_status})
        if status == "requires_action":
            return
        for id, step in list(self.run.open_steps.items()):
            yield from self._close_step(id, step, {"status": _STEP_STATUSES.get(status, "failed")})

    def set_final_status(self, status: str) -> None:
        """Set the run's final status to the stream's, unless the service itself reported one."""
        if self.run.run_data and self.run.run_data.get("status") not in (*_FINAL_RUN_PHASES, "requires_action"):
            self.run.update_run({"status": status})

    def finish_call(self, id: str) -> Iterator[HookCall]:
        """End the tool call with this id, in whichever step it is."""
        for step in list(self.run.open_steps.values()):
            yield from step.close_call(self.wants, id)

    # -- messages

    def _feed_message(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        run = self.run
        id = text(data.get("id")) or _latest_id(run.open_messages, phase) or f"message-{len(run.messages) + 1}"
        message = run.open_messages.get(id)
        if message is None:
            if id in run.finished and phase != "delta":
                return  # the server repeats an item of a finished message
            message = yield from self._begin_message(id, phase, data)
        run.current_message = message
        if phase == "delta":
            delta = mapping(data.get("delta"))
            yield from message.update_content(delta.get("content"), self.wants)
            if "on_message_delta" in self.wants:
                yield "on_message_delta", (build(MessageDelta, delta), message.live)
        elif phase in ("completed", "incomplete"):
            yield from self._close_message(id, message, data)

    def _begin_message(
        self, id: str, phase: str, data: Mapping[str, Any]
    ) -> Generator[HookCall, None, MessageSnapshot]:
        run = self.run
        message = MessageSnapshot(run.header("thread.message", id, _initial_data(data, phase)))
        run.open_messages[id] = run.current_message = message
        run.messages.append(message)
        if "on_message_created" in self.wants:
            yield "on_message_created", (message.live,)
        if phase in ("created", "in_progress"):
            indexed = [{"index": position, **entry} for position, entry in entries(data.get("content"))]
            yield from message.update_content(indexed, self.wants)
        return message

    def _close_message(self, id: str, message: MessageSnapshot, data: Mapping[str, Any]) -> Iterator[HookCall]:
        self.run.finished.add(id)
        yield from message.close(self.wants, data)
        self.run.open_messages.pop(id, None)

    # -- run steps

    def _feed_step(self, phase: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        run = self.run
        id = text(data.get("id")) or _latest_id(run.open_steps, phase) or f"step-{len(run.steps) + 1}"
        step = run.open_steps.get(id)
        if step is None:
            if id in run.finished:
                return  # the server repeats an item of a finished step
            if phase in _FINAL_STEP_PHASES:
                yield from self._feed_earlier_step(id, data)
                return
            step = yield from self._begin_step(id, _initial_data(data, phase))
            if phase in ("created", "in_progress"):
                yield from step.update_details(data.get("step_details"), self.wants)
        run.current_step = step
        if phase == "delta":
            delta = mapping(data.get("delta"))
            yield from step.update_details(delta.get("step_details"), self.wants)
            if "on_run_step_delta" in self.wants:
                yield "on_run_step_delta", (build(RunStepDelta, delta), step.live)
        elif phase in _FINAL_STEP_PHASES:
            yield from self._close_step(id, step, data)
            run.current_step = None

    def _feed_earlier_step(self, id: str, data: Mapping[str, Any]) -> Iterator[HookCall]:
        """Yield the events of a step of which nothing but its end comes: its beginning and its calls were in an earlier
        stream of the run, perhaps with another handler, which has run the tools."""
        run = self.run
        step = StepSnapshot(run.header("thread.run.step", id, _initial_data(data, "completed")))
        for _ in step.close((), data):
            pass  # no hooks
        run.finished.add(id)
        run.steps.append(step)
        run.current_step = step
        if "on_run_step_done" in self.wants:
            yield "on_run_step_done", (step.live,)
        run.current_step = None

    def _begin_step(self, id: str, data: Mapping[str, Any]) -> Generator[HookCall, None, StepSnapshot]:
        run = self.run
        step = run.open_steps[id] = run.current_step = StepSnapshot(run.header("thread.run.step", id, data))
        run.steps.append(step)
        if "on_run_step_created" in self.wants:
            yield "on_run_step_created", (step.live,)
        return step

    def _close_step(self, id: str, step: StepSnapshot, data: Mapping[str, Any]) -> Iterator[HookCall]:
        self.run.finished.add(id)
        yield from step.close(self.wants, data)
        self.run.open_steps.pop(id, None)


def _latest_id(open_items: Mapping[str, object], phase: str) -> str | None:
    """Return the id of the open message or step that an item without an id belongs to; None if it begins another."""
    return None if phase == "created" else next(reversed(list(open_items)), None)


def _initial_data(data: Mapping[str, Any], phase: str) -> Mapping[str, Any]:
    """Return the part of an item's data that a message or step can begin with, without what belongs to a later
    phase."""
    if phase in ("created", "in_progress"):
        return data
    return {key: value for key, value in data.items() if key not in ("delta", "object", "status", "content", "usage")}
