"""What is run under each tracer."""

from __future__ import annotations

__all__ = ["APIS_OF", "FACES"]

_OF_OPENAI = ("chat", "chat helper", "chat raw", "responses", "responses helper")
_OF_ANTHROPIC = ("messages", "messages helper", "beta messages", "beta messages helper")

APIS_OF = {
    "openinference": (*_OF_OPENAI, *_OF_ANTHROPIC),
    "logfire": (*_OF_OPENAI, *_OF_ANTHROPIC),
    "langfuse": ("chat", "responses"),
    "anthropic": _OF_ANTHROPIC,
}
"""The APIs that each tracer records. `anthropic` is what its SDK traces itself."""

FACES = ("sync", "asyncio", "trio")
