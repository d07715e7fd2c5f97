"""The delta loop: takes a source's batches, completes their events, and delivers them to hooks and to iteration.

Threads and tasks share it, so it does no input or output: `core.steps` says how a manager drives it. Every event goes to all
handlers, in their order, and then to whoever iterates, before the next event is completed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain
from types import CoroutineType
from typing import Any, Protocol, TypeAlias

from ..errors import UsageError, raise_source_error
from ..events import Delta, Event, Usage, version
from ..handlers import Call, Handler, names_no_hook, own_hooks, plan, warn_of_returned_value
from ..messages import COMPACT_AT
from .engine import Engine
from .steps import END, PULL, Step, Stopped

__all__ = [
    "NO_EVENT",
    "NO_MORE",
    "NO_SHORTCUT",
    "BatchDecoder",
    "Delivery",
    "HookStopped",
    "Shortcut",
    "Steps",
    "add_note",
]

Steps: TypeAlias = Generator[Step | Event | Awaitable[Any], Any, None]
"""What a manager drives: see `core.steps`."""

_DeltaHook: TypeAlias = Callable[[Any, Any], Any]  # takes the delta and its snapshot
_Calls: TypeAlias = Sequence[Call | _DeltaHook]  # those of one kind of event


Shortcut: TypeAlias = tuple[AbstractSet[type[Any]], Callable[[Any], Any], Callable[[Any], Sequence[Any]]]
"""How the delta loop decodes common batches by itself: the classes of these batches, and two functions. For such a batch
`second(first(batch))` are its events. Of bytes, the first function makes frames, and the second makes events of these; of
parsed items, one of the two makes the events, and the other passes them on."""


class BatchDecoder(Protocol):
    """Makes events of a source's batches."""

    def decode(self, batch: Any, /) -> Sequence[Any]:
        """The events of a batch; `NO_MORE` of the source's end."""
        ...


NO_SHORTCUT: Shortcut = (frozenset(), list, list)

NO_MORE: list[Any] = []
"""Returned in place of a batch's events when the source has ended."""

# What the delta loop has of a message before the first one: the message, its id, the class of its deltas, its pieces, the
# hooks; and the event, which is here because CPython 3.13 loads only a function's first 16 variables in pairs.
_NO_MESSAGE: tuple[Any, Any, Any, Any, Any, Any] = (None, None, None, [], (), None)


NO_EVENT = Event()
"""Stands for the newest event of a stream that has delivered none."""

_UNOBSERVED: set[type[Event]] = set()  # the classes of events for which `_observe` has nothing to do


class HookStopped(Exception):
    """Carries the StopIteration that a hook raised, which cannot leave a generator. It is the `__cause__`."""


