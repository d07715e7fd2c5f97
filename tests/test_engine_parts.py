"""The parts of the engine, each alone: the messages, and what waits for an answer."""

from __future__ import annotations

import pytest

from streamkit import events as e
from streamkit import messages as m
from streamkit.answers import Confirmation
from streamkit.core.message_store import MessageStore
from streamkit.core.pending import PendingAnswers, wake_nothing
from streamkit.core.run_tracker import RunTracker
from streamkit.core.warning_list import WarningList
from streamkit.errors import LimitError, ProtocolError
from streamkit.limits import Limits


def pending() -> PendingAnswers:
    return PendingAnswers(RunTracker(), WarningList(strict=False), wake_nothing)


def store(*, strict: bool = False) -> MessageStore:
    runs, warning_list = RunTracker(), WarningList(strict=strict)
    return MessageStore(runs, PendingAnswers(runs, warning_list, wake_nothing), warning_list)


def begin(messages: MessageStore, id: str) -> m.Message:
    """An open text of this store, to which the decoder refers by this id."""
    assert [*messages.create(m.TextMessage(id), e.StreamEnd())]
    return messages.all[-1]


def test_an_id_that_a_message_had_is_given_a_number() -> None:
    messages = store()
    first = begin(messages, "a")
    assert [type(event) for event in messages.close("a", first, "completed", e.StreamEnd())] == [e.TextDone]
    second = begin(messages, "a")
    assert (first.id, second.id, messages.get_open("a")) == ("a", "a.2", second)
    assert messages.open == [second]


def test_a_message_that_is_open_is_not_created_again() -> None:
    messages = store()
    begin(messages, "a")
    [warning] = messages.complete_created(e.TextCreated(m.TextMessage("a")))
    assert isinstance(warning, e.StreamWarning)
    assert (warning.code, len(messages.all)) == ("duplicate-created", 1)
    strict = store(strict=True)
    begin(strict, "a")
    with pytest.raises(ProtocolError, match="created twice"):
        _ = [*strict.complete_created(e.TextCreated(m.TextMessage("a")))]


def test_only_so_many_messages_are_open_at_once() -> None:
    messages = store()
    messages.sizes.limits = Limits(open_messages=2)
    begin(messages, "a")
    begin(messages, "b")
    with pytest.raises(LimitError, match="open_messages"):
        begin(messages, "c")


def test_calls_with_one_id_are_answered_one_after_the_other() -> None:
    waits = pending()
    waits.takes_outputs = True
    calls = [m.ToolCallMessage(f"m{number}", call_id="c", name="f") for number in range(2)]
    for call in calls:
        waits.expect_output(call, waits.free_key(call))
    assert [*waits.waiting] == ["c", "c.2"]
    assert waits.unanswered_with("c") == calls
    calls[1].respond("later one first")
    assert waits.next_answered() is calls[1]
    assert waits.next_answered() is None
    assert waits.call_answered("c")
    assert [*waits.waiting.values()] == [calls[0]]


def test_a_confirmation_that_nobody_can_answer_is_approved_by_its_code_and_else_unanswered() -> None:
    waits = pending()
    for id in ("a", "b"):
        question = Confirmation(id, m.CodeMessage(id, call_id=id))
        assert [*waits.confirmation_created(e.ConfirmationCreated(question), None)]
    a, b = waits.undecided
    assert [*map(type, waits.code_runs("a"))] == [e.ConfirmationDone]
    assert [*map(type, waits.source_done())] == [e.ConfirmationDone]
    assert (a.status, b.status, waits.undecided, waits.has_open_questions) == ("approved", "unanswered", [], True)
