"""The events of a run as Server-Sent Events.

The native protocol passes the relay's lines on as they are. Another protocol's encoder needs the events from the run's
beginning: those before the client's cursor are encoded, too, and not sent. Readers of one run share what they can: frames here, and
encoders in `shared_encoding.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from msgspec.structs import replace
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ..errors import SourceError, UsageError
from ..events import Event, RunDone, RunRequiresAction, RunStepDone, StreamException
from ..protocols.event_stream import EventStreamWriter
from ..relay import Entry, Reading, RunRecord
from ..relay.replay import Replay
from ..relay.run_record import position_of
from ..streams.failures import details_of
from .core import Server
from .problem import Problem

__all__ = [
    "AtQuestion",
    "Encoded",
    "Native",
    "RunEventStream",
    "RunFrames",
    "SharedFrames",
    "at_question_of",
    "ends_as_waiting",
    "is_within",
    "number_of",
    "open_questions",
    "open_reading",
]

SILENCE = 15.0  # seconds without a frame until a keepalive comment
_MOST = 256  # entries in one write
_WAITS = b'"run_requires_action"'


class RunFrames:
    """Turns the entries of a log into frames of one protocol. It does no input or output.

    Attributes:
        has_ended: whether nothing follows in this response.
        beginning: frames that come before those of the log.
        ends_at_questions: whether the response ends where the run waits for answers.
        questions: the ids of the run's questions that nobody has answered, when the entries to encode were there already.
    """

    has_ended = False
    ends_at_questions = False
    questions: Collection[str] = ()

    def __init__(self, writer: EventStreamWriter, beginning: bytes = b"") -> None:
        self.writer = writer
        self.beginning = beginning

    def of(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Return the frames of each entry."""
        raise NotImplementedError

    def body(self, entries: Sequence[Entry]) -> bytes:
        """Return the frames of all entries."""
        return b"".join(self.of(entries))

    def needs_questions(self, entries: Sequence[Entry]) -> bool:
        """Whether `questions` has to be up to date before these entries are encoded."""
        return self.ends_at_questions and any(_WAITS in entry.data for entry in entries)

    def failure(self, event: Event) -> bytes:
        """Return the frames of an event that says that the log cannot be read."""
        return self.writer.event(event)


class SharedFrames:
    """The newest frames of one run. Who reads at the same position has the same entries, which are made into frames once."""

    def __init__(self) -> None:
        self._newest: tuple[Sequence[Entry], bytes] = ((), b"")

    def of(self, entries: Sequence[Entry], make: Callable[[Sequence[Entry]], bytes]) -> bytes:
        """Return the frames of these entries, which `make` makes unless they are the newest ones."""
        newest, frames = self._newest
        if entries != newest:  # almost always the same objects, so that no bytes are compared
            frames = make(entries)
            self._newest = entries, frames
        return frames


