"""The Assistants protocol: what a stream becomes, whatever servers do to it, encoding, and the real client."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.beta import AssistantStreamEvent
from pydantic import TypeAdapter

import streamkit as sk
from streamkit import events as ev
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.errors import UsageError
from streamkit.events import Event, RawEvent
from streamkit.messages import (
    Annotation,
    AudioMessage,
    CodeMessage,
    ConsoleMessage,
    FileMessage,
    ImageMessage,
    Message,
    ReasoningMessage,
    RefusalMessage,
    TextMessage,
    ToolCallMessage,
    ToolOutputMessage,
)
from streamkit.protocols.codec import event_to_dict
from streamkit.protocols.framing import NdjsonFramer, SseFramer, sse_frame
from streamkit.protocols.openai_assistants import Decoder, Encoder, to_input
from streamkit.testing import CodeInterpreter, ModelServer, Reasoning, Refusal, Reply, Text, ToolCall

from .. import faces
from .. import values as q
from ..faces import Face, body, both_shells
from ..recorded import SHARED, each_recording, in_a_loop, recording_cases, streams_in
from ..telling import Story, tell_bytes, tell_items
from ..test_laws import check_brackets, joined, merged

pytestmark = pytest.mark.filterwarnings("ignore:The Assistants API:DeprecationWarning")  # each call warns

RECORDED = streams_in(SHARED / "openai-assistants")
STRICT: TypeAdapter[Any] = TypeAdapter(AssistantStreamEvent)

# Recordings where the SDK's result is not what a user needs: their `own_reading` is compared in its place.
SDK_IS_WRONG = {
    "dotnet-streamingtoolcall.2": "the SDK loses the call of a step that was begun in an earlier stream",
    "dotnet-streamingtoolcall-async.2": "the same",
}
NAMES = [
    "thread.created",
    *(f"thread.run.{s}" for s in ("created", "queued", "in_progress", "requires_action", "completed", "incomplete")),
    *(f"thread.run.{s}" for s in ("failed", "cancelling", "cancelled", "expired")),
    *(
        f"thread.run.step.{s}"
        for s in ("created", "in_progress", "delta", "completed", "failed", "cancelled", "expired")
    ),
    *(f"thread.message.{s}" for s in ("created", "in_progress", "delta", "completed", "incomplete")),
    "error",
    "done",
]


class Slow(Decoder):
    """The decoder without its plain case."""

    plain_item = None


# -- short ways to write events


def e(name: str, **data: Any) -> dict[str, Any]:
    return {"event": f"thread.{name}", "data": data}


def run(status: str, **more: Any) -> dict[str, Any]:
    fields = {"id": "run_1", "object": "thread.run", "thread_id": "th", "assistant_id": "as", "model": "m"}
    return e(f"run.{status}", **{**fields, "status": status, **more})


def step(status: str, *calls: Any, id: str = "s1", **more: Any) -> dict[str, Any]:
    kind = "message_creation" if "message" in more else "tool_calls"
    details: dict[str, Any] = {"type": kind, "tool_calls": list(calls)}
    if message := more.pop("message", None):
        details = {"type": kind, "message_creation": {"message_id": message}}
    state = "in_progress" if status == "created" else status
    fields = {"id": id, "run_id": "run_1", "type": kind, "status": state, "step_details": details}
    return e(f"run.step.{status}", **{**fields, **more})


def step_delta(*calls: Any, id: str = "s1") -> dict[str, Any]:
    return e("run.step.delta", id=id, delta={"step_details": {"type": "tool_calls", "tool_calls": list(calls)}})


def call(index: int | None, arguments: str | None = None, id: str = "", name: str = "", **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments, **more}
    head = {"index": index, "id": id, "type": "function"}
    return {
        **{key: value for key, value in head.items() if value not in (None, "")},
        "function": {key: value for key, value in function.items() if value not in (None, "")},
    }


def code(index: int | None = 0, id: str = "", **body: Any) -> dict[str, Any]:
    head = {"index": index, "id": id, "type": "code_interpreter"}
    return {**{key: value for key, value in head.items() if value not in (None, "")}, "code_interpreter": body}


def logs(text: str, index: int = 0) -> dict[str, Any]:
    return {"index": index, "type": "logs", "logs": text}


def text(value: str, index: int | None = 0, **more: Any) -> dict[str, Any]:
    place = {} if index is None else {"index": index}
    return {**place, "type": "text", "text": {"value": value, **more}}


def message_delta(*parts: Any, id: str = "m1") -> dict[str, Any]:
    return e("message.delta", id=id, object="thread.message.delta", delta={"content": list(parts)})


def message(status: str, *parts: Any, id: str = "m1", **more: Any) -> dict[str, Any]:
    content = [{key: part[key] for key in part if key != "index"} for part in parts]
    state = "in_progress" if status == "created" else status
    return e(f"message.{status}", id=id, role="assistant", status=state, content=content, **more)


DONE = {"event": "done", "data": "[DONE]"}
BEGUN = [run("created"), step("created")]
TALKS = [run("created"), step("created", message="m1"), message("created")]


def decode(*items: Any, strict: bool = False) -> Story:
    return tell_items(Decoder, items, strict=strict)


def message_events(story: Story) -> list[tuple[str, str]]:
    """The events of messages: the type, and the text of a delta or else the message's id."""
    out = []
    for event in story.events:
        if isinstance(event, ev.Delta):
            out.append((event.type, event.value))
        elif isinstance(event, (ev.Created, ev.Done)):
            out.append((event.type, event.message.id))
    return out


def contents(story: Story) -> list[tuple[str, str]]:
    return [(m.id, m.content) for m in story.engine.messages.all]


def statuses(story: Story) -> list[str]:
    return [m.status for m in story.engine.messages.all]


def run_of(story: Story) -> ev.Run:
    assert story.engine.runs.run is not None
    return story.engine.runs.run


def steps_of(story: Story) -> list[tuple[str, str | None, str, int | None]]:
    return [(s.id, s.type, s.status, s.usage and s.usage.total_tokens) for s in story.engine.runs.steps]


def only(story: Story) -> Message:
    (one,) = story.engine.messages.all
    return one


def raw_names(story: Story) -> list[str]:
    return [event.name for event in story.events if isinstance(event, RawEvent)]


ASKED = Reply(
    Text("Let me look."), ToolCall("weather", {"city": "Oslo"}), ToolCall("weather", {"city": "Rome"}), interleave=True
)
SAID = Reply(CodeInterpreter("print(1)", "1\n"), Reasoning("hm"), Text("It rains."))  # type: ignore[assignment]


# -- recordings


def stem(path: Path) -> str:
    return path.name.removesuffix(".sse").removesuffix(".jsonl")


def frames_of(path: Path) -> list[tuple[bytes, bytes, bytes]]:
    framer = SseFramer() if path.suffix == ".sse" else NdjsonFramer()
    return framer.feed(path.read_bytes()) + framer.finish()


def items_of(path: Path) -> list[Any]:
    if path.suffix != ".sse":
        return [json.loads(data) for _, _, data in frames_of(path)]
    return [
        {"event": name.decode(), "data": json.loads(data) if data.startswith(b"{") else data.decode()}
        for _, name, data in frames_of(path)
    ]


@each_recording("openai-assistants", own=False)
def test_a_recording_ends_with_the_texts_and_calls_that_the_sdk_gives(path: Path) -> None:
    """Where the SDK is wrong, those that a careful reading gives."""
    expected = json.loads(path.with_name(f"{stem(path)}.expected.json").read_text())
    assert expected["own_reading_agrees"] == (stem(path) not in SDK_IS_WRONG)
    wanted = expected.get("own_reading") or expected
    story = tell_bytes(Decoder, [path.read_bytes()])
    texts = [m for m in story.engine.messages.all if isinstance(m, TextMessage)]
    assert [(m.id, m.content, len(m.annotations)) for m in texts] == [
        (m["id"], m["text"], m["annotations"]) for m in wanted["messages"]
    ]
    calls = [m for m in story.engine.messages.all if isinstance(m, (ToolCallMessage, CodeMessage))]
    assert [m.call_id for m in calls] == [call["id"] for call in wanted["tool_calls"]]
    for one, call in zip(calls, wanted["tool_calls"], strict=True):
        if call["type"] == "function":
            assert (one.name, one.content) == (call["name"], call["arguments"])
        elif call["type"] == "code_interpreter":
            assert (one.format, one.content) == ("python", call["arguments"] or one.content)
        else:
            assert (one.name, one.content) == (call["type"], "")
    assert story.decoder.complete
    assert story.codes == []


def test_every_listed_exception_is_a_recording() -> None:
    """The list above names no file that is gone."""
    found = {stem(path) for path in RECORDED}
    assert not found or set(SDK_IS_WRONG) <= found


@each_recording("openai-assistants")
def test_the_fast_path_gives_the_same_events(path: Path) -> None:
    """Frame by frame, both decoders give the same events, source and cursor too."""
    fast, slow = Decoder(), Slow()
    for frame in frames_of(path):
        pairs = [[(event_to_dict(one), one.raw_item) for one in d.feed_frames([frame])] for d in (fast, slow)]
        assert pairs[0] == pairs[1]
    assert fast.index == slow.index
    lines = [tell_bytes(kind, [path.read_bytes()]).lines for kind in (Decoder, Slow)]
    assert lines[0] == lines[1]


@each_recording("openai-assistants", complete=True)
def test_a_recording_as_items_gives_the_same_events(path: Path) -> None:
    """As `{"event", "data"}`, as the SDK's typed objects give it."""
    assert tell_items(Decoder, items_of(path)).lines == tell_bytes(Decoder, [path.read_bytes()]).lines


