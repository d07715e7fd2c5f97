"""Starlette: `EventStreamResponse` sends an answer to the browser as it comes.

    python examples/sse_starlette.py            # serves one question, and prints what the browser gets
    python examples/sse_starlette.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs
`pip install "streamkit-sdk[server]"`.)
"""

from __future__ import annotations

import asyncio

from _model import async_model
from _web import SCRIPT, Saved, serve_asgi
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

import streamkit as sk
from streamkit.server import EventStreamResponse


async def chat(request: Request) -> EventStreamResponse:
    question = (await request.json())["question"]
    stream = sk.astream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    return EventStreamResponse(stream, "vercel_ui")


app = Starlette(routes=[Route("/chat", chat, methods=["POST"])])


async def main() -> None:
    global client, name
    async with async_model(*SCRIPT) as (client, name):
        await serve_asgi(app)


asyncio.run(main())
