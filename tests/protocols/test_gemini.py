"""Gemini's generateContent: the recorded streams, the forms of its parts, and the way back."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols import gemini
from streamkit.protocols.framing import as_frame, framer_for
from streamkit.protocols.gemini import Decoder, to_input
from streamkit.testing import check_protocol

from ..recorded import SHARED, each_recording
from ..telling import Story, tell_items

FINISHED = {"finishReason": "STOP"}
SIGNATURE = "Ci8+c2lnbmVk/w=="


def chunk(*parts: Any, index: int | None = None, **candidate: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    content = {"content": {"role": "model", "parts": [*parts]}} if parts else {}
    return {"candidates": [{**content, **candidate, **place}], "modelVersion": "gemini-x", "responseId": "r"}


def decode(*items: Any) -> Story:
    return tell_items(Decoder, items)


def answer(*parts: Any, **candidate: Any) -> list[sk.Message]:
    """The messages of an answer of which each part comes in a chunk of its own."""
    story = decode(*map(chunk, parts), chunk(**{**FINISHED, **candidate}))
    assert story.codes == []
    return story.engine.messages.all


def call(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {**({"name": name} if name else {}), **fields}}


def partial(path: str, going_on: bool = True, more: bool = False, **value: Any) -> dict[str, Any]:
    argument = {"jsonPath": path, **value, **({"willContinue": True} if more else {})}
    return call(partialArgs=[argument], **({"willContinue": True} if going_on else {}))


# -- the recorded streams


def expected_of(path: Path) -> dict[str, Any]:
    """What a careful reading of the recording gives: where the official SDK loses a value, what it loses."""
    found: dict[str, Any] = json.loads((path.parent / f"{path.stem}.expected.json").read_text())
    return {**found, **{one["at"]: one["own"] for one in found.get("differences", ())}, **found.get("own_reading", {})}


def signatures(parts: Iterable[Any]) -> list[dict[str, Any]]:
    """Where an answer is signed, and how long the signatures are."""
    found = []
    for part in parts:
        if signature := part.get("thoughtSignature"):
            keys = [key for key in part if key not in ("thoughtSignature", "thought", "text")]
            text = ("text" if part["text"] else "empty text") if "text" in part else "alone"
            found.append({"on": keys[0] if keys else text, "chars": len(signature)})
    return found


@each_recording("gemini", own=False)
def test_a_recording_says_what_a_careful_reading_of_it_says(path: Path) -> None:
    """Texts, thoughts, calls, finish reasons and token counts; errors; what Gemini ran and made; its citations."""
    expected = expected_of(path)
    stream = sk.stream(path)
    if "error" in expected:
        with pytest.raises(sk.RunFailedError) as failed:
            stream.until_done()
        assert failed.value.body == expected["error"]
    else:
        try:
            stream.until_done()
        except (sk.IncompleteStreamError, sk.RunFailedError):
            assert path.name.startswith("edge-")
    run, messages = stream.current_run, stream.messages
    assert run is not None
    assert not stream.warnings
    reasons = {"0": run.finish_reason, **run.metadata.get("finish_reasons", {})}
    for said in expected["messages"]:
        of_choice = [message for message in messages if message.choice == said["candidate"]]
        assert "".join(m.content for m in of_choice if m.type == "message") == said["text"]
        assert "".join(m.content for m in of_choice if m.type == "reasoning") == said["reasoning"]
        reason = "STOP" if said["finish_reason"] == 1 else said["finish_reason"]  # some clients request numbers
        assert reasons[str(said["candidate"])] == reason
    calls = [m for m in messages if isinstance(m, sk.ToolCallMessage)]
    ours = [{"id": c.call_id, "name": c.name, "arguments": c.arguments} for c in calls if not c.provider_executed]
    assert ours == expected["tool_calls"]
    check_usage(stream.usage, expected.get("usage"))
    check_what_gemini_did(messages, expected)


def check_usage(usage: sk.Usage | None, expected: Any) -> None:
    """What the last chunk counts, and what it does not: a count that is not repeated stays."""
    if expected is None:
        assert usage is None
        return
    assert usage is not None
    count = {key: value for key, value in expected.items() if key.endswith("TokenCount")}
    assert usage.input_tokens == count.get("promptTokenCount", 0) + count.get("toolUsePromptTokenCount", 0)
    if "candidatesTokenCount" in count:
        assert usage.output_tokens == count["candidatesTokenCount"] + count.get("thoughtsTokenCount", 0)
    if "totalTokenCount" in count:
        assert usage.total_tokens == count["totalTokenCount"]
    rest = {key for key in expected if key not in ("promptTokenCount", "candidatesTokenCount", "totalTokenCount")}
    assert {key: usage.details[key] for key in rest} == {key: expected[key] for key in rest}


def check_what_gemini_did(messages: list[sk.Message], expected: Any) -> None:
    images = [m for m in messages if m.type == "image"]
    assert [{"mime_type": f"image/{m.format[7:]}", "base64_chars": len(m.content)} for m in images if m.format] == (
        expected.get("images", [])
    )
    ran = [m for m in messages if m.type in ("code", "console")]
    texts = [
        value.get("code", value.get("output")) for one in expected.get("code_execution", ()) for value in one.values()
    ]
    assert [m.content for m in ran] == texts
    tools = [
        m
        for m in messages
        if m.type == "tool_output" or (m.type == "tool_call" and m.metadata["gemini"].get("toolCall"))
    ]
    assert [(m.call_id, m.name) for m in tools] == [(t["id"], t["tool_type"]) for t in expected.get("server_tools", ())]
    cited = [a for m in messages if isinstance(m, sk.TextMessage) for a in m.annotations]
    assert [{"url": a.url, "title": a.title} for a in cited] == expected.get("citations", [])
    contents = to_input([m for m in messages if m.choice == 0])
    sent = [part for content in contents for part in content["parts"]]
    assert [one["chars"] for one in signatures(sent)] == [one["chars"] for one in expected.get("signatures", ())]


def items_of(path: Path) -> list[Any]:
    body = path.read_bytes()
    framer = framer_for(body)
    assert framer is not None
    return [json.loads(as_frame(frame)[2]) for frame in (*framer.feed(body), *framer.finish())]


@each_recording("gemini", own=False)
def test_what_came_in_a_recording_goes_back_as_it_came(path: Path) -> None:
    """Each part with its signature, in its place. Texts without one are joined, and so are the pieces of arguments."""
    came = [
        part
        for item in items_of(path)
        for candidate in item.get("candidates", ())
        if not candidate.get("index")
        for part in candidate.get("content", {}).get("parts", ())
    ]
    story = decode(*items_of(path))
    contents = to_input([message for message in story.engine.messages.all if message.status == "completed"])
    sent = [part for content in contents for part in content["parts"]]
    assert [content["role"] for content in contents] in ([], ["model"])
    assert [one.get("thoughtSignature") for one in sent if "thoughtSignature" in one] == [
        one["thoughtSignature"] for one in came if "thoughtSignature" in one
    ]
    assert "".join(part.get("text", "") for part in sent) == "".join(
        part["text"] for part in came if "text" in part and not part.get("thought") and story.decoder.complete and sent
    )
    if not any("partialArgs" in part.get("functionCall", {}) for part in came):
        assert [part for part in sent if "text" not in part] == [part for part in came if "text" not in part]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "edge-image-between-texts.sse",
        "edge-error-pretty-json-no-data-prefix.sse",
        "llmgemini-tools.1.array.json",
        "openinference-validate-token-counts-stream.0.sse",
        "pydanticai-file-search-grounding-gemini-3-true.3.sse",
        "vercel-stream-tool-call-array-arguments-missing-terminal-function-call.jsonl",
    ],
)
def test_a_recording_of_each_kind_keeps_the_laws(name: str) -> None:
    """Cut at any byte, on three faces, damaged, cut off, encoded and decoded again."""
    path = SHARED / "gemini" / name
    if not path.exists():
        pytest.skip("the recorded gemini streams are not beside this checkout")
    report = check_protocol(gemini, [path], attempts=25)
    assert [note for note in report.notes if "ends with" not in note] == []


# -- framings


def test_a_body_without_alt_sse_and_one_that_is_not_streamed_are_read_as_well() -> None:
    """A list of chunks over many lines, or one answer over many lines."""
    text = 'It is }]{ "cold".'
    items = [chunk({"text": text[:9]}), chunk({"text": text[9:]}, **FINISHED)]
    whole = json.dumps(chunk({"text": text}, **FINISHED), indent=2)
    for body in (json.dumps(items), json.dumps(items, indent=2), whole, whole.replace("\n", "\r\n")):
        assert sk.stream([body.encode()]).get_final_text() == text
        assert sk.stream([bytes([byte]) for byte in body.encode()]).get_final_text() == text


def test_a_list_that_breaks_off_has_its_whole_chunks_and_may_end_with_an_error() -> None:
    body = json.dumps([chunk({"text": "Half an "}), chunk({"text": "answer"}), chunk(**FINISHED)], indent=1).encode()
    stream = sk.stream([body[: body.index(b"finishReason")]])
    with pytest.raises(sk.IncompleteStreamError):
        stream.until_done()
    assert stream.messages[0].content == "Half an answer"
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    for failing in ([chunk({"text": "Half"}), error], [error]):
        with pytest.raises(sk.RunFailedError, match="overloaded") as raised:
            sk.stream([json.dumps(failing).encode()]).until_done()
        assert raised.value.code == "503"


def test_a_proxys_chunks_are_read_inside_of_what_it_wraps_them_in() -> None:
    stream = sk.stream([{"response": chunk({"text": "Hi."}, **FINISHED), "traceId": "t"}])
    assert (stream.get_final_text(), stream.current_run.model) == ("Hi.", "gemini-x")


# -- messages


def test_what_is_signed_stays_apart_and_what_is_not_is_one_text() -> None:
    """An empty text with a signature is a part of the text before it, and adds no delta."""
    parts = [
        {"text": "On"},
        {"text": "e."},
        {"text": " Two.", "thoughtSignature": SIGNATURE},
        {"text": " Three."},
        {"text": ""},
        {"text": "", "thoughtSignature": "c2ln"},
    ]
    (text,) = messages = answer(*parts)
    assert text.content == "One. Two. Three."
    assert to_input(messages) == [{"role": "model", "parts": [{"text": "One."}, parts[2], parts[3], parts[5]]}]
    changed = sk.Message.from_dict({**text.to_dict(), "content": "Four."})
    assert to_input([changed])[0]["parts"] == [{"text": "Four."}, {**parts[2], "text": ""}, parts[5]]


def test_a_signature_that_stands_alone_is_a_message_of_its_own_and_no_thought() -> None:
    """In its place: before the text, after a call, or in a part that has nothing else."""
    alone = [
        {"text": "", "thoughtSignature": "YQ=="},
        call("f", args={}),
        {"text": "", "thoughtSignature": "Yg=="},
        {"thoughtSignature": "Yw=="},
    ]
    messages = answer(*alone)
    assert [message.type for message in messages] == ["part", "tool_call", "part", "part"]
    assert to_input(messages) == [{"role": "model", "parts": alone}]


def test_thoughts_are_a_summary_of_reasoning_and_go_back_where_they_are_signed() -> None:
    thought = {"text": "Hm.", "thought": True}
    messages = answer(thought, {"text": "Yes."})
    assert [(m.type, m.format) for m in messages] == [("reasoning", "summary"), ("message", None)]
    left: list[Any] = []
    assert to_input(messages) == [{"role": "model", "parts": [{"text": "Yes."}]}]
    sk.to_input(messages, "gemini", report=left.append)
    assert [one.message.type for one in left] == ["reasoning"]
    signed = {**thought, "thoughtSignature": SIGNATURE}
    assert to_input(answer(signed, {"text": "Yes."}))[0]["parts"] == [signed, {"text": "Yes."}]


def test_candidates_are_choices_of_which_each_has_its_end() -> None:
    story = decode(chunk({"text": "a"}, index=0), chunk({"text": "b"}, index=1, finishReason="MAX_TOKENS"))
    assert story.decoder.complete is False
    story = decode(
        chunk({"text": "a"}, index=0),
        chunk({"text": "b"}, index=1, finishReason="MAX_TOKENS"),
        chunk({"text": "c"}, index=0, **FINISHED),
    )
    run = story.engine.runs.run
    assert [(m.choice, m.content, m.status) for m in story.engine.messages.all] == [
        (0, "ac", "completed"),
        (1, "b", "incomplete"),
    ]
    assert run is not None
    assert run.metadata == {"finish_reasons": {"0": "STOP", "1": "MAX_TOKENS"}}


def test_candidates_without_an_index_are_numbered_by_their_places() -> None:
    chunks = [chunk({"text": text}, **more) for text, more in (("a", {}), ("b", {}), ("A", FINISHED), ("B", FINISHED))]
    both = [
        {**one, "candidates": [*one["candidates"], *other["candidates"]]}
        for one, other in zip(chunks[::2], chunks[1::2], strict=True)
    ]
    assert [(m.choice, m.content) for m in decode(*both).engine.messages.all] == [(0, "aA"), (1, "bB")]


def test_token_counts_that_come_again_are_one_event() -> None:
    """Gemini repeats them in each chunk."""
    counts = {"usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 3, "totalTokenCount": 11}}
    story = decode({**chunk({"text": "a"}), **counts}, {**chunk({"text": "b"}, **FINISHED), **counts})
    assert story.types.count("usage") == 1


def test_a_finish_reason_may_come_before_the_text() -> None:
    """Some translators of other APIs send it in the first chunk, and again in the last."""
    story = decode(chunk(finishReason=1), chunk({"text": "Hi."}), chunk(finishReason="MAX_TOKENS"))
    assert [(m.content, m.status) for m in story.engine.messages.all] == [("Hi.", "incomplete")]


def test_an_image_and_a_sound_are_messages_and_go_back() -> None:
    """A sound in several parts is one. Google's client writes base64 in the alphabet for URLs."""
    sounds = [base64.b64encode(piece).decode() for piece in (b"ab", b"cde")]
    parts: list[Any] = [{"inlineData": {"mimeType": "audio/L16;codec=pcm;rate=24000", "data": data}} for data in sounds]
    image = {"inlineData": {"mimeType": "image/png", "data": "-_-_"}, "thoughtSignature": SIGNATURE}
    sound, picture = messages = answer(*parts, image)
    assert isinstance(sound, sk.AudioMessage)
    assert (sound.format, sound.data) == ("pcm16", b"abcde")
    assert (picture.type, picture.format, picture.content) == ("image", "base64.png", "+/+/")
    whole = {"inlineData": {**parts[0]["inlineData"], "data": base64.b64encode(b"abcde").decode()}}
    sent = {**image, "inlineData": {"mimeType": "image/png", "data": "+/+/"}}
    assert to_input(messages) == [{"role": "model", "parts": [whole, sent]}]


