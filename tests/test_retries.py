"""`retry=` and `fallbacks=` of a stream: a source that failed is asked again, and what it had brought is withdrawn."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
import trio
import trio.testing

import streamkit as sk
from streamkit.protocols import ag_ui, codec, registry, vercel_ui
from streamkit.renderers import ConsolePrinter, NotebookDisplay
from streamkit.testing import ModelServer, Reply, ServiceError, ToolCall

from .faces import FACES, Face, body, both_shells, chat, every_face, every_pair, is_soon
from .retrying import APIS, Shown, asking
from .test_renderers import drawn

SOON = sk.Retry(max_wait=0.01)
RESTART = sk.Retry(max_wait=0.01, restart=True)
every_api = pytest.mark.parametrize("api", list(APIS))


@contextmanager
def closed_port() -> Iterator[str]:
    """A URL at which every connection is refused."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


# -- what fails, where, and what then happens

TRANSIENT = ServiceError("Busy.", "server_error", "server_error")

# The fault, what the server answers first, and the position: how many pieces of the text came before it; None if there was no
# response at all.
FAULTS: dict[tuple[str, int | None], Reply | None] = {
    ("status", None): Reply(status=503),
    ("refused", None): None,
    ("late head", None): Reply(status=503, first_delay=5),
    ("cut", 0): Reply("Half of this", cut_after=0),
    ("cut", 2): Reply("Half of this", cut_after=2),
    ("error event", 0): Reply("Half of this", error_after=0, error=TRANSIENT),
    ("error event", 2): Reply("Half of this", error_after=2, error=TRANSIENT),
    ("silence", 0): Reply("Half of this", first_delay=5),
    ("silence", 2): Reply("Half of this", never_ends=True),
}
ERRORS = {
    "status": sk.SourceError,
    "refused": sk.SourceError,
    "late head": sk.SourceTimeoutError,
    "cut": sk.SourceError,
    "error event": sk.RunFailedError,
    "silence": sk.SourceTimeoutError,
}
# Each fault, position and restart on each API; the faces change from one to the next, so that each of these meets each face.
_CASES = [
    pytest.param(*case, list(FACES.values())[number % 3], id="-".join(map(str, (*case[0], case[1], case[2]))))
    for turn, row in enumerate(itertools.product(FAULTS, (False, True)))
    for number, case in enumerate(((*row, api) for api in APIS), turn)
]


@pytest.mark.parametrize(("fault", "restart", "api", "face"), _CASES)
@body
async def test_a_failed_answer_is_asked_for_again(
    fault: tuple[str, int | None], restart: bool, api: str, face: Face
) -> None:
    """Unless its content was shown already, and nobody said that it may begin again. What had begun ends first; all of it is
    withdrawn; and what it cost is counted."""
    kind, position = fault
    failing = FAULTS[fault]
    shown = Shown()
    with ModelServer([failing, Reply("All.")] if failing else Reply("All.")) as server, closed_port() as closed:
        async with asking(face, server, api) as ask, asking(face, closed, api) as refused:
            asked = iter((ask if failing else refused, ask))
            stream = face.stream(
                lambda: next(asked)(),
                shown,
                timeouts=sk.Timeouts(first=0.7, idle=0.7) if kind in ("late head", "silence") else None,
                retry=RESTART if restart else SOON,
            )
            has_content = position == 2
            if has_content and not restart:
                with pytest.raises(ERRORS[kind]):
                    await stream.until_done()
            else:
                await stream.until_done()
        requests = len(server.requests)
        if kind in ("late head", "silence"):
            assert server.wait_for_disconnect()
    if has_content and not restart:
        assert (requests, shown.retries) == (1, [])
        assert list(shown.texts.values()) == [message.content for message in stream.messages]
        assert "".join(shown.texts.values()).startswith("Half")
        return
    (retry,) = shown.retries
    assert isinstance(retry.exception, ERRORS[kind])
    assert (retry.attempt, retry.error) == (2, ERRORS[kind].__name__)
    assert requests == (1 if kind == "refused" else 2)
    assert list(shown.texts.values()) == [message.content for message in stream.messages] == ["All."]
    assert [text.startswith("Half") for text in shown.taken_back] == [True] * has_content
    assert not {message.id for message in stream.messages} & {*retry.withdrawn}
    again = ["created", "text", "completed", "step completed", "end"]
    assert shown.hooks[shown.hooks.index("retry") + 1 :] == again
    before = shown.hooks[: shown.hooks.index("retry")]
    assert before in (
        [],
        ["step failed"],
        ["created", "failed", "step failed"],
        ["created", "text", "failed", "step failed"],
    )
    assert ("text" in before) is has_content
    steps = await stream.get_final_run_steps()
    assert [step.status for step in steps] == ["failed"] * ("step failed" in before) + ["completed"]
    assert stream.status == "completed"
    if api != "openai_chat":  # it reports tokens where it is asked to
        began = position == 2 or kind == "silence"
        billed = 2 if api == "anthropic" and began else 1  # its beginning has the tokens of the request
        assert stream.usage is not None
        assert stream.usage.input_tokens == 10 * billed


# -- which sources, and how often


ONCE: dict[str, Callable[[], Any]] = {
    "a list": lambda: [{"id": "c", "object": "chat.completion.chunk", "choices": []}],
    "a generator": lambda: iter(()),
    "bytes": lambda: b"data: [DONE]\n\n",
    "a path": lambda: Path("run.jsonl"),
    "another stream": lambda: sk.stream(lambda: b""),
    "an Emitter": sk.Emitter,
    "a class": lambda: dict,
    "nothing": lambda: None,
}


