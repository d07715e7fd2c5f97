"""The numbered entries of one run in memory.

The newest entries are kept one by one, in the tail. Older ones are joined to blocks of lines, which take half of the memory; a
block is split into entries again for each reader that comes to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..run_record import Entry, LogPosition, cursor_of

__all__ = ["Log"]

_BLOCK = 256  # entries in a block
_TAIL = 2 * _BLOCK  # entries in the tail, at most


class _Segment(NamedTuple):
    last: int  # its last entry's number
    lines: bytes


class Log:
    """The entries of one run, and the snapshot that stands for those that were dropped. Not thread-safe: its owner locks.

    Attributes:
        name: what names the run in its cursors.
        newest: the number of the newest entry, 0 before the first.
        dropped: the number of the last entry that was dropped, 0 if none was.
        base: the snapshot at `dropped`; None while nothing was dropped.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.newest = self.dropped = 0
        self.base: Entry | None = None
        # The newest snapshot and its number. Entries up to it are dropped when the next snapshot comes.
        self._next: tuple[int, Entry] | None = None
        self._epochs: list[
            tuple[int, int]
        ] = []  # of each epoch with entries: the number before its first entry, the epoch
        self._blocks: deque[_Segment] = deque()
        self._tail: list[Entry] = []

    def begin(self, epoch: int) -> None:
        """Begin an epoch with the next entry."""
        while self._epochs and self._epochs[-1][0] == self.newest:
            self._epochs.pop()  # it has no entries
        self._epochs.append((self.newest, epoch))

    def append(self, events: Sequence[bytes]) -> list[str]:
        """Number events, and add them. Returns their cursors."""
        epoch = self._epochs[-1][1]
        cursors = [
            cursor_of(epoch, number, self.name) for number in range(self.newest + 1, self.newest + len(events) + 1)
        ]
        self._tail += map(Entry, cursors, events)
        self.newest += len(events)
        if len(self._tail) > _TAIL:
            self._join()
        return cursors

    def _join(self) -> None:
        """Join the oldest entries to blocks, where the tail is too long."""
        last = self.newest - len(self._tail)
        while len(self._tail) > _TAIL:
            last += _BLOCK
            self._blocks.append(_Segment(last, b"\n".join([entry.data for entry in self._tail[:_BLOCK]])))
            del self._tail[:_BLOCK]

    def since(self, number: int) -> list[Entry]:
        """Return some of the entries after one that was not dropped: all that are left, or the rest of a block."""
        start = self.newest - len(self._tail)
        if number >= start:
            return self._tail[number - start :]
        block = self._block_after(number)
        lines = block.lines.split(b"\n")
        skipped = number - (block.last - len(lines))
        cursors = map(self.cursor, range(number + 1, block.last + 1))
        return [*map(Entry, cursors, lines[skipped:])]

    def _block_after(self, number: int) -> _Segment:
        """Return the block that has the entry after this one, which is not in the tail."""
        return self._blocks[(number - self._blocks[0].last + _BLOCK) // _BLOCK]

    def cursor(self, number: int) -> str:
        """Return the cursor of an entry."""
        return cursor_of(self.epoch_of(number), number, self.name)

    def epoch_of(self, number: int) -> int:
        """Return the epoch in which an entry was written."""
        return self._epochs[max(0, bisect_right(self._epochs, (number - 1, 1 << 62)) - 1)][1] if self._epochs else 1

    def has(self, position: LogPosition) -> bool:
        """Whether the log has all entries after this position."""
        if not self.dropped <= position.number <= self.newest:
            return False
        return position.number == 0 or position.epoch == self.epoch_of(position.number)

    def snapshot(self, data: bytes, keep: int) -> None:
        """Store the state at the newest entry, and drop the entries up to the snapshot before, but none after `keep`."""
        if self._next is not None:
            if self._next[0] > keep:
                return  # a reader still needs them; a later snapshot drops them
            self._drop(*self._next)
        self._next = self.newest, Entry(self.cursor(self.newest), data, snapshot=True)

    def _drop(self, number: int, base: Entry) -> None:
        self.dropped, self.base = number, base
        while self._blocks and self._blocks[0].last <= number:
            self._blocks.popleft()
        if not self._blocks:
            del self._tail[: max(0, number - (self.newest - len(self._tail)))]
