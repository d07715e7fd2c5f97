"""The content of messages: the sum of their deltas, and in the end the provider's own.

What is missing when a message is done comes as one more delta; content that differs is replaced. Text that was cut in the
middle of a character is held until the other half comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .. import events as e
from ..messages import (
    ConsoleMessage,
    Message,
    Status,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
    message_class,
    output_text,
)
from ..messages.arguments import read_arguments, repaired_arguments
from ..messages.json_text import has_surrogates, join_surrogates, json_key
from .message_store import MessageStore
from .pending import PendingAnswers
from .run_tracker import RunTracker
from .split_text import SplitDelta
from .warning_list import WarningList

__all__ = ["MessageContent"]


class MessageContent:
    """Completes what is in the messages of one stream: deltas, final content, annotations, active lines.

    Args:
        messages: the messages.
        runs: the run and its step, in which content comes.
        pending: settles the confirmation of code that runs, and so was approved.
        warning_list: takes the repairs.
    """

    __slots__ = (
        "_annotated",
        "_halves",
        "_messages",
        "_pending",
        "_runs",
        "_warning_list",
    )

    def __init__(
        self, messages: MessageStore, runs: RunTracker, pending: PendingAnswers, warning_list: WarningList
    ) -> None:
        self._messages = messages
        self._runs = runs
        self._pending = pending
        self._warning_list = warning_list
        # The first half of a surrogate pair, by the id of a message that ends with it. Meanwhile the message is among the
        # renamed ones, so that its next delta is completed here.
        self._halves: dict[str, str] = {}
        self._annotated: dict[str, set[bytes]] = {}  # the annotations of open messages

    # -- deltas

    def complete_delta(self, event: e.Delta) -> Iterator[e.Event]:
        """Complete a delta that is not simply appended: the first of its message, one that replaces, or one of a
        renamed message."""
        if not (event.value or event.metadata or event.replace):
            return
        message = self._messages.get_open(event.message_id)
        if message is None:
            yield from self._create_for(event, event)
            message = self._messages.all[-1]
        if self._halves:
            yield from self._end_half(event.message_id, message, event)
        if event.replace:
            message.replace_content(event.value)
        else:
            self._messages.grow(message, event.value)
        yield self._delta(message, event.value, event, replace=event.replace, metadata=event.metadata)

    def _create_for(self, delta: e.Delta, cause: e.Event) -> Iterator[e.Event]:
        """Create the message of a delta."""
        if self._messages.get(delta.message_id) is not None:
            fault = f"a delta came for message {delta.message_id!r}, which was done; it begins another message"
            yield self._warning_list.warn("delta-after-done", fault, cause)
        # A delta of a family without hooks of its own is text.
        family = TextMessage if delta.family in (None, Message) else delta.family
        yield from self._messages.begin(family(delta.message_id, status="in_progress"), cause)

    def _delta(
        self,
        message: Message,
        value: str,
        cause: e.Event,
        *,
        replace: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> e.Event:
        """Return the delta event of text that the message has already."""
        return message.delta_event(
            message.id, value, replace, metadata, message, position=cause.position, raw_item=cause.raw_item
        )

    # -- halves of a surrogate pair

    def complete_split_delta(self, event: SplitDelta) -> Iterator[e.Event]:
        """Emit the text up to the half of a surrogate pair that it ends with, and hold that half."""
        delta, id = event.delta, event.delta.message_id
        if self._messages.get_open(id) is None:
            yield from self._create_for(delta, event)
        text = join_surrogates(self._take_half(id) + event.text)
        half = text[-1:] if has_surrogates(text) else ""
        delta.value = text.removesuffix(half)
        delta.position, delta.raw_item = event.position, event.raw_item
        yield from self.complete_delta(delta)
        if half:
            messages = self._messages
            if id in messages.open_by_id:
                messages.renamed[id] = messages.open_by_id.pop(id)
            self._halves[id] = half

    def _take_half(self, id: str) -> str:
        """Return the half that is held for a message, "" if there is none. Its next deltas may be appended at once
        again."""
        half = self._halves.pop(id, "")
        messages = self._messages
        if half and messages.renamed[id].id == id:
            messages.open_by_id[id] = messages.renamed.pop(id)
        return half

    def _end_half(self, id: str, message: Message, cause: e.Event) -> Iterator[e.Event]:
        """Add U+FFFD for the first half of a surrogate pair without a second half."""
        if self._take_half(id):
            fault = (
                f"a text of message {message.id!r} ends in the middle of a surrogate pair; it was replaced by U+FFFD"
            )
            yield self._warning_list.warn("lone-surrogate", fault, cause)
            message.pieces.append("\ufffd")
            yield self._delta(message, "\ufffd", cause)

    # -- final content

    def complete_done(self, event: e.Done) -> Iterator[e.Event]:
        """Close a message with the provider's own content, and with what else its final form has."""
        final = event.message
        message = self._messages.get_open(final.id)
        if message is None:
            if self._messages.get(final.id) is not None:  # an item and the entire response repeat each other
                yield from self._check_repeated(final, event)
                return
            yield from self._messages.create(final, event)
            message = self._messages.all[-1]
            if final.content:
                message.pieces.append(final.content)
                yield self._delta(message, final.content, event)
        else:
            if self._halves:
                yield from self._end_half(final.id, message, event)
            if final.has_content:
                yield from self._compare(message, final.content, event)
        _take_header(message, final)
        sizes = self._messages.sizes
        if final.metadata:
            message.metadata = {**message.metadata, **final.metadata}
            sizes.measure_metadata(message.id, message.metadata)
        if isinstance(final, TextMessage) and final.annotations and isinstance(message, TextMessage):
            for annotation in final.annotations:
                yield from self._annotate(message, annotation, event)
        sizes.measure(message, is_last=True)
        yield from self._close(final.id or message.id, message, final.status, event)

    def _check_repeated(self, final: Message, event: e.Event) -> Iterator[e.Event]:
        """Warn if the final content of a message that is done comes again and differs."""
        message = self._messages.get(final.id)
        if message is None or not final.has_content or message.content == final.content:
            return
        if not (isinstance(message, ToolCallMessage) and _are_equal_arguments(message.content, final.content)):
            fault = (
                f"the final content of message {final.id!r} differs from the one with which it was done, which stays"
            )
            yield self._warning_list.warn("content-differs", fault, event)

    def complete_possible_repeat(self, event: e.PossibleRepeat) -> Iterator[e.Event]:
        """Complete a message that may repeat the end of another one. It is dropped if it does."""
        message, other = event.message, self._messages.get(event.message_id)
        if other is None or not other.content.rstrip().endswith(message.content.strip()):
            yield from self.complete_done(e.MessageDone(message, position=event.position, raw_item=event.raw_item))

    def complete_message_ended(self, event: e.MessageEnded) -> Iterator[e.Event]:
        """Close a message with the content that its deltas made."""
        key = event.message_id
        if (message := self._messages.get_open(key)) is None:
            return
        if self._halves:
            yield from self._end_half(key, message, event)
        self._messages.sizes.measure(message, is_last=True)
        yield from self._close(key, message, event.status, event)

    def _compare(self, message: Message, final: str, event: e.Event) -> Iterator[e.Event]:
        """Repair a message where its deltas are not the provider's final content: with a delta that adds what is missing,
        else with one that replaces it all."""
        content = message.content
        if content == final:
            return
        adds = final.startswith(content)
        if content:  # a message without deltas needs no repair
            how = "the rest was added" if adds else "it was replaced"
            fault = f"the final content of message {message.id!r} is not the sum of its deltas; {how}"
            yield self._warning_list.warn("content-differs", fault, event)
        message.replace_content(final)
        yield self._delta(message, final[len(content) :] if adds else final, event, replace=not adds)

    def complete_call_passed(self, event: e.CallPassed) -> Iterator[e.Event]:
        """Close a call after which the provider has begun another one, if its arguments are complete."""
        call = self._messages.get_open(event.message.id)
        if isinstance(call, ToolCallMessage) and read_arguments(call.content) is not None:
            done = e.ToolCallDone(event.message, position=event.position, raw_item=event.raw_item)
            yield from self.complete_done(done)

    def output(self, call: ToolCallMessage, value: object) -> Iterator[e.Event]:
        """Add our answer to a tool call, as a message of the stream."""
        id = self._messages.free_id(f"{call.id}.output")  # the provider may have used it for another output
        message = ToolOutputMessage(
            id,
            name=call.name,
            call_id=call.call_id or call.id,
            content=output_text(value),
            choice=call.choice,
        )
        yield from self.complete_done(e.ToolOutputDone(message))

    # -- closing

    def _close(self, key: str, message: Message, status: Status, cause: e.Event) -> Iterator[e.Event]:
        """Close a message with this status. `key` is the id that the decoder uses for it."""
        self._annotated.pop(message.id, None)
        return self._messages.close(key, message, status, cause)

    def close_all(self, status: Status, cause: e.Event, ids: Collection[str] | None = None) -> Iterator[e.Event]:
        """Close all open messages with this status, because their run or its source ends; with `ids` those with these ids."""
        messages = self._messages
        for key, message in [*messages.open_by_id.items(), *messages.renamed.items()]:
            if ids is None or message.id in ids:
                if self._halves:
                    yield from self._end_half(key, message, cause)
                yield from self._close(key, message, status, cause)

    # -- about a message

    def complete_active_line(self, event: e.ActiveLine) -> Iterator[e.Event]:
        """Record the line that running code has reached, perhaps before its output begins."""
        message = self._messages.get_open(event.message_id)
        if message is None and event.line is not None and self._messages.get(event.message_id) is None:
            yield from self._runs.open_step(event)
        yield from self._pending.code_runs(None if message is None else message.call_id)
        if isinstance(message, ConsoleMessage):
            message.active_line = event.line
        elif message is None:
            self._messages.early_lines[event.message_id] = event.line
        id, snapshot = (event.message_id, event.snapshot) if message is None else (message.id, message)
        yield e.ActiveLine(id, event.line, snapshot, position=event.position, raw_item=event.raw_item)

    def complete_annotation(self, event: e.AnnotationAdded) -> Iterator[e.Event]:
        """Add an annotation to an open text."""
        message = self._messages.get_open(event.message_id)
        if isinstance(message, TextMessage):
            yield from self._annotate(message, event.annotation, event)
            return
        fault = f"an annotation came for {event.message_id!r}, which is not an open text; it was dropped"
        yield self._warning_list.warn("stray-annotation", fault, event)

    def _annotate(self, message: TextMessage, annotation: Any, cause: e.Event) -> Iterator[e.Event]:
        seen = self._annotated.setdefault(message.id, set())
        key = json_key(annotation)
        if key in seen:
            return  # it comes with its delta, and again with the complete item
        seen.add(key)
        message.annotations.append(annotation)
        yield e.AnnotationAdded(message.id, annotation, message, position=cause.position, raw_item=cause.raw_item)
        self._messages.sizes.add_beside(message.id, len(key))

    def count_metadata(self, event: e.MetadataHeld) -> Iterator[e.Event]:
        """Count metadata that a decoder holds until a message is done. Emits nothing."""
        message = None if event.held_for is None else self._messages.get_open(event.held_for)
        self._messages.sizes.add_metadata("" if message is None else message.id, event.size)
        return iter(())


def _take_header(message: Message, final: Message) -> None:
    """Take over the header of a message's final form, as far as it has one."""
    if isinstance(message, ToolCallMessage) and isinstance(final, ToolCallMessage):
        message.answer_slot = final.answer_slot  # another stream's: that stream waits for the answer
    if final.name is not None:
        message.name = final.name
    if final.call_id is not None:
        message.call_id = final.call_id
    if final.parent_id is not None:
        message.parent_id = final.parent_id
    if final.recipient is not None:
        message.recipient = final.recipient
    if final.created_at is not None:
        message.created_at = final.created_at
    if final.group is not None:
        message.group = final.group
    if final.format not in (None, message.format):
        kind = message_class(message.type, final.format, message.role)
        message.format = final.format if kind is type(message) else message.format  # it stays what it began as
    if message.format == "summary" and message.type == "reasoning" and final.has_content:
        message.format = final.format  # it had begun before it was certain what comes, which may be no summary


def _are_equal_arguments(one: str, other: str) -> bool:
    repaired = repaired_arguments(other)
    value = read_arguments(one)
    return value is not None and value == read_arguments(other if repaired is None else repaired.text)
