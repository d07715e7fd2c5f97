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


class CodeBlock(CallBlock, kw_only=True):
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
    def of_tool(cls, name: str, id: str, fields: dict[str, Any], metadata: dict[str, Any], input: Any) -> CodeBlock:
        """The block of a call of this tool, one of `CODE_TOOLS`."""
        language, key = CODE_TOOLS[name]
        fields = {**fields, "format": language}
        return cls("server_tool_use", id, fields, m.CodeMessage, metadata, input, key=key, reader=JsonFields(key))

    def fast_way(self) -> FastWay | None:
        """How the fast path reads its deltas."""
        return None, self.id, self.deltas, "", ""

    def deltas(self, piece: str, raw_item: Any = None) -> list[Event]:
        """The event of the code in a piece of its JSON, if there is any."""
        self.json += piece.encode(errors="surrogatepass")
        code = self._code_in(piece)
        return [CodeDelta(self.id, code, raw_item=raw_item)] if code else []

    def grow(self, delta: WireObject, events: list[Event]) -> None:
        """A piece of its JSON comes."""
        if piece := as_text(self.text_in(delta)):
            events += self.deltas(piece)

    def _code_in(self, piece: str) -> str:
        """The code in a piece of the JSON. A second field with the same key counts only at the block's end."""
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
        """It is done, with what else its input has, and with code that came with its start and was never streamed."""
        self._content = self.content
        input = as_object(parse_json(self.json) if self.json else self.input)
        content = text_or_none(input.get(self.key))
        if more := {key: input[key] for key in input if key != self.key or content is None}:
            self.metadata["input"] = more
        events.append(MessageDone(self.message(status, content)))
        self.json = bytearray()
