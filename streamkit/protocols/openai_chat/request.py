"""Reads the body of a request to Chat Completions.

Its messages are the conversation. What the assistant said and called in it is what the client says: calls there are never
run. Reasoning is left out, as no answer of ours has a signature.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ... import messages as m
from ..api_messages import FieldTable, ReceivedMessages, only_text, refuse, sort_fields
from ..api_request import ApiRequest
from ..api_tools import function_choice, function_tools, request_of
from ..request_body import Fields, read_body
from ..values import WireObject

__all__ = ["from_request"]

_ROLES = ("system", "developer", "user", "assistant", "tool")


def _no_audio(value: Any) -> str | None:
    return "asks for audio, and answers are text" if "audio" in value else None


_FIELDS = FieldTable(
    read=frozenset(
        (
            "messages",
            "model",
            "stream",
            "stream_options",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "metadata",
            "user",
        )
    ),
    options={"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"},
    refused={
        "n": refuse("is more than 1", 1),
        "modalities": _no_audio,
        "logprobs": refuse("is not supported", False),
        "top_logprobs": refuse("is not supported", 0),
        "functions": refuse("is the old form of `tools`", []),
        "function_call": refuse("is the old form of `tool_choice`", "auto", "none"),
        "response_format": only_text,
    },
)


def from_request(body: bytes | bytearray | str | WireObject, *, options: Collection[str] = ()) -> ApiRequest:
    """Return the request in the body of a POST to `chat/completions`.

        request = openai_chat.from_request(await http.body())
        agent = sk.AsyncAgent(client, model="gpt-5-mini", tools=[get_weather, *request.tools], messages=request.history)
        stream = agent.stream(request.input)  # answered by stream.sse(request.encoder())

    Args:
        body: the body, as it came or parsed.
        options: the canonical names of the fields that go into `ApiRequest.options`, such as `temperature` or
            `max_output_tokens`. Others that an agent has no use for are named in `ignored`.

    Raises:
        RequestError: it is not JSON, no such request, or one for something that an agent does not answer with; its `path` is in
            the client's words.
    """
    fields = read_body(body)
    sorted_fields = sort_fields(fields, _FIELDS, options)
    reader = _ChatReader()
    if not fields.list("messages"):
        raise fields.fail("messages", "is missing or empty")
    for number, message in enumerate(fields.objects("messages")):
        reader.read(message, f"message-{number + 1}")
    tools = function_tools(fields, "function")
    return request_of(
        "openai_chat",
        fields,
        reader.messages.finish(),
        tools,
        sorted_fields,
        tool_choice=function_choice(fields, tools, "function"),
        include_usage=fields.inner("stream_options").is_set("include_usage"),
    )


class _ChatReader:
    """Reads the messages of a request."""

    def __init__(self) -> None:
        self.messages = ReceivedMessages()

    def read(self, fields: Fields, group: str) -> None:
        """Read the next message."""
        role = fields.one_of("role", _ROLES)
        match role:
            case "user":
                self._read_content(fields, group)
            case "assistant":
                self._read_assistant(fields, group)
            case "tool":
                call_id = fields.text("tool_call_id", empty=False)
                self._read_output(fields, call_id, group)
            case _:
                self.messages.add_system("\n".join(_texts(fields)))

    def _read_content(self, fields: Fields, group: str) -> None:
        value = fields.wire.get("content")
        if not isinstance(value, list):
            self.messages.add_text("user", fields.text("content"), group)
            return
        for part in fields.objects("content"):
            self._read_part(part, {"group": group})

    def _read_part(self, part: Fields, more: dict[str, Any]) -> None:
        kind = part.text("type")
        match kind:
            case "text":
                self.messages.add_text("user", part.text("text"), more["group"])
            case "image_url":
                self.messages.add_media(part.inner("image_url"), "url", "image", **more)
            case "input_audio":
                audio = part.inner("input_audio")
                format, data = audio.text("format", empty=False), audio.text("data", empty=False)
                self.messages.add(m.AudioMessage, role="user", format=format, content=data, **more)
            case "file":
                file = part.inner("file")
                if "file_data" not in file.wire:
                    raise file.fail("file_id", "is of a file that is not here: send its data")
                self.messages.add_media(file, "file_data", "file", name=file.optional_text("filename"), **more)
            case _:
                raise part.fail("type", f"is {kind[:40]!r}, not one of text, image_url, input_audio, file")

    def _read_assistant(self, fields: Fields, group: str) -> None:
        if fields.wire.get("content") is not None:
            self.messages.add_text("assistant", "".join(_texts(fields)), group)
        if refusal := fields.optional_text("refusal"):
            self.messages.add(m.RefusalMessage, content=refusal, group=group)
        for call in fields.objects("tool_calls"):
            call.one_of("type", ("function",)) if "type" in call.wire else None
            function = call.inner("function")
            self.messages.add(
                m.ToolCallMessage,
                name=function.text("name", empty=False),
                call_id=call.text("id", empty=False),
                content=function.text("arguments"),
                group=group,
            )

    def _read_output(self, fields: Fields, call_id: str, group: str) -> None:
        value = fields.wire.get("content")
        if not isinstance(value, list):
            self.messages.add(m.ToolOutputMessage, call_id=call_id, content=fields.text("content"), group=group)
            return
        texts = [part.text("text") for part in fields.objects("content") if part.text("type") == "text"]
        self.messages.add(m.ToolOutputMessage, call_id=call_id, content="".join(texts), group=group)
        for part in fields.objects("content"):
            if part.text("type") != "text":
                self._read_part(part, {"group": group, "role": "computer", "call_id": call_id})


def _texts(fields: Fields) -> list[str]:
    """Return the texts of a content: text, or parts of text and refusals."""
    if not isinstance(fields.wire.get("content"), list):
        return [fields.text("content")]
    parts = [*fields.objects("content")]
    return [part.text("refusal" if part.one_of("type", ("text", "refusal")) == "refusal" else "text") for part in parts]
