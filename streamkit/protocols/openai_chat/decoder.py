"""Chat Completions chunks, as OpenAI, Azure and every compatible server stream them.

Terminal rule: the answer is complete with `[DONE]`, with a finish_reason for every choice that was seen, or with an
error. A stream that ends without any of them was cut off.

A choice has one text, one refusal, its tool calls, its audio (the transcript of which is a text of its own), and a
reasoning message for each stretch of reasoning. They are open side by side until the choice's finish_reason; reasoning
ends where other content begins, and a call with all its arguments where another call begins. Completions that were not streamed (`object: chat.completion`) are read as streams of
one item.

`RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage comes after the finish_reason.
`Run.metadata` has what the chunks state about the entire answer (`citations`, `service_tier` …), `finish_reasons` by
choice if there are several, and under `choices` what the chunks state about one choice alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from ...events import Event, MetadataHeld, RawEvent, Run, RunCreated, RunDone, StreamWarning
from ...messages.json_text import NOT_JSON
from ..framing import Frame, as_frame
from ..held_values import HeldSize
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
from .fast_path import FastPath
from .first_chunk import begin
from .open_messages import NOTHING as NO_VALUES
from .pieces import plain_event, read_choice
from .repeated_fields import NOTHING
from .run_metadata import new_values, run_metadata, with_metadata
from .shape import CHUNK_OBJECTS, recognises
from .typed_chunk import Chunk, decode_plain_chunk
from .wire import (
    CHANGING_METADATA_KEYS,
    FINISH_REASON_STATUS,
    METADATA_KEYS,
    RAW_EVENT_KEYS,
    error_of,
    has_unread_keys,
    is_only_deltas,
    read_usage,
    usage_in,
)

__all__ = ["Decoder"]


class Decoder(FastPath):
    """Decodes Chat Completions chunks of any server.

    The run begins with the first chunk that has choices, or the id of an answer (Azure's first chunk has neither). It
    ends once, and what comes after its end is a raw event, if it is an error, or belongs to messages that are new.
    """

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._has_begun = False
        self._has_ended = False
        self._answer_id: str | None = None
        self._metadata: WireObject = NO_VALUES
        self._warnings: list[Event] = []  # and what is held
        self._held = HeldSize()

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
        return recognises(item)

    # -- chunks with more than a delta of an open message

    def _feed_other(self, frame: Frame | bytes) -> list[Event]:
        """The events of a frame with more than a delta of an open message, or with an SSE id: of a typed chunk, else by the
        tolerant path."""
        events: list[Event] | None = None
        id, name, data = as_frame(frame)
        if data is not frame and name != b"error" and (event := self._read_plain(data) or self._extended_event(data)):
            events = [event, self._count_usage(self._new_usage, data)] if self._new_usage else [event]
        elif (chunk := self._chunk) is not None:
            events = self._read_typed(chunk, data)
        chunk, self._chunk = self._chunk, None
        if events is None:
            events = self.feed_frame(id, name, data)
            if self.exhausted:
                return events
            is_read = not (self._has_ended or any(isinstance(event, StreamWarning) for event in events))
            only_deltas = is_only_deltas([event for event in events if not isinstance(event, MetadataHeld)])
            self._repeated.remember(chunk if is_read else None, self._choices, is_only_deltas=only_deltas)
            return events
        return self._typed(events, data, id)

    def _read_plain(self, data: bytes) -> Event | None:
        """The event of a plain delta of an open message, None for any other chunk."""
        self._new_usage = None
        try:
            wire = decode_plain_chunk(data).choices[0]
            return plain_event(self._choices[wire.index], wire.delta, data)
        except (KeyError, *NOT_JSON):
            return None

    def _read_typed(self, chunk: Chunk, data: bytes) -> list[Event] | None:
        """The events of a typed chunk; None, before anything was changed, if it has to take the tolerant path."""
        if not (self._has_begun or self._has_ended):
            return self._begin_typed(chunk, data)
        if self._has_ended or not self._repeated.has(chunk, self._choices):
            return None
        events: list[Event] = []
        is_settled = self._repeated.has_changing(chunk)
        for wire in chunk.choices:
            if wire.message is not None and chunk.object != "chat.completion.chunk":
                return None
            choice = self._choices[wire.index]
            found = read_choice(choice, wire, data, settled=is_settled, held=chunk.provider not in NOTHING)
            if found is None:
                return None
            events += found
        if chunk.usage and (is_settled or chunk.choices):
            events += [*self._read_usage({"usage": chunk.usage}, [])]
        self.complete = self._all_choices_finished()
        return events + self._take_warnings() or None

    def _begin_typed(self, chunk: Chunk, data: bytes) -> list[Event] | None:
        """The events of the first chunk, as `_read_typed`."""
        begun = begin(chunk, data, self._metadata, self._new_choice)
        if begun is None:
            return None
        choice, run, events = begun
        self._has_begun, self._answer_id, self._metadata = True, run.id or None, run.metadata
        self._choices[choice.index] = choice
        self._repeated.remember(chunk, self._choices, is_only_deltas=False)
        return events

    def _new_choice(self, index: int, answer_id: str | None) -> Choice:
        return Choice(index, answer_id, self.new_id, self._warn, self._hold)

    # -- the tolerant path

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame. The data of an SSE event named `error` need not be JSON."""
        if name != b"error":
            events = super().feed_frame(id, name, data)
            self._is_unusual = self._is_unusual or self.exhausted
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
        self.complete = True
        yield from self._end()

    def finish(self) -> Iterable[Event]:
        """The end of the run if the answer is complete, else the end of its messages as incomplete."""
        if self.complete:
            yield from self._end()
            return
        for choice in [*self._choices.values()]:
            yield from choice.end("incomplete")
        if metadata := run_metadata(self._metadata, self._choices.values()):
            yield RunCreated(Run(metadata=metadata))  # the engine adds it to the run that has begun
        yield from self._take_warnings()

    def forget(self) -> None:
        """Drop the newest frames and the choices, because nothing more comes."""
        super().forget()
        self._choices.clear()
        self._chunk = None

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
            choice = self._choices[index] = self._new_choice(index, self._answer_id)
        yield from choice.feed(wire, chunk)

    def _read_usage(self, chunk: WireObject, choices: list[Any]) -> Iterator[Event]:
        """The usage, each time that it changes: some servers send it in every chunk."""
        usage = usage_in(chunk, choices)
        if usage is None or usage == self._usage:
            return
        if is_object(usage):
            self._usage = usage
            yield read_usage(usage)
        else:
            self._warn("bad-usage", "its `usage` is not an object; it was skipped")

    # -- the run

    def _begin(self, chunk: WireObject) -> Event:
        self._has_begun = True
        self._answer_id = text_or_none(chunk.get("id"))
        self._add_metadata(chunk, CHANGING_METADATA_KEYS)
        run = Run(
            id=self._answer_id or "",
            model=text_or_none(chunk.get("model")),
            created_at=as_seconds(chunk.get("created")),
            metadata=self._metadata,
        )
        return RunCreated(run)

    def _end(self, error: WireObject | None = None) -> Iterator[Event]:
        """The end of the run: with an error, or as the finish_reason of its lowest choice means."""
        if self._has_ended:
            return
        self._has_ended = self.complete = True
        for choice in [*self._choices.values()]:
            yield from choice.end("completed" if error is None else "failed")
        reason = self._choices[min(self._choices)].finish_reason if self._choices else None
        status = FINISH_REASON_STATUS.get(reason or "", "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        metadata = run_metadata(self._metadata, self._choices.values())
        yield RunDone(Run(status=status, error=error, finish_reason=reason, metadata=metadata))
        yield from self._take_warnings()

    def _all_choices_finished(self) -> bool:
        choices = self._choices.values()
        return bool(choices) and False not in [choice.is_finished for choice in choices]

    # -- warnings, which come after the events of the chunk that they are about

    def _warn(self, code: str, fault: str) -> None:
        self._warnings.append(self.warn(code, fault, "chat.completion.chunk"))

    def _hold(self, message_id: str | None, value: object) -> None:
        """Count a value that is held until a message is done, and report some kilobytes at once."""
        if size := self._held.add(value):
            self._warnings.append(MetadataHeld(message_id, size))

    def _add_metadata(self, chunk: WireObject, keys: Iterable[str]) -> None:
        """Add what a chunk has at these keys to the run's metadata."""
        before, self._metadata = self._metadata, with_metadata(self._metadata, chunk, keys)
        if self._metadata is not before and (changed := new_values(before, self._metadata)):
            self._hold(None, changed)

    def _take_warnings(self) -> list[Event]:
        warnings, self._warnings = self._warnings, []
        return warnings
