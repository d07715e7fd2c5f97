"""Drives a decoder and an engine without any source, and writes down the story that they tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamkit.core.engine import Engine
from streamkit.events import Event
from streamkit.protocols import Decoder, codec
from streamkit.protocols.framing import SseFramer, framer_for

RECORDINGS = Path(__file__).resolve().parents[2] / "shared" / "recordings"


def recordings(protocol: str) -> list[Any]:
    """The recorded streams of a protocol, as pytest parameters; one skipped parameter where there are none here."""
    files = sorted(
        path for path in (RECORDINGS / protocol).glob("*") if path.suffix == ".sse" or path.name.endswith(".jsonl")
    )
    if not files:
        reason = f"the recorded {protocol} streams are not beside this checkout"
        return [pytest.param(None, id=protocol, marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(path, id=path.stem) for path in files]


class Story:
    """What was told: `events` in order, and the engine's state at the end."""

    def __init__(self, engine: Engine, decoder: Decoder) -> None:
        self.engine = engine
        self.decoder = decoder
        self.events: list[Event] = []
        self.lines: list[dict[str, Any]] = []

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            self.events.append(event)
            line = codec.event_to_dict(event)
            if (snapshot := getattr(event, "snapshot", None)) is not None:
                line["so far"] = snapshot.content
            self.lines.append(line)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    @property
    def codes(self) -> list[str]:
        """The codes of the warnings."""
        return [warning.code for warning in self.engine.warnings]

    def contents(self, type: str, format: str | None = None) -> list[str]:
        return [m.content for m in self.engine.messages.all if m.type == type and m.format == format]


def tell_bytes(kind: type[Decoder], chunks: Iterable[bytes], *, strict: bool = False) -> Story:
    """The story of a body in these pieces. SSE or NDJSON, as it starts."""
    chunks = list(chunks)
    framer = framer_for(b"".join(chunks)) or SseFramer()
    framer = SseFramer() if isinstance(framer, SseFramer) else type(framer)()
    framer.expect_names(kind.sse_event_names)
    engine = Engine(strict=strict)
    decoder = kind(engine.messages.new_id)
    story = Story(engine, decoder)
    for chunk in chunks:
        story.take(engine.complete(decoder.feed_frames(framer.feed(chunk))))
    story.take(engine.complete(decoder.feed_frames(framer.finish())))
    return _finish(story)


def tell_items(kind: type[Decoder], items: Sequence[Any], *, strict: bool = False) -> Story:
    """The story of items that are parsed already."""
    engine = Engine(strict=strict)
    decoder = kind(engine.messages.new_id)
    story = Story(engine, decoder)
    for item in items:
        story.take(engine.complete(decoder.feed_items([item])))
    return _finish(story)


def _finish(story: Story) -> Story:
    engine, decoder = story.engine, story.decoder
    story.take(engine.complete(decoder.finish()))
    story.take(engine.source_done(complete=decoder.complete))
    story.take(engine.end(None if decoder.complete else "incomplete"))
    return story
