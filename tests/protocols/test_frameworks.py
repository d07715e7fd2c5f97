"""Decoders of agent frameworks, by small items as they make them of the frameworks' objects. No framework is imported.

`tests/integrations` has the frameworks themselves.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.protocols import registry
from streamkit.protocols.frameworks.shape import FRAMEWORKS

PNG = "data:image/png;base64,aW1hZ2U="


def read(framework: str, items: list[Any], **options: Any) -> sk.StreamManager:
    """A stream that has read these items."""
    stream = sk.stream(items, protocol=framework, **options)
    with stream:
        for _ in stream:
            pass
    return stream


def shown(stream: sk.StreamManager) -> list[tuple[str, str, str]]:
    return [(message.type, message.content, message.status) for message in stream.messages]


# -- of all


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_is_read_alone(framework: str) -> None:
    with pytest.raises(sk.UsageError, match="only read"):
        sk.stream([]).chunks(framework)
    with pytest.raises(sk.UsageError, match="only read"):
        sk.to_input([], framework)


def test_the_error_for_an_unknown_protocol_names_the_frameworks() -> None:
    with pytest.raises(sk.UsageError, match="pydantic_ai"):
        sk.stream([], protocol="no_such")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_broken_items_are_passed_over(framework: str) -> None:
    """Whatever stands where a kind, a key or an object should be."""
    decoder = registry.decoder_of(framework)
    kinds = [*getattr(decoder, "readers", {}), "unknown", None, 17]
    broken: list[Any] = [None, 17, "text", [], {}, [{"x": 1}], {"part": 1, "id": []}, float("nan")]
    keys = ("index", "part", "delta", "result", "usage", "data", "item", "message", "id", "type", "content", "output")
    key = getattr(decoder, "kind_key", "type")
    items = [{key: kind, **dict.fromkeys(keys, value)} for kind in kinds for value in broken]
    for item in items:
        stream = sk.stream([item, item], protocol=framework)
        with contextlib.suppress(sk.IncompleteStreamError, sk.RunFailedError):
            stream.until_done()
        assert [warning for warning in stream.warnings if warning.code == "decoder-error"] == []


class RawResponsesStreamEvent:
    """Of an application with a package `agents` of its own."""

    type = "raw_response_event"


def test_an_applications_own_package_may_have_a_frameworks_name() -> None:
    kind = RawResponsesStreamEvent
    kind.__module__ = "agents.events"
    with pytest.raises(sk.ProtocolError, match="RawResponsesStreamEvent"):
        sk.stream([kind()]).until_done()


def test_no_framework_is_imported_for_a_recording(tmp_path: Path) -> None:
    recorded = {
        "pydantic_ai": [start(0, "text", "Hel"), delta(0, content_delta="lo."), end(0), result()],
        "openai_agents": [*answer(says_text("Hello.")), run_result()],
    }
    for name, items in recorded.items():
        sk.stream(items, sk.Recorder(tmp_path / name), protocol=name).until_done()
    program = (
        f"import sys, pathlib, streamkit as sk\nfor path in pathlib.Path({str(tmp_path)!r}).iterdir():\n"
        "    print(sk.stream(path).get_final_text())\nprint({'agents', 'pydantic_ai'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Hello.", "Hello.", "set()"]


# -- pydantic_ai


def start(index: int, part_kind: str, content: str | None = None, *, after: str | None = None, **part: Any) -> Any:
    part = {"part_kind": part_kind, **({} if content is None else {"content": content}), **part}
    return {
        "event_kind": "part_start",
        "index": index,
        "part": part,
        **({"previous_part_kind": after} if after else {}),
    }


def delta(index: int, **fields: Any) -> Any:
    return {"event_kind": "part_delta", "index": index, "delta": fields}


def end(index: int, **part: Any) -> Any:
    return {"event_kind": "part_end", "index": index, "part": part}


def call(index: int, args: Any, call_id: str = "c1", *, kind: str = "tool-call", after: str | None = None) -> Any:
    return start(index, kind, tool_name="f", args=args, tool_call_id=call_id, after=after)


def runs(call_id: str = "c1") -> Any:
    return {"event_kind": "function_tool_call", "part": {"tool_call_id": call_id, "tool_name": "f"}}


def returned(content: str, call_id: str = "c1", **part: Any) -> Any:
    part = {"tool_call_id": call_id, "tool_name": "f", "content": content, "outcome": "success", **part}
    return {"event_kind": "function_tool_result", "part": part}


def result(**fields: Any) -> Any:
    return {"event_kind": "agent_run_result", "result": fields}


def response(input_tokens: int = 0, output_tokens: int = 0, finish_reason: str = "stop") -> Any:
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    return {"event_kind": "response", "model_name": "m", "finish_reason": finish_reason, "usage": usage}


def pydantic_ai(*items: Any) -> sk.StreamManager:
    """A strict stream that has read these items."""
    return read("pydantic_ai", [*items], strict=True)


def test_pydantic_ai_begins_a_step_where_no_part_came_before_and_after_tools() -> None:
    """The first part that shows may have another index than 0."""
    text = start(0, "text", "a")
    stream = pydantic_ai(text, end(0), text, end(0), call(1, "{}", after="text"), runs(), returned("x"))
    assert len(stream.get_final_run_steps()) == 2
    items = (call(0, "{}"), end(0, args="{}"), runs(), returned("x"), start(1, "text", "b"), end(1), result())
    stream = pydantic_ai(*items)
    assert [message.step_id for message in stream.messages] == ["step-1", "step-1", "step-2"]


def test_pydantic_ai_interleaved_parts_are_told_apart_by_their_index() -> None:
    """A part ends where the next begins, but more of it may come: to a text as another message, to a call as its arguments."""
    stream = pydantic_ai(
        *(start(0, "thinking", "a"), end(0), start(1, "text", "b", after="thinking"), end(1)),
        *(delta(0, content_delta="c"), call(2, '{"x"', "c1", after="text"), end(2, args='{"x"')),
        *(
            call(3, "", "c2", after="tool-call"),
            delta(2, args_delta=": 1}"),
            delta(3, args_delta="{}"),
            end(3, args="{}"),
        ),
        *(runs("c1"), runs("c2"), returned("1", "c1"), returned("2", "c2"), result()),
    )
    assert shown(stream)[:3] == [
        ("reasoning", "a", "completed"),
        ("message", "b", "completed"),
        ("reasoning", "c", "completed"),
    ]
    assert [m.content for m in stream.messages if m.type == "tool_call"] == ['{"x": 1}', "{}"]


def test_pydantic_ai_a_part_that_begins_again_replaces_what_was_shown() -> None:
    picture = {"url": PNG, "media_type": "image/png"}
    stream = pydantic_ai(
        *(start(0, "file", content=picture), start(0, "file", content={**picture, "url": PNG + "aGk="}, after="file")),
        *(
            call(1, '{"a"', after="file"),
            end(1, args='{"a"'),
            call(1, '{"b": 1}', after="tool-call"),
            end(1, args='{"b": 1}'),
        ),
        *(start(2, "compaction", after="tool-call"), start(2, "compaction", "In short.", after="compaction")),
        *(runs(), returned("x"), result()),
    )
    image, used, summary, _ = stream.messages
    assert (image.type, image.format, image.content) == ("image", "base64.png", "aW1hZ2U=aGk=")
    assert used.content == '{"b": 1}'
    assert (summary.type, summary.content) == ("compaction", "In short.")


def test_pydantic_ai_reasoning_of_anthropic_goes_back_to_it() -> None:
    signed = {"provider_name": "anthropic", "signature": "s1"}
    stream = pydantic_ai(
        *(start(0, "thinking", "Hm."), end(0, **signed)),
        *(start(1, "thinking", "", id="redacted_thinking", after="thinking"), end(1, **{**signed, "signature": "s2"})),
        *(start(2, "thinking", "Ah.", after="thinking"), end(2, provider_name="openai", signature="s3"), result()),
    )
    assert [(m.format, m.content) for m in stream.messages] == [(None, "Hm."), ("redacted", ""), (None, "Ah.")]
    assert sk.to_input(stream.messages, "anthropic")[0]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "s1"},
        {"type": "redacted_thinking", "data": "s2"},
    ]


def test_pydantic_ai_citations_are_annotations() -> None:
    web = {"kind": "web", "url": "https://example.org", "title": "T", "excerpt": "e", "start": 0, "end": 2}
    stream = pydantic_ai(
        start(0, "text", "As it"), end(0, citations=[web, {"kind": "document", "document_id": "d"}]), result()
    )
    text = stream.messages[0]
    assert isinstance(text, sk.TextMessage)
    assert [(one.type, one.url, one.file_id, one.quote, one.start, one.end) for one in text.annotations] == [
        ("web", "https://example.org", None, "e", 0, 2),
        ("document", None, "d", None, None, None),
    ]


def test_pydantic_ai_arguments_may_be_objects_that_get_more_members() -> None:
    stream = pydantic_ai(
        *(
            call(0, {"a": 1}),
            delta(0, args_delta={"b": 2}),
            end(0, args={"a": 1, "b": 2}),
            runs(),
            returned("x"),
            result(),
        )
    )
    assert stream.messages[0].content == '{"a":1,"b":2}'


def test_pydantic_ai_a_tool_of_the_provider_takes_no_answer() -> None:
    stream = pydantic_ai(
        *(call(0, None, kind="builtin-tool-call"), delta(0, args_delta='{"q": 1}'), end(0, args='{"q": 1}')),
        start(1, "builtin-tool-return", "found", tool_name="web_search", tool_call_id="c1", after="builtin-tool-call"),
        *(start(2, "text", "Here.", after="builtin-tool-return"), end(2), result()),
    )
    used, output, _ = stream.messages
    assert isinstance(used, sk.ToolCallMessage)
    assert used.provider_executed
    assert (output.call_id, output.content, output.step_id) == ("c1", "found", used.step_id)
    assert stream.status == "completed"


@pytest.mark.parametrize(
    ("outcome", "status", "metadata"),
    [
        ("retried", "failed", {"error": True}),
        ("failed", "failed", {"error": True}),
        ("denied", "completed", {"declined": None}),
        ("interrupted", "completed", {}),
    ],
)
def test_pydantic_ai_an_output_says_how_its_call_went(outcome: str, status: str, metadata: dict[str, Any]) -> None:
    output = pydantic_ai(call(0, "{}"), runs(), returned("no", outcome=outcome), result()).messages[-1]
    assert (output.status, output.metadata) == (status, metadata)


def test_pydantic_ai_files_of_an_output_are_messages_beside_it() -> None:
    files = [
        {"url": PNG, "media_type": "image/png"},
        {"url": "https://example.org/a.pdf", "media_type": "application/pdf"},
    ]
    stream = pydantic_ai(call(0, "{}"), runs(), returned("See file.", files=files), result())
    assert [(m.type, m.format, m.content, m.role, m.call_id) for m in stream.messages[2:]] == [
        ("image", "base64.png", "aW1hZ2U=", "computer", "c1"),
        ("file", "url", "https://example.org/a.pdf", "computer", "c1"),
    ]


def test_pydantic_ai_tokens_are_those_of_each_response_and_the_rest_is_the_last_steps() -> None:
    """What sub-agents used is in the run's tokens alone. What the conversation had used before is not of this run."""
    before = {"event_kind": "usage", "usage": {"input_tokens": 100, "output_tokens": 10}}
    stream = pydantic_ai(
        *(call(0, "{}"), before, response(5, 1, "tool_call"), runs(), returned("x")),
        *(start(0, "text", "a"), end(0), response(7, 2), result(usage={"input_tokens": 115, "output_tokens": 14})),
    )
    steps = [(step.usage and step.usage.input_tokens, step.finish_reason) for step in stream.get_final_run_steps()]
    assert steps == [(5, "tool_call"), (10, None)]
    run = stream.get_final_run()
    assert (run.model, run.finish_reason) == ("m", "stop")
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.output_tokens) == (15, 4)


