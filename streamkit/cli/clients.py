"""The clients of the models that the commands talk to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    from ..computer import Computer

__all__ = ["DEFAULT_MODEL", "client_for", "computer_here", "openai_client"]

DEFAULT_MODEL = "gpt-5.4-mini"


def client_for(model: str | None, base_url: str | None) -> tuple[Any, str]:
    """A client, and the name of the model: Anthropic's client for its models, else openai's.

    Args:
        model: the name, None for `DEFAULT_MODEL`.
        base_url: the address of a compatible server; None for the provider's own.

    Raises:
        UsageError: there is neither a key nor a server, or the client is not installed.
    """
    if model is not None and model.startswith("claude") and base_url is None:
        return _anthropic_client(), model
    if not os.environ.get("OPENAI_API_KEY") and base_url is None:
        raise UsageError(
            "there is no model to talk to: set OPENAI_API_KEY, or pass --base-url for a server of your own, or "
            "--model claude-… with ANTHROPIC_API_KEY set (`streamkit demo` needs none of these)"
        )
    return openai_client(base_url), model or DEFAULT_MODEL


def openai_client(base_url: str | None) -> Any:
    """openai's client, for OpenAI or the server at this address. Servers other than OpenAI's seldom need a key."""
    import openai

    return openai.OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY") or "none", max_retries=1)


def _anthropic_client() -> Any:
    if not os.environ.get("ANTHROPIC_API_KEY"):
        raise UsageError("ANTHROPIC_API_KEY is not set")
    try:
        import anthropic
    except ImportError as error:
        raise UsageError("Claude needs its client: pip install 'streamkit-sdk[anthropic]'") from error
    return anthropic.Anthropic(max_retries=1)


def computer_here() -> Computer | None:
    """A computer that runs code; None where there can be none, because the system is not a POSIX one.

    Raises:
        UsageError: the extra that it needs is not installed.
    """
    try:
        from ..computer import Computer
    except ImportError as error:
        if hasattr(os, "fork"):
            raise UsageError(str(error)) from error
        return None
    return Computer()
