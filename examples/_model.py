"""The model behind the examples: OpenAI if OPENAI_API_KEY is set, else a scripted model that is served on this machine.

OPENAI_MODEL names another model, OPENAI_BASE_URL another server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from streamkit.testing import ModelServer, Reply

NAME = os.environ.get("OPENAI_MODEL", "gpt-5.4-mini")


@contextmanager
def model(*script: Reply) -> Generator[tuple[OpenAI, str]]:
    """A client and a model's name. `script` holds the scripted model's replies, one for each request."""
    if os.environ.get("OPENAI_API_KEY"):
        with OpenAI() as client:
            yield client, NAME
        return
    with ModelServer(script) as server:
        local = DefaultHttpxClient(trust_env=False)  # no proxy leads to this machine
        with OpenAI(base_url=server.url, api_key="none", max_retries=0, http_client=local) as client:
            yield client, "scripted"


@asynccontextmanager
async def async_model(*script: Reply) -> AsyncGenerator[tuple[AsyncOpenAI, str]]:
    """As `model`, with an async client."""
    if os.environ.get("OPENAI_API_KEY"):
        async with AsyncOpenAI() as client:
            yield client, NAME
        return
    with ModelServer(script) as server:
        local = DefaultAsyncHttpxClient(trust_env=False)
        async with AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0, http_client=local) as client:
            yield client, "scripted"