@pytest.mark.parametrize("option", [{"retry": 2}, {"fallbacks": [lambda: b""]}], ids=["retry", "fallbacks"])
@pytest.mark.parametrize("source", list(ONCE.values()), ids=list(ONCE))
@pytest.mark.parametrize("opens", [sk.stream, sk.astream])
def test_the_source_is_a_function(opens: Any, source: Callable[[], Any], option: dict[str, Any]) -> None:
    with pytest.raises(sk.UsageError, match="is a function that makes the request anew"):
        opens(source(), **option)


def test_so_is_each_fallback() -> None:
    with pytest.raises(sk.UsageError, match="is a function"):
        sk.stream(lambda: b"", fallbacks=[b"data: [DONE]\n\n"])
    with pytest.raises(sk.UsageError, match="`fallbacks` is a list of functions"):
        sk.stream(lambda: b"", fallbacks=lambda: b"")  # type: ignore[call-overload]


def test_a_stream_that_resumes_is_not_asked_again() -> None:
    with pytest.raises(sk.UsageError, match="resumes one source"):
        sk.stream(lambda: b"", after="1-2", retry=2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: sk.stream(lambda: b"", retry=0),
        lambda: sk.stream(lambda: b"", retry=True),
        lambda: sk.stream(lambda: b"", retry="3"),  # type: ignore[arg-type]
        lambda: sk.Retry(0),
        lambda: sk.Retry(restart="yes"),  # type: ignore[arg-type]
        lambda: sk.Retry(max_wait=-1),
        lambda: sk.Retry(on=3),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_option_is_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(sk.UsageError):
        wrong()


@both_shells
@pytest.mark.parametrize("attempts", [1, 2, 4])
@body
async def test_attempts_are_requests_of_one_source(face: Face, attempts: int) -> None:
    """The last error is raised, and the earlier ones are its notes."""
    with ModelServer(Reply(status=503)) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, retry=sk.Retry(attempts, max_wait=0))
            with pytest.raises(sk.SourceError) as caught:
                await stream.until_done()
        assert len(server.requests) == attempts
    notes = getattr(caught.value, "__notes__", [])
    assert [note.partition(":")[0] for note in notes] == [f"Attempt {n} had failed" for n in range(1, attempts)]


@both_shells
@body
async def test_each_source_of_a_run_has_its_own_count(face: Face) -> None:
    """`then` is not called for a failed attempt, and `max_steps` counts each source once."""
    busy = Reply(status=503)
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    asked: list[int] = []
    with ModelServer([busy, busy, Reply(ToolCall("look", {})), busy, busy, Reply("Done.")]) as server:
        async with asking(face, server, "openai_chat") as ask:

            def then(stream: Any) -> Any:
                asked.append(len(server.requests))
                return ask

            stream = face.stream(ask, told, then=then, max_steps=2, retry=sk.Retry(3, max_wait=0))
            await stream.until_done()
        assert (asked, len(server.requests)) == ([3], 6)
    assert (stream.status, stream.source_number) == ("completed", 2)
    assert [retry.attempt for retry in told.of("on_retry")] == [2, 3, 2, 3]
    assert [step.status for step in await stream.get_final_run_steps()] == ["completed", "completed"]
    told.check_brackets()


@both_shells
@body
async def test_a_source_of_then_is_a_function_too(face: Face) -> None:
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    with ModelServer([Reply(ToolCall("look", {})), Reply("Done.")]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, told, then=lambda _: b"data: [DONE]\n\n", retry=2)
            with pytest.raises(sk.UsageError, match="what `then` returns is a function"):
                await stream.until_done()


# -- which errors

QUOTA = ServiceError("Add money.", "insufficient_quota", "insufficient_quota")
ANSWERS: dict[str, tuple[Reply, int]] = {
    **{str(status): (Reply(status=status), 1) for status in (400, 401, 403, 404, 413, 422)},
    **{str(status): (Reply(status=status, retry_after=0), 2) for status in (408, 409, 429, 500, 502, 503, 529)},
    "an exhausted quota": (Reply(status=429, retry_after=0, error=QUOTA), 1),
    "x-should-retry: false": (Reply(status=503, headers={"x-should-retry": "false"}), 1),
    "x-should-retry: true": (Reply(status=400, headers={"x-should-retry": "true"}), 2),
}


@every_api
@pytest.mark.parametrize(("answer", "requests"), list(ANSWERS.values()), ids=list(ANSWERS))
def test_a_status_says_whether_another_attempt_is_worth_it(answer: Reply, requests: int, api: str) -> None:
    @body
    async def run(face: Face) -> None:
        with ModelServer([answer, Reply("Fine.")]) as server:
            async with asking(face, server, api) as ask:
                stream = face.stream(ask, retry=sk.Retry(2, max_wait=0))
                if requests == 1:
                    with pytest.raises(sk.SourceError):
                        await stream.until_done()
                else:
                    await stream.until_done()
            assert len(server.requests) == requests

    run(face=FACES["sync"])


