"""Ollama's own protocol: recorded streams, what its lines leave open, errors and cut streams, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.protocols import ollama
from streamkit.protocols.ollama import Decoder, Encoder, to_input
from streamkit.testing import ModelServer, Reply, ToolCall, check_protocol

from ..recorded import each_recording, own_recordings
from ..telling import Story, tell_bytes, tell_items

HEAD = {"model": "m", "created_at": "2026-01-01T00:00:00.5Z"}
COUNTS = {"prompt_eval_count": 3, "eval_count": 4, "eval_duration": 5_000}


class Careful(Decoder):
    """The same decoder without its plain case."""

    plain_item = None


def line(content: str = "", *, done: bool = False, more: Any = None, **message: Any) -> dict[str, Any]:
    return {**HEAD, "message": {"role": "assistant", "content": content, **message}, "done": done, **(more or {})}


def call(name: str = "f", arguments: Any = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"name": name, "arguments": {} if arguments is None else arguments}}


END = line(done=True, more={"done_reason": "stop", **COUNTS})


def lines(*items: Any) -> bytes:
    return b"".join(json.dumps(item, ensure_ascii=False).encode() + b"\n" for item in items)


def tell(*items: Any) -> Story:
    """Both paths tell the same."""
    story = tell_bytes(Decoder, [lines(*items)])
    assert tell_bytes(Careful, [lines(*items)]).lines == story.lines
    return story


def shown(story: Story) -> list[tuple[str, str]]:
    return [(message.type, message.content) for message in story.engine.messages.all]


def run_of(story: Story) -> sk.Run:
    assert story.engine.runs.run is not None
    return story.engine.runs.run


def after(*items: Any) -> sk.StreamManager:
    """A stream that has been read."""
    stream = sk.stream([lines(*items)])
    stream.until_done()
    return stream


# -- recordings


@each_recording("ollama", own=False)
def test_a_recording_gives_what_is_expected(path: Path) -> None:
    """The texts, the reasoning, the calls with the ids that the official client drops, the counts, the error."""
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    expected |= expected.get("own_reading") or {}
    story = tell_bytes(Decoder, [path.read_bytes()])
    (answer,) = expected["messages"]
    assert "".join(story.contents("message")) == answer["text"]
    assert "".join(story.contents("reasoning")) == answer["reasoning"]
    calls = [one for one in story.engine.messages.all if isinstance(one, sk.ToolCallMessage)]
    assert [{"id": one.call_id, "name": one.name, "arguments": one.arguments} for one in calls] == expected[
        "tool_calls"
    ]
    run, usage = run_of(story), story.engine.runs.usage
    if error := expected.get("error"):
        assert (run.status, (run.error or {})["message"]) == ("failed", error)
        return
    assert run.finish_reason == ("tool_calls" if calls else answer["finish_reason"])
    counts = expected["usage"]
    found = (0, 0) if usage is None else (usage.input_tokens, usage.output_tokens)
    assert found == (counts.get("prompt_eval_count", 0), counts.get("eval_count", 0))
    durations = {key: value for key, value in counts.items() if key.endswith("_duration")}
    assert durations.items() <= run.metadata.items()


def test_it_keeps_the_laws() -> None:
    """With all that the lines can have."""
    everything = [
        line(thinking="Hm."),
        line("Let me "),
        line("look.", more={"logprobs": [{"token": "look", "logprob": -0.5}]}),
        line(thinking="Two."),
        line(images=["iVBORw0KGgo="]),
        line(tool_calls=[call("f", {"a": [1, None]}, id="call_1"), call("f", {"a": [1, None]}, id="call_2")]),
        line(tool_calls=[call("g")]),
        END,
    ]
    check_protocol(ollama, [lines(*everything)], attempts=10)


# -- what the lines leave open


def test_a_text_ends_before_the_call_that_follows_it() -> None:
    types = tell(line("Let me look."), line(tool_calls=[call("g")]), END).types
    assert types.index("text_done") < types.index("tool_call_created")


def test_the_probabilities_of_a_line_with_both_are_those_of_its_text() -> None:
    deltas = [
        one for one in tell(line("a", thinking="b", more={"logprobs": [{"token": "a"}]}), END).lines if "value" in one
    ]
    assert [(one["value"], "logprobs" in (one.get("metadata") or {})) for one in deltas] == [("b", False), ("a", True)]


def test_a_text_and_reasoning_end_where_the_other_begins() -> None:
    """A model may think again after it has written."""
    story = tell(line(thinking="a"), line(thinking="b"), line("c", thinking="B"), line("d"), line(thinking="e"), END)
    assert shown(story) == [("reasoning", "abB"), ("message", "cd"), ("reasoning", "e")]


def test_each_call_is_a_call_of_its_own() -> None:
    """Several in one line or in several, with the same name, arguments and index, with an id or without one."""
    same = {"function": {"index": 0, "name": "f", "arguments": {"a": 1}}}
    story = tell(line(tool_calls=[same, same]), line(tool_calls=[{**same, "id": "call_1"}]), END)
    calls = [one for one in story.engine.messages.all if isinstance(one, sk.ToolCallMessage)]
    assert [(one.call_id, one.arguments) for one in calls] == [(None, {"a": 1}), (None, {"a": 1}), ("call_1", {"a": 1})]
    assert len({one.id for one in calls}) == 3


@pytest.mark.parametrize("streamed", [True, False])
def test_the_last_line_may_hold_the_whole_answer(streamed: bool) -> None:
    """As servers of late 2026 send calls, and as each answers without a stream."""
    last = line("Hi.", thinking="Hm.", tool_calls=[call("f", {"a": 1}, id="c")], done=True, more=COUNTS)
    story = tell(line("Well. "), last) if streamed else tell_items(Decoder, [last])
    kinds = [("reasoning", "Hm."), ("message", "Hi."), ("tool_call", '{"a":1}')]
    assert shown(story) == ([("message", "Well. "), *kinds] if streamed else kinds)
    assert run_of(story).finish_reason == "tool_calls"


def test_a_generated_text_is_read_too() -> None:
    """With its context, which the next request may send back."""
    head = {"model": "m", "done": False}
    items = [{**head, "response": "", "thinking": "Hm."}, {**head, "response": "Hel"}, {**head, "response": "lo"}]
    stream = after(*items, {**head, "response": "", "done": True, "context": [1, 2], **COUNTS})
    assert stream.get_final_text() == "Hello"
    assert stream.get_final_run().metadata["context"] == [1, 2]
    assert [message.type for message in stream.messages] == ["reasoning", "message"]


@pytest.mark.parametrize(
    ("stated", "reason", "status"),
    [
        ("stop", "stop", "completed"),
        ("length", "length", "incomplete"),
        ("load", "stop", "completed"),
        ("", "stop", "completed"),
        (None, "stop", "completed"),
        ("aborted", "aborted", "completed"),
    ],
)
def test_how_an_answer_ends(stated: str | None, reason: str, status: str) -> None:
    """Cut short, everything that arrived is returned."""
    stream = after(line("Hi"), line(done=True, more={} if stated is None else {"done_reason": stated}))
    run = stream.get_final_run()
    assert (stream.get_final_text(), run.finish_reason, run.status) == ("Hi", reason, status)
    assert (run.model, run.created_at, stream.usage) == ("m", 1767225600.5, None)


def test_counts_are_those_of_the_last_line() -> None:
    """A cached prompt is not counted."""
    usage = after(line("Hi"), END).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (3, 4)
    cached = after(line("Hi"), line(done=True, more={"eval_count": 4})).usage
    assert cached is not None
    assert (cached.input_tokens, cached.output_tokens) == (0, 4)


def test_lines_end_at_line_feeds_alone() -> None:
    """Other readers split at what else Unicode calls the end of a line."""
    text = "a\u0085b\u2028c\x0bd\x1ce"
    assert after(line(text), END).get_final_text() == text


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (line(tool_calls="f"), "bad-calls"),
        (line(tool_calls=[{"function": {}}]), "bad-call"),
        (line(tool_calls=[None]), "bad-call"),
        (line(thinking=1), "bad-text"),
        ({**HEAD, "message": {"content": ["a"]}, "done": False}, "bad-text"),
    ],
)
def test_what_is_malformed_is_skipped(item: Any, code: str) -> None:
    story = tell(line("Hel"), item, line("lo"), END)
    assert (story.codes, story.contents("message")) == ([code], ["Hello"])


def test_reasoning_in_tags_is_told_apart_where_that_is_wanted() -> None:
    """Models without a parser of the server's write it so."""
    stream = sk.stream([lines(line("<think>Hm.</"), line("think>Hi."), END)], reasoning_tag="think")
    assert stream.get_final_text() == "Hi."
    assert stream.messages[0].content == "Hm."


