"""openai's `AsyncAssistantEventHandler` on any stream: `handler.py` with `async` and `await`."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any, cast

import anyio
import openai
from openai.types.beta import AssistantStreamEvent
from openai.types.beta.threads import Message, Run
from openai.types.beta.threads.runs import RunStep

from ...answers import Confirmation
from ...errors import UsageError
from ...events import Event
from ...handlers import warn_of_returned_value
from ...streams.aio import AsyncStreamManager
from .binding import HOOKS, BoundHandler, ClientStream
from .dispatch import Dispatcher
from .messages import HookCall
from .nested import AsyncNestedStream

__all__ = ["AsyncAssistantEventHandler"]


class AsyncAssistantEventHandler(BoundHandler, openai.AsyncAssistantEventHandler):
    """openai's `AsyncAssistantEventHandler`, on any stream; on asyncio and on trio.

    Its hooks are those of `AssistantEventHandler` as `async def`; a plain `def` works too. Pass it to
    `streamkit.astream` or to an async client:

        await streamkit.astream(client.responses.create(model=…, input=…, stream=True), Handler()).until_done()

        async with client.beta.threads.runs.stream(thread_id=…, assistant_id=…, event_handler=Handler()) as stream:
            await stream.until_done()

    `AssistantEventHandler` has the table of the hooks, the differences from openai's class, and how tool outputs are
    submitted. A stream that submits them may also be read in a task that a hook starts and waits for.
    """

    text_deltas: AsyncIterable[str]  # a property of `BoundHandler`

    async def on_confirmation(self, confirmation: Confirmation) -> None:
        """Code or a tool asks whether it may run: call `approve`, `decline` or `defer`. Otherwise nothing runs."""

    # -- what drives the stream, under openai's names

    async def __anext__(self) -> AssistantStreamEvent:
        """Return the next event, after its hooks were called."""
        manager, dispatcher = self._streamkit_manager(), self._streamkit_dispatcher()
        dispatcher.refuse_reading_in_hooks()
        if dispatcher.unread is None:
            dispatcher.unread = deque()
        while not dispatcher.unread:
            await _advance(dispatcher, manager)
        return dispatcher.unread.popleft()

    def __aiter__(self) -> AsyncIterator[AssistantStreamEvent]:
        """openai's events, each after its hooks were called. `break` pauses the stream; leaving `with` closes it.

        Raises:
            StreamkitError: The stream failed. It is raised again by every further iteration.
        """
        return self

    async def until_done(self) -> None:
        """As `AssistantEventHandler.until_done`."""
        await self._streamkit_innermost(self._streamkit_manager()).until_done()

    async def submit_tool_outputs(self, *arguments: Any, **options: Any) -> Any:
        """As `AssistantEventHandler.submit_tool_outputs`; an output may also be an awaitable that returns it."""
        self._streamkit_respond(arguments, options)

    async def close(self) -> None:
        """As `AssistantEventHandler.close`."""
        if self._streamkit is None:
            return
        manager = self._streamkit_manager()
        if self._streamkit_reads_nested():
            manager.cancel()  # this task runs in a hook of the stream, which ends when the hook returns
        else:
            await manager.close()

    async def get_final_run(self) -> Run:
        """Run to the end; return the run. Raises as `until_done` does."""
        await self.until_done()
        return self._streamkit_final_run()

    async def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end; return the run's steps. Raises as `until_done` does."""
        await self.until_done()
        return self._streamkit_final_run_steps()

    async def get_final_messages(self) -> list[Message]:
        """Run to the end; return the run's messages. Raises as `until_done` does."""
        await self.until_done()
        return self._streamkit_final_messages()

    # -- what the stream and the client call

    async def _streamkit_handle(self, event: Event) -> None:
        dispatcher = self._streamkit
        assert dispatcher is not None
        if (interrupted := dispatcher.take_interrupted()) is not None:
            await _call_hooks(*interrupted)
        with dispatcher.hook_calls(event) as calls:
            await _call_hooks(self, calls)

    def _init(self, stream: openai.AsyncStream[AssistantStreamEvent]) -> None:
        """The client calls it with the stream that it has opened."""
        if not hasattr(stream, "__aiter__"):
            ClientStream(stream).close()
            raise UsageError(
                f"{type(self).__name__} is for an async client, and this stream is a sync client's: subclass "
                "AssistantEventHandler"
            )
        source = ClientStream(stream)
        reader: AsyncStreamManager | AsyncNestedStream = self._streamkit_begin(
            source, AsyncStreamManager, AsyncNestedStream
        )

        async def close() -> None:
            try:
                await reader.close()
            finally:
                await source.close()

        source.replace_close(close)

    def _streamkit_manager(self) -> AsyncStreamManager:
        stream = self._streamkit_stream()
        if not isinstance(stream, AsyncStreamManager):
            raise UsageError(f"{type(self).__name__} is on a sync stream, which cannot run it: use `astream()`")
        manager: AsyncStreamManager = cast("Any", stream)
        return manager

    def _streamkit_reads_nested(self) -> bool:
        """Whether this task, which a hook started, reads a nested stream."""
        nested = self._streamkit_dispatcher().nested
        return bool(nested) and any(one.reader == self._streamkit_current_reader() for one in nested)

    def _streamkit_needs_async(self) -> str | None:
        """Return the name of an overridden hook, or `handle`: the handler needs an async stream."""
        return next((name for name in HOOKS if self._streamkit_overrides(name)), "handle")

    @staticmethod
    def _streamkit_current_reader() -> int:
        return anyio.get_current_task().id


async def _call_hooks(handler: Any, calls: Iterator[HookCall]) -> None:
    for name, arguments in calls:
        hook = getattr(handler, name)
        if inspect.isawaitable(result := hook(*arguments)):
            result = await result
        if result is not None:
            warn_of_returned_value(hook, result)


async def _advance(dispatcher: Dispatcher, manager: AsyncStreamManager) -> None:
    """Drive the innermost stream by one event."""
    if dispatcher.nested:
        await anext(dispatcher.nested[-1])
        return
    dispatcher.iterator = dispatcher.iterator or aiter(manager)
    try:
        await anext(dispatcher.iterator)
    except BaseException:
        dispatcher.iterator = None  # a new iterator ends as the stream ended
        raise
