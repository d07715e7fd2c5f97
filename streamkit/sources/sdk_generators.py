"""The streams of SDKs that are plain generators: those of ollama and cohere. They send their request when they are first pulled.

In place of one that was not pulled, the request is sent that it would send, and the bytes of the answer are read. This is faster, and
has what the SDK's objects lack: ollama's have no ids of calls. A generator counts as the SDK's own only if its code is that of the
SDK's method. What a tracer or an application has put around it is iterated, as any caller would; so is one that has been pulled, and
one of a version of the SDK that looks otherwise inside. So is that of Google's client, which may send several requests: its objects are
read.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import AsyncGeneratorType, CellType, CoroutineType, GeneratorType
from typing import Any

from .recognition import class_of

__all__ = ["is_unsent_request", "request_of", "responses_behind", "runs_behind"]

_Values = Mapping[str, Any]  # those of a generator's variables


def _of_ollama(values: _Values) -> Callable[[], Any]:
    return partial(values["self"]._client.stream, *values["args"], **values["kwargs"])


def _of_cohere(values: _Values) -> Callable[[], Any]:
    options = {name: value for name, value in values.items() if name != "self"}
    return partial(values["self"]._raw_client.chat_stream, **options)


# By the module and the name of a generator's code: what makes the request, a function that returns a context manager.
_REQUESTS: Mapping[tuple[str, str], Callable[[_Values], Callable[[], Any]]] = {
    ("ollama._client", "Client._request.<locals>.inner"): _of_ollama,
    ("ollama._client", "AsyncClient._request.<locals>.inner"): _of_ollama,
    ("cohere.v2.client", "V2Client.chat_stream"): _of_cohere,
    ("cohere.v2.client", "AsyncV2Client.chat_stream"): _of_cohere,
}


def is_unsent_request(value: Any) -> bool:
    """Whether this is such a generator, which has not been pulled."""
    return _sending(value) is not None


def request_of(value: Any) -> Any:
    """Return the context manager that this generator would enter, which gives the response when it is entered."""
    send = _sending(value)
    assert send is not None
    return send()


def responses_behind(generator: Any) -> Iterator[Any]:
    """Yield what has to be closed with an async source: the HTTP response behind a stream of Google's client, as long as its generator
    has not ended, and the stream of OpenAI's client behind a run of the package `ai`. They refer to themselves, so that otherwise only
    the garbage collector closes them."""
    frame = getattr(generator, "ag_frame", None)
    if (frame is not None or _may_lead_on(generator)) and "ai.providers.openai.protocol" in sys.modules:
        yield from _streams_of_ai(generator)
    if frame is None or not frame.f_globals.get("__name__", "").startswith("google.genai."):
        return
    for value in frame.f_locals.values():
        if inspect.isasyncgen(value):
            yield from responses_behind(value)
        elif type(value).__module__.startswith("google.genai."):
            yield from filter(None, (getattr(value, "response_stream", None),))


def _streams_of_ai(run: Any) -> Iterator[Any]:
    """Yield the client's streams that a run reads, through its generators and tasks."""
    seen, found = {id(run)}, [run]
    for value in found:  # `found` grows in this loop
        frame = getattr(value, "ag_frame", None)
        if frame is not None and frame.f_globals.get("__name__") == "ai.providers.openai.protocol":
            yield from filter(None, (frame.f_locals.get("sdk_stream"),))
            continue
        for inner in gc.get_referents(value):
            if id(inner) not in seen and _may_lead_on(inner):
                seen.add(id(inner))
                found.append(inner)


def _may_lead_on(value: Any) -> bool:
    """Whether the generators of a run may be behind this value."""
    kind = class_of(value)
    if kind in (list, dict, AsyncGeneratorType, CellType, CoroutineType) or kind.__module__ == "_asyncio":
        return True
    return kind.__name__ in ("AgentStream", "AiRun", "Stream") and kind.__module__.startswith(("ai.", "streamkit."))


def runs_behind(generator: Any) -> Iterator[Any]:
    """Yield what has to be closed before a generator, where an agent's run of smolagents is in it or is itself: the stream of the model's
    client, which refers to itself, so that otherwise only the garbage collector closes it; then the run."""
    if "smolagents" not in sys.modules or (frame := _frame_of(generator)) is None:
        return
    module = frame.f_globals.get("__name__")
    # What a loop iterates has no name in the frame.
    for inner in filter(inspect.isgenerator, gc.get_referents(generator)):
        if module != "smolagents.models":
            yield from runs_behind(inner)
        elif (stream := inner.gi_frame and inner.gi_frame.f_locals.get("self")) is not None and hasattr(
            stream, "close"
        ):
            yield stream
    if module == "smolagents.agents":
        yield _AgentRun(generator)


class _AgentRun:
    """A run that yields its last step while it is closed, which Python takes for an error. Closed once more, it ends."""

    def __init__(self, generator: GeneratorType[Any, Any, Any]) -> None:
        self._generator = generator

    def close(self) -> None:
        """Close it."""
        try:
            self._generator.close()
        except RuntimeError:
            if self._generator.gi_frame is None:
                raise
            self._generator.close()


def _sending(value: Any) -> Callable[[], Any] | None:
    """Return what makes the request of a generator; None if it is no such one, or has begun."""
    frame = _frame_of(value)
    if frame is None or frame.f_lineno != frame.f_code.co_firstlineno:  # where it stands before it is pulled
        return None
    name: Any = frame.f_globals.get("__name__")
    make = _REQUESTS.get((name, frame.f_code.co_qualname))
    if make is None or frame.f_globals is not vars(sys.modules.get(name)):
        return None
    try:
        return make(frame.f_locals)
    except (LookupError, AttributeError):
        return None  # another version


def _frame_of(value: Any) -> Any:
    """Return the frame of a generator that has not ended; None for any other value."""
    if inspect.isgenerator(value):
        return value.gi_frame
    return value.ag_frame if inspect.isasyncgen(value) else None
