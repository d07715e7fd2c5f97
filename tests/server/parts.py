"""What the tests of the server share: a scripted model, agents on it, and apps behind a real server."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import uvicorn

import streamkit as sk
from streamkit.agent import Agent, AsyncAgent, tool
from streamkit.server import Context
from streamkit.testing import ModelServer, Reply, Request, ToolCall

from ..agent.parts import ToyComputer, code

__all__ = ["TOKEN", "Agents", "Client", "Frame", "eventually", "frames_of", "serve", "wait_for"]

TOKEN = "correct-horse"
_TIMEOUT = (
    12.0  # seconds of silence; less than those until a keepalive comment, which would keep a test waiting for ever
)
SECRET = "sk-secret /home/somebody"  # in errors that no client may see
ASK = {
    "name": "ask",
    "description": "Ask.",
    "parameters": {"type": "object", "properties": {"question": {"type": "string"}}},
}


def reply_to(request: Request) -> Reply:
    """What the model answers: what the user's last words ask for."""
    messages = request.body["messages"]
    last = messages[-1]
    if last["role"] == "tool":
        before = [message for message in messages if message["role"] == "user"][-1]
        if not str(before["content"]).startswith(("steps ", "each ")):
            return Reply(f"It gave: {last['content']}")
        last = before
    content = last["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content if "text" in part]
    text = texts[-1]  # messages of the user with no answer between them are parts of one
    word, _, rest = text.partition(" ")
    match word:
        case "run":
            return Reply("I will. ", *map(code, rest.split(" & ")))
        case "ask":
            return Reply(ToolCall("ask", {"question": rest}))
        case "research":  # of a sub-agent, which reads the rest; `|` stands between two of them
            return Reply(*(ToolCall("research", {"input": one.strip()}) for one in rest.split("|")))
        case "both":
            return Reply(ToolCall("ask", {"question": "1"}), ToolCall("ask", {"question": "2"}))
        case "careful-and-ask":
            return Reply(ToolCall("careful", {"n": int(rest)}), ToolCall("ask", {"question": "1"}))
        case (
            "client-last" | "client-first"
        ):  # a tool that is confirmed, code, one that is not confirmed, and one of the client
            calls = (ToolCall("careful", {"n": int(rest)}), code(f"say {rest}"), ToolCall("look", {"n": int(rest)}))
            asks = ToolCall("ask", {"question": "1"})
            return Reply(*calls, asks) if word == "client-last" else Reply(asks, *calls)
        case "steps":  # one call of `careful` after the other
            done = sum(message["role"] == "tool" for message in messages)
            return Reply(ToolCall("careful", {"n": done + 1})) if done < int(rest) else Reply(f"Did {done}.")
        case "each":  # the same, with these numbers
            done = sum(message["role"] == "tool" for message in messages)
            numbers = rest.split()
            return Reply(ToolCall("careful", {"n": int(numbers[done])})) if done < len(numbers) else Reply("Did all.")
        case "careful":
            return Reply(*(ToolCall("careful", {"n": int(number)}) for number in rest.split() or "1"))
        case "hang":
            return Reply("Once upon ", "a time", never_ends=True)
        case "fail":
            return Reply(status=500, error=None, headers={"x-secret": SECRET})
        case "break":
            return Reply("Half of ", "it", "and more", cut_after=1)
        case "count":
            return Reply(*(f"{number} " for number in range(int(rest))))
        case _:
            return Reply(f"You said: {text}")


class Agents:
    """Makes agents on one scripted model: in a thread, unless a run's metadata says `{"kind": "async"}`.

    Attributes:
        ran: what the tool `careful` was called with.
        looked: what the tool `look` was called with, which nobody has to confirm.
        computers: those of all agents.
        contexts: what they were made for.
    """

    def __init__(self, url: str | None = None, path: str | None = None) -> None:
        self.model = ModelServer(reply_to)
        url = url or self.model.url  # of another process's
        self.ran: list[int] = []
        self.looked: list[int] = []
        self._path = path  # of a file with what ran in all processes
        self.computers: list[Any] = []
        self.contexts: list[Context] = []
        self.with_computer = True
        self._client = openai.OpenAI(base_url=url, api_key=SECRET, max_retries=0)
        # Its connections end with each response: none outlives the event loop of its server.
        headers = {"Connection": "close"}
        self._async_client = openai.AsyncOpenAI(base_url=url, api_key=SECRET, max_retries=0, default_headers=headers)

    def __call__(self, context: Context) -> Agent | AsyncAgent:
        self.contexts.append(context)
        if context.metadata.get("kind") == "broken":
            raise LookupError(SECRET)

        @tool(confirm=True)
        def careful(n: int) -> str:
            """Do it.

            Args:
                n: how often.
            """
            self.ran.append(n)
            if self._path is not None:
                with open(self._path, "a") as file:
                    file.write(f"{n}\n")
            return f"careful {n}"

        def look(n: int) -> str:
            """Look."""
            self.looked.append(n)
            return f"look {n}"

        computer = ToyComputer() if self.with_computer else None
        self.computers.append(computer)
        options: dict[str, Any] = {
            "tools": [careful, look, ASK],
            "computer": computer,
            "protocol": "openai_chat",
            "model": "m",
        }
        kind, client = (
            (AsyncAgent, self._async_client) if context.metadata.get("kind") == "async" else (Agent, self._client)
        )
        inner = kind(client, model="m", protocol="openai_chat", tools=[careful, look, ASK], name="research")
        options["tools"].append(inner.as_tool())
        return kind(client, **options)

    @property
    def code_that_ran(self) -> list[str]:
        return [source for computer in self.computers if computer is not None for source in computer.ran]

    def forget(self) -> None:
        """Empty the records of what ran."""
        for records in (self.ran, self.looked, self.computers, self.contexts):
            records.clear()

    def close(self) -> None:
        self._client.close()
        self.model.close()

    async def aclose(self) -> None:
        """As `close`, in the event loop in which agents ran."""
        await self._async_client.close()
        self.close()


@contextlib.contextmanager
def serve(app: Any, **options: Any) -> Iterator[str]:
    """The app behind uvicorn on loopback, in a thread. Gives its address."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # so named, asyncio sends at once
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1, **{"lifespan": "on", **options})
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()


def wait_for(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What the condition gives, once it is true."""
    end, pause = time.monotonic() + seconds, 0.002
    while not (value := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(pause)
        pause = min(
            1.5 * pause, 0.05
        )  # most conditions ask a server, which would do nothing else for as long as a lease
    return value


eventually = wait_for


class Frame:
    """One frame of an event stream.

    Attributes:
        id: its cursor, None without one.
        data: its value; its text where that is no JSON.
    """

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        self.id = next((line[4:] for line in lines if line.startswith("id: ")), None)
        data = next((line[6:] for line in lines if line.startswith("data: ")), None)
        self.is_comment = data is None
        try:
            self.data: Any = None if data is None else json.loads(data)
        except ValueError:
            self.data = data

    @property
    def type(self) -> Any:
        return self.data.get("type") if isinstance(self.data, dict) else self.data


def frames_of(lines: Iterator[str]) -> Iterator[Frame]:
    """The frames of an event stream, as they come. What is no event is left out."""
    text = ""
    for piece in lines:
        text += piece
        while "\n\n" in text:
            block, text = text.split("\n\n", 1)
            frame = Frame(block)
            if not frame.is_comment:
                yield frame


class Client(httpx.Client):
    """A client of a server, with its token."""

    def __init__(self, url: str, **options: Any) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}", **options.pop("headers", {})}
        super().__init__(base_url=url, headers=headers, timeout=_TIMEOUT, **options)

    def begin(self, input: Any, **more: Any) -> dict[str, Any]:
        """Begin a run."""
        response = self.post("/runs", json={"input": input, **more})
        assert response.status_code == 201, response.text
        run: dict[str, Any] = response.json()
        return run

    def run(self, id: str) -> dict[str, Any]:
        """What is known of a run."""
        run: dict[str, Any] = self.get(f"/runs/{id}").json()
        return run

    def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """A run, once it has one of these statuses."""
        run: dict[str, Any] = wait_for(lambda: (run := self.run(id))["status"] in statuses and run)
        return run

    def until_asked(self, id: str) -> dict[str, Any]:
        """The open question of a run, once there is one."""
        run = wait_for(lambda: (run := self.run(id))["pending"] and run)
        question: dict[str, Any] = run["pending"][0]
        return question

    def frames(self, path: str, *, method: str = "GET", **options: Any) -> list[Frame]:
        """All frames of a stream, up to its end."""
        with self.stream(method, path, **options) as response:
            assert response.status_code == 200, response.read()
            return [*frames_of(response.iter_text())]

    def events(self, id: str, **options: Any) -> list[Frame]:
        """All events of a run."""
        return self.frames(f"/runs/{id}/events", **options)


class Records(logging.Handler):
    """Collects what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


def said(frames: list[Frame], role: str = "assistant") -> str:
    """The text in frames of the native protocol."""
    ids = {f.data["message"]["id"] for f in frames if f.type == "text_created" and f.data["message"]["role"] == role}
    return "".join(f.data["value"] for f in frames if f.type == "text_delta" and f.data["message_id"] in ids)


__all__ += ["ASK", "SECRET", "Records", "said", "sk"]
