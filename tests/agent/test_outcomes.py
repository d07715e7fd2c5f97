"""What became of an action is recorded, not guessed: it never ran, it finished, or it was interrupted and may have had
effects. The next request says exactly that, after saving too, and so does every `to_input`."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest

import streamkit as sk
from streamkit.agent import progress, tool
from streamkit.testing import ModelServer, Reply, Request, Text, ToolCall

from ..faces import Face, async_faces, body, both_shells, every_face, every_pair
from .parts import ToyComputer, agent_on, code, every_provider, outputs_of

NOT_RUN = "Not run: the conversation went on without it."
INTERRUPTED = "It was interrupted before it finished, and may have had effects."


class Work:
    """Two tools that record what really became of them. One of them may hang until the stream is stopped, or stop it."""

    def __init__(self, *, hangs: str = "", stops: str = "") -> None:
        self.hangs, self.stops = hangs, stops
        self.began: list[str] = []
        self.finished: list[str] = []
        self.hanging = threading.Event()
        self.stop: Callable[[], object] = lambda: None

    def first(self) -> str:
        return self._work("first")

    def second(self) -> str:
        return self._work("second")

    def _work(self, name: str) -> str:
        self.began.append(name)
        if self.hangs == name:
            self.hanging.set()
            while True:
                progress(".")
                time.sleep(0.001)
        if self.stops == name:
            self.stop()
        self.finished.append(name)
        return f"{name} is done"

    def truth(self, name: str) -> str:
        return f"{name} is done" if name in self.finished else INTERRUPTED if name in self.began else NOT_RUN

    @property
    def outputs(self) -> dict[str, str]:
        return {"call_1_0": self.truth("first"), "call_1_1": self.truth("second")}


def facts(outputs: dict[str, str]) -> dict[str, str]:
    """Outputs without what an interrupted tool had reported."""
    return {id: INTERRUPTED if text.startswith(INTERRUPTED) else text for id, text in outputs.items()}


CALLS = Reply(Text("I will. "), ToolCall("first"), ToolCall("second"))

# What happens: which tool hangs until the stream is stopped, which stops it at its end, which hook stops it.
STATES: dict[str, dict[str, str]] = {
    "before the first": {"hook": "on_tool_call_done"},
    "in the first": {"hangs": "first"},
    "between the two": {"stops": "first"},
    "in the second": {"hangs": "second"},
    "after both": {"stops": "second"},
    "after their outputs": {"hook": "on_run_step_done"},
}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("state", STATES)
@body
async def test_the_next_request_says_what_became_of_each_call(
    face: Face, provider: str, state: str, tmp_path: Path
) -> None:
    """Wherever the stream is cancelled. So does a saved conversation, and what `to_input` makes of it."""
    hook = STATES[state].get("hook", "")
    work = Work(hangs=STATES[state].get("hangs", ""), stops=STATES[state].get("stops", ""))
    with ModelServer([CALLS, Reply("I see."), Reply("I see.")]) as server:
        async with agent_on(face, server, provider, tools=[work.first, work.second]) as talker:
            stopping = face.told(**{hook: _cancel_unless_first} if hook else {})
            stream = talker.stream("Go.", stopping)
            work.stop = stream.cancel

            def cancel_hanging() -> None:
                if work.hangs:
                    assert work.hanging.wait(10)
                    stream.cancel()

            async with face.beside(cancel_hanging):
                await stream.until_done()
            assert stream.status == "cancelled"
            talker.agent.save(tmp_path / "talk.json")
            wire = sk.to_input(talker.messages, provider)
            await talker.say("And?")
        async with agent_on(face, server, provider) as another:
            another.agent.load(tmp_path / "talk.json")
            await another.say("And?")
        requests = server.requests
    assert [facts(outputs_of(request)) for request in requests[-2:]] == [work.outputs, work.outputs]
    assert facts(outputs_of(_request_with(provider, wire))) == work.outputs


def _cancel_unless_first(handler: Any, subject: Any) -> None:
    if getattr(subject, "name", None) != "first":
        handler.stream.cancel()


def _request_with(provider: str, wire: Any) -> Request:

    path = "/v1/messages" if provider == "anthropic" else "/v1/any"
    key = "input" if provider == "openai_responses" else "messages"
    return Request(1, "POST", path, {}, b"", {key: wire})


STOPS = ("leave", "close", "a hook's error", "task")


@every_face
@pytest.mark.parametrize("how", STOPS)
@body
async def test_it_is_the_same_however_the_stream_is_stopped(face: Face, how: str) -> None:
    """By leaving, closing, an error elsewhere, or the cancellation of the task."""
    if how == "task" and not face.is_async:
        return
    work = Work(hangs="second")
    with ModelServer([CALLS, Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[work.first, work.second]) as talker:
            hanging = anyio.Event() if face.is_async else None
            raises = {"on_tool_output_done": _wait_and_raise(work)} if how == "a hook's error" else {}
            stream = talker.stream("Go.", face.told(**raises))
            if how == "a hook's error":
                with pytest.raises(LookupError):
                    await stream.until_done()
            elif how == "task":
                assert hanging is not None
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(stream.until_done)
                    await anyio.to_thread.run_sync(work.hanging.wait)
                    tasks.cancel_scope.cancel()
            else:
                async with stream:
                    async for event in stream:
                        if isinstance(event, sk.ToolOutputDone):
                            await face.in_thread(work.hanging.wait)
                            if how == "close":
                                await stream.close()
                            break
            await talker.say("And?")
        assert facts(outputs_of(server.requests[1])) == work.outputs
    assert work.outputs["call_1_1"] == INTERRUPTED
    assert work.finished == ["first"] or how == "task"  # which does not wait for it


def _wait_and_raise(work: Work) -> Callable[..., None]:
    def fail(handler: Any, message: sk.ToolOutputMessage) -> None:
        assert work.hanging.wait(10)
        raise LookupError("no")

    return fail


class Sub:
    """A tool that is itself an agent, which waits in some way until its stream is stopped."""

    REPLIES: dict[str, Reply] = {
        "code": Reply(code("say one\nhang")),
        "question": Reply(code("say one")),
        "model": Reply("So I", never_ends=True),
        "own tool": Reply(ToolCall("deeper")),
    }

    def __init__(self, url: str, waits: str) -> None:
        self.url, self.waits = url, waits
        self.waiting = threading.Event()
        self.computer = ToyComputer()

    def sub(self) -> str:
        """Ask another agent."""

        class Waiting(sk.EventHandler):
            def on_text_delta(_, delta: object, snapshot: object, /) -> None:
                self.waiting.set()

            def on_console_output(_, delta: object, snapshot: object, /) -> None:
                self.waiting.set()

            def on_confirmation(_, confirmation: sk.Confirmation, /) -> None:
                confirmation.defer(60)
                self.waiting.set()

        auto_run = self.waits != "question"
        with openai.OpenAI(base_url=self.url, api_key="any", max_retries=0) as client:
            agent = sk.Agent(
                client,
                model="m",
                protocol="openai_chat",
                computer=self.computer,
                auto_run=auto_run,
                tools=[self.deeper],
            )
            return agent.stream("Go.", Waiting()).get_final_text()

    def deeper(self) -> str:
        """Ask one more agent."""
        self.waits = "question"
        return self.sub()


@every_face
@pytest.mark.parametrize("waits", Sub.REPLIES)
@body
async def test_an_agent_inside_a_tool_is_stopped_with_it(face: Face, waits: str) -> None:
    """Whatever it waits for. It was interrupted, although its part of an answer came back."""
    replies = [Reply(ToolCall("sub")), Sub.REPLIES[waits], *([Sub.REPLIES["question"]] if waits == "own tool" else [])]
    with ModelServer([*replies, Reply("I see.")]) as server:
        sub = Sub(server.url, waits)
        async with agent_on(face, server, tools=[sub.sub]) as talker:
            stream = talker.stream("Go.")

            def cancel() -> None:
                assert sub.waiting.wait(10)
                stream.cancel()

            async with face.beside(cancel):
                with anyio.fail_after(10) if face.is_async else contextlib.nullcontext():
                    await stream.until_done()
            assert stream.status == "cancelled"
            await talker.say("And?")
        assert facts(outputs_of(server.requests[-1])) == {"call_1_0": INTERRUPTED}
    assert not sub.computer.ran or sub.computer.runs[-1].ended.is_set()


@every_face
@body
async def test_an_agent_that_had_ended_inside_a_tool_is_not_what_was_stopped(face: Face) -> None:
    """The tool finishes in spite of the cancellation, and its output counts."""
    with ModelServer([Reply(ToolCall("sub")), Reply("Yes."), Reply("I see.")]) as server:

        def sub() -> str:
            with openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
                agent = sk.Agent(client, model="m", protocol="openai_chat")
                text = agent.stream("Go.").get_final_text()
            stream.cancel()
            return text

        async with agent_on(face, server, tools=[sub]) as talker:
            stream = talker.stream("Go.")
            await stream.until_done()
            await talker.say("And?")
        assert outputs_of(server.requests[-1]) == {"call_1_0": "Yes."}


def test_an_interrupt_of_the_main_thread_is_one_more_way() -> None:
    """Ctrl-C in a tool that runs, and in code."""
    work = Work(hangs="first")
    computer = ToyComputer()

    def interrupt(begun: threading.Event) -> None:
        assert begun.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    replies = [CALLS, Reply(code("say one\nhang")), Reply("I see.")]
    with ModelServer(replies) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        agent = sk.Agent(
            client, model="m", tools=[work.first, work.second], computer=computer, auto_run=True, protocol="openai_chat"
        )
        for begun in (work.hanging, computer.hanging):
            threading.Thread(target=interrupt, args=(begun,)).start()
            with pytest.raises(KeyboardInterrupt):
                agent.stream("Go.").until_done()
        agent.stream("And?").until_done()
        outputs = outputs_of(server.requests[2])
    assert {**outputs, **facts({"call_1_0": outputs["call_1_0"]})} == {
        **work.outputs,
        "call_2_0": f"{INTERRUPTED} Its output so far:\none\nKeyboardInterrupt\n",
    }
    assert work.outputs == {"call_1_0": INTERRUPTED, "call_1_1": NOT_RUN}


@async_faces
@body
async def test_async_tools_too(face: Face) -> None:
    """With the progress that they had reported, and the output of one that finished and was not emitted any more."""
    begun = anyio.Event()
    streams: list[Any] = []

    async def slow() -> str:
        progress("half of it")
        begun.set()
        await anyio.sleep(60)
        return "never"

    async def quick() -> str:
        await begun.wait()
        streams[0].cancel()
        return "done"

    with ModelServer([Reply(ToolCall("slow"), ToolCall("quick")), Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[slow, quick]) as talker:
            streams.append(talker.stream("Go."))
            await streams[0].until_done()
            await talker.say("And?")
        assert outputs_of(server.requests[1]) == {
            "call_1_0": f"{INTERRUPTED} Its output so far:\nhalf of it",
            "call_1_1": "done",
        }
    assert [m.status for m in talker.messages if m.type == "tool_output"] == ["cancelled", "completed"]


@both_shells
@every_provider
@body
async def test_code_too(face: Face, provider: str, tmp_path: Path) -> None:
    """Code that finished, code that was interrupted, and code that never ran, of one answer."""
    computer = ToyComputer()
    script = [Reply(code("say one"), code("show\nhang"), code("say three")), Reply("I see."), Reply("I see.")]
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, computer=computer, auto_run=True) as talker:
            stream = talker.stream("Go.")

            def cancel() -> None:
                assert computer.hanging.wait(10)
                stream.cancel()

            async with face.beside(cancel):
                await stream.until_done()
            talker.agent.save(tmp_path / "talk.json")
            await talker.say("And?")
            talker.agent.load(tmp_path / "talk.json")
            await talker.say("And?")
        outputs = [outputs_of(request) for request in server.requests[1:]]
    interrupted = f"{INTERRUPTED} Its output so far:\nKeyboardInterrupt\n"
    assert outputs == [{"call_1_0": "one\n", "call_1_1": interrupted, "call_1_2": NOT_RUN}] * 2
    assert [m.type for m in talker.messages].count("image") == 1


@both_shells
@body
async def test_an_answer_that_was_cut_short_ran_nothing(face: Face) -> None:
    """A call that is complete all the same, as the first one here, is recorded as never run."""
    work = Work()
    with ModelServer([Reply(ToolCall("first"), ToolCall("second"), finish_reason="length"), Reply("I see.")]) as server:
        async with agent_on(face, server, "openai_responses", tools=[work.first, work.second]) as talker:
            await talker.say("Go.")
            await talker.say("And?")
        assert outputs_of(server.requests[1]) == {"call_1_0": NOT_RUN}
    assert work.began == []


@both_shells
@body
async def test_a_conversation_that_was_saved_while_a_tool_ran_says_so(face: Face, tmp_path: Path) -> None:
    """The program ended before the tool did, so nobody wrote its outcome: it may have had effects."""

    def first() -> str:
        progress("half of it")
        seen.wait(10)
        talker.agent.save(tmp_path / "talk.json")
        return "done"

    seen = threading.Event()
    handler = face.told(on_tool_output_delta=lambda self, delta, snapshot: seen.set())
    with ModelServer([Reply(ToolCall("first"), code("say hi")), Reply("Done."), Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[first], computer=ToyComputer(), auto_run=True) as talker:
            await talker.say("Go.", handler)
            assert [m.metadata for m in talker.messages if m.type == "tool_call"] == [{}, {}], "no mark stays"
        async with agent_on(face, server, tools=[first], computer=ToyComputer()) as another:
            another.agent.load(tmp_path / "talk.json")
            await another.say("And?")
        assert outputs_of(server.requests[2]) == {
            "call_1_0": f"{INTERRUPTED} Its output so far:\nhalf of it",
            "call_1_1": NOT_RUN,
        }


@both_shells
@body
async def test_a_declined_call_and_those_after_it_never_ran(face: Face) -> None:
    """The record says which of them the user declined."""
    ran: list[str] = []

    @tool(confirm=True)
    def first() -> None:
        ran.append("first")

    def second() -> None:
        ran.append("second")

    with ModelServer([CALLS, Reply("I see.")]) as server:
        async with agent_on(face, server, tools=[first, second]) as talker:
            await talker.say("Go.", face.told(on_confirmation=lambda self, confirmation: confirmation.decline()))
            await talker.say("And?")
        assert outputs_of(server.requests[1]) == {
            "call_1_0": "Not run: the user declined this call.",
            "call_1_1": NOT_RUN,
        }
    assert ran == []
