"""The clients of anthropic and openai for other clouds: Amazon Bedrock, Google Vertex, Azure. Over HTTP on loopback."""

from __future__ import annotations

import base64
import json
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import httpx2
import openai
import pytest

import streamkit as sk

from .strict_servers import anthropic_events, chat_chunks, response_events

BEDROCK = "application/vnd.amazon.eventstream"
SSE = "text/event-stream"
BLOCKS = [
    {"type": "thinking", "thinking": "I look.", "signature": "sealed"},
    {"type": "text", "text": "It rains."},
    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}},
]


def frame(payload: bytes, **headers: str) -> bytes:
    """A message of Amazon's event stream: lengths and a checksum, headers, the payload, a checksum."""
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + struct.pack("!BH", 7, len(value)) + value.encode()
        for name, value in ((f":{name.replace('_', '-')}", value) for name, value in headers.items())
    )
    prelude = struct.pack("!II", len(head) + len(payload) + 16, len(head))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack("!I", zlib.crc32(message))


def bedrock_body(events: Sequence[Mapping[str, Any]]) -> bytes:
    """Events as Bedrock sends them: each a chunk with base64 in it, padded."""
    chunks = [{"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcd"} for event in events]
    kind = {"message_type": "event", "event_type": "chunk", "content_type": "application/json"}
    return b"".join(frame(json.dumps(chunk).encode(), **kind) for chunk in chunks)


def sse_body(items: Sequence[Mapping[str, Any]]) -> bytes:
    names = [f"event: {item['type']}\n" if "type" in item else "" for item in items]
    return "".join(f"{name}data: {json.dumps(x)}\n\n" for name, x in zip(names, items, strict=True)).encode()


