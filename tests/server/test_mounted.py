"""The app inside other apps, under any prefix and without lifespan events; real code that Stop ends; and the page's files.

On memory alone: a prefix and the page's files are matters of the request's path, and how a stop reaches an agent from each
backend is in `test_runs.test_stop_ends_what_runs`.
"""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest

import streamkit as sk
from streamkit.computer import Computer
from streamkit.server import create_app
from streamkit.testing import ModelServer, Reply

from ..agent.parts import code
from ..web_frameworks import django_apps
from .parts import TOKEN, Agents, Client, said, serve
from .test_runs import code_of


def in_fastapi(app: Any) -> Any:
    from fastapi import FastAPI

    outer = FastAPI()
    outer.mount("/prefix/api", app)
    return outer


def in_django(app: Any) -> Any:
    """Django's ASGI app beside it, as Django's documentation has it for other apps."""
    django = django_apps()[0]  # a process has one Django project
    prefix = "/prefix/api"

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{prefix}/"):
            scope = {**scope, "root_path": scope.get("root_path", "") + prefix}
            await app(scope, receive, send)
        else:
            await django(scope, receive, send)

    return outer


@pytest.mark.parametrize("mount", [in_fastapi, in_django])
def test_it_is_mounted(agents: Agents, mount: Any) -> None:
    """No lifespan event reaches it."""
    app = create_app(agents, token=TOKEN)
    with serve(mount(app), lifespan="off") as url, Client(f"{url}/prefix/api") as client:
        for kind in ("sync", "async"):
            response = client.post("/runs", json={"input": "run say mounted", "metadata": {"kind": kind}})
            run = response.json()
            assert response.headers["location"] == f"/prefix/api/runs/{run['id']}"
            question = client.until_asked(run["id"])
            client.post(f"/runs/{run['id']}/answers/{question['id']}", json={"approved": True})
            assert said(client.events(run["id"])).endswith("It gave: mounted\n")
        assert "; Path=/prefix/api;" in client.post("/session").headers["set-cookie"]
        assert code_of(client.get("/nowhere")) == (404, "not-found")
        assert client.get(f"{url}/no/such/path").status_code == 404
    app.shutdown()


def test_the_page_has_the_text_of_its_header_escaped(agents: Agents) -> None:
    with serve(create_app(agents, token=TOKEN, page="<b>&")) as url, Client(url) as client:
        assert '<span id="model" class="note">&lt;b&gt;&amp;</span>' in client.get("/").text
    wrong: Any = 1.5
    with pytest.raises(sk.UsageError, match="`page` is"):
        create_app(agents, token=TOKEN, page=wrong)


def test_the_page_is_served(agents: Agents) -> None:
    """Its files without a token, and nothing else; with a policy that lets nothing foreign in."""
    with serve(create_app(agents, token=TOKEN, page=True)) as url, Client(url, headers={"Authorization": ""}) as client:
        page = client.get("/")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert page.headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self';"
            " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert client.get("/streamkit.js").headers["content-type"] == "text/javascript; charset=utf-8"
        types = client.get("/streamkit.d.ts")
        assert (types.headers["content-type"], "export class" in types.text) == ("text/plain; charset=utf-8", True)
        for path in (
            "/notes.txt",
            "/missing.js",
            "/..%2fapp.py",
            "/%2e%2e/app.py",
            f"/{'a' * 300}.js",
            "/%00.js",
        ):
            assert code_of(client.get(path)) == (404, "not-found")
        assert code_of(client.get("/runs")) == (401, "unauthorized")
        assert client.get("/health").status_code == 200


HANGS = "import time\nfor n in range(10_000):\n    print('tick', flush=True)\n    time.sleep(0.01)"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_stop_ends_real_code(kind: str) -> None:
    """Within a second; the process that ran it is not busy any more, and nothing is printed after the end."""
    with (
        ModelServer(Reply("I will. ", code(HANGS))) as model,
        Computer() as computer,
        openai.OpenAI(base_url=model.url, api_key="any") as sync,
    ):
        # Its connections end with each response: none outlives the event loop of the server.
        headers = {"Connection": "close"}
        asynchronous = openai.AsyncOpenAI(base_url=model.url, api_key="any", default_headers=headers)
        options: dict[str, Any] = {"model": "m", "protocol": "openai_chat", "computer": computer, "auto_run": True}

        def factory(context: Any) -> Any:
            if kind == "sync":
                return sk.Agent(sync, **options)
            return sk.AsyncAgent(asynchronous, **options)

        with serve(create_app(factory, token=TOKEN)) as url, Client(url) as client:
            run = client.begin("go")
            assert _prints(client, run["id"])
            begun = time.monotonic()
            client.post(f"/runs/{run['id']}/cancel")
            client.until(run["id"], "cancelled")
            took = time.monotonic() - begun
            frames = client.events(run["id"])
            assert [frame.type for frame in frames][-1] == "stream_end"
            assert [*computer.run("python", "print(6 * 7)")]
    assert took < 20.0  # a second, and what a busy machine adds


def _prints(client: Client, run_id: str) -> bool:
    """Whether the code has printed something."""
    with client.stream("GET", f"/runs/{run_id}/events") as response:
        text = ""
        for piece in response.iter_text():
            text += piece
            if "tick" in text:
                return True
    return False
