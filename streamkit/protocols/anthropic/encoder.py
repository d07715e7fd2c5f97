"""Canonical events on their way out, as a stream of the Messages API. The table says what the protocol cannot tell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ... import events as e
from ... import messages as m
from ...messages import Message
from .. import base
from .blocks import KEPT
from .output import SERVER_TOOLS, arguments_of, block_of, cited, console_block, result_block
from .wire import CODE, ENDS, LANGUAGES, json_text, mapping, text, without

__all__ = ["Encoder"]

# What other protocols call a stop_reason. Those that are nowhere here are told by how the run ended.
_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_OWN_REASONS = frozenset((*ENDS, "end_turn", "stop_sequence", "tool_use"))
_IN_DELTA = ("container", "stop_details")
_BESIDE_DELTA = ("context_management", "input_transformations")


class Encoder(base.Encoder):
    """Canonical events to Messages events, all in one message.

    | canonical | here |
    |---|---|
    | the assistant's text, reasoning, tool calls | blocks `text`, `thinking`, `tool_use`, each at its own index |
    | reasoning's format `summary` | nothing: it is `thinking` |
    | redacted reasoning | `redacted_thinking`; its data is what `metadata` has as `data` or `encrypted_content` |
    | a refusal | the `explanation` of a stop_reason `refusal`, which makes the run incomplete |
    | code, console, and files that code wrote | `server_tool_use` of `code_execution` or, in shell, of `bash_code_execution`, and its result |
    | code in other languages | the same, as Python |
    | a call that its provider ran, and its output | `server_tool_use` if Anthropic has such a tool, else `mcp_tool_use`, and the result |
    | the output of a call that we ran | nothing: it does not come from the model |
    | the input of a custom tool, which is text | an object with it as `input` |
    | a citation of another provider | that of a page, or of a document: its url, title, quote and file_id alone |
    | a compaction, a fallback, an MCP server's tools, an uploaded file | the same |
    | a run's id, model, usage, `stop_sequence`, `stop_details`, `container`, `context_management` | the same |
    | usage that is told after the first content | in `message_delta` alone, of which the SDK's helper takes no `service_tier`, `inference_geo` or `cache_creation` |
    | its created_at, the rest of its metadata | nothing |
    | its finish_reason | the same, or Anthropic's word for it: `length` is `max_tokens` |
    | none, or one without such a word | `max_tokens` if incomplete, `tool_use` where a call is ours, else `end_turn` |
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
        self._begun = self._over = False
        self._next = 0
        self._blocks: dict[str, int] = {}  # the indexes of blocks that are open, by message id
        self._streamed: set[str] = set()  # code whose JSON has begun
        self._tools: dict[str, str] = {}  # which tool ran the code, by call id
        self._executed: set[str] = set()  # the calls that the provider ran
        self._printed: dict[str, dict[str, list[str]]] = {}  # by message id and stream
        self._files: dict[str, list[str]] = {}  # by call id
        self._newest_code = ""
        self._refusal = ""
        self._called = False

    def event_name(self, item: Mapping[str, Any]) -> str | None:
        name: str = item["type"]
        return name

    def feed(self, event: e.Event) -> Iterable[dict[str, Any]]:
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
            case e.StreamException(error=name, message=message) if not self._over:
                self._over = True
                yield {"type": "error", "error": {"type": name, "message": message}}
            case e.Created(message=message) if _expressible(message):
                yield from self._created(message)
            case e.Delta(snapshot=Message() as message, replace=False) if event.value and _expressible(message):
                yield from self._created(message)
                yield from self._grow(message, event)
            case e.AnnotationAdded(snapshot=m.TextMessage() as message) if message.id in self._blocks:
                yield self._delta(message, {"type": "citations_delta", "citation": dict(cited(event.annotation))})
            case e.Done(message=message) if _expressible(message):
                yield from self._done(message)
            case _:
                pass

    # -- the message

    def _begin(self) -> Iterator[dict[str, Any]]:
        """The start, once. It waits for the first content or usage, so that it has the usage where that comes first."""
        if self._begun:
            return
        self._begun = True
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
        if self._over:
            return
        self._over = True
        if run.status in ("failed", "expired") or run.error is not None:  # cut off is no end that the model chose
            error = {"type": "api_error", "message": f"the run ended as {run.status}", **(run.error or {})}
            request = {"request_id": error.pop("request_id")} if "request_id" in error else {}
            yield {"type": "error", "error": error, **request}
            return
        known = run.metadata
        details = known.get("stop_details")
        if self._refusal and details is None:
            details = {"type": "refusal", "category": None, "explanation": self._refusal}
        delta = {"stop_reason": self._reason(run), "stop_sequence": known.get("stop_sequence")}
        more = {key: value for key, value in {**known, "stop_details": details}.items() if value is not None}
        delta |= {key: more[key] for key in _IN_DELTA if key in more}
        beside = {key: more[key] for key in _BESIDE_DELTA if key in more}
        yield {"type": "message_delta", "delta": delta, "usage": _usage(run.usage or self._usage), **beside}
        yield {"type": "message_stop"}

    def _reason(self, run: e.Run) -> str:
        given = run.finish_reason or ""
        if self._refusal:
            return "refusal"
        if given in _OWN_REASONS:
            return given
        ends = {"incomplete": "max_tokens", "requires_action": "tool_use"}
        return _REASONS.get(given) or ends.get(run.status) or ("tool_use" if self._called else "end_turn")

    # -- its blocks

    def _start(self, message: Message, block: Mapping[str, Any]) -> dict[str, Any]:
        index = self._blocks[message.id] = self._next
        self._next += 1
        return {"type": "content_block_start", "index": index, "content_block": dict(block)}

    def _delta(self, message: Message, delta: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._blocks[message.id], "delta": dict(delta)}

    def _stop(self, message: Message) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": self._blocks.pop(message.id)}

    def _whole(self, message: Message, block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        yield self._start(message, block)
        yield self._stop(message)

    def _created(self, message: Message) -> Iterator[dict[str, Any]]:
        """The start of a block that grows."""
        if message.id in self._blocks:
            return
        match message:
            case m.TextMessage():
                yield self._start(message, {"type": "text", "text": ""})
            case m.ReasoningMessage() if message.format != "redacted":
                yield self._start(message, {"type": "thinking", "thinking": "", "signature": ""})
            case m.ToolCallMessage():
                yield self._start(message, self._call(message))
            case m.CodeMessage():
                call_id = self._newest_code = message.call_id or message.id
                tool = self._tools[call_id] = _tool(message)
                block: dict[str, Any] = {"type": "server_tool_use", "id": call_id, "name": tool, "input": {}}
                yield self._start(message, {**block, **_caller(message)})
            case _:
                pass

    def _call(self, call: m.ToolCallMessage) -> dict[str, Any]:
        id, name, known = call.call_id or call.id, call.name or "", call.metadata
        block: dict[str, Any] = {"id": id, "name": name, "input": {}, **_caller(call)}
        if not call.provider_executed:
            self._called = True
            toolset = {"toolset_name": known["toolset_name"]} if "toolset_name" in known else {}
            return {"type": "tool_use", **block, **toolset}
        self._executed.add(id)
        if text(known.get("block_type")) == "server_tool_use" or name in SERVER_TOOLS:
            return {"type": "server_tool_use", **block}
        server = text(known.get("server_name")) or text(known.get("server_label"))
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
                head = "" if message.id in self._streamed else f'{{"{CODE[_tool(message)][1]}":"'
                self._streamed.add(message.id)
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
                yield from self._whole(message, {"type": "redacted_thinking", "data": text(data)})
            case m.TextMessage() | m.ReasoningMessage() | m.ToolCallMessage() | m.CodeMessage():
                yield from self._created(message)
                yield from self._rest(message)
                cut = isinstance(message, m.ToolCallMessage | m.CodeMessage) and message.status != "completed"
                if not cut:
                    yield self._stop(message)
            case m.ConsoleMessage():
                yield from self._whole(message, self._console(message))
            case m.FileMessage() if message.call_id in self._tools:
                self._files.setdefault(message.call_id or "", []).append(message.content)
            case m.ToolOutputMessage():
                if "block_type" in message.metadata or message.call_id in self._executed:
                    yield from self._whole(message, result_block(message))
            case Message(type="compaction"):
                yield from self._compaction(message)
            case _ if (block := block_of(message)) is not None:
                yield from self._whole(message, block)
            case _:
                pass

    def _rest(self, message: Message) -> Iterator[dict[str, Any]]:
        """What only a done message knows."""
        known = message.metadata
        if isinstance(message, m.ReasoningMessage) and (signature := text(known.get("signature"))):
            yield self._delta(message, {"type": "signature_delta", "signature": signature})
        elif isinstance(message, m.ToolCallMessage) and known.get("custom") is True and message.content:
            whole = json_text(arguments_of(message))
            yield self._delta(message, {"type": "input_json_delta", "partial_json": whole})
        elif isinstance(message, m.CodeMessage) and message.status == "completed":
            more = mapping(known.get("input"))
            streamed = message.id in self._streamed
            if more or streamed:
                tail = json_text(more)[1:] if more else "}"
                head = ('",' if more else '"') if streamed else "{"
                yield self._delta(message, {"type": "input_json_delta", "partial_json": head + tail})

    def _console(self, message: m.ConsoleMessage) -> dict[str, Any]:
        call_id = message.call_id or self._newest_code or message.id
        printed = {stream: "".join(pieces) for stream, pieces in self._printed.pop(message.id, {}).items()}
        files = self._files.pop(call_id, [])
        block = console_block(message, printed, tool=self._tools.get(call_id, ""), files=files)
        return {**block, "tool_use_id": call_id}

    def _compaction(self, message: Message) -> Iterator[dict[str, Any]]:
        block = dict(mapping(block_of(message)))
        told = {key: block.pop(key, None) for key in ("content", "encrypted_content")}
        yield self._start(message, {**block, "content": None})
        if any(told.values()):
            yield self._delta(message, {"type": "compaction_delta", **without(told)})
        yield self._stop(message)


_KINDS = (m.TextMessage, m.RefusalMessage, m.ReasoningMessage, m.ToolCallMessage, m.CodeMessage)
_BESIDE = (m.ConsoleMessage, m.ToolOutputMessage, m.FileMessage)


def _expressible(message: Message) -> bool:
    """Whether a model that answers could have told it."""
    if message.choice != 0:
        return False
    beside = isinstance(message, _BESIDE)
    if message.role != "assistant" and not (beside and message.role == "computer"):
        return False
    return beside or isinstance(message, _KINDS) or message.type == "compaction" or message.type in KEPT


def _tool(code: m.CodeMessage) -> str:
    """The server tool that runs such code."""
    return code.name if code.name in CODE else LANGUAGES.get(code.format or "", "code_execution")


def _caller(message: Message) -> dict[str, Any]:
    return {"caller": message.metadata["caller"]} if "caller" in message.metadata else {}


def _usage(usage: e.Usage | None) -> dict[str, Any]:
    """Usage as this API tells it, also where OpenAI gave it."""
    if usage is None:
        return {"output_tokens": 0}
    told = {"input_tokens": usage.input_tokens, **usage.details, "output_tokens": usage.output_tokens}
    for key in ("prompt_tokens_details", "input_tokens_details"):
        cached = mapping(told.pop(key, None)).get("cached_tokens")
        if isinstance(cached, int) and 0 < cached <= usage.input_tokens:
            told |= {"input_tokens": usage.input_tokens - cached, "cache_read_input_tokens": cached}
    for key in ("completion_tokens_details", "output_tokens_details"):
        spent = mapping(told.get(key))
        if "thinking_tokens" not in spent and key in told:
            del told[key]
        if isinstance(thought := spent.get("reasoning_tokens"), int):
            told["output_tokens_details"] = {"thinking_tokens": thought}
    return told
