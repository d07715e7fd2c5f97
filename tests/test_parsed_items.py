"""Items that are parsed already: dicts, and typed objects of the SDKs.

A delta in its common form takes a fast path, by the typed struct that bytes are decoded with. It gives the events that the
tolerant path gives, to the last field, for whatever a producer in this process may put into an item.
"""

from __future__ import annotations

import copy
import itertools
import random
import tracemalloc
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import anthropic.types as at
import msgspec
import pydantic
import pytest
from anthropic import BaseModel as AnthropicModel
from anthropic._models import construct_type as construct_anthropic
from openai import BaseModel
from openai._models import construct_type
from openai.types.beta import AssistantStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent

import streamkit as sk
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.events import EVENTS, Delta, Event, Usage
from streamkit.messages.json_text import read_json
from streamkit.messages.sdk_objects import as_item
from streamkit.protocols.codec import encode_event
from streamkit.protocols.plain_case import plain_readers

from .recorded import each_recording
from .test_recorded_streams import FOLDERS, frames_of, name_of

Wire = dict[str, Any]
TYPED = ("openai_chat", "openai_responses", "openai_assistants", "anthropic")
OBJECTS: dict[str, Callable[[Any], Any]] = {
    "openai_chat": lambda item: construct_type(type_=ChatCompletionChunk, value=item),
    "openai_responses": lambda item: construct_type(type_=ResponseStreamEvent, value=item),
    "openai_assistants": lambda item: construct_type(type_=AssistantStreamEvent, value=item),
    "anthropic": lambda item: construct_anthropic(type_=at.RawMessageStreamEvent, value=item),
}


def kind_of(name: str) -> type[protocols.Decoder]:
    kind: type[protocols.Decoder] = protocols.find(name).Decoder
    return kind


def tolerant(name: str) -> type[protocols.Decoder]:
    """The decoder without its plain case."""
    return type("Tolerant", (kind_of(name),), {"plain": lambda self, item: None})


def items_of(path: Path) -> list[Any]:
    """A recording's items, as a producer in this process has them."""
    items: list[Any] = []
    for _, name, data in frames_of(path, [path.read_bytes()]):
        item = read_json(data)
        if item is not None:
            wraps = kind_of(name_of(path)).wraps_event_name and name
            items.append({"event": name.decode(), "data": item} if wraps else item)
    return items


def shown(value: Any) -> str:
    return repr(value.to_dict() if isinstance(value, sk.Message) else value)


def lines(events: list[Event]) -> list[Any]:
    """All fields of events. (Not their wire form: values that JSON lacks are here too.)"""
    return [
        (
            event.type,
            *((key, shown(getattr(event, {"raw_item": "raw"}.get(key, key)))) for key in event.__struct_fields__),
        )
        for event in events
    ]


def told(kind: type[protocols.Decoder], items: list[Any]) -> list[Any]:
    """Everything about the events of these items, each fed alone, and of their end."""
    decoder = kind()
    found = [lines(decoder.feed_items([item])) for item in items]
    return [*found, lines([*decoder.finish()]), decoder.complete, decoder.exhausted, decoder.index]


def objects_of(name: str, items: list[Any]) -> list[Any]:
    made: list[Any] = []
    for item in items:
        try:
            made.append(OBJECTS[name](item))
        except Exception:  # what the SDK itself cannot hold
            continue
    return [one for one in made if isinstance(one, pydantic.BaseModel)]


@each_recording(*(FOLDERS[name] for name in TYPED), only=lambda path: path.stem != "conformance", one_of=2)
def test_recordings_as_dicts_give_the_same_events_on_both_paths(path: Path) -> None:
    """Each event, with its item, its index and its cursor. Those of its JSON text are the same, too."""
    name, items = name_of(path), items_of(path)
    before = copy.deepcopy(items)
    found = told(kind_of(name), items)
    assert found == told(tolerant(name), items)
    assert items == before
    assert without_origin(found) == without_origin(told_as_bytes(kind_of(name), items))


