"""Chat Completions chunks, as OpenAI, Azure and every compatible server stream them.

Terminal rule: the answer is complete with `[DONE]`, with a finish_reason for every choice that was seen, or with an
error. A stream that ends without any of them was cut off.

A choice has one text, one refusal, its tool calls, its audio (the transcript of which is a text of its own), and a
reasoning message for each stretch of reasoning. They are open side by side until the choice's finish_reason; reasoning
ends where other content begins, and a call with all its arguments where another call begins. A completion that was not
streamed (`object: chat.completion`) is read as a stream of one item.

`RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage comes after the finish_reason.
`Run.metadata` has what the chunks state about the entire answer (`citations`, `service_tier` …), `finish_reasons` by
choice if there are several, and under `choices` what the chunks state about one choice alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from ...events import Event, RawEvent, Run, RunCreated, RunDone, StreamWarning
from ...shared_names import share_names
from ..values import (
    WireObject,
    as_index,
    as_seconds,
    as_text,
    error_item,
    is_list,
    is_object,
    text_or_none,
)
from .choice import Choice
from .run_metadata import run_metadata
from .shape import CHUNK_OBJECTS, recognises
from .typed_path import TypedPath
from .wire import (
    CHANGING_METADATA_KEYS,
    FINISH_REASON_STATUS,
    METADATA_KEYS,
    RAW_EVENT_KEYS,
    error_of,
    has_unread_keys,
    is_only_deltas,
    usage_in,
)

__all__ = ["Decoder"]


class Decoder(TypedPath):
    """Decodes Chat Completions chunks of any server.

    The run begins with the first chunk that has choices, or the id of an answer (Azure's first chunk has neither). It
    ends once. After its end, an error is a raw event, and content opens new messages.
    """

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
        return recognises(item)

    # -- the tolerant path

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame. The data of an SSE event named `error` need not be JSON."""
        if name != b"error":
            events = super().feed_frame(id, name, data)
            if self.exhausted:
                self._expects_plain, self._extended_batches = False, 0
            return events
        events = super().feed_frame(id, b"", error_item(data, lambda item: "choices" in item))
        for event in events:
            event.raw_item = data
        return events

    def feed(self, item: WireObject) -> Iterable[Event]:
        """The events of one chunk, then its warnings. A chunk without events but with unread values is a raw event."""
        events = [*self._read_chunk(item)]
        if not events and not any(isinstance(one, StreamWarning) for one in self._warnings) and has_unread_keys(item):
            name = as_text(item.get("type")) or as_text(item.get("object")) or "chat.completion.chunk"
            events.append(RawEvent(name, item))
        return events + self._take_warnings()

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """The end of the run: `[DONE]` completes an answer."""
        return self._end()

    def finish(self) -> Iterable[Event]:
        """The end of the run if the answer is complete, else the end of its messages as incomplete."""
        if self._has_ended:
            return ()
        if self.complete:
            return self._end()
        events = [event for choice in [*self._choices.values()] for event in choice.end("incomplete")]
        if metadata := run_metadata(self._metadata, self._choices.values()):
            events.append(RunCreated(Run(metadata=metadata)))  # the engine adds it to the run that has begun
        return events + self._take_warnings()

    def forget(self) -> None:
        """Drop the newest frames and the choices, because nothing more comes."""
        super().forget()
        self._choices.clear()

    # -- a chunk

    def _read_chunk(self, chunk: WireObject) -> Iterator[Event]:
        for key in RAW_EVENT_KEYS:
            if chunk.get(key):
                yield RawEvent(key, chunk)
        self._add_metadata(chunk, METADATA_KEYS)
        choices = self._choices_of(chunk)
        if not self._has_begun and (choices or (as_text(chunk.get("id")) and chunk.get("object") in CHUNK_OBJECTS)):
            yield self._begin(chunk)
        events = [event for place, wire in enumerate(choices) for event in self._read_choice(place, wire, chunk)]
        yield from events
        yield from self._read_usage(chunk, choices)
        if not is_only_deltas(events):
            self._add_metadata(chunk, CHANGING_METADATA_KEYS)
        error = error_of(chunk, choices)
        if error is not None and self._has_ended:
            yield RawEvent("error", chunk)
        elif error is not None:
            yield from self._end(error)
        self.complete = self._has_ended or self._all_choices_finished()

    def _choices_of(self, chunk: WireObject) -> list[Any]:
        choices = chunk.get("choices")
        if choices is None or is_list(choices):
            return choices or []
        self._warn("bad-choices", "its `choices` is not a list")
        return [choices]

    def _read_choice(self, place: int, wire: Any, chunk: WireObject) -> Iterator[Event]:
        """The events of one choice. Where servers give no index, its place in the chunk is its index."""
        if not is_object(wire):
            self._warn("bad-choice", "one of its choices is not an object; it was skipped")
            return
        index = as_index(wire.get("index"), self._warn)
        if index is None:
            index = place
        choice = self._choices.get(index)
        if choice is None:
            choice = Choice.begin(index, self._answer_id, self.new_id, self._warn, self._hold)
            self._choices[index] = choice
        yield from choice.feed(wire, chunk)

    def _read_usage(self, chunk: WireObject, choices: list[Any]) -> Sequence[Event]:
        usage = usage_in(chunk, choices)
        if usage is None or is_object(usage):
            return self._read_new_usage(usage and {**usage})  # a producer may change its own, and yield it again
        self._warn("bad-usage", "its `usage` is not an object; it was skipped")
        return ()

    # -- the run

    def _begin(self, chunk: WireObject) -> Event:
        self._has_begun = True
        self._answer_id = text_or_none(chunk.get("id"))
        self._add_metadata(chunk, CHANGING_METADATA_KEYS)
        run = Run(
            id=self._answer_id or "",
            model=text_or_none(chunk.get("model")),
            created_at=as_seconds(chunk.get("created")),
            metadata={**self._metadata},
        )
        return RunCreated(run)

    def _end(self, error: WireObject | None = None) -> list[Event]:
        """The end of the run: with an error, or as the finish_reason of its lowest choice means."""
        events: list[Event] = []
        if self._has_ended:
            return events
        self._has_ended = self.complete = True
        choices, metadata, reason = self._choices, self._metadata, None
        for choice in choices.values():
            events += choice.end("completed" if error is None else "failed")
        if choices:
            lowest = choices[min(choices)]
            reason = lowest.finish_reason
            if lowest.extra or len(choices) > 1:
                metadata = run_metadata(metadata, choices.values())
        status = FINISH_REASON_STATUS.get(reason, "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        events.append(RunDone(Run(status=status, error=error, finish_reason=reason, metadata={**metadata})))
        return events + self._take_warnings() if self._warnings else events


share_names(
    Decoder,
    """new_id index complete exhausted _choices _repeated _usage _new_usage _expects_plain _extended_batches _warnings _held _has_begun
    _has_ended _answer_id _metadata _first frames _object_form""",
)