# The codes of errors in the midst of an answer, by API.
CODES: list[tuple[str, str, bool]] = [
    *(("openai_chat", code, True) for code in ("server_error", "rate_limit_exceeded", "502", "overloaded")),
    *(
        ("openai_chat", code, False)
        for code in ("invalid_prompt", "insufficient_quota", "400", "context_length_exceeded")
    ),
    *(("openai_responses", code, True) for code in ("server_error", "rate_limit_exceeded", "server_is_overloaded")),
    *(("openai_responses", code, False) for code in ("invalid_prompt", "insufficient_quota", "overloaded_error")),
    *(("anthropic", code, True) for code in ("overloaded_error", "rate_limit_error", "api_error", "timeout_error")),
    *(("anthropic", code, False) for code in ("invalid_request_error", "authentication_error", "billing_error")),
]
_BEGINNINGS = {
    "openai_chat": {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"role": "assistant"}}],
    },
    "openai_responses": {
        "type": "response.created",
        "response": {"id": "r", "object": "response", "status": "in_progress"},
    },
    "anthropic": {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}},
}


def _failing(api: str, code: str, begins: bool) -> list[dict[str, Any]]:
    """The items of an answer that ends with an error with this code; perhaps it is the first thing that comes."""
    error: dict[str, Any] = {"error": {"message": "No.", "code": code}}
    if api == "openai_responses":
        error = {"type": "error", "message": "No.", "code": code, "sequence_number": 1}
    elif api == "anthropic":
        error = {"type": "error", "error": {"type": code, "message": "No."}}
    return [*([_BEGINNINGS[api]] if begins else []), error]


@pytest.mark.parametrize("begins", [True, False], ids=["after its beginning", "at once"])
@pytest.mark.parametrize(("api", "code", "is_repeated"), CODES)
def test_a_code_says_whether_another_attempt_is_worth_it(api: str, code: str, is_repeated: bool, begins: bool) -> None:
    """Each protocol's package has those that do. An answer that begins with its error shows no protocol: any of them counts."""
    asked: list[int] = []

    def ask() -> list[dict[str, Any]]:
        asked.append(1)
        return _failing(api, code, begins)

    with pytest.raises(sk.RunFailedError):
        sk.stream(ask, retry=sk.Retry(2, max_wait=0)).until_done()
    if begins or code != "overloaded_error":  # which is a code of another protocol
        assert len(asked) == 1 + is_repeated


@both_shells
@body
async def test_an_application_decides_by_the_error(face: Face) -> None:
    seen: list[sk.StreamkitError] = []

    def on(error: sk.StreamkitError) -> bool:
        seen.append(error)
        return isinstance(error, sk.SourceError) and error.status_code == 400

    with ModelServer([Reply(status=400), Reply(status=503)]) as server:
        async with asking(face, server, "openai_chat") as ask:
            with pytest.raises(sk.SourceError):
                await face.stream(ask, retry=sk.Retry(9, on=on, max_wait=0)).until_done()
        assert len(server.requests) == 2
    assert [getattr(error, "status_code", None) for error in seen] == [400, 503]


@both_shells
@body
async def test_what_on_raises_ends_the_stream(face: Face) -> None:
    def on(error: sk.StreamkitError) -> bool:
        raise ZeroDivisionError

    with ModelServer(Reply(status=503)) as server:
        async with asking(face, server, "openai_chat") as ask:
            with pytest.raises(ZeroDivisionError):
                await face.stream(ask, retry=sk.Retry(on=on)).until_done()


@pytest.mark.parametrize("error", [TypeError("no such argument"), KeyError("key"), AttributeError("responses")])
def test_a_fault_of_the_function_itself_is_not_asked_for_again(error: Exception) -> None:
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        raise error

    with pytest.raises(sk.SourceError):
        sk.stream(ask, retry=3).until_done()
    assert asked == [1]


@both_shells
@pytest.mark.parametrize("hook", ["on_text_created", "on_text_delta", "on_text_done", "on_run_step_done", "on_retry"])
@body
async def test_the_error_of_a_hook_is_never_repeated(face: Face, hook: str) -> None:
    """Not even one that looks like a source's, whatever `on` says."""

    def fail(*_: Any) -> None:
        raise sk.SourceError("the hook's own")

    with ModelServer([Reply(status=503), Reply("One two")]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(
                ask, face.told(**{hook: fail}), retry=sk.Retry(restart=True, on=lambda _: True, max_wait=0)
            )
            with pytest.raises(sk.SourceError, match="the hook's own"):
                await stream.until_done()
        assert len(server.requests) == (1 if hook == "on_retry" else 2)


def test_an_answer_that_ends_before_its_protocols_end_is_asked_for_again() -> None:
    """By default: it was cut off."""
    told = FACES["sync"].told()
    bodies = iter((chat(finish=None), chat("All.")))
    assert sk.stream(lambda: next(bodies), told, retry=SOON).get_final_text() == "All."
    assert [retry.error for retry in told.of("on_retry")] == ["IncompleteStreamError"]


def test_a_fault_of_the_caller_is_never_repeated() -> None:
    """Whatever `on` says."""
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        raise sk.UsageError("no such thing")

    with pytest.raises(sk.UsageError, match="no such thing"):
        sk.stream(ask, retry=sk.Retry(on=lambda _: True, restart=True)).until_done()
    assert asked == [1]


def test_a_fault_of_the_protocol_is_never_repeated() -> None:
    asked: list[int] = []

    def ask() -> Any:
        asked.append(1)
        return b'data: {"id":"c","object":"chat.completion.chunk","choices":[]}\n\ndata: {oops\n\n'

    with pytest.raises(sk.ProtocolError):
        sk.stream(ask, strict=True, retry=sk.Retry(on=lambda _: True, restart=True)).until_done()
    assert asked == [1]


@every_face
@body
async def test_a_stream_that_was_stopped_is_never_repeated(face: Face) -> None:
    told = face.told(on_text_delta=lambda told, *_: told.stream.cancel())
    with ModelServer(Reply("One two three", never_ends=True)) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, told, retry=RESTART)
            await stream.until_done()
        assert len(server.requests) == 1
    assert (stream.status, told.of("on_retry")) == ("cancelled", [])


