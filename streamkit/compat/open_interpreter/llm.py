"""`interpreter.llm`: which model is used, and where.

Models have the names that Open Interpreter gives them: `provider/model`, and the model alone for OpenAI and Anthropic.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, NoReturn

from ...errors import UsageError

__all__ = ["LLM_SETTINGS", "Llm"]


class _LlmProvider(NamedTuple):
    """A provider's Chat Completions server. `key_variable` is the environment variable with its key; "" if none is needed."""

    url: str
    key_variable: str


_PROVIDERS = {
    "ollama": _LlmProvider("http://localhost:11434/v1", ""),
    "ollama_chat": _LlmProvider("http://localhost:11434/v1", ""),
    "lm_studio": _LlmProvider("http://localhost:1234/v1", ""),
    "openrouter": _LlmProvider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": _LlmProvider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": _LlmProvider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": _LlmProvider("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "together_ai": _LlmProvider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
}
_MAX_TOKENS = {"openai_responses": "max_output_tokens", "openai_chat": "max_tokens", "anthropic": "max_tokens"}
LLM_SETTINGS = (
    *("model", "api_key", "api_base", "api_version", "max_tokens", "temperature", "context_window"),
    *("supports_functions", "supports_vision", "client"),
)
"""The attributes of `Llm`."""
_NAMES = (*LLM_SETTINGS, "_clients")


class Llm:
    """The model, and how it is reached.

    Attributes:
        model: the name, such as `gpt-5-mini`, `claude-sonnet-4-5`, `ollama/llama3`, `openrouter/…`.
        api_key: in place of the key in the environment.
        api_base: the address of any server that speaks Chat Completions, in place of the provider's own.
        max_tokens, temperature: sent with each request, if set.
        supports_vision: False if the model takes no images.
        supports_functions: cannot be False, because models run code by a function call.
        context_window: has no effect: each request sends the complete conversation.
        client: a client of openai or anthropic, to use instead of one made from the other attributes.

    Raises:
        UsageError: on setting an attribute that does not exist, or a value that is not supported.
    """

    __slots__ = _NAMES

    def __init__(self) -> None:
        self.model = "gpt-5-mini"
        self.api_key: str | None = None
        self.api_base: str | None = None
        self.api_version: str | None = None
        self.max_tokens: int | None = None
        self.temperature: float | None = None
        self.context_window: int | None = None
        self.supports_functions: bool | None = None
        self.supports_vision: bool | None = None
        self.client: Any = None
        self._clients: dict[tuple[str, str | None, str | None], Any] = {}  # those made here, by their arguments

    def __getattr__(self, name: str) -> NoReturn:  # called for attributes that do not exist
        raise AttributeError(_unsupported(name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _NAMES:
            raise UsageError(_unsupported(name))
        if name == "supports_functions" and value is False:
            raise UsageError(
                "interpreter.llm.supports_functions = False is not supported, because code is run by a function call: set "
                "interpreter.llm.model to one that can call functions"
            )
        if name == "api_version" and value is not None:
            raise UsageError(
                "interpreter.llm.api_version is not supported: set interpreter.llm.client to an AzureOpenAI client"
            )
        object.__setattr__(self, name, value)

    def resolve(self, *, offline: bool) -> tuple[Any, str]:
        """Return the client, and the model's name at its provider.

        Args:
            offline: whether the model must be on this machine, or at `api_base`.

        Raises:
            UsageError: the model has an unknown provider, or one that is not offline.
        """
        provider, model = self._provider_and_model()
        if self.client is not None:
            return self.client, model
        server = _PROVIDERS.get(provider)
        url = self.api_base or (server.url if server is not None else None)
        if offline and self.api_base is None and (server is None or server.key_variable):
            raise UsageError("offline: set interpreter.llm.api_base to a server on this machine")
        kind = "anthropic" if provider == "anthropic" and url is None else "openai"
        key = self.api_key or (os.environ.get(server.key_variable, "") or "none" if server is not None else None)
        return self._client(kind, url, key), model

    def _provider_and_model(self) -> tuple[str, str]:
        provider, _, model = self.model.partition("/")
        providers = ("openai", "anthropic", *_PROVIDERS)
        if provider in providers and model:
            return provider, model
        if "/" in self.model and self.api_base is None and self.client is None:
            raise UsageError(
                f"the provider of {self.model!r} is not known; set interpreter.llm.api_base, or begin the name with one "
                f"of: {', '.join(f'{name}/' for name in providers)}"
            )
        return "anthropic" if self.model.startswith("claude") else "openai", self.model

    def close(self) -> None:
        """Close the clients that were made here, not the attribute `client`. The next chat makes a new one."""
        while self._clients:
            self._clients.popitem()[1].close()

    def options(self, protocol: str) -> dict[str, Any]:
        """Return the options of each request."""
        options = {_MAX_TOKENS[protocol]: self.max_tokens, "temperature": self.temperature}
        return {key: value for key, value in options.items() if value is not None}

    def _client(self, kind: str, url: str | None, key: str | None) -> Any:
        arguments = (kind, url, key)
        if arguments not in self._clients:
            self._clients[arguments] = _anthropic(key) if kind == "anthropic" else _openai(url, key)
        return self._clients[arguments]


def _unsupported(name: str) -> str:
    if name == "max_output":
        return "interpreter.llm.max_output is not supported: it is interpreter.max_output"
    return f"interpreter.llm.{name} is not supported; the attributes are: {', '.join(LLM_SETTINGS)}"


def _anthropic(key: str | None) -> Any:
    try:
        import anthropic
    except ImportError as error:
        raise UsageError('Claude needs an extra: pip install "streamkit-sdk[anthropic]"') from error
    return anthropic.Anthropic(api_key=key)


def _openai(url: str | None, key: str | None) -> Any:
    import openai

    if key is None and url is not None and not os.environ.get("OPENAI_API_KEY"):
        key = "none"  # the client requires one, most local servers do not
    return openai.OpenAI(base_url=url, api_key=key)
