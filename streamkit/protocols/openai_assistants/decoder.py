"""Decodes OpenAI's Assistants streams, which compatible servers still send: items are `{"event": name, "data": …}`.

Terminal rule: `done` (`[DONE]`), an `error` event, or a run that reached one of its ends: completed, incomplete,
failed, cancelled, expired, or requires_action, from which it goes on in another stream. Some servers send no `done`
after these. A run that queues again after requires_action, in the same stream, is not at its end any more. Objects
without an event name (`{"object": "thread.run", …}`) are named by their own `object` and `status`.

Each part of a thread's message becomes a message (`thread_messages`), and so does each tool call of a step (`steps`,
`calls`). A run's `finish_reason` is its `incomplete_details.reason`; its `metadata` has the ids of the thread and the
assistant and the run's settings. A step that is completed before a run or any step was created in this stream began in
an earlier one: that stream had its calls, under the same ids, so that only what is new of them is emitted.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from ...events import (
    OPEN_MESSAGE_STATUS,
    Delta,
    Event,
    RawEvent,
    Run,
    RunCreated,
    RunDone,
    RunRequiresAction,
    RunStatus,
    RunStepCreated,
    RunStepDone,
    TextDelta,
    Usage,
)
from ...messages import Status
from .. import base
from ..message_ids import MessageIds
from ..values import WireObject, as_object, as_objects, as_text
from .shape import name_and_data, recognises
from .steps import AssistantsStep, match_calls
from .thread_messages import ThreadMessage
from .wire import (
    ANNOUNCEMENTS,
    MESSAGE_ENDS,
    RUN_ENDS,
    SEARCHES,
    STEP_ENDS,
    TRANSIENT_ERRORS,
    StepDeltaData,
    TextDeltaData,
    error_of,
    nonempty_values,
    run_of,
    run_usage_of,
    step_of,
)

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """The events of one stream of a run."""

    name = "openai_assistants"
    wraps_event_name = True
    plain_item: ClassVar[Any] = {"thread.message.delta": TextDeltaData, "thread.run.step.delta": StepDeltaData}
    transient_errors = TRANSIENT_ERRORS
    searches = SEARCHES

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._run_id = ""
        self._run_is_emitted = False  # as created, perhaps with nothing but its id
        self._run_is_complete = False  # it was emitted with all that its own event has
        self._run_began_here = False  # not in an earlier stream
        self._end_status = ""  # the status with which the run ended, or requires_action
        self._has_step_usage = False  # the tokens of the run are the sum of the steps', and not counted again
        self._earlier_usage: list[Usage] = []  # of steps that began in an earlier stream
        self._steps: dict[str, AssistantsStep] = {}
        self._latest_step: AssistantsStep | None = None
        self._step_ids: dict[str, str] = {}  # by the id of the thread's message that the step creates
        self._messages: dict[str, ThreadMessage] = {}
        self._latest_message: ThreadMessage | None = None
        self._ids = MessageIds(self.new_id)

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        """Whether the item's event, or its object, is one of a thread."""
        return recognises(item)

    def item_data(self, name: bytes, data: bytes) -> bytes:
        """Return the data of an SSE event. `done` ends the stream even without its `[DONE]`."""
        return b"[DONE]" if name == b"done" and not data.strip() else super().item_data(name, data)

    def plain(self, item: TextDeltaData | StepDeltaData) -> Delta | None:
        """Return the event of a delta of an open text, or of a piece of a growing call."""
        if isinstance(item, TextDeltaData):
            message, entry = self._messages[item.id], item.delta.content[0]
            part = message.current if message is self._latest_message else None
            if part is None or part.index != entry.index or not part.takes_text:
                return None
            return TextDelta(part.id, entry.text.value)
        piece = item.delta.step_details.tool_calls[0]
        call = self._steps[item.id].latest
        if call is None or call.index != piece.index or call.type != piece.type or not call.takes_pieces:
            return None
        return None if piece.id and piece.id != call.call_id else call.delta(piece.body.piece)

    # -- any other item

    def feed(self, item: Mapping[str, Any]) -> Iterable[Event]:
        """Return the events of one item. One that gives no other event is emitted as a raw event."""
        name, data = name_and_data(item)
        events = list(self._read(name, data, item))
        if name in ANNOUNCEMENTS or not (events or name == "done"):
            events.append(RawEvent(name, item))
        return events

    def finish(self) -> Iterable[Event]:
        """Close what is open."""
        return self._close_all("completed" if self.complete else "incomplete")

    def _read(self, name: str, data: Any, item: WireObject) -> Iterator[Event]:
        wire = as_object(data)
        match name:
            case "thread.run.created" | "thread.run.queued" | "thread.run.in_progress" | "thread.run.cancelling":
                self._run_began_here = self._run_began_here or name == "thread.run.created"
                yield from self._begin_run(wire)
            case "thread.run.requires_action":
                yield from self._require_action(wire)
            case "thread.run.step.created" | "thread.run.step.in_progress":
                step = yield from self._step_of(wire)
                yield from step.begin(as_object(wire.get("step_details")))
            case "thread.run.step.delta":
                yield from self._add_step_delta(wire)
            case "thread.message.created" | "thread.message.in_progress":
                message = yield from self._message_of(wire)
                yield from message.begin(wire)
            case "thread.message.delta":
                yield from self._add_message_delta(wire)
            case "error":
                yield from self._fail_run(data, item)
            case "done":
                self.complete = self.exhausted = True
            case _ if name in RUN_ENDS:
                yield from self._complete_run(wire, RUN_ENDS[name])
            case _ if name in STEP_ENDS:
                yield from self._complete_step(wire, STEP_ENDS[name])
            case _ if name in MESSAGE_ENDS:
                message = yield from self._message_of(wire)
                yield from message.end_with(wire, MESSAGE_ENDS[name])
            case _:
                pass

    # -- the run

    def _begin_run(self, wire: WireObject) -> Iterator[Event]:
        """Emit the run, once with all its fields; again where it goes on after requires_action, or another one begins."""
        is_another = bool(self._run_id) and as_text(wire.get("id")) not in ("", self._run_id)
        goes_on = self._end_status == "requires_action" or (bool(self._end_status) and is_another)
        if not self._run_is_complete or goes_on:
            self._run_is_emitted = self._run_is_complete = True
            self._end_status, self.complete = "", False
            self._run_id = as_text(wire.get("id")) or self._run_id
            yield RunCreated(run_of(wire, "in_progress"))

    def _begin_run_of(self, wire: WireObject) -> Iterator[Event]:
        """Emit the run of a step or a message that comes before the run's own event."""
        if not self._run_is_emitted and (run_id := as_text(wire.get("run_id"))):
            self._run_is_emitted = True
            yield RunCreated(Run(id=run_id, metadata=nonempty_values(wire, ("thread_id", "assistant_id"))))

    def _require_action(self, wire: WireObject) -> Iterator[Event]:
        """Let the run wait for the outputs of its calls. Those that are open are in their final form."""
        yield from self._begin_run(wire)
        if self._end_status:
            return
        action = as_object(as_object(wire.get("required_action")).get("submit_tool_outputs"))
        entries = as_objects(action.get("tool_calls"))
        steps = {id(call): step for step in self._steps.values() for call in step.calls}
        calls = [call for step in self._steps.values() for call in step.calls]
        for entry, call in zip(entries, match_calls(entries, calls), strict=True):
            step = self._latest_step if call is None else steps[id(call)]
            if step is None or (call is None and step.is_done):
                step = yield from self._add_step("", {})
            yield from step.end_call_with(entry, call, "completed")
        yield from self._take_usage(None)
        yield RunRequiresAction(run_of(wire, "requires_action"))
        yield from self._end_run(wire, "requires_action")

    def _complete_run(self, wire: WireObject, status: RunStatus) -> Iterator[Event]:
        yield from self._begin_run(wire)
        if self._end_status:
            return
        yield from self._close_all(OPEN_MESSAGE_STATUS[status])
        yield from self._take_usage(None if self._has_step_usage else run_usage_of(wire))
        yield from self._end_run(wire, status)

    def _end_run(self, wire: WireObject, status: RunStatus) -> Iterator[Event]:
        self._end_status, self.complete = status, True
        yield RunDone(run_of(wire, status))

    def _fail_run(self, data: Any, item: WireObject) -> Iterator[Event]:
        if self._end_status not in ("", "requires_action"):
            return
        self._run_is_emitted = self.complete = True
        self._end_status = "failed"
        yield from self._close_all("failed")
        yield RunDone(Run(status="failed", error=error_of(data), raw=dict(item)))

    def _close_all(self, status: Status) -> Iterator[Event]:
        """End the messages and the steps that are open."""
        for message in self._messages.values():
            if not message.is_done:
                yield from message.close(status)
        for step in self._steps.values():
            if not step.is_done:
                yield from step.close(status)

    # -- steps

    def _step_of(self, wire: WireObject) -> Generator[Event, None, AssistantsStep]:
        """Return the step that an event is about, after the events that begin what has not begun."""
        yield from self._begin_run_of(wire)
        id = as_text(wire.get("id"))
        step = self._steps.get(id) if id else self._latest_step
        if step is None or (step.is_done and not id):
            step = yield from self._add_step(id, wire)
        return step

    def _add_step(self, id: str, wire: WireObject) -> Generator[Event, None, AssistantsStep]:
        created = step_of(wire, id, "in_progress")
        created.usage = created.error = created.completed_at = None
        step = AssistantsStep(id, self.warn, self._ids.unused)
        self._latest_step = self._steps[id or f"#{len(self._steps)}"] = step
        if message_id := as_text(created.metadata.get("message_id")):
            self._step_ids[message_id] = id
        yield RunStepCreated(created)
        return step

    def _add_step_delta(self, wire: WireObject) -> Iterator[Event]:
        details = as_object(as_object(wire.get("delta")).get("step_details"))
        step = yield from self._step_of({"step_details": {"type": details.get("type")}, **wire})
        if message_id := as_text(as_object(details.get("message_creation")).get("message_id")):
            self._step_ids[message_id] = step.id
        for position, entry in enumerate(as_objects(details.get("tool_calls"))):
            yield from step.add_delta(position, entry)

    def _complete_step(self, wire: WireObject, status: RunStatus) -> Iterator[Event]:
        id = as_text(wire.get("id"))
        began_earlier = not self._run_began_here and not self._steps
        if began_earlier and id:
            yield from self._begin_run_of(wire)
            step = self._steps[id] = AssistantsStep(id, self.warn, self._ids.unused, began_here=False)
        else:
            step = yield from self._step_of(wire)
        if step.is_done:
            return
        completed = step_of(wire, step.id, status)
        yield from step.end_with(as_object(wire.get("step_details")), OPEN_MESSAGE_STATUS[status])
        if completed.usage is not None and not step.began_here:
            self._has_step_usage = True
            self._earlier_usage.append(completed.usage)
        elif completed.usage is not None:
            yield from self._take_usage(completed.usage)
        yield RunStepDone(completed)

    def _take_usage(self, usage: Usage | None) -> Iterator[Event]:
        """Yield these tokens, together with those of steps that began in an earlier stream."""
        usages = [*self._earlier_usage, *([] if usage is None else [usage])]
        self._earlier_usage.clear()
        if usages:
            self._has_step_usage = True
            yield Usage(
                sum(one.input_tokens for one in usages),
                sum(one.output_tokens for one in usages),
                sum(one.total_tokens for one in usages),
                usages[-1].details,
            )

    # -- messages

    def _message_of(self, wire: WireObject) -> Generator[Event, None, ThreadMessage]:
        """Return the thread's message that an event is about, after the events that begin what has not begun."""
        yield from self._begin_run_of(wire)
        id = as_text(wire.get("id"))
        message = self._messages.get(id) if id else self._latest_message
        if message is None or (message.is_done and not id):
            key = id or self._ids.new()
            message = self._messages[key] = ThreadMessage(key, self.warn, self._ids.unused)
            message.step_id = self._step_ids.get(id)
        self._latest_message = message
        return message

    def _add_message_delta(self, wire: WireObject) -> Iterator[Event]:
        message = yield from self._message_of(wire)
        delta = as_object(wire.get("delta"))
        message.role = message.role or as_text(delta.get("role"))
        for position, entry in enumerate(_delta_entries(delta)):
            yield from message.add_delta(position, entry)


def _delta_entries(delta: WireObject) -> list[WireObject]:
    """Return the entries of a delta's content; some servers send a single one without a list."""
    content = delta.get("content")
    single = as_object(content)
    return [single] if single else as_objects(content)
