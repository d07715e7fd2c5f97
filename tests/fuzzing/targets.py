"""The targets: functions of bytes that raise where a law is broken.

A target's input begins with two bytes that choose how the rest is read: whether strictly, and where it is cut. `seeds` are
inputs to begin with, made of the repository's recordings; `mutated` changes one as a faulty server or client would.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import httpx2

import streamkit as sk
from streamkit import protocols
from streamkit.agent.history import model_view
from streamkit.core.engine import Engine
from streamkit.json_fields import JsonFields
from streamkit.messages import Message
from streamkit.protocols import ag_ui, codec, registry, vercel_ui
from streamkit.protocols.framing import NdjsonFramer, SseFramer, as_frame, framer_for, sse_frame
from streamkit.stores.content import messages_to_bytes, saved_from
from streamkit.testing.check.damage import JUNK
from streamkit.testing.check.order import bracket_fault, snapshot_fault
from streamkit.testing.check.outcome import decode, difference

from ..recorded import own_recordings

__all__ = ["TARGETS", "BrokenLaw", "Target", "mutated", "words"]

HEAD = 2
"""The bytes before an input's own: flags, and the seed of the cuts."""

FOLDERS = {
    "ag_ui": "ag-ui",
    "anthropic": "anthropic-messages",
    "letta": "letta",
    "open_interpreter": "open-interpreter",
    "openai_assistants": "openai-assistants",
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "vercel_ui": "vercel-ui",
}


class BrokenLaw(AssertionError):
    """A law does not hold for this input."""


class Target(NamedTuple):
    """What is fuzzed.

    Attributes:
        run: takes an input; raises where a law is broken.
        seeds: returns inputs to begin with.
        weight: its share of all executions: the quick ones have more.
    """

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    weight: int = 1


def _pieces(data: bytes, seed: int) -> list[bytes]:
    """The bytes, cut in up to four places."""
    dice = random.Random(seed)
    cuts = sorted(dice.randrange(len(data) + 1) for _ in range(dice.randrange(4)))
    return [data[start:end] for start, end in zip((0, *cuts), (*cuts, len(data)), strict=True)]


# -- framing


def frames(data: bytes) -> None:
    """However the bytes are cut, the frames are the same. Nothing but a `LimitError` is raised."""
    head, body = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:]
    kind = NdjsonFramer if head[0] & 1 else SseFramer
    longest = 1_000 if head[0] & 2 else 1_000_000
    whole, cut = (_frames_of(kind(longest), pieces) for pieces in ([body], _pieces(body, head[1])))
    if whole != cut:
        raise BrokenLaw(f"{whole!r} in one piece, {cut!r} in several")


def _frames_of(framer: Any, pieces: Sequence[bytes]) -> list[Any]:
    found: list[Any] = []
    try:
        for piece in pieces:
            found += framer.feed(piece)
        found += framer.finish()
    except sk.LimitError as error:
        found.append(str(error))
    return found


# -- decoders, without a source


def decoded(name: str, data: bytes) -> None:
    """A decoder and an engine keep the order of events, the sum of deltas, and the same events however the bytes are cut."""
    head, body = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:]
    strict = bool(head[0] & 1)
    whole = _lines_of(name, [body], strict)
    if fault := bracket_fault(whole) or snapshot_fault(whole):
        raise BrokenLaw(fault)
    cut = _lines_of(name, _pieces(body, head[1]), strict)
    if whole != cut:
        raise BrokenLaw(f"{whole!r} in one piece, {cut!r} in several")


def _lines_of(name: str, pieces: Sequence[bytes], strict: bool) -> list[dict[str, Any]]:
    kind = registry.find(name).Decoder
    framer: Any = framer_for(b"".join(pieces)) or SseFramer()
    framer.expect_names(kind.sse_event_names)
    engine = Engine(strict=strict)
    engine.messages.begin_source()
    decoder = kind(engine.messages.new_id)
    engine.pending.is_canonical = decoder.name == "streamkit"
    lines: list[dict[str, Any]] = []

    def take(events: Any) -> None:
        for event in events:
            line = codec.event_to_dict(event)
            snapshot = getattr(event, "snapshot", None)
            lines.append(line if snapshot is None else {**line, "snapshot": snapshot.content})

    try:
        for piece in pieces:
            take(engine.complete(decoder.feed_frames(framer.feed(piece))))
        take(engine.complete(decoder.feed_frames(framer.finish())))
        take(engine.complete(decoder.finish()))
        take(engine.source_done(complete=decoder.complete))
    except sk.StreamkitError as error:
        lines.append({"type": "error", "error": f"{type(error).__name__}: {error}"})
        take(engine.end("failed"))
        error_line = next(line for line in lines if line["type"] == "error")
        lines.remove(error_line)  # the order of events has no place for it
    else:
        take(engine.end(None if decoder.complete else "incomplete"))
    return lines


