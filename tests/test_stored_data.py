"""What Redis or a file holds and is wrong is a `StoredDataError`, and left out of lists; what a newer version of streamkit has
written is tolerated."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import StoredDataError
from streamkit.relay import Answered
from streamkit.relay.redis import RedisRelay
from streamkit.server import create_app
from streamkit.stores import MemoryStore, RedisStore, SQLiteStore, Store

from .redis_server import needs_redis, shared_server, wait_for
from .server.parts import TOKEN, Client, serve
from .server.test_runs import code_of

_PREFIXES = (f"stored-{number}" for number in count())
DEEP = "[" * 100_000


@pytest.fixture
def relay() -> Iterator[RedisRelay]:
    """With a bad run, which has a question, and a good one."""
    with RedisRelay(shared_server().url, prefix=next(_PREFIXES)) as made:
        for run_id in ("good", "bad"):
            writer = made.open(run_id, {"owner": "ann"}, control=print)
            writer.ask("q", {"kind": "confirmation"}, [b'{"n":1}'])
            writer.pause()
        yield made


def spoil(relay: RedisRelay, *words: Any) -> None:
    command, part, *rest = words
    shared_server().command(command, f"{relay.prefix}:{{bad}}:{part}", *rest)


BAD_RECORDS: dict[str, tuple[Any, ...]] = {
    "an epoch": ("HSET", "run", "epoch", "x"),
    "a place": ("HSET", "run", "last", ""),
    "a time": ("HSET", "run", "created", "yesterday"),
    "no JSON": ("HSET", "run", "info", "{"),
    "no object": ("HSET", "run", "info", "[1]"),
    "deep JSON": ("HSET", "run", "info", DEEP),
    "no text": ("HSET", "run", "cancel", b"\xff\xfe"),
    "a question without lines": ("HSET", "questions", "q", "pending"),
    "a question of no JSON": ("HSET", "questions", "q", "pending\n1.1\n\nnull\n"),
    "a question with an id that is no text": ("HSET", "questions", b"\xff", "pending\n1.1\n\n{}\n"),
}


@needs_redis
@pytest.mark.parametrize("words", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_a_record_that_cannot_be_read_is_an_error_of_the_source(
    words: tuple[Any, ...], relay: RedisRelay, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(relay, *words)
    with pytest.raises(StoredDataError, match=r"run 'bad'.*cannot be read"):
        relay.get("bad")
    with caplog.at_level(logging.WARNING, "streamkit"):
        assert [one.id for one in relay.list()] == [one.id for one in relay.list(owner="ann")] == ["good"]
    assert "run 'bad'" in caplog.text
    assert [one and one.id for one in relay.get_many(["bad", "good"])] == [None, "good"]


@needs_redis
def test_an_entry_of_a_list_that_is_no_text_is_left_out(relay: RedisRelay, caplog: pytest.LogCaptureFixture) -> None:
    shared_server().command("ZADD", f"{relay.prefix}:runs", 9e9, b"\xff\xfe")
    with caplog.at_level(logging.WARNING, "streamkit"):
        assert [one.id for one in relay.list()] == ["bad", "good"]
    assert "is not an id" in caplog.text


@needs_redis
def test_a_question_that_cannot_be_read_takes_no_answer_and_no_producer(relay: RedisRelay) -> None:
    """Nobody keeps the run then."""
    spoil(relay, "HSET", "questions", "q", "pending\n1.1\n\nnull\n")
    for call in (
        lambda: relay.question("bad", "q"),
        lambda: relay.answer("bad", "q", {"approved": True}),
        lambda: relay.take_over("bad", control=print),
    ):
        with pytest.raises(StoredDataError):
            call()


@needs_redis
def test_a_readers_answer_to_a_question_that_cannot_be_read_is_refused_once(relay: RedisRelay) -> None:
    """It is not sent again and again, as while Redis is away."""
    spoil(relay, "HSET", "questions", "q", "pending")
    with pytest.raises(StoredDataError):
        relay.pass_on("bad", "q", {"approved": True})


@needs_redis
def test_words_of_a_newer_version_are_left_as_they_are(relay: RedisRelay) -> None:
    """Statuses of runs and of questions, kinds of answers; whether the run has ended is known nevertheless."""
    spoil(relay, "HSET", "run", "status", "resting")
    spoil(relay, "HSET", "questions", "q", 'postponed\n1.1\n\n{"asked_at":1}\n{"at":2,"answer":{"later":true}}')
    record = relay.get("bad")
    assert record is not None
    assert (record.status, record.has_ended) == ("resting", False)
    assert record.questions["q"]["status"] == "postponed"
    spoil(relay, "HSET", "run", "ended", "3.5")
    record = relay.get("bad")
    assert record is not None
    assert (record.status, record.has_ended) == ("resting", True)
    assert len(relay.list()) == 2


FORMER = {"running": "in_progress", "done": "completed", "error": "failed"}


@needs_redis
@pytest.mark.parametrize("word", FORMER)
def test_statuses_of_an_earlier_version_are_read(relay: RedisRelay, word: str) -> None:
    spoil(relay, "HSET", "run", "status", word)
    shared_server().command("SET", f"{relay.prefix}:{{bad}}:lease", "another process")
    record = relay.get("bad")
    assert record is not None
    assert (record.status, record.has_ended) == (FORMER[word], word != "running")


@needs_redis
def test_a_run_that_an_earlier_version_began_goes_on_and_ends(relay: RedisRelay) -> None:
    spoil(relay, "HSET", "run", "status", "running")
    writer = relay.take_over("bad", control=print)
    assert writer is not None
    spoil(relay, "HSET", "run", "status", "running")
    assert relay.cancel("bad")
    writer.append([b'{"n":2}'])
    assert writer.end("cancelled")
    record = relay.get("bad")
    assert record is not None
    assert (record.status, record.cancel) == ("cancelled", "")


# -- conversations


def said() -> list[sk.Message]:
    return [sk.TextMessage("m", role="user", content="Hello")]


BAD_CONTENTS: dict[str, Any] = {
    "no JSON": b"[",
    "no messages": b"[1]",
    "a malformed message": b'[{"id":"m","role":"user","type":"message","content":{"a":1}}]',
    "deep JSON": DEEP.encode(),
    "no text": b"\xff\xfe",
}
BAD_FIELDS: dict[str, tuple[str, Any]] = {
    "a time": ("updated_at", "yesterday"),
    "a count": ("messages", "many"),
    "a title that is no text": ("title", b"\xff"),
}


def spoil_conversation(store: Store, path: Path, field: str, value: Any) -> None:
    if isinstance(store, RedisStore):
        shared_server().command("HSET", f"{path.name}:{{bad}}:saved", field, value)
        return
    with sqlite3.connect(path / "c.db") as database:
        database.execute(f"UPDATE conversations SET {field} = ? WHERE id = 'bad'", (value,))
    database.close()


@needs_redis
def test_a_question_that_cannot_be_read_keeps_no_answer_to_another_from_its_producer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is warned about once."""
    received: list[Any] = []
    with RedisRelay(shared_server().url, prefix=next(_PREFIXES)) as relay:
        writer = relay.open("bad", control=received.append)
        for id in ("first", "second"):
            writer.ask(id, {"kind": "confirmation"})
        writer.flush()
        spoil(relay, "HSET", "questions", "first", "pending")
        with (
            caplog.at_level(logging.WARNING, "streamkit"),
            RedisRelay(shared_server().url, prefix=relay.prefix) as other,
        ):
            other.answer("bad", "second", {"approved": True})
            wait_for(lambda: [one for one in received if isinstance(one, Answered)])
            writer.ask("third", {"kind": "confirmation"})
            writer.flush()
            other.answer("bad", "third", {"approved": False})
            wait_for(lambda: len([one for one in received if isinstance(one, Answered)]) == 2)
        assert [one.question for one in received if isinstance(one, Answered)] == ["second", "third"]
        assert caplog.text.count("question 'first'") == 1
        writer.abandon()


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=needs_redis)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    sqlite = request.param == "sqlite"
    with SQLiteStore(tmp_path / "c.db") if sqlite else RedisStore(shared_server().url, prefix=tmp_path.name) as made:
        for id in ("good", "bad"):
            made.save(id, said(), 0, owner="ann")
        yield made


