"""Django on ASGI: `StreamingHttpResponse` sends an answer to the browser as it comes.

    python examples/sse_django_asgi.py            # serves one question, and prints what the browser gets
    python examples/sse_django_asgi.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs
`pip install django uvicorn`.)
"""

from __future__ import annotations

import asyncio
import json

import django
from _model import async_model
from _web import SCRIPT, Saved, serve_asgi
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path

import streamkit as sk


async def chat(request: HttpRequest) -> StreamingHttpResponse:
    question = json.loads(request.body)["question"]
    stream = sk.astream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    body = stream.sse("vercel_ui")
    return StreamingHttpResponse(body, headers=body.headers)


urlpatterns = [path("chat", chat)]


async def main() -> None:
    global client, name
    async with async_model(*SCRIPT) as (client, name):
        await serve_asgi(get_asgi_application())


settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"])
django.setup()
asyncio.run(main())