# -- what an attempt leaves behind


@both_shells
@body
async def test_withdrawn_messages_are_nowhere(face: Face) -> None:
    """They are not in the stream's messages, outputs and questions, nor in a request of `then=`."""
    call = ToolCall("look", {"at": "it"})
    found: list[Any] = []
    told = face.told(
        on_tool_call_done=lambda told, call: call.defer() if not told.of("on_retry") else call.respond("seen"),
        on_retry=lambda told, _: found.append((told.stream.messages, dict(told.stream.pending))),
    )
    failing = Reply(call, "And", error_after=len(call.pieces) + 1, error=TRANSIENT)
    replies = [failing, Reply(call), Reply("Done.")]
    with ModelServer(replies) as server:
        async with asking(face, server, "anthropic") as ask:

            def then(stream: Any) -> Any:
                found.append([message.content for message in (*stream.messages, *stream.tool_outputs)])
                return ask

            stream = face.stream(ask, told, then=then, retry=RESTART)
            await stream.until_done()
    (retry,) = told.of("on_retry")
    assert retry.withdrawn
    assert found == [((), {}), ['{"at": "it"}', "seen", "seen"]]
    assert not {message.id for message in stream.messages} & {*retry.withdrawn}
    assert [message.type for message in stream.messages] == ["tool_call", "tool_output", "message"]
    told.check_brackets()


def test_the_ids_of_withdrawn_messages_are_not_used_again() -> None:
    """Even where the server gives the next answer the same ones."""
    chunk = '{"type":"content_block_%s","index":0,%s}'
    begin = b'data: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{}}}\n\n'
    start = chunk % ("start", '"content_block":{"type":"text","text":""}')
    delta = chunk % ("delta", '"delta":{"type":"text_delta","text":"Hi"}')
    half = begin + f"data: {start}\n\ndata: {delta}\n\n".encode()
    bodies = iter((half, half + b'data: {"type":"content_block_stop","index":0}\n\ndata: {"type":"message_stop"}\n\n'))
    ids: list[str] = []
    shown = Shown()
    stream = sk.stream(lambda: next(bodies), shown, retry=sk.Retry(restart=True, max_wait=0))
    for event in stream:
        if isinstance(event, sk.TextCreated):
            ids.append(event.message.id)
    assert len(set(ids)) == 2
    assert shown.retries[0].withdrawn == ids[:1]
    assert [message.id for message in stream.messages] == ids[1:]


# -- what cannot be taken back, and what would be done twice


@both_shells
@body
async def test_nothing_begins_again_while_text_deltas_hand_it_out(face: Face) -> None:
    """An attempt that brought no content is repeated all the same."""
    replies = [Reply(status=503), Reply("One two three", cut_after=2), Reply("Never.")]
    with ModelServer(replies) as server:
        async with asking(face, server, "openai_chat") as ask:
            texts: list[str] = []
            with pytest.raises(sk.SourceError):
                async for text in face.stream(ask, retry=RESTART).text_deltas:
                    texts.append(text)
        assert ("".join(texts), len(server.requests)) == ("One two", 2)


@both_shells
@body
async def test_nor_while_output_items_do(face: Face) -> None:
    with ModelServer([Reply("[1, 2, 3, 4]", cut_after=3), Reply("Never.")]) as server:
        async with asking(face, server, "openai_chat") as ask:
            items: list[int] = []
            stream = face.stream(ask, retry=RESTART, output_type=list[int])
            with pytest.raises(sk.SourceError):
                async for item in stream.output_items():
                    items.append(item)
        assert (items[:1], len(server.requests)) == ([1], 1)


@both_shells
@body
async def test_the_partial_output_begins_anew(face: Face) -> None:
    seen: list[Any] = []
    told = face.told(on_retry=lambda told, _: seen.append(told.stream.partial_output))
    with ModelServer([Reply('{"a": 1, "b"', cut_after=3), Reply('{"c": 3}')]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, told, retry=RESTART, output_type=dict[str, int])
            assert await stream.get_final_output() == {"c": 3}
    assert (seen, stream.partial_output) == ([None], {"c": 3})


@every_pair
@both_shells
@pytest.mark.parametrize("form", ["chunks", "sse"])
@pytest.mark.parametrize("protocol", registry.BUILT_IN)
@body
async def test_only_some_wire_formats_can_take_an_answer_back(face: Face, protocol: str, form: str) -> None:
    """AG-UI's only where its encoder knows what the client has: a snapshot takes the place of all of it."""
    takes_back = protocol in ("streamkit", "vercel_ui")
    with ModelServer([Reply("One two three", cut_after=2), Reply("Again.")]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, retry=RESTART)
            if form == "sse":
                read = stream.sse(protocol)
                _ = [item async for item in read] if face.is_async else [*read]
            else:
                with contextlib.nullcontext() if takes_back else pytest.raises(sk.SourceError):
                    async for _ in stream.chunks(protocol):
                        pass
        assert len(server.requests) == (2 if takes_back else 1)


