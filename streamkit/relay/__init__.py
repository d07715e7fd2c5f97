"""The relay: the numbered log of runs, each written by one producer at a time and read by any number of readers.

`MemoryRelay` keeps it in this process, `RedisRelay` on a Redis server, for any number of them. A relay of another kind subclasses `Relay`, `LogWriter` and `Reading`, and passes
the same tests.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names
from .interface import LogWriter, Relay
from .memory import MemoryRelay, Overflow
from .reader import Reader
from .reading import Reading
from .run_record import Answered, Cancelled, Control, Cursor, Entry, Fenced, RunRecord, Status, Unattended

if TYPE_CHECKING:
    from .redis import RedisRelay

__all__ = [
    "Answered",
    "Cancelled",
    "Control",
    "Cursor",
    "Entry",
    "Fenced",
    "LogWriter",
    "MemoryRelay",
    "Overflow",
    "Reader",
    "Reading",
    "RedisRelay",
    "Relay",
    "RunRecord",
    "Status",
    "Unattended",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"RedisRelay": ".redis"})
