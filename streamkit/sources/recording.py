"""Recordings: a stream's own items with their times, one JSON object a line, append-only.

    {"streamkit": "recording", "version": 1, "created_at": 1766434871.5}
    {"source": 1, "fields": {…}}                               a source begins; a run has several with `then=`; `fields`
                                                               where the stream had such, and it is read with them again
    {"time": 0.213, "name": "…", "id": "…", "data": {…}}       one item; name and id as on SSE, where it had them;
                                                               times are seconds since the first item
    {"time": 0.9, "text": "…"}                                 one item that is no JSON
    {"time": 1.1, "event": {…}}                                our own answer to a tool call, or what an agent's tools and
                                                               code told, as a canonical event
    {"time": 1.7, "end": "completed"}                          how the stream ended; missing after a crash

A recording is readable at any moment of its writing: what a crash cut off is its last line at most, and replaying it
ends as the stream did, with `IncompleteStreamError`.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable, Generator
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec

from ..errors import SourceError, SourceTimeoutError, UsageError
from ..events import Event
from ..protocols import codec
from .source import Source

__all__ = ["MARK_LENGTH", "is_marked", "read_recording", "recording_in", "replay"]

is_marked = re.compile(rb'\s*\{\s*"streamkit"\s*:\s*"recording"').match
MARK_LENGTH = 40  # bytes that the mark is found in
_CHUNK = 1 << 16


def read_recording(path: str | PathLike[str]) -> Source:
    """A recording as a source, or a file with an SSE or NDJSON body as it was on the wire.

    Raises:
        SourceError: the file cannot be read; when it is pulled, also where a recorded failure is reached.
    """
    return _source(_at(Path(path)), None)


def replay(path: str | PathLike[str], *, speed: float = 1.0) -> Source:
    """A recording as a source, each item at its time, `speed` times as fast as it was recorded.

    Raises:
        UsageError: the speed is not above 0.
    """
    if not speed > 0:
        raise UsageError(f"a replay's speed cannot be {speed!r}; 1 is as it was, 2 is twice as fast")
    return _source(_at(Path(path)), speed)


def recording_in(file: Any) -> Source | None:
    """The recording that an open file has from where it is on, read whole; None if it has none. The file can be sought
    in, is of bytes or of text, and is closed with the source."""
    try:
        place = file.tell()
    except OSError:  # a text file that a loop has begun to read does not tell where it is
        rest = _as_bytes(file.read())
        file.seek(0)
        marked = is_marked(_as_bytes(file.read(MARK_LENGTH))) is not None
    else:
        if place == 0 and isinstance(file, io.TextIOWrapper):
            file = cast("Any", file).buffer  # a recording is in UTF-8, whatever the text file takes it for
            file.seek(0)
        marked = _is_recording(file, place)
        file.seek(place)
        if not marked:
            return None
        rest = _as_bytes(file.read())
    return _source(_content(lambda: io.BytesIO(rest), marked, len(rest)), None, close=file.close)


def _is_recording(file: Any, place: int) -> bool:
    """Whether an open file is one, here or from its start."""
    for start in (place, 0):
        file.seek(start)
        if is_marked(_as_bytes(file.read(MARK_LENGTH))):
            return True
    return False


def _as_bytes(read: str | bytes) -> bytes:
    return read.encode("utf-8", "surrogatepass") if isinstance(read, str) else bytes(read)


class _SourceLine(msgspec.Struct):
    source: int
    fields: dict[str, str] | None = None


class _Content(NamedTuple):
    """What is read: how it is opened, whether it is a recording, and where its parts begin and it ends: a recording
    has a part for each source that it recorded. What is recorded into the same file meanwhile is another run's. `fields`
    are those that the recorded stream had."""

    open: Callable[[], BinaryIO]
    marked: bool
    places: list[int]
    fields: dict[str, str] | None


def _at(path: Path) -> _Content:
    try:
        with path.open("rb") as file:
            marked = is_marked(file.read(MARK_LENGTH)) is not None
            return _content(lambda: path.open("rb"), marked, file.seek(0, SEEK_END))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def _content(opened: Callable[[], BinaryIO], marked: bool, size: int) -> _Content:
    starts: list[int] = []
    fields: dict[str, str] | None = None
    place = 0
    with opened() as file:
        for line in file if marked else ():
            if place >= size:
                break
            if line.startswith(b'{"source":') or not (starts or is_marked(line)):
                starts.append(place)  # what is read from its middle has a first part without that line
                fields = fields or _fields_in(line)
            place += len(line)
    return _Content(opened, marked, [*(starts or [0]), size], fields)


def _fields_in(line: bytes) -> dict[str, str] | None:
    """The fields that a source's line tells of."""
    try:
        return msgspec.json.decode(line, type=_SourceLine).fields
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _source(
    content: _Content,
    speed: float | None,
    *,
    part: int = 0,
    began: float | None = None,
    close: Callable[[], object] | None = None,
) -> Source:
    """One part of a content."""
    began = time.monotonic() if began is None else began
    start, end, *more = content.places[part:]
    batches = _items(content, start, end, speed, began) if content.marked else _chunks(content, end)
    following = (lambda: _source(content, speed, part=part + 1, began=began, close=close)) if more else None

    def finish() -> None:
        batches.close()
        if close is not None:
            close()

    return Source(batches, finish, following=following, whole=content.marked, fields=content.fields)


def _chunks(content: _Content, size: int) -> Generator[bytes, None, None]:
    with content.open() as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            size -= len(chunk)
            yield chunk


class _Line(msgspec.Struct):
    """A line as it is read. What an item says stays JSON text."""

    time: float = 0.0
    name: str = ""
    id: str = ""
    data: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    event: dict[str, Any] | None = None
    error: str | None = None
    message: str = ""
    details: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Line).decode


def _items(content: _Content, start: int, end: int, speed: float | None, began: float) -> Generator[Any, None, None]:
    with content.open() as file:
        file.seek(start)
        while start < end and (text := file.readline()):
            start += len(text)
            try:
                line = _decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue  # a line that a crash cut off, or that is none of ours
            if speed is not None and (wait := line.time / speed - (time.monotonic() - began)) > 0:
                time.sleep(wait)
            if line.error is not None:
                _fail(line)
            elif line.event is not None:
                yield _answer(line.event)
            elif line.text is not None or line.data:
                data = line.text.encode() if line.text is not None else bytes(line.data)
                yield [(line.id.encode(), line.name.encode(), data)]


def _answer(event: dict[str, Any]) -> list[Event]:
    try:
        return [codec.event_from_dict(event)]
    except ValueError:
        return []  # none of ours


def _fail(line: _Line) -> None:
    """A failure of the transport comes again; what the protocol says of its failure, the items say."""
    if line.error in ("SourceError", "SourceTimeoutError"):
        kind = SourceTimeoutError if line.error == "SourceTimeoutError" else SourceError
        error = kind(line.message)
        status = line.details.get("status_code")
        error.status_code = status if isinstance(status, int) else None
        raise error
