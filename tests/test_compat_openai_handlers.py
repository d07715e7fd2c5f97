"""Handlers as applications wrote them for the Assistants API, over every provider: what they show is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import openai
import pytest

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.testing import ModelServer, Reply, Text, ToolCall

from . import assistants as a
from .assistants import message, message_delta, run, text
from .faces import Face, ask, ask_responses, body, both_shells, every_face, every_pair
from .test_compat_openai_sequences import submits

pytestmark = a.quiet

# -- services that answer with the same text, in these pieces

PIECES = ["The fare ", "is 5 euros", "."]
ANSWER = "".join(PIECES)


def assistants_body(pieces: list[str]) -> bytes:
    items = [run("queued"), run("in_progress"), message("created")]
    items += [message_delta(text(piece, 0)) for piece in pieces]
    return a.sse([*items, message("completed", content=[text("".join(pieces))]), run("completed")])


def responses_body(pieces: list[str], annotations: list[dict[str, Any]] | None = None) -> bytes:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    cited = annotations or []
    content = {"type": "output_text", "text": "".join(pieces), "annotations": cited}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
    response = {"id": "resp_1", "object": "response", "model": "m", "status": "in_progress", "output": []}
    items: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "content": []}},
        {"type": "response.content_part.added", **place, "part": {**content, "text": "", "annotations": []}},
        *({"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces),
        *(
            {"type": "response.output_text.annotation.added", **place, "annotation_index": number, "annotation": one}
            for number, one in enumerate(cited)
        ),
        {"type": "response.output_text.done", **place, "text": "".join(pieces)},
        {"type": "response.content_part.done", **place, "part": content},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [item]}},
    ]
    numbered = [{"sequence_number": number, **one} for number, one in enumerate(items)]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in numbered).encode()


def chat_body(pieces: list[str]) -> bytes:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choices = [{"index": 0, "delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [json.dumps({**head, "choices": [choice]}) for choice in choices]
    return "".join(f"data: {chunk}\n\n" for chunk in [*chunks, "[DONE]"]).encode()


BODIES: dict[str, Callable[[list[str]], bytes]] = {
    "assistants": assistants_body,
    "responses": responses_body,
    "chat": chat_body,
}
every_service = pytest.mark.parametrize("service", list(BODIES))


def _request(service: str, client: Any) -> Callable[[], Any]:
    if service == "assistants":
        return lambda: client.beta.threads.runs.create(thread_id="thread_1", assistant_id="asst_1", stream=True)
    return ask_responses(client) if service == "responses" else ask(client)


async def serve(face: Face, service: str, handler: Any, raw: bytes | None = None) -> Any:
    """Run a handler over one answer of a service, with openai's real client; Assistants' own client has the handler."""
    with ModelServer(Reply(raw=BODIES[service](PIECES) if raw is None else raw)) as server:
        async with face.client(server) as client:
            if service == "assistants":
                await a.use_client(face, client, handler)
                return handler
            stream = face.stream(_request(service, client), handler)
            await stream.until_done()
            return handler


# -- file search: the documentation's handler puts a number in the place of each citation's marker

FILE_CITED = [
    {"type": "file_citation", "index": 8, "file_id": "file-1", "filename": "fares.pdf"},
    {"type": "file_citation", "index": 19, "file_id": "file-2", "filename": "zones.pdf"},
]


def _number_citations(handler: Any, done: Any) -> None:
    content = done.content[0].text
    handler.cited = []
    for number, annotation in enumerate(content.annotations):
        assert annotation.text
        content.value = content.value.replace(annotation.text, f"[{number}]")
        if cited := getattr(annotation, "file_citation", None):
            handler.cited.append(f"[{number}] {cited.file_id}")
    handler.shown = content.value


@both_shells
@body
async def test_numbering_the_citations_of_responses_leaves_the_text_whole(face: Face) -> None:
    """Responses has no marker in the text for a cited file, so nothing is to be replaced."""
    handler = a.hook_log(face, on_message_done=_number_citations)
    await serve(face, "responses", handler, responses_body(PIECES, FILE_CITED))
    assert handler.shown == ANSWER
    assert handler.cited == ["[0] file-1", "[1] file-2"]


@pytest.mark.parametrize("said", ["See 【0†file-1】.", "【0†file-1】【【0†file-1】】", ""])
def test_a_made_up_marker_is_never_in_the_text(said: str) -> None:
    """Whatever the model wrote; in the delta with the text so far, in the end with all of it."""
    raw = responses_body([said] if said else [], FILE_CITED)
    texts: list[tuple[str, list[str]]] = []

    class Handler(AssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            texts.append((snapshot.value, [one.text for one in snapshot.annotations]))

        def on_text_done(self, text: Any) -> None:
            texts.append((text.value, [one.text for one in text.annotations]))

    sk.stream([raw], Handler()).until_done()
    assert texts
    for value, markers in texts:
        assert all(marker and marker not in value for marker in markers)
        assert len({*markers}) == len(markers)


# -- names and shapes of subclasses


def _named_like_ours(kind: type) -> type:
    """A handler with methods of its own by the names that streams call on streamkit's handlers."""

    class Service(kind):  # type: ignore[misc]
        def handle(self, request: str, user: str) -> str:
            return f"{request} of {user}"

        def receive(self) -> str:
            return "received"

        def bind(self, *queues: str) -> tuple[str, ...]:
            return queues

        def unbind(self) -> None:
            raise AssertionError("no stream calls this")

        def streamkit_plan(self) -> str:
            return "mine"

    return Service


