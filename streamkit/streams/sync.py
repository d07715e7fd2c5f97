"""The sync manager: a thread drives the stream. It performs the lifecycle's steps and decides nothing.

`aio.py` is the same with `async` and `await`; a test holds that the parts named in both are equal but for these.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Generator, Iterator
from functools import partial
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from ..core.delivery import Steps
from ..core.steps import CallForSource, OpenSource, Pause, Step, Stopped, WaitForAnswers
from ..events import Event, Run, RunStep
from ..handlers import Handler
from ..messages import Message
from ..sources.chunks import SyncChunks
from ..sources.interrupt import Interruptible
from ..sources.open import open_sync, source_of_stream
from ..sources.source import AsyncSource, Source, call_source
from .lifecycle import NO_STEPS
from .manager import I, Manager, T
from .options import StreamOptions

if TYPE_CHECKING:
    from ..messages.json_tree import JsonValue
    from ..protocols import Encoder
    from ..sources.timeouts import ContentClock
    from .event_stream import OnDisconnect
    from .event_stream_sync import SyncEventStream

__all__ = ["StreamManager"]


class StreamManager(Manager, Generic[T]):
    """A stream that the calling thread drives: made by `stream(…)`.

    Use it in one of three ways, which agree with each other and with the handlers:

        with sk.stream(ask) as stream:                # iterate: events, or `stream.text_deltas`
            for event in stream: ...
        sk.stream(ask, MyHandler()).until_done()      # let the handlers do it
        text = sk.stream(ask).get_final_text()        # only the result

    In `with`, the request is sent on entry, and everything is closed when the block is left. Without it, the request is
    sent at the first use, and the end of the stream closes it.
    """

    def __init__(self, source: Any, handlers: tuple[Handler, ...], options: StreamOptions) -> None:
        self._wakeup: threading.Event | None = None  # while it waits for an answer
        self._calls: Interruptible | None = None  # while it makes a call that opens a source
        super().__init__(source, handlers, options, awaitables=False)
        self._events: Any = self._drive(self._run())  # Any: its type does not show `gi_running`

    def __enter__(self) -> Self:
        self._perform_all(self._enter())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Event]:
        """Yield the events, each after the handlers got it. `break` pauses; another loop goes on from there.

        Raises:
            StreamkitError: as the stream ended, each time it is iterated.
            UsageError: it runs already, so that a hook or another thread cannot read it.
        """
        try:
            for event in self._unread():  # noqa: UP028  # not `yield from`, which would close the stream where a loop breaks
                yield event
        except ValueError as error:
            if not self._is_refused(error):
                raise
        self._final()

    @property
    def text_deltas(self) -> Iterator[str]:
        """The assistant's text (choice 0) as it arrives: of all run steps, with an empty line before that of each further
        one. A repair that replaces text is not in it.

        Raises:
            StreamkitError: as the stream ended.
            UsageError: the stream had ended before, or runs already.
        """
        return self._picked(self._answer_text.piece)

    @property
    def partial_outputs(self) -> Iterator[JsonValue]:
        """`partial_output` after each delta of its text: the same live value each time. Raises as `text_deltas`."""
        return self._picked(self.output.partial_after)

    def output_items(self: StreamManager[list[I]]) -> Iterator[I]:
        """Yield the elements of an output that is `list[I]`, each as it closes and before the next one begins.

        Raises: as `text_deltas` and `get_final_output`; `OutputError` for an element that is no I, `UsageError` without a list.
        """
        output = self.output
        output.item_reader()
        came = self._picked(output.item_came)
        while output.has_item or next(came, False):
            yield output.next_item()
        self._final_output()

    def until_done(self) -> None:
        """Run to the end. Raises as iteration does."""
        self._drain()
        self._final()

    def get_final_messages(self) -> list[Message]:
        """Run to the end, and return all messages. Raises as iteration does."""
        self._drain()
        return self._final()

    def get_final_text(self) -> str:
        """Run to the end, and return the assistant's last answer: its text (choice 0) in the last run step that has one. What it
        said before it called tools is not in it. Raises as iteration does."""
        self._drain()
        return self._final_text()

    def get_final_output(self) -> T:
        """Run to the end, and return the JSON of the answer as the stream's `output_type`: of the last run step that ended
        without a call of ours.

        Raises:
            OutputError: it has none; `reason` says why. Otherwise as iteration does; `UsageError` without an `output_type`.
        """
        self._drain()
        output: T = self._final_output()
        return output

    def get_final_run(self) -> Run:
        """Run to the end, and return the run. Raises as iteration does."""
        self._drain()
        return self._final_run()

    def get_final_run_steps(self) -> list[RunStep]:
        """Run to the end, and return the run's steps. Raises as iteration does."""
        self._drain()
        return self._final_run_steps()

    def chunks(self, protocol: str) -> Iterator[dict[str, Any]]:
        """Return the same stream as another protocol's wire items, each a dict.

        A stream over them forwards its answers to this one's confirmations, if nothing that copies the items stands
        between.

        Raises:
            UsageError: there is no such protocol.
        """
        return SyncChunks(self, self._encoder(protocol))

    def sse(
        self,
        protocol: str | Encoder = "streamkit",
        *,
        keepalive: float | None = 15.0,
        on_disconnect: OnDisconnect = "cancel",
        retry: int | None = 1000,
        expose_errors: bool = False,
    ) -> SyncEventStream:
        """Return the stream as Server-Sent Events for a response, in any protocol: an iterator of bytes, with the
        `headers` to send.

            body = sk.stream(ask, MyHandler()).sse("vercel_ui")
            return flask.Response(body, headers=body.headers)

        A thread of its own reads the stream, and calls the handlers. Each item is one or more whole frames, the first comes
        at once. An error of the stream becomes the protocol's error frame, and the body ends as usual.

        Args:
            protocol: the name of a protocol, or its encoder.
            keepalive: the seconds without a frame after which a comment comes; None for never.
            on_disconnect: what `close()` does, which every framework calls when the client has left: `cancel` stops the
                stream, and returns when running code has ended; with `continue` the stream is read to its end all the same.
                Leaving the stream's own `with` block closes it in both cases.
            retry: the milliseconds after which a browser connects again; None leaves it to the browser.
            expose_errors: send the texts of errors too, which may hold anything. Without it, they are in the log alone, by
                the `instance` that the client gets.

        Raises:
            UsageError: an argument is wrong, or the stream was read already.
        """
        from .event_stream_sync import SyncEventStream, sse_writer

        return SyncEventStream(self, sse_writer(protocol, retry), keepalive, on_disconnect, expose_errors)

    def ndjson(
        self,
        protocol: str | Encoder = "streamkit",
        *,
        keepalive: float | None = None,
        on_disconnect: OnDisconnect = "cancel",
        expose_errors: bool = False,
    ) -> SyncEventStream:
        """Return the stream as lines of JSON (NDJSON) for a response, in any protocol: what the readers of Open
        Interpreter's format take. Otherwise as `sse`.

            body = sk.stream(ask, MyHandler()).ndjson("open_interpreter")
            return flask.Response(body, headers=body.headers)

        Args:
            protocol: the name of a protocol, or its encoder.
            keepalive: the seconds without a line after which an empty one comes; None for never, as not every reader skips it.
            on_disconnect: as of `sse`.
            expose_errors: as of `sse`.

        Raises:
            UsageError: an argument is wrong, or the stream was read already.
        """
        from .event_stream_sync import SyncEventStream, lines_writer

        return SyncEventStream(self, lines_writer(protocol), keepalive, on_disconnect, expose_errors)

    def close(self) -> None:
        """Stop here: close what is upstream, end what is open, and call `on_end`. It returns when that is done."""
        if self._reader is not None and self._reader.stop():
            return
        if not self._events.gi_running:
            try:
                self._events.close()
            except ValueError as error:  # another thread has begun to run it
                if not _is_of_generator(error):
                    raise
            else:
                self._perform_all(self._stop())
                return
        self.cancel()
        if self.driver == threading.get_ident() and not self._pulling:  # a hook's call
            self._close_source()

    def cancel(self) -> None:
        self._closing = True
        self.answer_came()
        if (calls := self._calls) is not None:
            calls.cancel()
        if (source := self._source) is not None:
            source.interrupt()

    def _release(self) -> None:
        super()._release()
        self._events = NO_STEPS

    # -- as another stream's source

    def source(self) -> Source:
        return source_of_stream(self)

    def async_source(self) -> AsyncSource:
        from ..sources.threads import threaded  # for async streams alone, as anyio is

        return threaded(self.source())

    # -- steps

    @property
    def _pull_now(self) -> Callable[[], Any]:
        pull: Callable[[], Any] = self._source.next
        return pull

    def _drive(self, steps: Steps) -> Generator[Event, None, None]:
        """Perform steps, and hand out the events among them."""
        self.driver = threading.get_ident()
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(None) if error is None else steps.throw(error)
                error = None
                while True:
                    if isinstance(step, Event):
                        yield step
                        step = steps.send(None)
                    elif isinstance(step, Step):
                        step = steps.send(self._perform(step))
                    else:
                        raise AssertionError(f"a sync stream cannot await {step!r}")
            except StopIteration:
                return
            except GeneratorExit:  # this generator is closed, or garbage: the stream ends step by step all the same
                error = Stopped()
            except BaseException as raised:
                if inspect.getgeneratorstate(steps) != inspect.GEN_CLOSED:
                    error = raised  # what a step raised, the lifecycle decides about
                elif raised is error and isinstance(error, Stopped):
                    steps, error = self._stop(), None  # the steps were garbage collected before this generator
                else:
                    error = None  # its traceback refers to this frame
                    raise

    def _perform_all(self, steps: Steps) -> None:
        """Perform steps that hand out no event."""
        for _ in self._drive(steps):
            pass

    def _perform(self, step: Any) -> Any:
        match step:
            case OpenSource(value=value, limits=limits, clock=clock):
                return self._call_to_open(clock, open_sync, value, limits)
            case CallForSource(function=function):
                return self._call_to_open(None, call_source, function)
            case WaitForAnswers(seconds=seconds):
                return self.wait_for(threading.Event(), seconds, for_answers=True)
            case Pause(seconds=seconds):
                return self._pause_for(seconds)
            case _:  # CLOSE
                return self._close_source()

    def _call_to_open(self, clock: ContentClock | None, function: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call that opens a source. `cancel` ends it, in whichever thread."""
        before, calls = self._calls, Interruptible()
        self._calls = calls
        try:
            if self._closing:  # `cancel` sets it before it looks for the calls
                raise Stopped
            if clock is None:
                return calls.call(function, *arguments)
            return clock.wait(partial(calls.call, function, *arguments), calls.cancel)
        finally:
            self._calls = before

    def _unread(self) -> Any:  # as `_events`
        """Return an iterator of the events that are still to come: of none for a hook of the stream's end."""
        if not self._events.gi_running:
            return self._events
        self._refuse_second_reader("thread")
        return iter(())

    def _picked(self, pick: Callable[[Event], Any]) -> Iterator[Any]:
        """Yield what `pick` makes of each event that is still to come, where that is not None."""
        self._check_text_is_left()
        try:
            for event in self._unread():
                if (picked := pick(event)) is not None:
                    yield picked
        except ValueError as error:
            if not self._is_refused(error):
                raise
        self._final()

    def _drain(self) -> None:
        """Run to the end, without handing out events."""
        if self._events.gi_running:
            self._refuse_second_reader("thread")
            return
        self._iterated = False
        try:
            for _ in self._events:
                pass
        except ValueError as error:
            if not self._is_refused(error):
                raise

    def _is_refused(self, error: ValueError) -> bool:
        """Whether an error is Python's, which refuses to run the stream in two threads at once.

        Raises:
            UsageError: it is, and the stream has not ended.
        """
        is_refused = _is_of_generator(error)
        if is_refused:
            self._refuse_second_reader("thread")
        return is_refused

    def read_nested(self, source: Any) -> Generator[Event, None, None]:
        """Read another source of the same run inside a hook or a loop: the events, each after the handlers got it."""
        yield from self._drive(self._read_nested_source(source))

    def _close_source(self) -> None:
        if self._source is not None:
            self._source.close()

    def answer_came(self) -> None:
        """As `Manager.answer_came`."""
        if (wakeup := self._wakeup) is not None:
            wakeup.set()

    def wait_for(self, event: threading.Event, seconds: float | None = None, *, for_answers: bool = False) -> None:
        """Wait for an event, at most so many seconds. A cancellation ends the wait, and so may an answer; with `for_answers` one
        that has come already."""
        self._wakeup = event  # before the changes are looked at: none is missed
        if not self._closing and not (for_answers and self.engine.pending.changes):
            event.wait(seconds)
        self._wakeup = None

    def _pause_for(self, seconds: float) -> None:
        end = monotonic() + seconds
        while not self._closing and (left := end - monotonic()) > 0:
            self.wait_for(threading.Event(), left)


def _is_of_generator(error: ValueError) -> bool:
    """Whether an error was raised by a generator that the present function has called, because another thread runs it."""
    trace = error.__traceback__
    return trace is not None and trace.tb_next is None and str(error) == "generator already executing"