def test_two_recordings_of_one_run_are_one_stream() -> None:
    """The step that waited is completed in the second; its call, output and tokens are emitted once."""
    paths = {stem(path): path for path in RECORDED}
    if "dotnet-streamingtoolcall.1" not in paths:
        pytest.skip("the recorded streams are not beside this checkout")

    class Answers(sk.EventHandler):
        def on_tool_call_done(self, call: ToolCallMessage) -> None:
            call.respond("warm and sunny")

    first, second = (paths[f"dotnet-streamingtoolcall.{n}"] for n in (1, 2))
    stream = sk.stream(first, Answers(), then=lambda _: second)
    kinds = [(m.type, m.status) for m in stream.get_final_messages()]
    assert kinds == [("tool_call", "completed"), ("tool_output", "completed"), ("message", "completed")]
    assert [s.id[:8] for s in stream.get_final_run_steps()] == ["step_9c9", "step_Ou0"]
    assert stream.usage is not None and stream.usage.total_tokens == 272 + 326
    assert (stream.status, stream.get_final_run().id) == ("completed", "run_oyfV44CrJXYJkvb2qsd80LvJ")


# -- the 24 events


def test_there_are_as_many_names_as_openai_lists() -> None:
    """Its union, and `done`."""
    from typing import get_args

    union = get_args(get_args(AssistantStreamEvent)[0])
    listed = {get_args(member.model_fields["event"].annotation)[0] for member in union}
    assert listed | {"done"} == set(NAMES)


FILLED: dict[str, Any] = {
    "id": "x",
    "run_id": "run_1",
    "role": "assistant",
    "content": [text("hi")],
    "delta": {"content": [text("hi")], "step_details": {"type": "tool_calls", "tool_calls": [call(0, "{}", "c", "f")]}},
    "step_details": {"type": "tool_calls", "tool_calls": [call(0, "{}", "c", "f")]},
    "message": "broken",
}


@pytest.mark.parametrize("data", [{}, FILLED, dict.fromkeys(FILLED), None, "x", [], 5])
@in_a_loop("name", NAMES)
def test_every_event_reaches_an_event(name: str, data: Any) -> None:
    """Whether its fields are there, absent or null."""
    decoder = Decoder()
    events = decoder.feed_items([{"event": name, "data": data}])
    assert events or decoder.complete
    assert "decoder-error" not in [getattr(event, "code", "") for event in events]


@pytest.mark.parametrize("name", NAMES)
def test_every_event_but_error_and_done_is_recognised(name: str) -> None:
    """As an item, and by the name of its SSE frame."""
    own = name not in ("error", "done")
    assert Decoder.recognises({"event": name, "data": {}}) is own
    assert (protocols.recognise({"id": "x"}, name) is Decoder) is own


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"object": "thread.run", "status": "completed", "id": "r"}, "thread.run.completed"),
        ({"object": "thread.message.delta", "id": "m", "delta": {}}, "thread.message.delta"),
        ({"object": "thread", "id": "t"}, "thread.created"),
    ],
)
def test_an_object_without_a_name_is_named_by_itself(item: dict[str, Any], name: str) -> None:
    """A run that was not streamed is decoded, too."""
    assert protocols.recognise(item) is Decoder
    assert decode(item).types == decode({"event": name, "data": item}).types


def test_a_call_is_done_where_the_next_one_begins() -> None:
    """The server streams the calls of a step one after the other."""
    story = decode(
        *BEGUN,
        step_delta(call(0, "", "c0", "f")),
        step_delta(call(0, '{"n": 0}')),
        step_delta(call(1, "", "c1", "g")),
        step_delta(call(1, '{"n": 1}')),
        run("requires_action"),
        DONE,
    )
    assert [(kind, what) for kind, what in message_events(story) if kind != "tool_call_delta"] == [
        ("tool_call_created", "c0"),
        ("tool_call_done", "c0"),
        ("tool_call_created", "c1"),
        ("tool_call_done", "c1"),
    ]
    assert contents(story) == [("c0", '{"n": 0}'), ("c1", '{"n": 1}')]
    assert story.codes == []


def test_calls_that_interleave_stay_open() -> None:
    """Only a call with all its arguments is over where another begins."""
    story = decode(
        *BEGUN,
        step_delta(call(0, '{"n"', "c0", "f"), call(1, '{"n"', "c1", "g")),
        step_delta(call(0, ": 0}"), call(1, ": 1}")),
        run("requires_action"),
        DONE,
    )
    assert contents(story) == [("c0", '{"n": 0}'), ("c1", '{"n": 1}')]
    assert story.codes == []


@pytest.mark.parametrize(
    "item",
    [
        {"type": "response.created", "response": {}},
        {"object": "chat.completion.chunk", "choices": []},
        {"role": "assistant", "type": "message", "content": "hi"},
        {"event": "message", "data": {}},
        {},
    ],
)
def test_what_is_another_protocols_is_not_recognised(item: dict[str, Any]) -> None:
    """Nor what is none."""
    assert not Decoder.recognises(item)


# -- ends


@pytest.mark.parametrize("ending", [[DONE], []], ids=["done", "no done"])
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled", "expired"])
def test_a_run_that_reached_its_end_is_complete(status: str, ending: list[Any]) -> None:
    """With `done` or without."""
    story = decode(*TALKS, message_delta(text("a")), run(status), *ending)
    assert story.decoder.complete
    assert run_of(story).status == status
    assert [m.content for m in story.engine.messages.all] == ["a"]


def test_done_alone_ends_a_stream() -> None:
    """The server sends nothing more."""
    story = decode(*TALKS, message_delta(text("a")), DONE)
    assert (story.decoder.complete, story.decoder.exhausted, run_of(story).status) == (True, True, "completed")
    body = sse_frame(b"[DONE]", "done")
    assert tell_bytes(
        Decoder, [sse_frame(json.dumps(TALKS[0]["data"]).encode(), "thread.run.created"), body]
    ).decoder.exhausted


def test_a_stream_without_its_end_was_cut_off() -> None:
    """What is open is incomplete, and an error reports it."""
    items = [*TALKS, message_delta(text("a"))]
    assert statuses(decode(*items)) == ["incomplete"]
    with pytest.raises(sk.IncompleteStreamError):
        sk.stream(items).until_done()


ERROR = {"message": "broken", "code": "c", "type": "server_error", "param": None}


@pytest.mark.parametrize("data", [ERROR, {"error": ERROR}, {"error": "broken"}, "broken"])
def test_an_error_event_fails_the_run(data: Any) -> None:
    """Flat, wrapped, or a text."""
    stream = sk.stream([*TALKS, message_delta(text("a")), {"event": "error", "data": data}])
    with pytest.raises(sk.RunFailedError, match="broken"):
        stream.until_done()
    assert [m.status for m in stream.messages] == ["failed"]


def test_why_a_run_failed_is_its_error() -> None:
    """`last_error`, and it is raised."""
    stream = sk.stream([run("created"), run("failed", last_error={"code": "rate_limit_exceeded", "message": "slow"})])
    with pytest.raises(sk.RunFailedError, match="slow") as caught:
        stream.until_done()
    assert caught.value.code == "rate_limit_exceeded"
    with pytest.raises(sk.RunFailedError, match="expired"):
        sk.stream([run("created"), run("expired")]).until_done()


def test_the_run_has_what_its_event_has() -> None:
    """Ids, model, time, tokens, and why it is incomplete."""
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "total_tokens": 7,
        "prompt_token_details": {"cached_tokens": 1},
    }
    ended = run("incomplete", incomplete_details={"reason": "max_prompt_tokens"}, usage=usage, created_at=5)
    decoded = run_of(decode(run("created", created_at=5), ended, DONE))
    assert (decoded.id, decoded.model, decoded.created_at, decoded.finish_reason) == (
        "run_1",
        "m",
        5,
        "max_prompt_tokens",
    )
    assert (decoded.metadata["thread_id"], decoded.metadata["assistant_id"]) == ("th", "as")
    assert decoded.usage is not None
    assert (decoded.usage.input_tokens, decoded.usage.output_tokens, decoded.usage.total_tokens) == (3, 4, 7)
    assert decoded.usage.details == {"prompt_token_details": {"cached_tokens": 1}}


def test_a_run_waits_for_its_calls() -> None:
    """requires_action, then `done`: the call is all there, and the stream ends so."""
    wanted = {"submit_tool_outputs": {"tool_calls": [call(None, '{"a": 1}', "c", "f")]}, "type": "submit_tool_outputs"}
    story = decode(
        *BEGUN,
        step_delta(call(0, "", "c", "f")),
        step_delta(call(0, '{"a"')),
        run("requires_action", required_action=wanted),
        DONE,
    )
    assert run_of(story).status == "requires_action"
    assert only(story).content == '{"a": 1}'
    assert list(story.engine.pending.waiting) == ["c"]
    assert story.types.index("tool_call_done") < story.types.index("run_requires_action")


def test_a_run_that_waits_for_calls_that_were_not_streamed_has_them() -> None:
    """Only the run's required action has them."""
    wanted = {"submit_tool_outputs": {"tool_calls": [call(None, "{}", "c", "f"), call(None, "{}", "d", "g")]}}
    story = decode(run("requires_action", required_action=wanted), DONE)
    assert [(m.name, m.call_id) for m in story.engine.messages.all] == [("f", "c"), ("g", "d")]
    check_brackets(story.lines)


def test_a_run_goes_on_in_the_same_stream() -> None:
    """It is not at its end any more."""
    wanted = {"submit_tool_outputs": {"tool_calls": [call(None, "{}", "c", "f")]}}
    going = [
        *BEGUN,
        run("requires_action", required_action=wanted),
        step("completed", call(None, "{}", "c", "f", output="o")),
    ]
    story = decode(*going, run("in_progress"))
    assert not story.decoder.complete
    story = decode(
        *going,
        run("in_progress"),
        step("created", id="s2", message="m1"),
        message_delta(text("a")),
        run("completed"),
        DONE,
    )
    assert contents(story) == [("c", "{}"), ("c.output", "o"), ("m1", "a")]
    assert (run_of(story).status, story.engine.pending.waiting) == ("completed", {})


# -- the sequences that openai's own class gets wrong


def test_a_call_is_done_once() -> None:
    """A code-interpreter step, a message step, run.completed."""
    story = decode(
        *BEGUN,
        step_delta(code(id="c0", input="1+1")),
        step("completed", code(id="c0", input="1+1", outputs=[])),
        step("created", id="s2", message="m1"),
        message_delta(text("2")),
        message("completed", text("2")),
        step("completed", id="s2", message="m1"),
        run("completed"),
        DONE,
    )
    assert story.types.count("code_done") == 1
    check_brackets(story.lines)


