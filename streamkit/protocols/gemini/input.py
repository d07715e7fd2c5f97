"""Messages as input: the `contents` of a request to Gemini."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ... import messages as m
from ...answers import Confirmation
from ...messages import Message
from ..request_content import LeftOut, Report, cannot_take, fenced_block, report_nothing
from ..values import as_object, without_keys
from .parts import parts_of
from .wire import response_of

__all__ = ["to_input"]

_UNSIGNED = "skip_thought_signature_validator"
"""What the API documents in place of the signature of a call that Gemini did not make."""


def to_input(messages: Iterable[Message | Confirmation], *, report: Report = report_nothing) -> list[dict[str, Any]]:
    """Flat messages as the `contents` of a request: turns of the user and of the model, each a list of parts.

    What came from Gemini goes back as it came: parts with their signatures, each on its own part and in its place; signed
    thoughts; code and what it printed; the calls of Gemini's own tools with their responses; generated images. The messages of
    one step of a run (without steps: of one `group`) are one turn, even if an output came before the next call. The outputs
    of its calls follow in one turn of their own, in the order of the calls. Only ids that Gemini gave go back. Of calls that it did
    not make the first of a turn gets the signature that the API documents for those. Console output and images of a call are
    its output, unless there is a tool output. Other code is a fenced block of the model's, other console output one of the user's. A
    user's images (`url`, `file_id`, `base64.…`), audio and files (`file_id`) become parts beside the text.

    There are no system messages in the contents: those amid a conversation become texts of the user. Pass a leading one as
    `system_instruction`.

    Left out by design, which `report` is called with: thoughts without a signature, and reasoning of other providers; calls
    that another provider ran, with their outputs; calls that were not completed; refusals by Gemini, and empty texts;
    confirmations; images, audio and files that another model or the computer made; messages of a type of another
    provider's; choices other than the first.

    Raises:
        UsageError: the API cannot take what a user sent: an image or a file that is a path on this machine, a message of an
            unknown type.
    """
    first_choice: list[Message] = []
    for message in messages:
        if not isinstance(message, Message):
            report(LeftOut(message, "the API has no place for answers to confirmations"))
        elif message.choice:
            report(LeftOut(message, "it is of another choice"))
        else:
            first_choice.append(message)
    return _Contents(first_choice, report).wire()


class _Contents:
    """The contents of a request, as they are written."""

    def __init__(self, messages: Sequence[Message], report: Report) -> None:
        self._messages = messages
        self._report = report
        calls = [message for message in messages if isinstance(message, m.ToolCallMessage)]
        self._calls = {_key(call) for call in calls if call.status == "completed" and not call.provider_executed}
        self._with_output = {message.call_id for message in messages if isinstance(message, m.ToolOutputMessage)}
        self._contents: list[dict[str, Any]] = []
        self._step: Any = None  # of the model's newest turn
        self._open: list[m.ToolCallMessage] = []  # the calls of that turn
        self._outputs: dict[str | None, list[Message]] = {}  # of these calls

    def wire(self) -> list[dict[str, Any]]:
        """Return the contents of all messages."""
        for message in self._messages:
            self._add(message)
        self._end_turn()
        return self._contents

    def _add(self, message: Message) -> None:
        if message.role == "assistant" or message.metadata.get("gemini") is not None:
            self._add_of_model(message)
        elif message.call_id is not None and message.call_id in map(_key, self._open):
            if isinstance(message, m.ToolOutputMessage) or message.call_id not in self._with_output:
                self._outputs.setdefault(message.call_id, []).append(message)
        elif isinstance(message, m.ToolOutputMessage):
            self._leave_out(message, "its call does not go back")
        elif isinstance(message, m.ConsoleMessage):
            self._add_to_user({"text": fenced_block(message.content, "output")})
        elif isinstance(message, m.TextMessage) and message.role in ("user", "system", "developer"):
            if message.content:
                self._add_to_user({"text": message.content})
        elif message.role == "user" and not isinstance(message, m.ReasoningMessage | m.ToolCallMessage):
            self._add_to_user(_user_part(message))
        else:
            self._leave_out(message, "the API has no place for it")

    def _leave_out(self, message: Message, reason: str) -> None:
        self._report(LeftOut(message, reason))

    # -- the model's turns

    def _add_of_model(self, message: Message) -> None:
        match message:
            case m.RefusalMessage() if "gemini" in message.metadata:
                self._leave_out(message, "it explains why a prompt was blocked")
            case m.RefusalMessage():
                self._add_parts(message, [{"text": message.content}])
            case m.ToolCallMessage() if message.status != "completed":
                self._leave_out(message, "the call is not complete")
            case m.CodeMessage() if "gemini" not in message.metadata:
                if message.call_id not in self._calls:  # else the arguments of the call have it
                    self._add_parts(message, [{"text": fenced_block(message.content, message.format)}])
            case m.ReasoningMessage():
                parts = parts_of(message)
                self._add_parts(message, parts, "the API needs no thoughts but signed ones of its own")
            case _:
                self._add_parts(message, parts_of(message), "the API has no place for it")

    def _add_parts(self, message: Message, parts: list[dict[str, Any]] | None, why_not: str = "") -> None:
        """Add parts to the turn of their step."""
        sent = [part for part in parts or () if part.get("text") != "" or without_keys(part, "text", "thought")]
        if not sent:
            if parts is None:
                self._leave_out(message, why_not)
            return
        step = (message.run_id, message.step_id) if message.step_id else message.group
        if self._outputs and (step is None or step != self._step):
            self._end_turn()
        if not self._contents or self._contents[-1]["role"] != "model":
            self._contents.append({"role": "model", "parts": []})
        self._step = step
        if isinstance(message, m.ToolCallMessage) and not message.provider_executed:
            if not self._open and "gemini" not in message.metadata:
                sent = [{**sent[0], "thoughtSignature": _UNSIGNED}]
            self._open.append(message)
        self._contents[-1]["parts"] += sent

    def _end_turn(self) -> None:
        """The model's turn is over: the outputs of its calls follow, in one turn, in the order of the calls."""
        responses = [_response(call, found) for call in self._open if (found := self._outputs.pop(_key(call), None))]
        self._open, self._outputs = [], {}
        if responses:
            self._contents.append({"role": "user", "parts": responses})

    def _add_to_user(self, part: dict[str, Any]) -> None:
        self._end_turn()
        last = self._contents[-1] if self._contents else {}
        if last.get("role") != "user" or "functionResponse" in last["parts"][0]:
            self._contents.append({"role": "user", "parts": []})
        self._contents[-1]["parts"].append(part)


