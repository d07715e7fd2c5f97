"""Encodes canonical events as a stream of the Messages API. The table of `Encoder` says what the protocol cannot express."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from ... import events as e
from ... import messages as m
from ...messages import Message
from .. import base
from ..values import WireObject, as_object, as_text, json_text, without_keys
from .block_writer import SERVER_TOOLS, arguments_of, block_of, citation_of, console_block, result_block
from .results import TEXTLESS_BLOCKS
from .wire import CODE_TOOLS, STATUS_OF_STOP_REASON, TOOL_OF_LANGUAGE

__all__ = ["Encoder"]

_STOP_REASONS = frozenset((*STATUS_OF_STOP_REASON, "end_turn", "stop_sequence", "tool_use"))
# The stop_reason for other protocols' finish_reasons. For those in neither, it follows from the run's status.
_STOP_REASON_OF = {
    "stop": "end_turn",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_STOP_REASON_OF_STATUS = {"incomplete": "max_tokens", "requires_action": "tool_use"}
# The metadata of a run that is in the delta of a `message_delta`, and beside it.
_IN_DELTA = ("container", "stop_details")
_BESIDE_DELTA = ("context_management", "input_transformations")


class Encoder(base.Encoder):
    """Canonical events as Messages events, all in one message.

    | canonical | here |
    |---|---|
    | the assistant's text, reasoning, tool calls | blocks `text`, `thinking`, `tool_use`, each at its own index |
    | the format `summary` of reasoning | nothing: it is `thinking` |
    | redacted reasoning | `redacted_thinking`; its data is `data` or `encrypted_content` of the `metadata` |
    | a refusal | the `explanation` of a stop_reason `refusal`, which makes the run incomplete |
    | code, console, and files that code wrote | `server_tool_use` of `code_execution` or, in shell, of `bash_code_execution`, and its result |
    | code in other languages | the same, as Python |
    | a call that its provider ran, and its output | `server_tool_use` if Anthropic has such a tool, else `mcp_tool_use`, and the result |
    | the output of a call that we ran | nothing: it does not come from the model |
    | the input of a custom tool, which is text | an object with it as `input` |
    | a citation of another provider | that of a page, or of a document: its url, title, quote and file_id alone |
    | a compaction, a fallback, an MCP server's tools, an uploaded file | the same |
    | a run's id, model, usage, `stop_sequence`, `stop_details`, `container`, `context_management` | the same |
    | usage that comes after the first content | in `message_delta` alone, of which the SDK's helper takes no `service_tier`, `inference_geo` or `cache_creation` |
    | its created_at, the rest of its metadata | nothing |
    | its finish_reason | the same, or Anthropic's word for it: `length` is `max_tokens` |
    | none, or one without such a word | `max_tokens` if incomplete, `tool_use` if a call for us has no output, else `end_turn` |
    | tokens that OpenAI counts as cached, or as reasoning | `cache_read_input_tokens`, which are not among the `input_tokens`; `thinking_tokens` |
    | a failed run, a failed stream, one that was cut off | `error` |
    | the status of a call or code that is not completed | its block does not stop |
    | the statuses of other messages | how the run ended, for the last one |
    | a `replace` delta | nothing: what was sent cannot be taken back |
    | images, audio, other files; other roles, types and choices | nothing |
    | messages' ids, what else is in their metadata; logprobs | nothing |
    | confirmations, active lines, steps, warnings | nothing |
    """

    name = "anthropic"

    def __init__(self) -> None:
        self._run = e.Run()
        self._usage: e.Usage | None = None
        self._has_begun = self._is_over = False
        self._next_index = 0
        self._blocks: dict[str, int] = {}  # the indexes of open blocks, by message id
        self._streamed_code: set[str] = set()  # the ids of code messages whose JSON has begun
        self._code_tools: dict[str, str] = {}  # the tool that ran code, by call id
        self._executed: set[str] = set()  # the ids of calls that the provider ran
        self._printed: dict[str, dict[str, list[str]]] = {}  # console output, by message id and stream
        self._files: dict[str, list[str]] = {}  # the ids of files that code wrote, by call id
        self._newest_code = ""  # its call id, for console output that does not say which code it is of
        self._refusal = ""
        self._waiting: set[str] = set()  # the ids of calls for us that have no output

    def event_name(self, item: WireObject) -> str | None:
        """Return the item's type."""
        name: str = item["type"]
        return name

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
        """Yield the items of one event, after the start of the message."""
        for item in self._items(event):
            if item["type"] not in ("message_start", "error"):
                yield from self._begin()
            yield item

    def _items(self, event: e.Event) -> Iterator[dict[str, Any]]:
        match event:
            case e.RunCreated(run=run):
                self._run = run
            case e.Usage():
                self._usage = event
                yield from self._begin()
            case e.RunDone(run=run):
                self._run = run
                yield from self._end(run)
            case e.StreamException(error=name, message=message) if not self._is_over:
                self._is_over = True
                yield {"type": "error", "error": {"type": name, "message": message}}
            case e.Created(message=message) if _is_expressible(message):
                yield from self._created(message)
            case e.Delta(snapshot=Message() as message, replace=False) if event.value and _is_expressible(message):
                yield from self._created(message)
                yield from self._grow(message, event)
            case e.AnnotationAdded(snapshot=m.TextMessage() as message) if message.id in self._blocks:
                citation = dict(citation_of(event.annotation))
                yield self._delta(message, {"type": "citations_delta", "citation": citation})
            case e.Done(message=message) if _is_expressible(message):
                yield from self._done(message)
            case _:
                pass

    # -- the message

    def _begin(self) -> Iterator[dict[str, Any]]:
        """Yield the start, once. It waits for the first content or usage, so that it has the usage if that comes
        first."""
        if self._has_begun:
            return
        self._has_begun = True
        message: dict[str, Any] = {
            "id": self._run.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._run.model or "",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, **_usage(self._usage)},
        }
        yield {"type": "message_start", "message": message}

    def _end(self, run: e.Run) -> Iterator[dict[str, Any]]:
        if self._is_over:
            return
        self._is_over = True
        if run.status in ("failed", "expired") or run.error is not None:  # a cut-off is not an end that the model chose
            error = {"type": "api_error", "message": f"the run ended as {run.status}", **(run.error or {})}
            request = {"request_id": error.pop("request_id")} if "request_id" in error else {}
            yield {"type": "error", "error": error, **request}
            return
        metadata = without_keys(run.metadata)
        if self._refusal and "stop_details" not in metadata:
            metadata["stop_details"] = {"type": "refusal", "category": None, "explanation": self._refusal}
        delta = {
            "stop_reason": self._stop_reason(run),
            "stop_sequence": metadata.get("stop_sequence"),
            **{key: metadata[key] for key in _IN_DELTA if key in metadata},
        }
        beside = {key: metadata[key] for key in _BESIDE_DELTA if key in metadata}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(run.usage or self._usage), **beside}
        yield {"type": "message_stop"}

    def _stop_reason(self, run: e.Run) -> str:
        reason = run.finish_reason or ""
        if self._refusal:
            return "refusal"
        if reason in _STOP_REASONS:
            return reason
        default = "tool_use" if self._waiting else "end_turn"
        return _STOP_REASON_OF.get(reason) or _STOP_REASON_OF_STATUS.get(run.status) or default

    # -- its blocks

    def _start(self, message: Message, block: WireObject) -> dict[str, Any]:
        index = self._blocks[message.id] = self._next_index
        self._next_index += 1
        return {"type": "content_block_start", "index": index, "content_block": dict(block)}

    def _delta(self, message: Message, delta: WireObject) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks[message.id], "delta": dict(delta)}

    def _stop(self, message: Message) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": self._blocks.pop(message.id)}

    def _complete(self, message: Message, block: WireObject) -> Iterator[dict[str, Any]]:
        """Yield the items of a block that comes complete with its start."""
        yield self._start(message, block)
        yield self._stop(message)

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield the start of a block that grows, once."""
        if message.id in self._blocks:
            return
        match message:
            case m.TextMessage():
                yield self._start(message, {"type": "text", "text": ""})
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._start(message, {"type": "thinking", "thinking": "", "signature": ""})
            case m.ToolCallMessage():
                yield self._start(message, self._call_start(message))
            case m.CodeMessage():
                call_id = self._newest_code = message.call_id or message.id
                tool = self._code_tools[call_id] = _code_tool(message)
                block: dict[str, Any] = {"type": "server_tool_use", "id": call_id, "name": tool, "input": {}}
                yield self._start(message, {**block, **_caller(message)})
            case _:
                pass

    def _call_start(self, call: m.ToolCallMessage) -> dict[str, Any]:
        id, name, metadata = call.call_id or call.id, call.name or "", call.metadata
        block: dict[str, Any] = {"id": id, "name": name, "input": {}, **_caller(call)}
        if not call.provider_executed:
            self._waiting.add(id)
            toolset = {"toolset_name": metadata["toolset_name"]} if "toolset_name" in metadata else {}
            return {"type": "tool_use", **block, **toolset}
        self._executed.add(id)
        if as_text(metadata.get("block_type")) == "server_tool_use" or name in SERVER_TOOLS:
            return {"type": "server_tool_use", **block}
        server = as_text(metadata.get("server_name")) or as_text(metadata.get("server_label"))
        return {"type": "mcp_tool_use", **block, "server_name": server}

    def _grow(self, message: Message, event: e.Delta) -> Iterator[dict[str, Any]]:
        value = event.value
        match message:
            case m.TextMessage():
                yield self._delta(message, {"type": "text_delta", "text": value})
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._delta(message, {"type": "thinking_delta", "thinking": value})
            case m.ToolCallMessage() if message.metadata.get("custom") is not True:
                yield self._delta(message, {"type": "input_json_delta", "partial_json": value})
            case m.CodeMessage():
                head = "" if message.id in self._streamed_code else f'{{"{CODE_TOOLS[_code_tool(message)][1]}":"'
                self._streamed_code.add(message.id)
                piece = head + json.dumps(value, ensure_ascii=False)[1:-1]
                yield self._delta(message, {"type": "input_json_delta", "partial_json": piece})
            case m.ConsoleMessage():
                stream = "stderr" if (event.metadata or {}).get("stream") == "stderr" else "stdout"
                self._printed.setdefault(message.id, {}).setdefault(stream, []).append(value)
            case _:
                pass

    def _done(self, message: Message) -> Iterator[dict[str, Any]]:
        match message:
            case m.RefusalMessage():
                self._refusal += message.content
            case m.ReasoningMessage(format="redacted"):
                data = message.metadata.get("data", message.metadata.get("encrypted_content"))
                yield from self._complete(message, {"type": "redacted_thinking", "data": as_text(data)})
            case m.TextMessage() | m.ReasoningMessage() | m.ToolCallMessage() | m.CodeMessage():
                yield from self._created(message)
                yield from self._last_delta(message)
                is_cut = isinstance(message, m.ToolCallMessage | m.CodeMessage) and message.status != "completed"
                if not is_cut:
                    yield self._stop(message)
            case m.ConsoleMessage():
                yield from self._complete(message, self._console(message))
            case m.FileMessage() if message.call_id in self._code_tools:
                self._files.setdefault(message.call_id or "", []).append(message.content)
            case m.ToolOutputMessage():
                self._waiting.discard(message.call_id or "")
                if "block_type" in message.metadata or message.call_id in self._executed:
                    yield from self._complete(message, result_block(message))
            case Message(type="compaction"):
                yield from self._compaction(message)
            case _ if (block := block_of(message)) is not None:
                yield from self._complete(message, block)
            case _:
                pass

    def _last_delta(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield what is known only when a message is done: signatures, a custom tool's input, and the end of code's
        JSON."""
        metadata = message.metadata
        if isinstance(message, m.ReasoningMessage) and (signature := as_text(metadata.get("signature"))):
            yield self._delta(message, {"type": "signature_delta", "signature": signature})
        elif isinstance(message, m.ToolCallMessage) and metadata.get("custom") is True and message.content:
            arguments = json_text(arguments_of(message))
            yield self._delta(message, {"type": "input_json_delta", "partial_json": arguments})
        elif isinstance(message, m.CodeMessage) and message.status == "completed":
            more = as_object(metadata.get("input"))
            is_streamed = message.id in self._streamed_code
            if more or is_streamed:
                tail = json_text(more)[1:] if more else "}"
                head = ('",' if more else '"') if is_streamed else "{"
                yield self._delta(message, {"type": "input_json_delta", "partial_json": head + tail})

    def _console(self, message: m.ConsoleMessage) -> dict[str, Any]:
        call_id = message.call_id or self._newest_code or message.id
        printed = {stream: "".join(pieces) for stream, pieces in self._printed.pop(message.id, {}).items()}
        files = self._files.pop(call_id, [])
        block = console_block(message, printed, tool=self._code_tools.get(call_id, ""), files=files)
        return {**block, "tool_use_id": call_id}

    def _compaction(self, message: Message) -> Iterator[dict[str, Any]]:
        block = dict(as_object(block_of(message)))
        summary = {key: block.pop(key, None) for key in ("content", "encrypted_content")}
        yield self._start(message, {**block, "content": None})
        if any(summary.values()):
            yield self._delta(message, {"type": "compaction_delta", **without_keys(summary)})
        yield self._stop(message)