def test_a_call_of_another_step_at_the_same_index_is_another_call() -> None:
    """Step s1 call index 0, then step s2 call index 0."""
    story = decode(
        *BEGUN,
        step_delta(call(0, "{}", "c1", "f")),
        step("completed", call(None, "{}", "c1", "f", output="x")),
        step("created", id="s2"),
        step_delta(call(0, "{}", "c2", "f"), id="s2"),
        step("completed", call(None, "{}", "c2", "f", output="y"), id="s2"),
        run("completed"),
    )
    assert story.types.count("tool_call_created") == story.types.count("tool_call_done") == 2
    assert contents(story) == [("c1", "{}"), ("c1.output", "x"), ("c2", "{}"), ("c2.output", "y")]


def test_what_begins_is_empty_and_a_fragment_is_emitted_once() -> None:
    """`created` has the first fragment already, and it comes again as a delta."""
    story = decode(
        *TALKS[:2],
        message("created", text("Hel")),
        message_delta(text("Hel")),
        message_delta(text("lo")),
        message("completed", text("Hello")),
    )
    assert message_events(story)[:4] == [
        ("text_created", "m1"),
        ("text_delta", "Hel"),
        ("text_delta", "lo"),
        ("text_done", "m1"),
    ]
    assert "content" not in next(line for line in story.lines if line["type"] == "text_created")["message"]
    assert story.codes == []


def test_content_of_created_that_no_delta_repeats_is_emitted() -> None:
    """Whether deltas go on from it or none come."""
    story = decode(
        *TALKS[:2],
        message("created", text("Hel")),
        message("in_progress", text("Hel")),
        message_delta(text("lo")),
        DONE,
    )
    assert contents(story) == [("m1", "Hello")]


def test_each_fragment_of_a_call_is_emitted() -> None:
    """The first one, and two in one event."""
    story = decode(
        *BEGUN,
        step_delta(call(0, "{", "c", "f")),
        step_delta(call(0, '"a":'), call(0, "1}")),
        step("completed", call(None, '{"a":1}', "c", "f")),
    )
    deltas = [value for kind, value in message_events(story) if kind == "tool_call_delta"]
    assert deltas == ["{", '"a":', "1}"]


def test_a_finished_step_is_done() -> None:
    """Its status, output and tokens."""
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    story = decode(
        *BEGUN,
        step_delta(call(0, "{}", "c", "f")),
        step("completed", call(None, "{}", "c", "f", output="out"), usage=usage),
        run("completed"),
    )
    assert steps_of(story) == [("s1", "tool_calls", "completed", 3)]
    assert story.contents("tool_output") == ["out"]
    assert story.engine.runs.usage is not None and story.engine.runs.usage.total_tokens == 3


def test_a_part_is_done_before_the_next_begins() -> None:
    """done(A), created(B), delta(B)."""
    story = decode(
        *TALKS, message_delta(text("A")), message_delta(text("B", 1)), message("completed", text("A"), text("B"))
    )
    assert message_events(story) == [
        ("text_created", "m1"),
        ("text_delta", "A"),
        ("text_done", "m1"),
        ("text_created", "m1.1"),
        ("text_delta", "B"),
        ("text_done", "m1.1"),
    ]
    assert [(m.group, m.index) for m in story.engine.messages.all] == [("m1", 0), ("m1", 1)]


def test_a_refusal_is_a_message_and_an_annotation_alone_is_not_a_delta() -> None:
    """Neither is lost, and there is no delta of nothing."""
    cited = {
        "index": 0,
        "type": "file_citation",
        "text": "[0]",
        "start_index": 0,
        "end_index": 1,
        "file_citation": {"file_id": "f"},
    }
    note = {"index": 0, "type": "text", "text": {"annotations": [cited]}}
    story = decode(
        *TALKS,
        message_delta(text("a")),
        message_delta(note),
        message_delta({"index": 1, "type": "refusal", "refusal": "no"}),
        message("completed", text("a", annotations=[cited]), {"type": "refusal", "refusal": "no"}),
    )
    assert [line["value"] for line in story.lines if line["type"] == "text_delta"] == ["a"]
    assert story.types.count("annotation_added") == 1
    assert story.contents("message", "refusal") == ["no"]
    assert story.contents("message") == ["a"]


CITATION = {"index": 0, "type": "file_citation", "text": "[1]", "file_citation": {"file_id": "f1", "quote": "q"}}


@pytest.mark.parametrize("type", [5, None, ["file_citation"], {}])
def test_a_citation_whose_type_is_not_text_is_read_by_its_key(type: Any) -> None:
    """One bad value never loses the rest: the file and the quote are there."""
    story = decode(*TALKS, message_delta(text("a [1]", annotations=[{**CITATION, "type": type}])), DONE)
    [cited] = [event.annotation for event in story.events if isinstance(event, ev.AnnotationAdded)]
    assert (cited.type, cited.file_id, cited.quote) == ("file_citation", "f1", "q")
    assert contents(story) == [("m1", "a [1]")]
    assert story.codes == ([] if type is None else ["bad-annotation"])


@pytest.mark.parametrize("bad", [5, "x", [5], None])
@pytest.mark.parametrize("key", ["index", "text", "start_index", "end_index", "file_citation"])
def test_a_bad_value_in_a_citation_loses_nothing_else(key: str, bad: Any) -> None:
    """The text is complete, and the citation has what could be read of it."""
    story = decode(*TALKS, message_delta(text("a [1]", annotations=[{**CITATION, key: bad}])), DONE)
    [cited] = [event.annotation for event in story.events if isinstance(event, ev.AnnotationAdded)]
    assert cited.type == "file_citation"
    assert cited.file_id == (None if key == "file_citation" else "f1")
    assert contents(story) == [("m1", "a [1]")]


def test_the_text_of_interleaved_messages_lands_in_its_own() -> None:
    """created m1, created m2, delta for m1."""
    story = decode(
        *TALKS,
        message("created", id="m2"),
        message_delta(text("a")),
        message_delta(text("x"), id="m2"),
        message_delta(text("b")),
        message_delta(text("y"), id="m2"),
        message("completed", text("ab")),
        message("completed", text("xy"), id="m2"),
    )
    assert contents(story) == [("m1", "ab"), ("m2", "xy")]
    assert story.codes == []


def test_the_next_message_has_parts_of_its_own() -> None:
    """m1 ended at part 1, m2 starts at part 0 and has fewer."""
    story = decode(
        *TALKS,
        message_delta(text("a")),
        message_delta(text("b", 1)),
        message("completed", text("a"), text("b")),
        message_delta(text("c"), id="m2"),
        message("completed", text("c"), id="m2"),
    )
    assert story.types.count("text_done") == 3
    assert contents(story) == [("m1", "a"), ("m1.1", "b"), ("m2", "c")]


def test_parallel_calls_are_kept_apart() -> None:
    """0, 1, 0, 1, 0: two calls, each created and done once, and five deltas."""
    fragments = [step_delta(call(i, piece)) for i, piece in ((0, "{"), (1, "["), (0, " "), (1, "]"), (0, "}"))]
    story = decode(
        *BEGUN,
        step_delta(call(0, "", "c0", "f"), call(1, "", "c1", "g")),
        *fragments,
        step("completed", call(None, "{ }", "c0", "f"), call(None, "[]", "c1", "g")),
    )
    assert contents(story) == [("c0", "{ }"), ("c1", "[]")]
    assert [story.types.count(f"tool_call_{phase}") for phase in ("created", "delta", "done")] == [2, 5, 2]


def test_the_first_index_may_be_one() -> None:
    """Of a text and of a call; the final lists count from 0."""
    story = decode(
        *TALKS,
        message_delta(text("a", 1)),
        message("completed", text("a")),
        step("created", id="s2"),
        step_delta(call(1, "{}", "", "f"), id="s2"),
        step("completed", call(None, "{}", "", "f"), id="s2"),
    )
    assert [(m.id, m.content) for m in story.engine.messages.all] == [("m1", "a"), ("s2.1", "{}")]
    assert story.codes == []


def test_an_index_may_be_missing() -> None:
    """One goes on with the latest; an id that is new begins another call."""
    story = decode(
        *BEGUN,
        step_delta(call(None, "{", "c0", "f")),
        step_delta(call(None, "}")),
        step_delta(call(None, "[", "c1", "g")),
        step_delta(call(None, "]")),
        message_delta(text("a", None)),
        message_delta(text("b", None)),
        DONE,
    )
    assert contents(story) == [("c0", "{}"), ("c1", "[]"), ("m1", "ab")]


def test_what_was_not_created_begins_with_its_delta() -> None:
    """A step's, a message's, and of no run."""
    story = decode(step_delta(call(0, "{}", "c", "f"), id="s9"), message_delta(text("a"), id="m9"), DONE)
    assert contents(story) == [("c", "{}"), ("m9", "a")]
    assert steps_of(story)[0][0] == "s9"
    check_brackets(story.lines)


def test_an_id_or_a_name_that_comes_again_is_the_same() -> None:
    """It is not appended; nor are the offsets of a citation added up."""
    story = decode(*BEGUN, *(step_delta(call(0, piece, "call_1", "f")) for piece in "{}"), DONE)
    assert [(m.id, m.name, m.call_id, m.content) for m in story.engine.messages.all] == [
        ("call_1", "f", "call_1", "{}")
    ]
    cited = {
        "index": 0,
        "type": "file_citation",
        "text": "[0]",
        "start_index": 3,
        "end_index": 4,
        "file_citation": {"file_id": "f", "quote": "q"},
    }
    final = {key: cited[key] for key in cited if key != "index"} | {"file_citation": {"file_id": "f"}}
    story = decode(
        *TALKS,
        message_delta(text("a", annotations=[cited])),
        message_delta(text("b", annotations=[cited])),
        message("completed", text("ab", annotations=[final])),
    )
    (one,) = story.engine.messages.all[0].annotations  # type: ignore[attr-defined]
    assert (one.type, one.file_id, one.quote, one.start, one.end) == ("file_citation", "f", "q", 3, 4)
    assert story.types.count("annotation_added") == 1


