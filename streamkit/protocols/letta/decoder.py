"""Letta's streams: today's (server 0.16), and those of 2024, MemGPT's among them.

Terminal rule. Today's: a `stop_reason`, an error, or `[DONE]`; the usage and an error may follow a stop_reason, so the
source is read on. 2024's: `[DONE]`; `[DONE_GEN]` is the end of a model call, `[DONE_STEP]` of a run step. A stream with
none of these was cut off.

No item says that a message is over. A text is done where a later part of the same message begins, as its otid or no
otid at all says; a call where its arguments' JSON ends; and all that is open where a step ends: with a tool's return,
another step id, a stop_reason. What tells more after that is of another step, and of another run if it says so.

Calls run at the server (`provider_executed`). Those that it asks approval for have `metadata["requires_approval"]`, and
their confirmations are asked together, once the stop_reason says that there are no more; the run then ends
`requires_action`. They take a yes, or a no with its reason; no edited arguments. The answer is the next request's:
`to_input(stream.confirmations, "letta")`.

A cursor is `run_id:seq_id`, which only background streams have: resume with `runs.messages.stream(run_id,
starting_after=seq_id)`. What comes again is dropped, by its seq_id.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from ... import events as e
from ... import messages as m
from ...events import ToolCallDelta
from .. import base
from ..framing import Frames, as_frame
from .calls import Tools
from .dates import time_of
from .legacy import is_legacy, kind_of, today
from .parts import MessageIds, Places, TextPart, TextParts
from .wire import (
    ENDS,
    PAYLOADS,
    PIECES,
    CallPiece,
    Wire,
    as_error,
    decode_piece,
    error_of,
    integer,
    json_text,
    read_content,
    text,
    usage_of,
)

__all__ = ["Decoder"]

# Texts that may grow: their messages, and where their text is.
_TEXTS: dict[str, tuple[type[m.Message], str]] = {
    "reasoning_message": (m.ReasoningMessage, "reasoning"),
    "hidden_reasoning_message": (m.ReasoningMessage, ""),
    "assistant_message": (m.TextMessage, "content"),
}
_KEPT = ("name", "sender_id", "is_err", "source", "state", "hidden_reasoning")  # in the metadata of a text
_OUTSIDE = ("ping", "error_message", "stop_reason", "usage_statistics")  # of any step, and not numbered
# Items of a run. After one that ended so they are of another, whether they say so or not; where it failed or was
# cancelled, that is the last word.
_OF_RUNS = (
    *_TEXTS,
    "tool_call_message",
    "approval_request_message",
    "tool_return_message",
    "approval_response_message",
)
_GOES_ON: tuple[e.RunStatus, ...] = ("completed", "requires_action", "incomplete")
_CANCELLED = msgspec.json.encode({"message_type": "stop_reason", "stop_reason": "cancelled"})


class _Growing(NamedTuple):
    """The text that grew last, as its pieces name it."""

    kind: type[Any] | None = None
    id: str | None = None
    otid: str | None = None
    message_id: str = ""
    make: Any = None


_NOTHING = _Growing()


class Decoder(base.Decoder):
    """A Letta stream of either era; see the module for when it is complete."""

    name = "letta"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        self._places = Places()
        self._texts = TextParts()
        self._tools = Tools(self._ids, self._places, self._end_parts, self.warn)
        self._run: str | None = None
        self._step: str | None = None
        self._steps: set[str] = set()
        self._seen: dict[str, int] = {}  # the last seq_id of each run
        self._growing = _NOTHING
        self._ended: e.RunStatus | None = None
        self._reason: str | None = None
        self._step_over = False  # it is, but its usage may follow

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        kind = item.get("message_type")
        if isinstance(kind, str):
            return any(key in item for key in PAYLOADS.get(kind, ()))
        return is_legacy(item)

    # -- the fast path: pieces of texts and calls that are open

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        events: list[e.Event] = []
        if self.exhausted:
            return events
        self._first, self._frames = self.index, frames
        calls, seen = self._tools.growing, self._seen
        start, beyond = self.index, 0  # what slow items told beyond one event each
        grows, run, step = self._growing, self._run, self._step
        key = run or ""
        for id, name, data in map(as_frame, frames):
            event: e.Event | None = None
            try:
                piece = decode_piece(data)
                seq = piece.seq_id
                known = piece.run_id == run and piece.step_id == step and not id and not name
                if not known or (seq is not None and seq <= seen.get(key, -1)):
                    pass
                elif type(piece) is CallPiece:
                    fragment = piece.fragment
                    value = fragment.arguments
                    if "}" not in value:
                        call = calls[fragment.tool_call_id]
                        call.pieces.append(value)
                        event = ToolCallDelta(call.message_id, value, raw_item=data)
                elif type(piece) is grows.kind and piece.otid == grows.otid and piece.id == grows.id:
                    event = grows.make(grows.message_id, piece.value, raw_item=data)
            except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                if event is not None:
                    if seq is not None:
                        seen[key] = seq
                        event.position = f"{run}:{seq}" if run else str(seq)
                    events.append(event)
                    continue
            self.index = start + len(events) - beyond
            told = self.feed_frame(id, name, data)
            events += told
            beyond += len(told) - 1
            if self.exhausted:
                return events
            grows, run, step = self._growing, self._run, self._step
            key = run or ""
        self.index = start + len(frames)
        return events

    # -- the tolerant path

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[e.Event]:
        if name not in (b"error", b"cancelled") or data.startswith(b"[DONE"):
            return super().feed_frame(id, b"", data)
        given = as_error(data)
        if name == b"cancelled" and given is not data:
            given = _CANCELLED
        events = super().feed_frame(id, b"", given)
        for event in events:
            event.raw_item = data
        return events

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        yield from self._close("completed")
        match data.strip():
            case b"[DONE]":
                self.complete = True
                if self._ended is None:
                    yield from self._end("")
            case b"[DONE_STEP]":
                yield from self._end_step()
                self._step_over = True
            case _:
                pass  # a model call is over; its tools may follow

    def finish(self) -> Iterable[e.Event]:
        if not self.complete:
            yield from self._close("incomplete")

    def feed(self, item: Mapping[str, Any]) -> Iterable[e.Event]:
        kind, wire = today(kind_of(item), item)
        seq, run = integer(wire.get("seq_id")), text(wire.get("run_id")) or self._run or ""
        outside = kind in _OUTSIDE
        if not outside and seq is not None:
            if seq <= self._seen.get(run, -1):
                return []
            self._seen[run] = seq
        events = [*self._place(kind, wire, outside=outside), *self._read(kind, wire, item)]
        if seq is not None:
            for event in events:
                event.position = _cursor(run or None, seq)
        return events

    def _place(self, kind: str, wire: Wire, *, outside: bool) -> Iterator[e.Event]:
        """The run and the step that an item is in, where they are others than before."""
        if kind != "usage_statistics":
            yield from self._end_step()
        if self._ended in _GOES_ON and kind in _OF_RUNS:
            self._ended, self.complete = None, False
        run, step = text(wire.get("run_id")), text(wire.get("step_id"))
        if run and run != self._run and (kind == "ping" or not outside):
            yield from self._another_run(run, wire)
        if step and step not in self._steps and not outside:
            yield from self._close("completed")
            self._steps.add(step)
            self._step = step
            yield e.RunStepCreated(e.RunStep(id=step))

    def _another_run(self, run: str, wire: Wire) -> Iterator[e.Event]:
        """An item of this run comes: it begins, or its id is learned."""
        learned, self._run = self._run is None, run
        if learned and self._ended is not None:
            return  # it has ended already, and does not begin with this
        if not learned:
            yield from self._close("completed")
            self._step = None
        self._ended, self.complete = None, False
        yield e.RunCreated(e.Run(id=run, created_at=time_of(wire.get("date"))))

    def _read(self, kind: str, wire: Wire, item: Wire) -> Iterator[e.Event]:
        match kind:
            case "reasoning_message" | "assistant_message" | "hidden_reasoning_message":
                yield from self._text(kind, wire, item)
            case "tool_call_message" | "approval_request_message":
                yield from self._tools.fragments(wire, asks=kind == "approval_request_message")
            case "tool_return_message":
                yield from self._close("completed")
                yield from self._tools.returns(wire, item)
            case "approval_response_message":
                yield from self._close("completed")
                yield from self._tools.responses(wire, item)
            case "user_message" | "system_message" | "summary_message":
                yield from self._whole(kind, wire, item)
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
                yield e.RawEvent(kind or text(item.get("type")) or "message", item)

    # -- texts

    def _text(self, kind: str, wire: Wire, item: Wire) -> Iterator[e.Event]:
        self._growing = _NOTHING
        make, key = _TEXTS[kind]
        given = wire.get(key)
        if key == "reasoning" and not isinstance(given, str | None):
            yield self.warn("bad-reasoning", f"its reasoning is a {type(given).__name__}, and was skipped", kind)
            given = None
        content = read_content(given)
        if content.more or content.images:
            yield e.RawEvent(kind, item)
        signature = text(wire.get("signature")) or content.signature
        if not (content.text or signature or not key):
            return
        id, otid = text(wire.get("id")), text(wire.get("otid"))
        part = self._texts.find(kind, id, otid)
        if part is None:
            part = yield from self._begin(kind, make, id, otid, wire)
        if signature:
            part.metadata["signature"] = signature
        if not key:
            part.metadata |= {name: wire[name] for name in _KEPT if wire.get(name)}
        elif content.text:
            yield make.delta_event(part.message_id, content.text)
            self._growing = _Growing(PIECES[kind], id or None, otid or None, part.message_id, make.delta_event)

    def _begin(self, kind: str, make: Any, id: str, otid: str, wire: Wire) -> Generator[e.Event, None, TextPart]:
        yield from self._end_parts(id, otid)
        part = TextPart(kind=kind, message_id=self._ids.unused(otid, id), id=id, otid=otid)
        known: dict[str, Any] = {"format": "redacted"} if kind == "hidden_reasoning_message" else {}
        metadata = {key: wire[key] for key in _KEPT if wire.get(key)}
        yield e.MessageCreated(make(part.message_id, metadata=metadata, **known, **self._places.of(wire)))
        self._texts.add(part)
        return part

    def _end_parts(self, id: str, otid: str) -> Iterator[e.Event]:
        """What is over where another part begins."""
        for part in self._texts.ended_by(id, otid):
            yield self._end_text(part, "completed")

    def _end_text(self, part: TextPart, status: m.Status) -> e.Event:
        self._texts.close(part)
        self._growing = _NOTHING
        make, key = _TEXTS[part.kind]
        return e.MessageDone(
            make(part.message_id, content=None if key else "", status=status, metadata=part.metadata or None)
        )

    def _whole(self, kind: str, wire: Wire, item: Wire) -> Iterator[e.Event]:
        """What the user, the system or a summary of the context says."""
        summary = kind == "summary_message"
        content = read_content(wire.get("summary" if summary else "content"))
        if content.more or not (content.text or content.images):
            yield e.RawEvent(kind, item)
        known: dict[str, Any] = {"role": "user" if kind == "user_message" else "system", **self._places.of(wire)}
        id = self._ids.of_whole(kind, text(wire.get("otid")), text(wire.get("id")))
        if summary and content.text:
            stats = {key: wire[key] for key in ("compaction_stats",) if wire.get(key) is not None}
            yield e.MessageDone(m.Message(id, type="summary", content=content.text, metadata=stats, **known))
        elif content.text:
            yield e.MessageDone(m.TextMessage(id, content=content.text, **known))
        for place, (format, data) in enumerate(content.images):
            yield e.MessageDone(m.ImageMessage(f"{id}.image.{place}", format=format, content=data, **known))

    # -- endings

    def _close(self, status: m.Status) -> Iterator[e.Event]:
        """All that is open is over."""
        for part in [*self._texts.open]:
            yield self._end_text(part, status)
        yield from self._tools.close(status)

    def _end_step(self) -> Iterator[e.Event]:
        if self._step_over:
            self._step_over = False
            yield e.RunStepDone(e.RunStep())

    def _stop(self, wire: Wire) -> Iterator[e.Event]:
        given = wire.get("stop_reason")
        reason = text(given)
        if not reason:
            yield self.warn(
                "bad-stop-reason", f"its stop_reason is {json_text(given)!r}; read as `end_turn`", "stop_reason"
            )
        failed = ENDS.get(reason) == "failed"
        if self._ended is None or (failed and self._ended not in ("failed", "cancelled")):
            yield from self._end(reason)

    def _end(self, reason: str) -> Iterator[e.Event]:
        status = ENDS.get(reason, "completed")
        ends: dict[str, m.Status] = {"incomplete": "incomplete", "failed": "failed", "cancelled": "cancelled"}
        yield from self._close(ends.get(status, "completed"))
        error = None
        if status == "failed":
            error = {"message": f"the run ended with the stop_reason {reason!r}", "type": reason}
        elif status in ("completed", "requires_action"):
            asked = [*self._tools.ask()]
            yield from asked
            if asked:
                status = "requires_action"  # a stream that is taken up again may say `end_turn` here
            if status == "requires_action":
                yield e.RunRequiresAction(e.Run(finish_reason=reason or None))
        self.complete = True
        self._ended, self._reason = status, reason or None
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=reason or None))

    def _fail(self, wire: Wire) -> Iterator[e.Event]:
        """An error is the last word, but for a cancelled run's own."""
        error = error_of(wire)
        status: e.RunStatus = "failed"
        if self._ended == "cancelled" and error.get("type") == "stream_task_cancelled":
            status = "cancelled"
        yield from self._close("failed")
        self.complete = True
        self._ended = status
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=self._reason))


def _cursor(run: str | None, seq: int) -> str:
    return f"{run}:{seq}" if run else str(seq)
