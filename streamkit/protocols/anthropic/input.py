"""Messages on their way back: the `messages=` of a Messages request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...errors import UsageError
from ...messages import Message
from .output import block_of
from .wire import CODE

__all__ = ["to_input"]

_MEDIA = {"png": "image/png", "jpeg": "image/jpeg", "jpg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


def to_input(messages: Iterable[Message | Confirmation]) -> list[dict[str, Any]]:
    """Flat messages as `messages=` of a request: turns, of the user and the assistant, each a list of content blocks.

    What this API told goes back as it came, so that a paused answer goes on and signatures hold: texts with their
    citations, signed and redacted thinking, calls, server tools with what they gave, compactions. Messages of one step
    of a run (without steps: of one `group`) are one turn, also where an output came before the next call; all outputs
    of its calls are in one turn of the user's, first in it. Console output and images of a call are its output, unless
    a tool output is. Other code is a fenced block of the assistant's, other console output one of the user's. A user's
    images (`url`, `file_id`, `base64.…`) and files (`file_id`) become blocks beside the text.

    System messages keep their role, which is for those amid a conversation: give a leading one as `system=` instead.

    Left out by design: reasoning that is not signed; calls that another provider ran, with their outputs; calls that
    were not completed; explanations of refusals; empty texts, which the API refuses; confirmations; images, audio and
    files of the assistant's and the computer's making, as far as they belong to no call of ours; messages of a type of
    another provider's; choices but the first.

    Raises:
        UsageError: the API cannot take what a user gave: an image or a file that is a path on this machine, audio, a
            message of an unknown type.
    """
    known = [message for message in messages if isinstance(message, Message)]  # there may be confirmations
    return _Turns([message for message in known if message.choice == 0]).wire()


class _Turns:
    """The turns of a conversation, as they are made."""

    def __init__(self, given: list[Message]) -> None:
        self._given = given
        calls = [message for message in given if isinstance(message, m.ToolCallMessage)]
        ours = {call.call_id or call.id for call in calls if call.status == "completed" and not call.provider_executed}
        self._calls = ours
        self._elsewhere = {call.call_id or call.id for call in calls} - ours
        self._answered = {message.call_id for message in given if isinstance(message, m.ToolOutputMessage)}
        self._turns: list[dict[str, Any]] = []
        self._results: dict[str | None, dict[str, Any]] = {}  # those that the newest turn begins with, by call id
        self._assistant: tuple[Any, dict[str, Any]] | None = None  # the newest one: of which step, and the turn

    def wire(self) -> list[dict[str, Any]]:
        for message in self._given:
            self._add(message)
        return self._turns

    def _add(self, message: Message) -> None:
        match message:
            case m.ConsoleMessage() | m.ImageMessage() if message.call_id in self._calls:
                if message.call_id not in self._answered and (part := _part(message)) is not None:
                    self._answer(message, part)
            case m.CodeMessage() if message.call_id in self._calls:
                pass  # it is in the call
            case m.ToolOutputMessage() if "block_type" not in message.metadata:
                if message.call_id not in self._elsewhere:
                    self._answer(message, {"type": "text", "text": message.content})
            case m.ToolCallMessage() if message.status != "completed" and not message.provider_executed:
                pass
            case m.RefusalMessage():
                if "stop_details" not in message.metadata:
                    self._say(message, {"type": "text", "text": message.content})
            case m.TextMessage() if message.role in ("user", "system", "developer"):
                if message.content.strip():
                    role = "user" if message.role == "user" else "system"
                    self._turn(role)["content"].append({"type": "text", "text": message.content})
            case m.TextMessage() if message.role != "assistant":
                pass
            case m.CodeMessage() if message.name not in CODE:
                fenced = f"```{message.format or ''}\n{message.content}\n```"
                self._say(message, {"type": "text", "text": fenced})
            case m.ConsoleMessage() if "block_type" not in message.metadata:
                fenced = f"```output\n{message.content}\n```"
                self._turn("user")["content"].append({"type": "text", "text": fenced})
            case _ if (block := block_of(message)) is not None:
                self._say(message, block)
            case _ if message.role == "user" and not isinstance(message, m.ReasoningMessage | m.ToolCallMessage):
                self._turn("user")["content"].append(_given(message))
            case _:
                pass

    def _turn(self, role: str) -> dict[str, Any]:
        """The turn that is being written, if it is of this role, else a new one."""
        if not self._turns or self._turns[-1]["role"] != role:
            self._turns.append({"role": role, "content": []})
            self._results = {}
        return self._turns[-1]

    def _say(self, message: Message, block: dict[str, Any]) -> None:
        """A block of the assistant's, in the turn of its step."""
        if block["type"] == "text" and not block["text"].strip():
            return
        step = (message.run_id, message.step_id) if message.step_id else message.group
        last = self._assistant
        if last is not None and step is not None and last[0] == step and self._only_answers_follow():
            turn = last[1]
        else:
            turn = self._turn("assistant")
        self._assistant = (step, turn)
        turn["content"].append(block)

    def _only_answers_follow(self) -> bool:
        """Whether nothing was said since the assistant's newest turn but the outputs of its calls."""
        if len(self._turns) < 2 or self._assistant is None or self._turns[-2] is not self._assistant[1]:
            return False
        return len(self._turns[-1]["content"]) == len(self._results)

    def _answer(self, message: Message, part: dict[str, Any]) -> None:
        """The output of a call of ours, which may come in several messages. Outputs come first in their turn."""
        blocks = self._turn("user")["content"]
        result = self._results.get(message.call_id, {})
        if not result:
            result |= {"type": "tool_result", "tool_use_id": message.call_id or ""}
            if message.metadata.get("error") is True or message.status == "failed":
                result["is_error"] = True
            blocks.insert(len(self._results), result)
            self._results[message.call_id] = result
        if part["type"] != "text" or part["text"]:
            result.setdefault("content", []).append(part)


def _given(message: Message) -> dict[str, Any]:
    """What a user gave, which is never dropped."""
    part = _part(message)
    if part is None:
        what = f"the user's {message.type} {message.id!r}" + (
            f", of format {message.format!r}" if message.format else ""
        )
        raise UsageError(f"the Messages API cannot take {what}; it takes text, and images and files by id or data")
    return part


def _part(message: Message) -> dict[str, Any] | None:
    """What a user gave, or a tool showed, as a block; None if there is none for it."""
    format, content = message.format or "", message.content
    media = _MEDIA.get(format.removeprefix("base64."))
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
