"""Bedrock's ConverseStream: the recorded streams, Amazon's binary framing, and the way back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

import streamkit as sk
from streamkit.protocols import bedrock_converse
from streamkit.protocols.bedrock_converse import Decoder, to_input
from streamkit.protocols.framing import as_frame, framer_for
from streamkit.testing import check_protocol

from ..recorded import SHARED, each_recording
from ..telling import Story, tell_items

STOPPED = {"messageStop": {"stopReason": "end_turn"}}


def message(name: str, payload: Any, **headers: str) -> bytes:
    """A message of Amazon's event stream."""
    named = {":event-type": name, ":content-type": "application/json", ":message-type": "event", **headers}
    encoded = b"".join(
        bytes([len(key)]) + key.encode() + b"\x07" + len(value.encode()).to_bytes(2) + value.encode()
        for key, value in named.items()
    )
    data = b"" if payload is None else json.dumps(payload).encode()
    prelude = (len(encoded) + len(data) + 16).to_bytes(4) + len(encoded).to_bytes(4)
    checked = prelude + crc32(prelude).to_bytes(4) + encoded + data
    return checked + crc32(checked).to_bytes(4)


def body(*items: Any) -> bytes:
    return b"".join(message(name, {**payload, "p": "abcdef"}) for item in items for name, payload in item.items())


def delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}


def start(index: int, **start: Any) -> dict[str, Any]:
    return {"contentBlockStart": {"contentBlockIndex": index, "start": start}}


def stop(index: int) -> dict[str, Any]:
    return {"contentBlockStop": {"contentBlockIndex": index}}


class Careful(Decoder):
    """The same decoder without its plain case."""

    plain_item = None


def decode(*items: Any) -> Story:
    """Both paths tell the same."""
    story = tell_items(Decoder, items)
    assert tell_items(Careful, items).lines == story.lines
    return story


def answer(*items: Any, reason: str = "end_turn") -> list[sk.Message]:
    story = decode({"messageStart": {"role": "assistant"}}, *items, {"messageStop": {"stopReason": reason}})
    assert story.codes == []
    return story.engine.messages.all


HELLO = ({"messageStart": {"role": "assistant"}}, delta(0, text="Hel"), delta(0, text="lo 🌧"), stop(0), STOPPED)
USAGE = {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {"latencyMs": 4}}}


def test_texts_side_by_side_end_in_the_order_in_which_their_blocks_stop() -> None:
    items = [delta(0, text="a"), delta(1, text="b"), delta(0, text="c"), stop(0), stop(1)]
    story = decode({"messageStart": {"role": "assistant"}}, *items, {"messageStop": {"stopReason": "end_turn"}})
    assert [line["message"]["content"] for line in story.lines if line["type"] == "text_done"] == ["ac", "b"]


# -- the recorded streams


def expected_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((path.parent / f"{path.stem}.expected.json").read_text())
    differences = {one["at"]: one["own"] for one in found.get("differences", ()) if "." not in one["at"]}
    return {**found, **differences, **found.get("own_reading", {})}


@each_recording("bedrock-converse", own=False)
def test_a_recording_says_what_a_careful_reading_of_it_says(path: Path) -> None:
    """Texts, reasoning, calls, stop reasons, token counts, signatures, what the server ran, errors."""
    expected = expected_of(path)
    stream = sk.stream(path)
    ends = (sk.RunFailedError, sk.IncompleteStreamError)
    with pytest.raises(ends) if path.name.startswith(("edge-cut", "edge-m")) else _nothing():
        stream.until_done()
    assert not stream.warnings
    messages, run = stream.messages, stream.current_run
    assert run is not None
    for said in expected["messages"]:
        assert "".join(m.content for m in messages if m.type == "message") == said["text"]
        assert "".join(m.content for m in messages if m.type == "reasoning") == said["reasoning"]
        assert run.finish_reason == said["finish_reason"]
    calls = [m for m in messages if isinstance(m, sk.ToolCallMessage)]
    assert [(c.call_id, c.name, c.arguments) for c in calls if not c.provider_executed] == [
        (c["id"], c["name"], c["arguments"]) for c in expected["tool_calls"]
    ]
    if usage := expected.get("usage"):
        assert stream.usage is not None
        assert [stream.usage.input_tokens, stream.usage.output_tokens, stream.usage.total_tokens] == [
            usage[key] for key in ("inputTokens", "outputTokens", "totalTokens")
        ]
    ran = [
        m for m in messages if m.type == "tool_output" or (isinstance(m, sk.ToolCallMessage) and m.provider_executed)
    ]
    assert {m.call_id for m in ran} == {one["id"] for one in expected.get("server_tools", ())}
    own = [m.metadata.get("bedrock_converse", {}) for m in messages if m.type == "reasoning"]
    assert [[len(one.get("signature", "")), len(one.get("redactedContent", ""))] for one in own if one] == [
        [one["signature_chars"], one["redacted_base64_chars"]] for one in expected.get("signatures", ())
    ]
    assert [len(m.content) for m in messages if m.type == "image"] == [
        one["base64_chars"] for one in expected.get("images", ())
    ]
    assert len([a for m in messages if isinstance(m, sk.TextMessage) for a in m.annotations]) == len(
        expected.get("citations", ())
    )
    assert run.error is None or run.error["message"] == expected.get("error", run.error)["message"]


