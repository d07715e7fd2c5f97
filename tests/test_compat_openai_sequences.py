"""The sequences of Assistants streams that openai's own handler gets wrong, each told right; on every face, passed to
the real client and given to `stream`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import httpx2
import openai
import pytest
from openai.types.beta.threads import Text

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.compat.openai.objects import append
from streamkit.testing import ModelServer, Reply

from . import assistants as a
from .assistants import (
    call,
    each,
    every_way,
    function,
    message,
    message_delta,
    run,
    run_handler,
    step,
    step_delta,
    text,
)
from .costs import assert_costs, seconds_of
from .faces import Face, body, both_shells, every_face, every_pair

pytestmark = a.quiet

BEGIN = [run("queued"), run("in_progress")]
END = [run("completed", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})]

SEQUENCES: dict[str, tuple[list[a.Item], list[str]]] = {
    "01 a call is done once": (
        [
            step("created"),
            step_delta(a.code("1+1", 0, id="c0")),
            step("completed", calls=[a.code("1+1", id="c0")]),
            step("created", "s2", makes="m1"),
            message("created"),
            message_delta(text("2", 0)),
            message("completed", content=[text("2")]),
            step("completed", "s2", makes="m1"),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '1+1' '1+1'",
            "tool_call_done c0 '1+1'",
            "run_step_done s1",
            "run_step_created s2",
            "message_created m1",
            "text_created ''",
            "text_delta '2' '2'",
            "text_done '2'",
            "message_done m1",
            "run_step_done s2",
            "end",
        ],
    ),
    "02 call 0 of another step is another call": (
        [
            step("created"),
            step_delta(function("{}", 0, id="c0", name="f")),
            step("completed", calls=[function("{}", id="c0", name="f")]),
            step("created", "s2"),
            step_delta(function("[]", 0, id="c1", name="g"), id="s2"),
            step("completed", "s2", calls=[function("[]", id="c1", name="g")]),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{}' '{}'",
            "tool_call_done c0 '{}'",
            "run_step_done s1",
            "run_step_created s2",
            "tool_call_created c1 ''",
            "tool_call_delta c1 '[]' '[]'",
            "tool_call_done c1 '[]'",
            "run_step_done s2",
            "end",
        ],
    ),
    "03 what is created is empty": (
        [
            message("created"),
            message_delta(text("He", 0)),
            message_delta(text("y", 0)),
            message("completed", content=[text("Hey")]),
        ],
        [
            "message_created m1",
            "text_created ''",
            "text_delta 'He' 'He'",
            "text_delta 'y' 'Hey'",
            "text_done 'Hey'",
            "message_done m1",
            "end",
        ],
    ),
    "04 two fragments in one event are two deltas": (
        [
            step("created"),
            step_delta(function("{", 0, id="c0", name="f"), function("}", 0)),
            step("completed", calls=[function("{}", id="c0", name="f")]),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{' '{'",
            "tool_call_delta c0 '}' '{}'",
            "tool_call_done c0 '{}'",
            "run_step_done s1",
            "end",
        ],
    ),
    "07 a part is done before the next is created": (
        [
            message("created"),
            message_delta(text("A", 0)),
            message_delta(text("B", 1)),
            message_delta(a.image("file_1", 2)),
            message("completed", content=[text("A"), text("B"), a.image("file_1")]),
        ],
        [
            "message_created m1",
            "text_created ''",
            "text_delta 'A' 'A'",
            "text_done 'A'",
            "text_created ''",
            "text_delta 'B' 'B'",
            "text_done 'B'",
            "image_file_done file_1",
            "message_done m1",
            "end",
        ],
    ),
    "13 a delta goes to the message that it names": (
        [
            message("created", "m1"),
            message("created", "m2"),
            message_delta(text("one", 0), id="m1"),
            message_delta(text("two", 0), id="m2"),
            message("completed", "m1", [text("one")]),
            message("completed", "m2", [text("two")]),
        ],
        [
            "message_created m1",
            "message_created m2",
            "text_created ''",
            "text_delta 'one' 'one'",
            "text_created ''",
            "text_delta 'two' 'two'",
            "text_done 'one'",
            "message_done m1",
            "text_done 'two'",
            "message_done m2",
            "end",
        ],
    ),
    "14 parts are counted in each message anew": (
        [
            message("created", "m1"),
            message_delta(text("a", 0), id="m1"),
            message_delta(text("b", 1), id="m1"),
            message("completed", "m1", [text("a"), text("b")]),
            message("created", "m2"),
            message_delta(text("c", 0), id="m2"),
            message("completed", "m2", [text("c")]),
        ],
        [
            "message_created m1",
            "text_created ''",
            "text_delta 'a' 'a'",
            "text_done 'a'",
            "text_created ''",
            "text_delta 'b' 'b'",
            "text_done 'b'",
            "message_done m1",
            "message_created m2",
            "text_created ''",
            "text_delta 'c' 'c'",
            "text_done 'c'",
            "message_done m2",
            "end",
        ],
    ),
    "15 parallel calls may interleave": (
        [
            step("created"),
            step_delta(function("", 0, id="c0", name="f")),
            step_delta(function("", 1, id="c1", name="g")),
            step_delta(function("a", 0)),
            step_delta(function("x", 1)),
            step_delta(function("b", 0)),
            a.requires_action(c0="ab", c1="x"),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_created c1 ''",
            "tool_call_delta c0 'a' 'a'",
            "tool_call_delta c1 'x' 'x'",
            "tool_call_delta c0 'b' 'ab'",
            "tool_call_done c0 'ab'",
            "tool_call_done c1 'x'",
            "end",
        ],
    ),
    "16 indexes may begin at 1": (
        [
            step("created"),
            step_delta(function("{}", 1, id="c1", name="f")),
            step("completed", calls=[function("{}", id="c1", name="f")]),
            message("created"),
            message_delta(text("x", 1)),
            message("completed", content=[text("x")]),
        ],
        [
            "run_step_created s1",
            "tool_call_created c1 ''",
            "tool_call_delta c1 '{}' '{}'",
            "tool_call_done c1 '{}'",
            "run_step_done s1",
            "message_created m1",
            "text_created ''",
            "text_delta 'x' 'x'",
            "text_done 'x'",
            "message_done m1",
            "end",
        ],
    ),
    "17 deltas of what nobody created create it": (
        [
            step_delta(function("{}", 0, id="c0", name="f"), id="s9"),
            step("completed", "s9", calls=[function("{}", id="c0", name="f")]),
            message_delta(text("x", 0), id="m9"),
            message("completed", "m9", [text("x")]),
        ],
        [
            "run_step_created s9",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{}' '{}'",
            "tool_call_done c0 '{}'",
            "run_step_done s9",
            "message_created m9",
            "text_created ''",
            "text_delta 'x' 'x'",
            "text_done 'x'",
            "message_done m9",
            "end",
        ],
    ),
    "20 calls that come with their step are created and done": (
        [
            step("created", calls=[function("{}", id="c0", name="f")]),
            step("completed", calls=[function("{}", id="c0", name="f")]),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{}' '{}'",
            "tool_call_done c0 '{}'",
            "run_step_done s1",
            "end",
        ],
    ),
    "20 calls that are told where the run asks for their outputs": (
        [a.requires_action("c0", "c1")],
        [
            "run_step_created step-1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{}' '{}'",
            "tool_call_created c1 ''",
            "tool_call_delta c1 '{}' '{}'",
            "tool_call_done c0 '{}'",
            "tool_call_done c1 '{}'",
            "end",
        ],
    ),
    "20 calls that come only with their step's end": (
        [step("created"), step("completed", calls=[a.code("1+1", None, "2", id="c0")])],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '1+1[2]' '1+1[2]'",
            "tool_call_done c0 '1+1[2]'",
            "run_step_done s1",
            "end",
        ],
    ),
    "18 another call under the same index": (
        [
            step("created"),
            step_delta(function("{", 0, id="c0", name="f")),
            step_delta(function("[", 0, id="c1", name="f")),
            a.requires_action("c0", "c1"),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{' '{'",
            "tool_call_created c1 ''",
            "tool_call_delta c1 '[' '['",
            "tool_call_delta c0 '}' '{}'",
            "tool_call_done c0 '{}'",
            "tool_call_done c1 '{}'",
            "end",
        ],
    ),
    "01 a message that was cut short is done": (
        [message("created"), message_delta(text("x", 0)), message("incomplete", content=[text("x")])],
        ["message_created m1", "text_created ''", "text_delta 'x' 'x'", "text_done 'x'", "message_done m1", "end"],
    ),
    "03 what is missing of the end is told": (
        [message("created"), message_delta(text("He", 0)), message("completed", content=[text("Hey"), text("you")])],
        [
            "message_created m1",
            "text_created ''",
            "text_delta 'He' 'He'",
            "text_delta 'y' 'Hey'",
            "text_done 'Hey'",
            "text_created ''",
            "text_delta 'you' 'you'",
            "text_done 'you'",
            "message_done m1",
            "end",
        ],
    ),
    "01 what nobody ends is done with the run": (
        [
            step("created"),
            step_delta(function("{}", 0, id="c0", name="f")),
            message("created"),
            message_delta(text("x", 0)),
        ],
        [
            "run_step_created s1",
            "tool_call_created c0 ''",
            "tool_call_delta c0 '{}' '{}'",
            "message_created m1",
            "text_created ''",
            "text_delta 'x' 'x'",
            "text_done 'x'",
            "message_done m1",
            "tool_call_done c0 '{}'",
            "run_step_done s1",
            "end",
        ],
    ),
}


@every_pair
@both_shells
@every_way
@pytest.mark.parametrize(("items", "told"), list(SEQUENCES.values()), ids=list(SEQUENCES))
@body
async def test_a_sequence_is_told_right(face: Face, way: Any, items: list[a.Item], told: list[str]) -> None:
    """The hooks, in order, with what their arguments held at the moment."""
    ends = [] if items[-1]["event"] == "thread.run.requires_action" else END
    handler = await run_handler(face, way, [*BEGIN, *items, *ends])
    assert handler.error is None
    assert handler.outline == told


@both_shells
@every_way
@body
async def test_05_a_completed_step_has_its_output_and_usage(face: Face, way: Any) -> None:
    """`get_final_run_steps` tells what the service said when the step was completed."""
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    items = [
        *BEGIN,
        step("created"),
        step_delta(function("{}", 0, id="c0", name="f")),
        step("completed", calls=[function("{}", id="c0", name="f", output="22")], usage=usage, completed_at=9),
        *END,
    ]
    handler = await run_handler(face, way, items)
    [made] = await call(handler.get_final_run_steps)
    assert (made.status, made.usage.total_tokens, made.completed_at) == ("completed", 7, 9)
    assert made.step_details.tool_calls[0].function.output == "22"
    final = await call(handler.get_final_run)
    assert (final.status, final.usage.total_tokens) == ("completed", 3)


# -- 6: tool outputs from within a hook

FIRST = [
    *BEGIN,
    step("created"),
    step_delta(function("{}", 0, id="c0", name="f")),
    a.requires_action("c0"),
]
SECOND = [
    step("completed", calls=[function("{}", id="c0", name="f", output="22")], usage={"total_tokens": 5}),
    run("queued"),
    run("in_progress"),
    step("created", "s2", makes="m1"),
    message("created"),
    message_delta(text("It is 22.", 0)),
    message("completed", content=[text("It is 22.")]),
    step("completed", "s2", makes="m1"),
    *END,
]
BEFORE = ["run_step_created s1", "tool_call_created c0 ''", "tool_call_delta c0 '{}' '{}'", "tool_call_done c0 '{}'"]
AFTER = [
    "run_step_done s1",
    "run_step_created s2",
    "message_created m1",
    "text_created ''",
    "text_delta 'It is 22.' 'It is 22.'",
    "text_done 'It is 22.'",
    "message_done m1",
    "run_step_done s2",
]


def submits(face: Face, client: Any, answerer: Any, use: Any) -> Any:
    """As OpenAI's guide does it: outputs are sent from `on_event`, and what comes of them is read there."""

    def submit(handler: Any, event: Any) -> Any:
        if event.event != "thread.run.requires_action":
            return None
        calls = event.data.required_action.submit_tool_outputs.tool_calls
        manager = client.beta.threads.runs.submit_tool_outputs_stream(
            thread_id=handler.current_run.thread_id,
            run_id=handler.current_run.id,
            tool_outputs=[{"tool_call_id": one.id, "output": "22"} for one in calls],
            event_handler=answerer(handler),
        )
        if face.is_async:
            return a.within(face, manager, use)
        with manager as stream:
            _plainly(use(face, stream))
        return None

    return submit


