"""Encoding a run once for all who read it in the same protocol.

Each of them begins by itself, at the beginning of the log. Once two are at the same event, the states of their encoders are
the same, so one goes on for both: whoever comes first to the next entry makes its frames. A reader that had a snapshot in place of
some events knows less than one that had these events. So it shares its encoder with those alone that had the same.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence

from ..events import Event
from ..relay import Entry
from ..relay.cursors import Place, place_of
from .event_stream import Encoded, Frames

__all__ = ["EncodedTogether", "SharedEncoding"]

_BEGINNING = Place(0, 0)


class _Link:
    """An entry of the log and its frames. It refers to the next one, so that only what a reader still needs is held.

    Attributes:
        cursor, place: of the entry.
        body: its frames.
        ends: whether nothing follows in the responses.
        following: the link of the next entry; None in the newest one.
        state: in the newest one, what encodes the next entry.
        gaps: the events that a snapshot stood for, in what led to this state; "" if there was none.
    """

    __slots__ = ("__weakref__", "body", "cursor", "ends", "following", "gaps", "place", "state")

    def __init__(
        self,
        cursor: str,
        place: Place,
        body: bytes,
        state: Encoded | None,
        *,
        ends: bool = False,
        gaps: str = "",
    ) -> None:
        self.cursor = cursor
        self.place = place
        self.body = body
        self.ends = ends
        self.following: _Link | None = None
        self.state = state
        self.gaps = gaps

    def extend(self, state: Encoded, entry: Entry, place: Place) -> _Link:
        """Encode the next entry."""
        body = b"".join(state.of([entry]))
        gaps = f"{self.gaps} {self.cursor}:{entry.cursor}" if entry.snapshot else self.gaps
        self.following = _Link(entry.cursor, place, body, state, ends=state.has_ended, gaps=gaps)
        self.state = None
        return self.following

    def fail(self, state: Encoded, event: Event) -> _Link:
        """End the responses of all who are here."""
        self.following = _Link("", _BEGINNING, state.writer.event(event), None, ends=True)
        self.state = None
        return self.following


class SharedEncoding:
    """One run in one protocol.

    Attributes:
        newest: by their gaps, the newest links at which a reader is.
        lock: for a server whose readers are in several event loops.
    """

    def __init__(self) -> None:
        self.newest: weakref.WeakValueDictionary[str, _Link] = weakref.WeakValueDictionary()
        self.lock = threading.Lock()


class EncodedTogether(Frames):
    """Encodes events, together with other readers once they are at the same place.

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
        self._link = _Link("", _BEGINNING, b"", state)
        self._shared = shared
        self._run_id = run_id
        self._apart_to = apart_to

    def body(self, entries: Sequence[Entry]) -> bytes:
        """The frames of all entries."""
        with self._shared.lock:
            return super().body(entries)

    def of(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """The frames of each entry."""
        for entry in entries:
            following = self._link.following
            if following is not None and following.cursor == entry.cursor:
                yield self._take(following)
            else:
                yield from self._encode(entry)
            if self.has_ended:
                return
        self._join()

    def _take(self, link: _Link) -> bytes:
        self._link, self.has_ended = link, link.ends
        return link.body

    def _encode(self, entry: Entry) -> Iterator[bytes]:
        """The frames up to an entry, which nobody has encoded, or which stands for several that somebody has."""
        place = place_of(entry.cursor, self._run_id)
        while (following := self._link.following) is not None and following.place <= place:
            yield self._take(following)
        state = self._link.state
        if state is not None and place > self._link.place:
            state.questions = self.questions
            yield self._take(self._link.extend(state, entry, place))

    def _join(self) -> None:
        """Go on with those who are at the same place; who is ahead of all others is who the next ones go on with."""
        link = self._link
        newest = self._shared.newest.get(link.gaps)
        if link is newest or link.place.number < self._apart_to:
            return
        if newest is None or newest.place < link.place:
            self._shared.newest[link.gaps] = link
        elif newest.place == link.place:
            self._link = newest

    def failure(self, event: Event) -> bytes:
        """The frames of a failure, after those of others that this reader has not had. It is the failure of all of them."""
        bodies: list[bytes] = []
        with self._shared.lock:
            self._shared.newest.clear()
            while self._link.following is not None:
                bodies.append(self._take(self._link.following))
            if self._link.state is not None:
                bodies.append(self._take(self._link.fail(self._link.state, event)))
        return b"".join(bodies)
