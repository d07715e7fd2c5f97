"""Every recorded stream of the built-in protocols, through the public face and under the laws.

`tests/recorded.py` says where they are. What final texts and calls the shared ones give is compared with the official
SDKs' in `tests/protocols`; what the own ones give, here with the script that made them.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.events import Event
from streamkit.protocols.framing import Framer, SseFramer, framer_for

from .recorded import OWN, each_recording, own_recordings
from .recordings import make
from .telling import Story, tell_bytes, tell_items

PROTOCOLS = (
    *("openai_chat", "openai_responses", "openai_assistants", "anthropic", "gemini", "open_interpreter", "letta"),
    *("bedrock_converse", "cohere", "ollama", "vercel_ui", "ag_ui"),
)
FOLDERS = {name: name.replace("_", "-") for name in PROTOCOLS} | {"anthropic": "anthropic-messages"}
NO_STREAMS = ("conformance", "dart-malformed-examples")  # lists of cases, which `tests/protocols` has tests for
LARGEST_CUT_EVERYWHERE = 500  # bytes; larger ones are cut in 60 random places, half of them at the end of a line

# Recordings that do not end well, and what they were cut off by or failed with.
ENDS: dict[str, type[sk.StreamkitError]] = {
    "cut-off": sk.IncompleteStreamError,
    "error": sk.RunFailedError,
    "ai6-http-500": sk.RunFailedError,
    "edge-array-cut-after-second-object.array": sk.IncompleteStreamError,
    "edge-cut-frame": sk.IncompleteStreamError,
    "edge-error-in-data": sk.RunFailedError,
    "edge-error-pretty-json-no-data-prefix": sk.RunFailedError,
    "edge-malformed-function-call": sk.RunFailedError,
    "edge-message-type-error": sk.RunFailedError,
    "edge-model-stream-error-exception": sk.RunFailedError,
    "ai6-responses-error-quota": sk.RunFailedError,
    "dart-unicode-and-special-characters": sk.IncompleteStreamError,
    "dart-with-event-ids-and-retry": sk.IncompleteStreamError,
    "edge-error-finish-after-text": sk.RunFailedError,
    "edge-error-line": sk.RunFailedError,
    "php-keepalive-json": sk.IncompleteStreamError,
    "pydai-openrouter-stream-error": sk.RunFailedError,
    "recorded_issue2463_claude37_2025-03": sk.IncompleteStreamError,
    "recorded_pr1693_memgpt_tokens_2024-08": sk.IncompleteStreamError,
    "pydai-tool-use-failed-error-streaming.0": sk.RunFailedError,
    "simpleoai-threads-runs-create-stream-error-1": sk.RunFailedError,
}


def is_stream(path: Path) -> bool:
    return path.stem not in NO_STREAMS


over_all = each_recording(*(FOLDERS[name] for name in PROTOCOLS), only=is_stream)


def name_of(path: Path) -> str:
    """The name of a recording's protocol."""
    return next(name for name, folder in FOLDERS.items() if folder == path.parent.name)


def decoder_of(name: str) -> type[protocols.Decoder]:
    kind: type[protocols.Decoder] = protocols.find(name).Decoder
    return kind


def framer_of(path: Path) -> Framer:
    return framer_for(path.read_bytes()) or SseFramer()


def frames_of(path: Path, pieces: list[bytes]) -> list[tuple[bytes, ...]]:
    framer = framer_of(path)
    return [tuple(frame) for piece in (*pieces, b"") for frame in framer.feed(piece)] + [
        tuple(frame) for frame in framer.finish()
    ]


@over_all
def test_a_recording_is_recognised_and_told_to_its_end(path: Path) -> None:
    """Law 7: nothing but the error that the stream deserves, and only `on_end` comes last."""
    told: list[str] = []

    class Teller(sk.EventHandler):
        def on_event(self, event: Event) -> None:
            told.append(event.type)

    stream = sk.stream(path, Teller())
    expected = ENDS.get(path.stem)
    if expected is None:
        stream.until_done()
    else:
        with pytest.raises(expected):
            stream.until_done()
    assert stream._decoder is not None
    assert stream._decoder.name == name_of(path)
    assert told.count("stream_end") == 1
    assert told[-1] == "stream_end"
    assert "decoder-error" not in {warning.code for warning in stream.warnings}


@over_all
def test_law_3_every_cut_of_the_bytes_gives_the_same_frames(path: Path) -> None:
    """At every byte of recordings of up to half a KB; larger ones are cut at the ends of lines, where a framer decides, and within
    them. `test_framing` has every cut of every shape of an event."""
    body = path.read_bytes()
    whole = frames_of(path, [body])
    for place in cut_places(body):
        assert frames_of(path, [body[:place], body[place:]]) == whole, f"cut at byte {place}"


