"""The answers that a user interface sends with its next request: approvals, and the outputs of tools that ran in the
browser."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from ..answers import Confirmation
from ..errors import UsageError
from ..messages import ToolCallMessage

__all__ = ["Approval", "ToolResult", "UiAnswer", "give_answers"]

_Pending: TypeAlias = Mapping[str, Confirmation | ToolCallMessage]


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a confirmation. A client may forge one: check that it is the answer to a question that is open.

    Attributes:
        id: the confirmation's id.
        approved: whether it may run. Only the JSON boolean `true` approves.
        edited: the arguments or the code to run in place of what was shown; None if it was approved unchanged.
        reason: why it was declined, None if no reason was given.
        call_id: the id of the call that it is about, None if the request does not name it.
    """

    id: str
    approved: bool
    edited: str | None = None
    reason: str | None = None
    call_id: str | None = None

    def give(self, pending: _Pending) -> None:
        """Answer the confirmation in `stream.pending`.

        Raises:
            UsageError: no such confirmation is pending, or it takes no such answer.
        """
        waiting = pending.get(self.id)
        if not isinstance(waiting, Confirmation):
            raise UsageError(f"no confirmation {self.id!r} is pending")
        if self.approved:
            waiting.approve(self.edited)
        else:
            waiting.decline(self.reason)


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The output of a tool that the client ran.

    Attributes:
        call_id: the id of the call.
        output: its output as text; a value of another type is JSON text. The error's text if it failed.
        failed: whether the tool failed.
        name: the tool's name, None if the request does not name it.
    """

    call_id: str
    output: str
    failed: bool = False
    name: str | None = None

    def give(self, pending: _Pending) -> None:
        """Answer the call in `stream.pending`.

        Raises:
            UsageError: no such call is pending, or it takes no answer.
        """
        waiting = pending.get(self.call_id)
        if not isinstance(waiting, ToolCallMessage):
            raise UsageError(f"no tool call {self.call_id!r} is pending")
        waiting.respond(self.output)


UiAnswer: TypeAlias = Approval | ToolResult
"""An answer of either kind."""


def give_answers(answers: Iterable[UiAnswer], pending: _Pending) -> list[UiAnswer]:
    """Give the answers for which something is pending, and return the others.

    Args:
        answers: those of a request.
        pending: `stream.pending`.

    Raises:
        UsageError: something that is pending takes no such answer.
    """
    others: list[UiAnswer] = []
    for answer in answers:
        if (answer.id if isinstance(answer, Approval) else answer.call_id) in pending:
            answer.give(pending)
        else:
            others.append(answer)
    return others
