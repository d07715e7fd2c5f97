"""Handlers: the objects that are told what happens on a stream.

Subclass `EventHandler` (or `AsyncEventHandler`, whose hooks are `async def`) and override the hooks you care about.
A hook that is not overridden costs nothing. The root is `Handler`, which is told every event.
"""

# What streams call on a handler is named `streamkit_…`, so that all other names are free for subclasses.

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar, cast

from .answers import Confirmation
from .errors import UsageError
from .events import (
    EVENTS,
    CodeDelta,
    ConsoleDelta,
    Delta,
    Event,
    ReasoningDelta,
    RefusalDelta,
    Run,
    RunStep,
    StreamWarning,
    TextDelta,
    ToolCallDelta,
    ToolOutputDelta,
    Usage,
    version,
)
from .messages import (
    Annotation,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)

if TYPE_CHECKING:
    from .streams.state import StreamState

__all__ = ["AsyncEventHandler", "Call", "EventHandler", "Handler", "Hooks", "needs_async", "plan"]

R = TypeVar("R")


class Call(NamedTuple):
    """One call that an event asks for. `takes_event`: it takes the event, not the hook's arguments. `is_async`: it is known to
    give an awaitable; of others the result is looked at."""

    function: Callable[..., Any]
    takes_event: bool
    is_async: bool


_MAY_PAUSE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _has_flag(function: Any, look: Callable[[Any], bool]) -> bool:
    """What `inspect` says of a function, without asking it of a plain method."""
    plain = getattr(function, "__func__", None)
    if type(plain) is FunctionType and not plain.__dict__ and not plain.__code__.co_flags & _MAY_PAUSE:
        return False
    return look(function)


class Handler:
    """The root of handlers: told every event, in order. Override `handle`."""

    _streamkit_live: StreamState | None = None

    @property
    def stream(self) -> StreamState:
        """The stream that this handler is told of, or was told of last.

        Raises:
            UsageError: no stream has been given this handler.
        """
        if self._streamkit_live is None:
            raise UsageError(f"{type(self).__name__} is on no stream yet; give it to `stream()` or `astream()`")
        return self._streamkit_live

    def handle(self, event: Event, /) -> Any:
        """Told of each event, after the engine completed it. On an async stream it may be `async def`."""

    def receive(self, items: Sequence[Any], /) -> None:
        """Told the source's own items before they are decoded: SSE frames as `(id, name, data)` in bytes, or objects
        as they came."""

    def bind(self, stream: StreamState) -> None:
        """Put this handler on a stream.

        Raises:
            UsageError: it is on another one that has not ended.
        """
        live = self._streamkit_live
        if live is not None and live is not stream and live.started and not live.ended:
            raise UsageError(
                f"{type(self).__name__} is on a live stream already; a handler serves one at a time: run that stream "
                "to its end, or close it"
            )
        if self._streamkit_live is stream:
            raise UsageError(f"{type(self).__name__} was given twice to the same stream")
        self._streamkit_live = stream

    def unbind(self, stream: StreamState) -> None:
        """Take the handler off a stream that did not come to be."""
        if self._streamkit_live is stream:
            self._streamkit_live = None

    def streamkit_is_on(self, stream: StreamState) -> bool:
        """Whether this is the stream that it was given to last."""
        return self._streamkit_live is stream

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """What each kind of event asks of the handler; those that ask nothing may be missing."""
        call = Call(self.handle, True, inspect.iscoroutinefunction(self.handle))
        return dict.fromkeys(EVENTS.values(), (call,))

    def _made_with(self, attribute: str, arguments: str) -> None:
        """Refuse an object whose class forgot `super().__init__()`, where that needs arguments.

        Raises:
            UsageError: the attribute that it sets is not there.
        """
        if not hasattr(self, attribute):
            raise UsageError(f"{type(self).__name__}.__init__ has to call super().__init__({arguments})")

    def streamkit_needs_async(self) -> str | None:
        """The name of a method that only an async stream can run, None if there is none."""
        return "handle" if inspect.iscoroutinefunction(self.handle) else None


