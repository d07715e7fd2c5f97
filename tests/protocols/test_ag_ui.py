"""AG-UI: what servers of 1.0 and 0.x send, and the rules that its clients hold us to.

What comes back of what we encode, and what the real clients make of it, is in `test_ui_protocols` and `test_ui_clients`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit.protocols import ag_ui

from ..ui_streams import asked, call, completed, encoded, everything, interleaved, output, printing, whole

START = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
END = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
CALL = {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "weather"}
CALL_END = {"type": "TOOL_CALL_END", "toolCallId": "c1"}


def read(*items: Any, strict: bool = False, end: Any = END) -> sk.StreamManager:
    """A stream of these events in a run, read to its end."""
    body = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in (START, *items, end))
    stream = sk.stream([body], strict=strict)
    stream.until_done()
    return stream


def shown(messages: Iterable[sk.Message]) -> list[tuple[str, str]]:
    return [(message.type, message.content) for message in messages]


# -- decoding


def test_chunks_are_starts_contents_and_ends_in_one() -> None:
    """A chunk without an id goes on with the newest; another id, or the end, ends it."""
    stream = read(
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "a", "delta": "Hel"},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "lo"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "b", "delta": "You"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "f", "delta": "{"},
        {"type": "TOOL_CALL_CHUNK", "delta": "}"},
        {"type": "TOOL_CALL_RESULT", "messageId": "o", "toolCallId": "c", "content": "done"},
    )
    assert shown(stream.messages) == [
        ("message", "Hello"),
        ("message", "You"),
        ("tool_call", "{}"),
        ("tool_output", "done"),
    ]
    assert not stream.warnings


def test_the_thinking_events_of_0_x_are_reasoning() -> None:
    """They have no ids."""
    think = [{"type": "THINKING_START"}, {"type": "THINKING_TEXT_MESSAGE_START"}]
    stream = read(
        *think,
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "Hm."},
        {"type": "THINKING_TEXT_MESSAGE_END"},
        think[1],
        {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "Well."},
        {"type": "THINKING_TEXT_MESSAGE_END"},
        {"type": "THINKING_END"},
    )
    assert shown(stream.messages) == [("reasoning", "Hm."), ("reasoning", "Well.")]
    assert not stream.warnings


def test_an_interrupt_about_a_call_is_a_confirmation() -> None:
    """Every interrupt is in the run's metadata."""
    interrupts = [{"id": "q1", "reason": "tool_call", "toolCallId": "c1"}, {"id": "q2", "reason": "input_required"}]
    stream = read(CALL, CALL_END, end={**END, "outcome": {"type": "interrupt", "interrupts": interrupts}})
    assert stream.status == "requires_action"
    assert [(one.id, one.subject.name) for one in stream.confirmations] == [("q1", "weather")]
    assert stream.get_final_run().metadata["ag_ui"]["interrupts"] == interrupts


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({**END, "outcome": {"type": "success"}}, "completed"),
        ({**END, "outcome": {"type": "cancelled"}}, "cancelled"),
        ({**END, "outcome": {"type": "interrupt", "interrupts": [{"id": "q"}]}}, "requires_action"),
        ({"type": "RUN_ERROR", "message": "stopped", "code": "cancelled"}, "cancelled"),
    ],
)
def test_how_a_run_ends(end: Any, status: str) -> None:
    assert read(end=end).status == status


def test_an_error_fails_the_run_and_an_end_without_finish_is_a_cut() -> None:
    with pytest.raises(sk.RunFailedError, match="no credits"):
        read(end={"type": "RUN_ERROR", "message": "no credits", "code": "quota"})
    with pytest.raises(sk.IncompleteStreamError):
        read(end={"type": "TEXT_MESSAGE_START", "messageId": "a"})


def test_token_counts_of_several_models_are_added() -> None:
    counts = [
        {"model": "a", "inputTokens": 3, "outputTokens": 2},
        {"model": "b", "inputTokens": 4, "reasoningTokens": 1},
    ]
    usage = read(end={**END, "usage": counts}).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.details) == (
        7,
        2,
        9,
        {"reasoningTokens": 1},
    )


