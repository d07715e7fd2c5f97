"""The typed path of Chat Completions: it reads the chunks with which the answer and its messages begin and end.

A chunk for which `typed_chunk` has a struct is read without parsing the rest of it. Everything else takes the decoder's
tolerant path, which shares the choices and their open messages with this one. Both give the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...events import Delta, Event, MetadataHeld, Run, RunCreated, StreamWarning
from ...messages.json_text import NOT_JSON
from ..held_values import NOTHING, HeldSize
from ..parsed import plain_json
from ..values import WireObject, as_seconds
from .choice import Choice
from .fast_path import FastPath
from .pieces import has_other_piece, read_other_piece
from .run_metadata import new_values, with_metadata
from .typed_chunk import Chunk, TextChunk, decode_chunk, decode_text_chunk
from .wire import CHANGING_METADATA_KEYS, METADATA_KEYS, is_only_deltas, read_usage

__all__ = ["TypedPath"]

_EXTENDED_BATCHES = 32  # after an extended delta; in these, each frame is tried as an extended delta first


class TypedPath(FastPath):
    """The part of the decoder that reads typed chunks, and passes every other frame to the tolerant path."""

    # Where a decoder begins.
    _has_begun = False
    _answer_id: str | None = None
    _metadata: WireObject = NOTHING

    def _feed_other(self, frame: Any) -> list[Event]:
        chunk: TextChunk | Chunk | None
        try:
            chunk = decode_text_chunk(frame)
        except TypeError:
            return self._feed_named(*frame)
        except NOT_JSON:
            chunk, events = self._read_irregular(frame)
        else:
            events = self._read_text(chunk)
        if not events:
            return self._feed_tolerantly(b"", b"", frame, chunk)
        for event in events:
            event.raw_item = frame  # which identifies the item, so that `item_index` is not needed
        self.index += 1
        return events

    def _feed_named(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """As `_feed_other`, of a frame with an SSE id or name."""
        if name == b"error":
            return self._feed_tolerantly(id, name, data, None)
        event = self._read_plain(data) or self._extended_event(data)
        if event is None:
            events = self._feed_other(data)
        else:
            events = self._typed([event, *self._read_new_usage(self._new_usage)], data)
        if id:
            position = id.decode("utf-8", "replace")
            for event in events:
                event.position = position
        return events

    def _feed_tolerantly(self, id: bytes, name: bytes, data: bytes, chunk: TextChunk | Chunk | None) -> list[Event]:
        """The events of a frame, by the tolerant path.

        Args:
            chunk: the frame as its typed struct; None if it has another shape.
        """
        events = self.feed_frame(id, name, data)
        if not self.exhausted:
            self._expects_plain = True
            self._remember(chunk, events)
        return events

    def _remember(self, chunk: TextChunk | Chunk | None, events: Sequence[Event]) -> None:
        """Note the fields that servers repeat, of a chunk that took the tolerant path; None for a chunk of another shape."""
        is_read = not (self._has_ended or any(isinstance(event, StreamWarning) for event in events))
        only_deltas = is_only_deltas([event for event in events if not isinstance(event, MetadataHeld)])
        self._repeated.remember(chunk if is_read else None, self._choices, is_only_deltas=only_deltas)

    def _feed_item(self, item: Any) -> list[Event]:
        """The events of an item that is parsed already: read as the typed chunk of its text where that is possible."""
        text = plain_json(item) if self.foreign_decoder is None else None
        if text is None:
            self._remember(None, ())
            return super()._feed_item(item)
        chunk: TextChunk | Chunk | None
        try:
            chunk = decode_text_chunk(text)
        except NOT_JSON:
            chunk, events = self._read_irregular(text)
        else:
            events = self._read_text(chunk)
        if not events:
            events = self._guarded(item)
            self._remember(chunk, events)
        return events

    # -- typed chunks
    # Where one of these returns None or no events, the frame has to take the tolerant path. By then it has changed nothing
    # that the tolerant path does not change in the same way.

    def _read_irregular(self, frame: bytes) -> tuple[Chunk | None, list[Event] | None]:
        """The `Chunk` and the events of a frame that is no `TextChunk`; each None if there are none. `[DONE]` ends the run."""
        if frame == b"[DONE]":
            self.exhausted, self._expects_plain = True, False
            return None, self._end()
        try:
            chunk = decode_chunk(frame)
        except NOT_JSON:
            return None, None
        return chunk, self._read_typed_chunk(chunk)

    def _read_text(self, chunk: TextChunk | Chunk) -> list[Event] | None:
        """The events of a chunk that begins the run, or has a text, a finish_reason or both."""
        wire = chunk.choices[0]
        choice = self._choices.get(wire.index)
        if choice is None or self._has_ended:
            return self._begin_run(chunk)
        content: Any = wire.delta.content
        reason = wire.finish_reason
        if not ((content or reason) and choice.takes_pieces):
            return None
        if not reason and choice.open_text_id is not None:
            self._expect_extended()
        else:
            self._expects_plain = True
            if (chunk.service_tier, chunk.system_fingerprint, chunk.provider) != self._repeated.changing:
                self._take_changing(chunk)
        if not choice.messages.role:
            choice.messages.take_role(wire.delta.role)
        events: list[Event] = choice.append_text(content) if content else []
        if reason:
            events += self._finish_choice(choice, chunk, reason)
        return events + self._rest_of(chunk) if chunk.usage or self._warnings else events

    def _read_typed_chunk(self, chunk: Chunk) -> list[Event] | None:
        """As `_read_text`, of a chunk that may have any piece and more fields, or nothing but usage."""
        if self._has_ended:
            return None
        if not chunk.choices:
            return self._read_usage_alone(chunk)
        wire, repeated = chunk.choices[0], self._repeated
        if wire.message is not None and chunk.object != "chat.completion.chunk":
            return None
        choice = self._choices.get(wire.index)
        if choice is None:
            return self._begin_run(chunk)
        if (
            (chunk.citations, chunk.search_results, chunk.x_groq) != repeated.values
            or wire.content_filter_results != choice.filter_results
        ) and not self._take_repeated(chunk, choice):
            return None
        if not has_other_piece(wire):
            return self._read_text(chunk)
        events = read_other_piece(choice, wire)
        if events is None:
            return None
        if wire.finish_reason:
            events += self._finish_choice(choice, chunk, wire.finish_reason)
        elif isinstance(events[0], Delta):
            self._expect_extended()
        else:
            self._expects_plain = True
        if not repeated.has_changing(chunk) and not is_only_deltas(events):
            self._take_changing(chunk)
        return events + self._rest_of(chunk) if chunk.usage or self._warnings else events

    def _read_usage_alone(self, chunk: Chunk) -> list[Event] | None:
        """As `_read_text`, of a chunk without choices."""
        repeated = self._repeated
        is_same = (chunk.citations, chunk.search_results, chunk.x_groq) == repeated.values
        if not (self._has_begun and chunk.usage and (is_same or self._take_repeated(chunk, None))):
            return None
        if not repeated.has_changing(chunk):
            self._take_changing(chunk)
        return self._rest_of(chunk)

    def _begin_run(self, chunk: TextChunk | Chunk) -> list[Event] | None:
        """The events of the chunk with which the run and its first choice begin. None for any other."""
        if self._has_begun or self._has_ended:
            return None
        wire = chunk.choices[0]
        self._answer_id = id = chunk.id or None
        self._choices[wire.index] = choice = Choice.begin(wire.index, id, self.new_id, self._warn, self._hold)
        if isinstance(chunk, Chunk):
            has_repeated = chunk.citations or chunk.search_results or chunk.x_groq or wire.content_filter_results
            if has_repeated and not self._take_repeated(chunk, choice):
                return None  # the tolerant path uses the new choice, and begins the run
        metadata = self._repeated.remember_changing(chunk)
        if self._metadata:
            metadata = {**self._metadata, **metadata}
        self._has_begun, self._metadata = True, metadata
        run = Run(id=id or "", model=chunk.model or None, created_at=as_seconds(chunk.created), metadata=metadata)
        events: list[Event] = [RunCreated(run)]
        more: list[Event] | None
        if isinstance(chunk, Chunk) and has_other_piece(chunk.choices[0]):
            more = self._read_typed_chunk(chunk)
        elif wire.delta.content or wire.finish_reason:
            more = self._read_text(chunk)
        else:
            choice.messages.take_role(wire.delta.role)
            return events + self._rest_of(chunk) if chunk.usage or self._warnings else events
        self._has_begun = more is not None
        return None if more is None else events + more

    def _finish_choice(self, choice: Choice, chunk: TextChunk | Chunk, reason: str) -> list[Event]:
        """The events of a choice's finish_reason."""
        events = choice.finish(reason, provider=chunk.provider)
        self.complete = len(self._choices) == 1 or self._all_choices_finished()
        self._expects_plain = not self.complete
        return events

    def _rest_of(self, chunk: TextChunk | Chunk) -> list[Event]:
        """The usage in a chunk, if it has changed, and the warnings about the chunk."""
        return [*self._read_new_usage(chunk.usage), *self._take_warnings()]

    def _take_changing(self, chunk: TextChunk | Chunk) -> None:
        """Add the changing fields of a chunk to the run's metadata."""
        self._add_metadata(self._repeated.remember_changing(chunk), CHANGING_METADATA_KEYS)

    def _take_repeated(self, chunk: Chunk, choice: Choice | None) -> bool:
        """Add what is new in the fields that a server repeats in each chunk. False if the tolerant path has to read them."""
        found = self._repeated.take(chunk, choice)
        if found is None:
            return False
        if found:
            self._add_metadata(found, METADATA_KEYS)
            if choice is not None:
                choice.add_filter_results(found)
        return True

    def _expect_extended(self) -> None:
        """An extended delta has come, because a plain one would not have got here; more of them are expected."""
        self._expects_plain, self._extended_batches = False, _EXTENDED_BATCHES

    # -- what both paths use

    def _end(self, error: WireObject | None = None) -> list[Event]:
        """The end of the run."""
        raise NotImplementedError("the decoder's")

    def _read_new_usage(self, usage: WireObject | None) -> Sequence[Event]:
        """The usage, each time that it changes: some servers send it in every chunk."""
        if not usage or usage == self._usage:
            return ()
        self._usage = usage
        return (read_usage(usage),)

    def _all_choices_finished(self) -> bool:
        for choice in self._choices.values():
            if not choice.is_finished:
                return False
        return bool(self._choices)

    # Warnings come after the events of the chunk that they are about.

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
