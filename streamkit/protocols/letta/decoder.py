"""Decodes Letta's streams: today's (server 0.16), and those of 2024, MemGPT's among them.

Terminal rule. Today: a `stop_reason`, an error, or `[DONE]`. The usage and an error may follow a stop_reason, so the source
is read on. In 2024: `[DONE]`; `[DONE_GEN]` is the end of a model call, `[DONE_STEP]` that of a run step. A stream with none
of these was cut off.

No item says that a message is over. A text is done where a later part of the same message begins, which shows in its otid
or in the absence of one; a call where the JSON of its arguments ends; and everything that is open where a step ends: with a
tool's return, another step id, or a stop_reason. Items after that are of another step, and of another run if they say so.

The server runs the calls (`provider_executed`). Those for which it wants an approval have `metadata["requires_approval"]`.
Their confirmations are emitted together, when the stop_reason shows that no more follow, and the run ends
`requires_action`. They can be approved, or declined with a reason; arguments cannot be edited. The answer is in the next
request: `to_input(stream.confirmations, "letta")`.

A cursor is `run_id:seq_id`, which only background streams have: resume with `runs.messages.stream(run_id,
starting_after=seq_id)`. Items that come again are dropped, by their seq_id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import msgspec

from ... import events as e
from ... import messages as m
from ...events import OPEN_MESSAGE_STATUS
from .. import base
from ..dates import time_of
from ..values import WireObject, as_count, as_text, error_item, text_or_json
from .calls import LettaToolCalls
from .ids import GroupPositions, LettaMessageIds
from .legacy import kind_of, modernise
from .shape import recognises
from .texts import GROWING_TEXTS, Texts
from .wire import STATUS_OF_STOP_REASON, PlainPiece, error_of, usage_of, warning

__all__ = ["Decoder"]

# Items outside of any step, which have no numbers either.
_OUTSIDE_STEPS = ("ping", "error_message", "stop_reason", "usage_statistics")
# Items that only a run can have. After the end of a run with one of the statuses below they begin another run, even if
# they have no run_id. A run that failed or was cancelled ends the stream.
_RUN_ITEMS = (
    *GROWING_TEXTS,
    "tool_call_message",
    "approval_request_message",
    "tool_return_message",
    "approval_response_message",
)
_CONTINUABLE: tuple[e.RunStatus, ...] = ("completed", "requires_action", "incomplete")
_CANCELLED = msgspec.json.encode({"message_type": "stop_reason", "stop_reason": "cancelled"})


class Decoder(base.Decoder):
    """A Letta stream, of today or of 2024."""

    name = "letta"
    plain_item: ClassVar[Any] = PlainPiece

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        ids, positions = LettaMessageIds(self.new_id), GroupPositions()
        self._texts = Texts(ids, positions)
        self._calls = LettaToolCalls(ids, positions, self._texts)
        self._run: str | None = None  # the ids of the current run and step
        self._step: str | None = None
        self._steps: set[str] = set()
        self._last_seq: dict[str, int] = {}  # the last seq_id of each run
        self._ended: e.RunStatus | None = None  # how the current run ended
        self._stop_reason: str | None = None
        self._is_step_over = False  # the step ended, but its usage may follow

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it has a `message_type` of Letta's and a key that belongs to it, or is an item of 2024."""
        return recognises(item)

    def plain(self, item: PlainPiece) -> e.Delta | None:
        """Return the event of a piece of the newest text, or of an open call."""
        run, seq, event = self._run, item.seq_id, None
        if item.run_id != run or item.step_id != self._step:
            return None
        if seq is not None and seq <= self._last_seq.get(run or "", -1):
            return None
        if item.message_type == "tool_call_message":
            event = self._calls.plain(item.fragment)
        else:
            event = self._texts.plain(item)
        if event is not None and seq is not None:
            self._last_seq[run or ""] = seq
            event.position = f"{run}:{seq}" if run else str(seq)
        return event

    # -- any other item

    def item_data(self, name: bytes, data: bytes) -> bytes:
        """Return the data of an SSE event. Those named `error` and `cancelled` are read as items that say so
        themselves."""
        if name not in (b"error", b"cancelled") or data.startswith(b"[DONE"):
            return data
        item = error_item(data, lambda item: isinstance(item.get("message_type"), str))
        return _CANCELLED if name == b"cancelled" and item is not data else item

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        """Return the events of `[DONE]`, and of the two sentinels of 2024 that end less."""
        events = [*self._close("completed")]
        match data.strip():
            case b"[DONE]":
                self.complete = True
                if self._ended is None:
                    events += self._end("")
            case b"[DONE_STEP]":
                events += self._end_step()
                self._is_step_over = True
            case _:
                pass  # a model call is over, whose tools may follow
        return self._with_index(events)

    def finish(self) -> Iterable[e.Event]:
        """Return the ends of what a cut-off left open."""
        return [] if self.complete else self._with_index([*self._close("incomplete")])

    def feed(self, item: WireObject) -> Iterable[e.Event]:
        """Return the events of one item. One that was read before, in the same run, has none."""
        kind, wire = modernise(kind_of(item), item)
        seq, run = as_count(wire.get("seq_id")), as_text(wire.get("run_id")) or self._run or ""
        is_outside = kind in _OUTSIDE_STEPS
        if not is_outside and seq is not None:
            if seq <= self._last_seq.get(run, -1):
                return []
            self._last_seq[run] = seq
        events = [*self._enter(kind, wire, is_outside), *self._read(kind, wire, item)]
        if seq is not None:
            for event in events:
                event.position = f"{run}:{seq}" if run else str(seq)
        return self._with_index(events)

    def _with_index(self, events: list[e.Event]) -> list[e.Event]:
        """Return these events, with the current item's index in the warnings."""
        for event in events:
            if isinstance(event, e.StreamWarning):
                event.index = self.index
        return events

    def _enter(self, kind: str, wire: WireObject, is_outside: bool) -> Iterator[e.Event]:
        """Begin the run and the step that an item belongs to, if they are not the current ones."""
        if kind != "usage_statistics":
            yield from self._end_step()
        if self._ended in _CONTINUABLE and kind in _RUN_ITEMS:
            self._ended, self.complete = None, False
        run, step = as_text(wire.get("run_id")), as_text(wire.get("step_id"))
        if run and run != self._run and (kind == "ping" or not is_outside):
            yield from self._enter_run(run, wire)
        if step and step not in self._steps and not is_outside:
            yield from self._close("completed")
            self._steps.add(step)
            self._step = step
            yield e.RunStepCreated(e.RunStep(id=step))

    def _enter_run(self, run: str, wire: WireObject) -> Iterator[e.Event]:
        """Begin another run for an item with another run_id, or learn the id of the current one."""
        is_first_id, self._run = self._run is None, run
        if is_first_id and self._ended is not None:
            return  # the run has ended already, and does not begin with this item
        if not is_first_id:
            yield from self._close("completed")
            self._step = None
        self._ended, self.complete = None, False
        yield e.RunCreated(e.Run(id=run, created_at=time_of(wire.get("date"))))

    def _read(self, kind: str, wire: WireObject, item: WireObject) -> Iterator[e.Event]:
        match kind:
            case "reasoning_message" | "assistant_message" | "hidden_reasoning_message":
                yield from self._texts.fragment(kind, wire, item)
            case "tool_call_message" | "approval_request_message":
                yield from self._calls.fragments(wire, needs_approval=kind == "approval_request_message")
            case "tool_return_message":
                yield from self._close("completed")
                yield from self._calls.returns(wire, item)
            case "approval_response_message":
                yield from self._close("completed")
                yield from self._calls.responses(wire, item)
            case "user_message" | "system_message" | "summary_message":
                yield from self._texts.read_whole(kind, wire, item)
            case "stop_reason":
                yield from self._stop(wire)
            case "usage_statistics":
                yield usage_of(wire)
                yield from self._end_step()
            case "error_message":
                yield from self._fail(wire)
            case "ping":
                pass
            case _:
                yield e.RawEvent(kind or as_text(item.get("type")) or "message", item)

    # -- endings

    def _close(self, status: m.Status) -> Iterator[e.Event]:
        """Yield the ends of everything that is open."""
        yield from self._texts.close(status)
        yield from self._calls.close(status)

    def _end_step(self) -> Iterator[e.Event]:
        if self._is_step_over:
            self._is_step_over = False
            yield e.RunStepDone(e.RunStep())

    def _stop(self, wire: WireObject) -> Iterator[e.Event]:
        """End the run with a stop_reason. After it, only a failure counts."""
        value = wire.get("stop_reason")
        reason = as_text(value)
        if not reason:
            fault = f"its stop_reason is {text_or_json(value)!r}; read as `end_turn`"
            yield warning("bad-stop-reason", fault, "stop_reason")
        is_failure = STATUS_OF_STOP_REASON.get(reason) == "failed"
        if self._ended is None or (is_failure and self._ended not in ("failed", "cancelled")):
            yield from self._end(reason)

    def _end(self, reason: str) -> Iterator[e.Event]:
        status = STATUS_OF_STOP_REASON.get(reason, "completed")
        yield from self._close(OPEN_MESSAGE_STATUS[status])
        error = None
        if status == "failed":
            error = {"message": f"the run ended with the stop_reason {reason!r}", "type": reason}
        elif status in ("completed", "requires_action"):
            confirmations = [*self._calls.ask()]
            yield from confirmations
            if confirmations:
                status = "requires_action"  # a stream that is resumed may say `end_turn` here
            if status == "requires_action":
                yield e.RunRequiresAction(e.Run(finish_reason=reason or None))
        self.complete = True
        self._ended, self._stop_reason = status, reason or None
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=reason or None))

    def _fail(self, wire: WireObject) -> Iterator[e.Event]:
        """End the run as failed, whatever its stop_reason was, unless the error is that of a cancelled run's task."""
        error = error_of(wire)
        status: e.RunStatus = "failed"
        if self._ended == "cancelled" and error.get("type") == "stream_task_cancelled":
            status = "cancelled"
        yield from self._close("failed")
        self.complete = True
        self._ended = status
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=self._stop_reason))
