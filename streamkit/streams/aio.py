"""The async manager, on asyncio and trio: a task drives the stream. It performs the lifecycle's steps and decides nothing.

`sync.py` is the same without `async` and `await`; a test holds that the parts named in both are equal but for these.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self

import anyio

from ..core.delivery import Steps
from ..core.steps import PULL, CallForSource, OpenSource, Pause, Step, Stopped, WaitForAnswers
from ..events import Event, Run, RunStep
from ..handlers import Handler
from ..messages import Message
from ..sources.chunks import AsyncChunks
from ..sources.open_async import open_async, source_of_async_stream
from ..sources.recognition import wants_async
from ..sources.source import AsyncSource, Source, await_source, call_source
from ..sources.stacks import is_in_call_of
from .in_event_loop import EventLoopManager
from .lifecycle import NO_STEPS
from .manager import I, T
from .options import StreamOptions
from .readers import Loop
from .tasks import shielded

if TYPE_CHECKING:
    from ..messages.json_tree import JsonValue
    from ..protocols import Encoder
    from .event_stream import OnDisconnect
    from .event_stream_aio import AsyncEventStream

__all__ = ["AsyncStreamManager"]

_NOT_BEGUN: Final = object()  # in the place of a signal, where there is none yet


class AsyncStreamManager(EventLoopManager, Generic[T]):
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

    def __init__(self, source: Any, handlers: tuple[Handler, ...], options: StreamOptions) -> None:
        self._running: Any = None  # the steps that are performed just now
        self._pause: anyio.Event | None = None  # while another task waits until none are
        super().__init__(source, handlers, options, awaitables=True)
        self._course: Any = self._drive(self._run())  # Any: its type does not show `gi_running`

    async def __aenter__(self) -> Self:
        if self._is_running:
            self._refuse_second_reader("task")
        await self._perform_all(self._drive(self._enter()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[Event]:
        """As `StreamManager.__iter__`."""
        return Loop(self._next)

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        """As `StreamManager.text_deltas`."""
        self._check_text_is_left()
        return Loop(partial(self._next, self._answer_text.piece))

    @property
    def partial_outputs(self) -> AsyncIterator[JsonValue]:
        """As `StreamManager.partial_outputs`."""
        self._check_text_is_left()
        return Loop(partial(self._next, self.output.partial_after))

    def output_items(self: AsyncStreamManager[list[I]]) -> AsyncIterator[I]:
        """As `StreamManager.output_items`."""
        self._check_text_is_left()
        self.output.item_reader()
        return Loop(self._next_item)

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

    async def get_final_output(self) -> T:
        """As `StreamManager.get_final_output`."""
        await self._drain()
        output: T = self._final_output()
        return output

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
        from .event_stream_aio import AsyncEventStream, sse_writer

        return AsyncEventStream(self, sse_writer(protocol, retry), keepalive, on_disconnect, expose_errors)

    def ndjson(
        self,
        protocol: str | Encoder = "streamkit",
        *,
        keepalive: float | None = None,
        on_disconnect: OnDisconnect = "cancel",
        expose_errors: bool = False,
    ) -> AsyncEventStream:
        """As `StreamManager.ndjson`: an async iterator, with `aclose()`."""
        from .event_stream_aio import AsyncEventStream, lines_writer

        return AsyncEventStream(self, lines_writer(protocol), keepalive, on_disconnect, expose_errors)

    async def close(self) -> None:
        """As `StreamManager.close`."""
        if self._reader is not None and await self._reader.stop():
            return
        while self._is_running:
            self.cancel()
            if is_in_call_of(
                inspect.currentframe(), self, (AsyncStreamManager._drive.__code__,)
            ):  # in a hook, or the source
                if not self._pulling:
                    await self._close_source()
                return
            self._pause = self._pause or anyio.Event()
            await self._pause.wait()
        await self._stop_steps(self._course)
        await self._perform_all(self._drive(self._stop()))

    def cancel(self) -> None:
        self._closing = True
        self._in_loop(self._stop_waiting)

    def _release(self) -> None:
        super()._release()
        self._course, self._sleeps = NO_STEPS, None

    # -- as another stream's source

    def source(self) -> Source:
        raise wants_async(self)

    def async_source(self) -> AsyncSource:
        return source_of_async_stream(self)

    # -- steps

    def _drive(self, steps: Steps) -> Generator[Any, Any, None]:
        """Perform steps, and hand out the events among them. What it yields besides is for the event loop: it awaits in the
        name of the task that drives it, so it has none of its own, and may be driven in one task up to an event and in another
        one from there."""
        error: BaseException | None = None
        step: Any = None
        while True:
            try:
                step = steps.send(None) if error is None else steps.throw(error)
                error = None
                while True:
                    if step is PULL:
                        step = steps.send((yield from self._source.next().__await__()))
                    elif isinstance(step, Event):
                        yield step
                        step = steps.send(None)
                    elif isinstance(step, Step):
                        step = steps.send((yield from self._perform(step).__await__()))
                    else:
                        step = steps.send((yield from (step if not self._ending else shielded(step)).__await__()))
            except StopIteration:
                break
            except BaseException as raised:
                is_dropped = isinstance(raised, GeneratorExit) and isinstance(step, Event)  # so nothing is under way
                if is_dropped or inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:
                    error = None  # its traceback refers to this frame
                    raise
                error = Stopped() if self._is_interruption(raised) else raised  # the lifecycle decides about it
        if self._ended and self._work is not None:
            yield from shielded(self._work.stop()).__await__()

    async def _next(self, pick: Callable[[Event], Any] | None = None) -> Any:
        """Return the next event, or what `pick` makes of the next one of which that is not None.

        Raises:
            StopAsyncIteration: there is none.
            StreamkitError: as the stream ended.
        """
        course = self._course
        if self._sleeps is None:
            self._enter_loop()
        while True:
            if self._running is not None or course.gi_running:
                self._refuse_second_reader("task")
                break
            if self._handlers:
                self._note_driver()
            try:
                event = course.send(None)
            except StopIteration:
                break
            if not isinstance(event, Event):  # the task has to sleep
                event = await self._advance(course, signal=event)
                if event is None:
                    break
            if pick is None:
                return event
            if (picked := pick(event)) is not None:
                return picked
        self._final()
        raise StopAsyncIteration

    async def _next_item(self) -> Any:
        """Return the next element of the output. Raises as `_next`, and as `StreamManager.output_items`."""
        while not self.output.has_item:
            try:
                await self._next(self.output.item_came)
            except StopAsyncIteration:
                self._final_output()
                raise
        return self.output.next_item()

    @types.coroutine
    def _advance(
        self, course: Any, *, signal: Any = _NOT_BEGUN, error: BaseException | None = None, to_end: bool = False
    ) -> Generator[Any, Any, Event | None]:
        """Perform steps up to the next event, and return it; None at their end. No other task may perform any meanwhile.

        Args:
            signal: what they have yielded for the event loop, if they sleep already.
            error: is thrown into them first.
            to_end: perform them up to their end, and pass over events.
        """
        # It sleeps as `awaiting.finish` does, but here: a generator more for each event made `text_deltas` cost an eighth more than a
        # hook, over the real client.
        sleeps = self._sleeps or self._enter_loop()
        before, self._running = self._running, course
        sleeps.enter()
        value: Any = None
        try:
            if signal is _NOT_BEGUN:
                signal = course.send(None) if error is None else course.throw(error)
            while True:
                if isinstance(signal, Event):
                    if not to_end:
                        return signal
                    signal = course.send(None)
                    continue
                value = error = None
                begun = sleeps.begin(signal)
                try:
                    value = yield signal
                except GeneratorExit:  # nobody awaits this any more; there is no task that could leave a scope
                    course.close()
                    raise
                except BaseException as raised:
                    error = raised
                error = sleeps.end(begun, value, error)
                signal = course.send(value) if error is None else course.throw(error)
        except StopIteration:
            return None
        finally:
            value = error = None  # an error's traceback refers to this frame
            self._running = before
            if self._pause is not None:
                self._pause.set()
                self._pause = None

    @property
    def _is_running(self) -> bool:
        return self._running is not None or self._course.gi_running

    # Each coroutine that only awaits another one would be held while the task sleeps.

    def _perform_all(self, course: Any, error: BaseException | None = None) -> Awaitable[object]:
        """Perform steps, and hand out no event."""
        return self._advance(course, error=error, to_end=True)

    async def _stop_steps(self, course: Any) -> None:
        """End steps that wait between two events."""
        if inspect.getgeneratorstate(course) == inspect.GEN_SUSPENDED:
            await self._perform_all(course, Stopped())

    async def _perform(self, step: Any) -> Any:
        match step:
            case OpenSource(value=value, limits=limits, clock=clock):
                await self._start_guard()
                opens = partial(open_async, value, limits, self._after)
                return await self._open_in(opens() if clock is None else clock.wait_async(opens))
            case CallForSource(function=function):
                value = call_source(function)
                return await self._open_in(await_source(value)) if inspect.isawaitable(value) else value
            case WaitForAnswers(seconds=seconds):
                return await self.wait_for(anyio.Event(), seconds, for_answers=True)
            case Pause(seconds=seconds):
                return await self._pause_for(seconds)
            case _:  # CLOSE
                if not self._ending:
                    return await self._close_source()
                if self._work is not None:
                    await shielded(self._work.stop())
                if self._source is not None and self._source.holds_scope:
                    return await self._close_source()  # a scope of ours would be inside the one that it leaves
                return await shielded(self._close_source())

    def _drain(self) -> Awaitable[object]:
        """Run to the end, without handing out events."""
        if self._is_running:
            self._refuse_second_reader("task")
            return self._perform_all(NO_STEPS)
        self._iterated = False
        self._note_driver()
        return self._perform_all(self._course)

    async def read_nested(self, source: Any) -> AsyncGenerator[Event, None]:
        """Read another source of the same run inside a hook or a loop: the events, each after the handlers got it."""
        course = self._drive(self._read_nested_source(source))
        try:
            while (event := await self._advance(course)) is not None:
                yield event
        finally:
            await self._stop_steps(course)

    def _final(self) -> list[Message]:
        if isinstance(self._error, (StopIteration, StopAsyncIteration)):  # it would end a loop as if nothing was wrong
            raise RuntimeError(f"a hook raised {self._error!r}") from self._error
        return super()._final()

    async def _close_source(self) -> None:
        if self._source is not None:
            await self._source.close()