def test_calls_that_a_step_has_from_the_start_are_emitted() -> None:
    """Created, delta and done; and repeated by a delta they are not emitted twice."""
    begun = [run("created"), step("created", call(None, "{}", "c", "f"), code(None, "d", input="1"))]
    ended = step("completed", call(None, "{}", "c", "f", output="o"), code(None, "d", input="1", outputs=[]))
    for again in ([], [step_delta(call(0, "{}"))]):
        story = decode(*begun, *again, ended, run("completed"))
        assert contents(story) == [("c", "{}"), ("d", "1"), ("c.output", "o")]
        assert story.codes == []


# -- what else is in messages and steps


def test_code_runs_prints_and_draws() -> None:
    """The code is done before what it gave; one console, and an image for each file."""
    image = {"index": 1, "type": "image", "image": {"file_id": "file-1"}}
    final = [
        {"type": "logs", "logs": "2\n"},
        {"type": "image", "image": {"file_id": "file-1"}},
        {"type": "logs", "logs": "3"},
    ]
    story = decode(
        *BEGUN,
        step_delta(code(id="c", input="", outputs=[])),
        step_delta(code(input="1+")),
        step_delta(code(input="1")),
        step_delta(code(outputs=[logs("2")])),
        step_delta(code(outputs=[logs("\n"), image])),
        step_delta(code(outputs=[logs("3", 2)])),
        step("completed", code(None, "c", input="1+1", outputs=final)),
        run("completed"),
    )
    assert [(m.id, m.type, m.role, m.format, m.content, m.call_id) for m in story.engine.messages.all] == [
        ("c", "code", "assistant", "python", "1+1", "c"),
        ("c.console", "console", "computer", "output", "2\n3", "c"),
        ("c.image.0", "image", "computer", "file_id", "file-1", "c"),
    ]
    assert story.types.index("code_done") < story.types.index("console_created")
    assert story.codes == []


def test_code_that_is_complete_at_once_gives_the_same() -> None:
    """Only the completed step has it."""
    outputs = [{"type": "logs", "logs": "2"}, {"type": "image", "image": {"file_id": "file-1"}}]
    story = decode(*BEGUN, step("completed", code(None, "c", input="1+1", outputs=outputs)), run("completed"))
    assert contents(story) == [("c", "1+1"), ("c.console", "2"), ("c.image.0", "file-1")]


def test_a_search_gives_its_results() -> None:
    """The provider runs it; the results are its output."""
    results = [{"file_id": "f", "file_name": "n", "score": 0.5}]
    ranking = {"ranker": "auto", "score_threshold": 0.0}
    search = {"id": "c", "type": "file_search", "file_search": {"ranking_options": ranking, "results": []}}
    final = {**search, "file_search": {"ranking_options": ranking, "results": results}}
    story = decode(*BEGUN, step_delta({"index": 0, **search}), step("completed", final), run("completed"))
    called, output = story.engine.messages.all
    assert isinstance(called, ToolCallMessage)
    assert (called.name, called.provider_executed, called.content) == ("file_search", True, "")
    assert called.metadata == {"ranking_options": ranking}
    assert (output.id, output.call_id, json.loads(output.content)) == ("c.output", "c", results)
    assert run_of(story).status == "completed"


def test_a_call_of_an_unknown_kind_is_a_tool_call() -> None:
    """Azure's searches: the call's own values are its arguments."""
    bing = {"id": "c", "type": "bing_grounding", "bing_grounding": {"requesturl": "u"}}
    called = only(decode(*BEGUN, step_delta({"index": 0, **bing}), step("completed", bing), run("completed")))
    assert isinstance(called, ToolCallMessage)
    assert (called.name, called.provider_executed, called.content) == ("bing_grounding", True, '{"requesturl":"u"}')


