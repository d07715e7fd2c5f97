"""What another stream asks, whose chunks are a stream's source.

Chunks have no place for an answer, and not all protocols have one for the outcome. So the question that is decoded
from a chunk is the other stream's own: that stream takes the answer, waits for it, and decides; what it decided is
told here before what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..answers import Confirmation
from ..core.engine import Engine
from ..events import ConfirmationCreated, ConfirmationDone, Event, Run, RunDone
from .source import Chunks

__all__ = ["UpstreamConfirmations"]


class UpstreamConfirmations:
    """The questions of the stream whose chunks are read."""

    def __init__(self, chunks: Chunks, engine: Engine) -> None:
        self._chunks = chunks
        self._engine = engine
        self._asked: list[tuple[Confirmation, Confirmation]] = []  # there, and here

    def link(self, events: Sequence[Event]) -> list[Event]:
        """The events of one chunk, whose questions are the other stream's; before them what it decided."""
        told = [*self._decided(), *events]
        question = self._chunks.question
        for event in events if question is not None else ():
            if type(event) is ConfirmationCreated and question is not None:
                event.confirmation.answer_slot = question.answer_slot
                event.confirmation.editable = question.editable
                self._asked.append((question, event.confirmation))
        return told

    def finish(self) -> list[Event]:
        """What the other stream's end tells."""
        told = [*self._decided()]
        run = self._chunks.manager.current_run
        if run is not None and run.finish_reason == "declined":
            self._engine.end_declined()
        if self.cancelled:
            told.append(RunDone(Run(status="cancelled")))
        return told

    @property
    def cancelled(self) -> bool:
        """Whether the other stream was cancelled: then its chunks have no end of their own."""
        return bool(self._chunks.manager.status == "cancelled")

    def _decided(self) -> Iterator[Event]:
        for pair in [*self._asked]:
            there, here = pair
            if there.status != "pending":
                self._asked.remove(pair)
                outcome = Confirmation(
                    here.id, here.subject, status=there.status, edited=there.edited, reason=there.reason
                )
                yield ConfirmationDone(outcome)
