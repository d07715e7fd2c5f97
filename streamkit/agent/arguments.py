"""Checks of the arguments that an agent is made with. Each raises `UsageError`, which names the argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, cast

from ..arguments import check_count, check_kind
from ..errors import UsageError
from ..handlers import Handler, no_handler

if TYPE_CHECKING:
    from ..retry import Retry

__all__ = [
    "check_limits",
    "check_texts",
    "checked_fallbacks",
    "checked_handlers",
    "checked_retry",
    "checked_tag",
    "checks_names",
]

_P = ParamSpec("_P")


def checks_names(init: Callable[_P, None]) -> Callable[_P, None]:
    """Make a constructor say which of its required arguments is missing, and which other one may be meant for it."""

    @wraps(init)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> None:
        kind = type(args[0]).__name__
        if len(args) < 2 and "client" not in kwargs:
            raise UsageError(f"{kind} needs a client: `{kind}(openai.OpenAI(), model=…)`")
        if "model" not in kwargs:
            meant = get_close_matches("model", kwargs, 1)
            raise UsageError(f"{kind} needs `model=`" + (f"; did you mean that by {meant[0]!r}?" if meant else ""))
        init(*args, **kwargs)

    return checked


def check_limits(max_steps: int, max_total_tokens: int | None, output_limit: int) -> None:
    """Raise `UsageError` where one of an agent's limits is not a count."""
    check_count("max_steps", max_steps)
    check_count("max_total_tokens", max_total_tokens, or_none=True)
    check_count("output_limit", output_limit, least=0)


def check_texts(**texts: str) -> None:
    """Raise `UsageError` where one of an agent's texts is none."""
    for name, text in texts.items():
        check_kind(name, text, str)


def checked_tag(tag: str | None) -> str | None:
    """Return the `reasoning_tag` of an agent. Raises `UsageError` if it is not a name."""
    if tag is not None:
        from ..core.reasoning_tag import ReasoningTag  # few agents have one

        ReasoningTag(tag)
    return tag


def checked_handlers(handlers: object) -> list[Handler]:
    """Return the handlers of every stream. Raises `UsageError` where one is not a handler."""
    if not isinstance(handlers, (list, tuple)):
        raise UsageError(f"`handlers` is a list of handlers, not {handlers!r}")
    for handler in cast("Sequence[object]", handlers):
        if not isinstance(handler, Handler):
            raise no_handler(handler)
    return [*cast("Sequence[Handler]", handlers)]


def checked_retry(retry: Retry | int | None) -> Retry | None:
    """Return the `Retry` that `retry=` means. Raises `UsageError` if it is none."""
    if retry is None:
        return None
    from ..retry import checked_retry  # few agents have one

    return checked_retry(retry)


def checked_fallbacks(fallbacks: object) -> tuple[tuple[Any, str], ...]:
    """Return the clients and models of the fallbacks. Raises `UsageError` where one is something else."""
    pairs: list[Any] = [*cast("Sequence[Any]", fallbacks)] if isinstance(fallbacks, (list, tuple)) else [None]
    if not all(map(_is_client_and_model, pairs)):
        raise UsageError(f"`fallbacks` is a list of `(client, model)`, not {fallbacks!r}")
    return tuple(pairs)


def _is_client_and_model(pair: Any) -> bool:
    try:
        _, model = pair
    except (TypeError, ValueError):
        return False
    return isinstance(model, str) and not isinstance(pair, str)
