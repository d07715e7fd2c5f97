"""The fast path of Chat Completions: it reads deltas of open messages, of which a stream has thousands.

A chunk that is one piece of an open message is decoded as a typed struct or, if it is parsed already, read by a few look-ups:

- A plain delta (`plain_event`) has nothing but a piece of text, of reasoning, or of a call's arguments.
- An extended delta (`_extended_event`) may have further fields, which repeat those of the chunk before, or log probabilities.

Everything else takes the typed path or the tolerant one, which share the choices and their open messages with this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...events import Event, TextDelta
from ...messages.json_text import NOT_JSON, has_surrogates
from ...messages.sdk_objects import fields_of
from .. import base
from ..framing import Frames
from ..held_values import NOTHING, HeldSize
from ..values import WireObject
from .choice import Choice
from .parsed_chunk import NO_FORM, ObjectForm, form_of, has_one_value, is_plain_extra, parsed_piece
from .pieces import event_with_logprobs, extended_event, plain_event
from .repeated_fields import RepeatedFields
from .typed_chunk import decode_chunk, decode_plain_chunk, read_plain_chunk
from .wire import read_usage

__all__ = ["FastPath"]

_NOT_PLAIN = (LookupError, TypeError, *NOT_JSON)  # what reading a chunk of another shape raises


class FastPath(base.Decoder):
    """The part of the decoder that reads deltas of open messages."""

    # Where a decoder begins.
    _has_ended = False  # the run: what follows takes the tolerant path, unless it is plain
    _usage: WireObject = NOTHING
    _new_usage: WireObject | None = None  # of the newest chunk, if it has any and that has changed
    _expects_plain = False  # plain deltas are tried first, because a message is open
    _extended_batches = (
        0  # in how many more batches extended deltas are tried first; `_expects_plain` is False meanwhile
    )
    _object_form: ObjectForm = NO_FORM
    _held: HeldSize | None = None  # most answers have nothing that is held

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._choices: dict[int, Choice] = {}
        self._repeated = RepeatedFields()
        self._warnings: list[Event] = []  # of the newest chunk, and what is held

    def _feed_other(self, frame: Any) -> list[Event]:
        """The events of a frame that is not a delta of an open message, or that has an SSE id."""
        raise NotImplementedError("the decoder's")

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A plain delta of an open message is decoded without parsing the rest of its chunk."""
        if not self._expects_plain:
            return self._feed_extended(frames) if self._extended_batches else self._feed_others(frames)
        events: list[Event] = []
        choices = self._choices
        self.frames = frames
        # `offset` is a frame's index less the number of events before it: for as long as deltas are plain, each gives one
        # event, so that nothing but the list of events has to be counted.
        start = offset = self.index
        data: Any
        for data in frames:
            try:
                wire = decode_plain_chunk(data).choices[0]
                delta = wire.delta
                choice = choices[wire.index]
                text = delta.content
                if text and not (delta.tool_calls or delta.reasoning or delta.reasoning_content):
                    message_id = choice.open_text_id
                    if message_id is not None:
                        events.append(TextDelta(message_id, text, raw_item=data))
                        continue
                else:
                    event = plain_event(choice, delta, data)
                    if event is not None:
                        events.append(event)
                        continue
            except _NOT_PLAIN:
                pass  # another chunk, or a frame with an SSE id or name, which is a tuple
            if len(frames) == 1:  # as from a server that sends each event alone
                return self._feed_other(data)
            self.index = offset + len(events)
            events += self._feed_other(data)
            if self.exhausted or self._extended_batches:
                return self._feed_rest(frames, self.index - start, events)
            offset = self.index - len(events)
        self.index = offset + len(events)
        return events

    def _feed_others(self, frames: Frames) -> list[Event]:
        """As `feed_frames`, where no plain delta is expected: at the beginning of an answer, and at its end."""
        if self.exhausted:
            return []
        self.frames = frames
        if len(frames) == 1:
            return self._feed_other(frames[0])
        events: list[Event] = []
        for place, data in enumerate(frames, 1):
            events += self._feed_other(data)
            if self._expects_plain or self.exhausted or self._extended_batches:
                return self._feed_rest(frames, place, events)
        return events

    def _feed_rest(self, frames: Frames, place: int, events: list[Event]) -> list[Event]:
        """The events of a batch: these, and those of its frames from this place on, which are read as the state has become. If
        the source is exhausted, these are not read."""
        rest = () if self.exhausted else frames[place:]
        if rest:
            events += self.feed_frames(rest)
            place += len(self.frames or ())
        self.frames = frames[:place]
        return events

    def _feed_extended(self, frames: Frames) -> list[Event]:
        """As `feed_frames`, after an extended delta. The deltas that follow mostly have the same form, so it is tried first."""
        events: list[Event] = []
        self._extended_batches -= 1
        self._expects_plain = not self._extended_batches
        self.frames = frames
        start = self.index
        for place, data in enumerate(frames):
            event = self._extended_event(data)
            if event is None:
                self._expects_plain, self._extended_batches, self.index = True, 0, start + place
                event = self._read_plain(data)
                if event is None:
                    events += self._feed_other(data)
                    if self.exhausted:
                        self.frames = frames[: self.index - start]
                        return events
                    continue
            events.append(event)
            if usage := self._new_usage:
                self._usage = usage
                counted = read_usage(usage)
                counted.raw_item = data
                events.append(counted)
        self.index = start + len(frames)
        return events

    def _read_plain(self, data: Any) -> Event | None:
        """The event of a plain delta of an open message, None for any other chunk."""
        self._new_usage = None
        try:
            wire = decode_plain_chunk(data).choices[0]
            return plain_event(self._choices[wire.index], wire.delta, data)
        except _NOT_PLAIN:
            return None

    def _extended_event(self, data: Any) -> Event | None:
        """The event of an extended delta of an open message, None for any other chunk. Notes new usage in `_new_usage`."""
        try:
            chunk = decode_chunk(data)
            wire = chunk.choices[0]
            choice = self._choices[wire.index]
        except _NOT_PLAIN:
            return None
        self._new_usage = None if (usage := chunk.usage) == self._usage else usage
        if (
            wire.finish_reason
            or self._has_ended
            or (wire.message is not None and chunk.object != "chat.completion.chunk")
        ):
            return None
        if (
            wire.content_filter_results != choice.filter_results
            or (chunk.citations, chunk.search_results, chunk.x_groq) != self._repeated.values
        ) and not self._repeated.has(chunk, choice):
            return None
        if wire.logprobs is None:
            delta = wire.delta
            id = choice.open_text_id
            text: Any = delta.content
            if text.__class__ is not str or not text or id is None:
                return extended_event(choice, wire, data)
            if (
                delta.reasoning
                or delta.reasoning_content
                or delta.tool_calls
                or delta.refusal
                or delta.reasoning_details
            ):
                return extended_event(choice, wire, data)
            return TextDelta(id, text, raw_item=data)
        same_metadata = (chunk.service_tier, chunk.system_fingerprint, chunk.provider) == self._repeated.changing
        return event_with_logprobs(choice, wire, data, same_metadata)

    def plain_event(self, item: Any) -> Event | None:
        """The event of a plain delta of an open message, None for any other item. The usual forms are read by a few look-ups."""
        return self._event_of_fields(item) if item.__class__ is dict else self._event_of_form(item)

    def plain_reader(self, item: Any) -> Callable[[Any], Event | None]:
        """`plain_event` for a batch of dicts if this item is one, else for a batch of the client's objects."""
        return self._event_of_fields if item.__class__ is dict else self._event_of_form

    def _event_of_fields(self, item: Any) -> Event | None:
        """As `plain_event`, of any item. A dict that holds the client's objects is left to the tolerant path."""
        chunk: dict[str, Any] = item
        if type(item) is not dict:  # of an object this is faster than its `__class__`
            chunk = fields_of(item)
        (wire,) = choices = chunk["choices"]
        if wire.__class__ is not dict:
            wire = fields_of(wire) if chunk is not item else NOTHING  # which has no delta
        delta = wire["delta"]
        if delta.__class__ is not dict:
            delta = fields_of(delta) if chunk is not item else NOTHING
        size = len(wire)
        try:
            if (
                wire["finish_reason"] is None
                and (size == 3 or (size == 4 and wire["logprobs"] is None))
                and (index := wire["index"]).__class__ is int
                and choices.__class__ is list
                and chunk.get("usage") is None
                and ("moderation" not in chunk or chunk["moderation"] is None)
                and "error" not in chunk
                and "x_groq" not in chunk
                and "citations" not in chunk
                and "search_results" not in chunk
                and "prompt_filter_results" not in chunk
                and (len(delta) == 1 or has_one_value(delta))
            ):
                choice, text = self._choices[index], delta.get("content")
                if text is None:
                    return parsed_piece(choice, delta, item)
                id = choice.open_text_id
                if id is not None and text and text.__class__ is str and (text.isascii() or not has_surrogates(text)):
                    if chunk is not item:
                        self._object_form = form_of(item) or self._object_form
                    return TextDelta(id, text, raw_item=item)
        except KeyError:
            pass  # some servers leave fields out; or the choice is a new one
        return self._typed_event(item)

    def _event_of_form(self, item: Any) -> Event | None:
        """As `plain_event`, of any item. Fastest for the client's objects in the same form as the latest piece of text."""
        kind, kind_of_choice, kind_of_delta, names = self._object_form
        if type(item) is not kind or ((extra := item.__pydantic_extra__) and not is_plain_extra(extra)):
            return self._event_of_fields(item)
        try:
            chunk = item.__dict__
            (choice,) = choices = chunk["choices"]
            wire = choice.__dict__
            delta = wire["delta"]
            if (
                type(choice) is kind_of_choice
                and type(delta) is kind_of_delta
                and not choice.__pydantic_extra__
                and not delta.__pydantic_extra__
                and delta.__pydantic_fields_set__ == names
                and wire["finish_reason"] is None
                and wire["logprobs"] is None
                and chunk["usage"] is None
                and chunk.get("moderation") is None
                and choices.__class__ is list
                and (index := wire["index"]).__class__ is int
                and (text := delta.content).__class__ is str
                and text
                and (text.isascii() or not has_surrogates(text))
                and (id := self._choices[index].open_text_id) is not None
            ):
                return TextDelta(id, text, raw_item=item)
        except (LookupError, AttributeError, TypeError, ValueError):
            pass  # it lacks a field, or the choice is a new one
        return self._event_of_fields(item)

    def _typed_event(self, item: Any) -> Event | None:
        """The event of a plain delta of an open message, in any form."""
        wire = read_plain_chunk(item).choices[0]
        event: Any = plain_event(self._choices[wire.index], wire.delta, item)
        return None if event is None or has_surrogates(event.value) else event