def _key(call: m.ToolCallMessage) -> str:
    return call.call_id or call.id


def _response(call: m.ToolCallMessage, outputs: Sequence[Message]) -> dict[str, Any]:
    """Return the outputs of a call, which may come in several messages, as the response of its function."""
    text = "".join(output.content for output in outputs if output.type in ("tool_output", "console"))
    failed = any(output.metadata.get("error") is True or output.status == "failed" for output in outputs)
    id = as_object(as_object(call.metadata.get("gemini")).get("functionCall")).get("id")
    identity = {"id": id, "name": call.name or ""} if id else {"name": call.name or ""}
    return {"functionResponse": {**identity, "response": response_of(text, failed=failed)}}


def _user_part(message: Message) -> dict[str, Any]:
    """Return the part of a user's message, which is never left out."""
    format, content = message.format or "", message.content
    match message.type:
        case "image" if format.startswith("base64."):
            media_type = f"image/{format.removeprefix('base64.').replace('jpg', 'jpeg')}"
            return {"inlineData": {"mimeType": media_type, "data": content}}
        case "audio" if format:
            return {"inlineData": {"mimeType": f"audio/{format}", "data": content}}
        case "image" | "file" if format in ("", "url", "file_id"):
            return {"fileData": {"fileUri": content}}
        case _:
            raise cannot_take(
                "the Gemini API", message, "it takes text, images and audio by data, and files by their URI"
            )
