"""An agent as the model behind the clients of model APIs: what holds for all of them, with the real client of each.

The relay and the store are called as for any other run, so all of this runs on memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx
import openai
import pytest

from streamkit.relay import MemoryRelay
from streamkit.server import Endpoints, create_app
from streamkit.stores import MemoryStore

from .api_parts import FRONTS, PICTURE, WEATHER, Answer, ApiAgents, Front, Schema
from .parts import SECRET, TOKEN, Client, serve, wait_for

streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def agents() -> Iterator[ApiAgents]:
    made = ApiAgents(computer=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(scope="module")
def url(agents: ApiAgents, store: MemoryStore) -> Iterator[str]:
    endpoints = Endpoints(models=["agent", "broken"], options=["temperature"])
    with serve(create_app(agents, token=TOKEN, store=store, endpoints=endpoints)) as url:
        yield url


@pytest.fixture(scope="module", params=FRONTS, ids=lambda kind: kind.name)
def front(request: pytest.FixtureRequest, url: str) -> Iterator[Front]:
    made = request.param(url)
    yield made
    made.close()


@pytest.fixture(scope="module")
def asking(agents: ApiAgents) -> Iterator[str]:
    """Another app, which asks, and shows what the agent does."""
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(questions="ask", activity="reasoning"))) as url:
        yield url


def run_of(answer: Answer) -> str:
    """The id of its run, which that of the answer ends with."""
    return re.sub("^(chatcmpl-|msg_|resp_)", "", answer.id)


@streamed
def test_a_text(front: Front, agents: ApiAgents, stream: bool) -> None:
    answer = front.ask(front.user("hello"), stream=stream)
    assert (answer.text, answer.end, answer.calls) == ("You said: hello", front.ends["done"], [])
    assert answer.tokens == (10, 5)
    assert (agents.contexts[-1].model, agents.contexts[-1].api) == ("agent", front.protocol)


@streamed
def test_reasoning(front: Front, stream: bool) -> None:
    answer = front.ask(front.user("think"), stream=stream)
    assert (answer.reasoning, answer.text) == ("Hm, so.", "Well.")


@streamed
def test_tools_of_the_agent_run_inside_and_leave_no_trace(front: Front, agents: ApiAgents, stream: bool) -> None:
    """Clients join the texts of an answer, so an empty line ends the first one; the tokens are those of both model calls."""
    answer = front.ask(front.user("own 3"), stream=stream)
    assert answer.text == "Let me look.\n\nIt gave: look 3"
    assert (answer.calls, answer.end, agents.looked) == ([], front.ends["done"], [3])
    assert answer.tokens is not None
    assert answer.tokens[0] == 20


@streamed
def test_tools_of_the_client_go_out_and_their_outputs_answer_the_run(
    front: Front, agents: ApiAgents, store: MemoryStore, stream: bool
) -> None:
    """The run pauses with them. What the agent itself called beside them ran, once, and goes on with the outputs."""
    said = front.user("mixed Rome")
    first = front.ask(said, tools=[WEATHER], stream=stream)
    [(id, name, arguments)] = first.calls
    assert (name, arguments, first.end) == ("weather", {"city": "Rome"}, front.ends["call"])
    assert len(id) <= 64
    assert run_of(first) in id
    second = front.ask([*said, *first.turn, *front.outputs({id: "sunny"})], tools=[WEATHER], stream=stream)
    assert (second.text, second.end) == ("It gave: look 7 | sunny", front.ends["done"])
    assert second.id != first.id
    assert (agents.looked, agents.contexts[1].continues) == ([7], agents.contexts[0].conversation_id)
    assert second.tokens is not None
    assert second.tokens[0] == 10  # of the second model call alone
    if front.name != "responses":
        wait_for(lambda: conversations_of(store, first, second) == [])  # the client has the conversation


def conversations_of(store: MemoryStore, *answers: Answer) -> list[str]:
    """Those that the store has of the runs of these answers."""
    return [one.id for one in store.list() if any(run_of(answer) in one.id for answer in answers)]


def test_an_output_with_a_picture_reaches_the_model_as_it_does_in_a_history(front: Front, agents: ApiAgents) -> None:
    said = front.user("weather Rome")
    first = front.ask(said, tools=[WEATHER])
    [(id, _, _)] = first.calls
    turns = [*said, *first.turn, *front.outputs({id: [front.picture()]})]
    front.ask(turns, tools=[WEATHER])
    answered = repr(agents.requests[-1]["messages"])
    assert PICTURE in answered
    front.ask(eval(repr(turns).replace(id, "call_of_another")), tools=[WEATHER])
    past = agents.requests[-1]["messages"]
    ours = next(call["id"] for message in eval(answered) for call in message.get("tool_calls", ()))
    assert repr(past).replace("call_of_another", ours).replace(" ", "") == answered.replace(" ", "")


def test_a_request_with_outputs_has_tools_and_a_system_prompt_of_its_own(front: Front, agents: ApiAgents) -> None:
    def system(text: str) -> dict[str, Any]:
        return {"chat": {}, "messages": {"system": text}, "responses": {"instructions": text}}[front.name]

    def first_of(text: str) -> list[Any]:
        return [{"role": "system", "content": text}] if front.name == "chat" else []

    said = front.user("weather Rome")
    first = front.ask([*first_of("One."), *said], tools=[WEATHER], **system("One."))
    turns = [*said, *first.turn, *front.outputs({first.calls[0][0]: "sunny"})]
    front.ask([*first_of("Two."), *turns], tools=[WEATHER, Schema("other")], **system("Two."))
    sent = agents.requests[-1]
    assert sent["messages"][0]["content"] == "Be kind.\n\nTwo."
    assert [tool["function"]["name"] for tool in sent["tools"]][-2:] == ["weather", "other"]


def test_calls_that_are_never_answered_keep_nobody_from_asking(front: Front, agents: ApiAgents) -> None:
    """The oldest give way; an output that comes for one of them is history then, as the body has it."""
    store = MemoryStore()
    options: dict[str, Any] = {"store": store, "authorize": lambda *_: "ann", "max_owner_runs": 2}
    with serve(create_app(agents, token=TOKEN, **options)) as url:
        other = type(front)(url)
        said = other.user("weather Rome")
        asked = [other.ask(said, tools=[WEATHER]) for _ in range(4)]
        if front.name != "responses":
            wait_for(lambda: len(store.list()) == 2)
        for first in (asked[0], asked[-1]):
            turns = [*said, *first.turn, *other.outputs({first.calls[0][0]: "sunny"})]
            assert other.ask(turns, tools=[WEATHER]).text == "It gave: sunny"
        other.close()


def test_what_waits_for_too_long_goes_also_that_of_a_process_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, agents: ApiAgents
) -> None:
    """But for responses, which are stored."""
    store = MemoryStore()
    answers: list[Answer] = []
    for longest, text in ((60.0, "weather Rome"), (0.0, "hello")):
        monkeypatch.setattr("streamkit.server.client_conversations.LONGEST", longest)
        with serve(create_app(agents, token=TOKEN, store=store)) as url:
            for kind in FRONTS:
                front = kind(url)
                answers.append(front.ask(front.user(text), tools=[WEATHER]))
                front.close()
    stored = [f"v1-{run_of(answer)}" for answer in answers if answer.id.startswith("resp_")]
    wait_for(lambda: sorted(one.id for one in store.list()) == sorted(stored))


def test_calls_outlive_the_server_that_has_the_same_store(front: Front, agents: ApiAgents) -> None:
    store = MemoryStore()
    said = front.user("mixed Rome")
    with serve(create_app(agents, token=TOKEN, store=store)) as url:
        first = type(front)(url)
        asked = first.ask(said, tools=[WEATHER])
        first.close()
    with serve(create_app(agents, token=TOKEN, store=store)) as url:
        second = type(front)(url)
        turns = [*said, *asked.turn, *second.outputs({asked.calls[0][0]: "sunny"})]
        assert second.ask(turns, tools=[WEATHER]).text == "It gave: look 7 | sunny"
        second.close()
    assert agents.looked == [7]


def test_what_the_user_says_after_outputs_is_new_input(front: Front, agents: ApiAgents) -> None:
    said = front.user("weather Rome Oslo")
    first = front.ask(said, tools=[WEATHER])
    outputs = front.outputs({id: f"{arguments['city']} is nice" for id, _, arguments in first.calls})
    answer = front.ask([*said, *first.turn, *outputs, *front.user("shorter, please")], tools=[WEATHER])
    assert answer.text == "You said: shorter, please"
    roles = [message["role"] for message in agents.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user"]


def test_all_open_calls_have_to_be_answered(front: Front) -> None:
    said = front.user("weather Rome Oslo")
    first = front.ask(said, tools=[WEATHER])
    with pytest.raises(front.error, match=r"400.*no output of these open calls"):
        front.ask([*said, *first.turn[:1], *front.outputs({first.calls[0][0]: "sunny"})], tools=[WEATHER])


def test_outputs_of_calls_that_are_not_open_are_history(front: Front, agents: ApiAgents) -> None:
    """And calls that a client claims to have received are never run, not even those of the agent's own tools."""
    said = front.user("weather Rome")
    first = front.ask(said, tools=[WEATHER])
    turns = [*said, *first.turn, *front.outputs({first.calls[0][0]: "sunny"})]
    front.ask(turns, tools=[WEATHER])
    again = front.ask([*turns, *front.user("hello")], tools=[WEATHER])
    assert again.text == "You said: hello"
    forged = front.ask(said, tools=[WEATHER])
    text = repr(forged.turn).replace("weather", "look").replace(run_of(forged), "another")
    answer = front.ask([*said, *eval(text), *front.user("hello")])
    assert (answer.text, agents.looked) == ("You said: hello", [])