@both_shells
@every_service
@body
async def test_a_subclass_may_have_methods_named_handle_receive_and_bind(face: Face, service: str) -> None:
    """Only what begins with `_streamkit` is reserved."""
    handler = _named_like_ours(type(a.hook_log(face)))()
    await serve(face, service, handler)
    assert handler.lines.count("end") == 1
    assert [line for line in handler.lines if "text_done" in line] == [f"text_done {ANSWER!r}"]
    assert handler.handle("question", "Ada") == "question of Ada"
    assert (handler.receive(), handler.bind("a", "b")) == ("received", ("a", "b"))


def test_a_throttled_handler_may_have_such_names_too() -> None:
    """`Throttled` passes events on to the handler's hooks."""
    handler = _named_like_ours(a.SyncHookLog)()
    sk.stream([chat_body(PIECES)], sk.Throttled(handler, 3600)).until_done()
    assert f"text_done {ANSWER!r}" in handler.lines
    assert handler.lines[-1] == "end"


def test_other_handlers_may_wrap_one() -> None:
    """With the methods that every handler has."""
    inner = a.SyncHookLog()

    class Wrapper(sk.Handler):
        def bind(self, stream: Any) -> None:
            super().bind(stream)
            inner.bind(stream)

        def receive(self, items: Any, /) -> None:
            inner.receive(items)

        def handle(self, event: sk.Event, /) -> None:
            inner.handle(event)

    sk.stream([assistants_body(PIECES)], Wrapper()).until_done()
    assert f"text_done {ANSWER!r}" in inner.lines
    assert inner.lines[-1] == "end"


@dataclass(frozen=True)
class FrozenHandler(AssistantEventHandler):
    """Its own fields cannot be set, which is no concern of the stream's."""

    texts: list[str] = field(default_factory=list)

    def on_text_done(self, text: Any) -> None:
        self.texts.append(text.value)


@dataclass(frozen=True)
class FrozenAsyncHandler(AsyncAssistantEventHandler):
    texts: list[str] = field(default_factory=list)

    async def on_text_done(self, text: Any) -> None:
        self.texts.append(text.value)


@dataclass(frozen=True)
class FrozenPlainHandler(sk.EventHandler):
    texts: list[str] = field(default_factory=list)

    def on_text_done(self, message: sk.TextMessage) -> None:
        self.texts.append(message.content)


