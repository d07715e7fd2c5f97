"""Messages as AG-UI's own: the `messages` of a MESSAGES_SNAPSHOT, or of a `RunAgentInput`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...core.unique_ids import UniqueIds
from ...messages import Message
from ..request_content import LeftOut, Report, report_nothing
from ..ui_files import file_url
from ..ui_parts import CODE_TOOL, shown_messages
from ..values import json_text, without_keys
from .parents import Parents

__all__ = ["to_input"]

Item = dict[str, Any]


def to_input(messages: Iterable[Message | Confirmation], report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the messages that a client has when it read them as a stream, without what only shows activity.

    Calls are in the message of the text before them; a result follows its call. The user's messages of one `group` are one
    message, of text and parts. Code is a call of `execute_code`, and what it printed its result.

    Args:
        messages: the conversation. Confirmations have no place here, but calls of sub-agents that they are about have.
        report: called with what is left out.
    """
    history = _History(report)
    for message in shown_messages(messages):
        if "field" in message.metadata and not isinstance(message, m.TextMessage):
            continue  # it was read out of the arguments of a call, which is there; as `Encoder.items` has it
        history.add(message)
    history.add_printed()
    return history.items


class _History:
    def __init__(self, report: Report) -> None:
        self.items: list[Item] = []
        self._report = report
        self._parents = Parents()
        self._owners: dict[str, Item] = {}  # the messages that have calls, by toolCallId
        self._unique = UniqueIds(self._owners)
        self._ids: dict[str, str] = {}  # the newest toolCallId of each call id
        self._code = ""  # the newest call that stands for code
        self._printed: dict[str, list[str]] = {}  # what calls without a result printed; code always has a result
        self._answered: set[str] = set()
        self._step: str | None = None

    def add(self, message: Message) -> None:
        """Add what a message is here."""
        if message.step_id != self._step:
            self._parents.other()
            self._step = message.step_id
        role, id, content = message.role, message.id, message.content
        if role == "user":
            self._add_user(message)
        elif isinstance(message, m.TextMessage | m.RefusalMessage) and role in ("assistant", "system"):
            self._parents.text(id, role)
            self.items.append({"id": id, "role": role, "content": content})
        elif isinstance(message, m.ReasoningMessage):
            self._parents.other()
            self.items.append({"id": id, "role": "reasoning", "content": content})
        elif isinstance(message, m.ToolCallMessage):
            self._add_call(message, message.name or "tool", content)
        elif isinstance(message, m.CodeMessage) and role == "assistant":
            arguments = without_keys({"language": message.format, "code": content})
            self._code = self._add_call(message, CODE_TOOL, json_text(arguments))
            self._printed[self._code] = []
        elif isinstance(message, m.ToolOutputMessage):
            self._parents.other()
            self._add_result(
                message.id, self._ids.get(message.call_id or message.id, message.call_id or message.id), content
            )
        elif isinstance(message, m.ConsoleMessage):
            self._parents.other()
            id = self._code if message.call_id is None else self._ids.get(message.call_id, "")
            self._printed.setdefault(id, []).append(content)
        else:
            self._parents.other()
            self._report(LeftOut(message, "AG-UI has no message for it"))

    def _add_user(self, message: Message) -> None:
        is_file = isinstance(message, m.ImageMessage | m.AudioMessage | m.FileMessage)
        found = file_url(message) if is_file else None
        if isinstance(message, m.TextMessage):
            part: Item = {"type": "text", "text": message.content}
        elif found is not None:
            part = _media_part(*found)
        else:
            self._report(LeftOut(message, "AG-UI has no part for it"))
            return
        self._parents.other()
        id = message.group or message.id
        if self.items and self.items[-1]["role"] == "user" and self.items[-1]["id"] == id:
            content = self.items[-1]["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            self.items[-1]["content"] = [*parts, part]
        else:
            content = part["text"] if part["type"] == "text" else [part]
            self.items.append({"id": id, "role": "user", "content": content})

    def _add_call(self, message: Message, name: str, arguments: str) -> str:
        """Add a call to the message of the text or the call before it. Returns its id."""
        call_id = message.call_id or message.id
        id = self._unique.free(call_id)
        self._ids[call_id] = id
        parent = self._parents.call(id)
        found = [item for item in self.items[-1:] if parent and item["id"] == parent]
        owner: Item = found[0] if found else {"id": id, "role": "assistant"}
        if not found:
            self.items.append(owner)
        call: Item = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
        calls: list[Item] = owner.get("toolCalls") or []
        calls.append(call)
        owner["toolCalls"] = calls
        self._owners[id] = owner
        return id

    def _add_result(self, id: str, call_id: str, content: str) -> None:
        """A result, after the message with its call."""
        self._answered.add(call_id)
        index = len(self.items)
        if call_id in self._owners:
            while self.items[index - 1] is not self._owners[call_id]:
                index -= 1
            while index < len(self.items) and self.items[index]["role"] == "tool":
                index += 1
        self.items.insert(index, {"id": id, "role": "tool", "toolCallId": call_id, "content": content})

    def add_printed(self) -> None:
        """Add what calls printed that have no other result."""
        for call_id, printed in self._printed.items():
            if call_id and call_id not in self._answered:
                self._add_result(f"{call_id}.result", call_id, "".join(printed))


def _media_part(url: str, media_type: str) -> Item:
    kind = media_type.partition("/")[0]
    head, _, data = url.partition(";base64,")
    source: Item = {"type": "url", "value": url, "mimeType": media_type}
    if head.startswith("data:") and data:
        source = {"type": "data", "value": data, "mimeType": media_type}
    return {"type": kind if kind in ("image", "audio", "video") else "document", "source": source}