@contextmanager
def serving(body: bytes, content_type: str, cut: int = 7) -> Iterator[str]:
    """A server that answers every request with this body, in chunks of `cut` bytes."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", content_type)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for start in range(0, len(body), cut):
                piece = body[start : start + cut]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


ASKED: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Is it warm?"}]}
AWS: dict[str, Any] = {"aws_region": "us-east-1", "api_key": "k", "max_retries": 0}
GOOGLE: dict[str, Any] = {"region": "eu", "project_id": "p", "access_token": "t", "max_retries": 0}


def told(stream: Any) -> list[tuple[str, str]]:
    return [(message.type, message.content) for message in stream.messages]


EXPECTED = [("reasoning", "I look."), ("message", "It rains."), ("tool_call", '{"city": "Oslo"}')]
METHODS: dict[str, Callable[[Any], Any]] = {
    "create": lambda client: lambda: client.messages.create(stream=True, **ASKED),
    "an open stream": lambda client: client.messages.create(stream=True, **ASKED),
    "stream": lambda client: client.messages.stream(**ASKED),
    "beta": lambda client: lambda: client.beta.messages.create(stream=True, **ASKED),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cloud", ["bedrock", "vertex"])
def test_the_sync_clients_of_other_clouds_stream(cloud: str, method: str) -> None:
    events = anthropic_events("msg_1", *BLOCKS, stop_reason="tool_use")
    body, kind = (bedrock_body(events), BEDROCK) if cloud == "bedrock" else (sse_body(events), SSE)
    with serving(body, kind) as url:
        client: Any
        if cloud == "bedrock":
            client = anthropic.AnthropicBedrock(base_url=url, **AWS)
        else:
            client = anthropic.AnthropicVertex(base_url=url, **GOOGLE)
        with client, sk.stream(METHODS[method](client)) as stream:
            stream.until_done()
            assert told(stream) == EXPECTED
            assert stream.messages[0].metadata["signature"] == "sealed"
            assert not stream.warnings


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cloud", ["bedrock", "vertex"])
async def test_the_async_clients_of_other_clouds_stream(cloud: str, method: str) -> None:
    events = anthropic_events("msg_1", *BLOCKS, stop_reason="tool_use")
    body, kind = (bedrock_body(events), BEDROCK) if cloud == "bedrock" else (sse_body(events), SSE)
    with serving(body, kind) as url:
        client: Any
        if cloud == "bedrock":
            client = anthropic.AsyncAnthropicBedrock(base_url=url, **AWS)
        else:
            client = anthropic.AsyncAnthropicVertex(base_url=url, **GOOGLE)
        async with client, sk.astream(METHODS[method](client)) as stream:
            await stream.until_done()
            assert told(stream) == EXPECTED
            assert not stream.warnings


def test_a_bedrock_stream_that_is_cut_off_is_noticed() -> None:
    """Amazon's own reader ends in silence where the body ends inside a frame."""
    body = bedrock_body(anthropic_events("msg_1", *BLOCKS[:2]))
    with serving(body[: len(body) * 2 // 3], BEDROCK) as url, anthropic.AnthropicBedrock(base_url=url, **AWS) as client:
        stream = sk.stream(lambda: client.messages.create(stream=True, **ASKED))
        with pytest.raises(sk.IncompleteStreamError):
            stream.until_done()
        assert told(stream)[0] == EXPECTED[0]


def test_an_error_in_a_bedrock_stream_fails_it() -> None:
    """What arrived before it stays."""
    events = anthropic_events("msg_1", *BLOCKS[:2])
    error = frame(
        b'{"message": "Too many requests"}',
        message_type="exception",
        exception_type="throttlingException",
        content_type="application/json",
    )
    with serving(bedrock_body(events[:-3]) + error, BEDROCK) as url:
        client = anthropic.AnthropicBedrock(base_url=url, **AWS)
        with client, sk.stream(lambda: client.messages.create(stream=True, **ASKED)) as stream:
            with pytest.raises(sk.SourceError, match="Too many requests"):
                stream.until_done()
            assert told(stream)[0] == EXPECTED[0]


def test_amazons_binary_response_is_read_without_its_client() -> None:
    body = bedrock_body(anthropic_events("msg_1", *BLOCKS))
    with serving(body, BEDROCK) as url, httpx2.Client() as client, client.stream("POST", url, json={}) as response:
        stream = sk.stream(response)
        stream.until_done()
        assert response.is_closed
    assert told(stream) == EXPECTED


def test_another_binary_response_without_its_client_is_refused() -> None:
    """With a text that says what to pass."""
    kind = "application/x-protobuf"
    with serving(b"\x08", kind) as url, httpx2.Client() as client, client.stream("POST", url, json={}) as response:
        with pytest.raises(sk.UsageError, match=r"x-protobuf.*the client's own stream"):
            sk.stream(response).until_done()
        assert response.is_closed


AZURE: dict[str, Any] = {"api_version": "2025-01-01", "api_key": "k", "max_retries": 0}
ANSWERS: dict[str, tuple[Callable[[Any], Any], Sequence[Mapping[str, Any]]]] = {
    "chat": (
        lambda client: lambda: client.chat.completions.create(model="m", messages=[], stream=True),
        chat_chunks({"content": "It "}, {"content": "rains."}),
    ),
    "responses": (
        lambda client: lambda: client.responses.create(model="m", input="?", stream=True),
        response_events(
            "resp_1",
            {
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "It rains.", "annotations": []}],
            },
        ),
    ),
}


@pytest.mark.parametrize("api", ANSWERS)
def test_azures_sync_client_streams(api: str) -> None:
    ask, items = ANSWERS[api]
    with serving(sse_body(items), SSE) as url, openai.AzureOpenAI(azure_endpoint=url, **AZURE) as client:
        assert sk.stream(ask(client)).get_final_text() == "It rains."


@pytest.mark.anyio
@pytest.mark.parametrize("api", ANSWERS)
async def test_azures_async_client_streams(api: str) -> None:
    ask, items = ANSWERS[api]
    with serving(sse_body(items), SSE) as url:
        async with openai.AsyncAzureOpenAI(azure_endpoint=url, **AZURE) as client:
            assert await sk.astream(ask(client)).get_final_text() == "It rains."
