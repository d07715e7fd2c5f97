"""What a user interface may be sent: a stream for each thing, and one with all of them; and how they come back.

The table in the guide's page on UI protocols is computed from these streams.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import streamkit as sk
from streamkit import events as e
from streamkit import messages as m
from streamkit import protocols
from streamkit.core.engine import Engine
from streamkit.protocols.codec import event_to_dict

Line = dict[str, Any]


class UiSearchQuery(sk.Event):
    """An application's own event."""

    query: str


def whole(message: m.Message, *pieces: str, done: bool = True) -> list[e.Event]:
    """A message from its beginning to its end, in these pieces; its own content is their sum."""
    content = "".join(pieces) or message.content
    begun = message.header()
    out: list[e.Event] = [e.MessageCreated(begun)]
    out += [message.delta_event(message.id, piece) for piece in pieces or (message.content,) if piece]
    if done:
        end = message.copy()
        end.replace_content(content)
        out.append(e.MessageDone(end))
    return out


def interleaved(*streams: Sequence[e.Event]) -> list[e.Event]:
    """Several messages at once, an event of each in turn."""
    longest = max(map(len, streams))
    return [stream[at] for at in range(longest) for stream in streams if at < len(stream)]


def call(id: str, name: str = "weather", content: str = '{"city":"Oslo"}', **fields: Any) -> m.ToolCallMessage:
    return m.ToolCallMessage(id, name=name, call_id=id, content=content, **fields)


def asked(subject: m.Message, **outcome: Any) -> list[e.Event]:
    """A question, and its answer if there is one."""
    question: list[e.Event] = [e.ConfirmationCreated(sk.Confirmation(f"ask-{subject.id}", subject))]
    if outcome:
        question.append(e.ConfirmationDone(sk.Confirmation(f"ask-{subject.id}", subject, **outcome)))
    return question


def printing(id: str, call_id: str | None) -> list[e.Event]:
    console = m.ConsoleMessage(id, call_id=call_id)
    return [
        e.ActiveLine(id, 1),
        e.ConsoleCreated(console),
        e.ConsoleDelta(id, "one\n", False, {"stream": "stdout"}),
        e.ActiveLine(id, 2),
        e.ConsoleDelta(id, "two\n", False, {"stream": "stderr"}),
        e.ConsoleDelta(id, "three\n", False, {"stream": "stdout"}),
        e.ActiveLine(id, None),
        e.ConsoleDone(m.ConsoleMessage(id, call_id=call_id, content="one\ntwo\nthree\n")),
    ]


def cited(id: str, *annotations: m.Annotation) -> list[e.Event]:
    begun, *rest = whole(m.TextMessage(id), "It rains.")
    return [begun, rest[0], *(e.AnnotationAdded(id, one) for one in annotations), rest[1]]


def output(id: str, call_id: str, content: str, **fields: Any) -> list[e.Event]:
    return whole(m.ToolOutputMessage(id, call_id=call_id, name="weather", content=content, **fields))


PNG, WAV = "iVBORw0KGgo=", "UklGRiQAAABXQVZF"
CODE = m.CodeMessage("k", format="python", content='print("1")\nprint(2)\n')

