"""The block of a call of a server tool that runs code: its input is JSON, with the code in one of its fields.

Its message is the code alone, which is extracted from the pieces of JSON as they come.
"""

from __future__ import annotations

from typing import Any

from ... import messages as m
from ...core.json_fields import JsonFields
from ...events import CodeDelta, Event, MessageDone
from ..values import WireObject, as_object, as_text, parse_json, text_or_none
from .blocks import CallBlock, FastWay
from .wire import CODE_TOOLS

__all__ = ["CodeBlock"]


class CodeBlock(CallBlock):
    """A block of code. `name` is the tool's, a key of `CODE_TOOLS`."""

    __slots__ = ("_is_complete", "_key", "_reader")

    def __init__(
        self, type: str, id: str, fields: dict[str, Any], metadata: dict[str, Any], input: Any, name: str
    ) -> None:
        language, self._key = CODE_TOOLS[name]
        super().__init__(type, id, {**fields, "format": language}, m.CodeMessage, metadata, input)
        self._reader = JsonFields(self._key)
        self._is_complete = False

    def fast_way(self) -> FastWay | None:
        """How the fast path reads its deltas."""
        return None, self.id, self.deltas, "", ""

    def deltas(self, piece: str) -> list[Event]:
        """The event of the code in a piece of its JSON, if there is any."""
        self._json += piece.encode(errors="surrogatepass")
        code = self._code_in(piece)
        return [CodeDelta(self.id, code)] if code else []

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A piece of its JSON comes."""
        if piece := as_text(self.text_in(delta)):
            events += self.deltas(piece)

    def _code_in(self, piece: str) -> str:
        """The code in a piece of the JSON. A second field with the same key counts only at the block's end."""
        if self._is_complete:
            return ""
        code = ""
        for found in self._reader.feed(piece):
            code += found.text
            if found.done:
                self._is_complete = True
                break
        return code

    def end(self, status: m.Status, events: list[Event]) -> None:
        """It is done, with what else its input has, and with code that came with its start and was never streamed."""
        input = as_object(parse_json(self._json) if self._json else self._input)
        content = text_or_none(input.get(self._key))
        if more := {key: input[key] for key in input if key != self._key or content is None}:
            self.metadata["input"] = more
        events.append(MessageDone(self._message(status, content)))
