"""Letta: recorded streams of both eras, the merge rules, approvals, the forms that trip other readers, the way back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.protocols.dates import date_of, time_of
from streamkit.protocols.framing import SseFramer, sse_frame
from streamkit.protocols.letta import Decoder, Encoder, to_input

from .. import values as q
from ..faces import Face, body, every_face, every_pair
from ..recorded import SHARED, each_recording, own_recordings, streams_in
from ..telling import Story, tell_bytes, tell_items


def is_stream(path: Path) -> bool:
    return path.stem != "conformance"  # a list of cases


STREAMS = [*own_recordings("letta", complete=True), *filter(is_stream, streams_in(SHARED / "letta"))]


class Careful(Decoder):
    """The same decoder without its plain case."""

    plain_item = None


def item(kind: str, id: Any = "m1", otid: Any = "o1", **more: Any) -> dict[str, Any]:
    """An item as today's servers send it, nulls and all."""
    head = {"id": id, "date": "2026-01-01T00:00:00+00:00", "name": None, "message_type": kind, "otid": otid}
    return {**head, "sender_id": None, "step_id": "s1", "is_err": None, "seq_id": None, "run_id": "r1", **more}


def said(text: Any, id: Any = "m1", otid: Any = "o1", **more: Any) -> dict[str, Any]:
    return item("assistant_message", id, otid, content=text, **more)


def thought(text: Any, id: Any = "m1", otid: Any = "o0", **more: Any) -> dict[str, Any]:
    known = {"source": "reasoner_model", "reasoning": text, "signature": None}
    return item("reasoning_message", id, otid, **{**known, **more})


def calls(*fragments: dict[str, Any], kind: str = "tool_call_message", **more: Any) -> dict[str, Any]:
    """A list of calls, as in step streams."""
    return item(kind, tool_call=fragments[0], tool_calls=list(fragments), **more)


def call(call_id: Any = "t1", tool: Any = None, arguments: Any = None, /, **more: Any) -> dict[str, Any]:
    """A fragment of a call, as in token streams."""
    given = {"name": tool, "arguments": arguments, "tool_call_id": call_id}
    fragment = {key: value for key, value in given.items() if value is not None}
    return item("tool_call_message", tool_call=fragment, tool_calls=fragment, **more)


def approval(call_id: Any = "t1", tool: Any = None, arguments: Any = None, /, **more: Any) -> dict[str, Any]:
    return {**call(call_id, tool, arguments, **more), "message_type": "approval_request_message"}


def returned(id: Any = "t1", output: Any = "ok", status: Any = "success", **more: Any) -> dict[str, Any]:
    flat = {"tool_return": output, "status": status, "tool_call_id": id, "stdout": None, "stderr": None, **more}
    known = {"name": "f", **flat, "tool_returns": [{"type": "tool", **flat}]}
    return item("tool_return_message", "m2", "o9", **known)


def stop(reason: Any = "end_turn") -> dict[str, Any]:
    return {"message_type": "stop_reason", "stop_reason": reason}


USED = {"message_type": "usage_statistics", "completion_tokens": 2, "prompt_tokens": 1, "total_tokens": 3}


def sse(items: Iterable[Any], *, done: bool = True) -> bytes:
    """A body: items as JSON, text as it is."""
    frames = (sse_frame(one.encode() if isinstance(one, str) else json.dumps(one).encode()) for one in items)
    return b"".join(frames) + (b"data: [DONE]\n\n" if done else b"")


def tell(*items: Any, done: bool = True) -> Story:
    story = tell_bytes(Decoder, [sse(items, done=done)])
    assert tell_bytes(Careful, [sse(items, done=done)]).lines == story.lines
    return story


def run_of(story: Story) -> e.Run:
    assert story.engine.runs.run is not None
    return story.engine.runs.run


def told_calls(story: Story) -> list[tuple[str | None, str | None, str]]:
    return [(c.call_id, c.name, c.content) for c in story.engine.messages.all if isinstance(c, m.ToolCallMessage)]


# -- the recordings

SAVED = '{"label": "human", "content": "Likes tea and “green” things 🍵."}'
THOUGHT = "The user wants the answer. It is 42, obviously."
HELLO = "Hello! I'm your assistant. How can I help you today?"
# What each says: messages by type and content; a call as name and arguments.
EXPECTED: dict[str, list[tuple[str, ...]]] = {
    "srv0168-approval-request-steps": [("tool_call", "roll_dice", '{"sides": 6}')],
    "srv0168-empty-answer": [],
    "srv0168-llm-connection-dies": [("message", "This connection will drop in the")],
    "srv0168-memgpt-raw-tool-calls-tokens": [
        ("reasoning", " A friendly greeting is due. I'll say hi."),
        ("tool_call", "send_message", '{"message": "Hi there! “Welcome” back 🎉."}'),
        ("tool_output", "Sent message successfully."),
    ],
    "srv0168-memgpt-tool-then-message-tokens": [
        ("reasoning", " Remember this."),
        ("tool_call", "core_memory_append", '{"label": "human","content": "Fact.","request_heartbeat": true}'),
        ("tool_output", "x\nFact."),
        ("reasoning", " Now confirm."),
        ("message", "Saved it."),
    ],
    "srv0168-reasoning-steps": [("reasoning", THOUGHT), ("message", "The answer is 42.")],
    "srv0168-reasoning-tokens": [("reasoning", THOUGHT), ("message", "The answer is 42.")],
    "srv0168-text-steps": [("message", HELLO)],
    "srv0168-text-tokens": [("message", HELLO)],
    "srv0168-text-then-tool-tokens": [
        ("message", "Let me save that first."),
        ("tool_call", "core_memory_append", '{"label": "human", "content": "Name is Ada."}'),
        ("tool_output", "x\nName is Ada."),
        ("message", "Saved, Ada."),
    ],
    "srv0168-tool-returns-error": [
        (
            "tool_call",
            "core_memory_replace",
            '{"label": "human", "old_content": "not there at all", "new_content": "x"}',
        ),
        (
            "console",
            "Error executing function core_memory_replace: ValueError: Old content 'not there at all' not found in "
            "memory block 'human'",
        ),
        ("tool_output", "Old content 'not there at all' not found in memory block 'human'"),
        ("message", "That failed, sorry."),
    ],
    "srv0168-tool-steps": [
        ("tool_call", "core_memory_append", json.dumps(json.loads(SAVED))),
        ("tool_output", "x\nLikes tea and “green” things 🍵."),
        ("message", "Noted: you like tea."),
    ],
    "srv0168-tool-tokens": [
        ("tool_call", "core_memory_append", SAVED),
        ("tool_output", "x\nLikes tea and “green” things 🍵."),
        ("message", "Noted: you like tea."),
    ],
    "srv0168-unknown-tool": [
        ("tool_call", "no_such_tool", '{"x": 1}'),
        (
            "tool_output",
            "[ToolConstraintError] Cannot call no_such_tool, valid tools include: ['core_memory_replace', 'roll_dice', "
            "'core_memory_append'].",
        ),
        ("message", "That tool does not exist."),
    ],
    "recorded_issue2463_claude37_2025-03": [
        (
            "reasoning",
            "\nUser wants a starting draft to work with. I'll create a comprehensive CS teacher persona with patience as "
            "a key trait.\n",
        )
    ],
    "recorded_pr1693_memgpt_tokens_2024-08": [("reasoning", "Chad keeps repeating his question")],
}
ERA_2024 = ("doc-2024-step-stream-done-gen", "recorded_steps_done_gen_2024-09")
CUT_OFF = ("recorded_issue2463_claude37_2025-03", "recorded_pr1693_memgpt_tokens_2024-08")


def reading(story: Story) -> list[tuple[str, ...]]:
    return [(x.type, *([x.name or ""] if x.type == "tool_call" else []), x.content) for x in story.engine.messages.all]


@each_recording("letta", own=False, only=is_stream)
def test_a_recorded_stream_is_read_as_it_was_meant(path: Path) -> None:
    """Texts, reasoning, calls and returns; none needs a warning."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    if path.stem not in ERA_2024:
        assert reading(story) == EXPECTED[path.stem]
    assert story.codes == []
    assert story.decoder.complete is (path.stem not in CUT_OFF)
    assert all(call.provider_executed for call in story.engine.messages.all if isinstance(call, m.ToolCallMessage))


@each_recording("letta", own=False, only=lambda path: path.stem in ERA_2024)
def test_a_step_stream_of_2024_is_one_step_of_one_run(path: Path) -> None:
    """A thought, the call of `send_message`, its return; `[DONE_STEP]` ends the step, `[DONE]` the run."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    thinks, sends, gives = story.engine.messages.all
    assert (thinks.type, gives.type, gives.content) == ("reasoning", "tool_output", "None")
    assert isinstance(sends, m.ToolCallMessage)
    assert sends.name == "send_message"
    assert len(sends.arguments["message"]) > 100
    assert gives.call_id == (sends.call_id or sends.id)
    assert story.types[-2:] == ["run_step_done", "run_done"]
    assert run_of(story).status == "completed"


@each_recording("letta", only=is_stream)
@pytest.mark.parametrize("size", [97, 10**9])
def test_both_paths_emit_the_same_events(path: Path, size: int) -> None:
    whole = path.read_bytes()
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]
    fast, careful = tell_bytes(Decoder, chunks), tell_bytes(Careful, chunks)
    assert fast.lines == careful.lines
    assert fast.decoder.index == careful.decoder.index
    assert [event.raw for event in fast.events] == [event.raw for event in careful.events]


@each_recording("letta", only=is_stream)
def test_a_recorded_stream_survives_the_way_through_the_encoder(path: Path) -> None:
    story = tell_bytes(Decoder, [path.read_bytes()])
    again = encoded_again(story)
    assert shape(again) == shape(story)
    assert run_of(again).id == run_of(story).id


