"""Reads what `useChat` posts: the messages of a chat, and the user's answers in the newest of the assistant's.

The body comes from a browser, so every value in it may be forged. Earlier messages are what the client says that was said;
a server that keeps the conversation takes `new_messages` and `answers` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ... import messages as m
from ...messages import Message, output_text
from ..request_body import Fields, read_body
from ..ui_answers import Approval, ToolResult, UiAnswer
from ..ui_files import file_fields
from ..ui_parts import DENIED, EXTRA_KEY, message_fields
from ..values import WireObject, as_object, as_text, is_object, json_text, without_keys
from .wire import KEY, extra_of

__all__ = ["ChatRequest", "from_request"]

_ROLES = ("user", "assistant", "system")
_STATES = (
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
)


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of `useChat` of `ai` 5, 6 or 7.

    Attributes:
        id: the chat's id, which the client chose.
        trigger: `submit-message`, or `regenerate-message`: answer again what came before `message_id`.
        message_id: the id of the UI message to answer again, or to replace; None if there is none.
        messages: all messages of the body, as flat messages; `group` is the id of their UI message.
        new_messages: those of the last UI message, if the user sent it; empty if the request brings answers only.
        answers: the answers in the last UI message, if it is the assistant's: approvals, and the outputs of tools which no
            provider executed. Among the outputs may be those of our own tools: take those for which something is pending.
        body: what else the application put into the body.
    """

    id: str
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    messages: list[Any] = []
    new_messages: list[Any] = []
    answers: list[UiAnswer] = []
    body: dict[str, Any] = {}


def from_request(body: bytes | bytearray | str | WireObject) -> ChatRequest:
    """Return the request in the body of a POST of `useChat`.

    Args:
        body: the body, as it came or parsed.

    Raises:
        RequestError: it is not JSON, or not such a request; the text says where and why. An approval is a JSON boolean.
    """
    fields = read_body(body)
    id = fields.text("id", empty=False)
    trigger = fields.one_of("trigger", ("submit-message", "regenerate-message")) if fields.wire.get("trigger") else ""
    read = [_read_message(message) for message in fields.objects("messages")]
    if "messages" not in fields.wire:
        raise fields.fail("messages", "is missing")
    last = read[-1] if read else None
    return ChatRequest(
        id=id,
        trigger="regenerate-message" if trigger == "regenerate-message" else "submit-message",
        message_id=fields.optional_text("messageId"),
        messages=[message for one in read for message in one.messages],
        new_messages=list(last.messages) if last is not None and last.role == "user" else [],
        answers=list(last.answers) if last is not None and last.role == "assistant" else [],
        body=fields.rest("id", "trigger", "messageId", "messages"),
    )


class _Read(msgspec.Struct):
    role: str
    messages: list[Any]
    answers: list[UiAnswer]


def _read_message(fields: Fields) -> _Read:
    """Return the flat messages of one UI message, and the answers in its last step."""
    id, role = fields.text("id"), fields.one_of("role", _ROLES)
    if "parts" not in fields.wire:
        raise fields.fail("parts", "is missing; messages of `ai` 4 and before, with `content`, are not read")
    read = _Read(role, [], [])
    reader = _Parts(id, role)
    for part in fields.objects("parts"):
        if part.text("type") == "step-start":
            read.answers.clear()
        for found in reader.read(part):
            if isinstance(found, Message):
                read.messages.append(found)
            else:
                read.answers.append(found)
    return read


