"""`interpreter.llm`: which model is asked, and where.

Models are named as Open Interpreter names them: a provider's name goes before the model's, unless it is OpenAI's or
Anthropic's. `api_base` is any server that speaks Chat Completions.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ...errors import UsageError

__all__ = ["Llm"]


class _Provider(NamedTuple):
    """Where a provider is asked. `key` names the environment variable with its key; "" where none is needed."""

    url: str
    key: str


_PROVIDERS = {
    "ollama": _Provider("http://localhost:11434/v1", ""),
    "ollama_chat": _Provider("http://localhost:11434/v1", ""),
    "lm_studio": _Provider("http://localhost:1234/v1", ""),
    "openrouter": _Provider("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "groq": _Provider("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": _Provider("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "deepseek": _Provider("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
    "together_ai": _Provider("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
}
_MAX_TOKENS = {"openai_responses": "max_output_tokens", "openai_chat": "max_tokens", "anthropic": "max_tokens"}
_NAMES = (
    *("model", "api_key", "api_base", "api_version", "max_tokens", "temperature", "context_window"),
    *("supports_functions", "supports_vision", "client", "_made"),
)


class Llm:
    """The model.

    Attributes:
        model: its name, as `gpt-5-mini`, `claude-sonnet-4-5`, `ollama/llama3`, `openrouter/…`.
        api_key, api_base: in place of the provider's own.
        max_tokens, temperature: sent with each request, if set.
        supports_vision: whether it is shown images.
        supports_functions: always true here: code comes by a function.
        context_window: is kept, and changes nothing: the whole conversation is sent.
        client: a client of openai or anthropic, to be used in the place of one made from these.
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
        self._made: tuple[Any, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _NAMES:
            raise UsageError(f"interpreter.llm.{name} is not served here; there are: {', '.join(_NAMES[:-1])}")
        if name == "supports_functions" and value is False:
            raise UsageError("a model that cannot call functions is not served here: code comes by a function")
        if name == "api_version" and value is not None:
            raise UsageError(
                "interpreter.llm.api_version is not served here: give an AzureOpenAI as interpreter.llm.client"
            )
        object.__setattr__(self, name, value)

    def resolve(self, *, offline: bool) -> tuple[Any, str]:
        """The client, and the model's own name.

        Raises:
            UsageError: it is not known where this model is asked, or that is not on this machine and must be.
        """
        provider, _, rest = self.model.partition("/")
        if provider not in (*_PROVIDERS, "openai", "anthropic") or not rest:
            provider, rest = "anthropic" if self.model.startswith("claude") else "openai", self.model
            if "/" in self.model and self.api_base is None and self.client is None:
                raise UsageError(
                    f"it is not known where {self.model!r} is asked; set interpreter.llm.api_base, or one of: "
                    f"{', '.join(f'{name}/…' for name in ('openai', 'anthropic', *_PROVIDERS))}"
                )
        if self.client is not None:
            return self.client, rest
        known = _PROVIDERS.get(provider)
        url = self.api_base or (known.url if known is not None else None)
        if offline and self.api_base is None and (known is None or known.key):
            raise UsageError("offline: set interpreter.llm.api_base to a server on this machine")
        anthropics = provider == "anthropic" and url is None
        key = self.api_key or (os.environ.get(known.key, "") or "none" if known is not None else None)
        return self._client("anthropic" if anthropics else "openai", url, key), rest

    def options(self, protocol: str) -> dict[str, Any]:
        """What is sent with each request."""
        given = {_MAX_TOKENS[protocol]: self.max_tokens, "temperature": self.temperature}
        return {key: value for key, value in given.items() if value is not None}

    def _client(self, kind: str, url: str | None, key: str | None) -> Any:
        wanted = (kind, url, key)
        if self._made is None or self._made[0] != wanted:
            made = _anthropic(key) if kind == "anthropic" else _openai(url, key)
            self._made = (wanted, made)
        return self._made[1]


def _anthropic(key: str | None) -> Any:
    try:
        import anthropic
    except ImportError as error:
        raise UsageError('Claude needs an extra: pip install "streamkit-sdk[anthropic]"') from error
    return anthropic.Anthropic(api_key=key)


def _openai(url: str | None, key: str | None) -> Any:
    import openai

    if key is None and url is not None and not os.environ.get("OPENAI_API_KEY"):
        key = "none"  # a server on this machine wants none, the client does
    return openai.OpenAI(base_url=url, api_key=key)