class Native(RunFrames):
    """Sends the lines of the log as they are: streamkit's own protocol.

    Args:
        shared: the frames that all readers of the run share.
    """

    def __init__(self, writer: EventStreamWriter, shared: SharedFrames) -> None:
        super().__init__(writer)
        self._shared = shared

    def body(self, entries: Sequence[Entry]) -> bytes:
        """Return the frames of all entries."""
        return self._shared.of(entries, super().body)

    def of(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Yield one frame of each entry."""
        for entry in entries:
            yield self.writer.line(entry.data, entry.cursor)


_ID_LINE = re.compile(rb"^id: [^\n]*\n", re.MULTILINE)


class Encoded(RunFrames):
    """Encodes events.

    Args:
        writer: of the protocol.
        after: the number of the last event that the client has, 0 if it has none.
        wants: whether the client is to have an event.
        at_question: gives what is sent where the run waits for answers, which ends the response; None where it goes on.
        questions_from: the number of the first event at which the run may be waiting still.
        events: what was read of the log before.
        beginning: frames that come before those of the log.
    """

    def __init__(
        self,
        writer: EventStreamWriter,
        run_id: str,
        *,
        after: int = 0,
        wants: Callable[[Event], bool] | None = None,
        at_question: Callable[[Replay, EventStreamWriter], list[bytes]] | None = None,
        questions_from: int = 0,
        events: Replay | None = None,
        beginning: bytes = b"",
    ) -> None:
        super().__init__(writer, beginning)
        self.events = Replay() if events is None else events
        self._run_id = run_id
        self._after = after
        self._wants = wants
        self._at_question = at_question
        self.ends_at_questions = at_question is not None
        self._questions_from = questions_from

    def of(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Yield the frames of each entry; the last of an entry has its cursor."""
        for entry in entries:
            if self.has_ended:
                return
            number = position_of(entry.cursor, self._run_id).number
            is_new = number > self._after
            frames: list[bytes] = []
            for event in self.events.read(entry):
                if self._wants is None or self._wants(event):
                    frames.append(self.writer.event(event))
                is_current = is_new and number >= self._questions_from
                if is_current and isinstance(event, RunRequiresAction) and self._at_question and self.is_waiting():
                    frames += self._at_question(self.events, self.writer)
                    self.has_ended = True
            if is_new:
                frames = [frame for frame in frames if frame]
                yield b"".join([*(_ID_LINE.sub(b"", frame) for frame in frames[:-1]), *frames[-1:]])

    def is_waiting(self) -> bool:
        """Whether a question that the log shows as pending has no answer. The log alone does not say: the producer may have
        an answer yet to take, and calls that it runs itself are pending, too."""
        return not self.events.engine.pending.waiting.keys().isdisjoint(self.questions)


# -- where a run waits for answers
#
# Clients of the UI protocols send an answer only when their stream is over. The run waits, and the next response goes on with it.


def ends_as_waiting(events: Replay, writer: EventStreamWriter, before_end: bytes = b"") -> list[bytes]:
    """Return the frames of a run that requires action: the ends of its step and of itself, with other frames between
    them."""
    runs = events.engine.runs
    frames: list[bytes] = []
    if runs.step is not None:
        frames.append(writer.event(RunStepDone(replace(runs.step, status="completed"))))
    frames.append(before_end)
    if runs.run is not None:
        frames.append(writer.event(RunDone(replace(runs.run, status="requires_action"))))
    return frames


AtQuestion: TypeAlias = Callable[[Replay, EventStreamWriter], list[bytes]]
"""Gives the frames with which a response ends where the run waits for answers."""

_AT_QUESTION: dict[str, AtQuestion] = {
    "vercel_ui": ends_as_waiting,
    "ag_ui": ends_as_waiting,
}


def at_question_of(protocol: str) -> AtQuestion | None:
    """Returns the function that ends a stream of this protocol at a question; None if the stream goes on."""
    return _AT_QUESTION.get(protocol)


# -- the response


class RunEventStream(StreamingResponse):
    """A response with the events of a run.

    Args:
        server: what serves it.
        record: of the run.
        reading: its log.
        frames: make the body of it.
        headers: further ones of the response.
        on_disconnect: is called if the client leaves before the end.
    """

    def __init__(
        self,
        server: Server,
        record: RunRecord,
        reading: Reading,
        frames: RunFrames,
        headers: Mapping[str, str] | None = None,
        on_disconnect: Callable[[], Any] | None = None,
    ) -> None:
        own = {"X-Streamkit-Run": record.id}
        super().__init__(self._body(), headers={**frames.writer.headers, **own, **(headers or {})})
        self._server = server
        self._run_id = record.id
        self._reading = reading
        self._frames = frames
        self._on_disconnect = on_disconnect
        self._is_complete = False

    def frames(self) -> AsyncIterator[bytes]:
        """Return the body, for another response."""
        return self._body()

    def close(self) -> None:
        """Stop reading, where it is not sent."""
        self._reading.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._reading.close()
            if self._on_disconnect is not None and not self._is_complete:
                with anyio.CancelScope(shield=True):
                    await self._on_disconnect()

    async def _body(self) -> AsyncIterator[bytes]:
        frames, reading = self._frames, self._reading
        yield frames.writer.opening() + frames.beginning
        try:
            while not frames.has_ended:
                entries: list[Entry] | None = await reading.apull(SILENCE)
                if entries is None:
                    break
                if not entries:
                    yield frames.writer.keepalive
                for start in range(0, len(entries), _MOST):
                    part = entries[start : start + _MOST]
                    if frames.needs_questions(part):
                        frames.questions = await open_questions(self._server, self._run_id)
                    if body := frames.body(part):
                        yield body
        except SourceError as error:  # the run was deleted, or its next events were dropped and `gap` is `error`
            yield frames.failure(StreamException(type(error).__name__, str(error), details_of(error), error))
        if ending := frames.writer.ending():
            yield ending
        self._is_complete = True


async def open_reading(server: Server, record: RunRecord, after: str | None, gap: Any = "snapshot") -> Reading:
    """Return a reading of a run.

    Raises:
        Problem: the cursor is not one of this run; or the events after it are gone, and `gap` is `error`.
    """
    try:
        return await server.relay.aread(record.id, after, gap=gap, timeout=math.inf)
    except UsageError as error:
        raise Problem("bad-cursor", str(error)) from None
    except SourceError as error:
        if error.status_code == 410:
            raise Problem("cursor-trimmed", extra=await _snapshot_after(server, record.id, after)) from None
        raise


async def _snapshot_after(server: Server, run_id: str, after: str | None) -> dict[str, Any]:
    """Return the cursor of the snapshot that a reader receives in place of what is gone after this cursor."""
    reading = await server.relay.aread(run_id, after, timeout=math.inf)
    try:
        entries = await reading.apull(5.0)
    finally:
        reading.close()
    return {"snapshot_cursor": entries[0].cursor} if entries and entries[0].snapshot else {}


async def open_questions(server: Server, run_id: str) -> set[str]:
    """Return the ids of the questions of a run that nobody has answered."""
    record = await server.relay.aget(run_id)
    questions = {} if record is None else record.questions
    return {id for id, question in questions.items() if question["status"] == "pending"}


def is_within(cursor: str | None, record: RunRecord) -> bool:
    """Whether a run has come as far as a cursor of it. It has not, if its relay lost what was written last."""
    if cursor is None or record.cursor is None:
        return cursor is None
    position, newest = position_of(cursor, record.id), position_of(record.cursor, record.id)
    return position.epoch <= newest.epoch and position.number <= newest.number


def number_of(cursor: str | None, run_id: str) -> int:
    """Return the number of the event at a cursor; 0 without one.

    Raises:
        Problem: it is none of this run.
    """
    if cursor is None:
        return 0
    try:
        return position_of(cursor, run_id).number
    except UsageError as error:
        raise Problem("bad-cursor", str(error)) from None
