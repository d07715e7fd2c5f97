"""A `SourceError` says what the server said, in whatever form it did."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import httpx
import openai
import pytest

import streamkit as sk

from .faces import FACES, Face, body, every_pair
from .recorded import in_a_loop

# What a server answers with, and what of it the error says.
BODIES: dict[str, tuple[str, Any]] = {
    "OpenAI": ('{"error": {"message": "the model is asleep", "type": "x"}}', "the model is asleep"),
    "FastAPI, a text": ('{"detail": "the model is asleep"}', "the model is asleep"),
    "FastAPI, a list": (
        '{"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]}',
        "body.model: Field required",
    ),
    "an error that is a text": ('{"error": "the model is asleep"}', "the model is asleep"),
    "errors": ('{"errors": ["the model is asleep", {"message": "so am I"}]}', "the model is asleep; so am I"),
    "a message": ('{"message": "the model is asleep"}', "the model is asleep"),
    "an error and a detail": ('{"error": "Bad Request", "detail": "it is asleep"}', "Bad Request: it is asleep"),
    "OAuth": ('{"error": "invalid_token", "error_description": "it is asleep"}', "invalid_token: it is asleep"),
    "NestJS": ('{"statusCode": 400, "error": "Bad Request", "message": "it is asleep"}', "Bad Request: it is asleep"),
    "OpenRouter": (
        '{"error": {"message": "Provider returned error", "code": 429, "metadata": {"raw": "it is asleep"}}}',
        "Provider returned error: it is asleep",
    ),
    "other JSON": ('{"why": "asleep"}', '{"why":"asleep"}'),
    "plain text": ("the model is asleep", "the model is asleep"),
    "escape sequences": ('{"detail": "\\u001b[2Jasleep"}', "\\x1b[2Jasleep"),
}


@contextmanager
def answering(text: str, status: int = 422) -> Iterator[str]:
    """A server that answers every request so. Gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            data = text.encode()
            self.send_response(status)
            self.send_header("content-type", "application/json" if text.startswith("{") else "text/plain")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _requests(url: str, *, is_async: bool) -> dict[str, Any]:
    options: dict[str, Any] = {"base_url": url, "api_key": "any", "max_retries": 0}
    to_openai = (openai.AsyncOpenAI if is_async else openai.OpenAI)(**options)
    to_claude = (anthropic.AsyncAnthropic if is_async else anthropic.Anthropic)(**options)
    by_hand = (httpx.AsyncClient if is_async else httpx.Client)()
    said: Any = [{"role": "user", "content": "Hello"}]
    return {
        "Chat": lambda: to_openai.chat.completions.create(model="m", messages=said, stream=True),
        "Responses": lambda: to_openai.responses.create(model="m", input="Hello", stream=True),
        "Anthropic": lambda: to_claude.messages.create(model="m", messages=said, max_tokens=9, stream=True),
        "Anthropic's helper": lambda: to_claude.messages.stream(model="m", messages=said, max_tokens=9),
        "httpx": lambda: by_hand.stream("POST", url),
    }


@every_pair
@pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])
@pytest.mark.parametrize("client", ["Chat", "Responses", "Anthropic", "Anthropic's helper", "httpx"])
@pytest.mark.parametrize("form", BODIES)
@body
async def test_an_error_says_what_the_server_said(face: Face, client: str, form: str) -> None:
    text, said = BODIES[form]
    with answering(text) as url:
        stream = face.stream(_requests(url, is_async=face.is_async)[client])
        with pytest.raises(sk.SourceError) as caught:
            await stream.until_done()
    assert said in str(caught.value)
    assert caught.value.status_code == 422
    assert caught.value.body


def test_an_agent_says_it_too() -> None:
    with answering('{"detail": "the model is asleep"}') as url:
        agent = sk.Agent(model="m", client=openai.OpenAI(base_url=url, api_key="any", max_retries=0))
        with pytest.raises(sk.SourceError, match="the model is asleep"):
            agent.stream("Hello").until_done()


def test_a_long_answer_is_cut() -> None:
    with answering(json.dumps({"detail": "x" * 100_000})) as url, pytest.raises(sk.SourceError) as caught:
        sk.stream(_requests(url, is_async=False)["Chat"]).until_done()
    assert len(str(caught.value)) < 3000


# How servers say in mid-stream that something is wrong, by protocol.
EVENTS: list[tuple[str, dict[str, Any]]] = [
    ("openai_responses", {"type": "response.error", "error": {"code": "x", "message": "asleep"}}),
    ("openai_responses", {"type": "response.error", "message": "asleep"}),
    ("openai_responses", {"type": "response.error", "error": "asleep"}),
    ("openai_responses", {"type": "error", "code": "x", "message": "asleep"}),
    ("openai_responses", {"type": "error", "error": {"message": "asleep"}}),
    ("openai_responses", {"error": "asleep"}),
    ("openai_chat", {"error": {"message": "asleep"}}),
    ("openai_chat", {"error": "asleep"}),
    ("openai_chat", {"object": "error", "message": "asleep"}),
    ("openai_chat", {"error": {"message": "Provider returned error", "metadata": {"raw": "asleep"}}}),
    ("openai_responses", {"error": {"message": "Provider returned error", "metadata": {"raw": "asleep"}}}),
    ("anthropic", {"type": "error", "error": {"detail": [{"msg": "asleep"}]}}),
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "asleep"}}),
    ("anthropic", {"type": "error", "error": "asleep"}),
    ("anthropic", {"type": "error", "message": "asleep"}),
    ("letta", {"message_type": "error_message", "message": "asleep"}),
    ("letta", {"error": {"message": "asleep"}}),
    ("openai_assistants", {"event": "error", "data": {"message": "asleep"}}),
    ("vercel_ui", {"type": "error", "errorText": "asleep"}),
    ("ag_ui", {"type": "RUN_ERROR", "message": "asleep"}),
]