def _plainly(coroutine: Any) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


async def _final_texts(handler: Any) -> list[str]:
    return [one.content[0].text.value for one in await call(handler.get_final_messages)]


async def _prints(face: Face, stream: Any) -> None:
    assert "".join(await each(stream.text_deltas)) == "It is 22."


async def _goes_through(face: Face, stream: Any) -> None:
    events = [event.event for event in await each(stream)]
    assert events[0] == "thread.run.step.completed"
    assert events[-1] == "thread.run.completed"


async def _drains_and_asks(face: Face, stream: Any) -> None:
    await call(stream.until_done)
    assert (await call(stream.get_final_run)).status == "completed"
    await call(stream.until_done)


USES = {"until_done": a.until_done, "text_deltas": _prints, "iterated": _goes_through, "asked": _drains_and_asks}
every_use = pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))


@both_shells
@every_use
@body
async def test_06_outputs_sent_from_a_hook_go_on_in_the_same_handler(face: Face, use: Any) -> None:
    """The same handler is told all in order, live, with one end; its accessors tell the whole run."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_event=submits(face, client, lambda same: same, use))
            await a.use_client(face, client, handler)
        assert server.requests[1].body["tool_outputs"] == [{"tool_call_id": "c0", "output": "22"}]
    assert handler.outline == [*BEFORE, *AFTER, "end"]
    assert (await call(handler.get_final_run)).status == "completed"
    assert await _final_texts(handler) == ["It is 22."]
    steps = await call(handler.get_final_run_steps)
    assert [(one.id, one.status) for one in steps] == [("s1", "completed"), ("s2", "completed")]
    assert steps[0].step_details.tool_calls[0].function.output == "22"
    assert handler.stream.status == "completed"


@both_shells
@pytest.mark.parametrize("same", [True, False], ids=["self", "another"])
@body
async def test_06_outputs_may_be_sent_where_stream_was_given_the_handler(face: Face, same: bool) -> None:
    """The first request is `stream`'s, the second the client's, from a hook: with the same handler, or another."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            other = a.hook_log(face)
            answerer = (lambda one: one) if same else (lambda _: other)
            handler = a.hook_log(face, on_event=submits(face, client, answerer, a.until_done))

            def ask() -> Any:
                return client.beta.threads.runs.create(thread_id="t", assistant_id="a", stream=True)

            stream = face.stream(ask, handler)
            texts = await each(stream.text_deltas)
    assert texts == []  # what is read in a hook is read there
    told = [*BEFORE, *AFTER, "end"] if same else [*BEFORE, "end"]
    assert handler.outline == told
    assert other.outline == ([] if same else [*AFTER, "end"])
    assert (await call(handler.get_final_run)).status == "completed"
    assert await _final_texts(handler) == ["It is 22."]
    if same:
        assert [one.content for one in await call(stream.get_final_messages)] == ["{}", "22", "It is 22."]


