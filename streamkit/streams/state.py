"""The state of one stream, and its story: what both managers share.

`StreamState` is what a handler sees as `self.stream`. `_lifecycle` is the whole course of a stream without any input or
output: it asks its manager for what it needs (`PULL`, `NEXT`, `Wait`) and gives iterators of events to tell. A
manager pulls, waits, tells and awaits; it decides nothing.
"""

# pyright: reportPrivateUsage=false
# The story settles what messages and confirmations wait for; their underscores keep users from it.

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import msgspec

from .. import errors, protocols
from ..answers import Answer, Confirmation
from ..core.argument_fields import ArgumentFields
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
from ..handlers import Call, Handler, plan
from ..messages import Message, ToolCallMessage
from ..protocols import Decoder
from ..sources.decoding import SourceDecoder
from ..sources.source import AsyncSource, Source

__all__ = ["CLOSE", "NEXT", "PULL", "StreamState", "Timing", "Wait", "error_of"]


class _Command:
    """What the story needs from its manager."""


PULL: Final = _Command()  # pull and feed batches: None at the source's end, the last batch when something waits
NEXT: Final = _Command()  # the next source, opened: True, or False if there is none
CLOSE: Final = _Command()  # what is upstream, closed


class Wait(NamedTuple):
    """Wait until something is answered. Gives the answers whose time is over, each with the number of its deferral;
    `ready` ones need no waiting."""

    answers: list[Answer]


class Timing(msgspec.Struct, frozen=True):
    """Seconds on a monotonic clock; None where it has not happened. `first_delta` and `duration` count from the
    stream's start, which is when its request was sent."""

    first_delta: float | None
    duration: float | None
    deltas: int
    deltas_per_second: float | None


