"""The content blocks that messages make: the way back from `anthropic_blocks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ... import messages as m
from ...messages import Message
from ..values import is_object
from .blocks import KEPT
from .wire import CODE, items_of, mapping, parsed, text

__all__ = ["SERVER_TOOLS", "arguments_of", "block_of", "cited", "console_block", "result_block"]

_SEARCHES = ("web_search", "web_fetch", "tool_search_tool_regex", "tool_search_tool_bm25")
SERVER_TOOLS = frozenset((*CODE, *_SEARCHES, "advisor", "text_editor_code_execution"))
_DOCUMENTS = ("char_location", "page_location", "content_block_location")
_CITATIONS = frozenset((*_DOCUMENTS, "web_search_result_location", "search_result_location"))


def block_of(message: Message) -> dict[str, Any] | None:
    """The block of the assistant's turn that this message goes back into; None if it was told in none."""
    known, content = message.metadata, message.content
    type = text(known.get("block_type"))
    match message:
        case m.TextMessage():
            citations = [cite for annotation in message.annotations if (cite := _own(annotation)) is not None]
            return {"type": "text", "text": content, **({"citations": citations} if citations else {})}
        case m.ReasoningMessage(format="redacted"):
            data = known.get("data")
            return None if data is None else {"type": "redacted_thinking", "data": data}
        case m.ReasoningMessage():
            signature = known.get("signature")
            return None if signature is None else {"type": "thinking", "thinking": content, "signature": signature}
        case m.ToolCallMessage() if not message.provider_executed or type in ("server_tool_use", "mcp_tool_use"):
            return _call(message, type or "tool_use")
        case m.CodeMessage(name=str() as name) if name in CODE:
            given = {CODE[name][1]: content} if content else {}
            call = {"type": "server_tool_use", "id": message.call_id or message.id, "name": name}
            return {**call, "input": {**given, **mapping(known.get("input"))}, **_extras(known)}
        case m.ConsoleMessage() if type.endswith("_tool_result"):
            return console_block(message)
        case m.ToolOutputMessage() if type.endswith("_tool_result"):
            return result_block(message)
        case m.FileMessage() if type == "container_upload":
            return {"type": type, "file_id": content}
        case Message(type="compaction"):
            return {"type": "compaction", "content": content or None, **known}
        case Message(type=kept) if kept in KEPT:
            return {"type": kept, **known}
        case _:
            return None


def _extras(known: Mapping[str, Any]) -> dict[str, Any]:
    """What a call's block says beside what its message has a place for."""
    return {key: known[key] for key in ("caller", "toolset_name", "server_name") if key in known}


def _call(call: m.ToolCallMessage, type: str) -> dict[str, Any]:
    given = {"id": call.call_id or call.id, "name": call.name or "", "input": arguments_of(call)}
    return {"type": type, **given, **_extras(call.metadata)}


def arguments_of(call: m.ToolCallMessage) -> Mapping[str, Any]:
    """The arguments of a call, which are an object. Text of a custom tool, or no JSON object, is its `input`."""
    if not call.content:
        return {}
    found = None if call.metadata.get("custom") is True else parsed(call.content)
    return found if is_object(found) else {"input": call.content}


def result_block(message: Message) -> dict[str, Any]:
    """What a tool gave that the provider ran; of an MCP server's, if nothing says of which."""
    known = message.metadata
    type = text(known.get("block_type")) or "mcp_tool_result"
    block: dict[str, Any] = {"type": type, "tool_use_id": message.call_id or message.id}
    block |= {key: known[key] for key in known if key not in ("block_type", "result", "error")}
    if type == "mcp_tool_result":
        block["is_error"] = known.get("error") is True
    return {**block, "content": _content(message, type)}


def _content(message: Message, type: str) -> Any:
    content, rest = message.content, message.metadata.get("result")
    if rest is None:
        found = parsed(content)
        return found if found is not None and type != "mcp_tool_result" else [{"type": "text", "text": content}]
    result = mapping(rest)
    if result.get("text") is True:
        return content
    if sizes := items_of(result.get("parts")):
        return _cut(content, sizes)
    return dict(result) if message.metadata.get("error") is True and "type" in result else {**result, "text": content}


def _cut(content: str, sizes: list[Any]) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = []
    at = 0
    for size in sizes[:-1]:
        end = at + size if isinstance(size, int) else at
        parts.append({"type": "text", "text": content[at:end]})
        at = end
    return [*parts, {"type": "text", "text": content[at:]}]


def console_block(
    message: m.ConsoleMessage,
    printed: Mapping[str, str] | None = None,
    *,
    tool: str = "",
    files: list[str] | None = None,
) -> dict[str, Any]:
    """What code printed. `printed` are its two streams, where they were told apart; `tool` ran it; `files` it wrote."""
    known = message.metadata
    type = text(known.get("block_type")) or f"{tool or 'code_execution'}_tool_result"
    stem = type.removesuffix("_tool_result")
    result = mapping(known.get("result"))
    if known.get("error") is True and result:
        content = dict(result)
    else:
        code = known.get("return_code")
        written = [{"type": f"{stem}_output", "file_id": file} for file in files or ()]
        told = {"return_code": code if isinstance(code, int) else 0, "content": written}
        content = {"type": f"{stem}_result", **_streams(message, printed or {}), **told, **result}
        if "encrypted_stdout" in content:
            del content["stdout"]
    return {"type": type, "tool_use_id": message.call_id or message.id, "content": content}


def _streams(message: Message, printed: Mapping[str, str]) -> dict[str, str]:
    """Its standard output and error. The error comes last, where the message alone is known."""
    content, error = message.content, text(message.metadata.get("stderr"))
    if printed.get("stdout", "") + printed.get("stderr", "") == content or len(content) == sum(
        map(len, printed.values())
    ):
        return {"stdout": printed.get("stdout", ""), "stderr": printed.get("stderr", "")}
    if message.metadata.get("stream") == "stderr":
        return {"stdout": "", "stderr": content}
    if error and content.endswith(error):
        return {"stdout": content.removesuffix(error), "stderr": error}
    return {"stdout": content, "stderr": ""}


def _own(annotation: m.Annotation) -> Mapping[str, Any] | None:
    raw = mapping(annotation.raw)
    return raw if text(raw.get("type")) in _CITATIONS else None


def cited(annotation: m.Annotation) -> Mapping[str, Any]:
    """A citation; one of another provider as that of a page, or of a document without a place in it."""
    if (own := _own(annotation)) is not None:
        return own
    quote = annotation.quote or ""
    if annotation.url is not None:
        page = {"type": "web_search_result_location", "url": annotation.url, "title": annotation.title}
        return {**page, "cited_text": quote, "encrypted_index": ""}
    place = {"document_index": 0, "start_char_index": 0, "end_char_index": 0}
    document = {"document_title": annotation.title, "file_id": annotation.file_id}
    return {"type": "char_location", "cited_text": quote, **document, **place}
