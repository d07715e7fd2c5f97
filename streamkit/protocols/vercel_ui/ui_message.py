"""A UI message as the `ai` package builds it from the chunks of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..values import WireObject, as_text, without_keys
from .wire import Version

__all__ = ["UiMessage"]

Part = dict[str, Any]

_STATES = {
    "tool-input-available": "input-available",
    "tool-input-error": "output-error",
    "tool-output-available": "output-available",
    "tool-output-error": "output-error",
    "tool-output-denied": "output-denied",
    "tool-approval-request": "approval-requested",
    "tool-approval-response": "approval-responded",
}
_VALUES = (
    "tool-input-start",
    "tool-input-available",
    "tool-input-error",
    "tool-output-available",
    "tool-output-error",
)


class UiMessage:
    """One message of the assistant, as far as its chunks have come.

    Args:
        id: its id.
        version: the major version of the package.

    Attributes:
        id: its id.
        parts: its parts, in the order of their beginning.
    """

    def __init__(self, id: str, version: Version = 6) -> None:
        self.id = id
        self._version = version
        self.parts: list[Part] = []
        self._texts: dict[tuple[str, str], Part] = {}
        self._tools: dict[str, Part] = {}
        self._approvals: dict[str, Part] = {}
        self._data: dict[tuple[str, str], Part] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON."""
        return {"id": self.id, "role": "assistant", "parts": self.parts}

    def add(self, chunks: Iterable[WireObject]) -> None:
        """Add what these chunks say."""
        for chunk in chunks:
            kind = as_text(chunk["type"])
            stem, _, phase = kind.partition("-")
            if kind == "start-step":
                self.parts.append({"type": "step-start"})
            elif stem == "data":
                self._add_data(kind, chunk)
            elif stem == "tool":
                self._add_tool(kind, chunk)
            elif stem in ("text", "reasoning"):
                self._add_text(stem, phase, chunk)
            elif stem == "file" and self._version == 5:
                self.parts.append(without_keys(chunk, "providerMetadata"))
            elif stem in ("file", "source"):
                self.parts.append(dict(chunk))

    def _add_text(self, stem: str, phase: str, chunk: WireObject) -> None:
        key = (stem, as_text(chunk["id"]))
        if phase == "start":
            part: Part = {"type": stem, "text": "", "state": "streaming"}
            self._texts[key] = part
            self.parts.append(part)
        part = self._texts[key]
        part["text"] += as_text(chunk.get("delta"))
        part |= without_keys({"providerMetadata": chunk.get("providerMetadata")})
        if phase == "end":
            part["state"] = "done"

    def _add_data(self, kind: str, chunk: WireObject) -> None:
        key = (kind, as_text(chunk.get("id")))
        if chunk.get("transient"):
            return
        if key[1] and key in self._data:
            self._data[key]["data"] = chunk["data"]
        else:
            self._data[key] = {**chunk}
            self.parts.append(self._data[key])

    def _add_tool(self, kind: str, chunk: WireObject) -> None:
        if kind == "tool-approval-response":
            part = self._approvals[as_text(chunk["approvalId"])]
            part["approval"] |= {"approved": chunk["approved"], **without_keys({"reason": chunk.get("reason")})}
        else:
            part = self._tool(chunk)
        part["state"] = _STATES.get(kind, part["state"])
        part |= without_keys({"providerExecuted": chunk.get("providerExecuted")})
        if kind == "tool-approval-request":
            part["approval"] = {"id": chunk["approvalId"]}
            self._approvals[as_text(chunk["approvalId"])] = part
        elif kind in _VALUES:
            self._set_values(kind, part, chunk)

    def _tool(self, chunk: WireObject) -> Part:
        """Return the part of a tool, which may begin here."""
        id = as_text(chunk.get("toolCallId"))
        if id not in self._tools:
            name = as_text(chunk.get("toolName"))
            type = {"type": "dynamic-tool", "toolName": name} if chunk.get("dynamic") else {"type": f"tool-{name}"}
            self._tools[id] = {**type, "toolCallId": id, "state": "input-streaming"}
            self.parts.append(self._tools[id])
        return self._tools[id]

    def _set_values(self, kind: str, part: Part, chunk: WireObject) -> None:
        """The input, the output and the metadata. What a version has under another name, or not at all, follows it."""
        is_input, is_static = kind.startswith("tool-input"), part["type"] != "dynamic-tool"
        is_raw = kind == "tool-input-error" and is_static and self._version < 7
        values = {"output": chunk.get("output"), "errorText": chunk.get("errorText")}
        if is_input:
            values["rawInput" if is_raw else "input"] = chunk.get("input")
        else:
            values["input"] = part.get("input")
            values["rawInput"] = part.get("rawInput") if kind == "tool-output-error" and is_static else None
        for key in ("input", "output", "errorText", "rawInput"):
            part.pop(key, None)
        part |= without_keys(values)
        metadata = chunk.get("providerMetadata")
        if kind in ("tool-input-start", "tool-input-available"):
            part |= without_keys({"callProviderMetadata": metadata})
        elif self._version > 5:
            part |= without_keys({"resultProviderMetadata": metadata})
