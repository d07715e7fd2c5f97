"""How a stream opens the sources of its run, and asks one again that has failed (`retry=`, `fallbacks=`).

An attempt is a source that is opened and read. What decides whether there is another one is in `attempts.py`, which a stream
without these options does not import.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core.delivery import Steps, add_note
from ..core.steps import CLOSE, CallForSource, ChosenSource, OpenSource, Pause, RepeatableSource, Stopped
from ..errors import SourceError, StreamkitError, UsageError
from ..events import Event, RunStep, StreamEnd
from ..sources.interrupt import stop_with_caller
from .state import StreamState

if TYPE_CHECKING:
    from .attempts import Attempts

__all__ = ["SourceOpener"]


class SourceOpener(StreamState):
    """The part of a stream's course that opens its sources."""

    _attempts: Attempts | None = None  # with `retry=` or `fallbacks=`, which few streams have

    @property
    def _hands_out(self) -> bool:
        """Whether somebody gets the content who cannot take it back."""
        raise NotImplementedError("the managers implement it")

    # -- sources

    def _open_source(self, value: Any) -> Steps:
        """Open a source of the run. Where that fails, ask it again as often as `retry=` has it."""
        if isinstance(value, ChosenSource):
            self._start()
            value = yield CallForSource(value.function)
            self._check()
        if (attempts := self._attempts) is None:
            yield from self._open(value)
            return
        attempts.begin(value)
        yield from self._open_attempt()

    def _open(self, value: Any) -> Steps:
        self._start()
        if isinstance(value, RepeatableSource):
            attempt, fallback = (1, 0) if self._attempts is None else (self._attempts.number, self._attempts.fallback)
            value = yield CallForSource(partial(value.choose, attempt, fallback))
            self._check()
        if self._clock is not None:
            self._clock.restart(goes_on=self._attempts is not None and self._attempts.is_repeated)
        if self.agent_name is None:
            self.announce_request()
        try:
            source = yield OpenSource(value, self.engine.messages.sizes.limits, self._clock)
        except StreamkitError as error:
            if self._closing:
                raise Stopped from None
            if isinstance(error, SourceError):
                yield from self._deliver(self.engine.next_source())  # the step before is over, and has not failed
            raise
        if source is None:
            raise Stopped
        if self._clock is not None and not source.traits.same_step:  # an agent's tools and code have times of their own
            self._clock.guard(source)
        self._source = source
        self._source_opened(source)
        if self._closing:  # `cancel` may have come when the call had returned and there was no source yet
            raise Stopped

    def _start(self) -> None:
        """Note that the stream starts, if it has not started yet."""
        stop_with_caller(self)
        if self._closing:
            raise Stopped
        if self._times.start is None:
            self._claim_handlers()
            self._times.start = monotonic()

    def _claim_handlers(self) -> None:
        """The stream starts: its handlers are its own from here on.

        Raises:
            UsageError: one of them is on another stream since; that handler gets nothing from this stream.
        """
        for handler in self._handlers:
            if not handler.streamkit_is_on(self):
                self._drop_lost_handlers()
                raise UsageError(f"{handler.streamkit_name} was passed to another stream before this one started")
        self._notice_hooks()

    def _drop_lost_handlers(self) -> None:
        """Drop the handlers that belong to another stream by now."""
        left = [handler for handler in self._handlers if handler.streamkit_is_on(self)]
        if len(left) < len(self._handlers):
            self._use_handlers(left)

    def _open_next(self, next_source: Callable[[], Any]) -> Generator[Any, Any, bool]:
        """Open the run's next source. False: there is none, and the run ends."""
        self._answers_taken = 0
        value = yield CallForSource(next_source)
        self._check()
        if value is None:
            return False
        yield from self._open_source(value)
        assert self.source_decoder is not None
        traits = self.source_decoder.source.traits
        begin = self._action_taken() if traits.was_nested else self.engine.next_source(same_step=traits.same_step)
        yield from self._deliver(begin)
        return True

    def _action_taken(self) -> Iterator[Event]:
        """End the step of the calls that the nested source has the outputs of: they cannot be answered here any more."""
        runs = self.engine.runs
        self.engine.pending.drop_calls()
        if runs.step is not None:
            yield from runs.end_step(RunStep(status="completed"), StreamEnd())
        runs.resume()

    # -- attempts

    def _open_attempt(self) -> Steps:
        """Open the present source, again where that fails, as often as `retry=` has it."""
        assert self._attempts is not None
        while True:
            self._attempts.begin_attempt(len(self.engine.messages.all))
            try:
                yield from self._open(self._attempts.source)
            except StreamkitError as error:
                if not (yield from self._ask_again(error)):
                    raise
            else:
                self._attempts.is_open = True
                return

    def _ask_again(self, error: StreamkitError) -> Generator[Any, Any, bool]:
        """End an attempt that has failed, and wait for the next one. Returns whether there is one: otherwise the error is
        to be raised."""
        attempts, engine = self._attempts, self.engine
        if attempts is None or self._closing:
            return False
        retry = attempts.next_after(
            error,
            engine.messages.all[attempts.first_message :],
            engine.pending.confirmations,
            type(self._decoder) if attempts.is_open and self._decoder is not None else None,
            hands_out=self._hands_out,
            longest=math.inf if self._clock is None else self._clock.left_after_failure(),
        )
        if retry is None:
            return False
        self._pulling, self._answers_taken = False, 0
        if attempts.is_open:
            self._source_number -= 1  # the source counts once
            try:
                yield CLOSE
            except StreamkitError as another:
                add_note(error, None, another)
            self._check()
        yield from self._deliver(engine.end_attempt(retry) if attempts.is_open else engine.complete_event(retry))
        if retry.delay:
            yield Pause(retry.delay)
            self._check()
            if self._clock is not None:
                self._clock.count(retry.delay)
        return True
