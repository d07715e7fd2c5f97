"""The course of a stream, from opening its first source to `StreamEnd`, for the sync and the async manager.

    open -> (pull batches -> deliver answers) * -> the source's end -> deliver answers -> the next source, if there is one -> the end

It is a generator of steps that a manager drives (`core.steps`), and decides everything: when the source is pulled again, what
an unanswered confirmation means, whether the run goes on with another source, and how each failure ends the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from time import monotonic
from typing import Any, Never

from ..core.delivery import HookStopped, Steps, add_note
from ..core.steps import CLOSE, ApplicationFailed, Stopped, WaitForAnswers
from ..errors import RunFailedError, StreamkitError
from ..events import Event, RunDone
from ..sources.decoding import SourceDecoder
from .opening import SourceOpener
from .timing import Deadlines

__all__ = ["NO_STEPS", "Lifecycle"]

_MOST_NAMES = 10  # of calls in one warning


def _no_steps() -> Steps:
    yield from ()


NO_STEPS: Any = _no_steps()  # in the place of the steps of a stream that has ended
NO_STEPS.close()


class Lifecycle(SourceOpener):
    """The course of a stream, as steps for a manager."""

    _source_argument: Any
    _reader: Any  # what `sse` reads it with, while it does
    _deadlines: Deadlines | None = None  # of what was deferred; few streams wait for anything

    # -- the whole course

    def _run(self) -> Steps:
        """Drive a stream through each source of the run, to the end. Whatever happens, the sources are closed, and all that is
        open ends."""
        try:
            if self._ended:
                return
            if self._source is None:
                yield from self._open_source(self._source_argument)
            while (source_decoder := self.source_decoder) is not None:
                try:
                    while (yield from self._deliver_batches(source_decoder)):
                        if self.engine.pending.waiting:
                            yield from self._deliver_answers(at_end=False)
                        if self._pulls_no_more(source_decoder):
                            break
                    is_over = yield from self._finish_source()
                except StreamkitError as error:
                    # An error that does not come from a pull is a hook's.
                    if not self._pulling or not (yield from self._ask_again(error)):
                        raise
                    is_over = False
                if not is_over:
                    yield from self._open_attempt()
                elif not (yield from self._go_on()):
                    break
            if self._then is not None:
                yield from self._deliver(self._missing_answers(self._then))
            yield from self._deliver(chain(self.engine.end(), self._last()))
        except GeneratorExit:  # garbage collected: the driver of the steps ends the stream
            raise
        except BaseException as error:
            if (yield from self._end_early(_own_error(error))):
                _raise_own(error)
        finally:
            self._finish()

    def _end_early(self, error: BaseException) -> Generator[Any, Any, bool]:
        """End the stream because of an error. Returns whether the error is to be raised."""
        if isinstance(error, Stopped):
            yield from self._fail(Stopped())
            return False
        events = yield from self._fail(error)
        if not isinstance(error, Exception):
            return True
        if self._iterated:
            try:
                for event in events:
                    self._current = event
                    yield event
            except Stopped:  # the loop was left at one of them, and the stream closed
                return False
        # No generator can raise these. The manager raises them where the stream's result is requested.
        return not isinstance(error, (StopIteration, StopAsyncIteration))

    def _enter(self) -> Steps:
        """Open the source, for a `with` block. Without one it is opened at the first use."""
        if self._source is not None or self._ended:
            return
        try:
            yield from self._open_source(self._source_argument)
        except Stopped:
            yield from self._fail(Stopped())
        except BaseException as error:
            yield from self._fail(_own_error(error))
            _raise_own(error)

    def _stop(self) -> Steps:
        """End a stream that is not running."""
        if not self._ended:
            yield from self._fail(Stopped())

    def _finish(self) -> None:
        """End the course. If an interrupt has come before the last event, nothing is released: `close` can still end the
        stream."""
        if self._times.end is None:
            self._times.end = monotonic()
        if self._clock is not None:
            self._clock.stop()
        if self._ended:
            self._release()

    def _release(self) -> None:
        """Drop references that lead back to the stream, so that it is freed as soon as nobody holds it."""
        self._handlers, self._receivers, self._own_hooks, self._hooks = (), [], (), {}
        self._source_argument = self._source = self._then = self._clock = self._reader = None
        if self._attempts is not None:
            self._attempts = None
        self.engine.release()
        if self.source_decoder is not None:
            self.source_decoder.end()

    # -- sources

    def _go_on(self) -> Generator[Any, Any, bool]:
        """Deliver the answers that came until the source's end, and open the next source. Returns whether there is one."""
        assert self.source_decoder is not None
        if (recorded := self.source_decoder.source.traits.recorded_end) is not None:
            yield from self._deliver(self._recorded_answers(recorded))
        if self.engine.pending.waiting:
            yield from self._deliver_answers(at_end=True)
        return (next_source := self._next_source()) is not None and (yield from self._open_next(next_source))

    def _finish_source(self) -> Generator[Any, Any, bool]:
        """Close the source, and deliver the events of its end. Returns whether it is over; False if it is to be opened
        once more, or a fallback in its place.

        Raises:
            StreamkitError: it failed, or was cut off, and there is no other attempt.
        """
        yield CLOSE
        if self._closing:
            self._check()
        assert self.source_decoder is not None
        recorded = self.source_decoder.source.traits.recorded_end
        # With recorded retries, the transport failed: the decoder's items have no end.
        if recorded is None or not recorded.retries:
            yield from self._deliver(self._decoder_finished())
        is_attempt = self._attempts is not None or recorded is not None
        error = self._failure(of_attempt=True) if is_attempt else None
        # A recording has its attempts one after the other: the failed one ends here, and the next source is the one after it.
        if recorded is not None and (error is not None or recorded.retries) and (retries := recorded.take_retries()):
            yield from self._deliver(chain.from_iterable(map(self.engine.end_attempt, retries)))
            return True
        if error is not None and (yield from self._ask_again(error)):
            return False
        yield from self._deliver(self._source_done())
        if (error := self._failure()) is not None:
            raise error
        return True

    def _pulls_no_more(self, source_decoder: SourceDecoder) -> bool:
        """Whether the source is not pulled again, though it may have more."""
        pending = self.engine.pending
        is_declined = pending.not_approved and not pending.pull_approved  # a recording is read to its end
        return is_declined or source_decoder.exhausted

    def _next_source(self) -> Callable[[], Any] | None:
        """Return the function that makes the run's next source; None where the run ends."""
        source_decoder, engine = self.source_decoder, self.engine
        assert source_decoder is not None
        if engine.pending.not_approved:
            return None
        if source_decoder.source.traits.next_source is not None:
            return source_decoder.source.traits.next_source
        if self._then is None or self._has_open_questions:
            return None
        answered = self._answers_taken and not engine.cut_short
        if not (answered or source_decoder.continues_in_next_source):
            return None
        if self._source_number >= self._max_steps:
            self._end_at_max_steps()
            return None
        return partial(self._then, self)

    # -- a source inside another

    def _read_nested_source(self, value: Any) -> Steps:
        """Read another source of the same run here and now, while the source before is not at its end.

        Raises:
            StreamkitError: as this source failed or ended. It ends the stream if the hook lets it through.
        """
        if self._closing or self._ended:
            return
        with self._saved_source():
            try:
                yield from self._open(value)
                yield from self._deliver(self._action_taken())
                source_decoder = self.source_decoder
                assert source_decoder is not None
                while not self._pulls_no_more(source_decoder) and (yield from self._deliver_batches(source_decoder)):
                    pass
                yield from self._finish_source()
                self._nested_outcome = self.engine.runs.outcome
            except GeneratorExit:  # garbage collected
                raise
            except Stopped:
                yield CLOSE
            except BaseException:
                yield CLOSE
                raise
        if self._ended:  # the end closed only the nested source, so close the outer one now
            yield CLOSE

    @contextmanager
    def _saved_source(self) -> Generator[None, None, None]:
        """Put the state of the present source back at the end of the block."""
        engine = self.engine
        flags = self._nested, self._iterated
        attempts, self._attempts = self._attempts, None  # there is no other attempt at a nested source
        saved = self._source, self.source_decoder, engine.pending.takes_edits
        pending = engine.pending
        pulls = pending.pull_approves, pending.pull_approved, pending.has_outcomes
        self._nested = self._iterated = True
        try:
            yield
        finally:
            self._nested, self._iterated = flags
            self._attempts, self._pulling = attempts, False
            self._source, self.source_decoder, engine.pending.takes_edits = saved
            pending.pull_approves, pending.pull_approved, pending.has_outcomes = pulls

    # -- answers

    def _deliver_answers(self, *, at_end: bool) -> Steps:
        """Deliver the outcomes of questions that were answered. If the source cannot continue without an answer, wait for those
        that were deferred; a confirmation that nobody deferred is `unanswered`."""
        pending = self.engine.pending
        while True:
            while (waiting := pending.next_answered()) is not None:
                yield from self._deliver(self._events_of_answer(waiting))
            if not pending.must_wait(at_end=at_end):
                return
            if self.on_wait is not None:
                self.on_wait()
            deadlines = self._deadlines = self._deadlines or Deadlines()
            yield WaitForAnswers(deadlines.left(pending.take_deferred()))
            self._check()
            for answer, deferral in deadlines.over():
                answer.expire(deferral)

    @property
    def _has_open_questions(self) -> bool:
        """Whether the next source has to wait for an answer. Where the source runs its calls itself and was interrupted by questions, the
        calls beside these run when it goes on."""
        pending, source = self.engine.pending, self.source_decoder
        runs_calls = source is not None and source.decoder is not None and source.decoder.runs_calls
        if runs_calls and pending.confirmations:
            return any(one.status in ("pending", "unanswered") for one in pending.confirmations)
        return pending.has_open_questions

    def _missing_answers(self, then: Callable[[Any], Any]) -> Iterator[Event]:
        """Yield a warning that the run ends here because `then` waits for answers that did not come."""
        engine = self.engine
        pending = engine.pending
        if pending.not_approved or engine.cut_short or not self._has_open_questions:
            return
        missing = [f"{call.call_id or call.id} ({call.name})" for call in engine.pending.unanswered]
        missing += [f"{one.id} (a confirmation)" for one in engine.pending.confirmations if one.status == "unanswered"]
        names = ", ".join(missing[:_MOST_NAMES]) + (", …" if len(missing) > _MOST_NAMES else "")
        hint = "; the outputs so far are in `messages`" if self._answers_taken else ""
        yield engine.warning_list.advise(
            "missing-outputs",
            f"the run requires answers, so `then` was not called: {names} got none{hint}",
        )

    # -- failure

    def _fail(self, error: BaseException) -> Generator[Any, Any, list[Event]]:
        """End the stream early: close what is upstream, then deliver the last events to all handlers. Returns these events.

        A hook that raises here does not keep the others from their events. The first error is the one raised.
        """
        if not self.started:
            self._drop_lost_handlers()
        first = error
        if self._attempts is not None:
            self._attempts.note_failures(error)
        self._pulling, self._ending = False, True
        delivered: list[Event] = []
        try:
            yield CLOSE
        except StreamkitError as another:
            add_note(error, None, another)
        for event in self._failed(error):
            delivered.append(event)
            try:
                yield from self._emit(event)
            except BaseException as raised:
                first = _first_of(first, event, _own_error(raised))
                if isinstance(first, Exception):
                    self._error = first  # what `on_exception` gets, if that is still to come
        self._closing = True
        if first is not error:
            raise first
        return delivered


def _first_of(error: BaseException, event: Event, another: BaseException) -> BaseException:
    """Return the error to raise: an interrupt outranks an error, an error outranks `Stopped`; else the earlier one. The
    error that a hook makes of a run's failure, where it gets it, stands in the place of that failure."""
    if _weight(another) > _weight(error):
        return another
    if isinstance(event, RunDone) and isinstance(error, RunFailedError) and isinstance(another, Exception):
        another.__context__ = another.__context__ or error
        return another
    add_note(error, event, another)
    return error


# They bring the application's own error, as `__cause__`, out of a generator.
_CARRIERS = (ApplicationFailed, HookStopped)


def _own_error(error: BaseException) -> BaseException:
    """Return the application's error if this one carries it, else this one."""
    return (error.__cause__ or error) if isinstance(error, _CARRIERS) else error


def _raise_own(error: BaseException) -> Never:
    """Raise the application's error."""
    own = _own_error(error)
    if own is error:
        raise own
    raise own from own.__cause__


def _weight(error: BaseException) -> int:
    return 2 if isinstance(error, (KeyboardInterrupt, SystemExit)) else 1 if isinstance(error, Exception) else 0
