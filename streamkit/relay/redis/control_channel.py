"""Messages to a producer: answers to its questions, which readers may still answer, and the cancellation of its run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...errors import StoredData, StoredDataError
from ...redis_link import text_from, text_to_bytes
from ..run_record import Answered, Cancelled, Control, Unattended
from .record import Keys, StoredQuestion, questions_of

if TYPE_CHECKING:
    from ...redis_link import Link

__all__ = ["ControlChannel"]

_log = logging.getLogger("streamkit.relay")


class OpenQuestion:
    """A question that is open, as its producer sees it.

    Attributes:
        attending: the readers that may still answer.
        left: when one of those left, on the monotonic clock; 0 if none has.
    """

    def __init__(self, readers: set[bytes]) -> None:
        self.at = time.monotonic()
        self.attending = readers
        self.left = 0.0
        self.is_unattended = False


class ControlChannel:
    """Passes on to one producer what concerns it, each thing once. Any thread may call it.

    Args:
        is_held: whether the run is the producer's still.
        fence: is called where the run is gone.

    Attributes:
        looked: when it was looked up what concerns the producer, on the monotonic clock.
    """

    def __init__(
        self,
        keys: Keys,
        link: Link,
        control: Callable[[Control], None],
        is_held: Callable[[], bool],
        fence: Callable[[], None],
    ) -> None:
        self.looked = 0.0
        self._is_held = is_held
        self._fence = fence
        self._keys = keys
        self._link = link
        self._control = control
        self._lock = threading.RLock()
        self._open: dict[str, OpenQuestion] = {}
        self._earlier: dict[str, StoredQuestion] = {}  # of earlier producers
        self._answered: set[str] = set()  # whose answer was received
        self._unreadable: set[str] = set()  # questions that were warned about
        self._is_cancelled = False
        self._readers: set[bytes] = set()  # that were there when it looked last
        self._had_readers = False
        self._last_left = 0.0

    @property
    def has_questions(self) -> bool:
        """Whether questions are open."""
        return bool(self._open)

    def receive(self, control: Control) -> None:
        """Pass something on to the producer, once."""
        with self._lock:
            if not self._is_held():
                return
            if isinstance(control, Cancelled):
                if self._is_cancelled:
                    return
                self._is_cancelled = True
                self._open.clear()
            elif isinstance(control, Answered):
                if control.question in self._answered:
                    return
                self._answered.add(control.question)
                self._open.pop(control.question, None)
        self._control(control)

    def opened(self, question_id: str) -> None:
        """Register an open question. An answer to one of the same id by an earlier producer is received at once."""
        with self._lock:
            before = self._earlier.pop(question_id, None)
            self._answered.discard(question_id)
            if not self._is_cancelled:
                self._open[question_id] = OpenQuestion(self._readers)
        if before is not None and before.answer is not None:
            self.receive(Answered(question_id, before.answer))

    def closed(self, question_id: str) -> None:
        """Forget a question that the producer itself has closed."""
        with self._lock:
            self._answered.add(question_id)
            self._open.pop(question_id, None)

    def receive_missed(self) -> None:
        """Receive the cancellation and the answers that came for earlier producers."""
        keys = self._keys
        cancel, values = self._link.ask(("HGET", keys.run, "cancel"), ("HGETALL", keys.questions))
        if cancel is not None:
            self.receive(Cancelled(text_from(cancel)))
        with StoredData(f"{text_from(keys.run)!r} in Redis: the run's questions"):
            self._earlier = questions_of(values)
        for id, question in self._earlier.items():
            if question.answer is not None:
                self.receive(Answered(id, question.answer))

    def look(self) -> None:
        """Look up what concerns the producer."""
        if not self._is_held():
            return
        ids, keys = [*self._open], self._keys
        self.looked = time.monotonic()
        cancel, exists, readers, notes, *values = self._link.ask(
            ("HGET", keys.run, "cancel"),
            ("EXISTS", keys.run),
            ("ZRANGEBYSCORE", keys.readers, time.time(), "+inf"),
            ("SMEMBERS", keys.skipped),
            *(("HGET", keys.questions, id) for id in ids),
        )
        if not exists:
            self._fence()
        elif cancel is not None:
            self.receive(Cancelled(text_from(cancel)))
        for id, value in zip(ids, values, strict=True):
            answer = None if value is None else self._answer_in(id, value)
            if answer is not None:
                self.receive(Answered(id, answer))
        self._attend(set(readers), set(notes))

    def _answer_in(self, id: str, value: bytes) -> dict[str, Any] | None:
        """Return the answer to an open question; None where it has none, or cannot be read."""
        try:
            with StoredData(f"question {id!r} of {text_from(self._keys.run)!r} in Redis"):
                return StoredQuestion(value).answer
        except StoredDataError as error:
            if id not in self._unreadable:  # it is looked up again and again
                self._unreadable.add(id)
                _log.warning("%s", error)
            return None

    def _attend(self, readers: set[bytes], notes: set[bytes]) -> None:
        """Note which readers may still answer."""
        now = time.monotonic()
        unattended: list[str] = []
        with self._lock:
            self._readers = readers
            if readers:
                self._had_readers = True
                self._last_left = 0.0
            elif not self._last_left:
                self._last_left = now
            for id, question in self._open.items():
                name = text_to_bytes(id)
                attending = {reader for reader in readers if b"%b %b" % (reader, name) not in notes}
                if not question.attending <= readers:
                    question.left = now
                question.attending = attending
                if readers and not attending and not question.left and not question.is_unattended:
                    question.is_unattended = True
                    unattended.append(id)
        for id in unattended:
            self.receive(Unattended(id))

    def unattended(self, question_id: str) -> float:
        """Return for how many seconds there has been no reader that may answer; 0 before the first came."""
        with self._lock:
            question = self._open.get(question_id)
            if question is None or question.attending or not self._had_readers:
                return 0.0
            return time.monotonic() - max(question.at, question.left or self._last_left)
