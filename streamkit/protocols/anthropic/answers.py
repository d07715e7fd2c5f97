"""The answers of one stream, one after the other: how each begins, what it counts, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ... import messages as m
from ...events import Event, MetadataHeld, PossibleRepeat, Run, RunCreated, RunDone, RunStep, RunStepCreated
from .. import base
from ..held_values import HeldSize, add_values
from ..values import WireObject, as_object, as_text, is_list, is_object, text_or_none, without, without_keys
from .content import BlockIds, ContentBlocks
from .wire import PAUSE_REASONS, usage_of

__all__ = ["Answers"]

# The keys of a message that are not metadata of the run.
_MESSAGE_KEYS = frozenset({"id", "type", "role", "content", "model", "usage", "stop_reason"})

_BEGAN_TWICE = "the message began twice; the second start was dropped"
_BEGAN_TOO_EARLY = "another message began before this one had ended; it was ended here"


class Answers(base.Decoder):
    """The part of the decoder that follows the answers of a stream. Methods with `events` add those of the current item to it."""

    # The state before the first item.
    _is_another_answer = False
    _has_failed = False
    _has_begun = False
    _has_ended = False

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._blocks = ContentBlocks(BlockIds(self.new_id))
        self._usage: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}
        self._held = HeldSize()

    def _warn(self, events: list[Event]) -> None:
        """Add the warnings about the current item."""
        if faults := self._blocks.faults:
            events += [self.warn(code, fault) for code, fault in faults]
            faults.clear()

    def finish(self) -> Iterable[Event]:
        """Return the end of the answer, as far as the source said how it ended."""
        blocks = self._blocks
        if self._has_ended and not blocks.opened:
            return ()
        events: list[Event] = []
        if self.complete:
            self._end(events)
        blocks.cut("incomplete", events)
        self._warn(events)
        return events

    # -- the message

    def _message(self, message: WireObject, events: list[Event]) -> None:
        """A message begins, perhaps with complete content."""
        id = as_text(message.get("id"))
        if self._has_begun and not self._has_ended:
            is_same = id == (self._blocks.group or "")
            self._blocks.warn("duplicate-start", _BEGAN_TWICE if is_same else _BEGAN_TOO_EARLY)
            if is_same:
                self._count_usage(message.get("usage"), events)
                return
            self._blocks.cut("incomplete", events)
            self._has_ended = True
        if self._has_ended:
            self._blocks.restart()
            self._has_ended = self.complete = False
            self._usage, self._metadata = {}, {}
            self._is_another_answer = True
        if others := without(message, _MESSAGE_KEYS):
            self._add_metadata(others, events)
        raw = {**message}
        raw.pop("content", None)
        self._begin(id, text_or_none(message.get("model")), raw, events)
        if self._is_another_answer:
            events.append(RunStepCreated(RunStep()))
        if content := message.get("content"):
            for index, block in enumerate(self._content(content)):
                self._blocks.add_complete(block, index, events)
        self._count_usage(message.get("usage"), events)
        if content:  # without content, a stop_reason is a placeholder
            self._take_stop_reason(message.get("stop_reason"), events)

    def _begin(self, id: str, model: str | None, raw: dict[str, Any], events: list[Event]) -> None:
        """An answer begins: `raw` is its message without the content."""
        self._has_begun = True
        self._blocks.group = id or None
        events.append(RunCreated(Run(id=id, model=model, metadata={**self._metadata}, raw=raw or None)))

    def _content(self, content: Any) -> list[WireObject]:
        """Return the blocks of a message. Text in place of a block, or of all of them, is read as a text block."""
        parts: list[Any] = content if is_list(content) else [content]
        blocks: list[WireObject] = []
        for part in parts:
            if not is_object(part):
                how = "read as a text block" if isinstance(part, str) else "skipped"
                self._blocks.warn("bad-content", f"its content has a {type(part).__name__}, not a block; it was {how}")
            blocks.append({"type": "text", "text": part} if isinstance(part, str) else as_object(part))
        return blocks

    def _count_usage(self, usage: Any, events: list[Event]) -> None:
        """The usage, where it changed. It is cumulative: a count that is not repeated stays."""
        if usage is None:
            return
        if usage.__class__ is not dict and not is_object(usage):
            self._blocks.warn("bad-usage", "its usage is not an object and was skipped")
        else:
            self._add_usage(usage, events)

    def _add_usage(self, usage: WireObject, events: list[Event]) -> None:
        if changed := add_values(self._usage, without_keys(usage)):
            self._hold(changed, events)
            events.append(usage_of(self._usage))

    def _add_metadata(self, values: WireObject, events: list[Event]) -> None:
        """Add to the run's metadata. Its size is reported."""
        if changed := add_values(self._metadata, values):
            self._hold(changed, events)

    def _hold(self, values: WireObject, events: list[Event]) -> None:
        if size := self._held.add(values):
            events.append(MetadataHeld(None, size))

    def _take_stop_reason(self, reason: Any, events: list[Event]) -> None:
        """A stop_reason says how the message ends."""
        if reason is None:
            return
        self.complete = True
        if reason and isinstance(reason, str):
            self._blocks.take_stop_reason(reason, events)
        else:
            self._blocks.is_ending = True
            self._blocks.warn("bad-stop-reason", f"its stop_reason is {reason!r}, not text; read as the message's end")

    # -- its end

    def _end(self, events: list[Event]) -> None:
        """The answer is over, and with it the run, unless another answer follows."""
        self.complete = True
        if self._has_ended:
            return
        self._has_ended = True
        blocks = self._blocks
        status = blocks.end(events)
        reason = blocks.stop_reason
        self.continues_in_next_source = reason in PAUSE_REASONS
        if reason == "refusal":
            self._explain_refusal(events)
        events.append(RunDone(Run(status=status, finish_reason=reason, metadata={**self._metadata})))

    def _explain_refusal(self, events: list[Event]) -> None:
        details = as_object(self._metadata.get("stop_details"))
        if explanation := as_text(details.get("explanation")):
            group, metadata = self._blocks.group, {"stop_details": dict(details)}
            refusal = m.RefusalMessage(
                self._blocks.ids.refusal(group), content=explanation, group=group, metadata=metadata
            )
            # Proxies repeat in it what the model said.
            events.append(PossibleRepeat(refusal, self._blocks.newest_text))
