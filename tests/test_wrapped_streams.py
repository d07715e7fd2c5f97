"""What an application or a tracer put around an SDK's stream is read, and never passed by.

The filters here take a secret out of each item. It must reach no handler, whatever form the filter has.
"""

from __future__ import annotations

import importlib
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anthropic
import anyio
import openai
import pydantic
import pytest

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from .faces import Face, Shaped, async_faces, body, both_shells, chat, every_face, every_pair
from .filters import FORMS, REDACTED, SECRET, EveryMethod, EveryMethodOfFunction, redact
from .strict_servers import StrictServer, chat_chunks

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API is deprecated:DeprecationWarning")

# On trio openai's client leaves its generators to the garbage collector, where it has read `[DONE]`.
client_leaves_generators = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

SAID = Text(pieces=["My number is ", SECRET, ", and you", "rs?"])
EXPECTED = f"My number is {REDACTED}, and yours?"


class Api(NamedTuple):
    """An API of a client: the client's package, its methods, and the arguments of a request."""

    package: Any
    resource: Callable[[Any], Any]
    request: Mapping[str, Any]


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "?"}]}
APIS = {
    "chat": Api(openai, lambda client: client.chat.completions, ASKED),
    "responses": Api(openai, lambda client: client.responses, {"model": "m", "input": "?"}),
    "messages": Api(anthropic, lambda client: client.messages, {**ASKED, "max_tokens": 99}),
    "beta messages": Api(anthropic, lambda client: client.beta.messages, {**ASKED, "max_tokens": 99}),
    "assistants": Api(openai, lambda client: client.beta.threads.runs, {"thread_id": "thread_1", "assistant_id": "a"}),
}
WITH_AGENT = {"chat": "openai_chat", "responses": "openai_responses", "messages": "anthropic"}

FORMS_WITH_CLOSE = [form for form in FORMS if form != "a generator"]
every_form = pytest.mark.parametrize("form", FORMS)
every_api = pytest.mark.parametrize("api", ["chat", "responses", "messages", "assistants"])


@asynccontextmanager
async def resource_of(face: Face, api: str, server: ModelServer) -> AsyncIterator[Any]:
    """The methods of an API, of the real client of this face."""
    package = APIS[api].package
    options: Any = {"base_url": server.url if package is openai else server.root_url, "api_key": "k", "max_retries": 0}
    if face.is_async:
        kind = openai.AsyncOpenAI if package is openai else anthropic.AsyncAnthropic
        async with kind(**options) as client:
            yield APIS[api].resource(client)
    else:
        sync_kind = openai.OpenAI if package is openai else anthropic.Anthropic
        with sync_kind(**options) as client:
            yield APIS[api].resource(client)


async def opened(face: Face, api: str, resource: Any) -> Any:
    """A stream of the real client, as it is."""
    stream = resource.create(**APIS[api].request, stream=True)
    return await stream if face.is_async else stream


def check_redacted(told: Any) -> None:
    """No handler got the secret: not in a message, and not in what an event was decoded from."""
    for _, arguments in told.told:
        for argument in arguments:
            for text in (argument, getattr(argument, "raw", None), getattr(argument, "content", None)):
                assert SECRET not in str(text)


