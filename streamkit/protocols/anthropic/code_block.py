"""The block of a call of a server tool that runs code: its input is JSON, with the code in one of its fields.

Its message is the code alone, which is extracted from the pieces of JSON as they come.
"""

from __future__ import annotations

from typing import Any

from ... import messages as m
from ...core.json_fields import JsonFields
from ...events import CodeDelta, Event, MessageDone
from ..values import WireObject, as_object, as_text, parse_json, text_or_none
from .blocks import PlainWay, ToolCallBlock
from .wire import CODE_TOOLS

__all__ = ["ServerCodeBlock"]


class ServerCodeBlock(ToolCallBlock, kw_only=True):
    """A block of code.

    Attributes:
        key: the key of the code in its input.
        reader: extracts the code from the pieces of the JSON.
        is_complete: whether all of the code was extracted.
    """

    key: str
    reader: JsonFields
    is_complete: bool = False

    @classmethod
    def of_tool(
        cls, name: str, id: str, fields: dict[str, Any], metadata: dict[str, Any], input: Any
    ) -> ServerCodeBlock:
        """Return the block of a call of this tool, one of `CODE_TOOLS`."""
        language, key = CODE_TOOLS[name]
        fields = {**fields, "format": language}
        return cls("server_tool_use", id, fields, m.CodeMessage, metadata, input, key=key, reader=JsonFields(key))

    def plain_way(self) -> PlainWay | None:
        """Return None: it has no plain deltas, because a piece of JSON need not have code."""
        return None

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A piece of its JSON comes: the event of the code in it, if there is any."""
        if piece := as_text(self.text_in(delta)):
            self.json += piece.encode(errors="surrogatepass")
            if code := self._code_in(piece):
                events.append(CodeDelta(self.id, code))

    def _code_in(self, piece: str) -> str:
        """Return the code in a piece of the JSON. A second field with the same key counts only at the block's end."""
        if self.is_complete:
            return ""
        code = ""
        for found in self.reader.feed(piece):
            code += found.text
            if found.done:
                self.is_complete = True
                break
        return code

    def end(self, status: m.Status, events: list[Event]) -> None:
        """End the block, with the rest of its input, and with code that came with its start and was never streamed."""
        self._content = self.content
        input = as_object(parse_json(self.json) if self.json else self.input)
        content = text_or_none(input.get(self.key))
        if more := {key: input[key] for key in input if key != self.key or content is None}:
            self.metadata["input"] = more
        events.append(MessageDone(self.message(status, content)))
        self.json = bytearray()
