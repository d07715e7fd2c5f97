"""What an event costs to encode for a browser, whoever made it: `useChat`'s protocol beside a peer's adapter, and the own one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import msgspec

import streamkit as sk
from streamkit.events import Event
from streamkit.protocols import codec
from streamkit.protocols.event_stream import EventStreamWriter
from streamkit.streams.error_mask import ErrorMask

from .measuring import Clock, Contestant, Profile, Row, Workers, contest
from .parsing import chunks
from .wires import answer, deltas

TITLE = "Encoding events for a browser"
ABOUT = """\
CPU time for each event of a text that is in memory already, as objects of the library that encodes it, into the bytes of a
response. *For useChat*: streamkit's encoder goes from its events to frames; pydantic-ai's Vercel AI adapter
(`transform_stream` and `encode_stream`) from its own events of the same text, through a pydantic model for each, to frames.
The baseline has dicts that are ready to be sent, and only makes JSON and frames of them. *Its own protocol*:
`EventStreamWriter` makes the whole stream; `encode_event` is what a relay does once for each delta; the baseline is plain
msgspec of the same deltas, which are structs of it."""


@cache
def _events(n: int) -> Sequence[Event]:
    return [*sk.stream(chunks("chat", "2 KB", n))]


def _frame(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _text_of_stream(protocol: str, out: list[bytes]) -> str:
    return sk.stream(out, protocol=protocol).get_final_text()


def _text_of_deltas(out: list[bytes]) -> str:
    return "".join(msgspec.json.decode(frame[len("data: ") :])["value"] for frame in out)


def _costs(encode: Callable[[], list[bytes]], text: Callable[[list[bytes]], str], n: int, times: int) -> float:
    clock = Clock()
    for _ in range(times):
        with clock:
            out = encode()
        assert text(out) == answer(n), "what was encoded has another text"
    return clock.seconds / n / times * 1e6


def written(protocol: str, n: int, times: int) -> float:
    """As a response has it, with the texts of errors hidden."""
    events = _events(n)

    def encode() -> list[bytes]:
        writer = EventStreamWriter(protocol, mask=ErrorMask(expose=False))
        return [*map(writer.event, events), writer.ending()]

    return _costs(encode, partial(_text_of_stream, protocol), n, times)


def lines(encode_one: Callable[[Any], bytes], n: int, times: int) -> float:
    """A frame of each delta, without a cursor."""
    events = [sk.TextDelta("message-1", value) for value in deltas(n)]
    return _costs(lambda: [_frame(encode_one(event)) for event in events], _text_of_deltas, n, times)


_text_of_chat = partial(_text_of_stream, "vercel_ui")


def ready(n: int, times: int) -> float:
    """Chunks of `useChat` that are dicts already."""
    id = "message-1"
    parts = [{"type": "text-delta", "id": id, "delta": value} for value in deltas(n)]
    begin: list[dict[str, Any]] = [{"type": "start"}, {"type": "start-step"}, {"type": "text-start", "id": id}]
    items = [*begin, *parts, {"type": "text-end", "id": id}, {"type": "finish-step"}, {"type": "finish"}]
    encode = msgspec.json.Encoder().encode
    return _costs(lambda: [*(_frame(encode(item)) for item in items), _frame(b"[DONE]")], _text_of_chat, n, times)


def pydantic_ai(n: int, times: int) -> float:
    """Its adapter's event stream. Starlette makes bytes of its texts."""
    from pydantic_ai.messages import PartDeltaEvent, PartEndEvent, PartStartEvent, TextPart, TextPartDelta
    from pydantic_ai.ui.vercel_ai import VercelAIEventStream
    from pydantic_ai.ui.vercel_ai.request_types import SubmitMessage

    parts = [PartDeltaEvent(index=0, delta=TextPartDelta(value)) for value in deltas(n)]
    begin, end = PartStartEvent(index=0, part=TextPart("")), PartEndEvent(index=0, part=TextPart(answer(n)))
    request = SubmitMessage(id="chat-1", messages=[])

    async def events() -> AsyncIterator[Any]:
        for event in (begin, *parts, end):
            yield event

    async def encode() -> list[bytes]:
        stream: Any = VercelAIEventStream(request, sdk_version=6)
        return [text.encode() async for text in stream.encode_stream(stream.transform_stream(events()))]

    with asyncio.Runner() as runner:
        return _costs(lambda: runner.run(encode()), _text_of_chat, n, times)


READY, PLAIN = "msgspec, ready dicts", "msgspec, the deltas alone"
CASES = {
    "For useChat": (
        READY,
        {
            "streamkit, vercel_ui": Contestant(partial(written, "vercel_ui")),
            "pydantic-ai, Vercel AI adapter": Contestant(pydantic_ai, ("pydantic_ai", "pydantic-ai-slim[openai]")),
            READY: Contestant(ready),
        },
    ),
    "Its own protocol": (
        PLAIN,
        {
            "streamkit, EventStreamWriter": Contestant(partial(written, "streamkit")),
            "streamkit, encode_event, the deltas alone": Contestant(partial(lines, codec.encode_event)),
            PLAIN: Contestant(partial(lines, msgspec.json.Encoder().encode)),
        },
    ),
}
CONTESTANTS = {name: contestant for _, contestants in CASES.values() for name, contestant in contestants.items()}


def rows(profile: Profile) -> Iterator[Row]:
    with Workers(__name__, profile) as workers:
        for case, (baseline, contestants) in CASES.items():
            yield from contest(
                workers,
                contestants,
                profile.rounds,
                case=case,
                unit="µs an event",
                baseline=baseline,
                parameters={"n": profile.pick(50, 1_000, 5_000), "times": profile.pick(1, 5, 10)},
            )
