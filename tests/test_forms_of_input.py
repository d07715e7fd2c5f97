"""Every form of input gives the same events: bytes cut anywhere, text, lines, dicts and the SDKs' objects, in lists or one by one,
from a thread or a task. With their metadata, raw items, cursors, warnings and messages, and with the same end.

The streams are those that servers send, with a few values that are odd, missing, new, repeated or at another place.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.messages.json_text import read_json
from streamkit.messages.sdk_objects import as_item
from streamkit.protocols.framing import framer_for

from .forms import ASYNC_FORMS, FORMS, OBJECTS, objects, told, wraps_names
from .provider_streams import STREAMS
from .recorded import SHARED, own_recordings, streams_in
from .test_parsed_items import JSON_VALUES, KEYS, places, value_at
from .test_recorded_streams import FOLDERS

Items = list[Any]
LONGEST = 40  # items of a stream

COMPLETIONS: Items = [
    {"id": "c", "object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": None}]}
    for text in "abcd"
]
COMPLETIONS.append({**COMPLETIONS[0], "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})


def items_in(name: str, body: bytes) -> Items:
    """The parsed items of a body, the first ones, without what is not JSON."""
    framer = framer_for(body)
    assert framer is not None
    found: Items = []
    for frame in (*framer.feed(body), *framer.finish()):
        _, event, data = (b"", b"", frame) if isinstance(frame, bytes) else frame
        item = read_json(data)
        if isinstance(item, dict):
            is_bare = wraps_names(name) and not is_wrapped(item)
            found.append({"event": event.decode(), "data": item} if is_bare else item)
    return found[:LONGEST]


def is_wrapped(item: Any) -> bool:
    return isinstance(item, dict) and "event" in item and "data" in item


def chat_stream(random: Random) -> Items:
    """A stream of Chat as short as it can be, with the fields that some servers add."""
    deltas: list[Any] = [{"content": "a"}, {"content": "b"}, {"reasoning_content": "r"}, {"reasoning": "s"}, {}]
    deltas += [{"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}, {"refusal": "n"}]
    choices: list[Any] = [{}, {}, {"finish_reason": "stop"}, {"finish_reason": None, "stop_reason": 7}]
    choices += [{"content_filter_results": {"hate": {"filtered": False}}}, {"logprobs": {"content": [{"token": "a"}]}}]
    fields: list[Any] = [{}, {}, {"provider": "P"}, {"provider": "Q"}, {"service_tier": "flex"}, {"citations": ["u"]}]
    fields += [{"system_fingerprint": "fp"}, {"x_groq": {"id": "x"}}, {"usage": {"prompt_tokens": 1}}, {"id": "c1"}]

    def chunk() -> Any:
        choice = {"index": random.choice((0, 0, 0, 1)), "delta": random.choice(deltas), **random.choice(choices)}
        return {"choices": [choice], **random.choice(fields), **random.choice(fields)}

    return [chunk() for _ in range(random.randint(1, 6))]


def bodies_of(name: str) -> list[bytes]:
    return [path.read_bytes() for path in own_recordings(FOLDERS[name])] + [
        body for protocol, body in STREAMS.values() if protocol == name
    ]


SOURCES: dict[str, list[Items]] = {name: [items_in(name, body) for body in bodies_of(name)] for name in FOLDERS}
SOURCES["openai_completions"] = [COMPLETIONS]
SOURCES["openai_chat"] += [chat_stream(Random(seed)) for seed in range(len(SOURCES["openai_chat"]))]


def changed(name: str, items: Items, random: Random) -> Items:
    """These items with a few changes."""
    items = copy.deepcopy(items)
    for _ in range(random.randint(0, 4)):
        number = random.randrange(len(items))
        match random.randrange(4):
            case 0:  # the items in another order, once more, or without one
                other = random.randrange(len(items))
                items[number], items[other] = items[other], copy.deepcopy(items[number])
            case 1 if len(items) > 1:
                del items[number]
            case _:
                change(items[number], random, items)
    kept = [item for item in items if isinstance(item, dict)]
    if not wraps_names(name):
        return kept
    kept = [
        item for item in kept if isinstance(item.get("event"), str) and "data" in item and not is_wrapped(item["data"])
    ]
    return [{"event": item["event"], "data": item["data"]} for item in kept]  # a body has no place for more


def change(item: Any, random: Random, items: Items) -> None:
    """Change one value of an item: to an odd one, or to what stands anywhere in the stream."""
    other = random.choice(items)
    odd = random.choice(JSON_VALUES) if random.random() < 0.5 else value_at(other, random.choice([*places(other)]))
    path = random.choice([*places(item)])
    holder = value_at(item, path[:-1])
    place = value_at(item, path)
    if isinstance(place, dict) and random.random() < 0.4:
        place[random.choice([*KEYS, *(key for found in objects_in(other) for key in found)])] = copy.deepcopy(odd)
    elif path and path[-1] != "data" and isinstance(holder, dict) and random.random() < 0.3:
        del holder[path[-1]]
    elif path and path[-1] != "event":
        holder[path[-1]] = copy.deepcopy(odd)


def objects_in(value: Any) -> list[dict[str, Any]]:
    return [found for path in places(value) if isinstance(found := value_at(value, path), dict)]


def assert_the_same(name: str, items: Items, random: Random, *, share: int = 0, of: int = 1) -> None:
    """All forms of these items give the events of a body in one piece. So do objects of the SDK, and what they write of themselves.

    Args:
        share: which share of the forms is taken, where it is one of several.
    """
    expected = told(name, FORMS["a body in one piece"](name, items, random))
    for form, make in [*FORMS.items()][share::of] if items else ():
        assert told(name, make(name, items, random)) == expected, form
    for form, make in [*ASYNC_FORMS.items()][share::of]:
        backend = random.choice(("asyncio", "trio"))
        assert told(name, make(name, items, random), backend=backend) == expected, (form, backend)
    if name in OBJECTS and share == 0:
        made = objects(name, items)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDK's own
            written = [*map(as_item, made)]
        expected = told(name, FORMS["a body in one piece"](name, written, random))
        assert told(name, made) == expected, "a list of objects"
        assert told(name, iter(made)) == expected, "objects one by one"
        assert told(name, ASYNC_FORMS["one by one at hand"](name, made, random), backend="asyncio") == expected


@pytest.mark.parametrize("name", SOURCES)
@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=6, deadline=None)
def test_every_form_of_input_gives_the_same_events(name: str, seed: int) -> None:
    random = Random(seed)
    assert_the_same(name, changed(name, random.choice(SOURCES[name]), random), random)


@given(seed=st.integers(0, 2**64 - 1))
@settings(max_examples=15, deadline=None)
def test_every_form_of_a_short_stream_of_chat_gives_the_same_events(seed: int) -> None:
    random = Random(seed)
    assert_the_same("openai_chat", chat_stream(random), random)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_every_form_of_a_real_stream_gives_the_same_events(name: str) -> None:
    """As it came, each in one of the forms, or in two; streams with a few changes are above."""
    paths: list[Path] = [path for path in streams_in(SHARED / FOLDERS[name]) if "conformance" not in path.stem]
    if not paths:
        pytest.skip("the recorded streams are not beside this checkout")
    for number, path in enumerate(paths):
        items = [item for item in items_in(name, path.read_bytes()) if item.get("type") != "confirmation"]
        if items:  # a producer that asks is pulled only when it was answered; a body that asks comes too late
            assert_the_same(name, items, Random(number), share=number % 9, of=9)


@pytest.mark.parametrize("name", OBJECTS)
def test_some_items_of_each_sdk_are_objects(name: str) -> None:
    """Otherwise the forms that have objects would be those that have dicts."""
    assert not all(isinstance(one, dict) for one in objects(name, SOURCES[name][0]))
