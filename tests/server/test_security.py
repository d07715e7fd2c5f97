"""Who may do what, what is refused and how, and what no client ever sees.

The checks of Host, Origin, method, path, token, cookie, size, content type, JSON and shape are over before the relay or the
store is first called (`App._pass`), so they run on memory alone. What `authorize` decides about runs and conversations, and
the limits, run on every backend.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

import streamkit as sk
from streamkit.relay import Relay
from streamkit.server import create_app
from streamkit.server.problem import PROBLEMS
from streamkit.server.request_guard import RequestGuard
from streamkit.stores import MemoryStore, Store

from .backends import Backend, RelayFault
from .parts import SECRET, TOKEN, Agents, Client, Records, said, serve, wait_for
from .test_runs import code_of

ORIGIN = "https://chat.example"


def owner_of(run: Any, request: Any) -> bool | str:
    """The user whom a header names sees what is theirs; `nobody` may do nothing."""
    user = request.headers.get("x-user", "ann")
    if user == "nobody":
        return False
    return user if run is None else run.owner == user


@pytest.fixture(scope="module")
def url(agents: Agents) -> Iterator[str]:
    app = create_app(
        agents,
        token=TOKEN,
        authorize=owner_of,
        allowed_hosts=["localhost", "served.example"],
        allowed_origins=[ORIGIN],
        max_body=2000,
    )
    with serve(app) as url:
        yield url


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture(scope="module")
def owned(agents: Agents, backend: Backend) -> Iterator[Client]:
    with serve(backend.app(agents, authorize=owner_of)) as url, Client(url) as made:
        yield made


def test_a_part_whose_methods_are_async_is_refused(agents: Agents) -> None:
    """Each of them: nobody would await it. Its `a…` form may be async."""

    async def method(self: Any, *arguments: Any, **options: Any) -> None:
        raise NotImplementedError

    async def generator(self: Any, *arguments: Any, **options: Any) -> AsyncIterator[int]:
        yield 1

    for option, base, kind in (("relay", Relay, sk.MemoryRelay), ("store", Store, MemoryStore)):
        names = [name for name, _ in inspect.getmembers(base, inspect.isfunction) if not name.startswith("_")]
        plain = [name for name in names if not inspect.iscoroutinefunction(getattr(base, name))]
        assert {"list", "get", "close", "delete"} <= {*plain}
        for name, own in itertools.product(plain, (method, generator)):
            part: Any = type("Async", (kind,), {name: own})()
            with pytest.raises(sk.UsageError, match=rf"Async\.{name} is `async def`"):
                create_app(agents, token=TOKEN, **{option: part})
            if option == "relay":
                with pytest.raises(sk.UsageError, match=rf"Async\.{name} is `async def`"):
                    sk.Emitter(part)
        part = type("Async", (kind,), {"aget": method})()
        create_app(agents, token=TOKEN, **{option: part})


def test_an_app_has_a_token_or_authorize(agents: Agents) -> None:
    for options in ({"token": None}, {"token": ""}):
        with pytest.raises(sk.UsageError, match="token"):
            create_app(agents, **options)  # type: ignore[arg-type]
    create_app(agents, token=None, authorize=owner_of)


# -- the table of problems


def test_paths_and_methods(client: Client) -> None:
    for path in ("/nowhere", "/runs/a/b/c", "/runsx", "/", "/streamkit.js"):
        assert code_of(client.get(path)) == (404, "not-found")
    for method, path, allowed in (
        ("PUT", "/runs", "GET, HEAD, POST"),
        ("DELETE", "/runs/x", "GET, HEAD"),
        ("GET", "/chat", "POST"),
    ):
        response = client.request(method, path)
        assert code_of(response) == (405, "method-not-allowed")
        assert response.headers["allow"] == allowed
    for id in ("x" * 129, "a b", "a.b", "%00", "é"):
        assert code_of(client.get(f"/runs/{id}")) == (404, "run-not-found")
        assert code_of(client.get(f"/conversations/{id}")) == (404, "conversation-not-found")


def test_head_is_get_without_a_body(client: Client) -> None:
    """Also of a stream, which is not read for it, and of what is not there."""
    run = client.begin("hello")
    client.until(run["id"], "completed")
    for path in ("/health", "/runs", f"/runs/{run['id']}", f"/runs/{run['id']}/events", "/runs/x", "/nowhere"):
        head, get = client.head(path), client.get(path)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        assert head.headers["content-type"] == get.headers["content-type"]
    assert code_of(client.post("/health")) == (405, "method-not-allowed")


def test_half_of_a_surrogate_pair_is_no_reason_to_refuse_a_text(client: Client) -> None:
    """A text that was cut amid an emoji."""
    body = rb'{"input": "hello \ud83d", "metadata": {"\ud83d": "\udc4d"}}'
    response = client.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 201
    run = response.json()
    assert run["metadata"] == {"\ufffd": "\ufffd"}
    assert said(client.events(run["id"])) == "You said: hello \ufffd"


def test_bodies(client: Client) -> None:
    def post(content: bytes, kind: str | None = "application/json") -> tuple[int, str]:
        headers = {} if kind is None else {"Content-Type": kind}
        return code_of(client.post("/runs", content=content, headers=headers))

    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None):
        assert post(b'{"input": "x"}', kind) == (415, "unsupported-media-type")
    for text in (b"{", b"no", b'{"input": "\xff"}', b'{"input": NaN}'):
        assert post(text) == (400, "bad-json")
    assert post(b'{"input": "%s"}' % (b"x" * 2000)) == (413, "body-too-large")

    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 500] * 5

    streamed = client.post("/runs", content=pieces(), headers={"Content-Type": "application/json"})
    assert code_of(streamed) == (413, "body-too-large")
    deep = b'{"input": "x", "metadata": %s}'
    assert post(deep % (b'{"a":' * 64 + b"1" + b"}" * 64)) == (422, "invalid")
    assert post(deep % (b'{"a":' * 900 + b"1" + b"}" * 900)) == (413, "body-too-large")
    good = client.post(
        "/runs",
        content=deep % (b'{"a":' * 62 + b"1" + b"}" * 62),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert good.status_code == 201
    client.until(good.json()["id"], "completed")


WRONG: list[Any] = [
    [],
    "x",
    {},
    {"input": 1},
    {"input": ""},
    {"input": []},
    {"input": [1]},
    {"input": [{"role": "assistant", "content": "x"}]},
    {"input": [{"type": "tool_output", "content": "x"}]},
    {"input": [{"content": ""}]},
    {"input": [{"type": "image", "format": "path", "content": "/etc/passwd"}]},
    {"input": [{"type": "image", "content": "/etc/passwd"}]},
    {"input": [{"type": "file", "format": "path", "content": "/etc/passwd"}]},
    {"input": "x", "conversation": "a b"},
    {"input": "x", "conversation": 1},
    {"input": "x", "metadata": []},
    {"input": "x", "stream": 1},
    {"input": "x", "on_disconnect": "stop"},
]


@pytest.mark.parametrize("body", WRONG, ids=[json.dumps(body)[:50] for body in WRONG])
def test_shapes(client: Client, body: Any) -> None:
    response = client.post("/runs", content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert code_of(response) == (422, "invalid")
    assert [set(error) for error in response.json()["errors"]] == [{"path", "fault"}]


def test_the_first_check_that_fails_answers(client: Client) -> None:
    """Host, Origin, method and path, token, size, content type, JSON, shape, `authorize`."""
    faults: list[tuple[str, dict[str, str]]] = [
        ("host-not-allowed", {"Host": "evil.example"}),
        ("origin-not-allowed", {"Origin": "https://evil.example"}),
        ("unauthorized", {"Authorization": "Bearer wrong"}),
        ("body-too-large", {"Content-Length": "3000"}),
        ("unsupported-media-type", {"Content-Type": "text/plain"}),
    ]
    with httpx.Client(base_url=client.base_url) as plain:
        for start in range(len(faults)):
            headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
            for _, wrong in faults[start:]:
                headers |= wrong
            body = b"{" if "Content-Length" not in headers else b"{" * 3000
            assert code_of(plain.post("/runs", content=body, headers=headers))[1] == faults[start][0]
    headers = {"x-user": "nobody"}
    assert (
        code_of(client.post("/runs", content=b"{", headers={**headers, "Content-Type": "application/json"}))[1]
        == "bad-json"
    )
    assert code_of(client.post("/runs", json={}, headers=headers))[1] == "invalid"
    assert code_of(client.post("/runs", json={"input": "x"}, headers=headers)) == (403, "forbidden")


def test_every_problem_has_a_status_and_a_title() -> None:
    assert all(400 <= status < 600 and title.endswith(".") for status, title in PROBLEMS.values())


# -- hosts, origins, tokens, cookies


HOSTS = {
    "localhost": True,
    "localhost:8000": True,
    "LOCALHOST": True,
    "served.example": True,
    "127.0.0.1:1": True,
    "[::1]:80": True,
    "evil.example": False,
    "localhost.evil.example": False,
    "evil@127.0.0.1": False,
    "127.0.0.1@evil.example": False,
    "127.0.0.1.evil.example": False,
    "localhost:x": False,
    "localhost:1:2": False,
    "[::1": False,
    "": False,
}


@pytest.mark.parametrize("host", HOSTS)
def test_hosts(client: Client, host: str) -> None:
    response = client.get("/runs", headers={"Host": host})
    assert (response.status_code == 200) is HOSTS[host]
    if not HOSTS[host]:
        assert code_of(response) == (421, "host-not-allowed")
    assert client.get("/health", headers={"Host": host}).status_code == 200


def test_origins(client: Client) -> None:
    """Of another port, of none, and of a name that only looks alike: refused, whatever the method."""
    own = str(client.base_url).removesuffix("/")
    port = client.base_url.port
    for origin in (own, own.replace("http:", "https:"), ORIGIN):
        assert client.get("/runs", headers={"Origin": origin}).status_code == 200
    foreign = [
        "null",
        "",
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        f"http://localhost:{port}",
        f"{ORIGIN}.evil",
        f"{own}/",
        "file://",
    ]
    for origin in foreign:
        for method, path in (("GET", "/runs"), ("POST", "/runs"), ("GET", "/health")):
            response = client.request(method, path, headers={"Origin": origin})
            assert code_of(response) == (403, "origin-not-allowed"), origin
            assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("host", "origin", "is_own"),
    [
        ("localhost", "http://localhost", True),
        ("localhost", "http://localhost:80", True),
        ("localhost", "https://localhost", True),
        ("localhost", "https://localhost:443", True),
        ("localhost", "http://localhost:443", False),
        ("localhost", "https://localhost:80", False),
        ("localhost", "http://localhost:8080", False),
        ("localhost:80", "http://localhost", True),
        ("localhost:443", "https://localhost", True),
        ("localhost:443", "http://localhost", False),
        ("localhost:8080", "http://localhost:8080", True),
        ("localhost:8080", "http://localhost:8081", False),
        ("[::1]", "http://[::1]:80", True),
        ("[::1]:8080", "http://[::1]", False),
    ],
)
def test_a_port_that_is_not_named_is_that_of_the_scheme(client: Client, host: str, origin: str, is_own: bool) -> None:
    """In the Host as in the Origin."""
    response = client.get("/runs", headers={"Host": host, "Origin": origin})
    assert response.status_code == (200 if is_own else 403)


def test_pages_of_allowed_origins(client: Client) -> None:
    """By exact name, without credentials; a preflight needs no token."""
    response = client.get("/runs", headers={"Origin": ORIGIN})
    assert response.headers["access-control-allow-origin"] == ORIGIN
    assert response.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in response.headers
    assert response.headers["access-control-expose-headers"].split(", ") == [
        "location",
        "x-streamkit-run",
        "x-vercel-ai-ui-message-stream",
        "idempotency-replayed",
        *("x-streamkit-ignored", "x-request-id", "request-id", "retry-after", "x-should-retry"),
    ]
    asks = {"Origin": ORIGIN, "Access-Control-Request-Method": "POST"}
    with httpx.Client(base_url=client.base_url) as plain:
        preflight = plain.options("/runs", headers=asks)
        foreign = plain.options("/runs", headers={**asks, "Origin": "https://evil.example"})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == ORIGIN
    assert preflight.headers["access-control-allow-methods"] == "GET, POST, DELETE"
    assert (
        preflight.headers["access-control-allow-headers"]
        == "authorization, content-type, idempotency-key, last-event-id"
    )
    assert preflight.headers["access-control-max-age"] == "600"
    assert code_of(foreign) == (403, "origin-not-allowed")
    assert client.get("/runs").headers["vary"] == "Origin"


def test_tokens(client: Client) -> None:
    with httpx.Client(base_url=client.base_url) as plain:
        for value in (
            None,
            "",
            "Bearer",
            f"Bearer {TOKEN}x",
            f"Bearer {TOKEN[:-1]}",
            f"Basic {TOKEN}",
            TOKEN,
            "Bearer é",
        ):
            headers = {} if value is None else {"Authorization": value.encode()}
            for path in ("/runs", "/conversations", "/runs/x/events", "/chat/x"):
                response = plain.get(path, headers=headers)
                assert code_of(response) == (401, "unauthorized")
                assert response.headers["www-authenticate"] == "Bearer"
            assert code_of(plain.get(f"/runs?token={TOKEN}")) == (401, "unauthorized")
        assert plain.get("/runs", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200
        assert plain.get("/health").json()["status"] == "ok"


def test_a_page_gets_a_cookie(client: Client) -> None:
    """It reads with it; what it changes needs its own origin. A forged or an old one is none."""
    own = {"Origin": str(client.base_url).removesuffix("/")}
    session = client.post("/session")
    assert session.status_code == 204
    cookie = session.headers["set-cookie"]
    assert cookie.startswith("streamkit-")
    assert cookie.endswith("; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict")
    name, value = cookie.split(";")[0].split("=")
    expiry, signature = value.split(".")
    assert 43_100 < int(expiry) - time.time() <= 43_200
    with httpx.Client(base_url=client.base_url) as page:
        good = {"Cookie": f"{name}={value}"}
        assert page.get("/runs", headers=good).status_code == 200
        begun = page.post("/runs", json={"input": "hello"}, headers={**good, **own})
        assert begun.status_code == 201
        client.until(begun.json()["id"], "completed")
        assert code_of(page.post("/runs", json={"input": "x"}, headers=good)) == (403, "origin-not-allowed")
        assert code_of(page.post("/runs", json={"input": "x"}, headers={**good, "Origin": ORIGIN})) == (
            403,
            "origin-not-allowed",
        )
        old = RequestGuard(TOKEN, (), (), 1)._signature("1000000000")
        for wrong in (
            f"{int(expiry) + 1}.{signature}",
            f"{expiry}.{signature[:-1]}{'1' if signature.endswith('0') else '0'}",
            f"1000000000.{old}",
            "x.y",
            expiry,
            "",
            ".",
        ):
            assert code_of(page.get("/runs", headers={"Cookie": f"{name}={wrong}"})) == (401, "unauthorized"), wrong
            two = {"Cookie": f"{name}={wrong}; other=x; {name}={value}"}  # of two paths, or from before
            assert page.get("/runs", headers=two).status_code == 200, wrong
        assert code_of(page.post("/session")) == (401, "unauthorized")
        wrong_token = {**good, **own, "Authorization": "Bearer another"}
        assert code_of(page.post("/session", headers=wrong_token)) == (401, "unauthorized")
        assert code_of(page.post("/session", headers={**good, **own})) == (401, "unauthorized"), "it renews itself"


def test_servers_on_one_host_have_cookies_of_their_own(agents: Agents) -> None:
    """A browser sends the cookies of a host to each of its ports."""
    cookies: list[str] = []
    with contextlib.ExitStack() as stack:
        pages = []
        for token in ("one", "two", "one"):
            url = stack.enter_context(serve(create_app(agents, token=token)))
            page = stack.enter_context(httpx.Client(base_url=url))
            session = page.post("/session", headers={"Authorization": f"Bearer {token}"})
            cookies.append(session.headers["set-cookie"].split(";")[0])
            pages.append(page)
        sent = {"Cookie": "; ".join(cookies)}
        assert [page.get("/runs", headers=sent).status_code for page in pages] == [200, 200, 200]
    names = [cookie.split("=")[0] for cookie in cookies]
    assert names[0] == names[2] != names[1]


# -- authorize


def test_what_is_anothers_is_as_if_it_was_not_there(owned: Client) -> None:
    """Byte for byte, but for `instance`. Lists are filtered, and the owner stays."""
    bob = {"x-user": "robert"}  # no other test has runs of his
    run = owned.begin("run say x")
    question = owned.until_asked(run["id"])
    assert run["owner"] == "ann"
    paths = [
        ("GET", "/runs/{run}"),
        ("GET", "/runs/{run}/events"),
        ("POST", "/runs/{run}/cancel"),
        ("POST", f"/runs/{{run}}/answers/{question['id']}"),
        ("GET", "/conversations/{conversation}"),
        ("GET", "/conversations/{conversation}/messages"),
        ("POST", "/conversations/{conversation}/rollback"),
        ("POST", "/conversations/{conversation}/branch"),
        ("POST", "/conversations/{conversation}/rename"),
        ("DELETE", "/conversations/{conversation}"),
        ("GET", "/chat/{conversation}"),
    ]
    for method, path in paths:
        answers = []
        for ids in (
            {"run": run["id"], "conversation": run["conversation"]},
            {"run": "unknown", "conversation": "unknown"},
        ):
            body = {"before": "x", "title": "x"} if method == "POST" else None
            response = owned.request(method, path.format(**ids), headers=bob, json=body)
            assert response.status_code == 404, path
            body = response.json()
            body.pop("instance")
            answers.append((body, {k: v for k, v in response.headers.items() if k != "date"}))
        assert answers[0] == answers[1]
    assert code_of(owned.post("/runs", json={"input": "x", "conversation": run["conversation"]}, headers=bob))[0] == 404
    assert owned.get("/runs", headers=bob).json() == {"runs": [], "more": False}
    assert owned.get("/conversations", headers=bob).json() == {"conversations": [], "more": False}
    mine = owned.post("/runs", json={"input": "hello"}, headers=bob).json()
    assert mine["owner"] == "robert"
    wait_for(lambda: owned.get(f"/runs/{mine['id']}", headers=bob).json()["status"] == "completed")
    assert [one["id"] for one in owned.get("/runs", headers=bob).json()["runs"]] == [mine["id"]]
    assert [one["id"] for one in owned.get("/conversations", headers=bob).json()["conversations"]] == [
        mine["conversation"]
    ]
    assert owned.run(run["id"])["status"] == "in_progress"
    owned.post(f"/runs/{run['id']}/cancel")


def test_an_empty_name_is_that_of_nobody(agents: Agents) -> None:
    """As of an `authorize` that returns what a missing header is."""
    app = create_app(agents, token=None, authorize=lambda run, request: request.headers.get("x-user", ""))
    with serve(app) as url, Client(url) as client:
        assert code_of(client.post("/runs", json={"input": "hello"})) == (403, "forbidden")
        run = client.post("/runs", json={"input": "hello"}, headers={"x-user": "ann"}).json()
        assert client.get(f"/runs/{run['id']}").status_code == 404


def test_a_key_is_its_owners(owned: Client) -> None:
    body = {"input": "hello"}
    ids = [
        owned.post("/runs", json=body, headers={"Idempotency-Key": "same", "x-user": user}).json()["id"]
        for user in ("ann", "bob", "ann")
    ]
    assert ids[0] == ids[2] != ids[1]


def test_the_owner_outlives_the_run(backend: Backend, agents: Agents) -> None:
    """The relay has forgotten the run; the conversation is still its owner's alone."""
    relay = backend.relay()
    with serve(backend.app(agents, authorize=owner_of, relay=relay)) as url, Client(url) as client:
        run = client.begin("hello", conversation="kept")
        client.until(run["id"], "completed")
        relay.delete(run["id"])
        assert client.get("/conversations/kept").status_code == 200
        assert client.get("/conversations/kept", headers={"x-user": "bob"}).status_code == 404


