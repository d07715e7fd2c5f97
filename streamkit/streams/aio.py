"""The async manager, on asyncio and trio: a task drives the stream. It performs the lifecycle's steps and decides nothing.

`sync.py` is the same without `async` and `await`; a test holds that the parts named in both are equal but for these.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from ..answers import Answer
from ..core.delivery import Steps
from ..core.steps import PULL, START_WORK, CallForSource, OpenSource, Step, Stopped, WaitForAnswers
from ..events import Event, Run, RunStep
from ..handlers import Handler
from ..messages import Message
from ..sources.chunks import AsyncChunks
from ..sources.open import open_async, source_of_async_stream, wants_async
from ..sources.source import AsyncSource, Source, await_source, call_source
from .manager import Manager, is_answer_text

__all__ = ["AsyncStreamManager", "scheduler"]

_T = TypeVar("_T")


class AsyncStreamManager(Manager):
    """A stream that the calling task drives, on asyncio or trio: made by `astream(…)`.

    Use it in one of three ways, which agree with each other and with the handlers:

        async with sk.astream(ask) as stream:                # iterate: events, or `stream.text_deltas`
            async for event in stream: ...
        await sk.astream(ask, MyHandler()).until_done()      # let the handlers do it
        text = await sk.astream(ask).get_final_text()        # only the result

    The rest is as in `StreamManager`. An awaitable that answers a tool call runs beside the stream inside `async with`,
    `until_done` and `get_final_…`, else where the stream waits for it.
    """

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        self._scope: anyio.CancelScope | None = None
        self._waits_for_source = False  # … to be opened, or for its next batch
        self._wakeup: anyio.Event | None = None  # while it waits for an answer
        self._schedule: Callable[[Callable[[], object]], object] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._working = 0  # awaitables that run
        self._running = False  # it is iterated just now; an interrupted `aclose` leaves `ag_running` true for ever
        self._run_over: anyio.Event | None = None  # while another task waits for the end
        super().__init__(source, handlers, awaitables=True, **options)
        self._events = self._drive(self._run())

    async def __aenter__(self) -> Self:
        await self._perform_all(self._enter())
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        try:
            await self.close()
        finally:
            if tasks is not None:
                tasks.cancel_scope.cancel()
                await tasks.__aexit__(None, None, None)

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `StreamManager.__iter__`."""
        return AsyncIteration(self._next_event, self._final, lambda event: event)

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        """As `StreamManager.text_deltas`."""
        return AsyncIteration(
            self._next_event, self._final, lambda event: event.value if is_answer_text(event) else None
        )

    async def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        await self._drain()
        self._final()

    async def get_final_messages(self) -> list[Message]:
        """Run to the end, and return all messages. Raises as iteration does."""
        await self._drain()
        return self._final()

    async def get_final_text(self) -> str:
        """Run to the end, and return the assistant's text (choice 0). Raises as iteration does."""
        await self._drain()
        return self._final_text()

    async def get_final_run(self) -> Run:
        """Run to the end, and return the run. Raises as iteration does."""
        await self._drain()
        return self._final_run()

    async def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end, and return the run's steps. Raises as iteration does."""
        await self._drain()
        return self._final_run_steps()

    def chunks(self, protocol: str) -> AsyncIterator[dict[str, Any]]:
        """As `StreamManager.chunks`."""
        return AsyncChunks(self, self._encoder(protocol))

    async def close(self) -> None:
        """As `StreamManager.close`."""
        if self._running:
            self.cancel()
            if anyio.get_current_task().id != self.driver:
                self._run_over = self._run_over or anyio.Event()
                await self._run_over.wait()
            elif not self._pulling:  # a hook's call
                await self._close_source()
        else:
            await self._events.aclose()
            await self._perform_all(self._stop())

    def cancel(self) -> None:
        self._closing = True
        self._in_loop(self._stop_waiting)

    # -- as another stream's source

    def source(self) -> Source:
        raise wants_async(self)

    def async_source(self) -> AsyncSource:
        return source_of_async_stream(self)

    # -- steps

    async def _drive(self, steps: Steps) -> AsyncGenerator[Event, None]:
        """Perform steps, and hand out the events among them."""
        self.driver = anyio.get_current_task().id
        error: BaseException | None = None
        send = steps.send
        while True:
            try:
                step = send(None) if error is None else steps.throw(error)
                error = None
                while True:
                    if step is PULL:
                        step = send(await (self._source.next() if self._scope else self._in_scope(self._source.next)))
                    elif isinstance(step, Event):
                        yield step
                        step = send(None)
                    elif isinstance(step, Step):
                        step = send(await self._perform(step))
                    else:
                        await (step if not self._ending else self._shielded(step))
                        step = send(None)
            except StopIteration:
                return
            except GeneratorExit:  # this generator is closed, or garbage: the stream ends step by step all the same
                error = Stopped()
            except BaseException as raised:
                if inspect.getgeneratorstate(steps) != inspect.GEN_CLOSED:
                    error = raised  # what a step raised, the lifecycle decides about
                elif raised is error and isinstance(error, Stopped):
                    steps, error = self._stop(), None  # the steps were garbage collected before this generator
                    send = steps.send
                else:
                    error = None  # its traceback refers to this frame
                    raise

    async def _perform_all(self, steps: Steps) -> None:
        """Perform steps that hand out no event."""
        async for _ in self._drive(steps):
            pass

    async def _perform(self, step: Any) -> Any:
        match step:
            case OpenSource(value=value, limits=limits, clock=clock):
                self._schedule = self._schedule or scheduler()
                opens = partial(self._in_scope, open_async, value, limits)
                return await (opens() if clock is None else clock.wait_async(opens))
            case CallForSource(function=function):
                value = call_source(function)
                return await self._in_scope(await_source, value) if inspect.isawaitable(value) else value
            case WaitForAnswers(deferred=deferred):
                return await self._wait(deferred)
            case Step() if step is START_WORK:
                return self._start_work()
            case _:  # CLOSE
                closing = self._close_source()
                return await (closing if not self._ending else self._shielded(closing))

    @staticmethod
    async def _shielded(awaitable: Awaitable[Any]) -> Any:
        """What an early end still awaits: no cancellation cuts it short."""
        with anyio.CancelScope(shield=True):
            return await awaitable

    async def _next_event(self) -> Event | None:
        """The next event for iteration, None at the end."""
        if self._running:
            self._refuse_second_reader("task")
            return None
        self._running = True
        try:
            return await anext(self._events, None)
        finally:
            self._running = False

    async def _drain(self) -> None:
        """Run to the end, without handing out events."""
        if self._running:
            self._refuse_second_reader("task")
        elif self._tasks is not None or not self._engine.takes_outputs:  # nothing runs beside it
            await self._drain_in_scope()
        else:
            tasks = self._tasks = anyio.create_task_group()
            await tasks.__aenter__()
            try:
                await self._drain_in_scope()
            finally:  # `async with` would raise the stream's error as a group
                self._tasks = None
                tasks.cancel_scope.cancel()
                await tasks.__aexit__(None, None, None)

    async def _drain_in_scope(self) -> None:
        """One scope for the whole run, which `cancel` cancels wherever the stream waits for its source."""
        self._iterated = False
        self._running = True
        try:
            with anyio.CancelScope() as self._scope:
                async for _ in self._events:
                    pass
        finally:
            self._scope = None
            self._running = False

    async def read_nested(self, source: Any) -> AsyncGenerator[Event, None]:
        """Read another source of the same run inside a hook or a loop: the events, each after the handlers got it."""
        async with contextlib.aclosing(self._drive(self._read_nested_source(source))) as events:
            async for event in events:
                yield event

    async def _close_source(self) -> None:
        if self._source is not None:
            await self._source.close()

    # -- cancellation, and answers from other threads

    async def _in_scope(self, function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T | None:
        """The result of a function that waits for the source, or None if `cancel` was called meanwhile."""
        self._waits_for_source = True
        try:
            if self._scope is not None:
                return await function(*arguments)
            try:
                with anyio.CancelScope() as self._scope:
                    return await function(*arguments)
            finally:
                self._scope = None
        finally:
            self._waits_for_source = False
        return None

    def _stop_waiting(self) -> None:
        self._wake()
        if self._scope is not None and (self._pulling or self._waits_for_source):  # no hook is cut short
            self._scope.cancel()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    def _answered(self) -> None:
        self._in_loop(self._wake)

    def _in_loop(self, function: Callable[[], object]) -> None:
        if self._schedule is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is over, and so is everything that could wait
                self._schedule(function)

    async def _wait(self, deferred: Any) -> Any:
        self._wakeup = wakeup = anyio.Event()  # before the changes are looked at: none is missed
        left = self._deadlines.left(deferred)
        if not self._closing and not self._engine.changes:
            await self._wait_or_work(wakeup, left)
        return self._deadlines.over()

    # -- the awaitables that answer tool calls

    async def _wait_or_work(self, wakeup: anyio.Event, seconds: float | None) -> None:
        """Wait for an answer, at most so long. Where there is no task group, awaitables run here, to their end."""
        if self._tasks is not None:
            self._start_work()
            with anyio.move_on_after(seconds):
                await wakeup.wait()
            return
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                self._start_work()
                with anyio.move_on_after(seconds):
                    await wakeup.wait()
                while not self._closing and self._working:
                    self._wakeup = wakeup = anyio.Event()
                    self._start_work()
                    await wakeup.wait()
            finally:
                self._tasks = None
            if self._closing:
                tasks.cancel_scope.cancel()

    def _start_work(self) -> None:
        """Start the awaitables that tool calls were answered with, beside the stream."""
        if (tasks := self._tasks) is None:
            return
        for answer in self._engine.take_awaitables():
            self._working += 1
            tasks.start_soon(self._resolve, answer)

    async def _resolve(self, answer: Answer) -> None:
        """Await an answer's awaitable. The stream's own task raises its error."""
        awaitable: Any = answer.value
        try:
            result, failure = await awaitable, None
        except Exception as error:
            result, failure = None, error
        finally:
            self._working -= 1
        answer.resolve(result, failure)

    def _finish(self) -> None:
        for answer in self._engine.take_awaitables():  # the stream ended before them: they never run
            if inspect.iscoroutine(answer.value):
                answer.value.close()
        super()._finish()
        if self._run_over is not None:
            self._run_over.set()


class AsyncIteration(AsyncIterator[_T]):
    """What `pick` returns for each event, without None. A loop may leave it at any time: the stream stays open.

    Args:
        next_event: gives the stream's next event, None at its end.
        finish: called at the end; raises the error that the stream ended with.
    """

    def __init__(
        self,
        next_event: Callable[[], Awaitable[Event | None]],
        finish: Callable[[], object],
        pick: Callable[[Any], _T | None],
    ) -> None:
        self._next_event = next_event
        self._finish = finish
        self._pick = pick

    async def __anext__(self) -> _T:
        while (event := await self._next_event()) is not None:
            if (value := self._pick(event)) is not None:
                return value
        self._finish()
        raise StopAsyncIteration


def scheduler() -> Callable[[Callable[[], object]], object]:
    """A function that runs another one in the current event loop, soon, from any thread."""
    token: Any = anyio.lowlevel.current_token().native_token
    soon: Callable[[Callable[[], object]], object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
    return soon
