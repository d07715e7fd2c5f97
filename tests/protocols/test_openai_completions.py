"""Legacy Completions: the forms that servers send, the real client over HTTP, and the way back."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai.types import Completion

import streamkit as sk
from streamkit import protocols
from streamkit.protocols import openai_completions
from streamkit.protocols.framing import sse_frame
from streamkit.protocols.openai_completions import Decoder, to_input
from streamkit.testing import check_protocol

from ..faces import Face, body, every_face
from ..telling import Story, tell_bytes

USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def choice(text: Any = "", index: Any = 0, finish: Any = None, **more: Any) -> dict[str, Any]:
    return {"text": text, "index": index, "logprobs": None, "finish_reason": finish, **more}


def chunk(*choices: Any, **more: Any) -> dict[str, Any]:
    head = {"id": "cmpl-1", "object": "text_completion", "created": 7, "model": "m"}
    return {**head, "choices": [*choices], **more}


def sse(*items: Any, done: bool = True) -> bytes:
    return b"".join(sse_frame(json.dumps(item).encode()) for item in items) + (b"data: [DONE]\n\n" if done else b"")


def decode(*items: Any, done: bool = True) -> Story:
    return tell_bytes(Decoder, [sse(*items, done=done)])


def texts(story: Story) -> list[tuple[int, str, str]]:
    return [(message.choice, message.content, message.status) for message in story.engine.messages.all]


HELLO = (chunk(choice("Hel")), chunk(choice("lo")), chunk(choice(finish="stop")), chunk(usage=USAGE))
TWO = (
    chunk(choice("a"), choice("x", 1)),
    chunk(choice("y", 1, "length")),
    chunk(choice("b", 0, "stop")),
)
LOGPROBS = {"tokens": ["Hi"], "token_logprobs": [-0.1], "top_logprobs": None, "text_offset": [0]}
VLLM = (
    chunk(choice("Hi", stop_reason=None, prompt_logprobs=None), usage={**USAGE, "completion_tokens": 1}),
    chunk(choice("", finish="stop", stop_reason=128009), usage=USAGE),
)
LLAMA_CPP = (
    chunk(choice("Hi", logprobs=LOGPROBS), system_fingerprint="b1"),
    chunk(choice("", finish="length"), usage=USAGE, timings={"predicted_n": 4}),
)
COMPLETE = (chunk(choice("All of it.", finish="stop"), usage=USAGE),)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param(HELLO, id="openai"),
        *(
            pytest.param(items, id=id, marks=pytest.mark.slow)
            for id, items in {"two": TWO, "vllm": VLLM, "llama": LLAMA_CPP, "one": COMPLETE}.items()
        ),
    ],
)
def test_it_keeps_the_laws(items: Any) -> None:
    check_protocol(openai_completions, [sse(*items)], attempts=15)


def test_an_answer_is_one_text_in_a_run() -> None:
    story = decode(*HELLO)
    assert texts(story) == [(0, "Hello", "completed")]
    run = story.engine.runs.run
    assert run is not None
    assert (run.id, run.model, run.created_at, run.status, run.finish_reason) == ("cmpl-1", "m", 7, "completed", "stop")
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (3, 4, 7)
    assert story.codes == []


def test_choices_are_kept_apart_by_their_index() -> None:
    story = decode(*TWO)
    assert texts(story) == [(0, "ab", "completed"), (1, "xy", "incomplete")]
    run = story.engine.runs.run
    assert run is not None
    assert (run.status, run.metadata["finish_reasons"]) == ("completed", {"0": "stop", "1": "length"})


def test_choices_without_an_index_have_their_place_as_index() -> None:
    first, second = choice("a"), choice("b")
    del first["index"], second["index"]
    assert [(index, text) for index, text, _ in texts(decode(chunk(first, second)))] == [(0, "a"), (1, "b")]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_an_answer_that_the_provider_cut_short_is_incomplete(reason: str) -> None:
    """And everything that arrived is returned."""
    stream = sk.stream([chunk(choice("Hel")), chunk(choice("lo", finish=reason))])
    assert stream.get_final_text() == "Hello"
    assert (stream.get_final_run().status, stream.messages[0].status) == ("incomplete", "incomplete")


def test_logprobs_are_the_metadata_of_their_delta_and_extras_those_of_the_run() -> None:
    events = decode(*LLAMA_CPP).events
    assert next(event.metadata for event in events if isinstance(event, sk.TextDelta)) == {"logprobs": LOGPROBS}
    run = decode(*VLLM).engine.runs.run
    assert run is not None
    assert run.metadata == {"choices": {"0": {"stop_reason": 128009}}}


def test_usage_is_emitted_when_it_changes() -> None:
    counts = [event.output_tokens for event in decode(*VLLM, VLLM[1]).events if isinstance(event, sk.Usage)]
    assert counts == [1, 4]


@pytest.mark.parametrize(
    ("items", "done", "is_complete"),
    [
        ((chunk(choice("Hi")),), False, False),
        ((chunk(choice("Hi")),), True, True),
        ((chunk(choice("Hi", finish="stop")),), False, True),
        ((chunk(choice("a", finish="stop"), choice("b", 1)),), False, False),
        ((chunk(),), False, False),
    ],
)
def test_the_terminal_rule(items: Any, done: bool, is_complete: bool) -> None:
    """`[DONE]`, or a finish_reason for each choice that was seen."""
    assert decode(*items, done=done).decoder.complete is is_complete


@pytest.mark.parametrize(
    "error",
    [
        sse({"error": {"message": "overloaded", "code": 503}}, done=False),
        sse({"error": "overloaded"}),
        sse({"object": "error", "message": "overloaded", "code": 503}),
        b'event: error\ndata: {"message": "overloaded"}\n\n',
        b"event: error\ndata: overloaded\n\n",
    ],
)
def test_an_error_fails_the_run_and_loses_nothing(error: bytes) -> None:
    stream = sk.stream([sse(chunk(choice("Hel")), done=False), error])
    with pytest.raises(sk.RunFailedError, match="overloaded") as caught:
        stream.until_done()
    assert [(message.content, message.status) for message in caught.value.messages] == [("Hel", "failed")]


@pytest.mark.parametrize(
    ("item", "code", "text"),
    [
        (chunk(choice("a", "1")), "bad-index", "a"),
        (chunk(choice(7), choice("a", 1)), "bad-text", "a"),
        (chunk(5, choice("a", 1)), "bad-choice", "a"),
        (chunk(choice("a", finish=5)), "bad-finish-reason", "a"),
        (chunk(choice("a"), usage=5), "bad-usage", "a"),
        ({**chunk(), "choices": choice("a")}, "bad-choices", "a"),
        ({**chunk(choice("a")), "id": 5, "model": [], "created": "now"}, "", "a"),
    ],
)
def test_one_bad_value_never_loses_the_rest_of_its_item(item: Any, code: str, text: str) -> None:
    story = decode(item)
    assert [content for _, content, _ in texts(story)] == [text]
    assert story.codes == ([code] if code else [])


def test_text_after_a_finish_reason_is_another_message() -> None:
    assert texts(decode(chunk(choice("a", finish="length")), chunk(choice("b")))) == [
        (0, "a", "incomplete"),
        (0, "b", "completed"),
    ]


def test_an_answer_with_a_finish_reason_in_every_chunk_is_one_message() -> None:
    pieces = [chunk(choice(text, finish="stop")) for text in "abc"]
    assert texts(decode(*pieces)) == [(0, "abc", "completed")]


def test_of_an_answer_that_was_cut_off_the_choices_that_finished_are_complete() -> None:
    story = decode(chunk(choice("a", finish="stop"), choice("b", 1)), done=False)
    assert texts(story) == [(0, "a", "completed"), (1, "b", "incomplete")]


@pytest.mark.parametrize("id", ["cmpl-1", "cmpl-2"], ids=["one id", "two ids"])
def test_the_usage_of_two_answers_in_one_source_is_that_of_both(id: str) -> None:
    """Each answer is a step with its own, whether or not the server gives each an id of its own."""
    items = [*HELLO, *({**item, "id": id} for item in HELLO)]
    for source in (items, iter(items), [sse(*items)]):
        stream = sk.stream(source)
        stream.until_done()
        assert [message.content for message in stream.messages] == ["Hello", "Hello"]
        assert [step.usage.total_tokens for step in stream.get_final_run_steps() if step.usage] == [7, 7]
        assert stream.usage is not None
        assert (stream.usage.input_tokens, stream.usage.total_tokens) == (6, 14)


@pytest.mark.parametrize("name", [name for name in protocols.BUILT_IN if name != "openai_completions"])
def test_no_other_protocol_recognises_its_chunks(name: str) -> None:
    assert not any(protocols.find(name).Decoder.recognises(item) for item in (*HELLO, *VLLM, *LLAMA_CPP))


def test_it_recognises_no_chat_completion() -> None:
    chat = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "a"}}]}
    assert not Decoder.recognises(chat)
    assert protocols.recognise(chat) is protocols.find("openai_chat").Decoder
    assert protocols.recognise(HELLO[0]) is Decoder


# -- the real client


@contextmanager
def serving(answer: bytes) -> Iterator[tuple[str, list[Any]]]:
    """The URL of a server that answers each request for a completion with these bytes, and the requests' bodies."""
    requests: list[Any] = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1", requests
        finally:
            server.shutdown()
            thread.join()