@both_shells
@every_service
@body
async def test_a_handler_may_be_a_frozen_dataclass(face: Face, service: str) -> None:
    handler = FrozenAsyncHandler() if face.is_async else FrozenHandler()
    await serve(face, service, handler)
    assert handler.texts == [ANSWER]


def test_equal_frozen_handlers_are_still_two() -> None:
    """Dataclasses with equal fields are equal; each gets its events."""
    first, second = FrozenPlainHandler([]), FrozenPlainHandler([])
    assert first == second
    never = sk.stream([chat_body(PIECES)], first, second)
    sk.stream([chat_body(PIECES)], first).until_done()
    never.close()
    assert (first.texts, second.texts) == ([ANSWER], [])
    assert second.stream is never


def _assign(handler: Any, texts: list[str]) -> None:
    handler.on_text_done = lambda text: texts.append(getattr(text, "value", None) or text.content)


@every_pair
@both_shells
@every_service
@pytest.mark.parametrize("when", ["on_message_created", "on_text_created", "on_text_delta"])
@body
async def test_a_hook_may_be_assigned_while_the_stream_runs(face: Face, service: str, when: str) -> None:
    """It is called from then on."""
    texts: list[str] = []
    names = dict.fromkeys([when], lambda self, *_: _assign(self, texts))
    compat = AsyncAssistantEventHandler if face.is_async else AssistantEventHandler
    handler = type("Late", (compat,), names)()
    await serve(face, service, handler)
    assert texts == [ANSWER]


@both_shells
@pytest.mark.parametrize("when", ["constructed", "on_message_created", "on_text_created", "on_text_delta"])
@body
async def test_streamkits_own_handlers_may_be_assigned_hooks_too(face: Face, when: str) -> None:
    """After the stream was made, and in a hook."""
    texts: list[str] = []
    handler = type("Late", (sk.EventHandler,), {when: lambda self, *_: _assign(self, texts)})()
    stream = face.stream([chat_body(PIECES)], handler)
    if when == "constructed":
        _assign(handler, texts)
    await stream.until_done()
    assert texts == [ANSWER]


def test_a_delta_hook_that_is_assigned_where_a_text_begins_gets_all_its_deltas() -> None:
    texts: list[str] = []

    class Late(sk.EventHandler):
        def on_text_created(self, message: sk.TextMessage) -> None:
            vars(self)["on_text_delta"] = lambda delta, snapshot: texts.append(delta.value)

    sk.stream([chat_body(PIECES)], Late()).until_done()
    assert texts == PIECES


def test_an_async_hook_that_is_assigned_later_is_refused_on_a_sync_stream() -> None:
    """As one that the class has."""

    async def never(text: Any) -> None:
        raise AssertionError("it cannot be awaited")

    handler = sk.EventHandler()
    stream = sk.stream([chat_body(PIECES)], handler)
    vars(handler)["on_text_done"] = never
    with pytest.raises(sk.UsageError, match=r"EventHandler\.on_text_done is async"):
        stream.until_done()


@pytest.mark.parametrize("name", ["send", "_send", "call_tool"])
def test_an_async_function_that_is_no_hook_may_be_an_attribute(name: str) -> None:
    """As a websocket's `send`, which a hook passes to an event loop in another thread."""

    async def send(text: str) -> None:
        raise AssertionError("it is not called")

    class Sends(AssistantEventHandler):
        pass

    handler = Sends()
    setattr(handler, name, send)
    sk.stream([chat_body(PIECES)], handler).until_done()


