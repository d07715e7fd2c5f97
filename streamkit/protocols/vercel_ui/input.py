"""Messages as UI messages: what `useChat({messages})` begins with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ... import events as e
from ... import messages as m
from ...answers import Confirmation
from ...messages import Message
from ..request_content import LeftOut, Report, report_nothing
from ..ui_files import file_url
from ..ui_parts import shown_messages
from ..values import text_or_none
from .encoder import Encoder
from .ui_message import UiMessage
from .wire import Version

__all__ = ["to_input"]


def to_input(
    messages: Iterable[Message | Confirmation], report: Report = report_nothing, *, version: Version = 6
) -> list[dict[str, Any]]:
    """Flat messages as the UI messages that a client has when it read them as streams.

    All that one run gave is one message of the assistant, with the run's id; a message of the user has the id of its first
    part. Confirmations count where what they are about is among the messages.

    Args:
        messages: the conversation. Of sub-agents it has what confirmations are about.
        report: called with each part of a user's message that a browser cannot show: a path, the id of a file.
        version: the major version of the `ai` package.

    Raises:
        UsageError: there is no such version.
    """
    everything = [*messages]
    flat = [*shown_messages(everything)]
    confirmations = [message for message in everything if isinstance(message, Confirmation)]
    questions = {confirmation.subject.id: confirmation for confirmation in confirmations}
    questions |= {
        confirmation.subject.call_id: confirmation for confirmation in confirmations if confirmation.subject.call_id
    }
    questions = {**_declined(flat), **questions}
    out: list[dict[str, Any]] = []
    for (role, _), group in groupby(flat, key=_turn):
        turn = [*group]
        if role == "assistant":
            out.append(_answer(turn, questions, version))
        elif parts := [*_parts(turn, report)]:
            out.append({"id": turn[0].group or turn[0].id, "role": role, "parts": parts})
    return out


def _declined(messages: Iterable[Message]) -> dict[str, Confirmation]:
    """The questions about calls of an agent that the user declined, by the ids of the calls. A conversation has their outputs
    alone."""
    out: dict[str, Confirmation] = {}
    for message in messages:
        if _was_declined(message):
            call, reason = m.ToolCallMessage(call_id=message.call_id), message.metadata["declined"]
            id = f"confirmation-{message.call_id}"
            out[message.call_id or ""] = Confirmation(id, call, status="declined", reason=text_or_none(reason))
    return out


def _was_declined(message: Message) -> bool:
    is_output = isinstance(message, m.ToolOutputMessage) and message.call_id is not None
    return is_output and "declined" in message.metadata


def _turn(message: Message) -> tuple[str, str | None]:
    """Return what the messages of one UI message have in common."""
    if message.role in ("user", "system"):
        return message.role, message.group or message.id
    return "assistant", message.run_id


# -- what the user sent


def _parts(turn: Iterable[Message], report: Report) -> Iterator[dict[str, Any]]:
    for message in turn:
        found = file_url(message) if isinstance(message, m.ImageMessage | m.AudioMessage | m.FileMessage) else None
        if isinstance(message, m.TextMessage):
            yield {"type": "text", "text": message.content}
        elif found is not None:
            yield {"type": "file", "url": found[0], "mediaType": found[1]}
        else:
            report(LeftOut(message, "a browser cannot show it"))


# -- what a run gave


def _answer(turn: list[Message], questions: dict[str, Confirmation], version: Version) -> dict[str, Any]:
    encoder, answer = Encoder(version), UiMessage(turn[0].run_id or turn[0].id, version)
    for event in _events(turn, questions):
        answer.add(encoder.items(event))
    return answer.to_dict()


def _events(turn: Iterable[Message], questions: dict[str, Confirmation]) -> Iterator[e.Event]:
    """Yield the events that made these messages, as far as they matter here."""
    step: str | None = None
    is_waiting = False
    yield e.RunCreated(e.Run())
    for number, message in enumerate(turn):
        if not number or (message.step_id is not None and message.step_id != step):
            yield e.RunStepCreated(e.RunStep())
        step = message.step_id or step
        if _was_declined(message) and message.metadata["declined"] is None:
            continue  # a stream has no output of such a call: its run ended there
        yield message.created_event(message.header())
        if message.content:
            yield message.delta_event(message.id, message.content, snapshot=message)
        for annotation in message.annotations if isinstance(message, m.TextMessage) else ():
            yield e.AnnotationAdded(message.id, annotation, message)
        yield message.done_event(message)
        confirmation = questions.get(message.id) or questions.get(message.call_id or "")
        if confirmation is not None and isinstance(message, m.ToolCallMessage | m.CodeMessage):
            yield e.ConfirmationCreated(confirmation)
            if confirmation.status != "pending":
                yield e.ConfirmationDone(confirmation)
            is_waiting = is_waiting or confirmation.status == "pending"
    yield e.RunDone(e.Run(status="requires_action" if is_waiting else "completed"))
