"""What the tests of the endpoints of model APIs share: a scripted model, agents on it, and the real client of each API in one
form."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anthropic
import openai

from streamkit.agent import Agent, AsyncAgent, tool
from streamkit.server import Context
from streamkit.testing import ModelServer, Reasoning, Reply, Request, ToolCall

from ..agent.parts import ToyComputer, code
from .parts import SECRET, TOKEN

__all__ = [
    "FRONTS",
    "PICTURE",
    "WEATHER",
    "Answer",
    "ApiAgents",
    "ChatFront",
    "Front",
    "MessagesFront",
    "ResponsesFront",
    "Schema",
]


class Schema(NamedTuple):
    """A tool of the client: its name and its one argument."""

    name: str
    argument: str = "city"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", "properties": {self.argument: {"type": "string"}}, "required": [self.argument]}


WEATHER = Schema("weather")
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def reply_to(request: Request) -> Reply:
    """What the model answers: what the user's last words ask for, or what the tools gave."""
    messages = request.body["messages"]
    if messages[-1]["role"] == "tool":
        start = max(number for number, message in enumerate(messages) if message["role"] == "assistant")
        return Reply("It gave: " + " | ".join(message["content"] for message in messages[start + 1 :]))
    content = messages[-1]["content"]
    text = content if isinstance(content, str) else " ".join(part.get("text", part["type"]) for part in content)
    word, _, rest = text.partition(" ")
    match word:
        case "own":
            looks = [ToolCall("look", {"n": int(number)}) for number in rest.split()]
            return Reply(Reasoning("I look. "), "Let me look.", *looks)
        case "weather":
            return Reply("I ask.", *(ToolCall("weather", {"city": city}) for city in rest.split()))
        case "mixed":
            return Reply(ToolCall("look", {"n": 7}), ToolCall("weather", {"city": rest}))
        case "think":
            return Reply(Reasoning("Hm, so."), "Well.")
        case "careful":
            return Reply("I try.", *(ToolCall("careful", {"n": int(number)}) for number in rest.split()))
        case "run":
            return Reply(code(rest))
        case "long":
            return Reply("Cut", finish_reason="length")
        case "hang":
            return Reply("Once upon ", "a time", never_ends=True)
        case "slow":
            return Reply("At ", "last.", first_delay=0.1, delay=0.1)
        case "sleep":
            return Reply(first_delay=1000.0, never_ends=True)
        case "fail":
            return Reply(status=500, error=None, headers={"x-secret": SECRET})
        case "refused":
            return Reply(status=401)
        case "break":
            return Reply("Half of ", "it", "and more", cut_after=1)
        case _:
            return Reply(f"You said: {text}")


class ApiAgents:
    """Makes agents on the scripted model, in tasks or in threads.

    Attributes:
        looked, ran: what the tools `look`, and `careful`, which has to be confirmed, were called with.
        contexts: what the agents were made for.
        stopped: how many agents were cancelled in the midst of `wait`.
    """

    def __init__(self, *, in_threads: bool = False, computer: bool = False) -> None:
        self.model = ModelServer(reply_to)
        self.looked: list[int] = []
        self.ran: list[int] = []
        self.contexts: list[Context] = []
        self.lock = threading.Lock()
        self.gate = threading.Event()  # without it, the tool `look` waits
        self.gate.set()
        self.computer = ToyComputer() if computer else None
        self._in_threads = in_threads
        self._client = openai.OpenAI(base_url=self.model.url, api_key=SECRET, max_retries=0)
        headers = {"Connection": "close"}  # none outlives the event loop of its server
        self._async_client = openai.AsyncOpenAI(
            base_url=self.model.url, api_key=SECRET, max_retries=0, default_headers=headers
        )

    def __call__(self, context: Context) -> Any:
        self.contexts.append(context)
        if context.model == "broken":
            raise LookupError(SECRET)
        return self.agent()

    def agent(self, *tools: Any) -> Any:
        """An agent with these tools besides its own."""

        def look(n: int) -> str:
            """Look."""
            self.looked.append(n)
            self.gate.wait(30.0)
            return f"look {n}"

        @tool(confirm=True)
        def careful(n: int) -> str:
            """Do it."""
            self.ran.append(n)
            return f"careful {n}"

        options: dict[str, Any] = {
            "tools": [look, careful, *tools],
            "protocol": "openai_chat",
            "model": "m",
            "computer": self.computer,
            "instructions": "Be kind.",
        }
        if self._in_threads:
            return Agent(self._client, **options)
        return AsyncAgent(self._async_client, **options)

    def forget(self) -> None:
        """Empty the records of what ran."""
        for records in (self.looked, self.ran, self.contexts, self.model.requests):
            records.clear()

    @property
    def requests(self) -> list[Any]:
        """The bodies of the requests to the model."""
        return [request.body for request in self.model.requests]

    def close(self) -> None:
        self._client.close()
        self.model.close()


