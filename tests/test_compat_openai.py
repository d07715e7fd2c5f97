"""`AssistantEventHandler` and its async twin: the OpenAI guide's example, any protocol, recordings, and odd uses."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.beta.threads import Message, Run, Text, TextDelta
from openai.types.beta.threads.runs import RunStep
from typing_extensions import override

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler, dispatch
from streamkit.compat.openai.dispatch import parse_item
from streamkit.testing import CodeInterpreter, ModelServer, Refusal, Reply, ToolCall

from . import assistants as a
from .assistants import call, each, every_way, message, message_delta, run, run_handler, text
from .faces import Face, ask, ask_responses, body, both_shells, every_face, every_pair, interpreter
from .telling import RECORDINGS, recordings

pytestmark = a.quiet

HELLO = [
    run("queued"),
    run("in_progress"),
    message("created"),
    message_delta(text("Hel", 0)),
    message_delta(text("lo", 0)),
    message("completed", content=[text("Hello")]),
    run("completed"),
]


# -- the example of OpenAI's guide


class GuideHandler(AssistantEventHandler):
    """As OpenAI's guide to streaming has it; only the import is another."""

    @override
    def on_text_created(self, text: Text) -> None:
        print("\nassistant > ", end="", flush=True)

    @override
    def on_text_delta(self, delta: TextDelta, snapshot: Text) -> None:
        print(delta.value, end="", flush=True)

    def on_tool_call_created(self, tool_call: Any) -> None:
        print(f"\nassistant > {tool_call.type}\n", flush=True)

    def on_tool_call_delta(self, delta: Any, snapshot: Any) -> None:
        if delta.type == "code_interpreter":
            if delta.code_interpreter.input:
                print(delta.code_interpreter.input, end="", flush=True)
            if delta.code_interpreter.outputs:
                print("\n\noutput >", flush=True)
                for output in delta.code_interpreter.outputs:
                    if output.type == "logs":
                        print(f"\n{output.logs}", flush=True)


def _through_the_client(server: ModelServer, handler: GuideHandler) -> None:
    with (
        openai.OpenAI(base_url=server.url, api_key="any") as client,
        client.beta.threads.runs.stream(thread_id="t", assistant_id="a", event_handler=handler) as stream,
    ):
        stream.until_done()


def _over_assistants(server: ModelServer, handler: GuideHandler) -> None:
    with openai.OpenAI(base_url=server.url, api_key="any") as client:
        sk.stream(
            lambda: client.beta.threads.runs.create(thread_id="t", assistant_id="a", stream=True), handler
        ).until_done()


def _over_responses(server: ModelServer, handler: GuideHandler) -> None:
    with openai.OpenAI(base_url=server.url, api_key="any") as client:
        sk.stream(lambda: client.responses.create(model="m", input="x", stream=True), handler).until_done()


def _over_anthropic(server: ModelServer, handler: GuideHandler) -> None:
    anthropic = pytest.importorskip("anthropic")
    with anthropic.Anthropic(base_url=server.root_url, api_key="any") as client:
        sk.stream(
            lambda: client.messages.create(model="m", max_tokens=9, messages=[], stream=True), handler
        ).until_done()


STARTS: dict[str, Callable[[ModelServer, GuideHandler], None]] = {
    "client": _through_the_client,
    "assistants": _over_assistants,
    "responses": _over_responses,
    "anthropic": _over_anthropic,
}


@pytest.mark.parametrize("start", list(STARTS.values()), ids=list(STARTS))
def test_the_example_of_the_guide_runs_with_its_import_changed(start: Callable[..., None]) -> None:
    """It prints the same over the real client, and over other protocols: text, code interpreter input and logs."""
    out = io.StringIO()
    handler = GuideHandler()
    with ModelServer(Reply(CodeInterpreter("print(1 + 1)", "2\n"), "It is 2.")) as server, redirect_stdout(out):
        start(server, handler)
    assert out.getvalue() == (
        "\nassistant > code_interpreter\n\nprint(1 + 1)\n\noutput >\n\n2\n\n\nassistant > It is 2."
    )
    assert handler.get_final_run().status == "completed"
    assert [step.type for step in handler.get_final_run_steps()] == ["tool_calls", "message_creation"]
    [code] = handler.get_final_run_steps()[0].step_details.tool_calls  # type: ignore[union-attr]
    assert code.type == "code_interpreter"
    assert code.code_interpreter.input == "print(1 + 1)"
    assert [output.type == "logs" and output.logs for output in code.code_interpreter.outputs] == ["2\n"]
    [made] = handler.get_final_messages()
    assert made.content[0].type == "text"
    assert made.content[0].text.value == "It is 2."