@pytest.mark.parametrize("annotations", [None, []])
def test_a_delta_lists_its_annotations_as_the_service_did(annotations: list[Any] | None) -> None:
    """An empty list is one; without any key it is None, as in the client's own."""
    more = {} if annotations is None else {"annotations": annotations}
    piece = {"index": 0, "type": "text", "text": {"value": "Hi", **more}}
    items = [
        run("queued"),
        run("in_progress"),
        message("created"),
        message_delta(piece),
        message("completed"),
        run("completed"),
    ]
    seen: list[Any] = []

    class Reads(AssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            seen.append(delta.annotations)

    sk.stream([a.sse(items)], Reads()).until_done()
    assert seen == [annotations]


def test_a_citation_that_the_api_has_no_kind_for_is_an_annotation_of_another_handler() -> None:
    """A page that Responses cites."""
    cited = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 3}
    seen: list[Any] = []

    class Reads(AssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> None:
            seen.append(delta.annotations)

    class Cites(sk.EventHandler):
        def on_annotation(self, annotation: Any, snapshot: Any) -> None:
            seen.append(annotation.url)

    sk.stream([responses_body(PIECES, [cited])], Reads(), Cites()).until_done()
    assert seen.count("https://x") == 1
    assert not any(found for found in seen if isinstance(found, list))


# -- a handler of the wrong kind for its client


@pytest.mark.parametrize("kind", ["async on a sync client", "sync on an async client"])
def test_a_handler_of_the_wrong_kind_for_its_client_is_refused(kind: str) -> None:
    """And the response is not left open."""
    with ModelServer(Reply(raw=assistants_body(PIECES))) as server:
        if kind.startswith("async"):
            handler: Any = a.AsyncHookLog()
            with (
                openai.OpenAI(base_url=server.url, api_key="any") as client,
                pytest.raises(sk.UsageError, match=r"AsyncHookLog is for an async client.*AssistantEventHandler"),
                client.beta.threads.runs.stream(thread_id="t", assistant_id="a", event_handler=handler) as stream,
            ):
                stream.until_done()
        else:
            handler = a.SyncHookLog()

            async def use() -> None:
                async with openai.AsyncOpenAI(base_url=server.url, api_key="any") as client:
                    runs: Any = client.beta.threads.runs
                    async with runs.stream(thread_id="t", assistant_id="a", event_handler=handler) as stream:
                        await stream.until_done()

            with pytest.raises(sk.UsageError, match=r"SyncHookLog is for a sync client.*AsyncAssistantEventHandler"):
                anyio.run(use)
    assert handler.calls == []


# -- what hooks read, and what they change


@both_shells
@every_service
@body
async def test_current_event_is_there_in_every_hook(face: Face, service: str) -> None:
    """Also in those that follow from the end of something, and none outside of hooks."""
    seen: dict[str, list[str]] = {}

    def look(name: str) -> Callable[..., None]:
        return lambda handler, *_: seen.setdefault(name, []).append(handler.current_event.event)

    names = ("on_tool_call_created", "on_tool_call_done", "on_text_created", "on_text_delta", "on_text_done", "on_end")
    handler = a.hook_log(face, **{name: look(name) for name in names})
    with ModelServer([Reply(Text("Let me see."), ToolCall("f"), ToolCall("g"))]) as server:
        async with face.client(server) as client:
            if service == "assistants":
                await a.use_client(face, client, handler)
            else:
                await face.stream(_request(service, client), handler).until_done()
    assert set(seen) == set(names)
    assert len(seen["on_tool_call_done"]) == 2
    assert seen["on_tool_call_done"][-1] == "thread.run.requires_action"
    assert handler.current_event is None


@both_shells
@every_service
@body
async def test_current_event_is_there_where_a_stream_was_cut_off(face: Face, service: str) -> None:
    """The newest one: of other protocols, the end of the message that is made of the cut."""
    seen: list[Any] = []
    handler = a.hook_log(face, on_text_done=lambda handler, text: seen.append(handler.current_event.event))
    raw = BODIES[service](PIECES)
    cut = raw[: raw.index(PIECES[1].encode()) + 40]
    with pytest.raises(sk.IncompleteStreamError):
        await serve(face, service, handler, cut)
    assert seen == ["thread.message.delta" if service == "assistants" else "thread.message.incomplete"]


@both_shells
@body
async def test_current_event_is_the_hooks_own_after_a_nested_stream(face: Face) -> None:
    """What the stream of the outputs brought is over where the outer hooks go on."""
    first = [run("queued"), a.step("created"), a.step_delta(a.function("{}", 0, id="c0", name="f"))]
    first.append(a.requires_action("c0"))
    second = [a.step("completed", calls=[a.function("{}", id="c0", name="f", output="22")]), run("completed")]
    seen: list[str] = []
    with ModelServer([Reply(raw=a.sse(first)), Reply(raw=a.sse(second))]) as server:
        async with face.client(server) as client:
            handler = a.hook_log(
                face,
                on_event=submits(face, client, lambda same: same, a.until_done),
                on_tool_call_done=lambda handler, call: seen.append(handler.current_event.event),
            )
            await a.use_client(face, client, handler)
    assert seen == ["thread.run.requires_action"]


@both_shells
@every_service
@body
async def test_a_handler_may_flush_and_empty_the_snapshot(face: Face, service: str) -> None:
    """The rest is what it has in `on_text_done`; nothing comes twice, and the message is whole in the end."""
    shown: list[str] = []

    def flush(handler: Any, delta: Any, snapshot: Any) -> None:
        if delta.value.endswith(" "):
            shown.append(snapshot.value)
            snapshot.value = ""

    handler = a.hook_log(face, on_text_delta=flush, on_text_done=lambda handler, text: shown.append(text.value))
    await serve(face, service, handler)
    assert shown == [PIECES[0], "".join(PIECES[1:])]
    assert [delta.value for delta, _ in handler.of("on_text_delta")] == PIECES
    [final] = await a.call(handler.get_final_messages)
    assert final.content[0].text.value == ANSWER


@every_face
@body
async def test_what_a_changed_snapshot_lacks_of_the_final_text_still_comes(face: Face) -> None:
    """Counted by what was streamed, not by what the handler left of it."""

    def cut(handler: Any, delta: Any, snapshot: Any) -> None:
        snapshot.value = "…"

    items = [run("queued"), message("created"), message_delta(text("He", 0))]
    items += [message("completed", content=[text("Hey")]), run("completed")]
    handler = await a.run_handler(face, a.start_with_stream, items, on_text_delta=cut)
    assert [delta.value for delta, _ in handler.of("on_text_delta")] == ["He", "y"]


@both_shells
@body
async def test_emptied_arguments_code_and_logs_do_not_come_twice(face: Face) -> None:
    """The same for the snapshots of tool calls."""

    def empty(handler: Any, delta: Any, snapshot: Any) -> None:
        if snapshot.type == "function":
            snapshot.function.arguments = ""
        else:
            snapshot.code_interpreter.input = ""
            for output in snapshot.code_interpreter.outputs:
                output.logs = ""

    done = [a.function('{"n": 1}', id="c0", name="f"), a.code("print(1)", None, "1\n2\n", id="c1")]
    items = [run("queued"), a.step("created"), a.step_delta(a.function("", 0, id="c0", name="f"))]
    items += [a.step_delta(a.function(piece, 0)) for piece in ('{"n"', ": 1}")]
    items += [a.step_delta(a.code("print", 1, id="c1")), a.step_delta(a.code("(1)", 1))]
    items += [a.step_delta(a.code(None, 1, "1\n")), a.step_delta(a.code(None, 1, "2\n"))]
    items += [a.step("completed", calls=done), run("completed")]
    handler = await a.run_handler(face, a.start_with_stream, items, on_tool_call_delta=empty)
    deltas = [delta for delta, _ in handler.of("on_tool_call_delta")]
    assert [one.function.arguments for one in deltas if one.type == "function"] == ['{"n"', ": 1}"]
    code = [one.code_interpreter for one in deltas if one.type == "code_interpreter"]
    assert "".join(one.input or "" for one in code) == "print(1)"
    assert "".join(output.logs for one in code for output in one.outputs or ()) == "1\n2\n"
    [final] = await a.call(handler.get_final_run_steps)
    assert [one.type for one in final.step_details.tool_calls] == ["function", "code_interpreter"]
    assert final.step_details.tool_calls[0].function.arguments == '{"n": 1}'
    assert final.step_details.tool_calls[1].code_interpreter.input == "print(1)"


# -- handlers that raise


class Bug(Exception):
    """What a handler raises."""


def _raises_at(*names: str) -> Callable[..., None]:
    def on_event(handler: Any, event: Any) -> None:
        if not names or event.event in names:
            raise Bug(event.event)

    return on_event


@both_shells
@every_service
@body
async def test_on_exception_gets_the_bug_of_on_event(face: Face, service: str) -> None:
    """Also where the hook would fail again for what is made of the failure itself."""
    handler = a.hook_log(face, on_event=_raises_at())
    with pytest.raises(Bug):
        await serve(face, service, handler)
    assert [type(error) for (error,) in handler.of("on_exception")] == [Bug]
    assert handler.lines[-1] == "end"
    assert len(handler.events) == 1


@every_pair
@both_shells
@every_service
@pytest.mark.parametrize("ending", ["error", "response.failed"])
@body
async def test_what_a_handler_raises_for_a_failed_run_is_what_is_raised(face: Face, service: str, ending: Any) -> None:
    """Many raise their own error at `thread.run.failed`."""
    handler = a.hook_log(face, on_event=_raises_at("thread.run.failed", "error"))
    with ModelServer(Reply("Hello", " you", error_after=1, error_event=ending)) as server:
        async with face.client(server) as client:
            stream = face.stream(_request(service, client), handler)
            for _ in range(2):
                with pytest.raises(Bug) as caught:
                    await stream.until_done()
    assert [error for (error,) in handler.of("on_exception")] == [caught.value]
    assert not hasattr(caught.value, "__notes__")
    assert handler.lines[-1] == "end"
    assert stream.error is caught.value


@both_shells
@body
async def test_streamkits_own_handlers_may_raise_for_a_failed_run_too(face: Face) -> None:
    """In `on_run_done`; the run's failure is the context of the error."""

    def fail(handler: Any, run: sk.Run) -> None:
        raise Bug(run.status)

    handler = face.told(on_run_done=fail)
    with ModelServer(Reply("Hello", " you", error_after=1)) as server:
        async with face.client(server) as client:
            with pytest.raises(Bug, match="failed") as caught:
                await face.stream(ask_responses(client), handler).until_done()
    assert isinstance(caught.value.__context__, sk.RunFailedError)
    assert handler.of("on_exception") == [caught.value]
    handler.check_brackets()


# -- names that look like hooks


@pytest.mark.parametrize(
    "root", [AssistantEventHandler, AsyncAssistantEventHandler, sk.EventHandler, sk.AsyncEventHandler]
)
@pytest.mark.parametrize("name", ["on_tool_call_completed", "on_image_done", "on_error", "on_message_complete"])
def test_an_applications_own_helper_raises_no_alarm(root: type, name: str) -> None:
    """Warnings are errors here. Only a slip of a letter or two is taken for a hook's name."""
    type("App", (root,), {name: lambda self: None})


@pytest.mark.parametrize(
    "root", [AssistantEventHandler, AsyncAssistantEventHandler, sk.EventHandler, sk.AsyncEventHandler]
)
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_text_detla", "on_text_delta"),
        ("on_tool_calls_done", "on_tool_call_done"),
        ("on_message_create", "on_message_created"),
        ("on_ned", "on_end"),
    ],
)
def test_a_slip_in_a_hooks_name_warns(root: type, name: str, meant: str) -> None:
    with pytest.warns(UserWarning, match=f"Slip.{name} is not a hook.* did you mean {meant}") as caught:
        type("Slip", (root,), {name: lambda self: None})
    assert caught[0].filename == __file__