def test_pydantic_ai_an_answer_that_was_cut_short_is_incomplete() -> None:
    stream = pydantic_ai(start(0, "text", "a"), end(0), response(1, 1, "length"), result())
    assert (stream.status, stream.get_final_run().finish_reason) == ("incomplete", "length")


def test_pydantic_ai_calls_that_wait_for_an_approval_are_questions() -> None:
    stream = pydantic_ai(
        call(0, '{"sum": 5}'), runs(), result(approvals=[{"tool_call_id": "c1", "args": '{"sum": 5}'}])
    )
    assert stream.status == "requires_action"
    assert [(one.id, one.subject, one.status) for one in stream.confirmations] == [
        ("c1.approval", stream.messages[0], "unanswered")
    ]


def test_pydantic_ai_a_source_without_a_result_is_complete_where_nothing_is_open() -> None:
    """So are the streams of a run's nodes: of a model request, and of the calls after it."""
    assert pydantic_ai(start(0, "text", "a"), end(0)).status == "completed"
    assert pydantic_ai(call(0, "{}"), end(0, args="{}")).status == "requires_action"
    assert pydantic_ai(runs(), returned("x")).status == "completed"
    assert pydantic_ai().messages == ()
    with pytest.raises(sk.IncompleteStreamError):
        pydantic_ai(start(0, "text", "a"))