# -- any protocol


@both_shells
@body
async def test_any_protocol_is_told_in_openais_types(face: Face) -> None:
    """A Chat stream: the events, hooks, snapshots and accessors are those of an Assistants stream."""
    with ModelServer(Reply("Hello there")) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            await call(face.stream(ask(client), handler).until_done)
    assert handler.events[0] == "thread.run.created"
    assert handler.events[-1] == "thread.run.completed"
    assert [line.split()[0] for line in handler.outline][:3] == ["run_step_created", "message_created", "text_created"]
    assert [line.split()[0] for line in handler.outline][-4:] == ["text_done", "message_done", "run_step_done", "end"]
    assert isinstance(await call(handler.get_final_run), Run)
    assert all(isinstance(one, RunStep) for one in await call(handler.get_final_run_steps))
    [made] = await call(handler.get_final_messages)
    assert isinstance(made, Message)
    assert isinstance(made.content[0].text, Text)
    assert made.content[0].text.value == "Hello there"
    for delta, snapshot in handler.of("on_text_delta"):
        assert isinstance(delta, TextDelta)
        assert snapshot is made.content[0].text


@both_shells
@body
async def test_a_refusal_of_another_protocol_is_a_part_of_the_message(face: Face) -> None:
    """As it would be in a message of the Assistants API."""
    with ModelServer(Reply(Refusal("I can't."))) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            await call(face.stream(ask_responses(client), handler).until_done)
    [made] = await call(handler.get_final_messages)
    assert [(part.type, part.refusal) for part in made.content] == [("refusal", "I can't.")]


@both_shells
@body
async def test_calls_are_answered_from_hooks_on_any_protocol(face: Face) -> None:
    """`self.stream.pending[tool_call.id].respond(…)` in `on_tool_call_done`, with `then=` giving the next request."""

    def answer(self: Any, tool_call: Any) -> None:
        self.stream.pending[tool_call.id].respond({"degrees": 22})

    script = [Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("time")), Reply("It is 22.")]
    with ModelServer(script) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_tool_call_done=answer)

            def go_on(stream: Any) -> Any:
                outputs = [one for one in stream.messages if one.type == "tool_output"]
                return ask_responses(client, input=sk.to_input(outputs, "openai_responses"))

            await call(face.stream(ask_responses(client), handler, then=go_on).until_done)
    done = [tool_call for (tool_call,) in handler.of("on_tool_call_done")]
    assert [one.function.name for one in done] == ["weather", "time"]
    assert [one.function.output for one in done] == ['{"degrees":22}', '{"degrees":22}']
    assert handler.lines.count("end") == 1
    assert [one.content[0].text.value for one in await call(handler.get_final_messages)] == ["It is 22."]
    assert (await call(handler.get_final_run)).status == "completed"
    assert [one.type for one in await call(handler.get_final_run_steps)] == ["tool_calls", "message_creation"]


@both_shells
@body
async def test_an_assistants_stream_goes_on_with_then(face: Face) -> None:
    """Answered in `on_tool_call_done`, submitted by `then=`: one stream, one story."""

    def answer(self: Any, tool_call: Any) -> None:
        self.stream.pending[tool_call.id].respond("22")

    with ModelServer([Reply(ToolCall("weather", {"city": "Oslo"}), ToolCall("time")), Reply("It is 22.")]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_tool_call_done=answer)

            def start() -> Any:
                return client.beta.threads.runs.create(thread_id="t", assistant_id="a", stream=True)

            def go_on(stream: Any) -> Any:
                outputs = [one for one in stream.messages if one.type == "tool_output"]
                return client.beta.threads.runs.submit_tool_outputs(
                    thread_id="t",
                    run_id=stream.current_run.id,
                    tool_outputs=[{"tool_call_id": one.call_id, "output": one.content} for one in outputs],
                    stream=True,
                )

            await call(face.stream(start, handler, then=go_on).until_done)
            submitted = server.requests[1].body["tool_outputs"]
    assert [one["output"] for one in submitted] == ["22", "22"]
    words = [line.split()[0] for line in handler.outline]
    assert words.count("tool_call_done") == words.count("tool_call_created") == 2
    assert words.count("run_step_created") == words.count("run_step_done") == 2
    assert words[-1] == "end"
    steps = await call(handler.get_final_run_steps)
    assert [one.function.output for one in steps[0].step_details.tool_calls] == ["22", "22"]
    assert (await call(handler.get_final_run)).status == "completed"