def test_a_hook_of_the_other_kind_of_handler_warns() -> None:
    """It is spelled right, and never called."""
    with pytest.warns(UserWarning, match=r"Thinks.on_reasoning_delta is a hook of the handlers of streamkit itself"):
        type("Thinks", (AssistantEventHandler,), {"on_reasoning_delta": lambda self, delta, snapshot: None})
    with pytest.warns(
        UserWarning, match=r"Steps.on_run_step_delta is a hook of the handlers of streamkit.compat.openai"
    ):
        type("Steps", (sk.EventHandler,), {"on_run_step_delta": lambda self, delta, snapshot: None})


# -- hooks that read the stream which waits for them


async def _next_of(handler: Any) -> None:
    await anext(handler) if hasattr(handler, "__anext__") else next(handler)


async def _all_of(values: Any) -> None:
    await a.each(values)


READINGS: dict[str, Any] = {
    "next": _next_of,
    "iterates": _all_of,
    "text_deltas": lambda handler: _all_of(handler.text_deltas),
    "until_done": lambda handler: a.call(handler.until_done),
    "get_final_run": lambda handler: a.call(handler.get_final_run),
}


@every_pair
@both_shells
@pytest.mark.parametrize("inner", READINGS.values(), ids=READINGS)
@pytest.mark.parametrize("outer", ["iterates", "text_deltas", "until_done"])
@body
async def test_a_hook_that_reads_its_own_stream_gets_a_usage_error(face: Face, outer: str, inner: Any) -> None:
    """Not Python's own words about a generator; and it takes no event away from whoever iterates."""
    errors: list[BaseException] = []

    def read(handler: Any, *_: Any) -> Any:
        async def refused() -> None:
            with pytest.raises(sk.UsageError, match="the stream runs already") as caught:
                await inner(handler)
            errors.append(caught.value)

        if face.is_async:
            return refused()
        with pytest.raises(StopIteration):
            refused().send(None)
        return None

    handler = a.hook_log(face, on_text_delta=read)

    async def use(face: Face, stream: Any) -> None:
        await READINGS[outer](stream)

    await a.start_with_client(face, assistants_body(PIECES), handler, use)
    assert len(errors) == len(PIECES)
    assert f"text_done {ANSWER!r}" in handler.lines
    assert handler.lines[-1] == "end"


