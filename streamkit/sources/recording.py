"""Recordings: a stream's own items with their times, one JSON object a line, append-only.

    {"streamkit": "recording", "version": 1, "created_at": 1766434871.5}
    {"source": 1, "fields": {…}}                               a source begins; a run has several with `then=`; `fields`
                                                               is the stream's `fields=`, and is used again on replay
    {"time": 0.213, "name": "…", "id": "…", "data": {…}}       one item; name and id are those of its SSE frame;
                                                               times are seconds since the first item
    {"time": 0.9, "text": "…"}                                 one item that is not JSON
    {"time": 1.1, "event": {…}}                                an answer to a tool call, or an event of an agent's tools or
                                                               code, as a canonical event
    {"time": 1.7, "end": "completed"}                          how the stream ended; missing after a crash

A recording can be read at any moment while it is written: a crash cuts off its last line at most. Replaying such a one
ends with `IncompleteStreamError`. A damaged line anywhere else is reported as an item that is not JSON.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Generator
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from ..errors import SourceError, SourceTimeoutError, UsageError
from ..events import Event
from ..messages.json_text import NOT_JSON, damaged, shallow
from ..protocols import codec
from .source import Source, SourceTraits

__all__ = ["MARK_LENGTH", "is_marked", "read_recording", "recording_in", "replay"]

is_marked = re.compile(rb'\s*\{\s*"streamkit"\s*:\s*"recording"').match
MARK_LENGTH = 40  # bytes that the mark is found in
_CHUNK = 1 << 16
_VERSION = 1


def read_recording(path: str | PathLike[str]) -> Source:
    """A recording as a source; or a file with an SSE or NDJSON body, exactly as a server sent it.

    Raises:
        SourceError: the file cannot be read. Pulling raises it too, where the recording has a failure.
    """
    return _source(_at(Path(path)), None)


def replay(path: str | PathLike[str], *, speed: float = 1.0) -> Source:
    """A recording as a source that yields each item at its recorded time, `speed` times as fast.

    Raises:
        UsageError: the speed is not above 0.
    """
    if not speed > 0:
        raise UsageError(f"a replay's speed cannot be {speed!r}; 1 is the recorded speed, 2 is twice as fast")
    return _source(_at(Path(path)), speed)


def recording_in(file: Any) -> Source | None:
    """The recording in an open file, from its position on; None if it has none. It is read completely.

    The file must be seekable, of bytes or text. Closing the source closes it.
    """
    try:
        place = file.tell()
    except OSError:  # a text file that is being iterated does not report its position
        rest = _as_bytes(file.read())
        file.seek(0)
        marked = is_marked(_as_bytes(file.read(MARK_LENGTH))) is not None
    else:
        if place == 0 and isinstance(file, io.TextIOWrapper):
            file = _bytes_of(file)  # a recording is UTF-8, whatever encoding the text file has
            file.seek(0)
        marked = _has_mark(file, place)
        file.seek(place)
        if not marked:
            return None
        rest = _as_bytes(file.read())
    return _source(_content(lambda: io.BytesIO(rest), marked, len(rest)), None, close=file.close)


def _bytes_of(file: Any) -> Any:
    """The binary file under a text file."""
    return file.buffer


def _has_mark(file: Any, place: int) -> bool:
    """Whether an open file is a recording, from this place or from its start."""
    for start in (place, 0):
        file.seek(start)
        if is_marked(_as_bytes(file.read(MARK_LENGTH))):
            return True
    return False


def _as_bytes(read: str | bytes) -> bytes:
    return read.encode("utf-8", "surrogatepass") if isinstance(read, str) else bytes(read)


class _FirstLine(msgspec.Struct):
    version: int = 1


class _SourceLine(msgspec.Struct):
    source: int
    fields: dict[str, str] | None = None


class _Content(NamedTuple):
    """The content of a file, as it was when it was opened: what is appended later belongs to another run.

    Attributes:
        open: opens it for reading.
        is_recording: whether it is a recording; if not, it is the body of a response.
        places: where its parts begin, then where it ends, in bytes. A recording has a part for each recorded source.
        fields: the `fields=` of the recorded stream.
    """

    open: Callable[[], BinaryIO]
    is_recording: bool
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
            if place == 0:
                _check_version(line)
            if line.startswith(b'{"source":') or not (starts or is_marked(line)):
                starts.append(place)  # the first part may lack that line, if the file's position is in the middle
                fields = fields or _fields_in(line)
            place += len(line)
    return _Content(opened, marked, [*(starts or [0]), size], fields)


def _fields_in(line: bytes) -> dict[str, str] | None:
    """The fields in the line that begins a source."""
    try:
        return msgspec.json.decode(shallow(line), type=_SourceLine).fields
    except NOT_JSON:
        return None


def _check_version(line: bytes) -> None:
    """Raise `SourceError` for a recording of another version, whose lines may mean something else."""
    try:
        version = msgspec.json.decode(shallow(line), type=_FirstLine).version
    except NOT_JSON:
        return  # the rest of the recording may be readable
    if version != _VERSION:
        raise SourceError(f"the recording is of version {version}, and this streamkit reads version {_VERSION}")


def _source(
    content: _Content,
    speed: float | None,
    *,
    part: int = 0,
    began: float | None = None,
    close: Callable[[], object] | None = None,
) -> Source:
    """A source for one part of the content; it opens the next part after it."""
    began = time.monotonic() if began is None else began
    start, end, *more = content.places[part:]
    batches = _items(content, start, end, speed, began) if content.is_recording else _chunks(content, end)
    next_part = (lambda: _source(content, speed, part=part + 1, began=began, close=close)) if more else None

    def finish() -> None:
        batches.close()
        if close is not None:
            close()

    traits = SourceTraits(next_source=next_part, read_to_end=content.is_recording, fields=content.fields)
    return Source(batches, finish, traits)


def _chunks(content: _Content, size: int) -> Generator[bytes, None, None]:
    with content.open() as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            size -= len(chunk)
            yield chunk


class _Line(msgspec.Struct):
    """A line of a recording. An item's data stays JSON text."""

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
            line = _line_of(text)
            if line is None:
                if (
                    start < end and text.strip()
                ):  # not the last line before the end, or before another source: a crash cuts that
                    yield [(b"", b"", damaged(text.strip()))]
                continue
            if speed is not None and (wait := line.time / speed - (time.monotonic() - began)) > 0:
                time.sleep(wait)
            if line.error is not None:
                _fail(line)
            elif line.event is not None:
                yield _answer(line.event)
            elif line.text is not None or line.data:
                data = _text_bytes(line.text) if line.text is not None else bytes(line.data)
                yield [(line.id.encode(), line.name.encode(), shallow(data))]


def _line_of(text: bytes) -> _Line | None:
    """A line; None if it is damaged."""
    text = shallow(text)
    try:
        return _decode(text)
    except NOT_JSON:
        pass
    try:
        value = json.loads(text)  # a half of a surrogate pair is nothing that msgspec decodes
        data = msgspec.Raw(json.dumps(value.pop("data")).encode()) if "data" in value else msgspec.Raw()
        return msgspec.structs.replace(msgspec.convert(value, _Line), data=data)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _text_bytes(text: str) -> bytes:
    """The bytes of an item that is not JSON. Those that are not UTF-8 are escaped in it."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _answer(event: dict[str, Any]) -> list[Event]:
    try:
        return [codec.event_from_dict(event)]
    except ValueError:
        return []  # an event of another format


def _fail(line: _Line) -> None:
    """Raise a recorded failure of the transport again. A failure that the protocol reported is among the items."""
    if line.error in ("SourceError", "SourceTimeoutError"):
        kind = SourceTimeoutError if line.error == "SourceTimeoutError" else SourceError
        error = kind(line.message)
        status = line.details.get("status_code")
        error.status_code = status if isinstance(status, int) else None
        raise error