# -- what no client sees


def test_no_text_of_an_error_leaves_the_server(agents: Agents) -> None:
    """In no body and no frame, of no protocol; the log has all of it, under the `instance` that clients get."""

    def authorize(run: Any, request: Any) -> bool:
        if request.headers.get("x-break"):
            raise LookupError(SECRET)
        return True

    records, logger = Records(), logging.getLogger("streamkit")
    logger.addHandler(records)
    try:
        with serve(create_app(agents, token=TOKEN, authorize=authorize)) as url, Client(url) as client:
            failed = client.get("/runs", headers={"x-break": "1"})
            assert code_of(failed) == (500, "internal")
            shown = [failed.text]
            run = client.begin("hello", metadata={"kind": "broken"})
            after = client.until(run["id"], "failed")
            shown.append(json.dumps(after))
            for protocol in ("streamkit", "vercel_ui", "ag_ui", "openai_chat", "openai_responses", "anthropic"):
                frames = client.events(run["id"], params={"protocol": protocol})
                shown.append(json.dumps([frame.data for frame in frames]))
        with (
            serve(create_app(agents, token=TOKEN, authorize=authorize, expose_errors=True)) as url,
            Client(url) as client,
        ):
            exposed = client.get("/runs", headers={"x-break": "1"}).json()["detail"]
    finally:
        logger.removeHandler(records)
    assert not any(word in text for text in shown for word in (*SECRET.split(), "LookupError", "Traceback", "parts.py"))
    assert exposed == f"LookupError: {SECRET}"
    logged = "\n".join(records.lines)
    for instance in (failed.json()["instance"], after["error"]["instance"]):
        assert any(instance in line and SECRET in line and "Traceback" in line for line in records.lines), logged


