"""Reads the body of a request to Messages.

Its messages are the conversation, as in `openai_chat.request`. Reasoning goes on only with a signature, which none of our
answers has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ... import messages as m
from ..api_messages import FieldTable, ReceivedMessages, refuse, sort_fields
from ..api_request import ApiRequest, ToolChoice
from ..api_tools import ReceivedTools, request_of
from ..request_body import Fields, read_body
from ..values import WireObject, as_object, json_text

__all__ = ["from_request"]

_ROLES = ("user", "assistant", "system")
_OF_PROVIDER = ("server_tool_use", "mcp_tool_use", "fallback", "compaction", "container_upload")


def _no_format(value: Any) -> str | None:
    return "has a format, and answers are plain text" if as_object(value).get("format") is not None else None


_FIELDS = FieldTable(
    read=frozenset(("messages", "model", "system", "stream", "tools", "tool_choice", "metadata")),
    options={"max_tokens": "max_output_tokens", "stop_sequences": "stop"},
    refused={"output_format": refuse("is not supported: answers are plain text"), "output_config": _no_format},
)


def from_request(
    body: bytes | bytearray | str | WireObject, *, options: Collection[str] = (), answered: bool = True
) -> ApiRequest:
    """Return the request in the body of a POST to `messages`.

    Args:
        body: the body, as it came or parsed.
        options: the canonical names of the fields that go into `ApiRequest.options`, as for `openai_chat.from_request`.
        answered: whether an agent is to answer it; otherwise what an agent does not answer with is no fault.

    Raises:
        RequestError: it is not JSON, no such request, or one for something that an agent does not answer with; its `path` is in
            the client's words.
    """
    fields = read_body(body)
    table = _FIELDS if answered else _FIELDS._replace(refused={})
    sorted_fields = sort_fields(fields, table, options)
    reader = _MessagesReader()
    reader.read_system(fields, "system")
    if not fields.list("messages"):
        raise fields.fail("messages", "is missing or empty")
    roles = [reader.read(message, f"message-{number}") for number, message in enumerate(fields.objects("messages"), 1)]
    if answered and roles[-1] == "assistant":
        raise fields.fail(
            f"messages[{len(roles) - 1}]", "is the assistant's: an agent does not go on with a begun answer"
        )
    tools = _tools(fields)
    return request_of(
        "anthropic",
        fields,
        reader.messages.finish(),
        tools,
        sorted_fields,
        tool_choice=_tool_choice(fields, tools),
        include_usage=True,
    )


def _tools(fields: Fields) -> ReceivedTools:
    tools = ReceivedTools()
    for tool in fields.objects("tools"):
        kind = tool.optional_text("type") or "custom"
        if kind == "custom":
            tools.add(tool, "input_schema")
        else:
            tools.hosted.append(f"tools.{kind[:40]}")
    return tools


def _tool_choice(fields: Fields, tools: ReceivedTools) -> ToolChoice:
    if fields.wire.get("tool_choice") is None:
        return ToolChoice()
    choice = fields.inner("tool_choice")
    kind = choice.one_of("type", ("auto", "any", "tool", "none"))
    parallel = False if choice.is_set("disable_parallel_tool_use") else None
    if kind in ("auto", "none"):
        return ToolChoice(mode="none" if kind == "none" else "auto", parallel=parallel)
    name = tools.check_chosen(fields, choice.text("name") if kind == "tool" else None)
    return ToolChoice(mode="required", name=name, parallel=parallel)


class _MessagesReader:
    """Reads the messages of a request."""

    def __init__(self) -> None:
        self.messages = ReceivedMessages()

    def read_system(self, fields: Fields, key: str) -> None:
        """Read a system prompt: a text, or blocks of text."""
        if isinstance(fields.wire.get(key), list):
            self.messages.add_system("\n".join(block.text("text") for block in fields.objects(key)))
        else:
            self.messages.add_system(fields.optional_text(key) or "")

    def read(self, fields: Fields, group: str) -> str:
        """Read the next message. Returns its role."""
        role = fields.one_of("role", _ROLES)
        if role == "system":
            self.read_system(fields, "content")
        elif not isinstance(fields.wire.get("content"), list):
            self.messages.add_text(role, fields.text("content"), group)
        else:
            for block in fields.objects("content"):
                (self._read_assistants if role == "assistant" else self._read_users)(block, group)
        return role

    def _read_users(self, block: Fields, group: str) -> None:
        kind = block.text("type")
        if kind == "tool_result":
            self._read_output(block, group)
        else:
            self._read_content(block, kind, {"group": group})

    def _read_content(self, block: Fields, kind: str, more: dict[str, Any]) -> None:
        match kind:
            case "text":
                self.messages.add_text("user", block.text("text"), more["group"])
            case "image":
                self._read_source(block.inner("source"), "image", more)
            case "document":
                self._read_source(block.inner("source"), "file", {"name": block.optional_text("title"), **more})
            case _:
                raise block.fail("type", f"is {kind[:40]!r}, not one of text, image, document, tool_result")

    def _read_source(self, source: Fields, kind: str, more: dict[str, Any]) -> None:
        match source.one_of("type", ("base64", "url", "text", "content", "file")):
            case "base64":
                data = f"data:{source.text('media_type', empty=False)};base64,{source.text('data', empty=False)}"
                self.messages.add_media(Fields({"data": data}, source.path), "data", kind, **more)
            case "url":
                self.messages.add_media(source, "url", kind, **more)
            case "text":
                self.messages.add_text("user", source.text("data"), more["group"])
            case "content" if isinstance(source.wire.get("content"), list):
                for block in source.objects("content"):
                    self._read_content(block, block.text("type"), more)
            case "content":
                self.messages.add_text("user", source.text("content"), more["group"])
            case _:
                raise source.fail("file_id", "is of a file that is not here: send its data")

    def _read_output(self, block: Fields, group: str) -> None:
        call_id, parts = block.text("tool_use_id", empty=False), isinstance(block.wire.get("content"), list)
        content = [*block.objects("content")] if parts else []
        texts = [part.text("text") for part in content if part.text("type") == "text"]
        text = "\n".join(texts) if parts else block.optional_text("content") or ""
        metadata = {"error": True} if block.is_set("is_error") else {}
        self.messages.add(m.ToolOutputMessage, call_id=call_id, content=text, group=group, metadata=metadata)
        for part in content:
            if part.text("type") != "text":
                self._read_content(part, part.text("type"), {"group": group, "role": "computer", "call_id": call_id})

    def _read_assistants(self, block: Fields, group: str) -> None:
        kind = block.text("type")
        match kind:
            case "text":
                self.messages.add_text("assistant", block.text("text"), group)
            case "thinking":
                if signature := block.optional_text("signature"):
                    metadata = {"signature": signature}
                    self.messages.add(
                        m.ReasoningMessage, content=block.text("thinking"), group=group, metadata=metadata
                    )
            case "tool_use":
                self.messages.add(
                    m.ToolCallMessage,
                    name=block.text("name", empty=False),
                    call_id=block.text("id", empty=False),
                    content=json_text(dict(block.inner("input").wire)),
                    group=group,
                )
            case _ if kind in _OF_PROVIDER or kind == "redacted_thinking" or kind.endswith("_tool_result"):
                pass  # no answer of ours has them
            case _:
                raise block.fail("type", f"is {kind[:40]!r}, not one of text, thinking, tool_use")