def test_vercel_ui_names_the_parts_of_the_answer_that_begins_again() -> None:
    chunks = _encoded(vercel_ui.Encoder())
    (retry,) = [chunk for chunk in chunks if chunk["type"] == "data-retry"]
    shown = {chunk["id"] for chunk in chunks[: chunks.index(retry)] if chunk["type"] == "text-start"}
    calls = {chunk["toolCallId"] for chunk in chunks[: chunks.index(retry)] if chunk["type"] == "tool-input-start"}
    assert (retry["transient"], {*retry["data"]["ids"]}, retry["data"]["attempt"]) == (True, shown | calls, 2)
    assert [chunk["type"] for chunk in chunks].count("start-step") == 2


def test_ag_ui_sends_a_snapshot_of_what_stays() -> None:
    """With the messages that the client had before; of the calls that were withdrawn none waits for an output."""
    before = sk.TextMessage("u", role="user", content="Look at it.", group="u")
    items = _encoded(ag_ui.Encoder(messages=[before]))
    (snapshot,) = [item for item in items if item["type"] == "MESSAGES_SNAPSHOT"]
    assert [message["id"] for message in snapshot["messages"]] == ["u"]
    (end,) = [item for item in items if item["type"] == "RUN_FINISHED"]
    assert end["outcome"] == {"type": "success"}


def _encoded(encoder: Any) -> list[dict[str, Any]]:
    """What an encoder makes of an answer with a text and a call that begins again."""
    failing = Reply("One two", ToolCall("look", {}), "And", error_after=4, error=TRANSIENT)
    with ModelServer([failing, Reply("Again.")]) as server, openai.OpenAI(base_url=server.url, api_key="any") as client:
        stream = sk.stream(lambda: APIS["openai_responses"](client), retry=RESTART)
        return [item for event in stream for item in encoder.items(event)]