CASES: dict[str, list[e.Event]] = {
    "a text": whole(m.TextMessage("t1"), "It ", "rains: ", "“7 °C” \U0001f327"),
    "two texts at once": interleaved(whole(m.TextMessage("t2"), "a", "b"), whole(m.TextMessage("t3"), "c", "d")),
    "a refusal": whole(m.RefusalMessage("t4"), "I ", "won't."),
    "a text that was cut short": whole(m.TextMessage("t5", status="incomplete"), "It rai"),
    "reasoning, a summary of it": [
        *whole(m.ReasoningMessage("r1"), "They ", "ask."),
        *whole(m.ReasoningMessage("r2", format="summary"), "A question."),
    ],
    "redacted reasoning": whole(m.ReasoningMessage("r3", format="redacted")),
    "a citation of a page or a file": cited(
        "t6",
        m.Annotation(type="url_citation", url="https://a.example/x", title="Rain", start=0, end=2, quote="It"),
        m.Annotation(type="file_citation", file_id="file-1"),
    ),
    "a citation without URL or file": cited("t7", m.Annotation(type="char_location", title="A book", start=3, end=8)),
    "tool calls at once": interleaved(
        whole(call("c1"), '{"city"', ':"Oslo"}'), whole(call("c2", "time"), '{"zone":', '"CET"}')
    ),
    "a call without arguments": whole(call("c3", "time", "")),
    "a call that takes any text": whole(call("c4", "shell", "ls -l", metadata={"custom": True})),
    "a call that the provider runs": whole(call("c5", provider_executed=True)),
    "arguments that are no JSON object": whole(call("c6", "time", "[1, 2")),
    "a call that was cut off": whole(call("c7", "time", '{"zone": "C', status="incomplete")),
    "a tool's output": [
        *whole(call("c8")),
        *output("o1", "c8", '{"temp":7,"unit":"C"}'),
        *whole(call("c9")),
        *output("o2", "c9", '{ "spaced": 1.0 }'),
    ],
    "an error as a tool's output": [*whole(call("c10")), *output("o3", "c10", "no network", metadata={"error": True})],
    "an output without a call": output("o4", "c11", "late"),
    "code": whole(CODE, 'print("1")', "\nprint(2)\n"),
    "what code prints, and the line that runs": [
        *whole(m.CodeMessage("k1", format="python", content="x\ny\n")),
        *printing("p1", None),
    ],
    "what a call prints": [*whole(call("c12", "execute", provider_executed=True)), *printing("p2", "c12")],
    "images, audio and files with bytes or a URL": [
        *whole(m.ImageMessage("i1", format="base64.png", content=PNG)),
        *whole(
            m.ImageMessage("i2", format="url", content="https://a.example/x.jpg?a=1", role="computer", call_id="c12")
        ),
        *whole(m.AudioMessage("i3", format="wav", content=WAV)),
        *whole(m.FileMessage("i4", format="url", content="https://a.example/x.pdf")),
    ],
    "images and files that are paths or ids": [
        *whole(m.ImageMessage("i5", format="path", content="/tmp/plot.png")),
        *whole(m.FileMessage("i6", format="file_id", content="file-2")),
    ],
    "texts of the user and the system": [
        *whole(m.TextMessage("u1", role="user"), "And ", "Rome?"),
        *whole(m.TextMessage("u2", role="system"), "Be brief."),
    ],
    "a message of another type": whole(m.Message("x1", type="summary", content="We spoke of rain.")),
    "an approval": [
        *whole(call("c14", provider_executed=True)),
        *asked(call("c14", provider_executed=True), status="approved"),
        *output("o5", "c14", "rain"),
    ],
    "an approval with other arguments": [
        *whole(call("c15", provider_executed=True)),
        *asked(call("c15", provider_executed=True), status="approved", edited='{"city":"Rome"}'),
        *output("o6", "c15", "sun"),
    ],
    "a refusal to run it, with a reason": [
        *whole(call("c16", provider_executed=True)),
        *asked(call("c16", provider_executed=True), status="declined", reason="too far"),
        *output("o7", "c16", "The user declined: too far"),
    ],
    "a text that the provider corrected": [
        *whole(m.TextMessage("t8"), "Rian", done=False),
        e.TextDelta("t8", "Rain", replace=True),
        e.TextDone(m.TextMessage("t8", content="Rain")),
    ],
    "an application's own event": [UiSearchQuery(query="rain in Oslo")],
    "group, index, name and time of a message": whole(
        m.TextMessage("t9", group="msg_1", index=2, name="Ann", created_at=1767225600.0), "Hi."
    ),
    "metadata of a message or a delta": [
        e.TextCreated(m.TextMessage("t10")),
        e.TextDelta("t10", "Hi.", False, {"logprobs": [{"token": "Hi"}]}),
        e.TextDone(m.TextMessage("t10", content="Hi.", metadata={"signature": "abc"})),
    ],
    "a raw event": [e.RawEvent("rate_limits.updated", {"left": 9})],
    "a warning": [e.StreamWarning("bad-index", "its index is text; it was read as a number")],
    "further choices of an answer (`n` over 1)": whole(m.TextMessage("t11", choice=1), "Or not."),
}

WAITS = e.RunRequiresAction(e.Run())
DONE = e.Run(status="completed", finish_reason="stop")

STEPS: list[e.Event] = [
    e.RunStepCreated(e.RunStep(id="step-a")),
    *whole(m.TextMessage("t12"), "One."),
    e.Usage(10, 5, 15, {"prompt_tokens_details": {"cached_tokens": 4}}),
    e.RunStepDone(e.RunStep(id="step-a")),
    e.RunStepCreated(e.RunStep(id="step-b")),
    *whole(m.TextMessage("t13"), "Two."),
    e.Usage(20, 6, 26),
    e.RunStepDone(e.RunStep(id="step-b")),
]

