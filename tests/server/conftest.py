"""What most tests of the server share, one for each module and backend: agents with a scripted model, and an app that runs
them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .backends import BACKENDS, Backend
from .parts import Agents, Client, serve


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    made = Backend(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def new_records(request: pytest.FixtureRequest) -> None:
    """A test finds what its own runs did: the one before it may be itself, on another backend."""
    if "agents" in request.fixturenames:
        request.getfixturevalue("agents").forget()


@pytest.fixture(scope="module")
def client(agents: Agents, backend: Backend) -> Iterator[Client]:
    with serve(backend.app(agents)) as url, Client(url) as made:
        yield made
