"""Model servers that refuse what the real ones refuse, with their statuses and texts, for tests of what goes back.

`StrictServer` is real HTTP on loopback. Its `answers` are the bodies that it sends, in order; `check` reads each request and
returns the text of a refusal, which is sent with status 400, or None. `requests` are the bodies that it took.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from streamkit.protocols.amazon_framer import amazon_message

Check = Callable[[Mapping[str, Any]], str | None]


class StrictServer:
    """A server on loopback, for `with`. It sends Server-Sent Events, lines of JSON, or Amazon's messages."""

    def __init__(
        self, answers: Iterable[Sequence[Mapping[str, Any]]], check: Check, *, framing: str = "text/event-stream"
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        bodies = map(_FRAMINGS[framing], [*answers])
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                refusal = check(body)
                if refusal is None:
                    outer.requests.append(body)
                    self._send(200, framing, next(bodies))
                else:
                    outer.refusals.append(refusal)
                    error = {"error": {"message": refusal, "type": "invalid_request_error"}, "message": refusal}
                    self._send(400, "application/json", json.dumps(error).encode())

            def _send(self, status: int, content_type: str, content: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _lines(items: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(item)}\n" for item in items).encode()


def _sse(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Items as SSE; `[DONE]` after chunks."""
    names = [f"event: {item['type']}\n" if "type" in item else "" for item in items]
    frames = [f"{name}data: {json.dumps(item)}\n\n" for name, item in zip(names, items, strict=True)]
    return "".join([*frames, "data: [DONE]\n\n" if items and "choices" in items[0] else ""]).encode()


def _amazon(items: Sequence[Mapping[str, Any]]) -> bytes:
    """Items under their names as Amazon's messages."""
    named = [(name, value) for item in items for name, value in item.items()]
    return b"".join(amazon_message(name, json.dumps(value).encode()) for name, value in named)


AMAZON = "application/vnd.amazon.eventstream"
_FRAMINGS = {"text/event-stream": _sse, "application/x-ndjson": _lines, AMAZON: _amazon}


# -- Responses


def response_events(id: str, *items: Mapping[str, Any], store: bool = True) -> list[dict[str, Any]]:
    """A streamed response with these output items, each of which comes complete."""
    response: dict[str, Any] = {"id": id, "object": "response", "status": "in_progress", "model": "m", "output": []}
    response |= {"created_at": 1, "store": store}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": dict(response)}]
    for index, item in enumerate(items):
        begun = {
            key: item[key] for key in item if key in ("id", "type", "call_id", "name", "container_id", "execution")
        }
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    final = {**response, "status": "completed", "output": list(items), "usage": None}
    return [*events, {"type": "response.completed", "response": final}]


_CLIENT_TYPES = ("message", "function_call_output", "custom_tool_call_output", "mcp_approval_response")
_CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def check_responses(sent: Iterable[Sequence[Mapping[str, Any]]], *, stored: bool = True) -> Check:
    """The rules of the Responses API for requests without `previous_response_id`.

    Args:
        sent: the output items of the responses so far and to come, by response.
        stored: whether the server stores responses, so that reasoning without encrypted content can be found.
    """
    own = {item["id"]: (list(items), place) for items in sent for place, item in enumerate(items)}

    def check(body: Mapping[str, Any]) -> str | None:
        items = [item for item in body["input"] if isinstance(item, dict)]
        calls = {item["call_id"] for item in items if item.get("type") in _CALLS}
        outputs = {item["call_id"] for item in items if item.get("type") in _CALLS.values()}
        for missing in sorted(calls - outputs):
            return f"No tool output found for function call {missing}."
        for orphan in sorted(outputs - calls):
            return f"No tool call found for function call output with call_id {orphan}."
        faults = (_fault_of_item(place, items, own, stored=stored) for place in range(len(items)))
        return next((fault for fault in faults if fault is not None), None)

    return check


def _fault_of_item(
    place: int, items: list[Any], own: Mapping[str, tuple[list[Any], int]], *, stored: bool
) -> str | None:
    item = items[place]
    id, type = item.get("id"), item.get("type", "message")
    if id is None:
        return None if type in (*_CLIENT_TYPES, *_CALLS) else f"Missing required parameter: 'input[{place}].id'."
    if id not in own:
        return f"Item with id '{id}' not found."
    answer, number = own[id]
    if type == "reasoning":
        if not stored and not item.get("encrypted_content"):
            return f"Item with id '{id}' not found. Items are not persisted when `store` is set to false."
        if item.get("encrypted_content") != answer[number].get("encrypted_content"):
            return f"The encrypted content for item {id} could not be verified."
        following = items[place + 1].get("id") if place + 1 < len(items) else None
        if following != answer[number + 1]["id"]:
            return f"Item '{id}' of type 'reasoning' was provided without its required following item."
    if number and answer[number - 1]["type"] == "reasoning":
        required = answer[number - 1]["id"]
        if not place or items[place - 1].get("id") != required:
            return f"Item '{id}' of type '{type}' was provided without its required 'reasoning' item: '{required}'."
    return None if item == answer[number] else f"Item '{id}' was altered: {item} is not {answer[number]}"


# -- Chat Completions


def chat_chunks(*deltas: Mapping[str, Any], finish_reason: str = "stop") -> list[dict[str, Any]]:
    """A streamed answer with these deltas."""
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return [*chunks, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]}]


def check_chat(required: Callable[[Mapping[str, Any]], str | None], allowed: Sequence[str]) -> Check:
    """The rules that all servers of the API have, and those of one.

    Args:
        required: the fault of one assistant's message with tool calls, None if it has none.
        allowed: the keys of an assistant's message, beside OpenAI's, that the server takes.
    """
    known = {"role", "content", "name", "tool_calls", "refusal", "audio", *allowed}

    def check(body: Mapping[str, Any]) -> str | None:
        open_calls: list[str] = []
        for place, message in enumerate(body["messages"]):
            if message["role"] == "tool":
                if message["tool_call_id"] not in open_calls:
                    return "messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
                open_calls.remove(message["tool_call_id"])
                continue
            if open_calls:
                return (
                    "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                    f"'tool_call_id'. The following tool_call_ids did not have response messages: {open_calls}"
                )
            if unknown := message.keys() - known:
                return f"Additional properties are not allowed ({sorted(unknown)} was unexpected) - 'messages.{place}'"
            if message["role"] == "assistant" and "tool_calls" in message:
                open_calls = [call["id"] for call in message["tool_calls"]]
                if (fault := required(message)) is not None:
                    return fault
        return f"did not have response messages: {open_calls}" if open_calls else None

    return check


# -- Anthropic Messages


def anthropic_events(id: str, *blocks: Mapping[str, Any], stop_reason: str = "end_turn") -> list[dict[str, Any]]:
    """A streamed answer with these blocks. Texts, thoughts and inputs come as deltas, as the API sends them."""
    message = {"id": id, "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": {"input_tokens": 1}}}]
    for index, block in enumerate(blocks):
        begun, deltas = dict(block), list[dict[str, Any]]()
        match block["type"]:
            case "text":
                begun["text"], deltas = "", [{"type": "text_delta", "text": block["text"]}]
            case "thinking":
                begun |= {"thinking": "", "signature": ""}
                deltas = [
                    {"type": "thinking_delta", "thinking": block["thinking"]},
                    {"type": "signature_delta", "signature": block["signature"]},
                ]
            case "tool_use" | "server_tool_use":
                begun["input"] = {}
                deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            case _:
                pass
        events.append({"type": "content_block_start", "index": index, "content_block": begun})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    usage = {"output_tokens": 1}
    delta = {"stop_reason": stop_reason}
    return [*events, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def check_anthropic(sent: Iterable[Sequence[Mapping[str, Any]]]) -> Check:
    """The rules of the Messages API: blocks unchanged, thinking first, results right after their calls."""
    answers = [list(blocks) for blocks in sent]

    def check(body: Mapping[str, Any]) -> str | None:
        turns = body["messages"]
        for place, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            blocks = turn["content"]
            types = [block["type"] for block in blocks]
            if "thinking" in types and types[0] != "thinking":
                return f"messages.{place}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{types[0]}`."
            if blocks not in answers:
                return (
                    f"messages.{place}.content: `thinking` or `redacted_thinking` blocks in the latest assistant message "
                    "cannot be modified. These blocks must remain as they were in the original response."
                )
            called = [block["id"] for block in blocks if block["type"] == "tool_use"]
            following = turns[place + 1]["content"] if place + 1 < len(turns) else []
            answered = [block.get("tool_use_id") for block in following[: len(called)]]
            if sorted(called) != sorted(map(str, answered)):
                return f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {called}"
        return None

    return check


# -- Gemini


def gemini_chunks(*parts: Mapping[str, Any], id: str = "r") -> list[dict[str, Any]]:
    """A streamed answer with these parts, each in a chunk of its own."""
    head = {"modelVersion": "m", "responseId": id, "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}}
    chunks: list[dict[str, Any]] = [
        {"candidates": [{"content": {"role": "model", "parts": [part]}}], **head} for part in parts
    ]
    return [*chunks, {"candidates": [{"content": {"role": "model"}, "finishReason": "STOP"}], **head}]


_PAYLOADS = (
    "text",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
_NO_SIGNATURE = "skip_thought_signature_validator"


def check_gemini(sent: Iterable[Sequence[Mapping[str, Any]]]) -> Check:
    """The rules of Gemini 3: signatures unchanged on their parts, the first call of each answer of the present turn signed, and as
    many outputs as calls, in their order, in one content right after them.

    Args:
        sent: the parts of the answers so far and to come.
    """
    answers = [list(parts) for parts in sent]
    signed = {
        _bytes(part["thoughtSignature"]): part for parts in answers for part in parts if "thoughtSignature" in part
    }

    def check(body: Mapping[str, Any]) -> str | None:
        contents = body["contents"]
        if contents[-1]["role"] != "user":
            return "Please ensure that single turn requests end with a user role."
        turn = max((place for place, content in enumerate(contents) if _is_question(content)), default=0)
        for place, content in enumerate(contents):
            following = contents[place + 1]["parts"] if place + 1 < len(contents) else []
            fault = _fault_of_parts(content["parts"], signed) or _fault_of_calls(
                content["parts"], following, is_current=place > turn
            )
            if fault is not None:
                return f"contents[{place}]: {fault}"
        return None

    return check


def _bytes(signature: str) -> str:
    """A signature in one alphabet: the service reads both, and Google's client writes the other one."""
    return signature.translate(str.maketrans("-_", "+/"))


def _camel(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part with the names of JSON: the service reads those of protobuf too, and Google's client writes one of them."""
    tools = {key: part[key] for key in ("toolCall", "toolResponse") if key in part}
    renamed = {key: {**tool, "toolType": tool.get("tool_type", tool.get("toolType"))} for key, tool in tools.items()}
    return {**part, **{key: {k: v for k, v in tool.items() if k != "tool_type"} for key, tool in renamed.items()}}


def _is_question(content: Mapping[str, Any]) -> bool:
    return content["role"] == "user" and any("functionResponse" not in part for part in content["parts"])


def _fault_of_parts(parts: Sequence[Mapping[str, Any]], signed: Mapping[str, Any]) -> str | None:
    if not parts:
        return "contents.parts must not be empty."
    for part in parts:
        payloads = [key for key in part if key in _PAYLOADS]
        if len(payloads) > 1 or (not payloads and "thoughtSignature" not in part):
            return "required oneof field 'data' must have one initialized field"
        if part.get("text") == "" and "thoughtSignature" not in part:
            return "Unable to submit request because it must have a text parameter"
        signature = part.get("thoughtSignature")
        if signature in (None, _NO_SIGNATURE):
            continue
        if (original := signed.get(_bytes(signature))) is None:
            return "Thought signature is not valid."
        if _camel({**part, "thoughtSignature": ""}) != {**original, "thoughtSignature": ""}:
            return f"Thought signature is on another part: {part} is not {original}"
    return None


def _fault_of_calls(parts: Sequence[Any], following: Sequence[Any], *, is_current: bool) -> str | None:
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    outputs = [part["functionResponse"] for part in following if "functionResponse" in part]
    if not calls:
        return None
    first = next(part for part in parts if "functionCall" in part)
    if is_current and "thoughtSignature" not in first:
        return f"Function call is missing a thought_signature in functionCall parts: {calls[0]['name']}"
    if len(calls) != len(outputs):
        return "Please ensure that the number of function response parts is equal to the number of function call parts"
    for called, output in zip(calls, outputs, strict=True):
        if called["name"] != output["name"] or called.get("id") != output.get("id"):
            return f"functionResponse {output.get('id')} of {output['name']} does not match functionCall.id"
        if not isinstance(output["response"], dict):
            return "Invalid value at 'function_response.response' (type.googleapis.com/google.protobuf.Struct)"
    return None


# -- Bedrock's Converse


def converse_events(*blocks: Mapping[str, Any], stop_reason: str = "end_turn") -> list[dict[str, Any]]:
    """A streamed answer with these blocks, which are as they stand in a request."""
    events: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}]
    for index, block in enumerate(blocks):
        start, deltas = _pieces_of(block)
        if start:
            events.append({"contentBlockStart": {"contentBlockIndex": index, "start": start}})
        events += [{"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}} for delta in deltas]
        events.append({"contentBlockStop": {"contentBlockIndex": index}})
    usage = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}
    return [*events, {"messageStop": {"stopReason": stop_reason}}, {"metadata": {"usage": usage}}]


def _pieces_of(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The start of a block, and its deltas."""
    ((kind, value),) = block.items()
    if kind == "toolUse":
        start = {key: value[key] for key in value if key != "input"}
        return {kind: start}, [{kind: {"input": json.dumps(value["input"])}}]
    if kind == "toolResult":
        return {kind: {key: value[key] for key in value if key != "content"}}, [{kind: value["content"]}]
    if kind == "reasoningContent" and "reasoningText" in value:
        return {}, [{kind: {key: piece}} for key, piece in value["reasoningText"].items()]
    return {}, [{kind: value}]


def check_converse(sent: Iterable[Sequence[Mapping[str, Any]]]) -> Check:
    """The rules of Converse for Claude: roles alternate, answers unchanged with their reasoning first, a result for each call, in the
    user's next message, no empty text, and tools declared where there are calls.

    Args:
        sent: the blocks of the answers so far and to come.
    """
    answers = [list(blocks) for blocks in sent]

    def check(body: Mapping[str, Any]) -> str | None:
        turns = body["messages"]
        if [turn["role"] for turn in turns] != ["user", "assistant"] * (len(turns) // 2) + ["user"]:
            return (
                "A conversation must alternate between user and assistant roles, and start and end with a user message."
            )
        has_calls = any(_called(turn) or _answered(turn) for turn in turns)
        if has_calls and not body.get("toolConfig", {}).get("tools"):
            return "The toolConfig field must be defined when using toolUse and toolResult content blocks."
        for place, turn in enumerate(turns):
            called = _called(turns[place - 1]) if place else []
            fault = _fault_of_turn(turn, called, answers)
            if fault is not None:
                return f"messages.{place}: {fault}"
        return None

    return check


def _called(turn: Mapping[str, Any]) -> list[str]:
    """The ids of the calls that a turn leaves to the user."""
    calls = [block["toolUse"] for block in turn["content"] if "toolUse" in block]
    return [call["toolUseId"] for call in calls if call.get("type") != "server_tool_use"]


def _answered(turn: Mapping[str, Any]) -> list[str]:
    return [block["toolResult"]["toolUseId"] for block in turn["content"] if "toolResult" in block]


def _fault_of_turn(turn: Mapping[str, Any], called: Sequence[str], answers: Sequence[Any]) -> str | None:
    blocks = turn["content"]
    if not blocks:
        return f"The content field in the Message object at {turn['role']} is empty."
    if turn["role"] == "assistant":
        kinds = ["reasoningContent" in block for block in blocks]
        if all(kinds):
            return "The final block in an assistant message cannot be `thinking`."
        if any(kinds) and not kinds[0]:
            return "Expected `thinking` or `redacted_thinking`, but found another block first."
        return None if blocks in answers else f"An answer was altered: {blocks}"
    if sorted(called) != sorted(_answered(turn)):
        return f"Expected toolResult blocks for the following Ids: {called}"
    texts = [block for block in blocks if "text" in block]
    texts += [part for block in blocks if "toolResult" in block for part in block["toolResult"]["content"]]
    if any(part.get("text", "some").strip() == "" for part in texts):
        return "The text field in the ContentBlock object is blank."
    return None
