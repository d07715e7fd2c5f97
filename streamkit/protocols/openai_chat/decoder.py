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

from ...events import (
    Event,
    MetadataHeld,
    RawEvent,
    ReasoningDelta,
    Run,
    RunCreated,
    RunDone,
    StreamWarning,
    TextDelta,
    ToolCallDelta,
)
from ...messages.json_text import NOT_JSON, json_key
from .. import base
from ..framing import Frames, as_frame
from ..values import (
    WireObject,
    as_index,
    as_object,
    as_seconds,
    as_text,
    error_item,
    is_list,
    is_object,
    text_or_none,
)
from .choice import Choice
from .wire import (
    CHANGING_METADATA_KEYS,
    CHUNK_OBJECTS,
    FINISH_REASON_STATUS,
    METADATA_KEYS,
    RAW_EVENT_KEYS,
    PlainDelta,
    PlainToolCall,
    decode_plain_chunk,
    error_of,
    has_unread_keys,
    is_only_deltas,
    read_usage,
    usage_in,
)

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """Decodes Chat Completions chunks of any server.

    The run begins with the first chunk that has choices, or the id of an answer (Azure's first chunk has neither). It
    ends once, and what comes after its end is a raw event, if it is an error, or belongs to messages that are new.
    """

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._choices: dict[int, Choice] = {}
        self._has_begun = False
        self._has_ended = False
        self._answer_id: str | None = None
        self._metadata: dict[str, Any] = {}
        self._usage: WireObject = {}
        self._warnings: list[Event] = []  # and what is held

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
        if item.get("object") in CHUNK_OBJECTS:
            return True
        choices = item.get("choices")
        if not is_list(choices):
            return False
        if not choices:
            return "prompt_filter_results" in item  # Azure's first chunk
        return all(is_object(choice) and ("delta" in choice or "message" in choice) for choice in choices)

    # -- the fast path: plain deltas of messages that are open

    def feed_frames(self, frames: Frames) -> list[Event]:
        """The events of frames. A plain delta of an open message is decoded without parsing the rest of its chunk."""
        events: list[Event] = []
        if self.exhausted:
            return events
        self._first, self._frames = self.index, frames
        choices = self._choices
        start = self.index
        surplus = 0  # events so far, less the frames that they came from; a plain delta gives one event
        for frame in frames:
            data = frame if isinstance(frame, bytes) else frame[2]
            try:
                wire = decode_plain_chunk(data).choices[0]
                delta = wire.delta
                choice = choices[wire.index]
                text = delta.content
                is_text = delta.tool_calls is None and delta.reasoning is None and delta.reasoning_content is None
                if is_text and text and choice.open_text_id is not None:
                    event: Event | None = TextDelta(choice.open_text_id, text, raw_item=data)
                else:
                    event = _plain_event(choice, delta, data)
            except (KeyError, *NOT_JSON):
                event = None
            if event is None:
                self.index = start + len(events) - surplus
                decoded = self.feed_frame(*as_frame(frame))
                events += decoded
                surplus += len(decoded) - 1
                if self.exhausted:
                    return events
                continue
            if not isinstance(frame, bytes) and frame[0]:
                event.position = frame[0].decode("utf-8", "replace")
            events.append(event)
        self.index = start + len(frames)
        return events

    # -- the tolerant path

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[Event]:
        """The events of one frame. The data of an SSE event named `error` need not be JSON."""
        if name != b"error":
            return super().feed_frame(id, name, data)
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
        if metadata := self._run_metadata():
            yield RunCreated(Run(metadata=metadata))  # the engine adds it to the run that has begun
        yield from self._take_warnings()

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
            choice = self._choices[index] = Choice(index, self._answer_id, self.new_id, self._warn, self._hold)
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
            metadata=dict(self._metadata),
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
        metadata = self._run_metadata()
        yield RunDone(Run(status=status, error=error, finish_reason=reason, metadata=metadata))
        yield from self._take_warnings()

    def _all_choices_finished(self) -> bool:
        return bool(self._choices) and all(choice.is_finished for choice in self._choices.values())

    def _add_metadata(self, chunk: WireObject, keys: Iterable[str]) -> None:
        for key in keys:
            value = chunk.get(key)
            if key == "x_groq" and is_object(value):
                values = {name: value[name] for name in value if name not in ("usage", "error")}
                value = {**as_object(self._metadata.get(key)), **values}
            if value:
                self._metadata[key] = value

    def _run_metadata(self) -> dict[str, Any]:
        metadata = dict(self._metadata)
        choices = sorted(self._choices.values(), key=lambda choice: choice.index)
        if len(choices) > 1:
            metadata["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in choices}
        if extra := {str(choice.index): choice.extra for choice in choices if choice.extra}:
            metadata["choices"] = extra
        return metadata

    # -- warnings, which come after the events of the chunk that they are about

    def _warn(self, code: str, fault: str) -> None:
        self._warnings.append(self.warn(code, fault, "chat.completion.chunk"))

    def _hold(self, message_id: str | None, value: object) -> None:
        """Report a value that is held until a message is done."""
        self._warnings.append(MetadataHeld(message_id, len(json_key(value))))

    def _take_warnings(self) -> list[Event]:
        warnings, self._warnings = self._warnings, []
        return warnings


def _plain_event(choice: Choice, delta: PlainDelta, data: bytes) -> Event | None:
    """The event of a plain delta, None if it does more than extend one open message."""
    if delta.tool_calls is not None:
        return _plain_call_event(choice, delta, delta.tool_calls[0], data)
    if reasoning := delta.reasoning_content or delta.reasoning:
        keys, open_id = choice.open_reasoning_keys, choice.open_reasoning_id
        is_new = (delta.reasoning_content and "reasoning_content" not in keys) or (
            delta.reasoning and "reasoning" not in keys
        )
        if open_id is None or delta.content or is_new:
            return None
        return ReasoningDelta(open_id, reasoning, raw_item=data)
    if delta.content and choice.open_text_id is not None:
        return TextDelta(choice.open_text_id, delta.content, raw_item=data)
    return None


def _plain_call_event(choice: Choice, delta: PlainDelta, fragment: PlainToolCall, data: bytes) -> Event | None:
    """The event of a fragment of an open call's arguments, None if it does more than extend them."""
    call = choice.tool_calls.by_index.get(fragment.index)
    is_alone = not (choice.is_reasoning or delta.content or delta.reasoning_content or delta.reasoning)
    if call is None or call.message_id is None or not is_alone:
        return None
    if not fragment.function.arguments or (fragment.id and fragment.id != call.call_id):
        return None
    choice.tool_calls.latest = call
    return ToolCallDelta(call.message_id, fragment.function.arguments, raw_item=data)