def test_the_run_and_its_steps_have_the_servers_ids() -> None:
    """And the times that it gave; usage is the run's."""
    path = SHARED / "letta" / "srv0168-tool-tokens.sse"
    if not path.exists():
        pytest.skip("the recorded letta streams are not beside this checkout")
    story = tell_bytes(Decoder, [path.read_bytes()])
    run, steps = run_of(story), story.engine.runs.steps
    assert run.id == "run-4db867f9-0f22-4a43-bef1-d5b14fc244ae"
    assert run.created_at == datetime(2026, 11, 21, 0, 26, 38, tzinfo=UTC).timestamp()
    assert [step.id for step in steps] == [
        "step-b9dcad5c-5841-40f3-89a1-58b951198e65",
        "step-aa024939-b4fc-4007-ac60-ec8d7b97fb11",
    ]
    assert [message.step_id for message in story.engine.messages.all] == [steps[0].id, steps[0].id, steps[1].id]
    assert run.usage is not None
    assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.total_tokens) == (200, 40, 240)
    assert run.usage.details == {"step_count": 2, "context_tokens": 120}
    assert run.finish_reason == "end_turn"


# -- the merge rules


def cases() -> list[Any]:
    path = SHARED / "letta" / "conformance.jsonl"
    if not path.exists():
        reason = "the conformance cases are not beside this checkout"
        return [pytest.param(None, id="conformance", marks=pytest.mark.skip(reason=reason))]
    return [pytest.param(case, id=case["name"]) for case in map(json.loads, path.read_text().splitlines())]


def rows(events: Iterable[e.Event]) -> list[list[Any]]:
    """What a client shows, in the order in which it began."""
    out: list[list[Any]] = []
    of: dict[str, list[Any]] = {}
    for event in events:
        match event:
            case e.RawEvent(name=name):
                out.append(["unknown", name])
            case e.ConfirmationCreated(confirmation=asked):
                of[asked.subject.call_id or ""][0] = "approval"
                of[asked.subject.call_id or ""].append(asked.status)
            case e.Created(message=m.ToolCallMessage() as call):
                of[call.call_id or ""] = row = ["tool", call.call_id, call.name, call]
                out.append(row)
            case e.Created(message=m.ToolOutputMessage() as given):
                if given.call_id not in of:
                    of[given.call_id or ""] = row = ["tool", given.call_id, None, ""]
                    out.append(row)
                of[given.call_id or ""] += [given, "error" if given.metadata.get("error") else "success"]
            case e.Created(message=message):
                out.append(["reasoning" if message.type == "reasoning" else "assistant", message])
            case _:
                pass
    return [[part.content if isinstance(part, m.Message) else part for part in row] for row in out]


def rows_of(pieces: Iterable[bytes], kind: type[Decoder] = Decoder) -> list[list[Any]]:
    engine, framer = Engine(), SseFramer()
    decoder = kind(engine.messages.new_id)
    return rows([event for piece in pieces for event in engine.complete(decoder.feed_frames(framer.feed(piece)))])


@pytest.mark.parametrize("case", cases())
def test_what_a_client_must_show_is_shown_at_every_cut(case: dict[str, Any]) -> None:
    """Wherever the bytes are cut, and on both paths. Of long cases each fourth place is tried."""
    whole = sse(case["chunks"], done=False)
    assert rows_of([whole], Careful) == case["rows"]
    for place in range(0, len(whole), 4 if len(whole) > 800 else 1):
        assert rows_of([whole[:place], whole[place:]]) == case["rows"], f"cut at byte {place}"


def test_there_are_23_cases() -> None:
    if cases()[0].id == "conformance":
        pytest.skip("the conformance cases are not beside this checkout")
    assert len(cases()) == 23


PART = "623f6bf5-d88e-46ac-9bc0-5ff6585eae8{}"  # the server's own otid of a message's part, by its number


@pytest.mark.parametrize("otids", [[PART.format(n) for n in range(3)], [None] * 3], ids=["numbered", "none"])
def test_parts_of_one_message_end_each_other(otids: Iterable[str | None]) -> None:
    """Reasoning is done when the answer begins, not with the step, where otids number the parts or there are none."""
    first, second, third = otids
    story = tell(
        *(thought("a", otid=first), thought("b", otid=first), said("c", otid=second)),
        *(call("t1", "f", otid=third), call("t1", None, "{}", otid=third), stop()),
    )
    assert [t for t in story.types if t.endswith(("_created", "_done")) and "run" not in t] == [
        *("reasoning_created", "reasoning_done", "text_created", "text_done", "tool_call_created", "tool_call_done")
    ]
    assert story.types.index("reasoning_done") < story.types.index("text_created")
    assert story.types.index("text_done") < story.types.index("tool_call_created")


def test_parts_of_one_message_may_interleave() -> None:
    """Their otids tell them apart, around a call too, and whichever of them has the lower number."""
    pieces = [thought("a", otid="o0"), said("x"), thought("b", otid="o0"), call("t1", "f", "{}", otid="o2"), said("y")]
    story = tell(*pieces, stop())
    assert (story.contents("reasoning"), story.contents("message"), story.codes) == (["ab"], ["xy"], [])
    one, two = PART.format(1), PART.format(2)
    story = tell(thought("a", otid=two), said("x", otid=one), thought("b", otid=two), said("y", otid=one), stop())
    assert (story.contents("reasoning"), story.contents("message"), story.codes) == (["ab"], ["xy"], [])


def test_a_call_that_is_cut_off_is_incomplete() -> None:
    story = tell(call("t1", "f", '{"a":'), done=False)
    ended = [line["message"]["status"] for line in story.lines if line["type"] == "tool_call_done"]
    assert ended == ["incomplete"]


@every_pair
@pytest.mark.parametrize("runs", [("r1", "r2"), (None, None), (None, "r2"), ("r1", None)])
@pytest.mark.parametrize("first", ["end_turn", "max_steps", "requires_approval"])
@pytest.mark.parametrize("last", ["end_turn", "error"])
def test_a_run_that_follows_another_has_its_own_ending(runs: tuple[Any, Any], first: str, last: str) -> None:
    """Whether items say which run they are of or not; cut off before its end, it is cut off."""
    items = [said("a", run_id=runs[0]), stop(first), said("b", "m2", "p1", run_id=runs[1], step_id="s2")]
    story = tell(*items, stop(last))
    assert (run_of(story).finish_reason, story.contents("message")) == (last, ["a", "b"])
    assert story.engine.runs.outcome is not None
    assert story.engine.runs.outcome.status == ("failed" if last == "error" else "completed")
    assert tell_bytes(Decoder, [sse([*items, stop(last)], done=False)]).decoder.complete
    assert not tell_bytes(Decoder, [sse(items, done=False)]).decoder.complete


def test_what_is_of_no_run_changes_nothing_after_its_end() -> None:
    """An item that no hook is for, a user's message."""
    for late in (item("response_state", state="x"), item("user_message", "m3", "u1", content="hi"), USED):
        story = tell_bytes(Decoder, [sse([said("a"), stop("max_steps"), late], done=False)])
        assert story.decoder.complete
        assert run_of(story).finish_reason == "max_steps"


@pytest.mark.parametrize("ids", [("m1", "m2"), (None, None)], ids=["by id", "by otid"])
def test_texts_of_different_messages_may_interleave(ids: tuple[Any, Any]) -> None:
    first, second = ids
    pieces = [said("a", first, "o1"), said("x", second, "o2"), said("b", first, "o1"), said("y", second, "o2")]
    assert tell(*pieces, stop()).contents("message") == ["ab", "xy"]


def test_a_call_is_done_where_its_arguments_end() -> None:
    """Its tool may run for long: `on_tool_call_done` does not wait for the return. A brace in a string ends nothing."""
    story = tell(
        call("t1", "f"),
        *(call("t1", None, piece) for piece in ('{"a": "\\', '"}', '{"', ', "b": {}', "}")),
        item("ping", "ping-1", None),
        returned(),
        stop(),
    )
    assert told_calls(story) == [("t1", "f", '{"a": "\\"}{", "b": {}}')]
    done = next(event for event in story.events if isinstance(event, e.ToolCallDone))
    assert done.raw["tool_calls"]["arguments"] == "}"


def test_arguments_that_no_json_can_hold_are_none() -> None:
    """Which only parsed items can have: they are whatever a program made."""
    circle: list[Any] = []
    circle.append(circle)
    story = tell_items(Decoder, [call("t1", "f", circle), stop()])
    assert (told_calls(story), story.codes) == ([("t1", "f", "")], [])


def test_space_after_arguments_is_nothing_and_more_is_a_fault() -> None:
    story = tell(call("t1", "f", "{}"), call("t1", None, " \n"), call("t1", None, "{}"), stop())
    assert told_calls(story) == [("t1", "f", "{}")]
    assert story.codes == ["late-arguments"]


def test_arguments_that_go_on_after_their_end_in_one_piece_are_complete() -> None:
    """They are no JSON, and it is for the reader to see that."""
    story = tell(call("t1", "f", "{}{"), call("t1", None, "}x"), stop())
    assert told_calls(story) == [("t1", "f", "{}{}x")]


