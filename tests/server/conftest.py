"""What most tests of the server share, one for each module: agents with a scripted model, and an app that runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamkit.server import create_app

from .parts import TOKEN, Agents, Client, serve


@pytest.fixture(scope="module")
def agents() -> Iterator[Agents]:
    made = Agents()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(agents: Agents) -> Iterator[Client]:
    with serve(create_app(agents, token=TOKEN)) as url, Client(url) as made:
        yield made
