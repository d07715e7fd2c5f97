"""What the examples of web frameworks share: a server on this machine, and a request to it, as a browser makes it.

With `--serve` they serve on port 8000 until Ctrl-C. Try `curl -N -d '{"question": "Hello"}' localhost:8000/chat`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import streamkit as sk
from streamkit.testing import Reply

SCRIPT = [Reply("Because blue light is scattered the most.", delay=0.01)]
FOREVER = "--serve" in sys.argv
PORT = 8000 if FOREVER else 0
if not FOREVER:
    logging.disable(logging.INFO)  # no log of the request stands between its lines


class Saved(sk.EventHandler):
    """A hook on the server. (This one only says what it would save.)"""

    def on_end(self) -> None:
        print(f"saved: {''.join(one.content for one in self.stream.messages)}\n", end="", flush=True)


def ask(port: int) -> None:
    """Post a question, and print each line of the answer when it comes."""
    body = json.dumps({"question": "Why is the sky blue?"}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/chat", body, {"Content-Type": "application/json"})
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with no_proxy.open(request) as response:
        for line in filter(bytes.strip, response):
            print(line.decode(), end="", flush=True)


async def serve_asgi(app: Any) -> None:
    """Serve an ASGI application with uvicorn."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, lifespan="off"))
    with socket.create_server(("127.0.0.1", PORT)) as listener:
        serving = asyncio.create_task(server.serve([listener]))
        if not FOREVER:
            await asyncio.to_thread(ask, listener.getsockname()[1])
            server.should_exit = True
        await serving


def serve_wsgi(make_server: Callable[[int], Any]) -> None:
    """Serve with a server for threads, which is made for a port."""
    server = make_server(PORT)
    if FOREVER:
        server.serve_forever()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    ask(server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()
