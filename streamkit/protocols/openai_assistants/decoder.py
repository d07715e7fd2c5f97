"""OpenAI's Assistants streams, which compatible servers still speak: items are `{"event": name, "data": …}`.

Terminal rule: `done` (`[DONE]`), an `error` event, or a run that reached one of its ends: completed, incomplete,
failed, cancelled, expired, or requires_action, from which it goes on in another stream. Some servers send no `done`
after these. A run that queues again after requires_action, in the same stream, is not at its end any more. Objects
that come without an event's name (`{"object": "thread.run", …}`) are named by what they say they are.

Each part of a thread's message is a message, and so is each tool call of a step; see `openai_assistants_items`
and `openai_assistants_calls`. A run's
`finish_reason` is its `incomplete_details.reason`; its `metadata` has the ids of the thread and the assistant and what
else a run says of itself. A step that is completed before a run or any step was created in this stream began in an earlier one: its
calls were told there, by the same ids, and only what is new of it is told.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from ...core.unique_ids import UniqueIds
from ...events import (
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
from ..framing import Frames, as_frame
from .calls import Step
from .items import ThreadMessage
from .wire import (
    ANNOUNCED,
    MESSAGE_ENDS,
    RUN_ENDS,
    STATUSES,
    STEP_ENDS,
    Wire,
    decode_grown,
    error_of,
    kept,
    mapping,
    named,
    objects,
    run_of,
    step_of,
    text,
    usage_of,
)

__all__ = ["Decoder"]

_GROWS = b"thread.message.delta"


class Decoder(base.Decoder):
    """The events of one stream of a run."""

    name = "openai_assistants"
    wraps_event_name = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._begun = False  # a run was told
        self._known = False  # with all that it says of itself
        self._created = False  # in this stream
        self._ended = ""  # how the run ended, or that it waits
        self._run_id = ""
        self._messages: dict[str, ThreadMessage] = {}
        self._latest: ThreadMessage | None = None
        self._steps: dict[str, Step] = {}
        self._step: Step | None = None  # the latest
        self._makers: dict[str, str] = {}  # the steps by the ids of the messages that they make
        self._ids = UniqueIds()
        self._counted = False
        self._owed: list[Usage] = []  # of steps that were not begun here, until a step can take it
        # By the id of a thread's message: the text part that grows, as (index, message id).
        self._growing: dict[str, tuple[int, str]] = {}

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        return named(item)[0].startswith("thread.")

    # -- the fast path: deltas of a text that is open

    def feed_frames(self, frames: Frames) -> list[Event]:
        events: list[Event] = []
        if self.exhausted:
            return events
        growing = self._growing
        self._first, self._frames = self.index, frames
        start, beyond = self.index, 0  # what slow items told beyond one event each
        for id, name, data in map(as_frame, frames):
            if name == _GROWS and not id:
                try:
                    grown = decode_grown(data)
                    part = grown.delta.content[0]
                    index, message_id = growing[grown.id]
                    if index == part.index:
                        events.append(TextDelta(message_id, part.text.value, raw_item=data))
                        continue
                except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
                    pass
            self.index = start + len(events) - beyond
            told = self.feed_frame(id, name, data)
            events += told
            beyond += len(told) - 1
            if self.exhausted:
                return events
        self.index = start + len(frames)
        return events

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        if name == b"done" and not data.strip():
            data = b"[DONE]"
        return super().feed_frame(id, name, data)

    # -- the tolerant path

    def feed(self, item: Mapping[str, Any]) -> Iterable[Event]:
        name, data = named(item)
        events = list(self._read(name, data, item))
        if name in ANNOUNCED or not (events or name == "done"):
            events.append(RawEvent(name, item))
        return events

    def finish(self) -> Iterable[Event]:
        status: Status = "completed" if self.complete else "incomplete"
        yield from self._settle(status)

    def _read(self, name: str, data: Any, item: Wire) -> Iterator[Event]:
        wire = mapping(data)
        match name:
            case "thread.run.created" | "thread.run.queued" | "thread.run.in_progress" | "thread.run.cancelling":
                self._created = self._created or name == "thread.run.created"
                yield from self._begin(wire)
            case "thread.run.requires_action":
                yield from self._ask(wire)
            case "thread.run.step.created" | "thread.run.step.in_progress":
                step = yield from self._step_of(wire)
                yield from step.begin(mapping(wire.get("step_details")))
            case "thread.run.step.delta":
                yield from self._step_delta(wire)
            case "thread.message.created" | "thread.message.in_progress":
                message = yield from self._message_of(wire)
                yield from message.begin(wire)
            case "thread.message.delta":
                yield from self._message_delta(wire)
            case "error":
                yield from self._fail(data, item)
            case "done":
                self.complete = self.exhausted = True
            case _ if name in RUN_ENDS:
                yield from self._end(wire, RUN_ENDS[name])
            case _ if name in STEP_ENDS:
                yield from self._step_end(wire, STEP_ENDS[name])
            case _ if name in MESSAGE_ENDS:
                message = yield from self._message_of(wire)
                self._growing.pop(message.key, None)
                yield from message.finish(wire, MESSAGE_ENDS[name])
            case _:
                pass

    # -- the run

    def _begin(self, wire: Wire) -> Iterator[Event]:
        """The run, with all that it says of itself; where it goes on after requires_action, once more."""
        another = bool(self._run_id) and text(wire.get("id")) not in ("", self._run_id)
        if not self._known or self._ended == "requires_action" or (self._ended and another):
            self._begun = self._known = True
            self._ended, self.complete = "", False
            self._run_id = text(wire.get("id")) or self._run_id
            yield RunCreated(run_of(wire, "in_progress"))

    def _belong(self, wire: Wire) -> Iterator[Event]:
        """What comes before its run tells that there is one."""
        if not self._begun and (run_id := text(wire.get("run_id"))):
            self._begun = True
            yield RunCreated(Run(id=run_id, metadata=kept(wire, ("thread_id", "assistant_id"))))

    def _ask(self, wire: Wire) -> Iterator[Event]:
        """The run waits for its calls' outputs. What is open of these is all there."""
        yield from self._begin(wire)
        if self._ended:
            return
        for entry in objects(
            mapping(mapping(wire.get("required_action")).get("submit_tool_outputs")).get("tool_calls")
        ):
            step = self._holder(text(entry.get("id")))
            if step is None:
                step = yield from self._new_step("", {})
            yield from step.answer(entry)
        if self._owed:
            yield self._pay(None)
        yield RunRequiresAction(run_of(wire, "requires_action"))
        yield from self._end_run(wire, "requires_action")

    def _holder(self, call_id: str) -> Step | None:
        """The step that has this call, else the one that calls would come in."""
        for step in reversed(self._steps.values()):
            if call_id in step.by_id:
                return step
        return self._step if self._step is not None and not self._step.done else None

    def _end(self, wire: Wire, status: RunStatus) -> Iterator[Event]:
        yield from self._begin(wire)
        if self._ended:
            return
        yield from self._settle(STATUSES[status])
        used = mapping(wire.get("usage"))
        if self._owed or (used and not self._counted):
            yield self._pay(usage_of(used) if used and not self._counted else None)
        yield from self._end_run(wire, status)

    def _end_run(self, wire: Wire, status: RunStatus) -> Iterator[Event]:
        self._ended, self.complete = status, True
        self._growing.clear()
        yield RunDone(run_of(wire, status))

    def _fail(self, data: Any, item: Wire) -> Iterator[Event]:
        if self._ended not in ("", "requires_action"):
            return
        self._begun = self.complete = True
        self._ended = "failed"
        yield from self._settle("failed")
        yield RunDone(Run(status="failed", error=error_of(data), raw=dict(item)))

    def _settle(self, status: Status) -> Iterator[Event]:
        """What is open is over."""
        self._growing.clear()
        for message in self._messages.values():
            if not message.done:
                yield from message.settle(status)
        for step in self._steps.values():
            if not step.done:
                yield from step.settle(status)

    def _pay(self, usage: Usage | None) -> Usage:
        """Tokens of a step or a run, and of what was completed before any step of this stream."""
        together = [*self._owed, *([] if usage is None else [usage])]
        self._owed.clear()
        self._counted = True
        return Usage(
            sum(one.input_tokens for one in together),
            sum(one.output_tokens for one in together),
            sum(one.total_tokens for one in together),
            together[-1].details,
        )

    # -- steps

    def _step_of(self, wire: Wire) -> Generator[Event, None, Step]:
        """The step that an event's data is, begun here if nothing told of it before."""
        yield from self._belong(wire)
        id = text(wire.get("id"))
        known = self._steps.get(id) if id else self._step
        if known is None or (known.done and not id):
            known = yield from self._new_step(id, wire)
        return known

    def _new_step(self, id: str, wire: Wire) -> Generator[Event, None, Step]:
        told = step_of(wire, id, "in_progress")
        told.usage = told.error = told.completed_at = None
        step = self._step = self._steps[id or f"#{len(self._steps)}"] = Step(id, self.warn, self._ids.unused)
        if message_id := text(told.metadata.get("message_id")):
            self._makers[message_id] = id
        yield RunStepCreated(told)
        return step

    def _step_delta(self, wire: Wire) -> Iterator[Event]:
        details = mapping(mapping(wire.get("delta")).get("step_details"))
        step = yield from self._step_of({"step_details": {"type": details.get("type")}, **wire})
        if message_id := text(mapping(details.get("message_creation")).get("message_id")):
            self._makers[message_id] = step.id
        for position, entry in enumerate(objects(details.get("tool_calls"))):
            yield from step.grow(position, entry)

    def _step_end(self, wire: Wire, status: RunStatus) -> Iterator[Event]:
        id = text(wire.get("id"))
        earlier = not self._created and not self._steps
        if earlier and id:
            yield from self._belong(wire)
            step = self._steps[id] = Step(id, self.warn, self._ids.unused, announced=False)
        else:
            step = yield from self._step_of(wire)
        if step.done:
            return
        told = step_of(wire, step.id, status)
        yield from step.finish(mapping(wire.get("step_details")), STATUSES[status])
        if told.usage is not None and step.announced:
            yield self._pay(told.usage)
        elif told.usage is not None:
            self._owed.append(told.usage)
            self._counted = True
        yield RunStepDone(told)

    # -- messages

    def _message_of(self, wire: Wire) -> Generator[Event, None, ThreadMessage]:
        """The thread's message that an event's data is, or is a part of."""
        yield from self._belong(wire)
        id = text(wire.get("id"))
        message = self._messages.get(id) if id else self._latest
        if message is None or (message.done and not id):
            key = id or self.new_id()
            message = self._messages[key] = ThreadMessage(key, self.warn, self._ids.unused)
            message.step_id = self._makers.get(id)
        self._latest = message
        return message

    def _message_delta(self, wire: Wire) -> Iterator[Event]:
        message = yield from self._message_of(wire)
        delta = mapping(wire.get("delta"))
        message.role = message.role or text(delta.get("role"))
        entries = objects(delta.get("content"))
        if not isinstance(delta.get("content"), (list, tuple)) and (alone := mapping(delta.get("content"))):
            entries = [alone]
        for position, entry in enumerate(entries):
            yield from message.grow(position, entry)
        part = message.current
        if part is not None and part.kind == "text" and part.opened and not part.closed:
            self._growing[message.key] = (part.index, part.id)
        else:
            self._growing.pop(message.key, None)
