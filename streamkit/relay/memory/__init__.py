"""The relay in this process, for threads and for tasks of any event loop, all at once."""

from .relay import MemoryRelay
from .run import Overflow

__all__ = ["MemoryRelay", "Overflow"]
