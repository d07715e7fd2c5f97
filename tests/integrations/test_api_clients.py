"""Other clients of model APIs, real ones, with an agent in the model's place: what `tests/server/test_api` shows with the SDKs.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from streamkit.server import Endpoints, create_app

from ..server.api_parts import ApiAgents
from ..server.parts import TOKEN, Client, serve

agents_sdk = pytest.importorskip("agents")
pydantic_ai = pytest.importorskip("pydantic_ai")
langchain = pytest.importorskip("langchain_openai")

KEY = "wrong"


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def new_records(agents: ApiAgents) -> None:
    agents.forget()


@pytest.fixture(scope="module")
def url(agents: ApiAgents) -> Iterator[str]:
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(models=["agent", "*"]))) as url:
        yield url


async def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


class Caller:
    """A client in one form.

    Attributes:
        reasons: whether it has the model's reasoning.
        before: what it has of the text before the agent's own calls.
    """

    reasons = False
    before = "Let me look.\n\n"

    def __init__(self, url: str, key: str) -> None:
        self.url, self.key = f"{url}/v1", key

    def ask(self, said: str, *, stream: bool) -> tuple[str, str, int]:
        """Return the text of the answer, its reasoning, and all its tokens. The tool `weather` is the client's."""
        raise NotImplementedError

    def leave(self, said: str) -> None:
        """Begin a streamed answer, and leave it after its first piece."""
        raise NotImplementedError


class OpenaiAgents(Caller):
    """Of Responses it takes the last message alone as the output."""

    api = "responses"
    before = ""

    def ask(self, said: str, *, stream: bool) -> tuple[str, str, int]:
        return asyncio.run(self._ask(said, stream))

    async def _ask(self, said: str, stream: bool) -> tuple[str, str, int]:
        agents_sdk.set_tracing_disabled(True)
        async with openai.AsyncOpenAI(base_url=self.url, api_key=self.key) as client:
            agent = self._agent(client)
            if stream:
                result = agents_sdk.Runner.run_streamed(agent, said)
                async for _ in result.stream_events():
                    pass
            else:
                result = await agents_sdk.Runner.run(agent, said)
            return result.final_output, "", result.context_wrapper.usage.total_tokens

    def _agent(self, client: openai.AsyncOpenAI) -> Any:
        kind = agents_sdk.OpenAIResponsesModel if self.api == "responses" else agents_sdk.OpenAIChatCompletionsModel
        return agents_sdk.Agent(
            name="outer",
            instructions="Be brief.",
            model=kind("agent", openai_client=client),
            model_settings=agents_sdk.ModelSettings(include_usage=True),
            tools=[agents_sdk.function_tool(weather)],
        )

    def leave(self, said: str) -> None:
        asyncio.run(self._leave(said))

    async def _leave(self, said: str) -> None:
        agents_sdk.set_tracing_disabled(True)
        async with openai.AsyncOpenAI(base_url=self.url, api_key=self.key) as client:
            result = agents_sdk.Runner.run_streamed(self._agent(client), said)
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    result.cancel()


class OpenaiAgentsChat(OpenaiAgents):
    api = "chat"
    before = Caller.before


class PydanticAi(Caller):
    reasons = True
    model = "OpenAIChatModel"

    def ask(self, said: str, *, stream: bool) -> tuple[str, str, int]:
        return asyncio.run(self._ask(said, stream))

    def _agent(self, client: openai.AsyncOpenAI) -> Any:
        from pydantic_ai.models import openai as models
        from pydantic_ai.providers.openai import OpenAIProvider

        model = getattr(models, self.model)("agent", provider=OpenAIProvider(openai_client=client))
        return pydantic_ai.Agent(model, tools=[weather])

    def leave(self, said: str) -> None:
        asyncio.run(self._leave(said))

    async def _leave(self, said: str) -> None:
        async with (
            openai.AsyncOpenAI(base_url=self.url, api_key=self.key) as client,
            self._agent(client).run_stream(said) as result,
        ):
            await anext(result.stream_text(debounce_by=None))

    async def _ask(self, said: str, stream: bool) -> tuple[str, str, int]:
        async with openai.AsyncOpenAI(base_url=self.url, api_key=self.key) as client:
            agent = self._agent(client)
            if stream:
                async with agent.run_stream(said) as result:
                    text = await result.get_output()
                    messages, usage = result.all_messages(), result.usage
            else:
                done = await agent.run(said)
                text, messages, usage = done.output, done.all_messages(), done.usage
        parts = [part for message in messages for part in message.parts]
        thought = "".join(part.content for part in parts if part.part_kind == "thinking")
        return text, thought, usage.input_tokens + usage.output_tokens


class PydanticAiResponses(PydanticAi):
    model = "OpenAIResponsesModel"


class LangChain(Caller):
    options: dict[str, Any] = {"stream_usage": True}

    def _bound(self, http: httpx.Client) -> Any:
        from langchain_core.tools import tool

        model = langchain.ChatOpenAI(
            model="agent", base_url=self.url, api_key=self.key, http_client=http, **self.options
        )
        return model.bind_tools([tool(weather)])

    def leave(self, said: str) -> None:
        with httpx.Client() as http:
            pieces = self._bound(http).stream(said)
            next(pieces)
            pieces.close()

    def ask(self, said: str, *, stream: bool) -> tuple[str, str, int]:
        with httpx.Client() as http:
            return self._ask(said, stream, http)

    def _ask(self, said: str, stream: bool, http: httpx.Client) -> tuple[str, str, int]:
        from langchain_core.messages import HumanMessage, ToolMessage

        bound = self._bound(http)
        messages: list[Any] = [HumanMessage(said)]
        tokens = 0
        while True:
            if stream:
                pieces = [*bound.stream(messages)]
                answer = pieces[0]
                for piece in pieces[1:]:
                    answer += piece
            else:
                answer = bound.invoke(messages)
            tokens += answer.usage_metadata["total_tokens"]
            messages.append(answer)
            if not answer.tool_calls:
                return answer.text, "", tokens
            for call in answer.tool_calls:
                output = asyncio.run(weather(**call["args"]))
                messages.append(ToolMessage(output, tool_call_id=call["id"]))


