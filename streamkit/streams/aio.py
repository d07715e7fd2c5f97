"""The async manager, on asyncio and trio: a task drives the stream. It performs the lifecycle's steps and decides nothing.

`sync.py` is the same without `async` and `await`; a test holds that the parts named in both are equal but for these.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from types import AsyncGeneratorType, CoroutineType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
import anyio.lowlevel

from ..core.delivery import Steps
from ..core.steps import PULL, CallForSource, OpenSource, Step, Stopped, WaitForAnswers
from ..events import Event, Run, RunStep
from ..handlers import Handler
from ..messages import Message
from ..shared_names import share_names
from ..sources.awaiting import finish, interruptible, is_cancellation
from ..sources.chunks import AsyncChunks
from ..sources.open_async import open_async, source_of_async_stream
from ..sources.recognition import wants_async
from ..sources.source import AsyncSource, Source, await_source, call_source
from .lifecycle import NO_STEPS
from .manager import NAMES, Manager
from .readers import DRAIN, PLAIN, AsyncEvents, AsyncTexts, Reader
from .tasks import Work, close_unused, scheduler, task_finder

if TYPE_CHECKING:
    from ..protocols import Encoder
    from .event_stream import OnDisconnect
    from .event_stream_aio import AsyncEventStream

__all__ = ["AsyncStreamManager"]


class AsyncStreamManager(Manager):
    """A stream that the calling task drives, on asyncio or trio: made by `astream(…)`.

    Use it in one of three ways, which agree with each other and with the handlers:

        async with sk.astream(ask) as stream:                # iterate: events, or `stream.text_deltas`
            async for event in stream: ...
        await sk.astream(ask, MyHandler()).until_done()      # let the handlers do it
        text = await sk.astream(ask).get_final_text()        # only the result

    The rest is as in `StreamManager`. An awaitable that answers a tool call runs beside the stream, in a task of its own
    that has ended when the stream has. No cancel scope or task group is open while a loop or a `with` block has control, so
    a stream may be used in generators, and be entered, read and left in different tasks, one at a time.
    """

    _awaits = True
    _coroutine = CoroutineType
    _work: Work | None = None  # what runs beside it, once something does
    _sleep: anyio.CancelScope | None = None  # the newest sleep in which the stream waits for its source
    _wakeup: anyio.Event | None = None  # while it waits for an answer
    _token: Any = None  # the event loop's own
    _find_task: Callable[[], object] | None = None
    _schedule: Callable[[Callable[[], object]], object] | None = None
    _running: Steps | None = None  # the steps that are performed just now
    _pause: anyio.Event | None = None  # while another task waits until none are
    _guard: AsyncGeneratorType[None, None] | None = None  # closes it where it is dropped

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        super().__init__(source, handlers, awaitables=True, **options)
        self._course = self._run()

    async def __aenter__(self) -> Self:
        if self._running is not None:
            self._refuse_second_reader("task")
        await self._perform_all(self._enter())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `StreamManager.__iter__`."""
        return AsyncEvents(partial(self._advance, self._course, None, Reader(None, self._end_iteration)))

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        """As `StreamManager.text_deltas`."""
        self._check_text_is_left()
        reader = Reader(self._answer_text.piece, self._end_iteration)
        return AsyncTexts(partial(self._advance, self._course, None, reader))

    async def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        await self._drain()
        self._final()

    async def get_final_messages(self) -> list[Message]:
        """Run to the end, and return all messages. Raises as iteration does."""
        await self._drain()
        return self._final()

    async def get_final_text(self) -> str:
        """Run to the end, and return the assistant's last answer: its text (choice 0) in the last run step that has one.
        What it said before it called tools is not in it. Raises as iteration does."""
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

    def sse(
        self,
        protocol: str | Encoder = "streamkit",
        *,
        keepalive: float | None = 15.0,
        on_disconnect: OnDisconnect = "cancel",
        retry: int | None = 1000,
        expose_errors: bool = False,
    ) -> AsyncEventStream:
        """As `StreamManager.sse`: an async iterator, with `aclose()`. A task of its own reads the stream."""
        from .event_stream_aio import AsyncEventStream

        return AsyncEventStream(self, protocol, keepalive, on_disconnect, retry, expose_errors)

    async def close(self) -> None:
        """As `StreamManager.close`."""
        if self._reader is not None and await self._reader.stop():
            return
        while self._running is not None:
            self.cancel()
            if self._is_caller():
                if not self._pulling:  # a hook's call
                    await self._close_source()
                return
            self._pause = self._pause or anyio.Event()
            await self._pause.wait()
        await self._stop_steps(self._course)
        await self._perform_all(self._stop())

    def cancel(self) -> None:
        self._closing = True
        self._in_loop(self._stop_waiting)

    def _release_steps(self) -> None:
        self._course = NO_STEPS

    # -- as another stream's source

    def source(self) -> Source:
        raise wants_async(self)

    def async_source(self) -> AsyncSource:
        return source_of_async_stream(self)

    # -- steps

    async def _advance(self, steps: Steps, error: BaseException | None = None, reader: Reader = PLAIN) -> Any:
        """Perform steps up to the next event for this reader, and return it. An error is thrown into them first."""
        before, (pick, at_end, drains) = self._running, reader
        if before is not None and steps is self._course:
            self._refuse_second_reader("task")
            return at_end()
        self._running = steps
        if self._handlers and not drains:
            self._note_driver()
        try:
            while True:
                try:
                    step = steps.send(None) if error is None else steps.throw(error)
                    error = None
                    while True:
                        if step is PULL:
                            if drains:  # `_drain` makes it interruptible
                                step = steps.send(await self._source.next())
                                continue
                            pull = self._source.next().__await__()  # as `interruptible`, without a generator for each
                            try:
                                signal = next(pull)
                            except StopIteration as end:
                                batch = end.value
                            else:
                                batch = await finish(pull, signal, self._new_sleep_of_pull)
                            step = steps.send(batch)
                        elif isinstance(step, Event):
                            if (picked := step if pick is None else pick(step)) is not None:
                                return picked
                            step = steps.send(None)
                        elif isinstance(step, Step):
                            step = steps.send(await self._perform(step))
                        else:
                            await (step if not self._ending else self._shielded(step))
                            step = steps.send(None)
                except StopIteration:
                    break
                except BaseException as raised:
                    if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                        error = None  # its traceback refers to this frame
                        raise
                    error = Stopped() if self._is_interruption(raised) else raised  # the lifecycle decides about it
        finally:
            self._running = before
            if self._pause is not None:
                self._end_pause()
        if self._ended and self._work is not None:
            await self._shielded(self._work.stop())
        return at_end()

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.set()
            self._pause = None

    def _end_iteration(self) -> None:
        self._final()
        raise StopAsyncIteration

    async def _perform_all(self, steps: Steps, error: BaseException | None = None) -> None:
        """Perform steps that hand out no event."""
        while await self._advance(steps, error) is not None:
            error = None

    async def _stop_steps(self, steps: Steps) -> None:
        """End steps that wait between two events."""
        if inspect.getgeneratorstate(steps) == inspect.GEN_SUSPENDED:
            await self._perform_all(steps, Stopped())

    async def _perform(self, step: Any) -> Any:
        match step:
            case OpenSource(value=value, limits=limits, clock=clock):
                if self._schedule is None:
                    self._token, self._schedule = anyio.lowlevel.current_token().native_token, scheduler()
                await self._start_guard()
                opens = partial(open_async, value, limits, self._after)
                opening = opens() if clock is None else clock.wait_async(opens)
                return await interruptible(opening, self._new_sleep)
            case CallForSource(function=function):
                value = call_source(function)
                if not inspect.isawaitable(value):
                    return value
                return await interruptible(await_source(value), self._new_sleep)
            case WaitForAnswers(deferred=deferred):
                return await self._wait(deferred)
            case _:  # CLOSE
                if not self._ending:
                    return await self._close_source()
                if self._work is not None:
                    await self._shielded(self._work.stop())
                return await self._shielded(self._close_source())

    @staticmethod
    async def _shielded(awaitable: Awaitable[Any]) -> Any:
        """What an early end still awaits: no cancellation cuts it short."""
        with anyio.CancelScope(shield=True):
            return await awaitable

    async def _drain(self) -> None:
        """Run to the end, without handing out events."""
        if self._running is None:
            self._iterated = False
            self._note_driver()
        await interruptible(self._advance(self._course, None, DRAIN), self._new_sleep_of_pull)

    async def read_nested(self, source: Any) -> AsyncGenerator[Event, None]:
        """Read another source of the same run inside a hook or a loop: the events, each after the handlers got it."""
        steps = self._read_nested_source(source)
        try:
            while (event := await self._advance(steps)) is not None:
                yield event
        finally:
            await self._stop_steps(steps)

    def _final(self) -> list[Message]:
        if isinstance(self._error, (StopIteration, StopAsyncIteration)):  # it would end a loop as if nothing was wrong
            raise RuntimeError(f"a hook raised {self._error!r}") from self._error
        return super()._final()

    async def _close_source(self) -> None:
        if self._source is not None:
            await self._source.close()

    # -- cancellation, and answers from other threads

    def _new_sleep(self) -> anyio.CancelScope | None:
        """The scope of the task's next sleep, which `cancel` cancels; None where it has: then the source cleans up."""
        if self._sleep is not None and self._sleep.cancelled_caught:
            return None
        self._sleep = anyio.CancelScope() if self._sleep is None else type(self._sleep)()  # which costs a fifth
        if self._closing:
            self._sleep.cancel()
        return self._sleep

    def _new_sleep_of_pull(self) -> anyio.CancelScope | None:
        if not self._pulling:
            return None  # no hook is cut short
        if (cancel := self._source.cancel) is None:
            return self._new_sleep()
        if self._closing:
            cancel()
        return None

    def _is_interruption(self, error: BaseException) -> bool:
        """Whether an error is what the cancellation of the last sleep raised."""
        if self._sleep is None or not self._sleep.cancelled_caught or not is_cancellation(error):
            return False
        self._sleep = None
        return True

    def _stop_waiting(self) -> None:
        self._wake()
        if self._sleep is not None:
            self._sleep.cancel()
        if self._source is not None and self._source.cancel is not None:
            self._source.cancel()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    def _answered(self) -> None:
        self._in_loop(self._take_answers)

    def _take_answers(self) -> None:
        """Start the awaitables that tool calls were answered with, beside the stream, and end its wait."""
        if not self._closing and not self._ending:
            for answer in self._engine.take_awaitables():
                self._work = self._work or Work()
                self._work.start(answer, self._token)
        self._wake()

    def _in_loop(self, function: Callable[[], object]) -> None:
        if self._schedule is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is over, and so is everything that could wait
                self._schedule(function)

    def _note_driver(self) -> None:
        self._find_task = self._find_task or task_finder()
        self.driver = id(self._find_task())

    def _is_caller(self) -> bool:
        """Whether the stream called this code: a hook, or its source."""
        frame = inspect.currentframe()
        while frame is not None:
            if frame.f_code is AsyncStreamManager._advance.__code__ and frame.f_locals.get("self") is self:
                return True
            frame = frame.f_back
        return False

    async def wait_for(self, event: anyio.Event) -> None:
        """As `StreamManager.wait_for`."""
        self._wakeup = event
        if not self._closing:
            await event.wait()
        self._wakeup = None

    async def _wait(self, deferred: Any) -> Any:
        self._wakeup = wakeup = anyio.Event()  # before the changes are looked at: none is missed
        left = self._deadlines.left(deferred)
        if not self._closing and not self._engine.changes:
            with anyio.move_on_after(left):
                await wakeup.wait()
        return self._deadlines.over()

    def _finish(self) -> None:
        for answer in self._engine.take_awaitables():  # the stream ended before them
            close_unused(answer)
        super()._finish()
        guard, self._guard = self._guard, None
        if guard is not None and not guard.ag_running:
            with contextlib.suppress(StopIteration):
                guard.aclose().__await__().send(None)

    async def _start_guard(self) -> None:
        if self._guard is None:
            guard: Any = self._end_when_dropped()
            self._guard = guard
            await anext(guard)

    async def _end_when_dropped(self) -> AsyncGenerator[None, None]:
        """The event loop closes async generators that were dropped, and those that are left when it ends. This one ends the
        stream then."""
        try:
            yield
        finally:
            if not self._ended:
                await self.close()


share_names(AsyncStreamManager, f"{NAMES} _course _schedule _token _running _guard _find_task")
