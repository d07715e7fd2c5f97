"""Amazon's binary event stream (`application/vnd.amazon.eventstream`).

A message is: its length and that of its headers (4 bytes each, big-endian), a CRC32 of these; the headers; the payload; a CRC32 of
all that. Source: https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html
"""

from __future__ import annotations

from zlib import crc32

import msgspec

from ..errors import SourceError
from ..messages.json_text import LONG
from ..messages.typed_json import decoder
from .framer import Framer
from .frames import Frames

__all__ = ["AmazonFramer", "amazon_message"]

_PRELUDE, _LEAST = 12, 16
# The bytes of a header's value, by its type; 6 and 7 begin with their length.
_SIZES = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_WITH_LENGTH = (6, 7)


class _Chunk(msgspec.Struct):
    """The payload of InvokeModelWithResponseStream: an object of the model's own stream, in base64."""

    data: bytes = msgspec.field(name="bytes")


_chunk_of = decoder(_Chunk).decode


class AmazonFramer(Framer):
    """Messages as JSON: `{"contentBlockDelta": {…}}`, an event's name and its payload, as Amazon's client gives them. An exception is
    one with the name of its type; an error is `{"error": {"code": …, "message": …}}`. Of a `chunk` it is the model's object
    in it.

    A damaged message ends the body with a `SourceError`, after the frames of those before it: an answer without one of its pieces
    would look complete.
    """

    _wanted = 0  # the bytes with which the unfinished message may be complete
    _count = 0  # the messages that are complete
    _place = 0  # where in the body the present one begins

    def feed(self, chunk: bytes) -> Frames:
        """The frames of the messages that this chunk completes. Raises also `SourceError`, as it does `LimitError`."""
        self._check_failure()
        if self._wanted > self._size + len(chunk):
            self._hold(chunk)
            return []
        text = b"".join((*self._pending, chunk))
        self._pending.clear()
        values: list[bytes] = []
        start = 0
        try:
            while end := self._end_of(text, start):
                values.append(_json_of(text[start:end]))
                self._place += end - start
                self._count, start = self._count + 1, end
        except _Damage as damage:
            self._fail_damaged(damage)
        rest = text[start:] if self._failure is None else b""
        if rest:
            self._pending.append(rest)
        self._size = len(rest)
        frames: Frames = values if self._heeded_names is not None else [(b"", b"", value) for value in values]
        return frames if max(map(len, values), default=LONG) < LONG else self._checked(frames)

    def _end_of(self, text: bytes, start: int) -> int:
        """Return where the message that begins here ends, 0 if it is not complete."""
        self._wanted = 0
        if len(text) - start < _PRELUDE:
            return 0
        length = int.from_bytes(text[start : start + 4])
        if crc32(text[start : start + 8]) != int.from_bytes(text[start + 8 : start + 12]):
            raise _Damage("the checksum of its lengths is wrong")
        if length < _LEAST:
            raise _Damage(f"it has a length of {length} bytes, and none is shorter than {_LEAST}")
        if length > self._longest:
            self._fail_too_long()
            return 0
        self._wanted = length
        return start + length if len(text) - start >= length else 0

    def _fail_damaged(self, damage: _Damage) -> None:
        where = f"message {self._count + 1} of the body, which begins at byte {self._place}"
        whose = "the server wrote it so, or it was changed on its way"
        self._fail(SourceError(f"{where}, is damaged: {damage}; {whose}"))


class _Damage(Exception):
    """What is wrong with a message."""


def amazon_message(name: str, payload: bytes) -> bytes:
    """Return an event as a message, or an exception, if the name is that of one. The counterpart of the framer."""
    kind = "exception" if name.endswith("Exception") else "event"
    texts = {f":{kind}-type": name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(_text_header(key.encode(), value.encode()) for key, value in texts.items())
    prelude = (len(headers) + len(payload) + _LEAST).to_bytes(4) + len(headers).to_bytes(4)
    message = prelude + crc32(prelude).to_bytes(4) + headers + payload
    return message + crc32(message).to_bytes(4)


def _text_header(name: bytes, value: bytes) -> bytes:
    return bytes((len(name),)) + name + b"\x07" + len(value).to_bytes(2) + value


def _json_of(message: bytes) -> bytes:
    """Return a message as JSON.

    Raises:
        _Damage: its checksum is wrong, or its headers are no headers.
    """
    if crc32(message[:-4]) != int.from_bytes(message[-4:]):
        raise _Damage("its checksum is wrong")
    end = _PRELUDE + int.from_bytes(message[4:8])
    if end > len(message) - 4:
        raise _Damage("its headers are longer than itself")
    headers, payload = _headers(message[_PRELUDE:end]), message[end:-4] or b"{}"
    match headers.get(":message-type"):
        case "error":
            error = {"code": headers.get(":error-code", ""), "message": headers.get(":error-message", "")}
            return msgspec.json.encode({"error": error})
        case "exception":
            name = headers.get(":exception-type", "exception")
        case _:
            name = headers.get(":event-type", "event")
    if name == "chunk":
        try:
            data: bytes = _chunk_of(payload).data
            return data
        except (msgspec.MsgspecError, ValueError):
            pass  # not one of a model
    return b"{%b:%b}" % (msgspec.json.encode(name), payload)


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers that are text."""
    headers: dict[str, str] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name, kind = data[at + 1 : name_end], int.from_bytes(data[name_end : name_end + 1])
        at = name_end + 1
        if kind in _WITH_LENGTH:
            end = at + 2 + int.from_bytes(data[at : at + 2])
            headers[name.decode("utf-8", "replace")] = data[at + 2 : end].decode("utf-8", "replace")
            at = end
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise _Damage(f"a header has the type {kind}, which there is not")
    if at != len(data):
        raise _Damage("a header is longer than all of them")
    return headers
