"""OpenAI's agent sessions over the real client: a server of the test's own says what the SDK's types say.

The server has one session. `GET …/events` sends the events of a turn; it waits where an event is `WAIT` until something was posted.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import openai
import pytest

import streamkit as sk
from streamkit.protocols import registry

WAIT: dict[str, Any] = {}
LIMIT = 30.0  # seconds that the server waits for the application at most

Item = dict[str, Any]


def session(status: str, **fields: Any) -> Item:
    return {"id": "sess_1", "object": "agent.session", "status": status, "required_actions": [], **fields}


class Events:
    """Makes events, each with an id of its own."""

    def __init__(self, turn: str = "turn_1", numbers: Iterator[int] | None = None) -> None:
        self._numbers = numbers or itertools.count()
        self.turn = turn

    def of_turn(self, turn: str) -> Events:
        return Events(turn, self._numbers)

    def session(self, status: str, **fields: Any) -> Item:
        return self._event(f"session.{status}", session=session(status, **fields))

    def turn_event(self, kind: str, *, subagent: str | None = None, **fields: Any) -> Item:
        status = "in_progress" if kind in ("created", "in_progress") else kind
        turn = {"id": self.turn, "agent_id": "agent_1", "subagent_id": subagent, "status": status, "created_at": 1}
        return self._event(f"session.turn.{kind}", turn_id=self.turn, turn={**turn, **fields.pop("turn", {})}, **fields)

    def item(self, id: str, kind: str, *, done: bool = True, **fields: Any) -> Item:
        wire = {
            "id": id,
            "type": kind,
            "turn_id": self.turn,
            "status": "completed" if done else "in_progress",
            **fields,
        }
        name = f"session.turn.item.{'done' if done else 'added'}"
        return self._event(name, turn_id=self.turn, output_index=0, item=wire)

    def text(self, id: str, *pieces: str, phase: str = "final_answer") -> list[Item]:
        message: Item = {"role": "assistant", "phase": phase}
        at = {"turn_id": self.turn, "item_id": id, "output_index": 0, "content_index": 0}
        part = {"type": "output_text", "text": "".join(pieces)}
        return [
            self.item(id, "message", done=False, content=[], **message),
            self._event("session.turn.content_part.added", **at, part={**part, "text": ""}),
            *(self._event("session.turn.output_text.delta", **at, delta=piece) for piece in pieces),
            self._event("session.turn.output_text.done", **at, text="".join(pieces)),
            self._event("session.turn.content_part.done", **at, part=part),
            self.item(id, "message", content=[part], **message),
        ]

    def reasoning(self, id: str, *pieces: str) -> list[Item]:
        at = {"turn_id": self.turn, "item_id": id, "output_index": 0, "summary_index": 0}
        part = {"type": "summary_text", "text": "".join(pieces)}
        return [
            self.item(id, "reasoning", done=False, summary=[]),
            self._event("session.turn.reasoning_summary_part.added", **at, part={**part, "text": ""}),
            *(self._event("session.turn.reasoning_summary_text.delta", **at, delta=piece) for piece in pieces),
            self._event("session.turn.reasoning_summary_text.done", **at, text="".join(pieces)),
            self._event("session.turn.reasoning_summary_part.done", **at, part=part),
            self.item(id, "reasoning", summary=[part]),
        ]

    def printed(self, id: str, text: str) -> Item:
        kind = "output.command_execution_output.delta"
        return self._event(kind, turn_id=self.turn, item_id=id, output_index=0, delta=text)

    def _event(self, kind: str, **fields: Any) -> Item:
        return {"type": f"agent.{kind}", "event_id": f"event_{next(self._numbers)}", "session_id": "sess_1", **fields}


USAGE = {
    "input_tokens": 30,
    "input_tokens_details": {"cached_tokens": 8},
    "output_tokens": 12,
    "output_tokens_details": {"reasoning_tokens": 3},
    "total_tokens": 42,
}


def turn(e: Events, *middle: Item, end: str = "completed", **fields: Any) -> list[Item]:
    """The events of a turn, with those of its session around it."""
    begin = [e.session("idle"), e.turn_event("created"), e.session("in_progress"), e.turn_event("in_progress")]
    return [*begin, *middle, e.turn_event(end, usage=USAGE, **fields), e.session("idle")]


class SessionServer:
    """A session on loopback, for `with`. `posted` are the inputs that it took."""

    def __init__(self, events: Sequence[Mapping[str, Any]], *, stays_open: bool = False) -> None:
        self.posted: list[Item] = []
        came, self.left = threading.Semaphore(0), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not self.path.startswith("/agents/sessions/sess_1/events"):
                    self._send_json(session("idle"))
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                try:
                    for event in events:
                        if event is WAIT:
                            came.acquire(timeout=LIMIT)
                        else:
                            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                    if stays_open:
                        outer.left.wait(LIMIT)
                except OSError:
                    pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.posted += body["events"]
                came.release()
                self._send_json({"id": "input_1", "object": "agent.session.input"})

            def _send_json(self, value: Any) -> None:
                content = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.client = openai.OpenAI(api_key="x", base_url=self.url, max_retries=0)
        return self

    def __exit__(self, *exc: object) -> None:
        self.left.set()
        self.client.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def events(self) -> Any:
        return self.client.beta.agents.sessions.events.stream("sess_1")


def tour() -> list[Item]:
    e = Events()
    weather: Item = {"call_id": "call_1", "name": "get_weather", "arguments": {"city": "Oslo"}}
    question: Item = {"request_id": "ask_1", "turn_id": "turn_1", "type": "mcp_approval_request"}
    question["request"] = {
        "type": "mcp_tool_call",
        "name": "pay",
        "server_label": "shop",
        "message": "Pay?",
        "arguments": {"sum": 3},
    }
    command: Item = {"command": "ls", "cwd": "/home"}
    return turn(
        e,
        *e.reasoning("rs_1", "Two ", "cities."),
        *e.text("msg_1", "Let me", " look.", phase="commentary"),
        e.item("fc_1", "function_call", done=False, **weather),
        e.session("requires_action", required_actions=[{"type": "function_call", "turn_id": "turn_1", **weather}]),
        WAIT,
        e.item("out_1", "function_call_output", done=False, call_id="call_1", output="-3 degrees", error=None),
        e.session("in_progress"),
        e.item("cmd_1", "command_execution", done=False, **command),
        e.printed("cmd_1", "a.t"),
        e.printed("cmd_1", "xt\n"),
        e.item("cmd_1", "command_execution", **command, output="a.txt\n", exit_code=0, duration_ms=4),
        e.item(
            "mcp_1",
            "mcp_call",
            done=False,
            server_label="shop",
            name="pay",
            arguments={"sum": 3},
            output=None,
            error=None,
        ),
        e.session("requires_action", required_actions=[question]),
        e.session("in_progress"),
        e.item("mcp_1", "mcp_call", server_label="shop", name="pay", arguments={"sum": 3}, output="paid", error=None),
        *e.text("msg_2", "Cold."),
    )


def messages_of(stream: sk.StreamManager[Any]) -> list[tuple[Any, ...]]:
    return [(m.type, m.content, m.status, m.parent_id) for m in stream.get_final_messages()]


class Answering(sk.EventHandler):
    """Sends the output of a call when it has come, and notes hooks."""

    def __init__(self, server: SessionServer) -> None:
        self.server = server
        self.hooks: list[str] = []

    def on_tool_call_done(self, call: sk.ToolCallMessage, /) -> None:
        if not call.provider_executed:
            self.server.client.beta.agents.sessions.events.create(
                "sess_1",
                events=[
                    {
                        "type": "agent.session.input.tool_result",
                        "call_id": call.call_id or "",
                        "turn_id": call.group or "",
                        "success": True,
                        "output": f"{call.arguments['city']}: -3 degrees",
                    }
                ],
            )

    def on_run_requires_action(self, run: sk.Run, /) -> None:
        self.hooks.append("requires_action")

    def on_confirmation(self, confirmation: sk.Confirmation, /) -> None:
        self.hooks.append(f"{confirmation.subject.name}?")


def test_a_turn_calls_the_hooks_and_waits_for_what_the_application_sends() -> None:
    with SessionServer(tour(), stays_open=True) as server:
        handler = Answering(server)
        stream = sk.stream(server.events, handler, strict=True)
        stream.until_done()
        assert messages_of(stream) == [
            ("reasoning", "Two cities.", "completed", None),
            ("message", "Let me look.", "completed", None),
            ("tool_call", '{"city":"Oslo"}', "completed", None),
            ("tool_output", "-3 degrees", "completed", None),
            ("code", "ls", "completed", None),
            ("console", "a.txt\n", "completed", None),
            ("tool_call", '{"sum":3}', "completed", None),
            ("tool_output", "paid", "completed", None),
            ("message", "Cold.", "completed", None),
        ]
        assert handler.hooks == ["requires_action", "pay?", "requires_action"]
        assert stream.get_final_run().status == "completed"
        assert stream.usage is not None
        assert (stream.usage.input_tokens, stream.usage.output_tokens, stream.usage.total_tokens) == (30, 12, 42)
        assert [(posted["turn_id"], posted["output"]) for posted in server.posted] == [("turn_1", "Oslo: -3 degrees")]


def test_the_helper_of_the_sdk_is_read_as_the_events_themselves() -> None:
    e = Events()
    with (
        SessionServer([WAIT, *turn(e, *e.text("msg_1", "He", "llo"))]) as server,
        server.client.beta.agents.sessions.stream("sess_1", input="Hi") as events,
    ):
        assert [*sk.stream(events).text_deltas] == ["He", "llo"]


@pytest.mark.anyio
async def test_an_async_client_gives_the_same() -> None:
    e = Events()
    with SessionServer(turn(e, *e.text("msg_1", "He", "llo"))) as server:
        async with openai.AsyncOpenAI(api_key="x", base_url=server.url, max_retries=0) as client:
            stream = sk.astream(client.beta.agents.sessions.events.stream("sess_1"))
            assert await stream.get_final_text() == "Hello"


def test_what_a_sub_agent_says_has_the_call_that_began_it_as_its_parent() -> None:
    e = Events()
    inner = e.of_turn("turn_2")
    subagent = {"id": "sub_1", "object": "agent.session.subagent", "parent_agent_id": "agent_1", "status": "active"}
    begin: Item = {"agent_id": "agent_1", "content": [{"type": "text", "text": "Look."}]}
    stream = sk.stream(
        turn(
            e,
            e.item("create_1", "create_subagent_call", done=False, **begin),
            e.item("create_1", "create_subagent_call", **begin),
            {"type": "agent.session.subagent.created", "event_id": "s", "subagent": subagent},
            inner.turn_event("created", subagent="sub_1"),
            *itertools.chain(*zip(inner.text("msg_1", "In", "ner"), e.text("msg_1", "Out", "er"), strict=True)),
            inner.turn_event("completed", subagent="sub_1", usage=USAGE),
        )
    )
    stream.until_done()
    assert messages_of(stream)[1:] == [
        ("message", "Inner", "completed", "create_1"),
        ("message", "Outer", "completed", None),
    ]
    assert stream.get_final_text() == "Outer"


def test_an_event_that_comes_twice_is_read_once() -> None:
    e = Events()
    items = turn(e, *e.text("msg_1", "He", "llo"))
    assert sk.stream([item for item in items for _ in range(2)]).get_final_text() == "Hello"


@pytest.mark.parametrize(("end", "status"), [("failed", "failed"), ("cancelled", "cancelled")])
def test_a_turn_that_did_not_complete_says_so(end: str, status: str) -> None:
    e = Events()
    error = {"turn": {"error": {"code": "model_error", "message": "It broke."}}} if end == "failed" else {}
    stream = sk.stream(turn(e, *e.text("msg_1", "Half"), end=end, **error))
    if end == "failed":
        with pytest.raises(sk.RunFailedError, match="It broke"):
            stream.until_done()
    else:
        stream.until_done()
    assert stream.status == status


def test_an_error_event_ends_nothing_and_a_connection_that_ends_early_is_cut_off() -> None:
    e = Events()
    error = {"type": "error", "event_id": "x", "error": {"type": "server_error", "message": "Oh."}}
    items = turn(e, *e.text("msg_1", "Hel"), error, *e.text("msg_2", "lo"))
    stream = sk.stream(items)
    assert [m.content for m in stream.get_final_messages()] == ["Hel", "lo"]
    cut = sk.stream(items[:-1])
    with pytest.raises(sk.IncompleteStreamError, match="openai_agent_sessions"):
        cut.until_done()
    assert [m.content for m in cut.messages] == ["Hel", "lo"]


def test_items_that_come_whole_have_all_of_their_text() -> None:
    e = Events()
    message = e.item("msg_1", "message", role="assistant", content=[{"type": "output_text", "text": "Hello"}])
    mended = [item for item in e.text("msg_2", "a", "b") if item.get("delta") != "b"]
    stream = sk.stream(turn(e, message, *mended))
    assert [m.content for m in stream.get_final_messages()] == ["Hello", "ab"]


def test_a_recorded_turn_is_read_again_and_bytes_may_be_cut_anywhere(tmp_path: Path) -> None:
    items = [item for item in tour() if item is not WAIT]
    path = tmp_path / "turn.jsonl"
    recorded = sk.stream(items, sk.Recorder(path))
    recorded.until_done()
    body = "".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n" for item in items).encode()
    for source in (path, [body[start : start + 7] for start in range(0, len(body), 7)]):
        replayed = sk.stream(source)
        replayed.until_done()
        assert messages_of(replayed) == messages_of(recorded)


def test_broken_values_are_skipped_and_never_raise() -> None:
    for item in tour():
        for key in item:
            values: tuple[Any, ...] = (None, 17, "x", [], {}, [None])
            for value in values:
                events = registry.decoder_of("openai_agent_sessions")().feed_items([{**item, key: value}])
                assert not [event for event in events if getattr(event, "code", None) == "decoder-error"], (item, key)


def test_it_is_read_alone() -> None:
    with pytest.raises(sk.UsageError, match="only read"):
        sk.to_input([], "openai_agent_sessions")
