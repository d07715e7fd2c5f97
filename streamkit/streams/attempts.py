"""The attempts at the sources of one stream: whether a failed one is repeated, with which source, and after how long.

It decides alone, from what the failed attempt has brought. `opening.py` acts on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from ..answers import Answer, Confirmation
from ..core.content import has_content
from ..core.steps import RepeatableSource
from ..errors import (
    IncompleteStreamError,
    RunFailedError,
    SourceError,
    SourceTimeoutError,
    StoredDataError,
    StreamkitError,
    UsageError,
)
from ..events import StreamRetry
from ..messages import CodeMessage, Message, ToolCallMessage, ToolOutputMessage
from ..protocols import Decoder, registry
from ..protocols.values import as_object
from ..retry import checked_retry
from ..sources.recognition import offers

__all__ = ["Attempts", "has_effect", "is_transient", "repeatable"]

_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before the second attempt, the third …
_CHANCE = 0.25  # the part of a wait that is left to chance
_WORTH_REPEATING, _SERVERS_FAULT = (408, 409, 429), 500  # HTTP statuses: these, and from that on all
_EXHAUSTED = frozenset(
    (
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "exceeded_current_quota_error",  # Moonshot
    )
)
"""The codes with which servers answer 429 where no waiting helps."""
_OWN_FAULTS = (TypeError, AttributeError, NameError, LookupError, ImportError, AssertionError)  # of the function itself
_FAILURES = (SourceError, IncompleteStreamError, RunFailedError)  # of a source; others are the application's or our own
_READ = ("__iter__", "__aiter__", "__enter__", "__aenter__")


class Attempts:
    """The attempts of one stream.

    Args:
        retry: as `stream(retry=)` takes it.
        repeats_functions: whether sources that are functions are repeated. Not those of an agent, which has a
            `RepeatableSource` for each model call.

    Attributes:
        source: the present source of the run.
        number: of the present attempt at it, from 1, counted over the fallbacks.
        fallback: the number of the fallback in use, 0 for none. A run stays with it.
        first_message: how many messages the stream had before the present attempt.
        is_open: whether the present attempt has opened the source.
    """

    def __init__(self, retry: object, *, repeats_functions: bool) -> None:
        self._retry = checked_retry(retry)
        self._repeats_functions = repeats_functions
        self._tries = 1  # requests of the present source, or of its present fallback
        self._failures: list[str] = []  # of the earlier attempts
        self.source: Any = None
        self.number = 1
        self.fallback = 0
        self.first_message = 0
        self.is_open = False

    def begin(self, source: Any) -> None:
        """Another source of the run is to be opened.

        Raises:
            UsageError: it can be read only once.
        """
        if self._repeats_functions and not isinstance(source, RepeatableSource):
            source = repeatable(source, what="what `then` returns")
        self.source, self.number, self._tries = source, 1, 1
        self._failures.clear()

    def begin_attempt(self, first_message: int) -> None:
        """The source is about to be opened, when the stream has so many messages."""
        self.first_message, self.is_open = first_message, False

    @property
    def is_repeated(self) -> bool:
        """Whether the same source was tried before."""
        return self._tries > 1

    def note_failures(self, error: BaseException) -> None:
        """Mention the failures of the earlier attempts in the error that ends the stream."""
        if isinstance(error, StreamkitError):
            for failure in self._failures:
                error.add_note(failure)
        self._failures.clear()

    def next_after(
        self,
        error: StreamkitError,
        messages: Sequence[Message],
        confirmations: Iterable[Confirmation],
        decoder: type[Decoder] | None,
        *,
        hands_out: bool,
        longest: float,
    ) -> StreamRetry | None:
        """Return the event of the attempt that follows a failed one; None if there is none, and the error is to be raised.

        Args:
            error: of the attempt.
            messages: those of the attempt.
            confirmations: those of the stream.
            decoder: of the source's protocol, None before that is recognised.
            hands_out: whether a reader gets the content that cannot take it back.
            longest: the seconds that a wait may take.
        """
        if not isinstance(self.source, RepeatableSource) or not isinstance(error, _FAILURES):
            return None
        may_restart = self._retry.restart and not hands_out
        if not may_restart and any(map(has_content, messages)):
            return None
        if has_effect(messages, confirmations, decoder) or (delay := self._delay(error, decoder, longest)) is None:
            return None
        kind, text = type(error).__name__, str(error)
        self._failures.append(f"Attempt {self.number} had failed: {kind}: {text}")
        self.number += 1
        return StreamRetry(self.number, kind, text, delay, [message.id for message in messages], error)

    def _delay(self, error: StreamkitError, decoder: type[Decoder] | None, longest: float) -> float | None:
        """Choose whom the next attempt asks. Returns the seconds to wait for it, None if there is nobody."""
        retry = self._retry
        if self._tries < retry.attempts and (retry.on(error) if retry.on else is_transient(error, decoder)):
            own = _WAITS[min(self._tries, len(_WAITS)) - 1] * (1 - _CHANCE * random.random())
            wanted = error.retry_after if isinstance(error, SourceError) else None
            wait = max(min(own, retry.max_wait), wanted or 0.0)
            if wait <= min(retry.max_wait, longest):
                self._tries += 1
                return wait
        if self.fallback >= self.source.fallbacks:
            return None
        self.fallback, self._tries = self.fallback + 1, 1
        return 0.0


# -- sources


def repeatable(source: Any, fallbacks: Sequence[Any] = (), *, what: str = "a source") -> RepeatableSource:
    """Return a function, and its fallbacks, as a source that can be repeated. Errors call it `what`.

    Raises:
        UsageError: one of them is something that can be read only once.
    """
    if not isinstance(fallbacks, (list, tuple)):
        raise UsageError(f"`fallbacks` is a list of functions, not {fallbacks!r}")
    sources = (source, *fallbacks)
    for one in sources:
        if not callable(one) or isinstance(one, type) or any(offers(one, method) for method in _READ):
            raise UsageError(
                f"with `retry=` or `fallbacks=` {what} is a function that makes the request anew for each attempt, not "
                f"{one!r}: pass `lambda: …`"
            )
    return RepeatableSource(lambda attempt, fallback: sources[fallback], len(fallbacks))


# -- failures


def is_transient(error: StreamkitError, decoder: type[Decoder] | None) -> bool:
    """Whether the next attempt may succeed after this error. The default of `Retry.on`.

    Args:
        error: of the attempt.
        decoder: of the source's protocol, None before that is recognised.
    """
    match error:
        case IncompleteStreamError():
            return True
        case RunFailedError(code=code):
            return code in _transient_errors(decoder)
        case StoredDataError():
            return False
        case SourceError(should_retry=bool(wanted)):
            return wanted
        case SourceTimeoutError() | SourceError(status_code=None):
            return not isinstance(error.__cause__, _OWN_FAULTS)
        case SourceError(status_code=int(status), body=body):
            return (status in _WORTH_REPEATING or status >= _SERVERS_FAULT) and not _EXHAUSTED & _codes_in(body)
        case _:
            return False


def _transient_errors(decoder: type[Decoder] | None) -> frozenset[str]:
    """Return the codes that the source's protocol calls transient. An answer that begins with its error shows no protocol, and
    the events of another stream may be of any."""
    if decoder is not None and decoder.name != "streamkit":
        return decoder.transient_errors
    kinds: Iterable[type[Decoder]] = (registry.find(name).Decoder for name in registry.BUILT_IN)
    return frozenset(code for kind in kinds for code in kind.transient_errors)


def _codes_in(body: Any) -> set[str]:
    """Return what the body of an error response has as its code and its type."""
    fields = as_object(body)
    error = as_object(fields.get("error")) or fields
    return {code for key in ("code", "type") if isinstance(code := error.get(key), str)}


def has_effect(
    messages: Iterable[Message], confirmations: Iterable[Confirmation], decoder: type[Decoder] | None
) -> bool:
    """Whether an attempt had effects that another one may repeat: a call was answered, or run by the source itself, a confirmation was
    approved, or the provider began one of its calls other than a search."""
    searches: frozenset[str] = frozenset() if decoder is None else decoder.searches
    by_subject = {confirmation.subject.id: confirmation for confirmation in confirmations}
    found: set[str | None] = set()  # the ids of searches
    for message in messages:
        confirmation = by_subject.get(message.id)
        if confirmation is not None and _may_run(confirmation):
            return True
        match message:
            case ToolCallMessage(provider_executed=True, name=name) if confirmation is None:
                if name not in searches:
                    return True
                found |= {message.call_id, message.id}
            case ToolCallMessage(answer_slot=Answer(has_answer=True)):
                return True
            case ToolCallMessage(status="completed") if decoder is not None and decoder.runs_calls:
                return True
            case CodeMessage() if confirmation is None and "field" not in message.metadata:
                return True
            case ToolOutputMessage() | Message(role="computer") if message.call_id not in found:
                return True
            case _:
                pass
    return False


def _may_run(confirmation: Confirmation) -> bool:
    slot = confirmation.answer_slot
    return confirmation.status == "approved" or (slot is not None and slot.answered)