class StreamState:
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
        self._fields = None if fields is None else ArgumentFields(fields)
        self._protocol = cast("type[Decoder] | None", protocol)
        self._then = then
        if after is not None and not isinstance(cast("object", after), str):
            raise UsageError(f"a cursor is a str, as `stream.cursor` gives it, not {after!r}")
        self._after = after
        self._engine: Engine = ResumableEngine(strict=strict, wake=wake)
        self._engine.takes_outputs = then is not None
        self._engine.takes_awaitables = awaitables
        self._engine.number_of = lambda source: self._decoder.number_of(source) if self._decoder else None
        self._handlers: tuple[Handler, ...] = tuple(handlers)
        self._plan: Mapping[type[Event], tuple[Call, ...]] = plan(handlers)
        self._receivers: Sequence[Callable[[Sequence[Any]], None]] = [
            h.receive for h in handlers if type(h).receive is not Handler.receive
        ]
        self._source: Any = None
        self._source_decoder: SourceDecoder | None = None  # of the source that is being read, or was read last
        self._source_number = 0
        self._declined = False
        self._sends_approvals = False  # whether what the provider itself asks is answered by the next request
        self._went_on_to: Run | None = None  # how a further source's run ended, that was read inside this one
        self._current: Event | None = None
        self._position: int | str | None = None  # of the last event before the current one that had one
        self._error: BaseException | None = None
        self._status = "in_progress"
        self._ended = False
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

    def _claim(self) -> None:
        """The stream starts: its handlers are its own from here on.

        Raises:
            UsageError: one was given to another stream since, which is told nothing of this one.
        """
        if lost := self._without_lost():
            raise UsageError(f"{type(lost[0]).__name__} was given to another stream before this one started")

    def _without_lost(self) -> list[Handler]:
        """The handlers that another stream has now. They are told nothing of this one, which has not started."""
        lost = [handler for handler in self._handlers if not handler._streamkit_is_on(self)]
        if lost:
            self._handlers = tuple(handler for handler in self._handlers if handler._streamkit_is_on(self))
            self._plan = plan(self._handlers)
        return lost

    # -- the story

    def _lifecycle(self) -> Generator[_Command | Wait | Iterator[Event], Any, None]:
        engine = self._engine
        while True:
            while not self._over and (yield PULL) is not None:  # its manager fed what it pulled
                yield from self._settle(at_end=False)
            yield CLOSE
            yield self._source_finished()
            self._check_failure()
            yield from self._settle(at_end=True)
            paused = self._source_decoder is not None and self._source_decoder.continues_in_next_source
            whole = self._answers_taken and not engine.cut_short
            goes_on = self._then is not None and not engine.unanswered and (paused or whole)
            if self._declined or not (goes_on or self._following):
                break
            self._answers_taken = 0
            if not (yield NEXT):
                break
            yield engine.next_source(
                same_step=self._source_decoder is not None and self._source_decoder.source.same_step
            )
        yield chain(engine.end(), self._last())

    def _nested_lifecycle(self) -> Generator[_Command | Iterator[Event], Any, None]:
        """The story of a further source of the same run, read while the one before is not at its end."""
        yield self._go_on()
        while not self._over and (batch := (yield PULL)) is not None:
            yield self._engine.complete(self._decode(batch))
        yield CLOSE
        yield self._source_finished()
        self._check_failure()
        self._went_on_to = self._engine.runs.outcome

    def _go_on(self) -> Iterator[Event]:
        """The run has what it waited for: the outputs of its calls."""
        engine = self._engine
        for key, waiting in [*engine.pending.items()]:
            if isinstance(waiting, ToolCallMessage):
                del engine.pending[key]
                if waiting.answer_slot is not None:
                    waiting.answer_slot.close()
        if engine.runs.step is not None:
            yield from engine.runs.end_step(RunStep(status="completed"), Event())
        engine.runs.outcome = None
        if engine.runs.run is not None:
            engine.runs.run.status = "in_progress"

    @contextmanager
    def _saved_source(self) -> Generator[None, None, None]:
        """What belongs to the source that is being read is kept, and there again afterwards."""
        source, source_decoder, edits = self._source, self._source_decoder, self._engine.takes_edits
        try:
            yield
        finally:
            self._source, self._source_decoder, self._engine.takes_edits = source, source_decoder, edits
            self._allow_answers()

    def _decode(self, batch: Any) -> Sequence[Event]:
        """What a batch of the source tells the engine: what its decoder says of it, and the fields in that."""
        assert self._source_decoder is not None
        known = self._source_decoder.decoder
        events = self._source_decoder.feed(batch)
        if known is not self._source_decoder.decoder:
            self._allow_answers()
        return self._taken(events)

    def _taken(self, events: Sequence[Event]) -> Sequence[Event]:
        """These events, with the fields in them, without those that are before the cursor."""
        if self._fields is not None:
            events = self._fields.feed(events)
        resumption = self._source_decoder.resumption if self._source_decoder is not None else None
        return events if resumption is None else resumption.feed(events)

    def _direct(self) -> tuple[Any, Any]:
        """The two steps from bytes to events, to be taken without `_decode` where nothing else is to be done."""
        return (
            self._source_decoder.direct() if self._source_decoder is not None and self._fields is None else (None, None)
        )

    def _source_finished(self) -> Iterator[Event]:
        """What the source's end tells: the rest of it, and what stays open."""
        source_decoder, engine, fields = self._source_decoder, self._engine, self._fields
        assert source_decoder is not None
        runs, went_on_to = engine.runs, self._went_on_to
        asked = runs.outcome is not None and runs.outcome.status == "requires_action"
        if went_on_to is not None and runs.run is not None and asked:  # what it asked for, it got
            merge(runs.run, went_on_to, keep=("status", "usage"))
            runs.outcome = went_on_to
        for events in source_decoder.finish(declined=self._declined):
            yield from engine.complete(self._taken(events))
        if source_decoder.resumption is not None:
            source_decoder.resumption.finish()
        complete = self._declined or source_decoder.complete
        if fields is not None:
            end = runs.outcome.status if runs.outcome is not None else "completed" if complete else "incomplete"
            yield from engine.complete(fields.finish(end))
        yield from engine.source_done(complete=complete)
        if not complete and engine.failure is None and not source_decoder.source.following:
            raise source_decoder.incomplete()

    def _check_failure(self) -> None:
        failure, outcome = self._engine.failure, self._engine.runs.outcome
        if failure is not None:
            raise error_of(failure)
        if outcome is not None and outcome.status in ("failed", "expired"):
            error = outcome.error or {}
            text = error.get("message") or f"the run {outcome.status}"
            code = error.get("code") or error.get("type")
            raise RunFailedError(str(text), None if code is None else str(code), dict(error) or None)

    def _settle(self, *, at_end: bool) -> Generator[_Command | Wait | Iterator[Event], Any, None]:
        """Tell what was answered; where the source can go no further, wait for what was deferred, and decide the rest."""
        while True:
            yield from self._tell_answers()
            waiting = self._waiting(at_end=at_end)
            if not waiting:
                return
            for answer, deferral in (yield Wait(waiting)) or ():
                answer.expire(deferral)

    def _tell_answers(self) -> Generator[Iterator[Event], Any, None]:
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
                yield self._decide(waiting, *decision)

    def _decide(self, asked: Confirmation, approved: bool, more: str | None = None) -> Iterator[Event]:
        if not approved and self._gated:
            self._decline()
        edited, reason = (more, None) if approved else (None, more)
        return self._engine.settle(asked, approved, edited=edited, reason=reason)

    def _decline(self) -> None:
        """Nothing more is pulled: that would let run what was declined."""
        self._declined = True
        self._engine.decline()

    def _waiting(self, *, at_end: bool) -> list[Answer]:
        """The answers to wait for before going on. Confirmations that nobody deferred are declined here."""
        out: list[Answer] = []
        for waiting in [*self._engine.pending.values()]:
            answer = waiting.answer_slot
            if answer is None or answer.wake is not self._engine.wake:
                continue
            if isinstance(waiting, Confirmation) and (at_end or self._gated):
                if not answer.deferred:
                    answer.give_up((False, "not answered"))
                out.append(answer)
            elif isinstance(waiting, ToolCallMessage) and at_end and (answer.deferred or answer.given):
                out.append(answer)
        return out

    @property
    def _gated(self) -> bool:
        """Whether pulling on would let run what a confirmation asks about."""
        return self._source_decoder is not None and self._source_decoder.gated

    def _note(self, event: Event) -> None:
        """Make an event the current one."""
        if self._current is not None and self._current.position is not None:
            self._position = self._current.position
        self._current = event
        if type(event) is ConfirmationDone and event.confirmation.status == "declined" and self._gated:
            self._decline()  # also when nobody could answer, because it was malformed

    @property
    def _over(self) -> bool:
        """Whether the source is not to be pulled any more."""
        return self._declined or (self._source_decoder is not None and self._source_decoder.exhausted)

    @property
    def _following(self) -> Callable[[], Any] | None:
        return self._source_decoder.source.following if self._source_decoder is not None else None

    @property
    def _decoder(self) -> Decoder | None:
        return self._source_decoder.decoder if self._source_decoder is not None else None

    # -- endings

    def _source_opened(self, source: Source | AsyncSource) -> None:
        """Make ready for a source's items."""
        after = self._after if self._source_number == 0 else None
        if source.fields and self._fields is None:
            self._fields = ArgumentFields(source.fields)
        self._source_decoder = SourceDecoder(source, self._engine, self._protocol, self._receivers, after)
        self._source_number += not source.same_step
        self._engine.takes_edits = source.edits
        self._allow_answers()

    def _allow_answers(self) -> None:
        sends = self._sends_approvals or self._then is not None
        self._engine.takes_approvals = self._gated or sends or self._engine.takes_edits

    def _last(self, status: str | None = None) -> Iterator[Event]:
        """The end, exactly once."""
        if not self._ended:
            self._status = status or (self._engine.runs.run.status if self._engine.runs.run else "completed")
            self._ended = True
            yield StreamEnd(status=self._status)

    def _failed(self, error: BaseException) -> Iterator[Event]:
        """What is still told when the stream fails or is stopped."""
        if not self.started:
            self._without_lost()
        stopped = not isinstance(error, Exception)
        status: RunStatus = "cancelled" if stopped else "incomplete" if _is_cut(error) else "failed"
        outcome = self._engine.runs.outcome
        if outcome is not None and outcome.status in ("failed", "expired", "cancelled"):
            status = outcome.status
        if isinstance(error, StreamkitError) and not error.messages:
            error.messages = self._engine.messages
        if not stopped:
            self._error = error
        details = {"type": type(error).__name__, "message": str(error)}
        yield from self._engine.end(status, None if stopped else details)
        if not stopped and not self._ended:
            if isinstance(error, SourceTimeoutError):
                yield StreamTimeout()
            yield StreamException(type(error).__name__, str(error), _details(error), error)
        yield from self._last("cancelled" if stopped else "incomplete" if _is_cut(error) else "failed")


def _is_cut(error: BaseException) -> bool:
    return isinstance(error, IncompleteStreamError)


def _details(error: BaseException) -> dict[str, Any]:
    known = {key: getattr(error, key, None) for key in ("code", "body", "status_code", "fault", "index", "kind")}
    return {key: value for key, value in known.items() if value is not None}


def error_of(event: StreamException) -> StreamkitError:
    """The error that another stream ended with."""
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