CALLS: dict[str, tuple[list[Any], list[tuple[str | None, str | None, str]], list[str]]] = {
    "arguments before the name": (
        [call("t1", None, "{"), call("t1", "f"), call("t1", None, "}")],
        [("t1", "f", "{}")],
        [],
    ),
    "the name comes last": ([call("t1", None, "{}"), call("t1", "f")], [("t1", "f", "{}")], []),
    "nothing at all": ([call(None), call("t1", "f", "{}")], [("t1", "f", "{}")], []),
    "no name": ([call("t1", None, "{}")], [("t1", None, "{}")], ["no-tool-name"]),
    "arguments are an object": ([call("t1", "f", {"x": [1]})], [("t1", "f", '{"x":[1]}')], []),
    "no arguments": ([call("t1", "f"), returned()], [("t1", "f", "")], []),
    "first arguments null": (
        [calls({"name": "f", "arguments": None, "tool_call_id": "t1"}), call("t1", None, "{}")],
        [("t1", "f", "{}")],
        [],
    ),
    "`tool_call` alone": (
        [item("tool_call_message", tool_call={"name": "f", "arguments": "{}", "tool_call_id": "t1"}, tool_calls=None)],
        [("t1", "f", "{}")],
        [],
    ),
    "no ids": (
        [call(None, "f"), call(None, None, "{"), call(None, None, "}"), call(None, "g", "{}")],
        [(None, "f", "{}"), (None, "g", "{}")],
        [],
    ),
    "an id once": ([call("t1", "f"), call(None, None, "{"), call(None, None, "}")], [("t1", "f", "{}")], []),
    "the same id in another step": (
        [call("t1", "f", "{}"), returned(), call("t1", "g", "{}", step_id="s2"), returned()],
        [("t1", "f", "{}"), ("t1", "g", "{}")],
        [],
    ),
    "every call has the same id": (
        [calls(*({"name": x, "arguments": "{}", "tool_call_id": "t1"} for x in "fg"))],
        [("t1", "f", "{}"), ("t1", "g", "{}")],
        [],
    ),
    "one is no object": (
        [item("tool_call_message", tool_calls=[5, {"name": "f", "arguments": "{}", "tool_call_id": "t1"}])],
        [("t1", "f", "{}")],
        ["bad-tool-call"],
    ),
    "`tool_calls` is text": (
        [item("tool_call_message", tool_call={"name": "f", "arguments": "{}", "tool_call_id": "t1"}, tool_calls="f")],
        [("t1", "f", "{}")],
        ["bad-tool-call"],
    ),
}


@pytest.mark.parametrize("items, expected, codes", CALLS.values(), ids=CALLS.keys())
def test_calls_are_separate_and_complete(items: list[Any], expected: list[Any], codes: list[str]) -> None:
    story = tell(*items, stop())
    assert told_calls(story) == expected
    assert story.codes == codes
    assert story.types.count("tool_call_created") == story.types.count("tool_call_done") == len(expected)


# -- returns


def test_a_return_may_hold_several_and_what_they_printed() -> None:
    """Each is tied to its call; stdout and stderr are console output, told apart."""
    entries: list[dict[str, Any]] = [
        {"type": "tool", "tool_call_id": "t2", "status": "error", "tool_return": "no", "stderr": ["E1\n", "E2"]},
        {"type": "tool", "tool_call_id": "t1", "status": "success", "tool_return": [{"type": "text", "text": "yes"}]},
    ]
    entries[1]["stdout"] = ["out"]
    story = tell(
        calls(*({"name": x, "arguments": "{}", "tool_call_id": y} for x, y in (("f", "t1"), ("g", "t2")))),
        item("tool_return_message", "m2", "o9", tool_return="no", tool_call_id="t2", tool_returns=entries),
        stop(),
    )
    told = [(x.type, x.call_id, x.name, x.content) for x in story.engine.messages.all[2:]]
    assert told == [
        ("console", "t2", None, "E1\nE2"),
        ("tool_output", "t2", "g", "no"),
        ("console", "t1", None, "out"),
        ("tool_output", "t1", "f", "yes"),
    ]
    streams = [x.metadata for x in story.events if isinstance(x, e.ConsoleDelta)]
    assert streams == [{"stream": "stderr"}, {"stream": "stderr"}, {"stream": "stdout"}]
    assert [x.metadata for x in story.engine.messages.all if x.type == "tool_output"] == [{"error": True}, {}]


RETURNS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "an entry is text": ({"tool_returns": ["x", {"tool_call_id": "t1", "tool_return": "ok"}]}, ["bad-tool-returns"]),
    "all entries are text": ({"tool_returns": ["x"], "tool_return": "ok"}, ["bad-tool-returns"]),
    "one that is not in a list": ({"tool_returns": {"tool_call_id": "t1", "tool_return": "ok"}}, []),
    "a status that is a number": ({"tool_return": "ok", "status": 5, "tool_returns": None}, []),
    "printed lines that are none": ({"tool_return": "ok", "stdout": 5, "stderr": [None]}, []),
}


@pytest.mark.parametrize("fields, codes", RETURNS.values(), ids=RETURNS)
def test_a_return_with_a_bad_value_is_read_without_it(fields: dict[str, Any], codes: list[str]) -> None:
    story = tell(call("t1", "f", "{}"), item("tool_return_message", "m2", "o9", tool_call_id="t1", **fields), stop())
    assert story.contents("tool_output") == ["ok"]
    assert story.codes == codes


def test_images_in_a_return_are_images() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AA=="}}
    story = tell(call("t1", "f", "{}"), returned(output=[{"type": "text", "text": "see"}, image]), stop())
    output, shown = story.engine.messages.all[1:]
    assert output.content == "see"
    assert (shown.type, shown.role, shown.format, shown.content) == ("image", "computer", "base64.jpeg", "AA==")
    assert shown.call_id == "t1"


# -- approvals

ASKED = [
    thought("need ok"),
    call("t0", "look", "{}"),
    approval("t1", "rm", id="m0", otid="m0"),
    approval("t2", "mv", id="m0", otid="m0"),
    approval("t1", None, '{"p":"x"}', id="m0", otid="m0"),
    approval("t2", None, "{}", id="m0", otid="m0"),
]


def test_confirmations_are_emitted_once_when_all_calls_are_complete() -> None:
    """In a row, after the last fragment; the run waits for action."""
    story = tell(*ASKED, stop("requires_approval"), USED)
    asked = [x for x in story.events if isinstance(x, e.ConfirmationCreated)]
    assert [(x.confirmation.id, x.confirmation.subject.name) for x in asked] == [("t1", "rm"), ("t2", "mv")]
    at = story.types.index("confirmation_created")
    assert story.types[at : at + 3] == ["confirmation_created", "confirmation_created", "run_requires_action"]
    assert at > max(i for i, t in enumerate(story.types) if t == "tool_call_done")
    assert asked[0].confirmation.subject is story.engine.messages.all[2]
    assert (run_of(story).status, run_of(story).finish_reason) == ("requires_action", "requires_approval")
    assert [x.metadata for x in story.engine.messages.all if x.type == "tool_call"] == [
        {},
        {"requires_approval": True},
        {"requires_approval": True},
    ]


def test_a_stream_that_was_taken_up_again_may_say_end_turn() -> None:
    """The questions are asked all the same, also where only `[DONE]` ends it."""
    for items in ([*ASKED, stop("end_turn")], ASKED):
        story = tell(*items)
        assert story.types.count("confirmation_created") == 2
        assert run_of(story).status == "requires_action"


@pytest.mark.parametrize("end", [stop("cancelled"), stop("error"), {"error": "no"}, None])
def test_no_confirmation_is_emitted_where_the_run_does_not_wait(end: Any) -> None:
    """It was cancelled, failed, or the stream was cut off."""
    story = tell(*ASKED, *([end] if end else []), done=False)
    assert "confirmation_created" not in story.types


def test_a_passive_stream_takes_no_answer() -> None:
    """The question is told; answering it is the caller's error."""
    refused: list[str] = []

    class Asked(sk.EventHandler):
        def on_confirmation(self, confirmation: sk.Confirmation) -> None:
            with pytest.raises(sk.UsageError, match="passive"):
                confirmation.approve()
            refused.append(confirmation.id)

    stream = sk.stream([*ASKED, stop("requires_approval")], Asked())
    stream.until_done()
    assert refused == ["t1", "t2"]
    assert stream.status == "requires_action"


def test_the_answer_is_the_next_requests() -> None:
    """All in one message, the first; a no keeps its reason."""
    story = tell(*ASKED, stop("requires_approval"))
    first, second = story.engine.pending.confirmations
    first.settle("approved")
    second.settle("declined", reason="not that one")
    text = m.TextMessage(role="user", content="go on")
    assert to_input([text, first, second]) == [
        {
            "type": "approval",
            "approvals": [
                {"type": "approval", "tool_call_id": "t1", "approve": True},
                {"type": "approval", "tool_call_id": "t2", "approve": False, "reason": "not that one"},
            ],
        },
        {"role": "user", "content": "go on"},
    ]


@every_face
@body
async def test_an_answer_goes_back_and_the_run_goes_on(face: Face) -> None:
    """With `then=`: approved and declined, and what follows is a step of the same story, under the new run's id."""
    sent: list[Any] = []

    def go_on(stream: Any) -> list[Any]:
        sent.append(sk.to_input(stream.confirmations, "letta"))
        denied = returned("t2", "Error: request to call tool denied. User reason: no", "error")
        return [{**one, "run_id": "r2"} for one in (returned("t1"), denied, said("done"))] + [stop()]

    def answer(handler: Any, confirmation: sk.Confirmation) -> None:
        if confirmation.id == "t1":
            confirmation.approve()
        else:
            with pytest.raises(sk.UsageError, match="edited"):
                confirmation.approve(edited="{}")
            confirmation.decline("no")

    handler = face.told(on_confirmation=answer)
    async with face.stream([*ASKED, stop("requires_approval")], handler, then=go_on) as stream:
        await stream.until_done()
        assert (await stream.get_final_run()).id == "r2"
    assert [x["approve"] for x in sent[0][0]["approvals"]] == [True, False]
    assert [x.status for x in stream.confirmations] == ["approved", "declined"]
    assert stream.status == "completed"
    assert [x.content for x in stream.messages if x.type == "tool_output"][:1] == ["ok"]
    handler.check_brackets()


@every_face
@body
async def test_each_round_of_questions_is_answered_alone(face: Face) -> None:
    """Answers that were sent before are not sent again."""
    sent: list[Any] = []

    def go_on(stream: Any) -> list[Any]:
        sent.append([x["tool_call_id"] for x in sk.to_input(stream.confirmations, "letta")[0]["approvals"]])
        if len(sent) == 2:
            return [returned("t2"), said("done"), stop()]
        asks = approval("t2", "mv", "{}", id="m4", step_id="s2", run_id="r2")
        return [returned("t1"), asks, stop("requires_approval")]

    handler = face.told(on_confirmation=lambda _, confirmation: confirmation.approve())
    first = [approval("t1", "rm", "{}"), stop("requires_approval")]
    async with face.stream(first, handler, then=go_on) as stream:
        await stream.until_done()
    assert sent == [["t1"], ["t2"]]
    assert stream.status == "completed"
    assert [x.call_id for x in stream.messages if x.type == "tool_output"] == ["t1", "t2"]


