"""The app: the table of endpoints, the checks that a request passes before one is called, and the response if it fails."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import anyio
import anyio.to_thread
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from .._version import __version__
from ..arguments import check_callable, check_count, check_kind, check_plain_methods, check_seconds
from ..errors import RequestError, SourceError, UsageError
from ..relay import MemoryRelay, Relay
from ..stores import MemoryStore, Store
from .api_errors import api_error_response, as_problem, is_of_api
from .api_routes import ApiRoutes
from .conversation_routes import ConversationRoutes
from .core import Authorize, Server, relay_problem
from .endpoints import Endpoints
from .event_stream import RunEventStream
from .inputs import problem_of
from .page_files import PageFiles
from .problem import Problem, problem_response
from .records import Context
from .request_guard import DEFAULT_BODY, RequestGuard, json_of, preflight_headers
from .response import JsonResponse
from .response_routes import ResponseRoutes
from .run_routes import RunRoutes
from .runs import DEFAULT_PAUSE, Runs
from .ui_routes import UiRoutes

__all__ = ["App", "create_app"]

Endpoint: TypeAlias = Callable[[Request, Any], Awaitable[Response]]
_SAFE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class _Row(NamedTuple):
    """One row of the table of endpoints.

    Attributes:
        access: what a request has to show: the `token` or the cookie that it was exchanged for, the token itself (`token only`),
            nothing (`open`), or the token as clients of model APIs send it (`key`).
        any_host: whether it may name any host.
    """

    method: str
    path: str
    endpoint: Endpoint
    access: Literal["token", "token only", "open", "key"] = "token"
    any_host: bool = False


def create_app(
    factory: Callable[[Context], Any],
    *,
    token: str | None,
    relay: Relay | None = None,
    store: Store | None = None,
    authorize: Authorize | None = None,
    allowed_hosts: Sequence[str] = ("localhost",),
    allowed_origins: Sequence[str] = (),
    max_runs: int = 64,
    max_owner_runs: int = 100,
    max_readers: int = 1000,
    max_body: int = DEFAULT_BODY,
    pause_after: float | None = DEFAULT_PAUSE,
    expose_errors: bool = False,
    page: bool | str = False,
    endpoints: bool | Endpoints = True,
) -> App:
    """Return an ASGI app that runs agents, and lets clients follow, answer and stop them.

        app = create_app(lambda context: sk.AsyncAgent(client, model="gpt-5-mini"), token=os.environ["TOKEN"])

    It is served by itself (`uvicorn module:app`), or mounted in another app under any prefix.

    Args:
        factory: called with the `Context` of each run; returns its agent, a new `Agent` or `AsyncAgent`. It may be
            `async def`.
        token: the secret that clients send as `Authorization: Bearer …`. None if `authorize` alone decides.
        relay: where runs are stored; a `MemoryRelay` by default. With a relay that several processes share, such as a
            `RedisRelay`, each of them serves the runs of all.
        store: where conversations are stored; a `MemoryStore` by default.
        authorize: called as `authorize(run, request)`, sync or async, with the `Run`, or None where there is none yet, and
            Starlette's `Request`. It returns whether this is allowed: True, False, or the user's name, which allows it and
            is stored as the owner of what the request creates. An empty name is refused as False is.
        allowed_hosts: the names of hosts under which clients reach the app, without ports; "*" allows any. IP addresses are
            always allowed.
        allowed_origins: other origins with pages that may call it, such as `https://example.org`.
        max_runs: how many runs this process executes at once, besides those that wait for answers. Beyond it: status 429.
        max_owner_runs: how many runs an owner may have open at once, in all processes, with those that wait for answers.
            Beyond it: status 429.
        max_readers: how many responses with events this process sends at once. Beyond it: status 429.
        max_body: how many bytes a request's body may have. Beyond it: status 413.
        pause_after: seconds for which an agent waits for an answer. Its run is then paused, and goes on in whichever process
            gets the answer. None for no limit. An agent with a computer is not paused unless this is set.
        expose_errors: send clients the texts of errors. For development.
        page: serve a chat page at `/`, and `streamkit.js`. A text, such as the model's name, is shown in its header; like the
            page itself, it is open to everybody who can reach the app.
        endpoints: how clients of model APIs are answered under `/v1`, with the agent in the model's place; False for not at all.
            Their requests may have 32 MiB, unless `max_body` is another than 4 MiB.

    Raises:
        UsageError: there is neither a token nor `authorize`, the token is empty, or an argument is of another kind.
    """
    _check_arguments(factory, token, relay, store, authorize, page, endpoints)
    limits = {"max_runs": max_runs, "max_owner_runs": max_owner_runs, "max_readers": max_readers, "max_body": max_body}
    for name, limit in limits.items():
        check_count(name, limit, least=0)
    check_seconds("pause_after", pause_after, or_none=True)
    runs = Runs(
        factory,
        relay or MemoryRelay(),
        store or MemoryStore(),
        max_runs=max_runs,
        max_owner_runs=max_owner_runs,
        pause_after=pause_after,
    )
    guard = RequestGuard(token, allowed_hosts, allowed_origins, max_body)
    server = Server(
        runs,
        authorize=authorize,
        max_readers=max_readers,
        max_owner_runs=max_owner_runs,
        expose_errors=expose_errors,
    )
    return App(server, guard, secret=(token or "streamkit").encode(), page=page, endpoints=endpoints)


def _check_arguments(
    factory: object,
    token: object,
    relay: object,
    store: object,
    authorize: object,
    page: object,
    endpoints: object,
) -> None:
    if not callable(factory):
        raise UsageError(f"create_app: `factory` is a function that makes an agent, not {factory!r}")
    for name, value, kind in (("token", token, str), ("relay", relay, Relay), ("store", store, Store)):
        check_kind(name, value, kind)
    check_plain_methods("relay", relay, Relay)
    check_plain_methods("store", store, Store)
    check_callable("authorize", authorize)
    if not isinstance(page, bool | str):
        raise UsageError(f"create_app: `page` is True, False or a text for its header, not {page!r}")
    if not isinstance(endpoints, bool | Endpoints):
        raise UsageError(f"create_app: `endpoints` is True, False or an Endpoints, not {endpoints!r}")
    if token is None and authorize is None:
        raise UsageError("create_app: with token=None anybody could run code; pass a token, or `authorize`")
    if token == "":
        raise UsageError("create_app: the token is empty")


class App:
    """The ASGI app that `create_app` makes.

    Attributes:
        runs: the runs that this process executes.
    """

    def __init__(
        self,
        server: Server,
        guard: RequestGuard,
        *,
        secret: bytes,
        page: bool | str,
        endpoints: bool | Endpoints = False,
    ) -> None:
        self.runs = server.runs
        self._server = server
        self._guard = guard
        self._has_api = endpoints is not False
        run = RunRoutes(server, secret)
        conversation = ConversationRoutes(server)
        ui = UiRoutes(server, run, conversation)
        rows = [
            _Row("GET", "/health", self._health, "open", True),
            _Row("POST", "/session", self._session, "token only"),
            _Row("POST", "/runs", run.begin),
            _Row("GET", "/runs", run.all),
            _Row("GET", "/runs/{run}", run.get),
            _Row("GET", "/runs/{run}/events", run.events),
            _Row("POST", "/runs/{run}/cancel", run.cancel),
            _Row("POST", "/runs/{run}/answers/{question:path}", run.answer),
            _Row("GET", "/conversations", conversation.all),
            _Row("GET", "/conversations/{conversation}", conversation.get),
            _Row("GET", "/conversations/{conversation}/messages", conversation.messages),
            _Row("POST", "/conversations/{conversation}/rollback", conversation.rollback),
            _Row("POST", "/conversations/{conversation}/branch", conversation.branch),
            _Row("POST", "/conversations/{conversation}/rename", conversation.rename),
            _Row("DELETE", "/conversations/{conversation}", conversation.delete),
            _Row("POST", "/chat", ui.chat),
            _Row("GET", "/chat/{conversation}", ui.chat_messages),
            _Row("GET", "/chat/{conversation}/stream", ui.chat_stream),
            _Row("POST", "/chat/{conversation}/stop", ui.chat_stop),
            _Row("POST", "/agui", ui.agui),
        ]
        if endpoints is not False:
            api = ApiRoutes(server, run, Endpoints() if endpoints is True else endpoints)
            api_rows = [*api.rows, *ResponseRoutes(server, api).rows]
            rows += [_Row(method, path, endpoint, "key") for method, path, endpoint in api_rows]
        if page is not False:
            files = PageFiles(page if isinstance(page, str) else "")
            rows += [_Row("GET", "/", files.response, "open"), _Row("GET", "/{file}", files.response, "open")]
        self._table = [(row, Route(row.path, _unused, methods=[row.method])) for row in rows]
        atexit.register(_leave, weakref.ref(self.runs))

    def shutdown(self) -> None:
        """Leave all runs of this process: those that wait for an answer are paused, others get 10 seconds. The app does this
        by itself where it is served with lifespan events, and when the interpreter ends."""
        self.runs.shutdown()

    # -- ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            request = Request(scope, receive)
            try:
                await self._serve(request, send)
            finally:
                self._server.remove_reader(request)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, request: Request, send: Send) -> None:
        response = await self._respond(request)
        of_api = self._has_api and is_of_api(request.scope)
        for name, value in self._guard.cors_headers(request, of_api=of_api).items():
            response.headers.append(name, value)
        if response.headers.get("content-type", "").partition(";")[0] != "text/event-stream":
            for name, value in _SAFE.items():
                response.headers.setdefault(name, value)
        if request.method == "HEAD":
            response = _without_body(response)
        await response(request.scope, request.receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await anyio.to_thread.run_sync(self.shutdown, limiter=anyio.CapacityLimiter(1))
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _respond(self, request: Request) -> Response:
        """Return the response, whatever happens."""
        try:
            return await self._pass(request)
        except Problem as problem:
            return self._failed(request, problem)
        except RequestError as error:
            return self._failed(request, as_problem(error) if is_of_api(request.scope) else problem_of(error))
        except SourceError as error:
            return self._failed(request, relay_problem(error), error)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            return self._failed(request, Problem("internal"), error)

    def _failed(self, request: Request, problem: Problem, error: Exception | None = None) -> Response:
        expose = self._server.expose_errors
        if self._has_api and is_of_api(request.scope):
            return api_error_response(request, problem, error, expose=expose)
        return problem_response(problem, error, expose=expose)

    async def _pass(self, request: Request) -> Response:
        """Run the checks, in their order, and call the endpoint."""
        guard = self._guard
        row, params, allowed = self._find(request.scope)
        if row is None or not row.any_host:
            guard.check_host(request)
        of_api = row.access == "key" if row is not None else self._has_api and is_of_api(request.scope)
        guard.check_origin(request, of_api=of_api)
        if request.method == "OPTIONS" and allowed and "access-control-request-method" in request.headers:
            wanted = request.headers.get("access-control-request-headers") if is_of_api(request.scope) else None
            return Response(status_code=204, headers=dict(preflight_headers(wanted)))
        if row is None and allowed:
            raise Problem("method-not-allowed", headers={"Allow": ", ".join(sorted(allowed))})
        if row is None:
            raise Problem("not-found")
        request.scope["path_params"] = params
        if row.access == "key":
            guard.check_key(request)
        elif row.access != "open":
            guard.check_token(request, or_cookie=row.access == "token")
        body: Any = {}
        if request.method == "POST":
            body = json_of(await guard.body(request, of_api=of_api))
        return await row.endpoint(request, body)

    def _find(self, scope: Scope) -> tuple[_Row | None, dict[str, str], Collection[str]]:
        """Return the endpoint, the parts of the path, and the methods that the path allows."""
        allowed: set[str] = set()
        for row, route in self._table:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return row, child["path_params"], allowed
            if match is not Match.NONE:
                allowed |= {"GET", "HEAD"} if row.method == "GET" else {row.method}
        return None, {}, allowed

    # -- endpoints of the app itself

    async def _health(self, request: Request, body: Any) -> Response:
        await self._server.check_relay()
        return JsonResponse({"status": "ok", "version": __version__})

    async def _session(self, request: Request, body: Any) -> Response:
        if not self._guard.has_token:
            raise Problem("not-found")
        return Response(status_code=204, headers={"Set-Cookie": self._guard.session(request)})


def _without_body(response: Response) -> Response:
    """Return the response to a HEAD request, by that to a GET."""
    if isinstance(response, RunEventStream):
        response.close()
    head = Response(status_code=response.status_code)
    head.raw_headers = response.raw_headers
    return head


async def _unused(request: Request) -> Response:
    raise NotImplementedError("the app calls its endpoints itself")


def _leave(reference: weakref.ref[Runs]) -> None:
    runs = reference()
    if runs is not None:
        runs.shutdown()
