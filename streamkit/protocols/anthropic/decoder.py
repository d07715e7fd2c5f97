"""Decodes Anthropic's Messages API, and the servers that imitate it.

Terminal rule: `message_stop`; a `stop_reason`, in `message_delta` or in a message that begins with all its content (some
servers leave out what follows it); or an `error`. `[DONE]` alone ends nothing. An answer that is not streamed
(`{"type": "message", …}`) is complete. A `message_start` after the end begins another answer in the same run, in a step of
its own.

Each content block is a message. The first one has the provider's id of the answer, the others have ids made from it, and
calls have their own. `content` says when a block is done.

A run's `finish_reason` is the stop_reason; `max_tokens`, `model_context_window_exceeded`, `refusal`, `pause_turn` and
`compaction` make the run incomplete. If the provider explains a refusal, the explanation is a refusal message.
`Run.metadata` has the answer's other keys: `stop_sequence`, `stop_details`, `container`, `context_management` ….
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from ... import messages as m
from ...events import Delta, Event, PossibleRepeat, Run, RunCreated, RunDone, RunStep, RunStepCreated
from .. import base
from ..held_values import add_values
from ..output import Output
from ..values import WireObject, as_object, as_text, is_list, is_object, text_or_none, without, without_keys
from .content import BlockIds, ContentBlocks
from .shape import recognises
from .wire import HELPER_EVENTS, PAUSE_REASONS, SEARCHES, TRANSIENT_ERRORS, PlainBlockDelta, error_of, usage_of

__all__ = ["Decoder"]

# The keys of a message, and of a `message_delta`, that are not metadata of the run.
_MESSAGE_KEYS = frozenset({"id", "type", "role", "content", "model", "usage", "stop_reason"})
_MESSAGE_DELTA_KEYS = frozenset({"type", "delta", "usage"})

_BEGAN_TWICE = "the message began twice; the second start was dropped"
_BEGAN_TOO_EARLY = "another message began before this one had ended; it was ended here"


class Decoder(base.Decoder):
    """A stream of the Messages API, or one answer that is not streamed."""

    name = "anthropic"
    sse_event_names: ClassVar[frozenset[bytes] | None] = frozenset({b"error"})
    plain_item: ClassVar[Any] = PlainBlockDelta
    transient_errors = TRANSIENT_ERRORS
    searches = SEARCHES

    # The state before the first item.
    _is_another_answer = False
    _has_failed = False
    _has_begun = False
    _has_ended = False

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._output = Output(None)
        self._blocks = ContentBlocks(BlockIds(self.new_id), self._output)
        self._usage: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Whether it is one of this API's items, and cannot be one of the Assistants API's."""
        return recognises(item)

    def plain(self, item: Any) -> Delta | None:
        """Return the event of a delta of an open block."""
        struct, message_id, make_event = self._blocks.growing[item.index]
        return make_event(message_id, item.delta.piece) if item.delta.__class__ is struct else None

    # -- any other item

    def sentinel(self, data: bytes) -> Iterable[Event]:
        """None: this API has no `[DONE]`, and a server that sends one may have cut the answer short."""
        return ()

    def feed(self, item: WireObject) -> Iterable[Event]:
        """Return the events of one item, then the warnings about it."""
        self._output.begin(item)
        self._readers.get(as_text(item.get("type")), Decoder._other)(self, item)
        return self._output.take(self.index)

    def finish(self) -> Iterable[Event]:
        """Return the end of the answer, as far as the source said how it ended."""
        if self.complete:
            self._end()
        self._blocks.cut("incomplete")
        return self._output.take(self.index)

    def _block_start(self, item: WireObject) -> None:
        index = self._blocks.index_of(item, starts=True)
        if not self._blocks.start(index, as_object(item.get("content_block"))):
            self._output.emit_raw("content_block_start")

    def _block_delta(self, item: WireObject) -> None:
        if not self._blocks.delta(self._blocks.index_of(item), as_object(item.get("delta"))):
            self._output.emit_raw("content_block_delta")

    def _block_stop(self, item: WireObject) -> None:
        if not self._blocks.stop(self._blocks.index_of(item)):
            self._output.emit_raw("content_block_stop")

    def _message_start(self, item: WireObject) -> None:
        self._message(as_object(item.get("message")))

    def _message_stop(self, item: WireObject) -> None:
        # Bedrock's metrics are here, and the complete message that the SDK's helper adds.
        self._add_metadata(without_keys(item, "type", "message"))
        self._end()

    def _complete_message(self, item: WireObject) -> None:
        self._message(item)
        if self._blocks.stop_reason is None and (reason := text_or_none(item.get("stop_reason"))) is not None:
            self._blocks.take_stop_reason(reason)
        self._end()

    def _ping(self, item: WireObject) -> None:
        self._output.emit_raw("ping")

    def _other(self, item: WireObject) -> None:
        """An item of another type, or without one, or that comes after an error."""
        kind = as_text(item.get("type"))
        if self._has_failed or (kind and kind not in HELPER_EVENTS):
            self._output.emit_raw(kind)
        elif not kind and item.get("error") is not None:
            self._fail(item)
        elif not kind:
            self._output.warn("no-type", "it has no type and was skipped")

    def _message_delta(self, item: WireObject) -> None:
        delta = as_object(item.get("delta"))
        self._add_metadata(without_keys(delta, "stop_reason") | without(item, _MESSAGE_DELTA_KEYS))
        self._count_usage(item.get("usage"))
        self._take_stop_reason(delta.get("stop_reason"))

    # -- a message begins

    def _message(self, message: WireObject) -> None:
        """A message begins, perhaps with complete content."""
        id = as_text(message.get("id"))
        if self._has_begun and not self._has_ended:
            is_same = id == (self._blocks.group or "")
            self._output.warn("duplicate-start", _BEGAN_TWICE if is_same else _BEGAN_TOO_EARLY)
            if is_same:
                self._count_usage(message.get("usage"))
                return
            self._blocks.cut("incomplete")
            self._has_ended = True
        if self._has_ended:
            self._blocks = ContentBlocks(self._blocks.ids, self._output)
            self._has_ended = self.complete = False
            self._usage, self._metadata = {}, {}
            self._is_another_answer = True
        self._add_metadata(without(message, _MESSAGE_KEYS))
        self._has_begun = True
        self._blocks.group = id or None
        raw = {key: value for key, value in message.items() if key != "content"}
        model, metadata = text_or_none(message.get("model")), {**self._metadata}
        self._output.emit(RunCreated(Run(id=id, model=model, metadata=metadata, raw=raw or None)))
        if self._is_another_answer:
            self._output.emit(RunStepCreated(RunStep()))
        if content := message.get("content"):
            for index, block in enumerate(self._content(content)):
                self._blocks.add_complete(block, index)
        self._count_usage(message.get("usage"))
        if content:  # without content, a stop_reason is a placeholder
            self._take_stop_reason(message.get("stop_reason"))

    def _content(self, content: Any) -> list[WireObject]:
        """Return the blocks of a message. Text in place of a block, or of all of them, is read as a text block."""
        parts: list[Any] = content if is_list(content) else [content]
        blocks: list[WireObject] = []
        for part in parts:
            if not is_object(part):
                how = "read as a text block" if isinstance(part, str) else "skipped"
                self._output.warn("bad-content", f"its content has a {type(part).__name__}, not a block; it was {how}")
            blocks.append({"type": "text", "text": part} if isinstance(part, str) else as_object(part))
        return blocks

    def _count_usage(self, usage: Any) -> None:
        """The usage, where it changed. It is cumulative: a count that is not repeated stays."""
        if usage is None:
            return
        if not is_object(usage):
            self._output.warn("bad-usage", "its usage is not an object and was skipped")
        elif changed := add_values(self._usage, without_keys(usage)):
            self._output.hold(None, changed)
            self._output.emit(usage_of(self._usage))

    def _add_metadata(self, values: WireObject) -> None:
        """Add to the run's metadata. Its size is reported."""
        if changed := add_values(self._metadata, values):
            self._output.hold(None, changed)

    # -- and ends

    def _take_stop_reason(self, reason: Any) -> None:
        """A stop_reason says how the message ends."""
        if reason is None:
            return
        self.complete = True
        if reason and isinstance(reason, str):
            self._blocks.take_stop_reason(reason)
        else:
            self._blocks.is_ending = True
            self._output.warn("bad-stop-reason", f"its stop_reason is {reason!r}, not text; read as the message's end")

    def _end(self) -> None:
        """The answer is over, and with it the run, unless another answer follows."""
        self.complete = True
        if self._has_ended:
            return
        self._has_ended = True
        status, reason = self._blocks.end(), self._blocks.stop_reason
        self.continues_in_next_source = reason in PAUSE_REASONS
        if reason == "refusal":
            self._explain_refusal()
        self._output.emit(RunDone(Run(status=status, finish_reason=reason, metadata={**self._metadata})))

    def _explain_refusal(self) -> None:
        details = as_object(self._metadata.get("stop_details"))
        if explanation := as_text(details.get("explanation")):
            blocks, metadata = self._blocks, {"stop_details": dict(details)}
            id = blocks.ids.refusal(blocks.group)
            refusal = m.RefusalMessage(id, content=explanation, group=blocks.group, metadata=metadata)
            # Proxies repeat in it what the model said.
            self._output.emit(PossibleRepeat(refusal, blocks.newest_text))

    def _fail(self, item: WireObject) -> None:
        """An error ends the answer. After the end it changes nothing."""
        if self._has_ended:
            self._output.emit_raw("error")  # though it may have no type
            return
        self._blocks.cut("failed")
        self._has_failed = self._has_ended = True
        self._readers = {}
        self.complete = self._blocks.is_ending = True
        run = Run(status="failed", error=error_of(item), metadata={**self._metadata}, raw=item)
        self._output.emit(RunDone(run))

    # What reads each type of item, until an error ends the answer.
    _readers: Mapping[str, Callable[[Any, WireObject], None]] = {
        "ping": _ping,
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
        "message": _complete_message,
        "error": _fail,
    }
