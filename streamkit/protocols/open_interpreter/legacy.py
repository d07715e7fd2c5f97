"""Chunks of Open Interpreter 0.1: one key each, `{"message": "…"}`, `{"code": "…"}`, `{"output": "…"}` ….

They are turned into today's chunks, and read as those; today's own are read too. Nothing recognises them: whoever has
such a stream names this protocol. What is written, and taken as input, is today's form.

Terminal rule: the source's end. These streams do not always tell where a message ends, so none counts as cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...events import Event
from . import decoder as open_interpreter
from .chunks import question_in, word
from .encoder import Encoder
from .input import to_input

__all__ = ["Decoder", "Encoder", "to_input"]

_MESSAGE = {"role": "assistant", "type": "message"}
_CODE = {"role": "assistant", "type": "code"}
_CONSOLE = {"role": "computer", "type": "console"}
_STARTS = {"start_of_message": _MESSAGE, "start_of_code": _CODE, "start_of_execution": _CONSOLE}
_ENDS = {"end_of_message": _MESSAGE, "end_of_code": _CODE, "end_of_execution": _CONSOLE}
_PIECES = ("message", "language", "code", "executing", "output", "active_line")


class Decoder(open_interpreter.Decoder):
    """One-key chunks. Those that begin and end a message may be missing."""

    name = "open_interpreter_legacy"

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        super().__init__(new_id)
        self._adapter = _Adapter()

    @classmethod
    def recognises(cls, item: Mapping[str, Any]) -> bool:
        return False

    def feed(self, item: Mapping[str, Any]) -> list[Event]:
        ours = "executing" in item and word(item, "type") is None
        if not any(key in item for key in (*_STARTS, *_PIECES, *_ENDS)) or (not ours and question_in(item)):
            return super().feed(item)  # among them what asks in another way than this form does
        return [event for chunk in self._adapter.today(item) for event in super(Decoder, self).feed(chunk)]

    def finish(self) -> list[Event]:
        ends = [event for chunk in self._adapter.end() for event in super(Decoder, self).feed(chunk)]
        return [*ends, *super().finish()]


class _Adapter:
    """Remembers what is open and the language of the code, which one-key chunks do not repeat."""

    def __init__(self) -> None:
        self.header: dict[str, str] | None = None
        self.language: str | None = None

    def today(self, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks that say the same today."""
        for key, header in _STARTS.items():
            if item.get(key):
                yield from self.start(header)
        if "message" in item:
            yield from self.piece(_MESSAGE, item["message"])
        if "language" in item:
            yield from self.code(item["language"])
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
        yield from self.end()
        self.header = header
        yield {**header, "start": True}

    def code(self, language: Any) -> Iterator[dict[str, Any]]:
        """A language begins code, unless code has begun already."""
        if self.header is not _CODE:
            yield from self.start(_CODE)
        self.language = language if isinstance(language, str) and language else None

    def piece(self, header: dict[str, str], content: Any, format: str | None = None) -> Iterator[dict[str, Any]]:
        if self.header is not header:
            yield from self.start(header)
        yield {**header, **({"format": format} if format else {}), "content": content}

    def end(self) -> Iterator[dict[str, Any]]:
        if self.header is not None:
            yield {**self.header, "end": True}
            self.header = None
