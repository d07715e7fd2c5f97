"""The answer to a question of another process, or of another thread: it goes to the registry of the run.

Each reader's stream has a `RelayAnswer` of its own. The registry decides which answer counts; one that comes too late is
dropped without an error, because its reader receives the outcome, as every other one does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..answers import Answer, Confirmation
from ..messages import ToolCallMessage, output_text

__all__ = ["RelayAnswer", "answer_of", "value_of"]


def answer_of(waiting: Confirmation | ToolCallMessage, value: Any) -> dict[str, Any] | None:
    """Return the value of an `Answer` as the registry has it; None if nobody answered."""
    if isinstance(waiting, ToolCallMessage):
        return {"output": value}
    outcome, more = value
    if outcome == "unanswered":
        return None
    out: dict[str, Any] = {"approved": outcome == "approved"}
    if more is not None:
        out["edited" if out["approved"] else "reason"] = more
    return out


def value_of(answer: Mapping[str, Any] | None) -> Any:
    """Return the value of an `Answer` for what the registry has."""
    if answer is None:
        return "unanswered", None
    if "approved" in answer:
        approved = answer["approved"] is True
        return ("approved", answer.get("edited")) if approved else ("declined", answer.get("reason"))
    return output_text(answer["output"] if "output" in answer else {"error": answer.get("error")})


class RelayAnswer(Answer):
    """One reader's answer to a question.

    Args:
        what: names the question in error texts.
        question: its id in the registry.
        is_open: whether it can still be answered.
        send: is called with the question's id and the reader's value.
        changed: is called when the question was deferred.
    """

    __slots__ = ("_changed_here", "_is_open", "_send", "question")

    no_awaitable = "the answer is sent to the run's producer, which cannot await {!r}; await it, and pass the value"

    def __init__(
        self,
        what: str,
        question: str,
        *,
        is_open: bool,
        send: Callable[[str, Any], None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(what, self._forward)
        self.question = question
        self._is_open = is_open
        self._send = send
        self._changed_here = changed

    @property
    def open(self) -> bool:
        return self._is_open and super().open

    def expire(self, deferral: int) -> None:
        """The time of a deferral is over. The question stays open: others may have deferred it, too."""
        with self._lock:
            if self.deferrals == deferral:
                self.deferred = False

    def _forward(self) -> None:
        if not self.has_answer:
            self._changed_here()
        elif self._is_open:
            self._is_open = False
            self._send(self.question, self.value)
