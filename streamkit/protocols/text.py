"""Plain text: pieces of `str`, or a body of bytes in UTF-8. It becomes one message of the assistant.

An item is `{"text": "…"}`, so that a recording has the pieces. Terminal rule: the end of the source. It is only read: text has no
messages, calls or ends that could be written in it, so there is no encoder and no `to_input`.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator

import msgspec

from ..events import Event, MessageEnded, Run, RunDone, TextDelta
from ..limits import Limits
from . import base
from .framing import Frame, Framer, Frames
from .values import WireObject

__all__ = ["Decoder"]


class _TextFramer(Framer):
    """Each chunk is a frame with the characters that it completes. What is not UTF-8 is U+FFFD. A byte order mark is dropped."""

    def __init__(self, longest: int = Limits().line) -> None:
        super().__init__(longest)
        self._text = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def feed(self, chunk: bytes) -> Frames:
        """The frame of the characters that this chunk completes."""
        return [*self._frames(self._text.decode(chunk))]

    def finish(self) -> list[Frame]:
        """The frame of a character that was cut."""
        return [*self._frames(self._text.decode(b"", final=True))]

    def _frames(self, text: str) -> Iterator[Frame]:
        if text:
            yield b"", b"", msgspec.json.encode({"text": text})


class Decoder(base.Decoder):
    """Decodes pieces of text. Empty ones are skipped."""

    name = "text"
    framer = _TextFramer

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._id = ""

    @classmethod
    def recognises(cls, item: WireObject) -> bool:
        """Return False: text has no items of its own."""
        return False

    def feed(self, item: WireObject) -> Iterator[Event]:
        """Yield the delta of a piece."""
        text = item.get("text")
        if not isinstance(text, str):
            yield self.warn("bad-text", "it has no text and was skipped")
        elif text:
            self._id = self._id or self.new_id()
            yield TextDelta(self._id, text)

    def finish(self) -> Iterator[Event]:
        """Yield the end of the message."""
        self.complete = True
        if self._id:
            yield MessageEnded(self._id)
            yield RunDone(run=Run(status="completed"))
