"""The content block of a message: the way back from what `blocks` and `results` read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import messages as m
from ...messages import Message
from ..values import WireObject, as_list, as_object, as_text, is_object, parse_json
from .results import TEXTLESS_BLOCKS
from .wire import CODE_TOOLS, SEARCHES

__all__ = ["SERVER_TOOLS", "arguments_of", "block_of", "citation_of", "console_block", "result_block"]

SERVER_TOOLS = frozenset((*CODE_TOOLS, *SEARCHES, "advisor", "text_editor_code_execution"))
"""The names of Anthropic's own tools. A call of any other that its provider ran is one of an MCP server."""

_DOCUMENTS = ("char_location", "page_location", "content_block_location")
_CITATIONS = frozenset((*_DOCUMENTS, "web_search_result_location", "search_result_location"))
_CALL_KEYS = ("caller", "toolset_name", "server_name")  # of a call's block, from its message's metadata


def block_of(message: Message) -> dict[str, Any] | None:
    """Return the block of an assistant's turn that a message becomes; None if it did not come from one and fits in
    none."""
    metadata, content = message.metadata, message.content
    type = as_text(metadata.get("block_type"))
    match message:
        case m.TextMessage():
            citations = [own for annotation in message.annotations if (own := _own_citation(annotation)) is not None]
            return {"type": "text", "text": content, **({"citations": citations} if citations else {})}
        case m.ReasoningMessage():
            return _thinking_block(message)
        case m.ToolCallMessage() if not message.provider_executed or type in ("server_tool_use", "mcp_tool_use"):
            return _call_block(message, type or "tool_use")
        case m.CodeMessage(name=str() as name) if name in CODE_TOOLS:
            code = {CODE_TOOLS[name][1]: content} if content else {}
            input = {**code, **as_object(metadata.get("input"))}
            call = {"type": "server_tool_use", "id": message.call_id or message.id, "name": name, "input": input}
            return {**call, **_call_metadata(metadata)}
        case m.ConsoleMessage() if type.endswith("_tool_result"):
            return console_block(message)
        case m.ToolOutputMessage() if type.endswith("_tool_result"):
            return result_block(message)
        case m.FileMessage() if type == "container_upload":
            return {"type": type, "file_id": content}
        case Message(type="compaction"):
            return {"type": "compaction", "content": content or None, **metadata}
        case Message(type=textless) if textless in TEXTLESS_BLOCKS:
            return {"type": textless, **metadata}
        case _:
            return None


def _thinking_block(message: m.ReasoningMessage) -> dict[str, Any] | None:
    """Return the block of reasoning. Only redacted or signed reasoning may be sent back."""
    if message.format == "redacted":
        data = message.metadata.get("data")
        return None if data is None else {"type": "redacted_thinking", "data": data}
    signature = message.metadata.get("signature")
    return None if signature is None else {"type": "thinking", "thinking": message.content, "signature": signature}


def _call_metadata(metadata: WireObject) -> dict[str, Any]:
    return {key: metadata[key] for key in _CALL_KEYS if key in metadata}


def _call_block(call: m.ToolCallMessage, type: str) -> dict[str, Any]:
    block = {"type": type, "id": call.call_id or call.id, "name": call.name or "", "input": arguments_of(call)}
    return {**block, **_call_metadata(call.metadata)}


def arguments_of(call: m.ToolCallMessage) -> WireObject:
    """Return the arguments of a call, which must be an object. Anything else becomes one with the text at the key
    `input`."""
    if not call.content:
        return {}
    found = None if call.metadata.get("custom") is True else parse_json(call.content)
    return found if is_object(found) else {"input": call.content}


# -- results of tools that the provider ran


def result_block(message: Message) -> dict[str, Any]:
    """Return the result of a tool; of an MCP server's tool if the message does not say which block it came in."""
    metadata = message.metadata
    type = as_text(metadata.get("block_type")) or "mcp_tool_result"
    block: dict[str, Any] = {"type": type, "tool_use_id": message.call_id or message.id}
    block |= {key: metadata[key] for key in metadata if key not in ("block_type", "result", "error")}
    if type == "mcp_tool_result":
        block["is_error"] = metadata.get("error") is True
    return {**block, "content": _result_content(message, type)}


