"""Stores conversations in an SQLite file, or in this process."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..arguments import check_page
from ..errors import SourceError
from ..messages import Message
from .content import FIELDS, conversation_from, messages_to_bytes, saved_from, stale
from .interface import Conversation, Saved, Store

__all__ = ["MemoryStore", "SQLiteStore"]

_log = logging.getLogger("streamkit.stores")

# The content is the last column: SQLite then lists conversations without reading it.
_TABLE = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL, updated_at REAL NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, run TEXT, owner TEXT, branch_of TEXT,
    content BLOB NOT NULL DEFAULT X'5B5D'
);
CREATE INDEX IF NOT EXISTS newest ON conversations (updated_at DESC, id DESC);
CREATE INDEX IF NOT EXISTS newest_of_owner ON conversations (owner, updated_at DESC, id DESC);
"""
_FIELDS = ", ".join(("id", *FIELDS))
_CREATE = (
    "INSERT INTO conversations (id, created_at, updated_at, owner, branch_of) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)
_PATIENCE = 5.0  # seconds that one call may wait for other threads and other processes, all in all


class SQLiteStore(Store):
    """Conversations in an SQLite file, which only its owner may read. A restart loses none. Threads of this process, and
    other processes on the same machine, may use the file at the same time. Reading does not wait for writing.

        app = create_app(factory, token=token, store=SQLiteStore("conversations.db"))

    Its methods are those of `streamkit.stores.Store`, which describes their arguments and results. Each raises `SourceError`
    if the file cannot be read or written, or was locked by another process for 5 seconds.

    Args:
        path: the path of the file, which is created if it is missing; `:memory:` for a database without a file.

    Raises:
        SourceError: the file cannot be opened, or is not an SQLite database.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        try:
            if self.path != ":memory:":  # SQLite gives its other files the rights of this one
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._writing = _Database(self.path)
        except (sqlite3.Error, OSError) as error:
            raise SourceError(f"the store {self.path!r} cannot be opened: {error}") from error
        self._reading = self._writing
        if self.path != ":memory:":
            self._reading = _Database(self.path)

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """All in it is stored, or nothing. No other thread or process writes meanwhile."""
        with self._writing.use() as database:
            database.execute("BEGIN IMMEDIATE")
            with database:
                yield database

    def _rows(self, query: str, values: Mapping[str, Any]) -> list[Any]:
        with self._reading.use() as database:
            return database.execute(query, values).fetchall()

    def load(self, id: str) -> Saved | None:
        """Return the messages of a conversation and their version; None if there is no such conversation."""
        rows = self._rows("SELECT content, version FROM conversations WHERE id = :id", {"id": _bound(id)})
        return saved_from(id, *rows[0]) if rows else None

    def save(
        self,
        id: str,
        messages: Sequence[Message],
        version: int,
        *,
        title: str | None = None,
        owner: str | None = None,
        run: str | None = None,
        branch_of: str | None = None,
    ) -> int:
        """Replace the messages of a conversation, if they still have this version. Returns their new version."""
        content, now, key = messages_to_bytes(messages), time.time(), _bound(id)
        with self._transaction() as database:
            if version == 0 and run is None:
                database.execute(_CREATE, (key, now, now, _bound(owner), _bound(branch_of)))
            changed = database.execute(
                "UPDATE conversations SET content = ?, messages = ?, version = version + 1, updated_at = ?,"
                " title = COALESCE(?, title) WHERE id = ? AND version = ? AND run IS COALESCE(?, run)",
                (content, len(messages), now, _bound(title), key, version, _bound(run)),
            )
            if changed.rowcount:
                return version + 1
            row = database.execute("SELECT version FROM conversations WHERE id = ?", (key,)).fetchone()
            raise stale(id, version, row[0] if row else None)

    def get(self, id: str) -> Conversation | None:
        """Return the record of a conversation; None if there is no such conversation."""
        rows = self._rows(f"SELECT {_FIELDS} FROM conversations WHERE id = :id", {"id": _bound(id)})
        return _conversation(rows[0]) if rows else None

    def list(self, *, owner: str | None = None, limit: int = 50, before: str | None = None) -> Sequence[Conversation]:
        """Return conversations, the last updated first. One that cannot be read is left out, and logged as a warning."""
        check_page(limit, owner=owner, before=before)
        values = {"owner": _bound(owner), "before": _bound(before), "limit": limit, "last": None}
        conditions = [] if owner is None else ["owner = :owner"]
        if before is not None:
            where = " AND ".join(["id = :before", *conditions])
            rows = self._rows(f"SELECT rowid FROM conversations WHERE {where}", values)
            if not rows:
                return []
            values["last"] = rows[0][0]
        found: Sequence[Conversation] = []
        while (wanted := limit - len(found)) > 0:
            after = "(updated_at, id) < (SELECT updated_at, id FROM conversations WHERE rowid = :last)"
            where = " AND ".join([*conditions, *([] if values["last"] is None else [after])]) or "TRUE"
            rows = self._rows(
                f"SELECT {_FIELDS}, rowid FROM conversations WHERE {where} ORDER BY updated_at DESC, id DESC LIMIT :limit",
                {**values, "limit": wanted},
            )
            found = [*found, *(one for row in rows if (one := _readable(row)) is not None)]
            if len(rows) < wanted:
                break
            values["last"] = rows[-1][-1]
        return found

    def delete(self, id: str) -> bool:
        """Remove a conversation. False if there is none."""
        with self._transaction() as database:
            return database.execute("DELETE FROM conversations WHERE id = ?", (_bound(id),)).rowcount > 0

    def lock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """Take the lock of a conversation for a run, if it is free. Returns the id of the run that has it now."""
        now, key = time.time(), _bound(id)
        with self._transaction() as database:
            database.execute(_CREATE, (key, now, now, _bound(owner), None))
            database.execute(
                "UPDATE conversations SET run = ?, updated_at = ? WHERE id = ? AND (run IS NULL OR run = ?)",
                (_bound(run_id), now, key, _bound(instead_of)),
            )
            holder = database.execute("SELECT run FROM conversations WHERE id = ?", (key,)).fetchone()[0]
        return _text(holder)

    def unlock(self, id: str, run_id: str) -> None:
        """Release the lock, if this run has it."""
        values = _bound(id), _bound(run_id)
        with self._transaction() as database:
            database.execute("DELETE FROM conversations WHERE id = ? AND run = ? AND version = 0", values)
            database.execute("UPDATE conversations SET run = NULL WHERE id = ? AND run = ?", values)

    def close(self) -> None:
        """Close the file."""
        for connection in (self._reading, self._writing):
            connection.close()


class MemoryStore(SQLiteStore):
    """Conversations in the memory of this process: they are lost when it ends. It need not be closed."""

    waits = False

    def __init__(self) -> None:
        super().__init__(":memory:")
        weakref.finalize(self, self._writing.close)  # nobody sees the one that an app makes for itself


class _Database:
    """A connection to a file, which one thread after the other uses."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._database.text_factory = bytes  # what is not text breaks the row alone that has it
        try:
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_TABLE)
            self._add_branches()
        except BaseException:
            self._database.close()
            raise

    def _add_branches(self) -> None:
        """Add the column of branches to a file of a version that had none."""
        columns = {name for _, name, *_ in self._database.execute("PRAGMA table_info(conversations)")}
        if b"branch_of" in columns:
            return
        try:
            self._database.execute("ALTER TABLE conversations ADD COLUMN branch_of TEXT")
        except sqlite3.OperationalError as error:
            if "duplicate column" not in str(error):  # another process was faster
                raise

    @contextmanager
    def use(self) -> Generator[sqlite3.Connection]:
        """The connection, for this thread alone. Waiting for it and for other processes has one time limit."""
        end = time.monotonic() + _PATIENCE
        if not self._lock.acquire(timeout=_PATIENCE):
            raise SourceError(
                f"the store {self._path!r} was busy for {_PATIENCE:g} seconds: another process has locked it"
            )
        try:
            left = max(0.0, end - time.monotonic())
            self._database.execute(f"PRAGMA busy_timeout = {int(left * 1000)}")
            yield self._database
        except sqlite3.Error as error:
            raise SourceError(f"the store {self._path!r} failed: {error}") from error
        finally:
            self._lock.release()

    def close(self) -> None:
        """Close it, once nobody uses it."""
        with self._lock:
            self._database.close()


def _bound(text: str | None) -> str | bytes | None:
    """Return a text as SQLite stores it: one with half of a surrogate pair, which SQLite does not take, as its bytes."""
    if text is None or text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    return text


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")


def _conversation(row: Sequence[Any]) -> Conversation:
    return conversation_from(row[0], row[1 : 1 + len(FIELDS)], _text)


def _readable(row: Sequence[Any]) -> Conversation | None:
    try:
        return _conversation(row)
    except SourceError as error:
        _log.warning("%s", error)
        return None
