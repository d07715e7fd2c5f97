"""The async shell, on asyncio and trio: `manager_sync.py` with `async` and `await`, and with tasks for what is awaited."""

# pyright: reportPrivateUsage=false
# A shell drives the state, the engine and their messages, whose underscores keep users out.

from __future__ import annotations

import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import anyio
import anyio.abc
import anyio.lowlevel

from ..answers import Answer
from ..errors import StreamkitError, UsageError
from ..events import Created, Delta, Event, Run, RunStep
from ..handlers import Call, Handler
from ..messages import COMPACT_AT, Message, compact, pieces_of
from ..sources.open import open_async
from ..sources.source import AsyncChunks, AsyncSource, await_source, call_source, translate
from .manager import Manager, Stopped, add_note, first_of, is_answer_text, of_delta
from .state import CLOSE, NEXT, PULL, Wait

__all__ = ["AsyncStreamManager"]

_T = TypeVar("_T")


class AsyncStreamManager(Manager):
    """Drives a stream, in the task that iterates it; on asyncio and on trio.

    An async context manager and async iterable; the rest is as `StreamManager`. Awaitables that answer tool calls run
    beside the stream inside `async with`, `until_done` and `get_final_…`, else where the stream waits for them.
    """

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        self._source: AsyncSource | None = None
        self._scope: anyio.CancelScope | None = None
        self._wakeup: anyio.Event | None = None  # while it waits for an answer
        self._schedule: Callable[[Callable[[], object]], object] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._running = False
        self._pulling = False
        self._working: set[int] = set()
        self._task: int | None = None
        self._run_over: anyio.Event | None = None  # while another task waits for it
        super().__init__(source, handlers, awaitables=True, **options)
        self._deltas = {kind: self._tells(calls) for kind, calls in self._delta_plan() if calls}
        self._events = self._run()

    async def __aenter__(self) -> Self:
        if self._source is None and not self._ended:
            try:
                await self._open(self._source_given)
            except Stopped:
                await self._fail(Stopped())
            except BaseException as error:
                await self._fail(error)
                raise
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
        return AsyncIteration(self, lambda event: event)

    @property
    def text_deltas(self) -> AsyncIterator[str]:
        """As `StreamManager.text_deltas`."""
        return AsyncIteration(self, lambda event: event.value if is_answer_text(event) else None)

    async def until_done(self) -> None:
        """As `StreamManager.until_done`."""
        await self._drain()
        self._final()

    async def get_final_messages(self) -> list[Message]:
        """As `StreamManager.get_final_messages`."""
        await self._drain()
        return self._final()

    async def get_final_text(self) -> str:
        """As `StreamManager.get_final_text`."""
        await self._drain()
        return self._final_text()

    async def get_final_run(self) -> Run:
        """As `StreamManager.get_final_run`."""
        await self._drain()
        return self._final_run()

    async def get_final_run_steps(self) -> list[RunStep]:
        """As `StreamManager.get_final_run_steps`."""
        await self._drain()
        self._final()
        return list(self._engine.runs.steps)

    def chunks(self, protocol: str) -> AsyncIterator[dict[str, Any]]:
        """As `StreamManager.chunks`."""
        return AsyncChunks(self, self._encoder(protocol))

    async def _read_nested(self, source: Any) -> AsyncGenerator[Event, None]:
        """As `StreamManager._read_nested`."""
        if self._over_early:
            return
        try:
            with self._saved_source():
                await self._open(source)
                try:
                    async with contextlib.aclosing(self._read_nested_events()) as events:
                        async for event in events:
                            yield event
                            if self._over_early:
                                return
                finally:
                    await self._close_source()
        finally:
            if self._ended:  # who ended the stream closed the further source
                await self._close_source()

    async def _read_nested_events(self) -> AsyncGenerator[Event, None]:
        story, answer = self._nested_lifecycle(), None
        while (step := story.send(answer) if answer is not None else next(story, None)) is not None:
            answer = None
            if step is PULL:
                try:
                    answer = await self._interruptible(cast("AsyncSource", self._source).pull)
                except StreamkitError:
                    if self._over_early:
                        return  # our own end broke the pull
                    raise
            elif step is CLOSE:
                await self._close_source()
            else:
                for event in cast("Iterator[Event]", step):
                    await self._tell(event)
                    if self._over_early:
                        return
                    yield event
            if self._over_early:
                return

    async def _close_source(self) -> None:
        if self._source is not None:
            await self._source.close()

    async def close(self) -> None:
        """As `StreamManager.close`."""
        if self._running:
            self.cancel()
            if anyio.get_current_task().id != self._task:
                self._run_over = self._run_over or anyio.Event()
                await self._run_over.wait()
            elif not self._pulling and self._source is not None:
                await self._source.close()  # a hook's call: nothing is being pulled
        else:
            await self._events.aclose()
            if not self._ended:
                await self._fail(Stopped())

    def cancel(self) -> None:
        self._closing = True
        self._in_loop(self._stop_waiting)

    # -- the shell

    def _stop_waiting(self) -> None:
        self._wake()
        if self._scope is not None and self._pulling:  # no hook is cut short
            self._scope.cancel()

    def _wake(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()

    def _woken(self) -> None:
        self._in_loop(self._wake)

    def _in_loop(self, function: Callable[[], object]) -> None:
        if self._schedule is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is over, and so is what could wait
                self._schedule(function)

    async def _drain(self) -> None:
        """Run to the end, inside a scope that `cancel` can cancel wherever the stream waits."""
        if self._running and not self._ended:
            raise UsageError("the stream runs already: a hook or another task cannot run it to its end")
        if self._running:
            return
        if self._tasks is not None or not self._engine.takes_outputs:  # nothing runs beside it
            await self._drain_in_scope()
            return
        tasks = self._tasks = anyio.create_task_group()
        await tasks.__aenter__()
        try:
            await self._drain_in_scope()
        finally:  # `async with` would raise the stream's error as a group
            self._tasks = None
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)

    async def _drain_in_scope(self) -> None:
        self._unseen = True
        try:
            with anyio.CancelScope() as self._scope:
                async for _ in self._events:
                    pass
        finally:
            self._scope = None

    async def _open(self, value: Any) -> None:
        if self._closing:
            raise Stopped
        if not self.started:
            self._claim()
        self._schedule = self._schedule or _scheduler()
        self._mark("start")
        try:
            self._source = source = await self._interruptible(open_async, value)
        except StreamkitError:
            if self._closing:
                raise Stopped from None
            raise
        if source is None:
            raise Stopped
        self._source_opened(source)

    async def _interruptible(self, function: Callable[..., Awaitable[_T]], *arguments: Any) -> _T | None:
        """What this gives, from inside a scope that `cancel` can cancel; then it is None."""
        self._pulling = True
        try:
            if self._scope is not None:
                return await function(*arguments)
            try:
                with anyio.CancelScope() as self._scope:
                    return await function(*arguments)
            finally:
                self._scope = None
        finally:
            self._pulling = False
        return None

    async def _next(self) -> bool:
        value = call_source(self._following or partial(cast("Any", self._then), self))
        if inspect.isawaitable(value):
            value = await self._interruptible(await_source, value)
        if value is not None:
            await self._open(value)
        return value is not None

    async def _wait(self, answers: list[Answer]) -> list[tuple[Answer, int]]:
        self._wakeup = wakeup = anyio.Event()
        left = self._deadlines.left(answers)
        if not self._closing and not any(a.ready or a.error for a in answers):
            await self._wait_or_work(answers, wakeup, left)
        return self._deadlines.over(answers)

    async def _wait_or_work(self, answers: list[Answer], wakeup: anyio.Event, seconds: float | None) -> None:
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
                while not self._closing and any(a.given and not a.ready for a in answers):
                    self._wakeup = wakeup = anyio.Event()
                    self._start_work()
                    await wakeup.wait()
            finally:
                self._tasks = None
            if self._closing:
                tasks.cancel_scope.cancel()

    def _start_work(self) -> None:
        """Start the awaitables that tool calls were answered with."""
        for call in self._engine.unanswered:
            answer = call.answer_slot
            if answer is None or not answer.given or answer.ready or id(answer) in self._working:
                continue
            if self._tasks is not None and answer.wake == self._woken:
                self._working.add(id(answer))
                self._tasks.start_soon(self._work, answer)

    def _drop_work(self) -> None:
        """Awaitables that the stream ended before: they never run."""
        for call in self._engine.unanswered:
            answer = call.answer_slot
            if answer is None or not answer.given or answer.ready or id(answer) in self._working:
                continue
            if inspect.iscoroutine(answer.value):
                answer.value.close()

    @staticmethod
    async def _work(answer: Answer) -> None:
        awaitable: Any = answer.value
        try:
            answer.resolve(await awaitable)
        except Exception as error:  # raised again in the stream's own task
            answer.resolve(None, error)

    async def _run(self) -> AsyncGenerator[Event, None]:
        tells = self._deltas.get
        engine = self._engine
        find, pending = engine.find_open, engine.pending
        step: Any
        answer: Any = None
        batch: Sequence[Any]
        message: Message | None = None
        tail: list[str] = []
        pull: Any = None
        prepare: Any = None
        feed: Any = None
        take: Any = None
        known: str | None = None
        kind: Any = None
        grow: Any = None
        tell: Any = None
        awaited = False
        pulling = False
        unseen = self._unseen
        try:
            if self._ended:
                return
            self._running = True
            self._task = anyio.get_current_task().id
            if self._source is None:
                await self._open(self._source_given)
            story = self._lifecycle()
            while True:
                if pulling:  # the story is asked again when something waits, or at the source's end
                    try:
                        if self._scope is None:
                            answer = await self._interruptible(pull)
                        else:  # as `_interruptible` does
                            self._pulling = True
                            answer = await pull()
                        if prepare is not None:
                            answer = prepare(answer)
                    except StopAsyncIteration:
                        answer = None
                    except Exception as error:
                        if self._closing:
                            raise Stopped from None  # our own cancel broke the pull
                        translate(error)
                    finally:
                        self._pulling = False
                    if self._closing:
                        raise Stopped
                    if answer is None:
                        pulling = False
                        continue
                    if feed is None or type(answer) is not bytes:
                        batch = self._decode(answer)
                        feed, take = self._direct()
                    else:
                        batch = take(feed(answer))
                    stepped = not batch
                    seen: Any
                    for seen in batch:
                        if seen.message_id is not known or type(seen) is not kind or seen.replace:
                            known = kind = None
                            found = find(seen.message_id)
                            if found is None or type(seen) is not found.delta_event or seen.replace:
                                stepped = True
                                for event in engine.complete_event(seen):
                                    await self._tell(event)
                                    self._check()
                                    if not unseen:
                                        self._running = False
                                        yield event
                                        self._running = True
                                        unseen = self._unseen
                                        self._check()
                                continue
                            if len(tail) >= COMPACT_AT and message is not None:
                                compact(message)
                            known, kind, message, tail = seen.message_id, type(seen), found, pieces_of(found)
                            grow, (tell, awaited) = tail.append, tells(kind, _NOBODY)
                        # `Engine.append_delta`, in place: the call would be a tenth of what a delta costs. The pieces of one
                        # message that follow each other share the look-up.
                        grow(seen.value)
                        seen.snapshot = message
                        self._current = seen
                        if tell is not None:
                            result = tell(seen, message)
                            if result is not None and (awaited or inspect.isawaitable(result)):
                                await result
                            if self._closing:
                                raise Stopped
                        if not unseen:
                            self._running = False
                            yield seen
                            self._running = True
                            unseen = self._unseen
                            if self._closing:
                                raise Stopped
                    if len(tail) >= COMPACT_AT and message is not None:
                        compact(message)
                    if stepped or pending:
                        self._check()
                        pulling = not (pending or self._declined or self._decoder is None or self._decoder.exhausted)
                    continue
                try:
                    step = story.send(answer)
                except StopIteration:
                    break
                answer = None
                if step is PULL:
                    pulling, pull, prepare = True, self._source.next, self._source.prepare  # type: ignore[union-attr]
                    feed, take = self._direct()
                    message = known = kind = None
                    tail = []
                elif step is NEXT:
                    answer = await self._next()
                elif step is CLOSE:
                    await self._source.close()  # type: ignore[union-attr]
                elif type(step) is Wait:
                    answer = await self._wait(step.answers)
                else:
                    for event in step:
                        await self._tell(event)
                        self._check()
                        if not unseen:
                            self._running = False
                            yield event
                            self._running = True
                            unseen = self._unseen
                            self._check()
                self._check()
        except Stopped:
            await self._fail(Stopped())
        except Exception as error:
            told = await self._fail(error)
            self._running = False
            for event in () if self._unseen else told:
                yield event
            if isinstance(error, (StopIteration, StopAsyncIteration)):
                return  # as in `manager_sync.py`
            raise
        except BaseException as error:
            await self._fail(error)
            raise
        finally:
            self._running = False
            self._drop_work()
            self._mark("end")
            if self._ended:  # else something stopped its end, and it is ended again
                self._let_go()
            if self._run_over is not None:
                self._run_over.set()

    def _tells(self, calls: Sequence[Call]) -> tuple[Callable[[Any, Any], Any], bool]:
        """What makes these calls of a delta, in order, and whether it is known to give an awaitable."""
        if len(calls) == 1:
            return of_delta(calls[0]), calls[0].is_async
        hooks = [(of_delta(call), call.is_async) for call in calls]

        async def tell(event: Event, snapshot: Message) -> None:
            for hook, awaited in hooks:
                result = hook(event, snapshot)
                if result is not None and (awaited or inspect.isawaitable(result)):
                    await result
                if self._closing:
                    raise Stopped

        return tell, True

    async def _tell(self, event: Event) -> None:
        """As `StreamManager._tell`."""
        self._note(event)
        if isinstance(event, Created):
            self._mark("first")
        calls = self._plan[type(event)]
        for position, call in enumerate(calls):
            if self._closing and isinstance(event, Delta):
                return
            try:
                await self._invoke(call, event)
            except BaseException as error:
                with anyio.CancelScope(shield=True):
                    await self._tell_rest(calls[position + 1 :], event, error)
                raise
        if self._engine.pending:
            self._start_work()

    async def _invoke(self, call: Call, event: Event) -> None:
        result = call.function(event) if call.takes_event else call.function(*event.arguments())
        if result is not None and (call.is_async or inspect.isawaitable(result)):
            await result

    async def _tell_rest(self, calls: Sequence[Call], event: Event, error: BaseException) -> None:
        for call in calls:
            try:
                await self._invoke(call, event)
            except Exception as another:
                add_note(error, event, another)

    async def _fail(self, error: BaseException) -> list[Event]:
        """As `StreamManager._fail`; a cancellation does not keep the handlers from being told."""
        first = error
        told: list[Event] = []
        with anyio.CancelScope(shield=True):
            try:
                if self._source is not None:
                    await self._source.close()
            except StreamkitError as another:
                add_note(error, None, another)
            for event in self._failed(error):
                told.append(event)
                try:
                    await self._tell(event)
                except BaseException as another:
                    first = first_of(first, event, another)
        if first is not error:
            self._error = first if isinstance(first, Exception) else self._error
            raise first
        return told


_NOBODY = (None, False)  # is told of a kind of delta


class AsyncIteration(AsyncIterator[_T]):
    """What a stream's events give, as an iterator that a loop may leave at any time without closing the stream."""

    def __init__(self, manager: AsyncStreamManager, pick: Callable[[Any], _T | None]) -> None:
        self._manager = manager
        self._pick = pick

    async def __anext__(self) -> _T:
        async for event in self._manager._events:
            if (value := self._pick(event)) is not None:
                return value
        self._manager._final()
        raise StopAsyncIteration


def _scheduler() -> Callable[[Callable[[], object]], object]:
    """Runs a function in the current event loop, from any thread, soon."""
    token: Any = anyio.lowlevel.current_token().native_token
    soon: Callable[[Callable[[], object]], object] = getattr(token, "run_sync_soon", None) or token.call_soon_threadsafe
    return soon
