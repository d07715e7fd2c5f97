"""The part of a run's log before the cursor after which a stream resumes. It rebuilds the state and calls no hook.

Of a message that has ended only the last line is used, which has the whole message, and it is decoded when somebody reads the
message. All other lines are decoded one by one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec

from ..core.ended_messages import EndedMessage, EndedMessages
from ..core.snapshot import Snapshot
from ..events import EVENTS, Done, Event, version
from ..messages import message_class
from ..protocols import codec
from .cursors import Entry, cursor_of, place_of, run_name

__all__ = ["Past"]

# One message from its beginning to its end, when nothing else stands between its lines; or as far as the text goes; or any
# other line. Of the active lines in between only the last counts, and if that is null, the message has none.
_spans = re.compile(
    rb"""
    \{"type":"(?P<kind>\w+)_created","message":\{"(?P<id>id":"[^"\\]*")[^\n]*+\n
    (?:\{"type":"(?:(?P=kind)_delta","message_(?P=id)|active_line","message_(?P=id),"line":(?P<active>\w+))[^\n]*+\n)*+
    (?:
        (?P<done>\{"type":"(?P=kind)_done","message":\{"(?P=id)[^\n]*+)\n
        |(?P<open>\Z)
    )
    |(?P<line>[^\n]*+)\n
    """,
    re.VERBOSE,
).finditer


class Past:
    """The log of a run up to a cursor, as events for an engine alone.

    Args:
        run_id: the id of the run.
        until: the cursor.
        decode: returns the event of a line, given the line and its cursor.
        keeps_lines: whether messages that have ended may be returned as `EndedMessages`.

    Attributes:
        is_over: whether the cursor was reached, or a snapshot that replaces the events up to a later place.
    """

    def __init__(self, run_id: str, until: str, decode: Callable[[bytes, str], Event], *, keeps_lines: bool) -> None:
        self.is_over = False
        self._run_id, self._until, self._decode, self._keeps_lines = run_id, until, decode, keeps_lines
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
        counted = 0  # up to where the lines of the text are counted in `_number`
        ended: list[re.Match[bytes]] = []
        for span in _spans(text):
            active, done = span.group("active", "done")
            if done is not None and (active is None or active == b"null") and _is_whole(span, done):
                ended.append(span)
                continue
            start, end = span.span()
            if span.lastgroup == "open" and not is_end:
                self._rest = text[start:]
                break
            self._number += text.count(b"\n", counted, start)
            yield from self._ended(ended, self._number)
            ended = []
            for line in text[start : end - 1].split(b"\n"):
                self._number += 1
                yield self._decode(line, self._cursor(self._number))
            counted = end
        self._number += text.count(b"\n", counted, len(text) - len(self._rest))
        yield from self._ended(ended, self._number)

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
            if are_done:
                events += self._taken_in([*group], entry.cursor)
            else:
                events += [self._decode(line, entry.cursor) for line in group]
        yield Snapshot(events=events, dropped=dropped, position=entry.cursor)

    def _ended(self, spans: Sequence[re.Match[bytes]], number: int) -> Iterator[Event]:
        """The events of messages that have ended, one after the other, the last one with the line of this number."""
        if spans:
            yield from self._taken_in([span["done"] for span in spans], self._cursor(number), spans)

    def _taken_in(
        self, lines: Sequence[bytes], cursor: str, spans: Sequence[re.Match[bytes] | None] = ()
    ) -> Iterator[Event]:
        """The events of messages that have ended, by their last lines. `spans`: all lines of each, if they are there."""
        messages = self._messages(lines)
        if all(messages):  # the common case
            yield self._kept(lines, messages, cursor, are_created=bool(spans))
            return
        together = zip(lines, messages, spans or [None] * len(lines), strict=True)
        for is_kept, group in groupby(together, _has_message):
            if is_kept:
                kept, ended, _ = zip(*group, strict=True)
                yield self._kept(kept, ended, cursor, are_created=bool(spans))
            else:
                for line, _, span in group:
                    yield from self._decoded(line, span, cursor)

    def _decoded(self, line: bytes, span: re.Match[bytes] | None, cursor: str) -> Iterator[Event]:
        """The events of a message that is taken in as any other: of its last line, or of all, if that is no event."""
        done = self._decode(line, cursor)
        if span is None:
            yield done
        elif isinstance(done, Done):
            yield done.message.created_event(done.message, position=cursor)
            yield done
        else:
            for one in span[0].removesuffix(b"\n").split(b"\n"):
                yield self._decode(one, cursor)

    def _kept(self, lines: Sequence[bytes], messages: Sequence[Any], cursor: str, *, are_created: bool) -> Event:
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
        """The static forms of messages. None for one that has to be decoded as any other event."""
        if not self._keeps_lines:
            return [None] * len(lines)
        try:
            done = _decode_lines(b"[%b]" % b",".join(lines))
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return [*map(_message_in, lines)]
        if len(done) != len(lines):  # a line with more than one object, which is no event
            return [*map(_message_in, lines)]
        return [one.message if one.is_regular else None for one in done]


def _is_whole(span: re.Match[bytes], done: bytes) -> bool:
    """Whether the last line of a message has all that the others have: the fields with which it was created, in the same
    form, and content."""
    text, start = span.string, span.start("id") - 1
    end = text.index(b"\n", start)
    begin, _, rest = text[start : end - 2].partition(b',"status":"in_progress"')
    if not (done.startswith(begin, start - span.start() - 3) and rest in done):  # `created` is longer than `done`
        return False
    return b'"content":' in done or span.start("done") == end + 1


def _is_done(line: bytes) -> bool:
    return _match_done(line) is not None


def _has_message(line: tuple[bytes, EndedMessage | None, object]) -> bool:
    return line[1] is not None


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

    @property
    def is_regular(self) -> bool:
        message = self.message
        return _is_regular(version(), self.type, message.type, message.format, message.role, message.provider_executed)


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
        done = _decode_line(line)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    return done.message if done.is_regular else None


_decode_line = msgspec.json.Decoder(_DoneLine).decode
_decode_lines = msgspec.json.Decoder(list[_DoneLine]).decode
_match_done = re.compile(rb'\{"type":"\w+_done","message":').match