@every_pair
@client_leaves_generators
@both_shells
@every_api
@every_form
@body
async def test_what_a_filter_redacts_reaches_no_handler(face: Face, form: str, api: str) -> None:
    """And the rest of the text is complete."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:
            told = face.told()
            source = FORMS[form](await opened(face, api, resource), redact, is_async=face.is_async)
            stream = face.stream(source, told)
            assert await stream.get_final_text() == EXPECTED
            told.check_brackets()
            check_redacted(told)
            assert stream.usage is not None or api == "chat"
            assert stream.status == "completed"
            assert stream.warnings == ()


@every_pair
@client_leaves_generators
@both_shells
@pytest.mark.parametrize("api", WITH_AGENT)
@every_form
@body
async def test_what_a_filter_redacts_reaches_no_handler_of_an_agent(face: Face, form: str, api: str) -> None:
    """Where the client's own method returns what is filtered. Tools are called as ever."""
    script = [Reply(SAID, ToolCall("dial", {"number": 1})), Reply(SAID)]
    dialled: list[int] = []

    def dial(number: int) -> str:
        """Dial a number.

        Args:
            number: the number.
        """
        dialled.append(number)
        return "busy"

    with ModelServer(script) as server:
        async with resource_of(face, api, server) as resource:
            create = resource.create

            def filtered(*arguments: Any, **options: Any) -> Any:
                return FORMS[form](create(*arguments, **options), redact, is_async=False)

            async def filtered_async(*arguments: Any, **options: Any) -> Any:
                return FORMS[form](await create(*arguments, **options), redact, is_async=True)

            resource.create = filtered_async if face.is_async else filtered
            kind: Any = sk.AsyncAgent if face.is_async else sk.Agent
            told = face.told()
            agent = kind(resource._client, model="m", tools=[dial], protocol=WITH_AGENT[api])
            stream = agent.stream("?", told)
            assert await (stream if face.is_async else Shaped(stream)).get_final_text() == EXPECTED
            check_redacted(told)
            assert dialled == [1]
            assert [message.content for message in agent.messages if message.type == "message"][1:] == [EXPECTED] * 2


