"""The laws that a protocol keeps, each as a check of one recording. `check_protocol` describes them."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

from ...errors import IncompleteStreamError, ProtocolError, RunFailedError, StreamkitError, UsageError
from ...events import Event, StreamWarning
from ...messages import Message
from ...protocols import Decoder, registry
from ...protocols.framing import Frame, sse_frame
from ...protocols.values import is_object, parse_json
from ...streams.api import stream
from .damage import Damage, all_damage
from .order import bracket_fault, snapshot_fault
from .outcome import Outcome, decode, decode_on, difference, short
from .recording import Recording
from .report import ProtocolCheckError, ProtocolReport

__all__ = ["LAWS", "Check", "Options"]

EVERY_CUT = 1500
"""A body of at most so many bytes is cut at each of them."""

BYTE_BY_BYTE = 20_000
"""A body of at most so many bytes is also fed byte by byte."""

_MESSAGE_KINDS: tuple[tuple[str, str | None], ...] = (
    *(("message", None), ("message", "refusal"), ("reasoning", None), ("reasoning", "summary")),
    *(("reasoning", "redacted"), ("code", "python"), ("console", "output"), ("image", "url"), ("image", "path")),
    *(("image", "base64.png"), ("image", "file_id"), ("audio", "wav"), ("file", "path"), ("file", "file_id")),
    *(("tool_call", None), ("tool_output", None), ("telegram", "morse")),
)
_ROLES = ("assistant", "user", "system", "computer")


class Options(NamedTuple):
    """The arguments of `check_protocol`, and the report that is filled. See there."""

    module: Any
    cannot_express: frozenset[str]
    expected_warnings: frozenset[str]
    attempts: int
    seed: int
    report: ProtocolReport


class Check:
    """The check of one recording. `law` and `place` say where it stands, for the text of a failure."""

    def __init__(self, options: Options, recording: Recording) -> None:
        self.options = options
        self.recording = recording
        self.decoder: type[Decoder] = options.module.Decoder
        self.random = random.Random(options.seed)
        self.law = ""
        self.place = "the complete recording"
        self._complete: Outcome | None = None

    def failure(self, text: str) -> ProtocolCheckError:
        """Return an error to raise: this text, with the law and the recording it is about."""
        return ProtocolCheckError(self.law, self.recording.name, text)

    def outcome(self, place: str, source: Sequence[Any], protocol: Any = None, *, strict: bool = False) -> Outcome:
        """Return the outcome of one stream, counted. What a stream may never raise is a failure."""
        return self.guarded(place, lambda: decode(source, protocol or self.decoder, strict=strict))

    def guarded(self, place: str, run: Callable[[], Outcome]) -> Outcome:
        """Return the result of `run`. If it raises, the protocol is at fault."""
        self.place = place
        self.count()
        try:
            return run()
        except Exception as error:
            text = f"{place}: expected a StreamkitError at most, came {type(error).__name__}: {error}"
            raise self.failure(text) from error

    def count(self) -> None:
        """Count one check of the current law."""
        checks = self.options.report.checks
        checks[self.law] = checks.get(self.law, 0) + 1

    @property
    def complete(self) -> Outcome:
        """The outcome of the recording, undamaged and uncut."""
        if self._complete is None:
            self._complete = self.outcome("the complete recording", [self.recording.body])
        return self._complete

    def check_same(self, place: str, came: Outcome) -> None:
        """An outcome equals that of the complete recording, event by event."""
        if fault := difference(self.complete, came):
            raise self.failure(f"{place}: {fault}")

    # -- what a recording gives

    def check_warnings(self) -> None:
        """A recording that ends as incomplete is noted, because it may be meant so."""
        self._complete = None  # counted here, as a check of this law
        for line in self.complete.lines:
            if line["type"] == StreamWarning.type and line["code"] not in self.options.expected_warnings:
                raise self.failure(f"expected no such warning, came {short(line)}")
        if self.complete.error:
            self.options.report.notes.append(f"{self.recording.name} ends with {self.complete.ending}")

    def check_cuts(self) -> None:
        """Single cuts, several cuts at once, byte by byte, item by item, and without the plain case."""
        body = self.recording.body
        for cuts in self._cuts(len(body)):
            pieces = [body[start:end] for start, end in zip((0, *cuts), (*cuts, len(body)), strict=True)]
            place = f"cut at {', '.join(map(str, cuts))}" if len(cuts) < 20 else f"cut in {len(pieces)} pieces"
            self.check_same(place, self.outcome(place, pieces))
        if self.decoder.feed_frames is not Decoder.feed_frames or self.decoder.plain_item is not None:
            without = {"feed_frames": Decoder.feed_frames, "plain_item": None}
            careful = type("WithoutPlainCase", (self.decoder,), without)
            self.check_same("without its plain case", self.outcome("without its plain case", [body], careful))

    def _cuts(self, size: int) -> Iterator[Sequence[int]]:
        places = range(1, size)
        single = places if size <= EVERY_CUT else sorted(self.random.sample(places, 200))
        yield from ((place,) for place in single)
        for _ in range(20):
            yield sorted(self.random.sample(places, min(len(places), self.random.randint(2, 8))))
        if size <= BYTE_BY_BYTE:
            yield places

    def check_items(self) -> None:
        """Each item as a dict is decoded as its bytes are."""
        decoder = self.decoder()
        for number, (_, name, data) in enumerate(self.recording.frames):
            item = parse_json(data)
            if not is_object(item):
                continue
            if self.decoder.wraps_event_name and "event" not in item:
                item = {"event": name.decode(), "data": item}
            before = deepcopy(item)
            decoder.feed_items([item])
            self.count()
            if item != before:
                raise self.failure(f"item {number}: expected it unchanged, {short(before)}, came {short(item)}")

    def check_faces(self) -> None:
        """Sync, asyncio and trio (if it is installed) give the same events."""
        pieces = self.recording.pieces(self.recording.frames)
        has_trio = importlib.util.find_spec("trio") is not None
        expected = self.outcome("stream", pieces)
        for backend in ("asyncio", "trio") if has_trio else ("asyncio",):
            came = self.guarded(f"astream on {backend}", partial(decode_on, backend, pieces, self.decoder))
            if fault := difference(expected, came):
                raise self.failure(f"{self.place}: {fault}")
        if not has_trio:
            self.options.report.notes.append("trio is not installed, so streams on trio were not checked")

    def check_brackets(self) -> None:
        """What is created is done, once, and deltas come between."""
        self.count()
        self.check_brackets_of("the complete recording", self.complete)

    def check_brackets_of(self, place: str, outcome: Outcome) -> None:
        """The same of the outcome at one place."""
        if fault := bracket_fault(outcome.lines):
            raise self.failure(f"{place}: {fault}")

    def check_snapshots(self) -> None:
        """Each snapshot is its message's deltas joined."""
        self.count()
        if fault := snapshot_fault(self.complete.lines):
            raise self.failure(fault)

    def check_twice(self) -> None:
        """The events, read as a stream of streamkit's own protocol, give the same events again."""
        place = "its events, read as a stream"
        lines = [{key: line[key] for key in line if key != "snapshot"} for line in self.complete.lines]
        body = [sse_frame(json.dumps(line).encode()) for line in lines]
        self.check_same(place, self.outcome(place, body, "streamkit"))

    # -- what damaged streams give

    def check_truncation(self) -> None:
        """After each item and in the middle of each. A decoder that finds all of that complete has no terminal rule."""
        frames, recording = self.recording.frames, self.recording
        is_detected = False
        for count in range(len(frames) + 1):
            pieces = recording.pieces(frames[:count])
            is_detected |= self._is_incomplete(f"cut off after {count} items", pieces)
            if count:
                middle = [*pieces[:-1], pieces[-1][: len(pieces[-1]) // 2]]
                is_detected |= self._is_incomplete(f"cut off in the middle of item {count - 1}", middle)
        if not is_detected:
            raise self.failure(
                "expected IncompleteStreamError wherever the stream is not complete, came none at any item"
            )

    def _is_incomplete(self, place: str, pieces: list[bytes]) -> bool:
        """Whether this stream ends as incomplete. A failure if it ends as no stream may that was cut off."""
        outcome = self.outcome(place, pieces)
        if outcome.error and not isinstance(outcome.error, (IncompleteStreamError, RunFailedError)):
            raise self.failure(f"{place}: expected a complete stream or IncompleteStreamError, came {outcome.ending}")
        self.check_brackets_of(place, outcome)
        return isinstance(outcome.error, IncompleteStreamError)

    def check_junk(self) -> None:
        """Damaged items raise nothing but this library's errors, and lose nothing else."""
        damage = all_damage(self.recording.frames)
        for one in self.random.sample(damage, min(len(damage), self.options.attempts)):
            self._check_damaged(one)

    def _check_damaged(self, damage: Damage) -> None:
        frames = damage.apply(self.recording.frames)
        pieces = self.recording.pieces(frames)
        lenient = self.outcome(str(damage), pieces)
        if isinstance(lenient.error, ProtocolError):
            raise self.failure(f"{damage}: expected a warning in a lenient stream, came {lenient.ending}")
        if "decoder-error" in lenient.codes:
            warning = next(line for line in lenient.lines if line.get("code") == "decoder-error")
            raise self.failure(f"{damage}: expected that `feed` raises nothing, came {short(warning)}")
        self.check_brackets_of(str(damage), lenient)
        self.outcome(f"{damage}, strict", pieces, strict=True)
        self._recognised_as(damage.place, frames)

    # -- the protocol among others, and the way back

    def check_recognition(self) -> None:
        """The protocol alone recognises the recording by its first items."""
        names = self._recognised_as("the complete recording", self.recording.frames)
        self.count()
        if names != [self.decoder.name]:
            came = "none does" if not names else f"the first item that any recognises is of {' and '.join(names)}"
            raise self.failure(f"expected that {self.decoder.name} alone recognises an item, came: {came}")

    def _recognised_as(self, place: str, frames: Iterable[Frame]) -> list[str]:
        """Return the names of the protocols that recognise the first item that any recognises."""
        others = [registry.find(name).Decoder for name in registry.BUILT_IN if name != self.decoder.name]
        for number, (_, event_name, data) in enumerate(frames):
            item = parse_json(data)
            names: list[str] = []
            for decoder in (self.decoder, *others):
                wrapped = {"event": event_name.decode(), "data": item} if _is_wrapped(decoder, event_name) else item
                try:
                    if is_object(wrapped) and decoder.recognises(wrapped):
                        names.append(decoder.name)
                except Exception as error:
                    text = f"{place}: item {number}: expected True or False of recognises, came {type(error).__name__}: {error}"
                    raise self.failure(text) from error
            if names:
                return names
        return []

    def check_encoding(self) -> None:
        """Contents are joined by type, because an encoder may join messages that its format cannot keep apart."""
        again = self.outcome("encoded and decoded again", self._encoded())
        expected, came = _contents(self.complete.messages), _contents(again.messages)
        for kind in sorted(expected.keys() | came.keys()):
            if expected.get(kind) == came.get(kind):
                continue
            text = f"{kind}: expected {short(expected.get(kind, 'none'))}, came {short(came.get(kind, 'none'))}"
            if kind not in self.options.cannot_express:
                raise self.failure(f"encoded and decoded again: {text}")
            self.options.report.notes.append(f"{self.recording.name}: the encoder does not keep {text}")

    def _encoded(self) -> list[bytes]:
        """Return the recording as the encoder writes it. A recording of a failed answer is encoded up to the
        failure."""
        encoder = self.options.module.Encoder()
        frames: list[bytes] = []
        event: Event | None = None
        try:
            for event in stream([self.recording.body], protocol=self.decoder):
                for item in encoder.items(event):
                    frames.append(sse_frame(json.dumps(item).encode(), encoder.event_name(item)))
        except StreamkitError as error:
            if self.complete.error is None:
                raise self.failure(f"expected items of the encoder, came {type(error).__name__}: {error}") from error
        except Exception as error:
            name = event.type if event else "the first event"
            text = f"{name}: expected JSON items of the encoder, came {type(error).__name__}: {error}"
            raise self.failure(text) from error
        if encoder.done and self.complete.error is None:
            frames.append(sse_frame(encoder.done))
        return frames

    def check_input(self) -> None:
        """`to_input` returns a list, or raises `UsageError`, for the decoded messages and for every kind of message."""
        for messages in ([], list(self.complete.messages), *([message] for message in _sample_messages())):
            what = ", ".join(f"{message.role}'s {message.type} {message.format or ''}".rstrip() for message in messages)
            self.place = f"to_input of {what or 'no messages'}"
            self.count()
            try:
                converted = self.options.module.to_input(messages)
            except UsageError:
                continue
            except Exception as error:
                text = f"{self.place}: expected a list or a UsageError, came {type(error).__name__}: {error}"
                raise self.failure(text) from error
            if not isinstance(converted, list) or (not messages and converted):
                raise self.failure(f"{self.place}: expected {'a list' if messages else '[]'}, came {short(converted)}")


def _is_wrapped(decoder: type[Decoder], event_name: bytes) -> bool:
    return decoder.wraps_event_name and bool(event_name)


def _contents(messages: Iterable[Message]) -> dict[str, str]:
    """Return what messages contain, by their type (a refusal's is `refusal`); each choice for itself."""
    contents: dict[str, dict[int, str]] = {}
    for message in messages:
        kind = "refusal" if message.format == "refusal" else message.type
        choices = contents.setdefault(kind, {})
        choices[message.choice] = choices.get(message.choice, "") + message.content
    return {kind: repr(choices) for kind, choices in contents.items() if any(choices.values())}


def _sample_messages() -> Iterator[Message]:
    """Yield a message of each kind from each role."""
    for number, (type, format) in enumerate(_MESSAGE_KINDS):
        for role in _ROLES:
            fields = {"id": f"sample-{number}", "role": role, "type": type, "format": format, "content": "{}"}
            yield Message.from_dict({key: value for key, value in fields.items() if value is not None})


LAWS: Mapping[str, Callable[[Check], None]] = {
    "warnings": Check.check_warnings,
    "cuts": Check.check_cuts,
    "items": Check.check_items,
    "faces": Check.check_faces,
    "brackets": Check.check_brackets,
    "snapshots": Check.check_snapshots,
    "twice": Check.check_twice,
    "truncation": Check.check_truncation,
    "junk": Check.check_junk,
    "recognition": Check.check_recognition,
    "encoding": Check.check_encoding,
    "input": Check.check_input,
}