def _nothing() -> Any:
    import contextlib

    return contextlib.nullcontext()


@each_recording("bedrock-invoke", own=False)
def test_a_stream_of_invoke_is_one_of_the_protocol_inside_of_it(path: Path) -> None:
    """Claude's is one of Messages; Nova's has Converse's events, and a block for each piece of a text; older models' is plain text."""
    expected = expected_of(path)
    stream = sk.stream(path)
    stream.until_done()
    (said,) = expected["messages"]
    assert "".join(m.content for m in stream.messages if m.type == "message") == said["text"]
    assert len([m for m in stream.messages if m.type == "message"]) <= 1
    calls = [m for m in stream.messages if isinstance(m, sk.ToolCallMessage)]
    assert [(c.name, c.arguments) for c in calls] == [(c["name"], c["arguments"]) for c in expected["tool_calls"]]
    assert stream.current_run is not None and stream.current_run.finish_reason == said["finish_reason"]
    counts = [value for key, value in expected["usage"].items() if key.lower().startswith(("input", "output"))]
    assert stream.usage is not None
    assert [stream.usage.input_tokens, stream.usage.output_tokens] == counts
    assert not stream.warnings


METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 1, "outputTokenCount": 2}}
PLAIN = {
    "titan": (
        {"outputText": "Hel", "index": 0.0, "inputTextTokenCount": 1.0},
        {"outputText": "lo", "index": 0.0, "completionReason": "LENGTH", **METRICS},
    ),
    "titan, blocked": (
        {"outputText": "Hello", "index": 0},
        {"outputText": "", "index": 0, "amazon-bedrock-trace": {"guardrail": {}}, **METRICS},
    ),
    "llama": (
        {"generation": "Hel", "prompt_token_count": 1, "generation_token_count": 1, "stop_reason": None},
        {
            "generation": "lo",
            "prompt_token_count": None,
            "generation_token_count": 2,
            "stop_reason": "length",
            **METRICS,
        },
    ),
    "cohere": (
        {"is_finished": False, "text": "Hello", "index": 0},
        {"is_finished": False, "text": "Other", "index": 1},
        {"is_finished": True, "finish_reason": "MAX_TOKENS", **METRICS},
    ),
    "claude": (
        {"completion": "Hello", "stop_reason": None, "stop": None},
        {"completion": "", "stop_reason": "max_tokens", "stop": None, **METRICS},
    ),
}


@pytest.mark.parametrize("model", PLAIN)
def test_a_body_of_plain_text_is_an_answer_with_tokens_and_a_reason(model: str) -> None:
    """That was cut short, or with several texts, of which the first is the answer. Without a reason the stream was cut off."""
    chunks = [{"chunk": {"bytes": base64.b64encode(json.dumps(item).encode()).decode()}} for item in PLAIN[model]]
    stream = sk.stream([body(*chunks)])
    assert stream.get_final_text() == "Hello"
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (1, 2)  # type: ignore[union-attr]
    assert stream.get_final_run().status == "incomplete"
    assert not stream.warnings
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream([body(*chunks[:-1])]).until_done()


@pytest.mark.slow
def test_the_recordings_keep_the_laws() -> None:
    """Cut at any byte, on three faces, damaged, cut off, encoded and decoded again."""
    names = (
        "pydanticai-code-execution-tool-stream.0",
        "rubyllm-citations-with-bedrock-claude-haiku-4-5-streams-citations.0",
    )
    paths = [SHARED / "bedrock-converse" / f"{name}.eventstream" for name in names]
    if not all(path.exists() for path in paths):
        pytest.skip("the recorded bedrock-converse streams are not beside this checkout")
    assert check_protocol(bedrock_converse, [*paths, body(*HELLO, USAGE)], attempts=25).notes == []


# -- Amazon's framing


def test_every_cut_of_the_bytes_gives_the_same_messages() -> None:
    whole = body(*HELLO, USAGE)
    frames = frames_of([whole])
    assert [json.loads(data) for data in frames][1]["contentBlockDelta"]["delta"] == {"text": "Hel"}
    assert frames_of([bytes([byte]) for byte in whole]) == frames
    for place in range(1, len(whole)):
        assert frames_of([whole[:place], whole[place:]]) == frames


