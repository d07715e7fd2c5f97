"""What a long-lived application does again and again. Each activity ends by itself, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import random
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

import streamkit as sk
from streamkit.computer import Computer

from ..server.parts import Client, frames_of, wait_for
from .application import PROTOCOLS, Application, Clients, agent_options, async_clients, opener

__all__ = ["ACTIVITIES", "Activity"]

Activity = Callable[[Application, random.Random], None]
BREAKING = ("cut", "error", "refused")
FORMATS = ("streamkit", "vercel_ui", "ag_ui", "openai_chat")
WAITING = {"python": "import time\nprint(1, flush=True)\ntime.sleep(60)", "shell": "echo 1\nsleep 60"}
SHORT = {"python": "print(1)\n1/0", "shell": "echo 1"}


class Counting(sk.EventHandler):
    """Counts deltas."""

    def __init__(self) -> None:
        self.deltas = 0

    def on_text_delta(self, delta: Any, snapshot: Any) -> None:
        self.deltas += 1


class Answering(sk.EventHandler):
    """Answers confirmations in one way."""

    def __init__(self, dice: random.Random) -> None:
        self.way = dice.choice(("approve", "decline", "decline because", "nothing", "defer", "another thread"))

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        match self.way:
            case "approve":
                confirmation.approve()
            case "decline":
                confirmation.decline()
            case "decline because":
                confirmation.decline("not today")
            case "defer":
                confirmation.defer(timeout=0.05)
            case "another thread":
                confirmation.defer(timeout=20)
                threading.Timer(0.05, confirmation.approve).start()
            case _:
                pass


@contextlib.contextmanager
def later(seconds: float, function: Callable[[], object]) -> Iterator[None]:
    """Call a function in another thread, meanwhile."""
    timer = threading.Timer(seconds, function)
    timer.start()
    try:
        yield
    finally:
        timer.join()


# -- streams in threads


def whole(app: Application, dice: random.Random) -> None:
    """Read to the end."""
    handler = Counting()
    text = sk.stream(opener(app.clients, dice.choice(PROTOCOLS), "hello"), handler).get_final_text()
    assert handler.deltas and text.startswith("You said")


def broken(app: Application, dice: random.Random) -> None:
    """Fail: the connection breaks, or the provider reports an error."""
    with contextlib.suppress(sk.StreamkitError):
        sk.stream(opener(app.clients, dice.choice(PROTOCOLS), dice.choice(BREAKING))).until_done()
        raise AssertionError("it did not fail")


def cancelled(app: Application, dice: random.Random) -> None:
    """Cancel from another thread."""
    stream = sk.stream(opener(app.clients, dice.choice(PROTOCOLS), "hang"))
    with stream, later(dice.uniform(0, 0.1), stream.cancel):
        stream.until_done()


def left(app: Application, dice: random.Random) -> None:
    """Leave by `break`, and close."""
    count = dice.randrange(4)
    with sk.stream(opener(app.clients, dice.choice(PROTOCOLS), dice.choice(("hang", "hello")))) as stream:
        for number, _ in enumerate(stream):
            if number == count:
                break


def dropped(app: Application, dice: random.Random) -> None:
    """Drop without a close."""
    events = iter(sk.stream(opener(app.clients, dice.choice(PROTOCOLS), "hang"), Counting()))
    for _ in range(dice.randrange(5)):
        next(events)
    del events
    gc.collect()


def bodies(app: Application, dice: random.Random) -> None:
    """Read a body for a browser to its end, or abandon it."""
    is_read, format = dice.random() < 0.5, dice.choice(FORMATS)
    stream = sk.stream(opener(app.clients, dice.choice(PROTOCOLS), "hello" if is_read else "hang"))
    body = stream.sse(format) if dice.random() < 0.5 else stream.ndjson(format)
    if is_read:
        assert b"".join(body)
        return
    next(body)
    if dice.random() < 0.5:
        body.close()
    del body, stream
    gc.collect()


# -- agents and computers


def agents(app: Application, dice: random.Random) -> None:
    """Turns with tools and approvals, and one that is stopped."""
    agent = sk.Agent(**agent_options(app.clients, dice.choice(PROTOCOLS)))
    for text in ("weather", "careful", "hello"):
        agent.stream(text, Answering(dice)).until_done()
    stream = agent.stream("hang")
    with stream, later(0.05, stream.cancel):
        stream.until_done()


def coding(app: Application, dice: random.Random) -> None:
    """An agent that runs code."""
    with app.computer_lock:
        agent = sk.Agent(**agent_options(app.clients, dice.choice(PROTOCOLS)), computer=app.computer)
        agent.stream("code", Answering(dice)).until_done()


def code(app: Application, dice: random.Random) -> None:
    """Run code on the computer that lives on; interrupt it, let it time out, close it."""
    language = dice.choice(("python", "shell"))
    with app.computer_lock, contextlib.suppress(sk.RunFailedError):
        match dice.randrange(4):
            case 0:
                sk.stream(app.computer.run(language, SHORT[language])).until_done()
            case 1:
                execution = app.computer.run(language, WAITING[language])
                with later(0.3, execution.interrupt):
                    sk.stream(execution).until_done()
            case 2:
                sk.stream(app.computer.run(language, WAITING[language], timeout=0.2)).until_done()
            case _:
                with sk.stream(app.computer.run(language, WAITING[language])) as stream:
                    next(iter(stream))


def computers(app: Application, dice: random.Random) -> None:
    """A computer that is closed, or dropped, while it runs code or after that."""
    computer = Computer()
    language = "python" if dice.random() < 0.1 else "shell"
    events = iter(sk.stream(computer.run(language, dice.choice((SHORT, WAITING))[language])))
    next(events)
    if dice.random() < 0.5:
        computer.close()
    del computer, events
    gc.collect()


# -- relays and the server


def relayed(app: Application, dice: random.Random) -> None:
    """An emitter in a thread, and readers of which one resumes where another left."""
    run_id = f"run-{next(app.numbers)}"
    emitter = sk.Emitter(app.relay, run_id)
    closes, count = dice.random() < 0.8, dice.randrange(30)
    producer = threading.Thread(target=_emit, args=(emitter, closes))
    with sk.stream(app.relay.reader(run_id), Answering(dice)) as stream:
        producer.start()
        for number, _ in enumerate(stream):
            if number == count:
                break
    producer.join()
    if closes:
        assert "and so on" in sk.stream(app.relay.reader(run_id), after=stream.cursor).get_final_text()


def _emit(emitter: sk.Emitter, closes: bool) -> None:
    for number in range(10):
        emitter.text(f"{number} ")
        emitter.code("print(1)", "python")
    emitter.confirm(timeout=0.05)
    emitter.text("and so on")
    if closes:
        emitter.close()


def requests(app: Application, dice: random.Random) -> None:
    """A run behind the server: read, resumed, cancelled, answered or abandoned by its client."""
    conversation, way = f"c-{next(app.numbers)}", dice.choice(("read", "resume", "cancel", "answer", "abandon"))
    text = {"cancel": "hang", "abandon": "hang", "answer": "careful"}.get(
        way, dice.choice(("hello", "slow", "weather"))
    )
    metadata = {"kind": dice.choice(("sync", "async")), "protocol": dice.choice(PROTOCOLS)}
    with Client(app.url, verify=False) as client:
        if way == "abandon":
            _abandon(client, dice, {"input": text, "conversation": conversation, "metadata": metadata})
        else:
            _follow(client, dice, way, client.begin(text, conversation=conversation, metadata=metadata)["id"])
        wait_for(lambda: client.delete(f"/conversations/{conversation}").status_code in (204, 404))


def _abandon(client: Client, dice: random.Random, body: dict[str, Any]) -> None:
    body |= {"stream": True, "on_disconnect": dice.choice(("cancel", "continue"))}
    body["protocol"] = dice.choice(("streamkit", "vercel_ui", "ag_ui"))
    with client.stream("POST", "/runs", json=body) as response:
        for _ in zip(range(dice.randrange(3)), frames_of(response.iter_text()), strict=False):
            pass
        run_id = response.headers["x-streamkit-run"]
    if body["on_disconnect"] == "continue":
        client.post(f"/runs/{run_id}/cancel")


def _follow(client: Client, dice: random.Random, way: str, run_id: str) -> None:
    if way == "resume":
        with client.stream("GET", f"/runs/{run_id}/events") as response:
            frames = zip(range(dice.randrange(1, 8)), frames_of(response.iter_text()), strict=False)
            cursor = [frame.id for _, frame in frames][-1]
        client.events(run_id, headers={"Last-Event-ID": cursor})
        return
    if way == "cancel":
        client.post(f"/runs/{run_id}/cancel")
    if way == "answer" and dice.random() < 0.7:
        question = client.until_asked(run_id)["id"]
        client.post(f"/runs/{run_id}/answers/{question}", json={"approved": dice.random() < 0.5})
    elif way == "answer":
        client.until_asked(run_id)
        client.post(f"/runs/{run_id}/cancel")
    client.events(run_id)


# -- streams in tasks


async def async_streams(clients: Clients, dice: random.Random) -> None:
    """Read to the end, fail, or leave by `break`."""
    text = dice.choice(("hello", "hang", *BREAKING))
    with contextlib.suppress(sk.SourceError, sk.RunFailedError, sk.IncompleteStreamError):
        async with sk.astream(opener(clients, dice.choice(PROTOCOLS), text), Counting()) as stream:
            if text != "hang":
                await stream.until_done()
            async for _ in stream:
                break


async def async_cancels(clients: Clients, dice: random.Random) -> None:
    """Cancel from another task, from a thread, or with the scope around it."""
    seconds = dice.uniform(0, 0.1)
    with anyio.CancelScope() as scope:
        async with sk.astream(opener(clients, dice.choice(PROTOCOLS), "hang")) as stream:
            ways = (stream.cancel, scope.cancel, partial(anyio.to_thread.run_sync, stream.cancel))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_after, seconds, dice.choice(ways))
                await stream.until_done()


async def _after(seconds: float, function: Callable[[], Any]) -> None:
    await anyio.sleep(seconds)
    result = function()
    if result is not None:
        await result


async def async_dropped(clients: Clients, dice: random.Random) -> None:
    """Drop without a close."""
    events = aiter(sk.astream(opener(clients, dice.choice(PROTOCOLS), "hang"), Counting()))
    for _ in range(dice.randrange(5)):
        await anext(events)
    del events
    gc.collect()


async def async_bodies(clients: Clients, dice: random.Random) -> None:
    """Read a body for a browser to its end, or abandon it."""
    is_read, format = dice.random() < 0.5, dice.choice(FORMATS)
    stream = sk.astream(opener(clients, dice.choice(PROTOCOLS), "hello" if is_read else "hang"))
    body = stream.sse(format) if dice.random() < 0.5 else stream.ndjson(format)
    if is_read:
        assert [chunk async for chunk in body]
        return
    await anext(body)
    if dice.random() < 0.5:
        await body.aclose()
    del body, stream
    gc.collect()


async def async_agents(clients: Clients, dice: random.Random) -> None:
    """Turns with tools and approvals, and one that is stopped."""
    agent = sk.AsyncAgent(**agent_options(clients, dice.choice(PROTOCOLS)))
    for text in ("weather", "careful", "hello"):
        await agent.stream(text, Answering(dice)).until_done()
    with anyio.move_on_after(0.05):
        async with agent.stream("hang") as stream:
            await stream.until_done()


_Async = Callable[[Clients, random.Random], Awaitable[None]]


def on_asyncio(activity: _Async) -> Activity:
    """The activity in the application's event loop."""

    def run(app: Application, dice: random.Random) -> None:
        async def main() -> None:
            await activity(app.async_clients, dice)

        app.run(main())

    return run


def on_trio(activity: _Async) -> Activity:
    """The activity in an event loop of its own."""

    def run(app: Application, dice: random.Random) -> None:
        async def main() -> None:
            with anyio.fail_after(60):
                async with async_clients(app.model_url) as clients:
                    await activity(clients, dice)

        anyio.run(main, backend="trio")

    return run


_SYNC = (whole, broken, cancelled, left, dropped, bodies, agents, coding, code, computers, relayed, requests)
_ASYNC = (async_streams, async_cancels, async_dropped, async_bodies, async_agents)
ACTIVITIES: Mapping[str, Activity] = {
    **{activity.__name__: activity for activity in _SYNC},
    **{f"{activity.__name__}-asyncio": on_asyncio(activity) for activity in _ASYNC},
    **{f"{activity.__name__}-trio": on_trio(activity) for activity in _ASYNC},
}
