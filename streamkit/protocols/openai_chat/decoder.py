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

from ...events import Delta, Event, MetadataHeld, RawEvent, Run, RunCreated, RunDone, StreamWarning
from ...messages.json_text import NOT_JSON
from ...shared_names import share_names
from ..held_values import NOTHING, HeldSize
from ..parsed import plain_json
from ..values import (
    LARGEST_COUNT,
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
from .fast_path import UNUSUAL_BATCHES, FastPath
from .pieces import read_choice
from .run_metadata import changing_metadata, new_values, run_metadata, with_metadata
from .shape import CHUNK_OBJECTS, recognises
from .typed_chunk import Chunk, decode_chunk
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
    ends once. After its end, an error is a raw event, and content opens new messages.
    """

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    # Where a decoder begins.
    _has_begun = False
    _answer_id: str | None = None
    _metadata: WireObject = NOTHING

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
        return recognises(item)

    # -- chunks with more than a delta of an open message

    def _feed_other(self, frame: Any) -> list[Event]:
        """The events of a frame that has more than a delta of an open message, or an SSE id: read as a typed chunk where that
        is possible, else by the tolerant path."""
        if self._is_unusual and (event := self._extended_event(frame)) is not None:
            return self._typed(self._with_usage(event), frame)
        if frame == b"[DONE]":
            return self._feed_tolerantly(b"", b"", frame, None)
        try:
            chunk = decode_chunk(frame)
        except TypeError:
            return self._feed_named(*frame)
        except NOT_JSON:
            return self._feed_tolerantly(b"", b"", frame, None)
        events = self._read_typed(chunk, frame)
        if events is None:
            return self._feed_tolerantly(b"", b"", frame, chunk)
        index = self.index
        for event in events:
            event.raw_item = frame
            if not isinstance(event, Delta):  # which is found by its item
                event.item_index = index
        self.index = index + 1
        return events

    def _feed_named(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """As `_feed_other`, of a frame with an SSE id or name."""
        if name == b"error":
            return self._feed_tolerantly(id, name, data, None)
        event = self._read_plain(data) or self._extended_event(data)
        events = self._feed_other(data) if event is None else self._typed(self._with_usage(event), data)
        if id:
            position = id.decode("utf-8", "replace")
            for event in events:
                event.position = position
        return events

    def _with_usage(self, event: Event) -> list[Event]:
        """A delta, and the usage of its chunk if that has changed."""
        return [event, *self._read_new_usage(self._new_usage)]

    def _feed_tolerantly(self, id: bytes, name: bytes, data: bytes, chunk: Chunk | None) -> list[Event]:
        """The events of a frame, by the tolerant path.

        Args:
            chunk: the frame as its typed struct; None if it has another shape.
        """
        if data == b"[DONE]" and not name:
            self.exhausted = self._is_unusual = True
            return self._typed(self._end(), data)
        events = self.feed_frame(id, name, data)
        if not self.exhausted:
            self._remember(chunk, events)
        return events

    def _remember(self, chunk: Chunk | None, events: Sequence[Event]) -> None:
        """Note the fields that servers repeat, of a chunk that took the tolerant path; None for a chunk of another shape."""
        is_read = not (self._has_ended or any(isinstance(event, StreamWarning) for event in events))
        only_deltas = is_only_deltas([event for event in events if not isinstance(event, MetadataHeld)])
        self._repeated.remember(chunk if is_read else None, self._choices, is_only_deltas=only_deltas)

    def _read_typed(self, chunk: Chunk, data: bytes) -> list[Event] | None:
        """The events of a typed chunk. None if it has to take the tolerant path; nothing was changed then."""
        if self._has_ended:
            return None
        choices, repeated = chunk.choices, self._repeated
        if not choices:
            is_usage = self._has_begun and chunk.usage and repeated.has(chunk, None) and repeated.has_changing(chunk)
            return [*self._read_new_usage(chunk.usage), *self._take_warnings()] or None if is_usage else None
        wire = choices[0]
        if wire.message is not None and chunk.object != "chat.completion.chunk":
            return None
        choice = self._choices.get(wire.index)
        if choice is None:
            if self._has_begun or not 0 <= wire.index <= LARGEST_COUNT:
                return None
            self._answer_id = text_or_none(chunk.id)
            choice = Choice.begin(wire.index, self._answer_id, self.new_id, self._warn, self._hold)
        if (
            (chunk.citations, chunk.search_results, chunk.x_groq) != repeated.values
            or wire.content_filter_results != choice.filter_results
        ) and not repeated.has(chunk, choice):
            return None
        if not self._has_begun:
            return self._begin_typed(chunk, choice, data)
        events = read_choice(choice, wire, data, same_metadata=repeated.has_changing(chunk), held=bool(chunk.provider))
        if events is None:
            return None
        if wire.finish_reason:
            self.complete = len(self._choices) == 1 or self._all_choices_finished()
        elif isinstance(events[0], Delta):  # a plain one does not come here
            self._is_unusual, self._unusual_batches = True, UNUSUAL_BATCHES
        if chunk.usage:
            events += self._read_new_usage(chunk.usage)
        return (events + self._take_warnings() if self._warnings else events) or None

    def _begin_typed(self, chunk: Chunk, choice: Choice, data: bytes) -> list[Event] | None:
        """As `_read_typed`, for the chunk with which the run and its first choice begin."""
        wire = chunk.choices[0]
        events = read_choice(choice, wire, data, same_metadata=True, held=bool(chunk.provider), begins=True)
        if events is None:
            return None
        self._has_begun = True
        self._choices[choice.index] = choice
        self._repeated.remember_changing(chunk)
        self._metadata = metadata = {**self._metadata, **changing_metadata(chunk)}
        model, created_at = text_or_none(chunk.model), as_seconds(chunk.created)
        events.insert(
            0, RunCreated(Run(id=self._answer_id or "", model=model, created_at=created_at, metadata=metadata))
        )
        if wire.finish_reason:
            self.complete = True
        if chunk.usage:
            events += self._read_new_usage(chunk.usage)
        return events + self._take_warnings() if self._warnings else events

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

    def _feed_item(self, item: Any) -> list[Event]:
        """As the base's, of an item that is read as a typed chunk where that is possible."""
        text = plain_json(item) if self.foreign_decoder is None else None
        if text is None:
            self._repeated.remember(None, self._choices, is_only_deltas=False)
            return super()._feed_item(item)
        try:
            chunk = decode_chunk(text)
        except NOT_JSON:
            chunk = None
        events = None if chunk is None else self._read_typed(chunk, text)
        if events is None:
            events = self._guarded(item)
            self._remember(chunk, events)
        return events

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

    def _read_new_usage(self, usage: WireObject | None) -> Sequence[Event]:
        """The usage, each time that it changes: some servers send it in every chunk."""
        if not usage or usage == self._usage:
            return ()
        self._usage = usage
        return (read_usage(usage),)

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

    def _end(self, error: WireObject | None = None) -> list[Event]:
        """The end of the run: with an error, or as the finish_reason of its lowest choice means."""
        events: list[Event] = []
        if self._has_ended:
            return events
        self._has_ended = self.complete = True
        choices = self._choices
        for choice in [*choices.values()]:
            events += choice.end("completed" if error is None else "failed")
        reason = choices[min(choices)].finish_reason if choices else None
        status = FINISH_REASON_STATUS.get(reason or "", "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        metadata = run_metadata(self._metadata, choices.values())
        events.append(RunDone(Run(status=status, error=error, finish_reason=reason, metadata=metadata)))
        return events + self._take_warnings() if self._warnings else events

    def _all_choices_finished(self) -> bool:
        for choice in self._choices.values():
            if not choice.is_finished:
                return False
        return bool(self._choices)

    # -- warnings, which come after the events of the chunk that they are about

    def _warn(self, code: str, fault: str) -> None:
        self._warnings.append(self.warn(code, fault, "chat.completion.chunk"))

    def _hold(self, message_id: str | None, value: object) -> None:
        """Count a value that is held until a message is done. The sizes are reported together, some kilobytes at a time."""
        if self._held is None:
            self._held = HeldSize()
        if size := self._held.add(value):
            self._warnings.append(MetadataHeld(message_id, size))

    def _add_metadata(self, chunk: WireObject, keys: Iterable[str]) -> None:
        """Add what a chunk has at these keys to the run's metadata."""
        before, self._metadata = self._metadata, with_metadata(self._metadata, chunk, keys)
        if self._metadata is not before and (changed := new_values(before, self._metadata)):
            self._hold(None, changed)

    def _take_warnings(self) -> list[Event]:
        """The warnings so far, and reports of what is held; they are returned once."""
        warnings, self._warnings = self._warnings, []
        return warnings


share_names(
    Decoder,
    """new_id index complete exhausted _choices _repeated _usage _new_usage _is_unusual _unusual_batches _warnings _held _has_begun
    _has_ended _answer_id _metadata _first frames _object_form""",
)