STRAY: list[tuple[Any, str]] = [
    ({"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "Hi."}, "stray-delta"),
    ({"type": "TEXT_MESSAGE_END", "messageId": "a"}, "stray-end"),
    ({"type": "TOOL_CALL_ARGS", "toolCallId": "x", "delta": "{"}, "stray-delta"),
    ({"type": "TOOL_CALL_END", "toolCallId": "x"}, "stray-end"),
    ({"type": "OF_THE_FUTURE"}, "unknown-type"),
]


@pytest.mark.parametrize(("item", "code"), STRAY)
def test_what_a_client_would_throw_at_is_a_warning(item: Any, code: str) -> None:
    """A strict stream raises."""
    assert [warning.code for warning in read(item).warnings] == [code]
    with pytest.raises(sk.ProtocolError):
        read(item, strict=True)


def test_state_snapshots_and_activities_of_other_servers_are_raw_events() -> None:
    items: list[Any] = [
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": 1}},
        {"type": "STATE_DELTA", "delta": []},
        {"type": "MESSAGES_SNAPSHOT", "messages": []},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "p", "activityType": "PLAN", "content": {}},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"},
        {"type": "CUSTOM", "name": "progress", "value": 3},
        {"type": "RAW", "event": {"x": 1}, "source": "langgraph"},
    ]
    names = [event.name for event in sk.stream([START, *items, END]) if isinstance(event, e.RawEvent)]
    assert names == [*(item["type"] for item in items[:5]), "progress", "langgraph"]


# -- encoding


def test_calls_side_by_side_are_of_one_message() -> None:
    """Of the text before them; after a result, of another one."""
    text = whole(m.TextMessage("t"), "Let me look.")
    calls = interleaved(whole(call("c1")), whole(call("c2")))
    items = encoded(
        completed([*text, *calls, *output("o", "c1", "rain"), *whole(call("c3")), *whole(call("c4"))]), "ag_ui"
    )
    starts = {item["toolCallId"]: item.get("parentMessageId") for item in items if item["type"] == "TOOL_CALL_START"}
    assert starts == {"c1": "t", "c2": "t", "c3": None, "c4": "c3"}
    flat = sk.stream(items, protocol="ag_ui").get_final_messages()
    history = [
        (one["id"], [c["id"] for c in one.get("toolCalls", ())])
        for one in ag_ui.to_input(flat)
        if one["role"] == "assistant"
    ]
    assert history == [("t", ["c1", "c2"]), ("c3", ["c3", "c4"])]


@pytest.mark.parametrize("version", ["0", "1.0"])
def test_nothing_is_sent_before_the_run_begins_or_after_it_ended(version: Any) -> None:
    """But a failure, which clients take there. And no delta is empty: a client of 0.x would throw."""
    events: list[e.Event] = [e.RawEvent("thread.created", {}), *everything()]
    failures = [e.StreamException(error="X"), e.StreamException(error="Y")]
    items = encoded([*events, e.RawEvent("late", {}), *failures], "ag_ui", version=version)
    assert items[0]["type"] == "RUN_STARTED"
    assert items[1]["type"] == "RAW"
    assert [item["type"] for item in items[-2:]] == ["RUN_FINISHED", "RUN_ERROR"]
    assert "" not in [item.get("delta") for item in items]
    names = [item["stepName"] for item in items if item["type"] == "STEP_STARTED"]
    assert names == [item["stepName"] for item in items if item["type"] == "STEP_FINISHED"]


def test_version_0_gets_nothing_of_1_0() -> None:
    """No metadata, outcome, usage or protocolVersion."""
    for name in ("metadata", "outcome", "usage", "protocolVersion"):
        assert [item for item in encoded(everything(), "ag_ui", version="0") if name in item] == []
        assert [item for item in encoded(everything(), "ag_ui", version="1.0") if name in item] != []


def test_a_run_that_waits_ends_with_an_interrupt() -> None:
    """With what the client needs to show and to answer the question; calls of the client's own are listed."""
    waits = e.Run(status="requires_action")
    question = completed([*whole(call("c1")), *asked(call("c1"))], last=waits)
    (interrupt,) = encoded(question, "ag_ui")[-1]["outcome"]["interrupts"]
    assert (interrupt["id"], interrupt["reason"], interrupt["toolCallId"]) == ("ask-c1", "tool_call", "c1")
    assert interrupt["responseSchema"]["required"] == ["approved"]
    pending = encoded(completed(whole(call("c1")), last=waits), "ag_ui")[-1]["outcome"]
    assert pending == {"type": "success", "pendingToolCallIds": ["c1"]}


def test_a_cancelled_run_says_so_in_either_version() -> None:
    last = e.Run(status="cancelled")
    assert encoded(completed([], last=last), "ag_ui")[-1]["outcome"] == {"type": "cancelled"}
    ended = encoded(completed([], last=last), "ag_ui", version="0")[-1]
    assert (ended["type"], ended["code"]) == ("RUN_ERROR", "cancelled")


def test_a_call_has_one_result() -> None:
    """What it printed is it only if it gave nothing else."""
    code = whole(m.CodeMessage("k", format="python", content="1"))
    for more, expected in (([], "one\ntwo\nthree\n"), (output("o", "k", "exit 0"), "exit 0")):
        items = encoded(completed([*code, *printing("p", None), *more]), "ag_ui")
        assert [item["content"] for item in items if item["type"] == "TOOL_CALL_RESULT"] == [expected]


def test_ids_of_the_request_are_echoed() -> None:
    """And the run keeps its own."""
    encoder = ag_ui.Encoder(thread_id="thread-1", run_id="run-7")
    items = [item for event in completed([], e.Run(id="resp_1")) for item in encoder.items(event)]
    assert [(items[at]["threadId"], items[at]["runId"]) for at in (0, -1)] == [("thread-1", "run-7")] * 2
    stream = sk.stream(items, protocol="ag_ui")
    stream.until_done()
    run = stream.get_final_run()
    assert (run.id, run.metadata["thread_id"]) == ("resp_1", "thread-1")


def test_an_interrupt_says_when_it_expires() -> None:
    """Ours, which comes back, and that of another server."""
    made = call("c1", provider_executed=True)
    question = e.ConfirmationCreated(sk.Confirmation("ask", made, expires_at=1767225600.5))
    waits = e.Run(status="requires_action")
    items = encoded(completed([*whole(made), question, e.RunRequiresAction(e.Run())], last=waits), "ag_ui")
    (interrupt,) = items[-1]["outcome"]["interrupts"]
    assert interrupt["expiresAt"] == "2026-01-01T00:00:00.500000+00:00"
    foreign = [item for item in items if item["type"] != "CUSTOM"]
    for stream in (sk.stream(items, protocol="ag_ui"), sk.stream(foreign, protocol="ag_ui")):
        stream.until_done()
        assert [one.expires_at for one in stream.confirmations] == [1767225600.5]


def test_a_console_may_begin_with_a_replacement() -> None:
    """It stays a console."""
    replaced = e.ConsoleDelta("p", "all of it", replace=True)
    events = completed([e.ConsoleCreated(m.ConsoleMessage("p")), replaced, e.ConsoleDone(m.ConsoleMessage("p"))])
    stream = sk.stream(encoded(events, "ag_ui"), protocol="ag_ui")
    assert shown(stream.get_final_messages()) == [("console", "all of it")]
    assert not stream.warnings


@pytest.mark.parametrize("protocol", ["ag_ui", "vercel_ui"])
def test_output_of_one_call_approves_no_other(protocol: str) -> None:
    """Where code runs beside an open question about another call."""
    question, declined = asked(call("c1"), status="declined", reason="no")
    events = [*whole(call("c1")), *whole(m.CodeMessage("k", content="1")), question, *printing("p", None), declined]
    stream = sk.stream(encoded(completed(events), protocol), protocol=protocol)
    stream.until_done()
    assert [(one.status, one.reason) for one in stream.confirmations] == [("declined", "no")]
