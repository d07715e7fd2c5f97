"""Chat Completions chunks, as OpenAI, Azure and every compatible server stream them.

Terminal rule: the answer is complete with `[DONE]`, with a finish_reason for every choice that was seen, or with an
error. A stream that ends without any of them was cut off.

A choice has one text, one refusal, its tool calls, its audio (the transcript of which is a text of its own), and a
reasoning message for each stretch of reasoning. They are open side by side until the answer ends; reasoning ends where
other content begins, and a call with all its arguments where another call begins. A completion that was not streamed
(`object: chat.completion`) is read as a stream of one item.

`RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage comes after the finish_reason. Content
after all choices have finished begins another answer, in a step of its own. `Run.metadata` has what the chunks state about
the entire answer (`citations`, `service_tier` …), `finish_reasons` by choice if there are several, and under `choices` what
the chunks state about one choice alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from ...events import Delta, Event, Run, RunCreated, RunDone, RunStep, RunStepDone
from .. import base
from ..output import Output
from ..values import (
    WireObject,
    as_index,
    as_object,
    as_seconds,
    as_text,
    is_list,
    is_object,
    text_or_none,
)
from .choice import Choice
from .delta import DeltaReader
from .plain import PlainChunk, plain_delta, stated_in
from .shape import CHUNK_OBJECTS, recognises
from .usage import AnswerUsage
from .wire import (
    CHUNK_KEYS,
    FINISH_REASON_STATUS,
    METADATA_KEYS,
    RAW_EVENT_KEYS,
    TRANSIENT_ERRORS,
    error_of,
    first_value,
    holders_of,
)

__all__ = ["Decoder"]

# Keys that are read or mean nothing. A chunk without events is a raw event if it has other ones, or its deltas have.
_KNOWN_KEYS = CHUNK_KEYS | {*METADATA_KEYS, "id", "object", "created", "model", "choices", "obfuscation"}
_KNOWN_DELTA_KEYS = DeltaReader.readers.keys() | {"index"}
_RAW_EVENT_KEYS = frozenset(RAW_EVENT_KEYS)
_ELSEWHERE = ("usage", "error")  # keys in `x_groq` that are not metadata


class Decoder(base.Decoder):
    """Decodes Chat Completions chunks of any server.

    The run begins with the first chunk that has choices, or the id of an answer (Azure's first chunk has neither). It
    ends once. After its end, an error is a raw event, and content opens new messages.
    """

    name = "openai_chat"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    plain_item = PlainChunk
    transient_errors = TRANSIENT_ERRORS

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._output = Output("chat.completion.chunk")
        self._choices: dict[int, Choice] = {}
        self._usage = AnswerUsage()
        self._metadata: WireObject = {}
        self._stated: tuple[Any, ...] = tuple(None for _ in METADATA_KEYS)  # what the newest chunk has at these keys
        self._unfinished: set[int] = set()  # the indexes of choices without a finish_reason
        self._answer_id: str | None = None
        self._has_begun = self._has_ended = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether the item's `object` is Chat's, or it has choices with deltas or messages."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the delta of a chunk that is one piece of an open message."""
        if stated_in(item) != self._stated or self._output.reports:
            return None
        wire = item.choices[0]
        return plain_delta(self._choices[wire.index], wire)

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one chunk, then its warnings. A chunk without events but with unread values is a raw
        event."""
        output = self._output
        output.begin(item)
        stated = tuple(map(item.get, METADATA_KEYS))
        if stated != self._stated or not _RAW_EVENT_KEYS.isdisjoint(item):
            self._stated = stated
            self._read_metadata(item)
        choices: Any = item.get("choices")
        if not is_list(choices):
            choices = self._odd_choices(choices)
        if not self._has_begun and (choices or (as_text(item.get("id")) and item.get("object") in CHUNK_OBJECTS)):
            self._has_begun = True
            self._begin(item)
        has_more = "x_groq" in item
        for position, wire in enumerate(choices):
            has_more = self._read_choice(position, wire, item) or has_more
        holders = holders_of(item, choices) if has_more else (item,)
        if usage := first_value("usage", holders):
            self._read_usage(usage, is_alone=not choices)
        if has_more or "error" in item or not choices:
            self._read_error(error_of(item, holders))
        self.complete = self._has_ended or (bool(self._choices) and not self._unfinished)
        if not output.events and not output.has_warnings and _has_unread_keys(item, choices):
            name = as_text(item.get("type")) or as_text(item.get("object")) or "chat.completion.chunk"
            output.emit_raw(name)
        return output.take(self.index)

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """Return the end of the run: `[DONE]` completes an answer."""
        self._end()
        return self._output.take(self.index)

    def finish(self) -> Iterable[Event]:
        """Return the end of the run if the answer is complete, else the end of its messages as incomplete."""
        if self.complete:
            self._end()
        else:
            for choice in self._choices.values():
                choice.end("incomplete")
            if metadata := self._run_metadata():
                self._output.emit(RunCreated(Run(metadata=metadata)))  # the engine adds it to the run that has begun
        return self._output.take(self.index)

    def forget(self) -> None:
        """Drop the choices, because nothing more comes."""
        self._choices.clear()

    # -- a chunk

    def _odd_choices(self, choices: Any) -> list[Any]:
        if choices is None:
            return []
        self._output.warn("bad-choices", "its `choices` is not a list")
        return [choices]

    def _read_choice(self, position: int, wire: Any, chunk: WireObject) -> bool:
        """Read one choice. Where servers give no index, its position in the chunk is its index. Returns as `Choice.feed`."""
        if not is_object(wire):
            self._output.warn("bad-choice", "one of its choices is not an object; it was skipped")
            return False
        index = as_index(wire.get("index"), self._output.warn)
        if index is None:
            index = position
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index, self._answer_id, self.new_id, self._output)
            self._unfinished.add(index)
        elif not self._unfinished and choice.begins_another_turn(wire):
            self._begin_another_answer(chunk)
        has_more = choice.feed(wire)
        if choice.is_finished:
            self._unfinished.discard(index)
        return has_more

    def _read_metadata(self, chunk: WireObject) -> None:
        """Add what a chunk states about the entire answer."""
        for key in RAW_EVENT_KEYS:
            if chunk.get(key):
                self._output.emit_raw(key)
        for key in (*METADATA_KEYS, "prompt_filter_results"):
            value, before = chunk.get(key), self._metadata.get(key)
            more = value
            if key == "x_groq" and is_object(value):
                earlier = as_object(before)
                more = {name: one for name, one in value.items() if name not in _ELSEWHERE and earlier.get(name) != one}
                value = {**earlier, **more}
            if more and value != before:
                self._metadata = {**self._metadata, key: value}  # events have the one before
                self._output.hold(None, {key: more})

    def _read_usage(self, usage: Any, *, is_alone: bool) -> None:
        """Read a usage, which is alone in a chunk without choices."""
        if not is_object(usage):
            self._output.warn("bad-usage", "its `usage` is not an object; it was skipped")
            return
        finished = len(self._choices) - len(self._unfinished)
        if (counted := self._usage.take(usage, finished, is_alone=is_alone)) is not None:
            self._output.emit(counted)

    def _read_error(self, error: WireObject | None) -> None:
        if error is not None and self._has_ended:
            self._output.emit_raw("error")
        elif error is not None:
            self._end(error)

    # -- the run

    def _begin(self, chunk: WireObject) -> None:
        self._answer_id = text_or_none(chunk.get("id"))
        run = Run(
            id=self._answer_id or "",
            model=text_or_none(chunk.get("model")),
            created_at=as_seconds(chunk.get("created")),
            metadata={**self._metadata},
        )
        self._output.emit(RunCreated(run))

    def _begin_another_answer(self, chunk: WireObject) -> None:
        """All choices have finished, and content comes: the source goes on with another answer, in a step of its own."""
        for choice in self._choices.values():
            choice.end("completed")
        self._output.emit(RunStepDone(RunStep(status="completed")))
        self._begin(chunk)
        self._usage = AnswerUsage()
        for choice in self._choices.values():
            choice.messages.begin_answer(self._answer_id)

    def _run_metadata(self) -> dict[str, Any]:
        """Return what the chunks stated, `finish_reasons` by choice if there are several, and what they stated about
        single choices."""
        metadata, choices = {**self._metadata}, [self._choices[index] for index in sorted(self._choices)]
        if len(choices) > 1:
            metadata["finish_reasons"] = {str(choice.index): choice.finish_reason for choice in choices}
        if extra := {str(choice.index): {**choice.extra} for choice in choices if choice.extra}:
            metadata["choices"] = extra
        return metadata

    def _end(self, error: WireObject | None = None) -> None:
        """End the run: with an error, or as the finish_reason of its lowest choice means."""
        if self._has_ended:
            return
        self._has_ended = self.complete = True
        for choice in self._choices.values():
            choice.end("completed" if error is None else "failed")
        reason = self._choices[min(self._choices)].finish_reason if self._choices else None
        status = FINISH_REASON_STATUS.get(reason, "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = {"message": f"the provider ended its answer with the finish_reason {reason!r}"}
        run = Run(status=status, error=error, finish_reason=reason, metadata=self._run_metadata())
        self._output.emit(RunDone(run))


def _has_unread_keys(chunk: WireObject, choices: list[Any]) -> bool:
    """Whether a chunk, or one of its deltas, has a value at a key that no event expresses."""
    if any(chunk[key] for key in chunk if key not in _KNOWN_KEYS):
        return True
    deltas = [as_object(as_object(choice).get("delta")) for choice in choices]
    return any(delta[key] for delta in deltas for key in delta if key not in _KNOWN_DELTA_KEYS)
