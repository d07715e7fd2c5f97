"""The streams of clients that have a protocol of their own, beside the client's own loop over its objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import httpx

import streamkit as sk
from streamkit.protocols.amazon_framer import amazon_message

from .faces import Texts
from .measuring import Clock, Contestant, Profile, Row, Workers, check, contest
from .wires import answer, deltas

TITLE = "Clients with a protocol of their own"
ABOUT = """\
CPU time for each text delta of Ollama, Cohere, Gemini (`google-genai`) and Bedrock (`boto3`), through the real client, in one
process: its HTTP client gets the body from memory, an event a chunk. *Its stream* is what the client returns; *its objects* are those of a generator around it, as where a tracer stands
between. The baseline is the client's own loop."""

OWN_LOOP = "the client's own loop"


def ollama_body(n: int) -> list[bytes]:
    """The lines of an answer of `n` deltas."""
    head = {"model": "m", "created_at": "2026-01-01T00:00:00.123456Z"}
    items: list[Any] = [
        {**head, "message": {"role": "assistant", "content": text}, "done": False} for text in deltas(n)
    ]
    items.append({**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
    return [json.dumps(item).encode() + b"\n" for item in items]


def cohere_body(n: int) -> list[bytes]:
    """The events of an answer of `n` deltas."""

    def item(type: str, **message: Any) -> dict[str, Any]:
        return {"type": type, "index": 0, "delta": {"message": message}}

    items = [{"id": "a", **item("message-start", role="assistant")}]
    items.append(item("content-start", content={"type": "text", "text": ""}))
    items += [item("content-delta", content={"text": text}) for text in deltas(n)]
    items += [{"type": "message-end", "delta": {"finish_reason": "COMPLETE", "usage": {}}}]
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in items]


def gemini_body(n: int) -> list[bytes]:
    """The events of an answer of `n` deltas."""
    head = {"modelVersion": "m", "responseId": "r"}

    def item(text: str, **end: str) -> dict[str, Any]:
        candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **end}
        return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}, **head}

    items = [*map(item, deltas(n)), item("", finishReason="STOP")]
    return [f"data: {json.dumps(one)}\r\n\r\n".encode() for one in items]


def bedrock_body(n: int) -> list[bytes]:
    """The messages of an answer of `n` deltas, padded as Amazon's are."""
    pieces = [{"contentBlockIndex": 0, "delta": {"text": text}, "p": "abcdefghijklmn"} for text in deltas(n)]
    events = [("messageStart", {"role": "assistant"}), *(("contentBlockDelta", piece) for piece in pieces)]
    events += [("contentBlockStop", {"contentBlockIndex": 0}), ("messageStop", {"stopReason": "end_turn"})]
    return [amazon_message(name, json.dumps(payload).encode()) for name, payload in events]


def transport_of(body: list[bytes], content_type: str) -> Mapping[str, Any]:
    """The options with which httpx answers every request with this body."""

    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": content_type}, content=iter(body))

    return {"transport": httpx.MockTransport(respond)}


def ollama_stream(body: list[bytes]) -> Any:
    import ollama

    return ollama.Client(**transport_of(body, "application/x-ndjson")).chat(model="m", messages=[], stream=True)


def cohere_stream(body: list[bytes]) -> Any:
    import cohere

    http = httpx.Client(**transport_of(body, "text/event-stream"))
    client = cohere.ClientV2(api_key="none", base_url="http://localhost", httpx_client=http)
    return client.chat_stream(model="m", messages=[])


_clients: list[Any] = []  # Google's closes its connections where nothing refers to it


def gemini_stream(body: list[bytes]) -> Any:
    from google import genai

    options = genai.types.HttpOptions(client_args={**transport_of(body, "text/event-stream")})
    client = genai.Client(api_key="none", http_options=options)
    _clients[:] = [client]
    return client.models.generate_content_stream(model="m", contents="hi")


class AmazonBody:
    """What boto3 reads of a response."""

    def __init__(self, body: list[bytes]) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        pass


def bedrock_stream(body: list[bytes]) -> Any:
    import boto3
    from botocore.awsrequest import AWSResponse

    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", **keys)
    headers = {"content-type": "application/vnd.amazon.eventstream"}
    client.meta.events.register(
        "before-send.bedrock-runtime", lambda request, **_: AWSResponse(request.url, 200, headers, AmazonBody(body))
    )
    return client.converse_stream(modelId="m", messages=[])["stream"]


def ollama_text(part: Any) -> str:
    return str(part.message.content)


def cohere_text(event: Any) -> str:
    return str(event.delta.message.content.text) if event.type == "content-delta" else ""


def gemini_text(chunk: Any) -> str:
    return str(chunk.text or "")


def bedrock_text(event: Any) -> str:
    return str(event["contentBlockDelta"]["delta"]["text"]) if "contentBlockDelta" in event else ""


def own_loop(stream: Any, text_of: Callable[[Any], str]) -> str:
    return "".join([text_of(item) for item in stream])


def with_hook(stream: Any, _: Callable[[Any], str]) -> str:
    handler = Texts()
    sk.stream(stream, handler).until_done()
    return "".join(handler.parts)


def with_hook_on_objects(stream: Any, text_of: Callable[[Any], str]) -> str:
    return with_hook((item for item in stream), text_of)


PROVIDERS: Mapping[str, tuple[Any, Any, Any]] = {
    "ollama": (ollama_body, ollama_stream, ollama_text),
    "cohere": (cohere_body, cohere_stream, cohere_text),
    "gemini": (gemini_body, gemini_stream, gemini_text),
    "bedrock": (bedrock_body, bedrock_stream, bedrock_text),
}
MODULES = {"gemini": "google.genai", "bedrock": "boto3"}  # those that have another name than their provider
READERS = {OWN_LOOP: own_loop, "streamkit, its stream": with_hook, "streamkit, its objects": with_hook_on_objects}


def measured(provider: str, read: Callable[..., str], n: int, times: int) -> float:
    """Microseconds a delta."""
    body_of, stream_of, text_of = PROVIDERS[provider]
    body, clock = body_of(n), Clock()
    for _ in range(times):
        stream = stream_of(body)
        with clock:
            text = read(stream, text_of)
        check(text, answer(n))
    return clock.seconds / n / times * 1e6


def contestants(provider: str) -> dict[str, Contestant]:
    needs = (MODULES.get(provider, provider), "streamkit-sdk[integrations]")
    return {f"{name} ({provider})": Contestant(partial(measured, provider, READERS[name]), needs) for name in READERS}


CONTESTANTS = {name: one for provider in PROVIDERS for name, one in contestants(provider).items()}


def rows(profile: Profile) -> Iterator[Row]:
    parameters = {"n": profile.pick(50, 2_000, 2_000), "times": profile.pick(1, 3, 10)}
    with Workers(__name__, profile) as workers:
        for provider in PROVIDERS:
            yield from contest(
                workers,
                contestants(provider),
                profile.rounds,
                case=provider.capitalize(),
                unit="µs a delta",
                baseline=f"{OWN_LOOP} ({provider})",
                parameters=parameters,
            )
