"""The APIs that an agent can use: one module and one entry in `APIS` for each."""

from .anthropic import AnthropicMessages
from .api import Api, host_of, is_refusal
from .bedrock import BedrockConverse
from .chat import Chat
from .cohere import Cohere
from .gemini import Gemini
from .ollama import Ollama
from .responses import Responses
from .tool_schemas import tool_name

__all__ = ["APIS", "Api", "host_of", "is_refusal", "tool_name"]

APIS: dict[str, type[Api]] = {
    api.protocol: api for api in (Responses, Chat, AnthropicMessages, Gemini, Cohere, Ollama, BedrockConverse)
}
"""By protocol, in the order in which a client is shown to them."""