_ANSWERS = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.ToolCallMessage, m.CodeMessage)
_RESULTS = (m.ConsoleMessage, m.ToolOutputMessage, m.FileMessage)


def _is_expressible(message: Message) -> bool:
    """Whether an answer of this API can have such a message in it."""
    if message.choice != 0:
        return False
    is_result = isinstance(message, _RESULTS)
    if message.role != "assistant" and not (is_result and message.role == "computer"):
        return False
    return is_result or isinstance(message, _ANSWERS) or message.type == "compaction" or message.type in TEXTLESS_BLOCKS


def _code_tool(code: m.CodeMessage) -> str:
    """Return the server tool that runs such code."""
    return code.name if code.name in CODE_TOOLS else TOOL_OF_LANGUAGE.get(code.format or "", "code_execution")


def _caller(message: Message) -> dict[str, Any]:
    return {"caller": message.metadata["caller"]} if "caller" in message.metadata else {}


def _usage(usage: e.Usage | None) -> dict[str, Any]:
    """Usage with this API's keys, also where it came from OpenAI's."""
    if usage is None:
        return {"output_tokens": 0}
    wire = {"input_tokens": usage.input_tokens, **usage.details, "output_tokens": usage.output_tokens}
    for key in ("prompt_tokens_details", "input_tokens_details"):
        cached = as_object(wire.pop(key, None)).get("cached_tokens")
        if isinstance(cached, int) and 0 < cached <= usage.input_tokens:
            wire |= {"input_tokens": usage.input_tokens - cached, "cache_read_input_tokens": cached}
    for key in ("completion_tokens_details", "output_tokens_details"):
        details = as_object(wire.get(key))
        if "thinking_tokens" not in details and key in wire:
            del wire[key]
        if isinstance(reasoning := details.get("reasoning_tokens"), int):
            wire["output_tokens_details"] = {"thinking_tokens": reasoning}
    return wire
