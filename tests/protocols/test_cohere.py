"""Cohere's chat, version 2: recorded streams, blocks, plans, calls and citations, how it fails, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit import protocols
from streamkit.protocols import cohere
from streamkit.protocols.cohere import Decoder, Encoder
from streamkit.protocols.framing import sse_frame
from streamkit.testing import ModelServer, Reasoning, Reply, ToolCall, check_protocol

from ..recorded import each_recording, own_recordings
from ..telling import Story, tell_bytes, tell_items


class Careful(Decoder):
    """The same decoder without its plain case."""

    plain_item = None


def item(type: str, index: int | None = None, more: Any = None, **message: Any) -> dict[str, Any]:
    position = {} if index is None else {"index": index}
    return {"type": type, **position, "delta": {"message": message}, **(more or {})}


def content(text: Any, index: int = 0, key: str = "text", **more: Any) -> dict[str, Any]:
    return item("content-delta", index, more, content={key: text})


def begin(index: int = 0, type: str = "text") -> dict[str, Any]:
    return item("content-start", index, content={"type": type, type: ""})


def plan(text: str) -> dict[str, Any]:
    return item("tool-plan-delta", tool_plan=text)


def call(index: int, name: str, *pieces: str, id: str | None = None) -> list[dict[str, Any]]:
    head = {"id": id or f"{name}_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
    deltas = [item("tool-call-delta", index, tool_calls={"function": {"arguments": piece}}) for piece in pieces]
    return [item("tool-call-start", index, tool_calls=head), *deltas, {"type": "tool-call-end", "index": index}]


def citation(start: int, end: int, text: str, **more: Any) -> dict[str, Any]:
    document = {"id": "d", "title": "T", "url": "https://x", "text": "long"}
    sources = [{"type": "document", "id": "doc:0", "document": document}]
    wire = {"start": start, "end": end, "text": text, "sources": sources, "type": "TEXT_CONTENT", **more}
    return item("citation-start", 0, citations=wire)


def end(reason: str | None = "COMPLETE", **more: Any) -> dict[str, Any]:
    return {"type": "message-end", "delta": {"finish_reason": reason, **more}}


START = {"id": "a", **item("message-start", role="assistant", content=[], tool_plan="", tool_calls=[], citations=[])}
TOKENS = {"billed_units": {"input_tokens": 2, "output_tokens": 3}, "cached_tokens": 4}
USAGE = {"tokens": {"input_tokens": 5.0, "output_tokens": 6, "reasoning_tokens": 1}, **TOKENS}


def sse(*items: Any, done: bool = True) -> bytes:
    frames = [sse_frame(json.dumps(one).encode(), one["type"]) for one in items]
    return b"".join([*frames, b"data: [DONE]\n\n" if done else b""])


def tell(*items: Any) -> Story:
    """Both paths tell the same."""
    story = tell_bytes(Decoder, [sse(*items)])
    assert tell_bytes(Careful, [sse(*items)]).lines == story.lines
    return story


def shown(story: Story) -> list[tuple[str, str, str]]:
    return [(one.type, one.content, one.status) for one in story.engine.messages.all]


def after(*items: Any) -> sk.StreamManager:
    """A stream that has been read."""
    stream = sk.stream([sse(*items)])
    stream.until_done()
    return stream


# -- recordings


@each_recording("cohere", own=False)
def test_a_recording_gives_what_is_expected(path: Path) -> None:
    """The texts, thinking and plans, the calls, the counts, the citations, and the errors."""
    expected = json.loads(path.with_name(f"{path.stem}.expected.json").read_text())
    (answer,) = expected["messages"]
    story = tell_bytes(Decoder, [path.read_bytes()])
    messages = story.engine.messages.all
    assert "".join(story.contents("message")) == answer["text"]
    reasoning = [one for one in messages if isinstance(one, sk.ReasoningMessage)]
    plans = [one.content for one in reasoning if one.metadata["cohere"]]
    assert "".join(one.content for one in reasoning if not one.metadata["cohere"]) == answer["reasoning"]
    assert "".join(plans) == answer["tool_plan"]
    calls = [one for one in messages if isinstance(one, sk.ToolCallMessage)]
    found = [
        {"id": one.call_id, "name": one.name, "arguments_text": one.content, "arguments": one.arguments}
        for one in calls
    ]
    assert found == expected["tool_calls"]
    run, usage = story.engine.runs.run, story.engine.runs.usage
    assert run is not None
    assert run.id == expected["id"]
    assert expected.get("error") == (run.error and run.error["message"])
    reasons = {"COMPLETE": "stop", "TOOL_CALL": "tool_calls", "MAX_TOKENS": "length", "ERROR": "error"}
    assert run.finish_reason == reasons[answer["finish_reason"]]
    assert expected["usage"] == ({} if usage is None else counts(usage))
    texts = [one for one in messages if isinstance(one, sk.TextMessage)]
    cited = [(note, text) for text in texts for note in text.annotations]
    for note, text in cited:  # places are counted in characters
        assert text.content[note.start : note.end] == note.quote
    keys = ("start", "end", "text", "type", "content_index")
    assert [{key: note.raw.get(key) for key in keys} for note, _ in cited] == [
        {key: one.get(key) for key in keys} for one in expected.get("citations", ())
    ]


def counts(usage: sk.Usage) -> dict[str, Any]:
    """A usage in the form of the wire."""
    apart = {key: value for key, value in usage.details.items() if key in ("billed_units", "cached_tokens")}
    tokens = {key: value for key, value in usage.details.items() if key not in apart}
    return {**apart, "tokens": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, **tokens}}


def test_it_keeps_the_laws() -> None:
    """With all that a stream can have."""
    everything = [
        START,
        *(begin(0, "thinking"), content("Hm", 0, "thinking"), content(".", 0, "thinking")),
        *(
            {"type": "content-end", "index": 0},
            begin(1),
            content("It is ", 1),
            content("7 °C", 1, logprobs={"text": "7"}),
        ),
        *(citation(6, 10, "7 °C", content_index=1), {"type": "citation-end", "index": 0}, content(".", 1)),
        *({"type": "content-end", "index": 1}, plan("I will "), plan("look.")),
        *(*call(0, "f", '{"a"', ": 1}"), *call(1, "g")),
        end("TOOL_CALL", usage=USAGE),
    ]
    check_protocol(cohere, [sse(*everything)], attempts=10)


# -- what a stream says


def test_blocks_plans_and_calls_are_messages() -> None:
    """Indexes count from 0 for each kind. A plan ends where anything else comes."""
    story = tell(
        START,
        *(begin(0, "thinking"), content("Hm.", 0, "thinking"), {"type": "content-end", "index": 0}),
        *(plan("I "), plan("look."), *call(0, "f", '{"a"', ": 1}"), *call(1, "g")),
        *(begin(1), content("Wait.", 1), {"type": "content-end", "index": 1}, end("TOOL_CALL")),
    )
    assert shown(story) == [
        ("reasoning", "Hm.", "completed"),
        ("reasoning", "I look.", "completed"),
        ("tool_call", '{"a": 1}', "completed"),
        ("tool_call", "", "completed"),
        ("message", "Wait.", "completed"),
    ]
    calls = [one for one in story.engine.messages.all if isinstance(one, sk.ToolCallMessage)]
    assert [(one.call_id, one.arguments) for one in calls] == [("f_0", {"a": 1}), ("g_1", {})]


def test_a_citation_is_an_annotation_of_its_text() -> None:
    """It may come while the text is open, or after it. Older streams do not say of which text."""
    before = [START, begin(0, "thinking"), content("Hm.", 0, "thinking"), begin(1), content("It is 7 °C", 1)]
    over = {"type": "content-end", "index": 1}
    for items in ([citation(6, 10, "7 °C", content_index=1), over], [over, citation(6, 10, "7 °C")]):
        stream = after(*before, *items, end())
        (text,) = [one for one in stream.messages if isinstance(one, sk.TextMessage)]
        (note,) = text.annotations
        assert text.content[note.start : note.end] == note.quote == "7 °C"
        assert (note.title, note.url, note.file_id) == ("T", "https://x", "doc:0")


@pytest.mark.parametrize("type", ["PLAN", "THINKING_CONTENT"])
def test_a_citation_of_reasoning_is_a_raw_event(type: str) -> None:
    """An annotation is of a text."""
    story = tell(START, begin(0), content("Hi"), citation(0, 1, "I", type=type), end())
    assert [event.name for event in story.events if isinstance(event, sk.RawEvent)] == ["citation-start"]


@pytest.mark.parametrize(
    ("stated", "reason", "status"),
    [
        ("COMPLETE", "stop", "completed"),
        ("STOP_SEQUENCE", "stop", "completed"),
        ("MAX_TOKENS", "length", "incomplete"),
        ("NEW_REASON", "NEW_REASON", "completed"),
        (None, None, "completed"),
    ],
)
def test_how_an_answer_ends(stated: str | None, reason: str | None, status: str) -> None:
    stream = after(START, begin(), content("Hi"), end(stated))
    run = stream.get_final_run()
    assert (stream.get_final_text(), run.id, run.finish_reason, run.status) == ("Hi", "a", reason, status)


def test_what_is_charged_stands_apart_from_what_was_counted() -> None:
    """The SDK makes fractions of the counts."""
    usage = after(START, begin(), content("Hi"), end(usage=USAGE)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 6, 11)
    assert usage.details == {"reasoning_tokens": 1, **TOKENS}


def test_an_answer_without_a_stream_says_the_same() -> None:
    message = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "7 °C"}],
        "tool_plan": "I look.",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        "citations": [{"start": 0, "end": 1, "text": "7", "sources": [], "content_index": 1}],
    }
    story = tell_items(Decoder, [{"id": "a", "finish_reason": "TOOL_CALL", "message": message, "usage": USAGE}])
    kinds = [("reasoning", "Hm."), ("message", "7 °C"), ("reasoning", "I look."), ("tool_call", "{}")]
    assert [(type, content) for type, content, _ in shown(story)] == kinds
    run = story.engine.runs.run
    assert run is not None
    assert (run.id, run.finish_reason, story.codes) == ("a", "tool_calls", [])
    assert [note.quote for note in story.engine.messages.all[1].annotations] == ["7"]  # type: ignore[attr-defined]


def test_what_is_odd_is_read_or_skipped() -> None:
    """Calls in a list, as early versions sent them; new kinds of events and blocks; a piece of a call that has not begun."""
    start = item("tool-call-start", 0, tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}])
    stray = item("tool-call-delta", 7, tool_calls={"function": {"arguments": "{"}})
    new = [{"type": "new-event", "delta": {}}, begin(3, "audio"), {"type": "debug", "prompt": "x"}]
    story = tell(START, start, stray, *new, content(1), end("TOOL_CALL"))
    assert shown(story) == [("tool_call", "{}", "completed")]
    assert story.codes == ["unknown-call"]
    assert [event.name for event in story.events if isinstance(event, sk.RawEvent)] == ["new-event", "content audio"]


# -- failures


@pytest.mark.parametrize("reason", ["ERROR", "TIMEOUT"])
def test_a_failure_comes_in_the_last_event(reason: str) -> None:
    """The official client reports it as any other event."""
    stream = sk.stream(
        [sse(START, plan("I will"), end(reason, error="no valid call", error_type="INVALID_TOOL_GENERATION"))]
    )
    with pytest.raises(sk.RunFailedError, match="no valid call"):
        stream.until_done()
    run = stream.current_run
    assert run is not None
    assert run.error is not None
    assert (run.status, run.finish_reason) == ("failed", reason.lower())
    assert run.error["type"] == "INVALID_TOOL_GENERATION"
    assert stream.messages[0].content == "I will"


@pytest.mark.parametrize("done", [True, False])
def test_a_stream_without_its_last_event_was_cut_off(done: bool) -> None:
    """Whether `[DONE]` comes or not."""
    stream = sk.stream([sse(START, begin(), content("Half"), done=done)])
    with pytest.raises(sk.IncompleteStreamError):
        stream.until_done()
    assert sk.stream([sse(START, begin(), content("Hi"), end(), done=False)]).get_final_text() == "Hi"


def test_a_failed_tool_generation_is_worth_another_attempt() -> None:
    failed = sse(START, plan("I will"), end("ERROR", error="no valid call", error_type="INVALID_TOOL_GENERATION"))
    sources = iter([[failed], [sse(START, begin(), content("Hi"), end())]])
    stream = sk.stream(lambda: next(sources), retry=sk.Retry(2, restart=True))
    assert stream.get_final_text() == "Hi"


# -- the way back

QUESTION = sk.TextMessage("q", role="user", content="?")


def test_an_answer_goes_back_as_it_came() -> None:
    """Its thinking, its plan, its text and its calls in one message; the results in the order of the calls."""
    arguments = '{ "b": 1, "a": 2 }'
    stream = after(
        START,
        *(begin(0, "thinking"), content("Hm.", 0, "thinking"), {"type": "content-end", "index": 0}),
        *(begin(1), content("I look.", 1), plan("First f."), *call(0, "f", arguments), *call(1, "g"), end("TOOL_CALL")),
    )
    calls = [one for one in stream.messages if isinstance(one, sk.ToolCallMessage)]
    outputs = [sk.ToolOutputMessage(f"o{one.id}", call_id=one.call_id, content=f"of {one.name}") for one in calls]
    saved = [sk.Message.from_dict(one.to_dict()) for one in (*stream.messages, *reversed(outputs))]
    assert sk.to_input([QUESTION, *saved], "cohere") == [
        {"role": "user", "content": "?"},
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "I look."}],
            "tool_plan": "First f.",
            "tool_calls": [
                {"id": "f_0", "type": "function", "function": {"name": "f", "arguments": arguments}},
                {"id": "g_1", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "f_0", "content": "of f"},
        {"role": "tool", "tool_call_id": "g_1", "content": "of g"},
    ]


def test_what_another_provider_sent_goes_to_cohere() -> None:
    """But its reasoning. Arguments that are no JSON object are sent as an empty one."""
    left_out: list[protocols.LeftOut] = []
    conversation = [
        sk.TextMessage("s", role="system", content="Be brief."),
        QUESTION,
        sk.ReasoningMessage("r", content="Hm."),
        sk.ToolCallMessage("c", call_id="toolu_1", name="f", content="{broken"),
        sk.ToolOutputMessage("o", call_id="toolu_1", content="no"),
        sk.TextMessage("t", content="Done."),
    ]
    sent = sk.to_input(conversation, "cohere", report=left_out.append)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool", "assistant"]
    assert sent[2]["tool_calls"][0] == {
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    assert sent[4] == {"role": "assistant", "content": "Done."}
    assert [str(one) for one in left_out] == ["reasoning 'r' was left out: it is reasoning of another protocol"]


def test_what_a_user_attached_is_sent_or_refused() -> None:
    pictures = [
        sk.ImageMessage("i", role="user", format="base64.png", content="aGk="),
        sk.ImageMessage("u", role="user", format="url", content="https://x"),
    ]
    (sent,) = sk.to_input([QUESTION, *pictures], "cohere")
    urls = [part["image_url"]["url"] for part in sent["content"][1:]]
    assert (sent["content"][0]["text"], urls) == ("?", ["data:image/png;base64,aGk=", "https://x"])
    with pytest.raises(sk.UsageError, match="Cohere cannot take the user's"):
        sk.to_input([sk.FileMessage("f", role="user", format="file_id", content="f")], "cohere")


# -- the encoder


def test_another_providers_citation_becomes_one_of_cohere() -> None:
    """Its words, its place, and a source with its title and address."""
    note = sk.Annotation(type="url_citation", url="https://x", title="X", quote="Hi", start=0, end=2)
    text = sk.TextMessage("t", content="Hi")
    events = [
        sk.TextCreated(text),
        sk.TextDelta("t", "Hi"),
        sk.AnnotationAdded("t", note),
        sk.TextDone(text),
        sk.StreamEnd(),
    ]
    encoder = Encoder()
    items = [one for event in sk.stream(events) for one in encoder.items(event)]
    stream = sk.stream(items)
    stream.until_done()
    (back,) = stream.messages[0].annotations  # type: ignore[attr-defined]
    assert (back.url, back.title, back.quote, back.start, back.end) == ("https://x", "X", "Hi", 0, 2)


def test_the_model_server_speaks_it() -> None:
    """A recording too: byte for byte where it is Cohere's, else encoded."""
    import httpx

    (own,) = (path for path in own_recordings("cohere") if path.stem == "tool-call")
    (chat,) = (path for path in own_recordings("openai-chat") if path.stem == "tool-call")
    whole_answer = Reply(Reasoning("Hm."), "Hi.", ToolCall("f", {"a": 1}))
    with ModelServer([whole_answer, Reply(recording=own), Reply(recording=chat), Reply(status=429)]) as server:

        def ask(**more: Any) -> httpx.Response:
            return httpx.post(f"{server.root_url}/v2/chat", json={"model": "m", "messages": [], **more})

        whole = ask().json()
        assert whole["message"]["content"] == [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi."}]
        assert whole["message"]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
        assert whole["finish_reason"] == "TOOL_CALL"
        recorded, encoded, refused = (ask(stream=True) for _ in range(3))
        assert recorded.content == own.read_bytes()
        assert [sk.stream([one.content]).get_final_text() for one in (recorded, encoded)] == ["Let me look."] * 2
        assert (refused.status_code, refused.json()["message"]) == (429, Reply(status=429).error.message)