def test_pydantic_ai_an_event_of_a_tool_is_a_raw_event() -> None:
    progress = {"event_kind": "custom", "name": "progress", "tool_call_id": "c1", "data": {"done": 1}}
    seen: list[sk.Event] = []
    with sk.stream([call(0, "{}"), progress, returned("x"), result()], strict=True, protocol="pydantic_ai") as stream:
        seen += [event for event in stream if isinstance(event, sk.RawEvent)]
    assert [(event.name, event.data) for event in seen] == [("progress", {"done": 1, "tool_call_id": "c1"})]


# -- openai_agents


def said(type: str, **fields: Any) -> Any:
    """An event of the Responses API, as the SDK passes it on."""
    return {"type": "raw_response_event", "data": {"type": f"response.{type}", **fields}}


def answer(*items: Any, id: str = "r1", status: str = "completed", tokens: int = 1) -> list[Any]:
    """A response with these output items, which come at its end."""
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    whole = {"id": id, "model": "m", "status": status, "output": [*items], "usage": usage}
    return [said("created", response={"id": id, "model": "m"}), said(status, response=whole)]


def says_text(text: str, id: str = "__fake_id__") -> Any:
    return {"type": "message", "id": id, "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def calls_tool(call_id: str = "c1", id: str = "__fake_id__") -> Any:
    return {"type": "function_call", "id": id, "call_id": call_id, "name": "f", "arguments": "{}"}


def finished(name: str, **raw: Any) -> Any:
    return {"type": "run_item_stream_event", "name": name, "raw_item": raw}


def put_out(output: Any, call_id: str = "c1", type: str = "function_call_output") -> Any:
    return finished("tool_output", type=type, call_id=call_id, output=output)


def run_result(*interruptions: Any, has_output: bool = True) -> Any:
    return {"type": "run_result", "interruptions": [*interruptions], "has_output": has_output}


def openai_agents(*items: Any) -> sk.StreamManager:
    return read("openai_agents", [*items], strict=True)


def test_openai_agents_items_without_ids_are_told_apart_by_their_places() -> None:
    """Parallel calls of Chat Completions: the SDK gives everything the same id, in all responses."""
    pieces = [(1, '{"x"'), (2, '{"y": '), (1, ": 1}"), (2, "2}")]
    stream = openai_agents(
        said("created", response={"id": "__fake_id__", "model": "m"}),
        *(said("output_item.added", output_index=i, item={**calls_tool(f"c{i}"), "arguments": ""}) for i in (1, 2)),
        *(
            said("function_call_arguments.delta", output_index=i, item_id="__fake_id__", delta=piece)
            for i, piece in pieces
        ),
        said("completed", response={"id": "__fake_id__", "output": []}),
        *(put_out("one", "c1"), put_out("two", "c2"), *answer(says_text("Done."), id="__fake_id__"), run_result()),
    )
    assert [message.content for message in stream.messages] == ['{"x": 1}', '{"y": 2}', "one", "two", "Done."]
    assert len({message.id for message in stream.messages}) == 5
    assert [message.step_id for message in stream.messages] == [*["step-1"] * 4, "step-2"]


def test_openai_agents_ids_that_an_earlier_response_had_are_none() -> None:
    """Of servers that count anew in each response."""
    stream = openai_agents(
        *answer(says_text("a", "i0")), *answer(says_text("b", "i0"), says_text("c", "i1")), run_result()
    )
    assert shown(stream) == [("message", text, "completed") for text in "abc"]
    assert len({message.id for message in stream.messages}) == 3


def test_openai_agents_numbers_of_events_are_no_cursor() -> None:
    """They begin anew with each response."""
    stream = openai_agents(*answer(says_text("a")), said("completed", sequence_number=7, response={}), run_result())
    assert stream.cursor is None


def test_openai_agents_a_response_that_another_one_follows_is_cut_short() -> None:
    begun = said("created", response={"id": "r1"}), said("output_text.delta", item_id="i", output_index=0, delta="Hel")
    stream = openai_agents(*begun, *answer(says_text("Hello.", "i2"), id="r2"), run_result())
    assert shown(stream) == [("message", "Hel", "incomplete"), ("message", "Hello.", "completed")]
    assert (stream.status, len(stream.get_final_run_steps())) == ("completed", 2)


def test_openai_agents_finished_items_are_not_shown_twice_but_what_no_model_said_is() -> None:
    stream = openai_agents(
        *answer(says_text("a"), tokens=3),
        *(finished("message_output_created", **says_text(text)) for text in ("a", "Too many turns.")),
        run_result(),
    )
    assert [message.content for message in stream.messages] == ["a", "Too many turns."]
    assert stream.usage is not None
    assert stream.usage.input_tokens == 3


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("An error occurred while running the tool. Please try again.", "failed"),
        ("Tool 'f' timed out after 5 seconds.", "failed"),
        ("No error.", "completed"),
    ],
)
def test_openai_agents_the_sdks_own_texts_say_that_a_tool_has_failed(output: str, status: str) -> None:
    stream = openai_agents(*answer(calls_tool()), put_out(output), run_result())
    assert (stream.messages[-1].status, stream.messages[-1].name) == (status, "f")


