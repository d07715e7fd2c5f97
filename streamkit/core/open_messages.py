"""Which messages a stream has: each is created once, empty, before its first delta, and done once, after its last one.

A decoder refers to a message by an id of its own. That is the message's id too, unless another message had it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .. import events as e
from ..errors import LimitError
from ..limits import Limits
from ..messages import COMPACT_AT, ConsoleMessage, Message, Status, ToolCallMessage, ToolOutputMessage, message_class
from ..messages.arguments import read_arguments, repaired_arguments
from ..messages.message import ROLES
from .pending import PendingAnswers, Waker
from .sizes import NO_SIZES, Sizes
from .unique_ids import NumberedIds, UniqueIds
from .warning_list import WarningList

__all__ = ["NOTHING", "OpenMessages", "has_arguments"]


NOTHING: dict[Any, Any] = {}
"""In the place of what a stream needed until it ended, shared by all: nothing is added to it."""

_MEASURE_AT = 128  # deltas of a message, after which it is measured

_NO_NUMBERED_IDS = NumberedIds()


def _new_id_of_none() -> str:
    raise RuntimeError("a stream that has ended gets no more messages")


class OpenMessages(PendingAnswers):
    """The part of the engine that creates messages, finds the open ones, closes them, and measures them.

    Attributes:
        open_by_id: the open messages by their ids, which the decoder uses as well.
        new_id: gives ids for messages that have none: `message-1`, `message-2` … They are free among the messages before the
            present source. When its own messages come is another matter: it depends on how its items are cut.
    """

    # Made for the first message that needs them: most streams have none.
    _renamed: dict[str, Message] = (
        NOTHING  # open messages by the id that the decoder uses, where another message had that id
    )
    _annotated: dict[str, set[bytes]] = NOTHING  # the annotations of open messages
    _early_lines: dict[str, int | None] = NOTHING  # active lines of console messages that have not begun
    _open_calls: dict[str, str] = NOTHING  # the ids of open calls by their call ids
    _answered_early: dict[str, None] = NOTHING  # the ids of open calls whose output has come
    _made_by_id: dict[str, Message] | None = None  # all messages by their ids; made at the first look-up
    _made_ids: UniqueIds | None = None  # most ids are free
    _sizes = NO_SIZES

    def __init__(self, waker: Waker) -> None:
        super().__init__(waker)
        self._messages: list[Message] = []
        self.open_by_id: dict[Any, Message] = {}
        self._numbered_id = numbered_id = NumberedIds()
        self.new_id: Callable[[], str] = numbered_id

    def release(self) -> None:
        """Forget what only further events would need. The messages stay."""
        self.open_by_id = self._renamed = self._made_by_id = self._early_lines = NOTHING
        self._annotated = self._open_calls = self._answered_early = NOTHING
        self._made_ids, self.new_id, self._numbered_id = None, _new_id_of_none, _NO_NUMBERED_IDS
        self._sizes = self._sizes.released()

    @property
    def warning_list(self) -> WarningList:
        """The warnings of the stream."""
        raise NotImplementedError("the engine's")

    # -- sizes

    @property
    def _measured(self) -> Sizes:
        """The sizes, where something is about to be measured."""
        if self._sizes is NO_SIZES:
            self._sizes = Sizes()
        return self._sizes

    @property
    def limits(self) -> Limits:
        """The sizes that end the stream."""
        return self._sizes.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._measured.limits = limits

    def grow(self, message: Message, text: str) -> None:
        """Append text to an open message. Raises as `compact`."""
        message.pieces.append(text)
        if len(message.pieces) >= COMPACT_AT:
            self.compact(message)

    def compact(self, message: Message) -> None:
        """Join the deltas of an open message, and from time to time compare its size with the limits.

        Raises:
            LimitError: it is too long, or all messages together are.
        """
        joined = len(message.pieces)
        if message.compact() % _MEASURE_AT < joined:
            self._measured.measure(message)

    def measure_open(self) -> None:
        """Compare the sizes of all open messages with the limits. Raises as `compact`."""
        for message in (*self.open_by_id.values(), *self._renamed.values()):
            self._measured.measure(message)

    def long_item_came(self, size: int) -> None:
        """Items of this size may fill the memory long before the deltas of a message are joined."""
        if self._measured.are_due(size):
            self.measure_open()

    # -- those that there are

    @property
    def _ids(self) -> UniqueIds:
        """Gives messages ids that no other one has."""
        if self._made_ids is None:
            self._made_ids = UniqueIds(self._by_id)
        return self._made_ids

    @property
    def messages(self) -> list[Message]:
        """All messages, in the order they were created; the open ones are live."""
        return self._messages

    @property
    def open_messages(self) -> list[Message]:
        """Those that have not ended."""
        return [message for message in self._messages if message.status == "in_progress"]

    @property
    def _by_id(self) -> dict[str, Message]:
        """The messages by their ids, and those whose ids are reserved."""
        if (made := self._made_by_id) is None:
            self._made_by_id = made = {message.id: message for message in self._messages}
        return made

    def has_message(self, id: str) -> bool:
        """Whether there is a message with this id."""
        return (self._made_by_id is not None or bool(self._messages)) and id in self._by_id

    def begin_source(self) -> None:
        """A source begins, whose decoder gets `new_id`."""
        if self._messages or self._made_by_id:
            earlier, numbered_id = UniqueIds(frozenset(self._by_id)), self._numbered_id
            self.new_id = lambda: earlier.free(numbered_id())

    def reserve(self, messages: Iterable[Message]) -> None:
        """The ids of these messages, which are not of this stream, are used: its own get others."""
        self._by_id.update((message.id, message) for message in messages if message.id)

    def message_with(self, id: str) -> Message | None:
        """Return the message with this id; None if there is none."""
        return self._by_id.get(id)

    # -- creating

    def _find(self, id: str) -> Message | None:
        return self.open_by_id.get(id) or self._renamed.get(id)

    def complete_created(self, event: e.Created) -> Iterator[e.Event]:
        """A message begins. One that is open already is not created again."""
        template = event.message
        if self._find(template.id) is not None:
            return self._created_twice(event)
        return self._begin(_beginning_of(template), event)

    def complete_new_message(self, event: e.NewMessage) -> Iterator[e.Event]:
        """A message begins, of which no copy is made: the snapshot is the event's message itself."""
        message = event.message
        if self._find(message.id) is not None:
            return self._created_twice(event)
        if message.type != message.default_type or message.role not in ROLES:  # the class may be wrong for them
            return self._begin(_beginning_of(message), event)
        message.status = "in_progress"
        return self._begin(message, event)

    def _created_twice(self, event: e.Created) -> Iterator[e.Event]:
        fault = f"message {event.message.id!r} was created twice; the second was dropped"
        yield self._warn("duplicate-created", fault, event)

    def _create(self, template: Message, cause: e.Event) -> Iterator[e.Event]:
        """Create an empty message with the header of this one."""
        return self._begin(_beginning_of(template), cause)

    def _begin(self, message: Message, cause: e.Event) -> Iterator[e.Event]:
        """Begin a message. Its id is the one by which the decoder refers to it; if another message has that id, it gets a new one."""
        if len(self.open_by_id) + len(self._renamed) >= self._sizes.limits.open_messages:
            raise LimitError("open_messages", self.limits.open_messages)
        runs, key = self.runs, message.id
        if runs.step is None:
            yield from runs.begin_step(e.RunStep(), cause)
        if isinstance(message, ConsoleMessage):
            yield from self._code_runs(message.call_id)
            message.active_line = self._early_lines.pop(key, None)
        # What the code of a call shows answers the call as well.
        is_output = isinstance(message, ToolOutputMessage) or message.role == "computer"
        if is_output and message.call_id is not None and not self._call_answered(message.call_id):
            self._note_early_output(message.call_id)
        if not key or self.has_message(key):
            message.id = self._id_for(key)
        if message.run_id is None and (run := runs.run) is not None:
            message.run_id = run.id
        if message.step_id is None and (step := runs.step) is not None:
            message.step_id = step.id
        if self._made_by_id is not None:
            self._made_by_id[message.id] = message
        self._messages.append(message)
        if isinstance(message, ToolCallMessage):
            if self._open_calls is NOTHING:
                self._open_calls = {}
            self._open_calls.setdefault(message.call_id or message.id, message.id)
        if message.id == key:
            self.open_by_id[key] = message
        else:
            self._rename(key or message.id, message)
        yield message.created_event(message, position=cause.position, raw_item=cause.raw_item)
        if message.metadata:
            self._measured.measure_metadata(message.id, message.metadata)

    def _note_early_output(self, call_id: str) -> None:
        """An output comes. If it is that of a call that is open, this will want none when it is done."""
        if (id := self._open_calls.get(call_id)) is not None:
            if self._answered_early is NOTHING:
                self._answered_early = {}
            self._answered_early[id] = None

    def _rename(self, key: str, message: Message) -> None:
        """The decoder uses another id for a message than the message has. Not all of its deltas are simply appended."""
        if self._renamed is NOTHING:
            self._renamed = {}
        self._renamed[key] = message

    def _id_for(self, key: str) -> str:
        """A free id for a message to which the decoder refers by this id; "" if the decoder has none for it."""
        return self._ids.free(key or self.new_id())

    # -- closing

    def _close(self, key: str, message: Message, status: Status, cause: e.Event) -> Iterator[e.Event]:
        """A message is done. `key` is the id that the decoder uses for it."""
        status = "completed" if status == "in_progress" else status
        call = message if isinstance(message, ToolCallMessage) and not message.provider_executed else None
        pending_key = ""
        if call is not None and status == "completed":
            # A number that is passed over is not found.
            pending_key = self._made_questions.ids.free(call.call_id or call.id)
            yield from self._check_arguments(call, pending_key, cause)  # it is open: if this raises, the end closes it
        self.open_by_id.pop(key, None)
        if self._renamed:
            self._renamed.pop(key, None)
        message.status = status
        message.finish()
        self._sizes.message_done(message)
        if self._annotated:
            self._annotated.pop(message.id, None)
        if isinstance(message, ToolCallMessage):
            call_id = message.call_id or message.id
            if self._open_calls.get(call_id) == message.id:
                del self._open_calls[call_id]
        if call is not None and status == "completed" and call.id not in self._answered_early:
            self._expect_output(call, pending_key)
        yield message.done_event(message, position=cause.position, raw_item=cause.raw_item)

    def _check_arguments(self, call: ToolCallMessage, key: str, cause: e.Event) -> Iterator[e.Event]:
        if call.metadata.get("custom") is True or read_arguments(call.content or "{}") is not None:
            return
        repaired = repaired_arguments(call.content)
        how = (
            "are no JSON object; `arguments` is empty" if repaired is None else f"{repaired.fault}; they were replaced"
        )
        fault = f"the arguments of tool call {key!r} {how}"
        if not self.warning_list.has_fault(fault):  # another engine may have reported it
            yield self._warn("bad-arguments", fault, cause)
        if repaired is not None:
            call.replace_content(repaired.text)
            yield call.delta_event(
                call.id, repaired.text, True, None, call, position=cause.position, raw_item=cause.raw_item
            )


def _beginning_of(template: Message) -> Message:
    """An empty message with the header of this one, of the class that belongs to its type."""
    if type(template) is not message_class(template.type, template.format, template.role):
        template = Message.from_dict(template.to_dict())
    return template.header()


def has_arguments(call: ToolCallMessage) -> bool:
    """Whether the text of a call is a JSON object: its arguments, all of them."""
    return read_arguments(call.content) is not None