# -- whole streams, whose protocol is recognised


def stream(data: bytes) -> None:
    """A response with any bytes ends complete or with a `StreamkitError`, in the order of events, however it is cut."""
    head, body = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:]
    strict = bool(head[0] & 1)
    whole = decode(_response([body]), None, strict=strict)
    if fault := bracket_fault(whole.lines) or snapshot_fault(whole.lines):
        raise BrokenLaw(fault)
    if fault := difference(whole, decode(_response(_pieces(body, head[1])), None, strict=strict)):
        raise BrokenLaw(fault)


def _response(pieces: Sequence[bytes]) -> Any:
    """A source that is known to give pieces. Of a list, the first items show whether they are pieces or lines, which is certain
    only for text that is well-formed."""
    return httpx2.Response(200, content=iter(pieces))


# -- requests of the clients of UI protocols


def request(module: Any, data: bytes) -> None:
    """A posted body is read, or refused with a `RequestError`."""
    try:
        module.from_request(data[HEAD:])
    except sk.RequestError as error:
        str(error)


# -- JSON fields


def json_fields(data: bytes) -> None:
    """However a document is cut, its fields have the same texts; those of a valid one are `json.loads`'s."""
    head, text = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:].decode("utf-8", "replace")
    whole = _texts_of([text])
    cut = _texts_of([piece.decode("utf-8", "replace") for piece in _characters(text, head[1])])
    if whole != cut:
        raise BrokenLaw(f"{whole!r} in one piece, {cut!r} in several")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        expected = "".join(
            "\ufffd" if "\ud800" <= character <= "\udfff" else character for character in value["message"]
        )
        texts, _ = whole
        if texts.get("message") != expected:
            raise BrokenLaw(f"{texts!r}, but the document has {expected!r}")


def _characters(text: str, seed: int) -> Iterator[bytes]:
    dice = random.Random(seed)
    at = 0
    while at < len(text):
        size = dice.randrange(1, 9)
        yield text[at : at + size].encode()
        at += size


def _texts_of(pieces: Sequence[str]) -> tuple[dict[str, str], str]:
    reader = JsonFields("message", "items.*.text", "a")
    texts: dict[str, str] = {}
    try:
        for piece in pieces:
            for field in reader.feed(piece):
                texts[field.path] = field.text if field.replace else texts.get(field.path, "") + field.text
    except sk.StreamkitError as error:
        return texts, str(error)
    return texts, "complete" if reader.complete else "open"


# -- saved conversations


def conversation(data: bytes) -> None:
    """A saved conversation is refused with a `SourceError` or a `UsageError`, or read: then it is saved as it was, and becomes
    a request to each provider."""
    try:
        messages = saved_from("c", data[HEAD:], 1).messages
    except sk.StreamkitError as error:
        str(error)
        return
    if saved_from("c", messages_to_bytes(messages), 1).messages != messages:
        raise BrokenLaw("the messages differ after they were saved and read")
    for name in ("openai_chat", "openai_responses", "anthropic", "open_interpreter", "letta", "vercel_ui", "ag_ui"):
        try:
            protocols.to_input(messages, name)
            protocols.to_input(model_view(messages, limit=1_000), name)
        except sk.StreamkitError as error:
            str(error)


# -- seeds, and how they are changed


@cache
def _bodies(*folders: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in own_recordings(*folders))


def _seeds(*bodies: bytes) -> list[bytes]:
    return [b"\0\0" + body for body in bodies]


def _recorded(*folders: str) -> list[bytes]:
    """The beginning, the end and each part between of the recorded bodies: small inputs are many a second."""
    return _seeds(*dict.fromkeys(part for body in _bodies(*folders) for part in _parts(body)))


def _parts(body: bytes) -> Iterator[bytes]:
    separator = b"\n" if isinstance(framer_for(body), NdjsonFramer) else b"\n\n"
    blocks = [block + separator for block in body.split(separator) if block]
    for at in range(1, len(blocks), 4):
        yield b"".join((blocks[0], *blocks[at : at + 4], *blocks[-2:]))


@cache
def _conversations() -> tuple[bytes, ...]:
    every = [sk.stream([body]) for body in _bodies(*FOLDERS.values())]
    saved: list[bytes] = []
    for one in every:
        with contextlib.suppress(sk.StreamkitError):
            one.until_done()
        saved.append(messages_to_bytes(one.messages))
    return tuple(saved)


