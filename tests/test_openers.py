"""What a source's opener returned lives as long as the source: an SDK's client closes its connections when it is collected, and
often nothing but the SDK's stream refers to it. And no longer: a stream that has ended keeps no client alive.

Each row of the table is a client class, an API and a way of opening, on each face that the client has. The client is held by
nobody, and the garbage collector runs in the hook of every delta, before the server sends the next piece.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import re
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import httpx
import httpx2
import openai
import pytest

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.testing import ModelServer, Reply

from .agent.parts import PROVIDERS
from .faces import FACES, Face, Shaped, async_faces, body, calls, every_face, every_pair
from .gated_server import GatedServer, gated_server
from .test_other_clients import BEDROCK, SSE, bedrock_body
from .test_wrapped_streams import APIS as WRAPPED
from .test_wrapped_streams import opened, resource_of

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")

RECORDINGS = Path(__file__).parent / "recordings"
TEXT = "It rains in “Oslo”,\ndata: 7 °C \U0001f327."


@pytest.fixture(autouse=True)
def _few_objects() -> Iterator[None]:
    """A collection looks at what the test makes, and not at each module that was imported."""
    gc.freeze()
    yield
    gc.unfreeze()


# -- the bodies, in pieces that end with a delta


class Api(NamedTuple):
    """An API of a client.

    Attributes:
        resource: its methods, of a client.
        request: the arguments of a request.
        events: the events of an answer, as bytes.
        delta: what is in the events that a delta comes of.
    """

    resource: Callable[[Any], Any]
    request: Mapping[str, Any]
    events: list[bytes]
    delta: bytes

    @property
    def pieces(self) -> list[bytes]:
        """The events up to each delta, and those after the last."""
        pieces = [b""]
        for event in self.events:
            pieces[-1] += event
            if self.delta in event:
                pieces.append(b"")
        return pieces


def _events_of(recording: str) -> list[bytes]:
    return re.findall(rb".*?\n\n", (RECORDINGS / recording).read_bytes(), re.DOTALL)


def _completions() -> list[bytes]:
    texts = ["It rains in “Oslo”,\n", "data: 7 °C \U0001f327."]
    chunk = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    items = [{**chunk, "choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in texts]
    items.append({**chunk, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    return [*(f"data: {json.dumps(item)}\n\n".encode() for item in items), b"data: [DONE]\n\n"]


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
APIS = {
    "responses": Api(
        lambda client: client.responses,
        {"model": "m", "input": "?"},
        _events_of("openai-responses/text.sse"),
        b"output_text.delta",
    ),
    "chat": Api(
        lambda client: client.chat.completions, ASKED, _events_of("openai-chat/text.sse"), b'"delta":{"content":"'
    ),
    "completions": Api(
        lambda client: client.completions, {"model": "m", "prompt": "?"}, _completions(), b'"finish_reason": null'
    ),
    "assistants": Api(
        lambda client: client.beta.threads.runs,
        {"thread_id": "thread_1", "assistant_id": "asst_1"},
        _events_of("openai-assistants/text.sse"),
        b"thread.message.delta",
    ),
    "messages": Api(
        lambda client: client.messages,
        {**ASKED, "max_tokens": 9},
        _events_of("anthropic-messages/text.sse"),
        b"event: content_block_delta",
    ),
}
APIS["beta messages"] = APIS["messages"]._replace(resource=lambda client: client.beta.messages)


def _bedrock_pieces(api: Api) -> list[bytes]:
    def frames(piece: bytes) -> bytes:
        return bedrock_body([json.loads(data) for data in re.findall(rb"^data: (.*)$", piece, re.MULTILINE)])

    return [frames(piece) for piece in api.pieces]


# -- the clients


class Maker(NamedTuple):
    """A class of clients, sync and async, and the arguments with which it speaks to a server of ours."""

    kinds: tuple[Callable[..., Any], Callable[..., Any]]
    options: Callable[[str], Mapping[str, Any]]
    apis: tuple[str, ...]


_KEY = {"api_key": "k", "max_retries": 0}
_OF_OPENAI = ("responses", "chat", "completions", "assistants")
_OF_ANTHROPIC = ("messages", "beta messages")
CLIENTS = {
    "OpenAI": Maker((openai.OpenAI, openai.AsyncOpenAI), lambda url: {"base_url": url, **_KEY}, _OF_OPENAI),
    "AzureOpenAI": Maker(
        (openai.AzureOpenAI, openai.AsyncAzureOpenAI),
        lambda url: {"azure_endpoint": url, "api_version": "2025-01-01", **_KEY},
        _OF_OPENAI,
    ),
    "Anthropic": Maker(
        (anthropic.Anthropic, anthropic.AsyncAnthropic), lambda url: {"base_url": url, **_KEY}, _OF_ANTHROPIC
    ),
    "AnthropicBedrock": Maker(
        (anthropic.AnthropicBedrock, anthropic.AsyncAnthropicBedrock),
        lambda url: {"base_url": url, "aws_region": "us-east-1", **_KEY},
        _OF_ANTHROPIC,
    ),
    "AnthropicVertex": Maker(
        (anthropic.AnthropicVertex, anthropic.AsyncAnthropicVertex),
        lambda url: {"base_url": url, "region": "eu", "project_id": "p", "access_token": "t", "max_retries": 0},
        _OF_ANTHROPIC,
    ),
}


class Opener:
    """Opens requests with clients to which it has only weak references.

    Args:
        is_async: whether the clients are async.
    """

    def __init__(self, maker: Maker, api: Api, url: str, *, is_async: bool) -> None:
        self._make = maker.kinds[is_async]
        self._options = maker.options(url)
        self._api = api
        self.is_async = is_async
        self.clients: list[weakref.ref[Any]] = []

    def resource(self) -> Any:
        """The API of a new client."""
        client = self._make(**self._options)
        self.clients.append(weakref.ref(client))
        return self._api.resource(client)

    def create(self, resource: Any | None = None) -> Any:
        """Send the request, or make a coroutine that does."""
        return (resource or self.resource()).create(**self._api.request, stream=True)

    def helper(self) -> Any:
        """The SDK's context manager with its own events."""
        return self.resource().stream(**self._api.request)

    @property
    def are_gone(self) -> bool:
        """Whether no client is left."""
        gc.collect()
        return not any(client() for client in self.clients)