@both_shells
@every_use
@body
async def test_06_outputs_sent_from_a_hook_may_have_a_handler_of_their_own(face: Face, use: Any) -> None:
    """As OpenAI's guide does it. Each handler is told its own stream; the first one's accessors tell the whole run."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            other = a.hook_log(face)
            handler = a.hook_log(face, on_event=submits(face, client, lambda _: other, use))
            other.record = _joining(other, handler)
            await a.use_client(face, client, handler)
    assert other.outline == [*AFTER, "end"]
    assert handler.joined == [*BEFORE, *AFTER, "end", "end"]
    assert (await call(handler.get_final_run)).status == "completed"
    assert await _final_texts(handler) == ["It is 22."]
    assert [one.status for one in await call(handler.get_final_run_steps)] == ["completed", "completed"]


def _joining(other: Any, handler: Any) -> Any:
    """Log both handlers' lines in `handler.joined`, in the order of the calls."""
    plain, first = other.record, handler.record
    handler.joined = []

    def joined(record: Any, lines: list[str]) -> Any:
        def recorded(name: str, arguments: tuple[Any, ...]) -> Any:
            before = len(lines)
            result = record(name, arguments)
            new = [
                line for line in lines[before : before + 1] if not line.startswith(("message_delta", "run_step_delta"))
            ]
            if name not in ("on_event",):
                handler.joined += new
            return result

        return recorded

    handler.record = joined(first, handler.lines)
    return joined(plain, other.lines)


