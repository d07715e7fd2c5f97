"""Recordings: a stream's own items with their times, one JSON object a line, append-only.

    {"streamkit": "recording", "version": 1, "created_at": 1766434871.5}
    {"source": 1, "fields": {…}, "protocol": "…", …}           a source begins; a run has several with `then=`, and of an
                                                               agent. What it was read with is used again on replay: the
                                                               stream's `fields=` and `reasoning_tag=`, and the protocol if
                                                               it was known. The
                                                               others are true or missing: `live`, it was a producer
                                                               that takes a pull for an answer; `answered`, the stream
                                                               could answer confirmations; `same_step`, it belonged to
                                                               the run step before; `continues`, it knew what follows;
                                                               `nested`, a hook read it inside the one before
    {"time": 0.213, "name": "…", "id": "…", "data": {…}}       one item; name and id are those of its SSE frame;
                                                               times are seconds since the first item
    {"time": 0.5, "data": {…}, "parsed": true}                 one item of a source whose items are not bytes
    {"time": 0.9, "text": "…"}                                 one item that is not JSON
    {"time": 1.1, "event": {…}, "late": true}                  an answer, as a canonical event; `late` if it came after
                                                               the source's end, with the id of its call as `promised`
                                                               if nothing waited for it
                                                               (a `stream_retry` too, which follows a failed source, or
                                                               comes before one that could not be opened, and then is
                                                               `between_steps` if a step came before)
    {"executes": "…"}                                          the id of a call that an agent answered itself
    {"time": 1.3, "error": "…", "message": "…", "details": {…}, "late": true}
                                                               the error that ended the stream; `between_steps` is true of
                                                               one with which the next source could not be opened
    {"time": 1.2, "cut": "…"}                                  the beginning of the item in the middle of which the source
                                                               ended; of the whole source, if no item was complete
    {"time": 1.7, "end": "completed", "reason": "declined"}    how the stream ended; missing after a crash

A recording can be read at any moment while it is written: a crash cuts off its last line at most. Replaying such a one
ends with `IncompleteStreamError`. A damaged line anywhere else is reported as an item that is not JSON.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable, Generator
from functools import partial
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from ..core.steps import Stopped
from ..errors import IncompleteStreamError, LimitError, SourceError, SourceTimeoutError, UsageError
from ..events import Event, StreamRetry
from ..messages.json_text import NOT_JSON, damaged, decode_json, shallow
from ..messages.typed_json import converter, decoder
from ..protocols import codec
from .recognition import attribute
from .source import RecordedEnd, Source, SourceTraits

__all__ = ["MARK_LENGTH", "is_marked", "read_recording", "recording_in", "replay"]

is_marked = re.compile(rb'\s*\{\s*"streamkit"\s*:\s*"recording"').match
MARK_LENGTH = 40  # bytes that the mark is found in
_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_CHUNK = 1 << 16
_VERSION = 1


def read_recording(path: str | PathLike[str]) -> Source:
    """Return a recording as a source; or a file with an SSE or NDJSON body, exactly as a server sent it.

    Raises:
        SourceError: the file cannot be read. Pulling raises it too, where the recording has a failure.
    """
    return _source(_at(Path(path)), None)


def replay(path: str | PathLike[str], *, speed: float = 1.0) -> Source:
    """Return a recording as a source that yields each item at its recorded time, `speed` times as fast.

    Raises:
        UsageError: the speed is not above 0.
    """
    if not speed > 0:
        raise UsageError(f"a replay's speed cannot be {speed!r}; 1 is the recorded speed, 2 is twice as fast")
    return _source(_at(Path(path)), speed)


def recording_in(file: Any) -> Source | None:
    """Return the recording in an open file, from its position on; None if it has none. It is read completely.

    The file must be seekable, of bytes or text. Closing the source closes it.
    """
    try:
        offset = file.tell()
    except OSError:  # a text file that is being iterated does not report its position
        rest = _as_bytes(file.read())
        file.seek(0)
        marked = is_marked(_as_bytes(file.read(MARK_LENGTH))) is not None
    else:
        if offset == 0 and isinstance(file, io.TextIOWrapper):
            file = attribute(file, "buffer")  # a recording is UTF-8, whatever encoding the text file has
            file.seek(0)
        marked = _has_mark(file, offset)
        file.seek(offset)
        if not marked:
            return None
        rest = _as_bytes(file.read())
    return _source(_content(lambda: io.BytesIO(rest), marked, len(rest)), None, close=file.close)


def _has_mark(file: Any, offset: int) -> bool:
    """Whether an open file is a recording, from this position or from its start."""
    for start in (offset, 0):
        file.seek(start)
        if is_marked(_as_bytes(file.read(MARK_LENGTH))):
            return True
    return False


def _as_bytes(read: str | bytes) -> bytes:
    return read.encode("utf-8", "surrogatepass") if isinstance(read, str) else bytes(read)


class _FirstLine(msgspec.Struct):
    version: int = 1


class _SourceLine(msgspec.Struct):
    source: int = 0
    fields: dict[str, str] | None = None
    reasoning_tag: str | None = None
    protocol: str | None = None
    live: bool = False
    answered: bool = False
    same_step: bool = False
    continues: bool = False
    nested: bool = False


class _ExecutesLine(msgspec.Struct):
    executes: str


_decode_first_line: Callable[[bytes], _FirstLine] = decoder(_FirstLine).decode
_decode_source_line: Callable[[bytes], _SourceLine] = decoder(_SourceLine).decode
_decode_executes_line: Callable[[bytes], _ExecutesLine] = decoder(_ExecutesLine).decode
_NO_SOURCE_LINE = _SourceLine()


class _RecordedContent(NamedTuple):
    """The content of a file, as it was when it was opened: what is appended later belongs to another run.

    Attributes:
        open: opens it for reading.
        is_recording: whether it is a recording; if not, it is the body of a response.
        offsets: where its parts begin, then where it ends, in bytes. A recording has a part for each recorded source.
        sources: the line that each part begins with.
        executed: the ids of the calls that an agent answered itself.
    """

    open: Callable[[], BinaryIO]
    is_recording: bool
    offsets: list[int]
    sources: list[_SourceLine]
    executed: frozenset[str]


def _at(path: Path) -> _RecordedContent:
    try:
        with path.open("rb") as file:
            marked = is_marked(file.read(MARK_LENGTH)) is not None
            return _content(lambda: path.open("rb"), marked, file.seek(0, SEEK_END))
    except OSError as error:
        raise SourceError(f"cannot read {path}: {error.strerror}") from error


def _content(opened: Callable[[], BinaryIO], marked: bool, size: int) -> _RecordedContent:
    starts: list[int] = []
    sources: list[_SourceLine] = []
    executed: set[str] = set()
    offset = 0
    with opened() as file:
        for line in file if marked else ():
            if offset >= size:
                break
            if offset == 0:
                _check_version(line)
            if line.startswith(b'{"source":') or not (starts or is_marked(line)):
                starts.append(offset)  # the first part may lack that line, if the file's position is in the middle
                sources.append(_decoded(line, _decode_source_line) or _NO_SOURCE_LINE)
            elif line.startswith(b'{"executes":') and (executes := _decoded(line, _decode_executes_line)) is not None:
                executed.add(executes.executes)
            offset += len(line)
    return _RecordedContent(opened, marked, [*(starts or [0]), size], sources or [_NO_SOURCE_LINE], frozenset(executed))


def _decoded(line: bytes, decode: Callable[[bytes], _Struct]) -> _Struct | None:
    """Return a line of this kind; None if it is damaged."""
    try:
        return decode(shallow(line))
    except NOT_JSON:
        return None


def _check_version(line: bytes) -> None:
    """Raise `SourceError` for a recording of another version, whose lines may mean something else."""
    try:
        version = _decode_first_line(shallow(line)).version
    except NOT_JSON:
        return  # the rest of the recording may be readable
    if version != _VERSION:
        raise SourceError(f"the recording is of version {version}, and this streamkit reads version {_VERSION}")


def _source(
    content: _RecordedContent,
    speed: float | None,
    *,
    part: int = 0,
    began: float | None = None,
    close: Callable[[], object] | None = None,
) -> Source:
    """Return a source for one part of the content; it opens the next part after it."""
    began = time.monotonic() if began is None else began
    more = len(content.offsets) > part + 2
    recorded_end = RecordedEnd()
    is_recording, size = content.is_recording, content.offsets[-1]
    batches = _items(content, part, speed, began, recorded_end) if is_recording else _chunks(content, size)
    line = content.sources[part]
    next_part: Callable[[], Any] | None = None
    if more:
        next_part = partial(_source, content, speed, part=part + 1, began=began, close=close)
    elif line.continues:
        next_part = _no_source  # it was for the producer to say whether the end of its last source was one

    def finish() -> None:
        batches.close()
        if close is not None:
            close()

    traits = SourceTraits(
        next_source=next_part,
        read_to_end=content.is_recording,
        fields=next((source.fields for source in content.sources if source.fields), None),
        reasoning_tag=next((source.reasoning_tag for source in content.sources if source.reasoning_tag), None),
        protocol=line.protocol if line.same_step else None,
        recorded_protocol=line.protocol,
        same_step=line.same_step,
        executed=content.executed,
        was_live=line.live,
        was_answered=line.answered,
        was_nested=line.nested,
        recorded_end=recorded_end,
    )
    return Source(batches, finish, traits)


def _no_source() -> None:
    """There is no further source."""


def _chunks(content: _RecordedContent, size: int) -> Generator[bytes, None, None]:
    with content.open() as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            size -= len(chunk)
            yield chunk


class _RecordedLine(msgspec.Struct):
    """A line of a recording. An item's data stays JSON text."""

    time: float = 0.0
    name: str = ""
    id: str = ""
    data: msgspec.Raw = msgspec.Raw()
    parsed: bool = False
    text: str | None = None
    event: dict[str, Any] | None = None
    late: bool = False
    promised: str | None = None
    reason: str = ""
    cut: str | None = None
    end: str = ""
    error: str | None = None
    between_steps: bool = False
    message: str = ""
    details: dict[str, Any] = {}