def _posts(name: str) -> list[bytes]:
    """Requests with each of the saved conversations, as the protocol's own client posts them."""
    bodies: list[bytes] = []
    for saved in _conversations():
        messages: list[Message] = saved_from("c", saved, 1).messages
        value: dict[str, Any] = {
            "messages": protocols.to_input(messages, name),
            "id": "c1",
            "trigger": "submit-message",
        }
        value |= {"threadId": "t1", "runId": "r1", "tools": [], "context": [], "state": {}, "forwardedProps": {}}
        value["resume"] = [{"interruptId": "i", "status": "resolved", "payload": {"approved": True}}]
        bodies.append(json.dumps(value, default=str).encode())
    return _seeds(*bodies)


def _documents() -> list[bytes]:
    documents = (
        {"message": 'a "quoted" \\ text\n\u20ac', "items": [{"text": "x"}, {"text": ""}], "a": 1.5e3},
        {"items": {"0": {"text": "by key"}}, "message": None, "a": "\ud83d\ude00"},
        [[], {}, True, {"message": "not at the root"}],
    )
    return _seeds(
        *(
            json.dumps(document, ensure_ascii=n % 2 == 0).encode("utf-8", "surrogatepass")
            for n, document in enumerate(documents)
        )
    )


TARGETS: dict[str, Target] = {
    "frames": Target(frames, partial(_recorded, *FOLDERS.values()), 30),
    "json_fields": Target(json_fields, _documents, 20),
    "stream": Target(stream, partial(_recorded, *FOLDERS.values()), 2),
    "conversation": Target(conversation, lambda: _seeds(*_conversations()), 4),
    "request:vercel_ui": Target(partial(request, vercel_ui), partial(_posts, "vercel_ui"), 12),
    "request:ag_ui": Target(partial(request, ag_ui), partial(_posts, "ag_ui"), 12),
    **{
        name: Target(partial(decoded, name), partial(_recorded, FOLDERS.get(name, "openai-chat")), 2)
        for name in registry.BUILT_IN
    },
}


def words() -> list[str]:
    """The keys and the short texts of all recordings: what a mutation is likely to need."""
    found: set[str] = set()

    def collect(value: Any) -> None:
        if isinstance(value, dict):
            found.update(map(str, value))
            for one in value.values():
                collect(one)
        elif isinstance(value, list):
            for one in value:
                collect(one)
        elif isinstance(value, str) and 0 < len(value) <= 40:
            found.add(value)

    for body in _bodies(*FOLDERS.values()):
        for item in _items(body):
            collect(item)
    return sorted(found)


def _items(body: bytes) -> list[Any]:
    framer: Any = framer_for(body) or SseFramer()
    items: list[Any] = []
    for frame in [*framer.feed(body), *framer.finish()]:
        try:
            items.append(json.loads(as_frame(frame)[2]))
        except (ValueError, RecursionError):
            continue
    return items


def mutated(data: bytes, dice: random.Random) -> bytes:
    """The input with one change of its items or its document: a value replaced, dropped, or taken from elsewhere; an item
    dropped, repeated, or moved. Where nothing in it can be parsed, the input itself."""
    head, body = data[:HEAD].ljust(HEAD, b"\0"), data[HEAD:]
    framer: Any = framer_for(body)
    if framer is None:
        return data
    try:
        found = [*framer.feed(body), *framer.finish()]
    except sk.StreamkitError:  # too long, or damaged
        return data
    if not found:
        return data
    blocks = [as_frame(frame) for frame in found]
    at = dice.randrange(len(blocks))
    match dice.randrange(8):
        case 0:
            del blocks[at]
        case 1:
            blocks.insert(dice.randrange(len(blocks) + 1), blocks[at])
        case 2:
            other = dice.randrange(len(blocks))
            blocks[at], blocks[other] = blocks[other], blocks[at]
        case 3:
            del blocks[at:]
        case _:
            id, name, item = blocks[at]
            blocks[at] = (id, name, _changed_json(item, dice))
    if isinstance(framer, NdjsonFramer):
        return head + b"\n".join(item for _, _, item in blocks) + b"\n"
    texts = [(item, *(word.decode("utf-8", "replace") for word in (name, id))) for id, name, item in blocks]
    return head + b"".join(sse_frame(*block) for block in texts)


def _changed_json(data: bytes, dice: random.Random) -> bytes:
    try:
        value: Any = json.loads(data)
    except (ValueError, RecursionError):
        return data
    places = [*_places(value)]
    if not places:
        return data
    container, key = dice.choice(places)
    match dice.randrange(5):
        case 0:
            del container[key]
        case 1:
            container[key] = dice.choice(JUNK)
        case 2:
            other, name = dice.choice(places)
            container[key] = json.loads(json.dumps(other[name]))
        case 3 if isinstance(container, list):
            container.insert(key, container[key])
        case 3:
            container[dice.choice(words())] = container[key]
        case _:
            container[key] = dice.choice(words())
    return json.dumps(value, ensure_ascii=bool(dice.randrange(2))).encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value in a document, by its container and its key."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in [*keys]:
        yield value, key
        yield from _places(value[key])
