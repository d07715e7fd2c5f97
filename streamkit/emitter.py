"""The push side: an agent that calls, where other sources are pulled.

    emitter = sk.Emitter()

    def agent():
        with emitter:
            emitter.text("Hel")
            emitter.text("lo")

    threading.Thread(target=agent).start()
    sk.stream(emitter, Printer()).until_done()

An emitter is called from any thread or task, several at once. What it is told goes through an engine, so that the relay's
log is a whole story; any number of streams read it, each from where it likes. It ends exactly once.
"""

# pyright: reportPrivateUsage=false
# An emitter drives the state, the engine and their messages, whose underscores keep users out.

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import TracebackType
from typing import Any, Self, cast

import msgspec

from .answers import Confirmation
from .errors import StreamkitError, UsageError
from .events import (
    ConfirmationCreated,
    Delta,
    Event,
    MessageDone,
    Run,
    RunCreated,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamException,
    ToolCallDone,
    ToolOutputDone,
)
from .interrupts import Stopped
from .manager_async import AsyncStreamManager
from .manager_sync import StreamManager
from .messages import (
    FOLD,
    CodeMessage,
    ConsoleMessage,
    Message,
    ReasoningMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    output_text,
)
from .relay.asked import Approval, Output
from .relay.interface import Reader, Relay
from .relay.memory import MemoryRelay
from .sources import AsyncSource, Items, Readable, Source, translate
from .state import StreamState, _error_of

__all__ = ["Approval", "Emitter", "Output"]