class Delivery:
    """Delivers the events of one stream to its handlers and to whoever iterates over it.

    Args:
        engine: completes what a decoder reports.
        handlers: are called in this order.
        awaits: whether a task drives the stream, so that a hook may return an awaitable.
    """

    # The values with which a stream begins. They are the class's, because most streams change few of them.
    _awaits = False
    _coroutine: type[CoroutineType[Any, Any, Any]] | None = (
        None  # the class of results that certainly have to be awaited
    )
    _current: Any = NO_EVENT  # the event that is delivered now, or was last
    # The events that are being delivered; None while the manager waits for the source.
    _batch: Sequence[Event] | None = ()
    _ending = False  # the stream ends early: the async manager shields what is awaited from cancellation
    _ended = False  # `StreamEnd` was delivered, or is next
    _nested = False  # a source is read inside another
    _iterated = True  # somebody iterates, so events are handed out as well
    _has_content = False  # the first content has come

    def __init__(self, engine: Engine, handlers: Sequence[Handler], *, awaits: bool) -> None:
        self._engine = engine
        if awaits is not self._awaits:
            self._awaits, self._coroutine = awaits, CoroutineType if awaits else None
        # The position of the last event that had one, before the current event.
        self._position: int | str | None = None
        self._closing = False  # `close` or `cancel` was called, or the stream failed
        self._use_handlers(handlers)

    def _use_handlers(self, handlers: Sequence[Handler]) -> None:
        """Look up once which of their hooks each kind of event calls.

        Raises:
            UsageError: one of them is async, and this is a sync stream.
        """
        self._handlers: tuple[Handler, ...] = tuple(handlers)
        self._own_names: Iterable[object] = vars(handlers[0]) if len(handlers) == 1 else _AllNames(self._handlers)
        self._version, no_hook = version(), names_no_hook()
        self._own_hooks = () if no_hook(self._own_names) else own_hooks(handlers)
        # Where a hook is among these names, `_own_hooks` is to be compared at each event: it may have been deleted.
        self._names_no_hook = _no if self._own_hooks else no_hook
        # Any: a `_DeltaHook` of a kind of delta, a `Call` of any other event.
        self._hooks: dict[type[Event], Sequence[Any]] = {
            kind: tuple(map(_taking_snapshot, calls)) if issubclass(kind, Delta) else calls
            for kind, calls in plan(handlers, awaits=self._awaits).items()
        }

    def _notice_hooks(self) -> None:
        """Call from here on what was assigned to a handler as a hook since the last time.

        Raises:
            UsageError: it is async, and this is a sync stream.
        """
        if not self._names_no_hook(self._own_names) and self._own_hooks != own_hooks(self._handlers):
            self._use_handlers(self._handlers)

    # -- batches

    # Pulls batches and delivers their events. Returns False if the source has ended, and True if the lifecycle has something to
    # decide before the next pull.
    # A delta of an open message is the common case: its text is appended, its hooks are called. Most deltas follow another one
    # of the same message, so message and hooks are looked up only where the message changes, and before the first content. All
    # other events are completed by the engine.
    def _deliver_batches(self, source: BatchDecoder) -> Generator[Any, Any, bool]:
        engine, (message, message_id, kind, pieces, hooks, event), pull = self._engine, _NO_MESSAGE, self._pull_now
        (kinds, to_frames, decode), decoder, opened, again = NO_SHORTCUT, engine.decoder, engine.open_by_id, False
        try:
            while True:
                if self._position is not None:
                    self._position = self._current.position or self._last_position()
                batch = self._batch = decoder.frames = None  # what was read is not held while the next is awaited
                try:
                    batch = pull() if pull is not None else (yield PULL)
                except Exception as error:
                    batch = self._result_of_failed_pull(error)
                if self._closing:
                    return self._check()
                batch = self._batch = source.decode(batch) if batch.__class__ not in kinds else decode(to_frames(batch))
                for event in batch:
                    if event.__class__ is not kind or event.message_id is not message_id or event.replace:
                        found = opened.get(event.message_id)
                        if found is None or event.__class__ is not found.delta_event or event.replace:
                            if event.__class__ is not Usage or not self._count_unseen(event):
                                again, message_id = True, None
                                yield from self._deliver(engine.complete_event(event))
                            continue
                        if len(pieces) >= COMPACT_AT:
                            engine.compact(message)
                        message, kind, pieces = found, event.__class__, found.pieces
                        hooks = self._hooks.get(kind, ())
                        message_id = event.message_id if self._has_content or self._look_for_content(event) else None
                    pieces.append(event.value)
                    event.snapshot, self._current = message, event
                    for hook in hooks:
                        result = hook(event, message)
                        if result is not None and (type(result) is self._coroutine or self._must_await(hook, result)):
                            result = yield result  # which is None: a coroutine is not held once it was awaited
                        if self._closing:
                            raise Stopped
                    if self._iterated:
                        yield event
                        if self._closing:
                            self._check()
                if len(pieces) >= COMPACT_AT:
                    engine.compact(message)
                if (again or not batch or engine.changes) and (pull is not None or not self._pull_has_begun):
                    again, engine.cause = False, None  # the item that it came from may be large
                    if batch is NO_MORE or not kinds or decoder.exhausted or engine.pending or engine.not_approved:
                        if batch is NO_MORE or (shortcut := self._next_shortcut()) is None:
                            return batch is not NO_MORE
                        (kinds, to_frames, decode), decoder = shortcut, engine.decoder
        except StopIteration as error:
            raise HookStopped from error

    @property
    def _pulling(self) -> bool:
        """Whether the manager waits for the source."""
        return self._batch is None

    @property
    def _pull_has_begun(self) -> bool:
        """Whether a batch has begun the pull of the next one, which is ended before anything else is decided: only where a
        task drives the stream."""
        return False

    @property
    def _pull_now(self) -> Callable[[], Any] | None:
        """Pulls the source, where a thread drives the stream. None where a task does: it takes the step `PULL`."""
        return None

    def _result_of_failed_pull(self, error: Exception) -> Any:
        """What a failed pull means: the source's end, our own end, or a fault of the transport."""
        if isinstance(error, (StopIteration, StopAsyncIteration)):
            return END
        if self._closing:
            raise Stopped from None  # closing the source is what broke the pull
        raise_source_error(error)

    def _next_shortcut(self) -> Shortcut | None:
        """How common batches of the present source are decoded. None if something is to be decided before it is pulled again."""
        raise NotImplementedError("the lifecycle's")

    def _check(self) -> bool:
        """Raise `Stopped` if `close` or `cancel` was called before the stream's end, or while a source is read inside another.
        Returns False otherwise, as the delta loop does at the end of a source."""
        if self._closing and (self._nested or not self._ended):
            raise Stopped
        return False

    def _count_unseen(self, event: Usage) -> bool:
        """Count tokens without delivering the event, if nobody would receive it: some servers send usage with each delta. False
        if the event has to be delivered, or begins a step."""
        if self._iterated or Usage in self._hooks or self._closing:
            return False
        if not self._engine.count_in_step(event):
            return False
        if self._position is not None or self._current.position is not None:
            self._position = self._last_position()
        self._current = event
        self._notice_hooks()
        return True

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
        before = self._current.position
        if before is not None or self._position is not None:
            self._position = before or self._last_position()
        self._current = event
        if not self._has_content:
            self._look_for_content(event)
        kind = event.__class__
        if kind not in _UNOBSERVED and not self._observe(event):
            _UNOBSERVED.add(kind)
        # The condition of `_notice_hooks`, without a call at each event.
        names_no_hook = self._names_no_hook  # Python calls a variable faster than an attribute
        if not names_no_hook(self._own_names) and not isinstance(event, Delta):
            self._notice_hooks()
        calls = self._hooks.get(kind)
        if calls is None:
            if kind.declared <= self._version:
                return ()
            self._use_handlers(self._handlers)  # the application has declared the event since the stream was made
            calls = self._hooks.get(kind, ())
        return calls

    def _call(self, calls: _Calls, event: Event) -> Steps:
        """Call the hooks of an event, in order. If one raises, the other handlers still get the event."""
        for number, call in enumerate(calls, 1):
            if self._closing and isinstance(event, Delta):
                return
            try:
                result = _invoke(call, event)
                if result is not None and self._must_await(call, result):
                    yield result
            except BaseException as error:
                yield from self._emit_to_rest(calls[number:], event, error)
                raise
        if not isinstance(event, Delta):
            self._notice_hooks()  # a hook may have assigned one for the deltas that follow

    def _emit_to_rest(self, calls: _Calls, event: Event, error: BaseException) -> Steps:
        """Call the remaining hooks of an event after one raised. Their errors become notes of the first."""
        before, self._ending = self._ending, True
        try:
            for call in calls:
                try:
                    result = _invoke(call, event)
                    if result is not None and self._must_await(call, result):
                        yield result
                except Exception as another:
                    add_note(error, event, another)
        finally:
            self._ending = before

    def _look_for_content(self, event: Event) -> bool:
        """Note whether an event brings the first content. Returns whether content has come."""
        raise NotImplementedError("the manager's")

    def _observe(self, event: Event) -> bool:
        """Note what an event means for the stream itself. False if no event of this class means anything for it."""
        return False

    def _last_position(self) -> int | str | None:
        """The position of the current event, else of the last one before it that has one: some servers number only some
        items. Deltas of open messages are not noted one by one, so they are looked up in their batch."""
        current = self._current
        if current.position is not None:
            position: int | str = current.position
            return position
        if self._position is None or not isinstance(current, Delta):
            return self._position
        is_before = False
        for event in reversed(self._batch or ()):
            is_before = is_before or event is current
            if is_before and event.position is not None:
                return event.position
        return self._position

    def _must_await(self, hook: Any, result: Any) -> bool:
        """Whether what a hook returned has to be awaited.

        Raises:
            UsageError: it has to, and this is a sync stream.
        """
        if isinstance(hook, Call):
            hook = hook.function
        if not inspect.isawaitable(result):
            warn_of_returned_value(hook, result)
            return False
        if self._awaits:
            return True
        if inspect.iscoroutine(result):
            result.close()
        name = getattr(hook, "__qualname__", repr(hook))
        raise UsageError(f"{name} returned an awaitable, which a sync stream cannot await: use `astream`")


def _no(names: Iterable[object]) -> bool:
    return False


class _AllNames:
    """The names of the attributes that several handlers have at the moment when it is iterated."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self._handlers = handlers

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(vars, self._handlers))


def _invoke(call: Call | _DeltaHook, event: Any) -> Any:
    """Call a hook."""
    try:
        if not isinstance(call, Call):
            return call(event, event.snapshot)
        return call.function(event) if call.takes_event else call.function(*event.arguments())
    except StopIteration as error:
        raise HookStopped from error


def _taking_snapshot(call: Call) -> _DeltaHook:
    """A hook of deltas as the loop calls it, with the delta and its snapshot."""
    function = call.function
    return (lambda event, snapshot: function(event)) if call.takes_event else function


def add_note(error: BaseException, event: Event | None, another: BaseException) -> None:
    """Mention a later error in the first. The same error once more, as of a full disk, is not mentioned again."""
    if type(another) is type(error) and str(another) == str(error):
        return
    where = f"delivering {event.type}" if event is not None else "closing the source"
    error.add_note(f"While the stream ended, {where} raised {type(another).__name__}: {another}")
