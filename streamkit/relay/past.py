"""The part of a run's log before the cursor after which a stream resumes. It rebuilds the state and calls no hook.

Of a message that has ended only the last line is used, which has the whole message, and it is decoded when somebody reads the
message. All other lines are decoded one by one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby

import msgspec

from ..core.ended_messages import EndedMessage, EndedMessages
from ..core.snapshot import Snapshot
from ..events import EVENTS, Done, Event, version
from ..messages import message_class
from ..messages.typed_json import decoder
from ..protocols import codec
from .cursors import EndedMessagesEntry, Entry, cursor_of, place_of, run_name

__all__ = ["Past"]

# The last line of a message, where it has the fields of the first line, in the form that our writers give them.
_END = (
    rb"""\{"type":"(?P=kind)_done","message":\{(?P=fields)(?(metadata)(?:,"status":"\w+")?(?P=metadata))[,}][^\n]*+"""
)
# Before CPython 3.11.5 a possessive group does not go back to where it began when it fails in its middle. One that is not
# possessive needs memory for each repetition, so they are limited.
_ANY_NUMBER = b"*+" if sys.version_info >= (3, 11, 5) else b"{0,1000}"
# The lines of a message, when nothing else stands between them; or as many of them as there are; or any other line. Of the
# active lines in between only the last counts, and if that is null, the message has none.
_spans = re.compile(
    rb"""
    \{"type":"(?P<kind>\w+)_created","message":\{
        (?=
            (?P<fields>"(?P<id>id":"[^"\\]*")[^\n]*),"status":"in_progress"
            (?:\}|(?P<metadata>,"metadata":\{[^\n]*)\})\}\n
        )
        [^\n]*+\n
    (?:\{"type":"(?:(?P=kind)_delta","message_(?P=id)|active_line","message_(?P=id),"line":(?P<active>\w+))[^\n]*+\n)%b
    (?:(?(active)(?P<active_end>%b)|(?P<end>%b))\n|(?P<open>\Z))
    |(?P<line>[^\n]*+)\n
    """
    % (_ANY_NUMBER, _END, _END),
    re.VERBOSE,
)
_END_GROUP, _ACTIVE_END_GROUP, _OPEN_GROUP = (_spans.groupindex[name] for name in ("end", "active_end", "open"))


class Past:
    """The log of a run up to a cursor, as events for an engine alone.

    Args:
        run_id: the id of the run.
        until: the cursor.
        decode: returns the event of a line, given the line and its cursor.
        leave_encoded: whether messages that have ended may be returned as `EndedMessages`.

    Attributes:
        is_over: whether the cursor was reached, or a snapshot that replaces the events up to a later place.
    """

    def __init__(self, run_id: str, until: str, decode: Callable[[bytes, str], Event], *, leave_encoded: bool) -> None:
        self.is_over = False
        self._run_id, self._until, self._decode, self._leave_encoded = run_id, until, decode, leave_encoded
        self._name = run_name(run_id)
        self._epoch: str = ""  # of the next lines; "" before the first, and after a snapshot
        self._number = 0  # of the last line that was decoded
        self._rest = b""  # the lines after it, which begin a message that goes on in the next entries
        self._has_begun = False

    def feed(self, entries: Sequence[Entry]) -> tuple[list[Event], Sequence[Entry]]:
        """The events of these entries up to the cursor, and the entries after it."""
        events: list[Event] = []
        lines: list[bytes] = []
        for place, entry in enumerate(entries):
            if entry.snapshot:
                events += self._events(lines, is_end=True)
                events += self._snapshot(entry)
                lines, self._epoch = [], ""
            elif isinstance(entry, EndedMessagesEntry):
                events += self._events(lines, is_end=True)
                events += self._last_lines(entry)
                lines = []
            else:
                epoch = entry.cursor.partition("-")[0]
                if epoch != self._epoch:
                    events += self._events(lines, is_end=True)
                    lines, self._epoch = [], epoch
                    self._number = place_of(entry.cursor, self._run_id).number - entry.data.count(b"\n") - 1
                lines.append(entry.data)
            self._has_begun = True
            if self.is_over or entry.cursor == self._until:
                self.is_over = True
                return [*events, *self._events(lines, is_end=True)], entries[place + 1 :]
        return [*events, *self._events(lines, is_end=False)], ()

    def _events(self, lines: Sequence[bytes], *, is_end: bool) -> Iterator[Event]:
        """The events of more lines. `is_end`: no message goes on after them, as they are the last, or a snapshot or another
        producer follows."""
        text = b"".join((self._rest, *[part for line in lines for part in (line, b"\n")]))
        self._rest = b""
        ended: list[bytes] = []  # the last lines of messages that have ended, one after the other
        first = 0  # where the first of these messages begins
        for span in _spans.finditer(text):
            group = span.lastindex
            if group == _END_GROUP or (group == _ACTIVE_END_GROUP and span["active"] == b"null"):
                ended.append(span[group])
                continue
            start, end = span.span()
            if ended:
                yield from self._ended(ended, text[first:start])
                ended = []
            first = end
            if group == _OPEN_GROUP and not is_end:
                self._rest = text[start:]
            else:
                yield from self._one_by_one(text[start:end])
        if ended:
            yield from self._ended(ended, text[first:])

    def _one_by_one(self, lines: bytes) -> Iterator[Event]:
        for line in lines[:-1].split(b"\n"):
            self._number += 1
            yield self._decode(line, self._cursor(self._number))

    def _ended(self, last_lines: Sequence[bytes], lines: bytes) -> Iterator[Event]:
        """The events of messages that have ended, one after the other: of their last lines, or of all where these do not
        say everything."""
        ended = self._messages(last_lines)
        spans = [lines] if all(ended) else [span[0] for span in _spans.finditer(lines)]
        for part, messages in _parts(ended):
            if messages:
                self._number += sum(span.count(b"\n") for span in spans[part])
                cursor = self._cursor(self._number)
                yield self._left_encoded(last_lines[part], messages, cursor, are_created=True)
            else:
                for span, last_line in zip(spans[part], last_lines[part], strict=True):
                    yield from self._decoded(span, last_line)

    def _last_lines(self, entry: EndedMessagesEntry) -> Iterator[Event]:
        """The events of messages that have ended, from the last line of each."""
        place = place_of(entry.cursor, self._run_id)
        self._epoch, self._number = str(place.epoch), place.number
        lines = entry.lines
        for part, messages in _parts(self._messages(lines)):
            if messages:
                yield self._left_encoded(lines[part], messages, entry.cursor, are_created=True)
                continue
            for line in lines[part]:
                event = self._decode(line, entry.cursor)
                if isinstance(event, Done):
                    yield event.message.created_event(event.message, position=event.position)
                yield event

    def _decoded(self, lines: bytes, last_line: bytes) -> Iterator[Event]:
        """The events of a message that is taken in as any other: of its last line, or of all, if that is no event."""
        number = self._number + lines.count(b"\n")
        done = self._decode(last_line, self._cursor(number)) if b'"content":' in last_line else None
        if not isinstance(done, Done):
            yield from self._one_by_one(lines)
            return
        self._number = number
        yield done.message.created_event(done.message, position=done.position)
        yield done

    def _cursor(self, number: int) -> str:
        return cursor_of(int(self._epoch), number, self._name)

    def _snapshot(self, entry: Entry) -> Iterator[Event]:
        """The events of a snapshot. The first one of a stream is split into its events, unless it goes beyond the
        cursor."""
        number = place_of(entry.cursor, self._run_id).number
        is_gap = number > place_of(self._until, self._run_id).number
        self.is_over = is_gap
        if is_gap or self._has_begun:
            event = self._decode(entry.data, entry.cursor)
            assert isinstance(event, Snapshot)
            event.is_gap = is_gap
            yield event
            return
        lines, dropped = codec.snapshot_lines(entry.data)
        events: list[Event] = []
        for are_done, group in groupby(lines, _is_done):
            some = [*group]
            ended = self._messages(some) if are_done else [None] * len(some)
            for part, messages in _parts(ended):
                if messages:
                    events.append(self._left_encoded(some[part], messages, entry.cursor, are_created=False))
                else:
                    events += [self._decode(line, entry.cursor) for line in some[part]]
        yield Snapshot(events=events, dropped=dropped, position=entry.cursor)

    def _left_encoded(
        self, lines: Sequence[bytes], messages: Sequence[EndedMessage], cursor: str, *, are_created: bool
    ) -> Event:
        decode = self._decode
        return EndedMessages(
            messages=messages,
            lines=lines,
            decode=lambda line: decode(line, cursor),
            read=_read,
            are_created=are_created,
            position=cursor,
        )

    def _messages(self, lines: Sequence[bytes]) -> Sequence[EndedMessage | None]:
        """The static forms of messages, by the lines with which they ended. None for one whose line does not say everything,
        or has to be decoded as any other event."""
        if not self._leave_encoded:
            return [None] * len(lines)
        items = [*lines]  # of one JSON array, which is joined once, for it is large
        items[0] = b"[" + items[0]
        items[-1] += b"]"
        try:
            done = _decode_lines(b",".join(items))
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return [*map(_message_in, lines)]
        if len(done) != len(lines):  # a line with more than one object, which is no event
            return [*map(_message_in, lines)]
        return _regular(done)


def _parts(messages: Sequence[EndedMessage | None]) -> Iterator[tuple[slice, Sequence[EndedMessage]]]:
    """The parts in which all messages are there, with these, and those in which none is, with none."""
    start = 0
    for _, group in groupby(messages, bool):
        part = [*group]
        yield slice(start, start + len(part)), [message for message in part if message is not None]
        start += len(part)


def _is_done(line: bytes) -> bool:
    return _match_done(line) is not None


def _read(line: bytes) -> Event:
    """The event of a line, as the reader decodes it."""
    try:
        return codec.line_decoder()(line)
    except Exception:  # one that msgspec alone does not decode
        return codec.decode_event(line)


class _DoneLine(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The line of an event with which a message ended."""

    type: str
    message: EndedMessage


def _regular(done: Sequence[_DoneLine]) -> Sequence[EndedMessage | None]:
    """Their messages, and None in place of one whose event has more fields, or is another kind's."""
    kinds = {(one.type, (it := one.message).type, it.format, it.role, it.provider_executed) for one in done}
    if all(_is_regular(version(), *kind) for kind in kinds):
        return [one.message for one in done]
    if len(kinds) == 1:
        return [None] * len(done)
    return [message for one in done for message in _regular([one])]


@lru_cache(256)
def _is_regular(version: int, event: str, type: str, format: str | None, role: str, provider: bool) -> bool:
    """Whether an event of this wire type ends such messages, and has no fields besides the message."""
    kind = EVENTS.get(event)
    return (
        kind is not None
        and issubclass(kind, Done)
        and kind.__struct_fields__ == Done.__struct_fields__
        and message_class(type, format, role) is kind.family
        and (type == "tool_call" or not provider)
    )


def _message_in(line: bytes) -> EndedMessage | None:
    try:
        return _regular([_decode_line(line)])[0]
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


_decode_line = decoder(_DoneLine).decode
_decode_lines = decoder(list[_DoneLine]).decode
_match_done = re.compile(rb'\{"type":"\w+_done","message":').match
