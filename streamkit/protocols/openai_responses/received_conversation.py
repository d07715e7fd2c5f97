"""The items of a conversation that came from this API, and which of them go back.

The API ties the items of an answer to each other. A call or a search is refused without the reasoning that led to it,
reasoning without what it led to, and an output without its call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from ...messages import Message, ToolCallMessage
from ..request_content import LeftOut, Report
from ..values import WireObject, as_object, as_text
from .item_types import OUTPUT_KEYS
from .received_items import KEY, received_item, restore

__all__ = ["ReceivedConversation"]

_Answer: TypeAlias = tuple[str | None, str | None]  # the run and the step that a message is of

# Items of the provider's that are outputs of other items.
_OUTPUTS = (*OUTPUT_KEYS, "shell_call_output")
# Items that the API takes without an id.
_WITHOUT_ID = ("message", "function_call", "custom_tool_call")


class ReceivedConversation:
    """The items of this API from which some of these messages came.

    Args:
        conversation: all messages of the request; confirmations are passed over.
        report: called with what does not go back.
    """

    def __init__(self, conversation: Iterable[Any], report: Report) -> None:
        self._report = report
        self._forms: dict[tuple[Any, ...], WireObject] = {}  # by item: what its newest message has of it
        self._parts: dict[tuple[Any, ...], list[Message]] = {}  # by item: its messages
        self._answers: set[_Answer] = set()  # with anything that the model itself made
        self._sent: dict[int, tuple[_Answer, Message]] = {}  # by the id() of a restored item
        for message in conversation:
            if isinstance(message, Message):
                self._take(message)
        self._reasoning = {key for key in self._forms if self._parts[key][0].type == "reasoning"}

    def _take(self, message: Message) -> None:
        key = _key(message)
        self._parts.setdefault(key, []).append(message)
        if as_text(received_item(message).get("type")):
            self._forms[key] = as_object(message.metadata[KEY])
            if message.role != "computer":
                self._answers.add(_answer(message))

    def has(self, message: Message) -> bool:
        """Whether a message came from this API with its item, or its item's other messages did."""
        return _key(message) in self._forms

    def parts_of(self, message: Message) -> Sequence[Message]:
        """Return the messages of the same item."""
        return self._parts[_key(message)]

    def items_of(self, message: Message) -> list[dict[str, Any]]:
        """Return the item of this message, at its first message; nothing at the others, or if it does not go back."""
        key = _key(message)
        form, parts = self._forms[key], self._parts[key]
        if message is not parts[0]:
            return []
        received = as_object(form["item"])
        reason = self._reason_to_leave_out(received, form, parts)
        if reason:
            self._report(LeftOut(message, reason))
            return []
        item = restore(received, parts)
        if self._lacks_reasoning(form, message) and item.get("type") in _WITHOUT_ID:
            item.pop("id", None)
        self._sent[id(item)] = (_answer(message), message)
        return [item]

    def _reason_to_leave_out(self, item: WireObject, form: WireObject, parts: Sequence[Message]) -> str:
        type, first = item.get("type"), parts[0]
        if all(part.role == "computer" for part in parts) and not (
            type in _OUTPUTS and _answer(first) in self._answers
        ):
            return "its call is not among the messages"
        if type == "reasoning" and "reasoning" in form and form["reasoning"] is None:
            return "the provider did not store it, and it is not encrypted"
        if isinstance(first, ToolCallMessage) and not first.provider_executed and first.status != "completed":
            return "the call is not complete"
        if type not in _WITHOUT_ID and type != "reasoning" and self._lacks_reasoning(form, first):
            return "the reasoning before it is not among the messages"
        return ""

    def _lacks_reasoning(self, form: WireObject, message: Message) -> bool:
        """Whether there was reasoning before an item that does not go back."""
        id = form.get("reasoning")
        return id is not None and (message.run_id, message.step_id, as_text(id)) not in self._sent_reasoning

    @property
    def _sent_reasoning(self) -> set[tuple[Any, ...]]:
        return {key for key in self._reasoning if self._forms[key].get("reasoning", "") is not None}

    def without_loose_reasoning(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return these items without the reasoning that no other item of its answer follows."""
        result: list[dict[str, Any]] = []
        for item in reversed(items):
            answer, message = self._sent.get(id(item), (None, None))
            follows = bool(result) and self._sent.get(id(result[-1]), (None,))[0] == answer
            if message is not None and item.get("type") == "reasoning" and not follows:
                self._report(LeftOut(message, "nothing of its answer follows it"))
            else:
                result.append(item)
        return result[::-1]


def _key(message: Message) -> tuple[Any, ...]:
    return (message.run_id, message.step_id, message.group or message.id)


def _answer(message: Message) -> _Answer:
    return (message.run_id, message.step_id)
