"""An application that lives long: clients, an event loop, a computer, a relay, and agents behind an HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import anthropic
import openai

import streamkit as sk
from streamkit.computer import Computer
from streamkit.server import Context, create_app

from ..server.parts import TOKEN, serve

__all__ = ["PROTOCOLS", "Application", "Clients", "agent_options", "async_clients", "opener", "sync_clients"]

PROTOCOLS = ("openai_responses", "openai_chat", "anthropic")
# Seconds: soon over, but not before a busy machine has read what ended.
_RETENTION: dict[str, float] = {"ttl_ended": 6.0, "ttl_running": 20.0, "ttl_paused": 8.0}


class Clients(NamedTuple):
    """The clients of both providers, of one kind."""

    openai: Any
    anthropic: Any


# A connection ends with its response, so that those which are open are those of streams.
_OPTIONS: dict[str, Any] = {"api_key": "any", "max_retries": 0, "default_headers": {"Connection": "close"}}


def sync_clients(url: str) -> Clients:
    """Clients for threads."""
    return Clients(
        openai.OpenAI(base_url=f"{url}/v1", **_OPTIONS),
        anthropic.Anthropic(base_url=url, **_OPTIONS),
    )


@contextlib.asynccontextmanager
async def async_clients(url: str) -> AsyncIterator[Clients]:
    """Clients for tasks."""
    async with (
        openai.AsyncOpenAI(base_url=f"{url}/v1", **_OPTIONS) as one,
        anthropic.AsyncAnthropic(base_url=url, **_OPTIONS) as other,
    ):
        yield Clients(one, other)


def opener(clients: Clients, protocol: str, text: str) -> Any:
    """A request that is not sent yet."""
    messages = [{"role": "user", "content": text}]
    more: dict[str, Any] = {"model": "m", "stream": True}
    match protocol:
        case "openai_responses":
            return lambda: clients.openai.responses.create(input=text, **more)
        case "openai_chat":
            return lambda: clients.openai.chat.completions.create(messages=messages, **more)
        case _:
            return lambda: clients.anthropic.messages.create(messages=messages, max_tokens=100, **more)


@sk.tool(confirm=True)
def careful(n: int) -> str:
    """Do it, once somebody has approved.

    Args:
        n: how often.
    """
    return f"careful {n}"


def weather(city: str) -> str:
    """Look up the weather.

    Args:
        city: where.
    """
    return f"rain in {city}"


def agent_options(clients: Clients, protocol: str) -> dict[str, Any]:
    """The arguments of an agent."""
    client, more = clients.openai, {"protocol": protocol}
    if protocol == "anthropic":
        client, more = clients.anthropic, {"max_tokens": 100}
    return {"client": client, "model": "m", "tools": [careful, weather], **more}


class Application:
    """What the activities share, until it is closed.

    Attributes:
        clients: for threads.
        async_clients: for tasks of `loop`.
        computer: one that all activities use, each while it has `computer_lock`.
        url: of the server.
        numbers: for names that are used once.
    """

    def __init__(self, model_url: str) -> None:
        self.model_url = model_url
        self.numbers = itertools.count(1)
        self.relay = sk.MemoryRelay(**_RETENTION)
        self.computer_lock = threading.Lock()
        self._loops: dict[str, asyncio.AbstractEventLoop] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        enter, callback = self._stack.enter_context, self._stack.callback
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(ThreadPoolExecutor(1))
        thread = threading.Thread(target=self._run_loop, name="application-loop", daemon=True)
        thread.start()
        callback(thread.join)
        callback(self.loop.call_soon_threadsafe, self.loop.stop)
        self._loops["loop"] = self.loop
        self.clients = sync_clients(self.model_url)
        for client in self.clients:
            callback(client.close)
        asynchronous = async_clients(self.model_url)
        self.async_clients = self.run(asynchronous.__aenter__())
        callback(lambda: self.run(asynchronous.__aexit__(None, None, None)))
        self.computer = enter(Computer())
        app = create_app(self._agent, token=TOKEN, relay=sk.MemoryRelay(**_RETENTION), pause_after=0.05)
        self.url = enter(serve(self._with_loop(app)))
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _run_loop(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _with_loop(self, app: Any) -> Any:
        """The app, which also opens and closes the clients that its agents have in the server's event loop."""

        async def served(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                self._loops["server"] = asyncio.get_running_loop()
                async with async_clients(self.model_url) as self._server_clients:
                    await app(scope, receive, send)
            else:
                await app(scope, receive, send)

        return served

    async def _agent(self, context: Context) -> Any:
        protocol = context.metadata["protocol"]
        if context.metadata["kind"] == "async":
            return sk.AsyncAgent(**agent_options(self._server_clients, protocol))
        return sk.Agent(**agent_options(self.clients, protocol))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the application's event loop, from a thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def count_tasks(self) -> int:
        """How many tasks there are in both event loops."""

        async def count() -> int:
            return len(asyncio.all_tasks()) - 1

        loops = self._loops.values()
        return sum(asyncio.run_coroutine_threadsafe(count(), loop).result(60) for loop in loops)