@pytest.mark.parametrize(
    "output, status, outcome",
    [("ok", "success", "approved"), ("Error: request to call tool denied. User reason: no", "error", "declined")],
)
def test_a_decision_that_was_made_elsewhere_is_emitted(output: str, status: str, outcome: str) -> None:
    """By the return of what was asked for, where both are in one stream."""
    story = tell(*ASKED[:3], ASKED[4], stop("requires_approval"), returned("t1", output, status), stop(), done=False)
    (done,) = [x for x in story.events if isinstance(x, e.ConfirmationDone)]
    assert done.confirmation.status == outcome


@pytest.mark.parametrize(
    "answer",
    [
        {"approvals": [{"type": "approval", "tool_call_id": "t1", "approve": False, "reason": "why"}]},
        {"approve": False, "approval_request_id": "m0", "reason": "why"},
    ],
)
def test_an_approval_response_settles_its_question(answer: dict[str, Any]) -> None:
    """In both its forms; one for a call that is not known is told as it came."""
    echo = item("approval_response_message", "m5", "o5", **answer)
    story = tell(*ASKED[:3], ASKED[4], echo, returned("t1"), stop())
    (done,) = [x for x in story.events if isinstance(x, e.ConfirmationDone)]
    assert (done.confirmation.status, done.confirmation.reason) == ("declined", "why")
    assert "raw_event" not in story.types
    assert [x.data for x in tell(echo, stop()).events if isinstance(x, e.RawEvent)] == [echo]


BAD_RESPONSES: dict[str, tuple[dict[str, Any], str]] = {
    "an answer that is text": ({"approvals": [{"tool_call_id": "t1", "approve": "yes"}]}, "bad-approval"),
    "an answer that is no object": ({"approvals": [True], "tool_call_id": "t1", "approve": True}, "bad-approvals"),
}


@pytest.mark.parametrize("answer, code", BAD_RESPONSES.values(), ids=BAD_RESPONSES)
def test_an_approval_response_with_a_bad_value_is_warned_of(answer: dict[str, Any], code: str) -> None:
    story = tell(*ASKED, item("approval_response_message", "m5", "o5", **answer), stop())
    assert code in story.codes
    (warning,) = [x for x in story.events if isinstance(x, e.StreamWarning) and x.code == code]
    assert warning.index == len(ASKED)
    assert [x.status for x in story.engine.pending.confirmations][:1] == [
        "approved" if code == "bad-approvals" else "unanswered"
    ]


def test_an_approval_response_may_hold_what_the_clients_tool_gave() -> None:
    entry = {"type": "tool", "tool_call_id": "t1", "status": "success", "tool_return": "here"}
    story = tell(*ASKED[:3], ASKED[4], item("approval_response_message", approvals=[entry]), stop())
    assert story.contents("tool_output") == ["here"]
    assert [x.confirmation.status for x in story.events if isinstance(x, e.ConfirmationDone)] == ["approved"]


def test_a_call_may_become_one_that_needs_approval() -> None:
    """By a later fragment under the same id: what it was called with is not said twice."""
    for fragment in (approval("t1", "rm"), approval("t1", "rm", "{}")):
        story = tell(call("t1", "rm", "{}"), fragment, stop("requires_approval"))
        assert told_calls(story) == [("t1", "rm", "{}")]
        assert [x.confirmation.id for x in story.events if isinstance(x, e.ConfirmationCreated)] == ["t1"]


# -- runs, steps, cursors


def test_the_first_item_may_be_a_ping() -> None:
    """It tells the run's id, and nothing else is told of it; nor of those that follow."""
    ping = item("ping", "ping-1", None, step_id=None)
    story = tell(ping, ping, said("a"), ping, stop())
    assert story.types[:2] == ["run_created", "run_step_created"]
    assert run_of(story).id == "r1"
    assert story.types.count("run_created") == 1
    assert "raw_event" not in story.types
    assert Decoder.recognises(ping)


def test_a_cursor_names_the_run_and_the_item() -> None:
    """Of background streams alone; the end has none of its own."""
    items = [said(x, seq_id=n) for n, x in enumerate("abc", 1)]
    story = tell(*items, stop())
    assert [x.cursor for x in story.events if isinstance(x, e.TextDelta)] == ["r1:1", "r1:2", "r1:3"]
    stream = sk.stream([*items, stop(), USED])
    stream.until_done()
    assert stream.cursor == "r1:3"
    assert {x.cursor for x in tell(said("a"), said("b"), stop()).events} == {None}


def test_what_comes_again_is_dropped() -> None:
    """By its number in its run, on both paths; the end may be told twice."""
    items = [said(x, seq_id=n) for n, x in enumerate("abc")]
    end = [stop(), USED]
    story = tell(*items, *items, *items[1:], said("d", seq_id=3), *end, *end)
    assert story.contents("message") == ["abcd"]
    assert story.codes == []
    assert run_of(story).usage is not None
    assert run_of(story).usage.total_tokens == 3  # type: ignore[union-attr]


def test_another_run_begins_anew() -> None:
    """Its numbers too; a stream of several is not over with the first."""
    story = tell(said("a", seq_id=42), stop(), said("b", "m2", "o2", seq_id=1, run_id="r2", step_id="s2"), done=False)
    assert story.contents("message") == ["a", "b"]
    assert not story.decoder.complete
    assert tell(
        said("a", seq_id=42), stop(), said("b", "m2", "o2", seq_id=1, run_id="r2"), stop(), done=False
    ).decoder.complete


def test_a_run_whose_id_comes_late_is_the_same_run() -> None:
    """What is open goes on; a run that has ended does not begin with it."""
    story = tell(said("a", run_id=None), said("b"), stop(), said("c"), done=False)
    assert story.contents("message") == ["ab", "c"]
    assert run_of(story).id == "r1"
    assert tell({"error": "no"}, said("a"), done=False).decoder.complete


def test_a_step_ends_what_is_open_in_it() -> None:
    story = tell(said("a"), call("t1", "f"), said("b", "m2", "o2", step_id="s2"), returned("t1"), stop())
    assert [step.id for step in story.engine.runs.steps] == ["s1", "s2"]
    assert story.types.index("tool_call_done") < story.types.index("run_step_done")
    assert [x.step_id for x in story.engine.messages.all] == ["s1", "s1", "s2", "s1"]


ENDINGS: dict[str, tuple[list[Any], bool, bool, str, str | None]] = {
    "stop_reason and [DONE]": ([said("a"), stop()], True, True, "completed", "end_turn"),
    "stop_reason alone": ([said("a"), stop("max_steps")], False, True, "completed", "max_steps"),
    "[DONE] alone": ([said("a")], True, True, "completed", None),
    "neither": ([said("a")], False, False, "incomplete", None),
    "2024, neither": ([{"internal_monologue": "a"}, "[DONE_GEN]", "[DONE_STEP]"], False, False, "incomplete", None),
    "2024, [DONE]": ([{"internal_monologue": "a"}, "[DONE_STEP]"], True, True, "completed", None),
    "cut by its length": ([said("a"), stop("max_tokens_exceeded")], True, True, "incomplete", "max_tokens_exceeded"),
    "cancelled": ([said("a"), stop("cancelled")], True, True, "cancelled", "cancelled"),
    "failed, twice": ([said("a"), stop("llm_api_error"), stop("error")], True, True, "failed", "llm_api_error"),
    "failed after all": ([said("a"), stop(), stop("error")], True, True, "failed", "error"),
    "unknown": ([said("a"), stop("novelty")], True, True, "completed", "novelty"),
    "no text": ([said("a"), stop(5)], True, True, "completed", None),
    "pings alone": ([item("ping", "ping-1", None)], False, False, "incomplete", None),
}


@pytest.mark.parametrize("items, done, complete, status, reason", ENDINGS.values(), ids=ENDINGS.keys())
def test_the_terminal_rule(items: list[Any], done: bool, complete: bool, status: str, reason: str | None) -> None:
    story = tell(*items, done=done)
    assert story.decoder.complete is complete
    assert (run_of(story).status, run_of(story).finish_reason) == (status, reason)
    assert story.types[-1] == "run_done"
    assert story.types.count("run_done") == 1
    assert {x.status for x in story.engine.messages.all} <= {status, "completed"}


def error(name: bool = True, **known: Any) -> bytes:
    given = {"message_type": "error_message", "run_id": "r1", "error_type": "llm_timeout", "message": "slow", **known}
    return sse_frame(json.dumps(given).encode(), "error" if name else None)


ERRORS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "event: error": (error(), {"message": "slow", "type": "llm_timeout"}),
    "without its name": (error(False, detail="d"), {"message": "slow", "type": "llm_timeout", "detail": "d"}),
    "no message": (error(message=None, detail="d"), {"type": "llm_timeout", "message": "d", "detail": "d"}),
    "old, text": (b'data: {"error":"no","code":7}\n\n', {"message": "no", "code": 7}),
    "old, an object": (
        b'event: error\ndata: {"error":{"message":"no","detail":"d"}}\n\n',
        {"message": "no", "detail": "d"},
    ),
    "flat": (b'event: error\ndata: {"message":"no"}\n\n', {"message": "no"}),
    "no JSON": (b"event: error\ndata: no\n\n", {"message": "no"}),
    "empty": (b'data: {"error":{}}\n\n', {"message": "the run failed"}),
}


@pytest.mark.parametrize("given, expected", ERRORS.values(), ids=ERRORS.keys())
@pytest.mark.parametrize("before", [[], [stop("llm_api_error")], [stop("end_turn")]], ids=["first", "failed", "after"])
def test_an_error_fails_the_run(given: bytes, expected: dict[str, Any], before: list[Any]) -> None:
    """Also after a stop_reason; with or without `[DONE]`; what was said before stays."""
    for end in (b"", b"data: [DONE]\n\n"):
        whole = sse([said("a"), *before], done=False) + given + end
        story = tell_bytes(Decoder, [whole])
        assert tell_bytes(Careful, [whole]).lines == story.lines
        assert story.decoder.complete
        assert (run_of(story).status, run_of(story).error) == ("failed", expected)
        assert story.contents("message") == ["a"]
        assert "raw_event" not in story.types
    with pytest.raises(sk.RunFailedError, match=expected["message"]):
        sk.stream([whole]).until_done()


