"""The state of one stream: what a handler sees as `self.stream`, and how a source's events reach its engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from .. import errors, protocols
from ..answers import Confirmation
from ..core.argument_fields import ArgumentFields
from ..core.delivery import Delivery
from ..core.engine import Engine
from ..core.resume import ResumableEngine
from ..core.run_tracker import merge
from ..errors import (
    IncompleteStreamError,
    ProtocolError,
    RunFailedError,
    SourceTimeoutError,
    StreamkitError,
    UsageError,
)
from ..events import (
    Event,
    Run,
    RunStatus,
    RunStep,
    StreamEnd,
    StreamException,
    StreamTimeout,
    StreamWarning,
    Usage,
)
from ..handlers import Handler
from ..messages import Message, ToolCallMessage
from ..protocols import Decoder
from ..sources.decoding import SourceDecoder
from ..sources.source import AsyncSource, Source

__all__ = ["StreamState", "Timing", "error_of"]


class Timing(msgspec.Struct, frozen=True):
    """Seconds on a monotonic clock; None where it has not happened. `first_delta` and `duration` count from the
    stream's start, which is when its request was sent."""

    first_delta: float | None
    duration: float | None
    deltas: int
    deltas_per_second: float | None


class StreamState(Delivery):
    """What is known of a stream. All of it is live, and stays readable after the end."""

    def __init__(
        self,
        handlers: Sequence[Handler],
        *,
        protocol: str | type[Decoder] | None,
        strict: bool,
        then: Callable[[Any], Any] | None,
        wake: Callable[[], None],
        awaitables: bool,
        fields: Mapping[str, str] | None = None,
        after: str | None = None,
    ) -> None:
        if isinstance(protocol, str):
            protocol = protocols.find(protocol).Decoder
        kind = cast("object", protocol)  # what is called without types is checked here
        if kind is not None and not (isinstance(kind, type) and issubclass(kind, Decoder)):
            raise UsageError(f"a protocol is a name or a Decoder class, not {protocol!r}")
        if then is not None and not callable(cast("object", then)):
            raise UsageError(f"`then` is called with the stream for its next source; {then!r} cannot be called")
        for handler in cast("Sequence[object]", handlers):  # what is called without types is checked here
            if not isinstance(handler, Handler):
                raise UsageError(f"{handler!r} is no handler; subclass EventHandler, AsyncEventHandler or Handler")
        super().__init__(ResumableEngine(strict=strict, wake=wake), handlers, awaits=awaitables)
        self._fields = None if fields is None else ArgumentFields(fields)
        self._protocol = cast("type[Decoder] | None", protocol)
        self._then = then
        if after is not None and not isinstance(cast("object", after), str):
            raise UsageError(f"a cursor is a str, as `stream.cursor` gives it, not {after!r}")
        self._after = after
        self._engine.takes_outputs = self._engine.takes_approvals = then is not None
        self._engine.takes_awaitables = awaitables
        self._engine.number_of = lambda item: self._decoder.number_of(item) if self._decoder else None
        self._receivers: Sequence[Callable[[Sequence[Any]], None]] = [
            h.receive for h in handlers if type(h).receive is not Handler.receive
        ]
        self._source: Any = None
        self._source_decoder: SourceDecoder | None = None  # of the source that is being read, or was read last
        self._source_number = 0
        self._nested_outcome: Run | None = None  # how the run of a source ended that was read inside this one
        self._error: BaseException | None = None
        self._status = "in_progress"
        self._answers_taken = 0
        self._times: dict[str, float] = {}
        bound: list[Handler] = []
        try:
            for handler in handlers:
                handler.bind(self)
                bound.append(handler)
        except UsageError:
            for handler in bound:
                handler.unbind(self)
            raise

    # -- what users read

    @property
    def messages(self) -> Sequence[Message]:
        """All messages so far, in the order they were created; the open ones are live."""
        return tuple(self._engine.messages)

    @property
    def status(self) -> str:
        """`in_progress`, then how it ended: `completed`, `incomplete`, `requires_action`, `cancelled` or `failed`."""
        return self._status

    @property
    def started(self) -> bool:
        """Whether its request was sent."""
        return "start" in self._times

    @property
    def ended(self) -> bool:
        """Whether `on_end` was told."""
        return self._ended

    @property
    def error(self) -> BaseException | None:
        """What the stream failed with."""
        return self._error

    @property
    def usage(self) -> Usage | None:
        """The run's tokens: the sum of its steps', each as its provider counted last."""
        return self._engine.runs.usage

    @property
    def warnings(self) -> Sequence[StreamWarning]:
        """The warnings so far; the first 1000 are kept."""
        return tuple(self._engine.warnings)

    @property
    def pending(self) -> Mapping[str, Confirmation | ToolCallMessage]:
        """What waits for an answer: confirmations by their id, tool calls by their call id."""
        return dict(self._engine.pending)

    @property
    def confirmations(self) -> Sequence[Confirmation]:
        """All confirmations so far, decided ones too."""
        return tuple(self._engine.confirmations)

    @property
    def cursor(self) -> str | None:
        """Where the stream could be resumed after what was told so far; None if its source cannot."""
        position = self._current.position if self._current is not None else None
        position = self._position if position is None else position
        return None if position is None else str(position)

    @property
    def source_number(self) -> int:
        """How many sources were opened that began a run step: with `then=`, one for each response."""
        return self._source_number

    @property
    def timing(self) -> Timing:
        """How long things took."""
        start, first, end = (self._times.get(key) for key in ("start", "first", "end"))
        deltas = self._engine.forgotten_deltas + sum(message.delta_count for message in self._engine.messages)
        known = start is not None
        return Timing(
            first_delta=first - start if known and first is not None else None,  # type: ignore[operator]
            duration=end - start if known and end is not None else None,  # type: ignore[operator]
            deltas=deltas,
            deltas_per_second=deltas / (end - first) if first is not None and end is not None and end > first else None,
        )

    @property
    def fields(self) -> Mapping[str, str]:
        """The arguments of tools that become messages of their own, as `fields=` or a recording said; else empty."""
        return self._fields.given if self._fields is not None else {}

    def has_fields(self, call: ToolCallMessage) -> bool:
        """Whether arguments of this call become messages of their own: `fields=` names its tool."""
        return self._fields is not None and self._fields.chosen(call.name)

    @property
    def current_event(self) -> Event | None:
        """The event that was told last."""
        return self._current

    @property
    def current_run(self) -> Run | None:
        """The run, None before it begins. Its `id` is the newest response's, to go on from."""
        return self._engine.runs.run

    @property
    def current_run_step_snapshot(self) -> RunStep | None:
        """The step that is going on, else the last one."""
        return self._engine.runs.step or (self._engine.runs.steps[-1] if self._engine.runs.steps else None)

    @property
    def current_message_snapshot(self) -> Message | None:
        """The message that the last event told of, else the newest one."""
        told = getattr(self._current, "snapshot", None)
        return told or (self._engine.messages[-1] if self._engine.messages else None)

    def cancel(self) -> None:
        """Stop, from any thread, without waiting. What arrived is kept and returned; nothing is raised.

        A task is cancelled where it waits. A thread that waits for the network is stopped there, before an answer's head
        too: httpx, so the clients of openai and anthropic, and `http.client`, so urllib and requests. A thread that
        waits for anything else (a lock, `time.sleep`, a subprocess, a connection that is still being made) cannot be
        stopped by Python; the stream then ends when that wait does.
        """
        raise NotImplementedError("a manager's")

    # -- for streamkit's own packages

    @property
    def engine(self) -> Engine:
        """The engine that completes the stream's events. For streamkit's own packages, which may change with it."""
        return self._engine

    @property
    def source_decoder(self) -> SourceDecoder | None:
        """What decodes the source that is read, or was read last. For streamkit's own packages, as `engine`."""
        return self._source_decoder

    @property
    def is_closing(self) -> bool:
        """Whether `close` or `cancel` was called, or the stream failed."""
        return self._closing

    # -- sources

    def _source_opened(self, source: Source | AsyncSource) -> None:
        """Get ready to decode a source's items."""
        after = self._after if self._source_number == 0 else None
        if source.fields and self._fields is None:
            self._fields = ArgumentFields(source.fields)
        self._source_decoder = SourceDecoder(
            source, self._engine, self._protocol, self._receivers, after, fields=self._fields
        )
        self._source_number += not source.same_step
        self._engine.takes_edits = source.edits

    @property
    def _decoder(self) -> Decoder | None:
        return self._source_decoder.decoder if self._source_decoder is not None else None

    def _decoded(self, batch: Any) -> Sequence[Event]:
        """The events of a batch of the source, as its decoder reports them."""
        assert self._source_decoder is not None
        return self._source_decoder.decode(batch)

    def _source_finished(self) -> Iterator[Event]:
        """The events of the source's end: what it still has, and the end of what stays open."""
        source_decoder, engine = self._source_decoder, self._engine
        assert source_decoder is not None
        self._take_nested_outcome()
        for events in source_decoder.finish(declined=engine.declined):
            yield from engine.complete(events)
        complete = engine.declined or source_decoder.complete
        if self._fields is not None:
            outcome = engine.runs.outcome
            end = outcome.status if outcome is not None else "completed" if complete else "incomplete"
            yield from engine.complete(self._fields.finish(end))
        yield from engine.source_done(complete=complete)
        if not complete and engine.failure is None and not source_decoder.source.following:
            raise source_decoder.incomplete()

    def _take_nested_outcome(self) -> None:
        """A source that was read inside this one answered what this one's run required: its outcome is the run's."""
        runs, nested = self._engine.runs, self._nested_outcome
        required = runs.outcome is not None and runs.outcome.status == "requires_action"
        if nested is not None and runs.run is not None and required:
            merge(runs.run, nested, keep=("status", "usage"))
            runs.outcome = nested

    def _check_failure(self) -> None:
        """Raise the failure that the source reported.

        Raises:
            RunFailedError: its run failed or expired.
            StreamkitError: it was another stream, which ended with this error.
        """
        failure, outcome = self._engine.failure, self._engine.runs.outcome
        if failure is not None:
            raise error_of(failure)
        if outcome is not None and outcome.status in ("failed", "expired"):
            error = outcome.error or {}
            text = error.get("message") or f"the run {outcome.status}"
            code = error.get("code") or error.get("type")
            raise RunFailedError(str(text), None if code is None else str(code), dict(error) or None)

    # -- answers and endings

    def _deliver_answers(self) -> Iterator[Iterator[Event]]:
        """The events of each answer that was given since the last time."""
        for waiting in [*self._engine.pending.values()]:
            answer = waiting.answer_slot
            if answer is None or not answer.given or answer.wake is not self._engine.wake:
                continue
            if isinstance(waiting, ToolCallMessage):
                if answer.ready:
                    self._answers_taken += 1
                    yield self._engine.output(waiting, answer.result())
            else:
                decision: Any = answer.value
                self._answers_taken += 1
                yield self._decided(waiting, *decision)

    def _decided(self, confirmation: Confirmation, approved: bool, more: str | None = None) -> Iterator[Event]:
        edited, reason = (more, None) if approved else (None, more)
        return self._engine.settle(confirmation, approved, edited=edited, reason=reason)

    def _last(self, status: str | None = None) -> Iterator[Event]:
        """The end, exactly once."""
        if not self._ended:
            self._status = status or (self._engine.runs.run.status if self._engine.runs.run else "completed")
            self._ended = True
            yield StreamEnd(status=self._status)

    def _failed(self, error: BaseException) -> Iterator[Event]:
        """The events that still come when the stream fails or is stopped."""
        stopped = not isinstance(error, Exception)
        cut = isinstance(error, IncompleteStreamError)
        status: RunStatus = "cancelled" if stopped else "incomplete" if cut else "failed"
        outcome = self._engine.runs.outcome
        if outcome is not None and outcome.status in ("failed", "expired", "cancelled"):
            status = outcome.status
        if isinstance(error, StreamkitError) and not error.messages:
            error.messages = self._engine.messages
        if not stopped:
            self._error = error
        summary = {"type": type(error).__name__, "message": str(error)}
        yield from self._engine.end(status, None if stopped else summary)
        if not stopped and not self._ended:
            if isinstance(error, SourceTimeoutError):
                yield StreamTimeout()
            yield StreamException(type(error).__name__, str(error), _details(error), error)
        yield from self._last("cancelled" if stopped else "incomplete" if cut else "failed")


def _details(error: BaseException) -> dict[str, Any]:
    known = {key: getattr(error, key, None) for key in ("code", "body", "status_code", "fault", "index", "kind")}
    return {key: value for key, value in known.items() if value is not None}


def error_of(event: StreamException) -> StreamkitError:
    """The error that another stream ended with, from its `stream_exception`."""
    if isinstance(event.exception, StreamkitError):
        return event.exception
    details = event.details
    match getattr(errors, event.error, None):
        case errors.RunFailedError:
            return RunFailedError(event.message, details.get("code"), details.get("body"))
        case errors.ProtocolError:
            return ProtocolError(
                str(details.get("code", "")), str(details.get("fault", event.message)), details.get("index")
            )
        case type() as kind if issubclass(kind, StreamkitError):
            error: StreamkitError = kind(event.message)
            if isinstance(error, errors.SourceError):
                error.status_code = details.get("status_code")
            return error
        case _:
            return errors.SourceError(f"the stream failed where it came from: {event.error}: {event.message}")
