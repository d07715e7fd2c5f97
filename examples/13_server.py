"""A server of agents: a run goes on apart from the requests that begin it, read it, and answer its question.

    python examples/13_server.py            # serves, and is its own client
    python examples/13_server.py --serve    # serves on port 8000, until Ctrl-C

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs
`pip install "streamkit-sdk[server]"`.)
"""

from __future__ import annotations

import json
import logging
import secrets
import socket
import sys
import threading
import urllib.request
from typing import Any

import uvicorn
from _model import model

import streamkit as sk
from streamkit.agent import tool
from streamkit.server import Context, create_app
from streamkit.testing import Reply, ToolCall

SCRIPT = (Reply("I will book it. ", ToolCall("book", {"city": "Oslo"})), Reply("Your room in Oslo is booked."))
TOKEN = secrets.token_urlsafe()
FOREVER = "--serve" in sys.argv


@tool(confirm=True)
def book(city: str) -> str:
    """Book a room.

    Args:
        city: where
    """
    return f"booked in {city}"


class Client:
    """What a browser does, in short."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open  # no proxy leads to this machine

    def request(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        return self.open(urllib.request.Request(self.url + path, data, headers))


class Terminal(sk.EventHandler):
    """Shows the events of the run, and answers its question in another request."""

    def __init__(self, client: Client, run_id: str) -> None:
        self.client = client
        self.run_id = run_id

    def on_text_delta(self, delta: sk.TextDelta, snapshot: sk.TextMessage) -> None:
        if snapshot.role == "assistant":
            print(delta, end="", flush=True)

    def on_confirmation(self, confirmation: sk.Confirmation) -> None:
        print(f"\n{confirmation.subject.name}({confirmation.subject.content})? yes")
        path = f"/runs/{self.run_id}/answers/{confirmation.id}"
        answered = json.load(self.client.request(path, {"approved": True}))
        print(f"({answered['status']})")


def use(port: int) -> None:
    """Begin a run, follow it, and see how it ended."""
    client = Client(port)
    run = json.load(client.request("/runs", {"input": "Book me a room in Oslo."}))
    with client.request(f"/runs/{run['id']}/events") as response:
        sk.stream(iter(lambda: response.read1(65_536), b""), Terminal(client, run["id"])).until_done()
    ended = json.load(client.request(f"/runs/{run['id']}"))
    print(f"\n(the run is {ended['status']}; {ended['usage']['total_tokens']} tokens)")


def main() -> None:
    with model(*SCRIPT) as (client, name):

        def factory(context: Context) -> sk.Agent:
            return sk.Agent(client, model=name, tools=[book], protocol="openai_responses")

        app = create_app(factory, token=TOKEN, allowed_hosts=["localhost"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="info" if FOREVER else "error"))
        with socket.create_server(("127.0.0.1", 8000 if FOREVER else 0)) as listener:
            if FOREVER:
                print(f"Authorization: Bearer {TOKEN}")
                server.run([listener])
                return
            logging.disable(logging.INFO)
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            use(listener.getsockname()[1])
            server.should_exit = True
            thread.join()


main()
