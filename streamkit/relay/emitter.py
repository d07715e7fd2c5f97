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

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, cast

from ..answers import Confirmation
from ..errors import UsageError
from ..events import ConfirmationCreated, Event, ToolCallDone, ToolOutputDone
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
from ..streams.aio import AsyncStreamManager
from ..streams.sync import StreamManager
from .interface import Reader, Relay
from .pending import Approval, Output
from .writer import Writer

__all__ = ["Approval", "Emitter", "Output"]


class Emitter(Writer, Readable):
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
        super().__init__(relay, run_id, model=model, strict=strict)
        self._silence = timeout
        self._of: tuple[Any, ...] = ()  # what the message is that the next call may go on with
        self._asked = 0

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
            newest = next(self._calls(), None)
            call_id = call_id or (newest.call_id or newest.id if newest is not None else None)
            for call in self._engine.unanswered:
                if call_id in (call.call_id, call.id) and call.answer_slot is not None:
                    call.answer_slot.close()
            known = next((call.name for call in self._calls() if call_id in (call.call_id, call.id)), None)
            self._tell([ToolOutputDone(ToolOutputMessage(name=name or known, call_id=call_id, content=content))])
        self._wake_watchers()

    def _calls(self) -> Iterator[ToolCallMessage]:
        """The tool calls so far, the newest first."""
        return (message for message in reversed(self._engine.messages) if isinstance(message, ToolCallMessage))

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
            message.pieces.append(value)
            message.compact()
            self._wrote(event, self.relay.append(self.run_id, (event,), wait=False))

    def _unused(self, name: str) -> str:
        self._asked += 1
        while f"{name}-{self._asked}" in self._engine.pending:
            self._asked += 1
        return f"{name}-{self._asked}"