def test_a_member_that_nobody_knows_yet_is_not_lost() -> None:
    parts = [{"hologram": {"size": 3}}, {"inlineData": {"mimeType": "video/mp4", "data": "YQ=="}}]
    messages = answer(*parts)
    assert [message.type for message in messages] == ["part", "part"]
    assert to_input(messages) == [{"role": "model", "parts": parts}]


# -- calls


def streamed(*parts: Any) -> sk.ToolCallMessage:
    (found,) = [m for m in answer(*parts) if isinstance(m, sk.ToolCallMessage)]
    return found


def test_arguments_that_come_with_their_paths_are_json_while_they_come() -> None:
    """Objects and lists have no opening of their own, and the end may be missing."""
    parts = [
        call("order", willContinue=True),
        partial("$.items[0].name", more=True, stringValue='An "ap'),
        partial("$.items[0].name", stringValue="ple\\"),
        partial("$.items[0].price", numberValue=0.5),
        partial("$.items[1]['odd key']", boolValue=True),
        partial("$.items[2][0].deep", nullValue="NULL_VALUE"),
        partial("$.count", numberValue=3.0),
        partial("$.empty", more=True),
        partial("$.note", going_on=False, stringValue=""),
    ]
    seen: list[Any] = []

    class Watching(sk.EventHandler):
        def on_tool_call_delta(self, delta: sk.ToolCallDelta, snapshot: sk.ToolCallMessage) -> None:
            seen.append(json.loads(json.dumps(snapshot.arguments)))

    sk.stream([*map(chunk, parts), chunk(**FINISHED)], Watching()).until_done()
    assert seen[0] == {"items": [{"name": 'An "ap'}]}
    assert seen[3] == {"items": [{"name": 'An "apple\\', "price": 0.5}, {"odd key": True}]}
    whole = {
        "items": [{"name": 'An "apple\\', "price": 0.5}, {"odd key": True}, [{"deep": None}]],
        "count": 3,
        "empty": "",
        "note": "",
    }
    assert seen[-1] == streamed(*parts).arguments == streamed(*parts[:-1]).arguments | {"note": ""} == whole
    assert json.loads(streamed(*parts).content) == whole
    with_end = [*parts[:-1], partial("$.note", stringValue=""), call()]
    assert streamed(*with_end).content == streamed(*parts).content


