"""Encoding a run once for all who read it in the same protocol.

Each of them begins by itself, at the beginning of the log. Once two are at the same event, the states of their encoders are
the same, so one goes on for both: the reader that comes first to the next entry makes its frames. A reader that had a snapshot in place of
some events knows less than one that had these events. So it shares its encoder with those alone that had the same.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence

from ..events import Event
from ..relay import Entry
from ..relay.run_record import LogPosition, position_of
from .event_stream import Encoded, RunFrames

__all__ = ["EncodedTogether", "SharedEncoding"]

_BEGINNING = LogPosition(0, 0)


class _EncodedEntry:
    """An entry of the log and its frames. It refers to the next one, so that only what a reader still needs is held.

    Attributes:
        cursor, position: of the entry.
        body: its frames.
        ends: whether nothing follows in the responses.
        following: the link of the next entry; None in the newest one.
        state: in the newest one, what encodes the next entry.
        gaps: the events that a snapshot stood for, in what led to this state; "" if there was none.
    """

    __slots__ = ("__weakref__", "body", "cursor", "ends", "following", "gaps", "position", "state")

    def __init__(
        self,
        cursor: str,
        position: LogPosition,
        body: bytes,
        state: Encoded | None,
        *,
        ends: bool = False,
        gaps: str = "",
    ) -> None:
        self.cursor = cursor
        self.position = position
        self.body = body
        self.ends = ends
        self.following: _EncodedEntry | None = None
        self.state = state
        self.gaps = gaps

    def extend(self, state: Encoded, entry: Entry, position: LogPosition) -> _EncodedEntry:
        """Encode the next entry."""
        body = b"".join(state.of([entry]))
        gaps = f"{self.gaps} {self.cursor}:{entry.cursor}" if entry.snapshot else self.gaps
        self.following = _EncodedEntry(entry.cursor, position, body, state, ends=state.has_ended, gaps=gaps)
        self.state = None
        return self.following

    def fail(self, state: Encoded, event: Event) -> _EncodedEntry:
        """End the responses of all who are here."""
        self.following = _EncodedEntry("", _BEGINNING, state.writer.event(event), None, ends=True)
        self.state = None
        return self.following


class SharedEncoding:
    """One run in one protocol.

    Attributes:
        newest: by their gaps, the newest links at which a reader is.
        lock: for a server whose readers are in several event loops.
    """

    def __init__(self) -> None:
        self.newest: weakref.WeakValueDictionary[str, _EncodedEntry] = weakref.WeakValueDictionary()
        self.lock = threading.Lock()


class EncodedTogether(RunFrames):
    """Encodes events, together with other readers once they are at the same position.

    Args:
        state: encodes the run from its beginning, for this reader alone.
        shared: of the run and the protocol, with the same options.
        run_id: the run.
        apart_to: the number of the event up to which this reader gets other frames than those that begin elsewhere: what
            its client has already, and questions that have been answered.
    """

    def __init__(self, state: Encoded, shared: SharedEncoding, run_id: str, apart_to: int) -> None:
        super().__init__(state.writer, state.beginning)
        self.ends_at_questions = state.ends_at_questions
        self._link = _EncodedEntry("", _BEGINNING, b"", state)
        self._shared = shared
        self._run_id = run_id
        self._apart_to = apart_to

    def body(self, entries: Sequence[Entry]) -> bytes:
        """Return the frames of all entries."""
        with self._shared.lock:
            return super().body(entries)

    def of(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """Yield the frames of each entry."""
        for entry in entries:
            following = self._link.following
            if following is not None and following.cursor == entry.cursor:
                yield self._take(following)
            else:
                yield from self._encode(entry)
            if self.has_ended:
                return
        self._join()

    def _take(self, link: _EncodedEntry) -> bytes:
        self._link, self.has_ended = link, link.ends
        return link.body

    def _encode(self, entry: Entry) -> Iterator[bytes]:
        """Yield the frames up to an entry that no reader has encoded, or that stands for several that another reader
        has encoded."""
        position = position_of(entry.cursor, self._run_id)
        while (following := self._link.following) is not None and following.position <= position:
            yield self._take(following)
        state = self._link.state
        if state is not None and position > self._link.position:
            state.questions = self.questions
            yield self._take(self._link.extend(state, entry, position))

    def _join(self) -> None:
        """Share the frames of the readers at the same position. The next ones join the reader that is ahead of all others."""
        link = self._link
        newest = self._shared.newest.get(link.gaps)
        if link is newest or link.position.number < self._apart_to:
            return
        if newest is None or newest.position < link.position:
            self._shared.newest[link.gaps] = link
        elif newest.position == link.position:
            self._link = newest

    def failure(self, event: Event) -> bytes:
        """Return the frames of a failure, after those of others that this reader has not had. It is the failure of all
        of them."""
        bodies: list[bytes] = []
        with self._shared.lock:
            self._shared.newest.clear()
            while self._link.following is not None:
                bodies.append(self._take(self._link.following))
            if self._link.state is not None:
                bodies.append(self._take(self._link.fail(self._link.state, event)))
        return b"".join(bodies)