class Emitter(StreamState, Readable):
    """Writes a run into a relay, and is a source for any number of streams.

    Leaving `with` (or `async with`) closes it: as failed with what was raised in it, as cancelled where its task was
    cancelled. What is emitted after the end raises `UsageError`. The state that streams have is here, too: `messages`,
    `pending`, `status`, `usage`, `cursor` ….

    Args:
        relay: where the run is kept; a `MemoryRelay` of its own where none is given.
        run_id: names the run in the relay; where it is not given, one that nobody can guess.
        model: what the run says of its model.
        strict: raise `ProtocolError` for what is malformed, in place of repairing it and telling a warning.
        timeout: seconds of silence after which readers are told that the producer timed out; None for the relay's own
            limit, `math.inf` for none.

    Raises:
        UsageError: the relay has a run of this id already.
    """

    def __init__(
        self,
        relay: Relay | None = None,
        run_id: str | None = None,
        *,
        model: str | None = None,
        strict: bool = False,
        timeout: float | None = None,
    ) -> None:
        itself = weakref.ref(self)  # what is asked must not keep the emitter: that it was dropped is to be seen

        def answered() -> None:
            if (emitter := itself()) is not None:
                emitter._answered()

        super().__init__((), protocol=None, strict=strict, then=None, wake=answered, awaitables=False)
        self._engine.takes_approvals = self._engine.takes_edits = self._engine.takes_outputs = True
        self.relay: Relay = relay or MemoryRelay()
        self.run_id = run_id or secrets.token_urlsafe(16)
        self._model = model
        self._silence = timeout
        self._lock = threading.RLock()
        self._message: Message | None = None  # that a call of the same kind goes on with
        self._of: tuple[Any, ...] = ()
        self._items: Items | None = None  # of what is fed
        self._asked = 0
        self._watchers: set[Callable[[], None]] = set()
        self._cursor: str | None = None
        self._times["start"] = time.monotonic()
        self.relay.open(self.run_id)
        weakref.finalize(self, self.relay.abandon, self.run_id).atexit = False

    @property
    def cursor(self) -> str | None:
        """The newest event's: a reader `after` it is told only what comes next."""
        return self._cursor

    # -- what is said

    def text(self, value: str) -> None:
        """More of the assistant's text. It goes on with the message before, if that is one of text."""
        self._say(TextMessage, value)

    def reasoning(self, value: str, format: str | None = None) -> None:
        """More reasoning; `format` is `summary` where it is a summary."""
        self._say(ReasoningMessage, value, format=format)

    def code(self, value: str, language: str | None = None) -> None:
        """More code that is to be run. Another language begins another message."""
        if language is None and isinstance(self._message, CodeMessage):
            language = self._message.format
        self._say(CodeMessage, value, format=language)

    def console(self, value: str, stream: str | None = None) -> None:
        """More of what running code printed; `stream` is `stdout` or `stderr`, where that is known."""
        self._say(ConsoleMessage, value, {"stream": stream} if stream else None)

    def end_message(self) -> None:
        """What is said next begins another message."""
        with self._telling():
            self._end_message()

    def tool_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        call_id: str | None = None,
        provider_executed: bool = False,
        timeout: float | None = None,
    ) -> Output:
        """A whole tool call. A consumer may answer it with `call.respond(…)`; `wait()` for the output in a thread,
        `await` it in a task, or give `tool_output` where the agent ran it itself.

        Args:
            arguments: as values, or as JSON text.
            provider_executed: it is none of the consumers' business: the agent runs it itself.
            timeout: wait for the output so long, whatever the readers do.
        """
        text = output_text(arguments)
        with self._telling():
            self._end_message()
            call_id = call_id or self._unused("call")
            given = ToolCallMessage(name=name, call_id=call_id, content=text, provider_executed=provider_executed)
            self._tell([ToolCallDone(given)])
            call = cast("ToolCallMessage", self._engine.messages[-1])
            return Output(self, call, self.cursor or "", timeout)

    def tool_output(self, output: object, *, call_id: str | None = None, name: str | None = None) -> None:
        """What a tool gave: text, or what JSON can hold. Without `call_id` it is the newest call's."""
        content = output_text(output)
        with self._telling():
            self._end_message()
            calls = [message for message in self._engine.messages if isinstance(message, ToolCallMessage)]
            call_id = call_id or (calls[-1].call_id or calls[-1].id if calls else None)
            for call in self._engine.unanswered:
                if call_id in (call.call_id, call.id) and call._answer is not None:
                    call._answer.close()
            known = next((call.name for call in calls if call.call_id == call_id), None)
            self._tell([ToolOutputDone(ToolOutputMessage(name=name or known, call_id=call_id, content=content))])
        self._wake_watchers()

    def confirm(
        self,
        subject: Message | None = None,
        *,
        id: str | None = None,
        editable: bool = True,
        timeout: float | None = None,
    ) -> Approval:
        """Ask whether something may run; the newest code or tool call, where nothing else is given.

            if emitter.confirm():            # in a thread
            if await emitter.confirm():      # in a task

        Args:
            editable: whether it may be approved with other code in its place (`approval.edited`).
            timeout: wait so long, whatever the readers do; then it is declined.

        Raises:
            UsageError: there is nothing to confirm.
        """
        with self._telling():
            self._end_message()
            subject = subject or next(
                (m for m in reversed(self._engine.messages) if isinstance(m, (CodeMessage, ToolCallMessage))), None
            )
            if subject is None:
                raise UsageError("there is no code and no tool call yet that could be confirmed")
            id = id or self._unused("confirmation")
            if id in self._engine.pending:
                raise UsageError(f"{id!r} is asked already, and not answered yet")
            self._engine.takes_approvals, self._engine.takes_edits = True, editable
            self._tell([ConfirmationCreated(Confirmation(id, subject))])
            self._engine.takes_edits = True
            return Approval(self, self._engine.confirmations[-1], self.cursor or "", timeout)

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
            self._tell(chain(self._engine.next_source(), self._engine.step(RunStepCreated(RunStep(id=id or "")))))

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
            self.fail(event.exception or _error_of(event))
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
            self._tell(self._engine.complete(self._decode(self._items.batch(item))))

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
            if self._ended:
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

    # -- how it is read

    def reader(self, after: str | None = None, *, timeout: float | None = None) -> Reader:
        """A reader of this run, from its beginning or after a cursor. It does not keep the emitter alive."""
        return self.relay.reader(self.run_id, after, timeout=self._silence if timeout is None else timeout)

    def for_stream(self) -> Reader:
        return self.reader()

    def source(self) -> Source:
        return self.reader().source()

    def async_source(self) -> AsyncSource:
        return self.reader().async_source()

    def __iter__(self) -> Iterator[Event]:
        """The events, as a stream over it tells them. Raises as a stream does."""
        options: dict[str, Any] = {"protocol": None, "strict": False, "then": None}
        return iter(StreamManager(self.reader(), (), **options))

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks."""
        options: dict[str, Any] = {"protocol": None, "strict": False, "then": None}
        return aiter(AsyncStreamManager(self.reader(), (), **options))

    # -- inside

    def _telling(self) -> threading.RLock:
        """The lock to tell something with, once there is room for it."""
        if self.relay.bounded and not self._ended:
            self.relay.drain(self.run_id)
        return self._lock

    def _say(self, kind: type[Message], value: str, metadata: Mapping[str, Any] | None = None, **header: Any) -> None:
        if not isinstance(cast("object", value), str):
            raise UsageError(f"text is a str, not {value!r}")
        if not value:
            return
        with self._telling():
            message = self._message
            of = (kind, *header.values())
            if message is None or of != self._of or message.status != "in_progress" or self._ended:
                self._end_message()
                self._tell([kind.created_event(kind(**header))])
                self._times.setdefault("first", time.monotonic())
                self._message = message = self._engine.messages[-1]
                self._of = of
            event = kind.delta_event(message.id, value, metadata=metadata)
            message._tail.append(value)
            if len(message._tail) >= FOLD:
                message._fold()
            self._wrote(event, self.relay.append(self.run_id, (event,), wait=False))

    def _end_message(self) -> None:
        message, self._message = self._message, None
        if message is not None and message.status == "in_progress":
            self._tell([MessageDone(Message(message.id))])

    def _unused(self, name: str) -> str:
        self._asked += 1
        while f"{name}-{self._asked}" in self._engine.pending:
            self._asked += 1
        return f"{name}-{self._asked}"

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

    def _wrote(self, event: Event, cursors: list[str]) -> None:
        self._current = event
        self._cursor = cursors[-1]

    def _fed(self) -> Iterator[Event]:
        """What the end of what was fed tells."""
        if self._items is None:
            return
        self._items = None
        yield from self._source_finished()
        self._decoder = None

    def _answered(self) -> None:
        """Somebody answered, in his own thread."""
        self.tell_answers()
        self._wake_watchers()

    def tell_answers(self) -> None:
        """Tell all readers what was answered."""
        with self._lock:
            if not self._ended:
                for told in self._tell_answers():
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
            if self._ended:
                return
            if isinstance(error, Exception):
                try:
                    translate(error)
                except StreamkitError as translated:
                    error = translated
            self._begin()
            self._write(self._failed(error))
            self._finish()

    def _finish(self) -> None:
        self._times["end"] = time.monotonic()
        self.relay.close(self.run_id)
        self._wake_watchers()


def _nothing() -> None:
    pass
