"""Reads a `RunAgentInput`: the messages of a thread, what the client offers, and the answers to interrupts.

The body comes from a client, so every value in it may be forged. Earlier messages are what the client says that was said;
a server that keeps the conversation takes `new_messages` and `answers` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ... import messages as m
from ...messages import Message
from ..request_body import Fields, read_body
from ..ui_answers import Approval, ToolResult, UiAnswer
from ..ui_files import file_fields
from ..values import WireObject, as_object, json_text, text_or_none
from .wire import Version, extra_of, others_of

__all__ = ["AgentRequest", "AgentTool", "Resume", "from_request"]

_ROLES = ("developer", "system", "assistant", "user", "tool", "activity", "reasoning")
_MEDIA = ("image", "audio", "video", "document")


class AgentTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that the client runs.

    Attributes:
        name: its name.
        description: what it does.
        parameters: the JSON Schema of its arguments.
    """

    name: str
    description: str = ""
    parameters: Any = None


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an interrupt, as it came.

    Attributes:
        interrupt_id: the interrupt's id.
        status: `resolved` or `cancelled`.
        payload: the answer, as the interrupt's `responseSchema` wants it.
        metadata: what came along.
    """

    interrupt_id: str
    status: str
    payload: Any = None
    metadata: dict[str, Any] = {}


class AgentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A `RunAgentInput`, of AG-UI 1.0 or 0.x.

    Attributes:
        thread_id: the id of the conversation.
        run_id: the id that the client gives to this run.
        parent_run_id: the run that this one branches off from, None for none.
        version: what the client speaks: the encoder's `version`.
        messages: all messages of the body, as flat messages; `group` is the id of their AG-UI message.
        new_messages: those of the user at the end.
        answers: the approvals among `resume`, then the outputs in the tool messages at the end. Among them may be those of
            our own tools: take those for which something is pending.
        resume: all answers to interrupts, as they came.
        tools: what the client can run.
        context: descriptions and values that the application adds.
        state: the agent's state, any JSON value.
        forwarded_props: what else the application sends.
    """

    thread_id: str
    run_id: str
    parent_run_id: str | None = None
    version: Version = "1.0"
    messages: list[Any] = []
    new_messages: list[Any] = []
    answers: list[UiAnswer] = []
    resume: list[Resume] = []
    tools: list[AgentTool] = []
    context: list[dict[str, str]] = []
    state: Any = None
    forwarded_props: Any = None


def from_request(body: bytes | bytearray | str | WireObject) -> AgentRequest:
    """Return the request in the body of an AG-UI client's POST.

    An answer approves only if it is `resolved` and has the JSON boolean `true` as `approved`; any other declines.
    `editedArgs` takes the place of all of the arguments.

    Args:
        body: the body, as it came or parsed.

    Raises:
        RequestError: it is not JSON, or no `RunAgentInput`; the text says where and why.
    """
    fields = read_body(body)
    fields.value("messages")
    thread_id, run_id = fields.text("threadId", empty=False), fields.text("runId", empty=False)
    read = [(message.one_of("role", _ROLES), [*_read_message(message)]) for message in fields.objects("messages")]
    resume = [_read_resume(entry) for entry in fields.objects("resume")]
    approvals = [_approval(entry) for entry in resume]
    tools = fields.objects("tools")
    version = fields.optional_text("protocolVersion")
    return AgentRequest(
        thread_id=thread_id,
        run_id=run_id,
        parent_run_id=fields.optional_text("parentRunId"),
        version="0" if version is None or version.startswith("0.") else "1.0",
        messages=[message for _, messages in read for message in messages],
        new_messages=_last(read, "user"),
        answers=[*approvals, *map(_result, _last(read, "tool"))],
        resume=resume,
        tools=[_read_tool(tool) for tool in tools],
        context=[{key: entry.text(key) for key in ("description", "value")} for entry in fields.objects("context")],
        state=fields.wire.get("state"),
        forwarded_props=fields.wire.get("forwardedProps"),
    )


def _last(read: list[tuple[str, list[Message]]], role: str) -> list[Any]:
    """Return the messages of this role at the end."""
    count = next((count for count, (other, _) in enumerate(reversed(read)) if other != role), len(read))
    return [message for _, messages in read[len(read) - count :] for message in messages]


def _result(output: Message) -> ToolResult:
    failed = output.metadata.get("error") is True
    return ToolResult(call_id=output.call_id or "", output=output.content, failed=failed)


def _read_tool(fields: Fields) -> AgentTool:
    description = fields.optional_text("description") or ""
    return AgentTool(
        name=fields.text("name", empty=False), description=description, parameters=fields.wire.get("parameters")
    )


def _read_resume(fields: Fields) -> Resume:
    return Resume(
        interrupt_id=fields.text("interruptId", empty=False),
        status=fields.one_of("status", ("resolved", "cancelled")),
        payload=fields.wire.get("payload"),
        metadata=dict(fields.inner("metadata").wire),
    )