def test_openai_agents_outputs_of_other_tools_are_read_as_the_api_has_them() -> None:
    ran = {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}}
    shell = put_out(
        [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}], type="shell_call_output"
    )
    stream = openai_agents(*answer(ran), shell, run_result())
    assert [(message.type, message.content) for message in stream.messages] == [("code", "ls"), ("console", "a")]


def test_openai_agents_what_waits_for_an_approval_is_asked_once() -> None:
    """A call of a function, one of an inner agent that the stream has no events of, and one of an MCP server."""
    mcp = {"type": "mcp_approval_request", "id": "m1", "name": "g", "arguments": "{}", "server_label": "s"}
    inner = calls_tool("c9") | {"arguments": '{"x": 1}'}
    stream = openai_agents(*answer(calls_tool(), mcp), run_result(calls_tool(), inner, mcp))
    assert stream.status == "requires_action"
    asked = [(one.id, one.subject.content, one.status) for one in stream.confirmations]
    assert sorted(asked) == [
        ("c1.approval", "{}", "unanswered"),
        ("c9.approval", '{"x": 1}', "unanswered"),
        ("m1", "{}", "unanswered"),
    ]


def test_openai_agents_a_callback_may_have_answered_an_mcp_server() -> None:
    mcp = {"type": "mcp_approval_request", "id": "m1", "name": "g", "arguments": "{}", "server_label": "s"}
    decision = finished("mcp_approval_response", approval_request_id="m1", approve=False, reason="No.")
    stream = openai_agents(*answer(mcp), decision, *answer(says_text("Well.")), run_result())
    assert [(one.status, one.reason) for one in stream.confirmations] == [("declined", "No.")]
    assert stream.status == "completed"


