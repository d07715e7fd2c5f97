"""Errors: each can be pickled and copied, and none hands a provider's text to a terminal as it came."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

import streamkit as sk
from streamkit import errors
from streamkit.answers import Answer
from streamkit.protocols import codec

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, sk.StreamkitError)]
MADE: dict[type, Callable[[], sk.StreamkitError]] = {
    errors.ProtocolError: lambda: errors.ProtocolError("bad-index", "it is bad", 7, "delta"),
    errors.LimitError: lambda: errors.LimitError("line", 5000),
    errors.RequestError: lambda: errors.RequestError("messages[2].role", "is no role"),
    errors.OutputError: lambda: errors.OutputError("it is no JSON", "invalid", "Hello"),
    errors.RunFailedError: lambda: errors.RunFailedError("it failed", "server_error", {"message": ["it"]}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_every_error_is_pickled_and_copied(kind: type[sk.StreamkitError], way: Any) -> None:
    """With its attributes, and with the messages that had arrived: also those that waited for an answer."""
    error = MADE.get(kind, lambda: kind("it is wrong"))()
    call = sk.ToolCallMessage("t", name="f", content="{}")
    call.answer_slot = Answer("tool call 't'", lambda: None)
    error.messages = [sk.TextMessage("m", content="Hello"), call]
    same = way(error)
    assert type(same) is kind
    assert str(same) == str(error)
    assert same.args == error.args
    assert {**vars(same), "messages": [*same.messages]} == {**vars(error), "messages": [*error.messages]}


def test_the_error_of_a_stream_is_pickled() -> None:
    with pytest.raises(sk.IncompleteStreamError) as caught:
        sk.stream(
            [{"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}]
        ).until_done()
    same = pickle.loads(pickle.dumps(caught.value))
    assert [message.content for message in same.messages] == ["Hi"]


EVIL = "\x1b]0;owned\x07\x1b[31mred\r\n\x9b2J\u202eabc\u2028\ud800 fine é 😀"


def printable(text: str) -> bool:
    return all(character.isprintable() for character in text)


def test_text_of_a_provider_is_escaped_in_messages() -> None:
    """The text itself is in an attribute."""
    body = b"data: " + json.dumps({"error": {"message": EVIL, "code": EVIL}}).encode() + b"\n\n"
    chat = b'data: {"id": "c", "object": "chat.completion.chunk", "choices": []}\n\n'
    with pytest.raises(sk.RunFailedError) as caught:
        sk.stream([chat, body]).until_done()
    error = caught.value
    assert printable(str(error))
    assert "fine é 😀" in str(error)
    assert r"\x1b]0;owned\x07" in str(error)
    assert error.message == EVIL.replace("\ud800", "\ufffd")
    assert error.body["message"] == error.message


@pytest.mark.parametrize(
    "error",
    [
        errors.RunFailedError(EVIL),
        errors.ProtocolError("code", EVIL, 1, EVIL),
        errors.SourceError(EVIL),
        errors.IncompleteStreamError(EVIL),
        errors.UsageError(EVIL),
    ],
)
def test_no_error_text_controls_a_terminal(error: sk.StreamkitError) -> None:
    assert printable(str(error))
    assert EVIL in error.message


# -- what an error is


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_text_of_an_error_does_not_depend_on_the_cut(size: int) -> None:
    """It shows how an unknown source begins."""
    for content in (b"<html>\n<body>" + b"Bad gateway " * 20, b"data: hello\n\n" * 20, b'{"x": 1}\n{"y'):
        texts = set()
        for pieces in ([content], [content[n : n + size] for n in range(0, len(content), size)]):
            with pytest.raises(sk.StreamkitError) as caught:
                sk.stream(iter(pieces)).until_done()
            texts.add(str(caught.value))
        assert len(texts) == 1, texts


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_a_library_wrapped_is_an_interrupt(interrupt: type[BaseException]) -> None:
    """As by Python itself, where it comes while a class is made or a C function runs."""

    def ask() -> Any:
        try:
            raise interrupt
        except BaseException as error:
            raise RuntimeError("Error calling __set_name__") from error

    with pytest.raises(interrupt):
        sk.stream(ask).until_done()


def test_warnings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """With what they are about, and escaped; a program that configures no logging sees nothing."""
    from .faces import chat

    sk.stream([*chat("a", finish=None), 7, *chat("b")], protocol="openai_chat").until_done()
    [record] = caplog.records
    assert (record.name, record.levelname) == ("streamkit", "WARNING")
    assert "item 2" in record.getMessage()
    assert printable(record.getMessage())


def test_no_logging_is_silent() -> None:
    code = "import streamkit as sk; sk.stream([b'data: {\\n\\n', b'data: [DONE]\\n\\n'], protocol='openai_chat').until_done()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout + run.stderr == ""


# -- small


def test_a_canonical_item_whose_type_is_no_text_is_told_as_unknown() -> None:
    stream = sk.stream([{"type": [{}]}, {"type": "stream_end", "status": "completed"}], protocol="streamkit")
    stream.until_done()
    assert [warning.code for warning in stream.warnings] == ["unknown-event"]


def test_code_that_was_edited_to_nothing_is_recorded_as_such() -> None:
    """An approval of nothing is not one of what was shown."""
    confirmation = sk.Confirmation("c", sk.CodeMessage("m", content="rm -r /"))
    confirmation.settle("approved", edited="")
    assert confirmation.to_dict()["edited"] == ""
    [same] = [codec.event_from_dict(codec.event_to_dict(sk.events.ConfirmationDone(confirmation)))]
    assert same.confirmation.edited == ""  # type: ignore[attr-defined]


def test_a_chained_stream_begins_a_step_without_how_it_ended() -> None:
    """The other stream's step is live: it has failed by then."""
    failed = (
        b'data: {"id": "c", "object": "chat.completion.chunk", "choices": []}\n\ndata: {"error": {"message": "x"}}\n\n'
    )
    seen: list[Any] = []

    class Sees(sk.EventHandler):
        def on_run_step_created(self, run_step: sk.RunStep) -> None:
            seen.append((run_step.status, run_step.error, run_step.usage, run_step.completed_at))

    events = replayed(failed)
    with pytest.raises(sk.StreamkitError):
        sk.stream(events, Sees()).until_done()
    assert seen == [("in_progress", None, None, None)]


def test_a_source_that_needs_asyncio_says_so_on_trio() -> None:
    """As the runs of most frameworks do."""

    async def items() -> AsyncIterator[Any]:
        asyncio.get_running_loop()
        yield b""

    with pytest.raises(sk.UsageError, match="the source needs asyncio, which does not run here"):
        trio.run(sk.astream(items()).until_done)


def replayed(content: bytes) -> Any:
    """The events of a stream that failed, all of them taken before any is read."""
    events: list[Any] = []

    class Keeps(sk.EventHandler):
        def on_event(self, event: Any) -> None:
            events.append(event)

    with pytest.raises(sk.RunFailedError):
        sk.stream([content], Keeps()).until_done()
    return events