def test_images_are_messages() -> None:
    """By their file's id, or their URL."""
    story = decode(
        *TALKS,
        message_delta(text("a")),
        message_delta({"index": 1, "type": "image_file", "image_file": {"file_id": "f", "detail": "low"}}),
        message_delta({"index": 2, "type": "image_url", "image_url": {"url": "https://example.org"}}),
        message(
            "completed",
            text("a"),
            {"type": "image_file", "image_file": {"file_id": "f", "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "https://example.org"}},
        ),
    )
    assert [(m.id, m.type, m.format, m.content) for m in story.engine.messages.all] == [
        ("m1", "message", None, "a"),
        ("m1.1", "image", "file_id", "f"),
        ("m1.2", "image", "url", "https://example.org"),
    ]
    assert story.engine.messages.all[1].metadata == {"detail": "low"}
    assert story.types.count("image_file_done") == 2


@pytest.mark.parametrize(
    ("reason", "status"),
    [("max_tokens", "incomplete"), ("run_cancelled", "cancelled"), ("run_failed", "failed"), (None, "incomplete")],
)
def test_an_incomplete_message_has_its_reason(reason: str | None, status: str) -> None:
    """By its status, and else in its metadata."""
    story = decode(
        *TALKS, message_delta(text("a")), message("incomplete", text("a"), incomplete_details={"reason": reason})
    )
    assert only(story).status == status


@pytest.mark.parametrize(("ended", "status"), [("failed", "failed"), ("cancelled", "cancelled"), ("expired", "failed")])
def test_a_step_that_ends_badly_ends_its_calls_so(ended: str, status: str) -> None:
    """And they wait for nothing."""
    last = {"code": "server_error", "message": "x"}
    story = decode(
        *BEGUN, step_delta(call(0, "{", "c", "f")), step(ended, call(None, "{", "c", "f"), last_error=last), run(ended)
    )
    assert statuses(story) == [status]
    assert steps_of(story)[0][2] == ended
    assert story.engine.runs.steps[0].error == last
    assert story.engine.pending.waiting == {}


def test_a_final_text_that_differs_repairs_the_streamed_one() -> None:
    """With a warning."""
    story = decode(*TALKS, message_delta(text("Helo")), message("completed", text("Hello")), run("completed"))
    assert contents(story) == [("m1", "Hello")]
    assert story.codes == ["content-differs"]


def test_a_part_that_goes_on_after_the_next_began_is_another_message() -> None:
    """As a message of its own, with a warning: nothing is lost."""
    story = decode(
        *TALKS,
        message_delta(text("a")),
        message_delta(text("b", 1)),
        message_delta(text("c")),
        message("completed", text("ac"), text("b")),
        run("completed"),
    )
    assert contents(story) == [("m1", "a"), ("m1.1", "b"), ("m1.0", "c")]
    assert story.codes == ["delta-after-done"]
    check_brackets(story.lines)


def test_a_name_that_comes_late_waits_for_nothing_of_the_arguments() -> None:
    """A call is created once its name is there, or with its end."""
    story = decode(
        *BEGUN, step_delta(call(0, "{", "c")), step_delta(call(0, "}", "", "f")), step_delta(call(1, "[]", "d")), DONE
    )
    assert [(m.name, m.content) for m in story.engine.messages.all] == [("f", "{}"), (None, "[]")]


def test_two_calls_of_one_id_are_two_messages() -> None:
    """Some servers count no ids."""
    story = decode(
        *BEGUN, step_delta(call(0, "{", "c", "f"), call(1, "[", "c", "g")), step_delta(call(0, "}"), call(1, "]")), DONE
    )
    assert contents(story) == [("c", "{}"), ("c.2", "[]")]


def assistants_messages(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each a message of the thread."""
    which = sorted({one for one, _ in parts})
    ends = [
        message("completed", text(content), id=f"m{one}") for one, content in zip(which, joined(parts), strict=True)
    ]
    return [
        run("created"),
        *(message_delta(text(piece), id=f"m{one}") for one, piece in parts),
        *ends,
        run("completed"),
        DONE,
    ]


def assistants_calls(parts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    """Each a call of one step."""
    which = sorted({one for one, _ in parts})
    begun = step_delta(*(call(one, "", f"c{one}", "f") for one in which))
    ends = [call(None, content, f"c{one}", "f") for one, content in zip(which, joined(parts), strict=True)]
    return [
        *BEGUN,
        begun,
        *(step_delta(call(one, piece)) for one, piece in parts),
        step("failed", *ends),
        run("completed"),
        DONE,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", [assistants_messages, assistants_calls])
@settings(max_examples=48, deadline=None)
@given(q.drawn(merged()), st.data())
def test_laws_1_2_and_5_hold_for_interleaved_things(
    make: Callable[..., list[Any]], parts: list[Any], data: st.DataObject
) -> None:
    """Each has the text that it would have alone; and cut off anywhere, the brackets hold."""
    items = make(parts)
    story = tell_items(Decoder, items)
    check_brackets(story.lines)
    assert sorted(m.content for m in story.engine.messages.all) == sorted(joined(parts))
    assert story.codes == []
    check_brackets(tell_items(Decoder, items[: data.draw(st.integers(0, len(items)))]).lines)


# -- what is listed again


ONE, TWO = '{"a":1}', '{"a":2}'
FIRST_CALL = step_delta(call(0, ONE, "c1", "f"))
BOTH_CALLS = [FIRST_CALL, step_delta(call(1, TWO, "c2", "f"))]
# What was streamed, and the calls that the run requires -> the calls as (call_id, arguments).
REQUIRED: dict[str, tuple[list[Any], list[dict[str, Any]], list[tuple[str | None, Any]]]] = {
    "as they were streamed": (
        BOTH_CALLS,
        [call(None, ONE, "c1", "f"), call(None, TWO, "c2", "f")],
        [("c1", 1), ("c2", 2)],
    ),
    "with another id": ([FIRST_CALL], [call(None, '{"a": 1}', "c9", "f")], [("c9", 1)]),
    "with other ids, in another order": (
        BOTH_CALLS,
        [call(None, TWO, "c8", "f"), call(None, ONE, "c9", "f")],
        [("c1", 1), ("c8", 2)],
    ),
    "one more": ([FIRST_CALL], [call(None, ONE, "c1", "f"), call(None, TWO, "c2", "f")], [("c1", 1), ("c2", 2)]),
    "with the same id, not streamed": (
        [],
        [call(None, ONE, "c1", "f"), call(None, TWO, "c1", "f")],
        [("c1", 1), ("c1", 2)],
    ),
    "with the same id": (
        [FIRST_CALL, step_delta(call(1, TWO, "c1", "f"))],
        [call(None, ONE, "c1", "f"), call(None, TWO, "c1", "f")],
        [("c1", 1), ("c1", 2)],
    ),
}


@pytest.mark.parametrize(("streamed", "required", "wanted"), REQUIRED.values(), ids=REQUIRED)
def test_each_call_that_a_run_requires_counts_once(
    streamed: list[Any], required: list[dict[str, Any]], wanted: list[tuple[str | None, Any]]
) -> None:
    """Whatever its id. A call that is not done before is answered under the id that the run requires."""
    action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": required}}
    items = [run("created"), step("created"), *streamed, run("requires_action", required_action=action)]
    calls = [m for m in decode(*items).engine.messages.all if isinstance(m, ToolCallMessage)]
    assert [(call.call_id, call.arguments["a"]) for call in calls] == wanted


def test_an_output_belongs_to_the_call_with_its_arguments() -> None:
    """Where a step lists its calls under other ids, in another order."""
    final = [call(None, TWO, "c8", "f", output="two"), call(None, ONE, "c9", "f", output="one")]
    story = decode(run("created"), step("created"), *BOTH_CALLS, step("completed", *final), run("completed"))
    calls = {m.call_id: m.arguments["a"] for m in story.engine.messages.all if isinstance(m, ToolCallMessage)}
    outputs = {m.call_id: m.content for m in story.engine.messages.all if isinstance(m, ToolOutputMessage)}
    assert {calls[id]: output for id, output in outputs.items()} == {1: "one", 2: "two"}


def test_a_message_that_is_completed_again_with_another_text_is_warned_about() -> None:
    """It stays as it was done."""
    ends = [message("completed", text("a")), message("completed", text("b"))]
    story = decode(run("created"), message("created"), message_delta(text("a")), *ends, run("completed"))
    assert story.contents("message") == ["a"]
    assert story.codes == ["content-differs"]


# -- no input makes it fail

JSON = q.recursive(
    q.none() | q.booleans() | q.integers() | q.floats() | q.text(max_size=5),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.text(max_size=5), inner, max_size=3),
    depth=2,
)
IDS = q.sampled_from(["a", "b", ""]) | JSON
SMALL = q.integers(-1, 2) | JSON
WORDS = q.text(max_size=3) | JSON
CITED = q.fixed_dictionaries(
    {},
    optional={
        "index": SMALL,
        "type": q.sampled_from(["file_citation", "x"]) | JSON,
        "start_index": SMALL,
        "file_citation": JSON,
    },
)
PART = q.fixed_dictionaries(
    {},
    optional={
        "index": SMALL,
        "type": q.sampled_from(["text", "refusal", "image_file", "image_url"]) | JSON,
        "text": q.fixed_dictionaries(
            {}, optional={"value": WORDS, "annotations": q.lists(CITED | JSON, max_size=2) | JSON}
        )
        | WORDS,
        "refusal": WORDS,
        "image_file": q.fixed_dictionaries({"file_id": WORDS}) | JSON,
        "image_url": JSON,
    },
)
OUTPUT = q.fixed_dictionaries(
    {},
    optional={"index": SMALL, "type": JSON, "logs": WORDS, "image": q.fixed_dictionaries({"file_id": WORDS}) | JSON},
)
CALL = q.fixed_dictionaries(
    {},
    optional={
        "index": SMALL,
        "id": IDS,
        "type": q.sampled_from(["function", "code_interpreter", "file_search", "x"]) | JSON,
        "function": q.fixed_dictionaries({}, optional={"name": WORDS, "arguments": WORDS, "output": WORDS}) | JSON,
        "code_interpreter": q.fixed_dictionaries(
            {}, optional={"input": WORDS, "outputs": q.lists(OUTPUT | JSON, max_size=2) | JSON}
        )
        | JSON,
        "file_search": q.fixed_dictionaries({}, optional={"results": JSON, "ranking_options": JSON}) | JSON,
        "x": JSON,
    },
)
DETAILS = q.fixed_dictionaries(
    {}, optional={"type": JSON, "tool_calls": q.lists(CALL | JSON, max_size=3) | JSON, "message_creation": JSON}
)
DATA = q.fixed_dictionaries(
    {},
    optional={
        "id": IDS,
        "object": JSON,
        "run_id": IDS,
        "role": q.sampled_from(["assistant", "user"]) | JSON,
        "content": q.lists(PART | JSON, max_size=3) | JSON,
        "delta": q.fixed_dictionaries(
            {}, optional={"content": q.lists(PART | JSON, max_size=3) | JSON, "step_details": DETAILS | JSON}
        )
        | JSON,
        "step_details": DETAILS | JSON,
        "required_action": q.fixed_dictionaries(
            {"submit_tool_outputs": q.fixed_dictionaries({"tool_calls": q.lists(CALL | JSON, max_size=2)}) | JSON}
        )
        | JSON,
        **dict.fromkeys(
            ("usage", "last_error", "incomplete_details", "created_at", "status", "model", "metadata", "error"), JSON
        ),
    },
)
ITEM = q.fixed_dictionaries({"event": q.sampled_from([*NAMES, "thread.new"]) | JSON, "data": DATA | JSON})


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(q.drawn(q.lists(ITEM, max_size=10)))
def test_no_values_make_the_decoder_fail(items: list[Any]) -> None:
    """The brackets hold, both paths emit the same, and that can be encoded, strictly valid."""
    story = tell_items(Decoder, items)
    assert "decoder-error" not in story.codes
    check_brackets(story.lines)
    body = b"".join(
        sse_frame(
            json.dumps(item["data"]).encode(),
            item["event"] if isinstance(item["event"], str) and item["event"] and item["event"].isprintable() else None,
        )
        for item in items
    )
    fast, slow = (tell_bytes(kind, [body]) for kind in (Decoder, Slow))
    assert fast.lines == slow.lines
    assert "decoder-error" not in fast.codes
    for item in encoded(story):
        STRICT.validate_json(json.dumps(item), strict=True)


def mutate(draw: Callable[..., Any], items: list[Any]) -> list[Any]:
    """A recording with a few values replaced, and a few events dropped, repeated or moved."""
    items = copy.deepcopy(items)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(items) - 1))
        node, key = items, at
        while isinstance(node[key], (dict, list)) and node[key] and draw(st.integers(0, 3)):
            node = node[key]
            key = draw(st.sampled_from(list(node) if isinstance(node, dict) else range(len(node))))
        if node is items:
            items.insert(draw(st.integers(0, len(items))), items[at] if draw(st.booleans()) else items.pop(at))
        else:
            node[key] = draw(q.drawn(JSON))
    return items


@pytest.mark.parametrize("path", recording_cases("openai-assistants", complete=True))
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_no_damage_to_a_recording_makes_the_decoder_fail(path: Path, data: st.DataObject) -> None:
    """Values replaced, events dropped, repeated and moved."""
    items = mutate(data.draw, items_of(path)[-60:])
    story = tell_items(Decoder, items)
    assert "decoder-error" not in story.codes
    check_brackets(story.lines)


@in_a_loop(
    "odd",
    [
        text("x"),
        text(""),
        text("x", 1),
        text("x", None),
        text("x", annotations=[]),
        text("x", annotations=None),
        text("x", annotations=[{"index": 0, "type": "file_path"}]),
        text("x", annotations={}),
        {"index": 0, "type": "text", "text": None},
        {"index": 0, "type": "text", "text": "x"},
        {"index": 0, "type": "text", "text": {"value": 5}},
        {"index": 0, "text": {"value": "x"}},
        {"index": 0.0, "type": "text", "text": {"value": "x"}},
        {"index": True, "type": "text", "text": {"value": "x"}},
        {"index": 0, "type": "refusal", "refusal": "x", "text": {"value": "x"}},
    ],
)
@pytest.mark.parametrize(
    "id",
    [{"id": "m1"}, {"id": "m2"}, {"id": None}, {}, {"id": "m1", "event": "e", "data": {}}, {"id": "m1", "data": None}],
)
def test_a_delta_that_is_odd_takes_the_tolerant_path(id: dict[str, Any], odd: dict[str, Any]) -> None:
    """After one that grows by the fast path, and before another."""
    plain = [{"id": "m1", "delta": {"content": [text(piece)]}} for piece in ("a", "b", "c")]
    datas = [
        *plain[:2],
        {**id, "delta": {"content": [odd]}},
        plain[2],
        {**id, "delta": {"content": [odd, odd]}},
        plain[1],
    ]
    body = b"".join(sse_frame(json.dumps(data).encode(), "thread.message.delta") for data in datas)
    fast, slow = (tell_bytes(kind, [body]) for kind in (Decoder, Slow))
    assert fast.lines == slow.lines


# -- what it costs


class Counting(dict[Any, Any]):
    """A wire object that counts how often it is read."""

    reads = 0

    def get(self, *arguments: Any) -> Any:
        Counting.reads += 1
        return super().get(*arguments)


def _count(items: list[Any]) -> int:
    def counted(value: Any) -> Any:
        if isinstance(value, dict):
            return Counting({key: counted(one) for key, one in value.items()})
        return [counted(one) for one in value] if isinstance(value, list) else value

    items = counted(items)
    Counting.reads = 0
    engine = Engine()
    decoder = Decoder(engine.messages.new_id)
    for item in items:
        for _ in engine.complete(decoder.feed_items([item])):
            pass
    return Counting.reads


def many_logs(n: int) -> list[Any]:
    outputs = [{"type": "logs", "logs": f"{i}\n"} for i in range(n)]
    grown = [step_delta(code(outputs=[logs(f"{i}\n", i)])) for i in range(n)]
    return [
        *BEGUN,
        step_delta(code(id="c", input="x")),
        *grown,
        step("completed", code(None, "c", input="x", outputs=outputs)),
    ]


def many_calls(n: int) -> list[Any]:
    grown = [step_delta(call(i, "{}", f"c{i}", "f")) for i in range(n)]
    return [*BEGUN, *grown, step("completed", *(call(None, "{}", f"c{i}", "f", output="o") for i in range(n)))]


def calls_without_index(n: int) -> list[Any]:
    grown = [step_delta(call(None, "{}", f"c{i}", "f")) for i in range(n)]
    return [*BEGUN, *grown, step("completed", *(call(None, "{}", f"d{i}", "f") for i in range(n)))]


def many_parts(n: int) -> list[Any]:
    return [
        *TALKS,
        *(message_delta(text("x", i)) for i in range(n)),
        message("completed", *(text("x") for _ in range(n))),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("make", [many_logs, many_calls, calls_without_index, many_parts])
def test_the_cost_is_linear(make: Callable[[int], list[Any]]) -> None:
    """Twice as much is read twice as often; and two thousand take no seconds."""
    assert _count(make(400)) <= 2.1 * _count(make(200))
    items = make(2000)
    engine = Engine()
    decoder = Decoder(engine.messages.new_id)
    encoder = Encoder()
    begun = time.process_time()
    for event in engine.complete(decoder.feed_items(items)):
        for _ in encoder.feed(event):
            pass
    assert time.process_time() - begun < 5  # it is a tenth of a second; quadratic it was 28


# -- the way back


def encoded(story: Story) -> list[dict[str, Any]]:
    encoder = Encoder()
    return [item for event in story.events for item in encoder.feed(event)]


def same(message: Message) -> dict[str, Any]:
    """What the protocol keeps of a message."""
    plain = message.to_dict()
    for key in ("run_id", "step_id"):
        plain.pop(key, None)
    return plain


@each_recording("openai-assistants", complete=True)
def test_law_8_a_recording_comes_back_the_same(path: Path) -> None:
    """Its messages, its run and its tokens; each event is strictly valid."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    items = encoded(story)
    for item in items:
        STRICT.validate_json(json.dumps(item), strict=True)
        assert Encoder().event_name(item) == item["event"]
    again = tell_items(Decoder, items)
    assert [same(m) for m in again.engine.messages.all] == [same(m) for m in story.engine.messages.all]
    assert again.codes == []
    first, second = run_of(story), run_of(again)
    assert (second.id, second.status, second.model, second.finish_reason) == (
        first.id,
        first.status,
        first.model,
        first.finish_reason,
    )
    assert second.metadata["thread_id"] == first.metadata["thread_id"]
    if stem(path) not in SDK_IS_WRONG:  # these have tokens of a step that another stream began
        assert second.usage == first.usage
        assert [s.id for s in again.engine.runs.steps] == [s.id for s in story.engine.runs.steps]


@each_recording("openai-chat", "openai-responses", "open-interpreter", one_of=3)
def test_other_protocols_recordings_are_strictly_valid_here(path: Path) -> None:
    """Every event; and the texts come back."""
    story = tell_bytes(protocols.find(path.parent.name.replace("-", "_")).Decoder, [path.read_bytes()])
    items = encoded(story)
    for item in items:
        STRICT.validate_json(json.dumps(item), strict=True)
    again = tell_items(Decoder, items)
    assert again.contents("message") == story.contents("message")
    codes = [m.content for m in story.engine.messages.all if isinstance(m, CodeMessage) and m.content]
    assert [code for code in again.contents("code", "python") if code] == codes
    assert set(again.codes) <= {"bad-arguments"}


# -- law 8, on generated streams

SAYS = st.text(st.sampled_from("ab é\n"), max_size=4)
PIECES = st.lists(SAYS.filter(bool), max_size=3)
FILE_CITED = st.builds(
    lambda file_id, start: Annotation(
        type="file_citation",
        file_id=file_id,
        start=start,
        end=start + 1,
        raw={
            "type": "file_citation",
            "text": "[x]",
            "start_index": start,
            "end_index": start + 1,
            "file_citation": {"file_id": file_id},
        },
    ),
    st.sampled_from("fg"),
    st.integers(1, 3),
)


@st.composite
def thread_messages(draw: st.DrawFn, id: str) -> list[Event]:
    """A message of the thread with its parts, one after another."""
    out: list[Event] = []
    status: Any = draw(st.sampled_from(("completed", "completed", "cancelled", "failed")))
    count = draw(st.integers(1, 3))
    for index in range(count):
        part = id if index == 0 else f"{id}.{index}"
        place: dict[str, Any] = {"group": id, "index": index, "role": "assistant", "created_at": 5}
        ends: Any = {"status": status if index == count - 1 else "completed"}
        match draw(st.integers(0, 3)):
            case 0:
                out.append(ev.RefusalCreated(RefusalMessage(part, **place)))
                out += [ev.RefusalDelta(part, piece) for piece in draw(PIECES)]
                out.append(ev.MessageDone(RefusalMessage(part, **place, **ends)))
            case 1:
                image = draw(st.sampled_from(("file_id", "url")))
                out.append(ev.MessageDone(ImageMessage(part, format=image, content="f", **place)))
            case _:
                out.append(ev.TextCreated(TextMessage(part, **place)))
                out += [ev.TextDelta(part, piece) for piece in draw(PIECES)]
                out += [
                    ev.AnnotationAdded(part, one)
                    for one in draw(st.lists(FILE_CITED, max_size=2, unique_by=lambda a: (a.file_id, a.start)))
                ]
                out.append(ev.MessageDone(TextMessage(part, **place, **ends)))
    return out


@st.composite
def tool_steps(draw: st.DrawFn, id: str) -> list[Event]:
    """Calls that a step makes, side by side, and what they gave."""
    calls: list[list[Event]] = []
    outputs: list[Event] = []
    for number in range(draw(st.integers(1, 3))):
        call_id = f"{id}.c{number}"
        match draw(st.integers(0, 2)):
            case 0:
                fields: dict[str, Any] = {"call_id": call_id, "name": "f"}
                grown = [ev.ToolCallDelta(call_id, piece) for piece in ("{", "}")]
                calls.append(
                    [
                        ev.ToolCallCreated(ToolCallMessage(call_id, **fields)),
                        *grown,
                        ev.MessageDone(ToolCallMessage(call_id, **fields)),
                    ]
                )
                if draw(st.booleans()):
                    outputs.append(ev.MessageDone(ToolOutputMessage(f"{call_id}.output", content=draw(SAYS), **fields)))
            case 1:
                searched: dict[str, Any] = {"call_id": call_id, "name": "file_search", "provider_executed": True}
                calls.append([ev.MessageDone(ToolCallMessage(call_id, **searched))])
                results = json.dumps([{"file_id": "f", "file_name": "n", "score": 0.5}], separators=(",", ":"))
                outputs.append(
                    ev.MessageDone(
                        ToolOutputMessage(f"{call_id}.output", call_id=call_id, name="file_search", content=results)
                    )
                )
            case _:
                pieces = [ev.CodeDelta(call_id, piece) for piece in draw(PIECES)]
                made = {"format": "python", "call_id": call_id}
                calls.append(
                    [
                        ev.CodeCreated(CodeMessage(call_id, **made)),
                        *pieces,
                        ev.MessageDone(CodeMessage(call_id, **made)),
                    ]
                )
                printed = [ev.ConsoleDelta(f"{call_id}.console", piece) for piece in draw(PIECES)]
                if printed:
                    outputs += [ev.ConsoleCreated(ConsoleMessage(f"{call_id}.console", call_id=call_id)), *printed]
                    outputs.append(ev.MessageDone(ConsoleMessage(f"{call_id}.console", call_id=call_id)))
                for n in range(draw(st.integers(0, 2))):
                    drawn: dict[str, Any] = {"role": "computer", "format": "file_id", "call_id": call_id, "index": n}
                    outputs.append(ev.MessageDone(ImageMessage(f"{call_id}.image.{n}", content=f"file-{n}", **drawn)))
    begun = [events.pop(0) for events in calls]
    while left := [events for events in calls if events]:
        begun.append(draw(st.sampled_from(left)).pop(0))
    return begun + outputs


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """A run of steps, each a message of the thread or tool calls."""
    out: list[Event] = [ev.RunCreated(ev.Run(id="run_1", model="m", created_at=5, metadata={"thread_id": "th"}))]
    for number in range(draw(st.integers(1, 4))):
        speaks = draw(st.booleans())
        id = f"step_{number}"
        out.append(ev.RunStepCreated(ev.RunStep(id=id, type="message_creation" if speaks else "tool_calls")))
        out += draw(thread_messages(f"msg_{number}") if speaks else tool_steps(id))
        if draw(st.booleans()):
            out.append(ev.Usage(1, 2, 3))
        out.append(ev.RunStepDone(ev.RunStep(id=id)))
    status: Any = draw(st.sampled_from(("completed", "incomplete", "failed", "cancelled", "expired")))
    error = {"code": "server_error", "message": "x"} if status == "failed" else None
    out.append(ev.RunDone(ev.Run(status=status, error=error)))
    return out


def canonical(events: list[Event]) -> Story:
    return tell_items(protocols.find("streamkit").Decoder, [*events, ev.StreamEnd()])


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(stories())
def test_law_8_what_the_protocol_can_express_comes_back(events: list[Event]) -> None:
    """Messages, steps, run and tokens; each event strictly valid."""
    story = canonical(events)
    items = encoded(story)
    for item in items:
        STRICT.validate_json(json.dumps(item), strict=True)
    again = tell_items(Decoder, items)
    key = lambda m: m.id  # noqa: E731  # a step's outputs may come in another order
    assert sorted(map(same, again.engine.messages.all), key=lambda m: m["id"]) == sorted(
        map(same, story.engine.messages.all), key=lambda m: m["id"]
    )
    assert sorted(again.engine.messages.all, key=key)[0].run_id == "run_1"
    decoded, wanted = run_of(again), run_of(story)
    assert (decoded.id, decoded.model, decoded.error) == (wanted.id, wanted.model, wanted.error)
    if wanted.status != "requires_action":
        assert decoded.status == wanted.status
    assert again.codes == []
    for one in (m for m in story.engine.messages.all if m.type != "tool_output"):
        (found,) = [m for m in again.engine.messages.all if m.id == one.id]
        assert found.step_id == one.step_id


def test_what_cannot_be_expressed_is_left_out() -> None:
    """Reasoning, audio, files, and messages of other types; the rest goes on."""
    events: list[Event] = [
        ev.MessageDone(ReasoningMessage("r", content="hm")),
        ev.MessageDone(AudioMessage("a", content="AAAA")),
        ev.MessageDone(FileMessage("f", format="path", content="/x")),
        ev.MessageDone(ImageMessage("p", format="path", content="/x")),
        ev.MessageDone(Message("n", type="novelty", content="x")),
        ev.MessageDone(Message("d", type="code", role="computer", format="html", content="x")),
        ev.MessageDone(ToolOutputMessage("o", call_id="nobody", content="x")),
        ev.MessageDone(TextMessage("t", content="hi")),
        ev.RunDone(ev.Run()),
    ]
    story = tell_items(Decoder, encoded(canonical(events)))
    assert contents(story) == [("t", "hi")]


def test_what_differs_here_is_as_the_table_says() -> None:
    """Each row where something else stands in its place."""
    events: list[Event] = [
        ev.MessageDone(ImageMessage("i", format="base64.png", content="AAAA")),
        ev.MessageDone(ImageMessage("j", role="computer", format="base64.png", content="BBBB")),
        ev.MessageDone(ConsoleMessage("k", content="out")),
        ev.MessageDone(ToolCallMessage("w", call_id="cw", name="web_search", content="{}", provider_executed=True)),
        ev.MessageDone(CodeMessage("s", format="shell", content="ls", call_id="cs")),
        ev.MessageDone(TextMessage("c", role="computer", content="x")),
        ev.MessageDone(TextMessage("u", role="user", content="y")),
        ev.RunDone(ev.Run(status="incomplete", finish_reason="length")),
    ]
    story = tell_items(Decoder, encoded(canonical(events)))
    assert [(m.id, m.type, m.role, m.format, m.content) for m in story.engine.messages.all] == [
        ("i", "image", "assistant", "url", "data:image/png;base64,AAAA"),
        ("j", "image", "assistant", "url", "data:image/png;base64,BBBB"),
        ("k.code", "code", "assistant", "python", ""),
        ("k.code.console", "console", "computer", "output", "out"),
        ("cw", "tool_call", "assistant", None, "{}"),
        ("cs", "code", "assistant", "python", "ls"),
        ("cw.output", "tool_output", "computer", None, ""),
        ("c", "message", "assistant", None, "x"),
        ("u", "message", "user", None, "y"),
    ]
    assert (run_of(story).status, run_of(story).finish_reason) == ("incomplete", "max_completion_tokens")


def test_parts_that_grow_at_once_are_messages_of_their_own() -> None:
    """Here parts come one after another."""
    parts: list[Event] = [ev.TextCreated(TextMessage(one, group="g")) for one in "ab"]
    grown: list[Event] = [ev.TextDelta(one, piece) for one, piece in ("a1", "b2", "a3", "b4")]
    ends: list[Event] = [ev.MessageDone(TextMessage(one)) for one in "ab"]
    story = tell_items(Decoder, encoded(canonical([*parts, *grown, *ends, ev.RunDone(ev.Run())])))
    assert contents(story) == [("a", "13"), ("b", "24")]
    assert story.codes == []


def test_the_events_have_openais_order() -> None:
    """Of text and of a call that waits, from another protocol."""
    chunks = [
        {"content": "Hi"},
        {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ]
    items = [
        {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta}]}
        for delta in chunks
    ]
    items.append({**items[0], "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    story = tell_items(protocols.find("openai_chat").Decoder, items)
    items = encoded(story)
    assert [item["event"].removeprefix("thread.") for item in items] == [
        *("run.created", "run.queued", "run.in_progress"),
        *("run.step.created", "run.step.in_progress", "message.created", "message.in_progress", "message.delta"),
        *("run.step.created", "run.step.in_progress", "run.step.delta", "run.step.delta"),
        *("message.completed", "run.step.completed"),
        "run.requires_action",
    ]
    wanted = items[-1]["data"]["required_action"]["submit_tool_outputs"]["tool_calls"]
    assert wanted == [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    assert items[-1]["data"]["status"] == "requires_action"


def test_a_stream_that_fails_before_its_run_is_an_error() -> None:
    """As openai's `ErrorObject`."""
    error = ev.StreamException("SourceError", "no route", {"code": "c"})
    (item,) = Encoder().feed(error)
    assert item == {
        "event": "error",
        "data": {"code": "c", "message": "no route", "param": None, "type": "SourceError"},
    }
    STRICT.validate_python(item, strict=True)


class Kept(openai.AssistantEventHandler):
    """openai's own handler, which notes its hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def on_text_created(self, text: Any) -> None:
        self.noted.append("text_created")

    def on_text_done(self, text: Any) -> None:
        self.noted.append(f"text_done {text.value}")

    def on_tool_call_created(self, tool_call: Any) -> None:
        self.noted.append(f"tool_call_created {tool_call.type}")

    def on_message_done(self, message: Any) -> None:
        self.noted.append("message_done")

    def on_run_step_done(self, run_step: Any) -> None:
        self.noted.append(f"step_done {run_step.type}")


def test_openais_own_handler_reads_what_is_encoded() -> None:
    """A Responses stream with code and text, over loopback and the real client."""
    replies = Reply(CodeInterpreter("print(1)", "1\n"), Text("It is one."))
    with ModelServer(replies) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as writing:
        stream = sk.stream(lambda: writing.responses.create(model="m", input="hi", stream=True))
        items = list(stream.chunks("openai_assistants"))
    frames = [sse_frame(json.dumps(item["data"]).encode(), item["event"]) for item in items]
    reply = Reply(raw=[*frames, b"event: done\ndata: [DONE]\n\n"])
    with (
        ModelServer(reply) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
        client.beta.threads.runs.stream(thread_id="t", assistant_id="a", event_handler=Kept()) as handler,
    ):
        messages = handler.get_final_messages()
        steps = handler.get_final_run_steps()
        final = handler.get_final_run()
    assert [m.content[0].text.value for m in messages] == ["It is one."]  # type: ignore[union-attr]
    assert [s.type for s in steps] == ["tool_calls", "message_creation"]
    made: Any = steps[0].step_details
    assert made.tool_calls[0].code_interpreter.input == "print(1)"
    assert made.tool_calls[0].code_interpreter.outputs[0].logs == "1\n"
    assert final.status == "completed"
    assert final.usage is not None and final.usage.total_tokens > 0
    assert {"text_created", "tool_call_created code_interpreter", "text_done It is one.", "message_done"} <= set(
        handler.noted
    )


@both_shells
@pytest.mark.parametrize("protocol", ["chat", "responses"])
@body
async def test_a_run_that_goes_on_after_its_calls_is_one_run_here(face: Face, protocol: str) -> None:
    """The joined stream of another protocol: requires_action, the step completed with its outputs, and so on."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(ModelServer([ASKED, Reply(Text("It rains."))]))
        client = await stack.enter_async_context(face.client(server))
        ask = faces.ask(client) if protocol == "chat" else faces.ask_responses(client)

        def answer(handler: Any, _: ev.Run) -> None:
            for call in handler.stream.pending.values():
                call.respond("rain")

        stream = face.stream(ask, face.told(on_run_requires_action=answer), then=lambda _: ask)
        items = [item async for item in stream.chunks("openai_assistants")]
    for item in items:
        STRICT.validate_json(json.dumps(item), strict=True)
    names = [item["event"].removeprefix("thread.") for item in items if not item["event"].endswith("delta")]
    at = names.index("run.requires_action")
    assert names[at + 1 : at + 4] == ["run.step.completed", "run.queued", "run.in_progress"]
    assert names[-2:] == ["run.step.completed", "run.completed"]
    story = tell_items(Decoder, items)
    assert [m.type for m in story.engine.messages.all].count("tool_output") == 2
    assert (run_of(story).status, story.codes) == ("completed", [])
    assert story.contents("message") == ["Let me look.", "It rains."]
    check_brackets(story.lines)


@each_recording("openai-assistants", complete=True)
def test_a_recording_is_no_offence(path: Path) -> None:
    """To a strict stream either."""
    assert tell_bytes(Decoder, [path.read_bytes()], strict=True).lines == tell_bytes(Decoder, [path.read_bytes()]).lines


# -- input

CALLED = ToolCallMessage("c", call_id="c", name="f", content="{}", step_id="s1")
ALSO = ToolCallMessage("d", call_id="d", name="f", content="{}", step_id="s2")
SEARCHED = ToolCallMessage("e", call_id="e", name="file_search", provider_executed=True, step_id="s2")


def output(call_id: str, step_id: str) -> ToolOutputMessage:
    return ToolOutputMessage(f"{call_id}.output", call_id=call_id, content=f"out {call_id}", step_id=step_id)


SPOKEN = TextMessage("t", content="hi", role="user")


@pytest.mark.parametrize(
    ("messages", "items"),
    [
        ([SPOKEN], [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
        (
            [
                SPOKEN,
                TextMessage("a", content="yes"),
                RefusalMessage("r", content="no"),
                ReasoningMessage("x", content="hm"),
            ],
            [
                {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "no"}]},
            ],
        ),
        (
            [
                TextMessage("t", role="user", content="see", group="g"),
                ImageMessage("i", role="user", format="file_id", content="f", group="g"),
                ImageMessage("u", role="user", format="url", content="https://example.org", group="g"),
                FileMessage("d", role="user", format="file_id", content="file-1", group="g"),
            ],
            [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "see"},
                        {"type": "image_file", "image_file": {"file_id": "f"}},
                        {"type": "image_url", "image_url": {"url": "https://example.org"}},
                    ],
                    "attachments": [
                        {"file_id": "file-1", "tools": [{"type": "file_search"}, {"type": "code_interpreter"}]}
                    ],
                }
            ],
        ),
        ([SPOKEN, CALLED, output("c", "s1")], [{"tool_call_id": "c", "output": "out c"}]),
        ([CALLED, output("c", "s1"), ALSO, output("d", "s2")], [{"tool_call_id": "d", "output": "out d"}]),
        (
            [SEARCHED, output("e", "s2"), TextMessage("a", content="yes")],
            [{"role": "assistant", "content": [{"type": "text", "text": "yes"}]}],
        ),
        ([SPOKEN, SEARCHED, output("e", "s2")], [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]),
        ([CALLED, CodeMessage("k", content="1"), ConsoleMessage("o", content="1")], []),
    ],
)
def test_messages_are_a_threads_or_the_outputs_that_a_run_waits_for(messages: list[Any], items: list[Any]) -> None:
    """As `messages=` and `tool_outputs=` take them."""
    assert to_input(messages) == items


@pytest.mark.parametrize(
    "message",
    [
        TextMessage("x", role="system", content="be kind"),
        ImageMessage("x", role="user", format="path", content="/a.png"),
        ImageMessage("x", role="user", format="base64.png", content="AAAA"),
        FileMessage("x", role="user", format="path", content="/a.txt"),
        AudioMessage("x", role="user", format="wav", content="AA=="),
        Message("x", role="user", type="novelty", content="a"),
    ],
)
def test_what_a_thread_cannot_take_is_the_callers_fault(message: Message) -> None:
    """It is not dropped in silence."""
    with pytest.raises(UsageError, match="'x'"):
        to_input([message])


# -- the real client, over loopback


@asynccontextmanager
async def served(face: Face, *replies: Reply) -> AsyncIterator[tuple[ModelServer, Any]]:
    with ModelServer(replies) as server:
        async with face.client(server) as client:
            yield server, client.beta.threads


@both_shells
@body
async def test_a_run_is_streamed(face: Face) -> None:
    """`runs.create(stream=True)`, and on a thread of its own."""
    async with served(face, SAID) as (server, threads):
        asks = [
            lambda: threads.runs.create(thread_id="t", assistant_id="a", stream=True),
            lambda: threads.create_and_run(assistant_id="a", stream=True),
        ]
        for ask in asks:
            handler = face.told()
            stream = face.stream(ask, handler)
            messages = await stream.get_final_messages()
            assert [(m.type, m.content) for m in messages] == [
                ("code", "print(1)"),
                ("console", "1\n"),
                ("message", "It rains."),
            ]
            assert (stream.status, stream.warnings) == ("completed", ())
            handler.check_brackets()
        assert [request.path for request in server.requests] == ["/v1/threads/t/runs", "/v1/threads/runs"]


@both_shells
@body
async def test_the_clients_helper_is_a_source(face: Face) -> None:
    """Its manager, which was not entered."""
    async with served(face, SAID) as (_, threads):
        for manager in (
            threads.runs.stream(thread_id="t", assistant_id="a"),
            threads.create_and_run_stream(assistant_id="a"),
            threads.runs.submit_tool_outputs_stream(thread_id="t", run_id="r", tool_outputs=[]),
        ):
            handler = face.told()
            stream = face.stream(manager, handler)
            assert await stream.get_final_text() == "It rains."
            assert stream.warnings == ()
            handler.check_brackets()


@both_shells
@body
async def test_tool_outputs_go_on_with_the_same_run(face: Face) -> None:
    """Answered in a hook, one continuous stream, in order; and the final accessors have the complete run."""
    async with served(face, ASKED, SAID) as (server, threads):

        def go_on(stream: Any) -> Any:
            run = stream.current_run
            outputs = sk.to_input(stream.messages, "openai_assistants")
            return threads.runs.submit_tool_outputs(
                thread_id=run.metadata["thread_id"], run_id=run.id, tool_outputs=outputs, stream=True
            )

        def answer(_: Any, call: ToolCallMessage) -> None:
            call.respond(f"rain in {call.arguments['city']}")

        handler = face.told(on_tool_call_done=answer)
        stream = face.stream(lambda: threads.create_and_run(assistant_id="a", stream=True), handler, then=go_on)
        await stream.until_done()
        assert [m.type for m in stream.messages] == [
            "message",
            "tool_call",
            "tool_call",
            "tool_output",
            "tool_output",
            "code",
            "console",
            "message",
        ]
        assert server.requests[1].body["tool_outputs"] == [
            {"tool_call_id": "call_1_0", "output": "rain in Oslo"},
            {"tool_call_id": "call_1_1", "output": "rain in Rome"},
        ]
        assert [s.id for s in await stream.get_final_run_steps()] == ["step_1_0", "step_1_1", "step_2_0", "step_2_1"]
        run = await stream.get_final_run()
        assert (run.id, run.status, stream.status) == ("run_1", "completed", "completed")
        assert stream.warnings == ()
        handler.check_brackets()


@both_shells
@body
async def test_a_run_without_answers_ends_requires_action(face: Face) -> None:
    """And lists what it waits for."""
    async with served(face, ASKED) as (_, threads):
        stream = face.stream(lambda: threads.create_and_run(assistant_id="a", stream=True))
        await stream.until_done()
        assert (stream.status, sorted(stream.pending)) == ("requires_action", ["call_1_0", "call_1_1"])


@both_shells
@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (Reply(Text("Hello"), error_after=1), sk.RunFailedError, "Hello"[:4]),
        (Reply(Text("Hello"), error_after=1, error_event="response.failed"), sk.RunFailedError, "Hello"[:4]),
        (Reply(Text("Hello"), cut_after=1), sk.SourceError, "Hello"[:4]),
        (Reply(status=401), sk.SourceError, ""),
        (Reply(status=429), sk.SourceError, ""),
    ],
)
@body
async def test_what_fails_is_raised(face: Face, reply: Reply, error: type[sk.StreamkitError], text: str) -> None:
    """`on_exception` and `on_end` fire, also for a request that is refused."""
    async with served(face, reply) as (_, threads):
        handler = face.told()
        stream = face.stream(lambda: threads.create_and_run(assistant_id="a", stream=True), handler)
        with pytest.raises(error):
            await stream.until_done()
        assert "".join(m.content for m in stream.messages) == text
        assert handler.hooks[-2:] == ["on_exception", "on_end"]


