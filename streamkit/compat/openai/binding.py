"""The base of both Assistants handlers: their hooks, what they report of the run, and how they are put on a stream.

The rule for names: a subclass of a handler may use any name of its own, private ones too. So everything that the
handlers keep has `_streamkit` in its name, and all state of a stream is in one object, the `Dispatcher`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...errors import UsageError
from ...events import EVENTS, Event
from ...handlers import HOOKS as OWN_HOOKS
from ...handlers import Call, Handler, check_arguments, warn_of_near_misses
from ...messages import ToolCallMessage
from ...sources.recognition import async_iterator_of, iterator_of
from ...sources.sdk_streams import OpenedStream
from ...streams.options import StreamOptions
from ...streams.readers import GeneratorLoop
from ...streams.state import StreamState
from .dispatch import PROTOCOL, Continuation, Dispatcher, client_request
from .snapshots import RunSnapshot

__all__ = ["ALL_HOOKS", "HOOKS", "BoundHandler", "ClientStream"]

HOOKS: tuple[str, ...] = tuple(name for name in dir(openai.AssistantEventHandler) if name.startswith("on_"))
"""The names of openai's 17 hooks."""
ALL_HOOKS = (*HOOKS, "on_confirmation")
"""Those, and streamkit's own."""

_DONE = {"event": "done", "data": "[DONE]"}

M = TypeVar("M")
N = TypeVar("N")


