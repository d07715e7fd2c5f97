"""Gemini's chunks, each a GenerateContentResponse of its own: `generateContent` is a stream of one.

Terminal rule: the source's end after a finishReason of each candidate that was seen, after a prompt that was blocked, or an
error. The end is the source's, because chunks may follow the one with the finishReason. A source that ends without any of
these was cut off.

A run's `finish_reason` is that of the lowest candidate, as Gemini names it; of a blocked prompt the blockReason, with its
explanation as a refusal. `wire` says which of them make the run incomplete, and which failed. `Run.metadata` has what the
chunks and the lowest candidate state beside the content (`groundingMetadata`, `safetyRatings`, `promptFeedback` …), that of
the other candidates under `choices`, and `finish_reasons` if there are several. Token counts are cumulative, and the last
one of each kind counts. An answer with another id after a complete one is in a step of its own: Google's client calls functions
itself if it is allowed to, and yields all answers as one stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ... import messages as m
from ...events import Event, MessageDone, Run, RunCreated, RunDone, RunStep, RunStepDone
from .. import base
from ..dates import time_of
from ..message_ids import MessageIds
from ..output import Output
from ..values import WireObject, as_index, as_list, as_object, as_text, is_object, text_or_none, without
from .candidate import Candidate
from .shape import chunk_in, recognises
from .wire import SEARCHES, STATUS_OF_FINISH_REASON, TRANSIENT_ERRORS, error_of, updated, usage_of

__all__ = ["Decoder"]

# Keys of a chunk that are not metadata of the run. The last ones are those that Google's client adds.
_CHUNK_KEYS = frozenset(
    (
        *("candidates", "usageMetadata", "modelVersion", "responseId", "createTime", "error"),
        *("sdkHttpResponse", "automaticFunctionCallingHistory", "parsed"),
    )
)
_READ = ("candidates", "usageMetadata", "promptFeedback")  # a chunk without any of them is a raw event


class Decoder(base.Decoder):
    """A stream of Gemini's, or one answer that is not streamed."""

    name = "gemini"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    transient_errors = TRANSIENT_ERRORS
    searches = SEARCHES

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._output = Output("GenerateContentResponse")
        self._ids = MessageIds(self.new_id)
        self._candidates: dict[int, Candidate] = {}
        self._answer_id: str | None = None
        self._usage: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}
        self._block_reason: str | None = None
        self._has_begun = self._has_ended = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item has candidates, what became of the prompt, or token counts under Gemini's name."""
        return recognises(item)

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one chunk, then its warnings."""
        self._output.begin(item)
        chunk = chunk_in(item)
        error = chunk.get("error")
        if self._has_ended or not (error or any(chunk.get(key) is not None for key in _READ)):
            self._output.emit_raw("GenerateContentResponse")
            return self._output.take(self.index)
        if not error or "candidates" in chunk:
            self._read(chunk)
        if error:
            self._end(error_of(error))
        return self._output.take(self.index)

    def finish(self) -> Iterable[Event]:
        """Return the end of the run if the answer is complete, else the end of its messages as incomplete."""
        if self.complete and not self._has_ended:
            self._end(None)
        elif not self._has_ended:
            for candidate in self._candidates.values():
                candidate.end("incomplete")
            if metadata := self._run_metadata():
                self._output.emit(RunCreated(Run(metadata=metadata)))  # the engine adds it to the run that has begun
        return self._output.take(self.index)

    def forget(self) -> None:
        """Drop the candidates, because nothing more comes."""
        self._candidates = {}

    # -- a chunk

    def _read(self, chunk: WireObject) -> None:
        self._begin(chunk)
        if changed := updated(self._metadata, without(chunk, _CHUNK_KEYS)):
            self._output.hold(None, changed)
        candidates = chunk.get("candidates")
        if candidates is not None and not isinstance(candidates, (list, tuple)):
            self._output.warn("bad-candidates", "its `candidates` is not a list; it was skipped")
        for position, wire in enumerate(as_list(candidates)):
            if is_object(wire):
                self._candidate(position, wire).feed(wire)
            else:
                self._output.warn("bad-candidate", "one of its candidates is not an object; it was skipped")
        self._read_feedback(as_object(chunk.get("promptFeedback")))
        usage = chunk.get("usageMetadata")
        if usage is not None and not is_object(usage):
            self._output.warn("bad-usage", "its `usageMetadata` is not an object; it was skipped")
        elif updated(self._usage, as_object(usage)):
            self._output.emit(usage_of(self._usage))
        self.complete = self._block_reason is not None or (
            bool(self._candidates) and all(candidate.finish_reason for candidate in self._candidates.values())
        )

    def _begin(self, chunk: WireObject) -> None:
        """Begin the run, or another answer in it."""
        id = text_or_none(chunk.get("responseId"))
        goes_on = any(candidate.finish_reason == "CONTINUATION" for candidate in self._candidates.values())
        if self._has_begun and (goes_on or not (self.complete and id and id != self._answer_id)):
            return
        if self._has_begun:
            for candidate in self._candidates.values():
                candidate.end("completed")
            self._output.emit(RunStepDone(RunStep(status="completed")))
            self._candidates, self._usage, self._metadata, self._block_reason = {}, {}, {}, None
        self._has_begun, self._answer_id = True, id
        model, created_at = text_or_none(chunk.get("modelVersion")), time_of(chunk.get("createTime"))
        self._output.emit(RunCreated(Run(id=id or "", model=model, created_at=created_at)))

    def _candidate(self, position: int, wire: WireObject) -> Candidate:
        """Return the candidate of this index. Without one, its position in the chunk counts."""
        index = as_index(wire.get("index"), self._output.warn)
        index = position if index is None else index
        if index not in self._candidates:
            self._candidates[index] = Candidate(index, self._answer_id, self._ids, self._output)
        return self._candidates[index]

    def _read_feedback(self, feedback: WireObject) -> None:
        """A prompt that was blocked has a reason, and perhaps an explanation."""
        reason = feedback.get("blockReason")
        if not reason or self._block_reason is not None:
            return
        self._block_reason = str(reason)
        if text := as_text(feedback.get("blockReasonMessage")):
            id = self._ids.unused(f"{self._answer_id}.refusal" if self._answer_id else "")
            refusal = m.RefusalMessage(id, content=text, group=self._answer_id, metadata={"gemini": dict(feedback)})
            self._output.emit(MessageDone(refusal))

    # -- the run

    def _run_metadata(self) -> dict[str, Any]:
        metadata, choices = {**self._metadata}, sorted(self._candidates)
        for number, index in enumerate(choices):
            candidate = self._candidates[index]
            if number == 0:
                metadata |= candidate.metadata
            elif candidate.metadata:
                metadata.setdefault("choices", {})[str(index)] = {**candidate.metadata}
        if len(choices) > 1:
            metadata["finish_reasons"] = {str(index): self._candidates[index].finish_reason for index in choices}
        return metadata

    def _end(self, error: WireObject | None) -> None:
        """End the run: with an error, or as the finishReason of its lowest candidate means."""
        self._has_ended = self.complete = True
        first = self._candidates[min(self._candidates)] if self._candidates else None
        reason = self._block_reason if first is None else first.finish_reason
        error = error or (first.failure if first is not None else None)
        for candidate in self._candidates.values():
            candidate.end(
                "failed" if error else STATUS_OF_FINISH_REASON.get(candidate.finish_reason or "", "completed")
            )
        status: m.Status = STATUS_OF_FINISH_REASON.get(reason or "", "completed")
        status = "failed" if error else "incomplete" if self._block_reason else status
        self._output.emit(RunDone(Run(status=status, error=error, finish_reason=reason, metadata=self._run_metadata())))