class Hooks(Handler, Generic[R]):
    """Every hook, declared once. `EventHandler` fixes `R` to None, `AsyncEventHandler` to an awaitable.

    A message's hooks are brackets: `on_message_created`, `on_text_created`, then for each piece `on_text_delta` and
    `on_message_delta`, then `on_text_done`, `on_message_done`. `on_event` comes before the others of its event.
    """

    _nothing: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and name not in _hook_events():
                for near in difflib.get_close_matches(name, _hook_events(), 1, 0.8):
                    text = f"{cls.__name__}.{name} is no hook and will never be called; did you mean {near}?"
                    warnings.warn(text, UserWarning, stacklevel=2)

    def handle(self, event: Event, /) -> Any:
        """Calls the hooks of this event, in order. Gives an awaitable where one of them has to be awaited."""
        calls = self._streamkit_hook_calls(type(event))
        for call in calls:
            result = call.function(event) if call.takes_event else call.function(*event.arguments())
            if inspect.isawaitable(result):
                return self._streamkit_await_hooks(result, calls, event)
        return None

    async def _streamkit_await_hooks(self, first: Awaitable[Any], calls: Iterable[Call], event: Event) -> None:
        await first
        for call in calls:
            result = call.function(event) if call.takes_event else call.function(*event.arguments())
            if inspect.isawaitable(result):
                await result

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        if cast("Any", type(self)).handle is not cast("Any", Hooks).handle:
            return super().streamkit_plan()
        calls = {name: self._streamkit_call(name) for name in self._streamkit_overridden()}
        events = _hook_events()
        kinds = dict.fromkeys(kind for name in calls for kind in events[name])
        return {kind: tuple(calls[name] for name in ("on_event", *kind.hooks) if name in calls) for kind in kinds}

    def _streamkit_hook_calls(self, kind: type[Event]) -> Iterator[Call]:
        """The overridden hooks for this kind of event."""
        for name in ("on_event", *kind.hooks):
            if name in getattr(self, "__dict__", ()) or _is_overridden(type(self), name):
                yield self._streamkit_call(name)

    def _streamkit_call(self, name: str) -> Call:
        hook = getattr(self, name)
        if _has_flag(hook, inspect.isgeneratorfunction) or _has_flag(hook, inspect.isasyncgenfunction):
            raise UsageError(f"{type(self).__name__}.{name} has a `yield`: as a generator it would never run")
        return Call(hook, name == "on_event", _has_flag(hook, inspect.iscoroutinefunction))

    def _streamkit_overridden(self) -> list[str]:
        """The names of the hooks that the subclass, or the object itself, has of its own."""
        kind, events = type(self), _hook_events()
        own = events.keys() & getattr(self, "__dict__", {}).keys()
        found = {*own}
        for cls in kind.__mro__:
            if cls not in _ROOTS:
                found |= events.keys() & cls.__dict__.keys()
        names = found if len(found) < 2 else [name for name in events if name in found]
        return [name for name in names if name in own or _is_overridden(kind, name)]

    def streamkit_needs_async(self) -> str | None:
        overridden = self._streamkit_overridden()
        if isinstance(self, AsyncEventHandler):
            return overridden[0] if overridden else "handle"
        if cast("Any", type(self)).handle is not cast("Any", Hooks).handle and inspect.iscoroutinefunction(self.handle):
            return "handle"
        return next((name for name in overridden if _has_flag(getattr(self, name), inspect.iscoroutinefunction)), None)

    def on_event(self, event: Event, /) -> R:
        """Every event, before its other hooks."""
        return self._nothing  # type: ignore[no-any-return]

    def on_message_created(self, message: Message, /) -> R:
        """Any message begins, empty."""
        return self._nothing  # type: ignore[no-any-return]

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> R:
        """A piece of any message; `snapshot` has it in it."""
        return self._nothing  # type: ignore[no-any-return]

    def on_message_done(self, message: Message, /) -> R:
        """Any message is over; `message.status` tells how."""
        return self._nothing  # type: ignore[no-any-return]

    def on_text_created(self, message: TextMessage, /) -> R:
        """A text begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_text_delta(self, delta: TextDelta, snapshot: TextMessage, /) -> R:
        """A piece of text."""
        return self._nothing  # type: ignore[no-any-return]

    def on_text_done(self, message: TextMessage, /) -> R:
        """A text is over."""
        return self._nothing  # type: ignore[no-any-return]

    def on_annotation(self, annotation: Annotation, snapshot: TextMessage, /) -> R:
        """A citation was added to a text."""
        return self._nothing  # type: ignore[no-any-return]

    def on_reasoning_created(self, message: ReasoningMessage, /) -> R:
        """Reasoning begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_reasoning_delta(self, delta: ReasoningDelta, snapshot: ReasoningMessage, /) -> R:
        """A piece of reasoning."""
        return self._nothing  # type: ignore[no-any-return]

    def on_reasoning_done(self, message: ReasoningMessage, /) -> R:
        """Reasoning is over."""
        return self._nothing  # type: ignore[no-any-return]

    def on_refusal_created(self, message: RefusalMessage, /) -> R:
        """A refusal begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_refusal_delta(self, delta: RefusalDelta, snapshot: RefusalMessage, /) -> R:
        """A piece of a refusal."""
        return self._nothing  # type: ignore[no-any-return]

    def on_refusal_done(self, message: RefusalMessage, /) -> R:
        """A refusal is over."""
        return self._nothing  # type: ignore[no-any-return]

    def on_code_created(self, message: CodeMessage, /) -> R:
        """Code begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_code_delta(self, delta: CodeDelta, snapshot: CodeMessage, /) -> R:
        """A piece of code."""
        return self._nothing  # type: ignore[no-any-return]

    def on_code_done(self, message: CodeMessage, /) -> R:
        """The code is complete; nothing has run yet."""
        return self._nothing  # type: ignore[no-any-return]

    def on_console_created(self, message: ConsoleMessage, /) -> R:
        """The output of a run begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_console_output(self, delta: ConsoleDelta, snapshot: ConsoleMessage, /) -> R:
        """A piece of output."""
        return self._nothing  # type: ignore[no-any-return]

    def on_console_done(self, message: ConsoleMessage, /) -> R:
        """The output of a run is over."""
        return self._nothing  # type: ignore[no-any-return]

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> R:
        """The line that runs now, None when nothing does. `snapshot` is None while nothing was printed."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_call_created(self, message: ToolCallMessage, /) -> R:
        """A tool call begins; its name is known."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_call_delta(self, delta: ToolCallDelta, snapshot: ToolCallMessage, /) -> R:
        """A piece of a tool call's arguments."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_call_done(self, message: ToolCallMessage, /) -> R:
        """A tool call is complete; `message.waiting` says whether `message.respond` would be heard."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_output_created(self, message: ToolOutputMessage, /) -> R:
        """A tool's output begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_output_delta(self, delta: ToolOutputDelta, snapshot: ToolOutputMessage, /) -> R:
        """A piece of a tool's output."""
        return self._nothing  # type: ignore[no-any-return]

    def on_tool_output_done(self, message: ToolOutputMessage, /) -> R:
        """A tool's output is complete."""
        return self._nothing  # type: ignore[no-any-return]

    def on_image_file_done(self, message: ImageMessage, /) -> R:
        """An image is complete."""
        return self._nothing  # type: ignore[no-any-return]

    def on_file_done(self, message: FileMessage, /) -> R:
        """A file is complete."""
        return self._nothing  # type: ignore[no-any-return]

    def on_confirmation(self, confirmation: Confirmation, /) -> R:
        """Something wants to run: `approve`, `decline` or `defer`. Undecided is declined."""
        return self._nothing  # type: ignore[no-any-return]

    def on_confirmation_done(self, confirmation: Confirmation, /) -> R:
        """A confirmation was decided."""
        return self._nothing  # type: ignore[no-any-return]

    def on_run_created(self, run: Run, /) -> R:
        """The answer begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_run_requires_action(self, run: Run, /) -> R:
        """The run waits for what is in `self.stream.pending`."""
        return self._nothing  # type: ignore[no-any-return]

    def on_run_done(self, run: Run, /) -> R:
        """The answer is over; `run.status` tells how."""
        return self._nothing  # type: ignore[no-any-return]

    def on_run_step_created(self, run_step: RunStep, /) -> R:
        """A model call begins."""
        return self._nothing  # type: ignore[no-any-return]

    def on_run_step_done(self, run_step: RunStep, /) -> R:
        """A model call and what it asked for are over."""
        return self._nothing  # type: ignore[no-any-return]

    def on_usage(self, usage: Usage, /) -> R:
        """The provider counted tokens."""
        return self._nothing  # type: ignore[no-any-return]

    def on_warning(self, warning: StreamWarning, /) -> R:
        """The source did something odd, which was repaired."""
        return self._nothing  # type: ignore[no-any-return]

    def on_timeout(self) -> R:
        """The source timed out; `on_exception` follows."""
        return self._nothing  # type: ignore[no-any-return]

    def on_exception(self, exception: Exception, /) -> R:
        """The stream failed."""
        return self._nothing  # type: ignore[no-any-return]

    def on_end(self) -> R:
        """The stream is over, however it ended. Called exactly once, last."""
        return self._nothing  # type: ignore[no-any-return]


HOOKS: tuple[str, ...] = ("on_event", *dict.fromkeys(name for kind in EVENTS.values() for name in kind.hooks))
"""The names of streamkit's own hooks, computed from the events."""

