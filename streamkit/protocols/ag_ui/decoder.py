"""AG-UI: version 1.0, and the 0.x before it.

Terminal rule: a stream is complete with RUN_FINISHED or RUN_ERROR. Another run may follow in the same stream. A run that
ends with an `interrupt`, or while a call waits for its output, ends `requires_action`. Interrupts about a call are
confirmations; those that our encoder did not write are in the run's metadata, under `ag_ui`, as they came.

A thread's id is in the run's metadata. What stands for nothing of ours is a raw event: the agent's state, snapshots of
messages, activities of another server, sub-agents, encrypted values, RAW and CUSTOM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ... import events as e
from ...errors import RunFailedError
from ..dates import time_of
from ..ui_decoder import UiDecoder
from ..ui_parts import usage_of
from ..values import WireObject, as_object, as_objects, as_seconds, as_text, text_or_none, without_keys
from . import wire as w
from .calls_in import IncomingCalls
from .own_events import ActivityReader

__all__ = ["Decoder"]

_STATUSES = ("incomplete", "requires_action", "expired")
_ROLES = {"assistant": "assistant", "user": "user", "system": "system", "developer": "system"}


class Decoder(UiDecoder):
    """Decodes an AG-UI stream."""

    name = "ag_ui"
    plain_item: ClassVar[Any] = w.PlainAgUiDelta
    text_deltas, text_id = {"text": w.TEXT_DELTA, "reasoning": w.REASONING_DELTA}, "messageId"
    call_delta, call_piece = w.CALL_DELTA, "value"
    extra_of, metadata_of = w.extra_of, w.others_of

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._calls = IncomingCalls(self._ids.unused, self.warn)
        self._growing_calls = self._calls.growing
        self._own = ActivityReader(self._calls)
        self._chunked: dict[str, str] = {}  # the id of the message that chunks go on with, by the prefix of their type
        self._thinking = ""  # the id of the text that the events of 0.x go on with
        self._step_names: set[str] = set()
        self._has_finished = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it has a type of this protocol, and what events of this type have."""
        return w.is_event(item)

    def feed(self, item: WireObject) -> Iterable[e.Event]:
        """Return the events of one event of the protocol."""
        kind = as_text(item.get("type"))
        if kind in w.LEGACY:
            item = self._with_id(kind, item)
            kind = w.LEGACY[kind]
        if self._step_is_over and kind not in ("RUN_FINISHED", "RUN_ERROR"):
            self._step_is_over = False
            return [e.RunStepDone(e.RunStep()), *self._read(kind, item)]
        return self._read(kind, item)

    def _read(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        match kind:
            case "RUN_STARTED":
                return self._start_run(item)
            case "RUN_FINISHED":
                return self._finish(item)
            case "RUN_ERROR":
                return self._fail(item)
            case "STEP_STARTED":
                return self._start_step(item)
            case "STEP_FINISHED":
                return self._finish_step(item)
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                return self._begin_text(_kind_of_text(kind), item)
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                return self._text_delta(_kind_of_text(kind), item)
            case "TEXT_MESSAGE_END" | "REASONING_MESSAGE_END":
                return self._end_text(_kind_of_text(kind), item)
            case "TEXT_MESSAGE_CHUNK" | "REASONING_MESSAGE_CHUNK" | "TOOL_CALL_CHUNK":
                return self._chunk(item)
            case "ACTIVITY_SNAPSHOT" | "ACTIVITY_DELTA" | "CUSTOM":
                return self._own_event(item)
            case _:
                return self._read_other(kind, item)

    def _read_other(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        match kind:
            case "TOOL_CALL_START":
                return self._calls.start(item)
            case "TOOL_CALL_ARGS":
                return self._calls.args(item)
            case "TOOL_CALL_END":
                return self._calls.end(item)
            case "TOOL_CALL_RESULT":
                return self._calls.result(item)
            case "REASONING_START" | "REASONING_END":
                return ()
            case "RAW":
                return [e.RawEvent(as_text(item.get("source")) or "RAW", item.get("event"))]
            case _:
                return self._unknown(kind, item)

    def _unknown(self, kind: str, item: WireObject) -> Iterable[e.Event]:
        """Return the events of an item that stands for nothing of ours, or is none of this protocol."""
        if kind in w.EVENT_KEYS:
            return [e.RawEvent(kind, item)]
        if "error" in item:  # of the server in front
            error = item["error"]
            return self._fail({"message": as_text(as_object(error).get("message")) or as_text(error)})
        return [self.warn("unknown-type", f"its type {kind!r} is none of this protocol's; it was skipped", kind)]

    def _with_id(self, kind: str, item: WireObject) -> WireObject:
        """Return an event of 0.x as that of 1.0, with the id that it lacks."""
        if kind == "THINKING_TEXT_MESSAGE_START" or not self._thinking:
            self._thinking = self._ids.new()
        return {**item, "type": w.LEGACY[kind], "messageId": self._thinking}

    # -- the run and its steps

    def _start_run(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = self._has_finished = False
        extra, run_id, thread_id = w.extra_of(item), as_text(item.get("runId")), as_text(item.get("threadId"))
        thread = {"thread_id": thread_id} if thread_id not in ("", run_id) else {}
        more = {**thread, **w.others_of(item)}
        id, model = as_text(extra.get("id")) or run_id, text_or_none(extra.get("model"))
        yield e.RunCreated(e.Run(id=id, model=model, created_at=as_seconds(extra.get("created_at")), metadata=more))

    def _start_step(self, item: WireObject) -> Iterator[e.Event]:
        name = as_text(item.get("stepName"))
        id = "" if name in self._step_names else name
        self._step_names.add(name)
        yield e.RunStepCreated(e.RunStep(id=id, type=None if id else text_or_none(name)))

    def _finish_step(self, item: WireObject) -> Iterator[e.Event]:
        usage = as_object(w.extra_of(item).get("usage"))
        if usage:
            self._has_step_usage = True
            yield usage_of(usage)
        if self._texts or self._calls.open:
            yield e.RunStepDone(e.RunStep())
        else:
            self._step_is_over = True

    def _finish(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = self._has_finished = True
        outcome, extra = as_object(item.get("outcome")), w.extra_of(item)
        waiting_ids = set(self._calls.pending)
        interrupts = [one for one in as_objects(outcome.get("interrupts")) if as_text(one.get("id")) not in waiting_ids]
        for interrupt in interrupts:
            id, call_id = as_text(interrupt.get("id")), as_text(interrupt.get("toolCallId"))
            yield from self._calls.ask(id, call_id, time_of(interrupt.get("expiresAt")))
        usage = w.usage_of_list(item.get("usage"))
        if usage is not None and not self._has_step_usage:
            yield usage
        status: Any = as_text(extra.get("status"))
        if status not in _STATUSES:
            status = "completed"
        if outcome.get("type") == "interrupt" or self._calls.pending:
            status = "requires_action"
        if outcome.get("type") == "cancelled":
            status = "cancelled"
        metadata = {w.KEY: {"interrupts": interrupts}} if interrupts else {}
        reason, model = text_or_none(extra.get("finishReason")), text_or_none(extra.get("model"))
        completed_at = as_seconds(extra.get("completed_at"))
        run = e.Run(status=status, metadata=metadata, finish_reason=reason, model=model, completed_at=completed_at)
        if self._calls.pending:
            yield e.RunRequiresAction(e.Run())
        yield e.RunDone(run)

    def _fail(self, item: WireObject) -> Iterator[e.Event]:
        self.complete = True
        usage = w.usage_of_list(item.get("usage"))
        if usage is not None and not self._has_step_usage:
            yield usage
        code = text_or_none(item.get("code"))
        if code == "cancelled":
            yield e.RunDone(e.Run(status="cancelled"))
            return
        message = as_text(item.get("message")) or "the run failed"
        if self._has_finished:  # what came after the run failed
            yield e.StreamException(RunFailedError.__name__, message)
            return
        yield e.RunDone(e.Run(status="failed", error={"message": message, **without_keys({"code": code})}))

    def _more_fields(self, kind: str, item: WireObject) -> dict[str, Any]:
        if kind == "reasoning":
            return {}
        fields = {"role": _ROLES.get(as_text(item.get("role")), "assistant")}
        return {**fields, **without_keys({"name": text_or_none(item.get("name"))})}

    # -- chunks, which are starts, contents and ends in one

    def _chunk(self, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of a piece of the message with this id, or of the newest. A piece of another one ends the
        one before."""
        prefix = as_text(item.get("type")).removesuffix("_CHUNK")
        key = "toolCallId" if prefix == "TOOL_CALL" else "messageId"
        start, content, _ = _CHUNK_PHASES[prefix]
        id = as_text(item.get(key)) or self._chunked.get(prefix, "")
        if id != self._chunked.get(prefix):
            yield from self._end_chunked()
            if not id:
                id = self._ids.new()
            self._chunked[prefix] = id
            yield from self._read(start, {**item, "type": start, key: id})
        if item.get("delta") is not None:
            yield from self._read(content, {"type": content, key: id, "delta": item["delta"]})

    def _end_chunked(self) -> Iterator[e.Event]:
        """Yield the ends of what came as chunks."""
        for prefix, id in [*self._chunked.items()]:
            del self._chunked[prefix]
            end = _CHUNK_PHASES[prefix][2]
            key = "toolCallId" if prefix == "TOOL_CALL" else "messageId"
            yield from self._read(end, {"type": end, key: id})

    # -- other events

    def _own_event(self, item: WireObject) -> Iterator[e.Event]:
        """Yield the events of an activity or a custom event: one of our encoder's, or a raw one."""
        events = self._own.read(item)
        yield from (
            [e.RawEvent(as_text(item.get("name")) or as_text(item.get("type")), item)] if events is None else events
        )


def _kind_of_text(kind: str) -> str:
    """Return whether an event is about a text or a reasoning."""
    return "reasoning" if kind.startswith("REASONING") else "text"


_CHUNK_PHASES = {
    "TEXT_MESSAGE": ("TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
    "REASONING_MESSAGE": ("REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END"),
    "TOOL_CALL": ("TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"),
}
