"""Recordings: a stream's own items with their times, one JSON object a line, append-only.

    {"streamkit": "recording", "version": 1, "created_at": 1766434871.5}
    {"time": 0.213, "name": "…", "id": "…", "data": {…}}       one item; name and id as on SSE, where it had them;
                                                               times are seconds since the first item
    {"time": 0.9, "text": "…"}                                 one item that is no JSON
    {"time": 1.7, "end": "completed"}                          how the stream ended; missing after a crash

A recording is readable at any moment of its writing: what a crash cut off is its last line at most, and replaying it
ends as the stream did, with `IncompleteStreamError`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from . import codec
from .errors import SourceError, SourceTimeoutError, UsageError
from .events import Event, StreamEnd, StreamException
from .handlers import Handler
from .sources import Source
from .state import StreamState

__all__ = ["Recorder", "read_recording", "replay"]

_is_marked = re.compile(rb'\s*\{\s*"streamkit"\s*:\s*"recording"').match
_MARK = 40  # bytes that the mark is found in
_CHUNK = 1 << 16
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Recorder(Handler):
    """Writes a stream's own items, as they come, to a file that `stream(path)` and `streamkit replay` read again.

    It appends: a path that holds a recording already gets another one's items after it, as the next source of one
    run. Each batch is written out before the handlers are told of it.

    Raises:
        UsageError: the file exists and is no recording.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._file: BinaryIO | None = None
        self._began = 0.0

    def bind(self, stream: StreamState) -> None:
        super().bind(stream)
        if self._path.exists() and self._path.stat().st_size:
            with self._path.open("rb") as file:
                if not _is_marked(file.read(_MARK)):
                    self.unbind(stream)
                    raise UsageError(f"{self._path} exists and is no recording; it was left as it is")

    def receive(self, items: Sequence[Any], /) -> None:
        if self._file is None:
            self._begin()
        now = round(time.monotonic() - self._began, 6)
        self._write([_line(item, now) for item in items])

    def handle(self, event: Event, /) -> None:
        match event:
            case StreamException(error=error, message=message, details=details):
                self._write([{"time": self._now(), "error": error, "message": message, "details": details}])
            case StreamEnd(status=status):
                self._write([{"time": self._now(), "end": status}])
                if self._file is not None:
                    self._file.close()
                    self._file = None
            case _:
                pass

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _begin(self) -> None:
        self._file = self._path.open("ab")
        self._began = time.monotonic()
        if self._file.tell() and not _ends_its_line(self._path):
            self._file.write(b"\n")  # after the line that a crash cut off
        if self._file.tell() == 0:
            self._write([{"streamkit": "recording", "version": 1, "created_at": time.time()}])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self._file is None:
            self._begin()
        assert self._file is not None
        self._file.write(b"".join(_encode(line) + b"\n" for line in lines))
        self._file.flush()


def _ends_its_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, SEEK_END)
        return file.read(1) == b"\n"


def _line(item: Any, now: float) -> dict[str, Any]:
    if not isinstance(item, tuple):
        return {"time": now, "data": codec.event_to_dict(item) if isinstance(item, Event) else item}
    id, name, data = cast("tuple[bytes, bytes, bytes]", item)  # a frame: no other item is a tuple
    line: dict[str, Any] = {"time": now}
    for key, value in (("name", name), ("id", id)):
        if value:
            line[key] = value.decode("utf-8", "replace")
    try:
        line["data"] = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        line["text"] = data.decode("utf-8", "replace")
    return line


def read_recording(path: str | PathLike[str]) -> Generator[Any, None, None]:
    """The batches of a recording, or of a file with an SSE or NDJSON body as it was on the wire.

    Raises:
        SourceError: the file cannot be read, or a recorded failure is reached.
    """
    return _batches(path, speed=None)


def replay(path: str | PathLike[str], *, speed: float = 1.0) -> Source:
    """A recording as a source, each item at its time, `speed` times as fast as it was recorded.

    Raises:
        UsageError: the speed is not above 0.
    """
    if not speed > 0:
        raise UsageError(f"a replay's speed cannot be {speed!r}; 1 is as it was, 2 is twice as fast")
    batches = _batches(path, speed=speed)
    return Source(batches, batches.close)


def _batches(path: str | PathLike[str], *, speed: float | None) -> Generator[Any, None, None]:
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # closed below, with the generator
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error
    with file:
        start = file.read(_MARK)
        if _is_marked(start):
            file.seek(0)
            file.readline()
            yield from _items(file, speed)
            return
        yield start
        while chunk := file.read(_CHUNK):
            yield chunk


class _Line(msgspec.Struct):
    """A line as it is read. What an item says stays JSON text."""

    time: float = 0.0
    name: str = ""
    id: str = ""
    data: msgspec.Raw = msgspec.Raw()
    text: str | None = None
    error: str | None = None
    message: str = ""
    details: dict[str, Any] = {}


_decode = msgspec.json.Decoder(_Line).decode


def _items(file: BinaryIO, speed: float | None) -> Iterator[Any]:
    began = time.monotonic()
    for text in file:
        try:
            line = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue  # a line that a crash cut off, or that is none of ours
        if speed is not None and (wait := line.time / speed - (time.monotonic() - began)) > 0:
            time.sleep(wait)
        if line.error is not None:
            _fail(line)
        elif line.text is not None or line.data:
            data = line.text.encode() if line.text is not None else bytes(line.data)
            yield [(line.id.encode(), line.name.encode(), data)]


def _fail(line: _Line) -> None:
    """A failure of the transport comes again; what the protocol says of its failure, the items say."""
    if line.error in ("SourceError", "SourceTimeoutError"):
        kind = SourceTimeoutError if line.error == "SourceTimeoutError" else SourceError
        error = kind(line.message)
        status = line.details.get("status_code")
        error.status_code = status if isinstance(status, int) else None
        raise error
