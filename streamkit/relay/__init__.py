"""The relay: the numbered log of runs, written by one producer and read by any number of consumers.

`MemoryRelay` keeps it in this process. Another relay is another `Relay`, with the same interface and the same tests.
"""

from .interface import Reader, Reading, Relay
from .memory import MemoryRelay, Overflow

__all__ = ["MemoryRelay", "Overflow", "Reader", "Reading", "Relay"]
