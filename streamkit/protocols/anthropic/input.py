"""Messages as input: the `messages=` of a Messages request."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...core.unique_ids import UniqueIds
from ...messages import Message
from ..request_content import LeftOut, Report, cannot_take, fenced_block, is_of_executed_call, report_nothing
from .block_writer import block_of
from .wire import CODE_TOOLS

__all__ = ["to_input"]

_NOT_IN_IDS = re.compile("[^a-zA-Z0-9_-]")
_IS_ID = re.compile("[a-zA-Z0-9_-]+").fullmatch
_MEDIA_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the `messages=` of a request: turns of the user and the assistant, each a list of content blocks.

    What came from this API goes back unchanged, so that a paused answer can continue and signatures are valid: texts with
    their citations, signed and redacted thinking, calls, server tools with their results, compactions. The messages of one
    step of a run (without steps: of one `group`) are one turn, even if an output came before the next call. The outputs of
    all its calls are in one user's turn, at its beginning. Console output and images of a call are its output, unless
    there is a tool output. Other code is a fenced block of the assistant's, other console output one of the user's. A user's
    images (`url`, `file_id`, `base64.…`) and files (`file_id`) become blocks beside the text. In the ids of calls, characters
    that the API refuses become `_`, and one that is empty becomes `call`.

    System messages keep their role, which is for those amid a conversation: pass a leading one as `system=` instead.

    Left out by design, which `report` is called with: reasoning that is not signed; calls that another provider ran, with their outputs; calls that
    were not completed; explanations of refusals; empty texts, which the API refuses; confirmations; images, audio and
    files that the assistant or the computer made, unless they belong to a call for us; messages with a type of another
    provider's; choices other than the first.

    Raises:
        UsageError: the API cannot take what a user sent: an image or a file that is a path on this machine, audio, a
            message of an unknown type.
    """
    first_choice: list[Message] = []
    for message in messages:
        if not isinstance(message, Message):
            report(LeftOut(message, "the API has no place for answers to confirmations"))
        elif message.choice:
            report(LeftOut(message, "it is of another choice"))
        else:
            first_choice.append(message)
    return _RequestTurns(first_choice, report).wire()


