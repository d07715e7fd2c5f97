"""What a log tells in place of the events that it has dropped: the run, its step, and what was open then.

A message that was open is told as created plus one delta of all so far. Messages that had ended are gone.
"""

# pyright: reportPrivateUsage=false
# Messages are grown here as the engine grows them; their underscores keep users from writing.

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from ..events import (
    ActiveLine,
    AnnotationAdded,
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Delta,
    Done,
    Event,
    Run,
    RunCreated,
    RunStep,
    RunStepCreated,
    RunStepDone,
    StreamWarning,
    ToolCallDone,
    ToolOutputCreated,
    Usage,
)
from ..messages import ConsoleMessage, Message, TextMessage, ToolCallMessage
from .stored import asks

__all__ = ["Beginning"]


class Beginning:
    """The state that the dropped events lead to.

    Attributes:
        dropped: how many events are gone.
        ended: how many messages are gone, because they had ended.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.ended = 0
        self._run: Run | None = None
        self._step: RunStep | None = None
        self._usage: Usage | None = None
        self._open: dict[str, Message] = {}
        self._asked: dict[str, ConfirmationCreated] = {}
        self._calls: dict[str, ToolCallDone] = {}

    def take(self, event: Event, count: int) -> None:
        """Take in an event that is dropped; `count` is how many were joined to it."""
        self.dropped += count
        match event:
            case Delta():
                self._grow(event)
            case Created(message=message):
                self._open[message.id] = message.header()
                if isinstance(event, ToolOutputCreated) and message.call_id is not None:
                    self._calls.pop(message.call_id, None)
            case Done(message=message):
                self._open.pop(message.id, None)
                self.ended += 1
                if isinstance(event, ToolCallDone) and isinstance(message, ToolCallMessage) and asks(event):
                    self._calls[message.call_id or message.id] = event
            case AnnotationAdded() | ActiveLine():
                self._about(event)
            case RunCreated(run=run):
                self._run = run
            case RunStepCreated(run_step=step):
                self._step = step
            case RunStepDone():
                self._step = None
            case Usage():
                self._usage = event
            case ConfirmationCreated(confirmation=asked):
                self._asked[asked.id] = event
            case ConfirmationDone(confirmation=asked):
                self._asked.pop(asked.id, None)
            case _:
                pass

    def _grow(self, event: Delta) -> None:
        message = self._open.get(event.message_id)
        if message is None:
            return
        if event.replace:
            message.replace_content(event.value)
            return
        message.pieces.append(event.value)
        message.compact()

    def _about(self, event: AnnotationAdded | ActiveLine) -> None:
        message = self._open.get(event.message_id)
        if isinstance(event, AnnotationAdded) and isinstance(message, TextMessage):
            message.annotations.append(event.annotation)
        elif isinstance(event, ActiveLine) and isinstance(message, ConsoleMessage):
            message.active_line = event.line

    def events(self, position: str) -> list[Event]:
        """What is told in place of what is gone; all of it has the cursor of the last event that is."""
        return list(self._events(position))

    def _events(self, position: str) -> Iterator[Event]:
        if self._run is not None:
            yield RunCreated(self._run, position=position)
        if self._step is not None:
            yield RunStepCreated(self._step, position=position)
        for call in self._calls.values():
            yield replace(call, position=position)  # with its answer: who comes late may give it
        for message in self._open.values():
            yield from _so_far(message, position)
        for asked in self._asked.values():
            yield replace(asked, position=position)
        if self._usage is not None:
            yield replace(self._usage, position=position)

    def warning(self, run_id: str) -> StreamWarning:
        """That something is gone; a strict stream raises it."""
        fault = (
            f"the log of run {run_id!r} has dropped its first {self.dropped} events; {self.ended} messages that ended "
            "in them are missing"
        )
        return StreamWarning("dropped", fault)


def _so_far(message: Message, position: str) -> Iterator[Event]:
    yield message.created_event(message.header(), position=position)
    if message.content:
        yield message.delta_event(message.id, message.content, position=position)
    if isinstance(message, TextMessage):
        for annotation in message.annotations:
            yield AnnotationAdded(message.id, annotation, position=position)
    if isinstance(message, ConsoleMessage) and message.active_line is not None:
        yield ActiveLine(message.id, message.active_line, position=position)