# -- errors


@pytest.mark.parametrize("before", [(), (line("Half an "),)])
def test_an_error_line_fails_the_run(before: Any) -> None:
    """In the middle of an answer, and before it."""
    stream = sk.stream([lines(*before, {"error": "unexpected EOF"})], protocol="ollama")
    with pytest.raises(sk.RunFailedError, match="unexpected EOF"):
        stream.until_done()
    assert [message.status for message in stream.messages] == ["failed"] * len(before)


def test_a_stream_that_ends_before_its_last_line_was_cut_off() -> None:
    stream = sk.stream([lines(line("Half an "), line("answer"))])
    with pytest.raises(sk.IncompleteStreamError):
        stream.until_done()
    assert stream.messages[0].content == "Half an answer"


def test_the_last_line_may_lack_its_newline() -> None:
    assert sk.stream([lines(line("Hi"), END)[:-1]]).get_final_text() == "Hi"


# -- the way back

QUESTION = sk.TextMessage("q", role="user", content="?")


def outputs(stream: sk.StreamManager) -> list[sk.Message]:
    """A result of each call, the last call's first."""
    calls = [one for one in stream.messages if isinstance(one, sk.ToolCallMessage)]
    return [
        sk.ToolOutputMessage(f"{one.id}.o", call_id=one.call_id or one.id, content=f"of {one.content}")
        for one in reversed(calls)
    ]


