"""Flask: its `Response` sends an answer to the browser as it comes, each in a thread.

    python examples/sse_flask.py            # serves one question, and prints what the browser gets
    python examples/sse_flask.py --serve    # serves on port 8000

Without OPENAI_API_KEY a scripted model answers, on this machine; with it, OpenAI does. (It needs `pip install flask`.)
"""

from __future__ import annotations

from _model import model
from _web import SCRIPT, Saved, serve_wsgi
from flask import Flask, Response, request
from werkzeug.serving import make_server

import streamkit as sk

app = Flask(__name__)


@app.post("/chat")
def chat() -> Response:
    question = request.get_json(force=True)["question"]
    stream = sk.stream(lambda: client.responses.create(model=name, input=question, stream=True), Saved())
    body = stream.sse("vercel_ui")
    return Response(body, headers=body.headers)


with model(*SCRIPT) as (client, name):
    serve_wsgi(lambda port: make_server("127.0.0.1", port, app, threaded=True))