def test_a_cancelled_run_is_no_failure() -> None:
    """Whether it says so by its stop_reason, by the event's name, or by an error of the task that was cancelled."""
    ends = [
        sse([stop("cancelled")]),
        b'event: cancelled\ndata: {"message":"x"}\n\n',
        sse([stop("cancelled")], done=False) + error(error_type="stream_task_cancelled"),
    ]
    for end in ends:
        story = tell_bytes(Decoder, [sse([said("a")], done=False) + end])
        assert run_of(story).status == "cancelled"
        assert story.decoder.complete
        assert story.codes == []


def test_nothing_is_read_beyond_the_sentinel() -> None:
    """In the same frames as in later ones."""
    frames = [(b"", b"", json.dumps(said("a")).encode())] * 2 + [(b"", b"", b"[DONE]")]
    once, apart = Decoder(), Decoder()
    told = once.feed_frames([*frames, *frames])
    assert len(told) == sum(len(apart.feed_frames([frame])) for frame in [*frames, *frames])
    assert once.index == apart.index == 3


# -- what else is said


def test_hidden_reasoning_is_one_redacted_message() -> None:
    """Its state is kept, and what is encrypted; the answer ends it."""
    hidden = item("hidden_reasoning_message", state="redacted", hidden_reasoning="…", otid=PART.format(0))
    story = tell(hidden, hidden, said("a", otid=PART.format(1)), stop())
    redacted, text = story.engine.messages.all
    assert (redacted.type, redacted.format, redacted.content) == ("reasoning", "redacted", "")
    assert redacted.metadata == {"state": "redacted", "hidden_reasoning": "…"}
    assert text.content == "a"
    assert story.types.index("reasoning_done") < story.types.index("text_created")


def test_the_last_signature_stays_with_its_part() -> None:
    items = [thought("a", signature="s1"), thought("b"), thought("", signature="s2"), thought("c")]
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y", "signature": "s3"}]
    story = tell(*items, said(parts), stop())
    assert story.contents("reasoning") == ["abc"]
    assert [x.metadata for x in story.engine.messages.all] == [
        {"source": "reasoner_model", "signature": "s2"},
        {"signature": "s3"},
    ]
    assert story.contents("message") == ["xy"]


def test_the_user_and_the_system_keep_their_roles() -> None:
    """Told again, they are the same message. Images of the user are images."""
    images = [{"type": "image", "source": source} for source in ({"type": "url", "url": "u"}, {"file_id": "f"}, {})]
    user = item("user_message", "m8", "mine", content=[{"type": "text", "text": "see"}, *images[:2]])
    story = tell(user, user, item("system_message", "m9", None, content="be brief"), said("a"), stop())
    assert [(x.role, x.type, x.content) for x in story.engine.messages.all] == [
        ("user", "message", "see"),
        ("user", "image", "u"),
        ("user", "image", "f"),
        ("system", "message", "be brief"),
        ("assistant", "message", "a"),
    ]
    kept = [(x.id, x.role, x.content) for x in story.engine.messages.all if x.type == "message"]
    assert [(x.id, x.role, x.content) for x in encoded_again(story).engine.messages.all] == kept
    assert "raw_event" in tell(item("user_message", content=images[2:]), stop()).types
    assert "".join(sk.stream([user, said("a"), stop()]).text_deltas) == "a"


def test_a_summary_of_the_context_is_no_answer() -> None:
    stats = {"trigger": "context_window_exceeded"}
    story = tell(item("summary_message", "m8", "o8", summary="so far", compaction_stats=stats), said("a"), stop())
    summary = story.engine.messages.all[0]
    assert (summary.type, summary.role, summary.content) == ("summary", "system", "so far")
    assert summary.metadata == {"compaction_stats": stats}
    again = encoded_again(story).engine.messages.all[0]
    assert {**again.to_dict(), "group": ""} == {**summary.to_dict(), "group": ""}


@pytest.mark.parametrize(
    "given, name",
    [
        (item("event_message", event_type="compaction", event_data={}), "event_message"),
        (item("brand_new", foo=1), "brand_new"),
        (said([{"type": "novelty"}]), "assistant_message"),
        (item("user_message", content=[{"type": "novelty"}]), "user_message"),
        (item("tool_return_message"), "tool_return_message"),
        ({"type": "novelty"}, "novelty"),
        ({}, "message"),
    ],
)
def test_an_item_without_an_event_becomes_a_raw_event(given: dict[str, Any], name: str) -> None:
    story = tell(said("a"), given, said("b"), stop())
    (raw,) = [x for x in story.events if isinstance(x, e.RawEvent)]
    assert (raw.name, raw.data) == (name, given)
    assert "".join(story.contents("message")) == "ab"


# -- 2024


def test_items_of_2024_may_be_named_by_their_key_or_by_their_type() -> None:
    """Deltas of both; a status with the return. `[DONE_STEP]` ends the step: another one begins with what follows."""
    head = {"id": "message-1", "date": "2024-08-28T22:34:23.435997+00:00"}
    deltas = [{"name": "send_message"}, {"arguments": '{"message"'}, {"arguments": ': "hi"}'}]
    items: list[Any] = [
        {**head, "internal_monologue": ""},
        {**head, "internal_monologue": "hm"},
        *({**head, "function_call": {**x, "function_call_id": "c1"}} for x in deltas),
        "[DONE_GEN]",
        {**head, "id": "message-2", "function_return": "None", "status": "success", "function_call_id": "c1"},
        "[DONE_STEP]",
        {**head, "id": "message-3", "message_type": "internal_monologue", "internal_monologue": "again"},
        {**head, "id": "message-3", "message_type": "assistant_message", "assistant_message": "hello"},
        "[DONE_GEN]",
        "[DONE_STEP]",
        {"completion_tokens": 2, "prompt_tokens": 1, "total_tokens": 3, "step_count": 2},
    ]
    story = tell(*items)
    assert reading(story) == [
        ("reasoning", "hm"),
        ("tool_call", "send_message", '{"message": "hi"}'),
        ("tool_output", "None"),
        ("reasoning", "again"),
        ("message", "hello"),
    ]
    assert [step.status for step in story.engine.runs.steps] == ["completed", "completed"]
    assert [x.step_id for x in story.engine.messages.all] == ["step-1"] * 3 + ["step-2"] * 2
    assert run_of(story).usage == story.engine.runs.steps[1].usage
    assert story.engine.messages.all[0].created_at == 1724884463.435997
    assert all(Decoder.recognises(x) for x in items if isinstance(x, dict) and "step_count" not in x)


def test_calls_of_2024_without_ids_have_their_returns() -> None:
    """Also those that MemGPT told whole, as text."""
    story = tell(
        {"internal_monologue": "hm"},
        {"function_call": "archival_memory_search({'query': 'tea'})"},
        {"function_return": "none", "status": "error"},
        {"function_call": {"name": "send_message", "arguments": "{}"}},
        {"function_return": "None", "status": "success"},
    )
    assert told_calls(story) == [(None, "archival_memory_search", "{'query': 'tea'}"), (None, "send_message", "{}")]
    outputs = [x for x in story.engine.messages.all if x.type == "tool_output"]
    assert [x.call_id for x in outputs] == [x.id for x in story.engine.messages.all if x.type == "tool_call"]
    assert [x.metadata for x in outputs] == [{"error": True}, {}]


# -- recognition


@each_recording("letta", only=is_stream)
def test_a_recorded_stream_is_recognised(path: Path) -> None:
    """By its first item that is no sentinel, and as nothing else's."""
    items = [frame[2] for frame in SseFramer().feed(path.read_bytes() + b"\n\n")]
    first = next(json.loads(data) for data in items if data.startswith(b"{"))
    assert protocols.recognise(first) is Decoder


def test_nothing_else_is_mistaken_for_it() -> None:
    """No item of any other protocol's recordings."""
    paths = [path for path in SHARED.glob("*/*") if path.parent.name != "letta" and path.suffix in (".sse", ".jsonl")]
    if not paths:
        pytest.skip("the recorded streams are not beside this checkout")
    for path in paths:
        for line in path.read_bytes().splitlines():
            try:
                given = json.loads(line.removeprefix(b"data:"))
            except ValueError:
                continue
            if isinstance(given, dict):
                assert not Decoder.recognises(given), path


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"message_type": "assistant_message"},
        {"message_type": "brand_new", "content": "a"},
        {"message_type": 5, "content": "a"},
        {"message_type": "PartialTranscript", "text": "a"},
        {"role": "assistant", "type": "message", "content": "a"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"assistant_message": {"content": "a"}},
        {"type": "assistant_message", "assistant_message": "a"},
        {"error": {"message": "no"}},
        {"type": "ping"},
    ],
)
def test_other_items_are_not_recognised(given: dict[str, Any]) -> None:
    assert not Decoder.recognises(given)


@pytest.mark.parametrize("given", [{"message_type": "brand_new", "foo": 1}, "[DONE_GEN]", {"error": "x"}])
def test_an_odd_first_item_waits_for_one_that_is_recognised(given: Any) -> None:
    stream = sk.stream([sse([given, said("a"), stop()])])
    if given == {"error": "x"}:
        with pytest.raises(sk.RunFailedError):
            stream.until_done()
    else:
        assert stream.get_final_text() == "a"
    assert stream._decoder is not None
    assert stream._decoder.name == "letta"


# -- any input