def test_an_answer_goes_back_as_it_came() -> None:
    """Its reasoning, its text and its calls in one message, with the ids that came and no others; the results in the order of the
    calls."""
    calls = [
        {"id": "call_1", "function": {"index": 0, "name": "f", "arguments": {"b": 1, "a": {"c": None}}}},
        {"function": {"name": "g", "arguments": {}}},
    ]
    stream = after(line(thinking="Hm. "), line(thinking="Two."), line("I look."), line(tool_calls=calls), END)
    _, answer, first, second = sk.to_input([QUESTION, *stream.messages, *outputs(stream)], "ollama")
    expected = {"role": "assistant", "content": "I look.", "thinking": "Hm. Two.", "tool_calls": calls}
    assert json.dumps(answer) == json.dumps(expected)
    content = 'of {"b":1,"a":{"c":null}}'
    assert first == {"role": "tool", "content": content, "tool_name": "f", "tool_call_id": "call_1"}
    assert second == {"role": "tool", "content": "of {}", "tool_name": "g"}
    saved = [sk.Message.from_dict(message.to_dict()) for message in stream.messages]
    assert sk.to_input(saved, "ollama") == sk.to_input(stream.messages, "ollama")


def test_two_rounds_of_calls_are_two_turns() -> None:
    """Also where a later run has calls with the same ids, as those that streamkit names have."""
    answer = after(line(tool_calls=[call("f")]), END)
    once = [QUESTION, *answer.messages, *outputs(answer)]
    sent = sk.to_input([*once, *once], "ollama")
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"] * 2
    assert [message["content"] for message in sent if message["role"] == "tool"] == ["of {}"] * 2


