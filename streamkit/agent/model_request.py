"""The request of one model call, as an application's `before_request` sees it and may change it."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..answers import Confirmation
from ..core.steps import ApplicationFailed
from ..errors import UsageError
from ..messages import Message

__all__ = ["BeforeRequest", "ModelRequest", "checked_before_request", "prepared", "prepared_async"]


@dataclass(slots=True)
class ModelRequest:
    """The request that an agent is about to send to the model. `before_request` may change each of these, for this request alone.

        def before_request(request: ModelRequest) -> None:
            request.messages = shortened(request.messages)
            if request.step == 1:
                request.options["tool_choice"] = "required"

    Attributes:
        client: the client that sends it; another one may speak another protocol.
        model: the model's name.
        messages: the conversation as the model reads it: each call has its output, long outputs are cut, and so on. It is a
            list of its own: `agent.messages` stay as they are.
        instructions: the system prompt.
        tools: the schemas of the tools that the model is offered.
        options: further arguments of the client's method, such as `temperature`.
        step: the number of the model call in its run, from 1.
        attempt: the number of the attempt at that call, from 1, counted over the fallbacks too. Each gets a request of its own,
            as if none had been changed before.
        deps: the application's own object, which `agent.stream(deps=…)` received; None without one.
    """

    client: Any
    model: str
    messages: list[Message | Confirmation]
    instructions: str
    tools: list[Mapping[str, Any]]
    options: dict[str, Any]
    step: int
    attempt: int = 1
    deps: Any = field(default=None, repr=False)


BeforeRequest: TypeAlias = Callable[[ModelRequest], ModelRequest | Awaitable[ModelRequest | None] | None]
"""Sees each request before it is sent, and changes it, or returns another one. It may be `async def` on an `AsyncAgent`."""


def checked_before_request(function: BeforeRequest | None, *, accepts_async: bool) -> BeforeRequest | None:
    """Return the `before_request` of an agent.

    Raises:
        UsageError: it is not a function, or is `async def` and the agent is not.
    """
    if function is None:
        return None
    if not callable(function) or isinstance(function, type):
        raise UsageError(f"`before_request` is a function of a `ModelRequest`, not {function!r}")
    if not accepts_async and inspect.iscoroutinefunction(function):
        raise UsageError("`before_request` is `async def`: use `AsyncAgent`")
    return function


def prepared(request: ModelRequest, before: BeforeRequest | None) -> ModelRequest:
    """Return the request as the application leaves it.

    Raises:
        UsageError: it returned something else.
        ApplicationFailed: it raised; the error is the `__cause__`.
    """
    return request if before is None else _checked(request, _call(before, request))


async def prepared_async(request: ModelRequest, before: BeforeRequest | None) -> ModelRequest:
    """As `prepared`, where the function may be `async def`."""
    if before is None:
        return request
    result = _call(before, request)
    if inspect.isawaitable(result):
        try:
            result = await result
        except Exception as error:
            raise ApplicationFailed from error
    return _checked(request, result)


def _call(before: BeforeRequest, request: ModelRequest) -> Any:
    try:
        return before(request)
    except Exception as error:
        raise ApplicationFailed from error


def _checked(request: ModelRequest, result: object) -> ModelRequest:
    if result is None or isinstance(result, ModelRequest):
        prepared = request if result is None else result
        for name, kind in (("messages", list), ("tools", list), ("options", dict)):
            if not isinstance(value := getattr(prepared, name), kind):
                raise UsageError(f"`request.{name}` is a `{kind.__name__}`, not {value!r}")
        return prepared
    if inspect.iscoroutine(result):
        result.close()
    hint = ": use `AsyncAgent`" if inspect.isawaitable(result) else ""
    raise UsageError(f"`before_request` returns a `ModelRequest` or None, not {result!r}{hint}")
