"""Clients of other providers are refused by an agent before any request, with what they are and what is taken instead.

pip install -e '.[test,integrations]'
"""

from __future__ import annotations

from typing import Any

import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

cohere = pytest.importorskip("cohere")

CLIENTS = [
    ("cohere", "ClientV2", lambda url: cohere.ClientV2(api_key="any", base_url=url)),
    ("cohere", "AsyncClientV2", lambda url: cohere.AsyncClientV2(api_key="any", base_url=url)),
]
PROTOCOLS = [None, "openai_responses", "openai_chat", "anthropic"]


@pytest.mark.parametrize("kind", [sk.Agent, sk.AsyncAgent])
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("package", "name", "make"), CLIENTS)
def test_a_client_of_another_provider_is_refused_by_its_name(
    kind: Any, protocol: str | None, package: str, name: str, make: Any
) -> None:
    """Nothing of how that was found out, and no request is sent."""
    with ModelServer(Reply("Never.")) as server:
        with pytest.raises(sk.UsageError) as raised:
            kind(make(server.root_url), model="m", protocol=protocol)
        assert server.requests == []
    message = str(raised.value)
    assert message.startswith(f"a {package} `{name}` is not a client ")
    assert "pass one of openai, anthropic" in message
    assert "`openai.OpenAI(base_url=…)`" in message
    assert "has no attribute" not in message


def test_the_server_of_ollama_is_asked_through_the_client_of_openai() -> None:
    """As the refusal says."""
    openai = pytest.importorskip("openai")
    with ModelServer(Reply("Hello.")) as server:
        client = openai.OpenAI(base_url=server.url, api_key="any")
        assert sk.Agent(client, model="m").stream("Go.").get_final_text() == "Hello."
        assert server.requests[0].path.endswith("/chat/completions")