# -- limits


def test_runs_and_readers_are_limited(backend: Backend, agents: Agents) -> None:
    """Those that wait for an answer do not count. There is room again when one has gone."""
    app = backend.app(agents, max_runs=2, max_readers=2)
    with serve(app) as url, Client(url) as client:
        waiting = client.begin("run say x")
        client.until_asked(waiting["id"])
        wait_for(lambda: app.runs.active[waiting["id"]].waits_since)
        hanging = [client.begin("hang") for _ in range(2)]
        refused = client.post("/runs", json={"input": "hello"})
        assert code_of(refused) == (429, "too-many-runs")
        assert refused.headers["retry-after"] == "1"
        with client.stream("GET", f"/runs/{hanging[0]['id']}/events") as one:
            first = one.iter_bytes()  # dropped, it would close the connection
            next(first)
            with client.stream("GET", f"/runs/{hanging[0]['id']}/events") as two:
                second = two.iter_bytes()
                next(second)
                crowded = client.get(f"/runs/{hanging[0]['id']}/events")
                assert code_of(crowded) == (429, "too-many-readers")
                assert crowded.headers["retry-after"] == "1"
        client.post(f"/runs/{hanging[0]['id']}/cancel")
        client.until(hanging[0]["id"], "cancelled")
        wait_for(lambda: len(app.runs.active) == 2)
        run = wait_for(lambda: (r := client.post("/runs", json={"input": "hello"})).status_code == 201 and r.json())
        assert [*filter(None, (frame.type for frame in client.events(run["id"])))][-1] == "stream_end"
        for one in (hanging[1], waiting):
            client.post(f"/runs/{one['id']}/cancel")


