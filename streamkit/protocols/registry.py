"""Where the protocols are found: by name, or by an item with a shape of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from types import ModuleType
from typing import Any

from ..answers import Confirmation
from ..errors import UsageError
from ..messages import CodeMessage, Message, ReasoningMessage, TextMessage, ToolCallMessage
from .base import Decoder
from .values import is_object

__all__ = ["BUILT_IN", "asking", "find", "gating", "names", "recognise", "to_input"]

BUILT_IN = (
    "openai_responses",
    "openai_chat",
    "openai_assistants",
    "anthropic",
    "open_interpreter",
    "letta",
    "streamkit",
)

ENTRY_POINTS = "streamkit.protocols"

# Whose input has no place for tool calls, or has every message as it is.
_WITHOUT_CALLS = ("openai_assistants", "open_interpreter", "streamkit")


def names() -> list[str]:
    """The names of all protocols that are installed."""
    return [*BUILT_IN, *(name for name in _others() if name not in BUILT_IN)]


@cache
def _others() -> dict[str, Any]:
    from importlib.metadata import entry_points  # 20 ms, and only for what is not built in

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _other_names() -> Iterator[str]:
    yield from _others()  # read only when no built-in protocol would do


def find(name: str) -> ModuleType:
    """The module of a protocol.

    Raises:
        UsageError: there is no such protocol; the text lists those there are.
    """
    if name in BUILT_IN:
        return _built_in(name)
    if name not in _others():
        raise UsageError(f"there is no protocol {name!r}; there are: {', '.join(names())}")
    module: ModuleType = _others()[name].load()
    return module


@cache
def _built_in(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")


def recognise(item: Any, event_name: str = "") -> type[Decoder] | None:
    """The decoder of the protocol that this item belongs to, None if it has no shape of its own."""
    for name in chain(BUILT_IN, filter(lambda other: other not in BUILT_IN, _other_names())):
        decoder: type[Decoder] = find(name).Decoder
        wrapped = {"event": event_name, "data": item} if decoder.wraps_event_name and event_name else item
        if is_object(wrapped) and decoder.recognises(wrapped):
            return decoder
    return None


def asking(item: Any) -> type[Decoder] | None:
    """The decoder of a protocol in which this item, that none recognises, may be a question."""
    for name in BUILT_IN:
        decoder: type[Decoder] = find(name).Decoder
        if decoder.pull_approves and decoder.may_ask(item):
            return decoder
    return None


def gating(item: Any) -> type[Decoder] | None:
    """The decoder of the protocol that this item belongs to, if pulling on could be taken for an answer there."""
    if not is_object(item):
        return None
    for name in BUILT_IN:
        decoder: type[Decoder] = find(name).Decoder
        if decoder.pull_approves and decoder.recognises(item):
            return decoder
    return None


def to_input(messages: Iterable[Message | Confirmation], protocol: str) -> list[Any]:
    """Messages as the input of a request in a protocol: what `messages=` or `input=` takes. Where the protocol takes
    answers to confirmations, as `openai_responses` does, they may stand among the messages.

    What `fields=` took out of a call is left out where the call tells it: where it is among the messages and is one
    that goes into the request.

    Raises:
        UsageError: there is no such protocol, or it cannot express what a user said.
    """
    known: list[Any] = []
    for message in messages:
        if is_object(message):
            message = Message.from_dict(message)
        elif type(message) is Message:
            message = Message.from_dict(message.to_dict())
        known.append(message)
    converted: list[Any] = find(protocol).to_input(known if protocol in _WITHOUT_CALLS else _without_fields(known))
    return converted


def _without_fields(messages: Sequence[Message]) -> list[Message]:
    """These messages, but for fields of calls that are told."""
    calls = {
        call.call_id or call.id
        for call in messages
        if isinstance(call, ToolCallMessage) and call.status == "completed" and not call.provider_executed
    }
    kinds = (TextMessage, ReasoningMessage, CodeMessage)
    return [m for m in messages if not (isinstance(m, kinds) and "field" in m.metadata and m.call_id in calls)]