@both_shells
@pytest.mark.parametrize("approves", [True, False])
@body
async def test_code_that_wants_to_run_is_declined_unless_it_is_approved(face: Face, approves: bool) -> None:
    """`on_confirmation` is the one hook that openai did not have."""
    asked: list[str] = []

    def on_confirmation(self: Any, confirmation: sk.Confirmation) -> None:
        asked.append(confirmation.subject.content)
        confirmation.approve()

    base = type(a.hook_log(face))
    kind = type("Approving", (base,), {"on_confirmation": on_confirmation}) if approves else base
    handler = kind()
    await call(face.stream(iter(interpreter()), handler).until_done)
    assert asked == (["34/24"] if approves else [])
    shown = [str(one) for one in handler.lines]
    assert any("[1.41]" in line for line in shown) is approves
    made = await call(handler.get_final_messages)
    assert [one.content[0].text.value for one in made] == (["About 1.4."] if approves else [])


# -- recordings


def _lines(handler: Any) -> list[str]:
    """The hooks' names, and a check of their brackets. Of a step of an earlier stream, only the end is told."""
    opened: dict[str, list[int]] = {"text": [], "tool_call": [], "message": [], "run_step": []}
    handler.earlier = []
    for name, arguments in handler.calls:
        kind, _, phase = name.removeprefix("on_").rpartition("_")
        if kind not in opened:
            continue
        key = id(arguments[-1])
        match phase:
            case "created":
                assert key not in opened[kind]
                opened[kind].append(key)
            case "delta":
                assert key in opened[kind], name
            case "done" if kind == "run_step" and key not in opened[kind]:
                handler.earlier.append(arguments[0].id)
            case "done":
                opened[kind].remove(key)
    handler.left = opened
    return handler.lines  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", recordings("openai-assistants"))
def test_a_recorded_stream_gives_what_is_expected(path: Path) -> None:
    """Final texts, annotations and calls as the recording's own reading has them; every bracket closed."""
    expected = json.loads(path.with_name(path.name.rsplit(".", 1)[0] + ".expected.json").read_text())
    expected = expected.get("own_reading") or expected
    handler = a.SyncHookLog()
    try:
        sk.stream(path, handler).until_done()
    except sk.StreamkitError as error:
        handler.error = error
    lines = _lines(handler)
    waits = handler.current_run is not None and handler.current_run.status == "requires_action"
    assert not any(left for kind, left in handler.left.items() if kind != "run_step" or not waits)
    assert len(handler.earlier) == path.stem.endswith(".2"), "the second stream of a run ends a step of the first"
    assert lines.count("end") == 1
    texts = [
        "".join(part.text.value for part in one.content if part.type == "text")
        for one in [one.live for one in handler._streamkit_run().messages]
    ]
    assert texts == [one["text"] for one in expected["messages"]]
    counts = [
        sum(len(part.text.annotations) for part in one.content if part.type == "text")
        for one in [one.live for one in handler._streamkit_run().messages]
    ]
    assert counts == [one["annotations"] for one in expected["messages"]]
    calls = [
        tool_call
        for one in [one.live for one in handler._streamkit_run().steps]
        for tool_call in getattr(one.step_details, "tool_calls", ())
    ]
    assert [one.id for one in calls] == [one["id"] for one in expected["tool_calls"]]
    for made, wanted in zip(calls, expected["tool_calls"], strict=True):
        if made.type == "function":
            assert (made.function.name, made.function.arguments) == (wanted["name"], wanted["arguments"])
    told = "".join(delta.value for delta, _ in handler.of("on_text_delta"))
    assert told == "".join(texts)


