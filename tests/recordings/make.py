"""Makes the recordings in this folder: `python -m tests.recordings.make`.

Those of models are recorded from the scripted server, the others are written by their encoders. Ids count and clocks
stand still, so each run writes the same bytes; a test compares them with the files.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamkit as sk
from streamkit import protocols
from streamkit.testing import CodeInterpreter, ModelServer, Reasoning, Reply, ServiceError, Text, ToolCall

HERE = Path(__file__).parent
TEXT = Text(pieces=["It rains ", "in “Oslo”,\n", "data: 7 °C ", "\U0001f327."])
CALL = ToolCall("weather", {"city": "Oslo", "note": 'a "quoted" \\ word', "days": [1, 2]})
OVERLOADED = ServiceError("The service is overloaded.", "server_error", "overloaded")

REPLIES = {
    "text": Reply(TEXT),
    "tool-call": Reply(Text(pieces=["Let me ", "look."]), CALL, ToolCall("time")),
    "error": Reply(TEXT, error_after=2, error=OVERLOADED),
    "cut-off": Reply(TEXT, CALL, cut_after=5),
    "reasoning": Reply(Reasoning(pieces=["They ask ", "for weather."]), TEXT),
    "code": Reply(CodeInterpreter(pieces=["print(", "6 * 7)"], logs="42\n"), Text(pieces=["It is ", "42."])),
}
# The others have every reply: Chat Completions, Cohere and Ollama have no code interpreter, Assistants no reasoning.
LEFT_OUT = {"openai-chat": "code", "openai-assistants": "reasoning", "ollama": "code", "cohere": "code"}

ASKED = {"model": "m", "messages": [{"role": "user", "content": "?"}], "stream": True}
REQUESTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "openai-chat": ("/v1/chat/completions", {**ASKED, "stream_options": {"include_usage": True}}),
    "openai-responses": ("/v1/responses", {"model": "m", "input": "?", "stream": True}),
    "openai-assistants": ("/v1/threads/runs", {"assistant_id": "asst_1", "stream": True}),
    "anthropic-messages": ("/v1/messages", {**ASKED, "max_tokens": 100}),
    "cohere": ("/v2/chat", ASKED),
    "ollama": ("/api/chat", ASKED),
}

LINES = {"ollama": ".jsonl"}

# The server does not speak these: a body of Chat Completions is encoded again.
ENCODED = {
    "bedrock-converse": ("bedrock_converse", ".jsonl"),
    "gemini": ("gemini", ".sse"),
    "letta": ("letta", ".sse"),
    "open-interpreter": ("open_interpreter", ".jsonl"),
    "vercel-ui": ("vercel_ui", ".sse"),
    "ag-ui": ("ag_ui", ".sse"),
}


def recorded(folder: str, reply: Reply) -> bytes:
    """The body of the server's answer, as far as it arrived."""
    path, body = REQUESTS[folder]
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    with ModelServer(reply) as server:
        request = urllib.request.Request(server.root_url + path, json.dumps(body).encode(), headers)
        received = b""
        with contextlib.suppress(http.client.IncompleteRead), urllib.request.urlopen(request) as response:
            while piece := response.read1():
                received += piece
        return received


def encoded(protocol: str, ending: str, body: bytes) -> bytes:
    """A body of another protocol as this one's: server-sent events, or a JSON object per line."""
    items: list[dict[str, Any]] = []
    options = {"status": True} if protocol == "open_interpreter" else {}  # as its own server ends
    encoder = protocols.find(protocol).Encoder(**options)
    with contextlib.suppress(sk.RunFailedError):
        for event in sk.stream([body]):
            items.extend(encoder.items(event))
    before, after = ("data: ", "\n\n") if ending == ".sse" else ("", "\n")
    return "".join(f"{before}{json.dumps(item)}{after}" for item in items).encode()


def bodies() -> dict[Path, bytes]:
    """Every recording's file, and what it holds."""
    made: dict[Path, bytes] = {}
    for folder in REQUESTS:
        for name, reply in REPLIES.items():
            if name != LEFT_OUT.get(folder):
                made[HERE / folder / f"{name}{LINES.get(folder, '.sse')}"] = recorded(folder, reply)
    for folder, (protocol, ending) in ENCODED.items():
        for name in ("text", "tool-call", "error", "reasoning"):
            body = encoded(protocol, ending, made[HERE / "openai-chat" / f"{name}.sse"])
            made[HERE / folder / f"{name}{ending}"] = body
            if name == "tool-call":
                made[HERE / folder / f"cut-off{ending}"] = body[: len(body) * 2 // 3]
    return made


if __name__ == "__main__":
    for path, body in bodies().items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)
        print(len(body), path.relative_to(HERE))