@every_face
@body
async def test_the_real_client_streams_through_it(face: Face) -> None:
    """The protocol is recognised, and the request takes what `to_input` returns."""
    prompt = to_input([sk.TextMessage("m", role="user", content="Say hello: ")])
    with serving(sse(*HELLO)) as (url, requests):
        async with face.client(url) as client:
            stream = face.stream(lambda: client.completions.create(model="m", prompt=prompt, stream=True))
            async with stream:
                deltas = [str(delta) async for delta in stream.text_deltas]
    assert deltas == ["Hel", "lo"]
    assert stream.usage.total_tokens == 7
    assert requests == [("/v1/completions", {"model": "m", "prompt": ["Say hello: "], "stream": True})]


def test_the_real_clients_stream_that_is_cut_off_is_incomplete() -> None:
    with serving(sse(HELLO[0], done=False)) as (url, _), openai.OpenAI(base_url=url, api_key="any") as client:
        stream = sk.stream(client.completions.create(model="m", prompt="", stream=True))
        with pytest.raises(sk.IncompleteStreamError):
            stream.until_done()
    assert [message.content for message in stream.messages] == ["Hel"]


def test_the_clients_typed_objects_are_read_as_well() -> None:
    stream = sk.stream([Completion.model_validate(item) for item in COMPLETE])
    assert stream.get_final_text() == "All of it."


