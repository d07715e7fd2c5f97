"""Stores: where a server keeps its conversations, beside the relay that keeps its runs.

`SQLiteStore` keeps them in a file, `RedisStore` on a Redis server, `MemoryStore` in this process. A store of another kind subclasses `Store`, and passes the
same tests.
"""

from .interface import Conversation, Saved, Store
from .redis import RedisStore
from .sqlite import MemoryStore, SQLiteStore

__all__ = ["Conversation", "MemoryStore", "RedisStore", "SQLiteStore", "Saved", "Store"]
