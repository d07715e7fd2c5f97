"""What a reader of a relay has of an answer that began again: from the log, and from the snapshot in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit.relay import MemoryRelay, Relay

from .faces import Face, body, both_shells
from .retrying import Shown
from .test_relay import cursor_of, every_relay


def begin_again(emitter: sk.Emitter, number: int = 1) -> None:
    """The messages of a failed attempt, one of them complete, are withdrawn."""
    ids = [f"whole-{number}", f"half-{number}"]
    emitter.emit(e.TextDone(sk.TextMessage(ids[0], content=f"Old {number}.")))
    emitter.emit(e.TextDelta(ids[1], f"Half {number}"))
    emitter.emit(sk.StreamRetry(number + 1, "SourceError", "It broke.", 0.0, ids))


def write(emitter: sk.Emitter, count: int) -> None:
    for number in range(count):
        emitter.emit(e.TextDone(sk.TextMessage(f"new-{number}-{emitter.cursor}", content=f"<{number}>")))


def contents(stream: Any) -> list[str]:
    return [message.content for message in stream.messages]


@every_relay
@both_shells
@body
async def test_a_run_that_began_again_is_the_same_from_every_cursor(face: Face, relay_of: Callable[..., Relay]) -> None:
    """From the beginning, from each place in the middle, and after the end."""
    with sk.Emitter(relay := relay_of(), "run") as emitter:
        write(emitter, 1)
        begin_again(emitter)
        write(emitter, 2)
    whole = face.stream(relay.reader("run"), shown := Shown())
    await whole.until_done()
    assert contents(whole) == ["<0>", "<0>", "<1>"]
    assert (shown.taken_back, len(shown.retries)) == (["Old 1.", "Half 1"], 1)
    for event in relay.reader("run"):
        again = face.stream(relay.reader("run"), shown := Shown(), after=event.cursor)
        await again.until_done()
        assert contents(again) == contents(whole), event.type
        assert "Half 1" not in shown.texts.values()


@every_relay
@both_shells
@pytest.mark.parametrize("seen", [1, 2])
@body
async def test_a_reader_that_missed_that_takes_back_what_it_has_shown(
    face: Face, relay_of: Callable[..., Relay], seen: int
) -> None:
    """A snapshot has come in the place of the event. The reader has seen one of the messages, or both."""
    emitter = sk.Emitter(relay := relay_of(limit=64), "run")
    emitter.emit(e.TextDone(sk.TextMessage("whole-1", content="Old 1.")))
    for _ in range(seen - 1):
        emitter.emit(e.TextDelta("half-1", "Half"))
    stream = face.stream(relay.reader("run"), told := face.told(), shown := Shown())
    async with stream:
        async for event in stream:
            if event.cursor == emitter.cursor:
                break
        emitter.emit(sk.StreamRetry(2, "SourceError", "It broke.", 0.0, ["whole-1", "half-1"]))
        write(emitter, 200)
        emitter.close()
        await stream.until_done()
    (retry,) = told.of("on_retry")
    assert (retry.attempt, retry.error, retry.withdrawn) == (2, "SourceError", ["whole-1", "half-1"])
    assert not {"Old 1.", "Half"} & {*contents(stream), *shown.texts.values()}
    told.check_brackets()


@every_relay
def test_a_reader_that_begins_with_a_snapshot_has_nothing_to_take_back(relay_of: Callable[..., Relay]) -> None:
    with sk.Emitter(relay := relay_of(limit=64), "run") as emitter:
        begin_again(emitter)
        write(emitter, 100)
    stream = sk.stream(relay.reader("run"), shown := Shown())
    stream.until_done()
    assert shown.retries == []
    assert not {"Old 1.", "Half 1"} & {*contents(stream)}


def test_what_was_withdrawn_is_not_missing_in_a_snapshot() -> None:
    """It is none of the messages that the log has dropped."""
    with sk.Emitter(relay := MemoryRelay(limit=1000), "run") as emitter:
        for number in range(300):
            begin_again(emitter, number)
        write(emitter, 40)
    stream = sk.stream(relay.reader("run"), after=cursor_of(3))
    stream.until_done()
    assert [message for message in contents(stream) if not message.startswith("<")] == []
    assert [warning.code for warning in stream.warnings] == []


def test_a_snapshot_has_the_newest_retries_alone() -> None:
    """A run that begins again and again does not grow."""
    with sk.Emitter(relay := MemoryRelay(limit=16), "run") as emitter:
        for number in range(400):
            begin_again(emitter, number)
            write(emitter, 1)
    (first, *_) = relay.read("run").pull()
    assert first.snapshot
    assert 0 < first.data.count(b'"stream_retry"') <= 16
