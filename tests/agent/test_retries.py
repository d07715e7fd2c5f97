"""`retry=` and `fallbacks=` of an agent: each model call is asked for again, and what failed is in no conversation."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.agent import ModelRequest
from streamkit.protocols import codec
from streamkit.testing import ModelServer, Reply, ServiceError, ToolCall

from ..faces import FACES, Face, body, both_shells, every_face, every_pair
from ..retrying import Shown
from .parts import Approving, agent_on, every_provider, outputs_of

SOON = sk.Retry(max_wait=0.01)
RESTART = sk.Retry(max_wait=0.01, restart=True)
TRANSIENT = ServiceError("Busy.", "server_error", "server_error")
LOOK = Reply(ToolCall("look", {"at": "it"}))


class Looks:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.count = 0

    def tool(self) -> Any:
        def look(at: str) -> str:
            """Look at something."""
            self.count += 1
            return f"seen {self.count}"

        return look


def said(request: Any) -> str:
    """Everything that a request says."""
    return str(request.body)


@both_shells
@every_provider
@body
async def test_each_model_call_has_its_own_attempts(face: Face, provider: str) -> None:
    """What failed is in no later request, in no `messages`, and not in the saved conversation. Tools never run again."""
    looks, shown = Looks(), Shown()
    script = [
        Reply(status=503),
        Reply("Wait a moment", ToolCall("look", {"at": "half"}), cut_after=3),
        LOOK,
        Reply(status=503),
        Reply("It is almost", error_after=2, error=TRANSIENT),
        Reply("Here."),
    ]
    with ModelServer(script) as server:
        async with agent_on(face, server, provider, tools=[looks.tool()], retry=RESTART) as talker:
            stream = await talker.say("Go.", shown)
            contents = talker.contents
            text = await stream.get_final_text()
        requests = server.requests
    assert (text, looks.count, len(requests)) == ("Here.", 1, 6)
    assert contents == [
        ("message", "Go."),
        ("tool_call", '{"at": "it"}'),
        ("tool_output", "seen 1"),
        ("message", "Here."),
    ]
    assert [retry.attempt for retry in shown.retries] == [2, 3, 2, 3]
    assert [text.startswith(("Wait", "It")) for text in shown.taken_back] == [True, True]
    assert not any("Wait" in said(request) or "almost" in said(request) for request in requests)
    assert [outputs_of(request) != {} for request in requests] == [False] * 3 + [True] * 3
    assert said(requests[3]) == said(requests[4]) == said(requests[5])
    assert stream.status == "completed"


@both_shells
@every_provider
@body
async def test_without_restart_the_content_of_an_answer_is_never_asked_for_again(face: Face, provider: str) -> None:
    """The next stream goes on, as without `retry=`."""
    looks = Looks()
    with ModelServer([LOOK, Reply("It is almost", cut_after=2), Reply("Here.")]) as server:
        async with agent_on(face, server, provider, tools=[looks.tool()], retry=SOON) as talker:
            with pytest.raises(sk.SourceError):
                await talker.say("Go.")
            assert [kind for kind, _ in talker.contents] == ["message", "tool_call", "tool_output"]
            await talker.say()
            assert talker.contents[-1] == ("message", "Here.")
        assert (len(server.requests), looks.count) == (3, 1)


@both_shells
@body
async def test_before_request_sees_each_attempt(face: Face) -> None:
    """Each has a request of its own, as if none had been changed before; it may choose another model for the second."""
    seen: list[tuple[int, int, str, int]] = []

    def before(request: ModelRequest) -> None:
        seen.append((request.step, request.attempt, request.model, len(request.messages)))
        request.messages.append(sk.TextMessage(role="user", content="Quick!"))
        if request.attempt > 1:
            request.model = f"m-{request.attempt}"

    with ModelServer([Reply(status=503), Reply(status=503), LOOK, Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[Looks().tool()], retry=SOON, before_request=before) as talker:
            await talker.say("Go.")
        models = [request.body["model"] for request in server.requests]
    assert seen == [(1, 1, "m", 1), (1, 2, "m", 1), (1, 3, "m", 1), (2, 1, "m", 3)]
    assert models == ["m", "m-2", "m-3", "m"]


@both_shells
@pytest.mark.parametrize("attempt", [1, 2])
@body
async def test_what_before_request_raises_is_never_repeated(face: Face, attempt: int) -> None:
    def before(request: ModelRequest) -> None:
        if request.attempt == attempt:
            raise sk.SourceError("its own")

    with ModelServer([Reply(status=503), Reply("Never.")]) as server:
        retry = sk.Retry(on=lambda _: True, max_wait=0)
        async with agent_on(face, server, retry=retry, before_request=before) as talker:
            with pytest.raises(sk.SourceError, match="its own"):
                await talker.say("Go.")
        assert len(server.requests) == attempt - 1


@both_shells
@every_provider
@body
async def test_a_run_stays_with_a_fallback(face: Face, provider: str) -> None:
    """It may speak another protocol. The next run begins with the agent's own client again."""
    with ModelServer([LOOK, Reply(status=400)]) as first, ModelServer([LOOK, Reply("Done."), Reply("No.")]) as second:
        other = openai.AsyncOpenAI if face.is_async else openai.OpenAI
        fallback = other(base_url=second.url, api_key="any", max_retries=0)
        looks = Looks()
        options: Any = {"tools": [looks.tool()], "fallbacks": [(fallback, "other")]}
        async with agent_on(face, first, provider, **options) as talker:
            await talker.say("Go.")
            assert (len(first.requests), len(second.requests)) == (2, 2)
            assert {request.body["model"] for request in second.requests} == {"other"}
            assert outputs_of(second.requests[0]) != {}
            assert talker.contents[-1] == ("message", "Done.")
            await talker.say("Once more.")
            assert (len(first.requests), len(second.requests)) == (3, 3)
        if face.is_async:
            await fallback.close()
        else:
            fallback.close()
    assert looks.count == 2


