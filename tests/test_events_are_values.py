"""An event does not change after it was emitted, whatever the provider sends later: its values are not its decoder's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.protocols import codec, registry
from streamkit.protocols.framing import SseFramer, as_frame, framer_for

from .recorded import own_recordings

# Where the items of each protocol are; those of Chat have choices, as those of legacy Completions have.
FOLDERS = {name: name.replace("_", "-") for name in registry.BUILT_IN if name != "streamkit"} | {
    "anthropic": "anthropic-messages",
    "openai_completions": "openai-chat",
}
ERROR = json.dumps({"error": {"message": "The service is overloaded.", "type": "overloaded"}, "type": "error"}).encode()


def noted(value: Any, note: int) -> Any:
    """A value of JSON, each object of which has two keys more: one with another value each time, one with objects that grow."""
    if isinstance(value, list):
        return [noted(one, note) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: noted(one, note) for key, one in value.items()} | {"note": note, "notes": {f"n{note}": note}}


def items_of(path: Path) -> list[tuple[bytes, Any]]:
    """The names and the values of a recording's items."""
    body = path.read_bytes()
    framer = framer_for(body) or SseFramer()
    frames = map(as_frame, framer.feed(body))
    return [(name, json.loads(data)) for _, name, data in frames if not data.startswith(b"[DONE")]


def written(event: Any) -> str:
    return json.dumps(codec.event_to_dict(event), default=repr)


@pytest.mark.parametrize("protocol", FOLDERS)
def test_an_event_does_not_change_after_it_was_emitted(protocol: str) -> None:
    """Each recording, with more in all its objects, an error somewhere, and then all of it again with other values."""
    for path in own_recordings(FOLDERS[protocol]):
        items = items_of(path)
        for failing in {1, len(items) // 2, len(items)}:
            notes = [(name, json.dumps(noted(item, n % 7)).encode()) for n, (name, item) in enumerate(items * 2)]
            decoder = registry.find(protocol).Decoder()
            events, before = [], []
            for name, data in (*notes[:failing], (b"error", ERROR), (b"", ERROR), *notes[failing:]):
                for event in decoder.feed_frame(b"", name, data):
                    events.append(event)
                    before.append(written(event))
            assert events
            assert [*map(written, events)] == before, path