def test_openai_agents_an_agent_that_is_a_tool_is_a_sub_agent() -> None:
    inner = [{"type": "inner", "call_id": "c1", "event": event} for event in answer(says_text("Cold."), id="r2")]
    stream = openai_agents(*answer(calls_tool()), *inner, put_out("Cold."), *answer(says_text("So.")), run_result())
    assert [(m.content, m.parent_id) for m in stream.messages] == [
        *[("{}", None), ("Cold.", "c1"), ("Cold.", None), ("So.", None)],
    ]
    assert len(stream.get_final_run_steps()) == 2


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ([*answer(says_text("a")), run_result()], "completed"),
        ([*answer(says_text("a"), status="incomplete"), run_result()], "incomplete"),
        ([*answer(calls_tool()), put_out("x"), run_result(has_output=False)], "cancelled"),
        ([said("created", response={}), run_result(has_output=False)], "cancelled"),
        (answer(says_text("a")), "completed"),
        (answer(calls_tool()), "requires_action"),
    ],
)
def test_openai_agents_how_a_run_ends(end: list[Any], status: str) -> None:
    """Cancelled, where the application has cancelled the SDK's run. The last two have events alone."""
    assert openai_agents(*end).status == status


def test_openai_agents_events_alone_that_end_within_a_response_are_incomplete() -> None:
    with pytest.raises(sk.IncompleteStreamError):
        openai_agents(said("created", response={"id": "r1"}))


# -- smolagents


def says(content: str | None = None, *calls: Any) -> Any:
    return {"kind": "ChatMessageStreamDelta", "content": content, "tool_calls": [*calls]}


def step_over(number: int = 1, **fields: Any) -> Any:
    return {"kind": "ActionStep", "step_number": number, "model_output_message": "", **fields}


def answers(text: str) -> Any:
    return {"kind": "FinalAnswerStep", "output": text}


def runs_code(code: str) -> Any:
    return {"kind": "ToolCall", "name": "python_interpreter", "arguments": code, "id": "call_1"}


def smolagents(*items: Any) -> sk.StreamManager:
    """A strict stream that has read these items."""
    return read("smolagents", [*items], strict=True)


CODED = "Look: a < b. <code>\n x = 1\nprint(x)\n</code> And <code>x</code>"


@pytest.mark.parametrize("size", [1, 3, 7, len(CODED)])
def test_smolagents_code_is_taken_out_of_the_text_however_that_is_cut(size: int) -> None:
    """Blocks are joined as the framework joins them."""
    pieces = [CODED[start : start + size] for start in range(0, len(CODED), size)]
    stream = smolagents(*map(says, pieces), runs_code("x = 1\nprint(x)\n\nx"), step_over(), answers(""))
    assert shown(stream)[:2] == [
        ("message", "Look: a < b. And ", "completed"),
        ("code", "x = 1\nprint(x)\n\nx", "completed"),
    ]


@pytest.mark.parametrize("pieces", [["No code here</code>"], ["No code here</", "code>"]])
def test_smolagents_a_tag_that_ends_no_code_is_no_text(pieces: list[str]) -> None:
    """The framework adds it to a text without code."""
    stream = smolagents(*map(says, pieces), step_over(), answers("Done."))
    assert [message.content for message in stream.get_final_messages()] == ["No code here", "Done."]


def test_smolagents_code_that_runs_otherwise_than_it_was_written_replaces_it() -> None:
    items = [says("<code>final_answer = 1</code>"), runs_code("final_answer_variable = 1"), step_over(), answers("1")]
    stream = read("smolagents", items)
    assert stream.messages[0].content == "final_answer_variable = 1"
    assert [warning.code for warning in stream.warnings] == ["content-differs"]