class _RequestTurns:
    """The turns of a conversation, as they are written."""

    def __init__(self, messages: list[Message], report: Report) -> None:
        self._messages = messages
        self._report = report
        calls = [message for message in messages if isinstance(message, m.ToolCallMessage)]
        # The ids of the calls that the request has and we answer, and of all others.
        self._calls = {
            call.call_id or call.id for call in calls if call.status == "completed" and not call.provider_executed
        }
        self._other_calls = {call.call_id or call.id for call in calls} - self._calls
        self._sent_ids = UniqueIds(separator="_")
        for id in self._calls:
            if _IS_ID(id):
                self._sent_ids.unused(id)
        self._changed_ids: dict[str, str] = {}  # of calls, as they are sent
        self._with_output = {message.call_id for message in messages if isinstance(message, m.ToolOutputMessage)}
        self._turns: list[dict[str, Any]] = []
        self._results: dict[str | None, dict[str, Any]] = {}  # at the beginning of the newest turn, by call id
        self._assistant: tuple[Any, dict[str, Any]] | None = None  # the step and the turn of the newest answer

    def wire(self) -> list[dict[str, Any]]:
        """Return the turns of all messages."""
        for message in self._messages:
            self._add(message)
        return self._turns

    def _add(self, message: Message) -> None:
        match message:
            case m.ConsoleMessage() | m.ImageMessage() if message.call_id in self._calls:
                if message.call_id not in self._with_output and (part := _part(message)) is not None:
                    self._add_output(message, part)
            case m.CodeMessage() if message.call_id in self._calls:
                pass  # the call's arguments have it
            case m.ToolOutputMessage() if "block_type" not in message.metadata:
                if message.call_id in self._other_calls or is_of_executed_call(message):
                    self._leave_out(message, "its call does not go back")
                else:
                    self._add_output(message, {"type": "text", "text": message.content})
            case m.ToolCallMessage() if message.status != "completed" and not message.provider_executed:
                self._leave_out(message, "the call is not complete")
            case m.RefusalMessage():
                if "stop_details" in message.metadata:
                    self._leave_out(message, "it explains a refusal")
                else:
                    self._add_to_answer(message, {"type": "text", "text": message.content})
            case m.TextMessage() if message.role in ("user", "system", "developer"):
                if message.content.strip():
                    role = "user" if message.role == "user" else "system"
                    self._turn(role)["content"].append({"type": "text", "text": message.content})
            case m.TextMessage() if message.role != "assistant":
                self._leave_out(message, "the API has no place for it")
            case m.CodeMessage() if message.name not in CODE_TOOLS:
                fenced = fenced_block(message.content, message.format)
                self._add_to_answer(message, {"type": "text", "text": fenced})
            case m.ConsoleMessage() if "block_type" not in message.metadata:
                fenced = fenced_block(message.content, "output")
                self._turn("user")["content"].append({"type": "text", "text": fenced})
            case _ if (block := block_of(message)) is not None:
                self._add_to_answer(message, block)
            case _ if message.role == "user" and not isinstance(message, m.ReasoningMessage | m.ToolCallMessage):
                self._turn("user")["content"].append(_user_part(message))
            case m.ReasoningMessage():
                self._leave_out(message, "it is not signed by this API")
            case m.ToolCallMessage():
                self._leave_out(message, "another provider ran this call")
            case _:
                self._leave_out(message, "the API has no place for it")

    def _leave_out(self, message: Message, reason: str) -> None:
        self._report(LeftOut(message, reason))

    def _sent_id(self, id: str) -> str:
        """Return the id of a call in the characters that the API takes, as no other call has it."""
        if _IS_ID(id):
            return id
        if id not in self._changed_ids:
            self._changed_ids[id] = self._sent_ids.unused(_NOT_IN_IDS.sub("_", id) or "call")
        return self._changed_ids[id]

    def _turn(self, role: str) -> dict[str, Any]:
        """Return the newest turn if it is of this role, else a new one."""
        if not self._turns or self._turns[-1]["role"] != role:
            self._turns.append({"role": role, "content": []})
            self._results = {}
        return self._turns[-1]

    def _add_to_answer(self, message: Message, block: dict[str, Any]) -> None:
        """Add a block of the assistant's to the turn of its step."""
        if block["type"] == "text" and not block["text"].strip():
            return
        step = (message.run_id, message.step_id) if message.step_id else message.group
        if block["type"] == "tool_use":
            block["id"] = self._sent_id(block["id"])
        last = self._assistant
        if last is not None and step is not None and last[0] == step and self._only_outputs_follow():
            turn = last[1]
        else:
            turn = self._turn("assistant")
        self._assistant = (step, turn)
        turn["content"].append(block)

    def _only_outputs_follow(self) -> bool:
        """Whether only the outputs of its calls follow the assistant's newest turn."""
        if len(self._turns) < 2 or self._assistant is None or self._turns[-2] is not self._assistant[1]:
            return False
        return len(self._turns[-1]["content"]) == len(self._results)

    def _add_output(self, message: Message, part: dict[str, Any]) -> None:
        """Add an output of a call, which may come in several messages, to the outputs at the beginning of its turn."""
        blocks = self._turn("user")["content"]
        result = self._results.get(message.call_id, {})
        if not result:
            result |= {"type": "tool_result", "tool_use_id": self._sent_id(message.call_id or "")}
            if message.metadata.get("error") is True or message.status == "failed":
                result["is_error"] = True
            blocks.insert(len(self._results), result)
            self._results[message.call_id] = result
        if part["type"] != "text" or part["text"]:
            result.setdefault("content", []).append(part)


def _user_part(message: Message) -> dict[str, Any]:
    """Return the block of a user's message, which is never left out."""
    part = _part(message)
    if part is None:
        raise cannot_take("the Messages API", message, "it takes text, and images and files by id or data")
    return part


def _part(message: Message) -> dict[str, Any] | None:
    """Return the block of a user's message or of a tool's output, None if there is no such block."""
    format, content = message.format or "", message.content
    media = _MEDIA_TYPES.get(format.removeprefix("base64."))
    match message.type:
        case "console":
            return {"type": "text", "text": content}
        case "image" if format in ("", "url"):
            return {"type": "image", "source": {"type": "url", "url": content}}
        case "image" if format == "file_id":
            return {"type": "image", "source": {"type": "file", "file_id": content}}
        case "image" if format.startswith("base64.") and media is not None:
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": content}}
        case "file" if format in ("", "file_id"):
            return {"type": "document", "source": {"type": "file", "file_id": content}}
        case _:
            return None
