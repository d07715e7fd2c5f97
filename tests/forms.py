"""The forms in which a source may give its items: bytes, text, dicts, the SDKs' objects; all at once, or one by one.

`FORMS` has each as a function that makes a source of a protocol's items, and `told` is everything that a stream of it says.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from random import Random
from typing import Any

import anthropic.types as at
import anyio
import anyio.lowlevel
import msgspec
import pydantic
from anthropic._models import construct_type as construct_anthropic
from openai._models import construct_type
from openai.types import Completion
from openai.types.beta import AssistantStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

import streamkit as sk
from streamkit import protocols
from streamkit.messages.sdk_objects import as_item
from streamkit.protocols.codec import event_to_dict
from streamkit.protocols.framing import sse_frame

__all__ = ["ASYNC_FORMS", "FORMS", "OBJECTS", "Form", "objects", "told", "wraps_names"]

Items = Sequence[Any]
Form = Callable[[str, Items, Random], Any]

OBJECTS: dict[str, Callable[[Any], Any]] = {
    "openai_chat": lambda item: construct_type(type_=ChatCompletionChunk, value=item),
    "openai_completions": lambda item: construct_type(type_=Completion, value=item),
    "openai_responses": lambda item: construct_type(type_=ResponseStreamEvent, value=item),
    "openai_assistants": lambda item: construct_type(type_=AssistantStreamEvent, value=item),
    "anthropic": lambda item: construct_anthropic(type_=at.RawMessageStreamEvent, value=item),
}
"""What makes the client's object of an item, by the protocol."""


def wraps_names(name: str) -> bool:
    """Whether a protocol's items are `{"event": …, "data": …}`, of which the first is the event's name in a body."""
    return protocols.find(name).Decoder.wraps_event_name


def body(name: str, items: Items) -> bytes:
    """The items as Server-Sent Events."""
    if wraps_names(name):
        return b"".join(sse_frame(msgspec.json.encode(item["data"]), item["event"]) for item in items)
    return b"".join(sse_frame(msgspec.json.encode(item)) for item in items)


def lines(items: Items) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


def cut(data: Any, random: Random) -> list[Any]:
    """Bytes or text in up to nine pieces, at any places."""
    places = sorted(random.sample(range(len(data) + 1), min(8, len(data))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def batches(items: Items, random: Random) -> Iterator[list[Any]]:
    rest = [*items]
    while rest:
        size = random.randint(1, 4)
        yield rest[:size]
        del rest[:size]


def objects(name: str, items: Items) -> list[Any]:
    """The items as objects of the SDK, as far as it makes any of them."""
    made: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDKs' own, about values of other types than they know
        for item in items:
            found = item
            with contextlib.suppress(Exception):
                found = OBJECTS[name](item)
                msgspec.json.encode(as_item(found))
            made.append(found if isinstance(found, pydantic.BaseModel) else item)
    return made


async def each(items: Items, *, sleeps: bool) -> AsyncIterator[Any]:
    for item in items:
        if sleeps:
            await anyio.lowlevel.checkpoint()
        yield item


FORMS: dict[str, Form] = {
    "a body in one piece": lambda name, items, random: [body(name, items)],
    "a body cut anywhere": lambda name, items, random: cut(body(name, items), random),
    "a body, each event alone": lambda name, items, random: [body(name, [item]) for item in items],
    "a body, byte by byte": lambda name, items, random: [bytes([byte]) for byte in body(name, items)],
    "text cut anywhere": lambda name, items, random: cut(body(name, items).decode(), random),
    "lines of JSON": lambda name, items, random: [lines(items)],
    "lines cut anywhere": lambda name, items, random: cut(lines(items), random),
    "a list": lambda name, items, random: [*items],
    "one by one": lambda name, items, random: iter(items),
}
"""Sources for `stream`. `astream` takes all of them, and those of `ASYNC_FORMS`."""

ASYNC_FORMS: dict[str, Form] = {
    "a body in a task": lambda name, items, random: each(cut(body(name, items), random), sleeps=True),
    "a body at hand": lambda name, items, random: each([body(name, [item]) for item in items], sleeps=False),
    "one by one in a task": lambda name, items, random: each(items, sleeps=True),
    "one by one at hand": lambda name, items, random: each(items, sleeps=False),
}


class Noting(sk.EventHandler):
    """Notes each event as it is when it comes, with its item and its cursor, and what its message has become by then."""

    def __init__(self, name: str) -> None:
        self.is_wrapped = wraps_names(name)
        self.lines: list[dict[str, Any]] = []

    def on_event(self, event: sk.Event) -> None:
        raw: Any = event.raw
        if self.is_wrapped and isinstance(raw, dict) and raw.keys() == {"event", "data"}:
            raw = raw["data"]  # in a body the name stands beside the item
        snapshot: Any = getattr(event, "snapshot", None)
        content = snapshot.content if snapshot is not None else None
        self.lines.append({**event_to_dict(event), "raw": raw, "cursor": event.cursor, "so far": content})


def told(name: str, source: Any, *, backend: str = "", **options: Any) -> list[dict[str, Any]]:
    """Everything that a stream says: its events, how it ended, its messages and its run.

    Args:
        backend: "asyncio" or "trio" for `astream`, "" for `stream`.
    """
    handler, error = Noting(name), ""
    stream: Any = None

    async def in_task() -> None:
        nonlocal stream
        stream = sk.astream(source, handler, protocol=name, **options)
        await stream.until_done()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDKs' own, where an object makes a dict of values that it does not expect
        try:
            if backend:
                anyio.run(in_task, backend=backend)
            else:
                stream = sk.stream(source, handler, protocol=name, **options)
                stream.until_done()
        except sk.StreamkitError as failure:
            error = repr(failure)
    run = None if stream.current_run is None else msgspec.structs.asdict(stream.current_run)
    steps = [*map(msgspec.structs.asdict, stream.engine.runs.steps)]
    end = {"error": error, "status": stream.status, "usage": stream.usage, "run": run, "steps": steps}
    return [*handler.lines, *(message.to_dict() for message in stream.messages), end]