OTHERS = ("openai-responses", "openai-chat", "anthropic-messages", "open-interpreter")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", OTHERS)
def test_recorded_streams_of_other_protocols_can_be_told(protocol: str) -> None:
    """Of each three one: brackets hold, and the texts are those of the stream's own messages."""
    paths = [parameter.values[0] for parameter in recordings(protocol) if parameter.values[0] is not None][::3]
    if not paths:
        pytest.skip(f"the recorded {protocol} streams are not beside this checkout")
    assert RECORDINGS.exists()
    for path in paths:
        handler = a.SyncHookLog()
        stream = sk.stream(path, handler)  # type: ignore[arg-type]
        try:
            stream.until_done()
        except sk.StreamkitError as error:
            handler.error = error
        _lines(handler)
        waits = stream.status == "requires_action"
        assert not any(left for kind, left in handler.left.items() if kind != "run_step" or not waits), path
        assert handler.lines.count("end") == 1, path
        answers = [m for m in stream.messages if isinstance(m, sk.TextMessage) and m.role == "assistant"]
        shown = sorted(m.content for m in answers if m.choice == 0)  # Assistants has no others
        texts = [
            part.text.value
            for one in [one.live for one in handler._streamkit_run().messages]
            for part in one.content
            if part.type == "text"
        ]
        assert sorted(filter(None, texts)) == [one for one in shown if one], path


# -- iteration and accessors


@both_shells
@every_way
@body
async def test_iterating_gives_openais_events_after_their_hooks(face: Face, way: Any) -> None:
    """Each event of the wire once, in order; `current_event` is the one whose hooks are called."""
    seen: list[tuple[str, int]] = []
    current: list[bool] = []

    async def use(face: Face, stream: Any) -> None:
        async def note(event: Any) -> None:
            seen.append((event.event, len(handler.events)))

        if face.is_async:
            async for event in stream:
                await note(event)
        else:
            for event in stream:
                await note(event)
        assert stream.current_event is None

    handler = a.hook_log(face, on_event=lambda self, event: current.append(self.current_event is event))
    await way(face, HELLO, handler, use)
    names = [one["event"] for one in HELLO]
    assert [name for name, _ in seen] == names == handler.events
    assert current == [True] * len(HELLO)
    if way is a.start_with_client:
        told_by_then = [count for _, count in seen]
        assert told_by_then == sorted(told_by_then)


@both_shells
@every_way
@body
async def test_text_deltas_are_the_text(face: Face, way: Any) -> None:
    """The hooks are called as well."""
    seen: list[str] = []

    async def use(face: Face, stream: Any) -> None:
        seen.extend(await each(stream.text_deltas))

    handler = a.hook_log(face)
    await way(face, HELLO, handler, use)
    assert seen == ["Hel", "lo"]
    assert handler.lines[-1] == "end"


@both_shells
@every_way
@body
async def test_snapshots_are_live_and_of_what_is_told(face: Face, way: Any) -> None:
    """`current_message_snapshot` and `current_run` while it streams; dumps have all of it."""
    dumps: list[Any] = []

    def note(self: Any, delta: Any, snapshot: Any) -> None:
        assert self.current_message_snapshot.content[0].text is snapshot
        assert self.current_run.thread_id == "thread_1"
        dumps.append(self.current_message_snapshot.to_dict()["content"][0]["text"]["value"])
        assert json.loads(snapshot.to_json())["value"] == snapshot.value

    await run_handler(face, way, HELLO, on_text_delta=note)
    assert dumps == ["Hel", "Hello"]


@both_shells
@body
async def test_a_handler_without_a_stream_says_so(face: Face) -> None:
    """Before any stream, accessors are empty and what drives says how to start."""
    handler = a.hook_log(face)
    assert handler.current_event is handler.current_run is handler.current_message_snapshot is None
    assert handler.current_run_step_snapshot is None
    with pytest.raises(sk.UsageError, match="no stream"):
        await call(handler.until_done)
    await call(handler.close)


@both_shells
@body
async def test_a_handler_of_an_empty_stream_has_no_run(face: Face) -> None:
    """Its messages and steps are none; a run there must be, so that is an error."""
    handler = a.hook_log(face)
    manager = face.stream([], handler, protocol="openai_assistants")
    with pytest.raises(sk.StreamkitError):
        await call(manager.until_done)
    with pytest.raises(sk.StreamkitError):
        await call(handler.get_final_run)


@both_shells
@body
async def test_a_failed_run_is_an_exception_that_says_why(face: Face) -> None:
    """`current_run.last_error` is the service's own."""
    failed = run("failed", last_error={"code": "server_error", "message": "Sorry"})
    handler = await run_handler(face, a.start_with_client, [*HELLO[:4], failed])
    assert isinstance(handler.error, sk.RunFailedError)
    assert handler.current_run.last_error.message == "Sorry"
    assert handler.events[-1] == "thread.run.failed"
    assert handler.outline[-4:] == ["text_done 'Hel'", "message_done m1", "exception RunFailedError", "end"]


