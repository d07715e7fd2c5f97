"""Dispatch: which of openai's hooks each canonical event of a stream calls.

On an Assistants stream the hooks get the source's own items, so that nothing in them is lost; on any other stream, the
items that the Assistants encoder makes of the canonical events. The end of a stream comes from the canonical events on
both.

A source's item is pending from `Dispatcher.receive` on. It is dispatched, after all items before it, with the first
canonical event that was decoded from it. There are two exceptions: `thread.run.requires_action` is dispatched with the
last event of its item, when the run's calls can be answered; and items without any event follow at the source's end.
"""

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple

import msgspec
import openai
from openai.types.beta import AssistantStreamEvent

from ...errors import IncompleteStreamError, RunFailedError, SourceError, UsageError
from ...events import (
    ConfirmationCreated,
    Event,
    RunDone,
    RunRequiresAction,
    StreamEnd,
    StreamException,
    StreamTimeout,
    ToolCallCreated,
    ToolCallDone,
    ToolOutputCreated,
)
from ...protocols import Encoder, find, is_object
from ...protocols.base import Decoder
from ...protocols.framing import is_frame
from ...protocols.openai_assistants.shape import name_and_data
from ...streams.state import StreamState
from .messages import HookCall
from .objects import wire_event
from .snapshots import RunSnapshot, SnapshotUpdater

__all__ = ["PROTOCOL", "Continuation", "Dispatcher", "StreamRequest", "client_request"]

PROTOCOL = "openai_assistants"

_active: weakref.WeakValueDictionary[int, Dispatcher] = weakref.WeakValueDictionary()
"""The dispatchers of streams that have not ended, by number: the newest is last."""
_numbers = count(1)

_submit_outputs_path = re.compile(r"/runs/([^/?]+)/submit_tool_outputs").search
# What the client says of an adapted run's missing id.
_names_no_run = re.compile(r"Expected a non-empty value for `(thread_id|run_id)`").match
_SOURCE_ENDINGS = (RunFailedError, IncompleteStreamError, SourceError)


class Continuation(NamedTuple):
    """The state of a run that another stream continues.

    Attributes:
        run: The run's snapshots.
        handler: The handler that has received the run so far.
        calls: That handler's calls which the new stream interrupts; they come first.
    """

    run: RunSnapshot
    handler: Any
    calls: Iterator[HookCall] | None


class StreamRequest(NamedTuple):
    """The request behind a stream that the openai client opened, as far as the stream shows it.

    Attributes:
        run_id: The run that it submits tool outputs to; None for any other request.
        is_visible: Whether the stream has its request at all.
        continuation: The state of that run, if one of our handlers received it.
    """

    run_id: str | None
    is_visible: bool
    continuation: Continuation | None