class _Parts:
    """Reads the parts of one UI message."""

    def __init__(self, id: str, role: str) -> None:
        self._id = id
        self._role = role
        self._count = 0
        self._text: m.TextMessage | None = None

    def _next_id(self) -> str:
        self._count += 1
        return self._id if self._count == 1 else f"{self._id}.{self._count}"

    def read(self, part: Fields) -> Iterator[Message | UiAnswer]:
        """Yield the messages and the answers of a part. A part of an unknown type, or one that is only to be shown, has
        none."""
        kind = part.text("type")
        if kind == "text":
            yield self._read_text(part)
        elif kind == "file":
            yield self._read_file(part)
        elif self._role == "assistant":
            yield from self._read_assistants(kind, part)

    def _read_assistants(self, kind: str, part: Fields) -> Iterator[Message | UiAnswer]:
        """Yield the messages and answers of a part that only a message of the assistant has."""
        if kind == "reasoning":
            fields = self._fields(part)
            yield m.ReasoningMessage(self._next_id(), content=part.text("text"), **fields)
        elif kind in ("source-url", "source-document"):
            self._read_source(kind, part)
        elif kind == "dynamic-tool" or kind.startswith("tool-"):
            name = part.text("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
            yield from self._read_tool(name, part)
        elif kind == "steering-message":
            for inner in part.objects("parts"):
                yield from _Parts(part.text("id"), "user").read(inner)

    def _fields(self, part: Fields, key: str = "providerMetadata") -> dict[str, Any]:
        """Return the fields of a message: those which we sent along, and what other servers sent, to go back."""
        metadata = as_object(part.wire.get(key))
        extra = message_fields(extra_of(part.wire, key))
        extra.pop("call_id", None)
        others = without_keys(metadata, EXTRA_KEY)
        own = extra.pop("metadata", {})
        return {
            **extra,
            "role": self._role,
            "group": self._id,
            "metadata": {**own, **({KEY: others} if others else {})},
        }

    def _read_text(self, part: Fields) -> Message:
        text, fields = part.text("text"), self._fields(part)
        if fields.pop("format", None) == "refusal" and self._role == "assistant":
            return m.RefusalMessage(self._next_id(), content=text, **fields)
        self._text = m.TextMessage(self._next_id(), content=text, **fields)
        return self._text

    def _read_file(self, part: Fields) -> Message:
        url, media_type = part.text("url", empty=False), part.text("mediaType")
        message_class, format, content = file_fields(url, media_type)
        fields = self._fields(part)
        fields["format"] = format  # a client must not name a file of this machine
        name = part.optional_text("filename") or fields.pop("name", None)
        return message_class(self._next_id(), content=content, name=name, **fields)

    def _read_source(self, kind: str, part: Fields) -> None:
        """A source is a citation in the text before it."""
        if self._text is None:
            return
        url = part.text("url") if kind == "source-url" else None
        extra = extra_of(part.wire)
        file_id = None if url else as_text(extra.get("file_id")) or part.text("sourceId")
        type = as_text(extra.get("type")) or ("url_citation" if url else "file_citation")
        self._text.annotations.append(
            m.Annotation(type=type, url=url, file_id=file_id, title=part.optional_text("title"))
        )

    # -- tools

    def _read_tool(self, name: str, part: Fields) -> Iterator[Message | UiAnswer]:
        call_id, state = part.text("toolCallId", empty=False), part.one_of("state", _STATES)
        fields = self._fields(part, "callProviderMetadata")
        fields.pop("name", None)
        executed = part.is_set("providerExecuted")
        if as_object(extra_of(part.wire, "callProviderMetadata")).get("type") == "code":
            call = self._code(call_id, part, fields)
        else:
            call = m.ToolCallMessage(
                self._next_id(),
                name=name,
                call_id=call_id,
                provider_executed=executed,
                content=_arguments(part),
                **fields,
            )
        if state == "input-streaming":
            call.status = "incomplete"
        yield call
        answer = _approval(part, call_id, state)
        if answer is not None:
            yield answer
        output = self._output(part, state, call)
        if output is not None:
            yield output
            if not executed and state != "output-denied":
                failed = state == "output-error"
                yield ToolResult(call_id=call_id, output=output.content, failed=failed, name=name)

    def _code(self, call_id: str, part: Fields, fields: dict[str, Any]) -> Message:
        shown = part.inner("input")
        language = shown.optional_text("language")
        fields["format"] = language
        return m.CodeMessage(self._next_id(), call_id=call_id, content=shown.text("code"), **fields)

    def _output(self, part: Fields, state: str, call: Message) -> Message | None:
        """Return what a call gave, None if it gave nothing yet."""
        output_fields: dict[str, Any] = {"name": call.name, "call_id": call.call_id, "group": self._id}
        match state:
            case "output-available" if part.wire.get("preliminary") is not True:
                value = part.value("output")
                if isinstance(call, m.CodeMessage) and is_object(value) and set(value) == {"stdout", "stderr"}:
                    printed = Fields(value, part.at("output"))
                    content = printed.text("stdout") + printed.text("stderr")
                    output_fields["name"] = None
                    return m.ConsoleMessage(f"{call.id}.console", content=content, **output_fields)
                content = output_text(part.text("output")) if isinstance(value, str) else json_text(value)
                return m.ToolOutputMessage(f"{call.id}.output", content=content, **output_fields)
            case "output-error":
                error = part.text("errorText")
                return m.ToolOutputMessage(
                    f"{call.id}.output", content=error, metadata={"error": True}, **output_fields
                )
            case "output-denied":
                reason = part.inner("approval").optional_text("reason") or DENIED
                return m.ToolOutputMessage(
                    f"{call.id}.output", content=reason, metadata={"error": True}, **output_fields
                )
            case _:
                return None


def _arguments(part: Fields) -> str:
    """Return a call's arguments as JSON text. Those that came in part, or were malformed, are text already."""
    value = part.wire.get("input", part.wire.get("rawInput"))
    return "" if value is None else value if isinstance(value, str) else json_text(value)


def _approval(part: Fields, call_id: str, state: str) -> Approval | None:
    """Return the answer to a question about a call. Only the JSON boolean `true` approves."""
    if state != "approval-responded":
        return None
    if not is_object(part.wire.get("approval")):
        raise part.fail("approval", "is missing, but its state is 'approval-responded'")
    approval = part.inner("approval")
    id, approved = approval.text("id", empty=False), approval.flag("approved")
    return Approval(id=id, approved=approved, reason=approval.optional_text("reason"), call_id=call_id)