@each_recording(*(FOLDERS[name] for name in TYPED), only=lambda path: path.stem != "conformance", one_of=3)
def test_recordings_as_the_sdks_objects_give_the_same_events_on_both_paths(path: Path) -> None:
    """As the clients make them, which keep what they do not know. `raw` is the dict that they make of themselves."""
    name = name_of(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the SDKs' own, about values of other types than they know
        items = objects_of(name, items_of(path))
        assert told(kind_of(name), items) == told(tolerant(name), items)


# -- streams of plain deltas, and what may be odd about one


def chat(*deltas: Wire, **chunk: Any) -> list[Wire]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], **chunk}
        for delta in deltas
    ]


def call(**fields: Any) -> Wire:
    return {"tool_calls": [{"index": 0, **fields}]}


def responses(*events: Wire) -> list[Wire]:
    place: Wire = {"output_index": 0, "content_index": 0, "item_id": "m"}
    item = {"id": "m", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
    begin = {"type": "response.created", "response": {"id": "r", "object": "response", "output": []}}
    added = {"type": "response.output_item.added", "output_index": 0, "item": item}
    return [begin, added, *({**place, "sequence_number": n, **event} for n, event in enumerate(events))]


def shell(type: str, *deltas: Any, **place: Any) -> list[Wire]:
    item = {"id": "s", "type": "shell_call", "call_id": "c", "action": {"commands": []}}
    if "output" in type:
        item = {"id": "s", "type": "shell_call_output", "call_id": "c", "output": []}
    return [
        {"type": "response.created", "response": {"id": "r", "object": "response", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        *(
            {"type": type, "output_index": 0, "command_index": 0, "delta": delta, "sequence_number": number, **place}
            for number, delta in enumerate(deltas)
        ),
    ]


def claude(start: Wire, *deltas: Wire) -> list[Wire]:
    message = {"id": "a", "type": "message", "role": "assistant", "content": [], "model": "m"}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
    ]


def thread(*texts: str) -> list[Wire]:
    parts = [{"index": 0, "type": "text", "text": {"value": text, "annotations": []}} for text in texts]
    return [
        {"event": "thread.run.created", "data": {"id": "r", "object": "thread.run", "status": "queued"}},
        {"event": "thread.message.created", "data": {"id": "m", "object": "thread.message", "content": []}},
        *({"event": "thread.message.delta", "data": {"id": "m", "delta": {"content": [part]}}} for part in parts),
    ]


def step(*calls: Wire) -> list[Wire]:
    return [
        {"event": "thread.run.created", "data": {"id": "r", "object": "thread.run", "status": "queued"}},
        {"event": "thread.run.step.created", "data": {"id": "s", "run_id": "r", "type": "tool_calls"}},
        *(
            {
                "event": "thread.run.step.delta",
                "data": {"id": "s", "delta": {"step_details": {"type": "tool_calls", "tool_calls": [one]}}},
            }
            for one in calls
        ),
    ]


def function(text: str, **fields: Any) -> Wire:
    return {"index": 0, "type": "function", "function": {"arguments": text, **fields}}


def code(text: str) -> Wire:
    return {"index": 0, "type": "code_interpreter", "code_interpreter": {"input": text, "outputs": []}}


TEXT = "response.output_text.delta"
COMMAND = "response.shell_call_command.delta"
OUTPUT = "response.shell_call_output_content.delta"

# A stream whose last two items are plain deltas, by its protocol.
STREAMS: dict[str, tuple[str, list[Wire]]] = {
    "chat text": ("openai_chat", chat({"role": "assistant", "content": "a"}, {"content": "b"}, {"content": "c"})),
    "chat reasoning": ("openai_chat", chat(*({"reasoning_content": piece} for piece in "abc"))),
    "chat call": (
        "openai_chat",
        chat(
            call(id="c1", type="function", function={"name": "f", "arguments": ""}),
            *(call(function={"arguments": piece}) for piece in '{"'),
        ),
    ),
    "responses text": ("openai_responses", responses(*({"type": TEXT, "delta": piece} for piece in "abc"))),
    "responses command": ("openai_responses", shell(COMMAND, "a", "b", "c")),
    "responses command with an id": ("openai_responses", shell(COMMAND, "a", "b", "c", item_id="s")),
    "responses output": (
        "openai_responses",
        shell(OUTPUT, {"stdout": "a"}, {"stderr": "b"}, {"stdout": "c", "stderr": ""}, item_id="s"),
    ),
    "anthropic text": (
        "anthropic",
        claude({"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in "abc")),
    ),
    "anthropic call": (
        "anthropic",
        claude(
            {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            *({"type": "input_json_delta", "partial_json": piece} for piece in '{"a'),
        ),
    ),
    "assistants text": ("openai_assistants", thread("a", "b", "c")),
    "assistants call": (
        "openai_assistants",
        step({**function("{", name="f"), "id": "c1"}, function('"a'), function('":')),
    ),
    "assistants code": ("openai_assistants", step({**code("a"), "id": "c1"}, code("b"), code("c"))),
}


def encoded(item: Wire) -> bytes:
    return msgspec.json.encode(item["data"] if "event" in item else item)


class Name(str):
    """Text of a class of its own."""


class Own(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values_of = values

    def __getitem__(self, key: str) -> Any:
        return self.values_of[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_of)

    def __len__(self) -> int:
        return len(self.values_of)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


TOO_DEEP = nested(250)
CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)

ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 7.0, float("nan"), float("inf"), 2**70, ""),
    *("x", "na\u00efve \U0001f327", "\ud83d", "\ude00 x", "a \ud83d b", Name("x"), b"x", bytearray(b"x")),
    *([], ["x"], [None], (), ("x",), {}, {"x": 1}, {1: "x"}, {"index": 0}, set(), {"x"}, 1j, object, Path("x")),
    *(Own({}), Own({"content": "x", "value": "x", "type": "text_delta"}), nested(150), TOO_DEEP, CIRCLE),
]
ADDED: list[Any] = [None, True, 1, "x", "\ud83d", [], ["x"], {"x": 1}, CIRCLE]  # at keys that the item does not have
KEYS = [  # that items of these protocols may have besides
    *("usage", "error", "citations", "x_groq", "content", "refusal", "reasoning", "reasoning_content", "annotations"),
    *("tool_calls", "function_call", "finish_reason", "logprobs", "message", "audio", "images", "moderation", "custom"),
    *("item_id", "output_index", "content_index", "command_index", "sequence_number", "obfuscation", "id", "name"),
    *("provider", "service_tier", "content_filter_results", "search_results", "reasoning_text", "thinking_blocks"),
    *("output", "outputs", "event", "data", "message_creation", "run_id", "type", "index", "extra_content"),
]


def oddities(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every place in an item, and those at keys that its objects could have, with each value that may be odd there."""
    yield from ((path, odd) for odd in ODD)
    if isinstance(value, dict):
        for key in value:
            yield from oddities(value[key], (*path, key))
        yield from (((*path, key), odd) for key in KEYS if key not in value for odd in ADDED)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from oddities(one, (*path, index))


def changed(item: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = copy.copy(item)
    copied[path[0]] = changed(item[path[0]] if not isinstance(item, dict) else item.get(path[0]), path[1:], value)
    return copied


def some_oddities(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Two of seven: the numbers of values are no multiples of 7, so each value comes at some places, each place has some."""
    return (oddity for number, oddity in enumerate(oddities(value)) if number % 7 in (1, 4))


@pytest.mark.slow
@pytest.mark.parametrize("case", STREAMS)
def test_any_value_at_any_place_gives_the_same_events_on_both_paths(case: str) -> None:
    """Or, where the fast one reads less of an item, the
    events of its JSON text, of which it reads as little. Half of a surrogate pair in what it does not read is not reported."""
    name, items = STREAMS[case]
    *start, odd, end = items
    fast, slow = kind_of(name), tolerant(name)
    for path, value in some_oddities(odd):
        stream = [*start, changed(odd, path, value), end]
        found = without_surrogate_warnings(told(fast, stream))
        if found != without_surrogate_warnings(told(slow, stream)):
            stream[-2] = changed(odd, path, value if is_json(value) else "x")
            assert without_origin(found) == without_origin(told_as_bytes(fast, stream)), f"{value!r} at {path}"


def is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def told_as_bytes(kind: type[protocols.Decoder], items: list[Wire]) -> list[Any]:
    decoder = kind()
    found: list[Any] = []
    for item in items:
        data = msgspec.json.encode(item["data"] if kind.wraps_event_name else item)
        frame = (b"", item["event"].encode(), data) if kind.wraps_event_name else data
        found.append(lines(decoder.feed_frames([frame])))
    return [*found, lines([*decoder.finish()]), decoder.complete, decoder.exhausted, decoder.index]


def without_surrogate_warnings(told: list[Any]) -> list[Any]:
    return [
        [line for line in part if ("code", "'lone-surrogate'") not in line] if isinstance(part, list) else part
        for part in told
    ]


def without_origin(told: list[Any]) -> list[Any]:
    """Without the raw items, which are bytes of bytes, and the indexes, which the fast path of bytes leaves out."""
    return [
        [[field for field in line if field[0] not in ("raw_item", "item_index")] for line in part]
        if isinstance(part, list)
        else part
        for part in told
    ]


def memory_of_reading(plain_item: Any, item: Wire) -> int:
    """The most bytes that reading an item as this struct takes, or as one of a union."""
    read, found = plain_readers(plain_item).item, list[int]()
    for _ in range(3):  # the first does what is done only once
        tracemalloc.start()
        read(item)
        found.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return found[-1]


def test_the_types_of_a_protocols_plain_items_are_looked_through_only_once() -> None:
    """And not for each item, which takes ten times as long as reading it: however many there are, an item takes the same memory."""
    union, item = kind_of("openai_responses").plain_item, responses({"type": TEXT, "delta": "a"})[-1]
    (own,) = (struct for struct in get_args(union) if struct.__struct_config__.tag == TEXT)
    assert len(get_args(union)) > 5
    assert memory_of_reading(union, item) < memory_of_reading(own, item) + 100


# -- the same deltas as bytes, where a protocol's fast path for bytes is as young

OWN = [
    {"type": "text_created", "message": {"type": "message", "role": "assistant", "id": "m"}, "cursor": 1},
    *(
        {"type": "text_delta", "message_id": "m", "value": piece, "cursor": place}
        for place, piece in enumerate("abc", 2)
    ),
]
BYTES = {
    case: STREAMS[case] for case in STREAMS if case.startswith(("responses command", "responses output", "assist"))
}
BYTES["own"] = ("streamkit", OWN)
BYTES["own, replaced"] = ("streamkit", [*OWN, {**OWN[-1], "replace": True, "metadata": {"a": 1}}, OWN[-1]])
BYTES["two calls side by side"] = (
    "openai_assistants",
    step(
        {**function("", name="f"), "id": "c1"},
        {**function("", name="g"), "id": "c2", "index": 1},
        *({**function(piece), "index": index} for piece in '{"a":1}' for index in (0, 1)),
        *({**function(piece), "index": 1} for piece in " \n"),
        {**function(" ", output="x"), "index": 1},
        {**function(" "), "index": 1},
    ),
)
BYTES["texts in turn, and one of no message"] = (
    "openai_assistants",
    [
        thread()[0],
        *(
            {"event": "thread.message.delta", "data": {**thread("a")[2]["data"], "id": id}}
            for id in ("m", "n", "m", None)
        ),
    ],
)
BYTES["calls of one index"] = (
    "openai_assistants",
    step(
        {**function("{", name="f"), "id": "c1"},
        {**function("}"), "id": "c1"},
        {**function("{", name="f"), "id": "c2"},
        *(
            {**function(piece), "id": id}
            for id, piece in [("c2", "}"), ("c1", " "), ("", " "), (None, "  "), ("c2", " ")]
        ),
    ),
)
BYTES["two commands without ids"] = (
    "openai_responses",
    [
        *shell(COMMAND, "a", "b"),
        *({**one, "command_index": 1} for one in shell(COMMAND, "c", "d")[2:]),
        {**shell(COMMAND)[1], "output_index": 1},
        *({**one, "output_index": place} for place, one in zip((1, 0, 1, 1), shell(COMMAND, *"efgh")[2:], strict=True)),
        shell(COMMAND)[1],
        *shell(COMMAND, "i", "j")[2:],
    ],
)


def frames_made_of(name: str, items: list[Wire], *, ids: bool = False) -> list[tuple[bytes, bytes, bytes]]:
    return [
        (b"%d" % number if ids else b"", item.get("event", "").encode(), encoded(item))
        for number, item in enumerate(items)
    ]


def told_by_frames(name: str, frames: list[Any], *, fast: bool) -> list[Any]:
    decoder = kind_of(name)()
    if fast:
        is_named = name in ("openai_assistants", "streamkit")
        found = [lines(decoder.feed_frames([frame if is_named or frame[0] else frame[2]])) for frame in frames]
    else:
        found = [lines(decoder.feed_frame(*frame)) for frame in frames]
    told = [*found, lines([*decoder.finish()]), decoder.complete, decoder.exhausted, decoder.index]
    return [
        [[field for field in line if field[0] != "item_index"] for line in part] if isinstance(part, list) else part
        for part in told
    ]


@pytest.mark.parametrize("ids", [False, True], ids=["", "with ids"])
@pytest.mark.parametrize("case", BYTES)
def test_frames_give_the_same_events_on_both_paths(case: str, ids: bool) -> None:
    """Parallel parts and calls too."""
    name, items = BYTES[case]
    frames = frames_made_of(name, items, ids=ids)
    assert told_by_frames(name, frames, fast=True) == told_by_frames(name, frames, fast=False)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in BYTES if "side" not in case and "two" not in case])
def test_any_json_at_any_place_of_a_frame_gives_the_same_events_on_both_paths(case: str) -> None:
    """But for what is nested too deep and short, at a place that the fast path does not read."""
    name, items = BYTES[case]
    *start, odd, end = items
    for path, value in some_oddities(odd):
        if value is TOO_DEEP and name != "streamkit":
            continue
        if path[:1] != ("event",) and path and is_json(value) and isinstance(stream := changed(odd, path, value), dict):
            frames = frames_made_of(name, [*start, stream, end])
            fast, slow = (told_by_frames(name, frames, fast=fast) for fast in (True, False))
            assert fast == slow, f"{value!r} at {path}"


@each_recording(*FOLDERS.values(), only=lambda path: path.stem != "conformance")
def test_the_own_protocols_frames_give_the_same_events_on_both_paths(path: Path) -> None:
    """The events of every recording, in their wire form."""
    decoder = kind_of(name_of(path))()
    events = decoder.feed_frames(frames_of(path, [path.read_bytes()]))  # type: ignore[arg-type]
    wire = [encode_event(event) for event in events if event.type in EVENTS]
    frames = [(b"", b"", data) for data in wire]
    assert told_by_frames("streamkit", frames, fast=True) == told_by_frames("streamkit", frames, fast=False)


def test_a_piece_with_half_of_a_surrogate_pair_is_added_once() -> None:
    """It is no plain one, and nothing may have changed before that shows: neither its log probabilities nor a call's
    arguments are there twice."""
    tokens: Any = [{"token": "x", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    text = [
        {
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": {"content": piece}, "logprobs": logprobs}],
        }
        for piece, logprobs in (("a", None), ("b\ud83d", {"content": tokens}), ("\ude00", None))
    ]
    call = [
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "f"},
        *(
            {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": piece}
            for piece in ('{"a":"', "\ud83d", "\ude00")
        ),
        {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '"}'},
        {"type": "finish"},
    ]
    for name, items in (("openai_chat", text), ("vercel_ui", call)):
        assert told(kind_of(name), items) == told(tolerant(name), items)


def test_a_pair_of_surrogates_is_joined_across_dicts() -> None:
    items = chat({"content": "a"}, {"content": "b\ud83d"}, {"content": "\ude00c"}, {"content": "d"})
    assert sk.stream(
        [*items, *chat({}, choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])]
    ).get_final_text() == ("ab\U0001f600cd")


# -- objects of the SDKs


class Chunk(BaseModel):
    """An object like openai's, of a class of its own."""

    id: str
    object: str
    choices: list[Any]
    usage: Any = None


def as_chunk(kind: Any, text: str) -> Any:
    return kind.construct(**chat({"content": text})[0])


class Renamed(Chunk):
    """A field has another name in its dict."""

    other: Any = pydantic.Field(default=None, alias="citations")


class Written(Chunk):
    """A field is written in another way."""

    @pydantic.field_serializer("choices")
    def write(self, choices: Any) -> Any:
        return [{**choices[0], "delta": {"content": "written"}}]


class Dumped(Chunk):
    """It makes a dict of its own."""

    def to_dict(self, **_: Any) -> dict[str, Any]:  # type: ignore[override]
        return {**super().to_dict(), "usage": {"prompt_tokens": 1, "completion_tokens": 2}}


class Refusing(Chunk):
    """It makes no dict."""

    def to_dict(self, **_: Any) -> dict[str, Any]:  # type: ignore[override]
        raise RuntimeError("no dict today")


@pytest.mark.parametrize("kind", [Chunk, Renamed, Written, Dumped])
def test_an_object_that_writes_itself_differently_is_read_as_it_is_written(kind: Any) -> None:
    items = [as_chunk(Chunk, "a"), as_chunk(kind, "b"), as_chunk(kind, "c")]
    assert told(kind_of("openai_chat"), items) == told(tolerant("openai_chat"), items)
    assert told(kind_of("openai_chat"), items) == told(kind_of("openai_chat"), [item.to_dict() for item in items])


class Defaulted(Chunk):
    """A field that was not set is not in its dict, although it has a value."""

    usage: Any = {"prompt_tokens": 1, "completion_tokens": 2}


def test_a_value_that_was_not_set_is_not_read() -> None:
    """It is the class's, and nothing that came."""
    items = [as_chunk(Chunk, "a"), as_chunk(Defaulted, "b"), as_chunk(Chunk, "c")]
    assert items[1].usage
    assert told(kind_of("openai_chat"), items) == told(tolerant("openai_chat"), items)
    assert not [event for event in kind_of("openai_chat")().feed_items(items) if isinstance(event, Usage)]


def test_an_object_that_makes_no_dict_fails_the_source() -> None:
    stream = sk.stream([as_chunk(Chunk, "a"), as_chunk(Refusing, "b")])
    with pytest.raises(sk.SourceError, match="no dict today"):
        stream.until_done()


def test_what_an_object_has_besides_its_fields_is_read() -> None:
    """As the reasoning of servers that openai's classes do not know."""
    items = [OBJECTS["openai_chat"](item) for item in chat(*({"reasoning_content": piece} for piece in "abc"))]
    events = kind_of("openai_chat")().feed_items(items)
    assert [event.value for event in events if isinstance(event, Delta)] == ["a", "b", "c"]


@pytest.mark.parametrize("each", [False, True], ids=["list", "each"])
def test_raw_and_receivers_have_the_dict_of_an_object(each: bool) -> None:
    """`event.raw` is what it would be of the dicts; so are the items that `receive` gets."""
    items = chat({"content": "a"}, {"content": "b"}, {"content": "c"})
    objects = [OBJECTS["openai_chat"](item) for item in items]

    class Receiver(sk.EventHandler):
        def __init__(self) -> None:
            self.items: list[Any] = []

        def receive(self, items: Any) -> None:
            self.items += items

    for handler in (None, Receiver()):
        stream = sk.stream(iter(objects) if each else objects, *([handler] if handler else []))
        raws: list[Any] = []
        with pytest.raises(sk.IncompleteStreamError):
            for event in stream:
                raws += [event.raw] if isinstance(event, Delta) else []
        deltas = [event.raw for event in kind_of("openai_chat")().feed_items(objects) if isinstance(event, Delta)]
        assert deltas == items
        assert raws == items
        if handler is not None:
            assert handler.items == items


def test_an_anthropic_object_is_opened() -> None:
    assert as_item(AnthropicModel.construct(a=1)) == {"a": 1}


def thinking(text: str) -> Wire:
    return {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}


PLAIN = {**STREAMS, "chat, reasoning as a part": ("openai_chat", chat(*map(thinking, "abc")))}


def with_other_keys(value: Any) -> Iterator[Any]:
    """An item without each of its keys, with an empty one in its place, and with another key beside it."""
    for key in value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0):
        if isinstance(value, dict):
            yield {name: one for name, one in value.items() if name != key}
            yield {**value, key: ""}
            yield {**value, "other": "x"}
        for one in with_other_keys(value[key]):
            yield changed(value, (key,), one)


@pytest.mark.parametrize("case", PLAIN)
def test_keys_that_are_missing_or_new_give_the_same_events_on_both_paths(case: str) -> None:
    """Also those by which an item, or a part of it, says what it is; as bytes and as dicts."""
    name, (*start, odd, end) = PLAIN[case]
    for one in with_other_keys(odd):
        items = [*start, odd, one, end]
        assert told(kind_of(name), items) == told(tolerant(name), items)
        if all("event" in item and "data" in item for item in items) or not kind_of(name).wraps_event_name:
            frames = frames_made_of(name, items)
            assert told_by_frames(name, frames, fast=True) == told_by_frames(name, frames, fast=False)


# -- objects whose neighbours are plain: what was learnt of one is not taken for granted of the next


class Newer(ChatCompletionChunk):
    """A chunk as another version of the SDK, or another server's, may declare it."""

    x_groq: Any = None
    citations: Any = None


class Preset(ChatCompletionChunk):
    """A chunk with a field that need not be null where it was not set."""

    usage: Any = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def chunk_class(**fields: Any) -> Any:
    """A chunk as an early version of the SDK declared it: only these fields, and whatever else comes."""
    return type(
        "Chunk", (BaseModel,), {"__annotations__": dict.fromkeys(fields, Any), "__module__": __name__, **fields}
    )


def likely(items: list[Wire]) -> Iterator[Wire]:
    """Items as the first of these, each with another value at one place, or with a key that is missing or new."""
    odd = items[-2]
    yield from with_other_keys(odd)
    for path, value in itertools.product(places(odd), (None, "x", "", 0, 1, True, [], ["x"], {}, {"x": 1})):
        if path:
            yield changed(odd, path, value)
    for path, key in itertools.product(places(odd), KEYS):
        if isinstance(value_at(odd, path), dict):
            yield from (changed(odd, (*path, key), value) for value in (None, "x", {"x": 1}))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["chat text", "responses text", "anthropic text"])
def test_any_object_beside_plain_ones_gives_the_same_events_on_both_paths(case: str) -> None:
    """As the clients make objects of whatever a server sends."""
    name, items = STREAMS[case]
    make = OBJECTS[name]
    *start, before, end = map(make, [*items[:-1], items[-1]])
    fast, slow = kind_of(name), tolerant(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for item in likely(items):
            stream = [*start, before, make(item), end]
            assert told(fast, stream) == told(slow, stream), item


def test_objects_of_other_classes_beside_plain_ones_give_the_same_events_on_both_paths() -> None:
    """Subclasses, other versions of the SDK, objects that were made by hand, and fields that were set afterwards."""
    _, (first, plain, end) = STREAMS["chat text"]
    early = chunk_class(id=None, choices=None, object=None)
    chunk: Any
    others: list[Any] = []
    for kind in (ChatCompletionChunk, Newer, Preset, early):
        for more in ({}, {"usage": None}, {"x_groq": {"id": "x"}}, {"citations": ["a"]}, {"error": {"message": "no"}}):
            others.append(construct_type(type_=kind, value={**plain, **more}))
            others.append(kind.construct(**{**ChatCompletionChunk.construct(**plain).__dict__, **more}))
    for key, value in (("refusal", "no"), ("role", "user"), ("content", None), ("reasoning_content", "r")):
        chunk = construct_type(type_=ChatCompletionChunk, value=plain)
        setattr(chunk.choices[0].delta, key, value)
        others.append(chunk)
    for key, value in (
        ("finish_reason", "stop"),
        ("logprobs", {"content": [{"token": "b"}]}),
        ("index", 1),
        ("more", 1),
    ):
        chunk = construct_type(type_=ChatCompletionChunk, value=plain)
        setattr(chunk.choices[0], key, value)
        others.append(chunk)
    make = OBJECTS["openai_chat"]
    fast, slow = kind_of("openai_chat"), tolerant("openai_chat")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's, about values that were set
        for other in others:
            stream = [make(first), make(plain), other, make(plain), other, make(end)]
            assert told(fast, stream) == told(slow, stream), other


# -- objects inside of dicts, and everything at once


def modelled(value: Any, rng: random.Random) -> Any:
    """A value with objects as the clients' in the place of some of its dicts."""
    if isinstance(value, list):
        return [modelled(one, rng) for one in value]
    if not isinstance(value, dict):
        return value
    fields = {key: modelled(one, rng) for key, one in value.items()}
    return BaseModel.construct(**fields) if rng.random() < 0.7 else fields


@pytest.mark.parametrize("case", STREAMS)
def test_objects_inside_of_dicts_give_the_events_of_the_dicts(case: str) -> None:
    """As in `dict(chunk)`; on both paths."""
    name, items = STREAMS[case]
    rng = random.Random(case)
    mixed = [{key: modelled(one, rng) for key, one in item.items()} for item in items]
    found = told(kind_of(name), mixed)
    assert found == told(tolerant(name), mixed)
    assert found == told(kind_of(name), items)


def mutated(items: list[Wire], rng: random.Random) -> list[Any]:
    """The items with a few values that are odd, missing, new or there twice."""
    changed_items: list[Any] = copy.deepcopy(items)
    for _ in range(rng.choice((1, 2, 4))):
        number = rng.randrange(len(changed_items))
        path = rng.choice([*places(changed_items[number])])
        odd = rng.choice(JSON_VALUES)
        if rng.random() < 0.3 and isinstance(place := value_at(changed_items[number], path), dict):
            place[rng.choice(KEYS)] = copy.deepcopy(odd)
        elif path and rng.random() < 0.3 and isinstance(holder := value_at(changed_items[number], path[:-1]), dict):
            del holder[path[-1]]
        elif path:
            changed_items[number] = changed(changed_items[number], path, copy.deepcopy(odd))
    return changed_items


JSON_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 7.5, 1e308, 2**63, 2**70, "", "x", "na\u00efve \U0001f327"),
    *([], ["x"], [None], {}, {"x": 1}, [[]], {"type": "text"}),
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0):
        yield from places(value[key], (*path, key))


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def story(decoder: protocols.Decoder, batches: list[Any], feed: Callable[[Any], Any]) -> str:
    """All events that an engine makes of these batches, with the content of their messages when they came."""
    engine = Engine()
    found: list[Any] = []

    def take(events: Iterable[Event]) -> None:
        for event in engine.complete(events):
            found.append([field for field in lines([event])[0] if field[0] not in ("raw_item", "item_index")])

    for batch in batches:
        take(feed(batch))
    take(decoder.finish())
    for events in (engine.source_done(complete=decoder.complete), engine.end()):
        take(events)
    return repr((found, decoder.complete, decoder.exhausted, decoder.index))


