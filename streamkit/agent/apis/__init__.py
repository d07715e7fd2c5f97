"""The APIs that an agent can use: one module and one entry in `APIS` for each."""

from .anthropic import AnthropicApi
from .api import Api, host_of, is_refusal
from .bedrock import BedrockApi
from .chat import ChatApi
from .cohere import CohereApi
from .gemini import GeminiApi
from .ollama import OllamaApi
from .responses import ResponsesApi
from .tool_schemas import tool_name

__all__ = ["APIS", "Api", "host_of", "is_refusal", "tool_name"]

APIS: dict[str, type[Api]] = {
    api.protocol: api for api in (ResponsesApi, ChatApi, AnthropicApi, GeminiApi, CohereApi, OllamaApi, BedrockApi)
}
"""By protocol, in the order in which a client is shown to them."""
