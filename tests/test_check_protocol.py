"""`check_protocol`: every protocol of ours keeps the laws, and a protocol that breaks one is told which, and where."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.protocols.framing import as_frame, sse_frame
from streamkit.protocols.values import json_text
from streamkit.testing import ProtocolCheckError, check_protocol

BODY = b'{"radio": 1, "run": "r-7"}\n{"say": "Hej "}\n{"say": "d\xc3\xa5"}\n{"over": "out"}\n'


class Decoder(protocols.Decoder):
    """Radio, without a fault. Terminal rule: an item with `over`."""

    name = "radio"

    @classmethod
    def recognises(cls, item: Any) -> bool:
        return "radio" in item

    def feed(self, item: Any) -> Iterator[e.Event]:
        match item:
            case {"radio": _}:
                yield e.RunCreated(e.Run(id=str(item.get("run"))))
            case {"say": str(text)}:
                yield e.TextDelta("text", text)
            case {"over": reason}:
                self.complete = True
                yield e.RunDone(e.Run(status="completed", finish_reason=str(reason)))
            case _:
                yield self.warn("unknown-item", "it was skipped")


class Encoder(protocols.Encoder):
    """Radio, without a fault."""

    name = "radio"

    def feed(self, event: Any) -> Iterator[dict[str, Any]]:
        match event:
            case e.RunCreated(run=run):
                yield {"radio": 1, "run": run.id}
            case e.TextDelta(value=text):
                yield {"say": text}
            case e.RunDone(run=run):
                yield {"over": run.finish_reason}
            case _:
                pass


def to_input(messages: Any) -> list[Any]:
    return [{"say": message.content} for message in messages]


def radio(**parts: Any) -> SimpleNamespace:
    """The radio protocol, with other parts in the place of its own."""
    return SimpleNamespace(**{"Decoder": Decoder, "Encoder": Encoder, "to_input": to_input, **parts})


def check(module: Any, *recordings: Any, **options: Any) -> Any:
    return check_protocol(module, recordings or [BODY], **{"attempts": 60, **options})


# -- protocols that keep the laws


def conversation() -> list[e.Event]:
    return [
        e.RunCreated(e.Run(id="run_1", model="m")),
        e.TextDelta("msg_1", "R\u00e4"),
        e.TextDelta("msg_1", "in."),
        e.TextDone(m.TextMessage("msg_1", content="R\u00e4in.")),
        e.ToolCallDone(m.ToolCallMessage("c", call_id="call_1", name="f", content='{"x":1}')),
        e.Usage(1, 2, 3),
        e.RunDone(e.Run(status="completed")),
        e.StreamEnd(),
    ]


def body_of(name: str) -> bytes:
    """A conversation as the wire bytes of a protocol."""
    encoder = protocols.find(name).Encoder()
    frames = [
        sse_frame(json_text(item).encode(), encoder.event_name(item))
        for event in sk.stream(conversation(), protocol="streamkit")
        for item in encoder.items(event)
    ]
    return b"".join([*frames, *([sse_frame(encoder.done)] if encoder.done else [])])


@pytest.mark.slow
@pytest.mark.parametrize("name", protocols.BUILT_IN)
def test_every_protocol_of_ours_keeps_the_laws(name: str) -> None:
    """In a stream that its own encoder wrote."""
    report = check(protocols.find(name), body_of(name), attempts=10)
    assert report.protocol == name
    assert set(report.checks) > {"cuts", "faces", "junk", "encoding"}
    assert all(number > 0 for number in report.checks.values())
    assert report.notes == []


def test_a_report_reads_as_a_summary() -> None:
    lines = str(check(radio())).splitlines()
    assert lines[0] == "radio keeps the laws in 1 recording:"
    assert lines[1] == "  warnings: 1 checked"
    assert f"  cuts: {len(BODY) - 1 + 20 + 1} checked" in lines
    assert "  faces: 3 checked" in lines


def test_recordings_are_bytes_items_or_paths(tmp_path: Path) -> None:
    """All are named in the report; what ends as incomplete is noted."""
    path = tmp_path / "radio.jsonl"
    path.write_bytes(BODY)
    items = [{"radio": 1, "run": "r-8"}, {"say": "Hello"}]
    report = check(radio(), BODY, path, str(path), items)
    assert report.recordings == ["recording 0", str(path), str(path), "recording 3"]
    assert [note for note in report.notes if note.startswith("recording 3 ends with IncompleteStreamError")]


def test_what_has_no_items_cannot_be_checked() -> None:
    for recordings in ([], [b""], [[]]):
        with pytest.raises(sk.UsageError):
            check_protocol(radio(), recordings)


def test_the_same_seed_checks_the_same_streams() -> None:
    class Noting(Decoder):
        items: list[Any] = []

        def feed(self, item: Any) -> Iterator[e.Event]:
            self.items.append(repr(item))
            return super().feed(item)

    seen = []
    for seed in (1, 1, 2):
        Noting.items = []
        check(radio(Decoder=Noting), seed=seed, attempts=5)
        seen.append(Noting.items)
    assert seen[0] == seen[1] != seen[2]


def test_it_needs_no_test_framework() -> None:
    program = (
        "import sys, streamkit.testing; "
        "print(*{'pytest', 'hypothesis', '_pytest', 'trio', 'openai'} & set(sys.modules), 'none')"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout.split() == ["none"]


# -- protocols that break one


class WarnsOfNothing(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        yield from super().feed(item)
        yield self.warn("odd", "it is odd")


class AnnouncesTwice(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        if "say" in item:
            yield e.TextCreated(m.TextMessage("text"))
        yield from super().feed(item)


class CountsFrames(Decoder):
    def feed_frames(self, frames: Any) -> list[e.Event]:
        events = super().feed_frames(frames)
        return [*events, e.RawEvent("frames", {"count": len(frames)})] if len(frames) > 1 else events


class FastPathForgets(Decoder):
    def feed_frames(self, frames: Any) -> list[e.Event]:
        return [event for event in super().feed_frames(frames) if not isinstance(event, e.TextDelta)]


class ChangesItems(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        yield from super().feed(item)
        item.clear()


class KnowsItsLoop(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        yield from super().feed(item)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        yield e.RawEvent("loop", {})


class RaisesInLoop(Decoder):
    def feed_frames(self, frames: Any) -> list[e.Event]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return super().feed_frames(frames)
        raise KeyError("loop")


class Meddles(Decoder):
    """Holds on to an event, whose snapshot is the engine's, and changes it at the end."""

    last: Any = None

    def feed(self, item: Any) -> Iterator[e.Event]:
        for event in super().feed(item):
            if isinstance(event, e.TextDelta):
                self.last = event
            if not isinstance(event, e.RunDone):
                yield event

    def finish(self) -> Iterator[e.Event]:
        if self.last is not None:
            self.meddle(self.last.snapshot)
        return iter(())

    def meddle(self, message: Any) -> None:
        raise NotImplementedError


