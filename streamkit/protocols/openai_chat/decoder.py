"""Chat Completions chunks, as OpenAI, Azure and every compatible server stream them.

Terminal rule: `[DONE]`, or a finish_reason for every choice that was seen, or an error. A choice gives one text, one
refusal, its tool calls, its audio (whose transcript is a text of its own), and a reasoning message for each stretch of
reasoning. They stay open, side by side, until the choice's finish_reason; reasoning ends where other content begins.
A stream without it was cut off. Whole completions (`object: chat.completion`) are read as streams of one item.

`RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage comes after finish_reason.
`Run.metadata` holds what the chunks say of the whole answer (`citations`, `service_tier` …), `finish_reasons` by
choice where there are several, and under `choices` what they say of one choice alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec

from ... import events as e
from ...events import TextDelta
from .. import base
from ..framing import Frames, as_frame
from ..values import is_list, is_object
from .choice import Choice
from .wire import (
    ENDS,
    KEPT,
    KEPT_SOMETIMES,
    OBJECTS,
    RAW,
    BareCall,
    BareDelta,
    as_error,
    count,
    decode_bare,
    error_of,
    has_more,
    index_of,
    list_of,
    mapping,
    name_of,
    only_deltas,
    string,
    time_of,
)

__all__ = ["Decoder"]


class Decoder(base.Decoder):
    """Chat Completions chunks of any server; see the module for when they are complete."""

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._choices: dict[int, Choice] = {}
        self._begun = False
        self._ended = False
        self._group: str | None = None
        self._metadata: dict[str, Any] = {}
        self._used: Mapping[str, Any] = {}
        self._faults: list[e.Event] = []

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        if item.get("object") in OBJECTS:
            return True
        choices = item.get("choices")
        if not is_list(choices):
            return False
        if not choices:
            return "prompt_filter_results" in item  # Azure's first chunk
        return all(is_object(choice) and ("delta" in choice or "message" in choice) for choice in choices)

    def feed_frames(self, frames: Frames) -> list[e.Event]:
        events: list[e.Event] = []
        if self.exhausted:
            return events
        self._first, self._frames = self.index, frames
        choices = self._choices
        start = self.index
        beyond = 0  # the events so far, less the frames that told them: a bare piece is one of each
        for frame in frames:
            data = frame if isinstance(frame, bytes) else frame[2]
            try:
                given = decode_bare(data).choices[0]
                delta = given.delta
                choice = choices[given.index]
                value = delta.content
                plain = delta.tool_calls is None and delta.reasoning is None and delta.reasoning_content is None
                if plain and value and choice.text is not None:
                    event: e.Event | None = TextDelta(choice.text, value, raw_item=data)
                else:
                    event = _bare_event(choice, delta, data)
            except (KeyError, msgspec.DecodeError, UnicodeDecodeError):
                event = None
            if event is None:
                self.index = start + len(events) - beyond
                told = self.feed_frame(*as_frame(frame))
                events += told
                beyond += len(told) - 1
                if self.exhausted:
                    return events
                continue
            if not isinstance(frame, bytes) and frame[0]:
                event.position = frame[0].decode("utf-8", "replace")
            events.append(event)
        self.index = start + len(frames)
        return events

    def feed_frame(self, id: bytes, name: bytes, data: bytes) -> list[e.Event]:
        if name != b"error":
            return super().feed_frame(id, name, data)
        events = super().feed_frame(id, b"", as_error(data))
        for event in events:
            event.raw_item = data
        return events

    def feed(self, item: Mapping[str, Any]) -> Iterable[e.Event]:
        events = [*self._item(item)]
        if not events and not self._faults and has_more(item):
            events.append(e.RawEvent(name_of(item), item))
        return events + self._drain()

    def sentinel(self, data: bytes) -> Iterable[e.Event]:
        self.complete = True
        yield from self._end()

    def finish(self) -> Iterable[e.Event]:
        if self.complete:
            yield from self._end()
            return
        for choice in [*self._choices.values()]:
            yield from choice.end("incomplete")
        if metadata := self._run_metadata():
            yield e.RunCreated(e.Run(metadata=metadata))  # it adds to the run that was begun
        yield from self._drain()

    def forget(self) -> None:
        super().forget()
        self._choices.clear()

    # -- an item

    def _item(self, item: Mapping[str, Any]) -> Iterator[e.Event]:
        for key in RAW:
            if item.get(key):
                yield e.RawEvent(key, item)
        self._keep(item, KEPT)
        listed = list_of(item.get("choices"))
        if listed is None:
            self._fault("bad-choices", "its `choices` are no list")
            listed = [item["choices"]]
        if not self._begun and (listed or (string(item.get("id")) and item.get("object") in OBJECTS)):
            yield self._begin(item)
        told = [event for position, choice in enumerate(listed) for event in self._choice(position, choice, item)]
        yield from told
        yield from self._usage(item, listed)
        if not only_deltas(told):
            self._keep(item, KEPT_SOMETIMES)
        error = error_of(item, listed)
        if error is not None and self._ended:
            yield e.RawEvent("error", item)
        elif error is not None:
            yield from self._end(error)
        self.complete = self._ended or self._all_finished()

    def _begin(self, item: Mapping[str, Any]) -> e.Event:
        self._begun = True
        self._group = string(item.get("id")) or None
        self._keep(item, KEPT_SOMETIMES)
        return e.RunCreated(
            e.Run(
                id=self._group or "",
                model=string(item.get("model")) or None,
                created_at=time_of(item.get("created")),
                metadata=dict(self._metadata),
            )
        )

    def _keep(self, item: Mapping[str, Any], keys: Iterable[str]) -> None:
        for key in keys:
            value = item.get(key)
            if key == "x_groq" and is_object(value):
                known = mapping(self._metadata.get(key))
                value = {**known, **{name: value[name] for name in value if name not in ("usage", "error")}}
            if value:
                self._metadata[key] = value

    def _usage(self, item: Mapping[str, Any], choices: list[Any]) -> Iterator[e.Event]:
        """Usage, wherever it stands, each time that it changes."""
        places = (item, *(mapping(choice) for choice in choices), mapping(item.get("x_groq")))
        used = next((place["usage"] for place in places if place.get("usage")), None)
        if used is None or used == self._used:
            return
        if not is_object(used):
            self._fault("bad-usage", "its `usage` is no object; it was skipped")
            return
        self._used = used
        counts = [
            count(used.get(f"{name}_tokens", used.get(f"{other}_tokens")))
            for name, other in (("prompt", "input"), ("completion", "output"), ("total", ""))
        ]
        plain = ("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens")
        details = {key: value for key, value in used.items() if key not in plain and value is not None}
        yield e.Usage(counts[0], counts[1], counts[2] or counts[0] + counts[1], details)

    def _end(self, error: Mapping[str, Any] | None = None) -> Iterator[e.Event]:
        """The run is over: by an error, or as its lowest choice's finish_reason says."""
        if self._ended:
            return
        self._ended = self.complete = True
        for choice in [*self._choices.values()]:
            yield from choice.end("completed" if error is None else "failed")
        reason = self._choices[min(self._choices)].finish_reason if self._choices else None
        status = ENDS.get(reason or "", "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        metadata = self._run_metadata()
        yield e.RunDone(e.Run(status=status, error=error, finish_reason=reason, metadata=metadata))
        yield from self._drain()

    def _run_metadata(self) -> dict[str, Any]:
        metadata = dict(self._metadata)
        choices = sorted(self._choices.values(), key=lambda choice: choice.index)
        if len(choices) > 1:
            metadata["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in choices}
        if extra := {str(choice.index): choice.extra for choice in choices if choice.extra}:
            metadata["choices"] = extra
        return metadata

    def _all_finished(self) -> bool:
        return bool(self._choices) and all(choice.finished for choice in self._choices.values())

    def _fault(self, code: str, fault: str) -> None:
        self._faults.append(self.warn(code, fault, "chat.completion.chunk"))

    def _drain(self) -> list[e.Event]:
        faults, self._faults = self._faults, []
        return faults

    def _choice(self, position: int, given: Any, item: Mapping[str, Any]) -> Iterator[e.Event]:
        if not is_object(given):
            self._fault("bad-choice", "one of its choices is no object; it was skipped")
            return
        index = index_of(given.get("index"), self._fault)
        if index is None:
            index = position
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index, self._group, self.new_id, self._fault)
        yield from choice.feed(given, item)


def _bare_event(choice: Choice, delta: BareDelta, data: bytes) -> e.Event | None:
    """The event of a delta that is not text alone, None if there is more to it than one piece."""
    if delta.tool_calls is not None:
        return _bare_call(choice, delta, delta.tool_calls[0], data)
    if reasoning := delta.reasoning_content or delta.reasoning:
        if choice.reasoning is None or delta.content:
            return None
        return e.ReasoningDelta(choice.reasoning, reasoning, raw_item=data)
    if delta.content and choice.text is not None:
        return TextDelta(choice.text, delta.content, raw_item=data)
    return None


def _bare_call(choice: Choice, delta: BareDelta, piece: BareCall, data: bytes) -> e.Event | None:
    """The event of a piece of an open call's arguments, None if there is more to it."""
    call = choice.calls.by_index.get(piece.index)
    plain = not (choice.thinking or delta.content or delta.reasoning_content or delta.reasoning)
    if call is None or call.id is None or not plain:
        return None
    if not piece.function.arguments or (piece.id and piece.id != call.call_id):
        return None
    choice.calls.last = call
    return e.ToolCallDelta(call.id, piece.function.arguments, raw_item=data)