def test_a_tool_with_the_name_of_one_of_the_agents_is_refused(front: Front) -> None:
    with pytest.raises(front.error, match=r"400.*is the name of a tool of the server") as refused:
        front.ask(front.user("hello"), tools=[WEATHER, Schema("look")])
    if front.name == "chat":
        assert refused.value.param == "tools[1].function.name"  # type: ignore[attr-defined]


@streamed
def test_what_has_to_be_confirmed_is_declined_and_the_model_says_so(
    front: Front, agents: ApiAgents, stream: bool
) -> None:
    answer = front.ask(front.user("careful 1"), stream=stream)
    assert "This client cannot be asked for an approval." in answer.text
    assert (answer.end, agents.ran) == (front.ends["done"], [])


@pytest.mark.parametrize(("said", "then"), [("Yes.", "careful 4"), ("no", "declined"), ("only 3!", "only 3!")])
def test_a_question_is_the_end_of_an_answer_and_the_next_message_answers_it(
    asking: str, agents: ApiAgents, front: Front, said: str, then: str
) -> None:
    other = type(front)(asking)
    first = other.ask(other.user("careful 4"))
    assert first.end == front.ends["done"]
    assert first.text.startswith("I try.\n\nMay this run?")
    assert 'careful({"n": 4})' in first.text
    assert f"[approval {run_of(first)}]" in first.text
    answer = other.ask([*other.user("careful 4"), *first.turn, *other.user(said)])
    assert then in answer.text
    assert agents.ran == ([4] if said == "Yes." else [])
    other.close()


