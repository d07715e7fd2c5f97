"""The handler that writes a recording: the source's raw items with their times. `sources.recording` has the format."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from math import isfinite
from os import SEEK_END, PathLike
from pathlib import Path
from typing import Any, BinaryIO
from weakref import WeakSet

import msgspec

from .answers import Confirmation
from .core.split_text import whole_event
from .core.warning_list import ADVICE
from .errors import UsageError
from .events import (
    ConfirmationDone,
    Delta,
    Event,
    StreamEnd,
    StreamException,
    StreamRetry,
    StreamWarning,
    ToolCallDone,
    ToolOutputDone,
)
from .handlers import Call, Handler
from .messages import ToolCallMessage
from .messages.json_text import MAX_NESTING, decode_json, is_nested_too_deep, is_too_deep
from .protocols import codec, registry
from .protocols.framing import is_frame
from .protocols.values import is_list, is_object
from .sources.decoding import SourceDecoder
from .sources.recording import MARK_LENGTH, is_marked
from .streams.state import StreamState

__all__ = ["Recorder"]

_CHUNK = 1 << 16
_PRIVATE = 0o600  # only its owner reads it, as it holds a conversation; a file that exists keeps its permissions


def _as_json(value: Any) -> Any:
    """Return a value that JSON does not have, as one that it has."""
    return dict(value) if is_object(value) else str(value)


_encode = msgspec.json.Encoder(enc_hook=_as_json).encode


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
        self._decoder: SourceDecoder | None = None  # of the newest source
        self._begun: WeakSet[SourceDecoder] = WeakSet()  # of the sources whose line was written
        self._has_cut = False  # whether it was written where that source ended
        self._written: set[str] = set()  # the ids of tool outputs and decided confirmations that were among the items
        self._retries: list[StreamRetry] = []  # those that were among the items

    def bind(self, stream: StreamState) -> None:
        """Attach it to a stream.

        Raises:
            UsageError: the file cannot be written, or exists and is not a recording; or as `Handler.bind`.
        """
        self._require_init("_path", "path")
        super().bind(stream)
        self._decoder = None
        self._written.clear()
        self._retries.clear()
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
                    raise UsageError(f"{path} exists and is not a recording; it was not changed")
            writable = os.access(path if path.exists() else path.parent, os.W_OK)
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        if not writable:
            raise UsageError(f"{path} cannot be written: permission denied")

    def receive(self, items: Sequence[Any], /) -> None:
        """Write the source's raw items."""
        self._begin_source(items)
        self._written |= {item.message.id for item in items if isinstance(item, ToolOutputDone)}
        self._written |= {item.confirmation.id for item in items if isinstance(item, ConfirmationDone)}
        self._retries += [item for item in items if isinstance(item, StreamRetry)]
        now = self._now()
        self._write([_line(item, now) for item in items])

    def handle(self, event: Event, /) -> None:
        """Write what is not among the items: answers to tool calls, a failure, and the end."""
        match event:
            case StreamException(error=error, message=message, details=details):
                self._end_source()
                line = {"time": self._now(), "error": error, "message": message, "details": details}
                self._write([{**line, **self._place()}])
            case ToolCallDone(message=ToolCallMessage() as call) if self.stream.engine.pending.executes(call):
                self._write([{"executes": call.call_id or call.id}])
            case ToolOutputDone(raw_item=None) if event.message.id not in self._written:
                self._write_answer(event)
            case ConfirmationDone(confirmation=confirmation) if self._was_answered(confirmation):
                self._write_answer(event)
            case StreamRetry() if not self._is_item(event):
                if self._file is None and self.stream.source_decoder is None:  # no attempt could be opened so far
                    self._write([{"source": 1}])
                self._write_answer(event, **self._place())
            case StreamWarning(code=code) if code in ADVICE and not self.stream.engine.pending.is_canonical:
                self._write_answer(event)
            case StreamEnd(status=status):
                self._end_source()
                self._write([{"time": self._now(), "end": status, **self._how_it_ended()}])
                if self._file is not None:
                    self._file.close()
                    self._file = None
            case _:
                pass

    def _is_item(self, retry: StreamRetry) -> bool:
        """Whether a retry was among the items: one of a sub-agent, or of a stream that is read."""
        return retry.raw_item is not None or retry in self._retries

    def streamkit_plan(self) -> Mapping[type[Event], tuple[Call, ...]]:
        """As of any handler, but for deltas, of which `handle` writes nothing."""
        calls = super().streamkit_plan()
        if type(self).handle is not Recorder.handle:
            return calls
        return {kind: call for kind, call in calls.items() if not issubclass(kind, Delta)}

    def _begin_source(self, items: Sequence[Any] = ()) -> None:
        """Write the line of a source that began, and how it is read. `items` are its first."""
        stream, engine = self.stream, self.stream.engine
        source_decoder = stream.source_decoder
        if source_decoder is None or source_decoder is self._decoder:
            return
        self._write_cut()
        self._decoder, self._has_cut = source_decoder, False
        if source_decoder in self._begun:
            return  # a source that a hook read inside this one is over
        self._begun.add(source_decoder)
        traits, decoder = source_decoder.source.traits, source_decoder.decoder
        kind = type(decoder) if decoder is not None else None
        if kind is None and items and isinstance(items[0], Event):
            kind = registry.find("streamkit").Decoder
        flags = {
            "live": source_decoder.source.traits.may_ask,
            "answered": engine.pending.takes_edits or engine.pending.takes_approvals or engine.pending.has_outcomes,
            "same_step": traits.same_step,
            "nested": stream.is_nested,
            "continues": traits.next_source is not None,
        }
        line: dict[str, Any] = {"source": stream.source_number}
        if stream.fields:
            line["fields"] = dict(stream.fields)
        if stream.reasoning_tag is not None:
            line["reasoning_tag"] = stream.reasoning_tag
        if kind is not None and (name := registry.name_of(kind)):
            line["protocol"] = name
        self._write([{**line, **{name: True for name, is_set in flags.items() if is_set}}])

    def _end_source(self) -> None:
        """Write the newest source's line, if that had no items, and where it ended."""
        self._begin_source()
        self._write_cut()

    def _write_cut(self) -> None:
        """Write where the source ended, if that was in the middle of an item."""
        if self._decoder is not None and self._decoder.cut is not None and not self._has_cut:
            self._has_cut = True
            self._write([{"time": self._now(), "cut": _as_text(self._decoder.cut)}])

    @property
    def _is_over(self) -> bool:
        """Whether the newest source is at its end."""
        return self._decoder is not None and self._decoder.is_over

    def _how_it_ended(self) -> dict[str, Any]:
        """Return what the line of the stream's end says beside its status."""
        run = self.stream.current_run
        reason = run.finish_reason if run is not None else None
        ending: dict[str, Any] = {"reason": reason} if reason in ("declined", "max_steps") else {}
        return {**ending, "late": True} if self._is_over else ending

    def _was_answered(self, confirmation: Confirmation) -> bool:
        """Whether a confirmation was decided by an answer, or that may be: the items then do not tell the outcome."""
        engine = self.stream.engine
        if confirmation.id in self._written or engine.is_ending:
            return False
        if confirmation.answer_slot is not None or engine.pending.has_outcomes or engine.pending.pull_approved:
            return True
        return confirmation.answered and not engine.pending.is_canonical

    def _place(self) -> dict[str, Any]:
        """Return what a line says of a failure that came after the newest source's end: whether the step was over too."""
        if not self._is_over:
            return {}
        steps = self.stream.engine.runs.steps
        is_between = bool(steps) and steps[-1].status == "completed"
        return {"late": True, "between_steps": True} if is_between else {"late": True}

    def _write_answer(self, event: Event, **more: Any) -> None:
        """Write an answer, and whether it came after the source's end."""
        self._end_source()
        line: dict[str, Any] = {"time": self._now(), "event": codec.event_to_dict(event), **more}
        if self._is_over:
            line["late"] = True
            if isinstance(event, ToolOutputDone) and not self.stream.engine.runs.requires_action:
                line["promised"] = event.message.call_id
        self._write([line])

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
    """Return a line as JSON. An item that JSON cannot hold is written as text, so that it does not end the stream."""
    if type(line.get("data")) is msgspec.Raw:  # which was JSON when it came
        return _encode(line)
    if is_nested_too_deep(line):
        line = _to_depth(line, MAX_NESTING)
    try:
        text = _encode(line)
        if b"null" not in text or not _has_infinity(line):
            return text
    except UnicodeEncodeError:
        pass
    except (TypeError, ValueError):
        return _encode({"time": line.get("time", 0.0), "text": ascii(line.get("data"))[:_CHUNK]})
    return json.dumps(line, default=_as_json).encode()  # it has half of a surrogate pair, NaN or an infinity