@every_face
@body
async def test_a_stream_that_we_stop_is_a_cancelled_run(face: Face) -> None:
    """`self.stream.cancel()`, from a hook or any thread: what arrived is returned, nothing raised."""
    with ModelServer(Reply("one two", never_ends=True)) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face, on_text_delta=lambda self, delta, snapshot: self.stream.cancel())
            await a.use_client(face, client, handler)
    assert (await call(handler.get_final_run)).status == "cancelled"
    [made] = await call(handler.get_final_messages)
    assert (made.status, made.content[0].text.value) == ("incomplete", "one")
    assert handler.lines.count("end") == 1


@both_shells
@body
async def test_a_stream_that_is_cut_off_is_told(face: Face) -> None:
    """What began is done, as incomplete; then the exception and the end."""
    handler = a.hook_log(face)
    with pytest.raises(sk.IncompleteStreamError):
        await a.start_with_client(face, a.sse(HELLO[:4], done=False), handler)
    assert handler.outline[-4:] == ["text_done 'Hel'", "message_done m1", "exception IncompleteStreamError", "end"]
    assert [one.status for one in [one.live for one in handler._streamkit_run().messages]] == ["incomplete"]


@both_shells
@every_way
@body
async def test_accessors_may_be_read_in_on_end(face: Face, way: Any) -> None:
    """The stream is over then."""
    final: list[str] = []

    def read(self: Any) -> Any:
        async def later() -> None:
            final.extend(one.id for one in await self.get_final_messages())

        if face.is_async:
            return later()
        return final.extend(one.id for one in self.get_final_messages())

    await run_handler(face, way, HELLO, on_end=read)
    assert final == ["m1"]


@both_shells
@every_way
@body
async def test_a_hook_cannot_run_its_own_stream_to_the_end(face: Face, way: Any) -> None:
    """It says so, and hangs nowhere."""
    handler = await run_handler(face, way, HELLO, on_text_created=lambda self, _: self.until_done())
    assert isinstance(handler.error, sk.UsageError)
    assert handler.lines[-1] == "end"


# -- handlers as they are found in the wild


@both_shells
@body
async def test_the_client_takes_a_handler_that_is_empty(face: Face) -> None:
    """One whose `__len__` is 0 would be replaced if it were false."""
    kind = type("Collector", (type(a.hook_log(face)),), {"__len__": lambda self: 0})
    handler = kind()
    assert bool(handler)
    await a.start_with_client(face, HELLO, handler)
    assert handler.lines[-1] == "end"


def test_a_subclass_may_call_init_or_keep_what_it_likes() -> None:
    """`super().__init__()`, and attributes by any name, even `stream`."""

    class Kept(AssistantEventHandler):
        def __init__(self) -> None:
            super().__init__()
            self.stream = "mine"  # type: ignore[assignment]
            self.texts: list[str] = []

        def on_text_delta(self, delta: TextDelta, snapshot: Text) -> None:
            self.texts.append(delta.value or "")

    handler = Kept()
    sk.stream(HELLO, handler).until_done()
    assert (handler.stream, handler.texts) == ("mine", ["Hel", "lo"])
    assert isinstance(handler, openai.AssistantEventHandler)


def test_a_subclass_may_use_any_private_name() -> None:
    """What we keep is out of the way of what applications keep."""
    names = (
        *("_stream", "_story", "_run", "_messages", "_events", "_event", "_manager", "_client", "_last", "_first"),
        *(
            "_call",
            "_close",
            "_typed",
            "_record",
            "_told",
            "_telling",
            "_text",
            "_step",
            "_steps",
            "_iterator",
            "_state",
        ),
    )

    class Full(AssistantEventHandler):
        def __init__(self) -> None:
            for name in names:
                setattr(self, name, None)

    handler = Full()
    sk.stream(HELLO, handler).until_done()
    assert [one.id for one in handler.get_final_messages()] == ["m1"]
    assert [event.event for event in handler] == []
    assert all(getattr(handler, name) is None for name in names)


def test_a_near_miss_of_a_hook_warns() -> None:
    """It would never be called."""
    with pytest.warns(UserWarning, match="did you mean on_text_delta"):
        type("Near", (AssistantEventHandler,), {"on_text_detla": lambda self, delta, snapshot: None})