@both_shells
@body
async def test_06_calls_may_be_answered_several_times(face: Face) -> None:
    """Each continuation may ask again; the run stays one."""
    second = [
        step("completed", calls=[function("{}", id="c0", name="f", output="22")]),
        step("created", "s2"),
        step_delta(function("[]", 0, id="c1", name="g"), id="s2"),
        a.requires_action(c1="[]"),
    ]
    third = [
        step("completed", "s2", calls=[function("[]", id="c1", name="g", output="23")]),
        message("created"),
        message_delta(text("Done.", 0)),
        message("completed", content=[text("Done.")]),
        *END,
    ]
    with ModelServer([Reply(raw=a.sse(items)) for items in (FIRST, second, third)]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_event=submits(face, client, lambda same: same, a.until_done))
            await a.use_client(face, client, handler)
    assert handler.lines.count("end") == 1
    assert handler.lines[-1] == "end"
    assert [line for line in handler.outline if "tool_call_done" in line or "run_step" in line] == [
        "run_step_created s1",
        "tool_call_done c0 '{}'",
        "run_step_done s1",
        "run_step_created s2",
        "tool_call_done c1 '[]'",
        "run_step_done s2",
    ]
    assert await _final_texts(handler) == ["Done."]
    assert (await call(handler.get_final_run)).status == "completed"