json_values = q.recursive(
    q.none() | q.booleans() | q.integers(-3, 3) | q.floats() | q.sampled_from(["", "a", "0", "{}"]),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.sampled_from(["type", "text", "id", "url"]), inner),
    depth=2,
)
KINDS = (
    *("reasoning_message", "hidden_reasoning_message", "assistant_message", "tool_call_message"),
    *("approval_request_message", "tool_return_message", "approval_response_message", "user_message"),
    *("system_message", "summary_message", "event_message", "ping", "error_message", "stop_reason"),
    *("usage_statistics", "internal_monologue", "function_call", "function_return"),
)
FIELDS = (
    *("id", "date", "name", "message_type", "otid", "step_id", "seq_id", "run_id", "content", "reasoning", "signature"),
    *("source", "state", "hidden_reasoning", "tool_call", "tool_calls", "tool_call_id", "arguments", "tool_return"),
    *("tool_returns", "status", "stdout", "stderr", "approvals", "approve", "approval_request_id", "reason", "summary"),
    *("stop_reason", "error", "message", "detail", "error_type", "total_tokens", "step_count", "internal_monologue"),
    *("function_call", "function_return", "function_call_id", "assistant_message", "type", "text", "url", "data"),
)
anything = q.recursive(
    q.none() | q.booleans() | q.integers() | q.floats() | q.text(max_size=5) | q.sampled_from(KINDS),
    lambda inner: q.lists(inner, max_size=3) | q.dictionaries(q.sampled_from(FIELDS), inner, max_size=5),
    depth=3,
)
RICH: list[Any] = [
    item("ping", "ping-1", None),
    thought("hm", signature="s", seq_id=1),
    item("hidden_reasoning_message", state="omitted", hidden_reasoning=None),
    said([{"type": "text", "text": "a"}, {"type": "image", "source": {"type": "url", "url": "u"}}], seq_id=2),
    call("t1", "f"),
    call("t1", None, '{"a": '),
    call("t1", None, "1}", seq_id=3),
    *ASKED[2:],
    returned("t1", [{"type": "text", "text": "a"}], stdout=["x"], stderr=["y"]),
    item("approval_response_message", approvals=[{"type": "approval", "tool_call_id": "t1", "approve": True}]),
    item(
        "user_message",
        content=[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}],
    ),
    item("summary_message", summary="s", compaction_stats={"trigger": "x"}),
    {"message_type": "error_message", "run_id": "r1", "error_type": "x", "message": "no", "detail": "d"},
    {"error": {"message": "no", "detail": "d"}, "code": 7},
    stop(),
    stop("requires_approval"),
    {**USED, "step_count": 2, "run_ids": None},
    {"id": "m7", "date": "2024-01-01T00:00:00Z", "internal_monologue": "hm"},
    {"id": "m7", "function_call": {"name": "f", "arguments": "{}", "function_call_id": "c1"}},
    {"id": "m8", "function_return": "None", "status": "success", "function_call_id": "c1"},
    "[DONE_GEN]",
    "[DONE_STEP]",
]


def well_formed(story: Story) -> None:
    """Nothing was caught by the net, and every message was created and done once."""
    assert "decoder-error" not in story.codes
    assert all(message.status != "in_progress" for message in story.engine.messages.all)
    created = [line["message"]["id"] for line in story.lines if line["type"].endswith("_created") and "message" in line]
    done = [line["message"]["id"] for line in story.lines if line["type"].endswith("_done") and "message" in line]
    assert sorted(created) == sorted(done)
    assert len(set(created)) == len(created)


@pytest.mark.slow
@given(q.drawn(q.lists(q.dictionaries(q.sampled_from(FIELDS), anything, max_size=6), max_size=4)))
@settings(max_examples=60, deadline=None)
def test_no_object_makes_the_decoder_fail(items: list[dict[str, Any]]) -> None:
    well_formed(tell_items(Decoder, items))
    well_formed(tell(*items))


@pytest.mark.slow
@given(q.drawn(q.some(RICH, json_values | q.sampled_from(KINDS), max_size=8)), st.booleans())
@settings(max_examples=75, deadline=None)
def test_no_mutation_makes_the_decoder_fail_or_the_paths_differ(items: list[Any], done: bool) -> None:
    well_formed(tell(*items, done=done))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=36, deadline=None)
def test_no_mutation_of_a_recording_makes_the_decoder_fail(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(STREAMS))
    frames = [frame[2].decode() for frame in SseFramer().feed(path.read_bytes() + b"\n\n")]
    items = [json.loads(frame) if frame.startswith("{") else frame for frame in frames]

    items = data.draw(q.drawn(q.some(items, json_values | q.sampled_from(KINDS), max_size=4)))
    well_formed(tell(*items, done=data.draw(st.booleans())))


maybe = q.sampled_from
bare = q.one_of(
    q.builds(
        said,
        maybe(["a", "a", "é", "", None]),
        maybe(["m1", "m1", "m2", None, ""]),
        maybe(["o1", "o1", "o2", None, ""]),
        run_id=maybe(["r1", "r1", "r1", None, "r2"]),
        step_id=maybe(["s1", "s1", "s1", None, "s2"]),
        seq_id=maybe([None, None, 1, 2, 3]),
    ),
    q.builds(
        thought,
        maybe(["a", "a", ""]),
        maybe(["m1", "m1", "m2", None]),
        maybe(["o1", "o0", None]),
        signature=maybe([None, None, "s"]),
        seq_id=maybe([None, None, 4, 5]),
    ),
    q.builds(
        call,
        maybe(["t1", "t1", "t2", None]),
        maybe([None, None, "f", ""]),
        maybe(["{", "a", "}", "{}", None, ""]),
        step_id=maybe(["s1", "s1", "s2"]),
        seq_id=maybe([None, None, 6, 7]),
    ),
    q.builds(approval, maybe(["t1", "t3"]), maybe([None, "f"]), maybe(["{", "}", None])),
    q.sampled_from([returned("t1"), returned("t2"), stop(), item("ping", "p", None, run_id="r1"), "[DONE_GEN]"]),
)


@pytest.mark.slow
@given(q.drawn(q.lists(bare, max_size=12)), st.booleans())
@settings(max_examples=100, deadline=None)
def test_both_paths_tell_the_same_of_items_that_are_nearly_bare(items: list[Any], done: bool) -> None:
    """Whatever the fast path takes, the tolerant one would have told the same."""
    well_formed(tell(*items, done=done))


# -- the way out


def encoded(story: Story) -> list[dict[str, Any]]:
    encoder = Encoder()
    return [json.loads(json.dumps(one)) for event in story.events for one in encoder.feed(event)]


def encoded_again(story: Story) -> Story:
    """The story that the encoder's items tell, on the wire."""
    encoder = Encoder()
    assert Encoder.done is not None
    frames = [sse_frame(json.dumps(one).encode(), encoder.event_name(one)) for one in encoded(story)]
    whole = b"".join(frames) + sse_frame(Encoder.done)
    again = tell_bytes(Decoder, [whole])
    assert tell_bytes(Careful, [whole]).lines == again.lines
    return again


def shape(story: Story) -> list[Any]:
    """What a Letta stream can express. Messages are by id (a call's is its call_id), because what is told whole may come
    later than it began."""
    run, usage = run_of(story), story.engine.runs.usage
    messages = sorted(
        (x.call_id or x.id, x.type, x.role, x.format or "", x.content,
         x.name or "", x.call_id or (x.id if x.type == "tool_call" else ""), x.created_at or 0, x.step_id or "",
         json.dumps({k: v for k, v in x.metadata.items() if k in ("signature", "error", "state")}))
        for x in story.engine.messages.all
    )  # fmt: skip
    counts = usage and (usage.input_tokens, usage.output_tokens, usage.total_tokens, dict(usage.details))
    return [messages, run.id, run.status, run.error and run.error["message"], counts]


TEXT = st.text('ab é{}"\\\n', min_size=1, max_size=4)


@st.composite
def canonical(draw: st.DrawFn) -> list[e.Event]:
    """The events of a run that Letta can express: steps, with interleaved messages, then the returns."""
    events: list[e.Event] = [e.RunCreated(e.Run(id="r", created_at=draw(st.sampled_from([None, 5.0, 5.25]))))]
    for step in range(draw(st.integers(1, 3))):
        events.append(e.RunStepCreated(e.RunStep(id=f"s{step}")))
        kinds = draw(st.lists(st.sampled_from([m.TextMessage, m.ReasoningMessage, m.ToolCallMessage]), max_size=4))
        group = draw(st.sampled_from([None, f"g{step}"]))
        parts = [_message(draw, kind, f"{step}.{n}", group) for n, kind in enumerate(kinds)]
        called = [part[0].message.call_id or "" for part in parts if isinstance(part[0].message, m.ToolCallMessage)]
        returns = [_returned(draw, id) for id in called if draw(st.booleans())]
        if draw(st.booleans()):
            parts += returns  # an output of ours may come while the model goes on
            returns = []
        while any(parts):
            events.append(draw(st.sampled_from([part for part in parts if part])).pop(0))
        events += [event for told in returns for event in told]
    events.append(e.Usage(1, 2, 3, {"step_count": 1}))
    status: Any = draw(st.sampled_from(["completed", "incomplete", "cancelled", "failed"]))
    return [
        *events,
        e.RunDone(e.Run(status=status, error={"message": "no", "type": "x"} if status == "failed" else None)),
    ]


def _message(draw: st.DrawFn, kind: type[m.Message], id: str, group: str | None) -> list[Any]:
    known: dict[str, Any] = {"group": group, "created_at": draw(st.sampled_from([None, 7.0]))}
    more: dict[str, Any] = {}
    if kind is m.ToolCallMessage:
        known |= {"name": "f", "call_id": draw(st.sampled_from([f"c{id}", None])), "provider_executed": True}
        if known["call_id"] is None:
            known["call_id"] = id
    elif draw(st.booleans()):
        more["metadata"] = {"signature": "s"}
    pieces = draw(st.lists(TEXT, min_size=1, max_size=3))
    if kind is m.ToolCallMessage:
        arguments = json.dumps({draw(TEXT): {draw(TEXT): "}"}}) if draw(st.booleans()) else "no JSON"
        places = sorted({0, len(arguments), *draw(st.lists(st.integers(0, len(arguments)), max_size=3))})
        pieces = [arguments[a:b] for a, b in pairwise(places)]
    created, done = kind.created_event(kind(id, **known)), e.MessageDone(kind(id, **known, **more))
    return [created, *(kind.delta_event(id, piece) for piece in pieces), done]


