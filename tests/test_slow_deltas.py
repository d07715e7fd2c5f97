"""The deltas of real streams stay on the fast path: at most 5 % of them leave it, and none of the others is dear."""

from __future__ import annotations

import statistics

import pytest

from streamkit import protocols
from streamkit.events import Event, MetadataHeld

from .recorded import SHARED, own_recordings, streams_in
from .slow_deltas import (
    LIMIT,
    MOST_OPCODES,
    VARIANTS,
    delta_items,
    frames_in,
    items_of_recordings,
    opcodes_to_a_hook,
    slow_share,
)

FOLDERS = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "openai_assistants": "openai-assistants",
    "anthropic": "anthropic-messages",
    "open_interpreter": "open-interpreter",
    "letta": "letta",
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_deltas_of_each_provider_take_the_fast_path(name: str) -> None:
    """But for the first ones of a stream, with which its run and its message begin; and they cost little there."""
    items = delta_items(*VARIANTS[name])
    assert sum(item.deltas for item in items) >= 39
    assert sum(item.slow for item in items[2:]) == 0
    assert sum(item.slow for item in items) <= 2
    alone = [item.opcodes for item in items if item.is_alone]
    assert not alone or statistics.median(alone) <= MOST_OPCODES  # the garbage collector may run in one of them


def test_a_delta_with_usage_costs_no_more() -> None:
    """Although the usage is an event of its own."""
    items = delta_items(*VARIANTS["chat, usage in each chunk"])
    assert not any(item.is_alone for item in items[3:])
    assert statistics.median(item.opcodes for item in items) <= MOST_OPCODES


@pytest.mark.parametrize(
    "name",
    [
        "chat, usage in each chunk",
        "chat, usage with details in each chunk",
        "chat, OpenRouter's reasoning",
        "chat, log probabilities",
    ],
)
def test_the_dearest_deltas_cost_at_most_six_times_the_limit(name: str) -> None:
    """On their whole way from bytes to a hook. The limit does that in 73 instructions."""
    assert opcodes_to_a_hook(*VARIANTS[name]) <= 6 * LIMIT


SWITCHED = [name for name in VARIANTS if VARIANTS[name][0] == "openai_chat"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_chunks_of_all_servers_in_turn_give_the_same_events_on_both_paths(size: int) -> None:
    """However many come at once. What is held is reported at other moments."""
    turns = zip(*(frames_in(VARIANTS[name][1])[1:] for name in SWITCHED), strict=True)
    frames = [frame for turn in turns for frame in turn] + frames_in(VARIANTS["chat, usage in each chunk"][1])
    fast, tolerant = (protocols.find("openai_chat").Decoder() for _ in range(2))
    found = [event for place in range(0, len(frames), size) for event in fast.feed_frames(frames[place : place + size])]
    expected = [event for frame in frames for event in tolerant.feed_frame(b"", b"", frame)]
    assert shown([*found, *fast.finish()]) == shown([*expected, *tolerant.finish()])


def shown(events: list[Event]) -> list[str]:
    return [
        repr((event, event.raw_item, event.position, getattr(event, "snapshot", None)))
        for event in events
        if not isinstance(event, MetadataHeld)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", FOLDERS)
def test_few_deltas_of_the_recordings_leave_the_fast_path(protocol: str) -> None:
    paths = [path for path in streams_in(SHARED / FOLDERS[protocol]) if path.stem != "conformance"]
    if not paths:
        pytest.skip("the recorded streams are not beside this checkout")
    assert slow_share(items_of_recordings(protocol, paths)) <= 0.05


# The own recordings are so short that the first delta of a message, which begins it, is a good part of all.
OWN_SHARES = {
    "openai_chat": 0.0,
    "openai_responses": 0.075,
    "openai_assistants": 0.17,
    "anthropic": 0.075,
    "open_interpreter": 0.065,
    "letta": 0.0,
}


@pytest.mark.parametrize("protocol", FOLDERS)
def test_few_deltas_of_the_own_recordings_leave_the_fast_path(protocol: str) -> None:
    """And no more than did before."""
    items = items_of_recordings(protocol, own_recordings(FOLDERS[protocol]))
    assert slow_share(items) <= OWN_SHARES[protocol]
