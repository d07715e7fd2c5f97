"""What every store holds to: one suite, run on each of them by threads, asyncio and trio.

A store of another kind gets an entry in `STORES`: how it is opened, and whether a second one on the same place sees the same.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import StaleVersionError
from streamkit.stores import Conversation, MemoryStore, RedisStore, SQLiteStore, Store, sqlite

from .faces import Face, body, both_shells
from .redis_server import needs_redis, shared_url

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda path: MemoryStore(),
    "sqlite": lambda path: SQLiteStore(path / "conversations.db"),
    "redis": lambda path: RedisStore(shared_url(), prefix=f"t{path}"),
}
MARKS = {"redis": [needs_redis]}
NAMES = [pytest.param(name, marks=MARKS.get(name, [])) for name in STORES]
LASTING = [pytest.param(name, marks=MARKS.get(name, [])) for name in STORES if name != "memory"]


@pytest.fixture(params=NAMES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened = STORES[request.param](tmp_path)
    yield opened
    opened.close()


class Caller:
    """Calls a store as one face does."""

    def __init__(self, face: Face, store: Store) -> None:
        self._face = face
        self._store = store

    async def __call__(self, method: str, *arguments: Any, **options: Any) -> Any:
        if self._face.is_async:
            return await getattr(self._store, f"a{method}")(*arguments, **options)
        return getattr(self._store, method)(*arguments, **options)


def said(*texts: str) -> list[sk.Message]:
    return [sk.TextMessage(f"m{number}", role="user", content=text) for number, text in enumerate(texts)]


@both_shells
@body
async def test_what_was_saved_is_loaded(face: Face, store: Store) -> None:
    """With every field of every kind of message, half a surrogate pair included."""
    call = Caller(face, store)
    messages = [
        *said("Hello 😀", "\ud83d"),
        sk.ToolCallMessage("t", name="f", call_id="c", content="{}", metadata={"action": "waiting", "n": [1, None]}),
        sk.TextMessage("a", content="See.", annotations=[sk.Annotation(type="url", url="https://example.org")]),
    ]
    assert await call("load", "c") is None
    assert await call("get", "c") is None
    assert await call("save", "c", messages, 0, title="Hello", owner="ann") == 1
    messages[0].replace_content("changed")
    loaded, version = await call("load", "c")
    assert version == 1
    assert [message.to_dict() for message in loaded[1:]] == [message.to_dict() for message in messages[1:]]
    assert loaded[0].content == "Hello 😀"
    known = await call("get", "c")
    assert known == Conversation(
        id="c",
        title="Hello",
        created_at=known.created_at,
        updated_at=known.updated_at,
        messages=4,
        version=1,
        run=None,
        owner="ann",
        branch_of=None,
    )
    assert await call("save", "c", messages[:1], 1, owner="bob") == 2
    after = await call("get", "c")
    assert (after.title, after.owner, after.messages, after.version) == ("Hello", "ann", 1, 2)
    assert after.created_at == known.created_at <= known.updated_at <= after.updated_at


@both_shells
@body
async def test_a_branch_names_the_conversation_that_it_comes_from(face: Face, store: Store) -> None:
    """Named where it is created; later savings and runs leave that as it is."""
    call = Caller(face, store)
    await call("save", "root", said("one"), 0, title="One")
    assert await call("save", "branch", said("one"), 0, title="Two", branch_of="root") == 1
    assert await call("save", "branch", said("one", "two"), 1, branch_of="other") == 2
    await call("lock", "branch", "r")
    assert [(one.id, one.branch_of) for one in await call("list")] == [("branch", "root"), ("root", None)]
    assert (await call("get", "branch")).branch_of == "root"


def test_a_file_of_a_version_without_branches_is_read_and_gets_some(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    database = sqlite3.connect(path)
    database.execute(
        "CREATE TABLE conversations (id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL,"
        " updated_at REAL NOT NULL, messages INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, run TEXT,"
        " owner TEXT, content BLOB NOT NULL DEFAULT X'5B5D')"
    )
    database.execute(
        "INSERT INTO conversations (id, title, created_at, updated_at, version) VALUES ('a', 'A', 1, 2, 1)"
    )
    database.commit()
    database.close()
    for _ in range(2):
        with SQLiteStore(path) as store:
            store.save(f"b-{time.time()}", [], 0, branch_of="a")
            assert [one.branch_of for one in store.list()][-2:] == ["a", None]


@both_shells
@body
async def test_text_with_half_of_a_surrogate_pair_comes_back_as_it_is(face: Face, store: Store) -> None:
    """Wherever text may stand: in ids, titles, owners, and the ids of runs."""
    call, half = Caller(face, store), "half \ud83d"
    assert await call("lock", half, half, owner=half) == half
    assert await call("save", half, said(half), 0, title=half, run=half) == 1
    known = await call("get", half)
    assert (known.id, known.title, known.owner, known.run) == (half, half, half, half)
    assert [*await call("list", owner=half)] == [*await call("list")] == [known]
    assert [*await call("list", before=half)] == []
    await call("unlock", half, half)
    assert (await call("get", half)).run is None
    assert (await call("load", half)).messages[0].content == half
    assert await call("delete", half) is True
    assert [*await call("list", owner=half)] == []


@both_shells
@body
async def test_a_stale_version_is_refused(face: Face, store: Store) -> None:
    """And so is a new conversation that is there already. What was deleted is not created again."""
    call = Caller(face, store)
    await call("save", "c", said("a"), 0)
    await call("save", "c", said("a", "b"), 1)
    for stale in (0, 1, 3):
        with pytest.raises(StaleVersionError, match="has version 2 by now"):
            await call("save", "c", said("x"), stale)
    assert [message.content for message in (await call("load", "c")).messages] == ["a", "b"]
    assert await call("delete", "c") is True
    assert await call("delete", "c") is False
    with pytest.raises(StaleVersionError, match="it was deleted"):
        await call("save", "c", said("x"), 2)
    assert await call("load", "c") is None


@both_shells
@body
async def test_one_run_holds_a_conversation(face: Face, store: Store) -> None:
    """Whoever else asks for it learns which. A run that is over can be replaced; only its holder releases it."""
    call = Caller(face, store)
    assert await call("lock", "c", "run-1", owner="ann") == "run-1"
    assert (await call("get", "c")).owner == "ann"
    assert await call("load", "c") == ([], 0)
    assert await call("lock", "c", "run-2") == "run-1"
    assert await call("lock", "c", "run-1") == "run-1"
    assert await call("lock", "c", "run-2", instead_of="run-0") == "run-1"
    assert await call("lock", "c", "run-2", instead_of="run-1") == "run-2"
    await call("save", "c", said("a"), 0)
    await call("unlock", "c", "run-1")
    assert (await call("get", "c")).run == "run-2"
    await call("unlock", "c", "run-2")
    assert (await call("get", "c")).run is None
    assert await call("lock", "empty", "run-3") == "run-3"
    await call("unlock", "empty", "run-3")
    assert await call("get", "empty") is None


@both_shells
@body
async def test_a_run_saves_only_what_it_holds(face: Face, store: Store) -> None:
    """Not what was deleted after it locked it, nor what another has locked since: the versions may be the same."""
    call = Caller(face, store)
    assert await call("lock", "c", "run-1", owner="ann") == "run-1"
    assert await call("save", "c", said("a"), 0, run="run-1") == 1
    with pytest.raises(StaleVersionError, match="does not hold its lock"):
        await call("save", "c", said("x"), 1, run="run-2")
    for delete in (True, False):
        await call("delete", "c")
        if not delete:
            await call("lock", "c", "run-2")
            await call("save", "c", said("b"), 0, run="run-2")
        for version in (0, 1):
            with pytest.raises(StaleVersionError):
                await call("save", "c", said("x"), version, run="run-1")
        assert delete is (await call("get", "c") is None)
    assert [message.content for message in (await call("load", "c")).messages] == ["b"]


@both_shells
@body
async def test_the_last_updated_come_first(face: Face, store: Store) -> None:
    call = Caller(face, store)

    async def ids(**options: Any) -> list[str]:
        return [one.id for one in await call("list", **options)]

    assert await ids() == []
    for name in "abcde":
        await call("save", name, said(name), 0)
    await call("save", "b", said("b", "b"), 1)
    assert await ids() == [*"bedca"]
    assert await ids(limit=2) == [*"be"]
    assert await ids(limit=2, before="e") == [*"dc"]
    assert await ids(before="a") == []
    assert await ids(before="unknown") == []
    await call("delete", "d")
    assert await ids() == [*"beca"]


@both_shells
@body
async def test_an_owner_lists_what_is_theirs(face: Face, store: Store) -> None:
    """Whoever saves it later. What is deleted, or was locked and never saved, leaves the list."""
    call = Caller(face, store)

    async def ids(**options: Any) -> list[str]:
        return [one.id for one in await call("list", **options)]

    assert await ids(owner="ann") == []
    for number, name in enumerate("abcdef"):
        await call("save", name, said(name), 0, owner="ann" if number % 2 else "bob")
    await call("save", "nobody's", said("x"), 0)
    await call("save", "b", said("b", "b"), 1, owner="bob")
    await call("lock", "d", "run")
    await call("lock", "empty", "run", owner="ann")
    assert await ids(owner="ann") == ["empty", *"dbf"]
    assert await ids(owner="ann", limit=2) == ["empty", "d"]
    assert await ids(owner="ann", limit=2, before="d") == [*"bf"]
    assert await ids(owner="ann", before="a") == []
    assert await ids(owner="bob") == [*"eca"]
    assert await ids(owner="carl") == await ids(owner="an{n}") == []
    await call("delete", "b")
    await call("unlock", "empty", "run")
    assert await ids(owner="ann") == [*"df"]
    assert len(await ids()) == 6


def test_of_many_who_save_or_lock_one_succeeds(store: Store) -> None:
    def save(number: int) -> int | None:
        try:
            return store.save("c", said(str(number)), 0)
        except StaleVersionError:
            return None

    with ThreadPoolExecutor(8) as pool:
        saved = [*pool.map(save, range(8))]
        holders = [*pool.map(lambda number: store.lock("c", f"run-{number}"), range(8))]
    assert sorted(map(bool, saved)) == [False] * 7 + [True]
    assert [message.content for message in (store.load("c") or ([], 0))[0]] == [str(saved.index(1))]
    assert len({*holders}) == 1


@pytest.mark.parametrize("name", LASTING)
def test_another_one_in_the_same_place_sees_the_same(name: str, tmp_path: Path) -> None:
    first, second = STORES[name](tmp_path), STORES[name](tmp_path)
    first.save("c", said("a"), 0, title="A")
    first.lock("c", "run-1")
    assert second.lock("c", "run-2") == "run-1"
    second.save("c", said("a", "b"), 1)
    with pytest.raises(StaleVersionError):
        first.save("c", said("x"), 1)
    first.close()
    second.close()
    third = STORES[name](tmp_path)
    assert [message.content for message in (third.load("c") or ([], 0))[0]] == ["a", "b"]
    assert [(one.title, one.run) for one in third.list()] == [("A", "run-1")]
    third.close()


# -- the file of SQLite

KILLED = """
import os, signal, sys
import streamkit as sk
from streamkit.stores import SQLiteStore