def test_calls_that_are_streamed_follow_each_other_without_an_index() -> None:
    """A new name ends the one before; one without arguments is a name alone."""
    calls = answer(
        call("a", willContinue=True),
        partial("$.x", more=True, stringValue="1"),
        call("b"),
        call("c", willContinue=True),
        partial("$.x", numberValue=1),
        call(),
    )
    assert [(c.name, c.content, c.status) for c in calls] == [
        ("a", '{"x":"1"}', "completed"),
        ("b", "", "completed"),
        ("c", '{"x":1}', "completed"),
    ]


@pytest.mark.parametrize(
    "argument",
    [
        {"jsonPath": "$.list[7]", "stringValue": "x"},
        {"jsonPath": "$.done", "stringValue": "again"},
        {"jsonPath": "$.done.inside", "stringValue": "x"},
        {"jsonPath": "$[0]", "stringValue": "x"},
        {"jsonPath": "$", "stringValue": "x"},
        {"jsonPath": "$..any[*]", "stringValue": "x"},
        {"jsonPath": 7, "stringValue": "x"},
        {"jsonPath": "$.nothing"},
    ],
)
def test_an_argument_that_has_no_place_is_skipped_with_a_warning(argument: Any) -> None:
    """The others stay, and the text is JSON."""
    story = decode(
        chunk(call("f", willContinue=True)),
        chunk(partial("$.done", stringValue="yes")),
        chunk(call(partialArgs=[argument], willContinue=True)),
        chunk(partial("$.last", numberValue=1)),
        chunk(call()),
        chunk(**FINISHED),
    )
    assert story.codes == ["bad-argument"]
    assert story.contents("tool_call") == ['{"done":"yes","last":1}']


