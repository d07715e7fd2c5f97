"""The app runs on asyncio and on trio: agents in tasks and in threads, apart from the requests."""

from __future__ import annotations

from typing import Any

import anyio
import httpx
import pytest

from streamkit.server import Run

from .backends import Backend
from .parts import Agents, frames_of, said


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_on_every_event_loop(backend: Backend, kind: str) -> None:
    """With an `async def` factory and an `async def` authorize."""
    agents = Agents()

    async def factory(context: Any) -> Any:
        return agents(context)

    async def authorize(run: Run | None, request: Any) -> bool:
        return request.headers.get("x-user") == "ann"

    app = backend.app(factory, token=None, authorize=authorize)
    transport = httpx.ASGITransport(app)
    with anyio.fail_after(60):
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers={"x-user": "ann"}
        ) as client:
            assert (await client.get("/runs", headers={"x-user": "bob"})).status_code == 403
            begun = await client.post("/runs", json={"input": "run say loop", "metadata": {"kind": kind}})
            run = begun.json()
            while not run["pending"]:
                await anyio.sleep(0.005)
                run = (await client.get(f"/runs/{run['id']}")).json()
            path = f"/runs/{run['id']}/answers/{run['pending'][0]['id']}"
            await client.post(path, json={"approved": True})
            text = (await client.get(f"/runs/{run['id']}/events")).text
    assert said([*frames_of(iter([text]))]) == "I will. It gave: loop\n"
    await agents.aclose()