RUNS: dict[str, tuple[e.Run, list[e.Event], e.Run]] = {
    "steps, with their ids": (e.Run(id="run-1"), STEPS, DONE),
    "a run's model": (e.Run(id="run-1", model="gpt"), [], DONE),
    "when a run began and ended": (
        e.Run(id="run-1", created_at=1767225600.0),
        [],
        e.Run(status="completed", finish_reason="stop", completed_at=1767225601.5),
    ),
    "why a run ended": (e.Run(id="run-1"), [], e.Run(status="completed", finish_reason="end_turn")),
    "a run that ended without a reason": (e.Run(id="run-1"), [], e.Run(status="completed")),
    "a run that was cut short": (e.Run(id="run-1"), [], e.Run(status="incomplete", finish_reason="max_output_tokens")),
    "a run that was cancelled": (e.Run(id="run-1"), CASES["a text"], e.Run(status="cancelled")),
    "a run that failed, and with what": (
        e.Run(id="run-1"),
        CASES["a text"],
        e.Run(status="failed", error={"message": "no credits", "code": "insufficient_quota"}),
    ),
    "a confirmation of a call, and waiting for it": (
        e.Run(id="run-1"),
        [*whole(call("c13", provider_executed=True)), *asked(call("c13", provider_executed=True)), WAITS],
        e.Run(status="requires_action", finish_reason="tool_calls"),
    ),
    "a confirmation of code": (
        e.Run(id="run-1"),
        [*whole(m.CodeMessage("k2", content="1")), *asked(m.CodeMessage("k2", content="1")), WAITS],
        e.Run(status="requires_action", finish_reason="tool_calls"),
    ),
    "a call that waits for its output": (
        e.Run(id="run-1"),
        whole(call("c17")),
        e.Run(status="requires_action", finish_reason="tool_calls"),
    ),
}

PROFILES: dict[str, tuple[str, dict[str, Any]]] = {
    "useChat of `ai` 5": ("vercel_ui", {"version": 5, "expose_errors": True}),
    "6": ("vercel_ui", {"version": 6, "expose_errors": True}),
    "7": ("vercel_ui", {"version": 7, "expose_errors": True}),
    "AG-UI 0.x": ("ag_ui", {"version": "0", "expose_errors": True}),
    "1.0": ("ag_ui", {"version": "1.0", "expose_errors": True}),
}


def completed(events: Iterable[e.Event], first: e.Run | None = None, last: e.Run | None = None) -> Iterator[e.Event]:
    """These events in a run, as a stream delivers them, up to the end of the run. What is in them is live."""
    engine = Engine()
    given = [e.RunCreated(first or e.Run(id="run-1")), *events, e.RunDone(last or DONE)]
    yield from engine.complete(given)
    yield from engine.source_done(complete=True)
    yield from engine.end()


def case(name: str) -> Iterator[e.Event]:
    """The complete stream of a case."""
    if name in RUNS:
        first, events, last = RUNS[name]
        return completed(events, first, last)
    return completed(CASES[name])


def everything() -> Iterator[e.Event]:
    """One stream with all of the cases that a run may have together."""
    events = [event for events in CASES.values() for event in events]
    return completed([*events, *STEPS], e.Run(id="run-1", model="m", created_at=1767225600.0))


def encoded(events: Iterable[e.Event], protocol: str, **options: Any) -> list[Any]:
    """The wire items of events, as a client parses them."""
    encoder = protocols.find(protocol).Encoder(**options)
    items = [item for event in events for item in json.loads(json.dumps([*encoder.items(event)]))]
    return items


def lines(events: Iterable[e.Event]) -> list[Line]:
    """Events as JSON. Neighbouring deltas of one message are one: where they were cut is no matter."""
    out: list[Line] = []
    for event in events:
        line = {key: value for key, value in event_to_dict(event).items() if key != "cursor"}
        before = out[-1] if out else {}
        is_same = line.get("message_id") is not None and line.get("message_id") == before.get("message_id")
        mergeable = "value" in line and not line.get("replace") and line.get("metadata") == before.get("metadata")
        if is_same and mergeable and "value" in before:
            before["value"] += line["value"]
        else:
            out.append(line)
    return out


def decoded(items: Sequence[Any], protocol: str) -> Iterator[e.Event]:
    """The events of items, completed up to the end of the run."""
    engine = Engine()
    decoder = protocols.find(protocol).Decoder(engine.messages.new_id)
    for item in items:
        yield from engine.complete(decoder.feed_items([item]))
    yield from engine.complete(decoder.finish())
    yield from engine.source_done(complete=decoder.complete)
    yield from engine.end()


def messages_of(found: Iterable[Line]) -> list[Line]:
    """The messages that are done."""
    return [line["message"] for line in found if line["type"].endswith("_done") and "message" in line]


def comes_back(name: str, protocol: str, options: dict[str, Any]) -> str:
    """How a case comes back: with the same events, the same messages, the same content, or not."""
    before, after = lines(case(name)), lines(decoded(encoded(case(name), protocol, **options), protocol))
    for line in (*before, *after) if name in CASES else ():
        line.get("run", {}).pop("finish_reason", None)  # a case of its own
    if before == after:
        return "events"
    messages, came = messages_of(before), messages_of(after)
    if messages and messages == came:
        return "messages"
    contents = [message["content"] for message in messages if message.get("content")]
    text = "\0".join(message.get("content", "") for message in came)
    if contents and all(content in text or json.dumps(content)[1:-1] in text for content in contents):
        return "content"
    return "-"