_decode: Callable[[bytes], _RecordedLine] = decoder(_RecordedLine).decode
_as_line = converter(_RecordedLine)


def _items(
    content: _RecordedContent, part: int, speed: float | None, began: float, recorded_end: RecordedEnd
) -> Generator[Any, None, None]:
    """Yield the batches of one part, one for each line. What came after the source's end goes into `recorded_end`."""
    start, end, *more = content.offsets[part:]
    source, has_end = content.sources[part], bool(more)
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
            if line.error is not None or line.end:
                has_end = has_end or bool(line.end)
                recorded_end.reason = line.reason
                if (failure := _failure(line, source, is_last=not more)) is not None:
                    if not (line.late or recorded_end.retries):
                        raise failure
                    recorded_end.failure, recorded_end.is_between_steps = failure, line.between_steps
                    return
            elif line.cut is not None:
                recorded_end.cut = _text_bytes(line.cut)
            elif line.event is not None:
                answer = _answer(line.event)
                retries = [event for event in answer if isinstance(event, StreamRetry)]
                if line.between_steps:
                    recorded_end.next_retries += retries
                elif line.late:
                    recorded_end.answers += answer
                    recorded_end.promised += [line.promised] if line.promised is not None else []
                elif retries:
                    recorded_end.retries += retries
                else:
                    yield answer
            elif line.text is not None or line.data:
                yield [_item(line)]
    if source.continues and not has_end:
        recorded_end.failure = IncompleteStreamError("the recording breaks off: it has no end of its stream")


