"""Parts and lanes: how several sub-agents write into one run at the same time without mixing their messages.

    part = emitter.begin_text()          a message of its own, whatever else is emitted meanwhile
    part.write("Hel")
    part.end()

    lane = emitter.lane("researcher")    calls as the emitter has them, for one of several agents
    lane.text("I look it up.")
    lane.tool_call("search", {"query": "streams"})

A message of a lane has the lane's name in `metadata["lane"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..messages import CodeMessage, ConsoleMessage, Message, ReasoningMessage, TextMessage, ToolCallMessage

if TYPE_CHECKING:
    from .emitter import Emitter
    from .questions import ApprovalRequest, OutputRequest

__all__ = ["EmittedMessage", "Lane"]


class EmittedMessage:
    """One message that grows until `end`, or until its `with` block or the run ends. Any thread may write it.

    Attributes:
        message: the message; it is live.
    """

    def __init__(self, emitter: Emitter, message: Message) -> None:
        self._emitter = emitter
        self.message = message

    @property
    def open(self) -> bool:
        """Whether more can be written."""
        return self.message.status == "in_progress"

    def write(self, value: str, *, stream: str | None = None) -> None:
        """Write some more of the message; `stream` is `stdout` or `stderr` of console output, if that is known.

        Raises:
            UsageError: the message has ended, or this is not text.
        """
        self._emitter.write_piece(self.message, value, {"stream": stream} if stream else None)

    def end(self) -> None:
        """End the message. Ending it again changes nothing."""
        self._emitter.end_part(self.message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<EmittedMessage {self.message!r}>"


class Lane:
    """The messages of one of several agents, in an order of their own. One thread or task uses it at a time.

    Attributes:
        name: in the `metadata` of its messages.
    """

    def __init__(self, emitter: Emitter, name: str) -> None:
        self._emitter = emitter
        self.name = name
        self._part: EmittedMessage | None = None
        self._key: tuple[Any, ...] = ()
        self._newest: Message | None = None  # that could be confirmed

    def text(self, value: str) -> None:
        """Emit some of the assistant's text, as `Emitter.text` does."""
        self._append(TextMessage, value)

    def reasoning(self, value: str, format: str | None = None) -> None:
        """Emit some reasoning, as `Emitter.reasoning` does."""
        self._append(ReasoningMessage, value, format=format)

    def code(self, value: str, language: str | None = None) -> None:
        """Emit some code, as `Emitter.code` does."""
        if language is None and self._part is not None and isinstance(self._part.message, CodeMessage):
            language = self._part.message.format
        self._append(CodeMessage, value, format=language)

    def console(self, value: str, stream: str | None = None) -> None:
        """Emit some output of running code, as `Emitter.console` does."""
        self._append(ConsoleMessage, value, stream=stream)

    def end_message(self) -> None:
        """End the lane's message: what is emitted next begins another one."""
        part, self._part = self._part, None
        if part is not None:
            part.end()

    def tool_call(self, name: str, arguments: Mapping[str, Any] | str, **options: Any) -> OutputRequest:
        """Emit a tool call, as `Emitter.tool_call` does."""
        self.end_message()
        output = self._emitter.tool_call(name, arguments, lane=self.name, **options)
        self._newest = output.call
        return output

    def tool_output(self, output: object, *, call_id: str | None = None, name: str | None = None) -> None:
        """Emit the output of a tool; without `call_id` it is the lane's newest call's."""
        self.end_message()
        if call_id is None and isinstance(self._newest, ToolCallMessage):
            call_id = self._newest.call_id
        self._emitter.tool_output(output, call_id=call_id, name=name, lane=self.name)

    def confirm(self, subject: Message | None = None, **options: Any) -> ApprovalRequest:
        """Ask whether something may run, as `Emitter.confirm` does: the lane's newest code or tool call."""
        self.end_message()
        return self._emitter.confirm(subject or self._newest, **options)

    def _append(self, kind: type[Message], value: str, *, stream: str | None = None, **header: Any) -> None:
        if value == "":
            return
        key = (kind, *header.values())
        if self._part is None or not self._part.open or key != self._key:
            self.end_message()
            self._part, self._key = self._emitter.begin_part(kind, self.name, **header), key
            if kind is CodeMessage:
                self._newest = self._part.message
        self._part.write(value, stream=stream)

    def __repr__(self) -> str:
        return f"<Lane {self.name!r}>"
