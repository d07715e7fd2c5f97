"""Tool outputs sent from hooks: over several rounds, from tasks and threads of their own, and on other protocols."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler
from streamkit.testing import ModelServer, Reply, ToolCall

from . import assistants as a
from .assistants import call, each, function, message, message_delta, run, step, step_delta, text
from .faces import Face, ask_responses, async_faces, body, both_shells, every_face, every_pair
from .test_compat_openai_sequences import submits

pytestmark = a.quiet

BEGIN = [run("queued"), run("in_progress")]
DONE = [run("completed", usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3})]


def _round(number: int, last: int) -> list[a.Item]:
    """What a run streams after its outputs were sent so often: another call, or the answer."""
    items = list(BEGIN)
    if number:
        done = function("{}", id=f"c{number - 1}", name="f", output="22")
        items = [step("completed", f"s{number - 1}", calls=[done]), *items]
    if number == last:
        return [
            *items,
            message("created"),
            message_delta(text("Done.", 0)),
            message("completed", content=[text("Done.")]),
            *DONE,
        ]
    begun = [step("created", f"s{number}"), step_delta(function("{}", 0, id=f"c{number}", name="f"), id=f"s{number}")]
    return [*items, *begun, a.requires_action(f"c{number}")]


async def _read(face: Face, stream: Any) -> None:
    await each(stream.text_deltas)


async def _iterated(face: Face, stream: Any) -> None:
    await each(stream)


async def _elsewhere(face: Face, stream: Any) -> None:
    """In a task of its own, or a thread."""
    if face.is_async:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.until_done)
        return
    errors: list[BaseException] = []

    def drain() -> None:
        try:
            stream.until_done()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=drain)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


USES = {"until_done": a.until_done, "text_deltas": _read, "iterated": _iterated, "elsewhere": _elsewhere}
every_use = pytest.mark.parametrize("use", list(USES.values()), ids=list(USES))
every_count = pytest.mark.parametrize("rounds", [1, 2, 3])


async def _ask(face: Face, rounds: int, use: Any, answerer: Callable[[Any], Any], **does: Any) -> Any:
    """The handler of the first request, whose calls are answered so often."""
    with ModelServer([Reply(raw=a.sse(_round(number, rounds))) for number in range(rounds + 1)]) as server:
        async with face.client(server) as client:
            does["on_event"] = submits(face, client, answerer, use)
            handler = a.hook_log(face, **does)
            await a.use_client(face, client, handler)
        assert len(server.requests) == rounds + 1
    return handler


async def _check_whole(handler: Any, rounds: int) -> None:
    """Its accessors tell the whole run, which is over."""
    final = await call(handler.get_final_run)
    assert (final.status, final.usage.total_tokens) == ("completed", 3)
    assert handler.current_run.status == "completed"
    assert [one.content[0].text.value for one in await call(handler.get_final_messages)] == ["Done."]
    steps = await call(handler.get_final_run_steps)
    assert [(one.id, one.status) for one in steps] == [(f"s{number}", "completed") for number in range(rounds)]


@every_pair
@both_shells
@every_use
@every_count
@body
async def test_each_round_may_have_a_handler_of_its_own(face: Face, use: Any, rounds: int) -> None:
    """OpenAI's guide makes a new one each time. All of them tell the whole run, the first one too."""
    all_of_them: list[Any] = []

    def another(before: Any) -> Any:
        all_of_them.append(a.hook_log(face, **before.does))
        return all_of_them[-1]

    first = await _ask(face, rounds, use, another)
    assert len(all_of_them) == rounds
    for handler in [first, *all_of_them]:
        await _check_whole(handler, rounds)
        assert handler.lines.count("end") == 1


@every_pair
@both_shells
@every_use
@every_count
@body
async def test_all_rounds_may_have_the_same_handler(face: Face, use: Any, rounds: int) -> None:
    """Also where each is read in a task, or a thread, that its hook waits for."""
    handler = await _ask(face, rounds, use, lambda same: same)
    await _check_whole(handler, rounds)
    assert handler.lines.count("end") == 1
    assert handler.lines[-1] == "end"
    assert [line for line in handler.outline if "tool_call_done" in line] == [
        f"tool_call_done c{number} '{{}}'" for number in range(rounds)
    ]


@pytest.mark.slow
@every_face
@every_count
@body
async def test_close_ends_all_rounds_also_from_a_task_of_a_hook(face: Face, rounds: int) -> None:
    """What is open is done, then the end; nothing hangs and nothing raises."""
    handler = await _ask(face, rounds, _elsewhere, lambda same: same, on_text_created=lambda self, _: self.close())
    assert handler.outline[-4:] == ["text_created ''", "text_done ''", "message_done m1", "end"]


