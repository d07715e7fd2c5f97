"""When tool calls end, and the status that their hooks see: handlers that run tools run each of them once."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply, ToolCall

from . import assistants as a
from .assistants import call, function, message, message_delta, run, step, step_delta, text
from .faces import Face, ask, ask_responses, body, both_shells, every_face, every_pair
from .recorded import SHARED

pytestmark = a.quiet

BEGIN = [run("queued"), run("in_progress")]
FIRST = [
    *BEGIN,
    step("created"),
    step_delta(function("", 0, id="c0", name="weather")),
    step_delta(function('{"city": "Oslo"}', 0)),
    a.requires_action(c0='{"city": "Oslo"}'),
]
SECOND = [
    step("completed", calls=[function('{"city": "Oslo"}', id="c0", name="weather", output="22")]),
    run("in_progress"),
    step("created", "s2", makes="m1"),
    message("created"),
    message_delta(text("It is 22.", 0)),
    message("completed", content=[text("It is 22.")]),
    step("completed", "s2", makes="m1"),
    run("completed"),
]
# -- outputs that are submitted outside of the first stream's hooks


def _submit(client: Any, handler: Any) -> Any:
    return client.beta.threads.runs.submit_tool_outputs_stream(
        thread_id="thread_1",
        run_id="run_1",
        tool_outputs=[{"tool_call_id": "c0", "output": "22"}],
        event_handler=handler,
    )


async def _after(face: Face, client: Any, first: Any, second: Any) -> None:
    await a.use_client(face, client, first)
    await a.within(face, _submit(client, second), a.until_done)


async def _in_the_block(face: Face, client: Any, first: Any, second: Any) -> None:
    async def use(face: Face, stream: Any) -> None:
        await call(stream.until_done)
        await a.within(face, _submit(client, second), a.until_done)

    await a.use_client(face, client, first, use)


async def _in_on_end(face: Face, client: Any, first: Any, second: Any) -> None:
    def submit(_: Any) -> Any:
        if face.is_async:
            return a.within(face, _submit(client, second), a.until_done)
        with _submit(client, second) as stream:
            stream.until_done()
        return None

    first.does["on_end"] = submit
    await a.use_client(face, client, first)


PLACES = {"after until_done": _after, "inside with": _in_the_block, "in on_end": _in_on_end}


@both_shells
@pytest.mark.parametrize("place", list(PLACES.values()), ids=list(PLACES))
@body
async def test_another_handler_of_the_run_gets_no_call_of_an_earlier_stream(face: Face, place: Any) -> None:
    """The second stream begins with the end of the step whose calls the first one had: nothing runs twice."""
    first, second = a.hook_log(face), a.hook_log(face)
    with ModelServer([Reply(raw=a.sse(FIRST)), Reply(raw=a.sse(SECOND))]) as server:
        async with face.client(server) as client:
            await place(face, client, first, second)
    assert [line for line in first.outline if "done" in line] == ['tool_call_done c0 \'{"city": "Oslo"}\'']
    assert second.outline == [
        "run_step_done s1",
        "run_step_created s2",
        "message_created m1",
        "text_created ''",
        "text_delta 'It is 22.' 'It is 22.'",
        "text_done 'It is 22.'",
        "message_done m1",
        "run_step_done s2",
        "end",
    ]
    [(ended,), _] = second.of("on_run_step_done")
    assert ended.step_details.tool_calls[0].function.output == "22"
    assert (ended.status, ended.usage) == ("completed", None)
    steps = await call(second.get_final_run_steps)
    assert [one.id for one in steps] == ["s1", "s2"]


def test_the_second_of_two_recorded_streams_of_a_run_has_no_tool_call() -> None:
    """As OpenAI's server sent them."""
    folder = SHARED / "openai-assistants"
    if not (folder / "dotnet-streamingtoolcall.1.sse").exists():
        pytest.skip("the recorded streams are not beside this checkout")
    logs = []
    for number in (1, 2):
        logs.append(a.SyncHookLog())
        sk.stream([(folder / f"dotnet-streamingtoolcall.{number}.sse").read_bytes()], logs[-1]).until_done()
    counts = [[line.split()[0] for line in log.outline].count("tool_call_done") for log in logs]
    assert counts == [1, 0]
    assert logs[1].outline[0].startswith("run_step_done")


# -- the guard `self.current_run.status == "requires_action"` in `on_tool_call_done`

TOOLS = {"weather": {"city": "Oslo"}, "time": {"zone": "CET"}, "news": {}}


def _assistants(client: Any) -> Callable[[], Any]:
    return lambda: client.beta.threads.runs.create(thread_id="thread_1", assistant_id="asst_1", stream=True)


SERVICES: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "assistants": _assistants,
    "responses": ask_responses,
    "chat": ask,
}
every_service = pytest.mark.parametrize("service", list(SERVICES))


