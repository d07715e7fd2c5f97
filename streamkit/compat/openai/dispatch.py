"""What one handler is told of one stream: which hooks each canonical event asks for.

On an Assistants stream the hooks are told of the source's own items, so that nothing of them is lost; on any other of
the same items as the Assistants encoder makes them. How a stream ends is told by the canonical events, on both.
"""

# pyright: reportPrivateUsage=false
# It looks at the stream's decoder and ending, whose underscores keep users out.

from __future__ import annotations

import re
import weakref
from collections import deque
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple, cast

import msgspec
from openai.types.beta import AssistantStreamEvent

from ...errors import IncompleteStreamError, RunFailedError, SourceError
from ...events import (
    ConfirmationCreated,
    Event,
    RunDone,
    RunRequiresAction,
    StreamEnd,
    StreamException,
    StreamTimeout,
    ToolCallDone,
)
from ...protocols import Encoder, find, is_object
from ...protocols.openai_assistants.wire import name_and_data
from ...streams.state import StreamState
from .messages import HookCall
from .objects import wire_event
from .snapshots import Record, Story

__all__ = ["PROTOCOL", "Before", "Telling", "earlier"]

PROTOCOL = "openai_assistants"

_live: weakref.WeakValueDictionary[int, Telling] = weakref.WeakValueDictionary()
"""What is told of streams that go on, by its number: the newest last."""
_numbers = count(1)

_outputs_of = re.compile(r"/runs/([^/?]+)/submit_tool_outputs").search


class Before(NamedTuple):
    """What was told of a run that another stream goes on with: by whom, and hooks of it that are to be called first."""

    record: Record
    handler: Any
    rest: Iterator[HookCall] | None