def _returned(draw: st.DrawFn, call_id: str) -> list[Any]:
    metadata = draw(st.sampled_from([{}, {"error": True}]))
    events: list[Any] = []
    if draw(st.booleans()):
        id = f"{call_id}.console"
        events.append(e.ConsoleCreated(m.ConsoleMessage(id, call_id=call_id)))
        events += [e.ConsoleDelta(id, draw(TEXT), False, {"stream": stream}) for stream in ("stdout", "stderr")]
        events.append(e.ConsoleDone(m.ConsoleMessage(id)))
    output = m.ToolOutputMessage(f"{call_id}.out", call_id=call_id, name="f", content=draw(TEXT), metadata=metadata)
    return [*events, e.ToolOutputDone(output)]


def told(events: list[e.Event]) -> Story:
    engine = Engine()
    story = Story(engine, Decoder())
    story.take(engine.complete(events))
    story.take(engine.source_done(complete=True))
    story.take(engine.end())
    return story


@pytest.mark.slow
@given(canonical())
@settings(max_examples=50, deadline=None)
def test_what_letta_can_express_survives_encoding(events: list[e.Event]) -> None:
    """Law 8: however its messages interleave."""
    story = told(events)
    again = encoded_again(story)
    assert shape(again) == shape(story)
    assert run_of(again).created_at == run_of(story).created_at
    told_in = {x.step_id for x in story.engine.messages.all}
    assert [x.id for x in again.engine.runs.steps if x.id in told_in] == [
        x.id for x in story.engine.runs.steps if x.id in told_in
    ]
    assert again.codes == []


def test_a_message_keeps_its_group_behind_the_encoder() -> None:
    """Where it interleaves with another of it, too."""
    story = tell(thought("a", otid="o0"), said("b"), thought("c", otid="o0"), call("t1", "f", "{}"), said("d"), stop())
    again = encoded_again(story)
    assert [x.group for x in again.engine.messages.all] == ["m1", "m1", "m1"]
    assert [x.content for x in again.engine.messages.all] == ["ac", "bd", "{}"]


def test_a_confirmation_survives_the_encoder() -> None:
    """With the same calls, once each."""
    story = tell(*ASKED, stop("requires_approval"))
    again = encoded_again(story)
    assert told_calls(again) == told_calls(story)
    assert [x.id for x in again.engine.pending.confirmations] == ["t1", "t2"]
    assert run_of(again).status == "requires_action"


def test_a_call_that_waits_for_an_output_becomes_one_that_the_client_must_answer() -> None:
    """As Letta asks for its client's tools; one that has its output does not."""
    events: list[e.Event] = [
        *(e.ToolCallDone(m.ToolCallMessage(x, call_id=x, name="f", content="{}")) for x in ("a", "b")),
        e.ToolOutputDone(m.ToolOutputMessage("o", call_id="a", content="ok")),
    ]
    story = told(events)
    assert run_of(story).status == "requires_action"
    again = encoded_again(story)
    assert told_calls(again) == [("a", "f", "{}"), ("b", "f", "{}")]
    assert [x.id for x in again.engine.pending.confirmations] == ["b"]
    assert run_of(again).finish_reason == "requires_approval"


def test_code_is_a_call_of_lettas_own_tool_for_it() -> None:
    """With what it printed as the return; the question whether it may run is an approval request."""
    code = m.CodeMessage("c", format="python", content="1+1")
    asked: list[e.Event] = [e.CodeDone(code), e.ConfirmationCreated(sk.Confirmation("q", code))]
    ran: list[e.Event] = [e.ConsoleDone(m.ConsoleMessage("x", content="2"))]
    story = encoded_again(told(asked + ran))
    call, console, output = story.engine.messages.all
    assert isinstance(call, m.ToolCallMessage)
    assert (call.name, call.arguments) == ("run_code", {"code": "1+1", "language": "python"})
    assert (console.content, output.content, output.call_id) == ("2", "2", "c")
    (question,) = [one for one in encoded(told(asked)) if one["message_type"] == "approval_request_message"]
    assert question["tool_calls"] == {"name": "run_code", "tool_call_id": "c"}


SUBJECTS: list[tuple[m.Message, tuple[str, str, str]]] = [
    (m.CodeMessage("c", format="shell", content="ls"), ("c", "run_code", '{"code":"ls","language":"shell"}')),
    (m.ToolCallMessage("c", call_id="t", name="f", content="{}"), ("t", "f", "{}")),
    (m.Message("", type="novelty", content="x"), ("q", "novelty", '{"content":"x"}')),
]


@pytest.mark.parametrize("subject, expected", SUBJECTS)
@pytest.mark.parametrize("approved", [True, False])
def test_a_confirmation_about_an_unsent_call_is_sent_as_a_call(
    subject: m.Message, expected: tuple[str, str, str], approved: bool
) -> None:
    """And its outcome is an answer."""
    encoder = Encoder()
    asked = sk.Confirmation("q", subject)
    items = [*encoder.feed(e.ConfirmationCreated(asked))]
    asked.settle("approved" if approved else "declined", reason=None if approved else "no")
    items += encoder.feed(e.ConfirmationDone(asked))
    story = tell(*items, stop())
    assert told_calls(story) == [expected]
    (question,) = story.engine.pending.confirmations
    assert (question.status, question.reason) == (asked.status, asked.reason)
    assert run_of(story).status == "completed"


def test_code_of_a_call_is_in_the_call_and_what_it_printed_waits_for_its_output() -> None:
    """Where none comes, it is told with the end; a name that comes late is told when it is known."""
    call = m.ToolCallMessage("t", call_id="t", content='{"code": "1"}', provider_executed=True)
    told_late = m.ToolCallMessage("t", call_id="t", name="python", content='{"code": "1"}', provider_executed=True)
    events: list[e.Event] = [
        e.ToolCallCreated(call),
        e.ToolCallDone(told_late),
        e.CodeDone(m.CodeMessage("c", call_id="t", content="1")),
        e.ConsoleDone(m.ConsoleMessage("x", call_id="t", content="out")),
    ]
    story = encoded_again(told(events))
    assert told_calls(story) == [("t", "python", '{"code": "1"}')]
    assert [(x.type, x.content) for x in story.engine.messages.all[1:]] == [("console", "out"), ("tool_output", "")]


@pytest.mark.parametrize(
    "run, reason",
    [
        (e.Run(status="completed"), "end_turn"),
        (e.Run(status="completed", finish_reason="max_steps"), "max_steps"),
        (e.Run(status="completed", finish_reason="stop"), "end_turn"),
        (e.Run(status="incomplete", finish_reason="length"), "max_tokens_exceeded"),
        (e.Run(status="cancelled"), "cancelled"),
        (e.Run(status="requires_action"), "requires_approval"),
        (e.Run(status="failed", finish_reason="llm_api_error"), "llm_api_error"),
        (e.Run(status="failed", finish_reason="end_turn"), "error"),
        (e.Run(status="expired"), "error"),
    ],
)
def test_a_run_ends_with_a_stop_reason(run: e.Run, reason: str) -> None:
    assert next(iter(Encoder().feed(e.RunDone(run)))) == stop(reason)


def test_a_failed_run_ends_with_an_error() -> None:
    """Once, under its name, though the stream's own failure follows it."""
    encoder = Encoder()
    failed = e.RunDone(e.Run(id="r1", status="failed", error={"message": "no", "code": 7}))
    items = [one for event in (failed, e.StreamException("E", "no")) for one in encoder.feed(event)]
    assert [one["message_type"] for one in items] == ["stop_reason", "error_message"]
    known = {"message_type": "error_message", "run_id": "r1", "error_type": "7"}
    assert items[1] == {**known, "message": "no", "code": 7}
    assert [encoder.event_name(one) for one in items] == [None, "error"]
    lone = [*Encoder().feed(e.StreamException("SourceError", "gone"))]
    assert [one["message_type"] for one in lone] == ["stop_reason", "error_message"]


@pytest.mark.parametrize(
    "message",
    [
        m.ImageMessage("x", format="url"),
        m.FileMessage("x"),
        m.AudioMessage("x"),
        m.TextMessage("x", choice=1),
        m.ToolCallMessage("x", choice=1, name="f"),
        m.Message("x", type="novelty"),
        m.TextMessage("x", role="computer"),
        m.ConsoleMessage("x"),
    ],
)
def test_what_letta_cannot_express_is_left_out(message: m.Message) -> None:
    encoder = Encoder()
    delta = message.delta_event("x", "a", snapshot=message)
    events: list[e.Event] = [message.created_event(message), delta, message.done_event(message)]
    assert [one for event in events for one in encoder.feed(event)] == []


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "anthropic"])
@each_recording("letta", only=is_stream)
def test_a_story_of_lettas_keeps_its_texts_in_other_protocols(path: Path, name: str) -> None:
    """And its calls with what they gave, where the protocol has calls that its provider executes; Chat has none."""
    story = tell_bytes(Decoder, [path.read_bytes()])
    module = protocols.find(name)
    encoder = module.Encoder()
    items = [json.loads(json.dumps(one)) for event in story.events for one in encoder.feed(event)]
    again = tell_items(module.Decoder, items)
    assert "".join(again.contents("message")) == "".join(story.contents("message"))
    if name != "openai_chat":
        told_again = [x[1:] for x in told_calls(again)]
        assert [*dict.fromkeys(told_again)] == [x[1:] for x in told_calls(story)]  # a question may repeat its call
        assert sorted(again.contents("tool_output")) == sorted(story.contents("tool_output"))


@each_recording("openai-chat", "openai-responses", "open-interpreter")
def test_other_protocols_stories_keep_texts_and_calls_as_lettas(path: Path) -> None:
    """The texts of the first choice in order, and the calls."""
    name = path.parent.name.replace("-", "_")
    story = tell_bytes(protocols.find(name).Decoder, [path.read_bytes()])
    if story.engine.runs.run is None:
        return
    again = encoded_again(story)
    texts = [x for x in story.engine.messages.all if x.type == "message" and x.role == "assistant" and x.choice == 0]
    told_texts = [x for x in again.engine.messages.all if x.type == "message" and x.role == "assistant"]
    assert [x.content for x in told_texts] == [x.content for x in texts if x.content]
    known = [
        (x.call_id or x.id, x.name, x.content)
        for x in story.engine.messages.all
        if isinstance(x, m.ToolCallMessage) and x.choice == 0
    ]
    assert [x for x in told_calls(again) if x[1] != "run_code"] == known
    asks = (
        any(x.reason == "not answered" for x in story.engine.pending.confirmations)
        and run_of(story).status == "completed"
    )
    assert run_of(again).status == ("requires_action" if asks else run_of(story).status)
    assert "decoder-error" not in again.codes


