"""`streamkit convert`: writes a recording as the wire bytes of another protocol."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from .. import protocols
from ..core.engine import Engine
from ..errors import UsageError
from ..events import Event, StreamEnd, StreamException, StreamTimeout
from ..handlers import Handler
from ..messages import Message, TextMessage
from ..protocols.encoding_report import missing_in
from ..protocols.framing import sse_frame
from ..streams.api import stream as open_stream

__all__ = ["run"]

# Control characters that JSON text may hold unescaped.
_RAW_CONTROLS = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def run(
    path: Path,
    output: Path | None,
    *,
    source: str | None,
    target: str,
    framing: str | None,
    fields: Mapping[str, str] | None = None,
) -> None:
    """Convert a file, and say on stderr what the other protocol left out.

    Args:
        path: a recording, or a response body.
        output: the file to write; None is stdout.
        source: the protocol of the file, if it is not recognised.
        target: the protocol to write.
        framing: `sse` or `ndjson`; None is that of the protocol's own servers.
        fields: the arguments of tools that become messages, as for `stream`.

    Raises:
        StreamkitError: the stream failed; what came before that was written.
        OSError: a file cannot be read or written.
    """
    if output is not None and output.exists() and path.exists() and output.samefile(path):
        raise UsageError(f"{output} is the file to read; choose another one to write")
    writer = _Writer(target, framing=framing, path=output)
    with open_stream(path, writer, protocol=source, fields=fields) as stream:
        stream.until_done()
        if left_out := writer.left_out(stream.messages):
            print(f"streamkit: {target} left out: {left_out}", file=sys.stderr)


class _Writer(Handler):
    """Writes a stream as a protocol's wire bytes. If the stream fails before it begins, no file is created."""

    def __init__(self, protocol: str, *, framing: str | None, path: Path | None) -> None:
        module = protocols.find(protocol)
        self._encoder: protocols.Encoder = module.Encoder()
        self._wraps_event_name: bool = module.Decoder.wraps_event_name
        self._sse = framing == "sse" or (framing is None and not self._encoder.in_lines)
        self._path = path
        self._file: BinaryIO | None = None
        self._has_begun = False
        self._written = Engine()  # which reads again what was written
        self._decoder: protocols.Decoder = module.Decoder(self._written.messages.new_id)
        self._encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=str).encode

    def handle(self, event: Event, /) -> None:
        self._has_begun = self._has_begun or not isinstance(event, (StreamTimeout, StreamException, StreamEnd))
        if not self._has_begun:
            return
        items = list(self._encoder.items(event))
        self._read(self._decoder.feed_items(items))
        self._write(map(self._frame, items))
        if isinstance(event, StreamEnd):
            self._finish(event)

    def _read(self, events: Iterable[Event]) -> None:
        for _ in self._written.complete(events):
            pass

    def left_out(self, messages: Sequence[Message]) -> str:
        """The contents that the written messages do not have, as `reasoning (2), image (1)`; "" if they have all."""
        self._read(self._decoder.finish())
        with_content = [message for message in messages if message.content.strip()]
        missing = Counter(message.type for message in missing_in(self._written.messages.all, with_content))
        missing["annotation"] = _annotations(messages) - _annotations(self._written.messages.all)
        return ", ".join(f"{kind} ({number})" for kind, number in missing.items() if number > 0)

    def _finish(self, event: StreamEnd) -> None:
        if self._sse and self._encoder.done and event.status not in ("failed", "incomplete"):
            self._write([sse_frame(self._encoder.done)])
        if self._file is not None and self._path is not None:
            with self._naming_the_file():
                self._file.close()

    def _frame(self, item: dict[str, Any]) -> bytes:
        data = item["data"] if self._sse and self._wraps_event_name else item
        text = self._encode(data).decode("utf-8")
        # Escaped, because the output may be a terminal. It is the same JSON.
        wire = _RAW_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")
        return sse_frame(wire, self._encoder.event_name(item)) if self._sse else wire + b"\n"

    def _write(self, frames: Iterable[bytes]) -> None:
        content = b"".join(frames)
        if not content:
            return
        with self._naming_the_file():
            file = self._file
            if file is None:
                file = self._file = self._path.open("wb") if self._path is not None else sys.stdout.buffer
            file.write(content)
            file.flush()

    @contextlib.contextmanager
    def _naming_the_file(self) -> Generator[None, None, None]:
        """An `OSError` names the file, so that the report does."""
        try:
            yield
        except OSError as error:
            error.filename = None if self._path is None else str(self._path)
            raise


def _annotations(messages: Iterable[Message]) -> int:
    return sum(len(message.annotations) for message in messages if isinstance(message, TextMessage))