store, version = SQLiteStore(sys.argv[1]), 0
while True:
    version = store.save("c", [sk.TextMessage(f"m{version}", content="x" * 2000)] * (version % 50 + 1), version)
    print(version, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_saves_loses_nothing(tmp_path: Path) -> None:
    """What it had saved is there, whole, and another process writes on."""
    path = tmp_path / "c.db"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 50:
            pass
        process.kill()
        rest = process.stdout.read().split("\n")
    reported = max([50, *(int(line) for line in rest[:-1])])
    store = SQLiteStore(path)
    saved = store.load("c")
    assert saved is not None
    assert saved.version in (reported, reported + 1)
    assert len(saved.messages) == (saved.version - 1) % 50 + 1
    assert store.save("c", said("on"), saved.version) == saved.version + 1
    store.close()


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    """A store with a conversation, in a file that another process has locked."""
    monkeypatch.setattr(sqlite, "_PATIENCE", 1.0)
    store = SQLiteStore(tmp_path / "c.db")
    store.save("c", said("a"), 0)
    other = sqlite3.connect(tmp_path / "c.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    yield store
    other.close()
    store.close()


def save_and_time(store: SQLiteStore) -> float:
    """The seconds until it is refused."""
    began = time.monotonic()
    with pytest.raises(sk.SourceError, match="locked"):
        store.save("c", said("b"), 1)
    return time.monotonic() - began


def test_each_writer_waits_for_a_locked_file_for_the_same_time(locked: SQLiteStore) -> None:
    """Of several at once, none waits for the others first."""
    with ThreadPoolExecutor(4) as pool:
        waits = [*pool.map(save_and_time, [locked] * 4)]
    assert 0.9 < min(waits) <= max(waits) < 3.0


def test_reading_does_not_wait_for_those_who_wait_to_write(locked: SQLiteStore) -> None:
    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(save_and_time, locked) for _ in range(4)]
        assert (locked.load("c") or ([], 0))[1] == 1
        assert locked.get("c") == locked.list()[0]
        assert not any(writer.done() for writer in writers)


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    """And the files that SQLite keeps beside it."""
    before = os.umask(0)
    try:
        store = SQLiteStore(tmp_path / "c.db")
        store.save("c", said("secret"), 0)
        rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    store.close()
    assert rights == {"c.db": 0o600, "c.db-wal": 0o600, "c.db-shm": 0o600}


def test_a_store_in_memory_that_is_dropped_is_closed() -> None:
    """As that of an app is, which nobody else has. Python 3.13 warns of databases that are not."""
    store = MemoryStore()
    database = store._writing._database
    del store
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.execute("SELECT 1")


def test_a_file_that_is_no_database_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the store cannot be opened, nobody else could close it."""
    opened: list[sqlite3.Connection] = []
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *given, **named: opened.append(connect(*given, **named)) or opened[0]
    )
    (tmp_path / "text").write_text("This is no database, and never was one." * 100)
    with pytest.raises(sk.SourceError, match="cannot be opened: file is not a database"):
        SQLiteStore(tmp_path / "text")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        opened[0].execute("SELECT 1")


def test_a_store_that_fails_is_a_source_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("This is no database, and never was one." * 100)
    with pytest.raises(sk.SourceError, match="cannot be opened: file is not a database"):
        SQLiteStore(tmp_path / "text")
    with pytest.raises(sk.SourceError, match="cannot be opened"):
        SQLiteStore(tmp_path / "missing" / "c.db")
    path = tmp_path / "c.db"
    store = SQLiteStore(path)
    store.save("c", said("a"), 0)
    other = sqlite3.connect(path)
    other.execute("UPDATE conversations SET content = ?", (b"[1]",))
    other.commit()
    other.close()
    with pytest.raises(sk.StreamkitError):
        store.load("c")
    store.close()
    with pytest.raises(sk.SourceError, match="failed: Cannot operate on a closed database"):
        store.load("c")