class Telling:
    """What one handler is told of one stream.

    Attributes:
        rest: hooks, and whose, that come before the next event's: those of the event that was interrupted by it.
        typed: openai's events that nobody has taken yet, while somebody iterates.
        further: the streams of the same run that are being read inside this one, the innermost last.
        events: what this one is iterated by.
        opened: whether its request was sent before the stream was given it.
    """

    def __init__(
        self,
        handler: Any,
        stream: StreamState,
        wants: Container[str],
        is_driver: Callable[[StreamState, Sequence[Any]], bool],
        before: Before | None,
    ) -> None:
        self.handler = handler
        self.stream = stream
        self.story = Story(wants, before.record if before else None)
        self.rest = (before.handler, before.rest) if before and before.rest else None
        self.typed: deque[AssistantStreamEvent] | None = None
        self.further: Sequence[Any] = ()
        self.events: Any = None
        self.opened = False
        self._is_driver = is_driver
        self._asking: list[Iterator[HookCall]] = []
        self._encoder: Encoder | None = None
        self._untold: deque[tuple[Any, str | None]] = deque()
        self._first: tuple[str, Any] | None = None  # the first of these, by name and data, once it was looked at
        self._sources: set[int] = set()
        self._last: Any = None
        self._number = next(_numbers)
        _live[self._number] = self

    @property
    def live(self) -> bool:
        """Whether the stream goes on. One whose request was never sent does not."""
        return (self.opened or self.stream.started) and not self.stream.ended

    @property
    def drives(self) -> bool:
        """Whether the caller is the thread or task that drives the stream, which goes on."""
        return not self.stream.ended and self._is_driver(self.stream, self.further)

    @property
    def before(self) -> Before:
        """What a further stream of the run goes on with."""
        return Before(self.story.record, self.handler, self._asking[-1] if self._asking else None)

    def goes_on_with(self, run_id: str | None) -> bool:
        """Whether a stream that answers this run's calls, or nobody knows which, can be read inside this one."""
        return self.drives and (run_id is None or self.story.record.run_id in ("", run_id))

    def go_on(self, before: Before | None) -> None:
        """A further stream is read inside this one, and inside what was told `before`, if that is another's."""
        before = before or self.before
        self.rest = (before.handler, before.rest) if before.rest else None

    def take_rest(self) -> tuple[Any, Iterator[HookCall]] | None:
        rest, self.rest = self.rest, None
        return rest

    def receive(self, items: Sequence[Any]) -> None:
        """Keeps the source's own items until their events are told."""
        decoder = self.stream._decoder
        if decoder is not None and decoder.name != PROTOCOL:
            return
        for item in items:
            if isinstance(item, tuple):
                _, frame_name, data = cast("tuple[bytes, bytes, bytes]", item)  # a frame: no other item is a tuple
                self._untold.append((data, frame_name.decode("utf-8", "replace")))
            else:
                self._untold.append((item, None))
            self._sources.add(id(self._untold[-1][0]))

    @contextmanager
    def asked(self, event: Event) -> Generator[Iterator[HookCall], None, None]:
        """The hooks that this event calls, each to be called before the next is asked for."""
        calls = self._asked(event)
        self._asking.append(calls)
        try:
            yield calls
        except BaseException:
            self._forget()
            raise
        finally:
            self._asking.pop()

    def _asked(self, event: Event) -> Iterator[HookCall]:
        stream, story = self.stream, self.story
        decoder = stream._decoder
        if decoder is not None and decoder.name == PROTOCOL:
            yield from self._tell_items(event)
        elif decoder is not None:
            self._forget()
            self._encoder = self._encoder or cast("Encoder", find(PROTOCOL).Encoder())
            for item in self._encoder.items(event):
                yield from self._tell_item(item["event"], item["data"])
            if isinstance(event, ToolCallDone):
                yield from story.finish_call(event.message.call_id or event.message.id)
        match event:
            case ConfirmationCreated(confirmation=confirmation) if "on_confirmation" in story.wants:
                yield "on_confirmation", (confirmation,)
            case RunDone(run=run):
                yield from self._finish(run.status)
                story.end_run(run.status)
            case StreamTimeout():
                yield from self._finish("failed")
                yield "on_timeout", ()
            case StreamException(exception=exception):
                yield from self._finish("failed")
                yield "on_exception", (exception,)
            case StreamEnd(status=status):
                yield from self._finish(status)
                _live.pop(self._number, None)
                yield "on_end", ()
            case _:
                pass

    def _tell_items(self, event: Event) -> Iterator[HookCall]:
        """The source's items up to the one that this event is of. An item that asks for outputs is told when the calls
        can be answered, which the last of its events says."""
        source = event.raw_item
        if source is None or source is self._last or id(source) not in self._sources:
            return
        while self._untold:
            name, data = self._first = self._first or _named(*self._untold[0])
            reached = self._untold[0][0] is source
            asks = reached and name == "thread.run.requires_action"
            if asks and not isinstance(event, (RunRequiresAction, RunDone)):
                return
            self._pop()
            yield from self._tell_item(name, data)
            if reached:
                self._last = source
                return

    def _tell_item(self, name: str, data: Any) -> Iterator[HookCall]:
        if not name or name == "done":
            return
        if self.typed is not None:
            self.typed.append(wire_event(name, data))
        ending = self._stopped
        for call in self.story.feed(name, data):
            yield call
            if self._stopped and not ending:
                self._forget()
                return

    def _finish(self, status: str) -> Iterator[HookCall]:
        """The rest of the items, if it was the source that ended, and the ends of all that is open."""
        stream, story = self.stream, self.story
        failed = (RunFailedError, IncompleteStreamError, SourceError)
        if self._untold and not self._stopped and (stream.error is None or isinstance(stream.error, failed)):
            while self._untold:
                yield from self._tell_item(*_named(*self._pop()))
        self._forget()
        yield from story.finish(status)

    def _pop(self) -> tuple[Any, str | None]:
        item, self._first = self._untold.popleft(), None
        self._sources.discard(id(item[0]))
        return item

    def _forget(self) -> None:
        self._untold.clear()
        self._first = None
        self._sources.clear()

    @property
    def _stopped(self) -> bool:
        """Whether a hook closed the stream."""
        return bool(getattr(self.stream, "_closing", False))


def _named(source: Any, name: str | None) -> tuple[str, Any]:
    """The name and data of a wire item, as its decoder names it; no name where there is nothing to tell."""
    item = source
    if isinstance(source, bytes):
        try:
            item = msgspec.json.decode(source)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return "", None
        if not (is_object(item) and "event" in item and "data" in item):
            item = {"event": name or "", "data": item}
    return name_and_data(item) if is_object(item) else ("", None)


def earlier(stream: Any, own: Telling | None, kind: type) -> tuple[str | None, bool, Before | None]:
    """Of a stream that the client opened: the run whose calls it answers, whether its request is known, and what was
    told of that run before: by the newest handler of this kind that is live, in this thread or task, which is the
    innermost, or by the one that the stream is for."""
    request = getattr(getattr(stream, "response", None), "request", None)
    match = _outputs_of(str(getattr(request, "url", "")))
    run_id = match[1] if match else None
    others = (reference() for reference in reversed(_live.valuerefs()))
    known = (one for one in others if one is not None and isinstance(one.handler, kind) and one.drives)
    for telling in (one for one in (*known, own) if run_id and one is not None):
        if telling.story.record.run_id == run_id:
            return run_id, True, telling.before
    return run_id, request is not None, None