def frames_of(pieces: list[bytes]) -> list[bytes]:
    framer = framer_for(b"\0")
    assert framer is not None
    return [as_frame(frame)[2] for piece in pieces for frame in framer.feed(piece)] + [
        as_frame(frame)[2] for frame in framer.finish()
    ]


def checked(prelude: bytes, rest: bytes) -> bytes:
    """A message with these lengths, and right checksums."""
    message = prelude + crc32(prelude).to_bytes(4) + rest
    return message + crc32(message).to_bytes(4)


def changed(message: bytes, place: int) -> bytes:
    return message[:place] + bytes([message[place] ^ 1]) + message[place + 1 :]


LOST = body(delta(0, text="lost"))
DAMAGED = {
    "checksum is wrong": changed(LOST, -10),
    "checksum of its lengths is wrong": changed(LOST, 2),
    "length of 12 bytes": checked((12).to_bytes(4) + bytes(4), b""),
    "headers are longer than itself": checked((20).to_bytes(4) + (9).to_bytes(4), b"{}{}"),
    "header is longer than all of them": checked((24).to_bytes(4) + (8).to_bytes(4), b"\x01a\x07\x00\x09bcd"),
    "header has the type 77": checked((20).to_bytes(4) + (4).to_bytes(4), b"\x01aM\x00"),
}


@pytest.mark.parametrize("fault", DAMAGED)
@pytest.mark.parametrize("size", [1, 10_000], ids=["byte by byte", "at once"])
def test_a_damaged_message_fails_the_stream_after_what_came_before_it(fault: str, size: int) -> None:
    """An answer without one of its pieces would look complete."""
    before = body(*HELLO[:2])
    whole = before + DAMAGED[fault] + body(*HELLO[2:])
    pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
    stream = sk.stream(pieces)
    with pytest.raises(sk.SourceError, match=f"message 3 of the body, which begins at byte {len(before)}.*{fault}"):
        stream.until_done()
    assert [(one.content, one.status) for one in stream.messages] == [("Hel", "failed")]


def test_a_body_that_ends_in_a_message_was_cut_off() -> None:
    """Amazon's own client ends then as if all were well."""
    whole = body(*HELLO)
    for end in (len(whole) - 1, len(whole) - 40, 20):
        with pytest.raises(sk.IncompleteStreamError):
            sk.stream([whole[:end]]).until_done()


@pytest.mark.parametrize(
    ("failing", "code", "words"),
    [
        (
            message(
                "",
                {"message": "Slow down."},
                **{":message-type": "exception", ":exception-type": "throttlingException"},
            ),
            "throttlingException",
            "Slow",
        ),
        (
            message(
                "", None, **{":message-type": "error", ":error-code": "InternalFailure", ":error-message": "Broken"}
            ),
            "InternalFailure",
            "Broken",
        ),
    ],
)
def test_an_exception_ends_the_run_with_its_type(failing: bytes, code: str, words: str) -> None:
    """The HTTP status was 200. Another attempt may succeed."""
    stream = sk.stream([body(*HELLO[:2]) + failing])
    with pytest.raises(sk.RunFailedError, match=words) as raised:
        stream.until_done()
    assert (raised.value.code, stream.messages[0].status) == (code, "failed")
    attempts = iter([[failing], [body(*HELLO)]])
    assert (
        sk.stream(
            lambda: next(attempts), protocol="bedrock_converse", retry=sk.Retry(attempts=2, max_wait=0.01)
        ).get_final_text()
        == "Hello 🌧"
    )


# -- blocks


def test_a_piece_of_a_text_is_the_same_in_both_paths() -> None:
    """Wherever it comes: in a text, in none, in one that is over, beside something else, or in a call."""
    call = start(2, toolUse={"toolUseId": "t", "name": "f"})
    pieces = (
        delta(0, text="a"),
        delta(0, text="b"),
        delta(0, text=""),
        delta(0, text=None),
        delta(0, text="c", more=1),
    )
    texts = (*pieces, delta(1, text="d"), delta(0, text="e"), stop(0), delta(0, text="f"), call, delta(2, text="g"))
    story = decode({"messageStart": {"role": "assistant"}}, *texts, STOPPED, delta(1, text="h"), USAGE)
    assert [one.content for one in story.engine.messages.all if one.type == "message"] == ["abcef", "dh", "g"]


def test_a_run_ends_with_the_source_because_the_usage_comes_last() -> None:
    stream = sk.stream([*HELLO, USAGE])
    assert stream.get_final_text() == "Hello 🌧"
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (1, 2)
    assert stream.current_run is not None
    assert stream.current_run.metadata["metrics"] == {"latencyMs": 4}