class Dispatcher:
    """Dispatches the events of one stream to the hooks of one handler.

    Args:
        handler: The handler.
        stream: The stream.
        wanted: Returns the names of the handler's overridden hooks.
        current_reader: Returns the id of the current thread or task.
        continuation: The state of the run that the stream continues, if there is one.

    Attributes:
        snapshots: The run's snapshots, and openai's event that is being dispatched.
        unread: openai's events that iteration has not returned yet; None if the handler is not iterated.
        nested: The streams of the same run that are being read inside this one, the innermost last.
        iterator: The iterator over the stream's events that drives the handler's iteration.
        request_sent: Whether the client had sent the request before the stream was made.
    """

    def __init__(
        self,
        handler: Any,
        stream: StreamState,
        wanted: Callable[[], frozenset[str]],
        current_reader: Callable[[], int],
        continuation: Continuation | None,
    ) -> None:
        self.handler = handler
        self.stream = stream
        self._wanted = wanted
        self._attributes: Mapping[str, Any] = handler.__dict__
        self._count = len(self._attributes)  # with another one there may be another hook
        self.snapshots = SnapshotUpdater(wanted(), continuation.run if continuation else None)
        self.unread: deque[AssistantStreamEvent] | None = None
        self.nested: Sequence[Any] = ()
        self.iterator: Any = None
        self.request_sent = False
        self._interrupted = _interrupted_calls(continuation)
        self._current_reader = current_reader
        self._calls_in_progress: list[Iterator[HookCall]] = []
        self._encoder: Encoder | None = None
        self._pending: deque[tuple[Any, str | None]] = deque()  # items and the names of their SSE frames
        self._pending_ids: set[int] = set()  # of the items
        self._parsed: tuple[str, Any] | None = None  # the first pending item by name and data, once it was parsed
        self._last_item: Any = None
        self._hook_failed = False
        self._latest_call: str | None = None  # the call that is complete, until its end is dispatched
        self._number = next(_numbers)
        _active[self._number] = self

    @property
    def is_live(self) -> bool:
        """Whether the stream is in progress. A stream that never sent its request is not."""
        return (self.request_sent or self.stream.started) and not self.stream.ended

    @property
    def _decoder(self) -> Decoder | None:
        """The decoder of the source that is being read; None before its protocol was recognised."""
        source_decoder = self.stream.source_decoder
        return source_decoder.decoder if source_decoder is not None else None

    @property
    def is_driver(self) -> bool:
        """Whether the caller is the thread or task that drives the stream, or a stream nested in it."""
        driver = getattr(self.stream, "driver", None)
        if self.stream.ended or driver is None:
            return False
        current = self._current_reader()
        return driver == current or any(nested.reader == current for nested in self.nested)

    @property
    def current_event(self) -> AssistantStreamEvent | None:
        """The event that hooks are being called for; None outside of hooks."""
        return self.snapshots.event if self._calls_in_progress else None

    @property
    def continuation(self) -> Continuation:
        """The state of the run at this moment, for a stream that continues it."""
        calls = self._calls_in_progress[-1] if self._calls_in_progress else None
        return Continuation(self.snapshots.run, self.handler, calls)

    def accepts(self, request: StreamRequest) -> bool:
        """Whether a stream of this request can be read inside this one: it is a later stream of the same run, or
        perhaps one, as its request is not visible."""
        if not self.is_driver or (request.is_visible and request.run_id is None):
            return False
        return request.run_id is None or self.snapshots.run.run_id in ("", request.run_id)

    def refuse_reading_in_hooks(self) -> None:
        """Check that the caller may read the stream that is being read.

        Raises:
            UsageError: it is a hook, which that stream waits for.
        """
        if self._calls_in_progress and not self.nested and not self.stream.ended:
            raise UsageError("the stream runs already: a hook cannot read it")

    def interrupt(self, continuation: Continuation | None) -> None:
        """Before the next event's hooks, make the calls that a nested stream interrupts."""
        self._interrupted = _interrupted_calls(continuation or self.continuation)

    def take_interrupted(self) -> tuple[Any, Iterator[HookCall]] | None:
        """Return the handler and the calls to make before the next event's hooks. They are returned once."""
        interrupted, self._interrupted = self._interrupted, None
        return interrupted

    def receive(self, items: Sequence[Any]) -> None:
        """Keep an Assistants source's items until their events arrive."""
        decoder = self._decoder
        if decoder is not None and decoder.name != PROTOCOL:
            return
        for item in items:
            if is_frame(item):
                _, frame_name, data = item
                self._pending.append((data, frame_name.decode("utf-8", "replace")))
            else:
                self._pending.append((item, None))
            self._pending_ids.add(id(self._pending[-1][0]))

    @contextmanager
    def hook_calls(self, event: Event) -> Generator[Iterator[HookCall], None, None]:
        """The hook calls for an event. Make each call before taking the next."""
        if len(self._attributes) != self._count:
            self._count, self.snapshots.wants = len(self._attributes), self._wanted()
        calls = self._hook_calls(event)
        self._calls_in_progress.append(calls)
        item = self.snapshots.item
        try:
            yield calls
        except BaseException as error:
            self._hook_failed = True
            self._drop_pending()
            self._explain(error)
            raise
        finally:
            self._calls_in_progress.pop()
            if self._calls_in_progress:  # a nested stream was read inside a hook, which goes on
                self.snapshots.item = item

    def _explain(self, error: BaseException) -> None:
        """Say in a hook's error how tool calls are answered, if it submitted outputs to the API that this stream is not of."""
        decoder = self._decoder
        if decoder is None or decoder.name == PROTOCOL:
            return
        url = str(error.request.url) if isinstance(error, openai.APIError) else ""
        if _submit_outputs_path(url) or (isinstance(error, ValueError) and _names_no_run(str(error))):
            error.add_note(
                f"This is a stream of {decoder.name}, and not of a thread's run: pass `then=` to `stream` or `astream`, "
                "and submit the outputs here with `self.submit_tool_outputs(outputs)`."
            )

    def _hook_calls(self, event: Event) -> Iterator[HookCall]:
        decoder = self._decoder
        if decoder is not None and decoder.name == PROTOCOL:
            yield from self._dispatch_pending(event)
        elif decoder is not None:
            self._drop_pending()
            if not self._hook_failed:  # as an Assistants server's items are dropped then
                yield from self._dispatch_encoded(event)
        match event:
            case ConfirmationCreated(confirmation=confirmation) if "on_confirmation" in self.snapshots.wants:
                yield "on_confirmation", (confirmation,)
            case RunDone(run=run):
                yield from self._finish(run.status)
                self.snapshots.set_final_status(run.status)
            case StreamTimeout():
                yield from self._finish("failed")
                yield "on_timeout", ()
            case StreamException(exception=exception):
                yield from self._finish("failed")
                yield "on_exception", (exception,)
            case StreamEnd(status=status):
                yield from self._finish(status)
                _active.pop(self._number, None)
                yield "on_end", ()
            case _:
                pass

    def _dispatch_encoded(self, event: Event) -> Iterator[HookCall]:
        """Dispatch the Assistants items that express an event of another protocol."""
        encoder: Encoder = self._encoder or find(PROTOCOL).Encoder()
        self._encoder = encoder
        if is_of_call := isinstance(event, (ToolCallCreated, ToolCallDone, ToolOutputCreated)):
            yield from self._finish_latest_call()
        for item in encoder.items(event):
            yield from self._dispatch_item(item["event"], item["data"])
        if is_of_call and isinstance(event, ToolCallDone):
            self._latest_call = event.message.call_id or event.message.id
            if not self._wants_output(event.message):
                yield from self._finish_latest_call()

    def _wants_output(self, call: Any) -> bool:
        """Whether the run will require the output of a complete call. One that another stream takes the answer to is
        answered while its source goes on."""
        engine, slot = self.stream.engine, call.answer_slot
        is_ours = call.status == "completed" and not call.provider_executed and not engine.pending.executes(call)
        return is_ours and (slot is None or engine.pending.is_own(slot))

    def _finish_latest_call(self) -> Iterator[HookCall]:
        """Dispatch the end of the call that is complete. That of a run's last one is left until the run requires action
        or goes on without: on an Assistants server it comes with that status, which its hooks look for."""
        id, self._latest_call = self._latest_call, None
        if id is not None:
            yield from self.snapshots.finish_call(id)

    def _dispatch_pending(self, event: Event) -> Iterator[HookCall]:
        """Dispatch the pending items up to the one that the event was decoded from."""
        source = event.raw_item
        if source is None or source is self._last_item or id(source) not in self._pending_ids:
            return
        while self._pending:
            name, data = self._parsed = self._parsed or parse_item(*self._pending[0])
            is_source = self._pending[0][0] is source
            requires_action = is_source and name == "thread.run.requires_action"
            if requires_action and not isinstance(event, (RunRequiresAction, RunDone)):
                return
            self._pop_pending()
            yield from self._dispatch_item(name, data)
            if is_source:
                self._last_item = source
                return

    def _dispatch_item(self, name: str, data: Any) -> Iterator[HookCall]:
        if not name or name == "done":
            return
        if self.unread is not None:
            self.unread.append(wire_event(name, data))
        was_stopped = self.stream.is_closing
        for call in self.snapshots.feed(name, data):
            yield call
            if self.stream.is_closing and not was_stopped:  # by the hook that was just called
                self._drop_pending()
                return

    def _finish(self, status: str) -> Iterator[HookCall]:
        """Dispatch the remaining items, if it was the source that ended the stream, and end everything that is open."""
        error = self.stream.error
        source_ended = error is None or isinstance(error, _SOURCE_ENDINGS)
        if self._pending and source_ended and not self.stream.is_closing:
            while self._pending:
                yield from self._dispatch_item(*parse_item(*self._pop_pending()))
        self._drop_pending()
        yield from self.snapshots.finish(status)

    def _pop_pending(self) -> tuple[Any, str | None]:
        item, self._parsed = self._pending.popleft(), None
        self._pending_ids.discard(id(item[0]))
        return item

    def _drop_pending(self) -> None:
        self._pending.clear()
        self._parsed = None
        self._pending_ids.clear()


