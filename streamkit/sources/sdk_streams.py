"""The streams of openai's, anthropic's and Amazon's SDKs whose bytes are read in their place: those that are the SDK's own, unaltered.

Reading the bytes passes by whatever stands around the stream or in it. So an object counts as the SDK's own only if its class
is exactly the SDK's, with the SDK's own methods, and if its iterator is the one that the class made, and has not begun. The same
is asked of all that the SDK's own loop goes through: the decoder of the events, the client's method that makes objects of them,
and their class. Whatever an application or a tracer made of one of these (a proxy, a subclass, a patched class, a replaced
iterator) is iterated, as any caller would, and so is a stream that anthropic's SDK itself traces, or that validates its objects.

No SDK is imported: a class is looked up in its module, which the application has imported if it holds such an object.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from inspect import GEN_CREATED, getgeneratorstate
from types import FunctionType, GetSetDescriptorType
from typing import Any, Generic

from .recognition import class_of, is_framed, is_response

__all__ = ["OpenedStream", "amazon_body", "async_amazon_body", "iterators_of", "unread_response"]

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
        value = _attribute(value, inner)
    return None


def iterators_of(value: Any) -> Iterator[Any]:
    """Yield the generators that an SDK's stream, and the one inside a helper, have made to iterate themselves. Where the
    bytes were read in their place they have not begun, and are to be closed: a stream and its generator refer to each
    other, so that without this only the garbage collector frees them, and with them the request and the connection."""
    value = value.stream if isinstance(value, OpenedStream) else value
    while value is not None:
        if (iterator := value.__dict__.get("_iterator")) is not None:
            yield iterator
        _, inner = _CLASSES.get(class_of(value).__name__.replace("Async", "", 1), ((), ""))
        value = _attribute(value, inner) if inner else None


def amazon_body(value: Any) -> Iterator[bytes] | None:
    """Return the bytes of a stream of Amazon's client (boto3) of which nothing was read; None for any other value. Its own objects
    lack what its version does not know, and it ends one that was cut off as if all were well."""
    if not _is_amazons(value, "EventStream", "botocore.eventstream"):
        return None
    if getgeneratorstate(value._event_generator) != GEN_CREATED:
        return None
    body: Iterator[bytes] = value._raw_stream.stream()
    return body


def async_amazon_body(value: Any) -> AsyncGenerator[bytes, None] | None:
    """As `amazon_body`, of a stream of aiobotocore."""
    if not _is_amazons(value, "AioEventStream", "aiobotocore.eventstream", "botocore.eventstream"):
        return None
    frame = getattr(
        value._event_generator, "ag_frame", None
    )  # Python 3.11 does not say whether an async generator has begun
    pieces = getattr(getattr(value._raw_stream, "content", None), "iter_chunks", None)
    if frame is None or frame.f_lineno != frame.f_code.co_firstlineno or pieces is None:
        return None
    return _bytes_of(pieces())


async def _bytes_of(pieces: AsyncIterator[tuple[bytes, bool]]) -> AsyncGenerator[bytes, None]:
    async for piece, _ in pieces:
        yield piece


def _is_amazons(value: Any, name: str, *modules: str) -> bool:
    """Whether a value is Amazon's own stream of this class, which the first of these modules declares."""
    kind = class_of(value)
    if kind.__name__ != name or not _declares(modules[0], kind):
        return False
    return _is_own(value, kind, *(vars(sys.modules[module]) for module in modules))


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute of a helper, whose name is private to its class if it begins with two underscores."""
    return getattr(value, f"_{class_of(value).__name__}{name}" if name.startswith("__") else name, None)


def _declares(module: str, kind: Any) -> bool:
    """Whether a class is the one of its name in this module, if that was imported."""
    return getattr(sys.modules.get(module), kind.__name__, None) is kind


def _is_unaltered(value: Any, kind: Any, module: Mapping[str, Any]) -> bool:
    """Whether an object is as the SDK has made it. The class is declared in this module."""
    if not _is_own(value, kind, module):
        return False
    if (iterator := value.__dict__.get("_iterator")) is None:
        return True  # anthropic's streams have none before it is needed
    frame = getattr(iterator, "gi_frame", None) or getattr(iterator, "ag_frame", None)
    return frame is not None and frame.f_code is kind.__dict__["__stream__"].__code__


def _is_own(value: Any, kind: Any, *modules: Mapping[str, Any]) -> bool:
    """Whether the methods of a class are functions of these modules, and this object, if there is one, has no others."""
    if not isinstance(kind, type):
        return False
    declared = [one for one in kind.__mro__ if one not in (Generic, object)]
    attributes = [attribute for one in declared for attribute in vars(one).values()]
    if not all(_is_of(_function_of(one), *modules) for one in attributes if _is_method(one)):
        return False
    return value is None or not any(_is_method(vars(kind).get(name)) for name in value.__dict__)


def _is_method(attribute: object) -> bool:
    """Whether a class's attribute is called, or computes what is read; not those that Python itself makes."""
    is_computed = callable(attribute) or hasattr(type(attribute), "__get__")
    return is_computed and type(attribute) is not GetSetDescriptorType


def _function_of(attribute: Any) -> Any:
    """Return the function that a class's attribute calls, or the attribute itself."""
    for name in ("fget", "func", "__func__"):  # of a property, a cached property, a static method
        attribute = getattr(attribute, name, attribute)
    return attribute


def _is_of(method: Any, *modules: Mapping[str, Any]) -> bool:
    """Whether a method is a function that was defined in one of these modules. One that wraps it may have its name, but not
    this."""
    return type(method) is FunctionType and any(method.__globals__ is module for module in modules)


def _unread(stream: Any, module: Mapping[str, Any]) -> Any:
    """Return the response of an SDK's own stream, if nothing was read of it, and if streamkit can read it as well as
    the stream."""
    response = stream.response
    if not is_response(response) or response.is_closed or getattr(response, "is_stream_consumed", True):
        return None
    is_traced = getattr(stream, "_observer", None) is not None  # by anthropic's SDK, item by item
    is_own = _decodes_as_declared(stream, module) and _makes_own_objects(stream, module)
    return response if is_own and not is_traced and is_framed(response) else None


def _decodes_as_declared(stream: Any, module: Mapping[str, Any]) -> bool:
    """Whether the stream's decoder, and the events that it makes, are the SDK's own."""
    decoder = stream.__dict__.get("_decoder")
    kind = class_of(decoder)
    is_declared = kind is module.get(kind.__name__)
    return is_declared and _is_own(decoder, kind, module) and _is_own(None, module["ServerSentEvent"], module)


def _makes_own_objects(stream: Any, module: Mapping[str, Any]) -> bool:
    """Whether the SDK itself makes objects of the stream's events, of its own classes, as the server sent them."""
    package = module["__package__"]
    client = stream.__dict__.get("_client")
    make = getattr(getattr(client, "_process_response_data", None), "__func__", None)
    is_own = _is_of(make, vars(sys.modules[f"{package}._base_client"]))
    validates = getattr(client, "_strict_response_validation", False)
    return is_own and not validates and _is_declared_in(package, stream.__dict__.get("_cast_to"))


def _is_declared_in(package: str, kind: Any) -> bool:
    """Whether a class, or all classes of a union, are declared in a package."""
    if getattr(kind, "__module__", "").partition(".")[0] == package:
        return True
    members = getattr(kind, "__args__", ())
    return bool(members) and all(_is_declared_in(package, member) for member in members)