_RESPONSE = {"id": "r", "object": "response", "status": "in_progress", "output": []}
_CHOICE = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "content": []}
BEGIN: dict[str, dict[str, Any]] = {
    "openai_responses": {"type": "response.created", "response": _RESPONSE},
    "openai_chat": {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [_CHOICE]},
    "anthropic": {"type": "message_start", "message": _MESSAGE},
    "letta": {"message_type": "assistant_message", "id": "1", "content": "a"},
    "openai_assistants": {"event": "thread.run.created", "data": {"id": "r", "object": "thread.run"}},
    "vercel_ui": {"type": "start"},
    "ag_ui": {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
}


@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "items"])
@pytest.mark.parametrize(("protocol", "item"), EVENTS)
def test_an_error_in_mid_stream_says_it_too(protocol: str, item: dict[str, Any], as_bytes: bool) -> None:
    items: list[Any] = [BEGIN[protocol], item]
    if as_bytes:
        items = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in items]
    with pytest.raises(sk.RunFailedError, match="asleep"):
        sk.stream(iter(items), protocol=protocol).until_done()


# What a server writes into a body of Server-Sent Events that is no item of its protocol.
IN_A_BODY: dict[str, str] = {
    "an event `error` with text": "event: error\ndata: asleep\n\n",
    "an event `error` with a string": 'event: error\ndata: "asleep"\n\n',
    "an event `error` with a list": 'event: error\ndata: ["asleep"]\n\n',
    "an event `error` with an object": 'event: error\ndata: {"type": "overloaded_error", "message": "asleep"}\n\n',
    "an event `error` with a detail": 'event: error\ndata: {"detail": "asleep"}\n\n',
    "an object without a field": '{"error": {"message": "asleep"}}',
    "an object of several lines": '{\n  "error": {\n    "message": "asleep"\n  }\n}\n',
    "an object among events": '{"error": {"message": "asleep"}}\n\ndata: {}\n\n',
}
NOT_ERRORS = {
    "a comment in braces": ": hello\n{not json}\n\n",
    "a field that begins with a brace": "{x: y\n\n",
    "an object that is no error": '{"type": "ping"}\n\n',
    "an object whose error is null": '{"error": null}\n\n',
    "an empty object": "{}\n\n",
    "a chunk without choices": 'data: {"detail": null}\n\n',
    "another chunk without choices": 'data: {"detail": "ok"}\n\n',
    "an empty field `error`": "error:\n\n",
    "a field `error` that is null": "error: null\n\n",
}
SERVED = {name: item for name, item in BEGIN.items() if name not in ("vercel_ui", "ag_ui")}


@in_a_loop("size", [1, 7, 10_000])
@pytest.mark.parametrize("form", IN_A_BODY)
@pytest.mark.parametrize("protocol", SERVED)
def test_an_error_in_any_form_in_a_body_says_it_too(protocol: str, form: str, size: int) -> None:
    """However the body is cut."""
    data = SERVED[protocol]
    name = f"event: {data['event']}\n" if "event" in data else ""
    text = f"{name}data: {json.dumps(data.get('data', data))}\n\n{IN_A_BODY[form]}".encode()
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    with pytest.raises(sk.RunFailedError, match="asleep"):
        sk.stream(iter(pieces), protocol=protocol).until_done()


@pytest.mark.parametrize("block", NOT_ERRORS)
def test_a_block_that_is_no_error_changes_nothing(block: str) -> None:
    done = {**BEGIN["openai_chat"], "choices": [{**_CHOICE, "delta": {}, "finish_reason": "stop"}]}
    text = f"data: {json.dumps(BEGIN['openai_chat'])}\n\n{NOT_ERRORS[block]}data: {json.dumps(done)}\n\n"
    stream = sk.stream(iter([text.encode()]))
    assert (stream.get_final_text(), stream.status, stream.warnings) == ("a", "completed", ())


@pytest.mark.parametrize("as_bytes", [True, False], ids=["bytes", "items"])
@pytest.mark.parametrize("protocol", BEGIN)
def test_a_stream_that_is_cut_off_says_what_its_last_item_says(protocol: str, as_bytes: bool) -> None:
    """An item of no protocol may be the server's only word about why it ended."""
    items: list[Any] = [BEGIN[protocol], {"message": "asleep"}]
    if as_bytes:
        items = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in items]
    with pytest.raises(sk.IncompleteStreamError, match="its last item says: asleep"):
        sk.stream(iter(items), protocol=protocol).until_done()
    with pytest.raises(sk.IncompleteStreamError) as caught:
        sk.stream(iter([items[1], items[0]]), protocol=protocol).until_done()
    assert "asleep" not in str(caught.value)


def test_a_client_sees_it_where_errors_are_exposed() -> None:
    with answering('{"detail": "the model is asleep"}') as url:
        exposed = b"".join(sk.stream(_requests(url, is_async=False)["Chat"]).sse(expose_errors=True))
        masked = b"".join(sk.stream(_requests(url, is_async=False)["Chat"]).sse())
    assert b"the model is asleep" in exposed
    assert b"asleep" not in masked