def test_what_another_provider_sent_goes_to_ollama() -> None:
    """Its calls with their ids, not its reasoning."""
    left_out: list[protocols.LeftOut] = []
    conversation = [
        sk.TextMessage("s", role="system", content="Be brief."),
        QUESTION,
        sk.ReasoningMessage("r", content="Hm."),
        sk.ToolCallMessage("c", call_id="toolu_1", name="f", content="{broken"),
        sk.ToolOutputMessage("o", call_id="toolu_1", content="no"),
        sk.CodeMessage("p", format="python", content="1 + 1"),
    ]
    sent = sk.to_input(conversation, "ollama", report=left_out.append)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "assistant"]
    assert sent[2]["tool_calls"] == [{"id": "toolu_1", "function": {"name": "f", "arguments": {}}}]
    assert sent[4]["content"] == "```python\n1 + 1\n```"
    assert [str(one) for one in left_out] == ["reasoning 'r' was left out: it is reasoning of another protocol"]


def test_what_a_user_attached_is_sent_or_refused() -> None:
    picture = sk.ImageMessage("i", role="user", format="base64.png", content="aGk=")
    assert sk.to_input([QUESTION, picture], "ollama") == [{"role": "user", "content": "?", "images": ["aGk="]}]
    for refused in (
        sk.ImageMessage("u", role="user", format="url", content="https://x"),
        sk.FileMessage("f", role="user", format="file_id", content="f"),
    ):
        with pytest.raises(sk.UsageError, match="Ollama cannot take the user's"):
            to_input([refused])


# -- the encoder, where it leaves something out


@pytest.mark.parametrize(("status", "content"), [("incomplete", '{"a": 1}'), ("completed", '{"a')])
def test_no_reader_makes_a_call_that_did_not_come_complete(status: Any, content: str) -> None:
    call = sk.ToolCallMessage("c", name="f", content=content, status=status)
    assert [*Encoder().feed(sk.ToolCallDone(call))] == []


def test_a_line_has_nothing_of_another_providers_run_in_its_own_keys() -> None:
    run = sk.Run(status="completed", model="m", metadata={"message": 1, "error": 2, "done": 3, "service_tier": "flex"})
    (last,) = Encoder().feed(sk.RunDone(run))
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["service_tier"], "error" in last) == (True, "flex", False)


# -- the model server


def test_the_model_server_speaks_it() -> None:
    """A recording too: byte for byte where it is Ollama's, else encoded."""
    import httpx

    (own,) = (path for path in own_recordings("ollama") if path.stem == "tool-call")
    (chat,) = (path for path in own_recordings("openai-chat") if path.stem == "tool-call")
    replies = [Reply("Hi.", ToolCall("f", {"a": 1})), Reply(recording=own), Reply(recording=chat), Reply(status=404)]
    with ModelServer(replies) as server:

        def ask(**more: Any) -> httpx.Response:
            return httpx.post(f"{server.root_url}/api/chat", json={"model": "m", "messages": [], **more})

        whole = ask(stream=False).json()
        assert whole["message"]["content"] == "Hi."
        assert whole["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"a": 1}}
        recorded, encoded, refused = ask(), ask(), ask()
        assert recorded.headers["content-type"] == "application/x-ndjson"
        assert recorded.content == own.read_bytes()
        assert [sk.stream([one.content]).get_final_text() for one in (recorded, encoded)] == ["Let me look."] * 2
        assert (refused.status_code, refused.json()) == (404, {"error": Reply(status=404).error.message})


def test_a_server_that_numbers_the_calls_of_each_answer_from_0_has_all_of_them_answered() -> None:
    """The second call with an id is another one, and no repetition of the first."""
    asks = [line(tool_calls=[call(id="call_0")]), END]
    sources = iter([asks, asks, [line("Bye."), END]])

    class Answering(sk.EventHandler):
        def on_tool_call_done(self, call: sk.ToolCallMessage) -> None:
            if call.waiting:
                call.respond("cold")

    stream = sk.stream(next(sources), Answering(), then=lambda _: next(sources, None), protocol="ollama")
    assert stream.get_final_text() == "Bye."
    assert [m.type for m in stream.messages] == ["tool_call", "tool_output"] * 2 + ["message"]
