"""Responses over a WebSocket that stays open, with the real client: `client.responses.connect()`."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ToolCall

from .faces import FACES, Face, body

websockets = pytest.importorskip("websockets.sync.server")

# openai's client opens connections in a way that newer versions of websockets warn of.
pytestmark = pytest.mark.filterwarnings(r"ignore:connect\(\) must be used as a context manager:DeprecationWarning")

Events = Iterator[dict[str, Any]]


class WebSocketServer:
    """Speaks Responses over WebSockets, as `answer` says: it is called with each event of a client, and gives events."""

    def __init__(self, answer: Callable[[dict[str, Any]], Events]) -> None:
        self.answer = answer
        self.received: list[dict[str, Any]] = []
        self.connections = 0
        self.server = websockets.serve(self._serve, "127.0.0.1", 0)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def __enter__(self) -> WebSocketServer:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.thread.join()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.server.socket.getsockname()[1]}"

    def _serve(self, connection: Any) -> None:
        self.connections += 1
        for message in connection:
            self.received.append(json.loads(message))
            for event in self.answer(self.received[-1]):
                if event.get("type") == "hang up":
                    return
                connection.send(json.dumps(event))


def events_of(model: ModelServer, request: dict[str, Any], lane: str | None = None) -> Events:
    """The events with which a scripted model answers, each of a lane."""
    body = {key: value for key, value in request.items() if key not in ("type", "stream_id")}
    text = httpx.post(f"{model.url}/responses", json={"model": "m", "input": "any", **body, "stream": True}).text
    for line in text.splitlines():
        if line.startswith("data: "):
            yield {**json.loads(line[6:]), **({"stream_id": lane} if lane else {})}


@asynccontextmanager
async def connected(face: Face, server: WebSocketServer) -> AsyncIterator[Any]:
    """A connection of the face's own client, and what sends a request on it."""
    if face.is_async:
        async with (
            openai.AsyncOpenAI(api_key="any", base_url=server.url, websocket_base_url=server.url) as client,
            client.responses.connect() as connection,
        ):
            yield connection, connection.response.create
        return
    with (
        openai.OpenAI(api_key="any", base_url=server.url, websocket_base_url=server.url) as client,
        client.responses.connect() as connection,
    ):

        async def create(**options: Any) -> None:
            connection.response.create(**options)

        yield connection, create


both_faces = pytest.mark.parametrize("face", [FACES["sync"], FACES["asyncio"]], ids=["sync", "asyncio"])


def weather(city: str) -> str:
    return f"{city}: sunny"


@both_faces
@body
async def test_each_stream_reads_one_response_and_leaves_the_connection_open(face: Face) -> None:
    with (
        ModelServer([Reply("One, two."), Reply("Three.")]) as model,
        WebSocketServer(lambda request: events_of(model, request)) as server,
    ):
        async with connected(face, server) as (connection, create):
            for expected in ("One, two.", "Three."):
                await create(model="m", input="Go on.")
                stream = face.stream(connection)
                assert await stream.get_final_text() == expected
                assert (stream.status, stream.current_run.model) == ("completed", "m")
                assert stream.usage is not None
        assert server.connections == 1


@both_faces
@body
async def test_calls_are_answered_on_the_same_connection(face: Face) -> None:
    """`then=` sends the next request."""
    script = [Reply("Look. ", ToolCall("weather", {"city": "Oslo"})), Reply("It is sunny.")]

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            call.respond(weather(**call.arguments))

    with ModelServer(script) as model, WebSocketServer(lambda request: events_of(model, request)) as server:
        async with connected(face, server) as (connection, create):

            async def go_on(stream: Any) -> Any:
                await create(model="m", input=sk.protocols.to_input(stream.tool_outputs, "openai_responses"))
                return connection

            def go_on_now(stream: Any) -> Any:
                connection.response.create(
                    model="m", input=sk.protocols.to_input(stream.tool_outputs, "openai_responses")
                )
                return connection

            await create(model="m", input="Weather?")
            stream = face.stream(connection, Answering(), then=go_on if face.is_async else go_on_now)
            assert await stream.get_final_text() == "It is sunny."
        assert server.received[1]["input"][0]["output"] == "Oslo: sunny"


def beside(one: Events, other: Events) -> Events:
    for pair in zip([*one], [*other], strict=True):
        yield from pair


