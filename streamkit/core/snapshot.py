"""Snapshots: the events that re-create what a stream has received so far, in place of all events up to a cursor.

A log that drops its oldest events has one for later readers, and a stream that missed some catches up with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..answers import Confirmation
from ..events import (
    ActiveLine,
    AnnotationAdded,
    ConfirmationCreated,
    ConfirmationDone,
    Event,
    RunCreated,
    RunRequiresAction,
    RunStep,
    RunStepCreated,
    RunStepDone,
)
from ..messages import Annotation, ConsoleMessage, Message, TextMessage
from .engine import Engine

__all__ = ["Snapshot", "SnapshotMaker", "events_so_far"]


class Snapshot(Event):
    """Brings a stream to the state that all events up to its cursor led to. It is not an event of streams.

    Attributes:
        events: the events that re-create the state: an open message as created plus one delta, one that has ended as done alone.
        dropped: how many messages and other events are missing in them.
        is_gap: whether a stream that resumes after a cursor has missed events that it stands for.
    """

    events: list[Event] = []
    dropped: int = 0
    is_gap: bool = False


class SnapshotMaker:
    """Makes snapshots of one engine's state. What does not change any more is encoded once.

    Args:
        engine: the one that completes the events of a run.
        encode: encodes an event.
        limit: the greatest number of messages that have ended in a snapshot, the newest ones.
        size: their bytes, beyond which older ones are left out.
    """

    def __init__(self, engine: Engine, encode: Callable[[Event], bytes], limit: int, size: int) -> None:
        self._engine = engine
        self._encode = encode
        self._limit = limit
        self._size = size
        self._lines: dict[object, list[bytes]] = {}  # of what has ended
        self._used: dict[object, list[bytes]] = {}

    def lines(self) -> tuple[list[bytes], int]:
        """Return the encoded events that re-create the state, and the number of messages in them."""
        messages, waiting = [*self._engine.messages.all], {id(call) for call in self._engine.pending.unanswered}
        included: list[tuple[Message, list[bytes]]] = []
        size = self._size
        for count, message in enumerate(reversed(messages)):
            is_over = message.status != "in_progress"
            if is_over and id(message) not in waiting and (count >= self._limit or size <= 0):
                continue
            lines = self._lines_of(message, is_over, _state_of(message))
            included.append((message, lines))
            size -= sum(map(len, lines))
        included.reverse()
        out = [line for lines in self._in_steps(included) for line in lines]
        self._lines, self._used = self._used, {}
        return out, len(included)

    def _lines_of(self, thing: Message | RunStep | Confirmation, is_over: bool, events: Iterable[Event]) -> list[bytes]:
        key = type(thing), thing.id, is_over
        lines = self._lines.get(key) if is_over else None
        if lines is None:
            lines = [self._encode(event) for event in events]
        if is_over:
            self._used[key] = lines
        return lines

    def _in_steps(self, messages: list[tuple[Message, list[bytes]]]) -> Iterator[list[bytes]]:
        """Yield the lines of the run with its steps, in each its messages, and then of what is not a part of a
        message."""
        runs = self._engine.runs
        if runs.run is None:
            return
        yield [self._encode(RunCreated(runs.run))]
        yield [self._encode(retry) for retry in [*self._engine.messages.retries.values()][-self._limit :]]
        steps = _steps_of(messages, runs.steps)
        numbers = {step.id: number for number, step in enumerate(steps)}
        newest = -1
        for message, lines in messages:
            wanted = numbers.get(message.step_id or "", -1)
            yield from self._steps(steps, newest, wanted)
            newest = max(newest, wanted)
            yield lines
        yield from self._steps(steps, newest, len(steps) - 1)
        for one in self._engine.pending.confirmations[-self._limit :]:
            yield self._lines_of(one, one.status != "pending", _confirmation_events(one))
        yield [self._encode(warning) for warning in self._engine.warnings]
        if steps:
            yield [self._encode(event) for event in _end_of(steps[-1], is_over=runs.step is None)]
        if runs.requires_action:
            yield [self._encode(RunRequiresAction(runs.run))]

    def _steps(self, steps: list[RunStep], newest: int, wanted: int) -> Iterator[list[bytes]]:
        """End the newest step, and begin those up to the wanted one."""
        for number in range(newest + 1, wanted + 1):
            if number:
                yield self._lines_of(steps[number - 1], True, _end_of(steps[number - 1]))
            yield [self._encode(RunStepCreated(steps[number]))]


def _state_of(message: Message) -> Iterator[Event]:
    if message.status == "in_progress":
        yield from events_so_far(message.copy(), None)
    else:
        yield message.done_event(message)


def _steps_of(messages: list[tuple[Message, list[bytes]]], steps: list[RunStep]) -> list[RunStep]:
    """Return the steps of these messages, forgotten ones too, and those after them."""
    there = {step.id: number for number, step in enumerate(steps)}
    ids = dict.fromkeys(message.step_id for message, _ in messages if message.step_id)
    first = min((there[id] for id in ids if id in there), default=max(0, len(steps) - 1))
    return [*(RunStep(id=id, status="completed") for id in ids if id not in there), *steps[first:]]


def _confirmation_events(confirmation: Confirmation) -> Iterator[Event]:
    yield ConfirmationCreated(confirmation)
    if confirmation.status != "pending":
        yield ConfirmationDone(confirmation)


def _end_of(step: RunStep, *, is_over: bool = True) -> Iterator[Event]:
    if step.usage is not None:
        yield step.usage
    if is_over:
        yield RunStepDone(step)


def events_so_far(message: Message, position: int | str | None) -> Iterator[Event]:
    """Yield the events that re-create an open message. It is emptied first, and has its content again after the last
    one."""
    content = message.content
    message.replace_content("")
    annotations: list[Annotation] = []
    line = message.active_line if isinstance(message, ConsoleMessage) else None
    if isinstance(message, TextMessage):
        annotations, message.annotations = [*message.annotations], []
    if isinstance(message, ConsoleMessage):
        message.active_line = None
    yield message.created_event(message, position=position)
    if content:
        message.pieces.append(content)
        yield message.delta_event(message.id, content, snapshot=message, position=position)
    if isinstance(message, TextMessage):
        for annotation in annotations:
            message.annotations.append(annotation)
            yield AnnotationAdded(message.id, annotation, message, position=position)
    if isinstance(message, ConsoleMessage) and line is not None:
        message.active_line = line
        yield ActiveLine(message.id, line, message, position=position)
