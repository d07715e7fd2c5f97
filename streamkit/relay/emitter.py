"""The emitter: the source for an agent that calls, where other sources are pulled.

    emitter = sk.Emitter()

    def agent():
        with emitter:
            emitter.text("Hel")
            emitter.text("lo")

    threading.Thread(target=agent).start()
    sk.stream(emitter, Printer()).until_done()

An emitter is called from any thread or task, several at once. Its events are completed before they are written, so that
the relay's log is well formed; any number of streams read it, each from its own cursor. It ends exactly once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Self

from ..answers import Confirmation
from ..arguments import check_kind, check_seconds
from ..core.split_text import split_or_whole
from ..errors import UsageError
from ..events import ConfirmationCreated, Event, MessageDone, ToolCallDone, ToolOutputDone
from ..messages import (
    CodeMessage,
    ConsoleMessage,
    Message,
    ReasoningMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    output_text,
)
from ..sources.source import AsyncSource, Readable, Source
from ..streams.api import astream, stream
from .interface import Relay
from .lanes import EmittedMessage, Lane
from .questions import ApprovalRequest, Forwarded, OutputRequest
from .reader import Reader
from .writer import Writer

__all__ = ["ApprovalRequest", "EmittedMessage", "Emitter", "Lane", "OutputRequest"]


class Emitter(Writer, Readable):
    """Writes a run into a relay, and is a source for any number of streams.

    Leaving `with` (or `async with`) closes it: as failed if an exception was raised in it, as cancelled if its task was
    cancelled. To emit anything after the end raises `UsageError`. It has what streams have, too: `messages`, `pending`,
    `status`, `usage`, `cursor` ….

    Args:
        relay: where the run is written; a `MemoryRelay` of its own by default.
        run_id: the run's id in the relay; a random one by default, which cannot be guessed.
        model: the model's name, for the run's `model`.
        strict: raise `ProtocolError` for malformed events, in place of repairing them with a warning.
        timeout: seconds of silence after which readers fail with a `SourceTimeoutError`; None for the relay's own
            limit, `math.inf` for none.

    Raises:
        UsageError: the relay has a run with this id already, or is not a `Relay`.
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
        check_seconds("timeout", timeout, or_none=True)
        super().__init__(relay, run_id, model=model, strict=strict)
        self._timeout = timeout
        self._kind: type[Message] | None = None  # the open message's class
        self._format: str | None = None  # and its format
        self._calls = _CallIndex()
        self._question_count = 0

    @classmethod
    async def acreate(cls, relay: Relay | None = None, run_id: str | None = None, **options: Any) -> Self:
        """Return a new emitter, for tasks: beginning a run may wait for the relay. Arguments and errors are those of
        the class."""
        create = partial(cls, relay, run_id, **options)
        return create() if relay is None else await relay.in_task(create)

    # -- messages

    def text(self, value: str) -> None:
        """Emit some of the assistant's text. It is appended to the message before, if that is text."""
        self._append_text(TextMessage, value)

    def reasoning(self, value: str, format: str | None = None) -> None:
        """Emit some reasoning; `format` is `summary` for a summary of it."""
        check_kind("format", format, str)
        self._append_text(ReasoningMessage, value, None, format)

    def code(self, value: str, language: str | None = None) -> None:
        """Emit some code that is to run. Another language begins another message; without one, it is the same."""
        check_kind("language", language, str)
        if language is None and isinstance(self._message, CodeMessage):
            language = self._message.format
        self._append_text(CodeMessage, value, None, language)

    def console(self, value: str, stream: str | None = None) -> None:
        """Emit some output of running code; `stream` is `stdout` or `stderr`, if that is known."""
        check_kind("stream", stream, str)
        self._append_text(ConsoleMessage, value, {"stream": stream} if stream else None)

    def end_message(self) -> None:
        """End the message: what is emitted next begins another one."""
        with self._ready():
            self._end_message()

    def _append_text(
        self, kind: type[Message], text: str, metadata: Mapping[str, Any] | None = None, format: str | None = None
    ) -> None:
        """Append to the open message if it is of this kind, else begin one."""
        text = _plain_text(text)
        if not text:
            return
        with self._ready():
            message = self._message
            if message is None or kind is not self._kind or format != self._format or message.status != "in_progress":
                self._end_message()
                # With an id of the engine's, so that deltas are found by it.
                self._complete(kind.created_event(kind(self.engine.messages.new_id(), format=format)))
                self._message = message = self.engine.messages.all[-1]
                self._kind, self._format = kind, format
            self._complete(split_or_whole(kind.delta_event(message.id, text, False, metadata)))

    # -- messages side by side

    def begin_text(self) -> EmittedMessage:
        """Begin a text of its own, which grows beside whatever else is emitted: `write` it, and `end` it."""
        return self.begin_part(TextMessage)

    def begin_reasoning(self, format: str | None = None) -> EmittedMessage:
        """Begin some reasoning of its own, as `begin_text`."""
        return self.begin_part(ReasoningMessage, format=format)

    def begin_code(self, language: str | None = None) -> EmittedMessage:
        """Begin some code of its own, as `begin_text`."""
        return self.begin_part(CodeMessage, format=language)

    def begin_console(self) -> EmittedMessage:
        """Begin some console output of its own, as `begin_text`."""
        return self.begin_part(ConsoleMessage)

    def lane(self, name: str) -> Lane:
        """Return a lane of its own for one of several agents that emit into this run at the same time."""
        return Lane(self, name)

    def begin_part(self, kind: type[Message], lane: str | None = None, **header: Any) -> EmittedMessage:
        """Begin a message of this class, in a lane; for `Lane`."""
        with self._ready():
            self._complete(kind.created_event(kind(**header, metadata=_in_lane(lane))))
            return EmittedMessage(self, self.engine.messages.all[-1])

    def write_piece(self, message: Message, value: str, metadata: Mapping[str, Any] | None) -> None:
        """Write some more of a message that `begin_part` began; for `EmittedMessage`."""
        value = _plain_text(value)
        with self._ready():
            if message.status != "in_progress":
                raise UsageError(f"message {message.id!r} has ended ({message.status}): nothing more can be written")
            if value:
                self._complete(split_or_whole(message.delta_event(message.id, value, metadata=metadata)))

    def end_part(self, message: Message) -> None:
        """End a message that `begin_part` began; for `EmittedMessage`."""
        with self._lock:
            if message.status == "in_progress":
                self._complete(MessageDone(Message(message.id)))

    # -- tool calls and questions

    def tool_call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        *,
        call_id: str | None = None,
        provider_executed: bool = False,
        timeout: float | None = None,
        lane: str | None = None,
    ) -> OutputRequest:
        """Emit a tool call. A reader may answer it with `call.respond(…)`: `wait()` for the output in a thread, `await`
        it in a task. Or emit `tool_output` where the agent runs the tool itself.

        Args:
            arguments: as values, or as JSON text.
            provider_executed: readers cannot answer it: the agent runs it itself.
            timeout: wait for the output for so many seconds, whatever the readers do; None as for `confirm`.
            lane: the name of the lane that it belongs to.
        """
        check_kind("name", name, str)
        check_kind("call_id", call_id, str)
        check_seconds("timeout", timeout, or_none=True)
        content = output_text(arguments)
        with self._ready():
            self._end_message()
            call_id = call_id or self._unused_id("call")
            self._complete(
                ToolCallDone(
                    ToolCallMessage(
                        name=name,
                        call_id=call_id,
                        content=content,
                        provider_executed=provider_executed,
                        metadata=_in_lane(lane),
                    )
                )
            )
            call = self.engine.messages.all[-1]
            assert isinstance(call, ToolCallMessage)
            return OutputRequest(self, self.engine.pending.key_of(call), call, timeout)

    def tool_output(
        self, output: object, *, call_id: str | None = None, name: str | None = None, lane: str | None = None
    ) -> None:
        """Emit the output of a tool: text, or what JSON can hold. Without `call_id` it is the newest call's."""
        content = output_text(output)
        with self._ready():
            self._end_message()
            self._calls.update(self.engine.messages.all)
            if call_id is None and (newest := self._calls.newest_call) is not None:
                call_id = newest.call_id or newest.id
            for call in self.engine.pending.unanswered_with(call_id):
                if call.answer_slot is not None:
                    call.answer_slot.close()
            name = name or self._calls.name_of(call_id)
            message = ToolOutputMessage(name=name, call_id=call_id, content=content, metadata=_in_lane(lane))
            self._complete(ToolOutputDone(message))
        self._wake_watchers()

    def confirm(
        self,
        subject: Message | None = None,
        *,
        id: str | None = None,
        editable: bool = True,
        timeout: float | None = None,
    ) -> ApprovalRequest:
        """Ask the readers whether something may run: the newest code or tool call, unless `subject` names another message.

            if emitter.confirm():            # in a thread
            if await emitter.confirm():      # in a task

        A confirmation that no reader answers is `unanswered`, and so not approved: when every reader goes on without having deferred it, 30 seconds
        after the last one left that had not, and at the latest after 300 seconds.

        Args:
            editable: whether readers may approve other code in its place (`approval.edited`).
            timeout: wait for so many seconds instead, whatever the readers do; `math.inf` for no limit.

        Raises:
            UsageError: there is nothing to confirm, or a confirmation with this id is pending.
        """
        check_kind("subject", subject, Message)
        check_kind("id", id, str)
        check_seconds("timeout", timeout, or_none=True)
        with self._ready():
            self._end_message()
            self._calls.update(self.engine.messages.all)
            subject = subject or self._calls.newest_subject
            if subject is None:
                raise UsageError("there is nothing to confirm: emit code or a tool call first, or pass `subject=`")
            id = id or self._unused_id("confirmation")
            if id in self.engine.pending.waiting:
                raise UsageError(f"confirmation {id!r} is pending already: use another `id`")
            self.engine.pending.takes_approvals, self.engine.pending.takes_edits = True, editable
            self._complete(ConfirmationCreated(Confirmation(id, subject)))
            self.engine.pending.takes_edits = True
            return ApprovalRequest(self, self.engine.pending.confirmations[-1], timeout)

    def _forward(self, confirmation: Confirmation) -> None:
        Forwarded(self, confirmation).start()

    def _unused_id(self, name: str) -> str:
        self._question_count += 1
        while f"{name}-{self._question_count}" in self.engine.pending.waiting:
            self._question_count += 1
        return f"{name}-{self._question_count}"

    # -- reading

    def reader(self, after: str | None = None, *, timeout: float | None = None) -> Reader:
        """Return a reader of this run, from its beginning or after a cursor. It does not keep the emitter alive.
        `timeout` are seconds of silence, by default as many as the emitter was made with."""
        return self.relay.reader(self.run_id, after, timeout=self._timeout if timeout is None else timeout)

    def for_stream(self) -> Reader:
        """Return a reader from the beginning, for a stream."""
        return self.reader()

    def source(self) -> Source:
        """Return the run as a source that a thread pulls."""
        return self.reader().source()

    def async_source(self) -> AsyncSource:
        """Return the run as a source that a task pulls."""
        return self.reader().async_source()

    def __iter__(self) -> Iterator[Event]:
        """Return the events of a stream over this run, from its beginning. Raises as a stream does."""
        return iter(stream(self.reader()))

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `__iter__`, for tasks."""
        return aiter(astream(self.reader()))


class _CallIndex:
    """The calls among messages that grow at their end, and may be forgotten at their beginning. Each message is looked at
    once, so that thousands of calls cost as much as a few, each.

    Attributes:
        newest_call: the newest tool call; None if there is none.
        newest_subject: the newest tool call or code, which can be confirmed; None if there is none.
    """

    def __init__(self) -> None:
        self.newest_call: ToolCallMessage | None = None
        self.newest_subject: CodeMessage | ToolCallMessage | None = None
        self._calls: dict[str, ToolCallMessage] = {}  # by message id and by call id
        self._open: list[ToolCallMessage] = []  # the call id of which may come later
        self._seen: Message | None = None

    def update(self, messages: Sequence[Message]) -> None:
        """Look at the messages that are new."""
        if len(self._calls) > 4 * len(messages):  # most of them were forgotten
            self._calls.clear()
            self._seen = None
        new = [*takewhile(lambda message: message is not self._seen, reversed(messages))]
        for message in reversed(new):
            if isinstance(message, (CodeMessage, ToolCallMessage)):
                self.newest_subject = message
            if isinstance(message, ToolCallMessage):
                self.newest_call = message
                self._open.append(message)
        for call in self._open:
            self._calls[call.id] = self._calls[call.call_id or call.id] = call
        self._open = [call for call in self._open if call.status == "in_progress"]
        self._seen = messages[-1] if messages else None

    def name_of(self, id: str | None) -> str | None:
        """Return the name of the newest call that has this call id, or is the message with this id."""
        call = self._calls.get(id) if id is not None else None
        return call.name if call is not None else None


def _plain_text(value: object) -> str:
    """Return a text as a plain str, whatever subclass it has. Raises `UsageError` if it is not text."""
    if not isinstance(value, str):
        raise UsageError(f"emitted text is a str, not {value!r}")
    return str.__str__(value)


def _in_lane(lane: str | None) -> dict[str, Any]:
    """Return the metadata with which a message names its lane."""
    return {} if lane is None else {"lane": lane}
