"""The steps of a turn as sources, for tasks: on asyncio and on trio.

Functions are called all at once: each `async def` in a task, each other in a worker thread. They run beside the stream,
in tasks that belong to no pull of it, as a stream may be pulled without any task group around. Closing the source cancels
the tasks and waits for them, and for the threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

from ..events import Event
from ..messages import ToolCallMessage
from ..sources.interrupt import Interruptible
from ..sources.open import open_async
from ..sources.source import AsyncSource, Batch
from .calls import Called, Mailbox
from .computer_protocol import Running
from .progress import telling
from .sync_steps import close_run, events_of_run
from .tools import Tool
from .turn import CallModel, CallTools, RunCode, Step, Tell, Turn

__all__ = ["first_async_source"]


def first_async_source(turn: Turn) -> Callable[[], Awaitable[AsyncSource]]:
    """What opens the turn's first source. Each knows the next."""

    def following() -> Callable[[], Awaitable[AsyncSource]] | None:
        step = next(turn.course, None)
        return None if step is None else partial(opened, step)

    async def opened(step: Step) -> AsyncSource:
        source = await _source_of(step)
        source.following = following
        return source

    async def first() -> AsyncSource:
        return await opened(next(turn.course))

    return first


async def _source_of(step: Step) -> AsyncSource:
    match step:
        case CallModel(send):
            return await open_async(send)
        case Tell(events):
            return _told(events)
        case RunCode(computer, code, call):
            start = partial(computer.run, code.language, code.source, call_id=call.call_id or call.id)
            return _CodeSource(await anyio.to_thread.run_sync(start)).source
        case CallTools(calls):
            return _ToolsSource(calls).source


def _own(pull: Callable[[], Awaitable[Batch | None]], close: Callable[[], Awaitable[object]]) -> AsyncSource:
    """A source of the agent's own events, within the step of the model call that asked for them."""
    return AsyncSource(pull, close, protocol="streamkit", whole=True, edits=True, same_step=True)


def _told(events: list[Event]) -> AsyncSource:
    rest = [events]

    async def pull() -> Batch | None:
        return rest.pop() if rest else None

    async def close() -> None:
        rest.clear()

    return _own(pull, close)


class _CodeSource:
    """A run of code, pulled in a worker thread. Closing it ends the run, whatever that thread waits for."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._events = events_of_run(running)
        self._limiter = anyio.CapacityLimiter(1)
        self.source = _own(self._pull, self._close)

    async def _pull(self) -> Batch | None:
        take = partial(next, self._events, None)
        return await anyio.to_thread.run_sync(take, limiter=self._limiter, abandon_on_cancel=True)

    async def _close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(close_run, self._running, self._events)


class _ToolsSource:
    """Functions, called all at once."""

    def __init__(self, calls: Sequence[tuple[ToolCallMessage, Tool[..., Any]]]) -> None:
        self._calls = calls
        self._box = Mailbox()
        self._wakeup = anyio.Event()
        self._scope = anyio.CancelScope()
        self._over: anyio.Event | None = None  # once the tasks run
        self._stopped = False
        self._in_threads: list[Interruptible] = []
        self.source = _own(self._pull, self._close)

    async def _pull(self) -> Batch | None:
        if self._over is None:
            self._over = anyio.Event()
            soon = _scheduler()
            self._box.wake = lambda: soon(lambda: self._wakeup.set())
            _start(self._work)
        while True:
            self._wakeup = anyio.Event()
            batch = self._box.take()
            if batch is not None:
                return batch or None
            await self._wakeup.wait()

    async def _close(self) -> None:
        self._stopped = True
        for calls in self._in_threads:
            calls.stop()
        self._scope.cancel()
        if self._over is not None:
            with anyio.CancelScope(shield=True):
                await self._over.wait()

    async def _work(self) -> None:
        assert self._over is not None
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    for call, tool in self._calls:
                        tasks.start_soon(self._call, Called(call, self._box, lambda: self._stopped), tool)
        finally:
            self._box.end()
            self._over.set()

    async def _call(self, called: Called, tool: Tool[..., Any]) -> None:
        telling.set(called.progress)
        try:
            if tool.is_async:
                value = tool.call(called.call.content)
            else:
                value = await self._in_thread(partial(tool.call, called.call.content))
            if inspect.isawaitable(value):
                value = await value
        except Exception as error:
            called.fail(error)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # KeyboardInterrupt, SystemExit: raised again in the stream's own task
            self._box.end(error)
            self._scope.cancel()
        else:
            called.give(value)

    async def _in_thread(self, function: Callable[[], Any]) -> Any:
        calls = Interruptible()
        self._in_threads.append(calls)
        given: list[Any] = []  # trio lets no thread return an awaitable

        def work() -> None:
            given.append(calls.call(function))

        await anyio.to_thread.run_sync(work, limiter=anyio.CapacityLimiter(1))
        return given[0]


def _scheduler() -> Callable[[Callable[[], object]], object]:
    """Runs a function in the current event loop, from any thread, soon."""
    token: Any = anyio.lowlevel.current_token().native_token
    soon: Callable[[Callable[[], object]], object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
    return soon


_running: set[asyncio.Task[None]] = set()  # an event loop alone does not hold on to its tasks


def _start(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run this beside all else, in the current event loop."""
    token: Any = anyio.lowlevel.current_token().native_token
    if hasattr(token, "create_task"):
        task: asyncio.Task[None] = token.create_task(function())
        _running.add(task)
        task.add_done_callback(_running.discard)
    else:
        import trio.lowlevel  # it runs already

        trio.lowlevel.spawn_system_task(function, context=contextvars.copy_context())