def test_a_chat_stream_in_lettas_words_and_back_keeps_texts_and_calls() -> None:
    """Through `chunks`, as a server would send it."""
    function = {"name": "f", "arguments": '{"x": 1}'}
    delta = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices: list[Any] = [({"content": "look"}, None), (delta, None), ({}, "tool_calls")]
    chunks = [{**head, "choices": [{"index": 0, "delta": d, "finish_reason": f}]} for d, f in choices]
    items = [*sk.stream(chunks).chunks("letta")]
    stream = sk.stream(items)
    stream.until_done()
    assert [(x.type, x.content) for x in stream.messages] == [("message", "look"), ("tool_call", '{"x": 1}')]
    assert stream.status == "requires_action"


# -- back into a request


def asked(id: str, status: Any, **more: Any) -> sk.Confirmation:
    subject = m.ToolCallMessage(
        f"m-{id}", call_id=id, name="f", provider_executed=True, metadata={"requires_approval": 1}
    )
    return sk.Confirmation(id, subject, status=status, **more)


INPUTS: dict[str, tuple[list[Any], list[Any]]] = {
    "a conversation": (
        [
            m.TextMessage("1", role="system", content="s"),
            m.TextMessage("2", role="user", content="u"),
            m.ReasoningMessage("3", content="r"),
            m.TextMessage("4", content="a"),
            m.ToolCallMessage("5", call_id="t", name="f", content="{}", provider_executed=True),
            m.ToolOutputMessage("6", call_id="t", content="out"),
            m.RefusalMessage("7", content="no"),
            m.TextMessage("8", choice=1, content="other"),
        ],
        [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": "no"},
        ],
    ),
    "images of the user": (
        [
            m.TextMessage("1", role="user", content="see"),
            m.ImageMessage("2", role="user", format="base64.png", content="AA=="),
            m.ImageMessage("3", role="user", format="url", content="u"),
            m.ImageMessage("4", role="user", format="file_id", content="f"),
            m.ImageMessage("5", role="computer", format="url", content="u"),
        ],
        [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}},
                    {"type": "image", "source": {"type": "url", "url": "u"}},
                    {"type": "image", "source": {"type": "letta", "file_id": "f"}},
                ],
            }
        ],
    ),
    "outputs of the client's tools": (
        [
            m.ConsoleMessage("0", call_id="a", content="printed"),
            m.ToolOutputMessage("1", call_id="a", content="1"),
            m.ToolOutputMessage("2", call_id="b", content="no", metadata={"error": True}),
        ],
        [
            {
                "type": "tool_return",
                "tool_returns": [
                    {
                        "type": "tool",
                        "tool_call_id": "a",
                        "status": "success",
                        "tool_return": "1",
                        "stdout": ["printed"],
                    },
                    {"type": "tool", "tool_call_id": "b", "status": "error", "tool_return": "no"},
                ],
            }
        ],
    ),
    "answers of every kind are one message": (
        [
            asked("a", "approved"),
            asked("b", "declined", reason="why"),
            asked("c", "approved"),
            m.ToolOutputMessage("1", call_id="c", content="ran here"),
            m.ToolOutputMessage("2", call_id="b", content="must not count"),
        ],
        [
            {
                "type": "approval",
                "approvals": [
                    {"type": "approval", "tool_call_id": "a", "approve": True},
                    {"type": "approval", "tool_call_id": "b", "approve": False, "reason": "why"},
                    {"type": "tool", "tool_call_id": "c", "status": "success", "tool_return": "ran here"},
                ],
            }
        ],
    ),
    "what the server knows": (
        [
            asked("a", "approved").subject,
            m.ToolOutputMessage("1", call_id="a", content="1", group="message-1"),
            m.ToolCallMessage("c", call_id="c", name="f", content="{}"),
            m.ToolOutputMessage("2", call_id="c", content="1"),
        ],
        [],
    ),
    "code and console": (
        [m.CodeMessage("1", format="python", content="1+1"), m.ConsoleMessage("2", content="2")],
        [
            {"role": "assistant", "content": "```python\n1+1\n```"},
            {"role": "user", "content": "```output\n2\n```"},
        ],
    ),
    "nothing": ([], []),
}


@pytest.mark.parametrize("messages, expected", INPUTS.values(), ids=INPUTS.keys())
def test_messages_become_a_request(messages: list[Any], expected: list[Any]) -> None:
    assert to_input(messages) == expected


@pytest.mark.parametrize(
    "message",
    [
        m.ImageMessage("m-9", role="user", format="path", content="/a.png"),
        m.FileMessage("m-9", role="user", format="path", content="/a.txt"),
        m.AudioMessage("m-9", role="user", format="wav", content="AA=="),
        m.Message("m-9", role="user", type="novelty", content="a"),
        asked("m-9", "pending"),
    ],
)
def test_what_the_user_gave_is_never_dropped_in_silence(message: Any) -> None:
    with pytest.raises(sk.UsageError, match="m-9"):
        to_input([message])


# -- dates


@given(st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30)), st.integers(-14 * 60, 14 * 60))
@settings(max_examples=50, deadline=None)
def test_dates_are_read_and_written_as_the_calendar_has_them(date: datetime, minutes: int) -> None:
    """In any time zone, with and without fractions of a second."""
    there = date.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = there.timestamp()
    assert time_of(there.isoformat()) == pytest.approx(max(expected, 0), abs=1e-4)
    if expected < 253402300800:
        assert datetime.fromisoformat(date_of(expected)).timestamp() == pytest.approx(expected, abs=1e-4)


def test_the_dates_of_the_clients_objects_are_read() -> None:
    """Its `to_dict` gives them as `datetime`s."""
    date = datetime(2026, 1, 1, tzinfo=UTC)
    story = tell_items(Decoder, [said("a", date=date), stop()])
    assert story.engine.messages.all[0].created_at == date.timestamp()
    assert time_of(datetime) is None


@pytest.mark.parametrize(
    "value", [None, 5, "", "...", "2026-13-01T00:00:00", "2026-01-01", "٢٠٢٦-01-01T00:00:00", date_of(None), "x" * 50]
)
def test_what_is_no_date_is_none(value: Any) -> None:
    assert time_of(value) is None


@pytest.mark.parametrize("kind", ["assistant_message", "user_message", "system_message"])
@pytest.mark.parametrize(
    "content",
    [
        *(5, True, 0.5, {}, {"a": 1}, {"text": 5}, [5], [None], [["a"]]),
        *([{"type": "text", "text": 5}], [{"type": "image", "source": {"data": 5}}]),
    ],
)
def test_content_that_is_no_text_is_warned_about(kind: str, content: Any) -> None:
    """And so is a part of it. It is skipped, and the rest of the stream is read."""
    story = tell_items(
        Decoder,
        [
            {"message_type": kind, "id": "message-1", "content": content},
            {"message_type": "assistant_message", "id": "message-2", "content": "a"},
            {"message_type": "stop_reason", "stop_reason": "end_turn"},
        ],
    )
    assert story.codes == ["bad-content"]
    assert [message.content for message in story.engine.messages.all] == ["a"]


@pytest.mark.parametrize(
    ("value", "content", "codes"),
    [(5, "5", []), ([5], "[5]", []), ([{"type": "text", "text": "a"}, 5], "a", ["bad-content"])],
)
def test_a_return_that_is_no_text_is_warned_about_where_it_is_not_all_kept(
    value: Any, content: str, codes: list[str]
) -> None:
    """As its JSON, or as far as it is text."""
    item = {"message_type": "tool_return_message", "id": "message-1", "tool_call_id": "t1", "tool_return": value}
    story = tell_items(Decoder, [item, {"message_type": "stop_reason", "stop_reason": "end_turn"}])
    assert [message.content for message in story.engine.messages.all] == [content]
    assert story.codes == codes


@pytest.mark.parametrize(
    ("id", "arguments", "count"), [("m1", '{"a":1}', 1), ("m1", '{"a":2}', 2), ("m2", '{"a":1}', 2)]
)
def test_a_call_that_comes_twice_in_one_message_counts_once(id: str, arguments: str, count: int) -> None:
    """Another message, or other arguments, are another call: some models number their calls anew."""
    items = [
        {
            "message_type": "tool_call_message",
            "id": id,
            "tool_call": {"tool_call_id": "t1", "name": "f", "arguments": text},
        }
        for id, text in (("m1", '{"a":1}'), (id, arguments))
    ]
    story = tell_items(Decoder, [*items, {"message_type": "stop_reason", "stop_reason": "end_turn"}])
    assert len(story.engine.messages.all) == count
    assert story.codes == []


def test_content_of_another_type_is_no_fault() -> None:
    """It is a raw event."""
    item = {"message_type": "user_message", "id": "message-1", "content": [{"type": "omitted_reasoning"}]}
    story = tell_items(Decoder, [item, {"message_type": "stop_reason", "stop_reason": "end_turn"}])
    assert story.codes == []
    assert "raw_event" in story.types


def test_a_call_without_a_name_asks_for_no_code() -> None:
    """It becomes an approval request where its run waits: `run_code` would be Letta's own tool that runs code."""
    created, done = e.ToolCallCreated(m.ToolCallMessage("c")), e.ToolCallDone(m.ToolCallMessage("c", content="{}"))
    run = e.RunDone(e.Run(status="requires_action"))
    items = list(sk.stream([created, done, run, e.StreamEnd()]).chunks("letta"))
    asked = [item["tool_call"]["name"] for item in items if item["message_type"] == "approval_request_message"]
    assert asked == ["tool_call"]