class BoundHandler(Handler):
    """A handler with openai's hooks and accessors that can be put on streamkit's streams."""

    _streamkit: Dispatcher | None = None
    _streamkit_continuation: Continuation | None = None
    _streamkit_plain: ClassVar[type]  # the class of hooks that do nothing: AssistantEventHandler or its async twin

    def __init__(self) -> None:
        """Sets nothing up, so a subclass need not call it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if BoundHandler in cls.__bases__:
            cls._streamkit_plain = cls
        warn_of_near_misses(cls, ALL_HOOKS, dict.fromkeys(OWN_HOOKS, "streamkit itself"), stacklevel=3)
        for name in ALL_HOOKS:
            cls._streamkit_check_hook(name, getattr(cls, name, None))

    @classmethod
    def _streamkit_check_hook(cls, name: str, hook: Any) -> None:
        """Refuse a hook that would never run."""
        if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
            raise UsageError(f"{cls.__name__}.{name} has a `yield`: as a generator it would never run")

    def __bool__(self) -> bool:
        # The openai client replaces a false handler with one of its own, and a subclass may have a `__len__`.
        return True

    # -- the accessors of openai's handler

    @property
    def current_event(self) -> AssistantStreamEvent | None:
        """The event that hooks are being called for; None outside of hooks."""
        return self._streamkit.current_event if self._streamkit else None

    @property
    def current_run(self) -> Run | None:
        """The run, as the service reported it last; None before it began."""
        return self._streamkit_run().run

    @property
    def current_run_step_snapshot(self) -> RunStep | None:
        """The run step that is in progress; live, so it grows with each delta. None between steps."""
        step = self._streamkit_run().current_step
        return step.live if step else None

    @property
    def current_message_snapshot(self) -> Message | None:
        """The message of the latest event that had one; live, so it grows with each delta."""
        message = self._streamkit_run().current_message
        return message.live if message else None

    def _streamkit_text_deltas(self) -> Any:
        """Return the assistant's text as it arrives, a string for each delta. Reading it drives the stream.

        Raises:
            StreamkitError: The stream failed.
        """
        deltas: Any = self._streamkit_innermost(self._streamkit_manager()).text_deltas
        return GeneratorLoop(deltas) if hasattr(deltas, "send") else deltas  # that of an async stream raises by itself

    # openai declares an attribute, so it is one for type checkers; the subclasses declare its type.
    text_deltas: Any = property(_streamkit_text_deltas)

    def _streamkit_run(self) -> RunSnapshot:
        return self._streamkit.snapshots.run if self._streamkit else RunSnapshot()

    def _streamkit_final_run(self) -> Run:
        run = self.current_run
        if run is None:
            raise UsageError("the stream ended before any run began")
        return run

    def _streamkit_final_run_steps(self) -> list[RunStep]:
        return [step.live for step in self._streamkit_run().steps]

    def _streamkit_final_messages(self) -> list[Message]:
        return [message.live for message in self._streamkit_run().messages]

    # -- on a stream

    @property
    def stream(self) -> StreamState:
        """The stream that the handler is on, or was on last.

        `self.stream.pending[tool_call.id].respond(…)` answers a tool call of a stream with `then=`. A subclass may
        assign something else to this name.

        Raises:
            UsageError: The handler was not put on a stream yet.
        """
        if "stream" in self.__dict__:
            stream: StreamState = self.__dict__["stream"]
            return stream
        return self._streamkit_stream()

    @stream.setter
    def stream(self, value: Any) -> None:
        self.__dict__["stream"] = value

    def _streamkit_stream(self) -> StreamState:
        return self._streamkit_dispatcher().stream

    def _streamkit_dispatcher(self) -> Dispatcher:
        if self._streamkit is None:
            name = type(self).__name__
            raise UsageError(f"{name} is on no stream yet; give it to the client, or to `stream()` or `astream()`")
        return self._streamkit

    def _streamkit_manager(self) -> Any:
        """Return the manager that drives the stream.

        Raises:
            UsageError: The handler is on no stream, or on one that it cannot drive.
        """
        raise NotImplementedError

    def _streamkit_innermost(self, manager: M) -> Any | M:
        """Return the innermost nested stream, which is what is being read; the manager if there is none."""
        nested = self._streamkit_dispatcher().nested
        return nested[-1] if nested else manager

    # What streams call is an object of its own, so that a subclass may have methods of the same names.

    def streamkit_attachable(self) -> Handler:
        """Return the handler that a stream attaches and calls."""
        return _Attached(
            name=type(self).__name__,
            handle=self._streamkit_handle,
            receive=self._streamkit_receive,
            bind=self._streamkit_bind,
            unbind=self._streamkit_unbind,
            is_on=self._streamkit_is_on,
            plan=self._streamkit_plan,
            needs_async=self._streamkit_needs_async,
        )

    def handle(self, event: Event, /) -> Any:
        """Calls the hooks of an event, in order, for handlers that wrap this one. A subclass may use the name."""
        return self._streamkit_handle(event)

    def receive(self, items: Sequence[Any], /) -> None:
        """Receives a source's items before they are decoded, from handlers that wrap this one. A subclass may use the
        name."""
        self._streamkit_receive(items)

    def bind(self, stream: StreamState) -> None:
        """Attaches the handler to a stream, for handlers that wrap this one. A subclass may use the name."""
        self._streamkit_bind(stream)

    def unbind(self, stream: StreamState) -> None:
        """Detaches the handler from a stream that could not be made. A subclass may use the name."""
        self._streamkit_unbind(stream)

    def streamkit_is_on(self, stream: StreamState) -> bool:
        """Whether this is the stream that the handler is on."""
        return self._streamkit_is_on(stream)

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """Return the calls for each kind of event."""
        return self._streamkit_plan()

    def streamkit_needs_async(self) -> str | None:
        """Return the name of a hook that only an async stream can call; None if there is none."""
        return self._streamkit_needs_async()

    def _streamkit_bind(self, stream: StreamState) -> None:
        """Put the handler on a stream; `stream()`, `astream()` and the client's streams do it.

        Raises:
            UsageError: The handler is on that stream already, or on another one that is in progress.
        """
        if self._streamkit_is_on(stream):
            raise UsageError(f"{type(self).__name__} was passed twice to the same stream")
        if self._streamkit is not None and self._streamkit.is_live:
            raise self._streamkit_busy()
        own = vars(self)  # not by setting attributes, which a frozen dataclass refuses
        continuation = own.pop("_streamkit_continuation", None)
        own["_streamkit"] = Dispatcher(
            self, stream, self._streamkit_wanted, self._streamkit_current_reader, continuation
        )

    def _streamkit_unbind(self, stream: StreamState) -> None:
        if self._streamkit_is_on(stream):
            vars(self)["_streamkit"] = None

    def _streamkit_receive(self, items: Sequence[Any]) -> None:
        if self._streamkit is not None:
            self._streamkit.receive(items)

    def _streamkit_is_on(self, stream: StreamState) -> bool:
        return self._streamkit is not None and self._streamkit.stream is stream

    def _streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """Return the calls of each event: one method, which finds the hooks.

        Raises:
            UsageError: A hook does not take its arguments.
        """
        for name in self._streamkit_wanted():
            check_arguments(getattr(self, name), getattr(self._streamkit_plain, name), type(self).__name__)
        function = self._streamkit_handle
        return dict.fromkeys(EVENTS.values(), (Call(function, True, inspect.iscoroutinefunction(function)),))

    def _streamkit_handle(self, event: Event) -> Any:
        """Call the hooks of an event, in order."""
        raise NotImplementedError

    def _streamkit_needs_async(self) -> str | None:
        raise NotImplementedError

    def _streamkit_wanted(self) -> frozenset[str]:
        """Return the names of the overridden hooks."""
        return frozenset(name for name in ALL_HOOKS if self._streamkit_overrides(name))

    def _streamkit_overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(self._streamkit_plain, name) or name in self.__dict__

    @staticmethod
    def _streamkit_current_reader() -> int:
        """Return the id of the current thread or task."""
        raise NotImplementedError

    # -- on a stream that the openai client opened

    def _streamkit_begin(
        self, source: ClientStream, new_manager: Callable[..., M], new_nested: Callable[..., N]
    ) -> M | N:
        """Read a stream that the client opened: inside the one that the handler is on, or as a stream of its own.

        Raises:
            UsageError: The handler is on another stream that is in progress.
        """
        outer = self._streamkit
        request = client_request(source.stream, outer, self._streamkit_plain)
        if outer is not None and outer.is_live:
            if not outer.accepts(request):
                raise self._streamkit_busy()
            outer.interrupt(request.continuation)
            return new_nested(outer, self._streamkit_manager(), source)
        vars(self)["_streamkit_continuation"] = request.continuation
        manager = new_manager(source, (self,), StreamOptions(protocol=PROTOCOL))
        self._streamkit_dispatcher().request_sent = True
        return manager

    def _streamkit_respond(self, arguments: Sequence[Any], options: Mapping[str, Any]) -> None:
        """Answer pending tool calls: each by its call id or its message's id, and all of them or none."""
        outputs: Iterable[Mapping[str, Any]] | None = arguments[0] if arguments else options.get("tool_outputs")
        if outputs is None:
            raise UsageError("submit_tool_outputs takes a list of {'tool_call_id': …, 'output': …}")
        pending = {
            key: call for key, call in self._streamkit_stream().pending.items() if isinstance(call, ToolCallMessage)
        }
        pending |= {call.id: call for call in pending.values() if call.id not in pending}
        answers = [(str(output.get("tool_call_id")), output.get("output", "")) for output in outputs]
        for id, _ in answers:
            if id not in pending:
                raise UsageError(
                    f"tool call {id!r} does not wait for an output; waiting are: {', '.join(pending) or 'none'}"
                )
        for id, output in answers:
            pending[id].respond(output)

    def _streamkit_busy(self) -> UsageError:
        return UsageError(
            f"{type(self).__name__} is on a live stream already; a handler serves one at a time: run that stream to its "
            "end, or close it, or answer its run's calls from its hooks"
        )


