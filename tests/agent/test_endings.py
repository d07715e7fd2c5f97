"""How a run ends early, what stays in the conversation, and that nothing continues to run."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import httpx
import pytest

import streamkit as sk
from streamkit.agent import progress
from streamkit.testing import ModelServer, Reasoning, Reply, Text, ToolCall

from ..faces import Face, async_faces, body, both_shells, every_face, every_pair
from .parts import Approving, ToyComputer, agent_on, code, every_provider, outputs_of

INTERRUPTED = "It was interrupted before it finished, and may have had effects."


@every_face
@pytest.mark.parametrize("how", ["cancel", "leave"])
@body
async def test_stopping_ends_running_code(face: Face, how: str) -> None:
    """Before the stream is closed. What was printed, also while the code ended, stays in the conversation, which the next
    stream continues; the model reads that the code was interrupted."""
    computer = ToyComputer()
    with ModelServer([Reply(code("say one\nhang\nsay two")), Reply("I see.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            stream = talker.stream("Go.")
            if how == "cancel":

                def cancel() -> None:
                    assert computer.hanging.wait(10)
                    stream.cancel()

                async with face.beside(cancel):
                    await stream.until_done()
            else:
                async with stream:
                    async for event in stream:
                        if isinstance(event, sk.ConsoleDelta):
                            break
            assert stream.status == "cancelled"
            assert computer.runs[0].ended.is_set()
            console = next(message for message in talker.messages if message.type == "console")
            assert (console.content, console.status) == ("one\nKeyboardInterrupt\n", "completed")
            await talker.say("What?")
        assert outputs_of(server.requests[1]) == {
            "call_1_0": f"{INTERRUPTED} Its output so far:\none\nKeyboardInterrupt\n"
        }


@async_faces
@body
async def test_cancelling_the_task_ends_running_code(face: Face) -> None:
    """As leaving does."""
    computer = ToyComputer()
    with ModelServer(Reply(code("hang"))) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            stream = talker.stream("Go.")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream.until_done)
                await anyio.to_thread.run_sync(computer.hanging.wait)
                tasks.cancel_scope.cancel()
            assert computer.runs[0].ended.is_set()
            assert stream.status == "cancelled"


@async_faces
@pytest.mark.parametrize("how", ["cancel", "leave", "task"])
@body
async def test_stopping_cancels_async_tools(face: Face, how: str) -> None:
    """They have ended when the stream has ended."""
    ended: list[str] = []
    begun, answered = anyio.Event(), anyio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await anyio.sleep(60)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.01)
            ended.append("slow")

    async def first() -> str:
        return "quick"

    with ModelServer([Reply(ToolCall("first"), ToolCall("slow")), Reply("Go on.")]) as server:
        async with agent_on(face, server, tools=[slow, first]) as talker:
            stream = talker.stream("Go.", face.told(on_tool_output_done=lambda self, message: answered.set()))
            if how == "leave":
                async with stream:
                    async for event in stream:
                        if isinstance(event, sk.ToolOutputDone):
                            await begun.wait()
                            break
            else:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.until_done)
                    await begun.wait()
                    await answered.wait()
                    stream.cancel() if how == "cancel" else tasks.cancel_scope.cancel()
            assert (ended, stream.status) == (["slow"], "cancelled")
            await talker.say("And?")
        assert outputs_of(server.requests[1]) == {
            "call_1_0": "quick",
            "call_1_1": f"{INTERRUPTED} It had no output so far.",
        }


@every_face
@body
async def test_a_tool_in_a_thread_ends_where_it_reports_progress(face: Face) -> None:
    """Once its stream was cancelled. The calls after it are not made."""
    begun, ended = threading.Event(), threading.Event()
    after: list[str] = []

    def slow() -> None:
        try:
            begun.set()
            while True:
                progress(".")
                time.sleep(0.001)
        finally:
            ended.set()

    def last() -> None:
        after.append("last")

    calls = [ToolCall("slow"), ToolCall("last")]
    with ModelServer(Reply(*calls)) as server:
        async with agent_on(face, server, tools=[slow, last]) as talker:
            stream = talker.stream("Go.")

            def cancel() -> None:
                assert begun.wait(10)
                stream.cancel()

            async with face.beside(cancel):
                await stream.until_done()
            assert ended.is_set()
            assert stream.status == "cancelled"
    assert face.is_async or after == []


def _raise(handler: Any, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
    raise LookupError("no")


FAILURES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the connection breaks": ({"cut_after": 2}, {}),
    "the service reports an error": ({"error_after": 2}, {}),
    "the run fails": ({"error_after": 2, "error_event": "response.failed"}, {}),
    "a hook raises": ({}, {"on_text_delta": _raise}),
}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("failure", FAILURES)
@body
async def test_an_answer_that_failed_is_not_sent_back(face: Face, provider: str, failure: str) -> None:
    """It is on its stream, but not in the conversation: the next request is the same one again, without the fragment."""
    how, hooks = FAILURES[failure]
    script = [Reply(Text("A long answer."), code("say hello"), **how), Reply("Again.")]
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, computer=ToyComputer(), auto_run=True) as talker:
            stream = talker.stream("Go.", face.told(**hooks))
            with pytest.raises(LookupError if hooks else sk.StreamkitError):
                await stream.until_done()
            assert "A long answer.".startswith(stream.messages[0].content)
            assert stream.messages[0].content != ""
            assert talker.contents == [("message", "Go.")]
            stream = await talker.say()
            assert talker.contents == [("message", "Go."), ("message", "Again.")]
        assert server.requests[1].body == server.requests[0].body


@both_shells
@every_provider
@body
async def test_a_call_of_a_failed_answer_has_no_outcome(face: Face, provider: str) -> None:
    """It was complete, and was taken out of the conversation with the answer: an output would belong to no call."""

    def look() -> str:
        pytest.fail("it was called")

    with ModelServer(Reply(ToolCall("look", {}), Text("A long answer."), cut_after=3)) as server:
        async with agent_on(face, server, provider, tools=[look]) as talker:
            stream = talker.stream("Go.")
            with pytest.raises(sk.StreamkitError):
                await stream.until_done()
            assert "tool_call" in [message.type for message in stream.messages]
            assert talker.contents == [("message", "Go.")]


@both_shells
@every_provider
@body
async def test_what_was_done_before_a_failed_answer_stays(face: Face, provider: str) -> None:
    """The calls and outputs of earlier steps are in the conversation, and in the request that is sent again."""
    calls = (ToolCall("look", {}), code("say hello"))
    script = [Reply(Text("I will."), *calls), Reply(Text("A long answer."), cut_after=2), Reply("Again.")]

    def look() -> str:
        return "sun"

    with ModelServer(script) as server:
        options: dict[str, Any] = {"tools": [look], "computer": ToyComputer(), "auto_run": True}
        async with agent_on(face, server, provider, **options) as talker:
            with pytest.raises(sk.StreamkitError):
                await talker.say("Go.")
            assert [kind for kind, _ in talker.contents[4:]] == ["code", "tool_output", "console"]
            await talker.say()
        assert sorted(outputs_of(server.requests[2]).values()) == ["hello\n", "sun"]
        assert server.requests[2].body == server.requests[1].body


@both_shells
@every_provider
@body
async def test_a_call_that_was_answered_stays_although_its_answer_failed(face: Face, provider: str) -> None:
    """What the application did for it has happened: the model reads the output, and does not call again."""
    schema = {"name": "book", "description": "Book.", "parameters": {"type": "object", "properties": {}}}
    parts = (Reasoning("I have to book."), ToolCall("book", {}), Text("Booked for you."), code("say hello"))
    script = [Reply(*parts, cut_after=6), Reply("Again.")]
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, tools=[schema], computer=ToyComputer()) as talker:
            stream = talker.stream("Go.", face.told(on_tool_call_done=lambda self, call: call.respond("booked")))
            with pytest.raises(sk.StreamkitError):
                await stream.until_done()
            outputs = [message for message in stream.messages if message.type == "tool_output"]
            kinds = [kind for kind, _ in talker.contents]
            assert kinds == (["message", "reasoning", "tool_call", "tool_output"] if outputs else ["message"])
            await talker.say()
        assert outputs_of(server.requests[1]) == ({"call_1_1": "booked"} if outputs else {})


@every_face
@every_provider
@body
async def test_an_answer_that_was_cancelled_stays(face: Face, provider: str) -> None:
    """A person who stops an answer has read it: the model reads as much of it."""

    def stop(handler: Any, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        handler.stream.cancel()

    with ModelServer([Reply(Text("A long answer."), never_ends=True), Reply("Again.")]) as server:
        async with agent_on(face, server, provider) as talker:
            stream = await talker.say("Go.", face.told(on_text_delta=stop))
            assert stream.status == "cancelled"
            fragment = talker.messages[-1].content
            assert "A long answer.".startswith(fragment)
            await talker.say("And?")
        assert fragment in server.requests[1].content.decode()


@both_shells
@body
async def test_an_answer_in_which_ctrl_c_came_stays(face: Face) -> None:
    """It stops an answer as well."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with ModelServer([Reply(Text("A long answer."), never_ends=True), Reply("Again.")]) as server:
        async with agent_on(face, server) as talker:
            with pytest.raises(KeyboardInterrupt):
                await talker.say("Go.", face.told(on_text_delta=interrupt))
            fragment = talker.messages[-1]
            assert (fragment.role, fragment.status) == ("assistant", "cancelled")
            await talker.say("And?")
        assert fragment.content in server.requests[1].content.decode()