async def at_once(face: Face, streams: Sequence[Any]) -> list[str]:
    """The texts of streams that are read beside each other."""
    texts: list[str] = []

    async def read(stream: Any) -> None:
        texts.append(await stream.get_final_text())

    if face.is_async:
        async with anyio.create_task_group() as tasks:
            for stream in streams:
                tasks.start_soon(read, stream)
    else:
        one, other = streams
        async with face.beside(lambda: texts.append(one.manager.get_final_text())):
            await read(other)
    return texts


LANES = [Reply("Alpha and on."), Reply("Gamma and on.")]


def interleaved(model: ModelServer) -> Callable[[dict[str, Any]], Events]:
    """Answers two requests of two lanes once both are there, with their events in turn."""
    requests: list[dict[str, Any]] = []

    def answer(request: dict[str, Any]) -> Events:
        requests.append(request)
        if len(requests) == 2:
            yield from beside(*(events_of(model, one, one["stream_id"]) for one in requests))

    return answer


@both_faces
@pytest.mark.parametrize("how", ["one after the other", "at once"])
@body
async def test_lanes_are_kept_apart(face: Face, how: str) -> None:
    with ModelServer(LANES) as model, WebSocketServer(interleaved(model)) as server:
        async with connected(face, server) as (connection, create):
            await create(model="m", input="1", stream_id="a")
            await create(model="m", input="2", stream_id="b")
            streams = [face.stream(connection), face.stream(connection)]
            if how == "at once":
                texts = await at_once(face, streams)
            else:
                texts = [await stream.get_final_text() for stream in streams]
    assert sorted(texts) == ["Alpha and on.", "Gamma and on."]


@both_faces
@body
async def test_the_rest_of_a_response_that_was_left_is_skipped(face: Face) -> None:
    with (
        ModelServer([Reply("A long story. " * 20), Reply("The next.")]) as model,
        WebSocketServer(lambda request: events_of(model, request)) as server,
    ):
        async with connected(face, server) as (connection, create):
            await create(model="m", input="Go.")
            async with face.stream(connection) as stream:
                async for _ in stream.text_deltas:
                    break
            assert stream.status == "cancelled"
            await create(model="m", input="Go.")
            assert await face.stream(connection).get_final_text() == "The next."


@both_faces
@body
async def test_a_wait_for_a_silent_server_ends_with_cancel_and_with_a_timeout(face: Face) -> None:
    """The connection can be used afterwards."""
    goes_on = threading.Event()

    def answer(request: dict[str, Any]) -> Events:
        if request["input"] == "silent":
            goes_on.wait(20)
        yield from events_of(model, request)

    with ModelServer(lambda request: Reply(str(request.body["input"]))) as model, WebSocketServer(answer) as server:
        async with connected(face, server) as (connection, create):
            await create(model="m", input="silent")
            with pytest.raises(sk.SourceTimeoutError):
                await face.stream(connection, timeouts=sk.Timeouts(first=0.2)).until_done()
            stream = face.stream(connection)
            timer = threading.Timer(0.2, stream.cancel)
            timer.start()
            await stream.until_done()
            timer.join()
            assert stream.status == "cancelled"
            goes_on.set()
            assert await face.stream(connection).get_final_text() == "silent"
            await create(model="m", input="again")
            assert await face.stream(connection).get_final_text() == "again"


@both_faces
@body
async def test_an_error_ends_the_response_and_not_the_connection(face: Face) -> None:
    error = {"type": "error", "status": 400, "error": {"code": "previous_response_not_found", "message": "No such id."}}

    def answer(request: dict[str, Any]) -> Events:
        if request["input"] == "wrong":
            yield error
        else:
            yield from events_of(model, request)

    with ModelServer(Reply("Fine.")) as model, WebSocketServer(answer) as server:
        async with connected(face, server) as (connection, create):
            await create(model="m", input="wrong")
            with pytest.raises(sk.RunFailedError, match="No such id") as raised:
                await face.stream(connection).until_done()
            assert raised.value.code == "previous_response_not_found"
            await create(model="m", input="right")
            assert await face.stream(connection).get_final_text() == "Fine."


@both_faces
@body
async def test_a_connection_that_is_closed_in_mid_answer_is_an_error(face: Face) -> None:
    """What came before is there."""

    def answer(request: dict[str, Any]) -> Events:
        for event in events_of(model, request):
            if event["type"] == "response.output_text.done":
                yield {"type": "hang up"}
            yield event

    with ModelServer(Reply("Half of it")) as model, WebSocketServer(answer) as server:
        async with connected(face, server) as (connection, create):
            await create(model="m", input="Go.")
            stream = face.stream(connection)
            with pytest.raises(sk.IncompleteStreamError) as raised:
                await stream.until_done()
            assert [message.content for message in raised.value.messages] == ["Half of it"]