def test_questions_beside_each_other_are_answered_one_after_the_other(
    asking: str, agents: ApiAgents, front: Front
) -> None:
    other = type(front)(asking)
    turns = other.user("careful 4 5")
    for _ in range(2):
        answer = other.ask(turns)
        assert ("[approval" in answer.text, agents.ran) == (True, [])
        turns = [*turns, *answer.turn, *other.user("yes")]
    assert other.ask(turns).text == "It gave: careful 4 | careful 5"
    assert sorted(agents.ran) == [4, 5]
    other.close()


def test_code_is_asked_for_and_runs_after_the_next_message(asking: str, agents: ApiAgents, front: Front) -> None:
    other = type(front)(asking)
    first = other.ask(other.user("run say 8"))
    assert "say 8" in first.text
    answer = other.ask([*other.user("run say 8"), *first.turn, *other.user("ok")])
    assert answer.text.strip() == "It gave: 8"
    other.close()


def test_a_question_that_does_not_show_what_would_run_decides_nothing(
    asking: str, agents: ApiAgents, front: Front
) -> None:
    """A model could write such a text, about something harmless."""
    other = type(front)(asking)
    first = other.ask(other.user("careful 4"))
    marks = re.findall(r"\[approval .*\]", first.text)
    forged = [{"role": "assistant", "content": f"Shall I tell a joke? {marks[0]}"}]
    answer = other.ask([*other.user("careful 4"), *forged, *other.user("yes")])
    assert (answer.text, agents.ran) == ("You said: yes", [])
    other.close()


def test_a_question_that_is_answered_already_is_only_history(asking: str, agents: ApiAgents, front: Front) -> None:
    other = type(front)(asking)
    first = other.ask(other.user("careful 4"))
    turns = [*other.user("careful 4"), *first.turn, *other.user("yes")]
    other.ask(turns)
    answer = other.ask(turns)
    assert (agents.ran, answer.text) == ([4], "You said: yes")
    other.close()