def test_a_call_that_is_cut_off_is_not_complete() -> None:
    for end in ([], [chunk(finishReason="MAX_TOKENS")]):
        story = decode(chunk(call("f", willContinue=True)), chunk(partial("$.a", more=True, stringValue="b")), *end)
        (cut,) = story.engine.messages.all
        assert (cut.status, to_input([cut])) == ("incomplete", [])


def outputs(*values: tuple[str, Any]) -> list[sk.Message]:
    return [sk.ToolOutputMessage(f"out-{id}", call_id=id, content=value) for id, value in values]


def test_the_outputs_of_a_turn_go_back_in_one_content_in_the_order_of_its_calls() -> None:
    """With the ids that came, and without those that did not; an output that is no object stands in one."""
    with_ids = answer(
        {**call("a", args={"n": 1}, id="x"), "thoughtSignature": SIGNATURE}, call("a", args={"n": 2}, id="y")
    )
    contents = to_input([*with_ids, *outputs(("y", '{"two": 2}'), ("x", "one"))])
    assert contents[1] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": "x", "name": "a", "response": {"result": "one"}}},
            {"functionResponse": {"id": "y", "name": "a", "response": {"two": 2}}},
        ],
    }
    without = answer(call("a"), call("a"))
    failed = sk.ToolOutputMessage(call_id=without[0].id, content="no", metadata={"error": True})
    question = sk.TextMessage(role="user", content="And now?")
    contents = to_input([*without, *outputs((without[1].id, "[2]")), failed, question])
    assert contents == [
        {"role": "model", "parts": [call("a"), call("a")]},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "a", "response": {"error": "no"}}},
                {"functionResponse": {"name": "a", "response": {"result": "[2]"}}},
            ],
        },
        {"role": "user", "parts": [{"text": "And now?"}]},
    ]


