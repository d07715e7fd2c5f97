"""The root of all handlers, and what a stream computes from the handlers it has: which calls each kind of event makes."""

# Methods that only streams call are named `streamkit_…`, so that all other names are free for subclasses. A class that
# leaves `handle`, `receive` and `bind` to its subclasses as well has streams call another object: see `streamkit_attachable`.

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from ..errors import UsageError
from ..events import EVENTS, Event
from .hook_names import hook_events
from .signatures import check_arguments

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..messages import ToolCallMessage
    from ..streams.state import StreamState

__all__ = ["Call", "Handler", "needs_async", "no_handler", "own_hooks", "plan"]


class Call(msgspec.Struct, frozen=True):
    """One call that an event makes to a handler.

    Attributes:
        function: the hook, or the handler's `handle`.
        takes_event: whether it is called with the event, and not with the hook's own arguments.
        is_async: whether it surely returns an awaitable. If not, its result is checked at each call.
    """

    function: Callable[..., Any]
    takes_event: bool
    is_async: bool


class Handler:
    """The root of all handlers: receives every event, in order. Override `handle`, and `receive` for the raw items.

    A handler serves one stream at a time, and may be used again when that has ended.
    """

    streamkit_plan_shows_async: ClassVar[bool] = False
    """Whether `Call.is_async` in its plan says all that `streamkit_needs_async` does, so that this need not be called."""

    _streamkit_live: StreamState | None = None

    @property
    def stream(self) -> StreamState:
        """The stream that this handler receives, or received last: its messages, run, usage and what waits for answers.

        Raises:
            UsageError: the handler was never passed to a stream.
        """
        if self._streamkit_live is None:
            raise UsageError(f"{type(self).__name__} is on no stream yet; pass it to `stream()` or `astream()`")
        return self._streamkit_live

    def handle(self, event: Event, /) -> Any:
        """Called with each event, once the stream has completed it. On an async stream it may be `async def`."""

    def receive(self, items: Sequence[Any], /) -> None:
        """Called with the source's raw items before they are decoded: SSE frames as `(id, name, data)` in bytes, or the
        objects of an iterable. A recorder overrides it."""

    def around_tool(self, call: ToolCallMessage, /) -> AbstractContextManager[object] | None:
        """Return a context in which an agent runs this call of a tool or of code; None, the default, for no such context.

        It is entered and left in the thread or task that runs the call, that of the first handler first: a tracer makes the
        call's span the parent of what the tool does. What it raises is the call's failure.
        """
        return None

    def streamkit_request(self, protocol: str | None, request: Any) -> None:
        """Called before a source is opened: the request of a model call, or whatever else the stream reads.

        Args:
            protocol: of an agent's request, the protocol of its answer; else None.
            request: of an agent, the `ModelRequest`; else None.
        """

    def bind(self, stream: StreamState) -> None:
        """Attach this handler to a stream. Streams call it when they are made.

        Raises:
            UsageError: the handler is attached to another stream that has not ended, or to this one already.
        """
        live = self._streamkit_live
        if live is not None and live is not stream and live.started and not live.ended:
            raise UsageError(
                f"{self.streamkit_name} is on a live stream already; a handler serves one at a time: run that stream "
                "to its end, or close it"
            )
        if self._streamkit_live is stream:
            raise UsageError(f"{type(self).__name__} was passed twice to the same stream")
        vars(self)["_streamkit_live"] = stream  # also where the class refuses to set attributes, as a frozen dataclass

    def unbind(self, stream: StreamState) -> None:
        """Detach the handler from a stream that could not be made."""
        if self._streamkit_live is stream:
            vars(self)["_streamkit_live"] = None

    @property
    def streamkit_name(self) -> str:
        """The name that errors have for it: that of its class."""
        return type(self).__name__

    def streamkit_attachable(self) -> Handler:
        """Return the handler that streams attach and call for this one: itself, unless its class says otherwise."""
        return self

    def streamkit_receiver(self) -> Callable[[Sequence[Any]], None] | None:
        """Return the method that takes the raw items, None if the handler's class does not override `receive`.

        Raises:
            UsageError: it does not take them.
        """
        if type(self).receive is Handler.receive:
            return None
        check_arguments(self.receive, Handler.receive, type(self).__name__)
        return self.receive

    def streamkit_is_on(self, stream: StreamState) -> bool:
        """Whether this is the stream that the handler was attached to last."""
        return self._streamkit_live is stream

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """Return the calls that each kind of event makes to this handler; kinds that make none may be missing.

        Raises:
            UsageError: it does not take an event.
        """
        check_arguments(self.handle, Handler.handle, type(self).__name__)
        call = Call(self.handle, True, inspect.iscoroutinefunction(self.handle))
        return dict.fromkeys(EVENTS.values(), (call,))

    def _require_init(self, attribute: str, arguments: str) -> None:
        """Check that the class of this object called `super().__init__()`, where that needs arguments.

        Raises:
            UsageError: the attribute that `__init__` sets is missing.
        """
        if not hasattr(self, attribute):
            raise UsageError(f"{type(self).__name__}.__init__ has to call super().__init__({arguments})")

    def streamkit_needs_async(self) -> str | None:
        """Return the name of a method that only an async stream can call; None if there is none."""
        return "handle" if inspect.iscoroutinefunction(self.handle) else None