def test_an_owner_has_so_many_open_runs(backend: Backend, agents: Agents) -> None:
    """Those that wait count, in whichever process they are. Another owner's do not."""
    apps = [
        backend.app(agents, authorize=owner_of, max_owner_runs=2, relay=relay, store=store)
        for relay, store in backend.shared()
    ]
    with serve(apps[0]) as url, Client(url) as here, serve(apps[1]) as url, Client(url) as there:
        waiting = here.begin("run say x")
        here.until_asked(waiting["id"])
        hanging = there.begin("hang")
        for client in (here, there):
            refused = client.post("/runs", json={"input": "hello"})
            assert code_of(refused) == (429, "too-many-runs")
            assert refused.headers["retry-after"] == "1"
        other = here.post("/runs", json={"input": "hello"}, headers={"x-user": "bob"})
        assert other.status_code == 201
        for run in (hanging, waiting):
            here.post(f"/runs/{run['id']}/cancel")
        wait_for(lambda: here.post("/runs", json={"input": "hello"}).status_code == 201)


def test_metadata_is_bounded(agents: Agents) -> None:
    """It is kept of each run, and is in each list."""
    with serve(create_app(agents, token=TOKEN)) as url, Client(url) as unbounded:
        for size, code in ((65_000, 201), (66_000, 413)):
            response = unbounded.post("/runs", json={"input": "hello", "metadata": {"x": "y" * size}})
            assert response.status_code == code
        message = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hello"}]}
        body = {"id": "c", "trigger": "submit-message", "messages": [message], "extra": "y" * 66_000}
        assert code_of(unbounded.post("/chat", json=body)) == (413, "body-too-large")