# -- the way back


@pytest.mark.parametrize("items", [HELLO, TWO, LLAMA_CPP], ids=["openai", "two", "llama"])
def test_what_was_decoded_and_encoded_is_the_same_answer(items: Any) -> None:
    """In chunks that the client's own type takes, but for the null that the wire has before a finish_reason."""
    chunks = list(sk.stream([sse(*items)]).chunks("openai_completions"))
    for item in chunks:
        ended = [{**one, "finish_reason": one["finish_reason"] or "stop"} for one in item["choices"]]
        assert Completion.model_validate({**item, "choices": ended}).object == "text_completion"
    first, again = decode(*items), decode(*chunks)
    assert texts(again) == texts(first)
    one, other = first.engine.runs.run, again.engine.runs.run
    assert one is not None
    assert other is not None
    for name in ("id", "model", "created_at", "status", "finish_reason", "usage"):
        values = [getattr(run, name) for run in (one, other)]
        if name == "usage":
            values = [usage and usage.total_tokens for usage in values]
        assert values[0] == values[1], name
    deltas = [[event.metadata for event in s.events if isinstance(event, sk.TextDelta)] for s in (first, again)]
    assert deltas[0] == deltas[1]


def test_what_it_cannot_express_is_left_out_and_a_failure_is_an_error() -> None:
    error = {"message": "overloaded"}
    stream = sk.stream(
        [
            sk.ReasoningDelta("r", "Hm."),
            sk.TextDelta("t", "Hi"),
            sk.RunDone(sk.Run(status="failed", error=error)),
            sk.StreamEnd("failed"),
        ]
    )
    items: list[Any] = []
    with pytest.raises(sk.RunFailedError):
        items.extend(stream.chunks("openai_completions"))
    assert [item["choices"][0]["text"] for item in items[:-1]] == ["Hi"]
    assert items[-1] == {"error": error}


def test_a_prompt_is_the_texts_of_the_messages() -> None:
    """One text, joined; what has no text is left out, and what a user attached is refused."""
    messages = [
        sk.TextMessage("1", role="system", content="Be brief.\n"),
        sk.TextMessage("2", role="user", content="Hello"),
        sk.ReasoningMessage("3", content="Hm."),
        sk.TextMessage("4", content=" there"),
        sk.TextMessage("5", content="not this", choice=1),
    ]
    assert sk.to_input(messages, "openai_completions") == ["Be brief.\nHello there"]
    assert to_input([]) == to_input([messages[2]]) == []
    with pytest.raises(sk.UsageError, match="Legacy Completions cannot take the user's image"):
        to_input([sk.ImageMessage("6", role="user", format="url", content="https://example.org/a.png")])