@both_shells
@body
async def test_a_reply_that_is_cut_short_is_incomplete(face: Face) -> None:
    """By length; and a refusal is one."""
    async with served(face, Reply(Text("Hel"), finish_reason="length"), Reply(Refusal("I cannot."))) as (_, threads):
        ask = lambda: threads.runs.create(thread_id="t", assistant_id="a", stream=True)  # noqa: E731
        stream = face.stream(ask)
        (cut,) = await stream.get_final_messages()
        assert (cut.status, stream.status, stream.current_run.finish_reason) == (
            "incomplete",
            "incomplete",
            "max_completion_tokens",
        )
        (refused,) = await face.stream(ask).get_final_messages()
        assert (refused.format, refused.content) == ("refusal", "I cannot.")


@pytest.mark.parametrize(
    "reply", [ASKED, SAID, Reply(), Reply(Text("Hel"), finish_reason="length"), Reply(Refusal("no"))]
)
def test_the_servers_events_are_strictly_valid(reply: Reply) -> None:
    """Of a run, and of one that goes on; and those of a run that fails."""
    import httpx

    paths = ["/threads/runs", "/threads/t/runs", "/threads/t/runs/run_1/submit_tool_outputs"]
    failing = Reply("x", error_after=0, error_event="response.failed")
    with ModelServer([reply, reply, reply, failing]) as server:
        for path in [*paths, paths[0]]:
            body = {"assistant_id": "a", "tool_outputs": [], "stream": True}
            answer = httpx.post(server.url + path, json=body)
            framer = SseFramer()
            frames = framer.feed(answer.content) + framer.finish()
            assert frames[-1][1:] == (b"done", b"[DONE]")
            for _, name, data in frames[:-1]:
                STRICT.validate_json(json.dumps({"event": name.decode(), "data": json.loads(data)}), strict=True)