@pytest.mark.parametrize(
    "wrong",
    [[openai], [("client", "model")], "m", [(openai.OpenAI(api_key="any"),)], [(openai.OpenAI(api_key="any"), 3)]],
)
def test_a_fallback_is_a_client_and_a_model(wrong: Any) -> None:
    with pytest.raises(sk.UsageError):
        sk.Agent(openai.OpenAI(api_key="any"), model="m", fallbacks=wrong)


def test_an_option_has_to_fit_each_client() -> None:
    """Unless `before_request` may change it, which is then checked when the request is sent."""
    import anthropic

    client, claude = openai.OpenAI(api_key="any"), anthropic.Anthropic(api_key="any")
    options: Any = {"model": "m", "fallbacks": [(claude, "other")], "max_output_tokens": 9}
    with pytest.raises(sk.UsageError, match="max_output_tokens"):
        sk.Agent(client, **options)
    sk.Agent(client, **options, before_request=lambda request: None)
    agent = sk.Agent(client, model="m", fallbacks=[(claude, "other")])
    with pytest.raises(sk.UsageError, match="max_output_tokens"):
        agent.stream("Go.", max_output_tokens=9)


@every_face
@body
async def test_an_asynchronous_fallback_is_for_an_asynchronous_agent(face: Face) -> None:
    client: Any = openai.AsyncOpenAI(api_key="any") if face.is_async else openai.OpenAI(api_key="any")
    other = openai.AsyncOpenAI(api_key="any")
    if face.is_async:
        sk.AsyncAgent(client, model="m", fallbacks=[(other, "m")])
    else:
        with pytest.raises(sk.UsageError, match="asynchronous"):
            sk.Agent(client, model="m", fallbacks=[(other, "m")])


@both_shells
@body
async def test_only_model_calls_are_asked_for_again(face: Face) -> None:
    """Not a tool whose own source fails, and not what a person has approved."""
    approving, looks = Approving(), Looks()

    @sk.tool(confirm=True)
    def fetch() -> str:
        """Fetch something."""
        looks.count += 1
        raise sk.SourceError("no connection")

    with ModelServer([Reply(ToolCall("fetch", {})), Reply(status=503), Reply("Done.")]) as server:
        async with agent_on(face, server, tools=[fetch], retry=SOON) as talker:
            await talker.say("Go.", approving)
        assert len(server.requests) == 3
    assert (looks.count, len(approving.confirmations)) == (1, 1)


@both_shells
@body
async def test_tokens_of_all_attempts_count(face: Face) -> None:
    """For `usage` and for `max_total_tokens`: a step each."""
    looks = Looks()
    failing = Reply("Some words of it", error_after=2, error=TRANSIENT)
    with ModelServer([failing, LOOK, Reply("Never.")]) as server:
        options: Any = {"tools": [looks.tool()], "retry": RESTART, "max_total_tokens": 20}
        async with agent_on(face, server, "anthropic", **options) as talker:
            stream = await talker.say("Go.")
            run = await stream.get_final_run()
            steps = await stream.get_final_run_steps()
    assert run.finish_reason == "max_total_tokens"
    assert [(step.status, step.usage.input_tokens) for step in steps] == [("failed", 10), ("incomplete", 10)]
    assert stream.usage.input_tokens == 20