class Guarded:
    """What many published handlers do: when a call is done and the run requires action, run all required tools."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.statuses: list[str] = []
        self.submitted: list[list[dict[str, str]]] = []

    def on_call_done(self, handler: Any, tool_call: Any) -> None:
        run = handler.current_run
        self.statuses.append(run.status)
        if tool_call.type != "function" or run.status != "requires_action":
            return
        outputs = []
        for required in run.required_action.submit_tool_outputs.tool_calls:
            self.ran.append(required.function.name)
            arguments = json.loads(required.function.arguments)
            assert arguments == TOOLS[required.function.name]
            outputs.append({"tool_call_id": required.id, "output": f"{required.function.name} is fine"})
        self.submitted.append(outputs)


@every_pair
@both_shells
@every_service
@pytest.mark.parametrize("interleaved", [False, True], ids=["one by one", "interleaved"])
@body
async def test_the_guard_on_requires_action_runs_each_tool_once(face: Face, service: str, interleaved: bool) -> None:
    """Every call but the last is done while the run is in progress; the last one sees that the run requires action."""
    guarded = Guarded()

    def submit(handler: Any, tool_call: Any) -> Any:
        guarded.on_call_done(handler, tool_call)
        if guarded.submitted and service != "assistants":
            return handler.submit_tool_outputs(guarded.submitted[-1])
        return None

    calls = [ToolCall(name, arguments) for name, arguments in TOOLS.items()]
    with ModelServer([Reply(*calls, interleave=interleaved), Reply("All is fine.")]) as server:
        async with face.client(server) as client:
            requests = [SERVICES[service](client) for _ in range(2)]
            handler = a.hook_log(face, on_tool_call_done=submit)
            then = None if service == "assistants" else lambda stream: requests.pop(0)()
            await call(face.stream(requests.pop(0), handler, then=then).until_done)
    assert guarded.ran == ["weather", "time", "news"]
    assert guarded.statuses == ["in_progress", "in_progress", "requires_action"]
    assert len(guarded.submitted) == 1
    if service != "assistants":
        assert [one.content[0].text.value for one in await call(handler.get_final_messages)] == ["All is fine."]


@both_shells
@body
async def test_a_call_ends_where_the_next_one_begins(face: Face) -> None:
    """Not only at the run's requires_action, when the last one ends."""
    items = [
        *BEGIN,
        step("created"),
        step_delta(function("", 0, id="c0", name="f")),
        step_delta(function("{}", 0)),
        step_delta(function("", 1, id="c1", name="g")),
        step_delta(function("{}", 1)),
        a.requires_action("c0", "c1"),
    ]
    handler = await a.run_handler(face, a.start_with_client, items)
    assert [line.rsplit(" ", 1)[0] for line in handler.outline if "created c" in line or "done" in line] == [
        "tool_call_created c0",
        "tool_call_done c0",
        "tool_call_created c1",
        "tool_call_done c1",
    ]


@both_shells
@body
async def test_the_last_function_sees_requires_action_also_behind_another_kind_of_call(face: Face) -> None:
    """The guard looks at functions alone."""
    seen: list[tuple[str, str]] = []

    def look(handler: Any, tool_call: Any) -> None:
        seen.append((tool_call.id, handler.current_run.status))

    items = [
        *BEGIN,
        step("created"),
        step_delta(function("{}", 0, id="c0", name="f")),
        step_delta(a.code("1", 1, id="c1")),
        a.requires_action("c0"),
    ]
    await a.run_handler(face, a.start_with_stream, items, on_tool_call_done=look)
    assert seen == [("c1", "in_progress"), ("c0", "requires_action")]


@both_shells
@every_service
@body
async def test_a_call_may_be_answered_in_its_own_done_hook(face: Face, service: str) -> None:
    """Each with what `stream.pending` has for it: also the last one, whose hook comes with the run's status."""

    def respond(handler: Any, tool_call: Any) -> None:
        handler.stream.pending[tool_call.id].respond("fine")

    calls = [ToolCall(name, arguments) for name, arguments in TOOLS.items()]
    with ModelServer([Reply(*calls), Reply("All is fine.")]) as server:
        async with face.client(server) as client:
            requests = [SERVICES[service](client) for _ in range(2)]
            handler = a.hook_log(face, on_tool_call_done=respond)
            stream = face.stream(requests.pop(0), handler, then=lambda stream: requests.pop(0)())
            await call(stream.until_done)
    assert [one.content for one in stream.messages if one.type == "tool_output"] == ["fine"] * 3
    assert stream.status == "completed"


@every_face
@pytest.mark.parametrize("thread", ["", "thread_1"], ids=["the adapted run's", "the application's"])
@body
async def test_outputs_that_are_still_submitted_to_a_thread_point_to_then(face: Face, thread: str) -> None:
    """The hook's error, whether the client refuses the request or the server does, says what to do in its place."""
    with ModelServer([Reply(ToolCall("weather")), Reply(status=404)]) as server:
        async with face.client(server) as client:

            def submit(handler: Any, tool_call: Any) -> Any:
                request = {"thread_id": thread, "run_id": handler.current_run.id, "tool_outputs": []}
                manager = client.beta.threads.runs.submit_tool_outputs_stream(**request)
                if face.is_async:
                    return a.within(face, manager, a.until_done)
                with manager as stream:
                    stream.until_done()
                return None

            handler = a.hook_log(face, on_tool_call_done=submit)
            with pytest.raises((ValueError, openai.NotFoundError)) as caught:
                await call(face.stream(ask_responses(client), handler).until_done)
    [note] = caught.value.__notes__
    assert "then=" in note
    assert "openai_responses" in note