@every_face
@body
async def test_06_outputs_may_be_sent_from_a_loop_over_the_events(face: Face) -> None:
    """Not from a hook but from the body of the loop; then the loop goes on."""
    seen: list[str] = []

    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            submit = submits(face, client, lambda same: same, a.until_done)

            async def use(face: Face, stream: Any) -> None:
                if face.is_async:
                    async for event in stream:
                        seen.append(event.event)
                        if (sent := submit(stream, event)) is not None:
                            await sent
                else:
                    for event in stream:
                        seen.append(event.event)
                        submit(stream, event)

            await a.use_client(face, client, handler, use)
    assert seen == [one["event"] for one in FIRST]
    assert handler.outline == [*BEFORE, *AFTER, "end"]
    assert await _final_texts(handler) == ["It is 22."]


@both_shells
@body
async def test_06_a_continuation_that_fails_ends_the_stream(face: Face) -> None:
    """What fails in the second stream fails the run: told once, raised."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND[:5], done=False))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_event=submits(face, client, lambda same: same, a.until_done))
            with pytest.raises(sk.IncompleteStreamError):
                await a.use_client(face, client, handler)
    assert handler.outline[-5:] == [
        "message_created m1",
        "message_done m1",
        "run_step_done s2",
        "exception IncompleteStreamError",
        "end",
    ]


@every_face
@body
async def test_06_close_in_a_continuation_ends_all(face: Face) -> None:
    """Only what is open is told as done, and the end; nothing raises."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(
                face,
                on_event=submits(face, client, lambda same: same, a.until_done),
                on_text_created=lambda self, _: self.close(),
            )
            await a.use_client(face, client, handler)
    assert handler.outline[-5:] == ["text_created ''", "text_done ''", "message_done m1", "run_step_done s2", "end"]


@both_shells
@body
async def test_06_a_later_stream_of_the_same_run_tells_the_whole_run(face: Face) -> None:
    """The outputs are sent after the first stream has ended, to the same handler."""
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            await a.use_client(face, client, handler)
            assert (await call(handler.get_final_run)).status == "requires_action"
            assert await call(handler.get_final_messages) == []
            manager = client.beta.threads.runs.submit_tool_outputs_stream(
                thread_id="thread_1", run_id="run_1", tool_outputs=[], event_handler=handler
            )
            await a.within(face, manager, a.until_done)
    assert handler.outline == [*BEFORE, "end", *AFTER, "end"]
    assert [one.id for one in await call(handler.get_final_run_steps)] == ["s1", "s2"]


# -- 8: reuse, and what is forgotten


@both_shells
@every_way
@body
async def test_08_a_handler_may_be_used_again(face: Face, way: Any) -> None:
    """Another stream is another story."""
    items = [*BEGIN, message("created"), message_delta(text("x", 0)), message("completed", content=[text("x")]), *END]
    handler = await run_handler(face, way, items)
    first, handler.lines = handler.lines, []
    await run_handler(face, way, items, handler)
    assert handler.error is None
    assert handler.lines == first
    assert len(await call(handler.get_final_messages)) == 1


@both_shells
@body
async def test_08_a_live_handler_is_refused_another_run(face: Face) -> None:
    """It says so, and the stream that it is on goes on."""
    with ModelServer(Reply("one", "two")) as server:
        async with face.client(server) as client:
            refused: list[str] = []

            async def again(face: Face, stream: Any) -> None:
                with pytest.raises(sk.UsageError, match="one at a time") as caught:
                    await a.use_client(face, client, handler)
                refused.append(str(caught.value))
                await call(stream.until_done)

            handler = a.hook_log(face)
            await a.use_client(face, client, handler, again)
    assert len(refused) == 1
    assert await _final_texts(handler) == ["one", "two"]


# -- 9, 10: closing and breaking off


@every_pair
@every_face
@every_way
@pytest.mark.parametrize("hook", ["on_text_delta", "on_event", "on_message_created"])
@body
async def test_09_nothing_is_told_after_close_but_what_is_open(face: Face, way: Any, hook: str) -> None:
    """`close()` in a hook: what began is done, then the end; no error, no other hook."""

    def close(self: Any, *_: Any) -> Any:
        self.closed = len(self.lines)
        return self.close()

    items = [*BEGIN, message("created"), message_delta(text("x", 0)), message_delta(text("y", 0)), *END]
    handler = await run_handler(face, way, items, **{hook: close})
    assert handler.error is None
    rest = [line.split()[0] for line in handler.lines[handler.closed :]]
    assert rest in (["text_done", "message_done", "end"], ["message_done", "end"], ["end"])
    assert rest[0] == {"on_text_delta": "text_done", "on_event": "end", "on_message_created": "message_done"}[hook]


CLOSED_IN = {
    "on_text_done": ["message_done", "run_step_done", "end"],
    "on_message_done": ["run_step_done", "end"],
    "on_tool_call_done": ["run_step_done", "end"],
    "on_run_step_done": ["end"],
}