def test_the_first_call_of_another_providers_turn_has_the_documented_signature() -> None:
    """Parallel calls have one, and no id that Gemini does not know."""
    foreign = [sk.ToolCallMessage(id, call_id=id, name="f", content="{}") for id in ("toolu_1", "toolu_2")]
    (model, user) = to_input([*foreign, *outputs(("toolu_1", "a"), ("toolu_2", "b"))])
    first = {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
    assert model["parts"] == [first, {"functionCall": {"name": "f", "args": {}}}]
    assert [part["functionResponse"]["response"]["result"] for part in user["parts"]] == ["a", "b"]


# -- what Gemini ran and cites


def test_code_that_gemini_ran_and_its_own_tools_go_back_as_they_came() -> None:
    parts = [
        {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c1"}, "thoughtSignature": SIGNATURE},
        {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "1", "id": "c1"}},
        {"executableCode": {"language": "PYTHON", "code": "pass"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK"}},
        {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["q"]}, "id": "t"}},
        {
            "toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"n": 1}, "id": "t"},
            "thoughtSignature": "YQ==",
        },
    ]
    code, console, other, nothing, tool, output = messages = answer(*parts)
    assert (code.type, code.format, code.call_id, console.call_id, console.status) == (
        "code",
        "python",
        "c1",
        "c1",
        "failed",
    )
    assert other.call_id == nothing.call_id == other.id
    assert isinstance(tool, sk.ToolCallMessage)
    assert (tool.provider_executed, tool.arguments, output.call_id) == (True, {"queries": ["q"]}, "t")
    assert to_input(messages) == [{"role": "model", "parts": parts}]


def test_the_place_of_a_citation_is_in_characters_of_its_text() -> None:
    """Gemini counts the bytes of all texts of the answer, without thoughts; a source without a segment has no place."""
    text = "Müll: 日本語 🌧. End."
    quote = "日本語 🌧"
    start = len(b"First. ") + len("Müll: ".encode())
    segment = {"startIndex": start, "endIndex": start + len(quote.encode()), "text": quote}
    sources = [{"web": {"uri": f"https://{name}", "title": name}} for name in "ab"]
    grounding = {
        "groundingChunks": sources,
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [1, 9]}],
    }
    earlier = {"segment": {"endIndex": 5, "text": "First"}, "groundingChunkIndices": [1]}
    grounding["groundingSupports"].append(earlier)
    citation = {"citations": [{"startIndex": 7, "endIndex": 8, "uri": "https://c"}]}
    story = decode(
        chunk({"text": "Thinking", "thought": True}),
        chunk({"text": "First. "}),
        chunk(call("f")),
        *(chunk({"text": text[at : at + 3]}, groundingMetadata={}) for at in range(0, len(text), 3)),
        chunk(**FINISHED, groundingMetadata=grounding, citationMetadata=citation),
    )
    assert story.codes == []
    message = story.engine.messages.all[-1]
    assert isinstance(message, sk.TextMessage)
    placed, unplaced, recited = message.annotations
    assert message.content[placed.start : placed.end] == placed.quote == quote
    assert (placed.url, unplaced.url, unplaced.start) == ("https://b", "https://a", None)
    assert (recited.type, recited.url, recited.start, recited.end) == ("citation", "https://c", 0, 1)
    run = story.engine.runs.run
    assert run is not None
    assert run.metadata["groundingMetadata"] == grounding


