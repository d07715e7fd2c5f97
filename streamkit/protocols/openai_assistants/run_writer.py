"""Writes the events of a run and its steps, for the encoder.

A step here creates one message of the thread or has tool calls, so a canonical step becomes as many of these as it takes:
the first has its id, the others `id.2`, `id.3` …. What is complete ends when something else begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from ...core.unique_ids import UniqueIds
from ...events import Run, RunStep
from .objects import ended_run_object, run_object, step_object, thread_message
from .open_objects import Item, OpenStep, OpenThreadMessage

__all__ = ["AssistantsRunWriter", "NamedItem", "NamedItems"]

NamedItem: TypeAlias = tuple[str, Item]
"""An event as (name, data)."""

NamedItems: TypeAlias = Iterator[NamedItem]

# How a step ends that has such a status; all others are as they are in this API.
_STEP_ENDS = {"incomplete": "failed", "requires_action": "completed", "in_progress": "completed"}


class AssistantsRunWriter:
    """The run, its open steps, and the open messages of its thread.

    Attributes:
        run: the run object, as it began; empty before that.
        ids: of steps and of the thread's messages.
        messages: the thread's messages that are open, by their key.
        idle_messages: those of them that are between two parts.
    """

    def __init__(self) -> None:
        self.run: Item = {}
        self.ids = UniqueIds()
        self.messages: dict[tuple[Any, ...], OpenThreadMessage] = {}
        self.idle_messages: dict[tuple[Any, ...], OpenThreadMessage] = {}
        self._is_waiting = False  # for the outputs of calls
        self._has_ended = False
        self._canonical_step: RunStep | None = None
        self._steps_of_canonical = 0
        self._steps: dict[int, OpenStep] = {}  # that are open, by their number
        self._created_steps: dict[int, OpenStep] = {}  # those of them whose message is done
        self._call_step: OpenStep | None = None  # the one of them that has calls

    # -- the run

    def begin(self, run: Run) -> NamedItems:
        """Create the run."""
        self.run = run_object(run)
        yield "thread.run.created", {**self.run, "status": "queued"}
        yield from self._queue()

    def begin_if_needed(self) -> NamedItems:
        """Create a run without an id for messages that come before any."""
        if not self.run:
            yield from self.begin(Run())

    def _queue(self) -> NamedItems:
        yield "thread.run.queued", {**self.run, "status": "queued"}
        yield "thread.run.in_progress", dict(self.run)

    def require_action(self) -> NamedItems:
        """Let the run wait for the outputs of its functions' calls."""
        yield from self.close_idle()
        waiting = [] if self._call_step is None else [*self._call_step.awaiting_output.values()]
        calls = [{**call.final, "function": {key: call.body[key] for key in ("name", "arguments")}} for call in waiting]
        self._is_waiting = True
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": calls}}
        yield "thread.run.requires_action", {**self.run, "status": "requires_action", "required_action": action}

    def _go_on(self) -> NamedItems:
        """Queue the run again if it waited: it has its outputs."""
        if self._is_waiting:
            self._is_waiting = False
            yield from self._queue()

    def end(self, run: Run) -> NamedItems:
        """End the run, and everything in it."""
        if self._has_ended:
            return
        if not self.run:
            yield from self.begin(run)
        if run.status == "requires_action":
            if not self._is_waiting:
                yield from self.require_action()
        else:
            yield from self._close_messages()
            for step in [*self._steps.values()]:
                yield from self._close_step(step, run.status)
            status = "completed" if run.status == "in_progress" else run.status
            if status == "incomplete" and run.error is not None:
                status = "failed"  # the source was cut off; the provider did not cut it short
            yield f"thread.run.{status}", ended_run_object(run, status, self.run)
        self._has_ended = True

    def fail(self, error: Item) -> NamedItems:
        """Yield the failure of the stream, unless the run has ended before."""
        if not self._has_ended:
            self._has_ended = True
            yield "error", error

    # -- steps

    def begin_canonical_step(self, step: RunStep) -> NamedItems:
        """Note a canonical step that begins. This API's steps begin with what is in it."""
        yield from self.close_idle()
        self._canonical_step = step
        self._steps_of_canonical = 0

    def end_canonical_step(self, ended: RunStep) -> NamedItems:
        """End a canonical step, and its steps, unless one of their calls still waits."""
        yield from self._close_messages()
        steps = self._finished_steps()
        if (last := self._call_step) is not None and last in steps and last.awaiting_output and self._is_waiting:
            steps.remove(last)
        for step in steps:
            is_last = step is steps[-1]
            yield from self._close_step(step, ended.status, ended if is_last else None)
        if steps and not (self._call_step and self._call_step.awaiting_output):
            yield from self._go_on()
        self._canonical_step = None

    def _finished_steps(self) -> list[OpenStep]:
        """Return the open steps all messages of which are done; calls among them may wait for their outputs."""
        steps = [*self._created_steps.values()]
        if self._call_step is not None and not self._call_step.unfinished:
            steps.append(self._call_step)
        return sorted(steps, key=lambda step: step.number)

    def open_call_step(self) -> OpenStep | None:
        """Return the open step that takes further calls."""
        return self._call_step

    def open_step(self, type: str, message_id: str = "") -> tuple[OpenStep, NamedItems]:
        """Return a new step of this type, and the events that begin it."""
        self._steps_of_canonical += 1
        canonical = self._canonical_step
        first_id = canonical.id if canonical is not None else "step"
        count = self._steps_of_canonical
        id = self.ids.unused(first_id if count == 1 else f"{first_id}.{count}")
        step = OpenStep(id, type, message_id, canonical.created_at if canonical else None, len(self.ids))
        self._steps[step.number] = step
        if type == "tool_calls":
            self._call_step = step
        return step, self._begin_step(step)

    def _begin_step(self, step: OpenStep) -> NamedItems:
        yield from self._go_on()
        for phase in ("created", "in_progress"):
            yield f"thread.run.step.{phase}", step_object(step, self.run, "in_progress")

    def close_idle(self, except_type: str = "") -> NamedItems:
        """End what is complete, as something else begins: messages, and steps of any other type than this one."""
        yield from self._close_messages()
        for step in self._finished_steps():
            if not step.awaiting_output and step.type != except_type:
                yield from self._close_step(step, "completed")

    def _close_step(self, step: OpenStep, status: str, ended: RunStep | None = None) -> NamedItems:
        del self._steps[step.number]
        self._created_steps.pop(step.number, None)
        self._call_step = None if step is self._call_step else self._call_step
        step.is_closed = True
        status = step.status if step.status != "completed" else status
        if step.type == "message_creation" and status == "incomplete":
            status = "completed"
        status = _STEP_ENDS.get(status, status)
        yield f"thread.run.step.{status}", step_object(step, self.run, status, ended)

    # -- messages of the thread

    def _close_messages(self) -> NamedItems:
        for message in [*self.idle_messages.values()]:
            yield from self.close_message(message)

    def close_message(self, message: OpenThreadMessage) -> NamedItems:
        """Complete a message of the thread."""
        del self.messages[message.key]
        self.idle_messages.pop(message.key, None)
        phase = "completed" if message.status == "completed" else "incomplete"
        yield f"thread.message.{phase}", thread_message(message, self.run, message.status)
        if message.step is not None:
            self._created_steps[message.step.number] = message.step
