"""Chunks of Open Interpreter 0.1, with one key each: `{"message": "…"}`, `{"code": "…"}`, `{"output": "…"}` ….

They are converted to today's chunks and decoded as those; a stream may also contain today's own. No item of this form is
recognised: a user who has such a stream names this protocol. Encoding and input use today's form.

Terminal rule: the source's end. These streams do not always mark the end of a message, so none counts as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...events import Event
from ..values import text_or_none
from . import decoder as open_interpreter
from .encoder import Encoder
from .input import to_input
from .questions import question_in_chunk

__all__ = ["Decoder", "Encoder", "to_input"]

_MESSAGE = {"role": "assistant", "type": "message"}
_CODE = {"role": "assistant", "type": "code"}
_CONSOLE = {"role": "computer", "type": "console"}
_STARTS = {"start_of_message": _MESSAGE, "start_of_code": _CODE, "start_of_execution": _CONSOLE}
_ENDS = {"end_of_message": _MESSAGE, "end_of_code": _CODE, "end_of_execution": _CONSOLE}
_PIECES = ("message", "language", "code", "executing", "output", "active_line")


class Decoder(open_interpreter.Decoder):
    """Chunks with one key each. Those that begin and end a message may be missing."""

    name = "open_interpreter_legacy"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._converter = _ChunkConverter()

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        """Never: such keys are too common."""
        return False

    def feed(self, item: Mapping[str, Any]) -> list[Event]:
        """Return the events of one item. A question in any other form than this one's is read as today's decoder reads
        it."""
        is_own_question = "executing" in item and text_or_none(item.get("type")) is None
        has_own_key = any(key in item for key in (*_STARTS, *_PIECES, *_ENDS))
        if not has_own_key or (not is_own_question and question_in_chunk(item)):
            return super().feed(item)
        return self._feed_chunks(self._converter.convert(item))

    def finish(self) -> list[Event]:
        """Close what is open."""
        return [*self._feed_chunks(self._converter.end()), *super().finish()]

    def _feed_chunks(self, chunks: Iterable[dict[str, Any]]) -> list[Event]:
        return [event for chunk in chunks for event in super(Decoder, self).feed(chunk)]


class _ChunkConverter:
    """Converts chunks of 0.1 to today's. It remembers what they do not repeat: what is open, and the code's language."""

    def __init__(self) -> None:
        self.header: dict[str, str] | None = None  # the keys of the open message
        self.language: str | None = None

    def convert(self, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the same as chunks of today."""
        for key, header in _STARTS.items():
            if item.get(key):
                yield from self.start(header)
        if "message" in item:
            yield from self.piece(_MESSAGE, item["message"])
        if "language" in item:
            yield from self.code_language(item["language"])
        if "code" in item:
            yield from self.piece(_CODE, item["code"], self.language)
        if "executing" in item:
            yield from self.end()
            yield {"role": "computer", "type": "confirmation", "format": "execution", "content": item["executing"]}
        if "output" in item:
            yield from self.piece(_CONSOLE, item["output"], "output")
        if "active_line" in item:
            yield from self.piece(_CONSOLE, item["active_line"], "active_line")
        for key, header in _ENDS.items():
            if item.get(key) and self.header is header:
                yield from self.end()

    def start(self, header: dict[str, str]) -> Iterator[dict[str, Any]]:
        """End what is open, and start a message with these keys."""
        yield from self.end()
        self.header = header
        yield {**header, "start": True}

    def code_language(self, language: Any) -> Iterator[dict[str, Any]]:
        """Remember the language. It starts a code message, unless one is open already."""
        if self.header is not _CODE:
            yield from self.start(_CODE)
        self.language = text_or_none(language)

    def piece(self, header: dict[str, str], content: Any, format: str | None = None) -> Iterator[dict[str, Any]]:
        """Content of the open message if that has these keys, else of a new one."""
        if self.header is not header:
            yield from self.start(header)
        yield {**header, **({"format": format} if format else {}), "content": content}

    def end(self) -> Iterator[dict[str, Any]]:
        """End what is open."""
        if self.header is not None:
            yield {**self.header, "end": True}
            self.header = None