def no_handler(value: object) -> UsageError:
    """Return the error for a value that is not a handler."""
    if isinstance(value, type) and issubclass(value, Handler):
        hint = f"but the class of one; pass an object of it: {value.__name__}()"
        return UsageError(f"{value.__name__} is not a handler {hint}")
    if isinstance(value, (list, tuple)):
        return UsageError(f"{value!r} is not a handler; handlers are passed one by one")
    return UsageError(f"{value!r} is not a handler; subclass EventHandler, AsyncEventHandler or Handler")


def needs_async(handler: object) -> str | None:
    """Return the name of a hook of this handler that only an async stream can call; None if there is none."""
    if not isinstance(handler, Handler):
        return None  # it is refused later
    return handler.streamkit_attachable().streamkit_needs_async()


def _refuse_async(handler: Handler, calls: Mapping[type[Event], tuple[Call, ...]]) -> None:
    """Check that a sync stream can call this handler, which has this plan.

    Raises:
        UsageError: it has an async hook.
    """
    if handler.streamkit_plan_shows_async and not any(map(_is_async, chain.from_iterable(calls.values()))):
        return  # the common case
    if name := handler.streamkit_needs_async():
        kind = handler.streamkit_name
        raise UsageError(f"{kind}.{name} is async and a sync stream cannot run it: use `astream`")


_is_async = attrgetter("is_async")


def own_hooks(handlers: Iterable[Handler]) -> tuple[tuple[str, int], ...]:
    """Return the hooks that were assigned to these objects themselves, each by name and identity: what `plan` has to be
    computed again for. A stream compares it at every event that is not a delta."""
    names = hook_events().keys()
    return tuple((name, id(vars(handler)[name])) for handler in handlers for name in names & vars(handler).keys())


def plan(handlers: Sequence[Handler], *, awaits: bool) -> Mapping[type[Event], tuple[Call, ...]]:
    """Return the calls that each kind of event makes to these handlers, in their order. Kinds that make none may be
    missing.

    Raises:
        UsageError: one of them has an async hook, which the stream cannot await.
    """
    calls: Mapping[type[Event], tuple[Call, ...]] = {}
    for handler in handlers:
        its_calls = handler.streamkit_plan()
        if not awaits:
            _refuse_async(handler, its_calls)
        calls = _joined(calls, its_calls) if calls else its_calls
    return calls


def _joined(
    calls: Mapping[type[Event], tuple[Call, ...]], more: Mapping[type[Event], tuple[Call, ...]]
) -> dict[type[Event], tuple[Call, ...]]:
    joined = dict(calls)
    for kind, last in more.items():
        joined[kind] = (*joined.get(kind, ()), *last)
    return joined
