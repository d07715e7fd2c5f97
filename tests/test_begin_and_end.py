"""How decoders report that a message begins and ends, where they know nothing else about it: `NewMessage`, `MessageEnded`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.protocols import codec

from .test_laws import check_brackets


class Decoder(protocols.Decoder):
    """Items are functions that return the events."""

    name = "begin_and_end"

    def feed(self, item: Any) -> Iterator[e.Event]:
        for event in item["events"]():
            self.complete = self.complete or isinstance(event, e.RunDone)
            yield event


class Seen(sk.EventHandler):
    """Each event as it was when it came."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def on_event(self, event: e.Event) -> None:
        line = codec.event_to_dict(event)
        if isinstance(event, e.Delta):
            line["so far"] = event.snapshot.content
        self.lines.append(line)


def run(*items: Callable[[], Sequence[e.Event]], **options: Any) -> tuple[sk.StreamManager, list[str]]:
    """The stream of these items, at its end, and the types of its events."""
    seen = Seen()
    end = {"events": lambda: [e.RunDone(e.Run(status="completed"))]}
    stream = sk.stream([*({"events": item} for item in items), end], seen, protocol=Decoder, **options)
    stream.until_done()
    check_brackets(seen.lines)
    return stream, [line["type"] for line in seen.lines]


def test_a_new_message_is_the_streams_own() -> None:
    text = m.TextMessage("a", group="g")
    stream, types = run(lambda: [e.NewMessage(text), e.TextDelta("a", "Hi"), e.MessageEnded("a")])
    (message,) = stream.messages
    assert message is text
    assert (message.content, message.status, message.run_id, message.step_id, message.group) == (
        *("Hi", "completed", "run-1", "step-1"),
        "g",
    )
    assert types[2:5] == ["text_created", "text_delta", "text_done"]


def test_of_the_message_in_any_other_event_there_is_a_copy() -> None:
    text = m.TextMessage("a")
    stream, _ = run(lambda: [e.TextCreated(text), e.TextDelta("a", "Hi"), e.MessageEnded("a")])
    assert stream.messages[0] is not text
    assert (text.content, text.status) == ("", "completed")


def test_a_new_message_that_has_the_type_or_role_of_another_class_is_copied_into_that() -> None:
    file, odd = m.Message("f", type="file"), m.TextMessage("r", role="critic")
    stream, types = run(lambda: [e.NewMessage(file), e.MessageEnded("f"), e.NewMessage(odd), e.MessageEnded("r")])
    assert [type(message) for message in stream.messages] == [m.FileMessage, m.Message]
    assert [one for one in types if one.endswith("_created")][2:] == ["message_created", "message_created"]


def test_new_messages_with_one_id_get_ids_of_their_own() -> None:
    """The decoder goes on to use its own id, of the newest."""

    def events(word: str) -> Callable[[], list[e.Event]]:
        return lambda: [e.NewMessage(m.TextMessage("a")), e.TextDelta("a", word), e.MessageEnded("a")]

    stream, _ = run(events("one"), events("two"), lambda: [e.NewMessage(m.TextMessage()), e.RawEvent("x", None)])
    assert [(one.id, one.content) for one in stream.messages] == [("a", "one"), ("a.2", "two"), ("message-1", "")]


def test_a_new_message_that_is_open_already_is_dropped_with_a_warning() -> None:
    stream, _ = run(lambda: [e.NewMessage(m.TextMessage("a")), e.NewMessage(m.TextMessage("a"))])
    assert [(warning.code, warning.kind) for warning in stream.warnings] == [("duplicate-created", "message_created")]
    assert len(stream.messages) == 1


@pytest.mark.parametrize("status", ["completed", "incomplete", "failed"])
def test_a_message_ends_with_the_status_that_its_end_says(status: Any) -> None:
    stream, _ = run(lambda: [e.TextDelta("a", "Hi"), e.MessageEnded("a", status)])
    assert (stream.messages[0].content, stream.messages[0].status) == ("Hi", status)


def test_the_end_of_a_message_that_is_not_open_means_nothing() -> None:
    stream, types = run(lambda: [e.MessageEnded("a"), e.TextDelta("b", "Hi"), e.MessageEnded("b"), e.MessageEnded("b")])
    assert [message.id for message in stream.messages] == ["b"]
    assert types.count("text_done") == 1
    assert not stream.warnings


def test_half_of_a_surrogate_pair_ends_with_its_message() -> None:
    """The events of a decoder with such text are split, as those of JSON that has it."""
    data = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi \\ud83d"}, "finish_reason": null}]}\n\n'
    end = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    stream = sk.stream([data, end])
    assert stream.get_final_text() == "Hi \ufffd"
    assert ("lone-surrogate", "message_done") in {(warning.code, warning.kind) for warning in stream.warnings}


def test_a_message_that_is_too_long_ends_as_failed() -> None:
    """Its size is compared at its end, where it has fewer deltas than are joined at once."""
    seen = Seen()
    items = [{"events": lambda: [e.NewMessage(m.TextMessage("a")), e.TextDelta("a", "x" * 50), e.MessageEnded("a")]}]
    stream = sk.stream(items, seen, protocol=Decoder, limits=sk.Limits(message=40))
    with pytest.raises(sk.LimitError):
        stream.until_done()
    check_brackets(seen.lines)
    assert [(one.status, len(one.content)) for one in stream.messages] == [("failed", 50)]


def test_the_end_of_a_call_ends_the_messages_of_its_fields() -> None:
    def events() -> list[e.Event]:
        call = m.ToolCallMessage("c", name="send", call_id="c")
        return [e.NewMessage(call), e.ToolCallDelta("c", '{"text": "Hi"}'), e.MessageEnded("c")]

    stream, _ = run(events, events, fields={"send.text": "text"})
    texts = [message for message in stream.messages if isinstance(message, sk.TextMessage)]
    assert [(text.content, text.status) for text in texts] == [("Hi", "completed")] * 2
    assert [call.arguments for call in stream.messages if isinstance(call, sk.ToolCallMessage)] == [{"text": "Hi"}] * 2


def test_neither_is_an_event_of_streams() -> None:
    _, types = run(lambda: [e.NewMessage(m.TextMessage("a")), e.TextDelta("a", "Hi"), e.MessageEnded("a")])
    assert not {"new_message", "message_ended", "possible_repeat"} & {*types}
    assert not {e.NewMessage, e.MessageEnded, e.PossibleRepeat} & {*e.EVENTS.values()}
