"""The state of one stream: what a handler reads as `self.stream`, and how a source's events pass through the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import protocols
from ..answers import Confirmation
from ..core.delivery import Delivery
from ..core.engine import Engine
from ..core.pending import Pending
from ..core.run_tracker import merge
from ..errors import IncompleteStreamError, RunFailedError, SourceTimeoutError, StreamkitError, UsageError
from ..events import (
    ConfirmationDone,
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
from ..limits import Limits, Timeouts
from ..messages import Message, ToolCallMessage
from ..protocols import Decoder
from ..sources.decoding import PreparingDecoder, SourceDecoder
from ..sources.source import AsyncSource, Source
from .argument_checks import check_arguments, check_kind
from .failures import details_of, error_of
from .timing import Timing, timing_of

if TYPE_CHECKING:
    from ..core.argument_fields import ArgumentFields
    from ..sources.timeouts import ContentClock

__all__ = ["MAX_STEPS", "StreamState"]

MAX_STEPS = 100
"""How many sources a run may have with `then=`, unless `max_steps=` says otherwise."""


class StreamState(Delivery):
    """What a stream has received so far. It is live, and stays readable after the end.

    Handlers read it as `self.stream`; the managers of `stream` and `astream` have the same members.
    """

    # Where a stream begins, and what most streams have.
    _protocol: type[Decoder] | None = None
    _then: Callable[[Any], Any] | None = None
    _after: str | None = None
    _max_steps = MAX_STEPS
    _fields: ArgumentFields | None = None
    _clock: ContentClock | None = None
    _receivers: Sequence[Callable[[Sequence[Any]], None]] = ()
    _source: Any = None
    _source_decoder: SourceDecoder | None = None  # of the source that is being read, or was read last
    _source_number = 0
    _nested_outcome: Run | None = None  # how the run of a source ended that was read inside this one
    _error: BaseException | None = None
    _status = "in_progress"
    _answers_taken = 0
    on_wait: Callable[[], None] | None = None
    """Called before the stream waits: nothing but answers is missing. For streamkit itself."""

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
        max_steps: int = MAX_STEPS,
        limits: Limits | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        kind: type[Decoder] | None = protocols.find(protocol).Decoder if isinstance(protocol, str) else protocol
        check_arguments(handlers, kind, then, after, max_steps)
        check_kind("limits", limits, Limits)
        check_kind("timeouts", timeouts, Timeouts)
        handlers = [handler.streamkit_attachable() for handler in handlers] if handlers else ()
        super().__init__(Engine(strict=strict, wake=wake), handlers, awaits=awaitables)
        if fields is not None:
            self._fields = _argument_fields(fields)
        if kind is not None:
            self._protocol = kind
        if then is not None:
            self._then = then
        if after is not None:
            self._after = after
        if max_steps != MAX_STEPS:
            self._max_steps = max_steps
        if limits is not None:
            self._engine.limits = limits
        if timeouts is not None:
            self._clock = _content_clock(timeouts)
        if then is not None:
            self._engine.takes_outputs = self._engine.takes_approvals = True
        self._engine.takes_awaitables = awaitables
        self._engine.number_of = self._number_of
        if receivers := [receive for h in handlers if (receive := h.streamkit_receiver()) is not None]:
            self._receivers = receivers
        self._times: dict[str, float] = {}
        self._bind(handlers)

    def _bind(self, handlers: Sequence[Handler]) -> None:
        """Attach the handlers: all of them or, if one refuses, none.

        Raises:
            UsageError: a handler is on another stream, or comes twice.
        """
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
        """Whether the stream has ended: its `StreamEnd` was delivered."""
        return self._ended

    @property
    def error(self) -> BaseException | None:
        """The error that the stream failed with, None if it did not fail."""
        return self._error

    @property
    def usage(self) -> Usage | None:
        """The run's tokens: the sum over its steps, each with its provider's last count. None if none were counted."""
        return self._engine.runs.usage

    @property
    def warnings(self) -> Sequence[StreamWarning]:
        """The warnings so far, at most the first 1000."""
        return tuple(self._engine.warnings)

    @property
    def pending(self) -> Mapping[str, Confirmation | ToolCallMessage]:
        """The questions that wait for an answer: confirmations by their id, tool calls by their call id. It is live."""
        return Pending(self._engine.pending)

    @property
    def confirmations(self) -> Sequence[Confirmation]:
        """All confirmations so far, decided ones too."""
        return tuple(self._engine.confirmations)

    @property
    def cursor(self) -> str | None:
        """The cursor of the newest event: `stream(source, after=cursor)` resumes after it. None if the source has none."""
        position = self._last_position()
        return None if position is None else str(position)

    @property
    def source_number(self) -> int:
        """How many sources were opened so far, not counting those that continue a run step. With `then=`, one for each
        response."""
        return self._source_number

    @property
    def timing(self) -> Timing:
        """How long the stream took."""
        deltas = self._engine.forgotten_deltas + sum(message.delta_count for message in self._engine.messages)
        return timing_of(self._times, deltas)

    @property
    def fields(self) -> Mapping[str, str]:
        """The arguments of tools that become messages: those of `fields=`, else of a recording, else none."""
        return self._fields.fields if self._fields is not None else {}

    def has_fields(self, call: ToolCallMessage) -> bool:
        """Whether arguments of this call become messages, because `fields=` names its tool."""
        return self._fields is not None and self._fields.has_fields(call.name)

    @property
    def current_event(self) -> Event | None:
        """The newest event that was delivered."""
        current: Event | None = self._current
        return current

    @property
    def current_run(self) -> Run | None:
        """The run, None before it begins. Its `id` is the newest response's, from which a next request can continue."""
        return self._engine.runs.run

    @property
    def current_run_step_snapshot(self) -> RunStep | None:
        """The present run step, else the last one. None before the first."""
        return self._engine.runs.step or (self._engine.runs.steps[-1] if self._engine.runs.steps else None)

    @property
    def current_message_snapshot(self) -> Message | None:
        """The message of the newest event, else the newest message. None before the first."""
        snapshot = getattr(self._current, "snapshot", None)
        return snapshot or (self._engine.messages[-1] if self._engine.messages else None)

    def cancel(self) -> None:
        """Stop the stream, from any thread, without waiting. Messages that arrived stay; nothing is raised.

        A task is cancelled where it waits. A thread that waits for the network is stopped there, even before the response
        begins: in httpx, so in the clients of openai and anthropic, and in `http.client`, so in urllib and requests. A
        thread that waits for anything else (a lock, `time.sleep`, a subprocess, a connection that is being made) cannot
        be stopped by Python; the stream then ends when that wait does. The same holds for a hook, or a tool that a hook
        calls: it runs to its end before the stream ends.
        """
        raise NotImplementedError("the managers implement it")

    # -- for streamkit's own packages

    @property
    def engine(self) -> Engine:
        """The engine that completes the stream's events. For streamkit's own packages, which may change with it."""
        return self._engine

    @property
    def source_decoder(self) -> SourceDecoder | None:
        """The decoder of the present source, else of the last one. For streamkit's own packages, as `engine`."""
        return self._source_decoder

    @property
    def is_closing(self) -> bool:
        """Whether `close` or `cancel` was called, or the stream failed."""
        return self._closing

    @property
    def is_nested(self) -> bool:
        """Whether the source that is read now was opened by a hook, inside another. For streamkit's own packages."""
        return self._nested

    # -- sources

    def _source_opened(self, source: Source | AsyncSource) -> None:
        """Get ready to decode a source's items."""
        after = self._after if self._source_number == 0 else None
        traits = source.traits
        if traits.fields and self._fields is None:
            self._fields = _argument_fields(traits.fields)
        prepares = isinstance(source, AsyncSource) and source.prepare is not None
        self._source_decoder = (PreparingDecoder if prepares else SourceDecoder)(
            source, self._engine, self._protocol, self._receivers, after, fields=self._fields
        )
        self._source_number += not traits.same_step
        self._engine.takes_edits = traits.edits
        if executed := traits.executed:
            self._engine.executes = lambda call: (call.call_id or call.id) in executed

    @property
    def _decoder(self) -> Decoder | None:
        return self._source_decoder.decoder if self._source_decoder is not None else None

    def _number_of(self, item: Any) -> int | None:
        """The number of an item of the present source."""
        decoder = self._decoder
        return decoder.number_of(item) if decoder is not None else None

    def _decoded(self, batch: Any) -> Sequence[Event]:
        """The events of a batch of the source, as its decoder reports them."""
        assert self._source_decoder is not None
        return self._source_decoder.decode(batch)

    def _source_finished(self) -> Iterator[Event]:
        """The events of the source's end: those of its last bytes, and the ends of messages that are still open."""
        source_decoder, engine = self._source_decoder, self._engine
        assert source_decoder is not None
        self._take_nested_outcome()
        if (recorded := source_decoder.source.traits.recorded_end) is not None:
            later = [event.confirmation.id for event in recorded.answers if isinstance(event, ConfirmationDone)]
            engine.answered_later = frozenset([*later, *recorded.promised])
        for events in source_decoder.finish(declined=engine.declined):
            yield from engine.complete(events)
        complete = engine.declined or source_decoder.complete
        if self._fields is not None:
            outcome = engine.runs.outcome
            end = outcome.status if outcome is not None else "completed" if complete else "incomplete"
            yield from engine.complete(self._fields.finish(end))
        yield from engine.source_done(complete=complete)
        if not complete and engine.failure is None and not source_decoder.source.traits.next_source:
            raise source_decoder.incomplete()

    def _recorded_answers(self) -> Iterator[Event]:
        """The events of the answers that came after the source's end, when it was recorded.

        Raises:
            StreamkitError: the failure that came after them.
            Stopped: the stream was stopped after them.
        """
        assert self._source_decoder is not None
        if (recorded := self._source_decoder.source.traits.recorded_end) is not None:
            yield from self._engine.complete(recorded.answers)
            if recorded.reason == "declined":
                self._engine.end_declined()
            elif recorded.reason == "max_steps":
                self._end_at_max_steps()
            if recorded.failure is not None:
                raise recorded.failure

    def _end_at_max_steps(self) -> None:
        """The run ends here, because it had as many sources as it may have."""
        self._engine.runs.end_with(Run(status="incomplete", finish_reason="max_steps"))

    def _take_nested_outcome(self) -> None:
        """Use the outcome of a nested source as the run's, if the run waited for the action that the source performed."""
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
        while (waiting := self._engine.next_answered()) is not None:
            answer = waiting.answer_slot
            assert answer is not None
            self._answers_taken += 1
            if isinstance(waiting, ToolCallMessage):
                yield self._engine.output(waiting, answer.result())
            else:
                decision: Any = answer.value
                yield self._decided(waiting, *decision)

    def _decided(self, confirmation: Confirmation, approved: bool, more: str | None = None) -> Iterator[Event]:
        edited, reason = (more, None) if approved else (None, more)
        return self._engine.settle(confirmation, approved, edited=edited, reason=reason)

    def _last(self, status: str | None = None) -> Iterator[Event]:
        """The `StreamEnd`, if there was none yet."""
        if not self._ended:
            self._status = status or (self._engine.runs.run.status if self._engine.runs.run else "completed")
            self._ended = True
            yield StreamEnd(status=self._status, position=self._engine.source_ends.get(StreamEnd))

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
                yield from self._engine.end_event(StreamTimeout())
            error = self._error or error  # perhaps another one by now, of a hook that has seen the run fail
            event = StreamException(type(error).__name__, str(error), details_of(error), error)
            yield from self._engine.end_event(event)
        yield from self._last("cancelled" if stopped else "incomplete" if cut else "failed")


# Few streams have these, so their modules are imported with the first one that does.


def _argument_fields(fields: Mapping[str, str]) -> ArgumentFields:
    from ..core.argument_fields import ArgumentFields

    return ArgumentFields(fields)


def _content_clock(timeouts: Timeouts) -> ContentClock:
    from ..sources.timeouts import ContentClock

    return ContentClock(timeouts)