@every_pair
@pytest.mark.slow
@both_shells
@every_way
@pytest.mark.parametrize("fails", [False, True], ids=["closes", "fails"])
@pytest.mark.parametrize(("hook", "rest"), list(CLOSED_IN.items()), ids=list(CLOSED_IN))
@body
async def test_09_what_is_open_is_done_once_whichever_hook_ends_the_stream(
    face: Face, way: Any, hook: str, rest: list[str], fails: bool
) -> None:
    """Also when it is ended between two hooks of one event: the others of these are not lost."""

    def end(self: Any, *_: Any) -> Any:
        self.ended_at = len(self.lines)
        self.does.clear()
        if fails:
            raise LookupError("mine")
        return self.close()

    told = [message("created"), message_delta(text("x", 0)), message("completed", content=[text("x")])]
    calls = [
        step_delta(function("{}", 0, id="c0", name="f")),
        step("completed", calls=[function("{}", id="c0", name="f")]),
    ]
    made = [step("created"), *(calls if hook in ("on_tool_call_done", "on_run_step_done") else told)]
    handler = await run_handler(face, way, [*BEGIN, *made, *END], **{hook: end})
    assert isinstance(handler.error, LookupError) is fails
    shown = [line.split()[0] for line in handler.lines[handler.ended_at :]]
    assert shown == [*rest[:-1], *(["exception"] if fails else []), "end"]


@every_face
@body
async def test_10_a_loop_that_breaks_ends_the_stream_with_its_block(face: Face) -> None:
    """`on_end` comes when `with` is left, not when garbage is collected."""
    with ModelServer(Reply("one two three four", never_ends=True)) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)

            async def use(face: Face, stream: Any) -> None:
                if face.is_async:
                    async for event in stream:
                        if event.event == "thread.message.delta":
                            break
                else:
                    for event in stream:
                        if event.event == "thread.message.delta":
                            break
                assert "end" not in handler.lines

            await a.use_client(face, client, handler, use)
            assert [line.split()[0] for line in handler.outline[-4:]] == [
                "text_done",
                "message_done",
                "run_step_done",
                "end",
            ]


# -- 11: what has no hook


@both_shells
@every_way
@body
async def test_11_a_refusal_is_in_the_message(face: Face, way: Any) -> None:
    """It has no hook of its own; `on_message_delta`, `on_message_done` and the accessors have it."""
    refusal = {"index": 0, "type": "refusal"}
    items = [
        *BEGIN,
        message("created"),
        message_delta({**refusal, "refusal": "I "}),
        message_delta({**refusal, "refusal": "can't."}),
        message("completed", content=[{"type": "refusal", "refusal": "I can't."}]),
        *END,
    ]
    seen: list[str] = []

    def note(self: Any, delta: Any, snapshot: Any) -> None:
        seen.append(snapshot.content[0].refusal)

    handler = await run_handler(face, way, items, on_message_delta=note)
    assert seen == ["I ", "I can't."]
    [made] = await call(handler.get_final_messages)
    assert (made.content[0].type, made.content[0].refusal) == ("refusal", "I can't.")
    assert handler.outline == ["message_created m1", "message_done m1", "end"]


CITED = {"type": "file_citation", "text": "[1]", "start_index": 1, "end_index": 4, "file_citation": {"file_id": "f"}}


@both_shells
@every_way
@body
async def test_11_an_annotation_alone_is_a_delta_without_text(face: Face, way: Any) -> None:
    """Its value is empty, so that printing it prints nothing; its annotation is there."""
    cited = {"index": 0, **CITED}
    final = text("x[1]", annotations=[CITED])
    items = [
        *BEGIN,
        message("created"),
        message_delta(text("x[1]", 0)),
        message_delta(text(None, 0, [cited])),
        message("completed", content=[final]),
        *END,
    ]
    handler = await run_handler(face, way, items)
    deltas = [delta for delta, _ in handler.of("on_text_delta")]
    assert [delta.value for delta in deltas] == ["x[1]", ""]
    assert deltas[1].annotations[0].file_citation.file_id == "f"
    [made] = await call(handler.get_final_messages)
    assert [one.type for one in made.content[0].text.annotations] == ["file_citation"]


# -- 12: the wrong kind of hook


def test_12_an_async_hook_on_a_sync_handler_is_refused_where_it_is_written() -> None:
    """The class cannot be made, so that no request is sent for it."""
    with pytest.raises(sk.UsageError, match="AsyncAssistantEventHandler"):

        class Wrong(AssistantEventHandler):
            async def on_text_delta(self, delta: Any, snapshot: Any) -> None: ...  # type: ignore[override]


