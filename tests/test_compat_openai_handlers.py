"""Handlers as applications wrote them for the Assistants API, over every provider: what they show is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import streamkit as sk
from streamkit.compat.openai import AssistantEventHandler, AsyncAssistantEventHandler
from streamkit.testing import ModelServer, Reply

from . import assistants as a
from .assistants import message, message_delta, run, text
from .faces import Face, ask, ask_responses, body, every_face

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


@every_face
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