class _Chunks:
    """Answers of the Responses API that fail after these items."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = items
        self.asked = 0

    def __call__(self) -> Iterator[dict[str, Any]]:
        self.asked += 1
        yield _BEGINNINGS["openai_responses"]
        for index, item in enumerate(self.items):
            yield {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**item, "status": "in_progress"},
            }
            if item["type"] in ("function_call", "mcp_approval_request"):
                yield {"type": "response.output_item.done", "output_index": index, "item": item}
        raise ConnectionResetError


def _item(type: str, **more: Any) -> dict[str, Any]:
    return {"type": type, "id": f"{type}_1", "status": "completed", **more}


SEARCH = _item("web_search_call", action={"type": "search", "query": "streams"})
FILES = _item("file_search_call", queries=["streams"])
MCP = _item("mcp_call", server_label="s", name="pay", arguments="{}")
PYTHON = _item("code_interpreter_call", code="pay()", container_id="c", outputs=[])
FUNCTION = _item("function_call", call_id="call_1", name="pay", arguments="{}")
APPROVAL = _item("mcp_approval_request", server_label="s", name="pay", arguments="{}")


class _Answering(sk.EventHandler):
    """Answers what is asked, but for `nothing`."""

    def __init__(self, answers: str) -> None:
        self.answers = answers

    def on_tool_call_done(self, message: sk.ToolCallMessage, /) -> None:
        if self.answers == "all" and message.waiting:
            message.respond("paid")

    def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
        if self.answers == "all":
            confirmation.approve()


@pytest.mark.parametrize(
    ("items", "answers", "is_repeated"),
    [
        pytest.param([SEARCH], "nothing", True, id="a search"),
        pytest.param([FILES, SEARCH], "nothing", True, id="two searches"),
        pytest.param([MCP], "nothing", False, id="a call that the provider runs"),
        pytest.param([PYTHON], "nothing", False, id="code that the provider runs"),
        pytest.param([FUNCTION], "nothing", True, id="a call that nobody has answered"),
        pytest.param([FUNCTION], "all", False, id="a call that was answered"),
        pytest.param([APPROVAL], "nothing", True, id="a question that nobody has answered"),
        pytest.param([APPROVAL], "all", False, id="a question that was approved"),
        pytest.param([SEARCH, MCP], "nothing", False, id="a search, and a call that the provider runs"),
    ],
)
def test_what_had_an_effect_is_not_done_twice(items: list[dict[str, Any]], answers: str, is_repeated: bool) -> None:
    source = _Chunks(*items)
    with pytest.raises(sk.SourceError):
        sk.stream(
            source, _Answering(answers), then=lambda _: None, retry=sk.Retry(2, restart=True, max_wait=0)
        ).until_done()
    assert source.asked == 1 + is_repeated


# -- the wait


def _in(seconds: float) -> dict[str, str]:
    return {"retry-after": formatdate(time.time() + seconds, usegmt=True)}


WAITS: dict[str, tuple[dict[str, str], float, float]] = {
    "none": ({}, 0.375, 0.5),
    "seconds": ({"retry-after": "7"}, 7, 7),
    "a part of a second": ({"retry-after": "1.5"}, 1.5, 1.5),
    "milliseconds": ({"retry-after-ms": "1250", "retry-after": "7"}, 1.25, 1.25),
    "a date": (_in(36_000), 3600, 36_000),
    "a date that is past": (_in(-36_000), 0.375, 0.5),
    "less than the own wait": ({"retry-after": "0.1"}, 0.375, 0.5),
    "no time at all": ({"retry-after": "soon"}, 0.375, 0.5),
    "more than any number": ({"retry-after": "1e999"}, 0.375, 0.5),
}


@every_api
@pytest.mark.parametrize(("headers", "least", "most"), list(WAITS.values()), ids=list(WAITS))
def test_the_server_says_when_it_wants_the_next_request(
    headers: dict[str, str], least: float, most: float, api: str
) -> None:
    """The wait is the longer of that and of our own. The error has it as `retry_after`."""

    @body
    async def run(face: Face) -> None:
        told = face.told(on_retry=lambda told, _: told.stream.cancel())  # it ends the wait
        with ModelServer([Reply(status=503, headers=headers)]) as server:
            async with asking(face, server, api) as ask:
                await face.stream(ask, told, retry=sk.Retry(max_wait=40_000)).until_done()
        (retry,) = told.of("on_retry")
        assert least <= retry.delay <= most
        assert retry.exception.retry_after is None or retry.exception.retry_after <= retry.delay

    run(face=FACES["sync"])


def test_the_waits_grow() -> None:
    """They double up to eight seconds; up to a quarter of each is left to chance."""
    told = FACES["sync"].told()

    def ask() -> Any:
        raise ConnectionResetError

    stream = sk.stream(ask, told, retry=sk.Retry(8, max_wait=20))
    stream._pause_for = lambda seconds: None  # type: ignore[method-assign]
    with pytest.raises(sk.SourceError):
        stream.until_done()
    delays = [retry.delay for retry in told.of("on_retry")]
    for delay, longest in zip(delays, (0.5, 1, 2, 4, 8, 8, 8), strict=True):
        assert longest * 0.75 <= delay <= longest


@every_face
@body
async def test_a_wait_that_is_too_long_is_no_wait(face: Face) -> None:
    """The error is raised at once."""
    told = face.told()
    with ModelServer(Reply(status=429, retry_after=61)) as server:
        async with asking(face, server, "openai_responses") as ask:
            with pytest.raises(sk.SourceError) as caught:
                await face.stream(ask, told, retry=5).until_done()
        assert len(server.requests) == 1
    assert (caught.value.retry_after, told.of("on_retry")) == (61, [])


@every_face
@pytest.mark.parametrize("ending", ["cancel", "close"])
@body
async def test_cancel_and_close_end_the_wait(face: Face, ending: str) -> None:
    """No hook of a retry comes after them."""

    async def delay() -> float:
        waiting, ended = threading.Event(), threading.Event()
        told = face.told(on_retry=lambda *_: waiting.set())
        began = [0.0]

        def stop() -> None:
            assert waiting.wait(20)
            time.sleep(0.02)  # it waits by now; where it does not, the wait does not begin
            began[0] = time.monotonic()
            stream.cancel()

        with ModelServer(Reply(status=503, retry_after=30)) as server:
            async with asking(face, server, "openai_chat") as ask, face.beside(stop):
                stream = face.stream(ask, told, retry=5)
                if ending == "close" and face.is_async:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(stream.until_done)
                        await face.in_thread(waiting.wait)
                        began[0] = time.monotonic()
                        await stream.close()
                else:
                    await stream.until_done()
            took = time.monotonic() - began[0]
            assert len(server.requests) == 1
        ended.set()
        assert (stream.status, told.hooks) == ("cancelled", ["on_retry", "on_end"])
        return took

    await is_soon(delay)


def test_on_trio_the_wait_is_by_its_clock() -> None:
    told = FACES["trio"].told()
    asked: list[float] = []

    def ask() -> Any:
        asked.append(trio.current_time())
        raise ConnectionResetError

    async def ask_async() -> Any:
        return ask()

    async def main() -> None:
        with pytest.raises(sk.SourceError):
            await sk.astream(ask_async, told, retry=sk.Retry(4)).until_done()

    began = time.monotonic()
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert time.monotonic() - began < 1
    waits = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert waits == pytest.approx([retry.delay for retry in told.of("on_retry")])


# -- beside other options


@every_face
@body
async def test_the_total_time_is_that_of_all_attempts(face: Face) -> None:
    """With their waits: where it leaves no time for the next wait, the error is raised at once."""
    with ModelServer(Reply(status=503)) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, retry=sk.Retry(50, max_wait=0.3), timeouts=sk.Timeouts(total=0.8))
            with pytest.raises(sk.SourceError) as caught:
                await stream.until_done()
        assert caught.value.status_code == 503
        assert 2 <= len(server.requests) <= 4


@both_shells
@body
async def test_other_times_begin_anew(face: Face) -> None:
    silent = Reply("Half", first_delay=5)
    with ModelServer([silent, silent, Reply("Whole.", first_delay=0.2)]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, retry=SOON, timeouts=sk.Timeouts(first=0.5))
            assert await stream.get_final_text() == "Whole."


@both_shells
@body
async def test_the_clients_own_retries_are_inside_an_attempt(face: Face) -> None:
    told = face.told()
    with ModelServer([Reply(status=503, retry_after=0.01), Reply("Here.")]) as server:
        async with face.client(server, max_retries=2) as client:
            stream = face.stream(lambda: APIS["openai_chat"](client), told, retry=3)
            assert await stream.get_final_text() == "Here."
        assert len(server.requests) == 2
    assert told.of("on_retry") == []


# -- fallbacks


@both_shells
@body
async def test_a_fallback_is_asked_where_the_source_has_failed_for_good(face: Face) -> None:
    """It may speak another protocol, and is tried as often itself. Nothing is waited for before it."""
    told = face.told()
    with ModelServer([Reply(status=400), Reply(status=503), Reply("From Claude.")]) as server:
        async with asking(face, server, "openai_responses") as ask, asking(face, server, "anthropic") as claude:
            stream = face.stream(ask, told, retry=sk.Retry(2, max_wait=0.01), fallbacks=[claude])
            assert await stream.get_final_text() == "From Claude."
        assert [request.path for request in server.requests] == ["/v1/responses", "/v1/messages", "/v1/messages"]
    assert [(retry.attempt, retry.delay > 0) for retry in told.of("on_retry")] == [(2, False), (3, True)]


@both_shells
@body
async def test_without_retry_each_is_asked_once(face: Face) -> None:
    with ModelServer(Reply(status=503)) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, fallbacks=[ask, ask])
            with pytest.raises(sk.SourceError) as caught:
                await stream.until_done()
        assert len(server.requests) == 3
    assert len(caught.value.__notes__) == 2


@both_shells
@pytest.mark.parametrize("restart", [False, True])
@body
async def test_a_fallback_begins_after_content_only_where_that_may_begin_again(face: Face, restart: bool) -> None:
    shown = Shown()
    with ModelServer([Reply("One two three", cut_after=2), Reply("Another.")]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, shown, retry=sk.Retry(1, restart=restart), fallbacks=[ask])
            if restart:
                assert await stream.get_final_text() == "Another."
            else:
                with pytest.raises(sk.SourceError):
                    await stream.until_done()
    assert shown.taken_back == ["One two"] * restart


@both_shells
@body
async def test_a_fallback_stands_in_for_the_first_source_alone(face: Face) -> None:
    told = face.told(on_tool_call_done=lambda _, call: call.respond("ok"))
    with ModelServer([Reply(status=400), Reply(ToolCall("look", {})), Reply(status=400)]) as server:
        async with asking(face, server, "openai_chat") as ask:
            stream = face.stream(ask, told, then=lambda _: ask, fallbacks=[ask])
            with pytest.raises(sk.SourceError):
                await stream.until_done()
        assert len(server.requests) == 3


# -- what others read


@every_api
@pytest.mark.parametrize("face", list(FACES.values()), ids=list(FACES))
@body
async def test_a_recording_has_all_attempts(face: Face, api: str, tmp_path: Path) -> None:
    """It replays as the same events, and as the same messages."""
    scripts = {
        "retried": [Reply(status=503), Reply("One two", cut_after=1), Reply(status=500), Reply("Fine.")],
        "failed": [Reply("One two", error_after=1, error=TRANSIENT), Reply(status=503), Reply(status=400)],
        "refused": [Reply(status=503), Reply(status=400)],
    }
    for name, script in scripts.items():
        path, live, again = tmp_path / f"{name}.jsonl", face.told(), face.told()
        with ModelServer(script) as server:
            async with asking(face, server, api) as ask:
                stream = face.stream(ask, live, sk.Recorder(path), retry=sk.Retry(4, restart=True, max_wait=0.01))
                with contextlib.nullcontext() if name == "retried" else pytest.raises(sk.StreamkitError):
                    await stream.until_done()
        replay = face.stream(path, again)
        with contextlib.nullcontext() if name == "retried" else pytest.raises(sk.StreamkitError):
            await replay.until_done()
        assert events_of(again) == events_of(live), name
        assert [m.to_dict() for m in replay.messages] == [m.to_dict() for m in stream.messages]


def events_of(told: Any) -> list[dict[str, Any]]:
    """The events that a handler received, as on the wire."""
    return [codec.event_to_dict(event) for event in told.of("on_event")]


@every_face
@body
async def test_a_recording_of_a_stream_that_was_stopped_in_its_wait_replays_as_that(face: Face, tmp_path: Path) -> None:
    told, again = face.told(on_retry=lambda told, _: told.stream.cancel()), face.told()
    with ModelServer(Reply("One two", cut_after=1)) as server:
        async with asking(face, server, "openai_chat") as ask:
            await face.stream(ask, told, sk.Recorder(tmp_path / "run.jsonl"), retry=sk.Retry(restart=True)).until_done()
    replay = face.stream(tmp_path / "run.jsonl", again)
    await replay.until_done()
    assert (replay.status, events_of(again)) == ("cancelled", events_of(told))


@both_shells
@body
async def test_a_second_stream_takes_the_same_messages_back(face: Face) -> None:
    """One that reads the first, or its events from the wire, and an Emitter's readers."""
    script = [Reply(ToolCall("look", {}), "One", error_after=2, error=TRANSIENT), Reply("Fine.")]
    lines: list[bytes] = []
    with ModelServer(script) as server:
        async with asking(face, server, "anthropic") as ask:
            first = face.stream(ask, retry=RESTART)
            second = face.stream(getattr(first, "manager", first), face.told())
            async for event in second:
                lines.append(codec.encode_event(event))
    expected = [message.to_dict() for message in first.messages]
    assert [message["content"] for message in expected] == ["Fine."]
    assert [message.to_dict() for message in second.messages] == expected
    third = face.stream([codec.decode_event(line) for line in lines])
    await third.until_done()
    assert ([message.to_dict() for message in third.messages], dict(third.pending)) == (expected, {})
    with sk.Emitter() as emitter:
        for line in lines[:-2]:
            emitter.emit(codec.decode_event(line))
    fourth = face.stream(emitter)
    await fourth.until_done()
    assert [message.content for message in fourth.messages] == ["Fine."]


