"""The delta loop takes a source's batches, completes their events, and delivers them to hooks and to iteration.

Threads and tasks share it, so it does no input or output: `core.steps` says how a manager drives it. Every event goes to all
handlers, in their order, and then to the loop over the stream, before the next event is completed.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from types import CoroutineType
from typing import Any, Protocol, TypeAlias

from ..errors import SourceError, UsageError, raise_source_error
from ..events import Delta, Event, version
from ..handlers import Call, Handler, own_hooks, plan, warn_of_returned_value
from ..messages import COMPACT_AT
from .engine import Engine
from .steps import END, PULL, Step, Stopped

__all__ = ["BatchDecoder", "Delivery", "HookStopped", "Steps", "add_note"]

Steps: TypeAlias = Generator[Step | Event | Awaitable[Any], Any, None]
"""What a manager drives: see `core.steps`."""

_DeltaHook: TypeAlias = Callable[[Any, Any], Any]  # takes the delta and its snapshot
_Calls: TypeAlias = Sequence[Call | _DeltaHook]  # those of one kind of event


class BatchDecoder(Protocol):
    """Makes the events of a source's batches.

    Attributes:
        decoder: of its protocol; None before that is recognised.
    """

    decoder: Any

    def decode(self, batch: Any, /) -> Sequence[Any] | None:
        """Return the events of a batch; None at the source's end."""
        ...


class HookStopped(Exception):
    """Carries the StopIteration that a hook raised, which cannot leave a generator. It is the `__cause__`."""


