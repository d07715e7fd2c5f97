"""The names and values of OpenTelemetry's semantic conventions for generative AI: this module alone knows them.

They are those of semantic-conventions 1.37 to 1.39, of which the registry of `gen_ai` is in development; so nothing of the
package `opentelemetry-semantic-conventions` is imported. What is not known is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..answers import Confirmation
from ..errors import SourceError
from ..events import Usage
from ..messages import Message, ReasoningMessage, TextMessage, ToolCallMessage, ToolOutputMessage
from ..protocols.values import as_object

__all__ = [
    "AGENT_NAME",
    "BUCKETS",
    "DURATION",
    "ERROR_TYPE",
    "FINISH_REASONS",
    "FIRST_CHUNK",
    "INPUT_MESSAGES",
    "INSTRUCTIONS",
    "OPERATION",
    "OUTPUT_MESSAGES",
    "OUTPUT_TYPE",
    "PROVIDER",
    "REQUEST_MODEL",
    "RESPONSE_ID",
    "RESPONSE_MODEL",
    "STREAM",
    "TIME_TO_FIRST_CHUNK",
    "TOKENS",
    "TOKEN_TYPE",
    "TOOL_ARGUMENTS",
    "TOOL_CALL_ID",
    "TOOL_NAME",
    "TOOL_RESULT",
    "TOOL_TYPE",
    "error_type",
    "instructions_text",
    "messages_text",
    "output_type",
    "provider_of",
    "usage_attributes",
]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
REQUEST_MODEL = "gen_ai.request.model"
STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
OUTPUT_TYPE = "gen_ai.output.type"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"

INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

DURATION = "gen_ai.client.operation.duration"
TIME_TO_FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
TOKENS = "gen_ai.client.token.usage"
TOKEN_TYPE = "gen_ai.token.type"

BUCKETS: Mapping[str, Sequence[float]] = {
    DURATION: (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    TIME_TO_FIRST_CHUNK: (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    TOKENS: (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864),
}
"""The boundaries that the conventions recommend, in seconds and in tokens."""

_PROVIDERS = {
    **{name: name for name in ("anthropic", "cohere", "ollama", "openai")},
    "gemini": "gcp.gen_ai",
}

# Where a provider counts a kind of token: the path in `Usage.details`.
_DETAILS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "gen_ai.usage.cache_read.input_tokens": (
        ("input_tokens_details", "cached_tokens"),
        ("prompt_tokens_details", "cached_tokens"),
        ("cache_read_input_tokens",),
        ("cachedContentTokenCount",),
        ("cached_tokens",),
    ),
    "gen_ai.usage.cache_creation.input_tokens": (
        ("input_tokens_details", "cache_write_tokens"),
        ("cache_creation_input_tokens",),
    ),
    "gen_ai.usage.reasoning.output_tokens": (
        ("output_tokens_details", "reasoning_tokens"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("thoughtsTokenCount",),
        ("reasoning_tokens",),
    ),
}


def provider_of(protocol: str | None) -> str | None:
    """Return the provider whose protocol this is, as the conventions name it; None for others."""
    return _PROVIDERS.get((protocol or "").partition("_")[0])


def usage_attributes(usage: Usage | None) -> dict[str, int]:
    """Return the token counts of a step or a run."""
    if usage is None:
        return {}
    counts = {"gen_ai.usage.input_tokens": usage.input_tokens, "gen_ai.usage.output_tokens": usage.output_tokens}
    for name, paths in _DETAILS.items():
        for path in paths:
            if (count := _at(usage.details, path)) is not None:
                counts[name] = count
                break
    return counts


def _at(value: Any, path: Iterable[str]) -> int | None:
    for key in path:
        value = as_object(value).get(key)
    return value if isinstance(value, int) else None


def error_type(error: BaseException) -> str:
    """Return the HTTP status of an error, else the name of its class."""
    status = error.status_code if isinstance(error, SourceError) else None
    return type(error).__qualname__ if status is None else str(status)


def output_type(options: Mapping[str, Any]) -> str | None:
    """Return the kind of output that these options of a request ask for; None if they ask for none."""
    formats = (options.get("response_format"), *(as_object(options.get(key)).get("format") for key in _FORMATS))
    kind = next((as_object(one).get("type") for one in formats if one), None)
    return _OUTPUT_TYPES.get(kind) if isinstance(kind, str) else None


_FORMATS = ("text", "output_config")  # the options of Responses and of Anthropic that have a format
_OUTPUT_TYPES = {"json_schema": "json", "json_object": "json", "text": "text"}


# -- content


def instructions_text(instructions: str) -> str:
    """Return the system prompt as the conventions' JSON text."""
    return _json([{"type": "text", "content": instructions}])


def messages_text(messages: Iterable[Message | Confirmation], finish_reason: str | None = None) -> str:
    """Return messages as the conventions' JSON text: neighbours of one role are the parts of one message. Of pictures, files and
    audio it has the kind alone.

    Args:
        messages: what is sent, or what was received. Answers to questions are left out.
        finish_reason: why the model stopped, for messages that were received.
    """
    groups: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, Confirmation):
            continue
        role = "tool" if message.role == "computer" else message.role
        if not groups or groups[-1]["role"] != role:
            groups.append({"role": role, "parts": []})
        groups[-1]["parts"].append(_part(message))
    if groups and finish_reason is not None:
        groups[-1]["finish_reason"] = finish_reason
    return _json(groups)


def _part(message: Message) -> dict[str, Any]:
    match message:
        case TextMessage():
            return {"type": "text", "content": message.content}
        case ReasoningMessage():
            return {"type": "reasoning", "content": message.content}
        case ToolCallMessage():
            call_id = message.call_id or message.id
            return {"type": "tool_call", "id": call_id, "name": message.name, "arguments": message.arguments}
        case ToolOutputMessage():
            return {"type": "tool_call_response", "id": message.call_id, "response": message.content}
        case _ if message.type in ("image", "file", "audio"):
            return {"type": message.type}
        case _:
            return {"type": message.type, "content": message.content}


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