def _interrupted_calls(continuation: Continuation | None) -> tuple[Any, Iterator[HookCall]] | None:
    if continuation is None or continuation.calls is None:
        return None
    return continuation.handler, continuation.calls


def parse_item(item: Any, frame_name: str | None) -> tuple[str, Any]:
    """Return the event name and the data of a wire item, as the decoder reads them. The name is empty if there is no
    event."""
    value = item
    if isinstance(item, bytes):
        try:
            value = msgspec.json.decode(item)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "", None
        if not (is_object(value) and "event" in value and "data" in value):
            value = {"event": frame_name or "", "data": value}
    return name_and_data(value) if is_object(value) else ("", None)


def client_request(stream: Any, own: Dispatcher | None, kind: type) -> StreamRequest:
    """Return the request behind a stream that the openai client opened, as far as the stream shows it.

    The state of its run comes from the newest live handler of this kind that the current thread or task drives, which
    is the innermost one, or from `own`, the dispatcher of the handler that the stream is for.
    """
    request = getattr(getattr(stream, "response", None), "request", None)
    match = _submit_outputs_path(str(getattr(request, "url", "")))
    if match is None:
        return StreamRequest(None, request is not None, None)
    run_id = match[1]
    references = (reference() for reference in reversed(_active.valuerefs()))
    driven = (
        other for other in references if other is not None and isinstance(other.handler, kind) and other.is_driver
    )
    for dispatcher in (*driven, own):
        if dispatcher is not None and dispatcher.snapshots.run.run_id == run_id:
            return StreamRequest(run_id, True, dispatcher.continuation)
    return StreamRequest(run_id, True, None)