def _line_of(text: bytes) -> _RecordedLine | None:
    """Return a line; None if it is damaged."""
    text = shallow(text)
    try:
        return _decode(text)
    except NOT_JSON:
        pass
    try:
        value = json.loads(text)  # a half of a surrogate pair is nothing that msgspec decodes
        data = msgspec.Raw(json.dumps(value.pop("data")).encode()) if "data" in value else msgspec.Raw()
        return msgspec.structs.replace(_as_line(value), data=data)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _item(line: _RecordedLine) -> Any:
    """Return the item of a line: as a frame, but where it was not bytes when it was recorded."""
    data = shallow(_text_bytes(line.text) if line.text is not None else bytes(line.data))
    if not line.parsed:
        return line.id.encode(), line.name.encode(), data
    try:
        return decode_json(data)
    except ValueError:
        return json.loads(data)  # it has half of a surrogate pair, NaN or an infinity


def _text_bytes(text: str) -> bytes:
    """Return the bytes of an item that is not JSON. Those that are not UTF-8 are escaped in it."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _answer(event: dict[str, Any]) -> list[Event]:
    try:
        return [codec.event_from_dict(event)]
    except ValueError:
        return []  # an event of another format


def _failure(line: _RecordedLine, source: _SourceLine, *, is_last: bool) -> BaseException | None:
    """Return what ended the recorded stream, where its items do not tell: its transport failed, an item was too long to
    be received, or it was stopped. Another run may have been recorded after one that was stopped."""
    allowed, status = line.details.get("allowed"), line.details.get("status_code")
    if line.error in ("SourceError", "SourceTimeoutError"):
        kind = SourceTimeoutError if line.error == "SourceTimeoutError" else SourceError
        error = kind(line.message)
        error.status_code = status if isinstance(status, int) else None
        error.body = line.details.get("body")
        return error
    if line.error == "LimitError" and line.details.get("code") == "limit-line" and isinstance(allowed, int):
        return LimitError("line", allowed)
    if line.error == "IncompleteStreamError" and source.continues:
        return IncompleteStreamError(line.message)  # it was for the producer to say, and not for the stream
    if line.error is not None and source.continues:
        return IncompleteStreamError(f"the recorded stream was ended by its application: {line.error}: {line.message}")
    return Stopped() if line.end == "cancelled" and is_last else None
