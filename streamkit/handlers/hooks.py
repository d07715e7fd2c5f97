"""The handlers that users subclass, with every hook declared: `EventHandler`, and `AsyncEventHandler` for `async def`.

A hook that is not overridden costs nothing: the calls of an event are computed once, from what a class overrides.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from ..answers import Confirmation
from ..errors import UsageError
from ..events import (
    CodeDelta,
    ConsoleDelta,
    Delta,
    Event,
    ReasoningDelta,
    RefusalDelta,
    Run,
    RunStep,
    StreamRetry,
    StreamWarning,
    TextDelta,
    ToolCallDelta,
    ToolOutputDelta,
    Usage,
)
from ..messages import (
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
from .hook_names import hook_events, warn_of_near_misses, warn_of_returned_value, warn_of_unknown_hooks
from .root import Call, Handler
from .signatures import check_arguments, is_async, is_plain_method

if TYPE_CHECKING:
    from ..streams.state import StreamState

__all__ = ["AsyncEventHandler", "EventHandler", "Hooks"]

R = TypeVar("R")

_ASSISTANTS_HOOK = "on_run_step_delta"  # the one hook that only openai's own handlers have


class Hooks(Handler, Generic[R]):
    """Every hook, declared once. `R` is what hooks return: None in `EventHandler`, an awaitable in `AsyncEventHandler`.

    The hooks of one message nest: `on_message_created`, `on_text_created`, then for each delta `on_text_delta` and
    `on_message_delta`, then `on_text_done`, `on_message_done`. `on_event` comes before the others of its event.

    A hook may also be assigned to the object, even while the stream runs: it is called from the next event on that is no
    delta.

    An error in a hook ends the stream, and is raised to its reader.
    """

    streamkit_plan_shows_async = True
    # What a hook that is not overridden returns. `R` has no value that is right for a direct subclass of this class.
    _nothing: R = cast("Any", None)
    _streamkit_classes: ClassVar[tuple[type, ...]] = ()  # this class's, and its bases', where hooks may be overridden

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._streamkit_classes = tuple(base for base in cls.__mro__ if base not in _ROOTS)
        warn_of_near_misses(cls, hook_events(), {_ASSISTANTS_HOOK: "streamkit.compat.openai"}, stacklevel=3)

    def bind(self, stream: StreamState) -> None:
        super().bind(stream)
        warn_of_unknown_hooks(type(self), _ROOTS, stacklevel=5)

    def handle(self, event: Event, /) -> Any:
        """Call the hooks of this event, in order. Returns an awaitable if one of them has to be awaited, else None."""
        calls = self._streamkit_hook_calls(type(event))
        for call in calls:
            result = call.function(event) if call.takes_event else call.function(*event.arguments())
            if inspect.isawaitable(result):
                return self._streamkit_await_hooks(call, result, calls, event)
            if result is not None:
                warn_of_returned_value(call.function, result)
        return None

    async def _streamkit_await_hooks(
        self, first: Call, awaitable: Awaitable[Any], calls: Iterable[Call], event: Event
    ) -> None:
        if (returned := await awaitable) is not None:
            warn_of_returned_value(first.function, returned)
        for call in calls:
            result = call.function(event) if call.takes_event else call.function(*event.arguments())
            if inspect.isawaitable(result):
                result = await result
            if result is not None:
                warn_of_returned_value(call.function, result)

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """Return the calls that each kind of event makes to the overridden hooks, or to an overridden `handle`."""
        if self._streamkit_handles():
            return super().streamkit_plan()
        events = hook_events()
        names = self._streamkit_overridden(events)
        if len(names) == 1:
            (name,) = names
            return dict.fromkeys(events[name], (self._streamkit_call(name),))
        calls = {name: self._streamkit_call(name) for name in names}
        kinds = dict.fromkeys(kind for name in calls for kind in events[name])
        return {kind: tuple(calls[name] for name in ("on_event", *kind.hooks) if name in calls) for kind in kinds}

    def _streamkit_hook_calls(self, kind: type[Event]) -> Iterator[Call]:
        """Yield the calls of the overridden hooks for this kind of event."""
        for name in ("on_event", *kind.hooks):
            if name in getattr(self, "__dict__", ()) or _is_overridden(type(self), name):
                yield self._streamkit_call(name)

    def _streamkit_call(self, name: str) -> Call:
        hook = getattr(self, name)
        if (declared := vars(Hooks).get(name)) is not None:  # an application's event may have arguments of its own
            check_arguments(hook, declared, type(self).__name__)
        if is_plain_method(hook):
            return Call(hook, name == "on_event", False)
        if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
            raise UsageError(f"{type(self).__name__}.{name} has a `yield`: as a generator it would never run")
        return Call(hook, name == "on_event", inspect.iscoroutinefunction(hook))

    def _streamkit_overridden(self, events: Mapping[str, object]) -> list[str]:
        """Return the names of the hooks, out of all that there are, that the subclass or the object itself
        overrides."""
        kind, own = type(self), self.__dict__
        found = events.keys() & set(own).union(*map(vars, kind._streamkit_classes))
        names = found if len(found) < 2 else [name for name in events if name in found]
        return [name for name in names if name in own or _is_overridden(kind, name)]

    def _streamkit_handles(self) -> bool:
        """Whether the class overrides `handle`, which then gets every event in place of the hooks."""
        own: object = type(self).handle  # as `object`, since the two are methods of different generic classes
        return own is not Hooks.__dict__["handle"]

    def streamkit_needs_async(self) -> str | None:
        """Return the name of a hook that only an async stream can call; None if there is none."""
        overridden = self._streamkit_overridden(hook_events())
        if isinstance(self, AsyncEventHandler):
            return overridden[0] if overridden else "handle"
        if self._streamkit_handles() and inspect.iscoroutinefunction(self.handle):
            return "handle"
        for name in overridden:
            if is_async(getattr(self, name)):
                return name
        return None

    def on_event(self, event: Event, /) -> R:
        """Called for every event, before the event's other hooks: for logs and metrics, or to forward a stream.

        An event that has no hook of its own (`RawEvent`) arrives here alone.
        """
        return self._nothing

    def on_message_created(self, message: Message, /) -> R:
        """Called when a message of any kind begins. `message` is empty and grows from here on."""
        return self._nothing

    def on_message_delta(self, delta: Delta, snapshot: Message, /) -> R:
        """Called for each delta of a message of any kind.

        `delta.value` is the new text; `snapshot` is the message with this delta in it.
        """
        return self._nothing

    def on_message_done(self, message: Message, /) -> R:
        """Called when a message of any kind has ended.

        `message.status` says how: `completed`, `incomplete`, `cancelled` or `failed`. The message no longer changes, so
        this is the place to store it.
        """
        return self._nothing

    def on_text_created(self, message: TextMessage, /) -> R:
        """Called when a text for the reader begins, for example to open a chat bubble. `message` is empty."""
        return self._nothing

    def on_text_delta(self, delta: TextDelta, snapshot: TextMessage, /) -> R:
        """Called for each delta of a text, typically to print it: `print(delta.value, end="")`.

        `snapshot.content` is the text so far. With `delta.replace`, `delta.value` replaces all of the text before it.
        """
        return self._nothing

    def on_text_done(self, message: TextMessage, /) -> R:
        """Called when a text has ended. `message.content` is all of it, `message.annotations` are its citations."""
        return self._nothing

    def on_annotation(self, annotation: Annotation, snapshot: TextMessage, /) -> R:
        """Called when a citation was added to a text. `snapshot` is the text, with the citation in it."""
        return self._nothing

    def on_reasoning_created(self, message: ReasoningMessage, /) -> R:
        """Called when the model's reasoning, or a summary of it, begins. `message` is empty."""
        return self._nothing

    def on_reasoning_delta(self, delta: ReasoningDelta, snapshot: ReasoningMessage, /) -> R:
        """Called for each delta of the model's reasoning. `snapshot.content` is the reasoning so far."""
        return self._nothing

    def on_reasoning_done(self, message: ReasoningMessage, /) -> R:
        """Called when the reasoning has ended. Encrypted reasoning has the format `redacted` and no text."""
        return self._nothing

    def on_refusal_created(self, message: RefusalMessage, /) -> R:
        """Called when the model begins to refuse the request. `message` is empty."""
        return self._nothing

    def on_refusal_delta(self, delta: RefusalDelta, snapshot: RefusalMessage, /) -> R:
        """Called for each delta of a refusal. `snapshot.content` is the refusal so far."""
        return self._nothing

    def on_refusal_done(self, message: RefusalMessage, /) -> R:
        """Called when a refusal has ended. `message.content` is all of it."""
        return self._nothing

    def on_code_created(self, message: CodeMessage, /) -> R:
        """Called when code that is meant to be run begins. `message.language` is its language, if that has come."""
        return self._nothing

    def on_code_delta(self, delta: CodeDelta, snapshot: CodeMessage, /) -> R:
        """Called for each delta of code. `snapshot.content` is the code so far."""
        return self._nothing

    def on_code_done(self, message: CodeMessage, /) -> R:
        """Called when the code is complete. It has not run yet: `on_confirmation` follows where it needs approval."""
        return self._nothing

    def on_console_created(self, message: ConsoleMessage, /) -> R:
        """Called when running code prints for the first time. `message` is empty."""
        return self._nothing

    def on_console_output(self, delta: ConsoleDelta, snapshot: ConsoleMessage, /) -> R:
        """Called for each delta of what running code prints.

        `delta.metadata["stream"]` is `stdout` or `stderr`, where the source distinguishes them.
        """
        return self._nothing

    def on_console_delta(self, delta: ConsoleDelta, snapshot: ConsoleMessage, /) -> R:
        """Called as `on_console_output`, by the name that the deltas of other families have."""
        return self._nothing

    def on_console_done(self, message: ConsoleMessage, /) -> R:
        """Called when the output of the code has ended. `message.content` is all of it."""
        return self._nothing

    def on_active_line(self, line: int | None, snapshot: ConsoleMessage | None, /) -> R:
        """Called when running code reaches another line, typically to highlight it.

        `line` counts from 1, and is None when nothing runs any more. `snapshot` is the code's output, None as long as
        nothing was printed.
        """
        return self._nothing

    def on_tool_call_created(self, message: ToolCallMessage, /) -> R:
        """Called when a tool call begins. `message.name` is the tool; the arguments are still to come."""
        return self._nothing

    def on_tool_call_delta(self, delta: ToolCallDelta, snapshot: ToolCallMessage, /) -> R:
        """Called for each delta of a tool call's arguments.

        `snapshot.content` is their JSON text so far, `snapshot.arguments` what has come of them, live.
        """
        return self._nothing

    def on_tool_call_done(self, message: ToolCallMessage, /) -> R:
        """Called when a tool call is complete, typically to run the tool: `message.arguments` are its arguments, unless
        `message.malformed` says that the model's JSON cannot be read.

        Where `message.waiting` is true, the stream takes the tool's output: call `message.respond(output)` here, or
        `message.defer()` here and `respond` later from any thread. A call that is not answered ends the run with the
        status `requires_action`.
        """
        return self._nothing

    def on_tool_output_created(self, message: ToolOutputMessage, /) -> R:
        """Called when a tool's output begins. `message.call_id` is the id of the call. `message` is empty."""
        return self._nothing

    def on_tool_output_delta(self, delta: ToolOutputDelta, snapshot: ToolOutputMessage, /) -> R:
        """Called for each delta of a tool's output. `snapshot.content` is the output so far."""
        return self._nothing

    def on_tool_output_done(self, message: ToolOutputMessage, /) -> R:
        """Called when a tool's output is complete, also when `respond` gave it. `message.call_id` is the call's id."""
        return self._nothing

    def on_image_file_done(self, message: ImageMessage, /) -> R:
        """Called when an image is complete. `message.format` says what `message.content` is: a path, URL, id or base64."""
        return self._nothing

    def on_file_done(self, message: FileMessage, /) -> R:
        """Called when a file is complete. `message.format` says whether `message.content` is a path or a file id."""
        return self._nothing

    def on_confirmation(self, confirmation: Confirmation, /) -> R:
        """Called when code or a tool call needs approval before it runs. `confirmation.subject` is what would run.

        Answer with `confirmation.approve()`, `approve(edited)` or `decline(reason)`; or call `confirmation.defer()`
        here, and answer later from any thread. A confirmation that nobody answers is `unanswered`, and the run ends `requires_action`.
        """
        return self._nothing

    def on_confirmation_done(self, confirmation: Confirmation, /) -> R:
        """Called when a confirmation was decided. `confirmation.status` is `approved`, `declined` or `unanswered`."""
        return self._nothing

    def on_run_created(self, run: Run, /) -> R:
        """Called when the run begins. `run` is live: its fields are filled in while the stream goes on."""
        return self._nothing

    def on_run_requires_action(self, run: Run, /) -> R:
        """Called when the run cannot continue without answers. `self.stream.pending` holds what waits for them."""
        return self._nothing

    def on_run_done(self, run: Run, /) -> R:
        """Called when the run has ended. `run.status` says how, `run.usage` holds its tokens if they were counted."""
        return self._nothing

    def on_run_step_created(self, run_step: RunStep, /) -> R:
        """Called when a run step begins: one model call, with the tool and code runs that it asks for."""
        return self._nothing

    def on_run_step_done(self, run_step: RunStep, /) -> R:
        """Called when a run step has ended. `run_step.status` says how, `run_step.usage` holds its tokens."""
        return self._nothing

    def on_usage(self, usage: Usage, /) -> R:
        """Called when the provider reports token counts. Those of the whole run are in `self.stream.usage`."""
        return self._nothing

    def on_warning(self, warning: StreamWarning, /) -> R:
        """Called when the source sent something malformed, which was repaired. Typically it is logged.

        `warning.code` names the fault in a word, `warning.fault` describes it. A strict stream raises `ProtocolError`
        instead.
        """
        return self._nothing

    def on_retry(self, retry: StreamRetry, /) -> R:
        """Called when the source has failed and will be tried again (`retry=`, `fallbacks=`), before the wait.

        `retry.exception` is the error, `retry.withdrawn` has the ids of the failed answer's messages: take back what was
        shown of them. They are done, with the status `failed`, and not in `self.stream.messages` any more.
        """
        return self._nothing

    def on_timeout(self) -> R:
        """Called when the source timed out. `on_exception` follows."""
        return self._nothing

    def on_exception(self, exception: Exception, /) -> R:
        """Called when the stream failed, before `on_end`.

        The error is raised to the reader of the stream as well, so nothing needs to be raised here.
        """
        return self._nothing

    def on_end(self) -> R:
        """Called exactly once, after everything else, however the stream ended. `self.stream.status` says how."""
        return self._nothing


_ROOTS = frozenset((Hooks, Handler, Generic, object))  # the classes that override no hook


def _is_overridden(kind: type, name: str) -> bool:
    """Whether a handler class overrides this hook. `Hooks` itself has no method for an application's events."""
    return getattr(kind, name, None) is not getattr(Hooks, name, None)


class EventHandler(Hooks[None]):
    """The handler to subclass: override the hooks you care about, as plain methods.

        class Printer(sk.EventHandler):
            def on_text_delta(self, delta, snapshot):
                print(delta.value, end="", flush=True)

        sk.stream(source, Printer()).until_done()

    It serves `stream` and `astream`; on an async stream its hooks may be `async def`. `self.stream` is the stream.
    """

    _nothing: None = None


class _Nothing:
    """The result of a hook of `AsyncEventHandler` that is not overridden, so that `await super().on_…()` always works."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


class AsyncEventHandler(Hooks[Awaitable[None]]):
    """The handler to subclass for `astream` where hooks await something: override them as `async def`.

    Each hook is awaited before the stream goes on. `stream` refuses such a handler.
    """

    streamkit_plan_shows_async = False  # it may have no hook at all
    _nothing: Awaitable[None] = _Nothing()