@every_face
@body
async def test_a_wait_that_is_stopped_leaves_the_conversation_as_it_was(face: Face, tmp_path: Path) -> None:
    """The next stream asks again. A failed answer is not saved."""
    told = face.told(on_retry=lambda told, _: told.stream.cancel())
    with ModelServer([LOOK, Reply("Almost", " there", cut_after=1), Reply("Here.")]) as server:
        async with agent_on(face, server, tools=[Looks().tool()], retry=sk.Retry(restart=True)) as talker:
            stream = await talker.say("Go.", told)
            assert stream.status == "cancelled"
            talker.agent.save(tmp_path / "saved.json")
            talker.agent.load(tmp_path / "saved.json")
            assert [kind for kind, _ in talker.contents] == ["message", "tool_call", "tool_output"]
            await talker.say()
            assert talker.contents[-1] == ("message", "Here.")
    assert told.hooks[-1] == "on_end"


@both_shells
@every_provider
@body
async def test_a_recording_of_an_agents_attempts_replays_as_the_same_events(
    face: Face, provider: str, tmp_path: Path
) -> None:
    live, again = face.told(), face.told()
    script = [Reply(status=503), LOOK, Reply("It is", cut_after=1), Reply(status=500), Reply("Done.")]
    with ModelServer(script) as server:
        retry = sk.Retry(4, restart=True, max_wait=0.01)
        async with agent_on(face, server, provider, tools=[Looks().tool()], retry=retry) as talker:
            stream = await talker.say("Go.", live, sk.Recorder(tmp_path / "run.jsonl"))
    replay = face.stream(tmp_path / "run.jsonl", again)
    await replay.until_done()
    assert _events(again) == _events(live)
    assert [message.to_dict() for message in replay.messages] == [message.to_dict() for message in stream.messages]


REFUSALS = {"refused": Reply(status=503), "empty": Reply(raw=b""), "silent": Reply(never_ends=True)}


@every_pair
@both_shells
@every_provider
@pytest.mark.parametrize("refusal", list(REFUSALS.values()), ids=list(REFUSALS))
@pytest.mark.parametrize("retry", [None, 2], ids=["once", "again"])
@body
async def test_a_model_call_that_brings_nothing_leaves_the_step_before_as_it_was(
    face: Face, provider: str, refusal: Reply, retry: int | None, tmp_path: Path
) -> None:
    """That step is over before the attempt, and completed; so it is in a recording."""
    live, again = face.told(), face.told()
    with ModelServer([LOOK, refusal, Reply("Done.")]) as server:
        options = {"retry": retry and sk.Retry(retry, max_wait=0.01), "timeouts": sk.Timeouts(first=1)}
        async with agent_on(face, server, provider, tools=[Looks().tool()], **options) as talker:
            stream = talker.stream("Go.", live, sk.Recorder(tmp_path / "run.jsonl"))
            with nullcontext() if retry else pytest.raises(sk.StreamkitError):
                await stream.until_done()
    course = [(one["type"], one.get("run_step", {}).get("status")) for one in _events(live)]
    steps = [one for one in course if one[0] in ("run_step_done", "stream_retry")]
    assert steps == [
        ("run_step_done", "completed"),
        *([("stream_retry", None), ("run_step_done", "completed")] * bool(retry)),
    ]
    replay = face.stream(tmp_path / "run.jsonl", again)
    with nullcontext() if retry else pytest.raises(sk.StreamkitError):
        await replay.until_done()
    assert _events(again) == _events(live)


@every_provider
def test_a_recording_of_an_inner_agents_attempts_replays_as_the_same_events(provider: str, tmp_path: Path) -> None:
    live, again = FACES["sync"].told(), FACES["sync"].told()

    async def run() -> None:
        script = [
            Reply(ToolCall("inner", {"input": "x"})),
            Reply("In ha", cut_after=1),
            Reply("In all."),
            Reply("Done."),
        ]
        with ModelServer(script) as server:
            async with (
                agent_on(FACES["sync"], server, provider, name="inner", retry=RESTART) as inner,
                agent_on(FACES["sync"], server, provider, tools=[inner.agent.as_tool()]) as outer,
            ):
                await outer.say("Go.", live, sk.Recorder(tmp_path / "run.jsonl"))

    FACES["sync"].run(run)
    sk.stream(tmp_path / "run.jsonl", again).until_done()
    assert [event["type"] for event in _events(live)].count("stream_retry") == 1
    assert _events(again) == _events(live)


def _events(told: Any) -> list[dict[str, Any]]:
    return [codec.event_to_dict(event) for event in told.of("on_event")]


def test_an_agents_retry_may_be_set_between_two_streams() -> None:
    script = [Reply(status=503), Reply(status=503), Reply("Here.")]
    with ModelServer(script) as server, openai.OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        agent = sk.Agent(client, model="m")
        with pytest.raises(sk.SourceError):
            agent.stream("Go.").until_done()
        agent.retry = SOON
        assert agent.stream("Go.").get_final_text() == "Here."