class _Attached(Handler):
    """The handler as a stream uses it: the methods that it calls, each one of the handler's private ones."""

    def __init__(
        self,
        *,
        name: str,
        handle: Callable[[Event], Any],
        receive: Callable[[Sequence[Any]], None],
        bind: Callable[[StreamState], None],
        unbind: Callable[[StreamState], None],
        is_on: Callable[[StreamState], bool],
        plan: Callable[[], Mapping[type[Event], tuple[Call, ...]]],
        needs_async: Callable[[], str | None],
    ) -> None:
        self._name = name
        self._handle, self._receive, self._plan, self._needs_async = handle, receive, plan, needs_async
        self._bind, self._unbind, self._is_on = bind, unbind, is_on

    @property
    def streamkit_name(self) -> str:
        return self._name

    def handle(self, event: Event, /) -> Any:
        return self._handle(event)

    def receive(self, items: Sequence[Any], /) -> None:
        self._receive(items)

    def bind(self, stream: StreamState) -> None:
        self._bind(stream)

    def unbind(self, stream: StreamState) -> None:
        self._unbind(stream)

    def streamkit_is_on(self, stream: StreamState) -> bool:
        return self._is_on(stream)

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        return self._plan()

    def streamkit_needs_async(self) -> str | None:
        return self._needs_async()


class ClientStream(OpenedStream):
    """A stream that the openai client opened, as a source.

    The client calls `stream.close` when `with` is left. `replace_close` puts another function there, which also closes
    what reads the stream here; `close` stays the client's own.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.__wrapped__ = stream  # so that it can be iterated as that can
        self.close: Callable[[], Any] = stream.close

    def replace_close(self, close: Callable[[], Any]) -> None:
        """Let the client call this function instead of its stream's own `close`. Some filters around the stream allow no
        attributes: these only close themselves then."""
        with contextlib.suppress(AttributeError, TypeError):
            self.stream.close = close

    # The client drops `[DONE]` where it iterates itself, so a stream of nothing else would look cut off.

    def __iter__(self) -> Iterator[Any]:
        is_empty = True
        for item in iterator_of(self.stream):
            is_empty = False
            yield item
        if is_empty:
            yield _DONE

    async def __aiter__(self) -> AsyncIterator[Any]:
        is_empty = True
        async for item in async_iterator_of(self.stream):
            is_empty = False
            yield item
        if is_empty:
            yield _DONE