class Answer(NamedTuple):
    """One answer, in whichever API.

    Attributes:
        calls: of the client's tools, as id, name and arguments.
        tokens: of input and of output; None if they did not come.
        turn: what the client's next request has of it.
    """

    id: str
    text: str
    reasoning: str
    calls: list[tuple[str, str, dict[str, Any]]]
    end: str
    tokens: tuple[int, int] | None
    turn: list[Any]


class Front:
    """The real client of one API. Messages are those of its own requests.

    Attributes:
        ends: its words for `done`, `call` and `cut`.
        error: the root of what it raises for a status.
    """

    name: str
    protocol: str
    ends: Mapping[str, str]
    error: type[Exception]

    def __init__(self, url: str, key: str = TOKEN) -> None:
        raise NotImplementedError

    def user(self, text: str) -> list[Any]:
        return [{"role": "user", "content": text}]

    def outputs(self, outputs: Mapping[str, Any]) -> list[Any]:
        """Outputs by the ids of the calls: texts, or lists of parts."""
        raise NotImplementedError

    def picture(self) -> dict[str, Any]:
        """A picture, as a part of a content."""
        raise NotImplementedError

    def ask(
        self, messages: Sequence[Any], *, stream: bool = False, tools: Sequence[Schema] = (), **more: Any
    ) -> Answer:
        raise NotImplementedError

    def begin(self, messages: Sequence[Any], model: str = "agent") -> Callable[[], object]:
        """Begin a streamed answer, and return what leaves it."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class ChatFront(Front):
    """OpenAI's client, with Chat Completions."""

    name = "chat"
    protocol = "openai_chat"
    path = "/v1/chat/completions"
    ends: Mapping[str, str] = {"done": "stop", "call": "tool_calls", "cut": "length"}
    error = openai.APIStatusError

    def __init__(self, url: str, key: str = TOKEN, **options: Any) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, **options)

    def outputs(self, outputs: Mapping[str, Any]) -> list[Any]:
        return [{"role": "tool", "tool_call_id": id, "content": text} for id, text in outputs.items()]

    def picture(self) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}

    def ask(
        self, messages: Sequence[Any], *, stream: bool = False, tools: Sequence[Schema] = (), **more: Any
    ) -> Answer:
        arguments: dict[str, Any] = {"model": "agent", "messages": messages, **more}
        if tools:
            functions = [{"name": tool.name, "parameters": tool.parameters} for tool in tools]
            arguments["tools"] = [{"type": "function", "function": function} for function in functions]
        if not stream:
            return self._whole(self.client.chat.completions.create(**arguments))
        arguments["stream_options"] = {"include_usage": True}
        with self.client.chat.completions.stream(**arguments) as events:
            return self._whole(events.get_final_completion())

    @staticmethod
    def _whole(completion: Any) -> Answer:
        choice, usage = completion.choices[0], completion.usage
        message = choice.message
        calls = message.tool_calls or []
        turn: dict[str, Any] = {"role": "assistant", "content": message.content}
        if calls:
            turn["tool_calls"] = [call.model_dump(include={"id", "type", "function"}) for call in calls]
        return Answer(
            completion.id,
            message.content or "",
            getattr(message, "reasoning_content", None) or "",
            [(call.id, call.function.name, json.loads(call.function.arguments)) for call in calls],
            choice.finish_reason,
            None if usage is None else (usage.prompt_tokens, usage.completion_tokens),
            [turn],
        )

    def begin(self, messages: Sequence[Any], model: str = "agent") -> Callable[[], object]:
        stream = self.client.chat.completions.create(model=model, messages=messages, stream=True)  # type: ignore[call-overload]
        next(iter(stream))
        leave: Callable[[], object] = stream.close
        return leave

    def close(self) -> None:
        self.client.close()


