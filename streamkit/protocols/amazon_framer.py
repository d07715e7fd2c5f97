"""Amazon's binary event stream (`application/vnd.amazon.eventstream`).

A message is: its length and that of its headers (4 bytes each, big-endian), a CRC32 of these; the headers; the payload; a CRC32 of
all that. Source: https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import msgspec

from ..messages.json_text import LONG, wrong_checksum
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
    in it. A message with a wrong checksum is marked, so that it is skipped with a warning; so is the rest of the body, where the
    length of a message is not certain."""

    _is_lost = False

    def feed(self, chunk: bytes) -> Frames:
        """The frames of the messages that this chunk completes."""
        self._check_failure()
        if self._is_lost:
            return []
        if self._wanted > self._size + len(chunk):
            self._hold(chunk)
            return []
        text = b"".join((*self._pending, chunk))
        self._pending.clear()
        values: list[bytes] = []
        end = 0
        for start, end in self._messages(text):
            values.append(_json_of(text[start:end]))
        if rest := text[end:]:
            self._pending.append(rest)
        self._size = len(rest)
        if self._is_lost:
            values.append(wrong_checksum(b""))
            self._pending.clear()
        frames: Frames = values if self._heeded_names is not None else [(b"", b"", value) for value in values]
        return frames if max(map(len, values), default=LONG) < LONG else self._checked(frames)

    _wanted = 0  # the bytes with which the unfinished message may be complete

    def _messages(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield where each complete message begins and ends."""
        start = 0
        while len(text) - start >= _PRELUDE:
            length = int.from_bytes(text[start : start + 4])
            if crc32(text[start : start + 8]) != int.from_bytes(text[start + 8 : start + 12]) or length < _LEAST:
                self._is_lost = True
                return
            if length > self._longest:
                self._fail_too_long()
                return
            self._wanted = length
            if len(text) - start < length:
                return
            yield start, start + length
            start += length
        self._wanted = 0


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
    """Return a message as JSON."""
    if crc32(message[:-4]) != int.from_bytes(message[-4:]):
        return wrong_checksum(message)
    end = _PRELUDE + int.from_bytes(message[4:8])
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
    """Return the headers that are text. What cannot be read ends them."""
    headers: dict[str, str] = {}
    at = 0
    while at < len(data):
        name_end = at + 1 + data[at]
        name, kind = data[at + 1 : name_end], data[name_end : name_end + 1]
        at = name_end + 1
        if kind and kind[0] in _WITH_LENGTH:
            end = at + 2 + int.from_bytes(data[at : at + 2])
            headers[name.decode("utf-8", "replace")] = data[at + 2 : end].decode("utf-8", "replace")
            at = end
        elif kind and kind[0] in _SIZES:
            at += _SIZES[kind[0]]
        else:
            break
    return headers
