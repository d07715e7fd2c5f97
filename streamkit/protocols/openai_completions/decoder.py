"""Legacy Completions chunks, as OpenAI and compatible servers stream them.

Terminal rule: the answer is complete with `[DONE]`, with a finish_reason for every choice that was seen, or with an
error. A stream that ends without any of them was cut off.

Each choice is one text, which ends with the answer: some servers send a finish_reason in each chunk. Text without one, after
all choices have finished, begins another answer, in a step of its own. `RunDone` comes with `[DONE]`, with an error, or at the source's end, because usage may come in a
last chunk after the finish_reason. Completions that were not streamed have the same shape, and are streams of one item.

What servers do differently: choices without an index have their position as index; the usage is in the last chunk, in a
chunk of its own, or in each chunk (vLLM's `continuous_usage_stats`); an error comes at `error` of an item, as an object
or as text, as an item whose `object` is `error` (older vLLM), or in an SSE event named `error` (llama.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ...events import Event, Run, RunCreated, RunDone, RunStep, RunStepDone, TextCreated, TextDelta, TextDone
from ...messages import Status, TextMessage
from .. import base
from ..values import (
    WireObject,
    as_index,
    as_object,
    as_seconds,
    error_object,
    is_list,
    is_object,
    text_or_none,
    usage_of,
    without_keys,
)
from .shape import recognises

__all__ = ["Decoder"]

_FINISH_REASON_STATUS: dict[str, Status] = {"length": "incomplete", "content_filter": "incomplete", "error": "failed"}
_RUN_KEYS = ("id", "object", "created", "model", "choices", "usage", "error")
_CHOICE_KEYS = ("index", "text", "finish_reason", "logprobs")


class Decoder(base.Decoder):
    """Decodes legacy Completions chunks of any server. Logprobs are the `metadata` of their delta."""

    name = "openai_completions"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._open_texts: dict[int, str] = {}  # the id of each choice's message, by the index of the choice
        self._finish_reasons: dict[int, str | None] = {}  # None until the choice has ended
        self._choice_metadata: dict[str, dict[str, Any]] = {}
        self._usage: WireObject = {}
        self._has_begun = False
        self._has_ended = False
        self._warnings: list[Event] = []

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether its `object` is that of legacy Completions. Old servers sent `text_completion.chunk`."""
        return recognises(item)

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one chunk, then the warnings about it."""
        yield from self._begin(item)
        for position, wire in enumerate(self._choices_of(item)):
            yield from self._read_choice(position, wire, item)
        usage = item.get("usage")
        if is_object(usage) and usage != self._usage:
            self._usage = usage
            yield usage_of(usage, "prompt_tokens", "completion_tokens")
        elif usage is not None and not is_object(usage):
            self._warn("bad-usage", "its `usage` is not an object; it was skipped")
        self.complete = self._has_ended or (bool(self._finish_reasons) and None not in self._finish_reasons.values())
        error = item if item.get("object") == "error" else item.get("error")
        if error:
            yield from self._end(error_object(error))
        warnings, self._warnings = self._warnings, []
        yield from warnings

    def sentinel(self, data: bytes) -> Iterator[Event]:
        """Yield the end of the run: `[DONE]` completes an answer."""
        self.complete = True
        yield from self._end()

    def finish(self) -> Iterator[Event]:
        """Yield the end of the run if the answer is complete, else that of the choices that have finished."""
        if self.complete:
            yield from self._end()
        else:
            yield from self._end_texts(None)

    # -- the parts of a chunk

    def _begin(self, item: WireObject) -> Iterator[Event]:
        if self._has_begun or ("choices" not in item and "id" not in item):
            return
        self._has_begun = True
        id, model, created_at = text_or_none(item.get("id")), text_or_none(item.get("model")), item.get("created")
        metadata = without_keys(item, *_RUN_KEYS)
        yield RunCreated(Run(id=id or "", model=model, created_at=as_seconds(created_at), metadata=metadata))

    def _choices_of(self, item: WireObject) -> list[Any]:
        choices = item.get("choices")
        if choices is None or is_list(choices):
            return choices or []
        self._warn("bad-choices", "its `choices` is not a list; it was read as a list of one")
        return [choices]

    def _read_choice(self, position: int, wire: Any, item: WireObject) -> Iterator[Event]:
        if not is_object(wire):
            self._warn("bad-choice", "one of its choices is not an object; it was skipped")
            return
        index = as_index(wire.get("index"), self._warn)
        if index is None:
            index = position
        if self.complete and wire.get("text") and not wire.get("finish_reason"):
            yield from self._begin_another_answer(item)
        self._finish_reasons.setdefault(index, None)
        yield from self._read_text(index, wire.get("text"), as_object(wire.get("logprobs")))
        if extra := without_keys(wire, *_CHOICE_KEYS):
            self._choice_metadata.setdefault(str(index), {}).update(extra)
        reason = wire.get("finish_reason")
        if isinstance(reason, str):
            self._finish_reasons[index] = reason
        elif reason is not None:
            self._warn("bad-finish-reason", "a finish_reason is not a string; it was skipped")

    def _read_text(self, index: int, text: Any, logprobs: WireObject) -> Iterator[Event]:
        """Yield the events of a piece of a choice's text."""
        if text is not None and not isinstance(text, str):
            self._warn("bad-text", "the `text` of a choice is not a string; it was skipped")
        elif text or logprobs:
            if index not in self._open_texts:
                self._open_texts[index] = self.new_id()
                yield TextCreated(TextMessage(self._open_texts[index], choice=index))
            metadata = {"logprobs": dict(logprobs)} if logprobs else None
            yield TextDelta(self._open_texts[index], text or "", metadata=metadata)

    def _end_texts(self, other: Status | None) -> Iterator[Event]:
        """End each text as its finish_reason means, and those without one with this status; None leaves them open."""
        for index in [*self._open_texts]:
            reason = self._finish_reasons.get(index)
            status = other if reason is None else _FINISH_REASON_STATUS.get(reason, "completed")
            if status is not None:
                yield TextDone(TextMessage(self._open_texts.pop(index), choice=index, status=status))

    # -- the run

    def _begin_another_answer(self, item: WireObject) -> Iterator[Event]:
        """Begin another answer: text comes after all choices have finished."""
        yield from self._end_texts("completed")
        yield RunStepDone(RunStep(status="completed"))
        self._finish_reasons, self._usage = {}, {}
        self.complete = self._has_begun = False
        yield from self._begin(item)

    def _end(self, error: WireObject | None = None) -> Iterator[Event]:
        """Yield the end of the run: with an error, or as the finish_reason of its lowest choice means."""
        if self._has_ended:
            return
        self._has_ended = self.complete = True
        yield from self._end_texts("completed" if error is None else "failed")
        reasons = dict(sorted(self._finish_reasons.items()))
        reason = next(iter(reasons.values()), None)
        status = _FINISH_REASON_STATUS.get(reason or "", "completed") if error is None else "failed"
        if status == "failed" and error is None:
            error = error_object(f"the provider ended its answer with the finish_reason {reason!r}")
        metadata: dict[str, Any] = {}
        if self._choice_metadata:
            metadata["choices"] = {index: {**extra} for index, extra in self._choice_metadata.items()}
        if len(reasons) > 1:
            metadata["finish_reasons"] = {str(index): reasons[index] for index in reasons}
        yield RunDone(Run(status=status, error=error, finish_reason=reason, metadata=metadata))

    def _warn(self, code: str, fault: str) -> None:
        self._warnings.append(self.warn(code, fault, "text_completion"))