# -- the ways of opening


async def _opened(opener: Opener) -> Any:
    sent = opener.create()
    return await sent if opener.is_async else sent


def _of_context_manager(opener: Opener) -> Any:
    """A function of the application's own that gives the stream to a `with` block."""

    @contextlib.contextmanager
    def opened() -> Iterator[Any]:
        yield opener.create()

    @contextlib.asynccontextmanager
    async def opened_async() -> AsyncIterator[Any]:
        yield await opener.create()

    return (opened_async if opener.is_async else opened)()


class _Application:
    """Opens streams when it is called, and closes its client when nobody needs it any more."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._client_closes = opener.resource()

    def __call__(self) -> Any:
        return self._opener.create(self._client_closes)


# Each gets the opener, and returns the source, or an awaitable of it.
WAYS: dict[str, Callable[[Opener], Any]] = {
    "create": lambda opener: opener.create,
    "an open stream": _opened,
    "helper": lambda opener: opener.helper(),
    "helper, lazily": lambda opener: opener.helper,
    "streaming response": lambda opener: opener.create(opener.resource().with_streaming_response),
    "raw response": lambda opener: lambda: opener.create(opener.resource().with_raw_response),
    "own context manager": _of_context_manager,
    "own context manager, nested": lambda opener: lambda: lambda: _of_context_manager(opener),
    "own object": lambda opener: lambda: _Application(opener),
}


def _rows() -> Iterator[Any]:
    """Each client with each of its APIs in each way, on one of the faces in turn."""
    faces = itertools.cycle(FACES.values())
    for client, maker in CLIENTS.items():
        for api in maker.apis:
            for way in WAYS:
                if not (way.startswith("helper") and api == "completions"):  # which has none
                    face = next(faces)
                    yield pytest.param(face, client, api, way, id=f"{face.name}-{client}-{api}-{way}")


async def _source(way: Callable[[Opener], Any], opener: Opener) -> Any:
    return await way(opener) if way is _opened else way(opener)


def _collecting(server: GatedServer) -> Callable[..., None]:
    """A hook that collects garbage, and lets the server go on."""

    def hook(*_: Any) -> None:
        gc.collect()
        server.let_through()

    return hook


@contextlib.contextmanager
def _serving(client: str, api: Api) -> Iterator[GatedServer]:
    is_bedrock = client == "AnthropicBedrock"
    pieces = _bedrock_pieces(api) if is_bedrock else api.pieces
    with gated_server(pieces, BEDROCK if is_bedrock else SSE) as server:
        yield server


@pytest.mark.parametrize(("face", "client", "api", "way"), [*_rows()])
@body
async def test_a_client_that_nobody_holds_lives_as_long_as_its_stream(
    face: Face, client: str, api: str, way: str
) -> None:
    """And the stream that has ended, which is still there, does not keep it alive."""
    await _read(face, client, api, WAYS[way])


@async_faces
@pytest.mark.parametrize(("client", "api"), [(client, api) for client, maker in CLIENTS.items() for api in maker.apis])
@body
async def test_a_client_that_only_a_coroutine_held_lives_as_long_as_its_stream(
    face: Face, client: str, api: str
) -> None:
    """The coroutine is over once it was awaited."""
    await _read(face, client, api, lambda opener: opener.create())


async def _read(face: Face, client: str, api: str, way: Callable[[Opener], Any]) -> None:
    """Read a stream to its end while garbage is collected; afterwards its client is gone."""
    with _serving(client, APIS[api]) as server:
        opener = Opener(CLIENTS[client], APIS[api], server.url, is_async=face.is_async)
        told = face.told(on_text_delta=_collecting(server))
        stream = face.stream(await _source(way, opener), told)
        assert await stream.get_final_text() == TEXT
        assert len(opener.clients) == 1
    assert opener.are_gone


# -- other holders


@async_faces
@pytest.mark.parametrize("way", ["create", "an open stream", "helper", "raw response", "own context manager"])
@pytest.mark.parametrize(("client", "api"), [("OpenAI", "chat"), ("Anthropic", "messages")])
@body
async def test_a_sync_client_that_nobody_holds_lives_as_long_as_an_async_stream(
    face: Face, client: str, api: str, way: str
) -> None:
    """A worker thread reads it."""
    with _serving(client, APIS[api]) as server:
        opener = Opener(CLIENTS[client], APIS[api], server.url, is_async=False)
        told = face.told(on_text_delta=_collecting(server))
        stream = face.stream(await _source(WAYS[way], opener), told)
        assert await stream.get_final_text() == TEXT
    assert opener.are_gone


@every_face
@pytest.mark.parametrize("library", [httpx, httpx2])
@pytest.mark.parametrize("sends", [True, False], ids=["send", "stream"])
@body
async def test_the_client_of_an_http_response_lives_as_long_as_its_stream(
    face: Face, library: Any, sends: bool
) -> None:
    with _serving("", APIS["chat"]) as server:
        told = face.told(on_text_delta=_collecting(server))

        def opened() -> Any:
            client = library.AsyncClient() if face.is_async else library.Client()
            if not sends:
                return client.stream("POST", server.url, json={})
            return client.send(client.build_request("POST", server.url, json={}), stream=True)

        assert await face.stream(opened, told).get_final_text() == TEXT


@every_face
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "lazy"])
@body
async def test_the_client_of_a_next_source_lives_as_long_as_it(face: Face, is_open: bool) -> None:
    """Which `then=` gave: a request that was sent, or a function that sends it."""
    with _serving("", APIS["chat"]) as server:
        opener = Opener(CLIENTS["OpenAI"], APIS["chat"], server.url, is_async=face.is_async)
        told = face.told(on_text_delta=_collecting(server))
        told.does["on_tool_call_done"] = lambda told, call: call.respond("7 °C")

        def then(_: Any) -> Any:
            if opener.clients:
                return None
            return opener.create() if is_open else opener.create

        stream = face.stream(calls("weather"), told, then=then)
        assert await stream.get_final_text() == TEXT
    assert opener.are_gone


@every_face
@pytest.mark.parametrize("provider", PROVIDERS)
@body
async def test_an_agent_that_nobody_holds_lives_as_long_as_its_stream(face: Face, provider: str) -> None:
    """And so does its client."""
    api = APIS[{"openai_responses": "responses", "openai_chat": "chat", "anthropic": "messages"}[provider]]
    maker = CLIENTS["Anthropic" if provider == "anthropic" else "OpenAI"]
    with _serving("", api) as server:

        def new_stream(*handlers: sk.Handler) -> Any:
            client = maker.kinds[face.is_async](**maker.options(server.url))
            kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
            stream = kind(client, model="m", protocol=provider).stream("?", *handlers)
            return stream if face.is_async else Shaped(stream)

        stream = new_stream(face.told(on_text_delta=_collecting(server)))
        assert await stream.get_final_text() == TEXT


@every_face
@body
async def test_a_client_that_nobody_holds_lives_as_long_as_its_assistants_handler(face: Face) -> None:
    """Where the client opened the stream for the handler, and the handler reads it."""
    api = APIS["assistants"]
    with _serving("", api) as server:
        opener = Opener(CLIENTS["OpenAI"], api, server.url, is_async=face.is_async)
        collect = _collecting(server)

        class Handler(AssistantEventHandler):
            def on_text_delta(self, delta: Any, snapshot: Any) -> None:
                collect()

        class AsyncHandler(AsyncAssistantEventHandler):
            async def on_text_delta(self, delta: Any, snapshot: Any) -> None:
                collect()

        handler: Any
        if face.is_async:
            handler = AsyncHandler()
            await opener.resource().stream(**api.request, event_handler=handler).__aenter__()
            (message,) = await handler.get_final_messages()
        else:
            handler = Handler()
            opener.resource().stream(**api.request, event_handler=handler).__enter__()
            (message,) = handler.get_final_messages()
        assert message.content[0].text.value == TEXT
    assert opener.are_gone


# -- and no longer


async def _closed(stream: Any) -> None:
    async with stream:
        async for _ in stream.text_deltas:
            break


async def _cancelled(stream: Any) -> None:
    async for _ in stream.text_deltas:
        stream.cancel()


async def _failed(stream: Any) -> None:
    with pytest.raises(sk.StreamkitError):
        await stream.until_done()


@every_pair
@every_face
@pytest.mark.parametrize("way", ["create", "helper", "raw response"])
@pytest.mark.parametrize(("client", "api"), [("OpenAI", "responses"), ("Anthropic", "messages")])
@pytest.mark.parametrize("end", [_closed, _cancelled, _failed])
@body
async def test_a_stream_that_was_ended_keeps_no_client_alive(
    face: Face, end: Callable[[Any], Any], client: str, api: str, way: str
) -> None:
    """However it was. The stream itself stays readable."""
    first, second, *_ = APIS[api].pieces
    with gated_server([first, second], SSE) as server:  # and then the connection ends
        server.let_through()
        opener = Opener(CLIENTS[client], APIS[api], server.url, is_async=face.is_async)
        stream = face.stream(await _source(WAYS[way], opener))
        await end(stream)
        assert stream.messages[0].content.startswith("It rains")
    assert opener.are_gone


@every_face
@pytest.mark.parametrize("helper", [False, True], ids=["create", "stream"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@body
async def test_a_stream_that_was_read_leaves_nothing_to_the_garbage_collector(
    face: Face, api: str, helper: bool
) -> None:
    """An SDK's stream and its iterator refer to each other, and to the request and the response. In the SDK's own loop they go
    when the iterator ends; here its bytes are read."""
    gone: list[str] = []

    async def read(resource: Any) -> None:
        request = WRAPPED[api].request
        source = resource.stream(**request) if helper else await opened(face, api, resource)
        weakref.finalize(source, gone.append, "stream")
        assert await face.stream(source).get_final_text() == "hello"

    with ModelServer([Reply("hello")] * 2) as server:
        async with resource_of(face, api, server) as resource:
            await read(resource)  # what is done only once
            gc.collect()
            gc.disable()
            try:
                await read(resource)
                assert gone == ["stream", "stream"]
                assert not [
                    thing for thing in gc.get_objects() if isinstance(thing, (openai.Stream, openai.AsyncStream))
                ]
            finally:
                gc.enable()
