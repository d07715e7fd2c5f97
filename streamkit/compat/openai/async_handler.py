"""The async handler: `handler.py` with `async` and `await`."""

# pyright: reportPrivateUsage=false
# A handler drives its stream's manager where the client starts the stream.

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import anyio
import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...answers import Confirmation
from ...errors import UsageError
from ...events import Event
from ...streams.aio import AsyncStreamManager
from ...streams.manager import is_answer_text
from .binding import HOOKS, Bound, ClientStream
from .dispatch import PROTOCOL, Telling
from .messages import HookCall

__all__ = ["AsyncAssistantEventHandler"]


class AsyncAssistantEventHandler(Bound, openai.AsyncAssistantEventHandler):
    """openai's `AsyncAssistantEventHandler`, for any stream: `AssistantEventHandler` with `async def` hooks, for an async
    client or `streamkit.astream`, on asyncio and on trio. A hook may be a plain `def`, too. A further stream may be read
    in a task that its hook starts and waits for.

        async with client.beta.threads.runs.stream(thread_id=…, assistant_id=…, event_handler=Handler()) as stream:
            await stream.until_done()

        await streamkit.astream(client.responses.create(model=…, input=…, stream=True), Handler()).until_done()
    """

    async def on_confirmation(self, confirmation: Confirmation) -> None:
        """Something wants to run: `approve`, `decline` or `defer`. Undecided is declined."""

    # -- what a stream needs

    async def handle(self, event: Event, /) -> None:
        """Calls the hooks of this event, in order."""
        telling = self._streamkit
        assert telling is not None
        if (rest := telling.take_rest()) is not None:
            await _call(*rest)
        with telling.asked(event) as calls:
            await _call(self, calls)

    def streamkit_needs_async(self) -> str | None:
        return next((name for name in HOOKS if self._streamkit_overrides(name)), "handle")

    @staticmethod
    def _streamkit_drives(stream: Any, further: Sequence[Any]) -> bool:
        task = getattr(stream, "_task", None)
        return task is not None and (task == anyio.get_current_task().id or _reads(further))

    # -- what the client needs

    def _init(self, stream: openai.AsyncStream[AssistantStreamEvent]) -> None:
        """Called by the client when it has opened the stream."""
        source, close = ClientStream(stream), stream.close
        going_on = self._streamkit_continues(stream)
        driven: Further | AsyncStreamManager
        if going_on:
            driven = Further(self._streamkit_manager(), source)
        else:
            driven = AsyncStreamManager(source, (self,), protocol=PROTOCOL, strict=False, then=None)
            self._streamkit_opened()

        async def close_all() -> None:
            try:
                await driven.close()
            finally:
                await close()

        stream.close = close_all  # type: ignore[method-assign]  # the client calls it where `with` is left

    def _streamkit_manager(self) -> tuple[Telling, AsyncStreamManager]:
        stream = self._streamkit_stream()
        if not isinstance(stream, AsyncStreamManager):
            raise UsageError(f"{type(self).__name__} is on a sync stream, which cannot run it: use `astream()`")
        assert self._streamkit is not None
        return self._streamkit, stream

    def _streamkit_driven(self) -> Further | AsyncStreamManager:
        telling, manager = self._streamkit_manager()
        return telling.further[-1] if telling.further else manager

    # -- what drives the stream, under openai's names

    async def __anext__(self) -> AssistantStreamEvent:
        """The next event, after its hooks were called."""
        telling, manager = self._streamkit_manager()
        if telling.typed is None:
            telling.typed = deque()
        while not telling.typed:
            await _step(telling, manager)
        return telling.typed.popleft()

    def __aiter__(self) -> AsyncIterator[AssistantStreamEvent]:
        """The events, each after its hooks were called. `break` pauses; leaving `with` closes.

        Raises:
            StreamkitError: as the stream ended, each time it is asked.
        """
        return self

    @property
    def text_deltas(self) -> AsyncIterable[str]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]  # openai's is set in __init__, which may be forgotten
        """The assistant's text as it arrives."""
        return self._streamkit_driven().text_deltas

    async def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        await self._streamkit_driven().until_done()

    async def submit_tool_outputs(self, tool_outputs: Iterable[Mapping[str, Any]], /, *_: Any, **__: Any) -> None:
        """As `AssistantEventHandler.submit_tool_outputs`; an output may be an awaitable that gives it."""
        self._streamkit_answer(tool_outputs)

    async def close(self) -> None:
        """Stop here: closes the response, tells what is open as done, and `on_end`. Then nothing more."""
        if self._streamkit is None:
            return
        telling, manager = self._streamkit_manager()
        if _reads(telling.further):
            manager.cancel()  # the end is told when the task that waits for this one goes on
        else:
            await manager.close()

    async def get_final_run(self) -> Run:
        """Run to the end; the run. Raises as iteration does."""
        await self.until_done()
        return self._streamkit_final_run()

    async def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end; the run's steps. Raises as iteration does."""
        await self.until_done()
        return [step.live for step in self._streamkit_record().steps]

    async def get_final_messages(self) -> list[Message]:
        """Run to the end; the run's messages. Raises as iteration does."""
        await self.until_done()
        return [message.live for message in self._streamkit_record().messages]


AsyncAssistantEventHandler._streamkit_plain = AsyncAssistantEventHandler


async def _call(handler: Any, calls: Iterator[HookCall]) -> None:
    for name, arguments in calls:
        hook = getattr(handler, name)
        if inspect.isawaitable(result := hook(*arguments)):
            await result


async def _step(telling: Telling, manager: AsyncStreamManager) -> None:
    """Tell one event more."""
    if telling.further:
        await anext(telling.further[-1])
        return
    telling.events = telling.events or aiter(manager)
    try:
        await anext(telling.events)
    except BaseException:
        telling.events = None  # asked again, the stream ends as it ended
        raise


def _reads(further: Sequence[Any]) -> bool:
    """Whether one of these further streams is being read by this task, which was started in a hook."""
    return bool(further) and any(one.task == anyio.get_current_task().id for one in further)


class Further:
    """A further stream of the same run, read from within a hook of the first, or a loop over it; `task` reads it."""

    def __init__(self, told: tuple[Telling, AsyncStreamManager], stream: Any) -> None:
        self._telling, manager = told
        self.events: AsyncGenerator[Event, None] = manager._read_nested(stream)
        self._typed, self._telling.typed = self._telling.typed, None
        self._telling.further = [*self._telling.further, self]
        self.task: int | None = None

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self.task = anyio.get_current_task().id
        return await anext(self.events)

    async def until_done(self) -> None:
        if self.events.ag_running:  # type: ignore[attr-defined]
            raise UsageError("the stream runs already: a hook cannot run it to its end")
        async for _ in self:
            pass

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        return self._text_deltas()

    async def _text_deltas(self) -> AsyncIterator[str]:
        async for event in self:
            if is_answer_text(event):
                yield cast("Any", event).value

    async def close(self) -> None:
        telling = self._telling
        if self in telling.further:
            telling.further = [one for one in telling.further if one is not self]
            telling.typed = self._typed
        if not self.events.ag_running:  # type: ignore[attr-defined]
            await self.events.aclose()
