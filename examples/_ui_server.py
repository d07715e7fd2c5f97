"""The server of the examples for user interfaces: a built page, and streamkit's app at `/api`, on this machine alone.

    npm install --prefix examples/react-usechat && npm run build --prefix examples/react-usechat
    python examples/_ui_server.py examples/react-usechat/dist

The model is a scripted one: it writes code, waits for a yes, and answers. The page's address has the token in its fragment.
"""

from __future__ import annotations

import secrets
import socket
import sys
from typing import Any

import openai
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

import streamkit as sk
from streamkit.computer import Computer
from streamkit.server import create_app
from streamkit.testing import ModelServer, Reply, Request, Text, ToolCall

CODE = "print(sum(range(101)))"
WORDS = " ".join(f"word{number}" for number in range(60))


def reply(request: Request) -> Reply:
    """What the model answers: at first code, twice the code to anything with "twice" in it, and after its output, or to
    anything with "slow" in it, a text."""
    items: Any = request.body["messages"]
    if items[-1]["role"] == "tool":
        return Reply(f"The code printed {items[-1]['content'].strip()}.")
    said = str(items[-1]["content"])
    if "slow" in said:
        return Reply(WORDS, delay=0.08)
    call = ToolCall("execute", {"language": "python", "code": CODE})
    return Reply(Text("Let me add them up."), *[call] * (2 if "twice" in said else 1), delay=0.01)


def main(folder: str, port: int = 0) -> None:
    """Serve until Ctrl-C."""
    token = secrets.token_urlsafe(24)
    with (
        ModelServer(reply) as models,
        openai.OpenAI(
            base_url=models.url, api_key="none", http_client=openai.DefaultHttpxClient(trust_env=False)
        ) as client,
        Computer() as computer,
    ):
        api = create_app(lambda context: sk.Agent(client, model="scripted", computer=computer), token=token)
        page = StaticFiles(directory=folder, html=True)
        app = Starlette(routes=[Mount("/api", api), Mount("/", page)])
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
        with socket.create_server(("127.0.0.1", port)) as listener:
            print(f"http://127.0.0.1:{listener.getsockname()[1]}/#token={token}", flush=True)
            uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:2])