def test_hooks_may_be_set_on_the_object() -> None:
    """As with any handler of ours."""
    told: list[str] = []
    handler = AssistantEventHandler()
    handler.on_text_delta = lambda delta, snapshot: told.append(delta.value)  # type: ignore[method-assign,assignment,arg-type]
    sk.stream(HELLO, handler).until_done()
    assert told == ["Hel", "lo"]


def test_a_hook_that_gives_an_awaitable_is_an_error() -> None:
    """A sync handler would never await it."""

    async def later() -> None: ...

    class Hidden(AssistantEventHandler):
        def on_end(self) -> Any:
            return later()

    with pytest.raises(sk.UsageError, match="awaitable"):
        sk.stream(HELLO, Hidden()).until_done()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_sync_handler_works_on_an_async_stream(backend: str) -> None:
    """Its hooks are called; what drives is the manager's, and the handler says so."""
    handler = a.SyncHookLog()

    async def main() -> None:
        await sk.astream(HELLO, handler).until_done()

    anyio.run(main, backend=backend)
    assert handler.lines[-1] == "end"
    with pytest.raises(sk.UsageError, match="astream"):
        handler.until_done()


def test_several_handlers_share_a_stream() -> None:
    """Ours, and the plain ones of streamkit; throttled, too."""
    one, two, plain = a.SyncHookLog(), a.SyncHookLog(), a.SyncHookLog()
    texts: list[str] = []
    other = sk.EventHandler()
    other.on_text_delta = lambda delta, snapshot: texts.append(delta.value)  # type: ignore[method-assign]
    sk.stream(HELLO, one, other, sk.Throttled(two, 0)).until_done()
    sk.stream(sk.stream(HELLO), plain).until_done()
    assert one.lines == two.lines
    assert [line for line in plain.outline if not line.startswith("run_step")] == one.outline
    assert texts == ["Hel", "lo"]


def test_a_stream_of_a_stream_is_told_as_openais_events() -> None:
    """Canonical events of whatever came before."""
    handler = a.SyncHookLog()
    sk.stream([*sk.stream(HELLO)], handler).until_done()
    assert [one.content[0].text.value for one in handler.get_final_messages()] == ["Hello"]  # type: ignore[union-attr]


@both_shells
@body
async def test_the_clients_other_ways_to_stream_take_it(face: Face) -> None:
    """`create_and_run_stream`, and an async client's handler with the plain `_init` that it wants."""
    with ModelServer(Reply("Hello")) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)
            manager = client.beta.threads.create_and_run_stream(assistant_id="a", event_handler=handler)
            await a.within(face, manager, a.until_done)
    assert handler.events[0] == "thread.created"
    assert handler.lines[-1] == "end"


@both_shells
@body
async def test_an_error_in_the_block_ends_the_stream(face: Face) -> None:
    """Leaving `with` by an error closes, tells the rest, and lets the error through."""
    with ModelServer(Reply("one two three", never_ends=True)) as server:
        async with face.client(server) as client:
            handler = a.hook_log(face)

            async def use(face: Face, stream: Any) -> None:
                raise LookupError("mine")

            with pytest.raises(LookupError):
                await a.use_client(face, client, handler, use)
    assert handler.lines == ["end"]


# -- odd input


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "m1", "s1", "text", "function", "x", "c0"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "index", "type"]), inner),
    max_leaves=4,
)
whole = [
    *HELLO[:-1],
    a.step("created"),
    a.step_delta(a.function("{", 0, id="c0", name="f"), a.code("x", 1, "log", id="c1")),
    a.step_delta(a.function("}", 0)),
    a.step("completed", calls=[a.function("{}", id="c0", name="f"), a.code("x", None, "log", id="c1")]),
    message("created", "m2"),
    message_delta(a.image("file_1", 0), text("y", 1, [{"index": 0, "type": "file_path", "text": "z"}]), id="m2"),
    message("incomplete", "m2", [a.image("file_1"), text("y")]),
    a.requires_action("c0"),
    run("completed"),
]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield from _paths(below, (*path, key))


def _changed(items: list[Any], path: tuple[Any, ...], value: Any) -> list[Any]:
    items = json.loads(json.dumps(items))
    if not path:
        return items
    at: Any = items
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return items