def test_a_call_that_was_cut_short_is_not_complete_and_one_without_arguments_is() -> None:
    cut = answer(
        start(0, toolUse={"toolUseId": "a", "name": "f"}),
        delta(0, toolUse={"input": '{"x'}),
        stop(0),
        reason="max_tokens",
    )
    assert [(m.status, to_input([m])) for m in cut] == [("incomplete", [])]
    (call,) = answer(
        start(0, toolUse={"toolUseId": "a", "name": "f"}), delta(0, toolUse={"input": ""}), stop(0), reason="tool_use"
    )
    assert (call.status, call.content) == ("completed", "")
    assert to_input([call])[0]["content"] == [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]


def test_texts_without_citations_are_one_and_a_citation_may_come_before_or_after_its_text() -> None:
    """Nova sends each piece as a block, and a citation in a block after it; Claude sends it first."""
    (text,) = answer(delta(0, text="a"), stop(0), delta(1, text="b"), stop(1))
    assert text.content == "ab"
    cited = {
        "title": "t",
        "sourceContent": [{"text": "q"}],
        "location": {"documentChar": {"documentIndex": 0, "start": 1, "end": 2}},
    }
    web = {"location": {"web": {"url": "https://x", "domain": "x"}}}
    plain, claude, after = messages = answer(
        *(delta(0, text="Plain. "), stop(0)),
        *(delta(1, citation=cited), delta(1, text="Cited."), stop(1)),
        *(delta(2, text="Found."), stop(2), delta(3, citation=web), stop(3)),
    )
    assert isinstance(claude, sk.TextMessage) and isinstance(after, sk.TextMessage)
    assert [(a.title, a.quote, a.url) for a in (*claude.annotations, *after.annotations)] == [
        ("t", "q", None),
        (None, None, "https://x"),
    ]
    assert to_input(messages)[0]["content"] == [
        {"text": plain.content},
        {"citationsContent": {"content": [{"text": "Cited."}], "citations": [cited]}},
        {"citationsContent": {"content": [{"text": "Found."}], "citations": [web]}},
    ]


def test_reasoning_goes_back_signed_or_encrypted_and_in_its_place() -> None:
    """Amazon's client takes blobs as bytes, and gives them so. Reasoning alone is no turn."""
    data = base64.b64encode(b"secret").decode()
    messages = answer(
        *(delta(0, reasoningContent={"text": "Hm."}), delta(0, reasoningContent={"signature": "s1"})),
        *(delta(0, reasoningContent={"signature": "s2"}), stop(0)),
        *(delta(1, reasoningContent={"redactedContent": b"secret"}), stop(1)),
        *(delta(2, reasoningContent={"redactedContent": data}), stop(2)),
        *(delta(3, reasoningContent={"text": "Unsigned."}), stop(3)),
        *(delta(4, text="Yes."), stop(4)),
    )
    redacted = {"reasoningContent": {"redactedContent": b"secret"}}
    signed = {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s1s2"}}}
    assert to_input(messages) == [{"role": "assistant", "content": [signed, redacted, redacted, {"text": "Yes."}]}]
    assert to_input(messages[:-1]) == []


def test_what_the_server_ran_goes_back_in_the_assistants_turn_and_the_results_of_ours_in_the_users() -> None:
    """All results of a turn in one message, before the next question: the roles alternate."""
    messages = answer(
        start(0, toolUse={"toolUseId": "s", "name": "nova_grounding", "type": "server_tool_use"}),
        *(delta(0, toolUse={"input": '{"q": 1}'}), stop(0)),
        start(1, toolResult={"toolUseId": "s", "type": "nova_grounding_result", "status": "success"}),
        *(delta(1, toolResult=[{"json": {"found": 2}}]), stop(1)),
        *(
            start(2, toolUse={"toolUseId": "a b", "name": "f", "type": "tool_use"}),
            delta(2, toolUse={"input": "{}"}),
            stop(2),
        ),
        *(start(3, toolUse={"toolUseId": "c", "name": "f"}), stop(3)),
        reason="tool_use",
    )
    outputs = [
        sk.ToolOutputMessage("o1", call_id="a b", content="one"),
        sk.ToolOutputMessage("o2", call_id="c", content="no", metadata={"error": True}),
    ]
    question = sk.TextMessage(role="user", content="And?")
    assert to_input([*messages, *outputs, question]) == [
        {
            "role": "assistant",
            "content": [
                {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "type": "server_tool_use", "input": {"q": 1}}},
                {
                    "toolResult": {
                        "type": "nova_grounding_result",
                        "status": "success",
                        "toolUseId": "s",
                        "content": [{"json": {"found": 2}}],
                    }
                },
                {"toolUse": {"toolUseId": "a_b", "name": "f", "type": "tool_use", "input": {}}},
                {"toolUse": {"toolUseId": "c", "name": "f", "input": {}}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a_b", "content": [{"text": "one"}], "status": "success"}},
                {"toolResult": {"toolUseId": "c", "content": [{"text": "no"}], "status": "error"}},
                {"text": "And?"},
            ],
        },
    ]