class MessagesFront(Front):
    """Anthropic's client."""

    name = "messages"
    protocol = "anthropic"
    path = "/v1/messages"
    ends: Mapping[str, str] = {"done": "end_turn", "call": "tool_use", "cut": "max_tokens"}
    error = anthropic.APIStatusError

    def __init__(self, url: str, key: str = TOKEN, **options: Any) -> None:
        self.client = anthropic.Anthropic(base_url=url, api_key=key, **options)

    def outputs(self, outputs: Mapping[str, Any]) -> list[Any]:
        results = [{"type": "tool_result", "tool_use_id": id, "content": text} for id, text in outputs.items()]
        return [{"role": "user", "content": results}]

    def picture(self) -> dict[str, Any]:
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}

    def ask(
        self, messages: Sequence[Any], *, stream: bool = False, tools: Sequence[Schema] = (), **more: Any
    ) -> Answer:
        arguments: dict[str, Any] = {"model": "agent", "max_tokens": 100, "messages": messages, **more}
        if tools:
            arguments["tools"] = [{"name": tool.name, "input_schema": tool.parameters} for tool in tools]
        if not stream:
            return self._whole(self.client.messages.create(**arguments))
        with self.client.messages.stream(**arguments) as events:
            return self._whole(events.get_final_message())

    @staticmethod
    def _whole(message: Any) -> Answer:
        calls = [(one.id, one.name, one.input) for one in message.content if one.type == "tool_use"]
        return Answer(
            message.id,
            "".join(one.text for one in message.content if one.type == "text"),
            "".join(one.thinking for one in message.content if one.type == "thinking"),
            calls,
            message.stop_reason,
            (message.usage.input_tokens, message.usage.output_tokens),
            [{"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in message.content]}],
        )

    def begin(self, messages: Sequence[Any], model: str = "agent") -> Callable[[], object]:
        stream = self.client.messages.create(model=model, max_tokens=100, messages=[*messages], stream=True)
        next(iter(stream))
        return stream.close

    def close(self) -> None:
        self.client.close()


class ResponsesFront(Front):
    """OpenAI's client, with Responses."""

    name = "responses"
    protocol = "openai_responses"
    path = "/v1/responses"
    ends: Mapping[str, str] = {"done": "completed", "call": "completed", "cut": "incomplete"}
    error = openai.APIStatusError

    def __init__(self, url: str, key: str = TOKEN, **options: Any) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, **options)

    def outputs(self, outputs: Mapping[str, Any]) -> list[Any]:
        return [{"type": "function_call_output", "call_id": id, "output": text} for id, text in outputs.items()]

    def picture(self) -> dict[str, Any]:
        return {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}

    def ask(
        self, messages: Sequence[Any], *, stream: bool = False, tools: Sequence[Schema] = (), **more: Any
    ) -> Answer:
        arguments: dict[str, Any] = {"model": "agent", "input": messages, **more}
        if tools:
            functions = [{"type": "function", "name": tool.name, "parameters": tool.parameters} for tool in tools]
            arguments["tools"] = functions
        if not stream:
            return self._whole(self.client.responses.create(**arguments))
        for event in self.client.responses.create(stream=True, **arguments):
            if event.type == "response.failed":
                raise openai.APIError(event.response.error.message, None, body=None)  # type: ignore[arg-type]
            if event.type in ("response.completed", "response.incomplete"):
                return self._whole(event.response)
        raise AssertionError("the stream was cut off")

    @staticmethod
    def _whole(response: Any) -> Answer:
        output, usage = response.output, response.usage
        summaries = [part.text for one in output if one.type == "reasoning" for part in one.summary]
        calls = [one for one in output if one.type == "function_call"]
        return Answer(
            response.id,
            response.output_text,
            "".join(summaries),
            [(call.call_id, call.name, json.loads(call.arguments)) for call in calls],
            response.status,
            None if usage is None else (usage.input_tokens, usage.output_tokens),
            [one.model_dump(exclude_none=True) for one in output],
        )

    def begin(self, messages: Sequence[Any], model: str = "agent") -> Callable[[], object]:
        stream = self.client.responses.create(model=model, input=[*messages], stream=True)
        next(iter(stream))
        return stream.close

    def close(self) -> None:
        self.client.close()


FRONTS: tuple[type[Front], ...] = (ChatFront, MessagesFront, ResponsesFront)
