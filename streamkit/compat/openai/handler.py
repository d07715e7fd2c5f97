"""The sync handler: openai's, by name, hooks and types, on any stream."""

# pyright: reportPrivateUsage=false
# A handler drives its stream's manager where the client starts the stream.

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...answers import Confirmation
from ...errors import UsageError
from ...events import Event
from ...streams.manager import is_answer_text
from ...streams.sync import StreamManager
from .binding import Bound, ClientStream, refuse_awaitable
from .dispatch import PROTOCOL, Telling
from .messages import HookCall

__all__ = ["AssistantEventHandler"]


class AssistantEventHandler(Bound, openai.AssistantEventHandler):
    """openai's `AssistantEventHandler`, for any stream. Its hooks, their arguments and their types are openai's own.

    Passed to the client that starts the stream, as before:

        with client.beta.threads.runs.stream(thread_id=…, assistant_id=…, event_handler=Handler()) as stream:
            stream.until_done()

    or given to `streamkit.stream`, over any protocol:

        streamkit.stream(lambda: client.responses.create(model=…, input=…, stream=True), Handler()).until_done()

    What is better than in openai's own class: what begins is empty and is done once; parallel calls and messages are
    kept apart; `on_end` comes once, at the latest when `with` is left; what ends a stream is told to `on_exception` and
    raised as a `StreamkitError`, a failed run as a `RunFailedError` (`current_run.last_error` says why). Only a request
    that the client itself fails to send cannot be told to a hook where the client is given the handler: the client
    raises before it knows of it. Give the request to `streamkit.stream` to have that told, too.

    Tool outputs can be submitted from within a hook, as OpenAI's guide does it, with a new handler or with `self`,
    also in a thread that the hook waits for; then the run goes on in this stream. On other protocols `then=` gives the next request, and
    the calls are answered where the guide does it, in `on_event` at `thread.run.requires_action`, by
    `self.submit_tool_outputs(outputs)` in place of the client's call: that event is told when the response has ended
    with calls that nobody has answered yet. Or each at once, in `on_tool_call_done`, by
    `self.stream.pending[tool_call.id].respond(…)`. Without `then=` nothing can be answered. Code that wants to run is declined unless
    `on_confirmation`, which openai did not have, approves of it.
    """

    @classmethod
    def _streamkit_check(cls, name: str, hook: Any) -> None:
        super()._streamkit_check(name, hook)
        if inspect.iscoroutinefunction(hook):
            raise UsageError(
                f"{cls.__name__}.{name} is async and would never run: subclass AsyncAssistantEventHandler, for an async "
                "client or `astream`"
            )

    def on_confirmation(self, confirmation: Confirmation) -> None:
        """Something wants to run: `approve`, `decline` or `defer`. Undecided is declined."""

    # -- what a stream needs

    def handle(self, event: Event, /) -> None:
        """Calls the hooks of this event, in order."""
        telling = self._streamkit
        assert telling is not None
        if (rest := telling.take_rest()) is not None:
            _call(*rest)
        with telling.asked(event) as calls:
            _call(self, calls)

    def streamkit_needs_async(self) -> str | None:
        return next((name for name in self.__dict__ if inspect.iscoroutinefunction(getattr(self, name))), None)

    @staticmethod
    def _streamkit_drives(stream: Any, further: Sequence[Any]) -> bool:
        thread = threading.get_ident()
        return getattr(stream, "_thread", None) == thread or any(one.thread == thread for one in further)

    # -- what the client needs

    def _init(self, stream: openai.Stream[AssistantStreamEvent]) -> None:
        """Called by the client when it has opened the stream."""
        source, close = ClientStream(stream), stream.close
        try:
            going_on = self._streamkit_continues(stream)
        except UsageError:
            close()
            raise
        driven: Further | StreamManager
        if going_on:
            driven = Further(self._streamkit_manager(), source)
        else:
            driven = StreamManager(source, (self,), protocol=PROTOCOL, strict=False, then=None)
            self._streamkit_opened()

        def close_all() -> None:
            try:
                driven.close()
            finally:
                close()

        stream.close = close_all  # type: ignore[method-assign]  # the client calls it where `with` is left

    def _streamkit_manager(self) -> tuple[Telling, StreamManager]:
        stream = self._streamkit_stream()
        if not isinstance(stream, StreamManager):
            raise UsageError(f"{type(self).__name__} is on an async stream: use what `astream()` gave")
        assert self._streamkit is not None
        return self._streamkit, stream

    def _streamkit_driven(self) -> Further | StreamManager:
        telling, manager = self._streamkit_manager()
        return telling.further[-1] if telling.further else manager

    # -- what drives the stream, under openai's names

    def __next__(self) -> AssistantStreamEvent:
        """The next event, after its hooks were called."""
        telling, manager = self._streamkit_manager()
        if telling.typed is None:
            telling.typed = deque()
        while not telling.typed:
            _step(telling, manager)
        return telling.typed.popleft()

    def __iter__(self) -> Iterator[AssistantStreamEvent]:
        """The events, each after its hooks were called. `break` pauses; leaving `with` closes.

        Raises:
            StreamkitError: as the stream ended, each time it is asked.
        """
        return self

    @property
    def text_deltas(self) -> Iterable[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # openai's is set in __init__, which may be forgotten
        """The assistant's text as it arrives."""
        return self._streamkit_driven().text_deltas

    def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        self._streamkit_driven().until_done()

    def submit_tool_outputs(self, tool_outputs: Iterable[Mapping[str, Any]], /, *_: Any, **__: Any) -> None:
        """Answer calls that the run waits for, on a stream with `then=`, as in `on_event`, at
        `thread.run.requires_action`: a list of `{"tool_call_id": …, "output": …}`. What else is given, as the run's id
        in OpenAI's guide, is not needed. A subclass may have something else by this name.

        Raises:
            UsageError: a call does not wait, or can be given no answer: there is no `then=`.
        """
        self._streamkit_answer(tool_outputs)

    def close(self) -> None:
        """Stop here: closes the response, tells what is open as done, and `on_end`. Then nothing more."""
        if self._streamkit is not None:
            self._streamkit_manager()[1].close()

    def get_final_run(self) -> Run:
        """Run to the end; the run. Raises as iteration does."""
        self.until_done()
        return self._streamkit_final_run()

    def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end; the run's steps. Raises as iteration does."""
        self.until_done()
        return [step.live for step in self._streamkit_record().steps]

    def get_final_messages(self) -> list[Message]:
        """Run to the end; the run's messages. Raises as iteration does."""
        self.until_done()
        return [message.live for message in self._streamkit_record().messages]


AssistantEventHandler._streamkit_plain = AssistantEventHandler


def _call(handler: Any, calls: Iterator[HookCall]) -> None:
    for name, arguments in calls:
        hook = getattr(handler, name)
        if (result := hook(*arguments)) is not None:
            refuse_awaitable(hook, result)


def _step(telling: Telling, manager: StreamManager) -> None:
    """Tell one event more."""
    if telling.further:
        next(telling.further[-1])
        return
    telling.events = telling.events or iter(manager)
    try:
        next(telling.events)
    except BaseException:
        telling.events = None  # asked again, the stream ends as it ended
        raise


class Further:
    """A further stream of the same run, read from within a hook of the first, or a loop over it; `thread` reads it."""

    def __init__(self, told: tuple[Telling, StreamManager], stream: Any) -> None:
        self._telling, manager = told
        self.events: Generator[Event, None, None] = manager._read_nested(stream)
        self._typed, self._telling.typed = self._telling.typed, None
        self._telling.further = [*self._telling.further, self]
        self.thread: int | None = None

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        self.thread = threading.get_ident()
        return next(self.events)

    def until_done(self) -> None:
        if self.events.gi_running:  # type: ignore[attr-defined]
            raise UsageError("the stream runs already: a hook cannot run it to its end")
        for _ in self:
            pass

    @property
    def text_deltas(self) -> Iterator[str]:
        return self._text_deltas()

    def _text_deltas(self) -> Iterator[str]:
        for event in self:
            if is_answer_text(event):
                yield cast("Any", event).value

    def close(self) -> None:
        telling = self._telling
        if self in telling.further:
            telling.further = [one for one in telling.further if one is not self]
            telling.typed = self._typed
        if not self.events.gi_running:  # type: ignore[attr-defined]
            self.events.close()
