"""Django on WSGI: `StreamingHttpResponse` sends an answer to the browser as it comes, each in a thread.

    python examples/sse_django_wsgi.py            # serves one question, and prints what the browser gets
    python examples/sse_django_wsgi.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs `pip install django`.)
"""

from __future__ import annotations

import json

import django
from _model import model
from _web import SCRIPT, Saved, serve_wsgi
from django.conf import settings
from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, StreamingHttpResponse
from django.urls import path

import streamkit as sk


def chat(request: HttpRequest) -> StreamingHttpResponse:
    question = json.loads(request.body)["question"]
    stream = sk.stream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    body = stream.sse("vercel_ui")
    return StreamingHttpResponse(body, headers=body.headers)


urlpatterns = [path("chat", chat)]


def make_server(port: int) -> ThreadedWSGIServer:
    """The server of `manage.py runserver`."""
    server = ThreadedWSGIServer(("127.0.0.1", port), WSGIRequestHandler)
    server.set_app(get_wsgi_application())
    return server


settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"])
django.setup()
with model(*SCRIPT) as (client, name):
    serve_wsgi(make_server)
