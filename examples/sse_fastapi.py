"""FastAPI: its own `StreamingResponse` sends an answer to the browser as it comes.

    python examples/sse_fastapi.py            # serves one question, and prints what the browser gets
    python examples/sse_fastapi.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs
`pip install fastapi uvicorn`.)
"""

from __future__ import annotations

import asyncio
from typing import Annotated

from _model import async_model
from _web import SCRIPT, Saved, serve_asgi
from fastapi import Body, FastAPI
from fastapi.responses import StreamingResponse

import streamkit as sk

app = FastAPI()


@app.post("/chat")
async def chat(question: Annotated[str, Body(embed=True)]) -> StreamingResponse:
    stream = sk.astream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    body = stream.sse("vercel_ui")
    return StreamingResponse(body, headers=body.headers)


async def main() -> None:
    global client, name
    async with async_model(*SCRIPT) as (client, name):
        await serve_asgi(app)


asyncio.run(main())
