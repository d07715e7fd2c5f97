"""The relay: the numbered log of runs, each written by one producer and read by any number of readers.

`MemoryRelay` keeps it in this process. A relay of another kind subclasses `Relay`, and passes the same tests.
"""

from .interface import Relay, RunLog
from .memory import MemoryRelay, Overflow
from .reader import Reader, Reading

__all__ = ["MemoryRelay", "Overflow", "Reader", "Reading", "Relay", "RunLog"]