def test_smolagents_interleaved_calls_are_told_apart_by_their_index() -> None:
    def piece(index: int, arguments: str, **begins: str) -> Any:
        return says(None, {"index": index, "arguments": arguments, **begins})

    stream = smolagents(
        *(piece(0, "", id="a", name="f"), piece(1, '{"y"', id="b", name="g"), piece(0, '{"x": 1}'), piece(1, ": 2}")),
        *({"kind": "ToolCall", "name": name, "arguments": {}, "id": id} for name, id in (("f", "a"), ("g", "b"))),
        *({"kind": "ToolOutput", "id": id, "observation": id} for id in ("b", "a")),
        *(step_over(), answers("Done.")),
    )
    assert [(m.call_id, m.content) for m in stream.messages[:4]] == [
        *[("a", '{"x": 1}'), ("b", '{"y": 2}')],
        *[("b", "b"), ("a", "a")],
    ]


def test_smolagents_every_call_without_an_output_gets_the_error_of_its_step() -> None:
    called = [{"kind": "ToolCall", "name": "f", "arguments": {}, "id": id} for id in ("a", "b")]
    output = {"kind": "ToolOutput", "id": "a", "observation": "fine"}
    failed = step_over(error={"type": "AgentToolExecutionError", "message": "no"})
    stream = smolagents(*called, output, failed, answers("Done."))
    assert [(m.call_id, m.content, m.status) for m in stream.messages[2:4]] == [
        ("a", "fine", "completed"),
        ("b", "no", "failed"),
    ]


def test_smolagents_a_run_that_is_cut_off_is_incomplete_and_a_models_own_stream_complete() -> None:
    assert smolagents(says("Hel"), says("lo.")).get_final_text() == "Hello."
    with pytest.raises(sk.IncompleteStreamError):
        smolagents(says("Hello."), step_over())
    with pytest.raises(sk.IncompleteStreamError):
        smolagents(says("Hello."), step_over(), says("a"))


def test_smolagents_what_is_unknown_is_passed_on() -> None:
    stream = smolagents(says("Hello."), {"kind": "NewStep", "x": 1}, step_over(), answers("Done."))
    assert stream.get_final_text() == "Done."


# -- langchain, langgraph


def chunk(text: Any = "", id: str = "lc_run--1", **fields: Any) -> Any:
    return {"type": "AIMessageChunk", "id": id, "content": text, **fields}


def fragment(args: str | None, index: int | None = 0, id: str | None = None, name: str | None = None) -> Any:
    return chunk(tool_calls=[{"name": name, "args": args, "id": id, "index": index}])


def tool_message(content: str, call_id: str = "c1", **fields: Any) -> Any:
    return {"type": "tool", "tool_call_id": call_id, "content": content, "name": "f", "id": f"m-{call_id}", **fields}


def part(message: Any, namespace: str = "model:1", node: str = "model") -> Any:
    return {"type": "messages", "ns": [], "data": [message, {"langgraph_checkpoint_ns": namespace, "node": node}]}


def langchain(*items: Any) -> sk.StreamManager:
    """A strict stream that has read these items."""
    return read("langchain", [*items], strict=True)


def langgraph(*items: Any) -> sk.StreamManager:
    """A strict stream that has read these items."""
    return read("langgraph", [*items], strict=True)


def test_langchain_calls_are_told_apart_by_their_index_and_texts_by_their_blocks() -> None:
    def block(kind: str, text: str, index: Any) -> Any:
        return chunk([{"type": kind, kind: text, "index": index}])

    stream = langchain(
        *(block("reasoning", "a", 0), block("text", "b", "x"), block("text", "c", 2), block("reasoning", "d", 0)),
        *(fragment("", 3, "c1", "f"), fragment('{"x"', 3), fragment("", 4, "c2", "f"), fragment("{}", 4)),
        *(fragment(": 1}", 3), tool_message("1", "c1"), tool_message("2", "c2")),
    )
    assert [content for _, content, _ in shown(stream)] == ["a", "b", "c", "d", '{"x": 1}', "{}", "1", "2"]
    assert stream.status == "completed"


def test_langchain_a_call_without_an_index_goes_on_with_the_pieces_that_follow() -> None:
    stream = langchain(fragment("{", None, "c1", "f"), fragment("}", None), fragment("{}", None, "c2", "f"))
    assert [(m.call_id, m.content) for m in stream.messages] == [("c1", "{}"), ("c2", "{}")]
    assert stream.status == "requires_action"


def test_langchain_tokens_of_a_response_add_up_and_its_reason_is_the_steps() -> None:
    """Also where the chunk that says so is the last one: a limit cuts the answer short."""
    usage = [{"input_tokens": 5, "output_tokens": 0}, {"input_tokens": 0, "output_tokens": 2}]
    stream = langchain(
        chunk("a", usage_metadata=usage[0]),
        chunk(usage_metadata=usage[1], response_metadata={"finish_reason": "stop"}, chunk_position="last"),
        chunk("b", "lc_run--2", usage_metadata=usage[0], response_metadata={"stop_reason": "max_tokens"}),
    )
    steps = [(step.usage and step.usage.total_tokens, step.finish_reason) for step in stream.get_final_run_steps()]
    assert steps[0] == (7, "stop")
    assert (stream.status, stream.get_final_run().finish_reason) == ("incomplete", "max_tokens")
    assert stream.usage is not None
    assert stream.usage.total_tokens == 12


