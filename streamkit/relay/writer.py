"""Writing a run into a relay. All events go through an engine, so that the log is complete and ends exactly once."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Any, Self

import msgspec

from ..answers import Confirmation
from ..arguments import check_kind, check_plain_methods
from ..core.split_text import split_or_whole
from ..errors import SourceError, StreamkitError, UsageError, raise_source_error
from ..events import (
    Created,
    Delta,
    Done,
    Event,
    MessageDone,
    Run,
    RunCreated,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamException,
)
from ..messages import Message, ToolCallMessage
from ..sources.interrupt import Stopped
from ..sources.items import Items
from ..sources.source import Source, SourceTraits
from ..streams.failures import error_of
from ..streams.options import StreamOptions
from ..streams.state import StreamState
from .interface import Relay
from .memory import MemoryRelay
from .run_record import Answered, Cancelled, Control, Fenced, Unattended, ending_of
from .run_writer import RunWriter

__all__ = ["Writer"]

_FEWEST = 1000  # messages that a writer keeps at least, however small its log is


class Writer(StreamState):
    """Completes events, and writes them into a run. Any thread may call it, several at once."""

    def __init__(self, relay: Relay | None, run_id: str | None, *, model: str | None, strict: bool) -> None:
        # Pending questions and the relay refer to these: they must not keep a dropped writer alive, or its readers would wait.
        writer = weakref.ref(self)

        def answered() -> None:
            if (this := writer()) is not None:
                this._log.call_soon(this.write_answers)
                this._wake_watchers()

        def received(control: Control) -> None:
            if (this := writer()) is not None:
                this.receive(control)

        super().__init__((), StreamOptions(strict=strict), wake=answered, awaitables=False)
        self.engine.pending.takes_approvals = self.engine.pending.takes_edits = self.engine.pending.takes_outputs = True
        check_kind("relay", relay, Relay)
        check_plain_methods("relay", relay, Relay)
        check_kind("run_id", run_id, str)
        check_kind("model", model, str)
        self.relay: Relay = MemoryRelay() if relay is None else relay
        self.run_id = run_id or secrets.token_urlsafe(16)
        self._model = model
        self._message: Message | None = None  # open; the next call of the same kind appends to it
        self._feed: Items | None = None  # joins the pieces of the body that is being fed
        self._watchers: set[Callable[[], None]] = set()
        self._times.start = time.monotonic()
        self._log = self.relay.open(self.run_id, {"model": model} if model else {}, control=received)
        self._lock = threading.RLock()
        self._most = None if self.relay.limit is None else max(self.relay.limit, _FEWEST)  # messages that are held
        self._events = RunWriter(self.engine, self._log, self.relay.limit, resumable=False)

    @property
    def cursor(self) -> str | None:
        """The cursor of the newest event: a reader `after` it receives only what comes next."""
        return self._events.cursor

    @property
    def messages(self) -> Sequence[Message]:
        """The newest messages, as many as the relay's log has entries but at least 1000, and those that are open. All
        of them, where it is not bounded. (The same holds for `confirmations` and the run's steps.)"""
        return super().messages

    # -- writing

    def step(self, id: str | None = None) -> None:
        """Begin another run step. The step before ends, with all items that were fed in it.

        Raises:
            StreamkitError: the items that were fed were cut off, or their run failed. That ends the emitter, too.
        """
        with self._ready():
            self._end_message()
            step = RunStepCreated(RunStep(id=id or ""))
            if self._feed is None:  # messages that others are writing stay open
                self.engine.runs.resume()
                self._complete(step)
                return
            try:
                self._write(self._end_feed())
                if (failure := self._failure()) is not None:
                    raise failure
            except StreamkitError as error:
                self._end(error)
                raise
            self._write(chain(self.engine.next_source(), self.engine.complete_event(step)))

    def step_done(self) -> None:
        """End the run step."""
        with self._ready():
            self._end_message()
            self._complete(RunStepDone(RunStep()))

    def emit(self, event: Event) -> None:
        """Write any canonical event. It is completed as a decoder's are: the events that it needs before it are written first. A
        `StreamException` ends the run as failed.

        Raises:
            UsageError: it is not an event, or a delta whose id or text is not text.
            ProtocolError: the event is malformed, and the emitter is strict.
        """
        event = _copy(event)
        if isinstance(event, StreamException):
            self.fail(event.exception or error_of(event))
            return
        with self._ready():
            self._complete(split_or_whole(event))

    def feed(self, item: object, protocol: str | None = None) -> None:
        """Write a raw item of any protocol: a dict, an SDK's object, or bytes or text of a body, cut anywhere.

        The protocol is recognised if it is not named. Another protocol, or `step`, ends the stream of the items before.
        """
        with self._ready():
            self._begin()
            current = self._decoder.name if self._decoder is not None else None
            if self._feed is None or (protocol is not None and protocol != current):
                self._end_message()
                self._write(self._end_feed())
                self._source_opened(Source(iter(()), _nothing, SourceTraits(protocol=protocol, edits=True)))
                self._feed = Items()
            self._write(self.engine.complete(self._decoded(self._feed.batch(item))))

    def heartbeat(self) -> None:
        """Report that the agent is alive, although it has nothing to emit yet."""
        self._log.heartbeat()

    async def drain(self) -> None:
        """Wait until the readers have made room. For tasks, where the relay's policy is `block`."""
        await self._log.adrain()

    # -- how it ends

    def close(self) -> None:
        """End the run. If the items that were fed are cut off, or their run failed, readers receive that. Closing again changes
        nothing."""
        with self._lock:
            if self._ended or self._end_if_gone():
                return
            try:
                self._begin()
                self._end_message()
                self._write(self._end_feed() if self._feed is not None else self.engine.source_done(complete=True))
                if (failure := self._failure()) is not None:
                    raise failure
            except Exception as error:
                self._end(error)
                return
            self._write(chain(self.engine.end(), self._last()))
            self._finish()

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed: readers' streams fail with that error."""
        self._end(RuntimeError(error) if isinstance(error, str) else error)

    def cancel(self) -> None:
        """End the run as cancelled: readers keep the events so far, and nothing is raised."""
        self._end(Stopped())

    def __enter__(self) -> Self:
        self.heartbeat()  # the run is alive as long as this thread is
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

    # -- answers

    def receive(self, control: Control) -> None:
        """Receive a message of the relay to the producer. Any thread may call it."""
        match control:
            case Answered(question=id, answer=answer):
                self._events.receive_answer(id, answer)
            case Unattended(question=id):
                self._events.no_reader_can_answer(id)
                self._wake_watchers()
            case Cancelled():
                self.cancel()
            case Fenced():
                with self._lock:
                    self._end_if_gone()

    def write_answers(self) -> None:
        """Write the outcomes of the questions that were answered; any thread may call it. The relay's registry decides which
        answer counts; the lock is not held while it is asked, so that other threads can write."""
        while True:
            with self._lock:
                waiting = None if self._ended else self.engine.pending.next_answered()
            if waiting is None:
                return
            assert waiting.answer_slot is not None
            value: Any = self._events.winning_value(waiting, waiting.answer_slot)
            with self._lock:
                if self.is_pending(self.engine.pending.key_of(waiting), waiting):
                    self._answers_taken += 1
                    if isinstance(waiting, ToolCallMessage):
                        self._write(self.engine.content.output(waiting, value))
                    else:
                        self._write(self._decided(waiting, *value))
            self._wake_watchers()

    def is_pending(self, question_id: str, waiting: Confirmation | ToolCallMessage) -> bool:
        """Whether the outcome of a question is still to be written."""
        return not self._ended and self.engine.pending.waiting.get(question_id) is waiting

    def close_unanswered(self, question_id: str) -> bool:
        """Close a question without an answer. Returns False if there is one, which is about to come."""
        return self._events.close_unanswered(question_id)

    def is_unattended(self, question_id: str, seconds: float) -> bool:
        """Whether every reader has gone on without answering a question, or no reader that could answer it has been there for so
        many seconds."""
        return self._events.is_unattended(question_id, seconds)

    def watch(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` at each answer and at the end. Returns the function that undoes this."""
        self._watchers.add(wake)
        return lambda: self._watchers.discard(wake)

    def _wake_watchers(self) -> None:
        for wake in [*self._watchers]:
            wake()

    # -- from the engine to the log; with the lock held

    def _ready(self) -> threading.RLock:
        """Return the lock to write with, once there is room in the log."""
        if self._log.bounded and not self._ended:
            self._log.drain()
        return self._lock

    def _begin(self) -> None:
        """Write the run's beginning, before anything else.

        Raises:
            UsageError: it has ended.
        """
        if self._ended:
            raise UsageError(f"run {self.run_id!r} has ended ({self.status}): nothing more can be emitted")
        if self.engine.runs.run is None:
            run = Run(id=self.run_id, model=self._model, created_at=time.time())
            self._append(self.engine.complete([RunCreated(run)]))

    def _complete(self, event: Event) -> None:
        """Complete an event, and write it."""
        self._write(self.engine.complete([event]))

    def _write(self, events: Iterable[Event]) -> None:
        """Write events of the engine, each before it completes the next one."""
        self._begin()
        self._append(events)
        if self._most is not None:
            self.engine.forget_oldest(self._most)

    def _append(self, events: Iterable[Event]) -> None:
        try:
            self._events.append(events)
        finally:
            self._current = self._events.current
            if self._events.first_content is not None:
                self._times.note_first(self._events.first_content)
            while self._events.forwarded:
                self._forward(self._events.forwarded.pop())

    def _forward(self, confirmation: Confirmation) -> None:
        """Wait for the readers' answer to another stream's confirmation."""
        raise NotImplementedError

    def _end_message(self) -> None:
        message, self._message = self._message, None
        if message is not None and message.status == "in_progress":
            self._complete(MessageDone(Message(message.id)))

    def _end_feed(self) -> Iterator[Event]:
        """Yield the events of the end of the items that were fed."""
        if self._feed is None:
            return
        self._feed = None
        yield from chain(self._decoder_finished(), self._source_done())
        if (cut := self._cut_off()) is not None:
            raise cut
        self.source_decoder = None

    def _end(self, error: BaseException) -> None:
        """End the run as failed, or as cancelled."""
        with self._lock:
            if self._ended or self._end_if_gone():
                return
            self._begin()
            if isinstance(error, (SystemExit, KeyboardInterrupt)):
                error = SourceError(f"the agent was ended by {type(error).__name__}: {error}")
            self._append(self._failed(_for_readers(error) if isinstance(error, Exception) else error))
            self._finish()

    def _end_if_gone(self) -> bool:
        """End the run here if it was deleted or closed in its relay. Returns whether it was."""
        if self._log.fenced is None:
            return False
        if self._ended:
            return True
        for _ in self._failed(SourceError(f"run {self.run_id!r} was ended in its relay")):
            pass  # no reader can receive them
        self._finish()
        return True

    def _finish(self) -> None:
        self._times.end = time.monotonic()
        error = self._error
        failure = None if error is None else {"type": type(error).__name__, "message": str(error)}
        self._events.end(ending_of(self._status), failure)
        self._wake_watchers()


def _copy(event: object) -> Event:
    """Return a copy to write of an event, which may be another stream's."""
    if not isinstance(event, Event):
        raise UsageError(f"an event is emitted, not {event!r}; `feed` takes a protocol's items")
    if isinstance(event, Delta):
        for name in ("message_id", "value"):
            if not isinstance(getattr(event, name), str):
                raise UsageError(f"`{name}` of a {type(event).__name__} is a `str`, not {getattr(event, name)!r}")
    elif isinstance(event, (Created, Done)):
        check_kind("message", event.message, Message)
    return msgspec.structs.replace(event)


def _for_readers(error: Exception) -> StreamkitError:
    """Return a producer's error as its readers receive it: as a failure of their source, for it is not their fault."""
    error = _single(error)
    try:
        if isinstance(error, UsageError):
            raise SourceError(f"UsageError: {error}") from error
        raise_source_error(error)
    except StreamkitError as translated:
        return translated


def _single(error: Exception) -> Exception:
    """Return the one error in a group of one, else the error itself."""
    inner: tuple[Exception, ...] = getattr(error, "exceptions", ()) if issubclass(type(error), ExceptionGroup) else ()
    return _single(inner[0]) if len(inner) == 1 else error


def _nothing() -> None:
    """Do nothing: fed items have no source to close."""