def test_a_text_that_another_provider_cited_is_grounded() -> None:
    text = sk.TextMessage(
        "t", content="Über Oslo.", annotations=[{"type": "url_citation", "url": "https://o", "start": 5, "end": 9}]
    )
    done = sk.RunDone(run=sk.Run(status="completed"))
    events = [sk.RunCreated(run=sk.Run(id="r")), sk.TextDone(text), done, sk.StreamEnd()]
    (*_, last) = sk.stream(events).chunks("gemini")
    segment = {"startIndex": 6, "endIndex": 10, "text": "Oslo"}
    assert last["candidates"][0]["groundingMetadata"]["groundingSupports"] == [
        {"segment": segment, "groundingChunkIndices": [0]}
    ]
    stream = sk.stream(sk.stream(events).chunks("gemini"))
    assert stream.get_final_text() == "Über Oslo."
    (message,) = stream.messages
    assert isinstance(message, sk.TextMessage)
    assert [(a.url, a.start, a.end) for a in message.annotations] == [("https://o", 5, 9)]


# -- endings


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("STOP", "completed"),
        ("MAX_TOKENS", "incomplete"),
        ("SAFETY", "incomplete"),
        ("NEWEST", "completed"),
        (2, "incomplete"),
    ],
)
def test_a_finish_reason_says_how_the_answer_ended(reason: Any, status: str) -> None:
    stream = sk.stream([chunk({"text": "Hi"}, finishReason=reason)])
    assert stream.get_final_text() == "Hi"
    assert stream.status == status


