"""What both Assistants handlers share, but for what drives a stream."""

from __future__ import annotations

import difflib
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...errors import UsageError
from ...events import EVENTS, Event
from ...handlers import Call, Handler
from ...messages import ToolCallMessage
from ...streams.state import StreamState
from .dispatch import Before, Telling, earlier
from .snapshots import Record

__all__ = ["HOOKS", "Bound", "ClientStream", "refuse_awaitable"]

HOOKS: tuple[str, ...] = tuple(name for name in dir(openai.AssistantEventHandler) if name.startswith("on_"))
"""openai's 17."""
_ALL = (*HOOKS, "on_confirmation")


class Bound(Handler):
    """A handler of openai's hooks, on streams of ours.

    It is always true, whatever its `__len__`: the client would put a handler of its own in the place of a false one.
    What it keeps has `_streamkit` in its name: all other names, private ones too, are the subclass's, as they were.
    """

    _streamkit: Telling | None = None
    _streamkit_before: Before | None = None
    _streamkit_plain: ClassVar[type]  # the class whose hooks do nothing

    def __init__(self) -> None:
        """Nothing is set up here: a subclass that forgets to call it loses nothing."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and name not in _ALL:
                for near in difflib.get_close_matches(name, _ALL, 1, 0.8):
                    text = f"{cls.__name__}.{name} is no hook and will never be called; did you mean {near}?"
                    warnings.warn(text, UserWarning, stacklevel=2)
        for name in _ALL:
            cls._streamkit_check(name, getattr(cls, name, None))

    @classmethod
    def _streamkit_check(cls, name: str, hook: Any) -> None:
        """Refuse a hook that would never run."""
        if inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
            raise UsageError(f"{cls.__name__}.{name} has a `yield`: as a generator it would never run")

    def __bool__(self) -> bool:
        return True

    # -- what is told so far, under openai's names

    @property
    def current_event(self) -> AssistantStreamEvent | None:
        """The event whose hooks are being called."""
        return self._streamkit.story.event if self._streamkit else None

    @property
    def current_run(self) -> Run | None:
        """The run, as the service told of it last."""
        return self._streamkit.story.record.run if self._streamkit else None

    @property
    def current_run_step_snapshot(self) -> RunStep | None:
        """The step that is going on; live."""
        step = self._streamkit.story.record.step if self._streamkit else None
        return step.live if step else None

    @property
    def current_message_snapshot(self) -> Message | None:
        """The message that was told of last; live."""
        message = self._streamkit.story.record.message if self._streamkit else None
        return message.live if message else None

    def _streamkit_record(self) -> Record:
        return self._streamkit.story.record if self._streamkit else Record()

    def _streamkit_final_run(self) -> Run:
        run = self.current_run
        if run is None:
            raise UsageError("the stream ended before any run began")
        return run

    # -- on a stream

    @property
    def stream(self) -> StreamState:
        """The stream that this handler is told of, or was told of last: `self.stream.pending[tool_call.id].respond(…)`
        answers a tool call on a stream with `then=`. A subclass may keep something else by this name."""
        if "stream" in self.__dict__:
            return cast("StreamState", self.__dict__["stream"])
        return self._streamkit_stream()

    @stream.setter
    def stream(self, value: Any) -> None:
        self.__dict__["stream"] = value

    def _streamkit_stream(self) -> StreamState:
        if self._streamkit is None:
            name = type(self).__name__
            raise UsageError(f"{name} is on no stream yet; give it to the client, or to `stream()` or `astream()`")
        return self._streamkit.stream

    def bind(self, stream: StreamState) -> None:
        known = self._streamkit.stream if self._streamkit else None
        if known is stream:
            raise UsageError(f"{type(self).__name__} was given twice to the same stream")
        if self._streamkit is not None and self._streamkit.live:
            raise self._streamkit_busy()
        before, self._streamkit_before = self._streamkit_before, None
        wants = frozenset(name for name in _ALL if self._streamkit_overrides(name))
        self._streamkit = Telling(self, stream, wants, self._streamkit_drives, before)

    def unbind(self, stream: StreamState) -> None:
        if self.streamkit_is_on(stream):
            self._streamkit = None

    def streamkit_is_on(self, stream: StreamState) -> bool:
        return self._streamkit is not None and self._streamkit.stream is stream

    def receive(self, items: Sequence[Any], /) -> None:
        if self._streamkit is not None:
            self._streamkit.receive(items)

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        call = Call(self.handle, True, inspect.iscoroutinefunction(self.handle))
        return dict.fromkeys(EVENTS.values(), (call,))

    def _streamkit_overrides(self, name: str) -> bool:
        return getattr(type(self), name) is not getattr(self._streamkit_plain, name) or name in self.__dict__

    @staticmethod
    def _streamkit_drives(stream: StreamState, further: Sequence[Any]) -> bool:
        """Whether the caller is the thread or task that drives this stream, or a further one that is read inside it."""
        raise NotImplementedError("a handler's")

    def _streamkit_continues(self, stream: Any) -> bool:
        """Whether a stream that the client opened is read inside the one that this handler is on. Where it goes on
        with a run that was told before, that is taken over.

        Raises:
            UsageError: it is on another one that has not ended.
        """
        telling = self._streamkit
        run_id, is_known, before = earlier(stream, telling, self._streamkit_plain)
        if telling is None or not telling.live:
            self._streamkit_before = before
            return False
        if not telling.goes_on_with(run_id) or (is_known and run_id is None):
            raise self._streamkit_busy()
        telling.go_on(before)
        return True

    def _streamkit_opened(self) -> None:
        """The client has sent the request of the stream that this is on."""
        assert self._streamkit is not None
        self._streamkit.opened = True

    def _streamkit_answer(self, outputs: Iterable[Mapping[str, Any]]) -> None:
        waiting = {
            key: call for key, call in self._streamkit_stream().pending.items() if isinstance(call, ToolCallMessage)
        }
        waiting |= {call.id: call for call in waiting.values() if call.id not in waiting}
        given = [(str(one.get("tool_call_id")), one.get("output", "")) for one in outputs]
        for id, _ in given:
            if id not in waiting:
                raise UsageError(
                    f"tool call {id!r} does not wait for an output; waiting are: {', '.join(waiting) or 'none'}"
                )
        for id, output in given:
            waiting[id].respond(output)

    def _streamkit_busy(self) -> UsageError:
        return UsageError(
            f"{type(self).__name__} is on a live stream already; a handler serves one at a time: run that stream to its "
            "end, or close it, or answer its run's calls from its hooks"
        )


def refuse_awaitable(hook: Callable[..., Any], result: Any) -> None:
    """A sync handler's hook gives nothing.

    Raises:
        UsageError: it gave an awaitable, which would never run.
    """
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        name = getattr(hook, "__qualname__", repr(hook))
        raise UsageError(f"{name} gave an awaitable: use AsyncAssistantEventHandler, and `astream` or an async client")


class ClientStream:
    """A stream that the client opened, with what there is to read and close in it: its own `close`, where the client is
    given another one, which closes what reads it here."""

    def __init__(self, stream: Any) -> None:
        self.response = getattr(stream, "response", None)
        self.close: Callable[[], Any] = stream.close
        self._stream = stream

    def __iter__(self) -> Any:
        return iter(self._stream)

    def __aiter__(self) -> Any:
        return aiter(self._stream)