def test_12_a_hook_that_is_a_generator_is_refused() -> None:
    """It would never run, on either face."""
    for base in (AssistantEventHandler, AsyncAssistantEventHandler):
        with pytest.raises(sk.UsageError, match="yield"):
            type("Wrong", (base,), {"on_event": lambda self, event: (yield event)})


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_12_a_plain_hook_on_an_async_handler_works(backend: str) -> None:
    """It is called as any other."""

    class Plain(AsyncAssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> None:  # type: ignore[override]
            told.append(delta.value)

    told: list[str] = []
    items = [*BEGIN, message_delta(text("a", 0)), message_delta(text("b", 0)), message("completed"), *END]

    async def main() -> None:
        await sk.astream(items, Plain()).until_done()

    anyio.run(main, backend=backend)
    assert told == ["a", "b"]


def test_12_an_async_handler_on_a_sync_stream_is_refused_before_any_request() -> None:
    """`stream` says what to use."""
    with pytest.raises(sk.UsageError, match="astream"):
        sk.stream(lambda: pytest.fail("a request was sent"), AsyncAssistantEventHandler())


# -- 18: what is sent again


@both_shells
@every_way
@body
async def test_18_what_is_sent_again_is_not_more_of_it(face: Face, way: Any) -> None:
    """Ids, names and annotations are set, not joined or added up."""
    again = {"index": 0, **CITED}
    items = [
        *BEGIN,
        step("created"),
        step_delta(function("{", 0, id="call_1", name="f")),
        step_delta(function("}", 0, id="call_1", name="f")),
        step("completed", calls=None, step_details=None),
        message("created"),
        message_delta(text("x[1]", 0, [again])),
        message_delta(text(None, 0, [again])),
        message("completed", content=None or []),
        *END,
    ]
    handler = await run_handler(face, way, items)
    [made] = await call(handler.get_final_run_steps)
    [called] = made.step_details.tool_calls
    assert (called.id, called.function.name, called.function.arguments) == ("call_1", "f", "{}")
    [told] = (await call(handler.get_final_messages))[0].content[0].text.annotations
    assert (told.start_index, told.end_index, told.text) == (1, 4, "[1]")


# -- 19, 21, 22: errors


@every_pair
@both_shells
@every_way
@pytest.mark.parametrize("data", [{"error": {"message": "Boom", "code": "x"}}, {"message": "Boom", "code": "x"}])
@body
async def test_19_an_error_event_is_an_error(face: Face, way: Any, data: Any) -> None:
    """Whatever its shape, it is told as one, and raised."""
    items = [*BEGIN, message("created"), message_delta(text("x", 0)), {"event": "error", "data": data}]
    handler = await run_handler(face, way, items)
    assert isinstance(handler.error, sk.RunFailedError)
    assert "Boom" in str(handler.error)
    assert handler.events[-1] == "error"
    [(event,)] = [told for told in handler.of("on_event") if told[0].event == "error"]
    assert event.data.message == "Boom"
    assert handler.outline[-4:] == ["text_done 'x'", "message_done m1", "exception RunFailedError", "end"]
    with pytest.raises(sk.RunFailedError):
        await call(handler.get_final_run)


@every_face
@every_way
@body
async def test_21_a_timeout_of_a_hook_is_no_timeout_of_the_source(face: Face, way: Any) -> None:
    """`on_timeout` is for the source's; a hook's error is told and raised as any other."""

    def fail(self: Any, *_: Any) -> None:
        raise TimeoutError("mine")

    items = [*BEGIN, message("created"), message_delta(text("x", 0)), *END]
    handler = await run_handler(face, way, items, on_text_delta=fail)
    assert type(handler.error) is TimeoutError
    assert "timeout" not in handler.lines
    assert handler.outline[-4:] == ["text_done 'x'", "message_done m1", "exception TimeoutError", "end"]


@every_face
@body
async def test_21_a_timeout_of_the_source_is_told_before_the_exception(face: Face) -> None:
    """It is raised as an error that is a `TimeoutError`, too; its cause is the client's own."""
    with ModelServer(Reply("one two three", never_ends=True)) as server:
        async with face.client(server, timeout=httpx2.Timeout(5, read=0.3)) as client:
            handler = a.hook_log(face)
            with pytest.raises(sk.SourceTimeoutError) as caught:
                await a.use_client(face, client, handler)
    assert handler.lines[-3:] == ["timeout", "exception SourceTimeoutError", "end"]
    assert isinstance(caught.value.__cause__, httpx2.TimeoutException)


@both_shells
@body
async def test_22_a_refused_request_is_told(face: Face) -> None:
    """Given to `stream`, a request that fails is told to `on_exception` and `on_end`, and raised."""
    with ModelServer(Reply(status=401)) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)

            def ask() -> Any:
                return client.beta.threads.runs.create(thread_id="t", assistant_id="a", stream=True)

            with pytest.raises(sk.SourceError) as caught:
                await call(face.stream(ask, handler).until_done)
    assert caught.value.status_code == 401
    assert isinstance(caught.value.__cause__, openai.AuthenticationError)
    assert handler.lines == ["exception SourceError", "end"]