@client_leaves_generators
@both_shells
@every_api
@body
async def test_a_class_whose_methods_were_patched_is_iterated(
    face: Face, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a tracer patches it for all streams."""
    package = APIS[api].package
    kind: Any = package.AsyncStream if face.is_async else package.Stream
    name = "__aiter__" if face.is_async else "__iter__"
    iterate = getattr(kind, name)

    async def patched_async(self: Any) -> AsyncIterator[Any]:
        async for item in iterate(self):
            yield redact(item)

    def patched(self: Any) -> Any:
        for item in iterate(self):
            yield redact(item)

    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:
            stream = await opened(face, api, resource)
            monkeypatch.setattr(kind, name, patched_async if face.is_async else patched)
            told = face.told()
            assert await face.stream(stream, told).get_final_text() == EXPECTED
            check_redacted(told)


def _redacting(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose text argument, or result, has no secret."""

    def redacted(*arguments: Any, **options: Any) -> Any:
        arguments = tuple(one.replace(SECRET, REDACTED) if isinstance(one, str) else one for one in arguments)
        result = method(*arguments, **options)
        return json.loads(json.dumps(result).replace(SECRET, REDACTED)) if isinstance(result, dict) else result

    return redacted


def _makes_redacted(method: Callable[..., Any]) -> Callable[..., Any]:
    """A client's method that makes an object of an event's data, without the secret."""

    def make(*arguments: Any, data: Any, **options: Any) -> Any:
        return method(*arguments, data=json.loads(json.dumps(data).replace(SECRET, REDACTED)), **options)

    return make


def _module(stream: Any, name: str = "_streaming") -> Any:
    return importlib.import_module(f"{type(stream).__module__.partition('.')[0]}.{name}")


def _base_client(stream: Any) -> Any:
    return _module(stream, "_base_client").BaseClient


class _Descriptor:
    """What a class has in the place of a method, as wrapt makes it."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, value: Any, kind: Any = None) -> Any:
        return _redacting(self._method.__get__(value, kind))


def _mixed_in(kind: Any) -> Any:
    """A subclass that only another class changes."""

    class Redacting:
        def json(self) -> Any:
            return _redacting(super().json)()  # type: ignore[misc]

    return type(kind.__name__, (Redacting, kind), {"__module__": kind.__module__})


# What the SDK's own loop goes through, each with the object and the method that an application may replace.
SEAMS: dict[str, tuple[Callable[[Any], Any], str, Callable[..., Any]]] = {
    "one decoder": (lambda stream: stream._decoder, "decode", _redacting),
    "the decoders' class": (lambda stream: _module(stream).SSEDecoder, "decode", _redacting),
    "the events' class": (lambda stream: _module(stream).ServerSentEvent, "json", _redacting),
    "a descriptor": (lambda stream: _module(stream).SSEDecoder, "decode", _Descriptor),
    "another class of events": (lambda stream: _module(stream), "ServerSentEvent", _mixed_in),
    "a function in place of that class": (
        _module,
        "ServerSentEvent",
        lambda kind: lambda **data: _mixed_in(kind)(**data),
    ),
    "one client": (lambda stream: stream._client, "_process_response_data", _makes_redacted),
    "a class of clients": (lambda stream: type(stream._client), "_process_response_data", _makes_redacted),
    "the base of all clients": (_base_client, "_process_response_data", _makes_redacted),
}


@every_pair
@client_leaves_generators
@every_face
@every_api
@pytest.mark.parametrize("seam", SEAMS)
@body
async def test_a_stream_whose_loop_was_changed_is_iterated(face: Face, seam: str, api: str) -> None:
    """Its decoder, or its client, or their classes."""
    owner_of, name, changed = SEAMS[seam]
    with ModelServer(Reply(SAID)) as server, pytest.MonkeyPatch.context() as patch:
        async with resource_of(face, api, server) as resource:
            stream = await opened(face, api, resource)
            owner = owner_of(stream)
            patch.setattr(owner, name, changed(getattr(owner, name)))
            told = face.told()
            assert await face.stream(stream, told).get_final_text() == EXPECTED
            check_redacted(told)


class Redacted(openai.types.chat.ChatCompletionChunk):
    """A chunk as an application makes it."""

    @classmethod
    def construct(cls, *arguments: Any, **fields: Any) -> Any:
        return super().construct(*arguments, **json.loads(json.dumps(fields).replace(SECRET, REDACTED)))


@client_leaves_generators
@both_shells
@body
async def test_objects_of_the_applications_own_class_are_read(face: Face) -> None:
    """As `stream_cls=` asks the client for them."""
    asked: dict[str, Any] = {"cast_to": Redacted, "body": {**ASKED, "stream": True}, "stream": True}
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, "chat", server) as resource:
            if face.is_async:
                stream = await resource._client.post(
                    "/chat/completions", stream_cls=openai.AsyncStream[Redacted], **asked
                )
            else:
                stream = resource._client.post("/chat/completions", stream_cls=openai.Stream[Redacted], **asked)
            told = face.told()
            assert await face.stream(stream, told).get_final_text() == EXPECTED
            check_redacted(told)


@client_leaves_generators
@both_shells
@body
async def test_a_client_that_validates_answers_does_so(face: Face) -> None:
    """What is not as its classes say is refused, where streamkit itself would read it."""
    kind: Any = openai.AsyncOpenAI if face.is_async else openai.OpenAI
    without_times = [{key: chunk[key] for key in chunk if key != "created"} for chunk in chat_chunks({"content": "Hi"})]
    with StrictServer([without_times] * 2, lambda body: None) as server:
        for validates in (True, False):
            client = kind(base_url=server.url, api_key="k", max_retries=0, _strict_response_validation=validates)
            stream = face.stream(lambda client=client: client.chat.completions.create(**ASKED, stream=True))
            if validates:
                with pytest.raises(sk.SourceError, match="APIResponseValidationError"):
                    await stream.until_done()
            else:
                assert await stream.get_final_text() == "Hi"
            await client.close() if face.is_async else client.close()


# -- the SDKs' helpers


with_helper = pytest.mark.parametrize("api", ["chat", "responses", "messages", "beta messages"])
# The forms that do without a constructor.
FORMS_OF_HELPERS = [form for form in FORMS if form not in ("a subclass with __stream__", "a replaced decoder")]


@asynccontextmanager
async def entered(face: Face, manager: Any) -> AsyncIterator[Any]:
    """What a context manager of this face gives."""
    if face.is_async:
        async with manager as value:
            yield value
    else:
        with manager as value:
            yield value


def said(stream: Any) -> list[tuple[str, str]]:
    return [(message.type, message.content) for message in stream.messages]


@client_leaves_generators
@every_pair
@both_shells
@with_helper
@pytest.mark.parametrize("form", FORMS_OF_HELPERS)
@body
async def test_the_filtered_events_of_a_helper_are_read(face: Face, form: str, api: str) -> None:
    """A helper's events repeat each other: each text comes once."""
    with ModelServer(Reply(SAID, ToolCall("dial", {"number": 1}))) as server:
        async with (
            resource_of(face, api, server) as resource,
            entered(face, resource.stream(**APIS[api].request)) as helper,
        ):
            told = face.told()
            stream = face.stream(FORMS[form](helper, redact, is_async=face.is_async), told)
            await stream.until_done()
            assert said(stream) == [("message", EXPECTED), ("tool_call", '{"number": 1}')]
            assert stream.status == "requires_action"
            assert stream.warnings == ()
            check_redacted(told)


@client_leaves_generators
@both_shells
@with_helper
@body
async def test_a_proxy_of_a_context_manager_is_entered(face: Face, api: str) -> None:
    """And what it gives is read, not what that is a proxy of."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:
            told = face.told()
            stream = face.stream(EveryMethod(resource.stream(**APIS[api].request), redact), told)
            assert await stream.get_final_text() == EXPECTED
            check_redacted(told)


@client_leaves_generators
@both_shells
@with_helper
@body
async def test_a_helper_over_a_filtered_stream_is_iterated(face: Face, api: str) -> None:
    """As a tracer replaces the stream that the helper reads."""
    with ModelServer(Reply(SAID)) as server:
        async with (
            resource_of(face, api, server) as resource,
            entered(face, resource.stream(**APIS[api].request)) as helper,
        ):
            helper._raw_stream = EveryMethod(helper._raw_stream, redact)
            told = face.told()
            assert await face.stream(helper, told).get_final_text() == EXPECTED
            check_redacted(told)


class Person(pydantic.BaseModel):
    """What a model is to answer."""

    name: str


@client_leaves_generators
@both_shells
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@body
async def test_what_a_helper_parsed_goes_into_no_request(face: Face, api: str) -> None:
    """The messages are those of the raw stream, and so is the next request."""
    text = json.dumps({"name": "Ada"})
    request: Mapping[str, Any] = {
        "chat": {"response_format": Person},
        "responses": {"text_format": Person},
        "messages": {"output_format": Person},
    }[api]
    with ModelServer([Reply(text), Reply(text)]) as server:
        async with resource_of(face, api, server) as resource:
            streams = [
                face.stream(EveryMethod(resource.stream(**APIS[api].request, **request), lambda event: event)),
                face.stream(resource.stream(**APIS[api].request, **request)),
            ]
            inputs: list[Any] = []
            for stream in streams:
                assert await stream.get_final_text() == text
                inputs.append(sk.to_input(stream.messages, WITH_AGENT[api]))
            assert _without_ids(inputs[0]) == _without_ids(inputs[1])


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_ids(inner) for key, inner in value.items() if key != "id"}
    return [*map(_without_ids, value)] if isinstance(value, list) else value


# -- other openers


class Parsing(EveryMethod):
    """A proxy of a raw response, whose stream is filtered."""

    def parse(self) -> Any:
        return EveryMethod(self.__wrapped__.parse(), redact)


class AsyncParsing(EveryMethod):
    """A proxy of a raw response whose `parse` is awaited."""

    async def parse(self) -> Any:
        return EveryMethod(await self.__wrapped__.parse(), redact)


@client_leaves_generators
@both_shells
@every_api
@body
async def test_a_proxy_of_a_raw_response_is_parsed(face: Face, api: str) -> None:
    """As its caller would parse it."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:
            raw = resource.with_raw_response.create(**APIS[api].request, stream=True)
            raw = await raw if face.is_async else raw
            proxy = AsyncParsing if inspect.iscoroutinefunction(raw.parse) else Parsing
            told = face.told()
            assert await face.stream(proxy(raw, redact), told).get_final_text() == EXPECTED
            check_redacted(told)


@client_leaves_generators
@both_shells
@every_api
@body
async def test_a_proxy_of_a_function_is_called(face: Face, api: str) -> None:
    """Although its class has the methods of a context manager and of an iterable."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:

            def ask() -> Any:
                return EveryMethod(resource.create(**APIS[api].request, stream=True), redact)

            async def ask_async() -> Any:
                return EveryMethod(await resource.create(**APIS[api].request, stream=True), redact)

            asks = EveryMethodOfFunction(ask_async if face.is_async else ask, redact)
            assert await face.stream(asks).get_final_text() == EXPECTED


@async_faces
@every_form
@body
async def test_a_filter_of_a_sync_stream_is_read_by_a_thread(face: Face, form: str) -> None:
    """Although a proxy has the methods for tasks, too."""
    with ModelServer(Reply(SAID)) as server, openai.OpenAI(base_url=server.url, api_key="k") as client:

        def ask() -> Any:
            stream = client.chat.completions.create(**ASKED, stream=True)
            return FORMS[form](stream, redact, is_async=False)

        assert await face.stream(ask).get_final_text() == EXPECTED


def test_a_proxy_of_an_async_stream_wants_an_async_stream() -> None:
    """As the stream itself does."""

    async def main() -> None:
        with ModelServer(Reply(SAID)) as server:
            async with openai.AsyncOpenAI(base_url=server.url, api_key="k") as client:
                stream = await client.chat.completions.create(**ASKED, stream=True)
                with pytest.raises(sk.UsageError, match="use `astream`"):
                    sk.stream(EveryMethod(stream, redact)).until_done()
                await stream.close()

    anyio.run(main)


# -- handlers of the Assistants API


@client_leaves_generators
@both_shells
@pytest.mark.parametrize("form", FORMS_WITH_CLOSE)
@body
async def test_what_a_filter_redacts_reaches_no_assistants_handler(face: Face, form: str) -> None:
    """Where the client opens the stream for a handler, and a tracer or a filter is in the client."""
    texts: list[str] = []

    class Handler(AssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            texts.append(delta.value)

    class AsyncHandler(AsyncAssistantEventHandler):
        async def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            texts.append(delta.value)

    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, "assistants", server) as runs:
            post = runs._post

            async def filtered_async(*arguments: Any, **options: Any) -> Any:
                return FORMS[form](await post(*arguments, **options), redact, is_async=True)

            def filtered(*arguments: Any, **options: Any) -> Any:
                return FORMS[form](post(*arguments, **options), redact, is_async=False)

            runs._post = filtered_async if face.is_async else filtered
            handler: Any = AsyncHandler() if face.is_async else Handler()
            async with entered(face, runs.stream(**APIS["assistants"].request, event_handler=handler)):
                if face.is_async:
                    await handler.until_done()
                else:
                    handler.until_done()
    assert "".join(texts) == EXPECTED


# -- endings


@every_pair
@client_leaves_generators
@every_face
@pytest.mark.parametrize("form", FORMS_WITH_CLOSE)
@pytest.mark.parametrize("api", ["chat", "messages"])
@body
async def test_closing_what_wraps_a_stream_closes_its_response(face: Face, form: str, api: str) -> None:
    """The server sees the client leave."""
    with ModelServer(Reply(SAID, never_ends=True)) as server:
        async with resource_of(face, api, server) as resource:
            source = FORMS[form](await opened(face, api, resource), redact, is_async=face.is_async)
            async with face.stream(source) as stream:
                async for _ in stream.text_deltas:
                    break
            assert await face.in_thread(server.wait_for_disconnect)


@every_pair
@client_leaves_generators
@both_shells
@every_form
@pytest.mark.parametrize("api", ["chat", "messages"])
@pytest.mark.parametrize("use", ["drained", "closed"])
@body
async def test_what_wraps_a_stream_that_was_read_is_refused(face: Face, use: str, form: str, api: str) -> None:
    """As the stream itself is."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, api, server) as resource:
            stream = await opened(face, api, resource)
            source = FORMS[form](stream, redact, is_async=face.is_async)
            if use == "drained":
                assert await face.stream(source).get_final_text() == EXPECTED
            elif face.is_async:
                await stream.close()
            else:
                stream.close()
            told = face.told()
            with pytest.raises(sk.UsageError if form != "a generator" else sk.StreamkitError):
                await face.stream(source, told).until_done()
            assert told.hooks == ["on_exception", "on_end"]


class Buffered:
    """Reads all of a stream when it is made."""

    def __init__(self, stream: Any) -> None:
        self.response = stream.response
        self._items = [*stream]

    def __iter__(self) -> Iterator[Any]:
        while self._items:
            yield self._items.pop(0)


class AsyncBuffered:
    """As `Buffered`."""

    def __init__(self, stream: Any, items: list[Any]) -> None:
        self.response = stream.response
        self._items = items

    async def __aiter__(self) -> AsyncIterator[Any]:
        while self._items:
            yield self._items.pop(0)


@client_leaves_generators
@both_shells
@body
async def test_what_a_wrapper_still_has_is_read_although_its_response_was(face: Face) -> None:
    """Once."""
    with ModelServer(Reply(SAID)) as server:
        async with resource_of(face, "chat", server) as resource:
            stream = await opened(face, "chat", resource)
            source = AsyncBuffered(stream, [item async for item in stream]) if face.is_async else Buffered(stream)
            assert await face.stream(source).get_final_text() == EXPECTED.replace(REDACTED, SECRET)
            with pytest.raises(sk.UsageError, match="was read already"):
                await face.stream(source).until_done()


# -- objects that raise


class _Strange:
    """An object whose attributes raise something of their own."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


class StrangeItems(_Strange):
    """It can be iterated all the same."""

    def __iter__(self) -> Iterator[Any]:
        return iter(chat("Hello"))

    async def __aiter__(self) -> AsyncIterator[Any]:
        for chunk in chat("Hello"):
            yield chunk


class StrangeContext(_Strange):
    """It can be entered all the same."""

    def __enter__(self) -> Any:
        return StrangeItems()

    def __exit__(self, *raised: object) -> None:
        pass

    async def __aenter__(self) -> Any:
        return StrangeItems()

    async def __aexit__(self, *raised: object) -> None:
        pass


@both_shells
@pytest.mark.parametrize("kind", [StrangeItems, StrangeContext])
@body
async def test_what_needs_no_attribute_is_read_although_they_raise(face: Face, kind: Callable[[], Any]) -> None:
    assert await face.stream(kind()).get_final_text() == "Hello"
    assert await face.stream(lambda: kind()).get_final_text() == "Hello"


class FailsToIterate:
    def __iter__(self) -> Iterator[Any]:
        raise LookupError("it is gone")

    def __aiter__(self) -> AsyncIterator[Any]:
        raise LookupError("it is gone")


class FailsToEnter:
    def __enter__(self) -> Any:
        raise LookupError("it is gone")

    def __exit__(self, *raised: object) -> None:
        pass

    async def __aenter__(self) -> Any:
        raise LookupError("it is gone")

    async def __aexit__(self, *raised: object) -> None:
        pass


class FailsToParse:
    http_response = object()

    def parse(self) -> Any:
        raise LookupError("it is gone")


@both_shells
@pytest.mark.parametrize("kind", [FailsToIterate, FailsToEnter, FailsToParse])
@body
async def test_an_error_of_a_wrappers_own_is_a_source_error(face: Face, kind: Callable[[], Any]) -> None:
    """And nothing else."""
    told = face.told()
    with pytest.raises(sk.SourceError, match="it is gone"):
        await face.stream(lambda: kind(), told).until_done()
    with pytest.raises(sk.SourceError, match="it is gone"):
        await face.stream(EveryMethod(kind(), redact)).until_done()
    assert told.hooks == ["on_exception", "on_end"]


class IsNothing(EveryMethod):
    """A proxy of an object that is no source."""


@both_shells
@body
async def test_a_proxy_of_what_is_no_source_is_refused(face: Face) -> None:
    """With the text that says what is one."""
    with pytest.raises(sk.UsageError, match="is not a source of a stream"):
        await face.stream(IsNothing(object(), redact)).until_done()


# -- and what nothing is around


@both_shells
@pytest.mark.parametrize("way", ["create", "helper"])
@pytest.mark.parametrize("api", APIS)
@body
async def test_the_bytes_of_the_sdks_own_stream_are_read(face: Face, api: str, way: str) -> None:
    """None of its objects is built."""

    def builds(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("an object was built")

    with ModelServer(Reply(SAID)) as server, pytest.MonkeyPatch.context() as patch:
        async with resource_of(face, api, server) as resource:
            patch.setattr(f"{APIS[api].package.__name__}._base_client.construct_type", builds)
            source = await opened(face, api, resource) if way == "create" else resource.stream(**APIS[api].request)
            assert await face.stream(source).get_final_text() == EXPECTED.replace(REDACTED, SECRET)
