"""The base of all frameworks' decoders: the messages that are open, outputs of calls, the steps and the end of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self

from ...answers import Confirmation
from ...events import (
    ConfirmationCreated,
    Event,
    MessageEnded,
    NewMessage,
    RawEvent,
    Run,
    RunCreated,
    RunDone,
    RunEvent,
    RunStatus,
    RunStep,
    RunStepCreated,
    RunStepDone,
    RunStepEvent,
    Usage,
)
from ...messages import Message, Status, ToolCallMessage, ToolOutputMessage
from .. import base
from ..message_ids import MessageIds
from ..values import WireObject, as_text

__all__ = ["FrameworkDecoder", "fields_of"]


def fields_of(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return those of an object's attributes that have a value."""
    found = ((name, getattr(value, name, None)) for name in names)
    return {name: value for name, value in found if value is not None}


class FrameworkDecoder(base.Decoder):
    """Decodes what a framework yields while an agent runs: one run, with a step for each of the model's responses.

    A subclass defines `item_of`, `readers` and the terminal rule. Its readers use the methods from `_begin_step` on.

    Attributes:
        kind_key: the key of an item that says what kind of item it is.
        readers: what reads an item, by its kind. An item of another kind is a raw event.
        parent_id: the call id of the call whose sub-agent this decoder reads; None for the stream's own agent.
    """

    runs_calls = True
    kind_key: ClassVar[str] = "type"
    readers: ClassVar[Mapping[str, Callable[[Any, WireObject], Iterable[Event]]]] = {}
    parent_id: str | None = None

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._ids = MessageIds(self.new_id)
        self._open: dict[Hashable, Message] = {}  # by a key that the subclass chooses: unique within one response
        self._calls: dict[str, ToolCallMessage] = {}  # without their arguments, by call id
        self._group: str | None = None  # the provider's id of the present response
        self._index = 0  # that of the next message in the present response
        self._finish_reason: str | None = None  # why the present response ended, as far as that is known
        self._has_begun = False

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Return False: `shape.framework_of` tells a framework's items."""
        return False

    def item_of(self, value: Any) -> Any:
        """Return a dict of one of the framework's objects, with what is read of it; anything else as it is."""
        raise NotImplementedError(f"{type(self).__name__}.item_of")

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the events of one item."""
        kind = as_text(item.get(self.kind_key))
        read = self.readers.get(kind)
        if read is None or self.complete:
            yield RawEvent(kind or self.name, dict(item))
        else:
            yield from read(self, item)

    def finish(self) -> Iterator[Event]:
        """Yield the end of what is open where the framework's stream has ended without its last item."""
        yield from self._close_all("incomplete")

    def read_nothing(self, item: WireObject) -> Iterable[Event]:
        """The reader of items that say nothing more than others do."""
        return ()

    # -- the run

    def _begin_run(self, **fields: Any) -> Iterator[Event]:
        """Begin the run, if it has not begun."""
        if not self._has_begun:
            self._has_begun = True
            yield RunCreated(run=Run(**fields))

    def _begin_step(self, response_id: str | None = None, **fields: Any) -> Iterator[Event]:
        """A response of the model begins, and with it a step, which has the outputs of its calls as well. What is open of the one
        before ends. `fields` are those of `RunStep`."""
        yield from self._begin_run()
        yield from self._close_all("completed")
        if self._finish_reason is not None:
            yield RunStepDone(RunStep(status="completed", finish_reason=self._finish_reason))
        self._group, self._index, self._finish_reason = response_id, 0, None
        yield RunStepCreated(RunStep(**fields))

    def _end_run(
        self, status: RunStatus = "completed", finish_reason: str | None = None, error: Mapping[str, Any] | None = None
    ) -> Iterator[Event]:
        """The run has ended: the terminal rule is met."""
        self.complete = True
        open_status: Status = "completed" if status == "requires_action" else status  # type: ignore[assignment]
        yield from self._close_all(open_status)
        yield RunDone(run=Run(status=status, finish_reason=finish_reason or self._finish_reason, error=error))

    # -- its messages

    def _begin(self, kind: type[Message], key: Hashable, id: str | None = None, **fields: Any) -> Iterator[Event]:
        """Begin a message. One with the same key ends."""
        yield from self._close(key)
        message = self._open[key] = kind(
            self._ids.unused(id or ""), group=self._group, index=self._index, parent_id=self.parent_id, **fields
        )
        self._index += 1
        yield NewMessage(message.copy())

    def _begin_call(
        self, key: Hashable, call_id: str | None, name: str, id: str | None = None, **fields: Any
    ) -> Iterator[Event]:
        """Begin a tool call."""
        yield from self._begin(ToolCallMessage, key, id or call_id, call_id=call_id, name=name, **fields)
        if call_id:
            self._calls[call_id] = self._open[key]  # type: ignore[assignment]

    def _extend(self, key: Hashable, text: Any) -> Iterator[Event]:
        """Add a piece to the open message with this key."""
        message = self._open.get(key)
        if message is None:
            yield self.warn("unknown-message", "it extends a message that has not begun; it was skipped")
        elif not isinstance(text, str):
            yield self.warn("bad-text", "a piece of it is not text; it was skipped")
        elif text:
            yield message.delta_event(message.id, text)

    def _replace(self, key: Hashable, text: str) -> Iterator[Event]:
        """Replace the content of the open message with this key."""
        message = self._open[key]
        yield message.delta_event(message.id, text, replace=True)

    def _close(
        self, key: Hashable, status: Status = "completed", metadata: Mapping[str, Any] | None = None
    ) -> Iterator[Event]:
        """End the open message with this key, if there is one."""
        message = self._open.pop(key, None)
        if message is not None and metadata:
            yield message.done_event(type(message)(message.id, status=status, metadata=dict(metadata)))
        elif message is not None:
            yield MessageEnded(message.id, status)

    def _finish(
        self,
        key: Hashable,
        text: str | None,
        status: Status = "completed",
        metadata: Mapping[str, Any] | None = None,
    ) -> Iterator[Event]:
        """End the open message with this key, and state its content, which replaces that of its deltas if it differs. `_close`
        leaves the content to the deltas."""
        if (message := self._open.pop(key, None)) is not None:
            kind = type(message)
            yield kind.done_event(kind(message.id, content=text, status=status, metadata=metadata))

    def _close_all(self, status: Status) -> Iterator[Event]:
        for key in [*self._open]:
            yield from self._close(key, status)

    def _output(
        self, call_id: str | None, text: str, *, name: str | None = None, failed: bool = False, **metadata: Any
    ) -> Event:
        """Return the output of a call, which is complete. `name` is the tool's, where the call may be of another source."""
        if failed:
            metadata["error"] = True
        call = self._calls.get(call_id or "")
        output = ToolOutputMessage(
            self._ids.unused(f"{call_id}.output" if call_id else ""),
            call_id=call_id,
            name=name if call is None else call.name,
            content=text,
            status="failed" if failed else "completed",
            metadata=metadata,
            parent_id=self.parent_id,
        )
        return ToolOutputMessage.done_event(output)

    def _ask(self, call_id: str, arguments: str, *, name: str | None = None) -> Event:
        """Return the question whether a complete call may run."""
        call = self._calls.get(call_id) or ToolCallMessage(call_id, name=name)
        subject = ToolCallMessage(call.id, call_id=call_id, name=call.name, content=arguments, status="completed")
        return ConfirmationCreated(Confirmation(f"{call_id}.approval", subject))

    # -- agents inside of it

    def _inner(self, parent_id: str) -> Self:
        """Return a decoder for the items of the sub-agent that this call began. `_of_inner` passes its events on."""
        inner = type(self)(self.new_id)
        inner._ids, inner.parent_id = self._ids, parent_id
        return inner

    @staticmethod
    def _of_inner(events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of an inner decoder, without those of its run."""
        return (event for event in events if not isinstance(event, RunEvent | RunStepEvent | Usage))
