"""`limits=`: no source fills the memory of its client. What was received before stays."""

from __future__ import annotations

import gzip
import json
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import msgspec
import pytest

import streamkit as sk
from streamkit.events import ToolCallCreated
from streamkit.messages import ToolCallMessage
from streamkit.messages.json_text import held_size
from streamkit.protocols.framing import framer_for
from streamkit.testing import ModelServer, Reply

from .faces import Face, SyncTold, ask, body, chat, every_face


def chunk(content: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "c", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


END = chunk("", "stop") + b"data: [DONE]\n\n"


@contextmanager
def serving(content: bytes, status: int = 200, encoding: str = "identity") -> Iterator[tuple[str, list[int]]]:
    """A server with this response to everything, in pieces. Gives its URL, and a list of how many bytes were sent."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-encoding", encoding)
            self.send_header("connection", "close")
            self.end_headers()
            sent.append(0)
            try:
                for start in range(0, len(content), 4096):
                    self.wfile.write(content[start : start + 4096])
                    sent[-1] += 4096
            except OSError:
                pass  # the client left

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", sent
        finally:
            server.shutdown()
            thread.join()


async def raised_by(stream: Any) -> Any:
    with pytest.raises(sk.LimitError) as caught:
        await stream.until_done()
    return caught.value


@every_face
@pytest.mark.parametrize("ends", [False, True], ids=["never ends", "ends"])
@body
async def test_a_line_that_is_too_long_ends_the_stream(face: Face, ends: bool) -> None:
    """By the real client. It is noticed before the line has ended; what came before stays."""
    long = b"data: " + b"x" * 300_000 + (b"\n\n" + END if ends else b"")
    with serving(chunk("Hello") + long) as (url, _):
        async with face.client(url) as client:
            told = face.told()
            stream = face.stream(ask(client), told, limits=sk.Limits(line=100_000))
            error = await raised_by(stream)
    assert (error.limit, error.allowed, error.code) == ("line", 100_000, "limit-line")
    assert "more than 100,000 bytes of one item, as `Limits.line` allows" in str(error)
    assert [m.content for m in error.messages] == ["Hello"]
    assert [m.status for m in stream.messages] == ["failed"]
    told.check_brackets()
    assert told.of("on_exception") == [error]


@pytest.mark.parametrize("size", [1, 7, 999, 100_000, 10**6])
@pytest.mark.parametrize("lines", [False, True], ids=["sse", "ndjson"])
def test_a_line_that_is_too_long_is_found_however_it_is_cut(size: int, lines: bool) -> None:
    """Also where it comes in one chunk with others, or as the last one without its end."""

    def shaped(data: bytes) -> bytes:
        return data.replace(b"data: ", b"").replace(b"\n\n", b"\n") if lines else data

    good, bad = shaped(chunk("Hel") + chunk("lo")), shaped(b'data: {"x": "' + b"x" * 3000 + b'"}\n\n')
    for content in (good + bad + shaped(chunk("no")), good + bad, (good + bad).rstrip(), good + bad[:2500]):
        pieces = [content[n : n + size] for n in range(0, len(content), size)]
        stream = sk.stream(iter(pieces), limits=sk.Limits(line=2000), protocol="openai_chat")
        with pytest.raises(sk.LimitError) as caught:
            stream.until_done()
        assert [message.content for message in caught.value.messages] == ["Hello"]


def test_a_line_of_the_allowed_length_is_read() -> None:
    content = chunk("x" * 5000) + END
    allowed = len(chunk("x" * 5000)) - len("\n")  # the blank line
    for size in (1, 1000, 10**6):
        pieces = [content[n : n + size] for n in range(0, len(content), size)]
        assert len(sk.stream(iter(pieces), limits=sk.Limits(line=allowed)).get_final_text()) == 5000
        with pytest.raises(sk.LimitError):
            sk.stream(iter(pieces), limits=sk.Limits(line=allowed - 1)).until_done()


def test_a_framer_that_found_a_line_too_long_stays_ended() -> None:
    framer = framer_for(b"data: ", 1000)
    assert framer is not None
    for _ in range(2):
        with pytest.raises(sk.LimitError):
            framer.feed(b"data: " + b"x" * 1001 + b"\n\n")
    with pytest.raises(sk.LimitError):
        framer.finish()


@every_face
@body
async def test_a_message_that_is_too_long_ends_the_stream(face: Face) -> None:
    """By the real client and the scripted server."""
    with ModelServer([Reply(*["word "] * 5000)]) as server:
        async with face.client(server) as client:
            stream = face.stream(ask(client), limits=sk.Limits(message=10_000))
            error = await raised_by(stream)
    assert error.limit == "message"
    [message] = error.messages
    assert 10_000 < len(message.content) < 10_000 + 5 * 600
    assert message.status == "failed"


class _Reader(sk.EventHandler):
    """Reads what has come of a text, or of audio, at each delta."""

    def on_message_delta(self, delta: sk.Delta, snapshot: sk.Message) -> None:
        assert snapshot.content.endswith(delta.value)


@pytest.mark.parametrize("kind", ["content", "audio"])
def test_a_message_that_is_read_at_each_delta_may_not_be_longer(kind: str) -> None:
    """Reading the content joins the deltas, as the engine does where it measures."""
    piece: Any = "word" if kind == "content" else {"id": "a", "data": "d29y"}
    items = [choice({kind: piece})] * 5000
    lengths = []
    for handlers in ((), (_Reader(),)):
        stream = sk.stream(items, *handlers, limits=sk.Limits(message=10_000))
        with pytest.raises(sk.LimitError, match=r"Limits\.message"):
            stream.until_done()
        lengths.append(len(stream.messages[0].content))
    assert 10_000 < lengths[0] == lengths[1] < 12_000


@every_face
@body
async def test_messages_that_are_too_long_together_end_the_stream(face: Face) -> None:
    """Over all sources of a run."""
    with ModelServer([Reply("a" * 600), Reply("b" * 600)]) as server:
        async with face.client(server) as client:
            asks = iter([ask(client)])
            stream = face.stream(ask(client), limits=sk.Limits(total=1000), then=lambda stream: next(asks, None))
            await stream.until_done()
            assert [len(message.content) for message in stream.messages] == [600]
    long = [sk.events.TextDone(sk.TextMessage(f"m{n}", content="x" * 400)) for n in range(3)]
    with pytest.raises(sk.LimitError, match="1,000 characters in all messages"):
        sk.stream(long, limits=sk.Limits(total=1000)).until_done()


@every_face
@body
async def test_too_many_open_messages_end_the_stream(face: Face) -> None:
    created = [ToolCallCreated(ToolCallMessage(f"m{n}", name="f")) for n in range(11)]
    told = face.told()
    stream = face.stream(iter(created), told, limits=sk.Limits(open_messages=10))
    error = await raised_by(stream)
    assert (error.limit, len(error.messages)) == ("open_messages", 10)
    told.check_brackets()


# Each item of an endless stream makes the decoder or a message hold 1,000 characters more, beside its content.
BESIDE = "x" * 1000


def choice(delta: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, **more}]}


def citation(number: int) -> dict[str, Any]:
    return {"type": "url_citation", "url": f"https://example.com/{number}", "title": BESIDE}


def logprobs(number: int) -> dict[str, Any]:
    return {"content": [{"token": f"t{number}", "logprob": -1.0, "bytes": None, "note": BESIDE}]}


MANY = "metadata of one message after another"
ENDLESS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "chat: annotations": ("openai_chat", lambda n: choice({"content": "" if n else "a", "annotations": [citation(n)]})),
    "chat: annotations before the text": ("openai_chat", lambda n: choice({"annotations": [citation(n)]})),
    "chat: logprobs": ("openai_chat", lambda n: choice({"content": "a"}, logprobs=logprobs(n))),
    "chat: logprobs of a refusal": (
        "openai_chat",
        lambda n: choice({"refusal": "a"}, logprobs={"refusal": logprobs(n)["content"]}),
    ),
    "chat: reasoning details": (
        "openai_chat",
        lambda n: choice({"reasoning_details": [{"type": "reasoning.encrypted", "id": f"r{n}", "data": BESIDE}]}),
    ),
    "chat: reasoning details beside their text": (
        "openai_chat",
        lambda n: choice({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": BESIDE}]}),
    ),
    "chat: thinking blocks": (
        "openai_chat",
        lambda n: choice({"thinking_blocks": [{"type": "thinking", "signature": f"{n}{BESIDE}"}]}),
    ),
    "chat: opaque reasoning": ("openai_chat", lambda n: choice({"reasoning_opaque": BESIDE})),
    "chat: arguments without a name": (
        "openai_chat",
        lambda n: choice({"tool_calls": [{"index": 0, "id": "call", "function": {"arguments": BESIDE}}]}),
    ),
    "chat: new keys of a call": (
        "openai_chat",
        lambda n: choice({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}, f"key{n}": BESIDE}]}),
    ),
    "chat: new keys beside a text": (
        "openai_chat",
        lambda n: choice({"content": "a", "extra_content": {f"key{n}": BESIDE}}),
    ),
    "chat: new keys of a choice": ("openai_chat", lambda n: choice({"content": ""}, **{f"key{n}": BESIDE})),
    "chat: new keys of x_groq": ("openai_chat", lambda n: {**choice({"content": "a"}), "x_groq": {f"key{n}": BESIDE}}),
    "anthropic: new keys of the message": (
        "anthropic",
        lambda n: {"type": "message_delta", "delta": {f"key{n}": BESIDE}},
    ),
    "anthropic: new keys of the usage": (
        "anthropic",
        lambda n: {"type": "message_delta", "delta": {}, "usage": {f"key{n}": BESIDE}},
    ),
    "responses: new keys of an item": (
        "openai_responses",
        lambda n: {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {"id": "i", "type": "message", "role": "assistant", f"key{n}": BESIDE},
        },
    ),
    "responses: annotations": (
        "openai_responses",
        lambda n: {
            "type": "response.output_text.annotation.added",
            "item_id": "i",
            "output_index": 0,
            "content_index": 0,
            "annotation": citation(n),
        },
    ),
    "responses: arguments without a name": (
        "openai_responses",
        lambda n: {
            "type": "response.function_call_arguments.delta",
            "item_id": "i",
            "output_index": 0,
            "delta": BESIDE,
        },
    ),
    "anthropic: citations": (
        "anthropic",
        lambda n: {
            "type": "content_block_delta",
            "index": 0,
            "delta": {
                "type": "citations_delta",
                "citation": {"type": "page_location", "cited_text": f"{n}{BESIDE}", "document_index": 0},
            },
        },
    ),
    "assistants: annotations": (
        "openai_assistants",
        lambda n: {
            "event": "thread.message.delta",
            "data": {
                "id": "m",
                "object": "thread.message.delta",
                "delta": {
                    "content": [
                        {
                            "index": 0,
                            "type": "text",
                            "text": {
                                "annotations": [
                                    {
                                        "index": n,
                                        "type": "file_citation",
                                        "text": f"{n}{BESIDE}",
                                        "file_citation": {"file_id": "f"},
                                    }
                                ]
                            },
                        }
                    ]
                },
            },
        },
    ),
    MANY: (
        "streamkit",
        lambda n: {
            "type": "text_done",
            "message": {"id": f"m{n}", "role": "assistant", "type": "message", "metadata": {"note": BESIDE}},
        },
    ),
}


@pytest.mark.parametrize(
    ("name", "limit"),
    [(name, limit) for name in ENDLESS for limit in ("message", "total") if (name, limit) != (MANY, "message")],
)
@pytest.mark.parametrize("wire", ["items", "bytes"])
def test_what_grows_beside_a_text_is_counted(name: str, limit: str, wire: str) -> None:
    """Annotations, log probabilities, what goes back to the provider: an endless stream of them ends with the error, at the
    limit and not long after it. What came before stays."""
    protocol, item = ENDLESS[name]
    read = 0

    def endless() -> Iterator[Any]:
        nonlocal read
        for read in range(200):
            found = item(read)
            named = b"event: %s\n" % str(found["event"]).encode() if "event" in found else b""
            data = json.dumps(found.get("data", found)).encode()
            yield found if wire == "items" else named + b"data: " + data + b"\n\n"

    told = SyncTold()
    stream = sk.stream(endless(), told, protocol=protocol, limits=sk.Limits(**{limit: 50_000}))
    with pytest.raises(sk.LimitError, match=f"more than 50,000 characters .* as `Limits.{limit}` allows") as caught:
        stream.until_done()
    assert caught.value.limit == limit
    assert 15 < read < 70
    told.check_brackets()
    for message in stream.messages:
        if isinstance(message, sk.TextMessage):
            assert len(message.annotations) == len(told.of("on_annotation"))


@pytest.mark.parametrize("alternatives", [0, 5, 20])
def test_log_probabilities_are_counted_as_the_memory_that_they_take(alternatives: int) -> None:
    """Objects of a few numbers take about seven times their JSON text."""

    def token(number: int) -> dict[str, Any]:
        return {"token": f" w{number}", "logprob": -0.125 - number, "bytes": [32, 119, 48 + number % 10]}

    def tokens(number: int) -> dict[str, Any]:
        others = [token(number + place) for place in range(alternatives)]
        return {"content": [{**token(number), "top_logprobs": others}], "refusal": None}

    limit = 400_000
    lines = [b"data: %b\n\n" % json.dumps(choice({"content": "a"}, logprobs=tokens(n))).encode() for n in range(1200)]
    stream = sk.stream(iter(lines), protocol="openai_chat", limits=sk.Limits(message=limit))
    with pytest.raises(sk.LimitError, match=r"Limits\.message"):
        stream.until_done()
    tracemalloc.start()
    held = [
        msgspec.json.decode(line[6:])["choices"][0]["logprobs"]["content"]
        for line in lines[: stream.messages[0].delta_count]
    ]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * limit < taken < 1.5 * limit, held[0]


def test_annotations_and_metadata_are_counted_once() -> None:
    """Although both come with their deltas, and again with the complete message or item."""
    cited = [citation(n) for n in range(20)]
    text = {"type": "output_text", "text": "a", "annotations": cited, "logprobs": logprobs(0)["content"]}
    item = {"id": "i", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    place = {"item_id": "i", "output_index": 0, "content_index": 0}
    items = [
        {"type": "response.created", "response": {"id": "r", "object": "response"}},
        *({"type": "response.output_text.annotation.added", **place, "annotation": one} for one in cited),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}},
    ]
    stream = sk.stream(items, limits=sk.Limits(total=100_000))
    stream.until_done()
    assert [len(one.annotations) for one in stream.messages if isinstance(one, sk.TextMessage)] == [20]
    chunks = [choice({"content": "a"}, logprobs=logprobs(n)) for n in range(20)]
    end = choice({}, finish_reason="stop")
    size = held_size({"logprobs": [logprobs(n)["content"][0] for n in range(20)]})
    kept = sk.stream([*chunks, end], limits=sk.Limits(message=size + size // 10))
    kept.until_done()
    assert len(kept.messages[0].metadata["logprobs"]) == 20
    with pytest.raises(sk.LimitError):
        sk.stream([*chunks, end], limits=sk.Limits(message=size - 2000)).until_done()


@every_face
@body
async def test_a_body_is_measured_after_decompression(face: Face) -> None:
    """A small gzip body that becomes a long line. Its client is the one of httpx2, and the one of openai."""
    bomb = gzip.compress(chunk("Hello") + b"data: " + b" " * 3_000_000)
    with serving(bomb, encoding="gzip") as (url, _):
        async with face.client(url) as client:
            error = await raised_by(face.stream(ask(client), limits=sk.Limits(line=500_000)))
            assert [message.content for message in error.messages] == ["Hello"]


@pytest.mark.parametrize("compressed", [False, True], ids=["", "gzip"])
def test_of_an_error_body_only_the_beginning_is_read(compressed: bool) -> None:
    """The connection is closed while the server still sends."""
    content = b'{"error": "too busy"}' + b" " * 30_000_000
    with serving(gzip.compress(content) if compressed else content, 503, "gzip" if compressed else "identity") as (
        url,
        sent,
    ):
        with (
            httpx2.Client() as client,
            client.stream("GET", url) as response,
            pytest.raises(sk.SourceError, match="too busy") as caught,
        ):
            sk.stream(response, limits=sk.Limits(error_body=5000)).until_done()
        assert caught.value.status_code == 503
    assert compressed or sent[0] < 20_000_000


@pytest.mark.anyio
async def test_of_an_error_body_only_the_beginning_is_read_by_a_task() -> None:
    with serving(b'{"error": "too busy"}' + b" " * 30_000_000, 503) as (url, sent):
        async with httpx2.AsyncClient() as client, client.stream("GET", url) as response:
            with pytest.raises(sk.SourceError, match="too busy"):
                await sk.astream(response, limits=sk.Limits(error_body=5000)).until_done()
    assert sent[0] < 20_000_000


def test_warnings_hold_no_long_items() -> None:
    """A thousand warnings are kept; the items that they are about are not, if they are long."""
    stream = sk.stream([b"data: " + b"x" * 100_000 + b"\n\n", b"data: x\n\n", chunk("a"), END])
    events = [event for event in stream if isinstance(event, sk.events.StreamWarning)]
    assert len(events[0].raw) == 100_000
    assert [warning.raw for warning in stream.warnings] == [None, "x"]


@pytest.mark.parametrize("value", [0, -1, 1.5, None, "1", True])
@pytest.mark.parametrize("name", ["line", "message", "open_messages", "error_body", "total"])
def test_a_limit_is_a_whole_number_above_zero(name: str, value: Any) -> None:
    with pytest.raises(sk.UsageError, match=rf"Limits\.{name} is a whole number above 0"):
        sk.Limits(**{name: value})


def test_a_line_is_not_limited_too_tightly() -> None:
    with pytest.raises(sk.UsageError, match=r"Limits\.line is at least 1,000, not 999"):
        sk.Limits(line=999)


def test_limits_are_limits() -> None:
    with pytest.raises(sk.UsageError, match="`limits` is a `Limits`"):
        sk.stream([], limits=7)  # type: ignore[arg-type]


def test_the_error_crosses_a_chain_and_a_pickle() -> None:
    inner = sk.stream([chunk("Hello"), b"data: " + b"x" * 3000], limits=sk.Limits(line=2000))
    with pytest.raises(sk.LimitError) as caught:
        sk.stream(inner).until_done()
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.limit, copy.allowed) == (str(caught.value), "line", 2000)


@pytest.mark.parametrize("after", [b"data: " + b"x" * 5_000 + b"\n\n", b'data: {"cut": "of'], ids=["long", "cut"])
def test_what_follows_the_end_in_the_same_chunk_means_nothing(after: bytes) -> None:
    """As where it comes in a chunk of its own, which is not even read."""
    frames = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chat("Hello")]
    frames += [b"data: [DONE]\n\n", after]
    for source in (frames, [b"".join(frames)]):
        stream = sk.stream(source, limits=sk.Limits(line=1_000))
        assert stream.get_final_text() == "Hello"
        assert (stream.status, stream.warnings) == ("completed", ())