def _approval(resume: Resume) -> Approval:
    """Return the answer as one to a confirmation."""
    payload = as_object(resume.payload)
    approved = resume.status == "resolved" and payload.get("approved") is True
    edited = payload.get("editedArgs")
    return Approval(
        id=resume.interrupt_id,
        approved=approved,
        edited=None if edited is None or not approved else edited if isinstance(edited, str) else json_text(edited),
        reason=None if approved else text_or_none(payload.get("reason")),
    )


# -- messages


def _read_message(fields: Fields) -> Iterator[Message]:
    """Yield the flat messages of one message. Activities are the client's own, and are none."""
    id, role = fields.text("id"), fields.text("role")
    more: dict[str, Any] = {"group": id, "metadata": others_of(fields.wire)}
    match role:
        case "developer" | "system":
            yield m.TextMessage(id, role="system", content=fields.text("content"), **more)
        case "user":
            yield from _read_user(id, fields, more)
        case "assistant":
            content = fields.optional_text("content")
            if content:
                yield m.TextMessage(id, content=content, **more)
            for call in fields.objects("toolCalls"):
                yield _read_call(call, id)
        case "reasoning":
            yield m.ReasoningMessage(id, content=fields.text("content"), **more)
        case "tool":
            error = fields.optional_text("error")
            if error is not None:
                more["metadata"] = {**more["metadata"], "error": True}
            content = _text_of(fields) or error or ""
            call_id = fields.text("toolCallId", empty=False)
            yield m.ToolOutputMessage(id, call_id=call_id, content=content, **more)
        case _:
            pass


def _text_of(fields: Fields) -> str:
    """Return the text of a tool's message: text, or parts."""
    if isinstance(fields.wire.get("content"), list):
        return "".join(part.text("text") for part in fields.objects("content") if part.text("type") == "text")
    return fields.text("content")


def _read_call(fields: Fields, group: str) -> Message:
    id, function = fields.text("id", empty=False), fields.inner("function")
    name, arguments = function.text("name", empty=False), function.text("arguments")
    extra = extra_of(fields.wire)
    if extra.get("type") == "code":
        try:
            shown = read_body(arguments)
        except Exception as error:
            raise function.fail("arguments", "is not a JSON object, which that of code must be") from error
        language = shown.optional_text("language")
        return m.CodeMessage(id, call_id=id, content=shown.text("code"), format=language, group=group)
    executed = extra.get("provider_executed") is True
    return m.ToolCallMessage(id, name=name, call_id=id, content=arguments, provider_executed=executed, group=group)


def _read_user(id: str, fields: Fields, more: dict[str, Any]) -> Iterator[Message]:
    if not isinstance(fields.wire.get("content"), list):
        yield m.TextMessage(id, role="user", content=fields.text("content"), **more)
        return
    for number, part in enumerate(fields.objects("content")):
        own = id if not number else f"{id}.{number + 1}"
        kind = part.text("type")
        if kind == "text":
            yield m.TextMessage(own, role="user", content=part.text("text"), **more)
        elif kind in _MEDIA:
            yield _read_media(own, kind, part.inner("source"), more)
        elif kind == "binary":  # of 0.x
            yield _read_binary(own, part, more)
        else:
            raise part.fail("type", f"is {kind[:40]!r}, not one of text, {', '.join(_MEDIA)}, binary")


def _read_media(id: str, kind: str, source: Fields, more: dict[str, Any]) -> Message:
    value = source.text("value", empty=False)
    media_type = source.optional_text("mimeType") or f"{'application' if kind == 'document' else kind}/*"
    match source.one_of("type", ("data", "url", "file")):
        case "data":
            value = f"data:{media_type};base64,{value}"
        case "file":
            message_class = m.ImageMessage if kind == "image" else m.FileMessage
            return message_class(id, role="user", format="file_id", content=value, **more)
        case _:
            pass
    message_class_of, format, content = file_fields(value, media_type)
    return message_class_of(id, role="user", format=format, content=content, **more)


def _read_binary(id: str, part: Fields, more: dict[str, Any]) -> Message:
    media_type = part.text("mimeType", empty=False)
    url, data, file_id = part.optional_text("url"), part.optional_text("data"), part.optional_text("id")
    if not (url or data or file_id):
        raise part.fail("data", "is missing, and so are url and id")
    if not (url or data):
        message_class = m.ImageMessage if media_type.startswith("image/") else m.FileMessage
        return message_class(id, role="user", format="file_id", content=file_id, **more)
    message_class_of, format, content = file_fields(url or f"data:{media_type};base64,{data}", media_type)
    name = part.optional_text("filename")
    return message_class_of(id, role="user", format=format, content=content, name=name, **more)