def test_what_is_open_ends_before_it_is_withdrawn() -> None:
    """Whoever emits the event."""
    told = FACES["sync"].told()
    with sk.Emitter() as emitter:
        emitter.emit(sk.TextDelta("half", "One"))
        emitter.emit(sk.StreamRetry(2, "SourceError", "It broke.", 0.0, ["half", "no message"]))
        emitter.text("Two")
    stream = sk.stream(emitter, told)
    stream.until_done()
    told.check_brackets()
    assert [message.status for message in told.of("on_text_done")] == ["failed", "completed"]
    assert [message.content for message in stream.messages] == ["Two"]


CANNOT_TAKE_BACK = [name for name in registry.BUILT_IN if not registry.find(name).Encoder.withdraws]


def _began_again(content: str = "One two", **fields: Any) -> list[sk.Event]:
    """A log of a run that began again after a message with this content."""
    log: list[sk.Event] = []
    with sk.Emitter() as emitter:
        emitter.text("Before.")
        emitter.step()
        emitter.emit(sk.TextDone(sk.TextMessage("half", content=content, **fields)))
        emitter.emit(sk.StreamRetry(2, "SourceError", "It broke.", 0.0, ["half"]))
        emitter.step()
        emitter.text("All of it.")
    for event in emitter.reader():
        log.append(codec.decode_event(codec.encode_event(event)))
    return log


