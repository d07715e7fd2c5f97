"""streamkit.js reads what Python encodes to the state that Python has. Runs in Node, without packages."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import streamkit as sk
from streamkit.core.engine import Engine
from streamkit.core.snapshot import SnapshotMaker
from streamkit.events import (
    EVENTS,
    ConfirmationCreated,
    ConfirmationDone,
    Created,
    Done,
    Event,
    Run,
    RunCreated,
    RunRequiresAction,
    RunStep,
    RunStepCreated,
    StreamEnd,
    TextDelta,
    TextDone,
    ToolCallDone,
)
from streamkit.protocols.codec import decode_event, encode_event, encode_snapshot, event_to_dict, message_to_dict

from ..recorded import own_recordings
from ..test_recorded_streams import FOLDERS
from ..ui_streams import RUNS, case, everything

HERE = Path(__file__).parent
PAGE = Path(sk.__file__).parent / "server" / "page"
NODE = shutil.which("node")
UI_CLIENTS = Path(os.environ.get("STREAMKIT_UI_CLIENTS", HERE.parent / "ui_clients")) / "node_modules"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NODE is None, reason="there is no Node: no program `node`")]


def node(*arguments: str, stdin: str = "") -> str:
    """What a program for Node prints."""
    assert NODE is not None
    done = subprocess.run([NODE, *arguments], input=stdin, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def script(source: str) -> Any:
    """The JSON value that a module prints; `js` in it is streamkit.js."""
    source = f"import * as js from {json.dumps((PAGE / 'streamkit.js').as_uri())};\n{source}"
    return json.loads(node("--input-type=module", "--eval", source))


def job(name: str, events: list[Event], stream: Any, *limits: int) -> dict[str, Any]:
    """What `read_streams.mjs` checks about these events of a stream; there are snapshots for each limit of messages that have ended."""
    lines = [encode_event(event).decode() for event in events]
    usage = event_to_dict(stream.usage) if stream.usage is not None else None
    return {
        "name": name,
        "events": lines,
        "messages": [message_to_dict(message) for message in stream.messages],
        "hooks": hooks_of(lines),
        "fails": stream.error is not None,
        "status": stream.status,
        "usage": usage,
        "snapshots": [one for limit in limits or (1000,) for one in snapshots_of(lines, limit)],
    }


class Noting(sk.EventHandler):
    """Notes of each hook its name, what it is about, and the text of a delta."""

    def __init__(self) -> None:
        self.hooks: list[list[str]] = []


def _noting(name: str) -> Any:
    def hook(self: Noting, *arguments: Any) -> None:
        first, second = (*arguments, None, None)[:2]
        about = first.type if name == "on_event" else getattr(second, "id", None) or getattr(first, "id", None) or ""
        self.hooks.append([name, about, first.value if second is not None and hasattr(first, "value") else ""])

    return hook


for _name in dir(sk.EventHandler):
    if _name.startswith("on_"):
        setattr(Noting, _name, _noting(_name))


def hooks_of(lines: list[str]) -> list[list[str]]:
    """The hooks that a reader of these lines gets in Python."""
    noting = Noting()
    with contextlib.suppress(sk.StreamkitError):
        sk.stream([decode_event(line) for line in lines], noting).until_done()
    return noting.hooks


def snapshots_of(lines: list[str], limit: int) -> list[tuple[int, str, list[Any]]]:
    """Snapshots at each twentieth event, with the messages that a reader has at the end which begins with one."""
    engine = Engine()
    maker = SnapshotMaker(engine, encode_event, limit, 2**20)
    snapshots: list[tuple[int, str, list[Any]]] = []
    for number, line in enumerate(lines, 1):
        for _ in engine.complete([decode_event(line)]):
            pass
        if number % 20 == 0 and number < len(lines):
            made, count = maker.lines()
            inside = {event.message.id for event in map(decode_event, made) if isinstance(event, Created | Done)}
            missing = [message.id for message in engine.messages.all if message.id not in inside]
            snapshots.append((number, encode_snapshot(made, len(engine.messages.all) - count).decode(), missing))
    final = [message_to_dict(message) for message in engine.messages.all]
    return [(number, text, [m for m in final if m["id"] not in ids]) for number, text, ids in snapshots]


def read(source: Any, **options: Any) -> tuple[list[Event], Any]:
    """The events of a stream as another reader gets them, and the stream."""
    stream = sk.stream(source, **options)
    events: list[Event] = []
    try:
        for event in stream:
            events.append(decode_event(encode_event(event)))
    except sk.StreamkitError:
        pass
    return events, stream


def check(jobs: list[dict[str, Any]]) -> None:
    faults = json.loads(node(str(HERE / "read_streams.mjs"), (PAGE / "streamkit.js").as_uri(), stdin=json.dumps(jobs)))
    assert not faults, "\n".join(f"{one['name']}: {one['fault']}" for one in faults)


def test_a_recording_of_any_protocol_gives_the_same_messages_however_it_is_cut_and_resumed() -> None:
    """At random cuts, after a break at each event, and with a snapshot in the place of events."""
    jobs: list[dict[str, Any]] = []
    for path in own_recordings(*FOLDERS.values()):
        events, stream = read(path)
        jobs.append(job(f"{path.parent.name}/{path.stem}", events, stream))
    assert len(jobs) > 30
    check(jobs)


def test_a_stream_with_every_kind_of_event_gives_the_same_messages() -> None:
    """Code, console, active lines, images, files, citations, questions, parallel messages, steps and their tokens; where a
    snapshot has only the newest messages, a reader that saw the others keeps them."""
    streams = {"everything": everything(), **{name: case(name) for name in RUNS}}
    jobs: list[dict[str, Any]] = []
    for name, events in streams.items():
        lines = [encode_event(event) for event in events]  # at once: the events are live
        jobs.append(job(name, *read([*map(decode_event, lines), StreamEnd()]), 1000, 2))
    check(jobs)


def test_an_answer_that_began_again_leaves_what_it_had_shown() -> None:
    """Also where a snapshot has come in the place of the event."""
    attempt = [TextDone(sk.TextMessage("whole", content="Old.")), TextDelta("half", "Half")]
    retry = sk.StreamRetry(2, "SourceError", "It broke.", 0.5, ["whole", "half", "none"])
    rest = [TextDone(sk.TextMessage(f"new-{number}", content="New.")) for number in range(30)]
    begin: list[Event] = [RunCreated(Run(id="r")), TextDone(sk.TextMessage("before", content="Before."))]
    check([job("again", *read([*begin, *attempt, retry, *rest, StreamEnd()]), 1000, 2)])


def test_hooks_have_the_names_and_arguments_that_they_have_in_python() -> None:
    names = script("console.log(JSON.stringify(js.HOOKS))")
    own = [name for name in dir(sk.EventHandler) if name.startswith("on_")]
    assert sorted(names) == sorted(own)
    source = "console.log(JSON.stringify(JSON.parse(%s).map((event) => js.hooksOf(event))))"
    built_in = [kind for kind in EVENTS.values() if kind.__module__ == "streamkit.events"]
    shapes = [{"type": kind.type, **_shape(kind)} for kind in built_in]
    hooks = script(source % json.dumps(json.dumps(shapes)))
    assert hooks == [["on_event", *kind.hooks] for kind in built_in]


def _shape(kind: type[Event]) -> dict[str, Any]:
    """What tells events about messages from others."""
    return {
        name: {"id": "m"} if name == "message" and kind.type != "stream_exception" else "text"
        for name in kind.__struct_fields__
        if name in ("message", "message_id", "value")
    }


@pytest.mark.skipif(not (UI_CLIENTS / "typescript").exists(), reason=f"TypeScript is not installed in {UI_CLIENTS}")
def test_typescript_takes_right_uses_and_refuses_wrong_ones(tmp_path: Path) -> None:
    (tmp_path / "streamkit.d.ts").write_text((PAGE / "streamkit.d.ts").read_text("utf-8"), "utf-8")
    source = (HERE / "api.ts").read_text("utf-8").replace("STREAMKIT_JS", "./streamkit.js")
    (tmp_path / "api.ts").write_text(source, "utf-8")
    options = "--noEmit --strict --skipDefaultLibCheck --target es2022 --module esnext --moduleResolution bundler --lib es2022,dom,dom.asynciterable"
    node(str(UI_CLIENTS / "typescript" / "bin" / "tsc"), *options.split(), str(tmp_path / "api.ts"))


def test_types_are_declared_for_all_that_the_module_has() -> None:
    declared = (PAGE / "streamkit.d.ts").read_text("utf-8")
    names = script("console.log(JSON.stringify([Object.keys(js), js.HOOKS]))")
    for name in (*names[0], *(f"{hook}(" for hook in names[1])):
        assert name in declared, name


def test_tokens_of_steps_are_added_up_while_the_run_goes_on() -> None:
    """Before the end of the run says how many there were in all."""
    events = [event for event in case("steps, with their ids") if event.type not in ("run_done", "stream_end")]
    lines = "".join(f"id: {number}\ndata: {encode_event(event).decode()}\n\n" for number, event in enumerate(events))
    source = """
      const fetch = async () => new Response(%s, { headers: { "x-streamkit-run": "run-1" } });
      const stream = js.connect({ url: "http://127.0.0.1/", fetch }).read("run-1");
      let count = 0;
      for await (const event of stream) if (event.type === "usage" && (count += 1) === 2) break;
      stream.close();
      console.log(JSON.stringify([stream.usage.input_tokens, stream.usage.total_tokens, stream.runSteps.map((step) => step.usage.total_tokens)]));
    """
    assert script(source % json.dumps(lines)) == [30, 41, [15, 26]]


def test_a_call_that_is_to_be_confirmed_waits_for_that_alone() -> None:
    """The agent runs it; the page answers the other one, before and after the decision."""
    own, pages = (sk.ToolCallMessage(id, name="f", call_id=f"call_{id}", content="{}") for id in "ab")
    confirmation = sk.Confirmation("c", own)
    events: list[Event] = [RunCreated(Run(id="r")), RunStepCreated(RunStep()), ToolCallDone(own), ToolCallDone(pages)]
    events += [ConfirmationCreated(confirmation), RunRequiresAction(Run(status="requires_action"))]
    lines = [encode_event(event).decode() for event in events]
    confirmation.status = "approved"
    lines.append(encode_event(ConfirmationDone(confirmation)).decode())
    body = "".join(f"id: {number}\ndata: {line}\n\n" for number, line in enumerate(lines))
    source = """
      const fetch = async () => new Response(%s, { headers: { "x-streamkit-run": "run-1" } });
      const stream = js.connect({ url: "http://127.0.0.1/", fetch }).read("run-1");
      const seen = [];
      for await (const event of stream) {
        if (event.type === "run_requires_action") seen.push([...stream.pending.keys()]);
        if (event.type === "confirmation_done") break;
      }
      stream.close();
      console.log(JSON.stringify([...seen, [...stream.pending.keys()]]));
    """
    assert script(source % json.dumps(body)) == [["c", "call_b"], ["call_b"]]


def test_a_hook_that_fails_ends_the_stream_and_a_misspelt_one_is_refused() -> None:
    source = """
      const body = 'data: {"type":"text_delta","message_id":"m","value":"a"}\\n\\ndata: {"type":"stream_end"}\\n\\n';
      const fetch = async () => new Response(body, { headers: { "x-streamkit-run": "run-1" } });
      const client = js.connect({ url: "http://127.0.0.1/", fetch });
      const told = [];
      class Failing extends js.EventHandler {
        on_text_delta() { throw new Error("the hook's own"); }
        on_exception(error) { told.push(error.message); }
        on_end() { told.push("end"); }
      }
      await client.read("run-1", { handler: new Failing() }).untilDone().catch((error) => told.push(error.message));
      try {
        client.read("run-1", { handler: { onTextDelta() {} } });
      } catch (error) {
        told.push(error.message);
      }
      console.log(JSON.stringify(told));
    """
    *told, misspelt = script(source)
    assert told == ["the hook's own", "end", "the hook's own"]
    assert misspelt.endswith("on_text_delta, not onTextDelta")


def test_what_leads_to_no_server_or_is_no_handler_is_refused_in_words() -> None:
    """At once where it can be seen, and after the patience where nobody answers."""
    source = """
      const errors = [];
      const note = (error) => errors.push([error.name, error.message]);
      for (const url of ["localhost:8765", "/api/", undefined]) {
        try { js.connect({ url }); } catch (error) { note(error); }
      }
      const client = js.connect({ url: "http://127.0.0.1/", fetch: () => Promise.reject(new TypeError("fetch failed")), patience: -1 });
      class Page extends js.EventHandler {}
      for (const handler of [Page, null]) {
        try { client.run("Hi", { handler }); } catch (error) { note(error); }
      }
      await client.run("Hi").untilDone().catch(note);
      console.log(JSON.stringify(errors));
    """
    *usage, lost = script(source)
    assert [name for name, _ in usage] == ["UsageError"] * 5
    assert [text.partition(":")[0] for _, text in usage[1:3]] == [
        'the url "/api/" leads to no server',
        "connect() without a url leads to no server",
    ]
    assert [text.partition(": ")[2] for _, text in usage[3:]] == ["pass new Page()", "pass an object"]
    assert lost == ["SourceError", "the server cannot be reached: fetch failed"]


def test_a_machine_that_slept_and_a_server_that_is_silent_cost_no_stream() -> None:
    """The clock jumps by ten minutes before the connection is cut; a connection that is never answered is given up."""
    source = """
      const frame = (number, text) => `id: ${number}\\ndata: {"type":"text_delta","message_id":"m","value":"${text}"}\\n\\n`;
      const headers = { "x-streamkit-run": "run-1" };
      const cut = (text) => new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode(text)),
        pull: (controller) => { Date.now = () => now() + 600_000; controller.error(new TypeError("cut")); },
      }, { highWaterMark: 0 });
      const now = Date.now;
      const states = [];
      let requests = 0;
      const fetch = (url, { signal }) => {
        requests += 1;
        if (requests === 1) return Promise.resolve(new Response(cut("retry: 1\\n\\n" + frame(1, "a")), { headers }));
        if (requests === 2) return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
        if (requests === 3) return Promise.resolve(Response.json({ title: "Busy." }, { status: 429, headers: { "retry-after": "0" } }));
        return Promise.resolve(new Response(frame(2, "b") + 'data: {"type":"stream_end"}\\n\\n', { headers }));
      };
      const onConnection = (state, error) => states.push(error ? [state, error.status, error.message] : [state]);
      const stream = js.connect({ url: "http://127.0.0.1/", fetch, silence: 400, onConnection }).read("run-1");
      const text = await stream.getFinalText();
      const aborted = js.connect({ url: "http://127.0.0.1/", fetch }).read("run-1", { signal: AbortSignal.abort() });
      await aborted.untilDone();
      console.log(JSON.stringify([text, requests, states.filter(([state]) => state === "waiting"), aborted.status]));
    """
    text, requests, waits, aborted = script(source)
    assert (text, requests, aborted) == ("ab", 4, "incomplete")
    assert [status for _, status, _ in waits] == [0, 0, 429]
    assert [message for *_, message in waits[1:]] == [
        "the server cannot be reached: the server was silent for too long",
        "Busy.",
    ]


def test_a_run_whose_response_is_lost_is_sent_again_with_the_same_key() -> None:
    """The server may have begun it: by the key it tells that it is the same one."""
    source = """
      const sent = [];
      const fetch = async (url, { method, headers }) => {
        sent.push([method, headers["idempotency-key"], headers["last-event-id"] ?? null]);
        if (sent.length < 3) throw new TypeError("cut");
        return new Response('data: {"type":"stream_end"}\\n\\n', { headers: { "x-streamkit-run": "run-1" } });
      };
      await js.connect({ url: "http://127.0.0.1/", fetch, maxDelay: 1 }).run("Hi").untilDone();
      console.log(JSON.stringify(sent));
    """
    sent = script(source)
    assert len(sent) == 3
    [(method, key, cursor)] = {tuple(one) for one in sent}
    assert method == "POST" and len(key) == 32 and cursor is None


def test_a_line_of_an_event_may_end_with_cr_and_lf_in_two_pieces() -> None:
    source = """
      const parser = new js.SseParser();
      console.log(JSON.stringify(["data: a\\r", "\\ndata: b\\r", "\\n\\r\\n"].flatMap((piece) => [...parser.feed(piece)])));
    """
    assert script(source) == ["a\nb"]