@both_shells
@body
async def test_an_answer_without_its_end_fails(face: Face) -> None:
    """The stream does not continue, and the code of the answer does not run."""
    computer = ToyComputer()
    with ModelServer(Reply(code("say hello"))) as server:
        request = {"model": "m", "messages": [], "stream": True}
        answer = await face.in_thread(lambda: httpx.post(f"{server.url}/chat/completions", json=request).content)
    whole = answer[: answer.rindex(b"data: ", 0, answer.index(b'"tool_calls"}'))]
    headers = {"content-type": "text/event-stream"}
    with ModelServer(Reply(raw=whole, headers=headers)) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            with pytest.raises(sk.IncompleteStreamError):
                await talker.say("Go.")
    assert computer.runs == []


@both_shells
@body
async def test_a_request_that_is_refused_fails_the_stream(face: Face) -> None:
    """The first one, and one in the middle of the run. The input stays in the conversation, until another takes its place."""
    with ModelServer([Reply(status=429), Reply(code("say a")), Reply(status=503)]) as server:
        async with agent_on(face, server, computer=ToyComputer(), auto_run=True) as talker:
            for status in (429, 503):
                handler = face.told()
                with pytest.raises(sk.SourceError) as raised:
                    await talker.say("Go.", handler)
                assert raised.value.status_code == status
                assert handler.hooks[-2:] == ["on_exception", "on_end"]
    assert [m.type for m in talker.messages] == ["message", "tool_call", "code", "console"]