_ROOTS = (Hooks, Handler, Generic, object)  # which override none


def _is_overridden(kind: type, name: str) -> bool:
    """Whether a handler class has this hook of its own. `Hooks` itself has none for an application's events."""
    return getattr(kind, name, None) is not getattr(Hooks, name, None)


@cache
def _events_by_hook(version: int) -> dict[str, list[type[Event]]]:
    """The events that call each hook, in the order of HOOKS. `version` is that of the events: applications may declare
    more."""
    by_hook: dict[str, list[type[Event]]] = {"on_event": [*EVENTS.values()]}
    for kind in EVENTS.values():
        for name in kind.hooks:
            by_hook.setdefault(name, []).append(kind)
    return {name: by_hook[name] for name in dict.fromkeys((*HOOKS, *by_hook))}


def _hook_events() -> dict[str, list[type[Event]]]:
    """The events that call each hook there is by now."""
    return _events_by_hook(version())


class EventHandler(Hooks[None]):
    """A handler with plain methods. On an async stream it works as well, and its hooks may be `async def` there."""


class _Nothing:
    """What a hook of `AsyncEventHandler` that is not overridden gives: `await super().on_…()` is always right."""

    def __await__(self) -> Iterator[Any]:
        return iter(())


class AsyncEventHandler(Hooks[Awaitable[None]]):
    """A handler whose hooks are `async def`, for `astream`."""

    _nothing = _Nothing()


def needs_async(handler: object) -> str | None:
    """The name of a hook of this handler that only an async stream can run, None if there is none."""
    return handler.streamkit_needs_async() if isinstance(handler, Handler) else None  # others are refused later


def plan(handlers: Sequence[Handler]) -> dict[type[Event], tuple[Call, ...]]:
    """The calls that each kind of event makes to these handlers, in their order."""
    calls: dict[type[Event], tuple[Call, ...]] = dict.fromkeys(EVENTS.values(), ())
    for handler in handlers:
        for kind, more in handler.streamkit_plan().items():
            calls[kind] += more
    return calls