def test_the_server_answers_without_a_stream_and_turns_down_what_makes_no_sense() -> None:
    """A run as one object; a missing parameter, another method, another path."""
    import httpx
    from openai.types.beta.threads import Run

    with ModelServer(ASKED) as server:
        answer = httpx.post(server.url + "/threads/runs", json={"assistant_id": "a"})
        assert Run.model_validate_json(answer.content, strict=True).status == "requires_action"
        assert httpx.post(server.url + "/threads/runs", json={}).status_code == 400
        assert httpx.get(server.url + "/threads/runs").status_code == 405
        assert httpx.post(server.url + "/threads/t/runs/r/cancel", json={}).status_code == 404


def test_a_complete_run_is_streamed() -> None:
    """What a request without `stream` gives."""
    with (
        ModelServer(ASKED) as server,
        openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client,
    ):
        stream = sk.stream(lambda: client.beta.threads.runs.create(thread_id="t", assistant_id="a"))
        stream.until_done()
    assert (stream.status, [m.type for m in stream.messages]) == ("requires_action", ["tool_call", "tool_call"])


def _chunk(content: str, choice: int = 0, finish: str | None = None) -> dict[str, Any]:
    choices = [{"index": choice, "delta": {"content": content}, "finish_reason": finish}]
    return {"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choices}


def test_of_several_choices_the_first_is_encoded() -> None:
    """A thread has one answer: the texts of two would be read as one."""
    chunks = [_chunk("a"), _chunk("x", 1), _chunk("b", 0, "stop"), _chunk("y", 1, "stop")]
    items = list(sk.stream(chunks).chunks("openai_assistants"))
    assert sk.stream(items).get_final_text() == "ab"


def test_a_source_that_was_cut_off_is_a_run_that_failed() -> None:
    """Not one that the provider cut short, which is an ordinary end."""
    items: list[dict[str, Any]] = []
    chunks = iter(sk.stream([_chunk("a")]).chunks("openai_assistants"))
    with pytest.raises(sk.IncompleteStreamError):
        while True:
            items.append(dict(next(chunks)))
    again = sk.stream(items)
    with pytest.raises(sk.RunFailedError, match="cut off"):
        again.until_done()
    assert [message.content for message in again.messages] == ["a"]
