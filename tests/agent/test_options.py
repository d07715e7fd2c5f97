"""Arguments of agents and of their streams that do not exist are refused before any request, and say what may be meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import anthropic
import openai
import pytest

import streamkit as sk
from streamkit.agent.apis import APIS
from streamkit.asking import Asker
from streamkit.testing import ModelServer, Reply

from ..faces import Face, body, both_shells
from ..recorded import in_a_loop
from .parts import PROVIDERS, ToyComputer, agent_on, code, every_provider

KINDS = pytest.mark.parametrize("kind", [sk.Agent, sk.AsyncAgent])
OWN = [name for name in inspect.signature(sk.Agent).parameters if name not in ("client", "model", "options")]


def maker(kind: Any, provider: str) -> Callable[..., Any]:
    """Makes agents of this kind with a real client of this provider."""
    if provider == "anthropic":
        return lambda **options: kind(anthropic.Anthropic(api_key="any"), model="m", **options)
    return lambda **options: kind(openai.OpenAI(api_key="any"), model="m", protocol=provider, **options)


def misspelled(name: str) -> list[str]:
    """The name without a character, and with one too many."""
    return [name[:-1], f"{name}{name[-1]}"]


@KINDS
@pytest.mark.parametrize("provider", PROVIDERS)
@in_a_loop("name", [*OWN, "temperature", "max_tokens", "extra_body"])
def test_a_misspelled_argument_is_refused_with_the_right_one(kind: Any, provider: str, name: str) -> None:
    """Each argument of the agent, and some of the client's methods."""
    make = maker(kind, provider)
    create = attrgetter(APIS[provider].method)(make().provider.client)
    known = {*OWN, *inspect.signature(create).parameters}
    for wrong in misspelled(name) if name in known else []:
        if wrong not in known:
            with pytest.raises(sk.UsageError, match=f"'{wrong}': did you mean '{name}'"):
                make(**{wrong: None})
            with pytest.raises(sk.UsageError, match=f"'{wrong}': did you mean '{name}'"):
                make().stream("Go.", **{wrong: None})


class _Anything:
    """A client whose method takes any keyword."""

    class chat:
        class completions:
            @staticmethod
            def create(**options: Any) -> None: ...


@KINDS
def test_a_client_that_takes_anything_is_passed_anything(kind: Any) -> None:
    agent = kind(_Anything(), model="m", xyzzy=1)
    agent.stream("Go.", temprature=2)
    assert agent.options == {"xyzzy": 1}


@KINDS
@pytest.mark.parametrize("name", ["output_mode", "max_steps", "retry"])
def test_an_argument_of_the_agent_is_none_of_one_stream(kind: Any, name: str) -> None:
    agent = maker(kind, "openai_chat")()
    with pytest.raises(sk.UsageError, match=f"'{name}' is an argument of the agent, for all of its streams"):
        agent.stream("Go.", **{name: 3})


@KINDS
def test_an_argument_of_one_stream_is_none_of_the_agent(kind: Any) -> None:
    with pytest.raises(sk.UsageError, match="'deps' is for one run: pass it to"):
        maker(kind, "openai_chat")(deps=1)
    with pytest.raises(sk.UsageError, match="'dep': did you mean 'deps'"):
        maker(kind, "openai_chat")().stream("Go.", dep=1)


@KINDS
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_is_called_otherwise_elsewhere_is_named(kind: Any, provider: str) -> None:
    with pytest.raises(sk.UsageError, match="'system_prompt': did you mean 'instructions'"):
        maker(kind, provider)(system_prompt="Be brief.")
    with pytest.raises(sk.UsageError, match="'xyzzy': `extra_body` passes"):
        maker(kind, provider)(xyzzy=1)


@KINDS
def test_what_is_missing_names_the_agent(kind: Any) -> None:
    name = kind.__name__
    with pytest.raises(sk.UsageError, match=f"^{name} needs `model=`; did you mean that by 'modle'"):
        kind(openai.OpenAI(api_key="any"), modle="m")
    with pytest.raises(sk.UsageError, match=f"^{name} needs `model=`$"):
        kind(openai.OpenAI(api_key="any"))
    with pytest.raises(sk.UsageError, match=f"^{name} needs a client"):
        kind(model="m")


class _Foreign:
    """A client whose `chat` is a method, as those of cohere and ollama have it."""

    def chat(self, **request: Any) -> None: ...


_Foreign.__module__ = "cohere.client_v2"


@KINDS
@pytest.mark.parametrize("client", [_Foreign(), object(), _Foreign, "openai"], ids=["chat", "object", "class", "text"])
@pytest.mark.parametrize("protocol", [None, *PROVIDERS])
def test_a_foreign_client_is_refused_with_what_it_is_and_what_is_taken(kind: Any, client: Any, protocol: Any) -> None:
    """Nothing of how it was found out."""
    with pytest.raises(sk.UsageError) as raised:
        kind(client, model="m", protocol=protocol)
    if isinstance(client, _Foreign):
        assert str(raised.value).startswith("a cohere `_Foreign` is not a client ")
    if not isinstance(client, type):
        assert "pass one of openai, anthropic" in str(raised.value)
        assert "openai.OpenAI(base_url=…)" in str(raised.value)


@both_shells
@body
async def test_an_asker_that_cannot_read_leaves_the_question_open(
    face: Face, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a notebook without an input, for example: nothing runs, nothing is raised, and it can be asked again."""

    def broken(question: str) -> str:
        raise NotImplementedError("raw_input was called, but this frontend does not support input requests")

    computer = ToyComputer()
    with ModelServer([Reply(code("say hello")), Reply("Never.")]) as server:
        async with agent_on(face, server, computer=computer) as talker:
            stream = await talker.say("Go.", Asker(read=broken))
    assert (computer.ran, stream.status) == ([], "requires_action")
    assert [confirmation.status for confirmation in stream.confirmations] == ["unanswered"]
    assert "Nobody can be asked here (NotImplementedError: raw_input" in capsys.readouterr().out


@both_shells
@every_provider
@body
async def test_extra_body_passes_anything(face: Face, provider: str) -> None:
    """And the right options still go into the request."""
    option: dict[str, Any] = {"max_tokens": 77} if provider == "anthropic" else {"temperature": 0.5}
    with ModelServer(Reply("Hello.")) as server:
        async with agent_on(face, server, provider, **option) as talker:
            await talker.say("Go.", extra_body={"xyzzy": 1})
        assert server.requests[0].body.items() >= {"xyzzy": 1, **option}.items()


@KINDS
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_agent_shows_its_model_protocol_and_messages(kind: Any, provider: str) -> None:
    agent = maker(kind, provider)()
    assert repr(agent) == f"<{kind.__name__} m {provider}, 0 messages>"
    agent.messages.append(sk.TextMessage("m1", role="user", content="Hello"))
    assert repr(agent) == f"<{kind.__name__} m {provider}, 1 message>"