def test_langchain_a_tool_of_the_provider_takes_no_answer_and_citations_are_annotations() -> None:
    citation = {"type": "citation", "url": "https://example.org", "title": "Example"}
    stream = langchain(
        chunk([{"type": "server_tool_call", "name": "web_search", "args": {"q": 1}, "id": "s1", "index": 0}]),
        chunk([{"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": ["x"]}]),
        chunk([{"type": "text", "text": "Here.", "annotations": [citation], "index": 1}]),
    )
    used, output, text = stream.messages
    assert isinstance(used, sk.ToolCallMessage)
    assert (used.provider_executed, output.content) == (True, '["x"]')
    assert isinstance(text, sk.TextMessage)
    assert [annotation.url for annotation in text.annotations] == ["https://example.org"]
    assert stream.status == "completed"


def test_langgraph_responses_beside_each_other_are_one_step_and_told_apart_by_their_ids() -> None:
    stream = langgraph(
        *(part(chunk("a", "1"), "one:1"), part(chunk("b", "2"), "two:2"), part(chunk("c", "1"), "one:1")),
        *(part(chunk("d", "2", chunk_position="last"), "two:2"), part(chunk("e", "3"), "three:3")),
    )
    assert [(m.content, m.step_id) for m in stream.messages] == [("ac", "step-1"), ("bd", "step-1"), ("e", "step-1")]
    assert stream.status == "completed"


def test_langgraph_a_message_is_shown_once_whatever_the_modes_are() -> None:
    whole = {"type": "ai", "id": "m1", "content": "Hi."}
    update = {"type": "updates", "ns": [], "data": {"model": {"messages": [whole], "plan": "x"}}}
    state = {"type": "values", "ns": [], "data": {"messages": [{"type": "human", "id": "h", "content": "?"}]}}
    again = {"type": "values", "ns": [], "data": {"messages": [*state["data"]["messages"], whole]}}
    assert [m.content for m in langgraph(state, part(whole), update, again).messages] == ["Hi."]
    assert [m.content for m in langgraph(state, update, again).messages] == ["Hi."]
    assert [m.content for m in langgraph(state, again).messages] == ["Hi."]
    assert langgraph(again, again).messages == ()  # which the run began with


def test_langgraph_a_sub_agent_of_a_sub_agent_belongs_to_its_call() -> None:
    stream = langgraph(
        part(fragment("{}", 0, "c1", "f")),
        part({**fragment("{}", 0, "c2", "f"), "id": "2"}, "tools:a|model:2"),
        part(chunk("deep", "3"), "tools:a|tools:b|model:3"),
        part(tool_message("x", "c2"), "tools:a|tools:b", "tools"),
        part(tool_message("y", "c1"), "tools:a", "tools"),
        part(chunk("end", "4"), "model:4"),
    )
    parents = [(m.content, m.parent_id) for m in stream.messages]
    assert parents == [("{}", None), ("{}", "c1"), ("deep", "c2"), ("x", "c1"), ("y", None), ("end", None)]
    assert stream.status == "completed"


def test_langgraph_a_question_of_a_node_requires_action() -> None:
    question = {"value": {"sum": 5}, "id": "q"}
    item = {"type": "updates", "ns": [], "data": {"__interrupt__": [question]}}
    stream = sk.stream([item, item], protocol="langgraph", strict=True)
    assert [event.data for event in stream if isinstance(event, sk.RawEvent)] == [question]
    assert stream.status == "requires_action"


def test_langgraph_is_recognised_by_its_own_shapes_alone() -> None:
    """Without an object of LangChain's in them."""
    ours: list[Any] = [
        *([("updates", {"a": None})], [("custom", 1)], [((), {"a": None})], [{"type": "custom", "ns": (), "data": 1}]),
        [{"event": "on_chain_start", "run_id": "1", "parent_ids": [], "data": {}}],
    ]
    for items in ours:
        sk.stream(items, strict=True).until_done()
    theirs: list[Any] = [("a", 1), ("messages", 1), {"type": "custom", "data": 1}, {"event": "on_x"}]
    for item in theirs:
        with pytest.raises(sk.StreamkitError):
            sk.stream([item]).until_done()


def test_langgraph_is_not_imported_for_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sk.stream([part(chunk("Hello."))], sk.Recorder(path), protocol="langgraph").until_done()
    program = (
        f"import sys, pathlib, streamkit as sk; text = sk.stream(pathlib.Path({str(path)!r})).get_final_text()\n"
        "print(text, {'langgraph', 'langchain_core'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Hello.", "set()"]


