"""aiohttp: a `StreamResponse` sends an answer to the browser as it comes.

    python examples/sse_aiohttp.py            # serves one question, and prints what the browser gets
    python examples/sse_aiohttp.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs `pip install aiohttp`.)
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from _model import async_model
from _web import FOREVER, PORT, SCRIPT, Saved, ask
from aiohttp import web

import streamkit as sk


async def chat(request: web.Request) -> web.StreamResponse:
    question = (await request.json())["question"]
    stream = sk.astream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    async with aclosing(stream.sse("vercel_ui")) as body:  # aiohttp does not close it
        response = web.StreamResponse(headers=body.headers)
        await response.prepare(request)
        async for chunk in body:
            await response.write(chunk)
    return response


async def main() -> None:
    global client, name
    async with async_model(*SCRIPT) as (client, name):
        app = web.Application()
        app.router.add_post("/chat", chat)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        if FOREVER:
            await asyncio.Event().wait()
        await asyncio.to_thread(ask, runner.addresses[0][1])
        await runner.cleanup()


asyncio.run(main())
