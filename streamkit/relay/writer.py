"""Writing a run into a relay: what is told goes through an engine, so that the log is a whole story, which ends once."""

# pyright: reportPrivateUsage=false
# A writer drives the state, the engine and their messages, whose underscores keep users out.

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Self, TypeVar, cast

import msgspec

from ..errors import SourceError, StreamkitError, UsageError
from ..events import Delta, Event, MessageDone, Run, RunCreated, RunStep, RunStepCreated, RunStepDone, StreamException
from ..messages import Message
from ..sources.interrupt import Stopped
from ..sources.source import Items, Source, translate
from ..streams.state import StreamState, Timing, error_of
from .interface import Relay
from .memory import MemoryRelay

__all__ = ["Writer"]

_T = TypeVar("_T")
_FEWEST = 1000  # messages that a writer knows, however small its log


class Writer(StreamState):
    """Completes what it is told, and writes it into a run. Any thread may call, several at once."""

    def __init__(
        self,
        relay: Relay | None,
        run_id: str | None,
        *,
        model: str | None,
        strict: bool,
    ) -> None:
        itself = weakref.ref(self)  # what is asked must not keep the writer: that it was dropped is to be seen

        def answered() -> None:
            if (writer := itself()) is not None:
                writer._answered()

        super().__init__((), protocol=None, strict=strict, then=None, wake=answered, awaitables=False)
        self._engine.takes_approvals = self._engine.takes_edits = self._engine.takes_outputs = True
        self.relay: Relay = MemoryRelay() if relay is None else relay
        self.run_id = run_id or secrets.token_urlsafe(16)
        self._model = model
        self._lock = threading.RLock()
        self._message: Message | None = None  # that a call of the same kind goes on with
        self._items: Items | None = None  # of what is fed
        self._watchers: set[Callable[[], None]] = set()
        self._cursor: str | None = None
        self._forgotten = 0  # deltas of messages that are known no longer
        self._times["start"] = time.monotonic()
        self.relay.open(self.run_id)
        weakref.finalize(self, self.relay.abandon, self.run_id).atexit = False

    @property
    def cursor(self) -> str | None:
        """The newest event's: a reader `after` it is told only what comes next."""
        return self._cursor

    @property
    def messages(self) -> Sequence[Message]:
        """The newest messages, as many as the relay's log has entries but at least 1000, and those that are open. All
        of them, where it is not bounded. (The same holds for `confirmations` and the run's steps.)"""
        return super().messages

    @property
    def timing(self) -> Timing:
        """How long things took."""
        known = super().timing
        if not self._forgotten:
            return known
        deltas, speed = known.deltas + self._forgotten, known.deltas_per_second
        more = speed * deltas / known.deltas if speed and known.deltas else speed
        return msgspec.structs.replace(known, deltas=deltas, deltas_per_second=more)

    # -- what is told

    def step(self, id: str | None = None) -> None:
        """Another run step begins. What was fed before has ended with the one before.

        Raises:
            StreamkitError: what was fed was cut off, or says that its run failed. That ends the emitter, too.
        """
        with self._telling():
            self._end_message()
            try:
                self._tell(self._fed())
                self._check_failure()
            except StreamkitError as error:
                self._end(error)
                raise
            self._tell(
                chain(self._engine.next_source(), self._engine.complete_event(RunStepCreated(RunStep(id=id or ""))))
            )

    def step_done(self) -> None:
        """The run step is over."""
        with self._telling():
            self._end_message()
            self._tell([RunStepDone(RunStep())])

    def emit(self, event: Event) -> None:
        """Any canonical event. It is completed as a decoder's are: what it needs before it is told before it."""
        if not isinstance(cast("object", event), Event):
            raise UsageError(f"an event is emitted, not {event!r}; `feed` takes a protocol's items")
        if isinstance(event, StreamException):
            self.fail(event.exception or error_of(event))
            return
        with self._telling():
            self._tell([msgspec.structs.replace(event)])

    def feed(self, item: object, protocol: str | None = None) -> None:
        """A raw item of any protocol's: a dict, an SDK's object, or bytes or text of a body, cut anywhere.

        The protocol is recognised where it is not given. Another protocol, or `step`, ends what was fed before.
        """
        with self._telling():
            self._begin()
            named = self._decoder.name if self._decoder is not None else None
            if self._items is None or (protocol is not None and protocol != named):
                self._end_message()
                self._tell(self._fed())
                self._source_opened(Source(iter(()), _nothing, protocol=protocol, edits=True))
                self._items = Items()
            self._tell(self._engine.complete(self._decoded(self._items.batch(item))))

    def heartbeat(self) -> None:
        """A sign of life: there is nothing to tell yet."""
        self.relay.heartbeat(self.run_id)

    async def drain(self) -> None:
        """Wait until the readers have made room. For tasks, where the relay's policy is `block`."""
        await self.relay.adrain(self.run_id)

    # -- how it ends

    def close(self) -> None:
        """The run is over. What was fed and is cut off, or says that its run failed, is told as that. Closing again
        changes nothing."""
        with self._lock:
            if self._ended or self._is_gone():
                return
            try:
                self._begin()
                self._end_message()
                self._tell(self._fed() if self._items is not None else self._engine.source_done(complete=True))
                self._check_failure()
            except Exception as error:
                self._end(error)
                return
            self._tell(chain(self._engine.end(), self._last()))
            self._finish()

    def fail(self, error: BaseException | str) -> None:
        """The run failed: readers are told that error, as their streams' own."""
        self._end(RuntimeError(error) if isinstance(error, str) else error)

    def cancel(self) -> None:
        """The run is stopped: readers keep what was told, and nothing is raised."""
        self._end(Stopped())

    def __enter__(self) -> Self:
        self.relay.heartbeat(self.run_id)  # this thread's life is the emitter's
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self._end(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    # -- inside

    def _telling(self) -> threading.RLock:
        """The lock to tell something with, once there is room for it."""
        if self.relay.bounded and not self._ended:
            self.relay.drain(self.run_id)
        return self._lock

    def _end_message(self) -> None:
        message, self._message = self._message, None
        if message is not None and message.status == "in_progress":
            self._tell([MessageDone(Message(message.id))])

    def _tell(self, events: Iterable[Event]) -> None:
        """Complete events, and write them. With the lock held."""
        self._begin()
        self._write(self._engine.complete(events) if isinstance(events, list) else events)

    def _begin(self) -> None:
        if self._ended:
            raise UsageError(f"run {self.run_id!r} has ended ({self.status}): nothing more can be told")
        if self._engine.runs.run is None:
            run = Run(id=self.run_id, model=self._model, created_at=time.time())
            self._write(self._engine.complete([RunCreated(run)]))

    def _write(self, events: Iterable[Event]) -> None:
        newest: Event | None = None

        def noted() -> Iterator[Event]:
            nonlocal newest
            for event in events:
                newest = event
                if isinstance(event, Delta):
                    self._times.setdefault("first", time.monotonic())
                yield event

        cursors = self.relay.append(self.run_id, noted(), wait=False)
        if newest is not None:
            self._wrote(newest, cursors)
        limit = self.relay.limit
        if limit is not None:
            self._forget(max(limit, _FEWEST))

    def _wrote(self, event: Event, cursors: list[str]) -> None:
        self._current = event
        self._cursor = cursors[-1]

    def _forget(self, limit: int) -> None:
        """Let go of the oldest that is over, beyond so many: an eighth, so that it is seldom done."""
        engine, runs = self._engine, self._engine.runs
        if max(len(engine.messages), len(engine.confirmations), len(runs.steps)) <= limit:
            return
        newest = limit - limit // 8
        for message in _cut(engine.messages, newest, lambda message: message.status != "in_progress"):
            self._forgotten += message.delta_count
            engine._ids.forget(message.id)
            engine._annotated.pop(message.id, None)
        _cut(engine.confirmations, newest, lambda asked: asked.id not in engine.pending)
        for step in _cut(runs.steps, newest, lambda step: step is not runs.step):
            runs._by_id.pop(step.id, None)

    def _decoded(self, batch: object) -> Sequence[Event]:
        assert self._source_decoder is not None
        return self._source_decoder.decode(batch)

    def _fed(self) -> Iterator[Event]:
        """What the end of what was fed tells."""
        if self._items is None:
            return
        self._items = None
        yield from self._source_finished()
        self._source_decoder = None

    def _answered(self) -> None:
        """Somebody answered, in his own thread."""
        self.tell_answers()
        self._wake_watchers()

    def tell_answers(self) -> None:
        """Tell all readers what was answered."""
        with self._lock:
            if not self._ended:
                for told in self._deliver_answers():
                    self._write(told)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` whenever something was answered, until the function that this gives is called."""
        self._watchers.add(wake)
        return lambda: self._watchers.discard(wake)

    def _wake_watchers(self) -> None:
        for wake in [*self._watchers]:
            wake()

    def _end(self, error: BaseException) -> None:
        """End it as failed, or as cancelled."""
        with self._lock:
            if self._ended or self._is_gone():
                return
            self._begin()
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                error = SourceError(f"the agent was ended by {type(error).__name__}: {error}")
            self._write(self._failed(_for_readers(error) if isinstance(error, Exception) else error))
            self._finish()

    def _is_gone(self) -> bool:
        """Whether the relay has the run no longer, or somebody closed it there. Then it has ended here, too."""
        if self.relay.status(self.run_id) == "open":
            return False
        for _ in self._failed(SourceError(f"run {self.run_id!r} was ended in its relay")):
            pass  # nobody can be told
        self._finish()
        return True

    def _finish(self) -> None:
        self._times["end"] = time.monotonic()
        self.relay.close(self.run_id)
        self._wake_watchers()


def _for_readers(error: Exception) -> StreamkitError:
    """A producer's error as a transport's: its readers are not at fault. A group of one says what that one says."""
    error = _alone(error)
    try:
        if isinstance(error, UsageError):
            raise SourceError(f"UsageError: {error}") from error
        translate(error)
    except StreamkitError as translated:
        return translated


def _alone(error: Exception) -> Exception:
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ()) if issubclass(type(error), ExceptionGroup) else ()
    return _alone(inner[0]) if len(inner) == 1 else error


def _cut(known: list[_T], newest: int, is_over: Callable[[_T], bool]) -> list[_T]:
    """Take out of a list what is over, but for the newest of it. At once, for other threads read it."""
    old = known[:-newest]
    gone = [one for one in old if is_over(one)]
    if gone:
        known[: len(old)] = [one for one in old if not is_over(one)]
    return gone


def _nothing() -> None:
    pass