# -- ai


def event(kind: str, **fields: Any) -> Any:
    return {"kind": kind, **fields}


def ai_call(call_id: str, arguments: str = "{}") -> list[Any]:
    named = {"tool_call_id": call_id}
    return [
        event("tool_start", tool_name="f", **named),
        event("tool_delta", chunk=arguments, **named),
        event("tool_end", arguments=arguments, **named),
    ]


def ai_result(call_id: str, output: Any, **fields: Any) -> Any:
    return event("tool_call_result", results=[{"tool_call_id": call_id, "output": output, **fields}])


def ai(*items: Any) -> sk.StreamManager:
    """A strict stream that has read these items."""
    return read("ai", [*items], strict=True)


BEGIN, END = event("stream_start"), event("stream_end", finish_reason="stop")


def test_ai_interleaved_blocks_are_told_apart_by_their_kind_and_id() -> None:
    stream = ai(
        *(BEGIN, event("text_start", block_id="1"), event("reasoning_start", block_id="1")),
        *(event("text_delta", block_id="1", chunk="a"), event("reasoning_delta", block_id="1", chunk="b")),
        *(event("text_delta", block_id="1", chunk="c"), event("text_end", block_id="1"), END),
    )
    assert shown(stream) == [("message", "ac", "completed"), ("reasoning", "b", "completed")]


def test_ai_a_retry_withdraws_what_its_response_began() -> None:
    """With the outputs of its calls. What came in responses before stays."""
    text = [event("text_start", block_id="1"), event("text_delta", block_id="1", chunk="Hel")]
    stream = ai(
        *(BEGIN, *ai_call("a"), END, ai_result("a", "x"), BEGIN, *text, *ai_call("b"), ai_result("b", "y")),
        *(event("retry"), BEGIN, *text, event("text_delta", block_id="1", chunk="lo."), END),
    )
    assert [content for _, content, _ in shown(stream)] == ["{}", "x", "Hello."]
    assert stream.status == "completed"
    assert [step.status for step in stream.get_final_run_steps()] == ["completed", "failed", "completed"]


def test_ai_sub_agents_may_have_sub_agents() -> None:
    def inside(call_id: str, value: Any) -> Any:
        return event("partial_tool_call_result", tool_call_id=call_id, value=value)

    said = [BEGIN, event("text_start", block_id="1"), event("text_delta", block_id="1", chunk="Deep."), END]
    middle = [BEGIN, *ai_call("b"), END, *(inside("b", one) for one in said), ai_result("b", "Deep.")]
    stream = ai(BEGIN, *ai_call("a"), END, *(inside("a", one) for one in middle), ai_result("a", "Done."))
    assert [(m.content, m.parent_id) for m in stream.messages] == [
        *[("{}", None), ("{}", "a"), ("Deep.", "b"), ("Deep.", "a"), ("Done.", None)]
    ]


def test_ai_a_hook_that_somebody_else_resolves_is_a_question_with_its_outcome() -> None:
    hook = {"hook_id": "h", "hook_type": "ToolApproval", "tool_call_id": "a", "tool": "f", "arguments": {}}
    resolved = {**hook, "status": "resolved", "resolution": {"granted": False, "reason": "no"}}
    other = {**hook, "hook_id": "other", "hook_type": "Date", "status": "pending"}
    stream = ai(
        *(BEGIN, *ai_call("a"), END, event("hook", hook={**hook, "status": "pending"}), event("hook", hook=other)),
        *(event("run_blocked"), event("hook", hook=resolved), ai_result("a", "no", failed=True), BEGIN, END),
    )
    assert [(one.id, one.subject, one.status, one.reason) for one in stream.confirmations] == [
        ("h", stream.messages[0], "declined", "no")
    ]
    assert stream.status == "completed"


def test_ai_what_else_a_tool_yields_is_passed_on() -> None:
    value = event("partial_tool_call_result", tool_call_id="a", value="half")
    stream = ai(BEGIN, *ai_call("a"), END, value, ai_result("a", {"x": 1}), BEGIN, END)
    assert [content for _, content, _ in shown(stream)] == ["{}", '{"x":1}']


def test_ai_files_are_messages() -> None:
    image = ai(BEGIN, event("file", url=PNG, media_type="image/png"), END).messages[0]
    assert (image.type, image.format, image.content) == ("image", "base64.png", "aW1hZ2U=")


def test_ai_a_source_that_ends_within_a_response_is_incomplete() -> None:
    with pytest.raises(sk.IncompleteStreamError):
        ai(BEGIN, event("text_start", block_id="1"), event("text_delta", block_id="1", chunk="Hel"))
    assert ai(BEGIN, event("stream_end", finish_reason="length")).status == "incomplete"
