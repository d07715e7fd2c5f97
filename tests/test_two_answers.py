"""A source with two answers of a model, one after the other: as a proxy sends that joins responses, or a file that has several."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

import streamkit as sk
from streamkit.testing import ModelServer, Reply

from .faces import Face, body, every_face

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/responses", {"model": "m", "input": "x", "stream": True}),
    "anthropic": ("/messages", {"model": "m", "messages": [], "max_tokens": 9, "stream": True}),
}


def _answers(api: str) -> list[bytes]:
    """The bodies of two answers."""
    path, request = REQUESTS[api]
    headers = {"x-api-key": "none", "anthropic-version": "2023-06-01"}
    with ModelServer([Reply("One."), Reply("And two.")]) as server:
        url = server.url + path
        return [httpx.post(url, json=request, headers=headers, trust_env=False).content for _ in range(2)]


def _counts(usage: sk.Usage | None) -> tuple[int, int, int]:
    assert usage is not None
    return usage.input_tokens, usage.output_tokens, usage.total_tokens


@every_face
@pytest.mark.parametrize("api", REQUESTS)
@body
async def test_the_usage_is_that_of_both(face: Face, api: str) -> None:
    """Each answer is a step with its own."""
    answers = _answers(api)
    alone: list[sk.Usage] = []
    for answer in answers:
        stream = face.stream([answer])
        await stream.until_done()
        assert stream.usage is not None
        alone.append(stream.usage)
    both = face.stream([b"".join(answers)])
    await both.until_done()
    assert [message.content for message in both.messages] == ["One.", "And two."]
    steps = [step.usage for step in await both.get_final_run_steps()]
    assert list(map(_counts, steps)) == list(map(_counts, alone))
    assert _counts(both.usage) == tuple(map(sum, zip(*map(_counts, alone), strict=True)))
