"""The streams of openai's and anthropic's SDKs whose bytes are read in their place: those that are the SDK's own, unaltered.

Reading the bytes passes by whatever stands around the stream or in it. So an object counts as the SDK's own only if its class
is exactly the SDK's, with the SDK's own methods, and if its iterator is the one that the class made, and has not begun. Whatever
an application or a tracer made of one (a proxy, a subclass, a patched class, a replaced iterator) is iterated, as any caller
would, and so is a stream that anthropic's SDK itself traces.

No SDK is imported: a class is looked up in its module, which the application has imported if it holds such an object.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from .recognition import class_of, is_framed, is_response

__all__ = ["OpenedStream", "unread_response"]

# The SDKs' classes by name: the modules that declare one, and the attribute of a helper with the stream that it reads.
_CLASSES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "Stream": (("openai._streaming", "anthropic._streaming"), ""),
    "ResponseStream": (("openai.lib.streaming.responses._responses",), "_raw_stream"),
    "ChatCompletionStream": (("openai.lib.streaming.chat._completions",), "_raw_stream"),
    "AssistantEventHandler": (("openai.lib.streaming._assistants",), "__stream"),
    "MessageStream": (("anthropic.lib.streaming._messages",), "_raw_stream"),
    "BetaMessageStream": (("anthropic.lib.streaming._beta_messages",), "_raw_stream"),
}


class OpenedStream:
    """An SDK's stream in an object of ours, which may change it afterwards: what is read of it was decided before.

    Args:
        stream: the SDK's stream.

    Attributes:
        response: the HTTP response whose bytes are read in its place; None if it is iterated.
    """

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.response = unread_response(stream)


def unread_response(value: Any) -> Any:
    """Return the HTTP response whose bytes can be read in the place of this stream; None if the value has to be
    iterated, or is not a stream of an SDK."""
    if isinstance(value, OpenedStream):
        return value.response
    while value is not None:
        kind = class_of(value)
        modules, inner = _CLASSES.get(kind.__name__.replace("Async", "", 1), ((), ""))
        declared = next((vars(sys.modules[name]) for name in modules if _declares(name, kind)), None)
        if declared is None or not _is_unaltered(value, kind, declared):
            return None
        if not inner:
            return _unread(value, declared)
        value = getattr(value, f"_{kind.__name__}{inner}" if inner.startswith("__") else inner, None)
    return None


def _declares(module: str, kind: Any) -> bool:
    """Whether a class is the one of its name in this module, if that was imported."""
    return getattr(sys.modules.get(module), kind.__name__, None) is kind


def _is_unaltered(value: Any, kind: Any, module: Mapping[str, Any]) -> bool:
    """Whether an object is as the SDK has made it. The class is declared in this module."""
    own: Any = kind.__dict__
    attributes: Any = value.__dict__
    if not all(_is_of(own[name], module) for name in _METHODS if name in own):
        return False
    if any(type(own.get(name)) is FunctionType for name in attributes):
        return False  # a method of this object alone
    if (iterator := attributes.get("_iterator")) is None:
        return True  # anthropic's streams have none before it is needed
    frame = getattr(iterator, "gi_frame", None) or getattr(iterator, "ag_frame", None)
    return frame is not None and frame.f_code is own["__stream__"].__code__


_METHODS = ("__iter__", "__next__", "__aiter__", "__anext__", "__stream__", "_iter_events", "close")


def _is_of(method: Any, module: Mapping[str, Any]) -> bool:
    """Whether a method is a function that was defined in this module. One that wraps it may have its name, but not this."""
    return type(method) is FunctionType and method.__globals__ is module


def _unread(stream: Any, module: Mapping[str, Any]) -> Any:
    """Return the response of an SDK's own stream, if nothing was read of it, and if streamkit can read it as well as
    the stream."""
    response = stream.response
    if not is_response(response) or response.is_closed or getattr(response, "is_stream_consumed", True):
        return None
    has_own_decoder = class_of(stream.__dict__.get("_decoder")).__module__ == module["__name__"]
    is_traced = getattr(stream, "_observer", None) is not None  # by anthropic's SDK, item by item
    return response if has_own_decoder and not is_traced and is_framed(response) else None
