"""Vercel's UI message stream: what servers of `ai` 5 to 7 send, and the rules that its clients hold us to.

What comes back of what we encode, and what the real clients make of it, is in `test_ui_protocols` and `test_ui_clients`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any

import pytest

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m

from ..recorded import SHARED
from ..ui_streams import CODE, asked, call, completed, encoded, everything, output, printing, whole

START: list[Any] = [{"type": "start", "messageId": "msg-1"}, {"type": "start-step"}]
END: list[Any] = [{"type": "finish-step"}, {"type": "finish", "finishReason": "stop"}]
TOOL = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "weather", "input": {"city": "Oslo"}}


def read(*items: Any, strict: bool = False, whole: bool = True) -> sk.StreamManager:
    """A stream of these chunks, read to its end."""
    given = [*START, *items, *END] if whole else [*items]
    body = b"".join(b"data: " + json.dumps(item).encode() + b"\n\n" for item in given)
    stream = sk.stream([body], strict=strict)
    stream.until_done()
    return stream


def shown(messages: Iterable[sk.Message]) -> list[tuple[str, str]]:
    return [(message.type, message.content) for message in messages]


# -- decoding


def test_ids_of_texts_hold_until_their_end() -> None:
    """In the next step the same id is another text, and a reasoning may have it at the same time."""
    one = [{"type": f"{kind}-start", "id": "0"} for kind in ("reasoning", "text")]
    deltas = [{"type": f"{kind}-delta", "id": "0", "delta": kind} for kind in ("text", "reasoning", "text")]
    ends = [{"type": f"{kind}-end", "id": "0"} for kind in ("reasoning", "text")]
    stream = read(*one, *deltas, *ends, {"type": "finish-step"}, {"type": "start-step"}, one[1], deltas[0], ends[1])
    assert shown(stream.messages) == [("reasoning", "reasoning"), ("message", "texttext"), ("message", "text")]
    assert len({message.id for message in stream.messages}) == 3
    assert [step.status for step in stream.get_final_run_steps()] == ["completed", "completed"]


def test_a_call_begins_again_with_other_arguments() -> None:
    """Its pieces so far are replaced."""
    begin = {"type": "tool-input-start", "toolCallId": "c1", "toolName": "weather"}
    pieces = [
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": text}
        for text in ('{"to', '{"city":', '"Oslo"}')
    ]
    stream = read(begin, pieces[0], begin, *pieces[1:], TOOL)
    assert shown(stream.messages) == [("tool_call", '{"city":"Oslo"}')]
    assert not stream.warnings


@pytest.mark.parametrize(("again", "codes"), [({"city": "Oslo"}, []), ({"city": "Rome"}, ["content-differs"])])
def test_a_call_that_is_available_again_counts_once(again: Any, codes: list[str]) -> None:
    """Other arguments come too late for it, which is a warning."""
    stream = read(TOOL, {**TOOL, "input": again})
    assert shown(stream.messages) == [("tool_call", '{"city":"Oslo"}')]
    assert [warning.code for warning in stream.warnings] == codes


def test_outputs_grow_and_fail() -> None:
    """A preliminary output is replaced by the next one; an error is an output."""
    given = [
        {"type": "tool-output-available", "toolCallId": "c1", "output": [number], "preliminary": number < 2}
        for number in range(3)
    ]
    other = {**TOOL, "toolCallId": "c2"}
    error = {"type": "tool-output-error", "toolCallId": "c2", "errorText": "no network"}
    stream = read(TOOL, *given, other, error)
    assert shown(stream.messages)[1::2] == [("tool_output", "[2]"), ("tool_output", "no network")]
    assert [message.metadata.get("error") for message in stream.messages[1::2]] == [None, True]
    assert stream.status == "completed"


def test_what_another_server_sends_along_goes_back_as_it_came() -> None:
    """`providerMetadata` of the end, of a delta or of the beginning."""
    metadata = {"openai": {"itemId": "i"}}
    items = [
        {"type": "reasoning-start", "id": "0"},
        {"type": "reasoning-delta", "id": "0", "delta": "", "providerMetadata": metadata},
        {"type": "reasoning-end", "id": "0"},
        {"type": "text-start", "id": "1", "providerMetadata": metadata},
        {"type": "text-delta", "id": "1", "delta": "Hi."},
        {"type": "text-end", "id": "1"},
    ]
    stream = read(*items)
    assert [message.metadata for message in stream.messages] == [{"vercel_ui": metadata}] * 2
    parts = sk.to_input(stream.messages, "vercel_ui")[0]["parts"]
    assert [part["providerMetadata"] for part in parts[1:]] == [metadata, metadata]


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ([{"type": "finish"}], "completed"),
        ([{"type": "finish", "finishReason": "length"}], "incomplete"),
        ([{"type": "finish", "finishReason": "content-filter"}], "incomplete"),
        ([{"type": "finish", "finishReason": "a-new-one"}], "completed"),
        ([{"type": "abort", "reason": "stopped"}], "cancelled"),
        (
            [{"type": "tool-approval-request", "approvalId": "q", "toolCallId": "c1"}, {"type": "finish"}],
            "requires_action",
        ),
        ([{**TOOL, "toolCallId": "c2"}, {"type": "finish", "finishReason": "tool-calls"}], "requires_action"),
    ],
)
def test_how_a_run_ends(ending: list[Any], status: str) -> None:
    provider = {**TOOL, "providerExecuted": True}
    assert read(*START, provider, *ending, whole=False).status == status


def test_an_error_fails_the_run_and_an_end_without_finish_is_a_cut() -> None:
    with pytest.raises(sk.RunFailedError, match="no credits"):
        read(
            *START,
            {"type": "error", "errorText": "no credits"},
            {"type": "finish", "finishReason": "error"},
            whole=False,
        )
    with pytest.raises(sk.IncompleteStreamError):
        read(*START, {"type": "text-start", "id": "0"}, whole=False)


STRAY: list[tuple[list[Any], str]] = [
    ([{"type": "text-delta", "id": "0", "delta": "Hi."}], "stray-delta"),
    ([{"type": "text-end", "id": "0"}], "stray-end"),
    ([{"type": "tool-input-delta", "toolCallId": "x", "inputTextDelta": "{"}], "stray-delta"),
    ([{"type": "tool-approval-request", "approvalId": "q", "toolCallId": "x"}], "stray-approval"),
    ([{"type": "tool-approval-response", "approvalId": "q", "approved": "true"}], "bad-approval"),
    ([{"type": "text-of-the-future", "id": "0"}], "unknown-type"),
]


@pytest.mark.parametrize(("items", "code"), STRAY)
def test_what_a_client_would_throw_at_is_a_warning(items: list[Any], code: str) -> None:
    """A strict stream raises."""
    assert [warning.code for warning in read(*items).warnings] == [code]
    with pytest.raises(sk.ProtocolError):
        read(*items, strict=True)


def test_parts_of_other_servers_are_raw_events() -> None:
    """Data parts too, even of our names, where they are not ours."""
    items: list[Any] = [
        {"type": "data-weather", "data": {"temp": 7}},
        {"type": "data-console", "id": "x", "data": {"lines": []}},
        {"type": "data-code", "id": "x", "data": {"callId": "nobody", "code": "1"}},
        {"type": "custom", "kind": "openai.compaction"},
        {"type": "source-url", "sourceId": "s", "url": "https://a.example"},
        {"type": "message-metadata", "messageMetadata": {"mood": "good"}},
    ]
    names = [event.name for event in sk.stream([*START, *items, *END]) if isinstance(event, e.RawEvent)]
    assert names == [item["type"] for item in items]


@pytest.mark.slow
@pytest.mark.skipif(not (SHARED / "vercel-ui").exists(), reason="the shared recordings are not beside this checkout")
@pytest.mark.parametrize(
    "name",
    ["ai6-anthropic-thinking", "ai6-chat-reasoning-content-deepseek", "ai6-responses-two-steps-server-tool"],
)
def test_a_recording_of_the_ai_package_has_its_texts_and_calls(name: str) -> None:
    """No warning, each call complete, nothing empty that has text."""
    stream = sk.stream(SHARED / "vercel-ui" / f"{name}.sse")
    stream.until_done()
    assert not stream.warnings
    assert all(message.content for message in stream.messages if message.type in ("message", "reasoning", "tool_call"))
    assert all(
        isinstance(one.arguments, dict) and one.arguments
        for one in stream.messages
        if isinstance(one, m.ToolCallMessage)
    )


# -- encoding


def types(events: Iterable[e.Event], **options: Any) -> list[str]:
    return [item["type"] for item in encoded(events, "vercel_ui", **options)]


ONLY_NEWER = {"tool-approval-request": 6, "tool-output-denied": 6, "tool-approval-response": 7}


@pytest.mark.parametrize("version", [5, 6, 7])
def test_a_version_gets_no_part_that_it_does_not_know(version: int) -> None:
    """An unknown type makes every client throw, and until lately an unknown field as well."""
    items = encoded(everything(), "vercel_ui", version=version)
    assert [item["type"] for item in items if ONLY_NEWER.get(item["type"], 5) > version] == []
    if version == 5:
        begins = [
            item for item in items if item["type"] in ("tool-input-start", "tool-output-available", "tool-output-error")
        ]
        assert begins and not any("providerMetadata" in item for item in begins)


def test_deltas_stand_between_start_and_end_and_no_id_comes_again() -> None:
    """Nothing is sent for an id that is not open."""
    open_ids: set[str] = set()
    seen: set[str] = set()
    for item in encoded(everything(), "vercel_ui"):
        stem, _, phase = item["type"].partition("-")
        if stem in ("text", "reasoning"):
            if phase == "start":
                assert item["id"] not in seen
                seen.add(item["id"])
                open_ids.add(item["id"])
            assert item["id"] in open_ids
            if phase == "end":
                open_ids.remove(item["id"])
    assert open_ids == set() and len(seen) > 10


def test_a_step_ends_once_nothing_in_it_is_open() -> None:
    """Clients before version 7 forget open texts at its end."""
    text = whole(m.TextMessage("t"), "One, ", "two.")
    steps: list[e.Event] = [e.RunStepDone(e.RunStep()), e.RunStepCreated(e.RunStep(id="b"))]
    sent = types(completed([*text[:2], *steps, *text[2:], *whole(m.TextMessage("u"), "Three.")]))
    assert sent == [
        *("start", "start-step", "text-start", "text-delta", "text-delta", "text-end"),
        *("finish-step", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish"),
    ]


def test_an_output_waits_for_the_arguments_of_its_call() -> None:
    """`tool-input-available` would take its place."""
    begun, *rest = whole(call("c1"))
    sent = types(completed([begun, *output("o1", "c1", "rain"), *rest]))
    assert sent.index("tool-input-available") < sent.index("tool-output-available")


def test_a_message_that_goes_on_has_its_calls_already() -> None:
    """An output without its call gets a part of its own, else it would throw; `after` says what the client has."""
    events = [*output("o1", "c1", "rain")]
    assert types(completed(events))[2:4] == ["tool-input-available", "tool-output-available"]
    assert types(completed(events), after=[call("c1")])[2:3] == ["tool-output-available"]


def test_parallel_parts_of_one_call_id_stay_apart() -> None:
    """Some servers give the same id to several calls."""
    calls = [
        event for id in ("a", "b") for event in whole(m.ToolCallMessage(id, name="f", call_id="call_0", content="{}"))
    ]
    starts = [
        item["toolCallId"] for item in encoded(completed(calls), "vercel_ui") if item["type"] == "tool-input-start"
    ]
    assert starts == ["call_0", "call_0.2"]


def test_code_is_a_call_and_a_data_part_and_its_console_too() -> None:
    """What is printed comes piece by piece, as a whole now and then, and at the end as the call's output."""
    items = encoded(completed([*whole(CODE), *printing("p", None)]), "vercel_ui")
    arguments = "".join(item["inputTextDelta"] for item in items if item["type"] == "tool-input-delta")
    assert json.loads(arguments) == {"language": "python", "code": CODE.content}
    assert [item["data"] for item in items if item["type"] == "data-code"] == [
        {"callId": "k", "language": "python", "code": CODE.content, "status": "completed"}
    ]
    consoles = [item["data"] for item in items if item["type"] == "data-console"]
    assert (consoles[0]["status"], consoles[-1]["status"]) == ("in_progress", "completed")
    assert consoles[-1]["output"] == "one\ntwo\nthree\n"
    outputs = [item for item in items if item["type"] == "tool-output-available"]
    assert outputs[-1]["output"] == {"stdout": "one\nthree\n", "stderr": "two\n"} and "preliminary" not in outputs[-1]
    assert [item["data"]["line"] for item in items if item["type"] == "data-active-line"] == [1, 2, None]
    assert all(item["transient"] for item in items if item["type"] in ("data-active-line", "data-console-delta"))


