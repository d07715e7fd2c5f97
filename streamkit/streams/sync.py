"""The sync shell: pulls, waits, tells the handlers, and closes. What happens is decided in `state.py`.

`manager_async.py` is the same with `async` and `await`; what is mended here is mended there.
"""

# pyright: reportPrivateUsage=false
# A shell drives the state, the engine and their messages, whose underscores keep users out.

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, cast

from ..answers import Answer
from ..errors import StreamkitError, UsageError
from ..events import Created, Delta, Event, Run, RunStep
from ..handlers import Call, Handler
from ..messages import COMPACT_AT, Message, compact, pieces_of
from ..sources.interrupt import Interruptible
from ..sources.open import open_sync
from ..sources.source import Source, SyncChunks, call_source, translate
from .manager import Manager, Stopped, add_note, first_of, is_answer_text, needs_async, of_delta
from .state import CLOSE, NEXT, PULL, Wait

__all__ = ["StreamManager"]


class StreamManager(Manager):
    """Drives a stream, in the thread that iterates it.

    It is a context manager (the request is sent on entry, all is closed when it is left) and an iterable of events.
    Without `with`, the request is sent at the first use, and the end of the stream closes it.
    """

    def __init__(self, source: Any, handlers: tuple[Handler, ...], **options: Any) -> None:
        for handler in handlers:
            if name := needs_async(handler):
                kind = type(handler).__name__
                raise UsageError(f"{kind}.{name} is async and a sync stream cannot run it: use `astream`")
        self._wakeup: threading.Event | None = None  # while it waits for an answer
        self._source: Source | None = None
        self._calls = Interruptible()  # that open a source
        self._thread: int | None = None
        super().__init__(source, handlers, awaitables=False, **options)
        self._deltas = {kind: self._tells([*map(of_delta, calls)]) for kind, calls in self._delta_plan() if calls}
        self._events = self._run()

    def __enter__(self) -> Self:
        if self._source is None and not self._ended:
            try:
                self._open(self._source_given)
            except Stopped:
                self._fail(Stopped())
            except BaseException as error:
                self._fail(error)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """The events, each after the handlers were told of it. `break` pauses.

        Raises:
            StreamkitError: as the stream ended, each time it is asked.
        """
        for event in self._events:  # noqa: UP028  # not `yield from`, which would close the stream where a loop breaks
            yield event
        self._final()

    @property
    def text_deltas(self) -> Iterator[str]:
        """The assistant's text as it arrives (choice 0). A repair that replaces text is not in it."""
        for event in self:
            if is_answer_text(event):
                yield event.value  # type: ignore[attr-defined]

    def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        if not self._events.gi_running:  # type: ignore[attr-defined]
            self._unseen = True
            for _ in self._events:
                pass
        elif not self._ended:
            raise UsageError("the stream runs already: a hook or another thread cannot run it to its end")
        self._final()

    def get_final_messages(self) -> list[Message]:
        """Run to the end; all messages. Raises as iteration does."""
        self.until_done()
        return self._final()

    def get_final_text(self) -> str:
        """Run to the end; the assistant's text (choice 0). Raises as iteration does."""
        self.until_done()
        return self._final_text()

    def get_final_run(self) -> Run:
        """Run to the end; the run."""
        self.until_done()
        return self._final_run()

    def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end; the run's steps."""
        self.until_done()
        self._final()
        return list(self._engine.runs.steps)

    def chunks(self, protocol: str) -> Iterator[dict[str, Any]]:
        """The same stream as another protocol's wire items.

        A stream that is made of them answers this one's confirmations, if nothing that copies them stands between.

        Raises:
            UsageError: there is no such protocol.
        """
        return SyncChunks(self, self._encoder(protocol))

    def _read_nested(self, source: Any) -> Generator[Event, None, None]:
        """Read a further source of the same run here and now, from within a hook or a loop over this stream, as after
        a call's output was sent: the events, each after the handlers were told of it. Then the source before goes on.

        Raises:
            StreamkitError: as this source failed or ended. It ends the stream if the hook lets it through.
        """
        if self._over_early:
            return
        try:
            with self._saved_source():
                self._open(source)
                try:
                    for event in self._read_nested_events():
                        yield event
                        if self._over_early:
                            return
                finally:
                    self._close_source()
        finally:
            if self._ended:  # who ended the stream closed the further source
                self._close_source()

    def _read_nested_events(self) -> Generator[Event, None, None]:
        story, answer = self._nested_lifecycle(), None
        while (step := story.send(answer) if answer is not None else next(story, None)) is not None:
            answer = None
            if step is PULL:
                try:
                    answer = cast("Source", self._source).pull()
                except StreamkitError:
                    if self._over_early:
                        return  # our own end broke the pull
                    raise
            elif step is CLOSE:
                self._close_source()
            else:
                for event in cast("Iterator[Event]", step):
                    self._tell(event)
                    if self._over_early:
                        return
                    yield event
            if self._over_early:
                return

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()

    def close(self) -> None:
        """Stop here: closes what is upstream, tells what is open as done, and `on_end`. Then nothing more."""
        if self._events.gi_running:  # type: ignore[attr-defined]
            self.cancel()
            if self._thread == threading.get_ident() and self._source is not None:
                self._source.close()  # a hook's call: nothing is being pulled
        else:
            self._events.close()
            if not self._ended:
                self._fail(Stopped())

    def cancel(self) -> None:
        self._closing = True
        self._woken()
        self._calls.stop()
        if self._source is not None:
            self._source.interrupt()

    # -- the shell

    def _woken(self) -> None:
        if (wakeup := self._wakeup) is not None:
            wakeup.set()

    def _open(self, value: Any) -> None:
        if self._closing:
            raise Stopped
        if not self.started:
            self._claim()
        self._mark("start")
        try:
            self._source = source = self._calls.call(open_sync, value)
        except StreamkitError:
            if self._closing:
                raise Stopped from None
            raise
        self._source_opened(source)

    def _next(self) -> bool:
        value = self._calls.call(call_source, self._following or partial(cast("Any", self._then), self))
        if value is not None:
            self._open(value)
        return value is not None

    def _wait(self, answers: list[Answer]) -> list[tuple[Answer, int]]:
        self._wakeup = wakeup = threading.Event()  # before it is looked whether there is an answer: none is missed
        left = self._deadlines.left(answers)
        if not self._closing and not any(answer.given for answer in answers):
            wakeup.wait(left)
        self._wakeup = None
        return self._deadlines.over(answers)

    def _run(self) -> Generator[Event, None, None]:
        tells = self._deltas.get
        engine = self._engine
        find, pending = engine.find_open, engine.pending
        step: Any
        answer: Any = None
        batch: Sequence[Any]
        message: Message | None = None
        tail: list[str] = []
        pull: Any = None
        feed: Any = None
        take: Any = None
        known: str | None = None
        kind: Any = None
        grow: Any = None
        tell: Any = None
        pulling = False
        unseen = self._unseen
        try:
            if self._ended:
                return
            self._thread = threading.get_ident()
            if self._source is None:
                self._open(self._source_given)
            story = self._lifecycle()
            while True:
                if pulling:  # the story is asked again when something waits, or at the source's end
                    try:
                        answer = pull()
                    except Exception as error:
                        if self._closing:
                            raise Stopped from None  # our own cancel broke the pull
                        translate(error)
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
                                    self._tell(event)
                                    self._check()
                                    if not unseen:
                                        yield event
                                        unseen = self._unseen
                                        self._check()
                                continue
                            if len(tail) >= COMPACT_AT and message is not None:
                                compact(message)
                            known, kind, message, tail = seen.message_id, type(seen), found, pieces_of(found)
                            grow, tell = tail.append, tells(kind)
                        # `Engine.append_delta`, in place: the call would be a tenth of what a delta costs. The pieces of one
                        # message that follow each other share the look-up.
                        grow(seen.value)
                        seen.snapshot = message
                        self._current = seen
                        if tell is not None:
                            if (result := tell(seen, message)) is not None:
                                self._refuse_awaitable(tell, result)
                            if self._closing:
                                raise Stopped
                        if not unseen:
                            yield seen
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
                    pulling, pull = True, self._source.next  # type: ignore[union-attr]
                    feed, take = self._direct()
                    message = known = kind = None
                    tail = []
                elif step is NEXT:
                    answer = self._next()
                elif step is CLOSE:
                    self._source.close()  # type: ignore[union-attr]
                elif type(step) is Wait:
                    answer = self._wait(step.answers)
                else:
                    for event in step:
                        self._tell(event)
                        self._check()
                        if not unseen:
                            yield event
                            unseen = self._unseen
                            self._check()
                self._check()
        except Stopped:
            self._fail(Stopped())
        except Exception as error:
            told = self._fail(error)
            yield from () if self._unseen else told
            if isinstance(error, StopIteration):
                return  # a hook's: Python lets no generator raise it, so whoever runs the stream does
            raise
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self._mark("end")
            if self._ended:  # else something stopped its end, and it is ended again
                self._let_go()

    def _tells(self, hooks: list[Callable[[Any, Any], Any]]) -> Callable[[Any, Any], Any]:
        """What calls these hooks of a delta, in order."""
        if len(hooks) == 1:
            return hooks[0]

        def tell(event: Event, snapshot: Message) -> None:
            for hook in hooks:
                if (result := hook(event, snapshot)) is not None:
                    self._refuse_awaitable(hook, result)
                if self._closing:
                    raise Stopped

        return tell

    def _tell(self, event: Event) -> None:
        """Tell all handlers of an event. One that raises does not keep it from the others."""
        self._note(event)
        if isinstance(event, Created):
            self._mark("first")
        if not (calls := self._plan[type(event)]):
            return
        for position, call in enumerate(calls):
            if self._closing and isinstance(event, Delta):
                return
            try:
                self._invoke(call, event)
            except BaseException as error:
                self._tell_rest(calls[position + 1 :], event, error)
                raise

    def _invoke(self, call: Call, event: Event) -> None:
        result = call.function(event) if call.takes_event else call.function(*event.arguments())
        if result is not None:
            self._refuse_awaitable(call.function, result)

    def _tell_rest(self, calls: Sequence[Call], event: Event, error: BaseException) -> None:
        for call in calls:
            try:
                self._invoke(call, event)
            except Exception as another:
                add_note(error, event, another)

    def _fail(self, error: BaseException) -> list[Event]:
        """End the stream before its end: close what is upstream, then tell the rest to all handlers. Gives what was told."""
        first = error
        told: list[Event] = []
        try:
            if self._source is not None:
                self._source.close()
        except StreamkitError as another:
            add_note(error, None, another)
        for event in self._failed(error):
            told.append(event)
            try:
                self._tell(event)
            except BaseException as another:
                first = first_of(first, event, another)
        if first is not error:
            self._error = first if isinstance(first, Exception) else self._error
            raise first
        return told

    @staticmethod
    def _refuse_awaitable(function: Any, result: Any) -> None:
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            name = getattr(function, "__qualname__", repr(function))
            raise UsageError(f"{name} gave an awaitable, which a sync stream cannot await: use `astream`")