class RenamesMessages(Meddles):
    def meddle(self, message: Any) -> None:
        message.id = "other"


class ExtendsSnapshots(Meddles):
    def meddle(self, message: Any) -> None:
        message.replace_content("Hello")


class CountsInText(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        if "over" in item:
            yield e.Usage("three", 4, 7)  # type: ignore[arg-type]  # which is the fault
        yield from super().feed(item)


class IsAlwaysComplete(Decoder):
    def __init__(self, new_id: Any = None) -> None:
        super().__init__(new_id)
        self.complete = True


class FailsOnCut(Decoder):
    def finish(self) -> Iterator[e.Event]:
        if not self.complete:
            raise sk.SourceError("gone")
        return iter(())


class ReadsWithoutLooking(Decoder):
    def feed(self, item: Any) -> Iterator[e.Event]:
        if "say" in item:
            item["say"].upper()
        yield from super().feed(item)


class FastPathRaises(Decoder):
    def feed_frames(self, frames: Any) -> list[e.Event]:
        for _, _, data in map(as_frame, frames):
            assert data.endswith(b"}")
        return super().feed_frames(frames)


class RaisesWhenLenient(Decoder):
    def feed_frames(self, frames: Any) -> list[e.Event]:
        events = super().feed_frames(frames)
        if any(isinstance(event, e.StreamWarning) for event in events):
            raise sk.ProtocolError("odd", "it is odd")
        return events


class RecognisesWithoutLooking(Decoder):
    @classmethod
    def recognises(cls, item: Any) -> bool:
        return "radio" in item and bool(item["radio"] > 0)


class RecognisesNothing(Decoder):
    @classmethod
    def recognises(cls, item: Any) -> bool:
        return False


class Mute(Encoder):
    def feed(self, event: Any) -> Iterator[dict[str, Any]]:
        return iter(()) if isinstance(event, e.TextDelta) else super().feed(event)


class WritesBytes(Encoder):
    def feed(self, event: Any) -> Iterator[dict[str, Any]]:
        yield {"bytes": b"1"}


class WithOtherName(Encoder):
    name = "television"


def input_that_raises(messages: Any) -> list[Any]:
    return [{"say": message.content, "language": message.language} for message in messages]


def tuple_input(messages: Any) -> Any:
    return tuple(to_input(messages))


def never_empty(messages: Any) -> list[Any]:
    return to_input(messages) or [{"say": ""}]


CHAT_LIKE = BODY.replace(b'"radio": 1', b'"radio": 1, "object": "chat.completion.chunk"')

FAULTS: dict[str, tuple[str, Any, bytes, str]] = {
    "no encoder": ("parts", SimpleNamespace(Decoder=Decoder, to_input=to_input), BODY, "no Encoder"),
    "two names": ("parts", radio(Encoder=WithOtherName), BODY, "'radio', 'television'"),
    "a needless warning": ("warnings", radio(Decoder=WarnsOfNothing), BODY, 'came {.*"code": "odd"'),
    "created twice": ("warnings", radio(Decoder=AnnouncesTwice), BODY, "duplicate-created"),
    "depends on the cuts": ("cuts", radio(Decoder=CountsFrames), BODY, r"cut at \d+: event \d: expected .* came"),
    "a forgetful fast path": (
        "cuts",
        radio(Decoder=FastPathForgets),
        BODY,
        "without its plain case: event 2: .*text_cr",
    ),
    "changed items": ("items", radio(Decoder=ChangesItems), BODY, r'item 0: expected it .*"run": "r-7"}, came {}'),
    "another face, other events": ("faces", radio(Decoder=KnowsItsLoop), BODY, "astream on asyncio: event .*raw"),
    "another face, a fault": ("faces", radio(Decoder=RaisesInLoop), BODY, "astream on asyncio: .*KeyError: 'loop'"),
    "a renamed message": ("brackets", radio(Decoder=RenamesMessages), BODY, '"other".* is done without being open'),
    "a changed snapshot": (
        "snapshots",
        radio(Decoder=ExtendsSnapshots),
        BODY,
        "expected the content Hej då, came Hello",
    ),
    "a count in text": ("twice", radio(Decoder=CountsInText), BODY, 'event 5: .*"three".*malformed-event'),
    "no terminal rule": ("truncation", radio(Decoder=IsAlwaysComplete), BODY, "expected IncompleteStreamError"),
    "a cut that raises": ("truncation", radio(Decoder=FailsOnCut), BODY, "cut off after 0 items: .*SourceError: gone"),
    "reads without looking": (
        "junk",
        radio(Decoder=ReadsWithoutLooking),
        BODY,
        r"item \d\['say'\] replaced.*decoder-error",
    ),
    "a fast path that raises": ("junk", radio(Decoder=FastPathRaises), BODY, r"item \d .*came AssertionError"),
    "raises when lenient": ("junk", radio(Decoder=RaisesWhenLenient), BODY, "in a lenient stream, came ProtocolError"),
    "recognises without looking": ("junk", radio(Decoder=RecognisesWithoutLooking), BODY, "recognises, came TypeError"),
    "not recognised": ("recognition", radio(Decoder=RecognisesNothing), BODY, "none does"),
    "recognised as two": ("recognition", radio(), CHAT_LIKE, "is of radio and openai_chat"),
    "a lossy encoder": ("encoding", radio(Encoder=Mute), BODY, "message: expected .*Hej då.*, came none"),
    "an encoder of bytes": ("encoding", radio(Encoder=WritesBytes), BODY, "run_created: .*came TypeError"),
    "an input that raises": ("input", radio(to_input=input_that_raises), BODY, "to_input of .*came AttributeError"),
    "an input that is no list": ("input", radio(to_input=tuple_input), BODY, r"expected \[\], came"),
    "an input out of nothing": ("input", radio(to_input=never_empty), BODY, r"to_input of no messages: expected \[\]"),
}


@pytest.mark.parametrize(("law", "module", "body", "text"), FAULTS.values(), ids=FAULTS.keys())
def test_a_broken_law_is_named_with_its_place(law: str, module: Any, body: bytes, text: str) -> None:
    """And with what was expected and what came; an `AssertionError`, so that any test runner reports it."""
    with pytest.raises(ProtocolCheckError, match=text) as caught:
        check(module, body, attempts=10_000)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.law == law
    assert caught.value.recording == ("" if law == "parts" else "recording 0")
    assert str(caught.value).startswith(f"{law}: ")


def test_every_law_has_a_protocol_that_breaks_it() -> None:
    laws = {law for law, *_ in FAULTS.values()}
    assert laws == {"parts", *check(radio()).checks}


@pytest.mark.slow
def test_a_decoder_that_never_comes_back_fails_in_time() -> None:
    """The place where it stands is named."""
    released = threading.Event()

    class Waits(Decoder):
        def finish(self) -> Iterator[e.Event]:
            if not self.complete:
                released.wait(60)
            return iter(())

    try:
        with pytest.raises(ProtocolCheckError, match=r"truncation: .*cut off after 0 items: .* in 3 seconds"):
            check(radio(Decoder=Waits), time_limit=3)
    finally:
        released.set()


def test_what_the_author_accepts_is_no_fault() -> None:
    """A loss of the encoder is noted in the report; a warning of the recording is not."""
    assert check(radio(Decoder=WarnsOfNothing), expected_warnings=("odd",)).notes == []
    notes = check(radio(Encoder=Mute), cannot_express=("message",)).notes
    assert notes == ["recording 0: the encoder does not keep message: expected {0: 'Hej då'}, came none"]
