"""Bytes that are not UTF-8, anywhere in a body: the same events and the same warnings however the body is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from streamkit.protocols.framing import SseFramer, as_frame, framer_for, sse_frame
from streamkit.testing.check.outcome import decode, difference

from .recorded import own_recordings

PROTOCOLS = {
    "ag_ui": "ag-ui",
    "anthropic": "anthropic-messages",
    "letta": "letta",
    "open_interpreter": "open-interpreter",
    "openai_assistants": "openai-assistants",
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "vercel_ui": "vercel-ui",
}
NO_UTF_8 = (b"\xff", b"\xc3", b"\xe2\x82", b"\x80", b"\xed\xa0\x80", b"\xf0\x9f\x8c")


def short_bodies(folder: str, framing: str) -> Iterator[bytes]:
    """Of each of the protocol's recordings the first item, some in its middle, and the last two, in this framing."""
    for path in own_recordings(folder, complete=True):
        body = path.read_bytes()
        frames = [*map(as_frame, (framer_for(body) or SseFramer()).feed(body))]
        middle = len(frames) // 2
        chosen = [frames[0], *frames[middle : middle + 2], *frames[-2:]]
        if framing == "sse":
            yield b"".join(sse_frame(data, name.decode()) for _, name, data in chosen)
        elif not any(name for _, name, _ in chosen):
            yield b"".join(data + b"\n" for _, _, data in chosen)


def cuts(body: bytes, place: int) -> Iterator[list[bytes]]:
    """At every byte, and once at each byte about this place and in the middle."""
    yield [body[at : at + 1] for at in range(len(body))]
    for at in {*range(max(1, place - 1), place + 4), len(body) // 2}:
        yield [body[:at], body[at:]]


def response(pieces: list[bytes]) -> Any:
    """An HTTP response whose body comes in these pieces."""
    return httpx2.Response(200, content=iter(pieces))


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["sse", "lines"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_are_not_utf_8_mean_the_same_however_they_are_cut(protocol: str, framing: str) -> None:
    """In each part of the body in turn, in other places of each body: in place of a byte of it, or between two. By a response, of
    which everybody knows that it gives pieces, and not lines."""
    bodies = [*short_bodies(PROTOCOLS[protocol], framing)]
    for first, body in enumerate(bodies):
        for number, place in enumerate(range(first, len(body), 1 + len(body) // 5)):
            wrong = NO_UTF_8[number % len(NO_UTF_8)]
            broken = body[:place] + wrong + body[place + number % 2 :]
            named = protocol if number % 3 else None
            whole = decode(response([broken]), named)
            for pieces in cuts(broken, place):
                came = decode(response(pieces), named)
                fault = difference(whole, came)
                assert fault is None, (broken, [*map(len, pieces)])
                assert came.codes == whole.codes