@pytest.mark.parametrize("seed", range(2))
def test_mutated_streams_give_the_same_events_on_both_paths(seed: int) -> None:
    """As bytes, as dicts and with objects; whatever came together: completed events, snapshots, warnings and their indexes."""
    rng = random.Random(seed)
    cases = [*STREAMS.values(), *BYTES.values(), *PLAIN.values()]
    for _ in range(40):
        name, items = rng.choice(cases)
        items = [item if isinstance(item, dict) else {} for item in mutated(items, rng)]
        fast, slow = kind_of(name), tolerant(name)
        size = rng.choice((1, 2, 100))
        frames = [
            (b"", str(item.get("event", "")).encode(), encoded(item) if "data" in item else msgspec.json.encode(item))
            for item in items
        ]
        batches = [frames[place : place + size] for place in range(0, len(frames), size)]
        one, other = fast(), slow()
        is_named = name in ("openai_assistants", "streamkit")
        plain = batches if is_named else [[data for _, _, data in batch] for batch in batches]
        assert story(one, plain, one.feed_frames) == story(other, plain, other.feed_frames)
        for parsed in (items, [{key: modelled(value, rng) for key, value in item.items()} for item in items]):
            one, other = fast(), slow()
            alone = [[item] for item in parsed]
            assert story(one, alone, one.feed_items) == story(other, alone, other.feed_items)