@pytest.mark.parametrize("wire", CANNOT_TAKE_BACK)
def test_a_log_in_a_wire_that_cannot_take_back_ends_where_the_answer_began_again(wire: str) -> None:
    """With the error: it never has both texts. Where there was nothing to take back it goes on."""
    stream = sk.stream(_began_again())
    items: list[Any] = []
    with pytest.raises(sk.SourceError, match="It broke"):
        items.extend(stream.chunks(wire))
    assert stream.status == "failed"
    encoder = registry.find(wire).Encoder()
    encoded = [item for event in sk.stream(_began_again()) for item in encoder.items(event)]
    shown = json.dumps(encoded)
    assert "One two" in shown
    assert "All of it." not in shown
    again = sk.stream(encoded, protocol=wire)
    with pytest.raises(sk.StreamkitError):
        again.until_done()
    assert again.messages[-1].content.endswith("One two")
    for log in (_began_again(""), _began_again(parent_id="call-1")):
        shown = json.dumps([*sk.stream(log).chunks(wire)])
        assert "All of it." in shown
        assert "One two" not in shown


@every_face
@body
async def test_loops_that_hand_out_the_text_of_a_log_end_there_too(face: Face) -> None:
    pieces: list[str] = []
    stream = face.stream(_began_again())
    with pytest.raises(sk.SourceError, match="It broke"):
        async for piece in stream.text_deltas:
            pieces.append(piece)
    assert "".join(pieces) == "Before.\n\nOne two"
    assert [message.content for message in await face.stream(_began_again()).get_final_messages()] == [
        "Before.",
        "All of it.",
    ]


# -- what people see


def _shown_again() -> list[sk.Event]:
    """An answer that begins again after its first words."""
    half, whole = sk.TextMessage("half"), sk.TextMessage("whole")
    return [
        sk.RunCreated(sk.Run(id="run")),
        sk.TextCreated(half),
        sk.TextDelta("half", "One two"),
        sk.StreamRetry(2, "SourceError", "It broke.", 0.5, ["half"]),
        sk.TextCreated(whole),
        sk.TextDelta("whole", "All of it."),
        sk.StreamEnd(),
    ]


def test_a_printer_says_that_the_answer_begins_again() -> None:
    file = io.StringIO()
    sk.stream(_shown_again(), ConsolePrinter(file, run_end=False)).until_done()
    assert file.getvalue() == (
        "[message] One two\n[retry] the answer begins again in 0.5 s: SourceError: It broke.\n[message] All of it.\n"
    )


@pytest.mark.parametrize("every", [1, 100])
def test_a_live_display_removes_what_it_has_not_printed_for_good(every: int) -> None:
    lines = drawn(_shown_again(), every=every).lines
    assert lines == ["↻ the answer begins again in 0.5 s: SourceError: It broke.", "", "All of it."]


def test_a_notebook_shows_the_answer_that_stays() -> None:
    display = NotebookDisplay()
    shown: list[str] = []
    display._update = lambda: shown.append("".join(map(display._html, display._parts)))  # type: ignore[method-assign]
    sk.stream(_shown_again(), display).until_done()
    assert "One two" in "".join(shown)
    assert "One two" not in shown[-1]
    assert "All of it." in shown[-1]
    assert "begins again" in shown[-1]


@pytest.mark.parametrize("expose", [False, True])
def test_the_text_of_an_error_is_masked_in_a_response(expose: bool) -> None:
    """As that of the error that ends a stream."""
    body = b"".join(sk.stream(_shown_again()).sse("streamkit", expose_errors=expose))
    assert (b"It broke." in body) is expose
    assert b'"stream_retry"' in body