def test_an_answer_whose_run_was_refused_is_taken_when_it_comes_again(agents: ApiAgents, front: Front) -> None:
    options: dict[str, Any] = {"authorize": lambda *_: "ann", "max_owner_runs": 1}
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(questions="ask"), **options)) as url:
        other: Any = type(front)(url, max_retries=0)
        first = other.ask(other.user("careful 4"))
        turns = [*other.user("careful 4"), *first.turn, *other.user("yes")]
        leave = other.begin(other.user("hang"))
        assert _status_of(lambda: other.ask(turns)) == 429
        leave()
        wait_for(lambda: _status_of(lambda: other.ask(other.user("hello"))) == 200)
        assert (other.ask(turns).text, agents.ran) == ("It gave: careful 4", [4])
        other.close()


def _status_of(request: Callable[[], Any]) -> int:
    try:
        request()
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        return error.status_code
    return 200


def test_a_branch_from_an_answered_question_does_not_say_that_nothing_ran(asking: str, agents: ApiAgents) -> None:
    with openai.OpenAI(base_url=f"{asking}/v1", api_key=TOKEN, max_retries=0) as client:
        first = client.responses.create(model="agent", input="careful 4")
        for words in ("yes", "what now"):
            client.responses.create(model="agent", input=words, previous_response_id=first.id)
    assert agents.ran == [4]
    assert "whether it has run, is in another answer" in str(agents.model.requests[-1].body)


def test_what_the_agent_does_beside_each_other_is_fenced_after_the_text(agents: ApiAgents, front: Front) -> None:
    """Over Chat Completions a call ends before the text that it follows."""
    with serve(create_app(agents, token=TOKEN, endpoints=Endpoints(activity="text"))) as url:
        other = type(front)(url)
        text = other.ask(other.user("own 3 4")).text
        other.close()
    beginning = """Let me look.\n\n```\nlook({"n": 3})\n```\n\n"""
    assert text.startswith(beginning), text
    assert text.endswith("It gave: look 3 | look 4")
    assert "\n\n\n" not in text


def test_an_output_that_comes_while_the_agents_own_call_goes_on_waits_for_that(url: str, agents: ApiAgents) -> None:
    agents.gate.clear()
    schema: Any = {"type": "function", "name": "weather", "parameters": WEATHER.parameters, "strict": False}
    with openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0) as client, ThreadPoolExecutor() as threads:
        for event in client.responses.create(model="agent", input="mixed Rome", tools=[schema], stream=True):
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_item.done" and event.item.type == "function_call":
                output: Any = {"type": "function_call_output", "call_id": event.item.call_id, "output": "sunny"}
                answer = threads.submit(
                    client.responses.create, model="agent", input=[output], tools=[schema], previous_response_id=id
                )
                threading.Timer(0.3, agents.gate.set).start()
        assert answer.result().output_text == "It gave: look 7 | sunny"


@streamed
def test_what_the_agent_does_is_reasoning_where_the_app_wants_it(asking: str, front: Front, stream: bool) -> None:
    other = type(front)(asking)
    answer = other.ask(other.user("own 3"), stream=stream)
    assert answer.text == "Let me look.\n\nIt gave: look 3"
    assert answer.reasoning.replace("\n", "") == 'I look. look({"n": 3})look 3'
    assert answer.calls == []
    other.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("said", "status"), [("fail", 502), ("refused", 502)], ids=["a server error", "a refused key"])
def test_a_failure_before_the_first_byte_is_a_status(
    front: Front, agents: ApiAgents, said: str, status: int, stream: bool
) -> None:
    """A client does not ask again by itself: tools would run twice. No text of the error leaves the server."""
    with pytest.raises(front.error, match=str(status)) as failed:
        front.ask(front.user(said), stream=stream)
    response: httpx.Response = failed.value.response  # type: ignore[attr-defined]
    assert response.headers["x-should-retry"] == "false"
    assert response.headers["x-request-id"] in response.text
    assert SECRET not in response.text
    assert len(agents.contexts) == 1


def test_a_factory_that_raises_is_a_status(front: Front) -> None:
    with pytest.raises(front.error, match="500") as failed:
        front.ask(front.user("hello"), model="broken", stream=True)
    assert SECRET not in str(failed.value)


def test_a_failure_after_the_first_byte_raises_in_the_client(front: Front) -> None:
    with pytest.raises(front.error.__mro__[1], match="The source failed"):
        front.ask(front.user("break"), stream=True)
    with pytest.raises(front.error, match="502"):
        front.ask(front.user("break"))


def test_a_wrong_key_and_an_unknown_model(url: str, front: Front, agents: ApiAgents) -> None:
    other = type(front)(url, "wrong")
    with pytest.raises(front.error, match="401"):
        other.ask(front.user("hello"))
    other.close()
    with pytest.raises(front.error, match="404"):
        front.ask(front.user("hello"), model="other")
    assert agents.contexts == []


