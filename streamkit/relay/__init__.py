"""The relay: the numbered log of runs, each written by one producer at a time and read by any number of readers.

`MemoryRelay` keeps it in this process. A relay of another kind subclasses `Relay`, `LogWriter` and `Reading`, and passes
the same tests.
"""

from .cursors import Cursor, Entry
from .interface import Answered, Cancelled, Control, Fenced, LogWriter, Relay, RunRecord, Status, Unattended
from .memory import MemoryRelay, Overflow
from .reader import Reader
from .reading import Reading

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
    "Relay",
    "RunRecord",
    "Status",
    "Unattended",
]