def _result_content(message: Message, type: str) -> Any:
    """Return the content of a result, restored from its text and from the `rest` that was read beside it."""
    content, rest = message.content, message.metadata.get("result")
    if rest is None:
        found = parse_json(content)
        return found if found is not None and type != "mcp_tool_result" else [{"type": "text", "text": content}]
    result = as_object(rest)
    if result.get("text") is True:
        return content
    if sizes := as_list(result.get("parts")):
        return _text_parts(content, sizes)
    return dict(result) if message.metadata.get("error") is True and "type" in result else {**result, "text": content}


def _text_parts(content: str, sizes: Sequence[Any]) -> list[dict[str, Any]]:
    """Content as text parts with these numbers of characters. The last one has all that is left."""
    parts: list[dict[str, Any]] = []
    start = 0
    for size in sizes[:-1]:
        end = start + size if isinstance(size, int) else start
        parts.append({"type": "text", "text": content[start:end]})
        start = end
    return [*parts, {"type": "text", "text": content[start:]}]


def console_block(
    message: m.ConsoleMessage,
    printed: Mapping[str, str] | None = None,
    *,
    tool: str = "",
    files: list[str] | None = None,
) -> dict[str, Any]:
    """Return the result of a tool that runs code.

    Args:
        message: what the code printed.
        printed: the same by stream, `stdout` and `stderr`, where its deltas were seen.
        tool: the name of the tool that ran the code.
        files: the ids of the files that the code wrote.
    """
    metadata = message.metadata
    type = as_text(metadata.get("block_type")) or f"{tool or 'code_execution'}_tool_result"
    stem = type.removesuffix("_tool_result")
    result = as_object(metadata.get("result"))
    if metadata.get("error") is True and result:
        content = dict(result)
    else:
        return_code = metadata.get("return_code")
        content = {
            "type": f"{stem}_result",
            **_streams(message, printed or {}),
            "return_code": return_code if isinstance(return_code, int) else 0,
            "content": [{"type": f"{stem}_output", "file_id": file} for file in files or ()],
            **result,
        }
        if "encrypted_stdout" in content:
            del content["stdout"]
    return {"type": type, "tool_use_id": message.call_id or message.id, "content": content}


def _streams(message: Message, printed: Mapping[str, str]) -> dict[str, str]:
    """Return the standard output and the standard error of a console message.

    What was printed by stream counts only if it is all of the content. Without it, the error is at the content's end.
    """
    content, error = message.content, as_text(message.metadata.get("stderr"))
    output, error_output = printed.get("stdout", ""), printed.get("stderr", "")
    if output + error_output == content or len(content) == sum(map(len, printed.values())):
        return {"stdout": output, "stderr": error_output}
    if message.metadata.get("stream") == "stderr":
        return {"stdout": "", "stderr": content}
    if error and content.endswith(error):
        return {"stdout": content.removesuffix(error), "stderr": error}
    return {"stdout": content, "stderr": ""}


# -- citations


def _own_citation(annotation: m.Annotation) -> WireObject | None:
    """Return the citation that an annotation came from, None if it came from another provider's."""
    raw = as_object(annotation.raw)
    return raw if as_text(raw.get("type")) in _CITATIONS else None


def citation_of(annotation: m.Annotation) -> WireObject:
    """Return the citation of an annotation. Another provider's becomes that of a web page, or of a document without a
    place."""
    if (own := _own_citation(annotation)) is not None:
        return own
    quote = annotation.quote or ""
    if annotation.url is not None:
        page = {"type": "web_search_result_location", "url": annotation.url, "title": annotation.title}
        return {**page, "cited_text": quote, "encrypted_index": ""}
    location = {"document_index": 0, "start_char_index": 0, "end_char_index": 0}
    document = {"document_title": annotation.title, "file_id": annotation.file_id}
    return {"type": "char_location", "cited_text": quote, **document, **location}
