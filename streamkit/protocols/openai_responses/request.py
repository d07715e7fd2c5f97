"""Reads the body of a request to Responses.

Its input is the conversation, or with `previous_response_id` what is new in it, as in `openai_chat.request`. Reasoning and the
calls that OpenAI's own tools made are left out: no answer of ours has them.
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

_ROLES = ("user", "assistant", "system", "developer")


def _no_logprobs(value: Any) -> str | None:
    return "asks for log probabilities, which agents do not give" if "message.output_text.logprobs" in value else None


_FIELDS = FieldTable(
    read=frozenset(
        (
            *("input", "instructions", "model", "stream", "tools", "tool_choice", "parallel_tool_calls"),
            *("previous_response_id", "store", "background", "metadata", "user"),
        )
    ),
    options={"reasoning.effort": "reasoning_effort", "text.format": "response_format"},
    refused={
        "text.format": only_text,
        "include": _no_logprobs,
        "top_logprobs": refuse("is not supported", 0),
        "prompt": refuse("is a template that is not here"),
        "conversation": refuse("is not here; a response goes on from `previous_response_id`"),
    },
)


def from_request(body: bytes | bytearray | str | WireObject, *, options: Collection[str] = ()) -> ApiRequest:
    """Return the request in the body of a POST to `responses`.

    Args:
        body: the body, as it came or parsed.
        options: the canonical names of the fields that go into `ApiRequest.options`, as for `openai_chat.from_request`.

    Raises:
        RequestError: it is not JSON, no such request, or one for something that an agent does not answer with; its `path` is in
            the client's words.
    """
    fields = read_body(body)
    sorted_fields = sort_fields(_with_inner(fields, "reasoning", "text"), _FIELDS, options)
    reader = _InputReader()
    reader.messages.add_system(fields.optional_text("instructions") or "")
    if isinstance(fields.value("input"), list):
        for number, item in enumerate(fields.objects("input"), 1):
            reader.read(item, f"item-{number}")
    else:
        reader.messages.add_text("user", fields.text("input"), "item-1")
    store = fields.wire.get("store") is None or fields.flag("store")
    if fields.is_set("background") and not store:
        raise fields.fail("background", "needs `store`, as the answer is read later")
    tools = function_tools(fields)
    return request_of(
        "openai_responses",
        fields,
        reader.messages.finish(),
        tools,
        sorted_fields,
        tool_choice=function_choice(fields, tools),
        include_usage=True,
        previous_id=fields.optional_text("previous_response_id"),
        store=store,
        background=fields.is_set("background"),
    )


def _with_inner(fields: Fields, *keys: str) -> Fields:
    """Return the fields, with those inside these objects in their place, as `text.format`."""
    inner = {f"{key}.{name}": value for key in keys for name, value in fields.inner(key).wire.items()}
    return Fields({**fields.rest(*keys), **inner}, fields.path)


class _InputReader:
    """Reads the items of a request."""

    def __init__(self) -> None:
        self.messages = ReceivedMessages()

    def read(self, item: Fields, group: str) -> None:
        """Read the next item."""
        kind = item.optional_text("type") or "message"
        match kind:
            case "message":
                self._read_message(item, item.one_of("role", _ROLES), group)
            case "function_call":
                self.messages.add(
                    m.ToolCallMessage,
                    name=item.text("name", empty=False),
                    call_id=item.text("call_id", empty=False),
                    content=item.text("arguments"),
                    group=group,
                )
            case "function_call_output":
                self._read_output(item, item.text("call_id", empty=False), group)
            case "item_reference":
                raise item.fail("id", "is of an item that is not here: send the item")
            case "reasoning" | "compaction":
                pass
            case _ if kind.endswith(("_call", "_call_output")) or kind.startswith("mcp_"):
                pass
            case _:
                raise item.fail("type", f"is {kind[:40]!r}, not one of message, function_call, function_call_output")

    def _read_message(self, item: Fields, role: str, group: str) -> None:
        parts = [*item.objects("content")] if isinstance(item.wire.get("content"), list) else None
        if role in ("system", "developer"):
            texts = [item.text("content")] if parts is None else [part.text("text") for part in parts]
            self.messages.add_system("\n".join(texts))
        elif parts is None:
            self.messages.add_text(role, item.text("content"), group)
        else:
            for part in parts:
                self._read_part(part, role, {"group": group})

    def _read_part(self, part: Fields, role: str, more: dict[str, Any]) -> None:
        kind = part.text("type")
        match kind:
            case "input_text" | "output_text" | "text":
                self.messages.add_text(role, part.text("text"), more["group"])
            case "refusal":
                self.messages.add(m.RefusalMessage, content=part.text("refusal"), group=more["group"])
            case "input_image" if part.wire.get("image_url") is not None:
                self.messages.add_media(part, "image_url", "image", **more)
            case "input_file" if part.wire.get("file_data") is not None or part.wire.get("file_url") is not None:
                key = "file_data" if part.wire.get("file_data") is not None else "file_url"
                self.messages.add_media(part, key, "file", name=part.optional_text("filename"), **more)
            case "input_image" | "input_file":
                raise part.fail("file_id", "is of a file that is not here: send its data")
            case "input_audio":
                audio = part.inner("input_audio")
                format, data = audio.text("format", empty=False), audio.text("data", empty=False)
                self.messages.add(m.AudioMessage, role="user", format=format, content=data, **more)
            case _:
                raise part.fail(
                    "type", f"is {kind[:40]!r}, not one of input_text, input_image, input_file, output_text"
                )

    def _read_output(self, item: Fields, call_id: str, group: str) -> None:
        if not isinstance(item.wire.get("output"), list):
            self.messages.add(m.ToolOutputMessage, call_id=call_id, content=item.text("output"), group=group)
            return
        parts = [*item.objects("output")]
        texts = [part.text("text") for part in parts if part.text("type") in ("input_text", "output_text", "text")]
        self.messages.add(m.ToolOutputMessage, call_id=call_id, content="\n".join(texts), group=group)
        for part in parts:
            if part.text("type") not in ("input_text", "output_text", "text"):
                self._read_part(part, "computer", {"group": group, "role": "computer", "call_id": call_id})