# -- other protocols


def _answers(handler: Any, event: Any) -> Any:
    """As OpenAI's guide collects the outputs, with its second argument."""
    if event.event != "thread.run.requires_action":
        return None
    calls = event.data.required_action.submit_tool_outputs.tool_calls
    handler.asked = [(one.id, one.function.name, json.loads(one.function.arguments)) for one in calls]
    outputs = [{"tool_call_id": one.id, "output": "22"} for one in calls]
    return handler.submit_tool_outputs(outputs, event.data.id)


@both_shells
@body
async def test_the_guides_on_event_answers_calls_on_any_protocol(face: Face) -> None:
    """`thread.run.requires_action` is told before the calls have to be answered; `submit_tool_outputs` answers them."""
    script = [Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("time")), Reply("It is 22.")]
    with ModelServer(script) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_event=_answers)

            def go_on(stream: Any) -> Any:
                outputs = [one for one in stream.messages if one.type == "tool_output"]
                return ask_responses(client, input=sk.to_input(outputs, "openai_responses"))

            stream = face.stream(ask_responses(client), handler, then=go_on)
            await call(stream.until_done)
        sent = [one["output"] for one in server.requests[1].body["input"]]
    assert [(name, arguments) for _, name, arguments in handler.asked] == [("weather", {"city": "Oslo"}), ("time", {})]
    assert sent == ["22", "22"]
    assert handler.lines.count("end") == 1
    assert [one.content[0].text.value for one in await call(handler.get_final_messages)] == ["It is 22."]
    assert stream.status == (await call(handler.get_final_run)).status == "completed"


@both_shells
@body
async def test_requires_action_is_what_the_run_is_in_until_the_calls_are_answered(face: Face) -> None:
    """`current_run` has the calls, in the hooks after `on_event`, and at the end if nobody answers."""
    with ModelServer(Reply(ToolCall("weather"))) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            stream = face.stream(ask_responses(client), handler, then=lambda stream: None)
            await call(stream.until_done)
    assert handler.events[-1] == "thread.run.requires_action"
    assert stream.status == handler.current_run.status == "requires_action"
    [wanted] = handler.current_run.required_action.submit_tool_outputs.tool_calls
    assert wanted.function.name == "weather"


@every_face
@pytest.mark.parametrize("then", [None, lambda stream: None], ids=["without then", "unknown"])
@body
async def test_outputs_that_nobody_waits_for_are_refused(face: Face, then: Any) -> None:
    """Without `then=`, and for a call that is none of this stream's; then none of the outputs is taken."""

    def submit(self: Any, event: Any) -> Any:
        if event.event != "thread.run.requires_action":
            return None
        [waiting] = self.stream.pending
        outputs = [{"tool_call_id": waiting, "output": "22"}, {"tool_call_id": "other", "output": "22"}]
        return self.submit_tool_outputs(outputs[: 1 if then is None else 2])

    with ModelServer(Reply(ToolCall("weather"))) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_event=submit)
            with pytest.raises(sk.UsageError, match=r"no `then=`|'other' does not wait"):
                await call(face.stream(ask_responses(client), handler, then=then).until_done)
    assert handler.lines[-1] == "end"


@async_faces
@body
async def test_an_output_may_be_an_awaitable(face: Face) -> None:
    """On an async stream: it runs beside the stream."""

    async def weather() -> str:
        await anyio.lowlevel.checkpoint()
        return "22"

    def submit(self: Any, event: Any) -> Any:
        if event.event != "thread.run.requires_action":
            return None
        return self.submit_tool_outputs([{"tool_call_id": key, "output": weather()} for key in self.stream.pending])

    handler = a.AsyncHookLog(on_event=submit)
    outputs: list[str] = []

    with ModelServer([Reply(ToolCall("weather")), Reply("Done.")]) as server:
        async with face.client(server) as client:

            def go_on(stream: Any) -> Any:
                outputs.extend(one.content for one in stream.messages if one.type == "tool_output")
                return ask_responses(client)

            await sk.astream(ask_responses(client), handler, then=go_on).until_done()
    assert outputs == ["22"]


def test_a_subclass_may_have_its_own_submit_tool_outputs() -> None:
    """OpenAI's guide has one, with another signature."""

    class Guide(AssistantEventHandler):
        def submit_tool_outputs(self, tool_outputs: Any, run_id: str) -> None:
            self.sent = (tool_outputs, run_id)

    handler = Guide()
    handler.submit_tool_outputs([], "run_1")
    assert handler.sent == ([], "run_1")