class Delivery:
    """Delivers the events of one stream to its handlers and to the loop over it.

    Args:
        engine: completes what a decoder reports.
        handlers: the handlers, in the order in which they are called.
        awaits: whether a task drives the stream, so that a hook may return an awaitable.
    """

    __slots__ = (
        "_awaits",
        "_closing",
        "_current",
        "_ended",
        "_ending",
        "_handlers",
        "_has_content",
        "_hooks",
        "_iterated",
        "_nested",
        "_own_hooks",
        "_position",
        "_pulling",
        "_version",
        "engine",
    )

    def __init__(self, engine: Engine, handlers: Sequence[Handler], *, awaits: bool) -> None:
        self.engine = engine
        self._awaits = awaits
        self._current: Event | None = None  # the event that is delivered now, or was last
        self._position: int | str | None = None  # of the newest event that has one: some servers number only some items
        self._pulling = False  # the manager waits for the source
        self._closing = False  # `close` or `cancel` was called, or the stream failed
        self._ending = False  # the stream ends early: the async manager shields what is awaited from cancellation
        self._ended = False  # `StreamEnd` was delivered, or is next
        self._nested = False  # a source is read inside another
        self._iterated = True  # the application iterates, so events are yielded as well
        self._has_content = False  # the first content has come
        self._use_handlers(handlers)

    def _use_handlers(self, handlers: Sequence[Handler]) -> None:
        """Find the hooks that each kind of event calls.

        Raises:
            UsageError: one of them is async, and this is a sync stream.
        """
        self._handlers: tuple[Handler, ...] = tuple(handlers)
        self._version = version()
        self._own_hooks = own_hooks(handlers)
        # Any: a `_DeltaHook` of a kind of delta, a `Call` of any other event.
        self._hooks: dict[type[Event], Sequence[Any]] = defaultdict(tuple)
        for kind, calls in plan(handlers, awaits=self._awaits).items():
            self._hooks[kind] = tuple(map(_taking_snapshot, calls)) if issubclass(kind, Delta) else calls

    def _notice_hooks(self) -> None:
        """Find the hooks that were assigned to a handler since the last time.

        Raises:
            UsageError: it is async, and this is a sync stream.
        """
        if self._own_hooks != own_hooks(self._handlers):
            self._use_handlers(self._handlers)

    # -- batches

    def _deliver_batches(self, source: BatchDecoder) -> Generator[Any, Any, bool]:
        """Pull batches and deliver their events, until the source has ended (False), or there is something to decide (True). A
        delta of an open message is complete as it is: the common case. The engine completes all other events."""
        engine, pull, warnings = self.engine, self._pull_now, self.engine.warning_list
        open_messages, pending = engine.messages.open_by_id, engine.pending
        others: Iterator[Any] = iter(())  # the hooks of a delta that are still to be called
        try:
            while True:
                batch = events = None  # what was read is not held while the next batch is awaited
                self._pulling = True
                try:
                    batch = pull() if pull is not None else (yield PULL)
                except Exception as error:
                    batch = self._result_of_failed_pull(error)
                self._pulling = False
                if self._closing:
                    return self._check()
                if (events := source.decode(batch)) is None:
                    return False
                for event in events:
                    message = open_messages.get(event.message_id)
                    if message is None or event.__class__ is not message.delta_event or event.replace:
                        yield from self._deliver(engine.complete_event(event))
                        warnings.cause = None  # the item that it came from may be large
                        continue
                    pieces = message.pieces
                    pieces.append(event.value)
                    if len(pieces) >= COMPACT_AT:
                        engine.messages.compact(message)
                    event.snapshot, self._current = message, event
                    if event.position is not None:
                        self._position = event.position
                    if not self._has_content:
                        self._look_for_content(event)
                    for hook in (others := iter(self._hooks[event.__class__])):
                        result = hook(event, message)
                        if result is not None:
                            result = yield from self._await(hook, result)  # no coroutine is held once it was awaited
                        if self._closing:
                            raise Stopped
                    if self._iterated:
                        yield event
                        if self._closing:
                            self._check()
                decoder = source.decoder
                if pending.waiting or pending.not_approved or (decoder is not None and decoder.exhausted):
                    return True
        except BaseException as error:
            yield from self._end_delta(others, error)
            raise

    def _end_delta(self, others: Iterator[Any], error: BaseException) -> Steps:
        """Call the hooks of the current delta that come after the one that raised: all handlers have what its snapshot has."""
        if self._current is not None and not isinstance(error, (Stopped, GeneratorExit)):
            yield from self._emit_to_rest(others, self._current, error)
        if isinstance(error, StopIteration):
            raise HookStopped from error

    @property
    def _pull_now(self) -> Callable[[], Any] | None:
        """Return what pulls the source, where a thread drives the stream. None where a task does: it takes the step
        `PULL`."""
        return None

    def _result_of_failed_pull(self, error: Exception) -> Any:
        """Return what a failed pull means: the source's end, our own end, or a fault of the transport. A connection that breaks
        after the answer that it brought is the source's end too: nothing is missing."""
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            return END
        if self._closing:
            raise Stopped from None  # closing the source is what broke the pull
        try:
            raise_source_error(error)
        except SourceError:
            if self._has_answered_before(error):
                return END
            raise

    def _has_answered_before(self, error: Exception) -> bool:
        """Whether this is an error of the connection of an HTTP response that has brought the end of its run."""
        raise NotImplementedError("the managers implement it")

    def _check(self) -> bool:
        """Raise `Stopped` if `close` or `cancel` was called before the stream's end, or while a source is read inside another.
        Returns False otherwise, as the delta loop does at the end of a source."""
        if self._closing and (self._nested or not self._ended):
            raise Stopped
        return False

    # -- single events

    def _deliver(self, events: Iterable[Event]) -> Steps:
        """Deliver completed events. Each is completed when the one before was delivered."""
        for event in events:
            if calls := self._calls_of(event):
                yield from self._call(calls, event)
            if self._closing:
                self._check()
            if self._iterated:
                yield event
                if self._closing:
                    self._check()

    def _emit(self, event: Event) -> Steps:
        """Call the hooks of an event, in order. If one raises, the other handlers still get the event."""
        yield from self._call(self._calls_of(event), event)

    def _calls_of(self, event: Event) -> _Calls:
        """Make an event the current one. Returns the calls to its hooks."""
        self._current = event
        if event.position is not None:
            self._position = event.position
        if not self._has_content:
            self._look_for_content(event)
        self._observe(event)
        if not isinstance(event, Delta):
            self._notice_hooks()
        if event.declared > self._version:
            self._use_handlers(self._handlers)  # the application has declared the event since the stream was made
        return self._hooks.get(type(event), ())

    def _call(self, calls: _Calls, event: Event) -> Steps:
        """Call the hooks of an event, in order. If one raises, the other handlers still get the event."""
        for number, call in enumerate(calls, 1):
            if self._closing and isinstance(event, Delta):
                return
            try:
                if (result := _invoke(call, event)) is not None:
                    yield from self._await(call, result)
            except BaseException as error:
                yield from self._emit_to_rest(calls[number:], event, error)
                raise
        if not isinstance(event, Delta):
            self._notice_hooks()  # a hook may have assigned one for the deltas that follow

    def _emit_to_rest(self, calls: Iterable[Call | _DeltaHook], event: Event, error: BaseException) -> Steps:
        """Call the remaining hooks of an event after one raised. Their errors become notes of the first."""
        before, self._ending = self._ending, True
        try:
            for call in calls:
                try:
                    if (result := _invoke(call, event)) is not None:
                        yield from self._await(call, result)
                except Exception as another:
                    add_note(error, event, another)
        finally:
            self._ending = before

    def _look_for_content(self, event: Event) -> None:
        """Note whether an event brings the first content."""
        raise NotImplementedError("the managers implement it")

    def _observe(self, event: Event) -> None:
        """Note what an event means for the stream itself."""
        raise NotImplementedError("the managers implement it")

    def _await(self, hook: Any, result: Any) -> Generator[Any, Any, Any]:
        """Await what a hook returned, and warn if it, or what it gives, is a value. Returns None.

        Raises:
            UsageError: it is an awaitable, and this is a sync stream.
        """
        function = hook.function if isinstance(hook, Call) else hook
        if type(result) is CoroutineType or inspect.isawaitable(result):
            if not self._awaits:
                raise _cannot_await(function, result)
            result = yield result
        if result is not None:
            warn_of_returned_value(function, result)
        return None


def _cannot_await(hook: Any, awaitable: Any) -> UsageError:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    name = getattr(hook, "__qualname__", repr(hook))
    return UsageError(f"{name} returned an awaitable, which a sync stream cannot await: use `astream`")


def _invoke(call: Call | _DeltaHook, event: Any) -> Any:
    """Call a hook."""
    try:
        if not isinstance(call, Call):
            return call(event, event.snapshot)
        return call.function(event) if call.takes_event else call.function(*event.arguments())
    except StopIteration as error:
        raise HookStopped from error


def _taking_snapshot(call: Call) -> _DeltaHook:
    """Return a hook of deltas as the loop calls it, with the delta and its snapshot."""
    function = call.function
    return (lambda event, snapshot: function(event)) if call.takes_event else function


def add_note(error: BaseException, event: Event | None, another: BaseException) -> None:
    """Mention a later error in the first one. The same error once more, as of a full disk, is not mentioned again."""
    if type(another) is type(error) and str(another) == str(error):
        return
    where = f"delivering {event.type}" if event is not None else "closing the source"
    error.add_note(f"While the stream ended, {where} raised {type(another).__name__}: {another}")
