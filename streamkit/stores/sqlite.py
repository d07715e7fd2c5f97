"""Stores conversations in an SQLite file, or in this process."""

from __future__ import annotations

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

# The content is the last column: SQLite then lists conversations without reading it.
_TABLE = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL, updated_at REAL NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, run TEXT, owner TEXT,
    content BLOB NOT NULL DEFAULT X'5B5D'
);
CREATE INDEX IF NOT EXISTS newest ON conversations (updated_at DESC, id DESC);
CREATE INDEX IF NOT EXISTS newest_of_owner ON conversations (owner, updated_at DESC, id DESC);
"""
_FIELDS = ", ".join(("id", *FIELDS))
_PATIENCE = 5.0  # seconds to wait for another process that writes


class SQLiteStore(Store):
    """Conversations in an SQLite file, which only its owner may read. A restart loses none. Threads of this process, and
    other processes on the same machine, may use the file at the same time.

        app = create_app(factory, token=token, store=SQLiteStore("conversations.db"))

    Its methods are those of `streamkit.stores.Store`, which describes their arguments and results. Each raises `SourceError`
    if the file cannot be read or written.

    Args:
        path: the path of the file, which is created if it is missing; `:memory:` for a database without a file.

    Raises:
        SourceError: the file cannot be opened, or is not an SQLite database.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.Lock()
        try:
            if self.path != ":memory:":  # SQLite gives its other files the rights of this one
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            self._database = _open(self.path)
        except (sqlite3.Error, OSError) as error:
            raise SourceError(f"the store {self.path!r} cannot be opened: {error}") from error

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        """All in it is stored, or nothing. No other thread or process writes meanwhile."""
        with self._lock:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                with self._database:
                    yield self._database
            except sqlite3.Error as error:
                raise SourceError(f"the store {self.path!r} failed: {error}") from error

    def _rows(self, query: str, values: Mapping[str, Any]) -> list[Any]:
        with self._lock:
            try:
                return self._database.execute(query, values).fetchall()
            except sqlite3.Error as error:
                raise SourceError(f"the store {self.path!r} failed: {error}") from error

    def load(self, id: str) -> Saved | None:
        """The messages of a conversation and their version; None if there is no such conversation."""
        rows = self._rows("SELECT content, version FROM conversations WHERE id = :id", {"id": id})
        if not rows:
            return None
        content, version = rows[0]
        return saved_from(id, bytes(content), version)

    def save(
        self,
        id: str,
        messages: Sequence[Message],
        version: int,
        *,
        title: str | None = None,
        owner: str | None = None,
        run: str | None = None,
    ) -> int:
        """Replace the messages of a conversation, if they still have this version. Returns their new version."""
        content, now = messages_to_bytes(messages), time.time()
        with self._transaction() as database:
            if version == 0 and run is None:
                database.execute(
                    "INSERT INTO conversations (id, created_at, updated_at, owner) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                    (id, now, now, owner),
                )
            changed = database.execute(
                "UPDATE conversations SET content = ?, messages = ?, version = version + 1, updated_at = ?,"
                " title = COALESCE(?, title) WHERE id = ? AND version = ? AND run IS COALESCE(?, run)",
                (content, len(messages), now, title, id, version, run),
            )
            if changed.rowcount:
                return version + 1
            row = database.execute("SELECT version FROM conversations WHERE id = ?", (id,)).fetchone()
            raise stale(id, version, row[0] if row else None)

    def get(self, id: str) -> Conversation | None:
        """The record of a conversation; None if there is no such conversation."""
        rows = self._rows(f"SELECT {_FIELDS} FROM conversations WHERE id = :id", {"id": id})
        return _conversation(rows[0]) if rows else None

    def list(self, *, owner: str | None = None, limit: int = 50, before: str | None = None) -> Sequence[Conversation]:
        """Return conversations, the last updated first."""
        check_page(limit, owner=owner, before=before)
        of_owner = [] if owner is None else ["owner = :owner"]
        last = " AND ".join(["id = :before", *of_owner])
        after = (
            [] if before is None else [f"(updated_at, id) < (SELECT updated_at, id FROM conversations WHERE {last})"]
        )
        where = " AND ".join([*of_owner, *after]) or "TRUE"
        query = f"SELECT {_FIELDS} FROM conversations WHERE {where} ORDER BY updated_at DESC, id DESC LIMIT :limit"
        return [*map(_conversation, self._rows(query, {"owner": owner, "before": before, "limit": limit}))]

    def delete(self, id: str) -> bool:
        """Remove a conversation. False if there is none."""
        with self._transaction() as database:
            return database.execute("DELETE FROM conversations WHERE id = ?", (id,)).rowcount > 0

    def lock(self, id: str, run_id: str, *, instead_of: str | None = None, owner: str | None = None) -> str:
        """Take the lock of a conversation for a run, if it is free. Returns the id of the run that has it now."""
        now = time.time()
        with self._transaction() as database:
            database.execute(
                "INSERT INTO conversations (id, created_at, updated_at, owner) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (id, now, now, owner),
            )
            database.execute(
                "UPDATE conversations SET run = ?, updated_at = ? WHERE id = ? AND (run IS NULL OR run = ?)",
                (run_id, now, id, instead_of),
            )
            holder: str = database.execute("SELECT run FROM conversations WHERE id = ?", (id,)).fetchone()[0]
            return holder

    def unlock(self, id: str, run_id: str) -> None:
        """Release the lock, if this run has it."""
        with self._transaction() as database:
            database.execute("DELETE FROM conversations WHERE id = ? AND run = ? AND version = 0", (id, run_id))
            database.execute("UPDATE conversations SET run = NULL WHERE id = ? AND run = ?", (id, run_id))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()


class MemoryStore(SQLiteStore):
    """Conversations in the memory of this process: they are lost when it ends. It need not be closed."""

    waits = False

    def __init__(self) -> None:
        super().__init__(":memory:")
        weakref.finalize(self, self._database.close)  # nobody sees the one that an app makes for itself


def _open(path: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.executescript(_TABLE)
    except BaseException:
        database.close()
        raise
    return database


def _conversation(row: Sequence[Any]) -> Conversation:
    return conversation_from(row[0], row[1:], str)
