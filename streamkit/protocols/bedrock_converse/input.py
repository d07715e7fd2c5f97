"""Messages as input: the `messages=` of a Converse request."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any

from ...answers import Confirmation
from ...core.unique_ids import UniqueIds
from ...messages import ImageMessage, Message, ReasoningMessage, TextMessage, ToolCallMessage
from ..request_content import LeftOut, Report, cannot_take, report_nothing
from ..turns import Turn, call_id_of, turns_of
from .blocks import block_of, result_content
from .wire import KEY

__all__ = ["to_input"]

_NOT_IN_IDS = re.compile("[^a-zA-Z0-9_-]")
_is_id = re.compile("[a-zA-Z0-9_-]{1,64}").fullmatch


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the `messages=` of a request, in which user and assistant alternate.

    What came from this API goes back as it came: signed and redacted reasoning, cited texts, the calls of its own tools with
    their results, images. The results of a turn's calls stand in one message, before what the user wrote; one that failed has the
    status `error`. A user's images in base64 become blocks beside the text. Blobs are bytes, as Amazon's client wants them. In the
    ids of calls, characters that the API refuses become `_`.

    There are no system messages among them: those amid a conversation become texts of the user. Pass a leading one as `system`.

    Left out by design, which `report` is called with: reasoning that is not signed by this API, an answer of reasoning alone, and
    what `turns` states.

    Raises:
        UsageError: the API cannot take what a user sent: an image that is not base64, audio, a file, a message of an unknown type.
    """
    conversation = [*messages]
    request = _Request(report, {one.call_id for one in conversation if isinstance(one, Message) and _has_failed(one)})
    for turn in turns_of(conversation, report, own=KEY):
        request.add(turn)
    return request.messages


class _Request:
    """The messages of a request, as they are written.

    Args:
        report: called with what is left out.
        failed: the ids of the calls that have failed.
    """

    def __init__(self, report: Report, failed: Container[str | None]) -> None:
        self._failed = failed
        self.messages: list[dict[str, Any]] = []
        self._report = report
        self._sent_ids = UniqueIds(separator="_")
        self._changed_ids: dict[str, str] = {}

    def add(self, turn: Turn) -> None:
        """Add a turn: to the message before it, if that is of the same role."""
        match turn.role:
            case "assistant":
                blocks, role = [block for part in turn.parts if (block := self._block(part)) is not None], "assistant"
            case "tool":
                blocks, role = [self._result(call, text) for call, text in turn.results], "user"
            case _:
                blocks, role = [block for part in turn.parts if (block := _user_block(part)) is not None], "user"
        if not blocks or all("reasoningContent" in block for block in blocks):
            return
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        self.messages[-1]["content"] += blocks

    def _block(self, part: Message) -> dict[str, Any] | None:
        is_ours = isinstance(part, ToolCallMessage) and not part.provider_executed
        block = block_of(part, self._sent_id(call_id_of(part)) if isinstance(part, ToolCallMessage) and is_ours else "")
        if block is None and isinstance(part, ReasoningMessage):
            self._report(LeftOut(part, "it is not signed by this API"))
        return block

    def _result(self, call: ToolCallMessage, text: str) -> dict[str, Any]:
        result = {"toolUseId": self._sent_id(call_id_of(call)), "content": result_content(text)}
        return {"toolResult": {**result, "status": "error" if call_id_of(call) in self._failed else "success"}}

    def _sent_id(self, id: str) -> str:
        """Return the id of a call in the characters that the API takes."""
        if _is_id(id):
            return id
        if id not in self._changed_ids:
            self._changed_ids[id] = self._sent_ids.unused(_NOT_IN_IDS.sub("_", id)[:60] or "call")
        return self._changed_ids[id]


def _has_failed(message: Message) -> bool:
    return message.metadata.get("error") is True or message.status == "failed"


def _user_block(part: Message) -> dict[str, Any] | None:
    """Return the block of what a user, or the system, gave. An empty text has none."""
    if isinstance(part, TextMessage):
        return {"text": part.content} if part.content.strip() else None
    if isinstance(part, ImageMessage) and (block := block_of(part)) is not None:
        return block
    raise cannot_take("Converse", part, "it takes images in base64")
