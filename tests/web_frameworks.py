"""One view in each web framework, as the guide shows it, behind the framework's real server on loopback.

The view at `/{name}` serves what `SERVED[name]` makes of it: a stream of the face that the framework runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import socket
import threading
import wsgiref.simple_server
from collections.abc import Callable, Iterator, Mapping
from socketserver import ThreadingMixIn
from typing import Any

SERVED: dict[str, Callable[[bool], Any]] = {}
"""What a view serves, by its path: called with whether it is to be a stream of `astream`; gives the stream and the options of
`sse`. A test puts its own in."""


def _asked(name: str, is_async: bool) -> Any:
    stream, options = SERVED[name](is_async)
    return stream.sse(**options)


# -- the views


def starlette_app() -> Any:
    """With `EventStreamResponse`, over a stream of each face."""
    from starlette.applications import Starlette
    from starlette.routing import Route

    from streamkit.server import EventStreamResponse

    async def of_async(request: Any) -> Any:
        stream, options = SERVED[request.path_params["name"]](True)
        return EventStreamResponse(stream, **options)

    async def of_sync(request: Any) -> Any:
        stream, options = SERVED[request.path_params["name"]](False)
        return EventStreamResponse(stream, **options)

    return Starlette(routes=[Route("/sync/{name}", of_sync), Route("/{name}", of_async)])


def fastapi_app() -> Any:
    from fastapi import FastAPI
    from fastapi.responses import StreamingResponse

    app = FastAPI()

    @app.get("/{name}")
    async def view(name: str) -> StreamingResponse:
        body = _asked(name, is_async=True)
        return StreamingResponse(body, headers=body.headers)

    return app


def django_apps() -> tuple[Any, Any]:
    """The ASGI and the WSGI application of one Django project."""
    import django
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.core.wsgi import get_wsgi_application

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="x")
        django.setup()
    return get_asgi_application(), get_wsgi_application()


async def _django_async_view(request: Any, name: str) -> Any:
    from django.http import StreamingHttpResponse

    body = _asked(name, is_async=True)
    return StreamingHttpResponse(body, headers=body.headers)


def _django_view(request: Any, name: str) -> Any:
    from django.http import StreamingHttpResponse

    body = _asked(name, is_async=False)
    return StreamingHttpResponse(body, headers=body.headers)


def __getattr__(name: str) -> Any:
    if name != "urlpatterns":
        raise AttributeError(name)
    from django.urls import path

    return [path("async/<name>", _django_async_view), path("<name>", _django_view)]


def flask_app() -> Any:
    from flask import Flask, Response

    app = Flask(__name__)

    @app.get("/<name>")
    def view(name: str) -> Response:
        body = _asked(name, is_async=False)
        return Response(body, headers=body.headers)

    return app


async def _aiohttp_view(request: Any) -> Any:
    from aiohttp import web

    body = _asked(request.match_info["name"], is_async=True)
    response = web.StreamResponse(headers=body.headers)
    async with contextlib.aclosing(body):
        await response.prepare(request)
        async for chunk in body:
            await response.write(chunk)
    return response


# -- their servers


@contextlib.contextmanager
def uvicorn_serves(app: Any) -> Iterator[int]:
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="critical"))
    with socket.create_server(("127.0.0.1", 0)) as listener, _running(lambda: server.run(sockets=[listener])):
        yield listener.getsockname()[1]
        server.should_exit = True


@contextlib.contextmanager
def wsgiref_serves(app: Any) -> Iterator[int]:
    class Server(ThreadingMixIn, wsgiref.simple_server.WSGIServer):
        daemon_threads = True

    class Handler(wsgiref.simple_server.WSGIRequestHandler):
        def log_message(self, *_: Any) -> None: ...

        def get_stderr(self) -> Any:
            return io.StringIO()  # what it says of a client that left

    server = wsgiref.simple_server.make_server("127.0.0.1", 0, app, Server, Handler)
    with server, _running(lambda: server.serve_forever(poll_interval=0.01)):
        yield server.server_port
        server.shutdown()


@contextlib.contextmanager
def werkzeug_serves(app: Any) -> Iterator[int]:
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        def log(self, *_: Any) -> None: ...

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Handler)
    with _running(server.serve_forever):
        yield server.server_port
        server.shutdown()
    server.server_close()


@contextlib.contextmanager
def aiohttp_serves() -> Iterator[int]:
    from aiohttp import web

    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/{name}", _aiohttp_view)
    runner = web.AppRunner(app, shutdown_timeout=1)
    started: list[int] = []

    async def start() -> None:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        started.append(runner.addresses[0][1])

    loop.run_until_complete(start())
    with _running(loop.run_forever):
        yield started[0]
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
    loop.close()


@contextlib.contextmanager
def _running(serve: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=serve, name="server", daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()


@contextlib.contextmanager
def serve(name: str) -> Iterator[tuple[int, str, bool]]:
    """A framework's server: its port, the beginning of its paths, and whether its streams are those of `astream`."""
    match name:
        case "starlette" | "starlette-sync":
            with uvicorn_serves(starlette_app()) as port:
                yield port, "/" if name == "starlette" else "/sync/", name == "starlette"
        case "fastapi":
            with uvicorn_serves(fastapi_app()) as port:
                yield port, "/", True
        case "django-asgi":
            with uvicorn_serves(django_apps()[0]) as port:
                yield port, "/async/", True
        case "django-wsgi":
            with wsgiref_serves(django_apps()[1]) as port:
                yield port, "/", False
        case "flask":
            with werkzeug_serves(flask_app()) as port:
                yield port, "/", False
        case _:
            with aiohttp_serves() as port:
                yield port, "/", True


FRAMEWORKS: Mapping[str, str] = {
    "starlette": "starlette",
    "starlette-sync": "starlette",
    "fastapi": "fastapi",
    "django-asgi": "django",
    "django-wsgi": "django",
    "flask": "flask",
    "aiohttp": "aiohttp",
}
"""Each with the package that it needs."""


class Client:
    """A browser: one request over a connection of its own."""

    def __init__(self, port: int, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        self._connection.request("GET", path, headers={"Accept": "text/event-stream"})
        self.response = self._connection.getresponse()
        self.received = b""

    def read_until(self, wanted: bytes) -> bytes:
        """What comes up to these bytes."""
        while wanted not in self.received:
            piece = self.response.read1(65536)
            assert piece, f"the response ended before {wanted!r}: {self.received!r}"
            self.received += piece
        return self.received

    def read_all(self) -> bytes:
        """What comes up to the end of the response, which must be a proper one."""
        self.received += self.response.read()
        self.leave()
        return self.received

    def leave(self) -> None:
        """Close the connection, as a browser does whose page is closed."""
        self.response.close()
        self._connection.close()
