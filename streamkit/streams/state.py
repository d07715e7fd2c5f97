"""The state of one stream: what a handler reads as `self.stream`, and how a source's events pass through the engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from ..answers import Confirmation, Outcome
from ..core.engine import Engine
from ..core.run_tracker import merge
from ..core.steps import Stopped
from ..errors import IncompleteStreamError, RunFailedError, SourceTimeoutError, StreamkitError, UsageError
from ..events import (
    ConfirmationDone,
    Event,
    Run,
    RunStatus,
    StreamEnd,
    StreamException,
    StreamTimeout,
)
from ..handlers import Handler, no_handler
from ..messages import ToolCallMessage
from ..messages.message import JOINING
from ..protocols import Decoder
from ..sources.decoding import SourceDecoder
from ..sources.source import AsyncSource, RecordedEnd, Source, SourceTraits, package_of
from .failures import details_of, error_of
from .options import StreamOptions, decoder_of
from .view import StreamView

if TYPE_CHECKING:
    from ..core.argument_fields import ArgumentFields
    from ..core.reasoning_tag import ReasoningTag
    from ..sources.timeouts import ContentClock

__all__ = ["StreamState"]

# A process that is forked while another thread holds this lock would wait for it for ever.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=JOINING.acquire, after_in_parent=JOINING.release, after_in_child=JOINING.release)


class StreamState(StreamView):
    """The state of a stream: what it has received so far. It is live, and stays readable after the end.

    Handlers read it as `self.stream`; the managers of `stream` and `astream` have the same members.
    """

    on_wait: Callable[[], None] | None
    """Called before the stream waits for answers, without which it cannot go on. For streamkit itself."""
    before_actions: Callable[[], None] | None
    """Called in a thread before tools or code of an agent run there. It may wait; what it raises ends the stream, and nothing
    runs. For streamkit itself."""
    agent_name: str | None = None
    """The name of the stream's agent, "" if it has none; None for a stream without an agent."""

    def __init__(
        self, handlers: Sequence[Handler], options: StreamOptions, *, wake: Callable[[], None], awaitables: bool
    ) -> None:
        attached = [_attachable(handler) for handler in handlers]
        super().__init__(Engine(strict=options.strict, wake=wake), attached, awaits=awaitables)
        self.on_wait = self.before_actions = None
        self._receivers = [receive for one in attached if (receive := one.streamkit_receiver()) is not None]
        self._source: Any = None
        self._nested_outcome: Run | None = None  # the outcome of a source that was read inside this one
        self._interruption: IncompleteStreamError | None = None  # for the next reader after an interrupted one
        self._answers_taken = 0
        self._take(options)
        self.engine.pending.takes_awaitables = awaitables
        self._bind(attached)

    def _take(self, options: StreamOptions) -> None:
        """Apply the options.

        Raises:
            UsageError: an option is wrong.
        """
        options.check()
        self._protocol: type[Decoder] | None = decoder_of(options.protocol)
        self._fields = None if options.fields is None else _argument_fields(options.fields)
        self._tag = None if options.reasoning_tag is None else _reasoning_tag(options.reasoning_tag)
        self._then: Callable[[Any], Any] | None = options.then
        self._after: str | None = options.after
        self._max_steps: int = options.max_steps
        self.engine.pending.takes_outputs = self.engine.pending.takes_approvals = options.then is not None
        if options.limits is not None:
            self.engine.messages.sizes.limits = options.limits
        self._clock: ContentClock | None = None
        if options.timeouts is not None:
            from ..sources.timeouts import ContentClock  # few streams have these options

            self._clock = ContentClock(options.timeouts)
        if options.output_type is not None:
            from .output import StreamOutput

            self._output = StreamOutput(self.engine, options.output_type)

    def _bind(self, handlers: Sequence[Handler]) -> None:
        """Attach the handlers: all of them or, if one refuses, none.

        Raises:
            UsageError: a handler is on another stream, or comes twice.
        """
        count = 0
        try:
            for handler in handlers:
                handler.bind(self)
                count += 1
        except UsageError:
            for handler in handlers[:count]:
                handler.unbind(self)
            raise

    @contextmanager
    def around_tool(self, call: ToolCallMessage) -> Generator[None, None, None]:
        """Enter the contexts that the handlers have for a call. An agent does so in the thread or task that runs the call."""
        with ExitStack() as stack:
            for handler in self._handlers:
                if (context := handler.around_tool(call)) is not None:
                    stack.enter_context(context)
            yield

    # -- sources

    def announce_request(self, protocol: str | None = None, request: Any = None) -> None:
        """Tell the handlers that a source is about to be opened. For streamkit itself; see `Handler.streamkit_request`."""
        for handler in self._handlers:
            handler.streamkit_request(protocol, request)

    def _source_opened(self, source: Source | AsyncSource) -> None:
        """Get ready to decode a source's items."""
        after = None if self._source_number else self._after
        self._source_number += 1
        self._take_traits(source.traits)
        stages = (self._tag, self._fields)
        self.source_decoder = SourceDecoder(
            source, self.engine, self._protocol, self._receivers, after, stages, self._clock
        )

    def _take_traits(self, traits: SourceTraits) -> None:
        """Apply the traits of a source that is opened."""
        self._source_number -= traits.same_step  # such a source is not counted
        self.engine.pending.takes_edits = traits.edits
        if traits.fields and self._fields is None:
            self._fields = _argument_fields(traits.fields)
        if traits.reasoning_tag and self._tag is None:
            self._tag = _reasoning_tag(traits.reasoning_tag)
        if executed := traits.executed:
            self.engine.pending.executes = lambda call: (call.call_id or call.id) in executed

    @property
    def _decoder(self) -> Decoder | None:
        return self.source_decoder.decoder if self.source_decoder is not None else None

    def _decoded(self, batch: Any) -> Sequence[Event]:
        """Return the events of a batch of the source, as its decoder reports them."""
        assert self.source_decoder is not None
        return self.source_decoder.decode(batch) or ()

    def _has_answered_before(self, error: Exception) -> bool:
        source_decoder = self.source_decoder
        if source_decoder is None or self.engine.runs.outcome is None or not source_decoder.complete:
            return False
        library = source_decoder.source.traits.http_library
        is_connections = isinstance(error, (OSError, SourceTimeoutError)) or package_of(type(error)) == library
        return bool(library) and is_connections

    def _decoder_finished(self) -> Iterator[Event]:
        """Yield the events of the source's last bytes, and those that its decoder reports at the end."""
        source_decoder, engine = self.source_decoder, self.engine
        assert source_decoder is not None
        if self._nested_outcome is not None:
            self._take_nested_outcome(self._nested_outcome)
        if (recorded := source_decoder.source.traits.recorded_end) is not None:
            later = [event.confirmation.id for event in recorded.answers if isinstance(event, ConfirmationDone)]
            engine.pending.answered_later = frozenset([*later, *recorded.promised])
        for events in source_decoder.finish(not_approved=engine.pending.not_approved):
            yield from engine.complete(events)

    def _source_done(self) -> Iterator[Event]:
        """Yield the ends of messages that are still open, because the source has ended."""
        source_decoder, engine = self.source_decoder, self.engine
        assert source_decoder is not None
        complete = engine.pending.not_approved or source_decoder.complete
        if self._tag is not None:
            yield from engine.complete(self._tag.finish())
        if self._fields is not None:
            outcome = engine.runs.outcome
            end = outcome.status if outcome is not None else "completed" if complete else "incomplete"
            yield from engine.complete(self._fields.finish(end))
        yield from engine.source_done(complete=complete)

    def _recorded_answers(self, recorded: RecordedEnd) -> Iterator[Event]:
        """Yield the events of the answers that came after the source's end, when it was recorded.

        Raises:
            StreamkitError: the failure that came after them.
            Stopped: the stream was stopped after them.
        """
        yield from self.engine.complete(recorded.answers)
        for retry in recorded.next_retries:
            yield from self.engine.next_source()
            yield from self.engine.complete_event(retry)
        if recorded.reason == "declined":
            self.engine.pending.end_declined()
        elif recorded.reason == "max_steps":
            self._end_at_max_steps()
        if recorded.failure is not None:
            if recorded.is_between_steps:
                yield from self.engine.next_source()
            raise recorded.failure

    def _end_at_max_steps(self) -> None:
        """End the run here, because it had as many sources as it may have."""
        self.engine.runs.end_with(Run(status="incomplete", finish_reason="max_steps"))

    def _take_nested_outcome(self, nested: Run) -> None:
        """Use the outcome of a nested source as the run's, if the run waited for the action that the source performed."""
        runs = self.engine.runs
        required = runs.outcome is not None and runs.outcome.status == "requires_action"
        if runs.run is not None and required:
            merge(runs.run, nested, keep=("status", "usage"))
            runs.outcome = nested

    def _failure(self, *, of_attempt: bool = False) -> StreamkitError | None:
        """Return the failure with which the source has ended, None if it has not failed: an `IncompleteStreamError` if it was cut
        off, a `RunFailedError` if its run failed or expired, the error of the other stream that it was. `of_attempt` is as in
        `_cut_off`."""
        if (cut := self._cut_off(of_attempt=of_attempt)) is not None:
            return cut
        failure, outcome = self.engine.failure, self.engine.runs.outcome
        if failure is not None:
            return error_of(failure)
        if outcome is not None and outcome.status in ("failed", "expired"):
            error = outcome.error or {}
            text = error.get("message") or f"the run {outcome.status}"
            code = error.get("code") or error.get("type")
            return RunFailedError(str(text), None if code is None else str(code), dict(error) or None)
        return None

    def _cut_off(self, *, of_attempt: bool = False) -> StreamkitError | None:
        """Return the error of a source that was cut off; None where it was not.

        Args:
            of_attempt: whether to return the error also where a source names the one after it: the attempt has failed then,
                although the run goes on.
        """
        source_decoder, engine = self.source_decoder, self.engine
        if (
            source_decoder is None
            or source_decoder.complete
            or engine.pending.not_approved
            or engine.failure is not None
        ):
            return None
        goes_on = source_decoder.source.traits.next_source is not None
        return source_decoder.incomplete() if of_attempt or not goes_on else None

    # -- answers and endings

    def _events_of_answer(self, waiting: Confirmation | ToolCallMessage) -> Iterator[Event]:
        """Return the events of an answer that has come."""
        answer, engine = waiting.answer_slot, self.engine
        assert answer is not None
        self._answers_taken += answer.answered
        if isinstance(waiting, ToolCallMessage):
            return engine.content.output(waiting, answer.result())
        decision: Any = answer.value
        return self._decided(waiting, *decision)

    def _decided(self, confirmation: Confirmation, outcome: Outcome, more: str | None = None) -> Iterator[Event]:
        edited, reason = (more, None) if outcome == "approved" else (None, more)
        return self.engine.pending.settle(confirmation, outcome, edited=edited, reason=reason)

    def _last(self, status: str | None = None) -> Iterator[Event]:
        """Yield the `StreamEnd`, if there was none yet."""
        if not self._ended:
            engine = self.engine
            self._status = status or ("completed" if (run := engine.runs.run) is None else run.status)
            self._ended = True
            yield StreamEnd(status=self._status, position=engine.source_ends.get(StreamEnd))

    def _interrupted(self, error: BaseException) -> IncompleteStreamError:
        """Return the error for the next reader of the stream. The stream itself has not failed."""
        kind = type(error).__name__
        interrupted = IncompleteStreamError(
            f"the stream was interrupted while it was read ({kind}), and has ended: what arrived is in `messages`"
        )
        interrupted.messages = self.engine.messages.all
        return interrupted

    def _failed(self, error: BaseException) -> Iterator[Event]:
        """Yield the events that still come when the stream fails or is stopped."""
        stopped = not isinstance(error, Exception)
        cut = isinstance(error, IncompleteStreamError)
        status: RunStatus = "cancelled" if stopped else "incomplete" if cut else "failed"
        outcome = self.engine.runs.outcome
        if outcome is not None and outcome.status in ("failed", "expired", "cancelled"):
            status = outcome.status
        if isinstance(error, StreamkitError) and not error.messages:
            error.messages = self.engine.messages.all
        if not stopped:
            self._error = error
        elif not isinstance(error, Stopped) and not self._ended:
            self._interruption = self._interrupted(error)
        summary = {"type": type(error).__name__, "message": str(error)}
        yield from self.engine.end(status, None if stopped else summary)
        if not stopped and not self._ended:
            ends: list[Event] = [StreamTimeout()] if isinstance(error, SourceTimeoutError) else []
            yield from filter(self.engine.assign_cursor, ends)
            error = self._error or error  # perhaps another one by now, of a hook that has seen the run fail
            event = StreamException(type(error).__name__, str(error), details_of(error), error)
            yield from filter(self.engine.assign_cursor, (event,))
        yield from self._last("cancelled" if stopped else "incomplete" if cut else "failed")


def _attachable(handler: Any) -> Handler:
    """Return the handler that a stream attaches for a value in its place of handlers.

    Raises:
        UsageError: it is not a handler.
    """
    if not isinstance(handler, Handler):
        raise no_handler(handler)
    return handler.streamkit_attachable()


# Few streams have these, so their modules are imported with the first one that does.


def _argument_fields(fields: Mapping[str, str]) -> ArgumentFields:
    from ..core.argument_fields import ArgumentFields

    return ArgumentFields(fields)


def _reasoning_tag(tag: str) -> ReasoningTag:
    from ..core.reasoning_tag import ReasoningTag

    return ReasoningTag(tag)