def cut_places(body: bytes) -> Collection[int]:
    if len(body) <= LARGEST_CUT_EVERYWHERE:
        return range(1, len(body))
    chance = random.Random(7)
    ends = [place for end, byte in enumerate(body[:-1]) if byte in b"\r\n" for place in (end, end + 1) if place]
    return {*chance.sample(ends, min(30, len(ends))), *chance.sample(range(1, len(body)), 30)}


@over_all
def test_law_3_in_small_pieces_and_at_random_cuts_the_story_is_the_same(path: Path) -> None:
    """The whole line from bytes to events; with the test above, any way of cutting tells the same story. Our own recordings
    and other small ones come one byte at a time."""
    body = path.read_bytes()
    kind = decoder_of(name_of(path))
    whole = tell_bytes(kind, [body]).lines
    size = 1 if path.is_relative_to(OWN) or len(body) <= LARGEST_CUT_EVERYWHERE else 7
    assert tell_bytes(kind, [body[i : i + size] for i in range(0, len(body), size)]).lines == whole
    chance = random.Random(len(body))
    cuts = sorted(chance.sample(range(len(body) + 1), min(12, len(body))))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert tell_bytes(kind, pieces).lines == whole


@over_all
def test_law_6_the_canonical_events_tell_the_same_story_again(path: Path) -> None:
    """Through the codec's text into a second engine, and its into a third."""
    first = tell_bytes(decoder_of(name_of(path)), [path.read_bytes()])
    second = told_again(first)
    assert second.lines == first.lines
    assert told_again(second).lines == first.lines


def told_again(story: Story) -> Story:
    lines = [{key: value for key, value in line.items() if key != "so far"} for line in story.lines]
    end = [{"type": "stream_end"}] if story.decoder.complete else []
    wire = [msgspec.json.decode(msgspec.json.encode(line)) for line in (*lines, *end)]
    return tell_items(decoder_of("streamkit"), wire)


@over_all
def test_law_2_a_recordings_snapshots_are_the_sums_of_their_deltas(path: Path) -> None:
    """At every step; a `replace` delta begins anew."""
    sums: dict[str, str] = {}
    for line in tell_bytes(decoder_of(name_of(path)), [path.read_bytes()]).lines:
        if "value" not in line or "message_id" not in line:
            continue
        before = "" if line.get("replace") else sums.get(line["message_id"], "")
        sums[line["message_id"]] = before + line["value"]
        assert line["so far"] == sums[line["message_id"]]


# -- the repository's own recordings


def test_the_own_recordings_are_what_their_script_makes() -> None:
    """Byte for byte, and no file besides."""
    made = make.bodies()
    assert set(made) == {path for name in PROTOCOLS for path in own_recordings(FOLDERS[name])}
    for path, body in made.items():
        assert path.read_bytes() == body, path


# What the script says: the texts, the reasoning, the calls' names and arguments, the code.
ARGUMENTS = [("weather", {"city": "Oslo", "note": 'a "quoted" \\ word', "days": [1, 2]}), ("time", {})]
RAIN = "It rains in \u201cOslo\u201d,\ndata: 7 \u00b0C \U0001f327."
SCRIPTED: dict[str, tuple[str, str, list[Any], list[str]]] = {
    "text": (RAIN, "", [], []),
    "tool-call": ("Let me look.", "", ARGUMENTS, []),
    "error": ("It rains in \u201cOslo\u201d,\n", "", [], []),
    "reasoning": (RAIN, "They ask for weather.", [], []),
    "code": ("It is 42.", "", [], ["print(6 * 7)"]),
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_own_recording_gives_what_was_scripted(name: str) -> None:
    """All of it in every protocol; one that is cut off, what arrived before."""
    for path in own_recordings(FOLDERS[name]):
        story = tell_bytes(decoder_of(name), [path.read_bytes()])
        messages = story.engine.messages.all
        text = "".join(story.contents("message"))
        calls = [(m.name, m.content) for m in messages if isinstance(m, sk.ToolCallMessage)]
        if path.stem == "cut-off":
            assert text in (RAIN, "Let me look."), path
            whole_calls = name == "ollama"  # of which a cut stream has none that began
            assert calls == [] if whole_calls else (calls[0][0] == "weather" and calls[0][1].startswith('{"')), path
            assert not story.decoder.complete, path
            continue
        reasoning = "".join(m.content for m in messages if m.type == "reasoning")
        code = [m.content for m in messages if m.type == "code"]
        said = (text, reasoning, [(name, msgspec.json.decode(value)) for name, value in calls], code)
        assert said == SCRIPTED[path.stem], path
