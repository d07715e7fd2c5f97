"""The handler that writes a recording: the source's raw items with their times. `sources.recording` has the format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .errors import UsageError
from .events import Event, StreamEnd, StreamException, ToolOutputDone
from .handlers import Call, Handler
from .messages.json_text import decode_json, is_nested_too_deep
from .protocols import codec
from .protocols.framing import is_frame
from .sources.recording import MARK_LENGTH, is_marked
from .streams.state import StreamState

__all__ = ["Recorder"]

_CHUNK = 1 << 16
_PRIVATE = 0o600  # only its owner reads it, as it holds a conversation; a file that exists keeps its permissions
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Recorder(Handler):
    """Records a stream to a file, which `stream(path)`, `replay(path)` and `streamkit replay` read again.

        sk.stream(source, Printer(), sk.Recorder("run.jsonl")).until_done()
        sk.stream(Path("run.jsonl"), Printer()).until_done()  # the same events again

    It writes the source's raw items as they arrive, each batch before handlers receive its events. It appends: if the path
    has a recording already, the new items are added as the next source of the same run. Use a new path for each run.

    Args:
        path: the file. It is created when the first item arrives, readable for its owner alone.

    Attaching it to a stream raises `UsageError` if the file cannot be written, or exists and is not a recording.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self._path = Path(path)
        self._file: BinaryIO | None = None
        self._began = 0.0
        self._source = 0  # the number of the stream's source that was written last
        self._answers = (
            False  # whether events among its items are answers, because the source's first item was no event
        )
        self._written: set[str] = set()  # the ids of tool outputs that were among the items

    def bind(self, stream: StreamState) -> None:
        """Attach it to a stream.

        Raises:
            UsageError: the file cannot be written, or exists and is not a recording; or as `Handler.bind`.
        """
        self._require_init("_path", "path")
        super().bind(stream)
        self._source = 0
        self._written.clear()
        try:
            self._check_path()
        except UsageError:
            self.unbind(stream)
            raise

    def _check_path(self) -> None:
        """Raise `UsageError` where no recording can be written, before any request is sent."""
        path = self._path
        if not path.parent.is_dir():
            raise UsageError(f"{path} cannot be written: there is no folder {path.parent}")
        if path.is_dir():
            raise UsageError(f"{path} is a folder; a recording is a file")
        try:
            if path.is_file() and path.stat().st_size:
                with path.open("rb") as file:
                    marked = is_marked(file.read(MARK_LENGTH))
                if not marked:
                    raise UsageError(f"{path} exists and is no recording; it was not changed")
            writable = os.access(path if path.exists() else path.parent, os.W_OK)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        if not writable:
            raise UsageError(f"{path} cannot be written: permission denied")

    def receive(self, items: Sequence[Any], /) -> None:
        """Write the source's raw items."""
        if self._file is None:
            self._begin()
        if self._source != self.stream.source_number:
            self._source = self.stream.source_number
            fields = self.stream.fields
            self._write([{"source": self._source, **({"fields": dict(fields)} if fields else {})}])
            self._answers = bool(items) and not isinstance(items[0], Event)
        self._written |= {item.message.id for item in items if isinstance(item, ToolOutputDone)}
        now, answers = self._now(), self._answers
        self._write([_line(item, now, answers=answers) for item in items])

    def handle(self, event: Event, /) -> None:
        """Write what is not among the items: answers to tool calls, a failure, and the end."""
        match event:
            case StreamException(error=error, message=message, details=details):
                self._write([{"time": self._now(), "error": error, "message": message, "details": details}])
            case ToolOutputDone(raw_item=None) if event.message.id not in self._written:
                self._write([{"time": self._now(), "event": codec.event_to_dict(event)}])
            case StreamEnd(status=status):
                self._write([{"time": self._now(), "end": status}])
                if self._file is not None:
                    self._file.close()
                    self._file = None
            case _:
                pass

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """As of any handler, without the events that `handle` writes nothing of."""
        calls = super().streamkit_plan()
        if type(self).handle is not Recorder.handle:
            return calls
        return {kind: calls[kind] for kind in calls if issubclass(kind, (StreamException, ToolOutputDone, StreamEnd))}

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    def _begin(self) -> None:
        self._file = os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _PRIVATE), "ab")
        self._began = time.monotonic()
        if self._file.tell() and not _ends_its_line(self._path):
            self._file.write(b"\n")  # after the line that a crash cut off
        if self._file.tell() == 0:
            self._write([{"streamkit": "recording", "version": 1, "created_at": time.time()}])

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self._file is None:
            self._begin()
        assert self._file is not None
        self._file.write(b"\n".join([*map(_encoded, lines), b""]))
        self._file.flush()


def _encoded(line: dict[str, Any]) -> bytes:
    """A line as JSON. An item that JSON cannot hold is written as text, so that it does not end the stream."""
    if type(line.get("data")) is not msgspec.Raw and is_nested_too_deep(line):
        return _encode({"time": line.get("time", 0.0), "text": "an item that is nested too deep"})
    try:
        return _encode(line)
    except UnicodeEncodeError:
        return json.dumps(line, default=str).encode()  # which has an escape for a half of a surrogate pair
    except (TypeError, ValueError):
        return _encode({"time": line.get("time", 0.0), "text": ascii(line.get("data"))[:_CHUNK]})


def _ends_its_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, SEEK_END)
        return file.read(1) == b"\n"


def _line(item: Any, now: float, *, answers: bool = False) -> dict[str, Any]:
    """The line for an item. With `answers`, an event is an answer among the items of another protocol."""
    if isinstance(item, Event):
        return {"time": now, "event" if answers else "data": codec.event_to_dict(item, keep_surrogates=True)}
    if not is_frame(item):
        return {"time": now, "data": item}
    id, name, data = item
    line: dict[str, Any] = {"time": now}
    for key, value in (("name", name), ("id", id)):
        if value:
            line[key] = value.decode("utf-8", "replace")
    try:
        decode_json(data)
        # Written as it came, so that the same bytes are read again. Whatever is a line of its own has to be in one here.
        line["data"] = msgspec.Raw(data) if b"\n" not in data and b"\r" not in data else decode_json(data)
    except (ValueError, RecursionError):
        line["text"] = data.decode("utf-8", "surrogateescape")  # so that the same bytes are read again
    return line
