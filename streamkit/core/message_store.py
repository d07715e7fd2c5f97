"""The messages of a stream: each is created once, empty, before its first delta, and done once, after its last one.

A decoder refers to a message by an id of its own. That is the message's id too, unless another message had it before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from .. import events as e
from ..errors import LimitError
from ..messages import COMPACT_AT, ConsoleMessage, Message, Status, ToolCallMessage, ToolOutputMessage, message_class
from ..messages.arguments import read_arguments, repaired_arguments
from ..messages.message import ROLES
from .pending import PendingAnswers
from .run_tracker import RunTracker
from .sizes import MessageSizes
from .unique_ids import NumberedIds, UniqueIds
from .warning_list import WarningList

__all__ = ["MessageStore"]

_NO_RETRIES: Mapping[str, e.StreamRetry] = MappingProxyType({})  # of most streams
_MEASURE_AT = 128  # deltas of a message, after which it is measured


class MessageStore:
    """Creates the messages of one stream, finds the open ones, closes them, and measures them.

    Args:
        runs: the run and its step, in which a message begins.
        pending: gets the calls that want an output, and those that got one.
        warning_list: takes the repairs.

    Attributes:
        all: all messages, in the order they were created; the open ones are live.
        open_by_id: the open messages by their ids, which the decoder uses as well.
        renamed: the other open messages, by the decoder's id for them. Their deltas are not simply appended: another message had
            that id, or the text ends with half of a surrogate pair.
        early_lines: the active lines that came before their console messages, by the id of these.
        retries: the events that withdrew messages, by the first id that they name.
        sizes: the sizes of the messages, and their limits.
        new_id: returns ids for messages that have none: `message-1`, `message-2` … No message of an earlier source has them.
            The present source's messages do not count, because which of them exist depends on how its items were cut.
    """

    __slots__ = (
        "_answered_early",
        "_by_id",
        "_ids",
        "_numbered_id",
        "_open_calls",
        "_pending",
        "_runs",
        "_warning_list",
        "all",
        "early_lines",
        "new_id",
        "open_by_id",
        "renamed",
        "retries",
        "sizes",
    )

    def __init__(self, runs: RunTracker, pending: PendingAnswers, warning_list: WarningList) -> None:
        self.all: list[Message] = []
        self.open_by_id: dict[Any, Message] = {}
        self.renamed: dict[str, Message] = {}
        self.early_lines: dict[str, int | None] = {}
        self.retries = _NO_RETRIES
        self.sizes = MessageSizes()
        self._runs = runs
        self._pending = pending
        self._warning_list = warning_list
        self._by_id: dict[str, Message] = {}  # also those with reserved ids
        self._ids = UniqueIds(self._by_id)
        self._open_calls: dict[str, str] = {}  # the ids of open calls by their call ids
        self._answered_early: dict[str, None] = {}  # the ids of open calls with an output that came early
        self._numbered_id = NumberedIds()
        self.new_id: Callable[[], str] = self._numbered_id

    def release(self) -> None:
        """Drop the state that only further events would need, because no more come. The messages stay."""
        for held in (
            self.open_by_id,
            self.renamed,
            self.early_lines,
            self._by_id,
            self._open_calls,
            self._answered_early,
        ):
            held.clear()
        self.new_id = self._numbered_id

    # -- sizes

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
            self.sizes.measure(message)

    def long_item_came(self, size: int) -> None:
        """Note the size of a long item: such items may fill the memory long before the deltas of a message are joined.
        Raises as `compact`."""
        if self.sizes.are_due(size):
            for message in (*self.open_by_id.values(), *self.renamed.values()):
                self.sizes.measure(message)

    # -- finding

    @property
    def open(self) -> list[Message]:
        """The messages that have not ended."""
        return [message for message in self.all if message.status == "in_progress"]

    def get(self, id: str) -> Message | None:
        """Return the message with this id, open or not."""
        return self._by_id.get(id)

    def get_open(self, key: str) -> Message | None:
        """Return the open message to which the decoder refers by this id."""
        return self.open_by_id.get(key) or self.renamed.get(key)

    def begin_source(self) -> None:
        """Make `new_id` for the decoder of a source that begins."""
        if self._by_id:
            earlier, numbered_id = UniqueIds(frozenset(self._by_id)), self._numbered_id
            self.new_id = lambda: earlier.free(numbered_id())

    def end_source(self) -> None:
        """Forget which messages are open: the next source refers to none of them."""
        self.open_by_id.clear()
        self.renamed.clear()

    def reserve(self, messages: Iterable[Message]) -> None:
        """Reserve the ids of messages that are not of this stream: its own get others."""
        self._by_id.update((message.id, message) for message in messages if message.id)

    def free_id(self, id: str) -> str:
        """Return this id, or the next form of it that no message has."""
        return self._ids.free(id)

    def forget(self, message: Message) -> None:
        """Forget the id of a message that is not in `all` any more."""
        self._by_id.pop(message.id, None)
        self._ids.forget(message.id)

    def withdraw(self, retry: e.StreamRetry) -> list[Message]:
        """Take the messages that a retry names out of `all`, and return them. Their ids stay in use."""
        self.note_retry(retry)
        withdrawn = {id(message): message for key in retry.withdrawn if (message := self._by_id.get(key)) is not None}
        if withdrawn:
            self.all[:] = [message for message in self.all if id(message) not in withdrawn]
        return [*withdrawn.values()]

    def note_retry(self, retry: e.StreamRetry) -> None:
        """Remember a retry, for readers that still show the messages that it has withdrawn."""
        if retry.withdrawn:
            plain = replace(retry, exception=None, raw_item=None, position=None)
            self.retries = {**self.retries, retry.withdrawn[0]: plain}

    def forget_retries(self, limit: int) -> None:
        """Forget the oldest retries, with the messages that they withdrew, so that the newest `limit` stay."""
        most = max(0, len(self.retries) - limit)
        for retry in [*self.retries.values()][:most]:
            for message in filter(None, map(self._by_id.get, retry.withdrawn)):
                self.forget(message)
        self.retries = dict([*self.retries.items()][most:]) if most else self.retries

    # -- creating

    def complete_created(self, event: e.Created) -> Iterator[e.Event]:
        """Begin a message, unless it is open already."""
        if self.get_open(event.message.id) is not None:
            return self._created_twice(event)
        return self.create(event.message, event)

    def complete_new_message(self, event: e.NewMessage) -> Iterator[e.Event]:
        """Begin a message without a copy: the event's message becomes the snapshot."""
        message = event.message
        if self.get_open(message.id) is not None:
            return self._created_twice(event)
        if message.type != message.default_type or message.role not in ROLES:  # the class may be wrong for them
            return self.create(message, event)
        message.status = "in_progress"
        return self.begin(message, event)

    def _created_twice(self, event: e.Created) -> Iterator[e.Event]:
        fault = f"message {event.message.id!r} was created twice; the second was dropped"
        yield self._warning_list.warn("duplicate-created", fault, event)

    def create(self, template: Message, cause: e.Event) -> Iterator[e.Event]:
        """Create an empty message with the header of this one."""
        return self.begin(_beginning_of(template), cause)

    def begin(self, message: Message, cause: e.Event) -> Iterator[e.Event]:
        """Begin a message with the decoder's id for it. If another message has that id, it gets a new one."""
        if len(self.open_by_id) + len(self.renamed) >= self.sizes.limits.open_messages:
            raise LimitError("open_messages", self.sizes.limits.open_messages)
        runs, key = self._runs, message.id
        yield from runs.open_step(cause)
        if isinstance(message, ConsoleMessage):
            yield from self._pending.code_runs(message.call_id)
            message.active_line = self.early_lines.pop(key, None)
        # What the code of a call shows answers the call as well.
        is_output = isinstance(message, ToolOutputMessage) or message.role == "computer"
        if is_output and message.call_id is not None and not self._pending.call_answered(message.call_id):
            self._note_early_output(message.call_id)
        if message.parent_id is not None:
            self._pending.call_answered(message.parent_id)  # an agent answers the call: nobody else does
        if not key or key in self._by_id:
            message.id = self._ids.free(key or self.new_id())
        if message.run_id is None and (run := runs.run) is not None:
            message.run_id = run.id
        if message.step_id is None and (step := runs.step) is not None:
            message.step_id = step.id
        self._by_id[message.id] = message
        self.all.append(message)
        if isinstance(message, ToolCallMessage):
            self._open_calls.setdefault(message.call_id or message.id, message.id)
        if message.id == key:
            self.open_by_id[key] = message
        else:
            self.renamed[key or message.id] = message
        yield message.created_event(message, position=cause.position, raw_item=cause.raw_item)
        if message.metadata:
            self.sizes.measure_metadata(message.id, message.metadata)

    def _note_early_output(self, call_id: str) -> None:
        """Note an output of a call that is still open, and so needs none when it is done."""
        if (id := self._open_calls.get(call_id)) is not None:
            self._answered_early[id] = None

    # -- closing

    def close(self, key: str, message: Message, status: Status, cause: e.Event) -> Iterator[e.Event]:
        """Close a message with this status. `key` is the id that the decoder uses for it."""
        status = "completed" if status == "in_progress" else status
        call = message if isinstance(message, ToolCallMessage) and not message.provider_executed else None
        pending_key = ""
        if call is not None and status == "completed":
            pending_key = self._pending.free_key(call)
            # Before it is closed: if this raises, the stream's end closes it.
            yield from self._check_arguments(call, pending_key, cause)
        self.open_by_id.pop(key, None)
        self.renamed.pop(key, None)
        message.status = status
        message.finish()
        self.sizes.message_done(message)
        if isinstance(message, ToolCallMessage):
            call_id = message.call_id or message.id
            if self._open_calls.get(call_id) == message.id:
                del self._open_calls[call_id]
        if call is not None and status == "completed" and call.id not in self._answered_early:
            self._pending.expect_output(call, pending_key)
        yield message.done_event(message, position=cause.position, raw_item=cause.raw_item)

    def _check_arguments(self, call: ToolCallMessage, key: str, cause: e.Event) -> Iterator[e.Event]:
        if call.metadata.get("custom") is True or read_arguments(call.content or "{}") is not None:
            return
        repaired = repaired_arguments(call.content)
        how = (
            "are not a JSON object; `arguments` is empty"
            if repaired is None
            else f"{repaired.fault}; they were replaced"
        )
        fault = f"the arguments of tool call {key!r} {how}"
        if not self._warning_list.has_fault(fault):  # another engine may have reported it
            yield self._warning_list.warn("bad-arguments", fault, cause)
        if repaired is not None:
            call.replace_content(repaired.text)
            yield call.delta_event(
                call.id, repaired.text, True, None, call, position=cause.position, raw_item=cause.raw_item
            )


def _beginning_of(template: Message) -> Message:
    """Return an empty message with the header of this one, of the class that belongs to its type."""
    if type(template) is not message_class(template.type, template.format, template.role):
        template = Message.from_dict(template.to_dict())
    return template.header()
