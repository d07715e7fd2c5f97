"""Streams of the UI protocols that begin in the middle of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..answers import Confirmation
from ..events import Event, RunCreated, RunStepCreated, RunStepDone
from ..messages import Message
from ..protocols import ag_ui, vercel_ui
from ..protocols.event_stream import EventStreamWriter
from ..relay import Entry, RunRecord
from ..relay.replay import Replay
from ..relay.run_record import position_of
from ..streams.error_mask import ErrorMask
from .core import Server
from .event_stream import Encoded, RunEventStream, ends_as_waiting, number_of, open_questions, open_reading
from .run_routes import is_no_input

__all__ = ["AgUiStream", "chat_continued", "frame_of", "so_far"]


class SoFar(NamedTuple):
    """The part of a run that is in its log already.

    Attributes:
        replay: has its state.
        shown: its events, but for the run's end.
        cursor: of the newest of them; None if there are none.
    """

    replay: Replay
    shown: list[Event]
    cursor: str | None


async def so_far(server: Server, record: RunRecord) -> SoFar:
    """Read a run up to its newest event, or up to the run's end."""
    replay, shown, newest = Replay(), list[Event](), None
    if record.cursor is not None:
        async with aclosing(_entries_so_far(server, record, record.cursor)) as entries:
            async for entry in entries:
                shown += replay.read(entry)
                newest = entry.cursor
    return SoFar(replay, shown, newest)


async def _entries_so_far(server: Server, record: RunRecord, newest: str) -> AsyncGenerator[Entry]:
    async with aclosing(await open_reading(server, record, None)) as reading:
        async for entries in reading:
            for entry in entries:
                if b'"run_done"' in entry.data[:30] or b'"stream_e' in entry.data[:30]:
                    return
                yield entry
                if position_of(entry.cursor, record.id) >= position_of(
                    newest, record.id
                ):  # a snapshot may stand for more
                    return


def frame_of(item: Any) -> bytes:
    """Return the frame of one item of a protocol."""
    return b"data: " + msgspec.json.encode(item) + b"\n\n"


def _writer(server: Server, encoder: Any) -> EventStreamWriter:
    return EventStreamWriter(encoder, mask=ErrorMask(expose=server.expose_errors))


async def chat_continued(server: Server, record: RunRecord, version: Any, found: SoFar) -> RunEventStream:
    """Go on with the UI message after a question: `start` with the same id, then what comes after it.

    Args:
        record: of the moment before the question was answered.
        found: the events that the run had written then.
    """
    # Fields of a call's arguments are not sent: the client has the call.
    engine = found.replay.engine
    messages = [one for one in engine.messages.all if one.role != "user" and "field" not in one.metadata]
    after: list[Message | Confirmation] = [*messages, *engine.pending.confirmations]
    encoder = vercel_ui.Encoder(version, message_id=record.id, after=after, expose_errors=True)
    writer = _writer(server, encoder)
    beginning = b"".join(writer.event(event) for event in found.shown if isinstance(event, RunCreated))
    return await _response(server, record, found, writer, beginning, ends_as_waiting)


class AgUiStream:
    """The streams of one AG-UI request.

    Args:
        server: the server.
        request: the `RunAgentInput`.
    """

    def __init__(self, server: Server, request: ag_ui.AgentRequest) -> None:
        self._server = server
        self._request = request

    def _encoder(self) -> ag_ui.Encoder:
        request = self._request
        ids = {"thread_id": request.thread_id, "run_id": request.run_id}
        return ag_ui.Encoder(request.version, **ids, messages=request.messages, expose_errors=True)

    async def beginning(self, record: RunRecord, past: list[Message]) -> RunEventStream:
        """Return a run from its beginning."""
        reading = await open_reading(self._server, record, None)
        frames = Encoded(
            _writer(self._server, self._encoder()),
            record.id,
            wants=is_no_input,
            at_question=self._at_question(past),
            questions_from=number_of(record.cursor, record.id),
        )
        return RunEventStream(self._server, record, reading, frames)

    async def attached(
        self, record: RunRecord, past: list[Message], found: SoFar, *, shows_messages: bool
    ) -> RunEventStream:
        """Return a run from here on: RUN_STARTED, the messages that have ended if they are to be shown, what is open,
        what is new."""
        engine = found.replay.engine
        writer, opener = _writer(self._server, self._encoder()), _writer(self._server, self._encoder())
        for event in filter(is_no_input, found.shown):
            writer.event(event)
        run = engine.runs.run
        parts = [] if run is None else [opener.event(RunCreated(replace(run)))]
        if shows_messages:
            ended = [message for message in engine.messages.all if message.status != "in_progress"]
            parts.append(_snapshot([*past, *ended, *engine.pending.confirmations]))
        if (step := engine.runs.step) is not None:
            writer.event(RunStepDone(step))  # with what the client has: the results of calls that have ended
            writer.event(RunStepCreated(step))
            parts.append(opener.event(RunStepCreated(step)))
        for message in engine.messages.all:
            if message.status == "in_progress":
                parts.append(opener.event(message.created_event(message.header())))
                if message.content:
                    delta = message.delta_event(message.id, message.content, snapshot=message)
                    parts.append(opener.event(delta))
        at_question = self._at_question(past)
        return await _response(self._server, record, found, writer, b"".join(parts), at_question, shows_messages)

    def _at_question(self, past: list[Message]) -> Any:
        def ends(events: Replay, writer: EventStreamWriter) -> list[bytes]:
            engine = events.engine
            shown: list[Message | Confirmation] = [*past, *engine.messages.all, *engine.pending.confirmations]
            return ends_as_waiting(events, writer, _snapshot(shown))

        return ends

    def mismatch(self) -> bytes:
        """Return the body of a request whose `resume` does not fit what is open."""
        request = self._request
        version = {"protocolVersion": "1.0"} if request.version == "1.0" else {}
        started = {"type": "RUN_STARTED", "threadId": request.thread_id, "runId": request.run_id, **version}
        message = "The answers do not fit the questions that are open."
        return frame_of(started) + frame_of({"type": "RUN_ERROR", "message": message, "code": "interrupt-mismatch"})


def _snapshot(messages: list[Message | Confirmation]) -> bytes:
    return frame_of({"type": "MESSAGES_SNAPSHOT", "messages": ag_ui.to_input(messages)})


async def _response(
    server: Server,
    record: RunRecord,
    found: SoFar,
    writer: EventStreamWriter,
    beginning: bytes,
    at_question: Any,
    waits_still: bool = False,
) -> RunEventStream:
    """Return the response with the events that follow the part that was read."""
    number = number_of(found.cursor, record.id)
    has_question = waits_still and found.shown and found.shown[-1].type == "run_requires_action"
    questions = await open_questions(server, record.id) if has_question else ()
    reading = await open_reading(server, record, found.cursor)
    frames = Encoded(
        writer,
        record.id,
        after=number,
        wants=is_no_input,
        at_question=at_question,
        questions_from=number,
        events=found.replay,
        beginning=beginning,
    )
    frames.questions = questions
    if frames.is_waiting():
        frames.beginning += b"".join(at_question(found.replay, writer))
        frames.has_ended = True
    return RunEventStream(server, record, reading, frames)