@both_shells
@body
async def test_one_stream_at_a_time(face: Face) -> None:
    """A second one is refused while one is running, also one that was created before."""
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server) as talker:
            early = talker.stream("Early.")
            async with talker.stream("Go.") as stream:
                with pytest.raises(sk.UsageError, match="still running"):
                    talker.stream("Second.")
                with pytest.raises(sk.UsageError, match="still running"):
                    await early.until_done()
                await stream.until_done()
            await talker.say("Third.")
    assert [m.content for m in talker.messages if m.role == "user"] == ["Go.", "Third."]


@every_face
@body
async def test_a_stream_that_never_started_leaves_the_conversation_unchanged(face: Face) -> None:
    """The input is added when the stream starts."""
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server) as talker:
            stream = talker.stream("Go.")
            assert (talker.messages, server.requests) == ([], [])
            await stream.close()
            assert talker.messages == []


@both_shells
@body
async def test_a_failure_of_the_computer_itself_fails_the_stream(face: Face) -> None:
    """It is raised rather than shown as output, and the conversation can continue."""
    computer = ToyComputer()
    with ModelServer([Reply(code("break")), Reply("Well.")]) as server:
        async with agent_on(face, server, computer=computer, auto_run=True) as talker:
            with pytest.raises(sk.SourceError, match="on fire"):
                await talker.say("Go.")
            stream = await talker.say("Again.")
    assert stream.status == "completed"


@both_shells
@body
async def test_a_hook_that_raises_ends_running_code(face: Face) -> None:
    """The computer is idle afterwards."""
    computer = ToyComputer()

    def fail(handler: Any, delta: sk.ConsoleDelta, snapshot: sk.ConsoleMessage) -> None:
        raise LookupError("no")

    with ModelServer(Reply(code("say one\nhang"))) as server:
        async with agent_on(face, server, computer=computer) as talker:
            with pytest.raises(LookupError):
                await talker.say("Go.", Approving(), face.told(on_console_output=fail))
    assert computer.runs[0].ended.is_set()


MIDDLES: dict[str, tuple[Reply, type[sk.StreamkitError]]] = {
    "a 401": (Reply(status=401), sk.SourceError),
    "cut off in code": (Reply(code("say never\nsay ever\n"), cut_after=3), sk.StreamkitError),
    "an error in code": (Reply(code("say never\nsay ever\n"), error_after=3), sk.StreamkitError),
}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("middle", MIDDLES)
@body
async def test_a_failure_in_the_middle_loses_nothing_and_runs_nothing_more(
    face: Face, provider: str, middle: str
) -> None:
    """The second model call fails. The run of the first is in the conversation, which can continue."""
    reply, error = MIDDLES[middle]
    computer = ToyComputer()
    with ModelServer([Reply(code("say a")), reply, Reply("Here again.")]) as server:
        async with agent_on(face, server, provider, computer=computer, auto_run=True) as talker:
            handler = face.told()
            with pytest.raises(error):
                await talker.say("Go.", handler)
            handler.check_brackets()
            assert handler.hooks.count("on_end") == 1
            assert ("console", "a\n") in talker.contents
            stream = await talker.say("Again?")
            assert await stream.get_final_text() == "Here again."
    assert computer.ran == ["say a"]