def _to_depth(value: Any, levels: int, outer: tuple[int, ...] = ()) -> Any:
    """Return a value without what is nested deeper than so many levels in it, or contains itself. No decoder reads
    that."""
    if not levels or id(value) in outer:
        return None if is_object(value) or is_list(value) else value
    outer = (*outer, id(value))
    if is_object(value):
        return {key: _to_depth(one, levels - 1, outer) for key, one in value.items()}
    return [_to_depth(one, levels - 1, outer) for one in value] if is_list(value) else value


def _has_infinity(value: Any) -> bool:
    """Whether there is a number in a value that is not finite: for JSON it is null."""
    if isinstance(value, float):
        return not isfinite(value)
    inside = value.values() if is_object(value) else value if is_list(value) else ()
    return any(map(_has_infinity, inside))


def _ends_its_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, SEEK_END)
        return file.read(1) == b"\n"


def _line(item: Any, now: float) -> dict[str, Any]:
    """Return the line for an item."""
    if isinstance(item, Event):
        event = item if isinstance(item, Delta) else whole_event(item)
        return {"time": now, "data": codec.event_to_dict(event, keep_surrogates=True), "parsed": True}
    if not is_frame(item):
        return {"time": now, "data": item, "parsed": True}
    id, name, data = item
    line: dict[str, Any] = {"time": now}
    for key, value in (("name", name), ("id", id)):
        if value:
            line[key] = value.decode("utf-8", "replace")
    try:
        value = decode_json(data)
    except (ValueError, RecursionError):
        line["text"] = _as_text(data)
        return line
    if len(data) > MAX_NESTING and is_too_deep(b"[" + data + b"]"):
        line["text"] = _as_text(data)  # as JSON it would be too deep in this line
    else:
        line["data"] = value if b"\n" in data else msgspec.Raw(data)
    return line


def _as_text(data: bytes) -> str:
    """Bytes as text that the same bytes can be read from again."""
    return data.decode("utf-8", "surrogateescape")
