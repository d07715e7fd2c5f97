"""One choice of an answer: its part of each chunk, and how it ends.

A finish_reason says how the choice's messages end. They end with the answer, or when content without a finish_reason of its own
begins another turn: some servers have a finish_reason in every chunk, others send the citations of a text after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...messages import Status
from ..output import Output
from ..values import WireObject, as_object, as_text, is_list, is_object
from .delta import DeltaReader
from .open_messages import OpenMessages
from .shape import CHUNK_OBJECTS
from .tool_calls import ToolCalls
from .wire import CHOICE_KEYS, FILTER_RESULTS, FINISH_REASON_STATUS, REASONING_KEYS

__all__ = ["Choice"]

# The fields of a complete message, and the kind that `OpenMessages.seen` has if deltas brought them already.
_KIND_OF_FIELD = {
    **dict.fromkeys((*REASONING_KEYS, "reasoning_details"), "reasoning"),
    "content": "text",
    "refusal": "refusal",
    "audio": "audio",
    "images": "images",
    "function_call": "calls",
    "executed_tools": "executed",
}
_NO_CONTENT = ("role", "annotations", "extra_content")  # keys of a delta with which nothing begins
_USUAL_KEYS = frozenset({"index", "delta", "finish_reason", "logprobs", "message"})


class Choice:
    """One choice, from its first delta to the end of the answer.

    Args:
        index: its index.
        group: the id of the answer.
        new_id: returns an unused message id.
        output: takes events and warnings.

    Attributes:
        finish_reason: the provider's, None until it arrives.
        ending: how its messages end, once a finish_reason has arrived, or all of a complete message; else None.
        is_finished: whether that was ever so.
        extra: the values of its chunks that no event expresses, by key.
        filter_results: what a filter has found in the newest chunk.
        messages: its open messages.
        calls: the tool calls that are open.
        text_id: the open message that a piece of text extends, and does no more; None if it may do more.
        takes_arguments: whether a piece of an open call's arguments does no more than extend them.
        has_changed: whether these two have to be noted anew, by `update_plain_case`.
    """

    def __init__(self, index: int, group: str | None, new_id: Callable[[], str], output: Output) -> None:
        self.index = index
        self.messages = OpenMessages(index, group, new_id, output)
        self.calls = ToolCalls(self.messages, new_id, output)
        self.finish_reason: str | None = None
        self.ending: Status | None = None
        self.is_finished = False
        self.extra: dict[str, Any] = {}
        self.filter_results: Any = None
        self.text_id: str | None = None
        self.takes_arguments = self.has_changed = False
        self._output = output
        self._delta = DeltaReader(self.messages, self.calls, output)
        self._complete_message: WireObject | None = None  # not read until the choice ends

    def feed(self, wire: WireObject) -> bool:
        """Read this choice's object in a chunk. Returns whether it has values at other keys than most."""
        output, count = self._output, len(self._output.events)
        delta, message, reason = wire.get("delta"), wire.get("message"), wire.get("finish_reason")
        if not isinstance(reason, str):
            if reason:
                output.warn("bad-finish-reason", "a finish_reason is not a string; it was skipped")
            reason = None
        if is_object(delta):
            if self.ending is not None and self.begins_another_turn(wire):
                self.end("completed")
            self._delta.read(delta, wire.get("logprobs"))
        elif delta is not None:
            output.warn("bad-delta", "the `delta` of a choice is not an object; it was skipped")
        is_complete = bool(message) and self._take_message(message, delta)
        has_more = False
        if not _USUAL_KEYS.issuperset(wire):
            has_more = self._read_more(wire, is_piece=not reason and len(output.events) > count)
        self.filter_results = wire.get(FILTER_RESULTS)
        if reason or is_complete:
            self._read_complete_message(wire.get("logprobs"))
            self.finish_reason, self.is_finished = reason or self.finish_reason, True
            if self.ending is None or len(output.events) > count:  # another reason alone is about what has ended
                self.ending = FINISH_REASON_STATUS.get(self.finish_reason, "completed")
        self.has_changed = True
        return has_more

    def _take_message(self, message: Any, delta: Any) -> bool:
        """Keep the complete message that a chunk has in place of a delta. Returns whether it ends the choice."""
        is_complete = self._output.item.get("object") in CHUNK_OBJECTS[1:]
        if not is_object(message):
            self._output.warn("bad-message", "the `message` of a choice is not an object; it was skipped")
            return False
        if is_complete or not is_object(delta):
            self._complete_message = message
        return is_complete

    def begins_another_turn(self, wire: WireObject) -> bool:
        """Whether this choice's object in a chunk has content after a finish_reason, and no finish_reason of its own."""
        if self.ending is None or wire.get("finish_reason"):
            return False
        delta = as_object(wire.get("delta"))
        return any(delta[key] for key in delta if key in DeltaReader.readers and key not in _NO_CONTENT)

    def end(self, status: Status) -> None:
        """End everything that is open: as the finish_reason says, or with this status if there was none."""
        self._read_complete_message(None)
        status = self.ending or status
        self.messages.finish_all(status)
        self.calls.finish_all(status)
        self._delta.drop_annotations()
        self.ending, self.has_changed = None, True

    def update_plain_case(self) -> None:
        """Note which pieces do no more than extend an open message, as it has become."""
        self.has_changed = False
        ids, has_ended = self.messages.ids, self.ending is not None or bool(self._complete_message)
        self.takes_arguments = not (has_ended or self._delta.changes_next or "reasoning" in ids or "redacted" in ids)
        self.text_id = ids.get("text") if self.takes_arguments else None

    def _read_more(self, wire: WireObject, *, is_piece: bool) -> bool:
        """Keep what no event expresses. Of a chunk that is a piece of a message, only what a filter has found. Returns as `feed`."""
        more = {key: value for key, value in wire.items() if value and key not in _USUAL_KEYS}
        for key, value in more.items():
            is_metadata = key == FILTER_RESULTS or not (is_piece or key in CHOICE_KEYS)
            if is_metadata and self.extra.get(key) != value:
                self.extra[key] = value
                self._output.hold(None, {key: value})
        return bool(more)

    def _read_complete_message(self, logprobs: Any) -> None:
        """Return the events of the parts of a complete message that deltas have not brought. The rest is compared when its message is
        done."""
        message, self._complete_message = self._complete_message, None
        if message is None:
            return
        messages = self.messages
        rest = {key: value for key, value in message.items() if _KIND_OF_FIELD.get(key) not in messages.seen}
        if is_list(sent := message.get("tool_calls")) and "calls" in messages.seen:
            ids = ("", *self.calls.by_id)
            rest["tool_calls"] = [call for call in sent if as_text(as_object(call).get("id")) not in ids]
            if self.ending is not None or not self.calls.in_order:
                del rest["tool_calls"]  # they ended with an earlier finish_reason
        if "text" in messages.seen and "text" not in messages.ids:
            rest.pop("annotations", None)
        open_before = [*messages.ids]
        self._delta.read(rest, logprobs)
        for key in ("content", "refusal"):
            if _KIND_OF_FIELD[key] in open_before and (content := as_text(message.get(key))):
                messages.final_content[_KIND_OF_FIELD[key]] = content