PATHS = [path for path in _paths(whole) if path]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PATHS), values, st.booleans(), st.permutations(range(4)))
def test_no_shape_of_an_item_makes_a_hook_go_wrong(path: Any, value: Any, as_bytes: bool, order: list[int]) -> None:
    """Any value in any place: brackets hold, the end comes once, and nothing but our own errors is raised."""
    items = _changed(whole, path, value)
    start = order[0] * 3
    items[start : start + 2] = items[start : start + 2][::-1]
    handler = a.SyncHookLog()
    source: Any = items
    if as_bytes:
        source = b"".join(
            f"event: {one.get('event') if isinstance(one, dict) else ''}\ndata: ".encode()
            + json.dumps(one.get("data") if isinstance(one, dict) else one).encode()
            + b"\n\n"
            for one in items
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            sk.stream(source, handler, protocol="openai_assistants").until_done()
        except sk.StreamkitError as error:
            handler.error = error
        _lines(handler)
        for one in [
            *[one.live for one in handler._streamkit_run().messages],
            *[one.live for one in handler._streamkit_run().steps],
        ]:
            one.to_dict()
    assert handler.lines[-1] == "end"
    assert handler.lines.count("end") == 1


# -- streams as clients have them


def _client(face: Face, http: Any, raw: bytes) -> Any:
    """A client whose transport gives a response that was read already."""

    def answer(request: Any) -> Any:
        return http.Response(200, headers={"content-type": "text/event-stream"}, content=raw)

    kind, over = (openai.AsyncOpenAI, http.AsyncClient) if face.is_async else (openai.OpenAI, http.Client)
    options: Any = {"base_url": "http://any/v1", "api_key": "any", "max_retries": 0}
    return kind(**options, http_client=over(transport=http.MockTransport(answer)))


# On trio the client leaves its own generators to the garbage collector.
@every_pair
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both_shells
@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize("ending", ["whole", "left", "closed", "fails"])
@body
async def test_the_client_may_have_read_the_response_already(face: Face, library: str, ending: str) -> None:
    """As test transports give it: it is told as any other, however it ends, and closed."""
    client = _client(face, pytest.importorskip(library), a.sse(HELLO if ending != "fails" else HELLO[:4], done=False))
    does: dict[str, Any] = {"on_text_created": lambda self, _: self.close()} if ending == "closed" else {}
    handler = a.hook_log(face, **does)

    async def leave(face: Face, stream: Any) -> None: ...

    try:
        await a.use_client(face, client, handler, leave if ending == "left" else None)
    except sk.IncompleteStreamError:
        assert ending == "fails"
    story = {
        "whole": ["message_created m1", "text_created ''", "text_delta 'Hel' 'Hel'", "text_delta 'lo' 'Hello'"],
        "left": [],
        "closed": ["message_created m1", "text_created ''"],
        "fails": ["message_created m1", "text_created ''", "text_delta 'Hel' 'Hel'"],
    }[ending]
    assert handler.outline[: len(story)] == story
    assert handler.lines.count("end") == 1
    assert handler.lines[-1] == "end"
    await call(client.close)


# On trio the client, which stops at `[DONE]`, leaves its own generators to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@both_shells
@pytest.mark.parametrize("way", ["bytes", "read", "stream"])
@body
async def test_a_body_of_done_alone_is_an_empty_stream(face: Face, way: str) -> None:
    """Complete, without any event, whether the client or `stream` reads it."""
    handler = a.hook_log(face)
    raw = b"data: [DONE]\n\n"
    if way == "read":
        client = _client(face, pytest.importorskip("httpx2"), raw)
        await a.use_client(face, client, handler)
        await call(client.close)
    else:
        await (a.start_with_client if way == "bytes" else a.start_with_stream)(face, raw, handler)
    assert handler.lines == ["end"]
    assert handler.stream.status == "completed"


@both_shells
@body
async def test_outputs_may_be_sent_by_a_client_that_has_read_the_response(face: Face) -> None:
    """The further stream is closed as the first one is."""
    http = pytest.importorskip("httpx")
    raw = a.sse(
        [*HELLO[:2], a.step("created"), a.step_delta(a.function("{}", 0, id="c0", name="f")), a.requires_action("c0")],
        done=False,
    )
    first, second = _client(face, http, raw), _client(face, http, a.sse(HELLO[1:], done=False))

    def submit(handler: Any, event: Any) -> Any:
        if event.event != "thread.run.requires_action":
            return None
        manager = second.beta.threads.runs.submit_tool_outputs_stream(
            thread_id="t", run_id="run_1", tool_outputs=[], event_handler=handler
        )
        if face.is_async:
            return a.within(face, manager, a.until_done)
        with manager as stream:
            return stream.until_done()

    handler = a.hook_log(face, on_event=submit)
    await a.use_client(face, first, handler)
    assert handler.lines[-1] == "end"
    assert (await call(handler.get_final_run)).status == "completed"
    await call(first.close)
    await call(second.close)


@both_shells
@body
async def test_a_handler_of_a_stream_that_never_started_is_free(face: Face) -> None:
    """Built and dropped, or kept: no request was sent, so that another stream, or the client, may have the handler."""
    handler = a.hook_log(face)
    kept = face.stream(lambda: pytest.fail("a request was sent"), handler)
    face.stream(lambda: pytest.fail("a request was sent"), handler)
    await call(face.stream(HELLO, handler).until_done)
    assert handler.lines[-1] == "end"
    del handler.lines[:]
    face.stream(lambda: pytest.fail("a request was sent"), handler)
    await a.start_with_client(face, HELLO, handler)
    assert handler.lines.count("end") == 1
    with pytest.raises(sk.UsageError, match="another stream"):
        await call(kept.until_done)
    assert handler.lines.count("end") == 1


@both_shells
@every_way
@body
async def test_what_grows_has_its_index(face: Face, way: Any) -> None:
    """As openai's snapshots have it: parts while they grow, and tool calls."""
    seen: dict[str, list[Any]] = {"part": [], "created": [], "done": []}
    items = [
        *HELLO[:3],
        message_delta(text("Hel", 0)),
        message_delta(text("lo", 1)),
        message("completed", content=[text("Hel"), text("lo")]),
        a.step("created"),
        a.step_delta(a.function("{}", 0, id="c0", name="f")),
        a.step_delta(a.code("x", 1, "log", id="c1")),
        a.step("completed", calls=[a.function("{}", id="c0", name="f"), a.code("x", None, "log", id="c1")]),
        HELLO[-1],
    ]
    handler = await run_handler(
        face,
        way,
        items,
        on_message_delta=lambda self, delta, snapshot: seen["part"].append([one.index for one in snapshot.content]),
        on_tool_call_created=lambda self, tool_call: seen["created"].append(tool_call.index),
        on_tool_call_done=lambda self, tool_call: seen["done"].append(tool_call.index),
    )
    assert handler.error is None
    assert seen == {"part": [[0], [0, 1]], "created": [0, 1], "done": [0, 1]}
    [made] = await call(handler.get_final_messages)
    assert ["index" in one.to_dict() for one in made.content] == [False, False]


@every_pair
@both_shells
@every_way
@pytest.mark.parametrize("name", ["thread.run.step.bogus", "thread.message.bogus", "thread.run.bogus", "thread.bogus"])
@body
async def test_an_event_that_nobody_knows_is_told_to_on_event_alone(face: Face, way: Any, name: str) -> None:
    """Nothing comes of it."""
    item = {"event": name, "data": {"id": "x9", "status": "bogus", "metadata": {"x": "y"}}}
    handler = await run_handler(face, way, [item, *HELLO[:3], item, *HELLO[3:]])
    assert handler.error is None
    assert handler.events.count(name) == 2
    assert handler.outline == (await run_handler(face, way, HELLO)).outline
    assert (await call(handler.get_final_run)).id == "run_1"
    assert await call(handler.get_final_run_steps) == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["requires_action", "completed"])
@both_shells
@body
async def test_each_item_is_read_once_however_many_events_it_tells(
    face: Face, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One item may end hundreds of calls. What reads an item is counted as it does so."""
    count = 300
    ids = [f"c{place}" for place in range(count)]
    begun = [a.step_delta(a.function("{}", place, id=id, name="f")) for place, id in enumerate(ids)]
    items = [
        *HELLO[:2],
        a.step("created"),
        *begun,
        a.requires_action(*ids) if ending == "requires_action" else run(ending),
    ]
    reads = 0

    def counted(source: Any, name: str | None) -> tuple[str, Any]:
        nonlocal reads
        reads += 1
        return parse_item(source, name)

    monkeypatch.setattr(dispatch, "parse_item", counted)
    handler = AsyncAssistantEventHandler() if face.is_async else AssistantEventHandler()
    await call(face.stream(a.sse(items), handler).until_done)
    assert len(handler._streamkit_run().steps[0].calls) == count
    assert count < reads <= len(items) + 1