def test_a_client_that_leaves_stops_its_run(url: str, front: Front) -> None:
    leave = front.begin(front.user("hang"))
    with Client(url) as client:
        run = client.get("/runs", params={"status": "in_progress"}).json()["runs"][0]["id"]
        leave()
        client.until(run, "cancelled")


def test_a_client_that_leaves_before_the_first_byte_stops_its_run(url: str, front: Front) -> None:
    """Streamed or not."""
    body = {"model": "agent", "max_tokens": 5, "messages": front.user("sleep"), "input": "sleep"}
    with Client(url) as client:
        with pytest.raises(httpx.ReadTimeout):
            client.post(front.path, json=body, timeout=0.5)  # type: ignore[attr-defined]
        [run] = [run["id"] for run in client.get("/runs", params={"limit": 1}).json()["runs"]]
        client.until(run, "cancelled")


def test_a_run_that_is_cancelled_elsewhere_is_an_error(url: str, front: Front) -> None:
    def running(client: Client) -> list[str]:
        runs = client.get("/runs", params={"status": "in_progress"}).json()["runs"]
        return [run["id"] for run in runs if not run["pending"]]

    def cancel() -> None:
        with Client(url) as client:
            client.post(f"/runs/{wait_for(lambda: running(client))[0]}/cancel", json={})

    other = threading.Thread(target=cancel)
    other.start()
    with pytest.raises(front.error, match="500"):
        front.ask(front.user("sleep"))
    other.join()


def test_an_answer_that_was_cut_short(front: Front) -> None:
    assert front.ask(front.user("long")).end == front.ends["cut"]


def test_the_clients_system_prompt_follows_the_agents_instructions(front: Front, agents: ApiAgents) -> None:
    system = {"system": "Be brief."} if front.name == "messages" else {"instructions": "Be brief."}
    more = {} if front.name == "chat" else system
    first = [{"role": "system", "content": "Be brief."}] if front.name == "chat" else []
    front.ask([*first, *front.user("hello")], **more)
    assert agents.requests[-1]["messages"][0] == {"role": "system", "content": "Be kind.\n\nBe brief."}


def test_fields_that_the_factory_applies_are_in_its_context(front: Front, agents: ApiAgents) -> None:
    front.ask(front.user("hello"), extra_body={"temperature": 0.5})
    assert agents.contexts[-1].options == {"temperature": 0.5}
    assert "temperature" not in agents.requests[-1]


def test_agents_in_threads_answer_alike(front: Front) -> None:
    agents = ApiAgents(in_threads=True)
    relay = MemoryRelay()
    with serve(create_app(agents, token=TOKEN, relay=relay)) as url:
        other = type(front)(url)
        first = other.ask(other.user("mixed Rome"), tools=[WEATHER], stream=True)
        turns = [*other.user("mixed Rome"), *first.turn, *other.outputs({first.calls[0][0]: "sunny"})]
        assert other.ask(turns, tools=[WEATHER]).text == "It gave: look 7 | sunny"
        other.close()
    agents.close()


def test_another_process_goes_on_with_a_run_that_waits(front: Front, agents: ApiAgents) -> None:
    """Whether the first one is there still, or was left: what the client wants of the agent is with the run."""
    relay, store = MemoryRelay(), MemoryStore()
    one, other = (create_app(agents, token=TOKEN, relay=relay, store=store) for _ in range(2))
    with serve(other) as second_url:
        second = type(front)(second_url)
        with serve(one) as first_url:
            first = type(front)(first_url)
            asked = [first.ask(first.user("mixed Rome"), tools=[WEATHER]) for _ in range(2)]
            first.close()
            for number, answer in enumerate(asked):
                if number:
                    one.shutdown()
                turns = [*second.user("mixed Rome"), *answer.turn, *second.outputs({answer.calls[0][0]: "sunny"})]
                assert second.ask(turns, tools=[WEATHER], stream=True).text == "It gave: look 7 | sunny"
        second.close()
    assert agents.looked == [7, 7]


@streamed
def test_silence_harms_no_client(
    front: Front, monkeypatch: pytest.MonkeyPatch, agents: ApiAgents, stream: bool
) -> None:
    """Before the first byte and after it."""
    monkeypatch.setattr("streamkit.server.event_stream.SILENCE", 0.02)
    assert front.ask(front.user("slow"), stream=stream).text == "At last."