class LangChainResponses(LangChain):
    options: dict[str, Any] = {"use_responses_api": True}


class Curl(Caller):
    """The program, and what a shell script makes of it."""

    reasons = True

    def ask(self, said: str, *, stream: bool) -> tuple[str, str, int]:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]
        messages: list[Any] = [{"role": "user", "content": said}]
        tokens, thought = 0, ""
        while True:
            body = {"model": "agent", "messages": messages, "tools": tools, "stream": stream}
            if stream:
                body["stream_options"] = {"include_usage": True}
            message, used = self._post(body)
            tokens += used
            thought += message.get("reasoning_content", "")
            if not message.get("tool_calls"):
                return message["content"], thought, tokens
            messages.append(message)
            for call in message["tool_calls"]:
                output = asyncio.run(weather(**json.loads(call["function"]["arguments"])))
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})

    def _post(self, body: Any) -> tuple[dict[str, Any], int]:
        command = ["curl", "-sSN", "--fail-with-body", "--noproxy", "*", f"{self.url}/chat/completions"]
        headers = ["-H", f"Authorization: Bearer {self.key}", "-H", "Content-Type: application/json", "-d", "@-"]
        done = subprocess.run([*command, *headers], input=json.dumps(body), capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise ValueError(done.stdout)
        if not body["stream"]:
            whole = json.loads(done.stdout)
            return whole["choices"][0]["message"], whole["usage"]["total_tokens"]
        message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
        tokens = 0
        for line in done.stdout.splitlines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    raise ValueError(chunk["error"]["message"])
                tokens = (chunk["usage"] or {}).get("total_tokens", 0)
                for choice in chunk["choices"]:
                    _extend(message, choice["delta"])
        return message, tokens


def _extend(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for key in ("content", "reasoning_content"):
        message[key] = message.get(key, "") + (delta.get(key) or "")
    for call in delta.get("tool_calls", ()):
        if "id" in call:
            message["tool_calls"].append({key: call[key] for key in ("id", "type", "function")})
        else:
            function = message["tool_calls"][call["index"]]["function"]
            function["arguments"] += call["function"]["arguments"]


CALLERS = (OpenaiAgents, OpenaiAgentsChat, PydanticAi, PydanticAiResponses, LangChain, LangChainResponses, Curl)
every = pytest.mark.parametrize("kind", CALLERS, ids=lambda kind: kind.__name__)
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@every
@streamed
def test_a_text_and_its_tokens(url: str, kind: Callable[..., Caller], stream: bool) -> None:
    assert kind(url, TOKEN).ask("hello", stream=stream) == ("You said: hello", "", 15)


@every
@streamed
def test_reasoning_and_tools_of_the_agent(
    url: str, kind: Callable[..., Caller], agents: ApiAgents, stream: bool
) -> None:
    caller = kind(url, TOKEN)
    text, thought, _ = caller.ask("own 3", stream=stream)
    assert (text, agents.looked) == (f"{caller.before}It gave: look 3", [3])
    assert thought == ("I look. " if caller.reasons else "")


@every
@streamed
def test_a_tool_of_the_client(url: str, kind: Callable[..., Caller], agents: ApiAgents, stream: bool) -> None:
    """The request with its output goes on with what the agent called beside it, which ran once."""
    text, _, _ = kind(url, TOKEN).ask("mixed Rome", stream=stream)
    assert (text, agents.looked, len(agents.contexts)) == ("It gave: look 7 | sunny in Rome", [7], 2)


@every
@streamed
def test_failures_are_errors_of_the_client(
    url: str, kind: Callable[..., Caller], agents: ApiAgents, stream: bool
) -> None:
    """Before the first byte, after it, and of the key. No client asks again by itself once a run began."""
    for said in ("fail", "break"):
        agents.forget()
        with pytest.raises(Exception, match=r"The source failed|provider failed"):
            kind(url, TOKEN).ask(said, stream=stream)
        assert len(agents.contexts) == 1
    with pytest.raises(Exception, match="The token is missing or wrong"):
        kind(url, KEY).ask("hello", stream=stream)


@pytest.mark.parametrize("kind", CALLERS[:-1], ids=lambda kind: kind.__name__)
def test_a_client_that_leaves_stops_its_run(url: str, kind: Callable[..., Caller]) -> None:
    kind(url, TOKEN).leave("hang")
    with Client(url) as client:
        client.until(client.get("/runs", params={"limit": 1}).json()["runs"][0]["id"], "cancelled")


def test_curl_that_is_interrupted_stops_its_run(url: str) -> None:
    body = json.dumps({"model": "agent", "stream": True, "messages": [{"role": "user", "content": "hang"}]})
    program = shutil.which("curl")
    assert program is not None
    command = [program, "-sSN", "--noproxy", "*", f"{url}/v1/chat/completions", "-H", f"x-api-key: {TOKEN}"]
    with subprocess.Popen([*command, "--json", body], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while b"Once" not in process.stdout.readline():
            pass
        with Client(url) as client:
            run = client.get("/runs", params={"status": "in_progress"}).json()["runs"][0]["id"]
            process.terminate()
            client.until(run, "cancelled")
