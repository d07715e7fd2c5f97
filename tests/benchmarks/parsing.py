"""The parse alone: from the bytes of a body that are all there, to the application's code for each text delta."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec

from .faces import FACES, Face
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest
from .wires import CUTS, WIRES, answer, pieces

TITLE = "The parse alone"
ABOUT = """\
CPU time for each text delta, from the bytes of a body in memory, cut into pieces of 2 KB or of one event each. The
baseline is the limit of Python: split the lines, decode each event into a typed msgspec struct, of what any handler of such
events needs, call a method, append to a list. It is no library: it knows one kind of event, and checks nothing. This
matters where many streams arrive faster than they are read; elsewhere the HTTP client costs more."""


# -- the limit: of a Chat chunk, what any handler needs


class Function(msgspec.Struct):
    arguments: str | None = None
    name: str | None = None


class Call(msgspec.Struct):
    function: Function | None = None
    index: int = 0


class Delta(msgspec.Struct):
    content: str | None = None
    tool_calls: list[Call] | None = None


class Choice(msgspec.Struct):
    delta: Delta
    index: int = 0
    finish_reason: str | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice]


class _TextEvent(msgspec.Struct):
    delta: str
    item_id: str
    output_index: int
    content_index: int


decode_chunk = msgspec.json.Decoder(Chunk).decode
_decode_text = msgspec.json.Decoder(_TextEvent).decode


class Plain:
    """The limit's hook."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def on_text_delta(self, delta: str) -> None:
        self.parts.append(delta)


def limit_chat(chunks: list[bytes]) -> str:
    """Split, decode, call, append: the least that Python can do for a Chat stream."""
    decode, plain = decode_chunk, Plain()
    hook = plain.on_text_delta
    pending: list[bytes] = []
    for chunk in chunks:
        lines = chunk.split(b"\n")
        if pending:
            pending.append(lines[0])
            if len(lines) == 1:
                continue
            lines[0] = b"".join(pending)
            pending.clear()
        if rest := lines.pop():
            pending.append(rest)
        for line in lines:
            if line and line[6] == 123:
                for choice in decode(line[6:]).choices:
                    text = choice.delta.content
                    if text:
                        hook(text)
    return "".join(plain.parts)


def limit_responses(chunks: list[bytes]) -> str:
    """The same for a Responses stream, where the event's name says what to decode."""
    decode, plain = _decode_text, Plain()
    hook = plain.on_text_delta
    pending: list[bytes] = []
    wanted = False
    for chunk in chunks:
        lines = chunk.split(b"\n")
        if pending:
            pending.append(lines[0])
            if len(lines) == 1:
                continue
            lines[0] = b"".join(pending)
            pending.clear()
        if rest := lines.pop():
            pending.append(rest)
        for line in lines:
            if wanted:
                hook(decode(line[6:]).delta)
                wanted = False
            elif line == b"event: response.output_text.delta":
                wanted = True
    return "".join(plain.parts)


LIMITS = {"chat": limit_chat, "responses": limit_responses}


# -- the contestants


@cache
def chunks(wire: str, cut: str, n: int) -> list[bytes]:
    return pieces(WIRES[wire](n), cut)


def measured(read: Callable[[str], Face], wire: str, cut: str, n: int, times: int) -> float:
    """Microseconds a delta. Small streams are read several times: one is too short for the clock, and cold."""
    clock = Clock()
    for _ in range(times):
        check(read(wire)(chunks(wire, cut, n), clock), answer(n))
    return clock.seconds / n / times * 1e6


def limit(wire: str) -> Face:
    def read(chunks: list[bytes], clock: Clock) -> str:
        with clock:
            return LIMITS[wire](chunks)

    return read  # type: ignore[return-value]  # the meter is this clock


def openai_raw(wire: str) -> Face:
    """The real client's own loop, over a transport in memory."""
    import httpx2

    from .clients import make_openai, raw_loop

    class Body(httpx2.SyncByteStream):
        def __init__(self, chunks: list[bytes]) -> None:
            self.chunks = chunks

        def __iter__(self) -> Iterator[bytes]:
            return iter(self.chunks)

    def read(chunks: list[bytes], clock: Clock) -> str:
        def respond(request: httpx2.Request) -> httpx2.Response:
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(chunks))

        with make_openai(http_client=httpx2.Client(transport=httpx2.MockTransport(respond))) as client, clock:
            return raw_loop(client, wire)

    return read  # type: ignore[return-value]  # as above


LIMIT, RAW = "the limit of Python", "openai, its own loop"
CONTESTANTS = {
    LIMIT: Contestant(partial(measured, limit)),
    **{
        f"streamkit, {name}": Contestant(partial(measured, lambda wire, face=face: face))
        for name, face in FACES.items()
    },
    RAW: Contestant(partial(measured, openai_raw)),
}


# Those that a short run leaves out.
FURTHER = {f"streamkit, {name}" for name in FACES if name in ("three hooks", "events") or name.startswith("trio")}


def rows(profile: Profile) -> Iterator[Row]:
    names = [name for name in CONTESTANTS if profile.name != "quick" or name not in FURTHER]
    with Workers(__name__, profile) as workers:
        for wire in ("chat", "responses")[: profile.pick(1, 1, 2)]:
            for cut in profile.pick(CUTS[-1:], CUTS, CUTS):
                for n in profile.pick((50,), (2_000,), (10_000,)):
                    yield from contest(
                        workers,
                        {name: CONTESTANTS[name] for name in names},
                        profile.pick(1, 3, 5),
                        case=f"{wire.title()}, {n:,} deltas, {cut if cut != 'event' else 'an event'} a chunk",
                        unit="µs a delta",
                        baseline=LIMIT,
                        parameters={"wire": wire, "cut": cut, "n": n, "times": profile.pick(1, 2, 3)},
                    )