def test_an_answer_that_the_model_spoiled_has_failed_and_another_attempt_may_succeed() -> None:
    """The call that it wrote is at best in the finishMessage."""
    spoiled = [chunk(finishReason="MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: f(x")]
    with pytest.raises(sk.RunFailedError, match=r"f\(x") as raised:
        sk.stream(spoiled).until_done()
    assert raised.value.code == "MALFORMED_FUNCTION_CALL"
    attempts = iter([spoiled, [chunk({"text": "Hi."}, **FINISHED)]])
    stream = sk.stream(lambda: next(attempts), retry=sk.Retry(attempts=2, max_wait=0.01))
    assert stream.get_final_text() == "Hi."


def test_a_blocked_prompt_is_refused_with_its_reason() -> None:
    feedback = {"blockReason": "SAFETY", "blockReasonMessage": "Not that."}
    stream = sk.stream([{"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 7}, "responseId": "r"}])
    assert stream.get_final_text() == ""
    run = stream.current_run
    assert run is not None
    assert (stream.status, run.finish_reason) == ("incomplete", "SAFETY")
    assert [(m.format, m.content) for m in stream.messages] == [("refusal", "Not that.")]
    assert to_input(stream.messages) == []


def test_token_counts_are_the_last_of_each_kind_and_are_never_added() -> None:
    counts = [
        {"promptTokenCount": 9, "thoughtsTokenCount": 5},
        {"promptTokenCount": 8, "candidatesTokenCount": 3, "totalTokenCount": 16},
        {"toolUsePromptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 19, "serviceTier": "flex"},
    ]
    story = decode(*({**chunk({"text": "a"}), "usageMetadata": one} for one in counts), chunk(**FINISHED))
    usage = story.engine.runs.usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (12, 7, 19)
    assert usage.details == {"thoughtsTokenCount": 5, "toolUsePromptTokenCount": 4, "serviceTier": "flex"}


def test_an_answer_after_another_one_is_a_step_of_its_own() -> None:
    """Google's client calls functions itself where it may, and yields all answers as one stream, with the outputs in between."""
    first = {**chunk(call("f", args={}), **FINISHED), "usageMetadata": {"promptTokenCount": 3}}
    output = {
        "content": {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "cold"}}}]}
    }
    second = {
        **chunk({"text": "It is cold."}, **FINISHED),
        "responseId": "r2",
        "usageMetadata": {"promptTokenCount": 4},
    }
    stream = sk.stream([first, {"candidates": [output], "responseId": "r"}, second])
    assert stream.get_final_text() == "It is cold."
    assert [(m.type, m.content) for m in stream.messages] == [
        ("tool_call", "{}"),
        ("tool_output", "cold"),
        ("message", "It is cold."),
    ]
    assert stream.messages[1].call_id == stream.messages[0].id
    assert len(stream.get_final_run_steps()) == 2
    assert (stream.status, stream.usage.input_tokens) == ("completed", 7)