@both_shells
@body
async def test_22_a_clients_stream_that_is_refused_is_told(face: Face) -> None:
    """The client's own call, given to `stream` before it is sent."""
    with ModelServer(Reply(status=401)) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            source = client.beta.threads.runs.stream(thread_id="t", assistant_id="a")
            with pytest.raises(sk.SourceError) as caught:
                await call(face.stream(source, handler).until_done)
    assert caught.value.status_code == 401
    assert handler.lines == ["exception SourceError", "end"]


@both_shells
@body
async def test_22_where_the_client_sends_the_request_it_raises_before_it_knows_of_the_handler(face: Face) -> None:
    """No hook can be told: the client looks at the handler when it has an answer. The handler can be used again."""
    with ModelServer([Reply(status=401), Reply("Hello")]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            with pytest.raises(openai.AuthenticationError):
                await a.use_client(face, client, handler)
            assert handler.lines == []
            await a.use_client(face, client, handler)
    assert handler.lines[-1] == "end"


@both_shells
@body
async def test_22_a_connection_that_times_out_is_told(face: Face) -> None:
    """The request never gets an answer's head."""
    with ModelServer(Reply("never", first_delay=5, headers={})) as server:
        async with face.client(server, timeout=httpx2.Timeout(5, read=0.2)) as client:
            handler = a.hook_log(face)

            def ask() -> Any:
                return client.beta.threads.runs.create(thread_id="t", assistant_id="a", stream=True)

            with pytest.raises(sk.SourceTimeoutError):
                await call(face.stream(ask, handler).until_done)
    assert handler.lines[-3:] == ["timeout", "exception SourceTimeoutError", "end"]


# -- 23: cost


def _logs(count: int) -> Iterable[a.Item]:
    yield step("created")
    yield step_delta(a.code("x", 0, id="c0"))
    for place in range(count):
        yield step_delta(a.code(None, 0, "line\n", first=place))
    yield step("completed", calls=[a.code("x", None, *["line\n"] * count, id="c0")])


def _calls(count: int) -> Iterable[a.Item]:
    yield step("created")
    for place in range(count):
        yield step_delta(function("{}", place, id=f"c{place}", name="f"))
    yield step("completed", calls=[function("{}", id=f"c{place}", name="f") for place in range(count)])


def _texts(count: int) -> Iterable[a.Item]:
    yield message("created")
    for _ in range(count):
        yield message_delta(text("abcd", 0))
    yield message("completed", content=[text("abcd" * count)])


def _citations(count: int) -> Iterable[a.Item]:
    yield message("created")
    for place in range(count):
        yield message_delta(text("x", 0, [{"index": place, **CITED, "start_index": place}]))
    yield message("completed", content=[])


class _Quiet(AssistantEventHandler):
    """A handler that reads what it is told, as applications do."""

    def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        assert delta.value

    def on_tool_call_delta(self, delta: Any, snapshot: Any) -> None:
        assert snapshot.id

    def on_run_step_delta(self, delta: Any, snapshot: Any) -> None:
        assert snapshot.step_details

    def on_message_delta(self, delta: Any, snapshot: Any) -> None:
        assert snapshot.content


@pytest.mark.slow
@pytest.mark.parametrize(("make", "count"), [(_logs, 1000), (_calls, 1000), (_texts, 4000), (_citations, 1000)])
def test_23_the_cost_is_linear(make: Any, count: int) -> None:
    """Four times as much costs about four times as much."""

    def cost(of: int) -> float:
        raw = a.sse([*BEGIN, *make(of), *END])
        chunks = [raw[i : i + 4096] for i in range(0, len(raw), 4096)]
        return seconds_of(lambda: sk.stream(chunks, _Quiet()).until_done())

    cost(10)
    assert_costs(lambda: cost(count), 8, lambda: cost(count // 4))


def test_23_a_text_of_a_megabyte_grows_at_the_cost_of_its_pieces() -> None:
    """The snapshot's text grows in place: the last piece costs what the first did."""

    def cost(pieces: int) -> float:
        live = Text.construct(annotations=[], value="")

        def append_all() -> None:
            for _ in range(pieces):
                append(live, "value", "abcd")

        taken = seconds_of(append_all)
        assert len(live.value) == 4 * pieces
        return taken

    cost(1000)
    assert_costs(lambda: cost(250_000), 20, lambda: cost(25_000))
