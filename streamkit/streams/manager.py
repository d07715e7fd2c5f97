"""The base of both managers: the clock, and the values that the end leaves."""

from __future__ import annotations

import time
from typing import Any, TypeGuard

from typing_extensions import TypeVar

from ..core.content import has_content, is_content, is_of_answer
from ..core.steps import ChosenSource
from ..errors import ProtocolError, SourceError, UsageError
from ..events import ConfirmationCreated, ConfirmationDone, Event, Run, RunStep, StreamRetry, StreamWarning, TextDelta
from ..handlers import Handler
from ..messages import Message, TextMessage
from ..protocols import registry
from ..protocols.base import Encoder
from ..sources.source import Readable
from .lifecycle import Lifecycle
from .options import StreamOptions

__all__ = ["AnswerText", "I", "Manager", "T", "is_answer_text"]

T = TypeVar("T", default=Any)  # what the stream's output is read as
I = TypeVar("I")  # an element of it  # noqa: E741

STEP_BREAK = "\n\n"  # between the texts of two run steps: a model that calls a tool often says something before


class Manager(Lifecycle, Readable):
    """The base of both managers. A stream is a source for other streams, too."""

    _is_encoded = False  # in a wire format that cannot withdraw a message; few streams are encoded

    def __init__(self, source: Any, handlers: tuple[Handler, ...], options: StreamOptions, *, awaitables: bool) -> None:
        if options.retry is not None or options.fallbacks:
            source = self._take_retries(source, options)
        self._source_argument = source
        self.driver: int | None = None  # the id of the thread or task that drives it, once it has started
        self._made_answer_text: AnswerText | None = None
        self._reader = None
        self._waiting_since = 0.0  # when the oldest confirmation that is pending came; 0 where none is
        super().__init__(handlers, options, wake=self.answer_came, awaitables=awaitables)

    def __repr__(self) -> str:
        decoder, count = self._decoder, len(self.engine.messages.all)
        protocol = "" if decoder is None else f" {decoder.name}"
        return f"<{type(self).__name__}{protocol} {self._status}, {count} message{'' if count == 1 else 's'}>"

    def _take_retries(self, source: Any, options: StreamOptions) -> Any:
        """Apply `retry=` and `fallbacks=`. Returns the source that can be asked again.

        Raises:
            UsageError: one of them is wrong, or a source can be read only once.
        """
        from .attempts import Attempts, repeatable  # few streams have these options

        is_agents = isinstance(source, ChosenSource)
        self._attempts = Attempts(options.retry, repeats_functions=options.retry is not None and not is_agents)
        return source if is_agents else repeatable(source, options.fallbacks)

    @property
    def _hands_out(self) -> bool:
        """Whether somebody gets the content who cannot take it back: a loop over `text_deltas` or `output_items`, or another
        wire format."""
        has_items = self._output is not None and self._output.hands_out
        return self._made_answer_text is not None or self._is_encoded or has_items

    @property
    def _answer_text(self) -> AnswerText:
        """Picks the pieces of the answer's text. All loops over `text_deltas` share it."""
        if self._made_answer_text is None:
            self._made_answer_text = AnswerText()
        return self._made_answer_text

    def answer_came(self) -> None:
        """Something was answered or deferred, perhaps in another thread. For streamkit itself."""
        raise NotImplementedError("the managers implement it")

    def _check_text_is_left(self) -> None:
        """Check that the stream has not ended, so that its text can still be read as it arrives.

        Raises:
            StreamkitError: the stream failed.
            UsageError: it has ended.
        """
        if self._ended:
            self._final()
            raise UsageError("the stream has ended, so no text is left to arrive: `get_final_text()` returns all of it")

    def _refuse_second_reader(self, kind: str) -> None:
        """Check that a stream which runs, in a thread or a task as `kind` says, has ended, so that nothing is to be read.

        Raises:
            UsageError: it has not.
        """
        if not self._ended:
            raise UsageError(f"the stream runs already: a hook or another {kind} cannot run it to its end, or read it")

    def check_unread(self) -> None:
        """Check that all events are still to come.

        Raises:
            UsageError: some were delivered.
        """
        if self._ended or self._current is not None:
            state = "has ended" if self._ended else "was read in part"
            raise UsageError(f"the stream {state}, so it cannot be sent from its beginning: `sse()` reads it itself")

    def serve(self, reader: Any) -> None:
        """Let this read the stream, and be its last handler.

        Raises:
            UsageError: as `check_unread`; or another one does.
        """
        self.check_unread()
        if self._reader is not None:
            raise UsageError("the stream is read by another `sse()` already")
        reader.bind(self)
        self._use_handlers((*self._handlers, reader))
        self._reader = reader
        if not reader.withdraws:
            self._is_encoded = True

    def _look_for_content(self, event: Event) -> None:
        if is_content(event):
            self._has_content = True
            self._times.note_first(time.monotonic())

    def _observe(self, event: Event) -> None:
        if isinstance(event, StreamWarning):
            _log_warning(event)
        elif isinstance(event, StreamRetry):
            self._check_taken_back(event)
        elif isinstance(event, ConfirmationCreated):
            self._waiting_since = self._waiting_since or time.monotonic()
        elif isinstance(event, ConfirmationDone) and self._waiting_since and not self.engine.pending.undecided:
            self._times.waiting += time.monotonic() - self._waiting_since
            self._waiting_since = 0.0

    def _check_taken_back(self, retry: StreamRetry) -> None:
        """Raise what an answer failed with that began again elsewhere, where its content was handed out here to somebody who
        cannot take it back."""
        withdrawn = map(self.engine.messages.get, retry.withdrawn)
        if self._hands_out and any(one is not None and one.parent_id is None and has_content(one) for one in withdrawn):
            raise retry.exception or SourceError(retry.message)

    def for_stream(self) -> Readable:
        """Return the stream itself: another stream over it closes it."""
        return self

    # -- the values that the end leaves

    def _final(self) -> list[Message]:
        """Return all messages, or the error that the stream ended with."""
        if (error := self._error or self._interruption) is not None:
            raise error
        return list(self.engine.messages.all)

    def _final_text(self) -> str:
        texts = [m for m in self._final() if isinstance(m, TextMessage) and is_of_answer(m) and m.content]
        return "".join(text.content for text in texts if text.step_id == texts[-1].step_id)

    def _final_output(self) -> Any:
        self._final()
        return self.output.final(self._status)

    def _final_run(self) -> Run:
        self._final()
        if self.engine.runs.run is None:
            raise UsageError("the stream ended before any run began")
        return self.engine.runs.run

    def _final_run_steps(self) -> list[RunStep]:
        self._final()
        return list(self.engine.runs.steps)

    def _encoder(self, protocol: str) -> Encoder:
        encoder: Encoder = registry.find(protocol).Encoder()
        if not encoder.withdraws:
            self._is_encoded = True
        return encoder


def _log_warning(warning: StreamWarning) -> None:
    """Log a warning of the stream. Nothing is printed in an application that has not set up logging."""
    import logging  # few streams have warnings

    log = logging.getLogger("streamkit")
    if not log.handlers:
        log.addHandler(logging.NullHandler())
    log.warning("%s", ProtocolError(warning.code, warning.fault, warning.index, warning.kind))


class AnswerText:
    """The pieces of the assistant's text (choice 0), with a break before the text of each further run step."""

    def __init__(self) -> None:
        self._message: Message | None = None  # whose deltas come

    def piece(self, event: Event) -> str | None:
        """Return what an event adds to the text; None for one that does not. A repair that replaces text does not."""
        if type(event) is TextDelta and event.snapshot is self._message and not event.replace:
            return event.value
        if not is_answer_text(event):
            return None
        before, message = self._message, event.snapshot
        self._message = message
        return event.value if before is None or before.step_id == message.step_id else f"{STEP_BREAK}{event.value}"


def is_answer_text(event: Event) -> TypeGuard[TextDelta]:
    """Whether an event adds to the assistant's text (choice 0), not a sub-agent's. A repair that replaces text does not."""
    if type(event) is not TextDelta or event.replace:
        return False
    return is_of_answer(event.snapshot)
