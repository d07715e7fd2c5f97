"""A stream's events as chunks of a protocol: what `manager.chunks(…)` returns, and another stream may read.

Chunks have no place for an answer, and not all protocols have one for the outcome. So a confirmation that is decoded from
a chunk is linked to the upstream one: the upstream stream takes the answer, waits for it, and decides. Its decision is
emitted here before the events that follow from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from ..answers import Confirmation
from ..core.engine import Engine
from ..events import ConfirmationCreated, ConfirmationDone, Event, Run, RunDone
from ..protocols import Encoder

__all__ = ["AsyncChunks", "Chunks", "SyncChunks", "UpstreamConfirmations"]


class Chunks:
    """A stream's events as the chunks of a protocol, one at a time. Closing them closes the stream.

    Another stream may read them as its source. It then passes its answers on to the stream that they come from.

    Args:
        manager: the stream.
        encoder: encodes the protocol. Its name is the chunks' `protocol`.
    """

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        self.manager = manager
        self.protocol = encoder.name
        self._encode = encoder.items
        self._ready: deque[dict[str, Any]] = deque()

    @property
    def question(self) -> Confirmation | None:
        """The confirmation that the newest chunk asks for, None if it asks for none."""
        event = self.manager.current_event
        return event.confirmation if type(event) is ConfirmationCreated else None


class SyncChunks(Chunks, Iterator[dict[str, Any]]):
    """The chunks of a sync stream, as an iterator."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = iter(manager)

    def __next__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._encode(next(self._events)))
        return self._ready.popleft()

    def close(self) -> None:
        """Close the stream."""
        self.manager.close()


class AsyncChunks(Chunks, AsyncIterator[dict[str, Any]]):
    """The chunks of an async stream, as an async iterator."""

    def __init__(self, manager: Any, encoder: Encoder) -> None:
        super().__init__(manager, encoder)
        self._events = aiter(manager)

    async def __anext__(self) -> dict[str, Any]:
        while not self._ready:
            self._ready.extend(self._encode(await anext(self._events)))
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Close the stream."""
        await self.manager.close()


class UpstreamConfirmations:
    """Links the confirmations that are decoded from chunks to those of the stream that the chunks come from."""

    def __init__(self, chunks: Chunks, engine: Engine) -> None:
        self._chunks = chunks
        self._engine = engine
        self._undecided: list[tuple[Confirmation, Confirmation]] = []  # the upstream one, and this stream's

    def link(self, events: Sequence[Event]) -> list[Event]:
        """Return the events of one chunk, with their confirmations linked; before them the upstream stream's
        decisions."""
        linked = [*self._decided(), *events]
        question = self._chunks.question
        for event in events if question is not None else ():
            if type(event) is ConfirmationCreated and question is not None:
                event.confirmation.answer_slot = question.answer_slot
                event.confirmation.editable = question.editable
                self._undecided.append((question, event.confirmation))
        return linked

    def finish(self) -> list[Event]:
        """Return the events that the upstream stream's end adds."""
        events: list[Event] = [*self._decided()]
        run = self._chunks.manager.current_run
        if run is not None and run.finish_reason == "declined":
            self._engine.pending.end_declined()
        if self.cancelled:
            events.append(RunDone(Run(status="cancelled")))
        return events

    @property
    def cancelled(self) -> bool:
        """Whether the upstream stream was cancelled: then its chunks do not contain an end."""
        return bool(self._chunks.manager.status == "cancelled")

    def _decided(self) -> Iterator[Event]:
        """Yield the decisions that the upstream stream made since the last time."""
        for pair in [*self._undecided]:
            upstream, own = pair
            if upstream.status != "pending":
                self._undecided.remove(pair)
                outcome = Confirmation(
                    own.id, own.subject, status=upstream.status, edited=upstream.edited, reason=upstream.reason
                )
                yield ConfirmationDone(outcome)