def test_what_a_client_of_ag_ui_sent_goes_with_the_end_of_its_run(backend: Backend, agents: Agents) -> None:
    """Its state may be large: the agent has it, no list has it, and the relay has it no longer than it may be needed."""
    relay = backend.relay()
    with serve(backend.app(agents, relay=relay)) as url, Client(url) as client:
        state = {"document": "x" * 100_000}
        body: dict[str, Any] = {"threadId": "t", "runId": "r", "state": state, "tools": [], "context": []}
        body |= {"forwardedProps": {}, "messages": [{"id": "u", "role": "user", "content": "hello"}]}
        assert client.post("/agui", json=body).status_code == 200
        assert agents.contexts[-1].metadata["ag_ui"]["state"] == state
        (run,) = client.get("/runs").json()["runs"]
        assert run["metadata"] == {}
        record = relay.get(client.until(run["id"], "completed")["id"])
        assert record.info["ag_ui"] is None


def test_health_asks_the_relay_once_a_second_at_most(backend: Backend, agents: Agents) -> None:
    """Anybody may ask for it."""
    asked: list[float] = []

    class Asked(RelayFault):
        def list(self, *arguments: Any, **options: Any) -> Any:
            asked.append(time.monotonic())
            return super().list(*arguments, **options)

    with serve(backend.app(agents, relay=backend.relay(Asked))) as url, Client(url) as client:
        began = time.monotonic()
        assert {client.get("/health").status_code for _ in range(50)} == {200}
        wait_for(lambda: client.get("/health") and len(asked) > 1)
        elapsed = time.monotonic() - began
    # Each began in a thread, which may have come late: so not the times between two are compared.
    assert len(asked) <= 1 + elapsed


def test_a_relay_that_is_away_is_503(backend: Backend, agents: Agents) -> None:
    class Away(RelayFault):
        def list(self, *arguments: Any, **options: Any) -> Any:
            raise sk.SourceError("the relay is away")

        get = list  # type: ignore[assignment]

    with serve(backend.app(agents, relay=backend.relay(Away))) as url, Client(url) as client:
        for path in ("/health", "/runs", "/runs/x"):
            response = client.get(path)
            assert code_of(response) == (503, "relay-unavailable")
            assert response.headers["retry-after"] == "1"
