"""Live producers, which continue only when they are pulled, and may take that for an answer.

Open Interpreter's generator runs the code that a confirmation chunk shows as soon as the next chunk is pulled. So a live
source (a generator, not a response or a list) is never pulled past such a question without an approval, also where the
question stands among another protocol's items, or is not quite well formed. A decoder says with `pull_approves` that its
protocol has such questions, and with `may_ask` what might be one. All of that mechanism stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ..core.engine import Engine
from ..protocols import registry
from ..protocols.base import Decoder
from ..protocols.values import is_object

__all__ = ["ForeignQuestions", "decoder_of_possible_question", "ends_with_question", "foreign_questions"]


@cache
def _decoders_with_questions() -> tuple[type[Decoder], ...]:
    """Return the decoders of protocols with questions that pulling on answers."""
    return tuple(registry.find(name).Decoder for name in registry.PULL_APPROVES)


@cache
def _marks_of_questions() -> tuple[Callable[[bytes], bool], ...]:
    """Return the functions that tell whether a line may be a question of such a protocol, without importing its
    decoder."""
    return tuple(registry.find(name).may_be_question_line for name in registry.PULL_APPROVES)


def decoder_of_possible_question(item: Any) -> type[Decoder] | None:
    """Return the decoder for an item that no protocol recognises, but that may be a malformed question."""
    return next((decoder for decoder in _decoders_with_questions() if decoder.may_ask(item)), None)


def _decoder_with_questions(item: Any) -> type[Decoder] | None:
    """Return the decoder that recognises an item, if its protocol has such questions."""
    if not is_object(item):
        return None
    return next((decoder for decoder in _decoders_with_questions() if decoder.recognises(item)), None)


def ends_with_question(line: bytes) -> bool:
    """Whether a line, of SSE or of JSON Lines, is a complete question although its end has not come."""
    if b'"content"' not in line or not any(may_be(line) for may_be in _marks_of_questions()):
        return False
    return any(decoder.is_question_line(line) for decoder in _decoders_with_questions())


def foreign_questions(decoder: Decoder, engine: Engine, *, live: bool) -> ForeignQuestions | None:
    """Prepare an engine and the decoder of a producer, live or recorded, for questions that pulling on answers. Return what finds
    those of another protocol; None if the producer's own protocol has them."""
    if decoder.pull_approves:
        _expect_questions(engine, live=live)
        return None
    questions = decoder.foreign_decoder = ForeignQuestions(decoder, engine, live=live)
    return questions


def _expect_questions(engine: Engine, *, live: bool) -> None:
    """The source's protocol has questions that pulling on answers, or answered when it was recorded."""
    engine.pending.pull_approves, engine.pending.pull_approved = live, not live


class ForeignQuestions:
    """Finds questions of another protocol among a live producer's items.

    Args:
        own: the decoder of the producer's own protocol.
        engine: the stream's.
        live: whether the producer is live, and not a recording of one.
    """

    __slots__ = ("_engine", "_live", "_own", "decoder")

    def __init__(self, own: Decoder, engine: Engine, *, live: bool) -> None:
        self._own = own
        self._engine = engine
        self._live = live
        self.decoder: Decoder | None = None

    def __call__(self, item: Mapping[str, Any]) -> Decoder | None:
        """Return the decoder of an item that is the other protocol's; None for the producer's own."""
        if self._own.recognises(item):
            return None
        kind = _decoder_with_questions(item.get("data") if self._own.wraps_event_name and "event" in item else item)
        if kind is not None and self.decoder is None:
            self.decoder = kind(self._engine.messages.new_id)
            _expect_questions(self._engine, live=self._live)
        return None if kind is None else self.decoder