# -- what hooks take and return


def _returning(face: Face) -> Any:
    """A handler of this face's own kind, two of whose hooks return something."""

    class Returns(AssistantEventHandler):
        def on_text_delta(self, delta: Any, snapshot: Any) -> Any:
            return len(delta.value)

        def on_message_done(self, message: Any) -> Any:
            return "done"

    class AsyncReturns(AsyncAssistantEventHandler):
        async def on_text_delta(self, delta: Any, snapshot: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return len(delta.value)

        def on_message_done(self, message: Any) -> Any:
            return "done"

    return AsyncReturns() if face.is_async else Returns()


@both_shells
@every_service
@body
async def test_a_hook_that_returns_a_value_is_warned_about_once(face: Face, service: str) -> None:
    """As streamkit's own handlers are: nobody receives it."""
    with pytest.warns(UserWarning, match="is not used") as caught:
        await serve(face, service, _returning(face))
    said = [str(one.message).partition("Returns.")[2].partition(",")[0] for one in caught]
    assert said == ["on_text_delta returned 9", "on_message_done returned 'done'"]


async def _slow_delta(self: Any, delta: Any) -> None:
    """An `async def` hook without a snapshot."""


@pytest.mark.parametrize(
    ("root", "name", "hook"),
    [
        (AssistantEventHandler, "on_text_delta", lambda self, delta: None),
        (AssistantEventHandler, "on_end", lambda self, status: None),
        (AssistantEventHandler, "on_confirmation", lambda self: None),
        (AsyncAssistantEventHandler, "on_text_delta", _slow_delta),
        (AsyncAssistantEventHandler, "on_run_step_delta", lambda self, delta, snapshot, more: None),
    ],
)
def test_a_hook_that_cannot_take_its_arguments_is_refused_when_it_is_bound(root: type, name: str, hook: Any) -> None:
    with pytest.raises(sk.UsageError, match=rf"Wrong\.{name} cannot be called with its arguments: it is {name}\("):
        sk.astream([], type("Wrong", (root,), {name: hook})())