def test_a_console_of_any_length_is_sent_in_linear_size() -> None:
    """Though each part has all of it: they come as it grows by a half."""

    def size(lines: int) -> int:
        console = m.ConsoleMessage("p", call_id=None)
        deltas: list[e.Event] = [e.ConsoleDelta("p", "a line of output\n") for _ in range(lines)]
        events: list[e.Event] = [e.ConsoleCreated(console), *deltas, e.ConsoleDone(m.ConsoleMessage("p"))]
        return len(json.dumps(encoded(completed([*whole(CODE), *events]), "vercel_ui")))

    assert size(4000) / size(1000) < 5


def test_a_declined_call_stays_denied() -> None:
    """What the model is told about it does not take its place: it is a message of its own."""
    events = [
        *whole(call("c1")),
        *asked(call("c1"), status="declined", reason="no"),
        *output("o", "c1", "declined: no"),
    ]
    assert types(completed(events), version=6)[-5:] == [
        *("data-confirmation", "tool-output-denied", "data-message", "finish-step", "finish")
    ]
    assert "tool-output-error" in types(completed(events), version=5)


STATUSES: tuple[e.RunStatus, ...] = ("cancelled", "failed", "completed")


def test_an_approved_call_without_an_output_is_closed_at_the_end() -> None:
    """Else a client finds an approval that seems unsent, and posts it once more. A run that waits goes on with the call."""
    made = call("c1", provider_executed=True)
    events = [*whole(made), *asked(made, status="approved")]
    for version in (5, 6, 7):
        for status in STATUSES:
            items = encoded(completed(events, last=e.Run(status=status)), "vercel_ui", version=version)
            closed = [item for item in items if item["type"] == "tool-output-error"]
            assert [item["toolCallId"] for item in closed] == ["c1"]
            back = sk.stream(items, protocol="vercel_ui")
            with contextlib.suppress(sk.RunFailedError):
                back.until_done()
            assert [message.type for message in back.messages] == ["tool_call"]
        waiting = completed(events, last=e.Run(status="requires_action"))
        assert "tool-output-error" not in types(waiting, version=version)


def test_an_approval_of_an_earlier_response_is_closed_too() -> None:
    """Where the message goes on in another one; what gave something there has its output."""
    known = [call("c1"), call("c2"), m.ToolOutputMessage("o", call_id="c2", content="rain")]
    approved = [sk.Confirmation(f"ask-{one.id}", one, status="approved") for one in known[:2]]
    last = completed([], last=e.Run(status="cancelled"))
    items = encoded(last, "vercel_ui", after=[*known, *approved])
    assert [item["toolCallId"] for item in items if item["type"] == "tool-output-error"] == ["c1"]


def test_a_run_that_is_cancelled_is_aborted_without_a_finish() -> None:
    last = e.Run(status="cancelled")
    assert types(completed(whole(m.TextMessage("t"), "It"), last=last))[-3:] == ["text-end", "finish-step", "abort"]
