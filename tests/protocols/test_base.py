"""What a new protocol is written with: the example in the documentation is a protocol that works."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.protocols import base, registry
from streamkit.protocols.framing import as_frame, framer_for

from ..benchmarks.wires import WIRES

BODY = b"""{"kind": "begin", "id": "run-7", "model": "parrot-2", "parrot": 1}
{"kind": "text", "text": "Hel"}
{"kind": "squawk"}
{"kind": "text", "text": "lo"}
{"kind": "end", "reason": "tired"}
"""


def example_source() -> str:
    """The code that the module's docstring shows."""
    lines = (base.__doc__ or "").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("    from "))
    end = next(n for n, line in enumerate(lines) if line.startswith("- Set"))
    return textwrap.dedent("\n".join(lines[start:end]))


def example() -> type[base.Decoder]:
    """The decoder that the module's docstring shows."""
    names: dict[str, Any] = {"__name__": "parrot"}
    exec(example_source(), names)
    decoder: type[base.Decoder] = names["Decoder"]
    return decoder


def test_the_documented_example_decodes_its_format() -> None:
    stream = sk.stream([BODY], protocol=example())
    stream.until_done()
    assert [message.content for message in stream.messages] == ["Hello"]
    run = stream.get_final_run()
    assert (run.id, run.model, run.finish_reason) == ("run-7", "parrot-2", "tired")
    assert [(warning.code, warning.index, warning.kind) for warning in stream.warnings] == [
        ("unknown-kind", 2, "squawk")
    ]


def test_the_documented_example_knows_when_it_was_cut_off() -> None:
    with pytest.raises(sk.IncompleteStreamError, match="parrot stream was cut off"):
        sk.stream([BODY.rpartition(b'{"kind": "end"')[0]], protocol=example()).until_done()


def test_a_decoder_and_an_encoder_without_their_methods_say_which_is_missing() -> None:
    with pytest.raises(NotImplementedError, match=r"Decoder\.recognises"):
        base.Decoder.recognises({})
    with pytest.raises(NotImplementedError, match=r"Encoder\.feed"):
        base.Encoder().feed(sk.Event())


PROTOCOLS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "assistants": "openai_assistants",
}  # where the name of the wire is another


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("wire", WIRES)
def test_each_event_has_the_number_of_its_item(wire: str, is_over: bool) -> None:
    """The engine names the item in which it finds a fault. Where a stream is over, what follows in the same chunk is not
    read, and not counted."""
    decoder = protocols.find(PROTOCOLS.get(wire, wire)).Decoder()
    chunks = WIRES[wire](9)
    framer = framer_for(chunks[0])
    assert framer is not None
    before = framer.feed(b"".join(chunks[:5]))
    decoder.feed_frames(before)
    end: list[Any] = [(b"", b"", b"[DONE]"), *before] if is_over else []
    frames = [*framer.feed(b"".join(chunks[5:-2])), *end]
    events = decoder.feed_frames(frames)
    numbers = {as_frame(frame)[2]: 5 + place for place, frame in enumerate(frames[: decoder.index - 5])}
    assert decoder.exhausted is is_over
    assert len(events) > 2
    for event in events:
        assert event.item_index == numbers[event.raw_item], event


def test_an_entry_point_adds_a_protocol(tmp_path: Path) -> None:
    """It is found by its name, and by an item that it recognises."""
    (tmp_path / "parrot.py").write_text(example_source(), encoding="utf-8")
    metadata = tmp_path / "parrot-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[streamkit.protocols]\nparrot = parrot\n", encoding="utf-8")
    program = textwrap.dedent("""
        from streamkit import protocols
        assert protocols.names() == [*protocols.BUILT_IN, "parrot"]
        assert protocols.find("parrot").Decoder.name == "parrot"
        assert protocols.recognise({"kind": "begin", "parrot": 1}) is protocols.find("parrot").Decoder
        print("found")
    """)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert (result.stdout, result.stderr) == ("found\n", "")


def test_shapes_and_questions_are_known_without_the_decoders() -> None:
    """What the registry says ahead of an import is what the decoders say."""
    decoders = {name: protocols.find(name).Decoder for name in protocols.BUILT_IN}
    assert tuple(name for name, decoder in decoders.items() if decoder.pull_approves) == registry.PULL_APPROVES
    for name in protocols.BUILT_IN:
        shape = importlib.import_module(f"streamkit.protocols.{name}.shape")
        assert getattr(shape, "wraps_event_name", False) is registry.decoder_of(name).wraps_event_name


FIRST_ITEMS: list[dict[str, Any]] = [
    {"type": "message_start", "message": {}},
    {"type": "response.created", "response": {}},
    {"object": "chat.completion.chunk", "choices": []},
]
OTHERS: list[dict[str, Any]] = [
    {},
    {"extra": 1},
    {"type": None},
    {"type": "chat.completion.chunk"},
    {"type": "message_start"},
    {"message": None},
    {"object": "response", "output": []},
    {"object": "chat.completion"},
    {"object": "thread.run", "status": "queued"},
    {"choices": [{"delta": {}}]},
    {"event": "thread.run.created", "data": {}},
    {"data": {"object": "thread"}},
]


@pytest.mark.parametrize("event_name", ["", "message_start", "error", "thread.run.created"])
@pytest.mark.parametrize("first", FIRST_ITEMS)
def test_an_item_that_begins_a_stream_is_of_the_first_protocol_that_recognises_it(
    first: dict[str, Any], event_name: str
) -> None:
    """Also one that others could have, although an item of the usual form is looked up in a table."""
    decoders = [protocols.find(name).Decoder for name in protocols.BUILT_IN]
    for other in OTHERS:
        item = {**first, **other}
        wrapped = {"event": event_name, "data": item} if event_name else item
        matching = (d for d in decoders if d.recognises(wrapped if d.wraps_event_name else item))
        assert protocols.recognise(item, event_name) is next(matching, None)