@pytest.mark.parametrize("content", BAD_CONTENTS.values(), ids=BAD_CONTENTS)
def test_a_conversation_that_cannot_be_read_is_an_error_of_the_source(
    content: bytes, store: Store, tmp_path: Path
) -> None:
    spoil_conversation(store, tmp_path, "content", content)
    with pytest.raises(StoredDataError, match=r"conversation 'bad'.*cannot be read"):
        store.load("bad")
    assert len(store.list()) == 2


@pytest.mark.parametrize(("field", "value"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_record_of_a_conversation_that_cannot_be_read_is_left_out_of_lists(
    field: str, value: Any, store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spoil_conversation(store, tmp_path, field, value)
    with pytest.raises(StoredDataError, match=r"conversation 'bad'.*cannot be read"):
        store.get("bad")
    with caplog.at_level(logging.WARNING, "streamkit"):
        assert [one.id for one in store.list(limit=1)] == [one.id for one in store.list(owner="ann")] == ["good"]
    assert "conversation 'bad'" in caplog.text


def test_a_conversation_that_cannot_be_read_is_an_error_of_its_own_over_http(store: Store, tmp_path: Path) -> None:
    """Also for a request with an `Idempotency-Key`, each time."""
    spoil_conversation(store, tmp_path, "content", BAD_CONTENTS["a malformed message"])
    with serve(create_app(print, token=TOKEN, store=store)) as url, Client(url) as client:
        for headers in ({}, {"Idempotency-Key": "k"}, {"Idempotency-Key": "k"}):
            body = {"input": "Hi", "conversation": "bad"}
            assert code_of(client.post("/runs", json=body, headers=headers)) == (500, "unreadable")


def test_a_request_with_half_of_a_surrogate_pair_is_read(store: Store) -> None:
    """As JavaScript sends a text that was cut there. What is no JSON besides says so."""
    with serve(create_app(print, token=TOKEN, store=store)) as url, Client(url) as client:

        def post(path: str, body: str) -> Any:
            return client.post(path, content=body, headers={"Content-Type": "application/json"})

        begun = post("/runs", r'{"input": "Hi \ud83d", "conversation": "new", "metadata": {"\ud83d": 1}}')
        assert begun.status_code == 201, begun.text
        assert post(f"/runs/{begun.json()['id']}/cancel", r'{"reason": "half \ud83d"}').status_code in (200, 202)
        messages = client.get("/conversations/new/messages").json()["messages"]
        assert not messages or messages[0]["content"] == "Hi \ufffd"
        refused = post("/runs", r'{"input": "\ud83d", "x": NaN}')
        assert code_of(refused) == (400, "bad-json")
        assert "NaN" in refused.json()["detail"]


def test_a_saved_message_with_half_of_a_surrogate_pair_is_sent() -> None:
    store = MemoryStore()
    store.save("c", [sk.TextMessage("m", role="user", content="Hi \ud83d")], 0)
    with serve(create_app(print, token=TOKEN, store=store)) as url, Client(url) as client:
        (message,) = client.get("/conversations/c/messages").json()["messages"]
    assert message["content"] == "Hi \ufffd"
